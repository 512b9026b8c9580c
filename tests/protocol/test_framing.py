"""Cutting the stream into frames, however it arrives."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafka.errors import KafkaProtocolError
from aiokafka.protocol.exchange import SCRATCH_BYTES, FrameReader


def framed(*contents: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(c)) + c for c in contents)


def feed(reader: FrameReader, stream: bytes, chunk: int) -> list[bytes]:
    """Write the stream in pieces of at most `chunk` bytes; returns the frames."""
    frames: list[bytes] = []
    while stream:
        buffer = reader.get_buffer(chunk)
        count = min(len(buffer), len(stream), chunk)
        assert count > 0
        buffer[:count] = stream[:count]
        frames += [bytes(frame) for frame in reader.advance(count)]
        stream = stream[count:]
    return frames


@pytest.mark.parametrize("chunk", [7, 1000, 10**9])
@pytest.mark.parametrize("size", [0, 1, 8192, 8193, SCRATCH_BYTES - 4, SCRATCH_BYTES, 200_000])
def test_frames_survive_any_cut(size: int, chunk: int) -> None:
    contents = [b"first", bytes(i % 251 for i in range(size)), b"", b"last"]
    assert feed(FrameReader(10**6), framed(*contents), chunk) == contents


def test_one_byte_at_a_time() -> None:
    contents = [b"first", bytes(range(250)) * 50, b"", b"last"]
    assert feed(FrameReader(10**6), framed(*contents), 1) == contents


@settings(max_examples=40)
@given(
    st.lists(st.binary(max_size=40) | st.integers(0, 150_000).map(bytes), max_size=8),
    st.lists(st.integers(1, 100_000), min_size=1),
)
def test_random_frames_in_random_cuts(contents: list[bytes], cuts: list[int]) -> None:
    reader, stream, frames, turn = FrameReader(10**6), framed(*contents), [], 0
    while stream:
        cut = cuts[turn % len(cuts)]
        turn += 1
        frames += feed(reader, stream[:cut], cut)
        stream = stream[cut:]
    assert frames == contents


def test_frames_do_not_change_afterwards() -> None:
    reader = FrameReader(10**6)
    buffer = reader.get_buffer()
    stream = framed(b"one", b"two")
    buffer[: len(stream)] = stream
    first, second = reader.advance(len(stream))
    feed(reader, framed(b"x" * 5000), 10**9)
    assert (first, second) == (b"one", b"two")


def test_a_large_frame_is_read_into_its_own_buffer() -> None:
    reader = FrameReader(10**6)
    feed(reader, struct.pack(">i", 100_000), 4)
    target = reader.get_buffer()
    assert len(target) == 100_000
    (frame,) = reader.advance(100_000)
    assert target.obj is frame


def test_many_small_frames_at_once() -> None:
    contents = [b"%d" % i for i in range(5000)]
    assert feed(FrameReader(100), framed(*contents), 10**9) == contents


def test_limit_is_inclusive() -> None:
    assert feed(FrameReader(100), framed(bytes(100)), 10**9) == [bytes(100)]
    with pytest.raises(KafkaProtocolError, match="a frame of 101 bytes exceeds the limit of 100"):
        feed(FrameReader(100), struct.pack(">i", 101), 4)


@pytest.mark.parametrize("limit", [1000, 2**31 - 1])
@pytest.mark.parametrize(
    ("stream", "cause"),
    [
        (b"\x15\x03\x03\x00\x02\x02\x28", "TLS alert: the port speaks TLS"),
        (b"\x16\x03\x01\x02\x00\x01\x00", "TLS handshake"),
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"GET / HTTP/1.1\r\n", "HTTP request"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        (b"\xff\xff\xff\xff", "negative length"),
    ],
)
def test_other_protocols_are_recognised(stream: bytes, cause: str, limit: int) -> None:
    with pytest.raises(KafkaProtocolError, match=cause):
        feed(FrameReader(limit), stream, 1)


def test_a_bad_length_behind_good_frames() -> None:
    with pytest.raises(KafkaProtocolError, match="negative"):
        feed(FrameReader(100), framed(b"good") + b"\x80\x00\x00\x00", 10**9)
