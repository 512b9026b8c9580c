"""Send one admin request to a broker that can serve it, until a deadline.

`Router` finds the broker and retries: any broker, a named one, the controller, or a coordinator.
Requests about several items, each with an outcome of its own, are in `_items`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aiokafka._compat import timeout_after_reading
from aiokafka._retry import Backoff, OutOfTimeError, until, within
from aiokafka._typing import later
from aiokafka.admin._values import as_int
from aiokafka.client import CoordinationType
from aiokafka.errors import (
    BrokerIdNotRegistered,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NoBrokersAvailable,
    NodeNotReadyError,
    NotControllerError,
    NotLeaderForPartitionError,
    RequestTimedOutError,
    UnknownTopicId,
    UnknownTopicOrPartitionError,
    UnsupportedEndpointType,
    for_code,
)
from aiokafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from aiokafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from aiokafka.protocol.schema import Struct, fields
from aiokafka.structs import BrokerMetadata

if TYPE_CHECKING:
    from aiokafka._config import ClientConfig
    from aiokafka.admin.client import AIOKafkaAdminClient
    from aiokafka.client import AIOKafkaClient
    from aiokafka.net.connection import BrokerConnection
    from aiokafka.protocol.schema import Request, Response
else:
    AIOKafkaAdminClient = later("aiokafka.admin.client.AIOKafkaAdminClient")

R = TypeVar("R", bound="Response")
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

Send = Callable[[int, list[K]], Awaitable[Mapping[K, V | KafkaError]]]
"""Asks a node about some items, and returns what each of them got."""

# What a controller says that is not the active one, of requests and of its own log.
_NOT_ACTIVE = frozenset((NotControllerError.errno, NotLeaderForPartitionError.errno))
_UNKNOWN = frozenset((UnknownTopicOrPartitionError.errno, UnknownTopicId.errno))
_COORDINATOR_ERRORS = frozenset((14, 15, 16))  # loading, not available, not this one

# A silent broker may take this part of the remaining time while there is another one to ask. The
# controller gets more, because it may have more to do, and so does a coordinator that an earlier
# call has found: another may have taken over long ago.
_PART_OF_ANY = 1 / 3
_PART_OF_CONTROLLER = _PART_OF_KNOWN = 1 / 2
# Seconds for a broker that is to confirm what another one has said.
_SECOND_OPINION = 1.0
# Seconds after the deadline in which the connection says by itself that a response is late.
_LATE = 0.2


@dataclass(frozen=True)
class Call(Generic[R]):
    """A request that can be built for any version a broker speaks."""

    request: type[Request[R]]
    """The class of the request, which decides the version."""

    build: Callable[[int], Request[R]]
    """Builds the request for a version."""

    codes: Callable[[R], Iterable[int]] = lambda response: ()
    """Returns the error codes in a response that may call for another broker or a retry."""

    max_version: int | None = None
    """The newest version that `build` supports, if it is not the newest of all."""


class Router:
    """Sends calls to any broker, to a certain one, to the controller and to coordinators.

    Every method retries until its deadline (loop time). It pauses for `retry_backoff_ms` between
    attempts, and at the deadline raises KafkaTimeoutError, caused by the last failure. If the
    response to a change is lost, the change is sent again, and the broker may then reply that it
    "already exists".
    """

    def __init__(self, client: AIOKafkaClient, config: ClientConfig) -> None:
        self._client = client
        self._config = config
        self.is_for_controllers = config.is_for_controllers
        """Whether there are only controllers to ask (KIP-919)."""

    def deadline(self, timeout_ms: float | None) -> float:
        """Return the loop time that is `timeout_ms` (default: the request timeout) away.

        Raises TypeError and ValueError for what is no such time.
        """
        seconds = self._config.request_timeout if timeout_ms is None else _seconds(timeout_ms)
        return asyncio.get_running_loop().time() + seconds

    def backoff(self) -> Backoff:
        """Return the pauses between attempts: from `retry_backoff_ms` to `retry_backoff_max_ms`."""
        return Backoff(self._config.retry_backoff, self._config.retry_backoff_max)

    async def to_any(self, call: Call[R], deadline: float, asked: set[int] | None = None) -> R:
        """Ask any broker. A broker that times out is not chosen again while others are left, nor
        one that was `asked` before; the one that responds is added to these.

        Of controllers, the active one is asked.
        """
        if self.is_for_controllers:
            return await self.to_controller(call, deadline)
        silent = set(asked or ())

        async def attempt() -> R:
            node_id = self._any_node(silent)
            response = await self._send_or_note(node_id, call, deadline, _PART_OF_ANY, silent)
            if asked is not None:
                asked.add(node_id)
            return response

        return await self.retry(attempt, deadline)

    async def to_any_sure(self, call: Call[R], deadline: float) -> R:
        """Ask any broker, as `to_any` does; if it does not know a topic, another one as well, and
        return the response of the one that knows more. Not for changes."""
        asked: set[int] = set()
        response = await self.to_any(call, deadline, asked)
        unknown = _count_unknown(response)
        by = self.second_opinion_by(asked, deadline)
        if unknown and by is not None:
            with suppress(KafkaError):
                second = await self.to_any(call, by, asked)
                if _count_unknown(second) < unknown:
                    return second
        return response

    def second_opinion_by(self, asked: set[int], deadline: float) -> float | None:
        """Return the deadline (loop time) for asking another broker whether something is missing
        indeed, as one may lag behind; None if there is no other. It gets a moment: what the first
        one said is known."""
        if self.is_for_controllers or asked.issuperset(self._client.cluster.node_ids):
            return None
        return min(deadline, asyncio.get_running_loop().time() + _SECOND_OPINION)

    async def to_node(self, node_id: int, call: Call[R], deadline: float) -> R:
        """Ask a broker that the user has named; raise as `send_to_named`."""
        return await self.retry(lambda: self.send_to_named(node_id, call, deadline), deadline)

    async def to_controller(self, call: Call[R], deadline: float) -> R:
        """Ask the controller. Where the cluster hides it (KRaft), any broker forwards the call."""

        silent: set[int] = set()
        denials: set[int] = set()
        moved = _NOT_ACTIVE if self.is_for_controllers else {NotControllerError.errno}

        async def attempt() -> R:
            controller = self._client.cluster.controller
            node_id = self._any_node(silent) if controller is None else controller.nodeId
            if node_id in silent:
                # It may be gone, and another broker may be the controller by now.
                node_id = self._any_node(silent)
            response = await self._send_or_note(
                node_id, call, deadline, _PART_OF_CONTROLLER, silent
            )
            # Items of a response may say it, too. Brokers never do: they ask the controller.
            codes = codes_in(response) if self.is_for_controllers else call.codes(response)
            if not moved.isdisjoint(codes):
                why = f"node {node_id} is not the controller"
                if node_id in denials:
                    # The broker that goes on naming it may have been cut off from the others.
                    self._client.doubt_metadata(why)
                else:
                    self._client.request_metadata(why)
                denials.add(node_id)
                if controller is not None:
                    # No other will do: unless one has taken over by then, this one is asked again.
                    silent.discard(controller.nodeId)
                raise NotControllerError(f"node {node_id}")
            return response

        return await self.retry(attempt, deadline)

    async def to_coordinator(
        self,
        key: str,
        call: Call[R],
        deadline: float,
        *,
        kind: CoordinationType = CoordinationType.GROUP,
    ) -> R:
        """Ask the coordinator of a group, or of a transactional id."""
        if self.is_for_controllers:
            refuse(FindCoordinatorRequest)

        async def ask(until: float, node_id: int) -> R:
            response = await self.send(node_id, call, until, deadline)
            for code in call.codes(response):
                if code in _COORDINATOR_ERRORS:
                    raise for_code(code)(f"{kind.name.lower()} {key!r}, node {node_id}")
            return response

        async def attempt() -> R:
            now = asyncio.get_running_loop().time()
            is_known = self._client.known_coordinator(kind, key) is not None
            until = now + (deadline - now) * _PART_OF_KNOWN if is_known else deadline
            return await self._client.ask_coordinator(kind, key, deadline, partial(ask, until))

        return await self.retry(attempt, deadline)

    def in_half(self, send: Send[K, V], deadline: float) -> Send[K, V]:
        """Return `send` that leaves a node which keeps silent for half of the time, once: another
        one may have taken over meanwhile, and the next attempt finds it. Not for changes: one that
        only takes long would be made twice."""
        loop = asyncio.get_running_loop()
        has_left = False

        async def send_in_half(node_id: int, items: list[K]) -> Mapping[K, V | KafkaError]:
            nonlocal has_left
            limit = max(deadline - loop.time(), self._config.request_timeout) / 2
            if has_left or math.isinf(limit):
                return await send(node_id, items)
            try:
                async with timeout_after_reading(loop.time() + limit):
                    return await send(node_id, items)
            except asyncio.TimeoutError:
                has_left = True
                text = f"node {node_id}: no response in {limit:.1f} s"
                raise RequestTimedOutError(text) from None

        return send_in_half

    async def all_nodes(self, deadline: float) -> MetadataResponse:
        """Return the controllers, as metadata without topics, if there are only those to ask."""
        return await self.retry(lambda: self._client.fetch_all_topics(deadline), deadline)

    def learn(self, home: BrokerMetadata | KafkaError) -> int | KafkaError:
        """Note where a broker is that a response names, and return its id; let errors pass."""
        if isinstance(home, KafkaError):
            return home
        self._client.update_leaders({}, (home,))
        return home.nodeId

    def _any_node(self, silent: set[int]) -> int:
        node_id = self._client.get_random_node(silent)
        if node_id is None:
            raise NoBrokersAvailable("no broker is known")
        return node_id

    async def _send_or_note(
        self, node_id: int, call: Call[R], deadline: float, part: float, silent: set[int]
    ) -> R:
        """Send once, with part of the remaining time if there is another broker; note failures."""
        now = asyncio.get_running_loop().time()
        until = deadline
        if set(self._client.cluster.node_ids) - silent - {node_id}:
            until = now + (deadline - now) * part
        try:
            return await self.send(node_id, call, until, deadline)
        except KafkaError as error:
            if error.retriable:
                silent.add(node_id)
                self._client.request_metadata(f"node {node_id}: {error}")
            raise

    async def send(
        self, node_id: int, call: Call[R], deadline: float, end: float | None = None
    ) -> R:
        """Send once, in the newest version that both sides speak.

        Raises RequestTimedOutError at the deadline (loop time), to which a throttle is added, and
        at the end of the whole call, by default the deadline, in any case. Sends nothing if that is
        over, and raises KafkaTimeoutError. Raises UnsupportedEndpointType for what controllers do
        not serve, if there are only those.
        """
        if self.is_for_controllers:
            refuse(call.request)
        connection = await self._client.connection(node_id, timeout=self._left(deadline))
        version = connection.pick(call.request, call.max_version)
        timeout, end = self._left(deadline), deadline if end is None else end
        if end <= asyncio.get_running_loop().time():
            raise KafkaTimeoutError(f"node {node_id}: no time is left to ask it")
        try:
            # Before the timer of the whole call, which knows no reason.
            async with timeout_after_reading(end + _LATE / 2):
                return await _response(connection, call.build(version), version, timeout)
        except asyncio.TimeoutError:
            text = f"node {node_id}: no response in time, for the broker throttles this client"
            raise RequestTimedOutError(text) from None

    def _left(self, deadline: float) -> float:
        """Return the seconds for one step until the deadline."""
        left = deadline - asyncio.get_running_loop().time()
        return max(0.0, min(left, self._config.request_timeout))

    async def send_to_named(self, node_id: int, call: Call[R], deadline: float) -> R:
        """Send once, as `send` does, to a broker that the user has named.

        Raises BrokerIdNotRegistered, which does not pass, if no broker of this id runs as far as
        the others know: waiting for one would take the whole time of the call.
        """
        node_id = as_int("the id of a broker", node_id)
        if node_id not in self._client.cluster.node_ids:
            await self._look_for(node_id, deadline)
        return await self.send(node_id, call, deadline)

    async def _look_for(self, node_id: int, deadline: float) -> None:
        """Ask once for the brokers that there are; raise unless this one is among them."""
        refreshed = self._client.force_metadata_update()
        left = deadline - asyncio.get_running_loop().time()
        await asyncio.wait([refreshed], timeout=max(0.0, left))
        if not (refreshed.done() and refreshed.result()):
            raise NodeNotReadyError(
                f"node {node_id} is unknown, and no broker has named the others"
            )
        known = sorted(self._client.cluster.node_ids)
        if node_id not in known:
            kind = "controller" if self.is_for_controllers else "broker"
            found = ", ".join(map(str, known)) or "none"
            raise BrokerIdNotRegistered(f"no {kind} {node_id} runs; those that do: {found}")

    async def retry(self, attempt: Callable[[], Awaitable[T]], deadline: float) -> T:
        """Repeat `attempt` while it fails with a retriable error, at most until the deadline."""
        backoff = self.backoff()
        try:
            # What is late says at the deadline by itself which node it was.
            timed = within(deadline + _LATE, attempt)
            return await until(deadline, timed, lambda _: backoff.next())
        except OutOfTimeError as late:
            reason = f"the last attempt: {late.failure}" if late.failure else "no broker responded"
            raise KafkaTimeoutError(f"timed out; {reason}") from late.failure


async def _response(
    connection: BrokerConnection, request: Request[R], version: int, limit: float
) -> R:
    """Send a request and return its response, or raise RequestTimedOutError after `limit` seconds,
    to which throttles are added.

    The connection ends with that only if nothing waits for another response there: others may be
    about to get theirs, and changes among them would be made twice. Neither those that were given
    up as late count nor metadata, which is refreshed then. Later calls take another connection in
    any case: they would keep a dead one open.
    """
    loop, gate = asyncio.get_running_loop(), connection.gate
    if not gate.is_open:
        await gate.wait(limit)
    future = connection.send_nowait(request, version)
    began = max(loop.time(), gate.throttled_until)
    try:
        while (left := max(began, gate.throttled_until) + limit - loop.time()) > 0:
            await asyncio.wait((future,), timeout=left)
            if future.done():
                return future.result()
    finally:
        if not future.cancel() and not future.cancelled():
            future.exception()  # has been raised, or the whole call is over
    late = f"{type(request).__name__} v{version} got no response in time"
    if not connection.awaited(MetadataRequest):
        connection.abort(KafkaConnectionError(f"{connection.peer}: closed because {late}"))
    else:
        connection.retire()
    raise RequestTimedOutError(f"{connection.peer}: {late}")


def remaining_ms(deadline: float) -> int:
    """Return the milliseconds until the deadline, at least 1, for a request's own timeout."""
    left = deadline - asyncio.get_running_loop().time()
    # The deadline may be endless.
    return max(1, int(min(left * 1000, 2**31 - 1)))


