"""Share groups on a real broker: records, acknowledgements, processing, and the end of members."""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from aiokafka import (
    AcknowledgeType,
    AIOKafkaConsumer,
    AIOKafkaProducer,
    AIOKafkaShareConsumer,
    RejectRecord,
    ShareRecord,
    TopicPartition,
)
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    ConsumerStoppedError,
    IllegalStateError,
    InvalidRecordState,
    KafkaError,
    RecordDeserializationError,
)
from aiokafka.parallel import RetryInfo, RetryTopics
from tests.kafka.fixtures import need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.topics import create_topic
from tests.kafka.versions import DEFAULT_VERSION

LOCK_MS = 2000
WITH_DEAD_LETTERS = "4.4.0"
"""The first release with dead letters of share groups (KIP-1191)."""


class Group:
    """A share group of its own for a test, with a topic; it starts at the first record."""

    def __init__(self, servers: str, topic: str) -> None:
        self.servers = servers
        self.topic = topic
        self.id = f"share-{topic}"

    async def configure(self, **settings: str | int) -> None:
        configs = {f"share.{name.replace('_', '.')}": value for name, value in settings.items()}
        async with AIOKafkaAdminClient(bootstrap_servers=self.servers) as admin:
            await admin.configs.alter({("group", self.id): configs})

    async def fill(self, count: int, first: int = 0, partitions: int = 1) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self.servers) as producer:
            for number in range(first, first + count):
                await producer.send(self.topic, b"%d" % number, partition=number % partitions)

    def member(self, **options: Any) -> AIOKafkaShareConsumer[Any, Any]:
        return AIOKafkaShareConsumer(
            self.topic, bootstrap_servers=self.servers, group_id=self.id, **options
        )


MakeGroup = Callable[..., Any]


@pytest.fixture(scope="module", params=(DEFAULT_VERSION, WITH_DEAD_LETTERS))
def servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """The bootstrap servers of Kafka without and with dead letters of share groups."""
    if request.param == DEFAULT_VERSION:
        yield request.getfixturevalue("kafka").bootstrap_servers
        return
    need_own_brokers()
    with KafkaCluster(request.param) as cluster:
        yield cluster.bootstrap_servers


@pytest.fixture
def make_group(servers: str) -> MakeGroup:
    async def make(partitions: int = 1, **settings: str | int) -> Group:
        topic = f"test-{uuid.uuid4().hex[:12]}"
        await create_topic(servers, topic, partitions)
        group = Group(servers, topic)
        defaults: dict[str, str | int] = {
            "auto_offset_reset": "earliest",
            "record_lock_duration_ms": LOCK_MS,
        }
        await group.configure(**{**defaults, **settings})
        return group

    return make


async def take(
    consumer: AIOKafkaShareConsumer[Any, Any], count: int, seconds: float = 30
) -> list[ShareRecord[Any, Any]]:
    """Return this number of records, read with `getmany`."""
    found: list[ShareRecord[Any, Any]] = []
    async with timeout(seconds):
        while len(found) < count:
            got = await consumer.getmany(timeout_ms=1000, max_records=count - len(found))
            found += [record for records in got.values() for record in records]
    return found


def numbers(records: list[ShareRecord[Any, Any]]) -> list[int]:
    return sorted(int(record.value) for record in records)


async def test_calls_accept_the_records_before_them(make_group: MakeGroup) -> None:
    group = await make_group(partitions=2)
    await group.fill(100, partitions=2)
    async with group.member(max_poll_records=10) as consumer:
        first = await consumer.getone()
        assert first.delivery_count == 1
        seen = [first, *await take(consumer, 40)]
        async for record in consumer:
            seen.append(record)
            if len(seen) == 100:
                break
        assert numbers(seen) == list(range(100))
        outcomes = await consumer.commit()
        assert outcomes == {TopicPartition(group.topic, number): None for number in (0, 1)}
        assert consumer.acquisition_lock_timeout_ms == LOCK_MS
        assert consumer.assignment() == set(outcomes)
    async with group.member() as consumer:
        assert await consumer.getmany(timeout_ms=1000) == {}


