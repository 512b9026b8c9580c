"""The table of what is measured, and how good we want to be."""

from __future__ import annotations

from dataclasses import dataclass, field

OURS = "ours"
OURS_ASSIGNED = "ours assigned"
"""Ours in a row about groups, without one: what the membership costs."""
AIOKAFKA = "aiokafka"
CONFLUENT = "confluent"
CONFLUENT_ASYNCIO = "confluent asyncio"
KAFKA_PYTHON = "kafka-python"

_ALL = (OURS, AIOKAFKA, CONFLUENT, CONFLUENT_ASYNCIO, KAFKA_PYTHON)
_FAST = (OURS, AIOKAFKA, CONFLUENT, CONFLUENT_ASYNCIO)
_NATIVE = (OURS, AIOKAFKA, CONFLUENT)
_SAME_API = (OURS, AIOKAFKA)
_IN_GROUPS = (OURS, OURS_ASSIGNED, AIOKAFKA, CONFLUENT)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison.

    workload: a key of the workloads in the client scripts. stored: so many
    records the topic holds before the clients start. target: what ours should not exceed, in
    the unit of ``metric``. fewer: divisors of the record count for clients that are far slower.
    assigned: the workload of OURS_ASSIGNED. per_transaction: records in each.
    """

    name: str
    title: str
    workload: str
    records: int
    clients: tuple[str, ...] = _FAST
    size: int = 100
    partitions: int = 4
    stored: int = 0
    compression: str | None = None
    keyed: bool = False
    seconds: float = 5.0
    metric: str = "cpu"
    target: float | None = None
    fewer: dict[str, int] = field(default_factory=dict)
    assigned: str = ""
    per_transaction: int = 0

    def count_for(self, client: str) -> int:
        return self.records // self.fewer.get(client, 1)


_SLOW_READERS = {KAFKA_PYTHON: 10}
_ONE_BY_ONE = {KAFKA_PYTHON: 5, CONFLUENT_ASYNCIO: 20}
_SLOW_WRITERS = {KAFKA_PYTHON: 5}


def _getmany(name: str, size: int, records: int, target: float, compression: str | None) -> Row:
    codec = compression or "no compression"
    return Row(
        name=name,
        title=f"getmany, 500 a call, {_bytes(size)}, {codec}",
        workload="getmany",
        records=records,
        stored=records,
        size=size,
        compression=compression,
        clients=_ALL if size == 100 else _FAST,
        target=target,
        fewer=_SLOW_READERS,
    )


def _iterate(name: str, size: int, target: float | None, compression: str | None) -> Row:
    codec = compression or "no compression"
    return Row(
        name=name,
        title=f"one by one (`async for`), {_bytes(size)}, {codec}",
        workload="iterate",
        records=300_000,
        stored=300_000,
        size=size,
        compression=compression,
        clients=_ALL if size == 100 else _FAST,
        target=target,
        fewer=_ONE_BY_ONE,
    )


def _transactions(name: str, per_transaction: int, records: int) -> Row:
    return Row(
        name=name,
        title=f"consume, process, produce in transactions of {per_transaction:,} records, 100 B",
        workload="transactions",
        records=records,
        stored=records,
        clients=_NATIVE,
        per_transaction=per_transaction,
    )


def _codec(name: str, compression: str | None) -> Row:
    codec = compression or "no compression"
    return Row(
        name=name,
        title=f"send, all results checked, 100 B, {codec}",
        workload="send",
        records=500_000,
        compression=compression,
        clients=_NATIVE,
    )


def _bytes(size: int) -> str:
    return f"{size} B" if size < 1024 else f"{size // 1024} KiB"


ROWS: tuple[Row, ...] = (
    _getmany("getmany-100", 100, 1_000_000, 0.50, None),
    _getmany("getmany-1k", 1024, 500_000, 0.9, None),
    _getmany("getmany-10k", 10240, 100_000, 5.0, None),
    _getmany("getmany-100-lz4", 100, 1_000_000, 0.50, "lz4"),
    _getmany("getmany-1k-lz4", 1024, 500_000, 0.9, "lz4"),
    _getmany("getmany-10k-lz4", 10240, 100_000, 5.0, "lz4"),
    _iterate("iterate-100", 100, 1.4, None),
    _iterate("iterate-100-lz4", 100, 1.4, "lz4"),
    _iterate("iterate-1k", 1024, None, None),
    _iterate("iterate-1k-lz4", 1024, None, "lz4"),
    Row(
        name="parallel-100",
        title="ParallelConsumer, 16 at once in order by key, beside getmany, 100 B",
        workload="parallel",
        assigned="getmany",
        records=500_000,
        stored=500_000,
        clients=(OURS, OURS_ASSIGNED),
    ),
    Row(
        name="getmany-100-group",
        title="getmany, 500 a call, 100 B, no compression, in a group",
        workload="getmany_in_group",
        assigned="getmany",
        records=1_000_000,
        stored=1_000_000,
        clients=_IN_GROUPS,
        target=0.50,
    ),
    Row(
        name="iterate-100-group",
        title="one by one (`async for`), 100 B, no compression, in a group",
        workload="iterate_in_group",
        assigned="iterate",
        records=300_000,
        stored=300_000,
        clients=_IN_GROUPS,
        target=1.4,
    ),
    Row(
        name="send-100",
        title="send, all results checked, 100 B",
        workload="send",
        records=500_000,
        clients=_ALL,
        target=2.0,
        fewer=_SLOW_WRITERS,
    ),
    Row(
        name="send-100-keyed",
        title="send, all results checked, 100 B, keyed",
        workload="send",
        records=500_000,
        keyed=True,
        target=2.3,
    ),
    Row(
        name="send-1k-lz4",
        title="send, all results checked, 1 KiB, lz4",
        workload="send",
        records=300_000,
        size=1024,
        compression="lz4",
    ),
    _codec("codec-none", None),
    _codec("codec-lz4", "lz4"),
    _codec("codec-zstd", "zstd"),
    Row(
        name="batches-100",
        title="batch API, 100 B",
        workload="send_batches",
        records=1_000_000,
        clients=_SAME_API,
        target=0.6,
    ),
    _transactions("transactions-100", 100, 100_000),
    _transactions("transactions-1000", 1000, 200_000),
    Row(
        name="tasks-64",
        title="64 tasks in send_and_wait, 100 B",
        workload="send_in_tasks",
        records=200_000,
        target=6.0,
        fewer={CONFLUENT: 8, CONFLUENT_ASYNCIO: 8},
    ),
    Row(
        name="read-1000",
        title="reading 1,000 partitions, 100 B",
        workload="getmany",
        records=1_000_000,
        stored=1_000_000,
        partitions=1000,
        target=1.2,
    ),
    Row(
        name="write-1000",
        title="writing 1,000 partitions, 100 B, keyed",
        workload="send",
        records=300_000,
        partitions=1000,
        keyed=True,
        target=4.0,
        fewer={AIOKAFKA: 12, CONFLUENT_ASYNCIO: 6},
    ),
    Row(
        name="lone-send",
        title="a lone send_and_wait, 100 B",
        workload="lone_send",
        records=3_000,
        clients=_ALL,
        partitions=1,
        metric="p50_ms",
        target=0.15,
        fewer={KAFKA_PYTHON: 3, CONFLUENT_ASYNCIO: 10},
    ),
    Row(
        name="end-to-end",
        title="producer to consumer, 1,000 a second, 100 B",
        workload="end_to_end",
        records=5_000,
        clients=_NATIVE,
        partitions=1,
        metric="p50_ms",
        target=0.35,
    ),
    Row(
        name="first-record",
        title="first record after connecting",
        workload="first_record",
        records=20,
        stored=1_000,
        clients=_NATIVE,
        partitions=1,
        metric="p50_ms",
        target=15.0,
    ),
    Row(
        name="import",
        title="importing consumer and producer in a clean interpreter",
        workload="import_time",
        records=15,
        clients=_SAME_API,
        metric="p50_ms",
        target=60.0,
    ),
    Row(
        name="idle-100",
        title="idle, 100 assigned partitions",
        workload="idle",
        records=0,
        partitions=100,
        stored=1,
        seconds=20,
        clients=_NATIVE,
        metric="cpu_a_minute",
        target=0.1,
    ),
    Row(
        name="idle-100-group",
        title="idle, 100 partitions, in a group",
        workload="idle_in_group",
        assigned="idle",
        records=0,
        partitions=100,
        stored=1,
        seconds=20,
        clients=_IN_GROUPS,
        metric="cpu_a_minute",
        target=0.3,
    ),
    Row(
        name="slow-reader",
        title="memory of a slow reader, 64 busy partitions, 1 KiB",
        workload="slow_reader",
        records=0,
        stored=512_000,
        size=1024,
        partitions=64,
        seconds=8,
        clients=_NATIVE,
        metric="rss_mib",
    ),
)

METRICS = {
    "cpu": "CPU s per million",
    "p50_ms": "p50 ms",
    "cpu_a_minute": "CPU s a minute",
    "rss_mib": "peak RSS MiB",
}
