"""Messages for SCRAM credentials (KIP-554)."""

from aiokafka.protocol.schema import (
    I8,
    I16,
    I32,
    Bytes,
    NStr,
    Request,
    Response,
    Str,
    Struct,
    field,
)


class CredentialInfo(Struct):
    mechanism: I8  # 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
    iterations: I32


class DescribeUserScramCredentialsResult(Struct):
    user: Str
    error_code: I16 = 0
    error_message: NStr
    credential_infos: list[CredentialInfo]


class DescribeUserScramCredentialsResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr
    results: list[DescribeUserScramCredentialsResult]


class UserName(Struct):
    name: Str


class DescribeUserScramCredentialsRequest(
    Request[DescribeUserScramCredentialsResponse], api_key=50, versions="0", flexible="0+"
):
    """Describe the SCRAM credentials of users: mechanisms and iterations (KIP-554)."""

    users: list[UserName] | None


class AlterUserScramCredentialsResult(Struct):
    user: Str
    error_code: I16 = 0
    error_message: NStr


class AlterUserScramCredentialsResponse(Response):
    throttle_time_ms: I32 = 0
    results: list[AlterUserScramCredentialsResult]


class ScramCredentialDeletion(Struct):
    name: Str
    mechanism: I8


class ScramCredentialUpsertion(Struct):
    name: Str
    mechanism: I8
    iterations: I32
    salt: Bytes
    salted_password: Bytes = field(secret=True)


class AlterUserScramCredentialsRequest(
    Request[AlterUserScramCredentialsResponse], api_key=51, versions="0", flexible="0+"
):
    """Add, replace or delete the SCRAM credentials of users (KIP-554)."""

    deletions: list[ScramCredentialDeletion]
    upsertions: list[ScramCredentialUpsertion]
