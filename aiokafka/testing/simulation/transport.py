"""Two ends of a connection that exists in memory only."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aiokafka.testing.simulation.network import Line, Network

__all__ = ["SimulatedTransport", "connect_pair"]

Data = bytes | bytearray | memoryview

# What the two systems hold for a connection before a writer is told to wait, as on Linux.
_SYSTEM_BUFFER = 256 * 1024
_HIGH_WATER = 64 * 1024
_LARGEST_READ = 256 * 1024


class _Segment:
    """Bytes under way, written in one moment."""

    __slots__ = ("data", "written_at")

    def __init__(self, data: bytearray, written_at: float) -> None:
        self.data = data
        self.written_at = written_at


class SimulatedTransport(asyncio.Transport):
    """One end of a connection. Its peer gets what is written here, in order, after the line's
    latency, as long as neither the line nor the peer breaks.

    Owns: the bytes that are under way from here to the peer.
    """

    def __init__(
        self, network: Network, line: Line, number: int, *, is_client: bool, names: dict[str, Any]
    ) -> None:
        super().__init__(names)
        self._network = network
        self._loop = network.loop
        #: The way to the server of this connection.
        self.line = line
        #: Number of the connection in its network; both ends have the same.
        self.number = number
        #: Whether this is the end that connected.
        self.is_client = is_client
        self._protocol: asyncio.BaseProtocol
        self._is_buffered = False
        self.peer: SimulatedTransport
        self._segments: deque[_Segment] = deque()
        self._size = 0
        """Bytes under way to the peer."""
        self._last_arrival = 0.0
        self._is_moving = False
        """Whether an arrival of the first segment is on the loop's list."""
        self._is_held = False
        """Whether the next arrival waits for the peer to read, or for the line."""
        self._is_paused = False
        self._limits = (_HIGH_WATER // 4, _HIGH_WATER)
        self._writing_paused = False
        self._closing = False
        self._ended = False
        self._says_goodbye = False
        self.written = 0
        """Bytes that were written on this end."""

    # -- asyncio's side

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return not self._is_paused and not self._closing

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self.peer.move_on()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_WATER if low is None else 4 * low
        self._limits = (high // 4 if low is None else low, high)
        self._check_limits()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._limits

    def get_write_buffer_size(self) -> int:
        return max(0, self._size - _SYSTEM_BUFFER)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._says_goodbye = True
        self._start_moving()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def write(self, data: Any) -> None:
        if self._closing or self._ended or not data:
            return
        now = self._loop.time()
        self._network.note(self, data)
        self.written += len(data)
        self._size += len(data)
        segments = self._segments
        if segments and segments[-1].written_at == now:
            segments[-1].data += data
        else:
            segments.append(_Segment(bytearray(data), now))
            self._start_moving()
        cut_at = self.line.cut_at
        if cut_at is not None and self.written >= cut_at:
            self._network.break_connection(self)
            return
        if not self._writing_paused and self._size > _SYSTEM_BUFFER:
            self._check_limits()

    def close(self) -> None:
        """Say goodbye after what was written."""
        if self._closing:
            return
        self._closing = True
        self._says_goodbye = True
        self._start_moving()
        if self.get_write_buffer_size() == 0:
            self._loop.call_soon(self._end, None)

    def abort(self) -> None:
        """Throw away what is under way; the peer sees a connection that was reset."""
        self._closing = True
        self._drop()
        if not self._ended:
            self._loop.call_soon(self._end, None)
        self.peer.reset_later()

    # -- bytes on their way

    def _start_moving(self) -> None:
        if self._is_moving or self._is_held:
            return
        if self._segments:
            written_at = self._segments[0].written_at
        elif self._says_goodbye:
            written_at = self._loop.time()
        else:
            return
        self._is_moving = True
        latency = self.line.latency_to(self)
        when = max(self._last_arrival, written_at + latency, self._loop.time())
        self._last_arrival = when
        self._loop.happen_at(when, self._arrive)

    def _arrive(self) -> None:
        self._is_moving = False
        peer = self.peer
        if peer._ended or peer._closing:
            self._answer_of_a_closed_peer()
            return
        if peer._is_paused or self.line.holds(self):
            self._is_held = True
            return
        if self._segments:
            piece = self._take()
            peer._deliver(piece)
            if self._writing_paused:
                self._check_limits()
            if self._closing and not self._ended and self.get_write_buffer_size() == 0:
                self._end(None)
            self._start_moving()
        elif self._says_goodbye:
            self._says_goodbye = False
            peer._receive_goodbye()

    def _take(self) -> bytearray:
        segment = self._segments[0]
        data = segment.data
        size = self.line.piece_of(len(data)) if len(data) > 1 else len(data)
        size = min(size, _LARGEST_READ)
        if size >= len(data):
            self._segments.popleft()
        else:
            segment.data = data[size:]
            data = data[:size]
        self._size -= len(data)
        return data

    def move_on(self) -> None:
        """What held the next arrival up has ended: the peer reads again, or the line is whole."""
        if self._is_held:
            self._is_held = False
            self._start_moving()

    def _deliver(self, data: bytearray) -> None:
        protocol: Any = self._protocol
        if not self._is_buffered:
            protocol.data_received(bytes(data))
            return
        view = memoryview(data)
        while view and not self._ended and not self._closing:
            buffer = protocol.get_buffer(len(view))
            size = min(len(buffer), len(view))
            memoryview(buffer)[:size] = view[:size]
            protocol.buffer_updated(size)
            view = view[size:]

    def _receive_goodbye(self) -> None:
        protocol: Any = self._protocol
        if not protocol.eof_received():
            self.close()

    def _answer_of_a_closed_peer(self) -> None:
        """Bytes for a socket that is closed are answered with a reset; a goodbye is not."""
        had_data = bool(self._segments)
        self._drop()
        if had_data and not self._ended:
            self.reset_later()

    def _drop(self) -> None:
        self._segments.clear()
        self._size = 0
        self._says_goodbye = False

    # -- ends

    def reset_later(self) -> None:
        """Let this end see a reset connection after the line's latency, unless it gets lost too."""
        if not self._ended and not self.line.holds(self.peer):
            self._loop.happen_at(self._loop.time() + self.line.latency_to(self), self.reset)

    def reset(self) -> None:
        """End here and now as if the peer had sent a reset."""
        self._drop()
        if not self._ended:
            self._closing = True
            self._end(ConnectionResetError(104, "Connection reset by peer"))

    def _end(self, error: Exception | None) -> None:
        if self._ended:
            return
        self._ended = True
        self._network.ended(self)
        self._protocol.connection_lost(error)

    @property
    def is_over(self) -> bool:
        """Whether the protocol was told that the connection is lost."""
        return self._ended

    def _check_limits(self) -> None:
        low, high = self._limits
        waiting = self.get_write_buffer_size()
        protocol: Any = self._protocol
        if not self._writing_paused and waiting > high:
            self._writing_paused = True
            protocol.pause_writing()
        elif self._writing_paused and waiting <= low:
            self._writing_paused = False
            protocol.resume_writing()


def connect_pair(
    network: Network, line: Line, number: int, client_port: int
) -> tuple[SimulatedTransport, SimulatedTransport]:
    """Both ends of a new connection: the client's, the server's."""
    here, there = ("127.0.0.1", client_port), (line.host, line.port)
    client = SimulatedTransport(
        network, line, number, is_client=True, names={"peername": there, "sockname": here}
    )
    server = SimulatedTransport(
        network, line, number, is_client=False, names={"peername": here, "sockname": there}
    )
    client.peer, server.peer = server, client
    return client, server