def _seconds(timeout_ms: float) -> float:
    try:
        if isinstance(timeout_ms, bool | str | bytes):
            raise TypeError
        seconds = float(timeout_ms) / 1000
    except TypeError:
        text = f"timeout_ms={timeout_ms!r}: must be a number of milliseconds, or None"
        raise TypeError(text) from None
    except OverflowError:
        seconds = math.nan
    # A deadline that is NaN would never come.
    if math.isnan(seconds):
        raise ValueError(f"timeout_ms={timeout_ms!r}: must be a number of milliseconds")
    # What is left of a time may be less than nothing.
    return max(0.0, seconds)


def error_of(code: int, message: str | None, what: Any) -> KafkaError | None:
    """Return the error of a code, None for 0."""
    if not code:
        return None
    return for_code(code)(f"{what}: {message}" if message else str(what))


def raise_for(code: int, message: str | None, what: Any) -> None:
    """Raise the error of a code, unless the code is 0."""
    error = error_of(code, message, what)
    if error is not None:
        raise error


def _count_unknown(response: Struct) -> int:
    return sum(code in _UNKNOWN for code in codes_in(response))


def codes_in(message: Struct) -> Iterator[int]:
    """Yield all error codes in a response, in those of its items as well."""
    for each in fields(type(message)):
        value = getattr(message, each.name)
        if each.name == "error_code":
            yield value
        elif isinstance(value, Struct):
            yield from codes_in(value)
        elif isinstance(value, list):
            for item in value:
                if isinstance(item, Struct):
                    yield from codes_in(item)


