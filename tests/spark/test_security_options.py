"""Settings of security as jobs have them for Java's clients."""

from __future__ import annotations

import pickle
import re
import ssl
from pathlib import Path

import pytest

from aiokafka import AIOKafkaClient
from aiokafka.abc import AbstractTokenProvider
from aiokafka.oauth import (
    ClientCredentialsTokenProvider,
    FileTokenProvider,
    MskIamTokenProvider,
)
from aiokafka.spark._kafka_options import ClientSettings, parse_settings
from aiokafka.testing import FakeCluster, Security
from tests.testing.certificates import make_contexts

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MSK = "software.amazon.msk.auth.iam.IAMLoginModule"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"
URL = "https://login.example.com/token"


def settings(**given: str) -> ClientSettings:
    """The names with _ for dots."""
    options = {name.replace("_", "."): text for name, text in given.items()}
    return parse_settings({"bootstrap.servers": "localhost:9092", **options}, writing=False)


def test_the_protocol_comes_in_any_case() -> None:
    """As with Java's clients."""
    given = settings(security_protocol="sasl_ssl")
    assert given.keywords()["security_protocol"] == "SASL_SSL"
    assert "ssl_context" in given.keywords()


def test_names_and_passwords() -> None:
    plain = settings(sasl_jaas_config=f'{PLAIN} required username="me" password="hush";')
    assert plain.keywords()["sasl_plain_username"] == "me"
    assert plain.keywords()["sasl_plain_password"] == "hush"
    scram = settings(
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config=f'{SCRAM} required username="id" password="hmac" tokenauth="true";',
    )
    assert scram.keywords()["sasl_scram_tokenauth"] is True


def test_a_password_does_not_go_out_in_clear_for_want_of_a_mechanism() -> None:
    with pytest.raises(ValueError, match="ScramLoginModule needs"):
        settings(sasl_jaas_config=f'{SCRAM} required username="me" password="hush";')


OAUTH_SETTINGS = {
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauthbearer_token_endpoint_url": URL,
    "sasl_login_callback_handler_class": "org.apache.kafka.x.OAuthBearerLoginCallbackHandler",
}


@pytest.mark.parametrize(
    "given",
    [
        {
            "sasl_oauthbearer_client_credentials_client_id": "me",
            "sasl_oauthbearer_client_credentials_client_secret": "hush",
            "sasl_oauthbearer_scope": "kafka",
            "sasl_oauthbearer_header_urlencode": "true",
        },
        {
            "sasl_jaas_config": f'{OAUTH} required clientId="me" clientSecret="hush" '
            'scope="kafka" extension_logicalCluster="lkc-1";'
        },
    ],
)
async def test_tokens_of_an_endpoint(given: dict[str, str]) -> None:
    made = pickle.loads(pickle.dumps(settings(**OAUTH_SETTINGS, **given)))
    provider = made.keywords()["sasl_oauth_token_provider"]
    assert isinstance(provider, ClientCredentialsTokenProvider)
    is_jaas = "sasl_jaas_config" in given
    assert provider.extensions() == ({"logicalCluster": "lkc-1"} if is_jaas else {})


def test_tokens_of_a_file() -> None:
    made = settings(
        sasl_jaas_config=f"{OAUTH} required extension_a=b;",
        sasl_oauthbearer_token_endpoint_url="file:///run/token",
    )
    provider = made.keywords()["sasl_oauth_token_provider"]
    assert isinstance(provider, FileTokenProvider)
    assert provider.extensions() == {"a": "b"}


class Tokens(AbstractTokenProvider):
    """A provider of the job's own."""

    async def token(self) -> str:
        return "secret"


def test_tokens_of_ones_own() -> None:
    """Each client has a provider of its own: what it holds belongs to an event loop."""
    path = f"{__name__}:Tokens"
    made = pickle.loads(
        pickle.dumps(settings(sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=path))
    )
    first, second = (made.keywords()["sasl_oauth_token_provider"] for _ in range(2))
    assert isinstance(first, Tokens) and isinstance(second, Tokens)
    assert first is not second


