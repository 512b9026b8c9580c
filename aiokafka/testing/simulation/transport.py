"""asyncio's transport over a connection that exists in memory only."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from aiokafka.testing.simulation.turns import TurningLoop
    from aiokafka.testing.simulation.wire import SimulatedSocket

__all__ = ["SimulatedTransport"]

log = logging.getLogger("asyncio")

_HIGH_WATER = 64 * 1024
_LARGEST_READ = 256 * 1024
_MANY_LOST_WRITES = 5
_BYTES = (bytes, bytearray, memoryview)


class TransportRegistry(Protocol):
    """What a transport needs of its network."""

    loop: TurningLoop

    def note(self, writer: SimulatedTransport, data: bytes) -> None:
        """Count a write."""

    def began(self, transport: SimulatedTransport) -> None:
        """Remember a transport whose protocol is about to hear of its connection."""

    def ended(self, transport: SimulatedTransport) -> None:
        """Forget a transport whose protocol is about to hear that its connection is lost."""


class Listener(Protocol):
    """What a transport needs of the server that accepted it."""

    def detach(self, transport: SimulatedTransport) -> None:
        """Forget a connection that has ended."""


class SocketInfo:
    """What programs ask of a transport's socket; options are taken and mean nothing."""

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
        """Return -1: there is no file."""
        return -1

    def setsockopt(self, level: int, option: int, value: Any, *rest: Any) -> None:
        """Remember an option, which changes nothing."""
        self._options[level, option] = value

    def getsockopt(self, level: int, option: int, *rest: Any) -> Any:
        """Return an option as it was set; 0 if it was not."""
        return self._options.get((level, option), 0)


class SimulatedTransport(asyncio.Transport):
    """What a protocol is given: the behaviour of asyncio's own transport for sockets.

    Owns: the bytes that the system has not taken yet, and what the protocol has heard.
    """

    def __init__(
        self,
        network: TransportRegistry,
        end: SimulatedSocket,
        protocol: asyncio.BaseProtocol,
        *,
        server: Listener | None = None,
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
        #: The way to the server of this connection.
        self.line = end.line
        #: Number of the connection in its network; both ends have the same.
        self.number = end.number
        #: Whether this is the end that connected.
        self.is_client = end.is_client
        self._server = server
        self._is_tls = tls is not None
        self._buffer = bytearray()
        self._limits = (_HIGH_WATER // 4, _HIGH_WATER)
        self._is_paused = self._has_end = self._closing = False
        self._writing_paused = False
        self._lost = 0
        """Not 0 once connection_lost is called or about to be; counts what is written after."""
        self._ended = False
        self._said_eof = False
        self.set_protocol(protocol)
        network.began(self)
        self._loop.call_soon(protocol.connection_made, self)
        self._loop.call_soon(self._start_reading)

    # -- facts

    @property
    def is_over(self) -> bool:
        """Whether the protocol was told that the connection is lost."""
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
        """Return what has arrived; None after an error, which has ended the transport."""
        try:
            return self._end.receive(limit)
        except OSError as error:
            self._fail(error, "Fatal read error on socket transport")
            return None

    def _read_end(self) -> None:
        # A TLS connection has no half that stays open.
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
        self._network.note(self, data)
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
        """Write what is buffered: there is room in the system's buffers."""
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
            self._tell_flow("resume_writing")
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
            self._tell_flow("pause_writing")

    def _tell_flow(self, name: str) -> None:
        try:
            getattr(self._protocol, name)()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._report(error, f"protocol.{name}() failed")

    # -- ends

    def close(self) -> None:
        """End after what was written."""
        if self._closing:
            return
        self._closing = True
        self._end.reader = None
        if not self._buffer:
            self._lost += 1
            self._loop.call_soon(self._finish, None)

    def abort(self) -> None:
        """End now. What the system has taken still arrives, and nothing else."""
        self._end_soon(None)

    def get_reset(self) -> None:
        """Let both ends see a reset of the connection, as soon as they read or write."""
        self._end.get_reset()
        self._end.peer.get_reset()

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
        """Tell the protocol, then close the socket."""
        self._ended = True
        self._network.ended(self)
        try:
            self._protocol.connection_lost(error)
        finally:
            self._end.close()
            if self._server is not None:
                self._server.detach(self)


def _as_bytes(data: Any) -> Any:
    """Return data of which `len` counts the bytes. Raises TypeError for what has none."""
    if not isinstance(data, _BYTES):
        raise TypeError(f"data argument must be a bytes-like object, not {type(data).__name__!r}")
    if isinstance(data, memoryview) and (data.itemsize != 1 or data.ndim != 1):
        return bytes(data)
    return data
