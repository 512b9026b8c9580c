"""Fetching and returning records, without faults."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
import time
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, ConsumerStoppedError, TopicPartition
from aiokafka._compat import timeout
from aiokafka._reading import FetchSpec, partitions_in
from aiokafka.consumer.fetch import buffer
from aiokafka.consumer.fetch.node import FetchSession
from aiokafka.errors import (
    CorruptRecordError,
    CorruptRecordException,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    IllegalStateError,
    InvalidFetchSessionEpoch,
    NotLeaderForPartitionError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
    UnknownError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokafka.record.batch import RecordBatchBuilder
from aiokafka.testing import Cut, Edit, Fail, FakeCluster, Hold
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, T1, T2, Start, fill, partition_error, queued, read
from tests.support.groups import until

# == Reading records: getone, getmany, seek, pause =================================================


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


async def test_calls_for_one_record_serve_partitions_in_turn(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=3)
    for number in range(3):
        fill(cluster, number, 30, batch=10)
    consumer = await start(cluster, "t", max_poll_records=1)
    seen: list[tuple[int, int]] = []
    while len(seen) < 90:
        for batch in (await consumer.getmany(timeout_ms=1000)).values():
            seen += [(record.partition, record.offset) for record in batch]
    assert [number for number, _ in seen] == [number for number, _ in seen[:3]] * 30
    for number in range(3):
        assert [offset for of, offset in seen if of == number] == list(range(30))


async def test_calls_for_few_records_return_none_of_a_paused_partition(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    for number in range(2):
        fill(cluster, number, 30, batch=30)
    consumer = await start(cluster, "t")
    await consumer.getone(T0)
    await consumer.getone(T1)
    seen: list[int] = []
    for _ in range(10):
        consumer.pause(T0)
        seen += [tp.partition for tp in await consumer.getmany(timeout_ms=1000, max_records=2)]
        consumer.resume(T0)
        consumer.pause(T1)
        seen += [tp.partition for tp in await consumer.getmany(timeout_ms=1000, max_records=1)]
        consumer.resume(T1)
    assert seen == [1, 0] * 10


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
    "version", ["0.9", "0.10.2", "0.11", "1.1", "2.1", "2.8", "3.9", "4.0", "4.3", "4.4"]
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


# == From fetched bytes to records =================================================================


class Interrupt(BaseException):
    """As KeyboardInterrupt, which asyncio treats in a way of its own."""


@pytest.mark.parametrize("where", [(1, 0), (0, 3), (1, 3)])
async def test_an_interrupt_loses_nothing_of_other_partitions(
    cluster: FakeCluster, start: Start, where: tuple[int, int]
) -> None:
    """Records of the partitions, and record sets, that the call had taken before come again."""
    await cluster.create_topic("t", partitions=2)
    interrupts: list[Any] = [Interrupt]

    def deserialize(value: bytes) -> bytes:
        if value == b"%d-%d" % where and interrupts:
            raise interrupts.pop()
        return value

    consumer = await start(
        cluster, assign=[T0, T1], value_deserializer=deserialize, max_partition_fetch_bytes=150
    )
    for turn in range(2):
        # Two record sets of each.
        for number in range(2):
            first = 3 * turn
            values = [b"%d-%d" % (number, n) for n in range(first, first + 3)]
            cluster.log("t", number).extend([(None, value, ()) for value in values])
        await cluster.wait_for(partial(is_buffered, consumer, turn + 1))
    seen: dict[int, list[int]] = {0: [], 1: []}
    while sum(map(len, seen.values())) < 12:
        try:
            found = await consumer.getmany(timeout_ms=5000)
        except Interrupt:
            continue
        for tp, records in found.items():
            seen[tp.partition] += [record.offset for record in records]
    assert not interrupts
    assert seen == {0: list(range(6)), 1: list(range(6))}


def is_buffered(consumer: Any, count: int) -> bool:
    return set(queued(consumer)) == {count}


async def test_one_call_decompresses_so_much(
    cluster: FakeCluster, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not buffer.__file__.endswith(".py"):
        size, count = 4 * 1024 * 1024, 40
    else:
        monkeypatch.setattr(buffer, "_MOST_UNPACKED", 100_000)
        size, count = 10_000, 40
    bound = 64 * 1024 * 1024 if size > 10_000 else 100_000
    await cluster.create_topic("t", partitions=2)
    for number in range(2):
        for _ in range(count // 2):
            cluster.log("t", number).extend([(None, bytes(size), ())], codec=1)
    consumer = await start(cluster, "t")
    sizes: list[int] = []
    while sum(sizes) < count:
        found = await consumer.getmany(timeout_ms=5000)
        assert found
        sizes.append(sum(map(len, found.values())))
    assert sum(sizes) == count
    assert max(sizes) * size <= bound + size
    # And not one by one.
    assert len(sizes) < count / 2


# == Seeking forward within the buffered records ===================================================


OPTIONS: dict[str, Any] = {"auto_offset_reset": "earliest"}


@pytest.mark.parametrize("batch", [1, 7])
def test_records_that_cannot_be_read_are_passed_without_a_fetch_for_each(batch: int) -> None:
    """At the end of a log each fetch comes behind a long poll, while the application does something
    with the bad record before it seeks."""

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster() as cluster:
            await cluster.create_topic("t")
            log = cluster.log("t")
            values = [*(b"no" for _ in range(20)), b"1"]
            for first in range(0, len(values), batch):
                log.extend([(None, value, ()) for value in values[first : first + batch]])
            servers = cluster.bootstrap_servers
            async with AIOKafkaConsumer(
                "t", bootstrap_servers=servers, value_deserializer=json.loads, **OPTIONS
            ) as consumer:
                began = simulation.loop.time()
                passed = 0
                while True:
                    try:
                        record = await consumer.getone()
                        break
                    except RecordDeserializationError as error:
                        passed += 1
                        await asyncio.sleep(0.01)
                        consumer.seek(error.topic_partition, error.offset + 1)
                assert (passed, record.offset, record.value) == (20, 20, 1)
                # One long poll takes half a second.
                assert simulation.loop.time() - began < 0.4
                log.extend([(None, b"2", ())])
                assert (await consumer.getone()).value == 2
                assert await consumer.position(T0) == 22

    simulate(main)


async def test_records_passed_are_committed(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 10, batch=5)
    consumer = await start(cluster, "t", group_id="g", enable_auto_commit=False)
    assert (await consumer.getone()).offset == 0
    consumer.seek(T0, 7)
    assert await consumer.position(T0) == 7
    await consumer.commit()
    assert await consumer.committed(T0) == 7
    assert (await consumer.getone()).offset == 7
    consumer.seek(T0, 2)
    assert [(await consumer.getone()).offset for _ in range(3)] == [2, 3, 4]


async def test_a_damaged_batch_is_passed(cluster: FakeCluster, start: Start) -> None:
    """It is not looked at, whether the position is in the batch before it or at its begin."""
    await cluster.create_topic("t")
    fill(cluster, 0, 12, batch=3)
    cluster.log("t").corrupt(4)
    for count in (1, 3):
        consumer = await start(cluster, "t")
        for _ in range(count):
            await consumer.getone()
        consumer.seek(T0, 7)
        assert [(await consumer.getone()).offset for _ in range(3)] == [7, 8, 9]


async def test_what_was_damaged_on_its_way_is_fetched_again(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 6, batch=3)
    log = cluster.log("t")
    log.corrupt(4)
    consumer = await start(cluster, "t")
    for _ in range(3):
        await consumer.getone()
    with pytest.raises(CorruptRecordError):
        await consumer.getone()
    log.truncate(3)
    fill(cluster, 0, 3, batch=3)
    consumer.seek(T0, 4)
    assert [(await consumer.getone()).offset for _ in range(2)] == [4, 5]


async def test_the_end_of_an_aborted_transaction_is_passed(
    cluster: FakeCluster, start: Start
) -> None:
    """The next one of the same producer is not taken for aborted as well."""
    await cluster.create_topic("t")
    fill(cluster, 0, 1)
    for commit in (False, True):
        transaction(cluster, 1, 1)
        fill(cluster, 0, 1)
        cluster.log("t").add_marker(1, 0, commit=commit)
    consumer = await start(cluster, "t", isolation_level="read_committed")
    assert (await consumer.getone()).offset == 0
    consumer.seek(T0, 4)
    assert [(await consumer.getone()).offset for _ in range(2)] == [4, 5]


async def test_paused_partitions_stay_in_store(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 9, batch=3)
    consumer = await start(cluster, "t")
    await consumer.getone()
    consumer.pause(T0)
    consumer.seek(T0, 5)
    assert await consumer.getmany(timeout_ms=0) == {}
    assert queued(consumer) == [1]
    consumer.resume(T0)
    assert (await consumer.getone()).offset == 5


def transaction(cluster: FakeCluster, producer_id: int, count: int) -> None:
    builder = RecordBatchBuilder(size_limit=100_000)
    for _ in range(count):
        builder.append(1000, None, b"in", ())
    cluster.log("t").append_bytes(builder.build(producer_id, 0, 0, True))


def write(cluster: FakeCluster, rng: random.Random) -> None:
    """Write some batches: plain and of transactions, which end at some time."""
    open_ones: set[int] = set()
    for _ in range(rng.randrange(60)):
        producer_id = rng.randrange(1, 4)
        if rng.random() < 0.4:
            fill(cluster, 0, rng.randrange(1, 8), batch=rng.randrange(1, 4))
        elif producer_id in open_ones and rng.random() < 0.6:
            cluster.log("t").add_marker(producer_id, 0, commit=rng.random() < 0.5)
            open_ones.discard(producer_id)
        else:
            transaction(cluster, producer_id, rng.randrange(1, 5))
            open_ones.add(producer_id)
    for producer_id in sorted(open_ones):
        cluster.log("t").add_marker(producer_id, 0, commit=rng.random() < 0.5)
    fill(cluster, 0, 1)


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("seed", range(30))
def test_what_follows_is_what_a_new_fetch_brings(seed: int, level: str) -> None:
    """With transactions, whose end may have been passed, and several record sets in store."""
    rng = random.Random(seed)

    async def main(simulation: Simulation) -> None:
        async with simulation.cluster() as cluster:
            await cluster.create_topic("t")
            write(cluster, rng)
            options = {"isolation_level": level, "bootstrap_servers": cluster.bootstrap_servers}
            async with AIOKafkaConsumer("t", **options, **OPTIONS) as consumer:
                visible: list[int] = []
                end = (await consumer.end_offsets([T0]))[T0]
                while await consumer.position(T0) < end:
                    found = await consumer.getmany(timeout_ms=1000)
                    visible += [record.offset for record in found.get(T0, ())]
            size = rng.choice([100, 300, 1000, 1_000_000])
            async with AIOKafkaConsumer(
                "t", max_partition_fetch_bytes=size, **options, **OPTIONS
            ) as consumer:
                at = 0
                while any(offset >= at for offset in visible):
                    wanted = [offset for offset in visible if offset >= at]
                    if rng.random() < 0.5:
                        read = [(await consumer.getone()).offset]
                    else:
                        limit = rng.randrange(1, 6)
                        found = await consumer.getmany(timeout_ms=5000, max_records=limit)
                        read = [record.offset for record in found[T0]]
                    assert read == wanted[: len(read)]
                    at = read[-1] + 1
                    if rng.random() < 0.7:
                        at = max(at, await consumer.position(T0)) + rng.randrange(6)
                        consumer.seek(T0, min(at, end))
                    await asyncio.sleep(rng.choice([0, 0.01]))
                assert cluster.count(FetchRequest)

    simulate(main, seed=seed)


# == Incremental fetch sessions (KIP-227) ==========================================================


NO_ID = bytes(16)
ID = b"i" * 16


def spec(offset: int = 0, topic_id: bytes = NO_ID) -> FetchSpec:
    return FetchSpec(topic_id, offset, -1, 1000)


def asked(request: FetchRequest) -> dict[tuple[str, int], int]:
    return {(t.topic, p.partition): p.fetch_offset for t in request.topics for p in t.partitions}


def forgotten(request: FetchRequest) -> list[tuple[str, int]]:
    return [(t.topic, number) for t in request.forgotten_topics_data for number in t.partitions]


def response(*topics: dict[str, Any]) -> FetchResponse:
    part = PartitionData(partition_index=0, high_watermark=0)
    return FetchResponse(
        responses=[FetchableTopicResponse(partitions=[part], **names) for names in topics]
    )


def opened(wanted: dict[TopicPartition, FetchSpec], session_id: int = 7) -> FetchSession:
    session = FetchSession()
    session.build(wanted, wanted)
    assert session.accept(0, session_id)
    return session


def test_the_first_request_names_everything() -> None:
    session = FetchSession()
    request = session.build({T0: spec(3), T1: spec(4)}, [])
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert asked(request) == {("t", 0): 3, ("t", 1): 4}


def test_later_requests_name_what_changed() -> None:
    session = opened({T0: spec(), T1: spec()})
    request = session.build({T0: spec(9), T1: spec()}, [T0, T1])
    assert (request.session_id, request.session_epoch) == (7, 1)
    assert asked(request) == {("t", 0): 9}
    session.accept(0, 7)
    request = session.build({T0: spec(9), T1: spec()}, [T0])
    assert (request.session_epoch, request.topics) == (2, [])


def test_a_partition_left_out_is_forgotten_once_and_can_come_back() -> None:
    session = opened({T0: spec(), T1: spec()})
    request = session.build({T0: spec()}, [T1])
    assert (forgotten(request), request.topics) == ([("t", 1)], [])
    session.accept(0, 7)
    assert forgotten(session.build({T0: spec()}, [T1])) == []
    session.accept(0, 7)
    assert asked(session.build({T0: spec(), T1: spec(5)}, [T1])) == {("t", 1): 5}


def test_without_a_session_every_request_is_full() -> None:
    session = opened({T0: spec()}, session_id=0)
    request = session.build({T0: spec(), T1: spec()}, [T1])
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert len(asked(request)) == 2


def test_a_session_evicted_with_an_answer_starts_again() -> None:
    session = opened({T0: spec()})
    session.build({T0: spec(1)}, [T0])
    assert session.accept(0, 0)
    request = session.build({T0: spec(1)}, [])
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert asked(request) == {("t", 0): 1}


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (FetchSessionIdNotFound, 0),
        (FetchSessionTopicIdError, 7),
        (InvalidFetchSessionEpoch, 7),
    ],
)
def test_an_error_starts_again(error: type[FetchSessionIdNotFound], kept: int) -> None:
    session = opened({T0: spec()})
    session.build({T0: spec(1)}, [T0])
    assert not session.accept(error.errno, 0)
    request = session.build({T0: spec(1)}, [])
    assert (request.session_id, request.session_epoch) == (kept, 0)
    assert asked(request) == {("t", 0): 1}


def test_after_a_lost_answer_the_session_is_replaced() -> None:
    session = opened({T0: spec()})
    session.build({T0: spec(1)}, [T0])
    session.restart()
    request = session.build({T0: spec(1)}, [])
    assert (request.session_id, request.session_epoch) == (7, 0)


def test_a_session_that_lacks_a_partition_is_replaced() -> None:
    """Later requests would not name it, and it would be read no more."""
    session = opened({T0: spec(), T1: spec()})
    session.check_full({T0, T1})
    assert not session.is_full
    session.check_full({T0})
    request = session.build({T0: spec(1), T1: spec()}, [T0])
    assert (request.session_id, request.session_epoch) == (7, 0)
    assert asked(request) == {("t", 0): 1, ("t", 1): 0}


def test_epochs_wrap_to_one() -> None:
    session = opened({T0: spec()})
    session.epoch = 2**31 - 1
    session.accept(0, 7)
    assert session.epoch == 1


def test_topic_ids_are_used_when_all_topics_have_one() -> None:
    session = FetchSession()
    session.build({T0: spec(0, ID)}, [])
    assert session.max_version is None
    found = partitions_in(response({"topic_id": ID}, {"topic_id": b"x" * 16}), session.topic_names)
    assert [tp for tp, _ in found] == [T0]
    session = FetchSession()
    session.build({T0: spec(0, ID), TopicPartition("old", 0): spec()}, [])
    assert session.max_version == 12
    assert [tp for tp, _ in partitions_in(response({"topic": "old"}), session.topic_names)] == [
        ("old", 0)
    ]


def test_a_topic_made_anew_starts_again() -> None:
    session = opened({T0: spec(0, ID)})
    request = session.build({T0: spec(0, b"j" * 16)}, [T0])
    assert request.session_epoch == 0
    assert request.topics[0].topic_id == b"j" * 16


def test_a_session_is_closed_once() -> None:
    session = FetchSession()
    assert session.closing_request() is None
    session = opened({T0: spec()})
    request = session.closing_request()
    assert request is not None
    assert (request.session_id, request.session_epoch, request.topics) == (7, -1, [])
    assert session.closing_request() is None


# == Isolation levels, and preferred read replicas (KIP-392) =======================================


def transactional(cluster: FakeCluster, producer_id: int, sequence: int, *values: bytes) -> None:
    builder = RecordBatchBuilder(size_limit=100_000)
    for value in values:
        builder.append(1000, None, value, ())
    data = builder.build(producer_id, 0, sequence, True)
    cluster.log("t").append_bytes(data)


async def test_isolation_levels(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    log = cluster.log("t")
    transactional(cluster, 1, 0, b"a0", b"a1")
    transactional(cluster, 2, 0, b"b0")
    log.add_marker(1, 0, commit=False)
    fill(cluster, 0, 1)
    transactional(cluster, 1, 2, b"c0")
    log.add_marker(2, 0, commit=True)
    log.add_marker(1, 0, commit=True)
    transactional(cluster, 1, 3, b"open")
    fill(cluster, 0, 1)
    committed = await start(cluster, "t", isolation_level="read_committed")
    values = [(await committed.getone()).value for _ in range(3)]
    assert values == [b"b0", b"4", b"c0"]
    assert await committed.getmany(timeout_ms=50) == {}
    # Past the markers, up to the open transaction.
    assert await committed.position(T0) == 8
    assert (committed.last_stable_offset(T0), committed.highwater(T0)) == (8, 10)
    assert await committed.end_offsets([T0]) == {T0: 8}
    everything = await start(cluster, "t")
    values = [(await everything.getone()).value for _ in range(7)]
    assert values == [b"a0", b"a1", b"b0", b"4", b"c0", b"open", b"9"]
    assert everything.last_stable_offset(T0) == -1
    log.add_marker(1, 0, commit=True)
    values = [(await committed.getone()).value for _ in range(2)]
    assert values == [b"open", b"9"]


async def test_an_application_goes_past_a_damaged_marker(
    cluster: FakeCluster, start: Start
) -> None:
    """By the offset in the error, as past any other batch."""
    await cluster.create_topic("t")
    log = cluster.log("t")
    transactional(cluster, 1, 0, b"a0")
    log.add_marker(1, 0, commit=False)
    log.corrupt(1)
    transactional(cluster, 1, 1, b"a1")
    log.add_marker(1, 0, commit=True)
    for level, values in (("read_committed", [b"a1"]), ("read_uncommitted", [b"a0", b"a1"])):
        consumer = await start(cluster, "t", isolation_level=level)
        found: list[Any] = []
        async with timeout(10):
            while len(found) < len(values):
                try:
                    found.append((await consumer.getone()).value)
                except CorruptRecordException as error:
                    assert error.next_offset is not None
                    consumer.seek(T0, error.next_offset)
        assert found == values


async def test_a_closer_replica_is_read_until_it_fails(start: Start) -> None:
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 5)
        consumer = await start(cluster, "t", client_rack="b")
        assert await read(consumer, 5) == [(0, n) for n in range(5)]

        def last_reader() -> Any:
            return cluster.requests(FetchRequest)[-1].broker_id

        await cluster.wait_for(lambda: last_reader() == 1)
        cluster.intercept(FetchRequest, Fail(NotLeaderForPartitionError), times=2, broker=1)
        fill(cluster, 0, 5)
        assert await read(consumer, 5) == [(0, n) for n in range(5, 10)]


def test_a_replica_that_failed_is_used_again_after_half_a_minute() -> None:
    """Not before: the leader would name it again at once."""

    async def main(_: Simulation) -> None:
        async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
            await cluster.create_topic("t", assignment={0: [0, 1]})
            consumer = AIOKafkaConsumer(
                bootstrap_servers=cluster.bootstrap_servers, client_rack="b"
            )
            consumer.assign([T0])
            async with consumer:

                async def readers(seconds: float) -> set[int]:
                    """Return which brokers are asked for records in so many seconds."""
                    cluster.forget_requests()
                    await asyncio.sleep(seconds)
                    return {seen.broker_id for seen in cluster.requests(FetchRequest)}

                await asyncio.sleep(5)
                assert await readers(5) == {1}
                cluster.intercept(FetchRequest, Cut(), times=1, broker=1)
                await asyncio.sleep(2)
                assert await readers(25) == {0}
                await asyncio.sleep(5)
                assert await readers(5) == {1}

    simulate(main)


async def test_all_partitions_leave_a_replica_that_fails(start: Start) -> None:
    """One of which enough had been fetched stayed there, and failed once more when it was read."""
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1], 1: [0, 1]})
        fill(cluster, 0, 20)
        fill(cluster, 1, 20)
        # A record to a response, of which two wait.
        options: dict[str, Any] = {"client_rack": "b", "max_partition_fetch_bytes": 1}
        consumer = await start(cluster, assign=[T0, T1], **options)
        await cluster.wait_for(lambda: queued(consumer) == [2, 2])
        asked = len(cluster.requests(FetchRequest))
        cluster.intercept(FetchRequest, Cut(), broker=1)
        for tp in (T0, T1):
            for offset in range(20):
                assert (await consumer.getone(tp)).offset == offset
        later = cluster.requests(FetchRequest)[asked:]
        assert [seen.broker_id for seen in later].count(1) == 1


async def test_a_late_error_of_the_former_leader_is_ignored(start: Start) -> None:
    """The error is in the response to a request that was in flight when the leader moved."""
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1], 1: [0, 1]})
        fill(cluster, 0, 1)
        consumer = await start(cluster, "t", metadata_max_age_ms=20)
        assert await read(consumer, 1) == [(0, 0)]
        event = asyncio.Event()
        late = Hold(event, then=partition_error(TopicAuthorizationFailedError))
        held = cluster.intercept(FetchRequest, late, broker=0, times=1)
        await cluster.wait_for(lambda: held.hits)
        cluster.move_leader(T0, 1)
        await cluster.wait_for(lambda: cluster.requests(FetchRequest)[-1].broker_id == 1)
        event.set()
        await cluster.wait_for(lambda: cluster.requests(FetchRequest)[-1].broker_id == 0)
        fill(cluster, 0, 1)
        assert await read(consumer, 1) == [(0, 1)]


async def test_a_replica_that_lags_does_not_reset_the_position(start: Start) -> None:
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 5)
        consumer = await start(cluster, "t", client_rack="b", auto_offset_reset="none")
        consumer.seek(T0, 3)
        out_of_range = cluster.intercept(
            FetchRequest, partition_error(OffsetOutOfRangeError), broker=1
        )
        assert await read(consumer, 2) == [(0, 3), (0, 4)]
        await cluster.wait_for(lambda: out_of_range.hits)
        out_of_range.remove()
        fill(cluster, 0, 1)
        assert await read(consumer, 1) == [(0, 5)]


@pytest.mark.parametrize(
    "answer",
    [
        partition_error(CorruptRecordException),
        partition_error(TopicAuthorizationFailedError),
        Fail(UnknownError),
    ],
)
async def test_a_replica_that_cannot_serve_is_left_for_the_leader(
    start: Start, answer: Edit | Fail
) -> None:
    """What is damaged there, or not known yet, need not be so at the leader."""
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 5)
        cluster.intercept(FetchRequest, answer, broker=1)
        consumer = await start(cluster, "t", client_rack="b")
        async with timeout(10):
            assert await read(consumer, 5) == [(0, n) for n in range(5)]
        asked = {seen.broker_id for seen in cluster.requests(FetchRequest)}
        assert asked == {0, 1}


def damage(response: FetchResponse) -> None:
    """Change a byte of each last record, as a disk may."""
    for topic in response.responses:
        for data in topic.partitions:
            if data.records:
                records = bytearray(data.records)
                records[-3] ^= 0xFF
                data.records = bytes(records)


async def by_getone(consumer: AIOKafkaConsumer) -> list[int]:
    return [(await consumer.getone()).offset for _ in range(5)]


async def by_getmany(consumer: AIOKafkaConsumer) -> list[int]:
    found: list[int] = []
    while len(found) < 5:
        batches = await consumer.getmany(timeout_ms=10_000)
        found += [record.offset for records in batches.values() for record in records]
    return found


async def by_iteration(consumer: AIOKafkaConsumer) -> list[int]:
    found = []
    async for record in consumer:
        found.append(record.offset)
        if len(found) == 5:
            break
    return found


@pytest.mark.parametrize("way", [by_getone, by_getmany, by_iteration])
@pytest.mark.parametrize("batch", [1, 5])
async def test_what_a_replica_sends_damaged_comes_from_the_leader(
    start: Start, way: Callable[[AIOKafkaConsumer], Awaitable[list[int]]], batch: int
) -> None:
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 5, batch=batch)
        cluster.intercept(FetchRequest, Edit(damage), broker=1)
        consumer = await start(cluster, "t", client_rack="b")
        async with timeout(10):
            assert await way(consumer) == [0, 1, 2, 3, 4]


async def test_what_a_former_leader_has_sent_damaged_comes_from_the_present_one(
    start: Start,
) -> None:
    """It waited to be read when the partition was moved to another broker, as an operator does
    whose disk is broken."""
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 5, batch=5)
        cluster.intercept(FetchRequest, Edit(damage), broker=0)
        consumer = await start(cluster, assign=[T0], metadata_max_age_ms=50)
        await cluster.wait_for(lambda: queued(consumer) == [1])
        cluster.move_leader(T0, 1)
        await cluster.wait_for(lambda: cluster.requests(FetchRequest)[-1].broker_id == 1)
        async with timeout(10):
            assert await read(consumer, 5) == [(0, n) for n in range(5)]


async def test_what_the_leader_sends_damaged_as_well_is_reported(start: Start) -> None:
    async with FakeCluster(brokers=2, racks=["a", "b"]) as cluster:
        await cluster.create_topic("t", assignment={0: [0, 1]})
        fill(cluster, 0, 5, batch=5)
        cluster.intercept(FetchRequest, Edit(damage))
        consumer = await start(cluster, "t", client_rack="b")
        async with timeout(10):
            with pytest.raises(CorruptRecordException) as caught:
                await consumer.getone()
        assert caught.value.next_offset == 5
        assert {seen.broker_id for seen in cluster.requests(FetchRequest)} == {0, 1}


# == `receive_message_max_bytes` ===================================================================


LIMIT = 20_000


async def test_fetches_ask_for_what_can_pass(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=2)
    for number in range(2):
        for _ in range(20):
            cluster.log("t", number).extend([(None, bytes(5000), ())])
    consumer = await start(cluster, "t", receive_message_max_bytes=LIMIT)
    async with timeout(10):
        for _ in range(40):
            await consumer.getone()
    assert all(seen.request.max_bytes < LIMIT for seen in cluster.requests(FetchRequest))


async def test_a_batch_that_cannot_pass(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=2)
    log = cluster.log("t", 0)
    for size in (10, 30_000, 11):
        log.extend([(None, bytes(size), ())])
    consumer = await start(cluster, assign=[T0, T1], receive_message_max_bytes=LIMIT)
    async with timeout(10):
        assert (await consumer.getone()).offset == 0
        for _ in range(2):
            with pytest.raises(RecordTooLargeError, match="receive_message_max_bytes=20000"):
                await consumer.getone()
        consumer.seek(T0, 2)
        assert (await consumer.getone()).offset == 2


async def test_a_batch_that_cannot_pass_does_not_keep_back_other_partitions(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    cluster.log("t", 0).extend([(None, bytes(30_000), ())])
    fill(cluster, 1, 5)
    consumer = await start(cluster, assign=[T0, T1], receive_message_max_bytes=LIMIT)
    found: list[int] = []
    async with timeout(10):
        while len(found) < 5:
            with suppress(RecordTooLargeError):
                found.append((await consumer.getone(T1)).offset)
    assert found == [0, 1, 2, 3, 4]


async def test_partitions_take_turns_without_a_session(start: Start) -> None:
    """A broker with too many clients opens none, and does not know who was served last."""
    async with FakeCluster(config={"max.incremental.fetch.session.cache.slots": 0}) as cluster:
        await cluster.create_topic("t", partitions=3)
        for number in range(3):
            fill(cluster, number, 300, batch=10)
        room = {"max_partition_fetch_bytes": 200, "fetch_max_bytes": 200}
        consumer = await start(cluster, "t", **room)
        async with timeout(10):
            found = Counter(number for number, _ in await read(consumer, 300))
        assert min(found[number] for number in range(3)) > 50


# == Long record sets ==============================================================================


@pytest.mark.real_time
async def test_a_long_record_set_does_not_hold_up_other_tasks(
    two_brokers: FakeCluster, start: Start
) -> None:
    """All of it is there at once, and the reader has no other reason to wait."""
    fill(two_brokers, 0, 2000, batch=2000)
    consumer = await start(two_brokers, assign=[T0])
    loop = asyncio.get_running_loop()
    turns = seen = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    await consumer.getone()
    before, began_at = turns, loop.time()
    async for _record in consumer:
        seen += 1
        while loop.time() < began_at + seen * 0.0001:
            pass
        if seen == 1000:
            break
    counting.cancel()
    assert turns > before + 2
