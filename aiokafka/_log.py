"""Loggers whose lines name the client, as text and as fields of the log record."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from aiokafka._subject import Subject, about
from aiokafka.structs import TopicPartition

__all__ = ["SubjectLog"]


class SubjectLog:
    """A logger whose lines start with its subject, such as "Consumer c of group g".

    Lines start with the subject because client ids are not unique: by default all consumers share
    one. The methods are those of `logging.Logger`; log records have the location of the caller.

    Each LogRecord gets the fields of the subject and of `Subject` arguments as attributes; a
    TopicPartition argument adds `topic` and `partition`. Pass further fields by keyword, such as
    `node_id=1`.
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
        # The caller is two frames up.
        self._logger.log(
            level,
            f"%s: {text}",
            self.subject,
            *args,
            exc_info=exc_info,
            stacklevel=3,
            extra=extra,
        )
