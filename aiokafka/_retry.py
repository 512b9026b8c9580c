"""Repeat what fails for a while, until a deadline: the one loop for all that asks brokers again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiokafka._compat import timeout_after_reading
from aiokafka.errors import KafkaError, KafkaTimeoutError

__all__ = ["OutOfTimeError", "is_retriable", "until", "within"]

T = TypeVar("T")


class OutOfTimeError(Exception):
    """The deadline came first. `failure` is what the last attempt failed with, None without one."""

    def __init__(self, failure: KafkaError | None) -> None:
        super().__init__(str(failure))
        self.failure = failure


def is_retriable(error: KafkaError) -> bool:
    """Say whether the same call may succeed later."""
    return error.retriable


async def until(
    deadline: float,
    attempt: Callable[[], Awaitable[T]],
    pause: Callable[[KafkaError], float],
    passes: Callable[[KafkaError], bool] = is_retriable,
) -> T:
    """Return what `attempt` returns, repeating it while its error is one that `passes`.

    `attempt` itself has to end by `deadline` (loop time), with asyncio.TimeoutError, with a
    KafkaTimeoutError that says more, or because of `within`. `pause` gives the seconds before the
    next attempt. Raises other errors at once, and OutOfTimeError at the deadline.
    """
    loop = asyncio.get_running_loop()
    failure: KafkaError | None = None
    while True:
        try:
            return await attempt()
        except asyncio.TimeoutError:
            raise OutOfTimeError(failure) from failure
        except KafkaError as error:
            if not passes(error):
                # A call inside that had no time left to learn anything knows less than we do.
                knows_nothing = isinstance(error, KafkaTimeoutError) and error.__cause__ is None
                if knows_nothing and failure is not None:
                    raise OutOfTimeError(failure) from failure
                raise
            failure = error
        # Not beyond the deadline: the caller learns of it then, and not after the longest pause.
        await asyncio.sleep(max(0.0, min(pause(failure), deadline - loop.time())))
        if loop.time() >= deadline:
            raise OutOfTimeError(failure) from failure


def within(deadline: float, attempt: Callable[[], Awaitable[T]]) -> Callable[[], Awaitable[T]]:
    """Return `attempt` with a timer: it raises asyncio.TimeoutError at `deadline` (loop time).

    A response that has arrived by then counts, even where the process stood still meanwhile:

    1. The process is stopped, or its machine is suspended, until after the deadline. The response
       waits in the socket.
    2. The process goes on. In one turn the loop reads the response and calls the timers that are
       due; the task that waits for the response runs in the next turn.
    3. A timer that cancels the task at once would drop the response. This one lets a turn pass
       (before Python 3.11 it does not).
    """

    async def timed() -> T:
        async with timeout_after_reading(deadline):
            return await attempt()

    return timed
