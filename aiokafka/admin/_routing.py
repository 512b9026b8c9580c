"""Send one admin request to a broker that can serve it, and retry it until a deadline.

`Router` chooses the broker: any broker, a named broker, the controller, or a coordinator. For
requests about several items, each of which has its own outcome, see the module `_items`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from aiokafka._compat import timeout_after_reading
from aiokafka._retry import Backoff, OutOfTimeError, until, within
from aiokafka._typing import later
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
from aiokafka.protocol.messages.metadata import (
    FindCoordinatorRequest,
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

Outcomes = Mapping[K, V | KafkaError]
"""The value or the error of each item (topic, partition, group ...) that a call is about."""
Send = Callable[[int, list[K]], Awaitable[Outcomes[K, V]]]
"""Sends a request about some items to a node, and returns the outcomes."""

# The error codes of a controller that is not active: the second is in responses to requests about
# the quorum, such as DescribeQuorum.
_NOT_ACTIVE = frozenset((NotControllerError.errno, NotLeaderForPartitionError.errno))
_NOT_CONTROLLER = frozenset((NotControllerError.errno,))
_UNKNOWN = frozenset((UnknownTopicOrPartitionError.errno, UnknownTopicId.errno))
_COORDINATOR_ERRORS = frozenset((14, 15, 16))  # loading, not available, another broker

# If another broker could serve the call, a broker has only this fraction of the remaining time for
# its response; after that, the call is sent to the other broker. The controller has a larger
# fraction, because its work may take longer. A coordinator from the cache has half of the time,
# because another broker may be the coordinator by now.
_PART_OF_ANY = 1 / 3
_PART_OF_CONTROLLER = _PART_OF_KNOWN = 1 / 2
# If a broker does not know a topic (or another item of a call), the request is sent to a second
# broker, because the metadata of the first may be outdated. The second broker has this many seconds
# for its response; after that, the response of the first broker is used.
_SECOND_OPINION = 1.0
# `Router.retry` cancels an attempt this many seconds after the deadline of the call, so that `send`
# can raise its own error first, which names the node, unlike the error of `retry`.
_LATE = 0.2


@dataclass(frozen=True)
class Call(Generic[R]):
    """A request that is built when it is sent, in the newest version that client and broker
    support."""

    request: type[Request[R]]
    """The class of the request; its versions are compared with those of the broker."""

    build: Callable[[int], Request[R]]
    """Returns the request for a version."""

    check: Callable[[R], object] = lambda response: None
    """Raises the error in a response, if there is one. `Router` retries a retriable error."""

    max_version: int | None = None
    """The newest version that `build` supports; None if it supports all versions."""


def call_of(request: Request[R], check: Callable[[R], object] = lambda response: None) -> Call[R]:
    """Return a Call that sends `request` unchanged, whatever the version."""
    return Call(type(request), lambda version: request, check)


class Router:
    """Sends calls to any broker, to a named broker, to the controller and to coordinators.

    The methods `to_*` retry until a deadline (loop time), with a backoff of `retry_backoff_ms` to
    `retry_backoff_max_ms`. At the deadline they raise KafkaTimeoutError, caused by the last error.
    If the response to a change is lost, the change is sent again, and the broker may then return an
    error such as TopicAlreadyExistsError.
    """

    def __init__(self, client: AIOKafkaClient, config: ClientConfig) -> None:
        self._client = client
        self._config = config
        self.is_for_controllers = config.is_for_controllers
        """Whether all requests go to controllers (`bootstrap_controllers`, KIP-919)."""

    def backoff(self) -> Backoff:
        """Return a Backoff from `retry_backoff_ms` to `retry_backoff_max_ms`."""
        return Backoff(self._config.retry_backoff, self._config.retry_backoff_max)

    async def to_any(self, call: Call[R], deadline: float, asked: set[int] | None = None) -> R:
        """Send the call to any broker; if all requests go to controllers, to the active controller.

        Brokers that have failed, and brokers in `asked`, are chosen only if there are no others.
        The broker that responds is added to `asked`.
        """
        if self.is_for_controllers:
            return await self.to_controller(call, deadline)
        failed = set(asked or ())

        async def attempt() -> R:
            node_id = self._any_node(failed)
            response = await self._send_in_part(node_id, call, deadline, _PART_OF_ANY, failed)
            if asked is not None:
                asked.add(node_id)
                failed.add(node_id)
            call.check(response)
            return response

        return await self._retry(attempt, deadline)

    async def to_two(self, call: Call[R], deadline: float) -> R:
        """Send the call to any broker, and to a second broker if the first does not know a topic.

        Returns the response with fewer unknown topics. Do not use this for changes: both brokers
        may make the change.
        """

        async def ask(_: object, until: float, asked: set[int]) -> dict[None, R]:
            return {None: await self.to_any(call, until, asked)}

        def is_better(second: R, first: R) -> bool:
            return _count_unknown(second) < _count_unknown(first)

        found = await self.ask_two(ask, None, _count_unknown, deadline, is_better)
        return found[None]

    async def ask_two(
        self,
        ask: Callable[[list[K] | None, float, set[int]], Awaitable[Mapping[K, T]]],
        items: list[K] | None,
        is_missing: Callable[[T], object],
        deadline: float,
        is_better: Callable[[T, T], bool] = lambda second, first: True,
    ) -> dict[K, T]:
        """Fetch items from any broker, and the items that it does not know from a second broker.

        A topic that one broker does not know may exist, because the metadata of that broker may be
        outdated. If the second broker fails, or does not respond within a second, the result of the
        first is returned. It is also returned if there is no second broker, or if all requests go
        to controllers.

        `ask` fetches the items (None for all) from one broker. Its other arguments are a deadline
        (loop time), and the set of brokers that were used before, to which `ask` adds its broker.
        `is_missing` returns whether the broker does not know the item. The outcome of the second
        broker replaces that of the first if `is_better(second, first)` returns True.
        """
        asked: set[int] = set()
        found = dict(await ask(items, deadline, asked))
        missing = [item for item, each in found.items() if is_missing(each)]
        is_only = self.is_for_controllers or asked.issuperset(self._client.cluster.node_ids)
        if missing and not is_only:
            until = min(deadline, asyncio.get_running_loop().time() + _SECOND_OPINION)
            with suppress(KafkaError):
                second = await ask(missing, until, asked)
                for item, each in second.items():
                    if item not in found or is_better(each, found[item]):
                        found[item] = each
        return found

    async def to_node(self, node_id: int, call: Call[R], deadline: float) -> R:
        """Send the call to a broker that the user has named. Raises the errors of
        `send_to_named`."""
        return await self.retry(lambda: self.send_to_named(node_id, call, deadline), deadline)

    async def to_controller(self, call: Call[R], deadline: float) -> R:
        """Send the call to the controller. With KRaft, any broker forwards it to the controller."""
        failed: set[int] = set()
        denials: set[int] = set()
        moved = _NOT_ACTIVE if self.is_for_controllers else _NOT_CONTROLLER

        async def attempt() -> R:
            controller = self._client.cluster.controller
            if controller is None or controller.nodeId in failed:
                # If the controller has failed, another broker may be the controller by now.
                node_id = self._any_node(failed)
            else:
                node_id = controller.nodeId
            response = await self._send_in_part(
                node_id, call, deadline, _PART_OF_CONTROLLER, failed
            )
            if not moved.isdisjoint(codes_in(response)):
                why = f"node {node_id} is not the controller"
                if node_id in denials:
                    # This node has denied a second time, although new metadata was requested after
                    # the first time. The broker that sends the metadata may be cut off from the
                    # rest of the cluster.
                    self._client.doubt_metadata(why)
                else:
                    self._client.request_metadata(why)
                denials.add(node_id)
                if controller is not None:
                    # Only the controller can serve the call. So try the controller of the metadata
                    # again, even if it has failed before.
                    failed.discard(controller.nodeId)
                raise NotControllerError(f"node {node_id}")
            call.check(response)
            return response

        return await self._retry(attempt, deadline)

    async def to_coordinator(
        self,
        key: str,
        call: Call[R],
        deadline: float,
        *,
        kind: CoordinationType = CoordinationType.GROUP,
    ) -> R:
        """Send the call to the coordinator of a group or transactional id.

        If any error code in the response means that the coordinator is loading, not available or
        another node, the call is retried, after a new lookup if the coordinator may have moved.
        """
        if self.is_for_controllers:
            refuse(FindCoordinatorRequest)

        async def ask(until: float, node_id: int) -> R:
            response = await self.send(node_id, call, until, deadline)
            for code in codes_in(response):
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
        """Return a function that calls `send`, but raises RequestTimedOutError early, after half of
        the remaining time or half of `request_timeout_ms`, whichever is longer.

        If the node is down, the next attempt finds the node that has replaced it. After the first
        timeout, new requests have all the remaining time, so that a node that is only slow can
        respond. Do not use this for changes: a slow node would make the change twice.
        """
        loop = asyncio.get_running_loop()
        has_timed_out = False

        async def send_in_half(node_id: int, items: list[K]) -> Outcomes[K, V]:
            nonlocal has_timed_out
            limit = max(deadline - loop.time(), self._config.request_timeout) / 2
            if has_timed_out or math.isinf(limit):
                return await send(node_id, items)
            try:
                async with timeout_after_reading(loop.time() + limit):
                    return await send(node_id, items)
            except asyncio.TimeoutError:
                has_timed_out = True
                text = f"node {node_id}: no response in {limit:.1f} s"
                raise RequestTimedOutError(text) from None

        return send_in_half

    async def all_nodes(self, deadline: float) -> MetadataResponse:
        """Fetch metadata without topics. For a client that is connected to controllers, its
        `brokers` are the controllers."""
        return await self.retry(lambda: self._client.fetch_all_topics(deadline), deadline)

    def learn(self, broker: BrokerMetadata | KafkaError) -> int | KafkaError:
        """Store the address of a broker and return its id; return an error unchanged."""
        if isinstance(broker, KafkaError):
            return broker
        self._client.update_leaders({}, (broker,))
        return broker.nodeId

    def _any_node(self, failed: set[int]) -> int:
        node_id = self._client.get_random_node(failed)
        if node_id is None:
            raise NoBrokersAvailable("no broker is known")
        return node_id

    async def _send_in_part(
        self, node_id: int, call: Call[R], deadline: float, part: float, failed: set[int]
    ) -> R:
        """Send once. If another broker that has not failed is known, limit the time of this attempt
        to the fraction `part` of the remaining time.

        After a retriable error, add the broker to `failed` and request new metadata.
        """
        now = asyncio.get_running_loop().time()
        until = deadline
        if set(self._client.cluster.node_ids) - failed - {node_id}:
            until = now + (deadline - now) * part
        try:
            return await self.send(node_id, call, until, deadline)
        except KafkaError as error:
            if error.retriable:
                failed.add(node_id)
                self._client.request_metadata(f"node {node_id}: {error}")
            raise

    async def send(
        self, node_id: int, call: Call[R], deadline: float, end: float | None = None
    ) -> R:
        """Send once, in the newest version that client and broker support.

        Raises RequestTimedOutError at the deadline (loop time), or `request_timeout_ms` after
        sending if that is earlier. While the broker throttles the client, both limits are extended,
        at most to `end`, the end of the whole call (default: the deadline). Raises
        KafkaTimeoutError without sending if `end` has passed. Raises UnsupportedEndpointType if all
        requests go to controllers, and controllers do not serve this request.
        """
        if self.is_for_controllers:
            refuse(call.request)
        loop, longest = asyncio.get_running_loop(), self._config.request_timeout
        limit = max(0.0, min(deadline - loop.time(), longest))
        connection = await self._client.connection(node_id, timeout=limit)
        version = connection.pick(call.request, call.max_version)
        now, end = loop.time(), deadline if end is None else end
        if end <= now:
            raise KafkaTimeoutError(
                f"node {node_id}: the timeout expired before the request was sent"
            )
        limit = max(0.0, min(deadline - now, longest))
        try:
            # `retry` cancels the attempt at the deadline + `_LATE`, with an error that does not
            # name the node. Time out half of `_LATE` earlier, with an error that names the node.
            end += _LATE / 2
            return await _response(connection, call.build(version), version, limit, end)
        except asyncio.TimeoutError:
            text = f"node {node_id}: no response in time: the broker throttles this client"
            raise RequestTimedOutError(text) from None

    async def send_to_named(self, node_id: int, call: Call[R], deadline: float) -> R:
        """Send once, as `send` does, to a broker that the user has named.

        If the broker is unknown, refresh the metadata first. Raises BrokerIdNotRegistered if the
        new metadata does not have it either. This error is not retriable, because retries for a
        mistyped id would take the whole time of the call.
        """
        if node_id not in self._client.cluster.node_ids:
            await self._look_for(node_id, deadline)
        response = await self.send(node_id, call, deadline)
        call.check(response)
        return response

    async def _look_for(self, node_id: int, deadline: float) -> None:
        """Refresh the metadata once. Raises NodeNotReadyError if this fails or takes until the
        deadline, and BrokerIdNotRegistered if the new metadata does not have this broker."""
        refreshed = self._client.force_metadata_update()
        left = deadline - asyncio.get_running_loop().time()
        await asyncio.wait([refreshed], timeout=max(0.0, left))
        if not (refreshed.done() and refreshed.result()):
            raise NodeNotReadyError(
                f"node {node_id} is unknown, and no broker has returned newer metadata"
            )
        known = sorted(self._client.cluster.node_ids)
        if node_id not in known:
            kind = "controller" if self.is_for_controllers else "broker"
            found = ", ".join(map(str, known)) or "none"
            raise BrokerIdNotRegistered(f"{kind} {node_id} is not running; running: {found}")

    async def retry(self, attempt: Callable[[], Awaitable[T]], deadline: float) -> T:
        """Repeat `attempt` while it raises a retriable error, until the deadline. Then raise
        KafkaTimeoutError."""
        # At the deadline, `send` raises an error that names the node. Cancel the attempt later, so
        # that `send` can raise this error.
        return await self._retry(within(deadline + _LATE, attempt), deadline)

    async def _retry(self, attempt: Callable[[], Awaitable[T]], deadline: float) -> T:
        """Repeat `attempt` as `retry` does, but do not cancel it: `attempt` itself must end at the
        deadline, as `send` does."""
        backoff = self.backoff()
        try:
            return await until(deadline, attempt, lambda _: backoff.next())
        except OutOfTimeError as late:
            reason = f"the last attempt: {late.failure}" if late.failure else "no broker responded"
            raise KafkaTimeoutError(f"timed out; {reason}") from late.failure


async def _response(
    connection: BrokerConnection, request: Request[R], version: int, limit: float, end: float
) -> R:
    """Send a request and return its response; raise RequestTimedOutError after `limit` seconds.

    While the broker throttles the client, the limit is extended, at most to `end` (loop time): then
    asyncio.TimeoutError is raised.

    After RequestTimedOutError, close the connection, unless another request awaits its response on
    the connection: the caller of that request would send it again, and so make a change twice.
    Requests that have timed out, and metadata requests, do not count as awaiting. A connection that
    stays open is retired: later calls use a new connection.
    """
    loop, gate = asyncio.get_running_loop(), connection.gate
    if not gate.is_open:
        async with timeout_after_reading(end):
            await gate.wait(limit)
    future = connection.send_nowait(request, version)
    began = max(loop.time(), gate.throttled_until)
    try:
        while (due := max(began, gate.throttled_until) + limit) > loop.time():
            if loop.time() >= end:
                raise asyncio.TimeoutError
            await asyncio.wait((future,), timeout=min(due, end) - loop.time())
            if future.done():
                return future.result()
    finally:
        if not future.cancel() and not future.cancelled():
            # If this call was cancelled, nothing else reads the exception, and asyncio would log it
            # as never retrieved.
            future.exception()
    late = f"{type(request).__name__} v{version} got no response in time"
    if not connection.awaited(MetadataRequest):
        connection.abort(KafkaConnectionError(f"{connection.peer}: closed because {late}"))
    else:
        connection.retire()
    raise RequestTimedOutError(f"{connection.peer}: {late}")


def remaining_ms(deadline: float) -> int:
    """Return the milliseconds until the deadline, from 1 to 2**31 - 1, as a request's timeout."""
    left = deadline - asyncio.get_running_loop().time()
    # An infinite deadline gives the maximum.
    return max(1, int(min(left * 1000, 2**31 - 1)))


