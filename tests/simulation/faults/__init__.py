"""The faults of a scenario: each kind is a class with a drawing of its arguments and an effect.

A new kind goes into a module of its own or of its family, and into `KINDS`, with the weight of how
often it is drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.faults.aimed import AIMED_FAULTS
from tests.simulation.faults.base import Fault
from tests.simulation.faults.brokers import BROKER_FAULTS
from tests.simulation.faults.groups import GROUP_FAULTS
from tests.simulation.faults.machine import MACHINE_FAULTS
from tests.simulation.faults.metadata import METADATA_FAULTS
from tests.simulation.faults.network import NETWORK_FAULTS
from tests.simulation.faults.replicas import REPLICA_FAULTS
from tests.simulation.faults.responses import RESPONSE_FAULTS
from tests.simulation.faults.topics import TOPIC_FAULTS
from tests.simulation.scenario import Draft, FaultPlan

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Each kind and how often it is drawn.
KINDS: dict[type[Fault], int] = {
    **BROKER_FAULTS,
    **NETWORK_FAULTS,
    **REPLICA_FAULTS,
    **RESPONSE_FAULTS,
    **GROUP_FAULTS,
    **TOPIC_FAULTS,
    **METADATA_FAULTS,
    **MACHINE_FAULTS,
}
BY_NAME = {kind.kind: kind for kind in (*KINDS, *AIMED_FAULTS)}


def draw_faults(draft: Draft) -> list[FaultPlan]:
    """None to a dozen faults, each over before the quiet begins."""
    source = draft.random
    count = source.choice((0, 1, 2, 3, 4, 5, 6, 8, 12))
    plans: list[FaultPlan] = []
    for kind in source.choices(list(KINDS), list(KINDS.values()), k=count):
        arguments = kind.draw(draft)
        if arguments is None:
            continue
        at = source.random() * draft.active_s * 0.9
        longest = draft.active_s - at
        lasts = min(longest, source.choice((0.1, 1.0, 5.0, 15.0, 30.0)) * 2 * source.random())
        name = f"{kind.kind} {len(plans) + 1}"
        plans.append(FaultPlan(kind.kind, name, round(at, 4), round(lasts, 4), arguments))
    return sorted(plans, key=lambda plan: plan.at)


def make(world: World, plan: FaultPlan) -> Fault:
    """The fault of a plan."""
    return BY_NAME[plan.kind](world, plan)
