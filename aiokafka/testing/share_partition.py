"""Share partitions (KIP-932): the in-flight records of one partition in one share group.

The leader of the partition keeps a `SharePartition` in memory. The share coordinator stores a
`StoredState`, from which the next leader continues: acquisition locks are lost with the leader.
"""

from __future__ import annotations

import asyncio
import enum
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING

from aiokafka import errors
from aiokafka.testing.actions import RefusedError

if TYPE_CHECKING:
    from aiokafka.testing.batches import Batch
    from aiokafka.testing.log import AbortedTransaction

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
"""Acknowledgement types. A gap is an offset without a record, such as a transaction marker."""

UNINITIALIZED = -1
"""Start offset of a share partition from which the group has not read."""

_LEAST_THROTTLED = 2  # minimum of `throttled_from()`
_LEAST_ISOLATING = 2  # above this delivery limit, a record's last delivery has no other record


class RecordState(enum.IntEnum):
    """The delivery state of a record."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4

    @property
    def is_terminal(self) -> bool:
        """Whether the record is never delivered again."""
        return self in (RecordState.ACKNOWLEDGED, RecordState.ARCHIVED)


_STATE_AFTER = {
    GAP: RecordState.ARCHIVED,
    ACCEPT: RecordState.ACKNOWLEDGED,
    RELEASE: RecordState.AVAILABLE,
    REJECT: RecordState.ARCHIVED,
}
_EVENT_OF = {GAP: "rejected", ACCEPT: "accepted", RELEASE: "released", REJECT: "rejected"}
_KEPT_EVENTS = 100_000


@dataclass(frozen=True, slots=True)
class ShareEvent:
    """What happened to records of a share group."""

    time: float
    """Loop time."""
    topic: str
    partition: int
    first: int
    last: int
    """The first and the last offset of the records."""
    kind: str
    """``"acquired"``, ``"accepted"``, ``"released"``, ``"rejected"`` or ``"renewed"`` by a member;
    ``"timed out"`` (the acquisition lock); ``"session closed"``; ``"lost"`` (the leader has
    forgotten the lock); ``"aborted"`` (records of an aborted transaction)."""
    state: RecordState
    """The state after the event. After a release, a timeout or the end of the session it is
    ``AVAILABLE``, but ``ARCHIVED`` if `count` has reached the delivery limit or the records are
    before the start offset."""
    member_id: str
    """The member that has acquired the records."""
    count: int
    """Number of deliveries."""


def new_events() -> deque[ShareEvent]:
    """Return an empty list of events, which keeps the newest 100,000."""
    return deque(maxlen=_KEPT_EVENTS)


@dataclass(slots=True)
class Delivery:
    """State of a record, or of all records of a batch."""

    state: RecordState
    count: int
    """Number of deliveries."""
    member_id: str = ""
    """The member that has acquired the record; empty in other states."""
    deadline: float = 0.0
    """Loop time at which the acquisition lock times out."""


@dataclass(slots=True)
class InFlightBatch:
    """Consecutive offsets between the start and the end of the share partition. They share one
    state, until an operation changes the state of a part of them."""

    first: int
    last: int
    whole: Delivery | None
    """The common state of all offsets; None after :meth:`split`."""
    offsets: dict[int, Delivery] = field(default_factory=dict)
    """The state of each offset, after :meth:`split`."""

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def split(self) -> None:
        """Give each offset a state of its own."""
        if self.whole is not None:
            span = range(self.first, self.last + 1)
            self.offsets = {offset: replace(self.whole) for offset in span}
            self.whole = None

    def parts(self, first: int, last: int) -> Iterator[tuple[int, int, Delivery]]:
        """Yield (first offset, last offset, state) of the parts between two offsets: single offsets
        after :meth:`split`; before, the whole batch, even if it extends beyond these offsets."""
        if self.whole is not None:
            yield self.first, self.last, self.whole
            return
        for offset in range(max(first, self.first), min(last, self.last) + 1):
            yield offset, offset, self.offsets[offset]

    def is_within(self, first: int, last: int) -> bool:
        """Return whether all offsets of the batch are between two offsets."""
        return first <= self.first and self.last <= last


@dataclass(frozen=True, slots=True)
class Acquired:
    """A range of offsets that a member has acquired with one delivery count."""

    first: int
    last: int
    count: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The acknowledgement of a range of offsets: one type for all of them, or one for each."""

    first: int
    last: int
    types: Sequence[int]

    def type_of(self, offset: int) -> int:
        return self.types[0] if len(self.types) == 1 else self.types[offset - self.first]


