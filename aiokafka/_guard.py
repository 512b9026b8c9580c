"""Calls the application's callbacks and logs their exceptions, so that no client task fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiokafka._log import SubjectLog

__all__ = ["Guard"]

_LOG_INTERVAL = 60.0
"""Minimum number of seconds between two log lines of a guard."""


class Guard:
    """Calls functions of the application, such as a metrics collector. Exceptions do not propagate:
    they are logged, at most once a minute.

    Owns: the time of the next log line, and the number of exceptions since the last log line.
    """

    def __init__(self, log: SubjectLog, what: str) -> None:
        """Args:
        what: The name of the called functions in log lines, such as "an interceptor".
        """
        self._log = log
        self._what = what
        self._loop = asyncio.get_running_loop()
        self._quiet_until = 0.0
        self._unlogged = 0

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call `function` and return its result, or None if the function raises."""
        try:
            return function(*args, **kwargs)
        except (Exception, asyncio.CancelledError) as error:
            # CancelledError comes from a cancelled future whose result the function has read: no
            # await is involved, so this task is not being cancelled.
            self.log_exception(error)
            return None

    def log_exception(self, error: BaseException) -> None:
        """Log an exception; only count it if another was logged within the last minute."""
        now = self._loop.time()
        if now < self._quiet_until:
            self._unlogged += 1
            return
        before = f" ({self._unlogged} failures before it were not logged)" if self._unlogged else ""
        self._unlogged = 0
        self._quiet_until = now + _LOG_INTERVAL
        self._log.error(
            "%s raised %r, which is ignored%s", self._what, error, before, exc_info=error
        )
