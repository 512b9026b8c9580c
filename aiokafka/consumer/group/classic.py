"""The classic group protocol, eager or cooperative: members join, and the leader assigns."""

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
from aiokafka.protocol.messages.group_members import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.consumer.group.group import GroupMembership
    from aiokafka.net.connection import BrokerConnection
    from aiokafka.protocol.messages.groups import DescribedGroupMember

__all__ = ["ClassicMember", "ClassicProtocol", "DescribedAssignments", "JoinedGeneration"]

log = logging.getLogger("aiokafka.consumer.group_coordinator")


# -- The member and its requests: JoinGroup, SyncGroup, Heartbeat, LeaveGroup


_PROTOCOL_TYPE = "consumer"
_FIRST_LEAVE_OF_SEVERAL = 3
_STABLE = "Stable"

# The timeout of JoinGroup and SyncGroup is the request timeout, but at least the rebalance timeout
# plus this many seconds: the coordinator completes a join slightly after the rebalance timeout.
_JOIN_SLACK = 5.0
# Fraction of the session timeout after which a heartbeat without a response is sent a second time.
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
        """Whether this member is the leader but must not assign, because the group's assignment
        stays valid (SkipAssignment, KIP-814)."""
        self.is_restarted_leader = is_restarted_leader
        """Whether this member is a restarted static leader. To such a member, brokers before Kafka
        3.2 return its previous member id as the leader's id, and expect no assignment from it."""
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
        """Assigned partitions whose member subscribes to their topic."""
        self.unwanted = unwanted
        """Assigned partitions whose member does not subscribe to their topic: a static member that
        was restarted with other topics."""


