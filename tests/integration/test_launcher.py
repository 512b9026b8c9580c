"""The launcher itself: brokers that come, go and come back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from tests.kafka import probe
from tests.kafka.fixtures import Kafka, need_own_brokers
from tests.kafka.launcher import KafkaCluster


def test_a_started_broker_serves(kafka: Kafka) -> None:
    host, port = kafka.bootstrap_servers.split(":")
    assert probe.ask((host, int(port)), names_controller=True).controller != -1


async def test_a_topic_is_made(kafka: Kafka, topic: str) -> None:
    assert topic.startswith("test-")


def test_a_killed_broker_comes_back(kafka3: KafkaCluster) -> None:
    assert len(kafka3.bootstrap_servers.split(",")) == 3
    kafka3.kill(2)
    assert not kafka3.is_alive(2)
    kafka3.restart(2)
    assert [kafka3.is_alive(node) for node in kafka3.nodes] == [True] * 3


def test_brokers_end_with_a_run_that_is_killed() -> None:
    need_own_brokers()
    code = (
        "from tests.kafka.launcher import KafkaCluster\n"
        "c = KafkaCluster(); c.start(); print(c.pid(1), c.folder, flush=True); input()\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert run.stdin is not None
    assert run.stdout is not None
    with run.stdin, run.stdout:
        broker = int(run.stdout.readline().split()[0])
        run.send_signal(signal.SIGKILL)
        run.wait()
        deadline = time.monotonic() + 10
        while _is_running(broker):
            assert time.monotonic() < deadline, "the broker outlived the run"
            time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"
