"""Frames of the Kafka protocol as a fake broker reads and writes them."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from aiokafka import errors
from aiokafka.protocol.compiler import codec
from aiokafka.testing.actions import CloseConnectionError
from aiokafka.testing.batches import Buffer
from aiokafka.testing.connection import Reply

if TYPE_CHECKING:
    from aiokafka.protocol.schema import Response
    from aiokafka.testing.versions import BrokerProfile

API_VERSIONS = 18
_HEADER = struct.Struct(">hhi")
_ANSWER = struct.Struct(">ii")
_FLEXIBLE_ANSWER = struct.Struct(">iix")


def read_header(frame: bytes) -> tuple[int, int, int, str | None, int]:
    """Return API key, version, correlation id and client id, and the position after them.

    Raises:
        CloseConnectionError: the frame is too short for that.
    """
    try:
        api_key, version, correlation_id = _HEADER.unpack_from(frame)
        client_id, position = _read_client_id(frame)
    except (struct.error, ValueError, IndexError):
        raise CloseConnectionError from None
    return api_key, version, correlation_id, client_id, position


def encode(response: Response, api_key: int, version: int, correlation_id: int) -> list[Buffer]:
    """Encode a frame with the response."""
    body = codec(type(response), version).encode(response)
    size = sum(map(len, body))
    flexible = response.FLEXIBLE is not None and version >= response.FLEXIBLE
    if flexible and api_key != API_VERSIONS:
        header = _FLEXIBLE_ANSWER.pack(size + 5, correlation_id)
    else:
        header = _ANSWER.pack(size + 4, correlation_id)
    return [header, *body]


def refuse_version(
    profile: BrokerProfile, frame: bytes, header: tuple[int, int, int, str | None, int]
) -> Reply:
    """Answer a request of an API or version that the broker does not have, as a broker would."""
    api_key, version, correlation_id, _, position = header
    if profile.release < (0, 10):
        return Reply([])  # the broker throws inside; the client never hears of it
    if api_key != API_VERSIONS:
        raise CloseConnectionError
    if profile.closes_on_newer_clients:
        raise CloseConnectionError
    if version >= 3:
        skip_tags(frame, position)  # must be there: the header is of the newest form
    # ApiVersions tells, in its oldest form, which versions of itself there are (KIP-511).
    entries = b""
    if profile.release >= (2, 4):
        low, high = profile.ranges[API_VERSIONS]
        entries = struct.pack(">hhh", API_VERSIONS, low, high)
    count = len(entries) // 6
    body = (
        struct.pack(">ihi", correlation_id, errors.UnsupportedVersionError.errno, count) + entries
    )
    return Reply([struct.pack(">i", len(body)) + body])


def _read_client_id(frame: bytes) -> tuple[str | None, int]:
    """Return the client id, a nullable string even in flexible headers, and the position after
    it.
    """
    start = _HEADER.size + 2
    size = int.from_bytes(frame[_HEADER.size : start], "big", signed=True)
    if size < 0:
        return None, start
    if start + size > len(frame):
        raise ValueError("client id is longer than the frame")
    return frame[start : start + size].decode(), start + size


def skip_tags(frame: bytes, position: int) -> int:
    """Return the position after the tagged fields of a request header, of which none is defined."""
    if frame[position : position + 1] == b"\0":
        return position + 1
    count, position = _uvarint(frame, position)
    for _ in range(count):
        _, position = _uvarint(frame, position)
        size, position = _uvarint(frame, position)
        position += size
    return position


def _uvarint(frame: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(frame) or shift > 28:
            raise CloseConnectionError
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
