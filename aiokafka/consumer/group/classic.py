"""The classic protocol: members join together, and the leader assigns (KIP-429)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from aiokafka._log import SubjectLog
from aiokafka._retry import Backoff
from aiokafka.consumer._arguments import some_topics
from aiokafka.consumer.group.assignors import (
    GroupAssignors,
    assignment_of,
    partitions_of,
    subscriptions_of,
)
from aiokafka.consumer.group.membership import GroupLink, GroupParts
from aiokafka.consumer.group.state import StandingState
from aiokafka.consumer.position.committed import Identity
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
    from aiokafka._config.consumer import ConsumerConfig
    from aiokafka.net.connection import BrokerConnection

__all__ = ["KEPT", "ClassicMember", "ClassicProtocol", "Joined", "Shares"]


# -- The classic group protocol from a member's side: join, sync, heartbeat, leave. One request at a


KEPT = (JoinGroupRequest, SyncGroupRequest)
"""What the coordinator keeps until other members have sent theirs."""

_PROTOCOL_TYPE = "consumer"
_FIRST_LEAVE_OF_SEVERAL = 3
_STABLE = "Stable"

# The broker answers a join when all members have joined or their time is up, and takes a moment.
_JOIN_SLACK = 5.0
# A heartbeat without a response for so long is sent a second time.
_PART_OF_SESSION = 1 / 3
_UUID_LENGTH, _UUID_DASHES = 36, 4


class Joined(NamedTuple):
    """A generation of the group.

    Only its leader learns of the members.
    """

    generation: int
    protocol: str
    members: dict[str, bytes]
    """What each member wants."""
    instances: dict[str, str]
    """Names of static members."""
    is_kept: bool = False
    """Whether the assignment stands, so that the leader makes no other (KIP-814)."""
    leads_untold: bool = False
    """Whether this is the leader, and was not told so: brokers before 3.2 name a static leader that
    was restarted by its former id, so that it makes no new assignment."""
    is_hosted: bool = False
    """Whether no member leads: the coordinator assigns, for the group is one of the consumer
    protocol, or was until this member joined (KIP-848)."""


class Shares(NamedTuple):
    """What the members of a group have agreed on."""

    topics: frozenset[str]
    """What they have subscribed to, all together."""
    partitions: frozenset[TopicPartition]
    """What they have, all together, and want as well."""
    strays: frozenset[TopicPartition]
    """What they have and do not want: those that were restarted with other topics."""


class ClassicMember:
    """Who this consumer is in a group of the classic protocol: a Membership.

    Owns: `member_id`, "" without membership; `generation`, -1 without one. All requests carry the
    static member's instance id (KIP-345).
    """

    def __init__(self, config: ConsumerConfig, link: GroupLink) -> None:
        self.link = link
        self.member_id = ""
        self.generation = -1
        self._group_id = link.group_id
        self._config = config
        self._instance_id = config.group_instance_id

    @property
    def identity(self) -> Identity:
        """Who commits."""
        return self.link.identity(self.generation, self.member_id)

    @property
    def is_member(self) -> bool:
        """Whether the group counts, or may count, this consumer as a member."""
        return bool(self.member_id)

    def forget_generation(self) -> None:
        """Forget the generation: the group has begun another without us."""
        self.generation = -1

    def forget_member(self) -> None:
        """Note that we are no member any more, by our own choice."""
        self.generation = -1
        self.member_id = ""

    def become_stale(self) -> None:
        """Note that we have left because the application does not ask for records."""
        self.forget_member()

    def fail(self) -> None:
        """Note that we are no member any more, and that nothing we do by ourselves mends it."""
        self.forget_member()

    async def join(self, protocols: Sequence[tuple[str, bytes]], reason: str) -> Joined:
        """Enter the next generation, waiting for the other members. Raises the response's error."""
        response = await self._join_once(protocols, reason)
        if response.error_code == MemberIdRequired.errno:
            self.member_id = response.member_id  # KIP-394: come back with it
            response = await self._join_once(protocols, reason)
        self.link.check(response.error_code)
        self.member_id = response.member_id
        is_leader = response.leader == response.member_id
        found = response.members if is_leader else []
        return Joined(
            response.generation_id,
            response.protocol_name or "",
            {m.member_id: bytes(m.metadata) for m in found},
            {m.member_id: m.group_instance_id for m in found if m.group_instance_id is not None},
            is_leader and bool(response.skip_assignment),
            not is_leader and self._is_former_self(response.leader),
            not response.leader,
        )

    def _is_former_self(self, member_id: str) -> bool:
        """Return whether the group gave this id to this static member: the name and a UUID."""
        name, unique = member_id[:-_UUID_LENGTH], member_id[-_UUID_LENGTH:]
        return name == f"{self._instance_id}-" and unique.count("-") == _UUID_DASHES

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
        if self._instance_id is not None:
            request.group_instance_id = self._instance_id
        limit = max(config.client.request_timeout, rebalance_timeout + _JOIN_SLACK)
        return await self.link.send(request, limit, patience=rebalance_timeout)

    async def sync(self, joined: Joined, shares: Mapping[str, bytes], is_owner: bool) -> bytes:
        """Return our assignment in that generation; the leader brings those of all members. Raises
        the response's error. `is_owner` says that no other member can have our former partitions
        before this succeeds."""
        config = self._config
        rebalance_timeout = config.rebalance_timeout or config.session_timeout
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=joined.generation,
            member_id=self.member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=joined.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=share)
                for member, share in shares.items()
            ],
        )
        if self._instance_id is not None:
            request.group_instance_id = self._instance_id
        limit = max(config.client.request_timeout, rebalance_timeout + _JOIN_SLACK)
        response = await self.link.send(request, limit, patience=rebalance_timeout)
        is_over = response.error_code == RebalanceInProgressError.errno
        if is_over and is_owner and self.generation >= 0:
            # The group goes on to the next generation without an assignment in this one. Until it
            # is there, a commit of what the member has from before has to name this one.
            self.generation = joined.generation
        self.link.check(response.error_code)
        # Only now. Between JoinGroup and the end of SyncGroup there is no assignment in the new
        # generation that a heartbeat could keep alive, or a commit refer to.
        self.generation = joined.generation
        return bytes(response.assignment)

    async def heartbeat(self) -> None:
        """Send a heartbeat. Raises the response's error."""
        request = HeartbeatRequest(
            group_id=self._group_id, generation_id=self.generation, member_id=self.member_id
        )
        if self._instance_id is not None:
            request.group_instance_id = self._instance_id
        session = self._config.session_timeout
        # Not longer: the session runs out while the first broker to be asked keeps silent.
        limit = min(self._config.client.request_timeout, session)
        response = await self.link.send_in_time(request, limit, session * _PART_OF_SESSION)
        self.link.check(response.error_code)

    async def shares(self) -> Shares | None:
        """Return what the members have in this generation; None while a rebalance is under way.
        Raises the response's error."""
        limit = min(self._config.client.request_timeout, self._config.session_timeout)
        request = DescribeGroupsRequest(groups=[self._group_id])
        for group in (await self.link.send(request, limit)).groups:
            if group.error_code:
                raise for_code(group.error_code)(f"group {self._group_id!r}")
            if group.group_state == _STABLE:
                return _shares_of(group.members)
        return None

    async def leave(self, reason: str) -> None:
        """Tell the group that we go, unless a static member, which is missed by the end of its
        session. Raises errors of the connection and of the response.

        A join that still waits for its response blocks its connection, so this takes another.
        """
        # Before the request: nothing may go out any more in the name of a member that leaves.
        member_id = self.member_id
        self.forget_member()
        if self._instance_id is not None:
            return

        def make(connection: BrokerConnection) -> LeaveGroupRequest:
            if connection.pick(LeaveGroupRequest) < _FIRST_LEAVE_OF_SEVERAL:
                return LeaveGroupRequest(group_id=self._group_id, member_id=member_id)
            member = MemberIdentity(member_id=member_id, reason=reason)
            return LeaveGroupRequest(group_id=self._group_id, members=[member])

        async def say() -> None:
            self.link.check((await self.link.send_aside(make)).error_code)

        await self.link.insist(say)


