"""Delegation tokens (KIP-48, KIP-373): create, renew, expire, describe."""

from __future__ import annotations

from aiokafka import errors
from aiokafka.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from aiokafka.testing.handlers import handles
from aiokafka.testing.sasl import Token, TokenRefusedError
from aiokafka.testing.script import RequestContext

# -- Common to the APIs of delegation tokens

_FIRST_WITH_REQUESTER = 3  # versions


def _principal_of(context: RequestContext) -> str:
    """Return the client's principal. Raises TokenRefusedError if it may not manage tokens."""
    session = context.session
    if session is None or session.is_by_token:
        raise TokenRefusedError(errors.DelegationTokenRequestNotAllowed.errno)
    return f"User:{session.user}"


def _requester_of(context: RequestContext, token: Token) -> tuple[str, str]:
    """Return type and name of the token's requester; empty strings if the version lacks them."""
    return _parts(token.requester) if context.api_version >= _FIRST_WITH_REQUESTER else ("", "")


def _parts(principal: str) -> tuple[str, str]:
    """Return type and name of a principal such as `User:alice`."""
    kind, _, name = principal.partition(":")
    return kind, name


@handles(
    CreateDelegationTokenRequest,
    refusal={"issue_timestamp_ms": -1, "expiry_timestamp_ms": -1, "max_timestamp_ms": -1},
)
def create_delegation_token(
    context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Create a token for the client, or for the owner in the request (KIP-48, 373)."""
    owner = requester = _principal_of(context)
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
    renewers = tuple(f"{one.principal_type}:{one.principal_name}" for one in request.renewers)
    token = context.services.tokens.create(
        context.cluster_state.config, owner, requester, renewers, request.max_lifetime_ms
    )
    owner_kind, owner_name = _parts(token.owner)
    kind, name = _requester_of(context, token)
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


@handles(RenewDelegationTokenRequest, refusal={"expiry_timestamp_ms": -1})
def renew_delegation_token(
    context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Extend the lifetime of a token (KIP-48)."""
    user = _principal_of(context)
    expires = context.services.tokens.renew(
        context.cluster_state.config, request.hmac, user, request.renew_period_ms
    )
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires)


@handles(ExpireDelegationTokenRequest, refusal={"expiry_timestamp_ms": -1})
def expire_delegation_token(
    context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Set when a token expires (KIP-48)."""
    user = _principal_of(context)
    expires = context.services.tokens.expire(
        context.cluster_state.config, request.hmac, user, request.expiry_time_period_ms
    )
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires)


@handles(DescribeDelegationTokenRequest)
def describe_delegation_token(
    context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Return the tokens; with an authorizer, only the tokens that the client may renew (KIP-48)."""
    user = _principal_of(context)
    tokens = context.services.tokens.list(context.cluster_state.config)
    if request.owners is not None:
        owners = {f"{one.principal_type}:{one.principal_name}" for one in request.owners}
        tokens = [token for token in tokens if token.owner in owners]
    sees_all = not context.services.acls.entries.is_enforced
    return DescribeDelegationTokenResponse(
        tokens=[_describe(context, token) for token in tokens if sees_all or token.is_of(user)]
    )


def _describe(context: RequestContext, token: Token) -> DescribedDelegationToken:
    owner_kind, owner_name = _parts(token.owner)
    kind, name = _requester_of(context, token)
    renewers = []
    for renewer in token.renewers:
        type_, of = _parts(renewer)
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
