"""Loggers that put the name of the client into each log line and into the log record's fields."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from aiokafka._subject import Subject, about
from aiokafka.structs import TopicPartition

__all__ = ["SubjectLog"]


class SubjectLog:
    """A logger whose lines start with the name of a client, such as "Consumer c of group g".

    The client id alone would not do: by default all consumers have the same. The methods are those
    of `logging.Logger`, and log records have the location of the caller.

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
        # The third frame is the caller: above this method and `debug`, `info` ...
        self._logger.log(
            level,
            f"%s: {text}",
            self.subject,
            *args,
            exc_info=exc_info,
            stacklevel=3,
            extra=extra,
        )
