"""Which server a scenario runs on: Apache Kafka, or another one of `FakeCluster(profile=...)`.

The draw has a source of chance of its own: the scenarios of all other seeds stay what they were.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from aiokafka.testing.servers import APACHE, PROFILES, server_profile

if TYPE_CHECKING:
    from tests.simulation.scenario import Scenario

#: The release of Apache Kafka that the others are made from.
RELEASE = "3.9"
#: The release of Apache Kafka in which clients can rely on as much as with each server: topic ids
#: (3.1), stable offsets (2.5), epochs of leaders (2.4), producer ids (0.11).
AGES: dict[str, tuple[int, ...]] = {
    "event-hubs": (1, 1),
    "redpanda": (2, 3),
    "msk-serverless": (2, 8),
    "warpstream": (3, 9),
    "automq": (3, 9),
    "bare": (1, 1),
}
_SHARE = 0.25
_ADD_PARTITIONS_TO_TXN = 24
# What must not happen there: brokers are of one release, a topic that is made again is known by its
# id, and leaders are named in responses of new versions only (KIP-951).
_NEVER = {"upgrade", "topic again", "old news"}
# Servers without epochs of leaders: consumers cannot see that a log was cut.
_WITHOUT_EPOCHS = {"event-hubs", "redpanda", "bare"}
_CUTS = {"unclean election"}
# Servers on which replicas have no logs of their own.
_WITHOUT_REPLICAS = {"warpstream"}
_OF_REPLICAS = {
    *("replica lag", "replica stall", "election", "unclean election", "slow replicas"),
    *("full disk", "no controller", "broker missed late", "unknown replica"),
}
_TRANSACTIONAL = {"transactions", "pipeline", "turmoil"}


def draw_profile(seed: int, kinds: Sequence[str], wanted: str = "") -> str:
    """The server of a seed, unless it is said; with "others", any but Apache Kafka."""
    source = random.Random(f"profile {seed} {' '.join(kinds)}")
    if wanted in PROFILES:
        return wanted
    if source.random() >= _SHARE and not wanted:
        return APACHE
    return source.choice([name for name in PROFILES if name != APACHE])


def fits(scenario: Scenario) -> bool:
    """Whether the server has all that the programs need, and can have these faults."""
    text = json.dumps([workload.options for workload in scenario.workloads])
    apis = server_profile(scenario.cluster.profile, RELEASE).ranges
    kinds = {workload.kind for workload in scenario.workloads}
    transacts = kinds & _TRANSACTIONAL or '"transactional_id": "' in text
    return (
        scenario.cluster.release == RELEASE
        and not {fault.kind for fault in scenario.faults} & _NEVER
        and (_ADD_PARTITIONS_TO_TXN in apis or not transacts)
        and '"group_protocol": "consumer"' not in text
    )


def adapt(scenario: Scenario) -> Scenario:
    """The scenario without what the server does not have."""
    profile = scenario.cluster.profile
    without = _OF_REPLICAS if profile in _WITHOUT_REPLICAS else set()
    if profile in _WITHOUT_EPOCHS:
        without = without | _CUTS
    faults = tuple(fault for fault in scenario.faults if fault.kind not in without)
    workloads = scenario.workloads
    if server_profile(profile, RELEASE).compressions is not None:
        workloads = tuple(
            replace(w, options=json.loads(_with_gzip(json.dumps(w.options)))) for w in workloads
        )
    return replace(scenario, faults=faults, workloads=workloads)


def _with_gzip(text: str) -> str:
    for name in ("snappy", "lz4", "zstd"):
        text = text.replace(f'"compression_type": "{name}"', '"compression_type": "gzip"')
    return text
