"""The records of partitions."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka._partitions import as_partition
from aiokafka.admin._arguments import as_int, items_of
from aiokafka.admin._records import delete_each
from aiokafka.admin._room import Room
from aiokafka.structs import TopicPartition

__all__ = ["Records"]


class Records(Room):
    """Calls about records: `admin.records`."""

    async def delete(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset (Java: deleteRecords, KIP-107, Kafka 0.11).

        Args:
            before: the first offset to keep, by partition; -1 deletes all there are.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Returns the first offset that each partition has left. Raises ValueError for an offset below
        -1, and the error of a partition, such as OffsetOutOfRangeError: AdminItemsError if several
        partitions were asked for. Cancelling does not bring back what is deleted.
        """
        wanted = {
            as_partition(tp): as_int(f"before: {tp}", o) for tp, o in items_of("before", before)
        }
        for tp, offset in wanted.items():
            if offset < -1:
                raise ValueError(f"before: {tp}={offset!r}: must be an offset, or -1 for all")
        return await delete_each(self._router, wanted, self._deadline(timeout_ms))
