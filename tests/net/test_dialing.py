"""Dialers, proxies and socket options: brokers at addresses that they do not advertise."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaConnectionError
from aiokafka.helpers import create_ssl_context
from aiokafka.net.connector import Connector
from aiokafka.net.dialing import resolve
from aiokafka.structs import BrokerAddress, Dialed
from aiokafka.testing import FakeCluster, FaultProxy
from tests.net.support import (
    Certificates,
    Handler,
    config,
    free_port,
    now,
    serve,
    split,
)
from tests.support.proxies import proxy

# No resolver knows these names.
HIDDEN = "kafka-{}.cluster.invalid"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def hidden() -> AsyncIterator[FakeCluster]:
    """Three brokers that advertise names which cannot be resolved here."""
    async with FakeCluster(brokers=3) as cluster:
        await cluster.create_topic("t", partitions=3)
        yield cluster


def hide(cluster: FakeCluster) -> dict[tuple[str, int], str]:
    """Let the brokers advertise hidden names; return the real addresses by the advertised ones."""
    found = {}
    for node in cluster.state.nodes:
        real = cluster.address(node)
        cluster.advertise(node, HIDDEN.format(node), 9092)
        found[HIDDEN.format(node), 9092] = real
    return found


async def use(**options: Any) -> None:
    """Produce to and read from every partition, in a group, and ask as an admin client."""
    async with AIOKafkaProducer(**options) as producer:
        for partition in range(3):
            await producer.send_and_wait("t", b"%d" % partition, partition=partition)
    async with AIOKafkaConsumer(
        "t", group_id="g", auto_offset_reset="earliest", **options
    ) as consumer:
        values = {(await consumer.getone()).value for _ in range(3)}
    assert values == {b"0", b"1", b"2"}
    async with AIOKafkaAdminClient(**options) as admin:
        assert "t" in await admin.list_topics()


# -- the dialer

FIRST = HIDDEN.format(0)


@pytest.mark.parametrize("form", ["text", "pair", "dialed", "async", "socket"])
async def test_a_dialer_maps_advertised_addresses(hidden: FakeCluster, form: str) -> None:
    real = hide(hidden)
    asked: set[BrokerAddress] = set()

    def target(broker: BrokerAddress) -> str:
        asked.add(broker)
        return real[broker.host, broker.port]

    async def later(broker: BrokerAddress) -> tuple[str, int]:
        await asyncio.sleep(0)
        return split(target(broker))

    async def connected(broker: BrokerAddress) -> socket.socket:
        sock = socket.socket()
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, split(target(broker)))
        return sock

    dialer: Any = {
        "text": target,
        "pair": lambda broker: split(target(broker)),
        "dialed": lambda broker: Dialed(target(broker)),
        "async": later,
        "socket": connected,
    }[form]
    await use(bootstrap_servers=f"{FIRST}:9092", dialer=dialer)
    assert {BrokerAddress(HIDDEN.format(node), 9092, node) for node in range(3)} <= asked
    assert BrokerAddress(FIRST, 9092, None) in asked


async def test_a_dialer_may_leave_an_address_as_it_is(hidden: FakeCluster) -> None:
    await use(bootstrap_servers=hidden.bootstrap_servers, dialer=lambda broker: None)


async def test_each_connection_asks_the_dialer(hidden: FakeCluster) -> None:
    """A tunnel may have another port after it was opened again."""
    real = hide(hidden)
    async with FaultProxy(real[FIRST, 9092]) as first, FaultProxy(real[FIRST, 9092]) as second:
        tunnels = [first, second]
        options = {
            "bootstrap_servers": f"{FIRST}:9092",
            "dialer": lambda broker: (
                tunnels[0].address if broker.host == FIRST else real[broker.host, 9092]
            ),
        }
        async with AIOKafkaProducer(**options) as producer:
            on_first = [p for p in range(3) if hidden.partition("t", p).leader == 0]
            await producer.send_and_wait("t", b"1", partition=on_first[0])
            assert first.accepted and not second.accepted
            del tunnels[0]
            await first.stop()
            await producer.send_and_wait("t", b"2", partition=on_first[0])
            assert second.accepted


@pytest.mark.parametrize("form", ["address", "socket"])
async def test_tls_checks_the_advertised_name(certificates: Certificates, form: str) -> None:
    context = create_ssl_context(cafile=certificates.cafile)
    async with FakeCluster(ssl_context=certificates.server_context(FIRST)) as cluster:
        real = hide(cluster)[FIRST, 9092]

        async def dialer(broker: BrokerAddress) -> Any:
            if form == "address":
                return real
            return await asyncio.to_thread(socket.create_connection, split(real))

        options: Any = {"security_protocol": "SSL", "ssl_context": context}
        async with AIOKafkaClient(
            bootstrap_servers=f"{FIRST}:9092", dialer=dialer, **options
        ) as client:
            assert client.cluster.brokers()
        # The certificate is not for the tunnel's name, and not for another broker's.
        connector = Connector(config(dialer=dialer, **options), "other.invalid", 9092, "")
        with pytest.raises(KafkaConnectionError, match=r"other\.invalid:9092 .*mismatch"):
            await connector.open(now() + 5)


async def test_a_dialer_may_name_the_host_of_the_certificate(certificates: Certificates) -> None:
    context = create_ssl_context(cafile=certificates.cafile)
    async with FakeCluster(ssl_context=certificates.server_context("gateway.example")) as cluster:
        real = hide(cluster)[FIRST, 9092]
        async with AIOKafkaClient(
            bootstrap_servers=f"{FIRST}:9092",
            dialer=lambda broker: Dialed(real, server_hostname="gateway.example"),
            security_protocol="SSL",
            ssl_context=context,
        ) as client:
            assert client.cluster.brokers()


def fails(error: Exception) -> Callable[[Any], Any]:
    def dialer(broker: BrokerAddress) -> Any:
        raise error

    return dialer


async def never(broker: BrokerAddress) -> Any:
    await asyncio.get_running_loop().create_future()


async def cancelled(broker: BrokerAddress) -> Any:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


@pytest.mark.parametrize(
    ("dialer", "reason"),
    [
        (fails(OSError("the tunnel is down")), "the dialer failed: the tunnel is down"),
        (fails(KeyError("secret")), "the dialer failed: KeyError$"),
        (never, "the dialer did not return in time"),
        (cancelled, "the dialer awaited a cancelled task or future"),
        (lambda _: 9092, r"the dialer returned 9092; it must return an address as \(host, port\)"),
        (lambda _: ("a", "9092"), r"the dialer returned \('a', '9092'\); it must return"),
        (lambda _: ("a", 0), r"the dialer returned \('a', 0\); it must return"),
        (lambda _: "a:b:c", "the dialer returned no address: 'a:b:c' is neither"),
        (lambda _: socket.socket(), "the dialer returned a socket that is not connected"),
        (
            lambda _: socket.socket(type=socket.SOCK_DGRAM),
            "the dialer returned a socket of another type",
        ),
        (lambda _: ("127.0.0.1", free_port()), r"dialed at 127\.0\.0\.1:\d+: connection refused"),
        (
            lambda _: ("tunnel.invalid", 1),
            r"dialed at tunnel\.invalid:1: cannot resolve the host name",
        ),
    ],
)
async def test_errors_name_the_advertised_and_the_mapped_address(
    dialer: Callable[[Any], Any], reason: str
) -> None:
    connector = Connector(config(dialer=dialer), FIRST, 9092, "node 0", 0)
    with pytest.raises(
        KafkaConnectionError, match=rf"kafka-0\.cluster\.invalid:9092 \(node 0\).*{reason}"
    ):
        await connector.open(now() + 0.2)
    gc.collect()  # an open socket would be a ResourceWarning


@pytest.mark.parametrize("form", ["address", "socket", "proxy"])
@pytest.mark.parametrize("name", ["a..b", ".", "x" * 64, "\udcff", "ä" * 63, "a\0b", ".a"])
async def test_a_name_that_no_certificate_has(
    certificates: Certificates, name: str, form: str
) -> None:
    """As the advertised host, which nothing resolves here, or as the dialer's `server_hostname`."""
    context = create_ssl_context(cafile=certificates.cafile)
    async with FakeCluster() as fake:
        host, port = fake.bootstrap_servers.split(":")

        def dialer(broker: BrokerAddress) -> Any:
            if form == "address":
                return Dialed((host, int(port)), server_hostname=name)
            return Dialed(socket.create_connection((host, int(port))))

        async with proxy("socks5", {(name, 9092): fake.bootstrap_servers}) as server:
            how = {"proxy_url": server.url} if form == "proxy" else {"dialer": dialer}
            tls = {"security_protocol": "SSL", "ssl_context": context}
            advertised = FIRST if form == "address" else name
            connector = Connector(config(**how, **tls), advertised, 9092, "node 0", 0)
            with pytest.raises(KafkaConnectionError, match="no certificate can have the host name"):
                await connector.open(now() + 5)
            gc.collect()  # an open socket would be a ResourceWarning


