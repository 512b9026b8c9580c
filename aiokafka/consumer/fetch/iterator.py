"""Go through a consumer's records one by one, without a coroutine for each.

Compiled where it can be: all of it runs once per record.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any

from aiokafka import _ready
from aiokafka.consumer.fetch.buffer import FetchBuffer
from aiokafka.structs import ConsumerRecord

__all__ = ["NextRecord", "RecordIterator"]

_Record = ConsumerRecord[Any, Any]


class RecordIterator:
    """What `async for` goes through: the short way of `getone()`, as long as there is one.

    Owns whether that may be used: a program or a tracer may put something of its own in the place
    of the consumer's methods, at any time, and then each record has to pass through that. It is
    noticed with the first record of a record set, and every 128 records.
    """

    _buffer: FetchBuffer
    _is_plain: bool

    def __init__(
        self,
        buffer: FetchBuffer,
        is_plain: Callable[[], bool],
        find_next: Callable[[], Coroutine[Any, Any, _Record]],
    ) -> None:
        """Take records from `buffer`, and let `find_next()` find the others; all of them if not
        `is_plain()`."""
        self._buffer = buffer
        self._ask_plain = is_plain
        self._is_plain = is_plain()
        self._find_next = find_next

    def __aiter__(self) -> RecordIterator:
        return self

    def __anext__(self) -> NextRecord:
        """Return what gives the next record to the task that awaits it."""
        return NextRecord(self)

    def take(self) -> Generator[Any, Any, _Record]:
        """Take the next record, or wait for it; return what gives it to the task that awaits it, or
        raises what came instead."""
        if self._is_plain:
            try:
                record = self._buffer.next()
            except BaseException as error:
                # `async for` would make a TypeError of it here.
                return _raise(error)
            if record is not None:
                return _ready.ready(record)
        self._is_plain = self._ask_plain()
        return self._find_next().__await__()


class NextRecord:
    """A call for the next record, which passes for a coroutine: it can be made a task of.

    It takes the record when it is awaited and not when it is made: one that is cancelled before it
    began, as by `asyncio.wait_for(anext(records), 0)`, has taken none.
    """

    def __init__(self, records: RecordIterator) -> None:
        self._records: RecordIterator | None = records
        self._going_on: Generator[Any, Any, Any] | None = None

    def __await__(self) -> Generator[Any, Any, _Record]:
        return self._begin()

    def send(self, value: Any) -> Any:
        """Go on, as a coroutine does."""
        if self._going_on is None:
            self._going_on = self._begin()
        return self._going_on.send(value)

    def throw(self, *error: Any) -> Any:
        """Raise this where it waits, as a coroutine does."""
        if self._going_on is None:
            self._records = None
            self._going_on = _ready.ready(None)
        return self._going_on.throw(*error)

    def close(self) -> None:
        """End it, as a coroutine ends."""
        self._records = None
        if self._going_on is not None:
            self._going_on.close()

    def _begin(self) -> Generator[Any, Any, _Record]:
        records = self._records
        if records is None:
            raise RuntimeError("cannot reuse already awaited coroutine")
        self._records = None
        return records.take()


def _raise(error: BaseException) -> Generator[Any, Any, Any]:
    try:
        raise error
    finally:
        # The traceback has this frame.
        del error
    yield  # type: ignore[unreachable]
