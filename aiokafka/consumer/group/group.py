"""Membership in a group, whatever its protocol: when to take part, what becomes of the assignment
when the application turns elsewhere, and commits."""

from __future__ import annotations

import abc
import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aiokafka._compat import timeout_at
from aiokafka._log import SubjectLog
from aiokafka._tasks import TaskOwner
from aiokafka.consumer._signal import Signal
from aiokafka.consumer.group.commits import GroupCommits
from aiokafka.consumer.group.handover import Handover
from aiokafka.consumer.group.membership import Membership
from aiokafka.consumer.group.no_group import GroupPhase, NoGroupCoordinator
from aiokafka.consumer.group.old_names import CommitLock, RejoinFuture
from aiokafka.consumer.position.committed import CommittedOffset, Identity, OffsetCommitter
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.errors import (
    AuthenticationFailedError,
    CommitFailedError,
    ConsumerStoppedError,
    GroupAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownError,
    renewed,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka.consumer._shared import Shared

__all__ = ["GroupCoordinator"]

log = logging.getLogger("aiokafka.consumer.group_coordinator")

# Seconds that stop() may take for its background work, and any member to tell the group.
_STOP_TIMEOUT = 5.0
_LEAVE_TIMEOUT = 3.0
# Parts of the time that is left.
_PART_TO_CATCH_UP = 0.3
_PART_TO_LEAVE = 0.2

# What an administrator may mend while the consumer waits, and what the broker cannot explain: the
# application is told, and the group asked again.
MENDABLE = (
    AuthenticationFailedError,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    UnknownError,
)


class GroupCoordinator(NoGroupCoordinator, abc.ABC):
    """With a group: takes part in it for subscriptions by topics or pattern, and commits offsets to
    it. ClassicCoordinator and ConsumerCoordinator know how members come to their partitions.

    One task, `run()`, does all that changes the membership and the assignment, one after the
    other: join, give up, take over, leave. A second one sends heartbeats and tells the first what
    they bring. Partitions chosen by `assign()` belong to no member: whoever knows the group's name
    may commit for it.

    Owns: why to speak to the group (`_reason`), whether the member has its assignment
    (`_is_settled`), whether it has to leave (`_has_unsubscribed`), what ended the membership
    (`_failure`, until the application subscribes anew), why it has no assignment yet (`_trouble`).
    """

    def __init__(
        self, shared: Shared, route: Callable[[], None], committer: OffsetCommitter
    ) -> None:
        super().__init__(shared, route)
        config = shared.config
        self.group_id = committer.group_id
        self.contact = committer.contact
        self._commits = GroupCommits(shared, committer, self._identity, self._on_commit_refused)
        self._log = SubjectLog(log, config.subject)
        self._tasks = TaskOwner(f"{config.client.client_id}-group", self._fail)
        self._handover = Handover(shared, route, self._commits, self._tasks)
        self._signal = Signal()
        self._reason: str | None = None
        self._rejoin = RejoinFuture(self.request_join)
        self._end: KafkaError | None = None
        self._failure: BaseException | None = None
        self._is_settled = False
        self._has_unsubscribed = False
        self._is_idle = False
        self._is_starting = False
        self._is_stopping = False
        self._trouble: KafkaError | None = None
        self._call = 0
        self._polled_at = 0.0

    # -- what a protocol brings --------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def _membership(self) -> Membership: ...

    @abc.abstractmethod
    def _has_work(self) -> bool:
        """Whether `_advance()` is to be called."""

    @abc.abstractmethod
    async def _advance(self) -> None:
        """Go on towards the assignment. Called while the application wants to be a member."""

    @abc.abstractmethod
    async def _beat(self) -> None:
        """Tell the group that we live, until cancelled; look whether the application does."""

    async def _catch_up(self, limit: float) -> None:
        """Before the last commit, for `limit` seconds at most: what the background work was doing
        may have mattered."""

    @abc.abstractmethod
    def _lose_membership(self, error: BaseException) -> None:
        """The group has removed us: see to it that everything is given up, then join again."""

    @abc.abstractmethod
    def _on_commit_refused(self, identity: Identity, error: CommitFailedError) -> None:
        """The group does not count us as a member of this generation."""

    # -- what others read --------------------------------------------------------------------------

    @property
    def coordinator_id(self) -> int | None:  # type: ignore[override]
        """Node id of the group's coordinator; None while it is not known."""
        return self._membership.coordinator_id

    @property
    def member_id(self) -> str:  # type: ignore[override]
        """Name of this member within the group, "" outside it."""
        return self._membership.member_id if self._membership.is_member else ""

    @property
    def generation(self) -> int:  # type: ignore[override]
        """The group's generation, or the member's epoch; -1 outside it."""
        return self._membership.generation

    @property
    def beat_at(self) -> float | None:  # type: ignore[override]
        """When the coordinator last answered as to a member (loop time)."""
        return self._membership.beat_at

    @property
    def session_timeout(self) -> float:  # type: ignore[override]
        """The group drops a member that it did not hear of for so long, in seconds."""
        return self._config.session_timeout

    @property
    def phase(self) -> GroupPhase:
        """How the consumer stands with its group."""
        if not self._wants_membership():
            return GroupPhase.OUTSIDE
        if self._is_idle:
            return GroupPhase.IDLE
        is_joined = self._is_settled and not self._has_work()
        return GroupPhase.JOINED if is_joined else GroupPhase.JOINING

    @property
    def reason(self) -> str:
        """Why it joins, "" if it does not."""
        return self._reason or ""

    @property
    def failure(self) -> BaseException | None:
        """What ended the membership."""
        return self._failure

    def check(self) -> None:
        """Raise what ended the membership."""
        if self._failure is not None:
            raise renewed(self._failure) from self._failure

    # -- life --------------------------------------------------------------------------------------

    async def start(self, tasks: TaskOwner) -> None:
        """Work in the background; wait for the first assignment if there is a subscription.

        Raises KafkaTimeoutError if no coordinator is found within `request_timeout_ms` or there is
        no assignment in time, ConsumerStoppedError after `stop()`, errors that no retry mends.
        """
        tasks.start(self.follow_metadata(), name="metadata")
        self._note_polls()
        self._is_starting = True
        self._tasks.start(self.run(), name="membership")
        self._tasks.start(self._beat(), name="heartbeat")
        if self._config.enable_auto_commit:
            self._tasks.start(self._commits.run(), name="auto-commit")
        await self._wait_until_settled()
        self._is_starting = False
        self._note_polls()
        self.check()

    async def _wait_until_settled(self) -> None:
        # A join waits for the slowest member, for which other clients have the poll interval.
        limit = max(self._config.default_api_timeout, self._config.max_poll_interval)
        deadline = asyncio.get_running_loop().time() + limit
        while self._wants_membership() and not self._is_settled:
            self.check()
            if self._is_stopping:
                raise ConsumerStoppedError("the consumer was stopped while it started")
            if not await self._signal.wait(deadline):
                why = self._trouble or "other members have not joined, or the broker is silent"
                raise KafkaTimeoutError(
                    f"group {self.group_id!r}: no assignment within {limit:g} s: {why}"
                )

    async def stop(self, deadline: float) -> None:
        """End the background work, commit what is finished if so configured, leave the group
        unless a static member; until `deadline` (loop time) at most."""
        self._is_stopping = True
        self._signal.notify()
        loop = asyncio.get_running_loop()
        await self._tasks.stop(min(deadline, loop.time() + _STOP_TIMEOUT))
        self._commits.resume()
        left = deadline - loop.time()
        if left <= 0:
            self._membership.forget_member()
            return
        commit_by = deadline - left * _PART_TO_LEAVE
        if self._has_unsubscribed:
            await self._abandon_in_time(commit_by)
        await self._catch_up(left * _PART_TO_CATCH_UP)
        is_lost = self._wants_membership() and self.generation < 0
        if self._config.enable_auto_commit and not is_lost and self._failure is None:
            await self._commits.commit_finished(commit_by - loop.time())
        await self._leave("the consumer is stopped", deadline)

    async def _abandon_in_time(self, deadline: float) -> None:
        """What the application gave up by `unsubscribe()` just before."""
        try:
            async with timeout_at(deadline):
                await self._handover.abandon(self._membership.identity)
            self._has_unsubscribed = False
        except asyncio.TimeoutError:
            self._log.warning("Stopped before its listener had returned")

    async def close(self, deadline: float | None = None) -> None:
        """End what `stop()` left, if it was cancelled."""
        await self._tasks.stop(deadline)

    def abandon(self) -> None:
        """End the background work without waiting for it."""
        self._tasks.cancel()

    def on_subscribed(self) -> None:
        """The application subscribed, assigned or unsubscribed."""
        self._note_polls()
        self._is_idle = False
        if self._failure is not None and self._tasks.failure is None:
            self._failure = None
            self._desk.release()
        if self._wants_membership():
            self.request_join("the subscription changed")
        elif self._membership.is_member or self._handover.is_owed:
            self._has_unsubscribed = True
            # Until the group is left it refuses commits of partitions chosen by hand.
            self._commits.suspend()
        self._signal.notify()
        self._desk.polls.notify()
        super().on_subscribed()

    def request_join(self, reason: str) -> None:
        """Join (again) soon."""
        if self._reason is None:
            self._log.info("Joining: %s", reason)
            self._reason = reason
            self._rejoin.note()
            self._on_change()
        self._signal.notify()
        self._desk.polls.notify()

    def _wants_membership(self) -> bool:
        subscription = self._subscriptions.subscription
        return subscription is not None and not subscription.is_manual

    def _may_take_part(self) -> bool:
        """Whether there is nothing else to do first."""
        is_free = not (self._has_unsubscribed or self._is_idle or self._is_stopping)
        return is_free and self._wants_membership()

    def _identity(self) -> Identity:
        return self._membership.identity if self._wants_membership() else Identity()

    def _fail(self, error: BaseException) -> None:
        """The end of the membership: whoever reads or commits is told."""
        self._failure = error
        self._on_change()
        self._commits.resume()
        self._desk.hold()
        self._desk.wake_readers()
        self._desk.positions.notify()
        self._signal.notify()

    # -- membership --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Take part, leave, take part again, as it becomes necessary; until cancelled.

        After an error that no retry mends everything is dropped, and nothing done until the
        application subscribes anew.
        """
        while True:
            try:
                await self._run()
                return
            except Exception as error:
                trace = None if isinstance(error, KafkaError) else error
                self._log.error("The membership ends: %s", error, exc_info=trace)
                self._end = None
                self._forget()
                self._membership.fail()
                await self._handover.lose()
                self._fail(error)
            while self._failure is not None:
                await self._signal.wait()
            self._membership.forget_member()

    async def _run(self) -> None:
        # A listener may have swallowed the cancellation.
        while not self._is_stopping:
            if self._end is not None:
                raise self._end
            if self._has_unsubscribed:
                await self._give_up()
            elif not self._wants_membership():
                self._reason = None
                self._commits.resume()
                await self._signal.wait()
            elif self._is_idle:
                await self._go_idle()
            elif self._has_work():
                await self._advance()
            else:
                await self._signal.wait()

    async def _give_up(self) -> None:
        """The application unsubscribed, and may have subscribed again since."""
        await self._handover.abandon(self._membership.identity)
        self._has_unsubscribed = False
        self._handover.release()
        if self._membership.is_member:
            await self._resign("the consumer unsubscribed")
        if self._wants_membership():
            self.request_join("the subscription changed")

    async def _go_idle(self) -> None:
        """The application seems dead: let others have the partitions until it asks again."""
        if self._membership.is_member or self._handover.owned:
            self._commits.lose()
            # It may wake up while we leave: others read from now on what was buffered here.
            self._desk.hold()
            await self._resign("the application did not ask for records in time")
            self._membership.become_stale()
            await self._handover.lose()
            self._handover.release()
        while self._is_idle and self._desk.buffer.call == self._call:
            await self._desk.polls.wait()
        self._is_idle = False
        self._note_polls()
        self.request_join("the application asks for records again")

    async def _resign(self, reason: str) -> None:
        """Leave, and join no more until there is a reason."""
        self._forget()
        await self._leave(reason)

    def _forget(self) -> None:
        """What there was to do, and what was reached."""
        self._is_settled = False
        self._reason = None

    async def _leave(self, reason: str, deadline: float | None = None) -> None:
        if not self._membership.is_member:
            return
        limit = asyncio.get_running_loop().time() + _LEAVE_TIMEOUT
        try:
            async with timeout_at(limit if deadline is None else min(limit, deadline)):
                await self._membership.leave(reason)
        except (KafkaError, asyncio.TimeoutError) as error:
            self._log.info("LeaveGroup failed: %s", error)
        finally:
            self._membership.forget_member()

    def _settle(self) -> None:
        """The member has its assignment."""
        self._handover.release()
        self._is_settled = True
        self._trouble = None
        self._note_success()
        self._on_change()
        self._signal.notify()
        self.on_metadata()

    def _match_pattern(self) -> None:
        hide_internal = self._config.exclude_internal_topics
        if self._subscriptions.match_pattern(self._client.cluster.topics(hide_internal)):
            self.request_join("topics that match the pattern changed")

    # -- trouble -----------------------------------------------------------------------------------

    def _note_success(self) -> None:
        """The coordinator counts us as a member."""
        self._desk.withdraw_errors(MENDABLE)

    def _tolerate(self, error: KafkaError) -> bool:
        """Say what is to be said about an error that may be over with the next attempt; False for
        any other."""
        self._trouble = error
        if self._is_starting and isinstance(error, (*MENDABLE, KafkaTimeoutError)):
            return False
        if isinstance(error, MENDABLE):
            # Once for each call of an application, however often it was tried meanwhile.
            self._desk.withdraw_errors((type(error),))
            self._desk.fail_next_call(renewed(error))
        elif error.retriable or isinstance(error, KafkaTimeoutError):
            self._log.debug("%s", error)
        else:
            return False
        return True

    def _end_with(self, error: KafkaError) -> None:
        """Have the membership's task end."""
        self._membership.fail()
        self._commits.lose()
        self._end = error
        self._signal.notify()

    def _note_polls(self) -> None:
        self._call = self._desk.buffer.call
        self._polled_at = asyncio.get_running_loop().time()

    def _notice_idleness(self) -> None:
        """Have the member leave if the application has not asked for records within
        `max_poll_interval_ms`. From then on only `_go_idle` looks for a call: it may still
        wait for a listener, and would take a call that was noted here meanwhile for an old one."""
        if self._is_idle:
            return
        is_asking = self._desk.buffer.call != self._call or self._desk.has_readers
        if is_asking or self._is_starting:
            self._note_polls()
        late = asyncio.get_running_loop().time() - self._polled_at
        if late > self._config.max_poll_interval:
            self._is_idle = True
            self._on_change()
            self._signal.notify()

    # -- offsets -----------------------------------------------------------------------------------

    async def commit_offsets(
        self, assignment: Assignment, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Store `offsets`, of partitions of `assignment`. Raises as `GroupCommits.commit`."""
        self.check()
        deadline = asyncio.get_running_loop().time() + self._config.default_api_timeout
        entries = {
            tp: CommittedOffset(entry.offset, entry.metadata, entry.leader_epoch)
            for tp, entry in offsets.items()
        }
        await self._commits.commit(entries, deadline)

    def refuse_forfeited(self) -> None:
        """Raise CommitFailedError if what the application has in hand cannot be committed any
        more."""
        self.check()
        self._commits.refuse_forfeited()

    # -- names that programs for aiokafka know -----------------------------------------------------

    @property
    def _rejoin_needed_fut(self) -> asyncio.Future[None]:
        return self._rejoin.get(self._reason is not None)

    @property
    def _commit_lock(self) -> CommitLock:
        return CommitLock(self._commits)
