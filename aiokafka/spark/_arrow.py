"""Convert fetched columns to Arrow batches, and Arrow batches to rows for a producer.

This module imports pyarrow, so it is imported only in tasks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aiokafka.ranges import Rows
from aiokafka.record.columns import BinaryColumn, HeaderColumn
from aiokafka.record.rows import BinarySource, HeaderSource, RowSource
from aiokafka.spark._produce import BATCH_HEADER, TopicRows, topic_in_errors

__all__ = ["ArrowRows", "rows_to_write"]

_MILLIS = pa.timestamp("ms", tz="UTC")
_MICROS = pa.timestamp("us", tz="UTC")
_TO_MICROS = pc.CastOptions.safe(_MICROS)
_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_HEADERS = pa.list_(pa.field("element", _HEADER))

TYPES: dict[str, Any] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _MICROS,
    "timestampType": pa.int32(),
    "headers": _HEADERS,
}


# -- Reading


class ArrowRows:
    """Creates Arrow batches with the columns `names`, in the order of `names`.

    Most arrays use the buffers of the fetched columns, so keys and values are not copied.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self.schema = pa.schema([(name, TYPES[name]) for name in self._names])
        self._topic = _Constant(pa.string())
        self._partition = _Constant(pa.int32())
        self._type = _Constant(pa.int32())

    def batch(self, topic: str, partition: int, rows: Rows) -> Any:
        """Return the rows as an Arrow batch."""
        arrays = [self._array(name, topic, partition, rows) for name in self._names]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _array(self, name: str, topic: str, partition: int, rows: Rows) -> Any:
        columns, size = rows
        if name == "key":
            return _binary(columns.keys, size, pa.binary())
        if name == "value":
            return _binary(columns.values, size, pa.binary())
        if name == "topic":
            return self._topic.array(topic, size)
        if name == "partition":
            return self._partition.array(partition, size)
        if name == "offset":
            return _numbers(columns.offsets, size, pa.int64())
        if name == "timestamp":
            return _micros(_numbers(columns.timestamps, size, _MILLIS))
        if name == "timestampType":
            return self._types(columns.timestamp_types, size)
        return _headers(columns.headers, size)

    def _types(self, types: bytearray, size: int) -> Any:
        first = types[:1]
        if types.count(first) == len(types):  # the usual case: all records have the same type
            return self._type.array(int.from_bytes(first, sys.byteorder, signed=True), size)
        return _numbers(types, size, pa.int8()).cast(pa.int32())


class _Constant:
    """Creates columns with the same value in all rows. Uses the last array again if it has the same
    value and enough rows.
    """

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._value: object = None
        self._array: Any = None

    def array(self, value: object, size: int) -> Any:
        """Return an array with `size` copies of `value`."""
        if value != self._value or len(self._array) < size:
            self._array = pa.repeat(pa.scalar(value, self._kind), size)
            self._value = value
        return self._array if len(self._array) == size else self._array.slice(0, size)


def _numbers(data: bytearray, size: int, kind: Any) -> Any:
    return pa.Array.from_buffers(kind, size, [None, pa.py_buffer(data)])


def _binary(column: BinaryColumn, size: int, kind: Any) -> Any:
    validity = None if column.validity is None else pa.py_buffer(column.validity)
    buffers = [validity, pa.py_buffer(column.offsets), pa.py_buffer(column.data)]
    return pa.Array.from_buffers(kind, size, buffers)


def _micros(millis: Any) -> Any:
    try:
        return pc.cast(millis, options=_TO_MICROS)
    except pa.ArrowInvalid:
        # Timestamps that do not fit into int64 as microseconds become null.
        limit = (2**63 - 1) // 1000
        known = pc.less_equal(pc.abs_checked(_at_least(millis, -limit)), limit)
        return pc.if_else(known, millis, pa.scalar(None, _MILLIS)).cast(_MICROS)


def _at_least(millis: Any, lowest: int) -> Any:
    """Replace numbers below `lowest` by `lowest - 1`: `abs_checked` fails for the lowest int64."""
    numbers = millis.cast(pa.int64())
    return pc.max_element_wise(numbers, pa.scalar(lowest - 1, pa.int64()))


def _headers(column: HeaderColumn, size: int) -> Any:
    """Convert headers to an array. A record without headers has null, as in Spark's own source."""
    count = len(column.names.offsets) // 4 - 1
    if not count:
        return pa.nulls(size, _HEADERS)
    names = _binary(column.names, count, pa.string())
    values = _binary(column.values, count, pa.binary())
    entries = pa.StructArray.from_arrays([names, values], fields=list(_HEADER))
    offsets = pa.py_buffer(column.offsets)
    lists = pa.Array.from_buffers(_HEADERS, size, [None, offsets], children=[entries])
    has_any = pc.not_equal(pc.list_value_length(lists), 0)
    return pa.Array.from_buffers(
        _HEADERS, size, [has_any.buffers()[1], offsets], children=[entries]
    )


# -- Writing

