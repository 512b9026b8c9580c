"""Run the asynchronous part of a command, and end it well when a signal comes."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["LAST_MOMENT", "Interrupted", "run"]

T = TypeVar("T")

#: Seconds that a command has after a signal to deliver, commit or abort.
LAST_MOMENT = 10.0

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """A signal ended the command, which has cleaned up; `failure` is what went wrong with that."""

    def __init__(self, number: int, failure: Exception | None = None) -> None:
        super().__init__(number)
        self.code = 128 + number
        self.failure = failure


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end and return its result.

    SIGINT and SIGTERM cancel it, which lets it commit, leave and close; a second one ends the
    process at once. Raises Interrupted after the first.
    """
    return asyncio.run(_guarded(work))


async def _guarded(work: Coroutine[Any, Any, T]) -> T:
    task = asyncio.current_task()
    assert task is not None
    loop = asyncio.get_running_loop()
    caught: list[int] = []

    def note(number: int) -> None:
        if caught:
            os._exit(128 + number)
        caught.append(number)
        task.cancel()

    for number in _SIGNALS:
        try:
            loop.add_signal_handler(number, note, number)
        except (NotImplementedError, ValueError, RuntimeError):
            pass  # Windows, or not the main thread: asyncio.run() does what it can.
    try:
        result = await work
    except asyncio.CancelledError:
        if caught:
            raise Interrupted(caught[0]) from None
        raise
    except Exception as error:
        if caught:
            raise Interrupted(caught[0], error) from None
        raise
    if caught:
        raise Interrupted(caught[0])
    return result
