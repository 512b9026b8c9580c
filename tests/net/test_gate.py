"""SendGate: who waits is let go in time, and nothing is left of the wait."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import pytest

from aiokafka.errors import RequestTimedOutError
from aiokafka.net.gate import DeadlineTimer, SendGate, StallWatch
from aiokafka.testing.simulation import Simulation, simulate
from tests.net.support import now


def futures() -> int:
    gc.collect()
    return sum(isinstance(thing, asyncio.Future) for thing in gc.get_objects())


async def test_waits_for_the_end_of_throttling_leave_nothing_behind() -> None:
    gate = SendGate(asyncio.get_running_loop())
    before = futures()
    for _ in range(200):
        gate.throttle(0.0005)
        await gate.wait(now() + 10)
    assert futures() - before < 10
    assert not gate.is_awaited


@pytest.mark.parametrize("shut", [SendGate.pause, SendGate.hold, lambda gate: gate.throttle(60)])
async def test_waits_that_end_otherwise_leave_nothing_behind(
    shut: Callable[[SendGate], object],
) -> None:
    gate = SendGate(asyncio.get_running_loop())
    shut(gate)
    before = futures()
    for _ in range(100):
        waiting = asyncio.ensure_future(gate.wait(now() + 60))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(RequestTimedOutError):
            await gate.wait(now())
        del waiting
    assert futures() - before < 10
    assert not gate.is_awaited


async def test_all_who_wait_are_let_go_in_their_order() -> None:
    gate = SendGate(asyncio.get_running_loop())
    gate.pause()
    order: list[int] = []

    async def wait(number: int) -> None:
        await gate.wait(now() + 10)
        order.append(number)

    waits = [asyncio.ensure_future(wait(number)) for number in range(20)]
    await asyncio.sleep(0)
    assert gate.is_awaited
    gate.resume()
    await asyncio.gather(*waits)
    assert order == list(range(20))
    assert not gate.is_awaited


async def test_a_deadline_does_not_run_in_the_context_of_a_call() -> None:
    """It is armed again and again, each time from where it is due: the first would go on."""
    name: ContextVar[str] = ContextVar("name", default="none")
    seen: list[str] = []
    due = asyncio.Event()

    def look() -> None:
        seen.append(name.get())
        if len(seen) == 3:
            due.set()
        else:
            timer.arm(now() + 0.01)

    timer = DeadlineTimer(asyncio.get_running_loop(), look)
    name.set("call")
    timer.arm(now() + 0.01)
    await due.wait()
    assert seen == ["none"] * 3


class Buffer(asyncio.Transport):
    """A write buffer of a size that the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.size = 100

    def get_write_buffer_size(self) -> int:
        return self.size


class Watched:
    """A write buffer that is full, watched with a limit of ten seconds."""

    def __init__(self) -> None:
        self.began = now()
        self.stalls: list[float] = []
        self.buffer = Buffer()
        self.gate = SendGate(asyncio.get_running_loop())
        self.watch = StallWatch(self.gate, 10, self._on_stall)
        self.watch.begin(self.buffer)

    def _on_stall(self) -> None:
        self.stalls.append(now() - self.began)


def in_virtual_time(main: Callable[[Watched], Awaitable[None]]) -> list[float]:
    """Return when there were stalls, in seconds from the beginning."""

    async def run(_: Simulation) -> list[float]:
        watched = Watched()
        await main(watched)
        return watched.stalls

    return [round(at, 3) for at in simulate(run, seed=1)]


def test_a_full_buffer_of_which_nothing_leaves() -> None:
    async def main(watched: Watched) -> None:
        await asyncio.sleep(60)

    assert in_virtual_time(main) == [10]


def test_a_slow_connection_is_not_a_dead_one() -> None:
    async def main(watched: Watched) -> None:
        for _ in range(10):
            await asyncio.sleep(9)
            watched.buffer.size -= 1
        assert watched.stalls == []
        await asyncio.sleep(60)

    assert in_virtual_time(main) == [110]


def test_a_buffer_that_is_full_again_and_again() -> None:
    async def main(watched: Watched) -> None:
        for _ in range(20):
            await asyncio.sleep(4)
            watched.watch.end()
            await asyncio.sleep(4)
            watched.watch.begin(watched.buffer)
        watched.watch.end()
        await asyncio.sleep(60)
        watched.watch.begin(watched.buffer)
        watched.watch.close()
        await asyncio.sleep(60)

    assert in_virtual_time(main) == []


def test_a_broker_that_throttles_reads_nothing() -> None:
    async def main(watched: Watched) -> None:
        await asyncio.sleep(5)
        watched.gate.throttle(30)
        await asyncio.sleep(60)

    assert in_virtual_time(main) == [45]
