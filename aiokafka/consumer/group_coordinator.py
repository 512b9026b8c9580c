"""Who decides which partitions this consumer reads, and for whom it commits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from aiokafka.consumer.committer import CommittedOffset, Identity, OffsetCommitter
from aiokafka.consumer.partition_state import PartitionState
from aiokafka.consumer.subscription_state import Assignment, SubscriptionState
from aiokafka.errors import (
    IllegalOperation,
    KafkaError,
    TopicAuthorizationFailedError,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition

# Found here by other projects.
from aiokafka.client import CoordinationType  # isort: skip
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest  # isort: skip

if TYPE_CHECKING:
    from aiokafka._config import ConsumerConfig
    from aiokafka.client import AIOKafkaClient
    from aiokafka.consumer.fetcher import Fetcher

__all__ = [
    "CoordinationType",
    "GroupCoordinator",
    "NoGroupCoordinator",
    "OffsetCommitRequest",
]

log = logging.getLogger("aiokafka.consumer.group_coordinator")


class NoGroupCoordinator:
    """Without a group: every partition of the subscribed topics is ours, new ones as they appear.

    Writes the assignment while there is a subscription by topics or pattern. Rebalance listeners
    are not called, since nothing is ever shared out.
    """

    group_id: str | None = None
    coordinator_id: int | None = None
    member_id = ""
    generation = -1

    def __init__(
        self,
        client: AIOKafkaClient,
        config: ConsumerConfig,
        subscriptions: SubscriptionState,
        fetcher: Fetcher,
    ) -> None:
        self._client = client
        self._config = config
        self._subscriptions = subscriptions
        self._fetcher = fetcher
        self._denied: dict[str, PartitionState] = {}

    async def run(self) -> None:
        """Follow the metadata until cancelled."""
        while True:
            changed = self._client.metadata_changed()
            self.on_metadata()
            await changed

    def on_subscribed(self) -> None:
        """The application subscribed, assigned or unsubscribed."""
        subscriptions = self._subscriptions
        if subscriptions.pattern is not None:
            self._client.watch_all_topics()
        else:
            self._client.set_topics(subscriptions.topics)
        self.on_metadata()

    def on_metadata(self) -> None:
        """Bring the assignment up to the metadata, then have everything fetched from the right
        broker."""
        if self._subscriptions.subscription is not None and not self._subscriptions.is_manual:
            self._match_pattern()
            self._assign()
        self._report_denied()
        self._fetcher.route()

    async def stop(self) -> None:
        """Nothing to leave."""

    def _match_pattern(self) -> None:
        hide_internal = self._config.exclude_internal_topics
        self._subscriptions.match_pattern(self._client.cluster.topics(hide_internal))

    def _assign(self) -> None:
        """All partitions known. One that metadata does not show for a moment is kept."""
        topics = self._subscriptions.topics
        current = self._subscriptions.assignment.tps
        cluster = self._client.cluster
        wanted = {
            TopicPartition(topic, number)
            for topic in topics
            for number in cluster.partitions_for_topic(topic) or ()
        }
        wanted |= {tp for tp in current if tp.topic in topics}
        if wanted != current:
            self._subscriptions.assign_from_subscribed(sorted(wanted))

    def _report_denied(self) -> None:
        """Topics we may not read: said once per metadata answer, while the others go on."""
        denied = self._client.cluster.unauthorized_topics & self._subscriptions.topics
        for topic in [topic for topic in self._denied if topic not in denied]:
            self._fetcher.buffer.discard(self._denied.pop(topic))
        for topic in denied:
            state = self._denied.setdefault(topic, PartitionState(TopicPartition(topic, -1)))
            self._fetcher.report(state, partial(TopicAuthorizationFailedError, topic))


class GroupCoordinator(NoGroupCoordinator):
    """With a group: offsets are committed to it, in the background too if so configured.

    Partitions chosen by `assign()` belong to no member: whoever knows the group's name may commit
    for it.
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
        self._committer = committer
        self._committed: dict[TopicPartition, int] = {}

    def on_subscribed(self) -> None:
        """As without a group, for partitions chosen by `assign()`; subscriptions need
        membership."""
        subscription = self._subscriptions.subscription
        if subscription is not None and not subscription.is_manual:
            raise IllegalOperation(
                "sharing out partitions among the members of a group is not there yet: "
                "use assign(), or topics without group_id"
            )
        super().on_subscribed()

    async def commit_offsets(
        self, assignment: Assignment, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Store `offsets`, of partitions of `assignment`. Raises as `OffsetCommitter.commit`."""
        deadline = asyncio.get_running_loop().time() + self._config.default_api_timeout
        await self._commit(
            {tp: CommittedOffset(entry.offset, entry.metadata) for tp, entry in offsets.items()},
            deadline,
        )

    async def auto_commit(self) -> None:
        """Commit what the application has finished every `auto_commit_interval`, until
        cancelled."""
        interval = self._config.auto_commit_interval
        while True:
            await asyncio.sleep(interval)
            await self._commit_finished(self._config.client.request_timeout)

    async def stop(self) -> None:
        """Commit what is finished, if that is done in the background otherwise."""
        if self._config.enable_auto_commit:
            await self._commit_finished(self._config.client.request_timeout)

    async def _commit_finished(self, timeout: float) -> None:
        finished = self._finished()
        if not finished:
            return
        try:
            await self._commit(finished, asyncio.get_running_loop().time() + timeout)
        except KafkaError as error:
            log.warning("Group %s: auto-commit failed: %s", self.group_id, error)

    def _finished(self) -> dict[TopicPartition, CommittedOffset]:
        """Positions before what the latest call handed out, where they moved since the last
        commit."""
        call = self._fetcher.buffer.call
        finished: dict[TopicPartition, CommittedOffset] = {}
        for state in self._subscriptions.assignment.states():
            offset = state.finished_before(call)
            if offset >= 0 and self._committed.get(state.tp) != offset:
                finished[state.tp] = CommittedOffset(offset)
        return finished

    async def _commit(
        self, offsets: Mapping[TopicPartition, CommittedOffset], deadline: float
    ) -> None:
        await self._committer.commit(offsets, Identity(), deadline)
        self._committed.update({tp: entry.offset for tp, entry in offsets.items()})


def no_group(call: str) -> IllegalOperation:
    """The error of a call that makes no sense without a group."""
    return IllegalOperation(f"{call}() needs a consumer with group_id")
