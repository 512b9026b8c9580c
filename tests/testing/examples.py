"""A request of any class with one element in every list, made from its declaration."""

from __future__ import annotations

from typing import Any

from aiokafka.protocol.schema import Request, Struct, Type, fields

_BY_KIND: dict[str, Any] = {
    "int8": 0,
    "int16": 0,
    "int32": 0,
    "int64": 0,
    "uint16": 0,
    "uint32": 0,
    "float64": 0.0,
    "bool": False,
    "uuid": bytes(16),
    "string": "x",
    "bytes": b"x",
    "records": b"",
}


def example_request(cls: type[Request[Any]], version: int) -> Request[Any]:
    """Plain values wherever this version has a field."""
    made: Any = _example(cls, version)
    return made  # type: ignore[no-any-return]


def _example(cls: type[Struct], version: int) -> Struct:
    values = {}
    for f in fields(cls):
        if (f.versions.has(version) and f.tag is None) or f.required:
            values[f.name] = _value(f.type, version)
    return cls(**values)


def _value(kind: Type, version: int) -> Any:
    if kind.element is not None:
        return [_value(kind.element, version)]
    if kind.struct is not None:
        return _example(kind.struct, version)
    return _BY_KIND[kind.kind]
