"""More partitions for a topic."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["NewPartitions"]


class NewPartitions:
    """The number of partitions that a topic is to have in the end.

    new_assignments: broker ids of the replicas of each partition to add; by default the broker
    chooses.
    """

    def __init__(
        self, total_count: int, new_assignments: Sequence[Sequence[int]] | None = None
    ) -> None:
        self.total_count = total_count
        self.new_assignments = new_assignments

    def __repr__(self) -> str:
        return f"NewPartitions({self.total_count}, {self.new_assignments})"
