"""`NewPartitions`, the new number of partitions of a topic."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["NewPartitions"]


class NewPartitions:
    """The new number of partitions of a topic, and optionally the replicas of the new partitions.

    Args:
        total_count: the total number, existing partitions included.
        new_assignments: for each new partition, the broker ids of its replicas; by default the
            controller chooses them.
    """

    def __init__(
        self, total_count: int, new_assignments: Sequence[Sequence[int]] | None = None
    ) -> None:
        self.total_count = total_count
        self.new_assignments = new_assignments

    def __repr__(self) -> str:
        return f"NewPartitions({self.total_count}, {self.new_assignments})"
