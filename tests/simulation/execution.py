"""One scenario, from its beginning to its verdict."""

from __future__ import annotations

import asyncio
import gc
from dataclasses import dataclass, field

from aiokafka.testing.simulation import (
    BusyLoopError,
    Simulation,
    SimulationError,
    StuckError,
    VirtualTimeError,
)
from tests.simulation import checks, faults, workloads
from tests.simulation.commits import watch_commits
from tests.simulation.rates import check_rates
from tests.simulation.scenario import FaultPlan, Scenario
from tests.simulation.watch import look_for_leftovers, watching
from tests.simulation.wire import WireTap
from tests.simulation.workloads.base import Workload
from tests.simulation.world import Note, Violation, World

# Virtual seconds after the faults, in which the slowest workloads have given up long ago.
_LIMIT = 3000.0
_RANKS = 3
# Virtual seconds: the longest transaction_timeout_ms of the workloads, and a while.
_LONGEST_TRANSACTION = 90.0


@dataclass
class Verdict:
    """What came of a run."""

    scenario: Scenario
    violations: list[Violation]
    trace_sum: int
    virtual_s: float
    requests: int
    hits: dict[str, int] = field(default_factory=dict)
    met: set[tuple[str, str]] = field(default_factory=set)
    """Faults, and the states in which they have met clients."""
    trace: list[Note] = field(default_factory=list)

    @property
    def kinds(self) -> set[str]:
        """Which kinds of violation there were."""
        return {violation.kind for violation in self.violations}


def execute(scenario: Scenario, *, tracing: bool = False) -> Verdict:
    """Run a scenario."""
    gc_was_enabled = gc.isenabled()
    # So that what the collector finds, it finds at the same moment each time.
    gc.disable()
    simulation = Simulation(scenario.seed, limit_s=scenario.active_s + _LIMIT)
    world = World(scenario, simulation, tracing=tracing)
    try:
        with watching(world):
            _run(world)
    finally:
        if gc_was_enabled:
            gc.enable()
    return Verdict(
        scenario=scenario,
        violations=world.violations,
        trace_sum=world.trace_sum,
        virtual_s=world.now,
        requests=sum(world.request_counts.values()),
        hits=world.hits,
        met=world.states.met,
        trace=world.trace,
    )


def _run(world: World) -> None:
    try:
        world.simulation.run(_main(world))
    except BusyLoopError as error:
        world.violate("busy loop", str(error))
    except StuckError as error:
        world.violate("stuck", str(error))
    except VirtualTimeError as error:
        world.violate("never ends", str(error))
    except SimulationError as error:
        world.violate("simulation", str(error), error)


async def _main(world: World) -> None:
    scenario = world.scenario
    cluster = world.open()
    if world.is_tracing:
        WireTap(world)
    await cluster.start()
    for topic in scenario.topics:
        await cluster.create_topic(
            topic.name, topic.partitions, topic.replicas, config=topic.config
        )
    watch_commits(world)
    loop = world.loop
    running = [workloads.make(world, plan) for plan in scenario.workloads]
    tasks = {
        workload: loop.create_task(_work(world, workload), name=workload.plan.name)
        for workload in running
    }
    happening = [loop.create_task(_happen(world, plan), name=plan.name) for plan in scenario.faults]
    await asyncio.sleep(scenario.active_s)
    await _see_end(happening)
    await _calm_down(world)
    for rank in range(_RANKS):
        world.turn_at[rank] = world.now
        world.turns[rank].set()
        await _see_end([task for w, task in tasks.items() if w.rank == rank])
    await _see_transactions_end(world)
    checks.check_all(world)
    check_rates(world)
    world.hangs.close()
    await cluster.stop()
    # Goodbyes are under way for a moment.
    await asyncio.sleep(5.0)
    current = asyncio.current_task()
    look_for_leftovers(world, set() if current is None else {current})


async def _see_end(tasks: list[asyncio.Task[None]]) -> None:
    """Wait for all tasks, or for the first that fails, and raise what it failed with.

    Not by `gather`, which gives tasks that are done already a turn of the loop on some Pythons and
    none on others: a seed must have one trace.
    """
    if tasks:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in tasks:
        if task.done():
            task.result()


async def _see_transactions_end(world: World) -> None:
    """Wait while transactions are open, for as long as brokers may leave one open.

    A program that had no response to EndTxn leaves its transaction to the coordinator: the request
    may still be behind a late one, or never have arrived.
    """
    end = world.now + _LONGEST_TRANSACTION
    while checks.is_a_transaction_open(world) and world.now < end:
        await asyncio.sleep(1.0)


async def _work(world: World, workload: Workload) -> None:
    try:
        await workload.run()
    except SimulationError:
        raise
    except Exception as error:
        world.violate("program failed", f"{workload.plan.name}: {error!r}", error)


async def _happen(world: World, plan: FaultPlan) -> None:
    await asyncio.sleep(plan.at)
    fault = faults.make(world, plan)
    world.note("fault", f"{plan.name} begins", str(plan.arguments))
    world.states.note(plan.kind)
    await fault.begin()
    await asyncio.sleep(plan.lasts)
    await fault.end()
    world.note("fault", f"{plan.name} ends")


async def _calm_down(world: World) -> None:
    """Mend what several faults at once may have left."""
    cluster = world.cluster
    cluster.faults.heal()
    cluster.controller.session_timeout = 0.0
    for broker in cluster.state.nodes:
        await cluster.start_broker(broker)
        world.line(broker).restore()
        if cluster.state.nodes[broker].profile.name != world.scenario.cluster.release:
            cluster.set_release(broker, world.scenario.cluster.release)
    cluster.controller.start()
    cluster.faults.heal()
    for plan in world.scenario.topics:
        if plan.name not in cluster.state.topics:
            await cluster.create_topic(
                plan.name, plan.partitions, plan.replicas, config=plan.config
            )
        for partition in cluster.state.topics[plan.name].partitions:
            partition.log.resume_replication()
    cluster.transactions.resume_markers()
    cluster.throttle(0)
    world.calm_at = world.now
    world.calm.set()
    world.note("world", "all faults are over")
