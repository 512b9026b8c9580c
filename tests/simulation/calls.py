"""Calls of the client as programs make them: watched, limited, and now and then cancelled."""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, TypeVar

from aiokafka.errors import ConsumerStoppedError, KafkaError
from aiokafka.net.connection import DeadlineTimer
from tests.simulation.contexts import calling
from tests.simulation.promises import NO_ERRORS, PROMPT, PROMPT_S

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")

# Seconds that a call may take beyond its documented limit: round trips, retries that were begun.
MARGIN = 3.0

# Seconds after the last fault from which no call is cancelled by chance. What has to be done then
# can need many calls in a row, all of which must succeed: by chance it might never be.
_LAST_CHANCE = 90.0


class InterruptedCall(Exception):
    """The scenario has cancelled a call, or its time was over."""


class Caller:
    """One program's way to call a client.

    Every call goes to the trace; one that ends later than its documentation says, never, or with
    an exception that is none of Kafka's is a violation.

    Args:
        cancel_rate: Probability that a call which takes long enough is cancelled, until a minute
            and a half after the last fault.
    """

    def __init__(self, world: World, name: str, cancel_rate: float = 0.0) -> None:
        self.world = world
        self.name = name
        self.random: random.Random = world.random_for(name)
        self.cancel_rate = cancel_rate
        #: Whether the program does what must end in an error.
        self.may_fail = False
        #: Whether another task of the program has stopped its consumer.
        self.has_stopped = False

    async def call(
        self,
        what: str,
        awaitable: Awaitable[T],
        *,
        limit: float | None = None,
        patience: float | None = None,
        may_cancel: bool = True,
    ) -> T:
        """Await a call of the client.

        Args:
            limit: Seconds that it may take by its documentation; None for any time.
            patience: Seconds after which the program cancels it.

        Raises:
            InterruptedCall: it was cancelled, by chance or for want of patience.
        """
        world = self.world
        loop = world.loop
        if limit is not None and world.promises(PROMPT):
            limit = min(limit, PROMPT_S)
        watch = _Watch(self, what, patience, limit, may_cancel and not self._has_had_chances)
        state = world.states.began(what)
        started_at = loop.now
        world.note(self.name, what)
        try:
            with calling(self.name, what):
                result = await awaitable
        except asyncio.CancelledError:
            if watch.told_to_cancel is None:
                raise
            world.note(self.name, what, f"cancelled {watch.told_to_cancel}")
            raise InterruptedCall(what) from None
        except KafkaError as error:
            world.note(self.name, what, f"raised {type(error).__name__}: {error}")
            self._check_swallowed(what, watch)
            if world.promises(NO_ERRORS) and not self.may_fail:
                world.violate("needless error", f"{self.name}: {what} raised {error!r}", error)
            raise
        except (StopAsyncIteration, AllowedError):
            world.note(self.name, what, "ended")
            raise
        except Exception as error:
            world.note(self.name, what, f"raised {error!r}")
            if self.has_stopped and isinstance(error, ConsumerStoppedError):
                raise InterruptedCall(what) from error
            world.violate("exception", f"{self.name}: {what} raised {error!r}", error)
            raise InterruptedCall(what) from error
        finally:
            watch.close()
            world.states.ended(state)
            self._check_time(what, loop.now - started_at, limit)
        self._check_swallowed(what, watch)
        if world.is_tracing:
            world.trace_line(self.name, what, f"gave {_short(result)}")
        return result

    @property
    def has_chances(self) -> bool:
        """Whether its calls are cancelled now and then."""
        return self.cancel_rate > 0

    @property
    def _has_had_chances(self) -> bool:
        world = self.world
        return world.calm.is_set() and world.now > world.calm_at + _LAST_CHANCE

    def _check_time(self, what: str, took: float, limit: float | None) -> None:
        if limit is not None and took > limit + MARGIN + self.world.stalled:
            self.world.violate("late", f"{self.name}: {what} took {took:.3f} s, not {limit:.3f} s")

    def _check_swallowed(self, what: str, watch: _Watch) -> None:
        if watch.told_to_cancel is not None:
            self.world.violate("swallowed", f"{self.name}: {what} went on after its cancellation")

    def chance(self, probability: float) -> bool:
        """Whether something of this probability happens now."""
        return self.random.random() < probability

    async def pause(self, mean: float) -> None:
        """Let some time go by."""
        await asyncio.sleep(self.random.expovariate(1 / mean) if mean else 0)


