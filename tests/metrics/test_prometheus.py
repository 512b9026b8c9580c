"""What Prometheus reads of the clients of a process: scraped, and parsed by its own parser."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from aiokafka import TopicPartition
from aiokafka.debug import DebugApp
from aiokafka.metrics import MetricsSnapshot
from aiokafka.metrics._clients import clients, register, unregister
from aiokafka.metrics.prometheus import KafkaCollector
from aiokafka.testing import FakeCluster
from tests.support.consumers import Start, fill
from tests.support.producers import TOPIC, new_producer, numbers, results, send_all

Found = dict[tuple[str, tuple[tuple[str, str], ...]], float]

T0, T1 = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


@pytest.fixture(autouse=True)
def no_clients_of_other_tests() -> Iterator[None]:
    gc.collect()
    yield


def scrape(collector: KafkaCollector) -> Found:
    registry = CollectorRegistry()
    registry.register(collector)
    return parse(generate_latest(registry).decode())


def parse(text: str) -> Found:
    found: Found = {}
    for family in text_string_to_metric_families(text):
        names = {tuple(sorted(sample.labels.keys() - {"le"})) for sample in family.samples}
        assert len(names) <= 1, f"{family.name} has several sets of labels"
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def value(found: Found, name: str, **tags: str) -> float:
    return found[name, tuple(sorted(tags.items()))]


async def test_one_collector_for_all_clients(cluster: FakeCluster, start: Start) -> None:
    collector = KafkaCollector()
    fill(cluster, 0, 5, topic=TOPIC)
    consumer = await start(cluster, assign=[T0], client_id="reader")
    for _ in range(3):
        await consumer.getone()
    async with new_producer(cluster, client_id="writer", linger_ms=10) as producer:
        await results(await send_all(producer, numbers(4), partition=1))
        found = scrape(collector)
    writer, reader = {"client_id": "writer"}, {"client_id": "reader"}
    assert value(found, "kafka_producer_record_send_total", **writer) == 4
    assert value(found, "kafka_producer_topic_record_send_total", **writer, topic=TOPIC) == 4
    assert value(found, "kafka_consumer_fetch_manager_records_consumed_total", **reader) == 3
    where = {**reader, "topic": TOPIC, "partition": "0"}
    assert value(found, "kafka_consumer_fetch_manager_partition_records_lag", **where) == 2
    assert value(found, "kafka_consumer_fetch_manager_partition_position", **where) == 3
    queue = "kafka_producer_record_queue_time_seconds"
    assert value(found, f"{queue}_count", **writer) == 1
    assert value(found, f"{queue}_bucket", **writer, le="+Inf") == 1
    assert 0.01 <= value(found, f"{queue}_sum", **writer) < 60
    assert value(found, "kafka_series_dropped") == 0


async def test_clients_of_one_name_share_their_series(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 0, 5, topic=TOPIC)
    same = {"client_id": "twins"}
    first = await start(cluster, assign=[T0], **same)
    second = await start(cluster, assign=[T0], **same)
    for consumer, count in ((first, 2), (second, 3)):
        for _ in range(count):
            await consumer.getone()
    found = scrape(KafkaCollector([first, second]))
    assert value(found, "kafka_consumer_fetch_manager_records_consumed_total", **same) == 5
    where = {**same, "topic": TOPIC, "partition": "0"}
    assert value(found, "kafka_consumer_fetch_manager_partition_position", **where) == 3
    assert value(found, "kafka_consumer_fetch_manager_partition_records_lag", **where) == 3


async def test_sums_do_not_fall_when_one_of_the_clients_is_gone(cluster: FakeCluster) -> None:
    same = {"client_id": "twins"}
    names = ("kafka_producer_record_send_total", "kafka_producer_record_queue_time_seconds_count")
    collector = KafkaCollector()

    def sums() -> list[float]:
        found = scrape(collector)
        return [value(found, name, **same) for name in names]

    async with new_producer(cluster, **same) as first:
        async with new_producer(cluster, **same) as second:
            for number in range(3):
                await second.send_and_wait(TOPIC, b"value", partition=number)
            assert sums() == [3, 3]
        del second
        gc.collect()
        assert sums() == [3, 3]
        await first.send_and_wait(TOPIC, b"value")
        assert sums() == [4, 4]
        third = new_producer(cluster, **same)
        assert sums() == [4, 4]
        await third.stop()
    # Without any the series ends, and what is kept with it: later clients begin at zero.
    del first, third
    gc.collect()
    assert not [name for name, labels in scrape(collector) if ("client_id", "twins") in labels]
    later = new_producer(cluster, **same)
    assert sums() == [0, 0]
    await later.stop()


def test_clients_are_made_while_another_thread_lists_them() -> None:
    class Client:
        def metrics(self) -> MetricsSnapshot:
            return MetricsSnapshot([])

    def keep_listing() -> None:
        while not is_done.is_set():
            clients()

    is_done = threading.Event()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as pool:
            listing = pool.submit(keep_listing)
            try:
                made = [Client() for _ in range(2000)]
                for client in made:
                    register(client)
            finally:
                is_done.set()
            listing.result()
    finally:
        sys.setswitchinterval(interval)
    assert {id(client) for client in made} <= {id(client) for client in clients()}
    unregister(client)
    del client, made
    gc.collect()
    assert not [one for one in clients() if type(one) is Client]


async def test_sets_of_labels_are_bounded(cluster: FakeCluster) -> None:
    for number in range(5):
        await cluster.create_topic(f"topic-{number}")
    async with new_producer(cluster, client_id="writer") as producer:
        for number in range(5):
            await producer.send_and_wait(f"topic-{number}", b"value")
        few = scrape(KafkaCollector([producer], most_series=2))
        none = scrape(KafkaCollector([producer], topics=False))
    names = [name for name, _ in few]
    assert names.count("kafka_producer_topic_record_send_total") == 2
    assert value(few, "kafka_series_dropped") > 0
    assert not [name for name, labels in none if "topic" in dict(labels)]
    assert value(none, "kafka_producer_record_send_total", client_id="writer") == 5
    for wrong in (0, float("nan")):
        with pytest.raises(ValueError, match="most_series"):
            KafkaCollector(most_series=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="most_series"):
        KafkaCollector(most_series="5")  # type: ignore[arg-type]


async def test_exporters_refuse_what_has_no_metrics() -> None:
    otel = pytest.importorskip("aiokafka.otel", exc_type=ImportError)
    async with FakeCluster() as cluster:
        producer = new_producer(cluster)
        await producer.stop()
        for wrong in (producer, [object()], [[producer]], [type(producer)]):
            with pytest.raises(TypeError, match=r"^only: "):
                KafkaCollector(wrong)  # type: ignore[arg-type]
        for take in (otel.observe_clients, DebugApp):
            with pytest.raises(TypeError, match=r"^only: "):
                take([producer])


async def test_a_client_that_is_gone(cluster: FakeCluster) -> None:
    producer = new_producer(cluster, client_id="short-lived")
    label = ("client_id", "short-lived")
    assert any(label in labels for _, labels in scrape(KafkaCollector()))
    del producer
    gc.collect()
    assert not any(label in labels for _, labels in scrape(KafkaCollector()))


async def test_scrapes_from_another_thread_while_clients_work(
    cluster: FakeCluster, start: Start
) -> None:
    registry = CollectorRegistry()
    fill(cluster, 0, 300, topic=TOPIC)
    consumer = await start(cluster, assign=[T0], client_id="reader")
    registry.register(KafkaCollector([consumer]))
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    url = f"http://127.0.0.1:{server.server_port}/metrics"

    def read() -> str:
        with urllib.request.urlopen(url, timeout=30) as response:
            return str(response.read().decode())

    try:
        seen = []
        for _ in range(3):
            text = asyncio.create_task(asyncio.to_thread(read))
            for _ in range(100):
                await consumer.getone()
            found = parse(await text)
            seen.append(
                value(
                    found,
                    "kafka_consumer_fetch_manager_records_consumed_total",
                    client_id="reader",
                )
            )
        found = parse(await asyncio.to_thread(read))
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        await asyncio.to_thread(thread.join)
    assert seen == sorted(seen)
    name = "kafka_consumer_fetch_manager_records_consumed_total"
    assert value(found, name, client_id="reader") == 300
