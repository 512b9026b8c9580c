"""Decode fetched record sets to `ConsumerRecord` objects, on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import isawaitable
from types import CoroutineType
from typing import Any

from aiokafka import _cpython
from aiokafka._consumer_record import AcquiredRecord, Record
from aiokafka._serialization import (
    FAILURES,
    ContextDeserializer,
    OneTurn,
    Suspended,
    SuspendedRecord,
    first_step,
    not_deserialized,
)
from aiokafka.errors import IllegalStateError, RecordDeserializationError
from aiokafka.record import _memory as mem
from aiokafka.record.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from aiokafka.record.cursor import BatchCursor

__all__ = ["RecordReader"]

Deserializer = Callable[[Any], Any]
ErrorHandler = Callable[[RecordDeserializationError], bool]

_MAX_INT64 = 0x7FFFFFFFFFFFFFFF
_MIN_INT64 = -_MAX_INT64 - 1
_NO_LIMIT = _MAX_INT64

# Types whose instances refer to no other objects: they cannot be part of a reference cycle.
_ATOMIC = frozenset({bool, bytes, float, int, str})


class RecordReader(BatchCursor):
    """Returns the records of one fetched record set, of any magic, from `position` on.

    Records are decoded on demand. `take` and `next` raise CorruptRecordError at a corrupt batch,
    and RecordDeserializationError if a deserializer raises. They first return the records before
    the error. Then every call raises the error, until `skip` moves past the record or batch that
    caused it.

    With `on_error`, no RecordDeserializationError is raised: `on_error` is called with the error,
    and returns whether the record is kept: False to leave it out, True to return it with its key
    and value as bytes. If `on_error` has a method `is_turn_over`, and this method returns True, the
    reader first suspends the record for one iteration of the event loop, as if its deserializer
    waited.

    A deserializer may return an awaitable. If the awaitable waits, `next` raises SuspendedRecord.
    `take` returns the records before the waiting record; if there are none, it raises
    SuspendedRecord, too. `suspended` is then the SuspendedRecord, until the caller sets it to None.

    - `position`: the offset after the last returned record, and after skipped batches that follow
      it, such as control batches.
    - `last_leader_epoch`: the epoch of the last batch that was read or skipped; -1 if unknown.
    - `exhausted`: whether no records are left.
    - `truncated`: whether the record set ends with an incomplete batch; False until the reader has
      reached this batch.

    With `acquisition`, the records are of class `ShareRecord`, and belong to this acquisition of a
    share group.

    `aborted`: the (producer id, first offset) pairs of the Fetch response, used only with
    `read_committed`. The deserializers are called with bytes or None; see `adapt_deserializer()`.
    """

    suspended: SuspendedRecord | None

    def __init__(
        self,
        buffer: bytes | bytearray | memoryview,
        topic: str,
        partition: int,
        *,
        position: int,
        check_crcs: bool = True,
        read_committed: bool = False,
        aborted: Iterable[tuple[int, int]] | None = None,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        on_error: ErrorHandler | None = None,
        include_control: bool = False,
        max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
        acquisition: Any = None,
    ) -> None:
        BatchCursor.__init__(
            self,
            buffer,
            position=position,
            check_crcs=check_crcs,
            read_committed=read_committed,
            aborted=aborted,
            include_control=include_control,
            max_decompressed_bytes=max_decompressed_bytes,
        )
        self._topic = topic
        self._partition = partition
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._on_error = on_error
        self._is_turn_over = getattr(on_error, "is_turn_over", None)
        kinds: set[Any] = {type(key_deserializer), type(value_deserializer)}
        self._takes_context = ContextDeserializer in kinds
        self._is_awaiting = False
        self._acquisition = acquisition
        self._delivery_count = 0
        self.suspended = None
        self._key_type: type | None = None
        """The type of the last key that was checked and is not an awaitable: keys of the same type
        are not checked again."""
        self._value_type: type | None = None
        self._is_atomic_key = True  # whether `_key_type` is in `_ATOMIC`, or there is no type yet
        self._is_atomic_value = True
        self._last_headers: tuple[Any, ...] = ()
        self._header_end = 0
        self._is_raw = key_deserializer is None and value_deserializer is None

    def set_delivery_count(self, delivery_count: int) -> None:
        """Set the delivery count of the next ShareRecords."""
        self._delivery_count = delivery_count

    def next(self) -> Any:
        """Return the next ConsumerRecord; None at the end of the record set. Raises the error of an
        unreadable record or batch."""
        while self._enter():
            record = self._decode()
            if record is not None:
                if self._left == 0:
                    self._leave_if_done()
                    # Skip batches without records to return, such as transaction markers.
                    # Otherwise the consumer's position would never reach the end of the log.
                    self._settle()
                return record
            self._leave_if_done()
        return None

    def take(self, max_records: int, max_bytes: int = _NO_LIMIT) -> list[Any]:
        """Return up to `max_records` records; fewer at the end or before an error, which the next
        call raises. Raises the error if there are no records before it.

        After this call has decompressed `max_bytes` bytes (counted in `unpacked`), it begins no
        other batch. So the list may be empty although the record set has more records.
        """
        records: list[Any] = []
        count = 0
        self._mark()
        try:
            while count < max_records and self.unpacked < max_bytes and self._enter():
                count = self._fill(records, count, max_records)
                self._leave_if_done()
        except Exception:
            if not records:
                raise
        except BaseException:
            self.suspended = None
            # The caller does not get these records, so the next call must return them again.
            self._return()
            raise
        if self._left == 0:
            self._settle()
        return records

    def skip(self) -> None:
        """Skip the record, or the rest of the batch, for which the last `take` or `next` raised."""
        if self._left == 0:
            self._skip_batch()
            return
        was_raw, self._is_raw = self._is_raw, True
        try:
            self._decode()
        except Exception:
            self._left = 0  # the start of the next record is unknown
        finally:
            self._is_raw = was_raw
        self._leave_if_done()

    def accept(self, suspended: SuspendedRecord) -> Any:
        """Return the record at which the last `take` or `next` was suspended, after
        `suspended.finish()` has returned, and move past it. Raises the error of the deserializer,
        or returns None if `on_error` leaves the record out.
        """
        error = suspended.error
        is_kept = True
        if error is not None:
            if self._on_error is None:
                raise error
            is_kept = self._on_error(error)
        self.skip()
        if self._left == 0:
            self._settle()
        if not is_kept:
            return None
        record = suspended.record
        if error is None:
            record.key = suspended.key
            record.value = suspended.value
        return record

    # -- decoding

    def _fill(self, records: list[Any], count: int, limit: int) -> int:
        """Append records of the batch to `records`, up to `limit` in total; return the new
        `count`."""
        while self._left > 0 and count < limit:
            record = self._decode()
            if record is not None:
                records.append(record)
                count += 1
        return count

    def _decode(self) -> Any:
        """Decode the next record; return None if it is before the position, or left out.

        After an exception, the next call decodes the same record.
        """
        if self._messages is not None:
            return self._decode_message()
        data = self._data
        size, at = mem.varint(data, self._at, self._end)
        if at < 0 or size < 0 or size > self._end - at:
            raise self._corrupt("the length of a record")
        stop = at + size
        # If there are bytes after the last record, or the record count is wrong, the batch is
        # corrupt.
        if self._left == 1 and stop != self._end:
            raise self._corrupt("the number of records")
        # Skip the byte of attributes: Kafka defines none.
        timestamp, at = mem.varint(data, at + 1, stop)
        delta, at = mem.varint(data, at, stop)
        if at < 0 or delta < 0 or delta > self._last_offset - self._base_offset:
            raise self._corrupt("the offset of a record")
        offset = self._base_offset + delta
        if offset < self.position:
            self._at = stop
            self._left -= 1
            return None
        timestamp = self._timestamp(timestamp)
        record = self._read_record(at, stop)
        record.offset = offset
        record.timestamp = timestamp
        is_kept = True
        if self._is_raw:
            _cpython.untrack(record)
        else:
            is_kept = self._deserialize(record)
        self._at = stop
        self._left -= 1
        # Set the position after all code that may raise, so that after an error the next call reads
        # this record again.
        self.position = offset + 1
        return record if is_kept else None

    def _timestamp(self, delta: int) -> int:
        if self._append_time:
            return self._max_timestamp
        base = self._base_timestamp
        if (delta > 0 and base > _MAX_INT64 - delta) or (delta < 0 and base < _MIN_INT64 - delta):
            raise self._corrupt("the timestamp of a record")
        return base + delta

    def _read_record(self, at: int, stop: int) -> Any:
        """Decode a ConsumerRecord whose key is at `at`, without offset and timestamp."""
        data = self._data
        key_size, key_at = mem.varint(data, at, stop)
        if key_at < 0 or key_size < -1 or key_size > stop - key_at:
            raise self._corrupt("the key of a record")
        at = key_at if key_size < 0 else key_at + key_size
        value_size, value_at = mem.varint(data, at, stop)
        if value_at < 0 or value_size < -1 or value_size > stop - value_at:
            raise self._corrupt("the value of a record")
        at = value_at if value_size < 0 else value_at + value_size
        record = Record.__new__(Record) if self._acquisition is None else self._new_acquired()
        if stop - at == 1 and data[at] == 0:
            record.headers = ()
        else:
            record.headers = self._read_headers(at, stop)
        record.key = None if key_size < 0 else mem.cut(data, key_at, key_at + key_size)
        record.value = None if value_size < 0 else mem.cut(data, value_at, value_at + value_size)
        record.topic = self._topic
        record.partition = self._partition
        record.timestamp_type = self._timestamp_type
        record.checksum = None
        record.serialized_key_size = key_size
        record.serialized_value_size = value_size
        return record

    def _new_acquired(self) -> Any:
        record = AcquiredRecord.__new__(AcquiredRecord)
        self._acquire(record)
        return record

    def _acquire(self, record: Any) -> None:
        record._acquisition = self._acquisition
        record.delivery_count = self._delivery_count
        record._is_open = True
        record._is_raw = True

    def _read_headers(self, at: int, stop: int) -> tuple[Any, ...]:
        data = self._data
        count, at = mem.varint(data, at, stop)
        if at < 0 or count < 0 or count > (stop - at) // 2:
            raise self._corrupt("the number of headers of a record")
        self._header_end = at
        # Records of a topic usually have the same header names, and often the same values, so reuse
        # equal headers of the previous record.
        last = self._last_headers
        known = len(last)
        pairs: list[Any] | None = None if count == known else []
        for index in range(count):
            like = last[index] if index < known else None
            pair = self._read_header(like, self._header_end, stop)
            if pairs is None and pair is not like:
                pairs = list(last[:index])
            if pairs is not None:
                pairs.append(pair)
        if self._header_end != stop:
            raise self._corrupt("the length of a record")
        if pairs is not None:
            self._last_headers = mem.leaf(tuple(pairs))
        return self._last_headers

    def _read_header(self, like: tuple[Any, ...] | None, at: int, stop: int) -> tuple[Any, ...]:
        """Decode the header at `at` and set `_header_end`; return `like` if it is equal."""
        data = self._data
        size, start = mem.varint(data, at, stop)
        if start < 0 or size < 0 or size > stop - start:
            raise self._corrupt("the name of a header")
        at = start + size
        name = (
            mem.text(data, start, at) if like is None else mem.text_like(data, start, at, like[0])
        )
        size, start = mem.varint(data, at, stop)
        if start < 0 or size < -1 or size > stop - start:
            raise self._corrupt("the value of a header")
        self._header_end = start if size < 0 else start + size
        if size < 0:
            value = None
        elif like is None:
            value = mem.cut(data, start, self._header_end)
        else:
            value = mem.cut_like(data, start, self._header_end, like[1])
        if like is not None and name is like[0] and value is like[1]:
            return like
        return mem.leaf((name, value))

    def _decode_message(self) -> Any:
        messages = self._messages
        assert messages is not None
        message = messages[self._at]
        if message.offset < self.position:
            self._at += 1
            self._left -= 1
            return None
        key, value = message.key, message.value
        kind = Record if self._acquisition is None else AcquiredRecord
        record = kind(
            self._topic,
            self._partition,
            message.offset,
            message.timestamp,
            message.timestamp_type,
            key,
            value,
            message.crc,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
            (),
        )
        if self._acquisition is not None:
            self._acquire(record)
        is_kept = self._is_raw or self._deserialize(record)
        self._at += 1
        self._left -= 1
        self.position = message.offset + 1
        return record if is_kept else None

    def _deserialize(self, record: Any) -> bool:
        """Replace the key and value. Return whether the record is to be returned."""
        if self._on_error is None:
            self._convert_both(record)
            return True
        try:
            self._convert_both(record)
        except RecordDeserializationError as error:
            if self._is_turn_over is not None and self._is_turn_over():
                self.suspended = SuspendedRecord(record, error.part, OneTurn(), None, None)
                self.suspended.error = error
                raise self.suspended from None
            return self._on_error(error)
        return True

    def _convert_both(self, record: Any) -> None:
        # Set key and value only after both deserializers have returned: if one raises, its error
        # has the record with the bytes, which the application may send to another topic.
        key, value = record.key, record.value
        if self._key_deserializer is not None:
            key = self._convert(record, "key", self._key_deserializer, key)
            if key is not None and type(key) is not self._key_type:
                if type(key) is CoroutineType or isawaitable(key):
                    key = self._await(record, "key", key, None)
                else:
                    self._key_type = type(key)
                self._is_atomic_key = key is None or type(key) in _ATOMIC
        if self._value_deserializer is not None:
            value = self._convert(record, "value", self._value_deserializer, value)
            if value is not None and type(value) is not self._value_type:
                if type(value) is CoroutineType or isawaitable(value):
                    value = self._await(record, "value", value, key)
                else:
                    self._value_type = type(value)
                self._is_atomic_value = value is None or type(value) in _ATOMIC
        record.key = key
        record.value = value
        if self._is_atomic_key and self._is_atomic_value:
            _cpython.untrack(record)

    def _convert(self, record: Any, part: str, deserializer: Any, data: Any) -> Any:
        try:
            if self._takes_context and type(deserializer) is ContextDeserializer:
                return deserializer(data, record, part)
            return deserializer(data)
        except FAILURES as error:
            raise not_deserialized(record, error, part) from error

    def _await(self, record: Any, part: str, awaitable: Any, key: Any) -> Any:
        """Return the result of a deserializer's awaitable. Raises SuspendedRecord if it waits."""
        if self._is_awaiting:
            close = getattr(awaitable, "close", None)
            if close is not None:
                close()  # Python would warn that the coroutine was never awaited.
            raise IllegalStateError("getone() and getmany() cannot be called in a deserializer")
        suspended = None
        self._is_awaiting = True
        try:
            if type(awaitable) is CoroutineType:
                return _cpython.first_step(awaitable, Suspended)
            return first_step(awaitable)
        except Suspended as error:
            suspended = error
        except FAILURES as error:
            raise not_deserialized(record, error, part) from error
        finally:
            self._is_awaiting = False
        # The key and value of the decoded record are still bytes. As after an error, the cursor
        # does not move past this record.
        self.suspended = SuspendedRecord(record, part, suspended, key, self._value_deserializer)
        raise self.suspended
