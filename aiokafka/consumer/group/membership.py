"""Common parts of both group protocols: coordinator requests, membership, poll timer, errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from aiokafka._log import SubjectLog
from aiokafka._retry import Backoff
from aiokafka._tasks import with_second
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.consumer.group.state import MembershipState, MembershipStateMachine
from aiokafka.errors import (
    BrokerResponseError,
    FencedInstanceId,
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    IllegalOperation,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    KafkaError,
    KafkaTimeoutError,
    NotCoordinatorForGroupError,
    RebalanceInProgressError,
    TopicAuthorizationFailedError,
    UnknownError,
    for_code,
    renewed,
)
from aiokafka.net.failures import REFUSALS

if TYPE_CHECKING:
    from aiokafka._config.consumer import ConsumerConfig
    from aiokafka._health import NodeHealth
    from aiokafka.client import AIOKafkaClient
    from aiokafka.consumer._context import ConsumerContext, ConsumerMeter
    from aiokafka.consumer.group.group import GroupMembership
    from aiokafka.net.connection import BrokerConnection
    from aiokafka.protocol.schema import Request, Response

    R = TypeVar("R", bound=Response)

__all__ = ["GroupCoordinatorClient", "GroupProtocol", "Member", "PollTimer", "RecoverableErrors"]

log = logging.getLogger("aiokafka.consumer.group_coordinator")

T = TypeVar("T")

# Errors with which a broker rejects a request without processing it.
_NOT_READY = (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
)


class GroupCoordinatorClient:
    """Sends the requests of one member to the group's coordinator, and looks the coordinator up
    again after it has moved.

    Owns: `beat_at`, the loop time at which the coordinator last counted this consumer as a member
    (None if never); `refusal`, the error of the last response if this error was retriable.
    """

    def __init__(
        self,
        client: AIOKafkaClient,
        config: ConsumerConfig,
        group_id: str,
        coordinator_health: NodeHealth,
        meter: ConsumerMeter,
    ) -> None:
        self.group_id = group_id
        self.beat_at: float | None = None
        self.refusal: KafkaError | None = None
        self._counted_at = 0.0
        self._client = client
        self._config = config
        self._log = SubjectLog(log, config.subject)
        self._coordinator_health = coordinator_health
        self._meter = meter
        self._logged_id: int | None = None

    @property
    def coordinator_id(self) -> int | None:
        """Node id of the group's coordinator; None while it is not known."""
        return self._client.known_coordinator(CoordinationType.GROUP, self.group_id)

    async def send(
        self,
        request: Request[R],
        limit: float,
        patience: float = 0.0,
        pick: Callable[[BrokerConnection, Request[R]], int] | None = None,
        search: float | None = None,
        connections: ConnectionGroup = ConnectionGroup.COORDINATION,
    ) -> R:
        """Send a request to the coordinator and return the response.

        Args:
            limit: Timeout of the request in seconds.
            patience: Seconds for which the coordinator may delay the response, as for a join.
            pick: Chooses the version; by default the newest common one.
            search: Timeout of the coordinator lookup in seconds; None for the request timeout.
            connections: Selects the connection to the coordinator.

        Raises errors of the connection.
        """
        loop = asyncio.get_running_loop()
        node_id = await self._find_coordinator(search)
        sent_at = loop.time()
        due = self._coordinator_health.expect(
            type(request).__name__.removesuffix("Request"), patience
        )
        try:
            connection = await self._client.connection(node_id, connections, timeout=limit)
            version = (pick or _newest)(connection, request)
            response = await connection.request(request, version=version, timeout=limit)
        except KafkaError as error:
            self._coordinator_health.note(error)
            self._client.coordinator_failed(CoordinationType.GROUP, self.group_id, error)
            raise
        finally:
            self._coordinator_health.forgive(due)
        # A response proves that this consumer was a member at the time of the request, not of the
        # response: this process may have been suspended before it read the response. But if the
        # coordinator may delay the response (`patience`), the session cannot expire in that time.
        self._counted_at = loop.time() if patience else sent_at
        self._meter.coordinated(type(request), sent_at)
        return response

    async def send_in_time(self, request: Request[R], limit: float, after: float) -> R:
        """Return the response to `request`. If there is no response within `after` seconds, look
        the coordinator up again and send the request a second time. Raises errors of the connection
        after `limit` seconds at the latest.

        1. A network drops all packets of a connection, or the coordinator has moved and its
           previous broker does not respond. A heartbeat that waits for the whole session timeout
           leaves no time for a second heartbeat.
        2. With a shorter timeout, all heartbeats on a slow connection could fail just before the
           response.
        3. So the first request keeps its timeout. The second request goes to the coordinator that
           other brokers name, on another connection. The first response to arrive is returned.
        """
        deadline = asyncio.get_running_loop().time() + limit

        async def send_again() -> R:
            return await self._send_elsewhere(request, deadline)

        return await with_second(self.send(request, limit, search=limit), after, send_again)

    async def _send_elsewhere(self, request: Request[R], deadline: float) -> R:
        """Look the coordinator up and send the request on another connection, repeatedly until
        there is a response. Raises the last error at `deadline` (loop time)."""
        loop, client = asyncio.get_running_loop(), self._config.client
        delays = Backoff(client.retry_backoff, client.retry_backoff_max)
        self._client.forget_coordinator(
            CoordinationType.GROUP, self.group_id, "a heartbeat got no response"
        )
        while True:
            left = deadline - loop.time()
            try:
                return await self.send(
                    request,
                    # Half of the remaining time: if a reused connection is dead, the next attempt
                    # needs time for another one.
                    max(left / 2, 0.0),
                    search=left,
                    connections=ConnectionGroup.HEARTBEAT,
                )
            except KafkaError:
                if loop.time() + (pause := delays.next()) >= deadline:
                    raise
            await asyncio.sleep(pause)

    async def send_past_join(self, make: Callable[[BrokerConnection], Request[R]]) -> R:
        """Send the request that `make` returns for a connection without a pending JoinGroup, and
        return the response. Raises errors of the connection."""
        node_id = await self._find_coordinator()
        try:
            connection = await self._client.connection(node_id)
            request = make(connection)
            return await connection.request(request, version=_newest(connection, request))
        except KafkaError as error:
            self._client.coordinator_failed(CoordinationType.GROUP, self.group_id, error)
            raise

    async def retry_until_ready(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `call`. Repeat the call after a backoff if the coordinator is
        unavailable, is loading, or has moved. The caller limits the time."""
        client = self._config.client
        delays = Backoff(client.retry_backoff, client.retry_backoff_max)
        while True:
            try:
                return await call()
            except _NOT_READY as error:
                self._log.debug("The request is repeated, the coordinator is not ready: %s", error)
            await asyncio.sleep(delays.next())

    async def _find_coordinator(self, limit: float | None = None) -> int:
        """Return the node id of the coordinator, if necessary after a lookup of `limit` seconds at
        most (None = the request timeout)."""
        limit = self._config.client.request_timeout if limit is None else limit
        deadline = asyncio.get_running_loop().time() + limit
        node_id = await self._client.coordinator(
            CoordinationType.GROUP, self.group_id, deadline, self._coordinator_health.fail
        )
        if node_id != self._logged_id:
            self._log.info("The coordinator is node %d", node_id, node_id=node_id)
            self._logged_id = node_id
        return node_id

    def check(self, error_code: int, message: str | None = None) -> None:
        """Raise the error of a response, if it has one. Without an error, and after
        REBALANCE_IN_PROGRESS, record that this consumer is a member. If the error may mean that the
        coordinator has moved, the next request looks it up again."""
        if not error_code:
            self._coordinator_health.succeed()
            self.refusal = None
            self.beat_at = self._counted_at
            return
        error = for_code(error_code)
        is_authorization = error is GroupAuthorizationFailedError
        parts = [f"group {self.group_id!r}", message, self._hint(error)]
        subject = ": ".join(part for part in parts if part)
        failure = error(self.group_id if is_authorization else subject)
        self._coordinator_health.note(failure)
        # Keep retriable errors only: MembershipStateMachine has the errors that end a membership.
        self.refusal = renewed(failure) if error.retriable else None
        # REBALANCE_IN_PROGRESS: the coordinator counts this consumer as a member, and expects a
        # rejoin.
        if error is RebalanceInProgressError:
            self.beat_at = self._counted_at
        self._client.coordinator_failed(CoordinationType.GROUP, self.group_id, failure)
        raise failure

    def _hint(self, error: type[BrokerResponseError]) -> str:
        """Return a hint for some errors, with the option that has caused the error and its value;
        "" for others."""
        if error is FencedInstanceId:
            return (
                f"another member joined with group_instance_id={self._config.group_instance_id!r}"
            )
        if error is InconsistentGroupProtocolError:
            names = [assignor.name for assignor in self._config.partition_assignment_strategy]
            return (
                f"partition_assignment_strategy has {', '.join(map(repr, names))}: not all members "
                "of the group have one of these assignors, or the members are not consumers, or "
                "they use the consumer protocol, and group.consumer.migration.policy of the broker "
                "is 'disabled'"
            )
        if error is InvalidSessionTimeoutError:
            return f"session_timeout_ms={round(self._config.session_timeout * 1000)}"
        return ""


def _newest(connection: BrokerConnection, request: Request[Any]) -> int:
    return connection.pick(type(request))


class Member:
    """This consumer as a member of its group. Each group protocol has a subclass, which sends the
    requests and raises their errors. The GroupProtocol decides what follows from an error.

    Owns: `member_id`, "" without membership; `generation`, the group's generation or the member's
    epoch, -1 without membership.
    """

    held_requests: tuple[type[Request[Any]], ...] = ()
    """Requests whose response the coordinator delays until other members have sent the same
    request."""
    is_named_in_fetches = False
    """Whether OffsetFetch has the id and epoch of this member (KIP-848)."""

    def __init__(self, config: ConsumerConfig, coordinator: GroupCoordinatorClient) -> None:
        self.coordinator = coordinator
        self.member_id = ""
        self.generation = -1
        self._config = config
        self._group_id = coordinator.group_id
        self.instance_id = config.group_instance_id

    @property
    def is_member(self) -> bool:
        """Whether the group has, or may have, this consumer as a member."""
        return bool(self.member_id)

    def forget_member(self) -> None:
        """End the membership without a request: the consumer left, or is about to leave."""
        self.generation = -1
        self.member_id = ""

    def fail(self) -> None:
        """End the membership without a request, because of an error that is not retriable."""
        self.forget_member()

    def become_stale(self) -> None:
        """End the membership without a request: the member has left because the application does
        not poll."""
        self.forget_member()


# -- max_poll_interval_ms


class PollTimer:
    """Makes the member leave if the application does not poll within `max_poll_interval_ms`.

    Owns: the number of the application's latest known call, and when the interval began.
    """

    def __init__(self, context: ConsumerContext, state: MembershipStateMachine) -> None:
        self._queue = context.queue
        self._limit = context.config.max_poll_interval
        self._health = context.health
        self._state = state
        self._call = 0
        self._polled_at = 0.0

    def restart(self) -> None:
        """Start a new interval."""
        self._call = self._queue.buffer.call
        self._polled_at = asyncio.get_running_loop().time()

    def check(self) -> None:
        """Move the membership to IDLE if the application has not polled for `max_poll_interval_ms`.
        A call that waits for records counts as polling. In IDLE, do nothing.

        In IDLE, only `wait_for_poll()` reacts to a call of the application, after the member has
        left the group and called the listener. If `check()` started a new interval because of a
        call in this time, `wait_for_poll()` would wait for another call.
        """
        state, now = self._state, asyncio.get_running_loop().time()
        self._queue.buffer.time_calls(now)
        if state.current is MembershipState.IDLE:
            return
        is_polling = self._queue.buffer.call != self._call or self._queue.has_readers
        if is_polling or state.is_starting:
            self.restart()
        late = now - self._polled_at
        is_active = state.current in (MembershipState.JOINING, MembershipState.JOINED)
        if late > self._limit and is_active:
            state.move(MembershipState.IDLE)
            self._health.look()
            state.signal.notify()

    async def wait_for_poll(self) -> None:
        """Wait until the application has polled since the membership became IDLE, or the state
        changes, for example by `subscribe()`."""
        while self._state.current is MembershipState.IDLE and self._queue.buffer.call == self._call:
            await self._queue.polls.wait()
        self.restart()


# -- Errors after which another attempt may succeed


# Errors whose cause an administrator may remove, and UNKNOWN_SERVER_ERROR. The next call of the
# application raises the error, and the member tries again.
_RECOVERABLE = (
    *REFUSALS,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    UnknownError,
)


class RecoverableErrors:
    """Reports errors to the application while the member continues to retry.

    Owns: the last reported error of each type. This object withdraws only these errors: an error of
    a rebalance listener stays, even if it has the same type.
    """

    def __init__(self, context: ConsumerContext, state: MembershipStateMachine) -> None:
        self._queue = context.queue
        self._state = state
        self._log = SubjectLog(log, context.config.subject)
        self._reported: dict[type[KafkaError], BaseException] = {}

    def clear(self) -> None:
        """Drop reported errors that no call has raised yet: the coordinator has accepted a request
        of this member."""
        self._queue.withdraw_errors(self._reported.values())
        self._reported.clear()

    def report(self, error: KafkaError) -> bool:
        """Return whether the member may try again after `error`:

        - True for an error in `_RECOVERABLE`. The application's next call raises it.
        - True for other retriable errors and timeouts, which are logged as DEBUG.
        - False for any other error, and during `start()` for errors in `_RECOVERABLE` and timeouts:
          `start()` raises them.
        """
        self._state.set_join_error(error)
        if self._state.is_starting and isinstance(error, (*_RECOVERABLE, KafkaTimeoutError)):
            return False
        if isinstance(error, _RECOVERABLE):
            # Replace the pending error of this type, so that only one call raises such an error.
            if (former := self._reported.get(type(error))) is not None:
                self._queue.withdraw_errors((former,))
            self._reported[type(error)] = reported = renewed(error)
            self._queue.fail_next_call(reported)
        elif error.retriable or isinstance(error, KafkaTimeoutError):
            self._log.debug("%s", error)
        else:
            return False
        return True


class GroupProtocol:
    """The common part of ClassicProtocol and Kip848Protocol. A group protocol determines how a
    member gets its partitions. The membership task calls `advance()`; a second task runs
    `send_heartbeats()`.
    """

    member: Member

    def __init__(self, group: GroupMembership) -> None:
        context = group.context
        self._client = context.client
        self._config = context.config
        self._subscriptions = context.subscriptions
        self._meter = context.meter
        self._log = SubjectLog(log, context.config.subject)
        self._group = group
        self._state = group.state
        self._commits = group.commits
        self._rebalance = group.rebalance
        self._poll_timer = group.poll_timer
        self._errors = RecoverableErrors(context, group.state)

    def enforce_rebalance(self, reason: str) -> None:
        """Make the member join again because the application requires it (KIP-568). Raises
        IllegalOperation if members do not join again in this protocol."""
        raise IllegalOperation(
            "enforce_rebalance() is for group_protocol='classic': in the consumer protocol the "
            "coordinator decides when to assign again (KIP-848)"
        )

    def _complete_join(self) -> None:
        """Return records again, and move to JOINED: the member has its assignment."""
        self._rebalance.release()
        self._errors.clear()
        self._state.complete_join()
        # Check the metadata after the change to JOINED: changes of the metadata during a join were
        # ignored.
        self._group.check_metadata()
        self._meter.rebalanced()

    def _end_with(self, error: KafkaError) -> None:
        """End the membership because of an error that is not retriable: all commits fail, and the
        membership task revokes all partitions."""
        self.member.fail()
        self._commits.on_removed()
        self._state.begin_failing(error)
