"""Commits of a member, around rebalances; and of a consumer that chose its partitions itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from aiokafka._backoff import Backoff
from aiokafka.consumer._signal import Signal
from aiokafka.consumer.committer import CommittedOffset, Identity, OffsetCommitter
from aiokafka.errors import (
    CommitFailedError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    StaleMemberEpoch,
)
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._consumer_config import ConsumerConfig
    from aiokafka.consumer.fetcher import Fetcher
    from aiokafka.consumer.subscription_state import Assignment, SubscriptionState

__all__ = ["GroupCommits"]

log = logging.getLogger("aiokafka.consumer.group_coordinator")
# The next heartbeat brings what is needed for the next attempt.
_PASSING = (RebalanceInProgressError, StaleMemberEpoch)


class GroupCommits:
    """Commits with the identity of the moment.

    While the member joins (`suspend()` to `resume()`) a commit waits, since nobody can tell yet
    whose the partitions will be. Then it is made as a member of the new generation, or refused if
    one of its partitions went to another member.

    Owns: the offsets committed last, by partition.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        committer: OffsetCommitter,
        subscriptions: SubscriptionState,
        fetcher: Fetcher,
        identity: Callable[[], Identity],
        on_refused: Callable[[Identity, CommitFailedError], None],
    ) -> None:
        self._config = config
        self._committer = committer
        self._subscriptions = subscriptions
        self._fetcher = fetcher
        self._identity = identity
        self._on_refused = on_refused
        self._committed: dict[TopicPartition, int] = {}
        self._is_suspended = False
        self._is_lost = False
        self._losses = 0
        self._changed = Signal()

    def suspend(self) -> None:
        """The member joins: have commits wait."""
        self._is_suspended = True

    def resume(self) -> None:
        """The member has its assignment, or left."""
        self._is_suspended = self._is_lost = False
        self._changed.notify()

    def lose(self) -> None:
        """The group removed the member: what it has in hand, others read again."""
        self._is_lost = True
        self._losses += 1
        self._changed.notify()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """What others may commit for meanwhile."""
        for tp in partitions:
            self._committed.pop(tp, None)

    async def commit(
        self, offsets: Mapping[TopicPartition, CommittedOffset], deadline: float
    ) -> None:
        """Store `offsets`. Raises as `OffsetCommitter.commit`, and CommitFailedError when a
        partition was taken away."""
        client = self._config.client
        delays = Backoff(client.retry_backoff, client.retry_backoff_max)
        losses = self._losses
        while True:
            await self._wait_for_assignment(deadline)
            if self._is_lost or losses != self._losses:
                raise CommitFailedError("the group removed this member")
            self._refuse_foreign(offsets)
            identity = self._identity()
            try:
                await self._committer.commit(offsets, identity, deadline)
                break
            except CommitFailedError as error:
                is_same = identity == self._identity() and not self._is_suspended
                if is_same:
                    self._on_refused(identity, error)
                    if not isinstance(error.__cause__, _PASSING):
                        raise
            await asyncio.sleep(delays.next())
        self._committed.update({tp: entry.offset for tp, entry in offsets.items()})
        self._fetcher.polls.notify()

    async def _wait_for_assignment(self, deadline: float) -> None:
        while self._is_suspended and not self._is_lost:
            if not await self._changed.wait(deadline):
                raise KafkaTimeoutError(
                    f"group {self._committer.group_id!r}: offsets not committed in time: "
                    "the group is rebalancing"
                )

    def _refuse_foreign(self, offsets: Iterable[TopicPartition]) -> None:
        foreign = set(offsets) - self._subscriptions.assignment.tps
        if foreign:
            names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(foreign))
            raise CommitFailedError(f"not this member's any more: {names}")

    # -- what the application has finished -------------------------------------------------------

    async def run(self) -> None:
        """Commit what is finished every `auto_commit_interval`, until cancelled."""
        while True:
            await asyncio.sleep(self._config.auto_commit_interval)
            if not self._is_suspended and not self._is_lost:
                await self.commit_finished(self._config.client.request_timeout)

    async def commit_finished(self, timeout: float) -> None:
        """Commit what is finished and was not committed yet; failures are logged."""
        finished = self._finished(self._subscriptions.assignment)
        if not finished:
            return
        try:
            await self.commit(finished, asyncio.get_running_loop().time() + timeout)
        except KafkaError as error:
            log.warning("Group %s: auto-commit failed: %s", self._committer.group_id, error)

    async def commit_abandoned(
        self, assignment: Assignment, identity: Identity, timeout: float
    ) -> None:
        """As `commit_finished`, for an assignment that the application has given up."""
        finished = self._finished(assignment)
        if not finished:
            return
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            await self._committer.commit(finished, identity, deadline)
        except KafkaError as error:
            log.warning("Group %s: auto-commit failed: %s", self._committer.group_id, error)

    def _finished(self, assignment: Assignment) -> dict[TopicPartition, CommittedOffset]:
        """Positions before what the latest call handed out, where they moved since the last
        commit."""
        call = self._fetcher.buffer.call
        finished: dict[TopicPartition, CommittedOffset] = {}
        for state in assignment.states():
            offset = state.finished_before(call)
            committed = self._committed.get(state.tp, -1)
            # The application may have committed more than we know to be finished.
            is_covered = offset <= committed <= state.next_offset
            if offset >= 0 and not is_covered:
                finished[state.tp] = CommittedOffset(offset)
        return finished

    def in_work(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether the application may still be at work on records of these partitions: they came
        with its latest call and are not committed."""
        call = self._fetcher.buffer.call
        if not call:
            return False
        for tp in partitions:
            state = self._subscriptions.assignment.get(tp)
            if state is None or state.next_offset < 0:
                continue
            is_finished = state.finished_before(call) >= state.next_offset
            if not is_finished and self._committed.get(tp, -1) < state.next_offset:
                return True
        return False
