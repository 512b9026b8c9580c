"""Slow brokers that were taken for Kafka 0.9 all the same: not for long."""

from __future__ import annotations

from aiokafka.protocol.messages import ApiVersionsRequest, MetadataRequest
from aiokafka.protocol.messages.sasl import SaslHandshakeRequest
from aiokafka.testing import Delay, FakeCluster, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.net.support import pooled


def greet_in_newest_form(cluster: FakeCluster) -> None:
    """Support the first ApiVersions of a client, so that an interception sees it: brokers of 3.9
    would refuse its version at once."""
    cluster.state.profile.ranges[ApiVersionsRequest.API_KEY] = ApiVersionsRequest.VERSIONS


def test_a_broker_that_is_slow_with_nothing_but_its_versions_is_waited_for() -> None:
    """It was Kafka 0.9, for which brokers leave out headers."""

    async def main(simulation: Simulation) -> int:
        async with FakeCluster(as_version="3.9") as cluster:
            greet_in_newest_form(cluster)
            cluster.intercept(ApiVersionsRequest, Delay(5.0))
            async with pooled(cluster.bootstrap_servers) as pool:
                return (await pool.get(0)).pick(MetadataRequest)

    assert simulate(main) > 10


def test_what_was_taken_for_kafka_0_9_is_asked_again_when_it_answers() -> None:
    """It answered two questions late; it was Kafka 0.9 for ever then."""

    async def main(simulation: Simulation) -> int:
        async with FakeCluster(as_version="3.9") as cluster:
            greet_in_newest_form(cluster)
            for request in (ApiVersionsRequest, SaslHandshakeRequest):
                cluster.intercept(request, Delay(5.0), times=1)
            async with pooled(cluster.bootstrap_servers) as pool:
                connection = await pool.get(0)
                assert connection.pick(MetadataRequest) == 0
                await connection.closed
                return (await pool.get(0)).pick(MetadataRequest)

    assert simulate(main) > 10


def test_what_was_taken_for_kafka_0_9_is_asked_again_beside_a_new_one() -> None:
    async def main(simulation: Simulation) -> int:
        async with FakeCluster(brokers=2, as_version="3.9") as cluster:
            greet_in_newest_form(cluster)
            for request in (ApiVersionsRequest, SaslHandshakeRequest):
                cluster.intercept(request, Silence(), broker=0, times=1)
            async with pooled(cluster.address(0), cluster.address(1)) as pool:
                connection = await pool.get(0)
                assert connection.pick(MetadataRequest) == 0
                await pool.get(1)
                await connection.closed
                return (await pool.get(0)).pick(MetadataRequest)

    assert simulate(main) > 10


def test_the_open_question_is_closed_with_the_pool() -> None:
    async def main(simulation: Simulation) -> int:
        async with FakeCluster(as_version="0.9") as cluster:
            async with pooled(cluster.bootstrap_servers) as pool:
                await pool.get(0)
                assert len(simulation.network.connections()) == 2
            return len(simulation.network.connections())

    assert simulate(main) == 0
