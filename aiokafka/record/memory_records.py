"""Import path of aiokafka, kept as a shim: the batches of a record set, one by one."""

from __future__ import annotations

from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.header import flat_view, parse_batch
from aiokafka.record.legacy_records import LegacyRecordBatch

__all__ = ["MemoryRecords"]


class MemoryRecords:
    """Walks over the record set of a Fetch response. The consumer does not use it."""

    def __init__(self, bytes_data: bytes | bytearray | memoryview) -> None:
        self._view = flat_view(bytes_data)
        self._at = 0

    def size_in_bytes(self) -> int:
        """Return the size of the whole set."""
        return len(self._view)

    def has_next(self) -> bool:
        """Say whether another whole batch follows.

        Raises CorruptRecordError if its header is not valid.
        """
        return parse_batch(self._view, self._at) is not None

    def next_batch(self) -> DefaultRecordBatch | LegacyRecordBatch | None:
        """Return the next batch, which gives its records, markers of transactions too; None at the
        end.

        Raises CorruptRecordError for a batch that is damaged, or gives it while it is read.
        """
        batch = parse_batch(self._view, self._at)
        if batch is None:
            return None
        self._at += batch.size_in_bytes
        if batch.magic == 2:
            return DefaultRecordBatch(batch.view)
        return LegacyRecordBatch(batch.view, batch.magic)
