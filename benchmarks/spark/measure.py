"""Runs the rows: a Spark session for each client, in turn, several rounds."""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from benchmarks.spark.cpu import cpu_seconds
from benchmarks.spark.rows import CONFLUENT, FORMATS, JVM, OURS_NARROW, TOPICS, Row, Stored
from tests.kafka.topics import create_topic

__all__ = ["Bench", "Figures"]

REPOSITORY = Path(__file__).parent.parent.parent
_STOP_TIMEOUT = 60.0

Figures = dict[str, dict[str, float]]
"""By client: the medians of `rate` (rows a second) and `cpu` (CPU seconds for a million rows)."""

Sample = dict[str, float]


class Session:
    """A process with Spark in it; see `session`."""

    def __init__(self, master: str, kind: str, jars: Sequence[Path]) -> None:
        given = {"master": master, "format": kind, "jars": [str(jar) for jar in jars]}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.spark.session", json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=REPOSITORY,
            text=True,
            bufsize=1,
        )
        self._answer()  # It has started.

    def run(self, work: dict[str, Any]) -> Sample:
        """`seconds`, and `cpu`: seconds of this process and all below it."""
        assert self._process.stdin is not None
        before = cpu_seconds(self._process.pid)
        self._process.stdin.write(json.dumps(work) + "\n")
        seconds = float(self._answer()["seconds"])
        return {"seconds": seconds, "cpu": cpu_seconds(self._process.pid) - before}

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a Spark session ended with {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Bench:
    """The sessions of one run, and the topics that they read."""

    def __init__(self, servers: str, jars: Sequence[Path], clients: Sequence[str]) -> None:
        self._servers = servers
        self._jars = jars
        self._clients = clients
        self._sessions: dict[str, Session] = {}
        self._names: dict[str, str] = {}
        self._ends: dict[str, list[int]] = {}

    @contextlib.contextmanager
    def at(self, master: str) -> Iterator[None]:
        """Have a session for each format, with this master."""
        with contextlib.ExitStack() as stack:
            for kind in dict.fromkeys(FORMATS[client] for client in self._clients):
                self._sessions[kind] = self._open(stack, master, kind)
            yield
        self._sessions.clear()

    def _open(self, stack: contextlib.ExitStack, master: str, kind: str) -> Session:
        session = Session(master, kind, self._jars if kind == FORMATS[JVM] else ())
        stack.callback(session.close)
        return session

    # -- topics

    def fill(self, topics: dict[str, Stored]) -> None:
        """Make and fill topics, by the JVM connector."""
        with contextlib.ExitStack() as stack:
            session = self._open(stack, "local[2]", FORMATS[JVM])
            for topic, stored in topics.items():
                name = self._names[topic] = _new_name(topic)
                asyncio.run(create_topic(self._servers, name, stored.partitions))
                session.run(self._write(JVM, name, stored.size, stored.records, _filling(stored)))
                self._ends[topic] = asyncio.run(_ends(self._servers, name, stored.partitions))
                _tell(f"filled {topic}")

    def remove(self) -> None:
        """Remove the topics that were filled."""
        asyncio.run(_delete(self._servers, list(self._names.values())))

    # -- works

    def _write(
        self, client: str, name: str, size: int, records: int, options: dict[str, str]
    ) -> dict[str, Any]:
        return {
            "work": "write",
            "format": FORMATS[client],
            "options": {"kafka.bootstrap.servers": self._servers, "topic": name, **options},
            "size": size,
            "records": records,
        }

    def _read(self, row: Row, client: str) -> dict[str, Any]:
        records, ends = row.count_for(client), self._ends[row.topic]
        options = {"kafka.bootstrap.servers": self._servers, "subscribe": self._names[row.topic]}
        if row.work == "stream" and client != CONFLUENT:  # Streams have no end but in that source.
            records = sum(ends)
        return {
            "work": row.work,
            "format": FORMATS[client],
            "options": {**options, **row.options.get(client, {})},
            "schema": "value binary" if client == OURS_NARROW else None,
            "ends": _share(ends, records) if records < sum(ends) else {},
            "records": records,
        }

    def measure(self, row: Row, rounds: int) -> Figures:
        """A warm-up of every client, then `rounds` in which each does its work once."""
        chosen = [client for client in row.clients if client in self._clients]
        samples: dict[str, list[Sample]] = {client: [] for client in chosen}
        for number in range(0 if row.once else -1, 1 if row.once else rounds):
            # Each client goes first once: the order must not favour any.
            turn = chosen[number % len(chosen) :] + chosen[: number % len(chosen)]
            for client in turn:
                sample = self._sample(row, client)
                _tell(f"{row.name:16} {client:18} {sample}")
                if number >= 0:
                    samples[client].append(sample)
        return {client: _summary(samples[client]) for client in chosen}

    def _sample(self, row: Row, client: str) -> Sample:
        session = self._sessions[FORMATS[client]]
        if row.work == "write":
            name = _new_name(row.name)
            stored, records = TOPICS[row.topic], row.count_for(client)
            asyncio.run(create_topic(self._servers, name, stored.partitions))
            work = self._write(client, name, stored.size, records, row.options[client])
            sample = session.run(work)
            written = sum(asyncio.run(_ends(self._servers, name, stored.partitions)))
            asyncio.run(_delete(self._servers, [name]))
            if written != records:
                raise RuntimeError(f"{client} wrote {written} records instead of {records}")
        else:
            work = self._read(row, client)
            records = work["records"]
            sample = session.run(work)
        return {"rate": records / sample["seconds"], "cpu": sample["cpu"] * 1e6 / records}


def _filling(stored: Stored) -> dict[str, str]:
    # On a busy broker new topics of many partitions made idempotent producers give up.
    return {"kafka.compression.type": stored.compression, "kafka.enable.idempotence": "false"}


def _summary(samples: list[Sample]) -> dict[str, float]:
    return {name: statistics.median(s[name] for s in samples) for name in samples[0]}


def _share(ends: list[int], records: int) -> dict[str, int]:
    """Ends of partitions, so that there are `records` before them in all."""
    part, left = {}, records
    for number, end in enumerate(ends):
        part[str(number)] = min(end, left // (len(ends) - number))
        left -= part[str(number)]
    return part


def _new_name(topic: str) -> str:
    return f"bench-{topic}-{uuid.uuid4().hex[:6]}"


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


async def _delete(servers: str, names: list[str]) -> None:
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        await admin.delete_topics(names)


async def _ends(servers: str, name: str, partitions: int) -> list[int]:
    wanted = [TopicPartition(name, number) for number in range(partitions)]
    async with AIOKafkaConsumer(bootstrap_servers=servers) as consumer:
        ends = await consumer.end_offsets(wanted)
    return [ends[tp] for tp in wanted]
