"""Routes to a broker: resolve its name, call the application's dialer, connect through a proxy."""

from __future__ import annotations

import asyncio
import inspect
import re
import socket
from base64 import b64encode
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from aiokafka._compat import timeout_at
from aiokafka._subject import Subject
from aiokafka._tasks import is_task_cancelled, together
from aiokafka.errors import KafkaConnectionError
from aiokafka.net.failures import connect_failure, sanitized
from aiokafka.structs import BrokerAddress, Dialed

if TYPE_CHECKING:
    import ssl

    from aiokafka._config import ClientConfig
    from aiokafka._config.client import ProxyUrl

__all__ = [
    "Route",
    "call_function",
    "canonical",
    "format_address",
    "is_address",
    "resolve",
    "routes_to",
]

P = TypeVar("P", bound=asyncio.BaseProtocol)

Broker = tuple[str, int, "int | None"]
"""The host, port and node id of a broker, as in BrokerAddress."""


# -- Addresses


# Longest host name in characters; resolvers refuse longer names.
_LONGEST_NAME = 255

# The address families of `broker_address_family`.
_FAMILIES = {"any": socket.AF_UNSPEC, "v4": socket.AF_INET, "v6": socket.AF_INET6}


def format_address(host: str, port: int) -> str:
    """Return `host:port`, with IPv6 hosts in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_address(host: str, port: int) -> bool:
    """Return whether an address in a response is valid.

    In a metadata response, a broker that is shutting down may have an empty address.
    """
    return 0 < len(host) <= _LONGEST_NAME and host.isprintable() and 0 < port < 65536


async def resolve(host: str, port: int, family: str = "any") -> list[str]:
    """Return the distinct IP addresses of `host` (KIP-302), in the resolver's order. `family` is
    "v4", "v6", or "any" for both. `host` may be an IP address itself.

    Raises OSError (socket.gaierror) when the name is unknown or has no such address.
    """
    if _is_ip_address(host):
        return [host]
    infos = await asyncio.get_running_loop().getaddrinfo(
        host, port, family=_FAMILIES[family], type=socket.SOCK_STREAM
    )
    addresses = list(dict.fromkeys(_ip_of(info[4]) for info in infos))
    if not addresses:
        raise socket.gaierror(socket.EAI_NONAME, "no address for this name")
    return addresses


def _ip_of(sockaddr: tuple[Any, ...]) -> str:
    """Return the IP address in a socket address; a link-local IPv6 address with its zone."""
    zone = sockaddr[3] if len(sockaddr) == 4 else 0
    return f"{sockaddr[0]}%{zone}" if zone and "%" not in str(sockaddr[0]) else str(sockaddr[0])


async def canonical(
    servers: Iterable[tuple[str, int]], deadline: float
) -> tuple[tuple[str, int], ...]:
    """Return the distinct canonical names of all addresses of all servers (KIP-235).

    A server whose name cannot be resolved before `deadline` (loop time) is returned unchanged.
    """

    async def names_of(host: str, port: int) -> list[tuple[str, int]]:
        try:
            async with timeout_at(deadline):
                return [(await _name_of(ip, port), port) for ip in await resolve(host, port)]
        except (asyncio.TimeoutError, OSError, UnicodeError):
            return [(host, port)]

    # Resolve the names concurrently: otherwise one slow name could use up the time of all.
    found = await together(names_of(*server) for server in servers)
    return tuple(dict.fromkeys(name for names in found for name in names))


async def _name_of(address: str, port: int) -> str:
    flags = socket.NI_NAMEREQD | socket.NI_NUMERICSERV
    name, _ = await asyncio.get_running_loop().getnameinfo((address, port), flags)
    return name


def _is_ip_address(host: str) -> bool:
    """Return whether `host` is an IP address: then no thread is needed to resolve it."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return True
    return False


# -- Functions of the application


async def call_function(
    function: Callable[..., Any], what: str, deadline: float, *arguments: object
) -> Any:
    """Return the result of an application's function, awaited if it is awaitable.

    `what` names the function in error texts. Raises KafkaConnectionError if the function fails, or
    if its result is not available at `deadline` (loop time).
    """
    try:
        result = function(*arguments)
        if inspect.isawaitable(result):
            async with timeout_at(deadline):
                result = await result
    except asyncio.CancelledError as error:
        if is_task_cancelled():
            raise
        raise KafkaConnectionError(f"{what} awaited a cancelled task or future") from error
    except Exception as error:
        is_late = asyncio.get_running_loop().time() >= deadline
        if is_late and isinstance(error, asyncio.TimeoutError):
            raise KafkaConnectionError(f"{what} did not return in time") from None
        # An OSError may come from files that are being replaced, or from the network. The texts of
        # other errors may contain secrets.
        reason = str(error) if isinstance(error, OSError) else type(error).__name__
        raise KafkaConnectionError(f"{what} failed: {reason}") from error
    return result


