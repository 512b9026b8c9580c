"""Describe and change brokers, controllers, features and log directories (`admin.brokers`)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka._arguments import (
    as_enum,
    as_flag,
    as_instance,
    as_int,
    as_ints,
    as_list,
    as_partitions,
    as_text,
    by_partition,
    items_of,
)
from aiokafka._metadata.discovery import CONTROLLERS
from aiokafka.admin._items import (
    GONE,
    by_node,
    name_of,
    numbers_by_topic,
    partitions_in,
    settle,
)
from aiokafka.admin._routing import (
    AdminApi,
    Call,
    Outcomes,
    Router,
    call_of,
    error_of,
    fetch_metadata,
    raise_for,
    remaining_ms,
)
from aiokafka.admin._values import Value, or_none, uuid_of
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
from aiokafka.protocol.messages.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataResponse,
)
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
    """A broker: its address, and whether it is fenced."""

    id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool | None = None
    """Whether the controller hides the broker from clients; None before Kafka 4.0 (KIP-1073)."""


@dataclass(frozen=True)
class ClusterDescription(Value):
    """The brokers and the controller of the cluster."""

    cluster_id: str | None
    controller_id: int | None
    """Id of the controller; with KRaft, of a broker that forwards requests to the controller. None
    if unknown."""
    brokers: tuple[Broker, ...]
    """The brokers, sorted by id."""
    authorized_operations: frozenset[AclOperation] | None = None
    """The operations that the user may do with the cluster; None unless requested, and before Kafka
    2.3."""


@dataclass(frozen=True)
class FeatureLevels(Value):
    """The lowest and the highest level of a feature, such as `metadata.version`."""

    min_level: int
    max_level: int


@dataclass(frozen=True)
class Features(Value):
    """The features of a broker and of the cluster, by name (KIP-584)."""

    supported: Mapping[str, FeatureLevels]
    """The levels that the broker supports."""
    finalized: Mapping[str, FeatureLevels]
    """The levels that the cluster uses."""
    finalized_epoch: int | None
    """The epoch of the finalized levels, which grows when a level changes; None if the broker does
    not know it."""


@dataclass(frozen=True)
class QuorumReplica(Value):
    """A controller or broker with a copy of the cluster's metadata log."""

    replica_id: int
    directory_id: uuid.UUID | None
    """None before Kafka 3.9 (KIP-853)."""
    log_end_offset: int
    """-1 if the leader does not know the offset."""
    lag: int | None
    """Number of records in the leader's log that the replica does not have; None if unknown."""
    last_fetch_timestamp: int | None
    """Time of the replica's last fetch by the leader's clock, in milliseconds since 1970; None if
    unknown (KIP-836)."""
    last_caught_up_timestamp: int | None
    """The last time when the replica had all records of the leader, in milliseconds since 1970;
    None if unknown (KIP-836)."""


