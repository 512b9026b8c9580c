"""Messages for delegation tokens (KIP-48)."""

from aiokafka.protocol.schema import (
    I16,
    I32,
    I64,
    Bytes,
    NStr,
    Request,
    Response,
    Str,
    Struct,
    field,
)


class CreateDelegationTokenResponse(Response):
    error_code: I16 = 0
    principal_type: Str
    principal_name: Str
    token_requester_principal_type: Str = field("3+", default="")
    token_requester_principal_name: Str = field("3+", default="")
    issue_timestamp_ms: I64
    expiry_timestamp_ms: I64
    max_timestamp_ms: I64
    token_id: Str
    hmac: Bytes = field(secret=True)
    throttle_time_ms: I32 = 0


class CreatableRenewers(Struct):
    principal_type: Str
    principal_name: Str


class CreateDelegationTokenRequest(
    Request[CreateDelegationTokenResponse], api_key=38, versions="0-3", flexible="2+"
):
    """Create a delegation token."""

    owner_principal_type: NStr = field("3+", default="")  # KIP-373
    owner_principal_name: NStr = field("3+", default="")
    renewers: list[CreatableRenewers]
    max_lifetime_ms: I64


class RenewDelegationTokenResponse(Response):
    error_code: I16 = 0
    expiry_timestamp_ms: I64
    throttle_time_ms: I32 = 0


class RenewDelegationTokenRequest(
    Request[RenewDelegationTokenResponse], api_key=39, versions="0-2", flexible="2+"
):
    """Extend the lifetime of a delegation token."""

    hmac: Bytes = field(secret=True)
    renew_period_ms: I64


class ExpireDelegationTokenResponse(Response):
    error_code: I16 = 0
    expiry_timestamp_ms: I64
    throttle_time_ms: I32 = 0


class ExpireDelegationTokenRequest(
    Request[ExpireDelegationTokenResponse], api_key=40, versions="0-2", flexible="2+"
):
    """Change the expiry of a delegation token, or expire the token now."""

    hmac: Bytes = field(secret=True)
    expiry_time_period_ms: I64


class DescribedDelegationTokenRenewer(Struct):
    principal_type: Str
    principal_name: Str


class DescribedDelegationToken(Struct):
    principal_type: Str
    principal_name: Str
    token_requester_principal_type: Str = field("3+", default="")
    token_requester_principal_name: Str = field("3+", default="")
    issue_timestamp: I64
    expiry_timestamp: I64
    max_timestamp: I64
    token_id: Str
    hmac: Bytes = field(secret=True)
    renewers: list[DescribedDelegationTokenRenewer]


class DescribeDelegationTokenResponse(Response):
    error_code: I16 = 0
    tokens: list[DescribedDelegationToken]
    throttle_time_ms: I32 = 0


class DescribeDelegationTokenOwner(Struct):
    principal_type: Str
    principal_name: Str


class DescribeDelegationTokenRequest(
    Request[DescribeDelegationTokenResponse], api_key=41, versions="0-3", flexible="2+"
):
    """Describe the delegation tokens of owners."""

    owners: list[DescribeDelegationTokenOwner] | None
