"""Small proxies: SOCKS5 with and without a password, and HTTP CONNECT."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from urllib.parse import quote

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Greet = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[tuple[str, int]]]


class TestProxy:
    """A proxy that knows the addresses behind names which nobody else can resolve.

    `url` is for `proxy_url`. `asked` has the addresses that clients have asked for.
    """

    __test__ = False

    def __init__(self, scheme: str, targets: dict[tuple[str, int], str], user: str = "") -> None:
        self.scheme = scheme
        self.targets = targets
        self.user = user
        self.asked: list[tuple[str, int]] = []
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        name, _, password = self.user.partition(":")
        login = f"{quote(name)}:{quote(password, safe='')}@" if self.user else ""
        return f"{self.scheme}://{login}127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        greet = self._greet_socks if self.scheme.startswith("socks5") else self._greet_http
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            address = await greet(reader, writer)
            await _link((reader, writer), self._writers, self.targets[address])
        writer.close()

    async def _greet_socks(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[str, int]:
        _, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        method = 2 if self.user else 0
        writer.write(bytes([5, method if method in methods else 255]))
        if self.user:
            given = []
            await reader.readexactly(1)
            for _ in range(2):
                given.append((await reader.readexactly((await reader.readexactly(1))[0])).decode())
            writer.write(bytes([1, 0 if ":".join(given) == self.user else 1]))
        *_, kind = await reader.readexactly(4)
        assert kind == 3, "the client resolved the name itself"
        host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        address = host, int.from_bytes(await reader.readexactly(2), "big")
        self.asked.append(address)
        is_known = address in self.targets
        writer.write(bytes([5, 0 if is_known else 4, 0, 1, 0, 0, 0, 0, 0, 0]))
        if not is_known:
            raise ConnectionError(f"{address} is unknown")
        return address

    async def _greet_http(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[str, int]:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        host, _, port = head.split()[1].rpartition(":")
        address = host, int(port)
        self.asked.append(address)
        expected = base64.b64encode(self.user.encode()).decode()
        if self.user and f"Proxy-Authorization: Basic {expected}\r\n" not in head:
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            raise ConnectionError("not authorized")
        if address not in self.targets:
            writer.write(b"HTTP/1.1 502 Bad Gateway\r\n\r\n")
            raise ConnectionError(f"{address} is unknown")
        writer.write(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
        return address

    async def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        # A task that is cancelled at the end of the test is logged as an error by Python 3.11.
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=30)


@contextlib.asynccontextmanager
async def proxy(
    scheme: str, targets: dict[tuple[str, int], str], user: str = ""
) -> AsyncIterator[TestProxy]:
    """A running proxy. `targets` has "host:port" by the address that clients ask for; `user` is
    "name:password"."""
    made = TestProxy(scheme, targets, user)
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await made.close()
        await server.wait_closed()


async def _link(client: Streams, writers: list[asyncio.StreamWriter], target: str) -> None:
    host, _, port = target.rpartition(":")
    server = await asyncio.open_connection(host, int(port))
    writers.append(server[1])

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    await asyncio.gather(pump(client[0], server[1]), pump(server[0], client[1]))