async def test_a_client_says_why_its_dialer_fails() -> None:
    client = AIOKafkaClient(
        bootstrap_servers=f"{FIRST}:9092",
        dialer=fails(OSError("the tunnel is down")),
        request_timeout_ms=200,
    )
    with pytest.raises(KafkaConnectionError, match="the dialer failed: the tunnel is down"):
        await client.bootstrap()


async def test_a_socket_that_no_connection_needs_is_closed() -> None:
    """The connect is cancelled while the TLS context is awaited."""
    ours, theirs = socket.socketpair()
    waits = asyncio.Event()

    async def context() -> ssl.SSLContext:
        waits.set()
        return await asyncio.get_running_loop().create_future()

    options = config(dialer=lambda broker: ours, security_protocol="SSL", ssl_context=context)
    opening = asyncio.ensure_future(Connector(options, FIRST, 9092, "").open(now() + 5))
    await waits.wait()
    opening.cancel()
    await asyncio.wait([opening])
    assert opening.cancelled() and ours.fileno() == -1
    theirs.close()


@pytest.mark.parametrize("release", ["0.9", "2.1"])
async def test_a_second_connection_gets_another_socket(release: str) -> None:
    """Kafka 0.9 is known by a test on a second connection."""
    async with FakeCluster(as_version=release) as cluster:
        sockets = []

        async def dialer(broker: BrokerAddress) -> socket.socket:
            address = split(cluster.bootstrap_servers)
            sockets.append(await asyncio.to_thread(socket.create_connection, address))
            return sockets[-1]

        connector = Connector(config(dialer=dialer), FIRST, 9092, "")
        connection = await connector.open(now() + 5)
        assert connection.versions is not None
        assert len(sockets) == (3 if release == "0.9" else 1)
        connection.close()
        await connection.closed


