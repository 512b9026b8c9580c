"""The operations on raw memory that `framing` is written in.

The compiled module uses the C form of the same functions (`_native.pxd`) under the same names.
Nothing here checks bounds: callers do.
"""

from __future__ import annotations

import struct

_LENGTH = struct.Struct(">i")


def source(buffer: bytearray) -> bytearray:
    """Where the bytes of a buffer begin; the buffer must outlive it and keep its size."""
    return buffer


def length_at(data: bytearray, at: int) -> int:
    """The big-endian int32 at `at`."""
    length: int = _LENGTH.unpack_from(data, at)[0]
    return length


def cut(data: bytearray, start: int, stop: int) -> bytes:
    """A copy of `data[start:stop]`."""
    return bytes(memoryview(data)[start:stop])


def new_buffer(size: int) -> bytearray:
    """A bytearray with any content: in C, without the time to fill it with zeros."""
    return bytearray(size)
