"""What calls about the offsets of partitions take and return."""

from __future__ import annotations

import datetime
import enum
from dataclasses import dataclass
from typing import Any

from aiokafka.admin._values import Value

__all__ = ["ListedOffset", "OffsetSpec", "timestamp_of"]


class OffsetSpec(enum.IntEnum):
    """A place in a partition."""

    #: The end: the offset that the next record gets; for `read_committed` the end of what is
    #: readable, before the first open transaction.
    LATEST = -1
    #: The first record.
    EARLIEST = -2
    #: The record with the greatest timestamp (KIP-734, Kafka 3.0).
    MAX_TIMESTAMP = -3
    #: The first record on the leader's own disks; others are in tiered storage (KIP-405, Kafka
    #: 3.5).
    EARLIEST_LOCAL = -4
    #: The last record in tiered storage (KIP-1005, Kafka 3.9).
    LATEST_TIERED = -5
    #: The first record that is yet to be copied to tiered storage (KIP-1023, Kafka 4.2).
    EARLIEST_PENDING_UPLOAD = -6


@dataclass(frozen=True)
class ListedOffset(Value):
    """An offset that was looked for. What there is not is None."""

    #: None if there is no such record: none so new, none at all, none in tiered storage.
    offset: int | None
    #: Of the record, in milliseconds since 1970; only for timestamps and MAX_TIMESTAMP.
    timestamp: int | None
    #: The leader epoch of the record (Kafka 2.1).
    leader_epoch: int | None


def timestamp_of(argument: str, value: Any) -> int:
    """Return milliseconds since 1970. Raises TypeError, or ValueError for a time without zone."""
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise ValueError(f"{argument}: {value!r}: must have a time zone")
        return round(value.timestamp() * 1000)
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError(f"{argument}: {value}: must be milliseconds since 1970")
        return value
    raise TypeError(f"{argument}: must be milliseconds since 1970 or a datetime, not {value!r}")