async def test_members_share_one_partition(make_group: MakeGroup) -> None:
    group = await make_group(record_lock_duration_ms=60_000)
    await group.fill(200)
    seen: list[list[int]] = [[], [], []]

    async def read(index: int) -> None:
        async with group.member(max_poll_records=5, share_acquire_mode="record_limit") as consumer:
            async for record in consumer:
                seen[index].append(int(record.value))
                if sum(map(len, seen)) >= 200:
                    break
                await asyncio.sleep(0.002)

    async with timeout(55):
        tasks = [asyncio.ensure_future(read(index)) for index in range(3)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert all(seen), "a member got nothing, although there is one partition for three"
    assert sorted(number for some in seen for number in some)[:200] == list(range(200))


async def test_acknowledgements_have_outcomes(make_group: MakeGroup) -> None:
    group = await make_group()
    await group.fill(4)
    reported: list[tuple[TopicPartition, list[int], KafkaError | None]] = []
    async with group.member(share_acknowledgement_mode="explicit") as consumer:
        consumer.set_acknowledgement_commit_callback(lambda *outcome: reported.append(outcome))
        accepted, released, rejected, kept = await take(consumer, 4)
        consumer.acknowledge(accepted)
        consumer.acknowledge(released, AcknowledgeType.RELEASE)
        consumer.acknowledge(rejected, AcknowledgeType.REJECT)
        tp = TopicPartition(group.topic, 0)
        assert await consumer.commit() == {tp: None}
        assert await consumer.commit() == {}
        assert [(tp, sorted(offsets), error) for tp, offsets, error in reported] == [
            (tp, [0, 1, 2], None)
        ]
        (again,) = await take(consumer, 1)
        assert (again.offset, again.delivery_count) == (released.offset, 2)
        consumer.acknowledge(again)
        # `kept` is not acknowledged: when its lock has expired, it is delivered again.
        (late,) = await take(consumer, 1)
        assert (late.offset, late.delivery_count) == (kept.offset, 2)
        consumer.acknowledge(late)
        consumer.acknowledge(kept)  # of the delivery before
        outcome = (await consumer.commit())[tp]
        assert isinstance(outcome, InvalidRecordState)
    async with group.member() as consumer:
        assert await consumer.getmany(timeout_ms=1000) == {}


async def test_wrong_acknowledgements_raise_at_once(make_group: MakeGroup) -> None:
    group = await make_group()
    await group.fill(3)
    async with group.member(share_acknowledgement_mode="explicit") as consumer:
        first, second, third = await take(consumer, 3)
        consumer.acknowledge(first)
        with pytest.raises(IllegalStateError, match="acknowledged before"):
            consumer.acknowledge(first)
        with pytest.raises(TypeError, match="AcknowledgeType"):
            consumer.acknowledge(second, 1)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="ShareRecord"):
            consumer.acknowledge(second.value)
        async with group.member() as other:
            with pytest.raises(IllegalStateError, match="explicit"):
                other.acknowledge(second)
            with pytest.raises(IllegalStateError, match="explicit"):
                other.processing(second)
        async with group.member(share_acknowledgement_mode="explicit") as other:
            with pytest.raises(IllegalStateError, match="not acquired by this consumer"):
                other.acknowledge(second)
        consumer.acknowledge(second, AcknowledgeType.RENEW)
        consumer.acknowledge(second)
    with pytest.raises(ConsumerStoppedError):
        consumer.acknowledge(third)


async def test_a_record_is_delivered_up_to_the_limit_of_the_group(make_group: MakeGroup) -> None:
    group = await make_group(delivery_count_limit=3)
    await group.fill(1)
    counts: list[int] = []
    async with group.member(share_acknowledgement_mode="explicit") as consumer:
        async with timeout(30):
            while len(counts) < 3:
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    for record in records:
                        counts.append(record.delivery_count)
                        consumer.acknowledge(record, AcknowledgeType.RELEASE)
        assert await consumer.getmany(timeout_ms=1500) == {}
    assert counts == [1, 2, 3]


