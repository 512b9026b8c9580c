"""Functions of the application that are called with a record, or with its key or value."""

from __future__ import annotations

import concurrent.futures
import inspect
from collections.abc import Coroutine
from typing import Any

__all__ = ["check_result", "refuse_awaitable", "refuse_generators"]


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
