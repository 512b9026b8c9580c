"""Subscription and assignment: their states, and the arguments of the calls."""

from __future__ import annotations

import asyncio
import re
from typing import Any, NamedTuple

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.consumer._partition_state import PartitionState, Phase
from aiokafka.consumer.position.lookup import EARLIEST, LATEST, OffsetSpec
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import ConsumerStoppedError, IllegalStateError
from aiokafka.protocol.messages.fetch import ListOffsetsRequest
from aiokafka.structs import OffsetAndMetadata
from aiokafka.testing import FakeCluster, Hold
from tests.support.consumers import T0, T1, T2, Start, fill, read

# == States of subscription, assignment and partitions, without I/O ================================


class Watcher:
    def __init__(self) -> None:
        self.seen: list[PartitionState] = []

    def touch(self, state: PartitionState) -> None:
        self.seen.append(state)

    def on_withheld(self, state: PartitionState) -> None:
        self.seen.append(state)


def test_assign_and_subscribe_exclude_each_other() -> None:
    state = SubscriptionState()
    state.subscribe_topics(["a"])
    with pytest.raises(IllegalStateError):
        state.assign([T0])
    state.unsubscribe()
    state.assign([T0])
    with pytest.raises(IllegalStateError):
        state.subscribe_topics(["a"])
    with pytest.raises(IllegalStateError):
        state.subscribe_pattern(re.compile("a"))
    with pytest.raises(IllegalStateError):
        state.assign_from_subscribed([T0])


def test_a_partition_that_stays_keeps_its_state() -> None:
    subscriptions = SubscriptionState()
    subscriptions.assign([T0, T1])
    kept, gone = subscriptions.assigned_state(T0), subscriptions.assigned_state(T1)
    kept.seek(5)
    kept.pause()
    old = subscriptions.assignment
    subscriptions.assign([T0, T2])
    assert subscriptions.assigned_state(T0) is kept
    assert (kept.position, subscriptions.paused()) == (5, {T0})
    assert gone.phase is Phase.RETIRED
    assert not old.active
    assert subscriptions.assignment.active
    with pytest.raises(IllegalStateError):
        subscriptions.assigned_state(T1)


def test_a_partition_that_comes_back_starts_anew() -> None:
    subscriptions = SubscriptionState()
    subscriptions.assign([T0])
    subscriptions.assigned_state(T0).seek(5)
    subscriptions.assign([])
    subscriptions.assign([T0])
    assert subscriptions.assigned_state(T0).position is None


def return_records(subscriptions: SubscriptionState, call: int) -> None:
    for state in subscriptions.assignment.states():
        state.call = call


def test_the_latest_partitions_that_were_given_up_are_remembered() -> None:
    """Topics come and go, as with a pattern, and one partition comes back again and again."""
    subscriptions = SubscriptionState()
    for number in range(10_500):
        subscriptions.assign([TopicPartition(f"of-day-{number}", 0), *[T0] * (number % 2)])
        return_records(subscriptions, number + 1)
    subscriptions.assign([])
    latest = {TopicPartition(f"of-day-{number}", 0): number + 1 for number in range(501, 10_500)}
    assert subscriptions.revoked_after_reading == {**latest, T0: 10_500}


def test_large_assignments_are_remembered_whole_when_they_are_given_up() -> None:
    """The application may have records of each partition in hand, though others follow."""
    subscriptions = SubscriptionState()
    large = [TopicPartition("t", number) for number in range(12_000)]
    for call, tps in enumerate((large[:500], large[500:], large[:500]), start=1):
        subscriptions.assign(tps)
        return_records(subscriptions, call)
    subscriptions.assign([])
    assert subscriptions.revoked_after_reading.keys() == set(large)


def test_patterns_match_topics_as_they_come() -> None:
    subscriptions = SubscriptionState()
    subscriptions.subscribe_pattern(re.compile("^log-"))
    assert subscriptions.match_pattern({"log-1", "other"})
    assert not subscriptions.match_pattern({"log-1", "else"})
    assert subscriptions.topics == {"log-1"}
    assert subscriptions.match_pattern({"log-1", "log-2"})
    assert subscriptions.topics == {"log-1", "log-2"}


def test_every_change_of_a_state_is_seen() -> None:
    watcher = Watcher()
    subscriptions = SubscriptionState()
    subscriptions.assign([T0])
    subscriptions.watch(watcher)
    state = subscriptions.assigned_state(T0)
    state.reset(EARLIEST)
    state.seek(1)
    state.pause()
    state.resume()
    subscriptions.unsubscribe()
    assert watcher.seen == [state] * 5


def test_a_new_position_voids_what_was_fetched() -> None:
    state = PartitionState(T0)
    epochs = [state.epoch]
    state.seek(3)
    epochs.append(state.epoch)
    state.reset(LATEST)
    epochs.append(state.epoch)
    assert state.position is None
    state.seek(4)
    epochs.append(state.epoch)
    state.retire()
    epochs.append(state.epoch)
    assert epochs == sorted(set(epochs))


