"""What a consumer says of itself while a part of its partitions cannot be read."""

from __future__ import annotations

from aiokafka import ConsumerState
from aiokafka._compat import timeout
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.testing import FakeCluster, Silence
from tests.support.consumers import T0, T1, Start, fill, read
from tests.support.health import QUICK, SHORT_SESSIONS, until_state


async def test_what_is_paused_does_not_count(start: Start) -> None:
    """It is not read, so that its broker answers is no comfort."""
    async with FakeCluster(brokers=2, config=SHORT_SESSIONS) as cluster:
        await cluster.create_topic("t", assignment={0: [0], 1: [1]})
        consumer = await start(cluster, assign=[T0, T1], **QUICK)
        await until_state(consumer, ConsumerState.RUNNING)
        await cluster.stop_broker(1)
        fill(cluster, 0, 1)
        assert await read(consumer, 1) == [(0, 0)]
        assert consumer.health().state is ConsumerState.RUNNING
        consumer.pause(T0)
        await until_state(consumer, ConsumerState.UNREACHABLE)
        consumer.resume(T0)
        await until_state(consumer, ConsumerState.RUNNING)


async def test_the_lag_is_unknown_while_it_is_of_one_partition(start: Start) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", assignment={0: [0], 1: [1]})
        for partition in (0, 1):
            fill(cluster, partition, 3)
        silent = cluster.intercept(FetchRequest, Silence(), broker=1)
        consumer = await start(cluster, assign=[T0, T1], request_timeout_ms=500)
        async with timeout(20):
            assert await read(consumer, 1) == [(0, 0)]
            assert consumer.lag() == {T0: 2, T1: None}
            assert consumer.health().lag is None
            silent.remove()
            await cluster.wait_for(lambda: None not in consumer.lag().values())
            assert consumer.health().lag == 5
