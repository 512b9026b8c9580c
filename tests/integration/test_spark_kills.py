"""Whatever is killed, and whenever: exactly once is exactly once, at least once loses nothing.

In each round three queries go from one topic to three: a copy that is exactly once, one that is at
least once, and counts by minute that are exactly once. Meanwhile a Python process of Spark is
killed, or Spark itself, or a broker. The queries note how far they are, so that a kill can be aimed
at each of their phases; others come at any time.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient
from tests.integration.spark_session import REPOSITORY, why_no_spark
from tests.kafka.fixtures import Kafka, Scale, is_long_run, need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.topics import create_topic
from tests.kafka.versions import DEFAULT_VERSION

missing = why_no_spark()
pytestmark = [
    pytest.mark.skipif(bool(missing), reason=missing or "Spark is there"),
    pytest.mark.long,
    pytest.mark.timeout(300),
]

RECORDS = 20_000
# Records in a batch, and among how many notes of a phase the one to kill at is chosen.
IN_A_BATCH, EARLY = (4_000, 4) if is_long_run() else (7_000, 2)
KEYS = 7
START = 1_767_225_600_000
STEP = 60  # milliseconds from record to record
MINUTE = 60_000
PATIENCE = 240.0

# Seconds; for those that take longer than others.
DELAYS = {"plan": 0.2, "read": 0.1, "begin": 0.1, "rows": 0.15, "commit": 0.2}
KINDS = ("once", "least", "counts")
PHASES = ("plan", "read", "begin", "rows", "finish", "done", "commit")
SEED = int(os.environ.get("TEST_SEED", "0")) or random.randrange(1 << 32)


# -- records


async def fill(servers: str, topic: str) -> None:
    """Numbers; and at the end two records that are so late that all others can be counted."""
    records = [(n % 2, b"%d" % (n % KEYS), START + n * STEP) for n in range(RECORDS)]
    records += [(number, b"late", START + RECORDS * STEP + 10 * MINUTE) for number in (0, 1)]
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        for number in (0, 1):
            batch = producer.create_batch()
            for n, (partition, key, stamp) in enumerate(records):
                if partition != number:
                    continue
                if batch.append(timestamp=stamp, key=key, value=b"%d" % n) is None:
                    await producer.send_batch(batch, topic, partition=number)
                    batch = producer.create_batch()
                    batch.append(timestamp=stamp, key=key, value=b"%d" % n)
            await producer.send_batch(batch, topic, partition=number)


async def append(servers: str, topic: str, stamp: int, value: bytes) -> None:
    """One more record of those that are late."""
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait(topic, value, b"late", partition=0, timestamp_ms=stamp)


async def consume(servers: str, topic: str, isolation: str) -> list[tuple[bytes, bytes]]:
    """Keys and values, up to the last record that any reader could see."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level=isolation
    )
    found: list[tuple[bytes, bytes]] = []
    async with consumer, timeout(PATIENCE):
        tps = [TopicPartition(topic, number) for number in (0, 1)]
        consumer.assign(tps)
        # A transaction that is left open would keep read_committed from getting there.
        async with AIOKafkaConsumer(bootstrap_servers=servers) as plain:
            ends = await plain.end_offsets(tps)
        while any([await consumer.position(tp) < ends[tp] for tp in tps]):
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += [(record.key or b"", record.value or b"") for record in records]
    return found


