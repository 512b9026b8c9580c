"""Messages for deleting committed offsets."""

from aiokafka.protocol.schema import I16, I32, Request, Response, Str, Struct


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
