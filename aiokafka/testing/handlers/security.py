"""SASL logins, SCRAM credentials, delegation tokens and access control lists."""

from __future__ import annotations

from aiokafka import errors
from aiokafka.errors import for_code
from aiokafka.protocol.messages.acls import (
    AclCreation,
    AclDescription,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from aiokafka.protocol.messages.delegation_tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from aiokafka.protocol.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from aiokafka.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from aiokafka.testing.acls import Entry, Filter
from aiokafka.testing.actions import RefusedError
from aiokafka.testing.handlers import answer_items, handles, refuse, refuses, require
from aiokafka.testing.handlers._common import await_controller
from aiokafka.testing.sasl import SCRAM, Credential, Token, TokenRefusedError
from aiokafka.testing.script import RequestContext


@handles(SaslHandshakeRequest)
def sasl_handshake(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Begin a login. If the cluster has no SASL, return ILLEGAL_SASL_STATE."""
    session, security = context.session, context.services.security
    if session is None or security is None:
        return refuse_sasl_handshake(context, request, errors.IllegalSaslStateError.errno)
    errno = session.shake_hands(request.mechanism, context.api_version)
    return SaslHandshakeResponse(error_code=errno, mechanisms=list(security.mechanisms))


@refuses(SaslHandshakeRequest)
def refuse_sasl_handshake(
    context: RequestContext, request: SaslHandshakeRequest, errno: int
) -> SaslHandshakeResponse:
    """Return a response with `errno`. With UNSUPPORTED_SASL_MECHANISM, the response has the list of
    the broker's mechanisms; otherwise the list is empty."""
    security = context.services.security
    offered = (
        security.mechanisms
        if security and errno == errors.UnsupportedSaslMechanismError.errno
        else ()
    )
    return SaslHandshakeResponse(error_code=errno, mechanisms=list(offered))


@handles(SaslAuthenticateRequest)
def sasl_authenticate(
    context: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """Handle a SASL token of the login. If the cluster has no SASL, return ILLEGAL_SASL_STATE."""
    if context.session is None:
        return refuse_sasl_authenticate(context, request, errors.IllegalSaslStateError.errno)
    verdict = context.session.authenticate(request.auth_bytes)
    answer = SaslAuthenticateResponse(
        error_code=verdict.errno, error_message=verdict.message, auth_bytes=verdict.challenge
    )
    if context.api_version >= 1:
        answer.session_lifetime_ms = verdict.lifetime_ms
    return answer


@refuses(SaslAuthenticateRequest)
def refuse_sasl_authenticate(
    context: RequestContext, request: SaslAuthenticateRequest, errno: int
) -> SaslAuthenticateResponse:
    """Return a response with `errno` and Kafka's text for this error."""
    message = for_code(errno).description
    if errno == errors.IllegalSaslStateError.errno:
        message = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(error_code=errno, error_message=message, auth_bytes=b"")


# -- SCRAM credentials (KIP-554)

_SCRAM_NUMBERS = {mechanism: number for number, mechanism in enumerate(SCRAM, 1)}


@handles(DescribeUserScramCredentialsRequest)
def describe_user_scram_credentials(
    context: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Describe the SCRAM credentials of the users in the request, or of all users (KIP-554)."""
    names = [user.name for user in request.users or ()]
    known = context.services.credentials.users()
    return answer_items(
        request,
        lambda user: _describe_credentials(context, user, twice=names.count(user) > 1),
        items=dict.fromkeys(names or known),
    )


def _describe_credentials(
    context: RequestContext, user: str, *, twice: bool
) -> DescribeUserScramCredentialsResult:
    infos = context.services.credentials.infos(user)
    if twice:
        raise RefusedError(
            errors.DuplicateResource,
            f"Cannot describe SCRAM credentials for the same user twice: {user}",
        )
    if not infos:
        raise RefusedError(
            errors.ResourceNotFound,
            f"Attempt to describe a user credential that does not exist: {user}",
        )
    return DescribeUserScramCredentialsResult(
        user=user,
        error_message=None,
        credential_infos=[
            CredentialInfo(mechanism=_SCRAM_NUMBERS[mechanism], iterations=iterations)
            for mechanism, iterations in infos
        ],
    )


_SCRAM_NAMES = dict(enumerate(SCRAM, 1))
_LEAST_ITERATIONS, _MOST_ITERATIONS = 4096, 16384  # accepted for a new SCRAM credential
# Seconds for which a broker tries to reach the controller; then it returns REQUEST_TIMED_OUT.
_CONTROLLER_TIMEOUT = 30.0


@handles(AlterUserScramCredentialsRequest)
async def alter_user_scram_credentials(
    context: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """Change the credentials of each user whose changes are valid."""
    await await_controller(context, _CONTROLLER_TIMEOUT)
    users = dict.fromkeys(_changed_users(request))
    return answer_items(
        request, lambda user: _alter_credential(context, request, user), items=users
    )


@refuses(AlterUserScramCredentialsRequest)
def refuse_alter_user_scram_credentials(
    context: RequestContext, request: AlterUserScramCredentialsRequest, errno: int
) -> AlterUserScramCredentialsResponse:
    """Return a response with `errno`, once for every user."""
    return answer_items(
        request, lambda user: require(errno), items=dict.fromkeys(_changed_users(request))
    )


def _changed_users(request: AlterUserScramCredentialsRequest) -> list[str]:
    """Return the user names of all changes in the request."""
    return [each.name for each in request.deletions] + [each.name for each in request.upsertions]


def _alter_credential(
    context: RequestContext, request: AlterUserScramCredentialsRequest, user: str
) -> None:
    if _changed_users(request).count(user) > 1:  # an error even for different mechanisms
        raise RefusedError(
            errors.DuplicateResource,
            "A user credential cannot be altered twice in the same request",
        )
    for deletion in request.deletions:
        if deletion.name == user:
            _delete_credential(context, deletion)
    for upsertion in request.upsertions:
        if upsertion.name == user:
            _store_credential(context, upsertion)


def _scram_mechanism(number: int) -> str:
    if number not in _SCRAM_NAMES:
        raise RefusedError(errors.UnsupportedSaslMechanismError, "Unknown SCRAM mechanism")
    return _SCRAM_NAMES[number]


def _delete_credential(context: RequestContext, wanted: ScramCredentialDeletion) -> None:
    mechanism = _scram_mechanism(wanted.mechanism)
    if mechanism not in dict(context.services.credentials.infos(wanted.name)):
        raise RefusedError(
            errors.ResourceNotFound,
            "Attempt to delete a user credential that does not exist",
        )
    context.services.credentials.delete(wanted.name, mechanism)


def _store_credential(context: RequestContext, wanted: ScramCredentialUpsertion) -> None:
    mechanism = _scram_mechanism(wanted.mechanism)
    problem = ""
    if not wanted.name:
        problem = "Username must not be empty"
    elif wanted.iterations < _LEAST_ITERATIONS:
        problem = "Too few iterations"
    elif wanted.iterations > _MOST_ITERATIONS:
        problem = "Too many iterations"
    if problem:
        raise RefusedError(errors.UnacceptableCredential, problem)
    stored = Credential(bytes(wanted.salt), wanted.iterations, bytes(wanted.salted_password))
    context.services.credentials.store(wanted.name, mechanism, stored)


# -- Delegation tokens (KIP-48, KIP-373)

_FIRST_WITH_REQUESTER = 3  # first version whose response has the requester of a token


def _principal_of(context: RequestContext) -> str:
    """Return the client's principal. Raises TokenRefusedError if the cluster has no SASL or if the
    client has logged in with a token: such clients may not manage tokens."""
    session = context.session
    if session is None or session.is_by_token:
        raise TokenRefusedError(errors.DelegationTokenRequestNotAllowed)
    return f"User:{session.user}"


def _requester_of(context: RequestContext, token: Token) -> tuple[str, str]:
    """Return type and name of the token's requester; empty strings if the version lacks them."""
    return (
        _principal_parts(token.requester)
        if context.api_version >= _FIRST_WITH_REQUESTER
        else ("", "")
    )


def _principal_parts(principal: str) -> tuple[str, str]:
    """Return type and name of a principal such as `User:alice`."""
    kind, _, name = principal.partition(":")
    return kind, name


@handles(
    CreateDelegationTokenRequest,
    refusal={"issue_timestamp_ms": -1, "expiry_timestamp_ms": -1, "max_timestamp_ms": -1},
)
def create_delegation_token(
    context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """Create a token for the client, or for the owner in the request (KIP-48, KIP-373)."""
    owner = requester = _principal_of(context)
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type}:{request.owner_principal_name}"
    renewers = tuple(f"{one.principal_type}:{one.principal_name}" for one in request.renewers)
    token = context.services.tokens.create(
        context.cluster_state.config, owner, requester, renewers, request.max_lifetime_ms
    )
    owner_kind, owner_name = _principal_parts(token.owner)
    kind, name = _requester_of(context, token)
    return CreateDelegationTokenResponse(
        principal_type=owner_kind,
        principal_name=owner_name,
        token_requester_principal_type=kind,
        token_requester_principal_name=name,
        issue_timestamp_ms=token.issued,
        expiry_timestamp_ms=token.expires,
        max_timestamp_ms=token.ends,
        token_id=token.token_id,
        hmac=token.hmac,
    )


@handles(RenewDelegationTokenRequest, refusal={"expiry_timestamp_ms": -1})
def renew_delegation_token(
    context: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """Extend the lifetime of a token (KIP-48)."""
    user = _principal_of(context)
    expires = context.services.tokens.renew(
        context.cluster_state.config, request.hmac, user, request.renew_period_ms
    )
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires)


@handles(ExpireDelegationTokenRequest, refusal={"expiry_timestamp_ms": -1})
def expire_delegation_token(
    context: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """Set the time of expiry of a token (KIP-48)."""
    user = _principal_of(context)
    expires = context.services.tokens.expire(
        context.cluster_state.config, request.hmac, user, request.expiry_time_period_ms
    )
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires)


@handles(DescribeDelegationTokenRequest)
def describe_delegation_token(
    context: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Return the tokens of the owners in the request, or of all owners. With an authorizer, return
    only the tokens that the client may renew (KIP-48)."""
    user = _principal_of(context)
    tokens = context.services.tokens.list(context.cluster_state.config)
    if request.owners is not None:
        owners = {f"{one.principal_type}:{one.principal_name}" for one in request.owners}
        tokens = [token for token in tokens if token.owner in owners]
    sees_all = not context.services.acls.entries.is_enforced
    return DescribeDelegationTokenResponse(
        tokens=[
            _describe_token(context, token) for token in tokens if sees_all or token.is_of(user)
        ]
    )


def _describe_token(context: RequestContext, token: Token) -> DescribedDelegationToken:
    owner_kind, owner_name = _principal_parts(token.owner)
    kind, name = _requester_of(context, token)
    renewers = []
    for renewer in token.renewers:
        type_, of = _principal_parts(renewer)
        renewers.append(DescribedDelegationTokenRenewer(principal_type=type_, principal_name=of))
    return DescribedDelegationToken(
        principal_type=owner_kind,
        principal_name=owner_name,
        token_requester_principal_type=kind,
        token_requester_principal_name=name,
        issue_timestamp=token.issued,
        expiry_timestamp=token.expires,
        max_timestamp=token.ends,
        token_id=token.token_id,
        hmac=token.hmac,
        renewers=renewers,
    )


# -- Access control lists (KIP-140)


@handles(DescribeAclsRequest)
def describe_acls(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Return the ACL entries that match the filter, grouped by resource. Without an authorizer,
    return SECURITY_DISABLED (KIP-140)."""
    entries = context.services.acls.entries
    if not entries.is_enforced:
        return refuse(context, request, errors.SecurityDisabled.errno)
    resources: dict[tuple[int, str, int], list[AclDescription]] = {}
    for entry in entries.find(_acl_filter(request)):
        shown = AclDescription(
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        resources.setdefault(entry[:3], []).append(shown)
    return DescribeAclsResponse(
        error_message=None,
        resources=[
            DescribeAclsResource(
                resource_type=kind, resource_name=name, pattern_type=how, acls=acls
            )
            for (kind, name, how), acls in resources.items()
        ],
    )


_CLUSTER = 4
_ANY_PATTERN, _MATCH_PATTERN = 1, 2


@handles(CreateAclsRequest)
def create_acls(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Create each ACL entry that is valid; without an authorizer, return SECURITY_DISABLED
    (KIP-140)."""
    if not context.services.acls.entries.is_enforced:
        return refuse(context, request, errors.SecurityDisabled.errno)
    return answer_items(request, lambda wanted: _create_acl(context, wanted))


def _create_acl(context: RequestContext, wanted: AclCreation) -> None:
    problem = _acl_problem(wanted)
    if problem:
        raise RefusedError(errors.InvalidRequestError, problem)
    entry = Entry(
        wanted.resource_type,
        wanted.resource_name,
        wanted.resource_pattern_type,
        wanted.principal,
        wanted.host,
        wanted.operation,
        wanted.permission_type,
    )
    context.services.acls.entries.add(entry)


def _acl_problem(wanted: AclCreation) -> str | None:
    """Return the error message for an invalid entry; None if the entry is valid."""
    if wanted.resource_type == _CLUSTER and wanted.resource_name != "kafka-cluster":
        return "The only valid name for the CLUSTER resource is kafka-cluster"
    if wanted.resource_pattern_type in (_ANY_PATTERN, _MATCH_PATTERN) or not wanted.resource_name:
        return "Invalid resource pattern"
    if ":" not in wanted.principal:
        return "Could not parse principal"
    return None


@handles(DeleteAclsRequest)
def delete_acls(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Delete the entries that match a filter (KIP-140). The result of each filter has all entries
    that match it, even if an entry matches several filters. Without an authorizer, return
    SECURITY_DISABLED.
    """
    entries = context.services.acls.entries
    if not entries.is_enforced:
        return refuse(context, request, errors.SecurityDisabled.errno)
    wanted = [_acl_filter(one) for one in request.filters]
    found = [entries.find(one) for one in wanted]
    for one in wanted:
        entries.remove(one)
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(
                error_message=None, matching_acls=[_deleted_acl(e) for e in gone]
            )
            for gone in found
        ]
    )


def _acl_filter(wanted: DescribeAclsRequest | DeleteAclsFilter) -> Filter:
    return Filter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )


def _deleted_acl(entry: Entry) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=entry.resource_type,
        resource_name=entry.name,
        pattern_type=entry.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
