"""The command line against a real Kafka."""

from __future__ import annotations

import asyncio
import importlib.util
import sys

import pytest

from tests.cli.support import environment
from tests.kafka.fixtures import Kafka, MakeTopic

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(importlib.util.find_spec("click") is None, reason="needs the extra cli"),
]


async def run(kafka: Kafka, *arguments: str, text: str = "") -> list[str]:
    """Run a command that must succeed; return the lines that it prints."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "aiokafka", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(AIOKAFKA_BOOTSTRAP_SERVERS=kafka.bootstrap_servers),
    )
    out, err = await asyncio.wait_for(child.communicate(text.encode()), 60)
    assert child.returncode == 0, err.decode()
    return out.decode().splitlines()


async def test_records_go_in_and_out_and_groups_move(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = await make_topic(partitions=2)
    lines = [f"k{number}:value {number}" for number in range(1000)]
    options = ("--key-delimiter", ":", "--compression", "gzip", "--transactional-id", topic)
    await run(kafka, "produce", topic, *options, text="\n".join(lines))
    reading = ("--exit-at-end", "--key-delimiter", ":", "--read-committed")
    assert sorted(await run(kafka, "consume", topic, *reading)) == sorted(lines)
    assert len(await run(kafka, "consume", topic, "--group", topic, "--count", "100")) == 100
    await run(kafka, "groups", "reset", topic, "--to", "earliest")
    again = await run(kafka, "consume", topic, "--group", topic, *reading)
    assert sorted(again) == sorted(lines)
    assert await run(kafka, "topics", "list", topic, "--output", "csv") == [
        "name,partitions,replication_factor",
        f"{topic},2,1",
    ]
