"""The membership in a share group: heartbeats and the assignment (KIP-932)."""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Collection
from typing import TYPE_CHECKING

from aiokafka._group_members import new_member_id
from aiokafka._health import NodeHealth
from aiokafka._log import SubjectLog
from aiokafka._reading import is_transient
from aiokafka._retry import Backoff
from aiokafka._tasks import Signal
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.errors import (
    FencedMemberEpoch,
    GroupAuthorizationFailedError,
    IllegalStateError,
    KafkaError,
    KafkaProtocolError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
    UnsupportedVersionError,
    for_code,
)
from aiokafka.protocol.messages.share_groups import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from aiokafka.share.acquired import TopicIdPartition

if TYPE_CHECKING:
    from aiokafka._config.share import ShareConsumerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.share.fetcher import ShareFetcher

__all__ = ["ShareMemberState", "ShareMembership"]

log = logging.getLogger("aiokafka.share")

# Special member epochs in requests.
_JOINING = 0
_LEAVING = -1

# Heartbeat interval in seconds before the first response, and the shortest accepted interval.
_DEFAULT_INTERVAL = 5.0
_SHORTEST_INTERVAL = 0.01
# Shortest timeout of a heartbeat in seconds, and the timeout of the heartbeat that leaves the
# group. The usual timeout is two heartbeat intervals.
_SHORTEST_LIMIT = 5.0

# The session timeout is estimated as this multiple of the heartbeat interval, because brokers
# report only the interval. The brokers' defaults are 45 s and 5 s.
_BEATS_IN_A_SESSION = 9

_LOST = (UnknownMemberIdError, FencedMemberEpoch)


