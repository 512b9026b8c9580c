"""A source as a user of confluent-kafka and PySpark would write it.

It polls, and returns Arrow batches, one poll at a time.

It has no options but those that the comparison needs: `subscribe` with one topic, `endingOffsets`,
settings of librdkafka for writing.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

__all__ = ["ConfluentSource"]

_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "timestampType int"
)
_POLL_ROWS = 10_000
_TIMEOUT = 60.0

Ends = dict[int, int]


class ConfluentSource(DataSource):
    """`format("confluent")`."""

    @classmethod
    def name(cls) -> str:
        return "confluent"

    def schema(self) -> str:
        return _SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        return ConfluentReader(self.options)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return ConfluentStreamReader(self.options)

    def writer(self, schema: Any, overwrite: bool) -> ConfluentWriter:
        return ConfluentWriter(self.options)


class Range(InputPartition):
    """Number of a partition, first offset, end."""

    def __init__(self, number: int, start: int, until: int) -> None:
        super().__init__((number, start, until))


class ConfluentReader(DataSourceReader):
    """A task for each partition."""

    def __init__(self, options: Any) -> None:
        self._servers = options["kafka.bootstrap.servers"]
        self._topic = options["subscribe"]
        self._wanted = options.get("endingOffsets")

    def partitions(self) -> list[Range]:
        ends = _ends(self._servers, self._topic, self._wanted)
        return [Range(number, 0, end) for number, end in ends.items() if end]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._servers, self._topic, *partition.value)


class ConfluentStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The same for streams, from the beginning on."""

    def __init__(self, options: Any) -> None:
        self._servers = options["kafka.bootstrap.servers"]
        self._topic = options["subscribe"]
        self._wanted = options.get("endingOffsets")
        self._pinned: dict[str, int] = {}

    def initialOffset(self) -> dict[str, int]:
        return dict.fromkeys(self._latest(), 0)

    def prepareForTriggerAvailableNow(self) -> None:
        self._pinned = self._latest()

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return self._pinned or self._latest()

    def _latest(self) -> dict[str, int]:
        ends = _ends(self._servers, self._topic, self._wanted)
        return {str(number): end for number, end in ends.items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Range]:
        return [
            Range(int(n), start.get(n, 0), end[n]) for n in sorted(end) if end[n] > start.get(n, 0)
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return _read(self._servers, self._topic, *partition.value)


def _ends(servers: str, topic: str, wanted: str | None) -> Ends:
    if wanted is not None:
        return {int(number): end for number, end in json.loads(wanted)[topic].items()}
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench"})
    try:
        numbers = consumer.list_topics(topic, _TIMEOUT).topics[topic].partitions
        return {
            n: consumer.get_watermark_offsets(TopicPartition(topic, n), _TIMEOUT)[1]
            for n in sorted(numbers)
        }
    finally:
        consumer.close()


def _read(servers: str, topic: str, number: int, start: int, until: int) -> Iterator[Any]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": 8 * 1024 * 1024,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, start)])
        position = start
        offsets: list[Any]
        while position < until:
            messages = [m for m in consumer.consume(_POLL_ROWS, _TIMEOUT) if m.error() is None]
            if not messages:
                raise TimeoutError(f"{topic}-{number}: nothing at offset {position}")
            offsets = [m.offset() for m in messages]
            position = offsets[-1] + 1
            yield _batch(topic, number, messages[: bisect.bisect_left(offsets, until)])
    finally:
        consumer.close()


def _batch(topic: str, number: int, messages: list[Any]) -> Any:
    import pyarrow as pa

    rows = len(messages)
    times = [m.timestamp() for m in messages]
    return pa.record_batch(
        {
            "key": pa.array([m.key() for m in messages], pa.binary()),
            "value": pa.array([m.value() for m in messages], pa.binary()),
            "topic": pa.repeat(pa.scalar(topic), rows),
            "partition": pa.repeat(pa.scalar(number, pa.int32()), rows),
            "offset": pa.array([m.offset() for m in messages], pa.int64()),
            "timestamp": pa.array([t[1] * 1000 for t in times], pa.int64()).cast(
                pa.timestamp("us", tz="UTC")
            ),
            "timestampType": pa.array([t[0] - 1 for t in times], pa.int32()),
        }
    )


class ConfluentWriter(DataSourceArrowWriter):
    """Produces row by row, and looks at every result."""

    def __init__(self, options: Any) -> None:
        self._topic = options["topic"]
        self._settings = {
            name.removeprefix("kafka."): text
            for name, text in options.items()
            if name.startswith("kafka.")
        }

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        from confluent_kafka import Producer

        errors: list[Any] = []

        def settle(error: Any, message: Any) -> None:
            if error is not None:
                errors.append(error)

        producer = Producer({**self._settings, "partitioner": "murmur2_random"})
        for batch in iterator:
            keys, values = batch.column("key").to_pylist(), batch.column("value").to_pylist()
            for key, value in zip(keys, values, strict=True):
                while True:
                    try:
                        producer.produce(self._topic, value, key, on_delivery=settle)
                        break
                    except BufferError:
                        producer.poll(0.05)
            producer.poll(0)
        producer.flush()
        if errors:
            raise RuntimeError(f"{len(errors)} records were not written, first: {errors[0]}")
        return WriterCommitMessage()