@dataclass(slots=True)
class StoredState:
    """What the share coordinator stores of a share partition.

    Acquisitions are not stored. The count of a stored record includes its last delivery."""

    start: int = UNINITIALIZED
    epoch: int = 0
    """State epoch, which increases when the start offset is altered."""
    leader_epoch: int = 0
    records: dict[int, tuple[RecordState, int]] = field(default_factory=dict)
    """State and delivery count by offset, of records from `start` on."""
    complete: int = 0
    """Number of records from `start` on that are acknowledged or archived."""

    def reset(self, start: int) -> None:
        """Set the start offset and discard the states of records; begin a state epoch."""
        self.start, self.epoch = start, self.epoch + 1
        self.records.clear()
        self.complete = 0

    def first_unfinished(self, log_start: int) -> int:
        """Return the first offset that may be delivered again."""
        offset = max(self.start, log_start)
        while offset in self.records and self.records[offset][0].is_terminal:
            offset += 1
        return offset

    def ranges(self) -> Iterator[tuple[int, int, RecordState, int]]:
        """Yield (first offset, last offset, state, delivery count) of the stored records."""
        found: tuple[int, int, RecordState, int] | None = None
        for offset, (state, count) in sorted(self.records.items()):
            if found is not None and found[1:] == (offset - 1, state, count):
                found = (found[0], offset, state, count)
                continue
            if found is not None:
                yield found
            found = (offset, offset, state, count)
        if found is not None:
            yield found


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """Settings of a share group that its share partitions use."""

    lock_duration: float
    """``share.record.lock.duration.ms``, in seconds."""
    delivery_limit: int
    """``share.delivery.count.limit``."""
    max_locks: int
    """``share.partition.max.record.locks``."""
    may_renew: bool
    """``share.renew.acknowledge.enable``."""


@dataclass(frozen=True, slots=True)
class LogRead:
    """The result of reading a partition's log for a share group."""

    offset: int
    """The offset from which the log was read."""
    batches: Sequence[Batch]
    aborted: Sequence[AbortedTransaction] = ()
    """Aborted transactions that overlap the batches, if the group reads committed records."""


@dataclass(frozen=True, slots=True)
class AcquireLimits:
    """Limits of the records that one request acquires."""

    member_id: str
    records: int
    """Maximum number of records. In the mode ``batch_optimized``, the batch that reaches this
    number is acquired up to its end, even if that exceeds the maximum."""
    batch_size: int
    """Minimum number of records in a range of acquired records. A range ends at the end of the
    batch that reaches this number."""
    exact: bool
    """Whether `records` is a strict limit: the mode ``record_limit`` (KIP-1206)."""


