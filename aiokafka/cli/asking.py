"""Ask the user: for a yes before something is lost, and for secrets."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

import click

from aiokafka.cli.running import Interrupted

__all__ = ["NotAgreedError", "agree", "secret", "wait_for"]

T = TypeVar("T")


class NotAgreedError(click.ClickException):
    """The user said no."""


def agree(question: str, yes: bool) -> None:
    """Ask before something is lost, unless the user has said `--yes`.

    Raises NotAgreedError after a no, and click.UsageError if there is no answer.
    """
    if yes:
        return
    try:
        agreed = wait_for(lambda: click.confirm(question, err=True))
    except click.Abort:
        click.echo(err=True)
        raise click.UsageError("there is no answer on stdin: give --yes to do it") from None
    if not agreed:
        raise NotAgreedError("nothing was changed")


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
    if threading.current_thread() is not threading.main_thread():
        yield  # signals do not come here
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    wakes = signal.set_wakeup_fd(-1)  # or the loop would hear of the same signal later
    try:
        for number in before:
            signal.signal(number, end)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(wakes)
