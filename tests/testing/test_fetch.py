"""Fetch, ListOffsets and OffsetForLeaderEpoch on the fake brokers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aiokafka.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    ForgottenTopic,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    PartitionData,
)
from aiokafka.record.batch import RecordReader
from aiokafka.testing import FakeCluster

from .support import RawClient, batch, fetch_request, produce


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(2, racks=["east", "west"]) as started:
        await started.create_topic("t", assignment={0: [0, 1]})
        yield started
        assert started.failures == []


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[RawClient]:
    async with RawClient(cluster.address(0)) as connected:
        yield connected


def only(response: FetchResponse) -> PartitionData:
    assert response.error_code == 0
    [topic] = response.responses
    [partition] = topic.partitions
    return partition


def values(data: PartitionData, position: int = 0) -> list[bytes | None]:
    reader = RecordReader(data.records or b"", "t", 0, position=position)
    return [record.value for record in reader.take(10_000)]


@pytest.mark.parametrize("version", range(4, 13))
async def test_every_version_by_name(cluster: FakeCluster, client: RawClient, version: int) -> None:
    cluster.log("t").append(b"a")
    data = only(await client.call(fetch_request("t"), version))
    assert (data.error_code, data.high_watermark, values(data)) == (0, 1, [b"a"])


@pytest.mark.parametrize("version", range(13, 19))
async def test_every_version_by_id(cluster: FakeCluster, client: RawClient, version: int) -> None:
    cluster.log("t").append(b"a")
    topic_id = cluster.state.topics["t"].topic_id
    assert values(only(await client.call(fetch_request(topic_id), version))) == [b"a"]
    unknown = only(await client.call(fetch_request(b"?" * 16), version))
    assert unknown.error_code == 100


@pytest.mark.parametrize("version", range(4))
async def test_old_versions_get_message_sets(version: int) -> None:
    async with FakeCluster(as_version="0.11") as cluster:
        await cluster.create_topic("t")
        cluster.log("t").extend([(b"k", b"a", ()), (None, b"b", ())], codec=1)
        cluster.log("t").append(b"c")
        async with RawClient(cluster.address(0)) as client:
            data = only(await client.call(fetch_request("t"), version))
            assert bytes(data.records or b"")[16] == (1 if version >= 2 else 0)
            assert values(data) == [b"a", b"b", b"c"]
            cut = only(await client.call(fetch_request("t", partition_max_bytes=30), version))
            assert len(cut.records or b"") == 30 if version < 3 else values(cut) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("offset", "options", "errno"),
    [
        (0, {}, 0),
        (3, {}, 0),
        (4, {}, 1),
        (-1, {}, 1),
        (0, {"leader_epoch": 0}, 0),
        (0, {"leader_epoch": 1}, 75),
        (0, {"partition": 1}, 3),
    ],
)
async def test_errors_of_a_partition(
    cluster: FakeCluster, client: RawClient, offset: int, options: dict[str, int], errno: int
) -> None:
    for value in (b"a", b"b", b"c"):
        cluster.log("t").append(value)
    data = only(await client.call(fetch_request("t", offset, **options), 12))  # type: ignore
    assert data.error_code == errno


async def test_a_fetch_that_waits_sees_what_the_followers_catch_up_with(
    cluster: FakeCluster, client: RawClient
) -> None:
    log = cluster.log("t")
    log.pause_replication()
    log.append(b"a")
    waiting = asyncio.create_task(client.call(fetch_request("t", max_wait_ms=300_000), 12))
    await cluster.wait_for(lambda: cluster.count(FetchRequest) == 1)
    async with RawClient(cluster.address(0)) as other:
        assert values(only(await other.call(fetch_request("t"), 12))) == []
    log.resume_replication()
    assert values(only(await waiting)) == [b"a"]


async def test_wrong_leader_and_old_epoch(cluster: FakeCluster, client: RawClient) -> None:
    await cluster.create_topic("one", assignment={0: [0]})
    cluster.move_leader(("one", 0), 1)
    cluster.partition("one").replicas.remove(0)
    data = only(await client.call(fetch_request("one"), 12))
    assert (data.error_code, data.current_leader.leader_id) == (6, 1)
    cluster.move_leader(("t", 0), 1)
    cluster.move_leader(("t", 0), 0)
    data = only(await client.call(fetch_request("t", leader_epoch=1), 12))
    assert (data.error_code, data.current_leader.leader_epoch) == (74, 2)
    by_id = fetch_request(cluster.state.topics["one"].topic_id)
    response = await client.call(by_id, 16)
    assert [node.node_id for node in response.node_endpoints] == [1]  # KIP-951


async def test_a_fetch_waits_for_records(cluster: FakeCluster, client: RawClient) -> None:
    waiting = asyncio.create_task(client.call(fetch_request("t", max_wait_ms=30_000), 12))
    await cluster.wait_for(lambda: cluster.count(FetchRequest) == 1)
    cluster.log("t").append(b"a")
    assert values(only(await waiting)) == [b"a"]


async def test_a_fetch_waits_for_min_bytes_or_for_its_time(
    cluster: FakeCluster, client: RawClient
) -> None:
    cluster.log("t").append(b"a")
    request = fetch_request("t", min_bytes=200, max_wait_ms=30_000)
    waiting = asyncio.create_task(client.call(request, 12))
    await cluster.wait_for(lambda: cluster.count(FetchRequest) == 1)
    cluster.log("t").append(b"b")
    done, _ = await asyncio.wait([waiting], timeout=0.02)
    assert not done
    cluster.log("t").append(b"c")
    assert values(only(await waiting)) == [b"a", b"b", b"c"]
    short = fetch_request("t", min_bytes=10_000, max_wait_ms=20)
    assert len(values(only(await client.call(short, 12)))) == 3


async def test_a_moved_leader_ends_the_wait(cluster: FakeCluster, client: RawClient) -> None:
    await cluster.create_topic("one", assignment={0: [0]})
    request = fetch_request("one", max_wait_ms=30_000, leader_epoch=0)
    waiting = asyncio.create_task(client.call(request, 12))
    await cluster.wait_for(lambda: cluster.count(FetchRequest) == 1)
    cluster.move_leader(("one", 0), 1)
    assert only(await waiting).error_code == 74


async def test_a_deleted_topic_ends_the_wait(cluster: FakeCluster, client: RawClient) -> None:
    waiting = asyncio.create_task(client.call(fetch_request("t", max_wait_ms=30_000), 12))
    await cluster.wait_for(lambda: cluster.count(FetchRequest) == 1)
    await cluster.delete_topic("t")
    assert only(await waiting).error_code == 3


async def test_byte_limits(cluster: FakeCluster, client: RawClient) -> None:
    log = cluster.log("t")
    for i in range(4):
        log.append(b"%d" % i * 1000)
    size = log.batches[0].size
    for limits, count in [
        ({"partition_max_bytes": 2 * size}, 2),
        ({"max_bytes": 3 * size}, 3),
        ({"max_bytes": 10}, 1),  # the first batch comes whole in any case (KIP-74)
        ({"partition_max_bytes": 10}, 1),
    ]:
        data = only(await client.call(fetch_request("t", **limits), 12))  # type: ignore[arg-type]
        assert len(values(data)) == count


async def test_batches_come_whole(cluster: FakeCluster, client: RawClient) -> None:
    cluster.log("t").extend([(None, b"%d" % i, ()) for i in range(5)])
    data = only(await client.call(fetch_request("t", 3), 12))
    assert values(data, 3) == [b"3", b"4"]
    assert values(data, 0) == [b"0", b"1", b"2", b"3", b"4"]


async def test_nothing_is_read_above_the_high_watermark(
    cluster: FakeCluster, client: RawClient
) -> None:
    log = cluster.log("t")
    log.append(b"a")
    log.pause_replication()
    log.append(b"b")
    data = only(await client.call(fetch_request("t"), 12))
    assert (data.high_watermark, values(data)) == (1, [b"a"])
    assert only(await client.call(fetch_request("t", 2), 12)).error_code == 0


# -- transactions


async def test_open_and_aborted_transactions(cluster: FakeCluster, client: RawClient) -> None:
    log = cluster.log("t")
    log.append(b"plain")
    log.append_bytes(batch(b"aborted", pid=1, epoch=0, sequence=0, transactional=True))
    log.append_bytes(batch(b"open", pid=2, epoch=0, sequence=0, transactional=True))
    log.add_marker(1, 0, commit=False)
    assert (log.last_stable_offset, log.high_watermark) == (2, 4)
    committed = only(await client.call(fetch_request("t", isolation_level=1), 12))
    assert committed.last_stable_offset == 2
    assert [(a.producer_id, a.first_offset) for a in committed.aborted_transactions or []] == [
        (1, 1)
    ]
    reader = RecordReader(
        committed.records or b"", "t", 0, position=0, read_committed=True, aborted=[(1, 1)]
    )
    assert [r.value for r in reader.take(10)] == [b"plain"]
    uncommitted = only(await client.call(fetch_request("t"), 12))
    assert uncommitted.aborted_transactions is None
    assert values(uncommitted) == [b"plain", b"aborted", b"open"]
    log.add_marker(2, 0, commit=True)
    assert log.last_stable_offset == 5
    later = only(await client.call(fetch_request("t", 4, isolation_level=1), 12))
    assert later.aborted_transactions == []


# -- sessions (KIP-227)


async def test_sessions_tell_only_what_changed(cluster: FakeCluster, client: RawClient) -> None:
    await cluster.create_topic("u", assignment={0: [0]})
    request = fetch_request("t", session_epoch=0)
    request.topics += fetch_request("u").topics
    full = await client.call(request, 12)
    assert full.session_id > 0
    assert [t.topic for t in full.responses] == ["t", "u"]

    def follow(epoch: int, *topics: str) -> FetchRequest:
        asked = fetch_request("t", session_id=full.session_id, session_epoch=epoch)
        asked.topics = [fetch_request(topic, 1).topics[0] for topic in topics]
        return asked

    assert (await client.call(follow(1), 12)).responses == []
    cluster.log("u").append(b"x")
    changed = await client.call(follow(2), 12)
    assert [t.topic for t in changed.responses] == ["u"]
    assert (await client.call(follow(3, "u"), 12)).responses == []
    forget = follow(4)
    forget.forgotten_topics_data = [ForgottenTopic(topic="u", partitions=[0])]
    await client.call(forget, 12)
    cluster.log("u").append(b"y")
    cluster.log("t").append(b"z")
    assert [t.topic for t in (await client.call(follow(5), 12)).responses] == ["t"]


async def test_sessions_must_be_known_and_in_step(cluster: FakeCluster, client: RawClient) -> None:
    full = await client.call(fetch_request("t", session_epoch=0), 12)
    unknown = fetch_request("t", session_id=full.session_id ^ 1, session_epoch=1)
    assert (await client.call(unknown, 12)).error_code == 70
    wrong = fetch_request("t", session_id=full.session_id, session_epoch=2)
    assert (await client.call(wrong, 12)).error_code == 71
    close = fetch_request("t", session_id=full.session_id, session_epoch=-1)
    assert (await client.call(close, 12)).session_id == 0
    gone = fetch_request("t", session_id=full.session_id, session_epoch=1)
    assert (await client.call(gone, 12)).error_code == 70


async def test_a_restarted_broker_has_no_sessions(cluster: FakeCluster, client: RawClient) -> None:
    full = await client.call(fetch_request("t", session_epoch=0), 12)
    await cluster.stop_broker(0)
    await cluster.start_broker(0)
    async with RawClient(cluster.address(0)) as again:
        asked = fetch_request("t", session_id=full.session_id, session_epoch=1)
        assert (await again.call(asked, 12)).error_code == 70


# -- replicas and truncation


async def test_the_replica_in_the_clients_rack_is_preferred(
    cluster: FakeCluster, client: RawClient
) -> None:
    cluster.log("t").append(b"a")
    data = only(await client.call(fetch_request("t", rack_id="west"), 12))
    assert (data.preferred_read_replica, bytes(data.records or b"")) == (1, b"")
    assert values(only(await client.call(fetch_request("t", rack_id="east"), 12))) == [b"a"]
    async with RawClient(cluster.address(1)) as follower:
        data = only(await follower.call(fetch_request("t", rack_id="west"), 12))
        assert values(data) == [b"a"]
        assert only(await follower.call(fetch_request("t"), 10)).error_code == 6
    await cluster.stop_broker(1)
    data = only(await client.call(fetch_request("t", rack_id="west"), 12))
    assert data.preferred_read_replica == -1


async def truncated(cluster: FakeCluster) -> None:
    """Offsets 0-2 in epoch 0, of which 2 is lost; 2-3 in epoch 1."""
    log = cluster.log("t")
    for value in (b"a", b"b", b"lost"):
        log.append(value)
    log.truncate(2)
    cluster.move_leader(("t", 0), 0)
    for value in (b"c", b"d"):
        log.append(value)


async def test_truncation_shows_as_diverging_epoch(cluster: FakeCluster, client: RawClient) -> None:
    await truncated(cluster)
    request = fetch_request("t", 3, leader_epoch=1, last_fetched_epoch=0)
    data = only(await client.call(request, 12))
    assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 2)
    request = fetch_request("t", 2, leader_epoch=1, last_fetched_epoch=0)
    assert values(only(await client.call(request, 12)), 2) == [b"c", b"d"]


@pytest.mark.parametrize(("asked", "answer"), [(0, (0, 2)), (1, (1, 4)), (2, (-1, -1))])
async def test_ends_of_epochs(
    cluster: FakeCluster, client: RawClient, asked: int, answer: tuple[int, int]
) -> None:
    await truncated(cluster)
    part = OffsetForLeaderPartition(partition=0, current_leader_epoch=1, leader_epoch=asked)
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic="t", partitions=[part])]
    )
    found = (await client.call(request, 3)).topics[0].partitions[0]
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, *answer)
    part.current_leader_epoch = 0
    assert (await client.call(request, 3)).topics[0].partitions[0].error_code == 74


# -- ListOffsets


async def find(
    client: RawClient, timestamp: int, *, version: int = 9, isolation_level: int = 0
) -> ListOffsetsPartitionResponse:
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name="t", partitions=[part])],
    )
    return (await client.call(request, version)).topics[0].partitions[0]


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [(-2, (-1, 1)), (-1, (-1, 5)), (-3, (90, 3)), (0, (20, 1)), (50, (90, 3)), (91, (-1, -1))],
)
async def test_offsets_by_time(
    cluster: FakeCluster, client: RawClient, timestamp: int, expected: tuple[int, int]
) -> None:
    log = cluster.log("t")
    for when in (10, 20, 30):
        log.append(b"x", timestamp_ms=when)
    log.append(b"late", timestamp_ms=90)
    log.append(b"early", timestamp_ms=15)
    log.delete_before(1)
    found = await find(client, timestamp)
    assert (found.error_code, found.timestamp, found.offset) == (0, *expected)


async def test_offsets_inside_a_batch(cluster: FakeCluster, client: RawClient) -> None:
    cluster.log("t").append_bytes(batch(b"a", b"b", b"c", timestamp=100, compression=1))
    assert (await find(client, 101)).offset == 1
    assert (await find(client, -3)).offset == 2


async def test_the_latest_offset_of_read_committed(cluster: FakeCluster, client: RawClient) -> None:
    log = cluster.log("t")
    log.append_bytes(batch(b"open", pid=2, epoch=0, sequence=0, transactional=True))
    assert (await find(client, -1)).offset == 1
    assert (await find(client, -1, isolation_level=1)).offset == 0


async def test_special_places_need_their_version(client: RawClient) -> None:
    assert (await find(client, -3, version=6)).error_code == 35
    assert (await find(client, -4, version=8)).error_code == 0


async def test_the_oldest_list_offsets() -> None:
    async with FakeCluster(as_version="0.9") as cluster:
        await cluster.create_topic("t")
        cluster.log("t").append(b"x")
        async with RawClient(cluster.address(0)) as client:
            part = ListOffsetsPartition(partition_index=0, timestamp=-1, max_num_offsets=5)
            request = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[part])]
            )
            found = (await client.call(request, 0)).topics[0].partitions[0]
            assert found.old_style_offsets == [1, 0]


async def test_damage_is_handed_out_as_it_is(cluster: FakeCluster, client: RawClient) -> None:
    from aiokafka.errors import CorruptRecordError

    cluster.log("t").append(b"good")
    cluster.log("t").append(b"bad")
    cluster.log("t").corrupt(1)
    data = only(await client.call(fetch_request("t"), 12))
    reader = RecordReader(data.records or b"", "t", 0, position=0)
    assert [record.value for record in reader.take(1)] == [b"good"]
    with pytest.raises(CorruptRecordError):
        reader.take(1)


async def test_produced_and_fetched_bytes_agree(cluster: FakeCluster, client: RawClient) -> None:
    await produce(client, "t", batch(b"a", b"b", compression=3))
    data = only(await client.call(fetch_request("t"), 12))
    assert values(data) == [b"a", b"b"]
