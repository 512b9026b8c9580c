"""The consumer protocol: the coordinator assigns, members follow step by step (KIP-848)."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import enum
import logging
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka import _clock
from aiokafka._compat import timeout_at
from aiokafka._log import SubjectLog
from aiokafka._retry import Backoff, RetryNodes
from aiokafka._tasks import unless
from aiokafka.consumer._shared import Signal
from aiokafka.consumer.group.membership import GroupLink, GroupParts
from aiokafka.consumer.position.committed import Identity
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
from aiokafka.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._config.consumer import ConsumerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.cluster import ClusterMetadata
    from aiokafka.net.connection import BrokerConnection
    from aiokafka.protocol.schema import Request

__all__ = ["Interest", "Kip848Member", "Kip848Protocol", "MemberState", "Slots", "TopicNames"]


# -- Names of the topics that a broker calls by their ids


log = logging.getLogger("aiokafka.consumer.group_coordinator")


class TopicNames:
    """Looks in the metadata first, then asks a broker.

    Owns: the names of the ids that it was asked for last, so that a topic that is deleted keeps its
    name for as long as it is assigned.
    """

    def __init__(self, client: AIOKafkaClient) -> None:
        self._client = client
        self._nodes = RetryNodes(client)
        self._names: dict[bytes, str] = {}

    def get(self, topic_id: bytes) -> str | None:
        """Return the name; None if it is not known."""
        return self._names.get(topic_id)

    async def learn(self, topic_ids: Iterable[bytes]) -> set[bytes]:
        """Learn the names of these ids and forget all others. Returns those without a known
        name."""
        cluster = self._client.cluster
        # What is known goes first: the metadata forgets a deleted topic, whose partitions are
        # assigned for a moment longer.
        found = ((i, self._names.get(i) or cluster.topic_name(i)) for i in topic_ids)
        names = dict(found)
        self._names = {i: name for i, name in names.items() if name is not None}
        missing = names.keys() - self._names.keys()
        if missing:
            try:
                self._names.update(await self._ask(missing))
            except (KafkaError, asyncio.TimeoutError) as error:
                log.debug("names of %d topics not found: %s", len(missing), error)
        return set(missing - self._names.keys())

    async def _ask(self, topic_ids: Iterable[bytes]) -> dict[bytes, str]:
        self._client.request_metadata("the group's coordinator assigned an unknown topic")
        wanted = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in topic_ids]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        deadline = asyncio.get_running_loop().time() + self._client.config.request_timeout
        response = await self._nodes.ask(lambda node: self._client.send(node, request), deadline)
        return {
            topic.topic_id: topic.name
            for topic in response.topics
            if topic.name and not topic.error_code
        }


# -- The consumer protocol from a member's side (KIP-848): heartbeats that say what has changed, and


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
    return base64.urlsafe_b64encode(_clock.random_uuid().bytes).decode().rstrip("=")


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


_LOST = (UnknownMemberIdError, FencedMemberEpoch)

# Heartbeats in a session, which members are not told the length of, by the broker's defaults.
_BEATS_IN_A_SESSION = 9

# Seconds. The first members of a classic group wait for others, 3 s by the brokers' default, and
# again for each that comes meanwhile.
_FIRST_REBALANCE = 15.0


class Kip848Protocol:
    """Sends heartbeats, and brings the assignment to the target in their responses: the
    GroupProtocol of brokers since Kafka 4.0.

    1. The response to a heartbeat has a new target (RECONCILING). The membership's task wakes up.
    2. Partitions that are not in it are revoked: the application finishes, commits, its listener is
       called. The member keeps its epoch, so the commits are taken.
    3. Partitions that are new in it are taken over, and the listener is called.
    4. A heartbeat says what we have now (ACKNOWLEDGING). Only then the coordinator assigns to
       others what was revoked.
    5. The response confirms it (STABLE).

    Heartbeats go on all along, so each of these may come in between:

    - The target changes while we work towards it. `ConsumerGroupHeartbeat` says what we had before
      and what we take over, and after the acknowledgement the next target is reconciled.
    - A heartbeat has no response. The coordinator may have raised our epoch, or not, so the next
      one says everything again (`Kip848Member.heartbeat`), and the last commit waits for one
      (`catch_up`).
    - The coordinator fences the member (FENCED). Steps 2 to 4 end where they are, everything is
      lost, and the member joins again.
    - The application unsubscribes. `_may_go_on()` is asked after every wait.

    Owns: when to send the next heartbeat, and whether one is out; the topic ids of the partitions
    that we have; since when it joins.
    """

    def __init__(self, parts: GroupParts, member: Kip848Member) -> None:
        shared = parts.shared
        config = shared.config
        self.member = member
        self._client = shared.client
        self._config = config
        self._subscriptions = shared.subscriptions
        self._log = SubjectLog(log, config.subject)
        self._parts = parts
        self._standing = parts.standing
        self._commits = parts.commits
        self._handover = parts.handover
        self._names = TopicNames(shared.client)
        self._ids: dict[TopicPartition, bytes] = {}
        delays = (config.client.retry_backoff, config.client.retry_backoff_max)
        self._delays, self._name_delays = Backoff(*delays), Backoff(*delays)
        self._beats = Signal()
        self._last_beat = 0.0
        self._not_before = 0.0
        self._is_hurried = False
        self._is_beating = False
        self._began_to_join = 0.0

    @property
    def session_timeout(self) -> float:
        """The session as far as it can be guessed, in seconds."""
        return _BEATS_IN_A_SESSION * self.member.interval

    @property
    def keeps_partitions(self) -> bool:
        """Whether the member has its partitions until it says otherwise: always."""
        return True

    @property
    def is_joining(self) -> bool:
        """Whether the member enters another generation: never, for there are none. What its epoch
        is, `catch_up()` finds out."""
        return False

    @property
    def is_awaited(self) -> bool:
        """Whether other members wait for this one: never, for the coordinator assigns."""
        return False

    @property
    def _interest(self) -> Interest:
        subscription = self._subscriptions.subscription
        if subscription is None:
            return Interest(frozenset())
        if subscription.regex is not None:
            return Interest(frozenset(), subscription.regex)
        # One unauthorized topic makes the broker reject the whole heartbeat. Readers get its error
        # without that; if there is no other topic, the broker's error says it.
        allowed = subscription.topics - self._client.cluster.unauthorized_topics
        return Interest(allowed or subscription.topics)

    def on_metadata(self) -> None:
        """Do nothing: the broker assigns new partitions."""

    def on_subscribed(self) -> None:
        """Send a heartbeat soon: the application has changed its subscription."""
        self._beats.notify()

    def forget(self) -> None:
        """Do nothing: the member forgets by itself what it has told the broker."""

    # -- towards the assignment --------------------------------------------------------------------

    def has_work(self) -> bool:
        """Return whether there is a reason to join, or a target to reach."""
        return self._standing.reason is not None or self.member.state in (
            MemberState.FENCED,
            MemberState.RECONCILING,
        )

    async def advance(self) -> None:
        """Go one step towards the target, or to membership."""
        if self.member.state is MemberState.FENCED:
            # In this order: all that the membership gave is gone, and the listener has heard of it,
            # before there is the next membership.
            await self._handover.lose()
            self._ids.clear()
            self._handover.release()
            self.member.forget_member()
            self._standing.request_join("the group removed us")
        elif self._standing.reason is not None:
            self._standing.take_reason()
            if not self.member.is_member:
                self._ids.clear()
                self.member.begin()
                self._began_to_join = asyncio.get_running_loop().time()
            self._beats.notify()
        else:
            await self._reconcile()

    async def _reconcile(self) -> None:
        """Go one step: to the part of the target whose topics have known names."""
        target = self.member.target
        await self._ask(self._names.learn({topic_id for topic_id, _ in target}))
        if not self._may_go_on():
            return
        wanted = self._named(target)
        owned = self._handover.owned
        if (
            len(wanted) < len(target)
            and wanted == {tp: self._ids.get(tp) for tp in owned}
            and self._standing.is_joined
        ):
            # The coordinator knows topics that other brokers do not know yet, or not any more; or
            # two of its topics have one name.
            self.member.claim_only(self._slots(owned))
            now = asyncio.get_running_loop().time()
            await self._standing.signal.wait(now + self._name_delays.next())
            return
        if not self.member.has_claimed((topic_id, tp.partition) for tp, topic_id in wanted.items()):
            # Left out above, and told so: they may be another member's by now. The response to a
            # heartbeat says whether they are still in the target.
            self._hurry()
            await self._standing.signal.wait()
            return
        await self._change(wanted)
        if not self._may_go_on():
            return
        self._name_delays.reset()
        self.member.reconciled(self._slots(wanted))
        self._parts.settle()
        self._beats.notify()

    def _may_go_on(self) -> bool:
        """Return whether this still leads to the target; to be asked after every wait."""
        return self.member.state is MemberState.RECONCILING and self._standing.may_take_part()

    async def _ask(self, question: Coroutine[Any, Any, object]) -> None:
        """Await what a broker may take long to answer, for as long as this leads to the target: who
        is removed meanwhile has to give up what it owns at once, for others read it by now."""
        await unless(self._lose_the_way(), question)

    async def _lose_the_way(self) -> None:
        """Return when this does not lead to the target any more."""
        while self._may_go_on():
            await self._standing.signal.wait()

    def _named(self, slots: Slots) -> dict[TopicPartition, bytes]:
        """Return the partitions of the topics whose names are known, each with the topic's id. Of
        two ids with one name, of a topic that was deleted and created again, the one that the
        metadata has."""
        found: dict[TopicPartition, bytes] = {}
        cluster = self._client.cluster
        for topic_id, number in sorted(
            slots, key=lambda slot: (cluster.topic_name(slot[0]) is not None, slot)
        ):
            name = self._names.get(topic_id)
            if name is not None:
                found[TopicPartition(name, number)] = topic_id
        return found

    def _slots(self, partitions: Iterable[TopicPartition]) -> Slots:
        """Return partitions that we have as the broker names them."""
        return frozenset((self._ids[tp], tp.partition) for tp in partitions)

    async def _change(self, wanted: dict[TopicPartition, bytes]) -> None:
        await self._follow_topics(wanted)
        if not self._may_go_on():
            return
        # A topic that was deleted and created again has a new id: its positions mean nothing.
        kept = (tp for tp in self._handover.owned if self._ids.get(tp) == wanted.get(tp))
        await self._handover.give_up_all_but(frozenset(kept))
        if self._may_go_on():
            await self._await_ids(wanted)
        if self._may_go_on():
            # Not before: until they are revoked, partitions go by the ids that they were assigned
            # by.
            self._ids = wanted
            ids = {tp.topic: topic_id for tp, topic_id in wanted.items()}
            # Before the listener is called: it may commit for what it gets.
            self._commits.resume()
            await self._handover.extend(frozenset(wanted), ids)

    async def _follow_topics(self, wanted: dict[TopicPartition, bytes]) -> None:
        """Take the topics of the assignment as subscribed, for a regular expression: only the
        broker knows what matches."""
        topics = frozenset(tp.topic for tp in wanted)
        if self._subscriptions.take_topics(topics):
            known = self._client.set_topics(topics)
            # Without metadata there would be no leaders to ask. What is late is looked up later:
            # the coordinator waits for us, and others for it.
            await self._ask(asyncio.wait([known], timeout=self.member.interval))

    async def _await_ids(self, wanted: dict[TopicPartition, bytes]) -> None:
        """Wait for metadata that does not name a former topic of the same name: leaders are found,
        and asked for positions, by name."""
        ids = {tp.topic: topic_id for tp, topic_id in wanted.items()}

        def is_up_to_date(cluster: ClusterMetadata) -> bool:
            return all(cluster.topic_id(name) in (None, topic_id) for name, topic_id in ids.items())

        # Not longer: the coordinator waits for us.
        deadline = asyncio.get_running_loop().time() + self.member.interval
        try:
            why = "the group's coordinator assigned a topic with another id"
            await self._ask(self._client.wait_for_metadata(is_up_to_date, deadline, why))
        except KafkaError as error:
            self._log.debug("%s", error)

    # -- heartbeats --------------------------------------------------------------------------------

    async def send_heartbeats(self) -> None:
        """Keep the membership alive, until cancelled; look whether the application is."""
        while True:
            await self._wait_for_beat()
            self._parts.polls.notice_idleness()
            if self._is_beat_due():
                await self._beat_once()

    def _beat_at(self) -> float:
        """Return when the next heartbeat is due (loop time)."""
        if self._is_hurried or self.member.is_urgent(self._interest):
            return self._not_before
        return max(self._last_beat + self.member.interval, self._not_before)

    def _is_beat_due(self) -> bool:
        now = asyncio.get_running_loop().time()
        return self.member.is_member and self._standing.may_take_part() and self._beat_at() <= now

    async def _wait_for_beat(self) -> None:
        now = asyncio.get_running_loop().time()
        latest = now + self._config.max_poll_interval / 2
        takes_part = self.member.is_member and self._standing.may_take_part()
        due = min(latest, self._beat_at()) if takes_part else latest
        if due > now:
            await self._beats.wait(due)

    async def _beat_once(self) -> None:
        # Before the request, since a commit may be refused while it is out: that asks for another
        # one.
        self._is_hurried = False
        self._last_beat = asyncio.get_running_loop().time()
        self._is_beating = True
        try:
            await self.member.heartbeat(self._interest)
            self._not_before = 0.0
            self._delays.reset()
            self._parts.errors.clear()
        except KafkaError as error:
            # Also for urgent ones: else a coordinator that refuses each would be asked as fast as
            # it responds.
            self._not_before = asyncio.get_running_loop().time() + self._delays.next()
            self._on_heartbeat_failed(error)
        finally:
            self._is_beating = False
            self._standing.signal.notify()

    def _hurry(self) -> None:
        """Send a heartbeat soon, though the member has no news."""
        self._is_hurried = True
        self._beats.notify()

    async def catch_up(self, limit: float) -> None:
        """Wait for the response to a heartbeat, or repeat one without a response, within `limit`
        seconds: it may have raised our epoch, and a commit needs to name it."""
        deadline = asyncio.get_running_loop().time() + limit
        while self._is_beating and await self._standing.signal.wait(deadline):
            pass
        if self._is_beating or not self.member.is_in_doubt:
            return
        try:
            async with timeout_at(deadline):
                await self.member.heartbeat(self._interest)
        except (KafkaError, asyncio.TimeoutError) as error:
            self._log.info("No response to the last heartbeat: %s", str(error) or "it is late")

    def _on_heartbeat_failed(self, error: KafkaError) -> None:
        is_joining = self.member.state is MemberState.JOINING
        # A group that is not found is gone for a member; one that joins is told so about a group of
        # the other protocol, which no retry changes.
        if isinstance(error, _LOST) or (isinstance(error, GroupIdNotFound) and not is_joining):
            self._lose_membership(error)
        elif is_joining and isinstance(error, UnknownError) and self._is_early():
            # Up to Kafka 4.3 the coordinator fails to convert a classic group until its first
            # rebalance is over (group.initial.rebalance.delay.ms).
            self._standing.note_trouble(error)
        elif not self._parts.errors.may_pass(error):
            self._end_with(_explained(error))

    def _is_early(self) -> bool:
        """Return whether a classic group that began when this member did may be in its first
        rebalance."""
        now = asyncio.get_running_loop().time()
        return now < self._began_to_join + _FIRST_REBALANCE

    def _lose_membership(self, error: BaseException) -> None:
        if not self.member.is_member:
            return
        self._log.info("The coordinator removed this member: %s", type(error).__name__)
        # All of this in one step, and no more: this may be the heartbeats' task, or the
        # application's in a commit. The listener is called by the membership's own.
        self.member.fence()
        self._standing.unsettle()
        self._commits.lose()
        self._standing.signal.notify()

    def _end_with(self, error: KafkaError) -> None:
        self.member.fail()
        self._commits.lose()
        self._standing.begin_failing(error)

    def on_commit_refused(self, identity: Identity, error: CommitFailedError) -> None:
        """Send a heartbeat soon, join again, or end the membership: the group refused a commit of
        this epoch."""
        cause = error.__cause__
        if isinstance(cause, StaleMemberEpoch):
            self._hurry()
        elif isinstance(cause, (*_LOST, GroupIdNotFound)):
            self._lose_membership(cause)
        elif isinstance(cause, BrokerResponseError):
            self._end_with(cause)


def _explained(error: KafkaError) -> KafkaError:
    """Return the error with a hint what to do about it."""
    if isinstance(error, UnreleasedInstanceId):
        hint = (
            "another member has this group_instance_id, or had it and was not stopped in order: "
            "the broker frees it at the end of its session, group.consumer.session.timeout.ms there"
        )
    elif isinstance(error, GroupIdNotFound):
        hint = (
            "the group has members of the classic protocol, and the broker does not convert it. "
            "Its group.consumer.migration.policy has to be 'bidirectional' or 'upgrade', and these "
            "members have to be consumers; else stop them first, or join with "
            "group_protocol='classic'"
        )
    else:
        return error
    explained = type(error)(f"{error.args[0] if error.args else ''}: {hint}")
    explained.__cause__ = error
    return explained
