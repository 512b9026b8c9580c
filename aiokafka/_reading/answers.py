"""Read one partition's part of a fetch response. Changes nothing, no awaits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka.errors import (
    BrokerResponseError,
    CorruptRecordException,
    FencedLeaderEpoch,
    KafkaError,
    NotLeaderForPartitionError,
    OffsetNotAvailable,
    OffsetOutOfRangeError,
    UnknownError,
    UnknownLeaderEpoch,
    for_code,
    for_partition,
)
from aiokafka.record.header import is_cut_short
from aiokafka.record.scan import Scan, scan_record_set

if TYPE_CHECKING:
    from aiokafka.protocol.messages.fetch import PartitionData
    from aiokafka.structs import TopicPartition

__all__ = [
    "MAX_OFFSET",
    "Answer",
    "CutShort",
    "Failed",
    "Failure",
    "Fetched",
    "NotNow",
    "Nothing",
    "OutOfRange",
    "doubts_metadata",
    "is_passing",
    "read_answer",
]

Failure = Callable[[], KafkaError]

MAX_OFFSET = 2**63 - 1

# Not in `invalid_metadata`, but the leader may be another one all the same.
_ALSO_REFRESH = frozenset({OffsetNotAvailable.errno, UnknownLeaderEpoch.errno})


# What a broker says that leads no more; and how often in a row before the metadata is in doubt.
_LEADS_NO_MORE = frozenset({NotLeaderForPartitionError.errno, FencedLeaderEpoch.errno})
_PATIENCE_WITH_METADATA = 2


class Fetched(NamedTuple):
    """A record set, and what its headers say. Without a complete batch (`scan.end` is -1) the first
    header is not valid: reading the set tells what is wrong with it."""

    data: Any
    scan: Scan
    aborted: list[tuple[int, int]]
    """(producer id, first offset) of each aborted transaction in it."""

    @property
    def response_bytes(self) -> int:
        """How much stays in memory as long as these records do: all of their response."""
        return len(getattr(self.data, "obj", self.data))


class Nothing(NamedTuple):
    """The broker has no more records yet."""


class CutShort(NamedTuple):
    """The next batch is larger than the bytes asked for (brokers before 0.10.1)."""


class Failed(NamedTuple):
    """An error to report, by a new exception for each waiter."""

    failure: Failure
    may_pass: bool
    """Whether Kafka calls the error retriable."""


class NotNow(NamedTuple):
    """An error that a later request may not get."""

    error: type[BrokerResponseError]
    is_stale_metadata: bool


class OutOfRange(NamedTuple):
    """The offset is not in the broker's log."""

    failure: Failure


Answer = Fetched | Nothing | CutShort | Failed | NotNow | OutOfRange


def read_answer(
    tp: TopicPartition, offset: int, data: PartitionData, until: int = MAX_OFFSET
) -> Answer:
    """Return what a response means for a partition that was asked for records from `offset` on.

    Records from offset `until` on are not wanted.
    """
    if data.error_code:
        return _read_error(tp, offset, for_code(data.error_code))
    if not data.records:
        return Nothing()
    scan = scan_record_set(data.records, until)
    if scan.end < 0 and is_cut_short(data.records):
        return CutShort()
    if 0 <= scan.end <= offset:
        text = f"{tp}: asked for offset {offset}, the broker sent records up to {scan.end} only"
        return Failed(lambda: CorruptRecordException(text), may_pass=False)
    aborted = data.aborted_transactions or ()
    return Fetched(data.records, scan, [(a.producer_id, a.first_offset) for a in aborted])


def is_passing(error: KafkaError | type[KafkaError]) -> bool:
    """Return whether a retry may help, as it may after an error that the broker did not expect."""
    return error.retriable or getattr(error, "errno", 0) == UnknownError.errno


def doubts_metadata(error: KafkaError | type[KafkaError], failures: int) -> bool:
    """Return whether a leader has denied that it leads so often in a row that the broker which goes
    on naming it may have been cut off from the others."""
    return getattr(error, "errno", 0) in _LEADS_NO_MORE and failures > _PATIENCE_WITH_METADATA


def _read_error(tp: TopicPartition, offset: int, error: type[BrokerResponseError]) -> Answer:
    if error is OffsetOutOfRangeError:
        return OutOfRange(lambda: OffsetOutOfRangeError({tp: offset}))
    # What is damaged on a broker's disk stays so, whatever the code promises.
    if error is CorruptRecordException or not is_passing(error):
        what = f"fetch at offset {offset} failed"
        return Failed(lambda: for_partition(error, tp, what), may_pass=error.retriable)
    return NotNow(error, error.invalid_metadata or error.errno in _ALSO_REFRESH)
