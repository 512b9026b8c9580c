"""What the format `aiokafka` reads and writes is what Spark's own `kafka` reads and writes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from tests.integration.spark_jvm import (
    JVM,
    OURS,
    Record,
    make_topic,
    marks,
    run,
    send,
    with_options,
)
from tests.kafka.fixtures import Kafka

pytestmark = marks

MEBIBYTE = 1 << 20
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

SHAPES: list[Record] = [
    (0, b"k", b"v", ()),
    (1, None, b"v", ()),
    (0, b"k", None, ()),
    (1, b"", b"", ()),
    (0, None, None, (("h", b"1"), ("h", None), ("h", b""), ("", b"x"))),
    (1, "ключ".encode(), bytes(range(256)), (("имя", b"x"),)),
    (0, b"large", bytes(range(256)) * (MEBIBYTE // 256), ()),
    (1, bytes(1000), b"after", (("h", bytes(2000)),)),
]

Row = tuple[Any, ...]


class Topics:
    """Topics of every kind, and what is committed in each."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.rows = 0
        self.aborted = 0

    def add(self, name: str, rows: int, aborted: int = 0) -> str:
        self.names.append(name)
        self.rows += rows
        self.aborted += aborted
        return name


@pytest.fixture(scope="module")
def topics(kafka: Kafka, both: Any) -> Iterator[Topics]:
    made, servers = Topics(), kafka.bootstrap_servers
    run(send(servers, made.add(make_topic(kafka, max_message_bytes="4000000"), 8), SHAPES))
    stamped = make_topic(kafka, message_timestamp_type="LogAppendTime")
    run(send(servers, made.add(stamped, 7), SHAPES[:6] + SHAPES[7:]))
    packed = make_topic(kafka, 1)
    for codec in CODECS:
        run(send(servers, packed, [(0, b"", b"%d" % n, ()) for n in range(50)], codec))
        options = {"topic": packed, "kafka.compression.type": codec}
        rows = both.range(50).selectExpr("cast(id as string) as value")
        with_options(rows.write, JVM, kafka, **options).save()
    made.add(packed, 100 * len(CODECS))
    run(transact(servers, made.add(make_topic(kafka, 1), rows=20, aborted=30)))
    yield made


async def transact(servers: str, topic: str) -> None:
    """Transactions of ten records; of five the second, the fourth and the last are aborted."""
    name = uuid.uuid4().hex
    async with AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name) as producer:
        for number in range(5):
            await producer.begin_transaction()
            for n in range(10):
                await producer.send_and_wait(topic, b"%d" % (number * 10 + n), b"k")
            if number in (1, 3, 4):
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()


def rows_of(frame: Any) -> list[Row]:
    """Every column of every row, in the order of the log."""
    found = [
        (
            row.topic,
            row.partition,
            row.offset,
            row.key and bytes(row.key),
            row.value and bytes(row.value),
            row.timestamp,
            row.timestampType,
            row.headers and [(h.key, h.value and bytes(h.value)) for h in row.headers],
        )
        for row in frame.collect()
    ]
    return sorted(found, key=lambda row: row[:3])


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_rows_of_every_shape(both: Any, kafka: Kafka, topics: Topics, isolation: str) -> None:
    options = {
        "subscribe": ",".join(topics.names),
        "includeHeaders": "true",
        "kafka.isolation.level": isolation,
    }
    theirs = with_options(both.read, JVM, kafka, **options).load()
    ours = with_options(both.read, OURS, kafka, **options, maxPartitions="2").load()
    assert ours.schema.simpleString() == theirs.schema.simpleString()
    found = rows_of(ours)
    assert found == rows_of(theirs)
    wanted = topics.rows + (topics.aborted if isolation == "read_uncommitted" else 0)
    assert len(found) == wanted
    assert {row[6] for row in found} == {0, 1}


