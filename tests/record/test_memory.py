"""A batch builder that cannot get memory, or is called amiss, stays whole.

Compiled, a mistake here writes beyond a buffer, so each program runs in a process of its own, and
in both forms.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

_COMMON = """
import resource, struct
from aiokafka.errors import IllegalStateError
from aiokafka.record.batch import RecordBatchBuilder, RecordReader

def values(batch):
    return [r.value for r in RecordReader(batch, "t", 0, position=0).take(10**6)]

class Limit:
    # While it is entered, the process can have so many bytes more than when it was made.

    def __init__(self, room):
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        self.most = used + room

    def __enter__(self):
        resource.setrlimit(resource.RLIMIT_AS, (self.most, resource.RLIM_INFINITY))

    def __exit__(self, *failure):
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
"""

VIEW = """
builder = RecordBatchBuilder(size_limit=1 << 24)
kept = [b"%d" % i for i in range(20)]
for value in kept:
    builder.append(1, None, value, None)
with memoryview(vars(builder)["_buffer"]):
    for size in (100_000, 3000, 3000, 2500):
        try:
            builder.append(1, None, b"x" * size, None)
        except BufferError:
            pass
        else:
            raise SystemExit(f"{size} bytes found room in a buffer that cannot grow")
builder.append(1, None, b"y" * 100_000, None)
assert builder.record_count == 21
assert values(builder.build()) == [*kept, b"y" * 100_000]
"""

LIMIT = """
builder = RecordBatchBuilder(size_limit=2**31 - 1)
value = b"v" * (1 << 20)
for _ in range(3):
    builder.append(1, None, value, None)
refused = 0
with Limit(96 << 20):
    while refused < 50:
        before = builder.size, builder.record_count
        try:
            builder.append(1, None, value, None)
        except MemoryError:
            refused += 1
            assert (builder.size, builder.record_count) == before
builder.append(1, None, b"last", None)
found = values(builder.build())
assert len(found) == builder.record_count and found[-1] == b"last" and found[-2] == value
"""

ROWS = """
from aiokafka.record.rows import BinarySource, RowSource
import array
size = 1 << 20
rows = RowSource(BinarySource(2, array.array("i", [0, size, size + 10]), bytes(size + 10)))
order = bytearray(array.array("i", [0] * 200 + [1] * 200).tobytes())
builder = RecordBatchBuilder(size_limit=2**31 - 1)
at = refused = 0
with Limit(96 << 20):
    while refused < 50:
        try:
            at += builder.append_rows(rows, order, 0, 1)
        except MemoryError:
            refused += 1
    assert 3 < at == builder.record_count < 200
assert builder.append_rows(rows, order, 199, 203) == 203
assert [len(value) for value in values(builder.build())] == [size] * (at + 1) + [10] * 3
"""

FAILED_BUILD = """
for codec in (0, 1):
    builder = RecordBatchBuilder(size_limit=1 << 20, compression=codec)
    builder.append(1, None, b"a" * 1000, None)
    try:
        builder.build(1, 2**40, 0)
    except struct.error:
        pass
    else:
        raise SystemExit("an epoch of 40 bits was taken")
    for _ in range(3):
        try:
            builder.append(1, None, b"b" * 900, None)
        except IllegalStateError:
            pass
        else:
            raise SystemExit("a record was added to a batch that was built")
    assert values(builder.build(7, 1, 0)) == [b"a" * 1000]
"""

INSIDE = """
# Code that gives headers, or a view, may use the builder while it asks for them.
class Key(bytearray):
    def __bytes__(self):
        builder.append(1, None, b"from the key", None)
        return b"key"

def headers():
    for i in range(70):
        builder.append(5, None, b"%d" % i, None)
    yield "name", b"content"

builder = RecordBatchBuilder(size_limit=1 << 20)
builder.append(1, Key(), b"outer", headers())
records = RecordReader(builder.build(), "t", 0, position=0).take(1000)
assert [r.offset for r in records] == list(range(72))
assert [r.value for r in records] == [b"from the key"] + [b"%d" % i for i in range(70)] + [b"outer"]
assert [r.timestamp for r in records] == [1] + [5] * 70 + [1]
assert records[-1].headers == (("name", b"content"),)

def closing():
    builder.build()
    yield "name", b"content"

builder = RecordBatchBuilder(size_limit=1 << 20, compression=1)
builder.append(1, None, b"one", None)
try:
    builder.append(1, None, b"two", closing())
