"""Which consumers of an event loop read for which group, so that a producer beside them can commit
as the member that read the records (KIP-447) when it is given the group's name only.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Mapping
from typing import Protocol
from weakref import WeakKeyDictionary, WeakSet

from aiokafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = ["GroupReader", "add_reader", "readers"]


class GroupReader(Protocol):
    """A consumer with a group, as a producer sees it."""

    @property
    def group_id(self) -> str: ...

    @property
    def cluster_id(self) -> str | None:
        """Groups of different clusters may have one name; None if not known."""

    @property
    def member_id(self) -> str:
        """Name within the group, "" outside it."""

    def metadata(self) -> ConsumerGroupMetadata:
        """Return the consumer's membership of now. Raises CommitFailedError if it has none."""

    def owns(self, partition: TopicPartition) -> bool:
        """Return whether the partition is assigned to the consumer now."""

    def stands_for(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether the consumer has returned records of the partition since it owns it, or is
        to go on at `offset`.
        """

    def has_lost(self, partition: TopicPartition) -> bool:
        """Return whether the partition was taken away after records of it were returned, though it
        may have come back.
        """

    def leader_epoch_before(self, partition: TopicPartition, offset: int) -> int:
        """Return the leader epoch of the record before `offset`; -1 if the consumer does not
        know.
        """

    def refuse_lost(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Raise CommitFailedError if partitions were taken away since their records were
        returned.
        """


_readers: WeakKeyDictionary[AbstractEventLoop, dict[str, WeakSet[GroupReader]]] = (
    WeakKeyDictionary()
)


def add_reader(loop: AbstractEventLoop, reader: GroupReader) -> None:
    """Let `readers` find this one for as long as it is in memory."""
    groups = _readers.setdefault(loop, {})
    for group_id in [group_id for group_id, found in groups.items() if not found]:
        del groups[group_id]
    groups.setdefault(reader.group_id, WeakSet()).add(reader)


def readers(loop: AbstractEventLoop, cluster_id: str | None, group_id: str) -> list[GroupReader]:
    """Return the consumers of this loop that read for the group of that cluster."""
    found = _readers.get(loop, {}).get(group_id, ())
    return [reader for reader in found if _is_same(reader.cluster_id, cluster_id)]


def _is_same(one: str | None, other: str | None) -> bool:
    """Return whether two ids may be of one cluster; brokers before Kafka 0.10.1 have none."""
    return one is None or other is None or one == other
