"""Context variables of the program that sends: they are not kept for work in the background."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextvars import ContextVar
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.metrics import ProducerMetricsCollector
from aiokafka.testing import FakeCluster, Security
from tests.support.producers import TOPIC, new_producer


class Request:
    """What a web application keeps in a context variable while it answers."""

    def __init__(self, name: str) -> None:
        self.name = name


REQUEST: ContextVar[Request] = ContextVar("request")


def current() -> str:
    return REQUEST.get(Request("none")).name


class Contexts(ProducerMetricsCollector):
    """Notes in whose name it is called."""

    def __init__(self) -> None:
        self.dispatched: list[str] = []
        self.completed: list[str] = []

    def on_batch_dispatched(self, **told: Any) -> None:
        self.dispatched.append(current())

    def on_batch_completed(self, **told: Any) -> None:
        self.completed.append(current())


async def serve(name: str, producer: AIOKafkaProducer, partition: int) -> weakref.ref[Request]:
    """Answer one request, whose object nothing else refers to."""
    request = Request(name)
    REQUEST.set(request)
    await producer.send_and_wait(TOPIC, name.encode(), partition=partition)
    assert current() == name
    return weakref.ref(request)


async def serve_some(producer: AIOKafkaProducer) -> list[weakref.ref[Request]]:
    """Answer requests in tasks, the first that use the second broker among them."""
    return [
        await asyncio.create_task(serve(f"request-{number}", producer, number % 2))
        for number in range(4)
    ]


@pytest.mark.parametrize("linger_ms", [0, 20])
async def test_senders_run_in_the_context_of_the_start(linger_ms: int) -> None:
    collector = Contexts()
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic(TOPIC, assignment={0: (0,), 1: (1,)})
        options: dict[str, Any] = {"metrics_collector": collector, "linger_ms": linger_ms}
        producer = new_producer(cluster, max_block_ms=1000, request_timeout_ms=2000, **options)
        token = REQUEST.set(Request("start"))
        await producer.start()
        REQUEST.reset(token)
        served = await serve_some(producer)
        assert collector.dispatched == ["start"] * 4
        # That of the connection; a simulated one has the context of the other side.
        assert len(collector.completed) == 4 and set(collector.completed) <= {"start", "none"}
        # asyncio drops the timers of timeouts that were not needed when their time comes.
        await asyncio.sleep(5)
        gc.collect()
        assert [request() for request in served] == [None] * 4
        await producer.stop()


async def test_connections_are_made_in_the_context_of_the_start() -> None:
    """Functions that give passwords and tokens are called there."""
    asked: list[str] = []

    def password() -> str:
        asked.append(current())
        return "secret"

    security = Security(users={"alice": "secret"})
    async with FakeCluster(brokers=2, security=security) as cluster:
        await cluster.create_topic(TOPIC, assignment={0: (0,), 1: (1,)})
        producer = new_producer(
            cluster,
            security_protocol="SASL_PLAINTEXT",
            sasl_plain_username="alice",
            sasl_plain_password=password,
        )
        token = REQUEST.set(Request("start"))
        await producer.start()
        REQUEST.reset(token)
        await serve_some(producer)
        assert set(asked) == {"start"} and len(asked) >= 2
        await producer.stop()
