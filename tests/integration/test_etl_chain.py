"""Three groups in a row on three brokers, while members and brokers come and go: no record is lost,
and those of a key come out in order; exactly once where the groups work in transactions.

The long form prints what was done and how many records came twice: ``pytest -s``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chain.chain import Chain, Plan
from tests.kafka.fixtures import Scale, need_own_brokers
from tests.kafka.launcher import KafkaCluster

SETTINGS = {
    # Look every second for transactions of processes that were killed.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
}
SHORT: dict[str, Any] = {
    "records": 4000,
    "rate": 800,
    "churn": 1.0,
    "faults": 2.0,
    "rounds": 1,
    "slots": 2,
    "session_timeout_ms": 3000,
}

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def brokers() -> Iterator[KafkaCluster]:
    need_own_brokers()
    with KafkaCluster(nodes=3, config=SETTINGS) as cluster:
        yield cluster


def only_long(scale: Scale) -> None:
    if not scale.is_long:
        pytest.skip("the long form only")


GROUPS = [
    ("classic", "range"),
    ("classic", "roundrobin"),
    ("classic", "sticky"),
    ("classic", "cooperative-sticky"),
    ("consumer", "uniform"),
    ("consumer", "range"),
]
IN_SHORT = [GROUPS[3], GROUPS[4]]


@pytest.mark.parametrize(("protocol", "assignor"), GROUPS)
async def test_at_least_once(
    brokers: KafkaCluster, scale: Scale, tmp_path: Path, protocol: str, assignor: str
) -> None:
    if (protocol, assignor) not in IN_SHORT:
        only_long(scale)
    size: dict[str, Any] = {"records": 500_000, "rate": 4000} if scale.is_long else SHORT
    plan = Plan(mode="loop", protocol=protocol, assignor=assignor, **size)
    print(await Chain(brokers, plan, tmp_path).run())


# By name: what transactions are made with, and which side assigns partitions.
PROGRAMS: dict[str, dict[str, Any]] = {
    "plain": {"mode": "plain"},
    "plain-cooperative": {"mode": "plain", "assignor": "cooperative-sticky"},
    "plain-consumer": {"mode": "plain", "protocol": "consumer", "assignor": "uniform"},
    "plain-assigned": {"mode": "plain", "assigned": True},
    "session": {"mode": "session"},
    "session-consumer": {"mode": "session", "protocol": "consumer", "assignor": "uniform"},
    "session-assigned": {"mode": "session", "assigned": True},
}


@pytest.mark.parametrize("program", PROGRAMS)
async def test_exactly_once(
    brokers: KafkaCluster, scale: Scale, tmp_path: Path, program: str
) -> None:
    if program not in ("plain", "session-consumer"):
        only_long(scale)
    size: dict[str, Any] = {"records": 200_000, "rate": 2000} if scale.is_long else SHORT
    report = await Chain(brokers, Plan(**PROGRAMS[program], **size), tmp_path).run()
    print(report)
    assert report.repeats == 0, str(report)


@pytest.mark.parametrize(
    ("version", "program"),
    [
        ("3.9.2", "plain"),
        ("3.9.2", "session"),
        # Before Kafka 2.5 nothing fences a member that has lost its partitions.
        ("0.11.0.3", "plain-assigned"),
        ("0.11.0.3", "session-assigned"),
    ],
)
async def test_exactly_once_on_older_brokers(
    scale: Scale, tmp_path: Path, version: str, program: str
) -> None:
    only_long(scale)
    need_own_brokers()
    with KafkaCluster(version, nodes=3, config=SETTINGS) as cluster:
        plan = Plan(records=200_000, rate=2000, **PROGRAMS[program])
        report = await Chain(cluster, plan, tmp_path).run()
    print(report)
    assert report.repeats == 0, str(report)
