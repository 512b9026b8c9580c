"""Run a command in an event loop, prompt the user, and end both well when a signal comes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

import click

__all__ = [
    "LAST_MOMENT",
    "YES",
    "Interrupted",
    "NotAgreedError",
    "agree",
    "can_ask",
    "run",
    "secret",
    "wait_for",
]

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


# -- Prompts: confirmation before data is lost, and secrets


_LOOK = 0.25
"""Seconds between two looks for a signal while a system call blocks."""


YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
"""The option of commands that `agree` would ask about."""


class NotAgreedError(click.ClickException):
    """The user said no."""


def agree(question: str, yes: bool) -> None:
    """Ask before something is lost, unless the user has said `--yes`.

    Raises NotAgreedError after a no, and click.UsageError if there is no answer.
    """
    if yes:
        return
    try:
        if sys.stdin is None:
            raise click.Abort  # closed by the shell (<&-)
        agreed = wait_for(lambda: click.confirm(question, err=True))
    except click.Abort:
        click.echo(err=True)
        raise click.UsageError("there is no answer on stdin: give --yes to do it") from None
    if not agreed:
        raise NotAgreedError("nothing was changed")


def can_ask() -> bool:
    """Say whether there is someone to ask for a secret. The shell may have closed stdin (<&-)."""
    return sys.stdin is not None and sys.stdin.isatty()


def secret(what: str, *, twice: bool = False) -> str:
    """Ask for a secret, which is not shown."""
    return str(
        wait_for(lambda: click.prompt(what, hide_input=True, confirmation_prompt=twice, err=True))
    )


def wait_for(read: Callable[[], T]) -> T:
    """Return what `read` reads from a terminal or pipe, which may take long and blocks the loop.

    A signal ends it at once, with Interrupted: the loop would notice it after the input.
    """
    with _signals_raise():
        return read()


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Have signals raise Interrupted in the block.

    A signal that comes while a system call blocks interrupts it, and the interpreter looks for
    signals then. One that comes a moment earlier is only noted, and the call blocks: a busy machine
    may stop a process between its prompt and the read that follows. So a timer interrupts the call
    again and again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals do not come here
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    handlers: dict[int, Callable[[int, FrameType | None], None]]
    handlers = {signal.SIGINT: end, signal.SIGTERM: end}
    if sys.platform != "win32":
        handlers[signal.SIGALRM] = lambda number, frame: None
    before = {number: signal.getsignal(number) for number in handlers}
    wakes = signal.set_wakeup_fd(-1)  # or the loop would hear of the same signal later
    try:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if sys.platform != "win32":
            signal.setitimer(signal.ITIMER_REAL, _LOOK, _LOOK)
        yield
    finally:
        if sys.platform != "win32":
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, former in before.items():
            signal.signal(number, former)
        signal.set_wakeup_fd(wakes)
