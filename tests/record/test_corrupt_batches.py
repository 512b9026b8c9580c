"""Where reading goes on after a batch that cannot be read."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from aiokafka.errors import CorruptRecordError
from aiokafka.record.batch import RecordReader
from aiokafka.record.legacy import build_message_set
from tests.record.samples import (
    ABORT,
    COMMIT,
    HEADER_SIZE,
    make_batch,
    make_marker,
    mend,
    numbered,
    patch,
    transaction,
    with_body,
)


def end_of_bad(data: bytes, position: int = 0, **options: Any) -> int:
    """What is said of the first batch that cannot be read, after the records before it."""
    reader = RecordReader(data, "topic", 3, position=position, **options)
    with pytest.raises(CorruptRecordError):
        while reader.take(9):
            pass
    end = reader.batch_end
    reader.skip()
    assert reader.position == max(end, position + 1)
    return end


def damage(batch: bytes, at: int = -1) -> bytes:
    data = bytearray(batch)
    data[at] ^= 1
    return bytes(data)


@pytest.mark.parametrize("kind", [ABORT, COMMIT])
@pytest.mark.parametrize("options", [{}, {"read_committed": True, "aborted": [(1, 0)]}])
def test_a_damaged_marker_has_an_end(kind: int, options: dict[str, Any]) -> None:
    """It is not returned, but has to be read, and an application goes past it by its end."""
    marker = damage(make_marker(kind, base_offset=2, producer_id=1))
    for behind in (b"", transaction(2, 3), b"not the header of a batch"):
        assert end_of_bad(transaction(1, 0) + marker + behind, **options) == 3


def test_a_marker_without_a_key_has_an_end() -> None:
    marker = with_body(make_marker(ABORT, base_offset=2, producer_id=1), bytes(9))
    data = transaction(1, 0) + marker + transaction(1, 3)
    assert end_of_bad(data, read_committed=True, aborted=[(1, 0)]) == 3


@pytest.mark.parametrize("delta", [3, 20, 2**31 - 1])
def test_a_damaged_end_reaches_not_into_the_next_batch(delta: int) -> None:
    """Who goes on there would miss good records, or be out of the log's range."""
    bad = bytearray(make_batch(numbered(3), base_offset=5))
    struct.pack_into(">i", bad, 23, delta)
    for following in (
        make_batch(numbered(2), base_offset=8),
        build_message_set(1, [(0, None, b"8")]).replace(bytes(8), struct.pack(">q", 8), 1),
    ):
        assert end_of_bad(bytes(bad) + following) == 8


def test_what_follows_says_nothing_if_it_does_not_follow() -> None:
    bad = damage(make_batch(numbered(3), base_offset=5))
    assert end_of_bad(bad + make_batch(numbered(2), base_offset=0)) == 8
    assert end_of_bad(bad + bytes(HEADER_SIZE)) == 8
    assert end_of_bad(bad + make_batch(numbered(2), base_offset=8)[:-1]) == 8


def test_a_gap_behind_the_batch_is_no_part_of_it() -> None:
    bad = damage(make_batch(numbered(3), base_offset=5))
    assert end_of_bad(bad + make_batch(numbered(2), base_offset=50)) == 8


def test_the_end_of_a_header_with_the_right_checksum_is_trusted() -> None:
    """Compaction leaves one record of many: the batch reaches farther than it has bytes."""
    kept = patch(make_batch(numbered(1), codec=1), last_offset_delta=9999)
    bad = mend(kept[:HEADER_SIZE] + b"no gzip")
    assert end_of_bad(bad) == 10_000
    assert end_of_bad(bad + make_batch(numbered(2), base_offset=10_000)) == 10_000
