"""Read one partition's part of a fetch response. Changes nothing, no awaits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka.consumer._leader_epochs import Span
from aiokafka.consumer.fetch.buffer import scan_record_set
from aiokafka.consumer.partition_state import PartitionState
from aiokafka.errors import (
    BrokerResponseError,
    CorruptRecordException,
    KafkaError,
    OffsetNotAvailable,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    TopicAuthorizationFailedError,
    UnknownLeaderEpoch,
    for_code,
)
from aiokafka.record.reader import RecordReader

if TYPE_CHECKING:
    from aiokafka._config.consumer import ConsumerConfig
    from aiokafka.protocol.messages.fetch import PartitionData

__all__ = ["Answer", "Failed", "NotNow", "Nothing", "OutOfRange", "Records", "read_answer"]

Failure = Callable[[], KafkaError]

# Not in `invalid_metadata`, but the leader may be another one all the same.
_ALSO_REFRESH = frozenset({OffsetNotAvailable.errno, UnknownLeaderEpoch.errno})


class Records(NamedTuple):
    """A record set to buffer. `end` is the offset after it; -1 if it cannot be read: it is there
    to raise its error, and nothing after it can be asked for."""

    reader: RecordReader
    data: Any
    end: int
    spans: list[Span]


class Nothing(NamedTuple):
    """The broker has no more records yet."""


class Failed(NamedTuple):
    """An error for the reader. The partition is asked for again later: its cause may be mended."""

    failure: Failure


class NotNow(NamedTuple):
    """An error that a later request may not get."""

    error: type[BrokerResponseError]
    is_stale_metadata: bool


class OutOfRange(NamedTuple):
    """The offset is not in the broker's log."""

    failure: Failure


Answer = Records | Nothing | Failed | NotNow | OutOfRange


def read_answer(config: ConsumerConfig, state: PartitionState, data: PartitionData) -> Answer:
    """Return what an answer means for its partition, which has to be the one asked for."""
    if data.error_code:
        return _read_error(state, for_code(data.error_code))
    if data.records:
        return _read_records(config, state, data, data.records)
    return Nothing()


def _read_error(state: PartitionState, error: type[BrokerResponseError]) -> Answer:
    tp, offset = state.tp, state.cursor.offset
    if error is OffsetOutOfRangeError:
        return OutOfRange(lambda: OffsetOutOfRangeError({tp: offset}))
    if error is TopicAuthorizationFailedError:
        return Failed(lambda: TopicAuthorizationFailedError(tp.topic))
    if error is CorruptRecordException or not (error.retriable or error.errno == -1):
        return Failed(lambda: error(f"{tp}: fetch at offset {offset} failed"))
    return NotNow(error, error.invalid_metadata or error.errno in _ALSO_REFRESH)


def _read_records(
    config: ConsumerConfig, state: PartitionState, data: PartitionData, records: Any
) -> Answer:
    tp, offset = state.tp, state.cursor.offset
    end, spans = scan_record_set(memoryview(records))
    if end < 0 and offset >= 0 and _is_cut_short(records, len(records)):
        limit = config.max_partition_fetch_bytes
        text = f"{tp}: the record at offset {offset} is larger than max_partition_fetch_bytes="
        return Failed(lambda: RecordTooLargeError(f"{text}{limit}"))
    if 0 <= end <= offset:
        text = f"{tp}: asked for offset {offset}, the broker sent records up to {end} only"
        return Failed(lambda: CorruptRecordException(text))
    return Records(_reader(config, state, data, records), records, end, spans)


def _is_cut_short(records: Any, size: int) -> bool:
    """Whether the first batch is larger than what was sent of it (brokers before 0.10.1)."""
    return size < 17 or int.from_bytes(bytes(records[8:12]), "big", signed=True) + 12 > size


def _reader(
    config: ConsumerConfig, state: PartitionState, data: PartitionData, records: Any
) -> RecordReader:
    aborted = data.aborted_transactions or ()
    return RecordReader(
        records,
        state.tp.topic,
        state.tp.partition,
        position=state.cursor.offset,
        check_crcs=config.check_crcs,
        read_committed=config.read_committed,
        aborted=[(entry.producer_id, entry.first_offset) for entry in aborted],
        key_deserializer=config.key_deserializer,
        value_deserializer=config.value_deserializer,
        max_decompressed_bytes=config.max_decompressed_bytes,
    )
