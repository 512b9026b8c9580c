"""Moves of partitions to other brokers (KIP-455)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aiokafka.testing.state import ClusterState, Partition

Place = tuple[str, int]


@dataclass(frozen=True)
class Move:
    """A move that is under way."""

    former: list[int]
    """The replicas before it."""
    target: list[int]

    @property
    def adding(self) -> list[int]:
        """The replicas that have to copy the partition."""
        return [node for node in self.target if node not in self.former]

    @property
    def removing(self) -> list[int]:
        """The replicas that go at the end."""
        return [node for node in self.former if node not in self.target]


class Moves:
    """The moves of a fake cluster. One ends at once, unless a broker that is to copy is down."""

    def __init__(self, state: ClusterState) -> None:
        #: Those under way, by topic and partition.
        self.under_way: dict[Place, Move] = {}
        self._state = state

    def begin(self, partition: Partition, target: list[int]) -> None:
        """Begin a move, or give the one under way another target."""
        place = (partition.topic, partition.index)
        present = self.under_way.get(place)
        former = partition.replicas if present is None else present.former
        move = Move(list(former), list(target))
        self.under_way[place] = move
        partition.replicas = [*target, *move.removing]
        self.advance()

    def cancel(self, partition: Partition) -> bool:
        """Go back to the replicas before a move; return whether there was one."""
        move = self.under_way.pop((partition.topic, partition.index), None)
        if move is None:
            return False
        self._keep(partition, move.former)
        return True

    def advance(self) -> None:
        """End the moves for which all brokers are there."""
        for place, move in list(self.under_way.items()):
            partition = self._state.partition(*place)
            if partition is None:
                del self.under_way[place]
                continue
            live = self._state.live_nodes()
            if partition.leader == -1 or not all(node in live for node in move.target):
                continue
            del self.under_way[place]
            if partition.copies is not None:
                for node in move.adding:
                    partition.copies.catch_up(node)
            self._keep(partition, move.target)

    def _keep(self, partition: Partition, replicas: list[int]) -> None:
        partition.replicas = list(replicas)
        if partition.in_sync is not None:
            partition.in_sync = [node for node in partition.in_sync if node in replicas]
        if partition.leader not in replicas:
            self._state.elect(partition)
