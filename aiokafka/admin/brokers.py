"""Brokers, controllers and the cluster as a whole (`admin.brokers`)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from aiokafka._metadata.discovery import CONTROLLERS
from aiokafka._partitions import as_partition
from aiokafka.admin._items import GONE, by_node, name_of, numbers_by_topic, settle
from aiokafka.admin._routing import (
    AdminApi,
    Call,
    Router,
    error_of,
    fetch_metadata,
    raise_for,
    remaining_ms,
)
from aiokafka.admin._values import Value, items_of, uuid_of
from aiokafka.admin.enums import AclOperation, FeatureUpgradeType, operations_of
from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaError,
    KafkaProtocolError,
    KafkaStorageError,
    ReplicaNotAvailableError,
    UnsupportedVersionError,
)
from aiokafka.net.connector import CLIENT_NAME, software_version
from aiokafka.protocol.messages import cluster as wire
from aiokafka.protocol.messages import log_dirs as logs
from aiokafka.protocol.messages import quorum as raft
from aiokafka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokafka.protocol.messages.metadata import MetadataResponse
from aiokafka.structs import TopicPartition

__all__ = [
    "Broker",
    "Brokers",
    "ClusterDescription",
    "FeatureLevels",
    "Features",
    "LogDir",
    "LogDirReplica",
    "Quorum",
    "QuorumReplica",
]


# -- Values


@dataclass(frozen=True)
class Broker(Value):
    """A broker of the cluster."""

    id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool | None = None
    """Whether the controller keeps clients away from it; None before Kafka 4.0 (KIP-1073)."""


@dataclass(frozen=True)
class ClusterDescription(Value):
    """The cluster as a whole."""

    cluster_id: str | None
    controller_id: int | None
    """The controller; with KRaft a broker that forwards to it. None if there is none."""
    brokers: tuple[Broker, ...]
    """By id."""
    authorized_operations: frozenset[AclOperation] | None = None
    """What the user may do with the cluster; None if it was not asked for, or before Kafka 2.3."""


@dataclass(frozen=True)
class FeatureLevels(Value):
    """The levels of a feature, from the lowest to the highest."""

    min_level: int
    max_level: int


@dataclass(frozen=True)
class Features(Value):
    """What brokers can do, and what the cluster uses of it (KIP-584)."""

    supported: Mapping[str, FeatureLevels]
    """What the broker that was asked supports."""
    finalized: Mapping[str, FeatureLevels]
    """What is in force in the cluster."""
    finalized_epoch: int | None
    """Grows when what is in force changes; None if the broker does not know."""


@dataclass(frozen=True)
class QuorumReplica(Value):
    """A controller or broker that has a copy of the cluster's metadata."""

    replica_id: int
    directory_id: uuid.UUID | None
    """None before Kafka 3.9 (KIP-853)."""
    log_end_offset: int
    """-1 if the leader does not know."""
    lag: int | None
    """Records that it has not copied from the leader; None if that is not known."""
    last_fetch_timestamp: int | None
    """When it last fetched, in milliseconds since 1970 by the leader's clock (KIP-836)."""
    last_caught_up_timestamp: int | None
    """When it last had all the records, in milliseconds since 1970 (KIP-836)."""


