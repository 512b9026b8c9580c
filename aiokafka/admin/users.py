"""Users that log in by SCRAM."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiokafka.admin import _users
from aiokafka.admin._room import Room
from aiokafka.admin._user_values import (
    NewScramCredential,
    ScramCredential,
    as_mechanism,
    check_user,
)
from aiokafka.admin.enums import ScramMechanism

__all__ = ["Users"]


class Users(Room):
    """Calls about users and their SCRAM credentials (KIP-554, Kafka 2.7): `admin.users`.

    A user has one credential, that is one password, for each mechanism. Brokers learn of a change a
    moment after it was made; logins that exist go on.
    """

    async def describe(
        self, users: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, tuple[ScramCredential, ...]]:
        """Return the credentials of users (Java: describeUserScramCredentials).

        Args:
            users: their names; by default all users that have credentials.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises ResourceNotFound for a user without any: AdminItemsError if several were asked for.
        """
        if isinstance(users, str):
            raise TypeError("users: must be several names, not one str")
        names = None if users is None else [check_user("users", user) for user in users]
        deadline = self._deadline(timeout_ms)
        return await _users.describe(self._router, names, deadline) if names != [] else {}

    async def upsert(
        self,
        credentials: Iterable[NewScramCredential] | NewScramCredential,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Set passwords of users, new or not (Java: alterUserScramCredentials).

        Args:
            credentials: user, password and mechanism of each, or a single one.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        The hashes are computed here, in a thread. Raises the error of one, such as
        UnacceptableCredential: AdminItemsError, by user and mechanism, if there are several. Raises
        ValueError for two passwords of one user and mechanism.
        """
        if isinstance(credentials, NewScramCredential):
            credentials = [credentials]
        wanted = {}
        for each in credentials:
            if not isinstance(each, NewScramCredential):
                raise TypeError(f"credentials: must be NewScramCredential objects, not {each!r}")
            if (each.user, each.mechanism) in wanted:
                raise ValueError(
                    f"credentials: {each.user!r} has two passwords for {each.mechanism.name}"
                )
            wanted[each.user, each.mechanism] = each
        await _users.upsert(self._router, wanted.values(), self._deadline(timeout_ms))

    async def delete(
        self,
        credentials: Iterable[tuple[str, ScramMechanism | str]],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Delete credentials (Java: alterUserScramCredentials).

        Args:
            credentials: pairs of user and mechanism, such as ("alice", "SCRAM-SHA-512").
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises the error of one: ResourceNotFound if there is no such credential, also if the
        response to a first attempt was lost; AdminItemsError, by user and mechanism, if there
        are several.
        """
        wanted = []
        pair: Any
        for pair in credentials:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise TypeError(f"credentials: must be pairs of user and mechanism, not {pair!r}")
            wanted.append((check_user("credentials", pair[0]), as_mechanism(pair[1])))
        await _users.delete(self._router, wanted, self._deadline(timeout_ms))
