"""Messages for the end offsets of leader epochs (KIP-320)."""

from aiokafka.protocol.schema import I16, I32, I64, Request, Response, Str, Struct, field


class EpochEndOffset(Struct):
    error_code: I16 = 0
    partition: I32
    leader_epoch: I32 = field("1+", default=-1, ignorable=True)
    end_offset: I64 = -1


class OffsetForLeaderTopicResult(Struct):
    topic: Str
    partitions: list[EpochEndOffset]


class OffsetForLeaderEpochResponse(Response):
    throttle_time_ms: I32 = field("2+", default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult]


class OffsetForLeaderPartition(Struct):
    partition: I32
    current_leader_epoch: I32 = field("2+", default=-1, ignorable=True)
    leader_epoch: I32


class OffsetForLeaderTopic(Struct):
    topic: Str
    partitions: list[OffsetForLeaderPartition]


class OffsetForLeaderEpochRequest(
    Request[OffsetForLeaderEpochResponse], api_key=23, versions="0-4", flexible="4+"
):
    """Request the end offsets of leader epochs, to detect a truncated log."""

    replica_id: I32 = field("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic]
