"""Entries of access control lists, and filters that choose some of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiokafka.admin._values import Value
from aiokafka.admin.enums import AclOperation, AclPermission, PatternType, ResourceType

__all__ = ["AclBinding", "AclFilter", "ResourcePattern"]

_NOT_IN_ENTRIES = {"UNKNOWN", "ANY", "MATCH"}


@dataclass(frozen=True)
class ResourcePattern(Value):
    """The resources that an ACL is about. It can be a key of a dict."""

    resource_type: ResourceType
    """TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN or USER."""

    name: str
    """The name, or with PREFIXED its beginning. "*" as a LITERAL stands for every name. The only
    CLUSTER is "kafka-cluster"."""

    pattern_type: PatternType = PatternType.LITERAL
    """LITERAL, or PREFIXED (KIP-290, Kafka 2.0)."""


@dataclass(frozen=True)
class AclBinding(Value):
    """One entry of an access control list: who may or may not do what, and from where."""

    pattern: ResourcePattern
    principal: str
    """Such as ``User:alice``; ``User:*`` stands for every user."""

    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    host: str = "*"
    """The address of the client; "*" stands for every address."""


@dataclass(frozen=True)
class AclFilter(Value):
    """Chooses entries of access control lists; what is not given matches everything."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    """With MATCH, all entries that apply to the resource `name`: the literal ones, those for "*",
    and those whose prefix fits."""

    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY

    @classmethod
    def of(cls, binding: AclBinding) -> AclFilter:
        """Return a filter that chooses exactly this entry."""
        pattern = binding.pattern
        return cls(
            resource_type=pattern.resource_type,
            name=pattern.name,
            pattern_type=pattern.pattern_type,
            principal=binding.principal,
            host=binding.host,
            operation=binding.operation,
            permission=binding.permission,
        )


def check_binding(binding: Any) -> AclBinding:
    """Raise TypeError or ValueError for what cannot be an entry."""
    if not isinstance(binding, AclBinding):
        raise TypeError(f"bindings: must be AclBinding objects, not {binding!r}")
    pattern = binding.pattern
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
    kind, colon, name = binding.principal.partition(":")
    if not (kind and colon and name):
        raise ValueError(
            f"bindings: {binding.principal!r} must be a principal such as 'User:alice'"
        )
    for what, text in (("a name", pattern.name), ("a host", binding.host)):
        if not text:
            raise ValueError(f"bindings: {what} must not be empty")
    return binding


def check_filter(argument: str, wanted: Any) -> AclFilter:
    """Raise TypeError or ValueError for what cannot be a filter."""
    if not isinstance(wanted, AclFilter):
        raise TypeError(f"{argument}: must be an AclFilter, not {wanted!r}")
    for value, cls in (
        (wanted.resource_type, ResourceType),
        (wanted.pattern_type, PatternType),
        (wanted.operation, AclOperation),
        (wanted.permission, AclPermission),
    ):
        if not isinstance(value, cls):
            raise TypeError(f"{argument}: {value!r} must be of {cls.__name__}")
        if value.name == "UNKNOWN":
            raise ValueError(f"{argument}: {cls.__name__}.UNKNOWN chooses nothing")
    return wanted
