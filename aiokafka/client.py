"""Send a request to the right broker: bootstrap, metadata, coordinators, connections."""

from __future__ import annotations

import asyncio
import enum
import logging
import random
import socket
import warnings
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import lru_cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, overload

from aiokafka._compat import timeout_at
from aiokafka._config import ClientConfig, SecurityConfig, warn_ignored
from aiokafka._config.options import (
    apply_defaults,
    naming_defaults,
    refuse_unknown,
    show_options,
    with_options,
)
from aiokafka._health import Wait, Waits
from aiokafka._loading import is_compiled
from aiokafka._metadata.loop import (
    MetadataLoop,
    check_name,
    is_absent,
    wait_for_partition,
    wait_for_topic,
)
from aiokafka._retry import Backoff, OutOfTimeError, RetryNodes, until
from aiokafka._tasks import SharedStart, TaskOwner, made_for, refuse_other_loop
from aiokafka._telemetry import TelemetryReporter
from aiokafka._typing import Unpack, later
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import (
    BrokerResponseError,
    GroupCoordinatorNotAvailableError,
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    NodeNotReadyError,
    NotCoordinatorForGroupError,
    RequestTimedOutError,
    for_code,
)
from aiokafka.net._traffic import Traffic
from aiokafka.net.connection import BrokerConnection
from aiokafka.net.pool import ConnectionGroup, ConnectionPool
from aiokafka.protocol.messages.metadata import MetadataResponse
from aiokafka.protocol.schema import Request, Response
from aiokafka.protocol.versions import BrokerVersions
from aiokafka.structs import BrokerMetadata, TopicPartition

if TYPE_CHECKING:
    from aiokafka._upstream.messages import Request as OldRequest
    from aiokafka._upstream.messages import RequestStruct as OldStruct
    from aiokafka.metrics import MetricsSnapshot
    from aiokafka.options import ClientOptions
else:
    OldRequest = later("aiokafka._upstream.messages.Request")
    OldStruct = later("aiokafka._upstream.messages.RequestStruct")
    MetricsSnapshot = later("aiokafka.metrics.MetricsSnapshot")
    ClientOptions = later("aiokafka.options.ClientOptions")

__all__ = ["AIOKafkaClient", "ConnectionGroup", "CoordinationType"]

log = logging.getLogger("aiokafka")

R = TypeVar("R", bound=Response)
T = TypeVar("T")

# Errors of a request to a coordinator after which another broker may be the coordinator.
_MOVED = (NotCoordinatorForGroupError, GroupCoordinatorNotAvailableError, RequestTimedOutError)

# Largest number of entries in the coordinator cache: an admin client may look up all groups of a
# cluster. If there are more, the oldest entry is dropped.
_MOST_COORDINATORS = 1000

# Seconds that close() waits for tasks and for TLS close alerts; then it aborts the connections.
_CLOSE_TIMEOUT = 2.0


class CoordinationType(enum.IntEnum):
    """The `key_type` of FindCoordinator: the coordinator of a group, or of a transactional id."""

    GROUP = 0
    TRANSACTION = 1


# The likely reason why brokers cannot create the internal topic of the coordinators: their
# COORDINATOR_NOT_AVAILABLE responses name no reason.
_HINTS: dict[int, str] = {
    CoordinationType.GROUP: (
        " (if this stays so, there may be fewer brokers than offsets.topic.replication.factor)"
    ),
    CoordinationType.TRANSACTION: (
        " (if this stays so, there may be fewer brokers than "
        "transaction.state.log.replication.factor)"
    ),
}


