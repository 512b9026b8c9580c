"""The network of a simulated loop: names, servers, lines and what can go wrong with them."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiokafka.testing.simulation.transport import SimulatedTransport, connect_pair

if TYPE_CHECKING:
    from aiokafka.testing.simulation.loop import SimulatedLoop

__all__ = ["Line", "Network"]

_FIRST_PORT = 9092
_FIRST_CLIENT_PORT = 40_000
_IP = "127.0.0.1"


class Line:
    """The way between all clients and one server address, and its faults of the moment.

    Every attribute may be changed at any time, and counts from then on.
    """

    def __init__(self, network: Network, host: str, port: int) -> None:
        self._network = network
        self.host = host
        self.port = port
        #: Seconds that bytes take, at least and at most; each piece draws its own.
        self.latency = (0.0002, 0.002)
        #: Answer connection attempts with "connection refused", as a host without the server does.
        self.refuses = False
        #: Let TLS handshakes fail, with this error.
        self.tls_error: ssl.SSLError | None = None
        #: Probability that what is written in one piece arrives in two.
        self.splits = 0.1
        #: Reset the next connection that writes its byte of this number (either end).
        self.cut_at: int | None = None
        self._lost_to_server = False
        self._lost_to_client = False

    def lose(self, *, to_server: bool = True, to_client: bool = True) -> None:
        """Let nothing through in these directions, silently. Bytes wait, as TCP sends again."""
        self._lost_to_server = to_server
        self._lost_to_client = to_client
        if not (to_server and to_client):
            self._network.move_on(self)

    def restore(self) -> None:
        """Let everything through again, and end every other fault of the line."""
        self.refuses = False
        self.tls_error = None
        self.cut_at = None
        self.lose(to_server=False, to_client=False)

    @property
    def is_silent(self) -> bool:
        """Whether a new connection can not be made, since packets get lost."""
        return self._lost_to_server or self._lost_to_client

    def holds(self, sender: SimulatedTransport) -> bool:
        """Whether what this end sends is lost."""
        return self._lost_to_server if sender.is_client else self._lost_to_client

    def latency_to(self, sender: SimulatedTransport | None = None) -> float:
        """How long the next piece takes."""
        shortest, longest = self.latency
        return shortest + (longest - shortest) * self._network.loop.random.random()

    def piece_of(self, size: int) -> int:
        """How many of `size` bytes arrive together."""
        source = self._network.loop.random
        if self.splits and source.random() < self.splits:
            return source.randrange(1, size)
        return size


class _Listener:
    """What a server's sockets are asked for."""

    def __init__(self, host: str, port: int) -> None:
        self._name = (host, port)

    def getsockname(self) -> tuple[str, int]:
        return self._name


