"""Members of a share group and brokers are killed while records flow: exact accounting of every
delivery."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import sys
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient
from tests.kafka.fixtures import Scale, need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.plugins import compile_plugin, missing_compiler
from tests.kafka.topics import create_topic

PARTITIONS = 3
LOCK_MS = 4000
# Kafka's own times, with which a slow broker or member is not taken for a dead one.
UNHURRIED = {
    "broker.session.timeout.ms": "9000",
    "broker.heartbeat.interval.ms": "2000",
    "controller.quorum.fetch.timeout.ms": "5000",
    "group.share.session.timeout.ms": "15000",
    "group.share.heartbeat.interval.ms": "2000",
}
PROGRAM = Path(__file__).with_name("share_member.py")
OURS = (sys.executable, str(PROGRAM))
Place = tuple[int, int]
STATE_TOPIC = "__share_group_state"


@dataclass
class Handling:
    """One call of a handler."""

    member: int
    began_at: int
    delivery_count: int
    is_released: bool = False
    outcome: str = ""
    ended_at: int = 0


@dataclass
class Member:
    """A process, and what it has printed."""

    number: int
    process: asyncio.subprocess.Process
    is_java: bool = False
    is_killed: bool = False
    handlings: dict[Place, list[Handling]] = field(default_factory=lambda: defaultdict(list))
    reading: asyncio.Task[None] | None = None

    async def read(self, handled: set[Place]) -> None:
        """Note what the process prints, and add the records that it handles to `handled`."""
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            kind, *numbers = line.split()
            partition, offset, *rest = map(int, numbers)
            self._note(kind.decode(), partition, offset, *rest)
            if kind == b"H":
                handled.add((partition, offset))

    def _note(self, kind: str, partition: int, offset: int, *rest: int) -> None:
        some = self.handlings[partition, offset]
        if kind == "H":
            some.append(Handling(self.number, began_at=rest[1], delivery_count=rest[0]))
        elif kind == "R":
            some[-1].is_released = True
        else:
            # Records that waited for a handler are released without one when the member stops.
            open_ones = [each for each in some if not each.outcome]
            if open_ones:
                open_ones[0].outcome, open_ones[0].ended_at = kind, rest[0]


class Members:
    """The members of one group."""

    def __init__(self, servers: str, topic: str, acquire_mode: str) -> None:
        self.all: list[Member] = []
        self.handled: set[Place] = set()
        self.servers = servers
        self.group = f"share-{topic}"
        self._arguments = (servers, topic, self.group, acquire_mode)

    async def start(self, program: Sequence[str], count: int, at_once: int, work_ms: int) -> None:
        """Start members. `at_once`: records that each of them takes."""
        for _ in range(count):
            process = await asyncio.create_subprocess_exec(
                *program,
                *self._arguments,
                str(at_once),
                str(work_ms),
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": str(PROGRAM.parents[2])},
            )
            member = Member(len(self.all), process, is_java=program is not OURS)
            member.reading = asyncio.ensure_future(member.read(self.handled))
            self.all.append(member)

    def kill(self, number: int) -> None:
        self.all[number].is_killed = True
        self.all[number].process.send_signal(signal.SIGKILL)

    async def stop(self) -> None:
        for member in self.all:
            if member.process.returncode is None:
                member.process.send_signal(signal.SIGTERM)
        for member in self.all:
            await member.process.wait()
            assert member.reading is not None
            await member.reading

    def abandon(self) -> None:
        for member in self.all:
            if member.process.returncode is None:
                member.process.kill()

    def finished(self) -> set[Place]:
        """Return the records with an accepted handling."""
        return {place for place, each in self.each() if is_accepted(each)}

    def is_stale(self, handling: Handling, of_record: list[Handling]) -> bool:
        """Return whether a member of Java handled the record after a later delivery had begun.

        Java's consumer hands out what it has fetched, even if the lock has expired meanwhile; ours
        drops such a record. The broker ignores the acknowledgement, if the record is finished.
        """
        return self.all[handling.member].is_java and any(
            each.delivery_count > handling.delivery_count and each.began_at < handling.began_at
            for each in of_record
        )

    def each(self) -> Iterator[tuple[Place, Handling]]:
        for member in self.all:
            for place, some in member.handlings.items():
                for handling in some:
                    yield place, handling

    async def reach(self, count: int, seconds: float) -> None:
        """Wait until this number of records were handled."""
        await self._until(lambda: len(self.handled) >= count, seconds)

    async def take_part(self, seconds: float) -> None:
        """Wait until each member has handled a record."""
        await self._until(lambda: all(member.handlings for member in self.all), seconds)

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        async with timeout(seconds):
            while not condition():
                assert all(m.is_killed or m.process.returncode is None for m in self.all)
                await asyncio.sleep(0.1)


def is_accepted(handling: Handling) -> bool:
    return handling.outcome == "S" and not handling.is_released


def is_late(handling: Handling, of_record: list[Handling]) -> bool:
    """Return whether the record was delivered again before the acknowledgement succeeded: its lock
    had expired while the request was in flight. The broker ignores such an acknowledgement if
    another member has finished the record."""
    return any(handling.began_at < each.began_at < handling.ended_at for each in of_record)


async def find_forgotten(members: Members) -> Counter[Place]:
    """Return how many times the brokers have dropped the stored state of finished records.

    A leader stores the state of its partition with the share coordinator, and retries each request
    separately (Kafka 4.3.1 and 4.4.0):

    1. The coordinator does not respond, because its broker was killed. The leader retries request A
       (start offset 0: record 70 is available again, its lock has expired).
    2. The new coordinator stores request B: records 0 to 3 were accepted. They are finished, so the
       next request C has start offset 4. The coordinator stores it, and drops the state of 0 to 3.
    3. A arrives with its start offset 0. The coordinator stores it.
    4. The leader of the partition changes. The new leader delivers records 0 to 3 for the first
       time, as far as it knows.

    So these are the records from a start offset that went back to the start offset before.
    """
    forgotten: Counter[Place] = Counter()
    starts: dict[int, int] = {}
    async with AIOKafkaConsumer(bootstrap_servers=members.servers) as consumer:
        await consumer.topics()
        numbers = consumer.partitions_for_topic(STATE_TOPIC)
        assert numbers, "the brokers store no state"
        states = [TopicPartition(STATE_TOPIC, number) for number in numbers]
        consumer.assign(states)
        await consumer.seek_to_beginning(*states)
        ends = await consumer.end_offsets(states)
        while any([await consumer.position(tp) < ends[tp] for tp in states]):
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    assert record.key is not None and record.value is not None
                    group, partition, start = stored_start(record.key, record.value)
                    if group != members.group or start < 0:
                        continue
                    forgotten.update((partition, n) for n in range(start, starts.get(partition, 0)))
                    starts[partition] = start
    return forgotten


def stored_start(key: bytes, value: bytes) -> tuple[str, int, int]:
    """Return group, partition and start offset of a record of the topic `__share_group_state`."""
    kind, length = struct.unpack_from(">hh", key)
    group = key[4 : 4 + length].decode()
    (partition,) = struct.unpack_from(">i", key, 4 + length + 16)
    # A snapshot (0) has three epochs before the start offset, an update (1) has two.
    (start,) = struct.unpack_from(">q", value, 14 if kind == 0 else 10)
    return group, partition, start


def account(members: Members, written: set[Place], forgotten: Counter[Place]) -> str:
    """Check every delivery; return a summary."""
    by_place: dict[Place, list[Handling]] = defaultdict(list)
    for place, handling in members.each():
        by_place[place].append(handling)
    killed = {member.number for member in members.all if member.is_killed}
    lost = written - by_place.keys()
    assert not lost, f"{len(lost)} records were not handled: {sorted(lost)[:10]}"
    assert by_place.keys() == written
    reasons = {"released": 0, "failed": 0, "killed": 0, "late": 0, "forgotten": 0}
    for place, some in by_place.items():
        accepted = [
            each
            for each in some
            if is_accepted(each) and not (is_late(each, some) or members.is_stale(each, some))
        ]
        others = [each for each in some if each not in accepted]
        assert len(accepted) <= 1 + forgotten[place], f"{place} was accepted twice: {some}"
        reasons["forgotten"] += max(0, len(accepted) - 1)
        for each in others:
            if each.is_released and each.outcome == "S":
                reasons["released"] += 1
            elif each.outcome == "F":
                reasons["failed"] += 1
            elif each.outcome == "S":
                reasons["late"] += 1
            else:
                assert each.member in killed, f"{place} has no outcome: {some}"
                reasons["killed"] += 1
        # Without a confirmed acceptance, one must have been in flight: its outcome was lost.
        if not accepted:
            assert any(not (each.is_released and each.outcome == "S") for each in others), some
        for each in accepted:
            late = [
                other
                for other in some
                if other.began_at > each.ended_at and not members.is_stale(other, some)
            ]
            if not forgotten[place]:
                assert not late, f"{place} was delivered after it had been accepted: {some}"
    redelivered = sum(len(some) - 1 for some in by_place.values())
    explained = sum(reasons.values())
    assert redelivered <= explained
    return f"{len(written)} records, {redelivered} redelivered: {reasons}"


async def fill(servers: str, topic: str, count: int) -> set[Place]:
    written: set[Place] = set()
    async with AIOKafkaProducer(bootstrap_servers=servers, acks="all") as producer:
        futures = [
            await producer.send(topic, b"%d" % number, partition=number % PARTITIONS)
            for number in range(count)
        ]
        for future in futures:
            done = await future
            written.add((done.partition, done.offset))
    return written


@pytest.fixture(scope="module")
def kafka3() -> Iterator[KafkaCluster]:
    """Three brokers that have time on a machine where all members start at once."""
    need_own_brokers()
    with KafkaCluster(nodes=3, config=UNHURRIED) as cluster:
        yield cluster


async def begin(
    servers: str, count: int, acquire_mode: str = "batch_optimized"
) -> tuple[Members, set[Place]]:
    """Return the members, still none, of the group of a new topic, and its records."""
    topic = f"jobs-{uuid.uuid4().hex[:8]}"
    await create_topic(servers, topic, PARTITIONS, 3, {"min.insync.replicas": "2"})
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        settings = {
            "share.auto.offset.reset": "earliest",
            "share.record.lock.duration.ms": LOCK_MS,
            # A record must not be archived because of the kills.
            "share.delivery.count.limit": 10,
        }
        await admin.configs.alter({("group", f"share-{topic}"): settings})
    return Members(servers, topic, acquire_mode), await fill(servers, topic, count)


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_members_and_brokers_are_killed(kafka3: KafkaCluster, scale: Scale) -> None:
    total = scale(2_000, 200_000)
    members, written = await begin(kafka3.bootstrap_servers, total)
    patience = scale(120, 800)
    try:
        await members.start(OURS, scale(3, 20), 20, work_ms=20)
        await members.reach(total // 10, patience)
        members.kill(0)
        await members.reach(total * 3 // 10, patience)
        kafka3.kill(1)
        await members.reach(total * 5 // 10, patience)
        members.kill(1)
        await members.start(OURS, 2, 20, work_ms=20)
        await asyncio.to_thread(kafka3.restart, 1)
        await members.reach(total * 7 // 10, patience)
        kafka3.kill(2)
        await members.reach(total, patience)
        await asyncio.to_thread(kafka3.restart, 2)
        # Records whose acceptance was lost or failed are delivered again after their locks.
        await settle(members, written)
        await members.stop()
    finally:
        members.abandon()
    print(account(members, written, await find_forgotten(members)))


@pytest.mark.timeout(500)
async def test_members_of_java_and_ours_share_a_group(kafka3: KafkaCluster, tmp_path: Path) -> None:
    if missing_compiler():
        pytest.skip(missing_compiler())
    classpath = compile_plugin("ShareMember", tmp_path)
    options = "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"
    java = "java", *options, "-cp", classpath, "ShareMember"
    total = 3_000
    # Each member gets a part of each batch.
    members, written = await begin(kafka3.bootstrap_servers, total, "record_limit")
    try:
        await members.start(java, 2, 20, work_ms=5)
        await members.take_part(120)
        await members.start(OURS, 2, 20, work_ms=20)
        await members.take_part(120)
        members.kill(0)
        await members.reach(total * 4 // 10, 120)
        members.kill(2)
        await members.reach(total * 6 // 10, 120)
        await members.start(OURS, 1, 20, work_ms=20)
        await members.start(java, 1, 20, work_ms=5)
        kafka3.kill(3)
        await members.reach(total, 120)
        await asyncio.to_thread(kafka3.restart, 3)
        await settle(members, written)
        await members.stop()
    finally:
        members.abandon()
    print(account(members, written, await find_forgotten(members)))


async def settle(members: Members, written: set[Place]) -> None:
    """Wait until all records are accepted, or nothing was delivered for three times the lock."""
    loop = asyncio.get_running_loop()
    seen, seen_at = -1, loop.time()
    while members.finished() != written and loop.time() < seen_at + 3 * LOCK_MS / 1000:
        count = sum(1 for _ in members.each())
        if count != seen:
            seen, seen_at = count, loop.time()
        await asyncio.sleep(0.2)
