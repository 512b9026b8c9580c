"""Options of all clients."""

from __future__ import annotations

import warnings
from collections.abc import Set
from typing import TYPE_CHECKING, Any

from aiokafka._config.options import (
    Choice,
    Flag,
    Milliseconds,
    Number,
    Options,
    Text,
    nested,
    option,
)
from aiokafka._config.security import SecurityConfig
from aiokafka._version import __version__

if TYPE_CHECKING:
    from typing_extensions import Self

DEFAULT_PORT = 9092

_MEBIBYTE = 1024 * 1024


class Addresses:
    """An option type: bootstrap addresses, as a comma-separated string or a list of strings."""

    accepts = '"host:port", several of them separated by commas, or a list of such strings'
    annotation = "str | list[str] | tuple[str, ...] | AbstractSet[str]"

    def convert(self, value: Any) -> tuple[tuple[str, int], ...] | None:
        """Return distinct (host, port) pairs in the given order."""
        if isinstance(value, str):
            value = value.split(",")
        elif not isinstance(value, (list, tuple, Set)):
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


class OptionalAddresses(Addresses):
    """An option type: bootstrap addresses, or None."""

    accepts = f"{Addresses.accepts}, or None"
    annotation = f"{Addresses.annotation} | None"

    def convert(self, value: Any) -> tuple[tuple[str, int], ...] | None:
        """Return distinct (host, port) pairs in the given order."""
        return None if value is None else super().convert(value)


def parse_address(text: str) -> tuple[str, int]:
    """Split `host:port`, `host`, `[ipv6]:port` or a bare IPv6 address; the port defaults to 9092.

    As in Java's client, a listener name before the host (`SASL_SSL://host:port`) is ignored.
    """
    if "SharedAccessKey=" in text:
        raise ValueError(
            "this is a connection string of Event Hubs: the address is its host with the port "
            "9093, and the whole of it is the password of the user $ConnectionString"
        )
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
    if ":" in host and not _is_ipv6(host):
        raise ValueError(f"{text!r} is neither host:port nor an IPv6 address")
    # An IPv6 address without brackets may end in colons, which do not separate a port.
    if not port and rest.endswith(":") and rest != host:
        raise ValueError(f"{text!r} has no port after the colon")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"{text!r} has no port from 1 to 65535")
    return host, int(port) if port else DEFAULT_PORT


def _is_ipv6(host: str) -> bool:
    import ipaddress  # imported on demand: most programs use no IPv6 address

    try:
        ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return False
    return True


