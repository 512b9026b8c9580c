"""`admin.tokens`, on the fake cluster: made, used, renewed, expired."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka.admin import AIOKafkaAdminClient, DelegationToken
from aiokafka.errors import (
    AuthenticationFailedError,
    BrokerResponseError,
    DelegationTokenAuthDisabled,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    DelegationTokenRequestNotAllowed,
    InvalidPrincipalType,
    NotControllerError,
    RequestTimedOutError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)
from aiokafka.testing import Fail, FakeCluster, Security
from tests.admin.support import make_admin

CONFIG = {"delegation.token.secret.key": "of-the-brokers"}
USERS = {user: f"{user}-secret" for user in ("alice", "bob", "eve")}


def login(user: str, password: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": user,
        "sasl_plain_password": USERS[user] if password is None else password,
        **more,
    }


def by_token(token: DelegationToken, password: str | None = None) -> dict[str, Any]:
    return login(token.token_id, password or token.password, sasl_scram_tokenauth=True)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(security=Security(USERS), config=CONFIG) as started:
        yield started
        assert started.failures == []


@pytest.fixture
async def alice(cluster: FakeCluster) -> AsyncIterator[AIOKafkaAdminClient]:
    async with make_admin(cluster, **login("alice")) as client:
        yield client


@pytest.mark.parametrize("error", [RequestTimedOutError, NotControllerError])
async def test_what_passes_is_waited_for(
    cluster: FakeCluster, alice: AIOKafkaAdminClient, error: type[BrokerResponseError]
) -> None:
    """Brokers say so of what they forward to a controller, which may just have moved."""
    token = await alice.tokens.create()
    for request in (
        DescribeDelegationTokenRequest,
        RenewDelegationTokenRequest,
        ExpireDelegationTokenRequest,
    ):
        cluster.intercept(request, Fail(error), times=1)
    assert await alice.tokens.describe() == [token]
    assert await alice.tokens.renew(token.hmac, 60_000) >= token.issue_timestamp
    await alice.tokens.expire(token.hmac)
    assert await alice.tokens.describe() == []


async def test_a_token_logs_in_until_it_expires(
    cluster: FakeCluster, alice: AIOKafkaAdminClient
) -> None:
    cluster.intercept(CreateDelegationTokenRequest, Fail(NotControllerError), times=1)
    token = await alice.tokens.create(["User:bob"], max_lifetime_ms=3_600_000)
    assert token.owner == token.requester == "User:alice"
    assert token.max_timestamp - token.issue_timestamp == 3_600_000
    assert await alice.tokens.describe() == [token]
    assert await alice.tokens.describe(["User:bob"]) == []
    async with make_admin(cluster, **by_token(token)) as client:
        assert await client.list_topics() == []
        with pytest.raises(DelegationTokenRequestNotAllowed):
            await client.tokens.create()
    with pytest.raises(AuthenticationFailedError):
        await make_admin(cluster, **by_token(token, "wrong")).start()
    async with make_admin(cluster, **login("bob")) as bob:
        ends = await bob.tokens.renew(token.hmac, 60_000)
        assert await bob.tokens.expire(token.hmac, 30_000) < ends
        await bob.tokens.expire(token.hmac)
        for call in (bob.tokens.renew, bob.tokens.expire):
            with pytest.raises(DelegationTokenNotFound):
                await call(token.hmac)
    assert await alice.tokens.describe() == []
    with pytest.raises(AuthenticationFailedError):
        await make_admin(cluster, **by_token(token)).start()


async def test_tokens_of_others(cluster: FakeCluster, alice: AIOKafkaAdminClient) -> None:
    token = await alice.tokens.create(owner="User:bob")
    assert (token.owner, token.requester) == ("User:bob", "User:alice")
    async with make_admin(cluster, **login("eve")) as eve:
        with pytest.raises(DelegationTokenOwnerMismatch):
            await eve.tokens.renew(token.hmac)
    with pytest.raises(InvalidPrincipalType):
        await alice.tokens.create(["Group:all"])


async def test_clusters_without_tokens() -> None:
    async with FakeCluster(security=Security(USERS)) as cluster:
        async with make_admin(cluster, **login("alice")) as admin:
            with pytest.raises(DelegationTokenAuthDisabled):
                await admin.tokens.create()
            with pytest.raises(DelegationTokenAuthDisabled):
                await admin.tokens.describe()
    async with FakeCluster(config=CONFIG) as cluster, make_admin(cluster) as admin:
        with pytest.raises(DelegationTokenRequestNotAllowed):
            await admin.tokens.create()
    async with FakeCluster(as_version="0.11") as cluster, make_admin(cluster) as admin:
        with pytest.raises(UnsupportedVersionError, match="CreateDelegationToken"):
            await admin.tokens.create()


@pytest.mark.parametrize("release", ["1.1", "2.8", "3.9"])
async def test_brokers_of_every_age(release: str) -> None:
    config = {**CONFIG, "delegation.token.expiry.time.ms": 1000}
    security = Security(USERS)
    async with FakeCluster(as_version=release, security=security, config=config) as cluster:
        async with make_admin(cluster, **login("alice")) as admin:
            token = await admin.tokens.create()
            assert token.expiry_timestamp - token.issue_timestamp == 1000
            assert (await admin.tokens.describe())[0].token_id == token.token_id
