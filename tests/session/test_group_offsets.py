"""Offsets in a transaction are committed by the member that read the records, or not at all."""

from __future__ import annotations

import asyncio
import gc

import pytest

from aiokafka import AIOKafkaConsumer, ConsumerGroupMetadata
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.errors import (
    CommitFailedError,
    IllegalGenerationError,
    IllegalOperation,
    UnknownMemberIdError,
    UnknownTopicId,
)
from aiokafka.protocol.messages.group_members import JoinGroupRequest
from aiokafka.protocol.messages.transactions import TxnOffsetCommitRequest
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.structs import OffsetAndMetadata
from aiokafka.testing import FakeCluster, Hold, RequestContext
from tests.support.consumers import T0, T1, Start, fill
from tests.support.transactions import (
    READING,
    Produce,
    committed_values,
    members,
    put,
    stored,
    until,
)

COOPERATIVE = {**READING, "partition_assignment_strategy": [CooperativeStickyAssignor]}


# -- who a consumer is


async def test_metadata_of_a_member(cluster: FakeCluster, start: Start) -> None:
    consumer = await start(cluster, "t", **READING, group_instance_id="one")
    metadata = consumer.group_metadata()
    group = cluster.groups.classic["g"]
    assert metadata == ("g", group.generation, next(iter(group.members)), "one")
    with pytest.raises(AttributeError):
        metadata.generation_id = 5  # type: ignore[misc]


async def test_metadata_outside_a_group(cluster: FakeCluster, start: Start) -> None:
    assigned = await start(cluster, assign=[T0], **READING)
    assert assigned.group_metadata() == ConsumerGroupMetadata("g")
    alone = await start(cluster, "t")
    with pytest.raises(IllegalOperation, match="group_id"):
        alone.group_metadata()


async def test_metadata_of_a_member_that_left(cluster: FakeCluster, start: Start) -> None:
    consumer = await start(cluster, "t", **READING)
    await consumer.stop()
    with pytest.raises(CommitFailedError, match="not a member"):
        consumer.group_metadata()


# -- who commits


@pytest.mark.parametrize("given", ["id", "consumer", "metadata"])
async def test_the_member_commits(
    cluster: FakeCluster, start: Start, produce: Produce, given: str
) -> None:
    fill(cluster, 0, 3)
    consumer = await start(cluster, "t", **READING)
    producer = await produce(cluster)
    await consumer.getone(T0)
    group = {"id": "g", "consumer": consumer, "metadata": consumer.group_metadata()}[given]
    await put(producer, {T0: 1}, group)
    metadata = consumer.group_metadata()
    assert members(cluster) == [(metadata.generation_id, metadata.member_id)]
    assert metadata.generation_id > 0
    assert stored(cluster) == [1, None]


async def test_assigned_partitions_have_no_member(
    cluster: FakeCluster, start: Start, produce: Produce
) -> None:
    fill(cluster, 0, 3)
    consumer = await start(cluster, assign=[T0], **READING)
    producer = await produce(cluster)
    for group in ("g", consumer):
        await consumer.getone()
        await put(producer, {T0: await consumer.position(T0)}, group)
    assert members(cluster) == [(-1, "")] * 2
    assert stored(cluster) == [2, None]


@pytest.mark.parametrize(("release", "epoch"), [("0.11", -1), ("4.3", 7)])
async def test_leader_epochs_are_stored_where_there_is_room(
    produce: Produce, release: str, epoch: int
) -> None:
    async with FakeCluster(as_version=release) as cluster:
        await cluster.create_topic("t")
        await cluster.create_topic("out")
        producer = await produce(cluster)
        await put(producer, {T0: OffsetAndMetadata(5, "note", 7)}, "g")
        kept = cluster.groups.offsets_of("g").committed["t", 0]
        assert (kept.offset, kept.metadata, kept.leader_epoch) == (5, "note", epoch)
        await producer.stop()


def commits(cluster: FakeCluster) -> list[tuple[int, str, bytes]]:
    """Return version, topic and topic id of each TxnOffsetCommit."""
    return [
        (seen.version, topic.name, topic.topic_id)
        for seen in cluster.requests(TxnOffsetCommitRequest)
        for topic in seen.request.topics
    ]


@pytest.mark.parametrize("options", [{}, {"group_protocol": "consumer"}])
async def test_offsets_have_the_id_of_their_topic(
    cluster: FakeCluster, start: Start, produce: Produce, options: dict[str, str]
) -> None:
    """KIP-1319."""
    fill(cluster, 0, 3)
    options = {key: value for key, value in READING.items() if key[:9] != "heartbeat"} | options
    consumer = await start(cluster, "t", **options)
    producer = await produce(cluster)
    await consumer.getone(T0)
    await put(producer, {T0: 1}, consumer)
    assert commits(cluster) == [(6, "", cluster.state.topics["t"].topic_id)]
    assert stored(cluster) == [1, None]


