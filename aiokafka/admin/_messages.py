"""Convert JSON data to protocol messages and back, for requests that users write as JSON."""

from __future__ import annotations

import base64
import importlib
import pkgutil
import uuid
from collections.abc import Mapping
from typing import Any

from aiokafka.protocol import messages
from aiokafka.protocol.schema import Request, Struct, Type, fields

__all__ = ["as_plain", "request_of"]


def request_of(api: str, values: Mapping[str, Any]) -> Request[Any]:
    """Return the request of an API, such as "DescribeGroups", with these fields.

    `values` is JSON data: UUIDs are text, bytes are base64. Raises LookupError for an unknown API,
    and TypeError or ValueError for fields that are unknown, missing or of another type.
    """
    name = f"{api.removesuffix('Request')}Request"
    for module in pkgutil.iter_modules(messages.__path__):
        found = getattr(importlib.import_module(f"{messages.__name__}.{module.name}"), name, None)
        if isinstance(found, type) and issubclass(found, Request):
            request: Request[Any] = _struct(found, values)
            return request
    raise LookupError(f"{api}: no API of this name, such as DescribeGroups")


def _struct(kind: type[Struct], values: Any) -> Any:
    if not isinstance(values, Mapping):
        raise TypeError(f"{kind.__name__}: must be an object, not {values!r}")
    known = {each.name: each for each in fields(kind)}
    unknown = sorted(values.keys() - known)
    if unknown:
        raise TypeError(
            f"{kind.__name__}: no field {', '.join(unknown)}; fields: {', '.join(known)}"
        )
    lacking = [each.name for each in known.values() if each.required and each.name not in values]
    if lacking:
        raise TypeError(f"{kind.__name__}: lacks {', '.join(lacking)}")
    return kind(
        **{
            name: _value(f"{kind.__name__}.{name}", known[name].type, value)
            for name, value in values.items()
        }
    )


def _value(place: str, kind: Type, value: Any) -> Any:
    if value is None:
        return None
    if kind.element is not None:
        if not isinstance(value, list):
            raise TypeError(f"{place}: must be a list, not {value!r}")
        return [_value(place, kind.element, each) for each in value]
    if kind.struct is not None:
        return _struct(kind.struct, value)
    if kind.kind in ("uuid", "bytes", "records"):
        return _coded(place, kind, value)
    return value


def _coded(place: str, kind: Type, value: Any) -> bytes:
    form = "a UUID" if kind.kind == "uuid" else "base64"
    if not isinstance(value, str):
        raise TypeError(f"{place}: must be {form}, not {value!r}")
    try:
        if kind.kind == "uuid":
            return uuid.UUID(value).bytes
        return base64.b64decode(value, validate=True)
    except ValueError as error:
        raise ValueError(f"{place}: must be {form}: {error}") from None


def as_plain(message: Struct) -> dict[str, Any]:
    """Return the fields of a message as JSON data, in the form that `request_of` accepts."""
    return {
        each.name: _plain(each.type, getattr(message, each.name)) for each in fields(type(message))
    }


def _plain(kind: Type, value: Any) -> Any:
    if value is None:
        return None
    if kind.element is not None:
        return [_plain(kind.element, each) for each in value]
    if kind.struct is not None:
        return as_plain(value)
    if kind.kind == "uuid":
        return str(uuid.UUID(bytes=bytes(value)))
    if kind.kind in ("bytes", "records"):
        return base64.b64encode(value).decode()
    return value
