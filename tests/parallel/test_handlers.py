"""What handlers and key functions do, return and raise."""

from __future__ import annotations

import asyncio
import concurrent.futures
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.errors import IllegalStateError
from aiokafka.parallel import RetryTopics
from aiokafka.testing import FakeCluster
from tests.parallel.support import Record, Runs, Seen, committed, ends, fill, make_parallel, until


@pytest.fixture
async def retry(cluster: FakeCluster) -> AsyncIterator[RetryTopics]:
    for name in ("t-retry-1", "t-dead-letter"):
        await cluster.create_topic(name)
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        yield RetryTopics(producer, [3_600_000])


def copies(cluster: FakeCluster) -> list[Any]:
    return list(cluster.log("t-retry-1").records())


# -- what they return ------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [True, 0, "done", b"", object()])
async def test_a_plain_handler_may_return_anything(cluster: FakeCluster, result: object) -> None:
    fill(cluster, 20)
    count = 0

    def handle(record: Record) -> Any:
        nonlocal count
        count += 1
        return result

    async with make_parallel(cluster) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: committed(cluster) == ends(cluster))
        await runs.stop()
    assert count == 20


async def test_a_plain_handler_may_return_an_awaitable(cluster: FakeCluster) -> None:
    fill(cluster, 20)
    seen = Seen()

    class Later:
        def __init__(self, record: Record) -> None:
            self._record = record

        def __await__(self) -> Iterator[Any]:
            return seen(self._record).__await__()

    async with make_parallel(cluster) as parallel:
        runs = Runs(parallel, Later)
        await until(lambda: committed(cluster) == ends(cluster))
        await runs.stop()
    assert len(seen.ended) == 20


async def _asynchronous(record: Record) -> AsyncIterator[Record]:
    yield record


def _plain(record: Record) -> Iterator[Record]:
    yield record


@pytest.mark.parametrize("handler", [_asynchronous, _plain])
async def test_generators_are_no_handlers(cluster: FakeCluster, handler: Any) -> None:
    """Nothing of such a function runs when it is called."""
    fill(cluster, 4)
    async with make_parallel(cluster) as parallel:
        with pytest.raises(TypeError, match="generator"):
            await parallel.run(handler)
        with pytest.raises(TypeError, match="generator"):
            await parallel.run(lambda record: handler(record))
    assert committed(cluster) == [0, 0, 0, 0]


async def test_work_in_a_thread_has_to_be_awaited(cluster: FakeCluster) -> None:
    fill(cluster, 4)

    def handle(record: Record) -> Any:
        return concurrent.futures.Future()

    async with make_parallel(cluster) as parallel:
        with pytest.raises(TypeError, match="wrap_future"):
            await parallel.run(handle)
    assert committed(cluster) == [0, 0, 0, 0]


# -- what they raise -------------------------------------------------------------------------------


async def _await_a_cancelled_task(record: Record) -> None:
    task = asyncio.get_running_loop().create_task(asyncio.sleep(60))
    task.cancel()
    await task


async def test_a_handler_that_awaits_a_task_it_has_cancelled_has_failed(
    cluster: FakeCluster, retry: RetryTopics
) -> None:
    cluster.log("t").extend([(b"%d" % n, b"%d" % n, ()) for n in range(5)])

    async def handle(record: Record) -> None:
        if record.offset == 2:
            await _await_a_cancelled_task(record)

    async with make_parallel(cluster, retry=retry) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: committed(cluster)[0] == 5)
        await runs.stop()
    (copy,) = copies(cluster)
    assert copy.value == b"2"
    assert b"cancelled" in dict(copy.headers)["retry.message"]


async def test_without_retries_such_a_cancellation_names_its_record(cluster: FakeCluster) -> None:
    cluster.log("t").extend([(b"%d" % n, b"%d" % n, ()) for n in range(3)])
    async with make_parallel(cluster) as parallel:
        with pytest.raises(RuntimeError, match=r"t-0@0.*cancelled") as failure:
            await parallel.run(_await_a_cancelled_task)
    assert isinstance(failure.value.__cause__, asyncio.CancelledError)
    assert committed(cluster)[0] == 0


