"""Write the Python source that encodes one version of one message.

The values are not checked beforehand: a value that does not fit makes `struct` or a method call
fail. `aiokafka.protocol.compiler` then finds out which field it was.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from aiokafka.errors import UnsupportedVersionError
from aiokafka.protocol._source import (
    INTEGERS,
    LENGTH_CODES,
    Source,
    generated,
    new_scope,
    packing,
    split_fields,
)
from aiokafka.protocol.primitives import put_uvarint
from aiokafka.protocol.schema import fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokafka.protocol.schema import Field, Struct, Type

# Shorter record sets are copied: a separate buffer would cost more than the copy.
_SEPARATE_FROM = 1024

# In any version: brokers close the connection on which a longer string comes.
_LONGEST_STRING = 0x7FFF


def make_encoder(cls: type[Struct], version: int, flexible: bool) -> Callable[..., Any]:
    """Return a function ``encode(message, out: bytearray) -> list of buffers``; `out` is the first.

    Bad values raise struct.error, TypeError, AttributeError, KeyError or ValueError.
    """
    name = f"encode_{cls.__name__}_v{version}"
    built = generated(name, cls, version)
    if built is not None:
        return built
    writer = _EncoderWriter(new_scope(**_NAMES), version, flexible)
    with writer.block(f"def {name}(o, out):"):
        writer.line("chunks = []")
        writer.struct(cls, "o")
        writer.flush()
        writer.line("chunks.append(out)")
        writer.line("return chunks")
    return writer.define(name)


def _as_list(value: object) -> list[Any]:
    if isinstance(value, list | tuple):
        return list(value)
    raise TypeError(f"expected a list, got {type(value).__name__}")


def _as_bytes(value: object) -> bytes | bytearray | memoryview:
    if isinstance(value, memoryview):
        is_flat = value.format == "B" and value.c_contiguous
        return value if is_flat else value.tobytes()
    if isinstance(value, bytes | bytearray):
        return value
    raise TypeError(f"expected bytes, got {type(value).__name__}")


def _as_uuid(value: bytes) -> bytes:
    if len(value) != 16:
        raise ValueError(f"expected 16 bytes, got {len(value)}")
    return value


def _put_long_length(out: bytearray, length: int) -> None:
    """Write the length, plus one, of a string of a flexible version."""
    if length > _LONGEST_STRING + 1:
        raise ValueError("too long a string")
    put_uvarint(out, length)


def _unsupported(message: Struct, name: str, version: int) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"{type(message).__name__}.{name} is set to {getattr(message, name)!r}, "
        f"but version {version} has no such field"
    )


class _Packers(dict[int, Any]):
    """Packers of `n` integers, by `n`; only small ones are kept."""

    def __init__(self, integer: str) -> None:
        self._integer = integer

    def __missing__(self, count: int) -> Any:
        pack = struct.Struct(f">{count}{self._integer}").pack
        if count < 64:
            self[count] = pack
        return pack


_NAMES = {
    "put_uvarint": put_uvarint,
    "put_long_length": _put_long_length,
    "flags": {False: 0, True: 1},
    "as_list": _as_list,
    "as_bytes": _as_bytes,
    "as_uuid": _as_uuid,
    "unsupported": _unsupported,
}


class _EncoderWriter(Source):
    def __init__(self, scope: dict[str, Any], version: int, flexible: bool) -> None:
        super().__init__(scope)
        self.version = version
        self.flexible = flexible
        self._run: list[tuple[str, str]] = []

    # -- runs of fixed-width values

    def write(self, code: str, expression: str) -> None:
        self._run.append((code, expression))

    def flush(self) -> None:
        """Write the one call that packs every value queued since the last flush."""
        if not self._run:
            return
        codes = "".join(code for code, _ in self._run)
        values = ", ".join(expression for _, expression in self._run if expression)
        if values:
            packer = f"pack_{codes}"
            self.scope[packer] = packing(codes).pack
            self.line(f"out += {packer}({values})")
        else:
            self.line(f"out += {bytes(len(codes))!r}")
        self._run.clear()

    # -- structs

    def struct(self, cls: type[Struct], variable: str) -> None:
        """Write the code that encodes the struct in `variable`. Its last run is not flushed."""
        plain, tagged = split_fields(cls, self.version, self.flexible)
        for field in fields(cls):
            if not field.versions.has(self.version) and not field.ignorable:
                self._refuse(field, variable)
        for field in plain:
            self.value(field.type, field.nullable.has(self.version), f"{variable}.{field.name}")
        if tagged:
            self._tags(tagged, variable)
        elif self.flexible:
            self.write("x", "")  # no tagged fields

    def _refuse(self, field: Field, variable: str) -> None:
        """Write a check that refuses a value for a field that the version lacks."""
        default = self.constant("default", field.default)
        value = f"{variable}.{field.name}"
        with self.block(f"if {value} is not {default} and {value} != {default}:"):
            self.line(f"raise unsupported({variable}, {field.name!r}, {self.version})")

    def _tags(self, tagged: list[Field], variable: str) -> None:
        self.flush()
        defaults = [self.constant("default", f.default) for f in tagged]
        unset = (f"{variable}.{f.name} is {d}" for f, d in zip(tagged, defaults, strict=True))
        with self.block(f"if {' and '.join(unset)}:"):
            self.line("out.append(0)")
        with self.block("else:"):
            # Rare in practice, so it is a function of its own, written on demand.
            writer = self.defer("tags", lambda name: self._tag_writer(name, tagged, defaults))
            self.line(f"{writer}({variable}, out)")

    def _tag_writer(self, name: str, tagged: list[Field], defaults: list[str]) -> Source:
        """Write a function that writes a section of tagged fields."""
        writer = _EncoderWriter(self.scope, self.version, self.flexible)
        with writer.block(f"def {name}(o, sink):"):
            writer.line("found = []")
            for field, default in zip(tagged, defaults, strict=True):
                value = f"o.{field.name}"
                with writer.block(f"if {value} is not {default} and {value} != {default}:"):
                    writer.line("out = bytearray()")
                    writer.value(field.type, field.nullable.has(self.version), value)
                    writer.flush()
                    writer.line(f"found.append(({field.tag}, out))")
            writer.line("put_uvarint(sink, len(found))")
            with writer.block("for tag, out in found:"):
                writer.line("put_uvarint(sink, tag)")
                writer.line("put_uvarint(sink, len(out))")
                writer.line("sink += out")
        return writer

    # -- values

    def value(self, wire: Type, nullable: bool, expression: str) -> None:
        if wire.kind == "bool":
            self.write("B", f"flags[{expression}]")
        elif wire.kind == "uuid":
            self.write(wire.code, f"as_uuid({expression})")
        elif wire.code:
            self.write(wire.code, expression)
        elif nullable:
            self._nullable(wire, expression)
        else:
            self._present(wire, expression)

    def _nullable(self, wire: Type, expression: str) -> None:
        self.flush()
        with self.block(f"if {expression} is None:"):
            if wire.kind == "struct":
                self.line(r"out += b'\xff'")
            elif self.flexible:
                self.line("out.append(0)")
            else:
                null = packing(LENGTH_CODES[wire.kind]).pack(-1)
                self.line(f"out += {null!r}")
        with self.block("else:"):
            if wire.kind == "struct":
                self.line(r"out += b'\x01'")
            self._present(wire, expression)
            self.flush()

    def _present(self, wire: Type, expression: str) -> None:
        value = self.fresh("v")
        self.line(f"{value} = {expression}")
        if wire.struct is not None:
            self.struct(wire.struct, value)
        elif wire.kind == "string":
            self.line(f"{value} = {value}.encode()")
            self._length(wire.kind, value)
            self.line(f"out += {value}")
        elif wire.kind == "array":
            self._array(wire, value)
        else:
            with self.block(f"if type({value}) is not bytes:"):
                self.line(f"{value} = as_bytes({value})")
            self._length(wire.kind, value)
            if wire.kind == "records":
                self._separate(value)
            else:
                self.line(f"out += {value}")

    def _length(self, kind: str, value: str) -> None:
        """Write the length of `value`, after everything queued before it."""
        if not self.flexible:
            self.write(LENGTH_CODES[kind], f"len({value})")
            self.flush()
            return
        self.flush()
        length = self.fresh("n")
        self.line(f"{length} = len({value}) + 1")
        with self.block(f"if {length} < 128:"):
            self.line(f"out.append({length})")
        with self.block("else:"):
            put = "put_long_length" if kind == "string" else "put_uvarint"
            self.line(f"{put}(out, {length})")

    def _separate(self, value: str) -> None:
        """Write the code that passes a long record set on as a buffer of its own, uncopied."""
        with self.block(f"if len({value}) < {_SEPARATE_FROM}:"):
            self.line(f"out += {value}")
        with self.block("else:"):
            self.line("chunks.append(out)")
            self.line(f"chunks.append({value})")
            self.line("out = bytearray()")

    def _array(self, wire: Type, value: str) -> None:
        element = wire.element
        assert element is not None
        with self.block(f"if type({value}) is not list:"):
            self.line(f"{value} = as_list({value})")
        self._length(wire.kind, value)
        if element.kind in INTEGERS:
            self.scope["packers_" + element.code] = _Packers(element.code)
            self.line(f"out += packers_{element.code}[len({value})](*{value})")
            return
        item = self.fresh("o")
        with self.block(f"for {item} in {value}:"):
            if element.struct is not None:
                self.struct(element.struct, item)
            else:
                self.value(element, False, item)
            self.flush()
