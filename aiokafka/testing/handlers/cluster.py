"""ApiVersions, UpdateFeatures, registrations, and requests about the controller quorum."""

from __future__ import annotations

import re

from aiokafka import errors
from aiokafka.protocol.messages.cluster import (
    FeatureUpdateKey,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    UnregisterControllerRequest,
    UnregisterControllerResponse,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from aiokafka.protocol.messages.metadata import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
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
from aiokafka.testing.handlers import answer_items, handles, refuse, require
from aiokafka.testing.handlers._common import await_controller
from aiokafka.testing.script import RequestContext
from aiokafka.testing.telemetry import has_receiver

_TELEMETRY = (71, 72)
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest)
def api_versions(context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """Return the versions and features of the release that the broker imitates."""
    if context.api_version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if not all(_SOFTWARE.fullmatch(name) for name in names):
            return refuse(context, request, errors.InvalidRequestError.errno)
    if request.cluster_id is not None or request.node_id >= 0:  # version 5 (KIP-1242)
        if request.cluster_id is None or request.node_id < 0:
            return refuse(context, request, errors.InvalidRequestError.errno)
        expected = (context.cluster_state.cluster_id, context.node_id)
        if (request.cluster_id, request.node_id) != expected:
            return refuse(context, request, errors.RebootstrapRequired.errno)
    profile = context.profile
    features = profile.features.items()
    finalized = context.cluster_state.profile
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, (low, high) in sorted(profile.ranges.items())
            if key not in _TELEMETRY or has_receiver(context.cluster_state)
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high, _) in features
            # Clients with an earlier API version fail for a minimum level of 0 (KAFKA-17011).
            if low > 0 or context.api_version >= 4
        ],
        finalized_features_epoch=context.cluster_state.features_epoch if profile.features else -1,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in ((name, finalized.level(name)) for name, _ in features)
            if level > 0
        ],
    )


_UPGRADE = 1


@handles(UpdateFeaturesRequest, refusal={"error_message": "refused"})
async def update_features(
    context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Change all feature levels of the request, or none if a level is invalid (KIP-584); with
    `validate_only`, only check them."""
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
    is_downgrade = update.allow_downgrade or update.upgrade_type != _UPGRADE
    if is_downgrade:
        return "a downgrade to a newer version" if wanted > level else ""
    return f"it would go down from {level}" if wanted < level else ""


_LOG = "__cluster_metadata"
_END = 1000  # an invented end offset: the fake has no metadata log
_BEHIND = 100  # lag of a stopped voter in offsets, invented as well
_TIME = 1_700_000_000_000


@handles(DescribeQuorumRequest)
def describe_quorum(
    context: RequestContext, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    """Describe the voters, with the controller as the leader (KIP-595). Stopped voters have a lower
    log end offset.
    """
    if [(topic.topic_name, len(topic.partitions)) for topic in request.topics] != [(_LOG, 1)]:
        missing = errors.UnknownTopicOrPartitionError.errno  # the quorum has one partition
        return answer_items(request, lambda topic, partition: require(missing))
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


@handles(UnregisterControllerRequest, refusal={"error_message": "refused"})
def unregister_controller(
    context: RequestContext, request: UnregisterControllerRequest
) -> UnregisterControllerResponse:
    """Unregister a controller until its node starts again. Every node is a controller."""
    if request.controller_id not in context.cluster_state.controllers:
        return refuse(context, request, errors.ControllerIdNotRegistered.errno)
    context.cluster_state.controllers.remove(request.controller_id)
    return UnregisterControllerResponse(error_message=None)


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
