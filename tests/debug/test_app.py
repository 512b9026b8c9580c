"""The ASGI application: probes, metrics and snapshots over HTTP."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from aiokafka import TopicPartition
from aiokafka.debug import DebugApp
from aiokafka.errors import ProducerFenced
from aiokafka.metrics import MetricsSnapshot
from aiokafka.testing import FakeCluster
from tests.support.consumers import Start, fill
from tests.support.producers import TOPIC, new_producer, transactional

T0 = TopicPartition(TOPIC, 0)


def browse(app: DebugApp, root: str = "") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, root_path=root)
    return httpx.AsyncClient(transport=transport, base_url="http://service")


async def test_all_pages(cluster: FakeCluster, start: Start) -> None:
    fill(cluster, 0, 5, topic=TOPIC)
    consumer = await start(cluster, assign=[T0], client_id="reader")
    await consumer.getone()
    async with new_producer(cluster, client_id="writer") as producer:
        async with browse(DebugApp(consumer, producer)) as client:
            live, ready, debug, metrics = [
                await client.get(path)
                for path in ("/health/live", "/health/ready", "/debug", "/metrics")
            ]
    assert [each.status_code for each in (live, ready, debug, metrics)] == [200] * 4
    assert [one["state"] for one in ready.json()["clients"]] == ["running", "running"]
    assert live.headers["cache-control"] == "no-store"
    reader, writer = debug.json()["clients"]
    assert reader["assignment"][0]["lag"] == 4
    assert (reader["client_id"], writer["client_id"]) == ("reader", "writer")
    families = {family.name for family in text_string_to_metric_families(metrics.text)}
    assert {"kafka_consumer_metadata_age", "kafka_producer_record_send"} <= families


async def test_probes_tell_what_a_restart_mends(cluster: FakeCluster) -> None:
    producer = new_producer(cluster, request_timeout_ms=500)
    other = transactional(cluster)
    async with browse(DebugApp(producer)) as client, browse(DebugApp(other)) as second:

        async def status() -> list[int]:
            return [
                (await client.get(f"/health/{probe}")).status_code for probe in ("live", "ready")
            ]

        assert await status() == [200, 503]  # not started yet
        async with producer:
            assert await status() == [200, 200]
            await producer.send_and_wait(TOPIC, b"value", partition=0)
            await cluster.stop_broker(0)
            future = await producer.send(TOPIC, b"value", partition=0)
            while await status() == [200, 200]:
                await asyncio.sleep(0.001)
            assert await status() == [200, 503]  # no restart brings the broker back
            await cluster.start_broker(0)
            await future
            assert await status() == [200, 200]
        assert await status() == [200, 503]

        async with other:
            async with transactional(cluster):
                pass
            with pytest.raises(ProducerFenced):
                async with other.transaction():
                    await other.send_and_wait(TOPIC, b"value", partition=0)
            failed = await second.get("/health/live")
            assert failed.status_code == 503
            assert failed.json()["clients"][0]["state"] == "failed"


async def test_clients_of_the_process(cluster: FakeCluster) -> None:
    app = DebugApp()
    async with browse(app) as client:
        async with new_producer(cluster, client_id="of-the-process"):
            names = [one["client"] for one in (await client.get("/health/ready")).json()["clients"]]
            assert any("of-the-process" in name for name in names)
        after = [one["client"] for one in (await client.get("/health/ready")).json()["clients"]]
    assert not any("of-the-process" in name for name in after)


async def test_what_is_asked_wrongly() -> None:
    async with browse(DebugApp(), root="/kafka") as client:
        assert (await client.get("/kafka/health/live/")).status_code == 200
        missing = await client.get("/kafka/elsewhere")
        assert missing.status_code == 404 and "/debug" in missing.text
        refused = await client.post("/kafka/debug")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
        head = await client.head("/kafka/debug")
        assert (head.status_code, head.content) == (200, b"")
        assert int(head.headers["content-length"]) > 0


async def test_the_loop_goes_on_while_metrics_are_written() -> None:
    class Large:
        def metrics(self) -> MetricsSnapshot:
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(30)
            return MetricsSnapshot([])

    loop = asyncio.get_running_loop()
    async with browse(DebugApp(Large())) as client:
        assert (await client.get("/metrics")).status_code == 200


async def test_without_prometheus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    async with browse(DebugApp()) as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 501
    assert "aiokafka[prometheus]" in answer.text


async def test_servers_may_ask_for_a_lifespan() -> None:
    asked = iter(["lifespan.startup", "lifespan.shutdown"])
    told: list[Any] = []

    async def receive() -> dict[str, str]:
        return {"type": next(asked)}

    async def send(message: Any) -> None:
        told.append(message["type"])

    await DebugApp()({"type": "lifespan"}, receive, send)
    assert told == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    await DebugApp()({"type": "websocket"}, receive, send)
    assert told[-1] == "websocket.close"
