"""The SCRAM credentials of a fake cluster (KIP-554)."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aiokafka import _seams

__all__ = ["SCRAM", "Credential", "ScramCredentials", "hashed"]

SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The mechanisms, and the digest of each."""


class Credential(NamedTuple):
    """What a broker stores of a password."""

    salt: bytes
    iterations: int
    salted_password: bytes


class ScramCredentials:
    """What clients have set by AlterUserScramCredentials; else the passwords that tests gave.

    Args:
        passwords: By user. They may change at any time.
        mechanisms: For which a password counts.
        iterations: How often passwords are hashed.
    """

    def __init__(
        self,
        passwords: Mapping[str, str] | None = None,
        mechanisms: Sequence[str] = (),
        iterations: int = 4096,
    ) -> None:
        self._passwords = {} if passwords is None else passwords
        self._mechanisms = [name for name in SCRAM if name in mechanisms]
        self._iterations = iterations
        # By user and mechanism; None: it was deleted, whatever the password.
        self._set: dict[tuple[str, str], Credential | None] = {}

    def users(self) -> list[str]:
        """Return the users that have credentials."""
        found = {*self._passwords, *(user for user, _ in self._set)}
        return sorted(user for user in found if self.infos(user))

    def infos(self, user: str) -> list[tuple[str, int]]:
        """Return the mechanisms of a user with their iterations."""
        found = []
        for mechanism in SCRAM:
            stored = self._set.get((user, mechanism))
            if stored is not None:
                found.append((mechanism, stored.iterations))
            elif self._by_password(user, mechanism):
                found.append((mechanism, self._iterations))
        return found

    def find(self, user: str, mechanism: str) -> Credential | None:
        """Return what a login is checked with; None if there is no credential."""
        stored = self._set.get((user, mechanism))
        if stored is not None or not self._by_password(user, mechanism):
            return stored
        return hashed(mechanism, self._passwords[user], self._iterations)

    def store(self, user: str, mechanism: str, credential: Credential) -> None:
        """Set a credential."""
        self._set[user, mechanism] = credential

    def delete(self, user: str, mechanism: str) -> None:
        """Delete a credential."""
        self._set[user, mechanism] = None

    def _by_password(self, user: str, mechanism: str) -> bool:
        is_deleted = (user, mechanism) in self._set
        return user in self._passwords and mechanism in self._mechanisms and not is_deleted


def hashed(mechanism: str, password: str, iterations: int) -> Credential:
    """Return what a broker stores of a password, with a salt that no other has."""
    salt = _seams.random_bytes(16)
    return Credential(salt, iterations, _salted(SCRAM[mechanism], password, salt, iterations))


@functools.lru_cache(maxsize=64)
def _salted(digest: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
