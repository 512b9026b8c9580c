"""The consumer protocol: the coordinator assigns, members follow step by step (KIP-848)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from aiokafka._backoff import Backoff
from aiokafka._compat import timeout_at
from aiokafka._log import SubjectLog
from aiokafka._tasks import unless
from aiokafka.consumer._signal import Signal
from aiokafka.consumer.group.kip848_member import (
    Interest,
    Kip848Member,
    MemberState,
    Slots,
)
from aiokafka.consumer.group.protocol import GroupParts
from aiokafka.consumer.group.topic_names import TopicNames
from aiokafka.consumer.position.committed import Identity
from aiokafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    FencedMemberEpoch,
    GroupIdNotFound,
    KafkaError,
    StaleMemberEpoch,
    UnknownError,
    UnknownMemberIdError,
    UnreleasedInstanceId,
)
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata

__all__ = ["Kip848Protocol"]

log = logging.getLogger("aiokafka.consumer.group_coordinator")

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
