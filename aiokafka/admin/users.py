"""Users that log in by SCRAM, and their credentials (`admin.users`, KIP-554)."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafka import _clock
from aiokafka.admin._items import settle
from aiokafka.admin._routing import AdminApi, Call, Router, error_of, raise_for
from aiokafka.admin._values import Value
from aiokafka.admin.enums import ScramMechanism
from aiokafka.errors import KafkaError
from aiokafka.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)

__all__ = ["NewScramCredential", "ScramCredential", "Users"]


# -- Credentials

# Brokers of Kafka accept 4096 to 16384, others more; more than a million keeps a thread busy for
# seconds, and our own clients refuse to log in with it.
_LEAST_ITERATIONS = 4096
_MOST_ITERATIONS = 1_000_000


@dataclass(frozen=True)
class ScramCredential(Value):
    """What brokers tell of a credential. The password cannot be read back."""

    mechanism: ScramMechanism
    iterations: int
    """How often the password is hashed."""


@dataclass(frozen=True)
class NewScramCredential:
    """A password of a user for one mechanism. The password never leaves this process: brokers get
    a salted hash of it.

    Raises TypeError and ValueError for what cannot be one.
    """

    user: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = ScramMechanism.SCRAM_SHA_256
    iterations: int = 8192
    """How often the password is hashed: Kafka accepts 4096 to 16384."""

    salt: bytes | None = field(default=None, repr=False)
    """Bytes that are mixed in; by default random ones."""

    def __post_init__(self) -> None:
        check_user("user", self.user)
        if not isinstance(self.password, str):
            raise TypeError("password: must be a str")
        if not self.password:
            raise ValueError("password: must not be empty")
        object.__setattr__(self, "mechanism", as_mechanism(self.mechanism))
        if not _LEAST_ITERATIONS <= self.iterations <= _MOST_ITERATIONS:
            raise ValueError(
                f"iterations={self.iterations!r}: "
                f"must be {_LEAST_ITERATIONS} to {_MOST_ITERATIONS}; Kafka accepts up to 16384"
            )
        if self.salt is not None and not self.salt:
            raise ValueError("salt: must not be empty")


def check_user(argument: str, user: object) -> str:
    """Return a user name; raise TypeError or ValueError for what is none."""
    if not isinstance(user, str):
        raise TypeError(f"{argument}: must be a str, not {user!r}")
    if not user:
        raise ValueError(f"{argument}: must not be empty")
    return user


def as_mechanism(mechanism: object) -> ScramMechanism:
    """Return the mechanism for itself or for a name such as "SCRAM-SHA-256"."""
    if isinstance(mechanism, str):
        found = ScramMechanism.__members__.get(mechanism.replace("-", "_"))
    else:
        found = mechanism if isinstance(mechanism, ScramMechanism) else None
    if not found:
        raise ValueError(f"mechanism={mechanism!r}: must be 'SCRAM-SHA-256' or 'SCRAM-SHA-512'")
    return found


class Users(AdminApi):
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
        return await describe_users(self._router, names, deadline) if names != [] else {}

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
        deadline = self._deadline(timeout_ms)

        def build(keys: list[Key]) -> AlterUserScramCredentialsRequest:
            deletions = [ScramCredentialDeletion(name=user, mechanism=how) for user, how in keys]
            return AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[])

        await _alter(self._router, wanted, build, deadline)


# -- Requests

Credentials = tuple[ScramCredential, ...]
Key = tuple[str, ScramMechanism]
"""A user and a mechanism: it has one credential."""

_SALT_BYTES = 24
_DIGESTS = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}


async def describe_users(
    router: Router, users: Iterable[str] | None, deadline: float
) -> dict[str, Credentials]:
    """Return the credentials of users, or of all that have some; raise what failed."""

    async def ask(left: list[str] | None) -> dict[str, Credentials | KafkaError]:
        def build(version: int) -> DescribeUserScramCredentialsRequest:
            # No names ask for all users. A null would, too, but a broker cannot refuse it to one
            # without rights: it closes the connection.
            named = [UserName(name=user) for user in left or ()]
            return DescribeUserScramCredentialsRequest(users=named)

        response = await router.to_any(Call(DescribeUserScramCredentialsRequest, build), deadline)
        raise_for(response.error_code, response.error_message, "describe users")
        return _described(response)

    if users is not None:
        return await settle(router, users, ask, deadline)
    everyone: dict[str, Credentials | KafkaError] = await router.retry(lambda: ask(None), deadline)
    first = [everyone]

    async def again(left: list[str]) -> Mapping[str, Credentials | KafkaError]:
        # Only those that failed in a way that may pass are asked for again, by name.
        return first.pop() if first else await ask(left)

    return await settle(router, everyone, again, deadline)


def _described(
    response: DescribeUserScramCredentialsResponse,
) -> dict[str, Credentials | KafkaError]:
    return {each.user: _credentials(each) for each in response.results}


def _credentials(each: DescribeUserScramCredentialsResult) -> Credentials | KafkaError:
    error = error_of(each.error_code, each.error_message, each.user)
    if error is not None:
        return error
    return tuple(
        ScramCredential(ScramMechanism(info.mechanism), info.iterations)
        for info in sorted(each.credential_infos, key=lambda info: info.mechanism)
    )


async def _upsertion(each: NewScramCredential) -> ScramCredentialUpsertion:
    """Hash a password, in a thread: that takes milliseconds to seconds."""
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
    build_for: Callable[[list[Key]], AlterUserScramCredentialsRequest],
    deadline: float,
) -> None:
    async def send(part: list[Key]) -> dict[Key, KafkaError | None]:
        def build(version: int) -> AlterUserScramCredentialsRequest:
            return build_for(part)

        call = Call(AlterUserScramCredentialsRequest, build, _codes)
        response = await router.to_controller(call, deadline)
        mechanisms = dict(part)
        return {
            (each.user, mechanisms[each.user]): error_of(
                each.error_code, each.error_message, each.user
            )
            for each in response.results
            if each.user in mechanisms
        }

    async def ask(left: list[Key]) -> dict[Key, KafkaError | None]:
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
    """Return lists in which each user stands once: a request must not name a user twice."""
    rounds: list[list[Key]] = []
    seen: Counter[str] = Counter()
    for key in keys:
        turn = seen[key[0]]
        seen[key[0]] += 1
        rounds[turn:turn] = [] if turn < len(rounds) else [[]]
        rounds[turn].append(key)
    return rounds


def _codes(response: AlterUserScramCredentialsResponse) -> list[int]:
    return [each.error_code for each in response.results]
