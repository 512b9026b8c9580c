"""Brokers that are slow, do not respond, or are cut off from the other brokers."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.errors import KafkaTimeoutError, RequestTimedOutError
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import Fail, FakeCluster, Hold, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer, values

# -- Records without a key, while one of the brokers is slow or hangs


COUNT = 3000


@pytest.mark.parametrize("seconds", [None, 2.0])
@pytest.mark.parametrize("per_broker", [1, 5])
def test_the_others_take_what_it_does_not(seconds: float | None, per_broker: int) -> None:
    """Otherwise its records fill the memory, and no others can be sent."""
    limits = {"buffer_memory": 300_000, "max_batch_size": 1000, "max_block_ms": 1000}

    async def main(_: Simulation) -> list[int]:
        async with FakeCluster(brokers=3) as cluster:
            total = 3 * per_broker
            await cluster.create_topic(TOPIC, assignment={i: [i % 3] for i in range(total)})
            if seconds is None:
                cluster.faults.hang(0, [ProduceRequest])
            else:
                cluster.faults.slow(0, seconds, [ProduceRequest])
            async with new_producer(cluster, **limits) as producer:
                for number in range(COUNT):
                    await producer.send(TOPIC, b"x" * 900)
                    if number % 10 == 0:
                        await asyncio.sleep(0.01)
                cluster.faults.revive(0)
                await producer.flush()
            return [cluster.log(TOPIC, number).end_offset for number in range(total)]

    ends = simulate(main)
    assert sum(ends) == COUNT
    assert sum(ends[::3]) < COUNT / 20
    for other in (1, 2):
        assert sum(ends[other::3]) > COUNT / 3


def test_batches_that_grow_leave_the_memory_to_the_others() -> None:
    """Each broker has a backlog. The batches of the slow one grow the most, but its partitions get
    no more memory for that."""
    count = 20_000

    async def main(_: Simulation) -> list[int]:
        async with FakeCluster(brokers=3) as cluster:
            await cluster.create_topic(TOPIC, assignment={i: [i % 3] for i in range(15)})
            for broker in range(3):
                cluster.faults.slow(broker, 0.01 if broker else 0.5, [ProduceRequest])
            async with new_producer(cluster, buffer_memory=2_000_000) as producer:
                for _ in range(count):
                    await producer.send(TOPIC, b"x" * 900)
                await producer.flush()
            return [cluster.log(TOPIC, number).end_offset for number in range(15)]

    ends = simulate(main)
    assert sum(ends) == count
    assert sum(ends[::3]) < count / 20
    for other in (1, 2):
        assert sum(ends[other::3]) > count / 3


@pytest.mark.parametrize("options", [{"max_batch_size": 1000}, {}], ids=["full", "grown"])
def test_with_none_slow_all_get_alike(options: dict[str, Any]) -> None:
    async def main(_: Simulation) -> list[int]:
        async with FakeCluster(brokers=3) as cluster:
            await cluster.create_topic(TOPIC, assignment={i: [i] for i in range(3)})
            async with new_producer(cluster, **options) as producer:
                for _ in range(COUNT):
                    await producer.send(TOPIC, b"x" * 900)
                await producer.flush()
            return [cluster.log(TOPIC, number).end_offset for number in range(3)]

    assert min(simulate(main)) > COUNT / 4


# -- A network that transmits less than the application sends


@pytest.mark.parametrize("partitions", [1, 200])
@pytest.mark.parametrize("bandwidth", [20_000, 100_000])
def test_a_slow_network_under_overload(bandwidth: int, partitions: int) -> None:
    """No request exceeds its timeout, and most records that the broker has written are
    acknowledged in time. Large requests would exceed `request_timeout_ms`, and then be sent again
    and again."""

    async def main(simulation: Simulation) -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        written = 0

        def count(future: asyncio.Future[Any]) -> None:
            nonlocal written
            written += future.exception() is None

        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC, partitions)
            async with new_producer(cluster) as producer:
                await producer.send_and_wait(TOPIC, b"first", partition=0)
                port = int(cluster.bootstrap_servers.split(":")[1])
                simulation.network.line("127.0.0.1", port).bandwidth = bandwidth
                ends_at = loop.time() + 300
                number = 0
                while loop.time() < ends_at:
                    with suppress(KafkaTimeoutError):
                        future = await producer.send(
                            TOPIC, bytes(4000), partition=number % partitions
                        )
                        future.add_done_callback(count)
                        number += 1
                await producer.flush()
            return written, sum(cluster.log(TOPIC, n).end_offset for n in range(partitions))

    written, in_log = simulate(main)
    assert written > 300 * bandwidth / 4000
    assert written > 0.9 * in_log


def test_a_batch_that_would_be_late_is_sent_if_no_other_shows_the_speed() -> None:
    """The broker has been slow. A record is sent even if it would be late after the same time."""

    async def main(_: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC, 1)
            async with new_producer(cluster, delivery_timeout_ms=1000) as producer:
                cluster.faults.slow(0, 2.0, [ProduceRequest])
                with pytest.raises(KafkaTimeoutError):
                    await producer.send_and_wait(TOPIC, b"1")
                await asyncio.sleep(3)
                cluster.faults.revive(0)
                await producer.send_and_wait(TOPIC, b"2")
            assert values(cluster) == [b"1", b"2"]

    simulate(main)


def test_a_broker_that_pauses_once_is_not_a_slow_network() -> None:
    """After the pause, the records that have gathered are sent, although the response before took
    longer than they have left."""

    async def main(_: Simulation) -> None:
        loop = asyncio.get_running_loop()
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC, 1)
            options = {"request_timeout_ms": 10_000, "delivery_timeout_ms": 10_000}
            async with new_producer(cluster, **options) as producer:
                await producer.send_and_wait(TOPIC, b"first")
                ends = asyncio.Event()
                futures = []
                with cluster.intercept(ProduceRequest, Hold(ends), times=None):
                    until = loop.time() + 9
                    while loop.time() < until:
                        futures.append(await producer.send(TOPIC, bytes(100)))
                        await asyncio.sleep(0.05)
                    ends.set()
                await asyncio.gather(*futures)

    simulate(main)


@pytest.mark.parametrize("partitions", [1, 20])
@pytest.mark.parametrize(
    ("seconds", "options"), [(2.0, {}), (0.5, {"request_timeout_ms": 3000})], ids=["2 s", "0.5 s"]
)
def test_a_broker_that_is_slow_with_each_request_gets_large_ones(
    seconds: float, options: dict[str, Any], partitions: int
) -> None:
    """The network is fast. Otherwise the requests would become smaller and smaller, and most
    records would time out."""
    count = 2000

    async def main(_: Simulation) -> int:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC, partitions)
            cluster.faults.slow(0, seconds, [ProduceRequest])
            async with new_producer(cluster, **options) as producer:
                for number in range(count):
                    await producer.send(TOPIC, bytes(4000), partition=number % partitions)
                    await asyncio.sleep(0.04)
                written = sum(cluster.log(TOPIC, n).end_offset for n in range(partitions))
                cluster.faults.revive(0)
            return written

    assert simulate(main) > 0.9 * count


# -- A sender that waits for a response costs nothing, however long the response takes


@pytest.mark.parametrize(
    "options",
    [
        {"acks": 1, "enable_idempotence": False},
        {"acks": "all"},
        {"acks": "all", "linger_ms": 3},
        {"acks": "all", "max_in_flight_requests_per_connection": 1},
    ],
)
def test_a_batch_behind_one_whose_answer_is_late(options: dict[str, Any]) -> None:
    """With one request in flight for the partition the second batch cannot leave. The sender asked
    whether it could in every turn of the loop.
    """

    async def main(simulation: Simulation) -> int:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t", 2)
            late = asyncio.Event()
            servers = cluster.bootstrap_servers
            async with AIOKafkaProducer(bootstrap_servers=servers, **options) as producer:
                await producer.send_and_wait("t", b"warm", partition=0)
                with cluster.intercept(ProduceRequest, Hold(late)):
                    futures = [await producer.send("t", b"first", partition=0)]
                    await asyncio.sleep(0.1)
                    futures += [await producer.send("t", b"next", partition=0) for _ in range(3)]
                    futures.append(await producer.send("t", b"other", partition=1))
                    before = simulation.loop.turns
                    await asyncio.sleep(5)
                    turns = simulation.loop.turns - before
                    late.set()
                await asyncio.gather(*futures)
            return turns

    assert simulate(main) < 200


@pytest.mark.parametrize(
    "answer", [Silence(), Fail(RequestTimedOutError)], ids=["no response", "an error"]
)
@pytest.mark.parametrize("options", [{}, {"transactional_id": "worker"}], ids=["", "transactional"])
@pytest.mark.parametrize("version", ["0.11", "2.8", "4.3"])
def test_another_broker_is_asked_who_leads(
    version: str, options: dict[str, Any], answer: Any
) -> None:
    """The producer is connected to the former leader alone, which goes on naming itself."""

    async def main(simulation: Simulation) -> list[bytes | None]:
        async with FakeCluster(brokers=3, as_version=version) as cluster:
            await cluster.create_topic(TOPIC, replication_factor=3)
            cluster.move_coordinator("transaction", "worker", 2)
            cluster.move_leader((TOPIC, 0), 0)
            cluster.faults.isolate(0)
            cluster.intercept(ProduceRequest, answer, broker=0)
            known = {"bootstrap_servers": cluster.address(0), "metadata_max_age_ms": 10**6}
            async with new_producer(cluster, **known, **options) as producer:
                if options:
                    await producer.begin_transaction()
                await producer.send_and_wait(TOPIC, b"value", partition=0)
                if options:
                    await producer.commit_transaction()
            return values(cluster)

    assert simulate(main) == [b"value"]


def test_brokers_that_are_asked_for_certainty_alone_hold_up_nothing() -> None:
    """Now and then another one is asked, though nothing is wrong. A new topic does not wait for it
    long if it is silent."""

    async def main(simulation: Simulation) -> int:
        async with FakeCluster(brokers=3) as cluster:
            known = {"bootstrap_servers": cluster.address(0), "metadata_max_age_ms": 10**6}
            async with new_producer(cluster, **known) as producer:
                silent = [
                    cluster.intercept(MetadataRequest, Silence(), broker=broker)
                    for broker in (1, 2)
                ]
                # Simulated time, in which no other broker is asked.
                await asyncio.sleep(400)
                await cluster.create_topic(TOPIC)
                async with timeout(5):
                    await producer.partitions_for(TOPIC)
                return sum(answers.hits for answers in silent)

    assert simulate(main, limit_s=600) == 2
