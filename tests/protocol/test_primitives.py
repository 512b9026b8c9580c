"""Varints and tag sections, in the compiled and in the plain form alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka.errors import KafkaProtocolError
from aiokafka.protocol.primitives import get_uvarint, put_uvarint, skip_tags

KNOWN = [
    (0, b"\x00"),
    (1, b"\x01"),
    (127, b"\x7f"),
    (128, b"\x80\x01"),
    (300, b"\xac\x02"),
    (16384, b"\x80\x80\x01"),
    (2**32 - 1, b"\xff\xff\xff\xff\x0f"),
]


@pytest.mark.parametrize(("value", "encoded"), KNOWN)
def test_known_values(value: int, encoded: bytes) -> None:
    out = bytearray(b"x")
    put_uvarint(out, value)
    assert out == b"x" + encoded
    assert get_uvarint(encoded, 0) == (value, len(encoded))


@given(st.integers(0, 2**32 - 1), st.binary(max_size=5), st.binary(max_size=5))
def test_round_trip(value: int, before: bytes, behind: bytes) -> None:
    out = bytearray(before)
    put_uvarint(out, value)
    end = len(out)
    assert get_uvarint(out + behind, len(before)) == (value, end)
    assert get_uvarint(bytes(out + behind), len(before)) == (value, end)


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x10", b"\x80" * 5 + b"\x01", b"\xff" * 9])
def test_more_than_32_bits(data: bytes) -> None:
    with pytest.raises(KafkaProtocolError, match="32 bits"):
        get_uvarint(data, 0)


@pytest.mark.parametrize(
    ("data", "position"), [(b"", 0), (b"\x80", 0), (b"\x00", 1), (b"\x00", -1)]
)
def test_nothing_is_read_beyond_the_buffer(data: bytes, position: int) -> None:
    with pytest.raises(IndexError):
        get_uvarint(data, position)


def test_tags_are_skipped() -> None:
    section = b"\x02\x01\x03abc\x80\x01\x02dd"
    assert skip_tags(b"..\x00", 2, 3) == 3
    assert skip_tags(b".." + section + b"rest", 2, 20) == 2 + len(section)


@given(st.binary(max_size=40), st.integers(0, 40))
def test_random_tags_stay_within_their_end(data: bytes, end: int) -> None:
    end = min(end, len(data))
    try:
        assert skip_tags(data, 0, end) <= end
    except (KafkaProtocolError, IndexError):
        pass
