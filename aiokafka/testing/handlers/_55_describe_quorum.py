"""DescribeQuorum: the controllers' quorum (KIP-595)."""

from __future__ import annotations

from aiokafka.protocol.messages.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.testing import codes
from aiokafka.testing.script import RequestContext

REQUEST = DescribeQuorumRequest
_LOG = "__cluster_metadata"
_END = 1000  # of the metadata log, which the fake does not have
_BEHIND = 100
_TIME = 1_700_000_000_000


def handle(context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Have the controller lead the voters. Those that are down lag."""
    if [(topic.topic_name, len(topic.partitions)) for topic in request.topics] != [(_LOG, 1)]:
        return _nothing_but_errors(request)
    state = context.truth
    with_directories = context.api_version >= 2
    voters = []
    for node_id, directory in state.voters.items():
        runs = node_id in state.live_nodes()
        voter = ReplicaState(
            replica_id=node_id,
            log_end_offset=_END if runs else _END - _BEHIND,
            last_fetch_timestamp=_TIME,
            last_caught_up_timestamp=_TIME,
        )
        voter.replica_directory_id = directory if with_directories else ZERO_UUID
        voters.append(voter)
    data = PartitionData(
        partition_index=0,
        leader_id=state.controller,
        leader_epoch=state.features_epoch,
        high_watermark=_END,
        current_voters=voters,
        observers=[],
    )
    nodes = [
        Node(
            node_id=node_id,
            listeners=[Listener(name="CONTROLLER", host=state.nodes[node_id].host, port=9093)],
        )
        for node_id in state.voters
        if node_id in state.nodes
    ]
    return DescribeQuorumResponse(
        topics=[TopicData(topic_name=_LOG, partitions=[data])],
        nodes=nodes if with_directories else [],
    )


def _nothing_but_errors(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Say that this is no quorum's log."""
    return DescribeQuorumResponse(
        topics=[
            TopicData(
                topic_name=topic.topic_name,
                partitions=[
                    PartitionData(
                        partition_index=part.partition_index,
                        error_code=codes.UNKNOWN_TOPIC_OR_PARTITION,
                        leader_id=0,
                        leader_epoch=0,
                        high_watermark=0,
                        current_voters=[],
                        observers=[],
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def refuse(
    context: RequestContext, request: DescribeQuorumRequest, errno: int
) -> DescribeQuorumResponse:
    """Say no."""
    return DescribeQuorumResponse(error_code=errno, topics=[])
