"""What the programs and faults of a running scenario share."""

from __future__ import annotations

import asyncio
import random
import traceback
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiokafka.testing import FakeCluster, Security
from aiokafka.testing.servers import APACHE
from tests.simulation.calls import Hangs
from tests.simulation.history import History
from tests.simulation.states import States

if TYPE_CHECKING:
    from aiokafka.testing.simulation import Line, Simulation
    from tests.simulation.scenario import Scenario

#: Who logs in where that is asked for: user and password.
USER = {"alice": "secret"}

# More are not worth reading.
_MOST_VIOLATIONS = 20


@dataclass(frozen=True)
class Violation:
    """Something that must not be."""

    kind: str
    """A word that is the same for the same mistake of another seed."""
    text: str
    at: float


@dataclass(frozen=True)
class Note:
    """A line of the trace."""

    at: float
    who: str
    what: str
    outcome: str


class World:
    """One run of a scenario.

    Owns: the cluster, the trace, the violations, and which phase the run is in.
    """

    def __init__(self, scenario: Scenario, simulation: Simulation, *, tracing: bool) -> None:
        self.scenario = scenario
        self.simulation = simulation
        self.loop = simulation.loop
        #: Whether the trace will be read.
        self.is_tracing = tracing
        self.trace: list[Note] = []
        self._trace_sum = 0
        self.violations: list[Violation] = []
        self.cluster: FakeCluster
        self.security: Security | None = None
        self.history = History(self)
        #: Set when the last fault is over: from then on everything has to come to rest.
        self.calm = asyncio.Event()
        self.calm_at = 0.0
        #: Set for each rank of workloads when those of all ranks before have come to rest.
        self.turns = [asyncio.Event() for _ in range(4)]
        self.turn_at = [0.0] * 4
        #: Seconds by which timers may be late, while the loop is made to stall.
        self.stalled = 0.0
        #: Errors in the log that faults of this run explain, by their beginning.
        self.expected_errors: list[str] = []
        self.hits: dict[str, int] = {}
        self.states = States(self)
        self.hangs = Hangs(self.loop)
        #: What programs have to see at the end, when all has come to rest.
        self.at_end: list[Callable[[], None]] = []
        #: Times in which requests of an API are answered with errors only: API, from, to.
        self.refusing: list[tuple[int, float, float]] = []
        #: Times in which leaders send readers to a replica that is not there: from, to.
        self.sending_away: list[tuple[float, float]] = []
        #: Times in which a broker could not be connected to: from, to.
        self.unreachable: list[tuple[float, float]] = []

    def promises(self, what: str) -> bool:
        """Whether clients keep something in this scenario that they need not in others."""
        return what in self.scenario.promises

    def open(self) -> FakeCluster:
        """Make the cluster; within the run, where chance is the seed's."""
        plan = self.scenario.cluster
        if plan.sasl:
            self.security = Security(USER, session_lifetime_ms=plan.lifetime_ms)
        self.cluster = FakeCluster(
            plan.brokers,
            profile=plan.profile,
            **({"as_version": plan.release} if plan.profile == APACHE else {}),
            config=plan.settings,
            racks=plan.racks or None,
            security=self.security,
            seed=self.scenario.seed,
        )
        return self.cluster

    @property
    def bootstrap(self) -> str:
        """Where clients find the cluster."""
        return self.cluster.bootstrap_servers

    @property
    def now(self) -> float:
        """Virtual seconds since the run began."""
        return self.loop.now

    def random_for(self, name: str) -> random.Random:
        """A source of chance of one's own, so that one less program changes nothing for others."""
        return random.Random(f"{self.scenario.seed} {name}")

    def line(self, broker: int) -> Line:
        """The way to a broker."""
        host, _, port = self.cluster.address(broker).rpartition(":")
        return self.simulation.network.line(host, int(port))

    def note(self, who: str, what: str, outcome: str = "") -> None:
        """Add a line to the trace."""
        mark = f"{self.loop.now:.6f} {who} {what} {outcome}"
        self._trace_sum = zlib.crc32(mark.encode(), self._trace_sum)
        if self.is_tracing:
            self.trace.append(Note(self.loop.now, who, what, outcome))

    def trace_line(self, who: str, what: str, outcome: str = "") -> None:
        """Add a line that is there with tracing only, and so no part of the checksum."""
        self.trace.append(Note(self.loop.now, who, what, outcome))

    @property
    def request_counts(self) -> dict[int, int]:
        """Requests by API key."""
        counts = {key: self.cluster.count(key) for key in range(100)}
        return {key: count for key, count in counts.items() if count}

    @property
    def trace_sum(self) -> int:
        """A checksum over the trace and all bytes on the network."""
        return zlib.crc32(b"%d" % self.simulation.network.checksum, self._trace_sum)

    def violate(self, kind: str, text: str, error: BaseException | None = None) -> None:
        """Something is not as it must be."""
        if len(self.violations) >= _MOST_VIOLATIONS:
            return
        if error is not None:
            text += "\n" + "".join(traceback.format_exception(error))
        self.violations.append(Violation(kind, text, self.now))
        self.note("violation", kind, text)

    def hit(self, what: str) -> None:
        """A fault, or a state worth counting, has had an effect."""
        self.hits[what] = self.hits.get(what, 0) + 1

    async def until_calm(self, seconds: float) -> bool:
        """Sleep, but not longer than the faults last; whether they are over."""
        wait = min(seconds, max(0.0, self.scenario.active_s - self.now))
        await asyncio.sleep(wait)
        if wait < seconds:
            await self.calm.wait()
        return self.calm.is_set()
