"""Read the properties file of a Java client."""

from __future__ import annotations

import re
from typing import Any

from aiokafka.errors import KafkaConfigurationError

__all__ = ["parse", "settings_of"]

# Java's name -> ours. Numbers are milliseconds in both.
_SAME = {
    "bootstrap.controllers": "bootstrap_controllers",
    "bootstrap.servers": "bootstrap_servers",
    "client.dns.lookup": "client_dns_lookup",
    "client.id": "client_id",
    "client.rack": "client_rack",
    "connections.max.idle.ms": "connections_max_idle_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
    "reconnect.backoff.max.ms": "reconnect_backoff_max_ms",
    "reconnect.backoff.ms": "reconnect_backoff_ms",
    "request.timeout.ms": "request_timeout_ms",
    "retry.backoff.max.ms": "retry_backoff_max_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "sasl.kerberos.service.name": "sasl_kerberos_service_name",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.oauthbearer.client.credentials.client.id": "username",
    "sasl.oauthbearer.client.credentials.client.secret": "password",
    "sasl.oauthbearer.scope": "token_scope",
    "sasl.oauthbearer.token.endpoint.url": "token_endpoint_url",
    "security.protocol": "security_protocol",
    "ssl.key.password": "key_password",
    "ssl.keystore.certificate.chain": "cert_data",
    "ssl.keystore.key": "key_data",
    "ssl.truststore.certificates": "ca_data",
}
_LOGIN = {
    "username": "username",
    "password": "password",
    # Of OAUTHBEARER, before Kafka 4.1.
    "clientId": "username",
    "clientSecret": "password",
    "scope": "token_scope",
}
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PAIR = re.compile(r"((?:\\.|[^\\=:\s])+)\s*[=:]?\s*(.*)", re.DOTALL)
_JAAS_OPTION = re.compile(r'(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|\'([^\']*)\'|([^\s;]+))')


def parse(text: str) -> dict[str, str]:
    """Return the pairs of a properties file: comments, continued lines and escapes as in Java."""
    found = {}
    for line in _logical_lines(text):
        pair = _PAIR.fullmatch(line)
        if pair is not None:
            found[_unescape(pair[1])] = _unescape(pair[2])
    return found


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            continue
        lines.append(pending + line)
        pending = ""
    return [*lines, pending] if pending else lines


def _unescape(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        code = match[1]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        return _ESCAPES.get(code, code)

    return _ESCAPE.sub(plain, text)


def settings_of(pairs: dict[str, str]) -> dict[str, Any]:
    """Return connection settings by our names. What only concerns producers, consumers or Java's
    own classes is left out.

    Raises KafkaConfigurationError for key stores that are not PEM.
    """
    # As Java does with every value, passwords as well.
    pairs = {name: value.strip() for name, value in pairs.items()}
    found: dict[str, Any] = {}
    for name, value in pairs.items():
        if name in _SAME:
            is_number = name.endswith(".ms") and value.lstrip("-").isdigit()
            found[_SAME[name]] = int(value) if is_number else value
    found.update(_stores(pairs))
    if pairs.get("ssl.endpoint.identification.algorithm") == "":
        found["check_hostname"] = False
    if "sasl.jaas.config" in pairs:
        found.update(_login(pairs["sasl.jaas.config"]))
    return found


def _stores(pairs: dict[str, str]) -> dict[str, str]:
    found = {}
    for store, setting in (("truststore", "ca_file"), ("keystore", "cert_file")):
        path = pairs.get(f"ssl.{store}.location")
        if path is None:
            continue
        kind = pairs.get(f"ssl.{store}.type", "JKS")
        if kind.upper() != "PEM":
            raise KafkaConfigurationError(
                f"ssl.{store}.location={path}: only stores of type PEM can be read, not {kind}; "
                "convert it with keytool and openssl"
            )
        found[setting] = path
    return found


def _login(jaas: str) -> dict[str, Any]:
    options = {
        match[1]: re.sub(r"\\(.)", r"\1", match[2])
        if match[2] is not None
        else match[3] or match[4]
        for match in _JAAS_OPTION.finditer(jaas)
    }
    found: dict[str, Any] = {
        setting: options[name] for name, setting in _LOGIN.items() if name in options
    }
    if options.get("tokenauth", "").lower() == "true":
        found["sasl_scram_tokenauth"] = True
    return found
