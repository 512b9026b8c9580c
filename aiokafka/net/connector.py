"""Open one connection: TCP, TLS, ApiVersions, SASL."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from aiokafka._compat import timeout_at
from aiokafka._config.security import MADE_FOR_SERVERS, is_for_servers
from aiokafka._subject import Subject, about
from aiokafka._tasks import unless
from aiokafka._version import __version__
from aiokafka.errors import (
    KafkaConnectionError,
    NoError,
    RebootstrapRequired,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from aiokafka.net.connection import BrokerConnection
from aiokafka.net.credential_sources import CredentialSources
from aiokafka.net.dialing import Route, call_function, format_address, routes_to
from aiokafka.net.failures import connect_failure, handshake_failure
from aiokafka.protocol.messages.metadata import ApiVersionsRequest, ApiVersionsResponse
from aiokafka.protocol.versions import BrokerVersions

if TYPE_CHECKING:
    import ssl

    from aiokafka._config import ClientConfig

__all__ = [
    "CLIENT_NAME",
    "Connector",
    "Negotiation",
    "ask_versions",
    "negotiate",
    "software_version",
]


# -- The first request of a connection: ApiVersions


CLIENT_NAME = "aiokafka"

# Maximum number of ApiVersions requests on one connection. Usually at most three are sent: (1) in
# the client's version, (2) in a version that the broker supports, and (3) in a newer version, if
# the broker was upgraded.
_MAX_API_VERSIONS_REQUESTS = 4

# ApiVersions responses have finalized features since this version.
_FIRST_WITH_FEATURES = 3


class Negotiation:
    """State of the ApiVersions negotiation with one address, kept for later connections."""

    def __init__(self) -> None:
        self.newest = self.api_versions_version = ApiVersionsRequest.VERSIONS[1]
        """`api_versions_version` is the version of ApiVersions to send. `newest` is its limit, for
        gateways that support fewer versions of ApiVersions than the broker behind them."""
        self.is_untested = True
        """Whether this address has never responded to ApiVersions."""
        self.is_kafka_0_9 = False
        """Whether the broker responds to other requests but not to ApiVersions."""
        self.expected: tuple[str, int] | None = None
        """The cluster id and the node id that the broker at this address should have (KIP-1242).
        Kafka 4.4 and later reject ApiVersions with the ids of another broker. None: not checked."""


def ask_versions(
    connection: BrokerConnection, negotiation: Negotiation, timeout: float
) -> asyncio.Future[ApiVersionsResponse]:
    """Send ApiVersions with client name and version (KIP-511), and with the expected broker
    (KIP-1242); return a future of the response."""
    request = ApiVersionsRequest(
        client_software_name=CLIENT_NAME, client_software_version=software_version()
    )
    if negotiation.expected is not None:
        request.cluster_id, request.node_id = negotiation.expected
    return connection.send_nowait(request, negotiation.api_versions_version, timeout)


async def negotiate(
    connection: BrokerConnection,
    negotiation: Negotiation,
    answer: asyncio.Future[ApiVersionsResponse],
    asked: int,
    timeout: float,
) -> BrokerVersions:
    """Return the broker's versions from `answer`, the future of `ask_versions`; send the request
    again in another version if necessary.

    `asked` is the version of the first request: another connection to this address may have changed
    the version in `negotiation` since. A broker that does not support the version responds in
    version 0; since Kafka 2.4 this response contains the supported range.

    Raises RequestTimedOutError without a response, KafkaConnectionError for an error response or a
    lost connection, and UnsupportedVersionError if the broker rejects version 0 as well.
    """
    for _ in range(_MAX_API_VERSIONS_REQUESTS):
        response = await answer
        negotiation.is_untested = False
        if response.error_code == NoError.errno:
            # The broker may have been upgraded since an earlier response lowered the version: use
            # the newest version that it supports now.
            best = min(_newest_supported(response), negotiation.newest)
            negotiation.api_versions_version = best
            if not asked < _FIRST_WITH_FEATURES <= best:
                return _versions(response)
            # A response in the version of this request has no finalized features, but the broker
            # supports a later version. Without another request, the client could not use
            # transaction.version 2.
            asked, answer = best, ask_versions(connection, negotiation, timeout)
            continue
        if response.error_code == RebootstrapRequired.errno and negotiation.expected is not None:
            cluster_id, node_id = negotiation.expected
            raise handshake_failure(
                response.error_code,
                connection.peer,
                "ApiVersions",
                f"another broker than node {node_id} of cluster {cluster_id} answers at this "
                "address (metadata_cluster_check_enable)",
            )
        if response.error_code != UnsupportedVersionError.errno:
            raise handshake_failure(response.error_code, connection.peer, "ApiVersions")
        if asked == 0:
            raise UnsupportedVersionError(
                f"{connection.peer}: rejected every version of ApiVersions"
            )
        asked = negotiation.api_versions_version = min(_newest_supported(response), asked - 1)
        answer = ask_versions(connection, negotiation, timeout)
    answer.cancel()
    raise KafkaConnectionError(
        f"{connection.peer}: rejects each version of ApiVersions that it offers"
    )


def software_version() -> str:
    """Return the version of this client in the form that brokers accept."""
    # Brokers close the connection unless [a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])? matches.
    return __version__.replace("+", "-")


def _newest_supported(response: ApiVersionsResponse) -> int:
    for api in response.api_keys:
        if api.api_key == ApiVersionsRequest.API_KEY:
            return max(0, api.max_version)
    return 0


def _versions(response: ApiVersionsResponse) -> BrokerVersions:
    ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    features = {}
    if response.finalized_features_epoch >= 0:
        features = {
            feature.name: feature.max_version_level for feature in response.finalized_features
        }
    return BrokerVersions(ranges, features)


log = logging.getLogger("aiokafka.conn")

# Seconds without a response to ApiVersions until `_probe` tests for Kafka 0.9 on a second
# connection. ApiVersions stays in flight, so that a slow broker is not mistaken for an old broker.
_PROBE_AFTER = 1.0
# `_probe` waits for the response to SaslHandshake for this multiple of the response time of
# ListOffsets, and at least `_PROBE_AFTER` seconds. Without a response, the broker is Kafka 0.9.
_TIMES_SLOWER = 10

# The ApiVersions version of Kafka's clients from 2.4 to 3.8. Servers other than Kafka (Azure Event
# Hubs) may close the connection for a later version.
_WIDELY_SUPPORTED = 3


class Connector:
    """Opens connections to one address. Owns the state of its ApiVersions negotiation, and the
    index of the route to try first."""

    def __init__(
        self,
        config: ClientConfig,
        host: str,
        port: int,
        label: str,
        node_id: int | None = None,
        sources: CredentialSources | None = None,
    ) -> None:
        """`label` and `node_id` name the broker in messages."""
        self.host = host
        self.port = port
        self._config = config
        self._uses_tls = config.security.uses_tls
        self._uses_sasl = config.security.uses_sasl
        self._sources = sources or CredentialSources(config)
        self._node_id: int | None = None
        self.peer = self.rename(label, node_id)
        self._negotiation = Negotiation()
        self._first_route = 0
        # The last connection on which the broker was assumed to be Kafka 0.9.
        self._assumed: BrokerConnection | None = None

    @property
    def is_reached(self) -> bool:
        """Whether a broker at this address has ever responded to ApiVersions."""
        return not self._negotiation.is_untested

    def rename(self, label: str, node_id: int | None = None) -> Subject:
        """Set the label and node id of the broker; return the broker's new name in messages."""
        address = format_address(self.host, self.port)
        text = f"{address} ({label})" if label else address
        self._node_id = node_id
        self.peer = Subject(text, client_id=self._config.client_id, node_id=node_id)
        return self.peer

    async def open(
        self,
        deadline: float,
        *,
        may_be_0_9: bool = True,
        expected: tuple[str, int] | None = None,
    ) -> BrokerConnection:
        """Connect, negotiate versions and authenticate; try every route, usually the
        resolved addresses (KIP-302).

        `deadline` (loop time) limits the call; the remaining time is divided evenly among the
        routes that were not tried yet.
        With `may_be_0_9`, a broker that does not respond to ApiVersions is tested for Kafka 0.9.
        `expected` is the cluster id and node id that the broker checks since Kafka 4.4 (KIP-1242).
        The `__cause__` of the error is RebootstrapRequired if a broker with other ids than
        `expected` has responded.
        Raises KafkaConnectionError with the likely reason, AuthenticationFailedError,
        AuthenticationMethodNotSupported, UnsupportedVersionError.
        """
        if self._assumed is not None and not (may_be_0_9 and self._assumed.is_proven):
            # The assumption of Kafka 0.9 was wrong if the broker responded to no request in the
            # versions of Kafka 0.9, or if the cluster has a newer broker. The broker was only slow,
            # or has been upgraded: negotiate again.
            self._negotiation, self._assumed = Negotiation(), None
        self._negotiation.expected = expected
        broker = (self.host, self.port, self._node_id)
        routes = await routes_to(self._config, broker, self.peer, deadline)
        try:
            return await self._open_first(routes, deadline, may_be_0_9)
        finally:
            for route in routes:
                route.close()

    async def _open_first(
        self, routes: list[Route], deadline: float, may_be_0_9: bool
    ) -> BrokerConnection:
        first = self._first_route % len(routes)
        failures: list[KafkaConnectionError] = []
        loop = asyncio.get_running_loop()
        for index, route in enumerate(routes[first:] + routes[:first]):
            left = deadline - loop.time()
            share = loop.time() + left / (len(routes) - index)
            try:
                connection = await self._open_route(route, share, may_be_0_9)
            except KafkaConnectionError as error:
                failures.append(error)
                continue
            # The next call of `open` tries this route first.
            self._first_route = (first + index) % len(routes)
            return connection
        if len(failures) == 1:
            raise failures[0]
        raise KafkaConnectionError(
            "; ".join(str(failure.args[0]) for failure in failures)
        ) from failures[0]

    async def _open_route(
        self, route: Route, deadline: float, may_be_0_9: bool
    ) -> BrokerConnection:
        negotiation, asked = self._negotiation, self._negotiation.api_versions_version
        connection = await self._connect(route, deadline)
        try:
            return await self._handshake_in_time(connection, route, deadline, may_be_0_9)
        except KafkaConnectionError:
            is_over = asyncio.get_running_loop().time() >= deadline
            is_new = asked > _WIDELY_SUPPORTED and negotiation.is_untested
            if is_over or not (is_new and _is_cut_off(connection)):
                raise
        negotiation.newest = negotiation.api_versions_version = _WIDELY_SUPPORTED
        try:
            connection = await self._connect(route, deadline)
            return await self._handshake_in_time(connection, route, deadline, may_be_0_9)
        finally:
            if negotiation.is_untested:
                # The broker did not respond to the older version either, so the version was not the
                # reason for the closed connection.
                negotiation.newest = negotiation.api_versions_version = asked

    async def _handshake_in_time(
        self, connection: BrokerConnection, route: Route, deadline: float, may_be_0_9: bool
    ) -> BrokerConnection:
        try:
            async with timeout_at(deadline):
                return await self._handshake(connection, route, deadline, may_be_0_9)
        except asyncio.TimeoutError:
            error = KafkaConnectionError(
                f"{connection.peer}: connected, but the broker did not finish the handshake in time"
            )
            connection.abort(error)
            raise error from RequestTimedOutError()
        except RequestTimedOutError as timed_out:
            connection.abort()
            raise KafkaConnectionError(
                f"{connection.peer}: no response during the handshake"
            ) from timed_out
        except BaseException:
            connection.abort()
            raise

    async def _connect(self, route: Route, deadline: float) -> BrokerConnection:
        """Return a new connection after the TCP connect and the TLS handshake. Raises
        KafkaConnectionError if either fails."""
        peer = route.peer
        context = await self._tls_context(peer, deadline) if self._uses_tls else None
        try:
            return await route.connect(lambda: self._new_connection(peer), context, deadline)
        except asyncio.TimeoutError:
            text = f"{peer}: no connection in time: host down, packets dropped"
            if self._uses_tls:
                text += (
                    ", or the listener does not answer the TLS handshake (it may expect plaintext)"
                )
            raise KafkaConnectionError(text) from None
        except OSError as error:
            raise connect_failure(error, peer, uses_tls=self._uses_tls) from error

    async def _tls_context(self, peer: str, deadline: float) -> ssl.SSLContext:
        """Return the configured TLS context, or the result of the configured function, which is
        called for each connection."""
        source = self._config.security.ssl_context
        if not callable(source):
            return cast("ssl.SSLContext", source)
        try:
            return await self._sources.tls.call(lambda: _created_context(source, deadline))
        except KafkaConnectionError as error:
            # Name this broker: the error may be from a call of the function for another broker.
            raise KafkaConnectionError(f"{peer}: {error.args[0]}") from error.__cause__

    def _new_connection(self, peer: str) -> BrokerConnection:
        config = self._config
        return BrokerConnection(
            peer,
            client_id=config.client_id,
            request_timeout=config.request_timeout,
            max_response_bytes=config.max_response_bytes,
            uses_tls=self._uses_tls,
            uses_sasl=self._uses_sasl,
        )

    async def _handshake(
        self, connection: BrokerConnection, route: Route, deadline: float, may_be_0_9: bool
    ) -> BrokerConnection:
        if self._negotiation.is_kafka_0_9:
            return self._assume_0_9(connection)
        left = deadline - asyncio.get_running_loop().time()
        asked = self._negotiation.api_versions_version
        answer = ask_versions(connection, self._negotiation, left)
        is_kept = False
        try:
            is_unknown = self._negotiation.is_untested and may_be_0_9
            if is_unknown and not self._uses_sasl:
                await asyncio.wait((answer,), timeout=min(_PROBE_AFTER, left / 2))
                if not answer.done():
                    old = await self._probe(route, answer, deadline)
                    if old is not None:
                        is_kept = True
                        self._keep_asking(connection, answer, old)
                        return old
            connection.versions = await negotiate(
                connection, self._negotiation, answer, asked, left
            )
        finally:
            if not is_kept:
                _discard(answer)
        if self._uses_sasl:
            from aiokafka.net.authentication import authenticate  # only loaded with SASL

            left = deadline - asyncio.get_running_loop().time()
            security = self._config.security
            await authenticate(connection, security, self.host, left, self._sources.sasl)
        connection.admit()
        return connection

    async def _probe(
        self, route: Route, unanswered: asyncio.Future[Any], deadline: float
    ) -> BrokerConnection | None:
        """Return a new connection if the broker is Kafka 0.9, else None. Also return None as soon
        as `unanswered`, the future of the ApiVersions response, is done.

        1. On a second connection the client sends ListOffsets v0, which Kafka 0.9 supports, and
           then SaslHandshake, which only newer brokers support.
        2. A broker is Kafka 0.9 if it responds to ListOffsets, but not to SaslHandshake. The client
           waits for the latter ten times as long as ListOffsets has taken, and at least a second:
           on a slow network, the response to ListOffsets is late as well.
        3. Kafka 4, which no longer supports ListOffsets v0 (KIP-896), closes the connection, so the
           result is None.
        """
        from aiokafka.protocol.messages.fetch import ListOffsetsRequest
        from aiokafka.protocol.messages.sasl import SaslHandshakeRequest

        loop = asyncio.get_running_loop()
        connection = await self._connect_beside(route, unanswered, deadline)
        if connection is None:
            return None
        asked_at = loop.time()
        left = deadline - asked_at
        nothing = ListOffsetsRequest(replica_id=-1, topics=[])
        control = connection.send_nowait(nothing, version=0, timeout=left)
        # Send SaslHandshake instead of another ApiVersions, because some brokers are slow to
        # respond to ApiVersions only. Newer brokers respond to this SaslHandshake with an error.
        unasked = SaslHandshakeRequest(mechanism="")
        newer = connection.send_nowait(unasked, version=0, timeout=left)
        try:
            await asyncio.wait((control, unanswered), return_when=asyncio.FIRST_COMPLETED)
            if unanswered.done() or control.exception() is not None:
                return None
            patience = max(_PROBE_AFTER, _TIMES_SLOWER * (loop.time() - asked_at))
            await asyncio.wait(
                (newer, unanswered), timeout=patience, return_when=asyncio.FIRST_COMPLETED
            )
            if unanswered.done() or newer.done():
                return None
        finally:
            _discard(control)
            _discard(newer)
            connection.abort()
        log.info(
            "%s: no response to ApiVersions, so it is assumed to be Kafka 0.9",
            self.peer,
            extra=about(self.peer),
        )
        self._negotiation.is_kafka_0_9 = True
        return self._assume_0_9(await self._connect(route, deadline))

    def _keep_asking(
        self, asked: BrokerConnection, answer: asyncio.Future[Any], assumed: BrokerConnection
    ) -> None:
        """Abort `assumed`, the connection to an assumed Kafka 0.9, if the broker responds to
        ApiVersions after all.

        `answer` is the future of this response on the connection `asked`. The request stays in
        flight until its deadline, or until `assumed` closes.
        """

        def on_api_versions(_: asyncio.Future[Any]) -> None:
            asked.abort()
            if answer.cancelled() or answer.exception() is not None:
                return
            text = "answers ApiVersions after all, so it is not Kafka 0.9"
            log.info("%s: %s", self.peer, text, extra=about(self.peer))
            self._negotiation, self._assumed = Negotiation(), None
            self._negotiation.is_untested = False
            assumed.abort(KafkaConnectionError(f"{assumed.peer}: {text}"))

        answer.add_done_callback(on_api_versions)
        assumed.closed.add_done_callback(lambda _: asked.abort())

    async def _connect_beside(
        self, route: Route, unanswered: asyncio.Future[Any], deadline: float
    ) -> BrokerConnection | None:
        """Return a second connection to the broker; None if the connect fails, or if `unanswered`,
        the response to ApiVersions on the first connection, arrives before."""
        made: list[BrokerConnection] = []

        async def connect() -> BrokerConnection:
            made.append(await self._connect(route, deadline))
            return made[0]

        # A busy broker may respond to ApiVersions before it accepts another connection: then stop
        # the connect.
        try:
            return await unless(asyncio.wait((unanswered,)), connect())
        except KafkaConnectionError:
            return None
        except asyncio.CancelledError:
            # The connect may have succeeded in the loop iteration of the cancellation.
            for connection in made:
                connection.abort()
            raise

    def _assume_0_9(self, connection: BrokerConnection) -> BrokerConnection:
        connection.versions = BrokerVersions.assumed_0_9()
        connection.admit()
        self._assumed = connection
        return connection


