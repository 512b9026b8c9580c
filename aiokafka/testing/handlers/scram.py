"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554)."""

from __future__ import annotations

from collections import Counter

from aiokafka import errors
from aiokafka.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from aiokafka.testing.handlers import handles, refuses
from aiokafka.testing.handlers._common import await_controller
from aiokafka.testing.sasl import SCRAM, Credential
from aiokafka.testing.script import RequestContext

_NUMBERS = {mechanism: number for number, mechanism in enumerate(SCRAM, 1)}


@handles(DescribeUserScramCredentialsRequest)
def describe_user_scram_credentials(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Describe the SCRAM credentials of the users in the request, or of all users (KIP-554)."""
    names = [user.name for user in request.users or ()]
    known = context.services.credentials.users()
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[
            _describe(context, name, twice=names.count(name) > 1)
            for name in dict.fromkeys(names or known)
        ],
    )


def _describe(
    context: RequestContext, user: str, *, twice: bool
) -> DescribeUserScramCredentialsResult:
    infos = context.services.credentials.infos(user)
    errno, message = 0, None
    if twice:
        errno = errors.DuplicateResource.errno
        message = f"Cannot describe SCRAM credentials for the same user twice: {user}"
    elif not infos:
        errno = errors.ResourceNotFound.errno
        message = f"Attempt to describe a user credential that does not exist: {user}"
    return DescribeUserScramCredentialsResult(
        user=user,
        error_code=errno,
        error_message=message,
        credential_infos=[
            CredentialInfo(mechanism=_NUMBERS[mechanism], iterations=iterations)
            for mechanism, iterations in infos
            if not errno
        ],
    )


_NAMES = dict(enumerate(SCRAM, 1))
_LEAST, _MOST = 4096, 16384  # iterations
_CONTROLLER_TIMEOUT = 30.0  # seconds that a broker tries to reach the controller

Refusal = tuple[int, str]
"""Error code and error message of a rejected change (KIP-554)."""


@handles(AlterUserScramCredentialsRequest)
async def alter_user_scram_credentials(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Change the credentials of each user whose changes are valid."""
    await await_controller(context, _CONTROLLER_TIMEOUT)
    refused: dict[str, Refusal] = {}
    for deletion in request.deletions:
        _note(refused, deletion.name, _check_deletion(context, deletion))
    for upsertion in request.upsertions:
        _note(refused, upsertion.name, _check_upsertion(upsertion))
    for user, count in Counter(user for user, _ in _keys(request)).items():
        if count > 1:  # even for different mechanisms
            message = "A user credential cannot be altered twice in the same request"
            refused[user] = errors.DuplicateResource.errno, message
    _carry_out(context, request, refused)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(
                user=user, error_code=refused[user][0], error_message=refused[user][1]
            )
            if user in refused
            else AlterUserScramCredentialsResult(user=user, error_message=None)
            for user in dict.fromkeys(user for user, _ in _keys(request))
        ],
    )


@refuses(AlterUserScramCredentialsRequest)
def refuse_alter_user_scram_credentials(
    context: RequestContext, request: AlterUserScramCredentialsRequest, errno: int
) -> AlterUserScramCredentialsResponse:
    """Return a response with `errno`, once for every user."""
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=errno, error_message=None)
            for user in dict.fromkeys(user for user, _ in _keys(request))
        ],
    )


def _keys(request: AlterUserScramCredentialsRequest) -> list[tuple[str, int]]:
    deleted = [(each.name, each.mechanism) for each in request.deletions]
    return deleted + [(each.name, each.mechanism) for each in request.upsertions]


def _note(refused: dict[str, Refusal], user: str, refusal: Refusal | None) -> None:
    if refusal is not None:
        refused.setdefault(user, refusal)


def _check_deletion(context: RequestContext, wanted: ScramCredentialDeletion) -> Refusal | None:
    mechanism = _NAMES.get(wanted.mechanism)
    if mechanism is None:
        return errors.UnsupportedSaslMechanismError.errno, "Unknown SCRAM mechanism"
    known = dict(context.services.credentials.infos(wanted.name))
    if mechanism not in known:
        message = "Attempt to delete a user credential that does not exist"
        return errors.ResourceNotFound.errno, message
    return None


def _check_upsertion(wanted: ScramCredentialUpsertion) -> Refusal | None:
    if wanted.mechanism not in _NAMES:
        return errors.UnsupportedSaslMechanismError.errno, "Unknown SCRAM mechanism"
    if not wanted.name:
        return errors.UnacceptableCredential.errno, "Username must not be empty"
    if wanted.iterations < _LEAST:
        return errors.UnacceptableCredential.errno, "Too few iterations"
    if wanted.iterations > _MOST:
        return errors.UnacceptableCredential.errno, "Too many iterations"
    return None


def _carry_out(
    context: RequestContext, request: AlterUserScramCredentialsRequest, refused: dict[str, Refusal]
) -> None:
    credentials = context.services.credentials
    for deletion in request.deletions:
        if deletion.name not in refused:
            credentials.delete(deletion.name, _NAMES[deletion.mechanism])
    for each in request.upsertions:
        if each.name not in refused:
            stored = Credential(bytes(each.salt), each.iterations, bytes(each.salted_password))
            credentials.store(each.name, _NAMES[each.mechanism], stored)
