"""How often a connection re-authenticates, in virtual time."""

from __future__ import annotations

import asyncio
import itertools

from aiokafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.protocol.messages.sasl import SaslHandshakeRequest
from aiokafka.testing import Edit, FakeCluster, Security
from aiokafka.testing.simulation import Simulation, simulate
from tests.net.sessions import options, shorten
from tests.net.support import pooled

SESSION_MS = 700
LENIENCE = 20  # as in `shorten`


def test_brokers_are_not_asked_twice_within_a_second() -> None:
    """They refuse that, and then close the connection."""

    async def main(simulation: Simulation) -> list[float]:
        rules = Security({"alice": "first"}, session_lifetime_ms=LENIENCE * SESSION_MS)
        async with FakeCluster(security=rules) as cluster:
            cluster.intercept(None, Edit(_shorten_logins))
            async with pooled(cluster.bootstrap_servers, **options()) as pool:
                connection = await pool.get(0)
                while rules.renewals < 5:
                    assert (await connection.request(MetadataRequest(topics=[]))).brokers
                    await asyncio.sleep(0.05)
                assert await pool.get(0) is connection
                assert (rules.logins, rules.refusals) == (1, 0)
            return [seen.context.received_at for seen in cluster.requests(SaslHandshakeRequest)]

    times = simulate(main)
    gaps = [after - before for before, after in itertools.pairwise(times[1:])]
    assert len(gaps) >= 4
    assert min(gaps) > 1.0


def _shorten_logins(response: object) -> None:
    if hasattr(response, "session_lifetime_ms"):
        shorten(response)


def test_a_broker_counts_from_when_it_has_read_the_request() -> None:
    """On a connection for fetches that is up to a long poll after it was sent."""

    async def main(simulation: Simulation) -> tuple[int, int, int]:
        rules = Security({"alice": "first"}, session_lifetime_ms=SESSION_MS)
        async with FakeCluster(security=rules) as cluster:
            await cluster.create_topic("t")
            async with pooled(cluster.bootstrap_servers, **options()) as pool:
                connection = await pool.get(0)
                while rules.renewals < 20 and connection.is_open:
                    assert (await connection.request(long_poll(), version=12)).error_code == 0
                return rules.renewals, rules.logins, rules.refusals

    assert simulate(main) == (20, 1, 0)


def long_poll() -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return FetchRequest(
        max_wait_ms=400,
        min_bytes=1,
        max_bytes=1000,
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )
