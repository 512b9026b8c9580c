"""Client connections to a fake broker: requests in, responses out, one after the other."""

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
    """What goes back for one request."""

    chunks: list[Buffer]
    """Nothing if the client gets no answer."""
    mute: float = 0.0
    """Seconds for which the connection is not read afterwards (KIP-219)."""


@dataclass(slots=True)
class Later:
    """A reply that has to be awaited."""

    work: Coroutine[Any, Any, Any]
    finish: Callable[[Any], Reply]
    """Makes the reply of what comes from `work`."""
    drop: Callable[[], None] | None = None
    """Called if `work` is given up before it has begun."""


class Connection(asyncio.Protocol):
    """Requests are answered in order. Most are answered where they arrive; only what has to wait
    gets a task, and the requests behind it wait as well.

    Owns: the bytes that are not a whole request yet, and the task of the request that waits.
    """

    def __init__(self, broker: FakeBroker) -> None:
        #: A number that no other connection has had.
        self.connection_id = next(_connection_ids)
        #: The client's address.
        self.host = ""
        #: Who is logged in; None where brokers ask for no login.
        self.session: Session | None = None
        #: The loop that it runs in; to ask asyncio costs a system call before Python 3.12.
        self.loop = asyncio.get_running_loop()
        self._broker = broker
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._later: Later | None = None  # what the task is about
        self._timer: asyncio.TimerHandle | None = None
        self._is_full = False  # the client does not read what it is sent
        self._is_ended = False  # the client sends no more
        self._closed: asyncio.Future[None] = self.loop.create_future()

    # -- what the transport calls --------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve a client, unless the broker has stopped."""
        self._transport = cast("asyncio.Transport", transport)
        if not self._broker.is_listening:
            self._transport.abort()
            return
        self.host = (transport.get_extra_info("peername") or ("", 0))[0]
        security = self._broker.services.security
        self.session = None if security is None else Session(security)
        self._broker.opened(self)

    def data_received(self, data: bytes) -> None:
        """Add bytes, and answer the requests that are whole, unless one before them waits."""
        self._received += data
        if not self._waits:
            self._advance()

    def eof_received(self) -> bool:
        """Close once all requests that arrived are answered; return whether replies can still be
        sent.
        """
        self._is_ended = True
        if not self._waits:
            self._close()
        transport = self._transport
        return transport is not None and transport.get_extra_info("ssl_object") is None

    def pause_writing(self) -> None:
        """Stop answering: the client does not read what it is sent."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Answer again: the client reads."""
        self._is_full = False
        if not self._waits:
            self._advance()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the timer, and after an error the requests that were not answered."""
        self._is_ended = True
        if self._transport is not None:
            # Python 3.10 warns of TLS transports that have ended by themselves, or were aborted.
            self._transport.close()
        if exc is not None:
            self._received.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._closed.done():
            self._closed.set_result(None)
        if self._task is None:
            self._broker.gone(self)

    # -- for the broker ------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether the client is there."""
        return not self._closed.done()

    def abort(self) -> None:
        """Break the connection; a request in progress is dropped."""
        self._received.clear()
        if self._task is not None and self._later is not None:
            self._task.cancel()
            if inspect.getcoroutinestate(self._later.work) == inspect.CORO_CREATED:
                self._later.work.close()  # the task will not come to it
                if self._later.drop is not None:
                    self._later.drop()
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """Wait until nothing is left of it."""
        if self._task is not None:
            await asyncio.wait([self._task])
        await self._closed

    # -- requests ------------------------------------------------------------------------------

    @property
    def _waits(self) -> bool:
        return self._task is not None or self._timer is not None or self._is_full

    def _advance(self) -> None:
        """Answer what is there, up to a request that has to wait."""
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
                    self._later = answer
                    task = self.loop.create_task(self._answer_later(answer), name=name)
                    # An eager one may be over, with requests behind it begun.
                    if not task.done():
                        self._task = task
        except CloseConnectionError:
            self._close()  # by the script, or what Kafka does
        except Exception as exc:
            self._broker.failed(exc)
            self._close()

    async def _answer_later(self, later: Later) -> None:
        try:
            reply = later.finish(await later.work)
        except CloseConnectionError:
            self._close()
        except Exception as exc:
            self._broker.failed(exc)
            self._close()
        else:
            self._send(reply)
        finally:
            self._task = self._later = None
            if self._closed.done():
                self._broker.gone(self)
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
            self._timer = self.loop.call_later(reply.mute, self._speak_again)

    def _speak_again(self) -> None:
        self._timer = None
        self._advance()

    def _close(self) -> None:
        self._received.clear()
        if self._transport is not None:
            self._transport.close()