async def test_a_second_socket_may_be_refused() -> None:
    async with FakeCluster(as_version="0.9") as cluster:
        targets: list[Any] = [socket.create_connection(split(cluster.bootstrap_servers)), None]
        connector = Connector(config(dialer=lambda broker: targets.pop(0)), FIRST, 9092, "")
        with pytest.raises(KafkaConnectionError, match="did not finish the handshake in time"):
            await connector.open(now() + 2)


async def test_a_socket_of_another_family(hidden: FakeCluster) -> None:
    """A tunnel in the process itself: one end of a socket pair."""
    tasks = []

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def dialer(broker: BrokerAddress) -> socket.socket:
        ours, theirs = socket.socketpair()
        near = await asyncio.open_connection(sock=theirs)
        far = await asyncio.open_connection(broker.host, broker.port)
        tasks.append(asyncio.gather(pump(near[0], far[1]), pump(far[0], near[1])))
        return ours

    await use(bootstrap_servers=hidden.bootstrap_servers, dialer=dialer)
    await asyncio.gather(*tasks)


# -- proxies


@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "http"])
@pytest.mark.parametrize("user", ["", "alice:it's s/cret"])
async def test_all_connections_go_through_a_proxy(
    hidden: FakeCluster, scheme: str, user: str
) -> None:
    real = hide(hidden)
    async with proxy(scheme, real, user) as server:
        await use(bootstrap_servers=f"{FIRST}:9092", proxy_url=server.url)
        assert set(server.asked) == real.keys()


