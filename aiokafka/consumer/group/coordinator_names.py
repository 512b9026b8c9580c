"""What programs call, or look at, on ``consumer._coordinator``, under the names of aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

from aiokafka._config.client import ClientConfig
from aiokafka._config.consumer import ConsumerConfig
from aiokafka._config.options import with_options
from aiokafka.consumer.group.commits import GroupCommits
from aiokafka.consumer.group.state import Standing
from aiokafka.consumer.position.committed import OffsetCommitter
from aiokafka.consumer.subscription_state import SubscribedTopics
from aiokafka.structs import OffsetAndMetadata, TopicPartition

__all__ = ["CoordinatorNames"]


class CommitLock:
    """What programs look at, or hold in `async with`, as if commits took a lock."""

    def __init__(self, commits: GroupCommits) -> None:
        self._commits = commits
        self._pause: AbstractAsyncContextManager[object] | None = None

    def locked(self) -> bool:
        """Return whether offsets are being committed, or kept from it."""
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
    """Nothing in the package uses these, nor ``_session_timeout_ms`` and the other options."""

    _config: ConsumerConfig
    _topics: SubscribedTopics
    _standing: Standing
    _commits: GroupCommits
    _committer: OffsetCommitter

    async def fetch_committed_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what the group has committed, for those of `partitions` that have it. Raises
        KafkaTimeoutError after `default_api_timeout_ms`."""
        tps = list(partitions)
        deadline = asyncio.get_running_loop().time() + self._config.default_api_timeout
        found = await self._committer.fetch(tps, deadline) if tps else {}
        return {tp: OffsetAndMetadata(*committed) for tp, committed in found.items()}

    def request_rejoin(self) -> None:
        """Let the member join, or join again, soon."""
        self._standing.request_join("a program asked for it")

    @property
    def _metadata_snapshot(self) -> dict[str, int]:
        """How many partitions each topic in use has, as Faust asks."""
        return self._topics.partition_counts

    @property
    def _rejoin_needed_fut(self) -> asyncio.Future[None]:
        return self._standing.rejoin.get(self._standing.reason is not None)

    @property
    def _commit_lock(self) -> CommitLock:
        return CommitLock(self._commits)
