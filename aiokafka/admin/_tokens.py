"""Creating, renewing, expiring and describing delegation tokens."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiokafka.admin._delegation_token import DelegationToken
from aiokafka.admin._routing import Call, Router, raise_for
from aiokafka.protocol.messages.delegation_tokens import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    ExpireDelegationTokenRequest,
    RenewDelegationTokenRequest,
)


async def create(
    router: Router,
    owner: str | None,
    renewers: Iterable[str],
    max_lifetime_ms: int,
    deadline: float,
) -> DelegationToken:
    """Return a new token. With `owner` None, the caller owns it."""
    kinds = [_split(renewer, "renewers") for renewer in renewers]
    owner_kind, owner_name = ("", "") if owner is None else _split(owner, "owner")

    def build(version: int) -> CreateDelegationTokenRequest:
        request = CreateDelegationTokenRequest(
            renewers=[
                CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in kinds
            ],
            max_lifetime_ms=max_lifetime_ms,
        )
        if owner is not None:
            request.owner_principal_type = owner_kind
            request.owner_principal_name = owner_name
        return request

    response = await router.to_controller(
        Call(CreateDelegationTokenRequest, build, lambda answer: (answer.error_code,)), deadline
    )
    raise_for(response.error_code, None, "create_delegation_token")
    return _created(response, tuple(f"{kind}:{name}" for kind, name in kinds))


async def renew(router: Router, hmac: bytes, renew_period_ms: int, deadline: float) -> int:
    """Return the new expiry time in milliseconds since 1970."""

    def build(version: int) -> RenewDelegationTokenRequest:
        return RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=renew_period_ms)

    call = Call(RenewDelegationTokenRequest, build, lambda answer: (answer.error_code,))
    return await _new_expiry(router, call, deadline, "renew_delegation_token")


async def expire(router: Router, hmac: bytes, expiry_period_ms: int, deadline: float) -> int:
    """Return the new expiry time in milliseconds since 1970."""

    def build(version: int) -> ExpireDelegationTokenRequest:
        return ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=expiry_period_ms)

    call = Call(ExpireDelegationTokenRequest, build, lambda answer: (answer.error_code,))
    return await _new_expiry(router, call, deadline, "expire_delegation_token")


async def _new_expiry(router: Router, call: Call[Any], deadline: float, name: str) -> int:
    async def attempt() -> int:
        response = await router.to_controller(call, deadline)
        raise_for(response.error_code, None, name)
        return int(response.expiry_timestamp_ms)

    return await router.retry(attempt, deadline)


async def describe(
    router: Router, owners: Iterable[str] | None, deadline: float
) -> list[DelegationToken]:
    """Return the tokens of these owners, or every token that the caller may see."""
    kinds = None if owners is None else [_split(owner, "owners") for owner in owners]
    if kinds == []:
        return []

    def build(version: int) -> DescribeDelegationTokenRequest:
        if kinds is None:
            return DescribeDelegationTokenRequest(owners=None)
        wanted = [
            DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, name in kinds
        ]
        return DescribeDelegationTokenRequest(owners=wanted)

    async def attempt() -> list[DelegationToken]:
        response = await router.to_any(Call(DescribeDelegationTokenRequest, build), deadline)
        raise_for(response.error_code, None, "describe_delegation_tokens")
        return [_described(token) for token in response.tokens]

    return await router.retry(attempt, deadline)


def _split(principal: str, argument: str) -> tuple[str, str]:
    if not isinstance(principal, str):
        raise TypeError(f"{argument}: must be principals such as 'User:alice'")
    kind, colon, name = principal.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"{argument}: {principal!r} must be a principal such as 'User:alice'")
    return kind, name


def _created(response: CreateDelegationTokenResponse, renewers: tuple[str, ...]) -> DelegationToken:
    owner = f"{response.principal_type}:{response.principal_name}"
    return DelegationToken(
        token_id=response.token_id,
        hmac=bytes(response.hmac),
        owner=owner,
        requester=_requester(response, owner),
        renewers=renewers,
        issue_timestamp=response.issue_timestamp_ms,
        expiry_timestamp=response.expiry_timestamp_ms,
        max_timestamp=response.max_timestamp_ms,
    )


def _described(token: DescribedDelegationToken) -> DelegationToken:
    owner = f"{token.principal_type}:{token.principal_name}"
    return DelegationToken(
        token_id=token.token_id,
        hmac=bytes(token.hmac),
        owner=owner,
        requester=_requester(token, owner),
        renewers=tuple(f"{one.principal_type}:{one.principal_name}" for one in token.renewers),
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiry_timestamp,
        max_timestamp=token.max_timestamp,
    )


def _requester(told: CreateDelegationTokenResponse | DescribedDelegationToken, owner: str) -> str:
    # Before version 3 the requester was always the owner.
    kind, name = told.token_requester_principal_type, told.token_requester_principal_name
    return f"{kind}:{name}" if name else owner
