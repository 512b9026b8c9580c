"""The workloads for kafka-python."""

import time

from common import CHECK_EVERY, PER_CALL, Clock, check, main, percentiles
from kafka import KafkaConsumer, KafkaProducer, TopicPartition


def start_consumer(work):
    consumer = KafkaConsumer(
        bootstrap_servers=work.servers, auto_offset_reset="earliest", enable_auto_commit=False
    )
    consumer.assign([TopicPartition(work.topic, number) for number in range(work.partitions)])
    return consumer


def start_producer(work):
    return KafkaProducer(
        bootstrap_servers=work.servers, acks="all", compression_type=work.compression
    )


def getmany(work):
    clock, done, size = Clock(), 0, 0
    consumer = start_consumer(work)
    while done < work.records:
        for records in consumer.poll(timeout_ms=1000, max_records=PER_CALL).values():
            for record in records:
                size += len(record.value)
            done += len(records)
        if done:
            clock.started(done)
    check(size, done * work.size)
    result = clock.rate(done)
    consumer.close()
    return result


def iterate(work):
    clock, done = Clock(), 0
    consumer = start_consumer(work)
    for record in consumer:
        check(len(record.value), work.size)
        done += 1
        clock.started()
        if done == work.records:
            break
    result = clock.rate(done)
    consumer.close()
    return result


def send(work):
    values, keys = work.values(), work.keys()
    clock, waiting, done = Clock(), [], 0
    producer = start_producer(work)
    producer.send(work.topic, values[0]).get(30)
    clock.started()
    for number in range(work.records):
        value, key = values[number % 1000], keys[number % len(keys)]
        waiting.append(producer.send(work.topic, value, key=key))
        if len(waiting) == CHECK_EVERY:
            done += acknowledged(waiting)
    done += acknowledged(waiting)
    check(done, work.records)
    result = clock.rate(done + 1)
    producer.close()
    return result


def acknowledged(futures):
    done = 0
    for future in futures:
        if future.get(30).offset >= 0:
            done += 1
    futures.clear()
    return done


def lone_send(work):
    value, times = work.values()[0], []
    producer = start_producer(work)
    for number in range(work.records + 50):
        begin = time.perf_counter()
        producer.send(work.topic, value).get(30)
        if number >= 50:
            times.append(time.perf_counter() - begin)
    producer.close()
    return percentiles(times)


if __name__ == "__main__":
    main({"getmany": getmany, "iterate": iterate, "send": send, "lone_send": lone_send})
