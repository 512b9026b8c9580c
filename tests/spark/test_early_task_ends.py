"""What tasks that end early leave behind: nothing but a client for the next task, for a while."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pa: Any = pytest.importorskip("pyarrow", reason="needs pyarrow")

from aiokafka.errors import KafkaError  # noqa: E402
from aiokafka.ranges import PartitionRange  # noqa: E402
from aiokafka.spark._fetch import read_batches  # noqa: E402
from aiokafka.spark._loop import loop_thread  # noqa: E402
from aiokafka.spark._options import parse_read, parse_write  # noqa: E402
from aiokafka.spark._produce import TaskIdentity  # noqa: E402
from aiokafka.spark._write import write_batches  # noqa: E402
from aiokafka.testing import FakeCluster  # noqa: E402

ROWS = 1000


def reading(
    cluster: FakeCluster, idle: str = "10ms", until: tuple[int, ...] = (ROWS, ROWS, ROWS)
) -> Iterator[Any]:
    given = {
        "kafka.isolation.level": "read_committed",
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "subscribe": "t",
        "batchRows": "10",
        "clientIdleTimeout": idle,
    }
    options = parse_read(given, streaming=False)
    ranges = [PartitionRange("t", partition, 0, end) for partition, end in enumerate(until)]
    return read_batches(options, ["value"], ranges)


def writing(cluster: FakeCluster, rows: Iterator[Any], guarantee: str) -> None:
    given = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "kafka.batch.size": "100",
        "topic": "t",
        "clientIdleTimeout": "10ms",
        "deliveryGuarantee": guarantee,
    }
    write_batches(parse_write(given, streaming=True), rows, TaskIdentity("query", 0, 0))


def fill(cluster: FakeCluster) -> None:
    for partition in range(3):
        for n in range(ROWS):
            cluster.log("t", partition).append(b"%d" % n)


async def nothing_is_left(cluster: FakeCluster) -> None:
    await cluster.wait_for(lambda: cluster.connections == 0)
    assert len(loop_thread().clients) == 0
    running = {task.get_name() for task in asyncio.all_tasks(loop_thread().loop)}
    assert running <= {"close-idle-client"}


class Killed(BaseException):
    """As what Spark's worker raises where it is interrupted."""


def closed(rows: Iterator[Any]) -> None:
    next(rows)
    rows.close()  # type: ignore[attr-defined]


def dropped(rows: Iterator[Any]) -> None:
    next(rows)
    del rows
    gc.collect()


def interrupted(rows: Iterator[Any]) -> None:
    next(rows)
    with pytest.raises(Killed):
        rows.throw(Killed())  # type: ignore[attr-defined]


def never_begun(rows: Iterator[Any]) -> None:
    del rows


@pytest.mark.parametrize("end", [closed, dropped, interrupted, never_begun])
async def test_reading_ends_early(cluster: FakeCluster, end: Any) -> None:
    fill(cluster)
    await asyncio.to_thread(closed, reading(cluster))
    for _ in range(10):
        await asyncio.to_thread(lambda: end(reading(cluster)))
    names = [thread.name for thread in threading.enumerate()]
    assert names.count("aiokafka-spark") == 1
    await nothing_is_left(cluster)


async def test_reading_that_cannot_begin_leaves_nothing(cluster: FakeCluster) -> None:
    with pytest.raises(ValueError, match="not a valid range of offsets"):
        await asyncio.to_thread(list, reading(cluster, until=(2**70,)))
    await nothing_is_left(cluster)


async def test_the_client_stays_for_the_next_task(cluster: FakeCluster) -> None:
    fill(cluster)
    await asyncio.to_thread(closed, reading(cluster, idle="5m"))
    open_then = cluster.connections
    assert open_then > 0
    for _ in range(10):
        await asyncio.to_thread(closed, reading(cluster, idle="5m"))
    assert cluster.connections == open_then


def rows(error: BaseException | None) -> Iterator[Any]:
    for n in range(20):
        yield pa.record_batch({"value": ["x" * 50] * 10})
        if n == 10 and error is not None:
            raise error


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("error", [EOFError("Spark has gone"), Killed(), None])
async def test_writing_ends_early(
    cluster: FakeCluster, guarantee: str, error: BaseException | None
) -> None:
    """A task that is cut off while it writes, and one that is not."""
    raised: list[BaseException] = []

    def write() -> None:
        try:
            writing(cluster, rows(error), guarantee)
        except BaseException as found:
            raised.append(found)

    await asyncio.to_thread(write)
    assert raised == ([] if error is None else [error])
    await nothing_is_left(cluster)
    for partition in range(3):
        log = cluster.log("t", partition)
        assert log.last_stable_offset == log.end_offset


async def test_a_speculative_copy_of_a_task(cluster: FakeCluster) -> None:
    """It begins while the first attempt writes, and wins: the first can write no more."""
    has_begun, may_go_on = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def slow_rows() -> Iterator[Any]:
        for number, batch in enumerate(rows(None)):
            if number == 10:
                has_begun.set()
                assert may_go_on.wait(30)
            yield batch

    def first() -> None:
        try:
            writing(cluster, slow_rows(), "exactly-once")
        except KafkaError as error:
            errors.append(error)

    attempt = asyncio.create_task(asyncio.to_thread(first))
    assert await asyncio.to_thread(has_begun.wait, 30)
    await asyncio.to_thread(writing, cluster, rows(None), "exactly-once")
    may_go_on.set()
    await attempt
    (error,) = errors
    assert any(name in str(error) for name in ("newer producer", "InvalidProducerEpoch"))
    ends = tuple(cluster.log("t", partition).end_offset for partition in range(3))
    assert tuple(cluster.log("t", partition).last_stable_offset for partition in range(3)) == ends
    found = await asyncio.to_thread(lambda: sum(b.num_rows for b in reading(cluster, until=ends)))
    assert found == 200
    await nothing_is_left(cluster)
