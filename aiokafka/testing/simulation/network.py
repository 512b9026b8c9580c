"""The network of a simulated loop: names, servers, lines and the connections between."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
import ssl
import struct
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from aiokafka.testing.simulation.transport import (
    SimulatedSocket,
    SimulatedTransport,
    SocketInfo,
    connect_pair,
)

if TYPE_CHECKING:
    from aiokafka.testing.simulation.loop import TurningLoop

__all__ = ["Line", "Network", "SimulatedServer"]


# -- Lines: the way to a server, and its faults


class Line:
    """The way between all clients and one server address, and its faults of the moment.

    Every attribute may be changed at any time, and counts from then on.
    """

    def __init__(self, chance: random.Random, host: str, port: int) -> None:
        self._random = chance
        self.host = host
        self.port = port
        #: Seconds that bytes take, at least and at most; each piece draws its own.
        self.latency = (0.0002, 0.002)
        #: Answer connection attempts with "connection refused", as a host without the server does.
        self.refuses = False
        #: How many connections clients have tried to make.
        self.tried = 0
        #: Let TLS handshakes fail, with an error of this class and these arguments.
        self.tls_error: ssl.SSLError | None = None
        #: Probability that what is written in one piece arrives in two.
        self.splits = 0.1
        #: Cut the next connection of which one end writes its byte of this number: the other end
        #: still gets the bytes up to it, then both see a reset.
        self.cut_at: int | None = None
        self._lost_to_server = False
        self._lost_to_client = False
        self._held: dict[SimulatedSocket, None] = {}

    def lose(self, *, to_server: bool = True, to_client: bool = True) -> None:
        """Let nothing through in these directions, silently, and everything in the others. Bytes
        wait, as TCP sends again.
        """
        self._lost_to_server = to_server
        self._lost_to_client = to_client
        waiting, self._held = self._held, {}
        for sender in waiting:
            sender.move_on()

    def restore(self) -> None:
        """Let everything through again, and end every other fault of the line but its latency."""
        self.refuses = False
        self.tls_error = None
        self.cut_at = None
        self.lose(to_server=False, to_client=False)

    @property
    def is_silent(self) -> bool:
        """Whether a new connection can not be made, since packets get lost."""
        return self._lost_to_server or self._lost_to_client

    def holds(self, sender: SimulatedSocket) -> bool:
        """Return whether what this end sends is lost."""
        return self._lost_to_server if sender.is_client else self._lost_to_client

    def hold(self, sender: SimulatedSocket) -> None:
        """Let this end know when the line changes."""
        self._held[sender] = None

    def delay(self) -> float:
        """Draw the seconds that the next piece takes."""
        shortest, longest = self.latency
        return shortest + (longest - shortest) * self._random.random()

    def split(self, size: int) -> int:
        """Draw how many of `size` bytes arrive before the rest does; 0 for all together."""
        if size > 1 and self._random.random() < self.splits:
            return self._random.randrange(1, size)
        return 0


# -- Servers


# Since then wait_closed() waits for the connections, too.
_WAITS_FOR_CONNECTIONS = sys.version_info >= (3, 12)


class SimulatedServer(asyncio.AbstractServer):
    """What `loop.create_server` returns; it does what asyncio's own of this Python does.

    Owns: the list of its connections.
    """

    def __init__(
        self,
        network: Network,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        tls: Any = None,
    ) -> None:
        self._network = network
        self._factory = factory
        #: Host and port that it listens on.
        self.address = (host, port)
        #: The SSLContext that it was made with; nothing is encrypted.
        self.tls = tls
        self._is_open = True
        self._is_serving = False
        self._connections: dict[SimulatedTransport, None] = {}
        self._waiters: list[asyncio.Future[None]] | None = []
        self._forever: asyncio.Future[None] | None = None

    @property
    def sockets(self) -> tuple[Any, ...]:
        """One stand-in with `getsockname()` while the server is open."""
        return (SocketInfo(self.address),) if self._is_open else ()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    def is_serving(self) -> bool:
        return self._is_serving

    def begin(self) -> None:
        """Accept connections from now on."""
        if self._is_open:
            self._is_serving = True

    async def start_serving(self) -> None:
        self.begin()
        await asyncio.sleep(0)

    async def serve_forever(self) -> None:
        """Serve until cancelled, then close."""
        if self._forever is not None:
            raise RuntimeError(f"server {self!r} is already being awaited on serve_forever()")
        if not self._is_open:
            raise RuntimeError(f"server {self!r} is closed")
        self.begin()
        self._forever = self._network.loop.create_future()
        try:
            await self._forever
        except asyncio.CancelledError:
            self.close()
            await self.wait_closed()
            raise
        finally:
            self._forever = None

    def close(self) -> None:
        """Listen no more; open connections stay."""
        if not self._is_open:
            return
        self._is_open = self._is_serving = False
        self._network.stop_listening(self)
        if self._forever is not None:
            self._forever.cancel()
        if not self._connections:
            self._wake()

    def close_clients(self) -> None:
        """Close all connections (Python 3.13 and later have it)."""
        for transport in list(self._connections):
            transport.close()

    def abort_clients(self) -> None:
        """Abort all connections (Python 3.13 and later have it)."""
        for transport in list(self._connections):
            transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the server is closed, and since Python 3.12 for its connections to end."""
        if self._waiters is None or not (self._is_open or _WAITS_FOR_CONNECTIONS):
            return
        waiter: asyncio.Future[None] = self._network.loop.create_future()
        self._waiters.append(waiter)
        await waiter

    # -- for the network

    def accept(self, end: SimulatedSocket) -> None:
        """Make the protocol for a connection."""
        protocol = self._factory()
        transport = SimulatedTransport(self._network, end, protocol, server=self, tls=self.tls)
        self._connections[transport] = None

    def detach(self, transport: SimulatedTransport) -> None:
        """Forget a connection that has ended."""
        self._connections.pop(transport, None)
        if not self._connections and not self._is_open:
            self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, None
        for waiter in waiters or ():
            if not waiter.done():
                waiter.set_result(None)


