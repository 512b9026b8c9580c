"""Import path of aiokafka, kept as a shim: numbers of variable length, and a checksum."""

from __future__ import annotations

from collections.abc import Callable

from aiokafka.record import _memory as mem
from aiokafka.record.crc32c import crc32c as calc_crc32c

__all__ = ["calc_crc32c", "decode_varint", "encode_varint", "size_of_varint"]

_LONGEST = 10


def encode_varint(value: int, write: Callable[[int], object]) -> int:
    """Call `write` with each byte of a number; return how many they are."""
    out = bytearray(_LONGEST)
    end = mem.put_varint(out, 0, value)
    for byte in out[:end]:
        write(byte)
    return end


def decode_varint(buffer: bytes | bytearray | memoryview, pos: int = 0) -> tuple[int, int]:
    """Return the number at `pos`, and where it ends."""
    return mem.varint(buffer, pos, len(buffer))


def size_of_varint(value: int) -> int:
    """Return how many bytes a number takes."""
    return mem.varint_size(value)
