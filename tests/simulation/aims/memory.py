"""Aims at the limits of memory: partitions that keep what others need, calls that wait for room."""

from __future__ import annotations

from typing import Any

from tests.simulation.aims.base import Aim
from tests.simulation.aims.delivering import DeliveringAim
from tests.simulation.aims.reading import ReadingAim
from tests.simulation.faults.brokers import BrokerStop, LeaderMove
from tests.simulation.faults.groups import Rebalance
from tests.simulation.faults.network import Reset, SilentLine
from tests.simulation.faults.replicas import Hang
from tests.simulation.faults.responses import LateResponse, LostResponse, Refused
from tests.simulation.promises import FRESH, NO_ERRORS, ROOM
from tests.simulation.workloads.ranging import RangeWorkload


class _Held(ReadingAim):
    """Consumers with hardly any memory, which keep some partitions paused and read the others."""

    active_s = 8.0
    records = 160

    def readers(self, replicas: int) -> None:
        """A producer of several partitions, and who reads them."""
        source = self.random
        batches = {"max_batch_size": source.choice((300, 1000, 16_384)), "linger_ms": 20}
        topics = [self.producer(compression_type=None, **batches)]
        # One by one, they come for as long as leaders move; together, there is soon much to read.
        style = source.choice(("send", "send", "together"))
        self.draft.workloads[-1].options.update({"style": style, "sizes": [60, 300]})
        self.topics(partitions=source.choice((3, 4, 6)), replicas=replicas, config={})
        changes: dict[str, Any] = {
            "fetch_buffer_memory": source.choice((1, 300, 600, 600, 2000, 8000)),
            "max_partition_fetch_bytes": source.choice((100, 1000, 1_000_000)),
            "fetch_max_bytes": 50_000_000,
            "metadata_max_age_ms": source.choice((300, 300, 2000)),
        }
        options: dict[str, Any] = {
            "style": source.choice(("one", "many", "mixed")),
            "work_s": source.choice((0, 0.02, 0.05, 0.1)),
        }
        if source.random() < 0.6:
            rates = {"seek_rate": source.choice((0, 0, 0.05))}
            rates["change_rate"] = source.choice((0, 0, 0.05))
            self.lone(topics, changes, **options | rates)
        else:
            changes["max_poll_interval_ms"] = 60_000
            options["stays_s"] = source.choice((None, None, 3.0))
            self.group(topics, source.choice((1, 2)), changes, **options)
            self.fault(Rebalance, source.choice((0, 2)), how="rebalance")
        holds = source.choice(([0], [0, 1], [0, 2], [1]))
        hold = {"holds": holds, "hold_rate": source.choice((0.05, 0.5, 0.5))}
        hold["hold_busy_s"] = source.choice((0, 4.0, 4.0, 4.0))
        self.draft.workloads[-1].options.update(hold)
        # Theirs are the leaders that have to move, when they have just been paused.
        # One of the moves is to another broker than before.
        moved, brokers = source.choice(holds), self.draft.cluster.brokers
        first = source.randrange(brokers)
        for at, broker in ((2.2, first), (2.7, (first + 1) % brokers)):
            self.fault(LeaderMove, at=at, partition=moved, broker=broker)


class Held(_Held):
    """Paused partitions with fetched records, whose leaders move."""

    name = "held"
    promises = (FRESH,)

    def compose(self) -> None:
        """Between brokers that all work."""
        self.cluster(brokers=self.random.choice((2, 2, 3)))
        self.readers(self.draft.cluster.brokers)
        self.fault(LeaderMove, self.random.choice((0, 3, 6)))
        self.fault(LateResponse, self.random.choice((0, 2)), api=1, seconds=0.5, times=5)


