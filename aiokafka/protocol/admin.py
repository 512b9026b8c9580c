"""Import path of aiokafka, kept as a shim: topics, configurations, groups and more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka.protocol._tuples import Family, Request, versioned
from aiokafka.protocol.messages import (
    acls,
    api_versions,
    configs,
    groups,
    quotas,
    replicas,
    sasl,
    topics,
)

__all__ = [
    "AlterConfigsRequest",
    "AlterPartitionReassignmentsRequest",
    "ApiVersionRequest",
    "CreateAclsRequest",
    "CreatePartitionsRequest",
    "CreateTopicsRequest",
    "DeleteAclsRequest",
    "DeleteGroupsRequest",
    "DeleteRecordsRequest",
    "DeleteTopicsRequest",
    "DescribeAclsRequest",
    "DescribeClientQuotasRequest",
    "DescribeConfigsRequest",
    "DescribeGroupsRequest",
    "ListGroupsRequest",
    "ListPartitionReassignmentsRequest",
    "SaslAuthenticateRequest",
    "SaslHandShakeRequest",
]

_ERRORS = "topic_errors(topic error_code error_message)"
_ACL = "principal host operation permission_type"
_RESOURCE = "error_code error_message resource_type resource_name"


class ApiVersionRequest(
    Request,
    family=Family(
        api_versions.ApiVersionsRequest,
        "",
        "error_code api_versions(api_key min_version max_version) throttle_time_ms",
        versions=(0, 1, 2),
    ),
):
    """Ask for the versions that a broker supports."""

    def __init__(self) -> None:
        super().__init__()


class CreateTopicsRequest(
    Request,
    family=Family(
        topics.CreateTopicsRequest,
        "create_topic_requests(topic num_partitions replication_factor"
        " replica_assignment(partition_id replicas) configs(config_key config_value))"
        " timeout validate_only",
        f"throttle_time_ms {_ERRORS}",
        versions=(0, 1, 2, 3),
    ),
):
    """Create topics from tuples: topic, number of partitions, replication factor, brokers by
    partition (a mapping or pairs), and settings (a mapping or pairs)."""

    NEEDED = ("validate_only",)

    def __init__(
        self,
        create_topic_requests: Iterable[tuple[str, int, int, Any, Any]],
        timeout: int,
        validate_only: bool = False,
    ) -> None:
        super().__init__(
            create_topic_requests=[
                (name, count, replication, _pairs(brokers), _pairs(settings))
                for name, count, replication, brokers, settings in create_topic_requests
            ],
            timeout=timeout,
            validate_only=validate_only,
        )


def _pairs(given: Any) -> list[tuple[Any, Any]]:
    return list(given.items() if isinstance(given, Mapping) else given or ())


class DeleteTopicsRequest(
    Request,
    family=Family(
        topics.DeleteTopicsRequest,
        "topics timeout",
        "throttle_time_ms topic_error_codes(topic error_code)",
        versions=(0, 1, 2, 3),
    ),
):
    """Delete topics by name."""

    def __init__(self, topics: Iterable[str], timeout: int) -> None:
        super().__init__(topics=list(topics), timeout=timeout)


class CreatePartitionsRequest(
    Request,
    family=Family(
        topics.CreatePartitionsRequest,
        "topic_partitions(topic count assignment) timeout validate_only",
        f"throttle_time_ms {_ERRORS}",
        versions=(0, 1),
    ),
):
    """Give topics more partitions: (topic, (new number, brokers of each new one or None))."""

    def __init__(
        self,
        topic_partitions: Iterable[tuple[str, tuple[int, list[list[int]] | None]]],
        timeout: int,
        validate_only: bool,
    ) -> None:
        super().__init__(
            topic_partitions=[(topic, *new) for topic, new in topic_partitions],
            timeout=timeout,
            validate_only=validate_only,
        )


class DeleteRecordsRequest(
    Request,
    family=Family(
        topics.DeleteRecordsRequest,
        "topics(name partitions(partition_index offset)) timeout_ms",
        "throttle_time_ms topics(name partitions(partition_index low_watermark error_code))",
        versions=(0, 1, 2),
    ),
):
    """Delete the records before an offset: (topic, [(partition, offset)])."""

    NEEDED = ("tags",)

    def __init__(
        self,
        topics: Iterable[tuple[str, Iterable[tuple[int, int]]]],
        timeout_ms: int,
        tags: dict[int, bytes] | None = None,
    ) -> None:
        listed = [(topic, list(partitions)) for topic, partitions in topics]
        super().__init__(topics=listed, timeout_ms=timeout_ms, tags=tags)

    def values(self, version: int) -> Mapping[str, Any]:
        """Return the fields; from version 2 on every struct has tagged fields, all unused."""
        if version < 2:
            return self._fields
        listed: list[tuple[str, list[Any], Any]] = [
            (topic, [(partition, offset, {}) for partition, offset in partitions], {})
            for topic, partitions in self._fields["topics"]
        ]
        return {**self._fields, "topics": listed}


class DescribeConfigsRequest(
    Request,
    family=Family(
        configs.DescribeConfigsRequest,
        "resources(resource_type resource_name config_names) include_synonyms",
        f"throttle_time_ms resources({_RESOURCE} config_entries(config_names config_value"
        " read_only is_default config_source is_sensitive"
        " config_synonyms(config_name config_value config_source)))",
        versions=(0, 1, 2),
    ),
):
    """Read settings: (type, name, [setting]), None for all settings."""

    NEEDED = ("include_synonyms",)

    def __init__(self, resources: Iterable[Any], include_synonyms: bool = False) -> None:
        super().__init__(resources=list(resources), include_synonyms=include_synonyms)


class AlterConfigsRequest(
    Request,
    family=Family(
        configs.AlterConfigsRequest,
        "resources(resource_type resource_name config_entries(config_name config_value))"
        " validate_only",
        f"throttle_time_ms resources({_RESOURCE})",
        versions=(0, 1),
    ),
):
    """Replace settings: (type, name, [(setting, value)])."""

    def __init__(self, resources: Iterable[Any], validate_only: bool = False) -> None:
        super().__init__(resources=list(resources), validate_only=validate_only)


class ListGroupsRequest(
    Request,
    family=Family(
        groups.ListGroupsRequest,
        "",
        "throttle_time_ms error_code groups(group protocol_type)",
        versions=(0, 1, 2),
    ),
):
    """List the groups that a broker coordinates."""

    def __init__(self) -> None:
        super().__init__()


class DescribeGroupsRequest(
    Request,
    family=Family(
        groups.DescribeGroupsRequest,
        "groups include_authorized_operations",
        "throttle_time_ms groups(error_code group state protocol_type protocol members(member_id"
        " client_id client_host member_metadata member_assignment) authorized_operations)",
        versions=(0, 1, 2, 3),
    ),
):
    """Describe groups of the classic protocol."""

    NEEDED = ("include_authorized_operations",)

    def __init__(self, groups: Iterable[str], include_authorized_operations: bool = False) -> None:
        super().__init__(
            groups=list(groups), include_authorized_operations=include_authorized_operations
        )


class DeleteGroupsRequest(
    Request,
    family=Family(
        groups.DeleteGroupsRequest,
        "groups_names",
        "throttle_time_ms results(group_id error_code)",
        versions=(0, 1),
    ),
):
    """Delete groups without members."""

    def __init__(self, group_names: Iterable[str]) -> None:
        super().__init__(groups_names=list(group_names))


class SaslHandShakeRequest(
    Request,
    family=Family(
        sasl.SaslHandshakeRequest, "mechanism", "error_code enabled_mechanisms", versions=(0, 1)
    ),
):
    """Choose the SASL mechanism."""

    def __init__(self, mechanism: str) -> None:
        super().__init__(mechanism=mechanism)


class SaslAuthenticateRequest(
    Request,
    family=Family(
        sasl.SaslAuthenticateRequest,
        "sasl_auth_bytes",
        "error_code error_message sasl_auth_bytes session_lifetime_ms",
        versions=(0, 1),
    ),
):
    """Exchange one SASL token."""

    def __init__(self, payload: bytes) -> None:
        super().__init__(sasl_auth_bytes=payload)


class _AclRequest(Request):
    """Requests about access control lists. The pattern type of a resource came with version 1."""

    def __init__(
        self,
        resource_type: int,
        resource_name: str | None,
        resource_pattern_type_filter: int,
        principal: str | None,
        host: str | None,
        operation: int,
        permission_type: int,
    ) -> None:
        super().__init__(
            resource_type=resource_type,
            resource_name=resource_name,
            resource_pattern_type_filter=resource_pattern_type_filter,
            principal=principal,
            host=host,
            operation=operation,
            permission_type=permission_type,
        )

    def _row(self, version: int) -> tuple[Any, ...]:
        left_out = () if version else ("resource_pattern_type_filter",)
        return tuple(v for name, v in self._fields.items() if name not in left_out)


class DescribeAclsRequest(
    _AclRequest,
    family=Family(
        acls.DescribeAclsRequest,
        f"resource_type resource_name resource_pattern_type_filter {_ACL}",
        "throttle_time_ms error_code error_message"
        f" resources(resource_type resource_name resource_pattern_type acls({_ACL}))",
        versions=(0, 1),
    ),
):
    """List the entries that match."""


class CreateAclsRequest(
    _AclRequest,
    family=Family(
        acls.CreateAclsRequest,
        f"creations(resource_type resource_name resource_pattern_type {_ACL})",
        "throttle_time_ms creation_responses(error_code error_message)",
        versions=(0, 1),
    ),
):
    """Add an entry."""

    def values(self, version: int) -> Mapping[str, Any]:
        """Return the one entry, as a tuple."""
        return {"creations": [self._row(version)]}


class DeleteAclsRequest(
    _AclRequest,
    family=Family(
        acls.DeleteAclsRequest,
        f"filters(resource_type resource_name resource_pattern_type_filter {_ACL})",
        "throttle_time_ms filter_responses(error_code error_message matching_acls(error_code"
        f" error_message resource_type resource_name resource_pattern_type {_ACL}))",
        versions=(0, 1),
    ),
):
    """Delete the entries that match."""

    def values(self, version: int) -> Mapping[str, Any]:
        """Return the one filter, as a tuple."""
        return {"filters": [self._row(version)]}


class DescribeClientQuotasRequest(
    Request,
    family=Family(
        quotas.DescribeClientQuotasRequest,
        "components(entity_type match_type match) strict",
        "throttle_time_ms error_code error_message"
        " entries(entity(entity_type entity_name) values(name value))",
        versions=(0,),
    ),
):
    """Read quotas: (entity type, match type, name)."""

    def __init__(self, components: Iterable[tuple[str, int, str | None]], strict: bool) -> None:
        super().__init__(components=list(components), strict=strict)


class AlterPartitionReassignmentsRequest(
    Request,
    family=Family(
        replicas.AlterPartitionReassignmentsRequest,
        "timeout_ms topics(name partitions(partition_index replicas))",
        "throttle_time_ms error_code error_message"
        " responses(name partitions(partition_index error_code error_message))",
        versions=(0,),
    ),
):
    """Move replicas: (topic, [(partition, brokers or None, {})], {})."""

    def __init__(self, timeout_ms: int, topics: Iterable[Any], tags: Any) -> None:
        super().__init__(timeout_ms=timeout_ms, topics=list(topics), tags=tags)


class ListPartitionReassignmentsRequest(
    Request,
    family=Family(
        replicas.ListPartitionReassignmentsRequest,
        "timeout_ms topics(name partition_index)",
        "throttle_time_ms error_code error_message topics(name"
        " partitions(partition_index replicas adding_replicas removing_replicas))",
        versions=(0,),
    ),
):
    """List reassignments in progress: (topic, [partition], {})."""

    def __init__(self, timeout_ms: int, topics: Iterable[Any] | None, tags: Any) -> None:
        listed = None if topics is None else list(topics)
        super().__init__(timeout_ms=timeout_ms, topics=listed, tags=tags)


def __getattr__(name: str) -> Any:
    return versioned(globals(), name)
