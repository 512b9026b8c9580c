"""Replicas: log directories (KIP-113), elections (KIP-460), reassignments (KIP-455)."""

from __future__ import annotations

from collections.abc import Callable

from aiokafka import errors
from aiokafka.protocol.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from aiokafka.protocol.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    PartitionResult,
    ReassignablePartition,
    ReplicaElectionResult,
)
from aiokafka.testing.actions import RefusedError
from aiokafka.testing.handlers import answer_items, handles, refuses
from aiokafka.testing.handlers._common import await_controller
from aiokafka.testing.script import RequestContext
from aiokafka.testing.state import ClusterState, Node, Partition


@handles(AlterReplicaLogDirsRequest)
def alter_replica_log_dirs(
    context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Move each replica to the requested log directory (KIP-113). A move takes no time."""
    return _moved(request, lambda path, topic, index: _move_log(context, path, topic, index))


@refuses(AlterReplicaLogDirsRequest)
def refuse_alter_replica_log_dirs(
    context: RequestContext, request: AlterReplicaLogDirsRequest, errno: int
) -> AlterReplicaLogDirsResponse:
    """Return a response with `errno` for every replica."""
    return _moved(request, lambda path, topic, index: errno)


def _moved(
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


def _move_log(context: RequestContext, path: str, topic: str, index: int) -> int:
    node = context.cluster_state.nodes[context.node_id]
    if path not in node.log_dirs:
        return errors.LogDirNotFound.errno
    partition = context.cluster_state.partition(topic, index)
    if partition is None:
        return errors.UnknownTopicOrPartitionError.errno
    if node.node_id not in partition.replicas:
        return errors.ReplicaNotAvailableError.errno
    node.moved_logs[topic, index] = path
    return 0


_VOLUME = 100 * 2**30  # size in bytes of each log directory's disk, of which half is free
_FIRST_WITH_AN_ERROR = 3


@handles(DescribeLogDirsRequest)
def describe_log_dirs(
    context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Return the replicas of this broker by log directory (KIP-113)."""
    node = context.cluster_state.nodes[context.node_id]
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    kept = [
        partition
        for partition in context.cluster_state.partitions()
        if node.node_id in partition.replicas
        and (wanted is None or (partition.topic, partition.index) in wanted)
    ]
    return DescribeLogDirsResponse(results=[_directory(node, path, kept) for path in node.log_dirs])


@refuses(DescribeLogDirsRequest)
def refuse_describe_log_dirs(
    context: RequestContext, request: DescribeLogDirsRequest, errno: int
) -> DescribeLogDirsResponse:
    """Return a response with `errno`: from version 3 on at the top level, in earlier versions for
    every log directory. Earlier versions report CLUSTER_AUTHORIZATION_FAILED by an empty response.
    """
    if context.api_version >= _FIRST_WITH_AN_ERROR:
        return DescribeLogDirsResponse(error_code=errno, results=[])
    if errno == errors.ClusterAuthorizationFailedError.errno:
        return DescribeLogDirsResponse(results=[])
    refused = [
        DescribeLogDirsResult(error_code=errno, log_dir=path, topics=[])
        for path in context.cluster_state.nodes[context.node_id].log_dirs
    ]
    return DescribeLogDirsResponse(results=refused)


def _directory(node: Node, path: str, kept: list[Partition]) -> DescribeLogDirsResult:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in kept:
        place = (partition.topic, partition.index)
        if node.moved_logs.get(place, node.log_dirs[0]) == path:
            found = DescribeLogDirsPartition(
                partition_index=partition.index,
                partition_size=partition.log_of(node.node_id).size,
                offset_lag=0,
                is_future_key=False,
            )
            topics.setdefault(partition.topic, []).append(found)
    return DescribeLogDirsResult(
        log_dir=path,
        topics=[DescribeLogDirsTopic(name=name, partitions=each) for name, each in topics.items()],
        total_bytes=_VOLUME,
        usable_bytes=_VOLUME // 2,
    )


_UNCLEAN = 1


@handles(ElectLeadersRequest)
async def elect_leaders(
    context: RequestContext, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    """Elect the leaders of the partitions in the request, or of all partitions that need an
    election (KIP-460).
    """
    await await_controller(context, request.timeout_ms / 1000)
    found: dict[str, list[PartitionResult]] = {}
    for topic, index in _to_elect(context.cluster_state, request):
        partition = context.cluster_state.partition(topic, index)
        errno = errors.UnknownTopicOrPartitionError.errno
        if partition is not None:
            errno = _elect(context.cluster_state, partition, request.election_type)
        if request.topic_partitions is None and errno == errors.ElectionNotNeeded.errno:
            continue
        result = PartitionResult(partition_id=index, error_code=errno, error_message=None)
        found.setdefault(topic, []).append(result)
    context.services.transactions.complete_waiting()
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(topic=topic, partition_result=results)
            for topic, results in found.items()
        ]
    )


