"""Tokens from an identity provider: the client credentials and JWT bearer grants of OAuth 2."""

from __future__ import annotations

import abc
import asyncio
import base64
import inspect
import ipaddress
import json
import re
import ssl
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiokafka import _clock
from aiokafka._version import __version__
from aiokafka.errors import (
    AuthenticationFailedError,
    AuthenticationMethodNotSupported,
    KafkaConnectionError,
    KafkaError,
)
from aiokafka.oauth._file import Assertion
from aiokafka.oauth._tokens import CachedTokenProvider, Token, expiry_of, text

if TYPE_CHECKING:
    import httpx

__all__ = [
    "ClientCredentialsTokenProvider",
    "HttpResponse",
    "JwtBearerTokenProvider",
    "TokenEndpoint",
    "get",
    "need_httpx",
    "parse_url",
    "post",
    "refusal",
    "token_of",
]


# -- A request to a token endpoint, by the package httpx

# Redirects are not followed, and the size of responses is limited. httpx implements proxies,
# timeouts and TLS, and detects incomplete responses. `_proxy` chooses the proxy.


# A larger response, in bytes, is an error, so that memory is limited. A response with a token has a
# few kilobytes.
_MAX_BODY = 256 * 1024


@dataclass(frozen=True)
class TokenEndpoint:
    """The URL, TLS settings and timeouts (seconds) of a token endpoint."""

    url: str
    """The URL without its query, for error texts."""

    host: str
    query: str

    context: ssl.SSLContext | None
    """Verifies the certificate of the endpoint; None: trust the authorities of the system."""

    connect_timeout: float
    read_timeout: float

    uses_proxy: bool = True
    """Whether to use the proxy of the environment."""

    @property
    def full_url(self) -> str:
        """The URL with its query, for requests."""
        return f"{self.url}?{self.query}" if self.query else self.url

    @property
    def uses_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.url.startswith("https")


def parse_url(url: str, *, allow_http: bool) -> urllib.parse.SplitResult:
    """Parse the URL of a token endpoint. Raises TypeError or ValueError if it cannot be used.

    The scheme must be https. With `allow_http`, or for an endpoint on this machine, http is
    accepted as well.
    """
    if not isinstance(url, str):
        raise TypeError("token_endpoint_url: must be a string")
    parts = urllib.parse.urlsplit(url)
    parts.port  # noqa: B018  (raises ValueError for a malformed port)
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
class HttpResponse:
    """An HTTP response. The body has at most `_MAX_BODY` bytes."""

    status: int
    body: bytes
    location: str = ""


def need_httpx() -> None:
    """Raise AuthenticationMethodNotSupported if httpx is not installed."""
    try:
        import httpx  # noqa: F401
    except ImportError as error:
        raise AuthenticationMethodNotSupported(
            'asking an identity provider needs the package httpx: pip install "aiokafka[oauth]"'
        ) from error


async def post(endpoint: TokenEndpoint, headers: Mapping[str, str], body: bytes) -> HttpResponse:
    """Send a form by a POST request, and return the response, whatever its status.

    Raises KafkaConnectionError if there is no complete response, and AuthenticationFailedError if
    the certificate of the server is not trusted. Redirects are not followed, because the form
    contains secrets.
    """
    return await _exchange("POST", endpoint, headers, body)


async def get(endpoint: TokenEndpoint, headers: Mapping[str, str]) -> HttpResponse:
    """Send a GET request, and return the response, whatever its status. Raises the same errors as
    `post`, and follows no redirects either."""
    return await _exchange("GET", endpoint, headers, None)


async def _exchange(
    method: str, endpoint: TokenEndpoint, headers: Mapping[str, str], body: bytes | None
) -> HttpResponse:
    import httpx

    try:
        async with _client(endpoint) as client:
            question = client.stream(method, endpoint.full_url, headers=headers, content=body)
            async with question as response:
                content = await _bounded(response)
                return HttpResponse(
                    response.status_code, content, response.headers.get("Location", "")
                )
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
        # Do not send credentials from the environment, such as those in .netrc.
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
    """Return the proxy for the endpoint from the environment (HTTPS_PROXY, NO_PROXY ...), or None.

    Returns None for an endpoint on this machine: requests to it may be unencrypted (http), and must
    not be sent to a proxy.
    """
    if not endpoint.uses_proxy or _is_loopback(endpoint.host):
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
                "pass a context that trusts its authority as ssl_context"
            )
    reason = innermost if isinstance(innermost, OSError) else error
    text = str(reason) or "closed the connection"
    return KafkaConnectionError(f"{endpoint.url}: {type(reason).__name__}: {text[:200]}")


Secret = str | Callable[[], str | Awaitable[str]]

# HTTP error statuses below 500 that are retried, like all statuses from 500 on. Other error
# statuses are final. (The Java client does the same for the usual 4xx statuses; it retries statuses
# that it does not know.)
_RETRIABLE_STATUS = frozenset((408, 425, 429))
_MAX_REASON = 300


