"""What was tried: faults by workloads, how often each was drawn and how often it took effect."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.simulation.execution import Verdict


@dataclass
class Coverage:
    """Counts over many runs."""

    drawn: Counter[tuple[str, str]] = field(default_factory=Counter)
    hit: Counter[tuple[str, str]] = field(default_factory=Counter)
    met: Counter[tuple[str, str]] = field(default_factory=Counter)

    def count(self, verdict: Verdict) -> None:
        """Add one run."""
        self.met.update(verdict.met)
        kinds = {workload.kind for workload in verdict.scenario.workloads}
        for fault in {fault.kind for fault in verdict.scenario.faults}:
            for kind in kinds:
                self.drawn[fault, kind] += 1
                if verdict.hits.get(fault):
                    self.hit[fault, kind] += 1

    def add(self, other: Coverage) -> None:
        """Add up."""
        self.drawn += other.drawn
        self.hit += other.hit
        self.met += other.met

    def states(self) -> str:
        """In each place: runs in which a fault began while a client was in a state."""
        from tests.simulation.faults import BY_NAME as FAULTS
        from tests.simulation.states import STATES

        lines = ["fault".ljust(20) + "".join(name.rjust(12) for name in STATES)]
        for fault in FAULTS:
            cells = [str(self.met[fault, state] or "-") for state in STATES]
            lines.append(fault.ljust(20) + "".join(cell.rjust(12) for cell in cells))
        empty = sum(not self.met[fault, state] for fault in FAULTS for state in STATES)
        lines.append(f"{empty} of {len(FAULTS) * len(STATES)} places are empty")
        return "\n".join(lines)

    def table(self) -> str:
        """In each place: runs with an effect, of runs in which it was drawn."""
        from tests.simulation.faults import BY_NAME as FAULTS
        from tests.simulation.workloads import BY_NAME as WORKLOADS

        names = list(WORKLOADS)
        lines = ["fault".ljust(20) + "".join(name.rjust(16) for name in names)]
        for fault in FAULTS:
            cells = [f"{self.hit[fault, name]}/{self.drawn[fault, name]}" for name in names]
            lines.append(fault.ljust(20) + "".join(cell.rjust(16) for cell in cells))
        return "\n".join(lines)
