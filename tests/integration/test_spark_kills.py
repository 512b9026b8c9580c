"""Exactly once, whatever is killed: Spark as a whole, or the Python process of a task."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.spark_session import REPOSITORY, why_no_spark
from tests.integration.test_spark import consume, fill
from tests.kafka.fixtures import Kafka, MakeTopic, Scale

missing = why_no_spark()
pytestmark = [
    pytest.mark.skipif(bool(missing), reason=missing or "Spark is there"),
    pytest.mark.long,
    pytest.mark.timeout(900),
]

RECORDS = 20_000


@contextlib.contextmanager
def copying(
    kafka: Kafka, source: str, sink: str, directory: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Spark, in a session of its own so that nothing of it survives."""
    paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    arguments = [kafka.bootstrap_servers, source, sink, str(directory)]
    with (directory / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.spark_copy", *arguments],
            env=environment,
            cwd=REPOSITORY,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def batches(directory: Path) -> int:
    """How many batches Spark has planned."""
    return len(list((directory / "checkpoint" / "offsets").glob("[0-9]*")))


def wait_for_batch(process: subprocess.Popen[bytes], directory: Path, count: int) -> bool:
    """Until there are so many; False if it came to its end before."""
    while process.poll() is None:
        if batches(directory) >= count:
            return True
        time.sleep(0.01)
    return False


def workers(process: subprocess.Popen[bytes]) -> list[int]:
    """The processes of the session that run Python's tasks."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == process.pid and b"pyspark" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def kill_all(process: subprocess.Popen[bytes]) -> bool:
    os.killpg(process.pid, signal.SIGKILL)
    return True


def kill_worker(process: subprocess.Popen[bytes]) -> bool:
    """One of them, at random; the daemon that forks them among them."""
    with contextlib.suppress(ProcessLookupError, IndexError):
        os.kill(random.choice(workers(process)), signal.SIGKILL)
        return True
    return False


@pytest.mark.parametrize("kill", [kill_all, kill_worker])
async def test_nothing_is_lost_or_doubled(
    kafka: Kafka, make_topic: MakeTopic, scale: Scale, tmp_path: Path, kill: object
) -> None:
    assert callable(kill)
    for round_number in range(scale(1, 20)):
        directory = tmp_path / str(round_number)
        directory.mkdir()
        source, sink = await make_topic(partitions=2), await make_topic(partitions=2)
        await asyncio.to_thread(fill, kafka, source, 0, RECORDS)

        def run_to_the_end(source: str = source, sink: str = sink, at: Path = directory) -> int:
            """How often it was killed."""
            kills = 0
            for _ in range(6):
                with copying(kafka, source, sink, at) as process:
                    target = batches(at) + random.randint(1, 3)
                    if kills < 2 and wait_for_batch(process, at, target):
                        time.sleep(random.random())
                        kills += kill(process)
                    if process.wait(300) == 0:
                        return kills
            raise AssertionError((at / "log").read_text()[-5000:])

        assert await asyncio.to_thread(run_to_the_end) > 0
        found = await consume(kafka, sink)
        assert len(found) == RECORDS
        assert sorted(int(value or b"") for value in found) == list(range(RECORDS))
