"""Share sessions of a share consumer: lost connections, rejected requests, and moved leaders."""

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
    InvalidRecordState,
    InvalidRequestError,
    InvalidShareSessionEpoch,
    KafkaConnectionError,
    KafkaTimeoutError,
    NotLeaderForPartitionError,
    ShareSessionLimitReached,
    ShareSessionNotFound,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.protocol.messages.share_groups import ShareAcknowledgeRequest, ShareFetchRequest
from aiokafka.share.session import ShareSession
from aiokafka.testing import Cut, Delay, Edit, Fail, FakeCluster, Hold, Silence
from tests.support.share import T0, Start, fill, is_empty, offsets, take


@pytest.mark.parametrize("handled", [False, True])
async def test_acknowledgements_of_a_lost_connection_fail(
    cluster: FakeCluster, start: Start, handled: bool
) -> None:
    fill(cluster, 2)
    consumer = await start()
    first, second = await take(consumer, 2)
    consumer.acknowledge(first)
    cluster.intercept(ShareAcknowledgeRequest, Cut(handled=handled), times=1)
    outcomes = await consumer.commit()
    assert isinstance(outcomes[T0], KafkaConnectionError)
    # The second record was acquired on the lost connection.
    consumer.acknowledge(second)
    assert isinstance((await consumer.commit())[T0], KafkaConnectionError)
    again = await take(consumer, 1 if handled else 2)
    assert offsets(again) == ([1] if handled else [0, 1])
    assert {record.delivery_count for record in again} == {2}
    for record in again:
        consumer.acknowledge(record)
    assert await consumer.commit() == {T0: None}
    assert await is_empty(consumer)


@pytest.mark.parametrize("is_noticed", [True, False])
async def test_records_of_a_dropped_connection_are_delivered_again(
    cluster: FakeCluster, start: Start, is_noticed: bool
) -> None:
    fill(cluster, 3)
    consumer = await start()
    records = await take(consumer, 3)
    cluster.drop_connections(0)
    if is_noticed:
        await asyncio.sleep(1)
    for record in records:
        consumer.acknowledge(record)
    assert isinstance((await consumer.commit())[T0], KafkaConnectionError)
    again = await take(consumer, 3)
    assert [record.delivery_count for record in again] == [2, 2, 2]


@pytest.mark.parametrize("request_type", [ShareFetchRequest, ShareAcknowledgeRequest])
@pytest.mark.parametrize(
    "error", [ShareSessionNotFound, InvalidShareSessionEpoch, ShareSessionLimitReached]
)
async def test_a_rejected_session_is_opened_again(
    cluster: FakeCluster, start: Start, request_type: Any, error: Any
) -> None:
    fill(cluster, 1)
    consumer = await start()
    (record,) = await take(consumer, 1)
    consumer.acknowledge(record)
    cluster.intercept(request_type, Fail(error), times=1)
    if request_type is ShareFetchRequest:
        await consumer.getmany(timeout_ms=500)  # the acknowledgement is sent with a fetch
    outcome = (await consumer.commit())[T0]
    assert isinstance(outcome, error)
    fill(cluster, 1, first=1)
    seen: set[int] = set()
    async with timeout(30):
        while seen != {0, 1}:
            for each in await take(consumer, 1):
                seen.add(each.offset)
                consumer.acknowledge(each)
    assert await consumer.commit() == {T0: None}
    assert await is_empty(consumer)


async def test_acknowledgements_are_sent_with_the_next_fetch(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 2)
    consumer = await start(max_poll_records=1, share_acquire_mode="record_limit")
    (first,) = await take(consumer, 1)
    consumer.acknowledge(first)
    await take(consumer, 1)
    assert cluster.requests(ShareAcknowledgeRequest) == []
    assert await consumer.commit() == {T0: None}


async def test_acknowledgements_are_sent_without_a_fetch(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 2)
    consumer = await start()
    records = await take(consumer, 2)
    for record in records:
        consumer.acknowledge(record)
    await cluster.wait_for(lambda: cluster.count(ShareAcknowledgeRequest) == 1)
    (seen,) = cluster.requests(ShareAcknowledgeRequest)
    (batch,) = seen.request.topics[0].partitions[0].acknowledgement_batches
    assert (batch.first_offset, batch.last_offset, batch.acknowledge_types) == (0, 1, [1])
    assert await consumer.commit() == {T0: None}


