"""AlterPartitionReassignments: move partitions to other brokers (KIP-455)."""

from __future__ import annotations

from aiokafka.protocol.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from aiokafka.testing import codes
from aiokafka.testing.handlers._common import await_controller
from aiokafka.testing.script import RequestContext

REQUEST = AlterPartitionReassignmentsRequest


async def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Begin or cancel each move."""
    errno = await await_controller(context, request.timeout_ms / 1000)
    if errno:
        return refuse(context, request, errno)
    may_change = request.allow_replication_factor_change
    return AlterPartitionReassignmentsResponse(
        error_message=None,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    _answer(each.partition_index, *_move(context, topic.name, each, may_change))
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def refuse(
    context: RequestContext, request: AlterPartitionReassignmentsRequest, errno: int
) -> AlterPartitionReassignmentsResponse:
    """Say no to everything."""
    return AlterPartitionReassignmentsResponse(
        error_code=errno, error_message="refused", responses=[]
    )


def _answer(index: int, errno: int, message: str | None) -> ReassignablePartitionResponse:
    return ReassignablePartitionResponse(
        partition_index=index, error_code=errno, error_message=message
    )


def _move(
    context: RequestContext, topic: str, asked: ReassignablePartition, may_change: bool
) -> tuple[int, str | None]:
    partition = context.truth.partition(topic, asked.partition_index)
    moves = context.services.moves
    if partition is None:
        return codes.UNKNOWN_TOPIC_OR_PARTITION, "No such partition."
    target = asked.replicas
    if target is None:
        ended = moves.cancel(partition)
        return (codes.NONE, None) if ended else (codes.NO_REASSIGNMENT_IN_PROGRESS, None)
    if not target or len(set(target)) < len(target) or not set(target) <= set(context.truth.nodes):
        return codes.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment is not valid."
    move = moves.under_way.get((topic, asked.partition_index))
    factor = len(partition.replicas if move is None else move.former)
    if not may_change and len(target) != factor:
        return codes.INVALID_REPLICATION_FACTOR, "The replication factor is changed."
    moves.begin(partition, target)
    context.services.leaders_changed()
    return codes.NONE, None