class _EndpointTokenProvider(CachedTokenProvider):
    """Base class of providers that request a token from a token endpoint by POST (RFC 6749)."""

    def __init__(
        self,
        token_endpoint_url: str,
        *,
        scope: str | None = None,
        parameters: Mapping[str, str] | None = None,
        extensions: Mapping[str, str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        allow_http: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(extensions=extensions, **options)
        parts = parse_url(token_endpoint_url, allow_http=allow_http)
        if ssl_context is not None and not isinstance(ssl_context, ssl.SSLContext):
            raise TypeError("ssl_context: must be an ssl.SSLContext or None")
        need_httpx()
        self._endpoint = TokenEndpoint(
            url=f"{parts.scheme}://{parts.netloc}{parts.path or '/'}",
            host=parts.hostname or "",
            query=parts.query,
            context=ssl_context,
            connect_timeout=self._config.connect_timeout,
            read_timeout=self._config.read_timeout,
        )
        if not isinstance(parameters, Mapping | None):
            raise TypeError(f"parameters: must be a dict, not {type(parameters).__name__}")
        self._parameters = dict(parameters or {})
        scope = text("scope", scope)
        if scope is not None:
            self._parameters["scope"] = scope

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._endpoint.url}>"

    async def fetch(self) -> Token:
        """Fetch a token by one request to the token endpoint.

        Raises KafkaConnectionError, which is retriable, for a failed connection or a retriable
        status; AuthenticationFailedError if the identity provider rejects the request.
        """
        form, headers, secrets = await self._request()
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
            "Cache-Control": "no-cache",
            **headers,
        }
        body = urllib.parse.urlencode({**self._parameters, **form}).encode()
        response = await post(self._endpoint, headers, body)
        return token_of(response, self._endpoint.url, secrets)

    @abc.abstractmethod
    async def _request(self) -> tuple[dict[str, str], dict[str, str], tuple[str, ...]]:
        """Return the fields of the form, the headers, and the secrets to replace in error texts."""


