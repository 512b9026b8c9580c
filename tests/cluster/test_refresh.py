"""When metadata is asked for, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.errors import LeaderNotAvailableError, NotLeaderForPartitionError
from aiokafka.protocol.messages import FetchRequest, ListGroupsRequest, MetadataRequest
from aiokafka.ranges import PartitionRange, RangeReader
from aiokafka.testing import Cut, Delay, Edit, FakeCluster
from aiokafka.testing.simulation import Simulation, simulate

AGE_S = 0.2
PERIOD_S = 10.0


@pytest.mark.parametrize("is_missed", [False, True])
def test_metadata_never_gets_older_than_it_may_be(is_missed: bool) -> None:
    """Refreshes that nothing asked for do not come ever later, as repeated requests do."""

    async def main(simulation: Simulation) -> int:
        loop = asyncio.get_running_loop()
        async with (
            FakeCluster(config={"auto.create.topics.enable": "false"}) as cluster,
            AIOKafkaClient(
                bootstrap_servers=cluster.bootstrap_servers, metadata_max_age_ms=AGE_S * 1000
            ) as client,
        ):
            await cluster.create_topic("t")
            await client.wait_for_topic("t", loop.time() + 5)
            if is_missed:
                client.set_topics(["t", "missing"])
            before = cluster.count(MetadataRequest)
            await asyncio.sleep(PERIOD_S)
            return cluster.count(MetadataRequest) - before

    assert simulate(main) >= 0.9 * PERIOD_S / AGE_S


def test_requests_that_follow_each_other_come_ever_later() -> None:
    async def main(simulation: Simulation) -> int:
        loop = asyncio.get_running_loop()
        async with (
            FakeCluster() as cluster,
            AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client,
        ):
            before = cluster.count(MetadataRequest)
            until = loop.time() + PERIOD_S
            while loop.time() < until:
                changed = client.metadata_changed()
                client.request_metadata("once more")
                await changed
            return cluster.count(MetadataRequest) - before

    # A tenth of a second after the first, then the double of it each time, at most a second.
    assert simulate(main) <= 16


def test_an_application_that_forces_updates_does_not_wait_ever_longer() -> None:
    """Faust does so for each topic that it declares: a worker took a second for each to start."""
    times = 20

    async def main(simulation: Simulation) -> float:
        loop = asyncio.get_running_loop()
        async with (
            FakeCluster() as cluster,
            AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client,
        ):
            began = loop.time()
            for _ in range(times):
                assert await client.force_metadata_update()
            return loop.time() - began

    # About a tenth of a second after the other: brokers are not asked without a pause, either.
    assert 0.07 * times < simulate(main) < 0.13 * times


def test_brokers_that_keep_silent_do_not_put_off_the_bootstrap_servers() -> None:
    """Each of them was waited for, ten seconds, however short the time until then was to be."""

    def forget_the_last(response: Any) -> None:
        response.brokers = response.brokers[:3]

    async def main(simulation: Simulation) -> float:
        loop = asyncio.get_running_loop()
        async with simulation.cluster(brokers=4) as cluster:
            cluster.intercept(MetadataRequest, Edit(forget_the_last))
            async with AIOKafkaClient(
                bootstrap_servers=cluster.address(3),
                metadata_recovery_rebootstrap_trigger_ms=2000,
            ) as client:
                faults = simulation.faults(cluster)
                for broker in range(3):
                    faults.silence(broker)
                began = loop.time()
                assert await client.force_metadata_update()
                return loop.time() - began

    assert simulate(main) < 4


def test_a_leader_that_a_lagging_broker_does_not_list_is_asked_for_at_another() -> None:
    """Its records were not read for five minutes: the same broker was asked again and again."""
    partition = TopicPartition("t", 0)

    def lag(response: Any) -> None:
        del response.brokers[2]
        for topic in response.topics:
            topic.partitions[0].leader_id, topic.partitions[0].leader_epoch = 1, 1

    async def main(simulation: Simulation) -> bytes | None:
        async with simulation.cluster(brokers=3) as cluster:
            await cluster.create_topic("t", partitions=1, replication_factor=3)
            cluster.move_leader(partition, 1)
            cluster.intercept(MetadataRequest, Edit(lag), broker=0)
            async with AIOKafkaConsumer(bootstrap_servers=cluster.address(0)) as consumer:
                consumer.assign([partition])
                await consumer.seek_to_beginning()
                cluster.move_leader(partition, 2)
                cluster.log("t").append(b"record")
                async with timeout(30):
                    return (await consumer.getone()).value

    assert simulate(main) == b"record"


@pytest.mark.parametrize("trigger_ms", [300_000, None])
def test_metadata_that_takes_every_broker_long_is_waited_for(trigger_ms: float | None) -> None:
    """No broker was waited for longer than ten seconds, so there never was a response."""

    async def main(simulation: Simulation) -> bool:
        async with simulation.cluster(brokers=2) as cluster:
            cluster.intercept(MetadataRequest, Delay(15.0))
            async with AIOKafkaClient(
                bootstrap_servers=cluster.bootstrap_servers,
                metadata_recovery_rebootstrap_trigger_ms=trigger_ms,
            ) as client:
                return await client.force_metadata_update()

    assert simulate(main)


def test_a_broker_that_throttles_the_client_is_not_asked_before_others() -> None:
    """Each refresh, and each look-up of a coordinator by it, waited until the client might send."""

    def throttle(response: Any) -> None:
        response.throttle_time_ms = 30_000

    async def main(simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        async with (
            simulation.cluster(brokers=2) as cluster,
            AIOKafkaClient(bootstrap_servers=cluster.address(0)) as client,
        ):
            cluster.intercept(ListGroupsRequest, Edit(throttle))
            await client.send(0, ListGroupsRequest())
            async with timeout(5):
                for group in map(str, range(5)):
                    assert await client.force_metadata_update()
                    await client.coordinator(CoordinationType.GROUP, group, loop.time() + 40)

    simulate(main)


@pytest.mark.parametrize("role", ["producer", "consumer"])
def test_a_broker_that_names_a_leader_which_denies_it_is_not_asked_for_ever(role: str) -> None:
    """It was for five minutes: it had been cut off, and named the leader of before."""
    partition = TopicPartition("t", 0)

    async def main(simulation: Simulation) -> bytes | None:
        async with simulation.cluster(brokers=3, as_version="2.8") as cluster:
            await cluster.create_topic("t", partitions=1, replication_factor=3)
            cluster.move_leader(partition, 1)
            cluster.intercept(MetadataRequest, Edit(_name_broker_1), broker=0)
            server = cluster.address(0)
            async with (
                AIOKafkaProducer(bootstrap_servers=server) as producer,
                AIOKafkaConsumer("t", bootstrap_servers=server) as consumer,
                timeout(30),
            ):
                denied = cluster.intercept(FetchRequest, Edit(_deny), broker=1)
                cluster.move_leader(partition, 2)
                await denied.wait()
                if role == "producer":
                    await producer.send_and_wait("t", b"record")
                    return cluster.log("t").records()[0].value
                cluster.log("t").append(b"record")
                return (await consumer.getone()).value

    assert simulate(main) == b"record"


def test_offsets_are_found_though_a_broker_names_a_leader_which_denies_it() -> None:
    partition = TopicPartition("t", 0)

    async def main(simulation: Simulation) -> dict[TopicPartition, int]:
        async with simulation.cluster(brokers=3) as cluster:
            await cluster.create_topic("t", partitions=1, replication_factor=3)
            cluster.move_leader(partition, 1)
            cluster.intercept(MetadataRequest, Edit(_name_broker_1), broker=0)
            cluster.move_leader(partition, 2)
            async with AIOKafkaConsumer(bootstrap_servers=cluster.address(0)) as consumer:
                return await consumer.end_offsets([partition])

    assert simulate(main) == {partition: 0}


def test_ranges_are_read_though_a_broker_names_a_leader_which_denies_it() -> None:
    """Nothing was read of them, and after two minutes the reader failed."""
    partition = TopicPartition("t", 0)

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=3, as_version="2.8") as cluster:
            await cluster.create_topic("t", partitions=1, replication_factor=3)
            cluster.move_leader(partition, 1)
            cluster.intercept(MetadataRequest, Edit(_name_broker_1), broker=0)
            cluster.intercept(FetchRequest, Edit(_deny), broker=1)
            cluster.move_leader(partition, 2)
            cluster.log("t").append(b"record")
            async with (
                AIOKafkaClient(bootstrap_servers=cluster.address(0)) as client,
                RangeReader(client, [PartitionRange("t", 0, 0, 1)]) as reader,
            ):
                assert await reader.next() is not None

    simulate(main)


def test_the_controller_is_found_though_a_broker_names_one_which_denies_it() -> None:
    """Topics could not be created: the same two brokers were asked in turn."""

    def name_broker_1(response: Any) -> None:
        response.controller_id = 1

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=3, as_version="2.8") as cluster:
            cluster.intercept(MetadataRequest, Edit(name_broker_1), broker=0)
            async with AIOKafkaAdminClient(bootstrap_servers=cluster.address(0)) as admin:
                await admin.create_topics([NewTopic("t", 1, 1)])

    simulate(main)


def _name_broker_1(response: Any) -> None:
    for topic in response.topics:
        topic.partitions[0].leader_id, topic.partitions[0].leader_epoch = 1, 1


def _deny(response: Any) -> None:
    """Say no more than brokers before Kafka 3.7 do."""
    for topic in response.responses:
        for each in topic.partitions:
            each.error_code, each.records = NotLeaderForPartitionError.errno, None
            each.current_leader.leader_id = -1


@pytest.mark.parametrize("release", ["2.1", "2.8", "4.3"])
def test_a_topic_made_again_with_fewer_partitions_has_no_more(release: str) -> None:
    async def main(_: Simulation) -> None:
        async with (
            FakeCluster(as_version=release) as cluster,
            AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client,
        ):
            await cluster.create_topic("t", partitions=3)
            await client.wait_for_topic("t", asyncio.get_running_loop().time() + 5)
            await cluster.delete_topic("t")
            await cluster.create_topic("t", partitions=1)
            assert await client.force_metadata_update()
            assert client.cluster.partitions_for_topic("t") == {0}

    simulate(main)


def test_a_topic_that_is_not_described_for_a_moment_is_asked_about_again() -> None:
    """Who leads its partitions was not told, either."""
    partition = TopicPartition("t", 0)

    def refuse(response: Any) -> None:
        for topic in response.topics:
            topic.error_code, topic.partitions = LeaderNotAvailableError.errno, []

    async def main(_: Simulation) -> None:
        async with (
            FakeCluster(brokers=2) as cluster,
            AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client,
        ):
            await cluster.create_topic("t", replication_factor=2)
            await client.wait_for_topic("t", asyncio.get_running_loop().time() + 5)
            before = client.cluster.leader_for_partition(partition)
            cluster.move_leader(partition, 1)
            cluster.intercept(MetadataRequest, Edit(refuse), times=1)
            await client.force_metadata_update()
            assert client.cluster.leader_for_partition(partition) == before == 0
            await asyncio.sleep(1)
            assert client.cluster.leader_for_partition(partition) == 1

    simulate(main)


def test_a_topic_without_a_leader_does_not_put_off_news_of_the_others() -> None:
    """It is asked about again and again, which is a smaller request."""

    async def main(_: Simulation) -> None:
        loop = asyncio.get_running_loop()
        async with (
            FakeCluster(brokers=2) as cluster,
            AIOKafkaClient(
                bootstrap_servers=cluster.bootstrap_servers, metadata_max_age_ms=5000
            ) as client,
        ):
            await cluster.create_topic("t", assignment={0: [0]})
            await cluster.create_topic("u", assignment={0: [1]})
            for topic in "tu":
                await client.wait_for_topic(topic, loop.time() + 5)
            await cluster.stop_broker(1)
            await client.force_metadata_update()
            cluster.add_partitions("t", 3)
            before = cluster.count(MetadataRequest)
            await asyncio.sleep(8)
            assert client.cluster.partitions_for_topic("t") == {0, 1, 2}
            assert cluster.count(MetadataRequest) - before > 3

    simulate(main)


def test_new_topics_do_not_hurry_while_no_broker_answers() -> None:
    """A program may go through thousands of them."""

    async def main(_: Simulation) -> int:
        async with (
            FakeCluster() as cluster,
            AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers) as client,
        ):
            with cluster.intercept(MetadataRequest, Cut()) as script:
                for number in range(1000):
                    client.touch_topic(f"t{number}")
                    await asyncio.sleep(0.01)
            return script.hits

    # A pause grows to a second; after a failure the bootstrap server is asked as well.
    assert 5 < simulate(main) < 50