def expected_counts() -> dict[tuple[bytes, int], int]:
    return collections.Counter(
        (b"%d" % (n % KEYS), (START + n * STEP) // MINUTE) for n in range(RECORDS)
    )


async def open_transactions(servers: str) -> str:
    """What a stuck test needs to tell: transactions that have not ended, here and in the store of
    committed offsets, which has the marks of exactly-once.
    """
    lines = []
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        names = [found.transactional_id for found in await admin.transactions.list()]
        described = await admin.transactions.describe(names)
        lines += [repr(each) for each in described.values() if each.partitions]
        lines += [repr(each) for each in await admin.transactions.find_hanging(older_than_ms=0)]
        for topic in (await admin.topics.describe(["__consumer_offsets"])).values():
            tps = [TopicPartition(topic.name, each.partition) for each in topic.partitions]
            for tp, producers in (await admin.transactions.producers(tps)).items():
                lines += [
                    f"{tp}: {each!r}"
                    for each in producers
                    if each.transaction_start_offset is not None
                ]
    return "open transactions:\n" + "\n".join(lines)


# -- Spark, and what can be killed of it


class Note(NamedTuple):
    phase: str
    sink: str
    pid: int
    batch: int
    detail: str


class Spark:
    """A process that runs the rounds that it is told, in a session of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.starts = 0
        self.notes: list[Note] = []
        self._first_note = 0
        self._path = directory / "notes"
        self._path.touch()
        self._file = self._path.open()
        self._rest = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Return when it takes orders."""
        self.stop()
        self._first_note = len(self.notes)
        paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "TEST_SPARK_NOTES": str(self._path),
        }
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.integration.spark_copy", str(self.directory)],
                env=environment,
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.starts += 1
        self.wait_for(lambda note: note.phase == "started")

    def order(self, order: dict[str, Any]) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()

    def look(self) -> list[Note]:
        """What was noted since the last look."""
        *lines, self._rest = (self._rest + self._file.read()).split("\n")
        new = []
        for line in lines:
            _at, phase, sink, pid, batch, _task, detail = line.split()
            number = int(batch) if batch.isdigit() else -1
            new.append(Note(phase, sink, int(pid), number, detail))
        self.notes += new
        return new

    def wait_for(self, wanted: Callable[[Note], bool], patience: float = PATIENCE) -> Note | None:
        """The first such note from now on; None if the round came to its end before."""
        deadline = time.monotonic() + patience
        while True:
            for note in self.look():
                if wanted(note):
                    return note
                if note.phase == "finished":
                    return None
            if not self.is_running or time.monotonic() > deadline:
                state = "still runs" if self.is_running else "has ended"
                raise AssertionError(f"Spark {state}\n{self.log()}")
            time.sleep(0.002)

    def wait_until_finished(self, first: int) -> None:
        """Wait for the end of the round whose first note has this number. It may have been read
        already: the queries can end while something is killed.
        """
        notes = self.notes[max(first, self._first_note) :]
        if not any(note.phase == "finished" for note in notes):
            self.wait_for(lambda note: note.phase == "finished")

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-8000:]

    def processes(self) -> dict[int, str]:
        """Those of its session, with what they run."""
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == self.pid:
                    command = (entry / "cmdline").read_bytes().decode(errors="replace")
                    found[int(entry.name)] = command.replace("\0", " ")
        return found

    def workers(self) -> list[int]:
        """The processes that run Python for the JVM, with the one that forks them."""
        return [pid for pid, command in self.processes().items() if " -m pyspark." in command]

    def kill(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def kill_driver(self, *, with_workers: bool) -> None:
        """The JVM; what it leaves behind ends by itself, or is killed too."""
        for pid, command in self.processes().items():
            if with_workers or command.split(" ", 1)[0].endswith("java"):
                self.kill(pid)
        assert self._process is not None
        try:
            self._process.wait(30)
        finally:
            self.stop()

    def stop(self) -> None:
        if self._process is not None:
            for pid in self.processes():
                self.kill(pid)
            self._process.kill()
            self._process.wait(30)
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        self.look()

    def close(self) -> None:
        self.stop()
        self._file.close()


# -- rounds


class Report:
    """What the rounds of a test have shown."""

    def __init__(self) -> None:
        self.rounds = 0
        self.kills: collections.Counter[str] = collections.Counter()
        self.totals: collections.Counter[str] = collections.Counter()

    def __str__(self) -> str:
        kills = ", ".join(f"{name} {count}" for name, count in sorted(self.kills.items()))
        totals = ", ".join(f"{name} {count}" for name, count in sorted(self.totals.items()))
        return f"seed {SEED}, {self.rounds} rounds, killed at {kills}; {totals}"


class Rounds:
    """Runs rounds of three queries, and checks what they wrote."""

    def __init__(self, spark: Spark, servers: str, copies: int, directory: Path) -> None:
        self.spark = spark
        self.random = random.Random(SEED)
        self.report = Report()
        self.sinks: dict[str, str] = {}
        self._servers = servers
        self._copies = copies
        self._directory = directory
        self._source = f"kills-{uuid.uuid4().hex[:8]}"
        self._numbers = RECORDS + 2
        self._order: dict[str, Any] = {}
        self._aims: list[str] = []
        asyncio.run(self._make(self._source))
        asyncio.run(fill(servers, self._source))

    async def _make(self, *topics: str) -> None:
        for topic in topics:
            await create_topic(self._servers, topic, 2, self._copies)

    def run(self, kill: Callable[[Rounds], Any], kills: int) -> None:
        """One round, with `kills` or fewer if the queries came to their ends before."""
        name = uuid.uuid4().hex[:8]
        self.sinks = {kind: f"kills-{name}-{kind}" for kind in KINDS}
        asyncio.run(self._make(*self.sinks.values()))
        self._order = {
            "round": str(self.report.rounds),
            "servers": self._servers,
            "source": self._source,
            "sinks": self.sinks,
            "batch": IN_A_BATCH,
            "directory": str(self._directory / name),
        }
        first = len(self.spark.notes)
        if not self.spark.is_running:
            self.spark.start()
        self.spark.order(self._order)
        before = sum(self.report.kills.values())
        try:
            for _ in range(kills):
                if kill(self) is False:
                    break
            else:
                self.spark.wait_until_finished(first)
        except AssertionError as error:
            where = f"seed {SEED}, round {self.report.rounds}, kills {dict(self.report.kills)}"
            still_open = asyncio.run(open_transactions(self._servers))
            raise AssertionError(f"{where}: {error}\n{still_open}") from error
        self.check(first)
        self.report.rounds += sum(self.report.kills.values()) > before

    def again(self) -> None:
        """Start Spark again and go on with the round."""
        self.spark.start()
        self.spark.order(self._order)

    def moment(self) -> Note | None:
        """Wait for a moment that is chosen at random; None if the queries have ended."""
        aim, kind = self._aim(), self.random.choice((*KINDS, "once", "once"))
        sink, batch = self.sinks[kind], self.random.randrange(EARLY)
        if aim == "any":
            if self.spark.wait_for(lambda note: note.phase == "plan") is None:
                return None
            late = time.monotonic() + self.random.uniform(0, 3)
            found = self.spark.wait_for(lambda note: time.monotonic() > late)
        else:
            seen = collections.Counter[str]()

            def is_it(note: Note) -> bool:
                seen[note.sink] += note.phase == aim
                return note.phase == aim and note.sink == sink and seen[sink] > batch

            found = self.spark.wait_for(is_it)
            if found is not None:
                time.sleep(self.random.uniform(0, DELAYS.get(aim, 0.01)))
        if found is None or any(note.phase == "finished" for note in self.spark.look()):
            return None
        return found

    def _aim(self) -> str:
        """Every phase in turn, in any order, more of those in which a transaction is open; among
        them kills at any time.
        """
        if not self._aims:
            self._aims = [*PHASES, "rows", "rows", "finish", "any", "any"]
            self.random.shuffle(self._aims)
        return self._aims.pop()

    def count_kill(self, what: str) -> None:
        """Name the phases in which the queries were."""
        self.spark.look()
        for kind, sink in self.sinks.items():
            last = next((n.phase for n in reversed(self.spark.notes) if n.sink == sink), "none")
            self.report.totals[f"{kind} at {last}"] += 1
        self.report.kills[what] += 1

    # -- what must have come out

    def check(self, first: int) -> None:
        """Read the sinks, and sum up what was noted since the note `first`."""
        totals = self.report.totals
        seen = {kind: asyncio.run(self._read(sink)) for kind, sink in self.sinks.items()}
        numbers = [b"%d" % n for n in range(self._numbers)]
        where = f"seed {SEED}, round {self.report.rounds}, kills {dict(self.report.kills)}"
        once = sorted(int(value) for _key, value in seen["once"][0])
        assert once == list(range(self._numbers)), (
            f"once: {where}: {difference(once, self._numbers)}"
        )
        least = [value for _key, value in seen["least"][0]]
        assert set(least) == set(numbers), (
            f"least: {where}: {difference(map(int, least), self._numbers)}"
        )
        totals["duplicates at least once"] += len(least) - len(numbers)
        found = counts_in(seen["counts"][0], where)
        if found.items() < expected_counts().items():
            self._push_on()
            seen["counts"] = asyncio.run(self._read(self.sinks["counts"]))
            found = counts_in(seen["counts"][0], where)
        assert found == expected_counts(), f"counts: {where}"
        for kind in ("once", "counts"):
            totals[f"{kind}: rows aborted"] += seen[kind][1] - len(seen[kind][0])
            totals[f"{kind}: transactions aborted"] += seen[kind][1] > len(seen[kind][0])
        for note in self.spark.notes[first:]:
            totals["tasks found their mark"] += (note.phase, note.detail) == ("done", "again")
            totals["queries failed"] += note.phase == "failed"
            totals["batches aborted"] += note.phase == "abort"

    def _push_on(self) -> None:
        """Write one more record, and count on.

        The last counts come in a batch without records behind the last ones. A query that fails
        between these two makes no such batch when it is started again, but one with the next
        records: Spark looks for counts that are due only behind a batch of the same run.
        """
        number, late = self._numbers, (self._numbers - RECORDS) * 10 * MINUTE
        self._numbers += 1
        stamp = START + RECORDS * STEP + late
        asyncio.run(append(self._servers, self._source, stamp, b"%d" % number))
        first = len(self.spark.notes)
        self.spark.order({**self._order, "sinks": {"counts": self.sinks["counts"]}})
        self.spark.wait_until_finished(first)

    async def _read(self, sink: str) -> tuple[list[tuple[bytes, bytes]], int]:
        """What is committed, and how many records there are with those that were aborted."""
        committed = await consume(self._servers, sink, "read_committed")
        return committed, len(await consume(self._servers, sink, "read_uncommitted"))


def counts_in(records: list[tuple[bytes, bytes]], where: str) -> dict[tuple[bytes, int], int]:
    """By key and minute, without those of the late records."""
    counts = [(key, *minute_and_count(value)) for key, value in records if key != b"late"]
    found = {(key, minute): n for key, minute, n in counts}
    assert len(found) == len(counts), f"counts: {where}: some were written twice"
    return found


def minute_and_count(value: bytes) -> tuple[int, int]:
    from datetime import datetime

    row = json.loads(value)
    return int(datetime.fromisoformat(row["minute"]).timestamp()) // 60, row["n"]


def difference(found: Any, wanted: int) -> str:
    counted = collections.Counter(found)
    lost = [n for n in range(wanted) if n not in counted]
    twice = [n for n, count in counted.items() if count > 1]
    return f"{len(lost)} lost {lost[:10]}, {len(twice)} more than once {sorted(twice)[:10]}"


# -- who is killed


def kill_worker(rounds: Rounds) -> bool:
    """The Python process that is there in that phase, or any other."""
    note = rounds.moment()
    if note is None:
        return False
    spark = rounds.spark
    aimed = note.pid in spark.workers() and rounds.random.random() < 0.6
    pid = note.pid if aimed else rounds.random.choice(spark.workers())
    command = spark.processes().get(pid, "gone").split(" -m ")[-1].split()[0]
    spark.kill(pid)
    rounds.count_kill(f"{note.phase} ({'itself' if aimed else command})")
    return True


def kill_driver(rounds: Rounds) -> bool:
    note = rounds.moment()
    if note is None:
        return False
    with_workers = rounds.random.random() < 0.5
    rounds.spark.kill_driver(with_workers=with_workers)
    rounds.count_kill(f"{note.phase} ({'all' if with_workers else 'the JVM'})")
    rounds.again()
    return True


def kill_broker(cluster: KafkaCluster, rounds: Rounds) -> bool:
    note = rounds.moment()
    if note is None:
        return False
    node = rounds.random.choice(list(cluster.nodes))
    cluster.kill(node)
    rounds.count_kill(note.phase)
    time.sleep(rounds.random.uniform(0, 2))
    cluster.restart(node)
    return True


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Spark]:
    made = Spark(tmp_path_factory.mktemp("spark"))
    yield made
    made.close()


