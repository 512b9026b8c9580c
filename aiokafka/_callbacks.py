"""Check functions of the application, and call them without propagating their exceptions."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from aiokafka._log import SubjectLog

__all__ = ["Guard", "check_result", "refuse_awaitable", "refuse_generators"]

_QUIET = 60.0
"""Seconds between two log lines of a guard."""


class Guard:
    """Calls functions of the application, such as a metrics collector, and logs their exceptions,
    at most once a minute.

    Owns the time of the next log line, and the number of exceptions not logged before it.
    """

    def __init__(self, log: SubjectLog, what: str) -> None:
        """Args:
        what: The name of the functions in log lines.
        """
        self._log = log
        self._what = what
        self._loop = asyncio.get_running_loop()
        self._quiet_until = 0.0
        self._unsaid = 0

    def call(self, function: Callable[..., Any], /, *args: Any, **facts: Any) -> Any:
        """Return the result of `function`; None if it raises."""
        try:
            return function(*args, **facts)
        except (Exception, asyncio.CancelledError) as error:
            # A plain function raises CancelledError only from a cancelled future that it examines.
            self.complain(error)
            return None

    def complain(self, error: BaseException) -> None:
        """Log an exception, unless one was logged within the last minute."""
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
    """Raise TypeError if `function`, or the `__call__` of an object, is a generator function or an
    async generator function."""
    call = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    for each in (function, call):
        if inspect.isasyncgenfunction(each) or inspect.isgeneratorfunction(each):
            raise TypeError(
                f"{argument}={function!r}: a generator function, of which nothing runs when it is "
                "called; take the `yield` out"
            )


def check_result(result: object) -> None:
    """Raise TypeError if a handler returned a generator, an async generator or a concurrent future:
    nothing would run or await it."""
    if inspect.isasyncgen(result) or inspect.isgenerator(result):
        raise TypeError(f"the handler returned {result!r}: nothing of a generator runs")
    if isinstance(result, concurrent.futures.Future):
        raise TypeError(
            "the handler returned a concurrent.futures.Future, which cannot be awaited: "
            "return asyncio.wrap_future(future)"
        )


def refuse_awaitable(option: str, result: object) -> None:
    """Raise TypeError if a serializer or deserializer, given as `option`, returned an awaitable.

    Closes a coroutine, so that Python does not warn about it.
    """
    if not inspect.isawaitable(result):
        return
    if isinstance(result, Coroutine):
        result.close()
    raise TypeError(
        f"{option} returned an awaitable ({type(result).__name__}), which is never awaited: "
        "it must be a plain function that returns the result itself"
    )
