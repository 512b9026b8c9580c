"""Futures of records that are not looked at: their failures are logged, their memory is freed."""

from __future__ import annotations

import asyncio
import gc
import inspect
import weakref
from typing import Any

import pytest

from aiokafka.errors import KafkaError, ProducerClosed
from aiokafka.producer import batch as batch_module
from aiokafka.testing import FakeCluster
from tests.producer.held import Held, Sent, fail, waiting
from tests.support.producers import TOPIC, new_producer

# -- failures that are not looked at


async def test_a_failure_that_was_not_looked_at_is_logged(
    held: Held, complaints: list[dict[str, Any]]
) -> None:
    future, other = await waiting(held, 2)
    held.producer.abort_buffered()
    assert not complaints
    other.exception()
    del future, other
    gc.collect()
    assert [type(context["exception"]) for context in complaints] == [KafkaError]
    assert "never retrieved" in complaints[0]["message"]
    assert asyncio.isfuture(complaints[0]["future"])


async def test_records_whose_futures_were_dropped_are_logged(
    held: Held, complaints: list[dict[str, Any]]
) -> None:
    await waiting(held, 3)
    await fail(held)
    assert [type(context["exception"]) for context in complaints] == [KafkaError] * 3


@pytest.mark.parametrize("look", ["result", "exception", "await", "gather"])
async def test_what_was_looked_at_is_not_logged(
    held: Held, complaints: list[dict[str, Any]], look: str
) -> None:
    (future,) = await waiting(held)
    held.producer.abort_buffered()
    if look == "gather":
        await asyncio.gather(future, return_exceptions=True)
    elif look == "exception":
        future.exception()
    else:
        with pytest.raises(KafkaError):
            future.result() if look == "result" else await future
    del future
    await fail(held)
    assert not complaints


async def test_cancelled_and_written_ones_are_not_logged(
    held: Held, complaints: list[dict[str, Any]]
) -> None:
    (future,) = await waiting(held)
    future.cancel()
    del future
    await fail(held)
    await held.deliver()
    gc.collect()
    assert not complaints


async def test_they_end_with_the_producer(held: Held) -> None:
    futures = [await held.send() for _ in range(3)]
    await held.producer.stop(timeout=0)
    for future in futures:
        assert isinstance(future.exception(), ProducerClosed)


# -- memory


async def test_a_result_keeps_no_records(cluster: FakeCluster) -> None:
    """Programs keep futures by the million: they must not keep the bytes that were sent."""

    class Value(bytes):
        pass

    async with new_producer(cluster) as producer:
        future = await producer.send(TOPIC, b"v" * 1000, partition=0)
        await producer.flush()
        seen: set[int] = set()
        rest: list[Any] = [future]
        while rest:
            item = rest.pop()
            if id(item) not in seen and not isinstance(item, type) and not inspect.ismodule(item):
                seen.add(id(item))
                assert not isinstance(item, bytes | bytearray) or len(item) < 1000
                if not isinstance(item, asyncio.AbstractEventLoop):
                    rest.extend(gc.get_referents(item))


async def test_the_collector_sees_it_when_something_waits(held: Held) -> None:
    is_compiled = not str(batch_module.__file__).endswith(".py")
    futures = [await held.send() for _ in range(4)]
    assert [gc.is_tracked(future) for future in futures] == [not is_compiled] * 4
    futures[0].add_done_callback(lambda _: None)
    futures[1].cancel()
    futures[2].note = "mine"  # type: ignore[attr-defined]
    task = asyncio.gather(futures[3])
    assert all(map(gc.is_tracked, futures))
    await held.deliver()
    await task


async def test_the_collector_does_not_see_results(held: Held) -> None:
    """Thousands that are kept would have it look through all objects of the program."""
    is_compiled = not str(batch_module.__file__).endswith(".py")
    futures = [await held.send() for _ in range(3)]
    await held.deliver()
    results = [futures[0].result(), await futures[1], *await asyncio.gather(futures[2])]
    assert [gc.is_tracked(result) for result in results] == [not is_compiled] * 3
    assert not any(hasattr(result, "__dict__") for result in results)


async def test_cycles_are_collected(held: Held) -> None:
    """A callback that refers to the future itself, an attribute, an exception with its frames."""
    dead: list[weakref.ref[Sent]] = []

    async def make() -> None:
        by_callback, by_attribute, by_error, cancelled = await waiting(held, 4)
        by_callback.add_done_callback(lambda _: by_callback)
        by_attribute.itself = by_attribute  # type: ignore[attr-defined]
        dead.extend(map(weakref.ref, (by_callback, by_attribute, by_error, cancelled)))
        cancelled.cancel(by_attribute)
        held.producer.abort_buffered()
        for future in (by_callback, by_attribute, by_error):
            try:
                future.result()
            except KafkaError as error:
                future.kept = error  # type: ignore[attr-defined]

    await make()
    await asyncio.sleep(0)
    gc.collect()
    assert [reference() for reference in dead] == [None] * 4
