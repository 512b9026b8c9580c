"""Columns hold what the reader of records returns, laid out as Arrow does it."""

from __future__ import annotations

import itertools
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka.errors import CorruptRecordError, UnsupportedCodecError
from aiokafka.record.batch import RecordReader
from aiokafka.record.columns import BinaryColumn, ColumnReader, Columns, read_columns
from tests.record.samples import (
    CODECS,
    HEADER_SIZE,
    ITEMS,
    LOG_APPEND_TIME,
    TWO_PRODUCERS,
    Item,
    beyond_64_bits,
    items,
    make_batch,
    make_record_sets,
    numbered,
    with_body,
)


def numbers(kind: str, buffer: bytearray) -> tuple[int, ...]:
    return struct.unpack(f"={len(buffer) // struct.calcsize('=' + kind)}{kind}", buffer)


def binary(column: BinaryColumn) -> list[bytes | None]:
    ends = numbers("i", column.offsets)
    assert ends[0] == 0
    assert ends[-1] == len(column.data)
    rows: list[bytes | None] = [bytes(column.data[a:b]) for a, b in itertools.pairwise(ends)]
    if column.validity is None:
        assert column.null_count == 0
        return rows
    assert len(column.validity) == (len(rows) + 7) // 8
    valid = [column.validity[row // 8] >> row % 8 & 1 for row in range(len(rows))]
    assert valid.count(0) == column.null_count > 0
    return [content if is_valid else None for content, is_valid in zip(rows, valid, strict=True)]


def rows_of(columns: Columns) -> list[tuple[Any, ...]]:
    names = [(name or b"").decode() for name in binary(columns.headers.names)]
    pairs = list(zip(names, binary(columns.headers.values), strict=True))
    ends = numbers("i", columns.headers.offsets)
    headers = [tuple(pairs[a:b]) for a, b in itertools.pairwise(ends)]
    found = list(
        zip(
            numbers("q", columns.offsets),
            numbers("q", columns.timestamps),
            numbers("b", columns.timestamp_types),
            binary(columns.keys),
            binary(columns.values),
            headers,
            strict=True,
        )
    )
    assert len(found) == columns.rows
    return found


def records_of(data: bytes, **options: Any) -> list[tuple[Any, ...]]:
    records = RecordReader(data, "topic", 0, **{"position": 0, **options}).take(1 << 30)
    return [
        (
            r.offset,
            -1 if r.timestamp is None else r.timestamp,
            -1 if r.timestamp_type is None else r.timestamp_type,
            r.key,
            r.value,
            r.headers,
        )
        for r in records
    ]


@pytest.mark.parametrize("number", range(len(make_record_sets())))
@pytest.mark.parametrize("position", [0, 2])
def test_every_kind_of_record_set(number: int, position: int) -> None:
    data = make_record_sets()[number]
    columns = read_columns(data, position=position)
    assert rows_of(columns) == records_of(data, position=position)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@given(records=items, rows=st.integers(1, 9))
def test_some_rows_at_a_time(codec: int, records: list[Item], rows: int) -> None:
    data = make_batch(records, codec=codec) + make_batch(base_offset=len(records))
    reader, found = ColumnReader(data, position=0), []
    while (columns := reader.read(rows)).rows:
        assert columns.rows <= rows
        found += rows_of(columns)
        assert columns.position == found[-1][0] + 1 == reader.position
    assert reader.exhausted
    assert found == records_of(data)


def test_columns_without_rows() -> None:
    columns = read_columns(b"", position=5)
    assert (columns.rows, columns.position) == (0, 5)
    assert rows_of(columns) == []
    assert len(columns.keys.offsets) == len(columns.headers.offsets) == 4


def test_append_time() -> None:
    columns = read_columns(make_batch(set_attributes=LOG_APPEND_TIME), position=0)
    newest = max(item.timestamp for item in ITEMS)
    assert set(numbers("q", columns.timestamps)) == {newest}
    assert set(columns.timestamp_types) == {1}


def test_transactions() -> None:
    options: Any = {"position": 0, "read_committed": True, "aborted": [(1, 0)]}
    columns = read_columns(TWO_PRODUCERS, **options)
    assert list(numbers("q", columns.offsets)) == [2, 3, 8, 9]
    assert columns.position == 11


def test_a_corrupt_batch_ends_the_columns_and_is_then_reported() -> None:
    bad = bytearray(make_batch(numbered(3), base_offset=3))
    bad[-1] ^= 1
    reader = ColumnReader(make_batch(numbered(3)) + bad, position=0)
    assert list(numbers("q", reader.read().offsets)) == [0, 1, 2]
    for _ in range(2):
        with pytest.raises(CorruptRecordError):
            reader.read()


def test_a_record_with_damaged_headers_leaves_no_trace() -> None:
    records = [
        Item(0, b"k", b"v", (("name", b"content"),)),
        Item(0, b"K", b"V", (("first", None), ("other", b"content"))),
    ]
    batch = make_batch(records)
    body = bytearray(batch[HEADER_SIZE:])
    body[body.index(b"other") + 5] = 0x7E  # the content would reach beyond the record
    reader = ColumnReader(with_body(batch, bytes(body)), position=0)
    columns = reader.read()
    assert rows_of(columns) == [(0, 0, 0, b"k", b"v", (("name", b"content"),))]
    with pytest.raises(CorruptRecordError, match="header"):
        reader.read()


def test_unknown_codecs_and_bombs_are_refused() -> None:
    with pytest.raises(UnsupportedCodecError):
        read_columns(make_batch(set_attributes=6), position=0)
    with pytest.raises(CorruptRecordError, match="max_decompressed_bytes"):
        bomb = make_batch([Item(0, None, bytes(5_000_000))], codec=4)
        read_columns(bomb, position=0, max_decompressed_bytes=1_000_000)


@pytest.mark.parametrize("delta", [1, 2**62])
def test_a_timestamp_beyond_64_bits_is_corrupt(delta: int) -> None:
    reader = ColumnReader(beyond_64_bits(delta), position=0)
    assert numbers("q", reader.read().timestamps) == (2**63 - 1,)
    with pytest.raises(CorruptRecordError, match="timestamp"):
        reader.read()
