"""GSSAPI on a real Kafka with a real KDC, both started here."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import AuthenticationFailedError
from aiokafka.helpers import create_ssl_context
from aiokafka.net.sasl.gssapi import Gssapi, KerberosIdentity
from tests.examples.scripts import run_script
from tests.integration.secured import new_topic, refused, tls_listeners, use_everything
from tests.kafka.fixtures import need_own_brokers
from tests.kafka.kdc import REALM, Kdc, missing_kerberos
from tests.kafka.launcher import KafkaCluster
from tests.kafka.settings import Extras, Jvm
from tests.net.support import Certificates

if missing_kerberos():
    if os.environ.get("AIOKAFKA_KERBEROS") == "required":
        raise RuntimeError(f"the tests of Kerberos have to run: {missing_kerberos()}")
    pytest.skip(f"Kerberos: {missing_kerberos()}", allow_module_level=True)

LISTENERS = {
    "KERBEROS": "SASL_PLAINTEXT",
    "KERBEROSTLS": "SASL_SSL",
    "KERBEROSREAUTH": "SASL_PLAINTEXT",
}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    found = Kdc(tmp_path_factory.mktemp("kdc"))
    found.start()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in found.environment.items():
            patch.setenv(name, value)
        yield found
    found.stop()


@pytest.fixture(scope="module")
def kafka(kdc: Kdc, certificates: Certificates) -> Iterator[KafkaCluster]:
    need_own_brokers()
    module = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true "
        f'isInitiator=false keyTab="{kdc.keytab("kafka/localhost")}" '
        f'principal="kafka/localhost@{REALM}";'
    )
    properties = {
        **tls_listeners(certificates, ["KERBEROSTLS"]),
        **{f"listener.name.{name.lower()}.gssapi.sasl.jaas.config": module for name in LISTENERS},
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "connection.failed.authentication.delay.ms": "0",
        "listener.name.kerberosreauth.gssapi.connections.max.reauth.ms": "3000",
        # Created tokens tell which user is logged in.
        "delegation.token.secret.key": "of-the-brokers",
    }
    realm = f"-Djava.security.krb5.conf={kdc.environment['KRB5_CONFIG']}"
    extras = Extras(listeners=LISTENERS, host="localhost")
    with KafkaCluster(config=properties, extras=extras, jvm=Jvm(options=(realm,))) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def keytab(kdc: Kdc) -> str:
    return kdc.keytab("alice")


def options(kafka: KafkaCluster, listener: str = "KERBEROS", **more: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": kafka.addresses(listener),
        "security_protocol": LISTENERS[listener],
        "sasl_mechanism": "GSSAPI",
        **more,
    }


async def user(**found: Any) -> str:
    """The user as which these options log in."""
    async with AIOKafkaAdminClient(**found) as admin:
        return (await admin.create_delegation_token()).owner


@pytest.mark.parametrize("listener", ["KERBEROS", "KERBEROSTLS"])
async def test_everything_with_a_keytab(
    kafka: KafkaCluster, certificates: Certificates, keytab: str, listener: str
) -> None:
    found = options(kafka, listener, sasl_kerberos_keytab=keytab)
    if listener == "KERBEROSTLS":
        found["ssl_context"] = create_ssl_context(cafile=certificates.cafile)
    await use_everything(kafka, **found)


async def test_everything_with_a_ticket(
    kafka: KafkaCluster, kdc: Kdc, keytab: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kdc.kinit("alice", keytab, tmp_path / "cache")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'cache'}")
    await use_everything(kafka, **options(kafka))


async def test_the_keytab_of_the_environment(
    kafka: KafkaCluster, keytab: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_CLIENT_KTNAME", f"FILE:{keytab}")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'cache'}")
    assert await user(**options(kafka)) == "User:alice"


async def test_each_client_is_who_it_says(kafka: KafkaCluster, kdc: Kdc, keytab: str) -> None:
    bob = kdc.keytab("bob")
    logins = [
        {"sasl_kerberos_keytab": keytab},
        {"sasl_kerberos_keytab": bob, "sasl_kerberos_principal": f"bob@{REALM}"},
        {"sasl_kerberos_keytab": keytab, "sasl_kerberos_principal": "alice"},
    ]
    users = await asyncio.gather(*(user(**options(kafka, **login)) for login in logins))
    assert users == ["User:alice", "User:bob", "User:alice"]


async def test_the_example(kafka: KafkaCluster, keytab: str) -> None:
    output = await run_script(
        "kerberos.py",
        *("--bootstrap", kafka.addresses("KERBEROS"), "--topic", await new_topic(kafka)),
        *("--keytab", keytab, "--principal", f"alice@{REALM}"),
    )
    assert output == "sent to partition 0\nread b'Hello'\n"


# ---------------------------------------------------------------- time


async def test_a_ticket_that_has_expired_and_one_that_is_fresh(
    kafka: KafkaCluster, kdc: Kdc, keytab: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    kdc.kinit("alice", keytab, cache, "2s")
    topic = await new_topic(kafka)
    async with AIOKafkaProducer(**options(kafka)) as producer:
        await asyncio.sleep(3.2)
        text = await refused(AuthenticationFailedError, "(?i)expired", **options(kafka))
        assert "run kinit again" in text
        # A connection that is open outlives its ticket.
        await producer.send_and_wait(topic, b"1")
        kdc.kinit("alice", keytab, cache)
        assert await user(**options(kafka)) == "User:alice"


async def test_sessions_are_renewed_with_new_tickets(
    kafka: KafkaCluster, kdc: Kdc, keytab: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    kdc.kinit("alice", keytab, cache)
    topic = await new_topic(kafka)
    sent, ends = 0, time.monotonic() + 7.0
    async with AIOKafkaProducer(**options(kafka, "KERBEROSREAUTH")) as producer:
        while time.monotonic() < ends:
            metadata = await producer.send_and_wait(topic, b"%d" % sent)
            assert metadata.offset == sent
            sent += 1
            await asyncio.sleep(0.02)
            if sent == 50:
                kdc.kinit("alice", keytab, cache)


# ---------------------------------------------------------------- refusals


async def test_no_ticket_at_all(kafka: KafkaCluster) -> None:
    text = await refused(AuthenticationFailedError, "GSSAPI", **options(kafka))
    assert "run kinit, or set sasl_kerberos_keytab" in text


async def test_a_keytab_that_is_not_there(kafka: KafkaCluster, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.keytab")
    found = options(kafka, sasl_kerberos_keytab=missing)
    await refused(AuthenticationFailedError, "missing.keytab", **found)


async def test_a_keytab_with_old_keys(kafka: KafkaCluster, kdc: Kdc) -> None:
    old = kdc.keytab("carol")
    kdc.keytab("carol")
    found = options(kafka, sasl_kerberos_keytab=old, sasl_kerberos_principal="carol")
    await refused(AuthenticationFailedError, "the keys in the keytab", **found)


async def test_a_service_that_the_kdc_does_not_know(kafka: KafkaCluster, keytab: str) -> None:
    found = options(kafka, sasl_kerberos_keytab=keytab, sasl_kerberos_service_name="other")
    text = await refused(AuthenticationFailedError, "other@localhost", **found)
    assert "sasl_kerberos_service_name" in text


async def test_a_broker_that_is_somebody_else(kafka: KafkaCluster, kdc: Kdc, keytab: str) -> None:
    kdc.keytab("kafka/elsewhere")
    found = options(kafka, sasl_kerberos_keytab=keytab, sasl_kerberos_domain_name="elsewhere")
    await refused(AuthenticationFailedError, "GSSAPI", **found)


async def test_a_kdc_that_is_away(kafka: KafkaCluster, kdc: Kdc) -> None:
    fresh = kdc.keytab("dave")
    kdc.stop()
    try:
        found = options(kafka, sasl_kerberos_keytab=fresh, sasl_kerberos_principal="dave")
        await refused(AuthenticationFailedError, "KDC", **found)
    finally:
        kdc.resume()
    assert await user(**found) == "User:dave"


# ---------------------------------------------------------------- names


def by_address(kafka: KafkaCluster, **more: Any) -> dict[str, Any]:
    found = options(kafka, **more)
    return found | {
        "bootstrap_servers": found["bootstrap_servers"].replace("localhost", "127.0.0.1")
    }


async def test_a_broker_that_is_called_by_its_address(kafka: KafkaCluster, keytab: str) -> None:
    await refused(
        AuthenticationFailedError,
        "client_dns_lookup",
        **by_address(kafka, sasl_kerberos_keytab=keytab),
    )
    named = by_address(kafka, sasl_kerberos_keytab=keytab, sasl_kerberos_domain_name="localhost")
    assert await user(**named) == "User:alice"


@pytest.mark.skipif(
    socket.getnameinfo(("127.0.0.1", 1), socket.NI_NUMERICSERV)[0] != "localhost",
    reason="127.0.0.1 has another name here",
)
async def test_canonical_names_of_bootstrap_servers(kafka: KafkaCluster, keytab: str) -> None:
    lookup = "resolve_canonical_bootstrap_servers_only"
    found = by_address(kafka, sasl_kerberos_keytab=keytab, client_dns_lookup=lookup)
    assert await user(**found) == "User:alice"


# ---------------------------------------------------------------- a broker of our own


@pytest.fixture(scope="module")
def service_keytab(kdc: Kdc) -> str:
    return kdc.keytab("kafka/ours")


async def agreed(service_keytab: str, keytab: str, offer: bytes) -> bytes:
    """What the client answers to the security layers that a broker offers."""
    import gssapi

    store = {"keytab": f"FILE:{service_keytab}"}
    service = gssapi.Name("kafka@ours", name_type=gssapi.NameType.hostbased_service)
    server = gssapi.SecurityContext(
        creds=gssapi.Credentials(name=service, usage="accept", store=store), usage="accept"
    )
    client = Gssapi("kafka", "ours", KerberosIdentity("alice", keytab))
    await client.prepare()
    proof = server.step(client.start())
    assert client.step(proof or b"") == b""
    answer = client.step(server.wrap(offer, False).message)
    assert client.done and answer is not None
    return bytes(server.unwrap(answer).message)


async def test_no_security_layer_is_agreed_on(service_keytab: str, keytab: str) -> None:
    answer = await agreed(service_keytab, keytab, b"\x07\x00\xff\xff")
    assert answer == b"\x01\x00\x00\x00" + f"alice@{REALM}".encode()


@pytest.mark.parametrize("offer", [b"\x02\x00\xff\xff", b"\x06\x00\xff\xff", b"\x00" * 4, b"\x01"])
async def test_a_security_layer_that_is_demanded_is_refused(
    service_keytab: str, keytab: str, offer: bytes
) -> None:
    with pytest.raises(AuthenticationFailedError, match="use TLS instead"):
        await agreed(service_keytab, keytab, offer)


@pytest.mark.parametrize("challenge", [b"", b"x", b"\x60\x00", b"\x00" * 1000])
async def test_a_broker_that_does_not_prove_itself_is_refused(
    kdc: Kdc, keytab: str, challenge: bytes
) -> None:
    kdc.keytab("kafka/impostor")
    client = Gssapi("kafka", "impostor", KerberosIdentity("alice", keytab))
    await client.prepare()
    with pytest.raises(AuthenticationFailedError, match="kafka@impostor"):
        client.step(challenge)
