"""The coordinators of a fake cluster: their brokers, and the groups with committed offsets."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from aiokafka import errors
from aiokafka._arguments import as_text
from aiokafka._typing import later
from aiokafka.errors import KafkaProtocolError
from aiokafka.testing.classic_group import ClassicGroup, GroupRefusedError, GroupState, Member
from aiokafka.testing.consumer_group import (
    CONSUMERS,
    ClassicState,
    ConsumerGroup,
    ConsumerMember,
    read_assignment,
    read_subscription,
    write_assignment,
)
from aiokafka.testing.replication import Seconds, drawn
from aiokafka.testing.share_group import ShareGroup
from aiokafka.testing.share_partition import ShareEvent
from aiokafka.testing.share_partition_manager import SharePartitionManager
from aiokafka.testing.state import ClusterState

if TYPE_CHECKING:
    from aiokafka.testing.script import Script
else:
    Script = later("aiokafka.testing.script.Script")

_GROUP = 0
_POLICY = "group.consumer.migration.policy"


class Groups:
    """All groups of the cluster.

    Groups and offsets survive a stop of their broker, because real brokers store them in the topic
    `__consumer_offsets`. Member sessions continue while a broker is down. If
    :attr:`Coordinators.load_time` is set, they begin again when a coordinator has loaded the group.

    The methods raise KeyError for an unknown group or member.
    """

    def __init__(self, state: ClusterState, coordinators: Coordinators, script: Script) -> None:
        self._state = state
        self._coordinators = coordinators
        coordinators.attach(self)
        self._script = script
        self.classic: dict[str, ClassicGroup] = {}
        self.consumer: dict[str, ConsumerGroup] = {}
        self.share: dict[str, ShareGroup] = {}
        #: Share sessions, share partitions and their stored states.
        self.shares = SharePartitionManager(state)
        self.offsets: dict[str, GroupOffsets] = {}
        self._epochs: dict[str, ProducerEpochs] = {}

    def check_coordinator(self, node_id: int, group_id: str) -> int:
        """Return 0 if this broker coordinates the group and has loaded it, else the error code."""
        return self._coordinators.check(_GROUP, group_id, node_id)

    def load(self, group_id: str, seconds: float) -> None:
        """Restore the stored state of a group; its member sessions restart after `seconds`."""
        group = self._find(group_id)
        if group is not None:
            group.load(seconds)

    def _find(self, group_id: str) -> ClassicGroup | ConsumerGroup | ShareGroup | None:
        return self.classic.get(group_id) or self.consumer.get(group_id) or self.share.get(group_id)

    def share_for_heartbeat(self, group_id: str, *, joining: bool) -> ShareGroup:
        """Return a share group (KIP-932); create it for a joining member.

        Raises:
            GroupRefusedError: the group does not exist and the member is not joining, or the group
                has another type.
        """
        group = self.share.get(group_id)
        if group is not None:
            return group
        if not joining or self.exists(group_id):
            raise GroupRefusedError(errors.GroupIdNotFound)
        return self.new_share(group_id)

    def new_share(self, group_id: str) -> ShareGroup:
        group = self.share[group_id] = ShareGroup(group_id, self, self._script)
        return group

    def initialize_shares(self, group_id: str, topics: Iterable[tuple[bytes, int]]) -> None:
        """Create the share partitions of topics to which a share group has subscribed."""
        self.shares.initialize(group_id, topics)

    def setting(self, name: str) -> int:
        """Return a broker setting as an integer."""
        return self._state.setting(name)

    def group_setting(self, group_id: str, name: str) -> str:
        """Return a setting of a group: its own, else the broker's, else the default."""
        return self._state.group_setting(group_id, name)

    def for_join(self, group_id: str) -> ClassicGroup | ConsumerGroup:
        """Return the group that a classic member joins. Create a classic group if the group does
        not exist, or if it is a group of the consumer protocol without members.

        Raises:
            GroupRefusedError: the group is a share group.
        """
        if group_id in self.share:
            raise GroupRefusedError(errors.InconsistentGroupProtocolError)
        other = self.consumer.get(group_id)
        if other is not None:
            if other.members:
                return other
            self._forget_consumer(group_id)
        return self.classic.get(group_id) or self._new_classic(group_id)

    def consumer_for_heartbeat(self, group_id: str, *, joining: bool) -> ConsumerGroup:
        """Return the group of the consumer protocol (KIP-848). For a joining member, create the
        group if none exists, replace a classic group without members, and upgrade a classic group
        with members.

        Raises:
            GroupRefusedError: the group does not exist and the member is not joining, or the group
                is classic and cannot be upgraded.
        """
        group = self.consumer.get(group_id)
        if group is not None:
            return group
        if not joining or group_id in self.share:
            raise GroupRefusedError(errors.GroupIdNotFound)
        other = self.classic.get(group_id)
        if other is None:
            return self._new_consumer(group_id)
        if not other.members:
            self._forget_classic(group_id)
            return self._new_consumer(group_id)
        return self._upgrade(other)

    def _new_classic(self, group_id: str) -> ClassicGroup:
        setting = self._state.setting
        delay = setting("group.initial.rebalance.delay.ms") / 1000
        group = ClassicGroup(group_id, delay, setting("group.max.size"), self._script)
        self.classic[group_id] = group
        return group

    def _new_consumer(self, group_id: str) -> ConsumerGroup:
        group = self.consumer[group_id] = ConsumerGroup(
            group_id,
            self._state.setting("group.consumer.session.timeout.ms") / 1000,
            self._state.setting("group.max.size"),
            self._state.config[_POLICY] != "disabled",
            self,
            self._script,
        )
        return group

    def _allows(self, change: str) -> bool:
        return self._state.config[_POLICY] in (change, "bidirectional")

    def _upgrade(self, classic: ClassicGroup) -> ConsumerGroup:
        """Convert a classic group to the consumer protocol; its classic members must join again.
        Raise GroupRefusedError if the migration policy, the protocol type, an incomplete first
        generation, or a malformed subscription or assignment forbids this."""
        if classic.protocol_type != CONSUMERS or not self._allows("upgrade"):
            raise GroupRefusedError(errors.GroupIdNotFound)
        classic.interrupt()
        if not classic.protocol:
            # The first generation is incomplete: Kafka (up to 4.3) returns UNKNOWN_SERVER_ERROR.
            raise GroupRefusedError(errors.UnknownError)
        try:
            members = [
                self._as_consumer_member(classic, member) for member in classic.members.values()
            ]
        except KafkaProtocolError:
            raise GroupRefusedError(errors.GroupIdNotFound) from None
        self._forget_classic(classic.group_id)
        group = self._new_consumer(classic.group_id)
        group.take_over(classic.generation, members)
        return group

    def _as_consumer_member(self, group: ClassicGroup, member: Member) -> ConsumerMember:
        """Convert a classic member to a member of a group of the consumer protocol, with the same
        assignment.

        Raises:
            KafkaProtocolError: the member's subscription or assignment is malformed.
        """
        subscription = read_subscription(member.metadata(group.protocol), self.topics())
        return ConsumerMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            rack_id=subscription.rack_id,
            rebalance_timeout=member.rebalance_timeout,
            topics=subscription.topics,
            epoch=group.generation,
            previous_epoch=group.generation,
            assigned=read_assignment(member.assignment, self.topics()),
            classic=ClassicState(member.session_timeout, member.protocols),
        )

    def downgrade(self, group: ConsumerGroup, leaving: Collection[str]) -> bool:
        """Convert a group to the classic protocol, without the members `leaving`; return False if
        ``group.consumer.migration.policy`` forbids the conversion.

        All other members must be classic. They rebalance, unless `leaving` is empty: then a classic
        member has only replaced a static member, and has its assignment.
        """
        if not self._allows("downgrade"):
            return False
        topics = self.topics()
        members = []
        for member in group.members.values():
            if member.member_id in leaving or member.classic is None:
                continue
            target, side = group.target[member.member_id], member.classic
            members.append(
                Member(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    side.session_timeout,
                    member.rebalance_timeout,
                    side.protocols,
                    write_assignment(target, topics, side.metadata),
                )
            )
        self._forget_consumer(group.group_id)
        classic = self._new_classic(group.group_id)
        classic.take_over(group.epoch, CONSUMERS, members)
        if leaving:
            classic.rebalance()
        return True

    def offsets_of(self, group_id: str) -> GroupOffsets:
        """Return the `GroupOffsets` of a group; create it if the group has none."""
        return self.offsets.setdefault(group_id, GroupOffsets())

    def epochs_of(self, group_id: str) -> ProducerEpochs:
        """Return the last producer epochs of transactional offset commits to a group."""
        return self._epochs.setdefault(group_id, ProducerEpochs())

    def end_transaction(self, group_id: str, producer_id: int, epoch: int, *, commit: bool) -> None:
        """Commit or discard the offsets that a transaction has for a group, if there are any, and
        store the producer's epoch."""
        self.epochs_of(group_id).update(producer_id, epoch)
        if group_id in self.offsets:
            self.offsets[group_id].end_transaction(producer_id, commit=commit)

    def committed_of(self, group_id: str) -> Mapping[Key, CommittedOffset]:
        """Return the committed offsets of a group; empty if the group does not exist."""
        offsets = self.offsets.get(group_id)
        return {} if offsets is None else offsets.committed

    def committed(self, group_id: str, topic: str, partition: int = 0) -> int | None:
        """Return the committed offset of a partition, or None."""
        offsets = self.offsets.get(group_id)
        found = offsets.committed.get((topic, partition)) if offsets is not None else None
        return None if found is None else found.offset

    def share_start(self, group_id: str, topic: str, partition: int = 0) -> int:
        """Return the start offset of a share group in a partition, before which no record is
        delivered again (KIP-932); -1 if the group has not read from the partition.

        Raises:
            KeyError: no such partition.
        """
        found = self._state.partition(topic, partition)
        if found is None:
            raise KeyError(f"no partition {topic}-{partition}")
        return self.shares.start_offset(group_id, found)

    def share_events(self, group_id: str) -> list[ShareEvent]:
        """Return what happened to the records of a share group, oldest first: acquisitions,
        acknowledgements, releases, timeouts; at most the last 100,000."""
        return list(self.shares.events.get(group_id, ()))

    def exists(self, group_id: str) -> bool:
        """Return whether a group has members or committed offsets, or had members."""
        return self._find(group_id) is not None or group_id in self.offsets

    def state_of(self, group_id: str) -> str:
        """Return the state of a group by Kafka's name, such as ``Stable``; ``Dead`` if the group
        does not exist."""
        if group_id in self.classic:
            return self.classic[group_id].state.value
        if group_id in self.consumer:
            return self.consumer[group_id].state
        if group_id in self.share:
            return self.share[group_id].state
        return GroupState.EMPTY.value if group_id in self.offsets else GroupState.DEAD.value

    def delete(self, group_id: str) -> int:
        """Delete a group without members; return the error code, 0 for success."""
        if not self.exists(group_id):
            return errors.GroupIdNotFound.errno
        if self.state_of(group_id) != GroupState.EMPTY.value:
            return errors.NonEmptyGroup.errno
        self._forget_classic(group_id)
        self._forget_consumer(group_id)
        self.share.pop(group_id, None)
        self.shares.delete_group(group_id)
        self.offsets.pop(group_id, None)
        return 0

    def rebalance(self, group_id: str) -> None:
        """Make all members of a classic group rejoin. In a group of the consumer protocol, rotate
        the target assignment among the members. In a share group, compute the assignment again,
        without regard to the current assignment."""
        group = self._find(group_id) or self.consumer[group_id]
        group.rebalance()

    def fence(self, group_id: str, member_id: str) -> None:
        """Fence a member of the consumer protocol (KIP-848) or of a share group (KIP-932): its next
        heartbeat is rejected."""
        group = self.consumer.get(group_id) or self.share[group_id]
        group.fence(member_id)

    def expire(self, group_id: str, member_id: str) -> None:
        """Remove a member, as if its session had expired."""
        group = self._find(group_id) or self.consumer[group_id]
        group.remove(member_id)
        self._script.wake()

    def forget_topic(self, topic: str) -> None:
        """Delete the committed offsets and the share partition states that groups have for a
        deleted topic."""
        for offsets in self.offsets.values():
            offsets.forget_topic(topic)
        self.shares.topic_deleted()

    def resume(self) -> None:
        """Restore the stored state of all groups, after a restart of the cluster."""
        for group_id in (*self.classic, *self.consumer, *self.share):
            self.load(group_id, 0.0)

    def close(self) -> None:
        """Cancel all timers."""
        for classic in self.classic.values():
            classic.close()
        for consumer in self.consumer.values():
            consumer.close()
        for share in self.share.values():
            share.close()

    def topics(self) -> Mapping[str, tuple[bytes, int]]:
        """Return the id and the number of partitions of each topic that is not internal."""
        return {
            topic.name: (topic.topic_id, len(topic.partitions))
            for topic in self._state.topics.values()
            if not topic.is_internal
        }

    def _forget_classic(self, group_id: str) -> None:
        group = self.classic.pop(group_id, None)
        if group is not None:
            group.close()

    def _forget_consumer(self, group_id: str) -> None:
        group = self.consumer.pop(group_id, None)
        if group is not None:
            group.close()


