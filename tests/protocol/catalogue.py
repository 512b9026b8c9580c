"""Every message class, and arbitrary values of them."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from aiokafka.protocol import messages
from aiokafka.protocol.schema import Message, Request, Response, Struct, Type, fields


def all_messages() -> list[type[Message]]:
    """The message classes, in the order of their names."""
    found = set()
    for info in pkgutil.iter_modules(messages.__path__):
        module = importlib.import_module(f"{messages.__name__}.{info.name}")
        found |= {c for c in vars(module).values() if _is_message(c)}
    return sorted(found, key=lambda c: c.__name__)


def _is_message(value: object) -> bool:
    bases = (Message, Request, Response)
    return isinstance(value, type) and issubclass(value, Message) and value not in bases


def versions(cls: type[Message]) -> range:
    return range(cls.VERSIONS[0], cls.VERSIONS[1] + 1)


def layout(cls: type[Struct], version: int) -> tuple[Any, ...]:
    """What decides which values a version can carry; many versions are like the one before."""
    return tuple(
        (f.name, f.nullable.has(version), element.struct and layout(element.struct, version))
        for f in fields(cls)
        for element in [f.type.element or f.type]
        if f.versions.has(version)
    )


def draw_for_versions(
    data: st.DataObject, cls: type[Message], limits: tuple[tuple[str, int, int], ...] = ()
) -> Iterator[tuple[int, Any]]:
    """Every version with a message for it, the same for versions of one layout."""
    drawn: dict[tuple[Any, ...], Any] = {}
    for version in versions(cls):
        shape = layout(cls, version)
        if shape not in drawn:
            drawn[shape] = data.draw(values(cls, version, limits))
        yield version, drawn[shape]


_INTEGERS = {
    "int8": (-(2**7), 2**7 - 1),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint16": (0, 2**16 - 1),
    "uint32": (0, 2**32 - 1),
}


_known: dict[Any, st.SearchStrategy[Any]] = {}


def values(
    cls: type[Struct], version: int, limits: tuple[tuple[str, int, int], ...] = ()
) -> st.SearchStrategy[Any]:
    """Structs with arbitrary values in the fields that a version has.

    limits: narrower ranges of integers, by kind of integer or name of field.
    """
    key = cls, version, limits
    if key not in _known:
        _known[key] = _make_values(cls, version, limits)
    return _known[key]


def _make_values(
    cls: type[Struct], version: int, limits: tuple[tuple[str, int, int], ...]
) -> st.SearchStrategy[Any]:
    ranges = {kind: (low, high) for kind, low, high in limits}
    given = {}
    for field in fields(cls):
        if not field.versions.has(version):
            continue
        found = _values(field.type, version, limits)
        if field.name in ranges:
            found = st.integers(*ranges[field.name])
        if field.nullable.has(version):
            found = st.none() | found
        given[field.name] = found
    return st.builds(cls, **given)


def _values(
    wire: Type, version: int, limits: tuple[tuple[str, int, int], ...]
) -> st.SearchStrategy[Any]:
    if wire.element is not None:
        return st.lists(_values(wire.element, version, limits), max_size=3)
    if wire.struct is not None:
        return values(wire.struct, version, limits)
    if wire.kind in _INTEGERS:
        narrowed = {kind: (low, high) for kind, low, high in limits}
        return st.integers(*narrowed.get(wire.kind, _INTEGERS[wire.kind]))
    simple: dict[str, st.SearchStrategy[Any]] = {
        "bool": st.booleans(),
        "float64": st.floats(allow_nan=False),
        "uuid": st.binary(min_size=16, max_size=16),
        "string": st.text(max_size=6) | st.just("é" * 70),
        "bytes": st.binary(max_size=6) | st.just(b"b" * 200),
        "records": st.binary(max_size=6) | st.just(b"r" * 2000),
    }
    return simple[wire.kind]