# -- The network

_FIRST_PORT = 9092
_FIRST_CLIENT_PORT = 40_000
_IP = "127.0.0.1"
_KEPT_ATTEMPTS = 10_000
_MARK = struct.Struct(">QBd")
# Seconds after which a system sends a lost SYN again, and after which it gives up, as on Linux.
_AGAIN = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


class Network:
    """Servers, lines to them and the connections between, all in one simulated loop.

    Owns: which servers listen, the lines, and the connections that are open.
    """

    def __init__(self, loop: TurningLoop, chance: random.Random) -> None:
        self.loop = loop
        self._random = chance
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
        #: When and to which line the last connections were tried.
        self.attempts: deque[tuple[float, Line]] = deque(maxlen=_KEPT_ATTEMPTS)
        #: How many bytes were written, by all.
        self.bytes_written = 0

    # -- for the loop

    async def resolve(self, host: Any, port: Any) -> list[Any]:
        """Return what `getaddrinfo` does. Raises socket.gaierror for names that are not known."""
        name = host.decode() if isinstance(host, bytes) else str(host or "localhost")
        if _is_address(name):
            found = [name]
        else:
            await asyncio.sleep(self.name_delay)
            found = self.names.get(name, [_IP] if name == "localhost" else [])
        if name in self.broken_names or not found:
            raise socket.gaierror(socket.EAI_NONAME, f"Name or service not known: {name}")
        return [
            (_family(ip), socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (ip, int(port or 0)))
            for ip in found
        ]

    def listen(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        tls: Any = None,
    ) -> SimulatedServer:
        """Make a server at an address that is free; port 0 takes the next free one."""
        while port == 0:
            if (host, self._next_port) not in self._servers:
                port = self._next_port
            self._next_port += 1
        if (host, port) in self._servers:
            raise OSError(
                errno.EADDRINUSE,
                f"error while attempting to bind on address ('{host}', {port}): address in use",
            )
        server = self._servers[host, port] = SimulatedServer(self, factory, host, port, tls)
        return server

    def stop_listening(self, server: SimulatedServer) -> None:
        """Free the address of a server that closes."""
        if self._servers.get(server.address) is server:
            del self._servers[server.address]

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, tls: Any = None
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect, in a round trip, to the first address of a host that takes the connection.

        Raises socket.gaierror for a name that is not known, ConnectionRefusedError where nothing
        listens, TimeoutError two minutes after the line began to lose packets, ssl.SSLError for
        the line's TLS fault and between a side with TLS and one without.
        """
        errors: list[OSError] = []
        for *_, (ip, _port) in await self.resolve(host, port):
            try:
                end = await self._connect_to(ip, port, tls)
                return await self._set_up(end, factory, tls)
            except ssl.SSLError:
                raise
            except OSError as error:
                errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        raise OSError("Multiple exceptions: " + ", ".join(str(error) for error in errors))

    async def _connect_to(self, ip: str, port: int, tls: Any) -> SimulatedSocket:
        done: asyncio.Future[SimulatedSocket] = self.loop.create_future()
        line = self.line(ip, port)
        line.tried += 1
        self.attempts.append((self.loop.now, line))
        self._later(line.delay(), self._knock, done, line, tls, 0)
        try:
            return await done
        except asyncio.CancelledError:
            if done.done() and not done.cancelled() and done.exception() is None:
                done.result().close()
            raise

    async def _set_up(
        self, end: SimulatedSocket, factory: Callable[[], asyncio.BaseProtocol], tls: Any
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        protocol = factory()
        transport = SimulatedTransport(self, end, protocol, tls=tls)
        ready: asyncio.Future[None] = self.loop.create_future()
        self.loop.call_soon(_set_ready, ready)
        try:
            await ready
        except asyncio.CancelledError:
            transport.close()
            raise
        return transport, protocol

    def _later(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        self.loop.happen_at(self.loop.now + delay, callback, *args)

    def _knock(self, done: asyncio.Future[Any], line: Line, tls: Any, tried: int) -> None:
        """Let the first packet of a connection reach the server, if it does."""
        if done.done():
            return
        address = (line.host, line.port)
        if line.is_silent:
            if tried == len(_AGAIN):
                timed_out = TimeoutError(errno.ETIMEDOUT, f"Connect call failed {address}")
                done.set_exception(timed_out)
            else:
                self._later(_AGAIN[tried], self._knock, done, line, tls, tried + 1)
            return
        server = self._servers.get(address)
        if server is None or not server.is_serving() or line.refuses:
            refused = ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {address}")
            self._later(line.delay(), _set_exception, done, refused)
        elif tls is not None and (line.tls_error is not None or server.tls is None):
            error = line.tls_error or ssl.SSLError(ssl.SSL_ERROR_SSL, "wrong version number")
            self._later(line.delay(), _set_exception, done, type(error)(*error.args))
        else:
            self._later(line.delay(), self._open_door, done, line, tls)

    def _open_door(self, done: asyncio.Future[Any], line: Line, tls: Any) -> None:
        """Open a connection: the server's first packet is back at the client, for which it is there
        now. The server's system has it, too, and gives it to the server when it hears from the
        client again.
        """
        if done.done():
            return
        number, self._next_number = self._next_number, self._next_number + 1
        client_port, self._next_client_port = self._next_client_port, self._next_client_port + 1
        client, there = connect_pair(self.loop, line, number, client_port)
        delay = line.delay()
        client.not_before(self.loop.now + delay)
        self._later(delay, self._accept, there, tls)
        done.set_result(client)

    def _accept(self, end: SimulatedSocket, tls: Any) -> None:
        server = self._servers.get((end.line.host, end.line.port))
        if server is None or (server.tls is None) != (tls is None):
            # It has stopped meanwhile, or hears something that is no TLS.
            end.is_closed = True
            end.send_reset()
            return
        try:
            server.accept(end)
        except Exception:
            end.close()
            raise

    # -- for the ends of connections

    def note(self, writer: SimulatedTransport, data: bytes) -> None:
        """Count a write: every one passes here."""
        self.bytes_written += len(data)
        mark = _MARK.pack(writer.number, writer.is_client, self.loop.now)
        self.checksum = zlib.crc32(data, zlib.crc32(mark, self.checksum))
        if self.observer is not None:
            self.observer(writer, data)

    def began(self, transport: SimulatedTransport) -> None:
        """Remember a transport whose protocol is about to hear of its connection."""
        self._open[transport] = None

    def ended(self, transport: SimulatedTransport) -> None:
        """Forget a transport whose protocol is about to hear that its connection is lost."""
        self._open.pop(transport, None)

    # -- for those who break things

    def line(self, host: str, port: int) -> Line:
        """Return the line to a server address, whether something listens there or not."""
        found = self._lines.get((host, port))
        if found is None:
            found = self._lines[host, port] = Line(self._random, host, port)
        return found

    def connections(self) -> list[tuple[int, Line]]:
        """Return number and line of every open connection, the oldest first."""
        return [(t.number, t.line) for t in self._open if t.is_client]

    def open_transports(self) -> list[SimulatedTransport]:
        """Return every end whose protocol has not heard that its connection is lost."""
        return list(self._open)

    def reset(self, number: int | None = None, line: Line | None = None) -> int:
        """Reset connections at both ends: one, those of a line, or all. What is under way is lost.

        Returns:
            How many ends there were.
        """
        hit = [
            transport
            for transport in self._open
            if number in (None, transport.number) and (line is None or transport.line is line)
        ]
        for transport in hit:
            transport.get_reset()
        return len(hit)


def _set_ready(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _set_exception(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _family(ip: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in ip else socket.AF_INET


def _is_address(name: str) -> bool:
    try:
        socket.inet_pton(_family(name), name)
    except OSError:
        return False
    return True


def first_host(host: str | Iterable[str] | None) -> str:
    """Return the address for what `create_server` was given; all interfaces are one here."""
    if host is None or host == "" or host in ("0.0.0.0", "::", "localhost"):
        return _IP
    return host if isinstance(host, str) else first_host(next(iter(host), None))
