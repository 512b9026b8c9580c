"""The connections of a client, by node id and purpose: connects, backoff, idle connections."""

from __future__ import annotations

import asyncio
import enum
import logging
import weakref
from typing import TYPE_CHECKING

from aiokafka._retry import Backoff
from aiokafka._subject import about
from aiokafka.errors import (
    IllegalStateError,
    KafkaConnectionError,
    KafkaError,
    RebootstrapRequired,
    renewed,
)
from aiokafka.net._traffic import Traffic
from aiokafka.net.connection import BrokerConnection
from aiokafka.net.connector import Connector
from aiokafka.net.credential_sources import CredentialSources

if TYPE_CHECKING:
    from aiokafka._config import ClientConfig
    from aiokafka._metadata.loop import MetadataLoop
    from aiokafka._tasks import TaskOwner
    from aiokafka.protocol.versions import BrokerVersions

__all__ = ["ConnectionGroup", "ConnectionPool", "Endpoint"]

log = logging.getLogger("aiokafka.conn")

# A broker responds in order, so a late response delays all later responses. If requests are in
# flight and no response arrives for this many seconds (or half of the request timeout, if that is
# shorter), new requests use a new connection.
_LONGEST_SILENCE = 10.0

# Shortest interval in seconds between two checks for idle connections.
_SHORTEST_ROUND = 0.1

# A cluster with a broker of this release or later has no broker of Kafka 0.9.
_RULES_OUT_0_9 = (2, 4, 0)
# The first release that supports ApiVersions.
_WITH_VERSIONS = (0, 10, 0)


class ConnectionGroup(enum.IntEnum):
    """The purpose of a connection to a broker.

    A broker responds to the requests of a connection in order, so requests with late responses
    (JoinGroup, Fetch) have their own connections. OFFSETS is for OffsetCommit and OffsetFetch while
    a JoinGroup waits on COORDINATION. HEARTBEAT is for a heartbeat that is sent again because
    COORDINATION has received no response to the first one.
    """

    DEFAULT = 0
    COORDINATION = 1
    FETCH = 2
    OFFSETS = 3
    HEARTBEAT = 4


_PURPOSES = tuple(map(int, ConnectionGroup))


class Endpoint:
    """The address of a node, its name in messages (`label`), and a text about the source of the
    address (`origin`). Errors contain `origin` until a connect succeeds."""

    __slots__ = ("address", "label", "origin")

    def __init__(self, host: str, port: int, label: str = "", origin: str = "") -> None:
        self.address = (host, port)
        self.label = label
        self.origin = origin


class _Node:
    """The connector and backoff of one address of a broker, shared by all purposes."""

    __slots__ = ("backoff", "connector", "endpoint", "retry_at", "setup", "versions")

    def __init__(
        self,
        config: ClientConfig,
        node_id: int,
        endpoint: Endpoint,
        sources: CredentialSources,
    ) -> None:
        self.endpoint = endpoint
        # Negative ids stand for bootstrap servers, and do not appear in log or error messages.
        known = node_id if node_id >= 0 else None
        self.connector = Connector(config, *endpoint.address, endpoint.label, known, sources)
        self.backoff = Backoff(config.reconnect_backoff, config.reconnect_backoff_max)
        # KIP-601: the connection setup timeout grows with each failure, for slow networks.
        self.setup = Backoff(config.connection_setup_timeout, config.connection_setup_timeout_max)
        self.retry_at = 0.0
        self.versions: BrokerVersions | None = None

    def succeed(self, connection: BrokerConnection) -> None:
        self.backoff.reset()
        self.setup.reset()
        self.versions = connection.versions

    def fail(self, now: float) -> None:
        self.retry_at = now + self.backoff.next()
        self.setup.next()


class _Attempt:
    """One connect in progress, and the futures of the callers that wait for the connection.
    `waiters` is empty after the callers were moved to a connect to a newer address."""

    __slots__ = ("address", "waiters")

    def __init__(
        self, address: tuple[str, int], waiters: list[asyncio.Future[BrokerConnection]]
    ) -> None:
        self.address = address
        self.waiters = waiters

    @property
    def is_wanted(self) -> bool:
        return not all(waiter.done() for waiter in self.waiters)

    def succeed(self, connection: BrokerConnection) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(connection)

    def fail(self, error: BaseException) -> None:
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(renewed(error))