class ClassicMember(Member):
    """A member of the classic protocol. If the member is static, all its requests have the instance
    id (KIP-345)."""

    held_requests = (JoinGroupRequest, SyncGroupRequest)

    def protocol(self, group: GroupMembership) -> ClassicProtocol:
        """Return the protocol of this member."""
        return ClassicProtocol(group, self)

    def forget_generation(self) -> None:
        """Forget the generation and keep the member id: the group has begun another generation
        without this member, or the generation was needed only to end a join during `stop()`."""
        self.generation = -1

    async def join(self, protocols: Sequence[tuple[str, bytes]], reason: str) -> JoinedGeneration:
        """Send JoinGroup, wait until all members have joined, and return the new generation. If the
        coordinator returns a member id only, send JoinGroup again with this id. Raises errors of
        the connection and of the response."""
        response = await self._join_once(protocols, reason)
        if response.error_code == MemberIdRequired.errno:
            self.member_id = response.member_id  # KIP-394
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
        """Return whether `member_id` is the instance id of this static member, a dash and a UUID:
        the coordinator gave such an id to an earlier process with the same instance id."""
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
        """Send SyncGroup and return this member's encoded assignment. Raises errors of the
        connection and of the response.

        Args:
            joined: The generation that `join()` returned.
            assignments: The assignments of all members if this member is the leader, else empty.
            is_owner: Whether this member still owns its previous partitions if SyncGroup fails,
                because no other member can have received them.
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
        # Set the generation only after SyncGroup has succeeded: before, the coordinator rejects
        # commits of this generation (REBALANCE_IN_PROGRESS).
        self.generation = joined.generation
        return bytes(response.assignment)

    async def heartbeat(self) -> None:
        """Send a heartbeat, and a second one if the first has no response after a third of the
        session timeout. Raises errors of the connection and of the response."""
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
        """Return the subscriptions and assignments of all members; None if the group is not stable,
        for example during a rebalance. Raises errors of the connection and of the response."""
        from aiokafka.protocol.messages.groups import DescribeGroupsRequest  # rarely needed

        limit = min(self._config.client.request_timeout, self._config.session_timeout)
        request = DescribeGroupsRequest(groups=[self._group_id])
        for group in (await self.coordinator.send(request, limit)).groups:
            if group.error_code:
                raise for_code(group.error_code)(f"group {self._group_id!r}")
            if group.group_state == _STABLE:
                return _described(group.members)
        return None

    async def leave(self, reason: str, leave: bool | None = None) -> None:
        """Leave the group. With `leave` False, and by default for a static member, send no request:
        the group keeps the member until its session expires. Raises errors of the connection and
        of the response.

        A pending JoinGroup blocks its connection, so LeaveGroup uses another connection.
        """
        # Forget the membership before the request, so that no later request has this identity.
        member_id = self.member_id
        self.forget_member()
        if not (self.instance_id is None if leave is None else leave):
            return

        def make(connection: BrokerConnection) -> LeaveGroupRequest:
            if connection.pick(LeaveGroupRequest) < _FIRST_LEAVE_OF_SEVERAL:
                return LeaveGroupRequest(group_id=self._group_id, member_id=member_id)
            member = MemberIdentity(
                member_id=member_id, group_instance_id=self.instance_id, reason=reason
            )
            return LeaveGroupRequest(group_id=self._group_id, members=[member])

        async def leave_once() -> None:
            response = await self.coordinator.send_past_join(make)
            self.coordinator.check(response.error_code)
            for member in response.members:
                self.coordinator.check(member.error_code)

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
# The metadata refresh before a join may take this part of the rebalance timeout; then the join
# continues without new metadata. `Rebalance.revoke` may take another 0.7 of the timeout, plus the
# time of the listener. The rest is left for JoinGroup: after the timeout, the group removes members
# that have not joined.
_METADATA_SHARE = 0.2


class ClassicProtocol(GroupProtocol):
    """Joins the group whenever there is a reason, such as a new subscription, and retries until
    SyncGroup has returned an assignment. For brokers of all versions.

    Owns:

    - `_is_revoked`: an eager member has revoked its partitions for a pending join.
    - `_is_joining`: a JoinGroup or SyncGroup is in flight.
    - `_is_leader`: this member was the leader of the last known generation.
    - `_assigned_topics`: topics with their partition numbers when this member, as leader, last
      assigned partitions. If a topic gets other partitions, the member rejoins.
    - `_must_check_unread`: a static member has joined without a generation, for example after a
      restart, and must check for partitions that no member reads.
    - `_forces_rebalance`: the group has to rebalance with the next join, because no member reads
      some partitions, or because of `enforce_rebalance()`.
    - `_is_assigned_by_broker`: the coordinator, not a leader, assigned the partitions (KIP-848).
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
        self._forces_rebalance = False
        self._is_assigned_by_broker = False
        self._assigned_topics: dict[str, frozenset[int] | None] = {}

    @property
    def keeps_partitions(self) -> bool:
        """Whether the member keeps its partitions during a join, as cooperative members do."""
        return self._assignors.is_cooperative

    @property
    def is_joining(self) -> bool:
        """Whether a JoinGroup or SyncGroup is in flight. The responses have the generation for
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

    def enforce_rebalance(self, reason: str) -> None:
        """Make the member join again because the application requires it (KIP-568). A call during
        a join leads to another join: the assignor's data in JoinGroup may have changed since.

        If a member that is not the leader joins again, the coordinator returns the present
        assignment, unless the member's subscription differs. So the subscription includes the
        generation.
        """
        self._forces_rebalance = True
        why = f": {reason}" if reason else ""
        self._state.request_join(f"the application enforces a rebalance{why}")

    def has_work(self) -> bool:
        """Return whether there is a reason to join."""
        return self._state.reason is not None

    def on_metadata(self) -> None:
        """Request a join if the member is joined, and a topic of `_assigned_topics` has other
        partitions than before. Topics that are missing in the metadata are ignored."""
        for topic, numbers in self._assigned_topics.items():
            found = self._client.cluster.known_partitions(topic)
            if self._state.is_joined and found is not None and found != numbers:
                self._state.request_join(f"partitions of {topic} changed")

    def on_subscribed(self) -> None:
        """Do nothing: the join that a new subscription requests includes the new topics."""

    # -- joining -----------------------------------------------------------------------------------

    async def advance(self) -> None:
        """Join, and join again while there is another reason and `may_proceed()`. Retry a failed
        join after a backoff. Raises errors that a retry cannot remove (`_on_join_failed()`)."""
        client = self._config.client
        delays = Backoff(client.retry_backoff, client.retry_backoff_max)
        try:
            while self._state.may_proceed() and self._state.reason is not None:
                reason = self._state.reason
                try:
                    await self._join()
                    delays.reset()
                except KafkaError as error:
                    # Restore the reason even if the assignment was malformed: without a reason the
                    # member would stay in the group without partitions.
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
        4. `_end_commits()`: commits of an eager member's previous partitions fail, because other
           members may have these partitions. A waiting commit stays valid if this generation
           assigned its partition to the member again.
        5. In two cases the assignment is not applied:

           - `stop()` was called. The join was completed only because the last commit needs the new
             generation, or other members need the assignment by this leader.
           - The application has changed the subscription during the join. The next JoinGroup of a
             cooperative member reports the partitions that the member still owns.
        6. `_adopt()`: a cooperative member revokes the partitions that are not in the assignment,
           and joins again so that other members can get them; an eager member assigns all
           partitions of the assignment.
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
        generation = self.member.generation if self._forces_rebalance else -1
        joined = await self.member.join(self._assignors.protocols(topics, generation), reason)
        assignments = await self._assign(joined)
        follows = joined.generation in (before, before + 1)
        # Only a leader assigns partitions. If this member is the leader and missed no generation,
        # nobody can have assigned its partitions to another member since its own last assignment:
        # it still owns them until SyncGroup succeeds.
        is_owner = self.keeps_partitions or (follows and bool(assignments))
        data = await self.member.sync(joined, assignments, is_owner)
        self._is_joining = False
        # If there is a new reason to join, another join follows. It may have to force a rebalance.
        self._forces_rebalance = self._forces_rebalance and self._state.reason is not None
        if not self.keeps_partitions:
            self._end_commits(follows, data)
        count = len(joined.members)
        self._log.info(
            "Joined as member %s in generation %d, %s, assignor %s",
            self.member.member_id,
            joined.generation,
            f"leader of {count} member{'s' * (count != 1)}" if count else "not the leader",
            joined.protocol,
        )
        if self._state.is_stopping:
            if not self.keeps_partitions:
                self.member.forget_generation()
            return
        is_wanted = self._subscriptions.subscription is subscription
        if not is_wanted and self._assignors.is_cooperative:
            # Report the partitions that this member still has as owned in the next JoinGroup:
            # otherwise the leader would assign them to other members before this member revokes
            # them (KIP-429).
            data = assignment_of(self._rebalance.owned)
        assignment = self._assignors.accept(joined.protocol, joined.generation, data)
        if is_wanted:
            await self._adopt(frozenset(assignment.partitions()))
        self._must_check_unread = before < 0 and self._config.group_instance_id is not None
        self._is_assigned_by_broker = joined.is_assigned_by_broker

    def _end_commits(self, follows: bool, data: bytes) -> None:
        """Fail the pending commits of an eager member's previous partitions.

        Commits of partitions that this generation assigns to the member again (`data`) stay valid,
        unless the member is stopping or missed a generation (`follows` is False): in the missed
        generation another member may have committed later offsets.
        """
        self._rebalance.forget_unsubscribed()
        # After `unsubscribe()` the group's commits have failed already, and commits of a manual
        # assignment continue.
        if self._subscriptions.is_by_group:
            continues = follows and not self._state.is_stopping
            self._commits.revoke_all_but(partitions_of(data) if continues else frozenset())

    async def _refresh_metadata(self) -> None:
        """Refresh the metadata before a join if the subscription is a pattern, for a part of the
        rebalance timeout at most. During `start()` the metadata is fresh.

        Without this refresh:

        1. A topic is created. One member finds it and joins.
        2. The other members join because of this rebalance. Members that do not subscribe to the
           topic yet get none of its partitions.
        3. Whenever one of these members finds the topic, the group rebalances again.
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
        """Before a join: drop all partitions if the member is in no generation, or revoke all
        partitions of an eager member. A cooperative member in a generation keeps its partitions."""
        # `_is_revoked` stays set until the next assignment: a retried join must not call the
        # listener again.
        if self.member.generation < 0:
            # The member is in no generation, so the next JoinGroup must report no owned partitions
            # (KIP-429): otherwise the leader would wait until this member revokes them. Do this
            # even if `owned` is empty: after `unsubscribe()`, `_assignors` may still have the
            # partitions of the last assignment.
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
        """Return the encoded assignment of each member if this member is the leader. Return {} if
        another member or the coordinator assigns, or the group's assignment stays valid."""
        was_leader, self._assigned_topics = bool(self._assigned_topics), {}
        self._is_leader = bool(joined.members) or joined.is_restarted_leader
        if joined.is_restarted_leader:
            # If these topics get more partitions, this member must rejoin: it is the leader.
            self._watch(self._subscriptions.topics)
            return {}
        if not joined.members:
            if was_leader and self._subscriptions.pattern is None:
                self._client.set_topics(self._subscriptions.topics)
            return {}
        members, malformed = subscriptions_of(joined.members, joined.instances)
        for member, error in malformed.items():
            # Raise no error in this consumer, the leader of the group: the other members need an
            # assignment, and another leader could not read the subscription either.
            self._log.warning(
                "Member %s gets no partitions, because its metadata is malformed: %s",
                member,
                error,
            )
        topics = {topic for metadata in members.values() for topic in metadata.subscription}
        topics.discard("")  # an invalid name, which other clients do not reject
        await self._learn(topics)
        # No await until `assign()`: `_watch` must see the metadata that the assignor uses.
        self._watch(topics)
        if joined.keeps_assignment:
            # This member is a restarted static leader. The group's assignment stays valid.
            return {}
        return self._assignors.assign(joined.protocol, self._client.cluster, members)

    async def _learn(self, topics: set[str]) -> None:
        """Wait for the metadata of topics that this member does not know, for half the session
        timeout at most: other members may subscribe to other topics, or may have found a new topic
        that matches the pattern."""
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
        """Store the present partitions of these topics: `on_metadata()` rejoins if they change."""
        cluster = self._client.cluster
        self._assigned_topics = {topic: cluster.known_partitions(topic) for topic in topics}

    async def _adopt(self, assigned: frozenset[TopicPartition]) -> None:
        # Resume commits first: `revoke_all_but()` commits finished records in the new generation.
        self._commits.resume()
        self._is_revoked = False
        if self._assignors.is_cooperative:
            has_revoked = await self._rebalance.revoke_all_but(assigned)
            if not self._state.may_proceed() or self.member.generation < 0:
                return  # after `unsubscribe()`, or the group removed the member
            await self._rebalance.assign_all(assigned)
            if has_revoked:
                self._state.request_join("partitions were revoked for other members")
        else:
            await self._rebalance.assign_only(assigned)
        self._complete_join()

    def _on_join_failed(self, error: KafkaError) -> None:
        """Log or report an error after which another attempt to join may succeed; raise any other
        error. If the group has removed the member, forget the membership."""
        is_news = str(error) != str(self._state.join_error)
        if is_news and isinstance(error, KafkaProtocolError):
            # A retry does not change a malformed assignment, but another leader may soon send a
            # valid assignment.
            self._log.warning("Join failed, trying again: %s", error)
        self._state.set_join_error(error)
        if isinstance(error, _LOST):
            self._lose_membership(error)
        elif isinstance(error, RebalanceInProgressError):
            self._log.debug("Join failed, trying again: %s", error)
        elif not self._errors.report(error):
            raise error

    def forget_assignment(self) -> None:
        """Report no owned partitions in the next JoinGroup."""
        self._is_revoked = False
        self._assignors.forget()

    # -- heartbeats --------------------------------------------------------------------------------

    async def send_heartbeats(self) -> None:
        """Check the poll timer at each heartbeat interval, until cancelled. Then send a heartbeat,
        unless the member is in no generation, is joining, or is IDLE."""
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
            # A join may complete before the heartbeat response arrives. Then an error in this
            # response concerns the previous generation, and is ignored.
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
        """Request a join if there is a partition of the group's topics that no member reads.

        1. A static member that restarts before its session expires gets its previous assignment,
           without a rebalance (KIP-345).
        2. Then some partitions may have no reader:

           - Its previous process had revoked partitions for other members, and was to rejoin
             (KIP-429). Without a rebalance the other members do not get them.
           - Partitions were added while the group had no leader (KIP-814).
           - The member was restarted with other topics: its assignment has the previous topics.
        3. So after its first heartbeat this member requests all assignments (DescribeGroups), and
           rejoins if a partition has no reader: the leader then assigns again. If a member that is
           not the leader rejoins, the group rebalances only if the member's metadata has changed.
           So the metadata includes the generation (KIP-792), as in the Java client.

        In a group with members of both protocols, this member may have replaced the last member of
        the consumer protocol. Then the coordinator has converted the group to the classic protocol,
        possibly without a rebalance: no member knows that it is the leader, and a member that waits
        for partitions gets none. So the member always rejoins.
        """
        generation = self.member.generation
        try:
            described = await self.member.describe_assignments()
        except KafkaError as error:
            self._log.debug("The assignments of the group are not known: %s", error)
            # After a retriable error try again with the next heartbeat, but not after malformed
            # metadata of a member.
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
            self._forces_rebalance = True
            self._state.request_join(
                "the group now uses the classic protocol, but did not rebalance"
            )
        elif unread := self._unread(described):
            self._forces_rebalance = True
            # Name only a few topics: the reason is sent in JoinGroup, as a string of at most 32,767
            # bytes.
            self._state.request_join(f"no member is assigned {some_topics(unread)}")

    def _unread(self, described: DescribedAssignments) -> list[str]:
        """Return the topics, sorted by name, with a partition that no member reads: it is assigned
        to no member, or to a member that does not subscribe to its topic."""
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
        """Request a join without partitions: the group has removed the member, or has begun another
        generation without it."""
        if isinstance(error, IllegalGenerationError):
            # The coordinator still knows the member id. Keep the id: a JoinGroup without id would
            # add a second member for this consumer.
            self.member.forget_generation()
        else:
            self.member.forget_member()
        self._state.invalidate_assignment()
        self._commits.on_removed()
        self._state.request_join(f"the group removed this member: {type(error).__name__}")

    # -- commits -----------------------------------------------------------------------------------

    def on_commit_refused(self, error: CommitFailedError) -> None:
        """Act on the error that rejected a commit:

        - REBALANCE_IN_PROGRESS or ILLEGAL_GENERATION while this member joins: suspend commits until
          the join is complete.
        - The coordinator does not know the member, its generation or the group: request a join
          without partitions.
        - REBALANCE_IN_PROGRESS while this member is not joining: request a join.
        - Any other error response: end the membership.
        """
        cause = error.__cause__
        is_outdated = isinstance(cause, (IllegalGenerationError, RebalanceInProgressError))
        if self._is_joining and is_outdated:
            # `stop()` sent the commit during a join, and all members have joined since. The next
            # attempt needs the new generation, which the response to JoinGroup has.
            self._commits.suspend()
        elif isinstance(cause, (*_LOST, GroupIdNotFound)):
            self._lose_membership(cause)
        elif isinstance(cause, RebalanceInProgressError):
            self._state.request_join("the group is rebalancing")
        elif isinstance(cause, BrokerResponseError):
            self._end_with(cause)

    async def await_generation(self, limit: float) -> None:
        """Wait for the end of a pending join, at most `limit` seconds: a commit needs the new
        generation, and other members need the assignment if this member is the leader."""
        deadline = asyncio.get_running_loop().time() + limit
        while self._is_joining and await self._state.signal.wait(deadline):
            pass
