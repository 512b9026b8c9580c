"""What classic members of consumer groups say to each other, as a coordinator reads and writes it
that hosts them in a group of the consumer protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aiokafka.errors import KafkaProtocolError
from aiokafka.protocol.compiler import codec
from aiokafka.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from aiokafka.testing import codes
from aiokafka.testing.group_members import GroupRefusedError

CONSUMERS = "consumer"
"""The protocol type of consumer groups."""
Slot = tuple[bytes, int]
"""Topic id and partition."""
Slots = frozenset[Slot]
Topics = Mapping[str, tuple[bytes, int]]
"""Topic name to its id and number of partitions."""

_NEWEST = 3
_VERSION_BYTES = 2


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a classic member wants, and what it has."""

    topics: tuple[str, ...]
    owned: Slots
    rack_id: str | None


def read_subscription(metadata: bytes, topics: Topics) -> Subscription:
    """Return what a member has said in its JoinGroup request.

    Raises:
        KafkaProtocolError: it is malformed.
    """
    version = _version_of(metadata)
    if version < 0:
        raise KafkaProtocolError("no version")
    found, _ = codec(ConsumerProtocolSubscription, version).decode_prefix(metadata, _VERSION_BYTES)
    owned = _slots(found.owned_partitions, topics)
    return Subscription(tuple(sorted(found.topics)), owned, found.rack_id)


def read_assignment(assignment: bytes, topics: Topics) -> Slots:
    """Return the partitions that the leader of a classic group has assigned to a member.

    Raises:
        KafkaProtocolError: it is malformed.
        GroupRefusedError: a topic has no such partition.
    """
    if not assignment:
        return frozenset()
    version = _version_of(assignment)
    if version < 0:
        raise KafkaProtocolError("no version")
    found, _ = codec(ConsumerProtocolAssignment, version).decode_prefix(assignment, _VERSION_BYTES)
    slots = _slots(found.assigned_partitions, topics)
    counts = dict(topics.values())
    if any(number >= counts[topic_id] for topic_id, number in slots):
        raise GroupRefusedError(codes.UNKNOWN_SERVER_ERROR)
    return slots


def write_assignment(slots: Slots, topics: Topics, metadata: bytes) -> bytes:
    """Return an assignment in the version in which the member's metadata is."""
    names = {topic_id: name for name, (topic_id, _) in topics.items()}
    by_topic: dict[str, list[int]] = {}
    for topic_id, number in sorted(slots):
        if topic_id in names:
            by_topic.setdefault(names[topic_id], []).append(number)
    version = max(_version_of(metadata), 0)
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=name, partitions=numbers) for name, numbers in by_topic.items()
        ]
    )
    body = codec(ConsumerProtocolAssignment, version).encode_bytes(message)
    return version.to_bytes(_VERSION_BYTES, "big") + body


def _version_of(data: bytes) -> int:
    """Return the version that data is to be read in, which may be older than its own; -1 if it is
    too short to have one."""
    if len(data) < _VERSION_BYTES:
        return -1
    return min(int.from_bytes(data[:_VERSION_BYTES], "big", signed=True), _NEWEST)


def _slots(partitions: list[TopicPartition], topics: Topics) -> Slots:
    """Return the partitions of topics that are there."""
    return frozenset(
        (topics[entry.topic][0], number)
        for entry in partitions
        if entry.topic in topics
        for number in entry.partitions
    )
