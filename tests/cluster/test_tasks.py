"""TaskOwner: the guarantees of a TaskGroup without cancelling the caller."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from aiokafka._compat import timeout
from aiokafka._tasks import TaskOwner
from aiokafka.errors import IllegalStateError, KafkaError


async def forever() -> None:
    await asyncio.Event().wait()


async def fail_after(event: asyncio.Event, error: BaseException) -> None:
    await event.wait()
    raise error


def soon(seconds: float = 5.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_tasks_are_named_after_their_owner() -> None:
    owner = TaskOwner("producer-1")
    task = owner.start(forever(), name="sender-3")
    assert task.get_name() == "producer-1:sender-3"
    await owner.stop(soon())
    assert task.cancelled()


async def test_a_result_can_be_awaited() -> None:
    async def work() -> int:
        return 7

    owner = TaskOwner("owner")
    assert await owner.start(work(), name="work") == 7
    await owner.stop(soon())


@pytest.mark.parametrize("is_kept", [True, False])
async def test_the_context_of_tasks(is_kept: bool) -> None:
    """That of the call which starts them, or the one that was kept for all of them."""
    name: ContextVar[str] = ContextVar("name", default="")

    async def outer() -> tuple[str, str]:
        mine = name.get()
        name.set("outer")  # seen by nothing else that has the kept context
        return mine, await owner.start(inner(), name="inner")

    async def inner() -> str:
        return name.get()

    owner = TaskOwner("owner")
    name.set("first")
    if is_kept:
        owner.keep_context()
    name.set("later")
    expected = ("first", "first") if is_kept else ("later", "outer")
    for _ in range(2):
        assert await owner.start(outer(), name="outer") == expected
    assert name.get() == "later"
    await owner.stop(soon())


async def test_first_failure_cancels_the_siblings_and_not_the_caller() -> None:
    failures: list[BaseException] = []
    owner = TaskOwner("owner", failures.append)
    go = asyncio.Event()
    sibling = owner.start(forever(), name="sibling")
    first = owner.start(fail_after(go, ValueError("first")), name="first")
    owner.start(fail_after(go, ValueError("second")), name="second")
    go.set()
    await asyncio.wait({sibling, first})
    assert sibling.cancelled()
    assert [str(error) for error in failures] == ["first"]
    assert owner.failure is failures[0]
    await owner.stop(soon())


async def test_a_callback_reports_what_no_task_raises(caplog: pytest.LogCaptureFixture) -> None:
    failures: list[BaseException] = []
    owner = TaskOwner("owner", failures.append)
    task = owner.start(forever(), name="task")
    owner.fail("callback", ValueError("first"))
    owner.fail("callback", ValueError("second"))
    await asyncio.wait({task})
    assert task.cancelled()
    assert [str(error) for error in failures] == ["first"]
    assert "owner:callback failed: first" in caplog.text
    with pytest.raises(ValueError, match="first"):
        owner.check()
    await owner.stop(soon())


async def test_later_calls_raise_a_copy_of_the_failure() -> None:
    owner = TaskOwner("owner")
    go = asyncio.Event()
    go.set()
    task = owner.start(fail_after(go, KafkaError("broken")), name="task")
    await asyncio.wait({task})
    with pytest.raises(KafkaError, match="broken") as one:
        owner.check()
    with pytest.raises(KafkaError, match="broken") as two:
        owner.start(forever(), name="late")
    assert one.value is not two.value
    await owner.stop(soon())


async def test_a_task_cancelled_from_outside_counts_as_failed() -> None:
    failures: list[BaseException] = []
    owner = TaskOwner("owner", failures.append)
    task = owner.start(forever(), name="task")
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    # A moment later: at the end of the loop it would be of no use.
    assert failures == []
    async with timeout(10):
        while not failures:
            await asyncio.sleep(0.01)
    assert "cancelled from outside" in str(failures[0])


async def test_nothing_starts_after_stop() -> None:
    owner = TaskOwner("owner")
    await owner.stop(soon())
    with pytest.raises(IllegalStateError, match="owner is stopped"):
        owner.start(forever(), name="late")


async def test_a_task_that_never_ran_is_closed_without_a_warning() -> None:
    owner = TaskOwner("owner")
    owner.start(forever(), name="task")
    await owner.stop(soon())


async def test_stop_runs_every_finally_and_can_be_called_again_after_a_cancel() -> None:
    cleaned = asyncio.Event()
    release = asyncio.Event()

    async def slow_cleaner() -> None:
        try:
            await forever()
        finally:
            await release.wait()
            cleaned.set()

    owner = TaskOwner("owner")
    task = owner.start(slow_cleaner(), name="cleaner")
    await asyncio.sleep(0)
    stopping = asyncio.ensure_future(owner.stop(soon()))
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert not task.done()
    release.set()
    again = asyncio.ensure_future(owner.stop(soon()))
    # The second stop() cancels again, as any stop does; what matters is that it waits for the end.
    await again
    assert task.done()


async def test_stop_called_by_a_child_leaves_the_child_running() -> None:
    owner = TaskOwner("owner")
    ended = asyncio.Event()
    sibling = owner.start(forever(), name="sibling")

    async def stopper() -> None:
        await owner.stop(soon())
        ended.set()

    owner.start(stopper(), name="stopper")
    await ended.wait()
    assert sibling.cancelled()


async def test_stop_names_the_tasks_that_outlive_its_deadline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        try:
            await forever()
        finally:
            await release.wait()

    owner = TaskOwner("owner")
    task = owner.start(stubborn(), name="stubborn")
    await asyncio.sleep(0)
    await owner.stop(soon(0))
    assert "owner:stubborn" in caplog.text
    release.set()
    await asyncio.wait({task})
