"""Operations on raw memory for the record modules.

Compiled modules use the C functions of the same names in `_native.pxd`, which return the same
results. Only `varint` checks bounds; callers of the other functions have to check them.
"""

from __future__ import annotations

from struct import Struct
from typing import Any

from aiokafka.partitioner import murmur2 as murmur2_of

__all__ = [
    "Buffer",
    "copy",
    "cut",
    "cut_like",
    "field_size",
    "get_i32",
    "get_i64",
    "hash64",
    "i16",
    "i32",
    "i64",
    "leaf",
    "murmur2",
    "put_bytes",
    "put_field",
    "put_i32",
    "put_i64",
    "put_text",
    "put_varint",
    "resize",
    "source",
    "target",
    "text",
    "text_like",
    "text_size",
    "u32",
    "varint",
    "varint_size",
]

Buffer = bytes | bytearray | memoryview

_I32 = Struct("=i")
_I64 = Struct("=q")
_HASH_FACTOR = 0xC6A4A7935BD1E995
_MAX_UINT64 = 0xFFFFFFFFFFFFFFFF
_from_bytes = int.from_bytes


# -- reading


def source(view: memoryview) -> memoryview:
    """Return the view itself. The C function returns the address of its bytes: the caller has to
    keep the view, which must be contiguous, as long as it uses the address."""
    return view


def cut(data: Buffer, start: int, stop: int) -> bytes:
    """Return a copy of `data[start:stop]`."""
    return bytes(data[start:stop])


def text(data: Buffer, start: int, stop: int) -> str:
    """Decode `data[start:stop]` as UTF-8. As in Java, invalid bytes become U+FFFD."""
    return str(data[start:stop], "utf-8", "replace")


def text_like(data: Buffer, start: int, stop: int, previous: str) -> str:
    """Return the same as `text`. The C function returns `previous` if it is equal, which is faster
    than creating a string."""
    return text(data, start, stop)


def cut_like(data: Buffer, start: int, stop: int, previous: bytes | None) -> bytes:
    """Return the same as `cut`. The C function returns `previous` if it is equal, which is faster
    than creating bytes."""
    return cut(data, start, stop)


def leaf(items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `items`, a tuple of strings, bytes, None and similar tuples. The C function excludes
    the tuple from the search for reference cycles, because it cannot be part of one."""
    return items


def i16(data: Buffer, at: int) -> int:
    """Return the big-endian int16 at `at`."""
    return _from_bytes(data[at : at + 2], "big", signed=True)


def u32(data: Buffer, at: int) -> int:
    """Return the big-endian uint32 at `at`."""
    return _from_bytes(data[at : at + 4], "big")


def i32(data: Buffer, at: int) -> int:
    """Return the big-endian int32 at `at`."""
    return _from_bytes(data[at : at + 4], "big", signed=True)


def i64(data: Buffer, at: int) -> int:
    """Return the big-endian int64 at `at`."""
    return _from_bytes(data[at : at + 8], "big", signed=True)


def varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    """Return the zigzag varint of up to 64 bits at `at`, and the position after it.

    The position is -1 if the varint does not end before `end` or has more than 64 bits, and also if
    `at` is -1. So a caller can read several varints in a row, and check only the last position.
    """
    if at < 0 or at >= end:
        return 0, -1
    byte = data[at]
    at += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at
    raw = byte & 0x7F
    shift = 7
    while at < end:
        byte = data[at]
        at += 1
        if shift == 63 and byte > 1:
            return 0, -1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
        shift += 7
        if shift > 63:
            return 0, -1
    return 0, -1


def get_i32(data: Buffer, index: int) -> int:
    """Return element `index` of an array of native int32."""
    number: int = _I32.unpack_from(data, 4 * index)[0]
    return number


def get_i64(data: Buffer, index: int) -> int:
    """Return element `index` of an array of native int64."""
    number: int = _I64.unpack_from(data, 8 * index)[0]
    return number


def murmur2(data: Buffer, at: int, size: int) -> int:
    """Return the Java client's murmur2 hash of `size` bytes at `at`, for the partition of a key."""
    return murmur2_of(data[at : at + size])


def hash64(data: Buffer, at: int, size: int, seed: int) -> int:
    """Return the MurmurHash64A of `size` bytes at `at`, as a little-endian machine computes it."""
    state = seed ^ (size * _HASH_FACTOR & _MAX_UINT64)
    whole = size & ~7
    for start in range(at, at + whole, 8):
        word = _from_bytes(data[start : start + 8], "little") * _HASH_FACTOR & _MAX_UINT64
        word = (word ^ word >> 47) * _HASH_FACTOR & _MAX_UINT64
        state = (state ^ word) * _HASH_FACTOR & _MAX_UINT64
    if whole < size:
        state ^= _from_bytes(data[at + whole : at + size], "little")
        state = state * _HASH_FACTOR & _MAX_UINT64
    state = (state ^ state >> 47) * _HASH_FACTOR & _MAX_UINT64
    return state ^ state >> 47


# -- writing


def target(buffer: bytearray) -> bytearray:
    """Return `buffer` itself. The C function returns the address of its bytes, which is valid until
    `buffer` is resized."""
    return buffer


def resize(buffer: bytearray, size: int) -> None:
    """Make `buffer` longer or shorter. The content of new bytes is undefined."""
    if size > len(buffer):
        buffer.extend(bytes(size - len(buffer)))
    else:
        del buffer[size:]


def varint_size(value: int) -> int:
    """Return how many bytes `put_varint` writes for an int64."""
    raw = (value << 1) ^ (value >> 63)
    return (raw.bit_length() + 6) // 7 or 1


def put_varint(out: bytearray, at: int, value: int) -> int:
    """Write an int64 as a zigzag varint; return the position after it."""
    raw = (value << 1) ^ (value >> 63)
    while raw >= 0x80:
        out[at] = (raw & 0x7F) | 0x80
        raw >>= 7
        at += 1
    out[at] = raw
    return at + 1


def put_bytes(out: bytearray, at: int, data: bytes) -> int:
    """Write `data`; return the position after it."""
    end = at + len(data)
    out[at:end] = data
    return end


def field_size(size: int) -> int:
    """Return how many bytes `put_field` writes for `size` bytes."""
    return varint_size(size) + size


def put_field(out: bytearray, at: int, data: bytes | None) -> int:
    """Write the length of `data` as a zigzag varint, -1 for None, and `data`; return the position
    after it."""
    if data is None:
        return put_varint(out, at, -1)
    return put_bytes(out, put_varint(out, at, len(data)), data)


def put_i32(out: bytearray, index: int, value: int) -> None:
    """Write a native int32 as element `index` of an array."""
    _I32.pack_into(out, 4 * index, value)


def put_i64(out: bytearray, index: int, value: int) -> None:
    """Write a native int64 as element `index` of an array."""
    _I64.pack_into(out, 8 * index, value)


def copy(out: bytearray, at: int, data: Buffer, start: int, size: int) -> None:
    """Write `size` bytes of `data`, from `start` on, to `out` at `at`."""
    out[at : at + size] = data[start : start + size]


def text_size(value: str) -> int:
    """Return how many bytes `put_text` writes."""
    return len(value.encode())


def put_text(out: bytearray, at: int, value: str) -> int:
    """Write a string as UTF-8; return the position after it."""
    return put_bytes(out, at, value.encode())
