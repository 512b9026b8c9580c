"""Settings of security that cannot work are refused when a client is made, with what to do."""

from __future__ import annotations

import re
import ssl
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka._config import SecurityConfig
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient

CLIENTS: list[Callable[..., Any]] = [
    AIOKafkaProducer,
    AIOKafkaConsumer,
    AIOKafkaAdminClient,
    AIOKafkaClient,
]


class Tokens(AbstractTokenProvider):
    def __init__(self, secret: str = "") -> None:
        super().__init__()
        self.secret = secret

    def __repr__(self) -> str:
        return f"Tokens({self.secret!r})"

    async def token(self) -> str:
        return "token"


def client_context() -> ssl.SSLContext:
    return ssl.create_default_context()


USER = {"sasl_plain_username": "alice", "sasl_plain_password": "secret-word"}
SASL = {"security_protocol": "SASL_PLAINTEXT"}
TLS = {"security_protocol": "SSL"}
SCRAM = {**SASL, "sasl_mechanism": "SCRAM-SHA-256"}
OAUTH = {**SASL, "sasl_mechanism": "OAUTHBEARER"}

WRONG: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "tls without a context": (TLS, ValueError, "needs ssl_context.*create_ssl_context"),
    "sasl over tls without a context": (
        {**USER, "security_protocol": "SASL_SSL"},
        ValueError,
        "needs ssl_context",
    ),
    "a context for servers": (
        {**TLS, "ssl_context": ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)},
        ValueError,
        "ssl_context: made for a server.*create_ssl_context",
    ),
    "a context for servers, by purpose": (
        {**TLS, "ssl_context": ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)},
        ValueError,
        "ssl_context: made for a server",
    ),
    "the class of contexts": (
        {**TLS, "ssl_context": ssl.SSLContext},
        TypeError,
        "ssl_context: must be an ssl.SSLContext.*not the class SSLContext",
    ),
    "a path as context": ({**TLS, "ssl_context": "ca.pem"}, TypeError, "create_ssl_context"),
    "no user": (
        SASL,
        ValueError,
        "sasl_plain_username and sasl_plain_password required for PLAIN sasl",
    ),
    "no password": (
        {**SCRAM, "sasl_plain_username": "alice"},
        ValueError,
        "sasl_plain_username and sasl_plain_password required for SCRAM-SHA-256 sasl",
    ),
    "an empty user": (
        {**SASL, **USER, "sasl_plain_username": ""},
        ValueError,
        "sasl_plain_username: must not be empty",
    ),
    "an empty password": (
        {**SCRAM, **USER, "sasl_plain_password": ""},
        ValueError,
        "sasl_plain_password: must not be empty",
    ),
    "a lone surrogate": (
        {**SCRAM, "sasl_plain_username": "alice\ud800", "sasl_plain_password": "secret-word"},
        ValueError,
        "sasl_plain_username=.*it contains .*, which is not a valid character",
    ),
    "a zero byte": (
        {**SASL, **USER, "sasl_plain_password": "a\0secret-word"},
        ValueError,
        "sasl_plain_password: must not have a zero byte",
    ),
    "a password of bytes": (
        {**SASL, **USER, "sasl_plain_password": b"secret-word"},
        TypeError,
        "sasl_plain_password: must be a string, a function",
    ),
    "a provider, but not its mechanism": (
        {**SASL, "sasl_oauth_token_provider": Tokens()},
        ValueError,
        "set sasl_mechanism='OAUTHBEARER'",
    ),
    "no provider": (OAUTH, ValueError, "needs sasl_oauth_token_provider"),
    "a provider's class": (
        {**OAUTH, "sasl_oauth_token_provider": Tokens},
        TypeError,
        "an instance of aiokafka.abc.AbstractTokenProvider.*not the class Tokens",
    ),
    "a token instead of a provider": (
        {**OAUTH, "sasl_oauth_token_provider": "secret-word"},
        TypeError,
        "an instance of aiokafka.abc.AbstractTokenProvider.*not str",
    ),
    "no service of Kerberos": (
        {**SASL, "sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": ""},
        ValueError,
        "sasl_kerberos_service_name: must not be empty",
    ),
    "an empty domain of Kerberos": (
        {**SASL, "sasl_mechanism": "GSSAPI", "sasl_kerberos_domain_name": ""},
        ValueError,
        "sasl_kerberos_domain_name: must not be empty",
    ),
    "a delegation token by PLAIN": (
        {**SASL, **USER, "sasl_scram_tokenauth": True},
        ValueError,
        "sasl_scram_tokenauth: delegation tokens log in by SCRAM",
    ),
    "an unknown protocol": ({"security_protocol": "TLS"}, ValueError, "security_protocol.*'SSL'"),
    "an unknown mechanism": ({**SASL, "sasl_mechanism": "NTLM"}, ValueError, "'SCRAM-SHA-512'"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_what_cannot_work_is_refused_with_the_remedy(case: str) -> None:
    options, error, text = WRONG[case]
    for client in CLIENTS:
        with pytest.raises(error) as caught:
            client(**options)
        message = str(caught.value)
        assert re.search(text, message), message
        assert "secret-word" not in message


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ssl_context": client_context()}, "ssl_context has no effect.*SSL or SASL_SSL"),
        (
            {**SASL, **USER, "ssl_context": client_context()},
            "ssl_context has no effect with security_protocol='SASL_PLAINTEXT'",
        ),
        (USER, "sasl_plain_password has no effect.*SASL_SSL or SASL_PLAINTEXT"),
        (
            {**TLS, "ssl_context": client_context(), "sasl_oauth_token_provider": Tokens()},
            "sasl_oauth_token_provider has no effect with security_protocol='SSL'",
        ),
    ],
)
async def test_what_has_no_effect_is_told(options: dict[str, Any], text: str) -> None:
    for client in CLIENTS:
        with pytest.warns(UserWarning, match=text) as told:
            made = client(**options)
        assert [warning.filename for warning in told] == [__file__]
        await (made.stop() if hasattr(made, "stop") else made.close())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {**TLS, "ssl_context": client_context()},
        {**TLS, "ssl_context": client_context},
        {**TLS, "ssl_context": partial(ssl.create_default_context, ssl.Purpose.SERVER_AUTH)},
        {**SASL, **USER},
        {**SCRAM, "sasl_plain_username": lambda: "alice", "sasl_plain_password": lambda: "x"},
        {**OAUTH, "sasl_oauth_token_provider": Tokens()},
        {**SASL, **USER, "security_protocol": "SASL_SSL", "ssl_context": client_context()},
    ],
)
def test_what_can_work_is_taken_in_silence(options: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert SecurityConfig.from_options(**options)


def test_nothing_secret_is_in_the_representation() -> None:
    config = SecurityConfig.from_options(
        security_protocol="SASL_SSL",
        ssl_context=partial(client_context, "secret-word"),  # type: ignore[call-arg]
        sasl_plain_username=partial(str, "secret-word"),
        sasl_plain_password="secret-word",
        sasl_oauth_token_provider=Tokens("secret-word"),
    )
    assert "SASL_SSL" in repr(config)
    assert "secret-word" not in repr(config)
