"""What the tests of security on real brokers share: listeners, and everything a user does."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.errors import KafkaError
from tests.kafka.launcher import KafkaCluster
from tests.kafka.topics import create_topic
from tests.net.support import Certificates

RECORDS = 50
# Seconds in which credentials that are wrong have to be known as such.
SOON = 2.0


def login_module(module: str, rest: str = "") -> str:
    return f"org.apache.kafka.common.security.{module} required{' ' + rest if rest else ''};"


def tls_listeners(
    certificates: Certificates, listeners: Iterable[str], host: str = "localhost"
) -> dict[str, str]:
    """Broker properties: a certificate for `host` on these listeners."""
    pem = Path(certificates.issue(f"{host}-broker", host)).read_text()
    key = re.search(r"-----BEGIN[^-]*PRIVATE KEY-----.*?-----END[^-]*-----", pem, re.DOTALL)
    assert key is not None
    chain = pem[pem.index("-----BEGIN CERTIFICATE") :]
    found = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": _one_line(Path(certificates.cafile).read_text()),
    }
    for listener in listeners:
        name = f"listener.name.{listener.lower()}.ssl.keystore"
        found[f"{name}.type"] = "PEM"
        found[f"{name}.key"] = _one_line(key[0])
        found[f"{name}.certificate.chain"] = _one_line(chain)
    return found


def _one_line(pem: str) -> str:
    return pem.replace("\n", "\\n")


async def new_topic(cluster: KafkaCluster, partitions: int = 1) -> str:
    topic = f"secured-{uuid.uuid4().hex[:12]}"
    await create_topic(cluster.bootstrap_servers, topic, partitions, 1, {})
    return topic


async def use_everything(cluster: KafkaCluster, **options: Any) -> None:
    """Produce, consume in a group, transact; every record arrives once."""
    topic = await new_topic(cluster)
    async with AIOKafkaProducer(**options) as producer:
        sent = [await producer.send(topic, b"%d" % i) for i in range(RECORDS)]
        assert [(await future).offset for future in sent] == list(range(RECORDS))
    target = await new_topic(cluster)
    group = f"group-{topic}"
    async with (
        AIOKafkaConsumer(
            topic,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **options,
        ) as consumer,
        AIOKafkaProducer(transactional_id=f"id-{topic}", **options) as producer,
    ):
        values = []
        async with producer.transaction():
            while len(values) < RECORDS:
                record = await consumer.getone()
                values.append(record.value)
                await producer.send(target, record.value)
            offsets = {TopicPartition(topic, 0): RECORDS}
            await producer.send_offsets_to_transaction(offsets, group)
        assert values == [b"%d" % i for i in range(RECORDS)]
    assert await read_all(target, RECORDS, isolation_level="read_committed", **options) == values
    async with AIOKafkaConsumer(group_id=group, **options) as consumer:
        assert await consumer.committed(TopicPartition(topic, 0)) == RECORDS


async def read_all(topic: str, count: int, **options: Any) -> list[bytes | None]:
    async with AIOKafkaConsumer(auto_offset_reset="earliest", **options) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return [(await consumer.getone()).value for _ in range(count)]


async def refused(error: type[KafkaError], match: str, **options: Any) -> str:
    """Starting a client fails with this error, soon; returns its text."""
    producer = AIOKafkaProducer(**options)
    async with timeout(SOON):
        try:
            with pytest.raises(error, match=match) as caught:
                await producer.start()
        finally:
            await producer.stop()
    return str(caught.value)
