"""Offsets by timestamp."""

from aiokafka.protocol.schema import I8, I16, I32, I64, Request, Response, Str, Struct, field


class ListOffsetsPartitionResponse(Struct):
    partition_index: I32
    error_code: I16 = 0
    old_style_offsets: list[I64] = field("0", default=[])
    timestamp: I64 = field("1+", default=-1)
    offset: I64 = field("1+", default=-1)
    leader_epoch: I32 = field("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: Str
    partitions: list[ListOffsetsPartitionResponse]


class ListOffsetsResponse(Response):
    throttle_time_ms: I32 = field("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse]


class ListOffsetsPartition(Struct):
    partition_index: I32
    current_leader_epoch: I32 = field("4+", default=-1, ignorable=True)
    timestamp: I64
    max_num_offsets: I32 = field("0", default=1)


class ListOffsetsTopic(Struct):
    name: Str
    partitions: list[ListOffsetsPartition]


class ListOffsetsRequest(Request[ListOffsetsResponse], api_key=2, versions="0-11", flexible="6+"):
    """Look up the offset of a timestamp; negative timestamps ask for special places."""

    replica_id: I32
    isolation_level: I8 = field("2+", default=0)
    topics: list[ListOffsetsTopic]
    timeout_ms: I32 = field("10+", default=0, ignorable=True)
