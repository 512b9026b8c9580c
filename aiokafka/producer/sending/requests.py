"""Make a ProduceRequest of batches, and read from the response what became of each. Pure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from aiokafka.errors import (
    BrokerResponseError,
    IncompatibleBrokerVersion,
    InvalidProducerIdMapping,
    InvalidRecord,
    InvalidTimestampError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    RecordListTooLargeError,
    for_code,
)
from aiokafka.producer.batches.appender import PartitionQueue
from aiokafka.producer.batches.batch import ProducerBatch
from aiokafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.record.compression import ZSTD
from aiokafka.record.contents import down_convert
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata

__all__ = [
    "LAST_PLAIN_VERSION",
    "NAMED_TOPICS_VERSION",
    "Cargo",
    "Flight",
    "Payload",
    "batch_error",
    "check_version",
    "final_error",
    "forgotten",
    "group_by_topic",
    "ids_of_topics",
    "in_doubt",
    "may_be_written",
    "record_errors",
    "results_of",
    "wire_form",
]


# -- A request with batches that has not been answered


Cargo = list[tuple[PartitionQueue, ProducerBatch]]
"""What goes into one request: at most one batch of each partition."""


class Flight(NamedTuple):
    """A request that has not been answered, and what it carries."""

    request: ProduceRequest
    answer: asyncio.Future[ProduceResponse | None]
    """Its response; None with acks=0."""

    cargo: Cargo
    sent_at: float
    """When it was sent (loop time)."""


Chunk = bytes | bytearray | memoryview


NAMED_TOPICS_VERSION = 12
"""The last version that names topics; from the next on they go by id (KIP-516)."""

LAST_PLAIN_VERSION = 11
"""The last version that leaves it to the client to enter partitions into a transaction (KIP-890).
"""

_TOO_LARGE_CODES = (MessageSizeTooLargeError, RecordListTooLargeError)
# What is refused for itself was refused the first time, too.
_UNFIT = (*_TOO_LARGE_CODES, InvalidRecord, InvalidTimestampError)

_FIRST_V2_BATCH = 3
_FIRST_TIMESTAMPED = 2
_FIRST_ZSTD = 7


class Payload(NamedTuple):
    """What goes into a request for one partition."""

    partition: TopicPartition
    records: Chunk


def wire_form(
    batch: ProducerBatch, version: int, codec: int, level: int | None, transactional: bool = False
) -> Chunk:
    """Return the bytes of `batch` for a request of this version; before Kafka 0.11 they are in the
    older formats.

    Raises IllegalArgumentError for what those formats have no room for.
    """
    records = batch.builder.build(
        batch.producer_id, batch.producer_epoch, batch.base_sequence, transactional
    )
    if version >= _FIRST_V2_BATCH:
        return records
    magic = 1 if version >= _FIRST_TIMESTAMPED else 0
    return down_convert(records, magic, codec, level)


def check_version(version: int, codec: int) -> None:
    """Raise IncompatibleBrokerVersion if the broker cannot read what `codec` packed (KIP-110)."""
    if codec == ZSTD and version < _FIRST_ZSTD:
        raise IncompatibleBrokerVersion(
            "compression_type='zstd' needs Kafka 2.1 or later; this broker speaks Produce "
            f"up to version {version}: use another compression_type"
        )


def group_by_topic(
    payloads: Iterable[Payload], topic_ids: dict[str, bytes]
) -> list[TopicProduceData]:
    """Return the topics of a request. `topic_ids` may be empty for versions that name topics."""
    topics: dict[str, TopicProduceData] = {}
    for (name, number), records in payloads:
        topic = topics.get(name)
        if topic is None:
            topic_id = topic_ids.get(name, ZERO_UUID)
            topic = TopicProduceData(name=name, topic_id=topic_id, partition_data=[])
            topics[name] = topic
        topic.partition_data.append(PartitionProduceData(index=number, records=records))
    return list(topics.values())


def ids_of_topics(
    cluster: ClusterMetadata, partitions: Iterable[TopicPartition]
) -> dict[str, bytes]:
    """Return the id of every topic; empty if one is unknown."""
    ids: dict[str, bytes] = {}
    for topic, _ in partitions:
        if topic not in ids:
            topic_id = cluster.topic_id(topic)
            if topic_id is None:
                return {}
            ids[topic] = topic_id
    return ids


def results_of(
    request: ProduceRequest, response: ProduceResponse
) -> dict[tuple[str, int], PartitionProduceResponse]:
    """Return the result of each partition, by topic and number.

    If a partition has several, the first with an error counts: records that are taken for written
    and are not would be lost.
    """
    names = {topic.topic_id: topic.name for topic in request.topic_data}
    results: dict[tuple[str, int], PartitionProduceResponse] = {}
    for topic in response.responses:
        name = topic.name or names.get(topic.topic_id, "")
        for result in topic.partition_responses:
            other = results.get((name, result.index))
            if other is None or not other.error_code:
                results[name, result.index] = result
    return results


def batch_error(partition: TopicPartition, result: PartitionProduceResponse) -> BrokerResponseError:
    """Return the exception for a result with an error code."""
    text = result.error_message or for_code(result.error_code).description
    return for_code(result.error_code)(f"{partition.topic}-{partition.partition}: {text}")


def may_be_written(batch: ProducerBatch, error: BaseException) -> bool:
    """Return whether `batch`, given up with `error`, may still be written: its time was up in
    flight, or a request before the last one has left it open."""
    return batch.is_done or (batch.is_unanswered and not isinstance(error, _UNFIT))


def final_error(batch: ProducerBatch, error: BrokerResponseError) -> BrokerResponseError:
    """Return the error of records that a broker has refused."""
    # A limit of sizes may have been lowered since the first time.
    is_late = batch.is_unanswered and isinstance(error, _TOO_LARGE_CODES)
    if not (is_late or may_be_written(batch, error)):
        return error
    return type(error)(
        f"{error.args[0]} (The response to an earlier request with the records was lost, or left "
        "it open: they may have been written.)"
    )


def in_doubt(partition: TopicPartition, error: BrokerResponseError) -> MessageSizeTooLargeError:
    """Return the error of records whose batch was too large, but may have been written before the
    limit was lowered.
    """
    failure = MessageSizeTooLargeError(
        f"{partition.topic}-{partition.partition}: the batch was refused for its size when it was "
        "sent again, but it may have been written the first time"
    )
    failure.__cause__ = error
    return failure


def forgotten(partition: TopicPartition) -> InvalidProducerIdMapping:
    """Return the error of records that were sent under a producer id which the broker has forgotten
    since."""
    return InvalidProducerIdMapping(
        f"{partition.topic}-{partition.partition}: the broker has forgotten the producer id, and "
        "an earlier request got no response: the batch may have been written, and is not sent again"
    )


def unresolved(partition: TopicPartition, error: BrokerResponseError) -> OutOfOrderSequenceNumber:
    """Return the error of records that were sent behind a batch of unknown outcome."""
    failure = OutOfOrderSequenceNumber(
        f"{partition.topic}-{partition.partition}: the broker misses records before these, which "
        "were given up without a response; these may have been written with them"
    )
    failure.__cause__ = error
    return failure


def record_errors(
    batch: ProducerBatch, error: BaseException, result: PartitionProduceResponse
) -> Callable[[int], BaseException] | None:
    """Return a function that makes the error of each record by its place in the batch (KIP-467).

    Records that the user put into the batch have one future, and one error: that of place 0.
    Returns None if the broker blames no record in particular.
    """
    blamed = {entry.batch_index: entry.batch_index_error_message for entry in result.record_errors}
    if not blamed:
        return None
    where = f"{batch.partition.topic}-{batch.partition.partition}"
    own = 0 if batch.whole is None else batch.record_count - len(batch.outcome.timestamps)
    first = min((index for index in blamed if index < own), default=-1)

    def make_error(index: int) -> BaseException:
        if index < own and first >= 0:
            reason = blamed[first] or result.error_message or "refused"
            return type(error)(f"{where}: record {first} of the batch: {reason}")
        if index in blamed:
            return type(error)(f"{where}: {blamed[index] or result.error_message or 'refused'}")
        return type(error)(
            f"{where}: not written, because the broker refused other records of its batch"
        )

    return make_error
