"""Messages for access control lists (ACLs)."""

from aiokafka.protocol.schema import I8, I16, I32, NStr, Request, Response, Str, Struct, field


class AclDescription(Struct):
    principal: Str
    host: Str
    operation: I8
    permission_type: I8


class DescribeAclsResource(Struct):
    resource_type: I8
    resource_name: Str
    pattern_type: I8 = field("1+", default=3)
    acls: list[AclDescription]


class DescribeAclsResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr
    resources: list[DescribeAclsResource]


class DescribeAclsRequest(Request[DescribeAclsResponse], api_key=29, versions="0-3", flexible="2+"):
    """List the ACL entries that match a filter."""

    resource_type_filter: I8
    resource_name_filter: NStr
    pattern_type_filter: I8 = field("1+", default=3)  # 3: literal (KIP-290)
    principal_filter: NStr
    host_filter: NStr
    operation: I8
    permission_type: I8


class AclCreationResult(Struct):
    error_code: I16 = 0
    error_message: NStr


class CreateAclsResponse(Response):
    throttle_time_ms: I32 = 0
    results: list[AclCreationResult]


class AclCreation(Struct):
    resource_type: I8
    resource_name: Str
    resource_pattern_type: I8 = field("1+", default=3)
    principal: Str
    host: Str
    operation: I8
    permission_type: I8


class CreateAclsRequest(Request[CreateAclsResponse], api_key=30, versions="0-3", flexible="2+"):
    """Add ACL entries."""

    creations: list[AclCreation]


class DeleteAclsMatchingAcl(Struct):
    error_code: I16 = 0
    error_message: NStr
    resource_type: I8
    resource_name: Str
    pattern_type: I8 = field("1+", default=3)
    principal: Str
    host: Str
    operation: I8
    permission_type: I8


class DeleteAclsFilterResult(Struct):
    error_code: I16 = 0
    error_message: NStr
    matching_acls: list[DeleteAclsMatchingAcl]


class DeleteAclsResponse(Response):
    throttle_time_ms: I32 = 0
    filter_results: list[DeleteAclsFilterResult]


class DeleteAclsFilter(Struct):
    resource_type_filter: I8
    resource_name_filter: NStr
    pattern_type_filter: I8 = field("1+", default=3)
    principal_filter: NStr
    host_filter: NStr
    operation: I8
    permission_type: I8


class DeleteAclsRequest(Request[DeleteAclsResponse], api_key=31, versions="0-3", flexible="2+"):
    """Delete the ACL entries that match filters."""

    filters: list[DeleteAclsFilter]
