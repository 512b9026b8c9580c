"""Brokers that half work: hanging, slow, misinformed, with a broken disk; and rolling upgrades."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.protocol.messages.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import FakeCluster

from .support import RawClient, batch, fetch_request, produce, produce_request

T = ("t", 0)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(3) as started:
        await started.create_topic("t", assignment={0: [0, 1, 2]})
        yield started
        assert started.failures == []


async def metadata(
    cluster: FakeCluster, broker: int, topic: str = "t", *, may_create: bool = False
) -> MetadataResponse:
    async with RawClient(cluster.address(broker)) as client:
        wanted = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=may_create
        )
        return await client.call(wanted, 9)


async def send(cluster: FakeCluster, broker: int, value: bytes, acks: int = -1) -> int:
    async with RawClient(cluster.address(broker)) as client:
        answer = await produce(client, "t", batch(value), acks=acks, timeout_ms=50)
        return answer.error_code


def values(cluster: FakeCluster) -> list[bytes | None]:
    return [record.value for record in cluster.log("t").records()]


async def test_a_broker_may_answer_metadata_and_no_fetch(cluster: FakeCluster) -> None:
    cluster.faults.hang(0, [FetchRequest])
    cluster.log("t").append(b"a")
    async with RawClient(cluster.address(0)) as client:
        waiting = asyncio.create_task(client.call(fetch_request("t"), 12))
        assert (await metadata(cluster, 0)).topics[0].error_code == 0
        assert not waiting.done()
        assert cluster.count(FetchRequest) == 0  # it did not come to that
        cluster.faults.revive(0)
        assert (await waiting).responses[0].partitions[0].high_watermark == 1


async def test_what_a_hanging_broker_took_is_carried_out_later(cluster: FakeCluster) -> None:
    cluster.faults.hang(0, [ProduceRequest])
    async with RawClient(cluster.address(0)) as client:
        client.send(produce_request("t", batch(b"late")), 9)
        await metadata(cluster, 0)
    assert values(cluster) == []  # it was read, and the client has left
    cluster.faults.revive(0)
    await cluster.wait_for(lambda: values(cluster) == [b"late"])


async def test_a_slow_broker(cluster: FakeCluster) -> None:
    cluster.faults.slow(0, (0.05, 0.06), [ProduceRequest])
    loop = asyncio.get_running_loop()
    start = loop.time()
    assert await send(cluster, 0, b"a") == 0
    assert loop.time() - start >= 0.05


async def test_a_misled_broker_answers_by_what_it_knew(cluster: FakeCluster) -> None:
    cluster.faults.mislead(0)
    await cluster.create_topic("new")
    assert (await metadata(cluster, 0, "new")).topics[0].error_code == 3
    assert (await metadata(cluster, 1, "new")).topics[0].error_code == 0
    cluster.controller.elect(T, 1)
    part = (await metadata(cluster, 0)).topics[0].partitions[0]
    assert (part.leader_id, part.leader_epoch) == (0, 0)
    cluster.faults.inform(0)
    part = (await metadata(cluster, 0)).topics[0].partitions[0]
    assert (part.leader_id, part.leader_epoch) == (1, 1)


async def test_a_misled_broker_does_not_create_a_topic_that_there_is(cluster: FakeCluster) -> None:
    cluster.faults.mislead(0)
    await cluster.create_topic("new")
    known = (await metadata(cluster, 1, "new")).topics
    assert (await metadata(cluster, 0, "new", may_create=True)).topics[0].error_code == 3
    assert (await metadata(cluster, 1, "new")).topics == known


async def test_a_new_leader_that_has_not_heard_of_it(cluster: FakeCluster) -> None:
    cluster.faults.mislead(1)
    cluster.controller.elect(T, 1)
    assert await send(cluster, 1, b"a") == 6
    assert await send(cluster, 0, b"a") == 6
    cluster.faults.inform(1)
    assert await send(cluster, 1, b"a") == 0


async def test_two_leaders(cluster: FakeCluster) -> None:
    assert await send(cluster, 0, b"a") == 0
    cluster.faults.isolate(0)
    assert cluster.partition("t").leader == 1
    assert await send(cluster, 0, b"lost", acks=1) == 0  # it believes that it leads
    assert await send(cluster, 0, b"lost too") == 7
    assert await send(cluster, 1, b"b") == 0
    async with RawClient(cluster.address(0)) as client:
        data = (await client.call(fetch_request("t"), 12)).responses[0].partitions[0]
        assert (data.error_code, data.high_watermark) == (0, 1)
        # Who waits is told when the broker learns that it leads no more.
        waiting = asyncio.create_task(
            produce(client, "t", batch(b"lost as well"), timeout_ms=30_000)
        )
        await cluster.wait_for(lambda: cluster.count(ProduceRequest) == 5)
        cluster.faults.rejoin(0)
        assert (await waiting).error_code == 6
    assert values(cluster) == [b"a", b"b"]
    assert cluster.replication.log(T, 0).end_offset == 2
    assert sorted(cluster.replication.isr(T)) == [0, 1, 2]


async def test_a_disk_that_fails(cluster: FakeCluster) -> None:
    await cluster.create_topic("one", assignment={0: [0]})
    assert await send(cluster, 0, b"a") == 0
    cluster.faults.fail_disk(0)
    assert await send(cluster, 0, b"b") == 56
    assert await send(cluster, 1, b"b") == 0
    async with RawClient(cluster.address(0)) as client:
        data = (await client.call(fetch_request("one"), 12)).responses[0].partitions[0]
        assert data.error_code == 56
    part = (await metadata(cluster, 1)).topics[0].partitions[0]
    assert (part.leader_id, part.offline_replicas) == (1, [0])
    assert cluster.partition("one").leader == -1
    cluster.faults.repair_disk(0)
    assert cluster.partition("one").leader == 0
    assert await send(cluster, 0, b"c") == 6


async def test_one_of_two_disks_fails(cluster: FakeCluster) -> None:
    await cluster.create_topic("other", assignment={0: [0, 1]})
    cluster.faults.fail_disk(0, [("other", 0)])
    assert (cluster.partition("other").leader, cluster.partition("t").leader) == (1, 0)
    with pytest.raises(KeyError, match="no partitions"):
        cluster.faults.fail_disk(0, [("nothing", 0)])


async def test_a_disk_that_fails_without_a_controller(cluster: FakeCluster) -> None:
    cluster.controller.stop()
    cluster.faults.fail_disk(0)
    assert cluster.partition("t").leader == 0
    assert await send(cluster, 0, b"b") == 56
    cluster.controller.start()
    assert cluster.partition("t").leader == 1


async def test_nobody_moves_a_leader_to_a_broker_that_is_cut_off(cluster: FakeCluster) -> None:
    cluster.faults.isolate(0)
    with pytest.raises(ValueError, match="broker 0 is stopped or cut off"):
        cluster.move_leader(T, 0)
    cluster.faults.rejoin(0)
    cluster.move_leader(T, 0)
    assert cluster.partition(*T).leader == 0


async def test_nobody_moves_a_leader_to_a_disk_that_has_failed(cluster: FakeCluster) -> None:
    cluster.faults.fail_disk(1, [T])
    with pytest.raises(ValueError, match="without a sound disk"):
        cluster.move_leader(T, 1)
    cluster.faults.repair_disk(1)
    cluster.move_leader(T, 1)
    assert await send(cluster, 1, b"b") == 0


async def test_nobody_moves_a_leader_to_a_broker_that_metadata_does_not_name(
    cluster: FakeCluster,
) -> None:
    """The controller has missed that it runs again."""
    await cluster.stop_broker(1)
    cluster.controller.stop()
    await cluster.start_broker(1)
    with pytest.raises(ValueError, match="broker 1 is stopped"):
        cluster.move_leader(T, 1)
    cluster.controller.start()
    cluster.move_leader(T, 1)
    assert cluster.partition(*T).leader == 1


async def test_all_is_well_again(cluster: FakeCluster) -> None:
    cluster.replication.lag(60)
    cluster.faults.hang(1)
    cluster.faults.slow(2, 60)
    cluster.faults.isolate(0)
    cluster.faults.fail_disk(2)
    cluster.controller.stop()
    cluster.faults.heal()
    leader = cluster.partition("t").leader
    assert await send(cluster, leader, b"a") == 0
    assert values(cluster) == [b"a"]
    assert sorted(cluster.replication.isr(T)) == [0, 1, 2]
    for broker in range(3):
        assert [b.node_id for b in (await metadata(cluster, broker)).brokers] == [0, 1, 2]


# -- releases


async def versions(cluster: FakeCluster, broker: int) -> ApiVersionsResponse:
    async with RawClient(cluster.address(broker)) as client:
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        return await client.call(request, 3)


async def test_a_rolling_upgrade() -> None:
    async with FakeCluster(2, as_version="3.9") as cluster:

        async def seen(broker: int) -> tuple[int, dict[str, int], int]:
            answer = await versions(cluster, broker)
            features = {f.name: f.max_version_level for f in answer.finalized_features}
            newest = next(a.max_version for a in answer.api_keys if a.api_key == 0)
            return newest, features, answer.finalized_features_epoch

        assert await seen(0) == (11, {"metadata.version": 21}, 1)
        await cluster.stop_broker(1)
        cluster.set_release(1, "4.3")
        await cluster.start_broker(1)
        assert await seen(0) == (11, {"metadata.version": 21}, 1)
        assert await seen(1) == (13, {"metadata.version": 21}, 1)
        cluster.set_release(0, "4.3")
        newest = {
            "group.version": 1,
            "metadata.version": 30,
            "share.version": 1,
            "transaction.version": 2,
        }
        assert await seen(0) == await seen(1) == (13, newest, 2)
        cluster.set_release(1, "3.9")
        assert await seen(1) == (11, {"metadata.version": 21}, 3)
        with pytest.raises(ValueError, match="as_version"):
            cluster.set_release(1, "5.0")
        with pytest.raises(KeyError):
            cluster.set_release(7, "4.3")


async def test_partitions_are_added(cluster: FakeCluster) -> None:
    cluster.add_partitions("t", 3)
    assert len((await metadata(cluster, 0)).topics[0].partitions) == 3
    with pytest.raises(ValueError, match="3 partitions already"):
        cluster.add_partitions("t", 3)
