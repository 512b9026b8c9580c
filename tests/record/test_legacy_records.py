"""Message sets of magic 0 and 1 by the names of aiokafka, and its numbers of variable length."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from aiokafka.errors import CorruptRecordError
from aiokafka.record.compression import GZIP, LZ4, NONE, SNAPPY
from aiokafka.record.legacy import build_message_set
from aiokafka.record.legacy_records import (
    LegacyRecordBatch,
    LegacyRecordBatchBuilder,
    LegacyRecordMetadata,
)
from aiokafka.record.reader import RecordReader
from aiokafka.record.util import calc_crc32c, decode_varint, encode_varint, size_of_varint

RECORDS: list[tuple[int, bytes | None, bytes | None]] = [
    (1000, b"k", b"v" * 300),
    (900, None, b""),
    (1300, b"", None),
]


def builder(magic: int, codec: int = NONE, batch_size: int = 10_000) -> LegacyRecordBatchBuilder:
    return LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=batch_size)


@pytest.mark.parametrize("codec", [NONE, GZIP, SNAPPY, LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_what_is_built_is_read(magic: int, codec: int) -> None:
    made = builder(magic, codec)
    for offset, (timestamp, key, value) in enumerate(RECORDS):
        size = made.size()
        meta = made.append(offset, timestamp, key, value)
        assert meta is not None
        assert (meta.offset, meta.timestamp) == (offset, timestamp if magic else -1)
        assert meta.size == made.size_in_bytes(offset, timestamp, key, value)
        assert meta.size == made.size() - size
    data = bytes(made.build())
    assert [one.value for one in RecordReader(data, "t", 0, position=0).take(9)] == [
        value for _, _, value in RECORDS
    ]
    if not codec:
        return
    # One message, with the others in it.
    batch = LegacyRecordBatch(data, magic)
    assert batch.validate_crc()
    assert batch.next_offset == len(RECORDS)
    assert [
        (one.offset, one.timestamp, one.timestamp_type, one.key, one.value, one.headers)
        for one in batch
    ] == [
        (offset, timestamp if magic else None, 0 if magic else None, key, value, [])
        for offset, (timestamp, key, value) in enumerate(RECORDS)
    ]


@pytest.mark.parametrize("magic", [0, 1])
def test_bytes_and_checksums_are_those_of_kafka(magic: int) -> None:
    made = builder(magic)
    meta = made.append(0, 1000 if magic else None, b"k", b"v")
    data = made.build()
    assert bytes(data) == build_message_set(magic, [(1000, b"k", b"v")])
    (record,) = LegacyRecordBatch(data, magic)
    assert meta is not None
    assert meta.crc == record.checksum == int.from_bytes(data[12:16], "big")
    assert repr(LegacyRecordMetadata(1, 2, 3, 4)) == (
        "LegacyRecordMetadata(offset=1, crc=2, size=3, timestamp=4)"
    )
    assert LegacyRecordBatchBuilder.record_overhead(magic) == len(data) - 12 - 2
    data[-1] ^= 1
    assert not LegacyRecordBatch(data, magic).validate_crc()
    with pytest.raises(ValueError, match=f"magic {magic}"):
        LegacyRecordBatch(data, 1 - magic)


def test_a_message_set_that_is_full() -> None:
    made = builder(1, batch_size=100)
    assert made.append(0, None, None, b"v" * 200) is not None
    assert made.append(1, None, None, b"") is None
    assert len(made.build()) == made.size() == 34 + 200


@pytest.mark.parametrize(
    ("offset", "timestamp", "key", "value"),
    [(0, 1, "key", None), (0, 1, None, "value"), (0, "1", None, b""), ("0", 1, None, b"")],
)
def test_arguments_of_a_wrong_type(offset: Any, timestamp: Any, key: Any, value: Any) -> None:
    made = builder(1)
    with pytest.raises(TypeError):
        made.append(offset, timestamp, key, value)
    assert made.size() == 0


def test_a_compressed_message_without_a_value() -> None:
    made = builder(0, GZIP)
    made.append(0, None, None, b"v")
    data = made.build()[:22] + b"\xff" * 4
    struct.pack_into(">i", data, 8, len(data) - 12)
    with pytest.raises(CorruptRecordError, match="Value of compressed message is None"):
        list(LegacyRecordBatch(data, 0))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (-64, "7f"),
        (64, "8001"),
        (1 << 62, "80808080808080808001"),
        (-(1 << 62) - 1, "81808080808080808001"),
    ],
)
def test_numbers_of_variable_length(value: int, encoded: str) -> None:
    wanted = bytes.fromhex(encoded)
    out = bytearray()
    assert encode_varint(value, out.append) == len(wanted)
    assert bytes(out) == wanted
    assert size_of_varint(value) == len(wanted)
    assert decode_varint(bytearray(b"\xff" + wanted + b"\xff"), 1) == (value, 1 + len(wanted))


def test_the_checksum() -> None:
    assert calc_crc32c(b"a") == 0xC1D04330
