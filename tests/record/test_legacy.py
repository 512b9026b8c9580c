"""Message sets of magic 0 and 1."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka.errors import CorruptRecordError, IllegalArgumentError, UnsupportedCodecError
from aiokafka.record.batch import RecordReader, down_convert, iter_batches
from aiokafka.record.legacy import build_message_set
from tests.record.samples import CODECS, ITEMS, contents, make_batch

OLD_CODECS = {name: codec for name, codec in CODECS.items() if name != "zstd"}
both = pytest.mark.parametrize("magic", [0, 1])
old_codecs = pytest.mark.parametrize("codec", OLD_CODECS.values(), ids=OLD_CODECS)
plain_items = st.lists(st.tuples(st.integers(0, 2**62), contents, contents), min_size=1, max_size=9)
PLAIN = [(item.timestamp, item.key, item.value) for item in ITEMS]


def read(data: bytes, **options: Any) -> list[Any]:
    return RecordReader(data, "topic", 3, **{"position": 0, **options}).take(1000)


def pack(magic: int, offset: int, attributes: int, timestamp: int, value: bytes) -> bytes:
    """A message without key, as the documentation of the format has it."""
    head = struct.pack(">Bb", magic, attributes)
    head += struct.pack(">q", timestamp) if magic else b""
    body = head + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


@both
@old_codecs
@given(records=plain_items)
def test_what_was_built_is_read_back(
    magic: int, codec: int, records: list[tuple[int, bytes | None, bytes | None]]
) -> None:
    found = read(build_message_set(magic, records, codec))
    assert [(r.key, r.value) for r in found] == [record[1:] for record in records]
    assert [r.offset for r in found] == list(range(len(records)))
    expected = [record[0] for record in records] if magic else [None] * len(records)
    assert [r.timestamp for r in found] == expected
    assert {r.timestamp_type for r in found} == {0 if magic else None}
    assert all(type(r.checksum) is int and r.headers == () for r in found)


@both
def test_a_message_is_as_documented(magic: int) -> None:
    assert build_message_set(magic, [(5, None, b"value")]) == pack(magic, 0, 0, 5, b"value")


def test_offsets_in_a_wrapper_are_relative_in_magic_1() -> None:
    inner = b"".join(pack(1, offset, 0, 9, b"%d" % offset) for offset in (0, 2, 3))
    found = read(pack(1, 103, 1, 9, zlib_pack(inner)))
    assert [(r.offset, r.value) for r in found] == [(100, b"0"), (102, b"2"), (103, b"3")]


def test_offsets_in_a_wrapper_are_absolute_in_magic_0() -> None:
    inner = b"".join(pack(0, offset, 0, 0, b"%d" % offset) for offset in (100, 102, 103))
    found = read(pack(0, 103, 1, 0, zlib_pack(inner)), position=101)
    assert [r.offset for r in found] == [102, 103]


def zlib_pack(data: bytes) -> bytes:
    stream = zlib.compressobj(wbits=31)
    return stream.compress(data) + stream.flush()


def test_append_time_of_a_wrapper_is_that_of_its_records() -> None:
    inner = pack(1, 0, 0, 1, b"a") + pack(1, 1, 0, 2, b"b")
    found = read(pack(1, 1, 1 | 0x08, 99, zlib_pack(inner)))
    assert [(r.timestamp, r.timestamp_type) for r in found] == [(99, 1), (99, 1)]


@pytest.mark.parametrize("store_size", [False, True])
def test_the_broken_checksum_of_lz4_frames_is_accepted_and_written(store_size: bool) -> None:
    (batch,) = iter_batches(build_message_set(0, PLAIN, 3))
    frame = bytes(batch.view[26:])
    with pytest.raises(RuntimeError):
        lz4.frame.decompress(frame)
    (batch,) = iter_batches(build_message_set(1, PLAIN, 3))
    assert lz4.frame.decompress(bytes(batch.view[34:]))
    # Some wrote the right checksum in magic 0, too.
    right = lz4.frame.compress(pack(0, 0, 0, 0, b"value"), store_size=store_size)
    assert [r.value for r in read(pack(0, 0, 3, 0, right))] == [b"value"]


@both
def test_the_checksum_is_checked(magic: int) -> None:
    data = bytearray(build_message_set(magic, PLAIN[:1]))
    data[-1] ^= 1
    with pytest.raises(CorruptRecordError, match="checksum"):
        read(bytes(data))
    assert len(read(bytes(data), check_crcs=False)) == 1


@both
def test_wrappers_that_cannot_be_are_corrupt(magic: int) -> None:
    good = pack(magic, 0, 0, 5, b"value")
    for payload in (
        b"",
        good[:-1],
        pack(1 - magic, 0, 0, 5, b"value"),
        pack(magic, 0, 1, 5, zlib_pack(good)),
        good + good,  # the same offset twice
        make_batch(),
    ):
        with pytest.raises(CorruptRecordError):
            read(pack(magic, 9, 1, 5, zlib_pack(payload)))


@both
def test_the_checksum_of_what_is_wrapped_is_checked(magic: int) -> None:
    """The wrapper's own is right."""
    inner = bytearray(pack(magic, 0, 0, 5, b"value"))
    inner[-1] ^= 1
    data = pack(magic, 0, 1, 5, zlib_pack(bytes(inner)))
    with pytest.raises(CorruptRecordError, match="checksum"):
        read(data)
    assert len(read(data, check_crcs=False)) == 1


@both
def test_a_wrapper_of_nothing_is_corrupt(magic: int) -> None:
    """It has no value at all, where the messages should be."""
    head = struct.pack(">Bb", magic, 1) + (struct.pack(">q", 5) if magic else b"")
    body = head + struct.pack(">ii", -1, -1)
    data = struct.pack(">qiI", 3, len(body) + 4, zlib.crc32(body)) + body
    with pytest.raises(CorruptRecordError, match="Value of compressed message is None: offset 3"):
        read(data)


@both
def test_zstd_is_not_part_of_these_formats(magic: int) -> None:
    with pytest.raises(UnsupportedCodecError):
        build_message_set(magic, PLAIN, 4)
    with pytest.raises(UnsupportedCodecError):
        read(pack(magic, 0, 4, 0, b"x"))


@both
@old_codecs
def test_batches_can_be_converted_for_old_brokers(magic: int, codec: int) -> None:
    items = [item._replace(headers=()) for item in ITEMS]
    found = read(down_convert(make_batch(items, codec=codec), magic, codec))
    assert [(r.key, r.value) for r in found] == [(item.key, item.value) for item in items]


def test_headers_have_no_room_in_these_formats() -> None:
    with pytest.raises(IllegalArgumentError, match="headers"):
        down_convert(make_batch(), 1)
