"""Import path of aiokafka: which partitions an assignment moves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiokafka._typing import Self
from aiokafka.structs import TopicPartition

__all__ = ["PartitionMovements"]


# -- Which partitions an assignment moves, as the tests of aiokafka ask


class PartitionMovements:
    """Owns, by partition, the member that has given it up and the one that has got it."""

    def __init__(self) -> None:
        self._moved: dict[TopicPartition, tuple[str, str]] = {}

    @classmethod
    def between(
        cls,
        before: Mapping[str, Iterable[TopicPartition]],
        after: Mapping[str, Iterable[TopicPartition]],
    ) -> Self:
        """Return what is moved from one assignment to the next."""
        found = cls()
        owners = {tp: member for member, tps in before.items() for tp in tps}
        for member, tps in after.items():
            for tp in tps:
                found.move_partition(tp, owners.get(tp, member), member)
        return found

    def move_partition(
        self, partition: TopicPartition, old_consumer: str, new_consumer: str
    ) -> None:
        """Note a move. What is moved twice has moved from its first member; what comes back to it,
        not at all."""
        first = self._moved.pop(partition, (old_consumer,))[0]
        if first != new_consumer:
            self._moved[partition] = (first, new_consumer)

    def are_sticky(self) -> bool:
        """Return whether no two members have exchanged partitions of a topic for others of it."""
        moves = {(tp.topic, giver, taker) for tp, (giver, taker) in self._moved.items()}
        return not any((topic, taker, giver) in moves for topic, giver, taker in moves)
