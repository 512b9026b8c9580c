"""Membership in a group, whatever its protocol: when to take part, and what becomes of the
assignment when the application subscribes to something else."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka._compat import timeout_at
from aiokafka._health import NodeHealth
from aiokafka._log import SubjectLog
from aiokafka._tasks import TaskOwner
from aiokafka.client import CoordinationType
from aiokafka.consumer._arguments import AllPositions
from aiokafka.consumer.group.commits import GroupCommits
from aiokafka.consumer.group.coordinator_names import CoordinatorNames
from aiokafka.consumer.group.handover import Handover
from aiokafka.consumer.group.membership import (
    GroupLink,
    GroupParts,
    GroupProtocol,
    Membership,
    MendableErrors,
    PollWatch,
)
from aiokafka.consumer.group.no_group import GroupPhase
from aiokafka.consumer.group.state import Standing, StandingState
from aiokafka.consumer.position.committed import CommittedOffset, Identity, OffsetCommitter
from aiokafka.consumer.subscription_state import SubscribedTopics
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    KafkaError,
    KafkaTimeoutError,
    renewed,
)
from aiokafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka.consumer._shared import Shared
    from aiokafka.consumer.subscription_state import SubscriptionState

__all__ = ["Farewell", "Group", "GroupMakings", "GroupView", "prepare_group"]


# -- Say the last goodbye of a member, also if the call that wanted it is cancelled


class Farewell:
    """The goodbye of `stop()`: it goes on when that call is cancelled, and the next one waits for
    it. Cut short, it would be missed until the end of the member's session.

    Owns: its task.
    """

    def __init__(self, name: str) -> None:
        """Begin without one. `name` is that of the task's owner."""
        self._owner = TaskOwner(name)

    async def say(self, goodbye: Coroutine[Any, Any, None]) -> None:
        """Run `goodbye` to its end, also if this call is cancelled."""
        if self._owner.is_stopping:
            await goodbye
        else:
            await asyncio.shield(self._owner.start(goodbye, name="goodbye"))

    async def wait(self) -> None:
        """Wait for the end of what a cancelled call has begun."""
        await self._owner.wait()

    def cancel(self) -> None:
        """End it now."""
        self._owner.cancel()


log = logging.getLogger("aiokafka.consumer.group_coordinator")

# Seconds that stop() may take for its background work, and any member to tell the group.
_STOP_TIMEOUT = 5.0
_LEAVE_TIMEOUT = 3.0
_CATCH_UP_TIMEOUT = 3.0
# The broker ends a join when the rebalance timeout is over, and takes a moment.
_JOIN_SHARE = 1.25
# Parts of the time that is left.
_PART_TO_CATCH_UP, _PART_TO_LEAVE = 0.3, 0.2


