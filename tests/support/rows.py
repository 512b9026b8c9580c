"""Columns of rows in Arrow's format."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from typing import Any

from aiokafka.record import rows as rows_module
from aiokafka.record.rows import BinarySource, HeaderSource, RowSource
from tests.record.samples import Item


def numbers(kind: str, values: Sequence[int]) -> bytes:
    return struct.pack(f"={len(values)}{kind}", *values)


def bits(flags: Sequence[bool]) -> bytearray:
    buffer = bytearray((len(flags) + 7) // 8)
    for index, flag in enumerate(flags):
        buffer[index // 8] |= flag << index % 8
    return buffer


def binary(values: Sequence[bytes | None], start: int = 0, form: Any = rows_module) -> BinarySource:
    """Return a column in Arrow's format: a slice of a longer column, from row `start` on."""
    everything = [b"other"] * start + list(values) + [None, b"behind"]
    ends = [0, *itertools.accumulate(len(value or b"") for value in everything)]
    validity = None if None not in values else bits([value is not None for value in everything])
    column: BinarySource = form.BinarySource(
        len(values), numbers("i", ends), b"".join(v or b"" for v in everything), validity, start
    )
    return column


def header_column(records: Sequence[Item], start: int, form: Any = rows_module) -> HeaderSource:
    pairs = [pair for record in records for pair in record.headers]
    ends = [0, *itertools.accumulate(len(record.headers) for record in records)]
    column: HeaderSource = form.HeaderSource(
        len(records),
        numbers("i", [0] * start + ends),
        binary([name.encode() for name, _ in pairs], start, form),
        binary([value for _, value in pairs], 2 * start, form),
        bits([True] * start + [bool(record.headers) for record in records]) if start else None,
        start,
    )
    return column


def source(records: Sequence[Item], start: int = 0, form: Any = rows_module) -> RowSource:
    rows: RowSource = form.RowSource(
        binary([record.value for record in records], start, form),
        binary([record.key for record in records], 3 * start, form),
        header_column(records, start, form),
        numbers("q", [record.timestamp for record in records]),
    )
    return rows


def in_order(count: int) -> bytearray:
    return bytearray(numbers("i", range(count)))
