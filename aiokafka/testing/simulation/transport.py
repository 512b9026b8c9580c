"""In-memory connections: the sockets at both ends, and their asyncio transports."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokafka.testing.simulation.loop import VirtualTimeLoop
    from aiokafka.testing.simulation.network import Line, Network, SimulatedServer

__all__ = ["SimulatedSocket", "SimulatedTransport", "connect_pair"]


# -- Sockets: bytes in transit, buffers, resets


# Bytes that the kernels of both ends buffer in one direction. A full buffer blocks the sender.
CAPACITY = 256 * 1024


def reset_error() -> ConnectionResetError:
    """Return the error that reads and writes raise after a reset."""
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


class SimulatedSocket:
    """One end of a connection, in place of a socket of the operating system. The socket calls its
    `reader` while it is readable, and its `writer` when it becomes writable.

    Owns: the sent bytes in transit, and the received unread bytes.
    """

    __slots__ = (
        "_arrived_last",
        "_error",
        "_has_fin",
        "_in_transit",
        "_inbox",
        "_is_held",
        "_is_moving",
        "_is_notifying",
        "_loop",
        "_sent_at",
        "_sent_fin",
        "_unread_bytes",
        "is_client",
        "is_closed",
        "line",
        "name",
        "number",
        "peer",
        "reader",
        "sent",
        "writer",
    )

    def __init__(
        self,
        loop: VirtualTimeLoop,
        line: Line,
        number: int,
        name: tuple[str, int],
        *,
        is_client: bool,
    ) -> None:
        self._loop = loop
        #: The network path to the server, with its latency and faults; all connections to one
        #: address share it.
        self.line = line
        #: Number of the connection in its network, the same at both ends.
        self.number = number
        #: Address of this end.
        self.name = name
        #: Whether this end is the client's.
        self.is_client = is_client
        self.peer: SimulatedSocket
        #: Called once in each turn of the loop while the socket is readable.
        self.reader: Callable[[], object] | None = None
        #: Called when the socket becomes writable.
        self.writer: Callable[[], object] | None = None
        #: Number of sent bytes.
        self.sent = 0
        self.is_closed = False
        self._in_transit: deque[tuple[float, bytes | None]] = deque()
        """(time of arrival, bytes) of the sent pieces that have not arrived; None stands for
        EOF."""
        self._unread_bytes = 0
        """Number of sent bytes that the peer has not read yet."""
        self._inbox: deque[bytes] = deque()
        self._has_fin = False
        self._error: ConnectionResetError | None = None
        self._sent_at = self._arrived_last = -1.0
        self._sent_fin = False
        self._is_moving = self._is_held = self._is_notifying = False

    # -- socket calls

    def send(self, data: Any) -> int:
        """Send the bytes that fit into the buffer; return their number.

        Raises ConnectionResetError after a reset.
        """
        if self._error is not None:
            raise reset_error()
        size = min(len(data), CAPACITY - self._unread_bytes)
        if size <= 0:
            return 0
        line = self.line
        if line.cut_at is not None and self.sent < line.cut_at <= self.sent + size:
            self._cut(bytes(data[: line.cut_at - self.sent]))
            return size
        self.sent += size
        self._unread_bytes += size
        piece = bytes(data) if size == len(data) else bytes(data[:size])
        split = line.split(size) if line.splits and size > 1 else 0
        if split:
            self._transmit(piece[:split])
            piece = piece[split:]
            self._sent_at = -1.0
        self._transmit(piece)
        return size

    def receive(self, limit: int) -> bytes:
        """Return at most `limit` received bytes, b"" at EOF. The socket must be readable.

        Raises ConnectionResetError after a reset.
        """
        inbox = self._inbox
        if not inbox:
            if self._error is not None:
                raise reset_error()
            return b""
        data = inbox.popleft()
        while inbox and len(data) < limit:
            data += inbox.popleft()
        if len(data) > limit:
            inbox.appendleft(data[limit:])
            data = data[:limit]
        self.peer._was_read(len(data))
        if inbox or self._has_fin or self._error is not None:
            self._notify_reader_soon()
        return data

    def add_reader(self, callback: Callable[[], object]) -> None:
        """Call `callback` once in each turn, while the socket is readable."""
        self.reader = callback
        if self._inbox or self._has_fin or self._error is not None:
            self._notify_reader_soon()

    def add_writer(self, callback: Callable[[], object]) -> None:
        """Call `callback` when the socket becomes writable."""
        self.writer = callback

    def shut_down(self) -> None:
        """Send EOF: the peer reads the sent bytes, then EOF."""
        if not self._sent_fin and self._error is None:
            self._sent_fin = True
            self._sent_at = -1.0
            self._transmit(None)

    def close(self) -> None:
        """Close both directions. The sent bytes still arrive. If this end has unread bytes, send a
        reset, as Linux does.
        """
        if self.is_closed:
            return
        self.is_closed = True
        self.reader = self.writer = None
        if self._inbox:
            self._in_transit.clear()
            self.send_reset()
        else:
            self.shut_down()

    # -- bytes in transit

    def not_before(self, when: float) -> None:
        """Deliver no bytes from this end before the time `when`."""
        self._arrived_last = max(self._arrived_last, when)

    def _transmit(self, piece: bytes | None) -> None:
        now = self._loop.now
        pieces = self._in_transit
        bandwidth = self.line.bandwidth
        if self._sent_at == now and pieces and bandwidth is None:
            # Bytes that are written at the same moment arrive together.
            pieces.append((pieces[-1][0], piece))
            return
        self._sent_at = now
        when = now + self.line.delay()
        if when < self._arrived_last:
            when = self._arrived_last
        if bandwidth is not None and piece is not None:
            when += len(piece) / bandwidth
        self._arrived_last = when
        pieces.append((when, piece))
        if not self._is_moving and not self._is_held:
            self._is_moving = True
            self._loop.happen_at(when, self._arrive)

    def _arrive(self) -> None:
        self._is_moving = False
        pieces = self._in_transit
        if not pieces:
            return
        if self.line.holds(self):
            self._hold()
            return
        peer = self.peer
        if peer.is_closed:
            self._reject_data()
            return
        now = self._loop.now
        while pieces and pieces[0][0] <= now:
            piece = pieces.popleft()[1]
            if piece is None:
                peer._has_fin = True
            else:
                peer._inbox.append(piece)
        if pieces:
            self._is_moving = True
            self._loop.happen_at(pieces[0][0], self._arrive)
        if not peer._is_notifying and peer.reader is not None:
            peer.reader()

    def _reject_data(self) -> None:
        """Discard the pieces that arrive at the closed peer. Bytes cause a reset of this end, EOF
        does not."""
        has_data = any(piece is not None for _, piece in self._in_transit)
        if has_data and self.line.holds(self.peer):
            self._hold()
            return
        self._in_transit.clear()
        if has_data:
            self.peer.send_reset()

    def _hold(self) -> None:
        self._is_held = True
        self.line.hold(self)

    def retransmit(self) -> None:
        """Send lost bytes again, because the faults of the line have changed."""
        if not self._is_held:
            return
        self._is_held = False
        if self._in_transit:
            # Give the first piece a new latency. The other pieces arrive after it.
            when = self._loop.now + self.line.delay()
            self._in_transit[0] = (when, self._in_transit[0][1])
            self._arrived_last = max(self._arrived_last, when)
            self._is_moving = True
            self._loop.happen_at(when, self._arrive)
        elif self.writer is not None:
            self._loop.happen_at(self._loop.now + self.line.delay(), self._notify_writer)

    def _was_read(self, size: int) -> None:
        self._unread_bytes -= size
        if self.writer is not None and self._unread_bytes + size >= CAPACITY:
            self._loop.happen_at(self._loop.now + self.line.delay(), self._notify_writer)

    def _notify_writer(self) -> None:
        """Call the writer, unless the peer's packet that reports free buffer space is lost."""
        if self.line.holds(self.peer):
            self._hold()
        elif self.writer is not None and self._unread_bytes < CAPACITY:
            self.writer()

    def _notify_reader_soon(self) -> None:
        if not self._is_notifying and self.reader is not None:
            self._is_notifying = True
            self._loop.happen_at(self._loop.now, self._notify_reader)

    def _notify_reader(self) -> None:
        self._is_notifying = False
        if self.reader is not None and (self._inbox or self._has_fin or self._error is not None):
            self.reader()

    # -- resets

    def send_reset(self) -> None:
        """Send a reset to the peer. If the reset is lost, the peer's next bytes cause another
        one."""
        if not self.line.holds(self):
            when = self._loop.now + self.line.delay()
            self._loop.happen_at(max(when, self._arrived_last), self.peer.receive_reset)

    def receive_reset(self) -> None:
        """Handle a reset: discard the bytes that this end has in transit. The next read or write
        raises."""
        if self.is_closed or self._error is not None:
            return
        self._error = reset_error()
        self._in_transit.clear()
        self._unread_bytes = 0
        if self.reader is not None:
            self._notify_reader_soon()
        elif self.writer is not None:
            self._loop.happen_at(self._loop.now, self._call_writer)

    def _call_writer(self) -> None:
        if self.writer is not None:
            self.writer()

    def _cut(self, piece: bytes) -> None:
        """Deliver `piece` to the peer, then reset both ends."""
        self.line.cut_at = None
        self.sent += len(piece)
        self._sent_at = -1.0
        self._transmit(piece)
        self._sent_fin = True
        # Mark the buffer as full, so that it accepts no more bytes.
        self._unread_bytes = 1 << 60
        after = max(self._arrived_last, self._loop.now) + self.line.delay()
        self._loop.happen_at(after, self.peer.receive_reset)
        self._loop.happen_at(after + self.line.delay(), self.receive_reset)


