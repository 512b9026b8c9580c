"""The membership task of a consumer: join, rebalance, commit and leave, by either protocol."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from aiokafka._compat import timeout_at
from aiokafka._health import NodeHealth
from aiokafka._log import SubjectLog
from aiokafka._tasks import TaskOwner
from aiokafka._upstream.coordinator import CoordinatorNames
from aiokafka.client import CoordinationType
from aiokafka.consumer._arguments import AllPositions
from aiokafka.consumer.group.commits import GroupCommits
from aiokafka.consumer.group.membership import GroupCoordinatorClient, PollTimer
from aiokafka.consumer.group.no_group import GroupPhase
from aiokafka.consumer.group.rebalance import Rebalance
from aiokafka.consumer.group.state import MembershipState, MembershipStateMachine
from aiokafka.consumer.position.committed import Identity, OffsetCommitter
from aiokafka.consumer.subscription_state import SubscribedTopics
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    IllegalOperation,
    KafkaError,
    KafkaTimeoutError,
    renewed,
)
from aiokafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka.consumer._context import ConsumerContext
    from aiokafka.consumer.fetch.fetcher import Fetcher
    from aiokafka.consumer.group.classic import ClassicMember
    from aiokafka.consumer.group.kip848 import Kip848Member

__all__ = ["GroupMembership", "GroupView", "LeaveGroup", "make_committer"]

log = logging.getLogger("aiokafka.consumer.group_coordinator")

# The longest waits of `stop()` in seconds.
# - `_STOP_TIMEOUT`: for the end of the background tasks.
# - `_LEAVE_TIMEOUT`: for the response to LeaveGroup.
# - `_GENERATION_TIMEOUT`: for the response to a pending JoinGroup or heartbeat, because the last
#   commit needs the generation or epoch in this response.
_STOP_TIMEOUT = 5.0
_LEAVE_TIMEOUT = 3.0
_GENERATION_TIMEOUT = 3.0
# `start()` waits for an assignment at least for this multiple of the rebalance timeout: the broker
# completes a join slightly after the timeout.
_JOIN_SHARE = 1.25
# Parts of the remaining time of `stop()`: `_GENERATION_SHARE` for the wait for the generation or
# epoch that the last commit needs, `_LEAVE_SHARE` for the wait for the response to LeaveGroup.
_GENERATION_SHARE, _LEAVE_SHARE = 0.3, 0.2


class LeaveGroup:
    """Leaves the group. A LeaveGroup sent by `stop()` continues if `stop()` is cancelled, and the
    next `stop()` waits for the response. A cancelled request may not reach the coordinator: the
    group would keep the member until its session expires.

    Owns: the task of the LeaveGroup sent by `stop()`; the event that is set when an in-flight
    LeaveGroup has ended.
    """

    def __init__(
        self, member: ClassicMember | Kip848Member, log: SubjectLog, task_name: str
    ) -> None:
        self._member = member
        self._log = log
        self._owner = TaskOwner(task_name)
        self._in_flight: asyncio.Event | None = None

    @property
    def is_in_flight(self) -> bool:
        return self._in_flight is not None

    async def leave(
        self, reason: str, deadline: float | None = None, *, leave: bool | None = None
    ) -> None:
        """Leave the group and forget the membership. Do nothing if there is no membership. Log
        errors, and a missing response after 3 seconds or at `deadline` (loop time). `leave` is the
        argument of `stop()`: whether the group removes the member now."""
        if not self._member.is_member:
            return
        limit = asyncio.get_running_loop().time() + _LEAVE_TIMEOUT
        self._in_flight = in_flight = asyncio.Event()
        try:
            async with timeout_at(limit if deadline is None else min(limit, deadline)):
                await self._member.leave(reason, leave)
        except (KafkaError, asyncio.TimeoutError) as error:
            self._log.info("LeaveGroup failed: %s", str(error) or "no response")
        finally:
            self._member.forget_member()
            self._in_flight = None
            in_flight.set()

    async def leave_uncancelled(
        self, reason: str, deadline: float, *, leave: bool | None = None
    ) -> None:
        """Call `leave()` in a task that continues if this call is cancelled."""
        if self._owner.is_stopping:
            await self.leave(reason, deadline, leave=leave)
        else:
            task = self._owner.start(self.leave(reason, deadline, leave=leave), name="goodbye")
            await asyncio.shield(task)

    async def wait(self) -> None:
        """Wait until no LeaveGroup request is in flight."""
        await self._owner.wait()
        while self._in_flight is not None:
            await self._in_flight.wait()

    def cancel(self) -> None:
        """Cancel the LeaveGroup sent by `stop()`."""
        self._owner.cancel()


class GroupMembership(CoordinatorNames):
    """The membership of a consumer with `group_id`: joins the group for subscriptions by topics or
    pattern, and commits offsets to it. Its ClassicProtocol or Kip848Protocol determines how a
    member gets its partitions.

    One task, `run()`, joins, leaves and applies the assignments of the group, one after the other,
    according to the state of the MembershipStateMachine. A second task sends heartbeats, and wakes
    the first task. Partitions of `assign()` belong to no member: any client with the same
    `group_id` may commit offsets of these partitions.
    """

    def __init__(
        self, context: ConsumerContext, fetcher: Fetcher, committer: OffsetCommitter
    ) -> None:
        self.context = context
        self._loop = asyncio.get_running_loop()
        self.group_id = committer.group_id
        self.coordinator_health: NodeHealth = committer.coordinator_health
        self._config = context.config
        self._subscriptions = context.subscriptions
        self._queue = context.queue
        self._fetcher = fetcher
        self._log = SubjectLog(log, context.config.subject)
        self._topics = SubscribedTopics(context)
        self._tasks = TaskOwner(f"{context.config.client.client_id}-group", self._fail)
        self.state = MembershipStateMachine(context)
        self.poll_timer = PollTimer(context, self.state)
        self._committer = committer
        self._member = committer.member
        self.commits = GroupCommits(context, committer, self._on_commit_refused, self._tasks)
        self.rebalance = Rebalance(context, fetcher, self.commits, self._tasks)
        self._protocol = committer.member.protocol(self)
        self._leaving = LeaveGroup(self._member, self._log, self._tasks.name)

    # -- for `health()`, metrics and programs ------------------------------------------------------

    @property
    def coordinator_id(self) -> int | None:
        """Node id of the group's coordinator; None while it is not known."""
        return self._member.coordinator.coordinator_id

    @property
    def member_id(self) -> str:
        """The member id of this consumer, "" while it is not a member."""
        return self._member.member_id if self._member.is_member else ""

    @property
    def generation(self) -> int:
        """The group's generation, or the member's epoch (KIP-848); -1 if the consumer is in no
        generation."""
        return self._member.generation

    @property
    def beat_at(self) -> float | None:
        """Loop time at which the coordinator last counted this consumer as a member; None before
        the first response."""
        return self._member.coordinator.beat_at

    @property
    def session_timeout(self) -> float:
        """Seconds without a heartbeat after which the group removes a member; an estimate for
        KIP-848."""
        return self._protocol.session_timeout

    @property
    def phase(self) -> GroupPhase:
        """The state for `health()`."""
        return self.state.phase(self._protocol.has_work())

    @property
    def reason(self) -> str:
        """Why the member has to join; "" if the member need not join."""
        return self.state.reason or ""

    @property
    def last_error(self) -> KafkaError | None:
        """The last error of a join or heartbeat since the last complete join. If there is no such
        error, the error of the coordinator's last response if that error is retriable; else
        None."""
        return self.state.join_error or self._member.coordinator.refusal

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the membership; None if the membership has not failed."""
        return self.state.failure

    def check(self) -> None:
        """Raise the error that ended the membership, if there is such an error."""
        if (failure := self.state.failure) is not None:
            raise renewed(failure) from failure

    # -- start and stop ----------------------------------------------------------------------------

    async def start(self, tasks: TaskOwner) -> None:
        """Start the background tasks. With a subscription, wait for the first assignment.

        Raises KafkaTimeoutError if no coordinator is found within `request_timeout_ms`, or the
        member has no assignment after the longest of `default_api_timeout_ms`,
        `max_poll_interval_ms` and 5/4 of `rebalance_timeout_ms`; ConsumerStoppedError after
        `stop()`; and errors that are not retriable.
        """
        tasks.start(self._topics.follow(self.on_metadata), name="metadata")
        self.poll_timer.restart()
        # Call `begin_start()` before the tasks start: until `finish_start()`, errors of the tasks
        # are raised by `start()`, not by the application's next call.
        self.state.begin_start()
        self._tasks.start(self.run(), name="membership")
        self._tasks.start(self._protocol.send_heartbeats(), name="heartbeat")
        if self._config.enable_auto_commit:
            self._tasks.start(self.commits.run(), name="auto-commit")
        await self._wait_until_joined()
        # The application could not poll during the wait: start a new interval.
        self.state.finish_start()
        self.poll_timer.restart()
        self.check()

    async def _wait_until_joined(self) -> None:
        # A join waits for a dead member until the rebalance timeout of that member, which is
        # `max.poll.interval.ms` for other clients.
        rebalance = _JOIN_SHARE * (self._config.rebalance_timeout or 0.0)
        limit = max(self._config.default_api_timeout, self._config.max_poll_interval, rebalance)
        deadline = asyncio.get_running_loop().time() + limit
        while self._subscriptions.is_by_group and not self.state.is_joined:
            self.check()
            if self.state.is_stopping:
                raise ConsumerStoppedError("the consumer was stopped while it started")
            if not await self.state.signal.wait(deadline):
                why = (
                    self.state.join_error
                    or "other members have not joined, or the broker does not respond"
                )
                raise KafkaTimeoutError(
                    f"group {self.group_id!r}: no assignment within {limit:g} s: {why}"
                )

    async def stop(self, deadline: float, leave: bool | None) -> None:
        """End the background tasks, auto-commit, and leave the group, until `deadline` (loop time)
        at most.

        With `leave` True the member leaves the group, with False it stays until its session expires
        (KIP-1092). With None only a static member stays.
        """
        self.state.begin_stop()
        loop = asyncio.get_running_loop()
        # The order of these steps:
        # 1. Wait for an in-flight LeaveGroup: a cancelled request may never arrive.
        # 2. Commit during a join: see `_commit_while_joining()`.
        # 3. Complete a join that other members wait for.
        # 4. End the membership task, so that no more partitions are revoked or assigned.
        # 5. Repeat a cancelled heartbeat: it may have raised the epoch, which commits need.
        # 6. Complete a pending `unsubscribe()` by leaving the group: the coordinator rejects
        #    commits of manually assigned partitions while this consumer is a member.
        # 7. Commit finished records, and wait for the commits of other tasks, during the
        #    membership. A join may have suspended these commits.
        # 8. Leave last: afterwards the group rejects commits, and other members get the partitions.
        await self._wait_for_leave(deadline)
        join_by = loop.time() + (deadline - loop.time()) * _GENERATION_SHARE
        await self._commit_while_joining(join_by)
        if self._protocol.is_awaited:
            await self._protocol.await_generation(join_by - loop.time())
        await self._tasks.stop(min(deadline, loop.time() + _STOP_TIMEOUT))
        left = deadline - loop.time()
        # If no time is left for LeaveGroup, the group removes this member when its session expires.
        if left <= 0:
            self._member.forget_member()
            return
        commit_by = deadline - left * _LEAVE_SHARE
        await self._protocol.await_generation(min(left * _GENERATION_SHARE, _GENERATION_TIMEOUT))
        if self.state.current is MembershipState.LEAVING:
            await self._revoke_unsubscribed_in_time(commit_by)
        if not self._subscriptions.is_by_group:
            await self._leaving.leave_uncancelled("the consumer unsubscribed", deadline)
        self.commits.resume()
        await self.commits.finish(commit_by, auto=self._may_commit_finished())
        if self.generation < 0 or self._config.group_instance_id is not None:
            await self.commits.check_late_commits_once_more(commit_by)
        self.commits.close()
        await self._leaving.leave_uncancelled("the consumer is stopped", deadline, leave=leave)

    async def _commit_while_joining(self, deadline: float) -> None:
        """Commit finished records, and wait for the commits of other tasks, during a join of a
        cooperative member, which keeps its partitions. Ends at `deadline`.

        1. Until all members have joined, the coordinator accepts the present generation: the commit
           is stored, and does not wait for other members.
        2. When all have joined, the coordinator begins the next generation. It rejects the commit,
           and the response with the new generation is in flight.
        3. The protocol suspends commits again. So the membership task must not end yet: it
           completes JoinGroup and SyncGroup, and applies no assignment.
        4. The commit is sent in the new generation, in which this member still has the partitions:
           other members get them only after a later join in which this member does not report them
           as owned.

        Do nothing for an eager member, which revoked its partitions before the join: in the new
        generation another member may have committed later offsets.
        """
        has_partitions = self.generation >= 0 and self._protocol.keeps_partitions
        is_late = deadline <= asyncio.get_running_loop().time()
        if is_late or not self._protocol.is_joining or not has_partitions:
            return
        if self.state.current is MembershipState.LEAVING:
            await self._commit_unsubscribed_while_joining(deadline)
        else:
            self.commits.resume()
            await self.commits.finish(deadline, auto=self._may_commit_finished())

    async def _commit_unsubscribed_while_joining(self, deadline: float) -> None:
        """Commit the finished records of ended subscriptions while the join is pending. If the
        commit fails, wait for the end of the join: `stop()` then commits in the new generation."""
        try:
            async with timeout_at(deadline):
                await self.rebalance.commit_unsubscribed(Identity.of(self._member))
        except (KafkaError, asyncio.TimeoutError) as error:
            self._log.debug("Not committed during the join: %s", error)
            await self._protocol.await_generation(deadline - asyncio.get_running_loop().time())

    def _may_commit_finished(self) -> bool:
        """Return whether `stop()` auto-commits: auto-commit is enabled, the group has not removed
        the member, and the membership has not failed. After a removal or a failure, other members
        may have committed later offsets."""
        is_lost = self._subscriptions.is_by_group and self.generation < 0
        return self._config.enable_auto_commit and not is_lost and self.failure is None

    async def _wait_for_leave(self, deadline: float) -> None:
        with contextlib.suppress(asyncio.TimeoutError):
            async with timeout_at(deadline):
                await self._leaving.wait()

    async def _revoke_unsubscribed_in_time(self, deadline: float) -> None:
        try:
            async with timeout_at(deadline):
                await self.rebalance.revoke_unsubscribed(Identity.of(self._member))
        except asyncio.TimeoutError:
            self._log.warning("Stopped before the rebalance listener had returned")

    async def close(self, deadline: float | None = None) -> None:
        """End the background tasks that still run after `stop()` was cancelled or timed out."""
        self.commits.close()
        await self._tasks.stop(deadline)

    def abandon(self) -> None:
        """Cancel the background tasks without waiting for their end."""
        self._leaving.cancel()
        self.commits.close()
        self._tasks.cancel()

    def _fail(self, error: BaseException) -> None:
        """End the membership, and wake readers and commits."""
        # 1. Change the state first, because woken tasks check the state.
        # 2. Resume commits: otherwise they would wait for an assignment until their deadline.
        # 3. Hold records, and only then wake the calls that wait for records: they must raise the
        #    failure, not return a record.
        self.state.fail(error)
        self.commits.resume()
        self._queue.hold()
        self._queue.wake_all()

    # -- subscription and metadata -----------------------------------------------------------------

    def enforce_rebalance(self, reason: str) -> None:
        """Make the member join again (KIP-568). Raises IllegalOperation without a subscription by
        topics or pattern, and with the consumer protocol."""
        if not self._subscriptions.is_by_group:
            raise IllegalOperation(
                "enforce_rebalance() needs a subscription: subscribe(), not assign()"
            )
        self._protocol.enforce_rebalance(reason)

    def on_subscribed(self) -> None:
        """Change the membership after `subscribe()`, `assign()` or `unsubscribe()`: fail or suspend
        commits, make the member join or leave, and request metadata."""
        self.poll_timer.restart()
        self._follow_subscription()
        self.state.signal.notify()
        self._queue.polls.notify()
        self._topics.request()
        self.on_metadata()
        self._protocol.on_subscribed()

    def _follow_subscription(self) -> None:
        state = self.state
        # After `unsubscribe()` all pending commits fail, even if another subscription follows
        # before the commits are sent.
        self.commits.follow_subscription()
        is_call_due = self.rebalance.is_call_due
        is_member = self._member.is_member or is_call_due
        is_by_group = self._subscriptions.is_by_group
        if not is_by_group and state.current is not MembershipState.LEAVING:
            self.rebalance.on_unsubscribed()
        if state.current is not MembershipState.FAILED:
            state.follow_subscription(is_member, is_call_due)
        # If a background task died, stay FAILED: no task is left that could join.
        elif self._tasks.failure is None:
            state.follow_subscription(is_member, is_call_due)
            self._queue.release()
        if is_by_group:
            state.request_join("the subscription changed")
            return
        self.commits.clear_removal()
        if is_member or self._leaving.is_in_flight:
            # Until the member has left, the coordinator rejects commits of manual assignments.
            self.commits.suspend()

    def on_metadata(self) -> None:
        """Call `check_metadata()`, and route fetches to the present leaders."""
        self.check_metadata()
        self._fetcher.route()

    def check_metadata(self) -> None:
        """Request a join if topics that match the pattern, or the partitions of topics, have
        changed. Report unauthorized topics to the application."""
        if self._subscriptions.is_by_group:
            if self._topics.match_pattern():
                self.state.request_join("topics that match the pattern changed")
            self._protocol.on_metadata()
        self._topics.report_denied()

    # -- the membership task -----------------------------------------------------------------------

    async def run(self) -> None:
        """Join, rebalance and leave as needed, until cancelled.

        After an error that is not retriable, drop all partitions, leave the group, and wait for
        another subscription.
        """
        while True:
            try:
                await self._follow_states()
                return
            except Exception as error:
                trace = None if isinstance(error, KafkaError) else error
                self._log.error("The membership ends: %s", error, exc_info=trace)
                await self._leave_without_partitions("its membership has failed")
                self._member.fail()
                # Call the listener and wait for its end before a call of the application raises the
                # error: an application that exits because of the error should not interrupt its
                # own listener.
                await self.rebalance.lose_all()
                self._fail(error)
                # If the application called `assign()` or `unsubscribe()` during the awaits above,
                # change the state from FAILED: manual assignments need no membership.
                if not self._subscriptions.is_by_group:
                    self._follow_subscription()
            while self.state.current is MembershipState.FAILED:
                await self.state.signal.wait()
            # A failed member joins again as a new member.
            self._member.forget_member()

    async def _follow_states(self) -> None:
        state = self.state
        # Check `is_stopping`, because a listener may have suppressed the cancellation of this task.
        while not state.is_stopping:
            if state.current is MembershipState.FAILING and state.error is not None:
                raise state.error
            if state.current is MembershipState.LEAVING:
                await self._revoke_and_leave()
            elif state.current is MembershipState.OUTSIDE or not self._subscriptions.is_by_group:
                await self._stay_outside()
            elif state.current is MembershipState.IDLE:
                await self._go_idle()
            elif self._protocol.has_work():
                await self._protocol.advance()
            else:
                await state.signal.wait()

    async def _stay_outside(self) -> None:
        """Wait for a subscription. If this consumer is a member, because the response to its first
        JoinGroup arrived after `unsubscribe()`, leave the group instead."""
        self.state.take_reason()
        if self.state.current is MembershipState.OUTSIDE and self._member.is_member:
            self._forget_assignment()
            await self._leaving.leave("the consumer unsubscribed")
        else:
            self.commits.resume()
            await self.state.signal.wait()

    async def _revoke_and_leave(self) -> None:
        """Revoke the partitions of an ended subscription, and leave. Join again if there is another
        subscription by now."""
        # Commit and call the listener before LeaveGroup: the coordinator rejects later commits.
        if self._config.enable_auto_commit:
            await self._protocol.await_generation(_GENERATION_TIMEOUT)
        await self.rebalance.revoke_unsubscribed(Identity.of(self._member))
        # Change the state before LeaveGroup: the listener has returned, so calls may return records
        # of another subscription while the request is in flight.
        self.state.finish_leaving()
        self.rebalance.release()
        if self._member.is_member:
            self._forget_assignment()
            await self._leaving.leave("the consumer unsubscribed")
        if self._subscriptions.is_by_group:
            self.state.request_join("the subscription changed")

    async def _go_idle(self) -> None:
        """Leave the group, drop all partitions, and wait until the application polls again. Then
        request a join."""
        if self._member.is_member or self.rebalance.owned:
            await self._leave_without_partitions("the application did not ask for records in time")
            # Change the state after LeaveGroup, which only a member can send.
            self._member.become_stale()
            await self.rebalance.lose_all()
            self.rebalance.release()
        await self.poll_timer.wait_for_poll()
        self.state.finish_idling()
        self.state.request_join("the application asks for records again")

    def _forget_assignment(self) -> None:
        """Invalidate the assignment, and drop the pending reason to join."""
        self.state.invalidate_assignment()
        self.state.take_reason()
        self._protocol.forget_assignment()

    async def _leave_without_partitions(self, reason: str) -> None:
        # Stop reads and commits before LeaveGroup. Afterwards other members have the partitions:
        # this consumer must not return the same records, and must not overwrite later offsets.
        self.commits.on_removed()
        self._queue.hold()
        self._forget_assignment()
        await self._leaving.leave(reason)

    # -- offsets -----------------------------------------------------------------------------------

    async def commit_offsets(
        self, assignment: object, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Commit `offsets` by `GroupCommits.commit()`, or by `commit_positions()` if they are
        `AllPositions`. Raises the errors of these methods, and the error that ended the membership.

        Tracers replace this method by functions with exactly these parameters, so it keeps the
        parameter `assignment`, which is unused.
        """
        if self.state.failure is not None:
            self.check()
        deadline = self._loop.time() + self._config.default_api_timeout
        if isinstance(offsets, AllPositions):
            await self.commits.commit_positions(offsets, deadline)
        else:
            await self.commits.commit(offsets, deadline)

    def refuse_revoked(self) -> None:
        """Raise the error of `GroupCommits.refuse_revoked()`, or the error that ended the
        membership."""
        if self.state.failure is not None:
            self.check()
        self.commits.refuse_revoked()

    def _on_commit_refused(self, error: CommitFailedError) -> None:
        self._protocol.on_commit_refused(error)


