"""Build record batches of magic 2 (since Kafka 0.11), and convert them to magic 0 or 1."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from aiokafka.errors import IllegalArgumentError, IllegalStateError, MessageSizeTooLargeError
from aiokafka.record import _memory as mem
from aiokafka.record.compression import check_level, compress, require_codec
from aiokafka.record.crc32c import crc32c
from aiokafka.record.header import HEADER_SIZE, RecordBatch, iter_batches
from aiokafka.record.reader import RecordReader
from aiokafka.record.rows import RowSource

__all__ = [
    "HEADER_SIZE",
    "RecordBatch",
    "RecordBatchBuilder",
    "RecordReader",
    "SpareBuffers",
    "down_convert",
    "iter_batches",
]

Headers = Iterable[tuple[str, bytes | bytearray | memoryview | None]]

# The fields: base offset, length, leader epoch, magic, crc, attributes, last offset delta, first
# timestamp, max timestamp, producer id, producer epoch, base sequence, record count
_HEADER = struct.Struct(">qiibIhiqqqhii")
_CRC = struct.Struct(">I")
_CRC_AT = 17
_CRC_START = 21
_LOG_OVERHEAD = 12
_TRANSACTIONAL = 0x10
_MAX_SIZE = 0x7FFFFFFF
_MAX_TIMESTAMP = 0x7FFFFFFFFFFFFFFE  # the difference to a timestamp of -1 is still an int64
_FIRST_CAPACITY = 2048
_CAPACITY_STEP = 3
_MOST_SPARE = 16_384
_LEAST_REUSED = 65_536


class SpareBuffers:
    """Buffers of written or compressed batches, for later batches.

    Without reuse, the memory allocator returns large buffers to the system, and requests them
    again: for records of 1 KiB, the page faults cost as much CPU time as copying the records.

    Owns the spare buffers. They and the unused parts of taken buffers have at most `limit` bytes in
    total. Without this limit, small batches that wait for a slow broker could hold many times the
    memory that `buffer_memory` counts for them: each batch could take a large buffer that a batch
    for another broker has returned.
    """

    def __init__(self, limit: int) -> None:
        self._buffers: list[bytearray] = []
        self._free = limit

    def take(self) -> bytearray | None:
        """Remove and return the buffer that was added last, which the processor may still have in
        its cache; None without a buffer. Until `free` is called, all bytes of the buffer count as
        unused."""
        return self._buffers.pop() if self._buffers else None

    def free(self, size: int) -> None:
        """Stop counting `size` bytes of a taken buffer as unused: they are in use, or released."""
        self._free += size

    def add(self, buffer: bytearray) -> None:
        """Keep `buffer`, unless it is small, the limit is reached, or a view of the buffer
        exists."""
        size = len(buffer)
        if size < _LEAST_REUSED or size > self._free:
            return
        try:
            # A resize fails while a view of the buffer exists, for example in a transport that has
            # not written all bytes yet.
            mem.resize(buffer, size - 1)
            mem.resize(buffer, size)
        except BufferError:
            return
        self._free -= size
        self._buffers.append(buffer)


class RecordBatchBuilder:
    """Builds one batch from records.

    `compression` is the number of a codec, `level` its level (None: the default). `size_limit` is
    the largest size in bytes of the uncompressed batch with its header; a single record may be
    larger. `size` is the number of bytes so far, `record_count` the number of records. A large
    batch takes its buffer from `spare`, if there is one. Raises UnsupportedCodecError if the codec
    is not available, ValueError for an invalid level.
    """

    def __init__(
        self,
        *,
        compression: int | None = None,
        level: int | None = None,
        size_limit: int,
        spare: SpareBuffers | None = None,
    ) -> None:
        self.compression = compression or 0
        if self.compression or level is not None:
            require_codec(self.compression)
            check_level(self.compression, level)
        self._level = level
        self.size_limit = size_limit
        self.size = HEADER_SIZE
        self.record_count = 0
        self.first_timestamp = -1
        self.max_timestamp = -1
        self.compressed_size = 0
        """The size in bytes of the packed batch, compressed or not; 0 before `pack`."""
        self._buffer = bytearray(max(HEADER_SIZE, min(size_limit, _FIRST_CAPACITY)))
        self._capacity = len(self._buffer)
        self._batch: memoryview | None = None
        self._identity: tuple[int, int, int, bool] | None = None
        self._spare = spare
        self.is_large = False
        """Whether the buffer is large enough for `recycle()`."""
        self._is_reused = False
        self._loan = 0
        """The bytes of a buffer from `spare` that count as unused."""

    def raise_limit(self, size_limit: int) -> None:
        """Raise the size limit to `size_limit` bytes; a lower value has no effect."""
        self.size_limit = max(self.size_limit, size_limit)

    def append(
        self,
        timestamp: int,
        key: bytes | bytearray | memoryview | None,
        value: bytes | bytearray | memoryview | None,
        headers: Headers | None,
    ) -> int:
        """Add a record; return its offset in the batch, or -1 if it does not fit.

        The first record always fits. `timestamp` is in milliseconds since 1970. Raises ValueError
        for an invalid timestamp, TypeError for a key, value or header of a wrong type,
        IllegalStateError after `build()`, MessageSizeTooLargeError if the batch exceeds 2 GiB.
        """
        if timestamp < -1 or timestamp > _MAX_TIMESTAMP:
            raise ValueError(f"timestamp must be an int64 that is not negative, not {timestamp}")
        plain_key = key if key is None or type(key) is bytes else _plain("key", key)
        plain_value = value if value is None or type(value) is bytes else _plain("value", value)
        pairs: Any = ()
        extra = 1
        if headers:
            pairs = headers if type(headers) is list or type(headers) is tuple else list(headers)
            extra = _headers_size(pairs)
            if extra < 0:
                pairs = _plain_headers(pairs)
                extra = _headers_size(pairs)
        # The conversions above may have run code of the caller, such as a generator of headers,
        # which may have used this builder. No code of the caller runs below, so the sizes match the
        # bytes that are written.
        if self._batch is not None:
            raise IllegalStateError("the batch is built: nothing can be added to it")
        offset = self.record_count
        delta = timestamp - self.first_timestamp if offset else 0
        body = 1 + mem.varint_size(delta) + mem.varint_size(offset) + extra
        body += 1 if plain_key is None else mem.field_size(len(plain_key))
        body += 1 if plain_value is None else mem.field_size(len(plain_value))
        size = self.size + mem.varint_size(body) + body
        if size > self.size_limit and offset:
            return -1
        if size > self._capacity:
            self._grow(size)
        out = mem.target(self._buffer)
        at = mem.put_varint(out, self.size, body)
        out[at] = 0  # record attributes: Kafka defines none
        at = mem.put_varint(out, at + 1, delta)
        at = mem.put_varint(out, at, offset)
        at = mem.put_field(out, at, plain_key)
        at = mem.put_field(out, at, plain_value)
        at = mem.put_varint(out, at, len(pairs))
        for name, content in pairs:
            at = mem.put_varint(out, at, mem.text_size(name))
            at = mem.put_text(out, at, name)
            at = mem.put_field(out, at, content)
        self.size = at
        if not offset:
            self.first_timestamp = timestamp
        self.max_timestamp = max(self.max_timestamp, timestamp)
        self.record_count = offset + 1
        return offset

    def append_rows(self, rows: RowSource, order: bytearray, start: int, stop: int) -> int:
        """Add the rows `order[start:stop]`, where `order` is an array of int32.

        Returns the index in `order` of the first row that does not fit; `stop` if all rows fit. The
        first row of a batch always fits. Raises ValueError for a row that does not exist or has an
        invalid timestamp or header, after adding the rows before it; IllegalStateError after
        `build()`.
        """
        if self._batch is not None:
            raise IllegalStateError("the batch is built: nothing can be added to it")
        if type(rows) is not RowSource:
            raise TypeError(f"rows must be a RowSource, not {type(rows).__name__}")
        if not 0 <= start <= stop <= len(order) // 4:
            raise ValueError(f"rows {start} to {stop} of {len(order) // 4} are not possible")
        places = mem.target(order)
        for place in range(start, stop):
            row = mem.get_i32(places, place)
            if row < 0 or row >= rows.size:
                raise ValueError(f"row {row} of {rows.size} is not possible")
            if not self._append_row(rows, row):
                return place
        return stop

    def _append_row(self, rows: RowSource, row: int) -> bool:
        timestamp = rows.timestamp(row)
        if timestamp < -1 or timestamp > _MAX_TIMESTAMP:
            raise ValueError(f"timestamp must be an int64 that is not negative, not {timestamp}")
        delta = timestamp - self.first_timestamp if self.record_count else 0
        body = 1 + mem.varint_size(delta) + mem.varint_size(self.record_count)
        body += rows._keys.field_size(row) + rows._values.field_size(row)
        body += 1 if rows._headers is None else rows._headers.field_size(row)
        size = self.size + mem.varint_size(body) + body
        if size > self.size_limit and self.record_count:
            return False
        if size > self._capacity:
            self._grow(size)
        out = mem.target(self._buffer)
        at = mem.put_varint(out, self.size, body)
        out[at] = 0  # record attributes: Kafka defines none
        at = mem.put_varint(out, at + 1, delta)
        at = mem.put_varint(out, at, self.record_count)
        at = rows._keys.put(row, out, at)
        at = rows._values.put(row, out, at)
        if rows._headers is None:
            out[at] = 0
            at += 1
        else:
            at = rows._headers.put(row, out, at)
        self.size = at
        if not self.record_count:
            self.first_timestamp = timestamp
        self.max_timestamp = max(self.max_timestamp, timestamp)
        self.record_count += 1
        return True

    def _grow(self, size: int) -> None:
        if size > _MAX_SIZE:
            raise MessageSizeTooLargeError(
                f"a batch of {size} bytes exceeds the limit of Kafka's format"
            )
        if type(self._buffer) is not bytearray:
            # A compiled object has no buffer if it was created without __init__.
            raise TypeError("the builder was not initialised: __init__ was not called")
        # Each step copies the records so far, so take large steps. `pack` releases unused memory.
        capacity = min(_CAPACITY_STEP * max(size, self._capacity), max(size, self.size_limit))
        if self._spare is not None and self._capacity <= _MOST_SPARE < capacity:
            buffer = self._spare.take()
            if buffer is not None:
                memoryview(buffer)[: self.size] = memoryview(self._buffer)[: self.size]
                self._buffer = buffer
                self._capacity = self._loan = len(buffer)
                self._is_reused = True
        # Set the capacity only after the resize, because compiled code writes without bounds checks
        # up to the capacity. The resize raises MemoryError, or BufferError while a view of the
        # buffer exists.
        if capacity > self._capacity:
            mem.resize(self._buffer, capacity)
            self._capacity = capacity
        self.is_large = self._capacity >= _LEAST_REUSED

    def build(
        self,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
    ) -> memoryview:
        """Return the bytes of the batch as a memoryview.

        The first call packs the batch. A later call with the same arguments returns the same
        object; with another producer id, epoch, sequence number or transactional flag it returns a
        changed copy. Raises IllegalStateError without records.
        """
        identity = (producer_id, producer_epoch, base_sequence, transactional)
        batch = self.pack()
        if identity == self._identity:
            return batch
        if self._identity is not None:
            batch = memoryview(bytearray(batch))
        self._write_header(batch, producer_id, producer_epoch, base_sequence, transactional)
        self._identity = identity
        self._batch = batch
        return batch

    def pack(self) -> memoryview:
        """Compress the batch, unless it was packed before, and return it without a valid header.

        Afterwards `compressed_size` is known, and no records can be added. Raises IllegalStateError
        without records.
        """
        if not self.record_count:
            raise IllegalStateError("a batch without records cannot be built")
        if self._batch is None:
            self._batch = self._pack()
            self.compressed_size = len(self._batch)
        return self._batch

    def _pack(self) -> memoryview:
        if self._capacity - self.size > _MOST_SPARE and not self._is_reused:
            # The buffer was allocated for more records: release the rest.
            mem.resize(self._buffer, self.size)
            self._capacity = self.size
        self._reduce_loan(self._capacity - self.size)
        whole = memoryview(self._buffer)[: self.size]
        if not self.compression:
            return whole
        records = whole[HEADER_SIZE:]
        body = compress(self.compression, records, self._level)
        records.release()
        packed = bytearray(HEADER_SIZE)
        packed += body
        whole.release()
        self._give_buffer()
        return memoryview(packed)

    def end_loan(self) -> None:
        """Stop counting the unused part of a buffer from `spare` toward the limit of `spare`.
        Called when the batch is no longer needed."""
        self._reduce_loan(0)

    def _reduce_loan(self, unused: int) -> None:
        if unused < self._loan and self._spare is not None:
            self._spare.free(self._loan - unused)
            self._loan = unused

    def recycle(self) -> None:
        """Return the buffer of the built batch to `spare`, for later batches. The caller must not
        read the batch afterwards."""
        if self._spare is not None and self._batch is not None and self._capacity:
            try:
                self._batch.release()
            except BufferError:  # a transport still refers to it
                return
            self._give_buffer()

    def _give_buffer(self) -> None:
        buffer = self._buffer
        self._capacity = 0
        self._buffer = bytearray()
        self._reduce_loan(0)
        if self._spare is not None:
            self._spare.add(buffer)

    def _write_header(
        self,
        batch: memoryview,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        transactional: bool,
    ) -> None:
        _HEADER.pack_into(
            batch,
            0,
            0,  # base offset: assigned by the broker
            len(batch) - _LOG_OVERHEAD,
            -1,  # leader epoch: assigned by the broker
            2,
            0,
            self.compression | (_TRANSACTIONAL if transactional else 0),
            self.record_count - 1,
            self.first_timestamp,
            self.max_timestamp,
            producer_id,
            producer_epoch,
            base_sequence,
            self.record_count,
        )
        _CRC.pack_into(batch, _CRC_AT, crc32c(batch[_CRC_START:]))


def _headers_size(headers: Any) -> int:
    """Return the encoded size of the headers with their count; -1 if a header is not a tuple of str
    and bytes or None."""
    size = mem.varint_size(len(headers))
    for header in headers:
        if type(header) is not tuple or len(header) != 2:
            return -1
        name, value = header
        if type(name) is not str:
            return -1
        size += mem.field_size(mem.text_size(name))
        if value is None:
            size += 1
        elif type(value) is bytes:
            size += mem.field_size(len(value))
        else:
            return -1
    return size


def _plain(what: str, value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"{what} must be bytes-like or None, not {type(value).__name__}")


def _plain_headers(headers: Any) -> list[tuple[str, bytes | None]]:
    plain = []
    for header in headers:
        try:
            name, value = header
        except (TypeError, ValueError):
            raise TypeError(f"a header must be a pair of name and value, not {header!r}") from None
        if not isinstance(name, str):
            raise TypeError(f"the name of a header must be str, not {type(name).__name__}")
        value = None if value is None else _plain(f"the value of the header {name!r}", value)
        plain.append((str.__str__(name), value))
    return plain


def down_convert(
    batch: bytes | bytearray | memoryview, magic: int, codec: int = 0, level: int | None = None
) -> bytes:
    """Convert a built magic 2 batch to a message set of magic 0 or 1, for brokers before Kafka
    0.11.

    Raises IllegalArgumentError for records with headers, which magic 0 and 1 do not support.
    """
    from aiokafka.record.legacy import build_message_set  # for brokers before Kafka 0.11

    items = []
    for record in RecordReader(batch, "", -1, position=0, check_crcs=False).take(len(batch)):
        if record.headers:
            raise IllegalArgumentError("headers need a broker of Kafka 0.11 or later")
        items.append((record.timestamp, record.key, record.value))
    return build_message_set(magic, items, codec, level)