class Group(CoordinatorNames):
    """Takes part in a group for subscriptions by topics or pattern, and commits offsets to it: the
    Coordination of a consumer with `group_id`. It has a GroupProtocol, which knows how members come
    to their partitions.

    One task, `run()`, does all that changes the membership and the assignment, one after the
    other, by the state of its Standing: join, revoke, take over, leave. A second one sends
    heartbeats and tells the first what they bring. Partitions chosen by `assign()` belong to no
    member: any client that knows the group's name may commit for them.
    """

    def __init__(
        self,
        shared: Shared,
        route: Callable[[], None],
        committer: OffsetCommitter,
        identify: Callable[[], Identity],
        make_protocol: Callable[[GroupParts], GroupProtocol],
    ) -> None:
        self.group_id = committer.group_id
        self.contact: NodeHealth = committer.contact
        self._config = shared.config
        self._subscriptions = shared.subscriptions
        self._desk = shared.desk
        self._route = route
        self._log = SubjectLog(log, shared.config.subject)
        self._topics = SubscribedTopics(shared)
        self._tasks = TaskOwner(f"{shared.config.client.client_id}-group", self._fail)
        self._standing = Standing(shared)
        self._polls = PollWatch(shared, self._standing)
        self._committer = committer
        self._commits = GroupCommits(
            shared, committer, identify, self._on_commit_refused, self._tasks
        )
        self._handover = Handover(shared, route, self._commits, self._tasks)
        parts = GroupParts(
            shared,
            self._standing,
            self._commits,
            self._handover,
            MendableErrors(shared, self._standing),
            self._polls,
            self.on_metadata,
        )
        self._protocol = make_protocol(parts)
        self._member = self._protocol.member
        self._goodbye: asyncio.Event | None = None
        self._farewell = Farewell(self._tasks.name)

    # -- what others read --------------------------------------------------------------------------

    @property
    def coordinator_id(self) -> int | None:
        """Node id of the group's coordinator; None while it is not known."""
        return self._member.link.coordinator_id

    @property
    def member_id(self) -> str:
        """Name of this member within the group, "" outside it."""
        return self._member.member_id if self._member.is_member else ""

    @property
    def generation(self) -> int:
        """The group's generation, or the member's epoch; -1 outside it."""
        return self._member.generation

    @property
    def beat_at(self) -> float | None:
        """When the coordinator last answered as to a member (loop time)."""
        return self._member.link.beat_at

    @property
    def session_timeout(self) -> float:
        """Seconds without a heartbeat after which the group drops a member."""
        return self._protocol.session_timeout

    @property
    def phase(self) -> GroupPhase:
        """How the consumer stands with its group."""
        return self._standing.phase(self._protocol.has_work())

    @property
    def reason(self) -> str:
        """Why the member joins, "" if it does not."""
        return self._standing.reason or ""

    @property
    def trouble(self) -> KafkaError | None:
        """Why there is no assignment yet, or why heartbeats are refused; None if that is not
        known."""
        return self._standing.trouble or self._member.link.refusal

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the membership."""
        return self._standing.failure

    def check(self) -> None:
        """Raise the error that ended the membership."""
        if (failure := self._standing.failure) is not None:
            raise renewed(failure) from failure

    # -- life --------------------------------------------------------------------------------------

    async def start(self, tasks: TaskOwner) -> None:
        """Work in the background; wait for the first assignment if there is a subscription.

        Raises KafkaTimeoutError if no coordinator is found within `request_timeout_ms` or there is
        no assignment in time, ConsumerStoppedError after `stop()`, errors that no retry mends.
        """
        tasks.start(self._topics.follow(self.on_metadata), name="metadata")
        self._polls.note_call()
        # Before the tasks begin: `start()` raises what they meet from here on, not a reader.
        self._standing.begin_start()
        self._tasks.start(self.run(), name="membership")
        self._tasks.start(self._protocol.send_heartbeats(), name="heartbeat")
        if self._config.enable_auto_commit:
            self._tasks.start(self._commits.run(), name="auto-commit")
        await self._wait_until_joined()
        # The application could ask for no records while it waited: the interval begins again.
        self._standing.finish_start()
        self._polls.note_call()
        self.check()

    async def _wait_until_joined(self) -> None:
        # A join waits for the slowest member, which may be gone without a word: as long as this one
        # says itself, and the broker takes a moment; other clients say the poll interval.
        rebalance = _JOIN_SHARE * (self._config.rebalance_timeout or 0.0)
        limit = max(self._config.default_api_timeout, self._config.max_poll_interval, rebalance)
        deadline = asyncio.get_running_loop().time() + limit
        while self._subscriptions.is_by_group and not self._standing.is_joined:
            self.check()
            if self._standing.is_stopping:
                raise ConsumerStoppedError("the consumer was stopped while it started")
            if not await self._standing.signal.wait(deadline):
                why = self._standing.trouble or "members have not joined, or the broker is silent"
                raise KafkaTimeoutError(
                    f"group {self.group_id!r}: no assignment within {limit:g} s: {why}"
                )

    async def stop(self, deadline: float) -> None:
        """End the background work, commit what is finished if so configured, leave the group
        unless a static member; until `deadline` (loop time) at most."""
        self._standing.begin_stop()
        loop = asyncio.get_running_loop()
        # The order of what follows:
        # 1. The group is left, if that is under way: cut short, the goodbye may never arrive.
        # 2. Commits are made past a join: see `_commit_while_joining()`.
        # 3. A member that others wait for goes through with a join.
        # 4. The membership's task ends, so that nothing is revoked or assigned any more.
        # 5. A heartbeat that was cut short is repeated: it may have raised the epoch of commits.
        # 6. What `unsubscribe()` left to do, if it was called just before. The group is left with
        #    it: until then it refuses commits of partitions chosen by hand since.
        # 7. What is finished is committed, while this is a member; a join may have suspended that,
        #    and what other tasks commit.
        # 8. The group is left, last of all: from then on it refuses commits, and others read on.
        await self._finish_goodbye(deadline)
        join_by = loop.time() + (deadline - loop.time()) * _PART_TO_CATCH_UP
        await self._commit_while_joining(join_by)
        if self._protocol.is_awaited:
            await self._protocol.catch_up(join_by - loop.time())
        await self._tasks.stop(min(deadline, loop.time() + _STOP_TIMEOUT))
        left = deadline - loop.time()
        # Without a goodbye: the group misses this member by the end of its session.
        if left <= 0:
            self._member.forget_member()
            return
        commit_by = deadline - left * _PART_TO_LEAVE
        await self._protocol.catch_up(min(left * _PART_TO_CATCH_UP, _CATCH_UP_TIMEOUT))
        if self._standing.state is StandingState.LEAVING:
            await self._hand_over_in_time(commit_by)
        if not self._subscriptions.is_by_group:
            await self._farewell.say(self._leave("the consumer unsubscribed", deadline))
        self._commits.resume()
        await self._commits.finish(commit_by, auto=self._may_commit_finished())
        if self.generation < 0 or self._config.group_instance_id is not None:
            await self._commits.look_once_more(commit_by)
        self._commits.close()
        await self._farewell.say(self._leave("the consumer is stopped", deadline))

    async def _commit_while_joining(self, deadline: float) -> None:
        """Commit what is finished and what other tasks commit, until `deadline` at most, if a join
        is under way; a cooperative member has its partitions meanwhile.

        1. Until all members have joined, the generation that the commit names is still the present
           one: it is stored, and nothing waits for the others.
        2. When all have joined, the coordinator begins the next generation. The commit is refused,
           and the response that brings the new number is under way.
        3. The protocol suspends commits again. So the membership's task must not end yet: it goes
           through with JoinGroup and SyncGroup, and takes over nothing.
        4. The commit is sent as of the new generation, in which the partitions are still this
           member's: the group gives them to others only when a later join claims them no more.

        An eager member has given them up to join. In the new generation they may be another
        member's, which has committed more: it commits in the old one, or not at all.
        """
        has_partitions = self.generation >= 0 and self._protocol.keeps_partitions
        is_late = deadline <= asyncio.get_running_loop().time()
        if is_late or not self._protocol.is_joining or not has_partitions:
            return
        if self._standing.state is StandingState.LEAVING:
            await self._commit_abandoned_while_joining(deadline)
        else:
            self._commits.resume()
            await self._commits.finish(deadline, auto=self._may_commit_finished())

    async def _commit_abandoned_while_joining(self, deadline: float) -> None:
        """Commit what was finished before `unsubscribe()` was called in the same way: by step 1
        here, or, when the join is through, with the rest of what that call left to do."""
        try:
            async with timeout_at(deadline):
                await self._handover.commit_abandoned(self._member.identity)
        except (KafkaError, asyncio.TimeoutError) as error:
            self._log.debug("Not committed during the join: %s", error)
            await self._protocol.catch_up(deadline - asyncio.get_running_loop().time())

    def _may_commit_finished(self) -> bool:
        """Return whether `stop()` commits. Outside the group, others may have these partitions by
        now, and may have committed more."""
        is_lost = self._subscriptions.is_by_group and self.generation < 0
        return self._config.enable_auto_commit and not is_lost and self.failure is None

    async def _finish_goodbye(self, deadline: float) -> None:
        """Wait until the group has heard that this member leaves, if it is being told."""
        with contextlib.suppress(asyncio.TimeoutError):
            async with timeout_at(deadline):
                await self._farewell.wait()
                while self._goodbye is not None:
                    await self._goodbye.wait()

    async def _hand_over_in_time(self, deadline: float) -> None:
        """Hand over what the application gave up by `unsubscribe()` just before."""
        try:
            async with timeout_at(deadline):
                await self._handover.abandon(self._member.identity)
        except asyncio.TimeoutError:
            self._log.warning("Stopped before its listener had returned")

    async def close(self, deadline: float | None = None) -> None:
        """End what `stop()` left, if it was cancelled, or had no time."""
        self._commits.close()
        await self._tasks.stop(deadline)

    def abandon(self) -> None:
        """End the background work without waiting for it."""
        self._farewell.cancel()
        self._commits.close()
        self._tasks.cancel()

    def _fail(self, error: BaseException) -> None:
        """End the membership; whatever reads or commits is told."""
        # Nothing else wakes what waits:
        # 1. The state first, for it is what those look at who are woken.
        # 2. Commits that wait for an assignment would wait until their deadline.
        # 3. Readers are woken last, and held before: they are to find the failure, not a record
        #    that was buffered before it.
        self._standing.fail(error)
        self._commits.resume()
        self._desk.hold()
        self._desk.wake_all()

    # -- subscription and metadata -----------------------------------------------------------------

    def on_subscribed(self) -> None:
        """Follow the subscription: the application has changed it."""
        self._polls.note_call()
        self._follow_subscription()
        self._standing.signal.notify()
        self._desk.polls.notify()
        self._topics.request()
        self.on_metadata()
        self._protocol.on_subscribed()

    def _follow_subscription(self) -> None:
        standing = self._standing
        # Of none after `unsubscribe()`, also if another subscription follows before they are sent.
        self._commits.follow_subscription()
        is_owed = self._handover.is_owed
        is_member = self._member.is_member or is_owed
        if not self._subscriptions.is_by_group and standing.state is not StandingState.LEAVING:
            self._handover.let_go()
        if standing.state is not StandingState.FAILED:
            standing.follow_subscription(is_member, is_owed)
        # One that failed because a background task did stays failed: nothing would do the work.
        elif self._tasks.failure is None:
            standing.follow_subscription(is_member, is_owed)
            self._desk.release()
        if self._subscriptions.is_by_group:
            standing.request_join("the subscription changed")
            return
        self._commits.end_loss()
        if is_member or self._goodbye is not None:
            # Until the group is left it refuses commits of partitions chosen by hand.
            self._commits.suspend()

    def on_metadata(self) -> None:
        """Join again if the metadata is a reason to, then have everything fetched from the right
        broker."""
        if self._subscriptions.is_by_group:
            if self._topics.match_pattern():
                self._standing.request_join("topics that match the pattern changed")
            self._protocol.on_metadata()
        self._topics.report_denied()
        self._route()

    # -- membership --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take part, leave, take part again, as it becomes necessary; until cancelled.

        After an error that no retry mends everything is dropped, the group left if it still counts
        us, and nothing done until the application subscribes again.
        """
        while True:
            try:
                await self._follow_states()
                return
            except Exception as error:
                trace = None if isinstance(error, KafkaError) else error
                self._log.error("The membership ends: %s", error, exc_info=trace)
                await self._leave_with_nothing("its membership has failed")
                self._member.fail()
                # The listener has returned before readers hear of the error: an application that
                # ends itself because of it should not find its own listener at work.
                await self._handover.lose()
                self._fail(error)
                # What the application has chosen itself meanwhile does not end with it.
                if not self._subscriptions.is_by_group:
                    self._follow_subscription()
            while self._standing.state is StandingState.FAILED:
                await self._standing.signal.wait()
            # A failed member has no way back but from the very beginning.
            self._member.forget_member()

    async def _follow_states(self) -> None:
        standing = self._standing
        # A listener may have swallowed the cancellation.
        while not standing.is_stopping:
            if standing.state is StandingState.FAILING and standing.error is not None:
                raise standing.error
            if standing.state is StandingState.LEAVING:
                await self._hand_over_and_leave()
            elif standing.state is StandingState.OUTSIDE or not self._subscriptions.is_by_group:
                await self._stay_outside()
            elif standing.state is StandingState.IDLE:
                await self._go_idle()
            elif self._protocol.has_work():
                await self._protocol.advance()
            else:
                await standing.signal.wait()

    async def _stay_outside(self) -> None:
        """Wait for a subscription. A first join may have been under way when the application
        unsubscribed: the group did not know us yet, and does now, so leave it."""
        self._standing.take_reason()
        if self._standing.state is StandingState.OUTSIDE and self._member.is_member:
            self._forget_assignment()
            await self._leave("the consumer unsubscribed")
        else:
            self._commits.resume()
            await self._standing.signal.wait()

    async def _hand_over_and_leave(self) -> None:
        """Finish with what was unsubscribed from; there may be another subscription by now."""
        # The listener and the last commit come first: both need what the membership gives.
        if self._config.enable_auto_commit:
            await self._protocol.catch_up(_CATCH_UP_TIMEOUT)
        await self._handover.abandon(self._member.identity)
        # Before the group is left: the application's part is over, and while the request is out it
        # may subscribe to something else, which the state has to follow.
        self._standing.finish_leaving()
        self._handover.release()
        if self._member.is_member:
            self._forget_assignment()
            await self._leave("the consumer unsubscribed")
        if self._subscriptions.is_by_group:
            self._standing.request_join("the subscription changed")

    async def _go_idle(self) -> None:
        """Let others have the partitions until the application asks for records again."""
        if self._member.is_member or self._handover.owned:
            await self._leave_with_nothing("the application did not ask for records in time")
            # After the goodbye, which only a member can say.
            self._member.become_stale()
            await self._handover.lose()
            self._handover.release()
        await self._polls.wait_for_call()
        self._standing.finish_idling()
        self._standing.request_join("the application asks for records again")

    def _forget_assignment(self) -> None:
        """Drop the pending reason to join; the assignment no longer counts."""
        self._standing.unsettle()
        self._standing.take_reason()
        self._protocol.forget()

    async def _leave_with_nothing(self, reason: str) -> None:
        # Before the goodbye, with which others get the partitions: what the application asks for or
        # finishes meanwhile must not be returned here as well, nor stored over what they store.
        self._commits.lose()
        self._desk.hold()
        self._forget_assignment()
        await self._leave(reason)

    async def _leave(self, reason: str, deadline: float | None = None) -> None:
        if not self._member.is_member:
            return
        limit = asyncio.get_running_loop().time() + _LEAVE_TIMEOUT
        self._goodbye = goodbye = asyncio.Event()
        try:
            async with timeout_at(limit if deadline is None else min(limit, deadline)):
                await self._member.leave(reason)
        except (KafkaError, asyncio.TimeoutError) as error:
            self._log.info("LeaveGroup failed: %s", str(error) or "no answer")
        finally:
            self._member.forget_member()
            self._goodbye = None
            goodbye.set()

    # -- offsets -----------------------------------------------------------------------------------

    async def commit_offsets(
        self, assignment: object, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Store `offsets`. Raises as `GroupCommits.commit`, or as `commit_positions` if they are
        `AllPositions`. Tracers replace this method by functions with exactly these parameters."""
        self.check()
        deadline = asyncio.get_running_loop().time() + self._config.default_api_timeout
        found = {tp: CommittedOffset(*each, each.leader_epoch) for tp, each in offsets.items()}
        if isinstance(offsets, AllPositions):
            await self._commits.commit_positions(found, deadline)
        else:
            await self._commits.commit(found, deadline)

    def refuse_forfeited(self) -> None:
        """Raise CommitFailedError if what the application has in hand cannot be committed now."""
        self.check()
        self._commits.refuse_forfeited()

    def _on_commit_refused(self, identity: Identity, error: CommitFailedError) -> None:
        if identity.generation >= 0:
            self._protocol.on_commit_refused(identity, error)


# -- A consumer's membership as a transactional producer needs it (KIP-447)


class GroupView:
    """Says for a transaction which offsets this consumer may commit; see
    `aiokafka._group_members.GroupReader`. Owns nothing.

    Brokers fence offsets in transactions by generation alone, and rebalances go on in the
    background: by the time an application commits, its consumer may be a good member of a
    generation in which the records are another member's. So the records that were returned are
    compared with what is assigned now.
    """

    def __init__(self, shared: Shared, group: Group) -> None:
        self._client = shared.client
        self._buffer = shared.desk.buffer
        self._subscriptions = shared.subscriptions
        self._group = group
        self._instance_id = shared.config.group_instance_id

    @property
    def group_id(self) -> str:
        """The id of the group."""
        return self._group.group_id

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster; None if it is not known."""
        return self._client.cluster.cluster_id

    @property
    def member_id(self) -> str:
        """The id within the group, "" outside it."""
        return self._group.member_id

    def metadata(self) -> ConsumerGroupMetadata:
        """Return who the consumer is to its group now; only the group's name if it assigns its
        partitions itself. Raises CommitFailedError when the group does not count it as a member.
        """
        if not self._subscriptions.is_by_group:
            return ConsumerGroupMetadata(self.group_id)
        generation = self._group.generation
        if generation < 0:
            raise CommitFailedError(
                f"group {self.group_id!r}: this consumer is not a member: it has not joined yet, "
                "was stopped, or was removed by the group"
            )
        return ConsumerGroupMetadata(
            self.group_id, generation, self._group.member_id, self._instance_id
        )

    @property
    def _counts(self) -> bool:
        """Whether the assignment is valid as far as the consumer knows."""
        return not self._subscriptions.is_by_group or self._group.generation >= 0

    def owns(self, partition: TopicPartition) -> bool:
        """Return whether the partition is assigned, by a membership that still counts."""
        return self._counts and partition in self._subscriptions.assignment.tps

    def stands_for(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether this consumer may commit an offset: it returned records of the partition
        under this assignment, or the offset is its position and the application has no older
        records in hand.

        The position alone proves nothing while the application still has records that it got
        before the partition was revoked and assigned again:

        1. The application gets the records 0 to 9 and works on them for long.
        2. The group revokes the partition. Another member gets the same records and commits 10.
        3. The partition comes back. The position is the committed offset, 10.
        4. The application commits 10, in a transaction with what it made of the records 0 to 9.
           Their results would count twice.

        With its next call for records the application is done with them. Then its position is as
        good as any member's.
        """
        state = self._subscriptions.assignment.get(partition)
        if state is None or not self._counts:
            return False
        if state.call > 0:
            return True
        given_up = self._subscriptions.given_up.get(partition)
        return state.position == offset and given_up != self._buffer.call

    def has_lost(self, partition: TopicPartition) -> bool:
        """Return whether the partition was revoked after records of it were returned, or the
        membership has ended since.
        """
        if partition in self._subscriptions.given_up:
            return True
        state = self._subscriptions.assignment.get(partition)
        return state is not None and state.call > 0 and not self._counts

    def leader_epoch_before(self, partition: TopicPartition, offset: int) -> int:
        """Return the leader epoch of the record before `offset`; -1 if the consumer has not fetched
        it."""
        state = self._subscriptions.assignment.get(partition)
        return -1 if state is None else state.epoch_before(offset)

    def refuse_lost(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Raise CommitFailedError if a partition was revoked since its records were returned,
        though it may have come back.
        """
        if self._subscriptions.is_manual:
            return  # what the application takes and leaves is its own affair
        lost = [
            tp
            for tp, entry in offsets.items()
            if self.has_lost(tp) and not self.stands_for(tp, entry.offset)
        ]
        if lost:
            names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(lost))
            raise CommitFailedError(
                f"group {self.group_id!r}: taken away since the records were read: {names}; "
                "the present owners of these partitions read them again"
            )
        cluster, assignment = self._client.cluster, self._subscriptions.assignment
        foreign = sorted(tp for tp in offsets if assignment.is_foreign(tp.topic, cluster))
        if foreign:
            # Stored by name, it would be a position in the topic that has the name now. Unless a
            # broker that lags behind has named one of before.
            text = f"{foreign[0].topic}-{foreign[0].partition}: the topic may be another one by now"
            self._client.doubt_metadata(text)
            raise CommitFailedError(
                f"group {self.group_id!r}: {text}: abort, and read its records again, as by "
                "seek_to_committed()"
            )


# -- Make the parts of a consumer that has a group, for the protocol that it is configured for


class GroupMakings(NamedTuple):
    """What is made of a group before there is a Fetcher: positions need the committer."""

    committer: OffsetCommitter
    identify: Callable[[], Identity]
    make_protocol: Callable[[GroupParts], GroupProtocol]

    def make_group(self, shared: Shared, route: Callable[[], None]) -> Group:
        """Make the group. `route` is called when the assignment has changed."""
        return Group(shared, route, self.committer, self.identify, self.make_protocol)

    def make_view(self, shared: Shared, group: Group) -> GroupView:
        """Make what a transactional producer reads of the consumer."""
        return GroupView(shared, group)


def prepare_group(shared: Shared, group_id: str) -> GroupMakings:
    """Make a member for the configured protocol, and the committer of its group."""
    contact = _contact(shared, group_id)
    link = GroupLink(shared.client, shared.config, group_id, contact, shared.meter.coordinated)
    # Only what the configured protocol needs is imported.
    if shared.config.group_protocol == "classic":
        from aiokafka.consumer.group.classic import KEPT, ClassicMember, ClassicProtocol

        classic = ClassicMember(shared.config, link)
        identify = partial(_identify, classic, shared.subscriptions)
        # OffsetFetch has no field for a member of the classic protocol.
        committer = OffsetCommitter(shared, group_id, contact, Identity, KEPT)
        return GroupMakings(committer, identify, partial(ClassicProtocol, member=classic))
    from aiokafka.consumer.group.kip848 import Kip848Member, Kip848Protocol

    member = Kip848Member(shared.config, link)
    identify = partial(_identify, member, shared.subscriptions)
    committer = OffsetCommitter(shared, group_id, contact, identify)
    return GroupMakings(committer, identify, partial(Kip848Protocol, member=member))


def _identify(member: Membership, subscriptions: SubscriptionState) -> Identity:
    """Return who commits now: the member, or no member for partitions that the application has
    chosen itself."""
    return member.identity if subscriptions.is_by_group else Identity()


def _contact(shared: Shared, group_id: str) -> NodeHealth:
    """Return what is known of whether a group's coordinator answers; nothing yet."""
    client, kind = shared.client, CoordinationType.GROUP
    return NodeHealth(
        f"The coordinator of group {group_id}",
        SubjectLog(log, shared.config.subject),
        shared.on_change,
        partial(client.address_of_coordinator, kind, group_id),
        lambda: client.throttled_until(client.known_coordinator(kind, group_id)),
    )
