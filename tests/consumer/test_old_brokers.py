"""What consumers do about brokers of long ago."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiokafka import AIOKafkaConsumer
from aiokafka._compat import timeout
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    RecordTooLargeError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.testing import Edit, Fail, FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, T1, Start, fill, name_epochs_of_before, read

LIMIT = 1000


@pytest.fixture(autouse=True)
def _soon_taken_for_0_9(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that leaves ApiVersions unanswered is otherwise waited for for two seconds."""
    monkeypatch.setattr("aiokafka.net.connector._PROBE_AFTER", 0.1)


@pytest.mark.parametrize("version", ["0.9", "0.10.2"])
async def test_topics_that_match_a_pattern(version: str) -> None:
    """Version 0 of Metadata has no word for "all topics" but an empty list."""
    async with FakeCluster(as_version=version) as cluster:
        for name in ("t", "t2", "other"):
            await cluster.create_topic(name)
        consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers)
        consumer.subscribe(pattern="^t")
        async with timeout(20), consumer:
            assert {tp.topic for tp in consumer.assignment()} == {"t", "t2"}
            assert await consumer.topics() == {"t", "t2", "other"}


async def test_times_cannot_be_looked_up_in_kafka_0_9(start: Start) -> None:
    """It knows the times of whole files only."""
    async with FakeCluster(as_version="0.9") as cluster:
        await cluster.create_topic("t")
        fill(cluster, 0, 3)
        consumer = await start(cluster, assign=[T0])
        async with timeout(20):
            with pytest.raises(UnsupportedVersionError, match=r"offsets by time.*0\.10\.1"):
                await consumer.offsets_for_times({T0: 1000})
            assert await consumer.end_offsets([T0]) == {T0: 3}


@pytest.mark.parametrize("size", [8, 16, 17, 40, 90])
async def test_a_record_that_does_not_fit_is_too_large(
    cluster: FakeCluster, start: Start, size: int
) -> None:
    """Before Kafka 0.10.1 a fetch brings as much of a record as was asked for, and no more."""
    await cluster.create_topic("t")
    fill(cluster, 0, 1)
    cluster.log("t", 0).append(b"1" * LIMIT)
    fill_from = cluster.log("t", 0).end_offset
    cluster.log("t", 0).append(b"%d" % fill_from)

    def cut(response: FetchResponse) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                if data.records and len(data.records) > LIMIT:
                    data.records = bytes(data.records)[:size]

    cluster.intercept(FetchRequest, Edit(cut))
    consumer = await start(cluster, assign=[T0], max_partition_fetch_bytes=LIMIT)
    consumer.seek(T0, 1)
    async with timeout(20):
        for _ in range(2):
            with pytest.raises(RecordTooLargeError, match=f"max_partition_fetch_bytes={LIMIT}"):
                await consumer.getone()
        consumer.seek(T0, 2)
        assert (await consumer.getone()).offset == 2


async def test_a_broker_that_may_not_tell_where_a_leader_began(start: Start) -> None:
    """With an authorizer, Kafka 2.1 and 2.2 tell other brokers only: clients would need the right
    to be one (ClusterAction). What comes after a new leader is read without a comparison."""
    async with FakeCluster(brokers=2, as_version="2.1") as cluster:
        await cluster.create_topic("t", replication_factor=2)
        fill(cluster, 0, 3)
        refused = cluster.intercept(
            OffsetForLeaderEpochRequest, Fail(ClusterAuthorizationFailedError)
        )
        consumer = await start(cluster, "t", metadata_max_age_ms=50)
        async with timeout(20):
            assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
            cluster.move_leader(T0, 1 - cluster.partition("t").leader)
            fill(cluster, 0, 2)
            assert await read(consumer, 2) == [(0, 3), (0, 4)]
        assert refused.hits == 1