@dataclass(frozen=True)
class Quorum(Value):
    """The quorum of the controllers (KRaft, KIP-595)."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    """The first offset of the metadata log that a majority of voters does not have yet."""
    voters: tuple[QuorumReplica, ...]
    """The controllers that elect the leader."""
    observers: tuple[QuorumReplica, ...]
    """The replicas without a vote, such as brokers."""
    listeners: Mapping[int, tuple[tuple[str, str, int], ...]]
    """The listeners of each voter, by its id, as (name, host, port); empty before Kafka 3.9."""


@dataclass(frozen=True)
class LogDirReplica(Value):
    """A replica of a partition in a log directory."""

    size: int
    """Size of all segments in bytes."""
    offset_lag: int
    """Number of offsets by which the replica is behind the high watermark; for a future replica,
    behind the replica that it will replace."""
    is_future: bool
    """Whether this is an unfinished copy that will replace the replica in another directory
    (`move_replicas`)."""


@dataclass(frozen=True)
class LogDir(Value):
    """A log directory of a broker (KIP-113)."""

    error: KafkaError | None
    """Why the directory cannot be used, such as KafkaStorageError; None if it can be used."""
    replicas: Mapping[TopicPartition, LogDirReplica]
    total_bytes: int | None
    """Size of the volume; None before Kafka 3.3 (KIP-827)."""
    usable_bytes: int | None
    """Free bytes on the volume; None before Kafka 3.3."""
    is_cordoned: bool = False
    """Whether the broker places no new replicas here (KIP-1066)."""


class Brokers(AdminApi):
    """The sub-client `admin.brokers`, for brokers and the cluster."""

    async def describe_cluster(
        self,
        *,
        include_fenced: bool = False,
        include_authorized_operations: bool = False,
        timeout_ms: float | None = None,
    ) -> ClusterDescription:
        """Return the brokers and the controller (Java: describeCluster, KIP-700).

        Args:
            include_fenced: also return brokers that the controller hides from clients (KIP-1073,
                Kafka 4.0).
            include_authorized_operations: also return the operations that the user may do with
                the cluster (KIP-430).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.
        """
        operations = as_flag("include_authorized_operations", include_authorized_operations)
        include_fenced = as_flag("include_fenced", include_fenced)
        deadline = self._deadline(timeout_ms)
        has_fenced = False

        def build(version: int) -> wire.DescribeClusterRequest:
            nonlocal has_fenced
            has_fenced = version >= _FIRST_WITH_FENCED
            request = wire.DescribeClusterRequest(include_cluster_authorized_operations=operations)
            if self._router.is_for_controllers:
                request.endpoint_type = CONTROLLERS
            if has_fenced:
                request.include_fenced_brokers = include_fenced
            elif include_fenced:
                raise UnsupportedVersionError(
                    "DescribeCluster: fenced brokers need Kafka 4.0 (KIP-1073)"
                )
            return request

        call = Call(
            wire.DescribeClusterRequest,
            build,
            lambda r: raise_for(r.error_code, r.error_message, "DescribeCluster"),
        )
        try:
            response = await self._router.to_any(call, deadline)
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
                    is_fenced=each.is_fenced if has_fenced else None,
                )
                for each in response.brokers
            ),
        )

    async def features(
        self, broker_id: int | None = None, *, timeout_ms: float | None = None
    ) -> Features:
        """Return the levels of features, such as `metadata.version` (Java: describeFeatures,
        KIP-584).

        Args:
            broker_id: the broker whose supported levels are returned (KIP-1160); by default any
                broker.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.
        """
        node_id = None if broker_id is None else as_int("broker_id", broker_id)
        deadline = self._deadline(timeout_ms)

        def build(version: int) -> ApiVersionsRequest:
            if version < _FIRST_WITH_FEATURES:
                raise UnsupportedVersionError("ApiVersions: features need Kafka 2.4 (KIP-584)")
            # The broker stores the client's name and version for the connection, so send the same
            # values as when the connection was opened.
            return ApiVersionsRequest(
                client_software_name=CLIENT_NAME, client_software_version=software_version()
            )

        call: Call[ApiVersionsResponse] = Call(ApiVersionsRequest, build)
        if node_id is None:
            response = await self._router.to_any(call, deadline)
        else:
            response = await self._router.to_node(node_id, call, deadline)
        raise_for(response.error_code, None, "ApiVersions")
        return Features(
            supported={
                each.name: FeatureLevels(each.min_version, each.max_version)
                for each in response.supported_features
            },
            finalized={
                each.name: FeatureLevels(each.min_version_level, each.max_version_level)
                for each in response.finalized_features
            },
            finalized_epoch=or_none(response.finalized_features_epoch),
        )

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        upgrade_type: FeatureUpgradeType = FeatureUpgradeType.UPGRADE,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> None:
        """Change the levels of features (Java: updateFeatures, KIP-584, Kafka 2.7).

        Args:
            levels: by name, the new level of a feature; 0 disables the feature.
            upgrade_type: whether levels are raised or lowered, and if they are lowered, whether
                metadata may be lost.
            validate_only: only check whether the levels could be changed (Kafka 3.3).
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        All levels are changed, or none of them. Before Kafka 4.0, some levels may be changed even
        if others cannot be changed. Raises the first error, such as InvalidUpdateVersion or
        FeatureUpdateFailed.
        """
        wanted = {
            as_text("levels: name", name): as_int(f"levels: {name}", level, 0)
            for name, level in items_of("levels", levels)
        }
        if not wanted:
            raise ValueError("levels: must name a feature")
        kind = as_enum("upgrade_type", upgrade_type, FeatureUpgradeType)
        validate_only = as_flag("validate_only", validate_only)
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
            for name, level in wanted.items():
                update = wire.FeatureUpdateKey(feature=name, max_version_level=level)
                if old:
                    update.allow_downgrade = kind is not FeatureUpgradeType.UPGRADE
                else:
                    update.upgrade_type = kind
                request.feature_updates.append(update)
            if not old:
                request.validate_only = validate_only
            return request

        def check(response: wire.UpdateFeaturesResponse) -> None:
            what = ", ".join(f"{name}={level}" for name, level in wanted.items())
            raise_for(response.error_code, response.error_message, what)
            for each in response.results:
                raise_for(each.error_code, each.error_message, each.feature)

        await self._router.to_controller(Call(wire.UpdateFeaturesRequest, build, check), deadline)

    async def quorum(self, *, timeout_ms: float | None = None) -> Quorum:
        """Return the quorum of controllers (Java: describeMetadataQuorum, KIP-836).

        Needs Kafka 3.3 with KRaft.
        """
        deadline = self._deadline(timeout_ms)

        def build(version: int) -> raft.DescribeQuorumRequest:
            if version < _FIRST_THAT_SERVES_QUORUM:
                raise UnsupportedVersionError("DescribeQuorum: needs Kafka 3.3 (KIP-836)")
            partition = raft.QuorumPartition(partition_index=0)
            topic = raft.QuorumTopic(topic_name=_METADATA_TOPIC, partitions=[partition])
            return raft.DescribeQuorumRequest(topics=[topic])

        call = Call(raft.DescribeQuorumRequest, build, _quorum_in)
        response = await self._router.to_any(call, deadline)
        data = _quorum_in(response)
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
        """Add a running controller to the voters (Java: addRaftVoter, KIP-853, Kafka 3.9).

        Args:
            voter_id: the node id of the controller.
            directory_id: the id of the directory with the controller's metadata log; the file
                `meta.properties` in this directory contains the id.
            listeners: (name, host, port) of the listeners to which other controllers connect.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises DuplicateVoter (also if the response to a first attempt was lost), and
        UnsupportedVersionError if the voters are fixed in the controllers' configuration.
        """
        voter_id = as_int("voter_id", voter_id)
        directory_id = as_instance("directory_id", directory_id, uuid.UUID)
        wanted = [_listener(each) for each in as_list("listeners", listeners, "listeners")]
        if not wanted:
            raise ValueError("listeners: must be one (listener, host, port) or more")
        deadline = self._deadline(timeout_ms)

        def build(version: int) -> raft.AddRaftVoterRequest:
            return raft.AddRaftVoterRequest(
                cluster_id=None,
                timeout_ms=remaining_ms(deadline),
                voter_id=voter_id,
                voter_directory_id=directory_id.bytes,
                listeners=wanted,
            )

        call = Call(raft.AddRaftVoterRequest, build, _checked(f"voter {voter_id}"))
        await self._router.to_controller(call, deadline)

    async def remove_voter(
        self, voter_id: int, directory_id: uuid.UUID, *, timeout_ms: float | None = None
    ) -> None:
        """Remove a controller from the voters (Java: removeRaftVoter, KIP-853, Kafka 3.9).

        Args:
            voter_id: the node id of the controller.
            directory_id: the id of the directory with the controller's metadata log, which `quorum`
                returns for each replica.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises VoterNotFound (also if the response to a first attempt was lost), and
        UnsupportedVersionError if the voters are fixed in the controllers' configuration.
        """
        voter_id = as_int("voter_id", voter_id)
        directory_id = as_instance("directory_id", directory_id, uuid.UUID)
        deadline = self._deadline(timeout_ms)
        request = raft.RemoveRaftVoterRequest(
            cluster_id=None, voter_id=voter_id, voter_directory_id=directory_id.bytes
        )
        call = call_of(request, _checked(f"voter {voter_id}"))
        await self._router.to_controller(call, deadline)

    async def unregister(self, broker_id: int, *, timeout_ms: float | None = None) -> None:
        """Remove the registration of a stopped broker (Java: unregisterBroker, Kafka 2.8).

        Needs KRaft. A broker that still runs registers again. Raises BrokerIdNotRegistered (also if
        the response to a first attempt was lost).
        """
        broker_id, deadline = as_int("broker_id", broker_id), self._deadline(timeout_ms)
        request = wire.UnregisterBrokerRequest(broker_id=broker_id)
        call = call_of(request, _checked(f"broker {broker_id}"))
        await self._router.to_controller(call, deadline)

    async def unregister_controller(
        self, controller_id: int, *, timeout_ms: float | None = None
    ) -> None:
        """Remove the registration of a stopped controller (Java: unregisterController, Kafka 4.4).

        Remove a voter with `remove_voter` first. A controller that still runs registers again.
        Raises ControllerIdNotRegistered (also if the response to a first attempt was lost), and
        UnsupportedVersionError before Kafka 4.4.
        """
        controller_id = as_int("controller_id", controller_id)
        deadline = self._deadline(timeout_ms)
        request = wire.UnregisterControllerRequest(controller_id=controller_id)
        call = call_of(request, _checked(f"controller {controller_id}"))
        await self._router.to_controller(call, deadline)

    async def log_dirs(
        self,
        broker_ids: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: float | None = None,
    ) -> dict[int, dict[str, LogDir]]:
        """Return the log directories of brokers, by broker id and path (Java: describeLogDirs).

        Args:
            broker_ids: the brokers; by default all running brokers.
            partitions: return only the replicas of these partitions; by default all replicas.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Needs Kafka 1.0 (KIP-113); sizes of volumes need Kafka 3.3 (KIP-827). Raises the error of a
        broker; AdminItemsError if one of several brokers fails.
        """
        node_ids = None if broker_ids is None else as_ints("broker_ids", broker_ids)
        topics = None
        if partitions is not None:
            topics = numbers_by_topic(as_partitions("partitions", partitions), _log_dir_topic)
        deadline = self._deadline(timeout_ms)
        if node_ids is None:
            metadata = await fetch_metadata(self._router, [], deadline)
            node_ids = sorted(broker.node_id for broker in metadata.brokers)

        call = call_of(logs.DescribeLogDirsRequest(topics=topics))

        async def send(node: int, items: list[int]) -> Outcomes[int, LogDirs]:
            response = await self._router.send_to_named(node, call, deadline)
            error = error_of(response.error_code, None, f"node {node}")
            if error is None and not response.results:
                # A broker always has a directory, so an empty response means that the user may not
                # describe the cluster: brokers before Kafka 3.2 return no error code for this.
                error = ClusterAuthorizationFailedError(f"node {node}")
            return {node: error or {each.log_dir: _log_dir(each) for each in response.results}}

        async def ask(left: list[int]) -> Outcomes[int, LogDirs]:
            return await by_node({node: [node] for node in left}, send)

        return await settle(self._router, node_ids, ask, deadline)

    async def move_replicas(
        self,
        broker_id: int,
        moves: Mapping[TopicPartition, str],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Start to move replicas to other directories of a broker (Java: alterReplicaLogDirs).

        Args:
            broker_id: the broker.
            moves: by partition, the path of the new directory of its replica.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        The call returns before the broker has copied the replicas: until then, `log_dirs` also
        returns the future replicas. Needs Kafka 1.0 (KIP-113). Raises LogDirNotFound or
        ReplicaNotAvailableError; AdminItemsError if one of several replicas fails.
        """
        broker_id = as_int("broker_id", broker_id)
        wanted = {tp: as_text(f"moves: {tp}", path) for tp, path in by_partition("moves", moves)}
        deadline = self._deadline(timeout_ms)

        async def ask(left: list[TopicPartition]) -> Outcomes[TopicPartition, bool]:
            paths: dict[str, list[TopicPartition]] = {}
            for tp in left:
                paths.setdefault(wanted[tp], []).append(tp)
            dirs = [
                logs.AlterReplicaLogDir(path=path, topics=numbers_by_topic(tps, _moved_topic))
                for path, tps in paths.items()
            ]
            call = call_of(logs.AlterReplicaLogDirsRequest(dirs=dirs))
            response = await self._router.send_to_named(broker_id, call, deadline)
            found: dict[TopicPartition, bool | KafkaError] = {}
            for tp, each in partitions_in(response.results, "topic_name"):
                what = f"{name_of(tp)} on node {broker_id}, to {wanted.get(tp)}"
                found[tp] = error_of(each.error_code, None, what) or True
            return found

        await settle(self._router, wanted, ask, deadline, final=_FINAL)


