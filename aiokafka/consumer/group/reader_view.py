"""A consumer's membership as a transactional producer needs it (KIP-447)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokafka.errors import CommitFailedError
from aiokafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka.consumer._shared import Shared
    from aiokafka.consumer.group.group import Group

__all__ = ["GroupView"]


class GroupView:
    """Says for a transaction which offsets this consumer may commit; see
    `aiokafka._group_members.GroupReader`. Owns nothing.

    Brokers fence offsets in transactions by generation alone, and rebalances go on in the
    background: by the time an application commits, its consumer may be a good member of a
    generation in which the records are another member's. So the records that were returned are
    compared with what is assigned now.
    """

    def __init__(self, shared: Shared, group: Group) -> None:
        self._client = shared.client
        self._buffer = shared.desk.buffer
        self._subscriptions = shared.subscriptions
        self._group = group
        self._instance_id = shared.config.group_instance_id

    @property
    def group_id(self) -> str:
        """The id of the group."""
        return self._group.group_id

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster; None if it is not known."""
        return self._client.cluster.cluster_id

    @property
    def member_id(self) -> str:
        """The id within the group, "" outside it."""
        return self._group.member_id

    def metadata(self) -> ConsumerGroupMetadata:
        """Return who the consumer is to its group now; only the group's name if it assigns its
        partitions itself. Raises CommitFailedError when the group does not count it as a member.
        """
        if not self._subscriptions.is_by_group:
            return ConsumerGroupMetadata(self.group_id)
        generation = self._group.generation
        if generation < 0:
            raise CommitFailedError(
                f"group {self.group_id!r}: this consumer is not a member: it has not joined yet, "
                "was stopped, or was removed by the group"
            )
        return ConsumerGroupMetadata(
            self.group_id, generation, self._group.member_id, self._instance_id
        )

    @property
    def _counts(self) -> bool:
        """Whether the assignment is valid as far as the consumer knows."""
        return not self._subscriptions.is_by_group or self._group.generation >= 0

    def owns(self, partition: TopicPartition) -> bool:
        """Return whether the partition is assigned, by a membership that still counts."""
        return self._counts and partition in self._subscriptions.assignment.tps

    def stands_for(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether this consumer may commit an offset: it returned records of the partition
        under this assignment, or the offset is its position and the application has no older
        records in hand.

        The position alone proves nothing while the application still has records that it got
        before the partition was revoked and assigned again:

        1. The application gets the records 0 to 9 and works on them for long.
        2. The group revokes the partition. Another member gets the same records and commits 10.
        3. The partition comes back. The position is the committed offset, 10.
        4. The application commits 10, in a transaction with what it made of the records 0 to 9.
           Their results would count twice.

        With its next call for records the application is done with them. Then its position is as
        good as any member's.
        """
        state = self._subscriptions.assignment.get(partition)
        if state is None or not self._counts:
            return False
        if state.call > 0:
            return True
        given_up = self._subscriptions.given_up.get(partition)
        return state.position == offset and given_up != self._buffer.call

    def has_lost(self, partition: TopicPartition) -> bool:
        """Return whether the partition was revoked after records of it were returned, or the
        membership has ended since.
        """
        if partition in self._subscriptions.given_up:
            return True
        state = self._subscriptions.assignment.get(partition)
        return state is not None and state.call > 0 and not self._counts

    def leader_epoch_before(self, partition: TopicPartition, offset: int) -> int:
        """Return the leader epoch of the record before `offset`; -1 if the consumer has not fetched
        it."""
        state = self._subscriptions.assignment.get(partition)
        return -1 if state is None else state.epoch_before(offset)

    def refuse_lost(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Raise CommitFailedError if a partition was revoked since its records were returned,
        though it may have come back.
        """
        if self._subscriptions.is_manual:
            return  # what the application takes and leaves is its own affair
        lost = [
            tp
            for tp, entry in offsets.items()
            if self.has_lost(tp) and not self.stands_for(tp, entry.offset)
        ]
        if lost:
            names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(lost))
            raise CommitFailedError(
                f"group {self.group_id!r}: taken away since the records were read: {names}; "
                "the present owners of these partitions read them again"
            )
        cluster, assignment = self._client.cluster, self._subscriptions.assignment
        foreign = sorted(tp for tp in offsets if assignment.is_foreign(tp.topic, cluster))
        if foreign:
            # Stored by name, it would be a position in the topic that has the name now. Unless a
            # broker that lags behind has named one of before.
            text = f"{foreign[0].topic}-{foreign[0].partition}: the topic may be another one by now"
            self._client.doubt_metadata(text)
            raise CommitFailedError(
                f"group {self.group_id!r}: {text}: abort, and read its records again, as by "
                "seek_to_committed()"
            )
