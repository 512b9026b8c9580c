"""Checks of the functions that applications pass, such as handlers, and of their results."""

from __future__ import annotations

import concurrent.futures
import inspect
from collections.abc import Coroutine
from typing import Any

__all__ = ["check_result", "refuse_awaitable", "refuse_generators"]


def refuse_generators(argument: str, function: Any) -> None:
    """Raise TypeError if `function` is a generator function or an async generator function, or an
    object whose `__call__` is such a function: a call would run none of its code. `argument`: the
    name of the option, for the error."""
    call = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    for each in (function, call):
        if inspect.isasyncgenfunction(each) or inspect.isgeneratorfunction(each):
            raise TypeError(
                f"{argument}={function!r}: is a generator function: a call would run none of its "
                "code; remove the `yield`"
            )


def check_result(result: object) -> None:
    """Raise TypeError if a handler returned a generator, an async generator or a concurrent future.
    The caller can await none of these, so the work of the handler would be lost."""
    if inspect.isasyncgen(result) or inspect.isgenerator(result):
        raise TypeError(
            f"the handler returned {result!r}, a generator, whose code would never run; remove the "
            "`yield`"
        )
    if isinstance(result, concurrent.futures.Future):
        raise TypeError(
            "the handler returned a concurrent.futures.Future, which cannot be awaited: "
            "return asyncio.wrap_future(future)"
        )


def refuse_awaitable(option: str, result: object, advice: str) -> None:
    """Raise TypeError if `result` is an awaitable: the caller of the serializer cannot await it.

    `option` is the name of the serializer's option, and `advice` the end of the error text. A
    coroutine is closed, because Python would warn otherwise that it was never awaited.
    """
    if not inspect.isawaitable(result):
        return
    if isinstance(result, Coroutine):
        result.close()
    raise TypeError(f"{option} returned an awaitable ({type(result).__name__}), which {advice}")
