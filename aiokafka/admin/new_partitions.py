"""More partitions for a topic."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["NewPartitions"]


class NewPartitions:
    """The total number of partitions that a topic should have.

    Args:
        total_count: the new number, existing partitions included.
        new_assignments: broker ids of the replicas of each new partition. By default the broker
            chooses.
    """

    def __init__(
        self, total_count: int, new_assignments: Sequence[Sequence[int]] | None = None
    ) -> None:
        self.total_count = total_count
        self.new_assignments = new_assignments

    def __repr__(self) -> str:
        return f"NewPartitions({self.total_count}, {self.new_assignments})"
