"""Attributes of aiokafka 0.14's GroupCoordinator, for programs that use them.

Programs find them in ``consumer._coordinator``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from aiokafka._config.client import ClientConfig
from aiokafka._config.consumer import ConsumerConfig
from aiokafka._config.options import with_options
from aiokafka.structs import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka.consumer.group.commits import GroupCommits
    from aiokafka.consumer.group.state import MembershipStateMachine
    from aiokafka.consumer.position.committed import OffsetCommitter
    from aiokafka.consumer.subscription_state import SubscribedTopics

__all__ = ["CoordinatorNames"]


class CommitLock:
    """The attribute `_commit_lock` of aiokafka 0.14's coordinator. Programs call `locked()`, or
    hold the lock with `async with` to prevent commits."""

    def __init__(self, commits: GroupCommits) -> None:
        self._commits = commits
        self._pause: AbstractAsyncContextManager[object] | None = None

    def locked(self) -> bool:
        """Return whether a commit is in progress or the lock is held."""
        return self._commits.is_committing

    async def __aenter__(self) -> None:
        pause = self._commits.pause()
        await pause.__aenter__()
        self._pause = pause

    async def __aexit__(self, *error: Any) -> None:
        pause, self._pause = self._pause, None
        if pause is not None:
            await pause.__aexit__(*error)


@with_options({"_config": ConsumerConfig, "_config.client": ClientConfig})
class CoordinatorNames:
    """Base class with the attributes of aiokafka 0.14's GroupCoordinator that only programs use.
    `with_options` adds attributes for options, such as ``_session_timeout_ms``."""

    if TYPE_CHECKING:
        _config: ConsumerConfig
        _topics: SubscribedTopics
        state: MembershipStateMachine
        commits: GroupCommits
        _committer: OffsetCommitter

    async def fetch_committed_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of `partitions`. Partitions without a committed offset are
        omitted. Raises KafkaTimeoutError after `default_api_timeout_ms`."""
        tps = list(partitions)
        deadline = asyncio.get_running_loop().time() + self._config.default_api_timeout
        found = await self._committer.fetch(tps, deadline) if tps else {}
        return {tp: OffsetAndMetadata(*committed) for tp, committed in found.items()}

    def request_rejoin(self) -> None:
        """Request that the member joins or rejoins its group, without waiting for it."""
        self.state.request_join("a program asked for it")

    @property
    def _metadata_snapshot(self) -> dict[str, int]:
        """The number of partitions of each subscribed topic; Faust reads it."""
        return self._topics.partition_counts

    @property
    def _rejoin_needed_fut(self) -> asyncio.Future[None]:
        return self.state.rejoin.get(self.state.reason is not None)

    @property
    def _commit_lock(self) -> CommitLock:
        return CommitLock(self.commits)
