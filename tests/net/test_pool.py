"""ConnectionPool: what it has opened it closes, whatever happens in between."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import pytest

from aiokafka._compat import timeout
from aiokafka._tasks import TaskOwner
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import IllegalStateError, KafkaConnectionError
from aiokafka.helpers import create_ssl_context
from aiokafka.net.connection import BrokerConnection
from aiokafka.net.pool import ConnectionGroup, ConnectionPool, Endpoint
from aiokafka.protocol.messages import ApiVersionsRequest, MetadataRequest
from aiokafka.protocol.messages.metadata import MetadataRequestTopic
from aiokafka.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from aiokafka.testing import FakeCluster, Hold, Security, Silence
from tests.net.support import Certificates, config, now, pool_of, pooled, split

T = TypeVar("T")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def metadata_request() -> MetadataRequest:
    return MetadataRequest(topics=[])


def large_request() -> MetadataRequest:
    topics = [MetadataRequestTopic(name="x" * 200)] * 20_000
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def open_connections() -> int:
    gc.collect()
    return sum(
        isinstance(thing, BrokerConnection) and not thing.closed.done()
        for thing in gc.get_objects()
    )


@contextlib.asynccontextmanager
async def moving(*addresses: str) -> AsyncIterator[tuple[ConnectionPool, list[str]]]:
    """A pool in which node 0 is where the last element of the list says; it may be empty."""
    places = list(addresses)
    owner = TaskOwner("test")

    def endpoint_of(node_id: int) -> Endpoint | None:
        return Endpoint(*split(places[-1]), "node 0") if places else None

    pool = pool_of(config(), endpoint_of, owner)
    try:
        yield pool, places
    finally:
        await owner.stop(now() + 5)
        await pool.close(now() + 5)


# -- bootstrap


async def test_a_bootstrap_server_that_is_not_needed_is_left() -> None:
    """1. The first server is slow, the second is asked. 2. The first one's connect ends meanwhile.
    3. The second responds: the first connection is not wanted any more."""
    async with FakeCluster() as slow, FakeCluster() as fast:
        connect, answer = asyncio.Event(), asyncio.Event()
        slow.intercept(ApiVersionsRequest, Hold(connect), times=1)
        fast.intercept(MetadataRequest, Hold(answer), times=1)
        client = AIOKafkaClient(bootstrap_servers=[slow.bootstrap_servers, fast.bootstrap_servers])
        starting = asyncio.ensure_future(client.bootstrap())
        await fast.wait_for(lambda: fast.count(MetadataRequest) == 1)
        connect.set()
        await slow.wait_for(lambda: slow.count(ApiVersionsRequest) == 1)
        # Its task gets its turn, and its result is there, before the other's answer.
        for _ in range(20):
            await asyncio.sleep(0.001)
        assert not starting.done()
        answer.set()
        await starting
        await slow.wait_for(lambda: slow.connections == 0)
        await client.close()
        assert open_connections() == 0


async def test_an_open_connection_is_not_made_again() -> None:
    async with FakeCluster() as cluster, pooled(cluster.bootstrap_servers) as pool:
        first = await pool.connect(0)
        assert await pool.connect(0) is first
        assert first.is_open
        assert cluster.connections == 1


# -- pauses before the next attempt


LONG_PAUSE = {"reconnect_backoff_ms": 60_000, "reconnect_backoff_max_ms": 60_000}


async def test_a_broker_that_refuses_is_not_called_again_at_once() -> None:
    async with FakeCluster() as cluster, pooled(cluster.bootstrap_servers, **LONG_PAUSE) as pool:
        await cluster.stop_broker(0)
        with pytest.raises(KafkaConnectionError):
            await pool.get(0)
        assert pool.retry_delay(0) > 30
        await cluster.start_broker(0)
        again = pool.connect(0)
        done, _ = await asyncio.wait((again,), timeout=0.1)
        assert not done
        assert cluster.count(ApiVersionsRequest) == 0
        again.cancel()


async def test_a_broker_that_hangs_up_is_not_called_again_at_once() -> None:
    async with FakeCluster() as cluster, pooled(cluster.bootstrap_servers, **LONG_PAUSE) as pool:
        connection = await pool.get(0)
        assert pool.retry_delay(0) == 0
        cluster.drop_connections(0)
        await connection.closed
        again = pool.connect(0)
        assert pool.retry_delay(0) > 30
        done, _ = await asyncio.wait((again,), timeout=0.1)
        assert not done
        assert cluster.count(ApiVersionsRequest) == 1
        again.cancel()


# -- silent peers


@contextlib.asynccontextmanager
async def stalled(
    certificates: Certificates, *, uses_tls: bool, **options: Any
) -> AsyncIterator[tuple[ConnectionPool, BrokerConnection]]:
    """A pool with one connection, whose peer went silent while there was something to write."""
    server = certificates.server_context("127.0.0.1") if uses_tls else None
    if uses_tls:
        context = create_ssl_context(cafile=certificates.cafile)
        options |= {"security_protocol": "SSL", "ssl_context": context}
    async with FakeCluster(proxied=True, ssl_context=server) as cluster:
        async with pooled(cluster.bootstrap_servers, **options) as pool:
            connection = await pool.get(0)
            cluster.proxies[0].stall()
            for _ in range(8):
                connection.send_nowait(large_request()).cancel()
            yield pool, connection


@pytest.mark.parametrize("uses_tls", [False, True], ids=["tcp", "tls"])
async def test_nothing_outlives_the_pool(certificates: Certificates, uses_tls: bool) -> None:
    async with stalled(certificates, uses_tls=uses_tls) as (pool, connection):
        pool.drop(0, ConnectionGroup.DEFAULT, "for the test")
        await asyncio.sleep(0.01)
        assert not connection.closed.done()
        await pool.close(now() + 0.05)
        async with timeout(5):
            await connection.closed


@pytest.mark.parametrize("uses_tls", [False, True], ids=["tcp", "tls"])
async def test_nothing_outlives_an_aborted_pool(certificates: Certificates, uses_tls: bool) -> None:
    async with stalled(certificates, uses_tls=uses_tls) as (pool, connection):
        pool.drop(0, ConnectionGroup.DEFAULT, "for the test")
        pool.abort()
        async with timeout(5):
            await connection.closed


@pytest.mark.parametrize("uses_tls", [False, True], ids=["tcp", "tls"])
async def test_a_good_bye_has_an_end(certificates: Certificates, uses_tls: bool) -> None:
    options = {"request_timeout_ms": 300}
    async with stalled(certificates, uses_tls=uses_tls, **options) as (pool, connection):
        pool.drop(0, ConnectionGroup.DEFAULT, "for the test")
        assert not connection.closed.done()
        # TLS alone would wait for 30 s, TCP until the kernel gives up.
        async with timeout(10):
            await connection.closed


@pytest.mark.parametrize("uses_tls", [False, True], ids=["tcp", "tls"])
async def test_what_was_replaced_does_not_outlive_the_pool(
    certificates: Certificates, uses_tls: bool
) -> None:
    async with stalled(certificates, uses_tls=uses_tls) as (pool, connection):
        # Not by the pool: as a session that is not renewed.
        connection.close()
        waiting = asyncio.ensure_future(pool.get(0))
        await asyncio.sleep(0.01)
        assert not connection.closed.done()
        await pool.close(now() + 0.05)
        async with timeout(5):
            await connection.closed
        with pytest.raises((IllegalStateError, KafkaConnectionError)):
            await waiting


async def test_bytes_that_were_taken_are_written_after_a_close() -> None:
    async with FakeCluster(proxied=True) as cluster:
        async with pooled(cluster.bootstrap_servers) as pool:
            connection = await pool.get(0)
            cluster.proxies[0].stall()
            requests = [connection.send_nowait(large_request())]
            pool.drop(0, ConnectionGroup.DEFAULT, "for the test")
            for request in requests:
                with pytest.raises(KafkaConnectionError, match="for the test"):
                    await request
            cluster.proxies[0].restore()
            await connection.closed
            await cluster.wait_for(lambda: cluster.count(MetadataRequest) == 1)


# -- addresses that change


async def test_a_broker_that_moved_is_left_by_every_purpose() -> None:
    async with FakeCluster() as old, FakeCluster() as new:
        async with moving(old.bootstrap_servers) as (pool, places):
            for purpose in ConnectionGroup:
                await pool.get(0, purpose)
            places.append(new.bootstrap_servers)
            for purpose in ConnectionGroup:
                assert (await pool.get(0, purpose)).remote == split(new.bootstrap_servers)
            await old.wait_for(lambda: old.connections == 0)
            assert new.connections == len(ConnectionGroup)


async def test_a_busy_connection_to_where_a_broker_was_is_used_up() -> None:
    async with FakeCluster() as old, FakeCluster() as new:
        async with moving(old.bootstrap_servers) as (pool, places):
            first = await pool.get(0)
            release = asyncio.Event()
            old.intercept(MetadataRequest, Hold(release), times=1)
            answer = first.send_nowait(metadata_request())
            places.append(new.bootstrap_servers)
            assert await pool.get(0) is first
            release.set()
            await answer
            assert await pool.get(0) is not first
            assert not first.is_open


async def test_a_broker_that_has_left_is_still_reached_while_connected() -> None:
    async with FakeCluster() as cluster, moving(cluster.bootstrap_servers) as (pool, places):
        first = await pool.get(0)
        places.clear()
        assert await pool.get(0) is first
        first.close()
        with pytest.raises(KafkaConnectionError, match="node 0: its address is unknown"):
            await pool.get(0)


# -- races


async def test_a_task_that_cannot_start_leaves_nothing_behind() -> None:
    """A session that has to be kept needs a task; an owner that is stopped starts none."""
    security = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "secret",
    }

    class NoSessions(TaskOwner):
        def start(self, coro: Coroutine[Any, Any, T], *, name: str) -> asyncio.Task[T]:
            if name.startswith("session"):
                coro.close()
                raise IllegalStateError("stopped")
            return super().start(coro, name=name)

    owner = NoSessions("test")

    users = Security(users={"alice": "secret"}, mechanisms=["PLAIN"], session_lifetime_ms=60_000)
    async with FakeCluster(security=users) as cluster:
        endpoint = Endpoint(*split(cluster.bootstrap_servers), "node 0")
        pool = pool_of(config(**security), lambda node_id: endpoint, owner)
        with pytest.raises(IllegalStateError, match="stopped"):
            await pool.get(0)
        await cluster.wait_for(lambda: cluster.connections == 0)
        assert pool.connections() == []
        await owner.stop(now() + 5)
        await pool.close(now() + 5)


async def test_an_attempt_whose_task_cannot_start_is_no_attempt() -> None:
    owner = TaskOwner("test")
    await owner.stop()
    endpoint = Endpoint("127.0.0.1", 1, "node 0")
    pool = pool_of(config(), lambda node_id: endpoint, owner)
    for _ in range(2):
        with pytest.raises(IllegalStateError, match="is stopped"):
            await pool.get(0)
        assert not pool.is_connecting(0)
    await pool.close(now() + 1)


async def test_idle_close_spares_those_who_wait_out_a_throttle() -> None:
    async with FakeCluster() as cluster:
        async with pooled(cluster.bootstrap_servers, connections_max_idle_ms=50) as pool:
            connection = await pool.get(0)
            cluster.throttle(400)
            await connection.request(metadata_request())
            cluster.throttle(0)
            assert (await connection.request(metadata_request())).brokers
            await connection.closed


async def test_a_connect_that_ends_after_the_pool_is_closed_is_cut() -> None:
    async with FakeCluster() as cluster:
        async with pooled(cluster.bootstrap_servers) as pool:
            release = asyncio.Event()
            cluster.intercept(ApiVersionsRequest, Hold(release), times=1)
            waiting = asyncio.ensure_future(pool.get(0))
            await cluster.wait_for(lambda: cluster.count(ApiVersionsRequest) == 1)
            await pool.close(now() + 1)
            with pytest.raises(IllegalStateError, match="closed"):
                await waiting
            release.set()
            await cluster.wait_for(lambda: cluster.connections == 0)
            assert pool.connections() == []


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
async def test_cancelling_a_connect_at_any_moment_leaves_nothing_open(
    certificates: Certificates, protocol: str
) -> None:
    """Within TCP, TLS, ApiVersions, SASL, the proof of the password in its thread, Metadata."""
    options: dict[str, Any] = {"security_protocol": protocol}
    server = users = None
    if protocol.endswith("SSL"):
        server = certificates.server_context("127.0.0.1")
        options["ssl_context"] = create_ssl_context(cafile=certificates.cafile)
    if protocol.startswith("SASL"):
        users = Security(users={"alice": "secret"})
        options |= {
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": "alice",
            "sasl_plain_password": "secret",
        }
    async with FakeCluster(ssl_context=server, security=users) as cluster:
        cluster.intercept(MetadataRequest, Silence())
        for turns in [*range(30), *range(30, 120, 6)]:
            client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers, **options)
            starting = asyncio.ensure_future(client.bootstrap())
            for _ in range(turns):
                await asyncio.sleep(0)
            starting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await starting
            await client.close()
            await cluster.wait_for(lambda: cluster.connections == 0)
        assert open_connections() == 0


@pytest.mark.parametrize("api", [SaslHandshakeRequest, SaslAuthenticateRequest])
async def test_closing_while_a_session_is_renewed_leaves_nothing(api: Any) -> None:
    users = Security(users={"alice": "secret"}, session_lifetime_ms=500)
    options = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "secret",
    }
    async with FakeCluster(security=users) as cluster:
        async with pooled(cluster.bootstrap_servers, **options) as pool:
            connection = await pool.get(0)
            release = asyncio.Event()
            with cluster.intercept(api, Hold(release), times=1) as renewal:
                await renewal.wait()
                waits = [
                    asyncio.ensure_future(connection.request(metadata_request())) for _ in range(3)
                ]
                await asyncio.sleep(0)
                await pool.close(now() + 5)
                for wait in waits:
                    with pytest.raises(KafkaConnectionError):
                        await wait
            assert connection.closed.done()
            release.set()
        await cluster.wait_for(lambda: cluster.connections == 0)
    assert open_connections() == 0