def unknown_epochs(response: OffsetForLeaderEpochResponse) -> None:
    """Know nothing of any epoch, as of a log whose format is older than Kafka 0.11."""
    for topic in response.topics:
        for end in topic.partitions:
            end.leader_epoch = end.end_offset = -1


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_the_end_of_a_log_without_epochs_is_not_taken_for_cut(
    start: Start, is_restarted: bool
) -> None:
    """ListOffsets names the leader's epoch with it; no record has one."""
    async with FakeCluster(brokers=2, as_version="2.8") as cluster:
        await cluster.create_topic("t", replication_factor=2)
        fill(cluster, 0, 5)
        cluster.intercept(OffsetForLeaderEpochRequest, Edit(unknown_epochs))
        options = {"group_id": "g", "auto_offset_reset": "latest", "metadata_max_age_ms": 50}
        consumer = await start(cluster, "t", **options)
        async with timeout(20):
            assert await consumer.position(T0) == 5
            if is_restarted:
                await consumer.commit()
                await consumer.stop()
            cluster.move_leader(T0, 1 - cluster.partition("t").leader)
            fill(cluster, 0, 3)
            if is_restarted:
                consumer = await start(cluster, "t", **options)
            assert await read(consumer, 3) == [(0, 5), (0, 6), (0, 7)]


@asynccontextmanager
async def reassigned() -> AsyncIterator[FakeCluster]:
    """Five records, of which a group has read two, and metadata that lacks the last epoch."""
    async with FakeCluster(brokers=2, as_version="2.1") as cluster:
        await cluster.create_topic("t", replication_factor=2)
        for leader in (1, 0):
            cluster.move_leader(T0, leader)
        fill(cluster, 0, 5)
        async with of_group(cluster) as consumer:
            assert await read(consumer, 2) == [(0, 0), (0, 1)]
            await consumer.commit()
        cluster.intercept(MetadataRequest, Edit(name_epochs_of_before))
        yield cluster


def of_group(cluster: FakeCluster, group_id: str = "g") -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        group_id=group_id,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )


@pytest.mark.parametrize("group_id", ["g", "new"])
def test_a_partition_that_is_reassigned_is_read(group_id: str) -> None:
    """Its leader refuses the epoch that the metadata goes on naming (KAFKA-9212)."""

    async def main(simulation: Simulation) -> None:
        async with reassigned() as cluster:
            async with of_group(cluster, group_id) as consumer:
                first = 2 if group_id == "g" else 0
                assert await read(consumer, 5 - first) == [(0, n) for n in range(first, 5)]
                fill(cluster, 0, 3)
                assert await read(consumer, 3) == [(0, 5), (0, 6), (0, 7)]
                cluster.move_leader(T0, 1)
                fill(cluster, 0, 2)
                assert await read(consumer, 2) == [(0, 8), (0, 9)]

    simulate(main, limit_s=60)


def test_a_broker_that_is_an_older_one_after_a_restart() -> None:
    """Kafka 1.0 has no fetch sessions, in which it could be told what to leave out."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster(as_version="1.1") as cluster:
            await cluster.create_topic("t", partitions=2)
            fill(cluster, 0, 2)
            fill(cluster, 1, 1)
            consumer = AIOKafkaConsumer(
                bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
            )
            consumer.assign([T0, T1])
            async with consumer:
                assert sorted(await read(consumer, 3)) == [(0, 0), (0, 1), (1, 0)]
                # No fetch is on its way then that would fail with the broker.
                consumer.pause(T0, T1)
                await asyncio.sleep(1)
                await cluster.stop_broker(0)
                cluster.set_release(0, "0.11")
                await cluster.start_broker(0)
                # Nor one that has to wait for the broker.
                await asyncio.sleep(1)
                fill(cluster, 0, 2)
                consumer.resume(T0)
                assert await read(consumer, 2) == [(0, 2), (0, 3)]

    simulate(main, limit_s=60)


def test_offsets_of_a_partition_that_is_reassigned_are_found() -> None:
    async def main(simulation: Simulation) -> None:
        async with reassigned() as cluster, of_group(cluster, "other") as consumer:
            assert await consumer.end_offsets([T0]) == {T0: 5}
            assert await consumer.beginning_offsets([T0]) == {T0: 0}

    simulate(main, limit_s=60)
