"""Call code of the application that only watches: what it raises must not break a client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiokafka._log import SubjectLog

__all__ = ["Guard"]

_QUIET = 60.0
"""Seconds between two lines of the log about one kind of code."""


class Guard:
    """Calls what the application gave, and logs what it raises, once a minute.

    Owns when a line was logged last, and how many failures came since.
    """

    def __init__(self, log: SubjectLog, what: str) -> None:
        """Log to `log`; `what` is called names the code in messages."""
        self._log = log
        self._what = what
        self._loop = asyncio.get_running_loop()
        self._quiet_until = 0.0
        self._unsaid = 0

    def call(self, function: Callable[..., Any], /, *args: Any, **facts: Any) -> Any:
        """Return what `function` returns; None if it raises, which is logged."""
        try:
            return function(*args, **facts)
        except (Exception, asyncio.CancelledError) as error:
            # A plain function cannot be cancelled: this is the outcome of something it looked at.
            self.complain(error)
            return None

    def complain(self, error: BaseException) -> None:
        """Log that the code has raised `error`, unless it did within the last minute."""
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
