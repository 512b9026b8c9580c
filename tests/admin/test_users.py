"""Users and their SCRAM credentials."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiokafka.admin import AIOKafkaAdminClient, NewScramCredential, ScramCredential, ScramMechanism
from aiokafka.errors import (
    AdminItemsError,
    AuthenticationFailedError,
    ClusterAuthorizationFailedError,
    NotControllerError,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from aiokafka.testing import Cut, Edit, Fail, FakeCluster, Security
from tests.admin.support import make_admin

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster(brokers=2) as started:
        yield started
        assert started.failures == []


@pytest.fixture
async def admin(cluster: FakeCluster) -> AsyncIterator[AIOKafkaAdminClient]:
    async with make_admin(cluster) as client:
        yield client


def login(user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


async def test_credentials_are_set_described_and_deleted(admin: AIOKafkaAdminClient) -> None:
    assert await admin.users.describe() == {}
    await admin.users.upsert(
        [
            NewScramCredential("alice", "secret", SHA_256),
            NewScramCredential("alice", "other", "SCRAM-SHA-512", iterations=4096),  # type: ignore[arg-type]
            NewScramCredential("bob", "secret"),
        ]
    )
    alice = (ScramCredential(SHA_256, 8192), ScramCredential(SHA_512, 4096))
    bob = (ScramCredential(SHA_256, 8192),)
    assert await admin.users.describe() == {"alice": alice, "bob": bob}
    assert await admin.users.describe(["bob"]) == {"bob": bob}
    await admin.users.delete([("alice", "SCRAM-SHA-256"), ("bob", SHA_256)])
    assert await admin.users.describe() == {"alice": alice[1:]}


async def test_the_password_is_hashed_here(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    new = NewScramCredential("alice", "secret", SHA_512, 5000, b"salt")
    assert "secret" not in repr(new) and "salt" not in repr(new)
    await admin.users.upsert(new)
    (seen,) = cluster.requests(AlterUserScramCredentialsRequest)
    (sent,) = seen.request.upsertions
    assert (sent.name, sent.mechanism, sent.iterations, bytes(sent.salt)) == (
        "alice",
        2,
        5000,
        b"salt",
    )
    assert bytes(sent.salted_password) == hashlib.pbkdf2_hmac("sha512", b"secret", b"salt", 5000)


async def test_salts_differ(cluster: FakeCluster, admin: AIOKafkaAdminClient) -> None:
    await admin.users.upsert([NewScramCredential(user, "secret") for user in ("a", "b")])
    (seen,) = cluster.requests(AlterUserScramCredentialsRequest)
    first, second = seen.request.upsertions
    assert bytes(first.salt) != bytes(second.salt)
    assert len(first.salt) >= 16


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_a_user_that_was_made_logs_in(mechanism: str) -> None:
    async with FakeCluster(security=Security({"root": "root-secret"})) as cluster:
        async with make_admin(cluster, **login("root", "root-secret")) as admin:
            assert set(await admin.users.describe()) == {"root"}
            new = NewScramCredential("alice", "pässword, =1", mechanism)  # type: ignore[arg-type]
            await admin.users.upsert(new)
            async with make_admin(cluster, **login("alice", "pässword, =1", mechanism)) as alice:
                assert set(await alice.users.describe()) == {"alice", "root"}
            with pytest.raises(AuthenticationFailedError):
                await make_admin(cluster, **login("alice", "wrong", mechanism)).start()
            await admin.users.delete([("alice", mechanism), ("root", mechanism)])
            for user, password in (("alice", "pässword, =1"), ("root", "root-secret")):
                with pytest.raises(AuthenticationFailedError):
                    await make_admin(cluster, **login(user, password, mechanism)).start()


async def test_users_that_are_not_there(admin: AIOKafkaAdminClient) -> None:
    await admin.users.upsert(NewScramCredential("alice", "secret"))
    with pytest.raises(ResourceNotFound, match="bob"):
        await admin.users.describe(["bob"])
    with pytest.raises(ResourceNotFound, match="bob"):
        await admin.users.delete([("bob", SHA_256)])
    with pytest.raises(AdminItemsError) as caught:
        await admin.users.describe(["bob", "alice", "eve", "bob"])
    assert list(caught.value.errors) == ["bob", "eve"]
    assert caught.value.results == {"alice": (ScramCredential(SHA_256, 8192),)}
    with pytest.raises(AdminItemsError) as caught:
        await admin.users.delete([("alice", SHA_256), ("bob", SHA_256)])
    assert list(caught.value.errors) == [("bob", SHA_256)]
    assert list(caught.value.results) == [("alice", SHA_256)]


async def test_a_request_names_each_user_once(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    """Kafka refuses a user that it names twice, even for different mechanisms."""
    both = [("alice", SHA_256), ("alice", SHA_512)]
    new = [NewScramCredential(user, "secret", how) for user, how in (*both, ("bob", SHA_512))]
    await admin.users.upsert(new)
    sent = [seen.request.upsertions for seen in cluster.requests(AlterUserScramCredentialsRequest)]
    assert [[each.name for each in one] for one in sent] == [["alice", "bob"], ["alice"]]
    cluster.forget_requests()

    def refused(response: Any) -> None:
        response.results[0].error_code = UnacceptableCredential.errno

    cluster.intercept(AlterUserScramCredentialsRequest, Edit(lambda response: None), times=1)
    cluster.intercept(AlterUserScramCredentialsRequest, Edit(refused), times=1)
    with pytest.raises(AdminItemsError) as caught:
        await admin.users.delete(both)
    assert len(caught.value.errors) == len(caught.value.results) == 1


async def test_a_broker_that_wants_fewer_iterations(admin: AIOKafkaAdminClient) -> None:
    with pytest.raises(UnacceptableCredential, match="Too many iterations"):
        await admin.users.upsert(NewScramCredential("alice", "secret", iterations=16385))


async def test_another_controller_is_asked(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    cluster.intercept(AlterUserScramCredentialsRequest, Fail(NotControllerError), times=2)
    cluster.intercept(AlterUserScramCredentialsRequest, Cut(handled=True), times=1)
    await admin.users.upsert(NewScramCredential("alice", "secret"))
    assert set(await admin.users.describe()) == {"alice"}


async def test_a_moved_controller() -> None:
    async with FakeCluster(brokers=2, as_version="2.8") as cluster, make_admin(cluster) as admin:
        cluster.controller.start(1)
        await admin.users.upsert(NewScramCredential("alice", "secret"))
        assert set(await admin.users.describe()) == {"alice"}


async def test_all_users_where_one_has_to_be_asked_again(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    await admin.users.upsert([NewScramCredential(user, "secret") for user in ("a", "b")])

    def failed(response: Any) -> None:
        response.results[1].error_code = NotControllerError.errno

    cluster.intercept(DescribeUserScramCredentialsRequest, Edit(failed), times=1)
    assert set(await admin.users.describe()) == {"a", "b"}
    _, again = cluster.requests(DescribeUserScramCredentialsRequest)
    assert [user.name for user in again.request.users] == ["b"]


async def test_a_call_that_fails_as_a_whole(
    cluster: FakeCluster, admin: AIOKafkaAdminClient
) -> None:
    cluster.acls.withdraw("cluster")
    for users in (None, ["alice"], ["alice", "bob"]):
        with pytest.raises(ClusterAuthorizationFailedError):
            await admin.users.describe(users)
    with pytest.raises(ClusterAuthorizationFailedError):
        await admin.users.upsert(NewScramCredential("alice", "secret"))


async def test_brokers_without_the_api() -> None:
    async with FakeCluster(as_version="2.1") as cluster, make_admin(cluster) as admin:
        with pytest.raises(UnsupportedVersionError, match="DescribeUserScramCredentials"):
            await admin.users.describe()
        with pytest.raises(UnsupportedVersionError, match="AlterUserScramCredentials"):
            await admin.users.upsert(NewScramCredential("alice", "secret"))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"user": ""}, ValueError, "user: must not be empty"),
        ({"user": 1}, TypeError, "user: must be a str"),
        ({"password": ""}, ValueError, "password: must not be empty"),
        ({"password": b"x"}, TypeError, "password: must be a str"),
        ({"mechanism": "PLAIN"}, ValueError, "SCRAM-SHA-256"),
        ({"mechanism": ScramMechanism.UNKNOWN}, ValueError, "SCRAM-SHA-256"),
        ({"iterations": 4095}, ValueError, "iterations=4095"),
        ({"iterations": 10**9}, ValueError, "must be 4096"),
        ({"salt": b""}, ValueError, "salt"),
    ],
)
def test_credentials_that_cannot_be(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        NewScramCredential(**{"user": "alice", "password": "secret", **options})


async def test_wrong_arguments(cluster: FakeCluster, admin: AIOKafkaAdminClient) -> None:
    new = NewScramCredential("alice", "secret")
    with pytest.raises(ValueError, match="two passwords"):
        await admin.users.upsert([new, new])
    with pytest.raises(TypeError, match="credentials"):
        await admin.users.upsert([("alice", "secret")])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="not one str"):
        await admin.users.describe("alice")
    with pytest.raises(ValueError, match="mechanism"):
        await admin.users.delete([("alice", "PLAIN")])
    assert await admin.users.describe([]) == {}
    await admin.users.upsert([])
    await admin.users.delete([])
    assert not cluster.requests(AlterUserScramCredentialsRequest)
    assert ScramCredential(SHA_256, 1).as_dict() == {"mechanism": "SCRAM_SHA_256", "iterations": 1}
