"""Messages for the offsets of timestamps, and for the first and last offset."""

from aiokafka.protocol.schema import I8, I16, I32, I64, Request, Response, Str, Struct, field

LATEST = -1
"""The timestamp that stands for the offset after the last record."""
EARLIEST = -2
"""The timestamp that stands for the first offset of the log."""


class ListOffsetsPartitionResponse(Struct):
    partition_index: I32
    error_code: I16 = 0
    old_style_offsets: list[I64] = field("0", default=[])
    timestamp: I64 = field("1+", default=-1)
    offset: I64 = field("1+", default=-1)
    leader_epoch: I32 = field("4+", default=-1)  # KIP-320


class ListOffsetsTopicResponse(Struct):
    name: Str
    partitions: list[ListOffsetsPartitionResponse]


class ListOffsetsResponse(Response):
    throttle_time_ms: I32 = field("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse]


class ListOffsetsPartition(Struct):
    partition_index: I32
    current_leader_epoch: I32 = field("4+", default=-1, ignorable=True)  # KIP-320
    timestamp: I64
    max_num_offsets: I32 = field("0", default=1)


class ListOffsetsTopic(Struct):
    name: Str
    partitions: list[ListOffsetsPartition]


class ListOffsetsRequest(Request[ListOffsetsResponse], api_key=2, versions="0-11", flexible="6+"):
    """Look up the offset of a timestamp. Negative timestamps are special:

    -1: latest, -2: earliest, -3: maximum timestamp (version 7, KIP-734), -4: earliest on the
    broker's own disk (8, KIP-405), -5: latest in tiered storage (9, KIP-1005), -6: earliest offset
    not yet in tiered storage (11, KIP-1023).
    """

    replica_id: I32  # -1: not a replica
    isolation_level: I8 = field("2+", default=0)  # 1: read_committed
    topics: list[ListOffsetsTopic]
    timeout_ms: I32 = field("10+", default=0, ignorable=True)  # KIP-1075
