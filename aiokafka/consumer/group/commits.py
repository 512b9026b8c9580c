"""Commits of a group: their order, commits during rebalances, auto-commit, late commits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
)
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from aiokafka._log import SubjectLog
from aiokafka._retry import Backoff
from aiokafka._tasks import Signal, TaskOwner
from aiokafka.consumer._arguments import some_names
from aiokafka.consumer._context import refuse_in_listener
from aiokafka.consumer._partition_state import PartitionState, Phase
from aiokafka.consumer.position.committed import (
    ALREADY_REBALANCED,
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
from aiokafka.structs import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka._health import Wait
    from aiokafka.consumer._context import ConsumerContext

__all__ = ["CommitQueue", "GroupCommits", "QueuedCommit", "RevokedAssignment"]

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
TopicIds = Mapping[str, bytes]


# -- The order of commits


class QueuedCommit:
    """A commit in the queue. `CommitQueue` writes its fields, except `revoked` and `in_flight`."""

    __slots__ = ("before", "in_flight", "partitions", "removed", "revoked")

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = frozenset(partitions)
        self.before: dict[TopicPartition, QueuedCommit] = {}
        """The commit before this one, for each partition that has such a commit; empty as soon as
        this commit may be sent."""
        self.revoked: frozenset[TopicPartition] = frozenset()
        """Partitions that were revoked since the application called `commit()`, even if the
        partitions were assigned again."""
        self.in_flight: Collection[TopicPartition] = ()
        """Partitions in an OffsetCommit that has no response yet."""
        self.removed: Signal | None = None
        """Wakes the later commits that wait for this commit; None without such a commit."""

    async def wait_until_removed(self, deadline: float | None) -> bool:
        """Wait until the commit has left the queue, and return True. Return False at `deadline`
        (loop time; None = no limit)."""
        if self.removed is None:
            self.removed = Signal()
        return await self.removed.wait(deadline)


class CommitQueue:
    """The order of commits: one at a time for each partition.

    Owns: the unfinished commits, and the last unfinished commit of each partition. A new commit
    waits for the last commits of its partitions only, so the end of a commit wakes few other
    commits, even if an application commits each record.
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
        last = self._last
        for tp in queued.partitions:
            if tp in last:
                queued.before[tp] = last[tp]
            last[tp] = queued
        self._all[queued] = None
        return queued

    async def wait(self, queued: QueuedCommit, deadline: float | None) -> bool:
        """Wait until `queued` is the first commit of each of its partitions, and return True.
        Return False at `deadline` (loop time; None = no limit)."""
        # A commit waits for earlier commits only, so there is no deadlock.
        while (other := self._first_before(queued)) is not None:
            if not await other.wait_until_removed(deadline):
                return False
        queued.before.clear()
        return True

    def remove(self, queued: QueuedCommit) -> None:
        """Remove a commit that has ended or was cancelled, and wake the commits behind it."""
        del self._all[queued]
        last, before = self._last, queued.before
        for tp in queued.partitions:
            if last[tp] is queued:
                if before and (other := self._unfinished(tp, before.get(tp))) is not None:
                    last[tp] = other
                else:
                    del last[tp]
        if queued.removed is not None:
            queued.removed.notify()

    def _first_before(self, queued: QueuedCommit) -> QueuedCommit | None:
        for tp, before in queued.before.items():
            other = self._unfinished(tp, before)
            if other is not None:
                return other
        return None

    def _unfinished(self, tp: TopicPartition, queued: QueuedCommit | None) -> QueuedCommit | None:
        """Return `queued` if it is unfinished. If `queued` was cancelled while it waited, return
        the commit of `tp` that it waited for. Else return None."""
        while queued is not None and queued not in self._all:
            queued = queued.before.get(tp)
        return queued


# -- The last commit of a partition


# Seconds after which an unchanged offset is committed again, because brokers delete old offsets:
# in groups without members (KIP-211), and before Kafka 2.1 in all groups. Before Kafka 2.0 the
# default retention is one day.
_RECOMMIT_AFTER = 3600.0


