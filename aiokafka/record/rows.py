"""Columns of rows to write, without a Python object per record.

The buffers have the layout of Arrow arrays: native byte order, one more offset than rows, and one
validity bit per row, beginning with the least significant bit of each byte. The first row of a
column is row `start` of the buffers, which may contain more rows. The constructor of a column
checks the buffers; they must not change while the column is in use.
`RecordBatchBuilder.append_rows` writes the rows as records.
"""

from __future__ import annotations

from aiokafka.record import _memory as mem
from aiokafka.record._memory import Buffer
from aiokafka.record.header import flat_view

__all__ = ["ANY", "BinarySource", "HeaderSource", "RowSource", "route_rows"]

ANY = -1
"""The partition number that `route_rows` returns for rows without a key, which may be sent to any
partition."""

_ANY = ANY  # in the compiled module, this constant and the limits below are C numbers
_MAX_ROWS = 0x7FFFFFFF
_MAX_UINT64 = 0xFFFFFFFFFFFFFFFF
_MAX_PARTITIONS = 1_000_000


class SpanSource:
    """A column whose rows are spans of an array, laid out as in Arrow: row `i` has the elements
    from `offsets[start + i]` up to `offsets[start + i + 1]`, or is null if bit `start + i` of
    `validity` is not set. The subclass has the array: of bytes or of headers."""

    def __init__(
        self, size: int, offsets: Buffer, validity: Buffer | None, start: int, end: int
    ) -> None:
        """`end`: the length of the array. Raises ValueError if a buffer is too short or an offset
        is invalid or beyond `end`."""
        self.size = 0
        if not 0 <= size <= _MAX_ROWS or not 0 <= start <= _MAX_ROWS - size:
            raise ValueError(f"size and start: {size} rows from {start} on are not possible")
        self._start = start
        self._offsets_view = flat_view(offsets)
        self._validity_view = flat_view(b"" if validity is None else validity)
        self._has_validity = validity is not None
        if size and len(self._offsets_view) // 4 <= start + size:
            raise ValueError(f"offsets: {start + size + 1} numbers are needed")
        if self._has_validity and len(self._validity_view) < (start + size + 7) // 8:
            raise ValueError(f"validity: {start + size} bits are needed")
        self._offsets = mem.source(self._offsets_view)
        self._validity = mem.source(self._validity_view)
        if size:
            self._check_offsets(size, end)
        self.size = size

    def _check_offsets(self, size: int, end: int) -> None:
        low = mem.get_i32(self._offsets, self._start)
        if low < 0:
            raise ValueError(f"offsets: the first is {low}")
        for index in range(self._start + 1, self._start + size + 1):
            high = mem.get_i32(self._offsets, index)
            if high < low:
                raise ValueError(f"offsets: {high} comes after {low}")
            low = high
        if low > end:
            raise ValueError(f"offsets: the last is {low}, but there is only {end}")

    def span(self, row: int) -> tuple[int, int]:
        """Return the start and the length of a row; the length is -1 for null."""
        index = self._start + row
        if self._has_validity and not self._validity[index >> 3] >> (index & 7) & 1:
            return 0, -1
        at = mem.get_i32(self._offsets, index)
        return at, mem.get_i32(self._offsets, index + 1) - at


class BinarySource(SpanSource):
    """A column of byte strings in the buffer `data`."""

    def __init__(
        self,
        size: int,
        offsets: Buffer,
        data: Buffer,
        validity: Buffer | None = None,
        start: int = 0,
    ) -> None:
        """Check the buffers. `offsets` are int32. Raises ValueError for a buffer that is too short,
        and for invalid offsets."""
        self._data_view = flat_view(data)
        self._data = mem.source(self._data_view)
        SpanSource.__init__(self, size, offsets, validity, start, len(self._data_view))

    def field_size(self, row: int) -> int:
        """Return the encoded size of a row, including its length prefix."""
        _, size = self.span(row)
        return mem.varint_size(size) + max(size, 0)

    def put(self, row: int, out: bytearray, at: int) -> int:
        """Write a row with its length prefix to `out`; return the position after the row."""
        start, size = self.span(row)
        at = mem.put_varint(out, at, size)
        if size <= 0:
            return at
        mem.copy(out, at, self._data, start, size)
        return at + size

    def hash(self, row: int, seed: int) -> int:
        """Return a 64-bit hash of a row, which depends on `seed`; `seed` itself for null."""
        start, size = self.span(row)
        return seed if size < 0 else mem.hash64(self._data, start, size, seed)


class HeaderSource(SpanSource):
    """A column of headers in the buffers `names` and `values`."""

    def __init__(
        self,
        size: int,
        offsets: Buffer,
        names: BinarySource,
        values: BinarySource,
        validity: Buffer | None = None,
        start: int = 0,
    ) -> None:
        """Check the buffers. `offsets` are int32, names UTF-8. Raises ValueError for a buffer that
        is too short, and for invalid offsets."""
        self._names = names
        self._values = values
        SpanSource.__init__(self, size, offsets, validity, start, min(names.size, values.size))

    def field_size(self, row: int) -> int:
        """Return the encoded size of the headers of a row, including their count.

        Raises ValueError for a header without a name.
        """
        first, count = self.span(row)
        size = mem.varint_size(max(count, 0))
        for index in range(first, first + count):
            _, length = self._names.span(index)
            if length < 0:
                raise ValueError(f"headers: row {row} has one whose name is null")
            size += mem.varint_size(length) + length + self._values.field_size(index)
        return size

    def put(self, row: int, out: bytearray, at: int) -> int:
        """Write the headers of a row with their count; return the position after them."""
        first, count = self.span(row)
        at = mem.put_varint(out, at, max(count, 0))
        for index in range(first, first + count):
            at = self._names.put(index, out, at)
            at = self._values.put(index, out, at)
        return at


