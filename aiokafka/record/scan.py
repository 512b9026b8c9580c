"""Scan a record set by the headers of its batches alone: how far it goes, by whose epochs."""

from __future__ import annotations

from aiokafka.record import _memory as mem
from aiokafka.record.header import HEADER_SIZE, flat_view, valid_size

__all__ = ["MOST_SPANS", "Scan", "Span", "count_records", "scan_record_set"]

Span = tuple[int, int, int]
"""(first offset, offset after the last, leader epoch) of batches that follow each other."""

MOST_SPANS = 64  # a partition changes its leader now and then

_MAX_OFFSET = 2**63 - 1

# What a message of any format has: offset, length, checksum and magic.
_PREFIX_SIZE = 17
_LOG_OVERHEAD = 12
_CONTROL = 0x20
_LEAST_LENGTH = HEADER_SIZE - _LOG_OVERHEAD


class Scan:
    """What the valid headers at the beginning of a record set say.

    Attributes: `size` (bytes of their batches), `first` (the first offset; -1 without a batch),
    `end` (the offset to ask for next; -1 if there is no complete batch) and `spans` (the leader
    epochs, at most `MOST_SPANS`).
    """

    size: int
    first: int
    end: int
    spans: list[Span]


def scan_record_set(buffer: bytes | bytearray | memoryview, until: int = _MAX_OFFSET) -> Scan:
    """Measure the part of a record set before offset `until`.

    The scan stops at an incomplete batch and at a header that is not valid: reading on from
    there tells what is wrong with it. CRCs are not checked.

    Offsets that go back, which no log has, are passed over, as by those who read the set. To ask
    for them again would return records twice.
    """
    view = flat_view(buffer)
    data = mem.source(view)
    spans: list[Span] = []
    found = Scan()
    found.first = -1
    first = -1
    of_span = -1
    end = -1
    at = 0
    while end < until:
        size = valid_size(view, at)
        if size == 0:
            break
        base_offset = mem.i64(data, at)
        delta = 0
        epoch = -1
        if data[at + 16] == 2:
            if base_offset >= until:
                end = until
                break
            delta = mem.i32(data, at + 23)
            epoch = mem.i32(data, at + 12)
        at += size
        if base_offset + delta < end:
            continue
        if first < 0 or epoch != of_span:
            if first >= 0:
                spans.append((first, end, of_span))
                if len(spans) > MOST_SPANS:
                    del spans[0]
            else:
                found.first = base_offset
            first = base_offset if base_offset > end else end
            of_span = epoch
        end = base_offset + delta + 1
    if first >= 0:
        spans.append((first, end, of_span))
    found.size = at
    found.end = end
    found.spans = spans
    return found


def count_records(record_set: bytes | bytearray | memoryview) -> int:
    """Return how many records the headers of a record set promise, markers of transactions aside.

    Of the formats before Kafka 0.11 a compressed message counts as one. What makes no sense ends
    the count: reading the records says what is wrong.
    """
    view = flat_view(record_set)
    data = mem.source(view)
    left = len(view)
    count = at = 0
    while left >= _PREFIX_SIZE:
        length = mem.i32(data, at + 8)
        if length <= 0 or length > left - _LOG_OVERHEAD:
            break
        if data[at + 16] < 2:
            count += 1
        elif length < _LEAST_LENGTH:
            break
        elif not data[at + 22] & _CONTROL:
            promised = mem.i32(data, at + 57)
            if promised > 0:
                count += promised
        at += length + _LOG_OVERHEAD
        left -= length + _LOG_OVERHEAD
    return count
