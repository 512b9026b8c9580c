"""Replicas with logs of their own: what lags, what is in sync, what an election loses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka.protocol.messages.fetch import (
    FetchRequest,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    PartitionData,
)
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import FakeCluster

from .support import RawClient, batch, fetch_request, produce, produce_request

T = ("t", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(3, seed=7) as started:
        await started.create_topic("t", assignment={0: [0, 1, 2]})
        started.replication.use()
        yield started
        assert started.failures == []


def be_impatient(cluster: FakeCluster) -> None:
    """Let who is behind leave the ISR soon."""
    cluster.state.config["replica.lag.time.max.ms"] = "20"


def stored(cluster: FakeCluster, broker: int) -> list[bytes | None]:
    return [record.value for record in cluster.replication.log(T, broker).records()]


async def ask(cluster: FakeCluster, broker: int, *args: Any, **options: Any) -> PartitionData:
    async with RawClient(cluster.address(broker)) as client:
        response = await client.call(fetch_request(*args, **options), 12)
        return response.responses[0].partitions[0]


async def send(cluster: FakeCluster, broker: int, value: bytes, **options: Any) -> int:
    async with RawClient(cluster.address(broker)) as client:
        return (await produce(client, "t", batch(value), **options)).error_code


async def test_without_faults_replicas_are_equal_at_once(cluster: FakeCluster) -> None:
    assert await send(cluster, 0, b"a") == 0
    assert await send(cluster, 0, b"b", acks=1) == 0
    for broker in range(3):
        assert stored(cluster, broker) == [b"a", b"b"]
        assert cluster.replication.log(T, broker).high_watermark == 2
    assert cluster.replication.isr(T) == [0, 1, 2]


async def test_all_waits_for_the_lag_and_one_does_not(cluster: FakeCluster) -> None:
    cluster.replication.lag((0.01, 0.02))
    assert await send(cluster, 0, b"a", acks=1) == 0
    assert cluster.log("t").high_watermark == 0
    assert await send(cluster, 0, b"b", acks=-1, timeout_ms=30_000) == 0
    assert cluster.log("t").high_watermark == 2
    await cluster.wait_for(lambda: cluster.replication.log(T, 2).high_watermark == 2)
    assert stored(cluster, 1) == stored(cluster, 2) == [b"a", b"b"]


async def test_consumers_see_what_the_isr_has(cluster: FakeCluster) -> None:
    cluster.replication.stall(T, 2)
    await send(cluster, 0, b"a", acks=1)
    data = await ask(cluster, 0, "t")
    assert (data.error_code, data.high_watermark, data.records) == (0, 0, b"")
    cluster.replication.resume(T, 2)
    assert (await ask(cluster, 0, "t")).high_watermark == 1


async def test_who_is_behind_leaves_the_isr_and_comes_back(cluster: FakeCluster) -> None:
    be_impatient(cluster)
    cluster.replication.stall(broker_id=2)
    waiting = asyncio.create_task(send(cluster, 0, b"a", timeout_ms=30_000))
    await cluster.wait_for(lambda: cluster.replication.isr(T) == [0, 1])
    assert await waiting == 0  # two of three are enough
    async with RawClient(cluster.address(1)) as client:
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        found = (await client.call(wanted, 9)).topics[0].partitions[0]
    assert (found.isr_nodes, found.offline_replicas) == ([0, 1], [])
    cluster.replication.resume(broker_id=2)
    assert cluster.replication.isr(T) == [0, 1, 2]
    assert stored(cluster, 2) == [b"a"]


async def test_too_few_in_sync(cluster: FakeCluster) -> None:
    be_impatient(cluster)
    cluster.state.topics["t"].config["min.insync.replicas"] = "3"
    cluster.replication.stall(broker_id=2)
    waiting = asyncio.create_task(send(cluster, 0, b"a", timeout_ms=300))
    await cluster.wait_for(lambda: cluster.replication.isr(T) == [0, 1])
    assert await send(cluster, 0, b"b") == 19
    assert await waiting == 7  # it is written, and stays invisible: since 3.7 the mark waits
    assert (cluster.log("t").end_offset, cluster.log("t").high_watermark) == (1, 0)
    cluster.replication.resume(broker_id=2)
    assert cluster.log("t").high_watermark == 1


async def test_older_brokers_tell_that_too_few_have_it() -> None:
    config = {"replica.lag.time.max.ms": 20, "min.insync.replicas": 2}
    async with FakeCluster(2, as_version="2.8", config=config) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        cluster.replication.stall(broker_id=1)
        assert await send(cluster, 0, b"a", timeout_ms=30_000) == 20
        assert cluster.log("t").high_watermark == 1


async def test_a_clean_election_loses_only_what_one_alone_had(cluster: FakeCluster) -> None:
    await send(cluster, 0, b"a")
    cluster.replication.stall(T)
    assert await send(cluster, 0, b"lost", acks=1) == 0
    waiting = asyncio.create_task(send(cluster, 0, b"lost too", timeout_ms=30_000))
    await cluster.wait_for(lambda: cluster.count(ProduceRequest) == 3)
    assert cluster.controller.elect(T, 1) == 1
    assert await waiting == 6  # the former leader cannot promise it
    assert [r.value for r in cluster.log("t").records()] == [b"a"]
    cluster.replication.heal()
    assert await send(cluster, 1, b"b") == 0
    for broker in range(3):
        assert stored(cluster, broker) == [b"a", b"b"]
    assert await send(cluster, 0, b"c") == 6


async def test_another_leads_one_of_two_partitions_while_both_are_waited_for(
    cluster: FakeCluster,
) -> None:
    await cluster.create_topic("two", assignment={0: [0, 1], 1: [0, 1]})
    for number in (0, 1):
        cluster.replication.use(("two", number))
        cluster.replication.stall(("two", number), 1)
    request = produce_request("two", batch(b"a"), timeout_ms=30_000)
    second = produce_request("two", batch(b"a"), partition=1)
    request.topic_data[0].partition_data += second.topic_data[0].partition_data
    async with RawClient(cluster.address(0)) as client:
        waiting = asyncio.create_task(client.call(request, 9))
        await cluster.wait_for(lambda: cluster.count(ProduceRequest) == 1)
        cluster.controller.elect(("two", 1), 1)
        async with RawClient(cluster.address(1)) as other:
            assert (await produce(other, "two", batch(b"b"), partition=1)).error_code == 0
        # Its former leader has a record at that offset again: another one.
        cluster.replication.resume(("two", 0), 1)
        answers = (await waiting).responses[0].partition_responses
    assert [answer.error_code for answer in answers] == [0, 6]


async def test_a_new_leader_waits_for_its_followers(cluster: FakeCluster) -> None:
    await send(cluster, 0, b"a")
    cluster.replication.stall(T, 2)
    await send(cluster, 0, b"b", acks=1)  # one follower has it, so the mark stays
    cluster.controller.elect(T, 1)
    assert cluster.log("t").high_watermark == 1
    assert (await find(cluster, 1, -1)).error_code == 78
    assert (await find(cluster, 1, -1, version=4)).error_code == 5
    assert (await find(cluster, 1, -2)).offset == 0
    cluster.replication.resume(T, 2)
    assert (await find(cluster, 1, -1)).offset == 2
    assert [r.value for r in cluster.log("t").records()] == [b"a", b"b"]


async def test_a_pause_goes_on_when_another_broker_leads(cluster: FakeCluster) -> None:
    cluster.log("t").pause_replication()
    cluster.controller.elect(T, 1)

    await send(cluster, 1, b"1", acks=1)

    assert cluster.log("t").high_watermark == 0
    cluster.log("t").resume_replication()
    assert cluster.log("t").high_watermark == 1
    cluster.move_leader(T, 0)
    assert cluster.log("t").high_watermark == 1


async def find(
    cluster: FakeCluster, broker: int, timestamp: int, version: int = 9
) -> ListOffsetsPartitionResponse:
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topic = ListOffsetsTopic(name="t", partitions=[part])
    async with RawClient(cluster.address(broker)) as client:
        answer = await client.call(ListOffsetsRequest(replica_id=-1, topics=[topic]), version)
        return answer.topics[0].partitions[0]


async def test_truncation_shows_in_epochs(cluster: FakeCluster) -> None:
    await send(cluster, 0, b"a")
    cluster.replication.stall(T)
    await send(cluster, 0, b"lost", acks=1)
    await send(cluster, 0, b"lost", acks=1)
    cluster.controller.elect(T, 1)
    cluster.replication.heal()
    await send(cluster, 1, b"b")
    data = await ask(cluster, 1, "t", 3, leader_epoch=1, last_fetched_epoch=0)
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 1)
    part = OffsetForLeaderPartition(partition=0, current_leader_epoch=1, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic="t", partitions=[part])]
    )
    async with RawClient(cluster.address(1)) as client:
        found = (await client.call(request, 4)).topics[0].partitions[0]
    assert (found.leader_epoch, found.end_offset) == (0, 1)
    cluster.controller.elect(T, 0)  # it has truncated, and tells the same
    async with RawClient(cluster.address(0)) as client:
        part.current_leader_epoch = 2
        found = (await client.call(request, 4)).topics[0].partitions[0]
    assert (found.leader_epoch, found.end_offset) == (0, 1)


async def test_nobody_leads_unless_unclean_is_allowed(cluster: FakeCluster) -> None:
    be_impatient(cluster)
    cluster.replication.stall(T)
    waiting = asyncio.create_task(send(cluster, 0, b"acknowledged", timeout_ms=30_000))
    await cluster.wait_for(lambda: cluster.replication.isr(T) == [0])
    assert await waiting == 0
    await cluster.stop_broker(0)
    assert (cluster.partition("t").leader, cluster.replication.isr(T)) == (-1, [0])
    with pytest.raises(ValueError, match="not in sync"):
        cluster.controller.elect(T, 1)
    cluster.state.topics["t"].config["unclean.leader.election.enable"] = "true"
    await cluster.start_broker(0)
    assert cluster.partition("t").leader == 0
    assert [r.value for r in cluster.log("t").records()] == [b"acknowledged"]
    await cluster.stop_broker(0)
    assert (cluster.partition("t").leader, cluster.replication.isr(T)) == (1, [1])
    assert cluster.log("t").records() == []
    cluster.replication.heal()
    await cluster.start_broker(0)
    assert stored(cluster, 0) == []
    assert sorted(cluster.replication.isr(T)) == [0, 1, 2]


async def test_sequences_are_known_of_what_a_replica_has(cluster: FakeCluster) -> None:
    def records(sequence: int) -> bytes:
        return batch(b"%d" % sequence, pid=5, epoch=0, sequence=sequence)

    async with RawClient(cluster.address(0)) as old, RawClient(cluster.address(1)) as new:
        assert (await produce(old, "t", records(0))).error_code == 0
        cluster.replication.stall(T)
        assert (await produce(old, "t", records(1), acks=1)).error_code == 0
        cluster.controller.elect(T, 1)
        again = await produce(new, "t", records(0), acks=1)
        assert (again.error_code, again.base_offset) == (0, 0)  # known: not written twice
        assert (await produce(new, "t", records(2), acks=1)).error_code == 45
        again = await produce(new, "t", records(1), acks=1)
        assert (again.error_code, again.base_offset) == (0, 1)  # unknown: written
    cluster.replication.heal()
    assert stored(cluster, 0) == [b"0", b"1"]


async def test_a_lost_marker_is_written_again(cluster: FakeCluster) -> None:
    transactions = cluster.transactions
    pid, epoch = transactions.init("x", 60, -1, -1)
    transactions.add_partitions("x", pid, epoch, [T])
    cluster.log("t").append_bytes(batch(b"a", pid=pid, epoch=epoch, sequence=0, transactional=True))
    cluster.replication.stall(T)
    transactions.end("x", pid, epoch, commit=True, bumps_epoch=False)
    assert transactions.by_id["x"].state.value == "PrepareCommit"
    former = cluster.log("t")
    assert (former.end_offset, former.last_stable_offset) == (2, 0)
    cluster.controller.elect(T, 1)
    assert cluster.log("t").end_offset == 2  # the new leader got one of its own
    cluster.replication.heal()
    assert transactions.by_id["x"].state.value == "CompleteCommit"
    for broker in range(3):
        log = cluster.replication.log(T, broker)
        assert (log.end_offset, log.last_stable_offset) == (2, 2)
        assert [b.is_control for b in log.batches] == [False, True]


async def test_truncation_opens_a_transaction_again(cluster: FakeCluster) -> None:
    log = cluster.log("t")
    log.append_bytes(batch(b"a", pid=9, epoch=0, sequence=0, transactional=True))
    log.add_marker(9, 0, commit=False)
    assert log.last_stable_offset == 2
    log.truncate(1)
    assert (log.last_stable_offset, log.producers.aborted) == (0, [])
    assert log.producers.entries[9].last_sequence == 0


async def test_followers_serve_what_they_have() -> None:
    async with FakeCluster(2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        cluster.log("t").append(b"a")
        cluster.replication.stall(T)
        cluster.log("t").append(b"b")
        assert (await ask(cluster, 0, "t", rack_id="b")).preferred_read_replica == 1
        data = await ask(cluster, 1, "t", rack_id="b")
        assert (data.error_code, data.high_watermark) == (0, 1)
        assert (await ask(cluster, 1, "t", 1)).error_code == 0
        assert (await ask(cluster, 1, "t", 2)).error_code == 1  # the leader has it, this one not
        waiting = asyncio.create_task(ask(cluster, 1, "t", 1, max_wait_ms=30_000))
        await cluster.wait_for(lambda: cluster.count(FetchRequest) == 5)
        cluster.replication.heal()
        assert (await waiting).high_watermark == 2


async def test_retention_reaches_followers(cluster: FakeCluster) -> None:
    for value in (b"a", b"b", b"c"):
        cluster.log("t").append(value)
    cluster.log("t").delete_before(2)
    assert cluster.replication.log(T, 1).start_offset == 2
    cluster.replication.stall(T, 1)
    cluster.log("t").delete_before(3)
    cluster.log("t").append(b"d")
    cluster.log("t").delete_before(4)
    cluster.replication.heal()
    other = cluster.replication.log(T, 1)
    assert (other.start_offset, other.end_offset, other.batches) == (4, 4, ())


async def test_a_broker_that_was_away_truncates_and_copies(cluster: FakeCluster) -> None:
    await send(cluster, 0, b"a")
    cluster.replication.stall(T)
    await send(cluster, 0, b"lost", acks=1)
    await cluster.stop_broker(0)
    cluster.replication.heal()
    await send(cluster, 1, b"b")
    await send(cluster, 1, b"c")
    assert stored(cluster, 0) == [b"a", b"lost"]
    await cluster.start_broker(0)
    assert stored(cluster, 0) == [b"a", b"b", b"c"]
    assert sorted(cluster.replication.isr(T)) == [0, 1, 2]


async def test_moving_to_a_new_or_late_replica_loses_nothing(cluster: FakeCluster) -> None:
    be_impatient(cluster)
    await cluster.create_topic("one", assignment={0: [0]})
    cluster.log("one").append(b"x")
    cluster.move_leader(("one", 0), 2)
    assert [r.value for r in cluster.log("one").records()] == [b"x"]
    cluster.replication.stall(T)
    waiting = asyncio.create_task(send(cluster, 0, b"a", timeout_ms=30_000))
    await cluster.wait_for(lambda: cluster.replication.isr(T) == [0])
    assert await waiting == 0
    cluster.move_leader(T, 2)
    assert [r.value for r in cluster.log("t").records()] == [b"a"]


async def test_one_that_missed_records_is_not_moved_to_without_a_leader(
    cluster: FakeCluster,
) -> None:
    be_impatient(cluster)
    cluster.replication.stall(T, 1)
    cluster.replication.stall(T, 2)
    cluster.replication.shrink(T, 1)
    cluster.replication.shrink(T, 2)
    assert await send(cluster, 0, b"acknowledged") == 0
    await cluster.stop_broker(0)
    assert cluster.partition(*T).leader == -1
    with pytest.raises(ValueError, match="broker 1 is not in sync"):
        cluster.move_leader(T, 1)
    await cluster.start_broker(0)
    cluster.move_leader(T, 1)
    assert stored(cluster, 1) == [b"acknowledged"]


@pytest.mark.parametrize("how", ["stopped", "cut off"])
async def test_one_that_missed_records_copies_none_from_a_leader_that_is_gone(
    cluster: FakeCluster, how: str
) -> None:
    """The controller names it still."""
    be_impatient(cluster)
    cluster.controller.session_timeout = 60
    cluster.replication.stall(T, 1)
    assert await send(cluster, 0, b"one's own") == 0
    cluster.replication.shrink(T, 1)
    if how == "stopped":
        await cluster.stop_broker(0)
    else:
        cluster.faults.isolate(0)
    assert cluster.partition(*T).leader == 0
    with pytest.raises(ValueError, match="broker 1 is not in sync"):
        cluster.move_leader(T, 1)
    assert stored(cluster, 1) == []


async def test_wrong_arguments(cluster: FakeCluster) -> None:
    for call in (cluster.replication.use, cluster.replication.isr, cluster.replication.stall):
        with pytest.raises(KeyError, match="no partition"):
            call(("nothing", 0))
    with pytest.raises(KeyError, match="no broker 9"):
        cluster.replication.lag(1, broker_id=9)
    with pytest.raises(ValueError, match="at least 0"):
        cluster.replication.lag((-1, 1))
    with pytest.raises(ValueError, match="leads"):
        cluster.replication.shrink(T, 0)
    await cluster.create_topic("one", assignment={0: [0]})
    with pytest.raises(KeyError, match="keeps no replica"):
        cluster.replication.log(("one", 0), 1)


async def test_the_same_seed_draws_the_same_lags() -> None:
    async def drawn(seed: int) -> list[float]:
        async with FakeCluster(2, seed=seed) as cluster:
            await cluster.create_topic("t", assignment={0: [0, 1]})
            cluster.replication.lag((0.0, 1.0))
            partition = cluster.partition("t")
            return [cluster.replication.delay(partition, 1) or 0.0 for _ in range(4)]

    assert await drawn(1) == await drawn(1) != await drawn(2)


async def test_a_deleted_topic_stops_its_rounds(cluster: FakeCluster) -> None:
    cluster.replication.lag(0.01)
    async with RawClient(cluster.address(0)) as client:
        client.send(produce_request("t", batch(b"a"), timeout_ms=30_000), 9)
        await cluster.wait_for(lambda: cluster.count(ProduceRequest) == 1)
        await cluster.delete_topic("t")
        await client.receive_frame()
    await cluster.create_topic("t", replication_factor=3)
    assert cluster.log("t").end_offset == 0
