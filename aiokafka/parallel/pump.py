"""The task that takes records from the consumer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.parallel.dispatcher import Dispatcher
    from aiokafka.parallel.flow import Flow
    from aiokafka.parallel.retry import RetryTopics
    from aiokafka.structs import ConsumerRecord, TopicPartition

__all__ = ["Pump"]

# How long a call waits for records: only what is due earlier ends it sooner.
_LONGEST_WAIT = 10.0
# Records of a retry topic become due one after the other: wait for a few, at most so long, or
# this part of their delay.
_GATHER = 0.1
_GATHER_PART = 0.1

Batches = dict["TopicPartition", "list[ConsumerRecord[Any, Any]]"]


class Pump:
    """Asks the consumer all the time, also while everything is paused: that is what tells the group
    that we live."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        dispatcher: Dispatcher,
        flow: Flow,
        retry: RetryTopics | None,
    ) -> None:
        self._consumer = consumer
        self._dispatcher = dispatcher
        self._flow = flow
        self._retry = retry

    async def run(self) -> None:
        """Until cancelled. Raises what `getmany()` raises."""
        loop = asyncio.get_running_loop()
        consumer, flow = self._consumer, self._flow
        while True:
            now = loop.time()
            flow.release_due(now)
            due = flow.next_due()
            wait = _LONGEST_WAIT if due is None else min(_LONGEST_WAIT, due - now)
            batches = await consumer.getmany(timeout_ms=wait * 1000, max_records=flow.most())
            # No await from here to `add()`: nobody can take a partition away in between.
            if self._retry is not None and batches:
                batches = self._hold_back(batches, self._retry, loop.time())
            if batches:
                self._dispatcher.add(batches)

    def _hold_back(self, batches: Batches, retry: RetryTopics, now: float) -> Batches:
        """Leave out what is not due yet: it is read again when it is."""
        return {
            tp: due
            for tp, records in batches.items()
            if (due := self._due(tp, records, retry, now))
        }

    def _due(
        self,
        tp: TopicPartition,
        records: list[ConsumerRecord[Any, Any]],
        retry: RetryTopics,
        now: float,
    ) -> list[ConsumerRecord[Any, Any]]:
        if not retry.is_retry_topic(tp.topic):
            return records
        for index, record in enumerate(records):
            seconds = retry.due_in(record)
            if seconds > 0:
                gather = min(_GATHER, seconds * _GATHER_PART)
                self._consumer.seek(tp, record.offset)
                self._flow.hold(tp, now + seconds + gather)
                return records[:index]
        return records
