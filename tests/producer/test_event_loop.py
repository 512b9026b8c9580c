"""The event loop: callbacks that send and complete, interrupts, context variables, late loops."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from contextvars import ContextVar
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.errors import IllegalStateError, KafkaError
from aiokafka.metrics import ProducerMetricsCollector
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.protocol.messages.sasl import SaslHandshakeRequest
from aiokafka.testing import FakeCluster, Hold, Security
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.producers import TOPIC, new_producer, results, values


def test_the_last_response_comes_while_the_application_is_busy() -> None:
    """A batch that is not full waits for a busy application. With nothing in flight any more, and
    no new batch, it was forgotten until its time was up.
    """

    async def main(_: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC, 2)
            size: Any = {"max_batch_size": 90_000_000, "max_request_size": 100_000_000}
            async with new_producer(
                cluster,
                max_in_flight_requests_per_connection=1,
                buffer_memory=200_000_000,
                **size,
            ) as producer:
                await producer.send_and_wait(TOPIC, b"warm", partition=0)
                release = asyncio.Event()
                with cluster.intercept(ProduceRequest, Hold(release)) as held:
                    first = await producer.send(TOPIC, b"first", partition=0)
                    await held.wait()
                    sent = [await producer.send(TOPIC, b"next", partition=1)]
                    # Longer than a batch waits for company.
                    await asyncio.sleep(0.01)
                    release.set()
                    while not first.done():
                        sent.append(await producer.send(TOPIC, b"x" * 50_000, partition=1))
                async with timeout(5):
                    await asyncio.gather(*sent)
            assert len(values(cluster, 1)) == len(sent)

    simulate(main)


class Raising(ProducerMetricsCollector):
    """Raises `error` when a batch of `partition` is written, or is put into a request."""

    def __init__(self, error: BaseException, partition: int, event: str = "completed") -> None:
        self.error = error
        self.partition = partition
        self.event = event

    def on_batch_completed(self, *, partition: int, **_: Any) -> None:
        if self.event == "completed" and partition == self.partition:
            raise self.error

    def on_batch_dispatched(self, *, partition: int, **_: Any) -> None:
        if self.event == "dispatched" and partition == self.partition:
            raise self.error


class FullDisk(logging.Handler):
    """Breaks what logs a failure of the collector."""

    def emit(self, record: logging.LogRecord) -> None:
        if "metrics collector" in record.getMessage():
            raise RuntimeError("disk full")


@pytest.fixture
def full_disk() -> Any:
    handler = FullDisk()
    log = logging.getLogger("aiokafka.producer.producer")
    log.addHandler(handler)
    yield
    log.removeHandler(handler)


@pytest.mark.parametrize("event", ["completed", "dispatched"])
@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.usefixtures("full_disk")
async def test_an_exception_in_a_callback_ends_the_producer(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture, event: str, acks: Any
) -> None:
    collector = Raising(ValueError("broken"), 1, event)
    producer = new_producer(cluster, acks=acks, metrics_collector=collector)
    await producer.start()
    await producer.send_and_wait(TOPIC, b"v", partition=0)
    futures = [await producer.send(TOPIC, b"v", partition=number) for number in (0, 1, 2)]
    async with timeout(10):  # the limit of a hang, which is two minutes
        await asyncio.wait(futures)
        with pytest.raises(RuntimeError, match="disk full"):
            await producer.send_and_wait(TOPIC, b"w", partition=0)
        await results(futures)
        await producer.stop()
    assert "sender-0 failed: disk full" in caplog.text


@pytest.mark.usefixtures("full_disk")
def test_an_exception_while_the_connection_takes_nothing() -> None:
    """The task of the broker waits for the connection, which re-authenticates, and could not say
    for long what has happened. The producer ends at once.
    """

    async def main(_: Simulation) -> None:
        security = Security(users={"alice": "secret"}, session_lifetime_ms=60_000)
        login: Any = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
        login |= {"sasl_plain_username": "alice", "sasl_plain_password": "secret"}
        one, two = asyncio.Event(), asyncio.Event()
        async with FakeCluster(security=security) as cluster:
            await cluster.create_topic(TOPIC, 3)
            collector = Raising(ValueError("broken"), 1)
            producer = new_producer(cluster, metrics_collector=collector, **login)
            await producer.start()
            await producer.send_and_wait(TOPIC, b"v", partition=0)
            # The session ends after 60 seconds, and is renewed after 48 at the earliest.
            await asyncio.sleep(45)
            cluster.intercept(ProduceRequest, Hold(one))
            cluster.intercept(SaslHandshakeRequest, Hold(two))
            futures = [await producer.send(TOPIC, b"v", partition=1)]
            await asyncio.sleep(12)
            futures.append(await producer.send(TOPIC, b"v", partition=2))
            await asyncio.sleep(1)
            one.set()
            async with timeout(5):
                assert [type(one) for one in await results(futures)][1] is RuntimeError
            two.set()
            await producer.stop()

    simulate(main)


@pytest.mark.parametrize("event", ["completed", "dispatched"])
def test_a_collector_that_ends_the_program(event: str) -> None:
    """What is no Exception leaves the loop. If the program goes on then, such as to stop what it
    has, nothing waits for what will not come.
    """
    loop = asyncio.new_event_loop()
    cluster = FakeCluster()
    futures: list[asyncio.Future[Any]] = []

    async def begin() -> AIOKafkaProducer:
        await cluster.start()
        await cluster.create_topic(TOPIC, partitions=3)
        collector = Raising(SystemExit(3), 1, event)
        producer = new_producer(cluster, metrics_collector=collector)
        await producer.start()
        await producer.send_and_wait(TOPIC, b"v", partition=0)
        return producer

    async def send(producer: AIOKafkaProducer) -> None:
        futures.extend([await producer.send(TOPIC, b"v", partition=one) for one in (0, 1, 2)])
        await asyncio.wait(futures)
        await asyncio.Event().wait()

    async def end(producer: AIOKafkaProducer) -> None:
        async with timeout(10):  # the limit of a hang, which is two minutes
            await asyncio.wait(futures)
            await producer.stop()
        await cluster.stop()

    try:
        producer = loop.run_until_complete(begin())
        with pytest.raises(SystemExit):
            loop.run_until_complete(send(producer))
        loop.run_until_complete(end(producer))
        assert all(future.done() for future in futures)
        assert {type(future.exception()) for future in futures} <= {type(None), SystemExit}
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()


class Dropping(ProducerMetricsCollector):
    """Drops all that waits as soon as a batch fails."""

    producer: AIOKafkaProducer | None = None

    def on_batch_failed(self, **_: Any) -> None:
        if self.producer is not None:
            self.producer.abort_buffered()


async def test_a_collector_that_drops_what_waits(cluster: FakeCluster) -> None:
    """The producer was about to drop the same batches, and raised an error of its own."""
    collector = Dropping()
    async with new_producer(cluster, metrics_collector=collector) as producer:
        collector.producer = producer
        release = asyncio.Event()
        with cluster.intercept(ProduceRequest, Hold(release)) as held:
            futures = [await producer.send(TOPIC, b"first", partition=0)]
            await held.wait()
            for _ in range(3):
                batch = producer.create_batch()
                batch.append(value=b"v", key=None, timestamp=None)
                futures.append(await producer.send_batch(batch, TOPIC, partition=0))
            producer.abort_buffered()
            release.set()
        dropped = (await results(futures))[1:]
        assert [type(error) for error in dropped] == [KafkaError] * 3
        await producer.send_and_wait(TOPIC, b"later", partition=0)
    assert values(cluster) == [b"first", b"later"]


# -- A producer made before its event loop runs


def made_outside(loop: asyncio.AbstractEventLoop, **options: Any) -> AIOKafkaProducer:
    with pytest.warns(DeprecationWarning, match="without a running event loop") as seen:
        producer = AIOKafkaProducer(loop=loop, **options)
    assert seen[0].filename == __file__
    return producer


@pytest.mark.parametrize("transactional_id", [None, "id"])
def test_made_for_a_loop_that_runs_later(transactional_id: str | None) -> None:
    async def use(cluster: FakeCluster, producer: AIOKafkaProducer) -> None:
        async with producer:
            if transactional_id is None:
                await producer.send_and_wait(TOPIC, b"v", partition=0)
            else:
                async with producer.transaction():
                    await producer.send(TOPIC, b"v", partition=0)
        assert values(cluster) == [b"v"]

    async def start() -> FakeCluster:
        cluster = FakeCluster()
        await cluster.start()
        await cluster.create_topic(TOPIC)
        return cluster

    loop = asyncio.new_event_loop()
    try:
        cluster = loop.run_until_complete(start())
        producer = made_outside(
            loop, bootstrap_servers=cluster.bootstrap_servers, transactional_id=transactional_id
        )
        loop.run_until_complete(use(cluster, producer))
        loop.run_until_complete(cluster.stop())
    finally:
        loop.close()


@pytest.mark.real_time
@pytest.mark.parametrize("call", ["send", "send_and_wait"])
async def test_a_call_in_the_loop_of_another_thread(cluster: FakeCluster, call: str) -> None:
    """Otherwise the record would wait until something else wakes the producer's event loop."""
    async with new_producer(cluster) as producer:
        await producer.send_and_wait(TOPIC, b"here", partition=0)
        with pytest.raises(IllegalStateError, match="another event loop"):
            await asyncio.to_thread(
                asyncio.run, getattr(producer, call)(TOPIC, b"there", partition=0)
            )
        await producer.send_and_wait(TOPIC, b"here", partition=0)
    assert values(cluster) == [b"here", b"here"]


