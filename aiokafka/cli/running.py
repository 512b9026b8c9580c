"""Run a command in an event loop, with clean-up after signals; prompt the user."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

import click

T = TypeVar("T")

#: Seconds that a command has after a signal to deliver records, commit offsets or abort a
#: transaction.
CLEANUP_TIMEOUT = 10.0

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """A signal ended the command. `failure` is the error of the command's clean-up, or None."""

    def __init__(self, number: int, failure: Exception | None = None) -> None:
        super().__init__(number)
        self.code = 128 + number
        self.failure = failure


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` and return its result.

    The first SIGINT or SIGTERM cancels `work`, so that it can commit, leave its group and close its
    clients; then raises Interrupted. A second signal ends the process at once.
    """
    # Imported here, because --help and --version do not need asyncio, and its import takes as long
    # as the rest of the start.
    import asyncio

    return asyncio.run(_run_with_signals(work))


async def _run_with_signals(work: Coroutine[Any, Any, T]) -> T:
    import asyncio

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
            # On Windows, event loops do not support signal handlers; asyncio.run() handles SIGINT.
            # In threads other than the main thread, no signals arrive.
            pass
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


# -- Prompts: for a confirmation before data is lost, and for secrets


_SIGNAL_INTERVAL = 0.25
"""Seconds between interruptions of a blocking system call, so that Python handles signals."""


YES = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
"""The option of commands that call `agree`."""


class NotAgreedError(click.ClickException):
    """The user did not confirm."""


def agree(question: str, yes: bool) -> None:
    """Prompt the user to confirm. With `--yes`, return at once.

    Raises NotAgreedError if the user answers no, and click.UsageError if stdin has ended.
    """
    if yes:
        return
    try:
        if sys.stdin is None:
            raise click.Abort  # the shell has closed stdin (<&-)
        agreed = wait_for(lambda: click.confirm(question, err=True))
    except click.Abort:
        click.echo(err=True)
        raise click.UsageError(
            "stdin gave no answer to the question: to agree, give --yes"
        ) from None
    if not agreed:
        raise NotAgreedError("nothing was changed")


def can_ask() -> bool:
    """Return whether a user can be prompted: stdin is a terminal, and not closed (<&-)."""
    return sys.stdin is not None and sys.stdin.isatty()


def secret(what: str, *, twice: bool = False) -> str:
    """Prompt for a secret without displaying it; with `twice`, until two inputs are the same."""
    return str(
        wait_for(lambda: click.prompt(what, hide_input=True, confirmation_prompt=twice, err=True))
    )


def wait_for(read: Callable[[], T]) -> T:
    """Return the result of `read`, a function that blocks on a terminal or pipe.

    A signal raises Interrupted at once. Without this, the event loop would handle the signal only
    after `read` has returned.
    """
    with _signals_raise():
        return read()


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Raise Interrupted in the `with` block if a signal arrives.

    1. A signal that arrives while a system call blocks interrupts the call, and Python runs the
       handler, which raises.
    2. For a signal that arrives just before the call, Python only sets a flag, and then the call
       blocks. This happens on a busy machine, between the prompt and the read.
    3. Therefore a timer interrupts the call periodically, so that Python checks the flag.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread handles signals
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    handlers: dict[int, Callable[[int, FrameType | None], None]]
    handlers = {signal.SIGINT: end, signal.SIGTERM: end}
    if sys.platform != "win32":
        handlers[signal.SIGALRM] = lambda number, frame: None
    before = {number: signal.getsignal(number) for number in handlers}
    wakes = signal.set_wakeup_fd(-1)  # so that the event loop does not get these signals as well
    try:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if sys.platform != "win32":
            signal.setitimer(signal.ITIMER_REAL, _SIGNAL_INTERVAL, _SIGNAL_INTERVAL)
        yield
    finally:
        if sys.platform != "win32":
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, former in before.items():
            signal.signal(number, former)
        signal.set_wakeup_fd(wakes)
