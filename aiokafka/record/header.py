"""Headers of record batches, and the division of a record set into batches.

A record set is the data of one partition in a Fetch response or a Produce request: batches of magic
2 (since Kafka 0.11); messages of magic 0 and 1; or, from an old log, first messages and then
batches. Batches and messages start with the same 17 bytes: offset (8), length (4), a field whose
meaning depends on the magic (4), magic (1).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from aiokafka.errors import CorruptRecordError
from aiokafka.record import _memory as mem
from aiokafka.record.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, decompress
from aiokafka.record.crc32c import crc32c

__all__ = [
    "HEADER_SIZE",
    "MOST_SPANS",
    "RecordBatch",
    "Scan",
    "Span",
    "count_records",
    "flat_view",
    "is_cut_short",
    "iter_batches",
    "parse_batch",
    "scan_record_set",
    "valid_size",
]

HEADER_SIZE = 61
"""Size of a magic 2 batch without its records."""

_PREFIX_SIZE = 17
_LOG_OVERHEAD = 12  # size of the offset and length fields, which the length does not include
_CRC_START = 21  # the checksum of magic 2 covers the bytes from the attributes on
_V2_SIZE = HEADER_SIZE  # a C number in the compiled module, unlike HEADER_SIZE
_SMALLEST_V0 = 26
_SMALLEST_V1 = 34
_SMALLEST_RECORD = 7  # one byte each: length, attributes, two deltas, two lengths, header count
_MAX_OFFSET = 0x7FFFFFFFFFFFFFFF
_MAX_BATCH = 0x7FFFFFFF

_CODEC_MASK = 0x07
_APPEND_TIME = 0x08
_TRANSACTIONAL = 0x10
_CONTROL = 0x20


def flat_view(buffer: bytes | bytearray | memoryview) -> memoryview:
    """Return a one-dimensional view of the bytes of `buffer`, uncopied if it is contiguous."""
    view = memoryview(buffer)
    if not view.c_contiguous:
        view = memoryview(bytes(view))
    if view.ndim != 1 or view.format != "B":
        view = view.cast("B")
    return view


class RecordBatch:
    """The header of one batch. The constructor raises CorruptRecordError if the sizes or offsets
    are invalid; it does not check the CRC.

    In magic 0 and 1 a batch is one message, which may be a wrapper around compressed messages. For
    these magics, `base_offset` and `last_offset` are both the offset of the message (of a wrapper:
    the offset of its last message), `record_count` is 1, and the producer fields and `leader_epoch`
    are -1.

    Attributes: `view` (the batch's bytes), `base_offset`, `last_offset`, `size_in_bytes`, `magic`,
    `leader_epoch`, `crc`, `attributes`, `first_timestamp`, `max_timestamp` (milliseconds, -1 if
    missing), `producer_id`, `producer_epoch`, `base_sequence` (-1 if missing), `record_count`.
    """

    def __init__(self, buffer: bytes | bytearray | memoryview) -> None:
        view = flat_view(buffer)
        if not view or batch_size(view, 0) != len(view):
            raise CorruptRecordError(f"{len(view)} bytes are not one batch")
        self._parse(view)

    def _parse(self, view: memoryview) -> None:
        """Read the header of `view`, whose size the caller has checked."""
        data = mem.source(view)
        self.view = view
        self.size_in_bytes = len(view)
        self.magic = data[16]
        self.base_offset = mem.i64(data, 0)
        if self.base_offset < 0:
            raise CorruptRecordError(f"a batch has the offset {self.base_offset}")
        if self.magic != 2:
            self._read_message(data)
            return
        self.leader_epoch = mem.i32(data, 12)
        self.crc = mem.u32(data, 17)
        self.attributes = mem.i16(data, 21)
        last_delta = mem.i32(data, 23)
        self.first_timestamp = mem.i64(data, 27)
        self.max_timestamp = mem.i64(data, 35)
        self.producer_id = mem.i64(data, 43)
        self.producer_epoch = mem.i16(data, 51)
        self.base_sequence = mem.i32(data, 53)
        self.record_count = mem.i32(data, 57)
        if last_delta < 0 or self.base_offset > _MAX_OFFSET - 1 - last_delta:
            raise CorruptRecordError(
                f"the batch at offset {self.base_offset} has {last_delta} as last offset delta"
            )
        self.last_offset = self.base_offset + last_delta
        if self.record_count < 0:
            raise CorruptRecordError(
                f"the batch at offset {self.base_offset} claims {self.record_count} records"
            )

    def _read_message(self, data: Any) -> None:
        self.leader_epoch = -1
        self.crc = mem.u32(data, 12)
        self.attributes = data[17]
        self.last_offset = self.base_offset
        self.first_timestamp = self.max_timestamp = mem.i64(data, 18) if self.magic == 1 else -1
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = -1
        self.record_count = 1
        if self.last_offset == _MAX_OFFSET:
            raise CorruptRecordError(f"a message has the offset {self.last_offset}")

    @property
    def codec(self) -> int:
        """The compression codec's number: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""
        return self.attributes & _CODEC_MASK

    @property
    def timestamp_type(self) -> int:
        """0 for the time of the producer, 1 for the time of the append."""
        return 1 if self.attributes & _APPEND_TIME else 0

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.magic == 2 and self.attributes & _TRANSACTIONAL != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch is a control batch (see `control`), without user records."""
        return self.magic == 2 and self.attributes & _CONTROL != 0

    def check_crc(self) -> None:
        """Raise CorruptRecordError if the batch's checksum does not match its bytes."""
        if self.magic == 2:
            actual = crc32c(self.view[_CRC_START:])
        else:
            from zlib import crc32

            actual = crc32(self.view[16:])
        if actual != self.crc:
            raise CorruptRecordError(
                f"the batch at offset {self.base_offset} has the checksum {actual:#010x} "
                f"but says {self.crc:#010x}"
            )

    def payload(self, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> memoryview:
        """Return the decompressed records of a magic 2 batch as bytes. Raises CorruptRecordError if
        they cannot be decompressed, or are too few bytes for the record count;
        UnsupportedCodecError if the codec is not available."""
        body = self.view[HEADER_SIZE:]
        codec = self.attributes & _CODEC_MASK
        if codec != 0:
            body = memoryview(decompress(codec, body, max_decompressed_bytes))
        if self.record_count > len(body) // _SMALLEST_RECORD:
            raise CorruptRecordError(
                f"the batch at offset {self.base_offset} claims {self.record_count} records "
                f"in {len(body)} bytes"
            )
        return body

    def __repr__(self) -> str:
        return (
            f"<RecordBatch offsets {self.base_offset}-{self.last_offset} magic {self.magic} "
            f"{self.record_count} records {self.size_in_bytes} bytes>"
        )


def batch_size(view: memoryview, at: int) -> int:
    """Return the size of the batch at `at`; 0 if the batch is incomplete.

    Raises CorruptRecordError for an unknown magic or an invalid size.
    """
    left = len(view) - at
    if left < _PREFIX_SIZE:
        return 0
    data = mem.source(view)
    size = mem.i32(data, at + 8)
    magic = data[at + 16]
    if magic == 2:
        least = _V2_SIZE
    elif magic < 2:
        least = _SMALLEST_V1 if magic else _SMALLEST_V0
    else:
        raise CorruptRecordError(f"a batch has the unknown magic {magic}")
    if size < least - _LOG_OVERHEAD or size > _MAX_BATCH - _LOG_OVERHEAD:
        raise CorruptRecordError(f"a batch of magic {magic} has the size {size}")
    size += _LOG_OVERHEAD
    return size if size <= left else 0


def parse_batch(view: memoryview, at: int) -> RecordBatch | None:
    """Return the batch that begins at `at`; None if the batch is incomplete.

    The view must come from `flat_view`. Raises CorruptRecordError for an invalid header.
    """
    # Check the type: compiled code would read the memory of any other object as if it were a view.
    if type(view) is not memoryview or at < 0:  # type: ignore[redundant-expr]
        raise TypeError(f"{view!r} from {at} on is not a view of batches")
    size = batch_size(view, at)
    if size == 0:
        return None
    batch = RecordBatch.__new__(RecordBatch)
    batch._parse(view[at : at + size])
    return batch


def valid_size(view: memoryview, at: int) -> int:
    """Return the size of the batch at `at`; 0 if the batch is incomplete, or if `parse_batch` would
    reject its header.

    The view must come from `flat_view`.
    """
    if type(view) is not memoryview or at < 0:  # type: ignore[redundant-expr]
        raise TypeError(f"{view!r} from {at} on is not a view of batches")
    try:
        size = batch_size(view, at)
    except CorruptRecordError:
        return 0
    if size == 0:
        return 0
    data = mem.source(view)
    base_offset = mem.i64(data, at)
    if base_offset < 0 or base_offset == _MAX_OFFSET:
        return 0
    if data[at + 16] == 2:
        last_delta = mem.i32(data, at + 23)
        if last_delta < 0 or base_offset > _MAX_OFFSET - 1 - last_delta:
            return 0
        if mem.i32(data, at + 57) < 0:
            return 0
    return size


def is_cut_short(buffer: bytes | bytearray | memoryview) -> bool:
    """Return whether the first batch is incomplete; False if its header is invalid.

    If a batch is larger than the requested size, brokers before 0.10.1 send its beginning only.
    """
    view = flat_view(buffer)
    try:
        return batch_size(view, 0) == 0
    except CorruptRecordError:
        return False


def iter_batches(buffer: bytes | bytearray | memoryview) -> Iterator[RecordBatch]:
    """Yield the batches of a record set, in order, without an incomplete last batch.

    Raises CorruptRecordError at an invalid header. CRCs are not checked.
    """
    view = flat_view(buffer)
    at = 0
    while True:
        batch = parse_batch(view, at)
        if batch is None:
            return
        at += batch.size_in_bytes
        yield batch


# -- Scan a record set by batch headers


Span = tuple[int, int, int]
"""First offset, offset after the last, and leader epoch of consecutive batches."""

MOST_SPANS = 64  # more than enough: a record set rarely has more than two leader epochs


# The least valid `length` field of a magic 2 batch.
_LEAST_LENGTH = HEADER_SIZE - _LOG_OVERHEAD


class Scan:
    """The result of `scan_record_set`.

    Attributes:

    - `size`: bytes of the scanned batches.
    - `first`: the first offset; -1 without a batch.
    - `end`: the offset after the batches, at which the next fetch begins; -1 without a batch.
    - `spans`: one Span for each series of batches with the same leader epoch; at most the last
      `MOST_SPANS` + 1 of them.
    """

    size: int
    first: int
    end: int
    spans: list[Span]


def scan_record_set(buffer: bytes | bytearray | memoryview, until: int = _MAX_OFFSET) -> Scan:
    """Scan the batch headers of a record set, up to the batch that reaches offset `until`.

    Stops at an incomplete batch, and at an invalid header: a reader that continues at this header
    raises the error. CRCs are not checked. Skips batches with decreasing offsets, as readers do: no
    log has such batches, and if `end` decreased, the next fetch would return records a second time.
    """
    view = flat_view(buffer)
    total = len(view)
    spans: list[Span] = []
    found = Scan()
    found.first = -1
    first = -1
    of_span = -1
    end = -1
    at = 0
    while at < total and end < until:
        size = valid_size(view, at)
        if size == 0:
            break
        data = mem.source(view)
        base_offset = mem.i64(data, at)
        delta = 0
        epoch = -1
        if data[at + 16] == 2:
            if base_offset >= until:
                end = until
                break
            delta = mem.i32(data, at + 23)
            epoch = mem.i32(data, at + 12)
        at += size
        if base_offset + delta < end:
            continue
        if first < 0 or epoch != of_span:
            if first >= 0:
                spans.append((first, end, of_span))
                if len(spans) > MOST_SPANS:
                    del spans[0]
            else:
                found.first = base_offset
            first = base_offset if base_offset > end else end
            of_span = epoch
        end = base_offset + delta + 1
    if first >= 0:
        spans.append((first, end, of_span))
    found.size = at
    found.end = end
    found.spans = spans
    return found


def count_records(record_set: bytes | bytearray | memoryview) -> int:
    """Return the number of records according to the batch headers, without control batches.

    A compressed message of magic 0 or 1 counts as one record. Stops at an invalid header, at which
    reading the records raises an error.
    """
    view = flat_view(record_set)
    data = mem.source(view)
    left = len(view)
    count = at = 0
    while left >= _PREFIX_SIZE:
        length = mem.i32(data, at + 8)
        if length <= 0 or length > left - _LOG_OVERHEAD:
            break
        if data[at + 16] < 2:
            count += 1
        elif length < _LEAST_LENGTH:
            break
        elif not data[at + 22] & _CONTROL:
            promised = mem.i32(data, at + 57)
            if promised > 0:
                count += promised
        at += length + _LOG_OVERHEAD
        left -= length + _LOG_OVERHEAD
    return count
