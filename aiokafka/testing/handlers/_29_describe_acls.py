"""DescribeAcls (KIP-140)."""

from __future__ import annotations

from aiokafka.protocol.messages.acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.acl_entries import Filter
from aiokafka.testing.script import RequestContext

REQUEST = DescribeAclsRequest


def handle(context: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    """Return the entries that the filter takes, by resource."""
    entries = context.services.acls.entries
    if not entries.is_enforced:
        return refuse(context, request, codes.SECURITY_DISABLED)
    wanted = Filter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    resources: dict[tuple[int, str, int], list[AclDescription]] = {}
    for entry in entries.find(wanted):
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


def refuse(
    context: RequestContext, request: DescribeAclsRequest, errno: int
) -> DescribeAclsResponse:
    """Refuse it."""
    return DescribeAclsResponse(error_code=errno, error_message=None, resources=[])
