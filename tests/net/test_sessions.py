"""Authentication that is repeated on open connections (KIP-368), and credentials that change."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import (
    AuthenticationFailedError,
    KafkaConnectionError,
    KafkaError,
    NodeNotReadyError,
)
from aiokafka.net.connection import BrokerConnection
from aiokafka.net.pool import ConnectionGroup, ConnectionPool
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from aiokafka.testing import Cut, Edit, Fail, FakeCluster, Hold, Security
from tests.net.sessions import LENIENCE, Secrets, options, shorten
from tests.net.support import pooled
from tests.support.tokens import Token

# Enough for the first renewal. Brokers refuse to be asked more often than once a second, so where
# there are more of them sessions are longer.
LIFETIME_MS = 500
LONGER_MS = 1400
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


@contextlib.asynccontextmanager
async def cluster_and_pool(
    security: Security, shortened: int | None = None, **client: Any
) -> AsyncIterator[tuple[FakeCluster, ConnectionPool]]:
    """`shortened`: how many logins are told a session that is shorter than it is (None: all)."""
    async with FakeCluster(security=security) as cluster:
        cluster.intercept(SaslAuthenticateRequest, Edit(shorten), times=shortened)
        async with pooled(cluster.bootstrap_servers, **client) as pool:
            yield cluster, pool
        assert cluster.failures == []


def security(lifetime_ms: int = LIFETIME_MS) -> Security:
    users = {"alice": "first", "bob": "second"}
    return Security(users, session_lifetime_ms=LENIENCE * lifetime_ms)


async def ask(connection: BrokerConnection) -> None:
    assert (await connection.request(MetadataRequest(topics=[]))).brokers


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_sessions_are_renewed_on_the_open_connection(mechanism: str) -> None:
    is_first = mechanism == MECHANISMS[0]
    rules = security(LONGER_MS if is_first else LIFETIME_MS)
    async with cluster_and_pool(rules, **options(mechanism)) as (_, pool):
        connections = [await pool.get(0, purpose) for purpose in ConnectionGroup]
        while rules.renewals < (6 if is_first else 3):
            for connection in connections:
                await ask(connection)
            await asyncio.sleep(0.01)
        assert [await pool.get(0, purpose) for purpose in ConnectionGroup] == connections
        assert (rules.logins, rules.refusals) == (len(ConnectionGroup), 0)


async def test_a_session_without_end_is_left_alone() -> None:
    rules = security(0)
    async with cluster_and_pool(rules, **options()) as (_, pool):
        connection = await pool.get(0)
        await ask(connection)
        assert connection.session_lifetime == 0


async def test_requests_in_flight_are_answered_first_and_later_ones_wait() -> None:
    rules = security()
    async with cluster_and_pool(rules, **options()) as (cluster, pool):
        connection = await pool.get(0)
        answer = asyncio.Event()
        with cluster.intercept(MetadataRequest, Hold(answer), times=1):
            early = connection.send_nowait(MetadataRequest(topics=[]))
            # Nothing but the time of the session closes it.
            while connection.gate.is_open:
                await asyncio.sleep(0.01)
            assert not connection.is_ready
            with pytest.raises(NodeNotReadyError):
                connection.send_nowait(MetadataRequest(topics=[]))
            late = [asyncio.ensure_future(ask(connection)) for _ in range(3)]
            given_up = asyncio.ensure_future(ask(connection))
            await asyncio.sleep(0)
            given_up.cancel()
            answer.set()
            assert (await early).brokers
            await asyncio.gather(*late)
        assert (rules.renewals, rules.refusals) == (1, 0)
        assert connection.is_ready


async def test_an_answer_that_comes_after_the_end_of_the_session_does_no_harm() -> None:
    rules = Security({"alice": "first"}, session_lifetime_ms=1100)
    async with (
        FakeCluster(security=rules) as cluster,
        pooled(cluster.bootstrap_servers, **options()) as pool,
    ):
        connection = await pool.get(0)
        answer = asyncio.Event()
        with cluster.intercept(MetadataRequest, Hold(answer), times=1):
            early = connection.send_nowait(MetadataRequest(topics=[]))
            asyncio.get_running_loop().call_at(connection.session_end + 0.1, answer.set)
            assert (await early).brokers
        await ask(connection)
        assert rules.renewals == 1


async def test_a_producer_does_not_notice() -> None:
    rules = security(LONGER_MS)
    async with FakeCluster(security=rules) as cluster:
        cluster.intercept(SaslAuthenticateRequest, Edit(shorten))
        await cluster.create_topic("t")
        sent = 0
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, **options("SCRAM-SHA-256")
        ) as producer:
            while rules.renewals < 2:
                await producer.send_and_wait("t", b"%d" % sent)
                sent += 1
        values = [record.value for record in cluster.log("t").records()]
        assert values == [b"%d" % n for n in range(sent)]
        assert rules.refusals == 0


async def test_a_changed_password_is_used_for_the_next_authentication() -> None:
    secrets, rules = Secrets(), security()
    async with cluster_and_pool(rules, **options("SCRAM-SHA-512", secrets)) as (cluster, pool):
        connection = await pool.get(0)
        secrets.password = rules.users["alice"] = "changed"
        await cluster.wait_for(lambda: rules.renewals == 1)
        await ask(connection)
        cluster.drop_connections()
        await connection.closed
        await ask(await pool.get(0))
        assert secrets.asked == 3
        assert rules.refusals == 0


async def test_a_refusal_closes_the_connection_and_is_told_to_those_who_wait() -> None:
    secrets, rules = Secrets(), security()
    async with cluster_and_pool(rules, 1, **options("PLAIN", secrets)) as (cluster, pool):
        connection = await pool.get(0)
        rules.users["alice"] = "changed"
        answer = asyncio.Event()
        with cluster.intercept(SaslAuthenticateRequest, Hold(answer), times=1) as authentication:
            await authentication.wait()
            waiting = [asyncio.ensure_future(ask(connection)) for _ in range(2)]
            await asyncio.sleep(0)
            answer.set()
            results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(error, AuthenticationFailedError) for error in results)
        assert results[0] is not results[1]
        await connection.closed
        with pytest.raises(AuthenticationFailedError):
            await pool.get(0)
        secrets.password = "changed"
        await ask(await pool.get(0))


async def test_another_user_gets_another_connection() -> None:
    secrets, rules = Secrets(), security()
    async with cluster_and_pool(rules, **options("SCRAM-SHA-256", secrets)) as (cluster, pool):
        connection = await pool.get(0)
        secrets.user, secrets.password = "bob", "second"
        answer = asyncio.Event()
        with cluster.intercept(MetadataRequest, Hold(answer), times=1):
            early = connection.send_nowait(MetadataRequest(topics=[]))
            while connection.gate.is_open:
                await asyncio.sleep(0.01)
            late = asyncio.ensure_future(ask(connection))
            await asyncio.sleep(0)
            answer.set()
            assert (await early).brokers
            with pytest.raises(KafkaConnectionError, match="another user") as caught:
                await late
            assert caught.value.retriable
        await ask(await pool.get(0))
        assert (rules.logins, rules.renewals, rules.refusals) == (2, 0, 0)


class Unreliable(AbstractTokenProvider):
    """A provider that fails as often as told."""

    def __init__(self) -> None:
        self.failures = 0
        self.asked = 0
        self._good = Token()

    async def token(self) -> str:
        self.asked += 1
        if self.failures:
            self.failures -= 1
            raise OSError("the identity provider is away")
        return await self._good.token()


async def test_a_provider_that_fails_for_a_moment_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    provider, rules = Unreliable(), security(2000)
    client = {**options("OAUTHBEARER"), "sasl_oauth_token_provider": provider}
    async with cluster_and_pool(rules, retry_backoff_ms=10, **client) as (cluster, pool):
        connection = await pool.get(0)
        provider.failures = 3
        await cluster.wait_for(lambda: rules.renewals == 1)
        assert provider.asked == 5
        await ask(connection)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len([text for text in warnings if "no credentials for re-auth" in text]) == 1


async def test_a_provider_that_stays_away_ends_the_connection_with_its_session() -> None:
    provider, rules = Unreliable(), security()
    client = {**options("OAUTHBEARER"), "sasl_oauth_token_provider": provider}
    async with cluster_and_pool(rules, retry_backoff_ms=50, **client) as (_, pool):
        connection = await pool.get(0)
        provider.failures = 1_000
        await connection.closed
        assert isinstance(connection.error, KafkaConnectionError)
        assert provider.asked < 50
        with pytest.raises(KafkaConnectionError, match="Unreliable failed: OSError"):
            await pool.get(0)
        provider.failures = 0
        await ask(await pool.get(0))


async def test_a_connection_that_closes_meanwhile_needs_no_credentials() -> None:
    provider, rules = Unreliable(), security()
    client = {**options("OAUTHBEARER"), "sasl_oauth_token_provider": provider}
    async with cluster_and_pool(rules, retry_backoff_ms=150, **client) as (cluster, pool):
        connection = await pool.get(0)
        provider.failures = 1_000
        await cluster.wait_for(lambda: provider.asked == 2)
        connection.close()
        await asyncio.sleep(0.5)
        assert provider.asked == 2


def refuse_to_renew(response: Any) -> None:
    response.error_code, response.mechanisms = 34, []


@pytest.mark.parametrize(
    ("api", "trouble", "expected"),
    [
        (SaslHandshakeRequest, Cut(), KafkaConnectionError),
        (SaslAuthenticateRequest, Cut(handled=True), KafkaConnectionError),
        (SaslHandshakeRequest, Edit(refuse_to_renew), AuthenticationFailedError),
        (SaslAuthenticateRequest, Fail(58), AuthenticationFailedError),
    ],
)
async def test_trouble_while_renewing(api: Any, trouble: Any, expected: type[KafkaError]) -> None:
    rules = security()
    async with cluster_and_pool(rules, 1, **options()) as (cluster, pool):
        connection = await pool.get(0)
        cluster.intercept(api, trouble, times=1)
        await connection.closed
        assert type(connection.error) is expected
        with pytest.raises(expected):
            await ask(connection)
        await ask(await pool.get(0))


async def test_a_broker_that_is_silent_while_renewing() -> None:
    rules = security()
    client = options()
    async with cluster_and_pool(rules, request_timeout_ms=300, **client) as (cluster, pool):
        connection = await pool.get(0)
        never = asyncio.Event()
        with cluster.intercept(SaslHandshakeRequest, Hold(never), times=1):
            await connection.closed
            assert isinstance(connection.error, KafkaConnectionError)
            never.set()
        await ask(await pool.get(0))


async def test_an_idle_connection_is_closed_in_spite_of_renewals() -> None:
    rules = security()
    async with cluster_and_pool(rules, connections_max_idle_ms=1000, **options()) as (_, pool):
        connection = await pool.get(0)
        await connection.closed
        assert rules.renewals >= 1
