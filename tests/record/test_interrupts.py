"""Calls that an interrupt cuts short: the next one begins where they did, with what was known."""

from __future__ import annotations

from typing import Any

import pytest

from aiokafka.record.batch import RecordReader
from aiokafka.record.control import ABORT, COMMIT
from tests.record.samples import make_batch, make_marker, numbered


def aborted_then_committed() -> tuple[bytes, list[tuple[int, int]]]:
    """A record set of one producer: an aborted transaction (0-1, marker 2), two committed ones
    (3-4, marker 5; 6-7, marker 8), and a record of no producer (9)."""
    transaction: Any = {"producer": (11, 0, 0), "transactional": True}
    data = (
        make_batch(numbered(2), **transaction)
        + make_marker(ABORT, base_offset=2)
        + make_batch(numbered(2), **transaction, base_offset=3)
        + make_marker(COMMIT, base_offset=5)
        + make_batch(numbered(2), **transaction, base_offset=6)
        + make_marker(COMMIT, base_offset=8)
        + make_batch(numbered(1), base_offset=9)
    )
    return data, [(11, 0)]


def committed_between_aborted() -> tuple[bytes, list[tuple[int, int]]]:
    """A record set: records of no producer (0, 4 and 8), and between them aborted transactions of
    one producer (1-2, marker 3; 5-6, marker 7)."""
    data = make_batch(numbered(1))
    for first in (1, 5):
        data += (
            make_batch(numbered(2), producer=(11, 0, 0), transactional=True, base_offset=first)
            + make_marker(ABORT, base_offset=first + 2)
            + make_batch(numbered(1), base_offset=first + 3)
        )
    return data, [(11, 1), (11, 5)]


def read_with_interrupt(
    data: bytes, aborted: list[tuple[int, int]], at: int, size: int
) -> tuple[list[int], int]:
    """Take so many records a call, of which the one that reaches the offset `at` is cut short.
    Returns the offsets of the records, and the position at the end."""
    seen: list[int] = []
    reader: Any = None
    interrupts = [KeyboardInterrupt]

    def deserialize(value: bytes) -> bytes:
        if interrupts and reader.position >= at:
            raise interrupts.pop()
        return value

    reader = RecordReader(
        data,
        "topic",
        3,
        position=0,
        read_committed=True,
        aborted=aborted,
        value_deserializer=deserialize,
    )
    while not reader.exhausted:
        try:
            seen += [record.offset for record in reader.take(size)]
        except KeyboardInterrupt:
            pass
    assert not interrupts
    return seen, reader.position


@pytest.mark.parametrize("at", [3, 4, 6, 7, 9])
@pytest.mark.parametrize("size", [1, 2, 100])
def test_an_interrupt_does_not_hide_what_was_committed(at: int, size: int) -> None:
    """What was aborted before the place of the interrupt is still known after it."""
    data, aborted = aborted_then_committed()
    assert read_with_interrupt(data, aborted, at, size) == ([3, 4, 6, 7, 9], 10)


@pytest.mark.parametrize("at", [0, 4, 8])
@pytest.mark.parametrize("size", [1, 2, 100])
def test_an_interrupt_does_not_show_what_was_aborted(at: int, size: int) -> None:
    """The call has passed an aborted transaction, which the next one meets again."""
    data, aborted = committed_between_aborted()
    assert read_with_interrupt(data, aborted, at, size) == ([0, 4, 8], 9)
