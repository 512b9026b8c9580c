"""Many records at once on a real broker: a member that is killed, retries and dead letters."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka._compat import timeout
from aiokafka.parallel import ParallelConsumer, RetryInfo, RetryTopics
from tests.integration.parallel_member import make_member
from tests.kafka.fixtures import Kafka, MakeTopic, Scale
from tests.kafka.topics import create_topic

REPOSITORY = Path(__file__).parent.parent.parent
PARTITIONS = 4
KEYS = 60
Record = ConsumerRecord[Any, Any]
Line = tuple[str, int, int]


async def until(condition: Callable[[], bool]) -> None:
    async with timeout(60):
        while not condition():
            await asyncio.sleep(0.05)


async def write(kafka: Kafka, topic: str, count: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send(topic, b"%d" % number, key=b"%d" % (number % KEYS))


async def start_process(kafka: Kafka, topic: str) -> asyncio.subprocess.Process:
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.parallel_member"),
        *(kafka.bootstrap_servers, topic, topic),
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
    )


async def read_lines(process: asyncio.subprocess.Process, lines: list[Line]) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        if line.endswith(b"\n"):  # it may be cut
            key, partition, offset = line.decode().split()
            lines.append((key, int(partition), int(offset)))


def check_order(lines: list[Line]) -> None:
    """Each record for the first time in the order of its key."""
    last: dict[str, int] = {}
    for key, _, offset in dict.fromkeys(lines):
        assert offset > last.get(key, -1)
        last[key] = offset


async def test_a_killed_member_loses_nothing(
    kafka: Kafka, make_topic: MakeTopic, scale: Scale
) -> None:
    count = scale(3000, 100_000)
    topic = await make_topic(partitions=PARTITIONS)
    await write(kafka, topic, count // 2)
    ours: list[Line] = []
    theirs: list[Line] = []

    async def handle(record: Record) -> None:
        await asyncio.sleep(record.offset % 7 / 1000)
        ours.append((record.key.decode(), record.partition, record.offset))

    loop = asyncio.get_running_loop()
    process = await start_process(kafka, topic)
    reader = loop.create_task(read_lines(process, theirs))
    try:
        await until(lambda: len(theirs) > 100)
        async with make_member(kafka.bootstrap_servers, topic, topic) as parallel:
            await until(lambda: bool(parallel.consumer.assignment()))
            await write(kafka, topic, count // 2)
            runs = loop.create_task(parallel.run(handle))
            await until(lambda: len(ours) > 100)
            process.kill()
            await process.wait()
            await reader
            await until(lambda: len({*ours, *theirs}) == count)
            parallel.request_stop()
            await runs
            await parallel.stop()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        reader.cancel()
        await asyncio.wait([reader])
    check_order(ours)
    check_order(theirs)
    # The killed one had committed a tenth of a second before, with 20 records in work since.
    assert len(ours) + len(theirs) < count * 1.5
    await check_committed(kafka, topic, count)


async def check_committed(kafka: Kafka, topic: str, count: int) -> None:
    async with AIOKafkaConsumer(
        bootstrap_servers=kafka.bootstrap_servers, group_id=topic, enable_auto_commit=False
    ) as consumer:
        tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(tps)
        assert sum([await consumer.committed(tp) or 0 for tp in tps]) == count


async def test_retries_and_dead_letters(kafka: Kafka, make_topic: MakeTopic) -> None:
    topic = await make_topic(partitions=2)
    names = [topic, f"{topic}-retry-1", f"{topic}-retry-2", f"{topic}-dead-letter"]
    for name in names[1:]:
        await create_topic(kafka.bootstrap_servers, name, 2, 1, {})
    await write(kafka, topic, 200)
    done: dict[int, str] = {}

    async def handle(record: Record) -> None:
        number = int(record.value)
        # One in five needs a second attempt, one in ten a third one; one in fifty never works.
        needed = 9 if number % 50 == 0 else 2 if number % 10 == 0 else 1 if number % 5 == 0 else 0
        if names.index(record.topic) < needed:
            raise LookupError(f"number {number}")
        done[number] = record.topic

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=topic,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    dead = AIOKafkaConsumer(
        names[3], bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest"
    )
    letters: list[Record] = []
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer, dead:
        retry = RetryTopics(producer, [300, 600])
        async with ParallelConsumer(consumer, retry=retry) as parallel:
            runs = asyncio.get_running_loop().create_task(parallel.run(handle))
            async with timeout(60):
                while len(letters) < 4:
                    letters.append(await dead.getone())
            await until(lambda: len(done) == 196)
            parallel.request_stop()
            await runs
    assert [sorted(n for n in done if done[n] == name)[:3] for name in names[:3]] == [
        [1, 2, 3],
        [5, 15, 25],
        [10, 20, 30],
    ]
    assert sorted(int(letter.value) for letter in letters) == [0, 50, 100, 150]
    for letter in letters:
        info = RetryInfo.of(letter)
        assert info is not None
        assert (info.topic, info.attempts, info.due) == (topic, 3, -1)
        assert info.exception == "builtins.LookupError"
        assert info.message == f"number {int(letter.value)}"
