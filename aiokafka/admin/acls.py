"""Describe, create and delete ACL entries (`admin.acls`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from aiokafka._arguments import as_instance, as_list, as_principal, as_text
from aiokafka.admin._items import outcome, settle
from aiokafka.admin._routing import AdminApi, Call, Outcomes, error_of
from aiokafka.admin._values import Value
from aiokafka.admin.enums import AclOperation, AclPermission, PatternType, ResourceType
from aiokafka.errors import (
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

__all__ = ["AclBinding", "AclFilter", "Acls", "ResourcePattern"]


# -- Entries and filters

_NOT_IN_ENTRIES = {"UNKNOWN", "ANY", "MATCH"}


@dataclass(frozen=True)
class ResourcePattern(Value):
    """The resources that an ACL entry applies to. A pattern is hashable."""

    resource_type: ResourceType
    """TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN or USER."""

    name: str
    """The name of the resource; for PREFIXED, the prefix of the names of resources. With LITERAL,
    "*" stands for all names. The name of the CLUSTER is "kafka-cluster"."""

    pattern_type: PatternType = PatternType.LITERAL
    """LITERAL, or PREFIXED (KIP-290, Kafka 2.0)."""


@dataclass(frozen=True)
class AclBinding(Value):
    """An ACL entry: it allows or denies a principal an operation on resources."""

    pattern: ResourcePattern
    principal: str
    """The principal, such as ``User:alice``; ``User:*`` stands for all users."""

    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = "*"
    """The IP address of the client; "*" stands for all addresses."""


@dataclass(frozen=True)
class AclFilter(Value):
    """Selects ACL entries. An entry must match all fields; a field left at its default matches all
    entries."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    """MATCH selects all entries that apply to a resource with this `name`: LITERAL entries with the
    same name or "*", and PREFIXED entries whose name is a prefix of `name`."""

    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    @classmethod
    def of(cls, binding: AclBinding) -> AclFilter:
        """Return a filter that selects exactly this entry."""
        pattern = as_instance("binding", binding, AclBinding).pattern
        return cls(
            resource_type=pattern.resource_type,
            name=pattern.name,
            pattern_type=pattern.pattern_type,
            principal=binding.principal,
            host=binding.host,
            operation=binding.operation,
            permission=binding.permission,
        )


def check_binding(binding: AclBinding) -> AclBinding:
    """Return the entry unchanged. Raises TypeError or ValueError if a field is invalid."""
    pattern = as_instance("bindings", binding, AclBinding).pattern
    as_instance("bindings: pattern", pattern, ResourcePattern)
    for value, cls in (
        (pattern.resource_type, ResourceType),
        (pattern.pattern_type, PatternType),
        (binding.operation, AclOperation),
        (binding.permission, AclPermission),
    ):
        if not isinstance(value, cls):
            raise TypeError(f"bindings: {value!r} must be of {cls.__name__}")
        if value.name in _NOT_IN_ENTRIES:
            raise ValueError(f"bindings: {cls.__name__}.{value.name} is for filters only")
    as_principal("bindings: principal", binding.principal)
    as_text("bindings: name", pattern.name, empty=False)
    as_text("bindings: host", binding.host, empty=False)
    return binding


def check_filter(argument: str, wanted: AclFilter) -> AclFilter:
    """Return the filter unchanged. Raises TypeError or ValueError if a field is invalid."""
    as_instance(argument, wanted, AclFilter)
    for value, cls in (
        (wanted.resource_type, ResourceType),
        (wanted.pattern_type, PatternType),
        (wanted.operation, AclOperation),
        (wanted.permission, AclPermission),
    ):
        if not isinstance(value, cls):
            raise TypeError(f"{argument}: {value!r} must be of {cls.__name__}")
        if value.name == "UNKNOWN":
            raise ValueError(f"{argument}: {cls.__name__}.UNKNOWN matches nothing")
    for name in ("name", "principal", "host"):
        if getattr(wanted, name) is not None:
            as_text(f"{argument}: {name}", getattr(wanted, name))
    return wanted


class Acls(AdminApi):
    """The sub-client `admin.acls`, for access control lists.

    All calls raise SecurityDisabled in a cluster without `authorizer.class.name`, and
    ClusterAuthorizationFailedError for a user who may not describe or alter the cluster. Brokers
    apply a change shortly after the call has returned.
    """

    async def describe(
        self, filter: AclFilter | None = None, *, timeout_ms: float | None = None
    ) -> list[AclBinding]:
        """Return the entries that a filter selects (Java: describeAcls, KIP-140, Kafka 0.11).

        Args:
            filter: the filter; by default all entries are returned.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.
        """
        wanted = check_filter("filter", AclFilter() if filter is None else filter)
        deadline = self._deadline(timeout_ms)

        def build(version: int) -> DescribeAclsRequest:
            return DescribeAclsRequest(**_fields(wanted, version))

        async def ask(left: list[AclFilter]) -> Outcomes[AclFilter, list[AclBinding]]:
            response = await self._router.to_any(Call(DescribeAclsRequest, build), deadline)
            if response.error_code:
                return {wanted: for_code(response.error_code)(response.error_message or "describe")}
            return {
                wanted: [_binding(each, one) for each in response.resources for one in each.acls]
            }

        return (await settle(self._router, [wanted], ask, deadline))[wanted]

    async def create(
        self, bindings: Iterable[AclBinding], *, timeout_ms: float | None = None
    ) -> None:
        """Create entries (Java: createAcls, KIP-140, Kafka 0.11). Entries that exist are kept.

        Args:
            bindings: the entries.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises ValueError for an invalid entry. Raises the error of a single entry, such as
        InvalidRequestError; AdminItemsError, with the errors of the failed entries, if one of
        several fails.
        """
        wanted = [check_binding(binding) for binding in as_list("bindings", bindings, "entries")]
        deadline = self._deadline(timeout_ms)

        async def ask(left: list[AclBinding]) -> Outcomes[AclBinding, None]:
            def build(version: int) -> CreateAclsRequest:
                return CreateAclsRequest(creations=[_creation(one, version) for one in left])

            response = await self._router.to_any(Call(CreateAclsRequest, build), deadline)
            _check_count(len(response.results), len(left))
            return {
                binding: error_of(result.error_code, result.error_message, binding)
                for binding, result in zip(left, response.results, strict=True)
            }

        await settle(self._router, wanted, ask, deadline)

    async def delete(
        self, filters: Iterable[AclFilter], *, timeout_ms: float | None = None
    ) -> dict[AclFilter, list[AclBinding]]:
        """Delete all entries that the filters select (Java: deleteAcls, KIP-140, Kafka 0.11).

        Args:
            filters: the filters. `AclFilter.of` selects a single entry, `AclFilter()` all entries.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Returns the deleted entries of each filter. If the response to an attempt was lost, the
        result lacks the entries that this attempt deleted. Raises the error of a single filter;
        AdminItemsError, with the errors of the failed filters, if one of several fails. If a filter
        selects several entries and some cannot be deleted, the error of this filter is itself an
        AdminItemsError, with the errors of these entries.
        """
        chosen = [check_filter("filters", one) for one in as_list("filters", filters, "filters")]
        deadline = self._deadline(timeout_ms)
        entries: dict[AclFilter, dict[AclBinding, KafkaError | None]] = {}

        async def ask(left: list[AclFilter]) -> Outcomes[AclFilter, list[AclBinding]]:
            def build(version: int) -> DeleteAclsRequest:
                return DeleteAclsRequest(
                    filters=[DeleteAclsFilter(**_fields(one, version)) for one in left]
                )

            response = await self._router.to_any(Call(DeleteAclsRequest, build), deadline)
            _check_count(len(response.filter_results), len(left))
            return {
                wanted: _deleted(wanted, result, entries.setdefault(wanted, {}))
                for wanted, result in zip(left, response.filter_results, strict=True)
            }

        return await settle(self._router, chosen, ask, deadline)


# -- Requests

_FIRST_WITH_PATTERNS = 1  # version of DescribeAcls, CreateAcls and DeleteAcls (KIP-290)


def _deleted(
    wanted: AclFilter,
    result: DeleteAclsFilterResult,
    known: dict[AclBinding, KafkaError | None],
) -> list[AclBinding] | KafkaError:
    """Return the entries that all attempts together have deleted for a filter, or an error.

    `known` has the entries of earlier attempts and their errors; this function updates it. The
    error is the first of these: the error of the filter; a retriable error of an entry, so that the
    filter is sent again; the error of a filter's only entry; an AdminItemsError with the errors of
    several entries.
    """
    failed = error_of(result.error_code, result.error_message, wanted)
    if failed is not None:
        return failed
    named = {_binding(each, each): each for each in result.matching_acls}
    for binding in [binding for binding, error in known.items() if error is not None]:
        if binding not in named:
            # An earlier attempt could not delete the entry, but it does not exist any more.
            del known[binding]
    for binding, each in named.items():
        known[binding] = error_of(each.error_code, each.error_message, binding)
    retriable = [error for error in known.values() if error is not None and error.retriable]
    if retriable:
        return retriable[0]
    try:
        return list(outcome(known))
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
    return PatternType.LITERAL  # the only type in this version


def _fields(wanted: AclFilter, version: int) -> dict[str, Any]:
    """Return the fields of DescribeAcls and DeleteAcls requests that represent a filter."""
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
    """Convert an ACL entry of a response. `resource` has the resource pattern; `each` has the
    principal, host, operation and permission. A DeleteAcls response has all of these fields in one
    object: pass this object as both arguments."""
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
