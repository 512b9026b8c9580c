"""Tasks that fail, are killed or are stopped by LIMIT leave no connection and no transaction."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from tests.integration.spark_session import start_spark, why_no_spark
from tests.kafka.fixtures import Kafka
from tests.kafka.topics import create_topic

missing = why_no_spark() or ("" if Path("/proc/net/tcp").exists() else "needs /proc")
pytestmark = [
    pytest.mark.skipif(bool(missing), reason=missing or "Spark is there"),
    pytest.mark.timeout(300),
    # Spark's own.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

ROWS = 20_000
PATIENCE = 90.0


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = start_spark(tmp_path_factory.mktemp("spark"), master="local[2]")
    # Many small batches between the JVM and Python.
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")

    def slow(text: str) -> str:
        import time

        time.sleep(0.002)
        return text

    session.udf.register("slow", slow, "string")
    yield session
    session.stop()


@pytest.fixture
def make(kafka: Kafka) -> Callable[[], str]:
    """A function that makes a topic with two partitions."""

    def new() -> str:
        name = f"leftovers-{uuid.uuid4().hex[:8]}"
        asyncio.run(create_topic(kafka.bootstrap_servers, name, 2))
        return name

    return new


@pytest.fixture
def full(kafka: Kafka, make: Callable[[], str]) -> str:
    """A topic with records, more than Spark takes at once."""
    topic = make()

    async def fill() -> None:
        async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
            for number in (0, 1):
                for _ in range(ROWS // 200):
                    batch = producer.create_batch()
                    for _ in range(100):
                        batch.append(timestamp=None, key=None, value=b"x" * 100)
                    await producer.send_batch(batch, topic, partition=number)

    asyncio.run(fill())
    return topic


class Spark:
    """What a test asks of a session."""

    def __init__(self, session: Any, kafka: Kafka) -> None:
        self.session = session
        self.servers = kafka.bootstrap_servers
        self.options = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "clientIdleTimeout": "1s",
        }

    def read(self, topic: str) -> Any:
        reader = self.session.read.format("aiokafka").options(**self.options, subscribe=topic)
        return reader.option("batchRows", "100").load().selectExpr("cast(value AS string) AS value")

    def write(self, rows: Any, topic: str) -> None:
        writer = rows.write.format("aiokafka").options(**self.options, topic=topic)
        writer = writer.option("kafka.batch.size", "1000")
        writer.option("txnAppId", topic).option("txnVersion", "1").mode("append").save()

    # -- what there is

    def ends(self, topic: str, isolation: str) -> list[int]:
        async def ask() -> list[int]:
            tps = [TopicPartition(topic, number) for number in (0, 1)]
            servers = self.servers
            consumer = AIOKafkaConsumer(bootstrap_servers=servers, isolation_level=isolation)
            async with consumer:
                return list((await consumer.end_offsets(tps)).values())

        return asyncio.run(ask())

    def is_writing(self, topic: str) -> bool:
        return sum(self.ends(topic, "read_uncommitted")) > 0

    def is_settled(self, topic: str) -> bool:
        """No transaction is open."""
        return self.ends(topic, "read_committed") == self.ends(topic, "read_uncommitted")

    def connections(self) -> int:
        """To the brokers, of all processes that the JVM has started."""
        ports = {int(server.rpartition(":")[2]) for server in self.servers.split(",")}
        sockets = set()
        for table in ("tcp", "tcp6"):
            for line in Path("/proc/net", table).read_text().splitlines()[1:]:
                fields = line.split()
                if int(fields[2].rpartition(":")[2], 16) in ports:
                    sockets.add(f"socket:[{fields[9]}]")
        jvm = self.session.sparkContext._gateway.proc.pid
        return sum(len(sockets & files(pid)) for pid in descendants(jvm))


def files(pid: int) -> set[str]:
    found = set()
    with contextlib.suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.add(os.readlink(entry))
    return found


def descendants(pid: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(fields[1])
    found = [pid]
    for parent in found:
        found += [child for child, its in parents.items() if its == parent]
    return found[1:]


def until(condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def ours(spark: Any, kafka: Kafka) -> Spark:
    return Spark(spark, kafka)


@contextlib.contextmanager
def cancelled(ours: Spark, when: Callable[[], bool], *, interrupt: bool) -> Iterator[None]:
    """The jobs of the body are cancelled once `when()` is true."""
    group = uuid.uuid4().hex
    context = ours.session.sparkContext
    context.setJobGroup(group, "to be cancelled", interruptOnCancel=interrupt)

    has_ended = threading.Event()

    def cancel() -> None:
        until(when, 2 * PATIENCE)
        # Again, for what is planned may not be a job yet.
        while not has_ended.wait(0.2):
            context.cancelJobGroup(group)

    canceller = threading.Thread(target=cancel)
    canceller.start()
    try:
        with pytest.raises(Exception, match=r"(?i)cancel"):
            yield
    finally:
        has_ended.set()
        canceller.join()
        context.setLocalProperty("spark.jobGroup.id", None)


def test_reading_that_ends_early(ours: Spark, full: str) -> None:
    """By LIMIT, by a failure, by a cancelled job."""
    rows = ours.read(full)
    assert len(rows.limit(5).collect()) == 5
    assert len(rows.take(3)) == 3
    with pytest.raises(Exception, match="is not true"):
        rows.selectExpr("assert_true(value = 'y')").collect()
    tracker = ours.session.sparkContext.statusTracker()

    def is_reading() -> bool:
        return bool(tracker.getActiveStageIds()) and ours.connections() > 0

    with cancelled(ours, is_reading, interrupt=False):
        rows.selectExpr("slow(value) AS value").agg({"value": "max"}).collect()
    until(lambda: ours.connections() == 0)
    assert rows.count() == ROWS


def test_a_write_that_fails(ours: Spark, full: str, make: Callable[[], str]) -> None:
    sink = make()
    rows = ours.session.range(0, 4000, 1, 2)
    with pytest.raises(Exception, match="is not true"):
        fails = "coalesce(cast(assert_true(id % 2000 < 1500) AS string), repeat('x', 1000))"
        ours.write(rows.selectExpr(f"{fails} AS value"), sink)
    assert ours.is_writing(sink)
    until(lambda: ours.is_settled(sink))
    until(lambda: ours.connections() == 0)


@pytest.mark.parametrize("interrupt", [False, True])
def test_a_write_that_is_cancelled(
    ours: Spark, full: str, make: Callable[[], str], interrupt: bool
) -> None:
    sink = make()
    with cancelled(ours, lambda: ours.is_writing(sink), interrupt=interrupt):
        ours.write(ours.read(full).selectExpr("slow(value) AS value"), sink)
    until(lambda: ours.is_settled(sink))
    until(lambda: ours.connections() == 0)


def test_a_stream_that_is_stopped(
    ours: Spark, full: str, make: Callable[[], str], tmp_path: Path
) -> None:
    sink = make()
    options = {**ours.options, "subscribe": full, "startingOffsets": "earliest"}
    rows = ours.session.readStream.format("aiokafka").options(**options).load()
    writer = rows.selectExpr("slow(cast(value AS string)) AS value").writeStream
    writer = writer.format("aiokafka").options(**ours.options, topic=sink)
    writer = writer.option("kafka.batch.size", "1000").option("checkpointLocation", str(tmp_path))
    query = writer.option("deliveryGuarantee", "exactly-once").start()
    until(lambda: ours.is_writing(sink), 2 * PATIENCE)
    query.stop()
    until(lambda: ours.is_settled(sink))
    until(lambda: ours.connections() == 0)
