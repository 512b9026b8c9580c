"""DescribeProducers: the producers active on partitions (KIP-664)."""

from __future__ import annotations

from aiokafka.protocol.messages.transaction_admin import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from aiokafka.testing.handlers._common import check_leader
from aiokafka.testing.script import RequestContext

REQUEST = DescribeProducersRequest


def handle(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """List them by partition."""
    return DescribeProducersResponse(
        throttle_time_ms=0,
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_describe(context, topic.name, i) for i in topic.partition_indexes],
            )
            for topic in request.topics
        ],
    )


def refuse(
    context: RequestContext, request: DescribeProducersRequest, errno: int
) -> DescribeProducersResponse:
    """Say no to every partition."""
    return DescribeProducersResponse(
        throttle_time_ms=0,
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_refused(index, errno) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ],
    )


def _refused(index: int, errno: int) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=errno, active_producers=[])


def _describe(context: RequestContext, topic: str, index: int) -> PartitionResponse:
    partition = context.state.partition(topic, index)
    errno = check_leader(context, partition)
    if errno or partition is None:
        return _refused(index, errno)
    producers = partition.log.producers
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=0 if producer_id in producers.open else -1,
                current_txn_start_offset=producers.open.get(producer_id, -1),
            )
            for producer_id, entry in producers.entries.items()
        ],
    )
