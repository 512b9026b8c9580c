"""Records that are gone: the error, or the skip, that `failOnDataLoss` promises.

Wherever Spark's own source promises the same, it is held to it here as well: the tests would be
wrong otherwise.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete
from tests.integration.spark_jvm import (
    JVM,
    OURS,
    Copy,
    fill,
    make_topic,
    marks,
    run,
    send,
    with_options,
)
from tests.kafka.fixtures import Kafka

pytestmark = marks

FORMS = pytest.mark.parametrize("form", [OURS, JVM])
TOLERANT = {"failOnDataLoss": "false"}
# How each says it; most of Spark's own have the same first sentence.
LOST = "may have been lost|out of range"
ERRORS = {
    "retention": {OURS: "offsets 15 to 29 are gone: the log begins later now", JVM: LOST},
    "truncation": {OURS: "offsets 5 to 14 are gone: the log ends earlier", JVM: LOST},
    "gone": {OURS: "partitions do not exist any more: .*-0", JVM: "have been deleted"},
    "before": {OURS: "offsets 5 to 9 are gone: the log begins later", JVM: LOST},
    "crossed": {
        OURS: "the query would begin at offset 2 and end before it, at 1",
        JVM: "resolved start offset 2 is greater than the resolved end offset 1",
    },
    "behind": {OURS: "offsets 30 to 39 are gone: the log ends earlier", JVM: LOST},
}


async def delete_before(kafka: Kafka, topic: str, offset: int, partitions: int = 2) -> None:
    wanted = {TopicPartition(topic, n): RecordsToDelete(offset) for n in range(partitions)}
    async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        await admin.delete_records(wanted)


async def send_at(kafka: Kafka, topic: str, stamps: list[int]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for stamp in stamps:
            await producer.send_and_wait(topic, b"", partition=0, timestamp_ms=stamp)


async def delete_topic(kafka: Kafka, topic: str) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        await admin.delete_topics([topic])
        while topic in await admin.list_topics():
            await asyncio.sleep(0.05)


def make_anew(kafka: Kafka, topic: str) -> None:
    run(delete_topic(kafka, topic))
    make_topic(kafka, name=topic)


async def add_partitions(kafka: Kafka, topic: str, count: int) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as admin:
        await admin.create_partitions({topic: NewPartitions(count)})
        while len((await admin.describe_topics([topic]))[0]["partitions"]) < count:
            await asyncio.sleep(0.05)


@FORMS
def test_retention_between_two_runs(both: Any, kafka: Kafka, tmp_path: Path, form: str) -> None:
    topic, copy = make_topic(kafka), Copy(both, kafka, tmp_path)
    fill(kafka, topic, 0, 30)
    copy.run(form, topic)
    fill(kafka, topic, 30, 90)
    run(delete_before(kafka, topic, 30))
    with pytest.raises(Exception, match=ERRORS["retention"][form]):
        copy.run(form, topic)
    copy.run(form, topic, **TOLERANT)
    # Offset 30 of both partitions is number 60.
    assert copy.values() == [*range(30), *range(60, 90)]


@FORMS
def test_a_topic_made_anew_that_is_shorter(
    both: Any, kafka: Kafka, tmp_path: Path, form: str
) -> None:
    topic, copy = make_topic(kafka), Copy(both, kafka, tmp_path)
    fill(kafka, topic, 0, 30)
    copy.run(form, topic)
    make_anew(kafka, topic)
    fill(kafka, topic, 100, 110)
    with pytest.raises(Exception, match=ERRORS["truncation"][form]):
        copy.run(form, topic)
    copy.run(form, topic, **TOLERANT)
    fill(kafka, topic, 110, 120)
    copy.run(form, topic, **TOLERANT)
    # What was there when the query came back is skipped: it goes on from the new end.
    assert copy.values() == [*range(30), *range(110, 120)]


def test_deleted_records_do_not_count_for_a_limit(both: Any, kafka: Kafka, tmp_path: Path) -> None:
    """Spark's own source goes through their offsets in batches without a row."""
    topic, copy = make_topic(kafka, 1), Copy(both, kafka, tmp_path)
    fill(kafka, topic, 0, 10, partitions=1)
    copy.run(OURS, topic)
    fill(kafka, topic, 10, 1000, partitions=1)
    run(delete_before(kafka, topic, 985, partitions=1))
    copy.run(OURS, topic, **TOLERANT, maxOffsetsPerTrigger="10")
    assert copy.values() == [*range(10), *range(985, 1000)]
    assert copy.last_batch() == 2


def test_a_topic_made_anew_while_the_query_runs(both: Any, kafka: Kafka, tmp_path: Path) -> None:
    """Known by its id, though it is longer than it was."""
    topic = make_topic(kafka)
    for tolerant in (False, True):
        fill(kafka, topic, 0, 20)
        query = watch(both, kafka, topic, tmp_path / str(tolerant), tolerant)
        make_anew(kafka, topic)
        fill(kafka, topic, 100, 200)
        if not tolerant:
            with pytest.raises(Exception, match="the topic was deleted and created again"):
                query.awaitTermination(60)
            assert not query.isActive
            make_anew(kafka, topic)
            continue
        wait_for_offset(query, topic, 50)
        fill(kafka, topic, 200, 210)
        wait_for_offset(query, topic, 55)
        query.stop()
        found = {int(row.value) for row in both.table(query.name).collect()}
        # What the old topic had, and the new one from the same offsets on.
        assert {*range(20), *range(120, 210)} <= found <= {*range(20), *range(100, 210)}


