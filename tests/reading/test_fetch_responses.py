"""What one partition's part of a fetch response means."""

from __future__ import annotations

import pytest

from aiokafka import TopicPartition
from aiokafka._reading import (
    BatchTooLarge,
    Failed,
    Fetched,
    NoRecords,
    OutOfRange,
    PartitionResult,
    RetryLater,
    read_partition,
)
from aiokafka.errors import (
    BrokerResponseError,
    CorruptRecordException,
    GroupAuthorizationFailedError,
    KafkaStorageError,
    NotLeaderForPartitionError,
    OffsetNotAvailable,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnknownError,
)
from aiokafka.protocol.messages.fetch import AbortedTransaction, PartitionData
from tests.record.samples import make_batch, numbered

TP = TopicPartition("t", 3)
BATCH = make_batch(numbered(10), base_offset=20)


def answer(
    offset: int = 20, *, error: type[BrokerResponseError] | None = None, records: bytes = b""
) -> PartitionResult:
    code = error.errno if error is not None else 0
    data = PartitionData(partition_index=3, error_code=code, high_watermark=0, records=records)
    return read_partition(TP, offset, data)


def test_records_come_with_what_their_headers_say() -> None:
    found = answer(25, records=BATCH)
    assert isinstance(found, Fetched)
    assert (found.scan.size, found.scan.end, found.aborted) == (len(BATCH), 30, [])
    assert isinstance(answer(), NoRecords)


def test_aborted_transactions_come_with_the_records() -> None:
    aborted = [AbortedTransaction(producer_id=7, first_offset=20)]
    data = PartitionData(
        partition_index=3, high_watermark=0, aborted_transactions=aborted, records=BATCH
    )
    found = read_partition(TP, 20, data)
    assert isinstance(found, Fetched)
    assert found.aborted == [(7, 20)]


def test_records_keep_all_of_their_response_in_memory() -> None:
    frame = bytes(1000) + BATCH
    data = PartitionData(partition_index=3, high_watermark=0, records=memoryview(frame)[1000:])
    found = read_partition(TP, 20, data)
    assert isinstance(found, Fetched)
    assert found.response_bytes == len(frame)


def test_a_part_of_a_batch_is_no_damage() -> None:
    for size in (1, 16, 17, len(BATCH) - 1):
        assert isinstance(answer(records=BATCH[:size]), BatchTooLarge)


def test_a_damaged_header_is_left_to_the_reader() -> None:
    found = answer(records=BATCH[:16] + b"\x09" + BATCH[17:])
    assert isinstance(found, Fetched)
    assert found.scan.end == -1


def test_records_that_end_before_the_offset_are_an_error() -> None:
    found = answer(30, records=BATCH)
    assert isinstance(found, Failed)
    assert not found.is_retriable
    with pytest.raises(CorruptRecordException, match=r"t.*3.*asked for offset 30.* up to 30 only"):
        raise found.failure()


def test_an_offset_outside_of_the_log_is_a_case_of_its_own() -> None:
    assert isinstance(answer(error=OffsetOutOfRangeError), OutOfRange)


@pytest.mark.parametrize(
    ("error", "is_stale"),
    [
        (NotLeaderForPartitionError, True),
        (OffsetNotAvailable, True),
        (KafkaStorageError, True),
        (UnknownError, False),
    ],
)
def test_what_is_retriable_is_asked_again(error: type[BrokerResponseError], is_stale: bool) -> None:
    found = answer(error=error)
    assert isinstance(found, RetryLater)
    assert (found.error, found.is_stale_metadata) == (error, is_stale)


@pytest.mark.parametrize(
    ("error", "is_retriable"),
    [(CorruptRecordException, True), (GroupAuthorizationFailedError, False)],
)
def test_other_errors_are_reported(error: type[BrokerResponseError], is_retriable: bool) -> None:
    found = answer(error=error)
    assert isinstance(found, Failed)
    assert found.is_retriable is is_retriable
    one, other = found.failure(), found.failure()
    assert isinstance(one, error)
    assert one is not other
    assert "fetch at offset 20 failed" in str(one)


def test_a_topic_that_must_not_be_read_is_named() -> None:
    found = answer(error=TopicAuthorizationFailedError)
    assert isinstance(found, Failed)
    assert found.failure().args == ("t",)
