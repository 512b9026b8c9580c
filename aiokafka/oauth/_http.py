"""One POST to a token endpoint: the standard library's client, in a thread of the executor.

A token is fetched a few times an hour, so an asynchronous HTTP client would be a dependency to keep
secure, and nothing gained. Cancelling closes the socket, which ends the thread.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import ipaddress
import socket
import ssl
import threading
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError

__all__ = ["Answer", "Endpoint", "Post", "post"]

# A token takes a few kilobytes.
_MAX_BODY = 256 * 1024


@dataclass(frozen=True)
class Endpoint:
    """Where tokens are given out."""

    url: str
    """Without a query, for messages."""

    host: str
    port: int
    path: str
    query: str

    context: ssl.SSLContext | None
    """How to verify it, None for the system's authorities."""

    connect_timeout: float
    read_timeout: float

    @property
    def target(self) -> str:
        """What to ask the server for."""
        return self.path + self._question

    @property
    def absolute(self) -> str:
        """What to ask a proxy for."""
        return self.url + self._question

    @property
    def _question(self) -> str:
        return f"?{self.query}" if self.query else ""

    @property
    def uses_tls(self) -> bool:
        """Whether the way there is encrypted."""
        return self.url.startswith("https")


def parse_url(url: str, *, allow_http: bool) -> urllib.parse.SplitResult:
    """Check a URL for tokens: https, or http where that is allowed, and on this machine.

    Raises ValueError.
    """
    if not isinstance(url, str):
        raise TypeError("token_endpoint_url: must be a string")
    parts = urllib.parse.urlsplit(url)
    parts.port  # noqa: B018  (raises ValueError for one that is none)
    if parts.scheme not in ("https", "http") or not parts.hostname:
        raise ValueError("token_endpoint_url: must be https://host[:port]/path")
    if parts.username is not None or parts.fragment or not url.isascii() or not url.isprintable():
        raise ValueError(
            "token_endpoint_url: must have no user name, no fragment and only ASCII characters"
        )
    if " " in url:
        raise ValueError("token_endpoint_url: must have no spaces")
    if parts.scheme == "http" and not allow_http and not _is_loopback(parts.hostname):
        raise ValueError(
            "token_endpoint_url: http would show the secrets to everybody on the way; use https, "
            "or allow_http=True where something else protects the way"
        )
    return parts


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Answer:
    """What came back; the body is bounded."""

    status: int
    body: bytes
    location: str = ""


async def post(endpoint: Endpoint, headers: Mapping[str, str], body: bytes) -> Answer:
    """Send a form; return the answer, whatever its status.

    Raises KafkaConnectionError when there is none, AuthenticationFailedError when the server's
    certificate is refused. Redirects are not followed: the form holds secrets.
    """
    request = Post(endpoint, headers, body)
    future = asyncio.get_running_loop().run_in_executor(None, request.run)
    try:
        return await future
    finally:
        if not future.done() or future.cancelled():
            request.abort()


class Post:
    """One request. `run` blocks its thread; `abort`, from another one, ends that soon."""

    def __init__(self, endpoint: Endpoint, headers: Mapping[str, str], body: bytes) -> None:
        self._endpoint = endpoint
        self._headers = headers
        self._body = body
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_aborted = False

    def run(self) -> Answer:
        """See `post`."""
        url = self._endpoint.url
        try:
            return self._exchange()
        except ssl.SSLCertVerificationError as error:
            raise AuthenticationFailedError(
                f"{url}: the certificate was refused: {error.verify_message}; ssl_context takes "
                "the authority to trust"
            ) from error
        except TimeoutError as error:
            raise KafkaConnectionError(f"{url}: no answer in time") from error
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            text = str(error) or "closed the connection"
            raise KafkaConnectionError(f"{url}: {type(error).__name__}: {text[:200]}") from error

    def abort(self) -> None:
        """End it; `run` raises KafkaConnectionError."""
        with self._lock:
            self._is_aborted = True
            if self._socket is not None:
                # Not SSLSocket.shutdown, which takes away what the other thread reads from.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def _exchange(self) -> Answer:
        endpoint = self._endpoint
        connection, target, headers = self._connection()
        try:
            connection.connect()
            self._adopt(connection.sock)
            connection.sock.settimeout(endpoint.read_timeout)
            connection.request("POST", target, body=self._body, headers=headers)
            # It holds the socket, also when the connection is closed.
            with contextlib.closing(connection.getresponse()) as response:
                content = response.read(_MAX_BODY + 1)
                if len(content) > _MAX_BODY:
                    raise http.client.HTTPException(f"an answer of more than {_MAX_BODY} bytes")
                return Answer(response.status, content, response.getheader("Location") or "")
        finally:
            with self._lock:
                self._socket = None
            connection.close()

    def _adopt(self, sock: socket.socket) -> None:
        with self._lock:
            if self._is_aborted:
                raise http.client.HTTPException("nobody waits for the answer any more")
            self._socket = sock

    def _connection(self) -> tuple[http.client.HTTPConnection, str, dict[str, str]]:
        """A connection, not yet open, with what to ask for: directly or through a proxy."""
        endpoint = self._endpoint
        headers = dict(self._headers)
        proxy = self._proxy()
        host, port = (endpoint.host, endpoint.port)
        credentials: dict[str, str] = {}
        if proxy is not None:
            host, port = proxy.hostname or "", proxy.port or 8080
            credentials = _proxy_credentials(proxy)
        if not endpoint.uses_tls:
            plain = http.client.HTTPConnection(host, port, timeout=endpoint.connect_timeout)
            target = endpoint.target if proxy is None else endpoint.absolute
            return plain, target, headers | credentials
        context = endpoint.context or ssl.create_default_context()
        connection = http.client.HTTPSConnection(
            host, port, timeout=endpoint.connect_timeout, context=context
        )
        if proxy is not None:
            connection.set_tunnel(endpoint.host, endpoint.port, headers=credentials)
        return connection, endpoint.target, headers

    def _proxy(self) -> urllib.parse.SplitResult | None:
        """The proxy that the environment names for the endpoint (HTTPS_PROXY, NO_PROXY ...)."""
        scheme = "https" if self._endpoint.uses_tls else "http"
        found = urllib.request.getproxies().get(scheme)
        if not found or urllib.request.proxy_bypass(self._endpoint.host):
            return None
        return urllib.parse.urlsplit(found if "://" in found else f"http://{found}")


def _proxy_credentials(proxy: urllib.parse.SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    user = urllib.parse.unquote(proxy.username)
    password = urllib.parse.unquote(proxy.password or "")
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Proxy-Authorization": f"Basic {encoded}"}
