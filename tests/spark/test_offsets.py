"""Offsets of a query: JSON, limits, and how ranges become tasks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka.spark._offsets import (
    OffsetRange,
    Offsets,
    RequestedOffset,
    from_json,
    pro_rata,
    ranges_between,
    requested_offsets,
    split,
    start_in,
    to_json,
    total_between,
)
from aiokafka.spark._options import EARLIEST, Bound


def test_the_json_is_that_of_the_connector() -> None:
    assert json.dumps(to_json({"t": {1: 5, 0: 10}, "a": {0: 1}})) == (
        '{"a": {"0": 1}, "t": {"0": 10, "1": 5}}'
    )


def test_the_first_end_carries_its_start() -> None:
    start, end = {"t": {0: 3, 10: 4, 100: 5}}, {"t": {0: 7, 10: 8, 100: 9}, "u": {0: 1}}
    raw = json.loads(json.dumps(to_json(end, start=start)))
    assert from_json(raw) == end
    assert start_in(raw) == start
    assert start_in(to_json(end)) is None


def test_to_the_connector_a_first_end_is_as_any_other() -> None:
    """It reads numbers of partitions as integers, and of equal ones it takes the last."""
    raw = to_json({"t": {0: 7, 1: 8}}, start={"t": {1: 4, 0: 3}})
    as_it_reads = {int(number): offset for number, offset in raw["t"].items()}
    assert as_it_reads == {0: 7, 1: 8}


def test_the_first_bound_that_is_given_counts() -> None:
    partitions = {"t": [0, 1]}
    offsets, timestamps = {"t": {0: 3, 1: EARLIEST}}, {"t": {0: 8, 1: 9}}
    assert requested_offsets(Bound(5, timestamps, offsets), partitions, "starting") == {
        "t": {0: RequestedOffset(timestamp=5), 1: RequestedOffset(timestamp=5)}
    }
    assert requested_offsets(Bound(None, timestamps, offsets), partitions, "starting") == {
        "t": {0: RequestedOffset(timestamp=8), 1: RequestedOffset(timestamp=9)}
    }
    assert requested_offsets(Bound(None, None, offsets), partitions, "starting") == {
        "t": {0: RequestedOffset(offset=3), 1: RequestedOffset(offset=EARLIEST)}
    }
    assert requested_offsets(Bound(word="earliest"), partitions, "starting") == {
        "t": {0: RequestedOffset(offset=EARLIEST), 1: RequestedOffset(offset=EARLIEST)}
    }


def test_offsets_must_be_of_every_partition() -> None:
    with pytest.raises(ValueError, match=r"endingOffsets: .*missing: t-1; not read: u-0"):
        requested_offsets(Bound(offsets={"t": {0: 1}, "u": {0: 1}}), {"t": [0, 1]}, "ending")


def test_a_limit_is_shared_by_size() -> None:
    start: Offsets = {"t": {0: 0, 1: 0, 2: 5, 3: 7}}
    end: Offsets = {"t": {0: 900, 1: 99, 2: 6, 3: 7}}
    assert pro_rata(start, end, 100) == {"t": {0: 90, 1: 9, 2: 6, 3: 7}}
    assert pro_rata(start, end, 1000) == end


_START_AND_END = st.dictionaries(
    st.integers(0, 9),
    st.tuples(st.integers(0, 2**62), st.integers(0, 10_000)),
    min_size=1,
)


@given(_START_AND_END, st.integers(1, 20_000))
def test_every_partition_moves_and_none_too_far(
    sizes: dict[int, tuple[int, int]], limit: int
) -> None:
    start: Offsets = {"t": {p: first for p, (first, _) in sizes.items()}}
    end: Offsets = {"t": {p: first + size for p, (first, size) in sizes.items()}}
    limited = pro_rata(start, end, limit)
    assert limited["t"].keys() == end["t"].keys()
    assert total_between(start, limited) <= limit + len(sizes)
    for p, until in limited["t"].items():
        assert start["t"][p] <= until <= end["t"][p]
        assert (until > start["t"][p]) == (end["t"][p] > start["t"][p])


_RANGES = st.lists(st.integers(1, 5000), min_size=1, max_size=30).map(
    lambda sizes: [OffsetRange("t", p, 7, 7 + size) for p, size in enumerate(sizes)]
)


def covered(tasks: list[list[OffsetRange]]) -> dict[tuple[str, int], list[tuple[int, int]]]:
    found: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for r in sorted(r for task in tasks for r in task):
        pieces = found.setdefault((r.topic, r.partition), [])
        if pieces and pieces[-1][1] == r.start:
            pieces[-1] = (pieces[-1][0], r.until)
        else:
            pieces.append((r.start, r.until))
    return found


@given(
    _RANGES,
    st.none() | st.integers(1, 60),
    st.none() | st.integers(1, 60),
    st.none() | st.integers(1, 500),
)
def test_tasks_cover_every_offset_once(
    ranges: list[OffsetRange], least: int | None, most: int | None, records: int | None
) -> None:
    tasks = split(ranges, min_partitions=least, max_partitions=most, max_records=records)
    assert covered(tasks) == {(r.topic, r.partition): [(r.start, r.until)] for r in ranges}
    pieces = [r for task in tasks for r in task]
    assert all(r.size > 0 for r in pieces)
    assert sum(r.size for r in pieces) == sum(r.size for r in ranges)
    if most is not None:
        assert len(tasks) <= most and all(tasks)
    if records is not None:
        assert all(r.size <= records for r in pieces)
    again = split(ranges, min_partitions=least, max_partitions=most, max_records=records)
    assert again == tasks


def test_large_ranges_are_divided_and_small_ones_are_not() -> None:
    ranges = [OffsetRange("t", 0, 0, 1000), OffsetRange("t", 1, 0, 1)]
    tasks = split(ranges, min_partitions=5)
    assert [len(task) for task in tasks] == [1] * 5
    assert [r.size for task in tasks for r in task] == [250, 250, 250, 250, 1]


def test_small_ranges_are_packed_evenly() -> None:
    ranges = [OffsetRange("t", p, 0, 10 + p) for p in range(200)]
    tasks = split(ranges, max_partitions=4)
    sizes = [sum(r.size for r in task) for task in tasks]
    assert max(sizes) - min(sizes) <= 10
    assert [len(task) for task in tasks] == [50] * 4


def test_empty_ranges_are_no_tasks() -> None:
    ranges = ranges_between({"t": {0: 5, 1: 3}}, {"t": {0: 5, 1: 4, 2: 9}})
    assert ranges == [OffsetRange("t", 1, 3, 4)]
    assert split([]) == []
