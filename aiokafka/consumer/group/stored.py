"""What a consumer has committed last of a partition, and when; what it had not when that went."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from aiokafka.consumer._partition_state import PartitionState, Phase
from aiokafka.consumer.position.committed import CommittedOffset

__all__ = ["Forfeit", "Stored"]

# Brokers drop offsets that were committed too long ago: those of a group without members (KIP-211),
# and before Kafka 2.1 all of them, by default after a day before 2.0.
_LONGEST_REST = 3600.0


class Stored(NamedTuple):
    """An offset in the group's store."""

    entry: CommittedOffset
    epoch: int
    """That of the position when it was stored."""
    at: float
    """When that was (loop time)."""

    @classmethod
    def now(cls, entry: CommittedOffset, epoch: int) -> Stored:
        """Return what was stored at this moment."""
        return cls(entry, epoch, _now())

    def offset_for(self, state: PartitionState) -> int:
        """Return the offset; -1 if it says nothing any more.

        An application may commit beyond its position. But one that has gone back since, by `seek()`
        or because the topic was made again, has still to commit what it has in hand.
        """
        offset, position = self.entry.offset, state.position
        is_void = self.epoch != state.epoch and position is not None and offset > position
        return -1 if is_void else offset

    def is_due(self, state: PartitionState) -> bool:
        """Return whether to store it again, as it is."""
        return state.epoch == self.epoch and _now() - self.at > _LONGEST_REST

    def is_before(self, state: PartitionState) -> bool:
        """Return whether the position was sought or reset since, and is still wanted."""
        return state.epoch != self.epoch and state.phase is not Phase.RETIRED


class Forfeit(NamedTuple):
    """What the application had in hand of a partition when it was revoked: the number of the call
    that got it, and the position after it."""

    call: int
    position: int


def _now() -> float:
    return asyncio.get_running_loop().time()
