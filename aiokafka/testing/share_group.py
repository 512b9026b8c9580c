"""The coordinator's state of a share group (KIP-932): members, and their assignment."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiokafka import errors
from aiokafka.testing.classic_group import GroupRefusedError
from aiokafka.testing.consumer_group import TopicIdPartition, TopicIdPartitions

if TYPE_CHECKING:
    from aiokafka.testing.groups import Groups
    from aiokafka.testing.script import Script

JOINING, LEAVING = 0, -1
SHARE = "share"
"""The type and the protocol type of share groups."""
ASSIGNOR = "simple"
_NOTHING: TopicIdPartitions = frozenset()


@dataclass(frozen=True, slots=True)
class ShareHeartbeat:
    """The fields of a ShareGroupHeartbeat request. None means that a field is unchanged."""

    member_id: str
    epoch: int
    rack_id: str | None
    topics: Sequence[str] | None
    client_id: str
    client_host: str


@dataclass(slots=True, eq=False)
class ShareMember:
    """A member of a share group."""

    member_id: str
    client_id: str
    client_host: str
    rack_id: str | None = None
    topics: tuple[str, ...] = ()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: TopicIdPartitions = _NOTHING
    expiry: asyncio.TimerHandle | None = None


@dataclass(frozen=True, slots=True)
class ShareReply:
    """The fields of the response to a heartbeat."""

    member_id: str
    epoch: int
    assignment: TopicIdPartitions | None
    """None if the member knows its assignment already."""


@dataclass
class ShareGroup:
    """One share group. The methods change the group at once. Requests that Kafka rejects raise
    GroupRefusedError.

    A member need not revoke partitions before other members get them, because members share
    partitions.
    """

    group_id: str
    groups: Groups
    """All groups of the cluster, to look up topics and settings."""
    script: Script
    """Its `wake` is called after every change, because a test may wait for the change
    (:meth:`FakeCluster.wait_for`)."""
    epoch: int = 1
    """Group epoch, which a change of members, subscriptions or topics increases."""
    assignment_epoch: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)
    target: dict[str, TopicIdPartitions] = field(default_factory=dict)
    _known_topics: Mapping[str, tuple[bytes, int]] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """Kafka's name of the group's state."""
        return "Stable" if self.members else "Empty"

    def heartbeat(self, beat: ShareHeartbeat) -> ShareReply:
        """Handle a ShareGroupHeartbeat request of a joining, present or leaving member."""
        if beat.epoch == LEAVING:
            self.remove(self._named(beat.member_id).member_id)
            self.script.wake()
            return ShareReply(beat.member_id, LEAVING, None)
        member = self._join(beat) if beat.epoch == JOINING else self._known(beat)
        is_new = member.member_id not in self.target
        if self._update(member, beat) | self._topics_changed() or is_new:
            self._reassign()
        before = member.assigned
        member.assigned = self.target[member.member_id]
        if member.epoch != self.assignment_epoch:
            member.previous_epoch, member.epoch = member.epoch, self.assignment_epoch
        self._restart_session(member)
        self.script.wake()
        # A member sends its subscription when it joins and after an error: send its assignment.
        has_assignment = beat.topics is not None or before != member.assigned
        return ShareReply(
            member.member_id, member.epoch, member.assigned if has_assignment else None
        )

    def _join(self, beat: ShareHeartbeat) -> ShareMember:
        known = self.members.get(beat.member_id)
        if known is not None:
            return known
        if len(self.members) >= self.groups.setting("group.share.max.size"):
            raise GroupRefusedError(errors.GroupMaxSizeReached)
        member = ShareMember(beat.member_id, beat.client_id, beat.client_host)
        self.members[member.member_id] = member
        return member

    def _known(self, beat: ShareHeartbeat) -> ShareMember:
        member = self._named(beat.member_id)
        # A member that sends its previous epoch has missed the response with the new epoch.
        if beat.epoch not in (member.epoch, member.previous_epoch):
            raise GroupRefusedError(errors.FencedMemberEpoch)
        return member

    def _named(self, member_id: str) -> ShareMember:
        member = self.members.get(member_id)
        if member is None:
            raise GroupRefusedError(errors.UnknownMemberIdError)
        return member

    def _update(self, member: ShareMember, beat: ShareHeartbeat) -> bool:
        """Update the member; return whether its subscription has changed."""
        before = member.topics
        if beat.topics is not None:
            member.topics = tuple(sorted(beat.topics))
        if beat.rack_id is not None:
            member.rack_id = beat.rack_id
        return before != member.topics

    def _topics_changed(self) -> bool:
        now = self.groups.topics()
        subscribed = sorted({name for m in self.members.values() for name in m.topics})
        relevant = {name: now[name] for name in subscribed if name in now}
        changed = relevant != self._known_topics
        self._known_topics = relevant
        self.groups.initialize_shares(self.group_id, relevant.values())
        return changed

    def _reassign(self) -> None:
        """Begin a group epoch with a new target assignment."""
        self.epoch += 1
        self.assignment_epoch = self.epoch
        wanted = {
            member.member_id: [
                (topic_id, index)
                for name in member.topics
                if name in self._known_topics
                for topic_id, count in [self._known_topics[name]]
                for index in range(count)
            ]
            for member in self.members.values()
        }
        self.target = assign(wanted, self.target)

    def rebalance(self) -> None:
        """Begin a group epoch, with an assignment that ignores the current one."""
        self.target = {}
        self._reassign()

    def fence(self, member_id: str) -> None:
        """Reject a member's next heartbeat with FENCED_MEMBER_EPOCH."""
        self._reassign()
        member = self.members[member_id]
        member.epoch = member.previous_epoch = self.epoch

    def remove(self, member_id: str) -> None:
        """Remove a member. The members with the same subscription take over its partitions at their
        next heartbeats. Records that the member has acquired are released later, when its share
        session ends."""
        member = self.members.pop(member_id)
        _cancel(member.expiry)
        self.target.pop(member_id, None)
        if self.members:
            self._reassign()
        else:
            self.epoch += 1

    def load(self, seconds: float) -> None:
        """Restart all member sessions after `seconds`, when a new coordinator has loaded the
        group."""
        for member in self.members.values():
            self._restart_session(member, seconds)

    def _restart_session(self, member: ShareMember, later: float = 0.0) -> None:
        _cancel(member.expiry)
        timeout = int(self.groups.group_setting(self.group_id, "share.session.timeout.ms")) / 1000
        loop = asyncio.get_running_loop()
        member.expiry = loop.call_later(later + timeout, self._expire, member)

    def _expire(self, member: ShareMember) -> None:
        if self.members.get(member.member_id) is member:
            self.remove(member.member_id)
            self.script.wake()

    def close(self) -> None:
        """Cancel all timers."""
        for member in self.members.values():
            _cancel(member.expiry)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def assign(
    wanted: Mapping[str, Sequence[TopicIdPartition]], former: Mapping[str, TopicIdPartitions]
) -> dict[str, TopicIdPartitions]:
    """Return the partitions of each member, as the assignor ``simple`` does.

    Each member gets the partition that the hash of its id selects, and keeps its partitions.
    Partitions without a member are distributed over the members. So each partition has a member,
    and each member has a partition, even with more members than partitions.

    Args:
        wanted: The partitions to which each member has subscribed.
        former: The current assignment.
    """
    found: dict[str, set[TopicIdPartition]] = {member: set() for member in wanted}
    for member, partitions in wanted.items():
        if partitions:
            found[member].add(partitions[abs(java_hash(member)) % len(partitions)])
            found[member] |= former.get(member, _NOTHING) & set(partitions)
    taken = set[TopicIdPartition]().union(*found.values())
    turns: dict[tuple[str, ...], int] = {}
    for slot in dict.fromkeys(slot for partitions in wanted.values() for slot in partitions):
        if slot not in taken:
            members = tuple(member for member in wanted if slot in wanted[member])
            turn = turns[members] = turns.get(members, -1) + 1
            found[members[turn % len(members)]].add(slot)
    return {member: frozenset(slots) for member, slots in found.items()}


def java_hash(text: str) -> int:
    """Return the hash code of a string as Java computes it."""
    value = 0
    for unit in _utf16(text):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def _utf16(text: str) -> Iterable[int]:
    data = text.encode("utf-16-be", "surrogatepass")
    return (int.from_bytes(data[i : i + 2], "big") for i in range(0, len(data), 2))
