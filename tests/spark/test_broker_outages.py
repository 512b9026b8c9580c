"""Tasks that begin, and queries that look for topics, while no broker is there, as during its
restart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka.errors import KafkaConnectionError, TopicAuthorizationFailedError
from aiokafka.ranges import PartitionRange
from aiokafka.spark._loop import with_retries
from aiokafka.spark._options import parse_read, parse_write
from aiokafka.spark._plan import batch_tasks
from aiokafka.spark._produce import TaskIdentity
from aiokafka.testing import FakeCluster
from tests.spark.support import fill, initial, stream

pa: Any = pytest.importorskip("pyarrow", reason="needs pyarrow")

from aiokafka.spark._fetch import read_batches  # noqa: E402
from aiokafka.spark._write import write_batches  # noqa: E402


async def while_away(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, task: Callable[[], Any]
) -> Any:
    """Begin a task while the broker is stopped; it comes back once that was noticed."""
    await cluster.stop_broker(0)
    running = asyncio.create_task(asyncio.to_thread(task))
    while "for a broker" not in caplog.text and not running.done():
        await asyncio.sleep(0.01)
    await cluster.start_broker(0)
    return await running


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
async def test_a_task_that_writes(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, guarantee: str
) -> None:
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "t"}
    given = parse_write({**options, "deliveryGuarantee": guarantee}, streaming=True)
    rows = iter([pa.record_batch({"value": ["a", "b"]})])
    identity = TaskIdentity("query", 0, 0)
    report = await while_away(cluster, caplog, lambda: write_batches(given, rows, identity))
    assert report.rows == 2
    assert sorted(r.value for n in range(3) for r in cluster.log("t", n).records()) == [b"a", b"b"]


async def test_a_task_that_reads(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    for n in range(10):
        cluster.log("t", 0).append(b"%d" % n)
    options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "subscribe": "t"}
    given = parse_read(options, streaming=False)
    ranges = [PartitionRange("t", 0, 0, 10)]
    found = await while_away(cluster, caplog, lambda: list(read_batches(given, ["value"], ranges)))
    assert sum(batch.num_rows for batch in found) == 10


async def test_a_stream_that_looks_for_topics_by_a_pattern(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is connected already, and asks for all topics now and then."""
    monkeypatch.setattr("aiokafka.spark._driver._DISCOVERY_INTERVAL", 0.0)
    given = {"subscribe": None, "subscribePattern": "t", "startingOffsets": "earliest"}
    plan = stream(cluster, **given, **{"kafka.request.timeout.ms": "20000"})
    start = await initial(plan)
    fill(cluster, 5)
    until = await while_away(cluster, caplog, lambda: plan.end(start, None, wait=False))
    assert until["t"]["0"] == 5


async def test_a_query_that_begins_where_a_group_is(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """It is connected already, by the query before it, and asks for offsets over a new client."""
    fill(cluster, 5)
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap_servers,
        "kafka.group.id": "g",
        "startingOffsets": "committed",
        "subscribe": "t",
    }
    given = parse_read(options, streaming=False)
    before = await asyncio.to_thread(batch_tasks, given)
    assert await while_away(cluster, caplog, lambda: batch_tasks(given)) == before


async def test_patience_ends() -> None:
    attempts = 0

    async def fail() -> None:
        nonlocal attempts
        attempts += 1
        raise KafkaConnectionError("no broker is there")

    with pytest.raises(KafkaConnectionError, match="no broker is there"):
        await with_retries(fail, 0.5)
    assert attempts > 1


async def test_other_errors_are_told_at_once() -> None:
    attempts = 0

    async def fail() -> None:
        nonlocal attempts
        attempts += 1
        raise TopicAuthorizationFailedError

    with pytest.raises(TopicAuthorizationFailedError):
        await with_retries(fail, 60)
    assert attempts == 1
