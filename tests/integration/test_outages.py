"""Brokers and members that go and come back: consumption goes on by itself, and `health()` tells
the truth all along."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerState, ProducerState
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import CommitFailedError, KafkaTimeoutError, KafkaUnreachableError
from tests.kafka.fixtures import Scale, need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.topics import create_topic

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

PARTITIONS = 4
# A member counts as dead after 2 s with either protocol (settings of `tests.kafka`: 3 s).
CLASSIC: dict[str, Any] = {"session_timeout_ms": 2000, "heartbeat_interval_ms": 300}
# Without a heartbeat for so long the group may remove a member, whatever the client does.
SESSION_MS = {"classic": 2000, "consumer": 3000}
OUTAGE_SHORT, OUTAGE_LONG = 4, 60
QUICK: dict[str, Any] = {"reconnect_backoff_max_ms": 500}


@pytest.fixture(scope="module")
def one_broker() -> Iterator[KafkaCluster]:
    need_own_brokers()
    with KafkaCluster() as cluster:
        yield cluster


@pytest.fixture
def kafka1(one_broker: KafkaCluster) -> Iterator[KafkaCluster]:
    """One broker that tests may kill; it runs again for the next one."""
    yield one_broker
    if not one_broker.is_alive(1):
        one_broker.restart(1)


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def new_topic(cluster: KafkaCluster, copies: int = 1) -> str:
    name = f"outage-{uuid.uuid4().hex[:12]}"
    await create_topic(cluster.bootstrap_servers, name, PARTITIONS, copies, {})
    return name


async def until(condition: Callable[[], object], seconds: float = 60) -> None:
    async with timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


class Writer:
    """Sends numbers, one after the other, as long as it is told to."""

    def __init__(self, cluster: KafkaCluster, topic: str) -> None:
        self.written: set[int] = set()
        self.producer = AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, delivery_timeout_ms=300_000, **QUICK
        )
        self._topic = topic
        self._is_over = False

    async def run(self) -> None:
        number = 0
        await self.producer.start()
        try:
            while not self._is_over:
                await self.producer.send_and_wait(
                    self._topic, b"%d" % number, partition=number % PARTITIONS
                )
                self.written.add(number)
                number += 1
                await asyncio.sleep(0.005)
        finally:
            await self.producer.stop(timeout=1)

    def end(self) -> None:
        self._is_over = True


class Member:
    """Reads and commits; remembers what it saw, and every state it was in.

    A commit that a rebalance makes fail ends it, and with it the test. A commit may fail only if
    heartbeats found no broker for a whole session since the commit before it.
    """

    def __init__(self, cluster: KafkaCluster, topic: str, protocol: str, **options: Any) -> None:
        if protocol == "classic":
            options.update(CLASSIC)
        self.values: set[int] = set()
        self.states: list[ConsumerState] = []
        self.raised: list[KafkaUnreachableError] = []
        self.failure: BaseException | None = None
        self._session_ms = SESSION_MS[protocol]
        self._had_no_heartbeat = False
        self.consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=cluster.bootstrap_servers,
            group_id=topic,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **QUICK,
            **options,
        )

    async def run(self) -> None:
        async with self.consumer:
            watching = asyncio.get_running_loop().create_task(self._watch())
            try:
                while True:
                    await self._read()
            except Exception as error:
                self.failure = error
                raise
            finally:
                watching.cancel()

    async def _read(self) -> None:
        try:
            batches = await self.consumer.getmany(timeout_ms=200)
        except KafkaUnreachableError as error:
            self.raised.append(error)
            return
        if batches:
            self.values.update(int(r.value or b"") for rs in batches.values() for r in rs)
            await self._commit()

    async def _commit(self) -> None:
        try:
            await self.consumer.commit()
            self._had_no_heartbeat = False
        except KafkaTimeoutError:
            pass  # the next commit includes it
        except CommitFailedError:
            if not self._had_no_heartbeat:
                raise

    async def _watch(self) -> None:
        while True:
            health = self.consumer.health()
            if self.states[-1:] != [health.state]:
                self.states.append(health.state)
            if (health.heartbeat_age_ms or 0) > self._session_ms:
                self._had_no_heartbeat = True
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(*parts: Writer | Member) -> AsyncIterator[None]:
    """All of them at work; a member that fails, or a commit, fails the test."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(part.run()) for part in parts]
    try:
        yield
        for part, task in zip(parts, tasks, strict=True):
            assert not task.done() or isinstance(part, Writer), task.result()
        for part in parts:
            if isinstance(part, Writer):
                part.end()
                await tasks[parts.index(part)]
    finally:
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task


async def all_read(writer: Writer, *members: Member | Told) -> None:
    """What was written until now, and something more, is read. Raises what ended a member."""
    target = set(writer.written)
    await until(lambda: len(writer.written) > len(target) + 20)

    def is_read() -> bool:
        for member in members:
            if isinstance(member, Member) and member.failure is not None:
                raise member.failure
        return target <= set().union(*(member.values for member in members))

    await until(is_read)


