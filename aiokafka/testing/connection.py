"""Client connections to a fake broker, the framing of requests and responses, closing servers."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import struct
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from aiokafka import errors
from aiokafka.protocol.compiler import codec
from aiokafka.testing.actions import CloseConnectionError
from aiokafka.testing.batches import Buffer
from aiokafka.testing.security import Session, State

if TYPE_CHECKING:
    from aiokafka.protocol.schema import Response
    from aiokafka.testing.broker import FakeBroker
    from aiokafka.testing.versions import BrokerProfile

_LENGTH = struct.Struct(">i")
_connection_ids = itertools.count(1)


@dataclass(slots=True)
class Reply:
    """The encoded response to one request."""

    chunks: list[Buffer]
    """The bytes to send; empty for no response."""
    mute: float = 0.0
    """Seconds for which the broker reads nothing from the connection afterwards (KIP-219)."""


@dataclass(slots=True)
class DeferredReply:
    """A coroutine (`work`) whose result is the reply, or is converted to the reply by `finish`. The
    connection runs the coroutine in a task."""

    work: Coroutine[Any, Any, Any]
    finish: Callable[[Any], Reply] | None = None
    """Converts the result of `work` to the reply; None if the result is the reply."""
    drop: Callable[[], None] | None = None
    """Closes the coroutine that `work` would await; called if `work` is cancelled before its first
    step."""


class Connection(asyncio.Protocol):
    """A client connection, whose requests are handled in order.

    Most requests are handled synchronously in `data_received`. A request whose handling must await
    (a DeferredReply) is handled in a task, and blocks the later requests of the connection.

    Owns: the received bytes that are not handled yet, and the task of the blocking request.
    """

    def __init__(self, broker: FakeBroker) -> None:
        #: Unique number of the connection.
        self.connection_id = next(_connection_ids)
        #: The client's address.
        self.host = ""
        #: State of the SASL login; None without SASL.
        self.session: Session | None = None
        #: The event loop. Cached: get_running_loop() makes a system call before Python 3.12.
        self.loop = asyncio.get_running_loop()
        self._broker = broker
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._deferred: DeferredReply | None = None  # the reply that `_task` computes
        self._timer: asyncio.TimerHandle | None = None
        self._is_full = False  # the write buffer is full, because the client does not read
        self._is_ended = False  # the client has sent EOF
        self._uses_tls = False
        self._closed: asyncio.Future[None] = self.loop.create_future()

    # -- asyncio.Protocol --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection; abort it if the broker has stopped."""
        self._transport = cast("asyncio.Transport", transport)
        # Read `ssl_object` now: a TLS transport that was closed twice has no extra info.
        self._uses_tls = transport.get_extra_info("ssl_object") is not None
        if not self._broker.is_listening:
            self._transport.abort()
            return
        self.host = (transport.get_extra_info("peername") or ("", 0))[0]
        security = self._broker.services.security
        self.session = None if security is None else Session(security)
        self._broker.add_connection(self)

    def data_received(self, data: bytes) -> None:
        """Handle the complete requests, unless an earlier request blocks them."""
        self._received += data
        if not self._waits:
            self._advance()

    def eof_received(self) -> bool:
        """Close the connection after the responses to all received requests. Return whether the
        transport stays open until then; a TLS transport cannot stay open.
        """
        self._is_ended = True
        if not self._waits:
            self._close()
        return not self._uses_tls

    def pause_writing(self) -> None:
        """Stop handling requests while the client does not read responses."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Resume handling requests."""
        self._is_full = False
        if not self._waits:
            self._advance()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End the connection; after an error, discard the received requests."""
        self._is_ended = True
        if self._transport is not None:
            # Without close(), Python 3.10 warns about an unclosed TLS transport.
            self._transport.close()
        if exc is not None:
            self._received.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._closed.done():
            self._closed.set_result(None)
        self._broker.connection_lost(self)
        if self._task is None:
            self._broker.remove_connection(self)

    # -- for the broker ------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the connection is open; False once `connection_lost` was called."""
        return not self._closed.done()

    def abort(self) -> None:
        """Break the connection and cancel a request in progress."""
        self._received.clear()
        if self._task is not None and self._deferred is not None:
            self._task.cancel()
            if inspect.getcoroutinestate(self._deferred.work) == inspect.CORO_CREATED:
                self._deferred.work.close()  # close it, because the cancelled task never starts it
                if self._deferred.drop is not None:
                    self._deferred.drop()
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed and its task has ended."""
        if self._task is not None:
            await asyncio.wait([self._task])
        await self._closed

    # -- requests ------------------------------------------------------------------------------

    @property
    def _waits(self) -> bool:
        return self._task is not None or self._timer is not None or self._is_full

    def _advance(self) -> None:
        """Handle complete requests until one blocks, or until there is no complete request. Close
        the connection after an error, and after the last request if the client has sent EOF."""
        try:
            while not self._waits:
                frame = self._next_frame()
                if frame is None:
                    if self._is_ended:
                        self._close()
                    return
                answer = self._broker.answer(frame, self)
                if isinstance(answer, Reply):
                    self._send(answer)
                else:
                    name = f"fake-broker-{self._broker.node_id}"
                    self._deferred = answer
                    task = self.loop.create_task(self._run_deferred(answer), name=name)
                    # An eager task (Python 3.12) may have ended already, and may have set `_task`
                    # to the task of the next request.
                    if not task.done():
                        self._task = task
        except CloseConnectionError:
            self._close()  # raised by the action `Cut`, or where Kafka closes after an error
        except Exception as exc:
            self._broker.report_failure(exc)
            self._close()

    async def _run_deferred(self, deferred: DeferredReply) -> None:
        try:
            result = await deferred.work
            reply = result if deferred.finish is None else deferred.finish(result)
        except CloseConnectionError:
            self._close()
        except Exception as exc:
            self._broker.report_failure(exc)
            self._close()
        else:
            self._send(reply)
        finally:
            self._task = self._deferred = None
            if self._closed.done():
                self._broker.remove_connection(self)
        self._advance()

    def _next_frame(self) -> bytes | None:
        received = self._received
        if len(received) < 4:
            return None
        size = _LENGTH.unpack_from(received)[0]
        if not 0 <= size <= self._broker.largest_request:
            raise CloseConnectionError
        if len(received) < size + 4:
            return None
        frame = bytes(memoryview(received)[4 : size + 4])
        del received[: size + 4]
        return frame

    def _send(self, reply: Reply) -> None:
        transport = self._transport
        if reply.chunks and transport is not None and not transport.is_closing():
            transport.write(b"".join(reply.chunks))
        if self.session is not None and self.session.state is State.REFUSED:
            self._close()
        elif reply.mute:
            self._timer = self.loop.call_later(reply.mute, self._unmute)

    def _unmute(self) -> None:
        self._timer = None
        self._advance()

    def _close(self) -> None:
        self._received.clear()
        if self._transport is not None:
            self._transport.close()


# -- Frames: request headers, and encoded responses


API_VERSIONS = 18
_HEADER = struct.Struct(">hhi")
_ANSWER = struct.Struct(">ii")
_FLEXIBLE_ANSWER = struct.Struct(">iix")


def read_header(frame: bytes) -> tuple[int, int, int, str | None, int]:
    """Return API key, version, correlation id, client id, and the position after the client id.

    Raises:
        CloseConnectionError: the header is incomplete.
    """
    try:
        api_key, version, correlation_id = _HEADER.unpack_from(frame)
        client_id, position = _read_client_id(frame)
    except (struct.error, ValueError, IndexError):
        raise CloseConnectionError from None
    return api_key, version, correlation_id, client_id, position


def encode(response: Response, api_key: int, version: int, correlation_id: int) -> list[Buffer]:
    """Encode a response with its header."""
    body = codec(type(response), version).encode(response)
    size = sum(map(len, body))
    flexible = response.FLEXIBLE is not None and version >= response.FLEXIBLE
    if flexible and api_key != API_VERSIONS:
        header = _FLEXIBLE_ANSWER.pack(size + 5, correlation_id)
    else:
        header = _ANSWER.pack(size + 4, correlation_id)
    return [header, *body]


def refuse_version(
    profile: BrokerProfile, frame: bytes, header: tuple[int, int, int, str | None, int]
) -> Reply:
    """Return the reply to an unsupported API or version.

    Kafka 0.9 sends no response and keeps the connection open. Later releases return
    UNSUPPORTED_VERSION to an unsupported version of ApiVersions; for other APIs they close the
    connection (CloseConnectionError). Servers with `closes_on_newer_clients` always close it.
    """
    api_key, version, correlation_id, _, position = header
    if profile.release < (0, 10):
        return Reply([])  # Kafka 0.9 fails internally, and sends nothing
    if api_key != API_VERSIONS:
        raise CloseConnectionError
    if profile.closes_on_newer_clients:
        raise CloseConnectionError
    if version >= 3:
        skip_tags(frame, position)  # raises CloseConnectionError for malformed tags
    # The response has version 0, which every client can decode. Since Kafka 2.4 it lists the
    # supported versions of ApiVersions, and no other API (KIP-511).
    entries = b""
    if profile.release >= (2, 4):
        low, high = profile.ranges[API_VERSIONS]
        entries = struct.pack(">hhh", API_VERSIONS, low, high)
    count = len(entries) // 6
    body = (
        struct.pack(">ihi", correlation_id, errors.UnsupportedVersionError.errno, count) + entries
    )
    return Reply([struct.pack(">i", len(body)) + body])


def _read_client_id(frame: bytes) -> tuple[str | None, int]:
    """Return the client id and the position after it. The client id is a nullable string, not a
    compact string, even in flexible headers."""
    start = _HEADER.size + 2
    size = int.from_bytes(frame[_HEADER.size : start], "big", signed=True)
    if size < 0:
        return None, start
    if start + size > len(frame):
        raise ValueError("client id is longer than the frame")
    return frame[start : start + size].decode(), start + size


def skip_tags(frame: bytes, position: int) -> int:
    """Return the position after the tagged fields of a request header, whose values are ignored."""
    if frame[position : position + 1] == b"\0":
        return position + 1
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


# -- Servers: addresses, and closing without leaking a socket


_SETTLING_ITERATIONS = 10


class Closing(Protocol):
    """The interface of the connections that :func:`close_server` waits for."""

    async def wait_closed(self) -> None:
        """Wait until the connection is closed."""


def address_of(host: str, port: int) -> str:
    """Return ``host:port``, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def stop_accepting(server: asyncio.Server) -> None:
    """Stop accepting connections; the caller must call :func:`close_server` afterwards.

    `Server.close()` alone leaks a connection that was accepted just before (CPython gh-109564):

    1. The loop accepts the connection, and schedules a task that creates its transport.
    2. The server is closed.
    3. The task creates the transport, which fails because its server is closed. Nothing closes the
       socket: the client stays connected until the socket is garbage-collected.

    So this function only removes the readers of the listening sockets. In a loop without readers
    (Windows), it calls `Server.close()`.
    """
    loop = server.get_loop()
    try:
        has_ended = all(loop.remove_reader(socket.fileno()) for socket in server.sockets)
    except NotImplementedError:  # the Proactor event loop of Windows
        has_ended = False
    if not has_ended:
        server.close()


async def close_server(server: asyncio.Server | None, connections: Iterable[Closing]) -> None:
    """Wait until `connections` are closed, then close the server. Cancelling the call closes the
    server, too.

    A connection that was accepted just before this call is not in `connections` yet. Its handler
    needs several iterations of the event loop to start and to close the socket. So this function
    also waits for `_SETTLING_ITERATIONS` iterations.
    """
    try:
        for connection in connections:
            await connection.wait_closed()
        if server is not None:
            await asyncio.sleep(0)
    finally:
        if server is not None:
            server.close()
    if server is not None:
        for _ in range(_SETTLING_ITERATIONS - 1):
            await asyncio.sleep(0)
        await server.wait_closed()
