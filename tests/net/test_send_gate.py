"""SendGate: who waits is let go in time, and nothing is left of the wait."""

from __future__ import annotations

import asyncio
import gc
import math
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from aiokafka.errors import RequestTimedOutError
from aiokafka.net.connection import DeadlineTimer, SendGate
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
        await gate.wait(10)
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
        waiting = asyncio.ensure_future(gate.wait(60))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        # A throttle is no reason to give up.
        if not gate.throttled_until:
            with pytest.raises(RequestTimedOutError):
                await gate.wait(0)
        del waiting
    assert futures() - before < 10
    assert not gate.is_awaited


async def test_all_who_wait_are_let_go_in_their_order() -> None:
    gate = SendGate(asyncio.get_running_loop())
    gate.pause()
    order: list[int] = []

    async def wait(number: int) -> None:
        await gate.wait(10)
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


def test_a_throttle_is_no_time_in_which_the_broker_takes_no_bytes() -> None:
    """A connection whose write buffer stays full is given up, but a throttled broker reads
    nothing."""

    async def main(_: Simulation) -> None:
        gate = SendGate(asyncio.get_running_loop())
        assert gate.paused_since == math.inf
        gate.throttle(30)
        assert gate.pause() - now() == pytest.approx(30, abs=0.1)
        await asyncio.sleep(40)
        assert now() - gate.paused_since == pytest.approx(10, abs=0.1)

    simulate(main)


def test_a_throttle_costs_a_request_no_time() -> None:
    """Whatever it waits for behind the throttle."""

    async def main(_: Simulation) -> None:
        gate = SendGate(asyncio.get_running_loop())
        gate.throttle(5)
        began = now()
        asyncio.get_running_loop().call_later(4, gate.pause)
        with pytest.raises(RequestTimedOutError, match="write buffer is full"):
            await gate.wait(2)
        assert now() - began == pytest.approx(7, abs=0.1)

    simulate(main)
