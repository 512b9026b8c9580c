"""The consumer protocol from a member's side (KIP-848): heartbeats that say what has changed, and
responses that bring the assignment. What follows from them is up to the Kip848Protocol."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import enum
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka import _seams
from aiokafka._log import SubjectLog
from aiokafka.consumer.group.membership import GroupLink
from aiokafka.consumer.position.committed import Identity
from aiokafka.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    GroupIdNotFound,
    IllegalStateError,
    KafkaError,
    KafkaProtocolError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from aiokafka._config.consumer import ConsumerConfig
    from aiokafka.net.connection import BrokerConnection
    from aiokafka.protocol.schema import Request

__all__ = ["Interest", "Kip848Member", "MemberState", "Slots"]

log = logging.getLogger("aiokafka.consumer.group_coordinator")

Slots = frozenset[tuple[bytes, int]]
"""Partitions as the broker names them: topic id and number."""

_NOTHING: Slots = frozenset()

_JOINING = 0
_LEAVING = -1
_LEAVING_FOR_A_WHILE = -2

_FIRST_REGEX_VERSION = 1

# Until the broker has said how often it wants to hear of us.
_DEFAULT_INTERVAL = 5.0
_SHORTEST_INTERVAL = 0.01
# Heartbeats are answered at once: wait for two intervals, but not less than this.
_SHORTEST_LIMIT = 5.0
# For so long a system tries to deliver what was sent on a connection that was given up.
_LONGEST_WAY = 900.0

# What says that this member is not in the group.
_NOT_IN = (UnknownMemberIdError, GroupIdNotFound, FencedInstanceId)
_NOT_IN_CODES = frozenset(error.errno for error in _NOT_IN)


class MemberState(enum.Enum):
    """Where a member stands, with the names of Java's client."""

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
# The coordinator waits for these.
_URGENT = frozenset({_S.JOINING, _S.ACKNOWLEDGING})


class Interest(NamedTuple):
    """What the application wants to read: topics, or a regular expression for the broker."""

    topics: frozenset[str]
    regex: str | None = None


class _Said(NamedTuple):
    """What the broker was told last; it need not hear it again."""

    interest: Interest
    owned: Slots
    is_answer: bool
    """Whether this was the acknowledgement of an assignment."""


