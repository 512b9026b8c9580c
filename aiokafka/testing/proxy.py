"""A TCP proxy that cuts, delays, fragments and stalls connections on command."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Literal

from aiokafka._compat import timeout_at
from aiokafka._typing import Self
from aiokafka.testing.actions import check_seconds, check_whole
from aiokafka.testing.connection import address_of, close_server, stop_accepting

Direction = Literal["requests", "responses"]
"""``"requests"``: from the client to the server; ``"responses"``: from the server to the client."""

_DIRECTIONS: tuple[Direction, ...] = ("requests", "responses")
_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_CHUNK = 65536
_MAX_QUEUED = 4 * 1024 * 1024


class FaultProxy:
    """A TCP proxy between a client and one server, with faults that a test switches on and off.

    It forwards bytes in both directions, for any number of connections, and does not parse Kafka's
    protocol. Faults apply to open and to later connections until :meth:`restore`.

    Clients connect to the addresses in metadata, so the broker must advertise the proxy's address:
    ``FakeCluster(proxied=True)`` does this. For a real broker start the proxy first, without a
    target, put :attr:`address` into the broker's ``advertised.listeners``, start the broker and
    set ``target``.

    The methods raise ValueError for an unknown direction or a number out of range, and TypeError
    for a number of the wrong type.

    Args:
        target: ``"host:port"`` of the server, or None to set ``target`` later. Without a target,
            new connections are closed at once.
        host: Address to listen on.
        port: Port to listen on; 0 (the default) for a free port.

    Example::

        async with FaultProxy("127.0.0.1:9092") as proxy:
            producer = AIOKafkaProducer(bootstrap_servers=proxy.address)
            ...
            proxy.fragment(1)                 # one byte per write
            proxy.cut_after(100, "responses") # break the connection inside a response
            proxy.restore()
    """

    def __init__(
        self, target: str | None = None, *, host: str = "127.0.0.1", port: int = 0
    ) -> None:
        self._target: str | None = None
        self.target = target
        self.host = host
        self.port = port
        #: Number of accepted connections.
        self.accepted = 0
        #: Number of forwarded bytes, by direction.
        self.forwarded: dict[Direction, int] = {"requests": 0, "responses": 0}
        self._rules: dict[Direction, _Rules] = {"requests": _Rules(), "responses": _Rules()}
        self._refusing = False
        self._links: dict[_Link, None] = {}
        self._server: asyncio.Server | None = None

    @property
    def target(self) -> str | None:
        """``"host:port"`` of the server; None if not set yet. Setting an address without a port
        raises ValueError."""
        return self._target

    @target.setter
    def target(self, address: str | None) -> None:
        if address and not str(address).rpartition(":")[2].isdecimal():
            raise ValueError(f'target must be "host:port" of one server, not {address!r}')
        self._target = address

    @property
    def address(self) -> str:
        """``"host:port"`` that clients connect to; the port is known once the proxy is started."""
        return address_of(self.host, self.port)

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._links)

    async def start(self) -> None:
        """Start listening, after a :meth:`stop` on the same port. A second call does nothing.
        Raises OSError if the port is in use."""
        if self._server is not None:
            return
        self._server = await asyncio.start_server(self._accept, self.host, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and break all connections. A second call does nothing."""
        server, self._server = self._server, None
        if server is not None:
            stop_accepting(server)
        links = list(self._links)
        for link in links:
            link.cut()
        await close_server(server, links)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()

    # -- faults --------------------------------------------------------------------------------

    def cut(self) -> int:
        """Break all open connections, and lose the bytes in transit. Clients may connect again.

        Returns:
            The number of broken connections.
        """
        links = list(self._links)
        for link in links:
            link.cut()
        return len(links)

    def refuse(self) -> None:
        """Break new connections as soon as they are accepted, until :meth:`restore`."""
        self._refusing = True

    def delay(self, seconds: float, direction: Direction | None = None) -> None:
        """Delay every byte by `seconds`, without changing the order of bytes. 0 ends the delay, and
        delivers the delayed bytes.

        Args:
            seconds: One-way delay, which does not limit the throughput.
            direction: One direction only; None (the default) means both, each with the full delay.
        """
        check_seconds("seconds", seconds)
        for rules in self._selected(direction):
            rules.set_delay(seconds)

    def fragment(self, size: int = 1, direction: Direction | None = None) -> None:
        """Deliver at most `size` bytes with each write."""
        check_whole("size", size, 1)
        for rules in self._selected(direction):
            rules.fragment = size

    def stall(self, direction: Direction | None = None) -> None:
        """Deliver nothing, but keep the connections open. :meth:`restore` delivers the received
        bytes. When the proxy holds more than 4 MiB of a connection in one direction, it stops
        reading from that side.
        """
        for rules in self._selected(direction):
            rules.flowing.clear()

    def cut_after(
        self, n_bytes: int, direction: Direction = "responses", *, repeat: bool = False
    ) -> None:
        """Deliver `n_bytes` more bytes in a direction, then break the connection that got the last
        of these bytes.

        Args:
            n_bytes: Number of bytes, over all connections; 0 breaks before the next byte.
            direction: The direction whose bytes are counted.
            repeat: Restart the count after each break, until :meth:`restore`.
        """
        check_whole("n_bytes", n_bytes, 1 if repeat else 0)
        rules = self._rules_of(direction)
        rules.budget = n_bytes
        rules.refill = n_bytes if repeat else None

    def restore(self) -> None:
        """End all faults, and deliver the delayed and stalled bytes of open connections."""
        self._refusing = False
        for rules in self._rules.values():
            rules.reset()

    def _selected(self, direction: Direction | None) -> Iterable[_Rules]:
        if direction is None:
            return self._rules.values()
        return (self._rules_of(direction),)

    def _rules_of(self, direction: Direction) -> _Rules:
        if direction not in _DIRECTIONS:
            raise ValueError(f'direction must be "requests" or "responses", not {direction!r}')
        return self._rules[direction]

    # -- connections ---------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        link = _Link(self, reader, writer)
        if self._refusing or self.target is None or self._server is None:
            writer.transport.abort()
            return
        self._links[link] = None
        try:
            await link.run(self.target)
        finally:
            self._links.pop(link, None)


