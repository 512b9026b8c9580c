"""CRC-32C (Castagnoli), the checksum of record batches since Kafka 0.11.

The `crc32c` package uses a processor instruction. Without the package, a slow lookup table is used.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

__all__ = ["crc32c", "crc32c_by_table"]

_POLYNOMIAL = 0x82F63B78  # the polynomial of CRC-32C, with its bits reversed


def _make_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (_POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_TABLE: tuple[int, ...] = ()


def crc32c_by_table(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """Return the checksum of `data`, continued from the checksum `value` of the bytes before it."""
    global _TABLE
    table = _TABLE = _TABLE or _make_table()
    crc = value ^ 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _native() -> Callable[..., int] | None:
    """Return the function of the `crc32c` package, None if it is not available.

    Loads the package's extension module without its `__init__`, which would import a command line
    and package metadata and take longer than all other imports of a client.
    """
    package = PathFinder.find_spec("crc32c")
    if package is None:
        return None
    spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    try:
        if spec is not None and spec.loader is not None:
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            found: Callable[..., int] = module.crc32c
        else:
            from crc32c import crc32c as found
    except (ImportError, AttributeError):  # built for another platform, or another package
        return None
    return found


crc32c: Callable[..., int] = _native() or crc32c_by_table
