"""Messages for the log directories of brokers."""

from aiokafka.protocol.schema import I16, I32, I64, Bool, Request, Response, Str, Struct, field


class DescribeLogDirsPartition(Struct):
    partition_index: I32
    partition_size: I64
    offset_lag: I64
    is_future_key: Bool


class DescribeLogDirsTopic(Struct):
    name: Str
    partitions: list[DescribeLogDirsPartition]


class DescribeLogDirsResult(Struct):
    error_code: I16 = 0
    log_dir: Str
    topics: list[DescribeLogDirsTopic]
    total_bytes: I64 = field("4+", default=-1, ignorable=True)  # KIP-827
    usable_bytes: I64 = field("4+", default=-1, ignorable=True)
    is_cordoned: Bool = field("5+", default=False, ignorable=True)  # KIP-1066


class DescribeLogDirsResponse(Response):
    throttle_time_ms: I32 = 0
    error_code: I16 = field("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult]


class DescribableLogDirTopic(Struct):
    topic: Str
    partitions: list[I32]


class DescribeLogDirsRequest(
    Request[DescribeLogDirsResponse], api_key=35, versions="0-5", flexible="2+"
):
    """Describe the log directories of a broker."""

    topics: list[DescribableLogDirTopic] | None


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: I32
    error_code: I16 = 0


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: Str
    partitions: list[AlterReplicaLogDirPartitionResult]


class AlterReplicaLogDirsResponse(Response):
    throttle_time_ms: I32 = 0
    results: list[AlterReplicaLogDirTopicResult]


class AlterReplicaLogDirTopic(Struct):
    name: Str
    partitions: list[I32]


class AlterReplicaLogDir(Struct):
    path: Str
    topics: list[AlterReplicaLogDirTopic]


class AlterReplicaLogDirsRequest(
    Request[AlterReplicaLogDirsResponse], api_key=34, versions="0-2", flexible="2+"
):
    """Move replicas between log directories of a broker."""

    dirs: list[AlterReplicaLogDir]