def connect_pair(
    loop: VirtualTimeLoop, line: Line, number: int, client_port: int
) -> tuple[SimulatedSocket, SimulatedSocket]:
    """Return both ends of a new connection: the client's and the server's."""
    client = SimulatedSocket(loop, line, number, ("127.0.0.1", client_port), is_client=True)
    server = SimulatedSocket(loop, line, number, (line.host, line.port), is_client=False)
    client.peer, server.peer = server, client
    return client, server


# -- Transports

log = logging.getLogger("asyncio")

_HIGH_WATER = 64 * 1024
_LARGEST_READ = 256 * 1024
_MANY_LOST_WRITES = 5
_BYTES = (bytes, bytearray, memoryview)


class SocketInfo:
    """The socket in a transport's extra info. Socket options have no effect."""

    family = socket.AF_INET
    type = socket.SOCK_STREAM
    proto = socket.IPPROTO_TCP

    def __init__(self, own: tuple[str, int], peer: tuple[str, int] | None = None) -> None:
        self._own = own
        self._peer = peer
        self._options: dict[tuple[int, int], Any] = {}

    def getsockname(self) -> tuple[str, int]:
        """Return the address of this end."""
        return self._own

    def getpeername(self) -> tuple[str, int]:
        """Return the address of the other end."""
        if self._peer is None:
            raise OSError("the socket is not connected")
        return self._peer

    def fileno(self) -> int:
        """Return -1: a simulated socket has no file descriptor."""
        return -1

    def setsockopt(self, level: int, option: int, value: Any, *rest: Any) -> None:
        """Store an option, which has no effect."""
        self._options[level, option] = value

    def getsockopt(self, level: int, option: int, *rest: Any) -> Any:
        """Return a stored option, or 0."""
        return self._options.get((level, option), 0)