@pytest.mark.parametrize("scheme", ["socks5", "http"])
async def test_tls_through_a_proxy_checks_the_name(certificates: Certificates, scheme: str) -> None:
    options: Any = {
        "security_protocol": "SSL",
        "ssl_context": create_ssl_context(cafile=certificates.cafile),
    }
    async with FakeCluster(ssl_context=certificates.server_context(FIRST)) as cluster:
        real = hide(cluster)
        real["other.invalid", 9092] = real[FIRST, 9092]
        async with proxy(scheme, real) as server:
            options["proxy_url"] = server.url
            async with AIOKafkaClient(bootstrap_servers=f"{FIRST}:9092", **options) as client:
                assert client.cluster.brokers()
            connector = Connector(config(**options), "other.invalid", 9092, "")
            with pytest.raises(KafkaConnectionError, match=r"by the proxy .*mismatch"):
                await connector.open(now() + 5)


async def test_a_dialer_chooses_what_the_proxy_connects_to(hidden: FakeCluster) -> None:
    real = hide(hidden)
    inside = {(f"inside-{host}", port): target for (host, port), target in real.items()}
    async with proxy("socks5", inside) as server:
        await use(
            bootstrap_servers=f"{FIRST}:9092",
            proxy_url=server.url,
            dialer=lambda broker: (f"inside-{broker.host}", broker.port),
        )


