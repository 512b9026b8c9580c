"""The network of a simulated loop: its names, its lines, and their faults."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka.testing.simulation import Line, Simulation, simulate
from tests.testing.transport_scenarios import LARGE, Talker

HOST, PORT = "127.0.0.1", 9092


class Meeting:
    """A server at HOST:PORT, and clients of it."""

    def __init__(self, simulation: Simulation) -> None:
        self.loop = simulation.loop
        self.network = simulation.network
        self.accepted: list[Talker] = []

    async def open(self, **options: Any) -> None:
        self.server = await self.loop.create_server(self._accept, HOST, PORT, **options)

    def _accept(self) -> Talker:
        self.accepted.append(Talker())
        return self.accepted[-1]

    @property
    def line(self) -> Line:
        return self.network.line(HOST, PORT)

    async def client(self, **options: Any) -> Talker:
        _, client = await self.loop.create_connection(Talker, HOST, PORT, **options)
        return client

    async def pair(self) -> tuple[Talker, Talker]:
        count = len(self.accepted)
        client = await self.client()
        while len(self.accepted) == count or not self.accepted[-1].diary.entries:
            await asyncio.sleep(0.001)
        return client, self.accepted[-1]


def meet(
    main: Callable[[Meeting], Awaitable[Any]],
    *,
    seed: int = 0,
    limit_s: float = 3600,
    **options: Any,
) -> Any:
    async def run(simulation: Simulation) -> Any:
        meeting = Meeting(simulation)
        await meeting.open(**options)
        return await main(meeting)

    return simulate(run, seed=seed)


# -- silence


def test_a_silent_line_lets_nothing_through_and_loses_nothing() -> None:
    async def main(meeting: Meeting) -> None:
        here, there = await meeting.pair()
        meeting.line.lose()
        assert meeting.line.is_silent
        here.transport.write(b"question")
        there.transport.write(b"greeting")
        await asyncio.sleep(100)
        assert here.diary.entries == there.diary.entries == ["made"]
        meeting.line.restore()
        await here.diary.reads(8)
        await there.diary.reads(8)
        here.transport.write(b", again")
        await there.diary.reads(15)
        assert there.diary.text == ["made", b"question, again"]

    meet(main)


@pytest.mark.parametrize("direction", ["to_server", "to_client"])
def test_a_line_that_is_silent_one_way(direction: str) -> None:
    async def main(meeting: Meeting) -> None:
        here, there = await meeting.pair()
        lost = {"to_server": False, "to_client": False, direction: True}
        meeting.line.lose(**lost)
        deaf, hearing = (there, here) if direction == "to_server" else (here, there)
        here.transport.write(b"hello")
        there.transport.write(b"hello")
        await hearing.diary.reads(5)
        await asyncio.sleep(10)
        assert deaf.diary.entries == ["made"]
        # The other way round: what waited comes through, and the rest does not.
        meeting.line.lose(**{key: not value for key, value in lost.items()})
        await deaf.diary.reads(5)
        meeting.line.restore()

    meet(main)


def test_a_goodbye_waits_for_a_line_and_so_does_the_end_of_what_was_written() -> None:
    async def main(meeting: Meeting) -> None:
        here, there = await meeting.pair()
        meeting.line.lose()
        here.transport.write(b"last words")
        here.transport.close()
        await here.diary.ends()
        await asyncio.sleep(50)
        assert there.diary.entries == ["made"]
        meeting.line.restore()
        await there.diary.ends()
        assert there.diary.text == ["made", b"last words", "eof", "lost: NoneType"]
        assert meeting.network.open_transports() == []

    meet(main)


def test_much_under_way_through_a_line_that_comes_and_goes() -> None:
    async def main(meeting: Meeting) -> None:
        here, there = await meeting.pair()
        here.transport.write(bytes(LARGE))
        here.transport.close()
        for turn in range(30):
            await asyncio.sleep(0.003)
            meeting.line.lose(to_server=turn % 2 == 0, to_client=turn % 3 == 0)
        meeting.line.restore()
        await there.diary.ends()
        assert there.diary.size == LARGE

    for seed in range(5):
        meet(main, seed=seed)


def test_connecting_over_a_silent_line_is_tried_again_and_ends_in_the_end() -> None:
    async def main(meeting: Meeting) -> None:
        loop = meeting.loop
        meeting.line.lose(to_client=False)
        loop.call_later(5, meeting.line.restore)
        await meeting.client()
        # The system tries after 1, 3 and 7 seconds.
        assert loop.time() == pytest.approx(7, abs=0.1)
        meeting.line.lose()
        with pytest.raises(TimeoutError) as failure:
            await meeting.client()
        assert failure.value.errno == errno.ETIMEDOUT
        assert loop.time() == pytest.approx(7 + 127, abs=0.1)

    meet(main)


# -- resets


def test_a_reset_loses_what_is_under_way_and_both_ends_see_it() -> None:
    async def main(meeting: Meeting) -> None:
        here, there = await meeting.pair()
        here.transport.write(b"lost")
        assert meeting.network.reset() == 2
        assert here.diary.entries == ["made"]  # nothing happens inside of the call
        await here.diary.ends()
        await there.diary.ends()
        assert here.diary.text == there.diary.text == ["made", "lost: ConnectionResetError"]
        assert meeting.network.reset() == 0

    meet(main)


def test_a_reset_of_one_connection_or_one_line() -> None:
    async def main(meeting: Meeting) -> None:
        first, _ = await meeting.pair()
        second, _ = await meeting.pair()
        (number, line), (other, _) = meeting.network.connections()
        assert line is meeting.line
        assert number != other
        assert meeting.network.reset(number=number) == 2
        await first.diary.ends()
        assert second.diary.entries == ["made"]
        assert meeting.network.reset(line=meeting.network.line(HOST, 1)) == 0
        assert meeting.network.reset(line=line) == 2
        await second.diary.ends()

    meet(main)


def test_a_line_has_a_bandwidth() -> None:
    async def main(meeting: Meeting) -> None:
        here, there = await meeting.pair()
        meeting.line.bandwidth = 100
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        here.transport.write(bytes(50))
        here.transport.write(bytes(150))
        await there.diary.reads(50)
        assert loop.time() - began_at == pytest.approx(0.5, abs=0.1)
        await there.diary.reads(200)
        assert loop.time() - began_at == pytest.approx(2.0, abs=0.1)

    meet(main)


def test_a_connection_is_cut_at_a_byte() -> None:
    async def main(meeting: Meeting) -> None:
        here, there = await meeting.pair()
        meeting.line.cut_at = 13
        here.transport.write(b"0123456789")
        await there.diary.reads(10)
        here.transport.write(b"0123456789")
        here.transport.write(b"0123456789")
        await here.diary.ends()
        await there.diary.ends()
        assert there.diary.text == ["made", b"0123456789012", "lost: ConnectionResetError"]
        assert here.diary.text == ["made", "lost: ConnectionResetError"]
        assert meeting.line.cut_at is None
        third, _ = await meeting.pair()
        third.transport.write(bytes(100))
        await meeting.accepted[-1].diary.reads(100)

    for seed in range(10):
        meet(main, seed=seed)


def test_a_cut_does_not_concern_what_was_written_before() -> None:
    async def main(meeting: Meeting) -> None:
        here, there = await meeting.pair()
        here.transport.write(b"0123456789")
        meeting.line.cut_at = 5
        here.transport.write(b"0123456789")
        await there.diary.reads(20)
        there.transport.write(b"012345")
        await here.diary.ends()
        assert here.diary.text == ["made", b"01234", "lost: ConnectionResetError"]

    meet(main)


@pytest.mark.parametrize("size", [1, 2, LARGE])
def test_a_cut_at_every_place_of_a_write(size: int) -> None:
    async def main(meeting: Meeting) -> None:
        here, there = await meeting.pair()
        meeting.line.cut_at = size
        here.transport.write(bytes(LARGE))
        here.transport.close()
        await there.diary.ends()
        assert there.diary.size == size
        await here.diary.ends()

    meet(main)


# -- servers that are not there


def test_a_server_that_refuses() -> None:
    async def main(meeting: Meeting) -> None:
        meeting.line.refuses = True
        with pytest.raises(ConnectionRefusedError):
            await meeting.client()
        meeting.line.restore()
        await meeting.client()
        meeting.server.close()
        with pytest.raises(ConnectionRefusedError, match=r"Connect call failed \('127.0.0.1', 909"):
            await meeting.client()

    meet(main)


def test_a_server_that_closes_while_a_client_connects() -> None:
    """For the client the connection is there before the server has seen it."""

    async def main(meeting: Meeting) -> Any:
        await asyncio.sleep(0)
        meeting.loop.call_later(0.0015, meeting.server.close)
        try:
            client = await meeting.client()
        except ConnectionRefusedError:
            return "refused"
        client.transport.write(b"anyone?")
        await asyncio.sleep(1)
        return client.diary.told[-1]

    assert {meet(main, seed=seed) for seed in range(40)} == {
        "refused",
        "made",
        "lost: ConnectionResetError",
    }


def test_ports_are_free_again_and_no_two_servers_share_one() -> None:
    async def main(meeting: Meeting) -> None:
        loop: Any = meeting.loop
        with pytest.raises(OSError) as failure:
            await loop.create_server(Talker, HOST, PORT)
        assert failure.value.errno == errno.EADDRINUSE
        ports = set()
        for _ in range(3):
            server = await loop.create_server(Talker, HOST, 0)
            ports.add(server.sockets[0].getsockname()[1])
        assert len(ports) == 3
        assert PORT not in ports
        meeting.server.close()
        await meeting.open()
        await meeting.client()

    meet(main)


@pytest.mark.parametrize("host", [None, "", "0.0.0.0", "localhost", ["127.0.0.1"]])
def test_a_server_on_all_interfaces(host: Any) -> None:
    async def main(simulation: Simulation) -> None:
        server: Any = await asyncio.start_server(lambda r, w: w.close(), host, 0)
        port = server.sockets[0].getsockname()[1]
        for name in ("localhost", HOST):
            reader, writer = await asyncio.open_connection(name, port)
            assert await reader.read() == b""
            writer.close()

    simulate(main)


# -- TLS


def test_a_tls_handshake_that_fails() -> None:
    context = ssl.create_default_context()

    async def main(meeting: Meeting) -> None:
        meeting.line.tls_error = ssl.SSLCertVerificationError(1, "certificate has expired")
        for _ in range(2):
            with pytest.raises(ssl.SSLCertVerificationError, match="has expired") as failure:
                await meeting.client(ssl=context)
            assert failure.value is not meeting.line.tls_error
        meeting.line.restore()
        client = await meeting.client(ssl=context)
        assert client.transport.get_extra_info("sslcontext") is context
        assert not client.transport.can_write_eof()
        with pytest.raises(NotImplementedError):
            client.transport.write_eof()

    meet(main, ssl=context)


def test_tls_at_one_end_only() -> None:
    context = ssl.create_default_context()

    async def secure(meeting: Meeting) -> None:
        with pytest.raises(ssl.SSLError):
            await meeting.client(ssl=context)

    async def plain(meeting: Meeting) -> None:
        client = await meeting.client()
        await client.diary.ends()
        assert not meeting.accepted

    meet(secure)
    meet(plain, ssl=context)


# -- names


def test_names_are_looked_up() -> None:
    async def main(meeting: Meeting) -> None:
        network, loop = meeting.network, meeting.loop
        network.names["kafka.example"] = ["10.0.0.1", HOST]
        found = await loop.getaddrinfo("kafka.example", 9092, type=socket.SOCK_STREAM)
        assert [address for *_, address in found] == [("10.0.0.1", 9092), (HOST, 9092)]
        # The first address refuses, so the second one is taken.
        transport, _ = await loop.create_connection(Talker, "kafka.example", PORT)
        assert transport.get_extra_info("peername") == (HOST, PORT)
        assert await loop.getnameinfo((HOST, PORT)) == (HOST, str(PORT))
        network.broken_names.add("kafka.example")
        for name in ("kafka.example", "unknown.example"):
            with pytest.raises(socket.gaierror, match=name):
                await loop.getaddrinfo(name, 9092)
            with pytest.raises(socket.gaierror, match=name):
                await asyncio.open_connection(name, PORT)
        network.broken_names.clear()
        network.names["kafka.example"] = ["10.0.0.1", "10.0.0.2"]
        with pytest.raises(OSError, match=r"Multiple exceptions: .*10.0.0.1.*10.0.0.2"):
            await asyncio.open_connection("kafka.example", PORT)
        assert (await loop.getaddrinfo("::1", 1))[0][0] == socket.AF_INET6

    meet(main)


def test_a_look_up_takes_as_long_as_it_is_told() -> None:
    async def main(meeting: Meeting) -> None:
        meeting.network.name_delay = 30.0
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(meeting.loop.getaddrinfo("localhost", 1), 10)
        before = meeting.loop.time()
        await meeting.loop.getaddrinfo("localhost", 1)
        assert meeting.loop.time() - before == pytest.approx(30, abs=0.001)
        await meeting.loop.getaddrinfo(HOST, 1)
        assert meeting.loop.time() - before == pytest.approx(30, abs=0.001)

    meet(main)


# -- bytes on their way


def test_bytes_take_the_time_of_the_line_and_stay_in_order() -> None:
    async def main(meeting: Meeting) -> None:
        here, there = await meeting.pair()
        meeting.line.latency = (1.0, 2.0)
        start = meeting.loop.time()
        for number in range(10):
            here.transport.write(b"%d" % number)
            await asyncio.sleep(0.01)
        await there.diary.reads(1)
        assert 1 <= meeting.loop.time() - start <= 2.2
        await there.diary.reads(10)
        assert meeting.loop.time() - start <= 2.2
        assert there.diary.text == ["made", b"0123456789"]

    for seed in range(10):
        meet(main, seed=seed)


def test_pieces_are_split_and_put_together() -> None:
    class Pieces(Talker):
        def __init__(self) -> None:
            super().__init__()
            self.sizes: list[int] = []

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self.sizes.append(len(data))

    async def main(simulation: Simulation) -> tuple[int, ...]:
        there = Pieces()
        await simulation.loop.create_server(lambda: there, HOST, PORT)
        line = simulation.network.line(HOST, PORT)
        line.splits = 0.5
        transport, _ = await simulation.loop.create_connection(Talker, HOST, PORT)
        for _ in range(3):
            transport.write(b"01234")
            transport.write(b"56789")
            await asyncio.sleep(simulation.random.random() * 0.002)
        transport.close()
        await there.diary.ends()
        assert there.diary.text[1] == b"0123456789" * 3
        return tuple(there.sizes)

    found = [simulate(main, seed=seed) for seed in range(60)]
    assert (10, 10, 10) in found
    assert any(len(sizes) > 4 for sizes in found)
    assert any(size > 10 for sizes in found for size in sizes)


def test_the_observer_sees_every_write_and_the_checksum_tells_them_apart() -> None:
    async def main(meeting: Meeting, text: bytes) -> int:
        seen: list[tuple[int, bool, bytes]] = []
        meeting.network.observer = lambda end, data: seen.append(
            (end.number, end.is_client, bytes(data))
        )
        here, there = await meeting.pair()
        here.transport.write(text)
        await there.diary.reads(len(text))
        there.transport.write(b"yes")
        await here.diary.reads(3)
        assert seen == [(1, True, text), (1, False, b"yes")]
        assert meeting.network.bytes_written == len(text) + 3
        return meeting.network.checksum

    def checksum(text: bytes, seed: int = 0) -> int:
        return int(meet(lambda meeting: main(meeting, text), seed=seed))

    assert checksum(b"one") == checksum(b"one")
    assert len({checksum(b"one"), checksum(b"two"), checksum(b"one", 1)}) == 3


def test_hosts_are_apart() -> None:
    async def main(simulation: Simulation) -> None:
        loop: Any = simulation.loop
        for host in ("10.0.0.1", "10.0.0.2"):
            await loop.create_server(Talker, host, 9092)
        simulation.network.line("10.0.0.1", 9092).refuses = True
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("10.0.0.1", 9092)
        _, writer = await asyncio.open_connection("10.0.0.2", 9092)
        writer.close()

    simulate(main)
