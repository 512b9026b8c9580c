"""DescribeQuorum, UpdateFeatures, UnregisterBroker, AddRaftVoter and RemoveRaftVoter."""

from __future__ import annotations

from aiokafka import errors
from aiokafka.protocol.messages.cluster import (
    FeatureUpdateKey,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from aiokafka.protocol.messages.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    ReplicaState,
    TopicData,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.testing.handlers import handles, refuse
from aiokafka.testing.handlers._common import await_controller
from aiokafka.testing.script import RequestContext

_LOG = "__cluster_metadata"
_END = 1000  # end offset of the metadata log, which the fake does not have
_BEHIND = 100
_TIME = 1_700_000_000_000


@handles(DescribeQuorumRequest)
def describe_quorum(
    context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    """Describe the voters, with the controller as the leader (KIP-595). Stopped voters have a lower
    log end offset.
    """
    if [(topic.topic_name, len(topic.partitions)) for topic in request.topics] != [(_LOG, 1)]:
        return _unknown_partitions(request)
    state = context.cluster_state
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


def _unknown_partitions(request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Return UNKNOWN_TOPIC_OR_PARTITION for every partition: the quorum has one log."""
    return DescribeQuorumResponse(
        topics=[
            TopicData(
                topic_name=topic.topic_name,
                partitions=[
                    PartitionData(
                        partition_index=part.partition_index,
                        error_code=errors.UnknownTopicOrPartitionError.errno,
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


_UPGRADE = 1


@handles(UpdateFeaturesRequest, refusal={"error_message": "refused"})
async def update_features(
    context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Change all feature levels of the request, or none if a level is invalid (KIP-584)."""
    await await_controller(context, request.timeout_ms / 1000)
    levels: dict[str, int] = {}
    for update in request.feature_updates:
        problem = _problem(context, update)
        if problem:
            response = refuse(context, request, errors.InvalidUpdateVersion.errno)
            response.error_message = f"The update failed for {update.feature}: {problem}"
            return response
        levels[update.feature] = update.max_version_level
    if not request.validate_only:
        context.cluster_state.set_levels(levels)
    results = []
    if context.api_version < 2:
        results = [UpdatableFeatureResult(feature=name, error_message=None) for name in levels]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _problem(context: RequestContext, update: FeatureUpdateKey) -> str:
    profile = context.cluster_state.profile
    if update.feature not in profile.features:
        return "no such feature"
    low, high, level = profile.features[update.feature]
    wanted = update.max_version_level
    if wanted and not low <= wanted <= high:
        return f"level {wanted} is not supported"
    down = update.allow_downgrade or update.upgrade_type != _UPGRADE
    return f"it would go down from {level}" if wanted < level and not down else ""


@handles(UnregisterBrokerRequest, refusal={"error_message": "refused"})
def unregister_broker(
    context: RequestContext, request: UnregisterBrokerRequest
) -> UnregisterBrokerResponse:
    """Unregister a broker from the controller until the broker starts again."""
    node = context.cluster_state.nodes.get(request.broker_id)
    if node is None or node.is_forgotten:
        return refuse(context, request, errors.BrokerIdNotRegistered.errno)
    context.cluster_state.node_down(node.node_id)
    node.is_forgotten = True
    return UnregisterBrokerResponse(error_message=None)


@handles(AddRaftVoterRequest, refusal={"error_message": "refused"})
def add_raft_voter(context: RequestContext, request: AddRaftVoterRequest) -> AddRaftVoterResponse:
    """Add a voter (KIP-853). Only a dynamic quorum can change (`kraft.version` 1)."""
    if context.cluster_state.profile.level("kraft.version") < 1:
        return refuse(context, request, errors.UnsupportedVersionError.errno)
    if request.voter_id in context.cluster_state.voters:
        return refuse(context, request, errors.DuplicateVoter.errno)
    context.cluster_state.voters[request.voter_id] = bytes(request.voter_directory_id)
    return AddRaftVoterResponse(error_message=None)


@handles(RemoveRaftVoterRequest, refusal={"error_message": "refused"})
def remove_raft_voter(
    context: RequestContext, request: RemoveRaftVoterRequest
) -> RemoveRaftVoterResponse:
    """Remove a voter (KIP-853). Only a dynamic quorum can change (`kraft.version` 1)."""
    if context.cluster_state.profile.level("kraft.version") < 1:
        return refuse(context, request, errors.UnsupportedVersionError.errno)
    voter = context.cluster_state.voters.get(request.voter_id)
    if voter is None or voter != request.voter_directory_id:
        return refuse(context, request, errors.VoterNotFound.errno)
    del context.cluster_state.voters[request.voter_id]
    return RemoveRaftVoterResponse(error_message=None)
