"""What all faults have in common."""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any, ClassVar

from tests.simulation.scenario import Draft, FaultPlan

if TYPE_CHECKING:
    from tests.simulation.world import World


class Fault(abc.ABC):
    """Something that goes wrong for a while. What it needs by chance is drawn into its arguments,
    so that it does the same in a smaller scenario.
    """

    kind: ClassVar[str]

    def __init__(self, world: World, plan: FaultPlan) -> None:
        self.world = world
        self.plan = plan
        #: A copy: some count in it, and the plan is run again.
        self.arguments = dict(plan.arguments)

    @classmethod
    @abc.abstractmethod
    def draw(cls, draft: Draft) -> dict[str, Any] | None:
        """Arguments, as JSON can hold them; None if the fault makes no sense here."""

    @abc.abstractmethod
    async def begin(self) -> None:
        """Let it happen."""

    async def end(self) -> None:
        """Undo it, as far as something lasts."""
        return

    def hit(self) -> None:
        """It has had an effect."""
        self.world.hit(self.plan.kind)


def draw_broker(draft: Draft) -> dict[str, Any]:
    """One of the brokers."""
    return {"broker": draft.random.randrange(draft.cluster.brokers)}


def draw_partition(draft: Draft) -> dict[str, Any] | None:
    """One of the partitions."""
    if not draft.topics:
        return None
    topic = draft.random.choice(draft.topics)
    return {"topic": topic.name, "partition": draft.random.randrange(topic.partitions)}