def error_of(code: int, message: str | None, what: Any) -> KafkaError | None:
    """Return the error of an error code; None for code 0. `what`: the item, for the error text."""
    if not code:
        return None
    return for_code(code)(f"{what}: {message}" if message else str(what))


def raise_for(code: int, message: str | None, what: Any) -> None:
    """Raise the error of an error code, unless the code is 0. `what`: the item, for the error
    text."""
    error = error_of(code, message, what)
    if error is not None:
        raise error


def _count_unknown(response: Struct) -> int:
    return sum(code in _UNKNOWN for code in codes_in(response))


def codes_in(message: Struct) -> Iterator[int]:
    """Yield all error codes in a response, including those of nested structs."""
    for name in _fields_with_codes(type(message)):
        value = getattr(message, name)
        if name == "error_code":
            yield value
        elif value is not None:
            for item in value if isinstance(value, list) else (value,):
                yield from codes_in(item)


def _fields_with_codes(kind: type[Struct]) -> list[str]:
    """Return the fields that are error codes, or whose structs have error codes. Cached."""
    if kind not in _found_fields:
        _found_fields[kind] = found = []
        for each in fields(kind):
            element = each.type.element
            struct = each.type.struct if element is None else element.struct
            if each.name == "error_code" or (struct is not None and _fields_with_codes(struct)):
                found.append(each.name)
    return _found_fields[kind]


