"""Produce on the fake brokers: what is taken, what is refused and how."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from aiokafka.protocol.messages.produce import InitProducerIdRequest, ProduceRequest
from aiokafka.testing import FakeCluster

from .support import RawClient, batch, produce, produce_request


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(2) as started:
        await started.create_topic("t", assignment={0: [0]})
        yield started
        assert started.failures == []


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[RawClient]:
    async with RawClient(cluster.address(0)) as connected:
        yield connected


def values(cluster: FakeCluster, topic: str = "t") -> list[bytes | None]:
    return [record.value for record in cluster.log(topic).records()]


async def test_batches_get_consecutive_offsets(cluster: FakeCluster, client: RawClient) -> None:
    assert (await produce(client, "t", batch(b"a", b"b"))).base_offset == 0
    assert (await produce(client, "t", batch(b"c"))).base_offset == 2
    assert [r.offset for r in cluster.log("t").records()] == [0, 1, 2]
    assert values(cluster) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
async def test_every_codec(cluster: FakeCluster, client: RawClient, codec: int) -> None:
    assert (await produce(client, "t", batch(b"a" * 100, compression=codec))).error_code == 0
    assert values(cluster) == [b"a" * 100]


@pytest.mark.parametrize("version", range(3, 13))
async def test_every_version(cluster: FakeCluster, client: RawClient, version: int) -> None:
    answer = await produce(client, "t", batch(b"a"), version=version)
    assert (answer.error_code, answer.base_offset) == (0, 0)


async def test_topic_ids(cluster: FakeCluster, client: RawClient) -> None:
    request = produce_request("", batch(b"a"))
    request.topic_data[0].topic_id = cluster.state.topics["t"].topic_id
    answer = (await client.call(request, 13)).responses[0]
    assert (answer.topic_id, answer.partition_responses[0].error_code) == (
        request.topic_data[0].topic_id,
        0,
    )
    request.topic_data[0].topic_id = b"?" * 16
    answer = (await client.call(request, 13)).responses[0]
    assert answer.partition_responses[0].error_code == 100


async def test_without_acks_there_is_no_answer(cluster: FakeCluster, client: RawClient) -> None:
    client.send(produce_request("t", batch(b"a"), acks=0), 9)
    assert (await produce(client, "t", batch(b"b"))).base_offset == 1
    client.send(produce_request("nowhere", batch(b"a"), acks=0), 9)
    assert await client.receive_frame() == b""  # closing is the only way to tell of an error


def damaged(records: bytes, at: int) -> bytes:
    data = bytearray(records)
    data[at] ^= 0x55
    return bytes(data)


@pytest.mark.parametrize(
    ("records", "errno"),
    [
        (damaged(batch(b"abc"), -2), 2),  # checksum
        (batch(b"abc")[:-1], 87),  # truncated: there is no whole batch
        (batch(b"abc")[:40], 87),
        (batch(b"a") + batch(b"b"), 87),  # more than one
        (b"", 87),
        (batch(b"x" * 1_100_000), 10),
        (damaged(batch(b"abc"), 16), 2),  # magic
    ],
    ids=["checksum", "cut", "header cut", "two", "none", "large", "magic"],
)
async def test_unsound_records_are_refused(
    cluster: FakeCluster, client: RawClient, records: bytes, errno: int
) -> None:
    answer = await produce(client, "t", records)
    assert (answer.error_code, answer.base_offset) == (errno, -1)
    assert values(cluster) == []


async def test_the_topics_size_limit_counts(cluster: FakeCluster, client: RawClient) -> None:
    await cluster.create_topic("small", assignment={0: [0]}, config={"max.message.bytes": 100})
    assert (await produce(client, "small", batch(b"x" * 100))).error_code == 10
    assert (await produce(client, "small", batch(b"x"))).error_code == 0


async def test_acks_and_replicas(cluster: FakeCluster, client: RawClient) -> None:
    await cluster.create_topic("two", assignment={0: [0, 1]}, config={"min.insync.replicas": 2})
    assert (await produce(client, "two", batch(b"x"), acks=-1)).error_code == 0
    await cluster.stop_broker(1)
    assert (await produce(client, "two", batch(b"x"), acks=-1)).error_code == 19
    assert (await produce(client, "two", batch(b"x"), acks=1)).error_code == 0
    assert (await produce(client, "two", batch(b"x"), acks=2)).error_code == 21


async def test_slow_replicas_make_acks_all_time_out(
    cluster: FakeCluster, client: RawClient
) -> None:
    log = cluster.log("t")
    log.pause_replication()
    answer = await produce(client, "t", batch(b"a"), timeout_ms=20)
    assert (answer.error_code, answer.base_offset) == (7, 0)
    assert (log.end_offset, log.high_watermark) == (1, 0)  # it is written all the same
    later = asyncio.create_task(produce(client, "t", batch(b"b"), timeout_ms=30_000))
    await cluster.wait_for(lambda: log.end_offset == 2)
    log.resume_replication()
    assert (await later).base_offset == 1


async def test_log_append_time(cluster: FakeCluster, client: RawClient) -> None:
    await cluster.create_topic(
        "now", assignment={0: [0]}, config={"message.timestamp.type": "LogAppendTime"}
    )
    answer = await produce(client, "now", batch(b"a", b"b", timestamp=1))
    records = cluster.log("now").records()
    assert [r.timestamp for r in records] == [answer.log_append_time_ms] * 2
    assert records[0].timestamp > 1_700_000_000_000
    assert records[0].timestamp_type == 1


async def test_a_repetition_tells_the_time_of_what_it_repeats(
    cluster: FakeCluster, client: RawClient
) -> None:
    config = {"message.timestamp.type": "LogAppendTime"}
    await cluster.create_topic("now", assignment={0: [0]}, config=config)
    records = batch(b"a", b"b", pid=7, epoch=0, sequence=0, timestamp=1)
    for topic, expected in (("now", None), ("t", [-1, 2])):
        told = [(await produce(client, topic, records)).log_append_time_ms for _ in range(2)]
        assert told == (expected or [told[0]] * 2)
        await asyncio.sleep(0.002)


async def test_timestamps_out_of_range_are_refused(cluster: FakeCluster, client: RawClient) -> None:
    assert (await produce(client, "t", batch(b"a", timestamp=1 << 50))).error_code == 32


async def test_compacted_topics_want_keys(cluster: FakeCluster, client: RawClient) -> None:
    await cluster.create_topic("c", assignment={0: [0]}, config={"cleanup.policy": "compact"})
    assert (await produce(client, "c", batch(b"a"))).error_code == 87
    assert (await produce(client, "c", batch(b"a", key=b"k"))).error_code == 0
    assert (await produce(client, "c", batch(b"b", key=b"k"))).error_code == 0
    assert cluster.log("c").compact() == 1
    assert [(r.offset, r.value) for r in cluster.log("c").records()] == [(1, b"b")]


async def test_producer_ids_are_never_given_twice(client: RawClient) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    answers = [await client.call(request, 4) for _ in range(3)]
    assert len({a.producer_id for a in answers}) == 3
    assert {a.producer_epoch for a in answers} == {0}


async def send(
    client: RawClient, pid: int, epoch: int, sequence: int, count: int = 1
) -> tuple[int, int]:
    records = batch(*[b"x"] * count, pid=pid, epoch=epoch, sequence=sequence)
    answer = await produce(client, "t", records)
    return answer.error_code, answer.base_offset


async def test_sequences_are_checked(client: RawClient) -> None:
    assert await send(client, 7, 0, 0, 3) == (0, 0)
    assert await send(client, 7, 0, 3) == (0, 3)
    assert await send(client, 7, 0, 5) == (45, -1)  # 4 is missing
    assert await send(client, 7, 0, 4) == (0, 4)
    assert await send(client, 8, 0, 9) == (0, 5)  # unknown ids may begin anywhere (KIP-360)


async def test_repetitions_succeed_with_the_old_offset(client: RawClient) -> None:
    for sequence in range(7):
        assert await send(client, 7, 0, sequence) == (0, sequence)
    assert await send(client, 7, 0, 6) == (0, 6)
    assert await send(client, 7, 0, 2) == (0, 2)
    assert await send(client, 7, 0, 1) == (45, -1)  # only five are remembered
    assert await send(client, 7, 0, 7) == (0, 7)  # nothing was written in between


async def test_epochs_are_checked(client: RawClient) -> None:
    assert await send(client, 7, 1, 0) == (0, 0)
    assert await send(client, 7, 0, 1) == (47, -1)
    assert await send(client, 7, 2, 1) == (45, -1)  # a new epoch begins at 0
    assert await send(client, 7, 2, 0) == (0, 1)


async def test_sequences_wrap(client: RawClient) -> None:
    top = 2**31 - 1
    assert await send(client, 7, 0, top - 1, 2) == (0, 0)
    assert await send(client, 7, 0, 0) == (0, 2)
    assert await send(client, 8, 0, top, 3) == (0, 3)  # one at the top, then 0 and 1
    assert await send(client, 8, 0, 2) == (0, 6)
    assert await send(client, 8, 0, top, 3) == (0, 3)


async def test_truncation_takes_producer_state_back(
    cluster: FakeCluster, client: RawClient
) -> None:
    for sequence in range(3):
        await send(client, 7, 0, sequence)
    cluster.log("t").truncate(1)
    assert await send(client, 7, 0, 1) == (0, 1)


async def test_brokers_before_2_5_know_unknown_producers() -> None:
    async with FakeCluster(as_version="2.1") as cluster:
        await cluster.create_topic("t")
        async with RawClient(cluster.address(0)) as client:
            records = batch(b"x", pid=7, epoch=0, sequence=3)
            assert (await produce(client, "t", records, version=7)).error_code == 59


async def test_lost_answers_are_the_case_for_repetitions(
    cluster: FakeCluster, client: RawClient
) -> None:
    from aiokafka.testing import Cut

    cluster.intercept(ProduceRequest, Cut(handled=True), times=1)
    with pytest.raises(ConnectionError):
        await send(client, 7, 0, 0)
    async with RawClient(cluster.address(0)) as again:
        assert await send(again, 7, 0, 0) == (0, 0)
    assert len(values(cluster)) == 1
