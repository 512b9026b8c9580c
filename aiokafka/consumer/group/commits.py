"""Commit offsets around rebalances, and for a consumer that chose its partitions itself."""

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
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka._health import Wait
from aiokafka._log import SubjectLog
from aiokafka._retry import Backoff
from aiokafka._tasks import TaskOwner
from aiokafka.consumer._arguments import some_names
from aiokafka.consumer._partition_state import PartitionState, Phase
from aiokafka.consumer._shared import Signal, refuse_in_listener
from aiokafka.consumer.position.committed import (
    ALREADY_REBALANCED,
    CommittedOffset,
    Identity,
    OffsetCommitter,
    Positions,
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
    from aiokafka.consumer._shared import Shared

__all__ = ["ChosenPartitions", "Forfeit", "GivenUp", "GroupCommits", "Stored", "Turn", "Turns"]


# -- The order of commits


class Turn:
    """One call that commits, in the order of the calls. Written by `Turns`, but for `ended`."""

    __slots__ = ("_ended", "before", "over", "partitions")

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = frozenset(partitions)
        self.before: dict[TopicPartition, Turn] = {}
        """Of each partition, the call to wait for; empty when this one has its turn."""
        self.over = Signal()
        self._ended: frozenset[TopicPartition] = frozenset()

    @property
    def ended(self) -> frozenset[TopicPartition]:
        """Those of the partitions that were not the member's for a while since the call."""
        return self._ended

    def end_all_but(self, kept: frozenset[TopicPartition]) -> None:
        """Note that the member has these partitions only."""
        self._ended |= self.partitions - kept

    def concerns(self, other: Turn) -> bool:
        """Return whether both commit for one partition."""
        return not self.partitions.isdisjoint(other.partitions)


class Turns:
    """Owns the calls that are not over, and of each partition which of them is the last.

    A call waits for that one alone, so the end of a call wakes only those behind it, however many
    there are: an application may commit for each record.
    """

    def __init__(self) -> None:
        self._all: dict[Turn, None] = {}
        self._last: dict[TopicPartition, Turn] = {}

    def __iter__(self) -> Iterator[Turn]:
        return iter(self._all)

    def __bool__(self) -> bool:
        return bool(self._all)

    def join(self, partitions: Iterable[TopicPartition]) -> Turn:
        """Return a turn behind all that concern these partitions."""
        turn = Turn(partitions)
        for tp in turn.partitions:
            if tp in self._last:
                turn.before[tp] = self._last[tp]
            self._last[tp] = turn
        self._all[turn] = None
        return turn

    async def wait(self, turn: Turn, deadline: float | None) -> bool:
        """Return once `turn` is the first of all its partitions; False at `deadline`."""
        # Only calls from before it are waited for: no two ever wait for each other.
        while (other := self._first_before(turn)) is not None:
            if not await other.over.wait(deadline):
                return False
        turn.before.clear()
        return True

    def leave(self, turn: Turn) -> None:
        """Let those behind `turn` go on: it is over, or has not waited to the end."""
        del self._all[turn]
        for tp in turn.partitions:
            if self._last[tp] is turn:
                other = self._live(tp, turn.before.get(tp))
                if other is None:
                    del self._last[tp]
                else:
                    self._last[tp] = other
        turn.over.notify()

    def _first_before(self, turn: Turn) -> Turn | None:
        for tp, before in turn.before.items():
            other = self._live(tp, before)
            if other is not None:
                return other
        return None

    def _live(self, tp: TopicPartition, turn: Turn | None) -> Turn | None:
        """Return `turn`, or what it has waited for itself if it has gone without its turn."""
        while turn is not None and turn not in self._all:
            turn = turn.before.get(tp)
        return turn


# -- What a consumer has committed last of a partition, and when; what it had not when that went


# Brokers drop offsets that were committed too long ago: those of a group without members (KIP-211),
# and before Kafka 2.1 all of them, by default after a day before 2.0.
_LONGEST_REST = 3600.0


class Stored(NamedTuple):
    """An offset in the group's store."""

    entry: CommittedOffset
    epoch: int
    """That of the position when it was stored."""
    at: float
    """When that was (loop time)."""

    @classmethod
    def now(cls, entry: CommittedOffset, epoch: int) -> Stored:
        """Return what was stored at this moment."""
        return cls(entry, epoch, _now())

    def offset_for(self, state: PartitionState) -> int:
        """Return the offset; -1 if it says nothing any more.

        An application may commit beyond its position. But one that has gone back since, by `seek()`
        or because the topic was made again, has still to commit what it has in hand.
        """
        offset, position = self.entry.offset, state.position
        is_void = self.epoch != state.epoch and position is not None and offset > position
        return -1 if is_void else offset

    def is_due(self, state: PartitionState) -> bool:
        """Return whether to store it again, as it is."""
        return state.epoch == self.epoch and _now() - self.at > _LONGEST_REST

    def is_before(self, state: PartitionState) -> bool:
        """Return whether the position was sought or reset since, and is still wanted."""
        return state.epoch != self.epoch and state.phase is not Phase.RETIRED


class Forfeit(NamedTuple):
    """What the application had in hand of a partition when it was revoked: the number of the call
    that got it, and the position after it."""

    call: int
    position: int


def _now() -> float:
    return asyncio.get_running_loop().time()


# -- Partitions that the application chose by `assign()`, and what is left to do when it gives them


class GivenUp(NamedTuple):
    """An assignment that the application has ended, and the ids that its topics had then."""

    assignment: Assignment
    topic_ids: Mapping[str, bytes]


class ChosenPartitions:
    """Has committed what was finished of them, if so configured. They are no member's, so nothing
    waits for that but `stop()`.

    Owns: the last of these assignments; the tasks of the commits.
    """

    def __init__(
        self,
        shared: Shared,
        give_up: Callable[[Assignment], GivenUp],
        commit: Callable[[GivenUp], Coroutine[Any, Any, None]],
    ) -> None:
        """Commit what is left by `commit`, of what `give_up` says of the moment of its end."""
        self._subscriptions = shared.subscriptions
        self._is_auto = shared.config.enable_auto_commit
        self._give_up = give_up
        self._commit = commit
        self._tasks = TaskOwner(f"{shared.config.client.client_id}-chosen")
        self._latest: Assignment | None = None

    def follow(self) -> None:
        """Look at the assignment of now: the application has perhaps changed it."""
        latest, now = self._latest, self._subscriptions.assignment
        self._latest = now if self._subscriptions.is_manual else None
        if latest is None or not self._is_auto or self._tasks.is_stopping:
            return
        gone = {state.tp: state for state in latest.states() if now.get(state.tp) is not state}
        if gone:
            given_up = self._give_up(Assignment(gone, -1))
            self._tasks.start(self._commit(given_up), name="commit")

    def cancel(self) -> None:
        """End the commits that are not made yet."""
        self._tasks.cancel()


log = logging.getLogger("aiokafka.consumer.group_coordinator")
# The next heartbeat brings what is needed for the next attempt.
_PASSING = (RebalanceInProgressError, StaleMemberEpoch)

# Seconds. An auto-commit interval of 0 means "at once", but not "all the time".
_SHORTEST_INTERVAL = 0.01
_LONGEST_LOOK = 0.1
# Before the last look for late commits.
_LAST_LOOK = 1.0
# An attempt has at least this time, however short the interval: a coordinator may be slow.
_SHORTEST_ATTEMPT = 1.0


class GroupCommits:
    """Commits with the identity that the member has at that moment.

    A commit that meets a rebalance, in `_commit()`:

    1. The member begins to join: `suspend()`. Commits wait from here on. With the old generation
       they would be refused once the new one begins, and with the new one the partitions may be
       another member's.
    2. A commit sent just before may be refused with REBALANCE_IN_PROGRESS or a stale generation. It
       goes back to waiting, and says so to the group, which joins if it did not know.
    3. The assignment arrives: `resume()`. Whatever waits looks at the assignment again. A commit of
       a partition that went to another member is refused, here, before it is sent.
    4. The others are sent as a member of the new generation. Their records were read by this
       member, which has had the partitions all the while, so no other member can have gone further.
    5. A partition may go to another member and come back while a commit waits, or is tried again.
       Then the other member may have committed more. So what a commit is about ends for good when
       the partition goes (`end_all_but()`).
    6. If the group removed the member meanwhile (`lose()`), every commit that was called before is
       refused: another member may have read the same records, and committed.

    Commits of the same partition are made one after the other, in the order of the calls: one that
    is retried must not put back what a later one has stored.

    When the consumer stops, commits that are not made in time end before it leaves the group
    (`close()`): after that they would be those of a client outside it, which the coordinator takes
    as soon as the group has no members, whatever these have committed meanwhile.

    Owns: the offsets committed last, by partition; the commits under way, and which of them are
    sent; which partitions were taken away with records in the application's hands, and at which of
    its calls; the task that looks for commits that were carried out late.
    """

    def __init__(
        self,
        shared: Shared,
        committer: OffsetCommitter,
        identity: Callable[[], Identity],
        on_refused: Callable[[Identity, CommitFailedError], None],
        tasks: TaskOwner,
    ) -> None:
        self._config = shared.config
        self._log = SubjectLog(log, shared.config.subject)
        self._committer = committer
        self._waits = shared.client.waits
        self._subscriptions = shared.subscriptions
        self._desk = shared.desk
        self._identity = identity
        self._on_refused = on_refused
        self._tasks = tasks
        self._guard: asyncio.Task[None] | None = None
        self._committed: dict[TopicPartition, Stored] = {}
        self._turns = Turns()
        self._out: set[Turn] = set()
        self._forfeited: dict[TopicPartition, Forfeit] = {}
        self._is_closed = False
        self._is_failing = False
        self._is_suspended = False
        self._is_lost = False
        self._losses = 0
        self._changed = Signal()
        self._chosen = ChosenPartitions(shared, self.give_up, self._commit_chosen)

    @property
    def is_suspended(self) -> bool:
        """Whether commits wait for an assignment."""
        return self._is_suspended

    @property
    def is_lost(self) -> bool:
        """Whether the group has removed the member, and has assigned nothing to it since."""
        return self._is_lost

    def suspend(self) -> None:
        """Let commits wait: the member joins."""
        self._is_suspended = True

    def resume(self) -> None:
        """Let commits go on: the member has its assignment, or has left."""
        self._is_suspended = self._is_lost = False
        self._changed.notify()

    def close(self) -> None:
        """Send no commit from here on: those that wait raise ConsumerStoppedError."""
        self._is_closed = True
        self._chosen.cancel()
        self.resume()

    def lose(self) -> None:
        """Refuse the commits called so far: the group has removed the member, and others read
        again what it has in hand."""
        # Partitions chosen by hand it cannot lose, and others have ended with `unsubscribe()`.
        if self._subscriptions.is_by_group:
            self._is_lost = True
            self._losses += 1
            self._changed.notify()
            # A rebalance may be waiting for the application, for a commit that is refused now.
            self._desk.polls.notify()

    def end_loss(self) -> None:
        """Take commits from here on: they are not about what the group had assigned."""
        self._is_lost = False

    def follow_subscription(self) -> None:
        """End what the application has given up by its new subscription."""
        self.end_all_but(self._subscriptions.assignment.tps)
        self._chosen.follow()

    def end_all_but(self, kept: frozenset[TopicPartition]) -> None:
        """Refuse the commits called so far for other partitions than these, also if the member has
        them again when they could be sent."""
        self._committer.forget_all_but(kept)
        for turn in self._turns:
            turn.end_all_but(kept)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what was committed of partitions that are about to be revoked or assigned: others
        may commit for them from now on, or have done so. Remember those of which the application
        has records in hand."""
        call = self._desk.buffer.call
        # Those of an earlier call count no more: see `refuse_forfeited()`.
        self._forfeited = {tp: each for tp, each in self._forfeited.items() if each.call == call}
        # A reader that waits for records has done with those before.
        is_done = self._desk.has_readers
        for tp in partitions:
            state = self._subscriptions.assignment.get(tp)
            position = None if is_done or state is None else self._in_hand_before(state)
            if position is not None:
                self._forfeited[tp] = Forfeit(call, position)
            self._committed.pop(tp, None)

    def _in_hand_before(self, state: PartitionState) -> int | None:
        """Return the position, if records before it were returned that are not committed."""
        # `call` is 0 if nothing of it was returned, so that there is nothing to lose.
        position = state.position if state.call else None
        return None if position is None or self._last_committed(state) >= position else position

    def refuse_forfeited(self) -> None:
        """Raise CommitFailedError, once, if partitions were taken away with records in hand."""
        forfeited, self._forfeited = self._forfeited, {}
        call = self._desk.buffer.call
        # With any later call the application has finished these records uncommitted: there is no
        # commit of them left that this one could be taken for.
        lost = [tp for tp, forfeit in forfeited.items() if forfeit.call == call]
        if lost:
            raise CommitFailedError(
                f"group {self._committer.group_id!r}: {ALREADY_REBALANCED}: taken away since their "
                f"records were handed out: {some_names(lost)}; the present owners of these "
                "partitions read them again"
            )

    async def commit(
        self,
        offsets: Mapping[TopicPartition, CommittedOffset],
        deadline: float,
        optional: Collection[TopicPartition] = frozenset(),
    ) -> None:
        """Store `offsets`, after the commits of the same partitions that were called before. Raises
        as `OffsetCommitter.commit`, and CommitFailedError when a partition was taken away, unless
        it is an `optional` one: that is left out then."""
        # Of now: these offsets are about the assignment of now, and the topics of now.
        losses = self._losses
        positions = Positions(offsets, self._committer.topic_ids(offsets))
        async with self._turn(offsets, deadline) as turn:

            def what_is_left() -> Positions:
                gone = turn.ended | (offsets.keys() - self._subscriptions.assignment.tps)
                _refuse_foreign(gone.difference(optional))
                left = {tp: entry for tp, entry in offsets.items() if tp not in gone}
                return positions._replace(offsets=left)

            await self._commit(what_is_left, deadline, losses)

    async def commit_positions(
        self, offsets: Mapping[TopicPartition, CommittedOffset], deadline: float
    ) -> None:
        """Store positions, as `commit()`. Those of which the application has nothing in hand are
        optional: when they are taken away no member reads anything again."""
        states = self._subscriptions.assignment.states()
        optional = {state.tp for state in states if self._in_hand_before(state) is None}
        await self.commit(offsets, deadline, optional)

    @property
    def is_committing(self) -> bool:
        """Whether a commit was called that is not made yet."""
        return bool(self._turns)

    def pause(self) -> AbstractAsyncContextManager[object]:
        """Return a block in which what is assigned now is not committed. Raises
        KafkaTimeoutError."""
        deadline = asyncio.get_running_loop().time() + self._config.default_api_timeout
        return self._turn(self._subscriptions.assignment.tps, deadline)

    @asynccontextmanager
    async def _turn(
        self, partitions: Iterable[TopicPartition], deadline: float
    ) -> AsyncIterator[Turn]:
        turn = self._turns.join(partitions)
        try:
            if turn.before and not await self._wait_for_turn(turn, deadline):
                raise self._late_for_its_turn()
            yield turn
        finally:
            self._turns.leave(turn)
            self._changed.notify()

    async def _wait_for_turn(self, turn: Turn, deadline: float) -> bool:
        # The commit that it waits for is logged.
        what = f"an earlier commit of group {self._committer.group_id!r}"
        reason = "it is still tried"
        with self._waits.on(what, turn.partitions, reason, is_logged=lambda: True):
            return await self._turns.wait(turn, deadline)

    def _late_for_its_turn(self) -> KafkaTimeoutError:
        return KafkaTimeoutError(
            f"group {self._committer.group_id!r}: offsets not committed in time: "
            "an earlier commit of the same partitions is still tried"
        )

    def _why_waiting(self) -> KafkaError | None:
        is_waiting = self._is_suspended and not self._is_closed
        return RebalanceInProgressError("the group is rebalancing") if is_waiting else None

    async def _commit(self, choose: Callable[[], Positions], deadline: float, losses: int) -> None:
        """Commit what `choose` returns in the moment before it is sent.

        `losses` is how often the group had removed the member when the commit was called, which may
        have waited for its turn since. Raises CommitFailedError if it has done so again.
        """
        what = f"OffsetCommit of group {self._committer.group_id!r}"
        with self._waits.on(what, why=self._why_waiting) as waiting:
            await self._commit_in_turn(choose, deadline, losses, waiting)

    async def _commit_in_turn(
        self, choose: Callable[[], Positions], deadline: float, losses: int, waiting: Wait
    ) -> None:
        client = self._config.client
        delays = Backoff(client.retry_backoff, client.retry_backoff_max)
        # `_is_lost` forgets: meanwhile the group may remove the member and take it back, with the
        # same partitions. Then only the count shows that others had them.
        while True:
            await self._wait_for_assignment(deadline, losses)
            if self._is_closed:
                raise ConsumerStoppedError("the consumer was stopped meanwhile")
            # No await until the identity is known: offsets of one assignment must not go out in the
            # name of another. What changes after that, the coordinator sees by the identity.
            if self._is_late(losses):
                raise CommitFailedError(f"{ALREADY_REBALANCED}: it removed this member")
            positions = choose()
            offsets = positions.offsets
            if not offsets:
                return
            identity = self._identity()
            noted = positions._replace(on_stored=self._note_stored(offsets))
            try:
                with self._sending(offsets):
                    await self._committer.commit(noted, identity, deadline)
                self._maybe_guard()
                return
            except CommitFailedError as error:
                # A refusal of who we were says nothing about who we are. A join that is under way,
                # or through by now, mends it, and the next attempt goes out under the new identity.
                is_same = identity == self._identity() and not self._is_suspended
                if is_same:
                    self._on_refused(identity, error)
                    if not self._is_suspended and not isinstance(error.__cause__, _PASSING):
                        raise
                refusal = error
                waiting.note(error)
            await self._pause(delays.next(), deadline, refusal)

    def _note_stored(
        self, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> Callable[[TopicPartition], None]:
        """Return what notes that one of these is stored: auto-commit must not store what lies
        before an offset of the application's own, though others of the same call are refused."""
        assignment = self._subscriptions.assignment
        # Of now: a position that is sought or reset on the way is another one, which is not stored.
        epochs = {tp: assignment.state_value(tp).epoch for tp in offsets}

        def note(tp: TopicPartition) -> None:
            entry, is_ours = offsets[tp], tp in self._subscriptions.assignment.tps
            self._committed[tp] = Stored.now(entry, epochs[tp] if is_ours else -1)
            # The partition came back, and what was in hand when it went is stored now.
            forfeit = self._forfeited.get(tp)
            if forfeit is not None and entry.offset >= forfeit.position:
                del self._forfeited[tp]
            # `Handover.revoke` may be waiting for the application to finish what it has.
            self._desk.polls.notify()

        return note

    async def _pause(self, delay: float, deadline: float, refusal: CommitFailedError) -> None:
        """Wait before another attempt. Raises KafkaTimeoutError if there is no time for one."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, min(delay, deadline - loop.time())))
        if loop.time() >= deadline:
            raise KafkaTimeoutError(
                f"group {self._committer.group_id!r}: offsets not committed in time: "
                f"{refusal.__cause__ or refusal}"
            ) from refusal

    @contextmanager
    def _sending(self, partitions: Iterable[TopicPartition]) -> Iterator[None]:
        turn = Turn(partitions)
        self._out.add(turn)
        try:
            yield
        finally:
            self._out.remove(turn)
            self._changed.notify()

    # -- commits without a response --------------------------------------------------------------

    def _maybe_guard(self) -> None:
        """See to it, in the background, that the commit that was just confirmed stays in place."""
        is_guarded = self._guard is not None and not self._guard.done()
        if self._committer.to_look_up and not is_guarded and not self._tasks.is_stopping:
            self._guard = self._tasks.start(self._guard_commits(), name="late-commits")

    async def _guard_commits(self) -> None:
        while self._committer.to_look_up:
            await asyncio.sleep(self._committer.look_up_pause)
            now = asyncio.get_running_loop().time()
            await self.restore_overwritten(now + self._config.client.request_timeout)

    async def look_once_more(self, deadline: float) -> None:
        """Look for late commits once more, a moment later, before this consumer is gone: no
        generation ends with it, so that they would be refused."""
        left = deadline - asyncio.get_running_loop().time()
        if self._committer.to_look_up and left > 0:
            await asyncio.sleep(min(_LAST_LOOK, left / 2))
            await self.restore_overwritten(deadline)

    async def restore_overwritten(self, deadline: float) -> None:
        """Store again what an older commit has overwritten that the coordinator carried out later,
        until `deadline` (loop time) at most; see `UnansweredCommits`. Failures are logged."""
        partitions = self._committer.to_look_up & self._subscriptions.assignment.tps
        if not partitions:
            return
        try:
            # Commits of the application do not wait for the look, which may take its time.
            found = await self._committer.fetch(partitions, deadline)
            if not self._committer.overwritten(found):
                return
            async with self._turn(partitions, deadline):
                # What is confirmed by now, with no other commit on its way. Of partitions that the
                # member has not had all the while, nothing is in doubt any more; and in a new
                # generation the older commit is refused.
                offsets = self._committer.overwritten(found)
                if not offsets or self._is_suspended or self._is_lost or self._is_closed:
                    return
                names = some_names(offsets)
                self._log.info("Stored again, as a late commit has overwritten it: %s", names)
                positions = Positions(offsets, self._committer.topic_ids(offsets))
                with self._sending(offsets):
                    await self._committer.commit(positions, self._identity(), deadline)
        except KafkaError as error:
            self._log.debug("Not looked for late commits: %s", error)

    def _is_late(self, losses: int) -> bool:
        """Return whether the group has removed the member since a commit was called, after so many
        losses, or has assigned nothing to it since the last."""
        return self._is_lost or losses != self._losses

    async def _wait_for_assignment(self, deadline: float, losses: int) -> None:
        while self._is_suspended and not self._is_late(losses):
            # In a listener it would wait for the listener to return.
            refuse_in_listener(self._desk, "commit() of what was assigned since unsubscribe()")
            if not await self._changed.wait(deadline):
                raise KafkaTimeoutError(
                    f"group {self._committer.group_id!r}: offsets not committed in time: "
                    "the group is rebalancing"
                )

    # -- what the application has finished -------------------------------------------------------

    async def run(self) -> None:
        """Commit what is finished every `auto_commit_interval`, until cancelled; if that is 0,
        whenever something has been finished."""
        interval = self._config.auto_commit_interval
        # One attempt does not keep the next from taking along what was finished since.
        limit = min(self._config.client.request_timeout, max(interval, _SHORTEST_ATTEMPT))
        self._chosen.follow()
        while True:
            await asyncio.sleep(max(interval, _SHORTEST_INTERVAL))
            if not interval:
                # An application that always finds records says nothing: look from time to time.
                now = asyncio.get_running_loop().time()
                await self._desk.polls.wait(now + _LONGEST_LOOK)
            # It would wait for the assignment while it has its turn, and commits of the application
            # with it.
            if not self._is_suspended and not self._is_lost:
                await self.commit_finished(limit)

    async def commit_finished(self, timeout: float) -> None:
        """Commit what is finished and was not committed yet; failures are logged."""
        partitions = self._subscriptions.assignment.tps
        if not self._finished(self._subscriptions.assignment):
            return

        def finished() -> Positions:
            # Not before: an earlier commit may have stored it, or more; and positions of an
            # assignment that was given up meanwhile are not those of the one that follows.
            found = self._finished(self._subscriptions.assignment)
            kept = {tp: entry for tp, entry in found.items() if tp in partitions}
            return Positions(kept, self._committer.topic_ids(kept))

        deadline = asyncio.get_running_loop().time() + timeout
        try:
            async with self._turn(partitions, deadline):
                # Chosen when it is sent, from what the member has then: no older loss concerns it.
                await self._commit(finished, deadline, self._losses)
            self._is_failing = False
        except (KafkaError, ConsumerStoppedError) as error:
            self.complain(error)

    async def finish(self, deadline: float, *, auto: bool) -> None:
        """Wait until the commits that were called are made, with `auto` also one of what is
        finished; until `deadline` (loop time) at most."""
        if auto:
            await self.commit_finished(deadline - asyncio.get_running_loop().time())
        while self._turns and await self._changed.wait(deadline):
            pass
        await self.restore_overwritten(deadline)

    def complain(self, error: Exception) -> None:
        """Log what keeps commits from being made, once until one is."""
        level = logging.DEBUG if self._is_failing else logging.WARNING
        self._is_failing = True
        self._log.log(level, "auto-commit failed: %s", error)

    async def commit_abandoned(self, given_up: GivenUp, identity: Identity, timeout: float) -> None:
        """Commit what is finished of an assignment that the application has given up, after the
        commits of it that are sent, or sent again, already. Raises as `OffsetCommitter.commit`.

        Commits that wait for an assignment are not waited for: they wait for this to end.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        turn = Turn(given_up.assignment.tps)
        while any(other.concerns(turn) for other in self._out):
            if not await self._changed.wait(deadline):
                raise self._late_for_its_turn()
        finished = self._finished(given_up.assignment)
        if finished:
            positions = Positions(finished, given_up.topic_ids)
            await self._committer.commit(positions, identity, deadline)

    async def _commit_chosen(self, given_up: GivenUp) -> None:
        """Commit what is finished of partitions that were no member's; failures are logged."""
        deadline = asyncio.get_running_loop().time() + self._config.client.request_timeout
        try:
            async with self._turn(given_up.assignment.tps, deadline):
                await self._wait_for_assignment(deadline, self._losses)
                # What the application has again, it has perhaps committed, or sought.
                again = self._subscriptions.assignment.tps
                found = self._finished(given_up.assignment)
                finished = {tp: entry for tp, entry in found.items() if tp not in again}
                if finished:
                    positions = Positions(finished, given_up.topic_ids)
                    await self._committer.commit(positions, Identity(), deadline)
        except KafkaError as error:
            self.complain(error)

    def give_up(self, assignment: Assignment) -> GivenUp:
        """Return what `commit_abandoned()` needs of an assignment that ends now: its positions do
        not follow the topics from here on."""
        return GivenUp(assignment, self._committer.topic_ids(assignment, assignment.topic_ids))

    def _finished(self, assignment: Assignment) -> dict[TopicPartition, CommittedOffset]:
        """Return the positions before what the latest call got, where they moved since the last
        commit; and what was committed long ago, as it was."""
        call = self._desk.buffer.call
        finished: dict[TopicPartition, CommittedOffset] = {}
        for state in assignment.states():
            offset = state.finished_before(call)
            if offset < 0:
                continue
            committed = self._last_committed(state)
            # The application may have committed more than we know to be finished.
            most = committed if state.position is None else state.position
            stored = self._committed[state.tp] if offset <= committed <= most else None
            if stored is not None and stored.is_due(state):
                finished[state.tp] = stored.entry
            # As far as before in a topic that was made again: its offsets went with the former one.
            elif stored is None or (offset == committed and stored.is_before(state)):
                metadata = "" if stored is None else stored.entry.metadata
                epoch = state.epoch_before(offset)
                finished[state.tp] = CommittedOffset(offset, metadata, epoch)
        return finished

    def in_work(self, partitions: Iterable[TopicPartition]) -> bool:
        """Return whether the application may still be at work on records of these partitions: they
        came with its latest call and are not committed.
        """
        call = self._desk.buffer.call
        # Nothing was ever returned, and call 0 would count as the latest of each partition.
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
        """Return the offset of the last commit of a partition; -1 if there is none."""
        stored = self._committed.get(state.tp)
        return -1 if stored is None else stored.offset_for(state)


def _refuse_foreign(foreign: Collection[TopicPartition]) -> None:
    """Raise CommitFailedError if there are any."""
    if foreign:
        names = some_names(foreign)
        raise CommitFailedError(f"{ALREADY_REBALANCED}: not this member's any more: {names}")
