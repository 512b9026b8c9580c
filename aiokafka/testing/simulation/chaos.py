"""Faults between a program and its cluster: on command (Faults), or at random (Chaos)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

    from aiokafka.testing.cluster import FakeCluster
    from aiokafka.testing.simulation.network import Line
    from aiokafka.testing.simulation.run import Simulation

__all__ = ["Chaos", "Faults"]


class Faults:
    """Faults between a program and a cluster. The timeline records every call.

    Args:
        simulation: The run.
        cluster: A started cluster of the run.

    Raises:
        RuntimeError: the cluster has not been started.
    """

    def __init__(self, simulation: Simulation, cluster: FakeCluster) -> None:
        self._simulation = simulation
        self._cluster = cluster
        self._lines: dict[int, Line] = {}
        for broker in self.brokers:
            self._line(broker)

    @property
    def brokers(self) -> list[int]:
        """The ids of all brokers, including stopped brokers."""
        return sorted(self._cluster.state.nodes)

    async def kill(self, broker: int) -> None:
        """Stop a broker as ``kill -9`` does. Other replicas become leaders of its partitions."""
        self._note(f"broker {broker} is killed")
        await self._cluster.stop_broker(broker)

    async def start(self, broker: int) -> None:
        """Start a killed broker again, on the same port."""
        self._note(f"broker {broker} starts")
        await self._cluster.start_broker(broker)

    def reset(self, broker: int) -> None:
        """Reset all connections to a broker. Clients may connect again."""
        self._note(f"connections to broker {broker} are reset")
        self._simulation.network.reset(line=self._line(broker))

    def silence(self, broker: int, *, to_broker: bool = True, to_client: bool = True) -> None:
        """Lose the packets to a broker (`to_broker`) and from it (`to_client`), without an error,
        until :meth:`heal`."""
        directions = [name for name, lost in (("to", to_broker), ("from", to_client)) if lost]
        self._note(f"what is sent {' and '.join(directions)} broker {broker} gets lost")
        self._line(broker).lose(to_server=to_broker, to_client=to_client)

    def slow(self, broker: int, least: float, most: float) -> None:
        """Set the bounds of the latency to and from a broker, in seconds, until :meth:`heal`."""
        self._note(f"bytes to and from broker {broker} take {least:g} to {most:g} s")
        self._line(broker).latency = (least, most)

    def cut_at(self, broker: int, byte: int) -> None:
        """Cut one connection to a broker: the first one on which one end reaches `byte` sent bytes.
        The other end receives these bytes, then both ends get a reset."""
        self._note(f"a connection to broker {broker} is cut after {byte} bytes")
        self._line(broker).cut_at = byte

    def move_leader(self, topic: str, partition: int, broker: int) -> None:
        """Make another broker the leader of a partition."""
        self._cluster.move_leader((topic, partition), broker)
        self._note(f"broker {broker} leads {topic}-{partition}")

    def move_group(self, group: str, broker: int) -> None:
        """Make another broker the coordinator of a group."""
        self._note(f"broker {broker} coordinates group {group}")
        self._cluster.move_coordinator("group", group, broker)

    def rebalance(self, group: str) -> None:
        """Make all members of a classic group rejoin; with KIP-848, rotate their assignments.

        Raises:
            KeyError: there is no such group.
        """
        self._note(f"group {group} is rebalanced")
        self._cluster.groups.rebalance(group)

    def stall(self, probability: float, longest: float) -> None:
        """Prolong each wait of the program with this probability, by up to `longest` seconds, as on
        a busy machine, until :meth:`heal`.
        """
        self._note(f"the machine is busy: waits last up to {longest:g} s more")
        self._simulation.loop.stall(probability, longest)

    async def heal(self, broker: int | None = None) -> None:
        """End all stalls, and the faults of one broker or of all brokers (None, the default). Start
        the broker if it was killed."""
        self._simulation.loop.stall(0, 0)
        for each in self.brokers if broker is None else [broker]:
            line = self._line(each)
            line.restore()
            line.latency = _USUAL_LATENCY
            if not self._cluster.state.nodes[each].alive:
                await self.start(each)
        self._note("all is well again" if broker is None else f"broker {broker} is well again")

    def _line(self, broker: int) -> Line:
        # Look up the line once: a broker keeps its port, but may advertise another address later.
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
    """Inflicts random faults, one after the other, while the ``async with`` block runs; then ends
    all faults.

    Args:
        simulation: The run, whose seed determines the faults.
        cluster: The cluster to break.
        every_s: Mean virtual seconds between the end of a fault and the next fault.
        lasting_s: Maximum duration of a fault; the mean is half of it.
        kinds: Names of :data:`KINDS`; None (the default) means all kinds.

    Raises:
        ValueError: an unknown kind, or no kind.
        RuntimeError: the cluster has not been started.
    """

    #: The kinds of faults. "kill": a broker is killed. "silence", "one way": packets to and from a
    #: broker are lost, in both directions or in one. "slow": a high latency. "reset", "cut":
    #: connections are reset, or cut inside a message. "stall": some waits of the program last
    #: longer, as on a busy machine. "leader", "coordinator": a leader or a coordinator moves.
    #: "rebalance": a group rebalances.
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
        #: Number of faults that have ended.
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

    async def __aexit__(self, exc_type: object, exc: BaseException | None, tb: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        await self.faults.heal()
        if exc is None and not self._task.cancelled():
            self._task.result()

    async def happened(self, count: int) -> None:
        """Wait until `count` faults have ended. If a fault fails, raise its error."""
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
        if not await self._inflict(kind, broker):
            return
        await asyncio.sleep(lasts)
        await self.faults.heal(broker)

    async def _inflict(self, kind: str, broker: int) -> bool:
        """Inflict a fault; return True if the fault lasts until `heal`, False if it needs no
        `heal`."""
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
            self._inflict_once(kind, broker)
            return False
        return True

    def _inflict_once(self, kind: str, broker: int) -> None:
        """Inflict a fault that needs no `heal`, such as a reset."""
        faults, random = self.faults, self._random
        if kind == "reset":
            faults.reset(broker)
        elif kind == "cut":
            faults.cut_at(broker, random.randrange(1, 20_000))
        elif kind == "leader":
            topics = [t for t in self._cluster.state.topics.values() if t.partitions]
            if topics and self._cluster.state.nodes[broker].alive:
                topic = random.choice(topics)
                # `move_leader()` raises if the test has isolated the broker, or failed its disk.
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
