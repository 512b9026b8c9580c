"""Translate the options `kafka.sasl.*` and `kafka.ssl.*` of Java's clients to ours.

Pure but for what is made where a client runs: its TLS context and its token provider.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka._jaas import Login, read_login

__all__ = ["SECURITY_SETTINGS", "Security", "parse_security"]

# An executor makes an ssl.SSLContext of these: files, or PEM text (KIP-651).
_TLS = {
    "ssl.cafile": "cafile",
    "ssl.ca.location": "cafile",
    "ssl.truststore.location": "cafile",
    "ssl.truststore.certificates": "cadata",
    "ssl.ca.pem": "cadata",
    "ssl.certfile": "certfile",
    "ssl.certificate.location": "certfile",
    "ssl.keystore.location": "certfile",
    "ssl.keystore.certificate.chain": "certdata",
    "ssl.certificate.pem": "certdata",
    "ssl.keyfile": "keyfile",
    "ssl.key.location": "keyfile",
    "ssl.keystore.key": "keydata",
    "ssl.key.pem": "keydata",
    "ssl.key.password": "password",
    "ssl.crlfile": "crlfile",
    "ssl.crl.location": "crlfile",
}
_STORES = ("ssl.truststore", "ssl.keystore")
_VERIFY = "ssl.endpoint.identification.algorithm"
_VERSIONS = "ssl.enabled.protocols"
_TOKENS = "sasl.oauth.token.provider"
_JAAS = "sasl.jaas.config"
_MECHANISM = "sasl.mechanism"
_SERVICE = "sasl.kerberos.service.name"
_LOGIN = {
    "username": "sasl_plain_username",
    "password": "sasl_plain_password",
    "tokenauth": "sasl_scram_tokenauth",
    "keytab": "sasl_kerberos_keytab",
    "principal": "sasl_kerberos_principal",
    "service_name": "sasl_kerberos_service_name",
}
_OAUTH = {
    "sasl.oauthbearer.token.endpoint.url": "token_endpoint_url",
    "sasl.oauthbearer.client.credentials.client.id": "client_id",
    "sasl.oauthbearer.client.credentials.client.secret": "client_secret",
    "sasl.oauthbearer.client.id": "client_id",
    "sasl.oauthbearer.client.secret": "client_secret",
    "sasl.oauthbearer.scope": "scope",
    "sasl.oauthbearer.header.urlencode": "header_urlencode",
}
_HANDLERS = ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class")
_KNOWN_HANDLERS = (
    "OAuthBearerLoginCallbackHandler",
    "OAuthBearerSaslClientCallbackHandler",
    "IAMClientCallbackHandler",
)

SECURITY_SETTINGS = frozenset(
    {
        *_TLS,
        *(f"{store}.type" for store in _STORES),
        _VERIFY,
        _VERSIONS,
        _TOKENS,
        _JAAS,
        *_OAUTH,
        *_HANDLERS,
    }
)
"""The options that `parse_security` reads, besides `sasl.mechanism`."""


class Security:
    """How to authenticate and which brokers to trust, in plain values. All of it may be secret."""

    def __init__(self) -> None:
        self.client: dict[str, Any] = {}
        """Keywords of a client, as they are."""

        self.tls: dict[str, str] = {}
        self.checks_names = True
        self.versions: tuple[str, str] | None = None
        """The lowest and the highest version of TLS, as names of ssl.TLSVersion."""

        self.token_provider: str | None = None
        self.oauth: dict[str, Any] = {}
        self.msk: dict[str, Any] | None = None

    def key(self) -> list[Any]:
        """Return a list that is equal for equal settings."""
        return sorted(self.__dict__.items())

    def tls_context(self) -> Any:
        """Create the TLS context; this reads the certificates."""
        import ssl

        from aiokafka.helpers import create_ssl_context

        given: Any = self.tls
        context = create_ssl_context(**given)
        context.check_hostname = self.checks_names
        if self.versions is not None:
            context.minimum_version = ssl.TLSVersion[self.versions[0]]
            context.maximum_version = ssl.TLSVersion[self.versions[1]]
        return context

    def make_token_provider(self) -> Any:
        """Create a provider of tokens; None without OAuth."""
        from aiokafka.oauth import (
            ClientCredentialsTokenProvider,
            FileTokenProvider,
            MskIamTokenProvider,
        )

        if self.token_provider is not None:
            return _load(self.token_provider)()
        if self.msk is not None:
            return MskIamTokenProvider(**self.msk)
        url = self.oauth.get("token_endpoint_url", "")
        if url.startswith("file:"):
            # Java reads the token from such a file.
            path = "/" + url.removeprefix("file:").lstrip("/")
            return FileTokenProvider(path, extensions=self.oauth.get("extensions"))
        return ClientCredentialsTokenProvider(**self.oauth) if self.oauth else None


def _load(path: str) -> Callable[[], Any]:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


def parse_security(options: Mapping[str, str]) -> Security:
    """Parse the options under `kafka.`, in lower case; other options are ignored.

    Raises ValueError for options that cannot be supported.
    """
    found = Security()
    _read_tls(options, found)
    _read_tokens(options, found)
    if _JAAS in options:
        try:
            login = read_login(options[_JAAS], options.get(_MECHANISM, ""))
            _take_login(login, options, found)
        except ValueError as error:
            raise ValueError(f"kafka.{_JAAS}: {error}") from None
    if found.oauth and "token_endpoint_url" not in found.oauth:
        raise ValueError(
            "kafka.sasl.oauthbearer.token.endpoint.url: must be given with a client id, a secret "
            "or a scope"
        )
    if found.msk is not None or options.get(_MECHANISM) == "AWS_MSK_IAM":
        # Java's login module calls it a mechanism of its own; brokers accept OAUTHBEARER as well.
        found.client["sasl_mechanism"] = "OAUTHBEARER"
        found.msk = found.msk or {}
    return found


def _renamed(options: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    first: dict[str, str] = {}
    for name, text in options.items():
        if name not in names:
            continue
        keyword = names[name]
        if found.get(keyword, text) != text:
            raise ValueError(f"kafka.{name}: differs from kafka.{first[keyword]}; set one of them")
        found[keyword] = text
        first[keyword] = name
    return found


# -- TLS


def _read_tls(options: Mapping[str, str], found: Security) -> None:
    for store in _STORES:
        if f"{store}.location" in options and options.get(f"{store}.type", "").upper() != "PEM":
            raise ValueError(
                f"kafka.{store}.location: only PEM files can be read; convert the store, and set "
                f"kafka.{store}.type to PEM"
            )
    # What librdkafka calls the authorities of the system.
    given = {n: text for n, text in options.items() if (n, text) != ("ssl.ca.location", "probe")}
    found.tls = _renamed(given, _TLS)
    if _VERIFY in options:
        found.checks_names = _checks_names(options[_VERIFY])
    if _VERSIONS in options:
        found.versions = _versions(options[_VERSIONS])


def _checks_names(text: str) -> bool:
    if text.lower() not in ("", "none", "https"):
        raise ValueError(f"kafka.{_VERIFY}={text!r}: must be https, or empty to check no names")
    return text.lower() == "https"


def _versions(text: str) -> tuple[str, str]:
    names = {"TLSv1.2": "TLSv1_2", "TLSv1.3": "TLSv1_3"}
    given = [name.strip() for name in text.split(",")]
    usable = [known for name, known in names.items() if name in given]
    if not usable:
        raise ValueError(f"kafka.{_VERSIONS}={text!r}: must have TLSv1.2 or TLSv1.3 in it")
    return usable[0], usable[-1]


# -- SASL


def _read_tokens(options: Mapping[str, str], found: Security) -> None:
    if _TOKENS in options:
        path = options[_TOKENS]
        if not all(path.partition(":")):
            raise ValueError(f"kafka.{_TOKENS}={path!r}: must be package.module:function")
        found.token_provider = path
    for name in _HANDLERS:
        if name in options and options[name].rpartition(".")[2] not in _KNOWN_HANDLERS:
            raise ValueError(
                f"kafka.{name}: a class of Java cannot be run here; kafka.{_TOKENS} names a "
                "function of Python that returns a token provider"
            )
    found.oauth = dict(_renamed(options, _OAUTH))
    if "header_urlencode" in found.oauth:
        found.oauth["header_urlencode"] = found.oauth["header_urlencode"].strip().lower() == "true"


def _take_login(login: Login, options: Mapping[str, str], found: Security) -> None:
    given = dict(login.options)
    if login.mechanism == "OAUTHBEARER":
        found.oauth = {**given, **found.oauth}
    elif login.mechanism == "AWS_MSK_IAM":
        found.msk = given
    else:
        service = given.get("service_name")
        if service is not None and options.get(_SERVICE, service) != service:
            raise ValueError(f"serviceName differs from kafka.{_SERVICE}")
        found.client |= {_LOGIN[name]: value for name, value in given.items()}
    if login.mechanism:
        found.client["sasl_mechanism"] = login.mechanism
