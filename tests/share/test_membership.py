"""The membership of a share consumer: joining, fencing, errors of the coordinator, leaving."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka import AIOKafkaShareConsumer
from aiokafka._compat import timeout
from aiokafka.errors import (
    ConsumerStoppedError,
    FencedMemberEpoch,
    GroupAuthorizationFailedError,
    GroupCoordinatorNotAvailableError,
    GroupLoadInProgressError,
    IllegalStateError,
    InvalidGroupIdError,
    KafkaError,
    KafkaTimeoutError,
    NotCoordinatorForGroupError,
    TopicAuthorizationFailedError,
    UnknownError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.metadata import FindCoordinatorRequest
from aiokafka.protocol.messages.share_groups import (
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupHeartbeatRequest,
)
from aiokafka.testing import Cut, Fail, FakeCluster, Hold, Silence
from tests.support.share import T0, Start, fill, is_empty, offsets, take


def beats(cluster: FakeCluster) -> list[ShareGroupHeartbeatRequest]:
    return [seen.request for seen in cluster.requests(ShareGroupHeartbeatRequest)]


@pytest.mark.parametrize("error", [FencedMemberEpoch, UnknownMemberIdError])
async def test_a_fenced_member_joins_again_and_keeps_its_records(
    cluster: FakeCluster, start: Start, error: Any
) -> None:
    fill(cluster, 1)
    consumer = await start()
    (record,) = await take(consumer, 1)
    cluster.forget_requests()
    cluster.intercept(ShareGroupHeartbeatRequest, Fail(error), times=1)
    await cluster.wait_for(lambda: any(beat.member_epoch == 0 for beat in beats(cluster)))
    (join,) = [beat for beat in beats(cluster) if beat.member_epoch == 0]
    assert join.subscribed_topic_names == ["t"]
    consumer.acknowledge(record)
    assert await consumer.commit() == {T0: None}
    fill(cluster, 1, first=1)
    assert offsets(await take(consumer, 1)) == [1]


@pytest.mark.parametrize(
    "error",
    [GroupLoadInProgressError, GroupCoordinatorNotAvailableError, NotCoordinatorForGroupError],
)
async def test_errors_of_the_coordinator_are_retried(
    cluster: FakeCluster, start: Start, error: Any
) -> None:
    cluster.intercept(ShareGroupHeartbeatRequest, Fail(error), times=3)
    consumer = await start()
    assert consumer.health().joined


@pytest.mark.parametrize("handled", [False, True])
async def test_a_lost_heartbeat_is_sent_again_in_full(
    cluster: FakeCluster, start: Start, handled: bool
) -> None:
    cluster.intercept(ShareGroupHeartbeatRequest, Cut(handled=handled), times=1)
    consumer = await start()
    fill(cluster, 1)
    assert offsets(await take(consumer, 1)) == [0]
    full, again, *others = beats(cluster)
    assert full.member_id == again.member_id
    assert full.subscribed_topic_names == again.subscribed_topic_names == ["t"]
    assert all(beat.subscribed_topic_names is None for beat in others)


@pytest.mark.parametrize(
    "error",
    [
        GroupAuthorizationFailedError,
        TopicAuthorizationFailedError,
        InvalidGroupIdError,
        UnsupportedVersionError,
    ],
)
async def test_a_rejected_member_fails(cluster: FakeCluster, start: Start, error: Any) -> None:
    with cluster.intercept(ShareGroupHeartbeatRequest, Fail(error)):
        with pytest.raises(error):
            await start()
    consumer = await start()
    reading = asyncio.ensure_future(consumer.getone())
    cluster.intercept(ShareGroupHeartbeatRequest, Fail(error), times=1)
    with pytest.raises(error):
        await reading
    assert consumer.health().state == "failed"
    with pytest.raises(error):
        await consumer.getmany()
    # Another subscription joins again.
    consumer.subscribe(["t"])
    fill(cluster, 1)
    assert offsets(await take(consumer, 1)) == [0]


async def test_start_ends_at_its_timeout(cluster: FakeCluster, start: Start) -> None:
    error = Fail(GroupLoadInProgressError)
    with cluster.intercept(ShareGroupHeartbeatRequest, error):
        with pytest.raises(KafkaTimeoutError, match="was not joined in time"):
            await start(request_timeout_ms=1000)


async def test_brokers_without_share_groups_are_named(start: Start) -> None:
    async with FakeCluster(as_version="4.0") as old:
        await old.create_topic("t")
        consumer = AIOKafkaShareConsumer("t", bootstrap_servers=old.bootstrap_servers, group_id="g")
        with pytest.raises(UnsupportedVersionError, match="does not serve share groups"):
            await consumer.start()


async def test_start_can_be_cancelled(cluster: FakeCluster) -> None:
    consumer = AIOKafkaShareConsumer("t", bootstrap_servers=cluster.bootstrap_servers, group_id="g")
    may_answer = asyncio.Event()
    with cluster.intercept(ShareGroupHeartbeatRequest, Hold(may_answer)):
        starting = asyncio.ensure_future(consumer.start())
        await cluster.wait_for(lambda: cluster.count(ShareGroupHeartbeatRequest) == 1)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
    with pytest.raises(ConsumerStoppedError):
        await consumer.getone()
    may_answer.set()
    await cluster.wait_for(lambda: cluster.connections == 0)


async def test_stop_wakes_readers_and_leaves(cluster: FakeCluster, start: Start) -> None:
    consumer = await start()
    reading = asyncio.ensure_future(consumer.getone())
    many = asyncio.ensure_future(consumer.getmany(timeout_ms=60_000))
    await asyncio.sleep(0.05)
    await consumer.stop()
    with pytest.raises(ConsumerStoppedError):
        await reading
    assert await many == {}
    assert beats(cluster)[-1].member_epoch == -1
    assert [seen async for seen in _iterate(consumer)] == []
    await consumer.stop()


async def _iterate(consumer: AIOKafkaShareConsumer[Any, Any]) -> Any:
    try:
        async for record in consumer:
            yield record
    except ConsumerStoppedError:
        pass


@pytest.mark.parametrize("seconds", [0, 0.5])
async def test_stop_ends_in_time_without_brokers(
    cluster: FakeCluster, start: Start, seconds: float
) -> None:
    fill(cluster, 1)
    consumer = await start()
    (record,) = await take(consumer, 1)
    consumer.acknowledge(record)
    for api in (ShareAcknowledgeRequest, ShareFetchRequest, ShareGroupHeartbeatRequest):
        cluster.intercept(api, Silence())
    async with timeout(seconds + 5):
        await consumer.stop(seconds)


async def test_a_cancelled_stop_can_be_continued(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 1)
    consumer = await start()
    (record,) = await take(consumer, 1)
    consumer.acknowledge(record)
    may_answer = asyncio.Event()
    with cluster.intercept(ShareAcknowledgeRequest, Hold(may_answer)):
        stopping = asyncio.ensure_future(consumer.stop())
        await cluster.wait_for(lambda: cluster.count(ShareAcknowledgeRequest) == 1)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        may_answer.set()
        await consumer.stop()
    assert beats(cluster)[-1].member_epoch == -1
    assert await is_empty(await start())


async def test_stop_during_an_acknowledgement_waits_for_it(
    cluster: FakeCluster, start: Start
) -> None:
    fill(cluster, 1)
    consumer = await start()
    (record,) = await take(consumer, 1)
    consumer.acknowledge(record)
    await consumer.stop()
    assert await is_empty(await start())


async def test_a_changed_subscription_moves_the_assignment(
    cluster: FakeCluster, start: Start
) -> None:
    await cluster.create_topic("u", assignment={0: [1]})
    fill(cluster, 1)
    cluster.log("u").append(b"u")
    consumer = await start()
    (record,) = await take(consumer, 1)
    consumer.subscribe(["u"])
    (other,) = await take(consumer, 1)
    assert other.topic == "u"
    consumer.acknowledge(record)  # of the topic before
    consumer.acknowledge(other)
    assert set((await consumer.commit()).values()) == {None}
    assert {tp.topic for tp in consumer.assignment()} == {"u"}
    consumer.unsubscribe()
    with pytest.raises(IllegalStateError):
        await consumer.getone()
    await cluster.wait_for(lambda: beats(cluster)[-1].member_epoch == -1)


@pytest.mark.parametrize("is_narrowed", [True, False])
async def test_records_of_topics_that_were_unsubscribed_are_released(
    cluster: FakeCluster, start: Start, is_narrowed: bool
) -> None:
    await cluster.create_topic("u", assignment={0: [0]})
    consumer = await start(*(("t", "u") if is_narrowed else ("t",)))
    fill(cluster, 3)
    first = await consumer.getone()
    may_answer = asyncio.Event()
    # The coordinator has not yet revoked the partition of `t`.
    with cluster.intercept(ShareGroupHeartbeatRequest, Hold(may_answer)):
        consumer.subscribe(["u"])
        cluster.log("u").append(b"u")
        if is_narrowed:
            record = await consumer.getone()
        may_answer.set()
    if not is_narrowed:
        record = await consumer.getone()
    assert record.topic == "u"
    for each in (first, record):
        consumer.acknowledge(each)
    assert set((await consumer.commit()).values()) == {None}
    # They were acquired once, although the member had the partition for a while.
    other = await start()
    again = await take(other, 2, seconds=5)
    assert [(each.offset, each.delivery_count) for each in again] == [(1, 2), (2, 2)]
    for each in again:
        other.acknowledge(each)
    consumer.subscribe(["t"])
    fill(cluster, 1, first=3)
    await other.stop()
    assert offsets(await take(consumer, 1)) == [3]


async def test_wrong_arguments_raise_at_once(cluster: FakeCluster, start: Start) -> None:
    servers = cluster.bootstrap_servers
    options: Any
    for options in ({}, {"group_id": None}):
        with pytest.raises(TypeError, match="group_id is required"):
            AIOKafkaShareConsumer("t", bootstrap_servers=servers, **options)
    with pytest.raises(ValueError, match="group_id"):
        AIOKafkaShareConsumer("t", group_id="")
    with pytest.raises(ValueError, match="share_acknowledgement_mode"):
        AIOKafkaShareConsumer("t", group_id="g", share_acknowledgement_mode="maybe")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="auto_offset_reset"):
        AIOKafkaShareConsumer("t", group_id="g", auto_offset_reset="earliest")  # type: ignore[call-arg]
    consumer = AIOKafkaShareConsumer("t", bootstrap_servers=servers, group_id="g")
    with pytest.raises(IllegalStateError, match="not started"):
        await consumer.getone()
    with pytest.raises(ValueError, match="topics"):
        consumer.subscribe([])
    with pytest.raises(TypeError, match="list of strings"):
        consumer.subscribe("t")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="callback"):
        consumer.set_acknowledgement_commit_callback(1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="concurrency"):
        await consumer.process(print, concurrency=0)
    with pytest.raises(TypeError, match="concurrency='5': must be an integer of at least 1"):
        await consumer.process(print, concurrency="5")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="retry: must be a RetryTopics, not int"):
        await consumer.process(print, retry=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="handler"):
        await consumer.process(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout"):
        await consumer.stop(-1)
    started = await start()
    with pytest.raises(ValueError, match="max_records"):
        await started.getmany(max_records=0)
    with pytest.raises(TypeError, match="timeout_ms=None: must be a number of milliseconds"):
        await started.getmany(timeout_ms=None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timeout_ms"):
        await started.getmany(timeout_ms=float("nan"))
    with pytest.raises(IllegalStateError, match="started before"):
        await started.start()


async def test_a_member_survives_a_long_outage_of_the_coordinator(
    cluster: FakeCluster, start: Start
) -> None:
    consumer = await start(request_timeout_ms=1000)
    with (
        cluster.intercept(ShareGroupHeartbeatRequest, Fail(NotCoordinatorForGroupError)),
        cluster.intercept(FindCoordinatorRequest, Fail(GroupCoordinatorNotAvailableError)),
    ):
        await asyncio.sleep(10)
        assert consumer.health().state == "unreachable"
    fill(cluster, 1)
    assert offsets(await take(consumer, 1)) == [0]
    await cluster.wait_for(lambda: consumer.health().state == "running")


async def test_a_member_survives_errors_without_a_name(cluster: FakeCluster, start: Start) -> None:
    consumer = await start()
    cluster.intercept(ShareGroupHeartbeatRequest, Fail(UnknownError), times=3)
    await cluster.wait_for(lambda: cluster.count(ShareGroupHeartbeatRequest) >= 6)
    assert consumer.health().state == "running"


async def test_a_rejected_member_wakes_readers_at_once(cluster: FakeCluster, start: Start) -> None:
    consumer = await start()
    may_answer = asyncio.Event()
    with cluster.intercept(ShareFetchRequest, Hold(may_answer)):
        reading = asyncio.ensure_future(consumer.getone())
        await cluster.wait_for(lambda: cluster.count(ShareFetchRequest) == 1)
        cluster.intercept(ShareGroupHeartbeatRequest, Fail(GroupAuthorizationFailedError), times=1)
        async with timeout(5):
            with pytest.raises(GroupAuthorizationFailedError):
                await reading
        may_answer.set()


async def test_start_raises_the_failure_of_a_background_task(
    cluster: FakeCluster, start: Start
) -> None:
    with cluster.intercept(ShareGroupHeartbeatRequest, Fail(GroupLoadInProgressError)):
        starting = asyncio.ensure_future(start())
        await cluster.wait_for(lambda: cluster.count(ShareGroupHeartbeatRequest) > 1)
        (task,) = [t for t in asyncio.all_tasks() if t.get_name().endswith("share-fetcher")]
        task.cancel()
        async with timeout(5):
            with pytest.raises(KafkaError, match="was cancelled from outside"):
                await starting
