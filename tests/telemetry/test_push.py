"""Metrics that are pushed to brokers which ask for them (KIP-714)."""

from __future__ import annotations

import asyncio
import gc
import uuid
import weakref
from collections import Counter
from collections.abc import Coroutine
from itertools import pairwise
from typing import Any, TypeVar

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka._telemetry.push import PushedCounts, Subscription, entries, make_payload
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    IllegalStateError,
    InvalidRecord,
    InvalidRequestError,
    KafkaTimeoutError,
    TelemetryTooLarge,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
    UnsupportedVersionError,
)
from aiokafka.metrics import Metric, MetricKind
from aiokafka.protocol.messages.telemetry import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
    PushTelemetryRequest,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.testing import Cut, Edit, Fail, FakeCluster, Silence
from aiokafka.testing.telemetry import TelemetryPush
from tests.support.consumers import Start, fill
from tests.support.otlp import CUMULATIVE, DELTA, PushedMetrics, decode, expected
from tests.support.producers import TOPIC, new_producer

T = TypeVar("T")
T0 = TopicPartition(TOPIC, 0)
GET, PUSH = GetTelemetrySubscriptionsRequest, PushTelemetryRequest


async def subscribe(
    cluster: FakeCluster, metrics: str = "*", interval_ms: int = 50, name: str = "all"
) -> None:
    """Have the brokers ask for these metrics."""
    options = {"bootstrap_servers": cluster.bootstrap_servers}
    async with AIOKafkaAdminClient(**options) as admin:  # type: ignore[arg-type]
        await admin.configs.alter(
            {("client_metrics", name): {"metrics": metrics, "interval.ms": str(interval_ms)}}
        )


async def pushes(cluster: FakeCluster, count: int) -> list[TelemetryPush]:
    """Return the pushes, once there are `count`."""
    await cluster.wait_for(lambda: len(cluster.telemetry.pushes) >= count)
    return list(cluster.telemetry.pushes)


def add_up(told: list[PushedMetrics], name: str) -> Any:
    """Return the sum of what each push tells of the whole client."""
    return sum(one.value(name) for one in told if (f"org.apache.kafka.{name}", ()) in one.values)


async def work(producer: AIOKafkaProducer, count: int = 3) -> None:
    for number in range(count):
        await producer.send_and_wait(TOPIC, b"%d" % number, partition=0)


async def test_deltas_of_a_producer_add_up(cluster: FakeCluster) -> None:
    await subscribe(cluster)
    async with new_producer(cluster, client_id="writer") as producer:
        await work(producer)
        await pushes(cluster, 2)
        await work(producer)
        identity = await producer.client_instance_id()
        quiet = producer.metrics()
    told = await pushes(cluster, 3)
    assert [push.is_terminating for push in told] == [False] * (len(told) - 1) + [True]
    assert {push.client_instance_id for push in told} == {identity}
    assert {push.client_id for push in told} == {"writer"}
    read = [decode(push.metrics) for push in told]
    for one in read:
        assert one.temporality == {DELTA}
    assert add_up(read, "producer.record.send.total") == 6
    assert add_up(read, "producer.batch.total") == quiet.value("batch-total", "producer-metrics")
    queue_times = [one.value("producer.record.queue.time") for one in read]
    assert sum(count for count, _, _ in queue_times) == 6
    assert sum(sum(buckets) for _, _, buckets in queue_times) == 6
    topics = [one.value("producer.topic.record.send.total", topic=TOPIC) for one in read]
    assert sum(topics) == 6
    # Each push goes on where the one before has ended.
    for before, after in pairwise(read):
        assert max(at for _, at in before.times) in {since for since, _ in after.times}
    assert read[0].units["org.apache.kafka.producer.record.queue.time"] == "ms"


