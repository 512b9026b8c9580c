"""The classic group protocol: all members join together, and the leader assigns (KIP-429)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from aiokafka._retry import Backoff
from aiokafka.consumer._arguments import some_topics
from aiokafka.consumer.group.assignors import (
    GroupAssignors,
    assignment_of,
    partitions_of,
    subscriptions_of,
)
from aiokafka.consumer.group.membership import GroupProtocol, Member
from aiokafka.consumer.group.state import MembershipState
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    GroupIdNotFound,
    IllegalGenerationError,
    KafkaError,
    KafkaProtocolError,
    MemberIdRequired,
    RebalanceInProgressError,
    UnknownMemberIdError,
    for_code,
)
from aiokafka.protocol.messages.groups import DescribedGroupMember, DescribeGroupsRequest
from aiokafka.protocol.messages.heartbeat import HeartbeatRequest
from aiokafka.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from aiokafka.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aiokafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.consumer.group.group import GroupMembership
    from aiokafka.net.connection import BrokerConnection

__all__ = ["ClassicMember", "ClassicProtocol", "DescribedAssignments", "JoinedGeneration"]

log = logging.getLogger("aiokafka.consumer.group_coordinator")


# -- The member and its requests: JoinGroup, SyncGroup, Heartbeat, LeaveGroup


_PROTOCOL_TYPE = "consumer"
_FIRST_LEAVE_OF_SEVERAL = 3
_STABLE = "Stable"

# Seconds added to the rebalance timeout for the timeout of a JoinGroup or SyncGroup: the
# coordinator completes a join slightly after the rebalance timeout.
_JOIN_SLACK = 5.0
# Part of the session timeout after which a heartbeat without a response is sent a second time.
_RESEND_SHARE = 1 / 3
_UUID_LENGTH, _UUID_DASHES = 36, 4


class JoinedGeneration:
    """A generation of the group, from the JoinGroup response."""

    __slots__ = (
        "generation",
        "instances",
        "is_assigned_by_broker",
        "is_restarted_leader",
        "keeps_assignment",
        "members",
        "protocol",
    )

    def __init__(
        self,
        generation: int,
        protocol: str,
        members: dict[str, bytes],
        instances: dict[str, str],
        keeps_assignment: bool = False,
        is_restarted_leader: bool = False,
        is_assigned_by_broker: bool = False,
    ) -> None:
        self.generation = generation
        self.protocol = protocol
        self.members = members
        """The subscription of each member; empty unless this member is the leader."""
        self.instances = instances
        """The instance ids of static members by member id."""
        self.keeps_assignment = keeps_assignment
        """Whether the assignment stays valid, so that the leader must not assign (KIP-814)."""
        self.is_restarted_leader = is_restarted_leader
        """Whether this member is a restarted static leader. Brokers before 3.2 return the previous
        member id of such a leader as the leader's id, and expect no assignment from it."""
        self.is_assigned_by_broker = is_assigned_by_broker
        """Whether no member leads, because the coordinator assigns: the group has members of the
        consumer protocol, or had them until this member joined (KIP-848)."""


class DescribedAssignments:
    """Subscriptions and assignments of all members, from DescribeGroups."""

    __slots__ = ("partitions", "topics", "unwanted")

    def __init__(
        self,
        topics: frozenset[str],
        partitions: frozenset[TopicPartition],
        unwanted: frozenset[TopicPartition],
    ) -> None:
        self.topics = topics
        """The topics that any member subscribes to."""
        self.partitions = partitions
        """The assigned partitions of members that subscribe to the topic."""
        self.unwanted = unwanted
        """The assigned partitions of members that do not subscribe to the topic, because they were
        restarted with other topics."""


