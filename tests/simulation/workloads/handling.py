"""What must hold of the handlers of a ParallelConsumer, looked at while they run."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable, Set
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, _clock
from aiokafka.parallel import RetryInfo
from aiokafka.structs import ConsumerRecord, RecordMetadata, TopicPartition
from tests.simulation import logs
from tests.simulation.calls import AllowedError, Caller
from tests.simulation.history import Audience, number_of
from tests.simulation.promises import FRESH
from tests.simulation.workloads.reading import generation_of

if TYPE_CHECKING:
    from tests.simulation.world import World

# Seconds in which a record that is there is begun when all is well.
_LONG = 3.0

Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""


class OnPurposeError(AllowedError):
    """What a handler raises, and what another try may mend."""


class HopelessError(OnPurposeError):
    """What a handler raises, and what no other try would mend."""


class Ledger:
    """What became of the records of a group: shared by all its members.

    Args:
        retries: The retry topics, in their order.
        delays_s: How long records wait in them.
    """

    def __init__(
        self, world: World, audience: Audience, retries: list[str], delays_s: list[float]
    ) -> None:
        self.world = world
        self.audience = audience
        self._stages = {name: number for number, name in enumerate(retries, 1)}
        self._delays = delays_s
        self._failing: dict[tuple[Place, int], set[tuple[TopicPartition, int]]] = {}
        self._raised_at: dict[tuple[Place, int], float] = {}
        self.dead: set[tuple[Place, int]] = set()
        """Records that were sent to the dead-letter topic, and after how many attempts."""

    def stage_of(self, topic: str) -> int:
        """0 for the topic that others write, else the number of the retry topic."""
        return self._stages.get(topic, 0)

    def origin_of(self, record: ConsumerRecord[Any, Any]) -> Place:
        """Where the record was at first."""
        info = RetryInfo.of(record) if self.stage_of(record.topic) else None
        if info is None:
            return record.topic, record.partition, record.offset
        return info.topic, info.partition, info.offset

    def finished(self, record: ConsumerRecord[Any, Any]) -> None:
        """The handler is done with a record."""
        tp = TopicPartition(record.topic, record.partition)
        self.audience.finished.setdefault(tp, set()).add(record.offset)

    def raised(self, record: ConsumerRecord[Any, Any]) -> None:
        """The handler has failed."""
        which = self.origin_of(record), self.stage_of(record.topic)
        place = TopicPartition(record.topic, record.partition), record.offset
        self._failing.setdefault(which, set()).add(place)
        self._raised_at.setdefault(which, self.world.now)

    def copied(self, info: RetryInfo) -> None:
        """A copy of a record that failed is acknowledged."""
        which = (info.topic, info.partition, info.offset), info.attempts - 1
        failing = self._failing.get(which)
        if failing is None:
            self.world.violate("copied without need", f"{info} did not fail")
            return
        if info.due < 0:
            self.dead.add(which)
        for tp, offset in failing:
            self.audience.finished.setdefault(tp, set()).add(offset)

    def check_due(self, record: ConsumerRecord[Any, Any]) -> None:
        """A record of a retry topic is tried again: not too early?"""
        stage = self.stage_of(record.topic)
        clock_jumps = any(fault.kind == "clock jump" for fault in self.world.scenario.faults)
        if not stage or clock_jumps or record.topic in self.audience.forgiven:
            return
        raised_at = self._raised_at.get((self.origin_of(record), stage - 1))
        if raised_at is None:
            text = f"{place_of(record)} did not fail before, {RetryInfo.of(record)}"
            self.world.violate("copied without need", text)
        elif self.world.now < raised_at + self._delays[stage - 1] - 0.002:
            waited = self.world.now - raised_at
            text = f"{place_of(record)} is tried again {waited:.3f} s after it failed"
            self.world.violate("too early", text)


class Handling:
    """One ParallelConsumer and the records in its handlers."""

    def __init__(
        self, caller: Caller, ledger: Ledger, consumer: AIOKafkaConsumer, options: dict[str, Any]
    ) -> None:
        self.caller = caller
        self.world = caller.world
        self.ledger = ledger
        self.owned: set[TopicPartition] = set()
        self._consumer = consumer
        self._order = options["order"]
        self._most = options["parallel"]["concurrency"]
        # It takes no more beyond that, but what it has taken by then is begun.
        self._ahead = options["parallel"].get("max_uncommitted", 10_000)
        self._ahead += options["parallel"].get("max_records", 1000)
        self._busy: dict[Hashable, int] = {}
        self._running = 0
        self._last: dict[TopicPartition, dict[Hashable, int]] = {}
        self._begun: dict[TopicPartition, dict[int, bool]] = {}
        self._open: dict[TopicPartition, dict[int, float]] = {}
        self._came_at: dict[TopicPartition, float] = {}
        self._is_iterating = options["form"] == "iterate"
        self._drain = options["parallel"]["drain_timeout_ms"] / 1000

    @property
    def running(self) -> int:
        """How many handlers run."""
        return self._running

    def came(self, partitions: Iterable[TopicPartition]) -> None:
        """Partitions are this member's."""
        self._forget(partitions)
        self.owned.update(partitions)
        self._came_at.update(dict.fromkeys(partitions, self.world.now))

    def went(self, partitions: Iterable[TopicPartition], *, were_lost: bool = False) -> None:
        """Partitions are not this member's any more; their handlers have ended before."""
        busy = [tp for tp in sorted(partitions) if self._is_awaited(tp, were_lost)]
        if busy and not self.world.stalled:
            self._violate("not waited for", f"handlers of {busy} run, which are given up")
        self._forget(partitions)
        self.owned.difference_update(partitions)

    def _is_awaited(self, tp: TopicPartition, is_lost: bool) -> bool:
        """Return whether a handler runs that should have ended. Those of works that the program
        takes by `async for` run in tasks of its own: they are waited for, and never cancelled.
        """
        open_ = self._open.get(tp)
        if not open_ or not self._is_iterating:
            return bool(open_)
        # What was begun before the partition was lost, and came again, is waited for no longer.
        begun = [at for at in open_.values() if at >= self._came_at[tp]]
        return bool(begun) and not is_lost and max(begun) + self._drain > self.world.now + 0.001

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            self._last.pop(tp, None)
            self._begun.pop(tp, None)

    def begin(self, record: ConsumerRecord[Any, Any]) -> None:
        """A handler begins."""
        tp = TopicPartition(record.topic, record.partition)
        self.world.note(self.caller.name, "begins", place_of(record))
        audience = self.ledger.audience
        number = number_of(record.value)
        before = audience.delivered.setdefault(tp, {}).setdefault(record.offset, number)
        self._running += 1
        self._open.setdefault(tp, {})[record.offset] = self.world.now
        if self._running > self._most:
            self._violate("too many handlers", f"{self._running} handlers run")
        if tp not in self.owned:
            self._violate("not its own", f"{place_of(record)} is begun, which is another's")
        if tp.topic in audience.forgiven:
            return
        if before != number:
            self._violate("changed", f"{place_of(record)} was {before}, now {number}")
        self._check_owner(tp)
        self._check_delay(record)
        self._check_order(tp, record)
        self._check_ahead(tp, record.offset)
        self.ledger.check_due(record)

    def end(self, record: ConsumerRecord[Any, Any]) -> None:
        """A handler ends, in whatever way."""
        self.world.note(self.caller.name, "ends", place_of(record))
        self._running -= 1
        self._open[TopicPartition(record.topic, record.partition)].pop(record.offset, None)
        lane = self._lane_of(record)
        if self._busy.get(lane) == record.offset:
            del self._busy[lane]

    def finished(self, record: ConsumerRecord[Any, Any]) -> None:
        """A handler has done its work."""
        self.ledger.finished(record)
        begun = self._begun.get(TopicPartition(record.topic, record.partition), {})
        if record.offset in begun:
            begun[record.offset] = True

    def _lane_of(self, record: ConsumerRecord[Any, Any]) -> Hashable:
        place = record.topic, record.partition
        if self._order == "partition":
            return place
        return None if self._order == "none" or record.key is None else (*place, record.key)

    def _check_owner(self, tp: TopicPartition) -> None:
        generation = generation_of(self._consumer)
        if generation is None:
            return
        owner = self.ledger.audience.owners.setdefault((generation, tp), self.caller.name)
        if owner != self.caller.name:
            text = f"{tp} is worked on by {owner} and {self.caller.name} in generation {generation}"
            self._violate("two owners", text)

    def _check_delay(self, record: ConsumerRecord[Any, Any]) -> None:
        if self.world.promises(FRESH):
            waited = _clock.wall_time() - record.timestamp / 1000
            if waited > _LONG:
                text = f"{place_of(record)} is begun {waited:.3f} s after it was written"
                self._violate("slept", text)

    def _check_order(self, tp: TopicPartition, record: ConsumerRecord[Any, Any]) -> None:
        lane = self._lane_of(record)
        if lane is None:
            return
        if lane in self._busy:
            text = f"{place_of(record)} is begun while offset {self._busy[lane]} of {lane} is not "
            self._violate("side by side", text + "finished")
        self._busy[lane] = record.offset
        lanes = self._last.setdefault(tp, {})
        last = lanes.get(lane, -1)
        begun = self._begun.get(tp, {})
        if record.offset < last or (record.offset == last and begun.get(last)):
            self._violate("back", f"{place_of(record)} is begun after {last} of {lane}")
        lanes[lane] = record.offset

    def _check_ahead(self, tp: TopicPartition, offset: int) -> None:
        begun = self._begun.setdefault(tp, {})
        begun[offset] = False
        finished = self.ledger.audience.finished.get(tp, set())
        open_ = [each for each, done in begun.items() if not done and each not in finished]
        count = sum(each >= min(open_) for each in begun) if open_ else 0
        if count > self._ahead:
            text = f"{count} records of {tp} are begun from {min(open_)} on, not {self._ahead}"
            self._violate("too far ahead", text)

    def _violate(self, kind: str, text: str) -> None:
        self.world.violate(kind, f"{self.caller.name}: {text}")


