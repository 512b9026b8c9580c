"""Describing groups of the consumer protocol, in which the broker assigns (KIP-848)."""

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
    Uuid,
    field,
)


class TopicPartitions(Struct):
    topic_id: Uuid
    topic_name: Str
    partitions: list[I32]


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class Member(Struct):
    member_id: Str
    instance_id: NStr = None
    rack_id: NStr = None
    member_epoch: I32
    client_id: Str
    client_host: Str
    subscribed_topic_names: list[Str]
    subscribed_topic_regex: NStr = None
    assignment: Assignment
    target_assignment: Assignment
    member_type: I8 = field("1+", default=-1, ignorable=True)


class DescribedGroup(Struct):
    error_code: I16 = 0
    error_message: NStr = None
    group_id: Str
    group_state: Str
    group_epoch: I32
    assignment_epoch: I32
    assignor_name: Str
    members: list[Member]
    authorized_operations: I32 = -2147483648


class ConsumerGroupDescribeResponse(Response):
    throttle_time_ms: I32 = 0
    groups: list[DescribedGroup]


class ConsumerGroupDescribeRequest(
    Request[ConsumerGroupDescribeResponse], api_key=69, versions="0-1", flexible="0+"
):
    """Describe groups of the consumer protocol (KIP-848)."""

    group_ids: list[Str]
    include_authorized_operations: Bool