except IllegalStateError:
    pass
else:
    raise SystemExit("a record was added to a batch that was built")
assert values(builder.build()) == [b"one"]
"""

WITHOUT_INIT = """
from aiokafka.producer.batch_builder import BatchBuilder
from aiokafka.record.header import RecordBatch
from aiokafka.record.columns import ColumnReader
from aiokafka.record.control import first_key
from aiokafka.record.rows import BinarySource, HeaderSource, RowSource

def read_records(batch):
    RecordReader(batch.view, "", -1, position=0).take(1)

def refused(call, *args, **named):
    try:
        call(*args, **named)
    except (TypeError, AttributeError, ValueError, IllegalStateError):
        return
    raise SystemExit(f"{call} worked")

class Forgetful(RecordBatchBuilder):
    def __init__(self):
        pass

for builder in (RecordBatchBuilder.__new__(RecordBatchBuilder), Forgetful()):
    refused(builder.append, 0, None, None, None)
    refused(builder.append, 0, b"k", b"v", [("a", b"b")])
    refused(builder.build)
    rows = RowSource(BinarySource(1, bytes(8), b""))
    refused(builder.append_rows, rows, bytearray(4), 0, 1)
full = RecordBatchBuilder(size_limit=100)
refused(full.append_rows, RowSource.__new__(RowSource), bytearray(4), 0, 1)
refused(full.append_rows, RowSource(BinarySource(1, bytes(8), b"")), None, 0, 1)
refused(HeaderSource, 1, bytes(8), None, None)
refused(RowSource, None)
for batch in (BatchBuilder.__new__(BatchBuilder), BatchBuilder(None)):
    refused(batch.append, timestamp=0, key=None, value=b"v")
    refused(batch.append_rows, rows, bytearray(4))
    refused(batch.size)
    refused(batch.record_count)
reader = RecordReader.__new__(RecordReader)
for call in (reader.next, reader.skip, ColumnReader.__new__(ColumnReader).read):
    refused(call)
refused(reader.take, 1)
header = RecordBatch.__new__(RecordBatch)
refused(header.check_crc)
for call in (RecordBatch.payload, read_records, first_key):
    refused(call, header)
"""

COLUMNS = """
# Whatever read gives under whatever limit, all rows come, each once and in order.
from aiokafka.record.columns import ColumnReader

record_set = b""
for first in range(0, 60, 10):
    builder = RecordBatchBuilder(size_limit=1 << 24, compression=1)
    for i in range(10):
        builder.append(1, b"k", b"%06d" % (first + i) * 40_000, [("h", b"%d" % (first + i))])
    batch = bytearray(builder.build())
    struct.pack_into(">q", batch, 0, first)
    record_set += batch

def first_bytes(column):
    places = memoryview(column.offsets).cast("i")
    return [int(column.data[at:at + 6]) for at in places[:-1]]

failures = 0
for room in [*range(0, 48, 3), 200]:
    reader, limit = ColumnReader(record_set, position=0), Limit(room << 20)
    found, rows = [], 1
    while rows:
        try:
            with limit:
                columns = reader.read()
        except MemoryError:
            failures += 1
            columns = reader.read()
        rows = columns.rows
        found += first_bytes(columns.values) if rows else []
        assert columns.headers.names.null_count == 0
    assert found == list(range(60)), (room, found)
assert failures
"""

PROGRAMS = {
    name.lower(): globals()[name]
    for name in ("VIEW", "LIMIT", "ROWS", "FAILED_BUILD", "INSIDE", "WITHOUT_INIT", "COLUMNS")
}


@pytest.mark.parametrize("pure", ["", "1"], ids=["as built", "pure"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_written_outside_the_buffer(name: str, pure: str) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("limits memory as Linux does")
    if name == "view" and not pure:
        pytest.skip("compiled, nothing leads to a buffer before it is built")
    # glibc's own checks of the heap, so that a write beyond a buffer does not go unseen.
    environment = {**os.environ, "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165"}
    environment.pop("AIOKAFKA_NO_EXTENSIONS", None) if not pure else None
    if pure or os.environ.get("AIOKAFKA_NO_EXTENSIONS"):
        environment["AIOKAFKA_NO_EXTENSIONS"] = "1"
    program = textwrap.dedent(_COMMON) + PROGRAMS[name]
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:], done.stdout[-500:])