_Columns = dict[str, Any]


def rows_to_write(batch: Any, topic: str | None, labels: Iterator[str] | None) -> list[TopicRows]:
    """Convert an Arrow batch to the rows of each topic. The schema must have been checked.

    All rows go to `topic`; if it is None, to the topics in the column `topic`. Rows without a
    timestamp get the current time. With `labels`, each row gets the next label in an additional
    header. Keys and values are copied only if there are several topics.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    if labels is not None:
        columns["headers"] = _labelled(columns.get("headers"), labels, batch.num_rows)
    if topic is not None:
        return [_topic_rows(topic, columns)]
    return [
        _topic_rows(name, {key: column.slice(start, size) for key, column in part.items()})
        for name, part, start, size in _by_topic(columns)
    ]


def _topic_rows(topic: str, columns: _Columns) -> TopicRows:
    with topic_in_errors(topic):
        return TopicRows(topic, *_sources(columns))


def _by_topic(columns: _Columns) -> Iterator[tuple[str, _Columns, int, int]]:
    """Yield for each topic: (topic, columns, index of its first row in the columns, number of its
    rows). Raises ValueError for a row without a topic."""
    column = columns.get("topic")
    if column is None or column.null_count:
        raise ValueError(
            "topic: a row has none; set the option topic, or remove nulls from the column"
        )
    topics = column.dictionary_encode()
    names = topics.dictionary.to_pylist()
    if len(names) > 1:
        # Sort the rows by topic. Rows of the same topic keep their order.
        order = pc.array_sort_indices(topics.indices)
        columns = {name: column.take(order) for name, column in columns.items()}
    numbers, counts = topics.indices.value_counts().flatten()
    sizes = dict(zip(numbers.to_pylist(), counts.to_pylist(), strict=True))
    start = 0
    for number, name in enumerate(names):
        yield name, columns, start, sizes[number]
        start += sizes[number]


def _sources(columns: _Columns) -> tuple[RowSource, Any]:
    """Return the rows, and their requested partitions (None without a column `partition`)."""
    get = columns.get
    rows = RowSource(
        _binary_source(columns["value"]),
        None if get("key") is None else _binary_source(columns["key"]),
        None if get("headers") is None else _header_source(columns["headers"]),
        _millis(get("timestamp")),
    )
    return rows, None if get("partition") is None else _partitions(columns["partition"])


def _binary_source(array: Any) -> BinarySource:
    if not pa.types.is_binary(array.type):
        array = array.cast(pa.binary())
    validity, offsets, data = array.buffers()
    bits = _bits(array, validity)
    return BinarySource(len(array), offsets or b"", data or b"", bits, array.offset)


def _bits(array: Any, validity: Any) -> Any:
    return validity if array.null_count else None


def _header_source(array: Any) -> HeaderSource:
    if pa.types.is_large_list(array.type):
        array = array.cast(pa.list_(array.type.value_field))
    entries = array.values
    if entries.null_count:
        return _header_source(_header_array(_header_lists(array)))
    names, values = (_binary_source(entries.field(number)) for number in (0, 1))
    validity, offsets = array.buffers()[:2]
    return HeaderSource(
        len(array), offsets or b"", names, values, _bits(array, validity), array.offset
    )


def _header_lists(array: Any) -> list[list[tuple[str, bytes | None]]]:
    return [
        [(header["key"], header["value"]) for header in headers or () if header is not None]
        for headers in array.to_pylist()
    ]


def _header_array(lists: list[list[tuple[str, bytes | None]]]) -> Any:
    pairs = [[{"key": name, "value": value} for name, value in headers] for headers in lists]
    return pa.array(pairs, _HEADERS)


def _labelled(array: Any, labels: Iterator[str], size: int) -> Any:
    lists = [[] for _ in range(size)] if array is None else _header_lists(array)
    for headers, label in zip(lists, labels, strict=False):
        headers.append((BATCH_HEADER, label.encode()))
    return _header_array(lists)


def _millis(array: Any) -> Any:
    """Return the timestamps in milliseconds; nulls become the current time. Without a column,
    return the current time as an integer.
    """
    now = int(time.time() * 1000)
    if array is None:
        return now
    if pa.types.is_floating(array.type):
        array = pc.multiply(array, 1000.0).cast(pa.int64(), safe=False)
    else:
        array = array.cast(_MILLIS, safe=False).cast(pa.int64())
    return _numbers_of(array.fill_null(now), 8)


def _partitions(array: Any) -> Any:
    """Return the requested partitions as int32; nulls become -1. Raises ValueError for a negative
    partition."""
    lowest = pc.min(array).as_py()
    if lowest is not None and lowest < 0:
        raise ValueError(f"partition: a row has the invalid number {lowest}")
    return _numbers_of(array.fill_null(-1), 4)


def _numbers_of(array: Any, width: int) -> Any:
    data = memoryview(array.buffers()[1] or b"")
    return data[width * array.offset : width * (array.offset + len(array))]
