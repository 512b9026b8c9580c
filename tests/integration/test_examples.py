"""The demo and the first examples on a real Kafka."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.examples.scripts import run_script
from tests.kafka.fixtures import Kafka, MakeTopic

# Starting a broker counts as part of the first test.
pytestmark = pytest.mark.timeout(180)


async def test_demo(kafka: Kafka, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("one fish, two fish\n" * 200)
    output = await run_script("demo.py", "--bootstrap", kafka.bootstrap_servers, str(text))
    assert f"the Kafka at {kafka.bootstrap_servers}" in output
    assert re.search(r"^fish +400 ", output, re.MULTILINE)
    assert re.search(r"^lines sent +200 ", output, re.MULTILINE)
    assert re.search(r"^counts read +3 ", output, re.MULTILINE)


async def test_produce_and_consume(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = await make_topic(partitions=2)
    arguments = ["--bootstrap", kafka.bootstrap_servers, "--topic", topic, "--count", "10"]
    sent = await run_script("producer.py", *arguments)
    read = await run_script("consumer.py", *arguments)
    placed = sorted(re.findall(r"partition (\d), offset (\d+)", sent))
    assert len(placed) == 10
    assert sorted(re.findall(r"^(\d):(\d+) ", read, re.MULTILINE)) == placed


@pytest.mark.parametrize("name", ["transactional_session.py", "transactional_transform.py"])
async def test_transactions_over_a_group(kafka: Kafka, make_topic: MakeTopic, name: str) -> None:
    source, target = await make_topic(partitions=2), await make_topic()
    servers = ["--bootstrap", kafka.bootstrap_servers]
    await run_script("producer.py", *servers, "--topic", source, "--count", "10")
    topics = ["--source", source, "--target", target, "--name", source]
    assert await run_script(name, *servers, *topics, "--count", "10")
    read = await run_script("consumer.py", *servers, "--topic", target, "--count", "10")
    assert len(read.splitlines()) == 10


async def test_group_examples(kafka: Kafka, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = await make_topic(partitions=2)
    arguments = ["--bootstrap", kafka.bootstrap_servers, "--topic", topic]
    await run_script("producer.py", *arguments, "--count", "10")
    idle = ("--idle-ms", "3000")

    first = await run_script(
        "manual_commit.py", *arguments, "--group", f"{topic}-m", "--count", "6"
    )
    second = await run_script(
        "manual_commit.py", *arguments, "--group", f"{topic}-m", "--count", "4"
    )
    assert len({line.split()[0] for line in (first + second).splitlines()}) == 10

    output = await run_script("batch_consumer.py", *arguments, "--group", f"{topic}-b", *idle)
    assert sum(map(int, re.findall(r"stored (\d+) records", output))) == 10

    output = await run_script(
        "local_state_consumer.py",
        *(*arguments, "--group", f"{topic}-s", "--folder", str(tmp_path), *idle),
    )
    assert output.splitlines()[:2] == ["Revoked []", "Assigned [0, 1]"]
    assert len(os.listdir(tmp_path)) == 2

    async def modes(*switches: str) -> int:
        output = await run_script(
            "commit_modes.py", *arguments, "--group", f"{topic}-c", *idle, *switches
        )
        return output.count("Got ")

    assert await modes("--no-commit") == 10
    assert await modes("--disable-auto-commit") == 10
    assert await modes("--reset") == 0
    assert await modes() == 10
    assert await modes() == 0


async def test_group_consumer(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = await make_topic(partitions=2)
    arguments = ["--bootstrap", kafka.bootstrap_servers, "--topic", topic, "--count", "10"]
    await run_script("producer.py", *arguments)
    output = await run_script("group_consumer.py", *arguments, "--group", topic)
    assert len(re.findall(r"^Message from partition \[[01]\]: ", output, re.MULTILINE)) == 10
