"""Membership in a group: when to join, what to give up and take over, when to leave."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from aiokafka._backoff import Backoff
from aiokafka._compat import timeout
from aiokafka._tasks import TaskOwner
from aiokafka.consumer._signal import Signal
from aiokafka.consumer.committer import CommittedOffset, Identity, OffsetCommitter
from aiokafka.consumer.group_assignors import GroupAssignors, subscriptions_of
from aiokafka.consumer.group_commits import GroupCommits
from aiokafka.consumer.handover import Handover
from aiokafka.consumer.membership_classic import ClassicMembership, Joined
from aiokafka.consumer.no_group import NoGroupCoordinator
from aiokafka.consumer.subscription_state import Assignment, SubscriptionState
from aiokafka.errors import (
    BrokerResponseError,
    CommitFailedError,
    GroupAuthorizationFailedError,
    IllegalGenerationError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    UnknownMemberIdError,
)
from aiokafka.net.failures import renewed
from aiokafka.structs import OffsetAndMetadata, TopicPartition

# Found here by other projects.
from aiokafka.client import CoordinationType  # isort: skip
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest  # isort: skip

if TYPE_CHECKING:
    from aiokafka._consumer_config import ConsumerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.consumer.fetcher import Fetcher

__all__ = [
    "CoordinationType",
    "GroupCoordinator",
    "NoGroupCoordinator",
    "OffsetCommitRequest",
]

log = logging.getLogger("aiokafka.consumer.group_coordinator")

# How long stop() may take to tell the group.
_LEAVE_TIMEOUT = 3.0
_STOP_TIMEOUT = 5.0

_LOST = (UnknownMemberIdError, IllegalGenerationError)
# What an administrator may mend while the consumer waits.
_MENDABLE = (GroupAuthorizationFailedError, TopicAuthorizationFailedError)


class GroupCoordinator(NoGroupCoordinator):
    """With a group: joins it for subscriptions by topics or pattern, and commits offsets to it.

    One task, `run()`, does all that changes the membership and the assignment, one after the
    other: join, give up, take over, leave. A second one sends heartbeats and tells the first what
    they bring. Partitions chosen by `assign()` belong to no member: whoever knows the group's name
    may commit for it.

    Owns: why to join again (`_reason`), whether the member has its assignment (`_is_settled`), the
    topics and partitions that the leader shared out.
    """

    def __init__(
        self,
        client: AIOKafkaClient,
        config: ConsumerConfig,
        subscriptions: SubscriptionState,
        fetcher: Fetcher,
        committer: OffsetCommitter,
    ) -> None:
        super().__init__(client, config, subscriptions, fetcher)
        self.group_id = committer.group_id
        self._membership = ClassicMembership(client, config, committer.group_id, committer.contact)
        self._assignors = GroupAssignors(config.partition_assignment_strategy)
        self._commits = GroupCommits(
            config, committer, subscriptions, fetcher, self._identity, self._on_commit_refused
        )
        self._handover = Handover(config, subscriptions, fetcher, self._commits)
        self._tasks = TaskOwner(f"{config.client.client_id}-group", self._fail)
        self._signal = Signal()
        self._reason: str | None = None
        self._end: KafkaError | None = None
        self._failure: BaseException | None = None
        self._is_settled = False
        self._is_revoked = False
        self._is_idle = False
        self._is_joining = False
        self._is_starting = False
        self._call = 0
        self._polled_at = 0.0
        self._shared: dict[str, frozenset[int] | None] = {}

    # -- what others read --------------------------------------------------------------------------

    @property
    def coordinator_id(self) -> int | None:  # type: ignore[override]
        """Node id of the group's coordinator; None while it is not known."""
        return self._membership.coordinator_id

    @property
    def member_id(self) -> str:  # type: ignore[override]
        """Name of this member within the group, "" outside it."""
        return self._membership.member_id

    @property
    def generation(self) -> int:  # type: ignore[override]
        """The group's generation, -1 outside it."""
        return self._membership.generation

    def check(self) -> None:
        """Raise what ended the membership."""
        if self._failure is not None:
            raise renewed(self._failure) from self._failure

    # -- life --------------------------------------------------------------------------------------

    async def start(self, tasks: TaskOwner) -> None:
        """Work in the background; wait for the first assignment if there is a subscription.

        Raises KafkaTimeoutError if no coordinator is found within `request_timeout_ms`, errors that
        no retry mends.
        """
        tasks.start(self.follow_metadata(), name="metadata")
        self._note_polls()
        self._is_starting = True
        self._tasks.start(self.run(), name="membership")
        self._tasks.start(self._beat(), name="heartbeat")
        if self._config.enable_auto_commit:
            self._tasks.start(self._commits.run(), name="auto-commit")
        while self._wants_membership() and not self._is_settled:
            self.check()
            await self._signal.wait()
        self._is_starting = False
        self._note_polls()
        self.check()

    async def stop(self) -> None:
        """End the background work, commit what is finished if so configured, leave the group
        unless a static member."""
        await self._tasks.stop(asyncio.get_running_loop().time() + _STOP_TIMEOUT)
        self._commits.resume()
        is_lost = self._wants_membership() and self.generation < 0
        if self._config.enable_auto_commit and not is_lost and self._failure is None:
            await self._commits.commit_finished(self._config.client.request_timeout)
        await self._leave("the consumer is stopped")

    async def close(self, deadline: float) -> None:
        """End what `stop()` left, if it was cancelled."""
        await self._tasks.stop(deadline)

    def on_subscribed(self) -> None:
        """The application subscribed, assigned or unsubscribed."""
        self._note_polls()
        self._is_idle = False
        if self._wants_membership():
            self.request_join("the subscription changed")
        elif self._membership.is_member:
            # Until the group is left it refuses commits of partitions chosen by hand.
            self._commits.suspend()
            self._signal.notify()
            self._fetcher.polls.notify()
        super().on_subscribed()

    def request_join(self, reason: str) -> None:
        """Join (again) soon."""
        if self._reason is None:
            log.info("Group %s: joining: %s", self.group_id, reason)
            self._reason = reason
        self._signal.notify()
        self._fetcher.polls.notify()

    def _wants_membership(self) -> bool:
        subscription = self._subscriptions.subscription
        return subscription is not None and not subscription.is_manual

    def _identity(self) -> Identity:
        return self._membership.identity if self._wants_membership() else Identity()

    def _fail(self, error: BaseException) -> None:
        """The end of the membership: whoever reads or commits is told."""
        self._failure = error
        self._commits.resume()
        self._fetcher.hold()
        self._fetcher.wake_readers()
        self._fetcher.positions.notify()
        self._signal.notify()

    # -- metadata ----------------------------------------------------------------------------------

    def _match_pattern(self) -> None:
        hide_internal = self._config.exclude_internal_topics
        if self._subscriptions.match_pattern(self._client.cluster.topics(hide_internal)):
            self.request_join("topics that match the pattern changed")

    def _assign(self) -> None:
        """The leader looks whether what it has shared out has changed."""
        cluster = self._client.cluster
        for topic, numbers in self._shared.items():
            found = cluster.partitions_for_topic(topic)
            if self._is_settled and found is not None and found != numbers:
                self.request_join(f"partitions of {topic} changed")

    # -- membership --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Join, join again, leave, as it becomes necessary; until cancelled.

        Raises what no retry mends, after everything was dropped.
        """
        try:
            await self._run()
        except KafkaError:
            await self._handover.lose()
            raise

    async def _run(self) -> None:
        while True:
            if self._end is not None:
                raise self._end
            if not self._wants_membership():
                self._reason = None
                if self._membership.is_member:
                    await self._resign("the consumer unsubscribed")
                self._commits.resume()
            elif self._is_idle:
                if self._membership.is_member:
                    self._commits.lose()
                    await self._resign("the application did not ask for records in time")
                    await self._handover.lose()
                    self._handover.release()
                await self._fetcher.polls.wait()
                self._is_idle = False
                self._note_polls()
                self.request_join("the application asks for records again")
            elif self._reason is not None:
                await self._rebalance()
                continue
            if self._reason is None and not self._is_idle and self._end is None:
                await self._signal.wait()

    async def _rebalance(self) -> None:
        """Join until it works or is no longer wanted."""
        client = self._config.client
        delays = Backoff(client.retry_backoff, client.retry_backoff_max)
        try:
            while self._wants_membership() and self._reason is not None and not self._is_idle:
                try:
                    await self._join()
                    delays.reset()
                except KafkaError as error:
                    self._on_join_failed(error)
                    await asyncio.sleep(delays.next())
        finally:
            self._is_joining = False
            if self._wants_membership():
                self._commits.resume()
            self._handover.release()

    async def _join(self) -> None:
        """One round: give up, join, take over."""
        await self._prepare()
        if not self._wants_membership() or self._is_idle:
            return
        reason, self._reason = self._reason or "", None
        subscription = self._subscriptions.subscription
        topics = self._subscriptions.topics
        self._is_settled = False
        self._is_joining = True
        self._commits.suspend()
        try:
            joined = await self._membership.join(self._assignors.protocols(topics), reason)
            shares = await self._share_out(joined)
            data = await self._membership.sync(joined, shares)
        except KafkaError:
            if self._reason is None:
                self._reason = reason
            raise
        self._is_joining = False
        assignment = self._assignors.accept(joined.protocol, joined.generation, data)
        if self._subscriptions.subscription is subscription:
            await self._adopt(frozenset(assignment.partitions()))

    async def _prepare(self) -> None:
        """Before a join: without membership everything is lost; eager members give up all."""
        if self.generation < 0:
            if self._handover.owned and not self._is_revoked:
                self._assignors.forget()
                await self._handover.lose()
                self._handover.release()
        elif not self._assignors.is_cooperative and not self._is_revoked:
            owned = self._handover.owned
            if owned:
                await self._handover.revoke(owned)
            self._is_revoked = True

    async def _share_out(self, joined: Joined) -> dict[str, bytes]:
        """The leader's work."""
        was_leader, self._shared = bool(self._shared), {}
        if not joined.members:
            if was_leader and self._subscriptions.pattern is None:
                self._client.set_topics(self._subscriptions.topics)
            return {}
        wanted = subscriptions_of(joined.members).values()
        topics = {topic for metadata in wanted for topic in metadata.subscription}
        if self._subscriptions.pattern is None:
            # Others may want topics that we do not.
            known = self._client.set_topics(topics | self._subscriptions.topics)
            await asyncio.wait([known], timeout=self._config.session_timeout / 2)
        cluster = self._client.cluster
        shares = self._assignors.share_out(joined.protocol, cluster, joined.members)
        self._shared = {topic: cluster.partitions_for_topic(topic) for topic in topics}
        return shares

    async def _adopt(self, assigned: frozenset[TopicPartition]) -> None:
        self._commits.resume()
        self._is_revoked = False
        if self._assignors.is_cooperative:
            if await self._handover.change(assigned):
                self.request_join("partitions were given up for others")
        else:
            await self._handover.take_over(assigned)
        self._handover.release()
        self._is_settled = True
        self._signal.notify()
        self.on_metadata()

    def _on_join_failed(self, error: KafkaError) -> None:
        """Retry, say, or give up."""
        if isinstance(error, _LOST):
            self._lose_membership(error)
        elif self._is_starting and isinstance(error, (*_MENDABLE, KafkaTimeoutError)):
            raise error
        elif isinstance(error, _MENDABLE):
            self._fetcher.complain(renewed(error))
        elif isinstance(error, RebalanceInProgressError) or _passes(error):
            log.debug("Group %s: not joined: %s", self.group_id, error)
        else:
            raise error

    async def _resign(self, reason: str) -> None:
        """Leave, and join no more until there is a reason."""
        self._is_settled = self._is_revoked = False
        self._reason = None
        self._assignors.forget()
        await self._leave(reason)

    async def _leave(self, reason: str) -> None:
        if not self._membership.is_member:
            return
        if self._config.group_instance_id is not None:
            self._membership.forget_member()  # a static member is missed by its session's end
            return
        try:
            async with timeout(_LEAVE_TIMEOUT):
                await self._membership.leave(reason)
        except (KafkaError, asyncio.TimeoutError) as error:
            log.info("Group %s: not told that we leave: %s", self.group_id, error)
        finally:
            self._membership.forget_member()

    # -- heartbeats --------------------------------------------------------------------------------

    async def _beat(self) -> None:
        """Tell the group that we live, until cancelled; look whether the application does."""
        client = self._config.client
        delays = Backoff(client.retry_backoff, client.retry_backoff_max)
        interval = min(self._config.heartbeat_interval, self._config.max_poll_interval / 2)
        delay = interval
        while True:
            await asyncio.sleep(delay)
            delay = interval
            if self._is_overdue():
                self._is_idle = True
                self._signal.notify()
            if self.generation < 0 or self._is_joining or self._is_idle:
                continue
            generation = self.generation
            try:
                await self._membership.heartbeat()
                delays.reset()
            except KafkaError as error:
                if generation == self.generation and not self._is_joining:
                    self._on_heartbeat_failed(error)
                    delay = min(interval, delays.next())

    def _on_heartbeat_failed(self, error: KafkaError) -> None:
        if isinstance(error, RebalanceInProgressError):
            self.request_join("the group is rebalancing")
        elif isinstance(error, _LOST):
            self._lose_membership(error)
        elif isinstance(error, _MENDABLE):
            self._fetcher.complain(renewed(error))
        elif _passes(error):
            log.debug("Group %s: heartbeat failed: %s", self.group_id, error)
        else:
            self._end_with(error)

    def _end_with(self, error: KafkaError) -> None:
        """Have the membership's task end."""
        self._membership.forget_member()
        self._commits.lose()
        self._end = error
        self._signal.notify()

    def _lose_membership(self, error: BaseException) -> None:
        if isinstance(error, IllegalGenerationError):
            self._membership.forget_generation()
        else:
            self._membership.forget_member()
        self._is_settled = False
        self._commits.lose()
        self.request_join(f"the group removed us: {type(error).__name__}")

    def _note_polls(self) -> None:
        self._call = self._fetcher.buffer.call
        self._polled_at = asyncio.get_running_loop().time()

    def _is_overdue(self) -> bool:
        """Whether the application has not asked for records within `max_poll_interval_ms`."""
        if self._fetcher.buffer.call != self._call or self._fetcher.has_readers:
            self._note_polls()
        now = asyncio.get_running_loop().time()
        return not self._is_idle and now - self._polled_at > self._config.max_poll_interval

    # -- offsets -----------------------------------------------------------------------------------

    async def commit_offsets(
        self, assignment: Assignment, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Store `offsets`, of partitions of `assignment`. Raises as `GroupCommits.commit`."""
        self.check()
        deadline = asyncio.get_running_loop().time() + self._config.default_api_timeout
        entries = {
            tp: CommittedOffset(entry.offset, entry.metadata) for tp, entry in offsets.items()
        }
        await self._commits.commit(entries, deadline)

    def _on_commit_refused(self, identity: Identity, error: CommitFailedError) -> None:
        """The group does not count us as a member of this generation."""
        cause = error.__cause__
        if identity.generation < 0:
            return
        if isinstance(cause, _LOST):
            self._lose_membership(cause)
        elif isinstance(cause, RebalanceInProgressError):
            self.request_join("the group is rebalancing")
        elif isinstance(cause, BrokerResponseError):
            self._end_with(cause)


def _passes(error: KafkaError) -> bool:
    """Whether to go on trying."""
    return error.retriable or isinstance(error, KafkaTimeoutError)
