"""TLS and SASL on a real Kafka: every mechanism that needs no third server, encrypted and not."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    KafkaConnectionError,
)
from aiokafka.helpers import create_ssl_context
from tests.integration.logins import (
    MECHANISMS,
    ODD_USERS,
    PASSWORD,
    SCRAM_USERS,
    USER,
    login,
    secured_properties,
)
from tests.kafka.fixtures import need_own_brokers
from tests.kafka.launcher import KafkaCluster
from tests.kafka.settings import Extras
from tests.net.support import Certificates
from tests.support.own_sasl import OwnPlain, OwnScram

pytestmark = pytest.mark.integration

LISTENERS = {
    "TLS": "SSL",
    "MTLS": "SSL",
    "SASLPLAIN": "SASL_PLAINTEXT",
    "SASL512": "SASL_PLAINTEXT",
    "SASLTLS": "SASL_SSL",
    "EXPIRED": "SSL",
    "ELSEWHERE": "SSL",
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(certificates: Certificates) -> Iterator[KafkaCluster]:
    need_own_brokers()
    others = {
        "EXPIRED": certificates.issue("expired", "localhost", days=-1),
        "ELSEWHERE": certificates.issue("elsewhere", "other.example"),
    }
    config = secured_properties(certificates, LISTENERS, others)
    config["listener.name.sasl512.sasl.enabled.mechanisms"] = "SCRAM-SHA-512"
    extras = Extras(listeners=LISTENERS, host="localhost", format_options=SCRAM_USERS)
    with KafkaCluster(config=config, extras=extras) as cluster:
        yield cluster


async def _round(cluster: KafkaCluster, **options: Any) -> None:
    """Produce, consume in a group, transact, administer."""
    topic = f"secured-{time.monotonic_ns()}"
    admin = AIOKafkaAdminClient(**options)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    await admin.close()
    async with AIOKafkaProducer(**options) as producer:
        sent = [await producer.send(topic, b"%d" % i) for i in range(100)]
        offsets = [(await future).offset for future in sent]
    assert offsets == list(range(100))
    group = {"group_id": topic, "auto_offset_reset": "earliest"}
    async with (
        AIOKafkaConsumer(topic, isolation_level="read_committed", **group, **options) as consumer,
        AIOKafkaProducer(transactional_id=topic, **options) as producer,
    ):
        values = [(await consumer.getone()).value for _ in range(100)]
        assert values == [b"%d" % i for i in range(100)]
        async with producer.transaction():
            await producer.send(topic, b"transacted")
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 100}, topic)
        assert (await consumer.getone()).value == b"transacted"
        assert await consumer.committed(TopicPartition(topic, 0)) == 100


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


@pytest.mark.parametrize("kind", [OwnPlain, OwnScram])
async def test_a_mechanism_of_the_application(secured: KafkaCluster, kind: type[OwnPlain]) -> None:
    options: dict[str, Any] = {
        "bootstrap_servers": secured.addresses("SASLPLAIN"),
        "security_protocol": "SASL_PLAINTEXT",
    }
    await _round(secured, sasl_mechanism=kind(USER, PASSWORD), **options)
    wrong = kind(USER, "wrong")
    with pytest.raises(AuthenticationFailedError, match=wrong.name):
        await start_and_stop(AIOKafkaProducer(sasl_mechanism=wrong, **options))
    assert wrong.refusals >= 1


CLIENTS: dict[str, Callable[..., Any]] = {
    "producer": AIOKafkaProducer,
    "transactional": partial(AIOKafkaProducer, transactional_id="wrong"),
    "consumer": AIOKafkaConsumer,
    "group": partial(AIOKafkaConsumer, "t", group_id="wrong"),
    "admin": AIOKafkaAdminClient,
}


async def start_and_stop(client: Any) -> None:
    try:
        await client.start()
    finally:
        await (client.stop() if hasattr(client, "stop") else client.close())


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_wrong_credentials_are_refused_at_once(secured: KafkaCluster, mechanism: str) -> None:
    for make in CLIENTS.values():
        client = make(
            bootstrap_servers=secured.addresses("SASLPLAIN"),
            security_protocol="SASL_PLAINTEXT",
            **login(mechanism, "wrong"),
        )
        # A client that tried again would not end in time.
        async with timeout(5):
            with pytest.raises(AuthenticationFailedError) as caught:
                await start_and_stop(client)
        assert mechanism in str(caught.value)
        assert "wrong" not in str(caught.value)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_names_and_passwords_are_used_as_they_are(
    secured: KafkaCluster, mechanism: str
) -> None:
    refused = []
    for name, password in ODD_USERS.items():
        client = AIOKafkaProducer(
            bootstrap_servers=secured.addresses("SASLPLAIN"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=name,
            sasl_plain_password=password,
        )
        try:
            await start_and_stop(client)
        except AuthenticationFailedError:
            refused.append(name)
    assert refused == []


async def test_a_mechanism_that_is_not_offered_is_named(secured: KafkaCluster) -> None:
    client = AIOKafkaProducer(
        bootstrap_servers=secured.addresses("SASL512"),
        security_protocol="SASL_PLAINTEXT",
        **login("SCRAM-SHA-256"),
    )
    with pytest.raises(AuthenticationMethodNotSupported, match="it offers: SCRAM-SHA-512"):
        await start_and_stop(client)


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


async def test_produce_and_consume_with_certificates_as_text(
    secured: KafkaCluster, certificates: Certificates
) -> None:
    pem = await asyncio.to_thread(read, certificates.issue("client", "localhost"))
    start = pem.index("-----BEGIN CERTIFICATE")
    asked = 0

    def context() -> ssl.SSLContext:
        nonlocal asked
        asked += 1
        return create_ssl_context(
            cadata=certificates.authority, certdata=pem[start:], keydata=pem[:start]
        )

    await _round(
        secured,
        bootstrap_servers=secured.addresses("MTLS"),
        security_protocol="SSL",
        ssl_context=context,
    )
    assert asked >= 3


def read(path: str) -> str:
    return Path(path).read_text()


# listener, security protocol, authority ("", "ours", "foreign"), client certificate, message
TROUBLE: dict[str, tuple[str, str, str, str, str]] = {
    "system's authorities": ("TLS", "SSL", "", "", "authority is not trusted.*cafile"),
    "foreign authority": ("TLS", "SSL", "foreign", "", "authority is not trusted.*cafile"),
    "expired": ("EXPIRED", "SSL", "ours", "", "certificate was refused.*expired"),
    "other host": ("ELSEWHERE", "SSL", "ours", "", "not valid for 'localhost'.*check_hostname"),
    "no client certificate": ("MTLS", "SSL", "ours", "", "requires a client certificate"),
    "foreign client certificate": (
        "MTLS",
        "SSL",
        "ours",
        "foreign",
        "refused the client's certificate",
    ),
    "expired client certificate": (
        "MTLS",
        "SSL",
        "ours",
        "expired",
        "refused the client's certificate",
    ),
    "plain on tls": ("TLS", "PLAINTEXT", "", "", "the port speaks TLS, use security_protocol SSL"),
    "tls on plain": ("PLAINTEXT", "SSL", "ours", "", "may expect plaintext, not TLS"),
    "plain on sasl": ("SASLPLAIN", "PLAINTEXT", "", "", "expects SASL.*SASL_PLAINTEXT"),
    "sasl on plain": ("PLAINTEXT", "SASL_PLAINTEXT", "", "", "the listener does not use SASL"),
    "tls on sasl over tls": ("SASLTLS", "SSL", "ours", "", "expects SASL.*SASL_SSL"),
    "sasl on sasl over tls": ("SASLTLS", "SASL_PLAINTEXT", "", "", "the port speaks TLS"),
    "sasl over tls on sasl": ("SASLPLAIN", "SASL_SSL", "ours", "", "may expect plaintext"),
    "sasl over tls on tls": ("TLS", "SASL_SSL", "ours", "", "the listener does not use SASL"),
}


@pytest.mark.parametrize("case", TROUBLE)
async def test_trouble_is_named_at_once(
    secured: KafkaCluster,
    certificates: Certificates,
    tmp_path: Path,
    case: str,
) -> None:
    listener, protocol, authority, own, text = TROUBLE[case]
    foreign = Certificates(tmp_path / "foreign")
    options = login("PLAIN") if protocol.startswith("SASL") else {}
    if protocol.endswith("SSL"):
        cafile = {"ours": certificates.cafile, "foreign": foreign.cafile}.get(authority)
        certfile = {
            "foreign": foreign.issue("stranger", "localhost"),
            "expired": certificates.issue("late", "localhost", days=-1),
        }.get(own)
        options["ssl_context"] = create_ssl_context(cafile=cafile, certfile=certfile)
    producer = AIOKafkaProducer(
        bootstrap_servers=secured.addresses(listener), security_protocol=protocol, **options
    )
    # A client that tried again would not end in time.
    async with timeout(5):
        with pytest.raises((KafkaConnectionError, AuthenticationFailedError), match=text) as caught:
            await start_and_stop(producer)
    if listener == "MTLS":
        # With TLS 1.3 the broker's alert comes after the handshake, with the first read.
        cause: BaseException | None = caught.value
        while cause is not None and not isinstance(cause, ssl.SSLError):
            cause = cause.__cause__
        assert cause is not None, "the alert is not in the chain of causes"