async def test_the_whole_cluster_stops_and_starts_again(
    kafka1: KafkaCluster, protocol: str, scale: Scale
) -> None:
    topic = await new_topic(kafka1)
    writer = Writer(kafka1, topic)
    outage = scale(OUTAGE_SHORT, OUTAGE_LONG)
    limits = {"unreachable_timeout_ms": 2000, "default_api_timeout_ms": 1000}
    member = Member(kafka1, topic, protocol, **limits)
    async with running(writer, member):
        await until(lambda: member.consumer.health().state == "running" and len(member.values) > 20)
        assert member.consumer.health().joined
        kafka1.kill(1)
        await until(lambda: member.consumer.health().state is ConsumerState.UNREACHABLE)
        await until(lambda: writer.producer.health().state is ProducerState.UNREACHABLE)
        await asyncio.sleep(outage)
        health = member.consumer.health()
        assert health.state is ConsumerState.UNREACHABLE
        assert health.unreachable
        assert not health.joined  # its session is over
        assert health.fetch_age_ms is not None
        assert health.fetch_age_ms > outage * 1000
        assert health.last_error is not None
        assert writer.producer.health().pending == 1
        # The application was told, not more often than it asked for.
        assert 1 <= len(member.raised) <= outage / 2 + 2
        await asyncio.to_thread(kafka1.restart, 1)
        await all_read(writer, member)
        await until(lambda: member.consumer.health().state is ConsumerState.RUNNING)
        health = member.consumer.health()
        assert health.joined
        assert health.unreachable == ()
        await until(lambda: writer.producer.health().state is ProducerState.RUNNING)
    assert member.states[0] is ConsumerState.RUNNING
    assert ConsumerState.FAILED not in member.states


async def test_a_broker_restarts_during_a_rebalance(kafka1: KafkaCluster, protocol: str) -> None:
    topic = await new_topic(kafka1)
    writer = Writer(kafka1, topic)
    members = [Member(kafka1, topic, protocol) for _ in range(2)]
    async with running(writer, *members):
        await until(lambda: all(len(m.consumer.assignment()) == 2 for m in members))
        third = Member(kafka1, topic, protocol)
        async with running(third):
            # It has found a broker, and joins: the others are about to give something up.
            await until(lambda: third.consumer.partitions_for_topic(topic))
            await asyncio.to_thread(kafka1.kill, 1)
            await asyncio.to_thread(kafka1.restart, 1)
            await until(
                lambda: sorted(len(m.consumer.assignment()) for m in (*members, third)) == [1, 1, 2]
            )
            await all_read(writer, *members, third)
            await until(
                lambda: all(
                    m.consumer.health().state is ConsumerState.RUNNING for m in (*members, third)
                )
            )
        await until(lambda: all(len(m.consumer.assignment()) == 2 for m in members))
        await all_read(writer, *members, third)


async def test_a_frozen_process(kafka1: KafkaCluster, protocol: str, scale: Scale) -> None:
    topic = await new_topic(kafka1)
    writer = Writer(kafka1, topic)
    ours = Member(kafka1, topic, protocol)
    command = [sys.executable, "-m", "tests.integration.frozen_member"]
    async with running(writer, ours):
        theirs = await asyncio.create_subprocess_exec(
            *command,
            kafka1.bootstrap_servers,
            topic,
            protocol,
            stdout=asyncio.subprocess.PIPE,
            limit=2**20,
        )
        told = Told(theirs)
        try:
            await told.until(lambda: told.last.get("partitions") == 2)
            await until(lambda: len(ours.consumer.assignment()) == 2)
            os.kill(theirs.pid, signal.SIGSTOP)
            # The group gives its partitions to us.
            await until(lambda: len(ours.consumer.assignment()) == PARTITIONS)
            await asyncio.sleep(scale(1, 60))
            await all_read(writer, ours, told)
            told.reports.clear()
            os.kill(theirs.pid, signal.SIGCONT)
            await told.until(lambda: told.reports)
            first = told.reports[0]
            # At once, before any broker was asked.
            assert not first["joined"], first
            assert first["state"] in ("rebalancing", "unreachable"), first
            assert first["heartbeat_age_ms"] > 2000
            await told.until(
                lambda: told.last.get("partitions") == 2 and told.last["state"] == "running"
            )
            await until(lambda: len(ours.consumer.assignment()) == 2)
            target = set(writer.written)
            await told.until(lambda: target <= ours.values | told.values)
        finally:
            if theirs.returncode is None:
                theirs.kill()
            await theirs.wait()
            await told.end()


class Told:
    """What `frozen_member` has said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.reports: list[dict[str, Any]] = []
        self.last: dict[str, Any] = {}
        self.values: set[int] = set()
        self._process = process
        self._task = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            said = json.loads(line)
            if "values" in said:
                self.values.update(said["values"])
            else:
                self.last = said
                self.reports.append(said)

    async def until(self, condition: Callable[[], object]) -> None:
        await until(lambda: condition() or self._task.done())
        assert condition(), "the member ended"

    async def end(self) -> None:
        await self._task


async def test_the_coordinator_moves(kafka3: KafkaCluster, protocol: str) -> None:
    topic = await new_topic(kafka3, copies=3)
    writer = Writer(kafka3, topic)
    member = Member(kafka3, topic, protocol)
    async with AIOKafkaAdminClient(bootstrap_servers=kafka3.bootstrap_servers) as admin:
        async with running(writer, member):
            await until(lambda: len(member.values) > 20)
            old = await admin.find_coordinator(topic)
            await asyncio.to_thread(kafka3.kill, old)
            await all_read(writer, member)
            await until(lambda: member.consumer.health().state is ConsumerState.RUNNING)
            assert member.consumer.health().joined
            assert await admin.find_coordinator(topic) != old
            await asyncio.to_thread(kafka3.restart, old)
            await all_read(writer, member)
    assert ConsumerState.FAILED not in member.states
