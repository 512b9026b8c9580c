"""Fetched record sets become Arrow batches, and Arrow batches become what a producer takes."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokafka.ranges import Rows
from aiokafka.record.batch import RecordBatchBuilder
from aiokafka.record.columns import read_columns

pa: Any = pytest.importorskip("pyarrow", reason="needs pyarrow")

from aiokafka.spark._arrow import ArrowRows, write_columns  # noqa: E402

ALL = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
Record = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def rows_of(records: list[Record], size: int | None = None) -> Rows:
    builder = RecordBatchBuilder(size_limit=2**20)
    for timestamp, key, value, headers in records:
        builder.append(timestamp, key, value, headers)
    columns = read_columns(bytes(builder.build()), position=0)
    return Rows(columns, len(records) if size is None else size)


def when(millis: int) -> datetime:
    return datetime.fromtimestamp(millis / 1000, tz=timezone.utc)


def test_the_schema_is_what_spark_demands() -> None:
    schema = ArrowRows(ALL).schema
    element = pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
    assert schema == pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("timestampType", pa.int32()),
            ("headers", pa.list_(element)),
        ]
    )


_BYTES = st.none() | st.binary(max_size=20)
_RECORDS = st.lists(
    st.tuples(
        st.integers(0, 4_000_000_000_000),
        _BYTES,
        _BYTES,
        st.lists(st.tuples(st.text(max_size=5), _BYTES), max_size=3),
    ),
    min_size=1,
    max_size=40,
)


@settings(deadline=None)
@given(_RECORDS, st.data())
def test_every_record_arrives(records: list[Record], data: st.DataObject) -> None:
    size = data.draw(st.integers(0, len(records)))
    batch = ArrowRows(ALL).batch("topic", 7, rows_of(records, size))
    batch.validate(full=True)
    assert batch.to_pylist() == [
        {
            "key": key,
            "value": value,
            "topic": "topic",
            "partition": 7,
            "offset": offset,
            "timestamp": when(timestamp),
            "timestampType": 0,
            "headers": [{"key": name, "value": content} for name, content in headers] or None,
        }
        for offset, (timestamp, key, value, headers) in enumerate(records[:size])
    ]


def test_constants_change_with_partition_and_size() -> None:
    rows = ArrowRows(["topic", "partition"])
    records: list[Record] = [(0, None, b"x", [])] * 5
    for topic, partition, size in [("a", 1, 2), ("a", 1, 5), ("b", 1, 3), ("b", 0, 1)]:
        batch = rows.batch(topic, partition, rows_of(records, size))
        assert batch.to_pylist() == [{"topic": topic, "partition": partition}] * size


def test_columns_in_the_order_asked_for() -> None:
    batch = ArrowRows(["value", "offset"]).batch("t", 0, rows_of([(0, b"k", b"v", [])]))
    assert batch.schema.names == ["value", "offset"]
    assert batch.to_pylist() == [{"value": b"v", "offset": 0}]


@pytest.mark.parametrize("timestamp", [2**63 - 1, -(2**63), 2**62])
def test_times_beyond_sparks_are_null(timestamp: int) -> None:
    rows = rows_of([(0, None, b"a", []), (0, None, b"b", [])])
    rows.columns.timestamps[8:16] = timestamp.to_bytes(8, "little", signed=True)
    found = ArrowRows(["timestamp"]).batch("t", 0, rows).column(0).to_pylist()
    assert found == [when(0), None]


def test_a_record_without_a_timestamp() -> None:
    rows = rows_of([(0, None, b"a", [])])
    rows.columns.timestamps[:] = (-1).to_bytes(8, "little", signed=True)
    rows.columns.timestamp_types[:] = b"\xff"
    batch = ArrowRows(["timestamp", "timestampType"]).batch("t", 0, rows)
    assert batch.to_pylist() == [{"timestamp": when(-1), "timestampType": -1}]


def test_columns_to_write() -> None:
    batch = pa.record_batch(
        {
            "key": pa.array(["k", None], pa.string()),
            "value": pa.array([b"v", None], pa.binary()),
            "topic": pa.array(["t", "u"]),
            "partition": pa.array([1, None], pa.int32()),
            "headers": pa.array(
                [[{"key": "h", "value": b"1"}], None],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
            "timestamp": pa.array([1_500_999, None], pa.timestamp("us", tz="UTC")),
        }
    )
    columns = write_columns(batch)
    assert columns.size == 2
    assert columns.keys == [b"k", None]
    assert columns.values == [b"v", None]
    assert columns.topics == ["t", "u"]
    assert columns.partitions == [1, None]
    assert columns.headers == [[("h", b"1")], []]
    assert columns.timestamps == [1500, None]


def test_columns_that_are_not_there() -> None:
    columns = write_columns(pa.record_batch({"value": pa.array(["v"])}))
    assert columns == (1, [b"v"], None, None, None, None, None)


def test_times_in_seconds() -> None:
    batch = pa.record_batch({"value": pa.array(["v"]), "timestamp": pa.array([1.5])})
    assert write_columns(batch).timestamps == [1500]
