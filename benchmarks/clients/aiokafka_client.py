"""The workloads for aiokafka: the same script runs this project and the peer of that name."""

import asyncio
import json
import time
from functools import partial

from common import (
    CHECK_EVERY,
    PER_CALL,
    WARM_UP,
    Clock,
    check,
    cpu_seconds,
    each,
    main,
    new_group,
    percentiles,
    rss_mib,
)

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.helpers import create_ssl_context


def connection(work):
    """Return the options of every client: the brokers, and TLS where the row has it."""
    options = {"bootstrap_servers": work.servers}
    if work.authority:
        context = create_ssl_context(cafile=work.authority)
        options |= {"security_protocol": "SSL", "ssl_context": context}
    return options


async def start_consumer(work, *, group=False, **options):
    """With all partitions; as the only member of a new group if so wanted."""
    consumer = AIOKafkaConsumer(
        **connection(work),
        group_id=new_group(work) if group else None,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **options,
    )
    if group:
        consumer.subscribe([work.topic])
    else:
        consumer.assign([TopicPartition(work.topic, number) for number in range(work.partitions)])
    await consumer.start()
    return consumer


async def start_producer(work, **options):
    if work.batch_size:
        options |= {"max_batch_size": work.batch_size, "linger_ms": 5}
    if work.is_idempotent is not None:
        options["enable_idempotence"] = work.is_idempotent
    if work.size > 900_000:
        options["max_request_size"] = 2 * work.size
    producer = AIOKafkaProducer(
        **connection(work), acks="all", compression_type=work.compression, **options
    )
    await producer.start()
    return producer


async def getmany(work, *, group=False, per_call=PER_CALL):
    clock, done, size = Clock(), 0, 0
    consumer = await start_consumer(work, group=group)
    while done < work.records:
        for records in (await consumer.getmany(timeout_ms=1000, max_records=per_call)).values():
            for record in records:
                size += len(record.value)
            done += len(records)
        clock.started(done)
    check(size, done * work.size)
    result = clock.rate(done)
    await consumer.stop()
    return result


