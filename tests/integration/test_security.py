"""TLS and SASL on a real Kafka: every mechanism that needs no third server, encrypted and not."""

from __future__ import annotations

import base64
import json
import re
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import (
    AuthenticationFailedError,
    KafkaConnectionError,
)
from aiokafka.helpers import create_ssl_context
from tests.kafka.fixtures import need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.settings import Extras
from tests.kafka.topics import create_topic
from tests.net.support import Certificates

pytestmark = pytest.mark.integration

LISTENERS = {
    "TLS": "SSL",
    "MTLS": "SSL",
    "SASLPLAIN": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
}
USER, PASSWORD = "alice", "alice-secret"


class UnsecuredToken(AbstractTokenProvider):
    """A JSON web token without a signature, which the broker takes where nothing else is set up."""

    def __init__(self, subject: str = USER, lifetime: float = 300) -> None:
        self.subject = subject
        self.lifetime = lifetime

    async def token(self) -> str:
        now = time.time()
        claims = {"sub": self.subject, "iat": now, "exp": now + self.lifetime}
        return f"{_segment({'alg': 'none'})}.{_segment(claims)}."


def _segment(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _property(pem: str) -> str:
    return pem.replace("\n", "\\n")


def _login(module: str, rest: str = "") -> str:
    return f"org.apache.kafka.common.security.{module} required{rest};"


def _properties(certificates: Certificates) -> dict[str, str]:
    pem = Path(certificates.issue("localhost-broker", "localhost")).read_text()
    key = re.search(r"-----BEGIN[^-]*PRIVATE KEY-----.*?-----END[^-]*-----", pem, re.DOTALL)
    chain = pem[pem.index("-----BEGIN CERTIFICATE") :]
    assert key is not None
    found = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": _property(Path(certificates.cafile).read_text()),
        "listener.name.mtls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "connection.failed.authentication.delay.ms": "0",
    }
    for listener in ("tls", "mtls", "sasltls"):
        found[f"listener.name.{listener}.ssl.keystore.type"] = "PEM"
        found[f"listener.name.{listener}.ssl.keystore.key"] = _property(key[0])
        found[f"listener.name.{listener}.ssl.keystore.certificate.chain"] = _property(chain)
    logins = {
        "plain": _login("plain.PlainLoginModule", f' user_{USER}="{PASSWORD}"'),
        "scram-sha-256": _login("scram.ScramLoginModule"),
        "scram-sha-512": _login("scram.ScramLoginModule"),
        "oauthbearer": _login(
            "oauthbearer.OAuthBearerLoginModule", ' unsecuredLoginStringClaim_sub="broker"'
        ),
    }
    for listener in ("saslplain", "sasltls"):
        for mechanism, login in logins.items():
            found[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = login
    return found


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(certificates: Certificates) -> Iterator[KafkaCluster]:
    need_own_brokers()
    users = []
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        users += ["--add-scram", f"{mechanism}=[name={USER},password={PASSWORD}]"]
    extras = Extras(listeners=LISTENERS, host="localhost", format_options=tuple(users))
    with KafkaCluster(config=_properties(certificates), extras=extras) as cluster:
        yield cluster


def _options(mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    if mechanism == "OAUTHBEARER":
        # The broker forgives 30 seconds of clock skew.
        lifetime = 300 if password == PASSWORD else -60
        return {
            "sasl_mechanism": mechanism,
            "sasl_oauth_token_provider": UnsecuredToken(lifetime=lifetime),
        }
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password,
    }


async def _round(cluster: KafkaCluster, **options: Any) -> None:
    topic = f"secured-{time.monotonic_ns()}"
    await create_topic(cluster.bootstrap_servers, topic, 1, 1, {})
    async with AIOKafkaProducer(**options) as producer:
        sent = [await producer.send(topic, b"%d" % i) for i in range(100)]
        offsets = [(await future).offset for future in sent]
    assert offsets == list(range(100))
    async with AIOKafkaConsumer(auto_offset_reset="earliest", **options) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        values = [(await consumer.getone()).value for _ in range(100)]
    assert values == [b"%d" % i for i in range(100)]


MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


@pytest.mark.parametrize("listener", ["SASLPLAIN", "SASLTLS"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_produce_and_consume_with_sasl(
    secured: KafkaCluster, certificates: Certificates, mechanism: str, listener: str
) -> None:
    options = _options(mechanism)
    if listener == "SASLTLS":
        options["ssl_context"] = create_ssl_context(cafile=certificates.cafile)
    await _round(
        secured,
        bootstrap_servers=secured.addresses(listener),
        security_protocol=LISTENERS[listener],
        **options,
    )


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_wrong_credentials_are_refused_at_once(secured: KafkaCluster, mechanism: str) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=secured.addresses("SASLPLAIN"),
        security_protocol="SASL_PLAINTEXT",
        request_timeout_ms=20_000,
        **_options(mechanism, "wrong"),
    )
    with pytest.raises(AuthenticationFailedError) as caught:
        await producer.start()
    await producer.stop()
    assert mechanism in str(caught.value)
    assert "wrong" not in str(caught.value)


async def test_produce_and_consume_over_tls(
    secured: KafkaCluster, certificates: Certificates
) -> None:
    await _round(
        secured,
        bootstrap_servers=secured.addresses("TLS"),
        security_protocol="SSL",
        ssl_context=create_ssl_context(cafile=certificates.cafile),
    )


async def test_produce_and_consume_over_mutual_tls(
    secured: KafkaCluster, certificates: Certificates
) -> None:
    client = certificates.issue("client", "localhost")
    context = create_ssl_context(cafile=certificates.cafile, certfile=client, keyfile=client)
    await _round(
        secured,
        bootstrap_servers=secured.addresses("MTLS"),
        security_protocol="SSL",
        ssl_context=context,
    )


async def test_an_unknown_authority_is_named(secured: KafkaCluster) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=secured.addresses("TLS"),
        security_protocol="SSL",
        ssl_context=ssl.create_default_context(),
    )
    with pytest.raises(KafkaConnectionError, match=r"(?i)certificate"):
        await producer.start()
    await producer.stop()


async def test_a_plain_client_on_the_tls_port_is_told_so(secured: KafkaCluster) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=secured.addresses("TLS"))
    with pytest.raises(KafkaConnectionError, match="TLS"):
        await producer.start()
    await producer.stop()