def test_pausing_keeps_what_was_fetched() -> None:
    state = PartitionState(T0)
    state.seek(3)
    epoch = state.epoch
    state.pause()
    assert not state.is_fetchable
    state.resume()
    assert state.is_fetchable
    assert state.epoch == epoch


def test_a_retired_state_refuses_a_new_life() -> None:
    state = PartitionState(T0)
    state.retire()
    with pytest.raises(IllegalStateError):
        state.seek(1)
    with pytest.raises(IllegalStateError):
        state.reset(EARLIEST)


def test_only_a_fetched_position_is_validated() -> None:
    state = PartitionState(T0)
    with pytest.raises(IllegalStateError):
        state.begin_validation(1)
    state.seek(1)
    state.begin_validation(1)
    assert not state.is_fetchable
    assert state.needs_offset
    state.end_validation()
    assert state.is_fetchable


def test_reset_policies() -> None:
    assert OffsetSpec.from_policy("earliest", None) == EARLIEST
    assert OffsetSpec.from_policy("latest", None) == LATEST
    assert OffsetSpec.from_policy("none", None) is None
    spec = OffsetSpec.from_policy("by_duration:PT1H", 3600.0)
    assert spec is not None
    assert spec.timestamp_now() > 0


def test_a_position_in_a_former_topic_has_no_epoch_of_the_latest() -> None:
    """A commit would store it."""
    state = PartitionState(T0)
    state.change_topic(b"former", is_new=False)
    state.seek(3)
    assert not state.change_topic(b"latest", is_new=True)
    state.seek(0)
    state.cursor.advance(10, [(0, 10, 7)])
    assert state.epoch_before(3) == 7
    assert state.change_topic(b"former", is_new=False)
    assert (state.position, state.epoch_before(3)) == (3, -1)


# == Arguments of calls: partitions and topic names ================================================


class TP(NamedTuple):
    """Another library's."""

    name: str
    number: int


OTHER = TP("t", 0)


async def test_any_pair_stands_for_a_partition(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t", partitions=2)
    fill(cluster, 0, 3)
    consumer = await start(
        cluster, assign=[OTHER, ("t", 1)], group_id="g", enable_auto_commit=False
    )
    asked: Any = OTHER
    pair: Any = ("t", 0)
    assert (await consumer.getone(asked)).offset == 0
    found = await consumer.getmany(asked, timeout_ms=5000)
    assert [record.offset for record in found[asked]] == [1, 2]
    assert await consumer.position(asked) == 3
    consumer.seek(asked, 1)
    assert await consumer.seek_to_end(asked)
    assert await consumer.seek_to_beginning(pair)
    consumer.pause(asked)
    assert consumer.paused() == {OTHER}
    consumer.resume(pair)
    assert (consumer.highwater(asked), consumer.last_stable_offset(asked)) == (3, -1)
    assert consumer.last_poll_timestamp(asked) is not None
    assert consumer.lag(asked) == 3
    await consumer.commit({asked: 2, ("t", 1): (0, "")})  # type: ignore[dict-item]
    assert await consumer.committed(asked) == 2
    assert (await consumer.committed_offsets([asked]))[asked] == OffsetAndMetadata(2, "")
    assert await consumer.seek_to_committed(asked) == {OTHER: 2}
    ends = await consumer.end_offsets([asked])
    assert ends == {OTHER: 3}
    assert all(type(tp) is TopicPartition for tp in [*ends, *found, *consumer.assignment()])
    assert await consumer.beginning_offsets({asked}) == {T0: 0}
    times = await consumer.offsets_for_times({asked: 0})
    assert times[asked] is not None
    assert type(next(iter(times))) is TopicPartition


async def test_any_pair_elsewhere(cluster: FakeCluster) -> None:
    await cluster.create_topic("t")
    fill(cluster, 0, 3)
    asked: Any = OTHER
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="x")
    async with producer, producer.transaction():
        await producer.send_offsets_to_transaction({asked: 2}, "g")
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        assert await admin.list_consumer_group_offsets("g", partitions=[asked]) == {T0: (2, "")}
        assert await admin.delete_records({asked: RecordsToDelete(1)}) == {T0: 1}
        wrong: Any = ["t-0"]
        with pytest.raises(TypeError, match="partitions: must be TopicPartition instances"):
            await admin.list_consumer_group_offsets("g", partitions=wrong)