class ClassicMember(Member):
    """A member of the classic protocol. If the member is static, all its requests have the instance
    id (KIP-345)."""

    held_requests = (JoinGroupRequest, SyncGroupRequest)

    def protocol(self, group: GroupMembership) -> ClassicProtocol:
        """Return the protocol of this member."""
        return ClassicProtocol(group, self)

    def forget_generation(self) -> None:
        """Forget the generation: the group has begun another generation without this member."""
        self.generation = -1

    async def join(self, protocols: Sequence[tuple[str, bytes]], reason: str) -> JoinedGeneration:
        """Join the next generation, and return it when the other members have joined. Raises errors
        of the connection and of the response."""
        response = await self._join_once(protocols, reason)
        if response.error_code == MemberIdRequired.errno:
            self.member_id = response.member_id  # KIP-394: join again with this id
            response = await self._join_once(protocols, reason)
        self.coordinator.check(response.error_code)
        self.member_id = response.member_id
        is_leader = response.leader == response.member_id
        found = response.members if is_leader else []
        return JoinedGeneration(
            response.generation_id,
            response.protocol_name or "",
            {m.member_id: bytes(m.metadata) for m in found},
            {m.member_id: m.group_instance_id for m in found if m.group_instance_id is not None},
            is_leader and bool(response.skip_assignment),
            not is_leader and self._is_former_id(response.leader),
            not response.leader,
        )

    def _is_former_id(self, member_id: str) -> bool:
        """Return whether `member_id` consists of this member's instance id and a UUID, as an id of
        an earlier process of this static member."""
        name, unique = member_id[:-_UUID_LENGTH], member_id[-_UUID_LENGTH:]
        return name == f"{self.instance_id}-" and unique.count("-") == _UUID_DASHES

    async def _join_once(
        self, protocols: Sequence[tuple[str, bytes]], reason: str
    ) -> JoinGroupResponse:
        config = self._config
        rebalance_timeout = config.rebalance_timeout or config.session_timeout
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=round(config.session_timeout * 1000),
            rebalance_timeout_ms=round(rebalance_timeout * 1000),
            member_id=self.member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols
            ],
            reason=reason,
        )
        if self.instance_id is not None:
            request.group_instance_id = self.instance_id
        limit = max(config.client.request_timeout, rebalance_timeout + _JOIN_SLACK)
        return await self.coordinator.send(request, limit, patience=rebalance_timeout)

    async def sync(
        self, joined: JoinedGeneration, assignments: Mapping[str, bytes], is_owner: bool
    ) -> bytes:
        """Return this member's encoded assignment. Raises errors of the connection and response.

        Args:
            assignments: The assignments of all members if this member is the leader, else empty.
            is_owner: Whether no other member can own the previous partitions of this member before
                the response.
        """
        config = self._config
        rebalance_timeout = config.rebalance_timeout or config.session_timeout
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=joined.generation,
            member_id=self.member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=joined.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=assignment)
                for member, assignment in assignments.items()
            ],
        )
        if self.instance_id is not None:
            request.group_instance_id = self.instance_id
        limit = max(config.client.request_timeout, rebalance_timeout + _JOIN_SLACK)
        response = await self.coordinator.send(request, limit, patience=rebalance_timeout)
        is_over = response.error_code == RebalanceInProgressError.errno
        if is_over and is_owner and self.generation >= 0:
            # The group rebalances again, so SyncGroup fails (REBALANCE_IN_PROGRESS), and this
            # generation has no assignment. Until the next generation begins, this member keeps its
            # previous partitions, and the coordinator accepts their commits only with the id of
            # this generation.
            self.generation = joined.generation
        self.coordinator.check(response.error_code)
        # Set the generation only after SyncGroup: heartbeats and commits cannot use a generation
        # without an assignment.
        self.generation = joined.generation
        return bytes(response.assignment)

    async def heartbeat(self) -> None:
        """Send a heartbeat. Raises errors of the connection and of the response."""
        request = HeartbeatRequest(
            group_id=self._group_id, generation_id=self.generation, member_id=self.member_id
        )
        if self.instance_id is not None:
            request.group_instance_id = self.instance_id
        session = self._config.session_timeout
        # Wait for the session timeout at most: afterwards, the group has removed this member.
        limit = min(self._config.client.request_timeout, session)
        response = await self.coordinator.send_in_time(request, limit, session * _RESEND_SHARE)
        self.coordinator.check(response.error_code)

    async def describe_assignments(self) -> DescribedAssignments | None:
        """Return the assignments of all members; None during a rebalance. Raises errors of the
        connection and of the response."""
        limit = min(self._config.client.request_timeout, self._config.session_timeout)
        request = DescribeGroupsRequest(groups=[self._group_id])
        for group in (await self.coordinator.send(request, limit)).groups:
            if group.error_code:
                raise for_code(group.error_code)(f"group {self._group_id!r}")
            if group.group_state == _STABLE:
                return _described(group.members)
        return None

    async def leave(self, reason: str) -> None:
        """Leave the group. A static member sends no request: the group keeps it until its session
        expires. Raises errors of the connection and of the response.

        A pending JoinGroup blocks its connection, so LeaveGroup uses another connection.
        """
        # Forget the membership before the request, so that no later request has this identity.
        member_id = self.member_id
        self.forget_member()
        if self.instance_id is not None:
            return

        def make(connection: BrokerConnection) -> LeaveGroupRequest:
            if connection.pick(LeaveGroupRequest) < _FIRST_LEAVE_OF_SEVERAL:
                return LeaveGroupRequest(group_id=self._group_id, member_id=member_id)
            member = MemberIdentity(member_id=member_id, reason=reason)
            return LeaveGroupRequest(group_id=self._group_id, members=[member])

        async def leave_once() -> None:
            response = await self.coordinator.send_past_join(make)
            self.coordinator.check(response.error_code)

        await self.coordinator.retry_until_ready(leave_once)


