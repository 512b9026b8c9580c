"""The log of one partition of a fake cluster, and the state of its producers."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from aiokafka import _clock, errors
from aiokafka.structs import ConsumerRecord
from aiokafka.testing.actions import ErrorCode
from aiokafka.testing.batches import (
    Batch,
    BatchRefusedError,
    Buffer,
    build_batch,
    control_batch,
    decode_records,
    parse,
    place,
    with_producer,
)

Headers = Sequence[tuple[str, bytes]]


class PartitionLog:
    """The records of one partition: the log shared by all its replicas, or the log of one
    replica (:class:`Replication`).

    Tests use it to write and read records without a client, and to simulate retention, truncation,
    slow replicas and corruption.

    :meth:`FakeCluster.log` returns it. All methods take effect at once and wake waiting fetches.

    Example::

        log = cluster.log("orders", 0)
        log.append(b"first", key=b"k")
        ...
        assert [record.value for record in log.records()] == [b"first"]
    """

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        #: Sequence numbers and transactions of producers; see :class:`ProducerState`.
        self.producers = ProducerState()
        self._batches: list[Batch] = []
        self._bases: list[int] = []  # base offset of each batch, for bisect
        self._start = 0
        self._end = 0
        self._held_high_watermark: int | None = None
        self._replicated: int | None = None  # the high watermark, if each replica has its own log
        self._newest_deleted: tuple[int, int, int] | None = None
        self._epochs: list[tuple[int, int]] = [(0, 0)]  # (leader epoch, its first offset)
        self._wakers: dict[Callable[[], None], None] = {}  # a dict as an ordered set

    # -- offsets -------------------------------------------------------------------------------

    @property
    def start_offset(self) -> int:
        """Log start offset: the offset of the oldest record that can be read."""
        return self._start

    @property
    def end_offset(self) -> int:
        """Log end offset: the offset of the next record."""
        return self._end

    @property
    def high_watermark(self) -> int:
        """First offset that some in-sync replica lacks; consumers read the records before it. It
        does not advance while replication is paused."""
        mark = self._end if self._replicated is None else self._replicated
        held = self._held_high_watermark
        return mark if held is None else min(held, mark)

    @property
    def last_stable_offset(self) -> int:
        """First offset that `read_committed` consumers cannot read yet."""
        mark = self.high_watermark
        unstable = self.producers.first_unstable_offset(mark)
        if unstable is None:
            return mark
        # An open transaction may begin before the log start, if its first records were deleted.
        return min(max(unstable, self._start), mark)

    @property
    def leader_epoch(self) -> int:
        """Leader epoch of the next record."""
        return self._epochs[-1][0]

    @property
    def epoch_start(self) -> int:
        """First offset of the current leader epoch."""
        return self._epochs[-1][1]

    @property
    def batches(self) -> Sequence[Batch]:
        """The stored batches, oldest first."""
        return tuple(self._batches)

    @property
    def size(self) -> int:
        """Size of the stored batches in bytes."""
        return sum(batch.size for batch in self._batches)

    # -- for tests: records --------------------------------------------------------------------

    def append(
        self,
        value: bytes | None,
        key: bytes | None = None,
        *,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> int:
        """Write one record, in a batch of its own.

        Args:
            timestamp_ms: Milliseconds since 1970; None (the default) means now.

        Returns:
            The record's offset.
        """
        return self.extend([(key, value, headers)], timestamp_ms=timestamp_ms)

    def extend(
        self,
        items: Iterable[tuple[bytes | None, bytes | None, Headers]],
        *,
        timestamp_ms: int | None = None,
        codec: int = 0,
    ) -> int:
        """Write (key, value, headers) records as one batch.

        Args:
            timestamp_ms: Milliseconds since 1970, for all records; None means now.
            codec: Compression type: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.

        Returns:
            Offset of the first record.
        """
        now = _now_ms() if timestamp_ms is None else timestamp_ms
        data = build_batch([(now, *item) for item in items], codec=codec)
        return self.append_bytes(data)

    def append_bytes(self, data: Buffer) -> int:
        """Write encoded record batches (magic 2), with new offsets.

        Returns:
            Offset of the first record.

        Raises:
            BatchRefusedError: a batch is invalid. An incomplete batch at the end is ignored.
        """
        base = self._end
        for batch in parse(data):
            self.add(batch)
        return base

    def records(self, start: int = 0) -> list[ConsumerRecord[bytes | None, bytes | None]]:
        """Decode the records from offset `start` on, including records of open and aborted
        transactions and records beyond the high watermark, but no control records.
        """
        data = b"".join(batch.data for batch in self._batches[self._index(start) :])
        return decode_records(data, self.topic, self.partition, max(start, self._start))

    # -- for tests: retention, truncation, compaction, corruption --------------------------------

    def delete_before(self, offset: int) -> None:
        """Delete the records before `offset`, as retention and DeleteRecords do."""
        self._start = max(self._start, min(offset, self._end))
        count = bisect_right(self._bases, self._start)
        while count and self._batches[count - 1].last_offset >= self._start:
            count -= 1
        if count:
            self._newest_deleted = self._newest(self._batches[:count])
        del self._batches[:count], self._bases[:count]
        self.producers.forget_before(self._start)
        self.wake()

    def truncate(self, offset: int) -> None:
        """Remove the records from `offset` on, as an unclean leader election may.

        The whole batch with `offset` is removed. Later records reuse the offsets. Clients detect
        the truncation only by a new leader epoch, so also call :meth:`FakeCluster.move_leader`.
        """
        self._cut(offset)
        self._epochs = [e for e in self._epochs if e[1] <= self._end] or [(0, self._start)]
        self.wake()

    def _cut(self, offset: int) -> None:
        while self._batches and self._batches[-1].last_offset >= offset:
            self._batches.pop()
            self._end = self._bases.pop()
        self._end = max(min(self._end, offset), self._start)
        if self._newest_deleted is not None and self._newest_deleted[1] >= self._end:
            self._newest_deleted = None
        if self._replicated is not None:
            self._replicated = min(self._replicated, self._end)
        self.producers.rebuild(self._batches, self._start)

    def pause_replication(self) -> None:
        """Stop advancing the high watermark, as if no follower fetched. Produce requests with
        ``acks=all`` then time out, although their records are written.
        """
        self._held_high_watermark = self.high_watermark

    def resume_replication(self) -> None:
        """End :meth:`pause_replication`, as if all followers had caught up."""
        self._held_high_watermark = None
        self.wake()

    def pass_pause_to(self, successor: PartitionLog) -> None:
        """Move a pause of replication from this log to `successor`, the log of the new leader."""
        if self._held_high_watermark is not None:
            self._held_high_watermark = None
            successor.pause_replication()

    def compact(self) -> int:
        """Keep only the newest record of each key, at its offset, as the log cleaner does. Records
        without a key and records of aborted transactions are removed. Transaction markers, and
        records from the last stable offset on, are kept.

        Returns:
            The number of removed records.
        """
        stable = self.last_stable_offset
        cleaned = [batch for batch in self._batches if batch.base_offset < stable]
        contents = [(batch, [] if batch.is_control else self._live(batch)) for batch in cleaned]
        newest = {r.key: r.offset for _, live in contents for r in live}  # each key's last offset
        kept: list[Batch] = []
        removed = 0
        for batch, live in contents:
            left = [r for r in live if r.key is not None and newest[r.key] == r.offset]
            removed += 0 if batch.is_control else batch.record_count - len(left)
            if batch.is_control or len(left) == batch.record_count:
                kept.append(batch)
            else:
                kept += [self._single(record, batch) for record in left]
        self._batches = kept + self._batches[len(cleaned) :]
        self._bases = [batch.base_offset for batch in self._batches]
        self.wake()
        return removed

    def _live(self, batch: Batch) -> list[ConsumerRecord[bytes | None, bytes | None]]:
        """Return the records of a batch; empty if its transaction was aborted."""
        if batch.is_transactional and self.producers.is_aborted(
            batch.producer_id, batch.base_offset
        ):
            return []
        return decode_records(batch.data, self.topic, self.partition, self._start)

    def corrupt(self, offset: int) -> None:
        """Flip the last byte of the batch with `offset`, so that its checksum is wrong. Raises
        IndexError if the log ends before `offset`."""
        batch = self._batches[self._index(offset)]
        data = bytearray(batch.data)
        data[-1] ^= 0xFF
        batch.data = data
        self.wake()

    def _single(self, record: ConsumerRecord[bytes | None, bytes | None], batch: Batch) -> Batch:
        """Return a batch with only `record`, a record of `batch`. The producer id is that of
        `batch`, the sequence number that of the record."""
        item = (record.timestamp, record.key, record.value, record.headers)
        sequence = batch.base_sequence
        if sequence >= 0:
            sequence = (sequence + record.offset - batch.base_offset) & 0x7FFFFFFF
        alone = with_producer(parse(build_batch([item], codec=batch.codec))[0], batch, sequence)
        return place(alone, record.offset, self.epoch_of(record.offset), None)

    # -- for replication -----------------------------------------------------------------------

    def share(self) -> None:
        """Make this log the log of one replica. The high watermark, which was the end of the log so
        far, is set by `set_high_watermark()` from now on."""
        self._replicated = self.high_watermark

    def replica(self) -> PartitionLog:
        """Return a copy of this log, to be the log of another replica."""
        copy = PartitionLog(self.topic, self.partition)
        copy._replicated = self.high_watermark
        copy._batches, copy._bases = list(self._batches), list(self._bases)
        copy._start, copy._end = self._start, self._end
        copy._epochs = list(self._epochs)
        copy._newest_deleted = self._newest_deleted
        copy.producers = self.producers.copy()
        return copy

    def set_high_watermark(self, offset: int) -> None:
        """Set the high watermark of a replica's own log, at most to the end of the log."""
        if offset != self._replicated:
            self._replicated = min(offset, self._end)
            self.wake()

    def follow(self, leader: PartitionLog) -> None:
        """Copy the log of the leader: truncate to the common part, found by leader epochs
        (KIP-101), then append the leader's batches.
        """
        changed = self._end != leader._end or self._start != leader._start
        common = self._common_end(leader)
        if common < self._end:
            self._cut(common)
        if self._end < leader._start:
            self._batches, self._bases = [], []
            self._start = self._end = leader._start
            self._newest_deleted = leader._newest_deleted
        for batch in leader._batches[leader._index(self._end) :]:
            if batch.base_offset < self._end:
                self._cut(batch.base_offset)
            self._keep(batch)
        self._end = leader._end
        self._epochs = [e for e in leader._epochs if e[1] < self._end] or leader._epochs[:1]
        if self._start < leader._start:
            self.delete_before(leader._start)
        elif changed:
            self.wake()

    def _common_end(self, leader: PartitionLog) -> int:
        """Return the offset up to which this log and the leader's log are equal."""
        epoch = self.leader_epoch
        while True:
            found, leader_end = leader.end_of_epoch(epoch)
            own, own_end = self.end_of_epoch(found)
            if own == found:
                return min(own_end, leader_end, self._end)
            if not 0 <= own < epoch:
                return self._start
            epoch = own

    # -- for the brokers -----------------------------------------------------------------------

    def add(self, batch: Batch, *, append_time: int | None = None) -> Batch:
        """Append a valid batch and wake waiting fetches; return the stored batch."""
        stored = place(batch, self._end, self.leader_epoch, append_time)
        self._keep(stored)
        self.wake()
        return stored

    def _keep(self, batch: Batch) -> None:
        self._batches.append(batch)
        self._bases.append(batch.base_offset)
        self._end = batch.last_offset + 1
        self.producers.appended(batch)

    def add_marker(self, producer_id: int, producer_epoch: int, *, commit: bool) -> Batch:
        """Append a commit or abort marker, which ends the producer's transaction in this log."""
        marker = control_batch(producer_id, producer_epoch, commit=commit, timestamp=_now_ms())
        return self.add(marker)

    def has(self, batch: Batch) -> bool:
        """Return whether the log contains this stored batch: a truncation may have removed it."""
        index = bisect_left(self._bases, batch.base_offset)
        return index < len(self._batches) and self._batches[index] is batch

    def read(
        self, offset: int, max_bytes: int, limit: int, *, at_least_one: bool
    ) -> tuple[list[Batch], Buffer]:
        """Return the batches that begin before offset `limit`, from the batch with `offset` on.

        Args:
            max_bytes: Maximum size of the batches.
            at_least_one: Return the first batch even if it is larger than `max_bytes` (KIP-74).

        Returns:
            The batches, and the first bytes of the next batch if `max_bytes` ends inside that
            batch: a broker sends a byte range of its file.
        """
        found: list[Batch] = []
        for index in range(self._index(offset), len(self._batches)):
            batch = self._batches[index]
            if batch.base_offset >= limit:
                break
            if batch.size > max_bytes and not (at_least_one and not found):
                return found, memoryview(batch.data)[: max(max_bytes, 0)] if found else b""
            found.append(batch)
            max_bytes -= batch.size
        return found, b""

    def readable(self, offset: int, enough: int, limit: int) -> int:
        """Return the size of the batches from `offset` up to `limit`; stop adding batches once the
        sum reaches `enough`.
        """
        total = 0
        for index in range(self._index(offset), len(self._batches)):
            batch = self._batches[index]
            if batch.base_offset >= limit or total >= enough:
                break
            total += batch.size
        return total

    def offset_for_time(self, timestamp_ms: int, limit: int) -> tuple[int, int, int] | None:
        """Return (timestamp, offset, leader epoch) of the first record before offset `limit` whose
        timestamp is `timestamp_ms` or later; None if there is no such record.
        """
        for batch in self._batches:
            if batch.max_timestamp < timestamp_ms:
                continue
            for timestamp, offset in self._times(batch, self._start):
                if timestamp >= timestamp_ms and offset < limit:
                    return timestamp, offset, batch.leader_epoch
        return None

    def _times(self, batch: Batch, start: int) -> list[tuple[int, int]]:
        """Return (timestamp, offset) of the records from `start` on; a marker counts as a
        record.
        """
        if batch.is_control:
            return [(batch.max_timestamp, batch.base_offset)]
        found = decode_records(batch.data, self.topic, self.partition, start)
        return [(record.timestamp, record.offset) for record in found]

    def offset_of_max_timestamp(self) -> tuple[int, int, int] | None:
        """Return (timestamp, offset, leader epoch) of the record with the greatest timestamp
        (KIP-734); None if there was no record. The record may be deleted: a broker stores the
        maximum for each segment, and the fake's log is one segment.
        """
        return self._newest(self._batches)

    def _newest(self, batches: Sequence[Batch]) -> tuple[int, int, int] | None:
        known = self._newest_deleted
        if not batches:
            return known
        batch = max(batches, key=lambda candidate: candidate.max_timestamp)
        if known is not None and known[0] >= batch.max_timestamp:
            return known
        found = self._times(batch, 0)
        if not found:
            return known
        timestamp, offset = max(found, key=lambda candidate: candidate[0])
        return timestamp, offset, batch.leader_epoch

    def begin_epoch(self, epoch: int) -> None:
        """Begin the epoch of a new leader at the end of the log."""
        if self._epochs[-1][1] == self._end and epoch > self._epochs[-1][0]:
            self._epochs.pop()  # the previous epoch has no records
        self._epochs.append((epoch, self._end))
        self.wake()

    def epoch_of(self, offset: int) -> int:
        """Return the leader epoch of `offset`; beyond the end of the log, the current epoch."""
        index = bisect_right([first for _, first in self._epochs], offset)
        return self._epochs[max(index - 1, 0)][0]

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Return (epoch, end offset) of the newest epoch up to `epoch`; (-1, -1) if `epoch` is
        newer than the current epoch (KIP-101, KIP-279).
        """
        if epoch == self.leader_epoch:
            return epoch, self._end
        known = [entry[0] for entry in self._epochs]
        above = bisect_right(known, epoch)
        if above == len(known):
            return -1, -1
        return (known[above - 1] if above else epoch), self._epochs[above][1]

    def subscribe(self, waker: Callable[[], None]) -> None:
        """Call `waker` at every change of the log, until :meth:`unsubscribe`."""
        self._wakers[waker] = None

    def unsubscribe(self, waker: Callable[[], None]) -> None:
        """Stop calling `waker`."""
        self._wakers.pop(waker, None)

    def wake(self) -> None:
        """Call the subscribed wakers, which belong to waiting requests and to followers."""
        for waker in tuple(self._wakers):
            waker()

    def _index(self, offset: int) -> int:
        """Return the index of the batch with `offset`, or of the first batch after it."""
        index = bisect_left(self._bases, offset)
        if index and self._batches[index - 1].last_offset >= offset:
            index -= 1
        return index


def _now_ms() -> int:
    return int(_clock.wall_time() * 1000)


# -- Idempotent and transactional producers


_REMEMBERED_BATCHES = 5
_MAX_SEQUENCE = 2**31 - 1


@dataclass(slots=True)
class ProducerEntry:
    """State of one producer id in one partition."""

    epoch: int
    batches: deque[Batch] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_BATCHES))
    """The last five batches of `epoch`, to detect duplicates."""
    last_timestamp: int = -1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record of `epoch`; -1 without a record."""
        return self.batches[-1].last_sequence if self.batches else -1

    def is_before(self, offset: int) -> bool:
        """Return whether the producer's last batch is before `offset`."""
        return bool(self.batches) and self.batches[-1].last_offset < offset


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """An aborted transaction: a range of offsets of one producer."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the abort marker."""