class ShareMemberState(enum.Enum):
    """The state of a member of a share group, with the names of the Java client."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    STABLE = "stable"
    LEAVING = "leaving"
    FATAL = "fatal"


_S = ShareMemberState
_TRANSITIONS = {
    _S.UNSUBSCRIBED: {_S.JOINING},
    # FENCED of the Java client is JOINING here: there is nothing to revoke, because the locks of
    # acquired records do not depend on the membership.
    _S.JOINING: {_S.JOINING, _S.STABLE, _S.LEAVING, _S.FATAL},
    _S.STABLE: {_S.JOINING, _S.LEAVING, _S.FATAL},
    _S.LEAVING: {_S.UNSUBSCRIBED},
    _S.FATAL: {_S.JOINING, _S.LEAVING},
}


class ShareMembership:
    """Joins the group, sends heartbeats, and passes the assignment to the ShareFetcher.

    The coordinator may assign a partition to several members, and moves a partition without waiting
    until its members have revoked it. A member that loses a partition keeps its acquired records,
    and may acknowledge them until their locks expire. So an assignment needs no reconciliation.

    Owns: the state; the member id, generated here and kept for all memberships; the member epoch;
    the assignment; the subscription; the error that ended the membership.

    1. `subscribe()` makes the task of `run()` join with epoch 0 and all fields.
    2. Each response has the epoch and, if it changed, the assignment. A heartbeat has only changed
       fields; after an error or a lost response it has all fields.
    3. After UNKNOWN_MEMBER_ID or FENCED_MEMBER_EPOCH the member drops the assignment and rejoins.
    4. `unsubscribe()` and `leave()` leave the group with epoch -1.
    """

    def __init__(self, client: AIOKafkaClient, config: ShareConsumerConfig) -> None:
        self.member_id = new_member_id()
        self.state = ShareMemberState.UNSUBSCRIBED
        self.epoch = _JOINING
        self.interval = _DEFAULT_INTERVAL
        self.beat_at: float | None = None
        """The send time (loop time) of the last heartbeat that the coordinator accepted."""
        self.error: KafkaError | None = None
        """The last error; None after a success."""
        self.changed = Signal()
        """Notified when the member has joined or failed."""
        self.health = NodeHealth(
            f"The coordinator of group {config.group_id!r}", SubjectLog(log, config.subject)
        )
        self._client = client
        self._config = config
        self._log = SubjectLog(log, config.subject)
        self._fetcher: ShareFetcher | None = None
        self._topics: frozenset[str] = frozenset()
        self._sent_topics: frozenset[str] | None = None
        self._membership_number = 0
        self._is_due = False
        self._due = Signal()
        backoff = config.client.retry_backoff, config.client.retry_backoff_max
        self._backoff = Backoff(*backoff)
        self._loop = asyncio.get_running_loop()

    def begin(self, fetcher: ShareFetcher) -> None:
        """Pass assignments to `fetcher`."""
        self._fetcher = fetcher

    @property
    def topics(self) -> frozenset[str]:
        """The subscribed topics."""
        return self._topics

    @property
    def failure(self) -> KafkaError | None:
        """The error that ended the membership; None if no error ended it."""
        return self.error if self.state is ShareMemberState.FATAL else None

    @property
    def session_timeout(self) -> float:
        """An estimate of the session timeout, in seconds."""
        return _BEATS_IN_A_SESSION * self.interval

    def subscribe(self, topics: Collection[str]) -> None:
        """Consume only these topics; join the group if necessary. Without topics, leave the
        group."""
        self._topics = frozenset(topics)
        if self._fetcher is not None:
            self._fetcher.set_topics(self._topics)
        if not self._topics:
            if (
                self.state in (ShareMemberState.JOINING, ShareMemberState.STABLE)
                or self.state is ShareMemberState.FATAL
            ):
                self._move(ShareMemberState.LEAVING)
            self._assign(frozenset())
        elif self.state in (ShareMemberState.UNSUBSCRIBED, ShareMemberState.FATAL):
            self._join()
        self._beat_soon()

    def _join(self) -> None:
        self._move(ShareMemberState.JOINING)
        self._membership_number += 1
        self.epoch = _JOINING
        self._sent_topics = None

    def _move(self, state: ShareMemberState) -> None:
        if state not in _TRANSITIONS[self.state]:
            raise IllegalStateError(f"a member cannot go from {self.state.name} to {state.name}")
        self.state = state
        self.changed.notify()

    def _beat_soon(self) -> None:
        self._is_due = True
        self._due.notify()

    def _assign(self, assignment: frozenset[TopicIdPartition]) -> None:
        if self._fetcher is not None:
            self._fetcher.assign(assignment)

    # -- the task

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            self._is_due = False
            pause = await self._step()
            if not self._is_due:
                await self._due.wait(None if pause is None else self._loop.time() + pause)

    async def _step(self) -> float | None:
        """Send a heartbeat or leave the group, as the state requires. Return the seconds until the
        next step; None if only a change of the subscription requires one."""
        if self.state is ShareMemberState.LEAVING:
            await self._leave()
            if self._topics:
                self._join()
                return 0.0
            return None
        if self.state not in (ShareMemberState.JOINING, ShareMemberState.STABLE):
            return None
        try:
            await self._heartbeat()
        except _LOST as error:
            return self._rejoin(error)
        except KafkaError as error:
            return self._on_error(error)
        self._backoff.reset()
        if self._sent_topics != self._topics:
            return 0.0
        return self.interval

    def _rejoin(self, error: KafkaError) -> float:
        """Join again: the coordinator has removed the member. Acquired records are kept."""
        if self.state is ShareMemberState.LEAVING:
            return 0.0
        self._log.info("Joining again: %s", error)
        self._assign(frozenset())
        self._join()
        return self._backoff.next()

    def _on_error(self, error: KafkaError) -> float | None:
        self.error = error
        self._sent_topics = None
        if self.state is ShareMemberState.LEAVING:
            return 0.0
        # A KafkaTimeoutError means that the coordinator was not found in time: an outage. Retry,
        # however long it lasts.
        if is_transient(error) or isinstance(error, KafkaTimeoutError):
            self._log.debug("a heartbeat failed: %s", error)
            return self._backoff.next()
        self._assign(frozenset())
        self._move(ShareMemberState.FATAL)
        if self._fetcher is not None:
            self._fetcher.buffer.arrived.notify()  # waiting readers raise the error
        return None

    async def _heartbeat(self) -> None:
        """Send a heartbeat and apply its response. Raises the errors of `_send()`."""
        number, topics = self._membership_number, self._topics
        request = self._request(self.epoch)
        if self.epoch == _JOINING:
            # Send null for "", which the coordinator rejects.
            request.rack_id = self._config.client.client_rack or None
        if topics != self._sent_topics:
            request.subscribed_topic_names = sorted(topics)
        self._sent_topics = None
        sent_at = self._loop.time()
        response = await self._send(request, max(_SHORTEST_LIMIT, 2 * self.interval))
        if number != self._membership_number or self.state is ShareMemberState.LEAVING:
            return  # unsubscribed meanwhile
        if response.member_epoch <= 0:
            raise KafkaProtocolError(
                f"the heartbeat response has the invalid member epoch {response.member_epoch}"
            )
        self._sent_topics = topics
        self.error = None
        self.beat_at = sent_at
        if response.member_epoch != self.epoch:
            self._log.info(
                "Member %s has the member epoch %d", self.member_id, response.member_epoch
            )
        self.epoch = response.member_epoch
        interval = response.heartbeat_interval_ms / 1000
        self.interval = max(interval, _SHORTEST_INTERVAL) if interval > 0 else _DEFAULT_INTERVAL
        if response.assignment is not None:
            self._assign(
                frozenset(
                    TopicIdPartition(topic.topic_id, number)
                    for topic in response.assignment.topic_partitions
                    for number in topic.partitions
                )
            )
        if self.state is ShareMemberState.JOINING:
            self._move(ShareMemberState.STABLE)

    def _request(self, epoch: int) -> ShareGroupHeartbeatRequest:
        return ShareGroupHeartbeatRequest(
            group_id=self._config.group_id, member_id=self.member_id, member_epoch=epoch
        )

    async def _send(
        self, request: ShareGroupHeartbeatRequest, limit: float
    ) -> ShareGroupHeartbeatResponse:
        """Return the response of the coordinator. Raises errors of the connection and of the
        response, with a hint if the broker has to be reconfigured."""
        group_id, client = self._config.group_id, self._client
        limit = min(limit, self._config.client.request_timeout)
        deadline = self._loop.time() + self._config.client.request_timeout
        node_id = await client.coordinator(
            CoordinationType.GROUP, group_id, deadline, self.health.fail
        )
        try:
            with self.health.asked("ShareGroupHeartbeat"):
                connection = await client.connection(
                    node_id, ConnectionGroup.COORDINATION, timeout=limit
                )
                try:
                    version = connection.pick(ShareGroupHeartbeatRequest)
                except UnsupportedVersionError:
                    raise UnsupportedVersionError(_lacks_share_groups(connection.peer)) from None
                response = await connection.request(request, version=version, timeout=limit)
            self._check(response)
        except KafkaError as error:
            self.health.note(error)
            client.coordinator_failed(CoordinationType.GROUP, group_id, error)
            raise
        self.health.succeed()
        return response

    def _check(self, response: ShareGroupHeartbeatResponse) -> None:
        if not response.error_code:
            return
        error, message = for_code(response.error_code), response.error_message
        if error is UnsupportedVersionError:
            raise UnsupportedVersionError(_lacks_share_groups("the coordinator"))
        if error is GroupAuthorizationFailedError:
            raise error(self._config.group_id)
        if error is TopicAuthorizationFailedError:
            raise error(", ".join(sorted(self._topics)))
        raise error(f"group {self._config.group_id!r}" + (f": {message}" if message else ""))

    # -- leaving

    async def _leave(self) -> None:
        """Leave the group. If this fails, only log the error at DEBUG: the coordinator removes the
        member when its session expires."""
        try:
            await self._send(self._request(_LEAVING), _SHORTEST_LIMIT)
        except KafkaError as error:
            self._log.debug("the group was not left: %s", error)
        self._membership_number += 1
        self.epoch = _JOINING
        self._sent_topics = None
        self._move(ShareMemberState.UNSUBSCRIBED)

    async def leave(self) -> None:
        """Leave the group because the consumer stops. The task of `run()` must have ended."""
        if self.state in (ShareMemberState.JOINING, ShareMemberState.STABLE):
            self._topics = frozenset()
            self._move(ShareMemberState.LEAVING)
        if self.state is ShareMemberState.LEAVING:
            await self._leave()


def _lacks_share_groups(peer: str) -> str:
    return (
        f"{peer} does not serve share groups: they need Kafka 4.1 or later with the feature "
        "share.version at 1, and 'share' in group.coordinator.rebalance.protocols"
    )