async def test_without_the_id_of_each_topic_offsets_have_names(
    cluster: FakeCluster, start: Start, produce: Produce
) -> None:
    """The producer does not know the topics of another process's consumer."""
    producer = await produce(cluster)
    await put(producer, {T0: 1}, "g")
    assert commits(cluster) == [(5, "t", ZERO_UUID)]
    await producer.partitions_for("t")
    await put(producer, {T0: 2}, "g")
    assert commits(cluster)[1:] == [(6, "", cluster.state.topics["t"].topic_id)]


async def test_brokers_before_kafka_4_4_get_names(start: Start, produce: Produce) -> None:
    async with FakeCluster(as_version="4.3") as cluster:
        await cluster.create_topic("t", partitions=2)
        await cluster.create_topic("out")
        fill(cluster, 0, 3)
        consumer = await start(cluster, "t", **READING)
        producer = await produce(cluster)
        await consumer.getone(T0)
        await put(producer, {T0: 1}, consumer)
        assert [commit[:2] for commit in commits(cluster)] == [(5, "t")]
        await consumer.stop()
        await producer.stop()


async def test_an_offset_in_a_deleted_topic_is_not_stored_for_its_successor(
    cluster: FakeCluster, start: Start, produce: Produce
) -> None:
    fill(cluster, 0, 3)
    consumer = await start(cluster, "t", **READING)
    producer = await produce(cluster)
    await consumer.getone(T0)
    await cluster.delete_topic("t")
    await cluster.create_topic("t", partitions=2)
    with pytest.raises(UnknownTopicId, match="t-0 of group 'g'"):
        await put(producer, {T0: 1}, consumer)
    assert stored(cluster) == [None, None]
    # The producer goes on.
    await put(producer, {T1: 0}, "g")
    assert stored(cluster) == [None, 0]


async def test_nobody_reads_for_the_group(cluster: FakeCluster, produce: Produce) -> None:
    await put(await produce(cluster), {T0: 1}, "g")
    assert members(cluster) == [(-1, "")]


async def test_each_partition_has_its_reader(
    cluster: FakeCluster, start: Start, produce: Produce
) -> None:
    first, second = [await start(cluster, "t", **READING) for _ in range(2)]
    await until(lambda: len(first.assignment()) == len(second.assignment()) == 1)
    producer = await produce(cluster)
    await put(producer, {T0: 5, T1: 6}, "g")
    expected = [one.group_metadata() for one in (first, second)]
    assert sorted(members(cluster)) == sorted((m.generation_id, m.member_id) for m in expected)
    assert stored(cluster) == [5, 6]


async def test_a_group_of_another_cluster_is_another_group(
    cluster: FakeCluster, start: Start, produce: Produce
) -> None:
    fill(cluster, 0, 1)
    async with FakeCluster() as other:
        await other.create_topic("out")
        await other.create_topic("t")
        consumer = await start(cluster, "t", **READING)
        await consumer.getone()
        producer = await produce(other)
        await put(producer, {T0: 1}, "g")
        assert members(other) == [(-1, "")]
        await producer.stop()


async def test_brokers_before_fencing_get_no_member(start: Start, produce: Produce) -> None:
    async with FakeCluster(as_version="2.1") as cluster:
        await cluster.create_topic("t")
        await cluster.create_topic("out")
        fill(cluster, 0, 1)
        consumer = await start(cluster, "t", **READING)
        producer = await produce(cluster)
        await consumer.getone()
        await put(producer, {T0: 1}, consumer)
        assert stored(cluster, [0]) == [1]
        await consumer.stop()
        await producer.stop()


async def test_a_reader_is_forgotten_with_its_consumer(
    cluster: FakeCluster, start: Start, produce: Produce
) -> None:
    fill(cluster, 0, 1)
    consumer = AIOKafkaConsumer(
        "t",
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset="earliest",
        **READING,
    )
    await consumer.start()
    await consumer.getone()
    await consumer.stop()
    producer = await produce(cluster)
    with pytest.raises(CommitFailedError, match=r"revoked after|not a member"):
        await put(producer, {T0: 1}, "g")
    del consumer
    gc.collect()
    await put(producer, {T0: 1}, "g")
    assert stored(cluster, [0]) == [1]


# -- who is refused


@pytest.mark.parametrize("given", ["id", "consumer"])
async def test_a_partition_that_went_to_another_member(
    cluster: FakeCluster, start: Start, produce: Produce, given: str
) -> None:
    fill(cluster, 0, 3)
    fill(cluster, 1, 3)
    consumer = await start(cluster, "t", **READING, rebalance_timeout_ms=200)
    producer = await produce(cluster)
    for tp in (T0, T1):
        await consumer.getone(tp)
    await producer.begin_transaction()
    await producer.send("out", b"no", partition=0)
    other = await start(cluster, "t", **READING)
    await until(lambda: len(consumer.assignment()) == len(other.assignment()) == 1)
    group = "g" if given == "id" else consumer
    # Both were taken away; one has come back, and will be read again as well.
    with pytest.raises(CommitFailedError, match=r"t-0, t-1") as caught:
        await producer.send_offsets_to_transaction({T0: 1, T1: 1}, group)
    assert caught.value.requires_abort
    await producer.abort_transaction()
    assert members(cluster) == []
    (kept,) = consumer.assignment()
    await consumer.getone(kept)
    await put(producer, {kept: 1}, group)
    assert committed_values(cluster) == [b"v"]


