"""Fetched record sets become Arrow batches, and Arrow batches become what a producer takes."""

from __future__ import annotations

import struct
import time
from datetime import datetime, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka.ranges import Rows
from aiokafka.record.batch import RecordBatchBuilder, RecordReader
from aiokafka.record.columns import read_columns

pa: Any = pytest.importorskip("pyarrow", reason="needs pyarrow")

from aiokafka.spark._arrow import ArrowRows, rows_to_write  # noqa: E402

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


_PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])


def written(batch: Any, topic: str | None = "t", labels: Any = None) -> list[Any]:
    """What becomes of a batch: (topic, partition asked for, time, key, value, headers)."""
    found = []
    for name, rows, partitions in rows_to_write(batch, topic, labels):
        builder = RecordBatchBuilder(size_limit=2**20)
        order = bytearray(struct.pack(f"={rows.size}i", *range(rows.size)))
        assert builder.append_rows(rows, order, 0, rows.size) == rows.size
        asked = [None] * rows.size
        if partitions is not None:
            asked = list(struct.unpack(f"={rows.size}i", partitions))
        for partition, r in zip(asked, records_of(builder), strict=True):
            found.append((name, partition, r.timestamp, r.key, r.value, r.headers))
    return found


def records_of(builder: RecordBatchBuilder) -> list[Any]:
    if not builder.record_count:
        return []
    return RecordReader(builder.build(), "t", 0, position=0).take(1000)


BATCH = pa.record_batch(
    {
        "key": pa.array(["k", None, "", "l"], pa.string()),
        "value": pa.array([b"v", None, b"", b"w"], pa.binary()),
        "topic": pa.array(["t", "u", "t", "t"]),
        "partition": pa.array([1, None, 2, None], pa.int32()),
        "headers": pa.array(
            [[{"key": "h", "value": b"1"}, {"key": "", "value": None}], None, [], None],
            pa.list_(_PAIR),
        ),
        "timestamp": pa.array([1_500_999, 2_000, 3_000, 4_000], pa.timestamp("us", tz="UTC")),
    }
)
WANTED = [
    ("t", 1, 1500, b"k", b"v", (("h", b"1"), ("", None))),
    ("u", -1, 2, None, None, ()),
    ("t", 2, 3, b"", b"", ()),
    ("t", -1, 4, b"l", b"w", ()),
]


def test_all_columns_are_written() -> None:
    assert written(BATCH, topic=None) == [WANTED[0], WANTED[2], WANTED[3], WANTED[1]]
    assert written(BATCH, topic="x") == [("x", *row[1:]) for row in WANTED]


def test_slices_are_written() -> None:
    for start in range(4):
        for size in range(5 - start):
            wanted = [("x", *row[1:]) for row in WANTED[start : start + size]]
            assert written(BATCH.slice(start, size), topic="x") == wanted


def test_rows_with_labels() -> None:
    labels = (f"place/{number}" for number in range(9))
    names = [row[5] for row in written(BATCH, None, labels)]
    assert [headers[-1] for headers in names] == [
        ("spark-batch", b"place/%d" % n) for n in (0, 2, 3, 1)
    ]
    assert [headers[:-1] for headers in names] == [WANTED[n][5] for n in (0, 2, 3, 1)]


def test_values_alone() -> None:
    before = int(time.time() * 1000)
    ((topic, partition, timestamp, *rest),) = written(pa.record_batch({"value": ["v"]}))
    assert (topic, partition, rest) == ("t", None, [None, b"v", ()])
    assert before <= timestamp <= int(time.time() * 1000)


def test_rows_without_a_time_get_that_of_now() -> None:
    times = pa.array([None, 5_000], pa.timestamp("us"))
    before = int(time.time() * 1000)
    batch = pa.record_batch({"value": ["v", "w"], "timestamp": times})
    now, then = (row[2] for row in written(batch))
    assert then == 5
    assert before <= now <= int(time.time() * 1000)


def test_times_in_seconds() -> None:
    batch = pa.record_batch({"value": pa.array(["v"]), "timestamp": pa.array([1.5])})
    assert [row[2] for row in written(batch)] == [1500]


def test_large_types() -> None:
    large = pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())]))
    batch = pa.record_batch(
        {
            "key": BATCH["key"].cast(pa.large_string()),
            "value": BATCH["value"].cast(pa.large_binary()),
            "headers": BATCH["headers"].cast(large),
            "timestamp": BATCH["timestamp"],
        }
    )
    wanted = [("x", None, *row[2:]) for row in WANTED]
    assert written(batch, "x") == wanted
    assert written(batch.slice(1, 2), "x") == wanted[1:3]


def test_a_header_that_is_null_is_left_out() -> None:
    headers = pa.array([[None, {"key": "h", "value": b"1"}], [None]], pa.list_(_PAIR))
    batch = pa.record_batch({"value": ["a", "b"], "headers": headers})
    assert [row[5] for row in written(batch)] == [(("h", b"1"),), ()]
    assert [row[5] for row in written(batch.slice(1))] == [()]


def test_a_row_without_a_topic() -> None:
    for topics in (pa.array(["t", None]), pa.nulls(2, pa.string())):
        with pytest.raises(ValueError, match="topic: a row has none"):
            written(pa.record_batch({"value": ["a", "b"], "topic": topics}), None)


def test_a_partition_that_cannot_be() -> None:
    partitions = pa.array([None, -1], pa.int32())
    with pytest.raises(ValueError, match="partition: a row has the invalid number -1"):
        written(pa.record_batch({"value": ["a", "b"], "partition": partitions}))


def test_no_rows_are_written() -> None:
    for topic in ("t", None):
        assert written(BATCH.slice(0, 0), topic) == []


@given(_RECORDS, st.data())
def test_every_row_arrives(records: list[Record], data: st.DataObject) -> None:
    stamps, keys, values, headers = zip(*records, strict=True)
    pairs = [[{"key": name, "value": value} for name, value in row] for row in headers]
    batch = pa.record_batch(
        {
            "timestamp": pa.array([1000 * stamp for stamp in stamps], pa.timestamp("us", tz="UTC")),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(pairs, pa.list_(_PAIR)),
        }
    )
    start = data.draw(st.integers(0, len(records)))
    size = data.draw(st.integers(0, len(records) - start))
    assert written(batch.slice(start, size)) == [
        ("t", None, stamp, key, value, tuple(pairs))
        for stamp, key, value, pairs in records[start : start + size]
    ]
