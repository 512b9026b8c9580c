"""`aiokafka perf`: measures throughput and latency."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from aiokafka import TopicPartition
from aiokafka.cli.arguments import Finite
from aiokafka.cli.session import Session, Verbs, command
from aiokafka.cli.streams import Limit, find_to_send
from aiokafka.errors import KafkaTimeoutError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

commands = Verbs(help="Measure throughput and latency.")

_POINTS = (50, 95, 99, 99.9)
# Approximate maximum number of latencies to measure. If there are more records, the latency of only
# every Nth record is measured.
_SAMPLES = 100_000


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """Return the average, percentiles and maximum, by name. Raises ValueError without values.

    The Nth percentile is the smallest value such that at least N % of all values are not larger.
    """
    if not values:
        raise ValueError("no values")
    every = sorted(values)
    found = {"avg": sum(every) / len(every)}
    for point in _POINTS:
        place = -(-len(every) * point // 100)
        found[f"p{point:g}"] = every[max(0, int(place) - 1)]
    return {**found, "max": every[-1]}


def summary(
    records: int, size: int, seconds: float, latencies: Sequence[float] = ()
) -> dict[str, Any]:
    """Return one row with counts, rates, and latencies in milliseconds.

    `size` is in bytes, `seconds` and `latencies` are in seconds.
    """
    seconds = max(seconds, 1e-9)
    row: dict[str, Any] = {
        "records": records,
        "seconds": round(seconds, 3),
        "records_per_s": round(records / seconds, 1),
        "mb_per_s": round(size / seconds / 1e6, 3),
    }
    if latencies:
        found = percentiles(latencies)
        row |= {f"{name}_ms": round(value * 1000, 3) for name, value in found.items()}
    return row


def _print(session: Session, row: dict[str, Any]) -> None:
    session.output.rows([row], tuple(row))


def _payload(size: int) -> bytes:
    # Random hex digits can be compressed to half of their size, similar to text.
    return (random.Random(0).randbytes(size // 2).hex().encode() + b"x")[:size].ljust(size, b"x")


_RECORDS = click.option(
    "-n",
    "--records",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Number of records.",
)
_SIZE = click.option(
    "-s",
    "--size",
    type=click.IntRange(1, 2**30),
    default=100,
    show_default=True,
    help="Size of each value in bytes.",
)


@command(commands, "produce")
@click.argument("topic")
@_RECORDS
@_SIZE
@click.option("--rate", type=Finite(0, min_open=True), help="Records per second.")
@click.option(
    "-z",
    "--compression",
    type=click.Choice(["gzip", "snappy", "lz4", "zstd"]),
    help="Codec of the batches; default: no compression.",
)
@click.option(
    "--linger",
    type=float,
    default=5,
    show_default=True,
    metavar="MS",
    help="Time to wait for more records in a batch.",
)
async def produce(
    session: Session,
    topic: str,
    records: int,
    size: int,
    rate: float | None,
    compression: str | None,
    linger: float,
) -> None:
    """Send records to TOPIC; show the rates, and the time until brokers acknowledge a record.

    \b
    Example:
      aiokafka perf produce scratch --records 1000000 --size 100
    """
    producer = session.producer(
        compression_type=compression, linger_ms=linger, max_batch_size=256 * 1024
    )
    latencies: list[float] = []
    async with _started(producer):
        await find_to_send(session, producer, topic)
        # The first record fetches metadata and connects, so send it before the measurement.
        await producer.send_and_wait(topic, b"warm up")
        began = time.perf_counter()
        await _send(producer, topic, _payload(size), records, Limit(rate), latencies)
        took = time.perf_counter() - began
    _print(session, summary(records, records * size, took, latencies))


@contextlib.asynccontextmanager
async def _started(producer: AIOKafkaProducer) -> AsyncIterator[None]:
    """Start the producer, and stop it at the end. After a signal, stop it without sending its
    buffered records."""
    async with producer:
        try:
            yield
        except asyncio.CancelledError:
            await producer.stop(0)
            raise


async def _send(
    producer: AIOKafkaProducer,
    topic: str,
    value: bytes,
    records: int,
    limit: Limit,
    latencies: list[float],
) -> None:
    """Send records, and wait for all acknowledgements. For some records, append the seconds until
    the acknowledgement to `latencies`.

    Raises the error of the first record that failed.
    """
    every = max(1, records // _SAMPLES)
    pending: deque[asyncio.Future[Any]] = deque()
    clock, send = time.perf_counter, producer.send
    for start in range(0, records, limit.step):
        count = min(limit.step, records - start)
        await limit.wait(count)
        for number in range(start, start + count):
            future = await send(topic, value)
            if number % every == 0:
                future.add_done_callback(_stopwatch(clock(), latencies))
            pending.append(future)
        while pending and pending[0].done():
            pending.popleft().result()
    await asyncio.gather(*pending)


def _stopwatch(sent_at: float, latencies: list[float]) -> Any:
    return lambda _: latencies.append(time.perf_counter() - sent_at)


@command(commands, "consume")
@click.argument("topic")
@_RECORDS
@click.option(
    "--wait",
    type=float,
    default=10,
    show_default=True,
    metavar="SECONDS",
    help="Fail if no record arrives for this long.",
)
async def consume(session: Session, topic: str, records: int, wait: float) -> None:
    """Read records of TOPIC from its first offsets on; show the rates.

    \b
    Example:
      aiokafka perf consume scratch --records 1000000
    """
    consumer = session.consumer(
        max_partition_fetch_bytes=4 * 1024 * 1024, allow_auto_create_topics=False
    )
    async with consumer:
        partitions = _partitions(consumer, topic)
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        began = time.perf_counter()
        count = size = 0
        while count < records:
            most = min(10_000, records - count)
            found = await consumer.getmany(timeout_ms=wait * 1000, max_records=most)
            if not found:
                raise KafkaTimeoutError(f"{topic}: {count} records, then none for {wait:g} s")
            for batch in found.values():
                count += len(batch)
                size += sum([len(record.value or b"") for record in batch])
        took = time.perf_counter() - began
    _print(session, summary(count, size, took))


def _partitions(consumer: AIOKafkaConsumer, topic: str) -> list[TopicPartition]:
    there = consumer.partitions_for_topic(topic)
    if not there:
        raise UnknownTopicOrPartitionError(f"no topic {topic!r}")
    return [TopicPartition(topic, number) for number in sorted(there)]


@command(commands, "latency")
@click.argument("topic")
@click.option(
    "-n",
    "--records",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="Number of records, one after the other.",
)
@_SIZE
async def latency(session: Session, topic: str, records: int, size: int) -> None:
    """Send a record to TOPIC and wait until a consumer returns it, again and again; show the times.

    \b
    Example:
      aiokafka perf latency scratch --records 1000
    """
    latencies: list[float] = []
    value = _payload(size)
    consumer = session.consumer(allow_auto_create_topics=False)
    producer = session.producer()
    async with consumer, _started(producer):
        tp = _partitions(consumer, topic)[0]
        consumer.assign([tp])
        await consumer.seek_to_end(tp)
        began = time.perf_counter()
        for _ in range(records):
            sent_at = time.perf_counter()
            sent = await producer.send_and_wait(topic, value, partition=tp.partition)
            await _read(consumer, sent.offset)
            latencies.append(time.perf_counter() - sent_at)
        took = time.perf_counter() - began
    _print(session, summary(records, records * size, took, latencies))


async def _read(consumer: AIOKafkaConsumer, offset: int) -> None:
    """Poll until the record at `offset` is returned; earlier records are of other producers.

    Raises KafkaTimeoutError after 10 s without records.
    """
    while True:
        found = await consumer.getmany(timeout_ms=10_000)
        if not found:
            raise KafkaTimeoutError(f"offset {offset} was not read within 10 s")
        if any(batch[-1].offset >= offset for batch in found.values()):
            return
