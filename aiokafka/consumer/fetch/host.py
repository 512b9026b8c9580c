"""What a NodeFetcher needs of the Fetcher that has all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from aiokafka.consumer._partition_state import PartitionState
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

__all__ = ["NodeHost"]


class NodeHost(Protocol):
    """Whatever of a response concerns more than one broker."""

    @property
    def share(self) -> int:
        """Bytes that one broker's responses may pin."""

    @property
    def topic_ids(self) -> Mapping[str, bytes]:
        """The ids of the topics that are read."""

    def rack_id(self) -> str:
        """Return the rack to name to brokers; "" to have leaders serve us themselves."""

    def announce(self, partitions: Iterable[TopicPartition]) -> None:
        """Wake the readers of partitions whose records were buffered."""

    def prefer_replica(self, state: PartitionState, node_id: int) -> None:
        """Move a partition to the replica that its leader names."""

    def refuse_replica(self, state: PartitionState) -> None:
        """Move a partition back to its leader: the replica does not serve us."""

    def on_out_of_range(self, state: PartitionState, failure: Callable[[], KafkaError]) -> None:
        """Find another position, or report `failure`: the position is not in the leader's log."""
