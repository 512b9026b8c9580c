"""The options `kafka.*`: Kafka's own settings, and which keyword of ours each of them is."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["ClientSettings", "parse_settings"]

log = logging.getLogger("aiokafka.spark")

_CLIENT_ID = "aiokafka-spark"
_REQUEST_TIMEOUT_MS = 40_000

Convert = Callable[[str], Any]


def _number(text: str) -> int:
    return int(text)


def _flag(text: str) -> bool:
    values = {"true": True, "false": False}
    return values[text.strip().lower()]


def _acks(text: str) -> int | str:
    return "all" if text in ("all", "-1") else int(text)


_COMMON: dict[str, tuple[str, Convert]] = {
    "bootstrap.servers": ("bootstrap_servers", str),
    "client.id": ("client_id", str),
    "security.protocol": ("security_protocol", str),
    "sasl.mechanism": ("sasl_mechanism", str),
    "sasl.username": ("sasl_plain_username", str),
    "sasl.password": ("sasl_plain_password", str),
    "sasl.plain.username": ("sasl_plain_username", str),
    "sasl.plain.password": ("sasl_plain_password", str),
    "sasl.kerberos.service.name": ("sasl_kerberos_service_name", str),
    "sasl.kerberos.domain.name": ("sasl_kerberos_domain_name", str),
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
# Files, which an executor turns into an ssl.SSLContext of its own.
_TLS = {
    "ssl.cafile": "cafile",
    "ssl.ca.location": "cafile",
    "ssl.truststore.location": "cafile",
    "ssl.certfile": "certfile",
    "ssl.certificate.location": "certfile",
    "ssl.keystore.location": "certfile",
    "ssl.keyfile": "keyfile",
    "ssl.key.location": "keyfile",
    "ssl.key.password": "password",
    "ssl.crlfile": "crlfile",
}
_STORES = ("ssl.truststore", "ssl.keystore")
_VERIFY = "ssl.endpoint.identification.algorithm"
_TOKENS = "sasl.oauth.token.provider"

# What tunes Java's client and has no counterpart here: a job that sets it still runs.
_WITHOUT_EFFECT = frozenset(
    {
        "allow.auto.create.topics",
        "auto.include.jmx.reporter",
        "client.dns.lookup",
        "default.api.timeout.ms",
        "enable.metrics.push",
        "exclude.internal.topics",
        "group.instance.id",
        "heartbeat.interval.ms",
        "max.poll.interval.ms",
        "max.poll.records",
        "metadata.max.idle.ms",
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
        "send.buffer.bytes",
        "session.timeout.ms",
    }
)
_REFUSED = {
    "auto.offset.reset": "use startingOffsets; Spark keeps the offsets, and resets none of them",
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
    "sasl.jaas.config": "use kafka.sasl.username and kafka.sasl.password",
}
_SECRETS = frozenset({"sasl_plain_password", "password"})


class ClientSettings:
    """How to reach the cluster, as it travels to the executors: plain values only.

    `client` are keywords for every client, `role` those for reading or writing. Neither `repr` nor
    an error shows a secret.
    """

    def __init__(
        self,
        client: dict[str, Any],
        role: dict[str, Any],
        tls: dict[str, str],
        extra: dict[str, Any],
    ) -> None:
        self.client = client
        self.role = role
        self._tls = tls
        self._extra = extra

    def __repr__(self) -> str:
        shown = {
            name: value
            for name, value in (*self.client.items(), *self.role.items())
            if name not in _SECRETS
        }
        return f"ClientSettings({shown})"

    def key(self) -> str:
        """The same text for equal settings: what clients are shared by within a process."""
        parts = (self.client, self.role, self._tls, self._extra)
        return repr([sorted(part.items()) for part in parts])

    @property
    def patience(self) -> float:
        """Seconds to wait for a broker that is away."""
        milliseconds: float = self.client.get("request_timeout_ms", _REQUEST_TIMEOUT_MS)
        return milliseconds / 1000

    def keywords(self) -> dict[str, Any]:
        """Keywords for any client, made where it will run.

        Reads the certificates, and imports the token provider.
        """
        keywords = {"client_id": _CLIENT_ID, **self.client}
        if keywords.get("security_protocol", "PLAINTEXT").endswith("SSL"):
            from aiokafka.helpers import create_ssl_context

            files: Any = self._tls
            context = create_ssl_context(**files)
            context.check_hostname = self._extra.get("check_hostname", True)
            keywords["ssl_context"] = context
        if "token_provider" in self._extra:
            keywords["sasl_oauth_token_provider"] = _load(self._extra["token_provider"])()
        return keywords


def _load(path: str) -> Callable[[], Any]:
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)  # type: ignore[no-any-return]


def parse_settings(options: Mapping[str, str], *, writing: bool) -> ClientSettings:
    """From the options under `kafka.`, without that prefix and in lower case.

    Raises ValueError for one that is unknown, forbidden or not of its type.
    """
    client: dict[str, Any] = {}
    role: dict[str, Any] = {}
    tls: dict[str, str] = {}
    extra: dict[str, Any] = {}
    of_role, of_other = (_PRODUCE, _FETCH) if writing else (_FETCH, _PRODUCE)
    for name, text in options.items():
        if name in _REFUSED:
            raise ValueError(f"kafka.{name}: not supported: {_REFUSED[name]}")
        if name in _COMMON:
            keyword, convert = _COMMON[name]
            client[keyword] = _converted(name, text, convert)
        elif name in of_role:
            keyword, convert = of_role[name]
            role[keyword] = _converted(name, text, convert)
        elif name == "client.rack" or name in _WITHOUT_EFFECT or name in of_other:
            log.warning("kafka.%s has no effect here", name)
        elif not _take_security(name, text, tls, extra):
            raise ValueError(f"kafka.{name}: unknown setting; known: {known_settings(writing)}")
    _check_stores(options)
    if not client.get("bootstrap_servers"):
        raise ValueError(
            "kafka.bootstrap.servers: must be given, as host:port, several separated by commas"
        )
    return ClientSettings(client, role, tls, extra)


def known_settings(writing: bool) -> str:
    """Every supported setting, for a message and for the guide."""
    names = {*_COMMON, *(_PRODUCE if writing else _FETCH), *_TLS, _VERIFY, _TOKENS}
    return ", ".join(sorted(names))


def _converted(name: str, text: str, convert: Convert) -> Any:
    try:
        return convert(text)
    except (ValueError, KeyError):
        wanted = "true or false" if convert is _flag else "a number"
        raise ValueError(f"kafka.{name}={text!r}: must be {wanted}") from None


def _take_security(name: str, text: str, tls: dict[str, str], extra: dict[str, Any]) -> bool:
    if name in _TLS:
        tls[_TLS[name]] = text
    elif name == _VERIFY:
        extra["check_hostname"] = text.strip().lower() not in ("", "none")
    elif name == _TOKENS:
        if not all(text.partition(":")):
            raise ValueError(f"kafka.{name}={text!r}: must be package.module:function")
        extra["token_provider"] = text
    else:
        return name in {f"{store}.type" for store in _STORES}
    return True


def _check_stores(options: Mapping[str, str]) -> None:
    """Java's key stores can only be read by Java; their PEM form is for everybody."""
    for store in _STORES:
        if f"{store}.location" in options and options.get(f"{store}.type", "").upper() != "PEM":
            raise ValueError(
                f"kafka.{store}.location: only PEM files can be read; convert the store, and set "
                f"kafka.{store}.type to PEM"
            )
