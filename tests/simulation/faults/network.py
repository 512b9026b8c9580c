"""Connections that break, lines that lose, names that are not found."""

from __future__ import annotations

from typing import Any

from tests.simulation.faults.base import Fault, draw_broker
from tests.simulation.scenario import Draft


class Reset(Fault):
    """Connections are reset: all, those to one broker, or one of them."""

    kind = "reset"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which ones."""
        which = draft.random.choice(("all", "broker", "one", "one"))
        return draw_broker(draft) | {"which": which, "index": draft.random.randrange(100)}

    async def begin(self) -> None:
        """Reset them."""
        network = self.world.simulation.network
        which = self.arguments["which"]
        if which == "one":
            connections = network.connections()
            if not connections:
                return
            number = connections[self.arguments["index"] % len(connections)][0]
            seen = network.reset(number)
        elif which == "broker":
            seen = network.reset(line=self.world.line(self.arguments["broker"]))
        else:
            seen = network.reset()
        if seen:
            self.hit()


class CutAtByte(Fault):
    """The connection that writes its n-th byte is reset there."""

    kind = "cut at byte"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which byte."""
        return draw_broker(draft) | {"byte": int(10 ** draft.random.uniform(0, 4.5))}

    async def begin(self) -> None:
        """Wait for the byte."""
        self.world.line(self.arguments["broker"]).cut_at = self.arguments["byte"]

    async def end(self) -> None:
        """It has been written, or will not be."""
        line = self.world.line(self.arguments["broker"])
        if line.cut_at is None:
            self.hit()
        line.cut_at = None


class SilentLine(Fault):
    """Packets get lost, in one direction or both: nothing is heard, nothing is reset."""

    kind = "silent line"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Which broker, which way; None for all brokers."""
        ways = draft.random.choice(("both", "to server", "to client"))
        everywhere = draft.random.random() < 0.2
        return {"way": ways} | ({"broker": None} if everywhere else draw_broker(draft))

    def _brokers(self) -> list[int]:
        broker = self.arguments["broker"]
        return list(self.world.cluster.state.nodes) if broker is None else [broker]

    async def begin(self) -> None:
        """Lose what is sent."""
        way = self.arguments["way"]
        for broker in self._brokers():
            line = self.world.line(broker)
            line.lose(to_server=way != "to client", to_client=way != "to server")
        self.hit()

    async def end(self) -> None:
        """Let everything through again."""
        for broker in self._brokers():
            self.world.line(broker).lose(to_server=False, to_client=False)


class SlowLine(Fault):
    """Bytes take long, and come in pieces."""

    kind = "slow line"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """How long."""
        return draw_broker(draft) | {"longest": draft.random.choice((0.05, 0.5, 2.0))}

    async def begin(self) -> None:
        """Slow down."""
        line = self.world.line(self.arguments["broker"])
        line.latency = (0.0, self.arguments["longest"])
        line.splits = 0.5
        self.hit()

    async def end(self) -> None:
        """As before."""
        line = self.world.line(self.arguments["broker"])
        line.latency = (0.0002, 0.002)
        line.splits = 0.1


class Refusal(Fault):
    """Connections are refused; those that are open stay."""

    kind = "refusal"
    _tried = 0
    _since = 0.0

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """By which broker."""
        return draw_broker(draft)

    async def begin(self) -> None:
        """Refuse."""
        line = self.world.line(self.arguments["broker"])
        line.refuses = True
        self._tried, self._since = line.tried, self.world.now
        self.hit()

    async def end(self) -> None:
        """Accept."""
        line = self.world.line(self.arguments["broker"])
        line.refuses = False
        self.world.unreachable.append((self._since, self.world.now))
        tried, took = line.tried - self._tried, self.world.now - self._since
        # The pause grows to a second; a client may know it as two servers.
        if tried > len(self.world.scenario.workloads) * (40 + 10 * took):
            text = f"{tried} connections were tried in {took:.3f} s to {line.port}, which refuses"
            self.world.violate("connects too often", text)


class BrokenNames(Fault):
    """The name service does not answer for the brokers' address."""

    kind = "broken names"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """How long a look-up takes meanwhile."""
        return {"delay": draft.random.choice((0.001, 0.5, 3.0))}

    async def begin(self) -> None:
        """Break it."""
        network = self.world.simulation.network
        network.broken_names.add("127.0.0.1")
        network.name_delay = self.arguments["delay"]
        self.hit()

    async def end(self) -> None:
        """Mend it."""
        network = self.world.simulation.network
        network.broken_names.discard("127.0.0.1")
        network.name_delay = 0.001


NETWORK_FAULTS: dict[type[Fault], int] = {
    Reset: 6,
    CutAtByte: 4,
    SilentLine: 5,
    SlowLine: 3,
    Refusal: 2,
    BrokenNames: 1,
}
