"""Acquired records: their acquisition locks, and their acknowledgements (KIP-932)."""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka._consumer_record import AcquiredRecord
from aiokafka._log import Guard, SubjectLog
from aiokafka._tasks import Signal
from aiokafka._typing import KT, VT
from aiokafka.errors import InvalidRecordState, KafkaError, renewed
from aiokafka.protocol.messages.share_groups import AcknowledgementBatch
from aiokafka.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from aiokafka.share._metrics import ShareMeter
    from aiokafka.share.session import NodeShareSession

__all__ = [
    "GAP",
    "AcknowledgeType",
    "Acknowledgement",
    "Acknowledgements",
    "Acquisition",
    "OutcomeCallback",
    "Run",
    "ShareRecord",
    "TopicIdPartition",
    "acknowledgement_batches",
    "by_partition",
    "runs",
    "without_overlaps",
]

log = logging.getLogger("aiokafka.share")

GAP = 0
"""The type of acknowledgement for an acquired offset without a record."""


class AcknowledgeType(enum.IntEnum):
    """How a record of a share group is acknowledged."""

    ACCEPT = 1
    """The record was processed. It is not delivered again."""

    RELEASE = 2
    """The record was not processed. It is delivered again, to any member of the group, up to the
    delivery limit of the group (group.share.delivery.count.limit, 5 by default)."""

    REJECT = 3
    """The record cannot be processed. It is not delivered again."""

    RENEW = 4
    """The record is still being processed: its acquisition lock starts anew (KIP-1222, Kafka 4.2).
    The record has to be acknowledged once more."""


class TopicIdPartition(NamedTuple):
    """A partition with the topic's id, as in requests of share sessions."""

    topic_id: bytes
    partition: int


if TYPE_CHECKING:

    class ShareRecord(ConsumerRecord[KT, VT]):
        """A record that a share consumer has acquired: a ConsumerRecord with a delivery count."""

        delivery_count: int
        """How many times the record was delivered to a member of the group, this time included."""

        _acquisition: Acquisition
        _is_open: bool  # whether the record was not acknowledged
        _is_raw: bool  # whether key and value are bytes that were not deserialized yet

        def _close(self) -> bool: ...

else:
    ShareRecord = AcquiredRecord

Run = list[ShareRecord[Any, Any]]
"""One or more records of one acquisition, with consecutive offsets."""


def runs(records: list[ShareRecord[Any, Any]]) -> Iterator[Run]:
    """Divide `records` into runs, in the same order."""
    start = 0
    for index in range(1, len(records)):
        before, record = records[index - 1], records[index]
        is_next = record.offset == before.offset + 1
        if not is_next or record._acquisition is not before._acquisition:
            yield records[start:index]
            start = index
    if records:
        yield records[start:] if start else records


class Acquisition:
    """The records of one partition that one response to ShareFetch has acquired.

    Owns: `unsettled`, the number of records that the application has got and whose acknowledgement
    has no outcome yet; `growing`, the queued acknowledgement that the next offset may extend; the
    renewed locks, also of acknowledged records; `failure`, the reason why the records cannot be
    acknowledged any more, None if they can.
    """

    __slots__ = (
        "__weakref__",
        "_renewed",
        "expires_at",
        "failure",
        "growing",
        "session",
        "tip",
        "tp",
        "unsettled",
    )

    def __init__(
        self,
        session: NodeShareSession,
        tip: TopicIdPartition,
        tp: TopicPartition,
        expires_at: float,
    ) -> None:
        self.session = session
        self.tip = tip
        self.tp = tp
        self.expires_at = expires_at
        """The loop time at which the locks of records that were not renewed expire."""
        self.unsettled = 0
        self.growing: Acknowledgement | None = None
        self.failure: KafkaError | None = None
        self._renewed: dict[int, float] = {}

    def deliver(self, count: int) -> None:
        """Add records that the application gets to `unsettled`."""
        self.unsettled += count

    def settle(self, count: int) -> None:
        """Subtract records from `unsettled`: their acknowledgement has its outcome, or they need
        none any more."""
        self.unsettled -= count

    def renew(self, offset: int, expires_at: float) -> None:
        """Store the new end of a lock that the broker has renewed."""
        self._renewed[offset] = expires_at

    @property
    def is_renewed(self) -> bool:
        """Whether a lock was renewed: then the locks expire at different times."""
        return bool(self._renewed)

    def lasts(self, now: float) -> bool:
        """Return whether records that were not renewed can still be acknowledged at `now` (loop
        time)."""
        return self.failure is None and self.expires_at > now

    @property
    def last_lock_end(self) -> float:
        """The loop time at which all locks have expired."""
        return max(self._renewed.values(), default=self.expires_at)

    def lock_end(self, offset: int) -> float:
        """Return the loop time at which the lock of an offset expires. The offset may already be
        acknowledged."""
        return self._renewed.get(offset, self.expires_at)

    def fail(self, error: KafkaError) -> None:
        """Mark the acquisition locks as lost: later acknowledgements fail with `error`."""
        self.growing = None
        if self.failure is None:
            self.failure = renewed(error)


