"""DescribeAcls, CreateAcls and DeleteAcls."""

from __future__ import annotations

from aiokafka import errors
from aiokafka.protocol.messages.acls import (
    AclCreation,
    AclCreationResult,
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
from aiokafka.testing.acls import Entry, Filter
from aiokafka.testing.handlers import handles, refuse
from aiokafka.testing.script import RequestContext


@handles(DescribeAclsRequest)
def describe_acls(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Return the ACL entries that match the filter, by resource (KIP-140)."""
    entries = context.services.acls.entries
    if not entries.is_enforced:
        return refuse(context, request, errors.SecurityDisabled.errno)
    resources: dict[tuple[int, str, int], list[AclDescription]] = {}
    for entry in entries.find(_filter(request)):
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
_ANY, _MATCH = 1, 2


@handles(CreateAclsRequest)
def create_acls(context: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    """Create each ACL entry that is valid (KIP-140)."""
    if not context.services.acls.entries.is_enforced:
        return refuse(context, request, errors.SecurityDisabled.errno)
    return CreateAclsResponse(results=[_create(context, one) for one in request.creations])


def _create(context: RequestContext, wanted: AclCreation) -> AclCreationResult:
    problem = _problem(wanted)
    if problem:
        return AclCreationResult(error_code=errors.InvalidRequestError.errno, error_message=problem)
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
    return AclCreationResult(error_message=None)


def _problem(wanted: AclCreation) -> str | None:
    """Return the error message for an invalid entry; None if the entry is valid."""
    if wanted.resource_type == _CLUSTER and wanted.resource_name != "kafka-cluster":
        return "The only valid name for the CLUSTER resource is kafka-cluster"
    if wanted.resource_pattern_type in (_ANY, _MATCH) or not wanted.resource_name:
        return "Invalid resource pattern"
    if ":" not in wanted.principal:
        return "Could not parse principal"
    return None


@handles(DeleteAclsRequest)
def delete_acls(context: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    """Delete the entries that match each filter (KIP-140). An entry that matches several filters is
    in the result of each.
    """
    entries = context.services.acls.entries
    if not entries.is_enforced:
        return refuse(context, request, errors.SecurityDisabled.errno)
    wanted = [_filter(one) for one in request.filters]
    found = [entries.find(one) for one in wanted]
    for one in wanted:
        entries.remove(one)
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_message=None, matching_acls=[_gone(e) for e in gone])
            for gone in found
        ]
    )


def _filter(wanted: DescribeAclsRequest | DeleteAclsFilter) -> Filter:
    return Filter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )


def _gone(entry: Entry) -> DeleteAclsMatchingAcl:
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
