"""Offsets of partitions, by place or by time."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

from aiokafka._partitions import as_partition
from aiokafka.admin._arguments import items_of
from aiokafka.admin._list_offsets import list_offsets
from aiokafka.admin._offset_values import ListedOffset, OffsetSpec, timestamp_of
from aiokafka.admin._room import Room
from aiokafka.structs import TopicPartition

__all__ = ["Offsets"]

_LEVELS = ("read_uncommitted", "read_committed")


class Offsets(Room):
    """Calls about the offsets of partitions: `admin.offsets`.

    The offsets that groups have committed are in `admin.groups`.
    """

    async def list(
        self,
        places: Mapping[TopicPartition, OffsetSpec | int | datetime.datetime],
        *,
        isolation_level: str = "read_uncommitted",
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, ListedOffset]:
        """Return the offsets of places or times in partitions (Java: listOffsets, KIP-79).

        Args:
            places: by partition, an `OffsetSpec`, or a time, as milliseconds since 1970 or a
                datetime with a time zone: the first record that is not older (Kafka 0.10.1).
            isolation_level: "read_committed" ends before the first open transaction.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises the error of a partition, such as UnsupportedVersionError if its leader is too old
        for a place: AdminItemsError if several partitions were asked for.
        """
        if isolation_level not in _LEVELS:
            known = ", ".join(_LEVELS)
            raise ValueError(f"isolation_level: {isolation_level!r}: must be one of {known}")
        wanted = {as_partition(tp): _place(place) for tp, place in items_of("places", places)}
        return await list_offsets(
            self._router, wanted, isolation_level == _LEVELS[1], self._deadline(timeout_ms)
        )


def _place(place: OffsetSpec | int | datetime.datetime) -> int:
    if isinstance(place, OffsetSpec):
        return place.value
    return timestamp_of("places", place)
