"""The numbers of `metrics()` after known work on a real Kafka: each is exact."""

from __future__ import annotations

import uuid

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from tests.kafka.launcher import KafkaCluster


async def test_known_work_is_counted_exactly(kafka: KafkaCluster) -> None:
    topic, group = (f"metrics-{uuid.uuid4().hex}" for _ in range(2))
    servers = {"bootstrap_servers": kafka.bootstrap_servers}
    async with AIOKafkaAdminClient(**servers) as admin:
        await admin.create_topics([NewTopic(topic, 2, 1)])
        await admin.topics.wait_until_ready([topic])
    async with AIOKafkaProducer(**servers, linger_ms=1000) as producer:
        for number in range(200):
            await producer.send(topic, b"%d" % number, partition=number % 2)
        await producer.flush()
        async with producer_of_transactions(servers) as other:
            async with other.transaction():
                await other.send(topic, b"last", partition=0)
            told = other.metrics()
        sent = producer.metrics()
    # A new leader may not know yet that it is one, and refuse a batch: that is sent again.
    again = int(sent.value("record-retry-total"))
    assert again in (0, 100, 200, 300, 400)
    assert sent.value("record-send-total") == 200 + again
    assert sent.value("record-send-total", topic=topic) == 200 + again
    assert sent.value("batch-total", "producer-metrics") == 2 + again // 100
    assert sent.value("record-error-total") == 0
    assert told.value("record-send-total") == 1
    assert told.value("txn-commit-time-ns-total") > 0

    options = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with AIOKafkaConsumer(topic, **servers, **options) as consumer:
        for _ in range(50):
            await consumer.getone()
        taken = 50
        while taken < 201:
            taken += sum(map(len, (await consumer.getmany(timeout_ms=5000)).values()))
        await consumer.commit()
        read = consumer.metrics()
        # The marker of the transaction is the last offset of partition 0, and no record.
        assert await consumer.position(TopicPartition(topic, 1)) == 100
    assert read.value("records-consumed-total") == 201
    each = [read.value("records-consumed-total", topic=topic, partition=n) for n in range(2)]
    assert each == [101, 100]
    # What was sent again is counted again.
    sent_once = sent.value("byte-total", "producer-metrics") * 2 / (2 + again // 100)
    assert read.value("bytes-consumed-total") > sent_once
    assert read.value("rebalance-total") == read.value("commit-total") == 1
    assert read.value("assigned-partitions") == 2
    assert read.value("records-lag", topic=topic, partition=1) == 0
    # Fetches wait for more records at the end.
    behind = read.value("request-total", "consumer-metrics") - read.value(
        "response-total", "consumer-metrics"
    )
    assert 0 <= behind <= 2


def producer_of_transactions(servers: dict[str, str]) -> AIOKafkaProducer:
    return AIOKafkaProducer(**servers, transactional_id=f"metrics-{uuid.uuid4().hex}")
