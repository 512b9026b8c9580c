"""CreateDelegationToken (KIP-48, 373)."""

from __future__ import annotations

from aiokafka.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from aiokafka.testing.delegation_tokens import TokenRefusedError
from aiokafka.testing.handlers._tokens import parts, principal_of, requester_of
from aiokafka.testing.script import RequestContext

REQUEST = CreateDelegationTokenRequest


def handle(
    context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Create a token for the client, or for the owner that it names."""
    try:
        requester = principal_of(context)
        owner = requester
        if request.owner_principal_name:
            owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
        renewers = tuple(f"{one.principal_type}:{one.principal_name}" for one in request.renewers)
        token = context.services.tokens.create(
            context.truth.config, owner, requester, renewers, request.max_lifetime_ms
        )
    except TokenRefusedError as refusal:
        return refuse(context, request, refusal.errno)
    owner_kind, owner_name = parts(token.owner)
    kind, name = requester_of(context, token)
    return CreateDelegationTokenResponse(
        principal_type=owner_kind,
        principal_name=owner_name,
        token_requester_principal_type=kind,
        token_requester_principal_name=name,
        issue_timestamp_ms=token.issued,
        expiry_timestamp_ms=token.expires,
        max_timestamp_ms=token.ends,
        token_id=token.token_id,
        hmac=token.hmac,
    )


def refuse(
    context: RequestContext, request: CreateDelegationTokenRequest, errno: int
) -> CreateDelegationTokenResponse:
    """Say no."""
    return CreateDelegationTokenResponse(
        error_code=errno,
        principal_type="",
        principal_name="",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
        token_id="",
        hmac=b"",
    )
