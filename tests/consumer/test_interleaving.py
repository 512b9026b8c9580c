"""Any order of seek, pause, resume, assign, reading and faults: nothing skipped, nothing
repeated."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiokafka import AIOKafkaConsumer, TopicPartition, errors
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.testing import Cut, Delay, Fail, FakeCluster
from tests.support.consumers import fill, partition_error

PARTITIONS = 3
TPS = [TopicPartition("t", number) for number in range(PARTITIONS)]

FAULTS = [
    partition_error(errors.NotLeaderForPartitionError, 0),
    partition_error(errors.FencedLeaderEpoch, 1),
    partition_error(errors.OffsetNotAvailable, 2),
    Fail(errors.FetchSessionIdNotFound),
    Fail(errors.InvalidFetchSessionEpoch),
    Cut(handled=True),
    Delay(0.01),
]

partitions = st.integers(0, PARTITIONS - 1)
steps = st.one_of(
    st.tuples(st.just("write"), partitions, st.integers(1, 12)),
    st.tuples(st.just("getone"), st.booleans(), partitions),
    st.tuples(st.just("getmany"), st.integers(1, 9), st.sets(partitions)),
    st.tuples(st.just("cancel"), st.integers(0, 12), st.booleans()),
    st.tuples(st.just("seek"), partitions, st.integers(0, 30)),
    st.tuples(st.just("pause"), partitions, st.booleans()),
    st.tuples(st.just("assign"), st.sets(partitions), st.just(0)),
    st.tuples(st.just("drop"), st.just(0), st.just(0)),
    st.tuples(st.just("move"), partitions, st.integers(0, 1)),
    st.tuples(st.just("fault"), st.sampled_from(FAULTS), st.integers(1, 3)),
    st.tuples(st.just("turns"), st.integers(1, 8), st.just(0)),
)


class Run:
    """A consumer, and the model of what it must return: by partition, the next offset."""

    def __init__(self, cluster: FakeCluster, consumer: AIOKafkaConsumer) -> None:
        self.cluster = cluster
        self.consumer = consumer
        self.expected: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        self.paused: set[int] = set()

    def check(self, records: list[Any]) -> None:
        for record in records:
            number = record.partition
            assert number not in self.paused
            assert record.offset == self.expected[number]
            assert int(record.value) == record.offset
            self.expected[number] += 1

    def available(self, numbers: set[int]) -> bool:
        """Whether there is a record to read in one of these partitions."""
        live = (numbers or set(self.expected)) & self.expected.keys() - self.paused
        return any(self.expected[n] < self.cluster.log("t", n).end_offset for n in live)

    async def write(self, number: int, count: int) -> None:
        fill(self.cluster, number, count, batch=4)

    async def getone(self, is_filtered: bool, number: int) -> None:
        wanted = {number} if is_filtered else set()
        if self.available(wanted):
            self.check([await self.consumer.getone(*(TPS[n] for n in wanted))])

    async def getmany(self, limit: int, wanted: set[int]) -> None:
        timeout = 20_000 if self.available(wanted) else 0
        tps = [TPS[n] for n in wanted]
        found = await self.consumer.getmany(*tps, timeout_ms=timeout, max_records=limit)
        records = [record for batch in found.values() for record in batch]
        assert len(records) <= limit
        assert records or not timeout
        self.check(records)

    async def cancel(self, turns: int, many: bool) -> None:
        call: Any = self.consumer.getmany(timeout_ms=1000) if many else self.consumer.getone()
        task = asyncio.ensure_future(call)
        await self.turns(turns, 0)
        task.cancel()
        try:
            found = await task
        except asyncio.CancelledError:
            return
        self.check([r for batch in found.values() for r in batch] if many else [found])

    async def seek(self, number: int, offset: int) -> None:
        if number in self.expected:
            offset = min(offset, self.cluster.log("t", number).end_offset)
            self.consumer.seek(TPS[number], offset)
            self.expected[number] = offset

    async def pause(self, number: int, on: bool) -> None:
        if number not in self.expected:
            return
        (self.consumer.pause if on else self.consumer.resume)(TPS[number])
        (self.paused.add if on else self.paused.discard)(number)

    async def assign(self, numbers: set[int], _: int) -> None:
        self.consumer.assign([TPS[n] for n in numbers])
        self.expected = {n: self.expected.get(n, 0) for n in numbers}
        self.paused &= numbers

    async def drop(self, _: int, __: int) -> None:
        self.cluster.drop_connections()

    async def move(self, number: int, broker: int) -> None:
        self.cluster.move_leader(TPS[number], broker)

    async def fault(self, answer: Any, times: int) -> None:
        self.cluster.intercept(FetchRequest, answer, times=times)

    async def turns(self, count: int, _: int) -> None:
        for _turn in range(count):
            await asyncio.sleep(0)

    async def finish(self) -> None:
        """Read the rest, and see that every position is where it has to be."""
        self.consumer.resume(*self.consumer.assignment())
        self.paused.clear()
        while self.available(set()):
            self.check([await self.consumer.getone()])
        for number, offset in self.expected.items():
            assert await self.consumer.position(TPS[number]) == offset
        assert await self.consumer.getmany() == {}


async def run(script: list[tuple[str, Any, Any]]) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", partitions=PARTITIONS, replication_factor=2)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=20,
            retry_backoff_ms=5,
            reconnect_backoff_ms=5,
            max_partition_fetch_bytes=500,
            fetch_buffer_memory=4000,
        )
        consumer.assign(TPS)
        async with consumer:
            model = Run(cluster, consumer)
            for name, first, second in script:
                await getattr(model, name)(first, second)
            await model.finish()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(st.lists(steps, max_size=30))
def test_nothing_is_skipped_or_repeated(script: list[tuple[str, Any, Any]]) -> None:
    asyncio.run(run(script))
