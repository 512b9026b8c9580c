"""The table of what is measured, and how good we want to be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from benchmarks.targets import Target, at_least, at_most

OURS = "ours"
OURS_UVLOOP = "ours uvloop"
"""Ours on another event loop, where that is installed."""
OURS_ASSIGNED = "ours assigned"
"""Ours in a row about groups, without one: what the membership costs."""
AIOKAFKA = "aiokafka"
CONFLUENT = "confluent"
CONFLUENT_ASYNCIO = "confluent asyncio"
KAFKA_PYTHON = "kafka-python"
FRANZ = "franz-go"
"""A client in Go, where that is installed: how far from compiled languages we are."""
JAVA = "java"
"""Kafka's own client, in rows about share groups; needs a JDK."""

_ALL = (OURS, AIOKAFKA, CONFLUENT, CONFLUENT_ASYNCIO, KAFKA_PYTHON)
_FAST = (OURS, AIOKAFKA, CONFLUENT, CONFLUENT_ASYNCIO)
_NATIVE = (OURS, AIOKAFKA, CONFLUENT)
_SAME_API = (OURS, AIOKAFKA)
_ON_LOOPS = (OURS, OURS_UVLOOP)
_IN_GROUPS = (OURS, OURS_ASSIGNED, AIOKAFKA, CONFLUENT)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One comparison.

    workload: a key of the workloads in the client scripts. stored: so many records the topic holds
    before the clients start, each with so many `headers`, in batches of up
    to `stored_batch` bytes (the default is librdkafka's). metric: the figure that is drawn.
    targets: what ours is to reach. fewer: divisors of the record count for clients that are far
    slower.
    assigned: the workload of OURS_ASSIGNED. confluent_workload: the workload of CONFLUENT where it
    differs. per_transaction: records in each. batch_size: of
    producers, in bytes, with a linger time of 5 ms; None for each client's own defaults.
    idempotent: None for each client's own default. tasks: that send at the same time, in workloads
    with tasks. per_commit: records that are read between two commits. tls: on the broker's TLS
    listener.
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
    headers: int = 0
    stored_batch: int = 1_000_000
    idempotent: bool | None = None
    seconds: float = 5.0
    metric: str = "cpu_after"
    targets: tuple[Target, ...] = ()
    fewer: dict[str, int] = field(default_factory=dict)
    assigned: str = ""
    per_transaction: int = 0
    batch_size: int | None = None
    tasks: int = 64
    per_commit: int = 1
    tls: bool = False
    confluent_workload: str = ""

    def count_for(self, client: str) -> int:
        return self.records // self.fewer.get(client, 1)


_CODECS = (None, "gzip", "snappy", "lz4", "zstd")
_SLOW_READERS = {KAFKA_PYTHON: 10}
_ONE_BY_ONE = {KAFKA_PYTHON: 5, CONFLUENT_ASYNCIO: 20}
_SLOW_WRITERS = {KAFKA_PYTHON: 5}


def _getmany(
    name: str, size: int, compression: str | None, *targets: Target, headers: int = 0
) -> Row:
    records = {100: 1_000_000, 1024: 500_000, 10240: 100_000}[size]
    more = f", {headers} headers" if headers else ""
    return Row(
        name=name,
        title=f"getmany, 500 records a call, {_bytes(size)}{more}, {_called(compression)}",
        workload="getmany",
        records=records,
        stored=records,
        size=size,
        headers=headers,
        compression=compression,
        clients=_ALL if size == 100 else _FAST,
        targets=targets,
        fewer=_SLOW_READERS,
    )


def _iterate(name: str, size: int, compression: str | None, *targets: Target) -> Row:
    return Row(
        name=name,
        title=f"one by one (`async for`), {_bytes(size)}, {_called(compression)}",
        workload="iterate",
        records=300_000,
        stored=300_000,
        size=size,
        compression=compression,
        clients=_ALL if size == 100 else _FAST,
        targets=targets,
        fewer=_ONE_BY_ONE,
    )


def _send(name: str, what: str, *targets: Target, **options: Any) -> Row:
    given = {"size": 100, "records": 500_000, "clients": _NATIVE, **options}
    return Row(
        name=name,
        title=f"send, all results checked, {_bytes(given['size'])}{what}",
        workload="send",
        targets=targets,
        **given,
    )


def _for_long(name: str, what: str, tasks: int = 1, **options: Any) -> Row:
    """Six times the buffer: what a program costs that sends faster than a broker writes."""
    limits = at_most(1.3, "cpu_full"), at_most(1.3, "wall_full")
    cpu, wall = (0.5, 0.7) if options["partitions"] > 1 else (0.6, 0.8)
    if options.get("tls"):
        cpu, wall = 0.8, 1.0
    if tasks > 1:
        cpu, wall, limits = 1.0, 1.0, (*limits, at_most(1.1, "shares"))
    to_confluent = at_most(cpu, to=CONFLUENT), at_most(wall, "wall_after", to=CONFLUENT)
    return Row(
        name=f"send-long-{name}",
        title=f"send without a pause, 100 B, {what}: after the first 32 MiB",
        workload="send_for_long",
        records=2_000_000,
        tasks=tasks,
        # Of aiokafka's tasks some wait until they fail.
        clients=_NATIVE if tasks == 1 else (OURS, CONFLUENT),
        targets=(*limits, *to_confluent),
        fewer={AIOKAFKA: 2},
        **options,
    )


def _commits(per_commit: int, records: int, cpu: float, wall: float, aiokafka: float) -> Row:
    every = "each record" if per_commit == 1 else f"every {per_commit:,} records"
    return Row(
        name=f"commit-{per_commit}",
        title=f"getone in a group, a commit after {every}, 100 B",
        workload="commits",
        records=records,
        stored=records,
        clients=_NATIVE,
        per_commit=per_commit,
        targets=(
            at_most(cpu, to=CONFLUENT),
            at_least(1 / wall, "rate_after", to=CONFLUENT),
            at_most(aiokafka, to=AIOKAFKA),
        ),
    )


def _writing(per_transaction: int, records: int, cpu: float) -> Row:
    return Row(
        name=f"write-transactions-{per_transaction}",
        title=f"transactions of {_records(per_transaction)} without offsets, 100 B",
        workload="writing_transactions",
        records=records,
        clients=_NATIVE,
        partitions=1,
        per_transaction=per_transaction,
        targets=(at_most(cpu, to=CONFLUENT),),
    )


def _transactions(name: str, per_transaction: int, records: int, p50: float, cpu: float) -> Row:
    return Row(
        name=name,
        title=f"consume, process, produce in transactions of {per_transaction:,} records, 100 B",
        workload="transactions",
        records=records,
        stored=records,
        clients=_NATIVE,
        per_transaction=per_transaction,
        targets=(at_most(p50, "p50_ms", to=CONFLUENT), at_most(cpu, to=CONFLUENT)),
    )


def _pauses(compression: str | None, batches: str = "") -> Row:
    """What is read was written with the default settings of this library, or in large batches."""
    return Row(
        name=f"pauses-{compression or 'none'}{'-large' if batches else ''}",
        title="longest pause of the event loop: getmany, `async for`, send, send_and_wait; 1 KiB, "
        f"{_called(compression)}{batches}",
        workload="pauses",
        records=50_000,
        stored=50_000,
        stored_batch=1_000_000 if batches else 16_384,
        size=1024,
        compression=compression,
        clients=_SAME_API,
        metric="pause_cpu_ms",
        targets=(at_most(5.0, "pause_cpu_ms"),),
    )


def _called(compression: str | None) -> str:
    return compression or "no compression"


def _records(count: int) -> str:
    return "1 record" if count == 1 else f"{count:,} records"


def _bytes(size: int) -> str:
    return f"{size} B" if size < 1024 else f"{size // 1024} KiB"


def _share(mode: str, cpu: float) -> Row:
    return Row(
        name=f"share-{mode}",
        title=f"share group, getmany, 500 records a call, {mode} acknowledgement, 100 B",
        workload=f"share_{mode}",
        records=1_000_000,
        stored=1_000_000,
        clients=(OURS, CONFLUENT, JAVA),
        targets=(at_most(cpu, to=CONFLUENT), at_most(0.5, to=JAVA)),
    )


_PARITY = (at_most(0.65, to=CONFLUENT), at_least(1.0, "rate_after", to=CONFLUENT))

ROWS: tuple[Row, ...] = (
    _getmany("getmany-100", 100, None, at_most(0.43, to=CONFLUENT)),
    _getmany("getmany-100-headers", 100, None, at_most(0.40, to=CONFLUENT), headers=3),
    _getmany("getmany-1k", 1024, None, at_most(0.85, to=CONFLUENT)),
    _getmany("getmany-10k", 10240, None, at_most(0.75, to=CONFLUENT)),
    _getmany("getmany-100-lz4", 100, "lz4"),
    _getmany("getmany-1k-lz4", 1024, "lz4"),
    _getmany("getmany-10k-lz4", 10240, "lz4"),
    _iterate("iterate-100", 100, None, at_most(0.28, to=CONFLUENT)),
    _iterate("iterate-100-lz4", 100, "lz4"),
    _iterate("iterate-1k", 1024, None),
    _iterate("iterate-1k-lz4", 1024, "lz4"),
    Row(
        name="parallel-100",
        title="ParallelConsumer, 16 at once in order by key, beside getmany, 100 B",
        workload="parallel",
        assigned="getmany",
        records=500_000,
        stored=500_000,
        clients=(OURS, OURS_ASSIGNED),
        metric="cpu",
    ),
    Row(
        name="getmany-100-group",
        title="getmany, 500 records a call, 100 B, no compression, in a group",
        workload="getmany_in_group",
        assigned="getmany",
        records=1_000_000,
        stored=1_000_000,
        clients=_IN_GROUPS,
    ),
    Row(
        name="iterate-100-group",
        title="one by one (`async for`), 100 B, no compression, in a group",
        workload="iterate_in_group",
        assigned="iterate",
        records=300_000,
        stored=300_000,
        clients=_IN_GROUPS,
    ),
    _share("implicit", 0.7),
    _share("explicit", 0.85),
    _send("send-100", "", *_PARITY, clients=_ALL, fewer=_SLOW_WRITERS),
    _send("send-100-keyed", ", keyed", at_most(0.65, to=CONFLUENT), keyed=True),
    _send("send-100-alike", ", batches of 256 KiB and 5 ms for all", batch_size=262_144),
    _send("send-100-idempotent", ", idempotent", at_most(0.65, to=CONFLUENT), idempotent=True),
    _send("send-100-lz4", ", lz4", *_PARITY, compression="lz4"),
    _send(
        "send-100-zstd",
        ", zstd",
        at_most(0.65, to=CONFLUENT),
        at_least(1.1, "rate_after", to=CONFLUENT),
        compression="zstd",
    ),
    _send("send-1k-lz4", ", lz4", size=1024, records=300_000, compression="lz4"),
    _send("send-16k", ", batches of 16 KiB", at_most(1.6, to=FRANZ), clients=(OURS, FRANZ)),
    _send(
        "memory-1m",
        ", 1 M records: memory",
        at_most(1.0, "rss_mib", to=CONFLUENT),
        records=1_000_000,
        metric="rss_mib",
    ),
    _send(
        "memory-5m",
        ", 5 M records: memory",
        at_most(1.0, "rss_mib", to=CONFLUENT),
        records=5_000_000,
        metric="rss_mib",
        clients=(OURS, CONFLUENT),
    ),
    _send(
        "send-1k",
        "",
        at_most(0.8, to=CONFLUENT),
        at_least(1.0, "rate_after", to=CONFLUENT),
        size=1024,
        records=300_000,
    ),
    _send(
        "send-100k",
        "",
        at_most(1.1, to=CONFLUENT),
        at_least(1.0, "rate_after", to=CONFLUENT),
        size=102_400,
        records=5_000,
    ),
    _for_long("1", "one partition", partitions=1),
    _for_long("1-plain", "one partition, not idempotent", partitions=1, idempotent=False),
    _for_long("6", "six partitions", partitions=6),
    _for_long("6-plain", "six partitions, not idempotent", partitions=6, idempotent=False),
    _for_long("tls", "one partition, TLS", partitions=1, tls=True),
    _for_long("tasks", "one partition, 64 tasks", 64, partitions=1),
    _for_long("tasks-1000", "one partition, 1,000 tasks", 1000, partitions=1),
    _commits(1, 3_000, 1.2, 1.0, 0.5),
    _commits(100, 100_000, 0.6, 1.0, 0.5),
    Row(
        name="handler",
        title="for each record: getone, send_and_wait to another topic, commit; 100 B",
        workload="handler",
        records=2_000,
        stored=2_000,
        clients=_NATIVE,
        partitions=1,
        targets=(
            at_most(1.3, to=CONFLUENT),
            at_least(1.0, "rate_after", to=CONFLUENT),
            at_most(0.5, to=AIOKAFKA),
        ),
    ),
    Row(
        name="getone-100-group",
        title="getone, 100 B, no compression, in a group",
        workload="getone",
        records=300_000,
        stored=300_000,
        clients=_NATIVE,
        targets=(at_most(0.5, to=CONFLUENT),),
    ),
    Row(
        name="getmany-one",
        title="getmany of one record at a time, 100 B",
        workload="one_a_call",
        records=200_000,
        stored=200_000,
        clients=_NATIVE,
        targets=(at_most(1.5, to=CONFLUENT), at_least(1 / 1.5, "rate_after", to=CONFLUENT)),
    ),
    Row(
        name="json-100",
        title="getmany, 500 records a call, values from JSON, 100 B",
        workload="json_values",
        records=300_000,
        stored=300_000,
        clients=_NATIVE,
        targets=(at_most(0.8, to=CONFLUENT),),
    ),
    Row(
        name="getmany-100-tls",
        title="getmany, 500 records a call, 100 B, TLS",
        workload="getmany",
        records=1_000_000,
        stored=1_000_000,
        clients=_NATIVE,
        tls=True,
        targets=(at_most(0.8, to=CONFLUENT),),
    ),
    Row(
        name="pause-all",
        title="getone, all of 4 partitions paused and resumed for each record",
        workload="pause_all",
        records=100_000,
        stored=100_000,
        clients=_SAME_API,
        targets=(at_most(0.8, to=AIOKAFKA),),
    ),
    _writing(1, 2_000, 1.1),
    _writing(10, 20_000, 1.0),
    _writing(1000, 500_000, 0.6),
    Row(
        name="flood",
        title="five minutes of send without a pause, a send_and_wait beside it, 100 B",
        workload="flood",
        records=0,
        partitions=1,
        seconds=300,
        # aiokafka 0.14 serves waiting calls in no order: its send_and_wait ends with a timeout.
        clients=(OURS,),
        metric="p50_ms",
    ),
    *(
        Row(
            name=f"{name}-observed",
            title=f"{what}, 100 B: alone, with a plain interceptor, with a tracer that records, "
            "with a tracer without a recorder",
            workload=f"observed_{name}",
            records=400_000,
            stored=stored,
            clients=(OURS,),
            metric="cpu_after",
            targets=(
                at_most(1.5, "interceptor"),
                at_most(1.2, "no_recorder"),
            ),
        )
        for name, what, stored in (
            ("send", "send", 0),
            ("getone", "getone", 400_000),
            ("iterate", "one by one (`async for`)", 400_000),
        )
    ),
    Row(
        name="gather-100",
        title="gather of 1,000 sends at a time, 100 B",
        workload="gather",
        records=500_000,
        clients=(*_ON_LOOPS, AIOKAFKA),
        fewer={AIOKAFKA: 3},
        targets=(at_most(0.35, to=AIOKAFKA),),
    ),
    Row(
        name="batches-100",
        title="batch API, 100 B",
        workload="send_batches",
        records=1_000_000,
        clients=_SAME_API,
        targets=(at_most(0.5, to=AIOKAFKA),),
    ),
    _transactions("transactions-100", 100, 30_000, 1.0, 0.8),
    _transactions("transactions-1000", 1000, 200_000, 0.8, 0.5),
    Row(
        name="tasks-64",
        title="64 tasks call send_and_wait, 100 B",
        workload="send_in_tasks",
        records=200_000,
        clients=(*_ON_LOOPS, AIOKAFKA, CONFLUENT, CONFLUENT_ASYNCIO),
        targets=(at_most(0.28, to=AIOKAFKA),),
        fewer={CONFLUENT: 8, CONFLUENT_ASYNCIO: 8},
    ),
    Row(
        name="tasks-1000",
        title="1,000 tasks call send_and_wait, 100 B",
        workload="send_in_tasks",
        confluent_workload="send_in_window",
        records=200_000,
        clients=_NATIVE,
        tasks=1000,
        targets=(at_most(1.0, to=CONFLUENT), at_least(1.0, "rate_after", to=CONFLUENT)),
    ),
    Row(
        name="read-1000",
        title="reading 1,000 partitions, 100 B",
        workload="getmany",
        records=1_000_000,
        stored=1_000_000,
        partitions=1000,
    ),
    Row(
        name="write-1000",
        title="writing 1,000 partitions, 100 B, keyed",
        workload="send",
        records=300_000,
        clients=_NATIVE,
        partitions=1000,
        keyed=True,
        targets=(at_most(1.0, to=CONFLUENT),),
        fewer={AIOKAFKA: 12},
    ),
    Row(
        name="metadata-2000",
        title="metadata of all topics, one of which has 2,000 partitions; for each call",
        workload="metadata",
        records=100,
        clients=_NATIVE,
        partitions=2000,
        targets=(at_most(1.2, to=CONFLUENT),),
    ),
    Row(
        name="lone-send",
        title="a single send_and_wait, 100 B",
        workload="lone_send",
        records=3_000,
        clients=(*_ON_LOOPS, AIOKAFKA, CONFLUENT, CONFLUENT_ASYNCIO, KAFKA_PYTHON),
        partitions=1,
        metric="p50_ms",
        targets=(
            at_most(1.0, "p50_ms", to=CONFLUENT),
            at_most(1.2, to=CONFLUENT),
            at_most(0.9, "p50_ms", to=CONFLUENT, client=OURS_UVLOOP),
            at_most(0.9, to=CONFLUENT, client=OURS_UVLOOP),
        ),
        fewer={KAFKA_PYTHON: 3, CONFLUENT_ASYNCIO: 10},
    ),
    Row(
        name="lone-send-tls",
        title="a single send_and_wait, 100 B, TLS",
        workload="lone_send",
        records=3_000,
        clients=_NATIVE,
        partitions=1,
        tls=True,
        metric="p50_ms",
        targets=(at_most(1.0, "p50_ms", to=CONFLUENT), at_most(1.5, to=CONFLUENT)),
    ),
    Row(
        name="end-to-end",
        title="producer to consumer, 1,000 records a second, 100 B",
        workload="end_to_end",
        records=5_000,
        clients=(*_ON_LOOPS, AIOKAFKA, CONFLUENT),
        partitions=1,
        metric="p50_ms",
        targets=(at_most(1.2, "p50_ms", to=CONFLUENT), at_most(1.3, to=CONFLUENT)),
    ),
    Row(
        name="start-up",
        title="from the start of a process to its first record",
        workload="start_up",
        records=15,
        stored=1_000,
        clients=_NATIVE,
        partitions=1,
        metric="cpu_ms",
        targets=(at_most(0.9, "cpu_ms", to=AIOKAFKA),),
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
    ),
    Row(
        name="import",
        title="importing consumer and producer in a clean interpreter",
        workload="import_time",
        records=15,
        clients=_SAME_API,
        metric="p50_ms",
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
        targets=(at_most(0.1, "cpu_a_minute"),),
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
        targets=(at_most(0.3, "cpu_a_minute"),),
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
    *(_pauses(codec) for codec in _CODECS),
    *(_pauses(codec, ", read in batches of 1 MB") for codec in ("gzip", "zstd")),
)