def watch(spark: Any, kafka: Kafka, topic: str, folder: Path, tolerant: bool) -> Any:
    """A query that runs until it is stopped, when it has read twenty records."""
    options = {
        "subscribe": topic,
        "startingOffsets": "earliest",
        # The new topic is empty for a moment, which is no news.
        "fetchOffset.numRetries": "30",
        **(TOLERANT if tolerant else {}),
    }
    rows = with_options(spark.readStream, OURS, kafka, **options).load()
    writer = rows.selectExpr("cast(value as string) as value").writeStream.format("memory")
    name = f"watched_{topic.replace('-', '_')}_{tolerant}"
    query = writer.queryName(name).option("checkpointLocation", str(folder)).start()
    wait_for_offset(query, topic, 10)
    return query


def wait_for_offset(query: Any, topic: str, offset: int) -> None:
    """Until a batch has ended there in both partitions."""

    async def wait() -> None:
        while True:
            assert query.isActive, query.exception()
            progress = query.lastProgress
            if progress is not None:
                end = json.loads(progress["sources"][0]["endOffset"] or "{}")
                if [end.get(topic, {}).get(number) for number in "01"] == [offset, offset]:
                    return
            await asyncio.sleep(0.1)

    run(asyncio.wait_for(wait(), 60))


@FORMS
def test_a_topic_of_several_that_is_deleted(
    both: Any, kafka: Kafka, tmp_path: Path, form: str
) -> None:
    kept, gone = make_topic(kafka), make_topic(kafka)
    copy = Copy(both, kafka, tmp_path)
    fill(kafka, kept, 0, 20)
    fill(kafka, gone, 100, 120)
    pattern = f"{kept}|{gone}"
    copy.run(form, pattern)
    run(delete_topic(kafka, gone))
    fill(kafka, kept, 20, 40)
    with pytest.raises(Exception, match=ERRORS["gone"][form]):
        copy.run(form, pattern)
    copy.run(form, pattern, **TOLERANT)
    assert copy.values() == [*range(40), *range(100, 120)]


@FORMS
def test_partitions_that_are_added(both: Any, kafka: Kafka, tmp_path: Path, form: str) -> None:
    """No loss: they are read from their start."""
    topic, copy = make_topic(kafka), Copy(both, kafka, tmp_path)
    fill(kafka, topic, 0, 30)
    copy.run(form, topic)
    run(add_partitions(kafka, topic, 4))
    fill(kafka, topic, 30, 70, partitions=4)
    copy.run(form, topic)
    assert copy.values() == list(range(70))


def test_a_partition_that_was_added_and_has_lost_its_start(
    both: Any, kafka: Kafka, tmp_path: Path
) -> None:
    topic, copy = make_topic(kafka, 1), Copy(both, kafka, tmp_path)
    fill(kafka, topic, 0, 10, partitions=1)
    copy.run(OURS, topic)
    run(add_partitions(kafka, topic, 2))
    run(send(kafka.bootstrap_servers, topic, [(1, b"", b"%d" % n, ()) for n in range(100, 120)]))
    run(delete_before(kafka, topic, 5, partitions=2))
    with pytest.raises(Exception, match=f"{topic}-1: offsets 0 to 4 are gone: the log begins"):
        copy.run(OURS, topic)
    copy.run(OURS, topic, **TOLERANT)
    assert copy.values() == [*range(10), *range(105, 120)]


@FORMS
def test_bounds_of_a_batch_that_cross(both: Any, kafka: Kafka, form: str) -> None:
    topic = make_topic(kafka, 1)
    stamp = 1_767_225_600_000
    run(send_at(kafka, topic, [stamp, stamp + 1000, stamp + 2000]))
    bounds = {"startingTimestamp": stamp + 1500, "endingTimestamp": stamp + 500}
    rows = with_options(both.read, form, kafka, subscribe=topic, **bounds).load()
    with pytest.raises(Exception, match=ERRORS["crossed"][form]):
        rows.collect()


@FORMS
def test_batches_of_what_is_gone(both: Any, kafka: Kafka, form: str) -> None:
    topic = make_topic(kafka, 1)
    fill(kafka, topic, 0, 30, partitions=1)
    run(delete_before(kafka, topic, 10, partitions=1))

    def read(start: int, end: int, **options: str) -> list[int]:
        bounds = {
            "startingOffsets": f'{{"{topic}": {{"0": {start}}}}}',
            "endingOffsets": f'{{"{topic}": {{"0": {end}}}}}',
            "kafkaConsumer.pollTimeoutMs": "2000",
        }
        rows = with_options(both.read, form, kafka, subscribe=topic, **bounds, **options).load()
        return sorted(int(row.value) for row in rows.collect())

    assert read(10, 30) == list(range(10, 30))
    with pytest.raises(Exception, match=ERRORS["before"][form]):
        read(5, 20)
    assert read(5, 20, **TOLERANT) == list(range(10, 20))
    with pytest.raises(Exception, match=ERRORS["behind"][form]):
        read(20, 40)
    if form == OURS:  # The other one goes on waiting, a second at a time.
        assert read(20, 40, **TOLERANT) == list(range(20, 30))
