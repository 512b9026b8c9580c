"""ListPartitionReassignments: moves under way (KIP-455)."""

from __future__ import annotations

from aiokafka.protocol.messages.replicas import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from aiokafka.testing.handlers._common import await_controller
from aiokafka.testing.script import RequestContext

REQUEST = ListPartitionReassignmentsRequest


async def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Name the moves of these partitions, or all."""
    errno = await await_controller(context, request.timeout_ms / 1000)
    if errno:
        return refuse(context, request, errno)
    wanted = None
    if request.topics is not None:
        wanted = {(t.name, index) for t in request.topics for index in t.partition_indexes}
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for place, move in context.services.moves.under_way.items():
        if wanted is None or place in wanted:
            ongoing = OngoingPartitionReassignment(
                partition_index=place[1],
                replicas=[*move.target, *move.removing],
                adding_replicas=move.adding,
                removing_replicas=move.removing,
            )
            topics.setdefault(place[0], []).append(ongoing)
    return ListPartitionReassignmentsResponse(
        error_message=None,
        topics=[
            OngoingTopicReassignment(name=name, partitions=found) for name, found in topics.items()
        ],
    )


def refuse(
    context: RequestContext, request: ListPartitionReassignmentsRequest, errno: int
) -> ListPartitionReassignmentsResponse:
    """Say no."""
    return ListPartitionReassignmentsResponse(error_code=errno, error_message="refused", topics=[])
