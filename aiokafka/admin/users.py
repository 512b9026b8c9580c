"""Describe and change the SCRAM credentials of users (`admin.users`, KIP-554)."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from aiokafka import _clock
from aiokafka._arguments import as_int, as_list, as_names, as_text
from aiokafka.admin._items import settle
from aiokafka.admin._routing import AdminApi, Outcomes, Router, call_of, error_of, raise_for
from aiokafka.admin._values import Value
from aiokafka.admin.enums import ScramMechanism
from aiokafka.errors import KafkaError
from aiokafka.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)

__all__ = ["NewScramCredential", "ScramCredential", "Users"]


# -- Credentials

# The numbers of iterations that a new credential may have. Apache Kafka accepts 4096 to 16384,
# other brokers accept more. The clients of this package reject more than a million at login,
# because so many would take seconds of CPU time.
_LEAST_ITERATIONS = 4096
_MOST_ITERATIONS = 1_000_000


@dataclass(frozen=True)
class ScramCredential(Value):
    """A credential of a user, without the password."""

    mechanism: ScramMechanism
    iterations: int
    """Number of iterations of the hash function."""


@dataclass(frozen=True)
class NewScramCredential:
    """A new password of a user for one mechanism. Brokers get only a salted hash of the password.

    Raises TypeError or ValueError for invalid values.
    """

    user: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256
    iterations: int = 8192
    """Number of iterations of the hash function; Kafka accepts 4096 to 16384."""

    salt: bytes | None = field(default=None, repr=False)
    """The salt of the hash; by default random bytes."""

    def __post_init__(self) -> None:
        as_text("user", self.user, empty=False)
        as_text("password", self.password, empty=False)
        object.__setattr__(self, "mechanism", as_mechanism("mechanism", self.mechanism))
        if not _LEAST_ITERATIONS <= as_int("iterations", self.iterations) <= _MOST_ITERATIONS:
            raise ValueError(
                f"iterations={self.iterations!r}: "
                f"must be {_LEAST_ITERATIONS} to {_MOST_ITERATIONS}; Kafka accepts up to 16384"
            )
        if self.salt is not None and not self.salt:
            raise ValueError("salt: must not be empty")


def as_mechanism(argument: str, mechanism: object) -> ScramMechanism:
    """Return a ScramMechanism for a member or for a name such as "SCRAM-SHA-256". Raises ValueError
    for any other object."""
    if isinstance(mechanism, str):
        found = ScramMechanism.__members__.get(mechanism.replace("-", "_"))
    else:
        found = mechanism if isinstance(mechanism, ScramMechanism) else None
    if not found:
        raise ValueError(f"{argument}={mechanism!r}: must be 'SCRAM-SHA-256' or 'SCRAM-SHA-512'")
    return found


class Users(AdminApi):
    """The sub-client `admin.users`, for users and their SCRAM credentials (KIP-554, Kafka 2.7).

    A user has one credential (one password) for each mechanism. Brokers apply a change shortly
    after the call has returned; connections that exist stay authenticated.
    """

    async def describe(
        self, users: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, tuple[ScramCredential, ...]]:
        """Return the credentials of users (Java: describeUserScramCredentials).

        Args:
            users: the names of the users; by default all users with credentials.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises ResourceNotFound for a user without credentials; AdminItemsError if one of several
        users fails.
        """
        names = None
        if users is not None:
            names = [as_text("users", user, empty=False) for user in as_names("users", users)]
        deadline = self._deadline(timeout_ms)
        return await describe_users(self._router, names, deadline) if names != [] else {}

    async def upsert(
        self,
        credentials: Iterable[NewScramCredential] | NewScramCredential,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Set passwords of new or existing users (Java: alterUserScramCredentials).

        Args:
            credentials: one credential or several.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        The client hashes the passwords in a thread. Raises ValueError for two passwords of one user
        and mechanism. Raises the error of a single credential, such as UnacceptableCredential;
        AdminItemsError, with the errors by (user, mechanism), if one of several fails.
        """
        if isinstance(credentials, NewScramCredential):
            credentials = [credentials]
        wanted = {}
        for each in as_list("credentials", credentials, "credentials"):
            if not isinstance(each, NewScramCredential):
                raise TypeError(f"credentials: must be NewScramCredential objects, not {each!r}")
            if (each.user, each.mechanism) in wanted:
                raise ValueError(
                    f"credentials: {each.user!r} has two passwords for {each.mechanism.name}"
                )
            wanted[each.user, each.mechanism] = each
        deadline = self._deadline(timeout_ms)
        upsertions = {key: await _upsertion(each) for key, each in wanted.items()}

        def build(keys: list[Key]) -> AlterUserScramCredentialsRequest:
            return AlterUserScramCredentialsRequest(
                deletions=[], upsertions=[upsertions[key] for key in keys]
            )

        await _alter(self._router, wanted, build, deadline)

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

        Raises ResourceNotFound for a credential that does not exist (also if the response to a
        first attempt was lost); AdminItemsError, with the errors by (user, mechanism), if one of
        several fails.
        """
        wanted = []
        pair: Any
        for pair in as_list("credentials", credentials, "pairs"):
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise TypeError(f"credentials: must be pairs of user and mechanism, not {pair!r}")
            user = as_text("credentials: user", pair[0], empty=False)
            wanted.append((user, as_mechanism("credentials: mechanism", pair[1])))
        deadline = self._deadline(timeout_ms)

        def build(keys: list[Key]) -> AlterUserScramCredentialsRequest:
            deletions = [ScramCredentialDeletion(name=user, mechanism=how) for user, how in keys]
            return AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[])

        await _alter(self._router, wanted, build, deadline)


# -- Requests

Credentials = tuple[ScramCredential, ...]
Key = tuple[str, ScramMechanism]
"""A user and a mechanism, which identify a credential."""

_SALT_BYTES = 24
_DIGESTS = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}


async def describe_users(
    router: Router, users: Iterable[str] | None, deadline: float
) -> dict[str, Credentials]:
    """Return the credentials of these users; if `users` is None, of all users with credentials.

    Raises the same errors as `settle`.
    """

    async def ask(left: list[str] | None) -> Outcomes[str, Credentials]:
        # Both an empty list and null select all users. Send an empty list: after null, brokers
        # close the connection if the user of this client may not describe users.
        named = [UserName(name=user) for user in left or ()]
        call = call_of(DescribeUserScramCredentialsRequest(users=named))
        response = await router.to_any(call, deadline)
        raise_for(response.error_code, response.error_message, "describe users")
        return {each.user: _credentials(each) for each in response.results}

    if users is not None:
        return await settle(router, users, ask, deadline)
    everyone = await router.retry(lambda: ask(None), deadline)
    first = [everyone]

    async def ask_again(left: list[str]) -> Outcomes[str, Credentials]:
        # The first call returns the response that was fetched above. Later calls request only the
        # users with a retriable error.
        return first.pop() if first else await ask(left)

    return await settle(router, everyone, ask_again, deadline)


def _credentials(each: DescribeUserScramCredentialsResult) -> Credentials | KafkaError:
    error = error_of(each.error_code, each.error_message, each.user)
    if error is not None:
        return error
    return tuple(
        ScramCredential(ScramMechanism(info.mechanism), info.iterations)
        for info in sorted(each.credential_infos, key=lambda info: info.mechanism)
    )


async def _upsertion(each: NewScramCredential) -> ScramCredentialUpsertion:
    """Hash a password in a thread, because this takes milliseconds to seconds of CPU time."""
    salt = _clock.random_bytes(_SALT_BYTES) if each.salt is None else each.salt
    salted = await asyncio.get_running_loop().run_in_executor(
        None,
        hashlib.pbkdf2_hmac,
        _DIGESTS[each.mechanism],
        each.password.encode(),
        salt,
        each.iterations,
    )
    return ScramCredentialUpsertion(
        name=each.user,
        mechanism=each.mechanism,
        iterations=each.iterations,
        salt=salt,
        salted_password=salted,
    )


async def _alter(
    router: Router,
    keys: Iterable[Key],
    build: Callable[[list[Key]], AlterUserScramCredentialsRequest],
    deadline: float,
) -> None:
    async def send(part: list[Key]) -> Outcomes[Key, None]:
        response = await router.to_controller(call_of(build(part)), deadline)
        mechanisms = dict(part)
        return {
            (each.user, mechanisms[each.user]): error_of(
                each.error_code, each.error_message, each.user
            )
            for each in response.results
            if each.user in mechanisms
        }

    async def ask(left: list[Key]) -> Outcomes[Key, None]:
        found: dict[Key, KafkaError | None] = {}
        for part in _rounds(left):
            try:
                found |= await send(part)
            except KafkaError as error:
                if not found:
                    raise
                found |= dict.fromkeys(part, error)
        return found

    await settle(router, keys, ask, deadline)


def _rounds(keys: Iterable[Key]) -> list[list[Key]]:
    """Split `keys` into one list for each request, because brokers reject a request that has the
    same user twice."""
    rounds: list[list[Key]] = []
    seen: Counter[str] = Counter()
    for key in keys:
        turn = seen[key[0]]
        seen[key[0]] += 1
        rounds[turn:turn] = [] if turn < len(rounds) else [[]]
        rounds[turn].append(key)
    return rounds
