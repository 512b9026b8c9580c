"""Tokens for Amazon MSK with IAM access control: presigned URLs (AWS Signature Version 4)."""

from __future__ import annotations

import asyncio
import base64
import datetime
import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from aiokafka._version import __version__
from aiokafka.errors import AuthenticationFailedError, KafkaConnectionError
from aiokafka.oauth._tokens import CachedTokenProvider, Token

__all__ = ["AwsCredentials", "MskIamTokenProvider", "presigned_token"]

_LIFETIME = 900
_SERVICE = "kafka-cluster"
_REGION = re.compile(r"[a-z0-9-]{1,40}")


@dataclass(frozen=True)
class AwsCredentials:
    """AWS credentials; temporary credentials have a `token`."""

    access_key: str
    secret_key: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


class MskIamTokenProvider(CachedTokenProvider):
    """Tokens for Amazon MSK clusters with IAM access control, by OAUTHBEARER over TLS.

    No AWS package is needed if the environment has AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and,
    for temporary credentials, AWS_SESSION_TOKEN. Otherwise, or if `profile` is given, botocore
    (`pip install botocore`) finds the credentials in profiles, roles, containers or instance
    metadata. Credentials are read again for each token. A token is valid for 900 seconds.

    Raises ValueError if the region is not known, or not valid.

    Args:
        region: the AWS region, such as "eu-central-1"; by default AWS_REGION or AWS_DEFAULT_REGION,
            else the region in botocore's configuration.
        profile: a profile of botocore.
        extensions: the SASL extensions to send with the token (KIP-342).
        options: the options of `OAuthConfig`.
    """

    def __init__(
        self,
        region: str | None = None,
        *,
        profile: str | None = None,
        extensions: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(extensions=extensions, **options)
        self._profile = profile
        self._session: Any = None
        environment = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        found = region or environment or self._configured_region()
        if not found or not _REGION.fullmatch(found):
            raise ValueError(
                f"region={found!r}: must name an AWS region; AWS_REGION is the default"
            )
        self._region = found

    def __repr__(self) -> str:
        return f"<MskIamTokenProvider {self._region}>"

    async def fetch(self) -> Token:
        """Read the credentials, which may use the network, in the executor; return a signed token.

        Raises AuthenticationFailedError without credentials, and KafkaConnectionError, which is
        retriable, if the service with the credentials does not respond.
        """
        loop = asyncio.get_running_loop()
        credentials = await loop.run_in_executor(None, self._credentials)
        now = datetime.datetime.now(datetime.timezone.utc)
        return Token(presigned_token(self._region, credentials, now), float(_LIFETIME))

    def _credentials(self) -> AwsCredentials:
        access_key = os.environ.get("AWS_ACCESS_KEY_ID")
        secret_key = os.environ.get("AWS_SECRET_ACCESS_KEY")
        if self._profile is None and access_key and secret_key:
            return AwsCredentials(access_key, secret_key, os.environ.get("AWS_SESSION_TOKEN"))
        session = self._botocore()
        if session is None:
            raise AuthenticationFailedError(
                "no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or install "
                "botocore, which looks in the other places"
            )
        try:
            found = session.get_credentials()
            frozen = None if found is None else found.get_frozen_credentials()
        except Exception as error:
            kind = KafkaConnectionError if _is_temporary(error) else AuthenticationFailedError
            raise kind(
                f"botocore could not get AWS credentials: {type(error).__name__}: "
                f"{str(error)[:200]}"
            ) from error
        if frozen is None:
            raise AuthenticationFailedError("no AWS credentials: botocore found none either")
        return AwsCredentials(frozen.access_key, frozen.secret_key, frozen.token)

    def _configured_region(self) -> str | None:
        session = self._botocore()
        if session is None:
            return None
        region: str | None = session.get_config_variable("region")
        return region

    def _botocore(self) -> Any:
        """Return the session of botocore, which caches credentials; None if botocore is not
        installed."""
        if self._session is None:
            try:
                import botocore.session
            except ImportError:
                return None
            self._session = botocore.session.Session(profile=self._profile)
        return self._session


def _is_temporary(error: BaseException | None) -> bool:
    """Return whether an error of botocore is temporary: a service did not respond, failed, or
    throttled the request."""
    from botocore import exceptions

    if error is None:
        return False
    if isinstance(error, exceptions.ClientError):
        answer = error.response
        status = answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return (
            status >= 500 or status == 429 or "Throttl" in answer.get("Error", {}).get("Code", "")
        )
    passing = (
        OSError,
        exceptions.ConnectionError,
        exceptions.HTTPClientError,
        exceptions.MetadataRetrievalError,
    )
    # If the metadata service of a container cannot be reached, botocore raises an error of another
    # type; the connection error is its `__context__`.
    return isinstance(error, passing) or _is_temporary(error.__context__)


def presigned_token(region: str, credentials: AwsCredentials, now: datetime.datetime) -> str:
    """Return the presigned URL of the action Connect, in base64url. `now` must be in UTC."""
    host = f"kafka.{region}.amazonaws.com"
    day, moment = now.strftime("%Y%m%d"), now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{day}/{region}/{_SERVICE}/aws4_request"
    parameters = {
        "Action": "kafka-cluster:Connect",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{credentials.access_key}/{scope}",
        "X-Amz-Date": moment,
        "X-Amz-Expires": str(_LIFETIME),
        "X-Amz-SignedHeaders": "host",
    }
    if credentials.token:
        parameters["X-Amz-Security-Token"] = credentials.token
    query = "&".join(f"{name}={quote(parameters[name], safe='')}" for name in sorted(parameters))
    request = f"GET\n/\n{query}\nhost:{host}\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
    digest = hashlib.sha256(request.encode()).hexdigest()
    key = signing_key(credentials.secret_key, day, region, _SERVICE)
    signed = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest}"
    signature = _hmac(key, signed).hex()
    # The broker logs the user agent, which is not part of the signature.
    agent = quote(f"aiokafka/{__version__}", safe="")
    url = f"https://{host}/?{query}&X-Amz-Signature={signature}&User-Agent={agent}"
    return base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def signing_key(secret_key: str, day: str, region: str, service: str) -> bytes:
    """Return the signing key for a day, region and service."""
    key = f"AWS4{secret_key}".encode()
    for part in (day, region, service, "aws4_request"):
        key = _hmac(key, part)
    return key


def _hmac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")