@refuses(ElectLeadersRequest)
def refuse_elect_leaders(
    context: RequestContext, request: ElectLeadersRequest, errno: int
) -> ElectLeadersResponse:
    """Return a response with `errno` for every partition; from version 1 on, also at the top
    level."""
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


def _to_elect(state: ClusterState, request: ElectLeadersRequest) -> list[tuple[str, int]]:
    if request.topic_partitions is None:
        return [(partition.topic, partition.index) for partition in state.partitions()]
    return [(each.topic, index) for each in request.topic_partitions for index in each.partitions]


def _elect(state: ClusterState, partition: Partition, kind: int) -> int:
    live = state.live_replicas(partition)
    if kind == _UNCLEAN:
        if partition.leader != -1:
            return errors.ElectionNotNeeded.errno
        if not live:
            return errors.EligibleLeadersNotAvailable.errno
        state.set_leader(partition, live[0])
        return 0
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        return errors.ElectionNotNeeded.errno
    if preferred not in live or preferred not in state.isr(partition):
        return errors.PreferredLeaderNotAvailable.errno
    state.set_leader(partition, preferred)
    return 0


@handles(AlterPartitionReassignmentsRequest, refusal={"error_message": "refused"})
async def alter_partition_reassignments(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Begin or cancel each reassignment (KIP-455)."""
    await await_controller(context, request.timeout_ms / 1000)
    may_change = request.allow_replication_factor_change
    return answer_items(
        request, lambda topic, asked: _reassign(context, topic.name, asked, may_change)
    )


def _reassign(
    context: RequestContext, topic: str, asked: ReassignablePartition, may_change: bool
) -> None:
    state = context.cluster_state
    partition = state.partition(topic, asked.partition_index)
    reassignments = context.services.reassignments
    if partition is None:
        raise RefusedError(errors.UnknownTopicOrPartitionError, "No such partition.")
    target = asked.replicas
    if target is None:
        if not reassignments.cancel(partition):
            raise RefusedError(errors.NoReassignmentInProgress)
        return
    if not target or len(set(target)) < len(target) or not set(target) <= set(state.nodes):
        raise RefusedError(
            errors.InvalidReplicationAssignmentError,
            "The manual partition assignment is not valid.",
        )
    present = reassignments.ongoing.get((topic, asked.partition_index))
    factor = len(partition.replicas if present is None else present.former)
    if not may_change and len(target) != factor:
        raise RefusedError(
            errors.InvalidReplicationFactorError, "The replication factor is changed."
        )
    reassignments.begin(partition, target)
    context.services.transactions.complete_waiting()


@handles(ListPartitionReassignmentsRequest, refusal={"error_message": "refused"})
async def list_partition_reassignments(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """List the ongoing reassignments: all, or those of the partitions in the request (KIP-455)."""
    await await_controller(context, request.timeout_ms / 1000)
    wanted = None
    if request.topics is not None:
        wanted = {(t.name, index) for t in request.topics for index in t.partition_indexes}
    topics: dict[str, list[OngoingPartitionReassignment]] = {}
    for place, move in context.services.reassignments.ongoing.items():
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