def _listener(given: Any) -> raft.Listener:
    if not isinstance(given, tuple | list) or len(given) != 3:
        raise TypeError(f"listeners: {given!r}: must be (listener, host, port)")
    name, host, port = given
    return raft.Listener(
        name=as_text("listeners: listener", name),
        host=as_text("listeners: host", host),
        port=as_int("listeners: port", port),
    )


# -- Cluster, features and quorum

_METADATA_TOPIC = "__cluster_metadata"
_FIRST_WITH_FENCED = 2
_FIRST_WITH_FEATURES = 3
_FIRST_WITH_DRY_RUN = 1
# Brokers whose newest version of DescribeQuorum is 0 are from the early access of KRaft (before
# Kafka 3.3), and do not respond to the request.
_FIRST_THAT_SERVES_QUORUM = 1


async def _by_metadata(router: Router, operations: bool, deadline: float) -> ClusterDescription:
    """Describe the cluster by a Metadata request, for brokers before Kafka 2.8."""
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
        controller_id=or_none(response.controller_id),
        brokers=tuple(sorted(brokers, key=lambda broker: broker.id)),
        authorized_operations=operations_of(response.cluster_authorized_operations),
    )


def _quorum_in(response: raft.DescribeQuorumResponse) -> raft.PartitionData:
    """Return the partition of the metadata log. Raises the error of the response or of the
    partition."""
    raise_for(response.error_code, response.error_message or None, "DescribeQuorum")
    found = [each for topic in response.topics for each in topic.partitions]
    if len(found) != 1:
        raise KafkaProtocolError(
            f"DescribeQuorum: the response has {len(found)} partitions, not one"
        )
    raise_for(found[0].error_code, found[0].error_message or None, _METADATA_TOPIC)
    return found[0]


