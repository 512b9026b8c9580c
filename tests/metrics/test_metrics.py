"""What `metrics()` counts: exactly the work that was done."""

from __future__ import annotations

import asyncio
import json
import math
import re

import pytest

from aiokafka import AIOKafkaClient, AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import MessageSizeTooLargeError, NotLeaderForPartitionError
from aiokafka.metrics import Distribution, MetricKind, MetricsSnapshot
from aiokafka.net._traffic import Traffic
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.testing import Edit, Fail, FakeCluster, Hold
from tests.support.consumers import Start, fill
from tests.support.producers import TOPIC, new_producer, numbers, results, send_all, transactional

T0, T1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


def check_form(snapshot: MetricsSnapshot) -> None:
    """A metric has a name of its own, and all of it is data for JSON."""
    keys = [(metric.group, metric.name, tuple(sorted(metric.tags.items()))) for metric in snapshot]
    assert len(set(keys)) == len(keys)
    for metric in snapshot:
        assert metric.telemetry_name.startswith("org.apache.kafka.")
        assert "_" not in metric.name
        is_distribution = isinstance(metric.value, Distribution)
        assert is_distribution == (metric.kind is MetricKind.HISTOGRAM)
    text = json.dumps(snapshot.as_list(), allow_nan=False)
    assert len(json.loads(text)) == len(snapshot)


async def test_what_a_producer_sends(cluster: FakeCluster) -> None:
    await cluster.create_topic("other")
    async with new_producer(cluster, linger_ms=20) as producer:
        sent = await send_all(producer, numbers(10), partition=0)
        sent += await send_all(producer, numbers(5), partition=1)
        sent.append(await producer.send("other", b"value"))
        await results(sent)
        seen = producer.metrics()
    check_form(seen)
    assert seen.value("record-send-total") == 16
    assert seen.value("record-send-total", topic=TOPIC) == 15
    assert seen.value("record-send-total", topic="other") == 1
    assert seen.value("batch-total", "producer-metrics") == 3
    written = sum(
        batch.size
        for topic, partition in (T0, T1, ("other", 0))
        for batch in cluster.log(topic, partition).batches
    )
    assert seen.value("byte-total", "producer-metrics") == written
    assert seen.value("batch-size").sum == written
    assert seen.value("record-queue-time").count == 3
    assert seen.value("record-queue-time").max >= 20
    assert seen.value("record-retry-total") == seen.value("record-error-total") == 0
    assert seen.value("batches-pending") == seen.value("requests-in-flight") == 0
    assert seen.value("buffer-available-bytes") == seen.value("buffer-total-bytes")
    assert seen.value("compression-rate-avg") == 1.0


async def test_retries_and_errors(cluster: FakeCluster) -> None:
    with cluster.intercept(ProduceRequest, Fail(NotLeaderForPartitionError), times=1):
        async with new_producer(cluster, linger_ms=10) as producer:
            await results(await send_all(producer, numbers(4)))
            with cluster.intercept(ProduceRequest, Fail(MessageSizeTooLargeError)):
                await results(await send_all(producer, numbers(1)))
            seen = producer.metrics()
    assert seen.value("record-send-total") == 4 + 4 + 1
    assert seen.value("record-retry-total") == 4
    assert seen.value("record-error-total") == 1
    assert seen.value("request-latency", "producer-metrics").count == 3


async def test_a_batch_that_is_split(cluster: FakeCluster) -> None:
    with cluster.intercept(ProduceRequest, Fail(MessageSizeTooLargeError), times=1):
        async with new_producer(cluster, linger_ms=10) as producer:
            await results(await send_all(producer, [b"x" * 1000] * 10))
            seen = producer.metrics()
    assert seen.value("batch-split-total") == 1
    assert seen.value("record-error-total") == 0
    assert seen.value("record-send-total") == 20


