"""The partitioners of librdkafka and sarama, by test vectors of these clients and of kafka-go."""

from __future__ import annotations

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.partitioner import (
    ConsistentRandomPartitioner,
    Fnv1aPartitioner,
    Murmur2RandomPartitioner,
)
from aiokafka.testing import FakeCluster

PARTITIONS = range(17)
LONG = b"this is another string with more length to it perhaps"

# librdkafka's tests/0048-partitioner.c
CRC32 = {b"23456": 0xB1B451D7, LONG: 0xB0150DF7, b"hejsan": 0xD077037E}
MURMUR2 = {b"": 0x106E08D9, b"23456": 0x058D780F, LONG: 0x4F7703DA, b"hejsan": 0x5EC19395}
# librdkafka's src/rdfnv1a.c, whose values are from Go: the absolute values of signed hashes.
UNALIGNED = b"PreAmbleWillBeRemoved,ThePrePartThatIs"
FNV1A = {
    b"kafka": 0xD33C4E1,
    b"giberish123456789": 0x77A58295,
    b"1234": 0x23BDD03,
    b"234": 0x2DEA3CD2,
    b"34": 0x740FA83E,
    b"4": 0x310CA263,
    UNALIGNED: 0x65CBD69C,
    UNALIGNED[1:]: 0x6E49C79A,
    UNALIGNED[2:]: 0x69EED356,
    UNALIGNED[3:]: 0x6ABCC023,
    b"": 0x7EE3623B,
}
# kafka-go's balancer_test.go: key, number of partitions, partition as sarama has it.
SARAMA = [(b"blah", 2, 0), (b"blah", 3, 1), (b"boop", 3, 2), (b"20", 16, 1)]


@pytest.mark.parametrize(
    ("partitioner", "vectors"),
    [
        (ConsistentRandomPartitioner(), CRC32),
        (Murmur2RandomPartitioner(), MURMUR2),
        (Fnv1aPartitioner(), FNV1A),
    ],
)
def test_keys_have_the_partitions_of_the_other_client(
    partitioner: ConsistentRandomPartitioner | Murmur2RandomPartitioner | Fnv1aPartitioner,
    vectors: dict[bytes, int],
) -> None:
    for count in (1, 3, 17, 1000):
        for key, hashed in vectors.items():
            # Partitions that are not available count as well.
            assert partitioner(key, range(count), []) == hashed % count
    squares = [number * number for number in PARTITIONS]
    for key, hashed in vectors.items():
        assert partitioner(key, squares, squares) == squares[hashed % 17]


@pytest.mark.parametrize(("key", "count", "partition"), SARAMA)
def test_keys_have_the_partitions_of_sarama(key: bytes, count: int, partition: int) -> None:
    assert Fnv1aPartitioner()(key, range(count), range(count)) == partition


@pytest.mark.parametrize(
    ("partitioner", "key"),
    [
        (ConsistentRandomPartitioner(), None),
        (ConsistentRandomPartitioner(), b""),
        (Murmur2RandomPartitioner(), None),
        (Fnv1aPartitioner(), None),
    ],
)
def test_records_without_a_key_are_distributed_to_available_partitions(
    partitioner: ConsistentRandomPartitioner | Murmur2RandomPartitioner | Fnv1aPartitioner,
    key: bytes | None,
) -> None:
    chosen = {partitioner(key, PARTITIONS, [3, 5]) for _ in range(100)}
    assert chosen == {3, 5}
    assert partitioner(key, [7], []) == 7


async def test_a_producer_with_such_a_partitioner() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t", partitions=17)
        async with AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, partitioner=ConsistentRandomPartitioner()
        ) as producer:
            sent = await producer.send_and_wait("t", b"value", key=b"hejsan")
            assert sent.partition == 0xD077037E % 17
            await producer.send_and_wait("t", b"value")
