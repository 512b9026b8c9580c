"""Rows that are columns become the records that the same rows become one by one."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka.errors import IllegalStateError
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.record.batch import RecordBatchBuilder
from aiokafka.record.rows import ANY, BinarySource, HeaderSource, RowSource, route_rows
from tests.record.samples import CODECS, ITEMS, Item, items, read
from tests.support.rows import binary, in_order, numbers, source


def built(records: Sequence[Item], codec: int = 0) -> bytes:
    builder = RecordBatchBuilder(compression=codec, size_limit=1 << 24)
    for record in records:
        builder.append(*record)
    return bytes(builder.build())


def built_of_rows(records: Sequence[Item], start: int = 0, codec: int = 0) -> bytes:
    builder = RecordBatchBuilder(compression=codec, size_limit=1 << 24)
    rows = source(records, start)
    assert builder.append_rows(rows, in_order(rows.size), 0, rows.size) == rows.size
    return bytes(builder.build())


# -- records


@given(records=items, start=st.integers(0, 20))
def test_the_batch_is_the_same_to_the_byte(records: list[Item], start: int) -> None:
    assert built_of_rows(records, start) == built(records)


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_rows_are_read_back(codec: int) -> None:
    assert read(built_of_rows(ITEMS, 3, codec)) == ITEMS


@pytest.mark.parametrize("size", [0, 1, 63, 64, 8191, 8192, 1 << 20, (1 << 20) + 1])
@pytest.mark.parametrize("column", ["key", "value", "headers"])
def test_sizes_where_a_length_takes_one_more_byte(size: int, column: str) -> None:
    content = b"x" * size
    headers = (("name", content), ("n" * min(size, 9000), None)) if column == "headers" else ()
    key, value = (content if column == name else b"a" for name in ("key", "value"))
    records = [Item(5, key, value, headers), Item(6, None, None), Item(7, b"", b"")]
    assert built_of_rows(records, 1) == built(records)


@pytest.mark.parametrize("step", [1, 63, 64, -64, -65, 8191, 8192, 2**40, -(2**40)])
def test_times_and_numbers_where_a_delta_takes_one_more_byte(step: int) -> None:
    # Numbers take one more byte from 64 on, and from 8192 on.
    count = 9000 if step == 1 else 100
    records = [Item(2**41, b"k", b"v")] + [Item(2**41 + step, b"k", b"v")] * count
    assert built_of_rows(records) == built(records)


@given(records=items, limit=st.integers(0, 3000), start=st.integers(0, 5))
def test_a_full_batch_takes_no_more(records: list[Item], limit: int, start: int) -> None:
    one_by_one = RecordBatchBuilder(size_limit=limit)
    fitting = 0
    while fitting < len(records) and one_by_one.append(*records[fitting]) >= 0:
        fitting += 1
    builder = RecordBatchBuilder(size_limit=limit)
    count = len(records)
    assert builder.append_rows(source(records, start), in_order(count), 0, count) == fitting >= 1
    assert (builder.size, builder.record_count) == (one_by_one.size, fitting)
    assert bytes(builder.build()) == bytes(one_by_one.build())


def test_rows_in_another_order_and_after_others() -> None:
    builder = RecordBatchBuilder(size_limit=1 << 20)
    builder.append(*ITEMS[4])
    order = bytearray(numbers("i", [0, 3, 1, 2]))
    assert builder.append_rows(source(ITEMS), order, 1, 3) == 3
    assert read(builder.build()) == [ITEMS[4], ITEMS[3], ITEMS[1]]


def test_one_time_for_all_and_neither_keys_nor_headers() -> None:
    rows = RowSource(binary([b"a", None]), timestamps=1234)
    builder = RecordBatchBuilder(size_limit=1 << 20)
    builder.append_rows(rows, in_order(2), 0, 2)
    assert read(builder.build()) == [Item(1234, None, b"a"), Item(1234, None, None)]


def test_nothing_is_added_to_a_batch_that_is_built() -> None:
    builder = RecordBatchBuilder(size_limit=1 << 20)
    rows = source(ITEMS)
    builder.append_rows(rows, in_order(5), 0, 5)
    builder.build()
    with pytest.raises(IllegalStateError):
        builder.append_rows(rows, in_order(5), 0, 5)


@pytest.mark.parametrize("wrong", [None, ITEMS, binary([b"a"])], ids=type)
def test_what_is_not_rows_is_refused(wrong: Any) -> None:
    builder = RecordBatchBuilder(size_limit=1 << 20)
    with pytest.raises(TypeError):
        builder.append_rows(wrong, in_order(1), 0, 1)


@pytest.mark.parametrize("timestamp", [-2, -(2**63), 2**63 - 1])
def test_times_that_cannot_be(timestamp: int) -> None:
    builder = RecordBatchBuilder(size_limit=1 << 20)
    rows = RowSource(binary([b"a", b"b"]), timestamps=numbers("q", [5, timestamp]))
    with pytest.raises(ValueError, match="timestamp must be"):
        builder.append_rows(rows, in_order(2), 0, 2)
    assert read(builder.build()) == [Item(5, None, b"a")]


def test_a_header_without_a_name() -> None:
    headers = HeaderSource(1, numbers("i", [0, 1]), binary([None]), binary([b"v"]))
    builder = RecordBatchBuilder(size_limit=1 << 20)
    with pytest.raises(ValueError, match="row 0 has one whose name is null"):
        builder.append_rows(RowSource(binary([b"a"]), None, headers, 5), in_order(1), 0, 1)
    assert builder.record_count == 0


@pytest.mark.parametrize(
    ("order", "start", "stop"),
    [([5], 0, 1), ([-1], 0, 1), ([0], 0, 2), ([0], -1, 1), ([0, 1], 1, 0)],
)
def test_rows_that_are_not_there(order: list[int], start: int, stop: int) -> None:
    builder = RecordBatchBuilder(size_limit=1 << 20)
    with pytest.raises(ValueError, match="not possible"):
        builder.append_rows(source(ITEMS), bytearray(numbers("i", order)), start, stop)


# -- columns


GOOD: dict[str, Any] = {
    "size": 3,
    "offsets": numbers("i", [0, 0, 2, 4, 5]),
    "data": b"abcde",
    "validity": b"\x0f",
    "start": 1,
}


def test_columns_of_nothing() -> None:
    rows = RowSource(BinarySource(0, b"", b""), BinarySource(0, b"", b"", b""), timestamps=b"")
    assert route_rows(rows, 3)[1] == []
    assert rows.checksum() == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"offsets": numbers("i", [0, 0, 2, 4])},
        {"offsets": numbers("i", [0, -1, 2, 4, 5])},
        {"offsets": numbers("i", [0, 0, 2, 1, 5])},
        {"offsets": numbers("i", [0, 0, 2, 4, 6])},
        {"offsets": b""},
        {"data": b"abcd"},
        {"validity": b""},
        {"start": 2},
        {"start": -1},
        {"start": 2**31},
        {"size": -1},
        {"size": 2**31},
    ],
    ids=str,
)
def test_what_is_not_in_the_buffers_is_refused(wrong: dict[str, Any]) -> None:
    assert BinarySource(**GOOD).size == 3
    with pytest.raises(ValueError, match=r"needed|offsets|possible"):
        BinarySource(**{**GOOD, **wrong})


@pytest.mark.parametrize(
    "wrong",
    [
        {"offsets": numbers("i", [0, 3])},
        {"offsets": numbers("i", [0, 1, 3])},
        {"offsets": numbers("i", [0])},
        {"names": binary([b"a", b"b", b"c"]), "offsets": numbers("i", [0, 3])},
        {"validity": b""},
    ],
    ids=range(5),
)
def test_headers_that_are_not_there_are_refused(wrong: dict[str, Any]) -> None:
    columns = {"names": binary([b"a", b"b"]), "values": binary([None, b"b"])}
    good: dict[str, Any] = {"size": 1, "offsets": numbers("i", [0, 2]), **columns}
    assert HeaderSource(**good).size == 1
    more = {"size": 2} if len(wrong.get("offsets", b"")) == 12 else {}
    with pytest.raises(ValueError, match=r"needed|offsets"):
        HeaderSource(**{**good, **wrong, **more})


def test_columns_of_different_lengths_are_refused() -> None:
    two, three = binary([b"a", b"b"]), binary([b"a"] * 3)
    no_headers = HeaderSource(3, numbers("i", [0] * 4), binary([]), binary([]))
    for wrong in [(two, three), (two, None, no_headers), (two, None, None, bytes(8))]:
        with pytest.raises(ValueError, match=r"2 (rows|numbers) are needed"):
            RowSource(*wrong)  # type: ignore[arg-type]


# -- partitions


def routed(rows: RowSource, partitions: int, chosen: Any = None) -> dict[int, list[int]]:
    order, parts = route_rows(rows, partitions, chosen)
    places = struct.unpack(f"={rows.size}i", order)
    assert sum(stop - start for _, start, stop in parts) == rows.size
    return {partition: list(places[start:stop]) for partition, start, stop in parts}


@given(
    keys=st.lists(st.none() | st.binary(max_size=40), max_size=60),
    partitions=st.integers(1, 12),
    start=st.integers(0, 9),
)
def test_keys_go_where_the_partitioner_sends_them(
    keys: list[bytes | None], partitions: int, start: int
) -> None:
    choose, all_partitions = DefaultPartitioner(), list(range(partitions))
    wanted: dict[int, list[int]] = {}
    for row, key in enumerate(keys):
        number = ANY if key is None else choose(key, all_partitions, [])
        wanted.setdefault(number, []).append(row)
    rows = RowSource(binary([b"v"] * len(keys)), binary(keys, start))
    assert routed(rows, partitions) == wanted


def test_java_chooses_the_same() -> None:
    # Of org.apache.kafka.common.utils.Utils.murmur2, modulo 1000.
    keys = {b"21": 0x7FFFFFFF & -973932308, b"foobar": 0x7FFFFFFF & -790332482}
    rows = RowSource(binary([b""] * 2), binary(list(keys)))
    wanted = {hash_ % 1000: [row] for row, hash_ in enumerate(keys.values())}
    assert routed(rows, 1000) == wanted


def test_rows_may_ask_for_a_partition() -> None:
    rows = RowSource(binary([b"v"] * 5), binary([b"k", b"k", None, None, b"k"]))
    (keyed,) = routed(RowSource(binary([b"v"]), binary([b"k"])), 3)
    other = (keyed + 1) % 3
    chosen = numbers("i", [other, -1, -1, 7, keyed])
    assert routed(rows, 3, chosen) == {other: [0], keyed: [1, 4], 7: [3], ANY: [2]}


@pytest.mark.parametrize("partition", [-2, 2**31 - 1, -(2**31)])
def test_partitions_that_cannot_be(partition: int) -> None:
    rows = RowSource(binary([b"v"]))
    with pytest.raises(ValueError, match=f"invalid number {partition}"):
        route_rows(rows, 3, numbers("i", [partition]))


def test_wrong_numbers_of_partitions() -> None:
    rows = RowSource(binary([b"v"]))
    with pytest.raises(ValueError, match="1 numbers"):
        route_rows(rows, 3, numbers("i", [1, 2]))
    with pytest.raises(ValueError, match="there must be some"):
        route_rows(rows, 0)


# -- checksums


@given(records=items, start=st.integers(0, 9), data=st.data())
def test_the_order_does_not_change_the_checksum(
    records: list[Item], start: int, data: st.DataObject
) -> None:
    mixed = data.draw(st.permutations(records))
    assert source(records).checksum() == source(mixed, start).checksum()


def test_other_rows_have_other_checksums() -> None:
    rows: list[tuple[bytes | None, bytes | None]] = [
        (None, b"value"),
        (b"", b"value"),
        (b"value", None),
        (b"value", b""),
        (b"", b""),
        (None, b""),
        (b"", None),
        (b"key", b"value"),
        (b"value", b"key"),
        (b"keyvalue", b""),
        (b"key", b"valuf"),
        (b"kez", b"value"),
        (b"key", b"value-of-more-than-eight-bytes"),
        (b"key", b"value-of-more-than-eight-bytet"),
    ]
    found = {source([Item(0, *row)]).checksum() for row in rows}
    assert len(found) == len(rows)


KEY_AND_VALUE = 0x5F535FCE2D78DA3D
NULLS = 0xC842218529D48E33


def test_checksums_stay_as_they_are_stored() -> None:
    assert source([Item(0, b"key", b"value")]).checksum() == KEY_AND_VALUE
    assert source([Item(9, None, b"12345678"), Item(8, b"k", None)]).checksum() == NULLS
