"""Reading records: one by one, many at once, from where, and in which turn."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
import warnings
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, ConsumerStoppedError, TopicPartition
from aiokafka._compat import timeout
from aiokafka.errors import IllegalStateError, UnsupportedVersionError
from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokafka.testing import Edit, FakeCluster
from tests.support.consumers import T0, T1, T2, Start, fill, read
from tests.support.groups import until


async def test_records_come_in_order(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 50, batch=7)
    consumer = await start(cluster, "t")
    assert await read(consumer, 50) == [(0, n) for n in range(50)]
    assert await consumer.position(T0) == 50
    assert consumer.highwater(T0) == 50


async def test_a_record_carries_everything(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    cluster.log("t").append(b"v", b"k", headers=[("h", b"1"), ("n", None)], timestamp_ms=123)
    consumer = await start(cluster, "t", key_deserializer=bytes.decode)
    record = await consumer.getone()
    assert (record.topic, record.partition, record.offset) == ("t", 0, 0)
    assert (record.key, record.value, record.timestamp) == ("k", b"v", 123)
    assert record.headers == (("h", b"1"), ("n", None))


async def test_iteration_goes_on_with_records_to_come_and_ends_at_stop(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    consumer = await start(cluster, "t")
    seen = []
    async for record in consumer:
        seen.append(record.offset)
        if record.offset == 2:
            fill(cluster, 0, 2)
        if record.offset == 4:
            await consumer.stop()
    assert seen == [0, 1, 2, 3, 4]


async def test_getmany_waits_no_longer_than_told(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    consumer = await start(cluster, "t")
    assert await consumer.getmany() == {}
    assert await consumer.getmany(timeout_ms=20) == {}
    waiting = asyncio.create_task(consumer.getmany(timeout_ms=30_000))
    await asyncio.sleep(0)
    fill(cluster, 0, 1)
    assert [r.offset for r in (await waiting)[T0]] == [0]


async def test_polling_without_waiting_sees_records(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 1)
    consumer = await start(cluster, "t")
    while not (records := await consumer.getmany()):
        pass
    assert [r.offset for r in records[T0]] == [0]


async def test_max_records_limits_all_partitions_together_and_turns(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=3)
    for number in range(3):
        fill(cluster, number, 30, batch=30)
    consumer = await start(cluster, "t", max_poll_records=7)
    served: list[int] = []
    while len(served) < 90:
        records = await consumer.getmany(timeout_ms=1000, max_records=10)
        assert 0 < sum(map(len, records.values())) <= 10
        served.extend(r.partition for batch in records.values() for r in batch)
    # All three have had a turn before any was read to its end.
    assert set(served[:30]) == {0, 1, 2}
    assert sorted(served) == sorted([0, 1, 2] * 30)
    fill(cluster, 0, 10)
    assert sum(map(len, (await consumer.getmany(timeout_ms=1000)).values())) <= 7


async def test_getone_serves_partitions_in_turn(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=2)
    consumer = await start(cluster, "t", max_partition_fetch_bytes=1000)
    fill(cluster, 0, 200)
    fill(cluster, 1, 5)
    first = await read(consumer, 100)
    assert {number for number, _ in first} == {0, 1}


async def test_only_the_wanted_partitions(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=3)
    for number in range(3):
        fill(cluster, number, 2)
    consumer = await start(cluster, "t")
    assert (await consumer.getone(T1)).partition == 1
    records: dict[TopicPartition, list[object]] = {}
    while len(records.get(T2, ())) < 2:
        for tp, found in (await consumer.getmany(T2, T1, timeout_ms=1000)).items():
            records.setdefault(tp, []).extend(found)
    assert set(records) == {T1, T2}
    assert [await consumer.position(tp) for tp in (T0, T1, T2)] == [0, 2, 2]


async def test_seek_moves_in_both_directions(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 20, batch=4)
    consumer = await start(cluster, "t")
    await read(consumer, 3)
    consumer.seek(T0, 17)
    assert await read(consumer, 2) == [(0, 17), (0, 18)]
    consumer.seek(T0, 5)
    assert await consumer.position(T0) == 5
    assert await read(consumer, 1) == [(0, 5)]
    assert await consumer.seek_to_beginning(T0)
    assert await read(consumer, 1) == [(0, 0)]
    assert await consumer.seek_to_end()
    assert await consumer.position(T0) == 20
    fill(cluster, 0, 1)
    assert await read(consumer, 1) == [(0, 20)]


async def test_seek_refuses_nonsense(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    consumer = await start(cluster, "t")
    for offset in (-1, "0", None, 2**63):
        with pytest.raises(ValueError, match="offset"):
            consumer.seek(T0, offset)  # type: ignore[arg-type]
    with pytest.raises(IllegalStateError):
        consumer.seek(T1, 0)
    with pytest.raises(IllegalStateError):
        await consumer.position(T1)
    with pytest.raises(TypeError):
        await consumer.seek_to_end("t")  # type: ignore[arg-type]
    with pytest.raises(AssertionError):
        consumer.highwater(T1)
    consumer.seek(T0, 2**63 - 1)
    fill(cluster, 0, 1)
    assert await read(consumer, 1) == [(0, 0)]


async def test_limits_that_are_no_limits(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    consumer = await start(cluster, "t", max_poll_records=2**70)
    assert len((await consumer.getmany(timeout_ms=5000))[T0]) == 3
    consumer.seek(T0, 0)
    assert len((await consumer.getmany(timeout_ms=5000, max_records=2**70))[T0]) == 3
    assert await consumer.getmany(timeout_ms=-1) == {}
    with pytest.raises(ValueError, match="timeout_ms"):
        await consumer.getmany(timeout_ms=float("nan"))


async def test_a_paused_partition_waits_and_keeps_its_place(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 10)
    fill(cluster, 1, 10)
    consumer = await start(cluster, "t")
    await read(consumer, 1)
    consumer.pause(T0)
    assert consumer.paused() == {T0}
    before = await consumer.position(T0)
    rest = 10 - await consumer.position(T1)
    assert {number for number, _ in await read(consumer, rest)} == {1}
    assert await consumer.getmany(timeout_ms=50) == {}
    consumer.resume(T0)
    assert await read(consumer, 10 - before) == [(0, n) for n in range(before, 10)]


@pytest.mark.parametrize(
    ("policy", "first"),
    [("earliest", 0), ("latest", 3), ("by_duration:PT1H", 2), ("by_duration:PT0.001S", 3)],
)
async def test_where_reading_begins(
    cluster: FakeCluster, start: Start, policy: str, first: int
) -> None:
    await cluster.create_topic("t")
    now = int(time.time() * 1000)
    for age in (7200, 3700, 60):
        cluster.log("t").append(b"old", timestamp_ms=now - age * 1000)
    consumer = await start(cluster, "t", auto_offset_reset=policy)
    assert await consumer.position(T0) == first


async def test_new_partitions_and_topics_are_noticed(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("logs-1")
    await cluster.create_topic("other")
    consumer = await start(cluster, metadata_max_age_ms=50)
    consumer.subscribe(pattern="^logs-")
    fill(cluster, 0, 1, topic="logs-1")
    assert (await consumer.getone()).topic == "logs-1"
    await cluster.create_topic("logs-2")
    fill(cluster, 0, 1, topic="logs-2")
    assert (await consumer.getone()).topic == "logs-2"
    assert consumer.subscription() == {"logs-1", "logs-2"}


@pytest.mark.parametrize("policy", ["earliest", "latest"])
async def test_a_topic_that_is_left_out_once_is_read_on(
    cluster: FakeCluster, start: Start, policy: str
) -> None:
    await cluster.create_topic("t")
    await cluster.create_topic("t2")
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        auto_offset_reset=policy,
        metadata_max_age_ms=100,
        fetch_max_wait_ms=100,
    )
    consumer.subscribe(pattern="t")
    async with consumer:
        assert await consumer.position(T0) == 0
        fill(cluster, 0, 3)
        assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]

        def leave_out(response: MetadataResponse) -> None:
            response.topics = [topic for topic in response.topics if topic.name != "t"]

        # So answers a broker that has just started.
        script = cluster.intercept(MetadataRequest, Edit(leave_out), times=2)
        await script.wait(2)
        fill(cluster, 0, 2)
        assert await read(consumer, 2) == [(0, 3), (0, 4)]
        await cluster.delete_topic("t2")
        async with timeout(10):
            while TopicPartition("t2", 0) in consumer.assignment():
                await asyncio.sleep(0.01)
        assert consumer.assignment() == {T0}


@pytest.mark.parametrize("policy", ["earliest", "latest"])
async def test_a_topic_that_was_left_out_for_long_is_read_on(
    cluster: FakeCluster, policy: str
) -> None:
    """A broker that is cut off from the others knows nothing of what was created since."""
    await cluster.create_topic("t", partitions=2)
    options: dict[str, Any] = {"auto_offset_reset": policy, "metadata_max_age_ms": 50}
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, **options)
    consumer.subscribe(pattern="t")

    def leave_out(response: MetadataResponse) -> None:
        response.topics = []

    async with consumer:
        assert [await consumer.position(tp) for tp in (T0, T1)] == [0, 0]
        fill(cluster, 0, 3)
        assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
        consumer.pause(T1)
        script = cluster.intercept(MetadataRequest, Edit(leave_out))
        await until(cluster, lambda: not consumer.assignment())
        fill(cluster, 0, 2)
        script.remove()
        assert await read(consumer, 2) == [(0, 3), (0, 4)]
        assert consumer.paused() == {T1}


async def test_a_topic_made_again_is_not_read_on(cluster: FakeCluster) -> None:
    await cluster.create_topic("t")
    options: dict[str, Any] = {"auto_offset_reset": "earliest", "metadata_max_age_ms": 50}
    consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, **options)
    consumer.subscribe(pattern="t")
    async with consumer:
        fill(cluster, 0, 2)
        assert await read(consumer, 2) == [(0, 0), (0, 1)]
        await cluster.delete_topic("t")
        await until(cluster, lambda: not consumer.assignment())
        await cluster.create_topic("t")
        fill(cluster, 0, 3)
        assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]


async def test_a_topic_made_again_with_fewer_partitions(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=3)
    consumer = await start(cluster, "t", metadata_max_age_ms=50)
    assert consumer.assignment() == {T0, T1, T2}
    await cluster.delete_topic("t")
    await cluster.create_topic("t", partitions=2)
    async with timeout(10):
        while consumer.assignment() != {T0, T1}:
            await asyncio.sleep(0.01)
    fill(cluster, 0, 1)
    assert await read(consumer, 1) == [(0, 0)]


async def test_subscription_can_be_given_up_and_replaced(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    await cluster.create_topic("u")
    fill(cluster, 0, 1)
    consumer = await start(cluster, "t")
    await read(consumer, 1)
    consumer.unsubscribe()
    assert (consumer.assignment(), consumer.subscription()) == (frozenset(), frozenset())
    with pytest.raises(IllegalStateError):
        await consumer.getone()
    consumer.assign([TopicPartition("u", 0)])
    fill(cluster, 0, 1, topic="u")
    assert (await consumer.getone()).topic == "u"
    with pytest.raises(IllegalStateError):
        consumer.subscribe(["t"])


async def test_assigning_again_keeps_positions(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 4)
    fill(cluster, 1, 2)
    consumer = await start(cluster, assign=[T0])
    await read(consumer, 2)
    consumer.assign([T0, T1])
    assert sorted(await read(consumer, 4)) == [(0, 2), (0, 3), (1, 0), (1, 1)]


async def test_waiting_readers_hear_of_the_stop(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    consumer = await start(cluster, "t")
    one = asyncio.create_task(consumer.getone())
    many = asyncio.create_task(consumer.getmany(timeout_ms=60_000))
    await asyncio.sleep(0)
    await consumer.stop()
    assert await many == {}
    with pytest.raises(ConsumerStoppedError):
        await one
    with pytest.raises(ConsumerStoppedError):
        await consumer.getone()
    with pytest.raises(ConsumerStoppedError):
        await consumer.getmany()
    await consumer.stop()


async def test_reading_needs_a_start_and_a_subscription(cluster: FakeCluster, start: Start) -> None:
    consumer = AIOKafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers)
    with pytest.raises(IllegalStateError):
        await consumer.getone()
    await consumer.stop()
    consumer = await start(cluster)
    with pytest.raises(IllegalStateError):
        await consumer.getmany()
    for wrong in (0, -1, "1", True and 1.5):
        with pytest.raises(ValueError, match="max_records"):
            await consumer.getmany(max_records=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout_ms"):
        await consumer.getmany(timeout_ms=float("nan"))


async def test_many_readers_share_the_records(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    consumer = await start(cluster, "t")
    readers = [asyncio.create_task(consumer.getone()) for _ in range(10)]
    await asyncio.sleep(0)
    fill(cluster, 0, 10)
    records = await asyncio.gather(*readers)
    assert sorted(record.offset for record in records) == list(range(10))


async def test_topics_and_partitions(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=2)
    await cluster.create_topic("u")
    consumer = await start(cluster, "t")
    assert await consumer.topics() == {"t", "u"}
    assert consumer.partitions_for_topic("t") == {0, 1}
    assert consumer.partitions_for_topic("nowhere") is None


@pytest.mark.parametrize(
    "version", ["0.9", "0.10.2", "0.11", "1.1", "2.1", "2.8", "3.9", "4.0", "4.3"]
)
async def test_every_release(start: Start, version: str) -> None:
    async with FakeCluster(brokers=2, as_version=version) as cluster:
        await cluster.create_topic("t", partitions=4)
        for number in range(4):
            fill(cluster, number, 20, batch=3)
        consumer = await start(cluster, "t")
        expected = [(number, n) for number in range(4) for n in range(20)]
        assert sorted(await read(consumer, 80)) == expected
        assert set((await consumer.end_offsets([T0, T1])).values()) == {20}
        assert cluster.failures == []


async def test_sessions_are_given_back(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 1)
    consumer = await start(cluster, "t")
    await read(consumer, 1)
    await cluster.wait_for(lambda: cluster.count(FetchRequest) >= 2)
    await consumer.stop()
    last: Any = cluster.requests(FetchRequest)[-1].request
    assert last.session_id != 0
    assert last.session_epoch == -1


def test_a_forgotten_consumer_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            servers = cluster.bootstrap_servers
            consumer = AIOKafkaConsumer("t", bootstrap_servers=servers, group_id="g")
            await consumer.start()

    caplog.set_level(logging.INFO)
    with pytest.warns(ResourceWarning, match="Unclosed AIOKafkaConsumer"):
        asyncio.run(main())
        gc.collect()
    messages = [record.getMessage() for record in caplog.records]
    assert len([text for text in messages if "Unclosed AIOKafkaConsumer" in text]) == 1
    # Nothing of what follows from the end of its loop.
    assert not [text for text in messages if "cancelled" in text or "failed" in text]


async def test_a_consumer_that_was_not_started_is_not_missed(cluster: FakeCluster) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        consumer = AIOKafkaConsumer("t", bootstrap_servers=cluster.bootstrap_servers)
        with pytest.raises(TypeError):
            consumer.subscribe("u")
        del consumer
        gc.collect()
    assert reported == []
    assert not [one for one in warned if "AIOKafkaConsumer" in str(one.message)]


async def test_offsets_by_time_need_a_broker_that_has_them(start: Start) -> None:
    async with FakeCluster(as_version="0.9") as cluster:
        await cluster.create_topic("t")
        consumer = await start(cluster, "t")
        with pytest.raises(UnsupportedVersionError):
            await consumer.offsets_for_times({T0: 0})


async def test_a_seek_wins_over_a_position_being_looked_up(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 10)
    consumer = await start(cluster, assign=[T1], fetch_max_wait_ms=10)
    for turns in range(20):
        consumer.assign([T0, T1])
        for _ in range(turns):
            await asyncio.sleep(0)
        consumer.seek(T0, 7)
        assert (await consumer.getone(T0)).offset == 7
        consumer.assign([T1])
