"""Ask the user: for a yes before something is lost, and for secrets."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

import click

from aiokafka.cli.running import Interrupted

__all__ = ["NotAgreedError", "agree", "can_ask", "secret", "wait_for"]

T = TypeVar("T")

_LOOK = 0.25
"""Seconds between two looks for a signal while a system call blocks."""


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
