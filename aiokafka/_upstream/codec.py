"""The functions of `aiokafka.codec`: compress and decompress with one codec."""

from __future__ import annotations

from functools import partial

from aiokafka.record.compression import (
    GZIP,
    LZ4,
    SNAPPY,
    XERIAL_BLOCK,
    ZSTD,
    Buffer,
    compress,
    compress_snappy,
    decompress,
    has_codec,
)

__all__ = [
    "gzip_decode",
    "gzip_encode",
    "has_gzip",
    "has_lz4",
    "has_snappy",
    "has_zstd",
    "lz4_decode",
    "lz4_encode",
    "snappy_decode",
    "snappy_encode",
    "zstd_decode",
    "zstd_encode",
]

has_gzip = partial(has_codec, "gzip")
has_snappy = partial(has_codec, "snappy")
has_lz4 = partial(has_codec, "lz4")
has_zstd = partial(has_codec, "zstd")
gzip_decode = partial(decompress, GZIP)
snappy_decode = partial(decompress, SNAPPY)
lz4_decode = partial(decompress, LZ4)
zstd_decode = partial(decompress, ZSTD)


def gzip_encode(payload: Buffer, compresslevel: int | None = None) -> bytes:
    """Compress with gzip, at a level from 1 to 9 (None: 6)."""
    return compress(GZIP, payload, compresslevel)


def snappy_encode(
    payload: Buffer, xerial_compatible: bool = True, xerial_blocksize: int = XERIAL_BLOCK
) -> bytes:
    """Compress with snappy.

    Args:
        xerial_compatible: Whether to use the framing of snappy-java. If False, the result is one
            block without framing.
        xerial_blocksize: Number of uncompressed bytes in each block of the framing.
    """
    if xerial_blocksize < 1:
        raise ValueError(f"xerial_blocksize={xerial_blocksize}: must be at least 1")
    return compress_snappy(payload, xerial_blocksize if xerial_compatible else None)


def lz4_encode(payload: Buffer, level: int | None = None) -> bytes:
    """Compress with lz4; `level` None is the default level."""
    return compress(LZ4, payload, level)


def zstd_encode(payload: Buffer, level: int | None = None) -> bytes:
    """Compress with zstd; `level` None is the default level."""
    return compress(ZSTD, payload, level)
