"""The options `kafka.*`: Kafka's settings, converted to keywords of the clients of this package."""

from __future__ import annotations

import difflib
import functools
import importlib
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from aiokafka import _properties as properties
from aiokafka._properties import LOGIN_PREFIXES, Login, read_login

__all__ = ["SECURITY_SETTINGS", "ClientSettings", "Security", "parse_security", "parse_settings"]

log = logging.getLogger("aiokafka.spark")

_T = TypeVar("_T")

# -- The options `kafka.sasl.*` and `kafka.ssl.*`

_TLS = {
    **properties.TLS,
    "ssl.cafile": "cafile",
    "ssl.truststore.location": "cafile",
    "ssl.certfile": "certfile",
    "ssl.keystore.location": "certfile",
    "ssl.keyfile": "keyfile",
    "ssl.crlfile": "crlfile",
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
_OAUTH = {**properties.OAUTH, "sasl.oauthbearer.header.urlencode": "header_urlencode"}
_HANDLERS = ("sasl.login.callback.handler.class", "sasl.client.callback.handler.class")

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
"""Names of the settings that only `parse_security` reads."""


class Security:
    """The parsed SASL and TLS settings, which can be pickled for the executors. They may be
    secrets."""

    def __init__(self) -> None:
        self.client: dict[str, Any] = {}
        """SASL options of a client, such as `sasl_plain_username`."""

        self.tls: dict[str, str] = {}
        self.checks_names = True
        self.versions: tuple[str, str] | None = None
        """The minimum and the maximum TLS version, as names in ssl.TLSVersion; None for the
        defaults."""

        self.token_provider: str | None = None
        self.oauth: dict[str, Any] = {}
        self.msk: dict[str, Any] | None = None

    def key(self) -> list[Any]:
        """Return a list that is equal for objects with equal settings."""
        return sorted(self.__dict__.items())

    def tls_context(self) -> Any:
        """Read the certificate files, and return a TLS context."""
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
        """Create the token provider for OAUTHBEARER; return None if no setting configures one."""
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
        if (path := properties.token_path(url)) is not None:
            return FileTokenProvider(path, extensions=self.oauth.get("extensions"))
        return ClientCredentialsTokenProvider(**self.oauth) if self.oauth else None


def _load(path: str) -> Callable[[], Any]:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


def parse_security(options: Mapping[str, str]) -> Security:
    """Parse the SASL and TLS settings among `options`; ignore other settings. The names are in
    lower case and without `kafka.`.

    Raises ValueError for settings that are not supported, or that contradict each other.
    """
    found = Security()
    _read_tls(options, found)
    _read_tokens(options, found)
    if _JAAS in options:
        try:
            login = read_login(options[_JAAS], options.get(_MECHANISM, ""))
            _apply_login(login, options, found)
        except ValueError as error:
            raise ValueError(f"kafka.{_JAAS}: {error}") from None
    if found.oauth and "token_endpoint_url" not in found.oauth:
        raise ValueError(
            "kafka.sasl.oauthbearer.token.endpoint.url: must be given with a client id, a secret "
            "or a scope"
        )
    if found.msk is not None or options.get(_MECHANISM) == "AWS_MSK_IAM":
        # The Java login module for MSK has its own mechanism. MSK brokers also accept OAUTHBEARER.
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
    # In librdkafka, "probe" stands for the certificate authorities of the system, the default here.
    given = {n: text for n, text in options.items() if (n, text) != ("ssl.ca.location", "probe")}
    found.tls = _renamed(given, _TLS)
    if _VERIFY in options:
        found.checks_names = _parsed(options, _VERIFY, properties.checks_names)
    if _VERSIONS in options:
        found.versions = _parsed(options, _VERSIONS, properties.tls_versions)


def _parsed(options: Mapping[str, str], name: str, parse: Callable[[str], _T]) -> _T:
    try:
        return parse(options[name])
    except ValueError as error:
        raise ValueError(f"kafka.{name}={options[name]!r}: {error}") from None


# -- SASL


def _read_tokens(options: Mapping[str, str], found: Security) -> None:
    if _TOKENS in options:
        path = options[_TOKENS]
        if not all(path.partition(":")):
            raise ValueError(f"kafka.{_TOKENS}={path!r}: must be package.module:function")
        found.token_provider = path
    for name in _HANDLERS:
        if name in options and options[name].rpartition(".")[2] not in properties.HANDLERS:
            raise ValueError(
                f"kafka.{name}: a class of Java cannot be run here; kafka.{_TOKENS} names a "
                "function of Python that returns a token provider"
            )
    found.oauth = dict(_renamed(options, _OAUTH))
    if "header_urlencode" in found.oauth:
        found.oauth["header_urlencode"] = found.oauth["header_urlencode"].strip().lower() == "true"


def _apply_login(login: Login, options: Mapping[str, str], found: Security) -> None:
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


# -- all settings

_CLIENT_ID = "aiokafka-spark"
_REQUEST_TIMEOUT_MS = 40_000

Convert = Callable[[str], Any]


def _flag(text: str) -> bool:
    values = {"true": True, "false": False}
    return values[text.lower()]


def _acks(text: str) -> int | str:
    return "all" if text in ("all", "-1") else int(text)


def _same(convert: Convert, *names: str) -> dict[str, tuple[str, Convert]]:
    """Return entries for settings whose keyword is Java's name with underscores in place of
    dots."""
    return {name: (name.replace(".", "_"), convert) for name in names}


_COMMON: dict[str, tuple[str, Convert]] = {
    **_same(str, "bootstrap.servers", "client.id", "sasl.mechanism"),
    **_same(str, "sasl.kerberos.domain.name", *properties.KERBEROS),
    **_same(int, *properties.MILLISECONDS),
    "security.protocol": ("security_protocol", str.upper),  # any case, as in Java
    "sasl.username": ("sasl_plain_username", str),
    "sasl.password": ("sasl_plain_password", str),
    "sasl.plain.username": ("sasl_plain_username", str),
    "sasl.plain.password": ("sasl_plain_password", str),
}
# librdkafka's names of settings -> Java's names.
_ALIASES = {"metadata.broker.list": "bootstrap.servers", "sasl.mechanisms": "sasl.mechanism"}
_FETCH: dict[str, tuple[str, Convert]] = {
    **_same(str, "isolation.level", "group.id"),
    **_same(int, "fetch.max.bytes", "fetch.min.bytes", "fetch.max.wait.ms"),
    **_same(int, "max.partition.fetch.bytes"),
    **_same(_flag, "check.crcs"),
}
_PRODUCE: dict[str, tuple[str, Convert]] = {
    **_same(int, "linger.ms", "buffer.memory", "max.block.ms", "delivery.timeout.ms"),
    **_same(int, "max.request.size", "max.in.flight.requests.per.connection"),
    **_same(int, "transaction.timeout.ms"),
    **_same(str, "compression.type"),
    **_same(_flag, "enable.idempotence"),
    "acks": ("acks", _acks),
    "batch.size": ("max_batch_size", int),
}
# As in the Java client (KIP-390), only the level of the codec in compression.type has an effect.
_LEVEL = re.compile(r"compression\.(gzip|lz4|zstd)\.level")
_PARTITIONERS = ("DefaultPartitioner", "UniformStickyPartitioner")

# Settings of the Java client that have no effect here. They cause a warning, not an error.
_WITHOUT_EFFECT = properties.IDLE | {
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "auto.include.jmx.reporter",
    "client.dns.lookup",
    "default.api.timeout.ms",
    "enable.metrics.push",
    "exclude.internal.topics",
    "group.protocol",
    "group.remote.assignor",
    "group.instance.id",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "max.poll.records",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "partition.assignment.strategy",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "receive.buffer.bytes",
    "sasl.login.class",
    "send.buffer.bytes",
    "share.acknowledgement.mode",
    "ssl.cipher.suites",
}
_REFUSED = {
    "auto.offset.reset": "use startingOffsets; Spark keeps the offsets and never resets them",
    "key.deserializer": "keys are read as binary columns; convert them with DataFrame operations",
    "value.deserializer": "values are read as binary columns; convert them with DataFrame "
    "operations",
    "key.serializer": "keys are written from string or binary columns; convert them with "
    "DataFrame operations",
    "value.serializer": "values are written from string or binary columns; convert them with "
    "DataFrame operations",
    "enable.auto.commit": "offsets are kept by Spark; see commitOffsets",
    "interceptor.classes": "interceptors are not supported, they may break what a query promises",
    "transactional.id": "it is made from the query; see deliveryGuarantee and "
    "transactionalIdPrefix",
    "transaction.two.phase.commit.enable": "transactions are committed by the tasks; see "
    "deliveryGuarantee",
    "config.providers": "settings are taken as they are; put the values into the options",
    "ssl.engine.factory.class": "a class of Java cannot be run here; see kafka.ssl.cafile",
}
_SECRETS = frozenset({"sasl_plain_password"})


class ClientSettings:
    """The settings of clients, which are pickled and sent to the executors.

    `client` has the keywords for all clients; `role` has those for a consumer or a producer only.
    `repr` and error texts show no secrets.
    """

    def __init__(
        self, client: dict[str, Any], role: dict[str, Any], security: Security | None = None
    ) -> None:
        self._security = security or Security()
        self.client = {**client, **self._security.client}
        self.role = role

    def __repr__(self) -> str:
        shown = {
            name: value
            for name, value in (*self.client.items(), *self.role.items())
            if name not in _SECRETS
        }
        return f"ClientSettings({shown})"

    def key(self) -> str:
        """Return a string that is equal for objects with equal settings. Tasks of a process whose
        settings have the same key use the same client.
        """
        return repr([sorted(self.client.items()), sorted(self.role.items()), self._security.key()])

    @property
    def broker_timeout(self) -> float:
        """Seconds to wait while no broker is available: `request_timeout_ms`."""
        milliseconds: float = self.client.get("request_timeout_ms", _REQUEST_TIMEOUT_MS)
        return milliseconds / 1000

    def keywords(self) -> dict[str, Any]:
        """Return the keywords that every client accepts.

        Call this in the process that creates the client: it reads the certificate files, and
        imports the function that creates the token provider.
        """
        keywords = {"client_id": _CLIENT_ID, **self.client}
        if keywords.get("security_protocol", "PLAINTEXT").endswith("SSL"):
            keywords["ssl_context"] = self._security.tls_context()
        if (provider := self._security.make_token_provider()) is not None:
            keywords["sasl_oauth_token_provider"] = provider
        return keywords


def parse_settings(options: Mapping[str, str], *, writing: bool) -> ClientSettings:
    """Parse Kafka's settings. Their names are in lower case and without the prefix `kafka.`.

    Raises ValueError for a setting that is unknown, not supported or of a wrong type, and if
    bootstrap.servers is missing.
    """
    # Like Java, remove the white space around all values, even around passwords.
    options = _without_aliases({name: text.strip() for name, text in options.items()})
    client: dict[str, Any] = {}
    role: dict[str, Any] = {}
    of_role = _PRODUCE if writing else _FETCH
    idle = []
    for name, text in options.items():
        if name in _REFUSED:
            raise ValueError(f"kafka.{name}: not supported: {_REFUSED[name]}")
        if name in _COMMON:
            keyword, convert = _COMMON[name]
            value = _converted(name, text, convert)
            if client.get(keyword, value) != value:
                raise ValueError(f"kafka.{name}: another setting has another value for {keyword}")
            client[keyword] = value
        elif name in of_role:
            keyword, convert = of_role[name]
            role[keyword] = _converted(name, text, convert)
        elif _has_no_effect(name, text, writing):
            idle.append(name)
        elif name not in SECURITY_SETTINGS and _LEVEL.fullmatch(name) is None:
            raise _unknown(name, writing)
    if idle:
        _warn_once(tuple(idle))
    if writing:
        _read_level(options, role)
    if not client.get("bootstrap_servers"):
        raise ValueError(
            "kafka.bootstrap.servers: must be given, as host:port, several separated by commas"
        )
    security = parse_security(options)
    for keyword in sorted(client.keys() & security.client.keys() - {"sasl_mechanism"}):
        if client[keyword] != security.client[keyword]:
            raise ValueError(
                f"kafka.sasl.jaas.config: another setting has another value for {keyword}"
            )
    return ClientSettings(client, role, security)


def _without_aliases(options: Mapping[str, str]) -> dict[str, str]:
    found = dict(options)
    for alias, name in _ALIASES.items():
        if alias in found:
            text = found.pop(alias)
            if found.setdefault(name, text) != text:
                raise ValueError(f"kafka.{alias}: differs from kafka.{name}; set one of them")
    return found


def _unknown(name: str, writing: bool) -> ValueError:
    known = known_settings(writing)
    near = difflib.get_close_matches(name, [*known, *_ALIASES], 1)
    hint = f"; did you mean kafka.{near[0]}?" if near else ""
    return ValueError(f"kafka.{name}: unknown setting{hint}; known: {', '.join(known)}")


def _has_no_effect(name: str, text: str, writing: bool) -> bool:
    if name == "partitioner.class" and text.rpartition(".")[2] not in _PARTITIONERS:
        raise ValueError(
            f"kafka.{name}: a class of Java cannot be run here; choose the partitions of rows with "
            "a column partition"
        )
    if name == "partitioner.ignore.keys" and _converted(name, text, _flag):
        raise ValueError(
            f"kafka.{name}: not supported: the key of a row determines its partition; to choose "
            "other partitions, use a column partition"
        )
    return (
        name in ("client.rack", "partitioner.class", "partitioner.ignore.keys")
        or name in _WITHOUT_EFFECT
        or name.startswith(LOGIN_PREFIXES)
        or name in (_FETCH if writing else _PRODUCE)
        or (not writing and _LEVEL.fullmatch(name) is not None)
    )


@functools.lru_cache(maxsize=100)
def _warn_once(names: tuple[str, ...]) -> None:
    """Log a warning once per process: a process parses the options of a query often."""
    log.warning(
        "these options have no effect here: %s", ", ".join(f"kafka.{name}" for name in names)
    )


def _read_level(options: Mapping[str, str], role: dict[str, Any]) -> None:
    for name, text in options.items():
        found = _LEVEL.fullmatch(name)
        if found is None:
            continue
        level = _converted(name, text, int)
        if found[1] == role.get("compression_type"):
            role["compression_level"] = level


def known_settings(writing: bool) -> list[str]:
    """Return the names of all settings that have an effect, sorted, without the prefix `kafka.`."""
    levels = [f"compression.{codec}.level" for codec in ("gzip", "lz4", "zstd")] if writing else []
    names = {*_COMMON, *(_PRODUCE if writing else _FETCH), *SECURITY_SETTINGS, *levels}
    return sorted(names - _WITHOUT_EFFECT)


def _converted(name: str, text: str, convert: Convert) -> Any:
    try:
        return convert(text)
    except (ValueError, KeyError):
        wanted = "true or false" if convert is _flag else "a number"
        raise ValueError(f"kafka.{name}={text!r}: must be {wanted}") from None