def play(rounds: Rounds, kill: Callable[[Rounds], bool], wanted: int, most_kills: int) -> None:
    """So many rounds in which something was killed."""
    for _ in range(2 * wanted):
        rounds.run(kill, rounds.random.randint(1, most_kills))
        print(f"\n{rounds.report}", flush=True)
        if rounds.report.rounds == wanted:
            break
    assert rounds.report.rounds == wanted


def test_a_worker_dies(spark: Spark, kafka: Kafka, scale: Scale, tmp_path: Path) -> None:
    play(Rounds(spark, kafka.bootstrap_servers, 1, tmp_path), kill_worker, scale(1, 20), 3)


def test_spark_dies(spark: Spark, kafka: Kafka, scale: Scale, tmp_path: Path) -> None:
    play(Rounds(spark, kafka.bootstrap_servers, 1, tmp_path), kill_driver, scale(1, 20), 1)


@pytest.mark.parametrize("nodes", [1, 3])
def test_a_broker_dies(spark: Spark, scale: Scale, tmp_path: Path, nodes: int) -> None:
    if nodes > 1 and not scale.is_long:
        pytest.skip("three brokers are for the long form")
    need_own_brokers()
    # A single broker of 4.3.1 that restarts may take partitions without a leader for deleted ones.
    # It completes a committed transaction without its markers then, which hangs (KAFKA-20734).
    version = DEFAULT_VERSION if nodes > 1 else "4.2.1"
    with KafkaCluster(version, nodes=nodes) as cluster:
        rounds = Rounds(spark, cluster.bootstrap_servers, nodes, tmp_path)
        play(rounds, lambda played: kill_broker(cluster, played), scale(1, 20), 2)
