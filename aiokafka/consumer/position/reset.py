"""Where to start reading: the ends of the log, a time, or so long ago."""

from __future__ import annotations

from typing import NamedTuple

from aiokafka import _seams
from aiokafka.protocol.messages import list_offsets

__all__ = ["EARLIEST", "LATEST", "OffsetSpec"]


class OffsetSpec(NamedTuple):
    """What to ask ListOffsets for: one of Kafka's special timestamps, or the time `age` seconds
    ago."""

    timestamp: int
    age: float | None = None

    @classmethod
    def from_policy(cls, policy: str, duration: float | None) -> OffsetSpec | None:
        """Return the spec of an `auto_offset_reset`; None for "none". `duration`: seconds of
        by_duration (KIP-1106)."""
        if duration is not None:
            return cls(0, duration)
        return {"earliest": EARLIEST, "latest": LATEST, "none": None}[policy]

    def timestamp_now(self) -> int:
        """Return the timestamp for a request sent now, in milliseconds."""
        if self.age is None:
            return self.timestamp
        return max(0, int((_seams.wall_time() - self.age) * 1000))


EARLIEST = OffsetSpec(list_offsets.EARLIEST)
LATEST = OffsetSpec(list_offsets.LATEST)