class AllowedError(Exception):
    """An exception that a program raises on purpose, such as a listener that fails."""


class Hangs:
    """Owns the time at which each call in progress counts as one that never ends.

    One timer for all of them: most calls end at once, and a timer each would be one in four of all
    that a run needs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due: list[tuple[float, int, _Watch]] = []
        self._count = 0
        self._loop = loop
        self._timer = DeadlineTimer(loop, self._look)

    def expect(self, watch: _Watch) -> None:
        """Give this call up unless it ends in time."""
        assert watch.hangs_at is not None
        self._count += 1
        heapq.heappush(self._due, (watch.hangs_at, self._count, watch))
        self._timer.arm(self._due[0][0])

    def close(self) -> None:
        """Stop the timer: no call is in progress any more."""
        self._timer.cancel()
        self._due.clear()

    def _look(self) -> None:
        due, now = self._due, self._loop.time()
        while due and (due[0][0] <= now or due[0][2].hangs_at is None):
            watch = heapq.heappop(due)[2]
            if watch.hangs_at is not None:
                watch.give_up()
        if due:
            self._timer.arm(due[0][0])


class _Watch:
    """The timers of one call. A call that does not end is cancelled, so that the run can."""

    def __init__(
        self,
        caller: Caller,
        what: str,
        patience: float | None,
        limit: float | None,
        may_cancel: bool,
    ) -> None:
        self.told_to_cancel: str | None = None
        self._caller = caller
        self._what = what
        self._limit = limit
        loop = caller.world.loop
        task = asyncio.current_task(loop)
        assert task is not None
        self._task = task
        #: When a call that should have ended long ago is one that never will; None once it ended.
        self.hangs_at: float | None = None
        if limit is not None:
            world = caller.world
            self.hangs_at = world.now + 2 * limit + 10 * MARGIN + world.stalled
            world.hangs.expect(self)
        self._handles: list[asyncio.TimerHandle] = []
        if patience is not None:
            self._handles.append(loop.call_later(patience, self._cancel, "for want of patience"))
        if may_cancel and caller.cancel_rate and caller.chance(caller.cancel_rate):
            # From one turn of the loop to seconds.
            delay = 10 ** caller.random.uniform(-5, 0.7)
            self._handles.append(loop.call_later(delay, self._cancel, "by chance"))

    def _cancel(self, why: str) -> None:
        self.told_to_cancel = why
        self._task.cancel()

    def give_up(self) -> None:
        """The call does not end."""
        where = _where(self._task)
        text = f"{self._caller.name}: {self._what} does not end, limit {self._limit} s; {where}"
        self._caller.world.violate("hang", text)
        self._cancel("since it does not end")

    def close(self) -> None:
        """End the timers, and take back the cancellation that the program has asked for."""
        self.hangs_at = None
        for handle in self._handles:
            handle.cancel()
        if self.told_to_cancel is not None and hasattr(self._task, "uncancel"):
            self._task.uncancel()


def _where(task: asyncio.Task[Any]) -> str:
    """Where a task waits: the innermost frames of its coroutine."""
    found = []
    step: Any = task.get_coro()
    while step is not None and hasattr(step, "cr_frame"):
        if step.cr_frame is not None:
            found.append(f"{step.cr_code.co_qualname}:{step.cr_frame.f_lineno}")
        step = step.cr_await
    return " > ".join(found[-4:])


def _short(result: object) -> str:
    text = repr(result)
    return text if len(text) < 120 else text[:117] + "..."
