"""The examples with groups, each as a script of its own, on the fake cluster."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.testing import FakeCluster
from tests.examples.scripts import run_script


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as fake:
        yield fake
        assert fake.failures == []


async def test_share_consumer(cluster: FakeCluster) -> None:
    await cluster.create_topic("jobs")
    servers = cluster.bootstrap_servers
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        await admin.configs.alter({("group", "g"): {"share.auto.offset.reset": "earliest"}})
    for value in (b"one", None, b"two", b"three"):
        cluster.log("jobs", 0).append(value)
    options = ("--bootstrap", servers, "--topic", "jobs", "--group", "g", "--count", "4")
    assert (await run_script("share_consumer.py", *options)).splitlines() == [
        "one (delivery 1)",
        "rejected",
        "three (delivery 1)",
        "two (delivery 1)",
    ]


async def members_and_state(admin: AIOKafkaAdminClient) -> tuple[int, str]:
    (response,) = await admin.describe_consumer_groups(["TEST_GROUP"])
    (group,) = response.groups
    return len(group.members), group.state


async def test_group_consumer(cluster: FakeCluster) -> None:
    await cluster.create_topic("some-topic", partitions=2)

    async def member(group: str, count: int) -> str:
        options = ("--group", group, "--count", str(count))
        return await run_script(
            "group_consumer.py", "--bootstrap", cluster.bootstrap_servers, *options
        )

    async def write_when_all_are_there() -> None:
        servers = cluster.bootstrap_servers
        async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin, timeout(30):
            while await members_and_state(admin) != (2, "Stable"):
                await asyncio.sleep(0.05)
        for number in range(4):
            cluster.log("some-topic", number // 2).append(b"message #%d" % (number + 1))

    first, second, other, _ = await asyncio.gather(
        member("TEST_GROUP", 2),
        member("TEST_GROUP", 2),
        member("OTHER_GROUP", 4),
        write_when_all_are_there(),
    )
    halves = [
        [f"Message from partition [{number // 2}]: b'message #{number + 1}'" for number in numbers]
        for numbers in ((0, 1), (2, 3))
    ]
    assert sorted([first.splitlines(), second.splitlines()]) == halves
    assert sorted(other.splitlines()) == sorted(halves[0] + halves[1])


async def test_manual_commit(cluster: FakeCluster) -> None:
    await cluster.create_topic("my-topic")
    cluster.log("my-topic").extend([(None, b"%d" % n, ()) for n in range(15)])
    arguments = ["--bootstrap", cluster.bootstrap_servers]
    first = await run_script("manual_commit.py", *arguments)
    assert first.splitlines()[-1] == "0:9 b'9'"
    assert cluster.groups.committed("some-consumer-group", "my-topic") == 10
    second = await run_script("manual_commit.py", *arguments, "--count", "5")
    assert second.splitlines()[0] == "0:10 b'10'"
    assert cluster.groups.committed("some-consumer-group", "my-topic") == 15


async def test_batch_consumer(cluster: FakeCluster) -> None:
    await cluster.create_topic("my-topic", partitions=2)
    for number in range(2):
        cluster.log("my-topic", number).extend([(None, b"x", ())] * 150)
    arguments = ["--bootstrap", cluster.bootstrap_servers, "--idle-ms", "500"]
    output = await run_script("batch_consumer.py", *arguments, "--size", "100")
    sizes = [int(size) for size in re.findall(r"stored (\d+) records", output)]
    assert sum(sizes) == 300
    assert max(sizes) <= 100
    assert output.endswith("nothing more to read\n")
    committed = [cluster.groups.committed("my-batches", "my-topic", n) for n in range(2)]
    assert committed == [150, 150]
    assert await run_script("batch_consumer.py", *arguments) == "nothing more to read\n"


async def test_local_state_consumer(cluster: FakeCluster, tmp_path: Path) -> None:
    await cluster.create_topic("my-topic", partitions=2)
    arguments = ["--bootstrap", cluster.bootstrap_servers, "--folder", str(tmp_path)]
    arguments += ["--idle-ms", "1000"]
    logs = [cluster.log("my-topic", number) for number in range(2)]
    logs[0].extend([(b"a", b"x", ()), (b"b", b"x", ()), (b"a", b"x", ())])
    logs[1].extend([(b"c", b"x", ())])
    output = await run_script("local_state_consumer.py", *arguments)
    assert output.splitlines()[:2] == ["Revoked []", "Assigned [0, 1]"]
    files = [tmp_path / f"my-partition-state-my-topic-{number}.json" for number in range(2)]
    saved = [json.loads(file.read_text()) for file in files]
    assert saved == [
        {"last_offset": 2, "counts": {"a": 2, "b": 1}},
        {"last_offset": 0, "counts": {"c": 1}},
    ]
    # It goes on where it was; a file whose records are long gone is counted again.
    files[1].write_text(json.dumps({"last_offset": 99, "counts": {"old": 1}}))
    logs[0].extend([(b"b", b"x", ())])
    output = await run_script("local_state_consumer.py", *arguments)
    assert "Outdated [1]" in output
    saved = [json.loads(file.read_text()) for file in files]
    assert saved == [
        {"last_offset": 3, "counts": {"a": 2, "b": 2}},
        {"last_offset": 0, "counts": {"c": 1}},
    ]
    assert cluster.groups.committed("my_group", "my-topic") is None


async def test_two_local_state_consumers(cluster: FakeCluster, tmp_path: Path) -> None:
    await cluster.create_topic("my-topic", partitions=2)
    for number in range(2):
        cluster.log("my-topic", number).extend([(b"k%d" % number, b"x", ())] * 10)
    arguments = ["--bootstrap", cluster.bootstrap_servers, "--folder", str(tmp_path)]
    await asyncio.gather(
        *(
            run_script("local_state_consumer.py", *arguments, "--idle-ms", idle)
            for idle in ("2000", "3000")
        )
    )
    for number in range(2):
        file = tmp_path / f"my-partition-state-my-topic-{number}.json"
        assert json.loads(file.read_text()) == {"last_offset": 9, "counts": {f"k{number}": 10}}


async def test_commit_modes(cluster: FakeCluster) -> None:
    await cluster.create_topic("test", partitions=2)
    for number in range(2):
        cluster.log("test", number).extend([(None, b"x", ())] * 5)

    async def run(*switches: str) -> int:
        options = ("--bootstrap", cluster.bootstrap_servers, "--idle-ms", "500")
        output = await run_script("commit_modes.py", *options, *switches)
        assert "Assigned [0, 1]" in output
        return output.count("Got ")

    assert await run("--no-commit") == 10
    assert await run("--no-commit") == 10
    assert await run() == 10
    assert await run() == 0
    assert await run("--reset") == 0
    assert await run("--disable-auto-commit") == 10
    assert await run("--disable-auto-commit") == 0
