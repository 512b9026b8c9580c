"""The demo and the first examples on a real Kafka."""

from __future__ import annotations

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