def _shares_of(members: Iterable[DescribedGroupMember]) -> Shares:
    topics: set[str] = set()
    partitions: set[TopicPartition] = set()
    strays: set[TopicPartition] = set()
    for member in members:
        metadata = ConsumerProtocolMemberMetadata.decode(bytes(member.member_metadata))
        topics.update(metadata.subscription)
        if member.member_assignment:
            assignment = ConsumerProtocolMemberAssignment.decode(bytes(member.member_assignment))
            for tp in assignment.partitions():
                (partitions if tp.topic in metadata.subscription else strays).add(tp)
    return Shares(frozenset(topics), frozenset(partitions), frozenset(strays))


log = logging.getLogger("aiokafka.consumer.group_coordinator")

_LOST = (UnknownMemberIdError, IllegalGenerationError)
# Part of the rebalance timeout, of which the application and the last commit have more than half.
_PART_TO_LOOK = 0.2


class ClassicProtocol:
    """Joins the group again and again, until the members agree, whenever there is a reason: the
    GroupProtocol of brokers of all versions.

    Owns: the topics and partitions that this member assigned as leader; whether an eager member
    has given up everything for a join that is still to come; whether a join is under way; whether
    it leads the group, as far as it knows; whether a static member has come back, and is to look if
    something was left out meanwhile, and whether the next join is because of that; whether the
    coordinator assigned the partitions.
    """

    def __init__(self, parts: GroupParts, member: ClassicMember) -> None:
        shared = parts.shared
        self.member = member
        self.session_timeout = shared.config.session_timeout
        self._client = shared.client
        self._config = shared.config
        self._subscriptions = shared.subscriptions
        self._log = SubjectLog(log, shared.config.subject)
        self._parts = parts
        self._standing = parts.standing
        self._commits = parts.commits
        self._handover = parts.handover
        self._assignors = GroupAssignors(
            shared.config.partition_assignment_strategy, shared.config.client.client_rack
        )
        self._is_revoked = False
        self._is_joining = False
        self._is_leader = False
        self._is_back = False
        self._is_hosted = False
        self._has_unread = False
        self._shared_out: dict[str, frozenset[int] | None] = {}

    @property
    def keeps_partitions(self) -> bool:
        """Whether the member is a cooperative one."""
        return self._assignors.is_cooperative

    @property
    def is_joining(self) -> bool:
        """Whether a JoinGroup or SyncGroup is out."""
        return self._is_joining

    @property
    def is_awaited(self) -> bool:
        """Whether this is a static member that joins as the leader, or may: the coordinator has the
        same one again if it can.

        1. The member joins, and is stopped. It says no goodbye.
        2. All have joined. Its own response, by which it would know that it has to assign, is not
           here yet, or metadata that it needs is not.
        3. If it ended now, the others would wait for its assignment until it is back, or its
           session is over.
        """
        is_static = self._config.group_instance_id is not None
        return self._is_joining and is_static and self._is_leader

    def has_work(self) -> bool:
        """Return whether there is a reason to join."""
        return self._standing.reason is not None

    # -- metadata ----------------------------------------------------------------------------------

    def on_metadata(self) -> None:
        """Join again if this member is the leader and the topics that it assigned have changed."""
        cluster = self._client.cluster
        for topic, numbers in self._shared_out.items():
            found = cluster.known_partitions(topic)
            if self._standing.is_joined and found is not None and found != numbers:
                self._standing.request_join(f"partitions of {topic} changed")

    # -- joining -----------------------------------------------------------------------------------

    async def advance(self) -> None:
        """Join until it works or is no longer wanted."""
        client = self._config.client
        delays = Backoff(client.retry_backoff, client.retry_backoff_max)
        try:
            while self._standing.may_take_part() and self._standing.reason is not None:
                reason = self._standing.reason
                try:
                    await self._join()
                    delays.reset()
                except KafkaError as error:
                    # Also of a join whose assignment makes no sense: without a reason the member
                    # would keep what it cannot read, until something else makes it join.
                    self._standing.restore_reason(reason)
                    self._on_join_failed(error)
                    if isinstance(error, _LOST) and self._standing.may_take_part():
                        # Not behind the pause: others read the partitions of this member by now.
                        await self._prepare()
                    await asyncio.sleep(delays.next())
        finally:
            self._is_joining = False
            self._standing.signal.notify()
            # After `unsubscribe()` they stay suspended until the group is left; see Group.
            if self._subscriptions.is_by_group:
                self._commits.resume()
            self._handover.release()

    async def _join(self) -> None:
        """Go through one generation: revoke, join, sync, take over.

        1. `_prepare()`: an eager member revokes everything; a cooperative one keeps all it has.
           With a pattern, the topics are looked up again.
        2. The pending reason is taken. One that comes up from here on leads to another join.
        3. JoinGroup and SyncGroup, in which the broker has us wait for the other members. Commits
           wait on our side: on this connection they would wait behind the join.
        4. The application may have subscribed to something else meanwhile. Then the assignment is
           not taken over, and the next join claims what we have in fact. Nor is it if the consumer
           is being stopped: then the generation was needed only for the last commit, or for others.
           An eager member has nothing then, and others may have what it had: there is nothing of it
           to commit any more, be it stopped or unsubscribed; only a commit that waits may be sent
           later, if it is about what this generation gave the member again (`_close_books()`).
        5. `_adopt()`: a cooperative member revokes what it has lost, and joins again so that others
           can get it; an eager one takes over all.
        """
        await self._prepare()
        await self._look_for_topics()
        if not self._standing.may_take_part():
            return
        reason = self._standing.take_reason()
        subscription = self._subscriptions.subscription
        topics = self._subscriptions.topics
        before = self.member.generation
        self._standing.unsettle()
        # No heartbeats from here on: the JoinGroup says as much, and on the same connection they
        # would wait behind it until their time is over.
        self._is_joining = True
        self._commits.suspend()
        told = self.member.generation if self._has_unread else -1
        joined = await self.member.join(self._assignors.protocols(topics, told), reason)
        shares = await self._share_out(joined)
        follows = joined.generation in (before, before + 1)
        # A leader that brings its assignment too late has given no other member anything, and no
        # other leader has, if it has missed none.
        is_owner = self.keeps_partitions or (follows and bool(shares))
        data = await self.member.sync(joined, shares, is_owner)
        self._is_joining = self._has_unread = False
        if not self.keeps_partitions:
            self._close_books(follows, data)
        self._log.info(
            "Member %s of generation %d, %s, assignor %s",
            self.member.member_id,
            joined.generation,
            f"leader of {len(joined.members)}" if joined.members else "no leader",
            joined.protocol,
        )
        if self._standing.is_stopping:
            if not self.keeps_partitions:
                self.member.forget_generation()
            return
        is_wanted = self._subscriptions.subscription is subscription
        if not is_wanted and self._assignors.is_cooperative:
            # No other member may get what we have in fact before we gave it up.
            data = assignment_of(self._handover.owned)
        assignment = self._assignors.accept(joined.protocol, joined.generation, data)
        if is_wanted:
            await self._adopt(frozenset(assignment.partitions()))
        self._is_back = before < 0 and self._config.group_instance_id is not None
        self._is_hosted = joined.is_hosted

    def _close_books(self, follows: bool, data: bytes) -> None:
        """End what an eager member had, except what is its own here, too. `follows` says that this
        is the generation that it had before, or the next: in one that it has missed its partitions
        may have been another member's, which has committed more."""
        self._handover.close_books()
        # After `unsubscribe()` that is over already, and partitions chosen by hand go on.
        if self._subscriptions.is_by_group:
            goes_on = follows and not self._standing.is_stopping
            self._commits.end_all_but(partitions_of(data) if goes_on else frozenset())

    async def _look_for_topics(self) -> None:
        """Refresh the metadata before a join by pattern.

        1. A topic is created, and one member finds it and joins.
        2. The others join because of that. Without the topic in their subscriptions they get
           nothing of it.
        3. When each of them finds it, the group rebalances again.

        At start there is metadata from a moment ago.
        """
        standing = self._standing
        if self._subscriptions.pattern is None or standing.is_starting:
            return
        if standing.may_take_part():
            known = self._client.force_metadata_update()
            limit = self._config.rebalance_timeout or self._config.session_timeout
            await asyncio.wait([known], timeout=limit * _PART_TO_LOOK)
            self._parts.on_metadata()

    async def _prepare(self) -> None:
        """Give up what a join needs: everything without membership, everything of an eager
        member."""
        # Each branch acts once for a join, however often that is tried (`_is_revoked`).
        if self.member.generation < 0:
            # Also if nothing is owned: the application may have unsubscribed since the group
            # removed us. What we claimed, the others would wait for us to give up (KIP-429).
            self._assignors.forget()
            if self._handover.owned and not self._is_revoked:
                await self._handover.lose()
                self._handover.release()
            elif not self._assignors.is_cooperative and not self._is_revoked:
                await self._handover.begin()
                self._is_revoked = True
        elif not self._assignors.is_cooperative and not self._is_revoked:
            owned = self._handover.owned
            if not owned:
                await self._handover.begin()
            elif not await self._handover.revoke(owned):
                self._assignors.forget()
                await self._handover.lose()
                self._handover.release()
                return
            self._is_revoked = True

    async def _share_out(self, joined: Joined) -> dict[str, bytes]:
        """Return the assignment of each member, if this one is the leader; {} otherwise."""
        was_leader, self._shared_out = bool(self._shared_out), {}
        self._is_leader = bool(joined.members) or joined.leads_untold
        if joined.leads_untold:
            # When its topics grow it joins, and then the group makes it assign.
            self._watch(self._subscriptions.topics)
            return {}
        if not joined.members:
            if was_leader and self._subscriptions.pattern is None:
                self._client.set_topics(self._subscriptions.topics)
            return {}
        members, malformed = subscriptions_of(joined.members, joined.instances)
        for member, error in malformed.items():
            # Not an error of this member: the others need an assignment, and its next leader would
            # fare no better.
            self._log.warning(
                "Member %s gets nothing, as what it says cannot be read: %s", member, error
            )
        topics = {topic for metadata in members.values() for topic in metadata.subscription}
        topics.discard("")  # no topic has that name, and other clients let programs ask for it
        await self._learn(topics)
        # No await from here to the assignment: what is watched is what was assigned from.
        self._watch(topics)
        if joined.is_kept:
            # A static leader that was restarted: the assignment stands, it only watches its topics.
            return {}
        return self._assignors.share_out(joined.protocol, self._client.cluster, members)

    async def _learn(self, topics: set[str]) -> None:
        """Ask for the topics that the members want, as far as they are not known; others may want
        topics that this one does not, or may have found a new one that matches a pattern first."""
        if self._subscriptions.pattern is None:
            known = self._client.set_topics(topics | self._subscriptions.topics)
        elif all(self._client.cluster.known_partitions(topic) for topic in topics):
            return
        else:
            known = self._client.force_metadata_update()
        # All members wait for this one. A topic that is not known in time is left out rather than
        # their sessions lost; when it appears there is another join (`on_metadata`).
        await asyncio.wait([known], timeout=self._config.session_timeout / 2)

    def _watch(self, topics: Iterable[str]) -> None:
        """Join again when the partitions of these topics change."""
        cluster = self._client.cluster
        self._shared_out = {topic: cluster.known_partitions(topic) for topic in topics}

    async def _adopt(self, assigned: frozenset[TopicPartition]) -> None:
        # Before anything is revoked: what is finished of it has to be stored first, and the new
        # generation is the one to do it in.
        self._commits.resume()
        self._is_revoked = False
        if self._assignors.is_cooperative:
            had_others = await self._handover.give_up_all_but(assigned)
            if not self._standing.may_take_part() or self.member.generation < 0:
                return  # the application has unsubscribed meanwhile, or the group removed us
            await self._handover.extend(assigned)
            if had_others:
                self._standing.request_join("partitions were given up for others")
        else:
            await self._handover.take_over(assigned)
        self._parts.settle()

    def _on_join_failed(self, error: KafkaError) -> None:
        """Note an error that another attempt may clear; raise any other."""
        is_news = str(error) != str(self._standing.trouble)
        if is_news and isinstance(error, KafkaProtocolError):
            # Perhaps what the leader has written, which no retry mends. But another may lead soon.
            self._log.warning("Not joined: %s", error)
        self._standing.note_trouble(error)
        if isinstance(error, _LOST):
            self._lose_membership(error)
        elif isinstance(error, RebalanceInProgressError):
            self._log.debug("Not joined: %s", error)
        elif not self._parts.errors.may_pass(error):
            raise error

    def forget(self) -> None:
        """Claim nothing with the next join: the assignment was given up."""
        self._is_revoked = False
        self._assignors.forget()

    # -- heartbeats --------------------------------------------------------------------------------

    async def send_heartbeats(self) -> None:
        """Keep the membership alive, until cancelled; look whether the application is."""
        client = self._config.client
        delays = Backoff(client.retry_backoff, client.retry_backoff_max)
        interval = min(self._config.heartbeat_interval, self._config.max_poll_interval / 2)
        loop = asyncio.get_running_loop()
        delay = interval
        while True:
            await asyncio.sleep(delay)
            delay = interval
            self._parts.polls.notice_idleness()
            is_idle = self._standing.state is StandingState.IDLE
            if self.member.generation < 0 or self._is_joining or is_idle:
                continue
            # An error is about the generation that the heartbeat named. By now a join may have
            # brought the next one, to which it means nothing.
            generation = self.member.generation
            sent_at = loop.time()
            try:
                await self.member.heartbeat()
                delays.reset()
                self._parts.errors.clear()
                if self._is_back:
                    await self._look_for_unread()
                # The session began again when it came to the coordinator, not with its response.
                delay = max(0.0, sent_at + interval - loop.time())
            except KafkaError as error:
                if generation == self.member.generation and not self._is_joining:
                    self._on_heartbeat_failed(error)
                    # Sooner than usual: the session is running out meanwhile.
                    delay = min(interval, delays.next())

    async def _look_for_unread(self) -> None:
        """Join again for partitions that no member reads, though the members agree.

        1. A static member that is back soon gets its former place, and no other joins (KIP-345).
        2. What would have followed from it, had it not gone, does not: others do not get what it
           had given up for them (KIP-429), and what was added while the leader was away is in no
           assignment (KIP-814). If it has come back with other topics, it has partitions that it
           does not want, and none that it does.
        3. This member asks for the assignments, once. It joins, and so the leader assigns again. A
           join of one that does not lead makes the group rebalance only if it says something new,
           which is the generation (KIP-792), as with Java's members.

        In a group with members of both protocols, it may have replaced the last one of the other.
        Then the coordinator has made the group a classic one, also without a rebalance: no member
        knows that it leads, and one that waited for partitions is not told that they are its own.
        """
        generation = self.member.generation
        try:
            shares = await self.member.shares()
        except KafkaError as error:
            self._log.debug("The assignments of the group are not known: %s", error)
            # Again with the next heartbeat, if that may help. What a member has written stays.
            is_malformed = isinstance(error, KafkaProtocolError)
            self._is_back = self._is_back and error.retriable and not is_malformed
            return
        if generation != self.member.generation or self._is_joining:
            return
        self._is_back = False
        if shares is None:
            return
        if self._is_hosted:
            self._has_unread = True
            self._standing.request_join("the group became a classic one without a rebalance")
        elif unread := self._unread(shares):
            self._has_unread = True
            # Not all of them: the coordinator is told why, and takes no text of over 32,767 bytes.
            self._standing.request_join(f"no member has {some_topics(unread)}")

    def _unread(self, shares: Shares) -> list[str]:
        """Return the topics of which no member reads some partition, as far as that is known."""
        cluster = self._client.cluster
        strays = {tp.topic for tp in shares.strays}
        return [
            topic
            for topic in sorted(shares.topics)
            if topic in strays
            or any(
                TopicPartition(topic, number) not in shares.partitions
                for number in cluster.known_partitions(topic) or ()
            )
        ]

    def _on_heartbeat_failed(self, error: KafkaError) -> None:
        if isinstance(error, RebalanceInProgressError):
            self._standing.request_join("the group is rebalancing")
        elif isinstance(error, _LOST):
            self._lose_membership(error)
        elif not self._parts.errors.may_pass(error):
            self._end_with(error)

    def _lose_membership(self, error: BaseException) -> None:
        """Join again, with nothing: the group has removed us."""
        if isinstance(error, IllegalGenerationError):
            # The group still knows the member by its id, and has only gone on without it: with the
            # id it gets its former place, and costs the others one rebalance less.
            self.member.forget_generation()
        else:
            self.member.forget_member()
        self._standing.unsettle()
        self._commits.lose()
        self._standing.request_join(f"the group removed us: {type(error).__name__}")

    def _end_with(self, error: KafkaError) -> None:
        self.member.fail()
        self._commits.lose()
        self._standing.begin_failing(error)

    def on_commit_refused(self, identity: Identity, error: CommitFailedError) -> None:
        """Join again, or end the membership: the group refused a commit of this generation."""
        cause = error.__cause__
        is_outdated = isinstance(cause, (IllegalGenerationError, RebalanceInProgressError))
        if self._is_joining and is_outdated:
            # `stop()` had it sent during a join: all members have joined, and the response to ours
            # brings the generation in which it is sent again.
            self._commits.suspend()
        elif isinstance(cause, (*_LOST, GroupIdNotFound)):
            self._lose_membership(cause)
        elif isinstance(cause, RebalanceInProgressError):
            self._standing.request_join("the group is rebalancing")
        elif isinstance(cause, BrokerResponseError):
            self._end_with(cause)

    async def catch_up(self, limit: float) -> None:
        """Wait, for `limit` seconds at most, for the end of a join: that brings the generation that
        a commit has to name, and others their assignments."""
        deadline = asyncio.get_running_loop().time() + limit
        while self._is_joining and await self._standing.signal.wait(deadline):
            pass

    def on_subscribed(self) -> None:
        """Do nothing: the pending join brings the new subscription."""
