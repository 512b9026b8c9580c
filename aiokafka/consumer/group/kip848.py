"""The consumer protocol: the coordinator assigns, and members reconcile in steps (KIP-848)."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka._compat import timeout_at
from aiokafka._group_members import new_member_id
from aiokafka._log import SubjectLog
from aiokafka._metadata.topic_names import TopicNames
from aiokafka._retry import Backoff
from aiokafka._tasks import Signal, unless
from aiokafka.consumer.group.membership import GroupCoordinatorClient, GroupProtocol, Member
from aiokafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    IllegalStateError,
    KafkaError,
    KafkaProtocolError,
    StaleMemberEpoch,
    UnknownError,
    UnknownMemberIdError,
    UnreleasedInstanceId,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.group_members import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._config.consumer import ConsumerConfig
    from aiokafka.cluster import ClusterMetadata
    from aiokafka.consumer.group.group import GroupMembership
    from aiokafka.net.connection import BrokerConnection
    from aiokafka.protocol.schema import Request

__all__ = [
    "Interest",
    "Kip848Member",
    "Kip848Protocol",
    "MemberState",
    "TopicIdPartitions",
]

log = logging.getLogger("aiokafka.consumer.group_coordinator")


# -- The member and its heartbeats


TopicIdPartitions = frozenset[tuple[bytes, int]]
"""Partitions as the coordinator names them: by topic id and number."""

_NO_PARTITIONS: TopicIdPartitions = frozenset()

# Special member epochs in requests.
_JOINING = 0
_LEAVING = -1
_LEAVING_FOR_A_WHILE = -2

_FIRST_REGEX_VERSION = 1

# Heartbeat interval in seconds before the first response, and the shortest accepted interval.
_DEFAULT_INTERVAL = 5.0
_SHORTEST_INTERVAL = 0.01
# Shortest timeout of a heartbeat in seconds. The usual timeout is two intervals, because the
# coordinator responds at once.
_SHORTEST_LIMIT = 5.0
# Seconds after which a heartbeat without a response can no longer reach the coordinator: the
# operating system keeps retransmitting the bytes of a closed connection. Until then, each heartbeat
# has full contents.
_LONGEST_DELIVERY = 900.0

# Errors by which the coordinator reports that this consumer is not a member.
_NOT_IN = (UnknownMemberIdError, GroupIdNotFound, FencedInstanceId)
_NOT_IN_CODES = frozenset(error.errno for error in _NOT_IN)


class MemberState(enum.Enum):
    """The state of the member, with the names of the Java client."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    RECONCILING = "reconciling"
    ACKNOWLEDGING = "acknowledging"
    STABLE = "stable"
    FENCED = "fenced"
    LEAVING = "leaving"
    STALE = "stale"
    FATAL = "fatal"


_S = MemberState
_ENDS = {_S.FENCED, _S.LEAVING, _S.FATAL}
_TRANSITIONS = {
    _S.UNSUBSCRIBED: {_S.JOINING, _S.STALE, _S.FATAL},
    _S.JOINING: {_S.RECONCILING, *_ENDS},
    _S.RECONCILING: {_S.ACKNOWLEDGING, *_ENDS},
    _S.ACKNOWLEDGING: {_S.STABLE, _S.RECONCILING, *_ENDS},
    _S.STABLE: {_S.RECONCILING, *_ENDS},
    _S.FENCED: {_S.JOINING, _S.UNSUBSCRIBED, _S.STALE, _S.FATAL},
    _S.LEAVING: {_S.UNSUBSCRIBED, _S.FATAL},
    _S.STALE: {_S.JOINING, _S.UNSUBSCRIBED, _S.FATAL},
    _S.FATAL: {_S.UNSUBSCRIBED},
}
_IN_GROUP = frozenset({_S.JOINING, _S.RECONCILING, _S.ACKNOWLEDGING, _S.STABLE})
# In these states the next heartbeat is sent at once: it joins the group, or acknowledges an
# assignment.
_URGENT = frozenset({_S.JOINING, _S.ACKNOWLEDGING})


class Interest(NamedTuple):
    """The subscription: topics, or a regular expression that the broker matches."""

    topics: frozenset[str]
    regex: str | None = None


class _Sent:
    """The contents of the last heartbeat that got a response. The next heartbeat omits the fields
    that have the same contents."""

    __slots__ = ("interest", "is_acknowledgement", "owned")

    def __init__(
        self, interest: Interest, owned: TopicIdPartitions, is_acknowledgement: bool
    ) -> None:
        self.interest = interest
        self.owned = owned
        self.is_acknowledgement = is_acknowledgement
        """Whether the heartbeat acknowledged an assignment."""


