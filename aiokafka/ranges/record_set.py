"""A fetched record set of a range, converted to columns when and where the caller wants. Pure."""

from __future__ import annotations

import bisect
from typing import Any, NamedTuple

from aiokafka._reading.answers import Fetched
from aiokafka.errors import CorruptRecordError, KafkaError, RecordTooLargeError
from aiokafka.ranges.state import PartitionRange, RangeState
from aiokafka.record.columns import ColumnReader, Columns
from aiokafka.record.header import flat_view, parse_batch, valid_size

__all__ = ["PinnedResponse", "RecordSet", "Rows", "first_batch_size", "no_batch", "too_large"]


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

        Raises CorruptRecordError that names the partition, ValueError for less than one row.
        """
        if max_rows < 1:
            raise ValueError(f"max_rows={max_rows!r}: must be at least 1")
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


class PinnedResponse:
    """The memory of one response, which is pinned until its last record set was read."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.nbytes = 0
        self.unread = 0


def first_batch_size(data: Any) -> int:
    """Return the bytes of the first batch of a record set; 0 if it is not valid."""
    return valid_size(flat_view(data), 0)


def no_batch(state: RangeState, found: Fetched) -> KafkaError:
    """Return what is wrong with the first header of a record set."""
    try:
        parse_batch(flat_view(found.data), 0)
    except CorruptRecordError as error:
        return CorruptRecordError(f"{state}: {error}")
    return CorruptRecordError(f"{state}: no batch at offset {state.position}")


def too_large(state: RangeState, limit: int) -> KafkaError:
    """Return the error of a batch that does not fit into `limit` bytes."""
    return RecordTooLargeError(
        f"{state}: the record at offset {state.position} is larger than {limit} bytes"
    )
