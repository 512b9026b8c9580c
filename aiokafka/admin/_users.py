"""What is said to brokers about SCRAM credentials."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from aiokafka import _seams
from aiokafka.admin._items import settle
from aiokafka.admin._routing import Call, Router, error_of, raise_for
from aiokafka.admin._user_values import NewScramCredential, ScramCredential
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

Credentials = tuple[ScramCredential, ...]
Key = tuple[str, ScramMechanism]
"""A user and a mechanism: it has one credential."""

_SALT_BYTES = 24
_DIGESTS = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}


async def describe(
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


async def upsert(
    router: Router, credentials: Iterable[NewScramCredential], deadline: float
) -> None:
    """Set credentials; raise what failed."""
    wanted = {(each.user, each.mechanism): await _upsertion(each) for each in credentials}

    def build(keys: list[Key]) -> AlterUserScramCredentialsRequest:
        return AlterUserScramCredentialsRequest(
            deletions=[], upsertions=[wanted[key] for key in keys]
        )

    await _alter(router, wanted, build, deadline)


async def _upsertion(each: NewScramCredential) -> ScramCredentialUpsertion:
    """Hash a password, in a thread: that takes milliseconds to seconds."""
    salt = _seams.random_bytes(_SALT_BYTES) if each.salt is None else each.salt
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


async def delete(router: Router, credentials: Iterable[Key], deadline: float) -> None:
    """Delete credentials; raise what failed."""

    def build(keys: list[Key]) -> AlterUserScramCredentialsRequest:
        deletions = [ScramCredentialDeletion(name=user, mechanism=how) for user, how in keys]
        return AlterUserScramCredentialsRequest(deletions=deletions, upsertions=[])

    await _alter(router, credentials, build, deadline)


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
