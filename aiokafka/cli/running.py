"""Run a command in an event loop and prompt the user, with clean-up after signals."""

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

T = TypeVar("T")

#: Seconds that a command has after a signal to deliver, commit or abort.
CLEANUP_TIMEOUT = 10.0

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """A signal ended the command. `failure` is the error of its clean-up, or None."""

    def __init__(self, number: int, failure: Exception | None = None) -> None:
        super().__init__(number)
        self.code = 128 + number
        self.failure = failure


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` and return its result.

    SIGINT and SIGTERM cancel `work`, so that it can commit, leave its group and close its clients;
    then Interrupted is raised. A second signal ends the process at once.
    """
    return asyncio.run(_run_with_signals(work))


async def _run_with_signals(work: Coroutine[Any, Any, T]) -> T:
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
            # Not supported on Windows, where asyncio.run() handles SIGINT, nor outside the main
            # thread, which gets no signals.
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


# -- Prompts: confirmation before data is lost, and secrets


_SIGNAL_INTERVAL = 0.25
"""Seconds between interruptions of a blocking system call, to handle signals."""


YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
"""The option of commands that call `agree`."""


class NotAgreedError(click.ClickException):
    """The user did not confirm."""


def agree(question: str, yes: bool) -> None:
    """Ask the user to confirm, unless `--yes` was given.

    Raises NotAgreedError if the user does not confirm, and click.UsageError at the end of stdin.
    """
    if yes:
        return
    try:
        if sys.stdin is None:
            raise click.Abort  # the shell has closed stdin (<&-)
        agreed = wait_for(lambda: click.confirm(question, err=True))
    except click.Abort:
        click.echo(err=True)
        raise click.UsageError("there is no answer on stdin: give --yes to do it") from None
    if not agreed:
        raise NotAgreedError("nothing was changed")


def can_ask() -> bool:
    """Return whether a user can be prompted for a secret. The shell may close stdin (<&-)."""
    return sys.stdin is not None and sys.stdin.isatty()


def secret(what: str, *, twice: bool = False) -> str:
    """Prompt for a secret, which is not displayed."""
    return str(
        wait_for(lambda: click.prompt(what, hide_input=True, confirmation_prompt=twice, err=True))
    )


def wait_for(read: Callable[[], T]) -> T:
    """Return the result of `read`, which blocks on a terminal or pipe.

    A signal raises Interrupted at once; the event loop would handle it only after `read` returns.
    """
    with _signals_raise():
        return read()


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Raise Interrupted in the block when a signal arrives.

    1. A signal that arrives while a system call blocks interrupts the call, and the interpreter
       runs the handler.
    2. For a signal that arrives just before the call, the interpreter only sets a flag, and then
       the call blocks. This happens on a busy machine, between the prompt and the read.
    3. Therefore a timer interrupts the call periodically, and the interpreter checks the flag.
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
    wakes = signal.set_wakeup_fd(-1)  # keep the signals from the event loop
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
