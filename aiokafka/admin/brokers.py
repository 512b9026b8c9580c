"""Brokers, controllers and the cluster as a whole."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence

from aiokafka._partitions import as_partition
from aiokafka.admin import _alter_brokers, _describe_brokers
from aiokafka.admin._arguments import items_of
from aiokafka.admin._broker_values import ClusterDescription, Features, LogDir, Quorum
from aiokafka.admin._room import Room
from aiokafka.admin.enums import FeatureUpgradeType
from aiokafka.structs import TopicPartition

__all__ = ["Brokers"]


class Brokers(Room):
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
        return await _describe_brokers.describe_cluster(
            self._router, include_fenced, include_authorized_operations, self._deadline(timeout_ms)
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
        return await _describe_brokers.describe_features(self._router, broker_id, deadline)

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
        await _describe_brokers.update_features(
            self._router,
            levels,
            FeatureUpgradeType(upgrade_type),
            validate_only,
            self._deadline(timeout_ms),
        )

    async def quorum(self, *, timeout_ms: float | None = None) -> Quorum:
        """Return the controllers' quorum and who lags (Java: describeMetadataQuorum, KIP-836).

        Needs Kafka 3.3 with KRaft.
        """
        return await _describe_brokers.describe_quorum(self._router, self._deadline(timeout_ms))

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
        await _alter_brokers.add_voter(
            self._router, (voter_id, directory_id), listeners, self._deadline(timeout_ms)
        )

    async def remove_voter(
        self, voter_id: int, directory_id: uuid.UUID, *, timeout_ms: float | None = None
    ) -> None:
        """Take a controller out of the quorum (Java: removeRaftVoter, KIP-853, Kafka 3.9).

        Raises VoterNotFound, also if the response to a first attempt was lost; and
        UnsupportedVersionError where the voters are those of a configuration file.
        """
        await _alter_brokers.remove_voter(
            self._router, (voter_id, directory_id), self._deadline(timeout_ms)
        )

    async def unregister(self, broker_id: int, *, timeout_ms: float | None = None) -> None:
        """Forget a broker that is gone for good (Java: unregisterBroker, Kafka 2.8 with KRaft).

        It may register again if it runs. Raises BrokerIdNotRegistered for one that is not known,
        also if the response to a first attempt was lost.
        """
        await _alter_brokers.unregister(self._router, broker_id, self._deadline(timeout_ms))

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
        wanted = None if partitions is None else [as_partition(tp) for tp in partitions]
        return await _alter_brokers.describe_log_dirs(
            self._router, broker_ids, wanted, self._deadline(timeout_ms)
        )

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
        await _alter_brokers.move_replicas(
            self._router, broker_id, wanted, self._deadline(timeout_ms)
        )
