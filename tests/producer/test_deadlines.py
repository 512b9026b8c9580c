"""What calls and records wait for, and what ends the wait."""

from __future__ import annotations

import asyncio

import pytest

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    NotEnoughReplicasError,
    ProducerClosed,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    WrongArgument,
)
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.protocol.messages.transactions import AddPartitionsToTxnRequest
from aiokafka.testing import Fail, FakeCluster, Hold, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer, numbers, results, transactional, values


async def test_stop_ends_calls_that_wait_for_metadata(cluster: FakeCluster) -> None:
    """At once, though it has to deliver something else first."""
    release = asyncio.Event()
    producer = new_producer(cluster)
    await producer.start()
    await producer.send_and_wait(TOPIC, b"1", partition=0)
    with cluster.intercept(MetadataRequest, Silence()):
        with cluster.intercept(ProduceRequest, Hold(release), times=1) as held:
            delivery = await producer.send(TOPIC, b"2", partition=0)
            await held.wait()
            waiting = [
                asyncio.create_task(producer.send("new", b"v")),
                asyncio.create_task(producer.send(TOPIC, b"v", partition=99)),
                asyncio.create_task(producer.partitions_for("other")),
                asyncio.create_task(
                    producer.send_batch(_batch(producer), "another", partition=0),
                ),
            ]
            await asyncio.sleep(0.01)
            stopping = asyncio.create_task(producer.stop())
            async with timeout(10):
                found = await asyncio.gather(*waiting, return_exceptions=True)
            assert all(isinstance(one, ProducerClosed) for one in found), found
            assert len({id(one) for one in found}) == len(found)
            assert not stopping.done() and not delivery.done()
            release.set()
            await stopping
    assert values(cluster) == [b"1", b"2"]


def _batch(producer: AIOKafkaProducer) -> BatchBuilder:
    batch = producer.create_batch()
    batch.append(key=None, value=b"v", timestamp=None)
    return batch


async def test_an_unknown_partition_waits_no_longer_than_max_block(cluster: FakeCluster) -> None:
    async with new_producer(cluster, max_block_ms=100) as producer:
        await producer.send_and_wait(TOPIC, b"1", partition=0)
        with cluster.intercept(MetadataRequest, Silence()):
            async with timeout(10):
                # It may exist: no broker said that it does not.
                with pytest.raises(KafkaTimeoutError, match=TOPIC):
                    await producer.send(TOPIC, b"v", partition=7)


async def test_an_unknown_partition_is_refused_when_brokers_say_so(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        for _ in range(2):
            with pytest.raises(WrongArgument, match="has 3 partitions, from 0 to 2"):
                await producer.send(TOPIC, b"v", partition=7)


async def test_an_unknown_partition_of_a_topic_that_is_forbidden_now(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, b"1", partition=0)
        with cluster.intercept(MetadataRequest, Fail(TopicAuthorizationFailedError)):
            for _ in range(2):
                with pytest.raises(TopicAuthorizationFailedError, match=TOPIC):
                    await producer.send(TOPIC, b"v", partition=7)


async def test_an_unknown_partition_of_a_topic_that_was_deleted(cluster: FakeCluster) -> None:
    """Several responses in a row have to say so. Then it is waited for, as for any topic that is
    not there yet."""
    async with new_producer(cluster, max_block_ms=5000, allow_auto_create_topics=False) as producer:
        await producer.send_and_wait(TOPIC, b"1", partition=0)
        await cluster.delete_topic(TOPIC)
        for _ in range(2):
            with pytest.raises(WrongArgument, match="has 3 partitions"):
                await producer.send(TOPIC, b"v", partition=7)
        with pytest.raises(UnknownTopicOrPartitionError, match=TOPIC):
            await producer.send(TOPIC, b"v", partition=7)
        sending = asyncio.create_task(producer.send_and_wait(TOPIC, b"2", partition=7))
        await asyncio.sleep(1)
        await cluster.create_topic(TOPIC, partitions=8)
        await sending
    assert values(cluster, 7) == [b"2"]


async def test_an_answer_from_before_says_nothing_of_new_partitions(cluster: FakeCluster) -> None:
    """The response to a refresh that is under way may have been true when it was given."""
    topics = [MetadataRequestTopic(name=TOPIC)]
    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, b"1", partition=0)
        old = await producer.client.send(0, MetadataRequest(topics=topics), max_version=9)
        await add_partitions(cluster, 4)
        arrived = asyncio.Event()
        with cluster.intercept(MetadataRequest, Hold(arrived, old), times=1):
            before = cluster.count(MetadataRequest)
            producer.client.force_metadata_update()
            await cluster.wait_for(lambda: cluster.count(MetadataRequest) > before)
            future = asyncio.create_task(producer.send_and_wait(TOPIC, b"2", partition=3))
            await asyncio.sleep(0)
            arrived.set()
            await future
    assert values(cluster, 3) == [b"2"]


