"""Leaders of an older epoch than that of a committed offset: cut off from the others, or of a topic
that was created again (KIP-320)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import LeaderNotAvailableError, LogTruncationError
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from aiokafka.structs import OffsetAndMetadata
from aiokafka.testing import Cut, Fail, FakeCluster, Hold
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, fill, read

BY_HAND = {"group_id": "g", "enable_auto_commit": False}

# The first has no ids of topics.
VERSIONS = ["2.1", "2.8", "4.3"]


@asynccontextmanager
async def cut_off_leader(version: str) -> AsyncIterator[FakeCluster]:
    """Broker 0 has four records, and does not know that broker 1 or 2 leads since then. Those have
    twelve, of which the group has read ten."""
    async with FakeCluster(brokers=3, as_version=version) as cluster:
        await cluster.create_topic("t", replication_factor=3)
        cluster.move_coordinator("group", "g", 2)
        cluster.move_leader(T0, 0)
        fill(cluster, 0, 4)
        cluster.faults.isolate(0)
        fill(cluster, 0, 8)
        async with new_consumer(cluster, 2) as consumer:
            consumer.assign([T0])
            await read(consumer, 10)
            await consumer.commit()
        cluster.forget_requests()
        yield cluster


def new_consumer(cluster: FakeCluster, broker: int, *topics: str, **options: Any) -> Any:
    """A consumer that knows of one broker in the beginning."""
    options = {"auto_offset_reset": "earliest", **BY_HAND, **options}
    return AIOKafkaConsumer(*topics, bootstrap_servers=cluster.address(broker), **options)


@pytest.mark.parametrize("trouble", [0, 20], ids=["", "after other trouble"])
@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_leader_that_was_cut_off_is_not_believed(version: str, policy: str, trouble: int) -> None:
    """Another broker is asked who leads, although the consumer is connected to this one alone."""

    async def main(simulation: Simulation) -> list[tuple[int, int]]:
        async with cut_off_leader(version) as cluster:
            # What has failed before says nothing of the leader.
            cluster.intercept(
                OffsetForLeaderEpochRequest, Fail(LeaderNotAvailableError), times=trouble
            )
            async with new_consumer(cluster, 0, "t", auto_offset_reset=policy) as consumer:
                return await read(consumer, 2)

    assert simulate(main, limit_s=60) == [(0, 10), (0, 11)]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_first_leader_that_is_known_may_be_cut_off_as_well(version: str) -> None:
    """The committed offset comes before the metadata."""

    async def main(simulation: Simulation) -> list[tuple[int, int]]:
        async with cut_off_leader(version) as cluster:
            async with new_consumer(cluster, 0) as consumer:
                goes_on = asyncio.Event()
                cluster.intercept(MetadataRequest, Hold(goes_on), broker=0)
                for other in (1, 2):
                    cluster.intercept(MetadataRequest, Cut(), broker=other, times=1)
                consumer.assign([T0])
                assert await consumer.position(T0) == 10
                goes_on.set()
                return await read(consumer, 2)

    assert simulate(main, limit_s=60) == [(0, 10), (0, 11)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_consumer_that_reads_from_a_leader_that_was_cut_off(version: str) -> None:
    """Nothing shows that there is another one: the log seems to end."""

    async def main(simulation: Simulation) -> list[tuple[int, int]]:
        async with cut_off_leader(version) as cluster:
            async with new_consumer(cluster, 0, "t", group_id=None) as consumer:
                return await read(consumer, 12)

    # Twice `metadata_max_age_ms`
    assert simulate(main, limit_s=600) == [(0, n) for n in range(12)]


@pytest.mark.parametrize("version", VERSIONS)
def test_questions_of_the_application_do_not_take_the_place_of_a_refresh(version: str) -> None:
    """What is asked for them is not kept, so they are no look at another broker."""

    async def main(simulation: Simulation) -> list[tuple[int, int]]:
        async with cut_off_leader(version) as cluster:
            options = {"group_id": None, "metadata_max_age_ms": 600_000}
            async with new_consumer(cluster, 0, "t", **options) as consumer:

                async def look() -> None:
                    while True:
                        await consumer.topics()
                        await asyncio.sleep(20)

                looks = asyncio.create_task(look())
                try:
                    return await read(consumer, 12)
                finally:
                    looks.cancel()

    assert simulate(main, limit_s=1300) == [(0, n) for n in range(12)]


async def commit_of_another_topic(cluster: FakeCluster) -> None:
    """What is left of a topic that had a later epoch: the group has read ten of its records."""
    async with new_consumer(cluster, 0) as consumer:
        consumer.assign([T0])
        await consumer.commit({T0: OffsetAndMetadata(10, "", 5)})
    cluster.forget_requests()


@pytest.mark.parametrize("brokers", [1, 3])
@pytest.mark.parametrize("version", VERSIONS)
def test_without_a_policy_the_application_is_told(version: str, brokers: int) -> None:
    """It is not for the committed offset to be looked up, and compared, without end."""

    async def main(simulation: Simulation) -> int:
        async with FakeCluster(brokers=brokers, as_version=version) as cluster:
            await cluster.create_topic("t", replication_factor=brokers)
            fill(cluster, 0, 20)
            await commit_of_another_topic(cluster)
            async with new_consumer(cluster, 0, "t", auto_offset_reset="none") as consumer:
                for _ in range(3):
                    with pytest.raises(LogTruncationError) as caught:
                        await consumer.getone()
                    assert (caught.value.offset, caught.value.divergent_offset) == (10, None)
                asked = cluster.count(OffsetForLeaderEpochRequest)
                consumer.seek(T0, 0)
                assert await read(consumer, 20) == [(0, n) for n in range(20)]
            return asked

    # Once for each error, and ten times before: with one broker there is no other to know better.
    assert 0 <= simulate(main, limit_s=60) - (3 if brokers == 1 else 13) <= 2


@pytest.mark.parametrize("version", VERSIONS)
def test_a_leader_that_all_others_name_is_believed_in_the_end(version: str) -> None:
    async def main(simulation: Simulation) -> list[tuple[int, int]]:
        async with FakeCluster(brokers=3, as_version=version) as cluster:
            await cluster.create_topic("t", replication_factor=3)
            fill(cluster, 0, 4)
            await commit_of_another_topic(cluster)
            async with new_consumer(cluster, 0, "t", auto_offset_reset="latest") as consumer:
                found = await read(consumer, 4)
            # Each of them was asked.
            assert {seen.broker_id for seen in cluster.requests(MetadataRequest)} == {0, 1, 2}
            return found

    assert simulate(main, limit_s=60) == [(0, n) for n in range(4)]
