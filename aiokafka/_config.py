"""The configuration of clients: checked once, in seconds inside.

Public constructors take Kafka's keywords, with times in milliseconds. They pass them to
`from_options` of these classes and hand one frozen object down. A wrong value raises at once, with
the name of the keyword and what is accepted.
"""

# ruff: noqa: RUF009  (option() only describes a field; its defaults are immutable)

from __future__ import annotations

import sys
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aiokafka._options import (
    MISSING,
    Choice,
    Flag,
    Function,
    Having,
    HavingOrFunction,
    Milliseconds,
    Number,
    Options,
    Text,
    TextSource,
    option,
    refuse_unknown,
    unsendable,
)
from aiokafka._version import __version__

if TYPE_CHECKING:
    import ssl

    from typing_extensions import Self

    from aiokafka.abc import AbstractTokenProvider

SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS = ("PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
COMPRESSION_TYPES = (None, "none", "gzip", "snappy", "lz4", "zstd")
DEFAULT_PORT = 9092

_MEBIBYTE = 1024 * 1024

Credential = str | Callable[[], str | Awaitable[str]]
"""A text, or a function that gives it each time somebody has to be authenticated."""

if TYPE_CHECKING:
    TlsSource = ssl.SSLContext | Callable[[], ssl.SSLContext | Awaitable[ssl.SSLContext]]


# ---------------------------------------------------------------- keywords without effect

_IGNORED = {
    "loop": "the running event loop is used",
    "api_version": "versions are negotiated with every broker",
    "send_backoff_ms": "see linger_ms and retry_backoff_ms",
}


def warn_ignored(stacklevel: int = 3, **given: object) -> None:
    """Warn about keywords of older versions that are accepted and have no effect.

    None is never worth a warning, and neither is `api_version="auto"`.
    """
    for keyword, value in given.items():
        if value is None or (keyword == "api_version" and value == "auto"):
            continue
        warnings.warn(
            f"the argument {keyword} has no effect: {_IGNORED[keyword]}",
            DeprecationWarning,
            stacklevel=stacklevel,
        )


# ---------------------------------------------------------------- addresses


class Addresses:
    """Addresses to find the cluster: a comma separated string or a list of host:port."""

    accepts = '"host:port", several of them separated by commas, or a list of such strings'

    def convert(self, value: Any) -> tuple[tuple[str, int], ...]:
        """Return (host, port) pairs in the order given, each once."""
        if isinstance(value, str):
            value = value.split(",")
        elif not isinstance(value, (list, tuple, set, frozenset)):
            raise TypeError
        found: dict[tuple[str, int], None] = {}
        for part in value:
            if not isinstance(part, str):
                raise TypeError
            if part.strip():
                found[parse_address(part.strip())] = None
        if not found:
            raise ValueError
        return tuple(found)


def parse_address(text: str) -> tuple[str, int]:
    """Split `host:port`, `host`, `[ipv6]:port` or a bare IPv6 address; the port defaults to 9092.

    A listener name in front (`SASL_SSL://host:port`) is dropped, as it is in Java's client.
    """
    rest = text.rpartition("://")[2]
    host, port = rest, ""
    if rest.startswith("["):
        host, closed, port = rest[1:].partition("]")
        if not closed or (port and not port.startswith(":")):
            raise ValueError(f"{text!r} has no closing bracket before the port")
        port = port[1:]
    elif rest.count(":") == 1:
        host, port = rest.split(":")
    if not host or not host.isprintable() or any(c.isspace() or c == "/" for c in host):
        raise ValueError(f"{text!r} has no valid host")
    if not port and rest.endswith(":"):
        raise ValueError(f"{text!r} has no port after the colon")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"{text!r} has no port from 1 to 65535")
    return host, int(port) if port else DEFAULT_PORT


# ---------------------------------------------------------------- security


