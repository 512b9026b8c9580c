"""The task that takes records from the consumer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokafka.errors import IllegalStateError

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.parallel.delays import Delays
    from aiokafka.parallel.dispatcher import Dispatcher
    from aiokafka.parallel.flow import Flow
    from aiokafka.parallel.listener import DrainingListener

__all__ = ["Pump"]

# How long a call waits for records; only records that are due earlier end it sooner.
_LONGEST_WAIT = 10.0


class Pump:
    """Asks the consumer for records all the time, also while everything is paused.

    The calls tell the group that we are alive.
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        dispatcher: Dispatcher,
        flow: Flow,
        delays: Delays | None,
        listener: DrainingListener,
    ) -> None:
        self._consumer = consumer
        self._dispatcher = dispatcher
        self._flow = flow
        self._delays = delays
        self._listener = listener

    async def run(self) -> None:
        """Read until cancelled.

        Raises what `getmany()` raises, and IllegalStateError if the listener is called no more.
        """
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            wait = _LONGEST_WAIT
            if self._delays is not None:
                self._dispatcher.add_all(self._delays.release(now))
                due = self._delays.next_due()
                wait = wait if due is None else min(wait, max(0.0, due - now))
            batches = await self._consumer.getmany(
                timeout_ms=wait * 1000, max_records=self._flow.most()
            )
            # Without it, what is revoked would be worked on, here and by its next owner.
            if self._consumer.rebalance_listener is not self._listener:
                raise IllegalStateError(
                    "subscribe() or assign() was called while a ParallelConsumer ran, so it cannot "
                    "know what is still its own: call them before it starts"
                )
            # No await from here on: no partition can be revoked in between.
            # An interceptor may have left out all records of a partition.
            batches = {tp: records for tp, records in batches.items() if records}
            if batches:
                # If something fails from here on, this is never taken back: no commit may pass over
                # these records.
                self._dispatcher.queue.begin_transit()
                if self._delays is not None:
                    batches = self._delays.hold_back(batches, loop.time())
                self._dispatcher.add(batches)
                self._dispatcher.queue.finish_transit()
