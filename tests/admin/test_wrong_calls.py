"""Calls with arguments that cannot be."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka.admin import AIOKafkaAdminClient, ConfigResource, NewTopic, ResetRule
from aiokafka.errors import (
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka.structs import TopicPartition
from aiokafka.testing import FakeCluster
from tests.admin.support import make_admin

TP = TopicPartition("t", 0)

# -- times -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [float("nan"), 10**400])
async def test_a_time_that_cannot_be_is_refused(wrong: float) -> None:
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        async with make_admin(cluster) as admin:
            with pytest.raises(ValueError, match="timeout_ms="):
                await admin.topics.list(timeout_ms=wrong)  # with NaN it never returned
            with pytest.raises(ValueError, match="timeout_ms="):
                await admin.create_topics([NewTopic("new", 1, 1)], timeout_ms=wrong)  # type: ignore[arg-type]
            assert await admin.list_topics() == ["t"]


@pytest.mark.parametrize("wrong", ["500", True, [1]])
async def test_a_time_is_a_number(wrong: Any) -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        with pytest.raises(TypeError, match="timeout_ms="):
            await admin.groups.describe(["g"], timeout_ms=wrong)


async def test_a_time_may_be_over() -> None:
    """As what is left of a time that a program has for all it does."""
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        with pytest.raises(KafkaTimeoutError):
            await admin.topics.list(timeout_ms=-20)


class Whole:
    """A whole number that is no int, as those of NumPy."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value

    def __float__(self) -> float:
        return float(self._value)


async def test_whole_numbers_of_other_kinds_will_do() -> None:
    zero: Any = Whole(0)
    long: Any = Whole(5000)
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("t")
        assert await admin.records.delete({TP: zero}, timeout_ms=long) == {TP: 0}
        assert ResetRule.to_offset(zero) == ResetRule.to_offset(0)
        (found,) = (await admin.brokers.log_dirs([zero])).values()
        assert found == (await admin.brokers.log_dirs([0]))[0]


async def test_a_time_may_be_endless() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        endless = float("inf")
        await admin.topics.create([NewTopic("t", 1, 1)], timeout_ms=endless)
        assert await admin.records.delete({TP: 0}, timeout_ms=endless) == {TP: 0}
        with pytest.raises(UnknownTopicOrPartitionError):
            await admin.topics.delete(["nope"], timeout_ms=endless)


# -- what calls are about --------------------------------------------------------------------------


WRONG: dict[str, tuple[str, Callable[[AIOKafkaAdminClient], Awaitable[object]]]] = {
    "a name to create": ("topics: ", lambda admin: admin.topics.create(["x"])),  # type: ignore[list-item]
    "one to create": ("topics: ", lambda admin: admin.topics.create(NewTopic("x", 1, 1))),  # type: ignore[arg-type]
    "a name for create_topics": ("new_topics: ", lambda admin: admin.create_topics(["x"])),  # type: ignore[list-item]
    "a pattern": ("pattern=", lambda admin: admin.topics.list(5)),  # type: ignore[arg-type]
    "no name to delete": ("topics: ", lambda admin: admin.delete_topics([None])),  # type: ignore[list-item]
    "an id to wait for": (
        "topics: ",
        lambda admin: admin.topics.wait_until_ready([uuid.uuid4()]),  # type: ignore[list-item]
    ),
    "text for a number": (
        "topic_partitions: ",
        lambda admin: admin.create_partitions({"t": "3"}),  # type: ignore[dict-item]
    ),
    "an offset for RecordsToDelete": (
        "records_to_delete: ",
        lambda admin: admin.delete_records({TP: 5}),  # type: ignore[dict-item]
    ),
    "no offset": ("before: ", lambda admin: admin.records.delete({TP: None})),  # type: ignore[dict-item]
    "a name for a resource": (
        "config_resources: ",
        lambda admin: admin.describe_configs(["t"]),  # type: ignore[list-item]
    ),
    "one resource": (
        "config_resources: ",
        lambda admin: admin.alter_configs(ConfigResource("topic", "t")),  # type: ignore[arg-type]
    ),
    "a digit for a broker": (
        "the id of a broker: '0'",
        lambda admin: admin.list_consumer_groups("0"),
    ),  # type: ignore[arg-type]
    "a user alone": ("credentials: ", lambda admin: admin.users.delete("alice")),  # type: ignore[arg-type]
    "a list to apply": ("declared: ", lambda admin: admin.topics.apply(["t"])),  # type: ignore[arg-type]
    "a field to apply": ("t: parts: ", lambda admin: admin.topics.apply({"t": {"parts": 3}})),
    "a number to apply": ("t=3: ", lambda admin: admin.topics.apply({"t": 3})),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("case", WRONG)
async def test_an_error_names_the_argument(case: str) -> None:
    text, call = WRONG[case]
    async with FakeCluster() as cluster:
        await cluster.create_topic("t")
        async with make_admin(cluster) as admin:
            with pytest.raises(TypeError, match=text):
                await call(admin)
            assert await admin.list_topics() == ["t"]


def test_a_rule_takes_whole_numbers() -> None:
    with pytest.raises(TypeError, match="count: "):
        ResetRule.shift_by(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="ago: "):
        ResetRule.duration(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="offset: "):
        ResetRule.to_offset("3")  # type: ignore[arg-type]


# -- old brokers -----------------------------------------------------------------------------------


async def test_all_offsets_of_a_group_need_a_newer_broker() -> None:
    async with FakeCluster(as_version="0.9") as cluster:
        await cluster.create_topic("t")
        async with make_admin(cluster, request_timeout_ms=5000) as admin:
            with pytest.raises(UnsupportedVersionError, match="name the partitions"):
                await admin.list_consumer_group_offsets("g")
            found = await admin.list_consumer_group_offsets("g", partitions=[TP])
            assert found[TP].offset == -1


# -- lists in place of dicts -----------------------------------------------------------------------

WITH_DICTS: list[tuple[str, Callable[[AIOKafkaAdminClient, Any], Awaitable[Any]]]] = [
    ("topic_partitions", lambda admin, given: admin.create_partitions(given)),
    ("records_to_delete", lambda admin, given: admin.delete_records(given)),
    ("topics", lambda admin, given: admin.topics.create_partitions(given)),
    ("moves", lambda admin, given: admin.topics.reassign(given)),
    ("moves", lambda admin, given: admin.brokers.move_replicas(0, given)),
    ("levels", lambda admin, given: admin.brokers.update_features(given)),
    ("before", lambda admin, given: admin.records.delete(given)),
    ("places", lambda admin, given: admin.offsets.list(given)),
    ("offsets", lambda admin, given: admin.groups.alter_offsets("g", given)),
    ("offsets", lambda admin, given: admin.groups.alter_share_offsets("g", given)),
    ("changes", lambda admin, given: admin.configs.alter(given)),
    ("changes", lambda admin, given: admin.quotas.alter_all(given)),
]


@pytest.mark.parametrize(("argument", "call"), WITH_DICTS)
async def test_a_list_is_no_dict(
    argument: str, call: Callable[[AIOKafkaAdminClient, Any], Awaitable[Any]]
) -> None:
    """What was raised named an attribute that a list does not have, and no argument."""
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        with pytest.raises(TypeError, match=f"^{argument}: must be a dict, not list$"):
            await call(admin, ["t"])
