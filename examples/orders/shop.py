"""A shop on a Kafka inside the process: orders come in, a group of processes bills them.

`Shop` owns the cluster, the customer that places orders, the members of the group, and an auditor
that reads the invoices and counts what is missing and what is there twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, GroupLag
from aiokafka.errors import KafkaError
from aiokafka.testing import FakeCluster

MEMBER = Path(__file__).parent / "member.py"
BROKERS = 3
PARTITIONS = 6
MOST_MEMBERS = 6
MOST_ORDERS = 1000  # per second
GROUP = "billing"
TICK = 0.05
LOOK = 0.25  # seconds between two looks at the group
HISTORY = 240  # looks that the page draws: the last minute


@dataclass
class Member:
    """A process of the group."""

    name: str
    process: asyncio.subprocess.Process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process.returncode is None

    async def kill(self) -> None:
        """Kill the process as `kill -9` does: it cannot say good-bye to the group."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        await self.process.wait()


@dataclass
class Audit:
    """What the invoices say. The invoices of a partition must be about the orders 0, 1, 2 ..."""

    next: list[int] = field(default_factory=lambda: [0] * PARTITIONS)
    billed: int = 0
    lost: int = 0
    doubled: int = 0

    def see(self, partition: int, offset: int) -> None:
        """Take note of an invoice for the order at an offset."""
        if offset < self.next[partition]:
            self.doubled += 1
            return
        self.lost += offset - self.next[partition]
        self.next[partition] = offset + 1
        self.billed += 1


@dataclass
class Row:
    """A partition of `orders`, as the page shows it."""

    partition: int
    end: int = 0
    committed: int = 0
    lag: int = 0
    leader: int | None = None
    owner: str | None = None


