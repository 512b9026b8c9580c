"""kafka-python's own record classes read what we write, and we read what they write."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

from aiokafka.record.batch import RecordReader, iter_batches
from aiokafka.record.legacy import build_message_set
from tests.record.samples import CODECS, Item, contents, headers, make_batch

times = st.integers(0, 2**40)
items = st.lists(st.builds(Item, times, contents, contents, headers), min_size=1, max_size=20)
every_codec = pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
FORMATS = [  # lz4 in magic 0 is compared with the help of the package xxhash
    pytest.param(magic, codec, id=f"magic {magic} {name}")
    for magic in (0, 1)
    for name, codec in CODECS.items()
    if name != "zstd"
]


def read_by_peer(data: bytes) -> list[Any]:
    records, found = MemoryRecords(data), []
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        found += list(batch)
    return found


def read_by_us(data: bytes) -> list[Any]:
    return RecordReader(data, "topic", 0, position=0).take(1000)


def written_by_peer(magic: int, codec: int, records: list[Item]) -> bytes:
    builder = MemoryRecordsBuilder(magic, codec, 1 << 20)
    for item in records:
        builder.append(
            item.timestamp, item.key, item.value, list(item.headers) if magic == 2 else []
        )
    builder.close()
    data = bytearray(builder.buffer())
    if magic == 1 and codec:
        # As a broker stores it: the wrapper has the last record's offset.
        data[:8] = (len(records) - 1).to_bytes(8, "big")
    return bytes(data)


def full(record: Any) -> tuple[Any, ...]:
    return (
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.key,
        record.value,
        tuple(record.headers),
    )


@every_codec
@given(records=items)
def test_the_peer_reads_our_batches(codec: int, records: list[Item]) -> None:
    batch = make_batch(records, codec=codec, producer=(5, 6, 7), transactional=True)
    assert [full(r) for r in read_by_peer(batch)] == [full(r) for r in read_by_us(batch)]
    peer = MemoryRecords(batch).next_batch()
    (own,) = iter_batches(batch)
    for name in ("producer_id", "producer_epoch", "base_sequence", "is_transactional", "crc"):
        assert getattr(peer, name) == getattr(own, name), name


@every_codec
@given(records=items)
def test_we_read_the_peers_batches(codec: int, records: list[Item]) -> None:
    found = read_by_us(written_by_peer(2, codec, records))
    assert [(r.timestamp, r.key, r.value, r.headers) for r in found] == records


@given(records=items)
def test_uncompressed_batches_are_equal_to_the_byte(records: list[Item]) -> None:
    assert make_batch(records, leader_epoch=0)[12:] == written_by_peer(2, 0, records)[12:]


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
@given(records=items)
def test_the_peer_reads_our_message_sets(magic: int, codec: int, records: list[Item]) -> None:
    plain = [(item.timestamp, item.key, item.value) for item in records]
    data = build_message_set(magic, plain, codec)
    assert [full(r) for r in read_by_peer(data)] == [full(r) for r in read_by_us(data)]


@pytest.mark.parametrize(("magic", "codec"), FORMATS)
@given(records=items)
def test_we_read_the_peers_message_sets(magic: int, codec: int, records: list[Item]) -> None:
    found = read_by_us(written_by_peer(magic, codec, records))
    assert [(r.key, r.value) for r in found] == [(item.key, item.value) for item in records]
    if magic:
        assert [r.timestamp for r in found] == [item.timestamp for item in records]
