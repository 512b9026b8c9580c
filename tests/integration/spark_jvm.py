"""Queries and topics for tests that compare this library with Spark's own Kafka source."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from aiokafka import AIOKafkaProducer
from tests.integration.spark_session import why_no_spark
from tests.kafka.fixtures import Kafka
from tests.kafka.jars import missing_tools
from tests.kafka.topics import create_topic

T = TypeVar("T")

JVM = "kafka"
OURS = "aiokafka"

Headers = tuple[tuple[str, bytes | None], ...]
Record = tuple[int, bytes | None, bytes | None, Headers]
"""Partition, key, value, headers."""

_missing = why_no_spark() or missing_tools()
marks = [
    pytest.mark.skipif(bool(_missing), reason=_missing or "Spark is there"),
    pytest.mark.timeout(300),
    # Spark's own.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def run(coro: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coro)


def make_topic(kafka: Kafka, partitions: int = 2, name: str = "", **config: str) -> str:
    """The name of a new topic; settings with underscores for dots."""
    name = name or f"spark-{uuid.uuid4().hex[:12]}"
    settings = {key.replace("_", "."): value for key, value in config.items()}
    run(create_topic(kafka.bootstrap_servers, name, partitions, 1, settings))
    return name


def with_options(what: Any, form: str, kafka: Kafka, **options: Any) -> Any:
    """`spark.read` and its sisters, in one of the two formats; options in small letters."""
    made = what.format(form).option("kafka.bootstrap.servers", kafka.bootstrap_servers)
    if form == JVM:
        # If a new partition refuses the first batch of Java's producer, and takes the second, the
        # first is out of order for as long as it is sent again.
        made = made.option("kafka.max.in.flight.requests.per.connection", "1")
    return made.options(**options)


async def send(servers: str, topic: str, records: Iterable[Record], codec: str = "gzip") -> None:
    """In batches of records that are given one after another for one partition."""
    async with AIOKafkaProducer(
        bootstrap_servers=servers,
        compression_type=None if codec == "none" else codec,
        max_request_size=4 << 20,
        max_batch_size=1 << 16,
    ) as producer:
        builders: dict[int, Any] = {}
        for partition, key, value, headers in records:
            given: dict[str, Any] = {"key": key, "value": value, "headers": headers}
            builder = builders.get(partition) or producer.create_batch()
            if builder.append(timestamp=None, **given) is None:
                await producer.send_batch(builder, topic, partition=partition)
                builder = producer.create_batch()
                builder.append(timestamp=None, **given)
            builders[partition] = builder
        for partition, builder in builders.items():
            await producer.send_batch(builder, topic, partition=partition)
        await producer.flush()


def fill(kafka: Kafka, topic: str, start: int, until: int, partitions: int = 2) -> None:
    """Numbers as values, over the partitions in turn."""
    records: list[Record] = [
        (n % partitions, b"%d" % (n % 7), b"%d" % n, ()) for n in range(start, until)
    ]
    run(send(kafka.bootstrap_servers, topic, records))


class Copy:
    """A streaming query that copies topics into files, one folder a batch, in either format.

    A batch that is repeated replaces its files: were its range another one then, numbers would be
    missing, or be there twice.
    """

    def __init__(self, spark: Any, kafka: Kafka, folder: Path) -> None:
        self._spark = spark
        self._kafka = kafka
        self.checkpoint = folder / "checkpoint"
        self._files = folder / "files"

    def start(self, form: str, *topics: str, **options: Any) -> Any:
        """Read what there is now; the query. a `|` is a pattern, several topics are
        several sources.
        """
        given = {"startingOffsets": "earliest", **options}
        frames = []
        for topic in topics:
            given["subscribePattern" if "|" in topic else "subscribe"] = topic
            reader = with_options(self._spark.readStream, form, self._kafka, **given)
            frames.append(reader.load())
        rows = frames[0]
        for frame in frames[1:]:
            rows = rows.union(frame)

        def keep(batch: Any, number: int) -> None:
            folder = str(self._files / f"batch={number}")
            columns = ("topic", "partition", "offset", "cast(value as string) as value")
            batch.selectExpr(*columns).write.mode("overwrite").parquet(folder)

        writer = rows.writeStream.foreachBatch(keep).option(
            "checkpointLocation", str(self.checkpoint)
        )
        return writer.trigger(availableNow=True).start()

    def run(self, form: str, *topics: str, **options: Any) -> None:
        """Copy everything there is; raises what the query died of."""
        query = self.start(form, *topics, **options)
        assert query.awaitTermination(120)

    def values(self) -> list[int]:
        """The numbers that were copied, sorted."""
        rows = self._spark.read.parquet(str(self._files)).select("value").collect()
        return sorted(int(row.value) for row in rows)

    def last_batch(self) -> int:
        """The last batch that was begun."""
        return max(int(path.name) for path in (self.checkpoint / "offsets").glob("[0-9]*"))

    def forget_commit(self) -> None:
        """As when Spark dies before it has noted that the last batch was done."""
        last = self.checkpoint / "commits" / str(self.last_batch())
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
