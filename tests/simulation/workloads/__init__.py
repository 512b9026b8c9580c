"""The programs of a scenario: each kind is a class with a drawing of its options and a run.

A new kind goes into a module of its own, and into `KINDS`, with the weight of how often it is
drawn. Its class needs what :class:`tests.simulation.workloads.base.Workload` lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tests.simulation.intercepting import draw_interceptors
from tests.simulation.scenario import Draft, WorkloadPlan
from tests.simulation.workloads.administering import AdminWorkload
from tests.simulation.workloads.arriving import LatestWorkload
from tests.simulation.workloads.base import Workload
from tests.simulation.workloads.group import GroupWorkload
from tests.simulation.workloads.lone import LoneWorkload
from tests.simulation.workloads.migrating import MigratingWorkload
from tests.simulation.workloads.odd import OddWorkload
from tests.simulation.workloads.parallel import ParallelWorkload
from tests.simulation.workloads.pipeline import PipelineWorkload
from tests.simulation.workloads.producing import ProducerWorkload
from tests.simulation.workloads.ranging import RangeWorkload
from tests.simulation.workloads.sessions import SessionWorkload
from tests.simulation.workloads.sharing import ShareWorkload
from tests.simulation.workloads.transacting import TransactionalWorkload
from tests.simulation.workloads.turmoil import TurmoilWorkload

if TYPE_CHECKING:
    from tests.simulation.world import World

#: Each kind and how often it is drawn.
KINDS: dict[type[Workload], int] = {
    ProducerWorkload: 6,
    TransactionalWorkload: 3,
    GroupWorkload: 6,
    LoneWorkload: 2,
    PipelineWorkload: 3,
    ParallelWorkload: 3,
    SessionWorkload: 2,
    AdminWorkload: 1,
    RangeWorkload: 1,
    LatestWorkload: 1,
    OddWorkload: 1,
    TurmoilWorkload: 1,
    # Drawn by `let_groups_migrate`, from other numbers.
    MigratingWorkload: 0,
    ShareWorkload: 0,
}
#: Those whose programs may have interceptors.
INTERCEPTED = ("producer", "transactions", "turmoil", "lone", "group", "pipeline")
_INTERCEPTED_SHARE = 0.25
BY_NAME = {kind.kind: kind for kind in KINDS}


def draw_workloads(draft: Draft, kinds: Sequence[str] = ()) -> None:
    """Add one to four workloads to a draft; those that read come after what they can read."""
    wanted = [BY_NAME[name] for name in kinds] or list(KINDS)
    possible = [kind for kind in wanted if kind.is_possible(draft.cluster)] or [ProducerWorkload]
    count = draft.random.choice((1, 1, 2, 2, 2, 3, 4))
    weights = [KINDS[kind] or len(kinds) for kind in possible]
    drawn = draft.random.choices(possible, weights, k=count)
    if all(kind.rank for kind in drawn):
        # There has to be something to read.
        drawn[0:1] = [ProducerWorkload, drawn[0]]
    for kind in sorted(drawn, key=lambda kind: kind.rank):
        name = draft.name_for(kind.kind)
        options = kind.draw(draft)
        if kind.kind in INTERCEPTED and draft.random.random() < _INTERCEPTED_SHARE:
            for program in options.get("members", [options]):
                program["interceptors"] = draw_interceptors(draft, kind.kind)
        draft.workloads.append(WorkloadPlan(kind.kind, name, options))


def make(world: World, plan: WorkloadPlan) -> Workload:
    """The workload of a plan."""
    return BY_NAME[plan.kind](world, plan)