@dataclass(frozen=True, kw_only=True, eq=False)
class SecurityConfig(Options):
    """How connections are encrypted and authenticated."""

    protocol: str = option(
        Choice(SECURITY_PROTOCOLS),
        "security_protocol",
        "PLAINTEXT",
        "Protocol of the listener: with or without TLS, with or without SASL.",
        opening="`security_protocol` should be SSL or PLAINTEXT",
    )
    ssl_context: TlsSource | None = option(
        HavingOrFunction(
            "wrap_bio",
            "an ssl.SSLContext (see aiokafka.helpers.create_ssl_context), a function that makes "
            "one for each connection, or None",
        ),
        "ssl_context",
        None,
        "TLS settings, or a function that gives them for each new connection; needed for SSL and "
        "SASL_SSL.",
        repr=False,
    )
    sasl_mechanism: str = option(
        Choice(SASL_MECHANISMS),
        "sasl_mechanism",
        "PLAIN",
        "How SASL authenticates.",
        opening="only `PLAIN`, `GSSAPI`, `SCRAM-SHA-256`, `SCRAM-SHA-512` and `OAUTHBEARER`",
    )
    sasl_plain_username: Credential | None = option(
        TextSource(),
        "sasl_plain_username",
        None,
        "User name for PLAIN and SCRAM, or a function that gives it for each authentication.",
        repr=False,
    )
    sasl_plain_password: Credential | None = option(
        TextSource(secret=True),
        "sasl_plain_password",
        None,
        "Password for PLAIN and SCRAM, or a function that gives it for each authentication.",
        repr=False,
    )
    sasl_scram_tokenauth: bool = option(
        Flag(),
        "sasl_scram_tokenauth",
        False,
        "With SCRAM: the user name is the id of a delegation token, the password its HMAC in "
        "base64 (KIP-48).",
    )
    sasl_kerberos_service_name: str = option(
        Text(), "sasl_kerberos_service_name", "kafka", "Service name of the brokers for GSSAPI."
    )
    sasl_kerberos_domain_name: str | None = option(
        Text(optional=True),
        "sasl_kerberos_domain_name",
        None,
        "Kerberos domain for GSSAPI; by default the host name of the broker.",
    )
    sasl_kerberos_principal: str | None = option(
        Text(optional=True, empty=False),
        "sasl_kerberos_principal",
        None,
        "Principal of the client for GSSAPI; by default that of the ticket cache, or the first of "
        "the keytab.",
    )
    sasl_kerberos_keytab: str | None = option(
        Text(optional=True, empty=False),
        "sasl_kerberos_keytab",
        None,
        "Path of a keytab to get tickets with, for GSSAPI; by default KRB5CCNAME and "
        "KRB5_CLIENT_KTNAME of the environment count.",
    )
    sasl_oauth_token_provider: AbstractTokenProvider | None = option(
        Having("token", "an instance of aiokafka.abc.AbstractTokenProvider or None"),
        "sasl_oauth_token_provider",
        None,
        "Source of tokens for OAUTHBEARER.",
        repr=False,
    )

    def __post_init__(self) -> None:
        if self.uses_tls:
            self._check_tls()
        elif self.ssl_context is not None:
            self._warn("ssl_context", "SSL or SASL_SSL")
        if self.uses_sasl:
            self._check_sasl()
        elif self.sasl_plain_password is not None:
            self._warn("sasl_plain_password", "SASL_SSL or SASL_PLAINTEXT")
        elif self.sasl_oauth_token_provider is not None:
            self._warn("sasl_oauth_token_provider", "SASL_SSL or SASL_PLAINTEXT")

    def _check_tls(self) -> None:
        if self.ssl_context is None:
            raise ValueError(
                "`ssl_context` is mandatory if security_protocol=='SSL': "
                f"security_protocol={self.protocol!r} needs ssl_context; "
                "aiokafka.helpers.create_ssl_context() makes one"
            )
        side = getattr(getattr(self.ssl_context, "protocol", None), "name", "")
        if side == "PROTOCOL_TLS_SERVER":
            raise ValueError(
                "ssl_context: made for a server (PROTOCOL_TLS_SERVER or Purpose.CLIENT_AUTH); "
                "aiokafka.helpers.create_ssl_context() makes one for a client"
            )

    def _check_sasl(self) -> None:
        mechanism = self.sasl_mechanism
        if self.sasl_scram_tokenauth and not mechanism.startswith("SCRAM-"):
            raise ValueError(
                "sasl_scram_tokenauth: delegation tokens log in by SCRAM; set "
                "sasl_mechanism='SCRAM-SHA-256' or 'SCRAM-SHA-512'"
            )
        if mechanism == "OAUTHBEARER":
            if self.sasl_oauth_token_provider is None:
                raise ValueError("sasl_mechanism='OAUTHBEARER' needs sasl_oauth_token_provider")
        elif mechanism == "GSSAPI":
            for keyword in ("sasl_kerberos_service_name", "sasl_kerberos_domain_name"):
                if getattr(self, keyword) == "":
                    raise ValueError(f"{keyword}: must not be empty with sasl_mechanism='GSSAPI'")
        else:
            self._check_user()

    def _check_user(self) -> None:
        mechanism = self.sasl_mechanism
        if self.sasl_plain_username is None or self.sasl_plain_password is None:
            hint = ""
            if self.sasl_oauth_token_provider is not None:
                hint = "; for sasl_oauth_token_provider set sasl_mechanism='OAUTHBEARER'"
            raise ValueError(
                f"sasl_mechanism={mechanism!r} needs "
                f"sasl_plain_username and sasl_plain_password{hint}"
            )
        for keyword in ("sasl_plain_username", "sasl_plain_password"):
            value = getattr(self, keyword)
            if value == "":
                raise ValueError(f"{keyword}: must not be empty with sasl_mechanism={mechanism!r}")
            if isinstance(value, str) and (reason := unsendable(value)):
                raise ValueError(f"{keyword}: must not have {reason}")

    def _warn(self, what: str, protocols: str) -> None:
        # An error would stop programs that keep their settings for a plain listener, too.
        warnings.warn(
            f"{what} has no effect with security_protocol={self.protocol!r}; it needs {protocols}",
            UserWarning,
            stacklevel=_level_of_caller(),
        )

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        """Whether connections are authenticated by SASL."""
        return self.protocol.startswith("SASL")

    @property
    def shows_password(self) -> bool:
        """Whether the password can be read by who listens on the way to a broker."""
        return self.protocol == "SASL_PLAINTEXT" and self.sasl_mechanism == "PLAIN"


