"""Record sets of every kind to read, made by the library itself."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from hypothesis import strategies as st

from aiokafka.record.batch import RecordBatchBuilder, RecordReader
from aiokafka.record.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, compress
from aiokafka.record.crc32c import crc32c
from aiokafka.record.header import RecordBatch
from aiokafka.record.legacy import build_message_set

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
ABORT, COMMIT = 0, 1
HEADER_SIZE = 61


class Item(NamedTuple):
    """What is written and is to be read again."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


ITEMS = [
    Item(1_700_000_000_000, b"key", b"value"),
    Item(1_700_000_000_500, None, b"x" * 40, (("name", b"content"), ("none", None))),
    Item(1_699_999_999_000, b"", None),
    Item(1_700_000_000_001, b"key", b"", (("naïve ☃", b""),)),
    Item(1_700_000_000_001, None, None),
]


def read_records(
    batch: RecordBatch, max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES
) -> list[Any]:
    """All records of a batch, including control records, without topic and partition."""
    reader = RecordReader(
        batch.view,
        "",
        -1,
        position=0,
        check_crcs=False,
        include_control=True,
        max_decompressed_bytes=max_decompressed_bytes,
    )
    records: list[Any] = reader.take(0x7FFFFFFF)
    if not reader.exhausted:
        # The reader stopped before a corrupt record, and raises its error in this call.
        reader.take(1)
    return records


def patch(
    batch: bytes,
    *,
    base_offset: int = 0,
    leader_epoch: int = 7,
    set_attributes: int = 0,
    last_offset_delta: int | None = None,
    record_count: int | None = None,
) -> bytes:
    """A batch as a broker hands it out: with offset and epoch, and changed as asked; CRC mended."""
    data = bytearray(batch)
    struct.pack_into(">q", data, 0, base_offset)
    struct.pack_into(">i", data, 12, leader_epoch)
    (attributes,) = struct.unpack_from(">h", data, 21)
    struct.pack_into(">h", data, 21, attributes | set_attributes)
    if last_offset_delta is not None:
        struct.pack_into(">i", data, 23, last_offset_delta)
    if record_count is not None:
        struct.pack_into(">i", data, 57, record_count)
    return mend(data)


def mend(batch: bytes | bytearray) -> bytes:
    """The batch with length and CRC made right."""
    data = bytearray(batch)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def make_batch(
    items: list[Item] = ITEMS,
    *,
    codec: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    **patches: int,
) -> bytes:
    builder = RecordBatchBuilder(compression=codec, size_limit=1 << 30)
    for item in items:
        assert builder.append(*item) >= 0
    return patch(bytes(builder.build(*producer, transactional)), **patches)


def make_marker(kind: int, *, base_offset: int, producer_id: int = 11) -> bytes:
    """The control batch that ends a transaction."""
    key, value = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 3)
    return make_batch(
        [Item(1_700_000_001_000, key, value)],
        producer=(producer_id, 0, -1),
        transactional=True,
        base_offset=base_offset,
        set_attributes=CONTROL,
    )


def make_empty(*, base_offset: int, last_offset_delta: int) -> bytes:
    """What compaction leaves of a batch whose records are all gone."""
    return patch(
        make_batch(ITEMS[:1])[:HEADER_SIZE],
        base_offset=base_offset,
        last_offset_delta=last_offset_delta,
        record_count=0,
    )


def with_body(batch: bytes, body: bytes) -> bytes:
    """The batch with other bytes in place of its records, which its codec has packed."""
    codec = batch[22] & 7
    return mend(batch[:HEADER_SIZE] + (compress(codec, body) if codec else body))


def make_record_sets() -> list[bytes]:
    """One or more of everything that a log may hold."""
    plain = [(item.timestamp, item.key, item.value) for item in ITEMS]
    sets = [make_batch(codec=codec, base_offset=100) for codec in CODECS.values()]
    sets += [
        build_message_set(magic, plain, codec)
        for magic in (0, 1)
        for name, codec in CODECS.items()
        if name != "zstd"
    ]
    transaction = {"producer": (11, 0, 0), "transactional": True}
    sets += [
        make_batch(set_attributes=LOG_APPEND_TIME),
        make_batch(set_attributes=DELETE_HORIZON),
        make_batch(ITEMS[:2])
        + make_empty(base_offset=2, last_offset_delta=7)
        + make_batch(ITEMS[3:], base_offset=10),
        make_batch(ITEMS[:2], **transaction)
        + make_marker(ABORT, base_offset=2)
        + make_batch(ITEMS[:2], **transaction, base_offset=3)
        + make_marker(COMMIT, base_offset=5),
        build_message_set(0, plain[:2])
        + build_message_set(1, plain[:2], 1)
        + make_batch(ITEMS[:2], codec=3, base_offset=9),
        make_batch([Item(0, b"k" * 30, b"v" * 200)] * 12),
    ]
    return sets


contents = st.none() | st.binary(max_size=200)
headers = st.lists(st.tuples(st.text(max_size=20), contents), max_size=4).map(tuple)
timestamps = st.integers(-1, 2**63 - 2) | st.integers(1_700_000_000_000, 1_700_000_100_000)
items = st.lists(st.builds(Item, timestamps, contents, contents, headers), min_size=1, max_size=30)


def read(data: Any, **options: Any) -> list[Item]:
    reader = RecordReader(data, "topic", 3, **{"position": 0, **options})
    return [Item(r.timestamp, r.key, r.value, r.headers) for r in reader.take(1 << 30)]


def numbered(count: int) -> list[Item]:
    return [Item(1_700_000_000_000 + number, None, b"%d" % number) for number in range(count)]


def beyond_64_bits(delta: int) -> bytes:
    """A batch whose second record has a timestamp that is larger than there can be."""
    batch = bytearray(make_batch([Item(0, None, b""), Item(delta, None, b"")]))
    struct.pack_into(">q", batch, 27, 2**63 - 1)
    return mend(batch)


def transaction(producer_id: int, base_offset: int) -> bytes:
    return make_batch(
        numbered(2), producer=(producer_id, 0, 0), transactional=True, base_offset=base_offset
    )


TWO_PRODUCERS = (
    transaction(1, 0)  # aborted at 6
    + transaction(2, 2)  # committed at 7
    + transaction(1, 4)  # aborted at 6
    + make_marker(ABORT, base_offset=6, producer_id=1)
    + make_marker(COMMIT, base_offset=7, producer_id=2)
    + transaction(1, 8)  # committed at 10
    + make_marker(COMMIT, base_offset=10, producer_id=1)
)