# -- Frames: headers of requests, and responses as bytes


API_VERSIONS = 18
_HEADER = struct.Struct(">hhi")
_ANSWER = struct.Struct(">ii")
_FLEXIBLE_ANSWER = struct.Struct(">iix")


def read_header(frame: bytes) -> tuple[int, int, int, str | None, int]:
    """Return API key, version, correlation id and client id, and the position after them.

    Raises:
        CloseConnectionError: the frame is too short for that.
    """
    try:
        api_key, version, correlation_id = _HEADER.unpack_from(frame)
        client_id, position = _read_client_id(frame)
    except (struct.error, ValueError, IndexError):
        raise CloseConnectionError from None
    return api_key, version, correlation_id, client_id, position


def encode(response: Response, api_key: int, version: int, correlation_id: int) -> list[Buffer]:
    """Encode a frame with the response."""
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
    """Answer a request of an API or version that the broker does not have, as a broker would."""
    api_key, version, correlation_id, _, position = header
    if profile.release < (0, 10):
        return Reply([])  # the broker throws inside; the client never hears of it
    if api_key != API_VERSIONS:
        raise CloseConnectionError
    if profile.closes_on_newer_clients:
        raise CloseConnectionError
    if version >= 3:
        skip_tags(frame, position)  # must be there: the header is of the newest form
    # ApiVersions tells, in its oldest form, which versions of itself there are (KIP-511).
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
    """Return the client id, a nullable string even in flexible headers, and the position after
    it.
    """
    start = _HEADER.size + 2
    size = int.from_bytes(frame[_HEADER.size : start], "big", signed=True)
    if size < 0:
        return None, start
    if start + size > len(frame):
        raise ValueError("client id is longer than the frame")
    return frame[start : start + size].decode(), start + size


def skip_tags(frame: bytes, position: int) -> int:
    """Return the position after the tagged fields of a request header, of which none is defined."""
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


# -- Servers: addresses, and closing without leaving a socket behind


_TURNS = 10


class Closing(Protocol):
    """A connection that was told to end."""

    async def wait_closed(self) -> None:
        """Wait until it has."""


def address_of(host: str, port: int) -> str:
    """Return an address as clients take it: one of IPv6 is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def stop_accepting(server: asyncio.Server) -> None:
    """Let a server take no more connections; :func:`close_server` has to follow.

    `Server.close()` alone loses a connection that was accepted just before (CPython's gh-109564):

    1. The loop accepts it, and plans a task that makes its transport.
    2. The server is closed.
    3. The task makes the transport, which finds its server closed and fails. Nothing closes the
       socket: the client is connected, and hears nothing until it is collected as garbage.

    So only the reading of the listening socket ends here, where the loop has such a thing.
    """
    loop = server.get_loop()
    try:
        has_ended = all(loop.remove_reader(socket.fileno()) for socket in server.sockets)
    except NotImplementedError:  # Windows' own loop
        has_ended = False
    if not has_ended:
        server.close()


async def close_server(server: asyncio.Server | None, connections: Iterable[Closing]) -> None:
    """Wait until these connections have ended; close a server that accepts no more, and wait until
    it has let go of everything. A call that is cancelled leaves no socket either.

    A connection that was accepted in the same turn of the loop gets its transport in the next one,
    reaches its handler a few turns later, and its socket is closed a few turns after that.
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
        for _ in range(_TURNS - 1):
            await asyncio.sleep(0)
        await server.wait_closed()
