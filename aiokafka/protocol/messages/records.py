"""Messages for deleting records."""

from aiokafka.protocol.schema import I16, I32, I64, Request, Response, Str, Struct


class DeleteRecordsPartitionResult(Struct):
    partition_index: I32
    low_watermark: I64
    error_code: I16 = 0


class DeleteRecordsTopicResult(Struct):
    name: Str
    partitions: list[DeleteRecordsPartitionResult]


class DeleteRecordsResponse(Response):
    throttle_time_ms: I32 = 0
    topics: list[DeleteRecordsTopicResult]


class DeleteRecordsPartition(Struct):
    partition_index: I32
    offset: I64  # -1: up to the high watermark


class DeleteRecordsTopic(Struct):
    name: Str
    partitions: list[DeleteRecordsPartition]


class DeleteRecordsRequest(
    Request[DeleteRecordsResponse], api_key=21, versions="0-2", flexible="2+"
):
    """Delete the records of partitions before an offset (KIP-107)."""

    topics: list[DeleteRecordsTopic]
    timeout_ms: I32
