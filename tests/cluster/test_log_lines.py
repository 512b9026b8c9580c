"""Each line of the log names the client it is about."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._log import SubjectLog
from aiokafka._subject import Subject
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    KafkaConnectionError,
    LeaderNotAvailableError,
    TopicAuthorizationFailedError,
)
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.testing import Edit, FakeCluster

QUICK: dict[str, Any] = {
    "retry_backoff_ms": 10,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 50,
}
NO_CREATION = {"auto.create.topics.enable": "false"}


def lines(caplog: pytest.LogCaptureFixture, level: int = logging.INFO) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= level]


@pytest.fixture(autouse=True)
def _info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "aiokafka")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_consumer_is_named_in_each_line(
    caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    async with FakeCluster(brokers=2) as cluster:
        await cluster.create_topic("t", partitions=2)
        consumer = AIOKafkaConsumer(
            "t",
            bootstrap_servers=cluster.bootstrap_servers,
            client_id="reader",
            group_id="g",
            group_protocol=protocol,
            **QUICK,
        )
        async with consumer:
            for broker in (0, 1):
                await cluster.stop_broker(broker)
            await cluster.wait_for(lambda: consumer.health().state == "unreachable")
            for broker in (0, 1):
                await cluster.start_broker(broker)
            await cluster.wait_for(lambda: consumer.health().state == "running")
    # The first client of a process without extensions says so once, for all clients.
    found = [line for line in lines(caplog) if not line.startswith("aiokafka runs as pure Python")]
    away = [record for record in caplog.records if "does not answer: " in record.msg]
    assert away
    assert {vars(each)["client_id"] for each in away} == {"reader"}
    assert {vars(each)["node_id"] for each in away} <= {0, 1}
    assert [line for line in found if not line.startswith("Consumer reader of group g: ")] == []
    joined = [line for line in found if "ember " in line and "assignor" in line]
    assert joined
    assert all(" in generation " in line or " member epoch " in line for line in joined)


async def test_a_generation_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t", partitions=2)
        options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, **QUICK}
        options |= {"group_id": "g", "heartbeat_interval_ms": 20}
        async with AIOKafkaConsumer("t", client_id="one", **options) as one:
            async with AIOKafkaConsumer("t", client_id="two", **options):
                await cluster.wait_for(lambda: len(one.assignment()) == 1)
    told = [
        line for line in lines(caplog) if "Joined as member " in line and "Consumer one" in line
    ]
    generations = [line.partition(" in generation ")[2].partition(",")[0] for line in told]
    assert len(generations) >= 2
    assert len(set(generations)) == len(generations)
    assert "leader of 1 member," in told[0]
    assert told[0].endswith("assignor roundrobin")


async def test_a_producer_is_named_in_each_line(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers,
            client_id="writer",
            transactional_id="tx",
            **QUICK,
        )
        async with producer:
            async with producer.transaction():
                await producer.send_and_wait("t", b"x")
                await cluster.stop_broker(0)
                sent = await producer.send("t", b"y")
                await cluster.wait_for(lambda: len(lines(caplog, logging.WARNING)) > 0)
                await cluster.start_broker(0)
                await sent
    found = lines(caplog)
    subject = "Producer writer with transactional_id tx: "
    assert [line for line in found if not line.startswith(subject)] == []


async def test_a_missing_topic_is_told_at_once_and_once(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeCluster(config=NO_CREATION) as cluster:
        client = AIOKafkaClient(
            bootstrap_servers=cluster.bootstrap_servers, client_id="c", retry_backoff_ms=5
        )
        async with client:
            await client.add_topic("misspelt")
            for _ in range(3):
                await client.force_metadata_update()
            warnings = lines(caplog, logging.WARNING)
            assert len(warnings) == 1
            assert warnings[0].startswith("Client c: Topic 'misspelt' cannot be used: no broker")
            assert "create it or check its name" in warnings[0]
            await cluster.create_topic("misspelt")
            await client.force_metadata_update()
    assert lines(caplog)[-1] == "Client c: Topic 'misspelt' can be used now"


async def test_a_topic_without_a_leader_yet_is_told_when_it_is_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def leaderless(response: Any) -> None:
        for topic in response.topics:
            topic.error_code = LeaderNotAvailableError.errno
            topic.partitions = []

    async with FakeCluster(config=NO_CREATION) as cluster:
        client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers, client_id="c")
        async with client:
            await client.add_topic("late")
            await client.force_metadata_update()
            assert len(lines(caplog, logging.WARNING)) == 1
            await cluster.create_topic("late")
            cluster.intercept(MetadataRequest, Edit(leaderless), times=1)
            await client.force_metadata_update()
            assert len(lines(caplog)) == 1
            await client.force_metadata_update()
    assert lines(caplog)[1:] == ["Client c: Topic 'late' can be used now"]


async def test_rights_that_are_missing_are_told(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(response: Any) -> None:
        for topic in response.topics:
            topic.error_code = TopicAuthorizationFailedError.errno
            topic.partitions = []

    async with FakeCluster() as cluster:
        await cluster.create_topic("secret")
        cluster.intercept(MetadataRequest, Edit(refuse))
        client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers, client_id="c")
        async with client:
            await client.add_topic("secret")
    assert len(lines(caplog, logging.WARNING)) == 1
    assert TopicAuthorizationFailedError.description in lines(caplog, logging.WARNING)[0]


def test_any_text_can_be_logged(caplog: pytest.LogCaptureFixture) -> None:
    log = SubjectLog(logging.getLogger("aiokafka.test"), "Consumer 50%s")
    log.info("100% of it")
    log.warning("%d%% of %s", 5, "all")
    log.debug("not seen %s", object())
    assert lines(caplog) == ["Consumer 50%s: 100% of it", "Consumer 50%s: 5% of all"]
    assert {record.filename for record in caplog.records} == {"test_log_lines.py"}


class Fields(logging.Formatter):
    """Writes what JSON formatters write: the attributes that are not those of every record."""

    own = logging.makeLogRecord({}).__dict__.keys() | {"message", "asctime"}

    def format(self, record: logging.LogRecord) -> str:
        extra = {key: value for key, value in vars(record).items() if key not in self.own}
        return json.dumps({"level": record.levelname, "text": record.getMessage(), **extra})


async def test_records_have_fields(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeCluster(config=NO_CREATION) as cluster:
        servers = cluster.bootstrap_servers
        consumer = AIOKafkaConsumer(
            bootstrap_servers=servers, client_id="c", group_id="g", retry_backoff_ms=20
        )
        async with consumer:
            consumer.subscribe(["absent"])
            await cluster.wait_for(lambda: bool(lines(caplog, logging.WARNING)))
        producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id="t", client_id="p")
        async with producer:
            pass
    written = [json.loads(Fields().format(record)) for record in caplog.records]
    (warning,) = (one for one in written if one["level"] == "WARNING")
    assert warning["text"].startswith("Consumer c of group g: Topic 'absent'")
    assert warning.keys() == {"level", "text", "client_id", "group_id", "topic"}
    assert (warning["client_id"], warning["group_id"]) == ("c", "g")
    assert warning["topic"] == "absent"
    told = [one for one in written if one["text"].startswith("Producer p")]
    assert told
    assert all((one["client_id"], one["transactional_id"]) == ("p", "t") for one in told)


async def test_lines_about_connections_have_fields(caplog: pytest.LogCaptureFixture) -> None:
    def throttle(response: Any) -> None:
        response.throttle_time_ms = 1

    caplog.set_level(logging.DEBUG, "aiokafka.conn")
    async with FakeCluster(brokers=2) as cluster:
        servers = cluster.bootstrap_servers
        async with AIOKafkaClient(bootstrap_servers=servers, client_id="c", **QUICK) as client:
            cluster.intercept(MetadataRequest, Edit(throttle))
            for node_id in (0, 1):
                await client.send(node_id, MetadataRequest(topics=[]))
            await cluster.stop_broker(1)
            with pytest.raises(KafkaConnectionError):
                await client.send(1, MetadataRequest(topics=[]))
    lines_of = [vars(record) for record in caplog.records if record.name == "aiokafka.conn"]
    assert {line["client_id"] for line in lines_of} == {"c"}
    throttled = {line["node_id"] for line in lines_of if "throttled" in line["msg"]}
    assert throttled == {0, 1}
    assert {line["node_id"] for line in lines_of if "cannot connect" in line["msg"]} == {1}


def test_partitions_become_fields(caplog: pytest.LogCaptureFixture) -> None:
    subject = Subject("Consumer c", client_id="c", group_id=None)
    log = SubjectLog(logging.getLogger("aiokafka.test"), subject)
    log.warning("%s: read from node %d", TopicPartition("t", 3), 7, node_id=7)
    fields = json.loads(Fields().format(caplog.records[0]))
    assert fields == {
        "level": "WARNING",
        "text": "Consumer c: TopicPartition(topic='t', partition=3): read from node 7",
        "client_id": "c",
        "topic": "t",
        "partition": 3,
        "node_id": 7,
    }