def _described(members: Iterable[DescribedGroupMember]) -> DescribedAssignments:
    topics: set[str] = set()
    partitions: set[TopicPartition] = set()
    unwanted: set[TopicPartition] = set()
    for member in members:
        metadata = ConsumerProtocolMemberMetadata.decode(bytes(member.member_metadata))
        topics.update(metadata.subscription)
        if member.member_assignment:
            assignment = ConsumerProtocolMemberAssignment.decode(bytes(member.member_assignment))
            for tp in assignment.partitions():
                (partitions if tp.topic in metadata.subscription else unwanted).add(tp)
    return DescribedAssignments(frozenset(topics), frozenset(partitions), frozenset(unwanted))


# -- The protocol: when the member joins, and how it handles errors


_LOST = (UnknownMemberIdError, IllegalGenerationError)
# Part of the rebalance timeout for the metadata refresh before a join. More than half of the
# timeout is for the application and the last commit.
_METADATA_SHARE = 0.2


class ClassicProtocol(GroupProtocol):
    """Joins the group whenever there is a reason, such as a new subscription, and rejoins until the
    assignment is complete. For brokers of all versions.

    Owns: the topics and partition numbers that this member watches as leader; whether an eager
    member has revoked everything for a pending join; whether a join is in progress; whether this
    member led the group in the last known generation; whether a static member has restarted, and
    must check for partitions that no member reads; whether the next join is for such partitions;
    whether the coordinator assigned the partitions.
    """

    member: ClassicMember

    def __init__(self, group: GroupMembership, member: ClassicMember) -> None:
        super().__init__(group)
        self.member = member
        self.session_timeout = self._config.session_timeout
        self._assignors = GroupAssignors(
            self._config.partition_assignment_strategy, self._config.client.client_rack
        )
        self._is_revoked = False
        self._is_joining = False
        self._is_leader = False
        self._must_check_unread = False
        self._rejoins_for_unread = False
        self._is_assigned_by_broker = False
        self._assigned_topics: dict[str, frozenset[int] | None] = {}

    @property
    def keeps_partitions(self) -> bool:
        """Whether the member keeps its partitions during a join, as cooperative members do."""
        return self._assignors.is_cooperative

    @property
    def is_joining(self) -> bool:
        """Whether a JoinGroup or SyncGroup is in flight. Its response brings the generation for
        later commits."""
        return self._is_joining

    @property
    def is_awaited(self) -> bool:
        """Whether `stop()` must complete the pending join, because other members may wait for the
        assignment of this member: it is a static member, and was the leader or is the leader now.

        1. The member joins, and is stopped. A static member sends no LeaveGroup.
        2. All members have joined. This member has not assigned yet: the response to JoinGroup is
           in flight, or metadata for the assignment is missing.
        3. If the member ended now, the other members would wait for the assignment until the member
           is restarted, or its session expires.
        """
        is_static = self._config.group_instance_id is not None
        return self._is_joining and is_static and self._is_leader

    def has_work(self) -> bool:
        """Return whether there is a reason to join."""
        return self._state.reason is not None

    def on_metadata(self) -> None:
        """Rejoin if the partitions of a watched topic have changed. Only the leader watches
        topics."""
        for topic, numbers in self._assigned_topics.items():
            found = self._client.cluster.known_partitions(topic)
            if self._state.is_joined and found is not None and found != numbers:
                self._state.request_join(f"partitions of {topic} changed")

    def on_subscribed(self) -> None:
        """Do nothing: the join that a new subscription requests includes the new topics."""

    # -- joining -----------------------------------------------------------------------------------

    async def advance(self) -> None:
        """Join until there is no further reason to join, or the member may not proceed. Retry after
        retriable errors."""
        client = self._config.client
        delays = Backoff(client.retry_backoff, client.retry_backoff_max)
        try:
            while self._state.may_proceed() and self._state.reason is not None:
                reason = self._state.reason
                try:
                    await self._join()
                    delays.reset()
                except KafkaError as error:
                    # Restore the reason even after a malformed assignment: without a reason, the
                    # member would not join again, and would have no assignment.
                    self._state.restore_reason(reason)
                    self._on_join_failed(error)
                    if isinstance(error, _LOST) and self._state.may_proceed():
                        # Drop the partitions before the pause: other members already read them.
                        await self._prepare()
                    await asyncio.sleep(delays.next())
        finally:
            self._is_joining = False
            self._state.signal.notify()
            # After `unsubscribe()` commits stay suspended until the member has left.
            if self._subscriptions.is_by_group:
                self._commits.resume()
            self._rebalance.release()

    async def _join(self) -> None:
        """Join one generation: revoke, JoinGroup, SyncGroup, assign.

        1. `_prepare()`: an eager member revokes all its partitions; a cooperative member keeps all.
           With a pattern, the metadata is refreshed.
        2. The reason to join is cleared. A later reason leads to another join.
        3. JoinGroup and SyncGroup, whose responses wait for the other members. Commits are
           suspended: on this connection they would wait behind the join.
        4. The application may have changed the subscription during the join. Then the assignment is
           not applied, and the next join claims the partitions that the member still owns. During
           `stop()` the assignment is not applied either: the generation was only needed for the
           last commit, or for other members. Commits of an eager member's previous partitions fail,
           because other members may have these partitions. A waiting commit is kept if this
           generation assigned the partition to the member again (`_end_commits()`).
        5. `_adopt()`: a cooperative member revokes the partitions that it no longer has, and joins
           again so that other members can get them; an eager member assigns all its partitions.
        """
        await self._prepare()
        await self._refresh_metadata()
        if not self._state.may_proceed():
            return
        reason = self._state.take_reason()
        subscription = self._subscriptions.subscription
        topics = self._subscriptions.topics
        before = self.member.generation
        self._state.invalidate_assignment()
        # Send no heartbeats from here on: JoinGroup renews the session, and on the same connection
        # a heartbeat would time out behind JoinGroup.
        self._is_joining = True
        self._commits.suspend()
        generation = self.member.generation if self._rejoins_for_unread else -1
        joined = await self.member.join(self._assignors.protocols(topics, generation), reason)
        assignments = await self._assign(joined)
        follows = joined.generation in (before, before + 1)
        # If this member missed no generation and is the leader, no other member has received
        # partitions since its last assignment: only the leader assigns.
        is_owner = self.keeps_partitions or (follows and bool(assignments))
        data = await self.member.sync(joined, assignments, is_owner)
        self._is_joining = self._rejoins_for_unread = False
        if not self.keeps_partitions:
            self._end_commits(follows, data)
        self._log.info(
            "Member %s of generation %d, %s, assignor %s",
            self.member.member_id,
            joined.generation,
            f"leader of {len(joined.members)}" if joined.members else "no leader",
            joined.protocol,
        )
        if self._state.is_stopping:
            if not self.keeps_partitions:
                self.member.forget_generation()
            return
        is_wanted = self._subscriptions.subscription is subscription
        if not is_wanted and self._assignors.is_cooperative:
            # Claim the partitions that this member still has: other members must not get them.
            data = assignment_of(self._rebalance.owned)
        assignment = self._assignors.accept(joined.protocol, joined.generation, data)
        if is_wanted:
            await self._adopt(frozenset(assignment.partitions()))
        self._must_check_unread = before < 0 and self._config.group_instance_id is not None
        self._is_assigned_by_broker = joined.is_assigned_by_broker

    def _end_commits(self, follows: bool, data: bytes) -> None:
        """Fail the pending commits of an eager member's previous partitions.

        Commits of partitions that this generation assigns to the member again continue, unless the
        member is stopping or missed a generation (`follows` is False): another member may have
        committed later offsets in the missed generation.
        """
        self._rebalance.forget_unsubscribed()
        # After `unsubscribe()` the group's commits have failed already, and commits of a manual
        # assignment continue.
        if self._subscriptions.is_by_group:
            continues = follows and not self._state.is_stopping
            self._commits.revoke_all_but(partitions_of(data) if continues else frozenset())

    async def _refresh_metadata(self) -> None:
        """Refresh the metadata before a join, if the subscription is a pattern.

        Without this refresh:

        1. A topic is created. One member finds it and joins.
        2. The other members join because of this rebalance. Members that do not subscribe to the
           topic yet get none of its partitions.
        3. Whenever one of these members finds the topic, the group rebalances again.

        During `start()` the metadata is fresh.
        """
        state = self._state
        if self._subscriptions.pattern is None or state.is_starting:
            return
        if state.may_proceed():
            known = self._client.force_metadata_update()
            limit = self._config.rebalance_timeout or self._config.session_timeout
            await asyncio.wait([known], timeout=limit * _METADATA_SHARE)
            self._group.on_metadata()

    async def _prepare(self) -> None:
        """Before a join, drop lost partitions, and revoke all partitions of an eager member."""
        # `_is_revoked` makes each branch act once for a join, even if the join is retried.
        if self.member.generation < 0:
            # Claim nothing in the next join. Forget claims even if no partition is owned: the
            # application may have unsubscribed since the group removed the member. Other members
            # would wait for the revocation of claimed partitions (KIP-429).
            self._assignors.forget()
            if self._rebalance.owned and not self._is_revoked:
                await self._rebalance.lose_all()
                self._rebalance.release()
            elif not self._assignors.is_cooperative and not self._is_revoked:
                await self._rebalance.begin_join()
                self._is_revoked = True
        elif not self._assignors.is_cooperative and not self._is_revoked:
            owned = self._rebalance.owned
            if not owned:
                await self._rebalance.begin_join()
            elif not await self._rebalance.revoke(owned):
                self._assignors.forget()
                await self._rebalance.lose_all()
                self._rebalance.release()
                return
            self._is_revoked = True

    async def _assign(self, joined: JoinedGeneration) -> dict[str, bytes]:
        """Return the assignment of each member, or {} if this member need not assign."""
        was_leader, self._assigned_topics = bool(self._assigned_topics), {}
        self._is_leader = bool(joined.members) or joined.is_restarted_leader
        if joined.is_restarted_leader:
            # When these topics get more partitions, this member rejoins, and then has to assign.
            self._watch(self._subscriptions.topics)
            return {}
        if not joined.members:
            if was_leader and self._subscriptions.pattern is None:
                self._client.set_topics(self._subscriptions.topics)
            return {}
        members, malformed = subscriptions_of(joined.members, joined.instances)
        for member, error in malformed.items():
            # Do not fail this member: the other members need an assignment, and another leader
            # could not read the subscription either.
            self._log.warning(
                "Member %s gets nothing, as what it says cannot be read: %s", member, error
            )
        topics = {topic for metadata in members.values() for topic in metadata.subscription}
        topics.discard("")  # an invalid name, which other clients accept from programs
        await self._learn(topics)
        # No await until `assign()`: `_watch` must see the metadata that the assignor uses.
        self._watch(topics)
        if joined.keeps_assignment:
            # A restarted static leader only watches its topics: the group's assignment stays valid.
            return {}
        return self._assignors.assign(joined.protocol, self._client.cluster, members)

    async def _learn(self, topics: set[str]) -> None:
        """Fetch metadata of unknown topics, at most for half the session timeout: other members may
        subscribe to other topics, or may know a new topic that matches a pattern."""
        if self._subscriptions.pattern is None:
            known = self._client.set_topics(topics | self._subscriptions.topics)
        elif all(self._client.cluster.known_partitions(topic) for topic in topics):
            return
        else:
            known = self._client.force_metadata_update()
        # All members wait for the leader, and their sessions must not expire. A topic that is still
        # unknown then is not assigned; `on_metadata()` rejoins when the topic appears.
        await asyncio.wait([known], timeout=self._config.session_timeout / 2)

    def _watch(self, topics: Iterable[str]) -> None:
        """Rejoin when the partitions of these topics change."""
        cluster = self._client.cluster
        self._assigned_topics = {topic: cluster.known_partitions(topic) for topic in topics}

    async def _adopt(self, assigned: frozenset[TopicPartition]) -> None:
        # Resume commits before `revoke_all_but()` commits finished records in the new generation.
        self._commits.resume()
        self._is_revoked = False
        if self._assignors.is_cooperative:
            has_revoked = await self._rebalance.revoke_all_but(assigned)
            if not self._state.may_proceed() or self.member.generation < 0:
                return  # after `unsubscribe()`, or the group removed the member
            await self._rebalance.assign_all(assigned)
            if has_revoked:
                self._state.request_join("partitions were given up for others")
        else:
            await self._rebalance.assign_only(assigned)
        self._complete_join()

    def _on_join_failed(self, error: KafkaError) -> None:
        """Handle an error after which another attempt to join may succeed; raise any other
        error."""
        is_news = str(error) != str(self._state.join_error)
        if is_news and isinstance(error, KafkaProtocolError):
            # A retry does not change a malformed assignment, but another leader may soon send a
            # valid assignment.
            self._log.warning("Not joined: %s", error)
        self._state.set_join_error(error)
        if isinstance(error, _LOST):
            self._lose_membership(error)
        elif isinstance(error, RebalanceInProgressError):
            self._log.debug("Not joined: %s", error)
        elif not self._errors.report(error):
            raise error

    def forget_assignment(self) -> None:
        """Claim no partitions in the next join."""
        self._is_revoked = False
        self._assignors.forget()

    # -- heartbeats --------------------------------------------------------------------------------

    async def send_heartbeats(self) -> None:
        """Send heartbeats and check the poll timer, until cancelled."""
        client = self._config.client
        delays = Backoff(client.retry_backoff, client.retry_backoff_max)
        interval = min(self._config.heartbeat_interval, self._config.max_poll_interval / 2)
        loop = asyncio.get_running_loop()
        delay = interval
        while True:
            await asyncio.sleep(delay)
            delay = interval
            self._poll_timer.check()
            is_idle = self._state.current is MembershipState.IDLE
            if self.member.generation < 0 or self._is_joining or is_idle:
                continue
            # A join may bring the next generation before the heartbeat response. Then an error for
            # the previous generation is ignored.
            generation = self.member.generation
            sent_at = loop.time()
            try:
                await self.member.heartbeat()
                delays.reset()
                self._errors.clear()
                if self._must_check_unread:
                    await self._check_unread()
                # Count the interval from the request, at which the coordinator renews the session.
                delay = max(0.0, sent_at + interval - loop.time())
            except KafkaError as error:
                if generation == self.member.generation and not self._is_joining:
                    self._on_heartbeat_failed(error)
                    # Retry sooner than after the interval, before the session expires.
                    delay = min(interval, delays.next())

    async def _check_unread(self) -> None:
        """Rejoin if no member reads some partition of the group's topics.

        1. A static member that restarts before its session expires gets its previous assignment,
           without a rebalance (KIP-345).
        2. A rebalance that its previous process had begun does not take place: other members do not
           get the partitions that this process had revoked for them (KIP-429). Partitions that were
           added while the group had no leader are in no assignment (KIP-814). If the member was
           restarted with other topics, it has an assignment of the previous topics.
        3. So this member requests the assignments, once, and rejoins if needed, which makes the
           leader assign again. For a member that is not the leader, the group rebalances only if
           the member's metadata has changed, so it includes the generation (KIP-792), like Java.

        In a group with members of both protocols, this member may have replaced the last member of
        the consumer protocol. Then the coordinator has converted the group to the classic protocol,
        possibly without a rebalance: no member knows that it is the leader, and a member that waits
        for partitions gets none.
        """
        generation = self.member.generation
        try:
            described = await self.member.describe_assignments()
        except KafkaError as error:
            self._log.debug("The assignments of the group are not known: %s", error)
            # Retry with the next heartbeat after a retriable error, except for malformed metadata.
            is_malformed = isinstance(error, KafkaProtocolError)
            is_retriable = error.retriable and not is_malformed
            self._must_check_unread = self._must_check_unread and is_retriable
            return
        if generation != self.member.generation or self._is_joining:
            return
        self._must_check_unread = False
        if described is None:
            return
        if self._is_assigned_by_broker:
            self._rejoins_for_unread = True
            self._state.request_join("the group became a classic one without a rebalance")
        elif unread := self._unread(described):
            self._rejoins_for_unread = True
            # A few names only: JoinGroup has the reason, with at most 32,767 bytes.
            self._state.request_join(f"no member has {some_topics(unread)}")

    def _unread(self, described: DescribedAssignments) -> list[str]:
        """Return the topics with a known partition that no member reads."""
        cluster = self._client.cluster
        unwanted = {tp.topic for tp in described.unwanted}
        return [
            topic
            for topic in sorted(described.topics)
            if topic in unwanted
            or any(
                TopicPartition(topic, number) not in described.partitions
                for number in cluster.known_partitions(topic) or ()
            )
        ]

    def _on_heartbeat_failed(self, error: KafkaError) -> None:
        if isinstance(error, RebalanceInProgressError):
            self._state.request_join("the group is rebalancing")
        elif isinstance(error, _LOST):
            self._lose_membership(error)
        elif not self._errors.report(error):
            self._end_with(error)

    def _lose_membership(self, error: BaseException) -> None:
        """Join again without partitions: the group has removed the member."""
        if isinstance(error, IllegalGenerationError):
            # The group has only begun another generation, and still knows the member id. Joining
            # with this id adds no second member for this consumer.
            self.member.forget_generation()
        else:
            self.member.forget_member()
        self._state.invalidate_assignment()
        self._commits.on_removed()
        self._state.request_join(f"the group removed us: {type(error).__name__}")

    # -- commits -----------------------------------------------------------------------------------

    def on_commit_refused(self, error: CommitFailedError) -> None:
        """Rejoin, or end the membership: the coordinator rejected the generation of a commit."""
        cause = error.__cause__
        is_outdated = isinstance(cause, (IllegalGenerationError, RebalanceInProgressError))
        if self._is_joining and is_outdated:
            # `stop()` sent the commit during a join. All members have joined since, and the
            # response to JoinGroup brings the generation for the next attempt.
            self._commits.suspend()
        elif isinstance(cause, (*_LOST, GroupIdNotFound)):
            self._lose_membership(cause)
        elif isinstance(cause, RebalanceInProgressError):
            self._state.request_join("the group is rebalancing")
        elif isinstance(cause, BrokerResponseError):
            self._end_with(cause)

    async def await_generation(self, limit: float) -> None:
        """Wait for the end of a pending join, at most `limit` seconds. The join brings the
        generation for a commit, and sends the leader's assignment to the other members."""
        deadline = asyncio.get_running_loop().time() + limit
        while self._is_joining and await self._state.signal.wait(deadline):
            pass