class Kip848Member(Member):
    """A member of the consumer protocol.

    Owns:

    - `state`, and the member epoch.
    - `member_id`: generated here and kept until the consumer ends (KIP-1082), unless
      `_leave_before_join()` or an old broker replaces it.
    - `target`: the assignment by the coordinator.
    - `owned`: the partitions that heartbeats report as owned.
    - `interval`: the seconds between heartbeats.
    - `_late_until`: until this time a request without a response may still reach the coordinator.
    - `_may_be_in_group`: before a join, the coordinator may already count this consumer as a
      member, because the member is static, its leave request got no response, or its last join was
      rejected for its epoch.
    - `_may_have_regex`: the coordinator may have a regular expression of this member.
    """

    is_named_in_fetches = True

    def __init__(self, config: ConsumerConfig, coordinator: GroupCoordinatorClient) -> None:
        super().__init__(config, coordinator)
        self._log = SubjectLog(log, config.subject)
        self.state = MemberState.UNSUBSCRIBED
        self.member_id = new_member_id()
        self.target = _NO_PARTITIONS
        self.owned = _NO_PARTITIONS
        self.interval = _DEFAULT_INTERVAL
        self._epoch = _JOINING
        self._sent: _Sent | None = None
        # Number of the membership, to recognize a late response to an earlier membership's request.
        self._membership_number = 0
        # `_forget()` does not reset these fields: all memberships use the same member id, so a late
        # heartbeat of an earlier membership affects the present one.
        self._late_until = 0.0
        self._may_be_in_group = False
        self._may_have_regex = config.group_instance_id is not None

    def protocol(self, group: GroupMembership) -> Kip848Protocol:
        """Return the protocol of this member."""
        return Kip848Protocol(group, self)

    @property
    def is_member(self) -> bool:
        """Whether the group has, or may have, this consumer as a member."""
        return self.state in _IN_GROUP

    def is_urgent(self, interest: Interest) -> bool:
        """Return whether to send the next heartbeat before the end of the interval, because it
        joins, acknowledges an assignment, or has another subscription (`interest`) than the last
        heartbeat."""
        if not self.is_member:
            return False
        # `_sent` is None if the last heartbeat got no response. Then the next heartbeat has full
        # contents anyway, and is sent at the usual time.
        return self.state in _URGENT or (self._sent is not None and self._sent.interest != interest)

    # -- changes -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a membership: the next heartbeat joins the group."""
        self._transition(MemberState.JOINING)
        self._forget(_JOINING)

    def fence(self) -> None:
        """End the membership: the group has removed the member. The membership task then drops all
        partitions, and joins again."""
        self._transition(MemberState.FENCED)
        self._forget(_JOINING)

    def reports_as_owned(self, partitions: Iterable[tuple[bytes, int]]) -> bool:
        """Return whether `owned` includes all these partitions. If so, no heartbeat has reported
        any of these partitions as revoked since the coordinator assigned them."""
        return self.owned.issuperset(partitions)

    def report_only(self, owned: TopicIdPartitions) -> None:
        """Report exactly these partitions as owned from the next heartbeat on. The member must not
        assign other partitions of the target until a later response has them again, because the
        coordinator regards them as revoked."""
        self.owned = owned

    def reconciled(self, owned: TopicIdPartitions) -> None:
        """Acknowledge the assignment with the next heartbeat, which reports exactly these
        partitions as owned."""
        self._transition(MemberState.ACKNOWLEDGING)
        self.owned = owned

    def forget_member(self) -> None:
        """End the membership without a request: the consumer left, or is about to leave."""
        if self.state is not MemberState.UNSUBSCRIBED:
            if self.is_member:
                self._transition(MemberState.LEAVING)
            self._transition(MemberState.UNSUBSCRIBED)
        self._forget(_JOINING)

    def become_stale(self) -> None:
        """Record that the member has left because the application does not poll."""
        self._transition(MemberState.STALE)

    def fail(self) -> None:
        """End the membership without a request, because of an error that is not retriable."""
        if self.state is not MemberState.FATAL:
            self._transition(MemberState.FATAL)
        self._forget(_JOINING)

    def _forget(self, epoch: int) -> None:
        self._membership_number += 1
        self._epoch = epoch
        self.generation = -1
        self.target = self.owned = _NO_PARTITIONS
        self._sent = None

    def _transition(self, state: MemberState) -> None:
        if state not in _TRANSITIONS[self.state]:
            raise IllegalStateError(f"a member cannot go from {self.state.value} to {state.value}")
        self.state = state

    # -- requests ----------------------------------------------------------------------------------

    async def heartbeat(self, interest: Interest) -> None:
        """Send a heartbeat and apply its response. Raises errors of the connection and of the
        response, with a hint if the broker has to be reconfigured.

        What may happen while the request is in flight:

        1. `_sent` is None until the response: the coordinator may have processed the request.
        2. The member reconciles, and `reconciled()` changes `owned`. The request has the previous
           partitions and is no acknowledgement, so its response confirms nothing. The next request
           has the new partitions.
        3. The membership ends, and the next membership may begin: `_membership_number` has changed.
           The response or error belongs to the earlier membership and is dropped: its epoch must
           not be used in the new membership.
        4. The response arrives: `_accept()` applies target, epoch and interval. The next request
           has only the differences to `sent`.
        5. An acknowledgement always has the owned partitions, even if they are unchanged. Other
           partitions may have been assigned and revoked while the listener was running: before the
           coordinator assigns these to another member, it waits for a report without them.
        6. There is no response. The coordinator may have processed the request, so the next request
           has full contents (`_next_request()`).
        7. The coordinator processes the request late, after the next request: its connection was
           closed, but its bytes were still delivered. The coordinator may assign partitions in a
           response that is lost, and repeats them only to a request with full contents. So until
           `_late_until`, each request has full contents.
        8. A join of a static member gets no response. The coordinator rejects another join while
           the member is in the group, so the member first leaves temporarily
           (`_leave_before_join()`).
        9. A leave request gets no response. It may arrive after the next join, and remove the new
           member. So before the next join, `_leave_before_join()` sends another leave request, and
           the member joins under a new id, which the first leave request does not affect. With a
           new id alone, the previous partitions would stay assigned until the previous session
           expires.
        10. A join is rejected for its epoch: brokers before KAFKA-19233 do that while the member is
           in the group. `_leave_before_join()` precedes the next join in this case, too.
        """
        number = self._membership_number
        limit = max(_SHORTEST_LIMIT, 2 * self.interval)
        try:
            if self._epoch == _JOINING and self._may_be_in_group:
                await self._leave_before_join(limit)
                if number != self._membership_number:
                    return
            sent = _Sent(interest, self.owned, self.state is MemberState.ACKNOWLEDGING)
            request = self._next_request(sent)
            self._sent = None
            response = await self._exchange(request, limit)
        except KafkaError:
            if number == self._membership_number:
                raise
            return
        if number == self._membership_number:
            self._accept(response, sent)

    async def _leave_before_join(self, limit: float) -> None:
        """Leave the group before a join, because the coordinator may still count this consumer as a
        member. Then generate a new member id. Raises errors of the connection and of the response.
        """
        with contextlib.suppress(*_NOT_IN):
            await self._exchange(self._request(self._leave_epoch), limit)
        self.member_id = new_member_id()

    @property
    def _leave_epoch(self) -> int:
        """The epoch of a leave request: -1, or -2 for a static member, which leaves temporarily."""
        return _LEAVING if self.instance_id is None else _LEAVING_FOR_A_WHILE

    @property
    def is_epoch_uncertain(self) -> bool:
        """Whether the coordinator may have raised the epoch: the last heartbeat had no response."""
        return self.is_member and self.generation >= 0 and self._sent is None

    async def leave(self, reason: str, leave: bool | None = None) -> None:
        """Leave the group; a static member leaves temporarily, and keeps its assignment until the
        session expires. Raises errors of the connection and of the response.

        With `leave` True, a static member leaves permanently, as a dynamic member does. With False,
        a dynamic member sends no request, and keeps its assignment until the session expires
        (KIP-1092).

        The request uses the connection of the heartbeats, so it cannot overtake a join.
        """
        if leave is False and self.instance_id is None:
            self.forget_member()
            return
        self._transition(MemberState.LEAVING)
        self._forget(_LEAVING if leave else self._leave_epoch)
        request, limit = self._request(self._epoch), self._config.client.request_timeout
        await self.coordinator.retry_until_ready(lambda: self._exchange(request, limit))

    async def _exchange(
        self, request: ConsumerGroupHeartbeatRequest, limit: float
    ) -> ConsumerGroupHeartbeatResponse:
        limit = min(limit, self._config.client.request_timeout)
        was_in_group = self._may_be_in_group
        # Set the flag before the request: if this call is cancelled, nothing else sets it.
        self._may_be_in_group = self.instance_id is not None or request.member_epoch < 0
        try:
            response = await self.coordinator.send(request, limit, pick=_pick)
        except KafkaError:
            self._late_until = asyncio.get_running_loop().time() + _LONGEST_DELIVERY
            raise
        if response.error_code:
            is_fenced = response.error_code == FencedMemberEpoch.errno
            was_in_group |= is_fenced and request.member_epoch == _JOINING
            self._may_be_in_group = was_in_group and response.error_code not in _NOT_IN_CODES
        elif request.member_epoch < 0:
            self._may_be_in_group = False
        if response.error_code == UnsupportedVersionError.errno:
            raise UnsupportedVersionError(
                _lacks_protocol(f"node {self.coordinator.coordinator_id}")
            )
        self.coordinator.check(response.error_code, response.error_message)
        return response

    def _request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self.member_id, member_epoch=epoch
        )
        if self.instance_id is not None:
            request.instance_id = self.instance_id
        return request

    def _next_request(self, next_sent: _Sent) -> ConsumerGroupHeartbeatRequest:
        """Return a heartbeat with the differences to the last heartbeat. If the last heartbeat got
        no response, or an earlier heartbeat may still arrive (`_late_until`), return a heartbeat
        with full contents."""
        request = self._request(self._epoch)
        may_be_late = asyncio.get_running_loop().time() < self._late_until
        sent = None if may_be_late else self._sent
        if sent is None:
            config = self._config
            timeout = config.rebalance_timeout or config.max_poll_interval
            request.rebalance_timeout_ms = round(timeout * 1000)
            request.server_assignor = config.group_remote_assignor
            # Send null for "", which the coordinator rejects.
            request.rack_id = config.client.client_rack or None
        if sent is None or sent.interest.topics != next_sent.interest.topics:
            request.subscribed_topic_names = sorted(next_sent.interest.topics)
        regex = next_sent.interest.regex
        self._may_have_regex |= regex is not None
        # The coordinator keeps a regular expression until a request replaces it, or removes it with
        # "". If `sent` is None, the coordinator may have any expression of this member, even of an
        # earlier process of this static member.
        may_differ = self._may_have_regex if sent is None else regex != sent.interest.regex
        if may_differ:
            request.subscribed_topic_regex = regex or ""
        if sent is None or sent.owned != next_sent.owned or next_sent.is_acknowledgement:
            request.topic_partitions = _by_topic(next_sent.owned)
        return request

    def _accept(self, response: ConsumerGroupHeartbeatResponse, sent: _Sent) -> None:
        if response.member_epoch <= 0:
            raise KafkaProtocolError(
                f"the heartbeat response has the invalid member epoch {response.member_epoch}"
            )
        if response.assignment is not None:
            self.target = _partitions_in(response.assignment.topic_partitions)
        self._sent = sent
        # Before KIP-1082 the broker chooses the id.
        self.member_id = response.member_id or self.member_id
        if response.member_epoch != self.generation:
            self._log.info(
                "Member %s has the member epoch %d, assignor of the coordinator: %s",
                self.member_id,
                response.member_epoch,
                self._config.group_remote_assignor or "its default",
            )
        self._epoch = self.generation = response.member_epoch
        interval = response.heartbeat_interval_ms / 1000
        self.interval = max(interval, _SHORTEST_INTERVAL) if interval > 0 else _DEFAULT_INTERVAL
        # Move to STABLE before the check below: the same response may confirm the assignment and
        # have the next target.
        if self.state is MemberState.ACKNOWLEDGING and sent.is_acknowledgement:
            self._transition(MemberState.STABLE)
        is_new = self.state is MemberState.STABLE and self.target != self.owned
        if is_new or self.state is MemberState.JOINING:
            self._transition(MemberState.RECONCILING)
        if self.state is MemberState.RECONCILING:
            self._report_target()

    def _report_target(self) -> None:
        """Report the partitions of the target as owned from the next heartbeat on, because the
        application is about to get them.

        1. A reconciliation takes as long as the listener. During this time a heartbeat with full
           contents is due, because the coordinator has moved or a response was lost.
        2. If the heartbeat lacked the partitions of the target, the coordinator would regard these
           partitions as revoked, and assign them to another member at once.
        3. When the reconciliation ends, the application gets the same partitions, and both members
           read their records.
        """
        self.owned |= self.target


