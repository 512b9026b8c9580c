"""What both group protocols share: the member's identity, its coordinator, poll timer, errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from aiokafka._log import SubjectLog
from aiokafka._retry import Backoff
from aiokafka._tasks import with_second
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.consumer.group.state import Standing, StandingState
from aiokafka.consumer.position.committed import Identity
from aiokafka.errors import (
    BrokerResponseError,
    FencedInstanceId,
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
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
    from aiokafka.consumer._shared import Shared
    from aiokafka.consumer.group.commits import GroupCommits
    from aiokafka.consumer.group.handover import Handover
    from aiokafka.errors import CommitFailedError

__all__ = [
    "GroupLink",
    "GroupParts",
    "GroupProtocol",
    "Membership",
    "MendableErrors",
    "OnAnswer",
    "PollWatch",
    "ignore_answer",
]

if TYPE_CHECKING:
    from aiokafka._config.consumer import ConsumerConfig
    from aiokafka._health import NodeHealth
    from aiokafka.client import AIOKafkaClient
    from aiokafka.net.connection import BrokerConnection
    from aiokafka.protocol.schema import Request, Response

    R = TypeVar("R", bound=Response)


log = logging.getLogger("aiokafka.consumer.group_coordinator")

T = TypeVar("T")

# By what the broker has not even looked at the request.
_NOT_READY = (
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    NotCoordinatorForGroupError,
)


class Membership(Protocol):
    """Who this consumer is in its group, by either protocol. One request at a time; what to do
    about an error is up to the GroupProtocol."""

    @property
    def link(self) -> GroupLink:
        """The way to the group's coordinator, which knows when that last counted us."""

    @property
    def member_id(self) -> str:
        """Name of this member within the group."""

    @property
    def generation(self) -> int:
        """The group's generation, or the member's epoch; -1 when not a member."""

    @property
    def is_member(self) -> bool:
        """Whether the group counts, or may count, this consumer as a member."""

    @property
    def identity(self) -> Identity:
        """Who commits."""

    def forget_member(self) -> None:
        """Note that we are no member any more, by our own choice."""

    def fail(self) -> None:
        """Note that we are no member any more, and that nothing we do by ourselves mends it."""

    def become_stale(self) -> None:
        """Note that we have left because the application does not ask for records."""

    async def leave(self, reason: str) -> None:
        """Leave the group. Raises errors of the connection and of the response."""


OnAnswer = Callable[[type, float], None]
"""Is told the type of a request that was answered, and when it was sent (loop time)."""


def ignore_answer(request: type, sent_at: float) -> None:
    """Do nothing, as an `OnAnswer`."""