class Kip848Member:
    """Who this consumer is in a group of the consumer protocol: a Membership.

    Owns: `state`; `member_id`, made here and kept for the consumer's life (KIP-1082), unless a
    goodbye may arrive behind the next join; the member's epoch; `target`, what the broker wants us
    to have; `owned`, what we have told it, or will tell it next, that we have; `interval`, seconds
    between heartbeats; until when requests without a response may reach the coordinator; whether it
    may count us when we join: a static member, or one whose goodbye had no response, or whose
    join was refused for its epoch; whether it may know a regular expression of ours.
    """

    def __init__(self, config: ConsumerConfig, link: GroupLink) -> None:
        self.link = link
        self._group_id = link.group_id
        self._config = config
        self._log = SubjectLog(log, config.subject)
        self._instance_id = config.group_instance_id
        self.generation = -1
        self.state = MemberState.UNSUBSCRIBED
        self.member_id = _new_id()
        self.target = _NOTHING
        self.owned = _NOTHING
        self.interval = _DEFAULT_INTERVAL
        self._epoch = _JOINING
        self._said: _Said | None = None
        # Counts memberships: a response that comes after its own ended says nothing about the next.
        self._life = 0
        # Of the consumer, not of one membership: each has the same member id.
        self._strays_until = 0.0
        self._may_be_counted = False
        self._may_have_regex = config.group_instance_id is not None

    @property
    def identity(self) -> Identity:
        """Who commits."""
        return self.link.identity(self.generation, self.member_id)

    @property
    def is_member(self) -> bool:
        """Whether the group counts, or may count, this consumer as a member."""
        return self.state in _IN_GROUP

    def is_urgent(self, interest: Interest) -> bool:
        """Return whether to send a heartbeat before the interval is over."""
        if not self.is_member:
            return False
        # Without a response to the last one (None) there is no hurry: the next says all, in its
        # time.
        return self.state in _URGENT or (self._said is not None and self._said[0] != interest)

    # -- changes -----------------------------------------------------------------------------------

    def begin(self) -> None:
        """Join with the next heartbeat."""
        self._transition(MemberState.JOINING)
        self._forget(_JOINING)

    def fence(self) -> None:
        """Note that the group has removed us. We join again once everything is given up."""
        self._transition(MemberState.FENCED)
        self._forget(_JOINING)

    def has_claimed(self, partitions: Iterable[tuple[bytes, int]]) -> bool:
        """Return whether the next heartbeat says that we own all of these partitions, and none
        since the coordinator assigned them has said otherwise."""
        return self.owned.issuperset(partitions)

    def claim_only(self, owned: Slots) -> None:
        """Say from the next heartbeat on that we own these partitions and no others: those of the
        target that are left cannot be taken over now, nor before the next response."""
        self.owned = owned

    def reconciled(self, owned: Slots) -> None:
        """Let the next heartbeat say that we own exactly these partitions."""
        self._transition(MemberState.ACKNOWLEDGING)
        self.owned = owned

    def forget_member(self) -> None:
        """Note that we are no member any more, by our own choice."""
        if self.state is not MemberState.UNSUBSCRIBED:
            if self.is_member:
                self._transition(MemberState.LEAVING)
            self._transition(MemberState.UNSUBSCRIBED)
        self._forget(_JOINING)

    def become_stale(self) -> None:
        """Note that we have left because the application does not ask for records."""
        self._transition(MemberState.STALE)

    def fail(self) -> None:
        """Note that we are no member any more, and that nothing we do by ourselves mends it."""
        if self.state is not MemberState.FATAL:
            self._transition(MemberState.FATAL)
        self._forget(_JOINING)

    def _forget(self, epoch: int) -> None:
        self._life += 1
        self._epoch = epoch
        self.generation = -1
        self.target = self.owned = _NOTHING
        self._said = None

    def _transition(self, state: MemberState) -> None:
        if state not in _TRANSITIONS[self.state]:
            raise IllegalStateError(f"a member cannot go from {self.state.value} to {state.value}")
        self.state = state

    # -- requests ----------------------------------------------------------------------------------

    async def heartbeat(self, interest: Interest) -> None:
        """Send what is new to the coordinator, and take in its response. Raises errors of the
        connection and of the response, with a hint where the broker has to be changed.

        What may happen while it is in flight:

        1. `_said` is None from the first step on: it is not known what the coordinator knows.
        2. The application reaches the target, and `reconciled()` changes `owned`. The request says
           what we had before. It was no acknowledgement (`is_answer`), so its response confirms
           nothing; the next request names what we have.
        3. The membership ends, and the next one may begin: `_life` has changed. The response, or
           the error, belongs to the one that is over, and is dropped. Its epoch would otherwise be
           taken for that of the next one.
        4. The response comes: `_accept()` takes target, epoch and interval. The next request has
           only what differs from `said`.
        5. An acknowledgement names what we have even if that is as before. Partitions may have been
           assigned and taken away again while the listener was at work: the coordinator waits to
           hear that we do not have them, and gives them to no other member until then.
        6. There is no response. The coordinator may have taken the request or not, so the next one
           says all again (`_news()`).
        7. It takes the request later, behind the next one: the connection was given up, not what
           was on its way. The coordinator may assign partitions in a response that does not reach
           us, and does not repeat them unless it is told all. So for as long as that can happen,
           each request says all.
        8. The request was the first one of a static member. The coordinator refuses another one
           while it counts the member, so the member leaves for a while before (`_take_back()`). It
           does so too if it joins again after a goodbye without a response, or because of an epoch
           that is over: the coordinator counts it all the while.
        9. The request was a goodbye. It may arrive behind the next join, and remove the member in
           the middle of its work. So the member leaves once more before it joins, and comes back
           under another id, to which the first goodbye means nothing. With another id alone its
           former partitions would wait for the end of its session. It does so, too, if its join was
           refused for its epoch: brokers before KAFKA-19233 do that while they count the member.
        """
        life = self._life
        limit = max(_SHORTEST_LIMIT, 2 * self.interval)
        try:
            if self._epoch == _JOINING and self._may_be_counted:
                await self._take_back(limit)
                if life != self._life:
                    return
            said = _Said(interest, self.owned, self.state is MemberState.ACKNOWLEDGING)
            request = self._news(said)
            # Until there is a response it is not known what arrived; without one all is said again.
            self._said = None
            response = await self._exchange(request, limit)
        except KafkaError:
            if life == self._life:
                raise
            return
        if life == self._life:
            self._accept(response, said)

    async def _take_back(self, limit: float) -> None:
        """Leave, if the coordinator counts this member, so that another one can join."""
        with contextlib.suppress(*_NOT_IN):
            await self._exchange(self._request(self._goodbye), limit)
        self.member_id = _new_id()

    @property
    def _goodbye(self) -> int:
        """The epoch by which a member leaves: for good, or for a while if a static one."""
        return _LEAVING if self._instance_id is None else _LEAVING_FOR_A_WHILE

    @property
    def is_in_doubt(self) -> bool:
        """Whether the last heartbeat had no response, and may have raised our epoch."""
        return self.is_member and self.generation >= 0 and self._said is None

    async def leave(self, reason: str) -> None:
        """Leave the group: for good, or for a while if a static member. Raises errors of the
        connection and of the response.

        It goes the way of the heartbeats, so that it cannot overtake one that joins.
        """
        self._transition(MemberState.LEAVING)
        self._forget(self._goodbye)
        goodbye, limit = self._request(self._epoch), self._config.client.request_timeout
        await self.link.insist(lambda: self._exchange(goodbye, limit))

    async def _exchange(
        self, request: ConsumerGroupHeartbeatRequest, limit: float
    ) -> ConsumerGroupHeartbeatResponse:
        limit = min(limit, self._config.client.request_timeout)
        was_counted = self._may_be_counted
        # Until there is a response: a wait that is cancelled brings none.
        self._may_be_counted = self._instance_id is not None or request.member_epoch < 0
        try:
            response = await self.link.send(request, limit, pick=_pick)
        except KafkaError:
            self._strays_until = asyncio.get_running_loop().time() + _LONGEST_WAY
            raise
        if response.error_code:
            is_fenced = response.error_code == FencedMemberEpoch.errno
            was_counted |= is_fenced and request.member_epoch == _JOINING
            self._may_be_counted = was_counted and response.error_code not in _NOT_IN_CODES
        elif request.member_epoch < 0:
            self._may_be_counted = False
        if response.error_code == UnsupportedVersionError.errno:
            raise UnsupportedVersionError(_lacks_protocol(f"node {self.link.coordinator_id}"))
        self.link.check(response.error_code, response.error_message)
        return response

    def _request(self, epoch: int) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self.member_id, member_epoch=epoch
        )
        if self._instance_id is not None:
            request.instance_id = self._instance_id
        return request

    def _news(self, saying: _Said) -> ConsumerGroupHeartbeatRequest:
        """Return a request with everything, or with what differs from what the coordinator
        knows."""
        request = self._request(self._epoch)
        may_have_strays = asyncio.get_running_loop().time() < self._strays_until
        said = None if may_have_strays else self._said
        if said is None:
            config = self._config
            timeout = config.rebalance_timeout or config.max_poll_interval
            request.rebalance_timeout_ms = round(timeout * 1000)
            request.server_assignor = config.group_remote_assignor
            # None for "", which the coordinator refuses.
            request.rack_id = config.client.client_rack or None
        if said is None or said.interest.topics != saying.interest.topics:
            request.subscribed_topic_names = sorted(saying.interest.topics)
        regex = saying.interest.regex
        self._may_have_regex |= regex is not None
        # One that is not taken back stays beside the names. Whether it was is not known any more,
        # and a static member that is back has that of its former life.
        may_differ = self._may_have_regex if said is None else regex != said.interest.regex
        if may_differ:
            request.subscribed_topic_regex = regex or ""
        if said is None or said.owned != saying.owned or saying.is_answer:
            request.topic_partitions = _by_topic(saying.owned)
        return request

    def _accept(self, response: ConsumerGroupHeartbeatResponse, said: _Said) -> None:
        if response.member_epoch <= 0:
            raise KafkaProtocolError(f"a heartbeat was answered with epoch {response.member_epoch}")
        if response.assignment is not None:
            self.target = _slots(response.assignment.topic_partitions)
        self._said = said
        self.member_id = response.member_id or self.member_id  # before KIP-1082 the broker's
        if response.member_epoch != self.generation:
            self._log.info(
                "Member %s at epoch %d, assignor %s of the coordinator",
                self.member_id,
                response.member_epoch,
                self._config.group_remote_assignor or "by default",
            )
        self._epoch = self.generation = response.member_epoch
        interval = response.heartbeat_interval_ms / 1000
        self.interval = max(interval, _SHORTEST_INTERVAL) if interval > 0 else _DEFAULT_INTERVAL
        # The one before the other: a response may confirm what we have and bring the next target.
        if self.state is MemberState.ACKNOWLEDGING and said.is_answer:
            self._transition(MemberState.STABLE)
        is_news = self.state is MemberState.STABLE and self.target != self.owned
        if is_news or self.state is MemberState.JOINING:
            self._transition(MemberState.RECONCILING)
        if self.state is MemberState.RECONCILING:
            self._claim_target()

    def _claim_target(self) -> None:
        """Say from the next heartbeat on that we own the target, too: the application is about to
        get it.

        1. That takes as long as its listener, or has not begun. A heartbeat is due that says
           everything, since the coordinator has moved or a response was lost.
        2. If it left the target out, the coordinator would take it for given up, and assign it to
           another member at once.
        3. The application has it in the end, and the records are read by both.
        """
        self.owned |= self.target


