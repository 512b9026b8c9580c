"""The numbers of a ParallelConsumer: exactly the work that was done."""

from __future__ import annotations

import asyncio
import json

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from aiokafka.debug import snapshot
from aiokafka.metrics.prometheus import KafkaCollector
from aiokafka.otel import observe_clients
from aiokafka.parallel import ParallelConsumer, RetryTopics
from aiokafka.testing import FakeCluster
from tests.parallel.support import (
    Record,
    Runs,
    add_topics,
    make_consumer,
    make_producer,
    until,
    written,
)
from tests.support.spans import Seen


async def test_what_was_done(cluster: FakeCluster) -> None:
    await add_topics(cluster)
    for number in range(10):
        cluster.log("t").append(b"%d" % number)
    release = asyncio.Event()

    async def handle(record: Record) -> None:
        if record.value == b"3":
            await release.wait()

    consumer = make_consumer(cluster, "t", client_id="worker")
    async with ParallelConsumer(consumer, concurrency=4) as parallel:
        assert parallel.metrics().value("records-finished-total") == 0
        runs = Runs(parallel, handle)
        await until(lambda: parallel.metrics().value("records-finished-total") == 9)
        await asyncio.sleep(0.01)
        seen = parallel.metrics()
        assert seen.value("records-running") == seen.value("records-unfinished") == 1
        assert seen.value("unfinished-bytes") > 0
        assert seen.value("records-uncommitted-max") == 7
        assert seen.value("process-time-total") >= 10
        assert seen.value("records-failed-total") == seen.value("partitions-paused") == 0
        assert {metric.tags["client-id"] for metric in seen} == {"worker"}
        registry = CollectorRegistry()
        registry.register(KafkaCollector([parallel, consumer]))
        text = generate_latest(registry).decode()
        assert 'kafka_parallel_consumer_records_finished_total{client_id="worker"} 9.0' in text
        assert json.dumps(seen.as_list()) and json.dumps(snapshot(parallel))
        release.set()
        await until(lambda: parallel.unfinished == 0)
        await runs.stop()
    seen = parallel.metrics()
    assert seen.value("records-finished-total") == 10
    assert seen.value("records-running") == 0
    busy = seen.value("process-time-total")
    assert parallel.metrics().value("process-time-total") == busy


async def test_records_that_fail(cluster: FakeCluster) -> None:
    await add_topics(cluster)
    cluster.log("t").append(b"bad")
    cluster.log("t").append(b"good")

    async def handle(record: Record) -> None:
        if record.value == b"bad":
            raise LookupError

    async with make_producer(cluster) as producer:
        retry = RetryTopics(producer, [30, 60])
        consumer = make_consumer(cluster, "t")
        async with ParallelConsumer(consumer, retry=retry) as parallel:
            runs = Runs(parallel, handle)
            await until(lambda: written(cluster, "t-dead-letter"))
            await until(lambda: parallel.unfinished == 0)
            seen = parallel.metrics()
            await runs.stop()
    telemetry = Seen()
    observe_clients(parallel, meter_provider=telemetry.metering)
    (sent,) = telemetry.points("kafka.retry_topics.record_dead_letter_total")
    assert (sent.value, sent.attributes["topic"]) == (1, "t")
    (done,) = telemetry.points("kafka.parallel_consumer.records_finished_total")
    assert done.value == 4
    telemetry.close()
    assert seen.value("record-retry-total", topic="t") == 2
    assert seen.value("record-dead-letter-total", topic="other") == 0
    with pytest.raises(KeyError, match="did you mean 'record-dead-letter-total'"):
        seen.value("record-dead-letters-total")
    assert seen.value("record-dead-letter-total", topic="t") == 1
    assert seen.value("records-failed-total") == 3
    assert seen.value("records-finished-total") == 4
    assert seen.value("records-waiting") == 0
