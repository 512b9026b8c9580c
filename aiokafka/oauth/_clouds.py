"""Tokens from the metadata services of clouds: Azure managed identities, and service accounts of
Google Cloud."""

from __future__ import annotations

import json
import os
import urllib.parse
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

from aiokafka import _clock
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError
from aiokafka.oauth._grants import (
    HttpResponse,
    TokenEndpoint,
    get,
    need_httpx,
    refusal,
    token_of,
)
from aiokafka.oauth._tokens import CachedTokenProvider, Token, expiry_of, text

__all__ = ["AzureManagedIdentityTokenProvider", "GcpMetadataTokenProvider"]


class _MetadataTokenProvider(CachedTokenProvider):
    """Base class of providers that request a token from the metadata service of a cloud.

    The service has a link-local or loopback address, so requests are not encrypted and use no
    proxy. The application needs no secret: the service identifies the machine that sends the
    request, or the platform sets a secret for the service in the environment.
    """

    def __init__(self, url: str, extensions: Mapping[str, str] | None, **options: Any) -> None:
        super().__init__(extensions=extensions, **options)
        need_httpx()
        self._url = url

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._url}>"

    async def _get(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> HttpResponse:
        parts = urllib.parse.urlsplit(self._url + path)
        endpoint = TokenEndpoint(
            url=f"{parts.scheme}://{parts.netloc}{parts.path}",
            host=parts.hostname or "",
            query=urllib.parse.urlencode(query),
            context=None,
            connect_timeout=self._config.connect_timeout,
            read_timeout=self._config.read_timeout,
            uses_proxy=False,
        )
        return await get(endpoint, headers)


# -- Azure

_IMDS = "http://169.254.169.254/metadata/identity/oauth2/token"
_IMDS_VERSION = "2018-02-01"
_APP_VERSION = "2019-08-01"
# While the service is updated, it responds with these statuses for up to 70 seconds.
_UPDATING = frozenset((404, 410))


class AzureManagedIdentityTokenProvider(_MetadataTokenProvider):
    """Tokens of the managed identity of an Azure virtual machine, scale set, AKS node, App Service,
    Functions or Container App, for example for Azure Event Hubs. No secret is needed.

    In App Service, Functions and Container Apps, which set IDENTITY_ENDPOINT and IDENTITY_HEADER,
    the token comes from that endpoint; elsewhere from the Instance Metadata Service (IMDS). Pods of
    AKS with a workload identity have a token file instead: `FileAssertion`.

    Args:
        resource: the audience of the token, for Event Hubs
            "https://NAMESPACE.servicebus.windows.net".
        client_id: the client id of a user-assigned identity; None: the only identity of the
            machine, or its system-assigned identity.
        extensions: the SASL extensions to send with the token (KIP-342).
        endpoint_url: the token endpoint, instead of IMDS.
        options: the options of `OAuthConfig`.

    Raises TypeError or ValueError for wrong arguments, AuthenticationMethodNotSupported without
    httpx (the extra `oauth`).
    """

    def __init__(
        self,
        resource: str,
        *,
        client_id: str | None = None,
        extensions: Mapping[str, str] | None = None,
        endpoint_url: str | None = None,
        **options: Any,
    ) -> None:
        if not text("resource", resource):
            raise ValueError(
                'resource: must be a URL, such as "https://NAME.servicebus.windows.net"'
            )
        app_url, self._secret = os.environ.get("IDENTITY_ENDPOINT"), ""
        query = {"resource": resource}
        if endpoint_url is None and app_url and os.environ.get("IDENTITY_HEADER"):
            endpoint_url, self._secret = app_url, os.environ["IDENTITY_HEADER"]
        query["api-version"] = _APP_VERSION if self._secret else _IMDS_VERSION
        if text("client_id", client_id):
            query["client_id"] = str(client_id)
        super().__init__(_checked_url("endpoint_url", endpoint_url or _IMDS), extensions, **options)
        self._query = query

    async def fetch(self) -> Token:
        """Fetch a token by one request.

        Raises KafkaConnectionError, which is retriable, for a failed connection, a retriable status
        or a service that is being updated; AuthenticationFailedError if the machine does not have
        the identity.
        """
        is_app = bool(self._secret)
        headers = {"X-IDENTITY-HEADER": self._secret} if is_app else {"Metadata": "true"}
        response = await self._get("", self._query, headers)
        if response.status in _UPDATING:
            raise KafkaConnectionError(f"{self._url}: HTTP {response.status}, try again later")
        return token_of(response, self._url, (self._secret,))


def _checked_url(argument: str, url: Any) -> str:
    parts = urllib.parse.urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise ValueError(f"{argument}: must be http://host[:port]/path, not {url!r}")
    return parts.geturl()


# -- Google Cloud

_GCP_HOST = "metadata.google.internal"
_GCP_PATH = "/computeMetadata/v1/instance/service-accounts/"
_GCP_HEADERS = {"Metadata-Flavor": "Google"}
_MOST_SHOWN = 100


class GcpMetadataTokenProvider(_MetadataTokenProvider):
    """Tokens of the service account of a Google Compute Engine machine, a GKE pod with workload
    identity, or Cloud Run. No secret is needed.

    By default the tokens have the form for Google's Managed Service for Apache Kafka: an access
    token with the name of the account. With an `audience`, they are JSON web tokens that Google has
    signed, for brokers that verify tokens of an OpenID provider (issuer
    ``https://accounts.google.com``).

    Args:
        audience: the audience of JSON web tokens; None: tokens for the Managed Service.
        service_account: the email address of an account of the machine, or "default".
        extensions: the SASL extensions to send with the token (KIP-342).
        metadata_host: host and port of the metadata server; None: GCE_METADATA_HOST in the
            environment, else metadata.google.internal.
        options: the options of `OAuthConfig`.

    Raises TypeError or ValueError for wrong arguments, AuthenticationMethodNotSupported without
    httpx (the extra `oauth`).
    """

    def __init__(
        self,
        *,
        audience: str | None = None,
        service_account: str = "default",
        extensions: Mapping[str, str] | None = None,
        metadata_host: str | None = None,
        **options: Any,
    ) -> None:
        text("metadata_host", metadata_host)
        host = metadata_host or os.environ.get("GCE_METADATA_HOST") or _GCP_HOST
        url = _checked_url("metadata_host", f"http://{host}{_GCP_PATH}")
        super().__init__(url, extensions, **options)
        if not text("service_account", service_account):
            raise ValueError('service_account: must be an email address or "default"')
        self._account = urllib.parse.quote(service_account, safe="@")
        self._audience = text("audience", audience)

    async def fetch(self) -> Token:
        """Fetch a token by one request; by two requests for the Managed Service.

        Raises KafkaConnectionError, which is retriable, for a failed connection or a retriable
        status; AuthenticationFailedError if the machine does not have the account.
        """
        if self._audience is not None:
            query = {"audience": self._audience, "format": "full"}
            token = await self._text("identity", query)
            expiry = expiry_of(token)
            if expiry is None:
                raise AuthenticationFailedError(f"{self._url}: the response is not a token")
            return Token(token, expiry - _clock.wall_time())
        response = await self._get(f"{self._account}/token", {}, _GCP_HEADERS)
        access = token_of(response, self._url, ())
        email = await self._text("email", {})
        return Token(_for_managed_kafka(access, email), access.lifetime)

    async def _text(self, name: str, query: Mapping[str, str]) -> str:
        response = await self._get(f"{self._account}/{name}", query, _GCP_HEADERS)
        if not 200 <= response.status < 300:
            raise refusal(response, self._url, ())
        found = response.body.decode("ascii", "replace").strip()
        if not found or not found.isprintable() or " " in found:
            raise AuthenticationFailedError(
                f"{self._url}: unexpected response {found[:_MOST_SHOWN]!r} for {name}"
            )
        return found


def _for_managed_kafka(access: Token, email: str) -> str:
    """Return an access token in the form of a JSON web token, as the Managed Service for Apache
    Kafka expects it: with the token in place of the signature."""
    now = _clock.wall_time()
    header = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    claims = {
        "exp": int(now + (access.lifetime or 0.0)),
        "iat": int(now),
        "iss": "Google",
        "scope": "kafka",
        "sub": email,
    }
    parts = (json.dumps(header), json.dumps(claims), access.value)
    return ".".join(urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts)
