"""Read properties files of Java clients and of librdkafka (which kcat uses, too)."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from aiokafka import _properties as shared
from aiokafka._properties import LOGIN_PREFIXES, read_login
from aiokafka.errors import KafkaConfigurationError

log = logging.getLogger("aiokafka.cli")

#: Settings of `aiokafka.cli.settings` -> arguments of `create_ssl_context()`.
TLS = {
    "ca_file": "cafile",
    "ca_data": "cadata",
    "cert_file": "certfile",
    "cert_data": "certdata",
    "key_file": "keyfile",
    "key_data": "keydata",
    "key_password": "password",
    "crl_file": "crlfile",
}
_TLS_SETTINGS = {argument: name for name, argument in TLS.items()}
# Arguments of `ClientCredentialsTokenProvider` -> settings of `aiokafka.cli.settings`.
_TOKEN_SETTINGS = {
    "client_id": "username",
    "client_secret": "password",
    "scope": "token_scope",
    "token_endpoint_url": "token_endpoint_url",
}
# Names of the Java client and of librdkafka -> settings of `aiokafka.cli.settings`.
_TEXTS = {
    **{name: _TLS_SETTINGS[argument] for name, argument in shared.TLS.items()},
    **{name: _TOKEN_SETTINGS[argument] for name, argument in shared.OAUTH.items()},
    **{name: name.replace(".", "_") for name in shared.KERBEROS},
    "bootstrap.controllers": "bootstrap_controllers",
    "bootstrap.servers": "bootstrap_servers",
    "client.dns.lookup": "client_dns_lookup",
    "client.id": "client_id",
    "client.rack": "client_rack",
    "metadata.broker.list": "bootstrap_servers",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.password": "password",
    "sasl.username": "username",
    "security.protocol": "security_protocol",
}
_NUMBERS = {
    **{name: name.replace(".", "_") for name in shared.MILLISECONDS},
    "socket.timeout.ms": "request_timeout_ms",
}
_JAAS = "sasl.jaas.config"
_NAMES_CHECK = "ssl.endpoint.identification.algorithm"
_CHAIN_CHECK = "enable.ssl.certificate.verification"
_VERSIONS = "ssl.enabled.protocols"
_URL_ENCODING = "sasl.oauthbearer.header.urlencode"
_EXTENSIONS = "sasl.oauthbearer.extensions"
_METHOD = "sasl.oauthbearer.method"
_STORES = (("truststore", "ca_file", "ca_data"), ("keystore", "cert_file", "cert_data"))
_CLASSES = (
    "sasl.login.callback.handler.class",
    "sasl.client.callback.handler.class",
    "sasl.oauthbearer.jwt.retriever.class",
)
_KNOWN_CLASSES = (
    *shared.HANDLERS,
    *("ClientCredentialsJwtRetriever", "DefaultJwtRetriever", "FileJwtRetriever"),
)
_READ = frozenset(
    {
        *_TEXTS,
        *_NUMBERS,
        *(f"ssl.{store}.{part}" for store, _, _ in _STORES for part in ("location", "type")),
        *(_JAAS, _NAMES_CHECK, _CHAIN_CHECK, _VERSIONS, _URL_ENCODING, _EXTENSIONS, _METHOD),
        *_CLASSES,
    }
)
_SECRETS = frozenset(
    {
        *("sasl.password", "sasl.oauthbearer.client.secret", _JAAS, "ssl.key.password"),
        *("sasl.oauthbearer.client.credentials.client.secret", "ssl.key.pem", "ssl.keystore.key"),
    }
)
_REFUSED = {
    "config.providers": "values are taken as they are; write them into the file",
    "enable.sasl.oauthbearer.unsecure.jwt": "tokens without a signature are not supported",
    "sasl.login.class": "a class of Java cannot be run here",
    "sasl.oauthbearer.config": "use sasl.oauthbearer.token.endpoint.url",
    "https.ca.location": "the authorities of the system are trusted",
    "https.ca.pem": "the authorities of the system are trusted",
    "ssl.ca.certificate.stores": "use ssl.ca.location",
    "ssl.cipher.suites": "ciphers are those of OpenSSL's default",
    "ssl.curves.list": "curves are those of OpenSSL's default",
    "ssl.engine.factory.class": "a class of Java cannot be run here",
    "ssl.engine.location": "OpenSSL's engines are not supported",
    "ssl.sigalgs.list": "signature algorithms are those of OpenSSL's default",
}
# All names with these prefixes concern connections, so an unknown name with such a prefix is an
# error.
_OF_CONNECTIONS = ("sasl.", "ssl.", "security.", "bootstrap.", "metadata.broker.")
# Known names that affect neither authentication nor the trust in brokers: they are ignored.
_WITHOUT_EFFECT = shared.IDLE | {
    *("sasl.enabled.mechanisms", "sasl.mechanism.inter.broker.protocol", "ssl.client.auth"),
    *("sasl.oauthbearer.jwt.validator.class", "security.inter.broker.protocol"),
    *("ssl.engine.id", "ssl.providers"),
    # Valid Kafka settings that resemble names in `_READ`: without these entries they would be
    # reported as misspellings.
    *("delivery.timeout.ms", "linger.ms", "metadata.request.timeout.ms", "message.timeout.ms"),
    *("request.timeout.max.ms", "transaction.timeout.ms", "topic.metadata.refresh.interval.ms"),
    *("reconnect.backoff.jitter.ms", "request.required.acks", "acks", "group.id"),
}
_PREFIXES_WITHOUT_EFFECT = (*LOGIN_PREFIXES, "sasl.server.")
_BLANK = "".join(map(chr, range(33)))


# -- names


def is_connection_name(name: str) -> bool:
    """Return whether a dotted name concerns connections: `settings_of` reads, rejects or ignores
    it."""
    return name in _READ or name in _REFUSED or name.startswith(_OF_CONNECTIONS)


def is_secret(name: str) -> bool:
    """Return whether the value of a dotted name is secret. -X rejects such a name, because other
    users see command lines."""
    return name in _SECRETS


def settings_of(pairs: Mapping[str, str], mechanism: str | None = None) -> dict[str, Any]:
    """Convert the connection settings in `pairs` to settings of `aiokafka.cli.settings`.

    Settings for producers, consumers and other programs are omitted. `mechanism` overrides the SASL
    mechanism in `pairs`. Raises KafkaConfigurationError for unsupported values, and for unknown
    names that concern connections or are similar to known names.
    """
    # Java removes white space around all values, even around passwords.
    pairs = {name: value.strip(_BLANK) for name, value in pairs.items()}
    _check_names(pairs)
    found: dict[str, Any] = {}
    first: dict[str, str] = {}

    def put(name: str, setting: str, value: Any) -> None:
        if found.setdefault(setting, value) != value:
            raise KafkaConfigurationError(f"{name}: differs from {first[setting]}; set one of them")
        first.setdefault(setting, name)

    for name, value in pairs.items():
        if name in _TEXTS and not (name == "ssl.ca.location" and value == "probe"):
            put(name, _TEXTS[name], value)
        elif name in _NUMBERS:
            put(name, _NUMBERS[name], _number(name, value))
    for setting, (name, value) in _stores(pairs, found).items():
        put(name, setting, value)
    found.update(_checks(pairs))
    found.update(_token_settings(pairs, found))
    if _JAAS in pairs:
        for setting, value in _login(pairs[_JAAS], mechanism, found).items():
            put(_JAAS, setting, value)
    return found


def _check_names(pairs: Mapping[str, str]) -> None:
    left_out = []
    for name, value in pairs.items():
        if name in _REFUSED and value.lower() not in ("", "false"):
            raise KafkaConfigurationError(f"{name}: is not supported: {_REFUSED[name]}")
        if name in _CLASSES and value.rpartition(".")[2] not in _KNOWN_CLASSES:
            raise KafkaConfigurationError(f"{name}: a class of Java cannot be run here")
        if name in _READ or name in _REFUSED:
            continue
        left_out.append(name)
        if name in _WITHOUT_EFFECT or name.startswith(_PREFIXES_WITHOUT_EFFECT):
            continue
        import difflib  # imported only for unknown names

        near = difflib.get_close_matches(name.replace("_", ".").lower(), sorted(_READ), 1, 0.85)
        if near or name.startswith(_OF_CONNECTIONS):
            near = near or difflib.get_close_matches(name, sorted(_READ), 1, 0.75)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise KafkaConfigurationError(f"{name}: is not known here{hint}")
    if left_out:
        log.warning(
            "settings ignored, because they do not concern connections: %s", ", ".join(left_out)
        )


def _number(name: str, value: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,18}", value):
        raise KafkaConfigurationError(f"{name}={value!r}: must be a number of milliseconds")
    return int(value)


def _flag(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise KafkaConfigurationError(f"{name}={value!r}: must be true or false")
    return value.lower() == "true"


def _stores(pairs: Mapping[str, str], found: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    stores = {}
    for store, setting, data in _STORES:
        name = f"ssl.{store}.location"
        kind = pairs.get(f"ssl.{store}.type", "PEM" if data in found else "JKS")
        if name not in pairs and data not in found:
            continue
        if kind.upper() != "PEM":
            raise KafkaConfigurationError(
                f"{name if name in pairs else f'ssl.{store}.type'}={pairs.get(name, kind)}: "
                f"only stores of type PEM can be read, not {kind}; convert it with keytool and "
                "openssl"
            )
        if name in pairs and data in found:
            raise KafkaConfigurationError(f"{name}: the certificates are in the file as well")
        if name in pairs:
            stores[setting] = (name, pairs[name])
    if "key_data" in found and "cert_data" not in found:
        raise KafkaConfigurationError("ssl.keystore.key: needs ssl.keystore.certificate.chain")
    if "cert_data" in found and not {"key_data", "key_file"} & found.keys():
        raise KafkaConfigurationError("ssl.keystore.certificate.chain: needs ssl.keystore.key")
    return stores


def _checks(pairs: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that determine how brokers' certificates are verified."""
    found: dict[str, Any] = {}
    names = pairs.get(_NAMES_CHECK, "https").lower()
    try:
        if not shared.checks_names(names):
            found["check_hostname"] = False
    except ValueError as error:
        raise KafkaConfigurationError(f"{_NAMES_CHECK}={names!r}: {error}") from None
    if not _flag(_CHAIN_CHECK, pairs.get(_CHAIN_CHECK, "true")):
        found["check_certificate"] = False
    if _VERSIONS in pairs:
        try:
            found["tls_versions"] = shared.tls_versions(pairs[_VERSIONS])
        except ValueError as error:
            raise KafkaConfigurationError(f"{_VERSIONS}: {error}") from None
    return found


