"""Millions of records out of Spark and into it again, on the newest broker and on old ones."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from tests.integration.spark_jvm import JVM, OURS, make_topic, marks, run, with_options
from tests.kafka.fixtures import Kafka, Scale, is_long_run, need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.settings import FOR_BENCHMARKS, Jvm

pytestmark = [*marks, pytest.mark.long]

PARTITIONS = 4
# Spark's own source comes with a client for which 0.9 is too old.
OLD = ("0.9.0.1", "0.10.2.2") if is_long_run() else ("0.9.0.1",)


class Summary(NamedTuple):
    """What is in one partition."""

    partition: int
    count: int
    first: int
    last: int
    keys: int
    """The sum of the checksums of all keys."""

    values: int


def read(spark: Any, form: str, kafka: Kafka, topic: str, **options: Any) -> list[Summary]:
    rows = with_options(spark.read, form, kafka, subscribe=topic, **options).load()
    return sum_up(rows)


def sum_up(rows: Any) -> list[Summary]:
    from pyspark.sql.functions import expr

    terms = ("count(*)", "min(offset)", "max(offset)", "sum(crc32(key))", "sum(crc32(value))")
    summed = rows.groupBy("partition").agg(*map(expr, terms))
    return [Summary(*row) for row in summed.orderBy("partition").collect()]


def totals(found: list[Summary]) -> tuple[int, int, int]:
    """Of all partitions; and every partition is there from its first record to its last."""
    assert [s.partition for s in found] == list(range(PARTITIONS))
    assert all(s.first == 0 and s.last == s.count - 1 for s in found)
    return sum(s.count for s in found), sum(s.keys for s in found), sum(s.values for s in found)


def make_rows(spark: Any, count: int) -> Any:
    return spark.range(0, count, 1, 4).selectExpr(
        "cast(id % 1000 as string) as key",
        "concat(cast(id as string), repeat(cast(id % 10 as string), 90)) as value",
    )


def totals_of(rows: Any) -> tuple[int, int, int]:
    sums = ("count(*)", "sum(crc32(cast(key as binary)))", "sum(crc32(cast(value as binary)))")
    (row,) = rows.selectExpr(*sums).collect()
    return tuple(row)  # type: ignore[return-value]


def test_millions(both: Any, kafka: Kafka, scale: Scale) -> None:
    rows = make_rows(both, scale(50_000, 5_000_000))
    wanted = totals_of(rows)
    summaries = []
    for form, codec in ((OURS, "lz4"), (JVM, "none")):
        topic = make_topic(kafka, PARTITIONS)
        options = {"topic": topic, "kafka.compression.type": codec, "kafka.linger.ms": "5"}
        with_options(rows.write, form, kafka, **options).mode("append").save()
        ours = read(both, OURS, kafka, topic, minPartitions="6")
        assert totals(ours) == wanted
        assert ours == read(both, JVM, kafka, topic)
        summaries.append(ours)
    assert summaries[0] == summaries[1] == stream(both, kafka, topic)


def stream(spark: Any, kafka: Kafka, topic: str) -> list[Summary]:
    """The same as `read`, by a streaming query of some batches."""
    found: list[list[Summary]] = []
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1000000"}
    rows = with_options(spark.readStream, OURS, kafka, **options).load()
    writer = rows.writeStream.foreachBatch(lambda batch, _: found.append(sum_up(batch)))
    assert writer.trigger(availableNow=True).start().awaitTermination(600)
    return [combine([s for batch in found for s in batch if s.partition == n]) for n in range(4)]


def combine(parts: list[Summary]) -> Summary:
    """Of one partition, batch after batch; without gaps between them."""
    assert all(a.last + 1 == b.first for a, b in itertools.pairwise(parts))
    return Summary(
        parts[0].partition,
        sum(part.count for part in parts),
        parts[0].first,
        parts[-1].last,
        sum(part.keys for part in parts),
        sum(part.values for part in parts),
    )


@pytest.fixture(scope="module", params=OLD)
def old(request: pytest.FixtureRequest) -> Iterator[KafkaCluster]:
    """A broker of old, which makes topics when they are asked for."""
    need_own_brokers()
    jvm = FOR_BENCHMARKS if is_long_run() else Jvm()
    config = {"num.partitions": str(PARTITIONS)}
    with KafkaCluster(request.param, jvm=jvm, config=config) as cluster:
        yield cluster


def test_millions_on_old_brokers(both: Any, old: KafkaCluster, scale: Scale) -> None:
    topic = "millions"
    run(wait_for_topic(old, topic))
    rows = make_rows(both, scale(20_000, 5_000_000))
    options = {"topic": topic, "kafka.compression.type": "snappy", "kafka.linger.ms": "5"}
    with_options(rows.write, OURS, old, **options).mode("append").save()
    ours = read(both, OURS, old, topic)
    assert totals(ours) == totals_of(rows)
    assert ours == run(consume(old, topic, sum(s.count for s in ours)))
    assert ours == stream(both, old, topic)
    if old.version.key >= (0, 10):
        assert ours == read(both, JVM, old, topic)


async def wait_for_topic(kafka: Kafka, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        assert len(await producer.partitions_for(topic)) == PARTITIONS


async def consume(kafka: Kafka, topic: str, count: int) -> list[Summary]:
    """The same as `read`, by a consumer: no Spark, no Arrow."""
    found = {n: Summary(n, 0, 0, -1, 0, 0) for n in range(PARTITIONS)}
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest"
    )
    async with consumer:
        consumer.assign([TopicPartition(topic, n) for n in range(PARTITIONS)])
        while sum(s.count for s in found.values()) < count:
            for tp, records in (await consumer.getmany(timeout_ms=10_000)).items():
                s = found[tp.partition]
                assert [r.offset for r in records] == list(
                    range(s.last + 1, s.last + 1 + len(records))
                )
                found[tp.partition] = Summary(
                    tp.partition,
                    s.count + len(records),
                    0,
                    records[-1].offset,
                    s.keys + sum(zlib.crc32(r.key or b"") for r in records),
                    s.values + sum(zlib.crc32(r.value or b"") for r in records),
                )
    return list(found.values())
