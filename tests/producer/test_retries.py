"""Faults on the way: nothing is lost, nothing is doubled, nothing is reordered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka._compat import timeout
from aiokafka.errors import (
    DuplicateSequenceNumber,
    InvalidRecord,
    InvalidTopicError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderForPartitionError,
    OutOfOrderSequenceNumber,
    TopicAuthorizationFailedError,
    UnknownProducerId,
    UnsupportedForMessageFormatError,
)
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokafka.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    InitProducerIdRequest,
    ProduceRequest,
    ProduceResponse,
)
from aiokafka.record.batch import iter_batches
from aiokafka.testing import Cut, Delay, Edit, Fail, FakeCluster, Hold, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer, numbers, results, send_all, values

LOST = [
    pytest.param(Cut(), id="cut before the write"),
    pytest.param(Cut(handled=True), id="cut after the write"),
    pytest.param(Fail(NotLeaderForPartitionError), id="not the leader"),
    pytest.param(Fail(NotEnoughReplicasError), id="too few replicas"),
    pytest.param(Delay(0.02, Cut(handled=True)), id="late cut after the write"),
]

UNANSWERED = [
    pytest.param(Cut(handled=True), id="cut after the write"),
    pytest.param(Edit(lambda response: _refuse_all(response)), id="too few replicas have it"),
]


def _refuse_all(response: ProduceResponse) -> None:
    """Replicas were missing after the leader had written."""
    for topic in response.responses:
        for part in topic.partition_responses:
            part.error_code = NotEnoughReplicasAfterAppendError.errno
            part.base_offset = -1


def every_third(action: Any) -> Any:
    """A handler that answers every third request with `action`."""
    count = 0

    def handler(request: ProduceRequest, context: object) -> Any:
        nonlocal count
        count += 1
        return action if count % 3 == 0 else None

    return handler


@pytest.mark.parametrize("fault", LOST)
async def test_exactly_once_in_order(cluster: FakeCluster, fault: Any) -> None:
    payloads = numbers(2000)
    with cluster.intercept(ProduceRequest, every_third(fault)) as faults:
        async with new_producer(cluster, max_batch_size=400) as producer:
            found = await results(await send_all(producer, payloads))
    assert faults.hits > 6
    assert values(cluster) == payloads
    assert [getattr(one, "offset", one) for one in found] == list(range(2000))


@pytest.mark.parametrize("fault", LOST)
async def test_without_idempotence_order_is_kept(cluster: FakeCluster, fault: Any) -> None:
    payloads = numbers(1000)
    with cluster.intercept(ProduceRequest, every_third(fault)):
        async with new_producer(cluster, max_batch_size=400, acks=1) as producer:
            await results(await send_all(producer, payloads))
    # A batch whose response was lost is there twice, but never first behind a later one.
    assert list(dict.fromkeys(values(cluster))) == payloads


@pytest.mark.parametrize("fault", LOST)
async def test_many_partitions_with_faults(cluster: FakeCluster, fault: Any) -> None:
    with cluster.intercept(ProduceRequest, every_third(fault)):
        async with new_producer(cluster, max_batch_size=300) as producer:
            for number in range(1500):
                await producer.send(TOPIC, b"%d" % number, partition=number % 3)
    for partition in range(3):
        assert values(cluster, partition) == [b"%d" % n for n in range(partition, 1500, 3)]


async def test_request_timeout_is_retried(cluster: FakeCluster) -> None:
    payloads = numbers(100)
    cluster.intercept(ProduceRequest, Silence(handled=True), times=1)
    async with new_producer(cluster, request_timeout_ms=100) as producer:
        await results(await send_all(producer, payloads))
    assert values(cluster) == payloads


async def test_leader_moves(three: FakeCluster) -> None:
    payloads = numbers(3000)
    async with new_producer(three, max_batch_size=400) as producer:
        futures = []
        for number, payload in enumerate(payloads):
            futures.append(await producer.send(TOPIC, payload, partition=0))
            if number % 500 == 0:
                await futures[-1]
                three.move_leader((TOPIC, 0), number // 500 % 3)
        found = await asyncio.gather(*futures)
    assert values(three) == payloads
    assert [metadata.offset for metadata in found] == list(range(3000))


async def test_new_leader_is_taken_from_the_answer(three: FakeCluster) -> None:
    # A pause before the retry would outlast the record.
    options = {
        "retry_backoff_ms": 60_000,
        "request_timeout_ms": 5000,
        "delivery_timeout_ms": 10_000,
    }
    async with new_producer(three, **options) as producer:
        await producer.send_and_wait(TOPIC, b"1", partition=0)
        with three.intercept(MetadataRequest, Silence()):
            three.move_leader((TOPIC, 0), 1)
            await producer.send_and_wait(TOPIC, b"2", partition=0)
    assert values(three) == [b"1", b"2"]


@pytest.mark.parametrize("release", ["0.11", "2.8", "4.3"])
@pytest.mark.parametrize("stops", [False, True])
def test_a_new_leader_in_the_metadata_ends_the_pause(release: str, stops: bool) -> None:
    """The record would be late else."""
    pauses = {"retry_backoff_ms": 20_000, "retry_backoff_max_ms": 60_000}

    async def main(_: Simulation) -> None:
        async with FakeCluster(brokers=3, as_version=release) as cluster:
            await cluster.create_topic(TOPIC, assignment={0: [0, 1, 2]})
            limits = {"request_timeout_ms": 5000, "delivery_timeout_ms": 10_000}
            async with new_producer(cluster, **limits, **pauses) as producer:
                await producer.send_and_wait(TOPIC, b"1", partition=0)
                await asyncio.sleep(100)  # the next refresh need not wait
                if stops:
                    await cluster.stop_broker(0)
                else:
                    cluster.move_leader((TOPIC, 0), 1)
                await producer.send_and_wait(TOPIC, b"2", partition=0)
            assert values(cluster) == [b"1", b"2"]

    simulate(main)


async def test_brokers_stop_and_start(three: FakeCluster) -> None:
    payloads = numbers(3000)
    async with new_producer(three, max_batch_size=400) as producer:
        futures = []
        for number, payload in enumerate(payloads):
            futures.append(await producer.send(TOPIC, payload, partition=0))
            if number % 1000 == 400:
                await three.stop_broker(number // 1000)
            elif number % 1000 == 800:
                await three.start_broker(number // 1000)
        found = await asyncio.gather(*futures)
    assert values(three) == payloads
    assert [metadata.offset for metadata in found] == list(range(3000))


async def test_a_partition_without_leader_waits_for_one(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, b"1", partition=0)
        await cluster.stop_broker(0)
        future = await producer.send(TOPIC, b"2", partition=0)
        await asyncio.sleep(0.05)
        assert not future.done()
        await cluster.start_broker(0)
        await future
    assert values(cluster) == [b"1", b"2"]


# -- sequences


async def test_state_lost_by_the_broker_costs_an_epoch(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, b"1", partition=0)
        cluster.intercept(ProduceRequest, Fail(UnknownProducerId), times=1)
        await producer.send_and_wait(TOPIC, b"2", partition=0)
        cluster.intercept(ProduceRequest, Fail(OutOfOrderSequenceNumber), times=1)
        await producer.send_and_wait(TOPIC, b"3", partition=0)
        await producer.send_and_wait(TOPIC, b"4", partition=0)
    assert values(cluster) == numbers(5)[1:]
    batches = cluster.log(TOPIC, 0).batches
    assert [(batch.producer_epoch, batch.base_sequence) for batch in batches] == [
        (0, 0),
        (1, 0),
        (2, 0),
        (2, 1),
    ]
    assert cluster.count(InitProducerIdRequest) == 1


async def test_log_truncated_under_a_producer(cluster: FakeCluster) -> None:
    """An unclean election takes acknowledged records away; the producer goes on."""
    async with new_producer(cluster) as producer:
        for payload in numbers(6):
            await producer.send_and_wait(TOPIC, payload, partition=0)
        cluster.log(TOPIC, 0).truncate(3)
        for payload in (b"a", b"b"):
            await producer.send_and_wait(TOPIC, payload, partition=0)
    assert values(cluster) == [b"0", b"1", b"2", b"a", b"b"]


async def test_after_a_refused_batch_the_partition_goes_on(cluster: FakeCluster) -> None:
    async with new_producer(cluster, max_batch_size=200) as producer:
        await producer.send_and_wait(TOPIC, b"first", partition=0)
        cluster.intercept(ProduceRequest, Fail(UnsupportedForMessageFormatError), times=1)
        futures = await send_all(producer, [b"x" * 80] * 20)
        found = await results(futures)
    failed = [one for one in found if isinstance(one, BaseException)]
    assert 0 < len(failed) < 20
    assert all(isinstance(one, UnsupportedForMessageFormatError) for one in failed)
    assert f"{TOPIC}-0" in str(failed[0])
    assert len(values(cluster)) == 21 - len(failed)
    assert len({id(one) for one in failed}) == len(failed)


async def test_an_expired_batch_does_not_stop_those_behind_it(cluster: FakeCluster) -> None:
    options = {"delivery_timeout_ms": 1500, "request_timeout_ms": 1000, "max_batch_size": 200}
    async with new_producer(cluster, **options) as producer:
        await producer.send_and_wait(TOPIC, b"first", partition=0)
        with cluster.intercept(ProduceRequest, Cut()):
            lost = await send_all(producer, [b"x" * 80] * 10)
            failures = await results(lost)
        await results(await send_all(producer, numbers(50)))
    assert all(isinstance(one, KafkaTimeoutError) for one in failures)
    assert values(cluster) == [b"first", *numbers(50)]


def test_an_expired_batch_that_was_written() -> None:
    async def main(simulation: Simulation) -> None:
        options = {"delivery_timeout_ms": 700, "request_timeout_ms": 500}
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            async with new_producer(cluster, **options) as producer:
                with cluster.intercept(ProduceRequest, Cut(handled=True)):
                    (failure,) = await results(await send_all(producer, [b"written"]))
                await results(await send_all(producer, numbers(50)))
            assert isinstance(failure, KafkaTimeoutError)
            assert "may have been written" in str(failure)
            assert values(cluster) == [b"written", *numbers(50)]

    simulate(main)


# -- too large


async def test_a_batch_too_large_is_split() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic(TOPIC, config={"max.message.bytes": 2000})
        payloads = [b"%04d" % number * 20 for number in range(500)]
        async with new_producer(cluster, max_batch_size=16_000) as producer:
            found = await results(await send_all(producer, payloads))
        assert values(cluster) == payloads
        assert [getattr(one, "offset", one) for one in found] == list(range(500))
        assert max(len(batch.data) for batch in cluster.log(TOPIC).batches) <= 2000


async def test_a_compressed_batch_too_large_is_split() -> None:
    import random

    async with FakeCluster() as cluster:
        await cluster.create_topic(TOPIC, config={"max.message.bytes": 4000})
        easy = [b"x" * 100] * 2000
        hard = [random.randbytes(100) for _ in range(2000)]
        async with new_producer(
            cluster, max_batch_size=4000, compression_type="gzip", linger_ms=5
        ) as producer:
            await results(await send_all(producer, easy))
            found = await results(await send_all(producer, hard))
        assert values(cluster) == easy + hard
        assert not [one for one in found if isinstance(one, BaseException)]


@pytest.mark.parametrize("codec", ["gzip", None])
@pytest.mark.parametrize("fault", UNANSWERED)
async def test_a_batch_is_as_large_when_it_is_sent_again(
    cluster: FakeCluster, fault: Any, codec: str | None
) -> None:
    """What counts is its size on the wire; before compression it may exceed a whole request.

    Were it split, the leader would not know the parts for what it has written.
    """
    payloads = [b"%06d" % number + b"x" * 400 for number in range(4000)]
    options = {
        "max_batch_size": 16_000,
        "max_request_size": 20_000,
        "compression_type": codec,
    }
    with cluster.intercept(ProduceRequest, every_third(fault)) as faults:
        async with new_producer(cluster, **options) as producer:
            found = await results(await send_all(producer, payloads))
    assert faults.hits > 6
    assert values(cluster) == payloads
    assert [getattr(one, "offset", one) for one in found] == list(range(len(payloads)))
    if codec:
        largest = max(batch.record_count for batch in cluster.log(TOPIC, 0).batches)
        assert largest * 400 > 20_000, "no batch was larger than a request before compression"


async def test_a_batch_refused_for_its_size_after_it_was_written(cluster: FakeCluster) -> None:
    """The topic's limit may become smaller between two attempts; nothing is written twice."""
    payloads = numbers(50)
    async with new_producer(cluster, linger_ms=20) as producer:
        await producer.send_and_wait(TOPIC, b"first", partition=0)
        cluster.intercept(ProduceRequest, Cut(handled=True), times=1)
        cluster.intercept(ProduceRequest, Fail(MessageSizeTooLargeError), times=1)
        found = await results(await send_all(producer, payloads))
        await producer.send_and_wait(TOPIC, b"last", partition=0)
    assert values(cluster) == [b"first", *payloads, b"last"]
    assert all(isinstance(one, MessageSizeTooLargeError) for one in found)
    assert all("may have been written" in str(one) for one in found)


