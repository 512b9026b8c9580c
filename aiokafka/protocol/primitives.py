"""Functions that encoders and decoders of messages call: varints, tagged fields, checks of values.

Compiled where there is a C compiler (see the ``.pxd``). Nothing here reads past the end of the
buffer, whatever a length field claims.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Any

from aiokafka.errors import KafkaProtocolError, UnsupportedVersionError

if TYPE_CHECKING:
    from aiokafka.protocol.schema import Struct


def get_uvarint(buffer: bytes | bytearray, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits; return the value and the position after it.

    Raises KafkaProtocolError if the varint is too long, IndexError if the buffer ends within it.
    """
    size = len(buffer)
    data = buffer
    value = 0
    shift = 0
    while shift < 35:
        if not 0 <= position < size:
            raise IndexError("a varint goes on beyond the end of the buffer")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
        shift += 7
    raise KafkaProtocolError(f"the varint that ends at byte {position} has more than 32 bits")


def put_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    rest = value
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)


def skip_tags(buffer: bytes | bytearray, position: int, end: int) -> int:
    """Skip a section of tagged fields that ends before `end`; return the position after it.

    Raises KafkaProtocolError or IndexError if the section does not end before `end`.
    """
    count, position = get_uvarint(buffer, position)
    if position > end or count > end - position:
        raise KafkaProtocolError(f"{count} tagged fields do not fit in {end - position} bytes")
    while count > 0:
        count -= 1
        position = get_uvarint(buffer, position)[1]
        length, position = get_uvarint(buffer, position)
        if position > end or length > end - position:
            raise KafkaProtocolError(f"a tagged field of {length} bytes exceeds what is left")
        position += length
    return position


# -- Encoding


@cache
def packing(codes: str) -> struct.Struct:
    """Return the big-endian Struct of these codes. The cache needs no limit, because messages have
    few different codes."""
    return struct.Struct(">" + codes)


# The largest size of a string, in all versions: brokers close the connection if a string is larger.
_LONGEST_STRING = 0x7FFF


def as_list(value: object) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value)
    raise TypeError(f"expected a list, got {type(value).__name__}")


def as_bytes(value: object) -> bytes | bytearray:
    if isinstance(value, bytes | bytearray):
        return value
    raise TypeError(f"expected bytes, got {type(value).__name__}")


def bad_uuid(value: bytes) -> ValueError:
    return ValueError(f"expected 16 bytes, got {len(value)}")


def put_long_length(out: bytearray, length: int) -> None:
    """Append `length`, the size of a string plus one, as flexible versions encode it.

    Raises ValueError if the string is too long.
    """
    if length > _LONGEST_STRING + 1:
        raise ValueError("the string is too long")
    put_uvarint(out, length)


def unsupported(message: Struct, name: str, version: int) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"{type(message).__name__}.{name} is set to {getattr(message, name)!r}, "
        f"but version {version} has no such field"
    )


class Packers(dict[int, Any]):
    """The `pack` functions of arrays of integers, by the number of elements. Functions for 64 or
    more elements are not kept."""

    def __init__(self, integer: str) -> None:
        self._integer = integer

    def __missing__(self, count: int) -> Any:
        pack = struct.Struct(f">{count}{self._integer}").pack
        if count < 64:
            self[count] = pack
        return pack


# -- Decoding


def bad_length(path: str, length: int, left: int) -> KafkaProtocolError:
    if length < 0:
        return KafkaProtocolError(f"{path}: null or a negative length ({length}) is not allowed")
    return KafkaProtocolError(f"{path}: length {length} exceeds the remaining {left} bytes")


def bad_value(path: str, value: int) -> KafkaProtocolError:
    return KafkaProtocolError(f"{path}: {value} is not a valid value")


class Unpackers(dict[int, Any]):
    """The `unpack_from` functions of an array of integers and the fields after the array (`behind`,
    as `struct` codes), by the number of elements. Functions for 64 or more elements are not
    kept."""

    def __init__(self, integer: str, behind: str) -> None:
        self._integer = integer
        self._behind = behind

    def __missing__(self, count: int) -> Any:
        unpack = struct.Struct(f">{count}{self._integer}{self._behind}").unpack_from
        if count < 64:
            self[count] = unpack
        return unpack
