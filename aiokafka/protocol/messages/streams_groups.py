"""Messages of Kafka Streams groups (KIP-1071)."""

from aiokafka.protocol.schema import (
    I8,
    I16,
    I32,
    I64,
    U16,
    Bool,
    NStr,
    Request,
    Response,
    Str,
    Struct,
    field,
)


class Status(Struct):
    status_code: I8
    status_detail: Str


class TaskIds(Struct):
    subtopology_id: Str
    partitions: list[I32]


class Endpoint(Struct):
    host: Str
    port: U16


class TopicPartition(Struct):
    topic: Str
    partitions: list[I32]


class EndpointToPartitions(Struct):
    user_endpoint: Endpoint
    active_partitions: list[TopicPartition]
    standby_partitions: list[TopicPartition]


class StreamsGroupHeartbeatResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr = None
    member_id: Str
    member_epoch: I32
    heartbeat_interval_ms: I32
    acceptable_recovery_lag_legacy: I32 = field("0", default=0)
    task_offset_interval_ms: I32
    acceptable_recovery_lag: I64 = field("1+", default=-1, ignorable=True)
    status: list[Status] | None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    topology_description_required: Bool = field("1+", default=False)  # KIP-1331
    endpoint_information_epoch: I32
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = None


class KeyValue(Struct):
    key: Str
    value: Str


class TopicInfo(Struct):
    name: Str
    partitions: I32
    replication_factor: I16
    topic_configs: list[KeyValue]


class CopartitionGroup(Struct):
    source_topics: list[I16]
    source_topic_regex: list[I16]
    repartition_source_topics: list[I16]


class Subtopology(Struct):
    subtopology_id: Str
    source_topics: list[Str]
    source_topic_regex: list[Str]
    state_changelog_topics: list[TopicInfo]
    repartition_sink_topics: list[Str]
    repartition_source_topics: list[TopicInfo]
    copartition_groups: list[CopartitionGroup]


class Topology(Struct):
    epoch: I32
    subtopologies: list[Subtopology]


class TaskOffset(Struct):
    subtopology_id: Str
    partition: I32
    offset: I64


class StreamsGroupHeartbeatRequest(
    Request[StreamsGroupHeartbeatResponse], api_key=88, versions="0-1", flexible="0+"
):
    """Join, stay in, or leave a streams group."""

    group_id: Str
    member_id: Str
    member_epoch: I32
    endpoint_information_epoch: I32
    instance_id: NStr = None
    rack_id: NStr = None
    rebalance_timeout_ms: I32 = -1
    topology: Topology | None = None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
    process_id: NStr = None
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue] | None = None
    task_offsets: list[TaskOffset] | None = None
    task_end_offsets: list[TaskOffset] | None = None
    shutdown_application: Bool = False


class DescribedSubtopology(Struct):
    subtopology_id: Str
    source_topics: list[Str]
    repartition_sink_topics: list[Str]
    state_changelog_topics: list[TopicInfo]
    repartition_source_topics: list[TopicInfo]


class DescribedTopology(Struct):
    epoch: I32
    subtopologies: list[DescribedSubtopology] | None = None


class Assignment(Struct):
    active_tasks: list[TaskIds]
    standby_tasks: list[TaskIds]
    warmup_tasks: list[TaskIds]


class Member(Struct):
    member_id: Str
    member_epoch: I32
    instance_id: NStr = None
    rack_id: NStr = None
    client_id: Str
    client_host: Str
    topology_epoch: I32
    process_id: Str
    user_endpoint: Endpoint | None = None
    client_tags: list[KeyValue]
    task_offsets: list[TaskOffset]
    task_end_offsets: list[TaskOffset]
    assignment: Assignment
    target_assignment: Assignment
    is_classic: Bool


class TopologyDescriptionNode(Struct):
    name: Str
    node_type: I8  # 1 source, 2 processor, 3 sink
    source_topics: list[Str]
    sink_topic: NStr = None
    stores: list[Str]
    successors: list[Str]


class TopologyDescriptionSubtopology(Struct):
    subtopology_id: Str
    nodes: list[TopologyDescriptionNode]


class TopologyDescriptionGlobalStore(Struct):
    source: TopologyDescriptionNode
    processor: TopologyDescriptionNode


class TopologyDescription(Struct):
    subtopologies: list[TopologyDescriptionSubtopology]
    global_stores: list[TopologyDescriptionGlobalStore]


class DescribedGroup(Struct):
    error_code: I16 = 0
    error_message: NStr = None
    group_id: Str
    group_state: Str
    group_epoch: I32
    assignment_epoch: I32
    topology: DescribedTopology | None = None
    members: list[Member]
    authorized_operations: I32 = -2147483648
    topology_description: TopologyDescription | None = field("1+", default=None)  # KIP-1331
    topology_description_status: I8 = field("1+", default=0)
    assignor_name: NStr = field("1+", default=None, ignorable=True)  # KIP-1357


class StreamsGroupDescribeResponse(Response):
    throttle_time_ms: I32 = 0
    groups: list[DescribedGroup]


class StreamsGroupDescribeRequest(
    Request[StreamsGroupDescribeResponse], api_key=89, versions="0-1", flexible="0+"
):
    """Describe streams groups."""

    group_ids: list[Str]
    include_authorized_operations: Bool
    include_topology_description: Bool = field("1+", default=False)


class StreamsGroupTopologyDescriptionUpdateResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr = None


class StreamsGroupTopologyDescriptionUpdateRequest(
    Request[StreamsGroupTopologyDescriptionUpdateResponse],
    api_key=93,
    versions="0",
    flexible="0+",
):
    """Store the description of a streams group's topology at the broker (KIP-1331)."""

    group_id: Str
    member_id: Str
    topology_epoch: I32
    topology_description: TopologyDescription
