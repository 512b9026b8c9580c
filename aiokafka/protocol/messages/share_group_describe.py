"""Describing share groups (KIP-932)."""

from aiokafka.protocol.schema import I16, I32, Bool, NStr, Request, Response, Str, Struct, Uuid


class TopicPartitions(Struct):
    topic_id: Uuid
    topic_name: Str
    partitions: list[I32]


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class Member(Struct):
    member_id: Str
    rack_id: NStr = None
    member_epoch: I32
    client_id: Str
    client_host: Str
    subscribed_topic_names: list[Str]
    assignment: Assignment


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


class ShareGroupDescribeResponse(Response):
    throttle_time_ms: I32 = 0
    groups: list[DescribedGroup]


class ShareGroupDescribeRequest(
    Request[ShareGroupDescribeResponse], api_key=77, versions="1", flexible="0+"
):
    """Describe share groups."""

    group_ids: list[Str]
    include_authorized_operations: Bool
