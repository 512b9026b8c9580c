"""Traces: from a producer through the broker to what a consumer does with its records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.semconv._incubating.attributes import messaging_attributes
from opentelemetry.trace import SpanKind, StatusCode

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition, TransactionalSession
from aiokafka.errors import MessageSizeTooLargeError, UnknownTopicOrPartitionError
from aiokafka.interceptors import ProducerInterceptor, ProducerRecord
from aiokafka.otel import ConsumerTelemetry, ProducerTelemetry
from aiokafka.otel import _names as names
from aiokafka.parallel import ParallelConsumer
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import Fail, FakeCluster
from tests.support.consumers import Start
from tests.support.producers import TOPIC, new_producer, transactional
from tests.support.spans import Seen

T0 = TopicPartition(TOPIC, 0)

Watch = Callable[..., Seen]


def id_of(span: Any) -> int:
    return int(span.context.span_id)


def links_of(span: Any) -> list[int]:
    return [link.context.span_id for link in span.links]


async def send(cluster: FakeCluster, seen: Seen, *payloads: Any, **options: Any) -> None:
    telemetry = ProducerTelemetry(**seen.providers)
    async with new_producer(cluster, interceptors=[telemetry], **options) as producer:
        for payload in payloads:
            await producer.send_and_wait(TOPIC, payload, key=b"key", partition=0)


async def reader(
    cluster: FakeCluster, start: Start, seen: Seen, **options: Any
) -> tuple[AIOKafkaConsumer, ConsumerTelemetry]:
    telemetry = ConsumerTelemetry(**seen.providers)
    options = {"interceptors": [telemetry], "metrics_collector": telemetry, **options}
    return await start(cluster, assign=[T0], **options), telemetry


async def test_one_trace_from_producer_to_consumer(
    cluster: FakeCluster, start: Start, seen: Seen
) -> None:
    consumer, telemetry = await reader(
        cluster, start, seen, client_id="reader", group_id="group", enable_auto_commit=False
    )
    sending = ProducerTelemetry(**seen.providers)
    async with new_producer(cluster, interceptors=[sending], client_id="writer") as producer:
        with seen.tracer.start_as_current_span("request"):
            with_baggage = context.attach(baggage.set_baggage("tenant", "blue"))
            await producer.send_and_wait(TOPIC, b"value", key=b"key", partition=0)
            context.detach(with_baggage)
    record = await consumer.getone()
    with telemetry.process(record), seen.tracer.start_as_current_span("work"):
        assert baggage.get_baggage("tenant") == "blue"
    assert baggage.get_baggage("tenant") is None
    await consumer.commit()

    request, sent, poll, work, process, commit = (
        seen.span(name)
        for name in ("request", "send topic", "poll topic", "work", "process topic", "commit topic")
    )
    assert sent.parent.span_id == id_of(request)
    assert process.parent.span_id == id_of(sent)
    assert work.parent.span_id == id_of(process)
    assert {each.context.trace_id for each in (sent, process, work)} == {request.context.trace_id}
    # A receive span may have many producers, so they are links.
    assert poll.parent is None and links_of(poll) == [id_of(sent)]
    assert [each.kind for each in (sent, poll, process, commit)] == [
        SpanKind.PRODUCER,
        SpanKind.CLIENT,
        SpanKind.CONSUMER,
        SpanKind.CLIENT,
    ]
    types = [each.attributes[names.OPERATION_TYPE] for each in (sent, poll, process, commit)]
    assert types == ["send", "receive", "process", "settle"]
    port = int(cluster.bootstrap_servers.rpartition(":")[2])
    assert dict(sent.attributes) == {
        "messaging.system": "kafka",
        "messaging.client.id": "writer",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": TOPIC,
        "messaging.destination.partition.id": "0",
        "messaging.kafka.message.key": "key",
        "messaging.kafka.offset": 0,
        "server.address": "127.0.0.1",
        "server.port": port,
    }
    assert dict(process.attributes) == {
        **sent.attributes,
        "messaging.client.id": "reader",
        "messaging.consumer.group.name": "group",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
    }
    assert poll.attributes[names.BATCH_COUNT] == 1
    assert commit.end_time > commit.start_time


def test_long_keys_are_cut_between_letters() -> None:
    assert names.text_of(("a" + "é" * 200).encode()) == "a" + "é" * 127
    assert names.text_of(b"\xff") is names.text_of(object()) is None
    assert names.text_of(7) == "7"


def test_names_are_those_of_the_conventions() -> None:
    known = set(filter(_is_text, vars(messaging_attributes).values()))
    ours = {value for key, value in vars(names).items() if key.isupper() and _is_text(value)}
    assert {name for name in ours if name.startswith("messaging.")} <= known


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


async def test_a_batch_links_to_its_producers(
    cluster: FakeCluster, start: Start, seen: Seen
) -> None:
    consumer, telemetry = await reader(cluster, start, seen)
    await send(cluster, seen, b"one", None, b"three")
    records: list[Any] = []
    while len(records) < 3:
        records += (await consumer.getmany(timeout_ms=5000)).get(T0, [])
    with telemetry.process(records):
        pass
    sent = seen.spans("send topic")
    process = seen.span("process topic")
    assert links_of(process) == [id_of(span) for span in sent]
    assert process.parent is None
    assert process.attributes[names.BATCH_COUNT] == 3
    linked = [link for poll in seen.spans("poll topic") for link in links_of(poll)]
    assert linked == [id_of(span) for span in sent]
    assert [span.attributes.get(names.TOMBSTONE, False) for span in sent] == [False, True, False]


async def test_a_span_that_was_current_is_linked(
    cluster: FakeCluster, start: Start, seen: Seen
) -> None:
    consumer, telemetry = await reader(cluster, start, seen)
    await send(cluster, seen, b"value")
    record = await consumer.getone()
    with seen.tracer.start_as_current_span("loop"), telemetry.process(record):
        pass
    process = seen.span("process topic")
    assert process.parent.span_id == id_of(seen.span("send topic"))
    assert links_of(process) == [id_of(seen.span("loop"))]


async def test_failures_end_spans(cluster: FakeCluster, start: Start, seen: Seen) -> None:
    with cluster.intercept(ProduceRequest, Fail(MessageSizeTooLargeError)):
        with pytest.raises(MessageSizeTooLargeError):
            await send(cluster, seen, b"value")
    with pytest.raises(TypeError):
        await send(cluster, seen, "no bytes")
    failed, refused = seen.spans("send topic")
    assert failed.attributes[names.ERROR_TYPE] == "MessageSizeTooLargeError"
    assert refused.attributes[names.ERROR_TYPE] == "TypeError"
    assert failed.status.status_code is refused.status.status_code is StatusCode.ERROR
    consumer, telemetry = await reader(
        cluster, start, seen, group_id="group", enable_auto_commit=False
    )
    await send(cluster, seen, b"value")
    record = await consumer.getone()
    with pytest.raises(ZeroDivisionError), telemetry.process(record):
        raise ZeroDivisionError("no result")
    assert seen.span("process topic").attributes[names.ERROR_TYPE] == "ZeroDivisionError"
    with cluster.intercept(OffsetCommitRequest, Fail(UnknownTopicOrPartitionError)):
        with pytest.raises(UnknownTopicOrPartitionError):
            await consumer.commit({T0: 1})
    commit = seen.span("commit topic")
    assert commit.attributes[names.ERROR_TYPE] == "UnknownTopicOrPartitionError"


async def test_the_span_of_a_cancelled_send_ends(cluster: FakeCluster, seen: Seen) -> None:
    class Waits(ProducerInterceptor):
        async def on_send(self, record: ProducerRecord) -> None:  # type: ignore[override]
            entered.set()
            await asyncio.Event().wait()

    entered = asyncio.Event()
    telemetry = ProducerTelemetry(**seen.providers)
    async with new_producer(cluster, interceptors=[telemetry, Waits()]) as producer:
        task = asyncio.create_task(producer.send(TOPIC, b"value", partition=0))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        span = seen.span("send topic")
    assert span.attributes[names.ERROR_TYPE] == "CancelledError"
    assert span.status.status_code is StatusCode.ERROR


async def test_a_context_that_the_program_gives_is_kept(
    cluster: FakeCluster, start: Start, seen: Seen
) -> None:
    consumer, telemetry = await reader(cluster, start, seen)
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    sending = ProducerTelemetry(**seen.providers)
    async with new_producer(cluster, interceptors=[sending]) as producer:
        headers = [("traceparent", b"nonsense"), ("traceparent", given.encode())]
        await producer.send_and_wait(TOPIC, b"value", partition=0, headers=headers)
    (record,) = cluster.log(TOPIC).records()
    assert list(record.headers) == headers
    sent = seen.span("send topic")
    assert sent.kind is SpanKind.CLIENT
    assert links_of(sent) == [0xB7AD6B7169203331]
    with telemetry.process(await consumer.getone()):
        pass
    assert seen.span("process topic").parent.span_id == 0xB7AD6B7169203331


async def test_a_context_that_makes_no_sense_is_replaced(cluster: FakeCluster, seen: Seen) -> None:
    """Whatever comes later on finds one header of the name, and what else the record had."""
    sending = ProducerTelemetry(**seen.providers)
    async with new_producer(cluster, interceptors=[sending]) as producer:
        headers = [("traceparent", b"nonsense"), ("mine", b"1"), ("traceparent", b"\xff")]
        await producer.send_and_wait(TOPIC, b"value", partition=0, headers=headers)
    (record,) = cluster.log(TOPIC).records()
    (mine, (name, value)) = record.headers
    assert mine == ("mine", b"1")
    (made,) = (span for span in seen.spans() if span.kind is SpanKind.PRODUCER)
    assert name == "traceparent"
    assert value is not None and f"{id_of(made):016x}" in value.decode()


async def test_hostile_headers(cluster: FakeCluster, start: Start, seen: Seen) -> None:
    consumer, telemetry = await reader(cluster, start, seen)
    async with new_producer(cluster) as producer:
        headers = [
            ("traceparent", b"\xff\xfe"),
            ("tracestate", None),
            ("baggage", b"a=" + b"b" * 100_000),
            ("", b""),
        ]
        await producer.send_and_wait(TOPIC, b"value", key=b"\xff", partition=0, headers=headers)
    record = await consumer.getone()
    with telemetry.process(record):
        assert not baggage.get_all()
    process = seen.span("process topic")
    assert process.parent is None and links_of(process) == []
    assert names.KEY not in process.attributes
    assert links_of(seen.span("poll topic")) == []


async def test_what_is_not_sampled_is_not_traced_further(
    cluster: FakeCluster, start: Start, watch: Watch
) -> None:
    silent, listening = watch(ALWAYS_OFF), watch(ParentBased(ALWAYS_OFF))
    consumer, telemetry = await reader(cluster, start, listening)
    await send(cluster, silent, b"value")
    record = await consumer.getone()
    parent = dict(record.headers)["traceparent"]
    assert parent is not None and not int(parent[-2:], 16) & 1
    with telemetry.process(record):
        pass
    assert silent.spans() == listening.spans() == []


async def test_a_later_interceptor_may_change_the_record(cluster: FakeCluster, seen: Seen) -> None:
    class Moves(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return replace(record, topic="other")

    await cluster.create_topic("other")
    interceptors = [ProducerTelemetry(**seen.providers), Moves()]
    async with new_producer(cluster, interceptors=interceptors) as producer:
        await producer.send_and_wait(TOPIC, b"value")
    assert seen.span("send topic").attributes[names.DESTINATION] == "other"


async def test_two_of_them_make_one_span(cluster: FakeCluster, seen: Seen) -> None:
    interceptors = [ProducerTelemetry(**seen.providers), ProducerTelemetry(**seen.providers)]
    async with new_producer(cluster, interceptors=interceptors) as producer:
        await producer.send_and_wait(TOPIC, b"value", partition=0)
    assert len(seen.spans()) == 1
    (record,) = cluster.log(TOPIC).records()
    assert len(record.headers) == 1


@pytest.mark.parametrize("outcome", ["committed", "aborted"])
async def test_a_transaction(cluster: FakeCluster, seen: Seen, outcome: str) -> None:
    telemetry = ProducerTelemetry(**seen.providers)
    async with transactional(cluster, interceptors=[telemetry]) as producer:
        try:
            async with telemetry.transaction(producer.transaction()):
                await producer.send(TOPIC, b"value", partition=0)
                if outcome == "aborted":
                    await producer.flush()
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass
    transaction, sent = seen.span("transaction"), seen.span("send topic")
    settle = seen.span("commit" if outcome == "committed" else "abort")
    assert {sent.parent.span_id, settle.parent.span_id} == {id_of(transaction)}
    assert transaction.attributes["aiokafka.transaction.outcome"] == outcome
    assert settle.attributes[names.OPERATION_TYPE] == "settle"
    assert trace.get_current_span() is trace.INVALID_SPAN


async def test_a_session(cluster: FakeCluster, seen: Seen) -> None:
    await send(cluster, seen, b"value")
    await cluster.create_topic("out")
    sending, receiving = ProducerTelemetry(**seen.providers), ConsumerTelemetry(**seen.providers)
    consumer = AIOKafkaConsumer(
        TOPIC,
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="group",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        interceptors=[receiving],
    )
    producer = transactional(cluster, interceptors=[sending])
    async with TransactionalSession(consumer, producer) as session:
        async for transaction in session:
            async with receiving.transaction(transaction) as records:
                for record in records:
                    await transaction.send("out", record.value)
            break
    process, out = seen.span("process topic"), seen.span("send out")
    assert links_of(process) == [id_of(seen.span("send topic"))]
    assert out.parent.span_id == id_of(process)
    assert process.attributes["aiokafka.transaction.outcome"] == "committed"
    assert len(cluster.log("out").records()) == 1


async def test_parallel_handlers(cluster: FakeCluster, seen: Seen) -> None:
    await send(cluster, seen, b"one", b"two")
    telemetry = ConsumerTelemetry(**seen.providers)
    consumer = AIOKafkaConsumer(
        bootstrap_servers=cluster.bootstrap_servers,
        group_id="group",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        interceptors=[telemetry],
    )
    done: list[int] = []

    async def handle(record: Any) -> None:
        await asyncio.sleep(0)
        done.append(trace.get_current_span().get_span_context().span_id)
        if len(done) == 2:
            parallel.request_stop()

    parallel = ParallelConsumer(consumer, topics=[TOPIC])
    async with parallel:
        await parallel.run(telemetry.handler(handle))
    processed = seen.spans("process topic")
    assert sorted(done) == sorted(map(id_of, processed))
    sent = {id_of(span) for span in seen.spans("send topic")}
    assert {span.parent.span_id for span in processed} == sent


def _plain(record: Any) -> Any:
    yield record


async def _asynchronous(record: Any) -> Any:
    yield record


class _Plain:
    def __call__(self, record: Any) -> Any:
        yield record


class _Asynchronous:
    async def __call__(self, record: Any) -> Any:
        yield record


@pytest.mark.parametrize("handler", [_plain, _asynchronous, _Plain(), _Asynchronous()])
async def test_handlers_of_which_nothing_would_run(handler: Any) -> None:
    """The record would count as processed."""
    with pytest.raises(TypeError, match="generator"):
        ConsumerTelemetry().handler(handler)
    hidden = ConsumerTelemetry().handler(lambda record: handler(record))
    with pytest.raises(TypeError, match="generator"):
        await hidden(ConsumerRecord(TOPIC, 0, 0, 0, 0, None, b"x", None, 0, 1, ()))


async def test_a_commit_in_the_background_belongs_to_no_span_that_is_over(
    cluster: FakeCluster, start: Start, seen: Seen
) -> None:
    await send(cluster, seen, b"value")
    with seen.tracer.start_as_current_span("startup"):
        consumer, _ = await reader(
            cluster, start, seen, group_id="group", auto_commit_interval_ms=10
        )
    await consumer.getone()
    while not seen.spans("commit topic"):
        await consumer.getmany(timeout_ms=10)
    assert seen.spans("commit topic")[0].parent is None


async def test_without_a_recorder_only_what_is_current_is_passed_on(cluster: FakeCluster) -> None:
    """Neither a provider nor an SDK: but baggage, and a remote span, go on to the next program."""
    telemetry = ProducerTelemetry(tracer_provider=trace.NoOpTracerProvider())
    async with new_producer(cluster, interceptors=[telemetry]) as producer:
        await producer.send_and_wait(TOPIC, b"nothing", partition=0)
        token = context.attach(baggage.set_baggage("tenant", "blue"))
        await producer.send_and_wait(TOPIC, b"baggage", partition=0)
        context.detach(token)
        await producer.send_and_wait(TOPIC, b"nothing", partition=0)
    headers = [list(record.headers) for record in cluster.log(TOPIC).records()]
    assert headers == [[], [("baggage", b"tenant=blue")], []]


async def test_suppressed(cluster: FakeCluster, start: Start, seen: Seen) -> None:
    from opentelemetry.instrumentation.utils import suppress_instrumentation

    consumer, telemetry = await reader(cluster, start, seen)
    with suppress_instrumentation():
        await send(cluster, seen, b"value")
        with telemetry.process(await consumer.getone()):
            pass
        sending = ProducerTelemetry(**seen.providers)
        async with transactional(cluster, interceptors=[sending]) as producer:
            async with sending.transaction(producer.transaction()):
                await producer.send(TOPIC, b"value", partition=1)
    assert seen.spans() == []
    (record,) = cluster.log(TOPIC).records()
    assert not record.headers