# -- logins


def _token_settings(pairs: Mapping[str, str], found: dict[str, Any]) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if pairs.get(_METHOD, "oidc").lower() != "oidc":
        raise KafkaConfigurationError(f"{_METHOD}={pairs[_METHOD]!r}: must be oidc")
    if _URL_ENCODING in pairs:
        more["token_header_urlencode"] = _flag(_URL_ENCODING, pairs[_URL_ENCODING])
    if _EXTENSIONS in pairs:
        each = [text.partition("=") for text in pairs[_EXTENSIONS].split(",")]
        if not all(name.strip() and equals for name, equals, _ in each):
            raise KafkaConfigurationError(f"{_EXTENSIONS}: must be name=value, separated by commas")
        more["token_extensions"] = {name.strip(): value.strip() for name, _, value in each}
    path = shared.token_path(found.get("token_endpoint_url", ""))
    if path is not None:
        del found["token_endpoint_url"]
        more["token_file"] = path
    return more


_LOGIN = {
    "username": "username",
    "password": "password",
    **_TOKEN_SETTINGS,
    "extensions": "token_extensions",
    "tokenauth": "sasl_scram_tokenauth",
    "keytab": "sasl_kerberos_keytab",
    "principal": "sasl_kerberos_principal",
    "service_name": "sasl_kerberos_service_name",
    "profile": "msk_profile",
}


def _login(text: str, mechanism: str | None, found: Mapping[str, Any]) -> dict[str, Any]:
    try:
        login = read_login(text, mechanism or found.get("sasl_mechanism", ""))
    except ValueError as error:
        raise KafkaConfigurationError(f"{_JAAS}: {error}") from None
    settings = {_LOGIN[name]: value for name, value in login.options.items()}
    if login.mechanism and not mechanism:
        settings["sasl_mechanism"] = login.mechanism
    if login.mechanism == "OAUTHBEARER":
        # As in Java, settings with names of their own (in `found`) override the same options of the
        # login module (in `settings`).
        settings = {name: value for name, value in settings.items() if name not in found} | {
            "sasl_mechanism": login.mechanism
        }
    return settings