@with_options({"_config": ClientConfig, "_config.security": SecurityConfig})
class AIOKafkaClient:
    """Connections to one cluster, and its metadata. Producers, consumers and admin clients use it.

    Create the client in a running event loop, and use it in that loop only. Owns: the metadata
    task, the connection pool, the cache of coordinators.

    Options, as keyword arguments (times in milliseconds, sizes in bytes):

    - `bootstrap_servers="localhost"`: Brokers to connect to first, or a function that returns them;
      they return the addresses of all other brokers. The port is 9092 if none is given. A function
      or coroutine function is called whenever the client connects to them, also after an outage of
      all known brokers.
    - `client_dns_lookup="use_all_dns_ips"`: use_all_dns_ips: connect to the names in
      bootstrap_servers as they are. resolve_canonical_bootstrap_servers_only: replace each name by
      the canonical host names of its addresses, which Kerberos needs for an alias (KIP-235).
    - `bootstrap_resolve_timeout_ms=0`: Time for which start() repeats the look-up of the names in
      bootstrap_servers until one of them has an address (KIP-909); 0: a single look-up.
    - `client_id`: Name of the client in the broker's logs, quotas and metrics; None for the
      default.
    - `request_timeout_ms=40000`: Time to wait for the response to a request.
    - `retry_backoff_ms=100`: Time to wait before a failed request is sent again; doubles after
      every further failure.
    - `retry_backoff_max_ms=1000`: Maximum time between two attempts of a request.
    - `reconnect_backoff_ms=50`: Time to wait before the client connects to a broker again after a
      failure; doubles after every further failure.
    - `reconnect_backoff_max_ms=1000`: Maximum time between two attempts to connect to a broker.
    - `socket_connection_setup_timeout_ms=10000`: Time in which a connection has to be established,
      authentication included; doubles after every failure, until a connection succeeds.
    - `socket_connection_setup_timeout_max_ms=30000`: Maximum of the time in which a connection has
      to be established.
    - `connections_max_idle_ms=540000`: Close a connection that was not used for this time; None:
      never.
    - `metadata_max_age_ms=300000`: Refresh the metadata of the cluster at least this often.
    - `metadata_max_idle_ms=300000`: Remove a topic from the metadata if it was not used for this
      time (KIP-526).
    - `metadata_recovery_rebootstrap_trigger_ms=300000`: Connect to bootstrap_servers again if no
      known broker returns metadata: as soon as all known brokers have been tried, or at the latest
      after this time; None: never.
    - `metadata_cluster_check_enable=True`: Let each broker check on connect that it is the expected
      node of the expected cluster; if not, connect to bootstrap_servers again (KIP-1242, Kafka
      4.4). No effect if metadata_recovery_rebootstrap_trigger_ms is None.
    - `receive_message_max_bytes=268435456`: Reject a response that is larger than this number of
      bytes.
    - `allow_auto_create_topics=True`: Let a broker create a missing topic when the client requests
      its metadata, if the broker is configured so (auto.create.topics.enable).
    - `enable_metrics_push=True`: Push metrics to brokers that request them (KIP-714). In an admin
      client the default is False.
    - `client_rack=None`: Rack of the client. A consumer fetches from a replica in this rack
      (KIP-392, Kafka 2.4), and the group's assignor may prefer partitions with a replica in it. A
      producer uses it with partitioner_rack_aware. Other clients do not use it.
    - `dialer=None`: Function or coroutine function that gets a BrokerAddress before each connect,
      and returns another address to connect to, a connected socket, a Dialed, or None for the
      address as it is. TLS checks the advertised host name.
    - `proxy_url=None`: Proxy for all connections: socks5://host:port, socks4://host:port or
      http://host:port (HTTP CONNECT), with user:password@ before the host if the proxy needs it.
      The proxy resolves the names of brokers.
    - `broker_address_family="any"`: IP version of the addresses to which host names are resolved.
    - `send_buffer_bytes=None`: Size of the system's send buffer of a connection (SO_SNDBUF); None:
      the system adapts it.
    - `receive_buffer_bytes=None`: Size of the system's receive buffer of a connection (SO_RCVBUF);
      None: the system adapts it.
    - `socket_options=()`: Options of sockets as (level, option, value), as setsockopt takes them.
      Connections have TCP_NODELAY and SO_KEEPALIVE anyway.
    - `security_protocol="PLAINTEXT"`: Protocol of the brokers' listener: with or without TLS, with
      or without SASL.
    - `ssl_context=None`: TLS settings, or a function that returns them for each new connection;
      required for SSL and SASL_SSL.
    - `sasl_mechanism="PLAIN"`: SASL mechanism, for SASL_PLAINTEXT and SASL_SSL: a name, or an
      aiokafka.abc.AbstractSaslMechanism for a mechanism of the application.
    - `sasl_plain_username=None`: User name for PLAIN and SCRAM, or a function that returns it for
      each authentication.
    - `sasl_plain_password=None`: Password for PLAIN and SCRAM, or a function that returns it for
      each authentication.
    - `sasl_scram_tokenauth=False`: With SCRAM: authenticate by a delegation token. The user name is
      the id of the token, the password its HMAC in base64 (KIP-48).
    - `sasl_kerberos_service_name="kafka"`: Service name of the brokers for GSSAPI: the first part
      of their principals.
    - `sasl_kerberos_domain_name=None`: Host name in the principal of the broker, for GSSAPI; by
      default the host name of the connection.
    - `sasl_kerberos_principal=None`: Principal of the client for GSSAPI; by default the principal
      of the ticket cache, or the first principal of the keytab.
    - `sasl_kerberos_keytab=None`: Path of a keytab with which tickets are obtained, for GSSAPI; by
      default the environment variables KRB5CCNAME and KRB5_CLIENT_KTNAME apply.
    - `sasl_oauth_token_provider=None`: Source of tokens for OAUTHBEARER.
    """

    def __init__(
        self,
        config: ClientConfig | None = None,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        api_version: str | None = None,
        subject: str | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        """Create a client from a `config` or from options.

        Args:
            config: The configuration; None: a configuration with the given options.
            loop: The event loop to use if none is running (deprecated).
            api_version: Has no effect (deprecated).
            subject: The name of the client in log lines; by default its client id.

        Raises ValueError or TypeError naming a wrong option, RuntimeError if no event loop is
        running and none is given.
        """
        warn_ignored(api_version=api_version)
        refuse_unknown(type(self).__name__, options, ClientConfig, SecurityConfig)
        if config is None:
            given, applied = apply_defaults("client", options)
            with naming_defaults(applied):
                config = ClientConfig.from_options(**given)
            config.note_defaults(applied)
        self._config = config
        with made_for(loop, type(self).__name__) as self._loop:
            subject = subject or f"Client {self._config.client_id}"
            self._metadata = MetadataLoop(self._config, subject)
            self.waits = Waits(log, subject)
            self._traffic = Traffic()
            self.telemetry = TelemetryReporter(self._config, self._metadata)
            self._open()
        self._coordinators: dict[tuple[int, str], int] = {}
        self._starts = SharedStart()
        self._is_started = False
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<AIOKafkaClient client_id={self._client_id}>"

    def __del__(self) -> None:
        if getattr(self, "_is_started", False) and not self._is_closed:
            warnings.warn(f"Unclosed {self!r}", ResourceWarning, source=self, stacklevel=1)

    # -- start and close

    async def bootstrap(self) -> None:
        """Get the first metadata from the bootstrap servers, and start the background tasks.

        Raises one KafkaConnectionError with the reason of every server, at the latest after
        `request_timeout_ms`; with `bootstrap_resolve_timeout_ms`, this time begins when a name was
        resolved. AuthenticationFailedError or UnsupportedVersionError of a server are raised
        unchanged. After a failure or a cancellation every connection is closed, and `bootstrap` can
        be called again. Concurrent calls share one outcome; if one call is cancelled, another call
        continues the work.
        """
        self._refuse_other_loop()
        if not self._is_started:
            await self._starts.run(self._bootstrap, self._undo_bootstrap)

    async def _bootstrap(self) -> None:
        if self._is_started:
            return
        self._owner.check()
        self._owner.keep_context()
        _mention_pure_python()
        self._mention_defaults()
        if self.waits.is_followed:
            self._owner.start(self.waits.run(), name="waits")
        if self._config.bootstrap_resolve_timeout:
            with self.waits.on("a name in bootstrap_servers that can be resolved"):
                await self._metadata.resolve_bootstrap_servers()
        deadline = self._loop.time() + self._config.request_timeout
        with self.waits.on("metadata from the bootstrap servers"):
            await self._metadata.bootstrap(self._pool, deadline)
        self._owner.start(self._metadata.run(self._pool), name="metadata")
        self._owner.start(self.telemetry.run(self._pool), name="telemetry")
        self._is_started = True

    def _mention_defaults(self) -> None:
        extra = {"client_id": self._config.client_id}
        for text in self._config.applied_defaults:
            log.info("%s: %s", self._config.client_id, text, extra=extra)

    async def _undo_bootstrap(self) -> None:
        try:
            await self._stop()
        finally:
            self._owner.cancel()
            self._pool.abort()
            self._open()

    async def close(self) -> None:
        """Stop the background tasks and close every connection; in-flight requests fail. Closing
        takes a few seconds at most.

        `close` may be called any number of times, also after a cancelled call.
        """
        self._refuse_other_loop()
        self._is_closed = True
        self._metadata.fail(IllegalStateError("the client is closed"))
        await self._stop()

    def abort(self) -> None:
        """Cancel the background tasks and abort every connection, without waiting. After a complete
        `close()` the call has no effect."""
        self._is_closed = True
        self._metadata.fail(IllegalStateError("the client is closed"))
        self._owner.cancel()
        self._pool.abort()

    def disown(self) -> None:
        """Suppress the ResourceWarning about this unclosed client, because the producer or consumer
        that created the client warns about itself."""
        self._is_closed = True

    async def __aenter__(self) -> AIOKafkaClient:
        await self.bootstrap()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        try:
            await self.close()
        finally:
            # If close() was cancelled, no caller will close the client again.
            self.abort()

    async def _stop(self) -> None:
        deadline = self._loop.time() + _CLOSE_TIMEOUT
        await self._owner.stop(deadline)
        await self.telemetry.finish(self._pool)
        await self._pool.close(deadline)

    def _refuse_other_loop(self) -> None:
        refuse_other_loop(self._loop, type(self).__name__)

    def _open(self) -> None:
        # Background tasks hold no reference to the client, so that an unclosed client can be
        # garbage-collected. An exception of the metadata task or a connect task is a bug;
        # `_metadata.fail` then fails all metadata waits.
        self._owner = TaskOwner(self._config.client_id, self._metadata.fail)
        self._pool = ConnectionPool(self._config, self._metadata, self._owner, self._traffic)

    # -- requests

    @overload
    async def send(
        self,
        node_id: int | None,
        request: Request[R],
        *,
        group: int = ...,
        max_version: int | None = ...,
        timeout: float | None = ...,
        on_response: Callable[[R], None] | None = ...,
    ) -> R: ...

    @overload
    async def send(
        self,
        node_id: int | None,
        request: OldRequest | OldStruct,
        *,
        group: int | None = ...,
        timeout: float | None = ...,
    ) -> Any: ...

    async def send(
        self,
        node_id: int | None,
        request: Any,
        *,
        group: int | None = ConnectionGroup.DEFAULT,
        max_version: int | None = None,
        timeout: float | None = None,
        on_response: Callable[[Any], None] | None = None,
    ) -> Any:
        """Send `request` to a broker, in the newest version that the client and the broker have in
        common, and return its response.

        `group` (a ConnectionGroup) selects one of the connections to the broker; `max_version`
        limits the version of the request. Without a connection the call makes one attempt to
        connect; it waits while the connection is throttled. `timeout` is in seconds, by default
        `request_timeout_ms`; it limits the connect and the wait for the response separately. The
        caller checks the error codes in the response. Raises KafkaConnectionError,
        NodeNotReadyError, RequestTimedOutError (all retriable), UnsupportedVersionError. A
        cancelled call drops the response; the broker may have processed the request.

        Requests from the modules of aiokafka 0.14 (`aiokafka.protocol.admin`, `.group` and others)
        choose their version themselves; the response has the same version, and consists of tuples.
        For other requests, `on_response` is called with the response as soon as it is read;
        exceptions of `on_response` propagate to the caller.
        """
        if asyncio.get_running_loop() is not self._loop:
            self._refuse_other_loop()
        if node_id is None:  # from get_random_node()
            raise NodeNotReadyError("no broker is known")
        if group is None:  # as aiokafka 0.14 accepts it
            group = ConnectionGroup.DEFAULT
        connection = self._pool.usable(node_id, group)
        if connection is None:
            connection = await self.connection(node_id, group=group, timeout=timeout)
        if not isinstance(request, Request):
            return await _send_tuples(connection, request, timeout)
        version = connection.pick(type(request), max_version)
        return await connection.request(
            request, version=version, timeout=timeout, on_response=on_response
        )

    def send_nowait(
        self,
        node_id: int,
        request: Request[R],
        *,
        group: int = ConnectionGroup.DEFAULT,
        max_version: int | None = None,
        timeout: float | None = None,
    ) -> asyncio.Future[R]:
        """Send `request` on the open connection to a broker; return a future of the response.

        `timeout` is in seconds, by default `request_timeout_ms`. Raises NodeNotReadyError without
        an open connection (call `await ready(node_id)` first) and while the connection
        re-authenticates, KafkaConnectionError, and UnsupportedVersionError.
        """
        connection = self._pool.find(node_id, group)
        if connection is None:
            raise NodeNotReadyError(f"node {node_id}: not connected")
        version = connection.pick(type(request), max_version)
        return connection.send_nowait(request, version, timeout)

    def usable_connection(
        self, node_id: int, group: int = ConnectionGroup.DEFAULT
    ) -> BrokerConnection | None:
        """Return the open connection to a broker for new requests, None without one.

        Raises IllegalStateError in another event loop, and a copy of the error that has ended a
        background task.
        """
        if asyncio.get_running_loop() is not self._loop:
            self._refuse_other_loop()
        if self._owner.failure is not None:
            self._owner.check()
        return self._pool.usable(node_id, group)

    async def connection(
        self,
        node_id: int,
        group: int = ConnectionGroup.DEFAULT,
        *,
        timeout: float | None = None,
    ) -> BrokerConnection:
        """Return the open connection to a broker; if there is none, make one attempt to connect.

        Raises the errors of `send`. `timeout` is in seconds, by default `request_timeout_ms`.
        """
        connection = self.usable_connection(node_id, group)
        if connection is not None:
            return connection
        limit = self._config.request_timeout if timeout is None else timeout
        try:
            async with timeout_at(self._loop.time() + limit):
                return await self._pool.connect(node_id, group)
        except asyncio.TimeoutError:
            raise NodeNotReadyError(f"node {node_id}: no connection in {limit:g} s") from None
        except KafkaConnectionError:
            why = f"cannot connect to node {node_id}"
            if self.cluster.broker_metadata(node_id) is None:
                # A response named this node, but the metadata does not list it: the broker that
                # sent the metadata lags behind.
                self.doubt_metadata(why)
            else:
                self.request_metadata(why)
            raise

    async def ready(self, node_id: int | None, *, group: int = ConnectionGroup.DEFAULT) -> bool:
        """Return whether there is an open connection to the broker, after at most one attempt to
        connect. Log a KafkaError of the attempt at debug level, and return False."""
        if node_id is None:
            return False
        try:
            await self.connection(node_id, group)
        except KafkaError as error:
            log.debug("node %s is not ready: %s", node_id, error)
            return False
        return True

    def versions(self, node_id: int) -> BrokerVersions | None:
        """Return the API versions and features of a broker; None before the first connection."""
        return self._pool.versions(node_id)

    def throttled_until(self, node_id: int | None) -> float:
        """Return the loop time until which a broker throttles this client (KIP-219). The time is in
        the past if the broker does not throttle the client; it is 0 for `node_id` None."""
        return 0.0 if node_id is None else self._pool.throttled_until(node_id)

    def get_random_node(self, avoid: Collection[int] = ()) -> int | None:
        """Return the id of a random known broker; None without a known broker.

        Avoids the brokers in `avoid`, brokers that were unreachable at the last attempt, and
        brokers whose connection cannot be used now, for example because the broker throttles this
        client. Returns one of these brokers only if no other broker is left.
        """
        nodes = [node for node in self.cluster.node_ids if node not in avoid]
        nodes = nodes or list(self.cluster.node_ids)
        pool = self._pool
        usable = [n for n in nodes if not (pool.is_unreachable(n) or pool.is_held_up(n))]
        return random.choice(usable or nodes) if nodes else None

    def controller(self) -> int | None:
        """Return the node id of the controller, None if unknown."""
        controller = self.cluster.controller
        return None if controller is None else controller.nodeId

    def metrics(self, role: str = "client") -> MetricsSnapshot:
        """Return the metrics of the connections and the metadata; the names of the metric groups
        begin with `role`."""
        open_now = len(self._pool.connections())
        age = self._metadata.age
        return self._traffic.read(self._config.client_id, role, open_now, age)

    # -- metadata

    if TYPE_CHECKING:

        @property
        def cluster(self) -> ClusterMetadata:
            """The current snapshot of the cluster; a new object after every refresh."""

    else:
        # Each request reads `cluster` several times; an attrgetter is faster than a function.
        cluster = property(
            attrgetter("_metadata.cluster"),
            doc="The current snapshot of the cluster; a new object after every refresh.",
        )

    @property
    def metadata_refresh(self) -> int:
        """The number of the last metadata response that `cluster` includes. Leaders from error
        responses (KIP-951) do not change this number."""
        return self._metadata.answered

    @property
    def config(self) -> ClientConfig:
        """The configuration of the client."""
        return self._config

    @property
    def hosts(self) -> list[tuple[str, int, int]]:
        """The bootstrap servers as (host, port, address family)."""
        return [(host, port, _family(host)) for host, port in self._config.bootstrap_servers]

    @property
    def metadata_failure(self) -> tuple[float, KafkaError] | None:
        """The loop time of the first failed refresh since the last success, and the last error;
        None after a success."""
        error = self._metadata.error
        return None if error is None else (self._metadata.failing_since, error)

    def request_metadata(self, why: str) -> None:
        """Request a metadata refresh; several requests are served by one refresh. `why` is logged
        at debug level."""
        self._metadata.request_update(why)

    def doubt_metadata(self, why: str) -> None:
        """Request a metadata refresh, but not from the broker of the last refresh: that broker may
        have lost its connections to the other brokers."""
        self._metadata.doubt(why)

    def look_for_leader(self, partition: TopicPartition, why: str) -> None:
        """Request a metadata refresh because `partition` has no known leader. If the topic is
        known, the request has a short timeout, and does not go to the broker of the last refresh:
        the metadata of that broker may be outdated."""
        if self.cluster.known_partitions(partition.topic) is not None:
            self._metadata.look_elsewhere()
        self._metadata.request_update(why)

    def metadata_changed(self) -> asyncio.Future[None]:
        """Return a future that resolves at the next snapshot or failed refresh; request nothing."""
        return self._metadata.changed()

    async def wait_for_metadata(
        self,
        predicate: Callable[[ClusterMetadata], Any],
        deadline: float,
        why: str = "waiting for a change",
    ) -> ClusterMetadata:
        """Request refreshes until `predicate` is true for a snapshot; return that snapshot.

        Raises KafkaTimeoutError at `deadline` (loop time) with the last failure as its cause, and
        authentication errors at once.
        """
        return await self._metadata.wait_for(predicate, deadline, why)

    async def wait_for_topic(self, topic: str, deadline: float) -> frozenset[int]:
        """Return the partitions of `topic`, and keep the topic in the metadata from now on.

        Raises at `deadline` (loop time): UnknownTopicOrPartitionError if brokers report the topic
        as unknown, KafkaTimeoutError if no broker responds. Raises at once:
        TopicAuthorizationFailedError, InvalidTopicError, and ValueError or TypeError for an invalid
        name.
        """
        with self._wait_on(topic):
            return await wait_for_topic(self._metadata, topic, deadline)

    async def wait_for_partition(
        self, partition: TopicPartition, deadline: float
    ) -> frozenset[int]:
        """Return the partitions of the topic of `partition`; refresh the metadata first if
        `partition` is unknown.

        Raises the errors of `wait_for_topic`.
        """
        with self._wait_on(partition.topic):
            return await wait_for_partition(self._metadata, partition, deadline)

    def _wait_on(self, topic: str) -> Wait:
        """Return a context manager for a call that waits for the partitions of a topic. It reports
        a long wait in the log and in `health().stalled`."""

        def why() -> BaseException | None:
            code = self.cluster.topic_error(topic)
            return for_code(code)(f"topic {topic!r}") if code else self._metadata.error

        def is_logged() -> bool:
            # MetadataLoop has logged the failed refresh, AbsenceLog the unusable topic.
            return self._metadata.error is not None or is_absent(self.cluster, topic)

        return self.waits.on(f"partitions of topic {topic!r}", why=why, is_logged=is_logged)

    def refuse_waiters(self, error: BaseException) -> None:
        """Make all present and later waits for metadata raise a copy of `error`. A producer
        calls this when it stops, before it closes the client. Background tasks continue.
        """
        self._metadata.refuse_waiters(error)

    async def _wait_on_metadata(self, topic: str) -> set[int]:
        """Return the partitions of `topic` like `wait_for_topic`, within `request_timeout_ms`. This
        is the method of aiokafka 0.14 that instrumentation libraries wrap."""
        deadline = self._loop.time() + self._config.request_timeout
        return set(await self.wait_for_topic(topic, deadline))

    def add_topic(self, topic: str) -> asyncio.Future[bool]:
        """Keep `topic` in the metadata until `metadata_max_idle_ms` after the last call (KIP-526).

        Metadata of a new topic is requested at once. The future's result is whether the partitions
        of the topic are known after the next response. Raises the errors of `set_topics`.
        """
        check_name(topic)
        return self._known_soon((topic,), self._metadata.add_topic(topic))

    def touch_topic(self, topic: str) -> None:
        """Keep `topic` in the metadata as `add_topic` does, without the cost of a future."""
        check_name(topic)
        self._metadata.add_topic(topic)

    def set_topics(self, topics: Iterable[str]) -> asyncio.Future[bool]:
        """Keep exactly `topics`, and the topics of `add_topic`, in the metadata until the next
        `set_topics`.

        Metadata of new topics is requested at once. The future's result is whether the partitions
        of all topics are known after the next response. Raises ValueError for a name that is empty
        or cannot be encoded, TypeError for a name that is no string.
        """
        names = tuple(topics)
        for name in names:
            check_name(name)
        return self._known_soon(names, self._metadata.set_topics(names))

    def watch_all_topics(self) -> None:
        """Keep every topic of the cluster in the metadata, for pattern subscriptions, until the
        next `set_topics`."""
        self._metadata.want_all_topics()

    def force_metadata_update(self) -> asyncio.Future[bool]:
        """Request a metadata refresh of the topics in use; of all topics if no topic is in use. The
        future's result is whether the next refresh succeeded."""
        return self._metadata.force_update()

    def _known_soon(self, topics: Iterable[str], are_known: bool) -> asyncio.Future[bool]:
        if not are_known:
            return self._metadata.next_refresh(topics)
        known: asyncio.Future[bool] = self._loop.create_future()
        known.set_result(True)
        return known

    async def fetch_all_metadata(self) -> ClusterMetadata:
        """Return a snapshot of all topics of the cluster, without changing `cluster`.

        Raises the errors of `fetch_all_topics`.
        """
        return ClusterMetadata().updated(await self.fetch_all_topics())

    async def fetch_all_topics(self, deadline: float | None = None) -> MetadataResponse:
        """Return a metadata response about all topics, which costs less than a snapshot.

        Sends the request to one broker after the other until one responds. Each broker gets a part
        of the time until `deadline` (loop time); the caller must cancel this call at the deadline.
        Raises the error of the last broker or of the bootstrap servers, and KafkaConnectionError if
        no broker is known.
        """
        self._owner.check()
        if not self.cluster.node_ids:
            raise KafkaConnectionError("no broker is known: bootstrap() first")
        return await self._metadata.fetch_all(self._pool, deadline)

    def update_leader(
        self,
        partition: TopicPartition,
        leader_id: int,
        epoch: int,
        endpoint: BrokerMetadata | None = None,
    ) -> None:
        """Update the leader of a partition from an error response (KIP-951). A leader whose `epoch`
        is not newer than the known epoch is ignored."""
        self.update_leaders(
            {partition: (leader_id, epoch)}, () if endpoint is None else (endpoint,)
        )

    def update_leaders(
        self,
        leaders: Mapping[TopicPartition, tuple[int, int]],
        endpoints: Iterable[BrokerMetadata] = (),
    ) -> None:
        """Update the leaders of all partitions of one error response, like `update_leader`.
        `leaders` has (leader id, epoch) pairs."""
        self._metadata.update_leaders(leaders, endpoints)

    # -- coordinators

    async def coordinator(
        self,
        kind: int,
        key: str,
        deadline: float,
        on_failure: Callable[[KafkaError], None] | None = None,
    ) -> int:
        """Return the node id of the coordinator of the group or transactional id `key`, from the
        cache or by a lookup.

        `kind` is a CoordinationType. After a retriable error `on_failure` is called, and the lookup
        is retried. Raises KafkaTimeoutError at `deadline` (loop time) with the last failure as its
        cause; errors that are not retriable, such as authorization errors, at once.
        """
        known = self._coordinators.get((kind, key))
        if known is not None and self.cluster.broker_metadata(known) is not None:
            return known
        backoff = Backoff(self._config.retry_backoff, self._config.retry_backoff_max)

        def is_logged() -> bool:
            # The caller logs the failures that `on_failure` reports.
            return on_failure is not None and waiting.error is not None

        waiting = self.waits.on(f"the coordinator of {key!r}", is_logged=is_logged)

        def pause(error: KafkaError) -> float:
            log.debug("no coordinator for %r: %s", key, error)
            waiting.note(error)
            if on_failure is not None:
                on_failure(error)
            return backoff.next()

        nodes, find = RetryNodes(self), partial(self._find_coordinator, kind, key)
        try:
            with waiting:
                return await until(deadline, lambda: nodes.ask(find, deadline), pause)
        except OutOfTimeError as late:
            failure = late.failure
            reason = f": {failure}" if failure is not None else ""
            hint = _HINTS[kind] if isinstance(failure, GroupCoordinatorNotAvailableError) else ""
            text = f"no coordinator for {key!r} in time{reason}{hint}"
            raise KafkaTimeoutError(text) from failure

    async def ask_coordinator(
        self,
        kind: int,
        key: str,
        deadline: float,
        ask: Callable[[int], Awaitable[T]],
        on_failure: Callable[[KafkaError], None] | None = None,
    ) -> T:
        """Call `ask` with the node id of the coordinator of `key`, and return its result.

        `ask` must send the request, and raise the error of the response. If the error may mean that
        the coordinator moved, the next call looks the coordinator up again. This call does not
        retry. Raises the errors of `ask`, and those of `coordinator` if the lookup fails.
        """
        node_id = await self.coordinator(kind, key, deadline, on_failure)
        try:
            return await ask(node_id)
        except KafkaError as error:
            self.coordinator_failed(kind, key, error)
            raise
        except asyncio.TimeoutError:
            # The coordinator may have moved, and `ask` had no time left to find out.
            self.forget_coordinator(kind, key, "no response in time")
            raise

    def known_coordinator(self, kind: int, key: str) -> int | None:
        """Return the node id of the coordinator of `key` if it is in the cache, else None."""
        return self._coordinators.get((kind, key))

    def address_of_node(self, node_id: int) -> str:
        """Return `host:port` of a broker, "" if the metadata does not list it."""
        broker = self.cluster.broker_metadata(node_id)
        return "" if broker is None else f"{broker.host}:{broker.port}"

    def address_of_coordinator(self, kind: int, key: str) -> str:
        """Return `host:port` of the cached coordinator of `key`; "" without one, or if the metadata
        does not list that broker."""
        node_id = self._coordinators.get((kind, key))
        return "" if node_id is None else self.address_of_node(node_id)

    def coordinator_failed(self, kind: int, key: str, error: KafkaError) -> None:
        """Handle `error`, the error of a request to the coordinator of `key`. If another broker may
        be the coordinator now, remove the coordinator from the cache."""
        if _may_have_moved(error):
            self.forget_coordinator(kind, key, str(error))

    def forget_coordinator(self, kind: int, key: str, why: str) -> None:
        """Remove the coordinator of `key` from the cache; the next request looks it up again."""
        if self._coordinators.pop((kind, key), None) is not None:
            log.debug("coordinator of %r forgotten: %s", key, why)

    async def coordinator_lookup(self, coordinator_type: int, coordinator_key: str) -> int:
        """Look up a coordinator without the cache, within `request_timeout_ms`; return its node
        id."""
        self.forget_coordinator(coordinator_type, coordinator_key, "asked for by the application")
        deadline = self._loop.time() + self._config.request_timeout
        return await self.coordinator(coordinator_type, coordinator_key, deadline)

    async def _find_coordinator(self, kind: int, key: str, node_id: int) -> int:
        # Import these modules only for clients with a group or a transaction.
        from aiokafka._coordinator_lookup import coordinators_in, lookup_of
        from aiokafka.protocol.messages.metadata import FindCoordinatorRequest

        connection = await self.connection(node_id)
        version = connection.pick(FindCoordinatorRequest)
        response = await connection.request(lookup_of(version, kind, [key]), version=version)
        found = coordinators_in(response, {key: f"coordinator of {key!r}"})[key]
        if isinstance(found, KafkaError):
            raise found
        self._metadata.update_leaders({}, (found,))
        self._coordinators[kind, key] = found.nodeId
        if len(self._coordinators) > _MOST_COORDINATORS:
            del self._coordinators[next(iter(self._coordinators))]  # the oldest entry
        return found.nodeId

    # -- attributes of aiokafka 0.14 that programs read

    @property
    def api_version(self) -> tuple[int, int, int]:
        """The newest Kafka release whose features all connected brokers have, for programs written
        for aiokafka before 0.13."""
        found = (self._pool.versions(node) for node in self.cluster.node_ids)
        known = [versions.release for versions in found if versions is not None]
        return min(known, default=(0, 9, 0))

    _client_id = property(lambda self: self._config.client_id)
    _topics = property(lambda self: set(self._metadata.topics.names()))


def _may_have_moved(error: KafkaError) -> bool:
    """Return whether the coordinator may have moved, if a request to it raised `error`.

    NOT_COORDINATOR and COORDINATOR_NOT_AVAILABLE mean that the coordinator moved. After a timeout
    or a lost connection the coordinator may have moved. All other error responses, such as
    COORDINATOR_LOAD_IN_PROGRESS, come from the coordinator.
    """
    return isinstance(error, _MOVED) or not isinstance(error, BrokerResponseError)


async def _send_tuples(
    connection: BrokerConnection,
    request: OldRequest | OldStruct,
    timeout: float | None,
) -> Any:
    known = connection.versions
    struct = request.prepare({} if known is None else known.api_versions)
    answer = connection.request(struct.message(), version=struct.API_VERSION, timeout=timeout)
    return struct.answer(await answer)


show_options(AIOKafkaClient.__init__, ClientConfig, SecurityConfig)


def _family(host: str) -> socket.AddressFamily:
    """Return the address family of a numeric `host`; AF_UNSPEC for a host name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            continue
        return family
    return socket.AF_UNSPEC


@lru_cache(maxsize=1)
def _mention_pure_python() -> None:
    """Log one line, once in a process, if the package is not compiled."""
    if not is_compiled():
        log.info(
            "aiokafka runs as pure Python, several times slower per record than compiled: install "
            "it where there is a C compiler, and run it without AIOKAFKA_NO_EXTENSIONS in the main "
            "interpreter"
        )
