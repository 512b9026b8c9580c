"""The compiled form and the plain sources do the same, to the byte."""

from __future__ import annotations

import importlib
import random
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import aiokafka
import aiokafka.record
from aiokafka._loading import SourceFinder
from aiokafka.errors import CorruptRecordError, UnsupportedCodecError
from aiokafka.record import batch, columns, header, rows
from tests.record.fuzz import Dice, mutate
from tests.record.samples import items, make_record_sets
from tests.support.rows import in_order, source

COMPILED = SimpleNamespace(batch=batch, columns=columns, header=header, rows=rows)

pytestmark = pytest.mark.skipif(
    str(batch.__file__).endswith(".py"), reason="there is only the plain form to test"
)


def is_ours(name: str) -> bool:
    return name.startswith("aiokafka.record") or name == "aiokafka._consumer_record"


def load_plain() -> SimpleNamespace:
    """The same modules from their sources, beside those that are loaded."""
    loaded = {name: sys.modules.pop(name) for name in list(sys.modules) if is_ours(name)}
    finder = SourceFinder("aiokafka")
    sys.meta_path.insert(0, finder)
    try:
        modules = {
            name: importlib.import_module(f"aiokafka.record.{name}") for name in vars(COMPILED)
        }
    finally:
        sys.meta_path.remove(finder)
        for name in list(sys.modules):
            if is_ours(name):
                del sys.modules[name]
        sys.modules.update(loaded)
        aiokafka.record = loaded["aiokafka.record"]
    assert all(str(module.__file__).endswith(".py") for module in modules.values())
    return SimpleNamespace(**modules)


@pytest.fixture(scope="module")
def plain() -> SimpleNamespace:
    return load_plain()


def build(form: Any, records: list[Any], codec: int, limit: int) -> tuple[Any, ...]:
    builder = form.batch.RecordBatchBuilder(compression=codec, size_limit=limit)
    fitted = [builder.append(*record) for record in records]
    size = builder.size
    return fitted, size, bytes(builder.build(5, 6, 7, True)), bytes(builder.build())


@given(records=items, codec=st.sampled_from([0, 0, 1, 3]), limit=st.integers(0, 3000))
def test_batches_are_equal(plain: Any, records: list[Any], codec: int, limit: int) -> None:
    assert build(COMPILED, records, codec, limit) == build(plain, records, codec, limit)


def build_rows(form: Any, records: list[Any], start: int, limit: int) -> tuple[Any, ...]:
    builder = form.batch.RecordBatchBuilder(size_limit=limit)
    columns_of = source(records, start, form.rows)
    order, parts = form.rows.route_rows(columns_of, 5)
    fitted = builder.append_rows(columns_of, order, 0, len(records))
    again = builder.append_rows(columns_of, in_order(len(records)), fitted, len(records))
    found = (fitted, again, builder.size, bytes(builder.build()), columns_of.checksum())
    return (*found, bytes(order), [tuple(part) for part in parts])


@given(records=items, start=st.integers(0, 9), limit=st.integers(0, 3000))
def test_batches_of_rows_are_equal(plain: Any, records: list[Any], start: int, limit: int) -> None:
    assert build_rows(COMPILED, records, start, limit) == build_rows(plain, records, start, limit)


def read(form: Any, data: bytes, options: dict[str, Any]) -> list[Any]:
    """All that can be seen of reading, errors included."""
    seen: list[Any] = []
    reader = form.batch.RecordReader(data, "topic", 1, **options)
    for _ in range(500):
        try:
            records = reader.take(5)
        except (CorruptRecordError, UnsupportedCodecError) as error:
            seen.append((type(error), str(error)))
            reader.skip()
        else:
            if not records:
                break
            seen += [repr(record) for record in records]
        seen.append((reader.position, reader.last_leader_epoch, reader.exhausted))
    return [*seen, reader.position, reader.truncated]


def read_columns(form: Any, data: bytes, options: dict[str, Any]) -> list[Any]:
    seen: list[Any] = []
    reader = form.columns.ColumnReader(data, **options)
    try:
        while (columns := reader.read(5)).rows:
            seen.append([bytes(c) if isinstance(c, bytearray) else c for c in columns])
    except (CorruptRecordError, UnsupportedCodecError) as error:
        seen.append((type(error), str(error)))
    return seen


def headers(form: Any, data: bytes) -> list[Any]:
    names = [name for name in dir(header.RecordBatch) if not name.startswith("_")]
    seen: list[Any] = []
    try:
        for found in form.header.iter_batches(data):
            values = {name: getattr(found, name, None) for name in names}
            seen.append({k: v for k, v in values.items() if isinstance(v, (int, str))})
    except CorruptRecordError as error:
        seen.append(str(error))
    return seen


OPTIONS = [
    {"position": 0},
    {"position": 3, "check_crcs": False},
    {"position": 0, "check_crcs": False, "read_committed": True, "aborted": [(11, 0)]},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_record_sets_read_equal(plain: Any, options: dict[str, Any]) -> None:
    for data in make_record_sets():
        for look in (read, read_columns):
            assert look(COMPILED, data, options) == look(plain, data, options)
        assert headers(COMPILED, data) == headers(plain, data)


@pytest.mark.parametrize("seed", range(8))
def test_damaged_record_sets_read_equal(plain: Any, seed: int) -> None:
    dice, samples = Dice(seed), make_record_sets()
    for _ in range(100):
        data = bytes(mutate(dice.choose(samples), dice))
        options = {**dice.choose(OPTIONS), "max_decompressed_bytes": 1 << 18}
        for look in (read, read_columns):
            assert look(COMPILED, data, options) == look(plain, data, options), data.hex()
        assert headers(COMPILED, data) == headers(plain, data), data.hex()


def test_numbers_are_coded_equal(plain: Any) -> None:
    # Through what they are used for: timestamps are deltas of any size, up and down.
    rng = random.Random(1)
    stamps = [rng.randrange(1 << rng.randrange(1, 64)) for _ in range(500)]
    records = [(stamp, None, b"", ()) for stamp in stamps]
    assert build(COMPILED, records, 0, 1 << 20) == build(plain, records, 0, 1 << 20)