def _new_id() -> str:
    return base64.urlsafe_b64encode(_seams.random_uuid().bytes).decode().rstrip("=")


def _by_topic(slots: Slots) -> list[TopicPartitions]:
    topics: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(slots):
        topics.setdefault(topic_id, []).append(number)
    return [
        TopicPartitions(topic_id=topic_id, partitions=numbers)
        for topic_id, numbers in topics.items()
    ]


def _slots(topics: Iterable[TopicPartitions]) -> Slots:
    slots = frozenset((topic.topic_id, number) for topic in topics for number in topic.partitions)
    if any(number < 0 for _, number in slots):
        raise KafkaProtocolError("a heartbeat's answer assigns a partition with a negative number")
    return slots


def _lacks_protocol(peer: str) -> str:
    return (
        f"{peer} does not serve group_protocol='consumer': it needs Kafka 4.0 or later with "
        "the feature group.version at 1 and 'consumer' in group.coordinator.rebalance.protocols; "
        "group_protocol='classic' works with every broker"
    )


def _pick(connection: BrokerConnection, request: Request[Any]) -> int:
    """Return the version to use. Raises UnsupportedVersionError, with what the broker lacks."""
    try:
        version = connection.pick(type(request))
    except UnsupportedVersionError:
        raise UnsupportedVersionError(_lacks_protocol(connection.peer)) from None
    is_old = version < _FIRST_REGEX_VERSION
    if is_old and isinstance(request, ConsumerGroupHeartbeatRequest):
        if not request.subscribed_topic_regex:
            request.subscribed_topic_regex = None  # there is none to take back
            return version
        raise UnsupportedVersionError(
            f"{connection.peer}: a SubscriptionPattern needs Kafka 4.0 or later; "
            "a str is matched by the client"
        )
    return version