def _level_of_caller() -> int:
    """The `stacklevel` for a warning about the code that makes the client."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("aiokafka"):
        frame, level = frame.f_back, level + 1
    return level


# ---------------------------------------------------------------- client


@dataclass(frozen=True, kw_only=True, eq=False)
class ClientConfig(Options):
    """What every client needs to reach a cluster."""

    bootstrap_servers: tuple[tuple[str, int], ...] = option(
        Addresses(),
        "bootstrap_servers",
        "localhost",
        "Brokers to ask for the rest of the cluster. A few of them suffice; the port is 9092 "
        "where none is given.",
    )
    client_dns_lookup: str = option(
        Choice(("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")),
        "client_dns_lookup",
        "use_all_dns_ips",
        "Names of bootstrap_servers are used as they are, or replaced by the canonical names of "
        "all their addresses, which Kerberos wants of an alias (KIP-235).",
    )
    client_id: str = option(
        Text(), "client_id", f"aiokafka-{__version__}", "Name of the client in the broker's logs."
    )
    request_timeout: float = option(
        Milliseconds(1, is_sent=True),
        "request_timeout_ms",
        40_000,
        "How long to wait for the answer to a request.",
    )
    retry_backoff: float = option(
        Milliseconds(0),
        "retry_backoff_ms",
        100,
        "Pause before a failed request is sent again; doubles with every further failure.",
    )
    retry_backoff_max: float = option(
        Milliseconds(0), "retry_backoff_max_ms", 1_000, "Longest pause between retries."
    )
    reconnect_backoff: float = option(
        Milliseconds(0),
        "reconnect_backoff_ms",
        50,
        "Pause before a broken connection is made again; doubles with every further failure.",
    )
    reconnect_backoff_max: float = option(
        Milliseconds(0),
        "reconnect_backoff_max_ms",
        1_000,
        "Longest pause between attempts to connect.",
    )
    connection_setup_timeout: float = option(
        Milliseconds(1),
        "socket_connection_setup_timeout_ms",
        10_000,
        "How long a connection may take to be made; doubles with every further failure.",
    )
    connection_setup_timeout_max: float = option(
        Milliseconds(1),
        "socket_connection_setup_timeout_max_ms",
        30_000,
        "Longest time that a connection may take to be made.",
    )
    connections_max_idle: float | None = option(
        Milliseconds(0, optional=True),
        "connections_max_idle_ms",
        540_000,
        "Close a connection that was not used for this long; None for never.",
    )
    metadata_max_age: float = option(
        Milliseconds(1),
        "metadata_max_age_ms",
        300_000,
        "Ask for the state of the cluster at least this often.",
    )
    metadata_max_idle: float = option(
        Milliseconds(1000),
        "metadata_max_idle_ms",
        300_000,
        "Forget a topic that was not used for this long (KIP-526).",
    )
    rebootstrap_trigger: float | None = option(
        Milliseconds(0, optional=True),
        "metadata_recovery_rebootstrap_trigger_ms",
        300_000,
        "Start again from bootstrap_servers when no known broker gives metadata: as soon as all "
        "of them were tried, at the latest after this long; None for never.",
    )
    max_response_bytes: int = option(
        Number(1024),
        "receive_message_max_bytes",
        256 * _MEBIBYTE,
        "Refuse a response larger than this many bytes.",
    )
    allow_auto_create_topics: bool = option(
        Flag(),
        "allow_auto_create_topics",
        True,
        "Let a broker that is configured so create a missing topic when it is asked for it.",
    )
    client_rack: str | None = option(
        Text(optional=True),
        "client_rack",
        None,
        "Rack of the client, to read from a replica near by (KIP-392).",
    )
    security: SecurityConfig = field(default_factory=SecurityConfig)

    def __post_init__(self) -> None:
        _at_least(self, "retry_backoff_max", "retry_backoff")
        _at_least(self, "reconnect_backoff_max", "reconnect_backoff")
        _at_least(self, "connection_setup_timeout_max", "connection_setup_timeout")

    @classmethod
    def from_options(cls, **options: Any) -> Self:
        """Make the configuration from public keywords, those of `SecurityConfig` included."""
        keywords = SecurityConfig.keywords()
        security = {name: options.pop(name) for name in keywords & options.keys()}
        if security:
            options["security"] = SecurityConfig.from_options(**security)
        return super().from_options(**options)


def _at_least(config: Any, larger: str, smaller: str) -> None:
    # A maximum below its start value, often a default, is raised to it instead of refused: the
    # caller asked for the start value.
    if getattr(config, larger) < getattr(config, smaller):
        object.__setattr__(config, larger, getattr(config, smaller))


# ---------------------------------------------------------------- producer


@dataclass(frozen=True, kw_only=True, eq=False)
class ProducerConfig(Options):
    """What a producer needs besides `ClientConfig`."""

    @property
    def subject(self) -> str:
        """What lines in the log call the producer: its client id, and its transactional id."""
        name = f" with transactional_id {self.transactional_id}" if self.transactional_id else ""
        return f"Producer {self.client.client_id}{name}"

    client: ClientConfig = field(default_factory=ClientConfig)
    acks: int = option(
        Choice((0, 1, -1, "all")),
        "acks",
        MISSING,
        """Which brokers have written a record before it counts as sent: 0 none, 1 the leader,
        "all" (or -1) every replica in sync. By default "all".""",
        opening="Invalid ACKS parameter",
    )
    enable_idempotence: bool = option(
        Flag(),
        "enable_idempotence",
        MISSING,
        """Let the broker drop what a retry would write twice. By default on, unless acks is set
        to 0 or 1; always on with a transactional_id.""",
    )
    transactional_id: str | None = option(
        Text(optional=True, empty=False),
        "transactional_id",
        None,
        "Name of the producer across restarts; turns transactions on.",
    )
    transaction_timeout: float = option(
        Milliseconds(1, is_sent=True),
        "transaction_timeout_ms",
        60_000,
        "The broker aborts a transaction that lasts longer.",
    )
    key_serializer: Callable[[Any], bytes | None] | None = option(
        Function(), "key_serializer", None, "Turns the key given to send into bytes."
    )
    value_serializer: Callable[[Any], bytes | None] | None = option(
        Function(), "value_serializer", None, "Turns the value given to send into bytes."
    )
    partitioner: Callable[..., int] | None = option(
        Function(),
        "partitioner",
        None,
        "Chooses a partition: partitioner(key bytes, all partitions, available partitions).",
    )
    compression_type: str | None = option(
        Choice(COMPRESSION_TYPES),
        "compression_type",
        None,
        "How batches are compressed.",
        opening="Invalid compression type!",
    )
    compression_level: int | None = option(
        Number(-(2**17), 22, optional=True),
        "compression_level",
        None,
        "Level of the codec, where it has levels; None for its default.",
    )
    max_batch_size: int = option(
        Number(0), "max_batch_size", 16_384, "Size in bytes at which a batch is full."
    )
    max_request_size: int = option(
        Number(1), "max_request_size", _MEBIBYTE, "Largest size of a request in bytes."
    )
    linger: float = option(
        Milliseconds(0),
        "linger_ms",
        0,
        "How long a batch that is not full waits for more records.",
    )
    buffer_memory: int = option(
        Number(1, 2**63 - 1),
        "buffer_memory",
        32 * _MEBIBYTE,
        "Bytes of records that may wait to be sent; beyond it send waits.",
    )
    max_block: float = option(
        Milliseconds(0),
        "max_block_ms",
        60_000,
        "How long send waits for metadata and for memory.",
    )
    delivery_timeout: float = option(
        Milliseconds(1),
        "delivery_timeout_ms",
        MISSING,
        """Time within which a record is delivered or fails, retries included. By default 120000,
        or linger_ms + request_timeout_ms when that is more.""",
    )
    max_in_flight_requests: int = option(
        Number(1, 1000),
        "max_in_flight_requests_per_connection",
        5,
        "Requests that may wait for an answer per broker; at most 5 with idempotence.",
    )

    @classmethod
    def of(cls, owner: str, options: dict[str, Any], client_options: dict[str, Any]) -> Self:
        """Make it from the arguments of the constructor of `owner`: those that it names, and the
        others, of which the client has to have each."""
        refuse_unknown(owner, client_options, cls, ClientConfig, SecurityConfig)
        own = cls.keywords()
        rest = {name: value for name, value in options.items() if name not in own}
        client = ClientConfig.from_options(**rest, **client_options)
        return cls.from_options(client=client, **{name: options[name] for name in own})

    def __post_init__(self) -> None:
        self._settle_acks()
        self._settle_delivery_timeout()
        if self.compression_type == "none":
            object.__setattr__(self, "compression_type", None)

    def _settle_acks(self) -> None:
        acks = -1 if self.acks in ("all", MISSING) else self.acks
        idempotent = self.enable_idempotence
        if self.transactional_id is not None:
            idempotent = True
        elif idempotent is MISSING:
            idempotent = acks == -1 and self.max_in_flight_requests <= 5
        if idempotent and acks != -1:
            reason = "enable_idempotence" if self.transactional_id is None else "transactional_id"
            raise ValueError(f"acks={acks} not supported if {reason} is set: must be 'all' (or -1)")
        if idempotent and self.max_in_flight_requests > 5:
            raise ValueError(
                f"max_in_flight_requests_per_connection={self.max_in_flight_requests}: "
                "must be at most 5 with idempotence, or the broker cannot keep the order"
            )
        object.__setattr__(self, "acks", acks)
        object.__setattr__(self, "enable_idempotence", idempotent)

    def _settle_delivery_timeout(self) -> None:
        least = self.linger + self.client.request_timeout
        if self.delivery_timeout is MISSING:
            object.__setattr__(self, "delivery_timeout", max(120.0, least))
        elif self.delivery_timeout <= self.linger:
            # Java's client demands request_timeout_ms on top; here a request in flight does not
            # keep its records from failing in time.
            raise ValueError(
                f"delivery_timeout_ms={self.delivery_timeout * 1000:g}: must be more than "
                f"linger_ms, that is {self.linger * 1000:g}"
            )