class GroupLink:
    """The way to a group's coordinator, found again when it has moved.

    Owns: `beat_at`, until when the coordinator has counted us as a member for sure (loop time);
    `refusal`, the error of the last response if that is a retriable one.
    """

    def __init__(
        self,
        client: AIOKafkaClient,
        config: ConsumerConfig,
        group_id: str,
        contact: NodeHealth,
        on_answer: OnAnswer = ignore_answer,
    ) -> None:
        self.group_id = group_id
        self.beat_at: float | None = None
        self.refusal: KafkaError | None = None
        self._counted_at = 0.0
        self._client = client
        self._config = config
        self._log = SubjectLog(log, config.subject)
        self._contact = contact
        self._on_answer = on_answer
        self._told: int | None = None

    def identity(self, generation: int, member_id: str) -> Identity:
        """Return who commits as this member, with its instance id (KIP-345)."""
        if generation < 0:
            return Identity()
        return Identity(generation, member_id, self._config.group_instance_id)

    async def send(
        self,
        request: Request[R],
        limit: float,
        patience: float = 0.0,
        pick: Callable[[BrokerConnection, Request[R]], int] | None = None,
        search: float | None = None,
        connections: ConnectionGroup = ConnectionGroup.COORDINATION,
    ) -> R:
        """Send a request to the coordinator, on the connection of the group; returns the response.

        Args:
            limit: Seconds after which this gives up.
            patience: Seconds for which the broker may let us wait.
            pick: Chooses another version than the highest.
            search: Seconds after which a search for the coordinator is given up, of which a silent
                broker gets a part; None for the request timeout.
            connections: Which connection to use instead.

        Raises errors of the connection.
        """
        loop = asyncio.get_running_loop()

        async def ask(node_id: int) -> R:
            sent_at = loop.time()
            with self._contact.asked(type(request).__name__.removesuffix("Request"), patience):
                try:
                    connection = await self._client.connection(node_id, connections, timeout=limit)
                    choose = pick or _newest
                    version = choose(connection, request)
                    response = await connection.request(request, version=version, timeout=limit)
                except KafkaError as error:
                    self._contact.note(error)
                    raise
            # The response may have lain here while this process was frozen: all it proves is that
            # we were members when we asked. While the broker makes us wait, the session does not
            # end.
            self._counted_at = loop.time() if patience else sent_at
            self._on_answer(type(request), sent_at)
            return response

        return await self._ask(ask, search)

    async def send_in_time(self, request: Request[R], limit: float, after: float) -> R:
        """Return the response to `request`, for which `limit` seconds are left. If there is none
        `after` so many, send it a second time, elsewhere. Raises errors of the connection.

        1. The network drops all packets of a connection, or the coordinator has moved and its
           former broker keeps silent. With the whole session for the response, there is no time for
           another heartbeat when it is over.
        2. With a part of it, a slow line would be given up that brings the response a moment later,
           and each time again.
        3. So the first one keeps its time. The second one goes to the coordinator that other
           brokers name, over a connection of its own, and whichever response comes first counts.
        """
        deadline = asyncio.get_running_loop().time() + limit

        async def send_again() -> R:
            return await self._send_elsewhere(request, deadline)

        return await with_second(self.send(request, limit, search=limit), after, send_again)

    async def _send_elsewhere(self, request: Request[R], deadline: float) -> R:
        """Send a request to the coordinator, which is looked up, over another connection, again and
        again until there is a response. Raises the last error at `deadline` (loop time)."""
        loop, client = asyncio.get_running_loop(), self._config.client
        delays = Backoff(client.retry_backoff, client.retry_backoff_max)
        self._client.forget_coordinator(
            CoordinationType.GROUP, self.group_id, "a heartbeat got no response"
        )
        while True:
            left = deadline - loop.time()
            try:
                return await self.send(
                    # Of a connection that was used before, another one may be needed.
                    request,
                    max(left / 2, 0.0),
                    search=left,
                    connections=ConnectionGroup.HEARTBEAT,
                )
            except KafkaError:
                if loop.time() + (pause := delays.next()) >= deadline:
                    raise
            await asyncio.sleep(pause)

    async def send_aside(self, make: Callable[[BrokerConnection], Request[R]]) -> R:
        """Send what `make` makes for a connection on which no join can be waiting."""

        async def ask(node_id: int) -> R:
            connection = await self._client.connection(node_id)
            request = make(connection)
            return await connection.request(request, version=_newest(connection, request))

        return await self._ask(ask)

    async def insist(self, say: Callable[[], Awaitable[T]]) -> T:
        """Return what `say` returns, again and again while the coordinator says that it is another
        broker, or not ready: for what is said once. The caller limits the time."""
        client = self._config.client
        delays = Backoff(client.retry_backoff, client.retry_backoff_max)
        while True:
            try:
                return await say()
            except _NOT_READY as error:
                self._log.debug("Not said yet: %s", error)
            await asyncio.sleep(delays.next())

    async def _ask(self, ask: Callable[[int], Awaitable[T]], search: float | None = None) -> T:
        """Return what `ask` returns for the node id of the coordinator, which is looked up if it is
        not known, or may have moved."""
        limit = self._config.client.request_timeout if search is None else search
        deadline = asyncio.get_running_loop().time() + limit

        async def ask_and_tell(node_id: int) -> T:
            if node_id != self._told:
                self._log.info("The coordinator is node %d", node_id, node_id=node_id)
                self._told = node_id
            return await ask(node_id)

        return await self._client.ask_coordinator(
            CoordinationType.GROUP, self.group_id, deadline, ask_and_tell, self._contact.fail
        )

    @property
    def coordinator_id(self) -> int | None:
        """Node id of the group's coordinator; None while it is not known."""
        return self._client.known_coordinator(CoordinationType.GROUP, self.group_id)

    def check(self, error_code: int, message: str | None = None) -> None:
        """Raise the error of a response."""
        if not error_code:
            self._contact.succeed()
            self.refusal = None
            self.beat_at = self._counted_at
            return
        error = for_code(error_code)
        is_authorization = error is GroupAuthorizationFailedError
        parts = [f"group {self.group_id!r}", message, self._explain(error)]
        subject = ": ".join(part for part in parts if part)
        failure = error(self.group_id if is_authorization else subject)
        self._contact.note(failure)
        # Of the others the member hears what to do next, such as to join again.
        self.refusal = renewed(failure) if error.retriable else None
        # It asks us to join again, and so counts us.
        if error is RebalanceInProgressError:
            self.beat_at = self._counted_at
        self._client.coordinator_failed(CoordinationType.GROUP, self.group_id, failure)
        raise failure

    def _explain(self, error: type[BrokerResponseError]) -> str:
        """Return what of the configuration the error is about."""
        if error is FencedInstanceId:
            return (
                f"another member joined with group_instance_id={self._config.group_instance_id!r}"
            )
        if error is InconsistentGroupProtocolError:
            names = [assignor.name for assignor in self._config.partition_assignment_strategy]
            return (
                f"partition_assignment_strategy has {', '.join(map(repr, names))}: the members of "
                "the group have none of them in common, or are no consumers; or they use the "
                "consumer protocol, and group.consumer.migration.policy of the broker is 'disabled'"
            )
        if error is InvalidSessionTimeoutError:
            return f"session_timeout_ms={round(self._config.session_timeout * 1000)} was asked for"
        return ""


