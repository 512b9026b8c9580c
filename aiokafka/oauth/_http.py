"""One POST to a token endpoint, by the package httpx.

Redirects are not followed, and responses are bounded. httpx takes care of proxies, timeouts, TLS
and incomplete responses. Which proxy to use is decided here.
"""

from __future__ import annotations

import ipaddress
import ssl
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiokafka._version import __version__
from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    KafkaConnectionError,
    KafkaError,
)

if TYPE_CHECKING:
    import httpx

__all__ = ["Answer", "TokenEndpoint", "need_httpx", "parse_url", "post"]

# A token takes a few kilobytes.
_MAX_BODY = 256 * 1024


@dataclass(frozen=True)
class TokenEndpoint:
    """An endpoint that issues tokens."""

    url: str
    """Without a query, for messages."""

    host: str
    query: str

    context: ssl.SSLContext | None
    """How to verify it; None for the system's authorities."""

    connect_timeout: float
    read_timeout: float

    @property
    def full_url(self) -> str:
        """The address with its query."""
        return f"{self.url}?{self.query}" if self.query else self.url

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
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
            "token_endpoint_url: http would expose the secrets on the way; use https, "
            "or allow_http=True where something else protects the connection"
        )
    return parts


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Answer:
    """An HTTP response; the body is bounded."""

    status: int
    body: bytes
    location: str = ""


def need_httpx() -> None:
    """Raise AuthenticationMethodNotSupported, saying what to install, if httpx is not there."""
    try:
        import httpx  # noqa: F401
    except ImportError as error:
        raise AuthenticationMethodNotSupported(
            'asking an identity provider needs the package httpx: pip install "aiokafka[oauth]"'
        ) from error


async def post(endpoint: TokenEndpoint, headers: Mapping[str, str], body: bytes) -> Answer:
    """Send a form; return the response, whatever its status.

    Raises KafkaConnectionError when there is none, or only a part of it, and
    AuthenticationFailedError when the server's certificate is refused. Redirects are not followed:
    the form holds secrets.
    """
    import httpx

    try:
        async with _client(endpoint) as client:
            question = client.stream("POST", endpoint.full_url, headers=headers, content=body)
            async with question as response:
                content = await _bounded(response)
                return Answer(response.status_code, content, response.headers.get("Location", ""))
    except httpx.TimeoutException as error:
        raise KafkaConnectionError(f"{endpoint.url}: no response in time") from error
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, ImportError) as error:
        raise _explained(endpoint, error) from error


def _client(endpoint: TokenEndpoint) -> httpx.AsyncClient:
    import httpx

    context = endpoint.context or ssl.create_default_context()
    address = _proxy(endpoint)
    proxy = None
    if address is not None:
        own = context if address.startswith("https:") else None
        proxy = httpx.Proxy(address, ssl_context=own)
    return httpx.AsyncClient(
        verify=context,
        proxy=proxy,
        # Anything else in the environment, such as a .netrc, is not for us.
        trust_env=False,
        follow_redirects=False,
        timeout=httpx.Timeout(endpoint.read_timeout, connect=endpoint.connect_timeout),
        headers={"User-Agent": f"aiokafka/{__version__}", "Accept-Encoding": "identity"},
    )


async def _bounded(response: httpx.Response) -> bytes:
    content = b""
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) > _MAX_BODY:
            raise ValueError(f"a response of more than {_MAX_BODY} bytes")
    return content


def _proxy(endpoint: TokenEndpoint) -> str | None:
    """Return the proxy that the environment names for the endpoint (HTTPS_PROXY, NO_PROXY ...).

    None for this machine: http is allowed to it because it stays on it, and a proxy is elsewhere.
    """
    if _is_loopback(endpoint.host):
        return None
    found = urllib.request.getproxies().get("https" if endpoint.uses_tls else "http")
    if not found or urllib.request.proxy_bypass(endpoint.host):
        return None
    return found if "://" in found else f"http://{found}"


def _explained(endpoint: TokenEndpoint, error: Exception) -> KafkaError:
    innermost: BaseException = error
    while innermost.__cause__ is not None or innermost.__context__ is not None:
        innermost = innermost.__cause__ or innermost.__context__ or innermost
        if isinstance(innermost, ssl.SSLCertVerificationError):
            return AuthenticationFailedError(
                f"{endpoint.url}: the certificate was refused: {innermost.verify_message}; "
                "ssl_context takes the authority to trust"
            )
    reason = innermost if isinstance(innermost, OSError) else error
    text = str(reason) or "closed the connection"
    return KafkaConnectionError(f"{endpoint.url}: {type(reason).__name__}: {text[:200]}")
