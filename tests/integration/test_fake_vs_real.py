"""The fake cluster answers as a real broker does: the same requests, the same answers."""

from __future__ import annotations

import pytest

from aiokafka.testing import FakeCluster
from tests.kafka.fixtures import Kafka, need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.testing import (
    commit_scenarios,
    group_scenarios,
    member_scenarios,
    migration_scenarios,
    odd_scenarios,
    setting_scenarios,
    share_scenarios,
    transaction_scenarios,
)
from tests.testing.migration_scenarios import policy_dialogue
from tests.testing.scenarios import SCENARIOS, Side

# they add to SCENARIOS
assert group_scenarios and odd_scenarios and setting_scenarios and transaction_scenarios
assert commit_scenarios and member_scenarios and migration_scenarios and share_scenarios

LIKE_THE_TEST_BROKER = {
    "group.min.session.timeout.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
}


@pytest.mark.parametrize("name", SCENARIOS)
async def test_same_answers(kafka: Kafka, name: str) -> None:
    scenario = SCENARIOS[name]
    real = Side(kafka.bootstrap_servers)
    async with real.client:
        expected = await scenario(real)
    async with FakeCluster(as_version="4.3", config=LIKE_THE_TEST_BROKER) as cluster:
        fake = Side(cluster.address(0))
        async with fake.client:
            assert await scenario(fake) == expected


@pytest.mark.parametrize("policy", ["disabled", "upgrade", "downgrade", "bidirectional"])
async def test_same_answers_by_migration_policy(policy: str) -> None:
    need_own_brokers()
    setting = {"group.consumer.migration.policy": policy}
    with KafkaCluster(config=setting) as kafka:
        real = Side(kafka.bootstrap_servers)
        async with real.client:
            expected = await policy_dialogue(real)
    async with FakeCluster(as_version="4.3", config=LIKE_THE_TEST_BROKER | setting) as cluster:
        fake = Side(cluster.address(0))
        async with fake.client:
            assert await policy_dialogue(fake) == expected