async def test_what_waits(cluster: FakeCluster) -> None:
    release = asyncio.Event()
    with cluster.intercept(ProduceRequest, Hold(release)) as held:
        async with new_producer(cluster, buffer_memory=20_000) as producer:
            first = await producer.send(TOPIC, b"x" * 10_000, partition=0)
            await held.wait()
            waiting = asyncio.create_task(producer.send(TOPIC, b"x" * 10_000, partition=0))
            while not producer.metrics().value("waiting-threads"):
                await asyncio.sleep(0)
            seen = producer.metrics()
            assert seen.value("batches-pending") == seen.value("requests-in-flight") == 1
            assert seen.value("buffer-available-bytes") == producer.buffer_available_bytes
            release.set()
            await asyncio.gather(first, await waiting)
            seen = producer.metrics()
    assert seen.value("waiting-threads") == 0
    assert seen.value("bufferpool-wait-time-ns-total") > 0
    assert seen.value("buffer-exhausted-total") == 0


async def test_throttling(cluster: FakeCluster) -> None:
    def throttle(response: object) -> None:
        response.throttle_time_ms = 7  # type: ignore[attr-defined]

    with cluster.intercept(ProduceRequest, Edit(throttle), times=1):
        async with new_producer(cluster) as producer:
            await producer.send_and_wait(TOPIC, b"1", partition=0)
            seen = producer.metrics()
    assert seen.value("produce-throttle-time").sum == 7
    assert sum(metric.value for metric in seen.find("throttle-time-total")) == 7


async def test_transactions(cluster: FakeCluster) -> None:
    async with transactional(cluster) as producer:
        async with producer.transaction():
            await producer.send(TOPIC, b"value")
        seen = producer.metrics()
    check_form(seen)
    for call in ("init", "begin", "commit"):
        assert seen.value(f"txn-{call}-time-ns-total") > 0
    assert seen.value("txn-abort-time-ns-total") == 0


async def test_before_the_start_and_after_the_end(cluster: FakeCluster, start: Start) -> None:
    producer = new_producer(cluster)
    assert producer.metrics().value("record-send-total") == 0
    await producer.start()
    await producer.send_and_wait(TOPIC, b"value", partition=0)
    await producer.stop()
    assert producer.metrics().value("record-send-total") == 1
    assert producer.metrics().value("connection-count") == 0
    consumer = await start(cluster, assign=[T0])
    await consumer.getone()
    await consumer.stop()
    assert consumer.metrics().value("records-consumed-total") == 1


async def test_what_a_consumer_reads(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 0, 10, topic=TOPIC, batch=5)
    fill(cluster, 1, 4, topic=TOPIC)
    consumer = await start(cluster, assign=[T0, T1])
    taken = 0
    while taken < 6:
        taken += sum(map(len, (await consumer.getmany(timeout_ms=5000, max_records=3)).values()))
    for _ in range(2):
        await consumer.getone()
    seen = consumer.metrics()
    check_form(seen)
    assert seen.value("records-consumed-total") == taken + 2
    assert seen.value("records-consumed-total", topic=TOPIC) == taken + 2
    each = seen.find("records-consumed-total", topic=TOPIC, partition=0)
    each += seen.find("records-consumed-total", topic=TOPIC, partition=1)
    assert sum(metric.value for metric in each) == taken + 2
    for tp in (T0, T1):
        where = {"topic": tp.topic, "partition": tp.partition}
        position = await consumer.position(tp)
        assert seen.value("position", **where) == position
        assert seen.value("records-lead", **where) == position
        assert seen.value("records-lag", **where) == cluster.log(*tp).end_offset - position
    written = sum(batch.size for tp in (T0, T1) for batch in cluster.log(*tp).batches)
    assert seen.value("bytes-consumed-total") == written
    assert seen.value("fetch-latency").count == seen.value("fetch-total") > 0


