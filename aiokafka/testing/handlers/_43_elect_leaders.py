"""ElectLeaders: preferred leaders, or any (KIP-460)."""

from __future__ import annotations

from aiokafka.protocol.messages.replicas import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from aiokafka.testing import codes
from aiokafka.testing.handlers._common import await_controller
from aiokafka.testing.script import RequestContext
from aiokafka.testing.state import ClusterState, Partition

REQUEST = ElectLeadersRequest
_UNCLEAN = 1


async def handle(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Elect the leaders of the partitions that are named, or of all that need one."""
    errno = await await_controller(context, request.timeout_ms / 1000)
    if errno:
        return refuse(context, request, errno)
    found: dict[str, list[PartitionResult]] = {}
    for topic, index in _wanted(context.truth, request):
        partition = context.truth.partition(topic, index)
        errno = codes.UNKNOWN_TOPIC_OR_PARTITION
        if partition is not None:
            errno = _elect(context.truth, partition, request.election_type)
        if request.topic_partitions is None and errno == codes.ELECTION_NOT_NEEDED:
            continue
        result = PartitionResult(partition_id=index, error_code=errno, error_message=None)
        found.setdefault(topic, []).append(result)
    context.services.leaders_changed()
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=results)
            for topic, results in found.items()
        ]
    )


def refuse(
    context: RequestContext, request: ElectLeadersRequest, errno: int
) -> ElectLeadersResponse:
    """Say no to everything."""
    return ElectLeadersResponse(
        error_code=errno if context.api_version >= 1 else 0,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    PartitionResult(partition_id=index, error_code=errno, error_message=None)
                    for index in topic.partitions
                ],
            )
            for topic in request.topic_partitions or []
        ],
    )


def _wanted(state: ClusterState, request: ElectLeadersRequest) -> list[tuple[str, int]]:
    if request.topic_partitions is None:
        return [(partition.topic, partition.index) for partition in state.partitions()]
    return [(each.topic, index) for each in request.topic_partitions for index in each.partitions]


def _elect(state: ClusterState, partition: Partition, kind: int) -> int:
    live = state.live_replicas(partition)
    if kind == _UNCLEAN:
        if partition.leader != -1:
            return codes.ELECTION_NOT_NEEDED
        if not live:
            return codes.ELIGIBLE_LEADERS_NOT_AVAILABLE
        state.set_leader(partition, live[0])
        return codes.NONE
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        return codes.ELECTION_NOT_NEEDED
    if preferred not in live or preferred not in state.isr(partition):
        return codes.PREFERRED_LEADER_NOT_AVAILABLE
    state.set_leader(partition, preferred)
    return codes.NONE