def _replica(state: raft.ReplicaState, end: int) -> QuorumReplica:
    """Convert a replica. `end` is the end offset of the leader's log, -1 if unknown."""
    known = end >= 0 and state.log_end_offset >= 0
    return QuorumReplica(
        replica_id=state.replica_id,
        directory_id=uuid_of(state.replica_directory_id),
        log_end_offset=state.log_end_offset,
        lag=max(0, end - state.log_end_offset) if known else None,
        last_fetch_timestamp=or_none(state.last_fetch_timestamp),
        last_caught_up_timestamp=or_none(state.last_caught_up_timestamp),
    )


# -- Voters, registrations and log directories

LogDirs = dict[str, LogDir]
# Errors that are not retried: the broker does not have the partition or the replica, or the log
# directory has failed, and stays offline until the broker is restarted.
_FINAL = (*GONE, ReplicaNotAvailableError, KafkaStorageError)


def _checked(what: str) -> Callable[[Any], None]:
    """Return a function that raises the error of a response, with `what` in its text."""
    return lambda response: raise_for(response.error_code, response.error_message, what)


def _log_dir_topic(name: str, numbers: list[int]) -> logs.DescribableLogDirTopic:
    return logs.DescribableLogDirTopic(topic=name, partitions=numbers)


def _moved_topic(name: str, numbers: list[int]) -> logs.AlterReplicaLogDirTopic:
    return logs.AlterReplicaLogDirTopic(name=name, partitions=numbers)


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
        total_bytes=or_none(found.total_bytes),
        usable_bytes=or_none(found.usable_bytes),
        is_cordoned=found.is_cordoned,
    )
