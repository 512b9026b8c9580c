"""Count the words of text files through Kafka, and say how fast it went.

Sends every line as a record with the name of its file as key, reads the lines back, counts their
words, sends the counts to a second topic, reads those back and prints a table of them. Without
--bootstrap (or BOOTSTRAP in the environment) it starts a small fake cluster inside the process.

    python examples/demo.py
    python examples/demo.py --bootstrap localhost:9092 some/file.txt some/directory
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import re
import sys
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import aiokafka
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, KafkaTimeoutError, for_code
from aiokafka.record import batch as record_batch
from aiokafka.structs import ConsumerRecord
from aiokafka.testing import FakeCluster

REPOSITORY = Path(__file__).resolve().parent.parent
TEXT = {".rst", ".txt", ".md", ".py"}
PARTITIONS = 3
WORD = re.compile(r"[^\W\d_]{3,}")


class Step(NamedTuple):
    """One part of the work: what was done to how many records in how many seconds."""

    name: str
    records: int
    seconds: float

    @property
    def rate(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0


# -- the files


def default_paths() -> list[Path]:
    """The project's own documents; where there are none, the sources of the library."""
    found = [path for path in (REPOSITORY / "README.rst", REPOSITORY / "docs") if path.exists()]
    return found or [Path(aiokafka.__file__).parent]


def text_files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            inside = (p for p in path.rglob("*") if "_build" not in p.parts)
            yield from sorted(p for p in inside if p.is_file() and p.suffix in TEXT)
        else:
            yield path


def read_lines(paths: Iterable[Path]) -> Iterator[tuple[str, str]]:
    """The name of the file and the line, for every line that is not blank."""
    for path in text_files(paths):
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from ((path.name, line.rstrip()) for line in file if not line.isspace())


# -- the work


async def send_all(
    producer: AIOKafkaProducer, topic: str, records: Iterable[tuple[str, str]]
) -> int:
    """Send (key, value) pairs, then wait until all are written."""
    futures = [await producer.send(topic, value, key=key) for key, value in records]
    for metadata in await asyncio.gather(*futures):
        assert metadata.offset >= 0
    return len(futures)


