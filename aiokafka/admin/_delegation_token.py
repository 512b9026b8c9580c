"""A delegation token."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

__all__ = ["DelegationToken"]


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