def throttled_from(delivery_limit: int) -> int:
    """Return the delivery count from which on batches are delivered in smaller parts, so that one
    bad record does not archive a whole batch."""
    return max(_LEAST_THROTTLED, -(-delivery_limit // 2))


class SharePartition:
    """The in-flight records of one partition in one share group, at the partition's leader.

    Owns: the start offset, the states and acquisition locks of the records between the start and
    the end, and the timer that releases locks. The methods raise RefusedError for acknowledgements
    that Kafka rejects. A rejected request changes no record state, but locks that were renewed
    before the rejected acknowledgement stay renewed.

    Args:
        start: The start offset, if `stored` is uninitialized.
        stored: State at the share coordinator, which each acknowledgement updates.
        leader_epoch: Leader epoch of the broker that keeps this object.
        settings: Returns the current settings of the group.
        place: Topic and partition.
        events: The list to which every change of records is appended.
    """

    def __init__(
        self,
        start: int,
        stored: StoredState,
        leader_epoch: int,
        settings: Callable[[], ShareSettings],
        place: tuple[str, int],
        events: deque[ShareEvent],
    ) -> None:
        self.start = start if stored.start == UNINITIALIZED else stored.start
        self.end = self.start
        """The last offset that was acquired; the start offset if no records are in flight."""
        self.leader_epoch = leader_epoch
        self.is_closed = False
        self._stored = stored
        self._state_epoch = stored.epoch
        self._settings = settings
        self._place = place
        self._events = events
        self._batches: list[InFlightBatch] = []
        self._seeks = False  # whether a record before the end may be available
        # (next, last): the range in which to look for gaps, which are offsets that the loaded state
        # lacks. The search continues at `next`.
        self._gaps: tuple[int, int] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._wakers: dict[Callable[[], None], None] = {}
        stored.leader_epoch = max(stored.leader_epoch, leader_epoch)
        self._load()

    def _load(self) -> None:
        expected = self.start
        gap: int | None = None
        for first, last, state, count in self._stored.ranges():
            if gap is None and first > expected:
                gap = expected
            expected = last + 1
            self._batches.append(InFlightBatch(first, last, Delivery(state, count)))
        if self._batches:
            self._seeks = True
            self.end = self._batches[-1].last
            if gap is not None:
                self._gaps = gap, self.end
            self._advance_start()

    def close(self) -> None:
        """Discard the locks, and wake the waiting requests. Called when this broker is no longer
        the leader, or when the group has no share session at this broker."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for batch in self._batches:
            for first, last, part in batch.parts(batch.first, batch.last):
                if part.state is RecordState.ACQUIRED:
                    self._note("lost", first, last, part, part.member_id)
        self.wake()

    # -- available records ---------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Number of offsets from the start to the end."""
        return self.end - self.start + 1 if self._batches else 0

    @property
    def can_acquire(self) -> bool:
        """Whether records may be acquired: a record before the end is available, or the number of
        in-flight records is below its limit."""
        return (
            self.next_fetch_offset() != self.end + 1 or self.in_flight < self._settings().max_locks
        )

    def next_fetch_offset(self) -> int:
        """Return the offset of the first available record, or of the first record that was never
        acquired."""
        is_fresh = not self._batches or self.start > self._batches[-1].last
        if is_fresh or not self._seeks:
            self._seeks = False
            return self.end if is_fresh else self.end + 1
        gap = None if self._gaps is None or not self._has_gaps else self._gaps[0]
        for batch in self._batches:
            if gap is not None:
                if batch.first > gap:
                    return gap
                gap = max(batch.last + 1, gap)
            for first, _, delivery in batch.parts(batch.first, batch.last):
                if delivery.state is RecordState.AVAILABLE:
                    return first
        self._seeks = False
        return self.end + 1

    @property
    def _has_gaps(self) -> bool:
        return self._gaps is not None and self._gaps[1] == self.end

    # -- acquisition ---------------------------------------------------------------------------

    def acquire(self, read: LogRead, limits: AcquireLimits) -> list[Acquired]:
        """Acquire records that were read from the log, and lock them for the member."""
        if not read.batches or limits.records <= 0 or read.batches[-1].last_offset < self.start:
            return []
        most, last = self._most(read, limits)
        if most <= 0:
            return []
        base = read.batches[0].base_offset
        if read.offset < base:
            self._archive(read.offset, base, RecordState.AVAILABLE)  # removed by compaction
        floor = self._floor(base)
        if floor is not None and floor.last >= base:
            first = floor.first
        else:
            # `base` is before the start offset if records were deleted while an earlier batch is
            # still acquired. Kafka 4.3 begins at `base` even then, and the deleted records stay
            # available for ever.
            first = max(base, self.start)
        limits = replace(limits, records=most)
        overlapping = self._between(min(base, first), last)
        if overlapping:
            found = self._acquire_overlapping(read, limits, overlapping, first, last)
        else:
            found, _ = self._acquire_new(read, limits, first, last)
        self._expect_timeout()
        return self._without_aborted(read, found)

    def _most(self, read: LogRead, limits: AcquireLimits) -> tuple[int, int]:
        """Return the maximum number of records to acquire, and the last offset to acquire."""
        last = read.batches[-1].last_offset
        most = min(limits.records, self._settings().max_locks - self.in_flight)
        # At the limit of locks, offsets up to `end` may still be acquired: `in_flight` already
        # includes them.
        if most <= 0 and read.offset <= self.end:
            return min(limits.records, self.end - read.offset + 1), min(last, self.end)
        return most, last

    def _acquire_new(
        self, read: LogRead, limits: AcquireLimits, first: int, last: int
    ) -> tuple[list[Acquired], int]:
        """Acquire offsets that are not in flight. Return the acquired ranges and their number of
        offsets."""
        if not self._batches and self.end > first:
            first = self.end
        most = limits.records
        end = last
        if most < last - first + 1:
            end = _end_of_batch(read.batches, first + most - 1)
            if self._has_gaps:
                end = min(end, last)
        ranges = [(first, end)] if limits.exact else _ranges(read.batches, first, end, limits)
        deadline = self._new_deadline()
        found = []
        for low, high in ranges:
            lock = Delivery(RecordState.ACQUIRED, 1, limits.member_id, deadline)
            batch = InFlightBatch(low, high, lock)
            acquired = Acquired(low, high, 1)
            if limits.exact and batch.size > most:
                batch.split()
                for offset in range(low + most, high + 1):
                    batch.offsets[offset] = Delivery(RecordState.AVAILABLE, 0)
                acquired = replace(acquired, last=low + most - 1)
                self._seeks = True
            self._insert(batch)
            found.append(acquired)
            self._note("acquired", low, acquired.last, lock, limits.member_id)
        if self._batches[0].first == first:
            self.start = first
        self.end = max(self.end, end)
        last_acquired = found[-1].last
        self._pass_gap(last_acquired + 1)
        return found, last_acquired - first + 1

    def _acquire_overlapping(
        self,
        read: LogRead,
        limits: AcquireLimits,
        overlapping: Sequence[InFlightBatch],
        first: int,
        last: int,
    ) -> list[Acquired]:
        """Acquire the available records of in-flight batches, then offsets after these batches."""
        base = read.batches[0].base_offset
        throttled = throttled_from(self._settings().delivery_limit)
        found: list[Acquired] = []
        total = 0

        def acquire_new(low: int, high: int) -> None:
            nonlocal total
            rest = replace(limits, records=limits.records - total)
            ranges, count = self._acquire_new(read, rest, low, high)
            found.extend(ranges)
            total += count

        for batch in overlapping:
            if total >= limits.records:
                break
            if self._has_gaps:
                if first < batch.first:
                    acquire_new(first, batch.first - 1)
                first = batch.last + 1
                if total >= limits.records:
                    break
            is_throttled = any(
                part.state is RecordState.AVAILABLE and part.count >= throttled
                for _, _, part in batch.parts(base, last)
            )
            if is_throttled and total:
                break
            left = limits.records - total
            is_part = not batch.is_within(base, last) or (limits.exact and batch.size > left)
            if batch.whole is None or is_part or is_throttled:
                if batch.whole is not None and batch.whole.state is not RecordState.AVAILABLE:
                    continue
                batch.split()
                ranges, count = self._acquire_parts(batch, limits, left, (base, last))
                found.extend(ranges)
                total += count
                if is_throttled and count:
                    break
            elif batch.whole.state is RecordState.AVAILABLE:
                self._lock(batch.first, batch.last, batch.whole, limits.member_id)
                found.append(Acquired(batch.first, batch.last, batch.whole.count))
                total += batch.size
        else:
            if total < limits.records and overlapping[-1].last < last:
                acquire_new(overlapping[-1].last + 1, last)
        if found:
            self._pass_gap(found[-1].last + 1)
        return found

    def _acquire_parts(
        self, batch: InFlightBatch, limits: AcquireLimits, left: int, span: tuple[int, int]
    ) -> tuple[list[Acquired], int]:
        """Acquire available offsets of a batch that was split. Return the acquired ranges and their
        number of offsets.

        At its last delivery a record is delivered alone, if the delivery limit is above
        `_LEAST_ISOLATING`. Before that, from the delivery count `throttled_from()` on, each
        delivery halves the number of records that are delivered together.
        """
        delivery_limit = self._settings().delivery_limit
        throttled = throttled_from(delivery_limit)
        isolates = delivery_limit > _LEAST_ISOLATING
        found: list[Acquired] = []
        total = 0
        most = left if limits.exact else batch.size
        is_throttled = False
        for offset, _, part in batch.parts(*span):
            if part.state is not RecordState.AVAILABLE:
                continue
            is_last = isolates and part.count == delivery_limit - 1
            if is_last and total:
                break
            if part.count >= throttled and not is_throttled:
                is_throttled = True
                most = min(most, max(1, batch.size >> (part.count - throttled + 1)))
            self._lock(offset, offset, part, limits.member_id)
            total += 1
            before = found[-1] if found else None
            if before is not None and (before.last, before.count) == (offset - 1, part.count):
                found[-1] = replace(before, last=offset)
            else:
                found.append(Acquired(offset, offset, part.count))
            if is_last or total >= most:
                break
        return found, total

    def _lock(self, first: int, last: int, delivery: Delivery, member_id: str) -> None:
        delivery.state, delivery.member_id = RecordState.ACQUIRED, member_id
        delivery.count += 1
        delivery.deadline = self._new_deadline()
        self._note("acquired", first, last, delivery, member_id)

    def _note(self, kind: str, first: int, last: int, part: Delivery, member_id: str) -> None:
        now = asyncio.get_running_loop().time()
        event = ShareEvent(now, *self._place, first, last, kind, part.state, member_id, part.count)
        self._events.append(event)

    def _pass_gap(self, offset: int) -> None:
        """Continue the search for gaps at the first offset from `offset` on that is not in flight.
        Beyond the end of the loaded state, end the search.

        Kafka 4.3 continues at `offset` itself. The start offset then stays before records at
        `offset`, although all of them are acknowledged. If their number reaches the limit of locks,
        no record is acquired until the next leader loads the state.
        """
        if self._gaps is not None:
            _, end = self._gaps
            for batch in self._batches:
                if batch.first <= offset <= batch.last:
                    offset = batch.last + 1
            self._gaps = (offset, end) if end == self.end and offset <= end else None

    def _without_aborted(self, read: LogRead, found: list[Acquired]) -> list[Acquired]:
        """Archive the acquired records of aborted transactions, and return the other ranges."""
        for batch in _aborted(read):
            first, last = batch.base_offset, batch.last_offset
            self._archive(first, last + 1, RecordState.ACQUIRED)
            self._note("aborted", first, last, Delivery(RecordState.ARCHIVED, 0), "")
            kept: list[Acquired] = []
            for acquired in found:
                if acquired.last < first or acquired.first > last:
                    kept.append(acquired)
                    continue
                if acquired.first < first:
                    kept.append(replace(acquired, last=first - 1))
                if acquired.last > last:
                    kept.append(replace(acquired, first=last + 1))
            found = kept
        return found

    # -- acknowledgement -----------------------------------------------------------------------

    def acknowledge(self, member_id: str, batches: Iterable[Acknowledgement]) -> None:
        """Apply acknowledgements of a member, and store the new states. If one is rejected, undo
        the changed states and raise RefusedError; renewed locks stay renewed."""
        changed: list[_Change] = []
        try:
            for batch in batches:
                self._acknowledge(member_id, batch, changed)
            self._store(changed)
        except RefusedError:
            _undo(changed)
            raise
        self._complete(changed)

    def _acknowledge(self, member_id: str, batch: Acknowledgement, changed: list[_Change]) -> None:
        if batch.last < self.start:
            return  # archived already
        for known in self._acknowledged(batch):
            if known.last < self.start:
                continue
            if known.whole is not None:
                _check_owner(known.whole, member_id)
                crosses_start = known.first < self.start
                is_whole = known.is_within(batch.first, batch.last) and len(batch.types) == 1
                if crosses_start or not is_whole:
                    known.split()
            first = max(batch.first, self.start)
            for low, high, part in known.parts(first, batch.last):
                _check_owner(part, member_id)
                kind = batch.type_of(low)
                if kind == RENEW:
                    self._renew(part)
                    self._note("renewed", low, high, part, member_id)
                else:
                    changed.append(_changed(low, high, part, _EVENT_OF[kind]))
                    self._settle(part, _STATE_AFTER[kind])

    def _renew(self, part: Delivery) -> None:
        if not self._settings().may_renew:
            raise RefusedError(
                errors.InvalidRecordState,
                "Renewing acquisition locks is not enabled for the group.",
            )
        part.deadline = self._new_deadline()

    def _acknowledged(self, batch: Acknowledgement) -> list[InFlightBatch]:
        """Return the in-flight batches with the acknowledged offsets."""
        floor = self._floor(batch.first)
        if floor is None and batch.first < self.start:
            floor = self._floor(self.start)
        if floor is None:
            raise RefusedError(
                errors.InvalidRecordState,
                "Batch record not found. The request batch offsets are not found in the cache.",
            )
        found = self._between(floor.first, batch.last)
        for name, offset in (("first", batch.first), ("last", batch.last)):
            if offset > found[-1].last:
                raise RefusedError(
                    errors.InvalidRequestError,
                    f"Batch record not found. The {name} offset in request is past acquired "
                    "records.",
                )
        return found

    def _settle(self, part: Delivery, state: RecordState) -> None:
        """End the acquisition of a record. Archive a record whose last delivery has failed."""
        if state is RecordState.AVAILABLE and part.count >= self._settings().delivery_limit:
            state = RecordState.ARCHIVED
        part.state, part.member_id = state, ""

    # -- the end of locks without an acknowledgement ----------------------------------------------

    def release(self, member_id: str) -> None:
        """Release the records that a member has acquired, at the end of its share session."""
        self._release("session closed", lambda part: part.member_id == member_id)

    def _time_out(self, deadline: float) -> None:
        self._timer = None
        # A timer may fire slightly early, within the resolution of the clock.
        now = max(deadline, asyncio.get_running_loop().time())
        self._release("timed out", lambda part: part.deadline <= now)
        self._expect_timeout()

    def _release(self, kind: str, ends: Callable[[Delivery], bool]) -> None:
        """End the acquisition of the records for which `ends` returns True. They become available;
        but records before the start offset, and records after their last delivery, are archived.
        `kind` is the kind of the event."""
        changed: list[_Change] = []
        for batch in self._batches:
            is_acquired = batch.whole is not None and batch.whole.state is RecordState.ACQUIRED
            if is_acquired and batch.first < self.start <= batch.last:
                batch.split()
            for low, high, part in batch.parts(batch.first, batch.last):
                if part.state is RecordState.ACQUIRED and ends(part):
                    is_before = high < self.start
                    changed.append(_changed(low, high, part, kind))
                    self._settle(part, RecordState.ARCHIVED if is_before else RecordState.AVAILABLE)
        try:
            self._store(changed)
        except RefusedError:
            pass  # another leader continues from the stored state
        self._complete(changed)

    def _expect_timeout(self) -> None:
        """Start the timer for the lock that times out first."""
        deadlines = [
            part.deadline
            for batch in self._batches
            for _, _, part in batch.parts(batch.first, batch.last)
            if part.state is RecordState.ACQUIRED
        ]
        when = min(deadlines, default=None)
        if self._timer is not None and when is not None and self._timer.when() <= when:
            return  # the timer fires early enough; `_time_out()` then starts it again
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if when is not None and not self.is_closed:
            self._timer = asyncio.get_running_loop().call_at(when, self._time_out, when)

    def _new_deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._settings().lock_duration

    # -- the start offset ----------------------------------------------------------------------

    def log_start_moved(self, offset: int) -> None:
        """Move the start offset to the log start offset `offset`, because the records before it are
        deleted. Records that are acquired now stay acquired until the end of their locks, even if
        they are before the new start offset."""
        if offset <= self.start:
            return
        if self._archive(self.start, offset, RecordState.AVAILABLE):
            self._seeks = True
        self.start = offset
        self.end = offset if not self._batches else max(self.end, offset)
        # Unlike Kafka 4.3, stop looking for gaps in the deleted records, and move the start past
        # finished records now, not after the next acknowledgement.
        if self._gaps is not None:
            self._pass_gap(max(self._gaps[0], offset))
        self._advance_start()

    def _advance_start(self) -> None:
        """Move the start offset past the records that are never delivered again."""
        floor = self._floor(self.start)
        if floor is None or floor.last < self.start:
            return  # no batch contains the start offset: it is in a gap, or was deleted
        _, _, part = next(floor.parts(self.start, self.start))
        if not part.state.is_terminal:
            return
        done = self._last_terminal()
        if done is None:
            return
        if done == self._batches[-1].last:
            self.start = self.end = done + 1
            self._batches.clear()
            return
        index = bisect_right(self._batches, done, key=attrgetter("first")) - 1
        if done == self._batches[index].last:
            self.start = max(self.start, self._batches[index + 1].first)
            if self._has_gaps and self._gaps is not None:
                self.start = min(self.start, self._gaps[0])
            index += 1
        else:
            self.start = max(self.start, done + 1)
        del self._batches[:index]

    def _last_terminal(self) -> int | None:
        """Return the last in-flight offset before the first gap and before the first record that
        may be delivered again; None if there is no such offset."""
        found: int | None = None
        for batch in self._batches:
            if self._has_gaps and self._gaps is not None and batch.last >= self._gaps[0]:
                return found
            for _, last, part in batch.parts(batch.first, batch.last):
                if not part.state.is_terminal:
                    return found
                found = last
        return found

    def _archive(self, first: int, end: int, state: RecordState) -> bool:
        """Archive the records whose state is `state`, from offset `first` (inclusive) to `end`
        (exclusive). Return whether there were such records."""
        found = False
        for batch in self._batches:
            if batch.first >= end or batch.last < first:
                continue
            if batch.whole is not None and batch.whole.state is not state:
                continue
            if not batch.is_within(first, end - 1):
                batch.split()
            for _, _, part in batch.parts(first, end - 1):
                if part.state is state:
                    part.state, part.member_id = RecordState.ARCHIVED, ""
                    found = True
        return found

    # -- stored state --------------------------------------------------------------------------

    def _store(self, changed: Sequence[_Change]) -> None:
        """Write changed states to the share coordinator.

        Raises:
            RefusedError: a newer leader has read the state, or the start offset was altered.
        """
        if not changed:
            return
        stored = self._stored
        if self.leader_epoch < stored.leader_epoch or self._state_epoch != stored.epoch:
            self.close()
            raise RefusedError(errors.NotLeaderForPartitionError, "")
        stored.start = self.start
        for change in changed:
            part = change.part
            for offset in range(change.first, change.last + 1):
                stored.records[offset] = part.state, part.count
        for offset in [offset for offset in stored.records if offset < self.start]:
            del stored.records[offset]
        stored.complete = sum(
            max(last - max(first, self.start) + 1, 0)
            for batch in self._batches
            for first, last, part in batch.parts(batch.first, batch.last)
            if part.state.is_terminal
        )

    def _complete(self, changed: Sequence[_Change]) -> None:
        if any(change.part.state is RecordState.AVAILABLE for change in changed):
            self._seeks = True
        for change in changed:
            member_id = change.before.member_id
            self._note(change.kind, change.first, change.last, change.part, member_id)
        if changed:
            self._advance_start()
            self.wake()

    # -- batches by offset ---------------------------------------------------------------------

    def _floor(self, offset: int) -> InFlightBatch | None:
        """Return the last batch that begins at or before `offset`."""
        index = bisect_right(self._batches, offset, key=attrgetter("first"))
        return self._batches[index - 1] if index else None

    def _between(self, first: int, last: int) -> list[InFlightBatch]:
        """Return the batches that begin between two offsets."""
        low = bisect_left(self._batches, first, key=attrgetter("first"))
        high = bisect_right(self._batches, last, key=attrgetter("first"))
        return self._batches[low:high]

    def _insert(self, batch: InFlightBatch) -> None:
        index = bisect_left(self._batches, batch.first, key=attrgetter("first"))
        self._batches.insert(index, batch)

    # -- waiting requests ----------------------------------------------------------------------

    def subscribe(self, waker: Callable[[], None]) -> None:
        """Call `waker` when records become available, until :meth:`unsubscribe`."""
        self._wakers[waker] = None

    def unsubscribe(self, waker: Callable[[], None]) -> None:
        """Stop calling `waker`."""
        self._wakers.pop(waker, None)

    def wake(self) -> None:
        """Call the subscribed wakers."""
        for waker in tuple(self._wakers):
            waker()


@dataclass(frozen=True, slots=True)
class _Change:
    """A changed state, and a copy of the state before the change."""

    first: int
    last: int
    part: Delivery
    before: Delivery
    kind: str


def _changed(first: int, last: int, part: Delivery, kind: str) -> _Change:
    return _Change(first, last, part, replace(part), kind)


def _undo(changed: Iterable[_Change]) -> None:
    for change in changed:
        before = change.before
        change.part.state, change.part.member_id = before.state, before.member_id


def _check_owner(part: Delivery, member_id: str) -> None:
    """Raise RefusedError unless the member has acquired the record."""
    if part.state is not RecordState.ACQUIRED:
        raise RefusedError(
            errors.InvalidRecordState,
            "The batch cannot be acknowledged. The batch is not in the acquired state.",
        )
    if part.member_id != member_id:
        raise RefusedError(errors.InvalidRecordState, "Member is not the owner of batch record")


def _end_of_batch(batches: Sequence[Batch], offset: int) -> int:
    """Return the last offset of the batch with `offset`; `offset` itself without such a batch."""
    for batch in batches:
        if batch.base_offset <= offset <= batch.last_offset:
            return batch.last_offset
    return offset


def _ranges(
    batches: Sequence[Batch], first: int, last: int, limits: AcquireLimits
) -> list[tuple[int, int]]:
    """Divide offsets at the beginnings of batches into ranges of `limits.batch_size` or more; the
    last range may be smaller."""
    found = []
    for batch in batches:
        base = batch.base_offset
        if base > last:
            break
        if base - first >= limits.batch_size:
            found.append((first, base - 1))
            first = base
    return [*found, (first, last)]


def _aborted(read: LogRead) -> list[Batch]:
    """Return the batches of aborted transactions."""
    return [
        batch
        for batch in read.batches
        if batch.is_transactional
        and not batch.is_control
        and any(
            batch.producer_id == transaction.producer_id
            and transaction.first_offset <= batch.base_offset <= transaction.last_offset
            for transaction in read.aborted
        )
    ]