async def test_counts_outlive_assignments(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 0, 5, topic=TOPIC)
    fill(cluster, 1, 5, topic=TOPIC)
    consumer = await start(cluster, assign=[T0])
    for _ in range(3):
        await consumer.getone()
    consumer.assign([T1])
    for _ in range(2):
        await consumer.getone()
    seen = consumer.metrics()
    assert seen.value("records-consumed-total") == 5
    assert seen.find("position", partition=0) == []
    assert seen.value("records-consumed-total", topic=TOPIC, partition=1) == 2


async def test_a_group(cluster: FakeCluster, start: Start) -> None:
    options = {"group_id": "group", "enable_auto_commit": False, "heartbeat_interval_ms": 20}
    consumer = await start(cluster, TOPIC, **options)
    await consumer.commit({T0: 0})
    while not consumer.metrics().value("heartbeat-response-time").count:
        await asyncio.sleep(0.01)
    seen = consumer.metrics()
    check_form(seen)
    assert seen.value("rebalance-total") == 1
    # The coordinator gives a new member its id, with which it asks again.
    assert seen.value("join-time").count == 2
    assert seen.value("sync-time").count == 1
    assert seen.value("assigned-partitions") == 3
    assert seen.value("commit-total") == 1
    assert 0 <= seen.value("last-rebalance-seconds-ago") < 60
    await (await start(cluster, TOPIC, **options)).stop()
    while consumer.metrics().value("rebalance-total") < 3:
        await asyncio.sleep(0.01)


POLLS = (
    "time-between-poll-avg",
    "time-between-poll-max",
    "poll-idle-ratio-avg",
    "last-poll-seconds-ago",
)


async def test_times_between_calls(cluster: FakeCluster, start: Start) -> None:
    """The application works for one second, waits for four seconds, and works for three."""
    now = asyncio.get_running_loop().time
    fill(cluster, 0, 2, topic=TOPIC)
    consumer = await start(cluster, TOPIC)
    for name in POLLS:
        with pytest.raises(KeyError, match="is not known"):
            consumer.metrics().value(name)
    began_at = now()
    await consumer.getone()
    assert not consumer.metrics().find("time-between-poll-avg")
    await asyncio.sleep(1)
    await consumer.getone()
    waits_from = now()
    waiting = asyncio.create_task(consumer.getmany(timeout_ms=4000))
    await asyncio.sleep(2)
    seen = consumer.metrics()
    assert seen.value("last-poll-seconds-ago") == 0
    assert seen.value("poll-idle-ratio-avg") > 1.9 / (now() - began_at)
    assert await waiting == {}
    assert 3.9 < consumer.metrics().value("last-poll-seconds-ago") <= now() - waits_from
    await asyncio.sleep(3)
    await consumer.getmany()
    seen, ended_at = consumer.metrics(), now()
    check_form(seen)
    assert 7900 < 3 * seen.value("time-between-poll-avg") <= 1000 * (ended_at - began_at) + 1
    assert 6900 < seen.value("time-between-poll-max") <= 1000 * (ended_at - waits_from) + 1
    idle = seen.value("poll-idle-ratio-avg") * (ended_at - began_at)
    assert 3.9 < idle < ended_at - began_at - 3.9
    units = {name: seen.find(name)[0].unit for name in POLLS}
    assert units == dict(zip(POLLS, ("ms", "ms", "", "s"), strict=True))


async def test_a_cancelled_wait_is_idle_time(cluster: FakeCluster, start: Start) -> None:
    now = asyncio.get_running_loop().time
    consumer = await start(cluster, TOPIC)
    began_at = now()
    for _ in range(3):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(consumer.getone(), 1)
    ratio = consumer.metrics().value("poll-idle-ratio-avg")
    assert ratio > 2.9 / (now() - began_at)


