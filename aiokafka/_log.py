"""Log lines that name the client they are about."""

from __future__ import annotations

import logging
from typing import Any

__all__ = ["SubjectLog"]


class SubjectLog:
    """A logger that begins each line with its subject, such as "Consumer c of group g".

    A process may have many clients, and by default all consumers have the same client id. The
    methods are those of `logging.Logger`; lines carry the place of their caller.
    """

    __slots__ = ("_logger", "subject")

    def __init__(self, logger: logging.Logger, subject: str) -> None:
        self._logger = logger
        self.subject = subject

    def debug(self, msg: str, *args: object) -> None:
        """Log `msg % args` at DEBUG."""
        self._write(logging.DEBUG, msg, args)

    def info(self, msg: str, *args: object) -> None:
        """Log `msg % args` at INFO."""
        self._write(logging.INFO, msg, args)

    def warning(self, msg: str, *args: object) -> None:
        """Log `msg % args` at WARNING."""
        self._write(logging.WARNING, msg, args)

    def error(self, msg: str, *args: object, exc_info: Any = None) -> None:
        """Log `msg % args` at ERROR."""
        self._write(logging.ERROR, msg, args, exc_info)

    def exception(self, msg: str, *args: object) -> None:
        """Log `msg % args` at ERROR, with the traceback of the exception being handled."""
        self._write(logging.ERROR, msg, args, True)

    def log(self, level: int, msg: str, *args: object) -> None:
        """Log `msg % args` at `level`."""
        self._write(level, msg, args)

    def _write(self, level: int, msg: str, args: tuple[object, ...], exc_info: Any = None) -> None:
        if self._logger.isEnabledFor(level):
            text = msg if args else msg.replace("%", "%%")
            # The line is the caller's, two frames up.
            self._logger.log(
                level, f"%s: {text}", self.subject, *args, exc_info=exc_info, stacklevel=3
            )
