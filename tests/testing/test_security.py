"""Logins to the fake cluster: by our clients, by others', and by raw requests that break the
rules."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    KafkaTimeoutError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.messages.metadata import MetadataRequest
from aiokafka.protocol.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from aiokafka.testing import Fail, FakeCluster, Security
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.tokens import Token
from tests.testing.certificates import make_contexts
from tests.testing.support import RawClient

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
REFUSALS = (AuthenticationFailedError, AuthenticationMethodNotSupported)
USERS = {"alice": "alice-secret", "bob, a=b": "päss,wörd="}


def login(cluster: FakeCluster, mechanism: str, **options: Any) -> dict[str, Any]:
    user = {"sasl_plain_username": "alice", "sasl_plain_password": "alice-secret"}
    if mechanism == "OAUTHBEARER":
        user = {"sasl_oauth_token_provider": Token()}
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        **user,
        **options,
    }


async def round_trip(**options: Any) -> None:
    async with AIOKafkaProducer(**options) as producer:
        await producer.send_and_wait("t", b"one")
    async with AIOKafkaConsumer(auto_offset_reset="earliest", **options) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        assert (await consumer.getone()).value == b"one"


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_every_mechanism(mechanism: str) -> None:
    security = Security(USERS)
    async with FakeCluster(security=security) as cluster:
        await cluster.create_topic("t")
        await round_trip(**login(cluster, mechanism))
        assert security.logins >= 3
        assert security.refusals == 0
        assert cluster.failures == []


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
async def test_names_and_passwords_of_any_letters(mechanism: str) -> None:
    async with FakeCluster(security=Security(USERS)) as cluster:
        await cluster.create_topic("t")
        name = "bob, a=b"
        user = {"sasl_plain_username": name, "sasl_plain_password": USERS[name]}
        await round_trip(**login(cluster, mechanism, **user))


async def test_tls_and_a_login_together(tmp_path: Path) -> None:
    server, client = make_contexts(tmp_path)
    cluster = FakeCluster(host="localhost", ssl_context=server, security=Security(USERS))
    async with cluster:
        await cluster.create_topic("t")
        tls = {"security_protocol": "SASL_SSL", "ssl_context": client}
        await round_trip(**login(cluster, "SCRAM-SHA-512", **tls))


WRONG: dict[str, dict[str, Any]] = {
    **{name: {"sasl_plain_password": "wrong"} for name in MECHANISMS[:3]},
    "OAUTHBEARER": {"sasl_oauth_token_provider": Token(lifetime=-1)},
}


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_wrong_credentials(mechanism: str) -> None:
    security = Security(USERS)
    async with FakeCluster(security=security) as cluster:
        producer = AIOKafkaProducer(**login(cluster, mechanism, **WRONG[mechanism]))
        with pytest.raises(AuthenticationFailedError, match=mechanism):
            await producer.start()
        await producer.stop()
        assert (security.logins, security.refusals) == (0, 1)


async def test_an_unknown_user() -> None:
    async with FakeCluster(security=Security(USERS)) as cluster:
        for mechanism in MECHANISMS[:3]:
            options = login(cluster, mechanism, sasl_plain_username="carol")
            producer = AIOKafkaProducer(**options)
            with pytest.raises(AuthenticationFailedError, match=mechanism):
                await producer.start()
            await producer.stop()


async def test_a_mechanism_that_is_not_offered() -> None:
    security = Security(USERS, mechanisms=["SCRAM-SHA-512"])
    async with FakeCluster(security=security) as cluster:
        producer = AIOKafkaProducer(**login(cluster, "PLAIN"))
        with pytest.raises(AuthenticationMethodNotSupported, match="SCRAM-SHA-512"):
            await producer.start()
        await producer.stop()


async def test_tokens_are_judged_by_the_test() -> None:
    security = Security(accept_token=lambda token: "alice" if token == "good" else None)

    class Given(AbstractTokenProvider):
        async def token(self) -> str:
            return given

    async with FakeCluster(security=security) as cluster:
        await cluster.create_topic("t")
        given = "good"
        await round_trip(**login(cluster, "OAUTHBEARER", sasl_oauth_token_provider=Given()))
        given = "bad"
        producer = AIOKafkaProducer(
            **login(cluster, "OAUTHBEARER", sasl_oauth_token_provider=Given())
        )
        with pytest.raises(AuthenticationFailedError, match="invalid_token"):
            await producer.start()
        await producer.stop()


@pytest.mark.parametrize("release", ["0.10.2", "0.11", "1.1", "2.1", "2.8"])
async def test_older_releases(release: str) -> None:
    security = Security(USERS)
    async with FakeCluster(as_version=release, security=security) as cluster:
        await cluster.create_topic("t")
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            await round_trip(**login(cluster, mechanism))
        producer = AIOKafkaProducer(**login(cluster, "PLAIN", sasl_plain_password="wrong"))
        with pytest.raises(AuthenticationFailedError):
            await producer.start()
        await producer.stop()


@pytest.mark.parametrize(
    ("api", "refusal", "said"),
    [
        (
            SaslAuthenticateRequest,
            SaslAuthenticationFailed,
            "The broker rejected the client.s credentials",
        ),
        (SaslHandshakeRequest, UnsupportedSaslMechanismError, "it offers: PLAIN, SCRAM-SHA-512"),
    ],
)
async def test_a_refusal_of_the_test_reads_as_a_brokers(api: Any, refusal: Any, said: str) -> None:
    security = Security(USERS, mechanisms=["PLAIN", "SCRAM-SHA-512"])
    async with FakeCluster(security=security) as cluster:
        cluster.intercept(api, Fail(refusal), times=1)
        producer = AIOKafkaProducer(**login(cluster, "PLAIN"))
        with pytest.raises(REFUSALS, match=said):
            await producer.start()
        await producer.stop()


def test_wrong_settings() -> None:
    with pytest.raises(ValueError, match=r"unknown mechanisms.*GSSAPI"):
        Security(mechanisms=["GSSAPI"])
    with pytest.raises(ValueError, match="session_lifetime_ms"):
        Security(session_lifetime_ms=-1)


# -- others' clients


def confluent_round_trip(servers: str, options: dict[str, Any]) -> bytes | None:
    options = {"bootstrap.servers": servers, **options}
    producer = ck.Producer(options)
    producer.produce("t", b"one", partition=0)
    assert producer.flush(20) == 0
    consumer = ck.Consumer({**options, "group.id": "unused"})
    consumer.assign([ck.TopicPartition("t", 0, 0)])
    message = consumer.poll(20)
    consumer.close()
    assert message is not None and message.error() is None
    return message.value()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_confluent_logs_in_over_tls(mechanism: str, tmp_path: Path) -> None:
    server, _ = make_contexts(tmp_path)
    security = Security(USERS)
    cluster = FakeCluster(host="localhost", ssl_context=server, security=security)
    async with cluster:
        await cluster.create_topic("t")
        options = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(tmp_path / "server.pem"),
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": "alice-secret",
        }
        servers = cluster.bootstrap_servers
        assert await asyncio.to_thread(confluent_round_trip, servers, options) == b"one"
        assert security.refusals == 0
        assert cluster.failures == []


async def test_confluent_logs_in_anew_on_open_connections() -> None:
    security = Security(USERS, session_lifetime_ms=2000)
    async with FakeCluster(security=security) as cluster:
        producer = ck.Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "alice",
                "sasl.password": "alice-secret",
            }
        )
        await cluster.wait_for(lambda: security.logins >= 1)
        await cluster.wait_for(lambda: security.renewals >= 2)
        assert security.refusals == 0
        del producer


async def test_confluent_with_a_wrong_password_is_refused() -> None:
    security = Security(USERS)
    async with FakeCluster(security=security) as cluster:
        producer = ck.Producer(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "alice",
                "sasl.password": "wrong",
            }
        )
        await cluster.wait_for(lambda: security.refusals >= 1)
        assert security.logins == 0
        del producer


# -- the rules, by raw requests

PLAIN = SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-secret")


async def say_plain(client: RawClient, token: bytes = PLAIN.auth_bytes) -> Any:
    answer = await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    if answer.error_code:
        return answer
    return await client.call(SaslAuthenticateRequest(auth_bytes=token), 2)


async def is_closed_by(client: RawClient, request: Any, version: int) -> bool:
    client.send(request, version)
    return await client.receive_frame() == b""


async def test_nothing_is_served_before_the_login() -> None:
    async with FakeCluster(security=Security(USERS)) as cluster:
        async with RawClient(cluster.address(0)) as client:
            assert await is_closed_by(client, MetadataRequest(topics=[]), 12)
        async with RawClient(cluster.address(0)) as client:
            assert await is_closed_by(client, PLAIN, 2)
        async with RawClient(cluster.address(0)) as client:
            await client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert await is_closed_by(client, MetadataRequest(topics=[]), 12)


async def test_a_session_without_end_is_not_renewed() -> None:
    async with FakeCluster(security=Security(USERS)) as cluster:
        async with RawClient(cluster.address(0)) as client:
            answer = await say_plain(client)
            assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
            assert (await client.call(MetadataRequest(topics=[]), 12)).brokers
            assert (await say_plain(client)).error_code == 34


async def test_a_session_ends_and_may_be_renewed_after_its_end() -> None:
    security = Security(USERS, session_lifetime_ms=50)
    async with FakeCluster(security=security) as cluster:
        async with RawClient(cluster.address(0)) as client:
            assert (await say_plain(client)).session_lifetime_ms == 50
            await asyncio.sleep(0.06)
            assert (await say_plain(client)).error_code == 0
            assert security.renewals == 1
            # Too soon after the one before.
            assert (await say_plain(client)).error_code == 34
            await asyncio.sleep(0.06)
            assert await is_closed_by(client, MetadataRequest(topics=[]), 12)


async def test_nobody_becomes_another_user() -> None:
    security = Security({"alice": "alice-secret", "bob": "b"}, session_lifetime_ms=1000)
    async with FakeCluster(security=security) as cluster:
        async with RawClient(cluster.address(0)) as client:
            await say_plain(client)
            answer = await say_plain(client, b"\0bob\0b")
            assert (answer.error_code, security.refusals) == (58, 1)
            assert await client.receive_frame() == b""
        async with RawClient(cluster.address(0)) as client:
            await say_plain(client)
            assert await is_closed_by(client, SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)


async def test_the_end_of_a_token_is_the_end_of_the_session() -> None:
    async with FakeCluster(security=Security()) as cluster:
        async with RawClient(cluster.address(0)) as client:
            token = await Token(lifetime=20).token()
            await client.call(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
            message = f"n,,\1auth=Bearer {token}\1\1".encode()
            answer = await client.call(SaslAuthenticateRequest(auth_bytes=message), 2)
            assert 15_000 < answer.session_lifetime_ms <= 20_000


def test_the_end_of_a_delegation_token_is_the_end_of_the_session() -> None:
    async def main(simulation: Simulation) -> None:
        security = Security({"alice": "alice-secret"})
        config = {"delegation.token.secret.key": "k", "delegation.token.expiry.time.ms": 60_000}
        async with FakeCluster(security=security, config=config) as cluster:
            await cluster.create_topic("t")
            own = login(cluster, "SCRAM-SHA-256")
            async with AIOKafkaAdminClient(**own) as admin:
                token = await admin.create_delegation_token()
                by_token = {
                    "sasl_plain_username": token.token_id,
                    "sasl_plain_password": token.password,
                    "sasl_scram_tokenauth": True,
                }
                options = {**own, **by_token, "delivery_timeout_ms": 40_000}
                async with AIOKafkaProducer(**options) as producer:
                    for _ in range(6):
                        await producer.send_and_wait("t", b"while it is renewed")
                        await asyncio.sleep(20)
                        await admin.renew_delegation_token(token.hmac)
                    assert security.renewals > 1
                    await asyncio.sleep(61)
                    with pytest.raises(KafkaTimeoutError, match="invalid credentials"):
                        await producer.send_and_wait("t", b"after its end")

    simulate(main)
