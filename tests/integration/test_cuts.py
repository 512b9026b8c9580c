"""A real broker behind a network that breaks at any byte: everything arrives exactly once."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import RecordMetadata
from aiokafka.testing.proxy import Direction, FaultProxy
from tests.kafka.fixtures import Scale, need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.processes import free_port
from tests.kafka.settings import HOST, PLAINTEXT, Extras
from tests.kafka.topics import create_topic

PARTITIONS = 2
BATCH = 12
"""Records between two cuts, in batches of a few."""

MISSES = 3
"""Turns in a row that are over before their cut: there is no later place."""

pytestmark = pytest.mark.long


class Network:
    """A broker that clients reach through `proxy`, while it talks to itself without."""

    def __init__(self, cluster: KafkaCluster, proxy: FaultProxy) -> None:
        self.direct = cluster.addresses(PLAINTEXT)
        self.proxy = proxy

    async def new_topic(self) -> str:
        name = f"cut-{uuid.uuid4().hex[:8]}"
        await create_topic(self.direct, name, PARTITIONS)
        return name

    def producer(self, **options: object) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            bootstrap_servers=self.proxy.address,
            max_batch_size=100,
            retry_backoff_ms=5,
            reconnect_backoff_ms=5,
            **options,  # type: ignore[arg-type]
        )

    async def committed_records(self, topic: str) -> list[list[bytes | None]]:
        """What a reader of committed records sees up to the end of each partition."""
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.direct,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        found: list[list[bytes | None]] = [[] for _ in partitions]
        # The ends of what is written, not of what is visible: a commit returns before the last
        # markers are in the logs.
        everything = AIOKafkaConsumer(bootstrap_servers=self.direct)
        async with consumer, everything:
            ends = await everything.end_offsets(partitions)
            for tp in partitions:
                while await consumer.position(tp) < ends[tp]:
                    for source, records in (await consumer.getmany(timeout_ms=200)).items():
                        found[source.partition].extend(record.value for record in records)
        return found


@pytest.fixture(scope="module")
def broker() -> Iterator[tuple[KafkaCluster, int]]:
    """A broker, and the port on which it tells clients to connect."""
    need_own_brokers()
    port = free_port()
    extras = Extras(listeners={"CUT": PLAINTEXT}, advertised={"CUT": f"{HOST}:{port}"})
    with KafkaCluster(extras=extras) as cluster:
        yield cluster, port


@pytest.fixture
async def network(broker: tuple[KafkaCluster, int]) -> AsyncIterator[Network]:
    cluster, port = broker
    async with FaultProxy(cluster.addresses("CUT"), port=port) as proxy:
        yield Network(cluster, proxy)


def payloads(turn: int) -> list[bytes]:
    return [b"%d-%d" % (turn, number) for number in range(BATCH)]


async def send(
    producer: AIOKafkaProducer, topic: str, turn: int
) -> list[asyncio.Future[RecordMetadata]]:
    return [
        await producer.send(topic, value, partition=number % PARTITIONS)
        for number, value in enumerate(payloads(turn))
    ]


def shares(turns: list[int]) -> list[list[bytes]]:
    """What each partition holds after these turns."""
    values = [payloads(turn) for turn in turns]
    return [
        [v for turn in values for v in turn[number::PARTITIONS]] for number in range(PARTITIONS)
    ]


async def cut_everywhere(
    proxy: FaultProxy, direction: Direction, step: int, turn: Callable[[int], Awaitable[None]]
) -> int:
    """Take one turn as it is, then others, each cut `step` bytes later than the one before, as long
    as they last; return how many there were.

    How many bytes a turn takes differs from turn to turn, by how many of its records meet in a
    request. A machine that was busy in the first turn must not decide where the last cut is.
    """
    await turn(0)
    turns, cuts, missed = 1, 0, 0
    while missed < MISSES:
        place = (turns - 1) * step
        before = proxy.forwarded[direction]
        proxy.cut_after(place, direction)
        await turn(turns)
        proxy.restore()
        is_cut = proxy.forwarded[direction] - before >= place
        turns, cuts = turns + 1, cuts + is_cut
        missed = 0 if is_cut else missed + 1
    # After each cut but the last, which may be at the very end of what is to be done.
    assert proxy.accepted >= cuts
    return turns


@pytest.mark.parametrize("direction", ["requests", "responses"])
async def test_idempotent(network: Network, scale: Scale, direction: Direction) -> None:
    topic = await network.new_topic()
    async with network.producer() as producer:

        async def deliver(turn: int) -> None:
            await asyncio.gather(*await send(producer, topic, turn))

        turns = await cut_everywhere(network.proxy, direction, scale(71, 1), deliver)
    assert await network.committed_records(topic) == shares(list(range(turns)))


@pytest.mark.parametrize("direction", ["requests", "responses"])
async def test_transactional(network: Network, scale: Scale, direction: Direction) -> None:
    """Every third transaction is aborted. Offsets of a group are part of each."""
    topic = await network.new_topic()
    source, kept = TopicPartition(topic, 0), []

    async def transact(turn: int) -> None:
        await producer.begin_transaction()
        futures = await send(producer, topic, turn)
        await producer.send_offsets_to_transaction({source: turn}, topic)
        if turn % 3 == 2:
            await asyncio.gather(*futures)
            await producer.abort_transaction()
        else:
            await producer.commit_transaction()
            kept.append(turn)

    async with network.producer(transactional_id=topic) as producer:
        await cut_everywhere(network.proxy, direction, scale(71, 1), transact)
    assert await network.committed_records(topic) == shares(kept)
    async with AIOKafkaConsumer(bootstrap_servers=network.direct, group_id=topic) as consumer:
        assert await consumer.committed(source) == kept[-1]