async def test_a_slow_step_of_a_loop_is_seen_in_time(cluster: FakeCluster, start: Start) -> None:
    """Most steps take no time. The check of max_poll_interval_ms tells slow steps apart, and the
    mean of all is known."""
    now = asyncio.get_running_loop().time
    fill(cluster, 0, 300, topic=TOPIC)
    consumer = await start(cluster, TOPIC, group_id="group", heartbeat_interval_ms=100)
    count, began_at = 0, now()
    async for _ in consumer:
        count += 1
        if count in (200, 201, 202):
            await asyncio.sleep(5)
        if count == 300:
            break
    await consumer.getmany(timeout_ms=1)
    seen, elapsed = consumer.metrics(), 1000 * (now() - began_at)
    assert 4000 < seen.value("time-between-poll-max") < 10_000
    assert 14_000 < 300 * seen.value("time-between-poll-avg") <= elapsed + 1


async def test_connections(cluster: FakeCluster) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers) as admin:
        before = admin.metrics()
        await admin.list_topics()
        after = admin.metrics()
    check_form(after)
    assert after.value("connection-count") == before.value("connection-count")
    nodes = {metric.tags["node-id"] for metric in after.find("request-latency")}
    assert "0" in nodes
    total = after.value("request-total", "admin-client-metrics")
    assert total > before.value("request-total", "admin-client-metrics")
    each = after.find("request-total", "admin-client-node-metrics")
    assert sum(metric.value for metric in each) == total
    assert after.value("response-total", "admin-client-metrics") == total
    for name in ("outgoing-byte-total", "incoming-byte-total"):
        assert after.value(name, "admin-client-metrics") > before.value(
            name, "admin-client-metrics"
        )
    latencies = after.find("request-latency")
    assert sum(metric.value.count for metric in latencies) == total


async def test_a_broker_that_cannot_be_reached() -> None:
    async with FakeCluster() as cluster:
        client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers, request_timeout_ms=200)
    with pytest.raises(Exception, match="bootstrap"):
        await client.bootstrap()
    assert client.metrics().value("connection-failure-total") > 0
    assert client.metrics().value("connection-creation-total") == 0


def test_names_by_the_rules_of_kip_714() -> None:
    from aiokafka.metrics import Metric

    metric = Metric("producer-topic-metrics", "record-send-total", 1, MetricKind.COUNTER, "records")
    assert metric.telemetry_name == "org.apache.kafka.producer.topic.record.send.total"


async def test_a_snapshot_finds_its_metrics(cluster: FakeCluster) -> None:
    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, b"value", partition=0)
        seen = producer.metrics()
    assert seen[0] in seen and len(seen.find("record-send-total")) == 2
    latency = seen.value("request-latency", "producer-metrics")
    assert latency.buckets[-1] == (math.inf, latency.count)
    assert latency.mean == latency.sum / latency.count


async def test_what_was_not_counted_yet_is_0(cluster: FakeCluster) -> None:
    producer = new_producer(cluster, client_id="mine")
    sent = producer.metrics()
    assert sent.value("record-send-total") == sent.value("record-send-total", topic="orders") == 0
    assert sent.value("record-error-total", "producer-topic-metrics") == 0
    assert sent.value("request-total", node_id=1) == sent.value("throttle-time-total") == 0
    assert sent.value("txn-commit-time-ns-total") == 0
    assert sent.value("byte-total", client_id="mine", topic="orders") == 0
    read = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap_servers).metrics()
    assert read.value("records-consumed-total", topic="orders", partition=0) == 0
    assert read.value("bytes-consumed-total", topic="orders") == read.value("fetch-total") == 0


