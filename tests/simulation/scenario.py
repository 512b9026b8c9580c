"""A scenario: which cluster, which programs, which faults. Plain data, drawn from a seed."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from aiokafka.testing.servers import APACHE
from tests.simulation.profiles import AGES, RELEASE, adapt, draw_profile, fits

RELEASES = ("0.11", "1.1", "2.1", "2.8", "3.9", "4.0", "4.3")
# Most seeds go to what people run.
_WEIGHTS = (1, 1, 1, 2, 3, 3, 9)


@dataclass(frozen=True)
class ClusterPlan:
    """The brokers."""

    brokers: int
    release: str
    settings: dict[str, str] = field(default_factory=dict)
    sasl: str = ""
    """The mechanism by which clients log in; "" if they need not."""
    lifetime_ms: int = 0
    """How long a login is good; 0 for ever."""
    racks: tuple[str, ...] = ()
    """Where each broker stands, if anywhere."""
    profile: str = APACHE
    """Which server they are."""

    @property
    def number(self) -> tuple[int, ...]:
        """The release, to compare with."""
        if self.profile != APACHE:
            return AGES[self.profile]
        return tuple(int(part) for part in self.release.split("."))


@dataclass(frozen=True)
class TopicPlan:
    """A topic that is there from the beginning."""

    name: str
    partitions: int
    replicas: int
    config: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkloadPlan:
    """One program, or several that belong together: a kind of :mod:`tests.simulation.workloads`."""

    kind: str
    name: str
    options: dict[str, Any]


@dataclass(frozen=True)
class FaultPlan:
    """A fault: a kind of :mod:`tests.simulation.faults`, when it begins and how long it lasts."""

    kind: str
    name: str
    at: float
    lasts: float
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    """All that a run depends on, besides the code."""

    seed: int
    active_s: float
    """Virtual seconds of work and faults, before the quiet in which all must come to rest."""
    cluster: ClusterPlan
    topics: tuple[TopicPlan, ...]
    workloads: tuple[WorkloadPlan, ...]
    faults: tuple[FaultPlan, ...]
    promises: tuple[str, ...] = ()
    """What clients keep as well, as little else happens: see :mod:`tests.simulation.promises`."""

    def topic(self, name: str) -> TopicPlan:
        """The plan of a topic."""
        return next(topic for topic in self.topics if topic.name == name)

    def to_json(self) -> str:
        """As text, one line for each workload and fault."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Scenario:
        """What `to_json` wrote."""
        data = json.loads(text)
        return cls(
            seed=data["seed"],
            active_s=data["active_s"],
            cluster=ClusterPlan(**data["cluster"] | {"racks": tuple(data["cluster"]["racks"])}),
            topics=tuple(TopicPlan(**topic) for topic in data["topics"]),
            workloads=tuple(WorkloadPlan(**workload) for workload in data["workloads"]),
            faults=tuple(FaultPlan(**fault) for fault in data["faults"]),
            promises=tuple(data["promises"]),
        )

    def without(self, part: WorkloadPlan | FaultPlan) -> Scenario:
        """A smaller scenario, with everything else as it was."""
        return replace(
            self,
            workloads=tuple(w for w in self.workloads if w != part),
            faults=tuple(f for f in self.faults if f != part),
        )


@dataclass
class Draft:
    """A scenario while it is drawn: workloads ask it for topics, faults for what is there."""

    random: random.Random
    cluster: ClusterPlan
    active_s: float
    topics: list[TopicPlan] = field(default_factory=list)
    workloads: list[WorkloadPlan] = field(default_factory=list)
    promises: list[str] = field(default_factory=list)

    def new_topic(self, *, config: dict[str, str] | None = None) -> TopicPlan:
        """A topic of its own for the workload that asks."""
        source = self.random
        most = self.cluster.brokers
        replicas = min(most, source.choice((1, 2, 3, 3)))
        settings = dict(config or {})
        if replicas == 1:
            # Nothing could ever be written.
            settings.pop("min.insync.replicas", None)
        topic = TopicPlan(
            name=f"t{len(self.topics)}",
            partitions=source.choice((1, 1, 2, 3, 4)),
            replicas=replicas,
            config=settings,
        )
        self.topics.append(topic)
        return topic

    def name_for(self, kind: str) -> str:
        """A name for one more workload of a kind."""
        return f"{kind}{sum(w.kind == kind for w in self.workloads) + 1}"

    def groups(self) -> list[str]:
        """Ids of the consumer groups."""
        return [w.options["group_id"] for w in self.workloads if "group_id" in w.options]

    def transactional_ids(self) -> list[str]:
        """The transactional ids in use."""
        found = [w.options.get("transactional_id") for w in self.workloads]
        return [name for name in found if name]


def draw(seed: int, kinds: Sequence[str] = (), profile: str = "") -> Scenario:
    """The scenario of a seed.

    `kinds` narrows the workloads down to these, or names the aims to choose from; then it is
    another scenario than without. `profile` is the server; see `draw_profile`.
    """
    return _draw(seed, kinds, draw_profile(seed, kinds, profile))


def _draw(seed: int, kinds: Sequence[str], profile: str) -> Scenario:
    from tests.simulation.aims import draw_aim
    from tests.simulation.faults import draw_faults
    from tests.simulation.workloads import draw_workloads
    from tests.simulation.workloads.migrating import let_groups_migrate

    source = random.Random(f"scenario {seed} {' '.join(kinds)}")
    draft = Draft(
        random=source,
        cluster=_draw_cluster(source, profile),
        active_s=round(source.choice((2.0, 5.0, 10.0, 20.0, 60.0)) * (0.5 + source.random()), 3),
    )
    aim = draw_aim(draft, kinds)
    if aim is None:
        draw_workloads(draft, kinds)
        faults = draw_faults(draft)
    else:
        faults = aim.draw()
    workloads = tuple(draft.workloads)
    if not kinds and not draft.promises and profile == APACHE:
        workloads = let_groups_migrate(seed, draft.cluster, workloads)
    scenario = Scenario(
        seed=seed,
        active_s=draft.active_s,
        cluster=draft.cluster,
        topics=tuple(draft.topics),
        workloads=workloads,
        faults=tuple(faults),
        promises=tuple(draft.promises),
    )
    if profile == APACHE:
        return scenario
    return adapt(scenario) if fits(scenario) else _draw(seed, kinds, APACHE)


def _draw_cluster(source: random.Random, profile: str) -> ClusterPlan:
    settings: dict[str, str] = {"group.min.session.timeout.ms": "1000"}
    session = source.choice((4000, 10_000, 20_000))
    settings["group.consumer.session.timeout.ms"] = str(session)
    settings["group.consumer.heartbeat.interval.ms"] = str(session // 4)
    if source.random() < 0.3:
        settings["group.initial.rebalance.delay.ms"] = "500"
    plan = ClusterPlan(
        brokers=source.choice((1, 2, 3, 3, 3, 4)),
        release=source.choices(RELEASES, _WEIGHTS)[0],
        settings=settings,
    )
    return plan if profile == APACHE else replace(plan, release=RELEASE, profile=profile)
