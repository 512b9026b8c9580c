"""Brokers that lack a topic, a partition or a leader that others know, in virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import UnknownTopicOrPartitionError
from aiokafka.protocol.messages import MetadataRequest
from aiokafka.ranges import PartitionRange, RangeReader
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import Simulation, simulate

NO_CREATION = {"auto.create.topics.enable": "false"}


def now() -> float:
    return asyncio.get_running_loop().time()


def askers(cluster: FakeCluster) -> Counter[int]:
    """Count the metadata requests of each broker."""
    return Counter(request.broker_id for request in cluster.requests(MetadataRequest))


@pytest.mark.parametrize("is_connected_to_all", [False, True])
def test_a_topic_that_one_broker_does_not_know_is_asked_for_at_another(
    is_connected_to_all: bool,
) -> None:
    async def main(simulation: Simulation) -> float:
        async with simulation.cluster(brokers=3) as cluster:
            await cluster.create_topic("other", partitions=3)
            cluster.faults.mislead(0)
            await cluster.create_topic("new", partitions=3)
            async with AIOKafkaProducer(bootstrap_servers=cluster.address(0)) as producer:
                for number in range(3 if is_connected_to_all else 0):
                    await producer.send_and_wait("other", b"x", partition=number)
                began = now()
                await producer.send_and_wait("new", b"x", partition=1)
                return now() - began

    assert simulate(main) < 1


def test_records_without_a_key_go_to_partitions_whose_leader_knows_the_topic() -> None:
    """The misled broker leads partition 0, and refuses all records for it."""

    async def main(simulation: Simulation) -> set[int]:
        async with simulation.cluster(brokers=3) as cluster:
            cluster.faults.mislead(0)
            topics = [f"new-{number}" for number in range(8)]
            for topic in topics:
                await cluster.create_topic(topic, assignment={n: [n] for n in range(3)})
            async with AIOKafkaProducer(bootstrap_servers=cluster.address(0)) as producer:
                await producer.partitions_for(topics[0])
                sent = [await producer.send_and_wait(topic, b"x") for topic in topics]
                return {metadata.partition for metadata in sent}

    assert simulate(main) <= {1, 2}


def test_a_consumer_starts_with_a_topic_that_one_broker_does_not_know() -> None:
    async def main(simulation: Simulation) -> float:
        async with simulation.cluster(brokers=3) as cluster:
            cluster.faults.mislead(0)
            await cluster.create_topic("new")
            began = now()
            async with AIOKafkaConsumer("new", bootstrap_servers=cluster.address(0)):
                return now() - began

    assert simulate(main) < 1


def test_a_leader_that_one_broker_does_not_name_is_asked_for_at_another() -> None:
    partition = TopicPartition("t", 0)

    async def main(simulation: Simulation) -> tuple[bytes | None, float]:
        async with simulation.cluster(brokers=3) as cluster:
            await cluster.create_topic("t", assignment={0: [1]})
            await cluster.stop_broker(1)
            cluster.faults.mislead(0)
            await cluster.start_broker(1)
            options: dict[str, Any] = {"bootstrap_servers": cluster.address(0)}
            began = now()
            async with AIOKafkaProducer(**options) as producer:
                await producer.send_and_wait("t", b"x", partition=0)
            async with AIOKafkaConsumer(**options, auto_offset_reset="earliest") as consumer:
                consumer.assign([partition])
                return (await consumer.getone()).value, now() - began

    value, took = simulate(main)
    assert value == b"x"
    assert took < 2


@pytest.mark.parametrize("stale", [0, 1])
def test_a_partition_that_one_broker_does_not_know_is_asked_for_at_another(stale: int) -> None:
    """`send` raised, as if there was no such partition."""

    async def main(simulation: Simulation) -> int:
        async with simulation.cluster(brokers=3) as cluster:
            await cluster.create_topic("t", partitions=1, replication_factor=3)
            async with AIOKafkaProducer(bootstrap_servers=cluster.address(stale)) as producer:
                await producer.send_and_wait("t", b"x")
                cluster.faults.mislead(stale)
                cluster.add_partitions("t", 2)
                cluster.move_leader(("t", 1), 2)
                return (await producer.send_and_wait("t", b"x", partition=1)).partition

    assert simulate(main) == 1


def test_a_topic_that_the_client_uses_is_not_lost_by_one_broker_that_denies_it() -> None:
    async def main(simulation: Simulation) -> bool:
        async with simulation.cluster(brokers=3) as cluster:
            cluster.faults.mislead(0)
            await cluster.create_topic("t")
            async with AIOKafkaClient(bootstrap_servers=cluster.address(0)) as client:
                await client.wait_for_topic("t", now() + 5)
                for _ in range(20):
                    await client.force_metadata_update()
                    if client.cluster.partitions_for_topic("t") is None:
                        return False
                return True

    assert simulate(main)


@pytest.mark.parametrize("brokers", [1, 3, 9])
def test_a_topic_that_exists_nowhere_is_asked_for_in_turn_and_ever_less_often(brokers: int) -> None:
    async def main(simulation: Simulation) -> Counter[int]:
        async with (
            simulation.cluster(brokers=brokers, config=NO_CREATION) as cluster,
            AIOKafkaClient(bootstrap_servers=cluster.address(0)) as client,
        ):
            client.set_topics(["missing"])
            await asyncio.sleep(100)
            return askers(cluster)

    asked = simulate(main)
    # Every five seconds in the end. Each broker that is asked costs a connection.
    assert 20 <= asked.total() <= 40
    assert len(asked) == min(brokers, 5)


def test_a_topic_is_found_when_it_appears_though_the_broker_asked_last_is_cut_off_by_then() -> None:
    async def main(simulation: Simulation) -> float:
        async with (
            simulation.cluster(brokers=3, config=NO_CREATION) as cluster,
            AIOKafkaClient(bootstrap_servers=cluster.address(0)) as client,
        ):
            client.set_topics(["late"])
            await asyncio.sleep(60)
            cluster.faults.mislead(0)
            cluster.faults.mislead(1)
            await cluster.create_topic("late")
            began = now()
            while client.cluster.partitions_for_topic("late") is None:
                await client.metadata_changed()
            return now() - began

    assert simulate(main) < 20


def test_a_silent_broker_does_not_keep_others_from_being_asked_for_a_topic() -> None:
    async def main(simulation: Simulation) -> float:
        async with simulation.cluster(brokers=3) as cluster:
            cluster.faults.mislead(0)
            await cluster.create_topic("new")
            cluster.faults.hang(1)
            async with AIOKafkaProducer(
                bootstrap_servers=cluster.address(0), enable_idempotence=False
            ) as producer:
                began = now()
                await producer.partitions_for("new")
                took = now() - began
            cluster.faults.revive(1)
            return took

    assert simulate(main) < 3


def lines(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= level]


def test_how_many_brokers_have_denied_a_topic_is_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aiokafka")

    async def main(simulation: Simulation) -> str:
        async with (
            simulation.cluster(brokers=3, config=NO_CREATION) as cluster,
            AIOKafkaClient(bootstrap_servers=cluster.address(0)) as client,
        ):
            with pytest.raises(UnknownTopicOrPartitionError) as caught:
                await client.wait_for_topic("missing", now() + 5)
            return str(caught.value)

    assert "does not exist, as brokers reported for 5.0 s (asked: 3 of 3)" in simulate(main)
    (line,) = lines(caplog, logging.WARNING)
    assert "no broker knows it (asked: 3 of 3)" in line


def test_a_topic_that_one_broker_lacks_is_not_called_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "aiokafka")

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=3) as cluster:
            cluster.faults.mislead(0)
            await cluster.create_topic("new")
            async with AIOKafkaClient(bootstrap_servers=cluster.address(0)) as client:
                await client.wait_for_topic("new", now() + 5)

    simulate(main)
    assert lines(caplog, logging.WARNING) == []


def test_a_topic_that_nothing_waits_for_is_asked_for_at_another_broker() -> None:
    async def main(simulation: Simulation) -> None:
        async with simulation.cluster(brokers=3) as cluster:
            cluster.faults.mislead(0)
            await cluster.create_topic("new")
            async with AIOKafkaClient(bootstrap_servers=cluster.address(0)) as client:
                assert not await client.add_topic("new")
                async with timeout(1):
                    while client.cluster.partitions_for_topic("new") is None:
                        await client.metadata_changed()

    simulate(main)


READS: dict[str, Callable[[AIOKafkaConsumer, TopicPartition], Awaitable[Any]]] = {
    "getone": lambda consumer, _: consumer.getone(),
    "end_offsets": lambda consumer, tp: consumer.end_offsets([tp]),
    "offsets_for_times": lambda consumer, tp: consumer.offsets_for_times({tp: 0}),
}


@asynccontextmanager
async def grown(simulation: Simulation) -> AsyncIterator[FakeCluster]:
    """Yield a cluster with partition 1 of topic t, which broker 1 does not know."""
    async with simulation.cluster(brokers=3) as cluster:
        await cluster.create_topic("t", partitions=1, replication_factor=3)
        cluster.faults.mislead(1)
        cluster.add_partitions("t", 2)
        cluster.move_leader(("t", 1), 2)
        cluster.log("t", 1).append(b"x")
        yield cluster


@pytest.mark.parametrize("name", READS)
def test_a_partition_that_one_broker_does_not_know_is_read(name: str) -> None:
    """It took five minutes, or failed."""

    async def main(simulation: Simulation) -> float:
        partition = TopicPartition("t", 1)
        async with (
            grown(simulation) as cluster,
            AIOKafkaConsumer(
                bootstrap_servers=cluster.address(1), auto_offset_reset="earliest"
            ) as consumer,
        ):
            consumer.assign([partition])
            began = now()
            await READS[name](consumer, partition)
            return now() - began

    assert simulate(main) < 1


def test_a_range_of_a_partition_that_one_broker_does_not_know_is_read() -> None:
    async def main(simulation: Simulation) -> float:
        async with (
            grown(simulation) as cluster,
            AIOKafkaClient(bootstrap_servers=cluster.address(1)) as client,
            RangeReader(client, [PartitionRange("t", 1, 0, 1)]) as reader,
        ):
            began = now()
            assert await reader.next() is not None
            return now() - began

    assert simulate(main) < 1