class HandlingListener(ConsumerRebalanceListener):
    """Tells which partitions come and go; slow, raising or seeking as its member's options say."""

    def __init__(self, handling: Handling, kind: str) -> None:
        self._handling = handling
        self._kind = kind

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        """Partitions go."""
        self._note("revoked", revoked)
        self._handling.went(revoked)
        await self._misbehave()

    async def on_partitions_lost(self, lost: Set[TopicPartition]) -> None:
        """Partitions are gone already."""
        self._note("lost", lost)
        self._handling.went(lost, were_lost=True)
        await self._misbehave()

    async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        """Partitions come."""
        self._note("assigned", assigned)
        self._handling.came(assigned)
        await self._misbehave()

    def _note(self, what: str, partitions: Set[TopicPartition]) -> None:
        caller = self._handling.caller
        text = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(partitions))
        caller.world.note(caller.name, what, text)

    async def _misbehave(self) -> None:
        caller = self._handling.caller
        if self._kind == "slow":
            await caller.pause(1.0)
        elif self._kind == "raise" and not caller.world.calm.is_set() and caller.chance(0.2):
            raise AllowedError("the listener raises on purpose")


class CopyingProducer(AIOKafkaProducer):
    """The producer of RetryTopics, which tells what was acknowledged."""

    ledger: Ledger

    async def send_and_wait(self, topic: str, *args: Any, **options: Any) -> RecordMetadata | None:
        """Send, and note that it is there."""
        metadata = await super().send_and_wait(topic, *args, **options)
        if metadata is not None:
            self._note(metadata, options["headers"])
        return metadata

    async def send_batch(self, batch: Any, topic: str, *, partition: int) -> Any:
        """The same for a copy that is sent by itself."""
        future = await super().send_batch(batch, topic, partition=partition)

        async def follow() -> RecordMetadata:
            metadata = await future
            log = logs.log_of(self.ledger.world, TopicPartition(topic, partition))
            for record in log.records() if log is not None else ():
                if record.offset == metadata.offset:
                    self._note(metadata, record.headers)
            return metadata

        return asyncio.ensure_future(follow())

    def _note(self, metadata: RecordMetadata, headers: Any) -> None:
        place = metadata.topic, metadata.partition, metadata.offset
        info = RetryInfo.of(ConsumerRecord(*place, 0, 0, None, None, None, 0, 0, headers))
        assert info is not None
        self.ledger.copied(info)


def place_of(record: ConsumerRecord[Any, Any]) -> str:
    """Where a record is, in words."""
    return f"{record.topic}-{record.partition} {record.offset}"
