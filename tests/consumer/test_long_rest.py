"""What brokers forget of partitions in which nothing is written for long."""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer
from aiokafka.protocol.messages.offset_commit import OffsetCommitRequest
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, fill, read

HOUR_MS = 3_600_000


def test_auto_commit_keeps_the_offset_of_a_quiet_partition() -> None:
    """It was stored once. Of a consumer that is no member a broker drops it after
    `offsets.retention.minutes`: the next start began where the reset policy says."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            fill(cluster, 0, 5)
            consumer = AIOKafkaConsumer(
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                auto_offset_reset="earliest",
                fetch_max_wait_ms=60_000,
            )
            consumer.assign([T0])
            async with consumer:
                await read(consumer, 5)
                assert await consumer.getmany(timeout_ms=HOUR_MS / 2) == {}
                assert cluster.groups.committed("g", "t") == 5
                commits = cluster.count(OffsetCommitRequest)
                cluster.groups.offsets_of("g").delete(("t", 0))
                assert await consumer.getmany(timeout_ms=2 * HOUR_MS) == {}
                assert cluster.groups.committed("g", "t") == 5
                assert cluster.count(OffsetCommitRequest) == commits + 2

    simulate(main, limit_s=20_000)
