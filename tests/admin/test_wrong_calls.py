"""Calls with arguments that cannot be."""

from __future__ import annotations

import inspect
import operator
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from aiokafka.admin import (
    AclFilter,
    AIOKafkaAdminClient,
    ConfigKey,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResetRule,
    SendTo,
)
from aiokafka.errors import (
    KafkaTimeoutError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.groups import ListGroupsRequest
from aiokafka.testing import FakeCluster
from tests.admin.operations import ALICE, CALLS, CREDENTIAL, QUOTA, TP
from tests.admin.support import make_admin

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
        "broker_ids: must be several integers, not one str",
        lambda admin: admin.list_consumer_groups("0"),  # type: ignore[arg-type]
    ),
    "a user alone": ("credentials: ", lambda admin: admin.users.delete("alice")),  # type: ignore[arg-type]
    "a list to apply": ("declared: ", lambda admin: admin.topics.apply(["t"])),  # type: ignore[arg-type]
    "a field to apply": (
        "declared: t: parts: ",
        lambda admin: admin.topics.apply({"t": {"parts": 3}}),
    ),
    "a number to apply": ("declared: t=3: ", lambda admin: admin.topics.apply({"t": 3})),  # type: ignore[dict-item]
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
    with pytest.raises(TypeError, match=r"count=1\.5: "):
        ResetRule.shift_by(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"ago=1\.5: "):
        ResetRule.duration(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="offset='3': "):
        ResetRule.to_offset("3")  # type: ignore[arg-type]


# -- every argument of every operation ---------------------------------------------------------

# Accepted values of the required arguments, by the name of the argument, or of operation and
# argument.
REQUIRED: dict[str, Any] = {
    "before": {TP: 1},
    "bindings": [ALICE],
    "broker_id": 0,
    "changes": {ConfigKey.topic("t"): {"retention.ms": 1000}},
    "config_resources": [ConfigResource("topic", "t", {})],
    "configs": {"retention.ms": 1000},
    "controller_id": 9,
    "credentials": [("alice", "SCRAM-SHA-256")],
    "declared": {},
    "directory_id": uuid.UUID(int=7),
    "entity": QUOTA,
    "filters": [AclFilter()],
    "group_id": "g",
    "group_ids": ["g"],
    "group_instance_ids": ["m"],
    "groups": ["g"],
    "hmac": b"hmac",
    "levels": {"a": 1},
    "listeners": [("C", "localhost", 9093)],
    "moves": {TP: [0]},
    "new_topics": [NewTopic("n", 1, 1)],
    "offsets": {TP: 1},
    "partition": TP,
    "partitions": [TP],
    "places": {TP: OffsetSpec.LATEST},
    "producer_epoch": 0,
    "producer_id": 7,
    "records_to_delete": {},
    "request": ListGroupsRequest(),
    "resource": ConfigKey.topic("t"),
    "resources": [ConfigKey.topic("t")],
    "rule": ResetRule.earliest(),
    "topic_partitions": {"t": 3},
    "topics": ["t"],
    "transactional_id": "x",
    "transactional_ids": ["x"],
    "voter_id": 9,
    "brokers.move_replicas.moves": {TP: "/elsewhere"},
    "quotas.alter.changes": {"producer_byte_rate": 1.0},
    "quotas.alter_all.changes": {QUOTA: {"producer_byte_rate": 1.0}},
    "topics.create.topics": [NewTopic("n", 1, 1)],
    "topics.create_partitions.topics": {"t": 3},
    "users.upsert.credentials": [CREDENTIAL],
}

THING = object()
# No argument may be one of these. None may be, if it is the default.
NEVER = [THING, [THING], {THING: THING}, [[]], None]


@pytest.mark.parametrize("name", sorted(CALLS))
async def test_every_argument_is_named_before_any_request(name: str) -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        operation = operator.attrgetter(name)(admin)
        parameters = inspect.signature(operation).parameters
        needed = {
            each: REQUIRED.get(f"{name}.{each}", REQUIRED.get(each))
            for each, parameter in parameters.items()
            if parameter.default is parameter.empty
        }
        before = len(cluster.requests())
        for argument, parameter in parameters.items():
            for wrong in NEVER:
                if wrong is None and (parameter.default is None or argument == "reason"):
                    continue
                with pytest.raises((TypeError, ValueError)) as caught:
                    await operation(**{**needed, argument: wrong})
                assert str(caught.value).startswith(argument), caught.value
        assert len(cluster.requests()) == before


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (SendTo.broker, "broker_id"),
        (SendTo.leader, "partition"),
        (SendTo.coordinator, "group_id"),
        (SendTo.transaction_coordinator, "transactional_id"),
        (ResetRule.copy, "group_id"),
        (AclFilter.of, "binding"),
        (lambda wrong: NewTopic("t", 1, 1, topic_configs=wrong), "topic_configs"),
        (lambda wrong: NewTopic("t", -1, -1, wrong), "replica_assignments"),
    ],
)
def test_arguments_of_values_are_named(make: Callable[[Any], object], argument: str) -> None:
    with pytest.raises(TypeError, match=f"^{argument}"):
        make(THING)


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
