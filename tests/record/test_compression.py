"""Codecs: round trips, other programs' streams, damage, bombs, levels, missing packages."""

from __future__ import annotations

import contextlib
import gzip
import importlib
import random
import struct
import sys
import time
import tracemalloc
from typing import Any

import lz4.frame
import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from aiokafka import codec as compatibility
from aiokafka.errors import CorruptRecordError, UnsupportedCodecError
from aiokafka.record import compression
from aiokafka.record.compression import check_level, codec_id, compress, decompress, has_codec

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
MIXED = random.Random(1).randbytes(3000) + b"and a part that shrinks " * 3000
SIZED = zstandard.ZstdCompressor().compress(MIXED)
every_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


@every_codec
@given(data=st.binary(max_size=2000))
def test_what_was_compressed_is_read_back(codec: int, data: bytes) -> None:
    packed = compress(codec, data)
    assert decompress(codec, packed) == data
    assert decompress(codec, memoryview(bytearray(packed))) == data


@every_codec
@pytest.mark.parametrize("size", [0, 1, 32 * 1024, 32 * 1024 + 1, 1_000_000])
def test_sizes_around_those_of_blocks(codec: int, size: int) -> None:
    data = (MIXED * (size // len(MIXED) + 1))[:size]
    assert decompress(codec, compress(codec, data)) == data


def test_gzip_of_several_members() -> None:
    assert decompress(1, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"


SIZES = st.sampled_from([0, 1, 200, 256, 5_000, 70_000, 300_000])


@given(sizes=st.lists(SIZES, min_size=1, max_size=6), seed=st.integers(0, 9))
def test_gzip_members_of_any_size_follow_each_other(sizes: list[int], seed: int) -> None:
    dice = random.Random(seed)
    whole = b"".join(dice.randbytes(size // 2) + bytes(size - size // 2) for size in sizes)
    packed, at = b"", 0
    for size in sizes:
        packed += gzip.compress(whole[at : at + size], mtime=0)
        at += size
    assert decompress(1, packed) == whole
    assert decompress(1, packed, max(len(whole), 1)) == whole
    for end in {len(packed) - 1, len(packed) - 9, dice.randrange(1, len(packed))}:
        with contextlib.suppress(CorruptRecordError):
            # Cut between two members it is only shorter.
            assert whole.startswith(decompress(1, packed[:end]))
    with pytest.raises(CorruptRecordError):
        decompress(1, packed[:-1])
    if whole:
        with pytest.raises(CorruptRecordError, match="more than"):
            decompress(1, packed, len(whole) - 1)
    assert decompress(1, packed + b"x") == whole


def test_gzip_of_very_many_members_takes_linear_time() -> None:
    count = 180_000
    packed = gzip.compress(b"x", mtime=0) * count
    before = time.process_time()
    assert decompress(1, packed) == b"x" * count
    # Under a second. It was half a minute when what was behind each member was copied.
    assert time.process_time() - before < 8


@pytest.mark.parametrize("rest", [b"\0" * 8, b"rest", b"\0" * 64, b"\x1f\x8b"])
def test_bytes_behind_a_gzip_file_are_ignored_as_in_java(rest: bytes) -> None:
    packed = gzip.compress(b"one ") + gzip.compress(b"two")
    assert decompress(1, packed + rest) == b"one two"


def test_a_further_gzip_member_that_is_damaged_is_corrupt() -> None:
    packed = gzip.compress(b"one ") + gzip.compress(MIXED)
    with pytest.raises(CorruptRecordError, match="ends too early"):
        decompress(1, packed[:-4])
    with pytest.raises(CorruptRecordError, match="gzip cannot decompress"):
        decompress(1, packed[:-8] + bytes(8))


@pytest.mark.parametrize("rest", [b"\0" * 8, b"rest"])
def test_bytes_behind_an_lz4_frame_are_ignored_as_in_java(rest: bytes) -> None:
    packed = compress(3, MIXED) + rest
    assert decompress(3, packed) == MIXED
    assert decompress(3, packed, len(MIXED)) == MIXED


def test_snappy_streams_follow_each_other_as_in_java() -> None:
    packed = compress(2, b"one ") + compress(2, b"two")
    assert decompress(2, packed) == decompress(2, packed + b"\0\0\0") == b"one two"
    with pytest.raises(CorruptRecordError, match="ends too early"):
        decompress(2, compress(2, b"one ") + packed[:12])


def test_frames_of_zstd_to_be_skipped_may_stand_anywhere() -> None:
    frame, skipped = compress(4, MIXED), struct.pack("<II", 0x184D2A50, 4) + b"abcd"
    assert decompress(4, skipped + frame + skipped + frame + skipped) == MIXED * 2


def test_gzip_is_read_by_others() -> None:
    assert gzip.decompress(compress(1, MIXED)) == MIXED


def test_snappy_without_framing_is_read() -> None:
    assert decompress(2, snappy.compress(MIXED)) == MIXED


def test_snappy_is_framed_as_java_does() -> None:
    packed = compress(2, b"x" * 40_000)
    assert packed[:16] == b"\x82SNAPPY\0" + b"\0\0\0\1" + b"\0\0\0\1"
    size = int.from_bytes(packed[16:20], "big")
    assert snappy.decompress(packed[20 : 20 + size]) == b"x" * 32 * 1024


@pytest.mark.parametrize(
    "options", [{"store_size": True}, {"block_linked": True}, {"content_checksum": True}]
)
def test_lz4_of_other_writers(options: dict[str, bool]) -> None:
    assert decompress(3, lz4.frame.compress(MIXED, **options)) == MIXED


def test_lz4_blocks_do_not_depend_on_each_other() -> None:
    # Java's reader, the broker's too, refuses those that do.
    assert not lz4.frame.get_frame_info(compress(3, MIXED))["block_linked"]


def test_zstd_without_size_as_java_writes() -> None:
    packed = zstandard.ZstdCompressor(write_content_size=False).compress(MIXED)
    assert decompress(4, packed) == MIXED
    assert decompress(4, packed + packed) == MIXED * 2


def test_zstd_of_several_frames() -> None:
    """Whether each of them says its size or not, with frames to skip among them."""
    unsized = zstandard.ZstdCompressor(write_content_size=False).compress(MIXED)
    skipped = b"\x50\x2a\x4d\x18" + b"\4\0\0\0" + b"what"
    for frames in ([SIZED, SIZED], [SIZED, unsized], [unsized, SIZED], [SIZED, skipped, SIZED]):
        assert decompress(4, b"".join(frames)) == MIXED * 2
    two = SIZED + SIZED
    assert decompress(4, two, 2 * len(MIXED)) == MIXED * 2
    with pytest.raises(CorruptRecordError, match="more than"):
        decompress(4, two, 2 * len(MIXED) - 1)
    for damaged in (two[:-1], two + b"x", SIZED + b"x" + SIZED):
        with pytest.raises(CorruptRecordError):
            decompress(4, damaged)


@every_codec
def test_truncated_data_is_corrupt(codec: int) -> None:
    packed = compress(codec, MIXED)
    for end in {*range(1, 60), *range(60, len(packed), 97), len(packed) - 1}:
        try:
            unpacked = decompress(codec, packed[:end])
        except CorruptRecordError:
            continue
        # Snappy's framing has no end: the number of records tells that something is missing.
        assert codec == 2
        assert len(unpacked) % (32 * 1024) == 0


@every_codec
@given(noise=st.binary(max_size=300))
def test_noise_is_corrupt_or_something_else_altogether(codec: int, noise: bytes) -> None:
    try:
        decompress(codec, noise, 10_000)
    except CorruptRecordError:
        pass


@every_codec
def test_the_bound_holds_to_the_byte(codec: int) -> None:
    packed = compress(codec, MIXED)
    assert decompress(codec, packed, len(MIXED)) == MIXED
    with pytest.raises(CorruptRecordError, match="max_decompressed_bytes"):
        decompress(codec, packed, len(MIXED) - 1)


@every_codec
def test_a_bomb_is_refused_before_it_is_in_memory(codec: int) -> None:
    bomb = compress(codec, bytes(64 * 1024 * 1024))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError, match="unpacks to more than 1000000 bytes"):
            decompress(codec, bomb, 1_000_000)
        assert tracemalloc.get_traced_memory()[1] < 16 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_a_size_that_lies_is_not_allocated() -> None:
    huge = (1 << 40).to_bytes(8, "little")
    frame = bytearray(lz4.frame.compress(b"small", store_size=True))
    frame[6:14] = huge
    lies = {
        2: b"\xff\xff\xff\xff\x0f" + b"x" * 20,
        3: bytes(frame),
        4: b"\x28\xb5\x2f\xfd\xe0" + huge + b"\x01\x00\x00",
    }
    for codec, lie in lies.items():
        with pytest.raises(CorruptRecordError):
            decompress(codec, lie)


@every_codec
def test_every_level_can_be_used(codec: int) -> None:
    limits = {1: (1, 9), 3: (1, 17), 4: (-5, 22)}.get(codec)
    for level in range(limits[0], limits[1] + 1) if limits else ():
        check_level(codec, level)
        assert decompress(codec, compress(codec, MIXED[:10_000], level)) == MIXED[:10_000]


@pytest.mark.parametrize(
    ("codec", "level", "message"),
    [
        (1, 0, "gzip must be an int from 1 to 9, not 0"),
        (1, 10, "gzip must be an int from 1 to 9"),
        (3, 18, "lz4 must be an int from 1 to 17"),
        (4, 23, "zstd must be an int from -131072 to 22"),
        (4, True, "zstd must be an int"),
        (4, "3", "zstd must be an int"),
        (2, 1, "does not apply to snappy"),
        (0, 1, "does not apply to no compression"),
    ],
)
def test_levels_that_do_not_exist(codec: int, level: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_level(codec, level)


def test_names() -> None:
    assert codec_id(None) == codec_id("none") == 0
    assert {name: codec_id(name) for name in CODECS} == CODECS
    with pytest.raises(ValueError, match="gzip, lz4, snappy, zstd, not 'brotli'"):
        codec_id("brotli")


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_nobody_defined(codec: int) -> None:
    with pytest.raises(UnsupportedCodecError):
        compress(codec, b"")
    with pytest.raises(UnsupportedCodecError):
        decompress(codec, b"")


@pytest.mark.parametrize(
    ("name", "module"), [("snappy", "snappy"), ("lz4", "lz4.frame"), ("zstd", "zstandard")]
)
def test_a_missing_package_is_named(
    name: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    fresh = reload_compression(monkeypatch)
    assert not fresh.has_codec(name)
    for use in (fresh.compress, fresh.decompress):
        with pytest.raises(UnsupportedCodecError, match=rf'pip install "aiokafka\[{name}\]"'):
            use(CODECS[name], b"data")


def reload_compression(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module as it is before any codec was used."""
    monkeypatch.delitem(sys.modules, compression.__name__)
    return importlib.import_module(compression.__name__)


def test_names_of_the_old_module() -> None:
    for name, codec in CODECS.items():
        assert has_codec(name)
        assert getattr(compatibility, f"has_{name}")()
        encode = getattr(compatibility, f"{name}_encode")
        decode = getattr(compatibility, f"{name}_decode")
        assert decode(encode(MIXED)) == decompress(codec, compress(codec, MIXED)) == MIXED