async def test_acknowledgements_without_a_pause_are_sent_meanwhile(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 100)
    consumer = await start()
    types = (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)
    for record in await take(consumer, 100):
        consumer.acknowledge(record, types[record.offset % 2])
        await asyncio.sleep(0.01)
    assert 10 <= cluster.count(ShareAcknowledgeRequest) <= 25


async def test_acknowledgements_of_a_moved_partition_fail(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 3)
    consumer = await start()
    records = await take(consumer, 3)
    cluster.move_leader(T0, 1)
    for record in records:
        consumer.acknowledge(record)
    outcome = (await consumer.commit())[T0]
    assert isinstance(outcome, (NotLeaderForPartitionError, UnknownTopicOrPartitionError))
    assert "has moved" in str(outcome)
    again = await take(consumer, 3)
    for record in again:
        consumer.acknowledge(record)
    assert await consumer.commit() == {T0: None}
    assert await is_empty(consumer)


@pytest.mark.parametrize("is_acknowledged", [True, False])
async def test_a_response_names_the_next_leader(
    cluster: FakeCluster, start: Start, is_acknowledged: bool
) -> None:
    fill(cluster, 1)
    consumer = await start()
    (record,) = await take(consumer, 1)
    cluster.move_leader(T0, 1)
    with cluster.intercept(MetadataRequest, Silence()):
        if is_acknowledged:
            consumer.acknowledge(record)
            assert "has moved" in str((await consumer.commit())[T0])
        (again,) = await take(consumer, 1, seconds=5)
    consumer.acknowledge(again)
    assert await consumer.commit() == {T0: None}


async def test_an_acknowledgement_that_cannot_be_stored_is_sent_again(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 1)
    consumer = await start()
    (record,) = await take(consumer, 1)

    def fail(response: Any) -> None:
        response.responses[0].partitions[0].error_code = GroupCoordinatorNotAvailableError.errno

    # The response to an acknowledgement that has no effect: a renewal of a lock that was renewed.
    consumer.acknowledge(record, AcknowledgeType.RENEW)
    with cluster.intercept(ShareAcknowledgeRequest, Edit(fail)):
        committing = asyncio.ensure_future(consumer.commit())
        await cluster.wait_for(lambda: cluster.count(ShareAcknowledgeRequest) >= 3)
    assert await committing == {T0: None}
    consumer.acknowledge(record)
    assert await consumer.commit() == {T0: None}


async def test_an_acknowledgement_is_sent_again_only_while_its_lock_lasts(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 1)
    consumer = await start()
    (record,) = await take(consumer, 1)

    def fail(response: Any) -> None:
        response.responses[0].partitions[0].error_code = GroupCoordinatorNotAvailableError.errno

    consumer.acknowledge(record)
    with cluster.intercept(ShareAcknowledgeRequest, Edit(fail)):
        outcome = (await consumer.commit())[T0]
    assert isinstance(outcome, InvalidRecordState)


async def test_stop_sends_acknowledgements_again_that_could_not_be_stored(
    cluster: FakeCluster, start: Start
) -> None:
    """The last request has no RENEW, which the broker would refuse with all acknowledgements."""

    def fail(response: Any) -> None:
        response.responses[0].partitions[0].error_code = GroupCoordinatorNotAvailableError.errno

    async def have_no_effect(request: Any, _: Any) -> Edit:
        await asyncio.sleep(0.5)
        request.is_renew_ack = True
        for batch in request.topics[0].partitions[0].acknowledgement_batches:
            batch.acknowledge_types = [AcknowledgeType.RENEW]
        return Edit(fail)

    fill(cluster, 2)
    consumer = await start()
    first, second = await take(consumer, 2)
    consumer.acknowledge(first, AcknowledgeType.RENEW)
    consumer.acknowledge(second)
    with cluster.intercept(ShareAcknowledgeRequest, have_no_effect, times=1):
        await cluster.wait_for(lambda: cluster.count(ShareAcknowledgeRequest) == 1)
        await consumer.stop()
    last = cluster.requests(ShareAcknowledgeRequest)[-1].request
    assert (last.share_session_epoch, last.is_renew_ack) == (-1, False)
    other = await start()
    (again,) = await take(other, 1, seconds=5)
    assert again.offset == 0
    other.acknowledge(again)
    assert await is_empty(other)


