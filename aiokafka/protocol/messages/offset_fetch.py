"""Messages for fetching committed offsets."""

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