def says(*parts: bytes, then: str = "closes") -> Handler:
    """A proxy that sends `parts`, each after a read, and then closes or waits."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            await reader.read(1000)
            writer.write(part)
        if then == "waits":
            while await reader.read(1000):
                pass

    return handle


SOCKS_OK = b"\5\0"


@pytest.mark.parametrize(
    ("scheme", "handler", "reason"),
    [
        ("socks5", says(then="waits"), "no connection in time"),
        ("http", says(then="waits"), "no connection in time"),
        ("socks5", says(), "the proxy did not connect: "),
        ("http", says(), "the proxy did not connect: "),
        ("socks5", says(b"\5"), "the proxy did not connect: Connection closed"),
        ("socks5", says(b"\5", then="waits"), "no connection in time"),
        ("socks5", says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "the proxy did not connect: "),
        ("socks5", says(b"\5\xff"), "the proxy did not connect: No acceptable"),
        ("socks5", says(b"\5\2"), "the proxy did not connect: "),
        ("socks5", says(SOCKS_OK, b"\5\0\0"), "the proxy did not connect: Connection closed"),
        ("socks5", says(SOCKS_OK, b"\5\0\0\1\0", then="waits"), "no connection in time"),
        ("socks5", says(SOCKS_OK, b"\5\5\0\1" + bytes(6)), "Connection refused by destination"),
        ("socks5", says(SOCKS_OK, b"\5\0\0\x09" + bytes(6)), "the proxy did not connect: "),
        ("socks5", says(SOCKS_OK, b"\5\0\0\3\1\xff\0\0"), "the proxy did not connect: "),
        ("http", says(b"\5\0\r\n\r\n"), "the proxy did not connect: its response is not HTTP"),
        ("http", says(b"HTTP/1.1 200 OK\r\n"), "the proxy did not connect: it closed the connec"),
        ("http", says(b"HTTP/1.1 200 OK\r\n\r\n<html>"), "it sent bytes after its response"),
        ("http", says(b"a" * 70_000), "its response has more than 65536 bytes"),
        ("http", says(b"HTTP/1.1 200", then="waits"), "no connection in time"),
        (
            "http",
            says(b"HTTP/1.1 403 \x1b[2Jno\r\n\r\n"),
            r"the proxy did not connect: 403  \[2Jno",
        ),
        ("http", says(b"HTTP/1.1 407 Log in\r\n\r\n"), "the proxy did not connect: 407 Log in"),
    ],
)
async def test_hostile_proxies(scheme: str, handler: Handler, reason: str) -> None:
    async with serve(handler) as address:
        options = config(proxy_url=f"{scheme}://{address}")
        connector = Connector(options, FIRST, 9092, "node 0", 0)
        match = rf"kafka-0\.cluster\.invalid:9092 \(node 0\) by the proxy {address}: .*{reason}"
        with pytest.raises(KafkaConnectionError, match=match):
            await connector.open(now() + 0.2)
    gc.collect()


async def test_a_response_in_parts_is_read_to_its_end(hidden: FakeCluster) -> None:
    real = hide(hidden)
    async with proxy("http", real) as server, FaultProxy(f"127.0.0.1:{server.port}") as slow:
        slow.fragment(1, "responses")
        async with AIOKafkaClient(
            bootstrap_servers=f"{FIRST}:9092", proxy_url=f"http://{slow.address}"
        ) as client:
            assert len(client.cluster.brokers()) == 3


@pytest.mark.parametrize("scheme", ["socks5", "http"])
async def test_a_proxy_that_is_not_there(scheme: str) -> None:
    options = config(proxy_url=f"{scheme}://bob:pa55word@127.0.0.1:{free_port()}")
    assert "pa55word" not in repr(options)
    with pytest.raises(KafkaConnectionError, match="no connection to the proxy: ") as caught:
        await Connector(options, FIRST, 9092, "").open(now() + 2)
    assert "pa55word" not in str(caught.value)


@pytest.mark.parametrize("first", ["refuses", "is silent"])
@pytest.mark.parametrize("scheme", ["socks5", "http"])
async def test_every_address_of_a_proxy_is_tried(
    hidden: FakeCluster, scheme: str, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    families = set()

    async def getaddrinfo(host: str, port: int, family: int = 0, **_: Any) -> Any:
        assert host == "proxy.example"
        families.add(family)
        ips = ("127.0.0.2", "127.0.0.1")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ips]

    real = hide(hidden)
    async with proxy(scheme, real) as server, contextlib.AsyncExitStack() as stack:
        if first == "is silent":
            silent = serve(says(then="waits"), host="127.0.0.2", port=server.port)
            await stack.enter_async_context(silent)
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        url = f"{scheme}://proxy.example:{server.port}"
        options = config(proxy_url=url, broker_address_family="v4")
        connector = Connector(options, FIRST, 9092, "")
        for limit in (1.0, 5.0):  # the second connect begins with the address that has worked
            connection = await connector.open(now() + limit)
            assert connection.remote == ("127.0.0.1", server.port)
            connection.abort()
            await connection.closed
    assert families == {socket.AF_INET}


async def test_a_proxy_whose_name_is_unknown() -> None:
    options = config(proxy_url="http://proxy..invalid:80")
    reason = r"by the proxy proxy\.\.invalid:80: no connection to the proxy: .*label"
    with pytest.raises(KafkaConnectionError, match=reason):
        await Connector(options, FIRST, 9092, "").open(now() + 2)


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://host:1", "host:1080", "socks5://host", "http://:80", "http://h:1/path"),
        *("http://h:99999", "http://[::1:80", "socks5://bob@h:1", 1080, ""),
    ],
)
def test_wrong_proxy_urls_are_refused(url: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"^proxy_url: must be socks5://host:port"):
        config(proxy_url=url)


def test_a_refused_url_is_not_shown() -> None:
    with pytest.raises(ValueError) as caught:
        config(proxy_url="http://bob:pa55word@h")
    assert "pa55word" not in str(caught.value)


# -- sockets


async def test_sockets_have_the_configured_options(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[socket.socket] = []

    class Socket(socket.socket):
        def __init__(self, *args: Any, **names: Any) -> None:
            super().__init__(*args, **names)
            made.append(self)

    async with FakeCluster() as cluster:
        host, port = split(cluster.bootstrap_servers)
        options = config(
            send_buffer_bytes=40_000,
            receive_buffer_bytes=50_000,
            socket_options=[
                (socket.IPPROTO_TCP, socket.TCP_NODELAY, 0),
                [socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0],
            ],
        )
        monkeypatch.setattr(socket, "socket", Socket)
        connection = await Connector(options, host, port, "").open(now() + 5)
        monkeypatch.undo()
        sock = next(each for each in made if each.getpeername() == (host, port))
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
        # Linux doubles the size, for its own structures.
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (40_000, 80_000)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (50_000, 100_000)
        connection.close()
        await connection.closed


async def test_options_that_the_system_refuses() -> None:
    async with FakeCluster() as cluster:
        options = config(socket_options=[(socket.SOL_SOCKET, 9999, 1)])
        connector = Connector(options, *split(cluster.bootstrap_servers), "")
        with pytest.raises(KafkaConnectionError, match=r"refuses the socket option \(1, 9999, 1\)"):
            await connector.open(now() + 5)


@pytest.mark.parametrize("wrong", [(1, 2, 3), [(1, 2)], [("a", 2, 3)], "abc", [(1, 2, "x")], None])
def test_wrong_socket_options_are_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"^socket_options=.*: must be a list of"):
        config(socket_options=wrong)


async def test_addresses_of_one_family() -> None:
    assert await resolve("localhost", 9092, "v4") == ["127.0.0.1"]
    assert all("." not in address for address in await _of("localhost", "v6"))
    connector = Connector(config(broker_address_family="v6"), "localhost", free_port(), "")
    with pytest.raises(KafkaConnectionError) as caught:
        await connector.open(now() + 5)
    assert "127.0.0.1" not in str(caught.value)


async def _of(host: str, family: str) -> list[str]:
    try:
        return await resolve(host, 9092, family)
    except socket.gaierror:
        return []  # a machine without IPv6


# -- bootstrap servers from a function


async def test_a_function_gives_the_bootstrap_servers(hidden: FakeCluster) -> None:
    async def servers() -> list[str]:
        return hidden.bootstrap_servers.split(",")

    await use(bootstrap_servers=servers)


async def test_a_client_moves_to_other_bootstrap_servers() -> None:
    """All brokers are gone; the function then gives another cluster."""
    async with FakeCluster() as old, FakeCluster() as new:
        await new.create_topic("t")
        current = [old.bootstrap_servers]
        async with AIOKafkaProducer(
            bootstrap_servers=lambda: current[0], retry_backoff_ms=10, reconnect_backoff_ms=10
        ) as producer:
            await old.create_topic("t")
            await producer.send_and_wait("t", b"1", partition=0)
            current[0] = new.bootstrap_servers
            await old.stop()
            await producer.send_and_wait("t", b"2", partition=0)
        assert [record.value for record in new.log("t", 0).records()] == [b"2"]


@pytest.mark.parametrize(
    ("servers", "reason"),
    [
        (lambda: 9092, "returned 9092: must be"),
        (list, r"returned \[\]: must be"),
        (lambda: "a:b:c", r"returned 'a:b:c': must be .* is neither"),
        (lambda: 1 / 0, "failed: ZeroDivisionError"),
        (lambda: asyncio.sleep(3600), "did not return in time"),
    ],
)
async def test_a_function_that_gives_no_servers(servers: Any, reason: str) -> None:
    client = AIOKafkaClient(bootstrap_servers=servers, request_timeout_ms=300)
    with pytest.raises(KafkaConnectionError, match=f"given as bootstrap_servers {reason}"):
        await client.bootstrap()
    await client.close()


async def test_the_last_servers_stay_while_the_function_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeCluster() as cluster:
        answers = [cluster.bootstrap_servers]
        async with AIOKafkaClient(
            bootstrap_servers=lambda: answers.pop(), retry_backoff_ms=10, reconnect_backoff_ms=10
        ) as client:
            await cluster.stop()
            while not any(
                "using the servers that it returned last" in line for line in caplog.messages
            ):
                await client.force_metadata_update()
            await cluster.start()
            while not await client.force_metadata_update():
                pass
