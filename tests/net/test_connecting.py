"""Connecting: handshake with brokers of every age, likely causes in messages, the pool's rules."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from aiokafka.errors import KafkaConnectionError
from aiokafka.net.connector import Connector
from aiokafka.net.dialing import resolve
from aiokafka.net.pool import ConnectionGroup
from aiokafka.protocol.messages import ApiVersionsRequest, ListOffsetsRequest, MetadataRequest
from aiokafka.protocol.messages.metadata import ApiVersionsResponse
from aiokafka.testing import Cut, Delay, FakeCluster, FaultProxy, Hold, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.net.support import (
    config,
    connected,
    free_port,
    now,
    pooled,
    read_frame,
    scripted_broker,
    serve,
    split,
)


def metadata_request() -> MetadataRequest:
    return MetadataRequest(topics=[])


# -- handshake


@pytest.mark.parametrize(
    "version", ["0.10.2", "0.11", "1.1", "2.1", "2.8", "3.9", "4.0", "4.3", "4.4"]
)
async def test_brokers_of_every_age_are_greeted(version: str) -> None:
    async with FakeCluster(as_version=version) as cluster:
        async with connected(cluster.bootstrap_servers) as connection:
            assert connection.versions is not None
            assert connection.versions.has(MetadataRequest)
            assert (await connection.request(metadata_request())).brokers
        assert cluster.failures == []


async def test_kafka_0_9_is_known_by_its_silence() -> None:
    async with FakeCluster(as_version="0.9") as cluster, pooled(cluster.bootstrap_servers) as pool:
        connection = await pool.get(0)
        assert connection.pick(MetadataRequest) == 0
        assert (await connection.request(metadata_request())).brokers
        asked = cluster.count(ApiVersionsRequest)
        assert (await pool.get(0, ConnectionGroup.FETCH)).is_ready
        assert cluster.count(ApiVersionsRequest) == asked


async def test_an_upgraded_broker_is_greeted_in_its_new_form() -> None:
    async with FakeCluster(as_version="2.1") as old, FaultProxy(old.address(0)) as proxy:
        connector = Connector(config(), *split(proxy.address), "")
        connection = await connector.open(now() + 5)
        connection.close()
        async with FakeCluster(as_version="4.3") as new:
            proxy.target = new.address(0)
            connection = await connector.open(now() + 5)
            assert connection.versions is not None
            assert connection.versions.finalized_features
            connection.close()
            await connection.closed


def test_a_slow_broker_beside_a_new_one_is_not_taken_for_kafka_0_9() -> None:
    async def main(simulation: Simulation) -> int:
        async with FakeCluster(brokers=2) as cluster:
            async with pooled(cluster.address(0), cluster.address(1)) as pool:
                await pool.get(0)
                # On both connections that a broker is asked by, behind a prompt response.
                cluster.intercept(ApiVersionsRequest, Delay(4.0), broker=1)
                connection = await pool.get(1)
                return connection.pick(MetadataRequest)

    assert simulate(main) == MetadataRequest.VERSIONS[1]


@pytest.mark.parametrize("release", ["3.9", "4.3"])
def test_a_slow_broker_is_not_taken_for_kafka_0_9(release: str) -> None:
    """It was after two seconds, and then could not do what newer brokers can."""

    async def main(simulation: Simulation) -> int:
        async with FakeCluster(as_version=release) as cluster:
            cluster.intercept(ApiVersionsRequest, Delay(5.0))
            if release == "3.9":  # Kafka 4 is known at once
                cluster.intercept(ListOffsetsRequest, Delay(0.5))
            async with pooled(cluster.bootstrap_servers) as pool:
                connection = await pool.get(0)
                return connection.pick(MetadataRequest)

    assert simulate(main) > 10


def test_a_slow_broker_that_accepts_no_second_connection_is_waited_for() -> None:
    """Its response was not looked at while the second connect went on, which then failed both."""

    async def main(simulation: Simulation) -> int:
        async with FakeCluster() as cluster, pooled(cluster.bootstrap_servers) as pool:
            asked = cluster.intercept(ApiVersionsRequest, Delay(2.0))
            connecting = asyncio.ensure_future(pool.get(0))
            await asked.wait()
            # Packets of another connection get lost now, the response does not.
            simulation.network.line(*split(cluster.address(0))).lose(to_client=False)
            return (await connecting).pick(MetadataRequest)

    assert simulate(main) == MetadataRequest.VERSIONS[1]


async def test_a_broker_upgraded_from_0_9_is_noticed() -> None:
    async with FakeCluster(as_version="0.9") as old, FaultProxy(old.address(0)) as proxy:
        async with pooled(proxy.address, reconnect_backoff_ms=10) as pool:
            connection = await pool.get(0)
            assert (await connection.request(metadata_request())).brokers
            async with FakeCluster(as_version="4.3") as new:
                proxy.target = new.address(0)
                proxy.cut()
                await connection.closed
                with pytest.raises(KafkaConnectionError):
                    connection = await pool.get(0)
                    # 4.x closes the connection on versions that it has dropped.
                    old_request = ListOffsetsRequest(replica_id=-1, topics=[])
                    await connection.request(old_request, version=0)
                connection = await pool.get(0)
                assert connection.pick(MetadataRequest) == 13


async def test_the_client_names_itself() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers):
        (seen,) = cluster.requests(ApiVersionsRequest)
        assert seen.version == ApiVersionsRequest.VERSIONS[1]
        assert seen.request.client_software_name == "aiokafka"
        assert seen.request.client_software_version


async def test_the_form_that_worked_is_used_at_once_next_time() -> None:
    async with FakeCluster(as_version="2.1") as cluster, pooled(cluster.bootstrap_servers) as pool:
        await pool.get(0)
        await pool.get(0, ConnectionGroup.FETCH)
        assert len(cluster.requests(ApiVersionsRequest)) == 2
        # The fallback is version 0; its response tells that the broker knows version 2.
        assert [seen.version for seen in cluster.requests(ApiVersionsRequest)] == [0, 2]


async def test_finalized_features_are_kept() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        assert connection.versions is not None
        assert connection.versions.finalized_features["transaction.version"] == 2


async def test_a_broker_that_never_answers_is_given_up_in_time() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serve(silent) as address:
        connector = Connector(config(), *split(address), "")
        with pytest.raises(KafkaConnectionError, match="did not finish the handshake in time"):
            await connector.open(now() + 0.3)


async def test_a_slow_broker_is_not_taken_for_an_old_one() -> None:
    async with FakeCluster() as cluster:
        cluster.intercept(ApiVersionsRequest, Delay(1.3), times=1)
        async with connected(cluster.bootstrap_servers) as connection:
            assert connection.versions is not None
            assert connection.versions.api_versions[3] == (0, 13)


async def test_a_broker_that_refuses_to_tell_its_versions() -> None:
    def refuse(request: Any) -> ApiVersionsResponse:
        return ApiVersionsResponse(error_code=31, api_keys=[])

    async with scripted_broker({ApiVersionsRequest: refuse}) as address:
        with pytest.raises(KafkaConnectionError, match="refused ApiVersions: "):
            await Connector(config(), *split(address), "").open(now() + 5)


async def test_a_broker_that_contradicts_itself_about_versions() -> None:
    asked = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while True:
            frame = await read_frame(reader)
            asked += 1
            # In version 0: UNSUPPORTED_VERSION, and the newest that it knows is 4 after all.
            body = frame[4:8] + b"\x00\x23" + b"\x00\x00\x00\x01" + b"\x00\x12\x00\x00\x00\x04"
            writer.write(len(body).to_bytes(4, "big") + body)

    async with serve(refuse) as address:
        with pytest.raises(KafkaConnectionError, match="rejects each version of ApiVersions"):
            await Connector(config(), *split(address), "").open(now() + 5)
    assert 2 <= asked <= 5


# -- likely causes


async def test_nobody_listens() -> None:
    connector = Connector(config(), "127.0.0.1", port := free_port(), "node 3")
    with pytest.raises(
        KafkaConnectionError, match=f"127.0.0.1:{port} .node 3.: connection refused"
    ):
        await connector.open(now() + 5)


async def test_the_name_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(*args: Any, **kwargs: Any) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    connector = Connector(config(), "kafka.invalid", 9092, "")
    with pytest.raises(KafkaConnectionError, match=r"kafka.invalid:9092: cannot resolve the host"):
        await connector.open(now() + 5)


async def test_the_resolver_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def getaddrinfo(*args: Any, **kwargs: Any) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    connector = Connector(config(), "kafka.invalid", 9092, "")
    with pytest.raises(KafkaConnectionError, match="could not be resolved in time"):
        await connector.open(now() + 0.05)


async def test_a_close_before_the_first_answer_names_possible_causes() -> None:
    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_frame(reader)

    async with serve(close) as address:
        connector = Connector(config(), *split(address), "")
        with pytest.raises(KafkaConnectionError, match=r"expects TLS.*expects SASL"):
            await connector.open(now() + 5)


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        (b"\xff\xff\xff\xff", "negative length"),
        (b"\x7f\xff\xff\xff", "exceeds the limit"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x63", "expected the response to request 1"),
        (b"\x00\x00\x00\x02\x00\x00", "no header"),
    ],
)
async def test_what_is_no_kafka_is_named(answer: bytes, cause: str) -> None:
    async def foreign(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_frame(reader)
        writer.write(answer)
        await reader.read()

    async with serve(foreign) as address:
        connector = Connector(config(), *split(address), "")
        with pytest.raises(KafkaConnectionError, match=cause):
            await connector.open(now() + 5)


# -- addresses (KIP-302)


async def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved: list[str] = []

    async def getaddrinfo(host: str, port: int, **kwargs: Any) -> Any:
        resolved.append(host)
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in ("127.0.0.2", "127.0.0.3", "127.0.0.1")
        ]

    async with FakeCluster() as cluster:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        _, port = split(cluster.bootstrap_servers)
        connector = Connector(config(), "kafka.example", port, "")
        for _ in range(2):
            connection = await connector.open(now() + 5)
            assert connection.remote == ("127.0.0.1", port)
            connection.close()
            await connection.closed
        assert resolved == ["kafka.example"] * 2

        with pytest.raises(KafkaConnectionError) as error:
            await Connector(config(), "kafka.example", free_port(), "").open(now() + 5)
        for address in ("127.0.0.2", "127.0.0.3", "127.0.0.1"):
            assert address in str(error.value)


@pytest.mark.parametrize(
    ("place", "address"),
    [
        (("fe80::1", 9092, 0, 7), "fe80::1%7"),
        (("fe80::1%eth0", 9092, 0, 7), "fe80::1%eth0"),
        (("2001:db8::1", 9092, 0, 0), "2001:db8::1"),
        (("192.0.2.1", 9092), "192.0.2.1"),
    ],
)
async def test_a_link_local_address_keeps_its_zone(
    place: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def getaddrinfo(host: str, port: int, **kwargs: Any) -> Any:
        return [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", place)]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    assert await resolve("kafka.example", 9092) == [address]


async def test_an_address_that_answers_nothing_leaves_time_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def getaddrinfo(host: str, port: int, **kwargs: Any) -> Any:
        return [
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))
            for address in ("127.0.0.2", "127.0.0.1")
        ]

    async with FakeCluster() as cluster:
        _, port = split(cluster.bootstrap_servers)
        async with serve(silent, host="127.0.0.2", port=port):
            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
            connection = await Connector(config(), "kafka.example", port, "").open(now() + 0.6)
            assert connection.remote == ("127.0.0.1", port)
            connection.close()
            await connection.closed


# -- the pool


async def test_callers_share_one_attempt() -> None:
    async with FakeCluster() as cluster, pooled(cluster.bootstrap_servers) as pool:
        connections = await asyncio.gather(*(pool.get(0) for _ in range(10)))
        assert len({id(connection) for connection in connections}) == 1
        assert cluster.connections == 1
        assert pool.find(0) is connections[0]


async def test_each_purpose_has_a_connection_of_its_own() -> None:
    async with FakeCluster() as cluster, pooled(cluster.bootstrap_servers) as pool:
        connections = [await pool.get(0, purpose) for purpose in ConnectionGroup]
        assert len({id(connection) for connection in connections}) == len(ConnectionGroup)
        assert cluster.connections == len(ConnectionGroup)


async def test_a_caller_that_gives_up_leaves_the_attempt_to_the_others() -> None:
    async with FakeCluster() as cluster, pooled(cluster.bootstrap_servers) as pool:
        release = asyncio.Event()
        cluster.intercept(ApiVersionsRequest, Hold(release), times=1)
        first = asyncio.ensure_future(pool.get(0))
        second = asyncio.ensure_future(pool.get(0))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        release.set()
        assert (await second).is_open


async def test_an_attempt_outlives_all_its_callers() -> None:
    async with FakeCluster() as cluster, pooled(cluster.bootstrap_servers) as pool:
        release = asyncio.Event()
        cluster.intercept(ApiVersionsRequest, Hold(release), times=1)
        only = asyncio.ensure_future(pool.get(0))
        await asyncio.sleep(0)
        only.cancel()
        release.set()
        assert (await pool.get(0)).is_open
        assert len(cluster.requests(ApiVersionsRequest)) == 1


async def test_each_waiter_gets_an_error_of_its_own() -> None:
    async with pooled(f"127.0.0.1:{free_port()}") as pool:
        errors = await asyncio.gather(*(pool.get(0) for _ in range(3)), return_exceptions=True)
        assert all(isinstance(error, KafkaConnectionError) for error in errors)
        assert len({id(error) for error in errors}) == 3


async def test_a_dead_broker_does_not_hold_up_the_others() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serve(silent) as dead, FakeCluster() as cluster:
        async with pooled(dead, cluster.bootstrap_servers) as pool:
            stuck = asyncio.ensure_future(pool.get(0))
            assert (await pool.get(1)).is_open
            assert not stuck.done()
            stuck.cancel()


async def test_failures_are_followed_by_growing_pauses() -> None:
    address = f"127.0.0.1:{free_port()}"
    async with pooled(address, reconnect_backoff_ms=20, reconnect_backoff_max_ms=10_000) as pool:
        delays = []
        for _ in range(4):
            with pytest.raises(KafkaConnectionError):
                await pool.get(0)
            delays.append(pool.retry_delay(0))
        assert delays == sorted(delays)
        assert delays[-1] > 3 * delays[0]


async def test_a_pause_ends_with_the_next_success() -> None:
    async with FakeCluster() as cluster:
        proxy = FaultProxy(cluster.bootstrap_servers)
        async with proxy, pooled(proxy.address, reconnect_backoff_ms=20) as pool:
            proxy.refuse()
            with pytest.raises(KafkaConnectionError):
                await pool.get(0)
            proxy.restore()
            assert (await pool.get(0)).is_open
            assert pool.retry_delay(0) == 0


async def test_a_broken_connection_is_made_anew() -> None:
    async with FakeCluster() as cluster, pooled(cluster.bootstrap_servers) as pool:
        first = await pool.get(0)
        cluster.intercept(MetadataRequest, Cut(), times=1)
        with pytest.raises(KafkaConnectionError):
            await first.request(metadata_request())
        assert pool.find(0) is None
        second = await pool.get(0)
        assert second is not first
        assert (await second.request(metadata_request())).brokers


async def test_idle_connections_are_closed_and_busy_ones_are_not() -> None:
    async with FakeCluster() as cluster:
        async with pooled(cluster.bootstrap_servers, connections_max_idle_ms=100) as pool:
            idle = await pool.get(0)
            busy = await pool.get(0, ConnectionGroup.FETCH)
            release = asyncio.Event()
            cluster.intercept(MetadataRequest, Hold(release), times=1)
            waiting = busy.send_nowait(metadata_request())
            await idle.closed
            assert busy.is_open
            release.set()
            await waiting
            await busy.closed
            assert pool.connections() == []
            assert (await pool.get(0)).is_open


async def test_close_ends_attempts_and_connections() -> None:
    async with FakeCluster() as cluster:
        async with pooled(cluster.bootstrap_servers) as pool:
            connection = await pool.get(0)
            cluster.intercept(ApiVersionsRequest, Silence())
            waiting = asyncio.ensure_future(pool.get(0, ConnectionGroup.FETCH))
            await asyncio.sleep(0)
            await pool.close(now() + 5)
            with pytest.raises(Exception, match="client is closed"):
                await waiting
            with pytest.raises(Exception, match="client is closed"):
                await pool.get(0)
            assert not connection.is_open


async def test_an_unknown_node_has_no_address() -> None:
    async with pooled() as pool:
        with pytest.raises(KafkaConnectionError, match="node 5: its address is unknown"):
            await pool.get(5)
