"""Configurations of the admin client: what each call asks, returns and raises."""

from __future__ import annotations

import pytest

from aiokafka.admin import (
    ConfigChange,
    ConfigKey,
    ConfigResource,
    ConfigResourceType,
    ConfigSource,
    ConfigType,
)
from aiokafka.errors import (
    AdminItemsError,
    BrokerIdNotRegistered,
    InvalidConfigurationError,
    InvalidRequestError,
    NotControllerError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.configs import (
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from aiokafka.testing import Edit, Fail, FakeCluster
from tests.admin.support import make_admin

TOPIC = ConfigKey.topic("t")


async def values(admin: object, key: ConfigKey) -> dict[str, str | None]:
    found = await admin.configs.describe([key])  # type: ignore[attr-defined]
    return {name: each.value for name, each in found[key].items() if not each.is_default}


async def test_settings_are_described() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", config={"retention.ms": 5})
        found = (await admin.configs.describe([("topic", "t")]))[TOPIC]
        kept = found["retention.ms"]
        assert (kept.value, kept.source) == ("5", ConfigSource.DYNAMIC_TOPIC_CONFIG)
        assert kept.type is ConfigType.INT
        assert not kept.is_default
        assert kept.documentation is None
        assert found["segment.ms"].is_default
        named = ConfigResource("topic", "t", ["retention.ms"])
        told = await admin.configs.describe(
            [named], include_synonyms=True, include_documentation=True
        )
        assert list(told[TOPIC]) == ["retention.ms"]
        assert told[TOPIC]["retention.ms"].documentation
        assert told[TOPIC]["retention.ms"].synonyms[0].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        assert told[TOPIC]["retention.ms"].as_dict()["source"] == "DYNAMIC_TOPIC_CONFIG"


@pytest.mark.parametrize("version", ["0.11", "1.1", "2.8", "3.9", "4.3"])
async def test_settings_of_brokers_of_any_age(version: str) -> None:
    async with FakeCluster(as_version=version) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", config={"retention.ms": 5})
        found = (
            await admin.configs.describe([TOPIC], include_synonyms=True, include_documentation=True)
        )[TOPIC]
        assert found["segment.ms"].is_default
        assert found["retention.ms"].value == "5"
        assert not found["retention.ms"].is_default
        await admin.configs.set_exactly(TOPIC, {"segment.ms": 1000})
        assert await values(admin, TOPIC) == {"segment.ms": "1000"}


async def test_each_broker_is_asked_about_itself() -> None:
    async with FakeCluster(3) as cluster, make_admin(cluster) as admin:
        keys = [ConfigKey.broker(2), ConfigKey.broker_logger(1), ConfigKey.broker()]
        found = await admin.configs.describe(keys)
        assert list(found) == keys
        asked = {
            (seen.broker_id, each.resource_name)
            for seen in cluster.requests(DescribeConfigsRequest)
            for each in seen.request.resources
        }
        assert {(2, "2"), (1, "1")} <= asked
        assert found[keys[1]]["root"].source is ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG


async def test_single_settings_are_changed() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t", config={"retention.ms": 5, "segment.ms": 7})
        changes = {
            "retention.ms": 6_000,
            "segment.ms": None,
            "preallocate": True,
            "cleanup.policy": ConfigChange.append("compact"),
        }
        await admin.configs.alter({TOPIC: changes}, validate_only=True)
        assert await values(admin, TOPIC) == {"retention.ms": "5", "segment.ms": "7"}
        await admin.configs.alter({TOPIC: changes})
        assert await values(admin, TOPIC) == {
            "retention.ms": "6000",
            "preallocate": "true",
            "cleanup.policy": "delete,compact",
        }
        await admin.configs.alter(
            {TOPIC: {"cleanup.policy": ConfigChange.subtract("delete"), "preallocate": None}}
        )
        assert await values(admin, TOPIC) == {"retention.ms": "6000", "cleanup.policy": "compact"}
        await admin.configs.set_exactly(TOPIC, {"segment.ms": "9"}, validate_only=True)
        await admin.configs.set_exactly(TOPIC, {"segment.ms": "9"})
        assert await values(admin, TOPIC) == {"segment.ms": "9"}
        await admin.configs.set_exactly(TOPIC, {})
        assert await values(admin, TOPIC) == {}


@pytest.mark.parametrize(
    ("key", "name", "value"),
    [
        (ConfigKey.broker(), "min.insync.replicas", "2"),
        (ConfigKey.broker_logger(0), "root", "DEBUG"),
        (ConfigKey.group("g"), "consumer.session.timeout.ms", "50000"),
        (ConfigKey.client_metrics("m"), "interval.ms", "1000"),
    ],
    ids=str,
)
async def test_settings_of_what_is_no_topic(key: ConfigKey, name: str, value: str) -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await admin.configs.alter({key: {name: value}})
        assert (await admin.configs.describe([key]))[key][name].value == value
        await admin.configs.alter({key: {name: ConfigChange.delete()}})
        found = (await admin.configs.describe([key]))[key]
        assert name not in found or found[name].value != value
        with pytest.raises((InvalidConfigurationError, InvalidRequestError)):
            await admin.configs.alter({key: {"no.such": value}})


async def test_one_of_several_resources_fails() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        missing = ConfigKey.topic("missing")
        with pytest.raises(AdminItemsError, match="topic missing: ") as caught:
            await admin.configs.alter({TOPIC: {"segment.ms": 5}, missing: {"segment.ms": 5}})
        assert list(caught.value.results) == [TOPIC]
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.configs.describe([missing])
        with pytest.raises(InvalidConfigurationError):
            await admin.configs.alter({TOPIC: {"segment.ms": "soon"}})
        with pytest.raises(InvalidRequestError):
            await admin.configs.set_exactly(ConfigKey.broker_logger(0), {"root": "INFO"})


async def test_only_what_may_pass_is_asked_again() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        await cluster.create_topic("u")

        def moved(response: object) -> None:
            for each in response.responses:  # type: ignore[attr-defined]
                if each.resource_name == "u":
                    each.error_code = NotControllerError.errno

        cluster.intercept(IncrementalAlterConfigsRequest, Edit(moved), times=1)
        await admin.configs.alter({TOPIC: {"segment.ms": 5}, ("topic", "u"): {"segment.ms": 6}})
        first, again = cluster.requests(IncrementalAlterConfigsRequest)
        assert [len(seen.request.resources) for seen in (first, again)] == [2, 1]


async def test_a_broker_that_stays_away() -> None:
    async with FakeCluster(2) as cluster, make_admin(cluster) as admin:
        await cluster.stop_broker(1)
        with pytest.raises(AdminItemsError) as caught:
            await admin.configs.describe([ConfigKey.broker(1), ConfigKey.broker(0)])
        assert list(caught.value.results) == [ConfigKey.broker(0)]
        assert isinstance(caught.value.errors[ConfigKey.broker(1)], BrokerIdNotRegistered)


async def test_resources_of_unknown_types_are_not_taken_for_others() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")

        def strange(response: object) -> None:
            response.results[0].resource_type = 77  # type: ignore[attr-defined]

        cluster.intercept(DescribeConfigsRequest, Edit(strange), times=1)
        assert await admin.configs.describe([TOPIC])


async def test_resources_are_listed() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        await admin.configs.alter(
            {
                ConfigKey.client_metrics("m"): {"interval.ms": 1000},
                ConfigKey.group("g"): {"consumer.session.timeout.ms": 50_000},
            }
        )
        assert await admin.configs.list_resources() == [
            TOPIC,
            ConfigKey.broker(0),
            ConfigKey.broker_logger(0),
            ConfigKey.client_metrics("m"),
            ConfigKey.group("g"),
        ]
        listed = await admin.configs.list_resources(["group", ConfigResourceType.TOPIC])
        assert listed == [TOPIC, ConfigKey.group("g")]


async def test_old_brokers_list_client_metrics_only() -> None:
    async with FakeCluster(as_version="3.9") as cluster, make_admin(cluster) as admin:
        metrics = ConfigKey.client_metrics("m")
        await admin.configs.alter({metrics: {"interval.ms": 1000}})
        assert await admin.configs.list_resources(["client_metrics"]) == [metrics]
        with pytest.raises(UnsupportedVersionError, match=r"needs? Kafka 4\.1"):
            await admin.configs.list_resources()
    async with FakeCluster(as_version="2.1") as cluster, make_admin(cluster) as admin:
        with pytest.raises(UnsupportedVersionError, match="ListConfigResources"):
            await admin.configs.list_resources()
        with pytest.raises(UnsupportedVersionError, match="IncrementalAlterConfigs"):
            await admin.configs.alter({TOPIC: {"a": 1}, ("topic", "u"): {"a": 1}})


async def test_nothing_is_asked_about_nothing() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        cluster.intercept(DescribeConfigsRequest, Fail(InvalidRequestError))
        assert await admin.configs.describe([]) == {}
        await admin.configs.alter({})


async def test_wrong_arguments() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        with pytest.raises(TypeError, match="resources: must be several"):
            await admin.configs.describe(TOPIC)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="must be one of TOPIC"):
            await admin.configs.describe([("tpoic", "t")])
        with pytest.raises(TypeError, match="must be a ConfigKey"):
            await admin.configs.describe([7])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="must be the id of a broker"):
            await admin.configs.describe([("broker", "one")])
        with pytest.raises(ValueError, match="must be the id of a broker"):
            await admin.configs.describe([("broker_logger", "")])
        with pytest.raises(TypeError, match="a=b'x': must be a str"):
            await admin.configs.alter({TOPIC: {"a": b"x"}})  # type: ignore[dict-item]
        with pytest.raises(TypeError, match="a=None: must be a str"):
            await admin.configs.set_exactly(TOPIC, {"a": None})  # type: ignore[dict-item]


def test_keys_print_well() -> None:
    assert [str(TOPIC), str(ConfigKey.broker(1)), str(ConfigKey.broker())] == [
        "topic t",
        "broker 1",
        "every broker",
    ]
