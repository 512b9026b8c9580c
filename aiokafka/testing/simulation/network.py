"""The network of a simulated loop: names, servers, lines and the connections between."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import struct
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from aiokafka.testing.simulation.line import Line
from aiokafka.testing.simulation.server import SimulatedServer
from aiokafka.testing.simulation.transport import SimulatedTransport
from aiokafka.testing.simulation.wire import SimulatedSocket, connect_pair

if TYPE_CHECKING:
    import random

    from aiokafka.testing.simulation.turns import TurningLoop

__all__ = ["Line", "Network"]

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
