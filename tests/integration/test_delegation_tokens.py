"""Delegation tokens on a real Kafka: made by the admin client, used to log in by SCRAM."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, DelegationToken
from aiokafka.errors import (
    AuthenticationFailedError,
    DelegationTokenNotFound,
    DelegationTokenRequestNotAllowed,
)
from aiokafka.helpers import create_ssl_context
from tests.examples.scripts import run_script
from tests.integration.secured import (
    login_module,
    new_topic,
    refused,
    tls_listeners,
    use_everything,
)
from tests.kafka.fixtures import need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.settings import Extras
from tests.net.support import Certificates

LISTENERS = {"SCRAM": "SASL_PLAINTEXT", "SCRAMTLS": "SASL_SSL"}
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
PASSWORDS = {"alice": "alice-secret", "bob": "bob-secret"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def kafka(certificates: Certificates) -> Iterator[KafkaCluster]:
    need_own_brokers()
    properties = {
        **tls_listeners(certificates, ["SCRAMTLS"]),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "connection.failed.authentication.delay.ms": "0",
        "delegation.token.secret.key": "of-the-brokers",
        "delegation.token.expiry.check.interval.ms": "500",
    }
    users = []
    for mechanism in MECHANISMS:
        for listener in LISTENERS:
            name = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
            properties[name] = login_module("scram.ScramLoginModule")
        for user, password in PASSWORDS.items():
            users += ["--add-scram", f"{mechanism}=[name={user},password={password}]"]
    extras = Extras(listeners=LISTENERS, host="localhost", format_options=tuple(users))
    with KafkaCluster(config=properties, extras=extras) as cluster:
        yield cluster


def as_user(kafka: KafkaCluster, user: str = "alice") -> dict[str, Any]:
    return {
        "bootstrap_servers": kafka.addresses("SCRAM"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": user,
        "sasl_plain_password": PASSWORDS[user],
    }


def by_token(
    kafka: KafkaCluster, token: DelegationToken, mechanism: str = "SCRAM-SHA-256"
) -> dict[str, Any]:
    return {
        **as_user(kafka),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": token.token_id,
        "sasl_plain_password": token.password,
        "sasl_scram_tokenauth": True,
    }


async def known(
    admin: AIOKafkaAdminClient, token: DelegationToken, expiry: int | None = None
) -> None:
    """Brokers and controllers learn of a change a moment after it was made; -1: it is gone."""
    wanted = token.expiry_timestamp if expiry is None else expiry
    while True:
        tokens = await admin.describe_delegation_tokens()
        found = {one.token_id: one.expiry_timestamp for one in tokens}
        if found.get(token.token_id, -1) == wanted:
            return
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_everything_with_a_token(
    kafka: KafkaCluster, certificates: Certificates, mechanism: str, listener: str
) -> None:
    async with AIOKafkaAdminClient(**as_user(kafka)) as admin:
        token = await admin.create_delegation_token()
        await known(admin, token)
    options = by_token(kafka, token, mechanism)
    if listener == "SCRAMTLS":
        options |= {
            "bootstrap_servers": kafka.addresses(listener),
            "security_protocol": "SASL_SSL",
            "ssl_context": create_ssl_context(cafile=certificates.cafile),
        }
    await use_everything(kafka, **options)


async def test_the_life_of_a_token(kafka: KafkaCluster) -> None:
    async with AIOKafkaAdminClient(**as_user(kafka)) as admin:
        began = time.time() * 1000
        token = await admin.create_delegation_token(["User:bob"], max_lifetime_ms=3_600_000)
        assert token.owner == token.requester == "User:alice"
        assert token.renewers == ("User:bob",)
        assert began - 1000 < token.issue_timestamp < token.expiry_timestamp
        assert token.max_timestamp - token.issue_timestamp == 3_600_000
        await known(admin, token)
        (found,) = [
            one
            for one in await admin.describe_delegation_tokens(["User:alice"])
            if one.token_id == token.token_id
        ]
        assert found == token
        assert await admin.describe_delegation_tokens([]) == []
        assert token.password not in repr(token) and repr(token.hmac) not in repr(token)
    async with AIOKafkaAdminClient(**as_user(kafka, "bob")) as bob:
        ends = await bob.renew_delegation_token(token.hmac, 60_000)
        assert 0 < ends - time.time() * 1000 <= 61_000
        assert await bob.expire_delegation_token(token.hmac, 30_000) < ends
        await bob.expire_delegation_token(token.hmac)
        await known(bob, token, -1)
        for call in (bob.renew_delegation_token, bob.expire_delegation_token):
            with pytest.raises(DelegationTokenNotFound):
                await call(token.hmac)
    await refused(AuthenticationFailedError, "SCRAM-SHA-256", **by_token(kafka, token))


async def test_a_token_makes_no_tokens(kafka: KafkaCluster) -> None:
    async with AIOKafkaAdminClient(**as_user(kafka)) as admin:
        token = await admin.create_delegation_token()
        await known(admin, token)
    async with AIOKafkaAdminClient(**by_token(kafka, token)) as admin:
        with pytest.raises(DelegationTokenRequestNotAllowed, match="create_delegation_token"):
            await admin.create_delegation_token()


async def test_a_token_without_tokenauth_is_refused(kafka: KafkaCluster) -> None:
    async with AIOKafkaAdminClient(**as_user(kafka)) as admin:
        token = await admin.create_delegation_token()
        await known(admin, token)
    options = by_token(kafka, token) | {"sasl_scram_tokenauth": False}
    text = await refused(AuthenticationFailedError, "SCRAM-SHA-256", **options)
    assert token.password not in text
    wrong = by_token(kafka, token) | {"sasl_plain_password": "wrong"}
    await refused(AuthenticationFailedError, "SCRAM-SHA-256", **wrong)


async def test_a_session_goes_on_with_a_token_that_is_renewed(kafka: KafkaCluster) -> None:
    """The session that the broker grants is as long as the token was to live when it began."""
    topic = await new_topic(kafka)
    async with AIOKafkaAdminClient(**as_user(kafka)) as admin:
        token = await admin.create_delegation_token()
        await known(admin, token)
        await known(admin, token, await admin.renew_delegation_token(token.hmac, 3_000))
        async with AIOKafkaProducer(**by_token(kafka, token)) as producer:
            await producer.send_and_wait(topic, b"1")
            await admin.renew_delegation_token(token.hmac, 60_000)
            await asyncio.sleep(3.5)
            await producer.send_and_wait(topic, b"2")


@pytest.mark.parametrize("principal", ["alice", "User:", ":alice", ""])
async def test_principals_are_checked(kafka: KafkaCluster, principal: str) -> None:
    async with AIOKafkaAdminClient(**as_user(kafka)) as admin:
        with pytest.raises(ValueError, match="User:alice"):
            await admin.create_delegation_token(owner=principal)
        with pytest.raises(ValueError, match="renewers"):
            await admin.create_delegation_token([principal])


async def test_the_example(kafka: KafkaCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORDS["alice"])
    topic = await new_topic(kafka)
    output = await run_script(
        "delegation_token.py",
        *("--bootstrap", kafka.addresses("SCRAM"), "--topic", topic, "--user", "alice"),
    )
    assert output == "a token of User:alice\nthe worker sent to partition 0\n"
