"""ConsumerRecord behaves as the mutable dataclass that programs build, extend and compare."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from typing import Any

import pytest
from hypothesis import given, settings, strategies

from aiokafka import ConsumerRecord

FIELDS = [
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "checksum",
    "serialized_key_size",
    "serialized_value_size",
    "headers",
]


def make(**changes: Any) -> ConsumerRecord[Any, Any]:
    values = {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "timestamp": 3,
        "timestamp_type": 0,
        "key": b"k",
        "value": b"v",
        "checksum": None,
        "serialized_key_size": 1,
        "serialized_value_size": 1,
        "headers": (("h", b"x"),),
    }
    return ConsumerRecord(**{**values, **changes})


def test_it_is_a_dataclass() -> None:
    assert dataclasses.is_dataclass(ConsumerRecord)
    assert [field.name for field in dataclasses.fields(ConsumerRecord)] == FIELDS
    record = make()
    assert dataclasses.asdict(record)["value"] == b"v"
    assert dataclasses.astuple(record)[:3] == ("t", 1, 2)
    changed = dataclasses.replace(record, offset=5)
    assert (changed.offset, record.offset) == (5, 2)


def test_fields_by_position() -> None:
    record = ConsumerRecord("t", 1, 2, 3, 0, b"k", b"v", None, 1, 1, ())
    assert (record.topic, record.key, record.headers) == ("t", b"k", ())
    with pytest.raises(TypeError):
        ConsumerRecord("t", 1)  # type: ignore[call-arg]


def test_signature() -> None:
    """As test frameworks and containers ask for it, to make records."""
    parameters = inspect.signature(ConsumerRecord).parameters
    assert list(parameters) == FIELDS
    assert parameters["offset"].annotation == "int"

    class Extended(ConsumerRecord[Any, Any]):
        pass

    class Own(ConsumerRecord[Any, Any]):
        def __init__(self, value: bytes) -> None:
            super().__init__("t", 0, 0, 0, 0, None, value, None, -1, len(value), ())

    @dataclasses.dataclass
    class Numbered(ConsumerRecord[Any, Any]):
        number: int = 0

    assert list(inspect.signature(Extended).parameters) == FIELDS
    assert list(inspect.signature(Own).parameters) == ["value"]
    assert list(inspect.signature(Numbered).parameters) == [*FIELDS, "number"]


@settings(max_examples=5, database=None)
@given(strategies.builds(ConsumerRecord, value=strategies.binary()))
def test_hypothesis_makes_records(record: ConsumerRecord[Any, bytes]) -> None:
    assert isinstance(record.topic, str)
    assert isinstance(record.offset, int)
    assert isinstance(record.value, bytes)


def test_equality_and_hash() -> None:
    assert make() == make()
    assert make() != make(offset=3)
    assert make() != "record"
    with pytest.raises(TypeError):
        hash(make())


def test_it_is_mutable_and_takes_attributes() -> None:
    record = make()
    record.value = {"decoded": True}
    record.consumer = "mine"  # type: ignore[attr-defined]
    assert vars(record)["consumer"] == "mine"
    assert record.value == {"decoded": True}


def test_all_fields_at_once() -> None:
    record = make()
    record.extra = 1  # type: ignore[attr-defined]
    record.__dict__ = vars(make(value=b"other"))
    assert record == make(value=b"other")
    assert not hasattr(record, "extra")


def test_repr() -> None:
    assert repr(make()).startswith("ConsumerRecord(topic='t', partition=1, offset=2, timestamp=3,")


@pytest.mark.parametrize(
    "again", [copy.copy, copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))]
)
def test_copies(again: Any) -> None:
    record = make()
    record.extra = 1  # type: ignore[attr-defined]
    other = again(record)
    assert other == record
    assert other is not record
    assert other.extra == 1


def test_it_is_generic() -> None:
    assert ConsumerRecord[str, bytes] is not None


def test_patterns_match_it() -> None:
    match make():
        case ConsumerRecord(topic="t", value=value):
            assert value == b"v"
        case _:
            pytest.fail("no match")


def test_it_can_be_subclassed() -> None:
    class Mine(ConsumerRecord[bytes, bytes]):
        @property
        def size(self) -> int:
            return self.serialized_value_size

    record = Mine("t", 1, 2, 3, 0, b"k", b"v", None, 1, 1, ())
    assert record.size == 1
    assert isinstance(record, ConsumerRecord)
