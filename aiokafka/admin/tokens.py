"""Delegation tokens (`admin.tokens`, KIP-48)."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from aiokafka.admin._routing import AdminApi, Call, Router, raise_for
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

__all__ = ["DelegationToken", "Tokens"]


# -- Values


@dataclass(frozen=True)
class DelegationToken:
    """A token with which another client can log in as its owner for a while (KIP-48).

    With `sasl_scram_tokenauth=True` a client logs in by SCRAM, with `token_id` as the user name and
    `password` as the password. Principals are strings such as "User:alice"; times are milliseconds
    since 1970.
    """

    token_id: str
    hmac: bytes = field(repr=False)
    """The secret; renewing and expiring need it."""

    owner: str
    requester: str
    """The principal that created it: the owner, or a user who may act for the owner (KIP-373)."""

    renewers: tuple[str, ...]
    """Principals that may renew it besides the owner."""

    issue_timestamp: int
    expiry_timestamp: int
    """When it expires, unless it is renewed."""

    max_timestamp: int
    """When it expires for good."""

    @property
    def password(self) -> str:
        """The secret as a password for SCRAM: base64."""
        return base64.b64encode(self.hmac).decode()


class Tokens(AdminApi):
    """Calls about delegation tokens (KIP-48, Kafka 1.1): `admin.tokens`.

    Principals are strings such as "User:alice". Brokers and controllers learn of a change a moment
    after it was made.
    """

    async def create(
        self,
        renewers: Iterable[str] = (),
        owner: str | None = None,
        max_lifetime_ms: int = -1,
        *,
        timeout_ms: float | None = None,
    ) -> DelegationToken:
        """Create a token with which another client can log in (Java: createDelegationToken).

        Args:
            renewers: principals that may renew it, besides the owner.
            owner: the user that the other client becomes; by default ours (others: KIP-373, Kafka
                3.3).
            max_lifetime_ms: milliseconds after which it ends for good; -1 leaves it to the broker.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises DelegationTokenRequestNotAllowed unless we have authenticated by SASL or a client
        certificate, and not by a token. If the response is lost and the call is sent again, there
        are two tokens; the lost one expires by itself.
        """
        deadline = self._deadline(timeout_ms)
        kinds = [_split(renewer, "renewers") for renewer in renewers]
        owner_kind, owner_name = ("", "") if owner is None else _split(owner, "owner")

        def build(version: int) -> CreateDelegationTokenRequest:
            request = CreateDelegationTokenRequest(
                renewers=[
                    CreatableRenewers(principal_type=kind, principal_name=name)
                    for kind, name in kinds
                ],
                max_lifetime_ms=max_lifetime_ms,
            )
            if owner is not None:
                request.owner_principal_type = owner_kind
                request.owner_principal_name = owner_name
            return request

        response = await self._router.to_controller(
            Call(CreateDelegationTokenRequest, build, lambda answer: (answer.error_code,)), deadline
        )
        raise_for(response.error_code, None, "create_delegation_token")
        return _created(response, tuple(f"{kind}:{name}" for kind, name in kinds))

    async def renew(
        self, hmac: bytes, renew_period_ms: int = -1, *, timeout_ms: float | None = None
    ) -> int:
        """Extend the life of a token (Java: renewDelegationToken). Owner and renewers may.

        Args:
            hmac: the secret of the token.
            renew_period_ms: milliseconds from now on; -1 takes the broker's default.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Returns when it expires, in milliseconds since 1970. Raises DelegationTokenNotFound,
        DelegationTokenOwnerMismatch, DelegationTokenExpired.
        """
        deadline = self._deadline(timeout_ms)

        def build(version: int) -> RenewDelegationTokenRequest:
            return RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=renew_period_ms)

        call = Call(RenewDelegationTokenRequest, build, lambda answer: (answer.error_code,))
        return await _new_expiry(self._router, call, deadline, "renew_delegation_token")

    async def expire(
        self, hmac: bytes, expiry_period_ms: int = -1, *, timeout_ms: float | None = None
    ) -> int:
        """Let a token expire after a period, with -1 at once (Java: expireDelegationToken).

        Args:
            hmac: the secret of the token.
            expiry_period_ms: milliseconds from now on.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Returns and raises the same as `renew`: DelegationTokenNotFound also if the response to a
        first attempt was lost.
        """
        deadline = self._deadline(timeout_ms)

        def build(version: int) -> ExpireDelegationTokenRequest:
            return ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=expiry_period_ms)

        call = Call(ExpireDelegationTokenRequest, build, lambda answer: (answer.error_code,))
        return await _new_expiry(self._router, call, deadline, "expire_delegation_token")

    async def describe(
        self, owners: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> list[DelegationToken]:
        """Return tokens with their secrets (Java: describeDelegationToken).

        Args:
            owners: whose; by default all that the caller may see.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.
        """
        deadline = self._deadline(timeout_ms)
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
            response = await self._router.to_any(
                Call(DescribeDelegationTokenRequest, build), deadline
            )
            raise_for(response.error_code, None, "describe_delegation_tokens")
            return [_described(token) for token in response.tokens]

        return await self._router.retry(attempt, deadline)


# -- Requests


async def _new_expiry(router: Router, call: Call[Any], deadline: float, name: str) -> int:
    async def attempt() -> int:
        response = await router.to_controller(call, deadline)
        raise_for(response.error_code, None, name)
        return int(response.expiry_timestamp_ms)

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