def _is_cut_off(connection: BrokerConnection) -> bool:
    """Return whether the peer closed the connection before it sent a byte, and TLS did not fail."""
    cause = None if connection.error is None else connection.error.__cause__
    return not connection.traffic.bytes_in and (cause is None or isinstance(cause, ConnectionError))


def _discard(future: asyncio.Future[Any]) -> None:
    """Cancel `future`; if it is done, mark its exception as retrieved, so that asyncio does not log
    it."""
    if not future.cancel() and not future.cancelled():
        future.exception()


async def _created_context(source: Callable[[], object], deadline: float) -> ssl.SSLContext:
    """Return the TLS context from `source`, the application's function. Raises KafkaConnectionError
    if the function fails or does not return a TLS context for clients."""
    context = await call_function(source, "the function given as ssl_context", deadline)
    if not callable(getattr(context, "wrap_bio", None)):
        raise KafkaConnectionError(
            f"the function given as ssl_context returned {type(context).__name__}, "
            "not an ssl.SSLContext"
        )
    if is_for_servers(context):
        # asyncio would raise for this context, and leave the socket open until garbage collection.
        raise KafkaConnectionError(
            f"the function given as ssl_context returned a context {MADE_FOR_SERVERS}"
        )
    return cast("ssl.SSLContext", context)
