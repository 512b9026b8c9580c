"""Decode fetched record sets to columns, without a Python object per record.

The buffers have the layout of Arrow arrays, for `pyarrow.Array.from_buffers`: native byte order,
one more offset than rows, and one validity bit per row, beginning with the least significant bit of
each byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from aiokafka.errors import CorruptRecordError
from aiokafka.record import _memory as mem
from aiokafka.record.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from aiokafka.record.cursor import BatchCursor

__all__ = ["BinaryColumn", "ColumnReader", "Columns", "HeaderColumn", "read_columns"]

_ALL = 0x7FFFFFFF
_MAX_DATA = 0x7FFFFFFF  # the maximum int32 offset
_MAX_OUTLOOK = 64 * 1024 * 1024
_MAX_INT64 = 0x7FFFFFFFFFFFFFFF
_MIN_INT64 = -_MAX_INT64 - 1


class BinaryColumn(NamedTuple):
    """Concatenated byte strings: row `i` is `data[offsets[i]:offsets[i + 1]]`."""

    offsets: bytearray
    """int32 array, with one element more than rows."""

    data: bytearray

    validity: bytearray | None
    """One bit per row, unset if the row is null; None if no row is null."""

    null_count: int


class HeaderColumn(NamedTuple):
    """The headers of row `i` are the rows of `names` and `values` from `offsets[i]` up to, but not
    including, `offsets[i + 1]`."""

    offsets: bytearray
    """int32 array, with one element more than rows."""

    names: BinaryColumn
    values: BinaryColumn


class Columns(NamedTuple):
    """Records as columns. `position` is the offset at which the next read continues."""

    rows: int
    offsets: bytearray
    """int64 array of the record offsets."""

    timestamps: bytearray
    """int64 array of milliseconds since 1970 (UTC); -1 in a log without timestamps."""

    timestamp_types: bytearray
    """int8 array: 0 for the producer's time, 1 for the time of the append, -1 without a
    timestamp."""

    keys: BinaryColumn
    values: BinaryColumn
    headers: HeaderColumn
    position: int


class BinaryBuilder:
    """Builds a BinaryColumn. Call `reserve` before `add`, which does not check the capacity."""

    def __init__(self) -> None:
        self._offsets = bytearray(4)
        self._data = bytearray()
        self._validity = bytearray()
        self.count = 0
        self.size = 0
        self._nulls = 0
        self._room = 0
        self._aim()
        self._mark_count = 0
        self._mark_size = 0
        self._mark_nulls = 0

    def _aim(self) -> None:
        """Update the addresses of the buffers after a resize."""
        self._offsets_at = mem.target(self._offsets)
        self._data_at = mem.target(self._data)
        self._bits_at = mem.target(self._validity)

    def reserve(self, rows: int, size: int, outlook: int) -> None:
        """Reserve memory for `rows` more rows, which have `size` bytes together. If the data buffer
        has to grow, reserve `outlook` additional bytes for later rows."""
        self._reserve_rows(self.count + rows)
        size += self.size
        if size > len(self._data):
            mem.resize(self._data, max(size + outlook, 2 * len(self._data)))
        self._aim()

    def _reserve_rows(self, rows: int) -> None:
        if rows <= self._room:
            return
        old = len(self._validity)
        room = max(rows, 2 * self._room)
        mem.resize(self._offsets, 4 * (room + 1))
        mem.resize(self._validity, (room + 7) // 8)
        # Set the capacity (`_room`) only after the resizes, which may raise: `add` relies on it.
        self._room = room
        self._aim()
        bits = self._bits_at
        for index in range(old, len(self._validity)):
            bits[index] = 0xFF

    def add(self, data: Any, at: int, size: int) -> None:
        """Add a row with the `size` bytes of `data` at `at`; a null row if `size` is negative."""
        row = self.count
        if size < 0:
            self._bits_at[row >> 3] &= 0xFF ^ (1 << (row & 7))
            self._nulls += 1
        else:
            mem.copy(self._data_at, self.size, data, at, size)
            self.size += size
        self.count = row + 1
        mem.put_i32(self._offsets_at, row + 1, self.size)

    def mark(self) -> None:
        """Save the current state for `roll_back`."""
        self._mark_count = self.count
        self._mark_size = self.size
        self._mark_nulls = self._nulls

    def roll_back(self) -> None:
        """Restore the state that `mark` has saved."""
        bits = self._bits_at
        for row in range(self._mark_count, self.count):
            bits[row >> 3] |= 1 << (row & 7)
        self.count = self._mark_count
        self.size = self._mark_size
        self._nulls = self._mark_nulls

    def finish(self) -> BinaryColumn:
        """Return the column. The builder cannot be used afterwards."""
        mem.resize(self._offsets, 4 * (self.count + 1))
        mem.put_i32(mem.target(self._offsets), 0, 0)
        mem.resize(self._data, self.size)
        mem.resize(self._validity, (self.count + 7) // 8)
        validity = self._validity if self._nulls else None
        return BinaryColumn(self._offsets, self._data, validity, self._nulls)


class ColumnReader(BatchCursor):
    """Decodes a fetched record set to columns, some rows at a time; see `read_columns`."""

    def __init__(
        self,
        buffer: bytes | bytearray | memoryview,
        *,
        position: int,
        check_crcs: bool = True,
        read_committed: bool = False,
        aborted: Iterable[tuple[int, int]] | None = None,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
    ) -> None:
        BatchCursor.__init__(
            self,
            buffer,
            position=position,
            check_crcs=check_crcs,
            read_committed=read_committed,
            aborted=aborted,
            max_decompressed_bytes=min(max_decompressed_bytes, _MAX_DATA),
        )
        self._clear()

    def _clear(self) -> None:
        self._rows = 0
        self._room = 0
        self._offsets = bytearray()
        self._timestamps = bytearray()
        self._types = bytearray()
        self._keys = BinaryBuilder()
        self._values = BinaryBuilder()
        self._header_offsets = bytearray(4)
        self._names = BinaryBuilder()
        self._contents = BinaryBuilder()

    def read(self, max_rows: int | None = None) -> Columns:
        """Return up to `max_rows` records (None = all). The result is empty only at the end of the
        record set.

        The result ends before a corrupt batch, and before a batch with which a column would exceed
        2 GiB. The next call raises CorruptRecordError for the corrupt batch. If there are no
        records before it, this call raises the error.
        """
        limit = _ALL if max_rows is None else max_rows
        self._mark()
        self._clear()
        try:
            while self._rows < limit and self._enter():
                if not self._reserve(limit):
                    break
                if self._messages is not None:
                    self._add_messages(limit)
                else:
                    self._add_records(limit)
                self._leave_if_done()
        except Exception:
            if not self._rows:
                raise
        except BaseException:
            # The caller does not get these rows, so the next call must return them again.
            self._return()
            raise
        if self._left == 0:
            self._settle()
        try:
            return self._finish()
        except BaseException:
            # As above: the call raises, for example MemoryError, so the next call must return these
            # rows again.
            self._return()
            raise

    def _reserve(self, limit: int) -> bool:
        """Reserve memory for the remaining records of the batch, and return True. Return False,
        without a change, if a column would exceed 2 GiB, the limit of int32 offsets."""
        size = self._rest_size()
        if self._rows and max(self._keys.size, self._values.size) > _MAX_DATA - size:
            return False
        rows = min(self._left, limit - self._rows)
        outlook = 0 if rows < self._left else self._outlook(size, limit - self._rows - rows)
        self._keys.reserve(rows, size, 0)
        self._values.reserve(rows, size, outlook)
        if self._rows + rows > self._room:
            room = max(self._rows + rows, 2 * self._room)
            mem.resize(self._offsets, 8 * room)
            mem.resize(self._timestamps, 8 * room)
            mem.resize(self._types, room)
            mem.resize(self._header_offsets, 4 * (room + 1))
            self._room = room
            self._aim()
        return True

    def _aim(self) -> None:
        """Update the addresses of the buffers after a resize."""
        self._offsets_at = mem.target(self._offsets)
        self._timestamps_at = mem.target(self._timestamps)
        self._types_at = mem.target(self._types)
        self._header_offsets_at = mem.target(self._header_offsets)

    def _outlook(self, size: int, rows: int) -> int:
        """Estimate the size of up to `rows` rows after this batch from the remaining records of
        this batch, which have `size` bytes.

        With too little reserved memory, the buffer has to grow, and is copied. Too much reserved
        memory is slow, too, because the first write to new memory takes time.
        """
        batch = self._batch
        if batch is None:
            return 0
        behind = len(self._view) - self._next - batch.size_in_bytes
        most = min(behind * (size / batch.size_in_bytes), rows * (size / max(self._left, 1)))
        return int(min(most, _MAX_OUTLOOK))

    def _rest_size(self) -> int:
        """Return an upper bound for the bytes of the remaining keys of the batch, and of the
        remaining values."""
        if self._messages is None:
            return self._end - self._at
        rest = self._messages[self._at :]
        return max(sum(len(m.key or b"") for m in rest), sum(len(m.value or b"") for m in rest))

    def _add_records(self, limit: int) -> None:
        data = self._data
        span = self._last_offset - self._base_offset
        while self._left > 0 and self._rows < limit:
            size, at = mem.varint(data, self._at, self._end)
            if at < 0 or size < 0 or size > self._end - at:
                raise self._corrupt("the length of a record")
            stop = at + size
            if self._left == 1 and stop != self._end:
                raise self._corrupt("the number of records")
            # Skip the byte of attributes: Kafka defines none.
            timestamp, at = mem.varint(data, at + 1, stop)
            delta, at = mem.varint(data, at, stop)
            if at < 0 or delta < 0 or delta > span:
                raise self._corrupt("the offset of a record")
            if self._base_offset + delta >= self.position:
                self._add_record(at, stop, timestamp, self._base_offset + delta)
            self._at = stop
            self._left -= 1

    def _add_record(self, at: int, stop: int, timestamp: int, offset: int) -> None:
        """Add a record whose key is at `at` and which ends at `stop`. Raises CorruptRecordError,
        without adding anything, if the record is corrupt."""
        data = self._data
        key_size, key_at = mem.varint(data, at, stop)
        if key_at < 0 or key_size < -1 or key_size > stop - key_at:
            raise self._corrupt("the key of a record")
        at = key_at if key_size < 0 else key_at + key_size
        value_size, value_at = mem.varint(data, at, stop)
        if value_at < 0 or value_size < -1 or value_size > stop - value_at:
            raise self._corrupt("the value of a record")
        at = value_at if value_size < 0 else value_at + value_size
        if self._append_time:
            timestamp = self._max_timestamp
        else:
            base = self._base_timestamp
            if timestamp > 0 and base > _MAX_INT64 - timestamp:
                raise self._corrupt("the timestamp of a record")
            if timestamp < 0 and base < _MIN_INT64 - timestamp:
                raise self._corrupt("the timestamp of a record")
            timestamp += base
        if stop - at != 1 or data[at] != 0:
            self._add_headers(at, stop)
        self._keys.add(data, key_at, key_size)
        self._values.add(data, value_at, value_size)
        self._add_row(offset, timestamp, self._timestamp_type)

    def _add_row(self, offset: int, timestamp: int, timestamp_type: int) -> None:
        row = self._rows
        mem.put_i64(self._offsets_at, row, offset)
        mem.put_i64(self._timestamps_at, row, timestamp)
        self._types_at[row] = timestamp_type & 0xFF
        mem.put_i32(self._header_offsets_at, row + 1, self._names.count)
        self._rows = row + 1
        self.position = offset + 1

    def _add_headers(self, at: int, stop: int) -> None:
        names, contents = self._names, self._contents
        data = self._data
        count, at = mem.varint(data, at, stop)
        if at < 0 or count < 0 or count > (stop - at) // 2:
            raise self._corrupt("the number of headers of a record")
        if max(names.size, contents.size) > _MAX_DATA - (stop - at):
            raise self._corrupt("the size of the headers")
        names.reserve(count, stop - at, 0)
        contents.reserve(count, stop - at, 0)
        names.mark()
        contents.mark()
        try:
            while count > 0:
                at = self._add_header(at, stop)
                count -= 1
            if at != stop:
                raise self._corrupt("the length of a record")
        except CorruptRecordError:
            names.roll_back()
            contents.roll_back()
            raise

    def _add_header(self, at: int, stop: int) -> int:
        data = self._data
        size, start = mem.varint(data, at, stop)
        if start < 0 or size < 0 or size > stop - start:
            raise self._corrupt("the name of a header")
        at = start + size
        self._names.add(data, start, size)
        size, start = mem.varint(data, at, stop)
        if start < 0 or size < -1 or size > stop - start:
            raise self._corrupt("the value of a header")
        self._contents.add(data, start, size)
        return start if size < 0 else start + size

    def _add_messages(self, limit: int) -> None:
        messages = self._messages
        assert messages is not None
        while self._left > 0 and self._rows < limit:
            message = messages[self._at]
            if message.offset >= self.position:
                _add_bytes(self._keys, message.key)
                _add_bytes(self._values, message.value)
                if message.timestamp is None or message.timestamp_type is None:
                    self._add_row(message.offset, -1, -1)
                else:
                    self._add_row(message.offset, message.timestamp, message.timestamp_type)
            self._at += 1
            self._left -= 1

    def _finish(self) -> Columns:
        rows = self._rows
        mem.resize(self._offsets, 8 * rows)
        mem.resize(self._timestamps, 8 * rows)
        mem.resize(self._types, rows)
        mem.resize(self._header_offsets, 4 * (rows + 1))
        mem.put_i32(mem.target(self._header_offsets), 0, 0)
        columns = Columns(
            rows,
            self._offsets,
            self._timestamps,
            self._types,
            self._keys.finish(),
            self._values.finish(),
            HeaderColumn(self._header_offsets, self._names.finish(), self._contents.finish()),
            self.position,
        )
        self._clear()
        return columns


def _add_bytes(column: BinaryBuilder, content: bytes | None) -> None:
    view = memoryview(content or b"")
    column.add(mem.source(view), 0, -1 if content is None else len(view))


def read_columns(
    buffer: bytes | bytearray | memoryview,
    *,
    position: int,
    max_rows: int | None = None,
    check_crcs: bool = True,
    read_committed: bool = False,
    aborted: Iterable[tuple[int, int]] | None = None,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> Columns:
    """Return up to `max_rows` records of a fetched record set, from `position` on, as columns.

    `aborted`: the (producer id, first offset) pairs of the Fetch response, used only with
    `read_committed`. Control batches are skipped. Raises CorruptRecordError if the first batch is
    corrupt; the columns end before a later corrupt batch.
    """
    reader = ColumnReader(
        buffer,
        position=position,
        check_crcs=check_crcs,
        read_committed=read_committed,
        aborted=aborted,
        max_decompressed_bytes=max_decompressed_bytes,
    )
    return reader.read(max_rows)