# -- Controllers as the only servers (KIP-919)

#: Keys of the APIs that a controller of Kafka 4.3 lists and that clients may use.
SERVED = frozenset(
    (
        *(18, 60),  # ApiVersions, DescribeCluster
        *(19, 20, 37),  # topics: create, delete, add partitions
        *(29, 30, 31),  # access control lists
        *(32, 33, 44),  # configurations
        *(38, 39, 40, 41),  # delegation tokens
        *(43, 45, 46),  # elections and reassignments
        *(49, 50, 51),  # quotas: alter; SCRAM users
        *(55, 80, 81),  # the quorum
        *(57, 64),  # features, unregistering
    )
)


def refuse(request: type[Request[Any]]) -> None:
    """Raise UnsupportedEndpointType for what no controller serves."""
    if request.API_KEY not in SERVED:
        name = request.__name__.removesuffix("Request")
        raise UnsupportedEndpointType(
            f"{name}: controllers do not serve it: connect by bootstrap_servers"
        )


# -- Metadata

_FIRST_WITH_OPERATIONS = 8
_LAST_OF_THE_CLUSTER = 10  # then DescribeCluster tells


async def fetch_metadata(
    router: Router,
    topics: Sequence[str] | None,
    deadline: float,
    *,
    operations: bool = False,
    cluster_operations: bool = False,
    asked: set[int] | None = None,
) -> MetadataResponse:
    """Fetch metadata of these topics, or of all topics with None, from any broker that was not
    `asked` before, as `Router.to_any` does.

    Creates no topic. Without topics the brokers may be controllers, see `Router`. With `operations`
    also what the user may do with topics, and with `cluster_operations` with the cluster, where
    brokers can tell.
    """
    if router.is_for_controllers and topics is not None and not topics:
        return await router.all_nodes(deadline)
    call = _call(topics, operations, cluster_operations)

    async def attempt() -> MetadataResponse:
        response = await router.to_any(call, deadline, asked)
        if not response.brokers:
            # It has just started. That it knows of no topics and groups either says nothing.
            raise NoBrokersAvailable("the broker that was asked knows of no brokers yet")
        return response

    return _complete(await router.retry(attempt, deadline), topics)


