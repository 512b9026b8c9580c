"""Messages for reading a partition: its records, its offsets, and the ends of its leader epochs."""

from aiokafka.protocol.schema import (
    I8,
    I16,
    I32,
    I64,
    ZERO_UUID,
    NStr,
    Records,
    Request,
    Response,
    Str,
    Struct,
    Uuid,
    field,
)

LAST_VERSION_WITH_NAMES = 12
"""The last version of Fetch with topic names; later versions have topic ids (KIP-516)."""


class DivergingEpoch(Struct):
    epoch: I32 = -1
    end_offset: I64 = -1


class LeaderIdAndEpoch(Struct):
    leader_id: I32 = -1
    leader_epoch: I32 = -1


class SnapshotId(Struct):
    end_offset: I64 = -1
    epoch: I32 = -1


class AbortedTransaction(Struct):
    producer_id: I64
    first_offset: I64


class PartitionData(Struct):
    partition_index: I32
    error_code: I16 = 0
    high_watermark: I64
    last_stable_offset: I64 = field("4+", default=-1, ignorable=True)
    log_start_offset: I64 = field("5+", default=-1, ignorable=True)
    diverging_epoch: DivergingEpoch = field("12+", default=DivergingEpoch(), tag=0)  # KIP-595
    current_leader: LeaderIdAndEpoch = field("12+", default=LeaderIdAndEpoch(), tag=1)  # KIP-951
    snapshot_id: SnapshotId = field("12+", default=SnapshotId(), tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field("4+", default=[], ignorable=True)
    preferred_read_replica: I32 = field("11+", default=-1)  # KIP-392
    records: Records = None


class FetchableTopicResponse(Struct):
    topic: Str = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData]


class NodeEndpoint(Struct):
    node_id: I32
    host: Str
    port: I32
    rack: NStr = None


class FetchResponse(Response):
    throttle_time_ms: I32 = field("1+", default=0, ignorable=True)
    error_code: I16 = field("7+", default=0, ignorable=True)
    session_id: I32 = field("7+", default=0)  # KIP-227
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = field("16+", default=[], tag=0)  # KIP-951


class ReplicaState(Struct):
    replica_id: I32 = -1
    replica_epoch: I64 = -1


class FetchPartition(Struct):
    partition: I32
    current_leader_epoch: I32 = field("9+", default=-1, ignorable=True)  # KIP-320
    fetch_offset: I64
    last_fetched_epoch: I32 = field("12+", default=-1)  # KIP-595
    log_start_offset: I64 = field("5+", default=-1, ignorable=True)
    partition_max_bytes: I32
    replica_directory_id: Uuid = field("17+", default=ZERO_UUID, tag=0, ignorable=True)  # KIP-853
    high_watermark: I64 = field("18+", default=2**63 - 1, tag=1, ignorable=True)  # KIP-1166


class FetchTopic(Struct):
    topic: Str = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)  # KIP-516
    partitions: list[FetchPartition]


class ForgottenTopic(Struct):
    topic: Str = field("7-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[I32]


class FetchRequest(Request[FetchResponse], api_key=1, versions="0-18", flexible="12+"):
    """Fetch record batches of partitions. In a fetch session, requests contain only changed
    partitions (KIP-227)."""

    cluster_id: NStr = field("12+", default=None, tag=0, ignorable=True)
    replica_id: I32 = field("0-14", default=-1)  # -1: not a replica
    replica_state: ReplicaState = field("15+", default=ReplicaState(), tag=1)  # KIP-903
    max_wait_ms: I32
    min_bytes: I32
    max_bytes: I32 = field("3+", default=0x7FFFFFFF, ignorable=True)  # KIP-74
    isolation_level: I8 = field("4+", default=0, ignorable=True)  # 1: read_committed
    session_id: I32 = field("7+", default=0, ignorable=True)  # KIP-227
    session_epoch: I32 = field("7+", default=-1, ignorable=True)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = field("7+", default=[])
    rack_id: Str = field("11+", default="", ignorable=True)  # KIP-392


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
