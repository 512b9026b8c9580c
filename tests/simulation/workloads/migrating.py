"""Consumer groups on their way from one protocol to the other, and back: each member comes back
with the other one when it was gone."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from tests.simulation.scenario import ClusterPlan, Draft, WorkloadPlan
from tests.simulation.workloads.group import ASSIGNORS, GroupWorkload, Member
from tests.simulation.workloads.reading import FIRST_CONSUMER_PROTOCOL

# Which options are of one protocol only.
_OF_PROTOCOLS = {
    "classic": ("session_timeout_ms", "heartbeat_interval_ms", "assignors"),
    "consumer": ("group_remote_assignor",),
}
# How many of the groups that could migrate do.
_SHARE = 0.25


class MigratingWorkload(GroupWorkload):
    """The members of one group, which change the protocol when they are made again."""

    kind = "migrating"
    rank = 2

    @classmethod
    def is_possible(cls, cluster: ClusterPlan) -> bool:
        """Whether these brokers know both protocols."""
        return cluster.number >= FIRST_CONSUMER_PROTOCOL

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any]:
        """Those of a group, with what members need of either protocol."""
        return _migrating(super().draw(draft), draft.random)

    @property
    def protocol(self) -> str:
        """None for sure."""
        return ""

    @property
    def member_class(self) -> type[Member]:
        """What its members are."""
        return MigratingMember


class MigratingMember(Member):
    """A program that is configured anew before each start.

    Owns: how often it was started.
    """

    starts = 0

    def choose_options(self) -> dict[str, Any]:
        """Its options for the protocol whose turn it is."""
        protocols = self.options["protocols"]
        protocol = protocols[self.starts % len(protocols)]
        self.starts += 1
        others = {
            name for other, names in _OF_PROTOCOLS.items() for name in names if other != protocol
        }
        options = {
            name: value for name, value in self.options["client"].items() if name not in others
        }
        return options | {"group_protocol": protocol}


def let_groups_migrate(
    seed: int, cluster: ClusterPlan, workloads: tuple[WorkloadPlan, ...]
) -> tuple[WorkloadPlan, ...]:
    """Workloads of a scenario, some of whose groups migrate; drawn apart, so that the rest of the
    scenario is as it was."""
    source = random.Random(f"migration {seed}")
    if not MigratingWorkload.is_possible(cluster):
        return workloads
    return tuple(
        replace(plan, kind=MigratingWorkload.kind, options=_migrating(plan.options, source))
        if plan.kind == GroupWorkload.kind and source.random() < _SHARE
        else plan
        for plan in workloads
    )


def _migrating(options: dict[str, Any], source: random.Random) -> dict[str, Any]:
    """Options of a group whose members change the protocol."""
    session = source.choice((4000, 10_000, 20_000))
    both = {
        "session_timeout_ms": session,
        "heartbeat_interval_ms": session // 4,
        # All classic members have to have one in common.
        "assignors": [source.choice(tuple(ASSIGNORS))],
        "group_remote_assignor": source.choice((None, "uniform", "range")),
    }
    if source.random() < 0.2:
        both["assignors"] = ["range", "cooperative"]
    members = []
    for member in options["members"]:
        client = {**member["client"], **both}
        client.pop("group_protocol", None)
        protocols = source.choice(
            (["classic", "consumer"], ["consumer", "classic"], ["classic"], ["consumer"])
        )
        stays = source.choice((2.0, 5.0, 10.0))
        members.append({**member, "client": client, "protocols": protocols, "stays_s": stays})
    return {**options, "members": members}
