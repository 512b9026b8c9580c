"""Tokens from an identity provider: the OAuth 2 grants that need no user."""

from __future__ import annotations

import abc
import asyncio
import base64
import inspect
import json
import re
import ssl
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiokafka import _seams
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError, KafkaError
from aiokafka.oauth._assertion import Assertion
from aiokafka.oauth._cache import CachedTokenProvider, Token
from aiokafka.oauth._config import text
from aiokafka.oauth._http import Answer, TokenEndpoint, need_httpx, parse_url, post
from aiokafka.oauth._jwt import expiry_of

__all__ = ["ClientCredentialsTokenProvider", "JwtBearerTokenProvider"]

Secret = str | Callable[[], str | Awaitable[str]]

# A retry may change these; every other refusal is final (as in Kafka's own client).
_RETRIABLE_STATUS = frozenset((408, 425, 429))
_MAX_REASON = 300


class _EndpointTokenProvider(CachedTokenProvider):
    """Posts a form to a token endpoint (RFC 6749)."""

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
        """Ask the token endpoint once."""
        form, headers, secrets = await self._request()
        headers = {
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
            "Cache-Control": "no-cache",
            **headers,
        }
        body = urllib.parse.urlencode({**self._parameters, **form}).encode()
        answer = await post(self._endpoint, headers, body)
        return _token(answer, self._endpoint.url, secrets)

    @abc.abstractmethod
    async def _request(self) -> tuple[dict[str, str], dict[str, str], tuple[str, ...]]:
        """Return the fields of the form, the headers, and the values that must not be shown."""


class ClientCredentialsTokenProvider(_EndpointTokenProvider):
    """Tokens for a client that is registered with an identity provider (KIP-768).

    The client proves its identity by a secret, or by an assertion (KIP-1258). A proxy is taken from
    the environment (HTTPS_PROXY, NO_PROXY).

    Args:
        token_endpoint_url: where the identity provider issues tokens; https, or http on this
            machine.
        client_id: sent by HTTP Basic authentication, with the secret.
        client_secret: the secret, or a function, plain or async, that is called for every request.
        assertion: `SignedAssertion`, `FileAssertion`, or your own object with `create`; replaces
            client_secret.
        header_urlencode: encode id and secret as RFC 6749 says, which many identity providers do
            not expect (KIP-1025).
        scope: the scope to request.
        parameters: further fields of the form, such as an `audience`.
        extensions: the SASL extensions to send with the token (KIP-342).
        ssl_context: how to verify the endpoint; None for the authorities of the system.
        allow_http: allow http to other machines, too.
        options: those of `OAuthConfig`.
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
        assertion: `SignedAssertion`, `FileAssertion`, or your own object with `create`. The other
            arguments are as in `ClientCredentialsTokenProvider`.
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


# ---------------------------------------------------------------- answers


def _token(answer: Answer, url: str, secrets: tuple[str, ...]) -> Token:
    if not 200 <= answer.status < 300:
        raise _refusal(answer, url, secrets)
    fields = _json(answer.body)
    if fields is None:
        # Something on the way has responded in its place, such as a proxy that shows a page.
        raise KafkaConnectionError(f"{url}: HTTP {answer.status}, but the response is not JSON")
    value = fields.get("access_token") or fields.get("id_token")
    if not isinstance(value, str):
        raise AuthenticationFailedError(f"{url}: the response has no access_token")
    return Token(value, _lifetime(fields.get("expires_in"), value))


def _lifetime(expires_in: Any, value: str) -> float | None:
    """Return the lifetime in seconds, None if unknown.

    The endpoint's statement takes precedence over the token's, because it needs no clock.
    """
    if isinstance(expires_in, str) and re.fullmatch("[0-9]{1,10}", expires_in):
        expires_in = int(expires_in)
    is_number = isinstance(expires_in, (int, float)) and not isinstance(expires_in, bool)
    if is_number and 0 < expires_in < 10**10:
        return float(expires_in)
    expiry = expiry_of(value)
    return None if expiry is None else expiry - _seams.wall_time()


def _refusal(answer: Answer, url: str, secrets: tuple[str, ...]) -> KafkaError:
    if 300 <= answer.status < 400:
        where = _shown(answer.location, secrets)
        return AuthenticationFailedError(
            f"{url}: redirects (HTTP {answer.status}) to {where or 'nowhere'}, which is not "
            "followed; use the address of the token endpoint itself"
        )
    fields = _json(answer.body) or {}
    reasons = (
        fields.get("error") or fields.get("errorCode"),
        fields.get("error_description") or fields.get("errorSummary"),
    )
    reason = ": ".join(_shown(text, secrets) for text in reasons if isinstance(text, str) and text)
    text = f"{url}: HTTP {answer.status}" + (f": {reason}" if reason else "")
    if answer.status >= 500 or answer.status in _RETRIABLE_STATUS:
        return KafkaConnectionError(text)
    return AuthenticationFailedError(f"the identity provider refused: {text}")


def _json(body: bytes) -> dict[str, Any] | None:
    """Return the fields of a JSON object, none of any other JSON; None for what is not JSON."""
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else {}


def _shown(text: str, secrets: tuple[str, ...]) -> str:
    """Prepare text of the server for a message: on one line, bounded, without what we sent."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, "***")
    text = "".join(char if char.isprintable() else " " for char in text)
    return text[:_MAX_REASON]
