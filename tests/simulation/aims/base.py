"""What all aims have in common."""

from __future__ import annotations

import abc
from dataclasses import replace
from typing import Any, ClassVar

from aiokafka.testing.servers import APACHE
from tests.simulation.faults.base import Fault
from tests.simulation.scenario import Draft, FaultPlan, WorkloadPlan
from tests.simulation.workloads.base import Workload


class Aim(abc.ABC):
    """A scenario that is drawn around one thing that can go wrong: few programs with the options
    that matter for it, few brokers, and the faults that it takes.
    """

    name: ClassVar[str]
    """Its name on the command line."""
    promises: ClassVar[tuple[str, ...]] = ()
    active_s: ClassVar[float | None] = None

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.random = draft.random
        self.faults: list[FaultPlan] = []
        draft.promises.extend(self.promises)
        if self.active_s is not None:
            draft.active_s = self.active_s

    def draw(self) -> list[FaultPlan]:
        """Put the programs into the draft; returns the faults."""
        self.compose()
        return sorted(self.faults, key=lambda plan: plan.at)

    @abc.abstractmethod
    def compose(self) -> None:
        """Draw the cluster, then programs, then topics' details, then faults."""

    def cluster(
        self, *, brokers: int | None = None, releases: tuple[str, ...] = (), **changes: Any
    ) -> None:
        """Say what the cluster is like; before programs are drawn, which look at it."""
        if brokers is not None:
            changes["brokers"] = brokers
        if releases:
            release = self.random.choice(releases)
            # Other servers have none.
            if self.draft.cluster.profile == APACHE:
                changes["release"] = release
        self.draft.cluster = replace(self.draft.cluster, **changes)

    def add(
        self, kind: type[Workload], *, client: dict[str, Any] | None = None, **options: Any
    ) -> WorkloadPlan:
        """A program: drawn as always, with some options of its own and of its client."""
        drawn = kind.draw(self.draft)
        if client is not None:
            drawn["client"] |= client
        plan = WorkloadPlan(kind.kind, self.draft.name_for(kind.kind), drawn | options)
        self.draft.workloads.append(plan)
        return plan

    def topics(
        self,
        *,
        partitions: int | None = None,
        replicas: int | None = None,
        config: dict[str, str] | None = None,
    ) -> None:
        """Say what all topics so far are like."""
        changes = {"partitions": partitions, "replicas": replicas, "config": config}
        given = {name: value for name, value in changes.items() if value is not None}
        self.draft.topics[:] = [replace(topic, **given) for topic in self.draft.topics]

    def fault(
        self,
        kind: type[Fault],
        count: int = 1,
        *,
        at: float | None = None,
        lasts: tuple[float, float] = (0.1, 1.0),
        **arguments: Any,
    ) -> None:
        """A fault, or several, at any time or at a certain one."""
        active = self.draft.active_s
        for _ in range(count):
            drawn = kind.draw(self.draft)
            if drawn is None:
                continue
            begins = self.random.random() * active * 0.9 if at is None else at
            length = min(active - begins, self.random.uniform(*lasts))
            name = f"{kind.kind} {len(self.faults) + 1}"
            self.faults.append(
                FaultPlan(kind.kind, name, round(begins, 4), round(length, 4), drawn | arguments)
            )
