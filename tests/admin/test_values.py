"""Values of the admin client as plain data."""

from __future__ import annotations

import dataclasses
import enum
import json
import uuid

import pytest

from aiokafka.admin._values import Value, plain
from aiokafka.errors import OffsetOutOfRangeError
from aiokafka.structs import OffsetAndMetadata, TopicPartition


class Kind(enum.IntEnum):
    BIG = 3


@dataclasses.dataclass(frozen=True)
class Inner(Value):
    data: bytes


@dataclasses.dataclass(frozen=True)
class Outer(Value):
    kind: Kind
    inner: Inner
    offsets: dict[TopicPartition, OffsetAndMetadata]
    names: frozenset[str]
    ids: tuple[uuid.UUID, ...]
    by_kind: dict[Kind, float]
    error: Exception | None = None


def test_all_sorts_of_fields() -> None:
    value = Outer(
        Kind.BIG,
        Inner(b"\xff\x00"),
        {TopicPartition("t", 1): OffsetAndMetadata(5, "")},
        frozenset({"b", "a"}),
        (uuid.UUID(int=1),),
        {Kind.BIG: 0.5},
        OffsetOutOfRangeError("t-1"),
    )
    found = value.as_dict()
    assert json.loads(json.dumps(found)) == found
    assert found == {
        "kind": "BIG",
        "inner": {"data": "ff00"},
        "offsets": {"t-1": {"offset": 5, "metadata": ""}},
        "names": ["a", "b"],
        "ids": ["00000000-0000-0000-0000-000000000001"],
        "by_kind": {"BIG": 0.5},
        "error": str(value.error),
    }


def test_text_stays_text() -> None:
    assert plain(b"text") == "text"
    assert plain(True) is True


def test_what_has_no_plain_form() -> None:
    with pytest.raises(TypeError, match="object"):
        plain(object())
