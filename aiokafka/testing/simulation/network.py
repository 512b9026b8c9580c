"""The network of a simulated loop: host names, servers, and the lines (paths) to servers."""

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
    from aiokafka.testing.simulation.loop import VirtualTimeLoop

__all__ = ["Line", "Network", "SimulatedServer"]


# -- Lines: the network path to a server, and its faults


class Line:
    """The network path between all clients and one server address, with the faults of the path.

    Tests may change the public attributes at any time.
    """

    def __init__(self, chance: random.Random, host: str, port: int) -> None:
        self._random = chance
        self.host = host
        self.port = port
        #: Minimum and maximum latency in seconds; each piece of bytes has a random latency.
        self.latency = (0.0002, 0.002)
        #: Bytes per second that each end of a connection can send; None for no limit.
        self.bandwidth: float | None = None
        #: Whether connection attempts raise ConnectionRefusedError, as without a server.
        self.refuses = False
        #: Number of connection attempts.
        self.tried = 0
        #: The error that each TLS handshake raises (a copy); None for no error.
        self.tls_error: ssl.SSLError | None = None
        #: Probability that the bytes of one write arrive in two pieces.
        self.splits = 0.1
        #: Number of bytes after which one connection is cut; None for no cut. The first connection
        #: on which one end reaches this number of sent bytes is cut: the other end receives these
        #: bytes, then both ends get a reset.
        self.cut_at: int | None = None
        self._lost_to_server = False
        self._lost_to_client = False
        self._held: dict[SimulatedSocket, None] = {}

    def lose(self, *, to_server: bool = True, to_client: bool = True) -> None:
        """Lose the packets of each direction whose argument is True, without an error, and deliver
        the packets of the other direction. When a direction works again, its lost bytes are
        retransmitted, as by TCP.
        """
        self._lost_to_server = to_server
        self._lost_to_client = to_client
        waiting, self._held = self._held, {}
        for sender in waiting:
            sender.retransmit()

    def restore(self) -> None:
        """End refusals, TLS errors, cuts and losses. Lost bytes are retransmitted. The latency, the
        bandwidth and the probability of splits do not change.
        """
        self.refuses = False
        self.tls_error = None
        self.cut_at = None
        self.lose(to_server=False, to_client=False)

    @property
    def is_silent(self) -> bool:
        """Whether packets are lost in at least one direction, so that clients cannot connect."""
        return self._lost_to_server or self._lost_to_client

    def holds(self, sender: SimulatedSocket) -> bool:
        """Return whether packets from `sender` are lost."""
        return self._lost_to_server if sender.is_client else self._lost_to_client

    def hold(self, sender: SimulatedSocket) -> None:
        """Register a sender of lost bytes, which retransmits when the faults of the line change."""
        self._held[sender] = None

    def delay(self) -> float:
        """Return a random latency for the next piece of bytes."""
        shortest, longest = self.latency
        return shortest + (longest - shortest) * self._random.random()

    def split(self, size: int) -> int:
        """Decide at random whether `size` bytes arrive in two pieces. Return the size of the first
        piece; 0 if the bytes arrive in one piece."""
        if size > 1 and self._random.random() < self.splits:
            return self._random.randrange(1, size)
        return 0


# -- Servers


# Whether asyncio's Server.wait_closed() also waits for the connections.
_WAITS_FOR_CONNECTIONS = sys.version_info >= (3, 12)


