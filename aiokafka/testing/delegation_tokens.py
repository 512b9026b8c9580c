"""The delegation tokens of a fake cluster (KIP-48, 373)."""

from __future__ import annotations

import base64
import hashlib
import hmac as hmac_module
from collections.abc import Mapping
from dataclasses import dataclass

from aiokafka import _seams, errors

__all__ = ["DelegationTokens", "Token", "TokenRefusedError"]

_KEY = "delegation.token.secret.key"


class TokenRefusedError(Exception):
    """The broker says no; `errno` says why."""

    def __init__(self, errno: int) -> None:
        super().__init__(errno)
        self.errno = errno


@dataclass
class Token:
    """A token; times are milliseconds since 1970."""

    token_id: str
    hmac: bytes
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issued: int
    expires: int
    ends: int
    """After which it cannot be renewed."""

    @property
    def password(self) -> str:
        """The password for SCRAM."""
        return base64.b64encode(self.hmac).decode()

    def is_of(self, principal: str) -> bool:
        """Say whether a user may renew and expire it."""
        return principal in (self.owner, self.requester, *self.renewers)


class DelegationTokens:
    """All tokens of a cluster. There are none unless brokers have `delegation.token.secret.key`."""

    def __init__(self) -> None:
        self._tokens: dict[bytes, Token] = {}

    def create(
        self,
        config: Mapping[str, str],
        owner: str,
        requester: str,
        renewers: tuple[str, ...],
        lifetime_ms: int,
    ) -> Token:
        """Create a token. A lifetime below 0 takes the longest that brokers give.

        Raises TokenRefusedError.
        """
        self._check(config)
        if not all(renewer.startswith("User:") for renewer in renewers):
            raise TokenRefusedError(errors.InvalidPrincipalType.errno)
        longest = int(config["delegation.token.max.lifetime.ms"])
        now, token_id = _now(), str(_seams.random_uuid())
        ends = now + (longest if lifetime_ms < 0 else min(lifetime_ms, longest))
        expires = min(ends, now + int(config["delegation.token.expiry.time.ms"]))
        secret = hmac_module.digest(config[_KEY].encode(), token_id.encode(), hashlib.sha512)
        token = Token(token_id, secret, owner, requester, renewers, now, expires, ends)
        self._tokens[secret] = token
        return token

    def renew(self, config: Mapping[str, str], hmac: bytes, user: str, period_ms: int) -> int:
        """Let a token live on, and return when it expires. Raises TokenRefusedError."""
        token = self._find(config, hmac, user)
        standard = int(config["delegation.token.expiry.time.ms"])
        period = standard if period_ms < 0 else period_ms
        token.expires = min(token.ends, _now() + period)
        return token.expires

    def expire(self, config: Mapping[str, str], hmac: bytes, user: str, period_ms: int) -> int:
        """Let a token expire, below 0 at once, and return when. Raises TokenRefusedError."""
        token = self._find(config, hmac, user)
        if period_ms < 0:
            del self._tokens[token.hmac]
            return _now()
        token.expires = min(token.ends, _now() + period_ms)
        return token.expires

    def list(self, config: Mapping[str, str]) -> list[Token]:
        """Return the tokens that have not expired. Raises TokenRefusedError."""
        self._check(config)
        return [token for token in self._tokens.values() if token.expires > _now()]

    def by_id(self, token_id: str) -> Token | None:
        """Return a token with which a client may log in."""
        live = (token for token in self._tokens.values() if token.expires > _now())
        return next((token for token in live if token.token_id == token_id), None)

    def _find(self, config: Mapping[str, str], hmac: bytes, user: str) -> Token:
        self._check(config)
        token = self._tokens.get(bytes(hmac))
        if token is None:
            raise TokenRefusedError(errors.DelegationTokenNotFound.errno)
        if not token.is_of(user):
            raise TokenRefusedError(errors.DelegationTokenOwnerMismatch.errno)
        if token.expires <= _now():
            raise TokenRefusedError(errors.DelegationTokenExpired.errno)
        return token

    @staticmethod
    def _check(config: Mapping[str, str]) -> None:
        if not config[_KEY]:
            raise TokenRefusedError(errors.DelegationTokenAuthDisabled.errno)


def _now() -> int:
    return int(_seams.wall_time() * 1000)
