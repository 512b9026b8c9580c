"""What has come out at the end of a chain."""

from __future__ import annotations

import asyncio
import datetime
from dataclasses import dataclass, field

from aiokafka import AIOKafkaConsumer, TopicPartition

KEYS = 16
_SHOWN = 10


def key_of(number: int) -> bytes:
    """Records of one key stay in order; they spread over the partitions of every topic."""
    return b"%d" % (number % KEYS)


class OutOfOrder(AssertionError):
    """A record came before one that was sent before it, or instead of it."""


@dataclass
class Ledger:
    """Counts numbers from 0 to `total`: the first of each in order within its key, the others as
    repeats."""

    total: int
    seen: int = 0
    repeats: int = 0
    _next: list[int] = field(default_factory=lambda: list(range(KEYS)))

    @property
    def is_complete(self) -> bool:
        return self.seen == self.total

    def add(self, number: int, where: str) -> None:
        key = number % KEYS
        expected = self._next[key]
        if number > expected:
            raise OutOfOrder(f"{where}: {number} came, {expected} was not seen before")
        if number < expected:
            self.repeats += 1
        else:
            self._next[key] += KEYS
            self.seen += 1

    def missing(self) -> list[int]:
        """The first number of each key that has not come."""
        return [number for number in self._next if number < self.total]


class Reader:
    """Reads the end of a chain while it works, into a `Ledger`."""

    def __init__(self, servers: str, topic: str, partitions: int, isolation: str) -> None:
        self._partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=servers,
            client_id="reader",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level=isolation,
        )
        self.consumer.assign(self._partitions)
        self.progress = asyncio.Event()

    async def run(self, ledger: Ledger) -> None:
        """Until every number has been seen."""
        while not ledger.is_complete:
            await self._read(ledger)

    async def finish(self, ledger: Ledger) -> None:
        """Until the end of every partition, when nothing writes any more. Transactions that were
        left open have to be over by then, or the end is not reached."""
        ends = await self.consumer.end_offsets(self._partitions)
        for tp in self._partitions:
            while await self.consumer.position(tp) < ends[tp]:
                await self._read(ledger)

    async def _read(self, ledger: Ledger) -> None:
        before = ledger.seen
        for tp, records in (await self.consumer.getmany(timeout_ms=200)).items():
            for record in records:
                assert record.value is not None
                ledger.add(int(record.value), f"{tp.partition}@{record.offset}")
        if ledger.seen > before:
            self.progress.set()


async def find_copies(servers: str, topic: str, partitions: int, isolation: str) -> list[str]:
    """Where and when the numbers were written that a topic has more than once, the first few."""
    found: dict[int, str] = {}
    copies: list[str] = []
    reader = Reader(servers, topic, partitions, isolation)
    async with reader.consumer as consumer:
        ends = await consumer.end_offsets(list(consumer.assignment()))
        while any([await consumer.position(tp) < end for tp, end in ends.items()]):
            for tp, records in (await consumer.getmany(timeout_ms=200)).items():
                for record in records:
                    number = int(record.value or b"-1")
                    place = f"{tp.partition}@{record.offset} at {_clock(record.timestamp)}"
                    first = found.setdefault(number, place)
                    if first is not place:
                        copies.append(f"{topic}: {number} is at {first} and at {place}")
    return copies[:_SHOWN] + ([f"{len(copies)} copies in {topic}"] if copies else [])


def _clock(timestamp: int) -> str:
    """As the members' logs have it."""
    moment = datetime.datetime.fromtimestamp(timestamp / 1000)
    return f"{moment:%H:%M:%S},{timestamp % 1000:03}"
