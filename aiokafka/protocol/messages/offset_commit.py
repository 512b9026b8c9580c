"""Messages for committing offsets of a group."""

from typing import ClassVar

from aiokafka.protocol.schema import (
    I16,
    I32,
    I64,
    ZERO_UUID,
    NStr,
    Request,
    Response,
    Str,
    Struct,
    Uuid,
    field,
)


class OffsetCommitResponsePartition(Struct):
    partition_index: I32
    error_code: I16 = 0


class OffsetCommitResponseTopic(Struct):
    name: Str = field("0-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition]


class OffsetCommitResponse(Response):
    throttle_time_ms: I32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic]


class OffsetCommitRequestPartition(Struct):
    partition_index: I32
    committed_offset: I64
    committed_leader_epoch: I32 = field("6+", default=-1, ignorable=True)  # KIP-320
    commit_timestamp: I64 = field("1", default=-1)
    committed_metadata: NStr


class OffsetCommitRequestTopic(Struct):
    name: Str = field("0-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)  # KIP-848
    partitions: list[OffsetCommitRequestPartition]


class OffsetCommitRequest(Request[OffsetCommitResponse], api_key=8, versions="0-10", flexible="8+"):
    """Commit offsets of a group. The coordinator of the group stores them."""

    DEFAULT_GENERATION_ID: ClassVar[int] = -1  # for a consumer that is not a member

    group_id: Str
    generation_id_or_member_epoch: I32 = field("1+", default=-1, ignorable=True)  # -1: not a member
    member_id: Str = field("1+", default="", ignorable=True)
    group_instance_id: NStr = field("7+", default=None)  # KIP-345
    retention_time_ms: I64 = field("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic]
