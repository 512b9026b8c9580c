"""Makes, fills and removes the topics of the benchmark (with confluent-kafka, unmeasured)."""

from common import main
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic


def create(work):
    admin = AdminClient({"bootstrap.servers": work.servers})
    wanted = NewTopic(work.topic, work.partitions, 1)
    admin.create_topics([wanted], operation_timeout=60)[work.topic].result(90)
    return {}


def fill(work):
    create(work)
    producer = Producer(
        {
            "bootstrap.servers": work.servers,
            "compression.type": work.compression or "none",
            "linger.ms": 50,
            "queue.buffering.max.kbytes": 262144,
        }
    )
    values = work.values()
    for number in range(work.records):
        while True:
            try:
                producer.produce(
                    work.topic, values[number % 1000], partition=number % work.partitions
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
