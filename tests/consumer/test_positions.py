"""Fetch positions: the reset policy, new partitions, truncation, seeks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiokafka import AIOKafkaConsumer, TopicPartition, errors
from aiokafka._compat import timeout
from aiokafka.errors import (
    BrokerResponseError,
    LeaderNotAvailableError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.messages.fetch import FetchRequest, ListOffsetsRequest
from aiokafka.protocol.messages.group_offsets import OffsetFetchRequest
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokafka.testing import Cut, Delay, Edit, Fail, FakeCluster, Hold
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, T1, T2, Start, client_of, fill, partition_error, read
from tests.support.groups import until

# == auto_offset_reset="latest" ====================================================================


WAYS = ["subscribed", "group", "consumer protocol", "assigned", "assigned in a group", "pattern"]


async def begin(start: Start, cluster: FakeCluster, way: str, **options: Any) -> AIOKafkaConsumer:
    options = {
        "auto_offset_reset": "latest",
        "metadata_max_age_ms": 200,
        "max_poll_interval_ms": 60_000,
        **options,
    }
    if "group" in way or "protocol" in way:
        options["group_id"] = "g"
    if "protocol" in way:
        options["group_protocol"] = "consumer"
    if "assigned" in way:
        return await start(cluster, assign=[T0], **options)
    if way == "pattern":
        consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers, **options)
        consumer.subscribe(pattern="t")
        await consumer.start()
        return consumer
    return await start(cluster, "t", **options)


def missing_at_first(error: type[BrokerResponseError], times: int = 1) -> Any:
    """Have a broker make the topic `t` as real ones do: the first answers say that it is not
    there."""
    left = times

    def change(response: MetadataResponse) -> None:
        nonlocal left
        for topic in response.topics:
            if topic.name == "t" and left:
                left -= 1
                topic.error_code = error.errno
                topic.partitions = []

    return Edit(change)


@pytest.mark.parametrize("error", [UnknownTopicOrPartitionError, LeaderNotAvailableError])
@pytest.mark.parametrize("way", [way for way in WAYS if way != "pattern"])
async def test_a_topic_that_is_made_while_it_starts(
    cluster: FakeCluster, start: Start, way: str, error: type[BrokerResponseError]
) -> None:
    cluster.intercept(MetadataRequest, missing_at_first(error, 2))
    # Written by the client that made the topic, before the position is looked up.
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    consumer = await begin(start, cluster, way)
    assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_written_when_it_has_started(
    cluster: FakeCluster, start: Start, way: str
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    consumer = await begin(start, cluster, way)
    if way == "pattern":
        await cluster.wait_for(lambda: cluster.count(ListOffsetsRequest) > 0)
    fill(cluster, 0, 1)
    assert await read(consumer, 1) == [(0, 3)]
    await consumer.stop()


@pytest.mark.parametrize("way", ["subscribed", "group", "consumer protocol", "pattern"])
async def test_partitions_that_are_added(cluster: FakeCluster, start: Start, way: str) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    consumer = await begin(start, cluster, way)
    await cluster.wait_for(lambda: cluster.count(FetchRequest) > 0)
    await grow(cluster, 2)
    fill(cluster, 1, 2)
    assert await read(consumer, 2) == [(1, 0), (1, 1)]
    fill(cluster, 0, 1)
    assert await read(consumer, 1) == [(0, 3)]
    await consumer.stop()


async def test_an_assigned_partition_that_is_added(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 1, 3)
    consumer = await start(
        cluster, assign=[T0, T1, T2], auto_offset_reset="latest", metadata_max_age_ms=200
    )
    await grow(cluster, 3)
    fill(cluster, 2, 2)
    assert await read(consumer, 2) == [(2, 0), (2, 1)]


async def test_topics_that_match_later(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t1")
    fill(cluster, 0, 3, topic="t1")
    consumer = await begin(start, cluster, "pattern")
    await cluster.wait_for(lambda: cluster.count(FetchRequest) > 0)
    await cluster.create_topic("t2")
    fill(cluster, 0, 2, topic="t2")
    records = [await consumer.getone() for _ in range(2)]
    assert [(record.topic, record.offset) for record in records] == [("t2", 0), ("t2", 1)]
    await consumer.stop()


async def test_a_topic_that_is_not_there_is_waited_for(cluster: FakeCluster, start: Start) -> None:
    """It is asked for again soon, not only after `metadata_max_age_ms`."""
    options = {"allow_auto_create_topics": False, "auto_offset_reset": "latest"}
    await cluster.create_topic("t")
    consumer = await start(cluster, "t", **options)
    consumer.subscribe(["t", "later"])
    seen = cluster.count(MetadataRequest)
    await cluster.wait_for(lambda: cluster.count(MetadataRequest) > seen + 2)
    await cluster.create_topic("later")
    fill(cluster, 0, 1, topic="later")
    assert (await consumer.getone()).topic == "later"


async def test_a_missing_topic_is_asked_for_less_and_less(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    consumer = await start(cluster, "t", allow_auto_create_topics=False)
    consumer.subscribe(["t", "never"])
    cluster.forget_requests()
    # With 10 ms that double there are some seven in a second; asked for without a pause, thousands.
    await asyncio.sleep(1.0)
    assert 3 <= cluster.count(MetadataRequest) <= 70


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_who_comes_later_reads_nothing_again(
    cluster: FakeCluster, start: Start, protocol: str
) -> None:
    """The partition is new to the first member only; a process that is started again finds it."""
    await cluster.create_topic("t")
    options = {"group_id": "g", "group_protocol": protocol, "enable_auto_commit": False}
    first = await begin(start, cluster, "subscribed", **options)
    await grow(cluster, 2)
    fill(cluster, 1, 2)
    assert await read(first, 2) == [(1, 0), (1, 1)]
    await first.stop()
    second = await begin(start, cluster, "subscribed", **options)
    fill(cluster, 1, 1)
    assert await read(second, 1) == [(1, 2)]


async def test_a_topic_that_was_not_to_be_found_long_ago(
    cluster: FakeCluster, start: Start
) -> None:
    """An old "no such topic" says nothing of the time when the application begins to read it."""
    options = {"auto_offset_reset": "latest", "allow_auto_create_topics": False}
    consumer = await start(cluster, default_api_timeout_ms=1000, **options)
    with pytest.raises(Exception, match="t"):
        await consumer.end_offsets([T0])
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    consumer.assign([T0])
    assert await consumer.position(T0) == 3


async def test_partitions_that_an_answer_leaves_out_are_not_new(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 1, 3)
    consumer = await start(cluster, assign=[T0], auto_offset_reset="latest")
    left = 2

    def change(response: MetadataResponse) -> None:
        nonlocal left
        for topic in response.topics:
            if left and topic.name == "t":
                left -= 1
                topic.partitions = [p for p in topic.partitions if p.partition_index == 0]

    cluster.intercept(MetadataRequest, Edit(change))
    for _ in range(3):
        await client_of(consumer).force_metadata_update()
    consumer.assign([T0, T1])
    assert await consumer.position(T1) == 3


@pytest.mark.parametrize("count", [2, 8], ids=["shorter", "longer"])
@pytest.mark.parametrize("policy", ["latest", "earliest", "by_duration:PT1H"])
async def test_a_topic_that_is_made_anew(
    cluster: FakeCluster, start: Start, policy: str, count: int
) -> None:
    """Whether or not the old position is in the new log."""
    await cluster.create_topic("t")
    fill(cluster, 0, 5)
    consumer = await start(cluster, "t", auto_offset_reset=policy, metadata_max_age_ms=50)
    consumer.seek(T0, 4)
    assert await read(consumer, 1) == [(0, 4)]
    await cluster.delete_topic("t")
    await cluster.create_topic("t")
    fill(cluster, 0, count)
    assert await read(consumer, count) == [(0, n) for n in range(count)]


async def test_without_a_policy_a_topic_that_is_made_anew_is_reported(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 5)
    consumer = await start(cluster, "t", auto_offset_reset="none", metadata_max_age_ms=50)
    consumer.seek(T0, 5)
    await cluster.delete_topic("t")
    await cluster.create_topic("t")
    fill(cluster, 0, 8)
    with pytest.raises(NoOffsetForPartitionError):
        await consumer.getone()


async def test_a_broker_that_is_behind_tells_of_the_old_topic(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    old = cluster.state.topics["t"].topic_id
    consumer = await start(cluster, "t", metadata_max_age_ms=50)
    await cluster.delete_topic("t")
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
    left = 3

    def change(response: MetadataResponse) -> None:
        nonlocal left
        for topic in response.topics:
            if left:
                left -= 1
                topic.topic_id = old

    cluster.intercept(MetadataRequest, Edit(change))
    await cluster.wait_for(lambda: not left)
    fill(cluster, 0, 1)
    assert await read(consumer, 1) == [(0, 3)]


async def test_start_does_not_wait_for_a_leader_that_is_away(start: Start) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", assignment={0: [0], 1: [1]})
        fill(cluster, 0, 1)
        cluster.intercept(ListOffsetsRequest, Fail(LeaderNotAvailableError), broker=1)
        consumer = await start(cluster, "t", auto_offset_reset="latest")
        fill(cluster, 0, 1)
        assert await read(consumer, 1) == [(0, 1)]


async def test_a_start_that_is_cancelled_while_it_looks(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    hold = Hold(asyncio.Event())
    script = cluster.intercept(ListOffsetsRequest, hold)
    starting = asyncio.create_task(start(cluster, "t", auto_offset_reset="latest"))
    await cluster.wait_for(lambda: script.hits)
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()


async def test_nothing_is_missed_between_a_time_and_the_end(
    cluster: FakeCluster, start: Start
) -> None:
    """By duration: no record is young enough; one is written before the end is asked for."""
    await cluster.create_topic("t")
    cluster.log("t").append(b"old", timestamp_ms=1000)
    script = cluster.intercept(ListOffsetsRequest, lambda request, context: after_each(cluster))
    consumer = await start(cluster, "t", auto_offset_reset="by_duration:PT1H")
    script.remove()
    assert (await consumer.getone()).offset == 1


def after_each(cluster: FakeCluster) -> Edit:
    def change(response: Any) -> None:
        cluster.log("t").append(b"new")

    return Edit(change)


async def grow(cluster: FakeCluster, count: int) -> None:
    from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    await admin.start()
    try:
        await admin.create_partitions({"t": NewPartitions(count)})
    finally:
        await admin.close()


# == New partitions whose leader is unavailable ====================================================


LATEST: dict[str, Any] = {
    "auto_offset_reset": "latest",
    "metadata_max_age_ms": 10_000,
    "max_poll_interval_ms": 3_600_000,
}


@pytest.mark.parametrize("how", ["silent", "stopped"])
@pytest.mark.parametrize("group_id", [None, "g"])
def test_a_partition_is_new_for_as_long_as_its_leader_is_away(
    how: str, group_id: str | None
) -> None:
    """Ten minutes here, where partitions with a leader are new for one."""

    async def main(_: Simulation) -> None:
        async with FakeCluster(brokers=2) as cluster:
            await cluster.create_topic("t", assignment={0: [0]})
            cluster.move_coordinator("group", "g", 0)
            async with AIOKafkaConsumer(
                "t", bootstrap_servers=cluster.address(0), group_id=group_id, **LATEST
            ) as consumer:
                await asyncio.sleep(30)
                away = cluster.intercept(ListOffsetsRequest, Cut(), broker=1)
                cluster.add_partitions("t", 2)
                cluster.move_leader(T1, 1)
                fill(cluster, 1, 3)
                if how == "stopped":
                    await cluster.stop_broker(1)
                await asyncio.sleep(600)
                assert T1 in consumer.assignment()
                away.remove()
                if how == "stopped":
                    await cluster.start_broker(1)
                async with timeout(60):
                    assert [(await consumer.getone()).offset for _ in range(3)] == [0, 1, 2]

    simulate(main)


# == Positions reset after truncation or out-of-range offsets ======================================


OPTIONS: dict[str, Any] = {
    "group_id": "g",
    "metadata_max_age_ms": 50,
    "auto_commit_interval_ms": 20,
}


def cut(cluster: FakeCluster, offset: int) -> None:
    """What an unclean election of a leader does."""
    cluster.log("t").truncate(offset)
    cluster.move_leader(T0, 1 - cluster.partition("t").leader)


@pytest.mark.parametrize("how", ["retention", "cut ahead", "cut below"])
async def test_what_the_application_has_in_hand_stays_unfinished(start: Start, how: str) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", replication_factor=2)
        fill(cluster, 0, 8, batch=2)
        consumer = await start(cluster, "t", **OPTIONS)
        assert len((await consumer.getmany(timeout_ms=5000, max_records=4))[T0]) == 4
        assert len((await consumer.getmany(timeout_ms=5000, max_records=4))[T0]) == 4
        # Now records 4 to 7 are in hand.
        if how == "retention":
            fill(cluster, 0, 32)
            cluster.log("t").delete_before(30)
            await until(cluster, lambda: consumer.lag(T0) == 10)
        else:
            if how == "cut ahead":
                fill(cluster, 0, 8, batch=2)
                await until(cluster, lambda: consumer.known_end_offsets()[T0] == 16)
            leader = cluster.partition("t").leader
            cut(cluster, 12 if how == "cut ahead" else 6)
            # The new leader is asked for records when the position was compared with its log.
            await until(cluster, lambda: last_fetched_from(cluster) != leader)
        moved = {"retention": 30, "cut ahead": 8, "cut below": 6}
        assert await consumer.position(T0) == moved[how]
        # By another task than the one that reads, so it says nothing of what that has in hand.
        await asyncio.create_task(consumer.stop())
        assert cluster.groups.committed("g", "t") == 4


def last_fetched_from(cluster: FakeCluster) -> int:
    return cluster.requests(FetchRequest)[-1].broker_id


async def test_the_next_call_finishes_it(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 8)
    consumer = await start(cluster, "t", **OPTIONS)
    await read(consumer, 8)
    fill(cluster, 0, 32)
    cluster.log("t").delete_before(30)
    await until(cluster, lambda: consumer.lag(T0) == 10)
    await consumer.getmany(timeout_ms=5000, max_records=1)
    await consumer.getmany(timeout_ms=5000, max_records=1)
    await until(cluster, lambda: cluster.groups.committed("g", "t") == 31)


@pytest.mark.parametrize("policy", ["earliest", "none"])
async def test_what_waits_to_be_read_outlives_its_log(
    cluster: FakeCluster, start: Start, policy: str
) -> None:
    """Retention overtakes a slow application, which has the next records in memory already."""
    await cluster.create_topic("t")
    fill(cluster, 0, 8)
    consumer = await start(cluster, assign=[T0], auto_offset_reset=policy)
    consumer.seek(T0, 0)
    assert await read(consumer, 2) == [(0, 0), (0, 1)]
    fetches = cluster.count(FetchRequest)
    fill(cluster, 0, 32)
    cluster.log("t").delete_before(30)
    await until(cluster, lambda: cluster.count(FetchRequest) > fetches + 1)
    assert await read(consumer, 6) == [(0, offset) for offset in range(2, 8)]
    if policy == "earliest":
        assert await read(consumer, 1) == [(0, 30)]
        return
    with pytest.raises(OffsetOutOfRangeError) as caught:
        await consumer.getone()
    assert caught.value.args == ({T0: 8},)


async def test_a_log_without_any_offset_costs_few_requests(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 2)
    script = cluster.intercept(FetchRequest, partition_error(OffsetOutOfRangeError))
    consumer = await start(cluster, "t", retry_backoff_ms=50)
    await asyncio.sleep(0.5)
    # From the second on there are back-offs of 50 ms and more; without them it is hundreds.
    assert 3 < script.hits < 20
    script.remove()
    assert await read(consumer, 2) == [(0, 0), (0, 1)]


async def test_a_committed_offset_moves_no_partition_that_was_assigned_anew(
    cluster: FakeCluster, start: Start
) -> None:
    """What was sought is the position of an assignment that is over."""
    await cluster.create_topic("t")
    fill(cluster, 0, 10)
    consumer = await start(cluster, assign=[T0], group_id="g", enable_auto_commit=False)
    await read(consumer, 1)
    await consumer.commit()
    goes_on = asyncio.Event()
    asked = cluster.intercept(OffsetFetchRequest, Hold(goes_on), times=1)
    seeking = asyncio.create_task(consumer.seek_to_committed(T0))
    await asked.wait()
    consumer.assign([])
    consumer.assign([T0])
    consumer.seek(T0, 5)
    assert await read(consumer, 2) == [(0, 5), (0, 6)]
    goes_on.set()
    assert await seeking == {T0: 1}
    assert await read(consumer, 3) == [(0, 7), (0, 8), (0, 9)]


async def test_behind_the_end_of_a_log_nothing_lags(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    consumer = await start(cluster, assign=[T0], auto_offset_reset="none")
    consumer.seek(T0, 0)
    await read(consumer, 1)
    assert consumer.lag(T0) == 2
    consumer.seek(T0, 10)
    assert consumer.lag(T0) == 0
    assert consumer.health().lag == 0


@pytest.mark.parametrize("how", ["seek", "beginning"])
def test_a_seek_does_not_wait_for_the_pause_of_before(how: str) -> None:
    """What is asked for now is another thing than what has failed."""

    async def main(_: Simulation) -> None:
        loop = asyncio.get_running_loop()
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            fill(cluster, 0, 5)
            async with AIOKafkaConsumer(
                bootstrap_servers=cluster.bootstrap_servers,
                auto_offset_reset="none",
                retry_backoff_ms=20_000,
                retry_backoff_max_ms=20_000,
            ) as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 50)
                with pytest.raises(OffsetOutOfRangeError):
                    await consumer.getone()
                began = loop.time()
                if how == "seek":
                    consumer.seek(T0, 0)
                else:
                    assert await consumer.seek_to_beginning(T0)
                assert len(await read(consumer, 5)) == 5
                assert loop.time() - began < 5

    simulate(main)


# == Property test: seek, pause, assign, read and faults in any order ==============================
#
# No record is skipped, and no record is returned twice.


PARTITIONS = 3
TPS = [TopicPartition("t", number) for number in range(PARTITIONS)]
FAULTS = [
    partition_error(errors.NotLeaderForPartitionError, 0),
    partition_error(errors.FencedLeaderEpoch, 1),
    partition_error(errors.OffsetNotAvailable, 2),
    Fail(errors.FetchSessionIdNotFound),
    Fail(errors.InvalidFetchSessionEpoch),
    Cut(handled=True),
    Delay(0.01),
]

partitions = st.integers(0, PARTITIONS - 1)
steps = st.one_of(
    st.tuples(st.just("write"), partitions, st.integers(1, 12)),
    st.tuples(st.just("getone"), st.booleans(), partitions),
    st.tuples(st.just("getmany"), st.integers(1, 9), st.sets(partitions)),
    st.tuples(st.just("cancel"), st.integers(0, 12), st.booleans()),
    st.tuples(st.just("seek"), partitions, st.integers(0, 30)),
    st.tuples(st.just("pause"), partitions, st.booleans()),
    st.tuples(st.just("assign"), st.sets(partitions), st.just(0)),
    st.tuples(st.just("drop"), st.just(0), st.just(0)),
    st.tuples(st.just("move"), partitions, st.integers(0, 1)),
    st.tuples(st.just("fault"), st.sampled_from(FAULTS), st.integers(1, 3)),
    st.tuples(st.just("turns"), st.integers(1, 8), st.just(0)),
)


class Run:
    """A consumer, and the model of what it must return: by partition, the next offset."""

    def __init__(self, cluster: FakeCluster, consumer: AIOKafkaConsumer) -> None:
        self.cluster = cluster
        self.consumer = consumer
        self.expected: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
        self.paused: set[int] = set()

    def check(self, records: list[Any]) -> None:
        for record in records:
            number = record.partition
            assert number not in self.paused
            assert record.offset == self.expected[number]
            assert int(record.value) == record.offset
            self.expected[number] += 1

    def available(self, numbers: set[int]) -> bool:
        """Whether there is a record to read in one of these partitions."""
        live = (numbers or set(self.expected)) & self.expected.keys() - self.paused
        return any(self.expected[n] < self.cluster.log("t", n).end_offset for n in live)

    async def write(self, number: int, count: int) -> None:
        fill(self.cluster, number, count, batch=4)

    async def getone(self, is_filtered: bool, number: int) -> None:
        wanted = {number} if is_filtered else set()
        if self.available(wanted):
            self.check([await self.consumer.getone(*(TPS[n] for n in wanted))])

    async def getmany(self, limit: int, wanted: set[int]) -> None:
        timeout = 20_000 if self.available(wanted) else 0
        tps = [TPS[n] for n in wanted]
        found = await self.consumer.getmany(*tps, timeout_ms=timeout, max_records=limit)
        records = [record for batch in found.values() for record in batch]
        assert len(records) <= limit
        assert records or not timeout
        self.check(records)

    async def cancel(self, turns: int, many: bool) -> None:
        call: Any = self.consumer.getmany(timeout_ms=1000) if many else self.consumer.getone()
        task = asyncio.ensure_future(call)
        await self.turns(turns, 0)
        task.cancel()
        try:
            found = await task
        except asyncio.CancelledError:
            return
        self.check([r for batch in found.values() for r in batch] if many else [found])

    async def seek(self, number: int, offset: int) -> None:
        if number in self.expected:
            offset = min(offset, self.cluster.log("t", number).end_offset)
            self.consumer.seek(TPS[number], offset)
            self.expected[number] = offset

    async def pause(self, number: int, on: bool) -> None:
        if number not in self.expected:
            return
        (self.consumer.pause if on else self.consumer.resume)(TPS[number])
        (self.paused.add if on else self.paused.discard)(number)

    async def assign(self, numbers: set[int], _: int) -> None:
        self.consumer.assign([TPS[n] for n in numbers])
        self.expected = {n: self.expected.get(n, 0) for n in numbers}
        self.paused &= numbers

    async def drop(self, _: int, __: int) -> None:
        self.cluster.drop_connections()

    async def move(self, number: int, broker: int) -> None:
        self.cluster.move_leader(TPS[number], broker)

    async def fault(self, answer: Any, times: int) -> None:
        self.cluster.intercept(FetchRequest, answer, times=times)

    async def turns(self, count: int, _: int) -> None:
        for _turn in range(count):
            await asyncio.sleep(0)

    async def finish(self) -> None:
        """Read the rest, and see that every position is where it has to be."""
        self.consumer.resume(*self.consumer.assignment())
        self.paused.clear()
        while self.available(set()):
            self.check([await self.consumer.getone()])
        for number, offset in self.expected.items():
            assert await self.consumer.position(TPS[number]) == offset
        assert await self.consumer.getmany() == {}


async def run(script: list[tuple[str, Any, Any]]) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", partitions=PARTITIONS, replication_factor=2)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap_servers,
            auto_offset_reset="earliest",
            fetch_max_wait_ms=20,
            retry_backoff_ms=5,
            reconnect_backoff_ms=5,
            max_partition_fetch_bytes=500,
            fetch_buffer_memory=4000,
        )
        consumer.assign(TPS)
        async with consumer:
            model = Run(cluster, consumer)
            for name, first, second in script:
                await getattr(model, name)(first, second)
            await model.finish()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(st.lists(steps, max_size=30))
def test_nothing_is_skipped_or_repeated(script: list[tuple[str, Any, Any]]) -> None:
    asyncio.run(run(script))
