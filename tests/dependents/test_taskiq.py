"""taskiq: tasks and their results, with kafka-python's assignor and partitioner."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.dependents.running import PROGRAMS, committed, running
from tests.kafka.fixtures import Kafka
from tests.kafka.topics import create_topic

WORKER = ("-m", "taskiq", "worker", "taskiq_tasks:broker", "--workers", "1")


async def test_tasks(kafka: Kafka, topic: str, log: Path, tmp_path: Path) -> None:
    # Client and worker would both make them at the same moment, and one of them fail.
    await create_topic(kafka.bootstrap_servers, f"{topic}-tasks")
    await create_topic(kafka.bootstrap_servers, f"{topic}-more")
    results = tmp_path / "results"
    results.mkdir()
    given = {
        "TASKIQ_SERVERS": kafka.bootstrap_servers,
        "TASKIQ_PREFIX": topic,
        "TASKIQ_RESULTS": str(results),
    }
    arguments = (*WORKER, "--app-dir", str(PROGRAMS))
    async with running("taskiq", "taskiq_tasks.py", log=log, **given) as client:
        async with running("taskiq", *arguments, log=log, **given) as worker:
            assert await client.end() == 0, log
            assert client.of("sums")[0]["sums"] == [number + 1 for number in range(20)]
            (failed,) = client.of("failed")
            assert failed["is"]
            assert failed["error"] == "ValueError('as it should')"
            assert client.of("stopped")
            worker.send_signal(signal.SIGTERM)
            await worker.end()
    assert await committed(kafka.bootstrap_servers, f"{topic}-workers", f"{topic}-tasks") == 20
    assert await committed(kafka.bootstrap_servers, f"{topic}-workers", f"{topic}-more") == 1
