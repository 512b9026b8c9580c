"""Conversations between two protocols, written down, to be held on sockets and in memory.

Each scenario is an ``async`` function that returns what its protocols were told. It runs on any
loop, so what it returns on asyncio's own loop is what it must return on the simulated one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from aiokafka._compat import timeout

Scenario = Callable[["Stage"], Awaitable[object]]
SCENARIOS: list[Scenario] = []

# More than the buffers of any system hold.
LARGE = 8 * 1024 * 1024


def scenario(function: Scenario) -> Scenario:
    SCENARIOS.append(function)
    return function


class Diary:
    """What a protocol was told, with all bytes that followed each other as one entry."""

    def __init__(self) -> None:
        self.entries: list[str | bytearray] = []
        self.transport: Any = None
        self.changed = asyncio.Event()

    def note(self, entry: str | bytes) -> None:
        if isinstance(entry, str):
            self.entries.append(entry)
        elif self.entries and isinstance(self.entries[-1], bytearray):
            self.entries[-1] += entry
        else:
            self.entries.append(bytearray(entry))
        self.changed.set()

    async def has(self, condition: Callable[[], bool]) -> None:
        async with timeout(20):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    async def ends(self) -> None:
        await self.has(lambda: any(entry.startswith("lost") for entry in self.told))

    async def reads(self, size: int) -> None:
        await self.has(lambda: self.size >= size)

    @property
    def told(self) -> list[str]:
        """The entries that are no bytes."""
        return [entry for entry in self.entries if isinstance(entry, str)]

    @property
    def size(self) -> int:
        return sum(len(entry) for entry in self.entries if isinstance(entry, bytearray))

    @property
    def text(self) -> list[str | bytes]:
        """The entries, long ones by their size."""
        return [
            entry
            if isinstance(entry, str)
            else bytes(entry)
            if len(entry) < 99
            else str(len(entry))
            for entry in self.entries
        ]


def _short(entry: bytearray) -> str | bytes:
    return bytes(entry) if len(entry) < 100 else f"{len(entry)} bytes"


class Talker(asyncio.Protocol):
    """Writes down what it is told."""

    def __init__(self, *, keeps_open: bool = False) -> None:
        self.diary = Diary()
        self.keeps_open = keeps_open

    @property
    def transport(self) -> Any:
        return self.diary.transport

    def connection_made(self, transport: Any) -> None:
        self.diary.transport = transport
        self.diary.note("made")

    def data_received(self, data: bytes) -> None:
        self.diary.note(data)

    def eof_received(self) -> bool:
        self.diary.note("eof")
        return self.keeps_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.diary.note(f"lost: {type(exc).__name__}")

    def pause_writing(self) -> None:
        self.diary.note("pause")

    def resume_writing(self) -> None:
        self.diary.note("resume")


class Filler(asyncio.BufferedProtocol):
    """The same with a small buffer of its own."""

    def __init__(self, size: int = 7) -> None:
        self.diary = Diary()
        self.buffer = bytearray(size)
        self.hints: set[int] = set()

    @property
    def transport(self) -> Any:
        return self.diary.transport

    def connection_made(self, transport: Any) -> None:
        self.diary.transport = transport
        self.diary.note("made")

    def get_buffer(self, sizehint: int) -> bytearray:
        self.hints.add(sizehint)
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.diary.note(bytes(self.buffer[:nbytes]))

    def eof_received(self) -> None:
        self.diary.note("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self.diary.note(f"lost: {type(exc).__name__}")


class Stage:
    """Brings two protocols together, and ends what is left of them."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.reported: list[str] = []
        self.loop.set_exception_handler(self._report)
        self._servers: list[Any] = []
        self.transports: list[Any] = []

    def _report(self, loop: Any, context: dict[str, Any]) -> None:
        self.reported.append(f"{context['message']}: {type(context.get('exception')).__name__}")

    async def server(self, factory: Callable[[], Any]) -> int:
        server = await self.loop.create_server(factory, "127.0.0.1", 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def pair(self, client: Any = None, server: Any = None) -> tuple[Any, Any]:
        """A client and a server protocol that talk to each other."""
        there = server or Talker()
        here = client or Talker()
        port = await self.server(lambda: there)
        self.transports.append(
            (await self.loop.create_connection(lambda: here, "127.0.0.1", port))[0]
        )
        await there.diary.has(lambda: there.diary.transport is not None)
        self.transports.append(there.transport)
        return here, there

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        for transport in self.transports:
            # asyncio fails to abort what has closed itself once its buffer was empty.
            with suppress(AttributeError):
                transport.abort()
        await asyncio.sleep(0.01)


async def play(scenario: Scenario) -> object:
    """What a scenario returns on the loop that runs."""
    stage = Stage()
    try:
        return await scenario(stage)
    finally:
        await stage.close()


# -- ends


@scenario
async def close_by_the_client(stage: Stage) -> object:
    here, there = await stage.pair()
    here.transport.write(b"last words")
    here.transport.close()
    states = [here.transport.is_closing(), here.transport.is_reading()]
    here.transport.write(b"never sent")
    here.transport.close()
    await here.diary.ends()
    await there.diary.ends()
    return states, here.diary.text, there.diary.text


@scenario
async def connection_lost_comes_later(stage: Stage) -> object:
    here, there = await stage.pair()
    seen = []
    here.transport.close()
    seen.append(list(here.diary.entries))
    await asyncio.sleep(0)
    seen.append(list(here.diary.entries))
    there.transport.abort()
    seen.append(list(there.diary.entries))
    await there.diary.ends()
    return seen


@scenario
async def close_with_much_under_way(stage: Stage) -> object:
    here, there = await stage.pair()
    here.transport.write(bytes(LARGE))
    waits = here.transport.get_write_buffer_size() > 0
    here.transport.close()
    here.transport.write(b"still taken")
    await there.diary.ends()
    await here.diary.ends()
    return waits, here.diary.text, there.diary.text


@scenario
async def abort_after_a_little(stage: Stage) -> object:
    """What the system has taken arrives, and there is no reset."""
    here, there = await stage.pair()
    here.transport.write(b"taken")
    here.transport.abort()
    here.transport.abort()
    here.transport.close()
    await here.diary.ends()
    await there.diary.ends()
    return here.diary.text, there.diary.text


@scenario
async def abort_with_much_under_way(stage: Stage) -> object:
    here, there = await stage.pair()
    there.transport.pause_reading()
    here.transport.write(bytes(LARGE))
    here.transport.abort()
    size = here.transport.get_write_buffer_size()
    await here.diary.ends()
    there.transport.resume_reading()
    await there.diary.ends()
    got = sum(len(e) for e in there.diary.entries if isinstance(e, bytes))
    return (
        size,
        here.diary.text,
        [e for e in there.diary.entries if isinstance(e, str)],
        0 < got < LARGE,
    )


@scenario
async def close_with_unread_bytes_is_a_reset(stage: Stage) -> object:
    here, there = await stage.pair()
    there.transport.pause_reading()
    here.transport.write(b"unread")
    await asyncio.sleep(0.05)
    there.transport.close()
    await there.diary.ends()
    await here.diary.ends()
    return here.diary.text, there.diary.text


@scenario
async def write_to_a_peer_that_is_gone(stage: Stage) -> object:
    here, there = await stage.pair(client=Talker(keeps_open=True))
    there.transport.close()
    await here.diary.has(lambda: "eof" in here.diary.entries)
    here.transport.write(b"one")
    await asyncio.sleep(0.05)
    before = list(here.diary.entries)
    here.transport.write(b"two")
    await here.diary.ends()
    # A system says "broken pipe", and another one "reset".
    last = here.diary.entries[-1] in ("lost: BrokenPipeError", "lost: ConnectionResetError")
    return before, last, there.diary.text


@scenario
async def write_while_the_reset_waits_to_be_read(stage: Stage) -> object:
    here, there = await stage.pair()
    here.transport.pause_reading()
    there.transport.pause_reading()
    here.transport.write(b"unread")
    await asyncio.sleep(0.05)
    there.transport.abort()
    await asyncio.sleep(0.05)
    before = list(here.diary.entries)
    here.transport.resume_reading()
    await here.diary.ends()
    return before, here.diary.text, there.diary.text


# -- half of a connection


@scenario
async def half_close(stage: Stage) -> object:
    here, there = await stage.pair(server=Talker(keeps_open=True))
    here.transport.write(b"question")
    here.transport.write_eof()
    here.transport.write_eof()
    await there.diary.has(lambda: "eof" in there.diary.entries)
    there.transport.write(b"answer")
    await here.diary.reads(6)
    states = [here.transport.can_write_eof(), there.transport.is_closing()]
    there.transport.close()
    await here.diary.ends()
    await there.diary.ends()
    return states, here.diary.text, there.diary.text


@scenario
async def write_after_the_end(stage: Stage) -> object:
    here, there = await stage.pair()
    here.transport.write_eof()
    try:
        here.transport.write(b"more")
    except RuntimeError as error:
        said = str(error)
    await there.diary.ends()
    await here.diary.ends()
    return said, here.diary.text, there.diary.text


@scenario
async def end_behind_much(stage: Stage) -> object:
    here, there = await stage.pair()
    here.transport.write(bytes(LARGE))
    here.transport.write_eof()
    await there.diary.ends()
    await here.diary.ends()
    return here.diary.text, there.diary.text


@scenario
async def end_waits_for_a_reader(stage: Stage) -> object:
    here, there = await stage.pair()
    there.transport.pause_reading()
    here.transport.write(b"words")
    here.transport.close()
    await here.diary.ends()
    await asyncio.sleep(0.05)
    before = list(there.diary.entries)
    there.transport.resume_reading()
    there.transport.resume_reading()
    await there.diary.ends()
    return before, there.diary.text


# -- flow


@scenario
async def pause_and_resume_writing(stage: Stage) -> object:
    here, there = await stage.pair()
    there.transport.pause_reading()
    here.transport.set_write_buffer_limits(high=1000, low=10)
    limits = here.transport.get_write_buffer_limits()
    while "pause" not in here.diary.entries:
        here.transport.write(bytes(100_000))
    size = here.transport.get_write_buffer_size() > 1000
    there.transport.resume_reading()
    await here.diary.has(lambda: "resume" in here.diary.entries)
    return limits, size, here.diary.text


@scenario
async def limits(stage: Stage) -> object:
    here, _ = await stage.pair()
    found = [here.transport.get_write_buffer_limits()]
    for high, low in ((None, None), (100, None), (None, 100), (0, None), (8, 8)):
        here.transport.set_write_buffer_limits(high, low)
        found.append(here.transport.get_write_buffer_limits())
    for high, low in ((1, 2), (-1, None)):
        try:
            here.transport.set_write_buffer_limits(high, low)
        except ValueError as error:
            found.append(str(error))
    return found


@scenario
async def pause_inside_of_data_received(stage: Stage) -> object:
    class OneAtATime(Filler):
        def buffer_updated(self, nbytes: int) -> None:
            super().buffer_updated(nbytes)
            self.transport.pause_reading()

    here, there = await stage.pair(server=OneAtATime())
    here.transport.write(b"0123456789abcdefghij")
    pieces = []
    for _ in range(3):
        await there.diary.has(lambda: not there.transport.is_reading())
        await asyncio.sleep(0.01)
        pieces.append(there.diary.entries[-1])
        there.transport.resume_reading()
    return pieces, there.hints


@scenario
async def reading_states(stage: Stage) -> object:
    here, _ = await stage.pair()
    found = [here.transport.is_reading()]
    for step in ("pause_reading", "pause_reading", "resume_reading", "close", "pause_reading"):
        getattr(here.transport, step)()
        found.append(here.transport.is_reading())
    here.transport.resume_reading()
    return [*found, here.transport.is_reading()]


@scenario
async def a_small_buffer(stage: Stage) -> object:
    here, there = await stage.pair(server=Filler())
    here.transport.writelines([b"0123456789", bytearray(b"abc"), memoryview(b"defghij")])
    here.transport.close()
    await there.diary.ends()
    return there.diary.text, there.hints


@scenario
async def what_was_given_may_change_after_write(stage: Stage) -> object:
    here, there = await stage.pair()
    data = bytearray(b"before")
    here.transport.write(data)
    data[:] = b"after!"
    here.transport.close()
    await there.diary.ends()
    return there.diary.text


@scenario
async def wrong_arguments(stage: Stage) -> object:
    here, _ = await stage.pair()
    said = []
    for data in ("text", None, 5):
        try:
            here.transport.write(data)
        except TypeError as error:
            said.append(str(error))
    here.transport.write(b"")
    return said


# -- protocols that fail


def failing(name: str, error: type[BaseException]) -> Any:
    class Failing(Talker):
        pass

    def fail(self: Any, *args: Any) -> Any:
        if name == "connection_made":
            self.diary.transport = args[0]
            self.diary.changed.set()
        if name == "connection_lost":
            self.diary.note("lost")
        raise error("on purpose")

    setattr(Failing, name, fail)
    return Failing()


@scenario
async def protocols_that_raise(stage: Stage) -> object:
    found = []
    for name in ("connection_made", "data_received", "eof_received", "connection_lost"):
        for error in (ValueError, OSError):
            there = failing(name, error)
            here, _ = await stage.pair(server=there)
            here.transport.write(b"x")
            await asyncio.sleep(0.03)
            here.transport.write_eof()
            await here.diary.ends() if name != "connection_lost" else await there.diary.ends()
            found.append((name, here.diary.text, there.diary.text))
    # The names of asyncio's own callbacks are its own.
    return found, [line.partition(" callback ")[0] for line in stage.reported]


@scenario
async def buffers_that_are_empty(stage: Stage) -> object:
    here, there = await stage.pair(server=Filler(0))
    here.transport.write(b"x")
    await there.diary.ends()
    await here.diary.ends()
    return here.diary.text, there.diary.text, stage.reported


@scenario
async def flow_that_raises(stage: Stage) -> object:
    here, there = await stage.pair(client=failing("pause_writing", ValueError))
    here.transport.write(bytes(LARGE))
    here.transport.close()
    await there.diary.ends()
    return there.diary.text, stage.reported


# -- connecting


@scenario
async def refused(stage: Stage) -> object:
    server = await stage.loop.create_server(Talker, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    try:
        await stage.loop.create_connection(Talker, "127.0.0.1", port)
    except OSError as error:
        return type(error), error.errno, str(error).replace(str(port), "PORT")


@scenario
async def order_of_connecting(stage: Stage) -> object:
    seen = []

    class Client(Talker):
        def __init__(self) -> None:
            super().__init__()
            seen.append("factory")

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            seen.append("made")
            asyncio.get_running_loop().call_soon(seen.append, "soon after")

    port = await stage.server(Talker)
    seen.append("connect")
    transport, client = await stage.loop.create_connection(Client, "127.0.0.1", port)
    seen.append("connected")
    stage.transports.append(transport)
    return seen, client.transport is transport, transport.get_protocol() is client


@scenario
async def the_server_speaks_first(stage: Stage) -> object:
    class Greeter(Talker):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.write(b"hello")
            transport.close()

    port = await stage.server(Greeter)
    _, client = await stage.loop.create_connection(Talker, "127.0.0.1", port)
    await client.diary.ends()
    return client.diary.text


@scenario
async def cancelled_connect(stage: Stage) -> object:
    """Cancelled at once, the server may have seen nothing, or a connection that ended."""
    made = []

    class Counted(Talker):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)

    port = await stage.server(Counted)
    for turns in range(4):
        task = asyncio.ensure_future(stage.loop.create_connection(Talker, "127.0.0.1", port))
        for _ in range(turns):
            await asyncio.sleep(0)
        cancelled = task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.result()[0].close()
    await asyncio.sleep(0.05)
    return cancelled, [d.diary.entries for d in made if d.diary.entries[-1] != "lost: NoneType"]


@scenario
async def names_of_a_connection(stage: Stage) -> object:
    here, there = await stage.pair()
    ask = here.transport.get_extra_info
    return (
        ask("peername") == there.transport.get_extra_info("sockname"),
        ask("sockname") == there.transport.get_extra_info("peername"),
        ask("peername")[0],
        ask("sslcontext"),
        ask("ssl_object"),
        ask("no such thing", "default"),
        ask("socket").getpeername() == ask("peername"),
        ask("socket").family,
    )


@scenario
async def change_of_protocol(stage: Stage) -> object:
    here, there = await stage.pair()
    second = Filler()
    second.diary.transport = there.transport
    there.transport.set_protocol(second)
    here.transport.write(b"for the second")
    here.transport.close()
    await second.diary.ends()
    return there.diary.text, second.diary.text


# -- servers


@scenario
async def a_server_that_closes(stage: Stage) -> object:
    there = Talker()
    server = await stage.loop.create_server(lambda: there, "127.0.0.1", 0)
    states = [server.is_serving(), len(server.sockets)]
    port = server.sockets[0].getsockname()[1]
    transport, _ = await stage.loop.create_connection(Talker, "127.0.0.1", port)
    await there.diary.has(lambda: bool(there.diary.entries))
    server.close()
    server.close()
    states += [server.is_serving(), len(server.sockets)]
    waiting = asyncio.ensure_future(server.wait_closed())
    await asyncio.sleep(0.02)
    states.append(waiting.done())
    transport.write(b"still open")
    await there.diary.reads(10)
    transport.close()
    await there.diary.ends()
    await waiting
    await server.wait_closed()
    return states, there.diary.text


@scenario
async def a_server_that_ends_its_clients(stage: Stage) -> object:
    if not hasattr(asyncio.AbstractServer, "close_clients"):
        return None
    found = []
    for how in ("close_clients", "abort_clients"):
        there = Talker()
        server: Any = await stage.loop.create_server(lambda there=there: there, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        _, here = await stage.loop.create_connection(Talker, "127.0.0.1", port)
        await there.diary.has(lambda there=there: bool(there.diary.entries))
        server.close()
        getattr(server, how)()
        await server.wait_closed()
        await here.diary.ends()
        found.append((here.diary.text, there.diary.text))
    return found


@scenario
async def a_server_for_ever(stage: Stage) -> object:
    server = await stage.loop.create_server(Talker, "127.0.0.1", 0, start_serving=False)
    states = [server.is_serving()]
    task = asyncio.ensure_future(server.serve_forever())
    await asyncio.sleep(0.01)
    states.append(server.is_serving())
    task.cancel()
    await asyncio.wait([task])
    states += [server.is_serving(), task.cancelled()]
    try:
        await server.serve_forever()
    except RuntimeError as error:
        states.append("is closed" in str(error))
    return states


@scenario
async def an_address_in_use(stage: Stage) -> object:
    port = await stage.server(Talker)
    try:
        await stage.loop.create_server(Talker, "127.0.0.1", port)
    except OSError as error:
        return error.errno


@scenario
async def streams(stage: Stage) -> object:
    """What most programs use."""
    seen: list[Any] = []
    over = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readline())
        writer.write(bytes(LARGE))
        await writer.drain()
        writer.write_eof()
        seen.append(await reader.read())
        writer.close()
        await writer.wait_closed()
        over.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"give me much\n")
        await writer.drain()
        seen.append(len(await reader.read()))
        writer.write(b"thanks")
        writer.close()
        await writer.wait_closed()
        await over.wait()
    try:
        await reader.readexactly(1)
    except asyncio.IncompleteReadError as error:
        seen.append(type(error))
    return seen


@scenario
async def drain_after_a_reset(stage: Stage) -> object:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.02)
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=10)
    port = server.sockets[0].getsockname()[1]
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while True:
            writer.write(bytes(100_000))
            await writer.drain()
    except ConnectionError as error:
        found = isinstance(error, ConnectionResetError | BrokenPipeError)
    finally:
        writer.close()
        server.close()
    return found