class HeldInTrouble(_Held):
    """Paused partitions with fetched records, whose brokers go, with or without a successor."""

    name = "held-in-trouble"
    promises = (ROOM,)

    def compose(self) -> None:
        """Fetches are in flight meanwhile."""
        source = self.random
        self.cluster(brokers=source.choice((2, 3)))
        self.readers(source.choice((1, self.draft.cluster.brokers)))
        self.fault(LeaderMove, source.choice((0, 3)))
        self.fault(BrokerStop, source.choice((1, 2)), lasts=(0.2, 3.0))
        self.fault(Reset, source.choice((0, 2)))
        self.fault(
            LostResponse, source.choice((0, 2)), api=1, how=source.choice(("cut", "silence"))
        )
        self.fault(SilentLine, source.choice((0, 1)), lasts=(0.5, 3.0))
        self.fault(LateResponse, source.choice((0, 2)), api=1, seconds=1.0, times=5)


class ScarceMemory(DeliveringAim):
    """Calls that wait for memory while brokers fail, and that give up in every way."""

    name = "scarce-memory"
    active_s = 10.0

    def compose(self) -> None:
        """Connections break, records expire, calls are cancelled and run out of time."""
        source = self.random
        self.cluster(brokers=source.choice((1, 2)))
        client = {
            "buffer_memory": source.choice((1500, 3000, 5000)),
            "max_batch_size": source.choice((400, 16_384)),
            "linger_ms": source.choice((0, 0, 300)),
            "max_block_ms": source.choice((500, 3000, 60_000)),
            "delivery_timeout_ms": source.choice((1500, 5000, 120_000)),
        }
        options = {
            "flush_rate": source.choice((0, 0.1)),
            "cancel_rate": source.choice((0, 0.3, 0.6)),
        }
        style = source.choice(("together", "together", "mixed"))
        self.producer(client, style=style, sizes=[20, 900], records=150, **options)
        self.topics(config={})
        self.fault(Hang, source.choice((0, 1)), apis=[0], lasts=(0.5, 3.0))
        # Half of the time brokers are slow for as long as the program sends.
        late = {"api": 0, "seconds": source.choice((0.5, 0.8)), "times": 1000}
        if source.random() < 0.5:
            self.fault(LateResponse, at=0.0, lasts=(self.active_s, self.active_s), **late)
        else:
            self.fault(LateResponse, source.choice((1, 3)), lasts=(0.5, 3.0), **late)
        self.fault(LostResponse, source.choice((0, 2)), api=0)
        self.fault(Refused, source.choice((0, 2)), api=0, times=5)
        self.fault(Reset, source.choice((0, 3)))
        self.fault(BrokerStop, source.choice((0, 1)), lasts=(0.5, 3.0))
        self.fault(LeaderMove, source.choice((0, 3)))


class ScarceRanges(ReadingAim):
    """Ranges that wait for room for longer than they may be without progress."""

    name = "scarce-ranges"
    active_s = 10.0
    records = 100
    promises = (NO_ERRORS,)

    def compose(self) -> None:
        """Leaders move between brokers that all work."""
        source = self.random
        self.cluster(brokers=source.choice((2, 3)))
        topic = self.producer(max_batch_size=source.choice((200, 1000)))
        plan = self.add(RangeWorkload, topics=[topic], work_s=source.choice((0.1, 0.5)))
        plan.options.update({"parts": source.choice((1, 3)), "pause_s": 0.1, "cancel_rate": 0})
        plan.options["reader"] |= {
            "max_partition_bytes": source.choice((1, 500, 100_000)),
            "buffer_memory": source.choice((1, 600, 2000)),
            "timeout_ms": source.choice((2000, 10_000)),
            "max_wait_ms": 100,
        }
        plan.options["client"] |= {"metadata_max_age_ms": 2000}
        self.topics(partitions=source.choice((2, 4)), replicas=2, config={})
        self.fault(LeaderMove, source.choice((2, 5)))
        self.fault(LateResponse, source.choice((0, 2)), api=1, seconds=0.3, times=5)


MEMORY_AIMS: tuple[type[Aim], ...] = (Held, HeldInTrouble, ScarceMemory, ScarceRanges)
