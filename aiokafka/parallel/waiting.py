"""Records of retry topics that were taken and are not due yet."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from aiokafka.parallel.sizes import size_of

if TYPE_CHECKING:
    from aiokafka.structs import ConsumerRecord, TopicPartition

__all__ = ["WaitingRoom"]

# Records of a retry topic become due one after the other: wait for a few, at most so long, or this
# part of their delay.
_GATHER = 0.1
_GATHER_PART = 0.1

Dated = tuple["ConsumerRecord[Any, Any]", float]


class _Waiting:
    """Records of one partition, in the order of the log, with the loop time when each is due."""

    __slots__ = ("is_closed", "nbytes", "records", "wake_at")

    def __init__(self) -> None:
        self.records: deque[Dated] = deque()
        self.nbytes = 0
        self.wake_at = 0.0
        self.is_closed = False


class WaitingRoom:
    """Keeps records that are not due, so that they are not fetched again.

    Records behind one that is not due wait with it. Owns: these records. No I/O, no waiting.
    """

    def __init__(self) -> None:
        self.records = 0
        self.nbytes = 0
        self._partitions: dict[TopicPartition, _Waiting] = {}

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._partitions

    def keep(self, tp: TopicPartition, records: Iterable[Dated], now: float, room: int) -> int:
        """Keep the first of these records, as many as fit; return how many.

        They fit into `room` bytes together with those of the partition that wait already. At least
        one is kept if none waits.
        """
        waiting = self._partitions.get(tp)
        if waiting is None:
            waiting = self._partitions[tp] = _Waiting()
        count = 0
        for record, due in records:
            size = size_of(record)
            # One is kept whatever its size, or its partition would never move.
            if waiting.records and waiting.nbytes + size > room:
                break
            waiting.records.append((record, due))
            waiting.nbytes += size
            self.nbytes += size
            count += 1
        self.records += count
        _set_alarm(waiting, now)
        return count

    def next_due(self) -> float | None:
        """Return when to call `take_due()` next (loop time); None if nothing waits."""
        return min((each.wake_at for each in self._partitions.values()), default=None)

    def take_due(self, now: float) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Remove and return the records that are due."""
        taken: dict[TopicPartition, list[ConsumerRecord[Any, Any]]] = {}
        for tp, waiting in list(self._partitions.items()):
            if waiting.wake_at <= now:
                due = self._pop_due(waiting, now)
                if due:
                    taken[tp] = due
                if not waiting.records:
                    del self._partitions[tp]
        return taken

    def _pop_due(self, waiting: _Waiting, now: float) -> list[ConsumerRecord[Any, Any]]:
        due = []
        while waiting.records and waiting.records[0][1] <= now:
            record = waiting.records.popleft()[0]
            size = size_of(record)
            waiting.nbytes -= size
            self.nbytes -= size
            due.append(record)
        self.records -= len(due)
        _set_alarm(waiting, now)
        return due

    def close(self, tps: Iterable[TopicPartition]) -> None:
        """Let nothing of these partitions become due any more, but remember that it is here."""
        for tp in tps:
            waiting = self._partitions.get(tp)
            if waiting is not None:
                waiting.is_closed = True
                waiting.wake_at = math.inf

    def drop(self, tps: Iterable[TopicPartition]) -> None:
        """Forget what waits of these partitions: they are given up."""
        for tp in tps:
            waiting = self._partitions.pop(tp, None)
            if waiting is not None:
                self.records -= len(waiting.records)
                self.nbytes -= waiting.nbytes


def _set_alarm(waiting: _Waiting, now: float) -> None:
    if waiting.records and not waiting.is_closed:
        due = waiting.records[0][1]
        waiting.wake_at = due + min(_GATHER, max(0.0, due - now) * _GATHER_PART)
