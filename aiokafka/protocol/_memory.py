"""The operations on raw memory that `framing` is written in.

The compiled module uses the C form of the same functions (`_native.pxd`) under the same names.
Nothing here checks bounds: callers do.
"""

from __future__ import annotations

import struct

_LENGTH = struct.Struct(">i")


def source(buffer: bytearray) -> bytearray:
    """Return where the bytes of a buffer begin. The buffer must outlive it and keep its size."""
    return buffer


def length_at(data: bytearray, at: int) -> int:
    """Return the big-endian int32 at `at`."""
    length: int = _LENGTH.unpack_from(data, at)[0]
    return length


def cut(data: bytearray, start: int, stop: int) -> bytes:
    """Return a copy of `data[start:stop]`."""
    return bytes(memoryview(data)[start:stop])


def new_buffer(size: int) -> bytearray:
    """Return a bytearray with arbitrary content. The C form saves the time to zero it."""
    return bytearray(size)
