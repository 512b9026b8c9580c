"""Operations on raw memory for `framing`.

The compiled module uses C functions of the same names (`_native.pxd`). The functions do not check
bounds: callers have to check them.
"""

from __future__ import annotations

import struct

_LENGTH = struct.Struct(">i")


def source(buffer: bytearray) -> bytearray:
    """Return the address of a buffer, which must outlive the address and keep its size."""
    return buffer


def length_at(data: bytearray, at: int) -> int:
    """Return the big-endian int32 at `at`."""
    length: int = _LENGTH.unpack_from(data, at)[0]
    return length


def cut(data: bytearray, start: int, stop: int) -> bytes:
    """Return a copy of `data[start:stop]`."""
    return bytes(memoryview(data)[start:stop])


def new_buffer(size: int) -> bytearray:
    """Return a bytearray with arbitrary content. The C form saves the time to fill it with
    zeros."""
    return bytearray(size)
