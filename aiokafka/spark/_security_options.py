"""Translate the options `kafka.sasl.*` and `kafka.ssl.*` of Java's clients to ours.

Pure but for what is made where a client runs: its TLS context and its token provider.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka.spark._jaas import LoginModule, parse_jaas

__all__ = ["SECURITY_SETTINGS", "Security", "parse_security"]

# An executor makes an ssl.SSLContext of these: files, or PEM text (KIP-651).
_TLS = {
    "ssl.cafile": "cafile",
    "ssl.ca.location": "cafile",
    "ssl.truststore.location": "cafile",
    "ssl.truststore.certificates": "cadata",
    "ssl.certfile": "certfile",
    "ssl.certificate.location": "certfile",
    "ssl.keystore.location": "certfile",
    "ssl.keystore.certificate.chain": "certdata",
    "ssl.keyfile": "keyfile",
    "ssl.key.location": "keyfile",
    "ssl.keystore.key": "keydata",
    "ssl.key.password": "password",
    "ssl.crlfile": "crlfile",
}
_STORES = ("ssl.truststore", "ssl.keystore")
_VERIFY = "ssl.endpoint.identification.algorithm"
_VERSIONS = "ssl.enabled.protocols"
_TOKENS = "sasl.oauth.token.provider"
_JAAS = "sasl.jaas.config"
_MECHANISM = "sasl.mechanism"
_OAUTH = {
    "sasl.oauthbearer.token.endpoint.url": "token_endpoint_url",
    "sasl.oauthbearer.client.credentials.client.id": "client_id",
    "sasl.oauthbearer.client.credentials.client.secret": "client_secret",
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
        from aiokafka.oauth import ClientCredentialsTokenProvider, MskIamTokenProvider

        if self.token_provider is not None:
            return _load(self.token_provider)()
        if self.msk is not None:
            return MskIamTokenProvider(**self.msk)
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
            module = parse_jaas(options[_JAAS])
            _READERS.get(module.name, _refuse)(module, found)
            _check_mechanism(module, options.get(_MECHANISM, ""))
        except ValueError as error:
            raise ValueError(f"kafka.{_JAAS}: {error}") from None
    if found.oauth and "token_endpoint_url" not in found.oauth:
        raise ValueError(
            "kafka.sasl.oauthbearer.token.endpoint.url: must be given with a client id, a secret "
            "or a scope"
        )
    if options.get(_MECHANISM) == "AWS_MSK_IAM":
        # Java's login module calls it a mechanism of its own; brokers accept OAUTHBEARER as well.
        found.client["sasl_mechanism"] = "OAUTHBEARER"
        found.msk = found.msk or {}
    return found


# -- TLS


def _read_tls(options: Mapping[str, str], found: Security) -> None:
    for store in _STORES:
        if f"{store}.location" in options and options.get(f"{store}.type", "").upper() != "PEM":
            raise ValueError(
                f"kafka.{store}.location: only PEM files can be read; convert the store, and set "
                f"kafka.{store}.type to PEM"
            )
    found.tls = {_TLS[name]: text for name, text in options.items() if name in _TLS}
    if _VERIFY in options:
        found.checks_names = options[_VERIFY].strip().lower() not in ("", "none")
    if _VERSIONS in options:
        found.versions = _versions(options[_VERSIONS])


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
    found.oauth = {_OAUTH[name]: text for name, text in options.items() if name in _OAUTH}
    if "header_urlencode" in found.oauth:
        found.oauth["header_urlencode"] = found.oauth["header_urlencode"].strip().lower() == "true"


def _read_password(module: LoginModule, found: Security) -> None:
    for name, keyword in (("username", "plain_username"), ("password", "plain_password")):
        if name not in module.options:
            raise ValueError(f"{module.name} needs {name}")
        found.client[f"sasl_{keyword}"] = module.options[name]
    if module.options.get("tokenauth", "").lower() == "true":
        found.client["sasl_scram_tokenauth"] = True


def _check_mechanism(module: LoginModule, mechanism: str) -> None:
    """Check that a password is not sent in clear because the mechanism was left out."""
    if module.name == "ScramLoginModule" and not mechanism.startswith("SCRAM-"):
        raise ValueError(
            "ScramLoginModule needs kafka.sasl.mechanism to be SCRAM-SHA-256 or SCRAM-SHA-512"
        )


def _read_oauth(module: LoginModule, found: Security) -> None:
    given = {"clientId": "client_id", "clientSecret": "client_secret", "scope": "scope"}
    for name, keyword in given.items():
        if name in module.options:
            found.oauth.setdefault(keyword, module.options[name])
    prefix = "extension_"
    extensions = {
        name[len(prefix) :]: text
        for name, text in module.options.items()
        if name.startswith(prefix)
    }
    if extensions:
        found.oauth["extensions"] = extensions
    if any(name.startswith("unsecuredLogin") for name in module.options):
        raise ValueError(f"tokens without a signature are not supported; see kafka.{_TOKENS}")


def _read_msk(module: LoginModule, found: Security) -> None:
    profile = module.options.get("awsProfileName")
    found.msk = {} if profile is None else {"profile": profile}
    others = sorted(module.options.keys() - {"awsProfileName"})
    if others:
        raise ValueError(
            f"{', '.join(others)} of {module.name} is not supported; credentials come from the "
            "environment, or from the profile awsProfileName"
        )


def _refuse(module: LoginModule, found: Security) -> None:
    if module.name == "Krb5LoginModule":
        raise ValueError(
            "use kafka.sasl.kerberos.service.name; tickets are found where kinit puts them, keys "
            "by the environment variable KRB5_CLIENT_KTNAME"
        )
    raise ValueError(f"the login module {module.name} is not known; known: {', '.join(_READERS)}")


_READERS: dict[str, Callable[[LoginModule, Security], None]] = {
    "PlainLoginModule": _read_password,
    "ScramLoginModule": _read_password,
    "OAuthBearerLoginModule": _read_oauth,
    "IAMLoginModule": _read_msk,
}
