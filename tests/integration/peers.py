"""Other people's clients, as counterparts. They block: call them in a thread."""

from __future__ import annotations

import time

import kafka
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition

from tests.integration.material import PARTITIONS, Digests, message, partition_of

# Without any record for so long, a reader gives up and shows what it has.
_PATIENCE = 30.0


def read_with_confluent(servers: str, topic: str, count: int) -> Digests:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "unused",
            "enable.auto.commit": False,
            "check.crcs": True,
        }
    )
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
    seen, deadline = Digests(), time.monotonic() + _PATIENCE
    while seen.count < count and time.monotonic() < deadline:
        for record in consumer.consume(500, timeout=1):
            assert record.error() is None, record.error()
            _timestamp_type, timestamp = record.timestamp()
            headers = record.headers() or []
            seen.add(record.partition(), record.key(), record.value(), timestamp, headers)
            deadline = time.monotonic() + _PATIENCE
    consumer.close()
    return seen


def read_with_kafka_python(servers: str, topic: str, count: int) -> Digests:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False
    )
    consumer.assign([kafka.TopicPartition(topic, n) for n in range(PARTITIONS)])
    seen, deadline = Digests(), time.monotonic() + _PATIENCE
    while seen.count < count and time.monotonic() < deadline:
        for records in consumer.poll(timeout_ms=1000, max_records=500).values():
            for record in records:
                headers = record.headers
                seen.add(record.partition, record.key, record.value, record.timestamp, headers)
            deadline = time.monotonic() + _PATIENCE
    consumer.close()
    return seen


def write_with_confluent(servers: str, topic: str, count: int, codec: str) -> None:
    failures: list[object] = []

    def note(error: object, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    settings = {"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 5}
    # Without idempotence a retried batch may land behind its successor.
    producer = Producer(settings | {"enable.idempotence": True})
    for number in range(count):
        record = message(number)
        while True:
            try:
                producer.produce(
                    topic,
                    value=record.value,
                    key=record.key,
                    partition=partition_of(number),
                    timestamp=record.timestamp,
                    headers=list(record.headers),
                    on_delivery=note,
                )
                break
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    assert producer.flush(60) == 0
    assert not failures
