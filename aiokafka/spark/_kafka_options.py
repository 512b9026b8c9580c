"""The options `kafka.*`: Kafka's own settings, and the keyword of ours for each of them."""

from __future__ import annotations

import difflib
import functools
import logging
import re
from collections.abc import Callable, Mapping
from typing import Any

from aiokafka.spark._security_options import SECURITY_SETTINGS, Security, parse_security

__all__ = ["ClientSettings", "parse_settings"]

log = logging.getLogger("aiokafka.spark")

_CLIENT_ID = "aiokafka-spark"
_REQUEST_TIMEOUT_MS = 40_000

Convert = Callable[[str], Any]


def _number(text: str) -> int:
    return int(text)


def _flag(text: str) -> bool:
    values = {"true": True, "false": False}
    return values[text.lower()]


def _acks(text: str) -> int | str:
    return "all" if text in ("all", "-1") else int(text)


def _upper(text: str) -> str:
    """Convert a word that Java takes in any case."""
    return text.upper()


_COMMON: dict[str, tuple[str, Convert]] = {
    "bootstrap.servers": ("bootstrap_servers", str),
    "client.id": ("client_id", str),
    "security.protocol": ("security_protocol", _upper),
    "sasl.mechanism": ("sasl_mechanism", str),
    "sasl.username": ("sasl_plain_username", str),
    "sasl.password": ("sasl_plain_password", str),
    "sasl.plain.username": ("sasl_plain_username", str),
    "sasl.plain.password": ("sasl_plain_password", str),
    "sasl.kerberos.service.name": ("sasl_kerberos_service_name", str),
    "sasl.kerberos.domain.name": ("sasl_kerberos_domain_name", str),
    "sasl.kerberos.keytab": ("sasl_kerberos_keytab", str),
    "sasl.kerberos.principal": ("sasl_kerberos_principal", str),
    "request.timeout.ms": ("request_timeout_ms", _number),
    "metadata.max.age.ms": ("metadata_max_age_ms", _number),
    "retry.backoff.ms": ("retry_backoff_ms", _number),
    "retry.backoff.max.ms": ("retry_backoff_max_ms", _number),
    "reconnect.backoff.ms": ("reconnect_backoff_ms", _number),
    "reconnect.backoff.max.ms": ("reconnect_backoff_max_ms", _number),
    "socket.connection.setup.timeout.ms": ("socket_connection_setup_timeout_ms", _number),
    "socket.connection.setup.timeout.max.ms": ("socket_connection_setup_timeout_max_ms", _number),
    "connections.max.idle.ms": ("connections_max_idle_ms", _number),
}
# Names of librdkafka.
_ALIASES = {"metadata.broker.list": "bootstrap.servers", "sasl.mechanisms": "sasl.mechanism"}
_FETCH: dict[str, tuple[str, Convert]] = {
    "isolation.level": ("isolation_level", str),
    "fetch.max.bytes": ("fetch_max_bytes", _number),
    "fetch.min.bytes": ("fetch_min_bytes", _number),
    "fetch.max.wait.ms": ("fetch_max_wait_ms", _number),
    "max.partition.fetch.bytes": ("max_partition_fetch_bytes", _number),
    "check.crcs": ("check_crcs", _flag),
    "group.id": ("group_id", str),
}
_PRODUCE: dict[str, tuple[str, Convert]] = {
    "acks": ("acks", _acks),
    "enable.idempotence": ("enable_idempotence", _flag),
    "compression.type": ("compression_type", str),
    "batch.size": ("max_batch_size", _number),
    "linger.ms": ("linger_ms", _number),
    "buffer.memory": ("buffer_memory", _number),
    "max.block.ms": ("max_block_ms", _number),
    "delivery.timeout.ms": ("delivery_timeout_ms", _number),
    "max.request.size": ("max_request_size", _number),
    "max.in.flight.requests.per.connection": ("max_in_flight_requests_per_connection", _number),
    "transaction.timeout.ms": ("transaction_timeout_ms", _number),
}
# Levels apply to the chosen codec, as in Java (KIP-390).
_LEVEL = re.compile(r"compression\.(gzip|lz4|zstd)\.level")
_PARTITIONERS = ("DefaultPartitioner", "UniformStickyPartitioner")