async def test_records_that_fail_for_good_become_dead_letters(
    make_group: MakeGroup, request: pytest.FixtureRequest
) -> None:
    """A poison record is delivered up to the limit, a rejected one once. Then they are archived;
    since Kafka 4.4, their copies are in the dead-letter topic, too."""
    group = await make_group(delivery_count_limit=3)
    has_dead_letters = request.node.callspec.params["servers"] == WITH_DEAD_LETTERS
    dead_topic = f"dlq.{group.topic}"
    if has_dead_letters:
        takes_dead_letters = {"errors.deadletterqueue.group.enable": "true"}
        await create_topic(group.servers, dead_topic, config=takes_dead_letters)
        async with AIOKafkaAdminClient(bootstrap_servers=group.servers) as admin:
            dead_letters: dict[str, str | int | bool] = {
                "errors.deadletterqueue.topic.name": dead_topic,
                "errors.deadletterqueue.copy.record.enable": True,
            }
            await admin.configs.alter({("group", group.id): dead_letters})
    await group.fill(3)
    deliveries: list[tuple[int, int]] = []

    async def handle(record: ShareRecord[Any, Any]) -> None:
        deliveries.append((int(record.value), record.delivery_count))
        if record.value == b"0":
            raise ValueError("poison")
        if record.value == b"1":
            raise RejectRecord("useless")

    async with timeout(50), group.member() as consumer:
        processing = asyncio.ensure_future(consumer.process(handle))
        while len(deliveries) < 5:
            await asyncio.sleep(0.01)
        if has_dead_letters:
            async with AIOKafkaConsumer(
                dead_topic, bootstrap_servers=group.servers, auto_offset_reset="earliest"
            ) as reader:
                dead = [await reader.getone(), await reader.getone()]
            assert {record.value for record in dead} == {b"0", b"1"}
            headers = {record.value: dict(record.headers) for record in dead}
            for value, count in ((b"0", b"3"), (b"1", b"1")):
                assert headers[value]["__dlq.errors.topic"] == group.topic.encode()
                assert headers[value]["__dlq.errors.offset"] == value
                assert headers[value]["__dlq.errors.group"] == group.id.encode()
                assert headers[value]["__dlq.errors.delivery.count"] == count
        await consumer.stop()
        await processing
    assert sorted(deliveries) == [(0, 1), (0, 2), (0, 3), (1, 1), (2, 1)]
    async with group.member() as other:
        assert await other.getmany(timeout_ms=1.5 * LOCK_MS) == {}


async def test_failed_records_wait_in_retry_topics_and_become_dead_letters(
    make_group: MakeGroup,
) -> None:
    """Records wait for three times the duration of their locks. Four members, more than a record
    may be delivered, stop while they have waiting records."""
    group = await make_group(delivery_count_limit=2)
    names = [f"{group.topic}-{suffix}" for suffix in ("retry-1", "retry-2", "dead-letter")]
    for name in names:
        await create_topic(group.servers, name, 1)
    await group.fill(20)
    calls: Counter[tuple[str, int]] = Counter()
    ended_at: dict[tuple[str, int], float] = {}
    loop = asyncio.get_running_loop()

    async def handle(record: ShareRecord[Any, Any]) -> None:
        calls[record.topic, int(record.value)] += 1
        ended_at[record.topic, int(record.value)] = loop.time()
        if int(record.value) % 2 or (record.topic == group.topic and int(record.value) % 4):
            raise LookupError("fails")

    async with (
        timeout(58),
        AIOKafkaProducer(bootstrap_servers=group.servers) as producer,
    ):
        retry = RetryTopics(producer, [3 * LOCK_MS, 100])
        for number in range(5):
            async with group.member() as consumer:
                processing = asyncio.ensure_future(consumer.process(handle, retry=retry))
                if number < 4:
                    while calls.total() < 20 or consumer.health().pending_acknowledgements:
                        await asyncio.sleep(0.01)
                    await asyncio.sleep(0.3)  # until it has some of the waiting records
                else:
                    while retry.sent[group.topic].dead < 10:
                        await asyncio.sleep(0.01)
                await consumer.stop()
                await processing
        async with AIOKafkaConsumer(
            names[-1], bootstrap_servers=group.servers, auto_offset_reset="earliest"
        ) as reader:
            dead = [await reader.getone() for _ in range(10)]
    odd, even = set(range(1, 20, 2)), set(range(2, 20, 4))
    assert {int(record.value) for record in dead} == odd
    infos = [RetryInfo.of(record) for record in dead]
    assert {(info.topic, info.attempts, info.offset % 2) for info in infos if info} == {
        (group.topic, 3, 1)
    }
    assert calls == Counter(
        [
            *((group.topic, number) for number in range(20)),
            *((names[0], number) for number in odd | even),
            *((names[1], number) for number in odd),
        ]
    )
    for number in odd | even:
        waited = ended_at[names[0], number] - ended_at[group.topic, number]
        assert waited >= 3 * LOCK_MS / 1000 - 0.01
    async with group.member() as other:
        other.subscribe([group.topic, *names[:2]])
        assert await other.getmany(timeout_ms=1.5 * LOCK_MS) == {}


