"""The data source in Spark, against a real Kafka."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import json
import threading
import uuid
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.spark import lag
from tests.integration.spark_session import start_spark, why_no_spark
from tests.kafka.fixtures import Kafka
from tests.kafka.topics import create_topic

T = TypeVar("T")

missing = why_no_spark()
pytestmark = [
    pytest.mark.skipif(bool(missing), reason=missing or "Spark is there"),
    pytest.mark.timeout(300),
    # Spark's own.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

Record = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

SHAPES: list[Record] = [
    (0, b"k", b"v", ()),
    (1, None, b"v", ()),
    (0, b"k", None, ()),
    (1, b"", b"", ()),
    (0, None, None, (("h", b"1"), ("h", None), ("", b""))),
    (1, "ключ".encode(), bytes(range(256)), (("имя", b"x"),)),
    (0, b"big", bytes(900_000), ()),
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = start_spark(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


@pytest.fixture
def make(kafka: Kafka) -> Callable[..., str]:
    """`make(partitions)`: the name of a new topic."""

    def new(partitions: int = 2) -> str:
        name = f"spark-{uuid.uuid4().hex[:12]}"
        run(create_topic(kafka.bootstrap_servers, name, partitions, 1, {}))
        return name

    return new


def run(coro: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coro)


def reading(kafka: Kafka, what: Any, topic: str, **options: Any) -> Any:
    reader = what.format("aiokafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    return reader.option("subscribe", topic).options(**options)


def writing(kafka: Kafka, what: Any, topic: str, **options: Any) -> Any:
    writer = what.format("aiokafka").option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    return writer.option("topic", topic).options(**options)


async def send(kafka: Kafka, topic: str, records: list[Record]) -> None:
    """In batches, which take records without key and value."""
    servers = kafka.bootstrap_servers
    async with AIOKafkaProducer(bootstrap_servers=servers, compression_type="gzip") as producer:
        for number in {record[0] for record in records}:
            batch = producer.create_batch()
            for partition, key, value, headers in records:
                if partition != number:
                    continue
                given: dict[str, Any] = {"key": key, "value": value, "headers": headers}
                if batch.append(timestamp=None, **given) is None:
                    await producer.send_batch(batch, topic, partition=number)
                    batch = producer.create_batch()
                    batch.append(timestamp=None, **given)
            await producer.send_batch(batch, topic, partition=number)


def fill(kafka: Kafka, topic: str, start: int, until: int) -> None:
    """Numbers, on two partitions."""
    run(send(kafka, topic, [(n % 2, b"%d" % (n % 7), b"%d" % n, ()) for n in range(start, until)]))


async def consume(kafka: Kafka, topic: str) -> list[bytes | None]:
    """All committed values, sorted."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )
    async with consumer:
        numbers = consumer.partitions_for_topic(topic) or set()
        tps = [TopicPartition(topic, number) for number in numbers]
        consumer.assign(tps)
        ends = await consumer.end_offsets(tps)
        found: list[bytes | None] = []
        while any([await consumer.position(tp) < ends[tp] for tp in tps]):
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += [record.value for record in records]
    return sorted(found, key=lambda value: (len(value or b""), value or b""))


def numbers(until: int) -> list[bytes]:
    return [b"%d" % n for n in range(until)]


def test_every_shape_of_record(spark: Any, kafka: Kafka, make: Callable[..., str]) -> None:
    topic = make()
    run(send(kafka, topic, SHAPES))
    rows = reading(kafka, spark.read, topic, includeHeaders="true").load().collect()
    found = collections.defaultdict(list)
    for row in sorted(rows, key=lambda row: row.offset):
        assert (row.topic, row.timestampType) == (topic, 0)
        headers = tuple((h.key, h.value and bytes(h.value)) for h in row.headers or ())
        key, value = (part and bytes(part) for part in (row.key, row.value))
        found[row.partition].append((row.partition, key, value, headers))
        assert (row.headers is None) == (not headers)
    for partition in (0, 1):
        wanted = [record for record in SHAPES if record[0] == partition]
        assert [(r[1], r[2]) for r in found[partition]] == [(r[1], r[2]) for r in wanted]
        assert [len(r[3]) for r in found[partition]] == [len(r[3]) for r in wanted]


