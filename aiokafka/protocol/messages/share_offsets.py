"""Messages for the start offsets of share groups (KIP-932)."""

from aiokafka.protocol.schema import (
    I16,
    I32,
    I64,
    NStr,
    Request,
    Response,
    Str,
    Struct,
    Uuid,
    field,
)


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: I32
    start_offset: I64
    leader_epoch: I32
    lag: I64 = field("1+", default=-1, ignorable=True)  # KIP-1226
    error_code: I16 = 0
    error_message: NStr = None


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: Str
    topic_id: Uuid
    partitions: list[DescribeShareGroupOffsetsResponsePartition]


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: Str
    topics: list[DescribeShareGroupOffsetsResponseTopic]
    error_code: I16 = 0
    error_message: NStr = None


class DescribeShareGroupOffsetsResponse(Response):
    throttle_time_ms: I32 = 0
    groups: list[DescribeShareGroupOffsetsResponseGroup]


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: Str
    partitions: list[I32]


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: Str
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None


class DescribeShareGroupOffsetsRequest(
    Request[DescribeShareGroupOffsetsResponse], api_key=90, versions="0-1", flexible="0+"
):
    """Describe the start offsets of share groups."""

    groups: list[DescribeShareGroupOffsetsRequestGroup]


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: I32
    error_code: I16 = 0
    error_message: NStr = None


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: Str
    topic_id: Uuid
    partitions: list[AlterShareGroupOffsetsResponsePartition]


class AlterShareGroupOffsetsResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr = None
    responses: list[AlterShareGroupOffsetsResponseTopic]


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: I32
    start_offset: I64


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: Str
    partitions: list[AlterShareGroupOffsetsRequestPartition]


class AlterShareGroupOffsetsRequest(
    Request[AlterShareGroupOffsetsResponse], api_key=91, versions="0", flexible="0+"
):
    """Set the start offsets of an empty share group."""

    group_id: Str
    topics: list[AlterShareGroupOffsetsRequestTopic]


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: Str
    topic_id: Uuid
    error_code: I16 = 0
    error_message: NStr = None


class DeleteShareGroupOffsetsResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr = None
    responses: list[DeleteShareGroupOffsetsResponseTopic]


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: Str


class DeleteShareGroupOffsetsRequest(
    Request[DeleteShareGroupOffsetsResponse], api_key=92, versions="0", flexible="0+"
):
    """Delete the start offsets of topics of an empty share group."""

    group_id: Str
    topics: list[DeleteShareGroupOffsetsRequestTopic]