def test_no_loop_runs_after_it_was_made() -> None:
    loop = asyncio.new_event_loop()
    try:
        made_outside(loop)
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        with pytest.raises(ValueError, match="linger_ms"):
            AIOKafkaProducer(loop=loop, linger_ms=-1)
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
    finally:
        loop.close()


def test_without_any_loop_the_class_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"AIOKafkaProducer.*async def"):
        AIOKafkaProducer()


def test_no_loop_is_a_wrong_argument() -> None:
    with pytest.raises(TypeError, match="loop"):
        AIOKafkaProducer(loop="uvloop")


async def test_the_running_loop_counts(cluster: FakeCluster) -> None:
    with pytest.warns(DeprecationWarning, match="no effect"):
        producer = new_producer(cluster, loop=asyncio.get_running_loop())
    async with producer:
        await producer.send_and_wait(TOPIC, b"v")


# -- What interrupts the program, as Ctrl-C does, while a callback of the event loop runs


class WhileSending(ProducerMetricsCollector):
    def on_batch_dispatched(self, **facts: Any) -> None:
        raise KeyboardInterrupt


class WhileSettling(ProducerMetricsCollector):
    def on_batch_completed(self, **facts: Any) -> None:
        raise KeyboardInterrupt


@pytest.mark.parametrize("collector", [WhileSending, WhileSettling])
def test_the_program_hears_of_it_and_no_call_waits_for_ever(
    collector: type[ProducerMetricsCollector],
) -> None:
    outcomes: list[BaseException] = []

    async def main() -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic(TOPIC)
            producer = new_producer(cluster, metrics_collector=collector())
            await producer.start()
            try:
                await producer.send_and_wait(TOPIC, b"value", partition=0)
            except BaseException as error:
                outcomes.append(error)
                raise
            finally:
                await producer.stop(timeout=0)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())
    (outcome,) = outcomes
    assert isinstance(outcome, (KafkaError, asyncio.CancelledError))


# -- Context variables of the program that sends: they are not kept for work in the background


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
