"""Commits of a group: their order, commits during rebalances, auto-commit, late commits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from aiokafka._health import Wait
from aiokafka._log import SubjectLog
from aiokafka._retry import Backoff
from aiokafka._tasks import TaskOwner
from aiokafka.consumer._arguments import some_names
from aiokafka.consumer._context import Signal, refuse_in_listener
from aiokafka.consumer._partition_state import PartitionState, Phase
from aiokafka.consumer.position.committed import (
    ALREADY_REBALANCED,
    CommittedOffset,
    Identity,
    OffsetCommitter,
    OffsetsToCommit,
)
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    StaleMemberEpoch,
)
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.consumer._context import ConsumerContext

__all__ = ["CommitQueue", "GroupCommits", "QueuedCommit", "RevokedAssignment"]

Offsets = Mapping[TopicPartition, CommittedOffset]
TopicIds = Mapping[str, bytes]


# -- The order of commits


class QueuedCommit:
    """One call that commits. Written by `CommitQueue`, except `revoked` and `in_flight`."""

    __slots__ = ("_removed", "before", "in_flight", "partitions", "revoked")

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = frozenset(partitions)
        self.before: dict[TopicPartition, QueuedCommit] = {}
        """The commit to wait for, by partition; empty at the head of the queue."""
        self.revoked: frozenset[TopicPartition] = frozenset()
        """Partitions that were revoked since the call, even if they were assigned again."""
        self.in_flight: Collection[TopicPartition] = ()
        """Partitions in the request that has no response yet."""
        self._removed: Signal | None = None

    async def wait_until_removed(self, deadline: float | None) -> bool:
        """Return True when the commit leaves the queue, False at `deadline` (loop time)."""
        if self._removed is None:
            self._removed = Signal()
        return await self._removed.wait(deadline)

    def wake_waiters(self) -> None:
        """Wake the commits that wait for this one."""
        if self._removed is not None:
            self._removed.notify()


class CommitQueue:
    """The order of commits: one at a time for each partition.

    Owns: the unfinished commits, and the last of them for each partition. A commit waits for these
    predecessors only, so its end wakes few others, even if an application commits each record.
    """

    def __init__(self) -> None:
        self._all: dict[QueuedCommit, None] = {}
        self._last: dict[TopicPartition, QueuedCommit] = {}

    def __iter__(self) -> Iterator[QueuedCommit]:
        return iter(self._all)

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, partitions: Iterable[TopicPartition]) -> QueuedCommit:
        """Return a new commit, behind all commits of these partitions."""
        queued = QueuedCommit(partitions)
        for tp in queued.partitions:
            if tp in self._last:
                queued.before[tp] = self._last[tp]
            self._last[tp] = queued
        self._all[queued] = None
        return queued

    async def wait(self, queued: QueuedCommit, deadline: float | None) -> bool:
        """Return True when `queued` is the first commit of each of its partitions, False at
        `deadline`."""
        # A commit waits for earlier commits only, so there is no deadlock.
        while (other := self._first_before(queued)) is not None:
            if not await other.wait_until_removed(deadline):
                return False
        queued.before.clear()
        return True

    def remove(self, queued: QueuedCommit) -> None:
        """Let the next commits proceed: `queued` has ended, or its wait was cancelled."""
        del self._all[queued]
        for tp in queued.partitions:
            if self._last[tp] is queued:
                other = self._unfinished(tp, queued.before.get(tp))
                if other is None:
                    del self._last[tp]
                else:
                    self._last[tp] = other
        queued.wake_waiters()

    def _first_before(self, queued: QueuedCommit) -> QueuedCommit | None:
        for tp, before in queued.before.items():
            other = self._unfinished(tp, before)
            if other is not None:
                return other
        return None

    def _unfinished(self, tp: TopicPartition, queued: QueuedCommit | None) -> QueuedCommit | None:
        """Return `queued`. If its wait was cancelled, return the commit that it waited for."""
        while queued is not None and queued not in self._all:
            queued = queued.before.get(tp)
        return queued


# -- What is known of a partition's commits


# Brokers delete old offsets: those of a group without members (KIP-211), and before Kafka 2.1 all
# of them, after a day by default before 2.0.
_LONGEST_REST = 3600.0


class LastCommit(NamedTuple):
    """The last offset that this consumer has committed for a partition."""

    entry: CommittedOffset
    epoch: int
    """Epoch of the PartitionState at that time; -1 if the partition was not assigned."""
    at: float
    """Loop time of the response."""

    def offset_for(self, state: PartitionState) -> int:
        """Return the offset; -1 if a later `seek()` or reset has made it meaningless.

        An application may commit beyond its position. But after it has gone back, by `seek()` or
        because the topic was recreated, the records that it reads now are not committed.
        """
        offset, position = self.entry.offset, state.position
        is_void = self.epoch != state.epoch and position is not None and offset > position
        return -1 if is_void else offset

    def is_due(self, state: PartitionState) -> bool:
        """Return whether to commit the same offset again, before the broker deletes it."""
        return state.epoch == self.epoch and _now() - self.at > _LONGEST_REST

    def is_before_seek(self, state: PartitionState) -> bool:
        """Return whether the position was sought or reset since, and the partition is still
        assigned."""
        return state.epoch != self.epoch and state.phase is not Phase.RETIRED


class RevokedInHand(NamedTuple):
    """Records of a revoked partition that the application had not committed."""

    call: int
    """Number of the call that returned them."""
    position: int
    """The position after them."""


class RevokedAssignment(NamedTuple):
    """An assignment that has ended, and the ids that its topics had at that time."""

    assignment: Assignment
    topic_ids: TopicIds


def _now() -> float:
    return asyncio.get_running_loop().time()


log = logging.getLogger("aiokafka.consumer.group_coordinator")
# A heartbeat response brings the generation or epoch for the next attempt.
_RETRIED = (RebalanceInProgressError, StaleMemberEpoch)

# In seconds. With an auto-commit interval of 0, commits are made at least so far apart.
_SHORTEST_INTERVAL = 0.01
# With an interval of 0, an application that always finds records gives no signal: check at least so
# often for finished records.
_LONGEST_LOOK = 0.1
# The wait before the last check for late commits.
_LAST_LOOK = 1.0
# Shortest timeout of an auto-commit, however short the interval: a coordinator may be slow.
_SHORTEST_ATTEMPT = 1.0


class GroupCommits:
    """Commits offsets with the member's current identity.

    A commit during a rebalance, in `_commit()`:

    1. The member begins to join: `suspend()`. Commits wait from here on. The old generation is
       rejected once the new one begins, and in the new one the partitions may belong to another
       member.
    2. A commit that was sent just before may be rejected with REBALANCE_IN_PROGRESS or a stale
       generation. The group protocol learns of the error, and joins. The commit waits again.
    3. The assignment arrives: `resume()`. Each waiting commit is checked against the assignment. A
       commit of a partition that another member has now fails here, before it is sent.
    4. The other commits are sent in the new generation. This member has had their partitions all
       the while, so no other member has committed a later offset.
    5. A partition may go to another member and come back while a commit waits or is retried. The
       other member may have committed a later offset. So a commit that was called before the
       revocation fails even if the partition is assigned again (`revoke_all_but()`).
    6. If the group removes the member (`on_removed()`), all commits called so far fail: another
       member may have read and committed the same records.

    Commits of one partition are sent one after the other, in the order of the calls. Otherwise a
    retried commit could overwrite a later one.

    When the consumer stops, unfinished commits end before the member leaves (`close()`). After
    LeaveGroup they would be commits of a client that is no member. The coordinator accepts those
    when the group is empty, whatever its members have committed before.

    With `assign()` no member has the partitions. When such partitions are unassigned, auto-commit
    commits their finished records in a task; only `stop()` waits for it.

    Owns: the last commit of each partition; the queue of commits; the revoked partitions with
    uncommitted records; the last manual assignment; the tasks of its commits; the task that checks
    for late commits.
    """

    def __init__(
        self,
        context: ConsumerContext,
        committer: OffsetCommitter,
        on_refused: Callable[[CommitFailedError], None],
        tasks: TaskOwner,
    ) -> None:
        """Args: on_refused: Called when the coordinator no longer accepts the member's identity."""
        self._config = context.config
        self._log = SubjectLog(log, context.config.subject)
        self._committer = committer
        self._member = committer.member
        self._waits = context.client.waits
        self._subscriptions = context.subscriptions
        self._queue = context.queue
        self._on_refused = on_refused
        self._tasks = tasks
        self._late_check: asyncio.Task[None] | None = None
        self._committed: dict[TopicPartition, LastCommit] = {}
        self._commits = CommitQueue()
        self._revoked_in_hand: dict[TopicPartition, RevokedInHand] = {}
        self._is_closed = False
        self._is_failing = False
        self._is_suspended = False
        self._is_removed = False
        self._removals = 0
        self._changed = Signal()
        self._manual: Assignment | None = None
        self._manual_tasks = TaskOwner(f"{context.config.client.client_id}-chosen")

    # -- the membership ----------------------------------------------------------------------------

    @property
    def is_removed(self) -> bool:
        """Whether the group has removed the member, without an assignment since."""
        return self._is_removed

    def suspend(self) -> None:
        """Make commits wait: a join begins."""
        self._is_suspended = True

    def resume(self) -> None:
        """Let commits proceed: the member has its assignment, or has left."""
        self._is_suspended = self._is_removed = False
        self._changed.notify()

    def close(self) -> None:
        """Send no more commits. Waiting ones raise ConsumerStoppedError."""
        self._is_closed = True
        self._manual_tasks.cancel()
        self.resume()

    def on_removed(self) -> None:
        """Fail all commits called so far: the group has removed the member, and other members read
        the same records."""
        # Manual assignments are not lost, and earlier subscriptions ended with `unsubscribe()`.
        if self._subscriptions.is_by_group:
            self._is_removed = True
            self._removals += 1
            self._changed.notify()
            # A revocation may wait for a commit of the application, which fails now.
            self._queue.polls.notify()

    def clear_removal(self) -> None:
        """Accept commits again: they are for partitions that the group has not assigned."""
        self._is_removed = False

    def follow_subscription(self) -> None:
        """Fail the commits of partitions that a new subscription has ended. Auto-commit the
        finished records of unassigned manual partitions."""
        self.revoke_all_but(self._subscriptions.assignment.tps)
        self._commit_unassigned()

    def revoke_all_but(self, kept: frozenset[TopicPartition]) -> None:
        """Fail the commits called so far for other partitions, even if these are assigned again
        before the commit is sent."""
        self._committer.forget_all_but(kept)
        for queued in self._commits:
            queued.revoked |= queued.partitions - kept

    def forget_committed(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the last commits of partitions that are about to be revoked or assigned: other
        members may commit for them. Remember which of them have uncommitted records."""
        call = self._queue.buffer.call
        # Those of an earlier call no longer matter: see `refuse_revoked()`.
        self._revoked_in_hand = {
            tp: in_hand for tp, in_hand in self._revoked_in_hand.items() if in_hand.call == call
        }
        # A reader that waits for records has finished those before.
        is_done = self._queue.has_readers
        for tp in partitions:
            state = self._subscriptions.assignment.get(tp)
            position = None if is_done or state is None else self._uncommitted_position(state)
            if position is not None:
                self._revoked_in_hand[tp] = RevokedInHand(call, position)
            self._committed.pop(tp, None)

    def _uncommitted_position(self, state: PartitionState) -> int | None:
        """Return the position if records before it were returned and are not committed."""
        # `call` is 0 if no record of the partition was returned.
        position = state.position if state.call else None
        return None if position is None or self._last_committed(state) >= position else position

    def refuse_revoked(self) -> None:
        """Raise CommitFailedError, once, if partitions were revoked with uncommitted records."""
        in_hand, self._revoked_in_hand = self._revoked_in_hand, {}
        call = self._queue.buffer.call
        # With a later call the application has finished these records without a commit, so this
        # commit cannot be meant for them.
        lost = [tp for tp, revoked in in_hand.items() if revoked.call == call]
        if lost:
            raise CommitFailedError(
                f"group {self._committer.group_id!r}: {ALREADY_REBALANCED}: taken away since their "
                f"records were handed out: {some_names(lost)}; the present owners of these "
                "partitions read them again"
            )

    # -- commits of the application ----------------------------------------------------------------

    async def commit(
        self,
        offsets: Offsets,
        deadline: float,
        optional: Collection[TopicPartition] = frozenset(),
    ) -> None:
        """Commit `offsets` after all earlier commits of the same partitions.

        Raises as `OffsetCommitter.commit`, and CommitFailedError when a partition was revoked.
        `optional` partitions are left out then.
        """
        # Read before any wait: the offsets belong to the assignment and the topics of the call.
        removals = self._removals
        topic_ids = self._committer.topic_ids(offsets)
        async with self._turn(offsets, deadline) as queued:

            def still_assigned() -> tuple[Offsets, TopicIds]:
                revoked = queued.revoked | (offsets.keys() - self._subscriptions.assignment.tps)
                _refuse_foreign(revoked.difference(optional))
                return {tp: e for tp, e in offsets.items() if tp not in revoked}, topic_ids

            await self._commit(queued, still_assigned, deadline, removals)

    async def commit_positions(self, offsets: Offsets, deadline: float) -> None:
        """Commit positions, as `commit()`. Partitions without uncommitted records are optional: if
        they are revoked, no other member reads a record again."""
        states = self._subscriptions.assignment.states()
        optional = {state.tp for state in states if self._uncommitted_position(state) is None}
        await self.commit(offsets, deadline, optional)

    @property
    def is_committing(self) -> bool:
        """Whether there is an unfinished commit."""
        return bool(self._commits)

    def pause(self) -> AbstractAsyncContextManager[object]:
        """Return a block during which the assigned partitions are not committed. Raises
        KafkaTimeoutError."""
        deadline = _now() + self._config.default_api_timeout
        return self._turn(self._subscriptions.assignment.tps, deadline)

    @asynccontextmanager
    async def _turn(
        self, partitions: Iterable[TopicPartition], deadline: float
    ) -> AsyncIterator[QueuedCommit]:
        """Wait for the earlier commits of these partitions; later ones wait for the block."""
        queued = self._commits.add(partitions)
        try:
            if queued.before and not await self._wait_for_turn(queued, deadline):
                raise self._earlier_commit_unfinished()
            yield queued
        finally:
            self._commits.remove(queued)
            if self._changed.waiters:
                self._changed.notify()

    async def _wait_for_turn(self, queued: QueuedCommit, deadline: float) -> bool:
        # The cause is logged by the commit that this one waits for.
        what = f"an earlier commit of group {self._committer.group_id!r}"
        reason = "it is still tried"
        with self._waits.on(what, queued.partitions, reason, is_logged=lambda: True):
            return await self._commits.wait(queued, deadline)

    def _earlier_commit_unfinished(self) -> KafkaTimeoutError:
        return KafkaTimeoutError(
            f"group {self._committer.group_id!r}: offsets not committed in time: "
            "an earlier commit of the same partitions is still tried"
        )

    def _why_waiting(self) -> KafkaError | None:
        is_waiting = self._is_suspended and not self._is_closed
        return RebalanceInProgressError("the group is rebalancing") if is_waiting else None

    async def _commit(
        self,
        queued: QueuedCommit,
        choose: Callable[[], tuple[Offsets, TopicIds]],
        deadline: float,
        removals: int,
    ) -> None:
        """Commit the offsets that `choose` returns just before each request is sent.

        `removals`: how often the group had removed the member when the commit was called. Raises
        CommitFailedError if the group has removed it since.
        """
        what = f"OffsetCommit of group {self._committer.group_id!r}"
        with self._waits.on(what, why=self._why_waiting) as waiting:
            await self._commit_in_turn(queued, choose, deadline, removals, waiting)

    async def _commit_in_turn(
        self,
        queued: QueuedCommit,
        choose: Callable[[], tuple[Offsets, TopicIds]],
        deadline: float,
        removals: int,
        waiting: Wait,
    ) -> None:
        delays: Backoff | None = None
        while True:
            if self._is_suspended:
                await self._wait_for_assignment(deadline, removals)
            if self._is_closed:
                raise ConsumerStoppedError("the consumer was stopped meanwhile")
            # No await until the identity is read: offsets of one assignment must not be sent with
            # the identity of another one. The coordinator rejects an identity that changes later.
            if self._is_removed_since(removals):
                raise CommitFailedError(f"{ALREADY_REBALANCED}: it removed this member")
            offsets, topic_ids = choose()
            if not offsets:
                return
            identity = self._identity()
            note_stored = self._note_stored(offsets)
            queued.in_flight = offsets.keys()
            try:
                await self._committer.commit(
                    OffsetsToCommit(offsets, topic_ids, identity, note_stored), deadline
                )
                self._maybe_check_late_commits()
                return
            except CommitFailedError as error:
                # The identity was rejected. If it has changed since, by a join that is in progress
                # or complete, the next attempt has the new identity.
                is_same = identity == self._identity() and not self._is_suspended
                if is_same:
                    if identity.generation >= 0:
                        self._on_refused(error)
                    if not self._is_suspended and not isinstance(error.__cause__, _RETRIED):
                        raise
                refusal = error
                waiting.note(error)
            finally:
                # In any other case than a retry, `_turn()` notifies of this at once.
                queued.in_flight = ()
            self._changed.notify()
            if delays is None:
                client = self._config.client
                delays = Backoff(client.retry_backoff, client.retry_backoff_max)
            await self._pause(delays.next(), deadline, refusal)

    def _identity(self) -> Identity:
        """Return the member's identity; that of no member for a manual assignment."""
        return self._member.identity if self._subscriptions.is_by_group else Identity()

    def _note_stored(self, offsets: Offsets) -> Callable[[TopicPartition], None]:
        """Return a function that records that an offset is committed. Auto-commit must not commit
        an earlier offset, even if other partitions of the same commit failed."""
        assignment = self._subscriptions.assignment
        # Epochs at the time of the request: after a seek or reset the position is another one.
        epochs = {tp: assignment.state_value(tp).epoch for tp in offsets}

        def note(tp: TopicPartition) -> None:
            entry, is_ours = offsets[tp], tp in self._subscriptions.assignment.tps
            self._committed[tp] = LastCommit(entry, epochs[tp] if is_ours else -1, _now())
            # The partition was assigned again, and its records are committed after all.
            in_hand = self._revoked_in_hand.get(tp)
            if in_hand is not None and entry.offset >= in_hand.position:
                del self._revoked_in_hand[tp]
            # `Rebalance.revoke` may wait for the application to finish its records.
            if self._queue.polls.waiters:
                self._queue.polls.notify()

        return note

    async def _pause(self, delay: float, deadline: float, refusal: CommitFailedError) -> None:
        """Wait before another attempt. Raises KafkaTimeoutError at `deadline`."""
        await asyncio.sleep(max(0.0, min(delay, deadline - _now())))
        if _now() >= deadline:
            raise KafkaTimeoutError(
                f"group {self._committer.group_id!r}: offsets not committed in time: "
                f"{refusal.__cause__ or refusal}"
            ) from refusal

    def _is_removed_since(self, removals: int) -> bool:
        """Return whether the group has removed the member since there were so many removals."""
        # The count is needed: the group may have removed the member, and given it the same
        # partitions again, which clears `_is_removed`. Other members had them in between.
        return self._is_removed or removals != self._removals

    async def _wait_for_assignment(self, deadline: float, removals: int) -> None:
        while self._is_suspended and not self._is_removed_since(removals):
            # A listener would wait for a commit that waits for the listener.
            refuse_in_listener(self._queue, "commit() of what was assigned since unsubscribe()")
            if not await self._changed.wait(deadline):
                raise KafkaTimeoutError(
                    f"group {self._committer.group_id!r}: offsets not committed in time: "
                    "the group is rebalancing"
                )

    # -- late commits: an earlier request that the coordinator processes after a later one ---------

    def _maybe_check_late_commits(self) -> None:
        """Start a task that checks that the confirmed commit is not overwritten."""
        is_checking = self._late_check is not None and not self._late_check.done()
        if self._committer.to_look_up and not is_checking and not self._tasks.is_stopping:
            self._late_check = self._tasks.start(self._check_late_commits(), name="late-commits")

    async def _check_late_commits(self) -> None:
        while self._committer.to_look_up:
            await asyncio.sleep(self._committer.look_up_pause)
            await self.restore_overwritten(_now() + self._config.client.request_timeout)

    async def check_late_commits_once_more(self, deadline: float) -> None:
        """Check for late commits a moment before the consumer stops. Needed where the generation
        does not end with it, so that the coordinator would still accept them."""
        left = deadline - _now()
        if self._committer.to_look_up and left > 0:
            await asyncio.sleep(min(_LAST_LOOK, left / 2))
            await self.restore_overwritten(deadline)

    async def restore_overwritten(self, deadline: float) -> None:
        """Commit again the offsets that a late commit has overwritten; see `UnansweredCommits`.
        Ends at `deadline` (loop time). Errors are logged."""
        partitions = self._committer.to_look_up & self._subscriptions.assignment.tps
        if not partitions:
            return
        try:
            # Outside the queue: commits of the application must not wait for this request.
            found = await self._committer.fetch(partitions, deadline)
            if not self._committer.overwritten(found):
                return
            async with self._turn(partitions, deadline) as queued:
                # Computed again, now that no other commit is in flight. Partitions that were
                # revoked since are not included, and a new generation rejects the late commit.
                offsets = self._committer.overwritten(found)
                if not offsets or self._is_suspended or self._is_removed or self._is_closed:
                    return
                names = some_names(offsets)
                self._log.info("Stored again, as a late commit has overwritten it: %s", names)
                topic_ids = self._committer.topic_ids(offsets)
                queued.in_flight = offsets.keys()
                try:
                    await self._committer.commit(
                        OffsetsToCommit(offsets, topic_ids, self._identity()), deadline
                    )
                finally:
                    queued.in_flight = ()
        except KafkaError as error:
            self._log.debug("Not looked for late commits: %s", error)

    # -- finished records: returned before the latest call of the application ----------------------

    async def run(self) -> None:
        """Auto-commit every `auto_commit_interval`, until cancelled. With an interval of 0, commit
        whenever records are finished."""
        interval = self._config.auto_commit_interval
        # A slow attempt ends after one interval, so that the next one includes newer records.
        limit = min(self._config.client.request_timeout, max(interval, _SHORTEST_ATTEMPT))
        self._commit_unassigned()
        while True:
            await asyncio.sleep(max(interval, _SHORTEST_INTERVAL))
            if not interval:
                await self._queue.polls.wait(_now() + _LONGEST_LOOK)
            # A suspended commit would wait in the queue, and block commits of the application.
            if not self._is_suspended and not self._is_removed:
                await self.commit_finished(limit)

    async def commit_finished(self, timeout: float) -> None:
        """Commit finished records. Errors are logged."""
        partitions = self._subscriptions.assignment.tps
        if not self._finished(self._subscriptions.assignment):
            return

        def finished() -> tuple[Offsets, TopicIds]:
            # Computed when it is sent: an earlier commit may have stored these offsets or later
            # ones, and another assignment has other positions.
            found = self._finished(self._subscriptions.assignment)
            kept = {tp: entry for tp, entry in found.items() if tp in partitions}
            return kept, self._committer.topic_ids(kept)

        deadline = _now() + timeout
        try:
            async with self._turn(partitions, deadline) as queued:
                # An earlier removal does not matter, because the offsets are computed later.
                await self._commit(queued, finished, deadline, self._removals)
            self._is_failing = False
        except (KafkaError, ConsumerStoppedError) as error:
            self.log_failure(error)

    async def finish(self, deadline: float, *, auto: bool) -> None:
        """Wait until all commits have ended, at most until `deadline` (loop time). `auto`: first
        commit finished records."""
        if auto:
            await self.commit_finished(deadline - _now())
        while self._commits and await self._changed.wait(deadline):
            pass
        await self.restore_overwritten(deadline)

    def log_failure(self, error: Exception) -> None:
        """Log that an auto-commit failed: as a WARNING the first time, until one succeeds."""
        level = logging.DEBUG if self._is_failing else logging.WARNING
        self._is_failing = True
        self._log.log(level, "auto-commit failed: %s", error)

    async def commit_revoked(
        self, revoked: RevokedAssignment, identity: Identity, timeout: float
    ) -> None:
        """Commit the finished records of an assignment that the application has ended, after the
        in-flight commits of its partitions. Raises as `OffsetCommitter.commit`.

        Commits that wait for an assignment are not waited for: they wait for this commit.
        """
        deadline = _now() + timeout
        partitions = revoked.assignment.tps
        while any(not partitions.isdisjoint(queued.in_flight) for queued in self._commits):
            if not await self._changed.wait(deadline):
                raise self._earlier_commit_unfinished()
        finished = self._finished(revoked.assignment)
        if finished:
            commit = OffsetsToCommit(finished, revoked.topic_ids, identity)
            await self._committer.commit(commit, deadline)

    def _commit_unassigned(self) -> None:
        """Auto-commit the finished records of manual partitions that are no longer assigned."""
        latest, now = self._manual, self._subscriptions.assignment
        self._manual = now if self._subscriptions.is_manual else None
        is_auto = self._config.enable_auto_commit
        if latest is None or not is_auto or self._manual_tasks.is_stopping:
            return
        gone = {state.tp: state for state in latest.states() if now.get(state.tp) is not state}
        if gone:
            revoked = self.as_revoked(Assignment(gone, -1))
            self._manual_tasks.start(self._commit_manual(revoked), name="commit")

    async def _commit_manual(self, revoked: RevokedAssignment) -> None:
        """Commit the finished records of an ended manual assignment. Errors are logged."""
        deadline = _now() + self._config.client.request_timeout
        try:
            async with self._turn(revoked.assignment.tps, deadline):
                await self._wait_for_assignment(deadline, self._removals)
                # Partitions that are assigned again may have been committed, or sought.
                again = self._subscriptions.assignment.tps
                found = self._finished(revoked.assignment)
                finished = {tp: entry for tp, entry in found.items() if tp not in again}
                if finished:
                    commit = OffsetsToCommit(finished, revoked.topic_ids, Identity())
                    await self._committer.commit(commit, deadline)
        except KafkaError as error:
            self.log_failure(error)

    def as_revoked(self, assignment: Assignment) -> RevokedAssignment:
        """Return an assignment that ends now, with the present ids of its topics: its positions do
        not follow later changes of the topics."""
        topic_ids = self._committer.topic_ids(assignment, assignment.topic_ids)
        return RevokedAssignment(assignment, topic_ids)

    def _finished(self, assignment: Assignment) -> dict[TopicPartition, CommittedOffset]:
        """Return the offsets before the records of the latest call, where they differ from the last
        commit; and old commits that are due again."""
        call = self._queue.buffer.call
        finished: dict[TopicPartition, CommittedOffset] = {}
        for state in assignment.states():
            offset = state.finished_before(call)
            if offset < 0:
                continue
            committed = self._last_committed(state)
            # The application may have committed a later offset, up to its position.
            most = committed if state.position is None else state.position
            last = self._committed[state.tp] if offset <= committed <= most else None
            if last is not None and last.is_due(state):
                finished[state.tp] = last.entry
            # The same offset in a recreated topic: the former commit was deleted with the topic.
            elif last is None or (offset == committed and last.is_before_seek(state)):
                metadata = "" if last is None else last.entry.metadata
                epoch = state.epoch_before(offset)
                finished[state.tp] = CommittedOffset(offset, metadata, epoch)
        return finished

    def has_in_hand(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return whether the application may still process records of these partitions: its latest
        call has returned them, and they are not committed."""
        call = self._queue.buffer.call
        # No record was ever returned, and call 0 would match every partition.
        if not call:
            return False
        for tp in partitions:
            state = self._subscriptions.assignment.get(tp)
            position = None if state is None else state.position
            if state is None or position is None:
                continue
            is_finished = state.finished_before(call) >= position
            if not is_finished and self._last_committed(state) < position:
                return True
        return False

    def _last_committed(self, state: PartitionState) -> int:
        """Return the last committed offset of a partition; -1 if there is none."""
        last = self._committed.get(state.tp)
        return -1 if last is None else last.offset_for(state)


def _refuse_foreign(foreign: Collection[TopicPartition]) -> None:
    """Raise CommitFailedError if there are any."""
    if foreign:
        names = some_names(foreign)
        raise CommitFailedError(f"{ALREADY_REBALANCED}: not this member's any more: {names}")
