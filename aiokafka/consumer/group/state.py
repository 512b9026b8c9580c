"""The states of a group membership and the transitions between them. No I/O, no awaits."""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from aiokafka._log import SubjectLog
from aiokafka._tasks import Signal
from aiokafka.consumer.group.no_group import GroupPhase
from aiokafka.errors import IllegalStateError, KafkaError

if TYPE_CHECKING:
    from aiokafka.consumer._context import ConsumerContext

__all__ = ["MembershipState", "MembershipStateMachine"]

log = logging.getLogger("aiokafka.consumer.group_coordinator")


class MembershipState(enum.Enum):
    """The state of a membership. The values describe the next work of the membership task."""

    OUTSIDE = "none: there is no subscription by topics or pattern"
    JOINING = "get an assignment"
    JOINED = "keep the assignment"
    LEAVING = "revoke what the application unsubscribed from, and leave the group"
    IDLE = "leave the group, and wait until the application polls again"
    FAILING = "revoke everything, because of an error that is not retriable"
    FAILED = "none, until the application subscribes again"


_S = MembershipState
_FAILURES = {
    _S.FAILING: "a heartbeat or a commit failed with an error that is not retriable",
    _S.FAILED: "a join, a listener's partitions or a background task failed",
}
_TRANSITIONS: dict[MembershipState, dict[MembershipState, str]] = {
    _S.OUTSIDE: {
        _S.JOINING: "subscribe()",
        _S.LEAVING: "unsubscribe() or assign(), called again after a late join response",
        **_FAILURES,
    },
    _S.JOINING: {
        _S.JOINED: "the assignment was applied",
        _S.LEAVING: "unsubscribe() or assign()",
        _S.OUTSIDE: "unsubscribe() or assign(), before the group had this member",
        _S.IDLE: "the application did not poll for max_poll_interval_ms",
        **_FAILURES,
    },
    _S.JOINED: {
        _S.JOINING: "a join began, or the group removed the member",
        _S.LEAVING: "unsubscribe() or assign()",
        _S.OUTSIDE: "unsubscribe() or assign(), without membership or listener",
        _S.IDLE: "the application did not poll for max_poll_interval_ms",
        **_FAILURES,
    },
    _S.LEAVING: {
        _S.JOINING: "the member left, and the application has subscribed again",
        _S.OUTSIDE: "the member left",
        **_FAILURES,
    },
    _S.IDLE: {
        _S.JOINING: "the application polls again, or calls subscribe()",
        _S.LEAVING: "unsubscribe() or assign(), while LeaveGroup is in flight",
        _S.OUTSIDE: "unsubscribe() or assign()",
        **_FAILURES,
    },
    _S.FAILING: {_S.FAILED: "everything was revoked"},
    _S.FAILED: {
        _S.JOINING: "subscribe()",
        _S.LEAVING: "a new subscription, while a listener call for lost partitions is due",
        _S.OUTSIDE: "unsubscribe() or assign()",
        _S.FAILED: "a background task failed, too",
    },
}


class RejoinFuture:
    """The future behind `_rejoin_needed_fut`, an attribute of aiokafka 0.14 that programs use. Its
    result is set when the member has to join; a program may set the result to make the member
    join."""

    def __init__(self, request_join: Callable[[str], None]) -> None:
        self._request_join = request_join
        self._future: asyncio.Future[None] | None = None

    def get(self, is_needed: bool) -> asyncio.Future[None]:
        """Return the current future; a new one if the last is done, and the member need not join.
        `is_needed`: whether the member has to join now, so that the future is done."""
        future = self._future
        if future is None or (future.done() and not is_needed):
            future = self._future = asyncio.get_running_loop().create_future()
            future.add_done_callback(self._on_done)
        if is_needed:
            self.resolve()
        return future

    def resolve(self) -> None:
        """Set the result of the future, because the member has to join."""
        if self._future is not None and not self._future.done():
            # Remove the callback first: it must run only if a program sets the result.
            self._future.remove_done_callback(self._on_done)
            self._future.set_result(None)

    def _on_done(self, future: asyncio.Future[None]) -> None:
        if not future.cancelled():
            self._request_join("a program asked for it")


