"""When records of retry topics are due, and where they are until then."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.parallel.flow import Flow
    from aiokafka.parallel.retry import RetryTopics
    from aiokafka.parallel.waiting import WaitingRoom
    from aiokafka.structs import ConsumerRecord, TopicPartition

__all__ = ["Delays"]

Batches = dict["TopicPartition", "list[ConsumerRecord[Any, Any]]"]


class Delays:
    """Holds back records that are not due. A partition is paused while records of it wait.

    Clocks of other hosts, and our own, may be wrong by hours. Two facts need none of them:

    1. At some moment of our loop's time the partition ends at an offset.
    2. What is before that offset was written before that moment, so it is due one delay after it
       at the latest, whatever its headers say.

    Owns: those ends and moments.
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        flow: Flow,
        waiting: WaitingRoom,
        retry: RetryTopics,
        max_bytes: int,
    ) -> None:
        self._consumer = consumer
        self._flow = flow
        self._waiting = waiting
        self._retry = retry
        self._max_bytes = max_bytes
        self._ends: dict[TopicPartition, tuple[int, float]] = {}

    def hold_back(self, batches: Batches, now: float) -> Batches:
        """Leave out what is not due yet."""
        retry = self._retry
        ready: Batches = {}
        for tp, records in batches.items():
            due = self._due(tp, records, now) if retry.is_retry_topic(tp.topic) else records
            if due:
                ready[tp] = due
        return ready

    def next_due(self) -> float | None:
        """Return when to call `release()` next (loop time); None if nothing waits."""
        return self._waiting.next_due()

    def release(self, now: float) -> Batches:
        """Return the held-back records that are due now."""
        due = self._waiting.take_due(now)
        for tp in due:
            if tp not in self._waiting:
                self._flow.release(tp)
        return due

    def _due(
        self, tp: TopicPartition, records: list[ConsumerRecord[Any, Any]], now: float
    ) -> list[ConsumerRecord[Any, Any]]:
        """Return the first of these records, those that are due; the rest waits."""
        # A log that is shorter now is not the one of then: it was cut, or the topic made again.
        if (self._consumer.highwater(tp) or math.inf) < self._ends.get(tp, (0, 0.0))[0]:
            del self._ends[tp]
        # Examining many records takes milliseconds: each is compared with the time by then.
        clock = asyncio.get_running_loop().time
        dues = [self._due_at(tp, record, clock()) for record in records]
        ready = 0
        if tp not in self._waiting:  # else they are behind those
            while ready < len(records) and dues[ready] <= now:
                ready += 1
        if ready < len(records):
            rest = zip(records[ready:], dues[ready:], strict=True)
            kept = ready + self._waiting.keep(tp, rest, now, self._room())
            self._flow.hold(tp)
            if kept < len(records):
                self._consumer.seek(tp, records[kept].offset)
        return records[:ready]

    def _due_at(self, tp: TopicPartition, record: ConsumerRecord[Any, Any], now: float) -> float:
        end, seen_at = self._ends.get(tp, (0, 0.0))
        if record.offset >= end:
            end = max(record.offset + 1, self._consumer.highwater(tp) or 0)
            seen_at = now
            self._ends[tp] = end, seen_at
        at_last = seen_at + self._retry.delay_for(tp.topic)
        return min(now + self._retry.due_in(record), at_last)

    def _room(self) -> int:
        """Return how many bytes one partition may keep waiting.

        All partitions together may keep as much as may be unfinished.
        """
        tps = self._consumer.assignment()
        return self._max_bytes // max(1, sum(self._retry.is_retry_topic(tp.topic) for tp in tps))