class ConnectionPool:
    """Owns every connection of a client, and the backoff of each broker.

    Args:
        metadata: The source of the current address of each node.
        tasks: Runs the connects. The client cancels these tasks before `close()`.
        traffic: Counts the bytes and requests of the connections.
    """

    def __init__(
        self,
        config: ClientConfig,
        metadata: MetadataLoop,
        tasks: TaskOwner,
        traffic: Traffic | None = None,
    ) -> None:
        self.traffic = Traffic() if traffic is None else traffic
        self._config = config
        self._metadata = metadata
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._longest_silence = min(_LONGEST_SILENCE, config.request_timeout / 2)
        self._open: dict[tuple[int, int], BrokerConnection] = {}
        # Connections that the client has closed or retired, whose transports may still be open.
        # A weak reference is enough, because an open transport refers to its connection.
        self._leaving: weakref.WeakKeyDictionary[BrokerConnection, None]
        self._leaving = weakref.WeakKeyDictionary()
        self._attempts: dict[tuple[int, int], _Attempt] = {}
        self._nodes: dict[int, _Node] = {}
        self._excludes_0_9 = False  # a broker of the cluster is Kafka 2.4 or later
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._sources = CredentialSources(config)
        if config.security.shows_password:
            log.warning(
                "%s: the password goes to the brokers unencrypted (sasl_mechanism PLAIN with "
                "security_protocol SASL_PLAINTEXT): use SASL_SSL, or SCRAM, which does not send it",
                config.client_id,
                extra={"client_id": config.client_id},
            )

    def find(self, node_id: int, purpose: int = ConnectionGroup.DEFAULT) -> BrokerConnection | None:
        """Return the open connection to a node for a purpose; None without one."""
        connection = self._open.get((node_id, purpose))
        return connection if connection is not None and connection.is_open else None

    def connections(self) -> list[BrokerConnection]:
        """Return all open connections of the client."""
        return [connection for connection in list(self._open.values()) if connection.is_open]

    def is_connecting(self, node_id: int) -> bool:
        """Return whether a connect to this node is in progress."""
        return any(key[0] == node_id for key in self._attempts)

    def is_held_up(self, node_id: int) -> bool:
        """Return whether the node has an open connection that cannot be used now: it is throttled,
        its write buffer is full, it re-authenticates, or the broker does not respond."""
        connection = self.find(node_id)
        return connection is not None and not (connection.is_ready and self._responds(connection))

    def _responds(self, connection: BrokerConnection) -> bool:
        is_late = self._loop.time() - connection.waiting_since >= self._longest_silence
        return not (is_late or connection.is_retired)

    def throttled_until(self, node_id: int) -> float:
        """Return the loop time until which the broker throttles this client; without a current
        throttle, a time in the past."""
        open_now = (self._open.get((node_id, purpose)) for purpose in _PURPOSES)
        return max((c.gate.throttled_until for c in open_now if c is not None), default=0.0)

    def versions(self, node_id: int) -> BrokerVersions | None:
        """Return the API versions of the node at the last connect; None before any connect."""
        node = self._nodes.get(node_id)
        return None if node is None else node.versions

    def retry_delay(self, node_id: int) -> float:
        """Return the remaining seconds of the node's backoff; 0 if the client may connect now."""
        node = self._nodes.get(node_id)
        return 0.0 if node is None else max(0.0, node.retry_at - self._loop.time())

    def is_unreachable(self, node_id: int) -> bool:
        """Return True if the node has no open DEFAULT connection, and either its last connect has
        failed or its backoff has not ended."""
        node = self._nodes.get(node_id)
        if node is None or self.find(node_id) is not None:
            return False
        return node.backoff.failures > 0 or node.retry_at > self._loop.time()

    async def get(self, node_id: int, purpose: int = ConnectionGroup.DEFAULT) -> BrokerConnection:
        """Return the open connection to a node; without one, make one attempt to connect.

        Concurrent callers share the attempt, and cancelling one caller does not end the attempt.
        The attempt starts after the node's backoff and ends within the connection setup timeout.
        Raises what `Connector.open` raises, as a new exception for each caller,
        KafkaConnectionError if the address of the node is unknown, and IllegalStateError after
        `close()`.
        """
        connection = self.usable(node_id, purpose)
        return connection if connection is not None else await self.connect(node_id, purpose)

    def usable(
        self, node_id: int, purpose: int = ConnectionGroup.DEFAULT
    ) -> BrokerConnection | None:
        """Return the open connection to a node for new requests, None without one.

        A connection to a previous address of the node is closed and not returned, unless requests
        are in flight on it. A DEFAULT connection whose broker does not respond is retired and not
        returned.
        """
        connection = self._open.get((node_id, purpose))
        if connection is None or not connection.is_open:
            return None
        # On connections for other purposes late responses are normal. For example, the response to
        # JoinGroup takes as long as the rebalance.
        if purpose == ConnectionGroup.DEFAULT and not self._responds(connection):
            text = "%s: no response, so new requests use another connection"
            log.debug(text, connection.peer, extra=about(connection.peer))
            del self._open[node_id, purpose]
            self._leaving[connection] = None
            connection.retire()
            return None
        # Compare the address of a broker once per snapshot of the metadata. A bootstrap server
        # (negative id) has no address in the metadata: compare its address at every call.
        epoch = self._metadata.cluster.epoch
        if connection.address_checked_at == epoch and node_id >= 0:
            return connection
        if not self._has_moved(node_id, connection):
            connection.address_checked_at = epoch
            return connection
        # Keep a connection with in-flight requests: the old address may still respond.
        if connection.in_flight:
            return connection
        self.drop(node_id, purpose, f"node {node_id} has a new address")
        return None

    def leave_moved(self) -> None:
        """Close every connection to a previous address of its node, unless requests are in flight
        on it, and redirect connects in progress to the current address."""
        for node_id, purpose in list(self._open):
            self.usable(node_id, purpose)
        for key, attempt in list(self._attempts.items()):
            self._follow(key, attempt)

    def leave_all(self, why: str) -> None:
        """Close the connections to all brokers, because the metadata is from another cluster now,
        or because host names may resolve to other IP addresses.

        Connections to the new IP addresses are closed as well; the next request connects again.
        """
        for node_id, purpose in list(self._open):
            if node_id >= 0:
                self.drop(node_id, purpose, why)

    def drop(self, node_id: int, purpose: int, why: str) -> None:
        """Close the connection to a node for one purpose, if it is open."""
        connection = self._open.pop((node_id, purpose), None)
        if connection is not None and connection.is_open:
            log.debug("%s: closing: %s", connection.peer, why, extra=about(connection.peer))
            error = KafkaConnectionError(f"{connection.peer}: closed: {why}")
            self._dismiss(connection, error)

    def _dismiss(self, connection: BrokerConnection, error: KafkaError | None = None) -> None:
        self._leaving[connection] = None
        connection.close(error)

    def adopt(self, bootstrap_id: int, node_id: int, endpoint: Endpoint) -> None:
        """Make the connection to a bootstrap server the DEFAULT connection to the broker `node_id`,
        which has the same address. Close the bootstrap connection if the broker already has an open
        DEFAULT connection."""
        connection = self._open.pop((bootstrap_id, ConnectionGroup.DEFAULT), None)
        node = self._nodes.pop(bootstrap_id, None)
        if connection is None or node is None:
            return
        key = (node_id, int(ConnectionGroup.DEFAULT))
        # Prefer a connection that was opened to the broker itself.
        if self.find(node_id) is not None or not connection.is_open:
            self._dismiss(connection)
            return
        node.endpoint = endpoint
        # Later connects use the broker's own address: the bootstrap name may also resolve to other
        # brokers.
        node.connector.host, node.connector.port = endpoint.address
        connection.peer = node.connector.rename(endpoint.label, node_id)
        connection.address = endpoint.address
        # The traffic so far still counts for the bootstrap server, later traffic for the broker.
        connection.traffic = self.traffic.of(node_id)
        self._open[key] = connection
        self._nodes[node_id] = node

    def abort(self) -> None:
        """Abort every connection at once, and fail all callers that wait for a connect."""
        self._refuse()
        for connection in [*self._open.values(), *self._leaving]:
            connection.abort()
        self._open.clear()

    def _refuse(self) -> None:
        self._is_closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        for attempt in self._attempts.values():
            attempt.fail(IllegalStateError("the client is closed"))

    async def close(self, deadline: float) -> None:
        """Fail all callers that wait for a connect, and close every connection; abort connections
        that are still open at `deadline` (loop time)."""
        self._refuse()
        for connection in self._open.values():
            self._dismiss(connection)
        for connection in list(self._leaving):
            # Close only open connections: closing twice would make TLS wait for the peer's close
            # alert, even after abort().
            if connection.is_open:
                connection.close()
        closing = list(self._leaving)
        waits = {connection.closed for connection in closing if not connection.closed.done()}
        if waits:
            await asyncio.wait(waits, timeout=max(0.0, deadline - self._loop.time()))
        for connection in closing:
            connection.abort()
        if closing or self._attempts:
            # Aborted transports end in the next loop iteration.
            await asyncio.sleep(0)
        self._open.clear()

    def connect(
        self, node_id: int, purpose: int = ConnectionGroup.DEFAULT
    ) -> asyncio.Future[BrokerConnection]:
        """Connect as `get()` does, but return a future, which may be cancelled. The call itself
        raises KafkaConnectionError if the address of the node is unknown, and IllegalStateError
        after `close()`; other errors are set on the future."""
        if self._is_closed:
            raise IllegalStateError("the client is closed")
        key = (node_id, int(purpose))
        waiter: asyncio.Future[BrokerConnection] = self._loop.create_future()
        known = self.find(node_id, purpose)
        if known is not None:
            waiter.set_result(known)
            return waiter
        attempt = self._attempts.get(key)
        if attempt is None:
            self._begin(key, [waiter])
        else:
            attempt.waiters.append(waiter)
            self._follow(key, attempt)
        return waiter

    # -- connecting

    def _node(self, node_id: int) -> _Node:
        endpoint = self._metadata.endpoint_of(node_id)
        if endpoint is None:
            raise KafkaConnectionError(f"node {node_id}: its address is unknown")
        node = self._nodes.get(node_id)
        if node is None or node.endpoint.address != endpoint.address:
            node = _Node(self._config, node_id, endpoint, self._sources)
            self._nodes[node_id] = node
        return node

    def _has_moved(self, node_id: int, connection: BrokerConnection) -> bool:
        endpoint = self._metadata.endpoint_of(node_id)
        return endpoint is not None and connection.address != endpoint.address

    def _note_loss(self, key: tuple[int, int], node: _Node) -> None:
        """Remove the closed connection of `key`. Begin a backoff at the time when the connection
        was closed, because some brokers accept connections and close them at once."""
        lost = self._open.pop(key, None)
        if lost is not None:
            # Use `peek()`, because only a failed connect increases the backoff.
            node.retry_at = max(node.retry_at, lost.closed_at + node.backoff.peek())
            if not lost.closed.done():
                self._leaving[lost] = None

    def _follow(self, key: tuple[int, int], attempt: _Attempt) -> None:
        """If the broker's address has changed since `attempt` began, move its waiters to an attempt
        at the new address: the attempt at the old address may hang until its timeout."""
        endpoint = self._metadata.endpoint_of(key[0])
        if key[0] >= 0 and endpoint is not None and endpoint.address != attempt.address:
            self._begin(key, attempt.waiters[:])
            attempt.waiters.clear()

    def _begin(self, key: tuple[int, int], waiters: list[asyncio.Future[BrokerConnection]]) -> None:
        node = self._node(key[0])
        self._note_loss(key, node)
        # Register the attempt before the task starts, because an eager task may end at once.
        attempt = self._attempts[key] = _Attempt(node.endpoint.address, waiters)
        try:
            self._tasks.start(self._connect(key, node, attempt), name=f"connect {key[0]}")
        except BaseException:
            del self._attempts[key]
            raise

    async def _connect(self, key: tuple[int, int], node: _Node, attempt: _Attempt) -> None:
        """Wait for the end of the backoff, connect once, and set the result or exception of every
        waiter. Discard the connection if all waiters were moved to another attempt. Raises nothing.
        """
        connection: BrokerConnection | None = None
        error: BaseException = IllegalStateError("the client is closed")
        try:
            delay = node.retry_at - self._loop.time()
            if delay > 0:
                await asyncio.sleep(delay)
            if not attempt.waiters:
                return
            connection = await node.connector.open(
                self._loop.time() + node.setup.peek(),
                may_be_0_9=not self._excludes_0_9,
                expected=self._expected(key[0]),
            )
        except Exception as failure:
            error = self._note_failure(key[0], node, failure)
        finally:
            # Remove the attempt before the waiters get the result: a waiter that connects again at
            # once must start a new attempt.
            if self._attempts.get(key) is attempt:
                del self._attempts[key]
            if connection is None:
                attempt.fail(error)
        if connection is not None and not attempt.waiters:
            connection.abort()
        elif connection is not None:
            self._note_success(key, node, attempt, connection)

    def _expected(self, node_id: int) -> tuple[str, int] | None:
        """Return the cluster id and node id for the broker to check (KIP-1242). None for bootstrap
        servers, without a known cluster id, and if this check or rebootstraps are disabled."""
        config, cluster_id = self._config, self._metadata.cluster.cluster_id
        is_checked = config.metadata_cluster_check and config.rebootstrap_trigger is not None
        return (cluster_id, node_id) if is_checked and cluster_id and node_id >= 0 else None

    def _note_success(
        self, key: tuple[int, int], node: _Node, attempt: _Attempt, connection: BrokerConnection
    ) -> None:
        # Nobody needs the connection: the pool was closed during the connect, or all callers have
        # been cancelled because another bootstrap server was faster.
        if self._is_closed or (key[0] < 0 and not attempt.is_wanted):
            connection.abort()
            return
        node.succeed(connection)
        if connection.versions is not None and connection.versions.release >= _RULES_OUT_0_9:
            self._exclude_0_9()
        self.traffic.connects += 1
        connection.traffic = self.traffic.join(key[0], connection.traffic)
        adopted = self._open.get(key)
        if adopted is not None and adopted.is_open:
            # `adopt` has assigned a bootstrap connection to this broker during the connect. Keep
            # the bootstrap connection, because it may be in use.
            self._dismiss(connection)
            attempt.succeed(adopted)
            return
        try:
            self._keep_session(key[0], node, connection)
        except Exception as error:
            # The client is closing, so no task can be started.
            connection.abort()
            attempt.fail(error)
            return
        connection.address = node.endpoint.address
        self._open[key] = connection
        self._arm_idle_timer()
        log.debug("%s: connected", connection.peer, extra=about(connection.peer))
        attempt.succeed(connection)

    def _exclude_0_9(self) -> None:
        """Close the connections to brokers that were assumed to be Kafka 0.9: the cluster has a
        broker of Kafka 2.4 or later, so these brokers were only slow to respond to ApiVersions."""
        if self._excludes_0_9:
            return
        self._excludes_0_9 = True
        for connection in self._open.values():
            if connection.versions is not None and connection.versions.release < _WITH_VERSIONS:
                text = f"{connection.peer}: another broker is newer, so this is not Kafka 0.9"
                connection.close(KafkaConnectionError(text))

    def _keep_session(self, node_id: int, node: _Node, connection: BrokerConnection) -> None:
        if connection.session_lifetime:
            from aiokafka.net.authentication import SessionKeeper  # only loaded with SASL

            host = node.connector.host
            keeper = SessionKeeper(connection, self._config, host, self._sources.sasl)
            self._tasks.start(keeper.run(), name=f"session {node_id}")

    def _note_failure(self, node_id: int, node: _Node, error: Exception) -> KafkaError:
        node.fail(self._loop.time())
        self.traffic.failures += 1
        extra = {"client_id": self._config.client_id, "node_id": node_id}
        if not isinstance(error, KafkaError):
            log.error(
                "node %d: unexpected error while connecting",
                node_id,
                exc_info=error,
                extra=extra,
            )
            error = KafkaConnectionError(f"node {node_id}: unexpected {error!r} while connecting")
        if (
            isinstance(error, KafkaConnectionError)
            and node.versions is None
            and not node.connector.is_reached
            and node.endpoint.origin
        ):
            explained = KafkaConnectionError(f"{error.args[0]} ({node.endpoint.origin})")
            explained.__cause__ = error
            error = explained
        log.debug("node %d: cannot connect: %s", node_id, error, extra=extra)
        if isinstance(error.__cause__, RebootstrapRequired):
            # Warn once for each outage of the broker.
            level = logging.WARNING if node.backoff.failures == 1 else logging.DEBUG
            log.log(level, "Misrouted connection: %s", error, extra=extra)
            self._metadata.rebootstrap(f"node {node_id} has a misrouted connection")
        return error

    # -- idle connections

    def _arm_idle_timer(self) -> None:
        if self._config.connections_max_idle and self._idle_timer is None:
            delay = max(self._config.connections_max_idle, _SHORTEST_ROUND)
            self._idle_timer = self._loop.call_later(delay, self._close_idle)

    def _close_idle(self) -> None:
        limit = self._config.connections_max_idle
        self._idle_timer = None
        if limit is None or self._is_closed:
            return
        oldest = now = self._loop.time()
        for (node_id, purpose), connection in list(self._open.items()):
            if connection.in_flight or connection.gate.is_awaited:
                continue
            if connection.last_used + limit <= now:
                self.drop(node_id, purpose, f"not used for {limit:g} s")
            else:
                oldest = min(oldest, connection.last_used)
        if self._open:
            # One timer serves all connections. It fires at most ten times per idle limit, and at
            # most ten times a second.
            pause = max(limit / 10, _SHORTEST_ROUND)
            self._idle_timer = self._loop.call_at(
                max(oldest + limit, now + pause), self._close_idle
            )
