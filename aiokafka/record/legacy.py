"""Read and write message sets of magic 0 and 1, the formats before Kafka 0.11.

Each message counts as a batch of its own. The value of a compressed message is a message set, with
absolute offsets in magic 0 and relative offsets in magic 1 (KIP-31).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple
from zlib import crc32

from aiokafka.errors import CorruptRecordError, IllegalArgumentError, UnsupportedCodecError
from aiokafka.record.compression import LZ4, ZSTD, compress, decompress
from aiokafka.record.header import RecordBatch, parse_batch

__all__ = ["LegacyRecord", "build_message", "build_message_set", "read_entry", "wrap_messages"]

_CODEC_MASK = 0x07
_APPEND_TIME = 0x08
_KEY_AT = (18, 26)  # position of the key's length, by magic
_PREFIX = struct.Struct(">qi")  # offset, length
_MESSAGE = (struct.Struct(">Bb"), struct.Struct(">Bbq"))  # magic, attributes, timestamp
_LENGTH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_LZ4_DESCRIPTOR_AT = 4  # after the frame's magic number


class LegacyRecord(NamedTuple):
    """A message of magic 0 or 1. In magic 0 `timestamp` and `timestamp_type` are None."""

    offset: int
    timestamp: int | None
    timestamp_type: int | None
    key: bytes | None
    value: bytes | None
    crc: int

    # Attributes of aiokafka 0.14, for programs that use `legacy_records`.

    @property
    def checksum(self) -> int:
        """The CRC of the message; named as in aiokafka 0.14."""
        return self.crc

    @property
    def headers(self) -> list[Any]:
        """Always empty: these formats have no headers."""
        return []


# -- read


def read_entry(
    batch: RecordBatch, check_crcs: bool, max_decompressed_bytes: int
) -> list[LegacyRecord]:
    """Return the record of an uncompressed message, or the records inside a compressed message.

    Raises CorruptRecordError for invalid data, UnsupportedCodecError for zstd or a missing codec.
    """
    if check_crcs:
        batch.check_crc()
    outer = _read_message(batch)
    if not batch.codec:
        return [outer]
    return _unwrap(batch, outer, check_crcs, max_decompressed_bytes)


def _read_message(batch: RecordBatch) -> LegacyRecord:
    view = batch.view
    key, at = _read_bytes(view, _KEY_AT[batch.magic], batch)
    value, at = _read_bytes(view, at, batch)
    if at != len(view):
        raise CorruptRecordError(f"the message at offset {batch.base_offset} is too long")
    if batch.magic == 0:
        return LegacyRecord(batch.base_offset, None, None, key, value, batch.crc)
    return LegacyRecord(
        batch.base_offset, batch.first_timestamp, batch.timestamp_type, key, value, batch.crc
    )


def _read_bytes(view: memoryview, at: int, batch: RecordBatch) -> tuple[bytes | None, int]:
    start = at + 4
    if start <= len(view):
        size = _LENGTH.unpack_from(view, at)[0]
        if size == -1:
            return None, start
        if 0 <= size <= len(view) - start:
            return bytes(view[start : start + size]), start + size
    raise CorruptRecordError(f"the message at offset {batch.base_offset} has a wrong length")


def _unwrap(
    batch: RecordBatch, outer: LegacyRecord, check_crcs: bool, limit: int
) -> list[LegacyRecord]:
    if outer.value is None:
        raise CorruptRecordError(f"Value of compressed message is None: offset {outer.offset}")
    inner = [
        _read_inner(message, batch.magic, check_crcs)
        for message in _messages(_decompress(batch, outer.value, limit))
    ]
    if not inner:
        raise CorruptRecordError(f"the compressed message at offset {outer.offset} is empty")
    if any(after.offset <= before.offset for before, after in pairwise(inner)):
        raise CorruptRecordError(f"the offsets in the message at {outer.offset} do not ascend")
    if batch.magic == 0:
        return inner
    # The offset of the wrapper is that of its last message. If the messages have absolute offsets
    # although magic 1 requires relative offsets, `shift` is 0.
    shift = outer.offset - inner[-1].offset
    if inner[0].offset + shift < 0:
        raise CorruptRecordError(f"offsets in the message at offset {outer.offset} are negative")
    if batch.timestamp_type:
        return [
            record._replace(
                offset=record.offset + shift, timestamp=outer.timestamp, timestamp_type=1
            )
            for record in inner
        ]
    return [record._replace(offset=record.offset + shift) for record in inner]


def _messages(payload: bytes) -> Iterable[RecordBatch]:
    """Yield the messages in a wrapper; raise CorruptRecordError for an incomplete message."""
    view = memoryview(payload)
    at = 0
    while at < len(view):
        message = parse_batch(view, at)
        if message is None:
            raise CorruptRecordError("a compressed message ends too early")
        at += message.size_in_bytes
        yield message


def _read_inner(message: RecordBatch, magic: int, check_crcs: bool) -> LegacyRecord:
    if message.magic != magic or message.codec:
        raise CorruptRecordError(
            f"a compressed message of magic {magic} holds one of magic {message.magic} "
            f"with codec {message.codec}"
        )
    if check_crcs:
        message.check_crc()
    return _read_message(message)


def _decompress(batch: RecordBatch, value: bytes, limit: int) -> bytes:
    codec = batch.codec
    if codec == ZSTD:
        raise UnsupportedCodecError(f"zstd in a message of magic {batch.magic} (KIP-110)")
    if codec == LZ4:
        value = _mend_lz4_header(value)
    return decompress(codec, value, limit)


# -- the LZ4 frame of magic 0


def _lz4_header_end(frame: bytes) -> int:
    """Return the position of the header checksum in an LZ4 frame."""
    has_size = len(frame) > _LZ4_DESCRIPTOR_AT and frame[_LZ4_DESCRIPTOR_AT] & 0x08
    return 14 if has_size else 6


def _mend_lz4_header(frame: bytes) -> bytes:
    """Return the frame with the header checksum of the LZ4 specification.

    Kafka's clients before 0.10 included the magic number of the frame in the checksum (KAFKA-3160),
    and brokers still have such messages.
    """
    end = _lz4_header_end(frame)
    if len(frame) <= end:
        return frame
    checksum = _xxh32(frame[_LZ4_DESCRIPTOR_AT:end]) >> 8 & 0xFF
    return frame[:end] + bytes((checksum,)) + frame[end + 1 :]


def _break_lz4_header(frame: bytes) -> bytes:
    """Return the frame with the header checksum that readers of magic 0 expect."""
    end = _lz4_header_end(frame)
    checksum = _xxh32(frame[:end]) >> 8 & 0xFF
    return frame[:end] + bytes((checksum,)) + frame[end + 1 :]


_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_M32 = 0xFFFFFFFF


def _rotl(value: int, by: int) -> int:
    return ((value << by) | (value >> (32 - by))) & _M32


def _xxh32(data: bytes) -> int:
    """Return the xxHash-32 of less than 16 bytes, with seed 0."""
    value = (_P5 + len(data)) & _M32
    at = 0
    while at + 4 <= len(data):
        lane = int.from_bytes(data[at : at + 4], "little")
        value = _rotl((value + lane * _P3) & _M32, 17) * _P4 & _M32
        at += 4
    for byte in data[at:]:
        value = _rotl((value + byte * _P5) & _M32, 11) * _P1 & _M32
    value = (value ^ value >> 15) * _P2 & _M32
    value = (value ^ value >> 13) * _P3 & _M32
    return value ^ value >> 16


# -- write


def build_message(
    magic: int, offset: int, timestamp: int, attributes: int, key: bytes | None, value: bytes | None
) -> bytes:
    """Build one message; magic 0 has no timestamp."""
    head = (magic, attributes) if magic == 0 else (magic, attributes, timestamp)
    parts = [_MESSAGE[magic].pack(*head)]
    for field in (key, value):
        parts.append(_LENGTH.pack(-1 if field is None else len(field)))
        parts.append(field or b"")
    body = b"".join(parts)
    return _PREFIX.pack(offset, len(body) + 4) + _CRC.pack(crc32(body)) + body


def build_message_set(
    magic: int,
    records: Iterable[tuple[int, bytes | None, bytes | None]],
    codec: int = 0,
    level: int | None = None,
) -> bytes:
    """Build a message set of (timestamp, key, value) records; with a `codec`, one wrapper message
    with the compressed records.

    Offsets start at 0; the broker replaces them. Raises IllegalArgumentError if `magic` is not 0 or
    1, or if there are no records; UnsupportedCodecError for zstd or a missing codec.
    """
    if magic not in (0, 1):
        raise IllegalArgumentError(f"message sets have magic 0 or 1, not {magic}")
    if codec == ZSTD:
        raise UnsupportedCodecError("brokers before Kafka 2.1 do not read zstd (KIP-110)")
    items = list(records)
    if not items:
        raise IllegalArgumentError("a message set needs a record")
    plain = b"".join(
        build_message(magic, offset, timestamp, 0, key, value)
        for offset, (timestamp, key, value) in enumerate(items)
    )
    if not codec:
        return plain
    newest = max(timestamp for timestamp, _, _ in items)
    return wrap_messages(magic, plain, len(items) - 1, newest, codec, level)


def wrap_messages(
    magic: int, plain: bytes, last_offset: int, newest: int, codec: int, level: int | None = None
) -> bytes:
    """Compress the message set `plain` into a wrapper message. `last_offset` and `newest` are the
    last offset and the highest timestamp in `plain`, which the wrapper gets."""
    packed = compress(codec, plain, level)
    if codec == LZ4 and magic == 0:
        packed = _break_lz4_header(packed)
    return build_message(magic, last_offset, newest, codec, None, packed)