class SimulatedServer(asyncio.AbstractServer):
    """A server that listens in a :class:`Network`."""

    def __init__(
        self, network: Network, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> None:
        self._network = network
        self.factory = factory
        self.address = (host, port)
        self._is_open = True

    @property
    def sockets(self) -> tuple[Any, ...]:
        """One stand-in with `getsockname()` while the server listens."""
        return (_Listener(*self.address),) if self._is_open else ()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    def is_serving(self) -> bool:
        return self._is_open

    async def start_serving(self) -> None:
        """Do nothing: it listens since it was made."""

    async def serve_forever(self) -> None:
        """Wait until cancelled."""
        await self._network.loop.create_future()

    def close(self) -> None:
        """Listen no more; open connections stay."""
        if self._is_open:
            self._is_open = False
            self._network.stop_listening(self)

    async def wait_closed(self) -> None:
        """Return at once: nothing is left to be closed."""


class Network:
    """Servers, lines to them and the connections between, all in one simulated loop.

    Owns: which servers listen, the faults of the lines, and the connections that are open.
    """

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        loop.network = self
        self._servers: dict[tuple[str, int], SimulatedServer] = {}
        self._lines: dict[tuple[str, int], Line] = {}
        self._open: dict[SimulatedTransport, None] = {}
        #: Addresses of each host name; ``localhost`` and addresses themselves are always known.
        self.names: dict[str, list[str]] = {}
        #: Host names that cannot be looked up for now.
        self.broken_names: set[str] = set()
        #: Seconds that a look-up takes.
        self.name_delay = 0.001
        self._next_port = _FIRST_PORT
        self._next_client_port = _FIRST_CLIENT_PORT
        self._next_number = 1
        #: Called with every piece that is written: the end that writes, and the bytes.
        self.observer: Callable[[SimulatedTransport, bytes], object] | None = None
        #: A checksum over every write: its moment, its connection, its bytes.
        self.checksum = 0
        self.bytes_written = 0

    # -- for the loop

    async def resolve(self, host: Any, port: Any) -> list[Any]:
        """What `getaddrinfo` answers."""
        name = host.decode() if isinstance(host, bytes) else str(host)
        await asyncio.sleep(self.name_delay)
        found = self.names.get(name, [_IP] if name in (_IP, "localhost", "") else [])
        if name in self.broken_names or not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in found]

    def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> SimulatedServer:
        """A server at an address that is free; port 0 takes the next free one."""
        while port == 0 or (port == self._next_port and (host, port) in self._servers):
            port = self._next_port
            self._next_port += 1
            if (host, port) in self._servers:
                port = 0
        if (host, port) in self._servers:
            raise OSError(errno.EADDRINUSE, f"{host}:{port} is in use")
        server = self._servers[host, port] = SimulatedServer(self, factory, host, port)
        return server

    def stop_listening(self, server: SimulatedServer) -> None:
        """Called by a server that closes."""
        if self._servers.get(server.address) is server:
            del self._servers[server.address]

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, is_tls: bool
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """A connection, one round trip later; none for ever while the line loses packets.

        Raises ConnectionRefusedError where nothing listens, ssl.SSLError for the line's TLS fault.
        """
        if self.names.get(host):
            host = self.names[host][0]
        elif host == "localhost":
            host = _IP
        line = self.line(host, port)
        done: asyncio.Future[tuple[asyncio.Transport, asyncio.BaseProtocol]]
        done = self.loop.create_future()
        self._knock(done, line, factory, is_tls)
        return await done

    def _knock(
        self,
        done: asyncio.Future[Any],
        line: Line,
        factory: Callable[[], asyncio.BaseProtocol],
        is_tls: bool,
    ) -> None:
        delay = line.latency_to() + line.latency_to()
        self.loop.happen_at(self.loop.time() + delay, self._open_door, done, line, factory, is_tls)

    def _open_door(
        self,
        done: asyncio.Future[Any],
        line: Line,
        factory: Callable[[], asyncio.BaseProtocol],
        is_tls: bool,
    ) -> None:
        if done.done():
            return
        if line.is_silent:
            # The system tries again after a second, and so on.
            self.loop.happen_at(
                self.loop.time() + 1.0, self._open_door, done, line, factory, is_tls
            )
            return
        server = self._servers.get((line.host, line.port))
        if server is None or line.refuses:
            done.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"))
            return
        if is_tls and line.tls_error is not None:
            done.set_exception(line.tls_error)
            return
        number, self._next_number = self._next_number, self._next_number + 1
        client_port, self._next_client_port = self._next_client_port, self._next_client_port + 1
        client, there = connect_pair(self, line, number, client_port)
        client_protocol, server_protocol = factory(), server.factory()
        for transport, protocol in ((there, server_protocol), (client, client_protocol)):
            transport.set_protocol(protocol)
            self._open[transport] = None
            protocol.connection_made(transport)
        done.set_result((client, client_protocol))

    # -- for the ends of connections

    def note(self, writer: SimulatedTransport, data: bytes) -> None:
        """Every write passes here."""
        self.bytes_written += len(data)
        mark = b"%d %d %.9f" % (writer.number, writer.is_client, self.loop.time())
        self.checksum = zlib.crc32(data, zlib.crc32(mark, self.checksum))
        if self.observer is not None:
            self.observer(writer, data)

    def ended(self, transport: SimulatedTransport) -> None:
        """A protocol is about to be told that its connection is lost."""
        self._open.pop(transport, None)

    def break_connection(self, writer: SimulatedTransport) -> None:
        """Reset both ends of a connection, once, after what was written before got through."""
        writer.line.cut_at = None
        writer.reset_later()
        writer.peer.reset_later()

    def move_on(self, line: Line) -> None:
        """Let what waited for a line go on its way."""
        for transport in list(self._open):
            if transport.line is line:
                transport.move_on()

    # -- for those who break things

    def line(self, host: str, port: int) -> Line:
        """The line to a server address, whether something listens there or not."""
        found = self._lines.get((host, port))
        if found is None:
            found = self._lines[host, port] = Line(self, host, port)
        return found

    def connections(self) -> list[tuple[int, Line]]:
        """Number and line of every open connection, the oldest first."""
        return [(t.number, t.line) for t in self._open if t.is_client]

    def open_transports(self) -> list[SimulatedTransport]:
        """Every end whose protocol has not been told that its connection is lost."""
        return list(self._open)

    def reset(self, number: int | None = None, line: Line | None = None) -> int:
        """Reset connections at both ends at once: one, those of a line, or all.

        Returns:
            How many ends saw it.
        """
        hit = [
            transport
            for transport in list(self._open)
            if number in (None, transport.number) and (line is None or transport.line is line)
        ]
        for transport in hit:
            transport.reset()
        return len(hit)
