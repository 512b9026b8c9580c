"""Calls of the admin client about users and what they may do, on a real Kafka."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.admin import (
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    AIOKafkaAdminClient,
    NewScramCredential,
    PatternType,
    QuotaEntity,
    QuotaFilter,
    QuotaName,
    ResourcePattern,
    ResourceType,
    ScramCredential,
    ScramMechanism,
)
from aiokafka.errors import (
    AdminItemsError,
    AuthenticationFailedError,
    ClusterAuthorizationFailedError,
    DelegationTokenNotFound,
    DelegationTokenRequestNotAllowed,
    InvalidRequestError,
    ResourceNotFound,
    TopicAuthorizationFailedError,
    UnacceptableCredential,
)
from tests.integration.secured import login_module, new_topic
from tests.integration.support import run_tool
from tests.kafka.fixtures import need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.settings import Extras

# Starting a broker counts as part of the first test.
pytestmark = pytest.mark.timeout(180)

ACL_TOOL = "org.apache.kafka.tools.AclCommand"
# What it prints: a resource, and below it the entries.
RESOURCE = re.compile(r"resourceType=(\w+), name=(.+), patternType=(\w+)\)")
ENTRY = re.compile(r"principal=(.+), host=(.+), operation=(\w+), permissionType=(\w+)\)")
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaCluster]:
    need_own_brokers()
    properties = {
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "connection.failed.authentication.delay.ms": "0",
        "delegation.token.secret.key": "of-the-brokers",
    }
    for mechanism in MECHANISMS:
        name = f"listener.name.users.{mechanism.lower()}.sasl.jaas.config"
        properties[name] = login_module("scram.ScramLoginModule")
    extras = Extras(listeners={"USERS": "SASL_PLAINTEXT"})
    with KafkaCluster(config=properties, extras=extras) as cluster:
        yield cluster


@pytest.fixture
async def admin(kafka: KafkaCluster) -> AsyncIterator[AIOKafkaAdminClient]:
    async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        yield client


def as_user(
    kafka: KafkaCluster, user: str, password: str, mechanism: str = MECHANISMS[0], **more: Any
) -> dict[str, Any]:
    return {
        "bootstrap_servers": kafka.addresses("USERS"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
        **more,
    }


def unique() -> str:
    return f"u-{uuid.uuid4().hex[:10]}"


async def until(wanted: Any, look: Callable[[], Awaitable[Any]]) -> None:
    """Wait until a broker has learned what the controller decided."""
    async with timeout(20):
        while await look() != wanted:
            await asyncio.sleep(0.02)


async def test_acls(kafka: KafkaCluster, admin: AIOKafkaAdminClient) -> None:
    prefix, principal = unique(), f"User:{unique()}"
    exact = ResourcePattern(ResourceType.TOPIC, prefix)
    prefixed = ResourcePattern(ResourceType.TOPIC, prefix[:-2], PatternType.PREFIXED)
    one = AclBinding(exact, principal, AclOperation.READ)
    two = AclBinding(prefixed, principal, AclOperation.WRITE, AclPermission.DENY, host="10.0.0.1")
    await admin.acls.create([one, two])
    mine = AclFilter(principal=principal)

    async def found(wanted: AclFilter = mine) -> set[AclBinding]:
        return set(await admin.acls.describe(wanted))

    await until({one, two}, found)
    applies = AclFilter(ResourceType.TOPIC, prefix, PatternType.MATCH, principal=principal)
    assert await found(applies) == {one, two}
    assert await found(AclFilter(ResourceType.TOPIC, prefix)) == {one}
    wrong = AclBinding(ResourcePattern(ResourceType.CLUSTER, "mine"), principal, AclOperation.ALTER)
    with pytest.raises(AdminItemsError) as caught:
        await admin.acls.create([one, wrong])
    assert isinstance(caught.value.errors[wrong], InvalidRequestError)
    assert list(caught.value.results) == [one]
    deleted = await admin.acls.delete([AclFilter.of(two), mine])
    assert deleted[AclFilter.of(two)] == [two]
    assert one in deleted[mine]
    await until(set(), found)


async def test_acls_equal_those_of_kafkas_own_tool(
    kafka: KafkaCluster, admin: AIOKafkaAdminClient
) -> None:
    prefix, principal = unique(), f"User:{unique()}"
    mine = [
        AclBinding(ResourcePattern(ResourceType.TOPIC, prefix), principal, AclOperation.READ),
        AclBinding(
            ResourcePattern(ResourceType.GROUP, prefix, PatternType.PREFIXED),
            principal,
            AclOperation.ALL,
            AclPermission.DENY,
            "10.1.2.3",
        ),
        AclBinding(
            ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"), principal, AclOperation.ALTER
        ),
    ]
    await admin.acls.create(mine)

    async def listed() -> int:
        return len(await admin.acls.describe(AclFilter(principal=principal)))

    await until(len(mine), listed)
    output = await run_tool(
        ACL_TOOL, "--bootstrap-server", kafka.bootstrap_servers, "--list", "--principal", principal
    )
    theirs = set()
    for line in output.splitlines():
        if found := RESOURCE.search(line):
            pattern = found.groups()
        elif found := ENTRY.search(line):
            theirs.add((*pattern, *found.groups()))
    ours = {
        (
            *(each.pattern.resource_type.name, each.pattern.name, each.pattern.pattern_type.name),
            *(each.principal, each.host, each.operation.name, each.permission.name),
        )
        for each in await admin.acls.describe(AclFilter(principal=principal))
    }
    assert len(ours) == len(mine)
    assert ours == theirs, output


async def test_users(kafka: KafkaCluster, admin: AIOKafkaAdminClient) -> None:
    user, password = unique(), "pässword, =1"
    with pytest.raises(ResourceNotFound, match=user):
        await admin.users.describe([user])
    await admin.users.upsert(
        [
            NewScramCredential(user, password, SHA_256),
            NewScramCredential(user, password, SHA_512, 4096),
        ]
    )

    async def found() -> Any:
        return (await admin.users.describe()).get(user)

    both = (ScramCredential(SHA_256, 8192), ScramCredential(SHA_512, 4096))
    await until(both, found)
    for mechanism in MECHANISMS:
        login = as_user(kafka, user, password, mechanism)
        async with AIOKafkaAdminClient(**login) as client:
            with pytest.raises(ClusterAuthorizationFailedError):
                await client.users.describe()
        with pytest.raises(AuthenticationFailedError):
            await AIOKafkaAdminClient(**as_user(kafka, user, "wrong", mechanism)).start()
    with pytest.raises(UnacceptableCredential):
        await admin.users.upsert(NewScramCredential(user, password, iterations=16385))
    await admin.users.delete([(user, SHA_256)])
    await until(both[1:], found)
    with pytest.raises(ResourceNotFound):
        await admin.users.delete([(user, SHA_256)])
    await admin.users.delete([(user, SHA_512)])
    await until(None, found)


async def test_a_user_gets_a_right(kafka: KafkaCluster, admin: AIOKafkaAdminClient) -> None:
    user, topic = unique(), await new_topic(kafka)
    await admin.users.upsert(NewScramCredential(user, "secret"))

    async def is_known() -> bool:
        return user in await admin.users.describe()

    await until(True, is_known)
    login = as_user(kafka, user, "secret", enable_idempotence=False)
    async with AIOKafkaProducer(**login) as producer:
        with pytest.raises(TopicAuthorizationFailedError):
            await producer.send_and_wait(topic, b"1")
        right = AclBinding(
            ResourcePattern(ResourceType.TOPIC, topic), f"User:{user}", AclOperation.WRITE
        )
        await admin.acls.create([right])

        async def described() -> list[AclBinding]:
            return await admin.acls.describe(AclFilter.of(right))

        await until([right], described)
        assert (await producer.send_and_wait(topic, b"1")).offset == 0


async def test_quotas(admin: AIOKafkaAdminClient) -> None:
    user = unique()
    one, two = QuotaEntity(user=user), QuotaEntity(user=user, client_id=QuotaName.DEFAULT)
    address = QuotaEntity(ip="10.9.8.7")
    rates = {"producer_byte_rate": 1000.0, "request_percentage": 12.5}
    by_ip = {"connection_creation_rate": 50.0}
    await admin.quotas.alter(one, rates, validate_only=True)
    await admin.quotas.alter_all({one: rates, two: rates, address: by_ip})

    async def found() -> Any:
        return await admin.quotas.describe(QuotaFilter(user=user))

    await until({one: rates, two: rates}, found)
    assert await admin.quotas.describe(QuotaFilter(user=user, strict=True)) == {one: rates}
    assert await admin.quotas.describe(QuotaFilter(user=user, client_id=QuotaName.DEFAULT)) == {
        two: rates
    }
    assert await admin.quotas.describe(QuotaFilter(ip=QuotaName.ANY)) == {address: by_ip}
    assert (await admin.quotas.describe()).keys() >= {one, two, address}
    with pytest.raises(AdminItemsError) as caught:
        await admin.quotas.alter_all({one: {"nothing_rate": 1}, two: dict.fromkeys(rates)})
    assert isinstance(caught.value.errors[one], InvalidRequestError)
    assert list(caught.value.results) == [two]
    await admin.quotas.alter_all({one: {"request_percentage": None}, address: dict.fromkeys(by_ip)})
    await until({one: {"producer_byte_rate": 1000.0}}, found)


async def test_tokens(kafka: KafkaCluster, admin: AIOKafkaAdminClient) -> None:
    user = unique()
    await admin.users.upsert(NewScramCredential(user, "secret"))
    with pytest.raises(DelegationTokenRequestNotAllowed):
        await admin.tokens.create()

    async def is_known() -> bool:
        return user in await admin.users.describe()

    await until(True, is_known)
    async with AIOKafkaAdminClient(**as_user(kafka, user, "secret")) as client:
        token = await client.tokens.create(max_lifetime_ms=3_600_000)
        assert token.owner == f"User:{user}"

        async def ids() -> list[str]:
            return [one.token_id for one in await client.tokens.describe([token.owner])]

        await until([token.token_id], ids)
        assert await client.tokens.renew(token.hmac, 60_000) <= token.max_timestamp
        await client.tokens.expire(token.hmac)
        await until([], ids)
        with pytest.raises(DelegationTokenNotFound):
            await client.tokens.renew(token.hmac)