class Acknowledgement:
    """An acknowledgement of the offsets from `first` to `last`, all with the same type.

    `owner`: the `Acknowledgements` of the consumer. `is_delivered`: whether the application got the
    records; False for gaps and unreadable batches.
    """

    __slots__ = ("acquisition", "first", "is_delivered", "last", "number", "owner", "type")

    def __init__(
        self,
        owner: Acknowledgements,
        acquisition: Acquisition,
        first: int,
        last: int,
        type_: int,
        number: int,
        is_delivered: bool = True,
    ) -> None:
        self.owner = owner
        self.acquisition = acquisition
        self.first = first
        self.last = last
        self.type = type_
        self.number = number
        """Serial number, in the order in which acknowledgements are created."""
        self.is_delivered = is_delivered

    @property
    def expires_at(self) -> float:
        """The loop time at which the acquisition lock expires."""
        return self.acquisition.lock_end(self.first)


def without_overlaps(
    queue: Iterable[Acknowledgement],
) -> tuple[list[Acknowledgement], list[Acknowledgement]]:
    """Return (sent, replaced). `sent` has the acknowledgements to send, sorted by partition and
    offset. `replaced` has acknowledgements that a later one of the same offset replaces:

    - a RENEW, if the record was acknowledged before the RENEW was sent;
    - an acknowledgement whose lock expired, if the record was acquired and acknowledged again.
    """
    kept: dict[tuple[TopicIdPartition, int], Acknowledgement] = {}
    replaced: list[Acknowledgement] = []
    for each in queue:
        key = (each.acquisition.tip, each.first)
        before = kept.get(key)
        if before is not None:
            replaced.append(before)
        kept[key] = each
    ordered = [kept[key] for key in sorted(kept)]
    sent: list[Acknowledgement] = []
    for each in ordered:
        # An offset is never acquired twice at the same time. So if two ranges overlap, the locks of
        # the older one have expired.
        last = sent[-1] if sent else None
        if last and last.acquisition.tip == each.acquisition.tip and last.last >= each.first:
            replaced.append(last if last.number < each.number else each)
            if last.number < each.number:
                sent[-1] = each
            continue
        sent.append(each)
    return sent, replaced


def acknowledgement_batches(ordered: Iterable[Acknowledgement]) -> list[AcknowledgementBatch]:
    """Convert the acknowledgements of one partition to batches of a request. Consecutive offsets of
    the same type are one batch."""
    batches: list[AcknowledgementBatch] = []
    for each in ordered:
        last = batches[-1] if batches else None
        is_next = last is not None and last.last_offset + 1 == each.first
        if last is not None and is_next and last.acknowledge_types == [each.type]:
            last.last_offset = each.last
        else:
            batches.append(
                AcknowledgementBatch(
                    first_offset=each.first, last_offset=each.last, acknowledge_types=[each.type]
                )
            )
    return batches


OutcomeCallback = Callable[[TopicPartition, list[int], KafkaError | None], object]
"""Called with a partition, the acknowledged offsets, and the error (None after a success)."""

Outcomes = dict[TopicPartition, KafkaError | None]


class _Commit:
    """One call of `commit()`: it waits for all acknowledgements with serial numbers up to `number`,
    and returns `outcomes`."""

    __slots__ = ("number", "outcomes")

    def __init__(self, number: int, outcomes: Outcomes) -> None:
        self.number = number
        self.outcomes = outcomes


