"""The order in which calls commit. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from aiokafka.structs import TopicPartition

__all__ = ["Turn"]


class Turn:
    """One call that commits, in the order of the calls."""

    __slots__ = ("_ended", "_partitions")

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self._partitions = frozenset(partitions)
        self._ended: frozenset[TopicPartition] = frozenset()

    @property
    def ended(self) -> frozenset[TopicPartition]:
        """Those of the partitions that were not the member's for a while since the call."""
        return self._ended

    def end_all_but(self, kept: frozenset[TopicPartition]) -> None:
        """Note that the member has these partitions only."""
        self._ended |= self._partitions - kept

    def concerns(self, other: Turn) -> bool:
        """Return whether both commit for one partition."""
        return not self._partitions.isdisjoint(other._partitions)
