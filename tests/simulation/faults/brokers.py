"""Brokers that stop, leaders and coordinators that move."""

from __future__ import annotations

from typing import Any

from tests.simulation.faults.base import Fault, draw_broker, draw_partition
from tests.simulation.scenario import Draft


class BrokerStop(Fault):
    """A broker is killed, and starts again."""

    kind = "broker stop"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which one."""
        return draw_broker(draft)

    async def begin(self) -> None:
        """Kill it."""
        await self.world.cluster.stop_broker(self.arguments["broker"])
        self.hit()

    async def end(self) -> None:
        """Start it."""
        await self.world.cluster.start_broker(self.arguments["broker"])


class LeaderMove(Fault):
    """Another broker leads a partition."""

    kind = "leader move"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which partition, and where to."""
        place = draw_partition(draft)
        return None if place is None else place | draw_broker(draft)

    async def begin(self) -> None:
        """Move it, if that broker runs, and has all records or a leader to copy them from."""
        cluster = self.world.cluster
        broker = self.arguments["broker"]
        topic, partition = self.arguments["topic"], self.arguments["partition"]
        found = cluster.state.partition(topic, partition)
        if found is None or found.leader == broker or not cluster.state.nodes[broker].alive:
            return
        try:
            cluster.move_leader((topic, partition), broker)
        except ValueError:
            return
        self.hit()


class CoordinatorMove(Fault):
    """Another broker coordinates a group or a transactional id."""

    kind = "coordinator move"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which one, and where to."""
        keys = [("group", group) for group in draft.groups()]
        keys += [("transaction", name) for name in draft.transactional_ids()]
        if not keys:
            return None
        kind, key = draft.random.choice(keys)
        return {"of": kind, "key": key} | draw_broker(draft)

    async def begin(self) -> None:
        """Move it."""
        arguments = self.arguments
        self.world.cluster.move_coordinator(arguments["of"], arguments["key"], arguments["broker"])
        self.hit()


class Throttle(Fault):
    """Brokers tell clients to wait."""

    kind = "throttle"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """How long they tell them to wait."""
        return draw_broker(draft) | {"milliseconds": draft.random.choice((50, 500, 3000))}

    async def begin(self) -> None:
        """Throttle from now on."""
        self.world.cluster.throttle(self.arguments["milliseconds"], self.arguments["broker"])
        self.hit()

    async def end(self) -> None:
        """Throttle no more."""
        self.world.cluster.throttle(0, self.arguments["broker"])


class SlowReplicas(Fault):
    """The followers of a partition fetch nothing."""

    kind = "slow replicas"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which partition."""
        return draw_partition(draft)

    async def begin(self) -> None:
        """Hold the high watermark."""
        found = self.world.cluster.state.partition(
            self.arguments["topic"], self.arguments["partition"]
        )
        if found is not None:
            found.log.pause_replication()
            self.hit()

    async def end(self) -> None:
        """Let them catch up."""
        found = self.world.cluster.state.partition(
            self.arguments["topic"], self.arguments["partition"]
        )
        if found is not None:
            found.log.resume_replication()


BROKER_FAULTS: dict[type[Fault], int] = {
    BrokerStop: 6,
    LeaderMove: 5,
    CoordinatorMove: 4,
    Throttle: 2,
    SlowReplicas: 3,
}
