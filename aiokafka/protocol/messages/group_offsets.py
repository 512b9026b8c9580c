"""Messages for committing and fetching the offsets of a group."""

from typing import ClassVar

from aiokafka.protocol.schema import (
    I16,
    I32,
    I64,
    ZERO_UUID,
    Bool,
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


class OffsetFetchResponsePartition(Struct):
    partition_index: I32
    committed_offset: I64
    committed_leader_epoch: I32 = field("5+", default=-1, ignorable=True)
    metadata: NStr
    error_code: I16 = 0


class OffsetFetchResponseTopic(Struct):
    name: Str
    partitions: list[OffsetFetchResponsePartition]


class OffsetFetchResponsePartitions(Struct):
    partition_index: I32
    committed_offset: I64
    committed_leader_epoch: I32 = -1
    metadata: NStr
    error_code: I16 = 0


class OffsetFetchResponseTopics(Struct):
    name: Str = field("8-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions]


class OffsetFetchResponseGroup(Struct):
    group_id: Str
    topics: list[OffsetFetchResponseTopics]
    error_code: I16 = 0


class OffsetFetchResponse(Response):
    throttle_time_ms: I32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field("0-7", default=[])
    error_code: I16 = field("2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field("8+", default=[])


class OffsetFetchRequestTopic(Struct):
    name: Str
    partition_indexes: list[I32]


class OffsetFetchRequestTopics(Struct):
    name: Str = field("8-9", default="", ignorable=True)
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)  # KIP-848
    partition_indexes: list[I32]


class OffsetFetchRequestGroup(Struct):
    group_id: Str
    member_id: NStr = field("9+", default=None, ignorable=True)
    member_epoch: I32 = field("9+", default=-1, ignorable=True)  # KIP-848
    topics: list[OffsetFetchRequestTopics] | None


class OffsetFetchRequest(Request[OffsetFetchResponse], api_key=9, versions="0-10", flexible="6+"):
    """Fetch the committed offsets of one group, or from version 8 on of several (KIP-709)."""

    group_id: Str = field("0-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field("0-7", nullable="2-7", default=[])
    groups: list[OffsetFetchRequestGroup] = field("8+", default=[])
    require_stable: Bool = field("7+", default=False)  # KIP-447
