"""Client quotas."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, QuotaEntity, QuotaFilter, QuotaName
from aiokafka.errors import (
    AdminItemsError,
    ClusterAuthorizationFailedError,
    InvalidRequestError,
    KafkaProtocolError,
    KafkaTimeoutError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
    EntityData,
)
from aiokafka.testing import Cut, Edit, Fail, FakeCluster
from tests.admin.support import make_admin, simulated

DEFAULT, ANY = QuotaName.DEFAULT, QuotaName.ANY
ALICE = QuotaEntity(user="alice")
USERS = QuotaEntity(user=DEFAULT)
APP = QuotaEntity(client_id="app")
BOTH = QuotaEntity(user="alice", client_id=DEFAULT)
ADDRESS = QuotaEntity(ip="10.0.0.1")
RATE = {"producer_byte_rate": 1000.0}


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as started:
        yield started
        assert started.failures == []


@pytest.fixture
async def admin(cluster: FakeCluster) -> AsyncIterator[AIOKafkaAdminClient]:
    async with make_admin(cluster) as client:
        yield client


async def test_limits_are_set_changed_and_removed(admin: AIOKafkaAdminClient) -> None:
    assert await admin.quotas.describe() == {}
    await admin.quotas.alter(ALICE, {"producer_byte_rate": 1000, "request_percentage": 12.5})
    await admin.quotas.alter(ALICE, {"producer_byte_rate": 2000, "consumer_byte_rate": 1})
    limits = {"producer_byte_rate": 2000.0, "request_percentage": 12.5, "consumer_byte_rate": 1.0}
    assert await admin.quotas.describe() == {ALICE: limits}
    await admin.quotas.alter(ALICE, dict.fromkeys(limits))
    assert await admin.quotas.describe() == {}


async def test_a_check_changes_nothing(admin: AIOKafkaAdminClient) -> None:
    await admin.quotas.alter(ALICE, RATE, validate_only=True)
    assert await admin.quotas.describe() == {}
    with pytest.raises(InvalidRequestError, match="nothing_rate"):
        await admin.quotas.alter(ALICE, {"nothing_rate": 1}, validate_only=True)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (QuotaFilter(), {ALICE, USERS, APP, BOTH, ADDRESS}),
        (QuotaFilter(user="alice"), {ALICE, BOTH}),
        (QuotaFilter(user="alice", strict=True), {ALICE}),
        (QuotaFilter(user=DEFAULT), {USERS}),
        (QuotaFilter(user=ANY), {ALICE, USERS, BOTH}),
        (QuotaFilter(user=ANY, client_id=ANY), {BOTH}),
        (QuotaFilter(client_id=DEFAULT), {BOTH}),
        (QuotaFilter(client_id=ANY, strict=True), {APP}),
        (QuotaFilter(ip="10.0.0.1"), {ADDRESS}),
        (QuotaFilter(ip="10.0.0.2"), set()),
    ],
)
async def test_filters(
    admin: AIOKafkaAdminClient, wanted: QuotaFilter, found: set[QuotaEntity]
) -> None:
    by_ip = {"connection_creation_rate": 5.0}
    await admin.quotas.alter_all({ALICE: RATE, USERS: RATE, APP: RATE, BOTH: RATE, ADDRESS: by_ip})
    described = await admin.quotas.describe(wanted)
    assert set(described) == found
    assert all(limits == (by_ip if e == ADDRESS else RATE) for e, limits in described.items())


async def test_a_quota_that_was_set_is_felt(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    await cluster.create_topic("t")
    await admin.quotas.alter(QuotaEntity(client_id=DEFAULT), {"producer_byte_rate": 100_000})
    delays: list[int] = []
    cluster.intercept(
        ProduceRequest, Edit(lambda response: delays.append(response.throttle_time_ms))
    )
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        await producer.send_and_wait("t", bytes(105_000))
        await producer.send_and_wait("t", b"1")
    assert delays[0] > 0
    await admin.quotas.alter(QuotaEntity(client_id=DEFAULT), {"producer_byte_rate": None})
    assert cluster.quotas.is_idle


async def test_each_entity_that_failed_is_named(admin: AIOKafkaAdminClient) -> None:
    with pytest.raises(AdminItemsError, match="user=<default>") as caught:
        await admin.quotas.alter_all({ALICE: RATE, USERS: {"producer_byte_rate": -1}})
    assert list(caught.value.errors) == [USERS]
    assert list(caught.value.results) == [ALICE]
    assert await admin.quotas.describe() == {ALICE: RATE}
    with pytest.raises(InvalidRequestError, match="ip=10"):
        await admin.quotas.alter(ADDRESS, RATE)


async def test_what_may_pass_is_asked_again(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    def late(response: Any) -> None:
        response.entries[0].error_code = RequestTimedOutError.errno

    cluster.intercept(AlterClientQuotasRequest, Edit(late), times=1)
    cluster.intercept(DescribeClientQuotasRequest, Fail(RequestTimedOutError), times=2)
    await admin.quotas.alter_all({ALICE: RATE, APP: RATE})
    first, again = cluster.requests(AlterClientQuotasRequest)
    assert [len(seen.request.entries) for seen in (first, again)] == [2, 1]
    cluster.intercept(AlterClientQuotasRequest, Cut(handled=True), times=1)
    await admin.quotas.alter(USERS, RATE)
    assert set(await admin.quotas.describe()) == {ALICE, APP, USERS}


@simulated
async def test_kinds_that_are_unknown_are_not_guessed() -> None:
    def strange(response: Any) -> None:
        response.entries[0].entity = [EntityData(entity_type="moon", entity_name="1")]

    def impossible(response: Any) -> None:
        response.entries[0].entity = []

    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        await admin.quotas.alter(ALICE, RATE)
        for change, text in ((strange, "'moon'"), (impossible, "invalid entity")):
            with cluster.intercept(DescribeClientQuotasRequest, Edit(change)):
                with pytest.raises((KafkaProtocolError, KafkaTimeoutError), match=text):
                    await admin.quotas.describe(timeout_ms=200)


async def test_a_user_without_rights(cluster: FakeCluster, admin: AIOKafkaAdminClient) -> None:
    cluster.acls.withdraw("cluster")
    with pytest.raises(ClusterAuthorizationFailedError):
        await admin.quotas.describe()
    with pytest.raises(ClusterAuthorizationFailedError):
        await admin.quotas.alter(ALICE, RATE)


async def test_brokers_without_the_api() -> None:
    async with FakeCluster(as_version="2.1") as cluster, make_admin(cluster) as admin:
        with pytest.raises(UnsupportedVersionError, match="DescribeClientQuotas"):
            await admin.quotas.describe()
        with pytest.raises(UnsupportedVersionError, match="AlterClientQuotas"):
            await admin.quotas.alter(ALICE, RATE)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({}, ValueError, "give a user"),
        ({"user": ""}, ValueError, "user: must not be empty"),
        ({"user": 1}, TypeError, "user: must be a str"),
        ({"user": ANY}, ValueError, "for filters only"),
        ({"user": "a", "ip": "b"}, ValueError, "ip: cannot be combined"),
    ],
)
def test_entities_that_cannot_be(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        QuotaEntity(**options)


@pytest.mark.parametrize(
    ("limits", "error", "text"),
    [
        ({"": 1}, ValueError, "name of a quota"),
        ({"a": "1"}, TypeError, "a='1'"),
        ({"a": True}, TypeError, "a=True"),
        ({"a": float("nan")}, ValueError, "finite"),
    ],
)
async def test_limits_that_cannot_be(
    admin: AIOKafkaAdminClient, limits: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        await admin.quotas.alter(ALICE, limits)


async def test_wrong_arguments(cluster: FakeCluster, admin: AIOKafkaAdminClient) -> None:
    with pytest.raises(TypeError, match="entity"):
        await admin.quotas.alter("alice", RATE)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="filter"):
        await admin.quotas.describe("alice")  # type: ignore[arg-type]
    await admin.quotas.alter_all({})
    assert not cluster.requests(AlterClientQuotasRequest)
    assert str(BOTH) == "user=alice, client-id=<default>"
    assert BOTH.as_dict() == {"user": "alice", "client_id": "DEFAULT", "ip": None}
