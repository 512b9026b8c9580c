"""The workloads for confluent-kafka's synchronous clients."""

import json
import threading
import time
from functools import partial

from common import (
    PER_CALL,
    WARM_UP,
    WORKERS,
    Clock,
    check,
    cpu_seconds,
    each,
    main,
    new_group,
    percentiles,
)
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition


def connection(work):
    """Return the options of every client: the brokers, and TLS where the row has it."""
    options = {"bootstrap.servers": work.servers}
    if work.authority:
        options |= {"security.protocol": "SSL", "ssl.ca.location": work.authority}
    return options


def start_consumer(work, *, group=False):
    """With all partitions; as the only member of a new group if so wanted."""
    consumer = Consumer(
        connection(work)
        | {
            "group.id": new_group(work) if group else "benchmark",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    if group:
        consumer.subscribe([work.topic])
    else:
        numbers = range(work.partitions)
        consumer.assign([TopicPartition(work.topic, n, OFFSET_BEGINNING) for n in numbers])
    return consumer


def start_producer(work, **options):
    settings = connection(work) | {"acks": "all"}
    if work.batch_size:
        settings |= {"batch.size": work.batch_size, "linger.ms": 5}
    if work.is_idempotent:
        settings["enable.idempotence"] = True
    return Producer(settings | options | {"compression.type": work.compression or "none"})


def length(message):
    if message.error():
        raise RuntimeError(message.error())
    return len(message.value())


def getmany(work, *, group=False, per_call=PER_CALL):
    clock, done, size = Clock(), 0, 0
    consumer = start_consumer(work, group=group)
    while done < work.records:
        messages = consumer.consume(per_call, timeout=1)
        for message in messages:
            size += length(message)
        done += len(messages)
        if messages:
            clock.started(done)
    check(size, done * work.size)
    result = clock.rate(done)
    consumer.close()
    return result


def iterate(work, *, group=False):
    clock, done = Clock(), 0
    consumer = start_consumer(work, group=group)
    while done < work.records:
        message = consumer.poll(1)
        if message is not None:
            check(length(message), work.size)
            done += 1
            clock.started()
    result = clock.rate(done)
    consumer.close()
    return result


def share(work, mode):
    """Read as the only member of a new share group, and acknowledge the records: by the next call,
    or each of them by itself."""
    from confluent_kafka import ShareConsumer
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    group = new_group(work)
    entry = ConfigEntry(
        "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
    )
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient(connection(work))
    admin.incremental_alter_configs([resource])[resource].result(30)
    clock, done, size = Clock(), 0, 0
    consumer = ShareConsumer(
        connection(work)
        | {
            "group.id": group,
            "share.acknowledgement.mode": mode,
            "max.poll.records": PER_CALL,
        }
    )
    consumer.subscribe([work.topic])
    while done < work.records:
        messages = consumer.poll(1.0)
        for message in messages:
            size += length(message)
            if mode == "explicit":
                consumer.acknowledge(message)
        done += len(messages)
        if done:
            clock.started(done)
    consumer.commit_sync()
    check(size, work.records * work.size)
    result = clock.rate(done)
    consumer.close()
    return result


def json_values(work):
    """Read JSON values, hundreds a call."""
    clock, done = Clock(), 0
    consumer = start_consumer(work)
    while done < work.records:
        messages = consumer.consume(PER_CALL, timeout=1)
        for message in messages:
            value = message.value()
            check(json.loads(value[: value.index(b"}") + 1])["id"] >= 0, True)
        done += len(messages)
        if messages:
            clock.started(done)
    result = clock.rate(done)
    consumer.close()
    return result


def commits(work):
    """Read one by one in a group, and commit after each `per_commit` records."""
    clock, done = Clock(), 0
    consumer = start_consumer(work, group=True)
    while done < work.records:
        message = consumer.poll(1)
        if message is not None and length(message):
            done += 1
            if done % work.per_commit == 0:
                consumer.commit(asynchronous=False)
            if done == WARM_UP:
                clock.started(done)
    result = clock.rate(done)
    consumer.close()
    return result


def handler(work):
    """Read, send the result and wait for it, commit."""
    clock, done = Clock(), 0
    consumer = start_consumer(work, group=True)
    producer = start_producer(work, **{"linger.ms": 0})
    while done < work.records:
        message = consumer.poll(1)
        if message is None or not length(message):
            continue
        producer.produce(work.target, message.value())
        producer.flush()
        consumer.commit(asynchronous=False)
        done += 1
        if done == WARM_UP:
            clock.started(done)
    result = clock.rate(done)
    consumer.close()
    return result


class Deliveries:
    """Counts what the broker acknowledged."""

    def __init__(self):
        self.done = 0

    def __call__(self, error, message):
        if error is None and message.offset() >= 0:
            self.done += 1


def send(work):
    values, keys = work.values(), work.keys()
    clock, delivered = Clock(), Deliveries()
    producer = start_producer(work)
    first(producer, work, clock)
    for number in range(work.records):
        value, key = values[number % 1000], keys[number % len(keys)]
        while True:
            try:
                producer.produce(work.topic, value, key, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 100 == 0:
            producer.poll(0)
    producer.flush()
    check(delivered.done, work.records)
    return clock.rate(delivered.done + 1)


def send_for_long(work):
    """Send without a pause, beyond the first 32 MiB; a full queue is waited for."""
    values, delivered = work.values(), Deliveries()
    few = min(work.records // 2, 32 * 1024 * 1024 // work.size)
    producer = start_producer(work)
    first(producer, work, Clock())
    marks = [(time.perf_counter(), cpu_seconds())]
    for number in range(1, work.records + 1):
        while True:
            try:
                producer.produce(work.topic, values[number % 1000], on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 100 == 0:
            producer.poll(0)
        if number in (few, work.records):
            marks.append((time.perf_counter(), cpu_seconds()))
    begin, full, end = marks
    producer.flush()
    check(delivered.done, work.records)
    rest = work.records - few
    return {
        "records": work.records,
        "seconds": end[0] - begin[0],
        "rate_after": rest / (end[0] - full[0]),
        "wall_after": (end[0] - full[0]) * 1e6 / rest,
    } | each(end[1] - full[1], rest)


def send_in_window(work):
    """As many records under way as there are tasks; each delivery report sends the next one."""
    values, clock, sent, done = work.values(), Clock(), 0, 0
    producer = start_producer(work, **{"linger.ms": 0})

    def send_next(error=None, message=None):
        nonlocal sent, done
        done += message is not None and error is None
        if sent < work.records:
            sent += 1
            producer.produce(work.topic, values[sent % 1000], on_delivery=send_next)

    first(producer, work, clock)
    for _ in range(work.tasks):
        send_next()
    while done < work.records:
        producer.poll(0.1)
    return clock.rate(done + 1)


def first(producer, work, clock):
    """Send a record, and take what comes behind it for the work itself."""
    producer.produce(work.topic, work.values()[0])
    producer.flush()
    clock.started()


def send_in_tasks(work):
    """Threads that wait for each record, and one that serves the delivery reports."""
    values, clock = work.values(), Clock()
    producer = start_producer(work, **{"linger.ms": 0})
    finished = threading.Event()

    def worker(count):
        for number in range(count):
            delivered = threading.Event()
            producer.produce(
                work.topic, values[number % 1000], on_delivery=lambda *_, d=delivered: d.set()
            )
            delivered.wait()

    def serve():
        while not finished.is_set():
            producer.poll(0.1)

    first(producer, work, clock)
    count = work.records // WORKERS
    threads = [threading.Thread(target=worker, args=(count,)) for _ in range(WORKERS)]
    server = threading.Thread(target=serve)
    for thread in (server, *threads):
        thread.start()
    for thread in threads:
        thread.join()
    result = clock.rate(count * WORKERS + 1)
    finished.set()
    server.join()
    return result


def transactions(work):
    clock, done, group, times = Clock(), 0, new_group(work), []
    consumer = Consumer(
        {
            "bootstrap.servers": work.servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    numbers = range(work.partitions)
    consumer.assign([TopicPartition(work.topic, n, OFFSET_BEGINNING) for n in numbers])
    producer = start_producer(work, **{"transactional.id": group})
    producer.init_transactions()
    while done < work.records:
        messages = consumer.consume(min(work.per_transaction, work.records - done), timeout=1)
        if not messages:
            continue
        begin = time.perf_counter()
        producer.begin_transaction()
        for message in messages:
            length(message)
            producer.produce(work.target, message.value(), message.key())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(
            [position for position in positions if position.offset >= 0],
            consumer.consumer_group_metadata(),
        )
        producer.commit_transaction()
        times.append(time.perf_counter() - begin)
        done += len(messages)
        if len(times) == WARM_UP:
            clock.started(done)
    result = percentiles(times[WARM_UP:]) | clock.rate(done)
    consumer.close()
    return result


def writing_transactions(work):
    """Write transactions of `per_transaction` records, without offsets."""
    values, clock, done = work.values(), Clock(), 0
    producer = start_producer(work, **{"transactional.id": new_group(work)})
    producer.init_transactions()
    while done < work.records:
        producer.begin_transaction()
        for number in range(work.per_transaction):
            producer.produce(work.topic, values[number % 1000])
        producer.commit_transaction()
        done += work.per_transaction
        if done == WARM_UP * work.per_transaction:
            clock.started(done)
    return clock.rate(done)


def lone_send(work):
    value, times = work.values()[0], []
    producer = start_producer(work, **{"linger.ms": 0})
    for number in range(work.records + 200):
        if number == 200:
            used = cpu_seconds()
        begin = time.perf_counter()
        producer.produce(work.topic, value)
        producer.flush()
        if number >= 200:
            times.append(time.perf_counter() - begin)
    return percentiles(times) | each(cpu_seconds() - used, work.records)


def end_to_end(work):
    producer, consumer = start_producer(work, **{"linger.ms": 0}), start_consumer(work)
    filler, times, few = b"." * (work.size - 24), [], work.records // 10

    def produce():
        begin = time.perf_counter()
        for number in range(work.records):
            time.sleep(max(0, begin + number / 1000 - time.perf_counter()))
            producer.produce(work.topic, b"%24.9f" % time.perf_counter() + filler)
            producer.poll(0)
        producer.flush()

    thread = threading.Thread(target=produce)
    thread.start()
    while len(times) < work.records:
        message = consumer.poll(1)
        if message is not None and length(message):
            times.append(time.perf_counter() - float(message.value()[:24]))
            if len(times) == few:
                used = cpu_seconds()
    used = cpu_seconds() - used
    thread.join()
    consumer.close()
    return percentiles(times[few:]) | each(used, work.records - few)


def metadata(work):
    """Ask for all topics, and what partitions one has."""
    consumer = start_consumer(work)
    for _ in range(5):
        consumer.list_topics(timeout=30)
    used, times = cpu_seconds(), []
    for _ in range(work.records):
        begin = time.perf_counter()
        topics = consumer.list_topics(timeout=30).topics
        check(len(topics[work.topic].partitions), work.partitions)
        times.append(time.perf_counter() - begin)
    used = cpu_seconds() - used
    consumer.close()
    return percentiles(times) | each(used, work.records)


def first_record(work):
    times = []
    for _ in range(work.records):
        begin = time.perf_counter()
        consumer = start_consumer(work)
        while consumer.poll(1) is None:
            pass
        times.append(time.perf_counter() - begin)
        consumer.close()
    return percentiles(times)


def idle(work, *, group=False):
    consumer = start_consumer(work, group=group)
    consumer.poll(3)
    begin = cpu_seconds()
    consumer.poll(work.seconds)
    used = cpu_seconds() - begin
    consumer.close()
    return {"records": 0, "cpu_a_minute": used * 60 / work.seconds}


def slow_reader(work):
    consumer, done = start_consumer(work), 0
    deadline = time.perf_counter() + work.seconds
    while time.perf_counter() < deadline:
        done += len(consumer.consume(10, timeout=1))
        time.sleep(0.01)
    consumer.close()
    return {"records": done}


if __name__ == "__main__":
    main(
        {
            "getmany": getmany,
            "getmany_in_group": partial(getmany, group=True),
            "iterate": iterate,
            "iterate_in_group": partial(iterate, group=True),
            "one_a_call": partial(getmany, per_call=1),
            "share_implicit": partial(share, mode="implicit"),
            "share_explicit": partial(share, mode="explicit"),
            "getone": partial(iterate, group=True),
            "json_values": json_values,
            "commits": commits,
            "handler": handler,
            "send_for_long": send_for_long,
            "send_in_window": send_in_window,
            "writing_transactions": writing_transactions,
            "send": send,
            "send_in_tasks": send_in_tasks,
            "transactions": transactions,
            "lone_send": lone_send,
            "end_to_end": end_to_end,
            "metadata": metadata,
            "first_record": first_record,
            "idle": idle,
            "idle_in_group": partial(idle, group=True),
            "slow_reader": slow_reader,
        }
    )
