"""Messages for partition reassignments and leader elections."""

from aiokafka.protocol.schema import (
    I8,
    I16,
    I32,
    Bool,
    NStr,
    Request,
    Response,
    Str,
    Struct,
    field,
)


class ReassignablePartitionResponse(Struct):
    partition_index: I32
    error_code: I16 = 0
    error_message: NStr


class ReassignableTopicResponse(Struct):
    name: Str
    partitions: list[ReassignablePartitionResponse]


class AlterPartitionReassignmentsResponse(Response):
    throttle_time_ms: I32 = 0
    allow_replication_factor_change: Bool = field("1+", default=True, ignorable=True)
    error_code: I16 = 0
    error_message: NStr
    responses: list[ReassignableTopicResponse]


class ReassignablePartition(Struct):
    partition_index: I32
    replicas: list[I32] | None = None  # None cancels a reassignment


class ReassignableTopic(Struct):
    name: Str
    partitions: list[ReassignablePartition]


class AlterPartitionReassignmentsRequest(
    Request[AlterPartitionReassignmentsResponse], api_key=45, versions="0-1", flexible="0+"
):
    """Start or cancel reassignments of partitions to brokers (KIP-455)."""

    timeout_ms: I32 = 60000
    allow_replication_factor_change: Bool = field("1+", default=True)  # KIP-860
    topics: list[ReassignableTopic]


class OngoingPartitionReassignment(Struct):
    partition_index: I32
    replicas: list[I32]
    adding_replicas: list[I32]
    removing_replicas: list[I32]


class OngoingTopicReassignment(Struct):
    name: Str
    partitions: list[OngoingPartitionReassignment]


class ListPartitionReassignmentsResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr
    topics: list[OngoingTopicReassignment]


class ListPartitionReassignmentsTopics(Struct):
    name: Str
    partition_indexes: list[I32]


class ListPartitionReassignmentsRequest(
    Request[ListPartitionReassignmentsResponse], api_key=46, versions="0", flexible="0+"
):
    """List the reassignments in progress (KIP-455)."""

    timeout_ms: I32 = 60000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class PartitionResult(Struct):
    partition_id: I32
    error_code: I16 = 0
    error_message: NStr


class ReplicaElectionResult(Struct):
    topic: Str
    partition_result: list[PartitionResult]


class ElectLeadersResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = field("1+", default=0)
    replica_election_results: list[ReplicaElectionResult]


class TopicPartitions(Struct):
    topic: Str
    partitions: list[I32]


class ElectLeadersRequest(Request[ElectLeadersResponse], api_key=43, versions="0-2", flexible="2+"):
    """Elect the preferred leaders of partitions, or any live replicas (unclean) (KIP-460)."""

    election_type: I8 = field("1+", default=0)  # 0 preferred, 1 unclean
    topic_partitions: list[TopicPartitions] | None  # None: all
    timeout_ms: I32 = 60000
