"""A consumer's membership as a transactional producer needs it (KIP-447)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokafka.errors import CommitFailedError
from aiokafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka.consumer._shared import Shared
    from aiokafka.consumer.group.group import GroupCoordinator

__all__ = ["GroupView"]


class GroupView:
    """Reads what others own; see `aiokafka._group_members.GroupReader`.

    The broker fences by generation alone, and rebalances go on in the background: by the time an
    application commits, the consumer may be a member of a generation in which its records are
    another member's. So what was handed out before is compared with what is assigned now.
    """

    def __init__(self, shared: Shared, coordinator: GroupCoordinator) -> None:
        self._client = shared.client
        self._buffer = shared.desk.buffer
        self._subscriptions = shared.subscriptions
        self._coordinator = coordinator
        self._instance_id = shared.config.group_instance_id

    @property
    def group_id(self) -> str:
        return self._coordinator.group_id or ""

    @property
    def cluster_id(self) -> str | None:
        return self._client.cluster.cluster_id

    @property
    def member_id(self) -> str:
        return self._coordinator.member_id

    @property
    def _is_shared_out(self) -> bool:
        """Whether partitions come from the group."""
        subscription = self._subscriptions.subscription
        return subscription is not None and not subscription.is_manual

    def metadata(self) -> ConsumerGroupMetadata:
        """Who the consumer is to its group now; nobody in particular if it assigns its partitions
        itself. Raises CommitFailedError when the group does not count it as a member.
        """
        if not self._is_shared_out:
            return ConsumerGroupMetadata(self.group_id)
        generation = self._coordinator.generation
        if generation < 0:
            raise CommitFailedError(
                f"group {self.group_id!r}: this consumer is not a member: it has not joined yet, "
                "was stopped, or was removed by the group"
            )
        return ConsumerGroupMetadata(
            self.group_id, generation, self._coordinator.member_id, self._instance_id
        )

    @property
    def _counts(self) -> bool:
        """Whether the assignment is valid as far as the consumer knows."""
        return not self._is_shared_out or self._coordinator.generation >= 0

    def owns(self, partition: TopicPartition) -> bool:
        """Whether the partition is assigned, by a membership that still counts."""
        return self._counts and partition in self._subscriptions.assignment.tps

    def stands_for(self, partition: TopicPartition, offset: int) -> bool:
        """Whether an offset to commit may come of what this consumer handed out, or may do no
        harm, being where the consumer is.

        The position alone proves nothing while the application still has records that it got
        before the partition went away and came back:

        1. It gets the records 0 to 9 and works on them for long.
        2. The group takes the partition away. Another member gets the same records, commits 10.
        3. The partition comes back: the position is 10.
        4. The application commits 10, or its position, with what it made of the records. They would
           count twice.

        With its next call for records it is done with those.
        """
        state = self._subscriptions.assignment.get(partition)
        if state is None or not self._counts:
            return False
        if state.call > 0:
            return True
        given_up = self._subscriptions.given_up.get(partition)
        return state.position == offset and given_up != self._buffer.call

    def has_lost(self, partition: TopicPartition) -> bool:
        """Whether the partition was taken away with records handed out. It is when the membership
        has ended, too."""
        if partition in self._subscriptions.given_up:
            return True
        state = self._subscriptions.assignment.get(partition)
        return state is not None and state.call > 0 and not self._counts

    def leader_epoch_before(self, partition: TopicPartition, offset: int) -> int:
        """Leader epoch of the record before `offset`; -1 if the consumer has not fetched it."""
        state = self._subscriptions.assignment.get(partition)
        return -1 if state is None else state.epoch_before(offset)

    def refuse_lost(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Raise CommitFailedError if a partition was taken away since its records were handed
        out, though it may have come back.
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
                "whoever has these partitions now reads them again"
            )
