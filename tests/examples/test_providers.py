"""The recipes for providers log in to clusters that ask for the same, under a public authority."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.helpers import create_ssl_context
from aiokafka.testing import FakeCluster, Security
from tests.examples.scripts import EXAMPLES
from tests.net.support import Certificates
from tests.oauth.identity_provider import CLIENT_ID, CLIENT_SECRET, IdentityProvider

GUIDES = EXAMPLES / "guides"
BY_PASSWORD = {
    "confluent_cloud": ("PLAIN", "key", "secret"),
    "msk_scram": ("SCRAM-SHA-512", "alice", "alice-secret"),
    "event_hubs": ("PLAIN", "$ConnectionString", "Endpoint=sb://a.servicebus.windows.net/;Sh=x"),
    "aiven_scram": ("SCRAM-SHA-256", "avnadmin", "alice-secret"),
    "redpanda": ("SCRAM-SHA-256", "alice", "alice-secret"),
    "strimzi_scram": ("SCRAM-SHA-512", "billing", "alice-secret"),
}
BY_CERTIFICATE = ("aiven_certificate", "strimzi_certificate")
BY_TOKEN = ("confluent_cloud_oauth", "msk_iam")
# Its identity provider is at one address.
ELSEWHERE = ("event_hubs_entra",)


@pytest.fixture
def recipes(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(GUIDES)
    yield importlib.import_module("providers")
    sys.modules.pop("providers", None)


@pytest.fixture
def certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Certificates:
    """An authority that the system trusts."""
    found = Certificates(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", found.cafile)
    return found


@pytest.fixture
def secrets(certificates: Certificates, tmp_path: Path) -> Path:
    """A folder with the files that providers give."""
    both = Path(certificates.issue("client", "client.example")).read_text()
    key, certificate = both.split("-----BEGIN CERTIFICATE-----")
    certificate = "-----BEGIN CERTIFICATE-----" + certificate
    authority = Path(certificates.cafile).read_text()
    contents = {
        "ca.pem": authority,
        "service.cert": certificate,
        "service.key": key,
        "cluster/ca.crt": authority,
        "billing/user.crt": certificate,
        "billing/user.key": key,
        "billing/password": "alice-secret",
    }
    for name, text in contents.items():
        path = tmp_path / "secrets" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "secrets"


def arguments_of(name: str, secrets: Path) -> dict[str, str]:
    _, user, password = BY_PASSWORD.get(name, ("", "", ""))
    if name.startswith("strimzi"):
        places = {"cluster_secret": "cluster", "user_secret": "billing"}
        return {argument: str(secrets / place) for argument, place in places.items()}
    return {
        "confluent_cloud": {"api_key": user, "api_secret": password},
        "event_hubs": {"connection_string": password},
        "aiven_certificate": {"folder": str(secrets)},
        "aiven_scram": {
            "cafile": str(secrets / "ca.pem"),
            "sasl_username": user,
            "sasl_password": password,
        },
        "msk_iam": {"region": "eu-central-1"},
    }.get(name, {"sasl_username": user, "sasl_password": password})


async def use(cluster: FakeCluster, options: Any) -> None:
    """Write and read a record."""
    await cluster.create_topic("my-topic")
    async with AIOKafkaProducer(**options) as producer:
        await producer.send_and_wait("my-topic", b"hello")
    async with AIOKafkaConsumer("my-topic", auto_offset_reset="earliest", **options) as consumer:
        assert (await consumer.getone()).value == b"hello"


def test_every_recipe_is_tested(recipes: ModuleType) -> None:
    assert recipes.RECIPES.keys() == {*BY_PASSWORD, *BY_CERTIFICATE, *BY_TOKEN, *ELSEWHERE}


@pytest.mark.parametrize("name", BY_PASSWORD)
async def test_passwords(
    name: str, recipes: ModuleType, certificates: Certificates, secrets: Path
) -> None:
    mechanism, user, password = BY_PASSWORD[name]
    security = Security({user: password}, mechanisms=[mechanism])
    context = certificates.server_context("127.0.0.1")
    async with FakeCluster(security=security, ssl_context=context) as cluster:
        arguments = arguments_of(name, secrets)
        await use(cluster, recipes.RECIPES[name](cluster.bootstrap_servers, **arguments))


@pytest.mark.parametrize("name", BY_CERTIFICATE)
async def test_certificates(
    name: str, recipes: ModuleType, certificates: Certificates, secrets: Path
) -> None:
    context = certificates.server_context("127.0.0.1", wants_client=True)
    async with FakeCluster(ssl_context=context) as cluster:
        arguments = arguments_of(name, secrets)
        await use(cluster, recipes.RECIPES[name](cluster.bootstrap_servers, **arguments))


async def test_tokens_of_an_identity_provider(
    recipes: ModuleType, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    context = certificates.server_context("127.0.0.1")
    security = Security(mechanisms=["OAUTHBEARER"])
    with IdentityProvider() as provider:
        async with FakeCluster(security=security, ssl_context=context) as cluster:
            options = recipes.confluent_cloud_oauth(
                cluster.bootstrap_servers,
                *(provider.url(), CLIENT_ID, CLIENT_SECRET, "lkc-1", "pool-1"),
            )
            await use(cluster, options)
    assert options["sasl_oauth_token_provider"].extensions() == {
        "logicalCluster": "lkc-1",
        "identityPoolId": "pool-1",
    }


async def test_tokens_for_msk(
    recipes: ModuleType, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    context = certificates.server_context("127.0.0.1")
    security = Security(mechanisms=["OAUTHBEARER"], accept_token=lambda token: "a-role")
    async with FakeCluster(security=security, ssl_context=context) as cluster:
        await use(cluster, recipes.msk_iam(cluster.bootstrap_servers, "eu-central-1"))


async def test_what_cannot_be_tried_here_makes_clients(recipes: ModuleType) -> None:
    options = recipes.event_hubs_entra("a.servicebus.windows.net:9093", "tenant", "id", "secret")
    AIOKafkaAdminClient(**options)
    producer = AIOKafkaProducer(**options, **recipes.EVENT_HUBS_PRODUCER)
    await producer.stop()


async def test_as_a_program_it_shows_the_brokers(
    recipes: ModuleType,
    certificates: Certificates,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    security = Security({"alice": "alice-secret"}, mechanisms=["SCRAM-SHA-512"])
    context = certificates.server_context("127.0.0.1")
    monkeypatch.setenv("SASL_USERNAME", "alice")
    monkeypatch.setenv("SASL_PASSWORD", "alice-secret")
    monkeypatch.delenv("BOOTSTRAP", raising=False)
    with pytest.raises(SystemExit, match="BOOTSTRAP is not set"):
        recipes.chosen(recipes.msk_scram)
    async with FakeCluster(brokers=2, security=security, ssl_context=context) as cluster:
        monkeypatch.setenv("BOOTSTRAP", cluster.bootstrap_servers)
        await recipes.show_brokers(recipes.chosen(recipes.msk_scram))
    assert capsys.readouterr().out.startswith("broker 0: 127.0.0.1:")


# -- from Java's key stores


def run(*command: str, **environment: str) -> None:
    subprocess.run(
        command,
        env={**os.environ, **environment},
        check=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )


@pytest.fixture
def stores(certificates: Certificates, tmp_path: Path) -> dict[str, str]:
    """What a Java client is given: two JKS files; the key has a password of its own."""
    missing = [name for name in ("keytool", "openssl", "sh") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {missing[0]}")
    trusted, own, both = (str(tmp_path / name) for name in ("trust.jks", "own.jks", "client.p12"))
    pem = certificates.issue("client", "client.example")
    run("openssl", "pkcs12", "-export", "-in", pem, "-out", both, "-passout", "pass:for-store")
    run(
        *("keytool", "-importcert", "-noprompt", "-alias", "ca", "-file", certificates.cafile),
        *("-keystore", trusted, "-storetype", "JKS", "-storepass", "for-trust"),
    )
    run(
        *("keytool", "-importkeystore", "-noprompt", "-srckeystore", both),
        *("-srcstorepass", "for-store", "-srcalias", "1", "-destalias", "client"),
        *("-destkeystore", own, "-deststoretype", "JKS", "-deststorepass", "for-store"),
        *("-destkeypass", "for-the-key"),
    )
    return {
        "TRUSTSTORE": trusted,
        "TRUSTSTORE_PASSWORD": "for-trust",
        "KEYSTORE": own,
        "KEYSTORE_PASSWORD": "for-store",
        "KEY_ALIAS": "client",
        "KEY_PASSWORD": "for-the-key",
        "PEM": str(tmp_path / "pem"),
    }


@pytest.mark.timeout(240)  # each of its programs of Java takes seconds on a busy machine
async def test_pem_from_jks_logs_in(
    stores: dict[str, str], certificates: Certificates, tmp_path: Path
) -> None:
    run("sh", str(GUIDES / "pem_from_jks.sh"), **stores)
    made = tmp_path / "pem"
    assert {path.name for path in made.iterdir()} == {"ca.pem", "client.pem", "client.key"}
    assert (made / "client.key").stat().st_mode & 0o077 == 0
    context = certificates.server_context("127.0.0.1", wants_client=True)
    async with FakeCluster(ssl_context=context) as cluster:
        options = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "security_protocol": "SSL",
            "ssl_context": create_ssl_context(
                cafile=str(made / "ca.pem"),
                certfile=str(made / "client.pem"),
                keyfile=str(made / "client.key"),
            ),
        }
        await use(cluster, options)