class RowSource:
    """Rows of columns of equal length. Without a key column all keys are null; without a header
    column no row has headers."""

    def __init__(
        self,
        values: BinarySource,
        keys: BinarySource | None = None,
        headers: HeaderSource | None = None,
        timestamps: Buffer | int = -1,
    ) -> None:
        """Join the columns. `timestamps` are milliseconds since 1970: an int64 per row, or one int.

        Raises ValueError for columns of different lengths.
        """
        self.size = values.size
        self._values = values
        self._keys = _nulls(values.size) if keys is None else keys
        self._headers = headers
        self._is_timed = not isinstance(timestamps, int)
        self._timestamp = timestamps if isinstance(timestamps, int) else -1
        self._times_view = flat_view(b"" if isinstance(timestamps, int) else timestamps)
        self._times = mem.source(self._times_view)
        if self._is_timed and len(self._times_view) != 8 * self.size:
            raise ValueError(f"timestamps: {self.size} numbers are needed")
        if self._keys.size != self.size or (headers is not None and headers.size != self.size):
            raise ValueError(f"keys and headers: {self.size} rows are needed, as of values")

    def timestamp(self, row: int) -> int:
        """Return the timestamp of a row."""
        return mem.get_i64(self._times, row) if self._is_timed else self._timestamp

    def checksum(self) -> int:
        """Return the sum of the hashes of all rows (key and value), modulo 2**64. The order of the
        rows has no effect."""
        total = 0
        for row in range(self.size):
            # The value's seed depends on the key, so that a key with a null value and a value with
            # a null key have different hashes.
            seed = (self._keys.hash(row, 1) + 1) & _MAX_UINT64
            total = (total + self._values.hash(row, seed)) & _MAX_UINT64
        return total


def _nulls(size: int) -> BinarySource:
    return BinarySource(size, bytes(4 * (size + 1)), b"", bytes((size + 7) // 8))


Routes = tuple[bytearray, list[tuple[int, int, int]]]


def route_rows(rows: RowSource, partitions: int, chosen: Buffer | None = None) -> Routes:
    """Choose the partition of each row for a topic with `partitions` partitions.

    Returns the row numbers (int32) sorted by partition, and for each partition with rows a
    (partition, start, stop) slice of them. The partition is ANY for rows without a key.

    Args:
        chosen: The partition (int32) of each row; -1: by the hash of the key, as in Java's client.
            A number may be `partitions` or higher, because partitions may have been added to the
            topic after the caller got `partitions`. Other negative numbers, and numbers from
            1,000,000 on, raise ValueError. Without `chosen`, all partitions are chosen by key.
    """
    return _Router(rows, partitions, flat_view(b"" if chosen is None else chosen)).routes()


class _Router:
    """Sorts rows by partition with a counting sort."""

    def __init__(self, rows: RowSource, partitions: int, chosen: memoryview) -> None:
        if partitions < 1:
            raise ValueError(f"partitions: there must be some, not {partitions}")
        self._rows = rows
        self._partitions = partitions
        self._chosen_view = chosen
        self._chosen = mem.source(chosen)
        if len(chosen) not in (0, 4 * rows.size):
            raise ValueError(f"chosen: {rows.size} numbers are needed")
        # There is a group of rows for each known partition, for each larger number in `chosen`, and
        # for rows without a chosen partition (ANY).
        self._groups = self._count_groups()
        self._found = bytearray(4 * rows.size)
        self._ends = bytearray(4 * (self._groups + 1))

    def _count_groups(self) -> int:
        count = self._partitions
        for row in range(len(self._chosen_view) // 4):
            partition = mem.get_i32(self._chosen, row)
            if partition < _ANY or partition >= _MAX_PARTITIONS:
                raise ValueError(f"partition: a row has the invalid number {partition}")
            count = max(count, partition + 1)
        return count

    def routes(self) -> Routes:
        size = self._rows.size
        has_choices = len(self._chosen_view) > 0
        found, ends = mem.target(self._found), mem.target(self._ends)
        for row in range(size):
            group = mem.get_i32(self._chosen, row) if has_choices else _ANY
            if group < 0:
                group = self._hashed(row)
            mem.put_i32(found, row, group)
            mem.put_i32(ends, group, mem.get_i32(ends, group) + 1)
        parts = self._begin_groups()
        order = bytearray(4 * size)
        places = mem.target(order)
        for row in range(size):
            group = mem.get_i32(found, row)
            place = mem.get_i32(ends, group)
            mem.put_i32(places, place, row)
            mem.put_i32(ends, group, place + 1)
        return order, parts

    def _hashed(self, row: int) -> int:
        keys = self._rows._keys
        at, size = keys.span(row)
        if size < 0:
            return self._groups
        return (mem.murmur2(keys._data, at, size) & 0x7FFFFFFF) % self._partitions

    def _begin_groups(self) -> list[tuple[int, int, int]]:
        """Replace, in `_ends`, the number of rows of each group by the index of its first row in
        the sorted order. Return the slices of groups with rows."""
        ends = mem.target(self._ends)
        parts: list[tuple[int, int, int]] = []
        start = 0
        for group in range(self._groups + 1):
            count = mem.get_i32(ends, group)
            mem.put_i32(ends, group, start)
            if count:
                partition = ANY if group == self._groups else group
                parts.append((partition, start, start + count))
            start += count
        return parts
