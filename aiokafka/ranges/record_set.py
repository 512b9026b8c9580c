"""A fetched record set of a range, converted to columns when and where the caller wants. Pure."""

from __future__ import annotations

import bisect
from typing import NamedTuple

from aiokafka.errors import CorruptRecordError
from aiokafka.ranges.state import PartitionRange
from aiokafka.record.columns import ColumnReader, Columns
from aiokafka.record.header import parse_batch

__all__ = ["RecordSet", "Rows", "Scan", "scan_record_set"]


class Rows(NamedTuple):
    """The first `size` rows of `columns`; further rows lie beyond the range."""

    columns: Columns
    size: int


class RecordSet:
    """Records of one partition in the order of their offsets.

    `topic` and `partition` identify it. Any thread may read it, one at a time.
    """

    def __init__(self, wanted: PartitionRange, reader: ColumnReader) -> None:
        self.topic = wanted.topic
        self.partition = wanted.partition
        self._until = wanted.until
        self._reader = reader

    def read(self, max_rows: int) -> Rows | None:
        """Return up to `max_rows` more records; None when there are no more.

        Raises CorruptRecordError that names the partition.
        """
        if self._reader.position >= self._until:
            return None
        try:
            columns = self._reader.read(max_rows)
        except CorruptRecordError as error:
            raise CorruptRecordError(f"{self.topic}-{self.partition}: {error}") from error
        size = self._below_end(columns)
        return Rows(columns, size) if size else None

    def _below_end(self, columns: Columns) -> int:
        with memoryview(columns.offsets).cast("q") as offsets:
            if not columns.rows or offsets[-1] < self._until:
                return columns.rows
            return bisect.bisect_left(offsets, self._until)


class Scan(NamedTuple):
    """The part of a record set that belongs to a range."""

    size: int
    """How many bytes, from the start on."""

    position: int
    """The offset to ask for next; -1 if there is no complete batch."""

    offsets: int
    """How many offsets these bytes cover, those before the range included."""


def scan_record_set(view: memoryview, start: int, until: int) -> Scan:
    """Measure the part of a record set, requested from `start` on, before offset `until`.

    Raises CorruptRecordError if the first batch is not valid.
    """
    at, position, first = 0, -1, start
    while position < until:
        try:
            batch = parse_batch(view, at)
        except CorruptRecordError:
            if at:
                break  # The next fetch begins with it, and tells.
            raise
        if batch is None:
            break
        if batch.magic == 2 and batch.base_offset >= until:
            position = until
            break
        first = min(first, batch.base_offset)
        at += batch.size_in_bytes
        position = batch.last_offset + 1
    return Scan(at, position, position - first)
