"""Get metadata from a known broker, or from the bootstrap servers if no known broker responds."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections.abc import Callable, Mapping, Set
from typing import TYPE_CHECKING, Any

from aiokafka._compat import timeout, timeout_at
from aiokafka._config.client import ADDRESSES, as_addresses
from aiokafka._config.options import brief
from aiokafka._tasks import together, unless
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    MetadataEmptyBrokerList,
    MismatchedEndpointType,
    RebootstrapRequired,
    RequestTimedOutError,
    UnsupportedVersionError,
    for_code,
)
from aiokafka.net.dialing import (
    call_function,
    canonical,
    format_address,
    is_address,
    resolve,
)
from aiokafka.net.failures import REFUSALS, connect_failure
from aiokafka.net.pool import ConnectionGroup, ConnectionPool, Endpoint
from aiokafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)

if TYPE_CHECKING:
    from aiokafka._config import ClientConfig
    from aiokafka.net.connection import BrokerConnection

__all__ = ["CONTROLLERS", "FATAL", "MOST_ASKED", "Discovery"]

log = logging.getLogger("aiokafka.cluster")

# Seconds without a response until the request is sent to the next broker. The first request stays
# in flight until `request_timeout`, and then its connection is closed. If rebootstraps are disabled
# (`metadata_recovery_rebootstrap_trigger_ms` None), the last broker gets `request_timeout`, so that
# a slow broker can respond.
_LONGEST_ASK = 10.0

# With a deadline, a broker gets this fraction of the remaining time, but at least `_LEAST` and at
# most `_LONGEST_ASK` seconds.
_PART = 1 / 3
_LEAST = 1.0

# The fraction of the bootstrap's time for resolving the names of bootstrap servers.
_PART_FOR_NAMES = 2 / 3

# Seconds after which the next bootstrap server is tried, while the servers before it do not
# respond.
_STAGGER = 0.5

# After this number of seconds with metadata from one broker only, request metadata from another
# broker: a broker that has lost its connection to the cluster would send the same metadata forever.
# This is done only if brokers send leader epochs (Metadata v7): without epochs, the client cannot
# tell which of two responses is older, and outdated metadata would replace newer metadata.
_LONGEST_TRUST = 300.0
# Timeout in seconds of a request that only checks the metadata of another broker. It is short,
# because the request delays all calls that wait for metadata.
_LONGEST_CHECK = 1.0

MOST_ASKED = 5
"""Number of brokers to which the request for a missing topic or leader is sent in turn. The number
is limited, because the client may need the connection to a broker for nothing else."""

_FIRST_WITH_EPOCHS = 7

CONTROLLERS = 2
"""The `endpoint_type` for controllers in DescribeCluster (KIP-919)."""

_FIRST_WITH_CONTROLLERS = 1

# API key of DescribeQuorum. Every controller that accepts connections of clients supports it.
_DESCRIBE_QUORUM = 55

FATAL = (*REFUSALS, UnsupportedVersionError)
"""Errors that a request to any other broker of the cluster would probably cause, too."""


class Discovery:
    """Gets metadata from a broker or bootstrap server.

    Owns the names of the bootstrap servers, a text that names the bootstrap server that sent the
    known addresses, and the doubted brokers, which get the request only if all others have failed.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._named = self.servers = config.bootstrap_servers
        """The bootstrap servers: `_named` as configured or as the application's function returned
        them, `servers` as canonical names if these are configured (KIP-235)."""
        self.origin = ""
        """A text for errors that names the bootstrap server that sent the known addresses."""
        self._is_rebootstrap = False
        self._begins_at_bootstrap = False
        self.responder: int | None = None
        """The broker of the last metadata response; None for a bootstrap server whose address is
        not in the metadata."""
        self._responder_since = 0.0
        self._sends_epochs = False
        self._doubted: set[int] = set()
        self._is_in_doubt = False
        self._looks_elsewhere = False
        self._is_check = False

    def doubt(self) -> None:
        """Doubt the broker of the last response: send the next refresh to other brokers first."""
        self._is_in_doubt = True
        self._avoid_last()

    def look_elsewhere(self) -> None:
        """Send the next refresh to another broker, with a short timeout, because a topic or leader
        is missing. After `MOST_ASKED` brokers, begin again with all brokers except the last: the
        topic may not exist, and then other brokers do not know it either."""
        if self._looks_elsewhere:
            return  # a caller may call this for each of many partitions
        self._looks_elsewhere = True
        if len(self._doubted) >= MOST_ASKED - 1:
            self._doubted.clear()  # begin again with all brokers except the last
        self._avoid_last()

    def _avoid_last(self) -> None:
        if self.responder is not None:
            self._doubted.add(self.responder)

    def rebootstrap(self) -> None:
        """Send the next refresh to the bootstrap servers only, because another broker than the
        expected one has responded at a known address (KIP-1242).

        The open connections stay: their brokers were checked when they were opened.
        """
        self._begins_at_bootstrap = True

    def take_rebootstrap(self) -> bool:
        """Return whether a broker has responded REBOOTSTRAP_REQUIRED (KIP-1102) since the last
        call of this method.

        If so, the caller must replace all connections, because host names may have other addresses
        now.
        """
        is_rebootstrap, self._is_rebootstrap = self._is_rebootstrap, False
        return is_rebootstrap

    async def ask_any(
        self, pool: ConnectionPool, nodes: tuple[int, ...], wanted: Set[str] | None
    ) -> MetadataResponse:
        """Return a metadata response for a refresh: from the first known broker that responds, else
        from a bootstrap server.

        `wanted` None means all topics. Doubted brokers come last. After `rebootstrap`, only the
        bootstrap servers are tried. Raises the error of `ask_bootstrap_servers`; if rebootstraps
        are disabled, the KafkaError of the last broker.
        """
        order = self._by_doubt(self._candidates(pool, nodes))
        if self._begins_at_bootstrap:
            self._begins_at_bootstrap, order = False, []
        node_id, response = await self._ask_in_turn(pool, order, wanted, is_check=self._is_check)
        if node_id is not None:
            self._set_responder(node_id)
        return response

    async def ask_for_all_topics(
        self, pool: ConnectionPool, nodes: tuple[int, ...], deadline: float | None
    ) -> MetadataResponse:
        """Return a metadata response about all topics, without changing the doubted brokers.

        Each broker gets only a part of the time until `deadline` (loop time). The caller ends the
        call at the deadline.
        """
        order = sorted(self._candidates(pool, nodes), key=self._doubted.__contains__)
        _, response = await self._ask_in_turn(pool, order, None, deadline)
        return response

    async def _ask_in_turn(
        self,
        pool: ConnectionPool,
        candidates: list[int],
        wanted: Set[str] | None,
        deadline: float | None = None,
        *,
        is_check: bool = False,
    ) -> tuple[int | None, MetadataResponse]:
        """Send Metadata to one candidate after the other, then to the bootstrap servers, until one
        responds. Return its node id (None for a bootstrap server) and the response.

        If rebootstraps are disabled (`metadata_recovery_rebootstrap_trigger_ms` None), raise the
        error of the last candidate instead of trying the bootstrap servers.
        """
        failure: KafkaError | None = None
        loop, trigger = asyncio.get_running_loop(), self._config.rebootstrap_trigger
        until = math.inf if trigger is None else loop.time() + trigger
        for node_id in candidates:
            left = until - loop.time()
            if failure is not None and left <= 0:
                break
            is_brief = is_check and node_id not in self._doubted
            limit = _LONGEST_CHECK if is_brief else _LONGEST_ASK
            if trigger is None and node_id == candidates[-1]:
                limit = max(limit, self._config.request_timeout)
            limit = min(limit, max(left, _LONGEST_CHECK))
            if deadline is not None:
                limit = min(limit, max(_LEAST, (deadline - loop.time()) * _PART))
            try:
                async with timeout(limit):
                    response = await self.ask(await pool.get(node_id), wanted)
                return node_id, response
            except asyncio.TimeoutError:
                failure = RequestTimedOutError(f"node {node_id}: no metadata in {limit:g} s")
            except RebootstrapRequired as error:
                failure = error
                self._is_rebootstrap = trigger is not None
                break
            except KafkaError as error:
                failure = error
            if is_brief:
                # Doubt this broker: otherwise it would delay each further check.
                self._doubted.add(node_id)
            extra = {"client_id": self._config.client_id, "node_id": node_id}
            log.debug("no metadata from node %d: %s", node_id, failure, extra=extra)
        if failure is not None and trigger is None:
            raise failure
        # There is no known broker, all have failed, the time for trying them is over, or a broker
        # requires a rebootstrap (KIP-1102). The addresses of all brokers may be outdated (KIP-899).
        log.debug(
            "no known broker returned metadata: asking the bootstrap servers again",
            extra={"client_id": self._config.client_id},
        )
        deadline = loop.time() + self._config.request_timeout
        return None, await self.ask_bootstrap_servers(pool, wanted, deadline)

    def _candidates(self, pool: ConnectionPool, nodes: tuple[int, ...]) -> list[int]:
        """Return the node ids of the brokers to try, in this order: connected brokers, those with
        the fewest in-flight requests first; brokers without a connection; brokers whose connection
        cannot be used now (`ConnectionPool.is_held_up`).

        Leave out brokers without a connection that are in the reconnect backoff: if no other broker
        responds, the bootstrap servers are tried. If rebootstraps are disabled
        (`metadata_recovery_rebootstrap_trigger_ms` None), include the brokers in the backoff.
        """
        connected = {node_id: connection for node_id in nodes if (connection := pool.find(node_id))}
        others = [node_id for node_id in nodes if node_id not in connected]
        if self._config.rebootstrap_trigger is not None:
            others = [node_id for node_id in others if not pool.retry_delay(node_id)]
        random.shuffle(others)
        # Prefer brokers without a connect in progress: a connect may never end.
        others.sort(key=lambda node_id: (pool.is_connecting(node_id), pool.retry_delay(node_id)))
        ready = sorted(connected, key=lambda node_id: connected[node_id].in_flight)
        return sorted([*ready, *others], key=pool.is_held_up)

    def _by_doubt(self, candidates: list[int]) -> list[int]:
        """Return the candidates, the doubted brokers last.

        1. A broker that has lost its connection to the cluster sends old leaders, and this client
           may be connected to that broker.
        2. When the client detects old metadata, it calls `doubt`, and the next refresh goes to
           another broker.
        3. If the metadata of that broker is old as well, it is doubted, too. If all brokers are
           doubted, all of them except the last are tried again.
        4. A refresh without a new doubt clears all doubts.
        5. The client may never detect old metadata of partitions without records. So after
           `_LONGEST_TRUST` a refresh goes to another broker as a check.
        6. If a topic or leader is missing, the client calls `look_elsewhere`, and each refresh goes
           to another broker. The response is not urgent, so each broker has a short timeout.
        """
        now = asyncio.get_running_loop().time()
        is_over = self._sends_epochs and now - self._responder_since >= _LONGEST_TRUST
        # A check has a short timeout, unless `doubt` was called as well (step 2).
        may_check = (is_over or self._looks_elsewhere) and not self._is_in_doubt
        self._is_check = may_check and self.responder in candidates
        if is_over:
            # Restart the period `_LONGEST_TRUST` even if the check fails: otherwise each refresh
            # would first wait for the broker that does not respond.
            self._responder_since = now
            self.doubt()
        if not (self._is_in_doubt or self._looks_elsewhere):
            self._doubted.clear()
        self._is_in_doubt = self._looks_elsewhere = False
        if self._doubted.issuperset(candidates) and self.responder is not None:
            self._doubted = {self.responder}
        return sorted(candidates, key=self._doubted.__contains__)

    def _set_responder(self, node_id: int | None) -> None:
        if node_id != self.responder:
            self.responder = node_id
            self._responder_since = asyncio.get_running_loop().time()

    async def ask(self, connection: BrokerConnection, wanted: Set[str] | None) -> MetadataResponse:
        """Return the metadata response of one broker or controller. Raises KafkaError, such as
        MetadataEmptyBrokerList if the response lists no brokers."""
        if self._config.is_for_controllers:
            response = await _ask_controller(connection)
        else:
            response = await self._ask_broker(connection, wanted)
        response.brokers = [broker for broker in response.brokers if _is_reachable(broker)]
        if not response.brokers:
            raise MetadataEmptyBrokerList(f"{connection.peer}: returned metadata without brokers")
        return response

    async def _ask_broker(
        self, connection: BrokerConnection, wanted: Set[str] | None
    ) -> MetadataResponse:
        _refuse_controller(connection)
        version = connection.pick(MetadataRequest)
        self._sends_epochs = version >= _FIRST_WITH_EPOCHS
        topics = None
        if wanted is not None:
            topics = [MetadataRequestTopic(name=name) for name in sorted(wanted)]
        elif version == 0:
            # In version 0 an empty list means all topics.
            topics = []
        request = MetadataRequest(topics=topics)
        if version >= 4:
            request.allow_auto_topic_creation = self._config.allow_auto_create_topics
        response = await connection.request(request, version=version)
        if response.error_code:
            raise for_code(response.error_code)(f"{connection.peer}: refused Metadata")
        return response

    async def resolve_any(self, deadline: float) -> None:
        """Resolve the names of all bootstrap servers; return as soon as one of them has an address.
        Behind a dialer or a proxy, which resolve the names themselves, return at once.

        Raises KafkaConnectionError with the reason of every name, or of the function that returns
        the servers; asyncio.TimeoutError at `deadline` (loop time).
        """
        config = self._config
        if config.dialer is not None or config.proxy_url is not None:
            return
        if config.bootstrap_source is not None:
            await self._ask_source(config.bootstrap_source, deadline)
        found = asyncio.Event()

        async def look_up(host: str, port: int) -> str:
            reason = await _why_unresolved(host, port, config.broker_address_family)
            if not reason:
                found.set()
            return reason

        lookups = together(look_up(*server) for server in self._named)
        async with timeout_at(deadline):
            reasons = await unless(found.wait(), lookups)
        if not found.is_set():
            raise KafkaConnectionError("; ".join(reasons or ()))

    async def ask_bootstrap_servers(
        self, pool: ConnectionPool, wanted: Set[str] | None, deadline: float
    ) -> MetadataResponse:
        """Return the first metadata response of a bootstrap server. Try one server after the other;
        while a server is slow, try the next server in parallel.

        Raises one KafkaConnectionError with the reason of every server, at the latest at `deadline`
        (loop time). An error of FATAL is raised unchanged at once.
        """
        loop = asyncio.get_running_loop()
        # Leave some time for the connects and requests.
        by = loop.time() + (deadline - loop.time()) * _PART_FOR_NAMES
        if self._config.bootstrap_source is not None:
            await self._ask_source(self._config.bootstrap_source, by)
        if self._config.client_dns_lookup == "resolve_canonical_bootstrap_servers_only":
            self.servers = await canonical(self._named, by)
        waiting = list(range(-1, -len(self.servers) - 1, -1))
        # A response may get lost. If there is no other server, send the request a second time.
        may_repeat = len(self.servers) == 1
        connecting: dict[asyncio.Future[BrokerConnection], int] = {}
        failures: dict[int, KafkaError] = {}
        try:
            while (waiting or connecting) and loop.time() < deadline:
                if waiting:
                    node_id = waiting.pop(0)
                    connecting[pool.connect(node_id)] = node_id
                left = deadline - loop.time()
                done, _ = await asyncio.wait(
                    connecting,
                    timeout=min(left, _STAGGER) if waiting else left,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                # Retrieve the exceptions of all failed connects: asyncio would log them otherwise.
                failed = {future for future in done if future.exception() is not None}
                for future in [*failed, *(done - failed)]:
                    node_id = connecting.pop(future)
                    limit = deadline
                    if waiting or connecting or may_repeat:
                        now = loop.time()
                        part = max(_LEAST, (deadline - now) * _PART)
                        limit = min(deadline, now + min(_LONGEST_ASK, part))
                    try:
                        connection = future.result()
                        return await self._ask_bootstrap_server(
                            connection, node_id, pool, wanted, limit
                        )
                    except FATAL:
                        raise
                    except KafkaError as error:
                        failures[node_id] = error
                        if may_repeat and isinstance(error.__cause__, RequestTimedOutError):
                            may_repeat = False
                            waiting.append(node_id)
        finally:
            for future, node_id in connecting.items():
                _discard(pool, future, node_id)
        raise self._bootstrap_error(failures)

    async def _ask_source(self, source: Callable[[], Any], deadline: float) -> None:
        """Get the bootstrap servers from the application's function.

        Raises KafkaConnectionError if the function fails at its first call. After a later failure,
        keeps the servers that it returned last, which may still respond, and logs a warning.
        """
        what = "the function given as bootstrap_servers"
        try:
            given = await call_function(source, what, deadline)
            try:
                self._named = self.servers = as_addresses(given)
            except (TypeError, ValueError) as error:
                reason = f" ({error})" if str(error) else ""
                raise KafkaConnectionError(
                    f"{what} returned {brief(given)}: must be {ADDRESSES}{reason}"
                ) from error
        except KafkaConnectionError as error:
            if not self._named:
                raise
            extra = {"client_id": self._config.client_id}
            log.warning("%s; using the servers that it returned last", error, extra=extra)

    async def _ask_bootstrap_server(
        self,
        connection: BrokerConnection,
        node_id: int,
        pool: ConnectionPool,
        wanted: Set[str] | None,
        deadline: float,
    ) -> MetadataResponse:
        try:
            async with timeout_at(deadline):
                response = await self.ask(connection, wanted)
        except asyncio.TimeoutError:
            pool.drop(node_id, ConnectionGroup.DEFAULT, "no answer to Metadata")
            text = f"{connection.peer}: no answer to Metadata in time"
            raise KafkaConnectionError(text) from RequestTimedOutError()
        except BaseException:
            pool.drop(node_id, ConnectionGroup.DEFAULT, "it returned no metadata")
            raise
        self.origin = (
            f"{connection.peer} gave this address; "
            "if it cannot be reached from here, check the brokers' advertised.listeners"
        )
        self._set_responder(self._adopt(pool, connection, node_id, response))
        return response

    def _adopt(
        self,
        pool: ConnectionPool,
        connection: BrokerConnection,
        node_id: int,
        response: MetadataResponse,
    ) -> int | None:
        """If a broker in the response has the address of this bootstrap connection, assign the
        connection to that broker, and return its node id; else close the connection, and return
        None.

        If another call uses the connection, only return the node id or None: the other call assigns
        or closes the connection when it has its response.
        """
        # Match the address of the connection. The address of its bootstrap node id may have changed
        # since the connect, when the bootstrap names were resolved again.
        same = {connection.address}
        config = self._config
        is_direct = config.dialer is None and config.proxy_url is None
        # With TLS, the host names must be equal, because TLS has checked the certificate for the
        # name. (Besides, a TLS transport that has ended has no `remote`.)
        is_direct = is_direct and not config.security.uses_tls
        if is_direct and connection.remote is not None:
            same.add(connection.remote)
        for broker in response.brokers:
            if (broker.host, broker.port) in same:
                if not connection.in_flight:
                    pool.adopt(
                        node_id,
                        broker.node_id,
                        Endpoint(broker.host, broker.port, f"node {broker.node_id}"),
                    )
                return broker.node_id
        if not connection.in_flight:
            pool.drop(node_id, ConnectionGroup.DEFAULT, "not a broker's advertised address")
        return None

    def _bootstrap_error(self, failures: Mapping[int, KafkaError]) -> KafkaConnectionError:
        reasons = []
        for index, server in enumerate(self.servers):
            failure, address = failures.get(-index - 1), format_address(*server)
            if failure is None:
                reason = "no answer in time"
            elif isinstance(failure, KafkaConnectionError) and failure.args:
                reason = str(failure.args[0])
            else:
                reason = str(failure)
            # Errors of a credential source do not name the server.
            reasons.append(reason if reason.startswith(address) else f"{address}: {reason}")
        error = KafkaConnectionError(f"Unable to bootstrap from {'; '.join(reasons)}")
        # `MetadataLoop.bootstrap` retries after a MetadataEmptyBrokerList, so prefer it as cause.
        causes = sorted(failures.values(), key=_knows_brokers)
        error.__cause__ = next(iter(causes), None)
        return error


def _knows_brokers(failure: KafkaError) -> bool:
    return not isinstance(failure, MetadataEmptyBrokerList)


def _discard(pool: ConnectionPool, future: asyncio.Future[BrokerConnection], node_id: int) -> None:
    """Cancel a connect to a bootstrap server, or close its connection if that is unused."""
    if future.cancel() or future.cancelled() or future.exception() is not None:
        return
    if not future.result().in_flight:
        pool.drop(node_id, ConnectionGroup.DEFAULT, "another bootstrap server was faster")


def _refuse_controller(connection: BrokerConnection) -> None:
    """Raise UnsupportedVersionError for a controller, which does not support Metadata."""
    served = connection.versions.api_versions if connection.versions is not None else {}
    if _DESCRIBE_QUORUM in served and MetadataRequest.API_KEY not in served:
        raise UnsupportedVersionError(
            f"{connection.peer}: is a controller, not a broker: only admin clients can connect to "
            "it, with bootstrap_controllers"
        )


async def _why_unresolved(host: str, port: int, family: str) -> str:
    """Return why the name of a server cannot be resolved; "" if it has an address."""
    try:
        await resolve(host, port, family)
    except (OSError, ValueError) as error:
        failure = connect_failure(error, format_address(host, port), uses_tls=False)
        return str(failure.args[0])
    return ""


def _is_reachable(broker: Any) -> bool:
    return broker.node_id >= 0 and is_address(broker.host, broker.port)


async def _ask_controller(connection: BrokerConnection) -> MetadataResponse:
    """Return the controllers and the active controller (KIP-919) as a metadata response without
    topics.

    Raises UnsupportedVersionError before Kafka 3.7, MismatchedEndpointType for a broker, and the
    error of the response.
    """
    # Only clients of controllers load this module.
    from aiokafka.protocol.messages.cluster import DescribeClusterRequest

    peer = connection.peer
    version = connection.pick(DescribeClusterRequest)
    if version < _FIRST_WITH_CONTROLLERS:
        raise UnsupportedVersionError(
            f"{peer}: bootstrap_controllers needs Kafka 3.7 (KIP-919): use bootstrap_servers"
        )
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    request.endpoint_type = CONTROLLERS
    response = await connection.request(request, version=version)
    if response.error_code == MismatchedEndpointType.errno:
        raise MismatchedEndpointType(
            f"{peer}: is a broker, not a controller: name it in bootstrap_servers"
        )
    if response.error_code:
        reason = response.error_message or "refused DescribeCluster"
        raise for_code(response.error_code)(f"{peer}: {reason}")
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(
                node_id=each.broker_id, host=each.host, port=each.port, rack=each.rack
            )
            for each in response.brokers
        ],
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        topics=[],
    )
