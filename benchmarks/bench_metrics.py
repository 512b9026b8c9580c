"""What metrics cost: CPU with them by CPU without: `python -m benchmarks.bench_metrics`.

One process reads and sends records of 100 B, in turn without anything, with a collector and a
snapshot each second ("collector"), and with OpenTelemetry's metrics ("otel"). The brokers, of
`aiokafka.testing`, are in another process. The turns are short, so that a busy machine slows all
modes alike. Ratios are taken within a turn; the median counts.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from statistics import median
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.metrics import ConsumerMetricsCollector, ProducerMetricsCollector
from aiokafka.testing import FakeCluster

VALUE = b"v" * 100
PLACE = TopicPartition("stored", 0)
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


class Scrapes:
    """Asks a client for its metrics once for each second of CPU that its passes have taken."""

    def __init__(self, client: Any, mode: str) -> None:
        self._client = client
        self._is_on = mode != "off"
        self._used = 0.0

    def after(self, began_at: float) -> float:
        """Return the CPU seconds since `began_at`, with those of a snapshot if one is due."""
        self._used += time.process_time() - began_at
        if self._is_on and self._used >= 1:
            self._used = 0.0
            len(list(self._client.metrics()))
        return time.process_time() - began_at


class Reader:
    """Reads all that is stored, again in each pass."""

    def __init__(self, servers: str, mode: str, count: int) -> None:
        self.client = AIOKafkaConsumer(bootstrap_servers=servers, **collector(mode, "consumer"))
        self._scrapes = Scrapes(self.client, mode)
        self._count = count

    async def run(self) -> float:
        """Return the CPU seconds of a pass."""
        consumer = self.client
        consumer.assign([PLACE])
        gc.collect()
        begun = time.process_time()
        consumer.seek(PLACE, 0)
        taken = 0
        while taken < self._count:
            for records in (await consumer.getmany(timeout_ms=5000, max_records=500)).values():
                taken += len(records)
        seconds = self._scrapes.after(begun)
        # Its fetch of what comes next must not run in the passes of others.
        consumer.unsubscribe()
        return seconds


class Sender:
    """Sends as many records in each pass."""

    def __init__(self, servers: str, mode: str, count: int) -> None:
        self.client = AIOKafkaProducer(bootstrap_servers=servers, **collector(mode, "producer"))
        self._scrapes = Scrapes(self.client, mode)
        # A record takes so much longer to send than to read.
        self._count = count // 10

    async def run(self) -> float:
        """Return the CPU seconds of a pass."""
        producer = self.client
        gc.collect()
        begun = time.process_time()
        for _ in range(self._count // 500):
            await asyncio.gather(*[await producer.send("sent", VALUE) for _ in range(500)])
        return self._scrapes.after(begun)


async def measure(
    made: type[Reader] | type[Sender], servers: str, passes: int, count: int
) -> list[dict[str, float]]:
    """Return what each pass of each mode has taken. They take turns."""
    works = {mode: made(servers, mode, count) for mode in MODES}
    async with AsyncExitStack() as stack:
        for work in works.values():
            await stack.enter_async_context(work.client)
            await work.run()  # to be warm
        figures = []
        for number in range(passes):
            # Each begins with another mode.
            modes = MODES[number % 3 :] + MODES[: number % 3]
            figures.append({mode: await works[mode].run() for mode in modes})
        return figures


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


def show(name: str, figures: list[dict[str, float]]) -> None:
    """Print what the modes have taken, as ratios within the turns."""
    print(f"{name}: {len(figures)} passes of {median(one['off'] for one in figures) * 1e3:.1f} ms")
    for mode, target in TARGETS.items():
        ratios = sorted(one[mode] / one["off"] for one in figures)
        quarter = len(ratios) // 4
        middle = median(ratios)
        verdict = "met" if middle <= target else "missed"
        print(
            f"  {mode:10} {middle:.3f} (half of them {ratios[quarter]:.3f} to "
            f"{ratios[-1 - quarter]:.3f}), target {target:.2f}: {verdict}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passes", type=int, default=110)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve(options.records))
        return
    with brokers(options.records) as servers:
        for name, made in (("read", Reader), ("send", Sender)):
            figures = asyncio.run(measure(made, servers, options.passes, options.records))
            show(name, figures)


if __name__ == "__main__":
    main()