class MembershipStateMachine:
    """The state of the membership, the reason to join, and the error that ended the membership.

    Owns:

    - `current`: the state.
    - `reason`: why the member has to join; None if it need not join.
    - `error`: why the state is FAILING or FAILED; else None.
    - `failure`: `error` if the state is FAILED, else None.
    - `join_error`: the last error of a join or heartbeat since the last complete join; None without
      an error.
    - `is_starting`: `start()` waits for the first assignment.
    - `is_stopping`: `stop()` was called.

    `signal` wakes the membership task and `start()` after changes.
    """

    def __init__(self, context: ConsumerContext) -> None:
        self.signal = Signal()
        self.current = MembershipState.OUTSIDE
        self.reason: str | None = None
        self.error: BaseException | None = None
        self.failure: BaseException | None = None
        self.join_error: KafkaError | None = None
        self.is_starting = False
        self.is_stopping = False
        self.rejoin = RejoinFuture(self.request_join)
        self._subscriptions = context.subscriptions
        self._polls = context.queue.polls
        self._health = context.health
        self._log = SubjectLog(log, context.config.subject)

    # -- questions ---------------------------------------------------------------------------------

    def may_proceed(self) -> bool:
        """Return whether the member may continue to join or rebalance: it is JOINING or JOINED,
        still subscribed, and not stopping. Checked after each await."""
        is_active = self.current is _S.JOINING or self.current is _S.JOINED
        return is_active and not self.is_stopping and self._subscriptions.is_by_group

    @property
    def is_joined(self) -> bool:
        return self.current is MembershipState.JOINED

    def phase(self, has_work: bool) -> GroupPhase:
        """Return the state for `health()`. `has_work`: whether the group protocol has to join or
        reconcile, so that a JOINED member counts as JOINING."""
        if not self._subscriptions.is_by_group:
            return GroupPhase.OUTSIDE
        if self.current is MembershipState.IDLE:
            return GroupPhase.IDLE
        is_joined = self.is_joined and not has_work
        return GroupPhase.JOINED if is_joined else GroupPhase.JOINING

    # -- changes -----------------------------------------------------------------------------------

    def request_join(self, reason: str) -> None:
        """Make the membership task join or rejoin, and log the reason. If there is a reason
        already, only wake the task."""
        # The first reason is the cause; later reasons before the join are mostly consequences.
        if self.reason is None:
            self._log.info("Joining: %s", reason)
            self.reason = reason
            self.rejoin.resolve()
            self._health.look()
        self.signal.notify()
        # The task of an idle member waits for `polls`, not for `signal`.
        self._polls.notify()

    def take_reason(self) -> str:
        """Return and clear the reason to join; "" without a reason. A later reason leads to another
        join."""
        reason, self.reason = self.reason or "", None
        return reason

    def restore_reason(self, reason: str) -> None:
        """Restore the reason of a failed join, unless there is a newer reason."""
        if self.reason is None:
            self.reason = reason

    def set_join_error(self, error: KafkaError) -> None:
        self.join_error = error

    def begin_start(self) -> None:
        """Record that `start()` waits for the first assignment."""
        self.is_starting = True

    def finish_start(self) -> None:
        """Record that `start()` no longer waits."""
        self.is_starting = False

    def begin_stop(self) -> None:
        """Record that `stop()` was called, and wake the tasks that wait for `signal`."""
        self.is_stopping = True
        self.signal.notify()

    def complete_join(self) -> None:
        """Move from JOINING to JOINED: the member has its assignment. Keep any other state, such as
        LEAVING."""
        self.join_error = None
        if self.current is MembershipState.JOINING:
            self.move(MembershipState.JOINED)
        self._health.look()
        self.signal.notify()

    def invalidate_assignment(self) -> None:
        """Return from JOINED to JOINING: a join begins, or the group removed the member. Keep any
        other state."""
        if self.current is MembershipState.JOINED:
            self.move(MembershipState.JOINING)

    def follow_subscription(self, is_member: bool, is_call_due: bool) -> None:
        """Move to the state that a new subscription requires, and clear the error. In FAILING and
        LEAVING do nothing: the membership task finishes the present work first.

        Args:
            is_member: Whether the group has this member.
            is_call_due: Whether the revocation or loss of partitions has to be reported to a
                listener.
        """
        if self.current in (MembershipState.FAILING, MembershipState.LEAVING):
            return
        must_leave = is_call_due
        if self.current is not MembershipState.FAILED:
            must_leave = (is_member or is_call_due) and not self._subscriptions.is_by_group
        if must_leave:
            self.move(MembershipState.LEAVING)
        elif not self._subscriptions.is_by_group:
            self._move_unless_there(MembershipState.OUTSIDE)
        elif self.current is not MembershipState.JOINED:
            self._move_unless_there(MembershipState.JOINING)
        if self.error is not None:
            self.error = None
            self._health.look()

    def finish_leaving(self) -> None:
        """Move from LEAVING to JOINING if there is a subscription by topics or pattern, else to
        OUTSIDE. Keep any other state."""
        if self.current is MembershipState.LEAVING:
            is_by_group = self._subscriptions.is_by_group
            self.move(MembershipState.JOINING if is_by_group else MembershipState.OUTSIDE)

    def finish_idling(self) -> None:
        """Move from IDLE to JOINING. Keep any other state."""
        if self.current is MembershipState.IDLE:
            self.move(MembershipState.JOINING)

    def begin_failing(self, error: BaseException) -> None:
        """Move to FAILING because of `error`: the membership task then revokes all partitions. In
        FAILING and FAILED, keep the first error."""
        if self.current not in (MembershipState.FAILING, MembershipState.FAILED):
            self.error = error
            self.move(MembershipState.FAILING)
        self.signal.notify()

    def fail(self, error: BaseException) -> None:
        """Move to FAILED because of `error`: all partitions are revoked, or a background task has
        failed."""
        self.error = error
        self.move(MembershipState.FAILED)
        self._health.look()
        self.signal.notify()

    def _move_unless_there(self, state: MembershipState) -> None:
        if self.current is not state:
            self.move(state)

    def move(self, state: MembershipState) -> None:
        """Change the state. Raises IllegalStateError if the table has no such transition."""
        if state not in _TRANSITIONS[self.current]:
            raise IllegalStateError(f"a group cannot go from {self.current.name} to {state.name}")
        self.current = state
        self.failure = self.error if state is MembershipState.FAILED else None