async def test_stop_releases_what_is_not_acknowledged(make_group: MakeGroup) -> None:
    group = await make_group(record_lock_duration_ms=60_000)
    await group.fill(10)
    async with group.member(share_acknowledgement_mode="explicit") as consumer:
        records = await take(consumer, 10)
        for record in records[:4]:
            consumer.acknowledge(record)
    async with group.member() as consumer:
        rest = await take(consumer, 6, seconds=10)
    assert numbers(rest) == [4, 5, 6, 7, 8, 9]
    assert {record.delivery_count for record in rest} == {2}


async def test_processing_acknowledges_by_its_outcome(make_group: MakeGroup) -> None:
    group = await make_group()
    await group.fill(4)
    async with group.member(share_acknowledgement_mode="explicit") as consumer:
        good, bad, poison, cancelled = await take(consumer, 4)
        async with consumer.processing(good) as record:
            assert record is good
        with pytest.raises(ZeroDivisionError):
            async with consumer.processing(bad):
                raise ZeroDivisionError
        async with consumer.processing(poison):
            raise RejectRecord("cannot be processed")
        with pytest.raises(asyncio.CancelledError):
            async with consumer.processing(cancelled):
                raise asyncio.CancelledError
        assert set((await consumer.commit()).values()) == {None}
        again = await take(consumer, 2)
        assert numbers(again) == [1, 3]
        for record in again:
            async with consumer.processing(record):
                consumer.acknowledge(record)
        assert set((await consumer.commit()).values()) == {None}


async def test_the_lock_is_renewed_as_long_as_a_record_is_processed(
    make_group: MakeGroup,
) -> None:
    group = await make_group()
    await group.fill(2)
    options = {"share_acknowledgement_mode": "explicit"}
    async with group.member(**options) as consumer, group.member(**options) as other:
        slow, hanging = await take(consumer, 2)
        reading = asyncio.ensure_future(take(other, 1))
        async with consumer.processing(slow):
            # The record that is not processed shows that the time of a lock has passed.
            (late,) = await reading
            assert late.offset == hanging.offset
            other.acknowledge(late)
            await asyncio.sleep(2 * LOCK_MS / 1000)
        assert set((await consumer.commit()).values()) == {None}
        assert await other.getmany(timeout_ms=500) == {}


async def test_a_refused_renewal_does_not_fail_other_acknowledgements(
    make_group: MakeGroup,
) -> None:
    group = await make_group(renew_acknowledge_enable="false", record_lock_duration_ms=60_000)
    await group.fill(3)
    tp = TopicPartition(group.topic, 0)
    async with group.member(share_acknowledgement_mode="explicit") as consumer:
        first, second, third = await take(consumer, 3)
        consumer.acknowledge(first, AcknowledgeType.RENEW)
        consumer.acknowledge(second)
        consumer.acknowledge(third, AcknowledgeType.REJECT)
        assert isinstance((await consumer.commit())[tp], InvalidRecordState)
        metrics = consumer.metrics()
        assert metrics.value("records-accepted-total") == 1
        assert metrics.value("records-rejected-total") == 1
        consumer.acknowledge(first)
        assert await consumer.commit() == {tp: None}
    async with group.member() as consumer:
        assert await consumer.getmany(timeout_ms=1000) == {}