@dataclass(frozen=True)
class Quorum(Value):
    """The quorum of the controllers (KRaft, KIP-595)."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    """The first offset that is not on a majority of voters."""
    voters: tuple[QuorumReplica, ...]
    """Those that elect the leader."""
    observers: tuple[QuorumReplica, ...]
    """Those that only copy, such as brokers."""
    listeners: Mapping[int, tuple[tuple[str, str, int], ...]]
    """(listener, host, port) of the voters, by id; empty before Kafka 3.9."""


@dataclass(frozen=True)
class LogDirReplica(Value):
    """A replica in a log directory."""

    size: int
    """Bytes of all segments."""
    offset_lag: int
    """Records behind the high watermark, or behind the present replica for a future one."""
    is_future: bool
    """Whether it is a copy that will replace the replica in another directory."""


@dataclass(frozen=True)
class LogDir(Value):
    """A log directory of a broker (KIP-113)."""

    error: KafkaError | None
    """Why it cannot be used, such as KafkaStorageError."""
    replicas: Mapping[TopicPartition, LogDirReplica]
    total_bytes: int | None
    """Size of the volume; None before Kafka 3.3 (KIP-827)."""
    usable_bytes: int | None
    """What is free on the volume; None before Kafka 3.3."""
    is_cordoned: bool = False
    """Whether it gets no new replicas (KIP-1066)."""


class Brokers(AdminApi):
    """Calls about brokers and the cluster: `admin.brokers`."""

    async def describe_cluster(
        self,
        *,
        include_fenced: bool = False,
        include_authorized_operations: bool = False,
        timeout_ms: float | None = None,
    ) -> ClusterDescription:
        """Return the brokers and the controller (Java: describeCluster, KIP-700).

        Args:
            include_fenced: also brokers that the controller keeps clients away from (KIP-1073,
                Kafka 4.0).
            include_authorized_operations: also what the user may do with the cluster (KIP-430).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.
        """
        operations = include_authorized_operations
        deadline = self._deadline(timeout_ms)
        tells_fenced = False

        def build(version: int) -> wire.DescribeClusterRequest:
            nonlocal tells_fenced
            tells_fenced = version >= _FIRST_WITH_FENCED
            request = wire.DescribeClusterRequest(include_cluster_authorized_operations=operations)
            if self._router.is_for_controllers:
                request.endpoint_type = CONTROLLERS
            if tells_fenced:
                request.include_fenced_brokers = include_fenced
            elif include_fenced:
                raise UnsupportedVersionError(
                    "DescribeCluster: fenced brokers need Kafka 4.0 (KIP-1073)"
                )
            return request

        async def attempt() -> wire.DescribeClusterResponse:
            response = await self._router.to_any(Call(wire.DescribeClusterRequest, build), deadline)
            raise_for(response.error_code, response.error_message, "DescribeCluster")
            return response

        try:
            response = await self._router.retry(attempt, deadline)
        except UnsupportedVersionError:
            if include_fenced:
                raise
            return await _by_metadata(self._router, operations, deadline)
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

    async def features(
        self, broker_id: int | None = None, *, timeout_ms: float | None = None
    ) -> Features:
        """Return the features of the cluster and their levels (Java: describeFeatures, KIP-584).

        Args:
            broker_id: whose supported levels (KIP-1160); default those of any broker.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.
        """
        deadline = self._deadline(timeout_ms)

        def build(version: int) -> ApiVersionsRequest:
            if version < _FIRST_WITH_FEATURES:
                raise UnsupportedVersionError("ApiVersions: features need Kafka 2.4 (KIP-584)")
            # The broker notes it for this connection, so it is the same as at the beginning.
            return ApiVersionsRequest(
                client_software_name=CLIENT_NAME, client_software_version=software_version()
            )

        call: Call[ApiVersionsResponse] = Call(ApiVersionsRequest, build)
        if broker_id is None:
            response = await self._router.to_any(call, deadline)
        else:
            response = await self._router.to_node(broker_id, call, deadline)
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
        self,
        levels: Mapping[str, int],
        *,
        upgrade_type: FeatureUpgradeType = FeatureUpgradeType.UPGRADE,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Change the levels of features, all or none (Java: updateFeatures, KIP-584, Kafka 2.7).

        Args:
            levels: the level that each is to have; 0 turns one off.
            upgrade_type: whether levels may go down, and whether something may be lost by that.
            validate_only: only check whether it could be done (Kafka 3.3).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises InvalidUpdateVersion, FeatureUpdateFailed.
        """
        for name, level in items_of("levels", levels):
            if isinstance(level, bool) or level < 0:
                raise ValueError(f"levels: {name}={level!r}: must be a level, 0 or more")
        if not levels:
            raise ValueError("levels: must name a feature")
        kind = FeatureUpgradeType(upgrade_type)
        deadline = self._deadline(timeout_ms)

        def build(version: int) -> wire.UpdateFeaturesRequest:
            old = version < _FIRST_WITH_DRY_RUN
            if old and (validate_only or kind is FeatureUpgradeType.UNSAFE_DOWNGRADE):
                raise UnsupportedVersionError(
                    "UpdateFeatures: a check, or an unsafe downgrade, needs Kafka 3.3 (KIP-778)"
                )
            request = wire.UpdateFeaturesRequest(
                timeout_ms=remaining_ms(deadline), feature_updates=[]
            )
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
            response = await self._router.to_controller(call, deadline)
            what = ", ".join(f"{name}={level}" for name, level in levels.items())
            raise_for(response.error_code, response.error_message, what)
            for each in response.results:
                raise_for(each.error_code, each.error_message, each.feature)

        await self._router.retry(attempt, deadline)

    async def quorum(self, *, timeout_ms: float | None = None) -> Quorum:
        """Return the controllers' quorum and who lags (Java: describeMetadataQuorum, KIP-836).

        Needs Kafka 3.3 with KRaft.
        """
        deadline = self._deadline(timeout_ms)

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
            response = await self._router.to_any(call, deadline)
            raise_for(response.error_code, response.error_message or None, "DescribeQuorum")
            found = [each for topic in response.topics for each in topic.partitions]
            if len(found) != 1:
                raise KafkaProtocolError(f"DescribeQuorum: {len(found)} partitions, not one")
            raise_for(found[0].error_code, found[0].error_message or None, _METADATA_TOPIC)
            return response, found[0]

        response, data = await self._router.retry(attempt, deadline)
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

    async def add_voter(
        self,
        voter_id: int,
        directory_id: uuid.UUID,
        listeners: Sequence[tuple[str, str, int]],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Let a controller that runs vote in the quorum (Java: addRaftVoter, KIP-853, Kafka 3.9).

        Args:
            voter_id: its node id.
            directory_id: of the directory with its metadata log; see its meta.properties.
            listeners: (listener, host, port) where other controllers reach it.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises DuplicateVoter, also if the response to a first attempt was lost; and
        UnsupportedVersionError where the voters are those of a configuration file.
        """
        if not listeners:
            raise ValueError("listeners: must be one (listener, host, port) or more")
        deadline = self._deadline(timeout_ms)

        def build(version: int) -> raft.AddRaftVoterRequest:
            return raft.AddRaftVoterRequest(
                cluster_id=None,
                timeout_ms=remaining_ms(deadline),
                voter_id=voter_id,
                voter_directory_id=directory_id.bytes,
                listeners=[
                    raft.Listener(name=name, host=host, port=port) for name, host, port in listeners
                ],
            )

        call = Call(raft.AddRaftVoterRequest, build, lambda r: [r.error_code])
        await _change(self._router, call, f"voter {voter_id}", deadline)

    async def remove_voter(
        self, voter_id: int, directory_id: uuid.UUID, *, timeout_ms: float | None = None
    ) -> None:
        """Take a controller out of the quorum (Java: removeRaftVoter, KIP-853, Kafka 3.9).

        Raises VoterNotFound, also if the response to a first attempt was lost; and
        UnsupportedVersionError where the voters are those of a configuration file.
        """
        deadline = self._deadline(timeout_ms)

        def build(version: int) -> raft.RemoveRaftVoterRequest:
            return raft.RemoveRaftVoterRequest(
                cluster_id=None, voter_id=voter_id, voter_directory_id=directory_id.bytes
            )

        call = Call(raft.RemoveRaftVoterRequest, build, lambda r: [r.error_code])
        await _change(self._router, call, f"voter {voter_id}", deadline)

    async def unregister(self, broker_id: int, *, timeout_ms: float | None = None) -> None:
        """Forget a broker that is gone for good (Java: unregisterBroker, Kafka 2.8 with KRaft).

        It may register again if it runs. Raises BrokerIdNotRegistered for one that is not known,
        also if the response to a first attempt was lost.
        """
        deadline = self._deadline(timeout_ms)

        def build(version: int) -> wire.UnregisterBrokerRequest:
            return wire.UnregisterBrokerRequest(broker_id=broker_id)

        call = Call(wire.UnregisterBrokerRequest, build, lambda r: [r.error_code])
        await _change(self._router, call, f"broker {broker_id}", deadline)

    async def log_dirs(
        self,
        broker_ids: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: float | None = None,
    ) -> dict[int, dict[str, LogDir]]:
        """Return what is in the log directories of brokers, by path (Java: describeLogDirs).

        Args:
            broker_ids: which brokers; default all that run.
            partitions: only the replicas of these; default all.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Needs Kafka 1.0 (KIP-113); sizes of volumes Kafka 3.3 (KIP-827). Raises the error of a
        broker that does not respond: AdminItemsError if several were asked.
        """
        wanted = None
        if partitions is not None:
            wanted = numbers_by_topic(as_partition(tp) for tp in partitions)
        deadline = self._deadline(timeout_ms)
        if broker_ids is None:
            metadata = await fetch_metadata(self._router, [], deadline)
            broker_ids = sorted(broker.node_id for broker in metadata.brokers)

        def build(version: int) -> logs.DescribeLogDirsRequest:
            topics = None
            if wanted is not None:
                topics = [
                    logs.DescribableLogDirTopic(topic=topic, partitions=numbers)
                    for topic, numbers in wanted.items()
                ]
            return logs.DescribeLogDirsRequest(topics=topics)

        async def send(node: int, items: list[int]) -> dict[int, LogDirs | KafkaError]:
            call = Call(logs.DescribeLogDirsRequest, build)
            response = await self._router.send_to_named(node, call, deadline)
            error = error_of(response.error_code, None, f"node {node}")
            if error is None and not response.results:
                # A broker has a directory. Before Kafka 3.2 this is how it refuses to name them.
                error = ClusterAuthorizationFailedError(f"node {node}")
            return {node: error or {each.log_dir: _log_dir(each) for each in response.results}}

        async def ask(left: list[int]) -> dict[int, LogDirs | KafkaError]:
            return await by_node({node: [node] for node in left}, send)

        return await settle(self._router, broker_ids, ask, deadline)

    async def move_replicas(
        self,
        broker_id: int,
        moves: Mapping[TopicPartition, str],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Begin to move replicas to other directories of a broker (Java: alterReplicaLogDirs).

        Args:
            broker_id: which broker.
            moves: the path of the directory that each replica is to have.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Copying goes on after the call: `log_dirs` shows a future replica until it is done. Needs
        Kafka 1.0 (KIP-113). Raises LogDirNotFound, ReplicaNotAvailableError: AdminItemsError if
        several replicas were given.
        """
        wanted = {as_partition(tp): path for tp, path in items_of("moves", moves)}
        deadline = self._deadline(timeout_ms)

        async def ask(left: list[TopicPartition]) -> dict[TopicPartition, bool | KafkaError]:
            def build(version: int) -> logs.AlterReplicaLogDirsRequest:
                paths: dict[str, list[TopicPartition]] = {}
                for tp in left:
                    paths.setdefault(wanted[tp], []).append(tp)
                return logs.AlterReplicaLogDirsRequest(
                    dirs=[
                        logs.AlterReplicaLogDir(
                            path=path,
                            topics=[
                                logs.AlterReplicaLogDirTopic(name=topic, partitions=numbers)
                                for topic, numbers in numbers_by_topic(tps).items()
                            ],
                        )
                        for path, tps in paths.items()
                    ]
                )

            call = Call(logs.AlterReplicaLogDirsRequest, build)
            response = await self._router.send_to_named(broker_id, call, deadline)
            found: dict[TopicPartition, bool | KafkaError] = {}
            for topic in response.results:
                for each in topic.partitions:
                    tp = TopicPartition(topic.topic_name, each.partition_index)
                    what = f"{name_of(tp)} on node {broker_id}, to {wanted.get(tp)}"
                    found[tp] = error_of(each.error_code, None, what) or True
            return found

        await settle(self._router, wanted, ask, deadline, final=_FINAL)


# -- Cluster, features and quorum

_METADATA_TOPIC = "__cluster_metadata"
_FIRST_WITH_FENCED = 2
_FIRST_WITH_FEATURES = 3
_FIRST_WITH_DRY_RUN = 1
# Version 0 is that of the early access to KRaft, whose brokers fail.
_FIRST_THAT_SERVES_QUORUM = 1


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


# -- Voters, registrations and log directories

LogDirs = dict[str, LogDir]
# A directory that has failed comes back with a restart of its broker alone.
_FINAL = (*GONE, ReplicaNotAvailableError, KafkaStorageError)
Changed = TypeVar(
    "Changed",
    raft.AddRaftVoterResponse,
    raft.RemoveRaftVoterResponse,
    wire.UnregisterBrokerResponse,
)


async def _change(router: Router, call: Call[Changed], what: str, deadline: float) -> None:
    """Have the controller make a change, and raise what it responds about it."""

    async def attempt() -> None:
        response = await router.to_controller(call, deadline)
        raise_for(response.error_code, response.error_message, what)

    await router.retry(attempt, deadline)


def _log_dir(found: logs.DescribeLogDirsResult) -> LogDir:
    return LogDir(
        error=error_of(found.error_code, None, found.log_dir),
        replicas={
            TopicPartition(topic.name, each.partition_index): LogDirReplica(
                each.partition_size, each.offset_lag, each.is_future_key
            )
            for topic in found.topics
            for each in topic.partitions
        },
        total_bytes=found.total_bytes if found.total_bytes >= 0 else None,
        usable_bytes=found.usable_bytes if found.usable_bytes >= 0 else None,
        is_cordoned=found.is_cordoned,
    )
