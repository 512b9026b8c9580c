"""Validity and compatibility of Avro schemas, for the fake schema registry."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

__all__ = ["LEVELS", "avro_conflicts", "check_avro"]

LEVELS = frozenset(
    {
        "NONE",
        "BACKWARD",
        "BACKWARD_TRANSITIVE",
        "FORWARD",
        "FORWARD_TRANSITIVE",
        "FULL",
        "FULL_TRANSITIVE",
    }
)

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
_NAMED = ("record", "error", "enum", "fixed")


def check_avro(schema: Any, known: Collection[str | None] = ()) -> None:
    """Raise ValueError for an invalid schema. `known`: the names of referenced types."""
    _check(schema, {name for name in known if name})


def _check(schema: Any, known: set[str]) -> None:
    if isinstance(schema, str):
        if schema not in _PRIMITIVES and schema not in known and _last(schema) not in known:
            raise ValueError(f"unknown type {schema!r}")
        return
    if isinstance(schema, list):
        for each in schema:
            _check(each, known)
        return
    if not isinstance(schema, dict) or "type" not in schema:
        raise ValueError(f"{schema!r} is no type")
    kind = schema["type"]
    if kind in _NAMED:
        name = schema.get("name")
        if not isinstance(name, str):
            raise ValueError(f"the {kind} has no name")
        known.add(_last(name))
    if kind in ("record", "error"):
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise ValueError(f"the record {schema['name']!r} has no fields")
        for each in fields:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str):
                raise ValueError(f"the record {schema['name']!r} has a field without a name")
            _check(each.get("type"), known)
    elif kind == "array":
        _check(schema.get("items"), known)
    elif kind == "map":
        _check(schema.get("values"), known)
    elif kind == "enum":
        if not isinstance(schema.get("symbols"), list):
            raise ValueError(f"the enum {schema['name']!r} has no symbols")
    elif kind != "fixed":
        _check(kind, known)


def avro_conflicts(reader: Any, writer: Any) -> list[str]:
    """Return the reasons why records of the schema `writer` cannot be read with the schema
    `reader`; [] if they can be read. References to types are equal if the names are equal."""
    named: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    _collect(reader, named[0])
    _collect(writer, named[1])
    return list(_resolve(reader, writer, named, "", set()))


def _collect(schema: Any, names: dict[str, Any]) -> None:
    """Add the named types of a schema to `names`."""
    if isinstance(schema, list):
        for each in schema:
            _collect(each, names)
    elif isinstance(schema, dict):
        if schema.get("type") in _NAMED:
            names[_last(schema["name"])] = schema
        for part in ("type", "items", "values"):
            if isinstance(schema.get(part), (dict, list)):
                _collect(schema[part], names)
        for each in schema.get("fields", ()):
            _collect(each.get("type"), names)


def _resolve(
    reader: Any,
    writer: Any,
    named: tuple[dict[str, Any], dict[str, Any]],
    path: str,
    seen: set[tuple[str, str]],
) -> list[str]:
    reader, writer = _definition(reader, named[0]), _definition(writer, named[1])
    if isinstance(writer, list):
        return [one for each in writer for one in _resolve(reader, each, named, path, seen)]
    if isinstance(reader, list):
        tries = [_resolve(each, writer, named, path, set(seen)) for each in reader]
        if any(not some for some in tries):
            return []
        return [f"{path or '/'}: no branch of the union reads {_kind(writer)}"]
    read, written = _kind(reader), _kind(writer)
    if read != written:
        if read in _PROMOTIONS.get(written, ()):
            return []
        return [f"{path or '/'}: {written} cannot be read as {read}"]
    if read in ("record", "error"):
        return _resolve_records(reader, writer, named, path, seen)
    if read == "array":
        return _resolve(reader["items"], writer["items"], named, f"{path}/items", seen)
    if read == "map":
        return _resolve(reader["values"], writer["values"], named, f"{path}/values", seen)
    if read == "enum" and "default" not in reader:
        missing = sorted(set(writer["symbols"]) - set(reader["symbols"]))
        return [f"{path or '/'}: the symbols {missing} are missing"] if missing else []
    if read == "fixed" and reader.get("size") != writer.get("size"):
        return [f"{path or '/'}: the sizes differ"]
    return []


def _resolve_records(
    reader: Any,
    writer: Any,
    named: tuple[dict[str, Any], dict[str, Any]],
    path: str,
    seen: set[tuple[str, str]],
) -> list[str]:
    pair = (_last(reader["name"]), _last(writer["name"]))
    if pair in seen:  # a recursive type
        return []
    seen.add(pair)
    found = []
    if pair[0] != pair[1] and writer["name"] not in reader.get("aliases", ()):
        found.append(f"{path or '/'}: the names {writer['name']!r} and {reader['name']!r} differ")
    written = {each["name"]: each for each in writer["fields"]}
    for each in reader["fields"]:
        names = [each["name"], *each.get("aliases", ())]
        its = next((written[name] for name in names if name in written), None)
        where = f"{path}/{each['name']}"
        if its is not None:
            found += _resolve(each["type"], its["type"], named, where, seen)
        elif "default" not in each:
            found.append(f"{where}: the field has no default value, and is missing")
    return found


def _definition(schema: Any, names: dict[str, Any]) -> Any:
    if isinstance(schema, str) and schema not in _PRIMITIVES:
        return names.get(_last(schema), {"type": "reference", "name": schema})
    if isinstance(schema, dict) and isinstance(schema.get("type"), (dict, list)):
        return _definition(schema["type"], names)
    return schema


def _kind(schema: Any) -> str:
    if isinstance(schema, str):
        return schema
    kind = schema["type"]
    return f"{kind} {schema['name']}" if kind == "reference" else str(kind)


def _last(name: str) -> str:
    return name.rpartition(".")[2]
