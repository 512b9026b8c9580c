"""The requests of the `protocol` package of aiokafka 0.14, with its names and versions.

A request without a version in its name is sent in the newest version that the broker supports.
Times are in milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from aiokafka._upstream.messages import Family, Request, RequestStruct, Response, versioned
from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol.messages import (
    acls,
    configs,
    fetch,
    group_members,
    group_offsets,
    groups,
    metadata,
    produce,
    quotas,
    replicas,
    sasl,
    topics,
    transactions,
)

__all__ = [
    "AddOffsetsToTxnRequest",
    "AddPartitionsToTxnRequest",
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
    "EndTxnRequest",
    "FetchRequest",
    "FindCoordinatorRequest",
    "HeartbeatRequest",
    "InitProducerIdRequest",
    "JoinGroupRequest",
    "LeaveGroupRequest",
    "ListGroupsRequest",
    "ListPartitionReassignmentsRequest",
    "MetadataRequest",
    "OffsetCommitRequest",
    "OffsetFetchRequest",
    "OffsetRequest",
    "OffsetResetStrategy",
    "ProduceRequest",
    "Request",
    "RequestStruct",
    "Response",
    "SaslAuthenticateRequest",
    "SaslHandShakeRequest",
    "SyncGroupRequest",
    "TxnOffsetCommitRequest",
]


# -- Topics, configurations, groups and more


_ERRORS = "topic_errors(topic error_code error_message)"
_ACL = "principal host operation permission_type"
_RESOURCE = "error_code error_message resource_type resource_name"


class ApiVersionRequest(
    Request,
    family=Family(
        metadata.ApiVersionsRequest,
        "",
        "error_code api_versions(api_key min_version max_version) throttle_time_ms",
        versions=(0, 1, 2),
    ),
):
    """Request the API versions that a broker supports."""

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
    """Create topics. Each topic is a tuple: name, number of partitions, replication factor, brokers
    by partition (a mapping or pairs), and configuration (a mapping or pairs)."""

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
    """Add partitions to topics. `topic_partitions` has tuples (topic, (new number of partitions,
    brokers of each new partition or None))."""

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
    """Delete records before an offset; `topics` has tuples (topic, [(partition, offset)])."""

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
        """Return the fields; from version 2 on every struct also has an empty dict of tagged
        fields."""
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
    """Describe the configuration of resources. `resources` has tuples (type, name, [setting]), with
    None in place of the list for all settings."""

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
    """Replace the configuration of resources. `resources` has tuples (type, name, [(setting,
    value)])."""

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
    """Send the client's next SASL token; the response has the broker's token."""

    def __init__(self, payload: bytes) -> None:
        super().__init__(sasl_auth_bytes=payload)


class _AclRequest(Request):
    """Base of the requests for access control lists. Version 0 has no pattern type."""

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
    """List the ACL entries that match a filter."""


class CreateAclsRequest(
    _AclRequest,
    family=Family(
        acls.CreateAclsRequest,
        f"creations(resource_type resource_name resource_pattern_type {_ACL})",
        "throttle_time_ms creation_responses(error_code error_message)",
        versions=(0, 1),
    ),
):
    """Add an ACL entry."""

    def values(self, version: int) -> Mapping[str, Any]:
        """Return the only entry as a tuple in the field `creations`."""
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
    """Delete the ACL entries that match a filter."""

    def values(self, version: int) -> Mapping[str, Any]:
        """Return the only filter as a tuple in the field `filters`."""
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
    """Describe the client quotas that match all `components`, which are tuples (entity type, match
    type, name)."""

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
    """Reassign partitions to brokers. `topics` has tuples (topic, [(partition, brokers, {})], {}),
    with None in place of brokers to cancel a reassignment; the empty dicts are the tagged fields.
    """

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
    """List the reassignments in progress. `topics` has tuples (topic, [partition], {}), where the
    empty dict is the tagged fields, or is None for all topics."""

    def __init__(self, timeout_ms: int, topics: Iterable[Any] | None, tags: Any) -> None:
        listed = None if topics is None else list(topics)
        super().__init__(timeout_ms=timeout_ms, topics=listed, tags=tags)


# -- Offsets of groups


class OffsetCommitRequest(
    Request,
    family=Family(
        group_offsets.OffsetCommitRequest,
        "consumer_group consumer_group_generation_id consumer_id retention_time"
        " topics(topic partitions(partition offset timestamp metadata))",
        "throttle_time_ms topics(topic partitions(partition error_code))",
        versions=(2, 3),
        others=(0, 1),
    ),
):
    """Commit offsets of a group. `topics` has tuples (topic, [(partition, offset, metadata)])."""

    DEFAULT_GENERATION_ID = -1
    DEFAULT_RETENTION_TIME = -1

    def __init__(
        self,
        consumer_group: str,
        consumer_group_generation_id: int,
        consumer_id: str,
        retention_time: int,
        topics: Iterable[tuple[str, list[tuple[int, int, str]]]],
    ) -> None:
        super().__init__(
            consumer_group=consumer_group,
            consumer_group_generation_id=consumer_group_generation_id,
            consumer_id=consumer_id,
            retention_time=retention_time,
            topics=list(topics),
        )


class OffsetFetchRequest(
    Request,
    family=Family(
        group_offsets.OffsetFetchRequest,
        "consumer_group topics(topic partitions)",
        "throttle_time_ms topics(topic partitions(partition offset metadata error_code))"
        " error_code",
        versions=(1, 2, 3),
        others=(0,),
    ),
):
    """Fetch the committed offsets of a group. `partitions` has tuples (topic, [partition]), or is
    None for all partitions."""

    def __init__(
        self, consumer_group: str, partitions: Iterable[tuple[str, list[int]]] | None
    ) -> None:
        topics = None if partitions is None else list(partitions)
        super().__init__(consumer_group=consumer_group, topics=topics)

    def build(self, request_struct_class: type[RequestStruct]) -> RequestStruct:
        """Return this request as an instance of `request_struct_class`. Versions 0 and 1 raise
        IncompatibleBrokerVersion for `partitions=None`."""
        if request_struct_class.API_VERSION < 2 and self._fields["topics"] is None:
            raise IncompatibleBrokerVersion("partitions=None needs OffsetFetchRequest v2 or newer")
        return super().build(request_struct_class)


# -- Finding coordinators


class FindCoordinatorRequest(
    Request,
    family=Family(
        metadata.FindCoordinatorRequest,
        "coordinator_key coordinator_type",
        "throttle_time_ms error_code error_message coordinator_id host port",
        versions=(0, 1),
    ),
):
    """Find the coordinator of a group (type 0) or a transactional id (1)."""

    NEEDED = ("coordinator_type",)

    def __init__(self, coordinator_key: str, coordinator_type: int) -> None:
        super().__init__(coordinator_key=coordinator_key, coordinator_type=coordinator_type)


# -- Reading record batches


class FetchRequest(
    Request,
    family=Family(
        fetch.FetchRequest,
        "replica_id max_wait_time min_bytes max_bytes isolation_level session_id session_epoch"
        " topics(topic"
        " partitions(partition current_leader_epoch fetch_offset log_start_offset max_bytes))"
        " forgotten_topics_data(topic partitions) rack_id",
        "throttle_time_ms error_code session_id topics(topics"
        " partitions(partition error_code highwater_offset last_stable_offset log_start_offset"
        " aborted_transactions(producer_id first_offset) preferred_read_replica message_set))",
        versions=(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11),
        others=(0,),
    ),
):
    """Fetch records of partitions. `topics` has tuples (topic, [(partition, offset,
    max_bytes)])."""

    NEEDED = ("isolation_level",)

    def __init__(
        self,
        max_wait_time: int,
        min_bytes: int,
        max_bytes: int,
        isolation_level: int,
        topics: Iterable[tuple[str, list[tuple[int, int, int]]]],
        rack_id: str = "",
    ) -> None:
        super().__init__(
            replica_id=-1,
            max_wait_time=max_wait_time,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation_level,
            session_id=0,
            session_epoch=-1,
            topics=list(topics),
            forgotten_topics_data=[],
            rack_id=rack_id,
        )

    def values(self, version: int) -> Mapping[str, Any]:
        """Return the fields. From version 5 on, partitions also have a log start offset, and from
        version 9 on a leader epoch; both are -1 (unknown)."""
        epoch = (-1,) if version >= 9 else ()
        log_start = (-1,) if version >= 5 else ()
        topics = [
            (topic, [(p, *epoch, offset, *log_start, limit) for p, offset, limit in partitions])
            for topic, partitions in self._fields["topics"]
        ]
        return {**self._fields, "topics": topics}


# -- The classic group protocol


class JoinGroupRequest(
    Request,
    family=Family(
        group_members.JoinGroupRequest,
        "group session_timeout rebalance_timeout member_id group_instance_id protocol_type"
        " group_protocols(protocol_name protocol_metadata)",
        "throttle_time_ms error_code generation_id group_protocol leader_id member_id"
        " members(member_id group_instance_id member_metadata)",
        versions=(0, 1, 2, 5),
    ),
):
    """Join a group. Protocols are tuples of name and metadata; times are in milliseconds."""

    UNKNOWN_MEMBER_ID = ""

    def __init__(
        self,
        group: str,
        session_timeout: int,
        rebalance_timeout: int,
        member_id: str,
        group_instance_id: str | None,
        protocol_type: str,
        group_protocols: Iterable[tuple[str, bytes]],
    ) -> None:
        super().__init__(
            group=group,
            session_timeout=session_timeout,
            rebalance_timeout=rebalance_timeout,
            member_id=member_id,
            group_instance_id=group_instance_id,
            protocol_type=protocol_type,
            group_protocols=list(group_protocols),
        )


class SyncGroupRequest(
    Request,
    family=Family(
        group_members.SyncGroupRequest,
        "group generation_id member_id group_instance_id"
        " group_assignment(member_id member_metadata)",
        "throttle_time_ms error_code member_assignment",
        versions=(0, 1, 3),
    ),
):
    """Request the member's assignment. The group leader also sends the assignments of all members,
    as tuples of member id and bytes."""

    def __init__(
        self,
        group: str,
        generation_id: int,
        member_id: str,
        group_instance_id: str | None,
        group_assignment: Iterable[tuple[str, bytes]],
    ) -> None:
        super().__init__(
            group=group,
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=group_instance_id,
            group_assignment=list(group_assignment),
        )


class HeartbeatRequest(
    Request,
    family=Family(
        group_members.HeartbeatRequest,
        "group generation_id member_id",
        "throttle_time_ms error_code",
        versions=(0, 1),
    ),
):
    """Keep the session of a group member alive."""

    def __init__(self, group: str, generation_id: int, member_id: str) -> None:
        super().__init__(group=group, generation_id=generation_id, member_id=member_id)


class LeaveGroupRequest(
    Request,
    family=Family(
        group_members.LeaveGroupRequest,
        "group member_id",
        "throttle_time_ms error_code",
        versions=(0, 1),
    ),
):
    """Remove a member from its group."""

    def __init__(self, group: str, member_id: str) -> None:
        super().__init__(group=group, member_id=member_id)


# -- Brokers, topics and leaders


class MetadataRequest(
    Request,
    family=Family(
        metadata.MetadataRequest,
        "topics allow_auto_topic_creation",
        "throttle_time_ms brokers(node_id host port rack) cluster_id controller_id"
        " topics(error_code topic is_internal"
        " partitions(error_code partition leader replicas isr offline_replicas))",
        versions=(0, 1, 2, 3, 4, 5),
    ),
):
    """Request metadata of the cluster and of topics.

    Args:
        topics: The topic names; None requests all topics, an empty list no topics.
        allow_auto_topic_creation: Whether the broker may create missing topics; None means True.
    """

    def __init__(
        self, topics: Iterable[str] | None = None, allow_auto_topic_creation: bool | None = None
    ) -> None:
        super().__init__(
            topics=None if topics is None else list(topics),
            allow_auto_topic_creation=allow_auto_topic_creation is not False,
        )

    def values(self, version: int) -> Mapping[str, Any]:
        """Return the fields. In version 0, an empty list replaces None: both mean all topics."""
        if version == 0 and self._fields["topics"] is None:
            return {**self._fields, "topics": []}
        return self._fields


# -- Offsets by timestamp


class OffsetResetStrategy:
    """The timestamps that stand for the latest and the earliest offset; NONE means no reset."""

    LATEST = fetch.LATEST
    EARLIEST = fetch.EARLIEST
    NONE = 0


class OffsetRequest(
    Request,
    family=Family(
        fetch.ListOffsetsRequest,
        "replica_id isolation_level"
        " topics(topic partitions(partition current_leader_epoch timestamp max_offsets))",
        "throttle_time_ms"
        " topics(topic partitions(partition error_code offsets timestamp offset leader_epoch))",
        versions=(0, 1, 2, 3),
        others=(4, 5),
    ),
):
    """Look up offsets by timestamp. `topics` has tuples (topic, [(partition, timestamp)]); the
    `replica_id` of clients is -1."""

    NEEDED = ("isolation_level",)

    def __init__(
        self,
        replica_id: int,
        isolation_level: int,
        topics: Iterable[tuple[str, list[tuple[int, int]]]],
    ) -> None:
        super().__init__(
            replica_id=replica_id, isolation_level=isolation_level, topics=list(topics)
        )

    def values(self, version: int) -> Mapping[str, Any]:
        """Return the fields; in version 0 each partition also has the maximum number of offsets, 1.

        Version 0 raises IncompatibleBrokerVersion for a timestamp other than LATEST and EARLIEST.
        """
        if version:
            return self._fields
        topics = []
        for topic, partitions in self._fields["topics"]:
            if any(timestamp >= 0 for _, timestamp in partitions):
                raise IncompatibleBrokerVersion("a timestamp needs OffsetRequest v1 or newer")
            topics.append((topic, [(partition, at, 1) for partition, at in partitions]))
        return {**self._fields, "topics": topics}


# -- Appending record batches


class ProduceRequest(
    Request,
    family=Family(
        produce.ProduceRequest,
        "transactional_id required_acks timeout topics(topic partitions(partition messages))",
        "topics(topic partitions(partition error_code offset timestamp log_start_offset"
        " record_errors(batch_index batch_index_error_message) error_message))"
        " throttle_time_ms",
        versions=(0, 1, 2, 3, 4, 5, 6, 7),
        others=(8,),
    ),
):
    """Append record batches. `topics` has tuples (topic, [(partition, bytes)])."""

    NEEDED = ("transactional_id",)

    def __init__(
        self,
        transactional_id: str | None,
        required_acks: int,
        timeout: int,
        topics: Iterable[tuple[str, list[tuple[int, bytes]]]],
    ) -> None:
        super().__init__(
            transactional_id=transactional_id,
            required_acks=required_acks,
            timeout=timeout,
            topics=list(topics),
        )


# -- Requests of transactional producers


_CODE = "throttle_time_ms error_code"
_CODES = "throttle_time_ms errors(topic partition_errors(partition error_code))"


class InitProducerIdRequest(
    Request,
    family=Family(
        produce.InitProducerIdRequest,
        "transactional_id transaction_timeout_ms",
        f"{_CODE} producer_id producer_epoch",
        versions=(0,),
    ),
):
    """Get a producer id; with a transactional id, fence the previous producer of that id."""

    def __init__(self, transactional_id: str | None, transaction_timeout_ms: int) -> None:
        super().__init__(
            transactional_id=transactional_id, transaction_timeout_ms=transaction_timeout_ms
        )


class AddPartitionsToTxnRequest(
    Request,
    family=Family(
        transactions.AddPartitionsToTxnRequest,
        "transactional_id producer_id producer_epoch topics(topic partitions)",
        _CODES,
        versions=(0,),
    ),
):
    """Add partitions to the transaction. `topics` has tuples (topic, [partition])."""

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        topics: Iterable[tuple[str, list[int]]],
    ) -> None:
        super().__init__(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            topics=list(topics),
        )


class AddOffsetsToTxnRequest(
    Request,
    family=Family(
        transactions.AddOffsetsToTxnRequest,
        "transactional_id producer_id producer_epoch group_id",
        _CODE,
        versions=(0,),
    ),
):
    """Add a group to the transaction, before committing offsets of the group."""

    def __init__(
        self, transactional_id: str, producer_id: int, producer_epoch: int, group_id: str
    ) -> None:
        super().__init__(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            group_id=group_id,
        )


class EndTxnRequest(
    Request,
    family=Family(
        transactions.EndTxnRequest,
        "transactional_id producer_id producer_epoch transaction_result",
        _CODE,
        versions=(0,),
    ),
):
    """Commit or abort the transaction."""

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        transaction_result: bool,
    ) -> None:
        super().__init__(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=transaction_result,
        )


class TxnOffsetCommitRequest(
    Request,
    family=Family(
        transactions.TxnOffsetCommitRequest,
        "transactional_id group_id producer_id producer_epoch"
        " topics(topic partitions(partition offset metadata))",
        _CODES,
        versions=(0,),
    ),
):
    """Commit offsets of a group in the transaction. `topics` has tuples (topic, [(partition,
    offset, metadata)])."""

    def __init__(
        self,
        transactional_id: str,
        group_id: str,
        producer_id: int,
        producer_epoch: int,
        topics: Iterable[tuple[str, list[tuple[int, int, str]]]],
    ) -> None:
        super().__init__(
            transactional_id=transactional_id,
            group_id=group_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            topics=list(topics),
        )


def __getattr__(name: str) -> Any:
    return versioned(globals(), name)
