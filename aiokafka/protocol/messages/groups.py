"""Messages for listing, describing and deleting groups, and for deleting their offsets."""

from aiokafka.protocol.schema import (
    I8,
    I16,
    I32,
    Bool,
    Bytes,
    NStr,
    Request,
    Response,
    Str,
    Struct,
    Uuid,
    field,
)


class ListedGroup(Struct):
    group_id: Str
    protocol_type: Str
    group_state: Str = field("4+", default="", ignorable=True)  # KIP-518
    group_type: Str = field("5+", default="", ignorable=True)  # KIP-848


class ListGroupsResponse(Response):
    throttle_time_ms: I32 = field("1+", default=0, ignorable=True)
    error_code: I16 = 0
    groups: list[ListedGroup]


class ListGroupsRequest(Request[ListGroupsResponse], api_key=16, versions="0-5", flexible="3+"):
    """List the groups that a broker coordinates."""

    states_filter: list[Str] = field("4+", default=[])
    types_filter: list[Str] = field("5+", default=[])


class DescribedGroupMember(Struct):
    member_id: Str
    group_instance_id: NStr = field("4+", default=None, ignorable=True)
    client_id: Str
    client_host: Str
    member_metadata: Bytes
    member_assignment: Bytes


class DescribedGroup(Struct):
    error_code: I16 = 0
    error_message: NStr = field("6+", default=None)  # KIP-1043
    group_id: Str
    group_state: Str
    protocol_type: Str
    protocol_data: Str
    members: list[DescribedGroupMember]
    authorized_operations: I32 = field("3+", default=-2147483648)  # KIP-430


class DescribeGroupsResponse(Response):
    throttle_time_ms: I32 = field("1+", default=0, ignorable=True)
    groups: list[DescribedGroup]


class DescribeGroupsRequest(
    Request[DescribeGroupsResponse], api_key=15, versions="0-6", flexible="5+"
):
    """Describe groups of the classic protocol."""

    groups: list[Str]
    include_authorized_operations: Bool = field("3+", default=False)


class DeletableGroupResult(Struct):
    group_id: Str
    error_code: I16 = 0
    error_message: NStr = field("3+", default=None, ignorable=True)


class DeleteGroupsResponse(Response):
    throttle_time_ms: I32 = 0
    results: list[DeletableGroupResult]


class DeleteGroupsRequest(Request[DeleteGroupsResponse], api_key=42, versions="0-3", flexible="2+"):
    """Delete groups without members."""

    groups_names: list[Str]


class TopicPartitions(Struct):
    topic_id: Uuid
    topic_name: Str
    partitions: list[I32]


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class DescribedConsumerGroupMember(Struct):
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


class DescribedConsumerGroup(Struct):
    error_code: I16 = 0
    error_message: NStr = None
    group_id: Str
    group_state: Str
    group_epoch: I32
    assignment_epoch: I32
    assignor_name: Str
    members: list[DescribedConsumerGroupMember]
    authorized_operations: I32 = -2147483648


class ConsumerGroupDescribeResponse(Response):
    throttle_time_ms: I32 = 0
    groups: list[DescribedConsumerGroup]


class ConsumerGroupDescribeRequest(
    Request[ConsumerGroupDescribeResponse], api_key=69, versions="0-1", flexible="0+"
):
    """Describe groups of the consumer protocol (KIP-848)."""

    group_ids: list[Str]
    include_authorized_operations: Bool


class OffsetDeleteResponsePartition(Struct):
    partition_index: I32
    error_code: I16 = 0


class OffsetDeleteResponseTopic(Struct):
    name: Str
    partitions: list[OffsetDeleteResponsePartition]


class OffsetDeleteResponse(Response):
    error_code: I16 = 0
    throttle_time_ms: I32 = 0
    topics: list[OffsetDeleteResponseTopic]


class OffsetDeleteRequestPartition(Struct):
    partition_index: I32


class OffsetDeleteRequestTopic(Struct):
    name: Str
    partitions: list[OffsetDeleteRequestPartition]


class OffsetDeleteRequest(Request[OffsetDeleteResponse], api_key=47, versions="0"):
    """Delete committed offsets of topics to which the group is not subscribed (KIP-496)."""

    group_id: Str
    topics: list[OffsetDeleteRequestTopic]