async def test_the_position_of_a_partition_that_came_back(
    cluster: FakeCluster, start: Start, produce: Produce
) -> None:
    fill(cluster, 0, 3)
    consumer = await start(cluster, "t", **READING, rebalance_timeout_ms=1000)
    producer = await produce(cluster)
    await consumer.getone(T0)
    before = consumer.group_metadata()
    cluster.groups.rebalance("g")
    await until(lambda: consumer.group_metadata() != before)
    with pytest.raises(CommitFailedError):
        await put(producer, {T0: 1}, "g")
    position = await consumer.position(T0)
    assert position == 0
    # The application may still have the record, and what it made of it in the transaction.
    with pytest.raises(CommitFailedError):
        await put(producer, {T0: position}, "g")
    await consumer.getmany(T1, timeout_ms=0)
    await put(producer, {T0: position}, "g")
    assert stored(cluster) == [0, None]


@pytest.mark.parametrize("given", ["id", "consumer"])
async def test_another_member_got_as_far_with_the_same_records(
    cluster: FakeCluster, start: Start, produce: Produce, given: str
) -> None:
    fill(cluster, 0, 3)
    consumer = await start(cluster, "t", **READING, client_id="slow")
    producer, others = await produce(cluster), await produce(cluster, transactional_id="other")
    records = (await consumer.getmany(T0, timeout_ms=5000))[T0]
    await producer.begin_transaction()
    for record in records:
        await producer.send("out", record.value, partition=0)

    # The consumer counts as dead for a while, and another one does its work.
    may_join = asyncio.Event()

    def hold(_: JoinGroupRequest, context: RequestContext) -> Hold | None:
        return Hold(may_join) if context.client_id == "slow" else None

    with cluster.intercept(JoinGroupRequest, hold) as joins:
        (member_id,) = cluster.groups.classic["g"].members
        cluster.groups.expire("g", member_id)
        await until(lambda: joins.hits > 0)
        other = await start(cluster, "t", **READING)
        await put(others, {T0: len(records)}, other)
        await other.stop()
        may_join.set()
        await until(lambda: T0 in consumer.assignment())
    assert await consumer.position(T0) == len(records)

    group = "g" if given == "id" else consumer
    with pytest.raises(CommitFailedError, match="t-0"):
        await producer.send_offsets_to_transaction({T0: len(records)}, group)
    await producer.abort_transaction()
    assert committed_values(cluster) == [b"v"]


@pytest.mark.parametrize("given", ["id", "consumer", "metadata"])
async def test_a_member_that_was_removed(
    cluster: FakeCluster, start: Start, produce: Produce, given: str
) -> None:
    fill(cluster, 0, 1)
    consumer = await start(cluster, "t", **{**READING, "heartbeat_interval_ms": 3000})
    producer = await produce(cluster)
    await consumer.getone()
    metadata = consumer.group_metadata()
    group = {"id": "g", "consumer": consumer, "metadata": metadata}[given]
    await producer.begin_transaction()
    await producer.send("out", b"no", partition=0)
    cluster.groups.expire("g", metadata.member_id)
    with pytest.raises((IllegalGenerationError, UnknownMemberIdError)) as caught:
        await producer.send_offsets_to_transaction({T0: 1}, group)
    assert caught.value.requires_abort
    await producer.abort_transaction()
    assert committed_values(cluster) == []


async def test_metadata_of_an_older_generation(
    cluster: FakeCluster, start: Start, produce: Produce
) -> None:
    consumer = await start(cluster, "t", **READING)
    producer = await produce(cluster)
    before = consumer.group_metadata()
    cluster.groups.rebalance("g")
    await until(lambda: consumer.group_metadata() != before)
    with pytest.raises(IllegalGenerationError):
        await put(producer, {T0: 1}, before)
    await put(producer, {T0: 1}, consumer.group_metadata())
    assert stored(cluster) == [1, None]


async def test_partitions_that_stay_are_committed_in_the_next_generation(
    cluster: FakeCluster, start: Start, produce: Produce
) -> None:
    fill(cluster, 0, 1)
    consumer = await start(cluster, "t", **COOPERATIVE)
    producer = await produce(cluster)
    await consumer.getone()
    before = consumer.group_metadata()
    release = asyncio.Event()
    await producer.begin_transaction()
    with cluster.intercept(TxnOffsetCommitRequest, Hold(release), times=1) as held:
        sending = asyncio.ensure_future(producer.send_offsets_to_transaction({T0: 1}, "g"))
        await held.wait()
        await start(cluster, "out", **COOPERATIVE)
        await until(lambda: consumer.group_metadata() != before)
        release.set()
        await sending
    await producer.commit_transaction()
    assert stored(cluster) == [1, None]
    assert len(members(cluster)) == 2
