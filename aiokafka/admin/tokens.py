"""Create, renew, expire and describe delegation tokens (`admin.tokens`, KIP-48)."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field

from aiokafka._arguments import as_int, as_list, as_principal
from aiokafka.admin._routing import AdminApi, call_of, raise_for
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
    """A token with which another client can authenticate as its owner (KIP-48).

    With `sasl_scram_tokenauth=True` a client authenticates by SCRAM, with `token_id` as the user
    name and `password` as the password. Principals are strings such as "User:alice"; times are
    milliseconds since 1970.
    """

    token_id: str
    hmac: bytes = field(repr=False)
    """The secret, which is needed to renew and expire the token."""

    owner: str
    requester: str
    """The principal that created the token: the owner, or a user who may create tokens for the
    owner (KIP-373)."""

    renewers: tuple[str, ...]
    """Principals that may renew the token besides the owner."""

    issue_timestamp: int
    expiry_timestamp: int
    """The time when the token expires unless it is renewed."""

    max_timestamp: int
    """The time after which the token cannot be renewed."""

    @property
    def password(self) -> str:
        """The password for SCRAM: the secret (`hmac`) in base64."""
        return base64.b64encode(self.hmac).decode()


class Tokens(AdminApi):
    """The sub-client `admin.tokens`, for delegation tokens (KIP-48, Kafka 1.1).

    Principals are strings such as "User:alice". Brokers and controllers apply a change shortly
    after the call has returned.
    """

    async def create(
        self,
        renewers: Iterable[str] = (),
        owner: str | None = None,
        max_lifetime_ms: int = -1,
        *,
        timeout_ms: float | None = None,
    ) -> DelegationToken:
        """Create a token for another client (Java: createDelegationToken).

        Args:
            renewers: principals that may renew the token, besides the owner.
            owner: the principal as which the other client authenticates; by default the principal
                of this client (another owner: KIP-373, Kafka 3.3).
            max_lifetime_ms: milliseconds until the token expires even if it is renewed; -1 for the
                broker's default.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises DelegationTokenRequestNotAllowed if this client has authenticated by a token, or
        neither by SASL nor by a client certificate. If a response is lost, the request is sent
        again and creates a second token; the first token then stays unused until it expires.
        """
        deadline = self._deadline(timeout_ms)
        kinds = _principals("renewers", renewers)
        owner_kind, owner_name = ("", "") if owner is None else as_principal("owner", owner)

        request = CreateDelegationTokenRequest(
            renewers=[
                CreatableRenewers(principal_type=kind, principal_name=name) for kind, name in kinds
            ],
            max_lifetime_ms=as_int("max_lifetime_ms", max_lifetime_ms),
        )
        if owner is not None:
            request.owner_principal_type = owner_kind
            request.owner_principal_name = owner_name
        response = await self._router.to_controller(call_of(request), deadline)
        raise_for(response.error_code, None, "create_delegation_token")
        return _created(response, tuple(f"{kind}:{name}" for kind, name in kinds))

    async def renew(
        self, hmac: bytes, renew_period_ms: int = -1, *, timeout_ms: float | None = None
    ) -> int:
        """Renew a token, as its owner or a renewer (Java: renewDelegationToken).

        Args:
            hmac: the secret of the token.
            renew_period_ms: milliseconds from now until the token expires; -1 for the broker's
                default.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Returns the new expiry time in milliseconds since 1970. Raises DelegationTokenNotFound,
        DelegationTokenExpired, or DelegationTokenOwnerMismatch for a user who may not renew the
        token.
        """
        deadline = self._deadline(timeout_ms)
        request = RenewDelegationTokenRequest(
            hmac=_hmac(hmac), renew_period_ms=as_int("renew_period_ms", renew_period_ms)
        )
        call = call_of(request, lambda r: raise_for(r.error_code, None, "renew_delegation_token"))
        return (await self._router.to_controller(call, deadline)).expiry_timestamp_ms

    async def expire(
        self, hmac: bytes, expiry_period_ms: int = -1, *, timeout_ms: float | None = None
    ) -> int:
        """Change the expiry time of a token (Java: expireDelegationToken).

        Args:
            hmac: the secret of the token.
            expiry_period_ms: milliseconds from now until the token expires; -1 expires it at once.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Returns and raises the same as `renew`. DelegationTokenNotFound may also mean that a first
        attempt, whose response was lost, has expired the token.
        """
        deadline = self._deadline(timeout_ms)
        request = ExpireDelegationTokenRequest(
            hmac=_hmac(hmac), expiry_time_period_ms=as_int("expiry_period_ms", expiry_period_ms)
        )
        call = call_of(request, lambda r: raise_for(r.error_code, None, "expire_delegation_token"))
        return (await self._router.to_controller(call, deadline)).expiry_timestamp_ms

    async def describe(
        self, owners: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> list[DelegationToken]:
        """Return tokens with their secrets (Java: describeDelegationToken).

        Args:
            owners: the owners; by default all tokens that the user may describe are returned.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.
        """
        deadline = self._deadline(timeout_ms)
        kinds = None if owners is None else _principals("owners", owners)
        if kinds == []:
            return []
        wanted = [
            DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, name in kinds or ()
        ]
        call = call_of(
            DescribeDelegationTokenRequest(owners=wanted or None),
            lambda r: raise_for(r.error_code, None, "describe_delegation_tokens"),
        )
        response = await self._router.to_any(call, deadline)
        return [_described(token) for token in response.tokens]


def _principals(argument: str, values: Iterable[str]) -> list[tuple[str, str]]:
    return [as_principal(argument, each) for each in as_list(argument, values, "principals")]


def _hmac(hmac: bytes) -> bytes:
    # The text of the error must not show the secret.
    if not isinstance(hmac, bytes | bytearray | memoryview):
        raise TypeError(f"hmac: must be bytes, not {type(hmac).__name__}")
    return hmac


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


def _requester(token: CreateDelegationTokenResponse | DescribedDelegationToken, owner: str) -> str:
    # Responses before version 3 have no requester, because the requester is always the owner.
    kind, name = token.token_requester_principal_type, token.token_requester_principal_name
    return f"{kind}:{name}" if name else owner
