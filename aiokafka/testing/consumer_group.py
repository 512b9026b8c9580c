"""The coordinator's state of a group of the consumer protocol (KIP-848).

The broker computes the assignment. Members of the classic protocol can join the group, too.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aiokafka import _clock, errors
from aiokafka.errors import KafkaProtocolError
from aiokafka.protocol.compiler import codec
from aiokafka.protocol.messages.group_members import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from aiokafka.testing.classic_group import GroupRefusedError, Joined, JoinRequest, Protocols

if TYPE_CHECKING:
    from aiokafka.testing.groups import Groups
    from aiokafka.testing.script import Script

JOINING, LEAVING, LEAVING_FOR_A_WHILE = 0, -1, -2
ASSIGNORS = ("uniform", "range")
_NOTHING: TopicIdPartitions = frozenset()


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The fields of a ConsumerGroupHeartbeat request. None means that a field is unchanged. The
    rebalance timeout is in seconds."""

    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout: float | None
    topics: Sequence[str] | None
    regex: str | None
    assignor: str | None
    owned: TopicIdPartitions | None
    client_id: str
    client_host: str

    @property
    def is_full(self) -> bool:
        """Whether the request has all fields: a member sends them when it joins, and after an error
        or a lost response."""
        subscribed = self.topics is not None or self.regex is not None
        return self.rebalance_timeout is not None and subscribed and self.owned is not None


@dataclass(slots=True, eq=False)
class ClassicState:
    """The additional state of a member of the classic protocol. The session timeout is in
    seconds."""

    session_timeout: float
    protocols: Protocols
    joining: asyncio.TimerHandle | None = None
    """Removes the member if it does not rejoin within its rebalance timeout after
    REBALANCE_IN_PROGRESS."""
    syncing: asyncio.TimerHandle | None = None
    """Removes the member if it sends no SyncGroup request within its rebalance timeout after it has
    joined."""

    @property
    def metadata(self) -> bytes:
        """The encoded subscription, which is the same for each protocol of the member."""
        return self.protocols[0][1]


