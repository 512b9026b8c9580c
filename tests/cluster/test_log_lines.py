"""Each line of the log names the client it is about."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka._log import SubjectLog
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import TopicAuthorizationFailedError
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
    found = lines(caplog)
    assert [line for line in found if not line.startswith("Consumer reader of group g: ")] == []
    joined = [line for line in found if "Member " in line and "assignor" in line]
    assert joined
    assert all(" of generation " in line or " at epoch " in line for line in joined)


async def test_a_generation_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t", partitions=2)
        options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap_servers, **QUICK}
        options |= {"group_id": "g", "heartbeat_interval_ms": 20}
        async with AIOKafkaConsumer("t", client_id="one", **options) as one:
            async with AIOKafkaConsumer("t", client_id="two", **options):
                await cluster.wait_for(lambda: len(one.assignment()) == 1)
    told = [line for line in lines(caplog) if "Member " in line and "Consumer one" in line]
    generations = [line.partition(" of generation ")[2].partition(",")[0] for line in told]
    assert len(generations) >= 2
    assert len(set(generations)) == len(generations)
    assert "leader of 1" in told[0]
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
    assert lines(caplog)[-1] == "Client c: Topic 'misspelt' is there now"


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
