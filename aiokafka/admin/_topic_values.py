"""What calls about topics return."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from aiokafka.admin._values import Value
from aiokafka.admin.enums import AclOperation, ConfigSource

__all__ = [
    "PartitionDescription",
    "Reassignment",
    "TopicCreation",
    "TopicDescription",
    "TopicListing",
    "TopicSetting",
    "uuid_of",
]


def uuid_of(data: bytes) -> uuid.UUID | None:
    """Return the id of 16 bytes; None for zeros, which stand for no id."""
    return uuid.UUID(bytes=bytes(data)) if any(data) else None


@dataclass(frozen=True)
class TopicListing(Value):
    """A topic, in short."""

    name: str
    topic_id: uuid.UUID | None
    """None before Kafka 2.8."""
    is_internal: bool
    """Whether Kafka keeps its own state in it."""
    partitions: int
    """How many."""
    replication_factor: int
    """The most replicas that a partition has."""


@dataclass(frozen=True)
class PartitionDescription(Value):
    """Where a partition is. Brokers are given by their ids."""

    partition: int
    leader: int | None
    """None while there is none."""
    leader_epoch: int | None
    """How often the leader has changed; None before Kafka 2.1."""
    replicas: tuple[int, ...]
    """The first is the preferred leader."""
    isr: tuple[int, ...]
    """The replicas in sync."""
    offline_replicas: tuple[int, ...]
    """On brokers or disks that do not run. Empty before Kafka 1.0."""
    eligible_leader_replicas: tuple[int, ...] | None = None
    """Not in sync, but with all that is committed (KIP-966). None if brokers do not say."""
    last_known_eligible_leader_replicas: tuple[int, ...] | None = None
    """The last that were eligible, where none is any more (KIP-966)."""


@dataclass(frozen=True)
class TopicDescription(Value):
    """A topic with its partitions."""

    name: str
    topic_id: uuid.UUID | None
    """None before Kafka 2.8."""
    is_internal: bool
    """Whether Kafka keeps its own state in it."""
    partitions: tuple[PartitionDescription, ...]
    """In order."""
    authorized_operations: frozenset[AclOperation] | None = None
    """What the user may do with the topic; None if it was not asked for, or before Kafka 2.3."""


@dataclass(frozen=True)
class TopicSetting(Value):
    """A setting that a new topic has."""

    value: str | None
    """None if it is sensitive."""
    source: ConfigSource
    is_sensitive: bool
    is_read_only: bool


@dataclass(frozen=True)
class TopicCreation(Value):
    """A topic that was created, or could be (KIP-525). Brokers before Kafka 2.4 tell nothing."""

    topic_id: uuid.UUID | None
    """None before Kafka 2.8, and if the topic was only checked."""
    num_partitions: int | None
    """None if the broker does not say, or the user may not see it."""
    replication_factor: int | None
    """None as above."""
    configs: Mapping[str, TopicSetting] | None
    """Its settings, defaults included; None as above."""


@dataclass(frozen=True)
class Reassignment(Value):
    """A move of a partition to other brokers that is under way (KIP-455)."""

    replicas: tuple[int, ...]
    """All that there are now: those to stay, to come and to go."""
    adding: tuple[int, ...]
    """Those that copy the partition."""
    removing: tuple[int, ...]
    """Those that will go when the others are in sync."""
