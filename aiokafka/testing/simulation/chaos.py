"""Break a cluster, by hand or by a schedule that the seed draws."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from aiokafka.testing.cluster import FakeCluster
    from aiokafka.testing.simulation.network import Line
    from aiokafka.testing.simulation.run import Simulation

__all__ = ["Chaos", "Faults"]


class Faults:
    """What can go wrong between a program and a cluster. Every call is in the timeline.

    Args:
        simulation: The run.
        cluster: A cluster of it, which has been started.

    Raises:
        RuntimeError: it has not: its brokers have no addresses yet.
    """

    def __init__(self, simulation: Simulation, cluster: FakeCluster) -> None:
        self._simulation = simulation
        self._cluster = cluster
        self._lines: dict[int, Line] = {}
        for broker in self.brokers:
            self._line(broker)

    @property
    def brokers(self) -> list[int]:
        """The ids of all brokers, running or not."""
        return sorted(self._cluster.state.nodes)

    async def kill(self, broker: int) -> None:
        """Stop a broker as ``kill -9`` does. Its partitions go to other replicas."""
        self._note(f"broker {broker} is killed")
        await self._cluster.stop_broker(broker)

    async def start(self, broker: int) -> None:
        """Start a broker that was killed, on its old port."""
        self._note(f"broker {broker} starts")
        await self._cluster.start_broker(broker)

    def reset(self, broker: int) -> None:
        """Reset all connections to a broker; new ones can be made."""
        self._note(f"connections to broker {broker} are reset")
        self._simulation.network.reset(line=self._line(broker))

    def silence(self, broker: int, *, to_broker: bool = True, to_client: bool = True) -> None:
        """Lose what is sent to and from a broker, without any error, until it is healed."""
        ways = [way for way, lost in (("to", to_broker), ("from", to_client)) if lost]
        self._note(f"what is sent {' and '.join(ways)} broker {broker} gets lost")
        self._line(broker).lose(to_server=to_broker, to_client=to_client)

    def slow(self, broker: int, least: float, most: float) -> None:
        """Let bytes to and from a broker take so many seconds, until it is healed."""
        self._note(f"bytes to and from broker {broker} take {least:g} to {most:g} s")
        self._line(broker).latency = (least, most)

    def cut_at(self, broker: int, byte: int) -> None:
        """Cut the next connection to a broker of which one end sends so many bytes, after them."""
        self._note(f"a connection to broker {broker} is cut after {byte} bytes")
        self._line(broker).cut_at = byte

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """Let another broker lead a partition."""
        self._cluster.move_leader((topic, partition), broker)
        self._note(f"broker {broker} leads {topic}-{partition}")

    def move_group(self, group: str, broker: int) -> None:
        """Let another broker coordinate a group."""
        self._note(f"broker {broker} coordinates group {group}")
        self._cluster.move_coordinator("group", group, broker)

    def rebalance(self, group: str) -> None:
        """Make all members of a group join again, or change places.

        Raises:
            KeyError: there is no such group.
        """
        self._note(f"group {group} is rebalanced")
        self._cluster.groups.rebalance(group)

    def stall(self, probability: float, longest: float) -> None:
        """Let waits of the program last up to `longest` seconds more with this probability, as on a
        machine that is busy, until :meth:`heal`.
        """
        self._note(f"the machine is busy: waits last up to {longest:g} s more")
        self._simulation.loop.stall(probability, longest)

    async def heal(self, broker: int | None = None) -> None:
        """End all that goes on, for one broker or for all (None, the default)."""
        self._simulation.loop.stall(0, 0)
        for each in self.brokers if broker is None else [broker]:
            line = self._line(each)
            line.restore()
            line.latency = _USUAL_LATENCY
            if not self._cluster.state.nodes[each].alive:
                await self.start(each)
        self._note("all is well again" if broker is None else f"broker {broker} is well again")

    def _line(self, broker: int) -> Line:
        # A broker keeps its port, and after a stop it may have another address for clients.
        if broker not in self._lines:
            host, _, port = self._cluster.address(broker).rpartition(":")
            if port == "0":
                raise RuntimeError("the cluster was not started: use it with `async with` first")
            self._lines[broker] = self._simulation.network.line(host.strip("[]"), int(port))
        return self._lines[broker]

    def _note(self, text: str) -> None:
        self._simulation.note(f"FAULT {text}")


_USUAL_LATENCY = (0.0002, 0.002)

_Break = Callable[["Chaos", int], Awaitable[None]]


class Chaos:
    """Faults one after the other while its block runs; at the end all is healed.

    Args:
        simulation: The run, whose seed draws everything.
        cluster: The cluster to break.
        every_s: Virtual seconds between the end of a fault and the next one, on average.
        lasting_s: The longest time for which a fault lasts; half of it on average.
        kinds: Names of :data:`KINDS`; None (the default) means all.

    Raises:
        ValueError: a kind that is not known, or no kind.
        RuntimeError: the cluster has not been started.
    """

    #: Every kind of fault: a broker is killed and comes back, is silent (both ways or one), slow,
    #: loses its connections, has one cut in mid-message; a leader or a group's coordinator moves, a
    #: group is rebalanced, the machine of the program stalls.
    KINDS = (
        "kill",
        "silence",
        "one way",
        "slow",
        "reset",
        "cut",
        "leader",
        "coordinator",
        "rebalance",
        "stall",
    )

    def __init__(
        self,
        simulation: Simulation,
        cluster: FakeCluster,
        *,
        every_s: float = 20.0,
        lasting_s: float = 20.0,
        kinds: Sequence[str] | None = None,
    ) -> None:
        self._kinds = list(self.KINDS if kinds is None else kinds)
        if unknown := set(self._kinds) - set(self.KINDS):
            raise ValueError(f"unknown kinds {sorted(unknown)}; known are {', '.join(self.KINDS)}")
        if not self._kinds:
            raise ValueError("kinds must name one kind at least")
        self.faults = Faults(simulation, cluster)
        #: How many faults there were.
        self.count = 0
        self._simulation = simulation
        self._cluster = cluster
        self._random = simulation.random
        self._every = every_s
        self._lasting = lasting_s
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run(), name="chaos")
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.faults.heal()
        if exc is None and not self._task.cancelled():
            self._task.result()

    async def happened(self, count: int) -> None:
        """Wait until so many faults have come and gone."""
        while self.count < count:
            if self._task is not None and self._task.done():
                self._task.result()
            self._changed.clear()
            await self._changed.wait()

    async def _run(self) -> None:
        try:
            while True:
                await asyncio.sleep(self._random.random() * 2 * self._every)
                await self._one()
                self.count += 1
                self._changed.set()
        finally:
            self._changed.set()

    async def _one(self) -> None:
        kind = self._random.choice(self._kinds)
        broker = self._random.choice(self.faults.brokers)
        lasts = self._random.random() * self._lasting
        if not await self._begin(kind, broker):
            return
        await asyncio.sleep(lasts)
        await self.faults.heal(broker)

    async def _begin(self, kind: str, broker: int) -> bool:
        """Break something; True if it stays broken until healed."""
        faults, random = self.faults, self._random
        if kind == "kill":
            await faults.kill(broker)
        elif kind == "silence":
            faults.silence(broker)
        elif kind == "one way":
            to_broker = random.random() < 0.5
            faults.silence(broker, to_broker=to_broker, to_client=not to_broker)
        elif kind == "slow":
            faults.slow(broker, 0.05, random.random() * 3)
        elif kind == "stall":
            faults.stall(0.05, random.random() * 3)
        else:
            self._strike(kind, broker)
            return False
        return True

    def _strike(self, kind: str, broker: int) -> None:
        """Inflict a fault of a moment."""
        faults, random = self.faults, self._random
        if kind == "reset":
            faults.reset(broker)
        elif kind == "cut":
            faults.cut_at(broker, random.randrange(1, 20_000))
        elif kind == "leader":
            topics = [t for t in self._cluster.state.topics.values() if t.partitions]
            if topics and self._cluster.state.nodes[broker].alive:
                topic = random.choice(topics)
                # What the test does itself may keep that broker from it: cut off, without a disk.
                with suppress(ValueError):
                    faults.move_leader(topic.name, random.randrange(len(topic.partitions)), broker)
        else:
            groups = self._cluster.groups
            if names := sorted({*groups.classic, *groups.consumer}):
                name = random.choice(names)
                if kind == "rebalance":
                    faults.rebalance(name)
                else:
                    faults.move_group(name, broker)
