"""How far a record set goes, by the headers of its batches."""

from __future__ import annotations

import itertools

import pytest

from aiokafka.errors import CorruptRecordError
from aiokafka.record.header import (
    MOST_SPANS,
    RecordBatch,
    Scan,
    count_records,
    flat_view,
    is_cut_short,
    parse_batch,
    scan_record_set,
)
from aiokafka.record.legacy import build_message_set
from aiokafka.record.reader import RecordReader
from tests.record.fuzz import Dice
from tests.record.samples import make_batch, make_empty, make_marker, make_record_sets, numbered


def measured(found: Scan) -> tuple[int, int, int]:
    return found.size, found.first, found.end


def of_epoch(batch: bytes, epoch: int) -> bytes:
    # The checksum does not cover the leader epoch.
    return batch[:12] + epoch.to_bytes(4, "big", signed=True) + batch[16:]


def valid_batches(data: bytes) -> tuple[list[RecordBatch], bool]:
    """Return the batches at the beginning that are valid, and if what follows is but cut short."""
    view, at = flat_view(data), 0
    found: list[RecordBatch] = []
    while True:
        try:
            batch = parse_batch(view, at)
        except CorruptRecordError:
            return found, False
        if batch is None:
            return found, True
        found.append(batch)
        at += batch.size_in_bytes


def assert_as_parsed(data: bytes) -> None:
    batches, is_only_cut = valid_batches(data)
    found = scan_record_set(data)
    assert found.size == sum(batch.size_in_bytes for batch in batches)
    assert found.first == (batches[0].base_offset if batches else -1)
    assert found.end == max((batch.last_offset + 1 for batch in batches), default=-1)
    if not batches:
        assert is_cut_short(data) is is_only_cut


@pytest.mark.parametrize("number", range(len(make_record_sets())))
def test_a_scan_sees_the_batches_that_can_be_parsed(number: int) -> None:
    data = make_record_sets()[number]
    assert_as_parsed(data)
    for size in range(min(len(data), 200)):
        assert_as_parsed(data[:size])


@pytest.mark.parametrize("seed", range(50))
def test_a_scan_ends_where_a_header_cannot_be_parsed(seed: int) -> None:
    dice, samples = Dice(seed), make_record_sets()
    for _ in range(20):
        data = bytearray(dice.choose(samples) + dice.choose(samples))
        for _ in range(1 + dice.below(3)):
            at = dice.below(min(len(data), 80))
            data[at] = dice.choose([0, 1, 2, 3, 127, 128, 255])
        assert_as_parsed(bytes(data))


def test_a_message_at_the_last_possible_offset_ends_the_scan() -> None:
    message = bytearray(build_message_set(1, [(0, None, b"v")]))
    message[:8] = (2**63 - 1).to_bytes(8, "big")
    found = scan_record_set(bytes(message))
    assert (measured(found), found.spans) == ((0, -1, -1), [])
    assert not is_cut_short(bytes(message))


def test_a_batch_that_begins_at_the_end_is_not_wanted() -> None:
    first = make_batch(numbered(10))
    data = first + make_batch(numbered(10), base_offset=10)
    assert measured(scan_record_set(data, 10)) == (len(first), 0, 10)
    assert measured(scan_record_set(data, 11)) == (len(data), 0, 20)
    assert measured(scan_record_set(make_batch(base_offset=60), 50)) == (0, -1, 50)
    # Compaction has left nothing from 10 to 11.
    data = first + make_batch(numbered(10), base_offset=12)
    assert measured(scan_record_set(data, 12)) == (len(first), 0, 12)


def test_batches_of_one_leader_epoch_are_one_span() -> None:
    batches = [make_batch(numbered(10), base_offset=10 * n) for n in range(4)]
    data = b"".join(map(of_epoch, batches, (3, 3, 5, -1)))
    assert scan_record_set(data).spans == [(0, 20, 3), (20, 30, 5), (30, 40, -1)]
    assert scan_record_set(b"").spans == []


def test_offsets_that_go_back_are_passed_over_as_a_reader_does() -> None:
    """Else the next fetch would bring once more what the reader has returned."""
    dice = Dice(1)
    for _ in range(200):
        places = [(dice.below(30), 1 + dice.below(10)) for _ in range(1 + dice.below(4))]
        batches = [make_batch(numbered(count), base_offset=first) for first, count in places]
        data = b"".join(of_epoch(batch, dice.below(3)) for batch in batches)
        found = scan_record_set(data)
        assert found.size == len(data)
        spans = found.spans
        assert [span[0] for span in spans] == sorted({span[0] for span in spans})
        assert all(one[1] <= next_one[0] for one, next_one in itertools.pairwise(spans))
        assert spans[-1][1] == found.end
        start = dice.below(30)
        if found.end <= start:
            continue  # an error of the broker
        reader = RecordReader(data, "t", 0, position=start)
        reader.take(1000)
        assert reader.position == found.end


def test_the_latest_leader_epochs_are_kept() -> None:
    count = MOST_SPANS + 10
    batches = [of_epoch(make_batch(numbered(1), base_offset=n), n) for n in range(count)]
    spans = scan_record_set(b"".join(batches)).spans
    assert MOST_SPANS <= len(spans) <= MOST_SPANS + 1
    assert spans[-1] == (count - 1, count, count - 1)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_can_be_scanned(kind: type) -> None:
    data = make_batch(numbered(10))
    assert measured(scan_record_set(kind(data))) == (len(data), 0, 10)
    assert is_cut_short(kind(data[:-1]))
    with pytest.raises(TypeError):
        scan_record_set("text")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_records_are_counted_by_headers(kind: type[bytes]) -> None:
    old = build_message_set(1, [(0, None, b"1"), (0, None, b"2")])
    batches = [
        old,
        make_batch(numbered(3)),
        make_marker(1, base_offset=5),
        make_empty(base_offset=6, last_offset_delta=2),
        make_batch(numbered(20), codec=1),
    ]
    data = b"".join(batches)
    assert count_records(kind(data)) == 2 + 3 + 20
    assert count_records(kind(data[:-1])) == 2 + 3
    assert count_records(kind(data + make_batch(numbered(4), record_count=-1))) == 25
    assert count_records(kind(data + bytes(100))) == 25
    assert count_records(b"") == 0


@pytest.mark.parametrize("number", range(len(make_record_sets())))
def test_what_is_cut_off_is_not_counted(number: int) -> None:
    data = make_record_sets()[number]
    counts = [count_records(data[:size]) for size in range(len(data) + 1)]
    assert counts == sorted(counts)
    batches, _ = valid_batches(data)
    assert counts[-1] == sum(batch.record_count for batch in batches if not batch.is_control)
