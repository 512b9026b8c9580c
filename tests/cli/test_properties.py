"""Properties files of Java's clients and of librdkafka: understood, or refused by name."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Any

import pytest

from aiokafka import _properties
from aiokafka.cli import properties
from aiokafka.cli.settings import client_options, find_settings
from aiokafka.errors import KafkaConfigurationError
from aiokafka.oauth import (
    ClientCredentialsTokenProvider,
    FileTokenProvider,
    MskIamTokenProvider,
)
from tests.testing.certificates import make_contexts

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
KERBEROS = "com.sun.security.auth.module.Krb5LoginModule required"
URL = "https://login.example.com/token"


def settings(text: str) -> dict[str, Any]:
    return properties.settings_of(_properties.parse(text))


def test_properties_are_read_as_java_reads_them() -> None:
    text = (
        "# comment\n! comment\n\n  a=1\nb : 2\nc 3\nd=x\\\n   y\\\n   z\n"
        "e\\=f=g=h\nu=\\u00e9\\t.\nempty=\nbackslash=\\\\\nlast=\\"
    )
    assert _properties.parse(text) == {
        "a": "1",
        "b": "2",
        "c": "3",
        "d": "xyz",
        "e=f": "g=h",
        "u": "\u00e9\t.",
        "empty": "",
        "backslash": "\\",
        "last": "",
    }


def test_a_java_client_logs_in_the_same_way() -> None:
    found = properties.settings_of(
        _properties.parse(
            "bootstrap.servers=a:1,b:2\nsecurity.protocol=SASL_PLAINTEXT\n"
            "sasl.mechanism=SCRAM-SHA-256\nrequest.timeout.ms=7000\nacks=all\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
            '  username="alice" password="a\\\\"b;c" tokenauth="true";\n'
        )
    )
    assert client_options(found) == {
        "bootstrap_servers": "a:1,b:2",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "request_timeout_ms": 7000,
        "sasl_scram_tokenauth": True,
        "sasl_plain_username": "alice",
        "sasl_plain_password": 'a"b;c',
    }


def test_blanks_behind_values_do_not_count_in_java() -> None:
    lines = (
        *("security.protocol=SASL_SSL ", "sasl.mechanism=PLAIN\t", "request.timeout.ms=7000 "),
        *("ssl.truststore.location=ca.pem ", "ssl.truststore.type=PEM ", "client.id=a b "),
        "sasl.oauthbearer.client.credentials.client.secret=se cret ",
    )
    assert properties.settings_of(_properties.parse("\n".join(lines))) == {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "request_timeout_ms": 7000,
        "ca_file": "ca.pem",
        "client_id": "a b",
        "password": "se cret",
    }


def test_java_key_stores_must_be_pem() -> None:
    with pytest.raises(KafkaConfigurationError, match="type PEM"):
        properties.settings_of({"ssl.truststore.location": "trust.jks"})
    pem = {"ssl.truststore.location": "ca.pem", "ssl.truststore.type": "PEM"}
    assert properties.settings_of(pem) == {"ca_file": "ca.pem"}


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a\\ b\\:c\\=d = e", {"a b:c=d": "e"}),
        ("a b=c", {"a": "b=c"}),
        ("a==b", {"a": "=b"}),
        ("a\t:\t b ", {"a": "b "}),
        ("a\f\t= b", {"a": "b"}),
        ("a = b\\\n   # no comment\\\n   c", {"a": "b# no comment" + "c"}),
        ("# a comment\\\nb=c", {"b": "c"}),
        ("a=b\\\n\nc=d", {"a": "b", "c": "d"}),
        ("a=b\\\r\n  c\rd=e\r\n", {"a": "bc", "d": "e"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=\\ b", {"a": " b"}),
        ("a=\\q\\\"\\'\\:", {"a": "q\"':"}),
        ("a=1\na=2", {"a": "2"}),
        ("a", {"a": ""}),
        ("=b", {"": "b"}),
        ("a=\\ud83d\\ude00", {"a": "\U0001f600"}),
        ("\\u0061=\\u00E9", {"a": "\u00e9"}),
        ("a\u00a0b=c\u2028d", {"a\u00a0b": "c\u2028d"}),
    ],
)
def test_the_syntax_is_that_of_java(text: str, pairs: dict[str, str]) -> None:
    assert _properties.parse(text) == pairs


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "a=\\ud83d"])
def test_a_damaged_escape_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a: "):
        _properties.parse(text)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1"])
def test_a_file_is_utf_8_or_latin_1(encoding: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes("client.id=M\u00fcller\n".encode(encoding))
    found = find_settings({"properties": str(file)}, {"XDG_CONFIG_HOME": str(tmp_path)})
    assert found == {"client_id": "M\u00fcller"}


def test_a_file_of_utf_16_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes("client.id=a\n".encode("utf-16"))
    with pytest.raises(KafkaConfigurationError, match="is not UTF-8 or ISO-8859-1"):
        find_settings({"properties": str(file)}, {})


CONFLUENT = """# Required connection configs for Kafka producer, consumer, and admin
bootstrap.servers=pkc-1.example.com:9092
security.protocol=SASL_SSL
{login}
# Required for correctness in Apache Kafka clients prior to 2.6
client.dns.lookup=use_all_dns_ips
session.timeout.ms=45000
acks=all
client.id=ccloud
schema.registry.url=https://psrc-1.example.com
basic.auth.credentials.source=USER_INFO
basic.auth.user.info=key:hush
"""


@pytest.mark.parametrize(
    "login",
    [
        f"sasl.jaas.config={PLAIN} username='KEY' password='p+/=;';\nsasl.mechanism=PLAIN",
        "sasl.mechanisms=PLAIN\nsasl.username=KEY\nsasl.password=p+/=;",
    ],
    ids=["Java", "librdkafka"],
)
def test_files_of_confluent_cloud(login: str) -> None:
    assert settings(CONFLUENT.format(login=login)) == {
        "bootstrap_servers": "pkc-1.example.com:9092",
        "security_protocol": "SASL_SSL",
        "client_dns_lookup": "use_all_dns_ips",
        "client_id": "ccloud",
        "sasl_mechanism": "PLAIN",
        "username": "KEY",
        "password": "p+/=;",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("secruity.protocol=SSL", "did you mean security.protocol?"),
        ("bootstrap.server=a:1", "did you mean bootstrap.servers?"),
        ("requests.timeout.ms=1", "did you mean request.timeout.ms?"),
        ("sasl_mechanism=PLAIN", "did you mean sasl.mechanism?"),
        ("ssl.something.new=1", "ssl.something.new: is not known here"),
        ("request.timeout.ms=1s", "request.timeout.ms='1s': must be a number"),
        ("ssl.cipher.suites=TLS_AES_128_GCM_SHA256", "ssl.cipher.suites: is not supported"),
        ("config.providers=file", "config.providers: is not supported"),
        ("ssl.engine.factory.class=x", "ssl.engine.factory.class: is not supported"),
        ("sasl.login.callback.handler.class=io.Mine", "sasl.login.callback.handler.class: a class"),
        ("ssl.endpoint.identification.algorithm=http", "must be https, or empty"),
        ("enable.ssl.certificate.verification=no", "must be true or false"),
        ("ssl.enabled.protocols=TLSv1.1", "must have TLSv1.2 or TLSv1.3"),
        ("sasl.oauthbearer.method=default", "must be oidc"),
        ("sasl.oauthbearer.extensions=a", "must be name=value"),
        ("sasl.oauthbearer.assertion.file=a", "sasl.oauthbearer.assertion.file: is not known"),
        ("bootstrap.servers=a:1\nmetadata.broker.list=b:1", "differs from bootstrap.servers"),
        (f"sasl.username=u\nsasl.jaas.config={PLAIN} username=v password=hush;", "differs from"),
        ("ssl.keystore.key=hush", "needs ssl.keystore.certificate.chain"),
        ("ssl.keystore.certificate.chain=hush", "needs ssl.keystore.key"),
        ("ssl.keystore.type=PKCS12\nssl.keystore.key=hush\nssl.certificate.pem=x", "type PEM"),
        (
            "ssl.truststore.type=PEM\nssl.truststore.location=a\nssl.truststore.certificates=b",
            "ssl.truststore.location: the certificates are in the file as well",
        ),
        (f"sasl.jaas.config={PLAIN} username=u password=hush/1;", "sasl.jaas.config: must be as"),
        (f"sasl.jaas.config={KERBEROS} ticketCache=t;", "sasl.jaas.config: ticketCache"),
    ],
)
def test_what_cannot_be_honoured_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(KafkaConfigurationError, match=re.escape(message)) as caught:
        settings(text)
    assert "hush" not in str(caught.value)


def test_kerberos_logs_in_as_the_principal_of_the_keytab() -> None:
    jaas = f'{KERBEROS} useKeyTab=true keyTab="/etc/app.keytab" principal="app@EXAMPLE.COM";'
    expected = {
        "sasl_mechanism": "GSSAPI",
        "sasl_kerberos_keytab": "/etc/app.keytab",
        "sasl_kerberos_principal": "app@EXAMPLE.COM",
        "sasl_kerberos_service_name": "kafka",
    }
    java = f"sasl.kerberos.service.name=kafka\nsasl.jaas.config={jaas}"
    assert settings(java) == expected
    librdkafka = (
        "sasl.mechanisms=GSSAPI\nsasl.kerberos.service.name=kafka\n"
        "sasl.kerberos.keytab=/etc/app.keytab\nsasl.kerberos.principal=app@EXAMPLE.COM"
    )
    assert settings(librdkafka) == expected


@pytest.mark.parametrize(
    "text",
    [
        f'sasl.jaas.config={OAUTH} clientId="i" clientSecret="s" extension_logicalCluster="l";\n'
        "sasl.mechanism=OAUTHBEARER\nsasl.login.callback.handler.class=org.apache.kafka.common."
        "security.oauthbearer.OAuthBearerLoginCallbackHandler",
        f"sasl.mechanism=OAUTHBEARER\nsasl.jaas.config={OAUTH} extension_logicalCluster=l;\n"
        "sasl.oauthbearer.client.credentials.client.id=i\n"
        "sasl.oauthbearer.client.credentials.client.secret=s",
        "sasl.mechanisms=OAUTHBEARER\nsasl.oauthbearer.method=oidc\n"
        "sasl.oauthbearer.client.id=i\nsasl.oauthbearer.client.secret=s\n"
        "sasl.oauthbearer.extensions=logicalCluster=l",
    ],
    ids=["JAAS", "Java", "librdkafka"],
)
def test_tokens_of_an_endpoint(text: str) -> None:
    options = client_options(
        settings(f"{text}\nsecurity.protocol=SASL_SSL\nsasl.oauthbearer.token.endpoint.url={URL}\n")
    )
    provider = options["sasl_oauth_token_provider"]
    assert isinstance(provider, ClientCredentialsTokenProvider)
    assert provider.extensions() == {"logicalCluster": "l"}
    assert options["sasl_mechanism"] == "OAUTHBEARER"


def test_tokens_of_a_file() -> None:
    text = (
        f"security.protocol=SASL_SSL\nsasl.jaas.config={OAUTH};\n"
        "sasl.oauthbearer.token.endpoint.url=file:///run/token"
    )
    options = client_options(settings(text))
    assert isinstance(options["sasl_oauth_token_provider"], FileTokenProvider)


def test_tokens_without_an_endpoint_are_refused_by_name() -> None:
    text = f"security.protocol=SASL_SSL\nsasl.jaas.config={OAUTH} clientId=i clientSecret=hush;"
    with pytest.raises(KafkaConfigurationError, match=r"sasl\.oauthbearer\.token\.endpoint\.url"):
        client_options(settings(text))


def test_tokens_of_msk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    text = (
        "security.protocol=SASL_SSL\nsasl.mechanism=AWS_MSK_IAM\n"
        "sasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;\n"
        "sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler"
    )
    options = client_options(settings(text))
    assert isinstance(options["sasl_oauth_token_provider"], MskIamTokenProvider)
    assert options["sasl_mechanism"] == "OAUTHBEARER"


@pytest.mark.parametrize(
    "join",
    [" \\\n".join, "\\n\\\n  ".join, " ".join, "\\n".join],
    ids=["continued", "escaped and continued", "one line", "escaped"],
)
def test_certificates_stand_in_the_file_as_in_java(join: Any, tmp_path: Path) -> None:
    """KIP-651."""
    make_contexts(tmp_path)
    key, _, chain = (tmp_path / "server.pem").read_text().partition("-----BEGIN CERTIFICATE-----")
    chain = f"-----BEGIN CERTIFICATE-----{chain}"
    text = (
        "security.protocol=ssl\nssl.keystore.type=PEM\nssl.truststore.type=PEM\n"
        f"ssl.keystore.certificate.chain={join(chain.strip().splitlines())}\n"
        f"ssl.keystore.key={join(key.strip().splitlines())}\n"
        f"ssl.truststore.certificates={join(chain.strip().splitlines())}\n"
        "ssl.enabled.protocols=TLSv1.3\n"
    )
    context = client_options(settings(text))["ssl_context"]
    assert len(context.get_ca_certs()) == 1
    assert context.minimum_version == ssl.TLSVersion.TLSv1_3
    assert context.check_hostname


def test_files_of_librdkafka(tmp_path: Path) -> None:
    make_contexts(tmp_path)
    pem = tmp_path / "server.pem"
    text = (
        f"security.protocol=ssl\nssl.ca.location={pem}\nssl.certificate.location={pem}\n"
        f"ssl.key.location={pem}\nssl.endpoint.identification.algorithm=none\n"
    )
    context = client_options(settings(text))["ssl_context"]
    assert len(context.get_ca_certs()) == 1
    assert not context.check_hostname
    assert context.verify_mode == ssl.CERT_REQUIRED
    blind = "security.protocol=ssl\nenable.ssl.certificate.verification=false\n"
    assert client_options(settings(blind))["ssl_context"].verify_mode == ssl.CERT_NONE
    system = "security.protocol=ssl\nssl.ca.location=probe\n"
    assert client_options(settings(system))["ssl_context"].verify_mode == ssl.CERT_REQUIRED