async def test_news_of_a_leader_are_no_answer(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        client = producer.client
        await producer.send_and_wait(TOPIC, b"1", partition=0)
        await add_partitions(cluster, 4)
        arrived = asyncio.Event()
        with cluster.intercept(MetadataRequest, Hold(arrived)):
            before = cluster.count(MetadataRequest)
            future = asyncio.create_task(producer.send_and_wait(TOPIC, b"2", partition=3))
            await cluster.wait_for(lambda: cluster.count(MetadataRequest) > before)
            changed = client.metadata_changed()
            client.update_leader(TopicPartition(TOPIC, 0), 0, 100)
            await changed
            await asyncio.sleep(0)
            arrived.set()
            await future
    assert values(cluster, 3) == [b"2"]


async def add_partitions(cluster: FakeCluster, total: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await admin.start()
    try:
        await admin.create_partitions({TOPIC: NewPartitions(total)})
    finally:
        await admin.close()


async def test_records_outlast_what_metadata_is_kept_for() -> None:
    """Nothing uses the topic during an outage, but the records still have to go there."""
    options = {"metadata_max_idle_ms": 1000, "delivery_timeout_ms": 600_000}
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic(TOPIC, assignment={0: (0,)})
        async with new_producer(cluster, reconnect_backoff_max_ms=50, **options) as producer:
            await producer.send_and_wait(TOPIC, b"1", partition=0)
            await cluster.stop_broker(0)
            future = await producer.send(TOPIC, b"2", partition=0)
            # As long as a topic is kept that nothing uses, and once more.
            await asyncio.sleep(2.1)
            # A full refresh, as there is one at least every metadata_max_age_ms.
            await producer.client.force_metadata_update()
            await cluster.start_broker(0)
            async with timeout(20):
                await future
        assert values(cluster) == [b"1", b"2"]


@pytest.mark.parametrize("keyed", [False, True])
async def test_nothing_lingers_in_a_full_buffer(cluster: FakeCluster, keyed: bool) -> None:
    """What there is no room for would wait for what waits for company."""
    options = {"linger_ms": 600_000, "max_batch_size": 50_000, "buffer_memory": 100_000}
    payloads = [b"%d" % number + b"x" * 9_000 for number in range(60)]
    futures = []
    async with new_producer(cluster, **options) as producer:
        async with timeout(30):
            for number, payload in enumerate(payloads):
                key = b"%d" % number if keyed else None
                futures.append(await producer.send(TOPIC, payload, key))
        await producer.flush()
        found = await results(futures)
    assert not [one for one in found if isinstance(one, BaseException)]
    written = [value for number in range(3) for value in values(cluster, number)]
    assert set(written) == set(payloads) and len(written) == len(payloads)


async def test_many_that_wait_for_room_do_not_linger(cluster: FakeCluster) -> None:
    """Each begins a batch, and the next in the row waits for that one."""
    options = {"linger_ms": 600_000, "max_batch_size": 50_000, "buffer_memory": 12_000}
    async with new_producer(cluster, **options) as producer:
        async with timeout(30):
            sending = [producer.send(TOPIC, b"x" * 9_000, partition=0) for _ in range(10)]
            futures = await asyncio.gather(*sending)
        # Only the last has no other behind it that wants its room.
        await asyncio.gather(*futures[:-1])
    assert len(values(cluster)) == 10


async def test_there_is_still_company_to_wait_for(cluster: FakeCluster) -> None:
    async with new_producer(cluster, linger_ms=600_000) as producer:
        for payload in numbers(10):
            await producer.send(TOPIC, payload, partition=0)
        await asyncio.sleep(0.05)
        assert cluster.count(ProduceRequest) == 0


async def test_what_waits_for_the_coordinator_takes_no_room_in_requests() -> None:
    release = asyncio.Event()
    async with FakeCluster(brokers=2, as_version="3.9") as cluster:
        await cluster.create_topic(TOPIC, assignment=dict.fromkeys(range(20), (0,)))
        cluster.move_coordinator("transaction", "worker", 1)
        async with transactional(cluster, max_request_size=10_000) as producer, timeout(20):
            async with producer.transaction():
                for partition in range(10):
                    await producer.send_and_wait(TOPIC, b"", partition=partition)
                with cluster.intercept(AddPartitionsToTxnRequest, Hold(release)) as held:
                    for partition in range(10, 20):
                        await producer.send(TOPIC, b"x" * 900, partition=partition)
                    await held.wait()
                    cluster.forget_requests()
                    await asyncio.gather(
                        *[await producer.send(TOPIC, b"y" * 800, partition=n) for n in range(10)]
                    )
                    assert cluster.count(ProduceRequest) == 1
                    release.set()


def test_an_old_batch_does_not_linger_for_younger_ones_of_other_partitions() -> None:
    """A batch before it had to be sent again, and meanwhile another partition has begun one."""

    async def main(simulation: Simulation) -> None:
        loop = asyncio.get_running_loop()
        times = {"linger_ms": 10_000, "request_timeout_ms": 3000, "delivery_timeout_ms": 15_000}
        async with simulation.cluster(1) as cluster:
            await cluster.create_topic(TOPIC, partitions=2)
            async with new_producer(cluster, max_batch_size=1000, **times) as producer:
                began = loop.time()
                with cluster.intercept(ProduceRequest, Fail(NotEnoughReplicasError)):
                    for value in (b"x" * 700, b"y" * 700):
                        old = await producer.send(TOPIC, value, partition=0)
                    await asyncio.sleep(8)
                    young = await producer.send(TOPIC, b"z", partition=1)
                    await asyncio.sleep(1)
                await old
                assert 10 <= loop.time() - began < 11
                await young
                assert 18 <= loop.time() - began < 19

    simulate(main)


def test_topics_in_steady_use_are_not_forgotten() -> None:
    """Records follow each other, none waits for long, and nothing else asks for metadata."""
    names = ["a", "b", "c", "d"]

    async def main(simulation: Simulation) -> int:
        async with FakeCluster() as cluster:
            for name in names:
                await cluster.create_topic(name)
            times = {"metadata_max_idle_ms": 60_000, "metadata_max_age_ms": 300_000}
            async with new_producer(cluster, **times) as producer:
                for name in names:
                    await producer.send_and_wait(name, b"first")
                cluster.forget_requests()
                for number in range(330):
                    await producer.send_and_wait(names[number % 4], b"v")
                    await asyncio.sleep(1)
                return cluster.count(MetadataRequest)

    assert simulate(main) == 1


def test_a_topic_that_is_known_in_the_turn_of_the_deadline() -> None:
    """As where the program has stood still: it is known in time."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster, new_producer(cluster, max_block_ms=50) as producer:
            for number in range(50):
                topic = f"topic-{number}"
                await cluster.create_topic(topic)
                simulation.loop.stall(1.0, 0.2)
                try:
                    await producer.send(topic, b"v")
                except KafkaError:
                    assert not producer.client.cluster.partitions_for_topic(topic)
                simulation.loop.stall(0.0, 0.0)

    simulate(main)
