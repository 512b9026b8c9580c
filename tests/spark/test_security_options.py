"""Settings of security as jobs have them for Java's clients."""

from __future__ import annotations

import pickle
import ssl
from pathlib import Path

import pytest

from aiokafka import AIOKafkaClient
from aiokafka.abc import AbstractTokenProvider
from aiokafka.oauth import ClientCredentialsTokenProvider, MskIamTokenProvider
from aiokafka.spark._jaas import parse_jaas
from aiokafka.spark._kafka_options import ClientSettings, parse_settings
from aiokafka.testing import FakeCluster, Security
from tests.testing.certificates import make_contexts

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MSK = "software.amazon.msk.auth.iam.IAMLoginModule"
URL = "https://login.example.com/token"


def settings(**given: str) -> ClientSettings:
    """The names with _ for dots."""
    options = {name.replace("_", "."): text for name, text in given.items()}
    return parse_settings({"bootstrap.servers": "localhost:9092", **options}, writing=False)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('a.b.M required user="x" pass="y";', {"user": "x", "pass": "y"}),
        ("M REQUIRED user=x pass='y' ;  ", {"user": "x", "pass": "y"}),
        ("kafkashaded.org.M required;", {}),
        ('M\n  required\n  user="a b;c=d"\n  ;\n', {"user": "a b;c=d"}),
        (r'M required p="a\"b\\c\'d";', {"p": "a\"b\\c'd"}),
        (r'M required p="\101\60\n\tx\q\0501";', {"p": "A0\n\txq(1"}),
        ("M required p='it\"s';", {"p": 'it"s'}),
        ("M required /* a=b */ p=q // more\n r=s; / the end", {"p": "q", "r": "s"}),
        ('M required p="//no /* comment";', {"p": "//no /* comment"}),
        ("M optional p=a-b.c_d$e9;", {"p": "a-b.c_d$e9"}),
        ('M required "quoted key"="x";', {"quoted key": "x"}),
        ('M required p="пароль" q=пароль;', {"p": "пароль", "q": "пароль"}),
    ],
)
def test_jaas(text: str, found: dict[str, str]) -> None:
    module = parse_jaas(text)
    assert (module.name, module.options) == ("M", found)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a login module is missing"),
        ("M", "a control flag is missing"),
        ("M hush;", "none of required"),
        ('M required p="hush"', "semicolon at the end is missing"),
        ("M required p hush;", "no = after the key p"),
        ("M required p=;", "a value of p"),
        ("M required p=1hush;", "a value of p, in quotes"),
        ('M required p="hush\n";', "the key"),
        ('M required p="hush"; N required;', "more than one login module"),
    ],
)
def test_jaas_that_is_none(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        parse_jaas(text)
    assert "hush" not in str(caught.value)


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
    with pytest.raises(ValueError, match="needs kafka"):
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
        ({"sasl_jaas_config": "x.Krb5LoginModule required;"}, "KRB5_CLIENT_KTNAME"),
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


def test_certificates_in_options(tmp_path: Path) -> None:
    """KIP-651: the text of PEM files, for jobs that have no files on their executors."""
    make_contexts(tmp_path)
    begin = "-----BEGIN CERTIFICATE-----"
    key, _, certificate = (tmp_path / "server.pem").read_text().partition(begin)
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
