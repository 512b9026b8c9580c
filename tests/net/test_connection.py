"""BrokerConnection: futures in, answers out, and every future ends."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack
from typing import Any

import pytest

from aiokafka.errors import (
    KafkaConnectionError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages import (
    FetchRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    ProduceRequest,
)
from aiokafka.protocol.messages.metadata import MetadataRequestTopic
from aiokafka.protocol.messages.produce import PartitionProduceData, TopicProduceData
from aiokafka.record.batch import RecordBatchBuilder
from aiokafka.testing import Cut, FakeCluster, Hold, Silence
from tests.net.support import connected, now


def metadata_request() -> MetadataRequest:
    return MetadataRequest(topics=[])


def other_request() -> FindCoordinatorRequest:
    return FindCoordinatorRequest(coordinator_keys=["group"])


async def test_requests_are_pipelined_and_answered_in_order() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        futures = [connection.send_nowait(metadata_request()) for _ in range(100)]
        assert connection.in_flight == 100
        answers = await asyncio.gather(*futures)
        assert all(answer.brokers[0].node_id == 0 for answer in answers)
        assert connection.in_flight == 0


async def test_an_answer_larger_than_every_buffer_arrives() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        names = [f"topic-{'x' * 200}-{i}" for i in range(3000)]
        for name in names[:3]:
            await cluster.create_topic(name, partitions=2)
        topics = [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        answer = await connection.request(request)
        assert {topic.name for topic in answer.topics} == set(names)


async def test_a_cancelled_request_keeps_its_slot() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        release = asyncio.Event()
        cluster.intercept(MetadataRequest, Hold(release), times=1)
        first = asyncio.ensure_future(connection.request(metadata_request()))
        second = asyncio.ensure_future(connection.request(other_request()))
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert connection.in_flight == 2
        release.set()
        await second
        assert connection.is_open
        assert connection.in_flight == 0


async def test_a_request_out_of_time_closes_the_connection() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        cluster.intercept(MetadataRequest, Silence())
        late = connection.send_nowait(metadata_request(), timeout=0.05)
        neighbours = [connection.send_nowait(metadata_request(), timeout=30) for _ in range(2)]
        with pytest.raises(RequestTimedOutError, match=r"MetadataRequest v\d+"):
            await late
        assert not connection.is_open
        errors = await asyncio.gather(*neighbours, return_exceptions=True)
        assert [type(error) for error in errors] == [KafkaConnectionError] * 2
        assert errors[0] is not errors[1]
        with pytest.raises(KafkaConnectionError, match="got no response in time"):
            connection.send_nowait(metadata_request())


async def test_a_cancelled_request_that_is_never_answered_closes_the_connection_too() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        cluster.intercept(MetadataRequest, Silence(), times=1)
        connection.send_nowait(metadata_request(), timeout=0.05).cancel()
        await connection.closed
        assert not connection.is_open


async def test_a_short_deadline_behind_a_long_one_is_kept() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        cluster.intercept(MetadataRequest, Silence())
        long = connection.send_nowait(metadata_request(), timeout=30)
        short = connection.send_nowait(metadata_request(), timeout=0.05)
        with pytest.raises(RequestTimedOutError):
            await short
        with pytest.raises(KafkaConnectionError):
            await long


async def test_a_deadline_that_was_met_does_not_fire_later() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        release = asyncio.Event()
        cluster.intercept(MetadataRequest, Hold(release), times=1)
        quick = connection.send_nowait(other_request(), timeout=1)
        slow = connection.send_nowait(metadata_request(), timeout=30)
        await quick
        await asyncio.sleep(1.1)
        assert not slow.done()
        release.set()
        await slow
        assert connection.is_open


async def test_a_close_fails_every_request_with_an_error_of_its_own() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        cluster.intercept(MetadataRequest, Cut(), times=1)
        futures = [connection.send_nowait(metadata_request()) for _ in range(3)]
        errors = await asyncio.gather(*futures, return_exceptions=True)
        assert len({id(error) for error in errors}) == 3
        assert all(isinstance(error, KafkaConnectionError) for error in errors)
        assert all(cluster.bootstrap_servers in str(error) for error in errors)


async def test_close_fails_what_is_in_flight_at_once() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        cluster.intercept(MetadataRequest, Silence())
        future = connection.send_nowait(metadata_request())
        connection.close()
        connection.close()
        with pytest.raises(KafkaConnectionError, match="closed by this client"):
            await future
        with pytest.raises(KafkaConnectionError, match="closed by this client"):
            await connection.request(metadata_request())


async def test_a_request_without_an_answer_ends_at_once() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        request = ProduceRequest(acks=0, timeout_ms=1000, topic_data=[])
        future = connection.send_nowait(request)
        assert future.done()
        assert future.result() is None
        assert connection.in_flight == 0
        await connection.request(metadata_request())
        assert cluster.count(ProduceRequest) == 1


async def test_a_request_that_cannot_be_encoded_changes_nothing() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        with pytest.raises(Exception, match=r"int|range|acks") as error:
            connection.send_nowait(ProduceRequest(acks=10**9, timeout_ms=1, topic_data=[]))
        assert not isinstance(error.value, KafkaConnectionError)
        assert connection.in_flight == 0
        assert (await connection.request(metadata_request())).brokers


async def test_versions_are_those_of_the_broker() -> None:
    async with FakeCluster(as_version="0.11") as cluster:
        async with connected(cluster.bootstrap_servers) as connection:
            assert connection.pick(MetadataRequest) == 4
            assert connection.pick(MetadataRequest, 2) == 2
            assert connection.pick(MetadataRequest) == 4
            assert connection.pick(FetchRequest) == 5
            await connection.request(metadata_request())
            refused = (
                rf"{re.escape(connection.peer)}: no common version of MetadataRequest.* 0 to 4"
            )
            with pytest.raises(UnsupportedVersionError, match=refused):
                connection.pick(MetadataRequest, -1)


async def test_a_throttled_connection_is_not_ready_until_it_is_over() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        cluster.throttle(1000)
        sent = now()
        await connection.request(metadata_request())
        assert not connection.is_ready
        cluster.throttle(0)
        # The timeout begins when the throttling is over.
        await connection.request(metadata_request(), timeout=0.9)
        # The broker's second began after the request had been sent.
        assert now() - sent >= 1
        assert connection.is_ready


async def test_a_request_sent_before_the_throttling_is_not_timed_out_by_it() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        cluster.throttle(300)
        first = connection.send_nowait(metadata_request(), timeout=0.1)
        second = connection.send_nowait(metadata_request(), timeout=0.1)
        await asyncio.gather(first, second)
        assert connection.is_open


async def test_a_throttling_that_is_over_extends_nothing() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        cluster.throttle(20)
        await connection.request(metadata_request())
        cluster.throttle(0)
        await connection.request(metadata_request())
        cluster.intercept(MetadataRequest, Silence())
        with pytest.raises(RequestTimedOutError):
            await connection.request(metadata_request(), timeout=0.05)


async def test_brokers_before_2_0_have_waited_already() -> None:
    async with FakeCluster(as_version="1.1") as cluster:
        async with connected(cluster.bootstrap_servers) as connection:
            cluster.throttle(100)
            assert (await connection.request(metadata_request())).throttle_time_ms == 100
            assert connection.is_ready


async def test_a_full_write_buffer_makes_it_unready_and_requests_wait() -> None:
    async with FakeCluster(proxied=True) as cluster:
        async with connected(cluster.bootstrap_servers) as connection:
            cluster.proxies[0].stall("requests")
            name = "x" * 200
            big = MetadataRequest(
                topics=[MetadataRequestTopic(name=name)] * 20_000,
                allow_auto_topic_creation=False,
            )
            # More than the proxy and the kernel can hold.
            futures = [connection.send_nowait(big) for _ in range(8)]
            assert not connection.is_ready
            waiting = asyncio.ensure_future(connection.request(other_request()))
            with pytest.raises(RequestTimedOutError, match="write buffer is full"):
                await connection.request(other_request(), timeout=0.05)
            assert not waiting.done()
            connection.abort()
            results = await asyncio.gather(*futures, waiting, return_exceptions=True)
            assert {type(result) for result in results} == {KafkaConnectionError}


async def test_a_close_wakes_those_who_wait_out_the_throttling() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        cluster.throttle(60_000)
        await connection.request(metadata_request())
        waiting = asyncio.ensure_future(connection.request(metadata_request()))
        await asyncio.sleep(0)
        connection.close()
        with pytest.raises(KafkaConnectionError, match="closed by this client"):
            await waiting


async def test_a_large_payload_passes_in_pieces() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("topic", config={"max.message.bytes": "9000000"})
        async with connected(cluster.bootstrap_servers) as connection:
            builder = RecordBatchBuilder(size_limit=8_000_000)
            value = bytes(range(256)) * 16_384
            builder.append(0, None, value, ())
            data = PartitionProduceData(index=0, records=builder.build())
            topic = TopicProduceData(name="topic", partition_data=[data])
            request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[topic])
            version = connection.pick(ProduceRequest, 12)
            answer = await connection.request(request, version=version)
            assert answer.responses[0].partition_responses[0].error_code == 0
        assert [record.value for record in cluster.log("topic").records()] == [value]


async def test_what_goes_wrong_while_reading_ends_every_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        cluster.intercept(MetadataRequest, Silence())
        waits = [connection.send_nowait(metadata_request()) for _ in range(3)]
        # More bytes than there was room for: no transport does that.
        connection.buffer_updated(10**9)
        results = await asyncio.gather(*waits, return_exceptions=True)
        assert all(isinstance(error, KafkaConnectionError) for error in results)
        assert all("unexpected ValueError" in str(error) for error in results)
        assert not connection.is_open
    assert "unexpected error while reading" in caplog.text
    connection.buffer_updated(1)


async def test_a_response_is_handled_before_any_task_goes_on() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        order: list[str] = []

        async def ask(name: str) -> None:
            answer = await connection.request(
                metadata_request(), on_response=lambda _: order.append(f"{name} read")
            )
            assert answer.brokers[0].node_id == 0
            order.append(name)

        await asyncio.gather(ask("first"), ask("second"))
        assert order.index("first read") < order.index("first")
        assert order.index("second read") < order.index("second")
        assert order.index("first read") < order.index("second read")


async def test_what_handling_a_response_raises_is_raised_by_the_call() -> None:
    def refuse(_: object) -> None:
        raise LookupError("not that")

    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        refused = connection.send_nowait(metadata_request(), on_response=refuse)
        other = connection.send_nowait(other_request())
        with pytest.raises(LookupError, match="not that"):
            await refused
        assert await other
        assert connection.is_open


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interruption_while_a_response_is_read_ends_every_wait(
    kind: type[BaseException],
) -> None:
    """Run a loop of our own: what interrupts leaves the loop, which then goes on."""

    def interrupt(_: object) -> None:
        raise kind

    async def ask() -> list[asyncio.Future[Any]]:
        cluster = await stack.enter_async_context(FakeCluster())
        connection = await stack.enter_async_context(connected(cluster.bootstrap_servers))
        first = connection.send_nowait(metadata_request(), on_response=interrupt)
        return [first, connection.send_nowait(metadata_request())]

    loop = asyncio.new_event_loop()
    stack = AsyncExitStack()
    try:
        waits = loop.run_until_complete(ask())
        with pytest.raises(kind):
            loop.run_until_complete(waits[0])
        for wait in waits:
            with pytest.raises(KafkaConnectionError, match=kind.__name__):
                loop.run_until_complete(wait)
        loop.run_until_complete(stack.aclose())
    finally:
        loop.close()


async def test_the_response_to_a_cancelled_request_is_not_handled() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        release = asyncio.Event()
        cluster.intercept(MetadataRequest, Hold(release), times=1)
        handled: list[object] = []
        request = connection.request(metadata_request(), on_response=handled.append)
        first = asyncio.ensure_future(request)
        second = asyncio.ensure_future(connection.request(other_request()))
        await asyncio.sleep(0)
        first.cancel()
        release.set()
        assert await second
        assert first.cancelled()
        assert not handled


async def test_a_response_that_never_comes_is_not_handled() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        cluster.intercept(MetadataRequest, Silence(), times=1)
        handled: list[object] = []
        future = connection.send_nowait(metadata_request(), on_response=handled.append)
        connection.close()
        with pytest.raises(KafkaConnectionError):
            await future
        assert not handled


async def test_handling_a_response_may_end_the_call_or_the_connection() -> None:
    async with FakeCluster() as cluster, connected(cluster.bootstrap_servers) as connection:
        calls: list[asyncio.Task[object]] = []
        calls.append(
            asyncio.create_task(
                connection.request(metadata_request(), on_response=lambda _: end(calls[0]))
            )
        )

        def end(call: asyncio.Task[object]) -> None:
            call.cancel()
            connection.close()

        with pytest.raises(asyncio.CancelledError):
            await calls[0]
        assert not connection.is_open
