"""Functions of the application that a client calls: check them, and survive what they raise."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from aiokafka._log import SubjectLog

__all__ = ["Guard", "check_result", "refuse_awaitable", "refuse_generators"]

_QUIET = 60.0
"""Seconds between two lines of the log about one kind of code."""


class Guard:
    """Calls what the application gave, and logs what it raises, once a minute.

    Owns when a line was logged last, and how many failures came since.
    """

    def __init__(self, log: SubjectLog, what: str) -> None:
        """Log to `log`; `what` is called names the code in messages."""
        self._log = log
        self._what = what
        self._loop = asyncio.get_running_loop()
        self._quiet_until = 0.0
        self._unsaid = 0

    def call(self, function: Callable[..., Any], /, *args: Any, **facts: Any) -> Any:
        """Return what `function` returns; None if it raises, which is logged."""
        try:
            return function(*args, **facts)
        except (Exception, asyncio.CancelledError) as error:
            # A plain function cannot be cancelled: this is the outcome of something it looked at.
            self.complain(error)
            return None

    def complain(self, error: BaseException) -> None:
        """Log that the code has raised `error`, unless it did within the last minute."""
        now = self._loop.time()
        if now < self._quiet_until:
            self._unsaid += 1
            return
        before = f" ({self._unsaid} failures before it were not logged)" if self._unsaid else ""
        self._unsaid = 0
        self._quiet_until = now + _QUIET
        self._log.error(
            "%s raised %r, which is ignored%s", self._what, error, before, exc_info=error
        )


def refuse_generators(argument: str, function: Any) -> None:
    """Raise TypeError for a generator function, plain or async, or an object whose call is one."""
    call = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    for each in (function, call):
        if inspect.isasyncgenfunction(each) or inspect.isgeneratorfunction(each):
            raise TypeError(
                f"{argument}={function!r}: a generator function, of which nothing runs when it is "
                "called; take the `yield` out"
            )


def check_result(result: object) -> None:
    """Raise TypeError for what a call has returned that stands for work, and cannot be awaited."""
    if inspect.isasyncgen(result) or inspect.isgenerator(result):
        raise TypeError(f"the handler returned {result!r}: nothing of a generator runs")
    if isinstance(result, concurrent.futures.Future):
        raise TypeError(
            "the handler returned a concurrent.futures.Future, which cannot be awaited: "
            "return asyncio.wrap_future(future)"
        )


def refuse_awaitable(option: str, result: object) -> None:
    """Raise TypeError if the function given as `option`, a serializer or deserializer, has returned
    an awaitable in place of bytes or a value.

    Closes a coroutine, as nothing awaits it.
    """
    if not inspect.isawaitable(result):
        return
    if isinstance(result, Coroutine):
        result.close()
    raise TypeError(
        f"{option} returned an awaitable ({type(result).__name__}), which is never awaited: "
        "it must be a plain function that returns the result itself"
    )
