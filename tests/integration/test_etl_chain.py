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
    "churn": 1.2,
    "faults": 2.5,
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


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
async def test_classic_groups(
    brokers: KafkaCluster, scale: Scale, tmp_path: Path, assignor: str
) -> None:
    if assignor in ("roundrobin", "sticky"):
        only_long(scale)
    size: dict[str, Any] = {"records": 500_000, "rate": 3000} if scale.is_long else SHORT
    plan = Plan(mode="loop", assignor=assignor, **size)
    print(await Chain(brokers, plan, tmp_path).run())


@pytest.mark.parametrize("mode", ["plain", "assigned"])
async def test_transactions(brokers: KafkaCluster, scale: Scale, tmp_path: Path, mode: Any) -> None:
    size: dict[str, Any] = {"records": 200_000, "rate": 1500} if scale.is_long else SHORT
    report = await Chain(brokers, Plan(mode=mode, **size), tmp_path).run()
    print(report)
    assert report.repeats == 0


@pytest.mark.parametrize("version", ["3.9.2", "0.11.0.3"])
@pytest.mark.parametrize("mode", ["plain", "assigned"])
async def test_transactions_on_older_brokers(
    scale: Scale, tmp_path: Path, version: str, mode: Any
) -> None:
    """Before Kafka 2.5 nothing fences a member of a group: there only with fixed partitions."""
    only_long(scale)
    if (mode, version) == ("plain", "0.11.0.3"):
        pytest.skip("the broker cannot tell that a member has lost its partitions")
    need_own_brokers()
    with KafkaCluster(version, nodes=3, config=SETTINGS) as cluster:
        plan = Plan(mode=mode, records=200_000, rate=1500)
        report = await Chain(cluster, plan, tmp_path).run()
    print(report)
    assert report.repeats == 0