_found_fields: dict[type[Struct], list[str]] = {}


# -- Requests to controllers in place of brokers (KIP-919)

#: Keys of the APIs that a controller of Kafka 4.4 serves to clients.
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
        *(57, 64, 94),  # features, unregistering brokers and controllers
    )
)


def refuse(request: type[Request[Any]]) -> None:
    """Raise UnsupportedEndpointType if no controller serves this request."""
    if request.API_KEY not in SERVED:
        name = request.__name__.removesuffix("Request")
        raise UnsupportedEndpointType(
            f"{name}: controllers do not serve it: connect by bootstrap_servers"
        )


# -- Metadata

_FIRST_WITH_OPERATIONS = 8
# The last version with the authorized operations of the cluster; later, only DescribeCluster has
# them.
_LAST_OF_THE_CLUSTER = 10


async def fetch_metadata(
    router: Router,
    topics: Sequence[str] | None,
    deadline: float,
    *,
    operations: bool = False,
    cluster_operations: bool = False,
    asked: set[int] | None = None,
) -> MetadataResponse:
    """Fetch metadata of these topics (None: of all topics), without creating topics.

    `asked` is the same as for `Router.to_any`. With an empty list of topics, the response has only
    the brokers, or the controllers if all requests go to controllers. With `operations` and
    `cluster_operations`, the response has the authorized operations of topics and of the cluster,
    if the broker supports these fields. A topic that the broker does not know is in the response
    with UNKNOWN_TOPIC_OR_PARTITION.
    """
    if router.is_for_controllers and topics is not None and not topics:
        return await router.all_nodes(deadline)
    call = _call(topics, operations, cluster_operations)
    return _complete(await router.to_any(call, deadline, asked), topics)


