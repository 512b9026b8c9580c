"""The next-generation protocol: the broker shares out, members follow step by step (KIP-848)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokafka._backoff import Backoff
from aiokafka._compat import timeout
from aiokafka.consumer._signal import Signal
from aiokafka.consumer.group.group import GroupCoordinator
from aiokafka.consumer.group.kip848_member import (
    Interest,
    Kip848Member,
    MemberState,
    Slots,
)
from aiokafka.consumer.group.topic_names import TopicNames
from aiokafka.consumer.position.committed import Identity, OffsetCommitter
from aiokafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    FencedMemberEpoch,
    GroupIdNotFound,
    KafkaError,
    StaleMemberEpoch,
    UnknownMemberIdError,
    UnreleasedInstanceId,
)
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.consumer._shared import Shared

__all__ = ["ConsumerCoordinator"]

_LOST = (UnknownMemberIdError, FencedMemberEpoch)
_CATCH_UP_TIMEOUT = 3.0

# Heartbeats in a session, which members are not told the length of, by the broker's defaults.
_BEATS_IN_A_SESSION = 9


class ConsumerCoordinator(GroupCoordinator):
    """Sends heartbeats, and brings the assignment to where their answers want it.

    1. A heartbeat's answer has a new target (RECONCILING).
    2. What is not in it is given up: the application finishes, commits, its listener is called.
    3. What is new in it is taken over, and the listener called.
    4. A heartbeat tells what we have now (ACKNOWLEDGING); only then others get what we gave up.

    Heartbeats go on all along, so a target may change while we work towards it; we then go on with
    the next one.

    Owns: when to send the next heartbeat, and the topic ids of the partitions that we have.
    """

    def __init__(
        self, shared: Shared, route: Callable[[], None], committer: OffsetCommitter
    ) -> None:
        super().__init__(shared, route, committer)
        client, config = shared.client, shared.config
        self._member = Kip848Member(client, config, committer.group_id, committer.contact)
        self._names = TopicNames(client)
        self._ids: dict[TopicPartition, bytes] = {}
        delays = (config.client.retry_backoff, config.client.retry_backoff_max)
        self._delays, self._name_delays = Backoff(*delays), Backoff(*delays)
        self._beats = Signal()
        self._last_beat = 0.0
        self._not_before = 0.0
        self._is_hurried = False
        committer.identify = self._identity

    @property
    def _membership(self) -> Kip848Member:
        return self._member

    @property
    def session_timeout(self) -> float:  # type: ignore[override]
        """As far as it can be guessed, in seconds."""
        return _BEATS_IN_A_SESSION * self._member.interval

    @property
    def _interest(self) -> Interest:
        subscription = self._subscriptions.subscription
        if subscription is None:
            return Interest(frozenset())
        if subscription.regex is not None:
            return Interest(frozenset(), subscription.regex)
        # The broker refuses whoever names a topic that he may not see, and all else with it. Those
        # who read are told of the topic; if there is no other, the broker says it.
        allowed = subscription.topics - self._client.cluster.unauthorized_topics
        return Interest(allowed or subscription.topics)

    def _assign(self) -> None:
        """Nothing follows from the metadata: the broker tells us of new partitions."""

    # -- towards the assignment --------------------------------------------------------------------

    def _has_work(self) -> bool:
        return self._reason is not None or self._member.state in (
            MemberState.FENCED,
            MemberState.RECONCILING,
        )

    async def _advance(self) -> None:
        if self._member.state is MemberState.FENCED:
            await self._handover.lose()
            self._ids.clear()
            self._handover.release()
            self._member.forget_member()
            self.request_join("the group removed us")
        elif self._reason is not None:
            self._reason = None
            if not self._member.is_member:
                self._ids.clear()
                self._member.begin()
            self._beats.notify()
        else:
            await self._reconcile()

    async def _reconcile(self) -> None:
        """One step: to what we have names for of the target."""
        target = self._member.target
        missing = await self._names.learn({topic_id for topic_id, _ in target})
        if not self._may_go_on():
            return
        wanted = self._named(target)
        owned = self._handover.owned
        if missing and wanted == {tp: self._ids.get(tp) for tp in owned} and self._is_settled:
            # The broker knows topics that others do not know yet, or do not know any more.
            now = asyncio.get_running_loop().time()
            await self._signal.wait(now + self._name_delays.next())
            return
        await self._change(wanted)
        if not self._may_go_on():
            return
        self._name_delays.reset()
        self._commits.resume()
        self._member.reconciled(frozenset((self._ids[tp], tp.partition) for tp in wanted))
        self._settle()
        self._beats.notify()

    def _may_go_on(self) -> bool:
        """Whether this still leads to the target; to be asked after every wait."""
        return self._member.state is MemberState.RECONCILING and self._may_take_part()

    def _named(self, slots: Slots) -> dict[TopicPartition, bytes]:
        found: dict[TopicPartition, bytes] = {}
        for topic_id, number in sorted(slots):
            name = self._names.get(topic_id)
            if name is not None:
                found[TopicPartition(name, number)] = topic_id
        return found

    async def _change(self, wanted: dict[TopicPartition, bytes]) -> None:
        await self._follow_topics(wanted)
        # A topic that was deleted and created again has a new id: its positions mean nothing.
        kept = (tp for tp in self._handover.owned if self._ids.get(tp) == wanted.get(tp))
        await self._handover.give_up_all_but(frozenset(kept))
        if self._may_go_on():
            self._ids = wanted
            await self._handover.extend(frozenset(wanted))

    async def _follow_topics(self, wanted: dict[TopicPartition, bytes]) -> None:
        """With a regular expression only the broker knows which topics we read."""
        subscription = self._subscriptions.subscription
        if subscription is not None and subscription.regex is not None:
            topics = frozenset(tp.topic for tp in wanted)
            if topics != subscription.topics:
                subscription.topics = topics
                known = self._client.set_topics(topics)
                await asyncio.wait([known], timeout=self._member.interval)

    # -- heartbeats --------------------------------------------------------------------------------

    async def _beat(self) -> None:
        while True:
            await self._wait_for_beat()
            self._notice_idleness()
            if not self._is_idle and self._is_beat_due():
                await self._beat_once()

    def _beat_at(self) -> float:
        """When the next heartbeat is due (loop time)."""
        if self._is_hurried or self._member.is_urgent(self._interest):
            return self._not_before
        return max(self._last_beat + self._member.interval, self._not_before)

    def _is_beat_due(self) -> bool:
        now = asyncio.get_running_loop().time()
        return self._member.is_member and self._may_take_part() and self._beat_at() <= now

    async def _wait_for_beat(self) -> None:
        now = asyncio.get_running_loop().time()
        latest = now + self._config.max_poll_interval / 2
        takes_part = self._member.is_member and self._may_take_part()
        due = min(latest, self._beat_at()) if takes_part else latest
        if due > now:
            await self._beats.wait(due)

    async def _beat_once(self) -> None:
        self._is_hurried = False
        self._last_beat = asyncio.get_running_loop().time()
        try:
            await self._member.heartbeat(self._interest)
            self._not_before = 0.0
            self._delays.reset()
            self._note_success()
        except KafkaError as error:
            self._not_before = asyncio.get_running_loop().time() + self._delays.next()
            self._on_heartbeat_failed(error)
        self._signal.notify()

    async def _catch_up(self, limit: float) -> None:
        # A heartbeat that was cut short may have raised our epoch, and a commit needs to name it.
        if not self._member.is_in_doubt:
            return
        try:
            async with timeout(min(limit, _CATCH_UP_TIMEOUT)):
                await self._member.heartbeat(self._interest)
        except (KafkaError, asyncio.TimeoutError) as error:
            self._log.info("No response to the last heartbeat: %s", error)

    def _on_heartbeat_failed(self, error: KafkaError) -> None:
        is_joining = self._member.state is MemberState.JOINING
        if isinstance(error, _LOST) or (isinstance(error, GroupIdNotFound) and not is_joining):
            self._lose_membership(error)
        elif not self._tolerate(error):
            self._end_with(_explained(error))

    def _lose_membership(self, error: BaseException) -> None:
        if not self._member.is_member:
            return
        self._log.info("The coordinator removed this member: %s", type(error).__name__)
        self._member.fence()
        self._is_settled = False
        self._commits.lose()
        self._signal.notify()

    def on_subscribed(self) -> None:
        super().on_subscribed()
        self._beats.notify()

    def _on_commit_refused(self, identity: Identity, error: CommitFailedError) -> None:
        cause = error.__cause__
        if identity.generation < 0:
            return
        if isinstance(cause, StaleMemberEpoch):
            self._is_hurried = True
            self._beats.notify()
        elif isinstance(cause, _LOST):
            self._lose_membership(cause)
        elif isinstance(cause, BrokerResponseError):
            self._end_with(cause)


def _explained(error: KafkaError) -> KafkaError:
    """With what to do about it."""
    if isinstance(error, UnreleasedInstanceId):
        hint = (
            "another member has this group_instance_id, or had it and was not stopped in order: "
            "the broker frees it at the end of its session, group.consumer.session.timeout.ms there"
        )
    elif isinstance(error, GroupIdNotFound):
        hint = (
            "the group has members of the classic protocol, and the broker does not convert it: "
            "see group.consumer.migration.policy there"
        )
    else:
        return error
    explained = type(error)(f"{error.args[0] if error.args else ''}: {hint}")
    explained.__cause__ = error
    return explained