def test_columns_limits_and_filters(spark: Any, kafka: Kafka, make: Callable[..., str]) -> None:
    topic = make()
    fill(kafka, topic, 0, 1000)
    narrow = reading(kafka, spark.read.schema("value binary, offset bigint"), topic).load()
    assert narrow.columns == ["value", "offset"]
    assert narrow.count() == 1000
    assert len(reading(kafka, spark.read, topic, batchRows="10").load().limit(5).collect()) == 5
    pushed = reading(kafka, spark.read, topic, pushdown="true", maxPartitions="1").load()
    chosen = pushed.where("partition = 1 and offset >= 100 and offset < 110")
    assert sorted(row.offset for row in chosen.collect()) == list(range(100, 110))
    late = pushed.where("timestamp > timestamp'2100-01-01'")
    assert late.count() == 0


def test_wrong_options_are_told_at_once(spark: Any, kafka: Kafka) -> None:
    with pytest.raises(Exception, match="unknown option for a batch query: maxpartition"):
        reading(kafka, spark.read, "t", maxPartition="1").load().count()
    with pytest.raises(Exception, match=r"mode: a topic cannot be overwritten"):
        writing(kafka, spark.range(1).selectExpr("'x' as value").write, "t").mode(
            "overwrite"
        ).save()


def test_secrets_are_not_in_plans(spark: Any, kafka: Kafka) -> None:
    options = {"kafka.sasl.password": "hush-hush", "kafka.ssl.key.password": "hush-hush"}
    rows = reading(kafka, spark.read, "t", **options).load()
    assert "hush" not in rows._jdf.queryExecution().toString()


def test_batch_writes(spark: Any, kafka: Kafka, make: Callable[..., str]) -> None:
    topic = make()
    rows = spark.range(500).selectExpr("cast(id % 7 as string) as key", "cast(id as string) value")
    writing(kafka, rows.write, topic).mode("append").save()
    assert run(consume(kafka, topic)) == numbers(500)
    topic = make()
    for _ in range(2):
        options = {"txnAppId": topic, "txnVersion": "1"}
        writing(kafka, rows.write, topic, **options).mode("append").save()
    assert run(consume(kafka, topic)) == numbers(500)


def stream_once(kafka: Kafka, spark: Any, source: str, sink: str, checkpoint: Path) -> Any:
    """Copy what there is now from topic to topic, exactly once."""
    rows = reading(
        kafka,
        spark.readStream,
        source,
        startingOffsets="earliest",
        maxOffsetsPerTrigger="40",
        commitOffsets="true",
        **{"kafka.group.id": source},
    ).load()
    writer = writing(
        kafka, rows.select("key", "value").writeStream, sink, deliveryGuarantee="exactly-once"
    )
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination(200)
    assert not query.isActive
    return query


