"""The record class keeps the whole protocol of a dataclass, compiled and plain."""

from __future__ import annotations

import copy
import dataclasses
import gc
import json
import pickle
import weakref
from typing import Any

import pytest

from aiokafka.record import reader as reader_module
from aiokafka.record.reader import RecordReader
from aiokafka.structs import ConsumerRecord
from tests.record.samples import Item, make_batch

FIELDS = {
    "topic": "t",
    "partition": 0,
    "offset": 12,
    "timestamp": 1_700_000_000_000,
    "timestamp_type": 0,
    "key": b"key",
    "value": b"value",
    "checksum": None,
    "serialized_key_size": 3,
    "serialized_value_size": 5,
    "headers": (("name", b"content"), ("none", None)),
}


@pytest.fixture
def record() -> ConsumerRecord[bytes, bytes]:
    return ConsumerRecord(**FIELDS)


@dataclasses.dataclass
class Reference:
    """The dataclass that ours is measured by."""

    topic: Any
    partition: Any
    offset: Any
    timestamp: Any
    timestamp_type: Any
    key: Any
    value: Any
    checksum: Any
    serialized_key_size: Any
    serialized_value_size: Any
    headers: Any


def test_takes_its_fields_in_order_or_by_name(record: Any) -> None:
    assert ConsumerRecord(*FIELDS.values()) == record
    assert {name: getattr(record, name) for name in FIELDS} == FIELDS


def test_every_field_is_needed() -> None:
    with pytest.raises(TypeError):
        ConsumerRecord("t", 0)
    with pytest.raises(TypeError):
        ConsumerRecord(**FIELDS, more=1)


def test_shows_itself_as_a_dataclass_does(record: Any) -> None:
    assert repr(record) == repr(Reference(**FIELDS)).replace("Reference", "ConsumerRecord")


def test_is_a_dataclass(record: Any) -> None:
    assert dataclasses.is_dataclass(ConsumerRecord)
    assert dataclasses.is_dataclass(record)
    assert [field.name for field in dataclasses.fields(record)] == list(FIELDS)
    assert dataclasses.asdict(record) == FIELDS
    assert dataclasses.astuple(record) == tuple(FIELDS.values())
    assert ConsumerRecord.__match_args__ == tuple(FIELDS)


def test_replace_makes_another(record: Any) -> None:
    other = dataclasses.replace(record, offset=13)
    assert type(other) is ConsumerRecord
    assert (other.offset, record.offset) == (13, 12)
    assert record.__replace__(value=None).value is None


def test_is_compared_by_value(record: Any) -> None:
    assert record == ConsumerRecord(**FIELDS)
    assert record != dataclasses.replace(record, value=b"other")
    assert record != tuple(FIELDS.values())
    assert record.__eq__(Reference(**FIELDS)) is NotImplemented


def test_is_not_hashable(record: Any) -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(record)


def test_fields_can_be_set_to_anything(record: Any) -> None:
    for name in FIELDS:
        setattr(record, name, thing := object())
        assert getattr(record, name) is thing


def test_takes_foreign_attributes(record: Any) -> None:
    record.consumer = thing = object()
    assert record.consumer is thing
    assert vars(record)["consumer"] is thing
    del record.consumer
    assert not hasattr(record, "consumer")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_can_be_pickled(record: Any, protocol: int) -> None:
    record.note = "kept"
    other = pickle.loads(pickle.dumps(record, protocol))
    assert other == record
    assert type(other) is ConsumerRecord
    assert other.note == "kept"


def test_can_be_copied(record: Any) -> None:
    record.value = {"a": [1]}
    record.note = ["x"]
    shallow, deep = copy.copy(record), copy.deepcopy(record)
    assert shallow == deep == record
    assert shallow.value is record.value
    assert deep.value is not record.value
    assert shallow.note is record.note
    assert deep.note == record.note
    assert deep.note is not record.note


def test_says_where_users_find_it(record: Any) -> None:
    assert ConsumerRecord.__module__ == "aiokafka.structs"
    assert ConsumerRecord.__name__ == ConsumerRecord.__qualname__ == "ConsumerRecord"
    assert str(ConsumerRecord) == "<class 'aiokafka.structs.ConsumerRecord'>"


def test_takes_type_arguments() -> None:
    alias = ConsumerRecord[str, bytes]
    assert alias(**FIELDS) == ConsumerRecord(**FIELDS)
    assert alias.__origin__ is ConsumerRecord


