"""CRC-32C (Castagnoli), the checksum of record batches since Kafka 0.11.

The `crc32c` package uses the processor's own instruction. Where it cannot be imported, a table
does: same result, slowly.
"""

from __future__ import annotations

__all__ = ["crc32c", "crc32c_by_table"]

_POLYNOMIAL = 0x82F63B78  # reflected


def _make_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_TABLE: tuple[int, ...] = ()


def crc32c_by_table(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """The checksum of `data`; `value` is the checksum of what comes before it."""
    global _TABLE
    table = _TABLE = _TABLE or _make_table()
    crc = value ^ 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


try:
    from crc32c import crc32c
except ImportError:  # pragma: no cover - a platform for which the package has no build
    crc32c = crc32c_by_table  # type: ignore[assignment]
