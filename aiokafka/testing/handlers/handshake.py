"""ApiVersions, SaslHandshake and SaslAuthenticate: the first requests of a connection."""

from __future__ import annotations

import re

from aiokafka import errors
from aiokafka.errors import for_code
from aiokafka.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from aiokafka.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from aiokafka.testing.handlers import handles, refuse, refuses
from aiokafka.testing.script import RequestContext
from aiokafka.testing.telemetry import has_receiver

_TELEMETRY = (71, 72)
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest)
def api_versions(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Return the versions and features of the release that the broker imitates."""
    if context.api_version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            return refuse(context, request, errors.InvalidRequestError.errno)
    profile = context.profile
    features = profile.features.items()
    finalized = context.cluster_state.profile
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in sorted(profile.ranges.items())
            if key not in _TELEMETRY or has_receiver(context.cluster_state)
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high, _) in features
            if low > 0 or context.api_version >= 4  # older clients fail with 0 (KAFKA-17011)
        ],
        finalized_features_epoch=context.cluster_state.features_epoch if profile.features else -1,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in ((name, finalized.level(name)) for name, _ in features)
            if level > 0
        ],
    )


@handles(SaslHandshakeRequest)
def sasl_handshake(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Begin a login; without SASL, return ILLEGAL_SASL_STATE."""
    session, security = context.session, context.services.security
    if session is None or security is None:
        return refuse_sasl_handshake(context, request, errors.IllegalSaslStateError.errno)
    errno = session.shake_hands(request.mechanism, context.api_version)
    return SaslHandshakeResponse(error_code=errno, mechanisms=list(security.mechanisms))


@refuses(SaslHandshakeRequest)
def refuse_sasl_handshake(
    context: RequestContext, request: SaslHandshakeRequest, errno: int
) -> SaslHandshakeResponse:
    """Return a response with `errno`; UNSUPPORTED_SASL_MECHANISM has the list of mechanisms."""
    security = context.services.security
    offered = (
        security.mechanisms
        if security and errno == errors.UnsupportedSaslMechanismError.errno
        else ()
    )
    return SaslHandshakeResponse(error_code=errno, mechanisms=list(offered))


@handles(SaslAuthenticateRequest)
def sasl_authenticate(
    context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Handle one token of the login; without SASL, return ILLEGAL_SASL_STATE."""
    if context.session is None:
        return refuse_sasl_authenticate(context, request, errors.IllegalSaslStateError.errno)
    verdict = context.session.authenticate(request.auth_bytes)
    answer = SaslAuthenticateResponse(
        error_code=verdict.errno, error_message=verdict.message, auth_bytes=verdict.challenge
    )
    if context.api_version >= 1:
        answer.session_lifetime_ms = verdict.lifetime_ms
    return answer


@refuses(SaslAuthenticateRequest)
def refuse_sasl_authenticate(
    context: RequestContext, request: SaslAuthenticateRequest, errno: int
) -> SaslAuthenticateResponse:
    """Return a response with `errno` and Kafka's text for this error."""
    message = for_code(errno).description
    if errno == errors.IllegalSaslStateError.errno:
        message = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(error_code=errno, error_message=message, auth_bytes=b"")
