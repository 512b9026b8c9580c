"""What is measured in Spark, with which settings, and how good we want to be."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

__all__ = [
    "CLIENTS",
    "CONFLUENT",
    "FORMATS",
    "JVM",
    "JVM_LARGE",
    "OURS",
    "OURS_NARROW",
    "ROWS",
    "TOPICS",
    "Row",
    "Stored",
]

OURS = "ours"
OURS_NARROW = "ours value alone"
"""Ours with a schema of one column: no other source reads a part of the columns."""
JVM = "JVM"
"""Spark's own connector with its defaults."""
JVM_LARGE = "JVM large fetches"
CONFLUENT = "confluent"
CLIENTS = (OURS, OURS_NARROW, JVM, JVM_LARGE, CONFLUENT)

FORMATS = {
    OURS: "aiokafka",
    OURS_NARROW: "aiokafka",
    JVM: "kafka",
    JVM_LARGE: "kafka",
    CONFLUENT: "confluent",
}

_READERS = (OURS, JVM, JVM_LARGE, CONFLUENT)
_WRITERS = (OURS, JVM, CONFLUENT)
_LARGE_FETCHES = {
    "kafka.max.partition.fetch.bytes": str(8 * 1024 * 1024),
    "kafka.fetch.max.bytes": str(50 * 1024 * 1024),
    "kafka.max.poll.records": "10000",
}
_LARGE_BATCHES = {"kafka.linger.ms": "5", "kafka.batch.size": str(256 * 1024)}


@dataclass(frozen=True)
class Stored:
    """A topic that is filled before: JSON values of `size` bytes with keys of 16, written by the
    JVM connector with the defaults of Kafka's producer."""

    records: int
    size: int
    compression: str
    partitions: int = 4

    def scaled(self, share: float) -> Stored:
        """The same with another number of records."""
        return replace(self, records=int(self.records * share))


TOPICS = {
    "100-lz4": Stored(3_000_000, 100, "lz4"),
    "100-none": Stored(3_000_000, 100, "none"),
    "1k-lz4": Stored(500_000, 1024, "lz4"),
    "1k-none": Stored(500_000, 1024, "none"),
    "200-partitions": Stored(400_000, 100, "lz4", partitions=200),
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison, at `local[1]` and, if `at_two`, at `local[2]`.

    work: a key of the works in `session`. topic: which of TOPICS is read, or how large the values
    are that are written. fewer: divisors of the record count for clients that are far slower.
    cpu: the most that our CPU time may be of that of the connector with large fetches (in rows
    that write: with large batches). speed: how many times its rows a second we want at least.
    once: it takes so long that it is measured once, without a warm-up.
    """

    name: str
    title: str
    work: str
    records: int
    topic: str
    clients: tuple[str, ...] = _READERS
    at_two: bool = False
    fewer: dict[str, int] = field(default_factory=dict)
    options: dict[str, dict[str, str]] = field(default_factory=dict)
    baseline: str = JVM_LARGE
    cpu: float | None = None
    speed: float | None = None
    once: bool = False

    def count_for(self, client: str) -> int:
        return self.records // self.fewer.get(client, 1)

    def scaled(self, share: float) -> Row:
        """The same with another number of records."""
        return replace(self, records=int(self.records * share))


def _read(topic: str, title: str, records: int, cpu: float, *, at_two: bool = False) -> Row:
    return Row(
        name=f"read-{topic}",
        title=f"batch read to noop, {title}",
        work="read",
        records=records,
        topic=topic,
        options={JVM_LARGE: _LARGE_FETCHES},
        fewer={CONFLUENT: 5},
        at_two=at_two,
        cpu=cpu,
        speed=2.0,
    )


def _write(topic: str, title: str, records: int, *, at_two: bool = False) -> Row:
    options = {**_LARGE_BATCHES, "kafka.compression.type": topic.partition("-")[2]}
    return Row(
        name=f"write-{topic}",
        title=f"batch write, linger 5 ms, 256 KiB batches, {title}",
        work="write",
        records=records,
        topic=topic,
        clients=_WRITERS,
        options=dict.fromkeys(_WRITERS, options),
        fewer={CONFLUENT: 3},
        baseline=JVM,
        at_two=at_two,
        cpu=0.85,
        speed=1.1,
    )


ROWS: tuple[Row, ...] = (
    _read("100-lz4", "100 B, lz4", 3_000_000, 0.75, at_two=True),
    _read("100-none", "100 B, no compression", 3_000_000, 0.75, at_two=True),
    _read("1k-lz4", "1 KiB, lz4", 500_000, 0.85, at_two=True),
    _read("1k-none", "1 KiB, no compression", 500_000, 0.85),
    Row(
        name="count",
        title="count, 100 B, lz4",
        work="count",
        records=3_000_000,
        topic="100-lz4",
        clients=CLIENTS,
        options={JVM_LARGE: _LARGE_FETCHES},
        fewer={CONFLUENT: 3},
    ),
    Row(
        name="json",
        title="JSON parse and aggregate, 100 B, lz4",
        work="json",
        records=1_000_000,
        topic="100-lz4",
        clients=CLIENTS,
        options={JVM_LARGE: _LARGE_FETCHES},
        fewer={CONFLUENT: 2},
        at_two=True,
        cpu=0.9,
    ),
    Row(
        name="stream",
        title="stream, AvailableNow to noop, 100 B, lz4",
        work="stream",
        records=3_000_000,
        topic="100-lz4",
        options={JVM_LARGE: _LARGE_FETCHES},
        fewer={CONFLUENT: 5},
        at_two=True,
        cpu=1.2,
        speed=1.5,
    ),
    Row(
        name="200-partitions",
        title="batch read to noop of 200 partitions with 2,000 records each, 100 B, lz4; "
        "ours with maxPartitions=4",
        work="read",
        records=400_000,
        topic="200-partitions",
        options={OURS: {"maxPartitions": "4"}},
        baseline=JVM,
        clients=(OURS, JVM),
        once=True,  # The connector takes half a second for each partition.
        speed=3.0,
    ),
    _write("100-none", "100 B, no compression", 1_000_000),
    _write("100-lz4", "100 B, lz4", 1_000_000, at_two=True),
    _write("1k-none", "1 KiB, no compression", 200_000),
    _write("1k-lz4", "1 KiB, lz4", 200_000),
)