# These tune Java's client and have no counterpart here: a job that sets them still runs.
_WITHOUT_EFFECT = frozenset(
    {
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
        "metadata.max.idle.ms",
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
        "retries",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.login.class",
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "security.providers",
        "send.buffer.bytes",
        "session.timeout.ms",
        "share.acknowledgement.mode",
        "ssl.cipher.suites",
        "ssl.keymanager.algorithm",
        "ssl.keystore.password",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
        "ssl.truststore.password",
    }
)
_PREFIXES_WITHOUT_EFFECT = (
    "sasl.kerberos.ticket.renew.",
    "sasl.login.refresh.",
    "sasl.login.retry.",
    "sasl.oauthbearer.clock.",
    "sasl.oauthbearer.expected.",
    "sasl.oauthbearer.jwks.",
    "sasl.oauthbearer.scope.claim.",
    "sasl.oauthbearer.sub.claim.",
)
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
    """How to reach the cluster, as plain values that travel to the executors.

    `client` are keywords for every client, `role` those for reading or writing. Neither `repr` nor
    an error shows a secret.
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
        """Return a text that is equal for equal settings: tasks of a process share clients by
        it."""
        return repr([sorted(self.client.items()), sorted(self.role.items()), self._security.key()])

    @property
    def patience(self) -> float:
        """Seconds to wait for a broker that is unavailable."""
        milliseconds: float = self.client.get("request_timeout_ms", _REQUEST_TIMEOUT_MS)
        return milliseconds / 1000

    def keywords(self) -> dict[str, Any]:
        """Return keywords for any client, made where it will run.

        Reads the certificates, and imports the token provider.
        """
        keywords = {"client_id": _CLIENT_ID, **self.client}
        if keywords.get("security_protocol", "PLAINTEXT").endswith("SSL"):
            keywords["ssl_context"] = self._security.tls_context()
        if (provider := self._security.make_token_provider()) is not None:
            keywords["sasl_oauth_token_provider"] = provider
        return keywords


def parse_settings(options: Mapping[str, str], *, writing: bool) -> ClientSettings:
    """Parse the options under `kafka.`, given without that prefix and in lower case.

    Raises ValueError for an option that is unknown, forbidden or not of its type.
    """
    # As Java does with every value, passwords as well.
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
                raise ValueError(f"kafka.{name}: another setting names another {keyword}")
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
            raise ValueError(f"kafka.sasl.jaas.config: another setting names another {keyword}")
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
            f"kafka.{name}: a class of Java cannot be run here; a column partition says where "
            "rows go"
        )
    if name == "partitioner.ignore.keys" and _converted(name, text, _flag):
        raise ValueError(
            f"kafka.{name}: rows with keys go where Java sends them; a column partition says "
            "otherwise"
        )
    return (
        name in ("client.rack", "partitioner.class", "partitioner.ignore.keys")
        or name in _WITHOUT_EFFECT
        or name.startswith(_PREFIXES_WITHOUT_EFFECT)
        or name in (_FETCH if writing else _PRODUCE)
        or (not writing and _LEVEL.fullmatch(name) is not None)
    )


@functools.lru_cache(maxsize=100)
def _warn_once(names: tuple[str, ...]) -> None:
    """Warn once in a process, although options are parsed many times for a query."""
    log.warning("%s: no effect here", ", ".join(f"kafka.{name}" for name in names))


def _read_level(options: Mapping[str, str], role: dict[str, Any]) -> None:
    for name, text in options.items():
        found = _LEVEL.fullmatch(name)
        if found is None:
            continue
        level = _converted(name, text, _number)
        if found[1] == role.get("compression_type"):
            role["compression_level"] = level


def known_settings(writing: bool) -> list[str]:
    """Return every supported setting."""
    levels = [f"compression.{codec}.level" for codec in ("gzip", "lz4", "zstd")] if writing else []
    names = {*_COMMON, *(_PRODUCE if writing else _FETCH), *SECURITY_SETTINGS, *levels}
    return sorted(names - _WITHOUT_EFFECT)


def _converted(name: str, text: str, convert: Convert) -> Any:
    try:
        return convert(text)
    except (ValueError, KeyError):
        wanted = "true or false" if convert is _flag else "a number"
        raise ValueError(f"kafka.{name}={text!r}: must be {wanted}") from None
