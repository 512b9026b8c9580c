"""What calls about brokers and the cluster return."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from aiokafka.admin._values import Value
from aiokafka.admin.enums import AclOperation
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition

__all__ = [
    "Broker",
    "ClusterDescription",
    "FeatureLevels",
    "Features",
    "LogDir",
    "LogDirReplica",
    "Quorum",
    "QuorumReplica",
]


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
