"""Describing groups of Kafka Streams instances (KIP-1071)."""

from aiokafka.protocol.schema import (
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


class KeyValue(Struct):
    key: Str
    value: Str


class TopicInfo(Struct):
    name: Str
    partitions: I32
    replication_factor: I16
    topic_configs: list[KeyValue]


class Subtopology(Struct):
    subtopology_id: Str
    source_topics: list[Str]
    repartition_sink_topics: list[Str]
    state_changelog_topics: list[TopicInfo]
    repartition_source_topics: list[TopicInfo]


class Topology(Struct):
    epoch: I32
    subtopologies: list[Subtopology] | None = None


class Endpoint(Struct):
    host: Str
    port: U16


class TaskOffset(Struct):
    subtopology_id: Str
    partition: I32
    offset: I64


class TaskIds(Struct):
    subtopology_id: Str
    partitions: list[I32]


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


class DescribedGroup(Struct):
    error_code: I16 = 0
    error_message: NStr = None
    group_id: Str
    group_state: Str
    group_epoch: I32
    assignment_epoch: I32
    topology: Topology | None = None
    members: list[Member]
    authorized_operations: I32 = -2147483648


class StreamsGroupDescribeResponse(Response):
    throttle_time_ms: I32 = 0
    groups: list[DescribedGroup]


class StreamsGroupDescribeRequest(
    Request[StreamsGroupDescribeResponse], api_key=89, versions="0", flexible="0+"
):
    """Describe streams groups."""

    group_ids: list[Str]
    include_authorized_operations: Bool