async def test_cumulative_values_equal_metrics(cluster: FakeCluster, start: Start) -> None:
    def change(response: GetTelemetrySubscriptionsResponse) -> None:
        response.delta_temporality = False

    await subscribe(cluster, "org.apache.kafka.consumer.fetch.manager")
    fill(cluster, 0, 5, topic=TOPIC)
    with cluster.intercept(GET, Edit(change)):
        consumer = await start(
            cluster, assign=[T0], group_id="group", group_instance_id="me", client_rack="here"
        )
        for _ in range(5):
            await consumer.getone()
        count = len(cluster.telemetry.pushes)
        last = decode((await pushes(cluster, count + 2))[-1].metrics)
        names = {name for name, _ in last.values}
        assert all(n.startswith("org.apache.kafka.consumer.fetch.manager.") for n in names)
        assert last.temporality == {CUMULATIVE}
        for name in ("records.consumed.total", "bytes.consumed.total"):
            key = f"org.apache.kafka.consumer.fetch.manager.{name}", ()
            assert last.values[key] == expected(consumer.metrics())[key]
        labels = {"topic": TOPIC, "partition": "0"}
        assert last.value("consumer.fetch.manager.records.lag", **labels) == 0
        assert last.value("consumer.fetch.manager.position", **labels) == 5
        member = {"group_id": "group", "group_instance_id": "me", "client_rack": "here"}
        assert last.resource == member


@pytest.mark.parametrize("as_version", ["2.8", "4.3"])
async def test_brokers_that_take_no_metrics_get_none(as_version: str, start: Start) -> None:
    async with FakeCluster(as_version=as_version) as cluster:
        await cluster.create_topic(TOPIC)
        async with new_producer(cluster) as producer:
            await work(producer)
            opened = producer.metrics().value("connection-creation-total")
            with pytest.raises(UnsupportedVersionError, match="accepts metrics"):
                await producer.client_instance_id()
        assert opened == 1
        assert not [cluster.count(api) for api in (GET, PUSH) if cluster.count(api)]
        assert cluster.failures == []


async def test_bootstrap_servers_of_another_address_than_any_broker() -> None:
    """Behind a load balancer no broker has been connected to when the client has started."""
    config = {"metric.reporters": "Receiver"}
    async with FakeCluster(proxied=True, config=config) as cluster:
        await cluster.create_topic(TOPIC)
        address = f"127.0.0.1:{cluster.broker(0).port}"
        assert address != cluster.bootstrap_servers
        async with AIOKafkaProducer(bootstrap_servers=address) as producer:
            waiting = asyncio.create_task(producer.client_instance_id())
            await producer.send_and_wait(TOPIC, b"first")
            assert (await waiting).int


async def test_a_client_of_which_nothing_is_asked(cluster: FakeCluster) -> None:
    await subscribe(cluster, "org.apache.kafka.consumer", interval_ms=50)
    async with new_producer(cluster) as producer:
        await work(producer)
        await producer.client_instance_id()
        # Nothing of a producer has such a name, so there is nothing to push.
        await asyncio.sleep(0.2)
        assert cluster.count(PUSH) == 0
    (last,) = await pushes(cluster, 1)
    assert last.is_terminating and last.metrics == b""


