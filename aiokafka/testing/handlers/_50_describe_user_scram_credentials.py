"""DescribeUserScramCredentials (KIP-554)."""

from __future__ import annotations

from aiokafka.protocol.messages.scram import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from aiokafka.testing import codes
from aiokafka.testing.scram_credentials import SCRAM
from aiokafka.testing.script import RequestContext

REQUEST = DescribeUserScramCredentialsRequest
_NUMBERS = {mechanism: number for number, mechanism in enumerate(SCRAM, 1)}


def handle(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Describe users, all if none is named."""
    names = [user.name for user in request.users or ()]
    known = context.services.credentials.users()
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[
            _describe(context, name, twice=names.count(name) > 1)
            for name in dict.fromkeys(names or known)
        ],
    )


def refuse(
    context: RequestContext, request: DescribeUserScramCredentialsRequest, errno: int
) -> DescribeUserScramCredentialsResponse:
    """Say no."""
    return DescribeUserScramCredentialsResponse(error_code=errno, error_message=None, results=[])


def _describe(
    context: RequestContext, user: str, *, twice: bool
) -> DescribeUserScramCredentialsResult:
    infos = context.services.credentials.infos(user)
    errno, message = codes.NONE, None
    if twice:
        errno = codes.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice: {user}"
    elif not infos:
        errno = codes.RESOURCE_NOT_FOUND
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
