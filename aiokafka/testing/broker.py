"""One broker of a fake cluster: decode requests, apply interceptions, send responses."""

from __future__ import annotations

import asyncio
import inspect
import logging
import struct
from collections.abc import Collection
from functools import partial
from random import Random
from ssl import PROTOCOL_TLS_CLIENT
from typing import TYPE_CHECKING, Any

from aiokafka.errors import KafkaProtocolError
from aiokafka.protocol.compiler import codec
from aiokafka.testing import handlers
from aiokafka.testing.actions import (
    Answer,
    CloseConnectionError,
    Cut,
    Delay,
    Edit,
    Fail,
    Hold,
    RawBytes,
    RefusedError,
    Silence,
    check_answer,
    check_seconds,
)
from aiokafka.testing.connection import (
    Connection,
    DeferredReply,
    Reply,
    close_server,
    encode,
    read_header,
    refuse_version,
    skip_tags,
    stop_accepting,
)
from aiokafka.testing.replication import Seconds, drawn
from aiokafka.testing.script import AsyncHandlerCall, RequestContext, Script

if TYPE_CHECKING:
    import ssl

    from aiokafka.protocol.schema import Response
    from aiokafka.testing.security import Session
    from aiokafka.testing.services import Services
    from aiokafka.testing.state import ClusterState
    from aiokafka.testing.versions import BrokerProfile

log = logging.getLogger(__name__)


