"""The classic group protocol from a member's side: join, sync, heartbeat, leave. One request at a
time; what to do about an error is the GroupCoordinator's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.consumer.committer import Identity
from aiokafka.consumer.contact import Contact
from aiokafka.errors import (
    BrokerResponseError,
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    KafkaError,
    MemberIdRequired,
    NotCoordinatorForGroupError,
    for_code,
)
from aiokafka.protocol.messages.heartbeat import HeartbeatRequest
from aiokafka.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from aiokafka.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from aiokafka.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

if TYPE_CHECKING:
    from aiokafka._consumer_config import ConsumerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.protocol.schema import Request, Response

    R = TypeVar("R", bound=Response)

__all__ = ["ClassicMembership", "Joined"]

log = logging.getLogger("aiokafka.consumer.group_coordinator")

_PROTOCOL_TYPE = "consumer"
_FIRST_LEAVE_OF_SEVERAL = 3
_MOVED = (NotCoordinatorForGroupError, GroupCoordinatorNotAvailableError)

# The broker answers a join when all members have joined or their time is up, and takes a moment.
_JOIN_SLACK = 5.0


class Joined(NamedTuple):
    """A generation of the group. `members`: what each wants, for its leader; else empty."""

    generation: int
    protocol: str
    members: dict[str, bytes]


class ClassicMembership:
    """Who this consumer is in its group, and the requests that say so.

    Owns: `member_id`, `generation` (-1 when not a member) and `coordinator_id` (None when not
    known). All requests carry the static member's instance id (KIP-345).
    """

    def __init__(
        self, client: AIOKafkaClient, config: ConsumerConfig, group_id: str, contact: Contact
    ) -> None:
        self.group_id = group_id
        self.member_id = ""
        self.generation = -1
        self.coordinator_id: int | None = None
        self._client = client
        self._config = config
        self._contact = contact
        self._told: int | None = None
        self._instance_id = config.group_instance_id

    @property
    def is_member(self) -> bool:
        """Whether the group counts, or may count, this consumer as a member."""
        return bool(self.member_id)

    @property
    def identity(self) -> Identity:
        """For commits."""
        if self.generation < 0:
            return Identity()
        return Identity(self.generation, self.member_id, self._instance_id)

    def forget_generation(self) -> None:
        """The group has gone on without us."""
        self.generation = -1

    def forget_member(self) -> None:
        """The group does not know us any more."""
        self.generation = -1
        self.member_id = ""

    async def join(self, protocols: Sequence[tuple[str, bytes]], reason: str) -> Joined:
        """Enter the next generation, waiting for the others. Raises the answer's error."""
        response = await self._join_once(protocols, reason)
        if response.error_code == MemberIdRequired.errno:
            self.member_id = response.member_id  # KIP-394: come back with it
            response = await self._join_once(protocols, reason)
        self._check(response.error_code)
        self.member_id = response.member_id
        is_leader = response.leader == response.member_id and not response.skip_assignment
        members = {m.member_id: bytes(m.metadata) for m in response.members} if is_leader else {}
        return Joined(response.generation_id, response.protocol_name or "", members)

    async def _join_once(
        self, protocols: Sequence[tuple[str, bytes]], reason: str
    ) -> JoinGroupResponse:
        config = self._config
        rebalance_timeout = config.rebalance_timeout or config.session_timeout
        request = JoinGroupRequest(
            group_id=self.group_id,
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
        return await self._send(request, limit, patience=rebalance_timeout)

    async def sync(self, joined: Joined, shares: Mapping[str, bytes]) -> bytes:
        """Our assignment in that generation; the leader brings everybody's. Raises the answer's
        error."""
        config = self._config
        rebalance_timeout = config.rebalance_timeout or config.session_timeout
        request = SyncGroupRequest(
            group_id=self.group_id,
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
        response = await self._send(request, limit, patience=rebalance_timeout)
        self._check(response.error_code)
        self.generation = joined.generation
        return bytes(response.assignment)

    async def heartbeat(self) -> None:
        """Say that we live. Raises the answer's error."""
        request = HeartbeatRequest(
            group_id=self.group_id, generation_id=self.generation, member_id=self.member_id
        )
        if self._instance_id is not None:
            request.group_instance_id = self._instance_id
        limit = min(self._config.client.request_timeout, self._config.session_timeout)
        self._check((await self._send(request, limit)).error_code)

    async def leave(self, reason: str) -> None:
        """Tell the group that we go. Raises errors of the connection and of the answer.

        A join that still waits for its answer blocks its connection, so this takes another.
        """
        node_id = await self._coordinator()
        connection = await self._client.connection(node_id)
        version = connection.pick(LeaveGroupRequest)
        if version < _FIRST_LEAVE_OF_SEVERAL:
            request = LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id)
        else:
            member = MemberIdentity(member_id=self.member_id, reason=reason)
            if self._instance_id is not None:
                member.group_instance_id = self._instance_id
            request = LeaveGroupRequest(group_id=self.group_id, members=[member])
        self.forget_member()
        response = await connection.request(request, version=version)
        self._check(response.error_code)

    # -- the coordinator ---------------------------------------------------------------------------

    async def _send(self, request: Request[R], limit: float, patience: float = 0.0) -> R:
        node_id = await self._coordinator()
        with self._contact.asked(patience):
            try:
                return await self._client.send(
                    node_id, request, group=ConnectionGroup.COORDINATION, timeout=limit
                )
            except KafkaError as error:
                self._contact.note(error)
                if not isinstance(error, BrokerResponseError):
                    self.forget_coordinator(str(error))
                raise

    async def _coordinator(self) -> int:
        deadline = asyncio.get_running_loop().time() + self._config.client.request_timeout
        self.coordinator_id = node_id = await self._client.coordinator(
            CoordinationType.GROUP, self.group_id, deadline, self._contact.fail
        )
        if node_id != self._told:
            log.info("Group %s: the coordinator is node %d", self.group_id, node_id)
            self._told = node_id
        return node_id

    def forget_coordinator(self, why: str) -> None:
        """Look it up again with the next request."""
        self.coordinator_id = None
        self._client.forget_coordinator(CoordinationType.GROUP, self.group_id, why)

    def _check(self, error_code: int) -> None:
        if not error_code:
            self._contact.succeed()
            return
        error = for_code(error_code)
        is_authorization = error is GroupAuthorizationFailedError
        failure = error(self.group_id if is_authorization else f"group {self.group_id!r}")
        self._contact.note(failure)
        if error in _MOVED:
            self.forget_coordinator(error.__name__)
        raise failure