def _refuse_empty(response: MetadataResponse) -> None:
    # A broker that has just started may not know any broker yet, and therefore no topics either.
    # This error is retriable.
    if not response.brokers:
        raise NoBrokersAvailable("the broker returned metadata without brokers")


async def metadata_of(
    router: Router, node_id: int, topics: Sequence[str], deadline: float
) -> MetadataResponse:
    """Fetch metadata of these topics from one broker, in a single attempt."""
    return _complete(await router.send(node_id, _call(topics), deadline), topics)


def _call(
    topics: Sequence[str] | None, operations: bool = False, cluster_operations: bool = False
) -> Call[MetadataResponse]:
    def build(version: int) -> MetadataRequest:
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        if version < 4 and wanted:
            # Before version 4, a request that names a topic may create the topic. Request all
            # topics instead.
            wanted = None
        if version == 0 and wanted is None:
            wanted = []  # In version 0, an empty list selects all topics.
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=version < 4)
        if version >= _FIRST_WITH_OPERATIONS:
            request.include_topic_authorized_operations = operations
        if _FIRST_WITH_OPERATIONS <= version <= _LAST_OF_THE_CLUSTER:
            request.include_cluster_authorized_operations = cluster_operations
        return request

    return Call(MetadataRequest, build, _refuse_empty)


def _complete(response: MetadataResponse, topics: Sequence[str] | None) -> MetadataResponse:
    """Keep only `topics` in a response, in the order of `topics`; add missing topics as unknown.

    Without `topics` (None or empty), return the response unchanged.
    """
    if topics:
        found = {topic.name: topic for topic in response.topics}
        response.topics = [found.get(name) or _unknown(name) for name in topics]
    return response


def _unknown(name: str) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=UnknownTopicOrPartitionError.errno, name=name, is_internal=False, partitions=[]
    )


class AdminApi:
    """Base class of the sub-clients, such as `admin.topics`.

    A call raises IllegalStateError if the admin client is not started or is closed.
    """

    def __init__(self, client: AIOKafkaAdminClient) -> None:
        self._client = client
        self._router = client._router

    def _deadline(self, timeout_ms: float | None) -> float:
        return self._client._deadline(timeout_ms)
