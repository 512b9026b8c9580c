"""Processing by a share consumer: locks over time, handlers, interceptors, implicit mode."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import pickle
from collections import Counter
from typing import Any

import pytest

from aiokafka import AcknowledgeType, RejectRecord, ShareRecord
from aiokafka._compat import timeout
from aiokafka.errors import InvalidRecordState, RecordDeserializationError, UnsupportedVersionError
from aiokafka.interceptors import ConsumerInterceptor
from aiokafka.protocol.messages.share_groups import ShareAcknowledgeRequest, ShareFetchRequest
from aiokafka.testing import Delay, Fail, FakeCluster, Hold
from tests.support.share import T0, Start, fill, is_empty, offsets, take, without_renewals

LOCK = 10.0
IMPLICIT: Any = {"share_acknowledgement_mode": "implicit"}


async def test_a_lock_is_renewed_while_a_block_runs(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 1)
    consumer, other = await start(), await start()
    (record,) = await take(consumer, 1)
    async with consumer.processing(record):
        assert await is_empty(other, 5 * LOCK * 1000)
    assert await consumer.commit() == {T0: None}
    assert consumer.metrics().value("records-renewed-total") >= 9
    assert await is_empty(other)


async def test_a_lock_is_not_renewed_after_its_block(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 1)
    consumer = await start()
    (record,) = await take(consumer, 1)
    consumer.processing(record)  # not entered
    await asyncio.sleep(LOCK + 1)
    assert cluster.requests(ShareAcknowledgeRequest) == []
    consumer.acknowledge(record)
    assert isinstance((await consumer.commit())[T0], InvalidRecordState)


async def test_a_fetch_does_not_delay_renewals(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 1)
    consumer = await start(fetch_max_wait_ms=3 * LOCK * 1000)
    (record,) = await take(consumer, 1)
    async with consumer.processing(record):
        # The renewals of the lock have to wait for the fetches of this call.
        assert await is_empty(consumer, 3 * LOCK * 1000)
    assert await consumer.commit() == {T0: None}


async def test_an_acknowledgement_after_its_lock_fails(cluster: FakeCluster, start: Start) -> None:
    """Also if another member has accepted the record: a broker would report a success."""
    fill(cluster, 1)
    consumer, other = await start(), await start()
    (record,) = await take(consumer, 1)
    (again,) = await take(other, 1)
    other.acknowledge(again)
    assert await other.commit() == {T0: None}
    consumer.acknowledge(record)
    assert isinstance((await consumer.commit())[T0], InvalidRecordState)


async def test_brokers_without_renewals_lead_to_a_warning(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    without_renewals(cluster)
    fill(cluster, 2)
    consumer = await start()
    first, second = await take(consumer, 2)
    async with consumer.processing(first), consumer.processing(second):
        await asyncio.sleep(0.6 * LOCK)
        assert caplog.text.count("cannot renew it, which needs Kafka 4.2") == 1
        with pytest.raises(UnsupportedVersionError, match="KIP-1222"):
            consumer.acknowledge(first, AcknowledgeType.RENEW)
    assert await consumer.commit() == {T0: None}
    seen = cluster.requests(ShareAcknowledgeRequest)
    types = [
        batch.acknowledge_types
        for one in seen
        for batch in one.request.topics[0].partitions[0].acknowledgement_batches
    ]
    assert types == [[AcknowledgeType.ACCEPT]]


async def test_records_that_wait_too_long_are_dropped(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 3)
    consumer = await start()
    record = await consumer.getone()
    assert record.offset == 0
    await asyncio.sleep(LOCK + 1)
    again = await take(consumer, 3)
    assert sorted(offsets(again)) == [0, 1, 2]
    assert {each.delivery_count for each in again} == {2}
    assert consumer.health().expired > 0


async def test_a_record_is_processed_once_by_many_handlers(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 300)
    calls: Counter[int] = Counter()
    running = most = 0

    async def handle(record: ShareRecord[Any, Any]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(3 * LOCK if record.offset % 100 == 0 else 0.05)
        calls[record.offset] += 1
        running -= 1

    members = [await start(**IMPLICIT), await start(**IMPLICIT)]
    tasks = [asyncio.ensure_future(one.process(handle, concurrency=20)) for one in members]
    async with timeout(120):
        while len(calls) < 300:
            await asyncio.sleep(1)
    for one in members:
        await one.stop()
    await asyncio.gather(*tasks)
    assert set(calls.values()) == {1}
    assert 20 <= most <= 40
    assert await is_empty(await start())


async def test_failures_of_handlers(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 4)
    calls: Counter[int] = Counter()

    async def handle(record: ShareRecord[Any, Any]) -> None:
        calls[record.offset] += 1
        if record.offset == 0:
            raise RejectRecord("no")
        if record.offset == 1:
            raise ValueError("always")
        if record.offset == 2 and record.delivery_count == 1:
            cancelled = asyncio.get_running_loop().create_future()
            cancelled.cancel()
            await cancelled

    consumer = await start()
    processing = asyncio.ensure_future(consumer.process(handle))
    async with timeout(60):
        while calls != {0: 1, 1: 5, 2: 2, 3: 1}:
            await asyncio.sleep(0.1)
    await asyncio.sleep(LOCK)
    assert calls == {0: 1, 1: 5, 2: 2, 3: 1}
    await consumer.stop()
    await processing
    assert "the handler failed for offset 1 of topic t, partition 0, delivery 5" in caplog.text


async def test_stop_cancels_handlers_at_its_timeout(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 2)
    cancelled: list[int] = []
    started: list[int] = []

    async def handle(record: ShareRecord[Any, Any]) -> None:
        started.append(record.offset)
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            cancelled.append(record.offset)
            raise

    consumer = await start()
    processing = asyncio.ensure_future(consumer.process(handle))
    await cluster.wait_for(lambda: len(started) == 2)
    await consumer.stop(timeout=2)
    await asyncio.wait_for(processing, 5)
    assert sorted(cancelled) == [0, 1]
    again = await take(await start(), 2, seconds=2)
    assert [record.delivery_count for record in again] == [2, 2]


async def test_a_cancelled_process_releases_its_records(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 3)
    started: list[int] = []

    async def handle(record: ShareRecord[Any, Any]) -> None:
        started.append(record.offset)
        await asyncio.sleep(1000)

    consumer = await start()
    processing = asyncio.ensure_future(consumer.process(handle, concurrency=2))
    await cluster.wait_for(lambda: len(started) == 2)
    processing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await processing
    again = await take(consumer, 3, seconds=2)
    assert sorted(offsets(again)) == [0, 1, 2]


async def test_a_handler_may_stop_the_consumer(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 1)
    consumer = await start()

    async def handle(record: ShareRecord[Any, Any]) -> None:
        await consumer.stop(timeout=5)

    async with timeout(20):
        await consumer.process(handle)


async def test_a_handler_that_stops_the_consumer_waits_for_the_others(
    cluster: FakeCluster, start: Start
) -> None:
    """Its own record is released, because it has not returned."""
    fill(cluster, 3)
    consumer = await start()
    begun: set[int] = set()

    async def handle(record: ShareRecord[Any, Any]) -> None:
        begun.add(record.offset)
        if record.offset == 0:
            await cluster.wait_for(lambda: len(begun) == 3)
            await consumer.stop()
        else:
            await asyncio.sleep(1)

    async with timeout(20):
        await consumer.process(handle)
    other = await start()
    (again,) = await take(other, 1)
    assert (again.offset, again.delivery_count) == (0, 2)
    other.acknowledge(again)
    assert await is_empty(other)


async def test_handlers_that_stop_the_consumer_do_not_wait_for_each_other(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 3)
    consumer = await start()
    begun: set[int] = set()
    stopped: set[int] = set()

    async def handle(record: ShareRecord[Any, Any]) -> None:
        begun.add(record.offset)
        await cluster.wait_for(lambda: len(begun) == 3)
        await asyncio.sleep(record.offset / 10)
        await consumer.stop(timeout=1000)
        stopped.add(record.offset)

    async with timeout(20):
        await consumer.process(handle)
    assert stopped == {0, 1, 2}


async def test_plain_handlers(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 3)
    seen: list[int] = []
    consumer = await start()
    processing = asyncio.ensure_future(consumer.process(lambda record: seen.append(record.offset)))
    await cluster.wait_for(lambda: len(seen) == 3)
    await consumer.stop()
    await processing
    assert await is_empty(await start())


async def test_undecodable_records_while_processing(cluster: FakeCluster, start: Start) -> None:
    def decode(data: bytes) -> int:
        if data == b"bad":
            raise RejectRecord("bad")
        return int(data)

    fill(cluster, 1)
    for value in (b"bad", b"worse", b"3"):
        cluster.log("t").append(value)
    seen: list[int] = []
    consumer = await start(value_deserializer=decode)
    processing = asyncio.ensure_future(consumer.process(lambda record: seen.append(record.value)))
    await cluster.wait_for(lambda: seen == [0, 3], timeout_s=30)
    await asyncio.sleep(LOCK)
    await consumer.stop()
    await processing
    metrics = consumer.metrics()
    assert metrics.value("records-rejected-total") == 1
    assert metrics.value("records-released-total") == 5


async def test_undecodable_records_with_implicit_acknowledgement(
    cluster: FakeCluster, start: Start
) -> None:
    cluster.log("t").append(b"bad")
    consumer = await start(value_deserializer=int, **IMPLICIT)
    for count in range(1, 6):
        with pytest.raises(RecordDeserializationError) as raised:
            await consumer.getone()
        assert raised.value.record.delivery_count == count  # type: ignore[attr-defined]
    assert await is_empty(consumer)


async def test_each_task_accepts_its_own_records(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 3)
    consumer = await start(**IMPLICIT)
    may_end = asyncio.Event()

    async def hold() -> int:
        record = await consumer.getone()
        await may_end.wait()
        await consumer.commit()
        return record.offset

    holding = asyncio.ensure_future(hold())
    await asyncio.sleep(1)
    second = await consumer.getone()
    third = await consumer.getone()
    assert [second.offset, third.offset] == [1, 2]
    assert await consumer.commit() == {T0: None}
    assert consumer.metrics().value("records-accepted-total") == 2
    may_end.set()
    assert await holding == 0
    assert consumer.metrics().value("records-accepted-total") == 3


async def test_records_of_a_task_that_failed_are_released(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 2)
    consumer = await start(**IMPLICIT)

    async def fail() -> None:
        await consumer.getone()
        raise ZeroDivisionError

    async def succeed() -> int:
        return (await consumer.getone()).offset

    with pytest.raises(ZeroDivisionError):
        await asyncio.ensure_future(fail())
    assert await asyncio.ensure_future(succeed()) == 1
    (again,) = await take(consumer, 1)
    assert (again.offset, again.delivery_count) == (0, 2)
    await consumer.commit()
    assert consumer.metrics().value("records-released-total") == 1


async def test_a_block_that_an_exception_leaves_accepts_nothing(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 1)
    consumer = await start(**IMPLICIT)
    with pytest.raises(ZeroDivisionError):
        async with _stopping(consumer):
            await consumer.getone()
            raise ZeroDivisionError
    (again,) = await take(await start(), 1, seconds=2)
    assert again.delivery_count == 2


class _stopping:
    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer

    async def __aenter__(self) -> Any:
        return self.consumer

    async def __aexit__(self, *exc_info: object) -> None:
        await self.consumer.__aexit__(*exc_info)


async def test_a_renewal_and_an_acknowledgement_in_one_moment(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 1)
    consumer = await start()
    (record,) = await take(consumer, 1)
    consumer.acknowledge(record, AcknowledgeType.RENEW)
    consumer.acknowledge(record)
    assert await consumer.commit() == {T0: None}
    (seen,) = cluster.requests(ShareAcknowledgeRequest)
    (batch,) = seen.request.topics[0].partitions[0].acknowledgement_batches
    assert batch.acknowledge_types == [AcknowledgeType.ACCEPT]


async def test_an_acknowledgement_while_a_renewal_is_in_flight(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 1)
    consumer = await start()
    (record,) = await take(consumer, 1)
    may_answer = asyncio.Event()
    with cluster.intercept(ShareAcknowledgeRequest, Hold(may_answer), times=1):
        consumer.acknowledge(record, AcknowledgeType.RENEW)
        await cluster.wait_for(lambda: cluster.count(ShareAcknowledgeRequest) == 1)
        consumer.acknowledge(record)
        may_answer.set()
        assert await consumer.commit() == {T0: None}
    assert await is_empty(consumer)


async def test_interceptors_change_and_drop_records(cluster: FakeCluster, start: Start) -> None:
    class Dropping(ConsumerInterceptor):
        async def on_consume(self, records: Any) -> Any:
            await asyncio.sleep(0)
            return {
                tp: [record for record in some if record.offset % 2] for tp, some in records.items()
            }

    fill(cluster, 4)
    consumer = await start(interceptors=[Dropping()])
    first, second = await take(consumer, 2)
    assert offsets([first, second]) == [1, 3]
    consumer.acknowledge(first)
    consumer.acknowledge(second)
    assert await consumer.commit() == {T0: None}
    assert consumer.metrics().value("records-accepted-total") == 4
    assert await is_empty(consumer)


async def test_a_call_cancelled_in_an_interceptor_consumes_nothing(
    cluster: FakeCluster, start: Start
) -> None:
    entered = asyncio.Event()
    may_end = asyncio.Event()

    class Slow(ConsumerInterceptor):
        async def on_consume(self, records: Any) -> Any:
            entered.set()
            await may_end.wait()
            return records

    fill(cluster, 2)
    consumer = await start(interceptors=[Slow()])
    reading = asyncio.ensure_future(consumer.getone())
    await entered.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    may_end.set()
    assert offsets(await take(consumer, 2)) == [0, 1]


async def test_readers_share_the_records(cluster: FakeCluster, start: Start) -> None:
    consumer = await start()
    readers = [asyncio.ensure_future(consumer.getone()) for _ in range(5)]
    await asyncio.sleep(0.1)
    readers[2].cancel()
    fill(cluster, 4)
    others = [reader for index, reader in enumerate(readers) if index != 2]
    assert sorted(offsets(await asyncio.gather(*others))) == [0, 1, 2, 3]


async def test_a_reader_waits_longer_than_a_fetch(cluster: FakeCluster, start: Start) -> None:
    consumer = await start()
    reading = asyncio.ensure_future(consumer.getone())
    await cluster.wait_for(lambda: cluster.count(ShareFetchRequest) > 3)
    fill(cluster, 1)
    assert (await reading).offset == 0


async def test_no_fetch_without_a_reader(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 1)
    consumer = await start()
    await asyncio.sleep(5)
    assert cluster.requests(ShareFetchRequest) == []
    (record,) = await take(consumer, 1)
    count = cluster.count(ShareFetchRequest)
    await asyncio.sleep(5)
    assert cluster.count(ShareFetchRequest) == count
    consumer.acknowledge(record)


async def test_records_can_be_copied(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 1)
    consumer = await start()
    (record,) = await take(consumer, 1)
    twin = pickle.loads(pickle.dumps(record))
    assert (twin, twin.delivery_count) == (record, 1)
    assert copy.copy(record).delivery_count == 1
    assert "delivery_count=1)" in repr(record)


async def test_a_callback_that_raises_is_logged(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    fill(cluster, 1)
    consumer = await start()
    consumer.set_acknowledgement_commit_callback(lambda *_: 1 / 0)
    (record,) = await take(consumer, 1)
    consumer.acknowledge(record)
    assert await consumer.commit() == {T0: None}
    assert "ZeroDivisionError" in caplog.text


async def test_a_failed_renewal_is_logged_once(
    cluster: FakeCluster, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.state.other_configs[32, "g"]["share.renew.acknowledge.enable"] = "false"
    fill(cluster, 1)
    consumer = await start()
    (record,) = await take(consumer, 1)
    async with consumer.processing(record):
        await asyncio.sleep(0.8 * LOCK)
    outcomes = await consumer.commit()
    assert caplog.text.count("was not renewed") == 1
    assert outcomes == {T0: None}


@pytest.mark.parametrize("is_closing", [False, True])
async def test_a_refused_renewal_does_not_fail_other_acknowledgements(
    cluster: FakeCluster, start: Start, is_closing: bool
) -> None:
    """Although the broker applies none of the acknowledgements in the request."""
    cluster.state.other_configs[32, "g"]["share.renew.acknowledge.enable"] = "false"
    fill(cluster, 3)
    consumer = await start()
    first, second, third = await take(consumer, 3)
    consumer.acknowledge(first, AcknowledgeType.RENEW)
    consumer.acknowledge(second)
    consumer.acknowledge(third, AcknowledgeType.REJECT)
    if is_closing:
        with cluster.intercept(ShareAcknowledgeRequest, Delay(0.5), times=1):
            await cluster.wait_for(lambda: cluster.count(ShareAcknowledgeRequest) == 1)
            await consumer.stop()
    else:
        assert isinstance((await consumer.commit())[T0], InvalidRecordState)
        consumer.acknowledge(first, AcknowledgeType.RELEASE)
        assert await consumer.commit() == {T0: None}
    other = await start()
    (again,) = await take(other, 1)
    assert again.offset == 0
    other.acknowledge(again)
    assert await is_empty(other)


async def test_metrics_and_health(cluster: FakeCluster, start: Start) -> None:
    consumer = await start()
    fill(cluster, 2)
    records = await take(consumer, 2)
    consumer.acknowledge(records[0])
    health = consumer.health()
    assert (health.state, health.joined, health.pending_acknowledgements) == ("running", True, 1)
    await consumer.commit()
    health = consumer.health()
    assert (health.pending_acknowledgements, health.failed_acknowledgements) == (0, 0)
    assert health.as_dict()["state"] == "running"
    metrics = consumer.metrics()
    assert metrics.value("records-consumed-total") == 2
    assert metrics.value("records-accepted-total") == 1
    assert metrics.value("assigned-partitions") == 1
    cluster.intercept(ShareAcknowledgeRequest, Fail(InvalidRecordState), times=1)
    consumer.acknowledge(records[1])
    await consumer.commit()
    assert consumer.health().failed_acknowledgements == 1
    await consumer.stop()
    assert consumer.health().state == "closed"


async def test_records_of_a_lost_connection_do_not_reach_a_handler(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 10)
    calls: Counter[int] = Counter()
    may_end = asyncio.Event()

    async def handle(record: ShareRecord[Any, Any]) -> None:
        calls[record.offset] += 1
        await may_end.wait()

    consumer = await start()
    processing = asyncio.ensure_future(consumer.process(handle, concurrency=2))
    await cluster.wait_for(lambda: calls.total() == 2)
    cluster.drop_connections(0)
    await asyncio.sleep(0.7 * LOCK)  # the renewal of a lock notices that
    may_end.set()
    await cluster.wait_for(lambda: len(calls) == 10, timeout_s=60)
    await consumer.stop()
    await processing
    assert calls.total() == 12


async def test_deserializers_may_await(cluster: FakeCluster, start: Start) -> None:
    may_end = asyncio.Event()
    entered = asyncio.Event()

    async def decode(data: bytes) -> int:
        entered.set()
        await may_end.wait()
        return int(data)

    fill(cluster, 2)
    cluster.log("t").append(b"bad")
    consumer = await start(value_deserializer=decode)
    reading = asyncio.ensure_future(consumer.getmany(timeout_ms=60_000))
    await entered.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    may_end.set()
    records = await take(consumer, 2)
    assert [record.value for record in records] == [0, 1]
    assert [record.delivery_count for record in records] == [1, 1]
    with pytest.raises(RecordDeserializationError) as raised:
        await consumer.getone()
    bad: Any = raised.value.record
    assert bad.value == b"bad"
    for record in [*records, bad]:
        consumer.acknowledge(record)
    assert await consumer.commit() == {T0: None}
    assert await is_empty(consumer)


async def test_records_of_a_cancelled_call_keep_their_order(
    cluster: FakeCluster, start: Start
) -> None:
    is_waiting, may_end = asyncio.Event(), asyncio.Event()
    may_end.set()

    async def decode(data: bytes) -> int:
        if data == b"4":
            is_waiting.set()
            await may_end.wait()
        return int(data)

    fill(cluster, 5)
    consumer = await start(value_deserializer=decode)
    for record in await take(consumer, 5):
        kind = AcknowledgeType.ACCEPT if record.offset % 2 else AcknowledgeType.RELEASE
        consumer.acknowledge(record, kind)
    await consumer.commit()
    is_waiting.clear()
    may_end.clear()
    reading = asyncio.ensure_future(consumer.getmany(timeout_ms=10_000))
    await is_waiting.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    may_end.set()
    assert offsets(await take(consumer, 3)) == [0, 2, 4]


async def test_handlers_wait_for_their_own_deserializer(cluster: FakeCluster, start: Start) -> None:
    first_may_end = asyncio.Event()

    async def decode(data: bytes) -> int:
        if data == b"0":
            await first_may_end.wait()
        return int(data)

    fill(cluster, 3)
    seen: list[int] = []
    consumer = await start(value_deserializer=decode)
    processing = asyncio.ensure_future(consumer.process(lambda record: seen.append(record.value)))
    await cluster.wait_for(lambda: seen == [1, 2])
    await asyncio.sleep(2 * LOCK)
    first_may_end.set()
    await cluster.wait_for(lambda: seen == [1, 2, 0])
    await consumer.stop()
    await processing
    assert await is_empty(await start())


async def test_interceptors_may_return_copies(cluster: FakeCluster, start: Start) -> None:
    class Replacing(ConsumerInterceptor):
        def on_consume(self, records: Any) -> Any:
            return {
                tp: [dataclasses.replace(record, value=b"new") for record in some]
                for tp, some in records.items()
            }

    fill(cluster, 2)
    consumer = await start(interceptors=[Replacing()])
    records = await take(consumer, 2)
    assert [(r.value, r.delivery_count) for r in records] == [(b"new", 1), (b"new", 1)]
    for record in records:
        consumer.acknowledge(record)
    assert await consumer.commit() == {T0: None}
    assert await is_empty(consumer)


async def test_records_of_others_from_an_interceptor_are_refused(
    cluster: FakeCluster, start: Start
) -> None:
    class Inventing(ConsumerInterceptor):
        is_active = True

        def on_consume(self, records: Any) -> Any:
            if not self.is_active:
                return None
            return {
                tp: [dataclasses.replace(record, offset=99) for record in some]
                for tp, some in records.items()
            }

    fill(cluster, 1)
    interceptor = Inventing()
    consumer = await start(interceptors=[interceptor])
    with pytest.raises(TypeError, match="offset 99 of topic t, partition 0"):
        await consumer.getone()
    interceptor.is_active = False
    assert (await consumer.getone()).offset == 0