@pytest.mark.parametrize(
    ("name", "tags", "message"),
    [
        ("record-sent-total", {}, "no metric is called 'record-sent-total'; did you mean 'record-"),
        ("record_send_total", {}, "did you mean 'record-send-total'"),
        ("no", {}, "no metric is called 'no'$"),
        ("records-consumed-total", {}, "'records-consumed-total' is not among these metrics"),
        ("record-send-total", {"topics": "a"}, "with topics='a' is not among these metrics"),
        ("record-send-total", {"group": "app-info"}, "with group='app-info' is not among"),
        ("record-send-total", {"client_id": "b"}, "with client-id='b' is not among"),
        ("batch-split-total", {"topic": "a"}, "with topic='a' is not among these metrics"),
        ("commit-total", {}, "'commit-total' is not among these metrics"),
        ("compression-rate-avg", {}, "'compression-rate-avg' is not known"),
    ],
)
async def test_what_there_is_not_is_named(
    cluster: FakeCluster, name: str, tags: dict[str, str], message: str
) -> None:
    with pytest.raises(KeyError) as caught:
        new_producer(cluster, client_id="mine").metrics().value(name, **tags)
    assert re.search(message, caught.value.args[0])


async def test_the_metrics_of_many_partitions(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 0, 5, topic=TOPIC)
    far = [TopicPartition("absent", number) for number in range(50)]
    consumer = await start(cluster, assign=[T0, *far])
    await consumer.getone()
    consumer.seek(far[0], 7)
    seen = consumer.metrics()
    check_form(seen)
    every = list(seen)
    assert len(every) == len(seen) and seen[-1] == every[-1] and seen[:3] == tuple(every[:3])
    for name in ("records-lag", "records-lead", "position", "paused", "records-consumed-total"):
        assert seen.find(name) == [metric for metric in every if metric.name == name]
    assert len(seen.find("paused")) == 51
    assert seen.value("position", topic="absent", partition=0) == 7
    assert seen.value("records-lead", topic=TOPIC, partition=0) == 1
    # What was read does not change any more.
    await consumer.getone()
    assert seen.value("records-consumed-total", topic=TOPIC, partition=0) == 1
    whole = list(seen.without_partitions())
    assert whole == [metric for metric in every if "partition" not in metric.tags]


async def test_health_as_data(cluster: FakeCluster, start: Start) -> None:
    consumer = await start(cluster, assign=[T0])
    async with new_producer(cluster) as producer:
        for health in (consumer.health(), producer.health()):
            plain = json.loads(json.dumps(health.as_dict()))
            assert plain["state"] == "running" and plain["unreachable"] == []
            assert "last_exception" not in plain


async def test_topics_that_are_read_no_more_leave_the_numbers(
    cluster: FakeCluster, start: Start
) -> None:
    names = [f"short-lived-{number}" for number in range(5)]
    consumer = await start(cluster, assign=[])
    for name in names:
        await cluster.create_topic(name)
        fill(cluster, 0, 1, topic=name)
        consumer.assign([TopicPartition(name, 0)])
        await consumer.getone()
    seen = consumer.metrics()
    counts = seen.find("records-consumed-total", topic=names[-1])
    assert len(counts) == 2  # of the topic and of its partition
    topics = {m.tags["topic"] for m in seen.find("records-consumed-total") if "topic" in m.tags}
    assert topics == {names[-1]}
    assert seen.value("records-consumed-total") == 5


def test_counters_do_not_shrink_when_brokers_are_many() -> None:
    traffic = Traffic()
    for node_id in range(1005):
        traffic.of(node_id).requests += 1
    seen = traffic.read("client", "producer", 0, None)
    assert len(seen.find("request-total", group="producer-node-metrics")) == 1000
    assert seen.value("request-total", group="producer-metrics") == 1005


@pytest.mark.parametrize("version", ["0.10.2", "1.1"])
async def test_the_lead_of_a_broker_that_does_not_tell_where_a_log_begins(
    version: str, start: Start
) -> None:
    """It is absent then, and not off by one."""
    async with FakeCluster(as_version=version) as cluster:
        await cluster.create_topic(TOPIC)
        fill(cluster, 0, 5, topic=TOPIC)
        consumer = await start(cluster, assign=[T0])
        for _ in range(3):
            await consumer.getone()
        seen = consumer.metrics()
        assert seen.value("records-lag", partition=0) == 2
        lead = [metric.value for metric in seen.find("records-lead", partition=0)]
        assert lead == ([] if version == "0.10.2" else [3])
