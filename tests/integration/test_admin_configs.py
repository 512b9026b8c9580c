"""Configurations of the admin client against a real Kafka."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable

import pytest

from aiokafka.admin import (
    AIOKafkaAdminClient,
    ConfigChange,
    ConfigKey,
    ConfigResource,
    ConfigSource,
    ConfigType,
    NewTopic,
)
from aiokafka.errors import InvalidConfigurationError, UnknownTopicOrPartitionError
from tests.kafka.fixtures import Kafka

# Starting a broker counts as part of the first test.
pytestmark = pytest.mark.timeout(180)


@pytest.fixture
async def admin(kafka: Kafka) -> AsyncIterator[AIOKafkaAdminClient]:
    async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        yield client


@pytest.fixture
async def topic(admin: AIOKafkaAdminClient) -> AsyncIterator[ConfigKey]:
    name = f"admin-configs-{uuid.uuid4().hex[:12]}"
    await admin.topics.create([NewTopic(name, 1, 1, topic_configs={"segment.ms": "70000"})])
    await admin.topics.wait_until_ready([name])
    yield ConfigKey.topic(name)
    await admin.topics.delete([name])


async def until(
    admin: AIOKafkaAdminClient, key: ConfigKey, is_so: Callable[[dict[str, str | None]], bool]
) -> dict[str, str | None]:
    """Wait until a broker has learned of a change: the controller responds before it."""
    while True:
        found = (await admin.configs.describe([key]))[key]
        own = {name: each.value for name, each in found.items() if not each.is_default}
        if is_so(own):
            return own
        await asyncio.sleep(0.05)


async def test_settings_of_a_topic(admin: AIOKafkaAdminClient, topic: ConfigKey) -> None:
    named = ConfigResource(topic.type, topic.name, ["segment.ms", "cleanup.policy"])
    found = await admin.configs.describe([named], include_synonyms=True, include_documentation=True)
    assert sorted(found[topic]) == ["cleanup.policy", "segment.ms"]
    segment = found[topic]["segment.ms"]
    assert (segment.value, segment.type) == ("70000", ConfigType.LONG)
    assert segment.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert segment.synonyms[0].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
    assert segment.documentation
    assert found[topic]["cleanup.policy"].type is ConfigType.LIST

    changes = {
        "retention.ms": 90_000,
        "segment.ms": None,
        "cleanup.policy": ConfigChange.append("compact"),
    }
    await admin.configs.alter({topic: changes}, validate_only=True)
    await admin.configs.alter({topic: changes})
    # The brokers have a retention of their own: its value tells, not that there is one.
    own = await until(admin, topic, lambda own: own.get("retention.ms") == "90000")
    assert own["cleanup.policy"] == "delete,compact"
    assert "segment.ms" not in own
    await admin.configs.alter({topic: {"cleanup.policy": ConfigChange.subtract("delete")}})
    await until(admin, topic, lambda own: own["cleanup.policy"] == "compact")
    await admin.configs.set_exactly(topic, {"flush.messages": 7})
    own = await until(admin, topic, lambda own: own.get("flush.messages") == "7")
    assert own.get("retention.ms") != "90000"
    with pytest.raises(InvalidConfigurationError):
        await admin.configs.alter({topic: {"segment.ms": "soon"}})
    with pytest.raises(UnknownTopicOrPartitionError):
        await admin.configs.describe([("topic", "no-such")])


async def test_other_resources(admin: AIOKafkaAdminClient) -> None:
    name = f"admin-configs-{uuid.uuid4().hex[:12]}"
    node = (await admin.describe_cluster())["brokers"][0]["node_id"]
    group, metrics = ConfigKey.group(name), ConfigKey.client_metrics(name)
    every, logger = ConfigKey.broker(), ConfigKey.broker_logger(node)
    changes: dict[ConfigKey, dict[str, str]] = {
        group: {"consumer.session.timeout.ms": "46000"},
        metrics: {"interval.ms": "60000"},
        every: {"log.cleaner.delete.retention.ms": "86400001"},
        logger: {"kafka.server.KafkaApis": "WARN"},
    }
    await admin.configs.alter({key: dict(each) for key, each in changes.items()})
    for key, each in changes.items():
        ((setting, value),) = each.items()
        await until(admin, key, lambda own, n=setting, v=value: own.get(n) == v)  # type: ignore[misc]
    listed = await admin.configs.list_resources(["group", "client_metrics", "broker"])
    assert {group, metrics, ConfigKey.broker(node)} <= set(listed)
    assert await admin.configs.list_resources(["client_metrics"]) == [metrics]
    assert ConfigKey.broker_logger(node) in await admin.configs.list_resources()
    own = (await admin.configs.describe([ConfigKey.broker(node)]))[ConfigKey.broker(node)]
    assert own["log.cleaner.delete.retention.ms"].source is (
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    )
    await admin.configs.alter({key: dict.fromkeys(each) for key, each in changes.items()})