# -- Committed offsets of a group, and offsets of open transactions


Key = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset, or an offset that is pending in a transaction."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


class ProducerEpochs:
    """The last epoch of each producer that has written offsets or transaction markers to a group.

    Deleting the group does not delete the epochs. A marker stores its epoch even if the transaction
    has no offsets for the group.
    """

    def __init__(self) -> None:
        self._last: dict[int, int] = {}

    def update(self, producer_id: int, epoch: int) -> None:
        """Store the epoch of a producer that writes offsets or a marker."""
        self._last[producer_id] = epoch

    def is_past(self, producer_id: int, epoch: int) -> bool:
        """Return whether the stored epoch of the producer is greater than `epoch`."""
        return epoch < self._last.get(producer_id, epoch)


class GroupOffsets:
    """Committed offsets of one group, written by the group's coordinator only.

    Owns: the committed offsets, the pending offsets of open transactions, and the order of all
    writes. For each partition, the offset that was written last is valid, as in a compacted log.
    """

    def __init__(self) -> None:
        self.committed: dict[Key, CommittedOffset] = {}
        self._pending: dict[int, dict[Key, tuple[int, CommittedOffset]]] = {}
        self._next_number = itertools.count()
        self._numbers: dict[Key, int] = {}  # write order of the committed offsets

    def commit(self, key: Key, offset: CommittedOffset) -> None:
        self._store(key, next(self._next_number), offset)

    def commit_in_transaction(self, producer_id: int, key: Key, offset: CommittedOffset) -> None:
        """Store a pending offset, which is committed with the producer's transaction."""
        self._pending.setdefault(producer_id, {})[key] = next(self._next_number), offset

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Commit or discard the pending offsets of a transaction. If a partition has an offset that
        was written later, keep the later offset."""
        pending = self._pending.pop(producer_id, {})
        if commit:
            for key, (number, offset) in pending.items():
                if number > self._numbers.get(key, -1):
                    self._store(key, number, offset)

    def is_unstable(self, key: Key) -> bool:
        """Return whether an open transaction has an offset for this partition (KIP-447)."""
        return any(key in pending for pending in self._pending.values())

    def delete(self, key: Key) -> None:
        """Delete the committed offset of a partition, and its offsets in open transactions."""
        self.committed.pop(key, None)
        self._numbers.pop(key, None)
        for pending in self._pending.values():
            pending.pop(key, None)

    def forget_topic(self, topic: str) -> None:
        """Delete the offsets of a deleted topic."""
        known = {*self.committed}.union(*self._pending.values())
        for key in [key for key in known if key[0] == topic]:
            self.delete(key)

    def _store(self, key: Key, number: int, offset: CommittedOffset) -> None:
        self.committed[key] = offset
        self._numbers[key] = number


# -- Coordinators of groups and transactional ids, which take time to load their state

KINDS = {"group": 0, "transaction": 1}

Place = tuple[int, str]
"""(0, group id) or (1, transactional id)."""


class Coordinators:
    """Group and transaction coordinators of a :class:`FakeCluster` (its `coordinators`).

    A real coordinator keeps groups in memory, and stores a part of their state in a topic. A new
    coordinator returns COORDINATOR_LOAD_IN_PROGRESS while it loads the stored state. A classic
    group then has the members of the last generation that got an assignment, and their sessions
    begin again. Members that were joining, and a generation without an assignment, are lost. Groups
    of the consumer protocol and transactions keep their complete state.

    The methods raise KeyError for an unknown kind or broker id.
    """

    def __init__(self, state: ClusterState, random: Random) -> None:
        #: Loading time after a move or a restart of the broker, in seconds or (least, most).
        #: None (the default): loading takes no time, and no state is lost.
        self.load_time: Seconds | None = None
        self._state = state
        self._random = random
        self._groups: Groups | None = None
        self._loaded_at: dict[Place, int] = {}  # the broker that has loaded the state; -1 for none
        self._busy_until: dict[Place, float] = {}

    # -- for tests -----------------------------------------------------------------------------

    def move(self, kind: str, key: str, broker_id: int) -> None:
        """Make another broker the coordinator of a group or transactional id. The previous
        coordinator then returns NOT_COORDINATOR.

        Args:
            kind: ``"group"`` or ``"transaction"``.
            key: The group id or transactional id.
            broker_id: The new coordinator. While it is stopped, another broker coordinates."""
        self._state.nodes[broker_id]  # raises KeyError for an unknown broker
        place = (_kind(kind), as_text("key", key))
        former = self._state.coordinator(*place)
        self._state.placed_coordinators[place] = broker_id
        if self.load_time is not None and self._state.coordinator(*place) != former:
            self._begin(place, drawn(self.load_time, self._random))

    def load(self, kind: str, key: str, seconds: float) -> None:
        """Make the coordinator of a group or transactional id load its state again. Requests get
        COORDINATOR_LOAD_IN_PROGRESS for `seconds`."""
        self._begin((_kind(kind), key), seconds)

    def heal(self) -> None:
        """End all loading at once. Later coordinators load in no time and lose no state."""
        self.load_time = None
        self._busy_until.clear()
        self._loaded_at.clear()

    # -- for the brokers -----------------------------------------------------------------------

    def attach(self, groups: Groups) -> None:
        """Set the groups. A new coordinator calls their `load`, which restores the stored state."""
        self._groups = groups

    def check(self, kind: int, key: str, node_id: int) -> int:
        """Return 0 if this broker coordinates the key and has loaded it, else the error code."""
        place = (kind, key)
        if self._state.coordinator(kind, key) != node_id:
            return errors.NotCoordinatorForGroupError.errno
        if self.load_time is not None and self._loaded_at.setdefault(place, node_id) != node_id:
            self._begin(place, drawn(self.load_time, self._random))
        until = self._busy_until.get(place)
        if until is None:
            return 0
        if asyncio.get_running_loop().time() < until:
            return errors.GroupLoadInProgressError.errno
        del self._busy_until[place]
        return 0

    def broker_stopped(self, node_id: int) -> None:
        """Discard what a stopped broker has loaded: the next coordinator of its groups and
        transactional ids must load their states, even if it is the same broker."""
        for place, loaded_at in self._loaded_at.items():
            if loaded_at == node_id:
                self._loaded_at[place] = -1

    def _begin(self, place: Place, seconds: float) -> None:
        self._busy_until[place] = asyncio.get_running_loop().time() + seconds
        self._loaded_at[place] = self._state.coordinator(*place)
        if self._groups is not None and place[0] == KINDS["group"]:
            self._groups.load(place[1], seconds)


def _kind(name: str) -> int:
    if name not in KINDS:
        raise KeyError(f"kind must be one of {', '.join(KINDS)}, not {name!r}")
    return KINDS[name]
