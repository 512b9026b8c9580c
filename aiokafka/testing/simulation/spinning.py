"""Find out what keeps a loop from waiting, so that no time goes by."""

from __future__ import annotations

import asyncio
import contextvars
from collections import Counter
from collections.abc import Callable
from typing import Any

from aiokafka.testing.simulation.errors import BusyLoopError

__all__ = ["SpinWatch", "name_of"]

# What spins is called in this part of all turns, at least.
_BLAMED = 0.4

_Called = Callable[..., object]


class SpinWatch:
    """Counts for a while what a loop is told to call.

    Owns: whether it counts, and how often it has seen each callback.
    """

    def __init__(self, loop: asyncio.BaseEventLoop) -> None:
        self._loop = loop
        self._counts: Counter[str] = Counter()
        self.is_on = False

    def begin(self) -> None:
        """Count from now on what is called, until :meth:`end`."""
        self.is_on = True
        self._counts.clear()
        # On the object, so that it costs nothing as long as nothing spins.
        setattr(self._loop, "call_soon", self._call_soon)  # noqa: B010

    def end(self, turns: int) -> None:
        """Count no more; raise :class:`BusyLoopError` if something was called in most of these
        turns, and name it.
        """
        self.is_on = False
        self._loop.__dict__.pop("call_soon", None)
        most = self._counts.most_common(3)
        if most and most[0][1] >= turns * _BLAMED:
            named = ", ".join(f"{name} ({count} times)" for name, count in most)
            raise BusyLoopError(
                f"something runs in every turn of the loop, so that no time goes by; called most "
                f"often in {turns} turns: {named}"
            )

    def _call_soon(
        self,
        callback: _Called,
        *args: Any,
        context: contextvars.Context | None = None,
    ) -> asyncio.Handle:
        self._counts[name_of(callback)] += 1
        return type(self._loop).call_soon(self._loop, callback, *args, context=context)


def name_of(callback: _Called) -> str:
    """Return the name of a callback; for the step of a task, the task's name and function."""
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        coroutine = owner.get_coro()
        return f"task {owner.get_name()} of {getattr(coroutine, '__qualname__', coroutine)}"
    return getattr(callback, "__qualname__", None) or repr(type(callback))
