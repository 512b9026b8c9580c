"""Make a failing scenario smaller, as long as it fails in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.simulation.execution import execute
from tests.simulation.scenario import FaultPlan, Scenario, WorkloadPlan

_MOST_RUNS = 300


def reduce(scenario: Scenario, kind: str) -> Scenario:
    """The smallest scenario found that still has a violation of this kind."""
    runs = 0
    progress = True
    while progress and runs < _MOST_RUNS:
        progress = False
        for smaller in _smaller(scenario):
            runs += 1
            if kind in execute(smaller).kinds:
                scenario, progress = smaller, True
                break
            if runs >= _MOST_RUNS:
                break
    return scenario


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Scenarios with one thing less, those that save most first."""
    if len(scenario.workloads) > 1:
        for workload in scenario.workloads:
            yield scenario.without(workload)
    for fault in scenario.faults:
        yield scenario.without(fault)
    for workload in scenario.workloads:
        for fewer in _fewer(workload):
            yield _with(scenario, workload, fewer)
    for factor in (0.5, 0.8):
        yield _shorter(scenario, factor)
    for fault in scenario.faults:
        if fault.lasts > 0.2:
            yield _with_fault(scenario, fault, replace(fault, lasts=round(fault.lasts / 2, 4)))
    if scenario.cluster.brokers > 1 and not _names(scenario, scenario.cluster.brokers - 1):
        yield _fewer_brokers(scenario)


def _fewer(workload: WorkloadPlan) -> Iterator[WorkloadPlan]:
    """A workload with fewer members, records or habits."""
    options = workload.options
    members = options.get("members", [])
    if len(members) > 1:
        for index in range(len(members)):
            rest = members[:index] + members[index + 1 :]
            yield replace(workload, options=options | {"members": rest})
    for name, plain in _PLAIN.items():
        if options.get(name, plain) != plain:
            yield replace(workload, options=options | {name: plain})
        for index, member in enumerate(members):
            if member.get(name, plain) != plain:
                changed = [*members[:index], member | {name: plain}, *members[index + 1 :]]
                yield replace(workload, options=options | {"members": changed})
    for name in ("records", "transactions"):
        if options.get(name, 0) > 3:
            yield replace(workload, options=options | {name: options[name] // 2})


#: Options, and what makes least of them.
_PLAIN = {
    "cancel_rate": 0,
    "pause_rate": 0,
    "flush_rate": 0,
    "seek_rate": 0,
    "restart_rate": 0,
    "committed_rate": 0,
    "work_s": 0,
    "keys": 0,
    "listener": "plain",
    "stays_s": None,
    "comes_after_s": 0,
    "leaves_by": "stop",
}


def _with(scenario: Scenario, old: WorkloadPlan, new: WorkloadPlan) -> Scenario:
    return replace(scenario, workloads=tuple(new if w == old else w for w in scenario.workloads))


def _with_fault(scenario: Scenario, old: FaultPlan, new: FaultPlan) -> Scenario:
    return replace(scenario, faults=tuple(new if f == old else f for f in scenario.faults))


def _shorter(scenario: Scenario, factor: float) -> Scenario:
    active = round(scenario.active_s * factor, 3)
    faults = tuple(
        replace(fault, lasts=round(min(fault.lasts, active - fault.at), 4))
        for fault in scenario.faults
        if fault.at < active
    )
    return replace(scenario, active_s=active, faults=faults)


def _names(scenario: Scenario, broker: int) -> bool:
    return any(fault.arguments.get("broker") == broker for fault in scenario.faults)


def _fewer_brokers(scenario: Scenario) -> Scenario:
    left = scenario.cluster.brokers - 1
    topics = tuple(replace(t, replicas=min(t.replicas, left)) for t in scenario.topics)
    return replace(scenario, cluster=replace(scenario.cluster, brokers=left), topics=topics)
