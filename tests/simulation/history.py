"""What the programs were told: records sent, records read, offsets committed, transactions ended.

What can be checked at once is checked here, when it is told; the rest at the end, by
:mod:`tests.simulation.checks`, against the logs of the cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from aiokafka.structs import ConsumerRecord, RecordMetadata, TopicPartition
from tests.simulation import logs
from tests.simulation.promises import DELIVERED, MEMBERS, NO_ERRORS, ONCE, STEADY
from tests.simulation.remade import KIP_848, Remade, Rereading, Whereabouts

if TYPE_CHECKING:
    from tests.simulation.shows import Shows
    from tests.simulation.world import World

_DIGITS = 8
# Virtual seconds in which a consumer that was removed from its group stops to return records.
_SOON = 0.25


class Sent:
    """A record that a program wanted to send, and what became of it as far as it was told."""

    __slots__ = (
        "at",
        "companions",
        "copy_of",
        "error",
        "future",
        "headers",
        "number",
        "offset",
        "order",
        "outcome",
        "partition",
        "safety",
        "session",
        "timestamp",
        "topic",
        "transaction",
    )

    def __init__(self, number: int, session: ProducerSession, topic: str, at: float) -> None:
        self.number = number
        self.session = session
        self.topic = topic
        self.at = at
        self.order = session.next_order()
        self.outcome = "open"
        """`open`, `unsent` (send raised), `acknowledged`, `failed`."""
        self.partition: int | None = None
        self.offset: int | None = None
        self.error: BaseException | None = None
        self.transaction: Transaction | None = None
        self.future: asyncio.Future[RecordMetadata] | None = None
        self.copy_of: tuple[str, int, int] | None = None
        """Topic, partition and offset of the record that it is a copy of."""
        self.headers: tuple[tuple[str, bytes | None], ...] = ()
        self.timestamp: int | None = None
        """In milliseconds, if the program has given one."""
        self.companions: list[Sent] = []
        """The records behind this one in a batch that the program built."""

    @property
    def is_lost(self) -> bool:
        """Whether it was sent, but the program was told that it could not be delivered."""
        return self.outcome == "failed"

    def __repr__(self) -> str:
        place = f" {self.topic}-{self.partition}@{self.offset}" if self.offset is not None else ""
        return f"record {self.number} of {self.session.name} ({self.outcome}{place})"


class ProducerSession:
    """One producer object: what it promises, and what was given to it."""

    def __init__(self, name: str, *, acks: Any, idempotent: bool) -> None:
        self.name = name
        self.is_safe = acks in (-1, "all")
        """Whether what is acknowledged must survive a change of leaders."""
        self.is_told = acks != 0
        self.is_idempotent = idempotent
        self._order = 0

    def next_order(self) -> int:
        """A number that says in which order records were given to the producer."""
        self._order += 1
        return self._order


class Transaction:
    """A transaction as its program saw it."""

    __slots__ = ("name", "offsets", "outcome", "records")

    def __init__(self, name: str) -> None:
        self.name = name
        self.outcome = "open"
        """`open`, `committed`, `aborted`, or `unknown` once the program has given it up."""
        self.records: list[Sent] = []
        self.offsets: dict[TopicPartition, int] = {}


class Audience:
    """A consumer group, or a lone consumer: what was read on its behalf.

    Args:
        starts_at_beginning: Whether it reads from the beginning of the logs, so that every record
            must reach it.
    """

    def __init__(
        self, name: str, topics: Sequence[str], *, committed_only: bool, starts_at_beginning: bool
    ) -> None:
        self.name = name
        self.topics = list(topics)
        self.committed_only = committed_only
        self.starts_at_beginning = starts_at_beginning
        self.delivered: dict[TopicPartition, dict[int, int]] = {}
        """By partition: offset to the number of the record."""
        self.finished: dict[TopicPartition, set[int]] = {}
        self.frontier: dict[TopicPartition, int] = {}
        """Up to where everything was delivered, as last looked at."""
        self.done: dict[TopicPartition, int] = {}
        """Up to where everything is finished, as last looked at."""
        self.owners: dict[tuple[int, TopicPartition], str] = {}
        self.forgiven: set[str] = set()
        """Topics whose offsets mean nothing any more: deleted, truncated."""
        self.committed: dict[TopicPartition, tuple[int, float]] = {}
        """The newest commit that was acknowledged: offset, when."""
        self.connections: dict[str, int] = {}
        """By member id: the last connection that it has committed by."""
        self.set_back: dict[TopicPartition, int] = {}
        """What was committed before a commit of a connection that its member had given up came late
        and went below it: brokers take it, as it is of the same generation."""
        self.numbers: set[int] = set()
        """All records that were delivered, wherever they were."""
        self.readings: list[Reading] = []
        """Of the consumers that are not stopped."""
        self.steady: dict[str, frozenset[TopicPartition]] = {}
        """What each static member has while all are there."""
        self.goes_back = False
        """Whether members go back by themselves, so that commits may be of earlier offsets."""
        self.renumbers = False
        """Whether numbers of generations come again: a group of one protocol that is empty, and
        begins again with the other, counts from the beginning."""
        self.mixes_commits = False
        """Whether a member names some offsets, and has others taken from its positions, which are
        behind the marks of transactions."""
        self.again = Rereading()

    def without(self, number: int) -> bool:
        """Whether a record was never delivered."""
        return number not in self.numbers


class Reading:
    """One consumer object and the records in its hands."""

    def __init__(self, world: World, name: str, audience: Audience) -> None:
        self._world = world
        self.name = name
        self.audience = audience
        self.positions: dict[TopicPartition, int] = {}
        """Where the next record of a partition has to come from, where that is known."""
        self.in_hand: list[tuple[TopicPartition, int]] = []
        self.held: set[TopicPartition] | None = None
        """The partitions that it was told to have; None if it is not told."""
        self.is_told = True
        """Whether a listener tells of changes of its positions."""
        self._had: set[TopicPartition] = set()
        self._removed_at: float | None = None
        self.tasks: list[asyncio.Task[None]] = []
        """Commits that were not waited for."""
        self.beside: dict[TopicPartition, int] = {}
        """The highest offsets of those that are under way."""
        self.held_until = 0.0
        """When its listener returned last; infinity while that is at work."""
        self.whereabouts = Whereabouts()
        self.shows: Shows | None = None
        """Its interceptors, if it has any."""
        self.iterator: AsyncIterator[ConsumerRecord[Any, Any]] | None = None
        """That of `async for`, if it has read in that way."""
        self.shown_until = 0.0
        """When interceptors looked at records last; infinity while they do."""
        self._newest: dict[TopicPartition, tuple[int, int]] = {}
        """By partition: the generation and the offset of the last record, since its position was
        set."""
        audience.again.readers += 1
        audience.readings.append(self)

    def close(self) -> None:
        """Its consumer is stopped."""
        if self in self.audience.readings:
            self.audience.readings.remove(self)

    def is_given(self, partitions: Iterable[TopicPartition]) -> None:
        """It is told that these partitions are its own now."""
        self.held = {*(self.held or ()), *partitions}
        self._removed_at = None
        if self._world.promises(STEADY):
            self._check_steady()
        if not self._world.promises(ONCE):
            return
        # By id it is another partition, in groups that assign by ids.
        again = self._world.history.again if self.audience.again.protocol == KIP_848 else ()
        for other in self.audience.readings:
            shared = sorted((other.held or set()) & set(partitions))
            shared = [tp for tp in shared if tp.topic not in again]
            if other is not self and shared:
                text = f"{self.name} was given {shared}, which {other.name} has not given up"
                self._world.violate("two owners", text)

    def _check_steady(self) -> None:
        """While all members are there, each has what it had before."""
        audience, held = self.audience, frozenset(self.held or ())
        if len(audience.readings) < 3 or not all(each.held for each in audience.readings):
            return
        before = audience.steady.setdefault(self.name, held)
        if before != held:
            text = f"{self.name} has {sorted(held)}, before {sorted(before)}"
            self._world.violate("not steady", text)

    def is_bereft(self, partitions: Iterable[TopicPartition]) -> None:
        """It has given up these partitions, or has lost them."""
        self.held = (self.held or set()) - set(partitions)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Return a block in which its listener is at work: until that has returned, no call
        returns records, for the listener may seek."""
        self.held_until = math.inf
        try:
            yield
        finally:
            self.held_until = self._world.now

    @property
    def is_listening(self) -> bool:
        """Whether its listener is at work."""
        return self.held_until == math.inf

    @contextlib.contextmanager
    def showing(self) -> Iterator[None]:
        """Return a block in which interceptors look at records, which takes its time."""
        self.shown_until = math.inf
        try:
            yield
        finally:
            self.shown_until = self._world.now

    def begin_call(self) -> None:
        """The program asks for more: it has finished what it has."""
        self._had = set(self.held or ())
        finished = self.audience.finished
        for tp, offset in self.in_hand:
            finished.setdefault(tp, set()).add(offset)
        self._world.history.remade.finished(self)
        self.in_hand.clear()

    def is_before(self, tp: TopicPartition, offset: int) -> bool:
        """Whether a record is still to come, as far as is known."""
        return tp in self.positions and self.positions[tp] <= offset

    def done_positions(self) -> dict[TopicPartition, int]:
        """Where the next record comes from, for partitions of which nothing is in hand."""
        busy = {tp for tp, _ in self.in_hand}
        return {tp: position for tp, position in self.positions.items() if tp not in busy}

    def committed(self, offsets: dict[TopicPartition, int]) -> None:
        """A commit of the program was acknowledged."""
        for tp, offset in offsets.items():
            self.audience.committed[tp] = (offset, self._world.now)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Positions have changed: by a rebalance, a seek, a reset."""
        for tp in partitions:
            self.positions.pop(tp, None)
            self.whereabouts.ages.pop(tp, None)
            self._newest.pop(tp, None)

    def forget_all(self) -> None:
        """Positions may have changed: without a listener nothing tells of it."""
        self.positions.clear()
        self._newest.clear()

    def check_shown(self, tp: TopicPartition, offsets: Sequence[int]) -> None:
        """Records are shown to interceptors: those that come next, in their order."""
        expected = self.positions.get(tp)
        for offset in () if tp.topic in self.audience.forgiven else offsets:
            self._check_place(tp, offset, expected)
            expected = offset + 1

    def took(self, record: ConsumerRecord[Any, Any], generation: int | None) -> None:
        """A record was returned."""
        tp = TopicPartition(record.topic, record.partition)
        number = number_of(record.value)
        audience = self.audience
        if tp.topic not in audience.forgiven:
            self._check_place(tp, record.offset, self.positions.get(tp))
            self._check_generation(tp, record.offset, generation)
        self._check_member(tp, generation)
        if generation is not None and not audience.renumbers:
            self._check_owner(tp, generation)
        if self.held is not None and tp not in self.held and tp not in self._had:
            text = f"{self.name}: {tp} {record.offset}, which it does not have"
            self._world.violate("not its own", text)
        if tp.topic not in self._world.history.again:
            self._check_once(tp, record.offset)
        self._world.history.remade.took(self, tp, record.offset, number)
        audience.numbers.add(number)
        known = audience.delivered.setdefault(tp, {})
        before = known.setdefault(record.offset, number)
        if before != number and tp.topic not in audience.forgiven:
            self._world.violate(
                "changed", f"{self.name}: {tp} {record.offset} was {before}, now {number}"
            )
        if number >= 0:
            self._world.history.check_contents(self.name, tp, record)
        self.positions[tp] = record.offset + 1
        self.in_hand.append((tp, record.offset))
        self._world.note(self.name, "got", f"{tp.topic}-{tp.partition} {record.offset}")

    def _check_once(self, tp: TopicPartition, offset: int) -> None:
        if not self._world.promises(ONCE):
            return
        if offset in self.audience.delivered.get(tp, ()):
            self._world.violate("twice", f"{self.name}: {tp} {offset} was delivered before")
        for other in self.audience.readings:
            if other is not self and (tp, offset) in other.in_hand:
                text = f"{self.name}: {tp} {offset}, which {other.name} works on"
                self._world.violate("in two hands", text)

    def _check_generation(self, tp: TopicPartition, offset: int, generation: int | None) -> None:
        """While it has a partition, each record comes once, unless it goes back itself."""
        if generation is None:
            return
        before, last = self._newest.get(tp, (generation, -1))
        self._newest[tp] = generation, offset
        is_same = before == generation and not self.audience.renumbers
        if is_same and offset <= last and not self.audience.goes_back:
            text = f"{self.name}: {tp} {offset} after {last} in generation {generation}"
            self._world.violate("twice in a generation", text)

    def _check_place(self, tp: TopicPartition, offset: int, expected: int | None) -> None:
        if expected is None or offset == expected:
            return
        if offset < expected:
            text = f"{self.name}: {tp} went back from {expected} to {offset}"
            self._world.violate("back", text)
            return
        seen = logs.first_visible(self._world, tp, expected, offset, self.audience.committed_only)
        if seen is not None:
            text = f"{self.name}: {tp} went on at {offset} after {expected - 1}, without {seen}"
            self._world.violate("skipped", text)

    def _check_member(self, tp: TopicPartition, generation: int | None) -> None:
        if generation is not None or not self._world.promises(MEMBERS):
            self._removed_at = None
            return
        if self._removed_at is None:
            self._removed_at = self._world.now
        if self._world.now > self._removed_at + _SOON:
            text = f"{self.name}: reads {tp}, removed since {self._removed_at:.3f} s or longer"
            self._world.violate("no member", text)

    def _check_owner(self, tp: TopicPartition, generation: int) -> None:
        owner = self.audience.owners.setdefault((generation, tp), self.name)
        if owner != self.name:
            text = f"{tp} was read by {owner} and {self.name} in generation {generation}"
            self._world.violate("two owners", text)


class History:
    """All that was told, of all programs."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.sent: list[Sent] = []
        self.transactions: list[Transaction] = []
        self.audiences: list[Audience] = []
        self.pipelines: list[tuple[str, str, str]] = []
        """Group, source topic and target topic of each pipeline."""
        self.given_again: dict[str, list[Transaction]] = {}
        """By group: transactions that were not over when a coordinator gave the offsets from before
        them, so that what they copy may be copied again."""
        self.open_futures: dict[asyncio.Future[Any], Sent] = {}
        self.copies: set[str] = set()
        """Topics that a client writes by itself: copies of records that failed."""
        self.forgiven: set[str] = set()
        """Topics that were deleted or truncated: what was in them need not be."""
        self.again: set[str] = set()
        """Topics that are not what they were: their logs were cut, or they were made again."""
        self.remade = Remade(world)
        self.lost_when_unsafe: set[str] = set()
        """Topics in which records may be lost that not all replicas have acknowledged."""
        self.gone: dict[TopicPartition, int] = {}
        """Up to where the records of a partition were deleted once."""
        self.kept: dict[TopicPartition, dict[int, list[int]]] = {}
        """Records that retention has deleted since: offset to number."""

    # -- producers

    def new_record(
        self, session: ProducerSession, topic: str, transaction: Transaction | None = None
    ) -> Sent:
        """A record that is about to be sent."""
        sent = Sent(len(self.sent), session, topic, self._world.now)
        self.sent.append(sent)
        if transaction is not None:
            sent.transaction = transaction
            transaction.records.append(sent)
        return sent

    def follow(
        self, sent: Sent, future: asyncio.Future[RecordMetadata], delivery_timeout: float
    ) -> None:
        """The record is on its way; see what its future says, and when."""
        deadline = self._world.now + delivery_timeout
        sent.future = future
        self.open_futures[future] = sent

        def done(future: asyncio.Future[RecordMetadata]) -> None:
            self.open_futures.pop(future, None)
            late = self._world.now - deadline
            if late > 3.0 + self._world.stalled:
                self._world.violate("late", f"{sent!r} ended {late:.3f} s after its timeout")
            self.ended(sent, future)

        future.add_done_callback(done)

    def ended(self, sent: Sent, future: asyncio.Future[RecordMetadata]) -> None:
        """A delivery has ended."""
        if sent.outcome != "open":
            return
        error = None if future.cancelled() else future.exception()
        records = [sent, *sent.companions]
        for record in records:
            record.outcome = "acknowledged" if error is None else "failed"
            record.error = error
        name = sent.session.name
        if error is not None:
            self._world.note(name, f"record {sent.number}", f"failed: {error!r}")
            if self._world.promises(DELIVERED) or self._world.promises(NO_ERRORS):
                self._world.violate("failed", f"{sent!r}: {error!r}", error)
            return
        if not sent.session.is_told:
            return
        metadata = future.result()
        for index, record in enumerate(records):
            record.partition, record.offset = metadata.partition, metadata.offset + index
        place = f"{metadata.partition}@{metadata.offset}"
        self._world.note(name, f"record {sent.number}", place)

    # -- consumers

    def check_contents(
        self, who: str, tp: TopicPartition, record: ConsumerRecord[Any, Any]
    ) -> None:
        """Compare what surrounds the value of a record with what was sent, here or in a log."""
        number = number_of(record.value)
        sent = self.sent[number]
        if sent.topic != tp.topic:
            return
        if tuple(record.headers) != sent.headers:
            text = f"{who}: {sent!r} was sent with {sent.headers}, not with {record.headers}"
            self._world.violate("other headers", text)
        if sent.timestamp is not None and record.timestamp != sent.timestamp:
            is_sealed = self._world.scenario.topic(tp.topic).config.get("message.timestamp.type")
            if is_sealed != "LogAppendTime":
                text = f"{who}: {sent!r} is of {sent.timestamp}, not of {record.timestamp}"
                self._world.violate("other time", text)

    def audience(self, name: str, topics: Sequence[str], **options: bool) -> Audience:
        """A new group or lone consumer."""
        made = Audience(name, topics, **options)
        self.audiences.append(made)
        return made

    def forgive(self, topic: str) -> None:
        """The records of a topic are lost, rightly, and offsets mean nothing any more."""
        self.forgiven.add(topic)
        self.again.add(topic)
        for audience in self.audiences:
            audience.forgiven.add(topic)

    def keep(self, tp: TopicPartition) -> None:
        """Remember the records of a partition, since some are about to be deleted.

        Not those that no other replica may have: a leader that does not come back takes them along.
        """
        for audience in self.audiences:
            if not audience.starts_at_beginning:
                # Behind what was deleted it goes on at the end.
                audience.forgiven.add(tp.topic)
        known = self.kept.setdefault(tp, {})
        end = logs.visible_end(self._world, tp, committed_only=False)
        for offset, number in logs.numbers(self._world, tp):
            if offset < end:
                known.setdefault(offset, [number])


def value_of(sent: Sent, size: int) -> bytes:
    """The value that carries the number of a record, in so many bytes or a few more."""
    return b"%0*d" % (_DIGITS, sent.number) + b"." * (size - _DIGITS)


def number_of(value: bytes | None) -> int:
    """The number of the record with this value."""
    return -1 if value is None else int(value[:_DIGITS])
