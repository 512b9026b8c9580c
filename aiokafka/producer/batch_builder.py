"""Batches that users fill. The module is compiled if possible (batch_builder.pxd)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from aiokafka import _clock
from aiokafka._callbacks import refuse_awaitable
from aiokafka._typing import later
from aiokafka.producer._arguments import Headers, as_bytes, as_headers, as_timestamp
from aiokafka.record.batch import RecordBatchBuilder
from aiokafka.record.rows import RowSource

if TYPE_CHECKING:
    from aiokafka.producer._serialization import Serializers
else:
    Serializers = later("aiokafka.producer._serialization.Serializers")

__all__ = ["AppendedRecord", "BatchBuilder"]

_ADVICE = "append() cannot await: use `await batch.append_async(...)`"


class AppendedRecord:
    """A record that was added to a batch.

    `offset` is the position of the record in the batch, from 0. `size` is the number of bytes that
    the record has in the batch before compression. `timestamp` is in milliseconds since 1970 (UTC).
    """

    offset: int
    size: int
    timestamp: int

    @property
    def crc(self) -> None:
        """Always None: records have no checksum of their own."""
        return None

    def __repr__(self) -> str:
        return f"AppendedRecord(offset={self.offset}, size={self.size}, timestamp={self.timestamp})"


class BatchBuilder:
    """A batch to fill with `append` and to send with `send_batch`. Created by
    `AIOKafkaProducer.create_batch`.
    """

    def __init__(
        self,
        builder: RecordBatchBuilder,
        serializers: Serializers | None = None,
        topic: str | None = None,
    ) -> None:
        self._builder = builder
        self._serializers = serializers
        self._key_serializer = None if serializers is None else serializers.key
        self._value_serializer = None if serializers is None else serializers.value
        self.topic = topic
        """The topic of the records, for serializers that take a context; None if unknown."""
        self._is_closed = False
        self._is_sent = False
        self._first_timestamp = -1

    def __del__(self) -> None:
        try:
            # The batch was not sent, so no producer returns its buffer.
            if not self._is_sent and self._builder is not None:
                self._builder.end_loan()
        except AttributeError:
            pass  # created without __init__

    def append(
        self,
        *,
        timestamp: float | None,
        key: Any,
        value: Any,
        headers: Iterable[tuple[str, bytes | None]] | None = (),
    ) -> AppendedRecord | None:
        """Add a record, and return an AppendedRecord; return None without adding the record if the
        batch is full or closed.

        An empty batch accepts a record of any size. The first record that does not fit closes the
        batch. `timestamp` is in milliseconds since 1970, None for now; fractions are cut off. The
        producer's serializers are applied to `key` and `value`. `headers` are pairs of name and
        bytes, from any iterable. Raises TypeError if a serialized key or value, or the value of a
        header, is not bytes or None, or if a serializer returns an awaitable (use `append_async`);
        WrongArgument (a ValueError) for a timestamp that is negative or too large.
        """
        if self._is_closed:
            return None
        to_key, to_value = self._key_serializer, self._value_serializer
        if self._serializers is not None and self._serializers.takes_context:
            headers = list(as_headers(headers)) if headers else []
            to_key, to_value = self._serializers.functions(self.topic, headers)
        part = "key"
        try:
            if to_key is not None:
                key = to_key(key)
                if type(key) is not bytes and key is not None:
                    refuse_awaitable("key_serializer", key, _ADVICE)
            part = "value"
            if to_value is not None:
                value = to_value(value)
                if type(value) is not bytes and value is not None:
                    refuse_awaitable("value_serializer", value, _ADVICE)
        except Exception as error:
            from aiokafka.producer._serialization import add_note

            add_note(error, part, self.topic)
            raise
        return self._append(timestamp, key, value, headers)

    async def append_async(
        self,
        *,
        timestamp: float | None,
        key: Any,
        value: Any,
        headers: Iterable[tuple[str, bytes | None]] | None = (),
    ) -> AppendedRecord | None:
        """Do the same as `append`, but await the serializers: each may return its result or an
        awaitable.

        Records of concurrent calls are added in the order in which their serializers return. If the
        call is cancelled, the record is not added.
        """
        if self.closed():
            return None
        if self._serializers is not None:
            headers = list(as_headers(headers)) if headers else []
            key, value = await self._serializers.serialize_async(self.topic, key, value, headers)
            if self.closed():  # closed while a serializer was awaited
                return None
        return self._append(timestamp, key, value, headers)

    def _append(
        self,
        timestamp: float | None,
        key: Any,
        value: Any,
        headers: Iterable[tuple[str, bytes | None]] | None,
    ) -> AppendedRecord | None:
        """Check the arguments of `append`, and add the record: `key` and `value` are serialized.
        Return None if the batch has no room for it."""
        if timestamp is not None:
            timestamp = as_timestamp(timestamp, "timestamp")
        if key is not None and type(key) is not bytes:
            key = as_bytes(key, "key", self._key_serializer is not None)
        if value is not None and type(value) is not bytes:
            value = as_bytes(value, "value", self._value_serializer is not None)
        return self._add(timestamp, key, value, as_headers(headers) if headers else ())

    def _add(
        self, timestamp: int | None, key: bytes | None, value: bytes | None, headers: Headers
    ) -> AppendedRecord | None:
        if timestamp is None:
            seconds = _clock.wall_time()
            stamp = int(seconds * 1000)
        else:
            stamp = timestamp
        builder = self._records()
        before = builder.size
        offset = builder.append(stamp, key, value, headers)
        if offset < 0:
            # Close the batch: otherwise a later, smaller record could fit, and would overtake this
            # record, which the program adds to its next batch.
            self._is_closed = True
            return None
        if offset == 0:
            self._first_timestamp = stamp
        # Skip the constructor: in the compiled class it would convert its arguments to Python
        # objects.
        record = AppendedRecord.__new__(AppendedRecord)
        record.offset = offset
        record.size = builder.size - before
        record.timestamp = stamp
        return record

    def append_rows(
        self, rows: RowSource, order: bytearray, start: int = 0, stop: int | None = None
    ) -> int:
        """Add rows of columnar data. `order`, an array of int32, has the row numbers, from index
        `start` to `stop` (None: to the end of `order`).

        Returns the index in `order` of the first row that was not added because the batch is full
        or closed; `stop` if all rows were added. An empty batch accepts a row of any size. The
        producer's serializers are not applied. Raises ValueError for a row that does not exist, or
        that has an invalid timestamp or header; the rows before that row were added.
        """
        stop = len(order) // 4 if stop is None else stop
        if self._is_closed:
            return start
        builder = self._records()
        is_empty = not builder.record_count
        try:
            return builder.append_rows(rows, order, start, stop)
        finally:
            if is_empty and builder.record_count:
                self._first_timestamp = builder.first_timestamp

    def close(self) -> None:
        """Close the batch: `append` adds no more records. After `send_batch`, `send` adds no
        records to a closed batch either."""
        self._is_closed = True

    def closed(self) -> bool:
        """Return whether the batch is closed, so that it accepts no more records."""
        return self._is_closed

    def size(self) -> int:
        """Return the current bytes of the batch, before compression, including the batch header."""
        return self._records().size

    def record_count(self) -> int:
        """Return the number of records in the batch."""
        return self._records().record_count

    @property
    def first_timestamp(self) -> int:
        """The timestamp of the first record in milliseconds since 1970; -1 for an empty batch."""
        return self._first_timestamp

    def _records(self) -> RecordBatchBuilder:
        if self._builder is None:  # a compiled object created without __init__
            text = "the batch was not initialised"  # type: ignore[unreachable]
            raise TypeError(f"{text}: __init__ was not called")
        return self._builder

    def release(self) -> RecordBatchBuilder:
        """Close the batch, mark it as sent, and return the builder with its records."""
        self._is_closed = self._is_sent = True
        return self._builder

    @property
    def is_sent(self) -> bool:
        """Whether the batch was passed to `send_batch`."""
        return self._is_sent
