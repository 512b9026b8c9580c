"""Every example runs as a user runs it: as a script of its own, here on the fake cluster."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

from aiokafka.protocol.messages.fetch import FetchRequest
from aiokafka.testing import FakeCluster
from tests.examples.scripts import EXAMPLES, end_of, run_script, start_script

# What each prints; the examples that are not here have a test of their own.
OUTPUT = {
    "first.py": r"0 b'world' b'Hello'\n",
    "producer.py": r"first: partition \d, offset 0\n(record \d: partition \d, offset \d+\n){9}",
    "serialization.py": (r"dict {'a': 123.4, 'b': 'some string'}\nlist \[1, 2, 3, 4\]\n"),
    "custom_partitioner.py": r"last: partition 2\nany: partition [012]\nfirst: partition 0\n",
    "batch_producer.py": r"(\d+ records to partition \d, the first at offset \d+\n)+",
    "transactions.py": (
        r"refused: 500 is more than grace has\n"
        r"ada: -50\ngrace: \+50\ngrace: -20\nada: \+20\n"
    ),
    "metrics_collector.py": (
        r"1000 records to my-topic\n"
        r"batches waited \d+\.\d ms, all together\nand were on their way for \d+\.\d ms\n"
    ),
    "opentelemetry_traces.py": (
        r"processing b'Test message'\n"
        r"send my-topic: parent request, links 0\nrequest: parent None, links 0\n"
        r"poll my-topic: parent None, links 1\nprocess my-topic: parent send my-topic, links 0\n"
    ),
    "prometheus_metrics.py": (
        r'kafka_producer_topic_record_send_total\{client_id="example",topic="my-topic"\} 1000\.0\n'
        r'kafka_producer_topic_record_retry_total\{client_id="example",topic="my-topic"\} 0\.0\n'
        r'kafka_producer_topic_record_error_total\{client_id="example",topic="my-topic"\} 0\.0\n'
    ),
    "topics.py": (
        r"cluster \S+ has 1 broker\(s\)\n"
        r"create my-new-topic: done \n"
        r"partition 0: leader 0\npartition 1: leader 0\npartition 2: leader 0\n"
        r"retention.ms = 3600000\n"
        r"delete my-new-topic: done\n"
    ),
}
OTHERS = {
    "batch_consumer.py",
    "commit_modes.py",
    "consumer.py",
    "delegation_token.py",
    "demo.py",
    "flow_control.py",
    "group_consumer.py",
    "hanging_transactions.py",
    "kerberos.py",
    "local_state_consumer.py",
    "manual_commit.py",
    "msk_iam.py",
    "oidc.py",
    "own_offsets.py",
    "share_consumer.py",
    "parallel_consumer.py",
    "retry_topics.py",
    "rights.py",
    "sasl_oauthbearer.py",
    "sasl_scram.py",
    "seek_by_time.py",
    "simulated_service.py",
    "tls.py",
    "transactional_session.py",
    "transactional_transform.py",
}


def test_every_example_is_run() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == OUTPUT.keys() | OTHERS


@pytest.mark.parametrize("name", sorted(OUTPUT))
async def test_output(name: str) -> None:
    async with FakeCluster() as cluster:
        # One partition where the example prints what it reads, in order.
        await cluster.create_topic("my-topic", partitions=1 if name == "transactions.py" else 3)
        await cluster.create_topic("my-json-topic")
        bootstrap = ("--bootstrap", cluster.bootstrap_servers)
        output = await run_script(name, *(() if name == "first.py" else bootstrap))
    assert re.fullmatch(OUTPUT[name], output), output


async def test_batches_hold_all_records() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("my-topic", partitions=3)
        await run_script(
            "batch_producer.py", "--bootstrap", cluster.bootstrap_servers, "--count", "2000"
        )
        values = {
            record.value
            for partition in range(3)
            for record in cluster.log("my-topic", partition).records()
        }
    assert values == {b"Test message %d" % number for number in range(2000)}


async def test_consumer() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("my-topic")
        cluster.log("my-topic").extend([(b"key", b"value", ())] * 3)
        output = await run_script(
            "consumer.py", "--bootstrap", cluster.bootstrap_servers, "--count", "3"
        )
    assert output.splitlines() == [f"0:{offset} b'key' b'value'" for offset in range(3)]


async def test_own_offsets_go_on_where_they_stopped(tmp_path: Path) -> None:
    arguments = ["--state", str(tmp_path / "state.json"), "--idle-ms", "500"]
    async with FakeCluster() as cluster:
        await cluster.create_topic("my-topic")
        arguments += ["--bootstrap", cluster.bootstrap_servers]
        log = cluster.log("my-topic")
        log.extend([(b"a", b"x", ()), (b"b", b"x", ())])
        assert (
            await run_script("own_offsets.py", *arguments) == "up to offset 2: {'a': 1, 'b': 1}\n"
        )
        log.extend([(b"a", b"x", ())])
        assert (
            await run_script("own_offsets.py", *arguments) == "up to offset 3: {'a': 2, 'b': 1}\n"
        )


async def test_flow_control_reads_all() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("my-topic", partitions=2)
        cluster.log("my-topic", 0).extend([(None, b"x", ())] * 500)
        cluster.log("my-topic", 1).extend([(None, b"x", ())] * 20)
        output = await run_script(
            "flow_control.py", "--bootstrap", cluster.bootstrap_servers, "--idle-ms", "500"
        )
    read = {"0": 0, "1": 0}
    for partition, count in re.findall(r"partition (\d): (\d+)", output):
        read[partition] += int(count)
    assert read == {"0": 500, "1": 20}


async def test_parallel_consumer() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("my-topic", partitions=2)
        for number in range(1000):
            cluster.log("my-topic", number % 2).append(b"x", key=b"%02d" % (number % 20))
        output = await run_script("parallel_consumer.py", "--bootstrap", cluster.bootstrap_servers)
    # It stops when it has seen so many; those that run then are still counted.
    counts = [int(line.partition(": ")[2]) for line in output.splitlines()]
    assert len(counts) == 20
    assert sum(counts) == 1000


async def test_retry_topics() -> None:
    async with FakeCluster() as cluster:
        for suffix in ("", "-retry-1", "-retry-2", "-dead-letter"):
            await cluster.create_topic(f"my-topic{suffix}")
        for value in (b"21", b"many", b"35"):
            cluster.log("my-topic").append(value)
        output = await run_script(
            "retry_topics.py",
            *("--bootstrap", cluster.bootstrap_servers, "--delays-ms", "100", "200"),
        )
    assert sorted(output.splitlines()) == [
        "dead after 3 attempts: builtins.ValueError: "
        "invalid literal for int() with base 10: b'many'",
        "my-topic: 21 / 7 = 3.00",
        "my-topic: 35 / 7 = 5.00",
    ]


async def test_records_with_and_without_keys_are_counted() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("my-topic", partitions=2)
        for number in range(1000):
            cluster.log("my-topic", number % 2).append(b"x", key=None if number % 2 else b"key")
        output = await run_script("parallel_consumer.py", "--bootstrap", cluster.bootstrap_servers)
    assert re.fullmatch(r"key: \d+\nno key: \d+\n", output)


async def test_a_missing_retry_topic_is_named() -> None:
    async with FakeCluster(config={"auto.create.topics.enable": False}) as cluster:
        for suffix in ("", "-retry-1", "-dead-letter"):
            await cluster.create_topic(f"my-topic{suffix}")
        cluster.log("my-topic").append(b"many")
        process = await start_script(
            "retry_topics.py",
            *("--bootstrap", cluster.bootstrap_servers, "--delays-ms", "100", "200"),
        )
        _, errors = await end_of(process)
    assert process.returncode
    assert "my-topic-retry-2" in errors
    assert "Traceback" not in errors


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for one process")
@pytest.mark.parametrize(
    "name",
    ["consumer.py", "parallel_consumer.py", "retry_topics.py", "transactional_session.py"],
)
async def test_an_interrupt_ends_them_quietly(name: str) -> None:
    async with FakeCluster() as cluster:
        for suffix in ("", "-retry-1", "-retry-2", "-dead-letter"):
            await cluster.create_topic(f"my-topic{suffix}")
        process = await start_script(name, "--bootstrap", cluster.bootstrap_servers)
        await cluster.wait_for(lambda: cluster.count(FetchRequest), 30)
        process.send_signal(signal.SIGINT)
        _, errors = await end_of(process)
    assert not errors
    assert process.returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for one process")
async def test_a_missing_topic_is_named_at_once() -> None:
    async with FakeCluster(config={"auto.create.topics.enable": False}) as cluster:
        arguments = ("--bootstrap", cluster.bootstrap_servers, "--topic", "nosuch")
        process = await start_script("consumer.py", *arguments)
        assert process.stderr is not None
        line = await process.stderr.readline()
        process.send_signal(signal.SIGINT)
        await end_of(process)
    assert b"Topic 'nosuch' cannot be used: no broker knows it" in line


async def test_seek_by_time() -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("my-topic")
        cluster.log("my-topic").append(b"old", timestamp_ms=1_000)
        cluster.log("my-topic").append(b"new")
        output = await run_script("seek_by_time.py", "--bootstrap", cluster.bootstrap_servers)
    assert re.fullmatch(r"0:1 at \d+: b'new'\nthat was all\n", output)


async def test_demo(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("One fish\ntwo fish\n\nred fish, blue fish\n" * 10)
    output = await run_script("demo.py", str(text), "--top", "2")
    assert re.search(r"^aiokafka \S+ \((compiled|pure Python)\), Python 3", output)
    assert "a fake cluster in this process" in output
    assert len(re.findall(r"^the first record was read [\d.]+ s after", output, re.M)) == 1
    assert re.search(
        r"^demo-lines-\w+, partition \d, offset 0: key 'text.txt', value 'One fish'$", output, re.M
    )
    assert "DEMO=orders make demo" in output
    assert re.search(r"^fish +40  #+\n", output, re.MULTILINE)
    assert re.search(r"^lines sent +30 ", output, re.MULTILINE)
    assert re.search(r"^counts read +5 ", output, re.MULTILINE)


async def test_demo_on_a_running_cluster(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("some words\n")
    async with FakeCluster(brokers=2) as cluster:
        output = await run_script("demo.py", "--bootstrap", cluster.bootstrap_servers, str(text))
        assert not [topic for topic in cluster.state.topics if topic.startswith("demo-")]
    assert f"the Kafka at {cluster.bootstrap_servers}" in output
