"""Options of all clients."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Set
from typing import TYPE_CHECKING, Any

from aiokafka._config.options import (
    Choice,
    Flag,
    Function,
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


ADDRESSES = '"host:port", several of them separated by commas, or a list of such strings'
"""The values that `as_addresses` accepts, in words."""


def as_addresses(value: Any) -> tuple[tuple[str, int], ...]:
    """Return addresses as (host, port) pairs without repeats, in the order of `value`. Raises
    TypeError or ValueError for anything but `ADDRESSES`."""
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


class BootstrapServers:
    """An option type: bootstrap addresses, or a function (or coroutine function) that returns
    them. The function is called at each bootstrap."""

    accepts = f"{ADDRESSES}, or a function that returns them"
    annotation = "BootstrapServers"

    def convert(self, value: Any) -> Any:
        """Return a function unchanged, otherwise (host, port) pairs without repeats."""
        return value if callable(value) else as_addresses(value)


class OptionalServers(BootstrapServers):
    """An option type: bootstrap addresses, a function that returns them, or None."""

    accepts = f"{BootstrapServers.accepts}, or None"
    annotation = f"{BootstrapServers.annotation} | None"

    def convert(self, value: Any) -> Any:
        """Return None for None, otherwise the same as `BootstrapServers`."""
        return None if value is None else super().convert(value)


class ProxyUrl:
    """A proxy: its URL, and the parts of the URL. `login` is "user:password", "" if the URL has
    neither."""

    def __init__(self, url: str, address: tuple[str, int], login: str) -> None:
        self.url = url
        self.scheme = url.partition("://")[0]
        self.address = address
        self.login = login

    def url_at(self, ip: str) -> str:
        """Return the URL with an IP address of the proxy in place of its host name."""
        user, at, _ = self.url.partition("://")[2].rpartition("@")
        host = f"[{ip}]" if ":" in ip else ip
        return f"{self.scheme}://{user}{at}{host}:{self.address[1]}"


class ProxyUrlText:
    """An option type: the URL of a proxy, or None. Error texts do not show the URL, because it may
    contain a password."""

    secret = True
    accepts = "socks5://host:port, socks4://host:port, http://host:port, or None"
    annotation = "str | None"

    def convert(self, value: Any) -> ProxyUrl | None:
        """Return the proxy. Raises ValueError for another URL, and if python-socks is missing."""
        if value is None:
            return None
        if not isinstance(value, str):
            raise TypeError
        # These modules are only imported with a proxy.
        import importlib.util
        from urllib.parse import unquote, urlsplit

        scheme, separator, rest = value.partition("://")
        scheme = scheme.lower()
        # As in curl, "socks5h" and "socks4a" mean that the proxy resolves names. Here the proxy
        # always resolves names.
        scheme = {"socks5h": "socks5", "socks4a": "socks4"}.get(scheme, scheme)
        if not separator or scheme not in ("socks5", "socks4", "http"):
            raise ValueError
        try:
            parts = urlsplit(f"{scheme}://{rest}")
            host, port = parts.hostname, parts.port
        except ValueError:
            raise ValueError("host or port is not valid") from None
        if not host or not port or parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueError("it needs a host and a port, and must have no path, query or fragment")
        if (parts.username is None) != (parts.password is None):
            raise ValueError("it has a user without a password")
        if scheme != "http" and importlib.util.find_spec("python_socks") is None:
            raise ValueError('SOCKS needs python-socks: pip install "aiokafka[proxy]"')
        login = ""
        if parts.username is not None and parts.password is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password)}"
        return ProxyUrl(f"{scheme}://{rest}", (host, port), login)


class SocketOptions:
    """An option type: (level, option, value) triples for `setsockopt`, converted to a tuple."""

    accepts = "a list of (level, option, value), of numbers or bytes as setsockopt() takes them"
    annotation = "Sequence[tuple[int, int, int | bytes]]"

    def convert(self, value: Any) -> tuple[tuple[int, int, int | bytes], ...]:
        """Return the triples as tuples."""
        if not isinstance(value, (list, tuple)):
            raise TypeError
        for each in value:
            if not isinstance(each, (list, tuple)) or len(each) != 3:
                raise TypeError(f"not {each!r}")
            if not (_is_int(each[0]) and _is_int(each[1])):
                raise TypeError(f"not {each!r}")
            if not (_is_int(each[2]) or isinstance(each[2], bytes)):
                raise TypeError(f"not {each!r}")
        return tuple([tuple(each) for each in value])


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def parse_address(text: str) -> tuple[str, int]:
    """Split `host:port`, `host`, `[ipv6]:port` or an IPv6 address. The default port is 9092.

    As in the Java client, a listener name before the host (`SASL_SSL://host:port`) is ignored.
    Raises ValueError for other texts.
    """
    if "SharedAccessKey=" in text:
        raise ValueError(
            "this is a connection string of Event Hubs: pass its host with port 9093 as "
            "bootstrap_servers, and the whole string as the password of the user "
            "$ConnectionString"
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
    # An IPv6 address without brackets may end with colons that do not separate a port.
    if not port and rest.endswith(":") and rest != host:
        raise ValueError(f"{text!r} has no port after the colon")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise ValueError(f"{text!r} has no port from 1 to 65535")
    return host, int(port) if port else DEFAULT_PORT


def _is_ipv6(host: str) -> bool:
    import ipaddress  # imported here, because most programs use no IPv6 address

    try:
        ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return False
    return True


class ClientConfig(Options):
    """Options of all clients."""

    bootstrap_servers: tuple[tuple[str, int], ...] = option(
        BootstrapServers(),
        "bootstrap_servers",
        "localhost",
        """Brokers to connect to first, or a function that returns them; they return the addresses
        of all other brokers. The port is 9092 if none is given. A function or coroutine function is
        called whenever the client connects to them, also after an outage of all known brokers.""",
        when="""Always, except on your own machine. Name two or three brokers, so that one of them
        may be down.""",
    )
    client_dns_lookup: str = option(
        Choice(("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")),
        "client_dns_lookup",
        "use_all_dns_ips",
        """use_all_dns_ips: connect to the names in bootstrap_servers as they are.
        resolve_canonical_bootstrap_servers_only: replace each name by the canonical host names of
        its addresses, which Kerberos needs for an alias (KIP-235).""",
        when="""To resolve_canonical_bootstrap_servers_only with Kerberos, if an alias stands for
        the brokers.""",
    )
    bootstrap_resolve_timeout: float = option(
        Milliseconds(0),
        "bootstrap_resolve_timeout_ms",
        0,
        """Time for which start() repeats the look-up of the names in bootstrap_servers until one of
        them has an address (KIP-909); 0: a single look-up.""",
        when="""If programs may start before their names are in the DNS, such as together with the
        brokers in Kubernetes or Docker.""",
    )
    client_id: str = option(
        Text(optional=True),
        "client_id",
        f"aiokafka-{__version__}",
        "Name of the client in the broker's logs, quotas and metrics; None for the default.",
        when="Always in production, so that logs, quotas and metrics can tell programs apart.",
    )
    request_timeout: float = option(
        Milliseconds(1, is_sent=True),
        "request_timeout_ms",
        40_000,
        "Time to wait for the response to a request.",
        when="""Larger if brokers are far away or overloaded; smaller to detect a failed broker
        earlier.""",
    )
    retry_backoff: float = option(
        Milliseconds(0),
        "retry_backoff_ms",
        100,
        "Time to wait before a failed request is sent again; doubles after every further failure.",
        when="Hardly ever.",
    )
    retry_backoff_max: float = option(
        Milliseconds(0),
        "retry_backoff_max_ms",
        1_000,
        "Maximum time between two attempts of a request.",
        when="Larger if retries of many clients would overload a cluster that recovers.",
    )
    reconnect_backoff: float = option(
        Milliseconds(0),
        "reconnect_backoff_ms",
        50,
        """Time to wait before the client connects to a broker again after a failure; doubles after
        every further failure.""",
        when="Hardly ever.",
    )
    reconnect_backoff_max: float = option(
        Milliseconds(0),
        "reconnect_backoff_max_ms",
        1_000,
        "Maximum time between two attempts to connect to a broker.",
        when="Larger if many connecting clients would overload a cluster that recovers.",
    )
    connection_setup_timeout: float = option(
        Milliseconds(1),
        "socket_connection_setup_timeout_ms",
        10_000,
        """Time in which a connection has to be established, authentication included; doubles after
        every failure, until a connection succeeds.""",
        java="socket.connection.setup.timeout.ms",
        when="Larger behind a slow VPN, or if authentication takes long.",
    )
    connection_setup_timeout_max: float = option(
        Milliseconds(1),
        "socket_connection_setup_timeout_max_ms",
        30_000,
        "Maximum of the time in which a connection has to be established.",
        java="socket.connection.setup.timeout.max.ms",
        when="Together with socket_connection_setup_timeout_ms.",
    )
    connections_max_idle: float | None = option(
        Milliseconds(0, optional=True),
        "connections_max_idle_ms",
        540_000,
        "Close a connection that was not used for this time; None: never.",
        when="""Below the idle timeout of a load balancer or firewall that drops connections
        without closing them.""",
    )
    metadata_max_age: float = option(
        Milliseconds(1),
        "metadata_max_age_ms",
        300_000,
        "Refresh the metadata of the cluster at least this often.",
        when="Smaller to find new partitions, and new topics that match a pattern, earlier.",
    )
    metadata_max_idle: float = option(
        Milliseconds(1000),
        "metadata_max_idle_ms",
        300_000,
        "Remove a topic from the metadata if it was not used for this time (KIP-526).",
        when="Smaller in a producer that sends to many topics, to each for a short time.",
    )
    rebootstrap_trigger: float | None = option(
        Milliseconds(0, optional=True),
        "metadata_recovery_rebootstrap_trigger_ms",
        300_000,
        """Connect to bootstrap_servers again if no known broker returns metadata: as soon as all
        known brokers have been tried, or at the latest after this time; None: never.""",
        when="To None if the addresses of the brokers never change all at once.",
    )
    metadata_cluster_check: bool = option(
        Flag(),
        "metadata_cluster_check_enable",
        True,
        """Let each broker check on connect that it is the expected node of the expected cluster;
        if not, connect to bootstrap_servers again (KIP-1242, Kafka 4.4). No effect if
        metadata_recovery_rebootstrap_trigger_ms is None.""",
        when="To False if a proxy sends the client to another broker than the advertised one.",
    )
    max_response_bytes: int = option(
        Number(1024),
        "receive_message_max_bytes",
        256 * _MEBIBYTE,
        "Reject a response that is larger than this number of bytes.",
        java="",
        when="Together with fetch_max_bytes, for very large records.",
    )
    allow_auto_create_topics: bool = option(
        Flag(),
        "allow_auto_create_topics",
        True,
        """Let a broker create a missing topic when the client requests its metadata, if the broker
        is configured so (auto.create.topics.enable).""",
        when="To False in production, so that a misspelt topic is an error.",
    )
    enable_metrics_push: bool = option(
        Flag(),
        "enable_metrics_push",
        True,
        """Push metrics to brokers that request them (KIP-714). In an admin client the default is
        False.""",
        when="To False if the operators of the cluster must not see metrics of clients.",
    )
    client_rack: str | None = option(
        Text(optional=True),
        "client_rack",
        None,
        """Rack of the client. A consumer fetches from a replica in this rack (KIP-392, Kafka 2.4),
        and the group's assignor may prefer partitions with a replica in it. A producer uses it with
        partitioner_rack_aware. Other clients do not use it.""",
        when="If brokers have racks: the zone of the client reduces traffic between zones.",
    )
    dialer: Callable[..., Any] | None = option(
        Function(),
        "dialer",
        None,
        """Function or coroutine function that gets a BrokerAddress before each connect, and returns
        another address to connect to, a connected socket, a Dialed, or None for the address as it
        is. TLS checks the advertised host name.""",
        annotation="Dialer | None",
        java="",
        when="""If brokers cannot be reached at the addresses that they advertise: SSH tunnels,
        forwarded ports, Docker.""",
    )
    proxy_url: ProxyUrl | None = option(
        ProxyUrlText(),
        "proxy_url",
        None,
        """Proxy for all connections: socks5://host:port, socks4://host:port or http://host:port
        (HTTP CONNECT), with user:password@ before the host if the proxy needs it. The proxy
        resolves the names of brokers.""",
        repr=False,
        java="",
        when="If brokers can be reached through a proxy only.",
    )
    broker_address_family: str = option(
        Choice(("any", "v4", "v6")),
        "broker_address_family",
        "any",
        "IP version of the addresses to which host names are resolved.",
        java="",
        when="If one IP version does not work, as is often the case with IPv6 in containers.",
    )
    send_buffer_bytes: int | None = option(
        Number(1, optional=True),
        "send_buffer_bytes",
        None,
        "Size of the system's send buffer of a connection (SO_SNDBUF); None: the system adapts it.",
        java="send.buffer.bytes",
        when="Larger over fast links with a long delay, if the system does not adapt it.",
    )
    receive_buffer_bytes: int | None = option(
        Number(1, optional=True),
        "receive_buffer_bytes",
        None,
        """Size of the system's receive buffer of a connection (SO_RCVBUF); None: the system adapts
        it.""",
        java="receive.buffer.bytes",
        when="Larger over fast links with a long delay, if the system does not adapt it.",
    )
    socket_options: tuple[tuple[int, int, int | bytes], ...] = option(
        SocketOptions(),
        "socket_options",
        (),
        """Options of sockets as (level, option, value), as setsockopt takes them. Connections have
        TCP_NODELAY and SO_KEEPALIVE anyway.""",
        java="",
        when="""To probe idle connections sooner than after two hours: TCP_KEEPIDLE,
        TCP_KEEPINTVL, TCP_USER_TIMEOUT.""",
    )
    security: SecurityConfig = nested(SecurityConfig)

    bootstrap_source: Callable[[], Any] | None = None
    """The function given as `bootstrap_servers`; then the field `bootstrap_servers` is empty."""

    applied_defaults: tuple[str, ...] = ()
    """Texts that name the options from defaults of the process, with their sources."""

    def note_defaults(self, applied: tuple[str, ...]) -> None:
        """Set `applied_defaults`. Called by the constructor of a client."""
        self.__dict__["applied_defaults"] = applied

    @property
    def is_for_controllers(self) -> bool:
        """Whether the client connects to controllers, not to brokers; see `AdminConfig`."""
        return False

    def __post_init__(self) -> None:
        if callable(self.bootstrap_servers):
            # Through `__dict__`, because `__setattr__` raises.
            self.__dict__["bootstrap_source"] = self.bootstrap_servers
            self.__dict__["bootstrap_servers"] = ()
        _at_least(self, "retry_backoff_max", "retry_backoff")
        _at_least(self, "reconnect_backoff_max", "reconnect_backoff")
        _at_least(self, "connection_setup_timeout_max", "connection_setup_timeout")

    def introduction(self, **names: str | None) -> dict[str, Any]:
        """Return the argument of an interceptor's `configure`: the client id, the bootstrap
        servers, and `names`, such as the `group_id` of a consumer."""
        return {
            "client_id": self.client_id,
            "bootstrap_servers": list(self.bootstrap_servers),
            **names,
        }

    @classmethod
    def from_options(cls, **options: Any) -> Self:
        """Return the configuration from the keywords of this class and of `SecurityConfig`.

        `client_id=None` stands for the default.
        """
        if "client_id" in options and options["client_id"] is None:
            del options["client_id"]
        keywords = SecurityConfig.keywords()
        security = {name: options.pop(name) for name in keywords & options.keys()}
        if security:
            options["security"] = SecurityConfig.from_options(**security)
        return super().from_options(**options)


def _at_least(config: Any, larger: str, smaller: str) -> None:
    # The backoff or timeout grows from `smaller` up to `larger`. A user who sets only `smaller` may
    # exceed the default of `larger`. This is no error: increase `larger` to `smaller`.
    if getattr(config, larger) < getattr(config, smaller):
        object.__setattr__(config, larger, getattr(config, smaller))


# -- Keywords of older versions of aiokafka that have no effect any more


_IGNORED = {
    "loop": "the running event loop is used",
    "api_version": "versions are negotiated with every broker",
    "send_backoff_ms": "see linger_ms and retry_backoff_ms",
}

# The first words of a warning, as in aiokafka 0.14: applications may filter warnings by them.
_OPENINGS = {
    "api_version": "The `api_version` parameter has been deprecated since 0.13.0. "
    "It is now a no-op and will be removed in a future release. Here "
}


def warn_ignored(stacklevel: int = 3, **given: object) -> None:
    """Emit a DeprecationWarning for each keyword in `given`, because it has no effect any more.

    The former defaults, None and `api_version="auto"`, cause no warning.
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