async def test_a_session_that_is_being_closed_returns_no_more_records(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 2)
    consumer = await start()
    consumer.acknowledge(await consumer.getone())
    assert await consumer.commit() == {T0: None}
    may_answer = asyncio.Event()
    before = cluster.count(ShareAcknowledgeRequest)
    with cluster.intercept(ShareAcknowledgeRequest, Hold(may_answer), times=1):
        consumer.unsubscribe()
        await cluster.wait_for(lambda: cluster.count(ShareAcknowledgeRequest) > before)
        consumer.subscribe(["t"])
        reading = asyncio.ensure_future(consumer.getone())
        await asyncio.sleep(1)
        may_answer.set()
        record = await reading
    assert (record.offset, record.delivery_count) == (1, 2)
    consumer.acknowledge(record)
    assert await consumer.commit() == {T0: None}


@pytest.mark.parametrize("is_first", [True, False])
async def test_a_request_with_renewals_of_some_partitions_says_so(
    cluster: FakeCluster, start: Start, is_first: bool
) -> None:
    await cluster.create_topic("u", assignment={0: [0]})
    fill(cluster, 1)
    cluster.log("u").append(b"u")
    consumer = await start("t", "u")
    records = sorted(
        await take(consumer, 2), key=lambda record: cluster.state.topics[record.topic].topic_id
    )
    renewed, accepted = records if is_first else records[::-1]
    consumer.acknowledge(renewed, AcknowledgeType.RENEW)
    consumer.acknowledge(accepted)
    assert set((await consumer.commit()).values()) == {None}
    (seen,) = cluster.requests(ShareAcknowledgeRequest)
    assert len(seen.request.topics) == 2
    assert seen.request.is_renew_ack


def test_the_epoch_after_the_last_one_opens_no_session() -> None:
    session = ShareSession()
    assert not session.is_open
    session.advance()
    session.epoch = 2**31 - 1
    session.advance()
    assert (session.epoch, session.is_open) == (1, True)


async def test_a_commit_ends_at_its_timeout(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 1)
    consumer = await start(default_api_timeout_ms=500)
    (record,) = await take(consumer, 1)
    consumer.acknowledge(record)
    may_answer = asyncio.Event()
    with cluster.intercept(ShareAcknowledgeRequest, Hold(may_answer)):
        with pytest.raises(KafkaTimeoutError, match="1 acknowledgements got no response"):
            await consumer.commit()
        may_answer.set()
        # The next call returns the outcome.
        assert await consumer.commit() == {T0: None}


async def test_a_cancelled_commit_keeps_its_outcomes(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 1)
    consumer = await start()
    (record,) = await take(consumer, 1)
    consumer.acknowledge(record)
    may_answer = asyncio.Event()
    with cluster.intercept(ShareAcknowledgeRequest, Hold(may_answer)):
        committing = asyncio.ensure_future(consumer.commit())
        await cluster.wait_for(lambda: cluster.count(ShareAcknowledgeRequest) == 1)
        committing.cancel()
        may_answer.set()
        with pytest.raises(asyncio.CancelledError):
            await committing
        assert await consumer.commit() == {T0: None}


async def test_two_commits_at_once_return_the_outcome_of_their_records(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 2)
    consumer = await start()
    first, second = await take(consumer, 2)
    consumer.acknowledge(first)
    one = asyncio.ensure_future(consumer.commit())
    await asyncio.sleep(0)
    consumer.acknowledge(second)
    other = asyncio.ensure_future(consumer.commit())
    assert await one == {T0: None}
    assert await other == {T0: None}


async def test_a_silent_broker_fails_acknowledgements(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 1)
    consumer = await start(request_timeout_ms=1000)
    (record,) = await take(consumer, 1)
    consumer.acknowledge(record)
    cluster.intercept(ShareAcknowledgeRequest, Silence(), times=1)
    assert (await consumer.commit())[T0] is not None
    (again,) = await take(consumer, 1)
    assert again.delivery_count == 2


async def test_a_corrupt_batch_is_rejected(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 3)
    cluster.log("t").corrupt(1)
    consumer = await start()
    records = await take(consumer, 1)
    with pytest.raises(CorruptRecordError) as raised:
        await consumer.getone()
    assert raised.value.topic_partition == T0
    records += await take(consumer, 1)
    assert offsets(records) == [0, 2]
    for record in records:
        consumer.acknowledge(record)
    assert await consumer.commit() == {T0: None}
    assert await is_empty(consumer)
    assert consumer.metrics().value("records-rejected-total") == 1