async def test_a_batch_refused_for_its_size_after_it_was_lost(cluster: FakeCluster) -> None:
    payloads = numbers(50)
    async with new_producer(cluster, linger_ms=20) as producer:
        await producer.send_and_wait(TOPIC, b"first", partition=0)
        cluster.intercept(ProduceRequest, Cut(), times=1)
        cluster.intercept(ProduceRequest, Fail(MessageSizeTooLargeError), times=1)
        found = await results(await send_all(producer, payloads))
    assert values(cluster) == [b"first", *payloads]
    assert [getattr(one, "offset", one) for one in found] == list(range(1, 51))


async def test_a_record_too_large_fails_alone() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic(TOPIC, config={"max.message.bytes": 2000})
        async with new_producer(cluster, max_batch_size=16_000) as producer:
            futures = await send_all(producer, [b"a", b"x" * 3000, b"b"])
            found = await results(futures)
            assert isinstance(found[1], MessageSizeTooLargeError)
            await producer.send_and_wait(TOPIC, b"c", partition=0)
        assert values(cluster) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("is_sent_again", [False, True])
async def test_a_duplicate_that_was_sent_once_is_told(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, is_sent_again: bool
) -> None:
    """Written it is, by whatever producer; a retry is the usual reason, and nothing to tell."""
    if is_sent_again:
        cluster.intercept(ProduceRequest, Cut(), times=1)
    cluster.intercept(ProduceRequest, Fail(DuplicateSequenceNumber), times=1)
    async with new_producer(cluster) as producer:
        metadata = await producer.send_and_wait(TOPIC, b"v", partition=0)
    assert metadata.offset == -1
    told = [
        record for record in caplog.records if "its leader reports a duplicate" in record.message
    ]
    assert len(told) == (0 if is_sent_again else 1)