def _newest(connection: BrokerConnection, request: Request[Any]) -> int:
    return connection.pick(type(request))


# -- Notice that the application has stopped to ask for records


class PollWatch:
    """Has the member leave if the application asks for no records within `max_poll_interval_ms`.

    Owns: the number of the application's latest call, and when it was noted.
    """

    def __init__(self, shared: Shared, standing: Standing) -> None:
        self._desk = shared.desk
        self._limit = shared.config.max_poll_interval
        self._on_change = shared.on_change
        self._standing = standing
        self._call = 0
        self._polled_at = 0.0

    def note_call(self) -> None:
        """Count the interval from now on."""
        self._call = self._desk.buffer.call
        self._polled_at = asyncio.get_running_loop().time()

    def notice_idleness(self) -> None:
        """Make the member leave if the application is late. From then on only `wait_for_call()`
        looks for a call: it may still wait for a listener, and would take a call that was noted
        here meanwhile for an old one.
        """
        standing = self._standing
        if standing.state is StandingState.IDLE:
            return
        is_asking = self._desk.buffer.call != self._call or self._desk.has_readers
        # A call that waits for long is no new call, but the application is there.
        if is_asking or standing.is_starting:
            self.note_call()
        late = asyncio.get_running_loop().time() - self._polled_at
        if late > self._limit and standing.state in (StandingState.JOINING, StandingState.JOINED):
            standing.move(StandingState.IDLE)
            self._on_change()
            standing.signal.notify()

    async def wait_for_call(self) -> None:
        """Wait until the application asks for records, or subscribes."""
        while self._standing.state is StandingState.IDLE and self._desk.buffer.call == self._call:
            await self._desk.polls.wait()
        self.note_call()


