"""Leader epochs of positions and committed offsets, and truncation (KIP-320)."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.consumer._partition_state import MOST_SPANS, FetchCursor, LeaderEpochs
from aiokafka.errors import (
    LeaderNotAvailableError,
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
)
from aiokafka.interceptors import ConsumerInterceptor
from aiokafka.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokafka.structs import OffsetAndMetadata
from aiokafka.testing import Cut, Edit, Fail, FakeCluster, Hold
from aiokafka.testing.handlers.fetch import fetch
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, T1, Start, client_of, fill, partition_error, read
from tests.support.groups import until

# == Leader epochs of committed offsets, and truncation ============================================


BY_HAND = {"group_id": "g", "enable_auto_commit": False}


@pytest.fixture
async def two() -> AsyncIterator[FakeCluster]:
    """Two brokers, and a partition whose leader changed twice: epoch 0 up to offset 4, then 1 up to
    offset 8, then 2."""
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", replication_factor=2)
        fill(cluster, 0, 4)
        other_leader(cluster)
        fill(cluster, 0, 4)
        other_leader(cluster)
        fill(cluster, 0, 4)
        yield cluster
        assert cluster.failures == []


def other_leader(cluster: FakeCluster) -> None:
    cluster.move_leader(T0, 1 - cluster.partition("t").leader)


def cut_to(cluster: FakeCluster, offset: int) -> None:
    """What an unclean election does: records are gone, and others take their offsets."""
    cluster.log("t").truncate(offset)
    other_leader(cluster)
    fill(cluster, 0, 14 - offset)


async def committed_epoch(consumer: AIOKafkaConsumer) -> int:
    found = (await consumer.committed_offsets([T0]))[T0]
    assert found is not None
    return found.leader_epoch


# -- what is committed


@pytest.mark.parametrize("batch", [1, 4])
async def test_the_position_is_committed_with_its_epoch(start: Start, batch: int) -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        for _ in range(3):
            fill(cluster, 0, 4, batch=batch)
            cluster.move_leader(T0, 0)
        consumer = await start(cluster, "t", **BY_HAND)
        epochs = []
        for _ in range(12):
            await consumer.getone()
            await consumer.commit()
            epochs.append(await committed_epoch(consumer))
        assert epochs == [0] * 4 + [1] * 4 + [2] * 4


async def test_any_offset_that_was_fetched_is_committed_with_its_epoch(
    two: FakeCluster, start: Start
) -> None:
    consumer = await start(two, "t", **BY_HAND)
    await read(consumer, 10)
    for offset, epoch in [(4, 0), (5, 1), (9, 2), (8, 1), (1, 0), (12, 2), (13, -1)]:
        await consumer.commit({T0: offset})
        assert (offset, await committed_epoch(consumer)) == (offset, epoch)


async def test_auto_commit_says_the_epoch(two: FakeCluster, start: Start) -> None:
    consumer = await start(two, "t", group_id="g", auto_commit_interval_ms=10)
    records = await consumer.getmany(timeout_ms=5000, max_records=6)
    assert len(records[T0]) == 6
    # What this call returns is not finished: the epoch is that of the record before.
    await consumer.getmany(timeout_ms=5000, max_records=6)
    await two.wait_for(lambda: two.groups.committed("g", "t") == 6)
    stored = two.groups.committed_of("g")["t", 0]
    assert (stored.offset, stored.leader_epoch) == (6, 1)


async def test_a_position_that_was_committed_keeps_its_epoch(
    two: FakeCluster, start: Start
) -> None:
    first = await start(two, assign=[T0], **BY_HAND)
    await read(first, 6)
    await first.commit()
    second = await start(two, assign=[T0], **BY_HAND, fetch_min_bytes=10**6)
    assert await second.position(T0) == 6
    await second.commit()
    assert await committed_epoch(second) == 1


async def test_offsets_in_a_transaction_say_the_epoch(two: FakeCluster, start: Start) -> None:
    await two.create_topic("out")
    consumer = await start(two, "t", **BY_HAND)
    producer = AIOKafkaProducer(bootstrap_servers=two.bootstrap_servers, transactional_id="x")
    async with producer:
        groups: list[Any] = ["g", consumer, consumer.group_metadata()]
        for offset, group in zip((6, 3, 10), groups, strict=True):
            while await consumer.position(T0) < offset:
                await consumer.getone()
            async with producer.transaction():
                await producer.send("out", b"v")
                await producer.send_offsets_to_transaction({T0: offset}, group)
            stored = two.groups.committed_of("g")["t", 0]
            assert (stored.offset, stored.leader_epoch) == (offset, (offset - 1) // 4)


async def test_epochs_before_a_seek_forward_are_not_guessed(two: FakeCluster, start: Start) -> None:
    consumer = await start(two, assign=[T0], **BY_HAND, max_partition_fetch_bytes=1)
    await read(consumer, 2)
    consumer.seek(T0, 9)
    await read(consumer, 2)
    for offset, epoch in [(6, -1), (10, 2), (11, 2)]:
        await consumer.commit({T0: offset})
        assert (offset, await committed_epoch(consumer)) == (offset, epoch)


@pytest.mark.parametrize("version", ["0.10.2", "1.1"])
async def test_old_brokers_are_sent_no_epoch(start: Start, version: str) -> None:
    async with FakeCluster(as_version=version) as cluster:
        await cluster.create_topic("t")
        fill(cluster, 0, 4)
        consumer = await start(cluster, "t", **BY_HAND)
        await read(consumer, 4)
        await consumer.commit()
        assert await consumer.committed(T0) == 4
        assert await committed_epoch(consumer) == -1
        assert cluster.count(OffsetCommitRequest) == 1


async def test_an_epoch_that_metadata_no_longer_names_is_not_sent(start: Start) -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        fill(cluster, 0, 4)
        consumer = await start(cluster, "t", retry_backoff_ms=10, metadata_max_age_ms=50)
        assert await read(consumer, 4) == [(0, n) for n in range(4)]

        def hide_epochs(response: MetadataResponse) -> None:
            for topic in response.topics:
                for partition in topic.partitions:
                    partition.leader_epoch = -1

        cluster.intercept(MetadataRequest, Edit(hide_epochs))
        cluster.intercept(FetchRequest, Edit(hide_leaders))
        cluster.move_leader(T0, 0)
        fill(cluster, 0, 4)
        assert await read(consumer, 4) == [(0, n) for n in range(4, 8)]


def hide_leaders(response: FetchResponse) -> None:
    """Responses do not name the new leader, as before Kafka 3.7 (KIP-951)."""
    for topic in response.responses:
        for partition in topic.partitions:
            partition.current_leader = LeaderIdAndEpoch()


# -- the consequences


@pytest.mark.parametrize("how", ["auto", "positions", "offsets"])
async def test_a_log_cut_while_the_consumer_was_away(
    two: FakeCluster, start: Start, how: str
) -> None:
    first = await start(two, "t", group_id="g", enable_auto_commit=how == "auto")
    assert await read(first, 10) == [(0, n) for n in range(10)]
    if how != "auto":
        await first.commit(None if how == "positions" else {T0: 10})
    await first.stop()
    assert two.groups.committed_of("g")["t", 0].offset == 10
    cut_to(two, 5)
    second = await start(two, "t", group_id="g")
    assert await read(second, 9) == [(0, n) for n in range(5, 14)]
    assert two.count(OffsetForLeaderEpochRequest) == 1


async def test_without_a_policy_the_application_is_told(two: FakeCluster, start: Start) -> None:
    first = await start(two, "t", **BY_HAND)
    await read(first, 10)
    await first.commit()
    await first.stop()
    cut_to(two, 5)
    second = await start(two, "t", **BY_HAND, auto_offset_reset="none")
    with pytest.raises(LogTruncationError) as caught:
        await second.getone()
    assert (caught.value.offset, caught.value.divergent_offset) == (10, 5)


async def read_half(cluster: FakeCluster, start: Start) -> AIOKafkaConsumer:
    """A consumer without a policy at position 6, with the other six records in its buffer."""
    options = {"auto_offset_reset": "none", "metadata_max_age_ms": 50}
    consumer = await start(cluster, assign=[T0], **options)
    consumer.seek(T0, 0)
    taken = await consumer.getmany(timeout_ms=5000, max_records=6)
    assert len(taken[T0]) == 6
    return consumer


@pytest.mark.parametrize("end", [6, 7])
async def test_a_log_that_was_cut_behind_the_position_has_lost_nothing(
    two: FakeCluster, start: Start, end: int
) -> None:
    """Only what is in the buffer is void."""
    consumer = await read_half(two, start)
    cut_to(two, end)
    await two.wait_for(lambda: (6, 3) in fetches(two))
    assert await read(consumer, 8) == [(0, n) for n in range(6, 14)]


def fetches(cluster: FakeCluster) -> set[tuple[int, int]]:
    """Offset and leader epoch of each fetch."""
    return {
        (partition.fetch_offset, partition.current_leader_epoch)
        for seen in cluster.requests(FetchRequest)
        for topic in seen.request.topics
        for partition in topic.partitions
    }


async def test_records_that_were_cut_from_the_log_are_not_returned(
    two: FakeCluster, start: Start
) -> None:
    consumer = await read_half(two, start)
    cut_to(two, 3)
    await until(two, lambda: "truncated" in (consumer.health().last_error or ""))
    # Not before the error, and not behind it: the position stays where it is until a seek.
    for _ in range(4):
        await expect_truncation(consumer)


async def test_seek_to_committed_notices_it_too(two: FakeCluster, start: Start) -> None:
    first = await start(two, "t", **BY_HAND)
    await read(first, 10)
    await first.commit()
    await first.stop()
    cut_to(two, 5)
    second = await start(two, assign=[T0], **BY_HAND)
    second.seek(T0, 13)
    assert await read(second, 1) == [(0, 13)]
    assert await second.seek_to_committed(T0) == {T0: 10}
    assert await read(second, 9) == [(0, n) for n in range(5, 14)]


async def test_a_newer_leader_with_the_whole_log_changes_nothing(
    two: FakeCluster, start: Start
) -> None:
    first = await start(two, "t", **BY_HAND)
    await read(first, 6)
    await first.commit()
    await first.stop()
    other_leader(two)
    second = await start(two, "t", **BY_HAND, auto_offset_reset="none")
    assert await read(second, 6) == [(0, n) for n in range(6, 12)]


async def test_a_topic_made_again_is_not_taken_for_the_old_one(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("t", partitions=2)
    for _ in range(5):
        cluster.move_leader(T0, 0)
    fill(cluster, 0, 10)
    consumer = await start(cluster, assign=[T0, T1], **BY_HAND, metadata_max_age_ms=50)
    await read(consumer, 10)
    await cluster.delete_topic("t")
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 3)
    assert await read(consumer, 3) == [(0, 0), (0, 1), (0, 2)]
    await consumer.commit()
    assert await committed_epoch(consumer) == 0


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
@pytest.mark.parametrize("version", ["2.1", "2.8", "4.3"])
async def test_a_topic_made_again_is_read_from_its_beginning(
    start: Start, version: str, policy: str
) -> None:
    async with FakeCluster(as_version=version) as cluster:
        await cluster.create_topic("t")
        for _ in range(3):
            cluster.move_leader(T0, 0)
        fill(cluster, 0, 5)
        options: dict[str, Any] = {"metadata_max_age_ms": 50, "auto_offset_reset": policy}
        consumer = await start(cluster, assign=[T0], **options)
        consumer.seek(T0, 0)
        await read(consumer, 5)
        await cluster.delete_topic("t")
        await cluster.create_topic("t")
        # Before Kafka 2.8 only lower epochs tell. The old position is one of the new topic, too.
        fill(cluster, 0, 10)
        if policy == "none":
            told = LogTruncationError if version == "2.1" else NoOffsetForPartitionError
            with pytest.raises(told):
                await consumer.getone()
            consumer.seek(T0, 0)
        assert await read(consumer, 10) == [(0, n) for n in range(10)]
        await consumer.stop()


async def test_brokers_that_lag_behind_reset_no_position(start: Start) -> None:
    async with FakeCluster(as_version="2.1") as cluster:
        await cluster.create_topic("t")
        for _ in range(3):
            cluster.move_leader(T0, 0)
        fill(cluster, 0, 5)
        consumer = await start(cluster, assign=[T0], metadata_max_age_ms=20)
        await read(consumer, 5)

        def tell_old_epoch(response: MetadataResponse) -> None:
            for topic in response.topics:
                for partition in topic.partitions:
                    partition.leader_epoch = 1

        script = cluster.intercept(MetadataRequest, Edit(tell_old_epoch))
        await cluster.wait_for(lambda: cluster.count(OffsetForLeaderEpochRequest) > 0)
        script.remove()
        fill(cluster, 0, 3)
        assert await read(consumer, 3) == [(0, 5), (0, 6), (0, 7)]
        await consumer.stop()


# -- records that were taken, and did not reach the application


class Interrupt(BaseException):
    """As KeyboardInterrupt, which asyncio treats in a way of its own."""


async def expect_truncation(consumer: AIOKafkaConsumer) -> None:
    """The position is 6; the log was cut to 3."""
    with pytest.raises(LogTruncationError) as caught:
        await consumer.getone()
    assert (caught.value.offset, caught.value.divergent_offset) == (6, 3)


async def test_an_interrupt_ends_no_comparison(two: FakeCluster, start: Start) -> None:
    """The records go back while the log of the next leader is compared."""

    def deserialize(value: bytes) -> bytes:
        if value == b"8" and interrupts:
            raise interrupts.pop()
        return value

    interrupts: list[Any] = [Interrupt]
    options = {"auto_offset_reset": "none", "metadata_max_age_ms": 50}
    consumer = await start(two, assign=[T0], value_deserializer=deserialize, **options)
    consumer.seek(T0, 0)
    taken = await consumer.getmany(timeout_ms=5000, max_records=6)
    assert len(taken[T0]) == 6
    compared = asyncio.Event()
    with two.intercept(OffsetForLeaderEpochRequest, Hold(compared)) as script:
        cut_to(two, 3)
        await two.wait_for(lambda: script.hits)
        with pytest.raises(Interrupt):
            await consumer.getmany(timeout_ms=5000)
        assert await consumer.position(T0) == 6
        compared.set()
    await expect_truncation(consumer)


async def test_records_that_go_back_keep_their_epoch(two: FakeCluster, start: Start) -> None:
    """An interceptor was cancelled; then another leader comes."""

    class Waits(ConsumerInterceptor):
        async def on_consume(self, records: Any) -> None:  # type: ignore[override]
            if records[T0][0].offset:
                entered.set()
                await asyncio.Event().wait()

    entered = asyncio.Event()
    options = {"auto_offset_reset": "none", "metadata_max_age_ms": 50}
    consumer = await start(two, assign=[T0], interceptors=[Waits()], **options)
    consumer.seek(T0, 0)
    taken = await consumer.getmany(timeout_ms=5000, max_records=6)
    assert len(taken[T0]) == 6
    call = asyncio.create_task(consumer.getmany(timeout_ms=5000))
    await entered.wait()
    call.cancel()
    await asyncio.wait([call])
    cut_to(two, 3)
    await two.wait_for(lambda: two.count(OffsetForLeaderEpochRequest))
    await expect_truncation(consumer)


@pytest.mark.parametrize(("offset", "expected"), [(6, 1), (4, 0), (12, 2), (0, 2)])
def test_what_is_asked_for_again_is_behind_a_record_of_its_own_epoch(
    offset: int, expected: int
) -> None:
    """That of records which were fetched and dropped says nothing of the position; only where none
    else is known it has to do."""
    cursor = FetchCursor()
    cursor.start_at(0)
    cursor.advance(12, [(0, 4, 0), (4, 8, 1), (8, 12, 2)])
    cursor.rewind(offset)
    assert (cursor.offset, cursor.offset_epoch) == (offset, expected)


# -- what is remembered


def test_what_is_fetched_again_counts_as_it_is_now() -> None:
    epochs = LeaderEpochs()
    epochs.start_at(0, -1)
    epochs.note(0, [(0, 10, 1), (10, 20, 2)])
    epochs.note(15, [(12, 16, 5)])
    known = [epochs.before(offset) for offset in (0, 1, 10, 11, 12, 13, 16, 17, 20)]
    assert known == [-1, 1, 1, 2, 2, 5, 5, -1, -1]


def test_offsets_between_two_epochs_are_of_neither() -> None:
    epochs = LeaderEpochs()
    epochs.note(0, [(0, 10, 1), (20, 30, 2)])
    known = [epochs.before(offset) for offset in (10, 11, 20, 21)]
    assert known == [1, -1, -1, 2]


def test_only_so_many_are_remembered() -> None:
    epochs = LeaderEpochs()
    for number in range(1000):
        epochs.note(number, [(number, number + 1, number)])
    known = [number for number in range(1, 1001) if epochs.before(number) >= 0]
    assert known == list(range(1001 - MOST_SPANS, 1001))


@pytest.mark.parametrize("release", ["0.11", "2.1", "2.8", "4.3"])
@pytest.mark.parametrize("has_read", [False, True])
def test_a_newer_leader_is_read_at_once(release: str, has_read: bool) -> None:
    """The pause after a refusal is for the metadata to change."""

    async def main(_: Simulation) -> None:
        loop = asyncio.get_running_loop()
        async with FakeCluster(brokers=2, as_version=release) as cluster:
            await cluster.create_topic("t", replication_factor=2)
            fill(cluster, 0, 1 if has_read else 0)
            async with AIOKafkaConsumer(
                "t",
                bootstrap_servers=cluster.bootstrap_servers,
                auto_offset_reset="earliest",
                retry_backoff_ms=20_000,
                retry_backoff_max_ms=60_000,
            ) as consumer:
                await (consumer.getone() if has_read else consumer.getmany())
                await asyncio.sleep(100)  # the next refresh need not wait
                other_leader(cluster)
                fill(cluster, 0, 1)
                began = loop.time()
                await consumer.getone()
                assert loop.time() - began < 5

    simulate(main)


def test_a_leader_that_moves_before_every_fetch_is_asked_with_pauses() -> None:
    """The next one is asked at once only a few times in a row."""

    async def main(_: Simulation) -> None:
        async with FakeCluster(brokers=2) as cluster:
            await cluster.create_topic("t", replication_factor=2)
            fill(cluster, 0, 1)
            script = cluster.intercept(FetchRequest, lambda *_: other_leader(cluster))
            async with AIOKafkaConsumer(
                "t", bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest"
            ) as consumer:
                assert await consumer.getmany(timeout_ms=10_000) == {}
                assert 8 < script.hits < 30  # without the limit: 43
                script.remove()
                assert await read(consumer, 1) == [(0, 0)]

    simulate(main)


# == Leaders with an older epoch than the committed offset =========================================


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
def test_without_a_policy_a_cut_off_leader_is_reported(version: str, brokers: int) -> None:
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


# == Leaders that were cut off, and no epoch shows it ==============================================


# Before 2.1 there are no leader epochs; later, a committed offset may have none.
WITHOUT_EPOCHS = ["0.10.2", "0.11", "1.1", "4.3"]


def asked(cluster: FakeCluster, api: Any, broker: int) -> bool:
    return broker in {seen.broker_id for seen in cluster.requests(api)}


async def commit_without_epoch(cluster: FakeCluster) -> None:
    async with new_consumer(cluster, 2) as consumer:
        consumer.assign([T0])
        await consumer.commit({T0: 10})
        assert await committed_epoch(consumer) == -1


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
@pytest.mark.parametrize("version", WITHOUT_EPOCHS)
def test_a_position_behind_the_log_of_a_cut_off_leader_is_kept(version: str, policy: str) -> None:
    """The leader that the metadata names has four records, and the group has read ten."""

    async def main(_: Simulation) -> list[tuple[int, int]]:
        async with cut_off_leader(version) as cluster:
            await commit_without_epoch(cluster)
            async with new_consumer(cluster, 0, "t", auto_offset_reset=policy) as consumer:
                found = await read(consumer, 2)
                assert asked(cluster, FetchRequest, 0)
                return found

    assert simulate(main, limit_s=60) == [(0, 10), (0, 11)]


@pytest.mark.parametrize("version", WITHOUT_EPOCHS)
@pytest.mark.parametrize("others", ["cut", "silent"])
def test_without_other_brokers_a_leader_is_believed_after_a_while(
    version: str, others: str
) -> None:
    async def main(_: Simulation) -> list[tuple[int, int]]:
        async with cut_off_leader(version) as cluster:
            for other in (1, 2):
                if others == "cut":
                    cluster.intercept(None, Cut(), broker=other)
                else:
                    cluster.faults.hang(other)
            async with new_consumer(cluster, 0, group_id=None) as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 10)
                found = await read(consumer, 1)
            for other in (1, 2):
                cluster.faults.revive(other)
            return found

    assert simulate(main, limit_s=60) == [(0, 0)]


@pytest.mark.parametrize("version", WITHOUT_EPOCHS)
def test_brokers_that_disagree_for_long_do_not_stop_the_reader(version: str) -> None:
    """One broker names another leader, and cannot be told from a newer one."""

    def name_another(response: MetadataResponse) -> None:
        for topic in response.topics:
            for partition in topic.partitions:
                partition.leader_id = 2

    async def main(_: Simulation) -> list[tuple[int, int]]:
        async with FakeCluster(brokers=3, as_version=version) as cluster:
            await cluster.create_topic("t", replication_factor=3)
            cluster.move_leader(T0, 0)
            fill(cluster, 0, 4)
            async with new_consumer(cluster, 0, group_id=None) as consumer:
                consumer.assign([T0])
                assert await read(consumer, 4) == [(0, n) for n in range(4)]
                cluster.intercept(MetadataRequest, Edit(name_another), broker=1)
                consumer.seek(T0, 10)
                return await read(consumer, 1)

    assert simulate(main, limit_s=60) == [(0, 0)]


@pytest.mark.parametrize("policy", ["earliest", "latest"])
@pytest.mark.parametrize("brokers", [1, 3])
def test_few_requests_precede_a_reset(brokers: int, policy: str) -> None:
    """Records that retention has deleted are lost whoever leads; only the end is asked about."""

    async def main(_: Simulation) -> tuple[int, int]:
        async with FakeCluster(brokers=brokers) as cluster:
            await cluster.create_topic("t", replication_factor=brokers)
            fill(cluster, 0, 20)
            cluster.log("t").delete_before(10)
            counts = []
            async with new_consumer(cluster, 0, auto_offset_reset=policy) as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 15)
                await read(consumer, 1)
                for offset, lookups in ((5, 2), (40, 3)):
                    cluster.forget_requests()
                    consumer.seek(T0, offset)
                    reading = asyncio.create_task(consumer.getone())
                    while cluster.count(ListOffsetsRequest) < lookups:
                        await asyncio.sleep(0.01)
                    end = cluster.log("t").end_offset
                    fill(cluster, 0, 1)
                    assert (await reading).offset == (10 if policy == "earliest" else end)
                    counts.append(cluster.count(MetadataRequest))
            return counts[0], counts[1]

    assert simulate(main) == ((0, 3) if brokers == 3 else (0, 0))


@pytest.mark.parametrize("policy", ["earliest", "latest", "none"])
async def test_a_position_that_the_log_has_after_all_is_kept(start: Start, policy: str) -> None:
    """The broker that did not have it has caught up, or another one leads by now."""
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        fill(cluster, 0, 10)
        consumer = await start(cluster, assign=[T0], auto_offset_reset=policy)
        script = cluster.intercept(FetchRequest, partition_error(OffsetOutOfRangeError), times=3)
        consumer.seek(T0, 5)
        assert await read(consumer, 5) == [(0, n) for n in range(5, 10)]
        assert script.hits == 3


@pytest.mark.parametrize("version", WITHOUT_EPOCHS)
def test_the_end_of_a_log_that_is_before_the_known_end(version: str) -> None:
    """`seek_to_end` reaches a leader that was cut off, and the consumer has seen a later end."""

    async def main(_: Simulation) -> int:
        async with cut_off_leader(version) as cluster:
            options: dict[str, Any] = {"metadata_max_age_ms": 600_000}
            options["bootstrap_servers"] = [cluster.address(2), cluster.address(0)]
            async with AIOKafkaConsumer(**options) as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 0)
                await read(consumer, 12)
                # Only the broker that was cut off responds.
                scripts = [cluster.intercept(MetadataRequest, Cut(), broker=n) for n in (1, 2)]
                assert await client_of(consumer).force_metadata_update()
                for script in scripts:
                    script.remove()
                await consumer.seek_to_end(T0)
                return await consumer.position(T0)

    assert simulate(main, limit_s=60) == 12


@pytest.mark.parametrize("policy", ["earliest", "none"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_off_leader_that_lacks_records_of_its_epoch(version: str, policy: str) -> None:
    """It says where the epoch of the committed offset ends, and that is before the offset."""

    def lacks(response: OffsetForLeaderEpochResponse) -> None:
        for topic in response.topics:
            for partition in topic.partitions:
                partition.end_offset = 2

    async def main(_: Simulation) -> list[tuple[int, int]]:
        async with FakeCluster(brokers=3, as_version=version) as cluster:
            await cluster.create_topic("t", replication_factor=3)
            cluster.move_coordinator("group", "g", 2)
            cluster.move_leader(T0, 1)
            fill(cluster, 0, 4)
            async with new_consumer(cluster, 2) as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 0)
                await read(consumer, 4)
                await consumer.commit()
            cluster.move_leader(T0, 0)
            cluster.faults.isolate(0)
            fill(cluster, 0, 2)
            cluster.intercept(OffsetForLeaderEpochRequest, Edit(lacks), broker=0)
            async with new_consumer(cluster, 0, "t", auto_offset_reset=policy) as consumer:
                found = await read(consumer, 2)
                assert asked(cluster, OffsetForLeaderEpochRequest, 0)
                return found

    assert simulate(main, limit_s=60) == [(0, 4), (0, 5)]


# == Late responses during validation ==============================================================


async def test_a_late_response_of_the_old_leader_while_the_logs_are_compared(
    two_brokers: FakeCluster, start: Start
) -> None:
    def other_leader() -> None:
        two_brokers.move_leader(T0, 1 - two_brokers.partition("t").leader)

    fill(two_brokers, 0, 4)
    other_leader()
    consumer = await start(two_brokers, assign=[T0], fetch_max_wait_ms=500)
    got = await read(consumer, 4)
    written, on_its_way, arrives, told = (asyncio.Event() for _ in range(4))

    async def slow_network(request: FetchRequest, context: Any) -> Any:
        await written.wait()
        response = fetch(context, request)
        if inspect.isawaitable(response):
            response = await response
        on_its_way.set()
        await arrives.wait()
        return response

    await two_brokers.intercept(FetchRequest, slow_network, times=1).wait()
    fill(two_brokers, 0, 2)
    written.set()
    await on_its_way.wait()
    look_ups = two_brokers.intercept(OffsetForLeaderEpochRequest, Hold(told))
    other_leader()
    await client_of(consumer).force_metadata_update()
    await look_ups.wait()
    arrives.set()
    got += await read(consumer, 2)
    told.set()
    fill(two_brokers, 0, 1)
    got += await read(consumer, 1)
    assert [offset for _, offset in got] == list(range(7))
