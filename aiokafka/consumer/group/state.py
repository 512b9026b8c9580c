"""Where a consumer stands with its group. No I/O, no awaits."""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokafka._log import SubjectLog
from aiokafka.consumer._shared import Signal
from aiokafka.consumer.group.no_group import GroupPhase
from aiokafka.errors import IllegalStateError, KafkaError

if TYPE_CHECKING:
    from aiokafka.consumer._shared import Shared

__all__ = ["Standing", "StandingState"]

log = logging.getLogger("aiokafka.consumer.group_coordinator")


class StandingState(enum.Enum):
    """What the task of the membership has to do next."""

    OUTSIDE = "nothing: there is no subscription by topics or pattern"
    JOINING = "get an assignment"
    JOINED = "keep the assignment"
    LEAVING = "hand over what the application has given up, and leave the group"
    IDLE = "leave the group, and wait until the application asks for records"
    FAILING = "give up everything, because of an error that no retry mends"
    FAILED = "nothing, until the application subscribes again"


_S = StandingState
_TROUBLE = {
    _S.FAILING: "a heartbeat or a commit got an error that no retry mends",
    _S.FAILED: "a join, a listener's partitions or a background task failed",
}
_TRANSITIONS: dict[StandingState, dict[StandingState, str]] = {
    _S.OUTSIDE: {
        _S.JOINING: "subscribe()",
        _S.LEAVING: "unsubscribe() or assign(), called again when a late join had made us a member",
        **_TROUBLE,
    },
    _S.JOINING: {
        _S.JOINED: "the assignment was taken over",
        _S.LEAVING: "unsubscribe() or assign()",
        _S.OUTSIDE: "unsubscribe() or assign(), before the group knew us",
        _S.IDLE: "the application asks for no records for max_poll_interval_ms",
        **_TROUBLE,
    },
    _S.JOINED: {
        _S.JOINING: "a join began, or the group removed us",
        _S.LEAVING: "unsubscribe() or assign()",
        _S.OUTSIDE: "unsubscribe() or assign(), without membership or listener",
        _S.IDLE: "the application asks for no records for max_poll_interval_ms",
        **_TROUBLE,
    },
    _S.LEAVING: {
        _S.JOINING: "the group was left, and the application has subscribed again",
        _S.OUTSIDE: "the group was left",
        **_TROUBLE,
    },
    _S.IDLE: {
        _S.JOINING: "the application asks for records again, or calls subscribe()",
        _S.LEAVING: "unsubscribe() or assign(), while the group is being left",
        _S.OUTSIDE: "unsubscribe() or assign()",
        **_TROUBLE,
    },
    _S.FAILING: {_S.FAILED: "everything was given up"},
    _S.FAILED: {
        _S.JOINING: "subscribe()",
        _S.LEAVING: "any of the three, when a listener has yet to hear of lost partitions",
        _S.OUTSIDE: "unsubscribe() or assign()",
        _S.FAILED: "a background task failed, too",
    },
}
_TAKING_PART = frozenset({_S.JOINING, _S.JOINED})


class RejoinFuture:
    """Makes the future that is done once the member has to join, and has it join when a program
    sets the future's result."""

    def __init__(self, join: Callable[[str], None]) -> None:
        self._join = join
        self._future: asyncio.Future[None] | None = None

    def get(self, is_needed: bool) -> asyncio.Future[None]:
        """Return the future that is valid now."""
        future = self._future
        if future is None or (future.done() and not is_needed):
            future = self._future = asyncio.get_running_loop().create_future()
            future.add_done_callback(self._on_done)
        if is_needed:
            self.note()
        return future

    def note(self) -> None:
        """Resolve the future: the member has to join."""
        if self._future is not None and not self._future.done():
            # Not what a program asks for.
            self._future.remove_done_callback(self._on_done)
            self._future.set_result(None)

    def _on_done(self, future: asyncio.Future[None]) -> None:
        if not future.cancelled():
            self._join("a program asked for it")


