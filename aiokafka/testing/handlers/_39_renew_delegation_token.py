"""RenewDelegationToken (KIP-48)."""

from __future__ import annotations

from aiokafka.protocol.messages.delegation_tokens import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from aiokafka.testing.delegation_tokens import TokenRefusedError
from aiokafka.testing.handlers._tokens import principal_of
from aiokafka.testing.script import RequestContext

REQUEST = RenewDelegationTokenRequest


def handle(
    context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Let a token live on."""
    try:
        user = principal_of(context)
        expires = context.services.tokens.renew(
            context.truth.config, request.hmac, user, request.renew_period_ms
        )
    except TokenRefusedError as refusal:
        return refuse(context, request, refusal.errno)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires)


def refuse(
    context: RequestContext, request: RenewDelegationTokenRequest, errno: int
) -> RenewDelegationTokenResponse:
    """Say no."""
    return RenewDelegationTokenResponse(error_code=errno, expiry_timestamp_ms=-1)