# -- errors for records


def blame(number: int) -> Any:
    """Answer that the broker takes no batch with such a record in its place `number`."""

    def answer(request: ProduceRequest, context: Any) -> ProduceResponse:
        from aiokafka.testing.handlers.produce import refuse_produce

        response = refuse_produce(context, request, InvalidRecord.errno)
        (part,) = response.responses[0].partition_responses
        part.record_errors = [
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message="no key")
        ]
        return response

    return answer


async def test_records_that_the_broker_blames(cluster: FakeCluster) -> None:
    cluster.intercept(ProduceRequest, blame(1), times=1)
    async with new_producer(cluster) as producer:
        found = await results(await send_all(producer, numbers(3)))
        await producer.send_and_wait(TOPIC, b"good", partition=0)
    assert all(isinstance(one, InvalidRecord) for one in found)
    assert "no key" in str(found[1])
    assert "other records" in str(found[0])
    assert values(cluster) == [b"good"]


async def test_blamed_records_behind_those_of_a_batch_that_was_left_open(
    cluster: FakeCluster,
) -> None:
    """The broker counts from the first record of the batch, those of the user included."""
    cluster.intercept(ProduceRequest, blame(3), times=1)
    async with new_producer(cluster, linger_ms=50) as producer:
        batch = producer.create_batch()
        for value in numbers(2):
            batch.append(key=None, value=value, timestamp=None)
        whole = await producer.send_batch(batch, TOPIC, partition=0)
        behind = await send_all(producer, [b"good", b"bad", b"good"])
        awaited = asyncio.create_task(producer.send_and_wait(TOPIC, b"good", partition=0))
        found = await results([whole, *behind])
        found += await asyncio.gather(awaited, return_exceptions=True)
    assert ["no key" in str(one) for one in found] == [False, False, True, False, False]
    assert all(isinstance(one, InvalidRecord) for one in found)


