"""Records as Arrow has them: from fetched columns, and to what a producer takes.

Imports pyarrow, so nothing imports this module before there is a task.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aiokafka.ranges import Rows
from aiokafka.record.columns import BinaryColumn, HeaderColumn
from aiokafka.spark._produce import WriteColumns

__all__ = ["ArrowRows", "write_columns"]

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


# -- reading


class ArrowRows:
    """Makes record batches of some of Kafka's columns, in the order of `names`.

    The buffers of the columns become those of the arrays: no record is touched.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self.schema = pa.schema([(name, TYPES[name]) for name in self._names])
        self._topic = _Constant(pa.string())
        self._partition = _Constant(pa.int32())
        self._type = _Constant(pa.int32())

    def batch(self, topic: str, partition: int, rows: Rows) -> Any:
        """One RecordBatch."""
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
        if types.count(first) == len(types):  # The type is that of the topic, seldom changed.
            return self._type.array(int.from_bytes(first, sys.byteorder, signed=True), size)
        return _numbers(types, size, pa.int8()).cast(pa.int32())


class _Constant:
    """A column with one value in all rows. Remembers the last: the next batch has it, too."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._value: object = None
        self._array: Any = None

    def array(self, value: object, size: int) -> Any:
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
        # A time so far away that microseconds since 1970 do not reach it: unknown to Spark.
        limit = (2**63 - 1) // 1000
        known = pc.less_equal(pc.abs_checked(_at_least(millis, -limit)), limit)
        return pc.if_else(known, millis, pa.scalar(None, _MILLIS)).cast(_MICROS)


def _at_least(millis: Any, lowest: int) -> Any:
    """The numbers, but none so low that it has no positive counterpart."""
    numbers = millis.cast(pa.int64())
    return pc.max_element_wise(numbers, pa.scalar(lowest - 1, pa.int64()))


def _headers(column: HeaderColumn, size: int) -> Any:
    """Null where there are none, as Spark's own source has it."""
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


# -- writing


def write_columns(batch: Any) -> WriteColumns:
    """The columns of a RecordBatch whose schema was checked.

    Lists, for a column at a time they are faster to make than to walk through buffers.
    """
    by_name = dict(zip(batch.schema.names, batch.columns, strict=True))

    def column(name: str, convert: Callable[[Any], list[Any]]) -> list[Any] | None:
        return convert(by_name[name]) if name in by_name else None

    return WriteColumns(
        batch.num_rows,
        _bytes_list(by_name["value"]),
        column("key", _bytes_list),
        column("topic", lambda array: array.to_pylist()),
        column("partition", lambda array: array.to_pylist()),
        column("headers", _header_lists),
        column("timestamp", _millis_list),
    )


def _bytes_list(array: Any) -> list[bytes | None]:
    if not pa.types.is_binary(array.type):
        array = array.cast(pa.binary())
    return array.to_pylist()  # type: ignore[no-any-return]


def _header_lists(array: Any) -> list[list[tuple[str, bytes | None]]]:
    return [
        [(header["key"], header["value"]) for header in headers or () if header is not None]
        for headers in array.to_pylist()
    ]


def _millis_list(array: Any) -> list[int | None]:
    if pa.types.is_floating(array.type):
        array = pc.multiply(array, 1000.0).cast(pa.int64(), safe=False)
        return array.to_pylist()  # type: ignore[no-any-return]
    return array.cast(_MILLIS, safe=False).cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
