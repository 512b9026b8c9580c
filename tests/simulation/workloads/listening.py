"""Rebalance listeners of every kind."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from tests.simulation.calls import AllowedError, Caller, InterruptedCall
from tests.simulation.contexts import check_context
from tests.simulation.history import Reading


class Listener(ConsumerRebalanceListener):
    """Tells the history which partitions come and go; beyond that it is slow, raises, seeks or
    commits, as its member's options say."""

    def __init__(
        self, caller: Caller, consumer: AIOKafkaConsumer, reading: Reading, options: dict[str, Any]
    ) -> None:
        self._caller = caller
        self._consumer = consumer
        self._reading = reading
        self._options = options
        self._kind = options["listener"]

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        """Partitions go."""
        self._note("revoked", revoked)
        with self._reading.listening():
            try:
                if self._kind == "commit" and revoked:
                    await self._commit(revoked)
                self._reading.forget(revoked)
                await self._misbehave()
            finally:
                self._reading.is_bereft(revoked)

    async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        """Partitions come."""
        self._note("assigned", assigned)
        self._reading.is_given(assigned)
        self._reading.forget(assigned)
        with self._reading.listening():
            if self._kind == "seek":
                await self._seek(assigned)
            await self._misbehave()

    async def on_partitions_lost(self, lost: Set[TopicPartition]) -> None:
        """Partitions are gone already."""
        self._note("lost", lost)
        self._reading.is_bereft(lost)
        self._reading.forget(lost)
        with self._reading.listening():
            await self._misbehave()

    def _note(self, what: str, partitions: Set[TopicPartition]) -> None:
        check_context(self._caller, f"the listener ({what})")
        self._caller.world.note(self._caller.name, what, ", ".join(map(_short, sorted(partitions))))

    async def _misbehave(self) -> None:
        if self._kind == "slow":
            await self._caller.pause(1.0)
        elif self._kind == "cancel":
            task = asyncio.ensure_future(asyncio.sleep(1.0))
            task.cancel()
            await task
        elif self._kind == "raise" and self._caller.chance(0.3):
            raise AllowedError("the listener raises on purpose")

    async def _seek(self, partitions: Set[TopicPartition]) -> None:
        """Go back to where everything is read again, which may be done at any time."""
        for tp in sorted(partitions):
            if self._caller.chance(0.2):
                self._consumer.seek(tp, 0)
                self._reading.positions[tp] = 0
                self._caller.world.note(self._caller.name, f"seek {_short(tp)} 0")

    async def _commit(self, partitions: Set[TopicPartition]) -> None:
        """Commit what is finished, of the partitions that go."""
        done = {
            tp: position
            for tp, position in self._reading.done_positions().items()
            if tp in partitions
        }
        if not done:
            return
        try:
            await self._caller.call("commit in the listener", self._consumer.commit(done))
        except (KafkaError, InterruptedCall):
            pass


def _short(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"