@pytest.mark.parametrize("is_stream", [False, True], ids=["batch", "stream"])
def test_a_transaction_that_is_open(both: Any, kafka: Kafka, is_stream: bool) -> None:
    """What comes behind it is not read before it ends."""
    topic = make_topic(kafka, 1)
    options = {"subscribe": topic, "kafka.isolation.level": "read_committed"}

    def values(form: str) -> list[bytes]:
        if is_stream:
            return stream(form)
        rows = with_options(both.read, form, kafka, **options).load().collect()
        return [bytes(row.value) for row in sorted(rows, key=lambda row: row.offset)]

    def stream(form: str) -> list[bytes]:
        name = f"t{uuid.uuid4().hex}"
        reader = with_options(both.readStream, form, kafka, startingOffsets="earliest", **options)
        writer = reader.load().writeStream.format("memory").queryName(name)
        assert writer.trigger(availableNow=True).start().awaitTermination(60)
        return [bytes(row.value) for row in both.table(name).orderBy("offset").collect()]

    async def transact() -> tuple[list[bytes], list[bytes]]:
        servers = kafka.bootstrap_servers
        name = uuid.uuid4().hex
        async with (
            AIOKafkaProducer(bootstrap_servers=servers) as plain,
            AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name) as producer,
        ):
            await plain.send_and_wait(topic, b"before")
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"within")
            await plain.send_and_wait(topic, b"behind")
            found = await asyncio.to_thread(lambda: (values(OURS), values(JVM)))
            await producer.abort_transaction()
            return found

    assert run(transact()) == ([b"before"], [b"before"])
    assert values(OURS) == values(JVM) == [b"before", b"behind"]


def test_a_compacted_topic(both: Any, kafka: Kafka) -> None:
    """Gaps within and at the end of the log; read to the end all the same."""
    settings = {
        "cleanup_policy": "compact",
        "segment_ms": "100",
        "min_cleanable_dirty_ratio": "0.001",
        "delete_retention_ms": "0",
    }
    topic, servers = make_topic(kafka, 1, **settings), kafka.bootstrap_servers
    records: list[Record] = [(0, b"%d" % (n % 5), b"%d" % n, ()) for n in range(200)]

    async def compact() -> None:
        """Send until the log was cleaned; a new segment begins with what is sent later."""
        async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            for _ in range(100):
                await send(servers, topic, records)
                await consumer.seek_to_beginning()
                first = await consumer.getone()
                if first.offset > 0:
                    return
                await asyncio.sleep(0.5)
        raise AssertionError("the broker has not compacted the topic")

    run(compact())
    # Divided where there are gaps: each task ends by position.
    options = {"subscribe": topic, "includeHeaders": "true", "minPartitions": "7"}
    found = rows_of(with_options(both.read, OURS, kafka, **options).load())
    assert found == rows_of(with_options(both.read, JVM, kafka, **options).load())
    assert found[0][2] > 0
    assert len(found) < found[-1][2]


# -- writing


def written(both: Any, kafka: Kafka, topic: str) -> list[Row]:
    """What is in a topic, as Spark's own source reads it; without the times."""
    options = {"subscribe": topic, "includeHeaders": "true"}
    rows = rows_of(with_options(both.read, JVM, kafka, **options).load())
    return [(*row[1:5], row[7]) for row in rows]


HEADERS = """
    case when id % 3 = 0 then null
         else array(struct('a' as key, cast(cast(id as string) as binary) as value),
                    struct('a' as key, cast(null as binary) as value)) end as headers
"""
FRAMES = {
    "partitions by key": [
        "concat('key ', id) as key",
        "case when id % 11 = 0 then null else cast(id as string) end as value",
        HEADERS,
    ],
    "given partitions": [
        "cast(null as binary) as key",
        "cast(repeat(cast(id as string), 1000) as binary) as value",
        "cast(id % 3 as int) as partition",
    ],
    "large": [
        "cast('k' as binary) as key",
        f"repeat('x', {MEBIBYTE} - 2000 + cast(id % 5 as int)) as value",
    ],
}


@pytest.mark.parametrize("name", FRAMES)
def test_topics_are_written_alike(both: Any, kafka: Kafka, name: str) -> None:
    """The same records in the same partitions in the same order."""
    size = 20 if name == "large" else 3000
    frame = both.range(0, size, 1, 2).selectExpr(*FRAMES[name])
    found = []
    for form in (OURS, JVM):
        topic = make_topic(kafka, 3, max_message_bytes="4000000")
        options = {"topic": topic, "kafka.max.request.size": "4000000", "includeHeaders": "true"}
        with_options(frame.write, form, kafka, **options).mode("append").save()
        found.append(written(both, kafka, topic))
    assert len(found[0]) == size
    assert found[0] == found[1]