async def read_all(
    servers: str, topic: str, count: int, use: Callable[[ConsumerRecord[str, str]], object]
) -> int:
    """Call `use` with every record of a topic, until `count` records were read."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        auto_offset_reset="earliest",
        key_deserializer=bytes.decode,
        value_deserializer=bytes.decode,
    )
    seen = 0
    async with consumer:
        while seen < count:
            found = await consumer.getmany(timeout_ms=10_000)
            if not found:
                raise KafkaTimeoutError(f"{topic}: only {seen} of {count} records came")
            for records in found.values():
                for record in records:
                    use(record)
                seen += len(records)
    return seen


async def count_words(
    servers: str, paths: list[Path], began: float
) -> tuple[list[Step], Counter[str]]:
    """Do the whole of it on a cluster; return how long each part took, and the counts."""
    steps: list[Step] = []
    counts: Counter[str] = Counter()
    result: Counter[str] = Counter()
    is_first = True

    def count_line(record: ConsumerRecord[str, str]) -> None:
        nonlocal is_first
        if is_first:
            print(f"the first record was read {time.time() - began:.1f} s after the start\n")
            is_first = False
        if record.offset < 2:
            print(shown(record))
        counts.update(WORD.findall((record.value or "").lower()))

    async with (
        topics(servers, "lines", "counts") as (lines, totals),
        AIOKafkaProducer(
            bootstrap_servers=servers, key_serializer=str.encode, value_serializer=str.encode
        ) as producer,
    ):
        start = time.perf_counter()
        sent = await send_all(producer, lines, read_lines(paths))
        steps.append(Step("lines sent", sent, time.perf_counter() - start))
        if not sent:
            raise SystemExit("there is no line of text in " + ", ".join(map(str, paths)))

        start = time.perf_counter()
        read = await read_all(servers, lines, sent, count_line)
        steps.append(Step("lines read, words counted", read, time.perf_counter() - start))

        start = time.perf_counter()
        sent = await send_all(producer, totals, ((w, str(n)) for w, n in counts.items()))
        steps.append(Step("counts sent", sent, time.perf_counter() - start))

        start = time.perf_counter()
        read = await read_all(
            servers, totals, sent, lambda r: result.update({r.key or "": int(r.value or 0)})
        )
        steps.append(Step("counts read", read, time.perf_counter() - start))
    assert result == counts
    return steps, result


@contextlib.asynccontextmanager
async def topics(servers: str, *names: str) -> AsyncIterator[list[str]]:
    """New topics that are deleted in the end."""
    unique = uuid.uuid4().hex[:8]
    made = [f"demo-{name}-{unique}" for name in names]
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        result = await admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in made])
        for name, code, message in result.topic_errors:
            if code:
                raise for_code(code)(f"{name}: {message}")
        try:
            yield made
        finally:
            await admin.delete_topics(made)


# -- what is printed


def shown(record: ConsumerRecord[str, str]) -> str:
    """Where a record is in Kafka, and what is in it."""
    value = record.value or ""
    cut = f"{value[:44]}..." if len(value) > 47 else value
    return (
        f"{record.topic}, partition {record.partition}, offset {record.offset}: "
        f"key {record.key!r}, value {cut!r}"
    )


WHERE_TO_GO = """
Next:
  examples/first.py           a program of 20 lines that sends and reads a record
  DEMO=orders make demo       kill members of a group and brokers, and see that nothing is lost
  docs/tutorial.rst           from an empty directory to a tested service, in half an hour
  aiokafka testing serve      a Kafka for your own programs (pip install ".[cli]")"""


def table(steps: list[Step], counts: Counter[str], top: int, where: str) -> str:
    most = counts.most_common(top)
    widest = max((number for _, number in most), default=1)
    lines = [f"{'word':<16} {'count':>7}", f"{'-' * 16} {'-' * 7}"]
    for word, number in most:
        bar = "#" * max(1, round(30 * number / widest))
        lines.append(f"{word[:16]:<16} {number:>7,}  {bar}")
    lines += ["", f"Rates are of this run{where}; docs/performance.rst compares clients."]
    lines.append(f"{'step':<27} {'records':>9} {'seconds':>9} {'records/s':>11}")
    lines.append(f"{'-' * 27} {'-' * 9} {'-' * 9} {'-' * 11}")
    for step in steps:
        lines.append(f"{step.name:<27} {step.records:>9,} {step.seconds:>9.3f} {step.rate:>11,.0f}")
    return "\n".join(lines)


def mode() -> str:
    return "pure Python" if str(record_batch.__file__).endswith(".py") else "compiled"


async def run(bootstrap: str, paths: list[Path], top: int, began: float) -> None:
    async with contextlib.AsyncExitStack() as stack:
        servers = bootstrap
        if not servers:
            servers = (await stack.enter_async_context(FakeCluster())).bootstrap_servers
        where = f"the Kafka at {servers}" if bootstrap else "a fake cluster in this process"
        print(
            f"aiokafka {aiokafka.__version__} ({mode()}), Python {platform.python_version()}, "
            f"on {where}"
        )
        steps, counts = await count_words(servers, paths, began)
    where = "" if bootstrap else ", with the cluster in the same process"
    print("\n" + table(steps, counts, top, where) + "\n" + WHERE_TO_GO)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Count the words of text files through Kafka.")
    parser.add_argument("paths", nargs="*", type=Path, help="files or directories")
    parser.add_argument(
        "--bootstrap",
        default=os.environ.get("BOOTSTRAP", ""),
        help="host:port of a running Kafka; by default a fake one is started",
    )
    parser.add_argument("--top", type=int, default=15, help="words to show (default 15)")
    given = parser.parse_args(argv)
    for path in given.paths:
        if not path.exists():
            parser.error(f"there is no file or directory {path}")
    # `make demo` says when it began, with the installation; else it is now.
    began = float(os.environ.get("BEGAN") or time.time())
    try:
        asyncio.run(run(given.bootstrap, given.paths or default_paths(), given.top, began))
    except KafkaError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
