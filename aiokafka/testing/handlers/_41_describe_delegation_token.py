"""DescribeDelegationToken (KIP-48)."""

from __future__ import annotations

from aiokafka.protocol.messages.delegation_tokens import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from aiokafka.testing.delegation_tokens import Token, TokenRefusedError
from aiokafka.testing.handlers._tokens import parts, principal_of, requester_of
from aiokafka.testing.script import RequestContext

REQUEST = DescribeDelegationTokenRequest


def handle(
    context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Return tokens: with an authorizer only those that the client may renew."""
    try:
        user = principal_of(context)
        tokens = context.services.tokens.list(context.truth.config)
    except TokenRefusedError as refusal:
        return refuse(context, request, refusal.errno)
    if request.owners is not None:
        owners = {f"{one.principal_type}:{one.principal_name}" for one in request.owners}
        tokens = [token for token in tokens if token.owner in owners]
    sees_all = not context.services.acls.entries.is_enforced
    return DescribeDelegationTokenResponse(
        tokens=[_describe(context, token) for token in tokens if sees_all or token.is_of(user)]
    )


def refuse(
    context: RequestContext, request: DescribeDelegationTokenRequest, errno: int
) -> DescribeDelegationTokenResponse:
    """Say no."""
    return DescribeDelegationTokenResponse(error_code=errno, tokens=[])


def _describe(context: RequestContext, token: Token) -> DescribedDelegationToken:
    owner_kind, owner_name = parts(token.owner)
    kind, name = requester_of(context, token)
    renewers = []
    for renewer in token.renewers:
        type_, of = parts(renewer)
        renewers.append(DescribedDelegationTokenRenewer(principal_type=type_, principal_name=of))
    return DescribedDelegationToken(
        principal_type=owner_kind,
        principal_name=owner_name,
        token_requester_principal_type=kind,
        token_requester_principal_name=name,
        issue_timestamp=token.issued,
        expiry_timestamp=token.expires,
        max_timestamp=token.ends,
        token_id=token.token_id,
        hmac=token.hmac,
        renewers=renewers,
    )
