"""What a partition knows of idempotent and transactional producers."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from aiokafka.testing.batches import Batch, BatchRefusedError

OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47

_REMEMBERED_BATCHES = 5
_MAX_SEQUENCE = 2**31 - 1


@dataclass(slots=True)
class ProducerEntry:
    """One producer id on one partition."""

    epoch: int
    batches: deque[Batch] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_BATCHES))
    """The last five written under `epoch`, to recognise duplicates."""
    last_timestamp: int = -1

    @property
    def last_sequence(self) -> int:
        """-1 if nothing was written under the current epoch."""
        return self.batches[-1].last_sequence if self.batches else -1

    def is_before(self, offset: int) -> bool:
        """Return whether all that is known of the producer was written before `offset`."""
        return bool(self.batches) and self.batches[-1].last_offset < offset


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """A range of offsets whose records by one producer were aborted."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the abort marker."""


class ProducerState:
    """Sequence checks (KIP-98, KIP-360) and open transactions of one partition.

    The partition's log is its only writer.
    """

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        #: Producer id to the first offset of its open transaction.
        self.open: dict[int, int] = {}
        self.aborted: list[AbortedTransaction] = []
        self._ends: deque[tuple[int, int]] = deque()  # (first offset, marker), maybe unreplicated

    def duplicate(self, batch: Batch) -> Batch | None:
        """Return the batch in the log that `batch` repeats, if among the last five of its
        producer.
        """
        entry = self.entries.get(batch.producer_id)
        if entry is None or entry.epoch != batch.producer_epoch:
            return None
        for known in entry.batches:
            same_first = known.base_sequence == batch.base_sequence
            if same_first and known.last_sequence == batch.last_sequence:
                return known
        return None

    def check(self, batch: Batch, *, unknown_producer: int) -> None:
        """Refuse a batch whose epoch or sequence does not follow.

        Args:
            unknown_producer: The error code for a producer id of which there is no state, and
                that does not begin at sequence 0; 0 takes any sequence (KIP-360).

        Raises:
            BatchRefusedError: with the broker's error code.
        """
        entry = self.entries.get(batch.producer_id)
        if entry is None:
            if unknown_producer and batch.base_sequence != 0:
                raise _refused(unknown_producer, "no state for this producer id")
        elif batch.producer_epoch < entry.epoch:
            raise _refused(
                INVALID_PRODUCER_EPOCH,
                f"epoch {batch.producer_epoch} is older than {entry.epoch}, the newest seen",
            )
        elif batch.producer_epoch > entry.epoch:
            if batch.base_sequence != 0:
                raise _refused(OUT_OF_ORDER_SEQUENCE_NUMBER, "a new epoch begins at sequence 0")
        else:
            _check_sequence(entry.last_sequence, batch.base_sequence)

    def is_in_transaction(self, batch: Batch) -> bool:
        """Return whether the transaction that a batch belongs to has begun here."""
        entry = self.entries.get(batch.producer_id)
        same = entry is not None and entry.epoch == batch.producer_epoch
        return same and batch.producer_id in self.open

    def appended(self, batch: Batch) -> None:
        """Take note of a batch now in the log."""
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
        """Close a producer's transaction."""
        start = self.open.pop(marker.producer_id, None)
        if start is None:
            return
        self._ends.append((start, marker.base_offset))
        if not marker.is_commit:
            ended = AbortedTransaction(marker.producer_id, start, marker.base_offset)
            self.aborted.append(ended)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """Return where the oldest transaction begins that is open, or whose marker is not yet on
        all replicas; None if there is none.
        """
        if not self.open and not self._ends:
            return None  # as for most logs, at each fetch
        while self._ends and self._ends[0][1] < high_watermark:
            self._ends.popleft()
        first = min(self.open.values(), default=None)
        for start, _ in self._ends:
            first = start if first is None else min(first, start)
        return first

    def aborted_between(self, start: int, end: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in the offsets from `start` up to but not
        `end`.
        """
        return [
            aborted
            for aborted in self.aborted
            if aborted.last_offset >= start and aborted.first_offset < end
        ]

    def is_aborted(self, producer_id: int, offset: int) -> bool:
        """Return whether what a producer wrote at `offset` is part of a transaction that was
        aborted.
        """
        return any(
            aborted.producer_id == producer_id
            and aborted.first_offset <= offset <= aborted.last_offset
            for aborted in self.aborted
        )

    def forget_before(self, offset: int) -> None:
        """Drop what retention has removed. Producer ids are kept, as a broker does until they
        expire (transactional.id.expiration.ms)."""
        self.aborted = [a for a in self.aborted if a.last_offset >= offset]

    def rebuild(self, batches: Iterable[Batch], start: int) -> None:
        """Learn from `batches`, after a log was truncated. What is known of producers that wrote
        only before `start`, which retention has removed, is kept.
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
        """Return the same state, for the log of another replica."""
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
            OUT_OF_ORDER_SEQUENCE_NUMBER, f"sequence {first} came, {expected} was expected"
        )


def _refused(errno: int, message: str) -> BatchRefusedError:
    return BatchRefusedError(errno, message, in_log=True)