class Acknowledgements:
    """The acknowledgements of one consumer, from the call of the application to their outcome.

    Owns: the last serial number of an acknowledgement; the pending acknowledgements (without an
    outcome); the outcomes that no `commit()` has returned yet, and the running calls of `commit()`;
    the counts for metrics.

    1. `acknowledge()` creates an acknowledgement, and the NodeShareSession of its broker queues it.
    2. The session sends it with ShareFetch or ShareAcknowledge.
    3. `settle()` reports the outcome. If the lock is already lost, step 1 calls `settle()`.
    """

    def __init__(self, subject: str, meter: ShareMeter) -> None:
        self.signal = Signal()
        """Notified when acknowledgements are settled."""
        self.counts = dict.fromkeys(AcknowledgeType, 0)
        self.failed = 0
        self._log = SubjectLog(log, subject)
        self._guard = Guard(self._log, "the acknowledgement commit callback")
        self._meter = meter
        self._callback: OutcomeCallback | None = None
        self._has_warned = False
        self._number = 0
        self._pending: dict[int, Acknowledgement] = {}
        self._outcomes: Outcomes = {}
        self._commits: dict[_Commit, None] = {}

    @property
    def pending(self) -> int:
        """The number of acknowledged records without an outcome."""
        return sum(each.last - each.first + 1 for each in self._pending.values())

    @property
    def is_committing(self) -> bool:
        """Whether a `commit()` waits: then acknowledgements do not wait for the next fetch."""
        return bool(self._commits)

    def set_callback(self, callback: OutcomeCallback | None) -> None:
        """Set the function that is called with outcomes."""
        self._callback = callback

    def acknowledge(self, acquisition: Acquisition, first: int, last: int, type_: int) -> None:
        """Acknowledge records that the application got. If the previous acknowledgement of the
        acquisition is still queued, ends directly before `first`, and has the same type, extend
        it."""
        growing = acquisition.growing
        if growing is not None and growing.last + 1 == first and growing.type == type_:
            growing.last = last
        else:
            self._create(acquisition, first, last, type_, is_delivered=True)

    def finish(self, record: ShareRecord[Any, Any], type_: AcknowledgeType) -> None:
        """Acknowledge a record that the application got, unless it was acknowledged before."""
        if record._close():
            self.acknowledge(record._acquisition, record.offset, record.offset, type_)

    def acknowledge_range(
        self, acquisition: Acquisition, first: int, last: int, type_: int
    ) -> None:
        """Acknowledge offsets of which the application gets no record: a gap, or the records of an
        unreadable batch."""
        self._create(acquisition, first, last, type_, is_delivered=False)

    def _create(
        self, acquisition: Acquisition, first: int, last: int, type_: int, is_delivered: bool
    ) -> None:
        """Create an acknowledgement, and pass it to its share session. Settle it at once if the
        acquisition lock is lost."""
        self._number += 1
        made = Acknowledgement(self, acquisition, first, last, type_, self._number, is_delivered)
        if type_ != GAP:
            self._pending[made.number] = made
        if acquisition.failure is not None:
            self.settle([made], renewed(acquisition.failure))
            return
        if is_delivered:
            # A RENEW has a single offset: with several, an acknowledgement of one of the offsets
            # would replace the whole RENEW (`without_overlaps`). If a lock was renewed, create a
            # separate acknowledgement for each offset, because the locks expire at different times.
            is_last = type_ != AcknowledgeType.RENEW and not acquisition.is_renewed
            acquisition.growing = made if is_last else None
        acquisition.session.enqueue(made)

    def renew(self, acquisition: Acquisition, offset: int) -> None:
        """Renew the lock of a record that is being processed. `commit()` does not return the
        outcome, because the final acknowledgement of the record has one, too. A failure is logged,
        at WARNING the first time."""
        self._number += 1
        if acquisition.failure is None:
            acquisition.growing = None
            acquisition.session.enqueue(
                Acknowledgement(
                    self, acquisition, offset, offset, AcknowledgeType.RENEW, self._number
                )
            )

    def settle(self, settled: Iterable[Acknowledgement], error: KafkaError | None) -> None:
        """Settle acknowledgements: they have succeeded if `error` is None, otherwise failed."""
        offsets: dict[TopicPartition, list[int]] = {}
        for each in settled:
            if each.is_delivered and each.type != AcknowledgeType.RENEW:
                each.acquisition.settle(each.last - each.first + 1)
            if self._pending.pop(each.number, None) is None:
                # Not pending: a gap, or a renewal by the consumer itself.
                if each.type == AcknowledgeType.RENEW:
                    self._note_renewal(each, error)
                    self._meter.acknowledged(each.acquisition.tp, AcknowledgeType.RENEW, 1, error)
                continue
            tp, count = each.acquisition.tp, each.last - each.first + 1
            if error is None:
                self.counts[AcknowledgeType(each.type)] += count
            else:
                self.failed += count
            self._meter.acknowledged(tp, AcknowledgeType(each.type), count, error)
            self._note(each.number, tp, error)
            some = offsets.setdefault(tp, [])
            if each.is_delivered and self._callback is not None:
                # Omit ranges that the application did not get, such as unreadable batches: a broker
                # could send a range so large that a list of its offsets exhausts the memory.
                some.extend(range(each.first, each.last + 1))
        for tp, some in offsets.items():
            if error is not None:
                self._log.debug("acknowledgements of %s failed: %s", tp, error)
            if some and self._callback is not None:
                self._guard.call(
                    self._callback, tp, some, None if error is None else renewed(error)
                )
        if offsets:
            self.signal.notify()

    def drop(self, replaced: Iterable[Acknowledgement]) -> None:
        """Remove acknowledgements that a later one of the same offset replaces. A RENEW has no
        outcome then; other acknowledgements fail, because their lock has expired."""
        others = []
        for each in replaced:
            if each.type == AcknowledgeType.RENEW:
                self._pending.pop(each.number, None)
            else:
                others.append(each)
        self.settle(others, InvalidRecordState("the acquisition lock has expired"))
        self.signal.notify()

    async def commit(self, deadline: float) -> Outcomes | None:
        """Wait until all present acknowledgements are settled. Return the outcome of each
        partition: of the present acknowledgements, and of acknowledgements that were settled since
        the last `commit()`. Return None at `deadline` (loop time)."""
        commit = _Commit(self._number, self._outcomes)
        self._outcomes = {}
        self._commits[commit] = None
        try:
            while next(iter(self._pending), commit.number + 1) <= commit.number:
                if not await self.signal.wait(deadline):
                    self._restore(commit.outcomes)
                    return None
            return commit.outcomes
        except asyncio.CancelledError:
            self._restore(commit.outcomes)
            raise
        finally:
            del self._commits[commit]

    def _note_renewal(self, renewal: Acknowledgement, error: KafkaError | None) -> None:
        if error is None:
            self.counts[AcknowledgeType.RENEW] += 1
            return
        level = logging.DEBUG if self._has_warned else logging.WARNING
        self._has_warned = True
        text = "the acquisition lock of offset %d of %s was not renewed: %s"
        self._log.log(level, text, renewal.first, renewal.acquisition.tp, error)

    def _note(self, number: int, tp: TopicPartition, error: KafkaError | None) -> None:
        waiting = [commit for commit in self._commits if commit.number >= number]
        for outcomes in [commit.outcomes for commit in waiting] or [self._outcomes]:
            if outcomes.get(tp) is None:
                outcomes[tp] = None if error is None else renewed(error)

    def _restore(self, outcomes: Outcomes) -> None:
        """Keep the outcomes of a `commit()` that has timed out or was cancelled: the next
        `commit()` returns them."""
        for tp, error in outcomes.items():
            if self._outcomes.get(tp) is None:
                self._outcomes[tp] = error


def by_partition(
    ordered: Iterable[Acknowledgement],
) -> Iterator[tuple[TopicIdPartition, list[Acknowledgement]]]:
    """Yield the acknowledgements of each partition."""
    found: dict[TopicIdPartition, list[Acknowledgement]] = {}
    for each in ordered:
        found.setdefault(each.acquisition.tip, []).append(each)
    yield from found.items()