class Shop:
    """The whole demo, without its page. Use it with `async with`."""

    def __init__(self, *, session_timeout_s: float = 3.0, members: int = 2, rate: int = 200):
        self.cluster = FakeCluster(
            BROKERS,
            config={
                "group.consumer.session.timeout.ms": round(session_timeout_s * 1000),
                "group.consumer.heartbeat.interval.ms": round(session_timeout_s * 200),
            },
        )
        self.session_timeout_s = session_timeout_s
        self.rate = rate
        self.placed = 0
        self.refused = 0
        self.audit = Audit()
        self.members: dict[str, Member] = {}
        self.rows = [Row(number) for number in range(PARTITIONS)]
        self.events: deque[dict[str, Any]] = deque(maxlen=30)
        self.history: deque[dict[str, float]] = deque(maxlen=HISTORY)
        self.steps: list[tuple[str, float]] = []
        self._first_members = members
        self._names = 0
        self._number = 0
        self._began = time.monotonic()
        self._stack = contextlib.AsyncExitStack()

    # -- life

    async def __aenter__(self) -> Shop:
        async with contextlib.AsyncExitStack() as stack:
            async with self._step("cluster of 3 brokers"):
                await stack.enter_async_context(self.cluster)
                for topic in ("orders", "invoices"):
                    await self.cluster.create_topic(topic, PARTITIONS, BROKERS)
            servers = self.cluster.bootstrap_servers
            async with self._step("producer, auditor and admin client"):
                # Orders wait for as long as all brokers are stopped.
                producer = AIOKafkaProducer(
                    bootstrap_servers=servers, linger_ms=10, delivery_timeout_ms=3_600_000
                )
                await stack.enter_async_context(producer)
                auditor = AIOKafkaConsumer(
                    "invoices",
                    bootstrap_servers=servers,
                    auto_offset_reset="earliest",
                    isolation_level="read_committed",
                )
                await stack.enter_async_context(auditor)
                admin = AIOKafkaAdminClient(bootstrap_servers=servers)
                await stack.enter_async_context(admin)
            stack.push_async_callback(self._kill_all)
            async with self._step(f"{self._first_members} processes of the group"):
                for _ in range(self._first_members):
                    await self.add_member()
            jobs = (self._place(producer), self._read(auditor), self._look(admin))
            tasks = [asyncio.create_task(job) for job in jobs]
            stack.push_async_callback(self._end, tasks)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    @contextlib.asynccontextmanager
    async def _step(self, name: str) -> AsyncIterator[None]:
        start = time.perf_counter()
        yield
        self.steps.append((name, time.perf_counter() - start))

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        # Clients that are stopped wait for brokers, so all of them run again.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for number in range(BROKERS):
            await self.cluster.start_broker(number)

    async def _kill_all(self) -> None:
        await asyncio.gather(*(member.kill() for member in self.members.values()))

    # -- what the page can do

    async def add_member(self) -> str:
        """Start another process of the group; return its name.

        Raises ValueError when there are enough.
        """
        running = [member for member in self.members.values() if member.is_running]
        if len(running) >= MOST_MEMBERS:
            raise ValueError(f"There are {MOST_MEMBERS} members, one for each partition")
        self._names += 1
        name = f"{GROUP}-{self._names}"
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(MEMBER),
            self.cluster.bootstrap_servers,
            name,
            stdin=asyncio.subprocess.PIPE,
        )
        self.members[name] = Member(name, process)
        self._tell(f"{name} was started, process {process.pid}")
        return name

    async def kill_member(self, name: str) -> None:
        """Kill a process of the group. Raises KeyError when there is none of that name."""
        await self.members[name].kill()
        self._tell(f"{name} was killed; the group waits {self.session_timeout_s:g} s for it")

    async def kill_members(self) -> None:
        """Kill all processes of the group."""
        for member in list(self.members.values()):
            if member.is_running:
                await self.kill_member(member.name)

    async def stop_broker(self, number: int) -> None:
        """Stop a broker. Raises KeyError when there is none of that number."""
        self.cluster.broker(number)
        await self.cluster.stop_broker(number)
        self._tell(f"broker {number} was stopped")

    async def start_broker(self, number: int) -> None:
        """Start a broker again, and let it lead what it led first.

        Raises KeyError when there is none of that number.
        """
        self.cluster.broker(number)
        await self.cluster.start_broker(number)
        self._tell(f"broker {number} was started")
        for topic in ("orders", "invoices"):
            for partition in range(PARTITIONS):
                if self.cluster.partition(topic, partition).replicas[0] == number:
                    self.cluster.move_leader((topic, partition), number)

    def set_rate(self, per_second: int) -> None:
        """Set how many orders are placed each second, from 0 to 1000."""
        self.rate = min(max(per_second, 0), MOST_ORDERS)
        self._tell(f"{self.rate} orders a second")

    def _tell(self, text: str) -> None:
        self.events.append({"at": round(time.monotonic() - self._began, 1), "text": text})

    # -- what goes on

    async def _place(self, producer: AIOKafkaProducer[Any, Any]) -> None:
        """Place orders, for ever."""
        due = 0.0
        while True:
            due += self.rate * TICK
            while due >= 1:
                due -= 1
                order = {"order": self._number, "customer": self._number % 97}
                key = str(order["customer"]).encode()
                future = await producer.send("orders", json.dumps(order).encode(), key=key)
                future.add_done_callback(self._count)
                self._number += 1
            await asyncio.sleep(TICK)

    def _count(self, future: asyncio.Future[Any]) -> None:
        if future.cancelled() or future.exception() is not None:
            self.refused += 1
        else:
            self.placed += 1

    async def _read(self, auditor: AIOKafkaConsumer[Any, Any]) -> None:
        """Read the invoices, for ever."""
        async for record in auditor:
            found = json.loads(record.value)
            self.audit.see(found["partition"], found["offset"])

    async def _look(self, admin: AIOKafkaAdminClient) -> None:
        """Look at the group four times a second, as `aiokafka groups lag billing` does."""
        while True:
            # While no broker responds, the page shows what was known last.
            with contextlib.suppress(KafkaError):
                groups = await admin.groups.lag([GROUP], times=False, timeout_ms=2000)
                self._note(groups[GROUP])
            self.history.append(self._point())
            await asyncio.sleep(LOOK)

    def _point(self) -> dict[str, float]:
        """Return what the plots show of this moment."""
        return {
            "at": round(time.monotonic() - self._began, 2),
            "waiting": max(self._number - self.refused - self.audit.billed, 0),
            "billed": self.audit.billed,
        }

    def _note(self, group: GroupLag) -> None:
        """Take over what the cluster says about the group; tell which partitions have moved."""
        moved: set[str] = set()
        for tp, lag in group.partitions.items():
            if tp.topic != "orders":
                continue
            row = self.rows[tp.partition]
            row.committed = lag.committed or row.committed
            row.end = lag.end_offset or row.end
            row.lag = max(row.end - row.committed, 0)
            owner = lag.owner.client_id if lag.owner else None
            if owner is not None and owner != row.owner:
                moved.add(owner)
            row.owner = owner
        for owner in sorted(moved):
            numbers = ", ".join(str(row.partition) for row in self.rows if row.owner == owner)
            self._tell(f"{owner} now reads {numbers}")

    def state(self) -> dict[str, Any]:
        """Return what the page draws."""
        nodes = self.cluster.state.nodes
        for row in self.rows:
            leader = self.cluster.partition("orders", row.partition).leader
            row.leader = leader if leader in nodes and nodes[leader].alive else None
        owners = {row.owner for row in self.rows}
        return {
            "at": round(time.monotonic() - self._began, 2),
            "rate": self.rate,
            "placed": self.placed,
            "on_their_way": self._number - self.placed - self.refused,
            "refused": self.refused,
            "billed": self.audit.billed,
            "lost": self.audit.lost,
            "doubled": self.audit.doubled,
            "brokers": [
                {
                    "number": number,
                    "is_running": node.alive,
                    "leads": [row.partition for row in self.rows if row.leader == number],
                }
                for number, node in nodes.items()
            ],
            "partitions": [asdict(row) for row in self.rows],
            "members": [
                {"name": member.name, "pid": member.pid, "is_running": member.is_running}
                for member in self.members.values()
                if member.is_running or member.name in owners
            ],
            "events": list(self.events),
        }
