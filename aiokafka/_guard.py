"""Calls of functions of the application whose exceptions must not propagate."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiokafka._log import SubjectLog

__all__ = ["Guard"]

_QUIET = 60.0
"""Seconds between two log lines of a guard."""


class Guard:
    """Calls functions of the application, such as a metrics collector, and logs their exceptions,
    at most once a minute.

    Owns the time of the next log line, and the number of exceptions not logged before it.
    """

    def __init__(self, log: SubjectLog, what: str) -> None:
        """Args:
        what: The name of the functions in log lines.
        """
        self._log = log
        self._what = what
        self._loop = asyncio.get_running_loop()
        self._quiet_until = 0.0
        self._unsaid = 0

    def call(self, function: Callable[..., Any], /, *args: Any, **facts: Any) -> Any:
        """Return the result of `function`; None if it raises."""
        try:
            return function(*args, **facts)
        except (Exception, asyncio.CancelledError) as error:
            # A plain function raises CancelledError only from a cancelled future that it examines.
            self.complain(error)
            return None

    def complain(self, error: BaseException) -> None:
        """Log an exception, unless one was logged within the last minute."""
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