def test_tokens_of_msk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    made = settings(
        security_protocol="SASL_SSL",
        sasl_mechanism="AWS_MSK_IAM",
        sasl_jaas_config=f"{MSK} required;",
        sasl_client_callback_handler_class="software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    )
    keywords = made.keywords()
    assert isinstance(keywords["sasl_oauth_token_provider"], MskIamTokenProvider)
    assert keywords["sasl_mechanism"] == "OAUTHBEARER"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sasl_jaas_config": f"{PLAIN} required username=me;"}, "PlainLoginModule needs password"),
        ({"sasl_jaas_config": "x.OtherModule required;"}, "OtherModule is not known; known: Plain"),
        ({"sasl_jaas_config": f"{MSK} required awsRoleArn=x;"}, "awsRoleArn of IAMLoginModule"),
        ({"sasl_jaas_config": f"{OAUTH} required unsecuredLoginStringClaim_sub=x;"}, "signature"),
        ({"sasl_oauthbearer_scope": "x"}, "token.endpoint.url: must be given"),
        ({"sasl_login_callback_handler_class": "x.Mine"}, "kafka.sasl.oauth.token.provider names"),
        ({"ssl_enabled_protocols": "SSLv3,TLSv1.1"}, "must have TLSv1.2 or TLSv1.3"),
        ({"ssl_keystore_location": "a.p12"}, "only PEM files"),
    ],
)
def test_what_cannot_be_served(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings(**given)


def test_kerberos_logs_in_as_the_principal_of_the_keytab() -> None:
    made = settings(
        sasl_jaas_config=f"{KERBEROS} required useKeyTab=true storeKey=true "
        'keyTab="/etc/app.keytab" principal="app@EXAMPLE.COM" serviceName="kafka2";'
    )
    assert made.client == {
        "bootstrap_servers": "localhost:9092",
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_keytab": "/etc/app.keytab",
        "sasl_kerberos_principal": "app@EXAMPLE.COM",
        "sasl_kerberos_service_name": "kafka2",
    }


def test_names_of_librdkafka_are_read() -> None:
    options = {
        "metadata.broker.list": "a:1",
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": "SCRAM-SHA-256",
        "sasl.username": "me",
        "sasl.password": "hush",
    }
    assert parse_settings(options, writing=True).client == {
        "bootstrap_servers": "a:1",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "me",
        "sasl_plain_password": "hush",
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metadata_broker_list": "other:1"}, "kafka.metadata.broker.list: differs"),
        (
            {"sasl_username": "a", "sasl_plain_username": "b"},
            "has another value for sasl_plain_username",
        ),
        (
            {
                "sasl_username": "a",
                "sasl_jaas_config": f"{PLAIN} required username=b password=hush;",
            },
            "kafka.sasl.jaas.config: another setting has another value for sasl_plain_username",
        ),
        ({"ssl_cafile": "a", "ssl_ca_location": "b"}, "kafka.ssl.ca.location: differs from"),
        (
            {
                "sasl_kerberos_service_name": "kafka",
                "sasl_jaas_config": f"{KERBEROS} required serviceName=other;",
            },
            "serviceName differs",
        ),
        ({"ssl_endpoint_identification_algorithm": "http"}, "must be https, or empty"),
        ({"sasl_mechanizm": "PLAIN"}, "did you mean kafka.sasl.mechanism?"),
    ],
)
def test_what_contradicts_or_is_unknown_is_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        settings(**given)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("end", ["\n", " ", "\\n"], ids=["lines", "one line", "escaped"])
def test_certificates_in_options(tmp_path: Path, end: str) -> None:
    """KIP-651: the text of PEM files, for jobs that have no files on their executors."""
    make_contexts(tmp_path)
    begin = "-----BEGIN CERTIFICATE-----"
    pem = (tmp_path / "server.pem").read_text().replace("\n", end)
    key, _, certificate = pem.partition(begin)
    made = settings(
        security_protocol="SSL",
        ssl_truststore_type="PEM",
        ssl_truststore_certificates=begin + certificate,
        ssl_keystore_type="PEM",
        ssl_keystore_certificate_chain=begin + certificate,
        ssl_keystore_key=key,
        ssl_enabled_protocols="TLSv1.3",
        ssl_endpoint_identification_algorithm="",
    )
    context = pickle.loads(pickle.dumps(made)).keywords()["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    assert len(context.get_ca_certs()) == 1
    assert context.minimum_version == context.maximum_version == ssl.TLSVersion.TLSv1_3
    assert not context.check_hostname


def test_no_secret_is_shown() -> None:
    made = settings(
        **OAUTH_SETTINGS,
        sasl_jaas_config=f'{OAUTH} required clientId="me" clientSecret="hush-hush";',
        ssl_key_password="hush-hush",
        ssl_keystore_key="hush-hush",
        sasl_password="hush-hush",
    )
    assert "hush" not in repr(made) + str(made)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
async def test_a_query_logs_in_by_jaas(mechanism: str) -> None:
    security = Security(users={"me": 'a"b\\c'}, mechanisms=[mechanism], iterations=4096)
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    async with FakeCluster(security=security) as cluster:
        made = parse_settings(
            {
                "bootstrap.servers": cluster.bootstrap_servers,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": rf'{module} required username="me" password="a\"b\\c";',
            },
            writing=False,
        )
        async with AIOKafkaClient(**made.keywords()) as client:
            await client.fetch_all_metadata()
        assert security.logins >= 1
        assert security.refusals == 0