def test_can_be_subclassed(record: Any) -> None:
    class Own(ConsumerRecord[str, bytes]):
        def shout(self) -> str:
            return self.topic.upper()

    own = Own(**FIELDS)
    assert own.shout() == "T"
    assert own != record
    assert repr(own).startswith(f"{Own.__qualname__}(topic='t'")


def test_can_be_extended_as_a_dataclass() -> None:
    @dataclasses.dataclass
    class Extended(ConsumerRecord):
        extra: int = 3

    extended = Extended(**FIELDS, extra=4)
    assert dataclasses.asdict(extended) == {**FIELDS, "extra": 4}
    assert extended == Extended(**FIELDS, extra=4)
    assert extended != Extended(**FIELDS)


def test_matches_patterns(record: Any) -> None:
    match record:
        case ConsumerRecord(topic="t", offset=offset):
            assert offset == 12
        case _:
            pytest.fail("no match")


def test_shows_its_fields_as_a_dict(record: Any) -> None:
    assert vars(record) == record.__dict__ == FIELDS
    assert list(vars(record)) == list(FIELDS)
    record.note = 1
    record.value = b"other"
    assert vars(record) == {**FIELDS, "value": b"other", "note": 1}
    assert dict(**vars(record))["note"] == 1
    shown = {name: str(value) for name, value in record.__dict__.items()}
    assert json.loads(json.dumps(shown))["offset"] == "12"
    vars(record)["headers"] = ()
    record.key = "k"
    assert json.loads(json.dumps({**vars(record), "value": "v"}))["key"] == "k"
    assert copy.deepcopy(vars(record)) == vars(record)


def test_its_dict_can_be_changed(record: Any) -> None:
    fields = vars(record)
    fields["value"] = b"new"
    fields["note"] = "x"
    assert (record.value, record.note) == (b"new", "x")
    vars(record).update({"offset": 13}, partition=2)
    assert (record.offset, record.partition) == (13, 2)
    fields = vars(record)
    fields |= {"topic": "other"}
    assert record.topic == "other"
    assert vars(record).setdefault("note", "y") == "x"
    assert vars(record).setdefault("more", "z") == record.more == "z"
    assert vars(record).pop("more") == "z"
    assert vars(record).pop("more", 5) == 5
    assert not hasattr(record, "more")
    with pytest.raises(KeyError):
        vars(record).pop("more")
    assert vars(record).popitem() == ("note", "x")
    with pytest.raises(KeyError):
        del vars(record)["note"]
    assert vars(record) == {
        **FIELDS,
        "value": b"new",
        "offset": 13,
        "partition": 2,
        "topic": "other",
    }


def test_a_cycle_through_its_dict_is_collected(record: Any) -> None:
    read = take_raw()
    read.__dict__["self"] = read
    vars(read).update(again=read)
    reference = weakref.ref(read)
    del read
    gc.collect()
    assert reference() is None


def test_an_object_can_set_its_attributes(record: Any) -> None:
    read = take_raw()
    object.__setattr__(read, "note", 1)
    object.__setattr__(read, "value", b"set")
    assert (read.note, read.value) == (1, b"set")
    object.__delattr__(read, "note")
    assert not hasattr(read, "note")


def test_a_subclass_shows_its_fields(record: Any) -> None:
    class Own(ConsumerRecord):
        pass

    own = Own(**FIELDS)
    own.note = 1
    assert vars(own) == {**FIELDS, "note": 1}


def take_raw() -> Any:
    """A record as a reader hands it out."""
    return RecordReader(make_batch(), "t", 0, position=0).next()


def test_the_collector_sees_a_record_that_may_be_part_of_a_cycle() -> None:
    """Thousands of other records would have it look through all objects of the program."""
    is_compiled = not str(reader_module.__file__).endswith(".py")
    values = [b"1", b"[2]", b"3.5", b"null", b'"text"', b"{}"]
    data = b"".join(make_batch([Item(0, None, v)], base_offset=n) for n, v in enumerate(values))
    reader = RecordReader(data, "t", 0, position=0, value_deserializer=json.loads)
    records = reader.take(len(values))
    assert [record.value for record in records] == [1, [2], 3.5, None, "text", {}]
    # After a list, a missing value may count as one that can refer to other objects.
    seen = [gc.is_tracked(record) for record in records]
    assert [seen[at] for at in (1, 5)] == [True, True]
    assert [seen[at] for at in (0, 2, 4)] == [not is_compiled] * 3
    records[0].value = records
    assert gc.is_tracked(records[0])


def test_can_be_referred_to_weakly_and_collected() -> None:
    record: Any = ConsumerRecord(**FIELDS)
    record.cycle = record
    reference = weakref.ref(record)
    del record
    gc.collect()
    assert reference() is None
