"""Describing the cluster, its features and its quorum."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiokafka._metadata.controllers import CONTROLLERS
from aiokafka.admin._broker_values import (
    Broker,
    ClusterDescription,
    FeatureLevels,
    Features,
    Quorum,
    QuorumReplica,
)
from aiokafka.admin._cluster import fetch_metadata
from aiokafka.admin._routing import Call, Router, raise_for, remaining_ms
from aiokafka.admin._topic_values import uuid_of
from aiokafka.admin.enums import FeatureUpgradeType, operations_of
from aiokafka.errors import KafkaProtocolError, UnsupportedVersionError
from aiokafka.net.connector import CLIENT_NAME, software_version
from aiokafka.protocol.messages import cluster as wire
from aiokafka.protocol.messages import quorum as raft
from aiokafka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokafka.protocol.messages.metadata import MetadataResponse

_METADATA_TOPIC = "__cluster_metadata"
_FIRST_WITH_FENCED = 2
_FIRST_WITH_FEATURES = 3
_FIRST_WITH_DRY_RUN = 1
# Version 0 is that of the early access to KRaft, whose brokers fail.
_FIRST_THAT_SERVES_QUORUM = 1


async def describe_cluster(
    router: Router, include_fenced: bool, operations: bool, deadline: float
) -> ClusterDescription:
    """Return the brokers and the controller."""

    tells_fenced = False

    def build(version: int) -> wire.DescribeClusterRequest:
        nonlocal tells_fenced
        tells_fenced = version >= _FIRST_WITH_FENCED
        request = wire.DescribeClusterRequest(include_cluster_authorized_operations=operations)
        if router.is_for_controllers:
            request.endpoint_type = CONTROLLERS
        if tells_fenced:
            request.include_fenced_brokers = include_fenced
        elif include_fenced:
            raise UnsupportedVersionError(
                "DescribeCluster: fenced brokers need Kafka 4.0 (KIP-1073)"
            )
        return request

    async def attempt() -> wire.DescribeClusterResponse:
        response = await router.to_any(Call(wire.DescribeClusterRequest, build), deadline)
        raise_for(response.error_code, response.error_message, "DescribeCluster")
        return response

    try:
        response = await router.retry(attempt, deadline)
    except UnsupportedVersionError:
        if include_fenced:
            raise
        return await _by_metadata(router, operations, deadline)
    return _description(
        response,
        (
            Broker(
                id=each.broker_id,
                host=each.host,
                port=each.port,
                rack=each.rack,
                is_fenced=each.is_fenced if tells_fenced else None,
            )
            for each in response.brokers
        ),
    )


async def _by_metadata(router: Router, operations: bool, deadline: float) -> ClusterDescription:
    """Ask brokers before Kafka 2.8."""
    response = await fetch_metadata(router, [], deadline, cluster_operations=operations)
    return _description(
        response,
        (Broker(each.node_id, each.host, each.port, each.rack) for each in response.brokers),
    )


def _description(
    response: wire.DescribeClusterResponse | MetadataResponse, brokers: Iterable[Broker]
) -> ClusterDescription:
    return ClusterDescription(
        cluster_id=response.cluster_id,
        controller_id=response.controller_id if response.controller_id >= 0 else None,
        brokers=tuple(sorted(brokers, key=lambda broker: broker.id)),
        authorized_operations=operations_of(response.cluster_authorized_operations),
    )


async def describe_features(router: Router, broker_id: int | None, deadline: float) -> Features:
    """Return what a broker supports, and what is in force."""

    def build(version: int) -> ApiVersionsRequest:
        if version < _FIRST_WITH_FEATURES:
            raise UnsupportedVersionError("ApiVersions: features need Kafka 2.4 (KIP-584)")
        # The broker notes it for this connection, so it is the same as at the beginning.
        return ApiVersionsRequest(
            client_software_name=CLIENT_NAME, client_software_version=software_version()
        )

    call: Call[ApiVersionsResponse] = Call(ApiVersionsRequest, build)
    if broker_id is None:
        response = await router.to_any(call, deadline)
    else:
        response = await router.to_node(broker_id, call, deadline)
    raise_for(response.error_code, None, "ApiVersions")
    epoch = response.finalized_features_epoch
    return Features(
        supported={
            each.name: FeatureLevels(each.min_version, each.max_version)
            for each in response.supported_features
        },
        finalized={
            each.name: FeatureLevels(each.min_version_level, each.max_version_level)
            for each in response.finalized_features
        },
        finalized_epoch=epoch if epoch >= 0 else None,
    )


async def update_features(
    router: Router,
    levels: Mapping[str, int],
    kind: FeatureUpgradeType,
    validate_only: bool,
    deadline: float,
) -> None:
    """Change the levels of features: all or none."""

    def build(version: int) -> wire.UpdateFeaturesRequest:
        old = version < _FIRST_WITH_DRY_RUN
        if old and (validate_only or kind is FeatureUpgradeType.UNSAFE_DOWNGRADE):
            raise UnsupportedVersionError(
                "UpdateFeatures: a check, or an unsafe downgrade, needs Kafka 3.3 (KIP-778)"
            )
        request = wire.UpdateFeaturesRequest(timeout_ms=remaining_ms(deadline), feature_updates=[])
        for name, level in levels.items():
            update = wire.FeatureUpdateKey(feature=name, max_version_level=level)
            if old:
                update.allow_downgrade = kind is not FeatureUpgradeType.UPGRADE
            else:
                update.upgrade_type = kind
            request.feature_updates.append(update)
        if not old:
            request.validate_only = validate_only
        return request

    async def attempt() -> None:
        call = Call(wire.UpdateFeaturesRequest, build, lambda r: [r.error_code])
        response = await router.to_controller(call, deadline)
        what = ", ".join(f"{name}={level}" for name, level in levels.items())
        raise_for(response.error_code, response.error_message, what)
        for each in response.results:
            raise_for(each.error_code, each.error_message, each.feature)

    await router.retry(attempt, deadline)


async def describe_quorum(router: Router, deadline: float) -> Quorum:
    """Return the state of the quorum of the controllers."""

    def build(version: int) -> raft.DescribeQuorumRequest:
        if version < _FIRST_THAT_SERVES_QUORUM:
            raise UnsupportedVersionError(
                "DescribeQuorum: brokers answer it since Kafka 3.3 (KIP-836)"
            )
        partition = raft.QuorumPartition(partition_index=0)
        topic = raft.QuorumTopic(topic_name=_METADATA_TOPIC, partitions=[partition])
        return raft.DescribeQuorumRequest(topics=[topic])

    async def attempt() -> tuple[raft.DescribeQuorumResponse, raft.PartitionData]:
        call = Call(raft.DescribeQuorumRequest, build)
        response = await router.to_any(call, deadline)
        raise_for(response.error_code, response.error_message or None, "DescribeQuorum")
        found = [each for topic in response.topics for each in topic.partitions]
        if len(found) != 1:
            raise KafkaProtocolError(f"DescribeQuorum: {len(found)} partitions, not one")
        raise_for(found[0].error_code, found[0].error_message or None, _METADATA_TOPIC)
        return response, found[0]

    response, data = await router.retry(attempt, deadline)
    ends = {each.replica_id: each.log_end_offset for each in data.current_voters}
    end = ends.get(data.leader_id, -1)
    return Quorum(
        leader_id=data.leader_id,
        leader_epoch=data.leader_epoch,
        high_watermark=data.high_watermark,
        voters=tuple(_replica(each, end) for each in data.current_voters),
        observers=tuple(_replica(each, end) for each in data.observers),
        listeners={
            node.node_id: tuple((each.name, each.host, each.port) for each in node.listeners)
            for node in response.nodes
        },
    )


def _replica(state: raft.ReplicaState, end: int) -> QuorumReplica:
    known = end >= 0 and state.log_end_offset >= 0
    fetched, caught_up = state.last_fetch_timestamp, state.last_caught_up_timestamp
    return QuorumReplica(
        replica_id=state.replica_id,
        directory_id=uuid_of(state.replica_directory_id),
        log_end_offset=state.log_end_offset,
        lag=max(0, end - state.log_end_offset) if known else None,
        last_fetch_timestamp=fetched if fetched >= 0 else None,
        last_caught_up_timestamp=caught_up if caught_up >= 0 else None,
    )
