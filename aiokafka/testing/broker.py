"""One listening socket of a fake cluster: frames in, handler, frames out."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiokafka.errors import KafkaProtocolError
from aiokafka.protocol.compiler import codec
from aiokafka.testing import codes, handlers
from aiokafka.testing.actions import (
    Answer,
    Cut,
    Delay,
    Edit,
    Fail,
    Hold,
    RawBytes,
    Silence,
)
from aiokafka.testing.ailment import Ailment
from aiokafka.testing.batches import Buffer
from aiokafka.testing.handlers import CloseConnectionError
from aiokafka.testing.script import RequestContext, Script
from aiokafka.testing.security import Session, State
from aiokafka.testing.sockets import close_server

if TYPE_CHECKING:
    import ssl

    from aiokafka.protocol.schema import Response
    from aiokafka.testing.services import Services
    from aiokafka.testing.state import ClusterState
    from aiokafka.testing.versions import BrokerProfile

log = logging.getLogger(__name__)

_API_VERSIONS = 18
_READ_LIMIT = 4 * 1024 * 1024
_HEADER = struct.Struct(">hhi")
_connection_ids = itertools.count(1)


@dataclass(slots=True)
class Reply:
    """What goes back for one request."""

    chunks: list[Buffer]
    """Nothing if the client gets no answer."""
    mute: float = 0.0
    """Seconds for which the connection is not read afterwards (KIP-219)."""


class FakeBroker:
    """A broker of a :class:`FakeCluster`: it listens, decodes, asks the script, answers.

    Requests of one connection are answered one after the other, as Kafka does.
    """

    def __init__(
        self,
        node_id: int,
        services: Services,
        script: Script,
        *,
        host: str,
        ssl_context: ssl.SSLContext | None,
    ) -> None:
        #: Id of the broker in the cluster.
        self.node_id = node_id
        #: Address it listens on; the port is known once it has been started.
        self.host = host
        self.port = 0
        self.services = services
        #: What went wrong inside the fake itself, or could not be decoded; empty in a good test.
        self.failures: list[BaseException] = []
        #: ``throttle_time_ms`` put into every answer that has it.
        self.throttle_ms = 0
        #: What it cannot do at the moment; see :class:`Faults`.
        self.ailment = Ailment(services.random)
        self._script = script
        self._ssl = ssl_context
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def state(self) -> ClusterState:
        """What this broker knows of the cluster."""
        state = self.services.state
        return state.nodes[self.node_id].view or state

    @property
    def profile(self) -> BrokerProfile:
        """The release that this broker plays."""
        return self.services.state.nodes[self.node_id].profile

    @property
    def connections(self) -> int:
        """Number of open client connections."""
        return len(self._connections)

    async def start(self) -> None:
        """Listen; after a :meth:`stop` on the same port as before."""
        self._server = await asyncio.start_server(
            self._accept, self.host, self.port, ssl=self._ssl, limit=_READ_LIMIT
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and break all connections; requests in progress are dropped."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        connections = dict(self._connections)
        self.drop_connections()
        await asyncio.gather(*connections, return_exceptions=True)
        await close_server(server)

    def drop_connections(self) -> None:
        """Break all connections; new ones are accepted."""
        for task, writer in self._connections.items():
            writer.transport.abort()
            task.cancel()

    # -- one connection ------------------------------------------------------------------------

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:
            writer.transport.abort()
            return
        name = f"fake-broker-{self.node_id}"
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer), name=name)
        self._connections[task] = writer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection_id = next(_connection_ids)
        peer = writer.get_extra_info("peername") or ("", 0)
        security = self.services.security
        session = None if security is None else Session(security)
        try:
            while session is None or session.state is not State.REFUSED:
                frame = await self._read_frame(reader)
                if session is not None and session.takes_raw_tokens:
                    reply = _reply_to_token(frame, session)
                else:
                    reply = await self._reply_to(frame, connection_id, peer[0], session)
                if reply.chunks:
                    writer.writelines(reply.chunks)
                    await writer.drain()
                if reply.mute:
                    await asyncio.sleep(reply.mute)
        except (CloseConnectionError, asyncio.IncompleteReadError, OSError):
            pass  # the connection ends: by the script, by the client, or by the network
        except Exception as exc:
            self.failures.append(exc)
            log.exception("fake broker %d failed on a request", self.node_id)
        finally:
            await self._finish(writer)

    async def _finish(self, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        try:
            writer.close()
            await writer.wait_closed()
        except OSError:
            pass
        finally:
            writer.transport.abort()
            if task is not None:
                self._connections.pop(task, None)

    async def _read_frame(self, reader: asyncio.StreamReader) -> bytes:
        size = int.from_bytes(await reader.readexactly(4), "big", signed=True)
        if not 0 <= size <= self.state.setting("socket.request.max.bytes"):
            raise CloseConnectionError
        return await reader.readexactly(size)

    # -- one request ---------------------------------------------------------------------------

    async def _reply_to(
        self, frame: bytes, connection_id: int, host: str, session: Session | None
    ) -> Reply:
        try:
            api_key, version, correlation_id = _HEADER.unpack_from(frame)
            client_id, position = _read_client_id(frame)
        except (struct.error, ValueError, IndexError):
            raise CloseConnectionError from None
        now = asyncio.get_running_loop().time()
        context = RequestContext(
            self, api_key, version, correlation_id, client_id, connection_id, host, now, session
        )
        if session is not None:
            session.check(api_key)
        if not self.profile.serves(api_key, version) or not handlers.known(api_key):
            return self._refuse_version(context, frame, position)
        request_class = handlers.load(api_key).REQUEST
        if request_class.FLEXIBLE is not None and version >= request_class.FLEXIBLE:
            position = _skip_tags(frame, position)
        try:
            # Kafka ignores what follows a request, and librdkafka sends such bytes.
            request, _ = codec(request_class, version).decode_prefix(frame, position)
        except KafkaProtocolError as exc:
            self.failures.append(exc)
            raise CloseConnectionError from exc
        if self.ailment.is_felt:
            await self.ailment.wait(api_key)
        self._script.saw(request, context, len(frame))
        answer = None if self._script.idle else await self._script.ask(request, context)
        reply = await self._act(answer, request, context)
        self._script.wake()
        return reply

    async def _act(self, answer: Answer, request: Any, context: RequestContext) -> Reply:
        """Carry out what the script wants, or the broker's own work."""
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
            return self._encode(self._failure(answer.errno, request, context), context)
        if isinstance(answer, Edit):
            response = await self._handle(request, context)
            changed = answer.change(response)
            answer = response if changed is None else changed
        elif answer is None:
            answer = await self._handle(request, context)
        return self._encode(answer, context)

    async def _handle(self, request: Any, context: RequestContext) -> Response | None:
        answer = handlers.load(context.api_key).handle(context, request)
        result = await answer if inspect.isawaitable(answer) else answer
        if result is not None and self.throttle_ms and hasattr(result, "throttle_time_ms"):
            result.throttle_time_ms = self.throttle_ms
        return result  # type: ignore[no-any-return]

    def _failure(self, errno: int, request: Any, context: RequestContext) -> Response:
        return handlers.load(context.api_key).refuse(context, request, errno)

    def _encode(self, response: Response | None, context: RequestContext) -> Reply:
        if response is None:
            return Reply([])
        body = codec(type(response), context.api_version).encode(response)
        flexible = response.FLEXIBLE is not None and context.api_version >= response.FLEXIBLE
        tags = b"\x00" if flexible and context.api_key != _API_VERSIONS else b""
        size = 4 + len(tags) + sum(map(len, body))
        header = struct.pack(">ii", size, context.correlation_id) + tags
        throttle = getattr(response, "throttle_time_ms", 0) / 1000
        return Reply([header, *body], mute=throttle)

    def _refuse_version(self, context: RequestContext, frame: bytes, position: int) -> Reply:
        """What brokers do with an API or version that they do not have."""
        profile = self.profile
        if profile.release < (0, 10):
            return Reply([])  # the broker throws inside; the client never hears of it
        if context.api_key != _API_VERSIONS:
            raise CloseConnectionError
        if context.api_version >= 3:
            _skip_tags(frame, position)  # must be there: the header is of the newest form
        return self._encode_unsupported_api_versions(context)

    def _encode_unsupported_api_versions(self, context: RequestContext) -> Reply:
        """ApiVersions tells, in its oldest form, which versions of itself there are (KIP-511)."""
        profile = self.profile
        entries = b""
        if profile.release >= (2, 4):
            low, high = profile.ranges[_API_VERSIONS]
            entries = struct.pack(">hhh", _API_VERSIONS, low, high)
        count = len(entries) // 6
        body = struct.pack(">ihi", context.correlation_id, codes.UNSUPPORTED_VERSION, count)
        body += entries
        return Reply([struct.pack(">i", len(body)) + body])


def _reply_to_token(frame: bytes, session: Session) -> Reply:
    """Before Kafka 1.0 tokens have no header, and a refusal is a closed connection."""
    verdict = session.authenticate(frame)
    if verdict.errno:
        raise CloseConnectionError
    return Reply([struct.pack(">i", len(verdict.challenge)), verdict.challenge])


def _read_client_id(frame: bytes) -> tuple[str | None, int]:
    """The client id, a nullable string even in flexible headers, and the position after it."""
    start = _HEADER.size + 2
    size = int.from_bytes(frame[_HEADER.size : start], "big", signed=True)
    if size < 0:
        return None, start
    if start + size > len(frame):
        raise ValueError("client id is longer than the frame")
    return frame[start : start + size].decode(), start + size


def _skip_tags(frame: bytes, position: int) -> int:
    """The position after the tagged fields of a request header, of which none is defined."""
    count, position = _uvarint(frame, position)
    for _ in range(count):
        _, position = _uvarint(frame, position)
        size, position = _uvarint(frame, position)
        position += size
    return position


def _uvarint(frame: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(frame) or shift > 28:
            raise CloseConnectionError
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
