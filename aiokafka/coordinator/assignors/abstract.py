"""What an assignor is."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

from aiokafka._typing import later
from aiokafka.coordinator.assignors._either import either
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata
else:
    ClusterMetadata = later("aiokafka.cluster.ClusterMetadata")

__all__ = ["AbstractPartitionAssignor"]


class AbstractPartitionAssignor(abc.ABC):
    """Assigns partitions. The members of a group agree on one assignor that all of them support.

    A consumer is given assignors as classes or as instances. It makes one instance of a class for
    itself, so an assignor may keep state on `self`; class methods work as well.
    """

    supports_cooperative: ClassVar[bool] = False
    """Whether members keep their partitions during a rebalance (KIP-429). What moves is left out of
    what `assign()` returns, until its owner has given it up; the same members and partitions must
    then lead to the same result."""

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Name by which the members agree on this assignor; usually a class attribute."""

    @abc.abstractmethod
    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Return what each member gets, by member id. Called on the leader of the group only."""

    @abc.abstractmethod
    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return what this member tells the leader when it joins."""

    @abc.abstractmethod
    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Take note of what this member got; called on every member after a rebalance."""

    @either
    def on_generation_assignment(self, generation: int) -> None:
        """Take note of the generation of the group; called before `on_assignment`."""
        return
