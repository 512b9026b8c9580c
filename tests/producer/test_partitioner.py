from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from aiokafka.partitioner import DefaultPartitioner, RoundRobinPartitioner, murmur2
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer


# Known values of Java's org.apache.kafka.common.utils.Utils.murmur2.
@pytest.mark.parametrize(
    ("data", "java"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_java(data: bytes, java: int) -> None:
    assert murmur2(data) == java & 0xFFFFFFFF


def test_murmur2_takes_bytearray() -> None:
    assert murmur2(bytearray(b"foobar")) == murmur2(b"foobar")


def test_default_partitioner_hashes_keys() -> None:
    partitioner = DefaultPartitioner()
    chosen = partitioner(b"foobar", list(range(1000)), [])
    assert chosen == (murmur2(b"foobar") & 0x7FFFFFFF) % 1000
    assert chosen == DefaultPartitioner.__call__(b"foobar", list(range(1000)), [3])


def test_default_partitioner_without_key_prefers_available_partitions() -> None:
    partitioner = DefaultPartitioner()
    assert {partitioner(None, [0, 1, 2, 3], [1, 2]) for _ in range(100)} == {1, 2}
    assert {partitioner(None, [0, 1], []) for _ in range(100)} == {0, 1}


def test_murmur2_agrees_with_kafka_python() -> None:
    peer = pytest.importorskip("kafka.partitioner.default").murmur2
    for _ in range(500):
        data = random.randbytes(random.randrange(40))
        assert murmur2(data) == peer(data) & 0xFFFFFFFF


def test_round_robin_serves_every_partition_of_every_topic() -> None:
    partitioner = RoundRobinPartitioner()
    chosen: dict[str, list[int]] = {"a": [], "b": []}
    for _ in range(4):
        for topic in chosen:
            chosen[topic].append(
                partitioner.partition_for(topic, b"key", [0, 1, 2, 3], [0, 1, 2, 3])
            )
    assert sorted(chosen["a"]) == sorted(chosen["b"]) == [0, 1, 2, 3]


def test_round_robin_skips_partitions_without_leader() -> None:
    partitioner = RoundRobinPartitioner()
    assert {partitioner(None, [0, 1, 2], [0, 2]) for _ in range(10)} == {0, 2}


def test_records_without_a_key_that_are_sent_one_by_one_go_everywhere() -> None:
    """Each has a batch of its own, and counts for what its partition gets."""

    async def main(_: Simulation) -> Counter[int]:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC, partitions=4)
            async with new_producer(cluster) as producer:
                sent = [await producer.send_and_wait(TOPIC, b"x" * 1000) for _ in range(1000)]
        return Counter(metadata.partition for metadata in sent)

    counts = simulate(main)
    assert sorted(counts) == [0, 1, 2, 3]
    assert max(counts.values()) < 600


def records_of_a_burst(count: int, **options: Any) -> list[int]:
    """Return how many of `count` records of 1,000 bytes each of six partitions gets, if they are
    sent without a break."""

    async def main(_: Simulation) -> list[int]:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC, partitions=6)
            async with new_producer(cluster, **options) as producer:
                for _ in range(count):
                    await producer.send(TOPIC, bytes(1000))
            return [cluster.log(TOPIC, number).end_offset for number in range(6)]

    counts = simulate(main)
    assert sum(counts) == count
    return sorted(counts)


def test_a_short_burst_is_spread_in_batches_of_the_default_size() -> None:
    counts = records_of_a_burst(96)
    assert counts[0] > 10 and counts[-1] < 20


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_a_partition_gets_more_at_a_time_in_a_long_burst(compression: str | None) -> None:
    at_a_time = 60 if compression else 200
    counts = records_of_a_burst(600, compression_type=compression)
    assert counts[-1] > counts[0] + at_a_time - 20
    # The largest batch for one partition is what they differ by at most.
    counts = records_of_a_burst(12_000, compression_type=compression)
    assert counts[0] > 1500 and counts[-1] < 2500


def test_the_size_of_batches_limits_what_a_partition_gets_at_a_time() -> None:
    counts = records_of_a_burst(600, max_batch_size=16_384)
    assert counts[-1] < counts[0] + 35


# -- KIP-1123: partitions whose leader is in the rack of the client

RACKS = ["a", "b", "a"]


async def sent_to(cluster: FakeCluster, count: int = 60, **options: Any) -> set[int]:
    """Return the partitions to which a producer in rack "a" sends records without a key."""
    options = {"client_rack": "a", "partitioner_rack_aware": True, **options}
    async with new_producer(cluster, **options) as producer:
        sent = [await producer.send_and_wait(TOPIC, bytes(4000)) for _ in range(count)]
    return {metadata.partition for metadata in sent}


async def with_leaders(cluster: FakeCluster, *leaders: int) -> None:
    await cluster.create_topic(TOPIC, partitions=len(leaders), replication_factor=3)
    for partition, leader in enumerate(leaders):
        cluster.move_leader((TOPIC, partition), leader)


async def test_records_without_a_key_stay_in_the_rack() -> None:
    async with FakeCluster(brokers=3, racks=RACKS) as cluster:
        await with_leaders(cluster, 0, 1, 2, 1)
        assert await sent_to(cluster) == {0, 2}


@pytest.mark.parametrize(
    "options",
    [
        {"partitioner_rack_aware": False},
        {"client_rack": None},
        {"client_rack": "elsewhere"},
        {"partitioner": lambda key, every, available: random.choice(available)},
    ],
)
async def test_all_partitions_are_used_without_a_rack(options: dict[str, Any]) -> None:
    async with FakeCluster(brokers=3, racks=RACKS) as cluster:
        await with_leaders(cluster, 0, 1, 2)
        assert await sent_to(cluster, count=100, **options) == {0, 1, 2}


async def test_records_follow_the_leaders_and_keys_do_not() -> None:
    async with FakeCluster(brokers=3, racks=RACKS) as cluster:
        await with_leaders(cluster, 0, 1)
        options = {"client_rack": "a", "partitioner_rack_aware": True}
        async with new_producer(cluster, **options) as producer:
            keyed = [await producer.send_and_wait(TOPIC, b"", b"%d" % n) for n in range(20)]
            assert {metadata.partition for metadata in keyed} == {0, 1}
            assert (await producer.send_and_wait(TOPIC, b"")).partition == 0
            # No leader is in the rack: all partitions are used.
            cluster.move_leader((TOPIC, 0), 1)
            sent = [await producer.send_and_wait(TOPIC, bytes(4000)) for _ in range(100)]
            assert {metadata.partition for metadata in sent[2:]} == {0, 1}
            cluster.move_leader((TOPIC, 1), 2)
            assert await producer.client.force_metadata_update()
            sent = [await producer.send_and_wait(TOPIC, bytes(4000)) for _ in range(20)]
            assert {metadata.partition for metadata in sent[2:]} == {1}
