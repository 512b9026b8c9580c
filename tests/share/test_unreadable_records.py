"""`on_deserialization_error` of a share consumer: unreadable records are rejected, or returned as
bytes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AcknowledgeType, ShareRecord
from aiokafka.errors import RecordDeserializationError
from aiokafka.testing import FakeCluster
from tests.support.share import T0, Start, fill, is_empty, offsets, take

BAD = {0, 3, 4, 7}
GOOD = [1, 2, 5, 6]
MODES = pytest.mark.parametrize("mode", ["implicit", "explicit"])


def plain(data: bytes) -> int:
    if int(data) in BAD:
        raise ValueError(data)
    return int(data)


async def later(data: bytes) -> int:
    await asyncio.sleep(0)
    return plain(data)


FORMS = pytest.mark.parametrize("deserializer", [plain, later])


@MODES
@FORMS
async def test_skipped_records_are_rejected(
    cluster: FakeCluster, start: Start, deserializer: Any, mode: str
) -> None:
    fill(cluster, 8)
    consumer = await start(
        value_deserializer=deserializer,
        on_deserialization_error="skip",
        share_acknowledgement_mode=mode,
    )
    reported: list[int] = []
    consumer.set_acknowledgement_commit_callback(lambda _, some, error: reported.extend(some))
    records = await take(consumer, 4)
    assert [record.value for record in records] == GOOD
    if mode == "explicit":
        for record in records:
            consumer.acknowledge(record)
    assert await consumer.getmany(timeout_ms=500) == {}  # skips the last record
    assert await consumer.commit() == {T0: None}
    assert sorted(reported) == list(range(8))
    metrics = consumer.metrics()
    assert metrics.value("records-unreadable-total") == 4
    assert metrics.value("records-rejected-total") == 4
    assert metrics.value("records-accepted-total") == 4
    assert consumer.health().unreadable == 4
    assert await is_empty(consumer)


async def test_a_call_that_skips_all_records_ends_at_its_timeout(
    cluster: FakeCluster, start: Start
) -> None:
    for _ in range(3):
        cluster.log("t").append(b"0")
    consumer = await start(value_deserializer=plain, on_deserialization_error="skip")
    assert await consumer.getmany(timeout_ms=500) == {}
    assert await consumer.commit() == {T0: None}
    assert consumer.health().unreadable == 3
    reading = asyncio.ensure_future(consumer.getone())
    await asyncio.sleep(1)
    cluster.log("t").append(b"1")
    assert (await reading).value == 1


@MODES
@FORMS
async def test_raw_records_have_their_bytes_and_the_error(
    cluster: FakeCluster, start: Start, deserializer: Any, mode: str
) -> None:
    fill(cluster, 8)
    consumer = await start(
        value_deserializer=deserializer,
        on_deserialization_error="raw",
        share_acknowledgement_mode=mode,
    )
    records = await take(consumer, 8)
    assert offsets(records) == list(range(8))
    assert [r.value for r in records] == [b"%d" % n if n in BAD else n for n in range(8)]
    errors = {r.offset: r.deserialization_error for r in records if r.deserialization_error}
    assert errors.keys() == BAD
    assert isinstance(errors[0], RecordDeserializationError)
    if mode == "explicit":
        for record in records:
            kind = AcknowledgeType.REJECT if record.offset in BAD else AcknowledgeType.ACCEPT
            consumer.acknowledge(record, kind)
    assert await consumer.commit() == {T0: None}
    assert consumer.health().unreadable == 4
    rejected = 4 if mode == "explicit" else 0
    assert consumer.metrics().value("records-rejected-total") == rejected
    assert await is_empty(consumer)


@pytest.mark.parametrize("policy", ["skip", "raw"])
async def test_handlers_get_no_skipped_records(
    cluster: FakeCluster, start: Start, policy: str
) -> None:
    seen: list[int | bytes] = []

    async def handle(record: ShareRecord[Any, Any]) -> None:
        seen.append(record.value)

    fill(cluster, 8)
    consumer = await start(value_deserializer=plain, on_deserialization_error=policy)
    processing = asyncio.ensure_future(consumer.process(handle))
    accepted = 4 if policy == "skip" else 8
    await cluster.wait_for(lambda: consumer.metrics().value("records-accepted-total") == accepted)
    await consumer.stop()
    await processing
    assert seen == (GOOD if policy == "skip" else [b"0", 1, 2, b"3", b"4", 5, 6, b"7"])
    assert consumer.health().unreadable == 4
    other = await start()
    assert await is_empty(other)


async def test_a_cancelled_call_keeps_what_it_has_rejected(
    cluster: FakeCluster, start: Start
) -> None:
    may_end = asyncio.Event()

    async def slow(data: bytes) -> int:
        if data == b"2":
            await may_end.wait()
        return plain(data)

    fill(cluster, 4)
    consumer = await start(value_deserializer=slow, on_deserialization_error="skip")
    reading = asyncio.ensure_future(consumer.getmany(timeout_ms=5000))
    await cluster.wait_for(lambda: consumer.health().unreadable == 1)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    may_end.set()
    records = await take(consumer, 2)
    assert [(r.offset, r.value, r.delivery_count) for r in records] == [(1, 1, 1), (2, 2, 1)]
    for record in records:
        consumer.acknowledge(record)
    assert await consumer.getmany(timeout_ms=500) == {}  # skips the last record
    assert await consumer.commit() == {T0: None}
    assert consumer.health().unreadable == 2
    assert await is_empty(consumer)
