"""DescribeTopicPartitions: topics in pages (KIP-966)."""

from __future__ import annotations

from aiokafka.protocol.messages.topics import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.testing import codes
from aiokafka.testing.handlers._common import authorized_operations
from aiokafka.testing.script import RequestContext
from aiokafka.testing.state import ClusterState, Partition

REQUEST = DescribeTopicPartitionsRequest


def handle(
    context: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Return one page: topics by name, from the cursor on, up to the limit of partitions."""
    state = context.state
    names = sorted({topic.name for topic in request.topics} or state.topics)
    response = DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=[])
    room = min(request.response_partition_limit, 2000)
    start = request.cursor
    for name in names:
        if start is not None and name < start.topic_name:
            continue
        first = start.partition_index if start is not None and name == start.topic_name else 0
        topic = state.topics.get(name)
        errno = context.check_topic(name)
        if errno:
            if request.topics:  # else what may not be seen is left out
                response.topics.append(_missing(name, errno))
            continue
        if topic is None:
            response.topics.append(_missing(name, codes.UNKNOWN_TOPIC_OR_PARTITION))
            continue
        if room <= 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        page = topic.partitions[first : first + room]
        room -= len(page)
        response.topics.append(
            DescribeTopicPartitionsResponseTopic(
                name=name,
                topic_id=topic.topic_id,
                is_internal=topic.is_internal,
                partitions=[_partition(state, partition) for partition in page],
                topic_authorized_operations=authorized_operations(context, True, "topic", name),
            )
        )
        if first + len(page) < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=first + len(page))
            break
    return response


def refuse(
    context: RequestContext, request: DescribeTopicPartitionsRequest, errno: int
) -> DescribeTopicPartitionsResponse:
    """Say no to every topic."""
    return DescribeTopicPartitionsResponse(
        throttle_time_ms=0, topics=[_missing(topic.name, errno) for topic in request.topics]
    )


def _missing(name: str, errno: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=errno, name=name, topic_id=ZERO_UUID, partitions=[]
    )


def _partition(
    state: ClusterState, partition: Partition
) -> DescribeTopicPartitionsResponsePartition:
    isr, live = state.isr(partition), state.live_replicas(partition)
    return DescribeTopicPartitionsResponsePartition(
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=isr,
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=[node for node in partition.replicas if node not in live],
    )