async def test_process_runs_handlers_until_the_consumer_stops(make_group: MakeGroup) -> None:
    group = await make_group(partitions=2)
    await group.fill(60, partitions=2)
    calls: Counter[int] = Counter()
    running = most = 0

    async def handle(record: ShareRecord[Any, Any]) -> None:
        nonlocal running, most
        number = int(record.value)
        calls[number] += 1
        running += 1
        most = max(most, running)
        try:
            await asyncio.sleep(0.01)
            if number == 7:
                raise RejectRecord
            if number % 10 == 3 and record.delivery_count == 1:
                raise ValueError("the first attempt fails")
        finally:
            running -= 1

    async with timeout(40), group.member() as consumer:
        processing = asyncio.ensure_future(consumer.process(handle, concurrency=8))
        while sum(calls.values()) < 66 or running:
            await asyncio.sleep(0.01)
        await consumer.stop()
        await processing
    assert most == 8
    assert calls == {number: 2 if number % 10 == 3 else 1 for number in range(60)}
    async with group.member() as consumer:
        assert await consumer.getmany(timeout_ms=1000) == {}


async def test_stop_lets_handlers_end_and_releases_waiting_records(make_group: MakeGroup) -> None:
    group = await make_group(record_lock_duration_ms=60_000)
    await group.fill(20)
    started: list[int] = []
    may_end = asyncio.Event()

    async def handle(record: ShareRecord[Any, Any]) -> None:
        started.append(int(record.value))
        await may_end.wait()

    async with timeout(40):
        consumer = group.member()
        await consumer.start()
        processing = asyncio.ensure_future(consumer.process(handle, concurrency=3))
        while len(started) < 3:
            await asyncio.sleep(0.01)
        stopping = asyncio.ensure_future(consumer.stop())
        await asyncio.sleep(0)
        may_end.set()
        await stopping
        await processing
        async with group.member() as other:
            rest = await take(other, 17)
    assert numbers(rest) == sorted(set(range(20)) - set(started))


async def test_an_undecodable_record_is_raised_and_can_be_rejected(make_group: MakeGroup) -> None:
    group = await make_group()
    await group.fill(2)
    async with AIOKafkaProducer(bootstrap_servers=group.servers) as producer:
        await producer.send_and_wait(group.topic, b"no number")
    await group.fill(1, first=2)
    options = {"share_acknowledgement_mode": "explicit", "value_deserializer": int}
    async with group.member(**options) as consumer:
        assert [r.value for r in await take(consumer, 2)] == [0, 1]
        with pytest.raises(RecordDeserializationError) as raised:
            await consumer.getone()
        assert raised.value.record.value == b"no number"
        consumer.acknowledge(raised.value.record, AcknowledgeType.REJECT)
        (last,) = await take(consumer, 1)
        assert last.value == 2
        assert set((await consumer.commit()).values()) == {None}


async def test_a_cancelled_call_consumes_nothing(make_group: MakeGroup) -> None:
    group = await make_group()
    async with group.member(share_acknowledgement_mode="explicit") as consumer:
        reading = [asyncio.ensure_future(consumer.getone()) for _ in range(3)]
        await asyncio.sleep(0.2)
        reading[0].cancel()
        await group.fill(3)
        async with timeout(20):
            got = [await reading[1], await reading[2], await consumer.getone()]
        assert numbers(got) == [0, 1, 2]
        with contextlib.suppress(asyncio.CancelledError):
            await reading[0]


@contextlib.asynccontextmanager
async def reading(consumer: AIOKafkaShareConsumer[Any, Any]) -> AsyncIterator[None]:
    task = asyncio.ensure_future(consumer.getone())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConsumerStoppedError):
            await task


async def test_unsubscribe_leaves_the_group_and_subscribe_joins_again(
    make_group: MakeGroup,
) -> None:
    group = await make_group()
    await group.fill(5)
    async with group.member() as consumer:
        assert numbers(await take(consumer, 5)) == list(range(5))
        await consumer.commit()
        consumer.unsubscribe()
        with pytest.raises(IllegalStateError, match="subscribe"):
            await consumer.getone()
        async with timeout(10):
            while consumer.assignment():
                await asyncio.sleep(0.02)
        consumer.subscribe([group.topic])
        await group.fill(3, first=5)
        assert numbers(await take(consumer, 3)) == [5, 6, 7]