@dataclass(slots=True, eq=False)
class ConsumerMember:
    """A member of a group of the consumer protocol."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rack_id: str | None = None
    rebalance_timeout: float = 45.0
    topics: tuple[str, ...] = ()
    regex: str | None = None
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = -1
    assigned: TopicIdPartitions = _NOTHING
    """The partitions that the member may consume."""
    revoking: TopicIdPartitions = _NOTHING
    """The partitions that the member must revoke and has not confirmed as revoked."""
    away: bool = False
    """Whether this is a static member that left temporarily, and keeps its partitions."""
    classic: ClassicState | None = None
    """The state of a member of the classic protocol; None for the consumer protocol."""
    expiry: asyncio.TimerHandle | None = None
    revocation: asyncio.TimerHandle | None = None


@dataclass(frozen=True, slots=True)
class Reply:
    """The fields of the response to a heartbeat."""

    member_id: str
    epoch: int
    assignment: TopicIdPartitions | None
    """None if the member knows its assignment already."""


@dataclass
class ConsumerGroup:
    """One group of the consumer protocol. The methods change the group at once. Requests that Kafka
    rejects raise GroupRefusedError.
    """

    group_id: str
    session_timeout: float
    max_size: int
    hosts_classic: bool
    """Whether classic members may join (group.consumer.migration.policy)."""
    groups: Groups
    """All groups of the cluster, to look up topics and to downgrade to a classic group."""
    script: Script
    """Its `wake` is called after every change, because a test may wait for the change
    (:meth:`FakeCluster.wait_for`)."""
    epoch: int = 1
    """Group epoch, which a change of members, subscriptions or topics increases."""
    assignment_epoch: int = 0
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    target: dict[str, TopicIdPartitions] = field(default_factory=dict)
    _known_topics: Mapping[str, tuple[bytes, int]] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """Kafka's name of the group's state."""
        if not self.members:
            return "Empty"
        settled = all(
            m.epoch == self.assignment_epoch and m.assigned == self.target[m.member_id]
            for m in self.members.values()
        )
        return "Stable" if settled else "Reconciling"

    @property
    def assignor(self) -> str:
        """The assignor that most members request; ``uniform`` if no member requests an assignor."""
        asked = [m.assignor for m in self.members.values() if m.assignor]
        return max(asked, key=asked.count) if asked else ASSIGNORS[0]

    # -- heartbeat -----------------------------------------------------------------------------

    def heartbeat(self, beat: Heartbeat) -> Reply:
        """Handle a ConsumerGroupHeartbeat request of a joining, present or leaving member."""
        if beat.epoch in (LEAVING, LEAVING_FOR_A_WHILE):
            return self._leave(beat)
        if beat.assignor is not None and beat.assignor not in ASSIGNORS:
            raise GroupRefusedError(errors.UnsupportedAssignor)
        member = self._join(beat) if beat.epoch == JOINING else self._known(beat)
        _end_classic(member)
        before = member.assigned
        reasons = (
            self._update(member, beat),
            self._topics_changed(),
            member.member_id not in self.target,
        )
        if any(reasons):
            self._reassign()
        self._reconcile(member, beat.owned)
        self._restart_session(member)
        self.script.wake()
        # A member sends all fields after a lost response: send the assignment again.
        has_assignment = beat.epoch == JOINING or beat.is_full or before != member.assigned
        return Reply(member.member_id, member.epoch, member.assigned if has_assignment else None)

    def _join(self, beat: Heartbeat) -> ConsumerMember:
        if beat.topics is None and beat.regex is None:
            raise GroupRefusedError(errors.InvalidRequestError)
        former = self._static(beat.instance_id)
        if former is not None and not former.away and former.classic is None:
            # Kafka rejects the request even if the same member repeats it after a lost response.
            raise GroupRefusedError(errors.UnreleasedInstanceId)
        known = self.members.get(beat.member_id)
        if known is not None and former is None:
            return known
        if known is None and len(self.members) >= self.max_size:
            raise GroupRefusedError(errors.GroupMaxSizeReached)
        member = ConsumerMember(beat.member_id, beat.instance_id, beat.client_id, beat.client_host)
        if former is not None:
            self._take_over(member, former)
        self.members[member.member_id] = member
        return member

    def _take_over(self, member: ConsumerMember, former: ConsumerMember) -> None:
        """Replace the static member `former`, which rejoins, by `member`, with the same
        subscription and partitions."""
        self._remove(former)
        member.topics, member.regex = former.topics, former.regex
        member.assignor = former.assignor
        member.assigned = former.assigned
        self.target[member.member_id] = self.target.pop(former.member_id, _NOTHING)

    def _known(self, beat: Heartbeat) -> ConsumerMember:
        member = self._named(beat)
        if beat.epoch == member.epoch:
            return member
        # A member that sends its previous epoch has missed the response with the new epoch, unless
        # it owns partitions outside its assignment.
        answer_was_lost = (
            beat.epoch == member.previous_epoch
            and beat.owned is not None
            and beat.owned <= member.assigned
        )
        if not answer_was_lost:
            raise GroupRefusedError(errors.FencedMemberEpoch)
        return member

    def _named(self, beat: Heartbeat) -> ConsumerMember:
        """Return the member of a request. Raise GroupRefusedError if the member is unknown, or
        another member has joined with the request's instance id.
        """
        if beat.instance_id is None:
            member = self.members.get(beat.member_id)
        else:
            member = self._static(beat.instance_id)
        if member is None:
            raise GroupRefusedError(errors.UnknownMemberIdError)
        if member.member_id != beat.member_id:
            raise GroupRefusedError(errors.FencedInstanceId)
        return member

    def _update(self, member: ConsumerMember, beat: Heartbeat) -> bool:
        """Update the member; return whether its subscription or assignor has changed. Raise
        GroupRefusedError for an invalid regular expression."""
        if beat.regex:
            _check_regex(beat.regex)
        before = (member.topics, member.regex, member.assignor)
        if beat.topics is not None:
            member.topics = tuple(sorted(beat.topics))
        if beat.regex is not None:
            member.regex = beat.regex or None
        if beat.assignor is not None:
            member.assignor = beat.assignor
        if beat.rack_id is not None:
            member.rack_id = beat.rack_id
        if beat.rebalance_timeout is not None:
            member.rebalance_timeout = beat.rebalance_timeout
        return before != (member.topics, member.regex, member.assignor)

    def _leave(self, beat: Heartbeat) -> Reply:
        member = self._named(beat)
        if beat.epoch == LEAVING_FOR_A_WHILE and member.instance_id is not None:
            member.away = True
            member.epoch = LEAVING_FOR_A_WHILE
            # The member has stopped consuming, so its revoked partitions are free at once.
            member.revoking = _NOTHING
            _cancel(member.revocation)
            member.revocation = None
            self._restart_session(member)
        else:
            self.remove(member.member_id)
        self.script.wake()
        return Reply(beat.member_id, beat.epoch, None)

    # -- classic members -----------------------------------------------------------------------

    def take_over(self, generation: int, members: Iterable[ConsumerMember]) -> None:
        """Continue a classic group, which was converted to this group: take over its members and
        their assignments."""
        self.epoch = self.assignment_epoch = generation
        for member in members:
            self.members[member.member_id] = member
            self.target[member.member_id] = member.assigned
            self._restart_session(member)

    def join(self, request: JoinRequest) -> Joined:
        """Handle a JoinGroup request: assign the free partitions at once, without a rebalance. If
        the member replaces the last member of the consumer protocol, convert the group to the
        classic protocol."""
        is_new = request.member_id not in self.members
        if is_new and len(self.members) >= self.max_size:
            raise GroupRefusedError(errors.GroupMaxSizeReached)
        self._check_protocols(request)
        is_dynamic = request.instance_id is None
        if not request.member_id and is_dynamic and request.needs_member_id:
            raise GroupRefusedError(errors.MemberIdRequired, str(_clock.random_uuid()))
        try:
            metadata = request.protocols[0][1]
            subscription = read_subscription(metadata, self.groups.topics())
        except KafkaProtocolError:
            raise GroupRefusedError(errors.UnknownError) from None
        former = self._static(request.instance_id)
        member = self._classic_member(request, former)
        self._update_classic(member, request, subscription)
        if former is not None and former.classic is None and self._is_classic:
            self.groups.downgrade(self, ())
        self.script.wake()
        protocol = request.protocols[0][0]
        return Joined(member.epoch, CONSUMERS, protocol, "", member.member_id, [])

    def _check_protocols(self, request: JoinRequest) -> None:
        names = {name for name, _ in request.protocols}
        for member in self.members.values():
            if member.classic is not None:
                names &= {name for name, _ in member.classic.protocols}
        is_known = request.protocol_type == CONSUMERS and bool(names)
        if not is_known or not self.hosts_classic:
            raise GroupRefusedError(errors.InconsistentGroupProtocolError)

    def _classic_member(
        self, request: JoinRequest, former: ConsumerMember | None
    ) -> ConsumerMember:
        """Return the known or new member; a static member that rejoins keeps its partitions."""
        instance_id, member_id = request.instance_id, request.member_id
        if member_id:
            if instance_id is not None:
                self._check_static(former, member_id)
            if (known := self.members.get(member_id)) is not None:
                return known
        else:
            member_id = str(_clock.random_uuid())
        member = ConsumerMember(member_id, instance_id, request.client_id, request.client_host)
        if former is not None:
            self._take_over(member, former)
        self.members[member_id] = member
        return member

    def _update_classic(
        self, member: ConsumerMember, request: JoinRequest, subscription: Subscription
    ) -> None:
        """Update a classic member, and assign the free partitions of its target to it."""
        _end_classic(member)
        member.classic = ClassicState(request.session_timeout, request.protocols)
        has_changed = member.topics != subscription.topics or member.regex is not None
        member.topics, member.regex = subscription.topics, None
        member.rack_id = subscription.rack_id or member.rack_id
        member.rebalance_timeout = request.rebalance_timeout
        if self._topics_changed() or has_changed or member.member_id not in self.target:
            self._reassign()
        self._reconcile(member, subscription.owned)
        member.classic.syncing = self._remove_later(member)
        self._restart_session(member)

    def sync(
        self, member_id: str, instance_id: str | None, generation: int, named: Sequence[str | None]
    ) -> bytes:
        """Handle a SyncGroup request; return the encoded assignment. `named` has the protocol type
        and name of the request, None in older versions."""
        member, classic = self._check_classic(member_id, instance_id, generation)
        real = (CONSUMERS, classic.protocols[0][0])
        if any(name not in (None, expected) for name, expected in zip(named, real, strict=True)):
            raise GroupRefusedError(errors.InconsistentGroupProtocolError)
        if self.epoch > member.epoch and not member.revoking:
            self._expect_rejoin(member, classic)
            raise GroupRefusedError(errors.RebalanceInProgressError)
        _cancel(classic.syncing)
        classic.syncing = None
        self._restart_session(member)
        return write_assignment(member.assigned, self.groups.topics(), classic.metadata)

    def classic_heartbeat(self, member_id: str, instance_id: str | None, generation: int) -> int:
        """Handle a Heartbeat request; return the error code, 0 if the member need not rejoin."""
        member, classic = self._check_classic(member_id, instance_id, generation)
        self._restart_session(member)
        missing = self.target[member_id] - member.assigned
        can_get_all = bool(missing) and all(self._is_free(slot, member) for slot in missing)
        if self.epoch == member.epoch and not member.revoking and not can_get_all:
            return 0
        self._expect_rejoin(member, classic)
        return errors.RebalanceInProgressError.errno

    def _check_classic(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> tuple[ConsumerMember, ClassicState]:
        if instance_id is not None:
            self._check_static(self._static(instance_id), member_id)
        member = self.members.get(member_id)
        if member is None or member.classic is None:
            raise GroupRefusedError(errors.UnknownMemberIdError)
        if member.epoch != generation:
            raise GroupRefusedError(errors.IllegalGenerationError)
        return member, member.classic

    def _check_static(self, static: ConsumerMember | None, member_id: str) -> None:
        if static is None:
            raise GroupRefusedError(errors.UnknownMemberIdError)
        if static.member_id != member_id:
            raise GroupRefusedError(errors.FencedInstanceId)

    def _expect_rejoin(self, member: ConsumerMember, classic: ClassicState) -> None:
        """Start the timer that removes a member if it does not rejoin within its rebalance
        timeout."""
        if classic.joining is None:
            classic.joining = self._remove_later(member)

    @property
    def _is_classic(self) -> bool:
        """Whether all members use the classic protocol."""
        return all(member.classic is not None for member in self.members.values())

    # -- assignment ----------------------------------------------------------------------------

    def _topics_changed(self) -> bool:
        now = self.groups.topics()
        subscribed = {name for m in self.members.values() for name in self._subscription(m, now)}
        relevant = {name: now[name] for name in subscribed}
        changed = relevant != self._known_topics
        self._known_topics = relevant
        return changed

    def _subscription(
        self, member: ConsumerMember, topics: Mapping[str, tuple[bytes, int]]
    ) -> list[str]:
        names = {name for name in member.topics if name in topics}
        if member.regex:
            names |= {name for name in topics if re.fullmatch(member.regex, name)}
        return sorted(names)

    def _reassign(self) -> None:
        """Begin a group epoch with a new target assignment."""
        self.epoch += 1
        topics = self.groups.topics()
        is_range = self.assignor == "range"
        members = (
            sorted(self.members.values(), key=_range_order) if is_range else self.members.values()
        )
        wanted = {m.member_id: self._subscription(m, topics) for m in members}
        self.target = (_range if is_range else _uniform)(wanted, topics, self.target)
        self.assignment_epoch = self.epoch

    def rebalance(self) -> None:
        """Begin a group epoch whose target assignment gives each member the partitions of another
        member with the same subscription."""
        self._reassign()
        alike: dict[tuple[tuple[str, ...], str | None], list[str]] = {}
        for member in self.members.values():
            alike.setdefault((member.topics, member.regex), []).append(member.member_id)
        for ids in alike.values():
            shares = [self.target[member_id] for member_id in ids]
            self.target.update(zip(ids, [*shares[1:], shares[0]], strict=True))

    def fence(self, member_id: str) -> None:
        """Make the coordinator reject a member's next heartbeat with FENCED_MEMBER_EPOCH: begin a
        group epoch, and set the member's epoch to it without informing the member.
        """
        self._reassign()
        member = self.members[member_id]
        member.epoch, member.previous_epoch = self.epoch, -1

    def _reconcile(self, member: ConsumerMember, owned: TopicIdPartitions | None) -> None:
        """Move a member towards its target assignment. First revoke partitions. When the member has
        revoked them, set its epoch to the assignment epoch, and assign free partitions."""
        target = self.target[member.member_id]
        if owned is not None and not owned & member.revoking:
            member.revoking = _NOTHING
        surplus = member.assigned - target
        if surplus:
            member.assigned &= target
            member.revoking |= surplus if owned is None or owned & surplus else _NOTHING
        if member.revoking:
            # For a classic member, `_expect_rejoin` starts the timer.
            if member.classic is None:
                self._expect_revocation(member)
            return
        _cancel(member.revocation)
        member.revocation = None
        if member.epoch != self.assignment_epoch:
            member.previous_epoch, member.epoch = member.epoch, self.assignment_epoch
        member.assigned |= {slot for slot in target if self._is_free(slot, member)}

    def _is_free(self, slot: TopicIdPartition, for_member: ConsumerMember) -> bool:
        return not any(
            slot in other.assigned or slot in other.revoking
            for other in self.members.values()
            if other is not for_member
        )

    def _expect_revocation(self, member: ConsumerMember) -> None:
        if member.revocation is None:
            member.revocation = self._remove_later(member)

    def _remove_later(self, member: ConsumerMember) -> asyncio.TimerHandle:
        """Start a timer that removes a member after its rebalance timeout."""
        loop = asyncio.get_running_loop()
        return loop.call_later(member.rebalance_timeout, self._expire, member)

    # -- leaving -------------------------------------------------------------------------------

    def remove(self, *member_ids: str) -> None:
        """Remove members, and assign their partitions to other members. If only classic members
        remain and the migration policy allows it, convert the group to the classic protocol."""
        leaving = [self.members[member_id] for member_id in member_ids]
        others = [m for m in self.members.values() if m.member_id not in member_ids]
        is_classic = all(member.classic is not None for member in others)
        was_mixed = any(member.classic is None for member in leaving)
        if others and is_classic and was_mixed and self.groups.downgrade(self, member_ids):
            return
        for member in leaving:
            self._remove(member)
            self.target.pop(member.member_id, None)
        self._reassign()

    def remove_named(self, names: Iterable[tuple[str, str | None]]) -> list[int]:
        """Remove members by member id, instance id, or both; return an error code for each name, 0
        for a removed member."""
        found: list[int | str] = [self._id_to_remove(*name) for name in names]
        leaving = dict.fromkeys(each for each in found if isinstance(each, str))
        if leaving:
            self.remove(*leaving)
            self.script.wake()
        return [0 if isinstance(each, str) else each for each in found]

    def _id_to_remove(self, member_id: str, instance_id: str | None) -> int | str:
        """Return the member id of the named member; an error code if the member is unknown, or if
        its member id differs from `member_id`."""
        if instance_id is None:
            member = self.members.get(member_id)
        else:
            member = self._static(instance_id)
        if member is None:
            return errors.UnknownMemberIdError.errno
        return (
            member.member_id
            if member_id in ("", member.member_id)
            else errors.FencedInstanceId.errno
        )

    def _remove(self, member: ConsumerMember) -> None:
        self._stop_timers(member)
        del self.members[member.member_id]

    def load(self, seconds: float) -> None:
        """Restart all member sessions after `seconds`, when a new coordinator has loaded the
        group.
        """
        for member in self.members.values():
            self._restart_session(member, seconds)

    def _restart_session(self, member: ConsumerMember, later: float = 0.0) -> None:
        _cancel(member.expiry)
        classic = member.classic
        session = self.session_timeout if classic is None else classic.session_timeout
        loop = asyncio.get_running_loop()
        member.expiry = loop.call_later(later + session, self._expire, member)

    def _expire(self, member: ConsumerMember) -> None:
        if self.members.get(member.member_id) is member:
            self.remove(member.member_id)
            self.script.wake()

    def _static(self, instance_id: str | None) -> ConsumerMember | None:
        if instance_id is None:
            return None
        found = (m for m in self.members.values() if m.instance_id == instance_id)
        return next(found, None)

    def close(self) -> None:
        """Cancel all timers."""
        for member in self.members.values():
            self._stop_timers(member)

    @staticmethod
    def _stop_timers(member: ConsumerMember) -> None:
        _cancel(member.expiry)
        _cancel(member.revocation)
        member.revocation = None
        _stop_classic(member)


def _check_regex(regex: str) -> None:
    try:
        re.compile(regex)
    except re.error:
        raise GroupRefusedError(errors.InvalidRegularExpression) from None


def _end_classic(member: ConsumerMember) -> None:
    """Make a member use the consumer protocol from now on; stop its classic timers."""
    _stop_classic(member)
    member.classic = None


def _stop_classic(member: ConsumerMember) -> None:
    if member.classic is not None:
        _cancel(member.classic.joining)
        _cancel(member.classic.syncing)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


def _range_order(member: ConsumerMember) -> tuple[bool, str]:
    """Return the sort key of a member for the range assignor: static members first, by instance
    id."""
    return member.instance_id is None, member.instance_id or member.member_id


def _range(
    wanted: Mapping[str, Sequence[str]],
    topics: Mapping[str, tuple[bytes, int]],
    _former: Mapping[str, TopicIdPartitions],
) -> dict[str, TopicIdPartitions]:
    """Assign consecutive partitions of each topic to each member that has subscribed to the topic,
    in the order of `wanted`."""
    found: dict[str, set[TopicIdPartition]] = {member: set() for member in wanted}
    for name, (topic_id, count) in topics.items():
        members = [member for member, names in wanted.items() if name in names]
        start = 0
        for index, member in enumerate(members):
            size = count // len(members) + (index < count % len(members))
            found[member] |= {(topic_id, p) for p in range(start, start + size)}
            start += size
    return {member: frozenset(slots) for member, slots in found.items()}


def _uniform(
    wanted: Mapping[str, Sequence[str]],
    topics: Mapping[str, tuple[bytes, int]],
    former: Mapping[str, TopicIdPartitions],
) -> dict[str, TopicIdPartitions]:
    """Spread partitions evenly over the members. Members keep their partitions, up to the rounded
    up average number of partitions of a member.
    """
    ids = {name: topics[name][0] for names in wanted.values() for name in names}
    allowed = {member: {ids[name] for name in names} for member, names in wanted.items()}
    slots = [(ids[name], p) for name in sorted(ids) for p in range(topics[name][1])]
    fair = -(-len(slots) // len(wanted)) if wanted else 0
    found: dict[str, set[TopicIdPartition]] = {member: set() for member in wanted}
    free = set(slots)
    for member in wanted:
        for slot in sorted(former.get(member, ())):
            if slot in free and slot[0] in allowed[member] and len(found[member]) < fair:
                found[member].add(slot)
                free.discard(slot)
    for slot in (slot for slot in slots if slot in free):
        takers = [member for member in wanted if slot[0] in allowed[member]]
        found[min(takers, key=lambda member: len(found[member]))].add(slot)
    _balance(found, allowed)
    return {member: frozenset(assigned) for member, assigned in found.items()}


def _balance(
    found: dict[str, set[TopicIdPartition]], allowed: Mapping[str, Iterable[bytes]]
) -> None:
    """Move partitions until the members' numbers of partitions differ by at most one, as far as
    subscriptions allow."""
    moved = True
    while moved:
        moved = False
        for poor in sorted(found, key=lambda member: len(found[member])):
            for rich in sorted(found, key=lambda member: -len(found[member])):
                if len(found[rich]) < len(found[poor]) + 2:
                    break
                slot = next((s for s in sorted(found[rich]) if s[0] in allowed[poor]), None)
                if slot is not None:
                    found[rich].remove(slot)
                    found[poor].add(slot)
                    moved = True
                    break


# -- Encoding of the subscriptions and assignments of classic members


CONSUMERS = "consumer"
"""The protocol type of consumer groups."""
TopicIdPartition = tuple[bytes, int]
"""Topic id and partition."""
TopicIdPartitions = frozenset[TopicIdPartition]
Topics = Mapping[str, tuple[bytes, int]]
"""Topic name to its id and number of partitions."""

_NEWEST = 3
_VERSION_BYTES = 2


@dataclass(frozen=True, slots=True)
class Subscription:
    """The decoded subscription of a classic member."""

    topics: tuple[str, ...]
    owned: TopicIdPartitions
    rack_id: str | None


def read_subscription(metadata: bytes, topics: Topics) -> Subscription:
    """Decode the subscription in a JoinGroup request.

    Raises:
        KafkaProtocolError: the subscription is malformed.
    """
    version = _version_of(metadata)
    if version < 0:
        raise KafkaProtocolError("no version")
    found, _ = codec(ConsumerProtocolSubscription, version).decode_prefix(metadata, _VERSION_BYTES)
    owned = _slots(found.owned_partitions, topics)
    return Subscription(tuple(sorted(found.topics)), owned, found.rack_id)


def read_assignment(assignment: bytes, topics: Topics) -> TopicIdPartitions:
    """Decode the assignment that the leader of a classic group has computed for a member. Omit
    deleted topics.

    Raises:
        KafkaProtocolError: the assignment is malformed.
        GroupRefusedError: the assignment has a partition that does not exist.
    """
    if not assignment:
        return frozenset()
    version = _version_of(assignment)
    if version < 0:
        raise KafkaProtocolError("no version")
    found, _ = codec(ConsumerProtocolAssignment, version).decode_prefix(assignment, _VERSION_BYTES)
    slots = _slots(found.assigned_partitions, topics)
    counts = dict(topics.values())
    if any(number >= counts[topic_id] for topic_id, number in slots):
        raise GroupRefusedError(errors.UnknownError)
    return slots


def write_assignment(slots: TopicIdPartitions, topics: Topics, metadata: bytes) -> bytes:
    """Encode an assignment, in the version of the member's subscription (`metadata`). Omit deleted
    topics."""
    names = {topic_id: name for name, (topic_id, _) in topics.items()}
    by_topic: dict[str, list[int]] = {}
    for topic_id, number in sorted(slots):
        if topic_id in names:
            by_topic.setdefault(names[topic_id], []).append(number)
    version = max(_version_of(metadata), 0)
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=name, partitions=numbers) for name, numbers in by_topic.items()
        ]
    )
    body = codec(ConsumerProtocolAssignment, version).encode_bytes(message)
    return version.to_bytes(_VERSION_BYTES, "big") + body


def _version_of(data: bytes) -> int:
    """Return the version of an encoded subscription or assignment, limited to the newest known
    version; -1 for bytes without a version."""
    if len(data) < _VERSION_BYTES:
        return -1
    return min(int.from_bytes(data[:_VERSION_BYTES], "big", signed=True), _NEWEST)


def _slots(partitions: list[TopicPartition], topics: Topics) -> TopicIdPartitions:
    """Replace topic names by topic ids; omit the partitions of unknown topics."""
    return frozenset(
        (topics[entry.topic][0], number)
        for entry in partitions
        if entry.topic in topics
        for number in entry.partitions
    )