def _by_topic(partitions: TopicIdPartitions) -> list[TopicPartitions]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(partitions):
        topics.setdefault(topic_id, []).append(number)
    return [
        TopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in topics.items()
    ]


def _partitions_in(topics: Iterable[TopicPartitions]) -> TopicIdPartitions:
    found = frozenset((topic.topic_id, number) for topic in topics for number in topic.partitions)
    if any(number < 0 for _, number in found):
        raise KafkaProtocolError(
            "the heartbeat response assigns a partition with a negative number"
        )
    return found


def _lacks_protocol(peer: str) -> str:
    return (
        f"{peer} does not serve group_protocol='consumer': it needs Kafka 4.0 or later with "
        "the feature group.version at 1 and 'consumer' in group.coordinator.rebalance.protocols; "
        "group_protocol='classic' works with every broker"
    )


def _pick(connection: BrokerConnection, request: Request[Any]) -> int:
    """Return the request version to use. For a version without regular expressions, replace "" by
    None. Raises UnsupportedVersionError, with the feature that the broker lacks."""
    try:
        version = connection.pick(type(request))
    except UnsupportedVersionError:
        raise UnsupportedVersionError(_lacks_protocol(connection.peer)) from None
    is_old = version < _FIRST_REGEX_VERSION
    if is_old and isinstance(request, ConsumerGroupHeartbeatRequest):
        if not request.subscribed_topic_regex:
            request.subscribed_topic_regex = None  # an old broker has no expression to replace
            return version
        raise UnsupportedVersionError(
            f"{connection.peer}: a SubscriptionPattern needs Kafka 4.0 or later; "
            "a str is matched by the client"
        )
    return version


