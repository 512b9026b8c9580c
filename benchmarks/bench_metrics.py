"""What metrics cost: CPU with them by CPU without: `python -m benchmarks.bench_metrics`.

One process reads and sends records of 100 B, in turn without anything, with a collector and a
snapshot each second ("collector"), and with OpenTelemetry's metrics ("otel"). The brokers, of
`aiokafka.testing`, are in another process. Ratios are taken within a round; the median counts.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from statistics import median
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.metrics import ConsumerMetricsCollector, ProducerMetricsCollector
from aiokafka.testing import FakeCluster

VALUE = b"v" * 100
PLACE = TopicPartition("stored", 0)
PASSES = 10
"""How often what is stored is read: once is over too soon to be measured."""
MODES = ("off", "collector", "otel")
TARGETS = {"collector": 1.02, "otel": 1.05}


class Counts(ConsumerMetricsCollector, ProducerMetricsCollector):
    """Adds up what it is told, as collectors do."""

    def __init__(self) -> None:
        self.seen: dict[str, float] = {}

    def _add(self, name: str, value: float) -> None:
        self.seen[name] = self.seen.get(name, 0.0) + value

    def on_batch_dispatched(self, *, queue_time_seconds: float, **_: Any) -> None:
        self._add("queued", queue_time_seconds)

    def on_batch_completed(self, *, record_count: int, **_: Any) -> None:
        self._add("sent", record_count)

    def on_fetch_completed(self, *, size_bytes: int, **_: Any) -> None:
        self._add("fetched", size_bytes)

    def on_records_consumed(self, *, record_count: int, **_: Any) -> None:
        self._add("read", record_count)

    def on_records_lag(self, *, lag: int, **_: Any) -> None:
        self._add("lag", lag)


def collector(mode: str, role: str) -> dict[str, Any]:
    """Return the options of a client."""
    if mode == "off":
        return {}
    if mode == "collector":
        return {"metrics_collector": Counts()}
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from aiokafka.otel import ConsumerTelemetry, ProducerTelemetry

    provider = MeterProvider([InMemoryMetricReader()])
    made = ConsumerTelemetry if role == "consumer" else ProducerTelemetry
    return {"metrics_collector": made(meter_provider=provider)}


@asynccontextmanager
async def scraped(client: Any, mode: str) -> AsyncIterator[None]:
    """Ask for the metrics each second, unless they are off."""

    def scrape() -> None:
        nonlocal timer
        len(list(client.metrics()))
        timer = loop.call_later(1, scrape)

    loop = asyncio.get_running_loop()
    timer = None
    if mode != "off":
        timer = loop.call_soon(scrape)
    try:
        yield
    finally:
        if timer is not None:
            timer.cancel()


async def read(servers: str, mode: str, count: int) -> float:
    """Return the CPU seconds of reading all that is stored."""
    consumer = AIOKafkaConsumer(bootstrap_servers=servers, **collector(mode, "consumer"))
    async with consumer, scraped(consumer, mode):
        gc.collect()
        begun = time.process_time()
        consumer.assign([PLACE])
        for _ in range(PASSES):
            consumer.seek(PLACE, 0)
            taken = 0
            while taken < count:
                for records in (await consumer.getmany(timeout_ms=5000, max_records=500)).values():
                    taken += len(records)
        return (time.process_time() - begun) / PASSES


async def send(servers: str, mode: str, count: int) -> float:
    """Return the CPU seconds of sending so many records."""
    producer = AIOKafkaProducer(bootstrap_servers=servers, **collector(mode, "producer"))
    async with producer, scraped(producer, mode):
        await producer.send_and_wait("sent", VALUE)
        gc.collect()
        begun = time.process_time()
        for _ in range(count // 500):
            await asyncio.gather(*[await producer.send("sent", VALUE) for _ in range(500)])
        return time.process_time() - begun


async def serve(count: int) -> None:
    """Be the brokers until the input ends."""
    async with FakeCluster() as cluster:
        await cluster.create_topic("stored")
        await cluster.create_topic("sent", partitions=4)
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for _ in range(count // 500):
                for _ in range(500):
                    await producer.send("stored", VALUE)
                await producer.flush()
        print(cluster.bootstrap_servers, flush=True)
        await asyncio.to_thread(sys.stdin.read)


@contextmanager
def brokers(count: int) -> Iterator[str]:
    """Start the brokers in another process, and give their address."""
    command = [sys.executable, "-m", "benchmarks.bench_metrics", "--serve", "--records", str(count)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:  # type: ignore[call-overload]
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()


def show(name: str, figures: list[dict[str, float]], count: int) -> None:
    """Print what a round of each mode has taken."""
    base = median(one["off"] for one in figures) / count * 1e6
    print(f"{name}: {base:.3f} us a record without")
    for mode, target in TARGETS.items():
        ratios = sorted(one[mode] / one["off"] for one in figures)
        middle = median(ratios)
        verdict = "met" if middle <= target else "missed"
        print(
            f"  {mode:10} {middle:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}), "
            f"target {target:.2f}: {verdict}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.records))
        return
    with brokers(options.records) as servers:
        for name, work in (("read", read), ("send", send)):
            figures = []
            asyncio.run(work(servers, "otel", options.records))  # to be warm
            for number in range(options.rounds):
                # Each round begins with another mode.
                modes = MODES[number % 3 :] + MODES[: number % 3]
                figures.append(
                    {mode: asyncio.run(work(servers, mode, options.records)) for mode in modes}
                )
            show(name, figures, options.records)


if __name__ == "__main__":
    main()