class SimulatedServer(asyncio.AbstractServer):
    """The server of `loop.create_server`, with the behaviour of asyncio's Server in this Python.

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
        #: Listening host and port.
        self.address = (host, port)
        #: The SSLContext, None without TLS. Bytes are never encrypted.
        self.tls = tls
        self._is_open = True
        self._is_serving = False
        self._connections: dict[SimulatedTransport, None] = {}
        self._waiters: list[asyncio.Future[None]] | None = []
        self._forever: asyncio.Future[None] | None = None

    @property
    def sockets(self) -> tuple[Any, ...]:
        """A tuple with a stand-in for the listening socket; empty once the server is closed."""
        return (SocketInfo(self.address),) if self._is_open else ()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    def is_serving(self) -> bool:
        return self._is_serving

    def begin(self) -> None:
        """Start accepting connections, unless the server is closed."""
        if self._is_open:
            self._is_serving = True

    async def start_serving(self) -> None:
        self.begin()
        await asyncio.sleep(0)

    async def serve_forever(self) -> None:
        """Serve until cancelled, then close. Raises RuntimeError if the server is closed, or if
        another call is in progress."""
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
        """Stop listening. Open connections stay open."""
        if not self._is_open:
            return
        self._is_open = self._is_serving = False
        self._network.stop_listening(self)
        if self._forever is not None:
            self._forever.cancel()
        if not self._connections:
            self._wake()

    def close_clients(self) -> None:
        """Close all connections, as asyncio does since Python 3.13."""
        for transport in list(self._connections):
            transport.close()

    def abort_clients(self) -> None:
        """Abort all connections, as asyncio does since Python 3.13."""
        for transport in list(self._connections):
            transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the server is closed; from Python 3.12 on, also until its connections have
        ended."""
        if self._waiters is None or not (self._is_open or _WAITS_FOR_CONNECTIONS):
            return
        waiter: asyncio.Future[None] = self._network.loop.create_future()
        self._waiters.append(waiter)
        await waiter

    # -- for the network

    def accept(self, end: SimulatedSocket) -> None:
        """Create the protocol and the transport of a connection."""
        protocol = self._factory()
        transport = SimulatedTransport(self._network, end, protocol, server=self, tls=self.tls)
        self._connections[transport] = None

    def detach(self, transport: SimulatedTransport) -> None:
        """Remove an ended connection."""
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
# Seconds before each retransmission of a lost SYN, as on Linux; the last number is the wait before
# the timeout.
_SYN_RETRIES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


