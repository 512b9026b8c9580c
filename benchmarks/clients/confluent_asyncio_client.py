"""The workloads for confluent-kafka's asyncio clients."""

import asyncio
import time

from common import CHECK_EVERY, PER_CALL, WORKERS, Clock, check, main, percentiles
from confluent_kafka import OFFSET_BEGINNING, TopicPartition
from confluent_kafka.aio import AIOConsumer, AIOProducer


async def start_consumer(work):
    consumer = AIOConsumer(
        {
            "bootstrap.servers": work.servers,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    await consumer.assign(
        [TopicPartition(work.topic, number, OFFSET_BEGINNING) for number in range(work.partitions)]
    )
    return consumer


def start_producer(work, batch_size=1000):
    settings = {"bootstrap.servers": work.servers, "acks": "all"}
    settings["compression.type"] = work.compression or "none"
    return AIOProducer(settings, batch_size=batch_size)


async def getmany(work):
    clock, done, size = Clock(), 0, 0
    consumer = await start_consumer(work)
    while done < work.records:
        messages = await consumer.consume(PER_CALL, timeout=1)
        for message in messages:
            size += len(message.value())
        done += len(messages)
        if done:
            clock.started(done)
    check(size, done * work.size)
    result = clock.rate(done)
    await consumer.close()
    return result


async def iterate(work):
    clock, done = Clock(), 0
    consumer = await start_consumer(work)
    while done < work.records:
        message = await consumer.poll(1)
        if message is not None:
            check(len(message.value()), work.size)
            done += 1
            clock.started()
    result = clock.rate(done)
    await consumer.close()
    return result


async def send(work):
    values, keys = work.values(), work.keys()
    clock, waiting, done = Clock(), [], 0
    producer = start_producer(work)
    waiting.append(await producer.produce(work.topic, values[0]))
    await acknowledged(producer, waiting)
    clock.started()
    for number in range(work.records):
        value, key = values[number % 1000], keys[number % len(keys)]
        waiting.append(await producer.produce(work.topic, value, key=key))
        if len(waiting) == CHECK_EVERY:
            done += await acknowledged(producer, waiting)
    done += await acknowledged(producer, waiting)
    check(done, work.records)
    result = clock.rate(done + 1)
    await producer.close()
    return result


async def acknowledged(producer, futures):
    await producer.flush()
    done = 0
    for future in futures:
        if (await future).offset() >= 0:
            done += 1
    futures.clear()
    return done


async def send_in_tasks(work):
    values, clock = work.values(), Clock()
    producer = start_producer(work, batch_size=1)

    async def worker(count):
        for number in range(count):
            await (await producer.produce(work.topic, values[number % 1000]))

    count = work.records // WORKERS
    serving = asyncio.create_task(serve(producer))
    await (await producer.produce(work.topic, values[0]))
    clock.started()
    await asyncio.gather(*(worker(count) for _ in range(WORKERS)))
    result = clock.rate(count * WORKERS + 1)
    serving.cancel()
    await producer.close()
    return result


async def lone_send(work):
    value, times = work.values()[0], []
    producer = start_producer(work, batch_size=1)
    serving = asyncio.create_task(serve(producer))
    for number in range(work.records + 50):
        begin = time.perf_counter()
        await (await producer.produce(work.topic, value))
        if number >= 50:
            times.append(time.perf_counter() - begin)
    serving.cancel()
    await producer.close()
    return percentiles(times)


async def serve(producer):
    """Poll, because only that delivers reports; without it, once a second."""
    while True:
        await producer.poll(0.1)


WORKLOADS = {
    "getmany": getmany,
    "iterate": iterate,
    "send": send,
    "send_in_tasks": send_in_tasks,
    "lone_send": lone_send,
}

if __name__ == "__main__":
    main({name: lambda work, f=f: asyncio.run(f(work)) for name, f in WORKLOADS.items()})