def test_topic_to_topic_exactly_once(
    spark: Any, kafka: Kafka, make: Callable[..., str], tmp_path: Path
) -> None:
    source, sink = make(), make()
    fill(kafka, source, 0, 100)
    query = stream_once(kafka, spark, source, sink, tmp_path)
    assert run(consume(kafka, sink)) == numbers(100)
    behind = lag(query)
    assert behind is not None and behind.metrics["maxOffsetsBehindLatest"] == 0
    assert run(committed(kafka, source)) == {0: 50, 1: 50}
    # Spark forgets that the last batch was done, as when it dies before it has noted that.
    last = max((p for p in (tmp_path / "commits").glob("[0-9]*")), key=lambda p: int(p.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    fill(kafka, source, 100, 130)
    stream_once(kafka, spark, source, sink, tmp_path)
    assert run(consume(kafka, sink)) == numbers(130)
    lines = (tmp_path / "offsets" / "1").read_text().splitlines()
    assert set(json.loads(lines[-1])) == {source}  # As Spark's own source has it.


async def committed(kafka: Kafka, topic: str) -> dict[int, int]:
    async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        found = await admin.list_consumer_group_offsets(topic)
    return {tp.partition: stored.offset for tp, stored in found.items()}


def test_a_checkpoint_of_the_connectors_format(
    spark: Any, kafka: Kafka, make: Callable[..., str], tmp_path: Path
) -> None:
    """Two batches of Spark's own source, of which the second was not finished."""
    source, sink = make(), make()
    fill(kafka, source, 0, 100)
    write_checkpoint(tmp_path, source, [{"0": 10, "1": 10}, {"0": 20, "1": 15}])
    rows = reading(kafka, spark.readStream, source, startingOffsets="earliest").load()
    query = (
        writing(kafka, rows.selectExpr("value").writeStream, sink)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(200)
    # The first batch was finished: numbers below 20.
    assert run(consume(kafka, sink)) == numbers(100)[20:]


def write_checkpoint(path: Path, topic: str, ends: list[dict[str, int]]) -> None:
    (path / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
    for name in ("offsets", "commits", "sources/0"):
        (path / name).mkdir(parents=True)
    first = json.dumps({topic: {"0": 0, "1": 0}})
    (path / "sources" / "0" / "0").write_text(f"v1\n{first}")
    for number, end in enumerate(ends):
        head = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}})
        (path / "offsets" / str(number)).write_text(f"v1\n{head}\n{json.dumps({topic: end})}")
    (path / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_available_now_of_a_busy_topic(
    spark: Any, kafka: Kafka, make: Callable[..., str], tmp_path: Path
) -> None:
    """By default a query begins at the ends, which Spark asks for after it has pinned them."""
    topic = make()
    is_over = threading.Event()

    async def write() -> None:
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            while not is_over.is_set():
                await producer.send_and_wait(topic, b"x")

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        writing = pool.submit(run, write())
        try:
            for number in range(3):
                rows = reading(kafka, spark.readStream, topic).load()
                query = (
                    rows.writeStream.format("noop")
                    .option("checkpointLocation", str(tmp_path / str(number)))
                    .trigger(availableNow=True)
                    .start()
                )
                assert query.awaitTermination(60)
        finally:
            is_over.set()
            writing.result(60)


def test_a_topic_that_is_deleted_while_a_batch_is_not_finished(
    spark: Any, kafka: Kafka, make: Callable[..., str], tmp_path: Path
) -> None:
    topics = [make(), make()]
    for topic in topics:
        fill(kafka, topic, 0, 50)
    seen: list[int] = []

    def run_once(count: Callable[[Any, int], None]) -> None:
        rows = reading(
            kafka,
            spark.readStream,
            ",".join(topics),
            startingOffsets="earliest",
            failOnDataLoss="false",
        ).load()
        query = (
            rows.writeStream.foreachBatch(count)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(100)

    def fail(rows: Any, batch: int) -> None:
        raise ValueError("not this time")

    with pytest.raises(Exception, match="not this time"):
        run_once(fail)
    run(delete(kafka, topics[1]))
    run_once(lambda rows, batch: seen.append(rows.count()))
    assert sum(seen) == seen[0] == 50


async def delete(kafka: Kafka, topic: str) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        await admin.delete_topics([topic])
        while topic in await admin.list_topics():
            await asyncio.sleep(0.05)


def test_retention_during_a_batch_query(spark: Any, kafka: Kafka, make: Callable[..., str]) -> None:
    """The first record there is, is that of when the task runs."""
    from pyspark.sql import functions

    topic, servers = make(), kafka.bootstrap_servers
    fill(kafka, topic, 0, 100)

    def expire(partition: int, offset: int) -> int:
        """When the first partition is read, the second one's records go."""
        if (partition, offset) == (0, 0):
            asyncio.run(delete_before(servers, TopicPartition(topic, 1), 30))
        return offset

    rows = reading(kafka, spark.read.schema("partition int, offset bigint"), topic).load()
    expiring = functions.udf(expire, "bigint", useArrow=False)("partition", "offset").alias(
        "offset"
    )
    found = rows.select("partition", expiring).collect()
    assert sorted(tuple(row) for row in found) == [
        *((0, offset) for offset in range(50)),
        *((1, offset) for offset in range(30, 50)),
    ]


async def delete_before(servers: str, tp: TopicPartition, offset: int) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        await admin.delete_records({tp: RecordsToDelete(offset)})
