"""Loggers that name the client in each log line and in the fields of log records; and guards, which
call functions of the application and log their exceptions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka._subject import Subject, about
from aiokafka.structs import TopicPartition

__all__ = ["Guard", "SubjectLog"]


class SubjectLog:
    """A logger whose lines start with the name of a client, such as "Consumer c of group g".

    The client id alone does not identify a client: by default, all consumers have the same. The
    methods are those of `logging.Logger`, and log records have the location of the caller.

    Each LogRecord has further attributes: the fields of the name (`Subject`) and of arguments that
    are a `Subject`; `topic` and `partition` of a TopicPartition argument; and keywords of the call,
    such as `node_id=1`.
    """

    __slots__ = ("_logger", "subject")

    def __init__(self, logger: logging.Logger, subject: str) -> None:
        self._logger = logger
        self.subject = subject

    def debug(self, msg: str, *args: object, **fields: object) -> None:
        """Log `msg % args` at DEBUG."""
        self._write(logging.DEBUG, msg, args, fields)

    def info(self, msg: str, *args: object, **fields: object) -> None:
        """Log `msg % args` at INFO."""
        self._write(logging.INFO, msg, args, fields)

    def warning(self, msg: str, *args: object, **fields: object) -> None:
        """Log `msg % args` at WARNING."""
        self._write(logging.WARNING, msg, args, fields)

    def error(self, msg: str, *args: object, exc_info: Any = None, **fields: object) -> None:
        """Log `msg % args` at ERROR."""
        self._write(logging.ERROR, msg, args, fields, exc_info)

    def exception(self, msg: str, *args: object, **fields: object) -> None:
        """Log `msg % args` at ERROR, with the traceback of the exception being handled."""
        self._write(logging.ERROR, msg, args, fields, True)

    def log(self, level: int, msg: str, *args: object, **fields: object) -> None:
        """Log `msg % args` at `level`."""
        self._write(level, msg, args, fields)

    def _write(
        self,
        level: int,
        msg: str,
        args: tuple[object, ...],
        fields: Mapping[str, object],
        exc_info: Any = None,
    ) -> None:
        if not self._logger.isEnabledFor(level):
            return
        text = msg if args else msg.replace("%", "%%")
        extra = about(self.subject)
        for arg in args:
            if isinstance(arg, TopicPartition):
                extra.update(topic=arg.topic, partition=arg.partition)
            elif isinstance(arg, Subject):
                extra.update(arg.fields)
        extra.update(fields)
        # Frame 1 is this method, frame 2 is `debug`, `info` or the like, frame 3 is the caller.
        self._logger.log(
            level,
            f"%s: {text}",
            self.subject,
            *args,
            exc_info=exc_info,
            stacklevel=3,
            extra=extra,
        )


# -- Calls of functions of the application


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
