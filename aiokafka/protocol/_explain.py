"""Find out why a message could not be encoded. Slow, and only called after a failure."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from aiokafka.protocol.schema import Struct, Type, fields

if TYPE_CHECKING:
    from collections.abc import Iterator

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "string": (str,),
    "bytes": (bytes, bytearray, memoryview),
    "records": (bytes, bytearray, memoryview),
    "uuid": (bytes,),
    "float64": (float, int),
    "array": (list, tuple),
}


def explain(message: Any, cls: type[Struct], version: int, error: Exception) -> Exception:
    """Return a TypeError or ValueError that names the first bad field, else the error itself."""
    return next(_faults(message, cls, version, cls.__name__), error)


def _faults(value: Any, cls: type[Struct], version: int, path: str) -> Iterator[Exception]:
    if not isinstance(value, cls):
        yield _wrong_type(path, cls.__name__, value)
        return
    for field in fields(cls):
        if not field.versions.has(version):
            continue
        where = f"{path}.{field.name}"
        nullable = field.nullable.has(version)
        for fault in _check(getattr(value, field.name), field.type, nullable, version, where):
            yield type(fault)(f"{where}: a bad value (not shown)") if field.secret else fault


def _check(value: Any, wire: Type, nullable: bool, version: int, path: str) -> Iterator[Exception]:
    if value is None:
        if not nullable:
            yield ValueError(f"{path} must not be None in version {version}")
    elif wire.struct is not None:
        yield from _faults(value, wire.struct, version, path)
    elif not _has_type(value, wire.kind):
        yield _wrong_type(path, wire.kind, value)
    elif wire.element is not None:
        for index, item in enumerate(value):
            yield from _check(item, wire.element, False, version, f"{path}[{index}]")
    else:
        yield from _check_range(value, wire, path)


def _has_type(value: Any, kind: str) -> bool:
    return isinstance(value, _PYTHON_TYPES.get(kind, (int,)))


def _check_range(value: Any, wire: Type, path: str) -> Iterator[Exception]:
    if wire.kind == "string":
        try:
            size = len(value.encode())
        except UnicodeEncodeError as error:
            yield ValueError(f"{path} cannot be encoded as UTF-8: {error.reason}")
        else:
            if size > 32767:
                yield ValueError(f"{path}: {size} bytes are more than a string may have (32767)")
    elif wire.kind == "uuid" and len(value) != 16:
        yield ValueError(f"{path}: a uuid has 16 bytes, not {len(value)}")
    elif wire.code and wire.kind not in ("uuid", "bool"):
        try:
            struct.pack(">" + wire.code, value)
        except (struct.error, OverflowError):
            yield ValueError(f"{path}: {value!r} is out of range for {wire.kind}")


def _wrong_type(path: str, expected: str, value: Any) -> TypeError:
    return TypeError(f"{path}: expected {expected}, got {type(value).__name__} {value!r:.100}")
