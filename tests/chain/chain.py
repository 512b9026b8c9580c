"""A chain of groups, each of which copies a topic into the next, while things go wrong.

`Chain` feeds numbered records in at a steady pace, keeps processes (`worker.py`) at work, and reads
what comes out at the end. Meanwhile, following a seeded plan, members join, leave, are cancelled,
killed and frozen, and brokers are killed, stopped and started.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import ElectionType, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from tests.chain.options import MemberOptions, Mode
from tests.chain.output import Ledger, Reader, find_copies, key_of
from tests.chain.processes import Member
from tests.kafka.launcher import KafkaCluster
from tests.kafka.topics import create_topic

# Topics differ in it, so that the records of a partition scatter.
PARTITIONS = (6, 5, 4, 6)
HOPS = len(PARTITIONS) - 1
_FIRST_WITH_ELECTIONS = (2, 4)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much, how fast, and how rough. Times in seconds.

    `churn`: between two events among the members; `faults`: between two of the brokers; 0 for none.
    `rounds`: how often everything of a kind happens; 0 for until the end. `slots`: places in each
    group. `stall`: without any progress for so long, the chain has failed. `assigned`: slots have
    partitions of their own.
    """

    records: int
    rate: int
    mode: Mode
    protocol: str = "classic"
    assignor: str = "range"
    assigned: bool = False
    churn: float = 2.0
    faults: float = 20.0
    rounds: int = 0
    slots: int = 3
    session_timeout_ms: int = 6000
    stall: float = 60.0
    seed: int = 1


@dataclass
class Report:
    """What was done, and what came out."""

    plan: Plan
    seconds: float = 0.0
    repeats: int = 0
    longest_pause: float = 0.0
    events: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    copies: list[str] = field(default_factory=list)
    """What a transaction wrote although another had: only where the work is in transactions."""

    def __str__(self) -> str:
        plan = self.plan
        group = "assigned" if plan.assigned else f"{plan.protocol}, {plan.assignor}"
        share = f"{plan.records} records, {plan.mode}, {group}"
        pause = f"longest pause {self.longest_pause:.1f} s"
        copies = "".join(f"\n{line}" for line in self.copies)
        return (
            f"{share}: {self.seconds:.0f} s, {self.repeats} repeats, {pause}; "
            f"events: {_counts(self.events)}; work ended: {_counts(self.ends)}{copies}"
        )


async def _to_its_end(function: Callable[..., object], *arguments: object) -> None:
    """Run `function` in a thread. A cancelled call waits for the thread: otherwise a broker that it
    starts is started a second time."""
    thread = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        await asyncio.shield(thread)
    finally:
        await asyncio.wait([thread])


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counter.items())) or "none"


class Deck:
    """Draws in random order, but all of them before any comes again."""

    def __init__(self, source: random.Random, *cards: str) -> None:
        self._random = source
        self._cards = cards
        self._left: list[str] = []
        self.rounds = 0

    def is_through(self, rounds: int) -> bool:
        """Whether all have come so often; never if `rounds` is 0."""
        return 0 < rounds <= self.rounds and not self._left

    def draw(self) -> str:
        if not self._left:
            self._left = self._random.sample(self._cards, len(self._cards))
            self.rounds += 1
        return self._left.pop()