class SimulatedTransport(asyncio.Transport):
    """A transport on a SimulatedSocket. It behaves like asyncio's transport for sockets.

    Owns: the write buffer, and which methods of the protocol were called.
    """

    def __init__(
        self,
        network: Network,
        end: SimulatedSocket,
        protocol: asyncio.BaseProtocol,
        *,
        server: SimulatedServer | None = None,
        tls: Any = None,
    ) -> None:
        names = {"sockname": end.name, "peername": end.peer.name}
        names["socket"] = SocketInfo(end.name, end.peer.name)  # type: ignore[assignment]
        if tls is not None:
            names["sslcontext"] = tls
        super().__init__(names)
        self._network = network
        self._loop = network.loop
        self._end = end
        #: The network path to the server, with its latency and faults; all connections to one
        #: address share it.
        self.line = end.line
        #: Number of the connection in its network, the same at both ends.
        self.number = end.number
        #: Whether this end is the client's.
        self.is_client = end.is_client
        self._server = server
        self._is_tls = tls is not None
        self._buffer = bytearray()
        self._limits = (_HIGH_WATER // 4, _HIGH_WATER)
        self._is_paused = self._has_end = self._closing = False
        self._writing_paused = False
        self._lost = 0
        """0 until `connection_lost` is scheduled; afterwards 1 plus the number of discarded
        writes."""
        self._ended = False
        self._said_eof = False
        self.set_protocol(protocol)
        network.add_transport(self)
        self._loop.call_soon(protocol.connection_made, self)
        self._loop.call_soon(self._start_reading)

    # -- state

    @property
    def is_over(self) -> bool:
        """Whether `connection_lost` was called."""
        return self._ended

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol: Any = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol  # type: ignore[no-any-return]

    def is_closing(self) -> bool:
        return self._closing

    # -- reading

    def is_reading(self) -> bool:
        return not self._is_paused and not self._closing

    def pause_reading(self) -> None:
        if self.is_reading():
            self._is_paused = True
            self._end.reader = None

    def resume_reading(self) -> None:
        if self._is_paused and not self._closing:
            self._is_paused = False
            self._start_reading()

    def _start_reading(self) -> None:
        if self.is_reading():
            self._end.add_reader(self._read)

    def _read(self) -> None:
        if self._lost:
            return
        doing = "get_buffer"
        try:
            if self._is_buffered:
                buffer = self._protocol.get_buffer(-1)
                if not len(buffer):
                    raise RuntimeError("get_buffer() returned an empty buffer")
                data = self._receive(len(buffer))
                if data:
                    memoryview(buffer).cast("B")[: len(data)] = data
                    doing = "buffer_updated"
                    self._protocol.buffer_updated(len(data))
            else:
                doing = "data_received"
                data = self._receive(_LARGEST_READ)
                if data:
                    self._protocol.data_received(data)
            if data == b"":
                doing = "eof_received"
                self._read_end()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._fail(error, f"Fatal error: protocol.{doing}() call failed.", is_own=True)

    def _receive(self, limit: int) -> bytes | None:
        """Return the received bytes; after an error, close the transport and return None."""
        try:
            return self._end.receive(limit)
        except OSError as error:
            self._fail(error, "Fatal read error on socket transport")
            return None

    def _read_end(self) -> None:
        # A TLS connection cannot be half-closed, so close it in any case.
        if self._protocol.eof_received() and not self._is_tls:
            self._end.reader = None
        else:
            self.close()

    # -- writing

    def can_write_eof(self) -> bool:
        return not self._is_tls

    def write_eof(self) -> None:
        if self._is_tls:
            raise NotImplementedError("TLS has no end of one direction")
        if self._closing or self._has_end:
            return
        self._has_end = True
        if not self._buffer:
            self._end.shut_down()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def write(self, data: Any) -> None:
        if type(data) is not bytes:
            data = _as_bytes(data)
        if self._has_end:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not data:
            return
        if self._lost:
            if self._lost >= _MANY_LOST_WRITES:
                log.warning("socket.send() raised exception.")
            self._lost += 1
            return
        self._network.record_write(self, data)
        if not self._buffer:
            try:
                taken = self._end.send(data)
            except OSError as error:
                self._fail(error, "Fatal write error on socket transport")
                return
            if taken == len(data):
                return
            data = data[taken:]
            self._end.add_writer(self._write)
        self._buffer += data
        self._maybe_pause()

    def _write(self) -> None:
        """Send buffered bytes; called when the socket has become writable."""
        if self._lost or not self._buffer:
            return
        try:
            taken = self._end.send(self._buffer)
        except OSError as error:
            self._fail(error, "Fatal write error on socket transport")
            return
        del self._buffer[:taken]
        if not self._buffer:
            self._end.writer = None
        if self._writing_paused and len(self._buffer) <= self._limits[0]:
            self._writing_paused = False
            self._call_protocol("resume_writing")
        if self._buffer:
            return
        if self._closing:
            self._lost += 1
            self._finish(None)
        elif self._has_end:
            self._end.shut_down()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_WATER if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._limits = (low, high)
        self._maybe_pause()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._limits

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def _maybe_pause(self) -> None:
        if not self._writing_paused and len(self._buffer) > self._limits[1]:
            self._writing_paused = True
            self._call_protocol("pause_writing")

    def _call_protocol(self, name: str) -> None:
        try:
            getattr(self._protocol, name)()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._report(error, f"protocol.{name}() failed")

    # -- closing

    def close(self) -> None:
        """Stop reading, and close the connection after the written bytes are sent."""
        if self._closing:
            return
        self._closing = True
        self._end.reader = None
        if not self._buffer:
            self._lost += 1
            self._loop.call_soon(self._finish, None)

    def abort(self) -> None:
        """Close at once, and discard the write buffer. Bytes in transit still arrive."""
        self._end_soon(None)

    def reset(self) -> None:
        """Reset the connection at both ends: the next read or write of each end raises."""
        self._end.receive_reset()
        self._end.peer.receive_reset()

    def _fail(self, error: BaseException, message: str, *, is_own: bool = False) -> None:
        if is_own and not isinstance(error, OSError):
            self._report(error, message)
        self._end_soon(error)

    def _report(self, error: BaseException, message: str) -> None:
        self._loop.call_exception_handler(
            {
                "message": message,
                "exception": error,
                "transport": self,
                "protocol": self._protocol,
            }
        )

    def _end_soon(self, error: BaseException | None) -> None:
        if self._lost:
            return
        self._buffer.clear()
        self._closing = True
        self._lost += 1
        self._end.reader = self._end.writer = None
        self._loop.call_soon(self._finish, error)

    def _finish(self, error: Any) -> None:
        """Call the protocol's `connection_lost`, then close the socket."""
        self._ended = True
        self._network.remove_transport(self)
        try:
            self._protocol.connection_lost(error)
        finally:
            self._end.close()
            if self._server is not None:
                self._server.detach(self)


def _as_bytes(data: Any) -> Any:
    """Return a bytes-like object whose `len` is its number of bytes, or raise TypeError."""
    if not isinstance(data, _BYTES):
        raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
    if isinstance(data, memoryview) and (data.itemsize != 1 or data.ndim != 1):
        return bytes(data)
    return data