# -- Decide which errors of a group the application is told, and whether to try again


# What an administrator may mend while the consumer waits, and what the broker cannot explain: the
# application is told, and the group asked again.
_MENDABLE = (
    *REFUSALS,
    GroupAuthorizationFailedError,
    TopicAuthorizationFailedError,
    UnknownError,
)


class MendableErrors:
    """Reports errors that a later attempt may not get.

    Owns: the errors that it reported last, by their kinds. A listener may have raised others of the
    same kinds, which are none of its business.
    """

    def __init__(self, shared: Shared, standing: Standing) -> None:
        self._desk = shared.desk
        self._standing = standing
        self._log = SubjectLog(log, shared.config.subject)
        self._reported: dict[type[KafkaError], BaseException] = {}

    def clear(self) -> None:
        """Withdraw the errors that were reported: the coordinator counts us as a member."""
        self._desk.withdraw_errors(self._reported.values())
        self._reported.clear()

    def may_pass(self, error: KafkaError) -> bool:
        """Report an error that a retry may clear; return False for any other, and for those that
        `start()` raises."""
        self._standing.note_trouble(error)
        if self._standing.is_starting and isinstance(error, (*_MENDABLE, KafkaTimeoutError)):
            return False
        if isinstance(error, _MENDABLE):
            # Once for each call of an application, however often it was tried meanwhile.
            if (former := self._reported.get(type(error))) is not None:
                self._desk.withdraw_errors((former,))
            self._reported[type(error)] = reported = renewed(error)
            self._desk.fail_next_call(reported)
        elif error.retriable or isinstance(error, KafkaTimeoutError):
            self._log.debug("%s", error)
        else:
            return False
        return True


# -- What the two group protocols have in common, for the Group that has one of them


class GroupParts(NamedTuple):
    """What a group's protocol works with."""

    shared: Shared
    standing: Standing
    commits: GroupCommits
    handover: Handover
    errors: MendableErrors
    polls: PollWatch
    on_metadata: Callable[[], None]
    """Looks at the metadata again, for topics, partitions and leaders."""

    def settle(self) -> None:
        """Let readers get records again: the member has its assignment."""
        self.handover.release()
        self.errors.clear()
        self.standing.settle()
        # After the state has changed: metadata that came while the member joined was passed over,
        # and is compared with the assignment now.
        self.on_metadata()
        self.shared.meter.rebalanced()


class GroupProtocol(Protocol):
    """How members come to their partitions. One task of the Group calls `advance()`, a second one
    runs `send_heartbeats()`."""

    @property
    def member(self) -> Membership:
        """Who this consumer is to the group."""

    @property
    def session_timeout(self) -> float:
        """Seconds without a heartbeat after which the group drops a member."""

    @property
    def keeps_partitions(self) -> bool:
        """Whether the member has its partitions while it joins: the group gives them to no other
        member before this one has given them up."""

    @property
    def is_joining(self) -> bool:
        """Whether requests are out by which the member enters another generation, in which its
        commits will have to name that one."""

    @property
    def is_awaited(self) -> bool:
        """Whether other members wait for this one to finish its join, even if it is stopped."""

    def has_work(self) -> bool:
        """Return whether `advance()` is to be called."""

    async def advance(self) -> None:
        """Go on towards the assignment. Called while the member may take part."""

    async def send_heartbeats(self) -> None:
        """Keep the membership alive, until cancelled; look whether the application is."""

    async def catch_up(self, limit: float) -> None:
        """Finish, within `limit` seconds, what the background work has begun and the last commit
        depends on."""

    def on_subscribed(self) -> None:
        """Look at the subscription again: it has changed."""

    def on_metadata(self) -> None:
        """Look at the metadata again: it has changed."""

    def forget(self) -> None:
        """Drop what belongs to the assignment that was given up."""

    def on_commit_refused(self, identity: Identity, error: CommitFailedError) -> None:
        """Draw the consequence: the group does not count us as a member of this generation."""
