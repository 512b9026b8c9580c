"""The futures that `send` returns, and the batch outcome that resolves them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.producer.batch import BatchOutcome
from aiokafka.structs import RecordMetadata, TopicPartition
from aiokafka.testing import FakeCluster
from tests.producer.held import Held, Sent, waiting
from tests.support.producers import TOPIC, new_producer, numbers, send_all, values

# -- What `send` returns is a future, for whatever programs do with futures


# -- what it is


async def test_it_is_a_future(held: Held) -> None:
    future = await held.send()
    assert isinstance(future, asyncio.Future)
    assert asyncio.isfuture(future) and inspect.isawaitable(future)
    assert not asyncio.iscoroutine(future) and not isinstance(future, asyncio.Task)
    assert future.get_loop() is asyncio.get_running_loop()
    assert asyncio.ensure_future(future) is future
    assert asyncio.wrap_future(future) is future  # type: ignore[arg-type]


async def test_it_can_be_kept_anywhere(held: Held) -> None:
    first, second = await held.send(), await held.send()
    assert len({first, second}) == 2 and first != second and first == first
    reference = weakref.ref(first)
    assert reference() is first
    names = weakref.WeakKeyDictionary({first: "first"})
    assert names[first] == "first"
    assert "note" not in vars(first) and not hasattr(first, "note")
    first.note = "mine"  # type: ignore[attr-defined]
    assert vars(first)["note"] == "mine"
    del first.note  # type: ignore[attr-defined]
    vars(first)["note"] = vars(second)["note"] = "mine"
    assert second.note == "mine"  # type: ignore[attr-defined]
    assert first.note == "mine"  # type: ignore[attr-defined]
    await held.deliver()


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_callback_goes_before_the_task_that_waits_after_it(
    held: Held, is_cancelled: bool
) -> None:
    future = await held.send()
    order = []
    future.add_done_callback(lambda _: order.append("callback"))

    async def wait() -> None:
        try:
            await future
        except asyncio.CancelledError:
            pass
        order.append("task")

    task = asyncio.get_running_loop().create_task(wait())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    if is_cancelled:
        future.cancel()
    else:
        await held.deliver()
    await task
    assert order == ["callback", "task"]


async def test_its_states(held: Held) -> None:
    future = await held.send()
    assert not future.done() and not future.cancelled()
    assert "pending" in repr(future)
    with pytest.raises(asyncio.InvalidStateError):
        future.result()
    with pytest.raises(asyncio.InvalidStateError):
        future.exception()
    await held.deliver()
    assert future.done() and not future.cancelled()
    assert future.result().offset == 0 and future.result() is future.result()
    assert future.exception() is None
    assert "finished" in repr(future)
    assert not future.cancel()


@pytest.mark.parametrize("is_ours", [True, False])
async def test_steps_of_an_await_that_need_not_wait(held: Held, is_ours: bool) -> None:
    future = await held.send()
    await held.deliver()
    metadata = future.result()
    if not is_ours:
        future = asyncio.get_running_loop().create_future()
        future.set_result(metadata)
    for step in (next, lambda steps: steps.send(None)):
        steps: Any = future.__await__()
        assert iter(steps) is steps
        with pytest.raises(StopIteration) as end:
            step(steps)
        assert end.value.value is metadata
    steps = future.__await__()
    with pytest.raises(ZeroDivisionError, match="thrown"):
        steps.throw(ZeroDivisionError("thrown"))
    steps = future.__await__()
    with warnings.catch_warnings(), pytest.raises(ZeroDivisionError, match="thrown"):
        warnings.simplefilter("ignore", DeprecationWarning)  # since Python 3.12
        steps.throw(ZeroDivisionError, "thrown")
    steps = future.__await__()
    assert steps.close() is None


async def test_many_that_wait_for_it_when_it_is_done(held: Held) -> None:
    future = await held.send()
    await held.deliver()
    steps: list[Any] = [future.__await__() for _ in range(3)]
    for one in steps:
        with pytest.raises(StopIteration) as end:
            next(one)
        assert end.value.value is future.result()
    steps.clear()
    assert [await future for _ in range(3)] == [future.result()] * 3


async def test_the_states_of_a_failure(held: Held) -> None:
    (future,) = await waiting(held)
    held.producer.abort_buffered()
    assert future.done() and not future.cancelled()
    error = future.exception()
    assert isinstance(error, KafkaError) and future.exception() is error
    for _ in range(2):
        with pytest.raises(KafkaError) as caught:
            future.result()
        assert caught.value is error
    with pytest.raises(KafkaError) as caught:
        await future
    assert caught.value is error
    assert not future.cancel()


async def test_every_record_has_an_error_of_its_own(held: Held) -> None:
    first, second = await waiting(held, 2)
    held.producer.abort_buffered()
    assert first.exception() is not second.exception()


async def test_without_acknowledgement_the_result_is_none(cluster: FakeCluster) -> None:
    async with new_producer(cluster, acks=0, enable_idempotence=False) as producer:
        futures = await send_all(producer, numbers(3))
        assert await asyncio.gather(*futures) == [None, None, None]
        assert futures[0].result() is None and futures[0].exception() is None


# -- waiting


async def test_it_can_be_awaited_twice_and_together(held: Held) -> None:
    future = await held.send()

    async def wait() -> RecordMetadata:
        return await future

    tasks = [asyncio.create_task(wait()) for _ in range(3)]
    await asyncio.sleep(0)
    held.release()
    found = [await task for task in tasks] + [await future, await future]
    assert all(metadata is found[0] for metadata in found)


async def test_it_can_be_awaited_when_it_is_done(held: Held) -> None:
    futures = [await held.send(value) for value in numbers(3)]
    await held.deliver()
    assert [(await future).offset for future in futures] == [0, 1, 2]


async def test_gather(held: Held) -> None:
    futures = [await held.send() for _ in range(5)]
    together = asyncio.gather(*futures, futures[0])
    await asyncio.sleep(0)
    held.release()
    assert [metadata.offset for metadata in await together] == [0, 1, 2, 3, 4, 0]


async def test_gather_of_failures(held: Held) -> None:
    futures = await waiting(held, 3)
    futures[1].cancel()
    strict = asyncio.gather(*futures)
    lenient = asyncio.gather(*futures, return_exceptions=True)
    await asyncio.sleep(0)
    held.producer.abort_buffered()
    first, second, third = await lenient
    assert isinstance(first, KafkaError) and isinstance(third, KafkaError)
    assert isinstance(second, asyncio.CancelledError)
    with pytest.raises((KafkaError, asyncio.CancelledError)):
        await strict


async def test_cancelled_gather_cancels_them(held: Held) -> None:
    futures = [await held.send() for _ in range(3)]
    together = asyncio.gather(*futures)
    await asyncio.sleep(0)
    together.cancel()
    with pytest.raises(asyncio.CancelledError):
        await together
    assert all(future.cancelled() for future in futures)


async def test_wait(held: Held) -> None:
    first, second = await held.send(), await held.send()
    done, pending = await asyncio.wait([first, second], timeout=0.01)
    assert not done and pending == {first, second}
    held.release()
    done, pending = await asyncio.wait([first, second])
    assert done == {first, second} and not pending


async def test_as_completed(held: Held) -> None:
    futures = [await held.send() for _ in range(3)]
    asyncio.get_running_loop().call_soon(held.release)
    found = [await one for one in asyncio.as_completed(futures)]
    assert sorted(metadata.offset for metadata in found) == [0, 1, 2]


async def test_wait_for(held: Held) -> None:
    future, other = await held.send(), await held.send()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.shield(future), 0.01)
    assert not future.done()
    with pytest.raises(asyncio.TimeoutError):
        await asyncio.wait_for(other, 0.01)
    assert other.cancelled()
    asyncio.get_running_loop().call_soon(held.release)
    assert (await asyncio.wait_for(future, 30)).offset == 0


async def test_shield(held: Held) -> None:
    future = await held.send()
    outer = asyncio.shield(future)
    task = asyncio.ensure_future(outer)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not future.cancelled()
    held.release()
    assert (await asyncio.shield(future)).offset == 0


@pytest.mark.real_time
async def test_the_loop_runs_until_it_is_done(cluster: FakeCluster) -> None:
    servers = cluster.bootstrap_servers

    def run() -> int:
        loop = asyncio.new_event_loop()
        try:
            producer = loop.run_until_complete(start())
            future = loop.run_until_complete(producer.send(TOPIC, b"v", partition=0))
            offset = loop.run_until_complete(future).offset
            loop.run_until_complete(producer.stop())
            return offset
        finally:
            loop.close()

    async def start() -> AIOKafkaProducer:
        producer = AIOKafkaProducer(bootstrap_servers=servers)
        await producer.start()
        return producer

    assert await asyncio.to_thread(run) == 0


@pytest.mark.real_time
async def test_another_thread_waits_for_it(held: Held) -> None:
    held.release()
    loop = asyncio.get_running_loop()
    found: concurrent.futures.Future[int] = concurrent.futures.Future()

    async def both() -> RecordMetadata:
        return await (await held.send())

    def work() -> None:
        sent = asyncio.run_coroutine_threadsafe(held.send(), loop).result(30)
        assert asyncio.isfuture(sent)
        found.set_result(asyncio.run_coroutine_threadsafe(both(), loop).result(30).offset)

    thread = threading.Thread(target=work)
    thread.start()
    assert await asyncio.wrap_future(found) == 1
    thread.join()


# -- callbacks


async def test_callbacks(held: Held) -> None:
    future = await held.send()
    called: list[Any] = []
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="none")

    def note(which: str) -> Callable[[Sent], None]:
        return lambda done: called.append((which, done is future, name.get()))

    unwanted = note("unwanted")
    future.add_done_callback(note("first"))
    future.add_done_callback(unwanted)
    future.add_done_callback(unwanted)
    name.set("now")
    future.add_done_callback(note("second"))
    context = contextvars.copy_context()
    context.run(name.set, "given")
    future.add_done_callback(note("third"), context=context)
    assert future.remove_done_callback(unwanted) == 2
    assert future.remove_done_callback(unwanted) == 0
    await held.deliver()
    assert called == [("first", True, "none"), ("second", True, "now"), ("third", True, "given")]
    future.add_done_callback(note("late"))
    assert len(called) == 3
    await asyncio.sleep(0)
    assert called[-1] == ("late", True, "now")


async def test_a_set_that_empties_itself(held: Held) -> None:
    left = {await held.send() for _ in range(3)}
    for future in left:
        future.add_done_callback(left.discard)
    await held.deliver()
    assert not left


async def test_callbacks_of_a_batch_run_in_the_order_of_the_records(held: Held) -> None:
    order: list[int] = []
    futures = [await held.send() for _ in range(4)]
    for number in (2, 0, 3, 1):
        futures[number].add_done_callback(lambda done: order.append(done.result().offset))
    await held.deliver()
    assert order == [0, 1, 2, 3]


async def test_a_callback_that_raises_is_told_and_stops_no_other(
    held: Held, complaints: list[dict[str, Any]]
) -> None:
    future, other = await held.send(), await held.send()
    future.add_done_callback(lambda _: 1 / 0)
    called = []
    other.add_done_callback(called.append)
    await held.deliver()
    assert called == [other]
    assert isinstance(complaints[0]["exception"], ZeroDivisionError)


# -- cancellation


async def test_cancelled_before_it_is_written(cluster: FakeCluster, held: Held) -> None:
    future, other = await held.send(b"1"), await held.send(b"2")
    called: list[Sent] = []
    future.add_done_callback(called.append)
    assert future.cancel("enough")
    assert future.cancelled() and future.done() and not future.cancel()
    assert "cancelled" in repr(future)
    with pytest.raises(asyncio.CancelledError):
        future.result()
    with pytest.raises(asyncio.CancelledError):
        future.exception()
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await future
    await held.deliver()
    assert called == [future]
    assert other.result().offset == 1 and future.cancelled()
    assert values(cluster) == [b"1", b"2"]


async def test_a_cancelled_waiter_cancels_it(held: Held) -> None:
    future = await held.send()

    async def wait() -> RecordMetadata:
        return await future

    one, other = asyncio.create_task(wait()), asyncio.create_task(wait())
    await asyncio.sleep(0)
    one.cancel()
    with pytest.raises(asyncio.CancelledError):
        await one
    assert future.cancelled()
    with pytest.raises(asyncio.CancelledError):
        await other


async def test_a_waiter_that_is_cancelled_when_it_is_done(held: Held) -> None:
    future = await held.send()

    async def wait() -> RecordMetadata:
        return await future

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    future.add_done_callback(lambda _: task.cancel())
    await held.deliver()
    await asyncio.wait([task])
    assert future.result().offset == 0


# -- What becomes of the records of a batch, without a producer: orders and splits


PARTITION = TopicPartition("t", 0)


def new_outcome() -> BatchOutcome:
    return BatchOutcome(PARTITION, asyncio.get_running_loop())


async def test_futures_wake_in_the_order_of_their_records() -> None:
    """Whatever kind of future they are, and whatever order something began to wait for them in."""
    outcome = new_outcome()
    futures = [outcome.promise(1), outcome.promise_awaited(2), outcome.promise(3)]
    futures += [outcome.promise(4), outcome.promise_awaited(5)]
    woken: list[int] = []
    for number in (3, 4, 0, 1, 2):
        futures[number].add_done_callback(lambda _, number=number: woken.append(number))  # type: ignore[misc]
    outcome.write(10, -1, None)
    await asyncio.gather(*futures)
    # Newer Pythons let gather() return without a turn of the event loop: all are done already.
    await asyncio.sleep(0)
    assert woken == [0, 1, 2, 3, 4]
    assert [(f.result().offset, f.result().timestamp) for f in futures] == [
        (10 + number, 1 + number) for number in range(5)
    ]


@pytest.mark.parametrize("kinds", ["aaaaa", "fffff", "afafa", "faffa"])
async def test_parts_serve_the_futures_of_the_whole(kinds: str) -> None:
    outcome = new_outcome()
    futures: list[Any] = []
    for number, kind in enumerate(kinds):
        futures.append((outcome.promise_awaited if kind == "a" else outcome.promise)(number))
    waiting = asyncio.gather(*futures[:4], return_exceptions=True)
    await asyncio.sleep(0)
    parts = [new_outcome() for _ in range(2)]
    for number in range(5):
        parts[number >= 3].adopt(number)
    outcome.divide([0, 3], parts)
    parts[1].fail(lambda number: KafkaError(f"record {number} of the part"))
    parts[0].write(100, 77, 5)
    *written, failed = await waiting
    assert [(one.offset, one.timestamp, one.log_start_offset) for one in written] == [
        (100 + number, 77, 5) for number in range(3)
    ]
    assert "record 0 of the part" in str(failed)
    assert "record 1 of the part" in str(futures[4].exception())


async def test_callers_that_were_cancelled_hold_up_no_others() -> None:
    outcome = new_outcome()
    futures = [outcome.promise_awaited(0), outcome.promise(0), outcome.promise_awaited(0)]
    futures[1].add_done_callback(lambda _: None)
    futures[0].cancel()
    futures[1].cancel()
    outcome.write(0, -1, None)
    assert (await futures[2]).offset == 2
    assert futures[0].cancelled()
    assert futures[1].cancelled()
