"""Makes, fills and removes the topics of the benchmark (with confluent-kafka, unmeasured)."""

import time

from common import main
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

LARGE = 900_000
"""Larger records need a limit of the topic's own."""
AT_ONCE = 5_000
"""A controller refuses to make 10,000 partitions in one step."""


def create(work):
    admin = AdminClient({"bootstrap.servers": work.servers})
    config = {"max.message.bytes": str(4 * work.size)} if work.size > LARGE else {}
    wanted = NewTopic(work.topic, min(work.partitions, AT_ONCE), 1, config=config)
    admin.create_topics([wanted], operation_timeout=60)[work.topic].result(90)
    for count in range(2 * AT_ONCE, work.partitions + 1, AT_ONCE):
        more = NewPartitions(work.topic, count)
        admin.create_partitions([more], operation_timeout=60)[work.topic].result(90)
    if work.partitions > AT_ONCE:
        until_known(admin, work)
    return {}


def until_known(admin, work):
    """Wait until the broker tells of all partitions, and that each has a leader."""
    for _ in range(60):
        topic = admin.list_topics(work.topic, timeout=60).topics[work.topic]
        known = topic.partitions.values()
        if sum(partition.leader >= 0 for partition in known) == work.partitions:
            return
        time.sleep(1)
    raise SystemExit(f"{work.topic}: the broker knows {len(known)} of {work.partitions} partitions")


def fill(work):
    create(work)
    producer = Producer(
        {
            "bootstrap.servers": work.servers,
            "compression.type": work.compression or "none",
            "linger.ms": 50,
            "batch.size": work.stored_batch,
            "message.max.bytes": max(1_000_000, 2 * work.size),
            "queue.buffering.max.kbytes": 262144,
        }
    )
    values = work.values()
    for number in range(work.records):
        while True:
            try:
                producer.produce(
                    work.topic,
                    values[number % 1000],
                    partition=number % work.partitions,
                    headers=work.headers,
                )
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()
    return {}


def remove(work):
    admin = AdminClient({"bootstrap.servers": work.servers})
    admin.delete_topics([work.topic], operation_timeout=60)[work.topic].result(90)
    return {}


if __name__ == "__main__":
    main({"create": create, "fill": fill, "remove": remove})
