"""Compatibility: whether a codec is there, and the codecs themselves, under aiokafka's names."""

from __future__ import annotations

from functools import partial

from aiokafka.record.compression import GZIP, LZ4, SNAPPY, ZSTD, compress, decompress, has_codec

has_gzip = partial(has_codec, "gzip")
has_snappy = partial(has_codec, "snappy")
has_lz4 = partial(has_codec, "lz4")
has_zstd = partial(has_codec, "zstd")
gzip_encode, gzip_decode = partial(compress, GZIP), partial(decompress, GZIP)
snappy_encode, snappy_decode = partial(compress, SNAPPY), partial(decompress, SNAPPY)
lz4_encode, lz4_decode = partial(compress, LZ4), partial(decompress, LZ4)
zstd_encode, zstd_decode = partial(compress, ZSTD), partial(decompress, ZSTD)
