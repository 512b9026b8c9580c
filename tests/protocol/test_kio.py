"""Agreement, byte for byte and value for value, with kio: a codec with which we share nothing."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import importlib
import io
import uuid
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiokafka.protocol.compiler import codec
from aiokafka.protocol.schema import ZERO_UUID, Message, Struct, fields
from tests.protocol.catalogue import all_messages, draw_for_versions, versions

# kio runs on Python 3.11 and later only.
kio_index = pytest.importorskip("kio.schema.index")
kio_serial = pytest.importorskip("kio.serial")

# kio turns codes, times and durations into enums, datetimes and timedeltas, which hold less.
LIMITS = (
    ("error_code", 0, 120),
    ("acknowledge_error_code", 0, 120),
    ("topic_config_error_code", 0, 120),
    ("partition_error_code", 0, 120),
    ("int64", 0, 2**41),
    ("int32", 0, 2**31 - 1),
)

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)


@lru_cache(maxsize=1)
def entities() -> dict[tuple[str, int], str]:
    """Where kio has the class of a message and version."""
    found = {}
    for by_version in kio_index.schema_name_map.values():
        for version, by_type in by_version.items():
            for place in by_type.values():
                found[place.partition(":")[2], version] = place
    return found


def entity(cls: type[Message], version: int) -> Any:
    place = entities().get((cls.__name__, version))
    if place is None:
        return None
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def plain(value: Any) -> Any:
    """A value of kio's as we would have it."""
    if dataclasses.is_dataclass(value):
        return [plain(getattr(value, f.name)) for f in dataclasses.fields(value)]
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, enum.Enum):
        return value.value
    return value


def ours(value: Any, version: int) -> Any:
    """The same for a value of ours: structs become the list of their fields."""
    if isinstance(value, Struct):
        present = [f for f in fields(type(value)) if f.versions.has(version)]
        return [ours(getattr(value, f.name), version) for f in present]
    if isinstance(value, list):
        return [ours(item, version) for item in value]
    if isinstance(value, memoryview):
        return bytes(value)
    return None if value == ZERO_UUID else value  # kio's way to say "no id"


def pairs() -> list[Any]:
    return [
        pytest.param(cls, id=cls.__name__)
        for cls in all_messages()
        if any(entity(cls, version) for version in versions(cls))
    ]


@pytest.mark.parametrize("cls", pairs())
@settings(
    max_examples=3,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_agreement(cls: type[Message], data: st.DataObject) -> None:
    for version, message in draw_for_versions(data, cls, LIMITS):
        kio_class = entity(cls, version)
        if kio_class is None:
            continue
        encoded = codec(cls, version).encode_bytes(message)

        read, size = kio_serial.entity_reader(kio_class)(encoded, 0)
        assert size == len(encoded)
        assert plain(read) == ours(message, version)

        out = io.BytesIO()
        kio_serial.entity_writer(kio_class)(out, read)
        assert out.getvalue() == encoded
        assert codec(cls, version).decode(out.getvalue()) == message


def test_count(record_property: Callable[[str, object], None]) -> None:
    compared = [
        (cls, version)
        for cls in all_messages()
        for version in versions(cls)
        if entity(cls, version) is not None
    ]
    record_property("summary", f"Protocol: {len(compared)} message versions agree with kio's.")
    assert len({cls for cls, _ in compared}) > 140
    assert len(compared) > 540
