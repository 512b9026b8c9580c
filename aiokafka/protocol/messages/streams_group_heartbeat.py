"""Membership in groups of Kafka Streams instances (KIP-1071)."""

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
    acceptable_recovery_lag: I32
    task_offset_interval_ms: I32
    status: list[Status] | None
    active_tasks: list[TaskIds] | None = None
    standby_tasks: list[TaskIds] | None = None
    warmup_tasks: list[TaskIds] | None = None
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
    Request[StreamsGroupHeartbeatResponse], api_key=88, versions="0", flexible="0+"
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
