"""Work for threads, done in the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

    from aiokafka.testing.simulation.turns import TurningLoop

__all__ = ["Executors"]

# A thread begins within so many virtual seconds, and its result is there within as many more.
_LONGEST = 0.001


class Executors:
    """Runs functions at moments that the seed chooses, none beside another.

    Owns: when the last function began, and when the last one of each executor is over.
    """

    def __init__(self, loop: TurningLoop, chance: random.Random) -> None:
        self._loop = loop
        self._random = chance
        self._begun = 0.0
        self._over: dict[int, float] = {}

    def submit(
        self, executor: Any, func: Callable[..., Any], args: tuple[Any, ...]
    ) -> asyncio.Future[Any]:
        """Run a function a moment later. One that is cancelled before does not begin; one that is
        cancelled later is not noticed, as it is with threads.
        """
        loop = self._loop
        future: asyncio.Future[Any] = loop.create_future()
        # In the order of the calls. An executor of the program's own may have one thread only, so
        # what it is given waits for what it was given before.
        earliest = max(loop.now, self._begun, self._over.get(id(executor), 0.0))
        begin = self._begun = earliest + self._random.random() * _LONGEST
        end = begin + self._random.random() * _LONGEST
        if executor is not None:
            self._over[id(executor)] = end
        loop.happen_at(begin, self._run, future, func, args, end)
        return future

    def _run(
        self, future: asyncio.Future[Any], func: Callable[..., Any], args: Any, end: float
    ) -> None:
        if future.done():
            return
        result = None
        error: BaseException | None = None
        try:
            result = func(*args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except StopIteration as stop:
            error = RuntimeError("a function of an executor raised StopIteration")
            error.__cause__ = stop
        except BaseException as other:
            error = other
        self._loop.happen_at(max(end, self._loop.now), _settle, future, result, error)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