async def test_an_unauthorized_topic_fails_at_once(cluster: FakeCluster) -> None:
    with cluster.intercept(ProduceRequest, Fail(TopicAuthorizationFailedError)):
        async with new_producer(cluster) as producer:
            with pytest.raises(TopicAuthorizationFailedError, match=f"{TOPIC}-0"):
                await producer.send_and_wait(TOPIC, b"v", partition=0)


async def test_invalid_topic_name_fails_at_once(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        with pytest.raises(InvalidTopicError):
            await producer.send("no/such", b"v")


# -- without idempotence


async def test_a_broker_without_idempotence_serves_plainly() -> None:
    async with FakeCluster(as_version="0.10.2") as cluster:
        await cluster.create_topic(TOPIC)
        async with new_producer(cluster) as producer:
            await producer.send_and_wait(TOPIC, b"v")
        assert values(cluster) == [b"v"]


async def test_producer_id_is_asked_for_again(cluster: FakeCluster) -> None:
    from aiokafka.errors import CoordinatorLoadInProgressError

    cluster.intercept(InitProducerIdRequest, Fail(CoordinatorLoadInProgressError), times=2)
    cluster.intercept(InitProducerIdRequest, Cut(), times=1)
    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, b"v")
    assert cluster.count(InitProducerIdRequest) == 4


