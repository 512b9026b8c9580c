"""What happens to the machine of the programs: it is busy, its clock jumps."""

from __future__ import annotations

from typing import Any

from tests.simulation.faults.base import Fault
from tests.simulation.scenario import Draft


class Stall(Fault):
    """The loop comes late again and again, as on a machine that is busy."""

    kind = "stall"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """How often, how late."""
        source = draft.random
        return {
            "probability": source.choice((0.01, 0.1, 0.5)),
            "longest": source.choice((0.05, 0.5, 3.0)),
        }

    async def begin(self) -> None:
        """Begin to stall."""
        longest = self.arguments["longest"]
        self.world.loop.stall(self.arguments["probability"], longest)
        # Several may come one after the other while one call waits.
        self.world.stalled = max(self.world.stalled, 10 * longest)
        self.hit()

    async def end(self) -> None:
        """Stall no more."""
        self.world.loop.stall(0.0, 0.0)


class ClockJump(Fault):
    """The time of day jumps."""

    kind = "clock jump"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """By how much."""
        return {"seconds": draft.random.choice((-3600.0, -5.0, 5.0, 3600.0, 86_400.0))}

    async def begin(self) -> None:
        """Jump, for the brokers as well as for the programs."""
        self.world.loop.epoch += self.arguments["seconds"]
        self.hit()


MACHINE_FAULTS: dict[type[Fault], int] = {Stall: 2, ClockJump: 1}
