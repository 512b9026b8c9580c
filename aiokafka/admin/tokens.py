"""Delegation tokens."""

from __future__ import annotations

from collections.abc import Iterable

from aiokafka.admin import _tokens
from aiokafka.admin._delegation_token import DelegationToken
from aiokafka.admin._room import Room

__all__ = ["Tokens"]


class Tokens(Room):
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
        return await _tokens.create(
            self._router, owner, renewers, max_lifetime_ms, self._deadline(timeout_ms)
        )

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
        return await _tokens.renew(self._router, hmac, renew_period_ms, self._deadline(timeout_ms))

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
        return await _tokens.expire(
            self._router, hmac, expiry_period_ms, self._deadline(timeout_ms)
        )

    async def describe(
        self, owners: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> list[DelegationToken]:
        """Return tokens with their secrets (Java: describeDelegationToken).

        Args:
            owners: whose; by default all that the caller may see.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.
        """
        return await _tokens.describe(self._router, owners, self._deadline(timeout_ms))
