"""Compatibility module, an import path of aiokafka 0.14: the movements of an assignment, for tests
of programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiokafka.structs import TopicPartition

__all__ = ["PartitionMovements"]


class PartitionMovements:
    """The partitions that change their owner from one assignment to the next, computed at the first
    use.

    Owns: the previous and the new owner of each such partition.
    """

    def __init__(
        self,
        before: Mapping[str, Iterable[TopicPartition]] | None = None,
        after: Mapping[str, Iterable[TopicPartition]] | None = None,
    ) -> None:
        self._before = before
        self._after = after
        self._moved: dict[TopicPartition, tuple[str, str]] = {}

    def move_partition(
        self, partition: TopicPartition, old_consumer: str, new_consumer: str
    ) -> None:
        """Add a movement. Two movements of a partition count as one movement from its first owner;
        a partition that returns to its first owner has no movement."""
        self._compute()
        first = self._moved.pop(partition, (old_consumer,))[0]
        if first != new_consumer:
            self._moved[partition] = (first, new_consumer)

    def are_sticky(self) -> bool:
        """Return whether no two members have exchanged partitions of the same topic."""
        self._compute()
        moves = {(tp.topic, giver, taker) for tp, (giver, taker) in self._moved.items()}
        return not any((topic, taker, giver) in moves for topic, giver, taker in moves)

    def _compute(self) -> None:
        if self._before is None or self._after is None:
            return
        owners = {tp: member for member, tps in self._before.items() for tp in tps}
        after, self._before, self._after = self._after, None, None
        for member, tps in after.items():
            for tp in tps:
                self.move_partition(tp, owners.get(tp, member), member)
