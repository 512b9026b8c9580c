"""Replication that lags, elections, brokers that half work, disks, upgrades."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulation.faults.base import Fault, draw_broker, draw_partition
from tests.simulation.scenario import Draft

_MIXED = ("4.0", "4.3")
# Seconds after which a follower that copies nothing is behind, where records are written.
_BEHIND_S = 0.2


class _OfPartition(Fault):
    """Concerns one partition with replicas that have logs of their own. What not all of them have
    acknowledged may be lost."""

    @property
    def place(self) -> tuple[str, int]:
        """Topic and partition."""
        return self.arguments["topic"], self.arguments["partition"]

    def _exists(self) -> bool:
        found = self.world.cluster.state.partition(*self.place)
        return found is not None and len(found.replicas) > 1

    def _allow_losses(self) -> None:
        self.world.history.lost_when_unsafe.add(self.arguments["topic"])


class ReplicaLag(_OfPartition):
    """Followers copy late."""

    kind = "replica lag"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which partition, how late."""
        place = draw_partition(draft)
        return None if place is None else place | {"longest": draft.random.choice((0.01, 0.3, 2.0))}

    async def begin(self) -> None:
        """Lag from now on, until all is calm."""
        if self._exists():
            self._allow_losses()
            self.world.cluster.replication.lag((0.0, self.arguments["longest"]), self.place)
            self.hit()


class ReplicaStall(_OfPartition):
    """A follower copies nothing, and may be taken out of those in sync."""

    kind = "replica stall"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which follower, if it leaves those in sync at once."""
        place = draw_partition(draft)
        if place is None:
            return None
        return place | draw_broker(draft) | {"shrinks": draft.random.random() < 0.5}

    async def begin(self) -> None:
        """Stall it."""
        broker = self.arguments["broker"]
        found = self.world.cluster.state.partition(*self.place)
        if not self._exists() or found is None or broker not in found.replicas:
            return
        if found.leader == broker:
            return
        self._allow_losses()
        self.world.cluster.replication.stall(self.place, broker)
        self.hit()
        if self.arguments["shrinks"]:
            # One that is not behind would be back among those in sync at once.
            await asyncio.sleep(_BEHIND_S)
            if self._exists() and found.leader != broker:
                self.world.cluster.replication.shrink(self.place, broker)

    async def end(self) -> None:
        """Let it copy."""
        if self._exists():
            self.world.cluster.replication.resume(self.place, self.arguments["broker"])


class Election(_OfPartition):
    """Another replica is elected, with the log that it has."""

    kind = "election"
    unclean = False

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which partition, which replica."""
        place = draw_partition(draft)
        return None if place is None else place | draw_broker(draft)

    async def begin(self) -> None:
        """Elect it, if it may be."""
        cluster = self.world.cluster
        if not self._exists():
            return
        cluster.replication.use(self.place)
        self._allow_losses()
        if self.unclean:
            self.world.history.forgive(self.arguments["topic"])
            self.world.history.remade.spoil(self.arguments["topic"])
        try:
            cluster.controller.elect(self.place, self.arguments["broker"], unclean=self.unclean)
        except ValueError:
            return
        self.hit()


class UncleanElection(Election):
    """One that was not in sync is elected: what was acknowledged may be lost."""

    kind = "unclean election"
    unclean = True


class NoController(Fault):
    """The controller is away, and then another broker."""

    kind = "no controller"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which broker is the next."""
        return draw_broker(draft)

    async def begin(self) -> None:
        """It is away."""
        self.world.cluster.controller.stop()
        self.hit()

    async def end(self) -> None:
        """Another one is there."""
        self.world.cluster.controller.start(self.arguments["broker"])


class BrokerMissedLate(Fault):
    """A broker is killed, and the controller notices seconds later."""

    kind = "broker missed late"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which broker, how late."""
        return draw_broker(draft) | {"session": draft.random.choice((1.0, 6.0))}

    async def begin(self) -> None:
        """Kill it."""
        cluster = self.world.cluster
        cluster.controller.session_timeout = self.arguments["session"]
        await cluster.stop_broker(self.arguments["broker"])
        cluster.controller.session_timeout = 0.0
        self.hit()

    async def end(self) -> None:
        """Start it."""
        await self.world.cluster.start_broker(self.arguments["broker"])


class Hang(Fault):
    """A broker answers nothing, or nothing of some APIs, and does the work in the end."""

    kind = "hang"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which broker, which APIs."""
        apis = draft.random.choice((None, None, [0], [1], [3], [8, 9, 11, 12, 14, 68], [22, 26]))
        return draw_broker(draft) | {"apis": apis}

    async def begin(self) -> None:
        """Hang."""
        self.world.cluster.faults.hang(self.arguments["broker"], self.arguments["apis"])
        self.hit()

    async def end(self) -> None:
        """Answer again."""
        self.world.cluster.faults.revive(self.arguments["broker"])


class SlowBroker(Fault):
    """A broker takes its time."""

    kind = "slow broker"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which broker, how long."""
        return draw_broker(draft) | {"longest": draft.random.choice((0.05, 0.5, 3.0))}

    async def begin(self) -> None:
        """Be slow."""
        longest = self.arguments["longest"]
        self.world.cluster.faults.slow(self.arguments["broker"], (0.0, longest))
        self.hit()

    async def end(self) -> None:
        """Be quick again."""
        self.world.cluster.faults.revive(self.arguments["broker"])


class Misled(Fault):
    """A broker does not learn what is so; cut off from the others, or not."""

    kind = "misled"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which broker, if the others are elected meanwhile."""
        return draw_broker(draft) | {"isolated": draft.random.random() < 0.5}

    async def begin(self) -> None:
        """It goes on as it was."""
        history = self.world.history
        history.lost_when_unsafe.update(topic.name for topic in self.world.scenario.topics)
        faults = self.world.cluster.faults
        act = faults.isolate if self.arguments["isolated"] else faults.mislead
        act(self.arguments["broker"])
        self.hit()

    async def end(self) -> None:
        """It learns what is so."""
        faults = self.world.cluster.faults
        faults.rejoin(self.arguments["broker"])
        faults.inform(self.arguments["broker"])


class FullDisk(Fault):
    """The disk of a broker is full."""

    kind = "full disk"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which broker."""
        return draw_broker(draft)

    async def begin(self) -> None:
        """It can not write."""
        self.world.cluster.faults.fail_disk(self.arguments["broker"])
        self.hit()

    async def end(self) -> None:
        """It has room again."""
        self.world.cluster.faults.repair_disk(self.arguments["broker"])


class Upgrade(Fault):
    """A broker is another release for a while, as in a rolling upgrade that is taken back."""

    kind = "upgrade"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which broker; to a release that can work together with the others."""
        if draft.cluster.release not in _MIXED:
            return None
        return draw_broker(draft) | {"release": draft.random.choice(_MIXED)}

    async def begin(self) -> None:
        """Another release."""
        self.world.cluster.set_release(self.arguments["broker"], self.arguments["release"])
        self.hit()

    async def end(self) -> None:
        """As it was."""
        release = self.world.scenario.cluster.release
        self.world.cluster.set_release(self.arguments["broker"], release)


REPLICA_FAULTS: dict[type[Fault], int] = {
    ReplicaLag: 3,
    ReplicaStall: 3,
    Election: 4,
    UncleanElection: 1,
    NoController: 1,
    BrokerMissedLate: 3,
    Hang: 4,
    SlowBroker: 3,
    Misled: 3,
    FullDisk: 2,
    Upgrade: 2,
}