class Chain:
    """One run. `folder` keeps what the processes wrote."""

    def __init__(self, cluster: KafkaCluster, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.report = Report(plan)
        self._cluster = cluster
        self._servers = cluster.bootstrap_servers
        self._folder = folder
        self._name = f"chain-{uuid.uuid4().hex[:6]}"
        self._topics = [f"{self._name}-{number}" for number in range(HOPS + 1)]
        self._ledger = Ledger(plan.records)
        self._members: list[Member] = []
        self._ended: list[Member] = []
        self._numbers = iter(range(1_000_000))
        self._random = random.Random(plan.seed)
        self._troubles = Deck(self._random, "kill -9", "kill -9", "leave", "cancel", "freeze")
        self._faults = Deck(self._random, "broker kill -9", "broker stop")

    # -- life

    async def run(self) -> Report:
        """Until every record has come out at the end, and nothing else comes any more."""
        began = time.monotonic()
        for topic, partitions in zip(self._topics, PARTITIONS, strict=True):
            config = {"min.insync.replicas": "2"}
            await create_topic(self._servers, topic, partitions, 3, config)
        isolation = "read_uncommitted" if self.plan.mode == "loop" else "read_committed"
        reader = Reader(self._servers, self._topics[-1], PARTITIONS[-1], isolation)
        try:
            for hop in range(HOPS):
                for slot in range(self.plan.slots):
                    self._join(hop, slot)
            async with reader.consumer:
                await self._until_complete(reader)
                await self._stop_members()
                await reader.finish(self._ledger)
        finally:
            for member in self._members:
                member.kill()
        self.report.seconds = time.monotonic() - began
        self.report.repeats = self._ledger.repeats
        for member in (*self._members, *self._ended):
            self.report.ends += member.ends()
        if self.report.repeats and isolation == "read_committed":
            for topic, partitions in zip(self._topics[1:], PARTITIONS[1:], strict=True):
                self.report.copies += await find_copies(self._servers, topic, partitions, isolation)
        return self.report

    async def _until_complete(self, reader: Reader) -> None:
        """All at once; the first that fails ends the others."""
        reading = asyncio.create_task(reader.run(self._ledger), name="reading")
        work = [
            asyncio.create_task(part, name=name)
            for name, part in (
                ("feed", self._feed()),
                ("churn", self._churn()),
                ("faults", self._break_brokers()),
                ("watch", self._watch(reader)),
            )
        ]
        try:
            pending = {reading, *work}
            while reading in pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            for task in (reading, *work):
                task.cancel()
            await asyncio.gather(reading, *work, return_exceptions=True)
            await self._mend_brokers()

    async def _stop_members(self) -> None:
        await asyncio.gather(*(member.stop() for member in self._members))
        self._check_members()

    async def _feed(self) -> None:
        """Send the numbers in order, at the plan's pace."""
        loop = asyncio.get_running_loop()
        producer = AIOKafkaProducer(bootstrap_servers=self._servers, client_id="feed")
        async with producer:
            began = loop.time()
            waiting = []
            for number in range(self.plan.records):
                if number % 100 == 0:
                    await asyncio.sleep(began + number / self.plan.rate - loop.time())
                waiting.append(await producer.send(self._topics[0], b"%d" % number, key_of(number)))
                if len(waiting) == 2000:
                    for future in waiting:
                        await future
                    waiting.clear()
            for future in waiting:
                await future

    # -- members

    def _join(self, hop: int, slot: int) -> None:
        plan = self.plan
        shares: tuple[int, ...] = ()
        if plan.assigned:
            shares = tuple(range(slot, PARTITIONS[hop], plan.slots))
        group, seed = f"{self._name}-hop{hop}", self._random.randrange(1 << 30)
        is_own = not plan.assigned and seed % 2
        options = MemberOptions(
            servers=self._servers,
            source=self._topics[hop],
            target=self._topics[hop + 1],
            group=group,
            slot=f"slot{slot}",
            transactional_id=f"{group}-{slot}" + (f"-{seed}" if is_own else ""),
            mode=plan.mode,
            partitions=shares,
            protocol=plan.protocol,
            assignor=plan.assignor,
            session_timeout_ms=plan.session_timeout_ms,
            seed=seed,
        )
        self._members.append(Member(options, self._folder, next(self._numbers)))

    async def _churn(self) -> None:
        plan = self.plan
        if not plan.churn:
            return
        while True:
            await asyncio.sleep(plan.churn * self._random.uniform(0.5, 1.5))
            self._check_members()
            active = self._active(self._random.randrange(HOPS))
            if active and not self._troubles.is_through(plan.rounds):
                self._trouble(self._random.choice(active))
            for hop in range(HOPS):
                free = self._free_slots(hop)
                if free and self._random.random() < 0.6:
                    self.report.events["join"] += 1
                    self._join(hop, self._random.choice(free))

    def _trouble(self, member: Member) -> None:
        event = self._troubles.draw()
        self.report.events[event] += 1
        if event == "kill -9":
            member.kill()
        elif event == "leave":
            member.send(signal.SIGTERM)
        elif event == "cancel":
            member.send(signal.SIGINT)
        else:
            member.send(signal.SIGSTOP)
            # Longer than its session, so that others have its partitions when it goes on.
            seconds = self.plan.session_timeout_ms / 1000 * self._random.uniform(1.2, 2)
            loop = asyncio.get_running_loop()
            loop.call_later(seconds, member.send, signal.SIGCONT)

    def _active(self, hop: int) -> list[Member]:
        group = f"{self._name}-hop{hop}"
        return [m for m in self._members if m.options.group == group and not m.is_frozen]

    def _free_slots(self, hop: int) -> list[int]:
        """A frozen process counts as dead: another takes its place."""
        taken = {member.options.slot for member in self._active(hop)}
        return [slot for slot in range(self.plan.slots) if f"slot{slot}" not in taken]

    def _check_members(self) -> None:
        for member in [m for m in self._members if not m.is_alive]:
            self._members.remove(member)
            self._ended.append(member)
            if member.has_failed:
                raise AssertionError(f"a member failed:\n{member.tail()}")

    # -- brokers

    async def _break_brokers(self) -> None:
        plan = self.plan
        while plan.faults and not self._faults.is_through(plan.rounds):
            await asyncio.sleep(plan.faults * self._random.uniform(0.5, 1))
            node = self._random.choice(list(self._cluster.nodes))
            event = self._faults.draw()
            self.report.events[event] += 1
            if event == "broker kill -9":
                self._cluster.kill(node)
            else:
                await _to_its_end(self._cluster.terminate, node, 10)
            await asyncio.sleep(self._random.uniform(0, 4))
            await _to_its_end(self._cluster.restart, node)
            await self._until_in_sync()
            await self._move_leaders()

    async def _mend_brokers(self) -> None:
        for node in self._cluster.nodes:
            if not self._cluster.is_alive(node):
                await asyncio.to_thread(self._cluster.restart, node)

    async def _until_in_sync(self) -> None:
        """Two replicas are asked for: another broker may go only when all three have caught up."""
        async with AIOKafkaAdminClient(bootstrap_servers=self._servers) as admin:
            while True:
                found = await admin.describe_topics(self._topics)
                sizes = [len(p["isr"]) for topic in found for p in topic["partitions"]]
                if sizes and min(sizes) == len(self._cluster.nodes):
                    return
                await asyncio.sleep(0.3)

    async def _move_leaders(self) -> None:
        """Each partition back to its preferred leader, after the restart moved it elsewhere."""
        if self._cluster.version.key < _FIRST_WITH_ELECTIONS:
            return
        moved = await asyncio.to_thread(self._elect)
        self.report.events["leader moved"] += moved

    def _elect(self) -> int:
        admin = AdminClient({"bootstrap.servers": self._servers, "log_level": 3})
        try:
            results = admin.elect_leaders(ElectionType.PREFERRED).result(30)
        except KafkaException:
            return 0  # another election was on; the next round moves them
        errors: list[KafkaError | None] = list(results.values())
        del admin
        return sum(error is None for error in errors)

    # -- progress

    async def _watch(self, reader: Reader) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            while not reader.progress.is_set():
                await asyncio.sleep(0.2)
                pause = loop.time() - began
                self.report.longest_pause = max(self.report.longest_pause, pause)
                if pause > self.plan.stall:
                    raise AssertionError(await self._diagnose())
            reader.progress.clear()

    async def _diagnose(self) -> str:
        """What every process was doing when nothing went on."""
        for number in (signal.SIGUSR2, signal.SIGUSR1):
            for member in self._members:
                member.send(number)
            await asyncio.sleep(1)
        groups = [f"{self._name}-hop{hop}" for hop in range(HOPS)]
        async with AIOKafkaAdminClient(bootstrap_servers=self._servers) as admin:
            known = await admin.describe_consumer_groups(groups)
            offsets = [await admin.list_consumer_group_offsets(group) for group in groups]
        parts = [
            f"no progress for {self.plan.stall:.0f} s after {self._ledger.seen} records",
            str(self.report),
            f"missing: {self._ledger.missing()}",
            *(f"{group}: {description}" for group, description in zip(groups, known, strict=False)),
            *(f"{group}: {offset}" for group, offset in zip(groups, offsets, strict=False)),
            *(member.tail() for member in self._members),
        ]
        return "\n".join(parts)
