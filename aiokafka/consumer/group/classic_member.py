"""The classic group protocol from a member's side: join, sync, heartbeat, leave. One request at a
time; what to do about an error is up to the ClassicProtocol."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from aiokafka.consumer.group.membership import GroupLink
from aiokafka.consumer.position.committed import Identity
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)
from aiokafka.errors import MemberIdRequired, RebalanceInProgressError, for_code
from aiokafka.protocol.messages.classic_group import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from aiokafka.protocol.messages.groups import DescribedGroupMember, DescribeGroupsRequest
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._config.consumer import ConsumerConfig
    from aiokafka.net.connection import BrokerConnection

__all__ = ["KEPT", "ClassicMember", "Joined", "Shares"]

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
