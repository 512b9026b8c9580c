"""Messages for the Raft quorum of the controllers."""

from aiokafka.protocol.schema import (
    I16,
    I32,
    I64,
    U16,
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


class ReplicaState(Struct):
    replica_id: I32
    replica_directory_id: Uuid = field("2+", default=ZERO_UUID)
    log_end_offset: I64
    last_fetch_timestamp: I64 = field("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: I64 = field("1+", default=-1, ignorable=True)


class PartitionData(Struct):
    partition_index: I32
    error_code: I16 = 0
    error_message: NStr = field("2+", default="", ignorable=True)
    leader_id: I32
    leader_epoch: I32
    high_watermark: I64
    current_voters: list[ReplicaState]
    observers: list[ReplicaState]


class TopicData(Struct):
    topic_name: Str
    partitions: list[PartitionData]


class Listener(Struct):
    name: Str
    host: Str
    port: U16


class Node(Struct):
    node_id: I32
    listeners: list[Listener]


class DescribeQuorumResponse(Response):
    error_code: I16 = 0
    error_message: NStr = field("2+", default="", ignorable=True)
    topics: list[TopicData]
    nodes: list[Node] = field("2+", default=[])  # KIP-853


class QuorumPartition(Struct):
    partition_index: I32


class QuorumTopic(Struct):
    topic_name: Str
    partitions: list[QuorumPartition]


class DescribeQuorumRequest(
    Request[DescribeQuorumResponse], api_key=55, versions="0-2", flexible="0+"
):
    """Describe the state of the quorum (KIP-595)."""

    topics: list[QuorumTopic]


class AddRaftVoterResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr


class AddRaftVoterRequest(Request[AddRaftVoterResponse], api_key=80, versions="0-1", flexible="0+"):
    """Add a voter to the quorum (KIP-853)."""

    cluster_id: NStr
    timeout_ms: I32
    voter_id: I32
    voter_directory_id: Uuid
    listeners: list[Listener]
    ack_when_committed: Bool = field("1+", default=True)


class RemoveRaftVoterResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: NStr


class RemoveRaftVoterRequest(
    Request[RemoveRaftVoterResponse], api_key=81, versions="0", flexible="0+"
):
    """Remove a voter from the quorum (KIP-853)."""

    cluster_id: NStr
    voter_id: I32
    voter_directory_id: Uuid