# -- The view of a transactional producer on the membership (KIP-447)


class GroupView:
    """Decides which offsets of this consumer a transactional producer may commit. Owns nothing.

    A broker checks the generation of a commit in a transaction, but not who owns the partitions.
    Rebalances happen in the background: when the application commits, its consumer may be a valid
    member of a later generation, but another member may own a partition by now. So this class
    compares the partitions of the returned records with the present assignment.
    """

    def __init__(self, context: ConsumerContext, group: GroupMembership) -> None:
        self._client = context.client
        self._buffer = context.queue.buffer
        self._subscriptions = context.subscriptions
        self._group = group
        self._instance_id = context.config.group_instance_id

    @property
    def group_id(self) -> str:
        return self._group.group_id

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster; None if unknown. Two clusters may have groups of the same name."""
        return self._client.cluster.cluster_id

    @property
    def member_id(self) -> str:
        """The member id of the consumer, "" while it is not a member."""
        return self._group.member_id

    def metadata(self) -> ConsumerGroupMetadata:
        """Return the present identity of the consumer; for a manual assignment the group id only.
        Raises CommitFailedError without a manual assignment if the consumer is not a member."""
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
    def _is_valid(self) -> bool:
        """Whether the assignment is manual, or the membership is valid as far as the consumer
        knows."""
        return not self._subscriptions.is_by_group or self._group.generation >= 0

    def owns(self, partition: TopicPartition) -> bool:
        """Return whether the partition is assigned, and the membership is valid."""
        return self._is_valid and partition in self._subscriptions.assignment.tps

    def may_commit(self, partition: TopicPartition, offset: int) -> bool:
        """Return whether this consumer may commit `offset`. The partition must be assigned, and one
        of these conditions must be true:

        - In this assignment the consumer has returned records of the partition.
        - `offset` is the position, and the application's latest call returned no records of the
          partition that belong to an earlier assignment.

        The position alone is not enough:

        1. The application gets the records 0 to 9, and takes a long time to process them.
        2. The group revokes the partition. Another member gets the same records, and commits 10.
        3. The partition is assigned again. The position is the committed offset, 10.
        4. The application commits 10, in a transaction with its results of the records 0 to 9.
           These results would count twice.

        If the application calls for more records before step 4, it has finished the records 0 to 9,
        and its later results are not of these records. So it may commit the position.
        """
        state = self._subscriptions.assignment.get(partition)
        if state is None or not self._is_valid:
            return False
        if state.call > 0:
            return True
        revoked_call = self._subscriptions.revoked_after_reading.get(partition)
        return state.position == offset and revoked_call != self._buffer.call

    def has_lost(self, partition: TopicPartition) -> bool:
        """Return whether the partition was revoked, or the membership has ended, after records of
        the partition were returned. Returns True even if the partition is assigned again."""
        if partition in self._subscriptions.revoked_after_reading:
            return True
        state = self._subscriptions.assignment.get(partition)
        return state is not None and state.call > 0 and not self._is_valid

    def leader_epoch_before(self, partition: TopicPartition, offset: int) -> int:
        """Return the leader epoch of the record before `offset`; -1 if the epoch is unknown."""
        state = self._subscriptions.assignment.get(partition)
        return -1 if state is None else state.epoch_before(offset)

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, bytes]:
        """Return the ids of the topics of `partitions` whose records this consumer reads, as a dict
        of names to ids. Topics whose id is unknown are omitted."""
        return self._group.commits.topic_ids(partitions)

    def refuse_lost(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Raise CommitFailedError if a partition was revoked since its records were returned. If
        the partition is assigned again, raise only if `may_commit()` does not permit the offset.
        Raise also if the topic may have been recreated. A manual assignment is not checked."""
        if self._subscriptions.is_manual:
            return  # the application itself decides about manual assignments
        lost = [
            tp
            for tp, entry in offsets.items()
            if self.has_lost(tp) and not self.may_commit(tp, entry.offset)
        ]
        if lost:
            names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in sorted(lost))
            raise CommitFailedError(
                f"group {self.group_id!r}: these partitions were revoked after their records were "
                f"returned: {names}; their new owners read the records again"
            )
        cluster, assignment = self._client.cluster, self._subscriptions.assignment
        foreign = sorted(tp for tp in offsets if assignment.is_foreign(tp.topic, cluster))
        if foreign:
            # The topic id of the assignment differs from the id in the metadata. Either the topic
            # was recreated, and a commit by name would apply to the new topic; or the metadata is
            # outdated, and has the id of the deleted topic.
            text = f"{foreign[0].topic}-{foreign[0].partition}: the topic may have been recreated"
            self._client.doubt_metadata(text)
            raise CommitFailedError(
                f"group {self.group_id!r}: {text}: abort the transaction, and read the records "
                "again, for example after seek_to_committed()"
            )


def make_committer(context: ConsumerContext, group_id: str) -> OffsetCommitter:
    """Return the OffsetCommitter of a group, with a member of the configured protocol."""
    client, kind = context.client, CoordinationType.GROUP
    coordinator_health = NodeHealth(
        f"The coordinator of group {group_id}",
        SubjectLog(log, context.config.subject),
        context.health.look,
        partial(client.address_of_coordinator, kind, group_id),
        lambda: client.throttled_until(client.known_coordinator(kind, group_id)),
    )
    coordinator = GroupCoordinatorClient(
        client, context.config, group_id, coordinator_health, context.meter
    )
    member: ClassicMember | Kip848Member
    # Import only the configured protocol.
    if context.config.group_protocol == "classic":
        from aiokafka.consumer.group.classic import ClassicMember

        member = ClassicMember(context.config, coordinator)
    else:
        from aiokafka.consumer.group.kip848 import Kip848Member

        member = Kip848Member(context.config, coordinator)
    return OffsetCommitter(context, group_id, coordinator_health, member)
