"""FastStream: subscribers, publishers, replies, middlewares, shutdown."""

from __future__ import annotations

import signal
from pathlib import Path

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.enums import GroupType
from tests.dependents.running import Program, committed, read, running
from tests.kafka.fixtures import Kafka


async def send(servers: str, prefix: str) -> None:
    """What the application is to find, besides what it publishes itself."""
    async with AIOKafkaProducer(bootstrap_servers=servers) as producer:
        await producer.send_and_wait(f"{prefix}-in", b"world", partition=0)
        for number in (0, 1):
            await producer.send_and_wait(f"{prefix}-parts", b"m%d" % number, partition=number)
            await producer.send_and_wait(f"{prefix}-pattern-{number}", b"p%d" % number)
        for value in (b"good", b"bad", b"last", b"left"):
            await producer.send_and_wait(f"{prefix}-ack", value, partition=0)
        headers = [("reply_to", f"{prefix}-replies".encode()), ("correlation_id", b"42")]
        await producer.send_and_wait(f"{prefix}-ask", b"me", headers=headers)


async def make_topics(servers: str, prefix: str) -> None:
    """FastStream makes those that it reads by name; neither second partitions nor by a pattern."""
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        topics = [NewTopic(f"{prefix}-pattern-{n}", 1, 1) for n in (0, 1)]
        await admin.create_topics([NewTopic(f"{prefix}-parts", 2, 1), *topics])


async def watch(app: Program) -> None:
    await app.until(lambda: len(app.of("single")) == 2)
    await app.until(lambda: sum(len(batch["bodies"]) for batch in app.of("batch")) == 3)
    await app.until(lambda: len(app.of("pattern")) == 2)
    await app.until(lambda: len(app.of("partition")) == 1)
    await app.until(lambda: [e for e in app.of("ack") if e["body"] == "left"])


async def test_an_application(kafka: Kafka, topic: str, log: Path) -> None:
    servers = kafka.bootstrap_servers
    await make_topics(servers, topic)
    async with running("faststream", "faststream_app.py", servers, topic, log=log) as app:
        await app.told("started")
        await send(servers, topic)
        await watch(app)
        answers = await read(servers, f"{topic}-replies", 1)
        out = await read(servers, f"{topic}-out", 2)
        app.send_signal(signal.SIGTERM)
        assert await app.end() == 0
    assert {e["body"] for e in app.of("single")} == {"hello", "world"}
    assert {record.value for record in out} == {b"HELLO", b"WORLD"}
    assert [body for e in app.of("batch") for body in e["bodies"]] == ["one", "two", "three"]
    assert {(e["topic"], e["body"]) for e in app.of("pattern")} == {
        (f"{topic}-pattern-0", "p0"),
        (f"{topic}-pattern-1", "p1"),
    }
    assert [e["body"] for e in app.of("partition")] == ["m1"]
    assert [(e["body"], e["tries"]) for e in app.of("ack")] == [
        ("good", 1),
        ("bad", 1),
        ("bad", 2),
        ("last", 1),
        ("left", 1),
    ]
    assert answers[0].value == b"answer to me"
    assert ("correlation_id", b"42") in answers[0].headers
    assert app.events[-1]["event"] == "stopped"
    check_middlewares(app, topic)
    assert await committed(servers, f"{topic}-single", f"{topic}-in") == 2
    assert await committed(servers, f"{topic}-batch", f"{topic}-batch") == 3
    assert await committed(servers, f"{topic}-ack", f"{topic}-ack") == 3
    await check_groups_are_left(servers, topic)


DEFAULTS = """
# FastStream always passes enable_idempotence=False, and never passes group.protocol.
producer.override.enable.idempotence=true
producer.override.acks=all
consumer.group.protocol=consumer
"""


async def test_an_application_with_defaults(
    kafka: Kafka, topic: str, log: Path, tmp_path: Path
) -> None:
    """Idempotent, with the new group protocol and metrics, without a change of the application."""
    servers = kafka.bootstrap_servers
    file = tmp_path / "kafka.properties"
    file.write_text(DEFAULTS)
    variables = {"AIOKAFKA_DEFAULTS": str(file)}
    await make_topics(servers, topic)
    arguments = ("faststream", "faststream_defaults.py", servers, topic)
    async with running(*arguments, log=log, **variables) as app:
        await app.told("started")
        await send(servers, topic)
        await watch(app)
        await read(servers, f"{topic}-out", 2)
        async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
            groups = await admin.groups.list()
            out = TopicPartition(f"{topic}-out", 0)
            producers = (await admin.transactions.producers([out]))[out]
        app.send_signal(signal.SIGTERM)
        assert await app.end() == 0
    names = ("single", "batch", "pattern", "ack", "ask")
    assert {groups[f"{topic}-{name}"].type for name in names} == {GroupType.CONSUMER}
    assert [each.last_sequence for each in producers] == [1]
    (counts,) = app.of("counts")
    assert counts["delivered"] >= 6 and counts["consumed"] >= 10
    assert await committed(servers, f"{topic}-single", f"{topic}-in") == 2


def check_middlewares(app: Program, prefix: str) -> None:
    (metrics,) = app.of("metrics")
    received = metrics["received"]
    assert received[f"{prefix}-in"] == 2
    assert received[f"{prefix}-batch"] == 3
    assert received[f"{prefix}-ack"] == 5
    (told,) = app.of("spans")
    published, processed = (
        [span["trace"] for span in told["spans"] if span["name"] == f"{prefix}-in {what}"]
        for what in ("publish", "process")
    )
    # "hello" was published by the application, "world" without a trace.
    assert len(published) == 1
    assert len(set(processed)) == 2
    assert published[0] in processed


async def check_groups_are_left(servers: str, prefix: str) -> None:
    """The consumers have said good-bye, so no member waits for their sessions to end."""
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        for group in ("single", "batch", "pattern", "ack", "ask"):
            (answer,) = await admin.describe_consumer_groups([f"{prefix}-{group}"])
            assert answer.groups[0].state in ("Empty", "Dead")
            assert answer.groups[0].members == []
