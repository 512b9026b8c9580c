"""Check what callers of the producer pass, and what a partitioner chooses."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from aiokafka.errors import IllegalStateError, MessageSizeTooLargeError, WrongArgument
from aiokafka.producer._convert import Headers, as_bytes, as_timestamp, check_topic
from aiokafka.producer.batches.batch_builder import BatchBuilder
from aiokafka.producer.message_accumulator import OutgoingRecord

if TYPE_CHECKING:
    from aiokafka._config.producer import ProducerConfig
    from aiokafka.cluster import ClusterMetadata

__all__ = ["ask_partitioner", "check_batch", "checked_record"]


def checked_record(
    topic: str,
    value: Any,
    key: Any,
    timestamp_ms: float | None,
    headers: Headers,
    config: ProducerConfig,
) -> OutgoingRecord:
    """Return the record that a caller of `send` describes, after the serializers.

    Raises WrongArgument, TypeError, and MessageSizeTooLargeError.
    """
    check_topic(topic)
    if value is None and key is None:
        raise WrongArgument("Need at least one: key or value; both are None")
    record = OutgoingRecord(
        topic,
        as_bytes(value, "value", config.value_serializer is not None),
        as_bytes(key, "key", config.key_serializer is not None),
        as_timestamp(OutgoingRecord.now() if timestamp_ms is None else timestamp_ms),
        headers,
    )
    if record.size > config.max_request_size:
        raise MessageSizeTooLargeError(
            f"The message is {record.size} bytes when serialized which is larger than "
            f"max_request_size={config.max_request_size}: topic {topic!r}"
        )
    return record


def check_batch(batch: BatchBuilder, topic: str, config: ProducerConfig) -> None:
    """Raise unless a batch that the user made can be sent."""
    if batch.is_sent:
        raise IllegalStateError("the batch was sent already")
    if not batch.record_count():
        raise WrongArgument("the batch is empty")
    if batch.size() > config.max_request_size:
        raise MessageSizeTooLargeError(
            f"topic {topic!r}: a batch of {batch.size()} bytes does not fit into "
            f"max_request_size={config.max_request_size}"
        )


def ask_partitioner(
    partitioner: Callable[..., int], topic: str, key: bytes | None, cluster: ClusterMetadata
) -> int:
    """Return the partition that the user's partitioner chooses for `key`.

    Raises WrongArgument if there is no such partition.
    """
    numbers = cluster.partition_ids(topic)
    available = list(cluster.available_partition_ids(topic))
    by_topic = getattr(partitioner, "partition_for", None)
    if by_topic is not None:
        chosen = by_topic(topic, key, list(numbers), available)
    else:
        chosen = partitioner(key, list(numbers), available)
    if chosen not in numbers:
        raise WrongArgument(
            f"the partitioner chose {chosen!r} for topic {topic!r}, which has partitions "
            f"from {min(numbers)} to {max(numbers)}"
        )
    return int(chosen)
