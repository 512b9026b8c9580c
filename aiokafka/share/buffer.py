"""Acquired records that the application has not got yet."""

from __future__ import annotations

import asyncio
import collections
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from aiokafka._tasks import Signal
from aiokafka.errors import (
    CorruptRecordError,
    KafkaError,
    UnsupportedCodecError,
)
from aiokafka.record.reader import RecordReader
from aiokafka.share.acquired import (
    GAP,
    Acknowledgements,
    AcknowledgeType,
    Acquisition,
    Run,
    ShareRecord,
    runs,
)

if TYPE_CHECKING:
    from aiokafka._config.share import ShareConsumerConfig
    from aiokafka.share.session import NodeShareSession

__all__ = ["AcquiredRange", "AcquiredRecordSet", "RejectRecord", "ShareBuffer"]

AcquiredRange = tuple[int, int, int]
"""The first and the last offset of acquired records, and their delivery count."""


class RejectRecord(Exception):
    """Raised by a handler or deserializer of the application to reject a record, so that the record
    is not delivered again."""


class AcquiredRecordSet:
    """The acquired records of one partition of one response, decoded on demand.

    The record set has whole batches, so some of its records may not be acquired: these are skipped.
    Acquired offsets without a record (of control batches, or removed by compaction) are
    acknowledged as gaps.

    Owns: the ranges that were not read yet, and the offset of the next record; records that were
    decoded ahead.
    """

    def __init__(
        self,
        acquisition: Acquisition,
        ranges: Iterable[AcquiredRange],
        data: Any,
        config: ShareConsumerConfig,
        acknowledgements: Acknowledgements,
    ) -> None:
        self.acquisition = acquisition
        self.nbytes = len(data)
        self._ranges = collections.deque(ranges)
        self.acquired = sum(last - first + 1 for first, last, _ in self._ranges)
        """The number of acquired offsets."""
        self._position = self._ranges[0][0]
        self._config = config
        self._acknowledgements = acknowledgements
        self._ahead: collections.deque[ShareRecord[Any, Any]] = collections.deque()
        self._reader = RecordReader(
            data,
            acquisition.tp.topic,
            acquisition.tp.partition,
            position=self._position,
            check_crcs=config.check_crcs,
            max_decompressed_bytes=config.max_decompressed_bytes,
            acquisition=acquisition,
        )

    @property
    def is_read(self) -> bool:
        """Whether there are no more records."""
        return not self._ranges

    def take(self, limit: int) -> list[ShareRecord[Any, Any]]:
        """Return up to `limit` acquired records, with the bytes of their keys and values; [] only
        at the end of the record set.

        Raises CorruptRecordError for a corrupt batch, after its records were rejected;
        UnsupportedCodecError after the records of the batch were released. The next call continues
        after the batch.
        """
        found: list[ShareRecord[Any, Any]] = []
        while self._ranges and not found:
            position, last, delivery_count = self._ranges[0]
            position = self._position = max(position, self._position)
            if not self._ahead:
                if self._reader.position < position:
                    self._reader.go_to(position)
                self._reader.set_delivery_count(delivery_count)
                try:
                    found = self._reader.take(min(limit, last - position + 1))
                except (CorruptRecordError, UnsupportedCodecError) as error:
                    self._skip_batch(error)
                    raise
                end = position + len(found)
                if found and found[-1].offset == end - 1:
                    self._position = end
                    if end > last:
                        self._ranges.popleft()
                    return found
                # There are gaps (offsets without a record) before, between or after the records.
                # `_take_ahead()` acknowledges the gaps.
                self._ahead.extend(found)
            found = self._take_ahead(limit)
        return found

    def _take_ahead(self, limit: int) -> list[ShareRecord[Any, Any]]:
        """Return acquired records of `_ahead`, and acknowledge the gaps before and between them. If
        `_ahead` is empty, the record set has no more records, and the remaining ranges are gaps."""
        found: list[ShareRecord[Any, Any]] = []
        is_end = not self._ahead
        while self._ranges and (self._ahead or is_end) and len(found) < limit:
            first, last, delivery_count = self._ranges[0]
            first = self._position = max(first, self._position)
            offset = self._ahead[0].offset if self._ahead else last + 1
            if offset < first:
                self._ahead.popleft()  # not acquired
                continue
            self._acknowledge(first, min(offset - 1, last), GAP)
            self._position = min(offset, last) + 1
            if offset <= last:
                record = self._ahead.popleft()
                record.delivery_count = delivery_count
                found.append(record)
            if offset >= last:
                self._ranges.popleft()
        return found

    def _skip_batch(self, error: KafkaError) -> None:
        """Acknowledge the acquired records of an unreadable batch, and move past the batch. The
        records of a corrupt batch are rejected. Records that another member may be able to read are
        released: the records of a batch with an unknown codec, and all records from a batch whose
        end is unknown, because its header is invalid."""
        end = self._reader.batch_end
        is_corrupt = isinstance(error, CorruptRecordError) and end > self._position
        type_ = AcknowledgeType.REJECT if is_corrupt else AcknowledgeType.RELEASE
        if end <= self._position:
            end = self._ranges[-1][1] + 1
        self._reader.skip()
        while self._ranges and self._ranges[0][0] < end:
            first, last, _ = self._ranges[0]
            self._acknowledge(max(first, self._position), min(last, end - 1), type_)
            if last >= end:
                break
            self._ranges.popleft()
        self._position = end
        if isinstance(error, CorruptRecordError):
            error.topic_partition, error.next_offset = self.acquisition.tp, end

    def _acknowledge(self, first: int, last: int, type_: int) -> None:
        if first <= last:
            self._acknowledgements.acknowledge_range(self.acquisition, first, last, type_)


