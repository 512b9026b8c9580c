"""The event loop that a client object is made for."""

from __future__ import annotations

import asyncio
import sys
import traceback
import warnings
from asyncio import AbstractEventLoop
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiokafka.errors import IllegalStateError

__all__ = ["OF_CONSUMERS", "OF_PRODUCERS", "made_for", "origin", "refuse_other_loop"]

# So begin the warnings that programs have filters for.
OF_CONSUMERS = "The loop argument is deprecated since 0.7.1, and scheduled for removal in 0.9.0: "
OF_PRODUCERS = (
    "The `loop` parameter has been deprecated since 0.7.1 and will be removed in a future release. "
)


@contextmanager
def made_for(loop: Any, name: str, opening: str = "") -> Iterator[AbstractEventLoop]:
    """Give the event loop that an object of class `name`, made in this block, will belong to.

    That is the running one; with none running it is `loop`, if one was given. What the block makes
    sees it as the running one, but it does not run: nothing may be scheduled. Raises RuntimeError
    without any, TypeError for a `loop` that is no event loop. A warning for a given `loop` begins
    with `opening`.
    """
    if loop is not None and not isinstance(loop, AbstractEventLoop):
        raise TypeError(f"loop: must be an event loop or None, not {type(loop).__name__}")
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        if loop is None:
            raise RuntimeError(
                f"{name}: there is no running event loop; make it inside `async def main()`, or "
                "wherever a coroutine runs"
            ) from None
    else:
        if loop is not None:
            _warn(f"{opening}the argument loop has no effect: the running event loop is used")
        yield running
        return
    _warn(
        f"{opening}{name}(loop=...) without a running event loop: make it inside a coroutine "
        "instead"
    )
    # Everything that it consists of asks for the running loop; one that is about to run is as good.
    asyncio._set_running_loop(loop)
    try:
        yield loop
    finally:
        asyncio._set_running_loop(None)


def origin(loop: AbstractEventLoop) -> dict[str, Any]:
    """Return where the constructor that calls it was called from, for the context of an exception
    handler. It is told in debug mode, as tasks and futures do.
    """
    if not loop.get_debug():
        return {}
    return {"source_traceback": traceback.extract_stack(sys._getframe(2))}


def refuse_other_loop(loop: AbstractEventLoop, name: str) -> None:
    """Raise IllegalStateError if another event loop runs than `loop`, which an object of class
    `name` was made for.

    Otherwise asyncio would say something about futures and tasks, or nothing and wait for ever.
    """
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        return
    if running is not loop:
        raise IllegalStateError(
            f"this {name} belongs to another event loop than the one that runs now; make one in "
            "each loop (every call of asyncio.run has its own), and use it in no other thread"
        )


def _warn(text: str) -> None:
    # Seen from here: the context manager's two steps, the constructor, its caller.
    warnings.warn(text, DeprecationWarning, stacklevel=5)