async def parallel(work):
    """Ours only: in order by key, with a handler that does next to nothing."""
    from aiokafka.parallel import ParallelConsumer

    consumer = AIOKafkaConsumer(
        work.topic,
        bootstrap_servers=work.servers,
        group_id=new_group(work),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    done, size = 0, 0

    async def handle(record):
        nonlocal done, size
        done += 1
        size += len(record.value)
        if done == work.records:
            processor.request_stop()

    processor = ParallelConsumer(consumer, key=lambda record: record.offset % 4096)
    async with processor:
        clock = Clock()
        await processor.run(handle)
        result = clock.rate(done)
    check(size, done * work.size)
    return result


async def share(work, mode):
    """Ours only: read as the only member of a new share group, hundreds of records a call, and
    acknowledge them: by the next call, or each of them by itself."""
    from aiokafka import AIOKafkaShareConsumer
    from aiokafka.admin import AIOKafkaAdminClient

    group = new_group(work)
    async with AIOKafkaAdminClient(**connection(work)) as admin:
        await admin.configs.alter({("group", group): {"share.auto.offset.reset": "earliest"}})
    clock, done, size = Clock(), 0, 0
    consumer = AIOKafkaShareConsumer(
        work.topic,
        **connection(work),
        group_id=group,
        max_poll_records=PER_CALL,
        share_acknowledgement_mode=mode,
    )
    await consumer.start()
    while done < work.records:
        for records in (await consumer.getmany(timeout_ms=1000)).values():
            for record in records:
                size += len(record.value)
                if mode == "explicit":
                    consumer.acknowledge(record)
            done += len(records)
        if done:
            clock.started(done)
    await consumer.commit()
    check(size, work.records * work.size)
    result = clock.rate(done)
    await consumer.stop()
    return result


async def iterate(work, *, group=False):
    clock, done = Clock(), 0
    consumer = await start_consumer(work, group=group)
    async for record in consumer:
        check(len(record.value), work.size)
        done += 1
        clock.started()
        if done == work.records:
            break
    result = clock.rate(done)
    await consumer.stop()
    return result


async def getone(work):
    clock, done = Clock(), 0
    consumer = await start_consumer(work, group=True)
    while done < work.records:
        check(len((await consumer.getone()).value), work.size)
        done += 1
        clock.started()
    result = clock.rate(done)
    await consumer.stop()
    return result


async def json_values(work):
    """Read values that a deserializer makes of JSON, hundreds a call."""
    clock, done = Clock(), 0
    consumer = await start_consumer(work, value_deserializer=first_object)
    while done < work.records:
        for records in (await consumer.getmany(timeout_ms=1000, max_records=PER_CALL)).values():
            for record in records:
                check(record.value["id"] >= 0, True)
            done += len(records)
        clock.started(done)
    result = clock.rate(done)
    await consumer.stop()
    return result


def first_object(value):
    """Return the first object of a value: the values of the bench are such objects, cut off."""
    return json.loads(value[: value.index(b"}") + 1])


async def pause_all(work):
    """Pause and resume all partitions for each record."""
    clock, done = Clock(), 0
    consumer = await start_consumer(work)
    partitions = consumer.assignment()
    while done < work.records:
        await consumer.getone()
        consumer.pause(*partitions)
        consumer.resume(*partitions)
        done += 1
        clock.started()
    result = clock.rate(done)
    await consumer.stop()
    return result


async def commits(work):
    """Read one by one in a group, and commit after each `per_commit` records."""
    clock, done = Clock(), 0
    consumer = await start_consumer(work, group=True)
    while done < work.records:
        await consumer.getone()
        done += 1
        if done % work.per_commit == 0:
            await consumer.commit()
        if done == WARM_UP:
            clock.started(done)
    result = clock.rate(done)
    await consumer.stop()
    return result


async def handler(work):
    """As a service of FastStream: read, send the result and wait for it, commit."""
    clock, done = Clock(), 0
    consumer = await start_consumer(work, group=True)
    producer = await start_producer(work)
    while done < work.records:
        record = await consumer.getone()
        await producer.send_and_wait(work.target, record.value)
        await consumer.commit()
        done += 1
        if done == WARM_UP:
            clock.started(done)
    result = clock.rate(done)
    await producer.stop()
    await consumer.stop()
    return result


async def send(work):
    values, keys = work.values(), work.keys()
    clock, waiting, done = Clock(), [], 0
    producer = await start_producer(work)
    await first(producer, work, clock)
    for number in range(work.records):
        future = await producer.send(
            work.topic, values[number % 1000], key=keys[number % len(keys)]
        )
        waiting.append(future)
        if len(waiting) == CHECK_EVERY:
            done += await acknowledged(waiting)
    done += await acknowledged(waiting)
    check(done, work.records)
    result = clock.rate(done + 1)
    await producer.stop()
    return result


async def first(producer, work, clock):
    """Send a record, and take what comes behind it for the work itself."""
    await producer.send_and_wait(work.topic, work.values()[0])
    clock.started()


async def gather(work):
    values, clock, done = work.values(), Clock(), 0
    producer = await start_producer(work)
    await first(producer, work, clock)
    while done < work.records:
        sent = [await producer.send(work.topic, value) for value in values]
        done += len(await asyncio.gather(*sent))
    result = clock.rate(done + 1)
    await producer.stop()
    return result


async def acknowledged(futures):
    done = 0
    for future in futures:
        if (await future).offset >= 0:
            done += 1
    futures.clear()
    return done


async def send_batches(work):
    values, clock, waiting, sent = work.values(), Clock(), [], 0
    producer = await start_producer(work)
    await first(producer, work, clock)
    while sent < work.records:
        batch = producer.create_batch()
        while sent < work.records and batch.append(
            key=None, value=values[sent % 1000], timestamp=None
        ):
            sent += 1
        partition = len(waiting) % work.partitions
        waiting.append(await producer.send_batch(batch, work.topic, partition=partition))
    for future in waiting:
        check((await future).offset >= 0, True)
    result = clock.rate(sent + 1)
    await producer.stop()
    return result


async def send_for_long(work):
    """Send without a pause from `tasks` tasks: the first 32 MiB, while the buffer is filled, beside
    the rest. Results are not looked at, or they would be the pause."""
    values, sent = work.values(), [0] * work.tasks
    few = min(work.records // 2, 32 * 1024 * 1024 // work.size)
    producer = await start_producer(work)
    await producer.send_and_wait(work.topic, values[0])
    marks = []

    def mark():
        marks.append((time.perf_counter(), cpu_seconds(), list(sent)))

    total = 0

    async def worker(number):
        nonlocal total
        while total < work.records:
            await producer.send(work.topic, values[total % 1000])
            sent[number] += 1
            total += 1
            if total == few or total == work.records:
                mark()

    mark()
    await asyncio.gather(*(worker(number) for number in range(work.tasks)))
    begin, full, end = marks
    await producer.stop()
    rest = work.records - few
    cpu = (full[1] - begin[1]) * 1e6 / few, (end[1] - full[1]) * 1e6 / rest
    wall = (full[0] - begin[0]) * 1e6 / few, (end[0] - full[0]) * 1e6 / rest
    shares = [after - before for before, after in zip(full[2], end[2], strict=True)]
    return {
        "records": work.records,
        "seconds": end[0] - begin[0],
        "rate_after": 1e6 / wall[1],
        "cpu_before": cpu[0],
        "cpu_after": cpu[1],
        "wall_before": wall[0],
        "wall_after": wall[1],
        "cpu_full": cpu[1] / cpu[0],
        "wall_full": wall[1] / wall[0],
        "shares": max(shares) / max(1, min(shares)),
    }


async def send_in_tasks(work):
    values, clock = work.values(), Clock()
    producer = await start_producer(work)

    async def worker(count):
        for number in range(count):
            await producer.send_and_wait(work.topic, values[number % 1000])

    await first(producer, work, clock)
    count = work.records // work.tasks
    await asyncio.gather(*(worker(count) for _ in range(work.tasks)))
    result = clock.rate(count * work.tasks + 1)
    await producer.stop()
    return result


async def transactions(work):
    """Read, and write what was read to another topic, with the positions in the transaction."""
    clock, done, group, times = Clock(), 0, new_group(work), []
    consumer = AIOKafkaConsumer(
        bootstrap_servers=work.servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )
    consumer.assign([TopicPartition(work.topic, number) for number in range(work.partitions)])
    await consumer.start()
    producer = await start_producer(work, transactional_id=group)
    while done < work.records:
        wanted = min(work.per_transaction, work.records - done)
        batches = await consumer.getmany(timeout_ms=1000, max_records=wanted)
        begin = time.perf_counter()
        async with producer.transaction():
            for records in batches.values():
                for record in records:
                    await producer.send(work.target, record.value, key=record.key)
                done += len(records)
            offsets = {tp: records[-1].offset + 1 for tp, records in batches.items()}
            await producer.send_offsets_to_transaction(offsets, group)
        times.append(time.perf_counter() - begin)
        if len(times) == WARM_UP:
            clock.started(done)
    result = percentiles(times[WARM_UP:]) | clock.rate(done)
    await producer.stop()
    await consumer.stop()
    return result


async def writing_transactions(work):
    """Write transactions of `per_transaction` records, without offsets."""
    values, clock, done = work.values(), Clock(), 0
    producer = await start_producer(work, transactional_id=new_group(work))
    while done < work.records:
        async with producer.transaction():
            for number in range(work.per_transaction):
                await producer.send(work.topic, values[number % 1000])
        done += work.per_transaction
        if done == WARM_UP * work.per_transaction:
            clock.started(done)
    result = clock.rate(done)
    await producer.stop()
    return result


async def flood(work):
    """Send without a pause for `seconds`, with one send_and_wait after another beside it.

    The latencies before the flood are those of a `send_and_wait` alone.
    """
    values, alone, beside, memory = work.values(), [], [], []
    producer = await start_producer(work)
    is_over = False

    async def wait_for_each(times):
        begin = time.perf_counter()
        await producer.send_and_wait(work.topic, values[0])
        times.append(time.perf_counter() - begin)

    for _ in range(1000):
        await wait_for_each(alone)

    async def lone():
        while not is_over:
            await wait_for_each(beside)
            await asyncio.sleep(0.01)

    task = asyncio.create_task(lone())
    begin, used, sent = time.perf_counter(), cpu_seconds(), 0
    while (passed := time.perf_counter() - begin) < work.seconds:
        for number in range(1000):
            await producer.send(work.topic, values[number])
        sent += 1000
        if passed > len(memory) * work.seconds / 10:
            memory.append(rss_mib())
    is_over = True
    await task
    await producer.stop()
    rate = {"cpu_after": (cpu_seconds() - used) * 1e6 / sent, "rate_after": sent / passed}
    memory_grown = {"growth_mib": memory[-1] - memory[len(memory) // 2]}
    lone_times = {"alone_p50_ms": percentiles(alone)["p50_ms"]}
    return percentiles(beside) | {"records": sent} | rate | memory_grown | lone_times


async def lone_send(work):
    value, times = work.values()[0], []
    producer = await start_producer(work)
    for _ in range(200):
        await producer.send_and_wait(work.topic, value)
    used = cpu_seconds()
    for _ in range(work.records):
        begin = time.perf_counter()
        await producer.send_and_wait(work.topic, value)
        times.append(time.perf_counter() - begin)
    used = cpu_seconds() - used
    await producer.stop()
    return percentiles(times) | each(used, work.records)


async def end_to_end(work):
    """One record a millisecond; each carries the time at which it was given to ``send``."""
    producer, consumer = await start_producer(work), await start_consumer(work)
    filler, times = b"." * (work.size - 24), []
    total, few = work.records, work.records // 10

    async def produce():
        loop = asyncio.get_running_loop()
        begin = loop.time()
        for number in range(total):
            await asyncio.sleep(max(0, begin + number / 1000 - loop.time()))
            await producer.send(work.topic, b"%24.9f" % time.perf_counter() + filler)

    task = asyncio.create_task(produce())
    while len(times) < total:
        record = await consumer.getone()
        times.append(time.perf_counter() - float(record.value[:24]))
        if len(times) == few:
            used = cpu_seconds()
    used = cpu_seconds() - used
    await task
    await producer.stop()
    await consumer.stop()
    return percentiles(times[few:]) | each(used, total - few)


async def metadata(work):
    """Ask for all topics, and what partitions one has."""
    consumer = await start_consumer(work)
    for _ in range(5):
        await consumer.topics()
    used = cpu_seconds()
    times = []
    for _ in range(work.records):
        begin = time.perf_counter()
        await consumer.topics()
        check(len(consumer.partitions_for_topic(work.topic)), work.partitions)
        times.append(time.perf_counter() - begin)
    used = cpu_seconds() - used
    await consumer.stop()
    return percentiles(times) | each(used, work.records)


async def first_record(work):
    times = []
    for _ in range(work.records):
        begin = time.perf_counter()
        consumer = await start_consumer(work)
        await consumer.getone()
        times.append(time.perf_counter() - begin)
        await consumer.stop()
    return percentiles(times)


async def members(work):
    """Start members of one group at once, and wait until they share all partitions."""
    used, begin = cpu_seconds(), time.perf_counter()
    consumers = await asyncio.gather(*(start_consumer(work, group=True) for _ in range(work.tasks)))

    async def read(consumer):
        while True:
            await consumer.getmany(timeout_ms=1000)

    reading = [asyncio.create_task(read(consumer)) for consumer in consumers]
    share = work.partitions // work.tasks
    while min(len(consumer.assignment()) for consumer in consumers) < share:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    result = {
        "records": work.tasks,
        "stable_ms": (time.perf_counter() - begin) * 1e3,
        "cpu_ms": (cpu_seconds() - used) * 1e3,
    }
    for task in reading:
        task.cancel()
    await asyncio.gather(*(consumer.stop() for consumer in consumers))
    return result


async def idle(work, *, group=False):
    consumer = await start_consumer(work, group=group)
    reading = asyncio.create_task(consumer.getone())
    await asyncio.sleep(3)
    begin = cpu_seconds()
    await asyncio.sleep(work.seconds)
    used = cpu_seconds() - begin
    reading.cancel()
    await consumer.stop()
    return {"records": 0, "cpu_a_minute": used * 60 / work.seconds}


async def slow_reader(work):
    consumer = await start_consumer(work)
    done, deadline = 0, time.perf_counter() + work.seconds
    while time.perf_counter() < deadline:
        for records in (await consumer.getmany(timeout_ms=1000, max_records=10)).values():
            done += len(records)
        await asyncio.sleep(0.01)
    await consumer.stop()
    return {"records": done}


# -- observers, ours only: each figure is the CPU time of a record to that without an observer


def observers(side):
    """By name: the interceptors of a producer or a consumer, and the share of the records that
    they get: a tracer takes long."""
    from aiokafka.interceptors import ConsumerInterceptor, ProducerInterceptor
    from aiokafka.otel import ConsumerTelemetry, ProducerTelemetry

    class Counts(ProducerInterceptor, ConsumerInterceptor):
        sent = told = read = 0

        def on_send(self, record):
            self.sent += 1

        def on_acknowledgement(self, record, metadata, error):
            self.told += 1

        def on_consume(self, records):
            self.read += 1

    kind = ProducerTelemetry if side == "send" else ConsumerTelemetry
    found = {"alone": ([], 1), "interceptor": ([Counts()], 1), "no_recorder": ([kind()], 1)}
    try:
        from opentelemetry.sdk.trace import TracerProvider
    except ImportError:
        return found
    return found | {"recorder": ([kind(tracer_provider=TracerProvider())], 20)}


async def observed(work, side):
    used, rounds = {}, 3
    for _ in range(rounds):
        for name, (interceptors, part) in observers(side).items():
            count = work.records // part // rounds
            run = observed_sends if side == "send" else partial(observed_reads, side=side)
            used.setdefault(name, []).append(await run(work, interceptors, count) / count)
    least = {name: min(some) for name, some in used.items()}
    shares = {name: value / least["alone"] for name, value in least.items()}
    return {"records": work.records, "cpu_after": least["alone"] * 1e6} | shares


async def observed_sends(work, interceptors, count):
    values = work.values()
    producer = await start_producer(work, interceptors=interceptors)
    for number in range(1000):
        await producer.send(work.topic, values[number])
    await producer.flush()
    before = cpu_seconds()
    for number in range(count):
        await producer.send(work.topic, values[number % 1000])
    await producer.flush()
    used = cpu_seconds() - before
    await producer.stop()
    return used


async def observed_reads(work, interceptors, count, *, side):
    consumer = await start_consumer(work, interceptors=interceptors)
    await consumer.getone()
    before, done = cpu_seconds(), 0
    if side == "getone":
        for _ in range(count):
            await consumer.getone()
    else:
        async for _ in consumer:
            done += 1
            if done == count:
                break
    used = cpu_seconds() - before
    await consumer.stop()
    return used


WORKLOADS = {
    "getmany": getmany,
    "getmany_in_group": partial(getmany, group=True),
    "one_a_call": partial(getmany, per_call=1),
    "getone": getone,
    "json_values": json_values,
    "pause_all": pause_all,
    "commits": commits,
    "handler": handler,
    "writing_transactions": writing_transactions,
    "flood": flood,
    "parallel": parallel,
    "iterate": iterate,
    "share_implicit": partial(share, mode="implicit"),
    "share_explicit": partial(share, mode="explicit"),
    "iterate_in_group": partial(iterate, group=True),
    "send": send,
    "gather": gather,
    "send_batches": send_batches,
    "send_for_long": send_for_long,
    "send_in_tasks": send_in_tasks,
    "transactions": transactions,
    "lone_send": lone_send,
    "end_to_end": end_to_end,
    "metadata": metadata,
    "first_record": first_record,
    "members": members,
    "idle": idle,
    "idle_in_group": partial(idle, group=True),
    "slow_reader": slow_reader,
    "observed_send": partial(observed, side="send"),
    "observed_getone": partial(observed, side="getone"),
    "observed_iterate": partial(observed, side="iterate"),
}


def run(workload, work):
    if work.loop == "uvloop":
        import uvloop

        return uvloop.run(workload(work))
    return asyncio.run(workload(work))


if __name__ == "__main__":
    main({name: partial(run, workload) for name, workload in WORKLOADS.items()})