class _Rules:
    """The faults of one direction, shared by all connections of a proxy."""

    def __init__(self) -> None:
        self.flowing = asyncio.Event()
        self.prompt = asyncio.Event()  # set if there is no delay
        self.reset()

    def reset(self) -> None:
        self.set_delay(0.0)
        self.fragment: int | None = None
        self.budget: int | None = None
        self.refill: int | None = None
        self.flowing.set()

    def set_delay(self, seconds: float) -> None:
        """Set the delay of later bytes; 0 also delivers the bytes that are delayed now."""
        self.delay = seconds
        if seconds:
            self.prompt.clear()
        else:
            self.prompt.set()

    def allow(self, size: int) -> int:
        """Return how many of `size` bytes may be delivered before the connection must break."""
        return size if self.budget is None else min(size, self.budget)

    def spend(self, size: int) -> bool:
        """Count delivered bytes; return whether the connection must break now."""
        if self.budget is None:
            return False
        self.budget -= size
        if self.budget > 0:
            return False
        self.budget = self.refill
        return True


class _Link:
    """A client's connection to the proxy, and the proxy's connection to the server for this
    client."""

    def __init__(
        self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._proxy = proxy
        self._client = (reader, writer)
        self._writers = [writer]
        self._connecting: asyncio.Task[_Streams] | None = None
        self._broken = asyncio.Event()
        self._closed = asyncio.Event()

    def cut(self) -> None:
        self._broken.set()
        if self._connecting is not None:
            self._connecting.cancel()
        for writer in self._writers:
            writer.transport.abort()

    async def wait_closed(self) -> None:
        await self._closed.wait()

    async def run(self, target: str) -> None:
        """Forward bytes until both sides have sent EOF, a side fails, or :meth:`cut` is called."""
        tasks: list[asyncio.Task[None]] = []
        try:
            server = await self._connect(target)
            if server is None:
                return
            pipes = [
                _Pipe(self._proxy, "requests", self._client[0], server[1]),
                _Pipe(self._proxy, "responses", server[0], self._client[1]),
            ]
            for pipe in pipes:
                tasks.append(asyncio.create_task(pipe.read(), name=f"proxy-read-{pipe.direction}"))
                tasks.append(
                    asyncio.create_task(pipe.write(), name=f"proxy-write-{pipe.direction}")
                )
            await self._until_ended(tasks)
        except OSError:
            pass  # the server is unavailable, so the client's connection breaks
        finally:
            self.cut()
            for task in tasks:
                task.cancel()
            await asyncio.gather(
                *tasks, *(w.wait_closed() for w in self._writers), return_exceptions=True
            )
            self._closed.set()

    async def _connect(self, target: str) -> _Streams | None:
        """Connect to the server; return None if :meth:`cut` was called during the attempt."""
        host, _, port = target.rpartition(":")
        self._connecting = asyncio.create_task(
            asyncio.open_connection(host.strip("[]"), int(port)), name="proxy-connect"
        )
        await asyncio.wait([self._connecting])
        if self._connecting.cancelled():
            return None
        server = self._connecting.result()
        self._writers.append(server[1])
        return None if self._broken.is_set() else server

    async def _until_ended(self, tasks: list[asyncio.Task[None]]) -> None:
        """Wait for a cut, a failure, or EOF in both directions."""
        broken = asyncio.create_task(self._broken.wait(), name="proxy-cut")
        pending: set[asyncio.Task[None] | asyncio.Task[Literal[True]]] = {*tasks, broken}
        try:
            while len(pending) > 1:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                if broken in done or any(task.exception() for task in done):
                    return
        finally:
            broken.cancel()
            await asyncio.gather(broken, return_exceptions=True)


class _Pipe:
    """One direction of one connection: a reader, a queue bounded in bytes, a writer."""

    def __init__(
        self,
        proxy: FaultProxy,
        direction: Direction,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
    ) -> None:
        self.direction = direction
        self._rules = proxy._rules[direction]
        self._forwarded = proxy.forwarded
        self._source = source
        self._sink = sink
        self._queue: deque[tuple[float, bytes]] = deque()  # (due time, bytes); b"" for EOF
        self._queued = 0
        self._changed = asyncio.Event()

    async def read(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            data = await self._source.read(_CHUNK)
            self._queue.append((loop.time() + self._rules.delay, data))
            self._queued += len(data)
            self._changed.set()
            if not data:
                return
            while self._queued > _MAX_QUEUED:
                self._changed.clear()
                await self._changed.wait()

    async def write(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while not self._queue:
                self._changed.clear()
                await self._changed.wait()
            due, data = self._queue[0]
            if due > loop.time():
                with suppress(asyncio.TimeoutError):
                    async with timeout_at(due):
                        await self._rules.prompt.wait()
            await self._rules.flowing.wait()
            if not data:
                if self._sink.can_write_eof():
                    self._sink.write_eof()
                return
            await self._deliver(data)
            self._queue.popleft()
            self._queued -= len(data)
            self._changed.set()

    async def _deliver(self, data: bytes) -> None:
        rules = self._rules
        start = 0
        while start < len(data):
            await rules.flowing.wait()
            size = rules.allow(min(len(data) - start, rules.fragment or len(data)))
            if size:
                self._sink.write(data[start : start + size])
                await self._sink.drain()
                self._forwarded[self.direction] += size
                start += size
            if rules.spend(size):
                self._sink.close()  # sends the written bytes first; abort() would lose them
                await self._sink.wait_closed()
                raise ConnectionAbortedError("cut_after reached its count")
            if rules.fragment is not None:
                await asyncio.sleep(0)  # the receiver reads this fragment before the next one
