"""AlterReplicaLogDirs: move replicas between directories of a broker (KIP-113)."""

from __future__ import annotations

from collections.abc import Callable

from aiokafka.protocol.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext

REQUEST = AlterReplicaLogDirsRequest


def handle(
    context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Move each replica at once."""
    return _answer(request, lambda path, topic, index: _move(context, path, topic, index))


def refuse(
    context: RequestContext, request: AlterReplicaLogDirsRequest, errno: int
) -> AlterReplicaLogDirsResponse:
    """Say no to every replica."""
    return _answer(request, lambda path, topic, index: errno)


def _answer(
    request: AlterReplicaLogDirsRequest, decide: Callable[[str, str, int], int]
) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(
                        partition_index=index, error_code=decide(each.path, topic.name, index)
                    )
                    for index in topic.partitions
                ],
            )
            for each in request.dirs
            for topic in each.topics
        ]
    )


def _move(context: RequestContext, path: str, topic: str, index: int) -> int:
    node = context.truth.nodes[context.node_id]
    if path not in node.log_dirs:
        return codes.LOG_DIR_NOT_FOUND
    partition = context.truth.partition(topic, index)
    if partition is None:
        return codes.UNKNOWN_TOPIC_OR_PARTITION
    if node.node_id not in partition.replicas:
        return codes.REPLICA_NOT_AVAILABLE
    node.moved_logs[topic, index] = path
    return codes.NONE
