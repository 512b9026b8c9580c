"""What a consumer gets of a fetched record set: order, positions, transactions, damage."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokafka.errors import CorruptRecordError, RecordDeserializationError, UnsupportedCodecError
from aiokafka.record.batch import RecordReader, iter_batches
from aiokafka.record.control import ABORT, COMMIT, ControlRecord
from aiokafka.record.legacy import build_message_set
from tests.record.samples import (
    CODECS,
    DELETE_HORIZON,
    HEADER_SIZE,
    ITEMS,
    LOG_APPEND_TIME,
    TWO_PRODUCERS,
    Item,
    beyond_64_bits,
    make_batch,
    make_empty,
    make_marker,
    numbered,
    read_records,
    transaction,
    with_body,
)


def open_reader(data: Any, **options: Any) -> RecordReader:
    return RecordReader(data, "topic", 3, **{"position": 0, **options})


def offsets(records: list[Any]) -> list[int]:
    return [record.offset for record in records]


# -- order and positions


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_any_buffer_can_be_read(buffer: Any) -> None:
    assert len(open_reader(buffer(make_batch())).take(100)) == len(ITEMS)


def test_take_gives_no_more_than_asked_for() -> None:
    reader = open_reader(make_batch(numbered(10)) + make_batch(numbered(10), base_offset=10))
    seen = []
    for count in (1, 3, 9, 0, 100):
        records = reader.take(count)
        assert len(records) <= count
        seen += offsets(records)
        assert reader.position == len(seen)
    assert seen == list(range(20))
    assert reader.exhausted


def test_next_gives_one_at_a_time() -> None:
    reader = open_reader(make_batch(numbered(2)) + make_batch(numbered(1), base_offset=2))
    for offset in range(3):
        assert not reader.exhausted
        record = reader.next()
        assert record.offset == offset
        assert reader.position == offset + 1
    assert reader.exhausted
    assert reader.next() is None


def test_starts_at_the_position_within_a_batch() -> None:
    data = make_batch(numbered(10)) + make_batch(numbered(10), base_offset=10)
    for position in range(21):
        reader = open_reader(data, position=position)
        assert offsets(reader.take(100)) == list(range(position, 20))
        assert reader.position == 20


def test_passes_the_gaps_that_compaction_leaves() -> None:
    data = (
        make_batch(numbered(2), base_offset=5, last_offset_delta=9)
        + make_empty(base_offset=15, last_offset_delta=4)
        + make_batch(numbered(1), base_offset=30)
    )
    reader = open_reader(data)
    assert offsets(reader.take(2)) == [5, 6]
    assert reader.position == 20
    assert offsets(reader.take(2)) == [30]
    assert reader.position == 31


def test_an_empty_batch_alone_moves_the_position() -> None:
    reader = open_reader(make_empty(base_offset=15, last_offset_delta=4), position=17)
    assert reader.take(10) == []
    assert reader.position == 20
    assert reader.exhausted


def test_nothing_to_read() -> None:
    reader = open_reader(b"", position=9)
    assert reader.exhausted
    assert reader.take(10) == []
    assert (reader.position, reader.truncated) == (9, False)


def test_an_incomplete_batch_at_the_end_is_left_alone() -> None:
    whole, more = make_batch(numbered(3)), make_batch(numbered(3), base_offset=3)
    for end in (1, 16, 17, HEADER_SIZE, len(more) - 1):
        reader = open_reader(whole + more[:end])
        assert offsets(reader.take(100)) == [0, 1, 2]
        assert reader.exhausted
        assert reader.truncated
        assert len(list(iter_batches(whole + more[:end]))) == 1


# -- timestamps


def test_append_time_is_that_of_the_batch() -> None:
    records = open_reader(make_batch(set_attributes=LOG_APPEND_TIME)).take(100)
    newest = max(item.timestamp for item in ITEMS)
    assert {(record.timestamp, record.timestamp_type) for record in records} == {(newest, 1)}


def test_a_delete_horizon_does_no_harm() -> None:
    records = open_reader(make_batch(set_attributes=DELETE_HORIZON)).take(100)
    assert [record.timestamp for record in records] == [item.timestamp for item in ITEMS]


@pytest.mark.parametrize("delta", [1, 2**62])
def test_a_timestamp_beyond_64_bits_is_corrupt(delta: int) -> None:
    reader = open_reader(beyond_64_bits(delta))
    assert len(reader.take(10)) == 1
    with pytest.raises(CorruptRecordError, match="timestamp"):
        reader.take(10)


# -- transactions


def test_aborted_records_are_left_out_when_reading_committed() -> None:
    reader = open_reader(TWO_PRODUCERS, read_committed=True, aborted=[(1, 0)])
    assert offsets(reader.take(100)) == [2, 3, 8, 9]
    assert reader.position == 11


def test_all_but_markers_are_read_when_reading_uncommitted() -> None:
    reader = open_reader(TWO_PRODUCERS, aborted=[(1, 0)])
    assert offsets(reader.take(100)) == [0, 1, 2, 3, 4, 5, 8, 9]
    assert reader.position == 11


def test_the_order_of_the_aborted_list_does_not_matter() -> None:
    data = TWO_PRODUCERS + transaction(1, 11) + make_marker(ABORT, base_offset=13, producer_id=1)
    reader = open_reader(data, read_committed=True, aborted=[(1, 11), (1, 0)])
    assert offsets(reader.take(100)) == [2, 3, 8, 9]
    assert reader.position == 14


def test_the_position_passes_aborted_data_without_being_asked() -> None:
    reader = open_reader(
        make_batch(numbered(1))
        + transaction(1, 1)
        + make_marker(ABORT, base_offset=3, producer_id=1),
        read_committed=True,
        aborted=[(1, 1)],
    )
    assert reader.next().offset == 0
    assert reader.position == 4
    assert reader.exhausted


def test_an_aborted_transaction_may_be_of_one_record() -> None:
    one = make_batch(numbered(1), producer=(1, 0, 0), transactional=True)
    data = one + make_marker(ABORT, base_offset=1, producer_id=1)
    reader = open_reader(data, read_committed=True, aborted=[(1, 0)])
    assert reader.take(9) == []
    assert reader.position == 2


def test_only_the_marker_of_an_abort_ends_one() -> None:
    data = (
        transaction(1, 0)
        + make_marker(COMMIT, base_offset=2, producer_id=1)
        + transaction(1, 3)
        + make_marker(ABORT, base_offset=5, producer_id=1)
        + transaction(1, 6)
        + make_marker(COMMIT, base_offset=8, producer_id=1)
    )
    reader = open_reader(data, read_committed=True, aborted=[(1, 0)])
    assert offsets(reader.take(9)) == [6, 7]


def test_a_damaged_marker_ends_no_transaction() -> None:
    marker = bytearray(make_marker(ABORT, base_offset=2, producer_id=1))
    marker[-1] ^= 1
    data = transaction(1, 0) + bytes(marker) + transaction(1, 3)
    reader = open_reader(data, read_committed=True, aborted=[(1, 0)])
    with pytest.raises(CorruptRecordError, match="checksum"):
        reader.take(9)


def test_records_outside_transactions_of_an_aborted_producer_are_kept() -> None:
    data = transaction(1, 0) + make_batch(numbered(1), producer=(1, 0, 0), base_offset=2)
    reader = open_reader(data, read_committed=True, aborted=[(1, 0)])
    assert offsets(reader.take(9)) == [2]


def test_markers_can_be_asked_for() -> None:
    (batch,) = iter_batches(make_marker(COMMIT, base_offset=6))
    assert batch.is_control
    (record,) = read_records(batch)
    parsed = ControlRecord.parse(record.key, record.value)
    assert (parsed.version, parsed.kind, parsed.coordinator_epoch) == (0, COMMIT, 3)
    for broken in (None, b"", b"\0\0\0"):
        with pytest.raises(CorruptRecordError):
            ControlRecord.parse(broken)


# -- damage


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_good_batches_before_a_corrupt_one_are_handed_out(codec: int) -> None:
    bad = bytearray(make_batch(numbered(3), codec=codec, base_offset=3))
    bad[-1] ^= 0xFF
    reader = open_reader(make_batch(numbered(3)) + bad + make_batch(numbered(2), base_offset=6))
    assert offsets(reader.take(100)) == [0, 1, 2]
    for _ in range(2):
        assert not reader.exhausted
        with pytest.raises(CorruptRecordError, match="checksum"):
            reader.take(100)
        with pytest.raises(CorruptRecordError, match="checksum"):
            reader.next()
        assert reader.position == 3
    reader.skip()
    assert reader.position == 6
    assert offsets(reader.take(100)) == [6, 7]


def test_the_checksum_can_be_left_unchecked() -> None:
    bad = bytearray(make_batch(numbered(3)))
    bad[17] ^= 0xFF
    assert len(open_reader(bad, check_crcs=False).take(9)) == 3


def test_a_record_that_lies_is_reached_after_those_before_it() -> None:
    batch = make_batch(numbered(3))
    body = bytearray(batch[HEADER_SIZE:])
    second = (body[0] >> 1) + 1
    body[second + 4] = 0x7E  # its key would reach beyond it
    reader = open_reader(with_body(batch, bytes(body)))
    assert offsets(reader.take(9)) == [0]
    with pytest.raises(CorruptRecordError, match="key"):
        reader.take(9)
    reader.skip()
    assert reader.position == 3
    assert reader.exhausted


@pytest.mark.parametrize("count", [0x7FFFFFFF, 4, 2, -1])
def test_a_number_of_records_that_lies_is_corrupt(count: int) -> None:
    reader = open_reader(make_batch(numbered(3), record_count=count))
    with pytest.raises(CorruptRecordError):
        for _ in range(3):
            reader.take(1)
        reader.take(1)


@pytest.mark.parametrize(
    ("at", "kind", "value"),
    [
        (8, ">i", 48),
        (8, ">i", -5),
        (23, ">i", -1),
        (0, ">q", -1),
        (0, ">q", 2**63 - 2),
        (16, ">b", 3),
        (16, ">b", -1),
    ],
)
def test_a_header_that_cannot_be_is_corrupt(at: int, kind: str, value: int) -> None:
    batch = bytearray(make_batch(numbered(3)))
    struct.pack_into(kind, batch, at, value)
    reader = open_reader(bytes(batch), check_crcs=False)
    with pytest.raises(CorruptRecordError):
        reader.take(9)
    reader.skip()
    assert reader.position == 1
    assert reader.exhausted
    with pytest.raises(CorruptRecordError):
        list(iter_batches(bytes(batch)))


def test_a_damaged_header_does_not_throw_the_position_far_ahead() -> None:
    batch = bytearray(make_batch(numbered(3)))
    struct.pack_into(">i", batch, 23, 2**31 - 1)
    reader = open_reader(bytes(batch))
    with pytest.raises(CorruptRecordError):
        reader.take(9)
    reader.skip()
    assert reader.position == 1


def test_a_bomb_is_refused() -> None:
    bomb = make_batch([Item(0, None, bytes(5_000_000))], codec=4)
    assert len(bomb) < 10_000
    with pytest.raises(CorruptRecordError, match="max_decompressed_bytes"):
        open_reader(bomb, max_decompressed_bytes=1_000_000).take(1)


def test_an_unknown_codec_is_named() -> None:
    with pytest.raises(UnsupportedCodecError, match="codec 6"):
        open_reader(make_batch(set_attributes=6)).take(1)


# -- deserializers


def test_deserializers_get_bytes_or_none() -> None:
    seen: list[Any] = []

    def keep(data: bytes | None) -> str:
        seen.append(data)
        return f"<{data!r}>"

    records = open_reader(make_batch(), key_deserializer=keep, value_deserializer=keep).take(9)
    assert seen == [part for item in ITEMS for part in (item.key, item.value)]
    assert records[0].key == "<b'key'>"
    assert records[0].serialized_key_size == 3


def fail_on(bad: bytes) -> Any:
    def deserialize(data: bytes) -> int:
        if data == bad:
            raise ValueError("cannot read this")
        return int(data)

    return deserialize


@pytest.mark.parametrize("old", [False, True], ids=["magic 2", "magic 1"])
def test_a_deserializer_that_raises_stops_at_its_record_only(old: bool) -> None:
    data = make_batch(numbered(5))
    if old:
        data = build_message_set(1, [(0, None, item.value) for item in numbered(5)], 1)
    reader = open_reader(data, value_deserializer=fail_on(b"2"))
    assert [record.value for record in reader.take(9)] == [0, 1]
    for _ in range(2):
        with pytest.raises(RecordDeserializationError) as caught:
            reader.take(9)
        assert (caught.value.topic_partition, caught.value.offset) == (("topic", 3), 2)
        assert caught.value.record.value == b"2"
        assert isinstance(caught.value.cause, ValueError)
        assert reader.position == 2
    reader.skip()
    assert reader.position == 3
    assert [record.value for record in reader.take(9)] == [3, 4]


def test_a_record_that_cannot_be_read_is_told_as_it_came() -> None:
    """Its key too, which had been read by then."""
    data = make_batch([Item(0, b"7", b"bad")])
    reader = open_reader(data, key_deserializer=int, value_deserializer=fail_on(b"bad"))
    with pytest.raises(RecordDeserializationError) as caught:
        reader.take(9)
    assert (caught.value.record.key, caught.value.record.value) == (b"7", b"bad")


def test_the_last_record_can_be_skipped() -> None:
    reader = open_reader(
        make_batch(numbered(1), last_offset_delta=4), value_deserializer=fail_on(b"0")
    )
    with pytest.raises(RecordDeserializationError):
        reader.next()
    reader.skip()
    assert reader.position == 5
    assert reader.exhausted


def test_an_interrupt_within_a_deserializer_loses_nothing() -> None:
    interrupts = [KeyboardInterrupt]

    def deserialize(data: bytes) -> bytes:
        if data == b"7" and interrupts:
            raise interrupts.pop()
        return data

    data = make_batch(numbered(5)) + make_batch(numbered(10)[5:], base_offset=5)
    reader = open_reader(data, value_deserializer=deserialize)
    assert offsets(reader.take(2)) == [0, 1]
    with pytest.raises(KeyboardInterrupt):
        reader.take(100)
    assert reader.position == 2
    assert offsets(reader.take(100)) == list(range(2, 10))


def test_names_of_headers_that_are_not_utf_8_are_shown_as_java_does() -> None:
    batch = make_batch([Item(0, None, None, (("naive", b""),))])
    body = batch[HEADER_SIZE:].replace(b"naive", b"na\xffve")
    (record,) = open_reader(with_body(batch, body)).take(1)
    assert record.headers == (("na\ufffdve", b""),)


def test_records_may_have_many_headers_of_changing_names() -> None:
    items = [
        Item(0, None, None, tuple((f"name {n * m % 7}", b"%d" % n) for n in range(40)))
        for m in range(5)
    ]
    records = open_reader(make_batch(items)).take(9)
    assert [record.headers for record in records] == [item.headers for item in items]


HEADER = st.tuples(st.sampled_from(["", "a", "b", "ab"]), st.sampled_from([None, b"", b"a", b"ab"]))


@given(st.lists(st.lists(HEADER, max_size=4).map(tuple), min_size=1, max_size=12))
def test_headers_are_those_of_their_record_however_alike_its_neighbours_are(
    headers: list[Any],
) -> None:
    items = [Item(n, None, None, each) for n, each in enumerate(headers)]
    half = len(items) // 2
    data = make_batch(items[:half]) if half else b""
    data += make_batch(items[half:], base_offset=half)
    reader = open_reader(data)
    records = reader.take(3) + reader.take(100)
    assert [record.headers for record in records] == headers


def test_formats_may_follow_each_other() -> None:
    plain = [(5, b"k%d" % n, b"v%d" % n) for n in range(3)]

    def at(magic: int, codec: int, offset: int) -> bytes:
        data = bytearray(build_message_set(magic, plain, codec))
        position = number = 0
        while position < len(data):
            (size,) = struct.unpack_from(">i", data, position + 8)
            last = 2 if codec else number
            struct.pack_into(">q", data, position, offset + last)
            position, number = position + 12 + size, number + 1
        return bytes(data)

    data = at(0, 0, 0) + at(1, 0, 3) + at(1, 1, 6) + make_batch(numbered(3), base_offset=9)
    for position in range(13):
        reader = open_reader(data, position=position)
        assert offsets(reader.take(100)) == list(range(position, 12))
    types = [record.timestamp_type for record in open_reader(data).take(100)]
    assert types == [None] * 3 + [0] * 9


def test_unpacking_ends_at_a_bound() -> None:
    """Batches of 100,000 bytes, packed to some hundreds: one call does not unpack them all."""
    large = [Item(1_700_000_000_000, None, bytes(100_000))]
    data = b"".join(make_batch(large, codec=1, base_offset=n) for n in range(10))
    reader = open_reader(data)
    assert offsets(reader.take(100, 250_000)) == [0, 1, 2]
    assert 300_000 < reader.unpacked < 301_000
    assert offsets(reader.take(100, 1)) == [3]
    assert offsets(reader.take(100)) == list(range(4, 10))
    assert reader.exhausted


def test_the_last_possible_offset_does_not_wrap() -> None:
    most = 2**63 - 1
    reader = open_reader(b"\0" * 16 + b"\x09" + b"\0" * 50, position=most)
    with pytest.raises(CorruptRecordError):
        reader.take(1)
    reader.skip()
    assert reader.position == most


def test_the_records_of_a_corrupt_batch_are_not_cut_short() -> None:
    body = make_batch(numbered(3))[HEADER_SIZE:]
    # The second record has no length that makes sense.
    size = len(body) // 3
    damaged = with_body(make_batch(numbered(3)), body[:size] + b"\xff\xff\x7f" + body[size + 3 :])
    (batch,) = iter_batches(damaged)
    with pytest.raises(CorruptRecordError, match="length of a record"):
        read_records(batch)