class ShareBuffer:
    """The acquired records of all brokers that the application has not got, and the calls that wait
    for records.

    The acquisition locks of buffered records expire. So records are acquired only under two
    conditions: the buffer is empty, and a call waits for records or has just returned no records.

    Owns: the record sets in the order of arrival; records that calls have put back; errors to
    raise; `demand`, the number of records to acquire; `expired`, a count of records whose lock
    expired before the application got them (a record set that is not fully decoded counts once).
    """

    def __init__(self) -> None:
        self.arrived = Signal()
        self.wanted = Signal()
        """Notified when records are wanted."""
        self.demand = 0
        self.expired = 0
        self._sets: collections.deque[AcquiredRecordSet] = collections.deque()
        self._returned: collections.deque[Run] = collections.deque()
        self._failures: collections.deque[KafkaError] = collections.deque()
        self._waiting: dict[object, int] = {}
        self._loop = asyncio.get_running_loop()

    @property
    def is_wanted(self) -> bool:
        """Whether to acquire records."""
        return self.demand > 0 and not self._sets and not self._returned and not self._failures

    @property
    def nbytes(self) -> int:
        """The bytes of record sets that were not read to their end."""
        return sum(each.nbytes for each in self._sets)

    def add(self, fetched: Iterable[AcquiredRecordSet]) -> None:
        """Add the record sets of one response, and wake the waiting calls. If the response has no
        records, `demand` becomes that of the waiting calls, and 0 if no call waits."""
        before = len(self._sets)
        self._sets.extend(fetched)
        self.demand = 0 if len(self._sets) > before else max(self._waiting.values(), default=0)
        self.arrived.notify()

    def fail(self, error: KafkaError) -> None:
        """Make a call that finds no records raise `error`, after earlier errors. Ignore `error` if
        one with the same text is still to be raised."""
        if all(str(each) != str(error) for each in self._failures):
            self._failures.append(error)
        self.arrived.notify()

    def drop(self, session: NodeShareSession) -> None:
        """Drop the record sets of a broker whose share session was lost."""
        self._sets = collections.deque(
            s for s in self._sets if s.acquisition.session is not session
        )
        self._returned = collections.deque(
            run for run in self._returned if run[0]._acquisition.session is not session
        )

    def note_expired(self) -> None:
        """Count a record that was dropped because its lock was lost before it was processed."""
        self.expired += 1

    def put_back(self, records: Iterable[ShareRecord[Any, Any]]) -> None:
        """Return records to the buffer, because the call that took them was cancelled or fails."""
        records = list(records)
        for record in records:
            # The buffer and the record now refer to each other: the record through its acquisition.
            # The garbage collector does not track new records. Setting an attribute makes it track
            # this record, so that it finds the reference cycle.
            record._is_open = True
        self._returned.extendleft(reversed(list(runs(records))))
        self.arrived.notify()

    def take(self, limit: int) -> list[Run]:
        """Return up to `limit` records. Their keys and values are bytes, except those of records
        that were put back after deserialization.

        Records before an error (of a broker, or of an unreadable batch) are returned first; the
        next call raises the error.
        """
        found: list[Run] = []
        now = self._loop.time()
        while self._returned and limit:
            run = self._returned.popleft()
            if run[0]._acquisition.lasts(now):
                if len(run) > limit:
                    self._returned.appendleft(run[limit:])
                    run = run[:limit]
                found.append(run)
                limit -= len(run)
            else:
                self.expired += len(run)
        while self._sets and limit:
            current = self._sets[0]
            if current.acquisition.expires_at <= now:
                # The broker delivers these records again, maybe to another member. To process them
                # here as well would be wasted work: they cannot be acknowledged.
                if not current.is_read:
                    self.expired += 1
                self._sets.popleft()
                continue
            try:
                some = current.take(limit)
            except (CorruptRecordError, UnsupportedCodecError) as error:
                self._failures.append(error)
                break
            if some:
                is_run = some[-1].offset - some[0].offset == len(some) - 1
                found.extend([some] if is_run else runs(some))
                limit -= len(some)
            else:
                self._sets.popleft()
        if not found and self._failures:
            raise self._failures.popleft()
        return found

    def without_lost(self, taken: list[Run]) -> list[Run]:
        """Return the runs of `taken` whose locks have neither expired nor been lost while the call
        waited. Count the other records as expired: the broker delivers them again."""
        now = self._loop.time()
        lasting = [run for run in taken if run[0]._acquisition.lasts(now)]
        if len(lasting) < len(taken):
            self.expired += sum(map(len, taken)) - sum(map(len, lasting))
        return lasting

    async def wait(self, demand: int, deadline: float | None) -> bool:
        """Acquire up to `demand` records, and wait until records may have arrived. Return False at
        `deadline` (loop time; None = no limit)."""
        waiter = object()
        self.want(demand)
        self._waiting[waiter] = demand
        try:
            return await self.arrived.wait(deadline)
        finally:
            del self._waiting[waiter]

    def want(self, demand: int) -> None:
        """Acquire up to `demand` records, even if no call waits for them."""
        self.demand = max(self.demand, demand)
        # Notify even if the demand is the same: while the buffer had an error or a record that was
        # put back, the sessions did not fetch for this demand, and nothing else would wake them.
        self.wanted.notify()
