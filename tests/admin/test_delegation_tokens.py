"""Delegation tokens (KIP-48), against a broker that is told what to answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import DelegationTokenNotFound
from aiokafka.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from aiokafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
)
from tests.net.support import scripted_broker, split

TIMES = {"issue_timestamp": 1, "expiry_timestamp": 2, "max_timestamp": 3}
ALICE = {"principal_type": "User", "principal_name": "alice"}


class Broker:
    """Answers what it is told to, and remembers what it was asked."""

    def __init__(self) -> None:
        self.host, self.port = "", 0
        self.replies: dict[type, Any] = {}
        self.asked: list[Any] = []

    def answers(self) -> Any:
        kinds = (
            CreateDelegationTokenRequest,
            RenewDelegationTokenRequest,
            ExpireDelegationTokenRequest,
            DescribeDelegationTokenRequest,
        )
        return {MetadataRequest: self.metadata, **dict.fromkeys(kinds, self.answer)}

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        place = MetadataResponseBroker(node_id=0, host=self.host, port=self.port, rack=None)
        return MetadataResponse(brokers=[place], cluster_id="c", controller_id=0, topics=[])

    def answer(self, request: Any) -> Any:
        self.asked.append(request)
        return self.replies[type(request)]


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    found = Broker()
    async with scripted_broker(found.answers()) as address:
        found.host, found.port = split(address)
        yield found


@pytest.fixture
async def admin(broker: Broker) -> AsyncIterator[AIOKafkaAdminClient]:
    servers = f"{broker.host}:{broker.port}"
    async with AIOKafkaAdminClient(bootstrap_servers=servers, request_timeout_ms=5000) as client:
        yield client


def described(**fields: Any) -> DescribeDelegationTokenResponse:
    token = DescribedDelegationToken(
        **ALICE, **TIMES, token_id="id", hmac=b"secret", renewers=[], **fields
    )
    return DescribeDelegationTokenResponse(tokens=[token])


async def test_who_asked_for_a_token_may_be_another_than_its_owner(
    broker: Broker, admin: AIOKafkaAdminClient
) -> None:
    requester = {
        "token_requester_principal_type": "User",
        "token_requester_principal_name": "robot",
    }
    broker.replies[DescribeDelegationTokenRequest] = described(**requester)
    (token,) = await admin.describe_delegation_tokens()
    assert (token.owner, token.requester) == ("User:alice", "User:robot")
    assert (token.issue_timestamp, token.expiry_timestamp, token.max_timestamp) == (1, 2, 3)


async def test_brokers_that_do_not_tell_who_asked(
    broker: Broker, admin: AIOKafkaAdminClient
) -> None:
    broker.replies[DescribeDelegationTokenRequest] = described()
    (token,) = await admin.describe_delegation_tokens()
    assert (token.owner, token.requester) == ("User:alice", "User:alice")


async def test_renewers_are_told(broker: Broker, admin: AIOKafkaAdminClient) -> None:
    response = described()
    response.tokens[0].renewers = [
        DescribedDelegationTokenRenewer(principal_type="User", principal_name=name)
        for name in ("bob", "eve")
    ]
    broker.replies[DescribeDelegationTokenRequest] = response
    (token,) = await admin.describe_delegation_tokens()
    assert token.renewers == ("User:bob", "User:eve")
    assert token.hmac == b"secret"
    assert "secret" not in repr(token)


@pytest.mark.parametrize("owners", [None, ["User:alice"], ["User:a:b", "Group:c"]])
async def test_whose_tokens_are_described(
    broker: Broker, admin: AIOKafkaAdminClient, owners: list[str] | None
) -> None:
    broker.replies[DescribeDelegationTokenRequest] = described()
    await admin.describe_delegation_tokens(owners)
    (seen,) = broker.asked
    asked = seen.owners
    found = asked and [f"{one.principal_type}:{one.principal_name}" for one in asked]
    assert found == owners


async def test_nobodys_tokens_are_none(broker: Broker, admin: AIOKafkaAdminClient) -> None:
    """No owners in the request would mean the tokens of all."""
    broker.replies[DescribeDelegationTokenRequest] = described()
    assert await admin.describe_delegation_tokens([]) == []
    assert not broker.asked


async def test_a_token_is_made_for_another(broker: Broker, admin: AIOKafkaAdminClient) -> None:
    response = CreateDelegationTokenResponse(
        **ALICE,
        token_requester_principal_type="User",
        token_requester_principal_name="robot",
        issue_timestamp_ms=1,
        expiry_timestamp_ms=2,
        max_timestamp_ms=3,
        token_id="id",
        hmac=b"secret",
    )
    broker.replies[CreateDelegationTokenRequest] = response
    token = await admin.create_delegation_token(["User:bob"], "User:alice", 1000)
    assert (token.owner, token.requester, token.renewers) == (
        "User:alice",
        "User:robot",
        ("User:bob",),
    )
    (seen,) = broker.asked
    request = seen
    assert (request.owner_principal_type, request.owner_principal_name) == ("User", "alice")
    assert request.max_lifetime_ms == 1000


async def test_times_of_tokens_are_changed(broker: Broker, admin: AIOKafkaAdminClient) -> None:
    broker.replies[RenewDelegationTokenRequest] = RenewDelegationTokenResponse(
        expiry_timestamp_ms=7
    )
    broker.replies[ExpireDelegationTokenRequest] = ExpireDelegationTokenResponse(
        expiry_timestamp_ms=8
    )
    assert await admin.renew_delegation_token(b"hmac", 5) == 7
    assert await admin.expire_delegation_token(b"hmac", 6) == 8
    renewed, expired = broker.asked
    assert (renewed.hmac, renewed.renew_period_ms) == (b"hmac", 5)
    assert (expired.hmac, expired.expiry_time_period_ms) == (b"hmac", 6)


async def test_refusals_are_raised(broker: Broker, admin: AIOKafkaAdminClient) -> None:
    broker.replies[RenewDelegationTokenRequest] = RenewDelegationTokenResponse(
        error_code=DelegationTokenNotFound.errno, expiry_timestamp_ms=0
    )
    with pytest.raises(DelegationTokenNotFound):
        await admin.renew_delegation_token(b"hmac")


@pytest.mark.parametrize("principal", ["alice", "User:", ":alice", ""])
async def test_principals_have_a_kind_and_a_name(
    admin: AIOKafkaAdminClient, principal: str
) -> None:
    with pytest.raises(ValueError, match="User:alice"):
        await admin.describe_delegation_tokens([principal])


async def test_the_room_does_the_same(broker: Broker, admin: AIOKafkaAdminClient) -> None:
    broker.replies = {
        DescribeDelegationTokenRequest: described(),
        CreateDelegationTokenRequest: CreateDelegationTokenResponse(
            **ALICE,
            issue_timestamp_ms=1,
            expiry_timestamp_ms=2,
            max_timestamp_ms=3,
            token_id="id",
            hmac=b"secret",
        ),
        RenewDelegationTokenRequest: RenewDelegationTokenResponse(expiry_timestamp_ms=7),
        ExpireDelegationTokenRequest: ExpireDelegationTokenResponse(expiry_timestamp_ms=8),
    }
    token = await admin.tokens.create(["User:bob"], "User:alice", 1000, timeout_ms=5000)
    assert token == await admin.create_delegation_token(["User:bob"], "User:alice", 1000)
    assert await admin.tokens.renew(b"hmac", 5) == await admin.renew_delegation_token(b"hmac", 5)
    assert await admin.tokens.expire(b"hmac") == await admin.expire_delegation_token(b"hmac")
    found = await admin.tokens.describe(["User:alice"])
    assert found == await admin.describe_delegation_tokens(["User:alice"])
    assert await admin.tokens.describe([]) == []
    assert broker.asked[0::2] == broker.asked[1::2]


async def test_the_room_checks_principals(admin: AIOKafkaAdminClient) -> None:
    with pytest.raises(ValueError, match="owners: 'alice'"):
        await admin.tokens.describe(["alice"])
    with pytest.raises(ValueError, match="renewers"):
        await admin.tokens.create([":bob"])
