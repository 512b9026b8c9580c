"""Where a group is to go on reading, and where it did before."""

from __future__ import annotations

import datetime
import enum
from dataclasses import dataclass

from aiokafka._typing import Self
from aiokafka.admin._arguments import as_int
from aiokafka.admin._offset_values import timestamp_of
from aiokafka.admin._values import Value

__all__ = ["OffsetReset", "ResetKind", "ResetRule"]


class ResetKind(enum.Enum):
    """What a rule goes by."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"
    DURATION = "duration"
    SHIFT_BY = "shift_by"
    TO_OFFSET = "to_offset"
    COPY = "copy"


@dataclass(frozen=True)
class ResetRule(Value):
    """Where a group is to go on reading. Made by the class methods."""

    kind: ResetKind
    #: A timestamp or duration in milliseconds, a number of offsets, an offset; else 0.
    value: int = 0
    #: The group that offsets are copied from.
    group_id: str = ""

    @classmethod
    def earliest(cls) -> Self:
        """Begin at the first record that there is."""
        return cls(ResetKind.EARLIEST)

    @classmethod
    def latest(cls) -> Self:
        """Begin at the end: read only what is written from now on."""
        return cls(ResetKind.LATEST)

    @classmethod
    def timestamp(cls, when: int | datetime.datetime) -> Self:
        """Begin at the first record that is not older: milliseconds since 1970, or a datetime.

        Where there is none, the group begins at the end.
        """
        return cls(ResetKind.TIMESTAMP, timestamp_of("when", when))

    @classmethod
    def duration(cls, ago: int | datetime.timedelta) -> Self:
        """Begin so long ago, as `timestamp` does: milliseconds, or a timedelta."""
        ms = round(ago.total_seconds() * 1000) if isinstance(ago, datetime.timedelta) else ago
        if ms < 0:
            raise ValueError(f"ago: {ago!r}: must not be negative")
        return cls(ResetKind.DURATION, ms)

    @classmethod
    def shift_by(cls, count: int) -> Self:
        """Move the committed offsets: forward, or back by a negative number."""
        return cls(ResetKind.SHIFT_BY, as_int("count", count))

    @classmethod
    def to_offset(cls, offset: int) -> Self:
        """Begin at this offset in all partitions."""
        offset = as_int("offset", offset)
        if offset < 0:
            raise ValueError(f"offset: {offset!r}: must not be negative")
        return cls(ResetKind.TO_OFFSET, offset)

    @classmethod
    def copy(cls, group_id: str) -> Self:
        """Begin where another group is."""
        return cls(ResetKind.COPY, group_id=group_id)


@dataclass(frozen=True)
class OffsetReset(Value):
    """What a reset does to the offset of a partition."""

    #: What the group had committed; None without one.
    old: int | None
    #: What it has now, or with `dry_run` would have.
    new: int
    #: Whether the rule leads out of the partition: `new` is then its nearest offset.
    clamped: bool
