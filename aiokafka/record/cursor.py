"""Iterate over the batches of a fetched record set, without control batches and aborted
transactions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokafka.errors import CorruptRecordError, UnsupportedCodecError
from aiokafka.record import _memory as mem
from aiokafka.record.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from aiokafka.record.control import ABORT, ControlRecord, first_key
from aiokafka.record.header import RecordBatch, flat_view, parse_batch

if TYPE_CHECKING:
    from aiokafka.record.legacy import LegacyRecord

__all__ = ["BatchCursor"]

_MAX_OFFSET = 0x7FFFFFFFFFFFFFFF
_NO_PRODUCERS: set[int] = set()


class BatchCursor:
    """A position in a record set: between two batches, or inside a batch.

    `position` is the offset of the next record to return. Skips batches below the position,
    control batches, batches without records and, with read_committed, aborted batches. The position
    moves past the offsets of skipped batches and of compacted records.
    """

    def __init__(
        self,
        buffer: bytes | bytearray | memoryview,
        *,
        position: int,
        check_crcs: bool = True,
        read_committed: bool = False,
        aborted: Iterable[tuple[int, int]] | None = None,
        include_control: bool = False,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> None:
        self._check_crcs = check_crcs
        self._include_control = include_control
        self._max_decompressed_bytes = max_decompressed_bytes
        self._aborted: list[tuple[int, int]] = []
        if read_committed and aborted:
            self._aborted = sorted(aborted, key=_first_offset)
        self.position = position
        self.last_leader_epoch = -1
        self.truncated = False
        self.unpacked = 0
        """Decompressed bytes of the batches that were entered since the last `_mark`."""
        self._next = 0
        self._aborted_seen = 0
        self._aborting: set[int] = set()
        self._batch: RecordBatch | None = None
        self._leave()
        self._mark()
        self._view = flat_view(buffer)

    def go_to(self, offset: int) -> bool:
        """Move the position forward to `offset` and return True.

        Return False, without moving, if the record set has aborted transactions (with
        read_committed): the cursor has to read the abort markers of these transactions, and a move
        could skip the markers.
        """
        if self._aborted:
            return False
        self.position = offset
        if self._batch is not None and self._batch.last_offset < offset:
            self._pass(self._batch)
        return True

    def _mark(self) -> None:
        """Save the state for `_return`, and reset `unpacked`."""
        self.unpacked = 0
        self._marked_position = self.position
        self._marked_next = self._next
        self._marked_epoch = self.last_leader_epoch
        self._marked_seen = self._aborted_seen
        self._marked_aborting = set(self._aborting) if self._aborting else _NO_PRODUCERS

    def _return(self) -> None:
        """Restore the state that `_mark` has saved.

        The state includes the set of aborting producers. It cannot be computed again, because
        batches below the position are skipped without reading their records.
        """
        self.position = self._marked_position
        self._next = self._marked_next
        self.last_leader_epoch = self._marked_epoch
        self._aborted_seen = self._marked_seen
        self._aborting = set(self._marked_aborting)
        self._batch = None
        self._leave()

    def _leave(self) -> None:
        """Clear the records of the current batch, but keep `_batch`."""
        self._payload: memoryview | None = None
        self._messages: list[LegacyRecord] | None = None
        self._left = 0
        self._at = 0
        self._end = 0

    # -- between batches

    def _find(self) -> bool:
        """Move to the next batch with records to return; return False at the end of the set.

        Sets `_batch`, which is not yet checked or decompressed. Raises the error of an invalid
        batch, without moving past that batch.
        """
        if self._batch is not None:
            return True
        while self._next < len(self._view):
            batch = parse_batch(self._view, self._next)
            if batch is None:
                self.truncated = True
                return False
            if batch.last_offset >= self.position and not self._is_hidden(batch):
                self._batch = batch
                return True
            self._pass(batch)
        return False

    def _pass(self, batch: RecordBatch) -> None:
        """Move past `batch`."""
        self._next += batch.size_in_bytes
        if batch.last_offset >= self.position:
            self.position = batch.last_offset + 1
        if batch.leader_epoch >= 0:
            self.last_leader_epoch = batch.leader_epoch
        self._batch = None
        self._leave()

    def _is_hidden(self, batch: RecordBatch) -> bool:
        if batch.magic != 2:
            return False
        if self._aborted:
            self._begin_aborted(batch.last_offset)
        if batch.is_control and not self._include_control:
            if self._check_crcs:
                batch.check_crc()
            if batch.producer_id in self._aborting and self._is_abort_marker(batch):
                self._aborting.discard(batch.producer_id)
            return True
        if batch.is_transactional and batch.producer_id in self._aborting:
            return True
        return batch.record_count == 0

    def _begin_aborted(self, last_offset: int) -> None:
        """Add the producers whose aborted transactions start at or before `last_offset`."""
        while self._aborted_seen < len(self._aborted):
            producer_id, first_offset = self._aborted[self._aborted_seen]
            # Records of the producer before `first_offset` belong to another transaction.
            if first_offset > last_offset:
                return
            self._aborting.add(producer_id)
            self._aborted_seen += 1

    def _is_abort_marker(self, batch: RecordBatch) -> bool:
        if batch.record_count == 0:
            return False
        key = first_key(batch, self._max_decompressed_bytes)
        return ControlRecord.parse(key).kind == ABORT

    # -- within a batch

    def _enter(self) -> bool:
        """Enter the next batch with records to decode; return False at the end of the set.

        Raises CorruptRecordError for a corrupt batch.
        """
        if self._left > 0:
            return True
        if not self._find():
            return False
        batch = self._batch
        assert batch is not None
        if batch.magic != 2:
            self._enter_legacy(batch)
            return True
        if self._check_crcs:
            batch.check_crc()
        self._timestamp_type = batch.timestamp_type
        self._append_time = self._timestamp_type != 0
        self._payload = batch.payload(self._max_decompressed_bytes)
        self._data = mem.source(self._payload)
        self._at = 0
        self._end = len(self._payload)
        self.unpacked += self._end
        self._left = batch.record_count
        self._base_offset = batch.base_offset
        self._last_offset = batch.last_offset
        self._base_timestamp = batch.first_timestamp
        self._max_timestamp = batch.max_timestamp
        return True

    def _enter_legacy(self, batch: RecordBatch) -> None:
        from aiokafka.record.legacy import read_entry  # for logs from before Kafka 0.11

        messages = read_entry(batch, self._check_crcs, self._max_decompressed_bytes)
        self._messages = messages
        self._at = 0
        self._left = len(messages)
        for message in messages:
            self.unpacked += len(message.key or b"") + len(message.value or b"")

    def _leave_if_done(self) -> None:
        """If the last record of the current batch was decoded, move past the batch: the position is
        then after the last offset of the batch, whose record may have been compacted away."""
        if self._left == 0 and self._batch is not None:
            self._pass(self._batch)

    def _settle(self) -> None:
        """Skip batches without records to return. Stop at a corrupt batch, and do not raise its
        error: the next read raises it."""
        try:
            self._find()
        except (CorruptRecordError, UnsupportedCodecError):
            pass

    def _skip_batch(self) -> None:
        """Move past an unreadable batch. If its header is invalid, move to the end of the record
        set, and the position to the next offset."""
        batch = self._unread()
        if batch is None:  # the header is invalid, so the start of the next batch is unknown
            self._next = len(self._view)
            if self.position < _MAX_OFFSET:
                self.position += 1
            return
        self.position = max(self.position, self._behind(batch))
        self._next += batch.size_in_bytes
        self._batch = None
        self._leave()

    def _unread(self) -> RecordBatch | None:
        """Return the unreadable batch: the current batch, or, if there is none, the next batch, at
        which `_find` has raised; None if its header is invalid."""
        if self._batch is not None:
            return self._batch
        try:
            # If the header is valid, `_find` has raised because of a corrupt control batch.
            return parse_batch(self._view, self._next)
        except CorruptRecordError:
            return None

    def _behind(self, batch: RecordBatch) -> int:
        """Return the offset at which to continue after an unreadable batch: the offset after its
        last offset.

        If the CRC does not match, the last offset in the header may be wrong. Then the result is at
        most the base offset of the next batch. Without a next batch, the result is the position
        plus one if the offset after the last offset is further from the position than the batch has
        bytes.
        """
        behind = batch.last_offset + 1
        try:
            batch.check_crc()
            return behind
        except CorruptRecordError:
            pass
        try:
            following = parse_batch(self._view, self._next + batch.size_in_bytes)
        except CorruptRecordError:
            following = None
        if following is not None and following.base_offset > self.position:
            return min(behind, following.base_offset)
        return behind if behind - self.position <= batch.size_in_bytes else self.position + 1

    def _corrupt(self, what: str) -> CorruptRecordError:
        base_offset = -1 if self._batch is None else self._batch.base_offset
        return CorruptRecordError(
            f"{what} is wrong in the batch at offset {base_offset}, "
            f"{self._left} records before its end"
        )

    @property
    def batch_end(self) -> int:
        """The offset after the current batch, or after the batch at which the last read raised; -1
        if its header is invalid."""
        batch = self._unread()
        return -1 if batch is None else self._behind(batch)

    @property
    def exhausted(self) -> bool:
        """Whether the record set has no more records to return. False at a corrupt batch,
        because the next read raises its error."""
        return self.is_at_end()

    def is_at_end(self) -> bool:
        """Return `exhausted`. A method, because compiled code calls it after each record, and a
        property would be slower."""
        if self._left > 0:
            return False
        try:
            return not self._find()
        except (CorruptRecordError, UnsupportedCodecError):
            return False


def _first_offset(transaction: tuple[int, int]) -> int:
    return transaction[1]
