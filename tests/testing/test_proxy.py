"""FaultProxy: what it does to bytes, with an echo server behind it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from aiokafka.testing import FaultProxy


@pytest.fixture
async def echo() -> AsyncIterator[str]:
    """The address of a server that sends back what it gets."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    yield f"{host}:{port}"
    server.close()
    await server.wait_closed()


@pytest.fixture
async def proxy(echo: str) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(echo) as started:
        yield started


class Talk:
    """A connection through the proxy."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy

    async def __aenter__(self) -> Talk:
        self.reader, self.writer = await asyncio.open_connection(self._proxy.host, self._proxy.port)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            pass

    async def say(self, data: bytes) -> bytes:
        """Send, and give what comes back: as much, or less if the connection breaks."""
        self.writer.write(data)
        try:
            return await self.reader.readexactly(len(data))
        except asyncio.IncompleteReadError as exc:
            return exc.partial
        except ConnectionError:
            return b""


async def test_forwards_both_ways_for_several_connections(proxy: FaultProxy) -> None:
    big = bytes(range(256)) * 4096
    async with Talk(proxy) as one, Talk(proxy) as two:
        assert await asyncio.gather(one.say(big), two.say(b"small")) == [big, b"small"]
        assert proxy.connections == proxy.accepted == 2
        assert proxy.forwarded == {"requests": len(big) + 5, "responses": len(big) + 5}


async def test_the_end_of_one_side_reaches_the_other(proxy: FaultProxy) -> None:
    async with Talk(proxy) as talk:
        talk.writer.write(b"last words")
        talk.writer.write_eof()
        assert await talk.reader.read() == b"last words"


async def test_cut_breaks_open_connections_and_takes_new_ones(proxy: FaultProxy) -> None:
    async with Talk(proxy) as talk:
        assert await talk.say(b"one") == b"one"
        assert proxy.cut() == 1
        assert await talk.say(b"two") == b""
    async with Talk(proxy) as talk:
        assert await talk.say(b"three") == b"three"


async def test_refuse_breaks_new_connections_until_restored(proxy: FaultProxy) -> None:
    proxy.refuse()
    async with Talk(proxy) as talk:
        assert await talk.say(b"hello") == b""
    proxy.restore()
    async with Talk(proxy) as talk:
        assert await talk.say(b"hello") == b"hello"


async def test_fragments_arrive_whole_and_in_order(proxy: FaultProxy) -> None:
    proxy.fragment(1)
    data = bytes(range(256))
    async with Talk(proxy) as talk:
        assert await talk.say(data) == data


async def test_delay_keeps_order_and_does_not_limit_throughput(proxy: FaultProxy) -> None:
    loop = asyncio.get_running_loop()
    proxy.delay(0.05, "responses")
    async with Talk(proxy) as talk:
        began = loop.time()
        big = bytes(range(256)) * 1024
        assert await talk.say(big) == big
        assert loop.time() - began >= 0.05
        proxy.delay(0.0)
        assert await talk.say(b"quick") == b"quick"


@pytest.mark.parametrize("end", [FaultProxy.restore, lambda proxy: proxy.delay(0)])
async def test_what_was_delayed_comes_when_the_delay_ends(
    proxy: FaultProxy, end: Callable[[FaultProxy], None]
) -> None:
    async with Talk(proxy) as talk:
        assert await talk.say(b"x") == b"x"
        proxy.delay(3600)
        answer = asyncio.create_task(talk.say(b"patience"))
        done, _ = await asyncio.wait([answer], timeout=0.05)
        assert not done
        end(proxy)
        assert await answer == b"patience"


async def test_stall_delivers_nothing_until_restored(proxy: FaultProxy) -> None:
    async with Talk(proxy) as talk:
        assert await talk.say(b"x") == b"x"
        proxy.stall("responses")
        answer = asyncio.create_task(talk.say(b"patience"))
        done, _ = await asyncio.wait([answer], timeout=0.05)
        assert not done
        assert proxy.forwarded == {"requests": 9, "responses": 1}
        proxy.restore()
        assert await answer == b"patience"


@pytest.mark.parametrize("direction", ["requests", "responses"])
@pytest.mark.parametrize("count", [0, 1, 4, 5])
async def test_cut_after_delivers_exactly_that_many_bytes(
    proxy: FaultProxy, direction: str, count: int
) -> None:
    async with Talk(proxy) as talk:
        assert await talk.say(b"ready") == b"ready"
        proxy.cut_after(count, direction)  # type: ignore[arg-type]
        got = await talk.say(b"0123456789")
        assert proxy.forwarded[direction] == 5 + count  # type: ignore[index]
        if direction == "responses":
            assert got == b"0123456789"[:count]
    async with Talk(proxy) as talk:
        assert await talk.say(b"again") == b"again"


async def test_cut_after_can_repeat(proxy: FaultProxy) -> None:
    proxy.cut_after(3, "responses", repeat=True)
    for _ in range(3):
        async with Talk(proxy) as talk:
            assert await talk.say(b"12345") == b"123"
    proxy.restore()
    async with Talk(proxy) as talk:
        assert await talk.say(b"12345") == b"12345"


async def test_a_stopped_proxy_keeps_its_port(proxy: FaultProxy) -> None:
    address = proxy.address
    async with Talk(proxy) as talk:
        await proxy.stop()
        assert await talk.reader.read() == b""
    await proxy.start()
    assert proxy.address == address
    async with Talk(proxy) as talk:
        assert await talk.say(b"back") == b"back"


async def test_without_a_server_the_client_is_cut_off() -> None:
    async with FaultProxy() as proxy:
        async with Talk(proxy) as talk:
            assert await talk.say(b"anyone?") == b""
        proxy.target = "127.0.0.1:1"  # nothing listens there
        async with Talk(proxy) as talk:
            assert await talk.say(b"anyone?") == b""


async def test_nothing_is_left_after_stop(echo: str) -> None:
    before = asyncio.all_tasks()
    async with FaultProxy(echo) as proxy:
        async with Talk(proxy) as talk:
            proxy.stall()
            talk.writer.write(b"never answered")
            await proxy.stop()
    assert {t for t in asyncio.all_tasks() if "proxy" in t.get_name()} <= before


def test_wrong_arguments_are_refused() -> None:
    proxy = FaultProxy()
    with pytest.raises(ValueError, match="size"):
        proxy.fragment(0)
    with pytest.raises(ValueError, match="n_bytes"):
        proxy.cut_after(-1)