async def test_control_records_are_acknowledged_as_gaps(cluster: FakeCluster, start: Start) -> None:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id="x"
    ) as producer:
        for value in (b"a", b"b"):
            async with producer.transaction():
                await producer.send("t", value, partition=0)
    consumer = await start()
    records = await take(consumer, 2)
    assert offsets(records) == [0, 2]
    for record in records:
        consumer.acknowledge(record)
    assert await consumer.commit() == {T0: None}
    assert await is_empty(consumer)
    batches = [
        (batch.first_offset, batch.last_offset, batch.acknowledge_types)
        for api in (ShareAcknowledgeRequest, ShareFetchRequest)
        for seen in cluster.requests(api)
        for topic in seen.request.topics
        for partition in topic.partitions
        for batch in partition.acknowledgement_batches
    ]
    assert sorted(batches) == [(0, 0, [1]), (1, 1, [0]), (2, 2, [1]), (3, 3, [0])]


@pytest.mark.parametrize(
    "error", [GroupAuthorizationFailedError, TopicAuthorizationFailedError, InvalidRequestError]
)
async def test_errors_that_no_retry_can_mend_are_raised(
    cluster: FakeCluster, start: Start, error: Any
) -> None:
    consumer = await start()
    fill(cluster, 1)
    cluster.intercept(ShareFetchRequest, Fail(error), times=1)
    with pytest.raises(error):
        async with timeout(30):
            await consumer.getone()
    assert (await consumer.getone()).offset == 0