class Network:
    """The network of one simulated loop.

    Owns: the listening servers, the lines, and the open connections.
    """

    def __init__(self, loop: VirtualTimeLoop, chance: random.Random) -> None:
        self.loop = loop
        self._random = chance
        self._servers: dict[tuple[str, int], SimulatedServer] = {}
        self._lines: dict[tuple[str, int], Line] = {}
        self._open: dict[SimulatedTransport, None] = {}
        #: Addresses of each host name. ``localhost`` and IP addresses need no entry.
        self.names: dict[str, list[str]] = {}
        #: Host names whose look-up fails.
        self.broken_names: set[str] = set()
        #: Duration of a host name look-up, in seconds.
        self.name_delay = 0.001
        self._next_port = _FIRST_PORT
        self._next_client_port = _FIRST_CLIENT_PORT
        self._next_number = 1
        #: Called for every write, with the writing transport and the bytes.
        self.observer: Callable[[SimulatedTransport, bytes], object] | None = None
        #: Checksum of the bytes, times and connections of all writes.
        self.checksum = 0
        #: Time and line of the last 10,000 connection attempts.
        self.attempts: deque[tuple[float, Line]] = deque(maxlen=_KEPT_ATTEMPTS)
        #: Number of written bytes, over all connections.
        self.bytes_written = 0

    # -- for the loop

    async def resolve(self, host: Any, port: Any) -> list[Any]:
        """Return address infos like `getaddrinfo`. Raises socket.gaierror for unknown names."""
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
        """Return a new server at an address; port 0 means the next free port. Raises OSError if the
        address is in use."""
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
        """Remove a closing server, whose address becomes free."""
        if self._servers.get(server.address) is server:
            del self._servers[server.address]

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, tls: Any = None
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to the first address of a host that accepts the connection.

        Raises:
            socket.gaierror: the name is unknown.
            ConnectionRefusedError: no server listens, or the line refuses connections.
            TimeoutError: packets were lost for two minutes.
            ssl.SSLError: the line has a TLS fault, or only the client uses TLS.
            OSError: several addresses failed; the text has all their errors.
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
        self._call_later(line.delay(), self._send_syn, done, line, tls, 0)
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

    def _call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> None:
        self.loop.happen_at(self.loop.now + delay, callback, *args)

    def _send_syn(self, done: asyncio.Future[Any], line: Line, tls: Any, tried: int) -> None:
        """Deliver the SYN, the first packet of a connection, to the server; retransmit a lost SYN
        later. `tried` is the number of lost SYNs."""
        if done.done():
            return
        address = (line.host, line.port)
        if line.is_silent:
            if tried == len(_SYN_RETRIES):
                timed_out = TimeoutError(errno.ETIMEDOUT, f"Connect call failed {address}")
                done.set_exception(timed_out)
            else:
                self._call_later(_SYN_RETRIES[tried], self._send_syn, done, line, tls, tried + 1)
            return
        server = self._servers.get(address)
        if server is None or not server.is_serving() or line.refuses:
            refused = ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {address}")
            self._call_later(line.delay(), _set_exception, done, refused)
        elif tls is not None and (line.tls_error is not None or server.tls is None):
            error = line.tls_error or ssl.SSLError(ssl.SSL_ERROR_SSL, "wrong version number")
            self._call_later(line.delay(), _set_exception, done, type(error)(*error.args))
        else:
            self._call_later(line.delay(), self._establish, done, line, tls)

    def _establish(self, done: asyncio.Future[Any], line: Line, tls: Any) -> None:
        """Complete the connection at the client, which has received the server's SYN-ACK. The
        server accepts the connection when the client's next packet, the ACK, arrives.
        """
        if done.done():
            return
        number, self._next_number = self._next_number, self._next_number + 1
        client_port, self._next_client_port = self._next_client_port, self._next_client_port + 1
        client, there = connect_pair(self.loop, line, number, client_port)
        delay = line.delay()
        client.not_before(self.loop.now + delay)
        self._call_later(delay, self._accept, there, tls)
        done.set_result(client)

    def _accept(self, end: SimulatedSocket, tls: Any) -> None:
        server = self._servers.get((end.line.host, end.line.port))
        if server is None or (server.tls is None) != (tls is None):
            # The server was stopped after it had received the SYN, or only one end uses TLS.
            end.is_closed = True
            end.send_reset()
            return
        try:
            server.accept(end)
        except Exception:
            end.close()
            raise

    # -- for the ends of connections

    def record_write(self, writer: SimulatedTransport, data: bytes) -> None:
        """Add the bytes of a write to the checksum, and call the observer."""
        self.bytes_written += len(data)
        mark = _MARK.pack(writer.number, writer.is_client, self.loop.now)
        self.checksum = zlib.crc32(data, zlib.crc32(mark, self.checksum))
        if self.observer is not None:
            self.observer(writer, data)

    def add_transport(self, transport: SimulatedTransport) -> None:
        """Add a transport; called before its protocol's `connection_made`."""
        self._open[transport] = None

    def remove_transport(self, transport: SimulatedTransport) -> None:
        """Remove a transport; called before its protocol's `connection_lost`."""
        self._open.pop(transport, None)

    # -- for tests

    def line(self, host: str, port: int) -> Line:
        """Return the line to an address, whether or not a server listens there."""
        found = self._lines.get((host, port))
        if found is None:
            found = self._lines[host, port] = Line(self._random, host, port)
        return found

    def connections(self) -> list[tuple[int, Line]]:
        """Return (number, line) of every open connection, the oldest connection first."""
        return [(t.number, t.line) for t in self._open if t.is_client]

    def open_transports(self) -> list[SimulatedTransport]:
        """Return the transports, at both ends, whose `connection_lost` was not called yet."""
        return list(self._open)

    def reset(self, number: int | None = None, line: Line | None = None) -> int:
        """Reset connections at both ends: the connection with this number, the connections of a
        line, or all connections. Bytes in transit are lost.

        Returns:
            The number of reset ends.
        """
        hit = [
            transport
            for transport in self._open
            if number in (None, transport.number) and (line is None or transport.line is line)
        ]
        for transport in hit:
            transport.reset()
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
    """Return the address at which `create_server` listens for its argument `host`: the first of
    several hosts, and 127.0.0.1 for all interfaces and for localhost."""
    if host is None or host == "" or host in ("0.0.0.0", "::", "localhost"):
        return _IP
    return host if isinstance(host, str) else first_host(next(iter(host), None))
