"""A session that ends while a request takes longer than others may, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiokafka.errors import KafkaConnectionError
from aiokafka.net.pool import ConnectionPool
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.testing import Delay, FakeCluster, Security
from aiokafka.testing.simulation import Simulation, simulate
from tests.net.sessions import Secrets, options
from tests.net.support import pooled

SESSION_S = 10
TIMEOUT_S = 2  # of other requests
LONG_S = 30  # as a JoinGroup may take, which waits for others
LIMIT_S = 60.0


def security() -> Security:
    users = {"alice": "first", "bob": "second"}
    return Security(users, session_lifetime_ms=SESSION_S * 1000)


@asynccontextmanager
async def slow_once(
    rules: Security, secrets: Secrets
) -> AsyncIterator[tuple[FakeCluster, ConnectionPool]]:
    """A cluster that takes its time for the first Metadata request, and a pool for it."""
    async with FakeCluster(security=rules) as cluster:
        client = options("PLAIN", secrets)
        limit = TIMEOUT_S * 1000
        async with pooled(cluster.bootstrap_servers, request_timeout_ms=limit, **client) as pool:
            cluster.intercept(MetadataRequest, Delay(LONG_S), times=1)
            yield cluster, pool


def test_a_session_is_renewed_behind_a_long_request() -> None:
    """The broker begins with the renewal when it has answered what came before."""

    async def main(simulation: Simulation) -> None:
        rules = security()
        async with slow_once(rules, Secrets()) as (cluster, pool):
            connection = await pool.get(0)
            long = connection.send_nowait(MetadataRequest(topics=[]), timeout=LIMIT_S)
            assert (await long).brokers
            await cluster.wait_for(lambda: rules.renewals == 1)
            assert (await connection.request(MetadataRequest(topics=[]))).brokers
            assert await pool.get(0) is connection
            assert (rules.logins, rules.refusals) == (1, 0)

    simulate(main)


def test_a_long_request_is_answered_before_its_connection_ends_for_another_user() -> None:
    async def main(simulation: Simulation) -> None:
        loop, secrets = asyncio.get_running_loop(), Secrets()
        async with slow_once(security(), secrets) as (_, pool):
            connection = await pool.get(0)
            secrets.user, secrets.password = "bob", "second"
            began = loop.time()
            long = connection.send_nowait(MetadataRequest(topics=[]), timeout=LIMIT_S)
            assert (await long).brokers
            await connection.closed
            assert isinstance(connection.error, KafkaConnectionError)
            assert "another user" in str(connection.error)
            assert loop.time() - began == pytest.approx(LONG_S, abs=0.5)

    simulate(main)
