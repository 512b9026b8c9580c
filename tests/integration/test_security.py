"""TLS and SASL on a real Kafka: every mechanism that needs no third server, encrypted and not."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError
from aiokafka.helpers import create_ssl_context
from tests.integration.logins import MECHANISMS, SCRAM_USERS, login, secured_properties
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


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(certificates: Certificates) -> Iterator[KafkaCluster]:
    need_own_brokers()
    config = secured_properties(certificates, LISTENERS)
    extras = Extras(listeners=LISTENERS, host="localhost", format_options=SCRAM_USERS)
    with KafkaCluster(config=config, extras=extras) as cluster:
        yield cluster


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


@pytest.mark.parametrize("listener", ["SASLPLAIN", "SASLTLS"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_produce_and_consume_with_sasl(
    secured: KafkaCluster, certificates: Certificates, mechanism: str, listener: str
) -> None:
    options = login(mechanism)
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
        **login(mechanism, "wrong"),
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
