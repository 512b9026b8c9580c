"""Variable-length integers and tagged fields: what `struct` cannot do.

Written once: compiled where there is a C compiler (see the ``.pxd``), and run as it stands
otherwise. Nothing here reads past the end of the buffer, whatever a length field claims.
"""

from __future__ import annotations

from aiokafka.errors import KafkaProtocolError


def get_uvarint(buffer: bytes | bytearray, position: int) -> tuple[int, int]:
    """Read an unsigned varint of at most 32 bits; return the value and the position after it.

    Raises KafkaProtocolError if it is too long, IndexError if the buffer ends first.
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

    Raises KafkaProtocolError or IndexError if it does not end there.
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