class ClientCredentialsTokenProvider(_EndpointTokenProvider):
    """Tokens for a client that is registered at an identity provider (KIP-768).

    The client authenticates by a secret or by an assertion (KIP-1258). A proxy is used if the
    environment has one (HTTPS_PROXY, NO_PROXY).

    Args:
        token_endpoint_url: the token endpoint of the identity provider; https, or http on this
            machine.
        client_id: the id of the client. With a secret, both are sent by HTTP Basic authentication;
            with an assertion, the id is in the form.
        client_secret: the secret, or a function or coroutine function that returns it. The function
            is called for every request.
        assertion: a `SignedAssertion`, a `FileAssertion`, or another object with the method
            `create`, instead of client_secret.
        header_urlencode: encode the id and the secret as RFC 6749 requires, which many identity
            providers do not expect (KIP-1025).
        scope: the scope to request.
        parameters: further fields of the form, such as an `audience`.
        extensions: the SASL extensions to send with the token (KIP-342).
        ssl_context: verifies the certificate of the endpoint; None: trust the authorities of the
            system.
        allow_http: allow http to other machines as well.
        options: the options of `OAuthConfig`.

    Raises TypeError or ValueError for wrong arguments, AuthenticationMethodNotSupported without
    httpx (the extra `oauth`).
    """

    def __init__(
        self,
        token_endpoint_url: str,
        *,
        client_id: str | None = None,
        client_secret: Secret | None = None,
        assertion: Assertion | None = None,
        header_urlencode: bool = False,
        scope: str | None = None,
        parameters: Mapping[str, str] | None = None,
        extensions: Mapping[str, str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        allow_http: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(
            token_endpoint_url,
            scope=scope,
            parameters=parameters,
            extensions=extensions,
            ssl_context=ssl_context,
            allow_http=allow_http,
            **options,
        )
        if (client_secret is None) == (assertion is None):
            raise ValueError("give either client_secret or assertion")
        if client_secret is not None and not client_id:
            raise ValueError("client_secret needs client_id")
        if client_secret is not None and not (
            isinstance(client_secret, str) or callable(client_secret)
        ):
            raise TypeError("client_secret: must be a string, or a function that returns one")
        if assertion is not None:
            _check(assertion)
        self._client_id = text("client_id", client_id)
        self._client_secret = client_secret
        self._assertion = assertion
        self._header_urlencode = header_urlencode

    async def _request(self) -> tuple[dict[str, str], dict[str, str], tuple[str, ...]]:
        form = {"grant_type": "client_credentials"}
        if self._assertion is None:
            secret = await self._secret()
            credentials, encoded = self._basic(secret)
            return form, credentials, (secret, encoded)
        assertion = await _create(self._assertion)
        form["client_assertion_type"] = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        form["client_assertion"] = assertion
        if self._client_id:
            form["client_id"] = self._client_id
        return form, {}, (assertion,)

    async def _secret(self) -> str:
        secret: Any = self._client_secret
        if callable(secret):
            secret = secret()
            if inspect.isawaitable(secret):
                secret = await secret
        if not isinstance(secret, str):
            raise AuthenticationFailedError("client_secret: the function did not return a string")
        return secret

    def _basic(self, secret: str) -> tuple[dict[str, str], str]:
        client_id = self._client_id or ""
        if self._header_urlencode:
            client_id = urllib.parse.quote_plus(client_id)
            secret = urllib.parse.quote_plus(secret)
        encoded = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
        return {"Authorization": f"Basic {encoded}"}, encoded


class JwtBearerTokenProvider(_EndpointTokenProvider):
    """Tokens in exchange for an assertion: the JWT bearer grant (KIP-1139, RFC 7523).

    Args:
        assertion: a `SignedAssertion`, a `FileAssertion`, or another object with the method
            `create`.

    The other arguments, and the errors, are those of `ClientCredentialsTokenProvider`.
    """

    def __init__(
        self,
        token_endpoint_url: str,
        *,
        assertion: Assertion,
        scope: str | None = None,
        parameters: Mapping[str, str] | None = None,
        extensions: Mapping[str, str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        allow_http: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(
            token_endpoint_url,
            scope=scope,
            parameters=parameters,
            extensions=extensions,
            ssl_context=ssl_context,
            allow_http=allow_http,
            **options,
        )
        _check(assertion)
        self._assertion = assertion

    async def _request(self) -> tuple[dict[str, str], dict[str, str], tuple[str, ...]]:
        assertion = await _create(self._assertion)
        grant = "urn:ietf:params:oauth:grant-type:jwt-bearer"
        return {"grant_type": grant, "assertion": assertion}, {}, (assertion,)


def _check(assertion: Assertion) -> None:
    if isinstance(assertion, type) or not callable(getattr(assertion, "create", None)):
        raise TypeError(
            "assertion: must be a SignedAssertion, a FileAssertion, or another object with "
            f"`create`, not {type(assertion).__name__}"
        )


async def _create(assertion: Assertion) -> str:
    return await asyncio.get_running_loop().run_in_executor(None, assertion.create)


# -- Responses


def token_of(response: HttpResponse, url: str, secrets: tuple[str, ...]) -> Token:
    if not 200 <= response.status < 300:
        raise refusal(response, url, secrets)
    fields = _json(response.body)
    if fields is None:
        # The response is not from the identity provider, but for example from a proxy, as HTML.
        raise KafkaConnectionError(f"{url}: HTTP {response.status}, but the response is not JSON")
    value = fields.get("access_token") or fields.get("id_token")
    if not isinstance(value, str):
        raise AuthenticationFailedError(f"{url}: the response has no access_token")
    return Token(value, _lifetime(fields.get("expires_in"), value))


def _lifetime(expires_in: Any, value: str) -> float | None:
    """Return the lifetime of a token in seconds; None if unknown.

    `expires_in` of the response is used, if it is valid. Otherwise the lifetime is computed from
    the expiry time in the token and the clock of this machine, which may be wrong.
    """
    if isinstance(expires_in, str) and re.fullmatch("[0-9]{1,10}", expires_in):
        expires_in = int(expires_in)
    is_number = isinstance(expires_in, (int, float)) and not isinstance(expires_in, bool)
    if is_number and 0 < expires_in < 10**10:
        return float(expires_in)
    expiry = expiry_of(value)
    return None if expiry is None else expiry - _clock.wall_time()


def refusal(response: HttpResponse, url: str, secrets: tuple[str, ...]) -> KafkaError:
    if 300 <= response.status < 400:
        where = _shown(response.location, secrets)
        return AuthenticationFailedError(
            f"{url}: redirects (HTTP {response.status}) to {where or 'nowhere'}, which is not "
            "followed; use the address of the token endpoint itself"
        )
    fields = _json(response.body) or {}
    reasons = (
        fields.get("error") or fields.get("errorCode"),
        fields.get("error_description") or fields.get("errorSummary"),
    )
    reason = ": ".join(_shown(text, secrets) for text in reasons if isinstance(text, str) and text)
    text = f"{url}: HTTP {response.status}" + (f": {reason}" if reason else "")
    if response.status >= 500 or response.status in _RETRIABLE_STATUS:
        return KafkaConnectionError(text)
    return AuthenticationFailedError(f"the identity provider refused: {text}")


def _json(body: bytes) -> dict[str, Any] | None:
    """Return the fields of a JSON object, {} for other JSON values; None if `body` is not JSON."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else {}


def _shown(text: str, secrets: tuple[str, ...]) -> str:
    """Return a text of the server so that it fits into an error text: one line of limited length,
    without the secrets of the request."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    text = "".join(char if char.isprintable() else " " for char in text)
    return text[:_MAX_REASON]
