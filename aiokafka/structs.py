"""Immutable values that users pass and receive."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from aiokafka._consumer_record import KT, VT, ConsumerRecord

if TYPE_CHECKING:
    from aiokafka.errors import KafkaError

__all__ = [
    "KT",
    "VT",
    "BrokerMetadata",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionMetadata",
    "RecordMetadata",
    "TopicPartition",
]


class TopicPartition(NamedTuple):
    """A topic and one of its partitions."""

    topic: str
    partition: int


class BrokerMetadata(NamedTuple):
    """A broker and where it is reached."""

    nodeId: int
    host: str
    port: int
    rack: str | None = None


class PartitionMetadata(NamedTuple):
    """A partition and the brokers that hold it."""

    topic: str
    partition: int
    leader: int
    replicas: list[int]
    isr: list[int]
    error: type[KafkaError] | KafkaError | None = None


class OffsetAndMetadata(NamedTuple):
    """An offset to commit, with a string of the application's own."""

    offset: int
    metadata: str = ""


class OffsetAndTimestamp(NamedTuple):
    """An offset found by time, and the timestamp of its record.

    The timestamp is in milliseconds since 1970 (UTC); None for a log without timestamps.
    """

    offset: int
    timestamp: int | None


class RecordMetadata(NamedTuple):
    """Where a record that was sent has been written.

    `timestamp` is in milliseconds since 1970 (UTC), or -1 when the broker does not know it.
    `timestamp_type` is 0 for the time given by the producer, 1 for the time of the append, None
    for a topic without timestamps. `offset` is -1 when the broker only knows that it has the
    record already. `log_start_offset` is None when the broker is too old to tell it.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int | None
    timestamp_type: int | None
    log_start_offset: int | None
