"""Tokens of an identity provider on a real Kafka, which checks them by the provider's keys."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import AuthenticationFailedError
from aiokafka.helpers import create_ssl_context
from aiokafka.oauth import (
    CachedTokenProvider,
    ClientCredentialsTokenProvider,
    FileTokenProvider,
    JwtBearerTokenProvider,
    SignedAssertion,
)
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
from tests.kafka.settings import Extras, Jvm
from tests.net.support import Certificates
from tests.oauth.identity_provider import (
    AUDIENCE,
    CLIENT_ID,
    CLIENT_SECRET,
    ISSUER,
    IdentityProvider,
    private_pem,
)

LISTENERS = {"OIDC": "SASL_PLAINTEXT", "OIDCTLS": "SASL_SSL"}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def _provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as provider:
        yield provider


@pytest.fixture
def provider(_provider: IdentityProvider) -> IdentityProvider:
    _provider.lifetime = 300.0
    _provider.script.clear()
    _provider.asked.clear()
    return _provider


@pytest.fixture(scope="module")
def kafka(_provider: IdentityProvider, certificates: Certificates) -> Iterator[KafkaCluster]:
    need_own_brokers()
    keys = _provider.url("/jwks.json")
    properties = {
        **tls_listeners(certificates, ["OIDCTLS"]),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "0",
        "sasl.oauthbearer.jwt.validator.class": (
            "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator"
        ),
    }
    for listener in LISTENERS:
        name = f"listener.name.{listener.lower()}.oauthbearer"
        properties |= {
            f"{name}.sasl.jaas.config": login_module("oauthbearer.OAuthBearerLoginModule"),
            f"{name}.sasl.server.callback.handler.class": (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
            ),
            f"{name}.sasl.oauthbearer.jwks.endpoint.url": keys,
            f"{name}.sasl.oauthbearer.expected.audience": AUDIENCE,
            f"{name}.sasl.oauthbearer.expected.issuer": ISSUER,
        }
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}"
    extras = Extras(listeners=LISTENERS, host="localhost")
    with KafkaCluster(config=properties, extras=extras, jvm=Jvm(options=(allowed,))) as cluster:
        yield cluster


def options(kafka: KafkaCluster, tokens: AbstractTokenProvider, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": kafka.addresses("OIDC"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": tokens,
        **more,
    }


def client_credentials(
    provider: IdentityProvider, secret: str = CLIENT_SECRET, **more: Any
) -> ClientCredentialsTokenProvider:
    return ClientCredentialsTokenProvider(
        provider.url(), client_id=CLIENT_ID, client_secret=secret, **more
    )


def assertion(provider: IdentityProvider, folder: Path) -> SignedAssertion:
    key = ec.generate_private_key(ec.SECP256R1())
    provider.assertion_key = key.public_key()
    path = folder / "key.pem"
    path.write_bytes(private_pem(key))
    return SignedAssertion(path, algorithm="ES256", claim_sub=CLIENT_ID)


def every_provider(
    kind: str, provider: IdentityProvider, folder: Path
) -> tuple[CachedTokenProvider, int]:
    """A provider, and how often it asks for a token in a test."""
    if kind == "secret":
        return client_credentials(provider), 1
    if kind == "assertion":
        shown = assertion(provider, folder)
        return ClientCredentialsTokenProvider(provider.url(), assertion=shown), 1
    if kind == "jwt-bearer":
        shown = assertion(provider, folder)
        return JwtBearerTokenProvider(provider.url(), assertion=shown), 1
    path = folder / "token"
    path.write_text(provider.issue())
    return FileTokenProvider(path, extensions={"traceId": "1 2 3"}), 0


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("kind", ["secret", "assertion", "jwt-bearer", "file"])
async def test_everything_with_tokens(
    kafka: KafkaCluster,
    certificates: Certificates,
    provider: IdentityProvider,
    tmp_path: Path,
    kind: str,
    listener: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    tokens, asked = every_provider(kind, provider, tmp_path)
    found = options(kafka, tokens)
    if listener == "OIDCTLS":
        found |= {
            "bootstrap_servers": kafka.addresses(listener),
            "security_protocol": "SASL_SSL",
            "ssl_context": create_ssl_context(cafile=certificates.cafile),
        }
    await use_everything(kafka, **found)
    # Four clients and a dozen connections share one token.
    assert len(provider.asked) == asked
    assert CLIENT_SECRET not in caplog.text and await tokens.token() not in caplog.text


# ---------------------------------------------------------------- refusals


async def test_the_provider_refuses_the_secret(
    kafka: KafkaCluster, provider: IdentityProvider
) -> None:
    tokens = client_credentials(provider, "not the secret")
    text = await refused(AuthenticationFailedError, "invalid_client", **options(kafka, tokens))
    assert "wrong secret" in text and "not the secret" not in text
    assert len(provider.asked) == 1


@pytest.mark.parametrize(
    "claims",
    [{"aud": "another"}, {"iss": "urn:another"}, {"exp": time.time() - 600}, {"sub": ""}],
    ids=lambda claims: next(iter(claims)),
)
async def test_the_broker_refuses_the_token(
    kafka: KafkaCluster, provider: IdentityProvider, claims: dict[str, Any]
) -> None:
    token = provider.issue(**claims)
    provider.script.append((200, {"access_token": token, "expires_in": 300}))
    tokens = client_credentials(provider)
    text = await refused(AuthenticationFailedError, "OAUTHBEARER", **options(kafka, tokens))
    assert token not in text
    # The next connection comes with another token, which is good.
    await asyncio.sleep(0.2)
    async with AIOKafkaProducer(**options(kafka, tokens)):
        assert len(provider.asked) == 2


async def test_a_token_of_somebody_else_is_refused(
    kafka: KafkaCluster, provider: IdentityProvider, tmp_path: Path
) -> None:
    head, payload, signature = provider.issue().split(".")
    path = tmp_path / "token"
    path.write_text(f"{head}.{payload}.{'A' * len(signature)}")
    tokens = FileTokenProvider(path)
    await refused(AuthenticationFailedError, "OAUTHBEARER", **options(kafka, tokens))


async def test_extensions_that_sasl_does_not_allow(
    kafka: KafkaCluster, provider: IdentityProvider
) -> None:
    tokens = client_credentials(provider, extensions={"auth": "x"})
    await refused(AuthenticationFailedError, "extension", **options(kafka, tokens))


# ---------------------------------------------------------------- time


async def test_tokens_are_replaced_while_clients_work(
    kafka: KafkaCluster, provider: IdentityProvider
) -> None:
    """The broker ends sessions with their tokens; the clients go on."""
    provider.lifetime = 3.0
    tokens = client_credentials(provider)
    topic = await new_topic(kafka)
    found = options(kafka, tokens)
    async with (
        AIOKafkaProducer(transactional_id=topic, **found) as producer,
        AIOKafkaConsumer(
            topic,
            group_id=topic,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            **found,
        ) as consumer,
    ):
        sent, began = 0, time.monotonic()
        while time.monotonic() < began + 8.0:
            async with producer.transaction():
                for _ in range(5):
                    await producer.send(topic, b"%d" % sent)
                    sent += 1
            await asyncio.sleep(0.02)
        values = [(await consumer.getone()).value for _ in range(sent)]
        await consumer.commit()
        lasted = time.monotonic() - began
    assert values == [b"%d" % i for i in range(sent)]
    # A token lasts for 3 s, and serves every connection.
    assert 3 <= len(provider.asked) <= 12 * lasted / 8


async def test_the_provider_is_away_while_tokens_are_good(
    kafka: KafkaCluster, provider: IdentityProvider
) -> None:
    tokens = client_credentials(provider, refresh_min_period_seconds=0, refresh_buffer_seconds=300)
    topic = await new_topic(kafka)
    async with AIOKafkaProducer(**options(kafka, tokens)) as producer:
        await producer.send_and_wait(topic, b"1")
    asked = len(provider.asked)
    provider.script += [(503, b"")] * 100
    # The token at hand is to be replaced at once, which fails: it still serves new clients.
    for _ in range(3):
        async with AIOKafkaProducer(**options(kafka, tokens)) as producer:
            await producer.send_and_wait(topic, b"2")
    assert asked < len(provider.asked) < asked + 10


async def test_the_example(
    kafka: KafkaCluster,
    certificates: Certificates,
    provider: IdentityProvider,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CLIENT_SECRET", CLIENT_SECRET)
    output = await run_script(
        "oidc.py",
        *("--bootstrap", kafka.addresses("OIDCTLS"), "--topic", await new_topic(kafka)),
        *("--token-endpoint", provider.url(), "--client-id", CLIENT_ID),
        *("--cafile", certificates.cafile),
    )
    assert output == "sent to partition 0\nread b'Hello'\n"
    assert [asked.form["scope"] for asked in provider.asked] == ["kafka"]
