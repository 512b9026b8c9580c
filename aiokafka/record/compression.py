"""Compression codecs of record batches, by their numbers on the wire.

The packages for snappy, lz4 and zstd are optional and imported on first use. Decompression is
limited, because a few kilobytes from an untrusted broker can unpack to gigabytes.
"""

from __future__ import annotations

import importlib
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from aiokafka.errors import CorruptRecordError, UnsupportedCodecError

__all__ = [
    "CODECS",
    "DEFAULT_MAX_DECOMPRESSED_BYTES",
    "GZIP",
    "LZ4",
    "NONE",
    "SNAPPY",
    "ZSTD",
    "check_level",
    "codec_id",
    "compress",
    "decompress",
    "has_codec",
    "require_codec",
]

Buffer = bytes | bytearray | memoryview

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)

CODECS = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""Codec numbers by the names that Kafka's configuration uses."""

DEFAULT_MAX_DECOMPRESSED_BYTES = 256 * 1024 * 1024
"""The default limit for the decompressed size of a batch.

By default brokers accept compressed batches of 1 MiB, and rarely more than 16 MiB. Text and JSON
rarely compress to less than a tenth, so real batches are far below this limit.
"""

_NAMES = {number: name for name, number in CODECS.items()}
_MODULES = {GZIP: "zlib", SNAPPY: "snappy", LZ4: "lz4.frame", ZSTD: "zstandard"}
_LEVELS = {GZIP: (1, 9), LZ4: (1, 17), ZSTD: (-131072, 22)}  # KIP-390
_GZIP_DEFAULT_LEVEL = 6  # zlib's own default and Java's
_ZSTD_DEFAULT_LEVEL = 3
_GZIP_WINDOW = 31  # 15 for the largest window, 16 for a gzip header and trailer
_GZIP_MAGIC = b"\x1f\x8b\x08"
_XERIAL_HEADER = (
    b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"  # snappy-java's stream, version 1
)
_SMALL_PIECE = 256
_LARGE_PIECE = 64 * 1024
XERIAL_BLOCK = 32 * 1024
_ZSTD_MAX_WINDOW = 1 << 27
_LZ4_MAX_RATIO = 255

_modules: dict[int, Any] = {}
_local = threading.local()  # two threads must not use the same zstd object at once


# -- available codecs


def codec_id(name: str | None) -> int:
    """Return the number of the codec called `name`; None and "none" are 0.

    Raises ValueError for any other name.
    """
    if name is None or name == "none":
        return NONE
    number = CODECS.get(name)
    if number is None:
        raise ValueError(
            f"compression_type must be None or one of {', '.join(sorted(CODECS))}, not {name!r}"
        )
    return number


def has_codec(name: str) -> bool:
    """Return whether the codec called `name` is available."""
    try:
        require_codec(codec_id(name))
    except UnsupportedCodecError:
        return False
    return True


def require_codec(codec: int) -> None:
    """Raise UnsupportedCodecError, with the package to install, if `codec` is not available."""
    if codec != NONE:
        _module(codec)


def _module(codec: int) -> Any:
    module = _modules.get(codec)
    if module is not None:
        return module
    path = _MODULES.get(codec)
    if path is None:
        raise UnsupportedCodecError(f"unknown compression codec {codec}")
    try:
        module = importlib.import_module(path)
    except ImportError as error:
        name, package = _NAMES[codec], path.partition(".")[0]
        raise UnsupportedCodecError(
            f"Libraries for {name} compression codec not found: it needs the package {package!r}: "
            f'pip install "aiokafka[{name}]"'
        ) from error
    _modules[codec] = module
    return module


def check_level(codec: int, level: int | None) -> None:
    """Raise ValueError if the codec does not support `level`. None, the default level, is always
    valid."""
    if level is None:
        return
    limits = _LEVELS.get(codec)
    if limits is None:
        name = _NAMES.get(codec, "no compression")
        raise ValueError(f"compression_level does not apply to {name}")
    lowest, highest = limits
    if type(level) is not int or not lowest <= level <= highest:
        raise ValueError(
            f"compression_level of {_NAMES[codec]} must be an int from {lowest} to {highest}, "
            f"not {level!r}"
        )


