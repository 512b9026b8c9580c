"""Access control lists: what is created, found and deleted, and what brokers enforce."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AIOKafkaAdminClient,
    PatternType,
    ResourcePattern,
    ResourceType,
)
from aiokafka.errors import (
    AdminItemsError,
    ClusterAuthorizationFailedError,
    InvalidRequestError,
    KafkaTimeoutError,
    NotControllerError,
    PolicyViolationError,
    RequestTimedOutError,
    SecurityDisabled,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.acls import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from aiokafka.testing import Cut, Edit, FakeCluster, Silence
from tests.admin.support import make_admin, simulated

SETTINGS = {"authorizer.class.name": "an.Authorizer", "super.users": "User:ANONYMOUS"}
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED

ORDERS = ResourcePattern(TOPIC, "orders")
ALL_LOGS = ResourcePattern(TOPIC, "log-", PREFIXED)
EVERY = ResourcePattern(TOPIC, "*")
FIRST = AclBinding(ORDERS, "User:alice", READ)
SECOND = AclBinding(ALL_LOGS, "User:bob", WRITE, AclPermission.DENY, "10.0.0.1")
THIRD = AclBinding(EVERY, "User:*", DESCRIBE)
BINDINGS = [FIRST, SECOND, THIRD]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(brokers=2, config=SETTINGS) as started:
        yield started
        assert started.failures == []


@pytest.fixture
async def admin(cluster: FakeCluster) -> AsyncIterator[AIOKafkaAdminClient]:
    async with make_admin(cluster) as client:
        yield client


async def test_created_entries_are_described_and_deleted(admin: AIOKafkaAdminClient) -> None:
    await admin.acls.create([*BINDINGS, FIRST])
    await admin.acls.create([FIRST])
    assert await admin.acls.describe() == BINDINGS
    wanted = AclFilter.of(SECOND)
    assert await admin.acls.delete([wanted]) == {wanted: [SECOND]}
    assert await admin.acls.delete([wanted]) == {wanted: []}
    every = AclFilter()
    assert await admin.acls.delete([every]) == {every: [FIRST, THIRD]}
    assert await admin.acls.describe() == []


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (AclFilter(TOPIC, "orders", PatternType.MATCH), [FIRST, THIRD]),
        (AclFilter(TOPIC, "log-1", PatternType.MATCH), [SECOND, THIRD]),
        (AclFilter(TOPIC, "orders"), [FIRST]),
        (AclFilter(TOPIC, "log-", LITERAL), []),
        (AclFilter(TOPIC, "log-", PREFIXED), [SECOND]),
        (AclFilter(GROUP), []),
        (AclFilter(principal="User:alice"), [FIRST]),
        (AclFilter(host="10.0.0.1"), [SECOND]),
        (AclFilter(operation=DESCRIBE), [THIRD]),
        (AclFilter(permission=AclPermission.DENY), [SECOND]),
    ],
)
async def test_filters(
    admin: AIOKafkaAdminClient, wanted: AclFilter, found: list[AclBinding]
) -> None:
    await admin.acls.create(BINDINGS)
    assert await admin.acls.describe(wanted) == found
    assert await admin.acls.delete([wanted]) == {wanted: found}


async def test_entries_are_plain_data() -> None:
    assert SECOND.as_dict() == {
        "pattern": {"resource_type": "TOPIC", "name": "log-", "pattern_type": "PREFIXED"},
        "principal": "User:bob",
        "operation": "WRITE",
        "permission": "DENY",
        "host": "10.0.0.1",
    }


async def test_each_entry_that_failed_is_named(admin: AIOKafkaAdminClient) -> None:
    wrong = AclBinding(ResourcePattern(ResourceType.CLUSTER, "mine"), "User:alice", READ)
    with pytest.raises(AdminItemsError, match="1 of 2 items failed") as caught:
        await admin.acls.create([FIRST, wrong])
    assert list(caught.value.errors) == [wrong]
    assert list(caught.value.results) == [FIRST]
    with pytest.raises(InvalidRequestError, match="kafka-cluster"):
        await admin.acls.create([wrong])


async def test_what_may_pass_is_asked_again(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    def moved(response: Any) -> None:
        response.results[1].error_code = NotControllerError.errno

    cluster.intercept(CreateAclsRequest, Edit(moved), times=1)
    await admin.acls.create([FIRST, SECOND])
    counts = [len(seen.request.creations) for seen in cluster.requests(CreateAclsRequest)]
    assert counts == [2, 1]
    cluster.intercept(CreateAclsRequest, Cut(handled=True), times=1)
    await admin.acls.create([THIRD])
    assert await admin.acls.describe() == BINDINGS


async def test_deletions_of_all_attempts_are_returned(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    """An entry that could not be deleted at once is: both belong to the result."""
    await admin.acls.create(BINDINGS)
    first = True

    def half(response: Any) -> None:
        nonlocal first
        matching = response.filter_results[0].matching_acls
        if first:
            matching[0].error_code = NotControllerError.errno
            cluster.acls.entries.add(next(iter(stored)))
        first = False

    stored = list(cluster.acls.entries)
    cluster.intercept(DeleteAclsRequest, Edit(half), times=1)
    wanted = AclFilter(host="*")
    assert await admin.acls.delete([wanted]) == {wanted: [FIRST, THIRD]}


async def test_an_entry_that_went_although_its_deletion_failed_is_not_waited_for(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    """The broker may delete an entry later than it said that it had no time for it."""
    await admin.acls.create(BINDINGS)

    def late(response: Any) -> None:
        response.filter_results[0].matching_acls[0].error_code = RequestTimedOutError.errno

    cluster.intercept(DeleteAclsRequest, Edit(late), times=1)
    assert await admin.acls.delete([AclFilter()]) == {AclFilter(): [SECOND, THIRD]}


async def test_an_entry_that_cannot_be_deleted_is_told(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    await admin.acls.create(BINDINGS)

    def refused(response: Any) -> None:
        response.filter_results[0].matching_acls[1].error_code = PolicyViolationError.errno

    cluster.intercept(DeleteAclsRequest, Edit(refused))
    with pytest.raises(AdminItemsError) as caught:
        await admin.acls.delete([AclFilter()])
    assert list(caught.value.errors) == [SECOND]
    assert list(caught.value.results) == [FIRST, THIRD]


@pytest.mark.parametrize("request_class", [CreateAclsRequest, DeleteAclsRequest])
@simulated
async def test_results_that_are_too_few_are_an_error(request_class: type) -> None:
    def cut(response: Any) -> None:
        (response.results if request_class is CreateAclsRequest else response.filter_results).pop()

    async with FakeCluster(brokers=2, config=SETTINGS) as cluster, make_admin(cluster) as admin:
        cluster.intercept(request_class, Edit(cut))
        with pytest.raises((AdminItemsError, KafkaTimeoutError), match="1 results for 2 items"):
            if request_class is CreateAclsRequest:
                await admin.acls.create([FIRST, SECOND], timeout_ms=200)
            else:
                await admin.acls.delete([AclFilter(), AclFilter(TOPIC)], timeout_ms=200)


@simulated
async def test_a_silent_broker_does_not_stop_it() -> None:
    async with FakeCluster(brokers=2, config=SETTINGS) as cluster, make_admin(cluster) as admin:
        cluster.intercept(DescribeAclsRequest, Silence(), times=1)
        assert await admin.acls.describe(timeout_ms=900) == []
        cluster.intercept(DescribeAclsRequest, Silence())
        with pytest.raises(KafkaTimeoutError):
            await admin.acls.describe(timeout_ms=200)


async def test_a_cluster_without_an_authorizer() -> None:
    async with FakeCluster() as cluster, make_admin(cluster) as admin:
        with pytest.raises(SecurityDisabled):
            await admin.acls.describe()
        with pytest.raises(SecurityDisabled):
            await admin.acls.create([FIRST])
        with pytest.raises(SecurityDisabled):
            await admin.acls.delete([AclFilter()])


async def test_a_user_without_rights() -> None:
    config = {"authorizer.class.name": "an.Authorizer"}
    async with FakeCluster(config=config) as cluster, make_admin(cluster) as admin:
        with pytest.raises(ClusterAuthorizationFailedError):
            await admin.acls.describe()
        with pytest.raises(ClusterAuthorizationFailedError):
            await admin.acls.create([FIRST])
        with pytest.raises(ClusterAuthorizationFailedError):
            await admin.acls.delete([AclFilter()])


async def test_entries_are_enforced() -> None:
    """What is denied stays denied; what nothing is about is allowed by the setting."""
    config = {"authorizer.class.name": "a", "allow.everyone.if.no.acl.found": True}
    async with FakeCluster(config=config) as cluster, make_admin(cluster) as admin:
        await cluster.create_topic("orders")
        await cluster.create_topic("other")
        await admin.acls.create([AclBinding(ORDERS, "User:ANONYMOUS", DESCRIBE)])
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("other", b"1")
            with pytest.raises(TopicAuthorizationFailedError):
                await producer.send_and_wait("orders", b"1")
            allowed = AclBinding(ORDERS, "User:ANONYMOUS", WRITE)
            await admin.acls.create([allowed])
            await producer.send_and_wait("orders", b"1")
            denied = AclBinding(EVERY, "User:*", WRITE, AclPermission.DENY)
            await admin.acls.create([denied])
            with pytest.raises(TopicAuthorizationFailedError):
                await producer.send_and_wait("orders", b"1")


async def test_brokers_that_know_no_patterns() -> None:
    async with (
        FakeCluster(as_version="1.1", config=SETTINGS) as cluster,
        make_admin(cluster) as admin,
    ):
        await admin.acls.create([FIRST, THIRD])
        assert await admin.acls.describe() == [FIRST, THIRD]
        with pytest.raises(UnsupportedVersionError, match=r"PREFIXED.*Kafka 2\.0"):
            await admin.acls.create([SECOND])
        with pytest.raises(UnsupportedVersionError, match=r"MATCH.*Kafka 2\.0"):
            await admin.acls.describe(AclFilter(pattern_type=PatternType.MATCH))
        with pytest.raises(UnsupportedVersionError, match=r"PREFIXED.*Kafka 2\.0"):
            await admin.acls.delete([AclFilter(pattern_type=PREFIXED)])
        assert await admin.acls.delete([AclFilter()]) == {AclFilter(): [FIRST, THIRD]}


@pytest.mark.parametrize("release", ["0.11", "2.1", "2.8", "3.9", "4.0"])
async def test_brokers_of_every_age(release: str) -> None:
    async with (
        FakeCluster(as_version=release, config=SETTINGS) as cluster,
        make_admin(cluster) as admin,
    ):
        await admin.acls.create([FIRST])
        assert await admin.acls.describe(AclFilter.of(FIRST)) == [FIRST]
        assert await admin.acls.delete([AclFilter(TOPIC)]) == {AclFilter(TOPIC): [FIRST]}


async def test_brokers_without_the_api() -> None:
    async with (
        FakeCluster(as_version="0.10.2", config=SETTINGS) as cluster,
        make_admin(cluster) as admin,
    ):
        with pytest.raises(UnsupportedVersionError, match="DescribeAcls"):
            await admin.acls.describe()
        with pytest.raises(UnsupportedVersionError, match="CreateAcls"):
            await admin.acls.create([FIRST])
        with pytest.raises(UnsupportedVersionError, match="DeleteAcls"):
            await admin.acls.delete([AclFilter()])


@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        ("orders", TypeError, "bindings: must be an AclBinding"),
        (AclBinding(ORDERS, "alice", READ), ValueError, "User:alice"),
        (AclBinding(ORDERS, "User:alice", AclOperation.ANY), ValueError, "AclOperation.ANY"),
        (AclBinding(ORDERS, "User:alice", 3), TypeError, "AclOperation"),  # type: ignore[arg-type]
        (
            AclBinding(ResourcePattern(TOPIC, "a", PatternType.MATCH), "User:alice", READ),
            ValueError,
            "PatternType.MATCH",
        ),
        (
            AclBinding(ResourcePattern(TOPIC, ""), "User:alice", READ),
            ValueError,
            "bindings: name: ",
        ),
        (AclBinding(ORDERS, "User:alice", READ, host=""), ValueError, "bindings: host: "),
    ],
)
async def test_entries_that_cannot_be(
    admin: AIOKafkaAdminClient, wrong: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        await admin.acls.create([wrong])


async def test_filters_that_cannot_be(admin: AIOKafkaAdminClient) -> None:
    with pytest.raises(TypeError, match="filter: must be an AclFilter"):
        await admin.acls.describe("orders")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"filters: ResourceType\.UNKNOWN"):
        await admin.acls.delete([AclFilter(ResourceType.UNKNOWN)])
    with pytest.raises(TypeError, match="of PatternType"):
        await admin.acls.delete([AclFilter(TOPIC, "a", 3)])  # type: ignore[arg-type]
    assert await admin.acls.delete([]) == {}
    await admin.acls.create([])


async def test_numbers_that_are_not_known_yet(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    await admin.acls.create([FIRST])

    def later(response: Any) -> None:
        response.resources[0].resource_type = 99
        response.resources[0].acls[0].operation = 99

    cluster.intercept(DescribeAclsRequest, Edit(later))
    (found,) = await admin.acls.describe()
    assert found.pattern.resource_type is ResourceType.UNKNOWN
    assert found.operation is AclOperation.UNKNOWN
