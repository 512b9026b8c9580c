"""Building batches of magic 2, and reading back what was built."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given

from aiokafka.errors import CorruptRecordError, IllegalStateError, UnsupportedCodecError
from aiokafka.record.batch import (
    HEADER_SIZE,
    RecordBatch,
    RecordBatchBuilder,
    RecordReader,
    SpareBuffers,
    iter_batches,
)
from tests.record.samples import CODECS, ITEMS, Item, items, make_batch, read, read_records

every_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)


@every_codec
@given(records=items)
def test_what_was_built_is_read_back(codec: int, records: list[Item]) -> None:
    batch = make_batch(records, codec=codec)
    assert read(batch) == records
    (header,) = iter_batches(batch)
    assert (header.magic, header.codec, header.record_count) == (2, codec, len(records))
    assert header.first_timestamp == records[0].timestamp
    assert header.max_timestamp == max(record.timestamp for record in records)


@every_codec
def test_records_are_complete(codec: int) -> None:
    reader = RecordReader(make_batch(codec=codec, base_offset=40), "topic", 3, position=40)
    records = reader.take(100)
    assert [record.offset for record in records] == [40, 41, 42, 43, 44]
    for record, item in zip(records, ITEMS, strict=True):
        assert (record.topic, record.partition, record.checksum) == ("topic", 3, None)
        assert record.timestamp_type == 0
        assert record.serialized_key_size == (-1 if item.key is None else len(item.key))
        assert record.serialized_value_size == (-1 if item.value is None else len(item.value))
        assert type(record.key) in (bytes, type(None))
    assert reader.position == 45
    assert reader.last_leader_epoch == 7


def test_offsets_count_from_zero() -> None:
    builder = RecordBatchBuilder(size_limit=1000)
    assert [builder.append(0, None, b"x", None) for _ in range(3)] == [0, 1, 2]
    assert builder.record_count == 3


def test_the_size_is_that_of_the_batch() -> None:
    builder = RecordBatchBuilder(size_limit=1 << 20)
    assert builder.size == HEADER_SIZE
    for item in ITEMS * 50:
        builder.append(*item)
    assert builder.compressed_size == 0
    assert builder.size == len(builder.build()) == builder.compressed_size


def test_the_limit_is_kept_to_the_byte() -> None:
    probe = RecordBatchBuilder(size_limit=1 << 20)
    for _ in range(10):
        probe.append(5, b"key", b"value" * 20, [("name", b"content")])
    for limit, count in ((probe.size, 10), (probe.size - 1, 9)):
        builder = RecordBatchBuilder(size_limit=limit)
        while builder.append(5, b"key", b"value" * 20, [("name", b"content")]) >= 0:
            pass
        assert builder.record_count == count
        assert builder.size <= limit
        assert len(read(builder.build())) == count


def test_the_first_record_always_fits() -> None:
    builder = RecordBatchBuilder(size_limit=10)
    assert builder.append(0, None, b"x" * 100_000, None) == 0
    assert builder.append(0, None, b"", None) == -1
    assert read(builder.build()) == [Item(0, None, b"x" * 100_000)]


@every_codec
def test_producer_and_sequence_can_change_after_the_batch_is_built(codec: int) -> None:
    builder = RecordBatchBuilder(compression=codec, size_limit=1 << 20)
    for item in ITEMS:
        builder.append(*item)
    first = builder.build(1, 2, 3, transactional=True)
    before = bytes(first)
    assert builder.build(1, 2, 3, transactional=True) is first
    second = builder.build(4, 5, 6)
    assert bytes(first) == before
    for data, identity in ((first, (1, 2, 3, True)), (second, (4, 5, 6, False))):
        (batch,) = iter_batches(data)
        batch.check_crc()
        assert identity == (
            batch.producer_id,
            batch.producer_epoch,
            batch.base_sequence,
            batch.is_transactional,
        )
        assert read(data) == ITEMS


@every_codec
def test_packing_a_batch_first_changes_nothing(codec: int) -> None:
    packed, built = (RecordBatchBuilder(compression=codec, size_limit=1 << 20) for _ in range(2))
    for item in ITEMS:
        packed.append(*item)
        built.append(*item)
    packed.pack()
    assert packed.compressed_size == len(built.build(1, 2, 3)) == built.compressed_size
    with pytest.raises(IllegalStateError):
        packed.append(0, None, b"x", None)
    assert packed.build(1, 2, 3) == built.build(1, 2, 3)


def test_a_batch_without_records_is_not_packed() -> None:
    with pytest.raises(IllegalStateError):
        RecordBatchBuilder(size_limit=1000).pack()


# -- Buffers that are used again


def large_batch(spare: SpareBuffers, fill: bytes, codec: int = 0) -> RecordBatchBuilder:
    """Return a builder with 100 records of 1,000 bytes."""
    builder = RecordBatchBuilder(compression=codec, size_limit=200_000, spare=spare)
    for number in range(100):
        builder.append(number, None, fill * 1000, None)
    return builder


def take_all(spare: SpareBuffers) -> list[int]:
    """Take every buffer, drop it, and return their sizes."""
    sizes = [len(buffer) for buffer in iter(spare.take, None)]
    spare.free(sum(sizes))
    return sizes


def test_a_batch_is_written_into_the_buffer_of_an_earlier_one() -> None:
    spare = SpareBuffers(1 << 20)
    first = large_batch(spare, b"a")
    first.build()
    first.recycle()
    second = large_batch(spare, b"b")
    assert take_all(spare) == []  # the second batch has it
    assert [record.value for record in read(second.build())] == [b"b" * 1000] * 100
    # The buffer is larger than the batch, which ends where its records do.
    third = RecordBatchBuilder(size_limit=200_000, spare=spare)
    second.recycle()
    third.append(0, None, bytes(30_000), None)
    assert len(third.build()) == third.size < 31_000
    third.recycle()
    (size,) = take_all(spare)
    assert size > 100_000


@every_codec
def test_a_compressed_batch_needs_its_buffer_no_longer(codec: int) -> None:
    spare = SpareBuffers(1 << 20)
    builder = large_batch(spare, b"a", codec)
    data = builder.build()
    assert len(take_all(spare)) == (codec != 0)
    assert [record.value for record in read(data)] == [b"a" * 1000] * 100


def test_a_buffer_that_is_still_read_is_not_used_again() -> None:
    spare = SpareBuffers(1 << 20)
    builder = large_batch(spare, b"a")
    rest = builder.build()[50_000:]  # as a transport keeps what it has not written
    builder.recycle()
    assert take_all(spare) == []
    assert rest[10_000:10_100].tobytes() == b"a" * 100


def test_a_batch_that_something_has_exported_is_not_used_again() -> None:
    spare = SpareBuffers(1 << 20)
    builder = large_batch(spare, b"a")
    keeper = memoryview(builder.build())
    builder.recycle()
    assert take_all(spare) == []
    assert len(keeper) == builder.size


def test_few_bytes_are_kept_for_later_batches() -> None:
    spare = SpareBuffers(250_000)
    for size in (100_000, 1000, 120_000, 100_000):
        spare.add(bytearray(size))
    assert take_all(spare) == [120_000, 100_000]
    spare.add(bytearray(250_000))
    assert take_all(spare) == [250_000]


def test_small_batches_do_not_hold_many_large_buffers() -> None:
    """Batches that wait for a slow broker take buffers that batches for another broker return."""
    limit = 200_000
    spare = SpareBuffers(limit)
    small = []
    for _ in range(50):
        large = large_batch(spare, b"a")
        large.build()
        large.recycle()
        builder = RecordBatchBuilder(size_limit=200_000, spare=spare)
        builder.append(0, None, bytes(20_000), None)
        small.append(builder)
    used = sum(builder.size for builder in small)
    assert used < sum(len(builder.build().obj) for builder in small) < used + limit
    for builder in small:
        builder.end_loan()  # their producer gives them up
    large = large_batch(spare, b"a")
    large.build()
    large.recycle()
    assert len(take_all(spare)) == 1


def test_a_batch_that_fills_its_buffer_leaves_the_limit_to_others() -> None:
    spare = SpareBuffers(150_000)
    first = large_batch(spare, b"a")
    first.build()
    first.recycle()
    second = large_batch(spare, b"b")
    third = large_batch(spare, b"c")
    third.build()
    second.build()
    third.recycle()
    (size,) = take_all(spare)
    assert size > 100_000


def test_a_batch_without_producer_says_so() -> None:
    (batch,) = iter_batches(make_batch())
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert not batch.is_transactional
    assert not batch.is_control


def test_a_built_batch_takes_nothing_more() -> None:
    builder = RecordBatchBuilder(size_limit=100)
    with pytest.raises(IllegalStateError):
        builder.build()
    builder.append(0, None, b"x", None)
    builder.build()
    with pytest.raises(IllegalStateError):
        builder.append(0, None, b"x", None)


@pytest.mark.parametrize(
    "given",
    [
        [("a", b"1"), ("b", None)],
        (("a", b"1"), ("b", None)),
        [["a", bytearray(b"1")], ("b", None)],
        (("a", memoryview(b"1")), ["b", None]),
        {"a": b"1", "b": None}.items(),
    ],
    ids=["list", "tuple", "lists and bytearray", "memoryview", "items"],
)
def test_headers_in_all_their_forms(given: Any) -> None:
    builder = RecordBatchBuilder(size_limit=1000)
    builder.append(0, None, b"", given)
    assert read(builder.build())[0].headers == (("a", b"1"), ("b", None))


def test_headers_from_a_generator_and_of_a_subclass() -> None:
    class Name(str):
        def __str__(self) -> str:
            return "not this"

    builder = RecordBatchBuilder(size_limit=1000)
    builder.append(0, None, b"", ((Name(name), b"1") for name in "ab"))
    assert read(builder.build())[0].headers == (("a", b"1"), ("b", b"1"))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([(b"a", b"1")], "name of a header must be str, not bytes"),
        ([("a", "1")], "value of the header 'a' must be bytes-like or None, not str"),
        ([("a",)], "must be a pair"),
        ([5], "must be a pair"),
    ],
)
def test_headers_of_other_types_are_refused(bad: Any, message: str) -> None:
    builder = RecordBatchBuilder(size_limit=1000)
    with pytest.raises(TypeError, match=message):
        builder.append(0, None, b"", bad)
    assert builder.append(0, None, b"good", None) == 0
    assert read(builder.build()) == [Item(0, None, b"good")]


def test_keys_and_values_are_bytes_like() -> None:
    builder = RecordBatchBuilder(size_limit=1000)
    builder.append(0, bytearray(b"k"), memoryview(b"v"), None)
    for key, value, what in ((1, None, "key"), (None, "text", "value")):
        with pytest.raises(TypeError, match=what):
            builder.append(0, key, value, None)  # type: ignore[arg-type]
    assert read(builder.build()) == [Item(0, b"k", b"v")]


def test_a_name_that_has_no_bytes_is_refused() -> None:
    builder = RecordBatchBuilder(size_limit=1000)
    with pytest.raises(UnicodeEncodeError):
        builder.append(0, None, None, [("\ud800", b"")])
    assert builder.record_count == 0


@pytest.mark.parametrize("timestamp", [-2, -(2**63), 2**63 - 1, 2**63, 2**70])
def test_timestamps_that_cannot_be_are_refused(timestamp: int) -> None:
    builder = RecordBatchBuilder(size_limit=1000)
    with pytest.raises((ValueError, OverflowError)):
        builder.append(timestamp, None, None, None)
    assert builder.record_count == 0


@pytest.mark.parametrize("extremes", [(-1, 2**63 - 2), (2**63 - 2, -1)])
def test_timestamps_may_lie_as_far_apart_as_can_be(extremes: tuple[int, int]) -> None:
    records = [Item(timestamp, None, None) for timestamp in extremes]
    assert read(make_batch(records)) == records


def test_what_the_builder_is_asked_for_is_checked() -> None:
    with pytest.raises(ValueError, match="compression_level of gzip"):
        RecordBatchBuilder(compression=1, level=77, size_limit=1)
    with pytest.raises(UnsupportedCodecError):
        RecordBatchBuilder(compression=6, size_limit=1)


def test_levels_reach_the_codec() -> None:
    sizes = []
    for level in (1, 9):
        builder = RecordBatchBuilder(compression=1, level=level, size_limit=1 << 20)
        for number in range(2000):
            builder.append(number, b"%d" % (number * 7919 % 1000), b"some text %d" % number, None)
        sizes.append(len(builder.build()))
    assert sizes[0] > sizes[1]


def test_the_header_is_as_documented() -> None:
    # https://kafka.apache.org/documentation/#recordbatch
    fields = struct.unpack_from(">qiibIhiqqqhii", make_batch(producer=(9, 8, 7), base_offset=5))
    offset, length, epoch, magic, _crc, attributes, last, first_time, newest, *producer = fields
    assert (offset, epoch, magic, attributes, last) == (5, 7, 2, 0, 4)
    assert length == len(make_batch()) - 12
    assert (first_time, newest) == (ITEMS[0].timestamp, ITEMS[1].timestamp)
    assert producer == [9, 8, 7, 5]


def test_a_batch_is_all_of_its_bytes() -> None:
    data = make_batch()
    assert RecordBatch(bytearray(data)).record_count == len(ITEMS)
    for wrong in (b"", data[:16], data[:-1], data + b"x"):
        with pytest.raises(CorruptRecordError):
            RecordBatch(wrong)


def test_records_of_a_built_batch_can_be_walked() -> None:
    (batch,) = iter_batches(make_batch(codec=3))
    assert [(r.timestamp, r.key, r.value, r.headers) for r in read_records(batch)] == ITEMS
