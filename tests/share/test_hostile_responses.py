"""Responses to a share consumer that no correct broker sends, and errors that last."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AcknowledgeType, TopicPartition
from aiokafka._compat import timeout
from aiokafka.errors import (
    CorruptRecordError,
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    KafkaProtocolError,
    ShareSessionNotFound,
    TopicAuthorizationFailedError,
    UnknownError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.messages.share_groups import (
    LeaderIdAndEpoch,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
)
from aiokafka.testing import Edit, Fail, FakeCluster, Hold
from tests.support.share import T0, Start, fill, is_empty, offsets, take


def acquire(*ranges: tuple[int, int], records: bytes | None = None) -> Edit:
    """Change the acquired ranges of a response that has records, and the records if given."""

    def change(response: Any) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                if data.acquired_records:
                    kind = type(data.acquired_records[0])
                    data.acquired_records = [
                        kind(first_offset=first, last_offset=last, delivery_count=1)
                        for first, last in ranges
                    ]
                    if records is not None:
                        data.records = records

    return Edit(change)


async def test_fetching_goes_on_after_an_error_that_no_call_waited_for(
    cluster: FakeCluster, start: Start
) -> None:
    consumer = await start()
    cluster.intercept(ShareFetchRequest, Fail(TopicAuthorizationFailedError), times=1)
    assert await consumer.getmany() == {}
    await asyncio.sleep(5)  # longer than the backoff
    with pytest.raises(TopicAuthorizationFailedError):
        await consumer.getone()
    fill(cluster, 1)
    async with timeout(30):
        assert (await consumer.getone()).offset == 0


@pytest.mark.parametrize(
    "ranges",
    [[(5, 4)], [(-1, 0)], [(0, 3), (2, 5)], [(3, 5), (0, 2)], [(0, 2**63 - 1)]],
    ids=["backward", "negative", "overlapping", "unordered", "beyond the last offset"],
)
async def test_wrong_ranges_are_an_error_once(
    cluster: FakeCluster, start: Start, ranges: list[tuple[int, int]]
) -> None:
    fill(cluster, 1)
    consumer = await start()
    cluster.intercept(ShareFetchRequest, acquire(*ranges), times=1)
    with pytest.raises(KafkaProtocolError, match="acquired offsets"):
        async with timeout(30):
            await consumer.getone()
    # The broker delivers the record again when its lock has expired.
    (again,) = await take(consumer, 1)
    assert (again.offset, again.delivery_count) == (0, 2)


async def test_an_unreadable_range_takes_no_memory_per_offset(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 1)
    consumer = await start()
    calls: list[Any] = []
    consumer.set_acknowledgement_commit_callback(lambda *call: calls.append(call))
    hostile = acquire((0, 2**60), records=bytes(100))
    cluster.intercept(ShareFetchRequest, hostile, times=1)
    cluster.intercept(ShareAcknowledgeRequest, Fail(ShareSessionNotFound), times=1)
    with pytest.raises(CorruptRecordError):
        async with timeout(30):
            await consumer.getone()
    assert isinstance((await consumer.commit())[T0], ShareSessionNotFound)
    assert calls == []
    assert consumer.health().failed_acknowledgements == 2**60 + 1


async def test_records_behind_an_invalid_header_are_released(
    cluster: FakeCluster, start: Start
) -> None:
    """Another member may be able to read them."""
    fill(cluster, 1)
    consumer = await start()
    cluster.intercept(ShareFetchRequest, acquire((0, 0), records=bytes(100)), times=1)
    with pytest.raises(CorruptRecordError):
        async with timeout(30):
            await consumer.getone()
    (again,) = await take(consumer, 1, seconds=5)
    assert (again.offset, again.delivery_count) == (0, 2)


async def test_an_error_of_two_brokers_is_raised_once(cluster: FakeCluster, start: Start) -> None:
    await cluster.create_topic("u", assignment={0: [1]})
    fill(cluster, 1)
    cluster.log("u").append(b"u")
    consumer = await start("t", "u")
    for record in await take(consumer, 2):
        consumer.acknowledge(record)
    with cluster.intercept(ShareAcknowledgeRequest, Fail(GroupAuthorizationFailedError)):
        outcomes = await consumer.commit()
    assert {type(each) for each in outcomes.values()} == {GroupAuthorizationFailedError}
    with pytest.raises(GroupAuthorizationFailedError):
        await consumer.getone()
    assert len(await take(consumer, 2)) == 2


async def test_a_response_without_a_lock_timeout_has_usable_records(
    cluster: FakeCluster, start: Start
) -> None:
    def forget(response: Any) -> None:
        response.acquisition_lock_timeout_ms = 0

    fill(cluster, 1)
    consumer = await start()
    with cluster.intercept(ShareFetchRequest, Edit(forget)):
        assert offsets(await take(consumer, 1)) == [0]
    assert consumer.health().expired == 0


async def test_a_partition_that_fails_for_long_is_fetched_ever_less(
    cluster: FakeCluster, start: Start
) -> None:
    topic_id = cluster.state.topics["t"].topic_id

    def fail(response: Any) -> None:
        failed = PartitionData(
            partition_index=0,
            error_code=UnknownError.errno,
            acknowledge_error_code=0,
            current_leader=LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
            records=b"",
            acquired_records=[],
        )
        response.responses = [ShareFetchableTopicResponse(topic_id=topic_id, partitions=[failed])]

    consumer = await start()
    with cluster.intercept(ShareFetchRequest, Edit(fail)):
        assert await consumer.getmany(timeout_ms=20_000) == {}
    assert 10 <= cluster.count(ShareFetchRequest) < 50
    fill(cluster, 1)
    assert offsets(await take(consumer, 1)) == [0]


@pytest.mark.parametrize("error", [ShareSessionNotFound, UnknownError])
async def test_a_session_that_is_rejected_for_long_is_opened_ever_less(
    cluster: FakeCluster, start: Start, error: Any
) -> None:
    consumer = await start()
    with cluster.intercept(ShareFetchRequest, Fail(error)):
        assert await consumer.getmany(timeout_ms=20_000) == {}
    assert 10 <= cluster.count(ShareFetchRequest) < 50
    fill(cluster, 1)
    assert offsets(await take(consumer, 1)) == [0]


async def test_a_renewed_lock_leaves_more_time_for_retries(
    cluster: FakeCluster, start: Start
) -> None:
    def fail(response: Any) -> None:
        response.responses[0].partitions[0].error_code = GroupCoordinatorNotAvailableError.errno

    fill(cluster, 1)
    consumer = await start()
    (record,) = await take(consumer, 1)
    await asyncio.sleep(8)
    consumer.acknowledge(record, AcknowledgeType.RENEW)
    assert await consumer.commit() == {T0: None}
    await asyncio.sleep(4)  # the lock would have expired
    consumer.acknowledge(record, AcknowledgeType.RENEW)
    cluster.intercept(ShareAcknowledgeRequest, Edit(fail), times=2)
    assert await consumer.commit() == {T0: None}
    consumer.acknowledge(record)
    assert await consumer.commit() == {T0: None}


async def test_a_partition_that_returns_during_the_first_fetch_has_one_session(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("u", assignment={0: [1]})
    consumer = await start()
    may_answer = asyncio.Event()
    with cluster.intercept(ShareFetchRequest, Hold(may_answer)):
        reading = asyncio.ensure_future(consumer.getone())
        await cluster.wait_for(lambda: cluster.count(ShareFetchRequest) == 1)
        consumer.subscribe(["u"])
        await cluster.wait_for(lambda: consumer.assignment() == {TopicPartition("u", 0)})
        consumer.subscribe(["t"])
        await cluster.wait_for(lambda: consumer.assignment() == {T0})
    may_answer.set()
    fill(cluster, 1)
    consumer.acknowledge(await reading)
    assert await consumer.commit() == {T0: None}
    epochs = [
        seen.request.share_session_epoch
        for seen in cluster.requests(ShareFetchRequest)
        if seen.broker_id == 0
    ]
    assert epochs == list(range(len(epochs)))


async def test_acknowledgements_fail_if_the_response_lacks_their_partition(
    cluster: FakeCluster, start: Start
) -> None:
    def forget(response: Any) -> None:
        response.responses = []

    fill(cluster, 2)
    consumer = await start()
    first, second = await take(consumer, 2)
    consumer.acknowledge(first)
    with cluster.intercept(ShareAcknowledgeRequest, Edit(forget)):
        outcome = (await consumer.commit())[T0]
    assert isinstance(outcome, UnknownTopicOrPartitionError)
    assert "lacks the partition" in str(outcome)
    consumer.acknowledge(second)
    with cluster.intercept(ShareFetchRequest, Edit(forget), times=1):
        assert await consumer.getmany(timeout_ms=1000) == {}
    assert isinstance((await consumer.commit())[T0], UnknownTopicOrPartitionError)


async def test_stop_sends_no_renewals(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 2)
    consumer = await start()
    first, second = await take(consumer, 2)
    may_answer = asyncio.Event()
    async with consumer.processing(second):
        await asyncio.sleep(4.8)
        with cluster.intercept(ShareFetchRequest, Hold(may_answer)):
            reading = asyncio.ensure_future(consumer.getmany(timeout_ms=60_000))
            before = cluster.count(ShareFetchRequest)
            await cluster.wait_for(lambda: cluster.count(ShareFetchRequest) > before)
        consumer.acknowledge(first)
        stopping = asyncio.ensure_future(consumer.stop())
        await asyncio.sleep(1)  # the renewal is due
        may_answer.set()
        await stopping
        assert await reading == {}
    last = cluster.requests(ShareAcknowledgeRequest)[-1].request
    assert (last.share_session_epoch, last.is_renew_ack) == (-1, False)
    other = await start()
    (again,) = await take(other, 1)
    assert again.offset == 1
    other.acknowledge(again)
    assert await is_empty(other)