async def metadata_of(
    router: Router, node_id: int, topics: Sequence[str], deadline: float
) -> MetadataResponse:
    """Fetch what one broker knows of these topics, in one attempt. Creates no topic."""
    return _complete(await router.send(node_id, _call(topics), deadline), topics)


def _call(
    topics: Sequence[str] | None, operations: bool = False, cluster_operations: bool = False
) -> Call[MetadataResponse]:
    def build(version: int) -> MetadataRequest:
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        if version < 4 and wanted:
            wanted = None  # Before version 4, asking for a topic by name may create it.
        if version == 0 and wanted is None:
            wanted = []  # In version 0 an empty list asks for all topics.
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=version < 4)
        if version >= _FIRST_WITH_OPERATIONS:
            request.include_topic_authorized_operations = operations
        if _FIRST_WITH_OPERATIONS <= version <= _LAST_OF_THE_CLUSTER:
            request.include_cluster_authorized_operations = cluster_operations
        return request

    return Call(MetadataRequest, build)


def _complete(response: MetadataResponse, topics: Sequence[str] | None) -> MetadataResponse:
    """Leave these topics in a response, in order; those it does not name are unknown."""
    if topics:
        found = {topic.name: topic for topic in response.topics}
        response.topics = [found.get(name) or _unknown(name) for name in topics]
    return response


def _unknown(name: str) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=UnknownTopicOrPartitionError.errno, name=name, is_internal=False, partitions=[]
    )


# -- Base class of `admin.topics`, `admin.groups` and so on


class AdminApi:
    """Calls about one noun, in an attribute of the admin client.

    A call raises IllegalStateError if the client is not started or is closed already.
    """

    def __init__(self, client: AIOKafkaAdminClient) -> None:
        self._client = client
        self._router = client._router

    def _deadline(self, timeout_ms: float | None) -> float:
        return self._client._deadline(timeout_ms)
