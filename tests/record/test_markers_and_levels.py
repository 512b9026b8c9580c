"""Markers of later versions, levels of codecs side by side, times of wrappers."""

from __future__ import annotations

import struct

import pytest
import zstandard

from aiokafka.errors import CorruptRecordError
from aiokafka.record.compression import ZSTD, compress
from aiokafka.record.control import ABORT, COMMIT, ControlRecord, first_key
from aiokafka.record.header import HEADER_SIZE, iter_batches
from aiokafka.record.legacy import build_message_set
from tests.record.samples import make_marker, with_body

TEXT = b"".join(b'{"id": %d, "name": "some words that shrink"}' % (n * n) for n in range(4000))


def parsed(key: bytes, value: bytes | None) -> tuple[int, int, int]:
    """Return version, kind and coordinator epoch of a marker."""
    marker = ControlRecord.parse(key, value)
    return marker.version, marker.kind, marker.coordinator_epoch


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
@pytest.mark.parametrize("rest", [b"", b"what a later version adds"])
def test_markers_may_become_longer(kind: int, rest: bytes) -> None:
    key = struct.pack(">hh", 0, kind) + rest
    value = struct.pack(">hi", 0, 12) + rest
    assert parsed(key, value) == (0, kind, 12)


@pytest.mark.parametrize("value", [None, b"", b"\0\0\0"])
def test_the_epoch_of_a_marker_may_be_missing(value: bytes | None) -> None:
    assert parsed(struct.pack(">hh", 0, COMMIT), value) == (0, COMMIT, -1)


def test_markers_of_other_kinds_have_no_epoch() -> None:
    value = struct.pack(">hi", 0, 12)
    assert parsed(struct.pack(">hh", 0, 5), value) == (0, 5, -1)


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0"])
def test_a_marker_needs_a_key(key: bytes | None) -> None:
    with pytest.raises(CorruptRecordError, match="control record"):
        ControlRecord.parse(key)


def test_the_key_of_a_marker_is_found_without_reading_records() -> None:
    (batch,) = iter_batches(make_marker(ABORT, base_offset=6))
    assert first_key(batch) == struct.pack(">hh", 0, ABORT)


# Its length, attributes, time and offset, the size of its key, two bytes of the key.
@pytest.mark.parametrize("left", [0, 1, 2, 3, 4, 5, 7])
def test_a_marker_that_ends_too_early_is_corrupt(left: int) -> None:
    marker = make_marker(ABORT, base_offset=6)
    body = marker[HEADER_SIZE:]
    damaged = with_body(marker, body[:left])
    if left > 0:
        # The record is as short as it says.
        damaged = with_body(marker, bytes([2 * (left - 1)]) + body[1:left])
    (batch,) = iter_batches(damaged)
    with pytest.raises(CorruptRecordError):
        first_key(batch)


@pytest.mark.parametrize("levels", [(1, 19), (19, 1)])
def test_levels_of_zstd_do_not_mix(levels: tuple[int, int]) -> None:
    """Two producers of a process may have different ones."""
    for level in levels:
        assert compress(ZSTD, TEXT, level) == zstandard.ZstdCompressor(level=level).compress(TEXT)
    assert compress(ZSTD, TEXT) == zstandard.ZstdCompressor(level=3).compress(TEXT)


@pytest.mark.parametrize("times", [(5, 9, 7), (9, 5, 7), (7, 5, 9)])
def test_a_wrapper_has_the_newest_time_of_its_messages(times: tuple[int, ...]) -> None:
    """By that time brokers of Kafka 0.10 delete records, and find them."""
    items = [(stamp, None, b"value") for stamp in times]
    (wrapper,) = iter_batches(build_message_set(1, items, 1))
    assert wrapper.max_timestamp == 9
