"""Batches are compressed a few in each turn of the event loop, and leave together."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.errors import KafkaError
from aiokafka.metrics import ProducerMetricsCollector
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.protocol.messages.transactions import AddPartitionsToTxnRequest
from aiokafka.structs import RecordMetadata
from aiokafka.testing import FakeCluster, Hold
from tests.support.producers import new_producer, results, values

TOPIC = "wide"
PARTITIONS = 8
# Each is a batch of its own, and more than gzip gets done in a turn.
LARGE = b"value " * 15_000


class Turns(ProducerMetricsCollector):
    """Counts the turns of the event loop, and notes in which of them batches come and go."""

    def __init__(self) -> None:
        self.number = 0
        self.completed: list[int] = []
        self.dispatched: list[int] = []
        self.answered = asyncio.Event()
        self._tick()

    def _tick(self) -> None:
        self.number += 1
        self._handle = asyncio.get_running_loop().call_soon(self._tick)

    def close(self) -> None:
        self._handle.cancel()

    def on_batch_dispatched(self, **_: Any) -> None:
        self.dispatched.append(self.number)

    def on_batch_completed(self, **_: Any) -> None:
        self.completed.append(self.number)
        self.answered.set()


@pytest.fixture
async def turns() -> Any:
    found = Turns()
    yield found
    found.close()


@pytest.fixture
async def wide(cluster: FakeCluster) -> FakeCluster:
    await cluster.create_topic(TOPIC, partitions=PARTITIONS + 1)
    return cluster


@asynccontextmanager
async def under_way(
    cluster: FakeCluster, turns: Turns, **options: Any
) -> AsyncIterator[tuple[AIOKafkaProducer, list[asyncio.Future[RecordMetadata]]]]:
    """A producer that has room for its second request, which it compresses, and its futures."""
    async with new_producer(
        cluster,
        metrics_collector=turns,
        max_in_flight_requests_per_connection=1,
        max_request_size=10_000_000,
        max_batch_size=10_000_000,
        **{"compression_type": "gzip", **options},
    ) as producer:
        release = asyncio.Event()
        with cluster.intercept(ProduceRequest, Hold(release)) as held:
            await producer.send(TOPIC, b"first", partition=0)
            await held.wait()
            sent = [await producer.send(TOPIC, LARGE, partition=one) for one in range(PARTITIONS)]
            release.set()
            await turns.answered.wait()
            yield producer, sent


@pytest.mark.parametrize(
    ("codec", "level", "least", "most"),
    # A machine that does other things meanwhile makes turns long, and then more is done in each.
    [(None, None, 0, 2), ("gzip", None, 4, 9), ("zstd", 15, 4, 9)],
)
async def test_the_loop_has_turns_while_a_request_is_compressed(
    wide: FakeCluster, turns: Turns, codec: str | None, level: int | None, least: int, most: int
) -> None:
    options: Any = {"compression_type": codec, "compression_level": level}
    async with under_way(wide, turns, **options) as (_, sent):
        await asyncio.gather(*sent)
    # The first response has made room for one request, which all of them leave with.
    assert len(wide.requests(ProduceRequest)) == 2
    assert turns.dispatched[1:] == turns.dispatched[1:2] * PARTITIONS
    assert least <= turns.dispatched[1] - turns.completed[0] <= most


@pytest.mark.real_time
async def test_an_application_whose_turns_are_long(wide: FakeCluster, turns: Turns) -> None:
    """Its records are not left behind: the longer it takes, the more is done in each turn."""
    async with under_way(wide, turns):
        assert len(turns.dispatched) == 1
        count = 0
        while len(turns.dispatched) == 1:
            _work(0.04)
            await asyncio.sleep(0)
            count += 1
        assert count < 6  # one for each batch otherwise
    assert len(turns.dispatched) == 1 + PARTITIONS


def _work(seconds: float) -> None:
    """Keep the event loop for so long, as an application does with many tasks in each turn."""
    time.sleep(seconds)


async def test_what_is_dropped_while_it_is_compressed(wide: FakeCluster, turns: Turns) -> None:
    """What comes meanwhile is looked at in another turn, though nothing was sent in this one."""
    async with under_way(wide, turns) as (producer, dropped):
        assert len(turns.dispatched) == 1
        producer.abort_buffered()
        async with timeout(10):
            await producer.send_and_wait(TOPIC, b"later", partition=PARTITIONS)
        assert {type(error) for error in await results(dropped)} == {KafkaError}
    assert values(wide, PARTITIONS, TOPIC) == [b"later"]


async def test_a_request_that_is_full_of_what_may_not_leave_yet() -> None:
    """What is behind it is compressed and sent without it."""
    options: Any = {"compression_type": "lz4", "max_request_size": 150_000}
    release = asyncio.Event()
    # Older brokers learn of each partition of a transaction before its first batch.
    async with FakeCluster(as_version="3.9") as wide:
        await wide.create_topic(TOPIC, partitions=PARTITIONS)
        producer = new_producer(wide, transactional_id="worker", **options)
        async with producer, producer.transaction():
            await producer.send_and_wait(TOPIC, b"first", partition=0)
            with wide.intercept(AddPartitionsToTxnRequest, Hold(release)) as held:
                pad = random.Random(1).randbytes(100_000)
                waiting = [await producer.send(TOPIC, pad, partition=one) for one in (1, 2, 3)]
                sent = await producer.send(TOPIC, b"second", partition=0)
                await held.wait()
                async with timeout(10):
                    await sent
                assert not any(future.done() for future in waiting)
                release.set()
        assert values(wide, 3, TOPIC) == [pad]


@pytest.mark.real_time
async def test_an_application_that_goes_on_sending(wide: FakeCluster) -> None:
    """A request does not wait for what comes while it is compressed."""
    async with new_producer(
        wide, compression_type="gzip", max_request_size=100_000_000
    ) as producer:
        first = await producer.send(TOPIC, LARGE, partition=0)
        count = 0
        while not first.done():
            await producer.send(TOPIC, LARGE, partition=count % PARTITIONS)
            count += 1
            assert count < 300
        await producer.flush()
    assert sum(len(values(wide, one, TOPIC)) for one in range(PARTITIONS)) == count + 1


async def test_the_order_of_a_partition(wide: FakeCluster) -> None:
    """Batches of one partition leave in their order, whichever turn they were compressed in."""
    pads = [b"%d " % number * 3_000 for number in range(100)]
    async with new_producer(wide, compression_type="gzip", enable_idempotence=True) as producer:
        for number, pad in enumerate(pads):
            await producer.send(TOPIC, pad, partition=number % 2)
            if not number % 7:
                await asyncio.sleep(0)
        await producer.flush()
    assert values(wide, 0, TOPIC) == pads[::2]
    assert values(wide, 1, TOPIC) == pads[1::2]