class Bare(BaseException):
    """Not an Exception."""


async def test_any_base_exception_ends_it_and_finishes_nothing(
    cluster: FakeCluster, retry: RetryTopics
) -> None:
    cluster.log("t").append(b"x")

    async def handle(record: Record) -> None:
        raise Bare("not for retries")

    with pytest.raises(Bare, match="not for retries"):
        async with make_parallel(cluster, retry=retry) as parallel:
            await parallel.run(handle)
    assert committed(cluster)[0] == 0
    assert not copies(cluster)


# -- key functions ---------------------------------------------------------------------------------


def _by_id(record: Record) -> Any:
    return json.loads(record.value)["id"]


def _unhashable(record: Record) -> Any:
    return [1] if record.value == b"bad" else json.loads(record.value)["id"]


@pytest.mark.parametrize("key", [_by_id, _unhashable])
async def test_a_key_that_cannot_be_found_is_a_failure_of_its_record(
    cluster: FakeCluster, retry: RetryTopics, key: Callable[[Record], Any]
) -> None:
    values = [b'{"id": 1}', b'{"id": 2}', b"bad", b'{"id": 1}']
    cluster.log("t").extend([(b"k", value, ()) for value in values])
    done: list[bytes] = []

    async def handle(record: Record) -> None:
        done.append(record.value)

    async with make_parallel(cluster, retry=retry, key=key) as parallel:
        runs = Runs(parallel, handle)
        await until(lambda: committed(cluster)[0] == 4)
        await runs.stop()
    assert sorted(done) == sorted(value for value in values if value != b"bad")
    assert [copy.value for copy in copies(cluster)] == [b"bad"]


async def test_works_without_a_key_are_not_handed_out(
    cluster: FakeCluster, retry: RetryTopics
) -> None:
    cluster.log("t").extend([(b"k", value, ()) for value in (b"bad", b'{"id": 1}')])
    async with make_parallel(cluster, retry=retry, key=_by_id) as parallel:
        async with await anext(parallel) as record:
            assert record.value == b'{"id": 1}'
        await until(lambda: committed(cluster)[0] == 2)
    assert [copy.value for copy in copies(cluster)] == [b"bad"]


async def test_without_retries_what_is_before_the_bad_key_is_handled(cluster: FakeCluster) -> None:
    cluster.log("t").extend([(b"k", value, ()) for value in (b'{"id": 1}', b"bad")])
    done: list[int] = []

    async def handle(record: Record) -> None:
        done.append(record.offset)

    with pytest.raises(json.JSONDecodeError):
        async with make_parallel(cluster, key=_by_id, concurrency=1) as parallel:
            await parallel.run(handle)
    assert done == [0]
    assert committed(cluster)[0] == 1


# -- stop ------------------------------------------------------------------------------------------


async def test_a_handler_cannot_wait_for_its_own_end(cluster: FakeCluster) -> None:
    cluster.log("t").append(b"x")

    async def handle(record: Record) -> None:
        await parallel.stop()

    async with make_parallel(cluster) as parallel:
        with pytest.raises(IllegalStateError, match=r"request_stop\(\)"):
            await parallel.run(handle)
    assert committed(cluster)[0] == 0


tenant: ContextVar[str] = ContextVar("tenant")


async def test_context_variables_are_those_of_run_behind_a_rebalance_as_well(
    cluster: FakeCluster,
) -> None:
    fill(cluster, 80, keys=80)
    found: list[str] = []

    async def handle(record: Record) -> None:
        found.append(tenant.get("none"))
        await asyncio.sleep(0.5)

    parallel = make_parallel(cluster, concurrency=2, drain_timeout_ms=50)
    async with parallel:
        tenant.set("acme")
        runs = Runs(parallel, handle)
        await until(lambda: found)
        async with make_parallel(cluster):
            await until(lambda: len(parallel.consumer.assignment()) == 2)
            before = len(found)
            # Handlers that were cancelled have others in their place now.
            await until(lambda: len(found) > before + 4)
            await runs.stop()
    assert set(found) == {"acme"}