async def test_a_broker_that_stops_loses_its_records_only(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("u", assignment={0: [1]})
    fill(cluster, 1)
    cluster.log("u").append(b"u")
    consumer = await start("t", "u")
    records = await take(consumer, 2)
    await cluster.stop_broker(0)
    for record in records:
        consumer.acknowledge(record)
    outcomes = await consumer.commit()
    assert {tp.topic: error is None for tp, error in outcomes.items()} == {"t": False, "u": True}


async def test_a_broker_that_leads_nothing_any_more_is_forgotten(
    cluster: FakeCluster, start: Start
) -> None:
    consumer = await start(request_timeout_ms=1000)
    reading = asyncio.ensure_future(consumer.getone())
    await cluster.wait_for(lambda: cluster.count(ShareFetchRequest) > 1)
    with cluster.intercept(ShareFetchRequest, Silence(), broker=0):
        await cluster.wait_for(lambda: "broker 0" in str(consumer.health().unreachable).lower())
        cluster.move_leader(T0, 1)
        fill(cluster, 1)
        assert (await reading).offset == 0
        await cluster.wait_for(lambda: consumer.health().unreachable == (), timeout_s=60)


async def test_released_by_hand_is_delivered_at_once(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 1)
    consumer = await start()
    (record,) = await take(consumer, 1)
    consumer.acknowledge(record, AcknowledgeType.RELEASE)
    (again,) = await take(consumer, 1, seconds=1)
    assert again.delivery_count == 2


async def test_a_cancelled_commit_keeps_the_outcomes_that_it_had(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("u", assignment={0: [1]})
    fill(cluster, 1)
    cluster.log("u").append(b"u")
    consumer = await start("t", "u")
    records = {record.topic: record for record in await take(consumer, 2)}
    consumer.acknowledge(records["t"])
    await cluster.wait_for(lambda: consumer.health().pending_acknowledgements == 0)
    may_answer = asyncio.Event()
    with cluster.intercept(ShareAcknowledgeRequest, Hold(may_answer)):
        before = cluster.count(ShareAcknowledgeRequest)
        consumer.acknowledge(records["u"])
        committing = asyncio.ensure_future(consumer.commit())
        await cluster.wait_for(lambda: cluster.count(ShareAcknowledgeRequest) > before)
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
        may_answer.set()
        assert await consumer.commit() == {T0: None, TopicPartition("u", 0): None}


@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_records_between_gaps_have_the_delivery_count_of_their_range(
    cluster: FakeCluster, start: Start, limit: int
) -> None:
    log = cluster.log("t")
    log.extend([(b"%d" % (number % 7), b"", ()) for number in range(12)])
    log.append(b"", b"last")
    log.append(b"", b"last")
    assert log.compact() == 6  # left: 5 to 11, and 13
    log.extend([(None, b"", ()) for _ in range(4)])  # 14 to 17
    first = await start()
    for record in await take(first, 12):
        if record.offset in {6, 7, 9, 13, 15}:
            first.acknowledge(record, AcknowledgeType.RELEASE)
        elif record.offset in {5, 11}:
            first.acknowledge(record)
    assert await first.commit() == {T0: None}
    await first.stop()  # releases the others
    second = await start(max_poll_records=limit, share_acknowledgement_mode="implicit")
    records = await take(second, 10)
    assert offsets(records) == [6, 7, 8, 9, 10, 13, 14, 15, 16, 17]
    assert {record.delivery_count for record in records} == {2}
    await second.stop()
    assert await is_empty(await start())


async def test_only_acquired_records_of_a_batch_are_delivered(
    cluster: FakeCluster, start: Start
) -> None:
    def acquire_less(response: Any) -> None:
        (data,) = response.responses[0].partitions
        (whole,) = data.acquired_records
        assert (whole.first_offset, whole.last_offset) == (0, 9)
        data.acquired_records = [
            type(whole)(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in ((1, 2, 1), (3, 3, 4), (6, 8, 2))
        ]

    cluster.log("t").extend([(None, b"%d" % number, ()) for number in range(10)])
    consumer = await start()
    cluster.intercept(ShareFetchRequest, Edit(acquire_less), times=1)
    records = await take(consumer, 6)
    found = [(int(record.value), record.offset, record.delivery_count) for record in records]
    assert found == [(1, 1, 1), (2, 2, 1), (3, 3, 4), (6, 6, 2), (7, 7, 2), (8, 8, 2)]
    for record in records:
        consumer.acknowledge(record)
    assert await consumer.commit() == {T0: None}


async def test_a_renewal_that_was_not_sent_gives_way_to_a_range(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 3)
    consumer = await start()
    records = await take(consumer, 3)
    consumer.acknowledge(records[1], AcknowledgeType.RENEW)
    for record in records:
        consumer.acknowledge(record)
    assert await consumer.commit() == {T0: None}
    assert consumer.metrics().value("records-accepted-total") == 3
    assert await is_empty(consumer)


async def test_a_renewal_that_was_not_sent_gives_way_to_the_acknowledgement(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 3)
    consumer = await start()
    first, second, third = await take(consumer, 3)
    consumer.acknowledge(first)
    consumer.acknowledge(second, AcknowledgeType.RENEW)
    consumer.acknowledge(second)
    consumer.acknowledge(third)
    assert await consumer.commit() == {T0: None}
    (seen,) = cluster.requests(ShareAcknowledgeRequest)
    (batch,) = seen.request.topics[0].partitions[0].acknowledgement_batches
    assert (batch.first_offset, batch.last_offset, batch.acknowledge_types) == (0, 2, [1])
    assert consumer.metrics().value("records-accepted-total") == 3
    assert await is_empty(consumer)


async def test_a_record_between_acknowledged_ones_is_delivered_again(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 6)
    consumer = await start()
    for record in await take(consumer, 6):
        if record.offset not in {1, 4}:
            consumer.acknowledge(record)
    assert await consumer.commit() == {T0: None}
    again = await take(consumer, 2)
    assert [(record.offset, record.delivery_count) for record in again] == [(1, 2), (4, 2)]


async def test_records_behind_a_gap_have_the_delivery_count_of_their_own_range(
    cluster: FakeCluster, start: Start
) -> None:
    def deliver_again(response: Any) -> None:
        (data,) = response.responses[0].partitions
        (whole,) = data.acquired_records
        assert (whole.first_offset, whole.last_offset) == (2, 6)
        data.acquired_records = [
            type(whole)(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in ((2, 5, 1), (6, 6, 3))
        ]

    for key in (b"a", b"b", b"a", b"c", b"c", b"b", b"d", b"e"):
        cluster.log("t").append(b"", key)
    assert cluster.log("t").compact() == 3  # left: 2, 4, 5, 6 and 7
    consumer = await start()
    cluster.intercept(ShareFetchRequest, Edit(deliver_again), times=1)
    records = await take(consumer, 5)
    found = [(record.offset, record.delivery_count) for record in records]
    assert found == [(2, 1), (4, 1), (5, 1), (6, 3), (7, 1)]


async def test_locks_count_from_the_request(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 1)
    consumer = await start()
    # For the consumer, the broker may have acquired the record at once, and responded late.
    cluster.intercept(ShareFetchRequest, Delay(10.5), times=1)
    (record,) = await take(consumer, 1)
    assert record.delivery_count == 2
    assert consumer.health().expired == 1
    await asyncio.sleep(6)
    cluster.intercept(ShareAcknowledgeRequest, Delay(3), times=1)
    consumer.acknowledge(record, AcknowledgeType.RENEW)
    assert await consumer.commit() == {T0: None}
    await asyncio.sleep(7.5)  # the lock was renewed 7.5 or 10.5 seconds ago
    consumer.acknowledge(record)
    assert isinstance((await consumer.commit())[T0], InvalidRecordState)
