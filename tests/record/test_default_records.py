"""Batches by the names of aiokafka, and what other readers and builders make of them."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka.errors import CorruptRecordError, UnsupportedCodecError
from aiokafka.record.batch import RecordBatchBuilder
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from aiokafka.record.default_records import (
    DefaultRecordBatch,
    DefaultRecordBatchBuilder,
    _DefaultRecordBatchBuilderPy,
)
from aiokafka.record.legacy_records import LegacyRecordBatch, LegacyRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from aiokafka.record.reader import RecordReader

RECORDS: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (1000, b"k", b"v" * 300, [("name", b"value"), ("é", None)]),
    (900, None, b"", []),
    (1300, b"", None, [("", b"")]),
]


def builder(compression_type: int = 0, batch_size: int = 10_000) -> DefaultRecordBatchBuilder:
    return DefaultRecordBatchBuilder(2, compression_type, 1, 7, 8, 9, batch_size)


@pytest.mark.parametrize("codec", range(5))
def test_what_is_built_is_read(codec: int) -> None:
    made = builder(codec)
    for offset, (timestamp, key, value, headers) in enumerate(RECORDS):
        meta = made.append(offset, timestamp, key, value, headers)
        assert meta is not None
        assert (meta.offset, meta.timestamp, meta.crc) == (offset, timestamp, None)
    data = bytes(made.build())
    batch = DefaultRecordBatch(data)
    assert batch.validate_crc()
    assert batch.is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 8, 9)
    assert (batch.compression_type, batch.next_offset) == (codec, 3)
    assert (batch.first_timestamp, batch.max_timestamp) == (1000, 1300)
    assert [(r.timestamp, r.key, r.value, r.headers) for r in batch] == RECORDS
    found: list[Any] = RecordReader(data, "t", 0, position=0).take(10)
    assert [(r.offset, r.value) for r in found] == [(0, b"v" * 300), (1, b""), (2, None)]


def test_a_batch_of_the_producer_is_read() -> None:
    made = RecordBatchBuilder(size_limit=1000)
    made.append(5, None, b"v", None)
    batch = DefaultRecordBatch(made.build())
    assert [(r.offset, r.timestamp, r.value, r.checksum) for r in batch] == [(0, 5, b"v", None)]


def test_offsets_may_have_gaps() -> None:
    made = builder()
    for offset in (0, 5):
        made.append(offset, 1, None, b"v", [])
    assert [r.offset for r in DefaultRecordBatch(made.build())] == [0, 5]


def test_the_first_record_always_fits() -> None:
    made = builder(batch_size=200)
    size = made.size_in_bytes(0, 1, None, b"v" * 300, [])
    assert made.append(0, 1, None, b"v" * 300, []) == (0, size, 1)
    assert made.append(1, 1, None, b"v", []) is None
    assert made.size() == len(made.build())


def test_an_estimate_is_enough() -> None:
    for timestamp, key, value, headers in RECORDS:
        made = builder()
        made.append(0, timestamp, key, value, headers)
        assert made.size() <= made.estimate_size_in_bytes(key, value, headers)


def test_an_empty_batch() -> None:
    assert list(DefaultRecordBatch(builder().build())) == []


def test_wrong_arguments() -> None:
    anything: Any = "text"
    with pytest.raises(TypeError):
        builder().append(0, 1, anything, None, [])
    with pytest.raises(TypeError):
        builder().append(0, anything, None, b"v", [])
    with pytest.raises(TypeError):
        builder().append(anything, 1, None, b"v", [])
    with pytest.raises(ValueError, match="magic"):
        DefaultRecordBatchBuilder(1, 0, 0, -1, -1, -1, 100)
    unknown = builder(7)
    unknown.append(0, 1, None, b"v", [])
    with pytest.raises(UnsupportedCodecError):
        unknown.build()


def test_a_damaged_batch() -> None:
    made = builder()
    made.append(0, 1, None, b"v", [])
    data = made.build()
    data[-2] ^= 1
    batch = DefaultRecordBatch(data)
    assert not batch.validate_crc()
    with pytest.raises(CorruptRecordError):
        list(batch)


def test_a_record_set_gives_such_batches() -> None:
    made = builder()
    made.append(0, 1, None, b"v", [("name", None)])
    batch = MemoryRecords(made.build()).next_batch()
    assert batch is not None
    (record,) = batch
    assert record.headers == [("name", None)]


def test_there_are_two_builders() -> None:
    """The tests of aiokafka refuse to run if the compiled one is the one of Python."""
    assert issubclass(DefaultRecordBatchBuilder, _DefaultRecordBatchBuilderPy)
    assert DefaultRecordBatchBuilder is not _DefaultRecordBatchBuilderPy


def test_markers() -> None:
    assert ControlRecord.parse(b"\0\0\0\0") == ABORT_MARKER
    assert ControlRecord.parse(b"\0\0\0\1") == COMMIT_MARKER
    assert ControlRecord.parse(b"\0\1\377\377") == (1, 65535)


def test_a_batch_gives_its_records_one_by_one() -> None:
    made = builder()
    for offset in (0, 1):
        made.append(offset, 1, None, b"v", [])
    batch = DefaultRecordBatch(made.build())
    assert [next(batch).offset, next(batch).offset] == [0, 1]
    with pytest.raises(StopIteration):
        next(batch)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_of_a_record_set(magic: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, 0, 1000)
    for offset in range(2):
        builder.append(offset, 5, b"k", b"v")
    records = MemoryRecords(bytes(builder.build()))
    found = []
    while (batch := records.next_batch()) is not None:
        assert isinstance(batch, LegacyRecordBatch)
        assert batch.validate_crc()
        assert not batch.is_control_batch
        found += [(record.offset, record.value) for record in batch]
    assert found == [(0, b"v"), (1, b"v")]