async def _ask_dialer(
    dialer: Callable[..., Any], broker: Broker, peer: str, deadline: float
) -> Dialed:
    """Call the application's dialer, check its result, and return it as a Dialed. An address in the
    result is converted to (host, port).

    Raises KafkaConnectionError if the dialer fails, is late, or returns an invalid result.
    """
    try:
        result = await call_function(dialer, "the dialer", deadline, BrokerAddress(*broker))
    except KafkaConnectionError as error:
        raise KafkaConnectionError(f"{peer}: {error.args[0]}") from error.__cause__
    dialed = result if isinstance(result, Dialed) else Dialed(result)
    try:
        return Dialed(_checked(dialed.to), dialed.server_hostname)
    except (TypeError, ValueError) as error:
        if isinstance(dialed.to, socket.socket):
            dialed.to.close()
        raise KafkaConnectionError(f"{peer}: the dialer returned {error}") from error


def _checked(to: Any) -> Any:
    from aiokafka._config.client import parse_address

    if to is None:
        return None
    if isinstance(to, str):
        try:
            return parse_address(to)
        except ValueError as error:
            raise ValueError(f"no address: {error}") from None
    if isinstance(to, socket.socket):
        if to.type != socket.SOCK_STREAM:
            raise ValueError(f"a socket of another type than SOCK_STREAM: {to.type!r}")
        try:
            to.getpeername()
        except OSError as error:
            raise ValueError(f"a socket that is not connected ({error})") from None
        return to
    if isinstance(to, tuple) and len(to) == 2 and isinstance(to[0], str):
        host, port = to
        if isinstance(port, int) and not isinstance(port, bool) and is_address(host, port):
            return to
    raise TypeError(
        f"{sanitized(repr(to))}; it must return an address as (host, port) or a str, a connected "
        "socket, a Dialed, or None"
    )


# -- Routes