class ClientConfig(Options):
    """Options of all clients."""

    bootstrap_servers: tuple[tuple[str, int], ...] = option(
        Addresses(),
        "bootstrap_servers",
        "localhost",
        "Brokers to ask for the rest of the cluster. A few of them suffice; the port is 9092 "
        "where none is given.",
        when="""Always, but on your own machine. Name two or three brokers, so that one may be
        down.""",
    )
    client_dns_lookup: str = option(
        Choice(("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")),
        "client_dns_lookup",
        "use_all_dns_ips",
        "Names of bootstrap_servers are used as they are, or replaced by the canonical names of "
        "all their addresses, which Kerberos wants of an alias (KIP-235).",
        when="With Kerberos, when the brokers stand behind an alias.",
    )
    client_id: str = option(
        Text(optional=True),
        "client_id",
        f"aiokafka-{__version__}",
        "Name of the client in the broker's logs; None for the default.",
        when="Always in production: quotas, the logs of brokers and metrics go by this name.",
    )
    request_timeout: float = option(
        Milliseconds(1, is_sent=True),
        "request_timeout_ms",
        40_000,
        "How long to wait for the response to a request.",
        when="""Larger if brokers are far away or overloaded; smaller to notice a dead broker
        earlier.""",
    )
    retry_backoff: float = option(
        Milliseconds(0),
        "retry_backoff_ms",
        100,
        "Pause before a failed request is sent again; doubles with every further failure.",
        when="Hardly ever.",
    )
    retry_backoff_max: float = option(
        Milliseconds(0),
        "retry_backoff_max_ms",
        1_000,
        "Longest pause between retries.",
        when="Larger if many clients would disturb a cluster that recovers.",
    )
    reconnect_backoff: float = option(
        Milliseconds(0),
        "reconnect_backoff_ms",
        50,
        "Pause before a broken connection is made again; doubles with every further failure.",
        when="Hardly ever.",
    )
    reconnect_backoff_max: float = option(
        Milliseconds(0),
        "reconnect_backoff_max_ms",
        1_000,
        "Longest pause between attempts to connect.",
        when="Larger if many clients would disturb a cluster that recovers.",
    )
    connection_setup_timeout: float = option(
        Milliseconds(1),
        "socket_connection_setup_timeout_ms",
        10_000,
        "How long a connection may take to be made; doubles with every further failure.",
        java="socket.connection.setup.timeout.ms",
        when="Larger behind a slow VPN, or where logging in takes long.",
    )
    connection_setup_timeout_max: float = option(
        Milliseconds(1),
        "socket_connection_setup_timeout_max_ms",
        30_000,
        "Longest time that a connection may take to be made.",
        java="socket.connection.setup.timeout.max.ms",
        when="Together with the one above.",
    )
    connections_max_idle: float | None = option(
        Milliseconds(0, optional=True),
        "connections_max_idle_ms",
        540_000,
        "Close a connection that was not used for this long; None for never.",
        when="""Below the idle timeout of a load balancer or firewall that drops connections in
        silence.""",
    )
    metadata_max_age: float = option(
        Milliseconds(1),
        "metadata_max_age_ms",
        300_000,
        "Ask for the state of the cluster at least this often.",
        when="Smaller to notice new partitions, and new topics that match a pattern, earlier.",
    )
    metadata_max_idle: float = option(
        Milliseconds(1000),
        "metadata_max_idle_ms",
        300_000,
        "Forget a topic that was not used for this long (KIP-526).",
        when="Smaller in a producer that writes to many topics, each for a short time.",
    )
    rebootstrap_trigger: float | None = option(
        Milliseconds(0, optional=True),
        "metadata_recovery_rebootstrap_trigger_ms",
        300_000,
        "Start again from bootstrap_servers when no known broker gives metadata: as soon as all "
        "of them were tried, at the latest after this long; None for never.",
        when="None if the addresses of the brokers never change all at once.",
    )
    max_response_bytes: int = option(
        Number(1024),
        "receive_message_max_bytes",
        256 * _MEBIBYTE,
        "Refuse a response larger than this many bytes.",
        java="",
        when="Together with fetch_max_bytes, for very large records.",
    )
    allow_auto_create_topics: bool = option(
        Flag(),
        "allow_auto_create_topics",
        True,
        "Let a broker that is configured so create a missing topic when it is asked for it.",
        when="False in production, so that a misspelt topic is an error.",
    )
    enable_metrics_push: bool = option(
        Flag(),
        "enable_metrics_push",
        True,
        "Push metrics to brokers that ask for them (KIP-714). An admin client does so only if it "
        "is set.",
        when="False if the operators of the cluster must not see metrics of clients.",
    )
    client_rack: str | None = option(
        Text(optional=True),
        "client_rack",
        None,
        "Rack of a consumer, to read from a replica near by (KIP-392, Kafka 2.4); told to the "
        "group, whose assignor may prefer partitions with such a replica. Other clients do not use "
        "it.",
        when="If brokers have racks: the zone of the client saves traffic between zones.",
    )
    security: SecurityConfig = nested(SecurityConfig)

    @property
    def is_for_controllers(self) -> bool:
        """Whether the client connects to controllers, not to brokers; see `AdminConfig`."""
        return False

    def __post_init__(self) -> None:
        _at_least(self, "retry_backoff_max", "retry_backoff")
        _at_least(self, "reconnect_backoff_max", "reconnect_backoff")
        _at_least(self, "connection_setup_timeout_max", "connection_setup_timeout")

    def introduction(self, **names: str | None) -> dict[str, Any]:
        """Return the argument of an interceptor's `configure`: the options of all clients, and
        `names`, such as the `group_id` of a consumer."""
        return {
            "client_id": self.client_id,
            "bootstrap_servers": list(self.bootstrap_servers),
            **names,
        }

    @classmethod
    def from_options(cls, **options: Any) -> Self:
        """Return the configuration from the keywords of this class and of `SecurityConfig`."""
        if "client_id" in options and options["client_id"] is None:
            del options["client_id"]
        keywords = SecurityConfig.keywords()
        security = {name: options.pop(name) for name in keywords & options.keys()}
        if security:
            options["security"] = SecurityConfig.from_options(**security)
        return super().from_options(**options)


def _at_least(config: Any, larger: str, smaller: str) -> None:
    # The backoff or timeout grows from `smaller` up to `larger`. A caller who sets only `smaller`
    # may exceed the default of `larger`: raise `larger` to `smaller` instead of raising an error.
    if getattr(config, larger) < getattr(config, smaller):
        object.__setattr__(config, larger, getattr(config, smaller))


# -- Keywords of older versions of aiokafka, which have no effect


_IGNORED = {
    "loop": "the running event loop is used",
    "api_version": "versions are negotiated with every broker",
    "send_backoff_ms": "see linger_ms and retry_backoff_ms",
}

# The first words of a warning, as in aiokafka: applications filter warnings by these words.
_OPENINGS = {
    "api_version": "The `api_version` parameter has been deprecated since 0.13.0. "
    "It is now a no-op and will be removed in a future release. Here "
}


def warn_ignored(stacklevel: int = 3, **given: object) -> None:
    """Emit a DeprecationWarning for each keyword in `given`, which has no effect any more.

    None and `api_version="auto"`, the former defaults, cause no warning.
    """
    for keyword, value in given.items():
        if value is None or (keyword == "api_version" and value == "auto"):
            continue
        opening = _OPENINGS.get(keyword, "")
        warnings.warn(
            f"{opening}the argument {keyword} has no effect: {_IGNORED[keyword]}",
            DeprecationWarning,
            stacklevel=stacklevel,
        )
