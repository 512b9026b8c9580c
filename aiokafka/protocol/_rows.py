"""Structs as tuples, told apart by the order of their fields alone.

A struct of ours and a tuple of an older program hold the same values in the order in which they
travel, so a list of names is the only difference::

    topics(topic partitions(partition error_code))

Parentheses follow a list of structs. A list of structs with one field is a plain list where they
are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from aiokafka.protocol.schema import OPEN_END, Field, Struct, Versions, fields

__all__ = ["Row"]

_TOKENS = re.compile(r"[a-z_0-9]+|[()]")


class _Name(NamedTuple):
    text: str
    inner: tuple[_Name, ...]


def _names(tokens: Iterator[str]) -> tuple[_Name, ...]:
    found: list[_Name] = []
    for token in tokens:
        if token == ")":
            break
        if token == "(":
            found[-1] = _Name(found[-1].text, _names(tokens))
        else:
            found.append(_Name(token, ()))
    return tuple(found)


class _Column(NamedTuple):
    """One value: its older name, our field, and the form of the structs in it."""

    name: str
    field: Field
    row: Row | None
    is_bare: bool

    def pack(self, value: Any, version: int) -> Any:
        if self.row is None or value is None:
            return value
        if self.is_bare:
            value = [(item,) for item in value]
        return [self.row.pack(item, version) for item in value]

    def unpack(self, value: Any, version: int) -> Any:
        if isinstance(value, memoryview):
            return bytes(value)  # a record set lies in the buffer of the whole response
        if not isinstance(value, list):
            return value
        if self.row is None:
            return list(value)
        rows = [self.row.unpack(item, version) for item in value]
        return [row[0] for row in rows] if self.is_bare else rows

    def label(self, value: Any, version: int) -> Any:
        if self.row is None or self.is_bare or value is None:
            return value
        return [self.row.label(item, version) for item in value]


class Row:
    """The tuple form of a struct in the versions `span`.

    Structs of flexible versions (KIP-482) have their tagged fields as one more value, at the end.
    """

    def __init__(
        self,
        struct: type[Struct],
        names: str | tuple[_Name, ...],
        span: Versions,
        flexible: int | None,
    ) -> None:
        if isinstance(names, str):
            names = _names(iter(_TOKENS.findall(names)))
        on_wire = [
            f
            for f in fields(struct)
            if f.tag is None and f.versions.first <= span.last and f.versions.last >= span.first
        ]
        if len(on_wire) != len(names):
            raise TypeError(f"{struct.__name__}: {len(on_wire)} fields, {len(names)} names")
        self.struct: type[Any] = struct
        self._flexible = OPEN_END if flexible is None else flexible
        self._columns = [
            _column(f, name, span, flexible) for f, name in zip(on_wire, names, strict=True)
        ]

    def names(self, version: int) -> list[str]:
        """Return the names of the values in this version."""
        tags = ["tags"] if version >= self._flexible else []
        return [column.name for column in self._of(version)] + tags

    def pack(self, values: Sequence[Any], version: int) -> Any:
        """Convert a tuple to the struct. Raises ValueError if its length is wrong."""
        columns = self._of(version)
        tags = version >= self._flexible
        if len(values) != len(columns) + tags:
            wanted = ", ".join(self.names(version))
            raise ValueError(f"a struct in it is a tuple ({wanted}), not {values!r}")
        if tags and values[-1]:
            raise ValueError(f"tags={values[-1]!r}: tagged fields are not sent")
        packed = {
            column.field.name: column.pack(value, version)
            for column, value in zip(columns, values, strict=False)
        }
        return self.struct(**packed)

    def unpack(self, struct: Any, version: int) -> tuple[Any, ...]:
        """Convert the struct to a tuple."""
        values = [
            column.unpack(getattr(struct, column.field.name), version)
            for column in self._of(version)
        ]
        return (*values, {}) if version >= self._flexible else tuple(values)

    def label(self, values: Sequence[Any], version: int) -> dict[str, Any]:
        """Return the values of a tuple by name, and so the values of tuples within."""
        labelled = dict(zip(self.names(version), values, strict=False))
        for column in self._of(version):
            labelled[column.name] = column.label(labelled[column.name], version)
        return labelled

    def _of(self, version: int) -> list[_Column]:
        return [column for column in self._columns if column.field.versions.has(version)]


def _column(field: Field, name: _Name, span: Versions, flexible: int | None) -> _Column:
    element = field.type.element
    if element is None or element.struct is None:
        return _Column(name.text, field, None, False)
    row = Row(element.struct, name.inner or (_Name("", ()),), span, flexible)
    return _Column(name.text, field, row, is_bare=not name.inner)