class Standing:
    """The state of a membership, why it joins, and what ended it.

    Owns: `state`; `reason`, why to speak to the group, None if there is no need; `error`, why the
    membership fails or has failed; `trouble`, why there is no assignment yet; whether `start()`
    waits for the first assignment, and whether `stop()` was called. `signal` wakes the membership's
    task and `start()` after each change.
    """

    def __init__(self, shared: Shared) -> None:
        self.signal = Signal()
        self.state = StandingState.OUTSIDE
        self.reason: str | None = None
        self.error: BaseException | None = None
        self.trouble: KafkaError | None = None
        self.is_starting = False
        self.is_stopping = False
        self.rejoin = RejoinFuture(self.request_join)
        self._subscriptions = shared.subscriptions
        self._polls = shared.desk.polls
        self._on_change = shared.on_change
        self._log = SubjectLog(log, shared.config.subject)

    # -- questions ---------------------------------------------------------------------------------

    def may_take_part(self) -> bool:
        """Return whether the member may go on towards its assignment; to be asked after every
        wait.
        """
        is_free = self.state in _TAKING_PART and not self.is_stopping
        return is_free and self._subscriptions.is_by_group

    @property
    def is_joined(self) -> bool:
        """Whether the member has its assignment."""
        return self.state is StandingState.JOINED

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the membership, once everything is given up."""
        return self.error if self.state is StandingState.FAILED else None

    def phase(self, has_work: bool) -> GroupPhase:
        """Return how the consumer stands with its group. `has_work`: the protocol has."""
        if not self._subscriptions.is_by_group:
            return GroupPhase.OUTSIDE
        if self.state is StandingState.IDLE:
            return GroupPhase.IDLE
        is_joined = self.is_joined and not has_work
        return GroupPhase.JOINED if is_joined else GroupPhase.JOINING

    # -- changes -----------------------------------------------------------------------------------

    def request_join(self, reason: str) -> None:
        """Let the member join, or join again, soon."""
        # The first reason is the cause; those that follow before the join are mostly its
        # consequences.
        if self.reason is None:
            self._log.info("Joining: %s", reason)
            self.reason = reason
            self.rejoin.note()
            self._on_change()
        self.signal.notify()
        # A member that is idle waits there, for any sign of its application.
        self._polls.notify()

    def take_reason(self) -> str:
        """Return why a join begins now, "" without a reason; one that comes up from here on leads
        to another join."""
        reason, self.reason = self.reason or "", None
        return reason

    def restore_reason(self, reason: str) -> None:
        """Put back the reason of a join that has failed, unless another one has come up."""
        if self.reason is None:
            self.reason = reason

    def note_trouble(self, error: KafkaError) -> None:
        """Keep why there is no assignment yet."""
        self.trouble = error

    def begin_start(self) -> None:
        """Note that `start()` waits for the first assignment."""
        self.is_starting = True

    def finish_start(self) -> None:
        """Note that `start()` waits no longer."""
        self.is_starting = False

    def begin_stop(self) -> None:
        """Note that `stop()` was called, and wake whatever waits for a change."""
        self.is_stopping = True
        self.signal.notify()

    def settle(self) -> None:
        """Note that the member has its assignment, unless it has to leave meanwhile."""
        self.trouble = None
        if self.state is StandingState.JOINING:
            self.move(StandingState.JOINED)
        self._on_change()
        self.signal.notify()

    def unsettle(self) -> None:
        """Note that the assignment does not count any more, as a join begins or the group has
        removed the member."""
        if self.state is StandingState.JOINED:
            self.move(StandingState.JOINING)

    def follow_subscription(self, is_member: bool, is_owed: bool) -> None:
        """Go where a new subscription leads, unless there is something to finish first.

        Args:
            is_member: The group counts us.
            is_owed: A listener has yet to hear that its partitions are gone.
        """
        if self.state in (StandingState.FAILING, StandingState.LEAVING):
            return
        must_leave = is_owed
        if self.state is not StandingState.FAILED:
            must_leave = (is_member or is_owed) and not self._subscriptions.is_by_group
        if must_leave:
            self.move(StandingState.LEAVING)
        elif not self._subscriptions.is_by_group:
            self._move_unless_there(StandingState.OUTSIDE)
        elif self.state is not StandingState.JOINED:
            self._move_unless_there(StandingState.JOINING)
        if self.error is not None:
            self.error = None
            self._on_change()

    def finish_leaving(self) -> None:
        """Join if the application has subscribed again, unless something else has come up."""
        if self.state is StandingState.LEAVING:
            is_by_group = self._subscriptions.is_by_group
            self.move(StandingState.JOINING if is_by_group else StandingState.OUTSIDE)

    def finish_idling(self) -> None:
        """Join, unless something else has come up."""
        if self.state is StandingState.IDLE:
            self.move(StandingState.JOINING)

    def begin_failing(self, error: BaseException) -> None:
        """Make the membership's task give up everything because of this error."""
        if self.state not in (StandingState.FAILING, StandingState.FAILED):
            self.error = error
            self.move(StandingState.FAILING)
        self.signal.notify()

    def fail(self, error: BaseException) -> None:
        """Note that the membership has ended."""
        self.error = error
        self.move(StandingState.FAILED)
        self._on_change()
        self.signal.notify()

    def _move_unless_there(self, state: StandingState) -> None:
        if self.state is not state:
            self.move(state)

    def move(self, state: StandingState) -> None:
        """Go to another state, by one of the transitions in the table."""
        if state not in _TRANSITIONS[self.state]:
            raise IllegalStateError(f"a group cannot go from {self.state.name} to {state.name}")
        self.state = state