@pytest.mark.parametrize("wrong", ["t", ("t",), ("t", "0"), ("t", True), (b"t", 0), None, 5])
async def test_what_is_no_partition(cluster: FakeCluster, start: Start, wrong: Any) -> None:
    await cluster.create_topic("t")
    consumer = await start(cluster, assign=[T0], group_id="g")
    # Pauses and seeks speak of partitions, everything else of a key, as in aiokafka.
    words = "(Key should|partitions must) be TopicPartition (instance|namedtuple)"
    calls: list[Any] = [
        lambda: consumer.assign([wrong]),
        lambda: consumer.seek(wrong, 0),
        lambda: consumer.pause(wrong),
        lambda: consumer.resume(wrong),
    ]
    for call in calls:
        with pytest.raises(TypeError, match=words):
            call()
    waits: list[Any] = [
        lambda: consumer.getone(wrong),
        lambda: consumer.getmany(wrong),
        lambda: consumer.position(wrong),
        lambda: consumer.committed(wrong),
        lambda: consumer.seek_to_end(wrong),
        lambda: consumer.seek_to_committed(wrong),
        lambda: consumer.end_offsets([wrong]),
        lambda: consumer.offsets_for_times({wrong: 0}),
        lambda: consumer.commit({wrong: 0}),
    ]
    for wait in waits:
        with pytest.raises(TypeError, match=words):
            await wait()
    # As aiokafka has them.
    with pytest.raises(ValueError, match=words):
        await consumer.commit({wrong: 0})
    with pytest.raises(AssertionError, match=words):
        await consumer.getone(wrong)


async def test_one_partition_where_several_are_expected(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    consumer = await start(cluster)
    one: Any = T0
    with pytest.raises(TypeError, match="partitions: must be several partitions"):
        consumer.assign(one)
    with pytest.raises(TypeError, match="partitions: must be several partitions"):
        await consumer.end_offsets(one)


@pytest.mark.parametrize(
    "name", ["bad topic/name", "x\ud800", "caf\u00e9", "a" * 256, ".", "..", "a\n", "\uff41"]
)
async def test_names_that_no_topic_can_have(cluster: FakeCluster, start: Start, name: str) -> None:
    consumer = await start(cluster)
    words = r"letters, digits, \. _ -, at most 249"
    with pytest.raises(ValueError, match=words):
        consumer.subscribe([name])
    with pytest.raises(ValueError, match=words):
        consumer.assign([TopicPartition(name, 0)])
    with pytest.raises(ValueError, match=words):
        AIOKafkaConsumer(name, bootstrap_servers=cluster.bootstrap_servers)
    with pytest.raises(ValueError) as caught:
        consumer.subscribe([name])
    assert len(str(caught.value)) < 500


async def test_names_that_a_topic_can_have(cluster: FakeCluster, start: Start) -> None:
    consumer = await start(cluster)
    consumer.subscribe(["a", "A.b_c-9", "x" * 249, "__consumer_offsets", "..."])
    consumer.unsubscribe()
    consumer.assign([TopicPartition("t", 0)])
    with pytest.raises(ValueError, match="-1 of topic 't' must not be negative"):
        consumer.assign([TopicPartition("t", -1)])


async def test_committing_a_record_does_not_print_it(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    cluster.log("t").append(b"secret", b"key")
    consumer = await start(cluster, assign=[T0], group_id="g")
    record: Any = await consumer.getone()
    with pytest.raises(ValueError, match="not ConsumerRecord") as caught:
        await consumer.commit(record)
    assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match="at least one partition, not an empty one"):
        await consumer.commit({})


@pytest.mark.parametrize("name", ["seek_to_beginning", "seek_to_end", "seek_to_committed"])
async def test_a_partition_that_is_not_assigned_is_refused_first(
    cluster: FakeCluster, start: Start, name: str
) -> None:
    await cluster.create_topic("t", partitions=2)
    consumer = await start(cluster, assign=[T0])
    with pytest.raises(IllegalStateError, match="not assigned"):
        await getattr(consumer, name)(T1)
    await consumer.stop()
    with pytest.raises(IllegalStateError, match="not assigned"):
        await getattr(consumer, name)(T1)
    unstarted = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers)
    with pytest.raises(IllegalStateError, match="not assigned"):
        await getattr(unstarted, name)(T1)
    await unstarted.stop()


async def test_getmany_that_waits_when_stop_is_called(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    consumer = await start(cluster, "t")
    many = asyncio.create_task(consumer.getmany(timeout_ms=60_000))
    one = asyncio.create_task(consumer.getone())
    await asyncio.sleep(0.01)
    await consumer.stop()
    assert await many == {}
    for call in (lambda: one, consumer.getone, consumer.getmany):
        with pytest.raises(ConsumerStoppedError, match="the consumer was stopped"):
            await call()


async def test_a_seek_that_waits_when_stop_is_called(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("t")
    consumer = await start(cluster, "t")
    script = cluster.intercept(ListOffsetsRequest, Hold(asyncio.Event()))
    seeking = asyncio.create_task(consumer.seek_to_end())
    await cluster.wait_for(lambda: script.hits)
    await consumer.stop()
    with pytest.raises(ConsumerStoppedError):
        await seeking


async def test_a_partition_that_its_topic_does_not_have(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create_topic("t", partitions=3)
    fill(cluster, 0, 1)
    consumer = await start(cluster, assign=[T0, TopicPartition("t", 77)], retry_backoff_max_ms=10)
    assert await read(consumer, 1) == [(0, 0)]
    await cluster.wait_for(lambda: "t-77 (t has 3 partitions) cannot be read" in caplog.text)
    consumer.pause(T0)
    await cluster.wait_for(lambda: consumer.health().state == "unreachable")
    assert "t-77 (t has 3 partitions)" in consumer.health().reason