# -- The protocol: reconciliation, heartbeats, errors


_LOST = (UnknownMemberIdError, FencedMemberEpoch)

# Estimate of the session timeout, as a multiple of the heartbeat interval, by the broker's default
# values (45 s and 5 s): brokers report only the interval.
_BEATS_IN_A_SESSION = 9

# Seconds that the first rebalance of a classic group may take: the coordinator waits 3 s for more
# members by default, and again after each member that joins in this time. So for this many seconds
# after its first attempt to join, a member retries after UNKNOWN_SERVER_ERROR.
_FIRST_REBALANCE = 15.0


class Kip848Protocol(GroupProtocol):
    """Sends heartbeats, and reconciles the assignment with the target assignment in the responses.
    For brokers since Kafka 4.0.

    1. The response to a heartbeat has a new target (RECONCILING). The membership task wakes up.
    2. Partitions that are not in the target are revoked: the application finishes its records,
       commits, and its listener is called. The member keeps its epoch, so the commits are accepted.
    3. New partitions of the target are assigned, and the listener is called.
    4. A heartbeat reports the owned partitions (ACKNOWLEDGING). The coordinator assigns the revoked
       partitions to other members only after this heartbeat.
    5. The response confirms the assignment (STABLE).

    Heartbeats continue during these steps, so the following may happen:

    - The target changes during the reconciliation. Heartbeats report the previous partitions and
      those of all new targets. After the acknowledgement the latest target is reconciled.
    - A heartbeat has no response. The coordinator may have raised the epoch, so the next heartbeat
      has full contents (`Kip848Member.heartbeat`), and the last commit waits for its response
      (`await_generation`).
    - The coordinator fences the member (FENCED). Steps 2 to 4 end, all partitions are lost, and the
      member joins again.
    - The application unsubscribes. `_is_reconciliation_valid()` is checked after each await.

    Owns: the times of the last heartbeat and of the earliest next one; whether a heartbeat is
    requested before the end of the interval; whether a heartbeat is in flight; the topic ids of the
    assigned partitions; when the member began to join.
    """

    member: Kip848Member

    keeps_partitions = True
    """The member keeps its partitions during a rebalance, like a cooperative classic member."""
    is_joining = False
    """There is no JoinGroup. Commits need the epoch of a heartbeat, see `await_generation()`."""
    is_awaited = False
    """No other member waits for this member, because the coordinator assigns."""

    def __init__(self, group: GroupMembership, member: Kip848Member) -> None:
        super().__init__(group)
        self.member = member
        self._names = TopicNames(self._client)
        self._ids: dict[TopicPartition, bytes] = {}
        client = self._config.client
        delays = (client.retry_backoff, client.retry_backoff_max)
        self._delays, self._name_delays = Backoff(*delays), Backoff(*delays)
        self._beats = Signal()
        self._last_beat = 0.0
        self._not_before = 0.0
        self._is_heartbeat_requested = False
        self._is_beating = False
        self._began_to_join = 0.0

    @property
    def session_timeout(self) -> float:
        """An estimate of the session timeout, in seconds."""
        return _BEATS_IN_A_SESSION * self.member.interval

    @property
    def _interest(self) -> Interest:
        subscription = self._subscriptions.subscription
        if subscription is None:
            return Interest(frozenset())
        if subscription.regex is not None:
            return Interest(frozenset(), subscription.regex)
        # The broker rejects a heartbeat with any unauthorized topic, so omit such topics. The
        # metadata has their error, which calls of the application raise. If all topics are
        # unauthorized, send them all, so that the broker returns the error.
        allowed = subscription.topics - self._client.cluster.unauthorized_topics
        return Interest(allowed or subscription.topics)

    def on_metadata(self) -> None:
        """Do nothing: the coordinator assigns new partitions."""

    def on_subscribed(self) -> None:
        """Send a heartbeat soon, with the new subscription."""
        self._beats.notify()

    def forget_assignment(self) -> None:
        """Do nothing: the member forgets its partitions itself."""

    # -- reconciliation ----------------------------------------------------------------------------

    def has_work(self) -> bool:
        """Return whether `advance()` has work: a reason to join, a fenced member's partitions to
        drop, or a target assignment to reconcile."""
        return self._state.reason is not None or self.member.state in (
            MemberState.FENCED,
            MemberState.RECONCILING,
        )

    async def advance(self) -> None:
        """Drop the partitions of a fenced member; or, if there is a reason to join, begin to join
        or send a heartbeat soon; else reconcile the target."""
        if self.member.state is MemberState.FENCED:
            # Drop all partitions and call the listener before the next membership begins.
            await self._rebalance.lose_all()
            self._ids.clear()
            self._rebalance.release()
            self.member.forget_member()
            self._state.request_join("the group removed this member")
        elif self._state.reason is not None:
            self._state.take_reason()
            if not self.member.is_member:
                self._ids.clear()
                self.member.begin()
                self._began_to_join = asyncio.get_running_loop().time()
            self._beats.notify()
        else:
            await self._reconcile()

    async def _reconcile(self) -> None:
        """Reconcile the partitions of the target assignment whose topic names are known."""
        target = self.member.target
        await self._while_reconciling(self._names.learn({topic_id for topic_id, _ in target}))
        if not self._is_reconciliation_valid():
            return
        wanted = self._named(target)
        owned = self._rebalance.owned
        if (
            len(wanted) < len(target)
            and wanted == {tp: self._ids.get(tp) for tp in owned}
            and self._state.is_joined
        ):
            # The member has all partitions of the target that it can assign now. The others have no
            # topic name yet: the metadata does not have their topic ids (a new or deleted topic),
            # or two topic ids of the target have the same name (a recreated topic). Report only the
            # owned partitions, and try again after a backoff.
            self.member.report_only(self._with_ids(owned))
            now = asyncio.get_running_loop().time()
            await self._state.signal.wait(now + self._name_delays.next())
            return
        if not self.member.reports_as_owned(
            (topic_id, tp.partition) for tp, topic_id in wanted.items()
        ):
            # A heartbeat after `report_only()` has not reported some wanted partitions as owned, so
            # other members may own these partitions by now. The next response has the valid target.
            self._request_heartbeat()
            await self._state.signal.wait()
            return
        await self._apply(wanted)
        if not self._is_reconciliation_valid():
            return
        self._name_delays.reset()
        self.member.reconciled(self._with_ids(wanted))
        self._complete_join()
        self._beats.notify()

    def _is_reconciliation_valid(self) -> bool:
        """Return whether the member is still reconciling, and may proceed. Checked after each
        await."""
        return self.member.state is MemberState.RECONCILING and self._state.may_proceed()

    async def _while_reconciling(self, call: Coroutine[Any, Any, object]) -> None:
        """Await a call that may take long, but only while the reconciliation is valid: a removed
        member must drop its partitions at once, because other members read the same records."""
        await unless(self._until_invalid(), call)

    async def _until_invalid(self) -> None:
        while self._is_reconciliation_valid():
            await self._state.signal.wait()

    def _named(self, partitions: TopicIdPartitions) -> dict[TopicPartition, bytes]:
        """Return the topic id of each partition whose topic name is known. If the target has both a
        deleted topic and the recreated topic of the same name, the id in metadata takes
        precedence."""
        found: dict[TopicPartition, bytes] = {}
        cluster = self._client.cluster
        for topic_id, number in sorted(
            partitions, key=lambda each: (cluster.topic_name(each[0]) is not None, each)
        ):
            name = self._names.get(topic_id)
            if name is not None:
                found[TopicPartition(name, number)] = topic_id
        return found

    def _with_ids(self, partitions: Iterable[TopicPartition]) -> TopicIdPartitions:
        """Return assigned partitions by topic id instead of topic name."""
        return frozenset((self._ids[tp], tp.partition) for tp in partitions)

    async def _apply(self, wanted: dict[TopicPartition, bytes]) -> None:
        """Revoke the partitions that are not in `wanted` (topic ids by partition) or have another
        topic id there, then assign `wanted`. Stop if the reconciliation becomes invalid."""
        await self._follow_topics(wanted)
        if not self._is_reconciliation_valid():
            return
        # A recreated topic has a new id: positions in the deleted topic are meaningless.
        kept = (tp for tp in self._rebalance.owned if self._ids.get(tp) == wanted.get(tp))
        await self._rebalance.revoke_all_but(frozenset(kept))
        if self._is_reconciliation_valid():
            await self._await_ids(wanted)
        if self._is_reconciliation_valid():
            # Set the ids after the revocation: revoked partitions need the ids of their assignment.
            self._ids = wanted
            ids = {tp.topic: topic_id for tp, topic_id in wanted.items()}
            # Resume commits before the call of the listener, which may commit for its partitions.
            self._commits.resume()
            await self._rebalance.assign_all(frozenset(wanted), ids)

    async def _follow_topics(self, wanted: dict[TopicPartition, bytes]) -> None:
        """For a regular expression, subscribe to the topics of the assignment: only the broker
        knows which topics match."""
        topics = frozenset(tp.topic for tp in wanted)
        if self._subscriptions.take_topics(topics):
            known = self._client.set_topics(topics)
            # Wait for the leaders in metadata, but briefly: the coordinator waits for this member,
            # and other members wait for the coordinator. Missing leaders are found later.
            await self._while_reconciling(asyncio.wait([known], timeout=self.member.interval))

    async def _await_ids(self, wanted: dict[TopicPartition, bytes]) -> None:
        """Wait while metadata has a topic with the name, but not the id, of a wanted topic: leaders
        and positions are looked up by topic name."""
        ids = {tp.topic: topic_id for tp, topic_id in wanted.items()}

        def is_up_to_date(cluster: ClusterMetadata) -> bool:
            return all(cluster.topic_id(name) in (None, topic_id) for name, topic_id in ids.items())

        # Wait for one interval at most, because the coordinator waits for this member.
        deadline = asyncio.get_running_loop().time() + self.member.interval
        try:
            why = "the group's coordinator assigned a topic with another id"
            await self._while_reconciling(
                self._client.wait_for_metadata(is_up_to_date, deadline, why)
            )
        except KafkaError as error:
            self._log.debug("%s", error)

    # -- heartbeats --------------------------------------------------------------------------------

    async def send_heartbeats(self) -> None:
        """Send heartbeats while the consumer is a member, and check the poll timer, until
        cancelled."""
        while True:
            await self._wait_for_beat()
            self._poll_timer.check()
            if self._is_beat_due():
                await self._beat_once()

    def _beat_at(self) -> float:
        """Return when the next heartbeat is due (loop time)."""
        if self._is_heartbeat_requested or self.member.is_urgent(self._interest):
            return self._not_before
        return max(self._last_beat + self.member.interval, self._not_before)

    def _is_beat_due(self) -> bool:
        now = asyncio.get_running_loop().time()
        return self.member.is_member and self._state.may_proceed() and self._beat_at() <= now

    async def _wait_for_beat(self) -> None:
        now = asyncio.get_running_loop().time()
        latest = now + self._config.max_poll_interval / 2
        is_active = self.member.is_member and self._state.may_proceed()
        due = min(latest, self._beat_at()) if is_active else latest
        if due > now:
            await self._beats.wait(due)

    async def _beat_once(self) -> None:
        # Reset the flag before the request: a commit rejected during the request sets it again.
        self._is_heartbeat_requested = False
        self._last_beat = asyncio.get_running_loop().time()
        self._is_beating = True
        try:
            await self.member.heartbeat(self._interest)
            self._not_before = 0.0
            self._delays.reset()
            self._errors.clear()
        except KafkaError as error:
            # Delay urgent heartbeats, too: a coordinator that rejects each urgent heartbeat must
            # not get them without a pause.
            self._not_before = asyncio.get_running_loop().time() + self._delays.next()
            self._on_heartbeat_failed(error)
        finally:
            self._is_beating = False
            self._state.signal.notify()

    def _request_heartbeat(self) -> None:
        """Send the next heartbeat soon, even if it reports no changes."""
        self._is_heartbeat_requested = True
        self._beats.notify()

    async def await_generation(self, limit: float) -> None:
        """Wait for the response to an in-flight heartbeat, and repeat the last heartbeat if it got
        no response, for `limit` seconds at most: the heartbeat may have raised the epoch, and
        commits need the present epoch."""
        deadline = asyncio.get_running_loop().time() + limit
        while self._is_beating and await self._state.signal.wait(deadline):
            pass
        if self._is_beating or not self.member.is_epoch_uncertain:
            return
        try:
            async with timeout_at(deadline):
                await self.member.heartbeat(self._interest)
        except (KafkaError, asyncio.TimeoutError) as error:
            self._log.info(
                "The heartbeat to leave the group failed: %s", str(error) or "no response"
            )

    # -- errors ------------------------------------------------------------------------------------

    def _on_heartbeat_failed(self, error: KafkaError) -> None:
        is_joining = self.member.state is MemberState.JOINING
        # For a member, GROUP_ID_NOT_FOUND means that the group was deleted. For a joining member,
        # the error means a group of the classic protocol, and is not retriable.
        if isinstance(error, _LOST) or (isinstance(error, GroupIdNotFound) and not is_joining):
            self._lose_membership(error)
        elif is_joining and isinstance(error, UnknownError) and self._may_be_first_rebalance():
            # Up to Kafka 4.3 the coordinator cannot convert a classic group before its first
            # rebalance is complete (group.initial.rebalance.delay.ms).
            self._state.set_join_error(error)
        elif not self._errors.report(error):
            self._end_with(_with_hint(error))

    def _may_be_first_rebalance(self) -> bool:
        """Return whether the group may be a classic group in its first rebalance. This rebalance
        takes at most about 15 s, so the result is True for 15 s after this member began to join."""
        now = asyncio.get_running_loop().time()
        return now < self._began_to_join + _FIRST_REBALANCE

    def _lose_membership(self, error: BaseException) -> None:
        if not self.member.is_member:
            return
        self._log.info("The coordinator removed this member: %s", type(error).__name__)
        # Do not call the listener here: this method may run in the heartbeat task, or in a commit
        # of the application. The membership task calls the listener.
        self.member.fence()
        self._state.invalidate_assignment()
        self._commits.on_removed()
        self._state.signal.notify()

    def on_commit_refused(self, error: CommitFailedError) -> None:
        """Act on the error that rejected a commit:

        - STALE_MEMBER_EPOCH: send a heartbeat soon.
        - The coordinator does not know the member, its epoch or the group: drop all partitions, and
          join again.
        - Any other error response: end the membership.
        """
        cause = error.__cause__
        if isinstance(cause, StaleMemberEpoch):
            self._request_heartbeat()
        elif isinstance(cause, (*_LOST, GroupIdNotFound)):
            self._lose_membership(cause)
        elif isinstance(cause, BrokerResponseError):
            self._end_with(cause)


def _with_hint(error: KafkaError) -> KafkaError:
    """Return an error of the same type with a hint about its cause; `error` itself without a
    hint."""
    if isinstance(error, UnreleasedInstanceId):
        hint = (
            "another member has this group_instance_id, or a former member had it and did not "
            "leave: then the broker releases it after group.consumer.session.timeout.ms"
        )
    elif isinstance(error, GroupIdNotFound):
        hint = (
            "the group has members of the classic protocol, and the broker does not convert it. "
            "Its group.consumer.migration.policy has to be 'bidirectional' or 'upgrade', and these "
            "members have to be consumers; otherwise stop these members first, or join with "
            "group_protocol='classic'"
        )
    else:
        return error
    explained = type(error)(f"{error.args[0] if error.args else ''}: {hint}")
    explained.__cause__ = error
    return explained