class FakeBroker:
    """A broker of a :class:`FakeCluster`. It handles the requests of a connection in order."""

    def __init__(
        self,
        node_id: int,
        services: Services,
        script: Script,
        *,
        host: str,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        _check_context(ssl_context)
        #: Id of the broker in the cluster.
        self.node_id = node_id
        #: Listening address; the port is 0 before the first start.
        self.host = host
        self.port = 0
        self.services = services
        #: Errors inside the fake, and requests that could not be decoded.
        self.failures: list[BaseException] = []
        #: ``throttle_time_ms`` of every response that has this field.
        self.throttle_ms = 0
        #: APIs whose requests are delayed or get no response; see :class:`Faults`.
        self.faults = BrokerFaults(services.random)
        self._script = script
        self._ssl = ssl_context
        #: Held while the broker starts or stops, so that these operations never overlap.
        self.changing = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._connections: dict[Connection, None] = {}
        self._largest = ("", 0)  # cache of socket.request.max.bytes: the text, and its value

    @property
    def state(self) -> ClusterState:
        """The cluster state as this broker knows it: the actual state, or the stale state in
        `Node.view`."""
        state = self.services.state
        return state.nodes[self.node_id].view or state

    @property
    def profile(self) -> BrokerProfile:
        """The release that this broker imitates."""
        return self.services.state.nodes[self.node_id].profile

    @property
    def connections(self) -> int:
        """Number of open client connections."""
        return sum(connection.is_open for connection in self._connections)

    @property
    def is_listening(self) -> bool:
        """Whether the broker accepts connections."""
        return self._server is not None

    @property
    def largest_request(self) -> int:
        """Maximum size of a request in bytes. The broker closes the connection of a larger
        request."""
        text = self.services.state.config["socket.request.max.bytes"]
        if text is not self._largest[0]:
            self._largest = text, int(text)
        return self._largest[1]

    async def start(self) -> None:
        """Start listening; after :meth:`stop`, on the same port as before."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: Connection(self), self.host, self.port, ssl=self._ssl
        )
        self._server = server
        self.port = server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and break all connections; requests in progress are cancelled."""
        server, self._server = self._server, None
        if server is not None:
            stop_accepting(server)
        connections = tuple(self._connections)
        self.drop_connections()
        await close_server(server, connections)

    def drop_connections(self) -> None:
        """Break all connections. Clients may connect again."""
        for connection in tuple(self._connections):
            connection.abort()

    # -- for connections -----------------------------------------------------------------------

    def add_connection(self, connection: Connection) -> None:
        """Add an accepted client connection."""
        self._connections[connection] = None

    def connection_lost(self, connection: Connection) -> None:
        """Close the share session that a lost connection has opened."""
        self.services.shares.connection_closed(self.node_id, connection.connection_id)

    def remove_connection(self, connection: Connection) -> None:
        """Remove a closed connection after its last request has been handled."""
        self._connections.pop(connection, None)

    def report_failure(self, exc: Exception) -> None:
        """Log an error inside the fake and add it to `failures`; ignore network errors."""
        if isinstance(exc, OSError):
            return
        self.failures.append(exc)
        log.error("fake broker %d failed on a request", self.node_id, exc_info=exc)

    def answer(self, frame: bytes, connection: Connection) -> Reply | DeferredReply:
        """Return the reply to a request; a DeferredReply if handling the request must await.

        Raises:
            CloseConnectionError: the connection must be closed without a reply.
        """
        session = connection.session
        if session is not None and session.takes_raw_tokens:
            return _reply_to_token(frame, session)
        header = read_header(frame)
        api_key, version, correlation_id, client_id, position = header
        if session is not None:
            session.check(api_key)
        if not self.profile.serves(api_key, version) or not handlers.known(api_key):
            return refuse_version(self.profile, frame, header)
        request = self._decode(frame, api_key, version, position)
        context = RequestContext(
            self,
            api_key,
            version,
            correlation_id,
            client_id,
            connection.connection_id,
            connection.host,
            connection.loop.time(),
            session,
            len(frame),
        )
        if self.faults.is_active:
            return DeferredReply(self._answer_after_faults(request, context))
        self._script.saw(request, context)
        answer = None if self._script.idle else self._script.ask(request, context)
        if answer is not None:
            drop = answer.close if isinstance(answer, AsyncHandlerCall) else None
            return DeferredReply(self._act(answer, request, context), drop=drop)
        response = self._begin(request, context)
        if inspect.iscoroutine(response):
            return DeferredReply(response, partial(self._end, context))
        return self._end(context, response)

    def _end(self, context: RequestContext, response: Response | None) -> Reply:
        reply = self._reply(self._finished(response, context), context)
        self._script.wake()
        return reply

    def _decode(self, frame: bytes, api_key: int, version: int, position: int) -> Any:
        request_class = handlers.load(api_key).request_class
        if request_class.FLEXIBLE is not None and version >= request_class.FLEXIBLE:
            position = skip_tags(frame, position)
        try:
            # librdkafka sends trailing bytes, which Kafka ignores.
            return codec(request_class, version).decode_prefix(frame, position)[0]
        except KafkaProtocolError as exc:
            self.failures.append(exc)
            raise CloseConnectionError from exc

    # -- one request ---------------------------------------------------------------------------

    async def _answer_after_faults(self, request: Any, context: RequestContext) -> Reply:
        await self.faults.wait(context.api_key)
        self._script.saw(request, context)
        return await self._act(self._script.ask(request, context), request, context)

    async def _act(
        self, answer: Answer | AsyncHandlerCall, request: Any, context: RequestContext
    ) -> Reply:
        """Carry out the action of an interception; without an action, handle the request."""
        if isinstance(answer, AsyncHandlerCall):
            answer = await answer.answer()
        reply = await self._carry_out(answer, request, context)
        self._script.wake()
        return reply

    async def _carry_out(self, answer: Answer, request: Any, context: RequestContext) -> Reply:
        check_answer("what the handler of an interception returns", answer)
        while isinstance(answer, Delay | Hold):
            if isinstance(answer, Delay):
                await asyncio.sleep(answer.seconds)
            else:
                await answer.event.wait()
            answer = answer.then
        if isinstance(answer, RawBytes):
            return Reply([answer.data])
        if isinstance(answer, Cut | Silence):
            if answer.handled:
                await self._handle(request, context)
                self._script.wake()
            if isinstance(answer, Cut):
                raise CloseConnectionError
            return Reply([])
        if isinstance(answer, Fail):
            api = handlers.load(context.api_key)
            return self._reply(api.refuse(context, request, answer.errno), context)
        if isinstance(answer, Edit):
            response = await self._handle(request, context)
            # A Produce request with acks=0 has no response, so there is nothing to change.
            changed = None if response is None else answer.change(response)
            answer = response if changed is None else changed
            check_answer("what the function of an Edit returns", answer)
        elif answer is None:
            answer = await self._handle(request, context)
        return self._reply(answer, context)

    async def _handle(self, request: Any, context: RequestContext) -> Response | None:
        answer = self._begin(request, context)
        result = await answer if inspect.isawaitable(answer) else answer
        return self._finished(result, context)

    def _begin(self, request: Any, context: RequestContext) -> Any:
        """Check the permissions and call the handler. Return its result: a response, None, or an
        awaitable of either. If the handler raises RefusedError, return its error response."""
        acls = self.services.acls
        errno = 0 if acls.is_idle else acls.check(context, request)
        api = handlers.load(context.api_key)
        try:
            handlers.require(errno)
            return api.handle(context, request)
        except RefusedError as refused:
            return api.refuse(context, request, refused.errno)

    def _finished(self, result: Response | None, context: RequestContext) -> Response | None:
        if result is None:
            return None
        for change in self.profile.changes.get(context.api_key, ()):
            change(context, result)
        if not hasattr(result, "throttle_time_ms"):
            return result
        if self.throttle_ms:
            result.throttle_time_ms = self.throttle_ms
        if not self.services.quotas.is_idle:
            waits = self.services.quotas.charge_for(context, result)
            result.throttle_time_ms = max(waits, result.throttle_time_ms)
        return result

    def _reply(self, response: Response | None, context: RequestContext) -> Reply:
        if response is None:
            # Even without a response, a broker reads nothing from the connection of a throttled
            # client for the throttle time (KIP-219).
            quotas = self.services.quotas
            waits = 0 if quotas.is_idle else quotas.charge_for(context, None)
            return Reply([], mute=waits / 1000)
        chunks = encode(response, context.api_key, context.api_version, context.correlation_id)
        return Reply(chunks, mute=getattr(response, "throttle_time_ms", 0) / 1000)


def _check_context(context: ssl.SSLContext | None) -> None:
    if context is None:
        return
    if not callable(getattr(context, "wrap_bio", None)):
        raise TypeError(f"ssl_context must be an ssl.SSLContext or None, not {context!r}")
    if getattr(context, "protocol", None) is PROTOCOL_TLS_CLIENT:
        raise ValueError(
            "ssl_context must be one for servers, as of "
            "ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), with a certificate"
        )


def _reply_to_token(frame: bytes, session: Session) -> Reply:
    """Return the reply to a SASL token without a request header (SaslHandshake v0, before Kafka
    1.0). Raise CloseConnectionError if the login fails.
    """
    verdict = session.authenticate(frame)
    if verdict.errno:
        raise CloseConnectionError
    return Reply([struct.pack(">i", len(verdict.challenge)), verdict.challenge])


# -- Faults of a broker: delayed requests, missing responses


class BrokerFaults:
    """The APIs whose requests a broker delays, or leaves without a response."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._lag: Seconds = 0.0
        self._slow: Collection[int] | None = ()  # API keys; None for all APIs
        self._hung: Collection[int] | None = ()
        self._revived = asyncio.Event()
        #: Whether any fault is active.
        self.is_active = False

    def hang(self, api_keys: Collection[int] | None) -> None:
        """Block requests of these APIs (None: of all APIs) until :meth:`heal`."""
        self._hung = api_keys
        self._revived.clear()
        self.is_active = True

    def slow(self, seconds: Seconds, api_keys: Collection[int] | None) -> None:
        """Delay requests of these APIs (None: of all APIs)."""
        for each in seconds if isinstance(seconds, tuple) else (seconds,):
            check_seconds("seconds", each)
        self._lag, self._slow = seconds, api_keys
        self.is_active = True

    def heal(self) -> None:
        """End all faults, and handle the blocked requests now."""
        self._hung = self._slow = ()
        self.is_active = False
        self._revived.set()

    async def wait(self, api_key: int) -> None:
        """Wait as long as a request of this API is delayed or blocked."""
        if self._slow is None or api_key in self._slow:
            await asyncio.sleep(drawn(self._lag, self._random))
        if self._hung is None or api_key in self._hung:
            await self._revived.wait()