async def test_no_subscription(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        await work(producer)
        assert (await producer.client_instance_id()).version == 4
    assert (cluster.count(GET), cluster.count(PUSH)) == (1, 0)


async def test_it_can_be_turned_off(cluster: FakeCluster) -> None:
    await subscribe(cluster)
    async with new_producer(cluster, enable_metrics_push=False) as producer:
        await work(producer)
        with pytest.raises(IllegalStateError, match="enable_metrics_push"):
            await producer.client_instance_id()
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        with pytest.raises(IllegalStateError, match="enable_metrics_push"):
            await admin.client_instance_id()
    assert (cluster.count(GET), cluster.count(PUSH)) == (0, 0)


async def test_an_admin_client_that_wants_to(cluster: FakeCluster) -> None:
    await subscribe(cluster)
    servers = {"bootstrap_servers": cluster.bootstrap_servers}
    async with AIOKafkaAdminClient(**servers, enable_metrics_push=True) as admin:  # type: ignore[arg-type]
        identity = await admin.client_instance_id()
        await pushes(cluster, 1)
    told = await pushes(cluster, 2)
    assert {push.client_instance_id for push in told} == {identity}
    assert decode(told[0].metrics).value("admin.client.connection.count") == 1


async def test_the_id_when_there_is_none(cluster: FakeCluster) -> None:
    producer = new_producer(cluster)
    with pytest.raises(IllegalStateError, match="not started"):
        await producer.client_instance_id()
    with cluster.intercept(GET, Silence()):
        async with producer:
            for wrong in (-1, float("nan")):
                with pytest.raises(ValueError, match="timeout_ms"):
                    await producer.client_instance_id(wrong)
            with pytest.raises(KafkaTimeoutError, match="client instance id"):
                await producer.client_instance_id(20)
            waiting = asyncio.create_task(producer.client_instance_id())
            await asyncio.sleep(0)
    with pytest.raises(IllegalStateError, match="stopped"):
        await waiting
    with pytest.raises(IllegalStateError, match="stopped"):
        await producer.client_instance_id()


async def test_the_id_stays(cluster: FakeCluster) -> None:
    await subscribe(cluster)
    async with new_producer(cluster) as producer:
        identity = await producer.client_instance_id()
        await pushes(cluster, 1)
        await subscribe(cluster, "org.apache.kafka.producer.record", name="more")
        asked = cluster.count(GET)
        await subscribe(cluster, "org.apache.kafka.producer.record", interval_ms=60)
        await cluster.wait_for(lambda: cluster.count(GET) > asked)
        count = len(cluster.telemetry.pushes)
        last = (await pushes(cluster, count + 1))[-1]
        assert {name for name, _ in decode(last.metrics).values} == {
            f"org.apache.kafka.producer.record.{name}.total" for name in ("send", "retry", "error")
        } | {"org.apache.kafka.producer.record.queue.time"}
        assert await producer.client_instance_id() == identity
    requests = cluster.requests(GET)
    assert requests[0].request.client_instance_id == ZERO_UUID
    assert {seen.request.client_instance_id for seen in requests[1:]} == {identity.bytes}


async def test_a_push_that_was_too_large_is_halved(cluster: FakeCluster) -> None:
    await subscribe(cluster)
    with cluster.intercept(PUSH, Fail(TelemetryTooLarge), times=1):
        async with new_producer(cluster) as producer:
            await work(producer)
            await pushes(cluster, 1)
    first, second, *_ = (len(seen.request.metrics) for seen in cluster.requests(PUSH))
    assert 0 < second <= first // 2


@pytest.mark.parametrize("error", [UnknownSubscriptionId, ThrottlingQuotaExceeded])
async def test_pushes_that_are_refused_are_made_up_for(
    cluster: FakeCluster, error: type[Any]
) -> None:
    await subscribe(cluster)
    async with new_producer(cluster) as producer:
        with cluster.intercept(PUSH, Fail(error), times=1):
            await work(producer)
            await cluster.wait_for(lambda: cluster.count(PUSH) >= 1)
        await pushes(cluster, 1)
    read = [decode(push.metrics) for push in cluster.telemetry.pushes]
    assert add_up(read, "producer.record.send.total") == 3


async def test_codecs_that_are_refused(cluster: FakeCluster) -> None:
    await subscribe(cluster)
    with cluster.intercept(PUSH, Fail(UnsupportedCompressionType), times=2):
        async with new_producer(cluster) as producer:
            await pushes(cluster, 1)
            identity = await producer.client_instance_id()
    codecs = [seen.request.compression_type for seen in cluster.requests(PUSH)]
    assert len(set(codecs[:3])) == 3
    assert identity == cluster.telemetry.pushes[0].client_instance_id


@pytest.mark.parametrize("error", [InvalidRequestError, InvalidRecord])
async def test_errors_that_end_it(
    cluster: FakeCluster, error: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    await subscribe(cluster)
    async with new_producer(cluster) as producer:
        with cluster.intercept(PUSH, Fail(error)):
            await cluster.wait_for(lambda: cluster.count(PUSH) == 1)
            await work(producer)
            await asyncio.sleep(0.15)
            assert (cluster.count(GET), cluster.count(PUSH)) == (1, 1)
    assert (cluster.count(GET), cluster.count(PUSH)) == (1, 1)
    assert caplog.text.count("pushes no metrics any more") == 1


async def test_a_push_without_an_answer_counts_as_told(cluster: FakeCluster) -> None:
    await subscribe(cluster)
    async with new_producer(cluster) as producer:
        await work(producer)
        with cluster.intercept(PUSH, Cut(handled=True), times=1):
            await cluster.wait_for(lambda: cluster.count(PUSH) >= 1)
        await work(producer)
        await pushes(cluster, 2)
        # The connection was cut under records, too.
        sent = producer.metrics().value("record-send-total")
    read = [decode(push.metrics) for push in cluster.telemetry.pushes]
    assert add_up(read, "producer.record.send.total") == sent


async def test_what_does_not_fit_is_left_out(start: Start) -> None:
    config = {"metric.reporters": "Receiver", "telemetry.max.bytes": "2000"}
    async with FakeCluster(config=config) as cluster:
        await cluster.create_topic(TOPIC, partitions=200)
        await subscribe(cluster)
        await start(cluster, TOPIC)
        told = [decode(push.metrics) for push in await pushes(cluster, 2)]
        sizes = [len(seen.request.metrics) for seen in cluster.requests(PUSH)]
        assert max(sizes) <= 2000
        # What is said of the whole client comes first.
        for one in told:
            assert ("org.apache.kafka.consumer.connection.count", ()) in one.values
            assert len(one.values) < 300


async def test_other_tasks_get_turns_while_a_push_is_made() -> None:
    metrics = [
        Metric("consumer-metrics", "position", n, MetricKind.COUNTER, "", {"partition": str(n)})
        for n in range(10_000)
    ]
    tally = PushedCounts(0)
    subscription = Subscription(1, 1.0, 10**7, True, ("",), ())
    steps = Counter[str]()

    async def count(step: str) -> None:
        while True:
            steps[step] += 1
            await asyncio.sleep(0)

    async def counted(step: str, work: Coroutine[Any, Any, T]) -> T:
        counting = asyncio.create_task(count(step))
        try:
            return await work
        finally:
            counting.cancel()

    wanted = await counted("choose", entries(metrics, lambda name: True))
    assert sum(map(len, wanted)) == len(metrics)
    making = make_payload(wanted, tally, subscription, {}, 1, codec=0, most_bytes=10**7)
    payload = await counted("make", making)
    assert payload is not None and len(payload.entries) == len(metrics)
    assert len(payload.data) > 10**5
    told = await counted("note", tally.after_push(wanted, payload.entries, 1))
    assert len(told) == len(metrics)
    assert min(steps.values()) >= 20


async def test_limits_below_anything_sensible(cluster: FakeCluster) -> None:
    def change(response: GetTelemetrySubscriptionsResponse) -> None:
        response.push_interval_ms = -5
        response.telemetry_max_bytes = -1
        response.accepted_compression_types = [99, -3]
        response.requested_metrics = ["", "\x00", *map(str, range(5000))]

    await subscribe(cluster)
    with cluster.intercept(GET, Edit(change)):
        async with new_producer(cluster) as producer:
            await work(producer)
            await asyncio.sleep(0.3)
            assert cluster.count(GET) == 1
    assert all(push.metrics == b"" for push in cluster.telemetry.pushes)


async def test_a_broker_that_gives_no_id(cluster: FakeCluster) -> None:
    def change(response: GetTelemetrySubscriptionsResponse) -> None:
        response.client_instance_id = ZERO_UUID

    with cluster.intercept(GET, Edit(change)):
        async with new_producer(cluster) as producer:
            with pytest.raises(Exception, match="no client instance id"):
                await producer.client_instance_id()
            await work(producer)


async def test_stop_does_not_wait_for_a_silent_broker(cluster: FakeCluster) -> None:
    await subscribe(cluster)
    producer = new_producer(cluster)
    await producer.start()
    await pushes(cluster, 1)
    with cluster.intercept(PUSH, Silence()):
        async with timeout(6):
            await producer.stop()


async def test_a_broker_that_goes_away(start: Start) -> None:
    config = {"metric.reporters": "Receiver"}
    async with FakeCluster(brokers=2, config=config) as cluster:
        await cluster.create_topic(TOPIC, partitions=2, replication_factor=2)
        await subscribe(cluster)
        async with new_producer(cluster) as producer:
            (first,) = (await pushes(cluster, 1))[:1]
            node = cluster.requests(PUSH)[0].broker_id
            await cluster.stop_broker(node)
            count = len(cluster.telemetry.pushes)
            last = (await pushes(cluster, count + 2))[-1]
            assert last.client_instance_id == first.client_instance_id
            assert cluster.requests(PUSH)[-1].broker_id != node
            await producer.stop(timeout=0.5)


async def test_consumers_that_share_a_client_id(cluster: FakeCluster, start: Start) -> None:
    await subscribe(cluster)
    fill(cluster, 0, 2, topic=TOPIC)
    consumers: list[AIOKafkaConsumer] = [await start(cluster, assign=[T0]) for _ in range(2)]
    ids: set[uuid.UUID] = {await consumer.client_instance_id() for consumer in consumers}
    assert len(ids) == 2
    await cluster.wait_for(
        lambda: {push.client_instance_id for push in cluster.telemetry.pushes} == ids
    )


# -- metrics of the application (KIP-1076)


def queued(value: Any, kind: MetricKind = MetricKind.GAUGE, **tags: Any) -> Metric:
    return Metric("billing", "orders-queued", value, kind, "orders", tags)


QUEUED = "org.apache.kafka.billing.orders.queued"


async def test_metrics_of_the_application(cluster: FakeCluster) -> None:
    await subscribe(cluster, QUEUED)
    async with new_producer(cluster) as producer:
        total = 0

        def source() -> list[Metric]:
            nonlocal total
            total += 2
            return [queued(total, MetricKind.COUNTER, shop="a"), queued(7, shop="b", till="1")]

        producer.register_metric_for_subscription(source)
        producer.register_metric_for_subscription(source)
        told = [decode(push.metrics) for push in await pushes(cluster, 3)]
        assert QUEUED not in {metric.telemetry_name for metric in producer.metrics()}
        producer.unregister_metric_from_subscription(source)
        producer.unregister_metric_from_subscription(source)
        seen = total
    # The last push has none of them.
    assert total == seen
    assert [one.value("billing.orders.queued", shop="a") for one in told] == [2, 2, 2]
    assert [one.value("billing.orders.queued", shop="b", till="1") for one in told] == [7, 7, 7]
    assert {name for one in told for name, _ in one.values} == {QUEUED}
    assert told[0].units[QUEUED] == "orders"


async def test_a_metric_of_the_client_is_not_replaced(cluster: FakeCluster) -> None:
    await subscribe(cluster, "org.apache.kafka.producer.record.send.total")
    async with new_producer(cluster) as producer:
        fake = Metric(
            "producer", "record.send.total", 99, MetricKind.COUNTER, "records", {"a": "b"}
        )
        producer.register_metric_for_subscription(lambda: [fake])
        await work(producer)
        (first, *_) = await pushes(cluster, 1)
    assert [labels for _, labels in decode(first.metrics).values] == [()]


@pytest.mark.parametrize(
    "source",
    [
        lambda: 1 / 0,
        lambda: None,
        lambda: [queued(1), "text"],
        lambda: [queued("many")],
        lambda: [queued(10**400)],
        lambda: [queued(None)],
        lambda: [queued(1, MetricKind.HISTOGRAM)],
        lambda: [queued(1, shop=None)],
        lambda: (queued(1 / (2 - n)) for n in range(3)),
    ],
)
async def test_a_source_that_fails_costs_its_own_metrics_only(
    cluster: FakeCluster, source: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await subscribe(cluster)
    async with new_producer(cluster) as producer:
        producer.register_metric_for_subscription(source)
        producer.register_metric_for_subscription(lambda: [queued(float("nan"), shop="a")])
        await work(producer)
        told = [decode(push.metrics) for push in await pushes(cluster, 2)]
    assert add_up(told, "producer.record.send.total") == 3
    labels = [dict(labels) for one in told for name, labels in one.values if name == QUEUED]
    assert labels == [{"shop": "a"}] * 2
    assert "the metrics function" in caplog.text
    assert "pushes no metrics any more" not in caplog.text


async def test_a_source_is_a_function(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        with pytest.raises(TypeError, match="source=7"):
            producer.register_metric_for_subscription(7)  # type: ignore[arg-type]


async def test_a_source_keeps_no_client_alive(cluster: FakeCluster) -> None:
    await subscribe(cluster)

    async def run() -> weakref.ref[AIOKafkaProducer]:
        async with new_producer(cluster) as producer:
            producer.register_metric_for_subscription(lambda: [queued(len(producer.metrics()))])
            await pushes(cluster, 1)
        return weakref.ref(producer)

    gone = await run()
    gc.collect()
    assert gone() is None