class LastCommit:
    """The last offset that this consumer has committed for a partition."""

    __slots__ = ("at", "entry", "epoch", "taken")

    def __init__(self, entry: OffsetAndMetadata, epoch: int, taken: int, at: float) -> None:
        self.entry = entry
        self.epoch = epoch
        """Epoch of the PartitionState when the commit was sent; -1 if the partition was not
        assigned any more when the response arrived."""
        self.taken = taken
        """`PartitionState.taken` when the commit was sent, if the commit included all records read
        by then; else -1."""
        self.at = at
        """Loop time of the response."""

    def offset_for(self, state: PartitionState) -> int:
        """Return the committed offset; -1 if a later `seek()` or reset has moved the position
        before this offset.

        Without a seek or reset, an offset beyond the position is valid: an application may commit
        any offset. After a seek back, the records from the new position on count as uncommitted.
        """
        offset = self.entry.offset
        if self.epoch == state.epoch:
            return offset
        position = state.position
        return -1 if position is not None and offset > position else offset

    def is_due(self, state: PartitionState) -> bool:
        """Return whether to commit the same offset again, because the broker may soon delete it:
        the last commit is more than an hour old, and no seek or reset has followed it."""
        return state.epoch == self.epoch and _now() - self.at > _RECOMMIT_AFTER

    def is_before_seek(self, state: PartitionState) -> bool:
        """Return whether a seek or reset has changed the position after this commit, and the
        partition is still assigned."""
        return state.epoch != self.epoch and state.phase is not Phase.RETIRED


class RevokedRecords:
    """Records of a revoked partition that were uncommitted at the time of the revocation."""

    __slots__ = ("call", "position")

    def __init__(self, call: int, position: int) -> None:
        self.call = call
        """Number of the application's call that returned the records."""
        self.position = position
        """The position after the records."""


class RevokedAssignment:
    """An assignment that has ended, and the ids of its topics at that time."""

    __slots__ = ("assignment", "topic_ids")

    def __init__(self, assignment: Assignment, topic_ids: TopicIds) -> None:
        self.assignment = assignment
        self.topic_ids = topic_ids


def _epoch_and_taken(state: PartitionState, entry: OffsetAndMetadata) -> tuple[int, int]:
    """Return `LastCommit.epoch` and `LastCommit.taken` for a commit of `entry`."""
    # While interceptors process records, `taken` includes records after the position.
    includes_all = entry.offset >= state.next_offset
    return state.epoch, state.taken if includes_all else -1


def _now() -> float:
    return asyncio.get_running_loop().time()


log = logging.getLogger("aiokafka.consumer.group_coordinator")
# Errors after which a commit is retried: a join or a heartbeat brings the new generation or epoch.
_RETRIED = (RebalanceInProgressError, StaleMemberEpoch)

# Shortest interval between auto-commits in seconds, used with `auto_commit_interval_ms=0`.
_SHORTEST_INTERVAL = 0.01
# With `auto_commit_interval_ms=0`: longest time in seconds between two checks for finished records.
# `RecordQueue.polls` starts a check earlier, but a call that returns buffered records does not
# notify `polls`.
_LONGEST_CHECK_INTERVAL = 0.1
# Longest time in seconds that `stop()` waits before its last check for late commits: an
# OffsetCommit without a response may be processed late, and overwrite a newer commit.
_LAST_CHECK_DELAY = 1.0
# Shortest timeout of an auto-commit in seconds: with a short `auto_commit_interval_ms`, a slow
# coordinator needs more time than one interval.
_SHORTEST_ATTEMPT = 1.0


