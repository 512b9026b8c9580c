"""Go through a consumer's records one by one, without a coroutine for each.

Compiled where it can be: all of it runs once per record.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from aiokafka import _ready
from aiokafka.consumer.fetch.buffer import FetchBuffer
from aiokafka.structs import ConsumerRecord

__all__ = ["RecordIterator"]

_Record = ConsumerRecord[Any, Any]


class RecordIterator:
    """What `async for` goes through: the short way of `getone()`, as long as there is one.

    Owns whether that may be used: a program or a tracer may put something of its own in the place
    of the consumer's methods, at any time, and then each record has to pass through that. It is
    noticed with the first record of a record set, and after 128 records at the latest.
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
        self._is_plain = False
        self._find_next = find_next

    def __aiter__(self) -> RecordIterator:
        # A loop begins, in whatever task. Its first record comes by the long way, which notes that
        # it is this task that reads.
        self._is_plain = False
        return self

    def __anext__(self) -> Coroutine[Any, Any, _Record]:
        """Return what gives the next record to the task that awaits it.

        It passes for a coroutine: it can be made a task of. It takes the record when it is awaited
        and not when it is made: one that is cancelled before it began, as by
        `asyncio.wait_for(anext(records), 0)`, has taken none.
        """
        return _ready.call(_take, _find, self)


# The parameters have the type that C asks for, so it is the locals that are typed (iterator.pxd).


def _take(iterator: RecordIterator) -> _Record | None:
    """Take the next record by the short way; None where that does not lead to it."""
    records = iterator
    return records._buffer.next() if records._is_plain else None


def _find(iterator: RecordIterator) -> Coroutine[Any, Any, _Record]:
    """Return what finds the next record, and see whether the one behind it may be taken."""
    records = iterator
    records._is_plain = records._ask_plain()
    return records._find_next()