class ProducerState:
    """Sequence numbers (KIP-98, KIP-360) and transactions of one partition. Only the partition's
    log changes this state.
    """

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        #: First offset of the open transaction of each producer id.
        self.open: dict[int, int] = {}
        self.aborted: list[AbortedTransaction] = []
        # (first offset, marker offset) of ended transactions whose marker may be unreplicated.
        self._ends: deque[tuple[int, int]] = deque()

    def duplicate(self, batch: Batch) -> Batch | None:
        """Return the one of the producer's last five batches that has the same sequence numbers as
        `batch`; None if `batch` is no duplicate."""
        entry = self.entries.get(batch.producer_id)
        if entry is None or entry.epoch != batch.producer_epoch:
            return None
        for known in entry.batches:
            same_first = known.base_sequence == batch.base_sequence
            if same_first and known.last_sequence == batch.last_sequence:
                return known
        return None

    def check(self, batch: Batch, *, unknown_producer: int) -> None:
        """Check that a batch continues the epoch and sequence numbers of its producer.

        Args:
            unknown_producer: The error code for a batch that does not begin at sequence 0, if the
                log has no state of its producer id; 0 accepts the batch (KIP-360).

        Raises:
            BatchRefusedError: the batch is rejected; `errno` is the broker's error code.
        """
        entry = self.entries.get(batch.producer_id)
        if entry is None:
            if unknown_producer and batch.base_sequence != 0:
                raise _refused(unknown_producer, "no state for this producer id")
        elif batch.producer_epoch < entry.epoch:
            raise _refused(
                errors.InvalidProducerEpoch,
                f"epoch {batch.producer_epoch} is older than {entry.epoch}, the newest seen",
            )
        elif batch.producer_epoch > entry.epoch:
            if batch.base_sequence != 0:
                raise _refused(errors.OutOfOrderSequenceNumber, "a new epoch begins at sequence 0")
        else:
            _check_sequence(entry.last_sequence, batch.base_sequence)

    def is_in_transaction(self, batch: Batch) -> bool:
        """Return whether the log has an open transaction of the batch's producer id and epoch."""
        entry = self.entries.get(batch.producer_id)
        same = entry is not None and entry.epoch == batch.producer_epoch
        return same and batch.producer_id in self.open

    def appended(self, batch: Batch) -> None:
        """Update the state of the producer of an appended batch."""
        if batch.producer_id < 0:
            return
        entry = self.entries.get(batch.producer_id)
        if entry is None:
            entry = self.entries[batch.producer_id] = ProducerEntry(batch.producer_epoch)
        elif entry.epoch != batch.producer_epoch:
            entry.epoch = batch.producer_epoch
            entry.batches.clear()
        entry.last_timestamp = batch.max_timestamp
        if batch.is_control:
            self._ended(batch)
            return
        entry.batches.append(batch)
        if batch.is_transactional:
            self.open.setdefault(batch.producer_id, batch.base_offset)

    def _ended(self, marker: Batch) -> None:
        """End the open transaction of the marker's producer, if there is one."""
        start = self.open.pop(marker.producer_id, None)
        if start is None:
            return
        self._ends.append((start, marker.base_offset))
        if not marker.is_commit:
            ended = AbortedTransaction(marker.producer_id, start, marker.base_offset)
            self.aborted.append(ended)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return the first offset of the oldest transaction that is open, or whose marker is not
        replicated; None without such a transaction.
        """
        if not self.open and not self._ends:
            return None  # fast path for logs without transactions
        while self._ends and self._ends[0][1] < high_watermark:
            self._ends.popleft()
        first = min(self.open.values(), default=None)
        for start, _ in self._ends:
            first = start if first is None else min(first, start)
        return first

    def aborted_between(self, start: int, end: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap the offsets from `start` (inclusive) to
        `end` (exclusive).
        """
        return [
            aborted
            for aborted in self.aborted
            if aborted.last_offset >= start and aborted.first_offset < end
        ]

    def is_aborted(self, producer_id: int, offset: int) -> bool:
        """Return whether the record of a producer at `offset` belongs to an aborted transaction."""
        return any(
            aborted.producer_id == producer_id
            and aborted.first_offset <= offset <= aborted.last_offset
            for aborted in self.aborted
        )

    def forget_before(self, offset: int) -> None:
        """Forget the aborted transactions before `offset`, where retention has removed the records.
        Keep the producer ids: a broker keeps them until they expire (producer.id.expiration.ms).
        """
        self.aborted = [a for a in self.aborted if a.last_offset >= offset]

    def rebuild(self, batches: Iterable[Batch], start: int) -> None:
        """Rebuild the state from `batches`, after the log was truncated. Keep the state of
        producers whose last batch is before `start`, where retention has removed the batches.
        """
        known = ProducerState()
        for batch in batches:
            known.appended(batch)
        for producer_id, entry in self.entries.items():
            if producer_id not in known.entries and entry.is_before(start):
                known.entries[producer_id] = entry
        self.entries, self.open, self.aborted = known.entries, known.open, known.aborted
        self._ends = known._ends

    def copy(self) -> ProducerState:
        """Return a copy for the log of another replica."""
        made = ProducerState()
        for producer_id, entry in self.entries.items():
            batches = deque(entry.batches, maxlen=_REMEMBERED_BATCHES)
            made.entries[producer_id] = ProducerEntry(entry.epoch, batches, entry.last_timestamp)
        made.open = dict(self.open)
        made.aborted = list(self.aborted)
        made._ends = deque(self._ends)
        return made

    def forget(self, producer_id: int) -> None:
        """Forget a producer id, as a broker does when it expires."""
        self.entries.pop(producer_id, None)


def _check_sequence(last: int, first: int) -> None:
    expected = 0 if last == _MAX_SEQUENCE else last + 1
    if first != expected:
        raise _refused(
            errors.OutOfOrderSequenceNumber, f"sequence {first} came, {expected} was expected"
        )


def _refused(error: ErrorCode, message: str) -> BatchRefusedError:
    return BatchRefusedError(error, message, in_log=True)
