"""ExpireDelegationToken (KIP-48)."""

from __future__ import annotations

from aiokafka.protocol.messages.delegation_tokens import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from aiokafka.testing.delegation_tokens import TokenRefusedError
from aiokafka.testing.handlers._tokens import principal_of
from aiokafka.testing.script import RequestContext

REQUEST = ExpireDelegationTokenRequest


def handle(
    context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Let a token expire."""
    try:
        user = principal_of(context)
        expires = context.services.tokens.expire(
            context.truth.config, request.hmac, user, request.expiry_time_period_ms
        )
    except TokenRefusedError as refusal:
        return refuse(context, request, refusal.errno)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires)


def refuse(
    context: RequestContext, request: ExpireDelegationTokenRequest, errno: int
) -> ExpireDelegationTokenResponse:
    """Say no."""
    return ExpireDelegationTokenResponse(error_code=errno, expiry_timestamp_ms=-1)