class GroupCommits:
    """Commits offsets with the member's current identity.

    A commit during a rebalance, in `_commit()`:

    1. The member begins to join: `suspend()`. Commits wait from here on. The coordinator rejects
       the old generation as soon as the new generation begins, in which another member may own the
       partitions.
    2. A commit that was sent just before may be rejected with REBALANCE_IN_PROGRESS or a stale
       generation. `on_refused` passes the error to the group protocol, which joins. The commit
       waits, and is retried.
    3. The assignment arrives: `resume()`. Each waiting commit is compared with the assignment. A
       commit of a partition that is no longer assigned fails here, and is not sent.
    4. The remaining commits are sent in the new generation. This member kept their partitions
       during the rebalance, so no other member has committed a later offset.
    5. A partition may go to another member and come back while a commit waits or is retried. The
       other member may have committed a later offset. So a commit that was called before the
       revocation fails even if the partition is assigned again (`revoke_all_but()`).
    6. If the group removes the member (`on_removed()`), all commits called so far fail: another
       member may have read and committed the same records.

    Commits of one partition are sent one after the other, in the order of the calls. In parallel, a
    retried commit could overwrite a later commit.

    When the consumer stops, unfinished commits end before the member leaves (`close()`). After
    LeaveGroup the group may be empty. The coordinator of an empty group accepts commits of clients
    that are no members, even if they overwrite later offsets.

    Partitions of `assign()` belong to no member. When they are unassigned, auto-commit commits
    their finished records in a task; only `stop()` waits for this task.

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
        """Args: on_refused: Called with the error if the coordinator rejects a commit because of
        the member's identity (member id and generation or epoch)."""
        self._loop = asyncio.get_running_loop()
        self._config = context.config
        self._log = SubjectLog(log, context.config.subject)
        self._committer = committer
        self._what = f"OffsetCommit of group {committer.group_id!r}"
        self._unanswered = committer.unanswered
        self._member = committer.member
        self._waits = context.client.waits
        self._subscriptions = context.subscriptions
        self._queue = context.queue
        self._on_refused = on_refused
        self._tasks = tasks
        self._late_check: asyncio.Task[None] | None = None
        self._committed: dict[TopicPartition, LastCommit] = {}
        self._commits = CommitQueue()
        self._revoked_records: dict[TopicPartition, RevokedRecords] = {}
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
        """Whether the group has removed the member, and the member has no new assignment yet."""
        return self._is_removed

    def suspend(self) -> None:
        """Make commits wait until `resume()`: a join begins, or the member has to leave."""
        self._is_suspended = True

    def resume(self) -> None:
        """Send waiting commits, and accept commits after a removal: the member has its assignment,
        or has left."""
        self._is_suspended = self._is_removed = False
        if self._changed.waiters:
            self._changed.notify()

    def close(self) -> None:
        """Send no more commits: waiting and later commits raise ConsumerStoppedError, and
        auto-commits of manual assignments are cancelled."""
        self._is_closed = True
        self._manual_tasks.cancel()
        self._committer.close()
        self.resume()

    def on_removed(self) -> None:
        """Fail all commits called so far, because the group has removed the member, and other
        members read the same records. Do nothing for a manual assignment."""
        # Partitions of a manual assignment belong to no member, so their commits stay valid.
        # Commits of earlier subscriptions were failed by `unsubscribe()`.
        if self._subscriptions.is_by_group:
            self._is_removed = True
            self._removals += 1
            self._changed.notify()
            # Wake `Rebalance.revoke()`: it may wait for a commit of the application that fails now.
            self._queue.polls.notify()

    def clear_removal(self) -> None:
        """Accept commits again after `unsubscribe()` or `assign()`: new commits are not for the
        partitions that the removed member had."""
        self._is_removed = False

    def follow_subscription(self) -> None:
        """Fail pending commits of partitions that are no longer assigned after a change of the
        subscription. If `assign()` had assigned them, auto-commit their finished records."""
        self.revoke_all_but(self._subscriptions.assignment.tps)
        self._commit_unassigned()

    def revoke_all_but(self, kept: frozenset[TopicPartition]) -> None:
        """Fail pending commits of all partitions except `kept`, even if a partition is assigned
        again before its commit is sent."""
        if self._unanswered.by_partition:
            self._unanswered.forget_all_but(kept)
        for queued in self._commits:
            queued.revoked |= queued.partitions - kept

    def forget_committed(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the last commits of partitions that are about to be revoked or assigned: other
        members may commit for them. Store which partitions have uncommitted records, for
        `refuse_revoked()`."""
        call = self._queue.buffer.call
        # Keep only partitions whose records the latest call returned: if there was a later call,
        # the application has finished the records.
        self._revoked_records = {
            tp: revoked for tp, revoked in self._revoked_records.items() if revoked.call == call
        }
        # An application that waits in a call for records has finished all records that were
        # returned before.
        is_done = self._queue.has_readers
        for tp in partitions:
            state = self._subscriptions.assignment.get(tp)
            position = None if is_done or state is None else self._uncommitted_position(state)
            if position is not None:
                self._revoked_records[tp] = RevokedRecords(call, position)
            self._committed.pop(tp, None)

    def _uncommitted_position(self, state: PartitionState) -> int | None:
        """Return the position if the records before it include uncommitted records, else None."""
        # `call` is 0 if no record of the partition was returned.
        position = state.position if state.call else None
        if position is None or self._last_committed(state) >= position:
            return None
        # Since the last commit, the position may have passed only offsets without a record to
        # return: control batches and skipped records.
        last = self._committed.get(state.tp)
        return None if last is not None and last.taken == state.taken else position

    def refuse_revoked(self) -> None:
        """Raise CommitFailedError if partitions were revoked whose records were returned by the
        latest call, and are uncommitted. The next call of this method does not raise again."""
        if not self._revoked_records:
            return
        last, self._revoked_records = self._revoked_records, {}
        call = self._queue.buffer.call
        # If the application has called `getone()` or `getmany()` again since the call that returned
        # the revoked records, it had finished these records without a commit. The present commit is
        # for later records, and must not fail because of the revoked ones.
        lost = [tp for tp, revoked in last.items() if revoked.call == call]
        if lost:
            raise CommitFailedError(
                f"group {self._committer.group_id!r}: {ALREADY_REBALANCED}: these partitions were "
                f"revoked after their records were returned: {some_names(lost)}; their new owners "
                "read the records again"
            )

    # -- commits of the application ----------------------------------------------------------------

    def commit(
        self,
        offsets: Offsets,
        deadline: float,
        optional: Collection[TopicPartition] = frozenset(),
    ) -> Coroutine[Any, Any, None]:
        """Return a coroutine that commits `offsets` after all earlier commits of the same
        partitions.

        It raises the errors of `OffsetCommitter.commit`, and CommitFailedError if a partition is
        not assigned, or was revoked since the call. Such a partition is omitted without an error if
        it is in `optional`.
        """
        # Before any wait, read how often the group has removed this member, and the topic ids: the
        # offsets belong to the assignment and the topics at the time of the call.
        removals = self._removals
        topic_ids = self.topic_ids(offsets)

        def still_assigned(queued: QueuedCommit) -> tuple[Offsets, TopicIds]:
            revoked = queued.revoked | (offsets.keys() - self._subscriptions.assignment.tps)
            if not revoked:
                return offsets, topic_ids
            if foreign := revoked.difference(optional):
                names = some_names(foreign)
                raise CommitFailedError(f"{ALREADY_REBALANCED}: this member no longer owns {names}")
            return {tp: e for tp, e in offsets.items() if tp not in revoked}, topic_ids

        return self._commit(offsets, still_assigned, deadline, removals)

    def commit_positions(self, offsets: Offsets, deadline: float) -> Coroutine[Any, Any, None]:
        """Commit the positions of all assigned partitions like `commit()`. If a partition without
        uncommitted records is revoked before the commit is sent, omit it: its new owner reads no
        record a second time."""
        state_of = self._subscriptions.assignment.get
        optional = {
            tp
            for tp in offsets
            if (state := state_of(tp)) is not None and self._uncommitted_position(state) is None
        }
        return self.commit(offsets, deadline, optional)

    @property
    def is_committing(self) -> bool:
        """Whether there is an unfinished commit."""
        return bool(self._commits)

    def pause(self) -> AbstractAsyncContextManager[object]:
        """Return a context manager that delays commits of the assigned partitions until its exit.
        Entering the context waits for earlier commits, and raises KafkaTimeoutError if they take
        longer than `default_api_timeout_ms`.
        """
        deadline = _now() + self._config.default_api_timeout
        return self._reserve(self._subscriptions.assignment.tps, deadline)

    @asynccontextmanager
    async def _reserve(
        self, partitions: Iterable[TopicPartition], deadline: float
    ) -> AsyncIterator[QueuedCommit]:
        """Reserve these partitions during the `with` block: wait for their earlier commits first,
        and make their later commits wait. Raises KafkaTimeoutError at `deadline` (loop time)."""
        queued = self._commits.add(partitions)
        try:
            if queued.before:
                await self._wait_for_earlier_commits(queued, deadline)
            yield queued
        finally:
            self._remove(queued)

    async def _wait_for_earlier_commits(self, queued: QueuedCommit, deadline: float) -> None:
        # Do not log this wait: the earlier commit logs the cause of the delay.
        what = f"an earlier commit of group {self._committer.group_id!r}"
        reason = "it is still being retried"
        with self._waits.on(what, queued.partitions, reason, is_logged=lambda: True):
            if not await self._commits.wait(queued, deadline):
                raise self._earlier_commit_unfinished()

    def _remove(self, queued: QueuedCommit) -> None:
        self._commits.remove(queued)
        if self._changed.waiters:
            self._changed.notify()

    def _earlier_commit_unfinished(self) -> KafkaTimeoutError:
        return KafkaTimeoutError(
            f"group {self._committer.group_id!r}: offsets not committed in time: "
            "an earlier commit of the same partitions is still being retried"
        )

    def _why_waiting(self) -> KafkaError | None:
        is_waiting = self._is_suspended and not self._is_closed
        return RebalanceInProgressError("the group is rebalancing") if is_waiting else None

    def _is_delay_logged(self) -> bool:
        return not self._is_suspended and self._committer.is_outage_logged()

    def _wait_for_response(self, partitions: Collection[TopicPartition]) -> Wait:
        """Return a context manager for a commit that waits for its response only, not for an
        assignment. `health()` and the log show the wait."""
        return self._waits.on(self._what, partitions, is_logged=self._committer.is_outage_logged)

    async def _commit(
        self,
        partitions: Collection[TopicPartition],
        choose: Callable[[QueuedCommit], tuple[Offsets, TopicIds]],
        deadline: float,
        removals: int | None = None,
    ) -> None:
        """Commit the offsets that `choose` returns just before each request is sent.

        `removals`: how often the group had removed the member when the commit was called. Raises
        CommitFailedError if the group has removed the member since. With None, only removals after
        the end of the earlier commits count.
        """
        queued = self._commits.add(partitions)
        try:
            if queued.before:
                await self._wait_for_earlier_commits(queued, deadline)
            # One wait for all attempts, so that `health()` shows the whole waiting time.
            with self._waits.on(
                self._what, partitions, why=self._why_waiting, is_logged=self._is_delay_logged
            ) as waiting:
                removals = self._removals if removals is None else removals
                await self._commit_when_first(queued, choose, deadline, removals, waiting)
        finally:
            self._remove(queued)

    async def _commit_when_first(
        self,
        queued: QueuedCommit,
        choose: Callable[[QueuedCommit], tuple[Offsets, TopicIds]],
        deadline: float,
        removals: int,
        waiting: Wait,
    ) -> None:
        delays: Backoff | None = None
        while True:
            if self._is_suspended:
                # End a commit whose partitions `unsubscribe()` has unassigned: `choose` raises, or
                # returns no offsets. It must not wait until the member has left, because the
                # membership task may be waiting for this commit in `Rebalance.revoke()`.
                if not choose(queued)[0]:
                    return
                await self._wait_for_assignment(deadline, removals)
            if self._is_closed:
                raise ConsumerStoppedError("the consumer was stopped during the call")
            # No await until the identity is read: offsets of one assignment must not be sent with
            # the identity of another assignment. If the identity changes later, the coordinator
            # rejects the commit.
            if self._is_removed_since(removals):
                raise CommitFailedError(f"{ALREADY_REBALANCED}: it removed this member")
            offsets, topic_ids = choose(queued)
            if not offsets:
                return
            note_stored = self._note_stored(offsets)
            identity = self._identity()
            queued.in_flight = offsets.keys()
            try:
                commit = OffsetsToCommit(offsets, topic_ids, identity, note_stored)
                await self._committer.commit(commit, deadline, waiting.note)
                if self._unanswered.by_partition:
                    self._maybe_check_late_commits()
                return
            except CommitFailedError as error:
                # The coordinator rejected the identity. If a join is in progress or has changed the
                # identity since, the next attempt has the new identity.
                is_same = identity == self._identity() and not self._is_suspended
                if is_same:
                    if identity.generation >= 0:
                        self._on_refused(error)
                    if not self._is_suspended and not isinstance(error.__cause__, _RETRIED):
                        raise
                refusal = error
                waiting.note(error)
            finally:
                # If this was the last attempt, `_remove()` in `_commit()` notifies the waiters of
                # `_changed`; before a retry, the `notify()` below does.
                queued.in_flight = ()
            self._changed.notify()
            if delays is None:
                client = self._config.client
                delays = Backoff(client.retry_backoff, client.retry_backoff_max)
            await self._pause(delays.next(), deadline, refusal)

    def _identity(self) -> Identity:
        """Return the member's identity; an empty identity for a manual assignment, or without
        membership."""
        member = self._member
        if member.generation < 0 or not self._subscriptions.is_by_group:
            return Identity()
        return Identity(member.generation, member.member_id, member.instance_id)

    def topic_ids(
        self, partitions: Iterable[TopicPartition], given: Mapping[str, bytes] | None = None
    ) -> dict[str, bytes]:
        """Return the ids of the topics of `partitions`, for a commit, as a dict of names to ids.
        Topics whose id is unknown are omitted. The ids of the assignment (`given`, by default the
        current assignment's) take precedence over the last ids in metadata.

        Called when the application commits, not when the request is sent: a recreated topic may
        have the name by then.

        1. A topic is deleted and recreated under its name.
        2. A new assignment or an error shows this to the member before new metadata does.
        3. While the member revokes the topic, it commits its position in the deleted topic.

        By name, the coordinator would store this position for the new topic, and its records before
        the position would be skipped. By id, the coordinator rejects the commit (UNKNOWN_TOPIC_ID).
        """
        if given is None:
            given = self._subscriptions.assignment.topic_ids
        last_ids = self._committer.last_ids
        ids: dict[str, bytes] = {}
        for topic in {tp.topic for tp in partitions}:
            topic_id = given.get(topic) or last_ids.get(topic)
            if topic_id:
                ids[topic] = topic_id
        return ids

    def _note_stored(self, offsets: Offsets) -> Callable[[Offsets, float], None]:
        """Return a function that records the committed offsets of a response, even if other
        partitions of the commit fail. Otherwise a later auto-commit could commit an earlier
        offset."""
        state_of = self._subscriptions.assignment.state_value
        # Epochs before the request: a seek or reset during the request changes the epoch.
        before = {tp: _epoch_and_taken(state_of(tp), entry) for tp, entry in offsets.items()}

        def note(stored: Offsets, now: float) -> None:
            committed, assigned = self._committed, self._subscriptions.assignment.tps
            revoked_records = self._revoked_records
            for tp, entry in stored.items():
                epoch, taken = before[tp]
                committed[tp] = LastCommit(entry, epoch if tp in assigned else -1, taken, now)
                # The records that were uncommitted when the partition was revoked are now
                # committed: `refuse_revoked()` need not report them.
                revoked = revoked_records.get(tp)
                if revoked is not None and entry.offset >= revoked.position:
                    del revoked_records[tp]
            # `Rebalance.revoke` may wait for the application to finish its records.
            if self._queue.polls.waiters:
                self._queue.polls.notify()

        return note

    async def _pause(self, delay: float, deadline: float, refusal: CommitFailedError) -> None:
        """Wait `delay` seconds before the next attempt. Raises KafkaTimeoutError with the cause
        `refusal` at `deadline` (loop time)."""
        await asyncio.sleep(max(0.0, min(delay, deadline - _now())))
        if _now() >= deadline:
            raise KafkaTimeoutError(
                f"group {self._committer.group_id!r}: offsets not committed in time: "
                f"{refusal.__cause__ or refusal}"
            ) from refusal

    def _is_removed_since(self, removals: int) -> bool:
        """Return whether the group has removed the member since `removals` was read."""
        # `_is_removed` is not enough: the next assignment sets it to False. But between the removal
        # and that assignment, other members may have owned these partitions and committed newer
        # offsets.
        return self._is_removed or removals != self._removals

    async def _wait_for_assignment(self, deadline: float, removals: int) -> None:
        while self._is_suspended and not self._is_removed_since(removals):
            # Raise in a rebalance listener: the assignment waits for the listener, so this wait
            # could only end at the deadline.
            refuse_in_listener(self._queue, "commit() of what was assigned since unsubscribe()")
            if not await self._changed.wait(deadline):
                raise KafkaTimeoutError(
                    f"group {self._committer.group_id!r}: offsets not committed in time: "
                    "the group is rebalancing"
                )

    # -- late commits: OffsetCommits that the coordinator processes after a newer OffsetCommit -----

    def _maybe_check_late_commits(self) -> None:
        """If a late commit is possible, start the task that looks for late commits and restores the
        offsets that these have overwritten. Do nothing if the task is running already, or the
        consumer is stopping."""
        is_checking = self._late_check is not None and not self._late_check.done()
        is_due = self._unanswered.to_look_up(_now())
        if is_due and not is_checking and not self._tasks.is_stopping:
            self._late_check = self._tasks.start(self._check_late_commits(), name="late-commits")

    async def _check_late_commits(self) -> None:
        while self._unanswered.to_look_up(_now()):
            await asyncio.sleep(self._unanswered.pause(_now()))
            await self.restore_overwritten(_now() + self._config.client.request_timeout)

    async def check_late_commits_once_more(self, deadline: float) -> None:
        """Wait for a second at most, and check for late commits a last time before `stop()` ends.
        Ends at `deadline` (loop time). Called for a static member, and for a consumer without a
        generation: the coordinator accepts their late commits even after `stop()`."""
        left = deadline - _now()
        if self._unanswered.to_look_up(_now()) and left > 0:
            await asyncio.sleep(min(_LAST_CHECK_DELAY, left / 2))
            await self.restore_overwritten(deadline)

    async def restore_overwritten(self, deadline: float) -> None:
        """Commit again the offsets that a late commit has overwritten; see `UnansweredCommits`.
        Ends at `deadline` (loop time). Errors are logged."""
        assigned = self._subscriptions.assignment.tps
        partitions = [tp for tp in self._unanswered.to_look_up(_now()) if tp in assigned]
        if not partitions:
            return
        try:
            # Do not queue this OffsetFetch: commits of the application must not wait for it.
            found = await self._committer.fetch(partitions, deadline)
            if not self._unanswered.overwritten(found):
                return
            async with self._reserve(partitions, deadline) as queued:
                # Compare again, now that no other commit of these partitions is in flight.
                # Partitions that were revoked during the wait are excluded. During a join restore
                # nothing: the coordinator rejects the late commit as soon as the next generation
                # begins.
                offsets = self._unanswered.overwritten(found)
                if not offsets or self._is_suspended or self._is_removed or self._is_closed:
                    return
                names = some_names(offsets)
                self._log.info(
                    "Committed again, because a late commit has overwritten the offsets: %s", names
                )
                commit = OffsetsToCommit(offsets, self.topic_ids(offsets), self._identity())
                queued.in_flight = offsets.keys()
                try:
                    with self._wait_for_response(partitions) as waiting:
                        await self._committer.commit(commit, deadline, waiting.note)
                finally:
                    queued.in_flight = ()
        except KafkaError as error:
            self._log.debug("The check for late commits has failed: %s", error)

    # -- finished records: returned before the latest call of the application ----------------------

    async def run(self) -> None:
        """Auto-commit every `auto_commit_interval`, until cancelled. With an interval of 0, commit
        whenever records are finished."""
        interval = self._config.auto_commit_interval
        # A slow attempt ends after one interval, so that the next attempt includes newer records.
        limit = min(self._config.client.request_timeout, max(interval, _SHORTEST_ATTEMPT))
        self._commit_unassigned()
        while True:
            await asyncio.sleep(max(interval, _SHORTEST_INTERVAL))
            if not interval:
                await self._queue.polls.wait(_now() + _LONGEST_CHECK_INTERVAL)
            # While a join suspends commits, an auto-commit would only wait in the queue, before the
            # commits of the application. After the group has removed the member, the commit would
            # fail.
            if not self._is_suspended and not self._is_removed:
                await self.commit_finished(limit)

    async def commit_finished(self, timeout: float) -> None:
        """Commit the offsets after the finished records. Errors are logged."""
        partitions = self._subscriptions.assignment.tps
        if not self._finished(self._subscriptions.assignment):
            return

        def finished(_: QueuedCommit) -> tuple[Offsets, TopicIds]:
            # Compute the offsets when the request is sent: until then an earlier commit may store
            # the same or later offsets, and a new assignment has other positions.
            found = self._finished(self._subscriptions.assignment)
            kept = {tp: entry for tp, entry in found.items() if tp in partitions}
            return kept, self.topic_ids(kept)

        try:
            # Do not pass `removals`: even if the group has removed this member during the wait for
            # earlier commits, the offsets are valid, because `finished()` reads the assignment when
            # the request is sent.
            await self._commit(partitions, finished, _now() + timeout)
            self._is_failing = False
        except (KafkaError, ConsumerStoppedError) as error:
            self.log_failure(error)

    async def finish(self, deadline: float, *, auto: bool) -> None:
        """With `auto`, first commit the finished records. Then wait until all commits have ended,
        at most until `deadline` (loop time), and restore offsets that a late commit has
        overwritten."""
        if auto:
            await self.commit_finished(deadline - _now())
        while self._commits and await self._changed.wait(deadline):
            pass
        await self.restore_overwritten(deadline)

    def log_failure(self, error: Exception) -> None:
        """Log a failed auto-commit: as a WARNING if the attempt before succeeded, else as DEBUG."""
        level = logging.DEBUG if self._is_failing else logging.WARNING
        self._is_failing = True
        self._log.log(level, "auto-commit failed: %s", error)

    async def commit_revoked(
        self, revoked: RevokedAssignment, identity: Identity, timeout: float
    ) -> None:
        """Commit the finished records of an assignment that the application has ended, after the
        in-flight commits of its partitions. Raises the errors of `OffsetCommitter.commit`, and
        KafkaTimeoutError if the earlier commits do not end within `timeout` seconds.

        This commit does not wait for suspended commits, which have no request in flight: they are
        resumed only after this commit.
        """
        deadline = _now() + timeout
        partitions = revoked.assignment.tps
        while any(not partitions.isdisjoint(queued.in_flight) for queued in self._commits):
            if not await self._changed.wait(deadline):
                raise self._earlier_commit_unfinished()
        finished = self._finished(revoked.assignment)
        if finished:
            commit = OffsetsToCommit(finished, revoked.topic_ids, identity)
            with self._wait_for_response(finished) as waiting:
                await self._committer.commit(commit, deadline, waiting.note)

    def _commit_unassigned(self) -> None:
        """With auto-commit, start a task that commits the finished records of partitions that
        `assign()` had assigned, and that are no longer assigned."""
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
        """Auto-commit the finished records of partitions that `assign()` or `unsubscribe()` has
        removed from a manual assignment. Skip partitions that are assigned again. Log
        KafkaErrors."""
        deadline = _now() + self._config.client.request_timeout
        try:
            async with self._reserve(revoked.assignment.tps, deadline):
                await self._wait_for_assignment(deadline, self._removals)
                # Skip partitions that were assigned again: the application may have committed later
                # offsets, or called `seek()`.
                again = self._subscriptions.assignment.tps
                found = self._finished(revoked.assignment)
                finished = {tp: entry for tp, entry in found.items() if tp not in again}
                if finished:
                    commit = OffsetsToCommit(finished, revoked.topic_ids, Identity())
                    with self._wait_for_response(finished) as waiting:
                        await self._committer.commit(commit, deadline, waiting.note)
        except KafkaError as error:
            self.log_failure(error)

    def as_revoked(self, assignment: Assignment) -> RevokedAssignment:
        """Return `assignment`, which ends now, with the present ids of its topics: its positions do
        not apply to a topic that is recreated later."""
        topic_ids = self.topic_ids(assignment, assignment.topic_ids)
        return RevokedAssignment(assignment, topic_ids)

    def _finished(self, assignment: Assignment) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offset to auto-commit for each partition: the offset after the finished
        records, if it is not committed yet; or the last committed offset, if it must be committed
        again (`LastCommit.is_due`)."""
        call = self._queue.buffer.call
        finished: dict[TopicPartition, OffsetAndMetadata] = {}
        for state in assignment.states():
            offset = state.finished_before(call)
            if offset < 0:
                continue
            committed = self._last_committed(state)
            # If the application has committed a later offset, up to its position, keep that offset.
            most = committed if state.position is None else state.position
            last = self._committed[state.tp] if offset <= committed <= most else None
            if last is not None and last.is_due(state):
                finished[state.tp] = last.entry
            # After a seek or reset, commit even the same offset: in a recreated topic, the previous
            # commit was deleted with the old topic.
            elif last is None or (offset == committed and last.is_before_seek(state)):
                metadata = "" if last is None else last.entry.metadata
                epoch = state.epoch_before(offset)
                finished[state.tp] = OffsetAndMetadata(offset, metadata, epoch)
        return finished

    def has_unfinished_records(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return whether the application may still process records of these partitions: its latest
        call has returned the records, and they are not committed."""
        call = self._queue.buffer.call
        # Before the first call no record was returned, and call 0 would match every partition.
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
        """Return the last committed offset of a partition; -1 if it is unknown, or if a seek or
        reset has moved the position before it since the commit."""
        last = self._committed.get(state.tp)
        return -1 if last is None else last.offset_for(state)