async def test_throttling_is_obeyed_and_survived(cluster: FakeCluster) -> None:
    """What comes while the broker wants silence leaves afterwards, together."""
    payloads = numbers(11)
    async with new_producer(cluster) as producer:
        cluster.throttle(600)
        await producer.send_and_wait(TOPIC, payloads[0], partition=0)
        cluster.throttle(0)
        futures = []
        for payload in payloads[1:]:
            futures += await send_all(producer, [payload])
            await asyncio.sleep(0.002)
        await results(futures)
    assert cluster.count(ProduceRequest) <= 3  # one by one, or five in flight, are more
    assert values(cluster) == payloads


async def test_what_waits_for_an_answer_waits_out_the_throttling(cluster: FakeCluster) -> None:
    release = asyncio.Event()
    async with new_producer(cluster, max_in_flight_requests_per_connection=1) as producer:
        for partition in range(3):
            await producer.send_and_wait(TOPIC, b"first", partition=partition)
        cluster.forget_requests()
        cluster.throttle(600)
        with cluster.intercept(ProduceRequest, Hold(release), times=1) as held:
            futures = await send_all(producer, [b"1"], 0)
            await held.wait()
            futures += await send_all(producer, [b"1"], 1)
            release.set()
            await futures[0]
        cluster.throttle(0)
        futures += await send_all(producer, [b"1"], 2)
        await results(futures)
    # What came after the response left together with what had waited for it.
    assert cluster.count(ProduceRequest) == 2


async def test_an_answer_that_lacks_a_partition(cluster: FakeCluster) -> None:
    def drop(response: ProduceResponse) -> ProduceResponse:
        response.responses = []
        return response

    cluster.intercept(ProduceRequest, Edit(drop), times=1)
    async with new_producer(cluster) as producer:
        assert (await producer.send_and_wait(TOPIC, b"v", partition=0)).offset == 0
    assert values(cluster) == [b"v"]


async def test_a_held_broker_does_not_hold_up_the_others() -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic(TOPIC, assignment={0: (0,), 1: (1,)})
        release = asyncio.Event()
        cluster.intercept(ProduceRequest, Hold(release), broker=0)
        async with new_producer(cluster) as producer:
            held = await producer.send(TOPIC, b"held", partition=0)
            for payload in numbers(20):
                await producer.send_and_wait(TOPIC, payload, partition=1)
            assert not held.done()
            release.set()
            await held


async def test_a_batch_comes_back_after_its_leader_went_and_came() -> None:
    """The error is no reason to ask for metadata, and nothing else is about to."""

    def forget_leaders(response: MetadataResponse) -> None:
        for topic in response.topics:
            for partition in topic.partitions:
                partition.leader_id = -1

    # The other broker gives metadata meanwhile.
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic(TOPIC, assignment={0: (0,), 1: (1,)})
        async with new_producer(cluster) as producer:
            for partition in (0, 1):
                await producer.send_and_wait(TOPIC, b"first", partition=partition)
            release = asyncio.Event()
            refusal = Hold(release, Fail(NotEnoughReplicasError))
            with cluster.intercept(ProduceRequest, refusal, times=1) as held:
                refused = await producer.send(TOPIC, b"second", partition=0)
                await held.wait()
                with cluster.intercept(MetadataRequest, Edit(forget_leaders)):
                    assert await producer.client.force_metadata_update()
                assert await producer.client.force_metadata_update()
                release.set()
                async with timeout(5):
                    await refused
        assert values(cluster) == [b"first", b"second"]


async def test_batches_go_out_as_numbered(cluster: FakeCluster) -> None:
    async with new_producer(cluster, max_batch_size=200) as producer:
        await results(await send_all(producer, [b"x" * 80] * 60))
    sent = [
        batch
        for seen in cluster.requests(ProduceRequest)
        for part in seen.request.topic_data[0].partition_data
        for batch in iter_batches(part.records)
    ]
    following = 0
    for batch in sent:
        assert batch.base_sequence == following
        following += batch.record_count


@pytest.mark.parametrize("attempt", [Fail(NotEnoughReplicasError), Cut()])
def test_an_expired_batch_says_whether_it_may_have_been_written(attempt: Any) -> None:
    async def main(simulation: Simulation) -> None:
        options = {"delivery_timeout_ms": 700, "request_timeout_ms": 500}
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            async with new_producer(cluster, **options) as producer:
                with cluster.intercept(ProduceRequest, attempt):
                    (failure,) = await results(await send_all(producer, [b"value"]))
            assert isinstance(failure, KafkaTimeoutError)
            is_refused = isinstance(attempt, Fail)
            assert ("it may have been written" in str(failure)) is not is_refused
            assert ("it was not written" in str(failure)) is is_refused

    simulate(main)