# -- compress


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data`. `level` is None for the default level, or a level that the caller has
    checked with `check_level`. Raises UnsupportedCodecError if the codec is unknown or not
    available."""
    compressor = _COMPRESSORS.get(codec)
    if compressor is None:
        raise UnsupportedCodecError(f"unknown compression codec {codec}")
    return compressor(data, level)


def _gzip(data: Buffer, level: int | None) -> bytes:
    level = _GZIP_DEFAULT_LEVEL if level is None else level
    stream = zlib.compressobj(level, zlib.DEFLATED, _GZIP_WINDOW)
    return stream.compress(data) + stream.flush()


def _snappy(data: Buffer, level: int | None) -> bytes:
    # Use the framing of snappy-java, which Java clients write and all clients can read.
    return compress_snappy(data, XERIAL_BLOCK)


def compress_snappy(data: Buffer, block_size: int | None) -> bytes:
    """Compress in blocks of `block_size` bytes with the framing of snappy-java; None: one block
    without framing."""
    snappy_block = _module(SNAPPY).compress
    if block_size is None:
        return bytes(snappy_block(bytes(data)))
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), block_size):
        block = snappy_block(bytes(view[start : start + block_size]))
        parts += (len(block).to_bytes(4, "big"), block)
    return b"".join(parts)


def _lz4(data: Buffer, level: int | None) -> bytes:
    # Not `block_linked`: Java rejects blocks that depend on each other.
    packed: bytes = _module(LZ4).compress(
        data, compression_level=level or 0, block_linked=False, store_size=False
    )
    return packed


def _zstd(data: Buffer, level: int | None) -> bytes:
    level = _ZSTD_DEFAULT_LEVEL if level is None else level
    compressors = _local.__dict__.setdefault("zstd_compressors", {})
    compressor = compressors.get(level)
    if compressor is None:
        compressor = compressors[level] = _module(ZSTD).ZstdCompressor(level=level)
    packed: bytes = compressor.compress(data)
    return packed


_COMPRESSORS: dict[int, Callable[[Buffer, int | None], bytes]] = {
    GZIP: _gzip,
    SNAPPY: _snappy,
    LZ4: _lz4,
    ZSTD: _zstd,
}


# -- decompress


def decompress(codec: int, data: Buffer, limit: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes:
    """Decompress `data` to at most `limit` bytes.

    Raises CorruptRecordError for damaged or incomplete data, and for data that exceeds `limit`;
    UnsupportedCodecError if the codec is unknown or not available.
    """
    decompressor = _DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise UnsupportedCodecError(f"unknown compression codec {codec}")
    module = _module(codec)
    try:
        return decompressor(module, data, limit)
    except (CorruptRecordError, MemoryError):
        raise
    except Exception as error:  # each codec package has its own exception classes
        raise CorruptRecordError(f"{_NAMES[codec]} cannot decompress the batch: {error}") from error


def _too_large(codec: int, limit: int) -> CorruptRecordError:
    return CorruptRecordError(
        f"the {_NAMES[codec]} batch unpacks to more than {limit} bytes (max_decompressed_bytes)"
    )


def _incomplete(codec: int) -> CorruptRecordError:
    return CorruptRecordError(f"the {_NAMES[codec]} batch ends too early")


def _gunzip(module: Any, data: Buffer, limit: int) -> bytes:
    stream = zlib.decompressobj(_GZIP_WINDOW)
    first = stream.decompress(data, limit + 1)
    if len(first) > limit:
        raise _too_large(GZIP, limit)
    if not stream.eof:
        raise _incomplete(GZIP)
    rest = len(stream.unused_data)
    if not rest:
        return first
    return b"".join((first, *_further_members(memoryview(data)[-rest:], limit - len(first), limit)))


def _further_members(data: memoryview, room: int, limit: int) -> Iterator[bytes]:
    """Yield the decompressed members of a gzip file after the first. If they have more than `room`
    bytes in total, raise an error that names `limit`, the limit of the whole file.

    If the bytes after a member do not begin another member, they are ignored, as in Java's
    GZIPInputStream: some tools pad with zeros. The record count of the batch shows whether records
    are missing. zlib copies the remaining input at the end of each member, and members may be
    short, so the input is passed in small pieces.
    """
    at = 0
    while data[at : at + 3] == _GZIP_MAGIC:
        stream = zlib.decompressobj(_GZIP_WINDOW)
        size = _SMALL_PIECE
        while not stream.eof:
            if at >= len(data):
                raise _incomplete(GZIP)
            piece = data[at : at + size]
            part = stream.decompress(piece, room + 1)
            room -= len(part)
            if room < 0:
                raise _too_large(GZIP, limit)
            at += len(piece) - len(stream.unused_data)
            # Pass larger pieces of a long member, for fewer calls.
            size = min(2 * size, _LARGE_PIECE)
            yield part


def _unsnappy(module: Any, data: Buffer, limit: int) -> bytes:
    view = memoryview(data)
    if bytes(view[:8]) != _XERIAL_HEADER[:8]:
        return _unsnappy_block(module, bytes(view), limit, limit)
    parts = []
    at, end, room = len(_XERIAL_HEADER), len(view), limit
    if end < at:
        raise _incomplete(SNAPPY)
    # As in snappy-java, streams may be concatenated, and up to 3 bytes at the end, which are too
    # few for the size of a block, are ignored.
    while end - at >= 4:
        if bytes(view[at : at + 8]) == _XERIAL_HEADER[:8]:
            at += len(_XERIAL_HEADER)
            if at > end:
                raise _incomplete(SNAPPY)
            continue
        start = at + 4
        at = start + int.from_bytes(view[at:start], "big")
        if at > end:
            raise _incomplete(SNAPPY)
        part = _unsnappy_block(module, bytes(view[start:at]), room, limit)
        room -= len(part)
        parts.append(part)
    return b"".join(parts)


def _unsnappy_block(module: Any, block: bytes, room: int, limit: int) -> bytes:
    # A block starts with its uncompressed size, and the `snappy` package allocates this much memory
    # at once. So check the size first.
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    if size > room:
        raise _too_large(SNAPPY, limit)
    # Three bytes of a snappy block unpack to at most 64 bytes.
    if size > 64 * len(block):
        raise _incomplete(SNAPPY)
    unpacked: bytes = module.uncompress(block)
    return unpacked


def _unlz4(module: Any, data: Buffer, limit: int) -> bytes:
    size = _lz4_content_size(data)
    if size > limit:
        raise _too_large(LZ4, limit)
    unpacked: bytes
    most = _LZ4_MAX_RATIO * len(data)
    if most <= limit:
        unpacked = module.decompress(data)
        return unpacked
    stream = module.LZ4FrameDecompressor()
    unpacked = stream.decompress(data, max_length=min(limit, most) + 1)
    if len(unpacked) > limit:
        raise _too_large(LZ4, limit)
    if not stream.eof:
        raise _incomplete(LZ4)
    return unpacked


def _lz4_content_size(data: Buffer) -> int:
    """Return the uncompressed size from the header of an LZ4 frame; 0 if the header has none. The
    `lz4` package allocates this much memory, so the caller checks the size first."""
    if len(data) < 14 or not data[4] & 0x08:
        return 0
    return int.from_bytes(data[6:14], "little")


def _unzstd(module: Any, data: Buffer, limit: int) -> bytes:
    size = module.frame_content_size(data)
    if size > limit:
        raise _too_large(ZSTD, limit)
    decompressor = _local.__dict__.get("zstd_decompressor")
    if decompressor is None:
        decompressor = module.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
        _local.zstd_decompressor = decompressor
    if 0 < size <= 256 * len(data):
        try:
            unpacked: bytes = decompressor.decompress(data, allow_extra_data=False)
        except module.ZstdError:
            pass  # another frame follows, or the data is damaged: decompress by frame, below
        else:
            return unpacked
    # The header has no size (as written by Java's stream) or an implausibly large one, or the
    # attempt above has failed.
    return _unzstd_stream(decompressor, data, limit)


def _unzstd_stream(decompressor: Any, data: Buffer, limit: int) -> bytes:
    parts = []
    room = limit
    while data:  # for each frame
        stream = decompressor.decompressobj()
        at = 0
        while not stream.eof:
            if at >= len(data):
                raise _incomplete(ZSTD)
            # Four bytes can unpack to a block of 128 KiB. So pass only as many bytes as can unpack
            # to about `room` bytes, to find out early that the limit is exceeded.
            piece = data[at : at + max(64, room >> 15)]
            at += len(piece)
            part = stream.decompress(piece)
            room -= len(part)
            if room < 0:
                raise _too_large(ZSTD, limit)
            parts.append(part)
        data = data[at - len(stream.unused_data) :]
    return b"".join(parts)


_DECOMPRESSORS: dict[int, Callable[[Any, Buffer, int], bytes]] = {
    GZIP: _gunzip,
    SNAPPY: _unsnappy,
    LZ4: _unlz4,
    ZSTD: _unzstd,
}