class Route:
    """One way to a broker: an IP address, an address for the proxy, or a socket of the dialer.

    Owns the socket until `connect` has created a transport for it.
    """

    __slots__ = ("_address", "_broker", "_config", "_proxy_ip", "_server_hostname", "_sock", "peer")

    def __init__(
        self,
        config: ClientConfig,
        broker: Broker,
        peer: str,
        address: tuple[str, int] | None,
        server_hostname: str | None = None,
        sock: socket.socket | None = None,
        proxy_ip: str | None = None,
    ) -> None:
        """`peer` names broker and route in messages; `address` is None if there is a `sock`. With a
        proxy, `address` is the proxy's destination, and `proxy_ip` an IP address of the proxy."""
        self.peer = peer
        self._config = config
        self._broker = broker
        self._address = address
        # Check the certificate for the advertised host: a tunnel has another name. Certificates
        # have names without the final dot.
        self._server_hostname = server_hostname or broker[0].removesuffix(".")
        self._sock = sock
        self._proxy_ip = proxy_ip

    def close(self) -> None:
        """Close the dialer's socket, unless `connect` has created a transport for it."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    async def connect(
        self, make: Callable[[], P], context: ssl.SSLContext | None, deadline: float
    ) -> P:
        """Open a TCP connection and, with `context`, TLS; return the protocol, created by `make`.

        Raises KafkaConnectionError or OSError; asyncio.TimeoutError at `deadline` (loop time).
        """
        create = asyncio.get_running_loop().create_connection
        name = None if context is None else self._checked_server_hostname()
        options = _options_of(self._config)
        async with timeout_at(deadline):
            if self._address is None or self._proxy_ip is not None or options:
                sock = await self._open_socket(options, deadline)
                transport, protocol = await _create_with(sock, make, context, name)
            else:
                host, port = self._address
                transport, protocol = await create(
                    make, host, port, ssl=context, server_hostname=name
                )
        wrapped = transport.get_extra_info("socket")
        if wrapped is not None:
            wrapped.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if wrapped is not None and options:
            try:
                # Set the options again after `_with_options`, because asyncio has set TCP_NODELAY
                # since. The socket of a dialer or SOCKS proxy gets the options only here.
                _set_options(wrapped, options, self.peer)
            except BaseException:
                transport.abort()
                raise
        return protocol

    def _checked_server_hostname(self) -> str:
        """Return the name that TLS checks. Raises KafkaConnectionError if it is not a valid host
        name.

        A resolver refuses invalid names, but with a dialer or a proxy no name is resolved here.
        Then `ssl` would raise UnicodeError, ValueError or TypeError, which callers do not treat as
        failures to connect.
        """
        name = self._server_hostname
        try:
            encoded = name.encode("idna")
        except UnicodeError as error:
            reason = str(error.__cause__ or error)
        else:
            if encoded and b"\0" not in encoded:
                return name
            reason = "it is empty, or has a zero byte"
        raise KafkaConnectionError(
            f"{self.peer}: no certificate can have the host name {sanitized(repr(name))}: {reason}"
        )

    async def _open_socket(self, options: _SocketOptions, deadline: float) -> socket.socket:
        """Return a connected socket: from the dialer, through the proxy, or with `options`."""
        if self._address is None:
            return await self._take_socket(deadline)
        if self._proxy_ip is not None:
            return await _through_proxy(
                self._config, self._proxy_ip, self._address, self.peer, deadline
            )
        return await _with_options(options, self._address, self.peer)

    async def _take_socket(self, deadline: float) -> socket.socket:
        """Return the dialer's socket. For a second connection of the route, request another socket
        from the dialer: a connector may try an older version of ApiVersions, or test for Kafka 0.9.
        """
        sock, self._sock = self._sock, None
        if sock is not None:
            return sock
        assert self._config.dialer is not None
        dialed = await _ask_dialer(self._config.dialer, self._broker, self.peer, deadline)
        if isinstance(dialed.to, socket.socket):
            return dialed.to
        raise KafkaConnectionError(
            f"{self.peer}: the dialer returned a socket for one connection to the broker, but none "
            "for the next one"
        )


async def routes_to(
    config: ClientConfig, broker: Broker, peer: Subject, deadline: float
) -> list[Route]:
    """Return the routes to a broker, to be tried in this order; the caller closes each.

    Calls the dialer, then resolves the host name. With a proxy, resolves only the name of the
    proxy, because the proxy resolves the names of brokers. `peer` names the broker in messages.
    Raises KafkaConnectionError, at the latest at `deadline` (loop time).
    """
    host, port, _ = broker
    name = None
    if config.dialer is not None:
        dialed = await _ask_dialer(config.dialer, broker, peer, deadline)
        name = dialed.server_hostname
        if isinstance(dialed.to, socket.socket):
            peer = Subject(f"{peer} on a socket of the dialer", **peer.fields)
            return [Route(config, broker, peer, None, name, dialed.to)]
        if isinstance(dialed.to, tuple):
            host, port = dialed.to
            peer = Subject(f"{peer} dialed at {format_address(host, port)}", **peer.fields)
    if config.proxy_url is not None:
        address = (host, port)
        host, port = config.proxy_url.address
        peer = Subject(f"{peer} by the proxy {format_address(host, port)}", **peer.fields)
        what = f"{peer}: no connection to the proxy"
        return [
            Route(config, broker, _peer_at(ip, host, peer), address, name, proxy_ip=ip)
            for ip in await _resolve_in_time(config, host, port, what, deadline)
        ]
    return [
        Route(config, broker, _peer_at(ip, host, peer), (ip, port), name)
        for ip in await _resolve_in_time(config, host, port, peer, deadline)
    ]


def _peer_at(ip: str, host: str, peer: Subject) -> Subject:
    return peer if ip == host else Subject(f"{peer} at {ip}", **peer.fields)


async def _resolve_in_time(
    config: ClientConfig, host: str, port: int, peer: str, deadline: float
) -> list[str]:
    try:
        async with timeout_at(deadline):
            return await resolve(host, port, config.broker_address_family)
    except asyncio.TimeoutError:
        text = f"{peer}: the host name could not be resolved in time"
        raise KafkaConnectionError(text) from None
    except (OSError, ValueError) as error:
        # ValueError: the host name is invalid, for example because of a zero byte.
        raise connect_failure(error, peer, uses_tls=False) from error


# -- Sockets


_SocketOptions = tuple[tuple[int, int, "int | bytes"], ...]


def _options_of(config: ClientConfig) -> _SocketOptions:
    """Return the configured options of sockets; empty if none is configured."""
    found = config.socket_options
    if config.receive_buffer_bytes is not None:
        found = (socket.SOL_SOCKET, socket.SO_RCVBUF, config.receive_buffer_bytes), *found
    if config.send_buffer_bytes is not None:
        found = (socket.SOL_SOCKET, socket.SO_SNDBUF, config.send_buffer_bytes), *found
    return found


def _set_options(sock: Any, options: _SocketOptions, peer: str) -> None:
    for option in options:
        try:
            sock.setsockopt(*option)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise KafkaConnectionError(
                f"{peer}: the system refuses the socket option {option!r}: {reason}"
            ) from error


async def _create_with(
    sock: socket.socket, make: Callable[[], P], context: ssl.SSLContext | None, name: str | None
) -> tuple[asyncio.Transport, P]:
    """Create a transport for a connected socket. Close the socket if that fails. `name` is the host
    name that TLS checks."""
    made: list[P] = []

    def make_once() -> P:
        made.append(make())
        return made[0]

    try:
        return await asyncio.get_running_loop().create_connection(
            make_once, sock=sock, ssl=context, server_hostname=name
        )
    except BaseException:
        # Once the protocol is made, a transport owns the socket, and closes it.
        if not made:
            sock.close()
        raise


async def _with_options(
    options: _SocketOptions, address: tuple[str, int], peer: str
) -> socket.socket:
    """Return a socket that is connected to an IP address. Its `options` are set before the connect:
    only then TCP offers a window scale for the size of the receive buffer."""
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV
    # No name is resolved here, so the call does not block.
    found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM, flags=flags)
    family, kind, protocol, _, sockaddr = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setblocking(False)
        _set_options(sock, options, peer)
        await asyncio.get_running_loop().sock_connect(sock, sockaddr)
    except BaseException:
        sock.close()
        raise
    return sock


# -- Proxies

# Largest size in bytes of an HTTP proxy's response.
_LONGEST_HEAD = 64 * 1024

_STATUS_LINE = re.compile(rb"HTTP/1\.[01] +([0-9]{3})(?: ([^\r\n]*))?\r\n")


async def _through_proxy(
    config: ClientConfig, proxy_ip: str, address: tuple[str, int], peer: str, deadline: float
) -> socket.socket:
    """Return a socket that the proxy at `proxy_ip` has connected to `address`, whose name the proxy
    resolves.

    Raises KafkaConnectionError. The caller's deadline ends the call.
    """
    proxy = config.proxy_url
    assert proxy is not None
    try:
        if proxy.scheme != "http":
            return await _through_socks(proxy, proxy_ip, address, peer, deadline)
        sock = await _with_options(_options_of(config), (proxy_ip, proxy.address[1]), peer)
    except OSError as error:
        text = error.strerror or sanitized(str(error))
        raise KafkaConnectionError(f"{peer}: no connection to the proxy: {text}") from error
    try:
        await _ask_http_proxy(sock, proxy, address)
    except OSError as error:
        sock.close()
        text = error.strerror or sanitized(str(error))
        raise KafkaConnectionError(f"{peer}: the proxy did not connect: {text}") from error
    except BaseException:
        sock.close()
        raise
    return sock


async def _ask_http_proxy(sock: socket.socket, proxy: ProxyUrl, address: tuple[str, int]) -> None:
    """Send CONNECT (RFC 9110, 9.3.6) and read the whole response. Raises OSError, whose text says
    why the proxy does not connect.

    python-socks also supports HTTP proxies, but treats the first bytes that arrive as the whole
    response. If the response arrives in two parts, the second part would be read as a response of
    the broker.
    """
    loop = asyncio.get_running_loop()
    target = format_address(*address)
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if proxy.login:
        lines.append(f"Proxy-Authorization: Basic {b64encode(proxy.login.encode()).decode()}")
    await loop.sock_sendall(sock, "\r\n".join([*lines, "", ""]).encode())
    head = b""
    while b"\r\n\r\n" not in head:
        data = await loop.sock_recv(sock, 4096)
        if not data:
            raise ConnectionError("it closed the connection before the end of its response")
        head += data
        if len(head) > _LONGEST_HEAD:
            raise ConnectionError(f"its response has more than {_LONGEST_HEAD} bytes")
    status = _STATUS_LINE.match(head)
    if status is None:
        raise ConnectionError("its response is not HTTP")
    if not status[1].startswith(b"2"):
        reason = (status[2] or b"").decode("latin-1")
        raise ConnectionError(f"{status[1].decode()} {reason}".rstrip())
    if not head.endswith(b"\r\n\r\n"):
        # A broker sends nothing before the client's first request.
        raise ConnectionError("it sent bytes after its response")


async def _through_socks(
    proxy: ProxyUrl, proxy_ip: str, address: tuple[str, int], peer: str, deadline: float
) -> socket.socket:
    """Return a socket that the proxy has connected. Raises KafkaConnectionError, and OSError if
    there is no connection to the proxy."""
    from python_socks import ProxyConnectionError
    from python_socks.async_.asyncio import Proxy

    loop = asyncio.get_running_loop()
    # The deadline of the caller ends the call. The library's own timeout (by default 60 s) must not
    # end it earlier.
    longest = max(0.0, deadline - loop.time()) + 1.0
    try:
        connecting = Proxy.from_url(proxy.url_at(proxy_ip), rdns=True, loop=loop).connect(
            *address, timeout=longest
        )
        sock: socket.socket = await connecting
        return sock
    except ProxyConnectionError as error:
        raise error.__cause__ if isinstance(error.__cause__, OSError) else error from None
    except Exception as error:
        # If the proxy sends garbage, the library raises errors of many classes.
        text = sanitized(str(error)) or type(error).__name__
        raise KafkaConnectionError(f"{peer}: the proxy did not connect: {text}") from error
