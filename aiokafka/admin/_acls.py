"""What is said to brokers about access control lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka.admin._acl_values import AclBinding, AclFilter, ResourcePattern
from aiokafka.admin._items import outcome, settle
from aiokafka.admin._routing import Call, Router, error_of
from aiokafka.admin.enums import AclOperation, AclPermission, PatternType, ResourceType
from aiokafka.errors import (
    AdminItemsError,
    KafkaError,
    KafkaProtocolError,
    UnsupportedVersionError,
    for_code,
)
from aiokafka.protocol.messages.acls import (
    AclCreation,
    AclDescription,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeAclsResource,
)

_FIRST_WITH_PATTERNS = 1  # versions of the three APIs; KIP-290


async def describe(router: Router, wanted: AclFilter, deadline: float) -> list[AclBinding]:
    """Return the entries that the filter chooses."""

    def build(version: int) -> DescribeAclsRequest:
        return DescribeAclsRequest(**_fields(wanted, version))

    async def ask(left: list[AclFilter]) -> dict[AclFilter, list[AclBinding] | KafkaError]:
        response = await router.to_any(Call(DescribeAclsRequest, build), deadline)
        if response.error_code:
            return {wanted: for_code(response.error_code)(response.error_message or "describe")}
        return {wanted: [_binding(each, one) for each in response.resources for one in each.acls]}

    return (await settle(router, [wanted], ask, deadline))[wanted]


async def create(router: Router, bindings: Iterable[AclBinding], deadline: float) -> None:
    """Add the entries; raise what failed."""

    async def ask(left: list[AclBinding]) -> dict[AclBinding, KafkaError | None]:
        def build(version: int) -> CreateAclsRequest:
            return CreateAclsRequest(creations=[_creation(one, version) for one in left])

        response = await router.to_any(Call(CreateAclsRequest, build), deadline)
        _check_count(len(response.results), len(left))
        found: dict[AclBinding, KafkaError | None] = {}
        for binding, result in zip(left, response.results, strict=True):
            found[binding] = error_of(result.error_code, result.error_message, binding)
        return found

    await settle(router, bindings, ask, deadline)


async def delete(
    router: Router, filters: Iterable[AclFilter], deadline: float
) -> dict[AclFilter, list[AclBinding]]:
    """Delete the entries that each filter chooses, and return them; raise what failed."""
    gone: dict[AclFilter, dict[AclBinding, KafkaError | None]] = {}

    async def ask(left: list[AclFilter]) -> Mapping[AclFilter, list[AclBinding] | KafkaError]:
        def build(version: int) -> DeleteAclsRequest:
            return DeleteAclsRequest(
                filters=[DeleteAclsFilter(**_fields(one, version)) for one in left]
            )

        response = await router.to_any(Call(DeleteAclsRequest, build), deadline)
        _check_count(len(response.filter_results), len(left))
        found: dict[AclFilter, list[AclBinding] | KafkaError] = {}
        for wanted, result in zip(left, response.filter_results, strict=True):
            known = gone.setdefault(wanted, {})
            found[wanted] = _deleted(wanted, result, known)
        return found

    return await settle(router, filters, ask, deadline)


def _deleted(
    wanted: AclFilter,
    result: DeleteAclsFilterResult,
    known: dict[AclBinding, KafkaError | None],
) -> list[AclBinding] | KafkaError:
    """Return what a filter has deleted in all attempts, or its error.

    Where single entries could not be deleted, the error is one that may pass, if there is such;
    else that of the only entry, or an AdminItemsError by entry.
    """
    failed = error_of(result.error_code, result.error_message, wanted)
    if failed is not None:
        return failed
    named = {_binding(each, each): each for each in result.matching_acls}
    for binding in [binding for binding, error in known.items() if error is not None]:
        if binding not in named:
            del known[binding]  # it has gone, although it could not be deleted before
    for binding, each in named.items():
        known[binding] = error_of(each.error_code, each.error_message, binding)
    passing = [error for error in known.values() if error is not None and error.retriable]
    if passing:
        return passing[0]
    try:
        return list(outcome(known))
    except AdminItemsError as failures:
        return failures
    except KafkaError as error:
        return error


def _check_count(count: int, wanted: int) -> None:
    if count != wanted:
        raise KafkaProtocolError(f"the response has {count} results for {wanted} items")


def _pattern_of(wanted: AclFilter, version: int) -> PatternType:
    if version >= _FIRST_WITH_PATTERNS:
        return wanted.pattern_type
    if wanted.pattern_type not in (PatternType.ANY, PatternType.LITERAL):
        raise UnsupportedVersionError(
            f"{wanted.pattern_type.name} patterns in DescribeAcls and others need Kafka 2.0"
        )
    return PatternType.LITERAL  # there are no others


def _fields(wanted: AclFilter, version: int) -> dict[str, Any]:
    """Return what the requests that look for entries have in common."""
    return {
        "resource_type_filter": wanted.resource_type,
        "resource_name_filter": wanted.name,
        "pattern_type_filter": _pattern_of(wanted, version),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": wanted.operation,
        "permission_type": wanted.permission,
    }


def _creation(binding: AclBinding, version: int) -> AclCreation:
    pattern = binding.pattern
    if version < _FIRST_WITH_PATTERNS and pattern.pattern_type is not PatternType.LITERAL:
        raise UnsupportedVersionError("CreateAcls: PREFIXED patterns need Kafka 2.0 (KIP-290)")
    return AclCreation(
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        resource_pattern_type=pattern.pattern_type,
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation,
        permission_type=binding.permission,
    )


def _binding(
    resource: DescribeAclsResource | DeleteAclsMatchingAcl,
    each: AclDescription | DeleteAclsMatchingAcl,
) -> AclBinding:
    """Return an entry of a resource; a response to a deletion has both in one."""
    return AclBinding(
        ResourcePattern(
            ResourceType(resource.resource_type),
            resource.resource_name,
            PatternType(resource.pattern_type),
        ),
        each.principal,
        AclOperation(each.operation),
        AclPermission(each.permission_type),
        each.host,
    )
