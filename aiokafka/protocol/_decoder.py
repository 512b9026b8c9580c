"""Write the Python source that decodes one version of one message.

Neighbouring fixed-width fields, with the length or count that follows them, become one call of
`struct`. Arrays and nested structs become loops of the same function.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from aiokafka.errors import KafkaProtocolError
from aiokafka.protocol._source import (
    INTEGERS,
    LENGTH_CODES,
    Source,
    generated,
    has_records,
    min_size,
    new_scope,
    packing,
    split_fields,
)
from aiokafka.protocol.primitives import get_uvarint, skip_tags

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokafka.protocol.schema import Field, Struct, Type


def make_decoder(cls: type[Struct], version: int, flexible: bool) -> Callable[..., Any]:
    """Return a function ``decode(buffer, position) -> (message, position after it)``.

    The buffer is bytes or bytearray. Malformed bytes raise KafkaProtocolError, struct.error,
    IndexError or UnicodeDecodeError; all of these mean the same.
    """
    name = f"decode_{cls.__name__}_v{version}"
    built = generated(name, cls, version)
    if built is not None:
        return built
    writer = _DecoderWriter(new_scope(**_NAMES), version, flexible)
    with writer.block(f"def {name}(buf, pos):"):
        writer.line("size = len(buf)")
        if has_records(cls):
            writer.line("view = memoryview(buf)")
        root = writer.struct(cls, "")
        writer.flush()
        writer.line(f"return {root}, pos")
    return writer.define(name)


def _bad_length(path: str, length: int, left: int) -> KafkaProtocolError:
    if length < 0:
        return KafkaProtocolError(f"{path}: null or a negative length ({length}) is not allowed")
    return KafkaProtocolError(f"{path}: length {length} exceeds the remaining {left} bytes")


def _bad_value(path: str, value: int) -> KafkaProtocolError:
    return KafkaProtocolError(f"{path}: {value} is not a valid value")


_NAMES = {
    "new": object.__new__,
    "uvarint": get_uvarint,
    "skip_tags": skip_tags,
    "bools": (False, True),
    "bad_length": _bad_length,
    "bad_value": _bad_value,
}


class _Unpackers(dict[int, Any]):
    """Unpackers of `n` integers and what follows them, by `n`; only small ones are kept."""

    def __init__(self, integer: str, behind: str) -> None:
        self._integer = integer
        self._behind = behind

    def __missing__(self, count: int) -> Any:
        unpack = struct.Struct(f">{count}{self._integer}{self._behind}").unpack_from
        if count < 64:
            self[count] = unpack
        return unpack


class _DecoderWriter(Source):
    def __init__(self, scope: dict[str, Any], version: int, flexible: bool) -> None:
        super().__init__(scope)
        self.version = version
        self.flexible = flexible
        self._integers: tuple[str, str, str] | None = None  # an array at the start of the run
        self._run: list[tuple[str, str]] = []
        self._after: list[str] = []

    # -- runs of fixed-width values

    def read(self, code: str, target: str) -> None:
        self._run.append((code, target))

    def flush(self) -> None:
        """Write the one call that reads every field queued since the last flush."""
        codes = "".join(code for code, _ in self._run)
        targets = [target for _, target in self._run]
        size = packing(codes).size
        if self._integers is not None:
            integer, target, count = self._integers
            unpackers = f"unpackers_{integer}_{codes}"
            self.scope[unpackers] = _Unpackers(integer, codes)
            self.line(f"({', '.join(['*' + target, *targets])},) = {unpackers}[{count}](buf, pos)")
            self.line(f"pos += {packing(integer).size} * {count} + {size}")
        elif codes == "B":
            self.line(f"{targets[0]} = buf[pos]")
            self.line("pos += 1")
        elif codes:
            self.scope[f"unpack_{codes}"] = packing(codes).unpack_from
            self.line(f"({', '.join(targets)},) = unpack_{codes}(buf, pos)")
            self.line(f"pos += {size}")
        for text in self._after:
            self.line(text)
        self._integers = None
        self._run.clear()
        self._after.clear()

    # -- structs

    def struct(self, cls: type[Struct], path: str) -> str:
        """Write the code that reads a struct; return its variable. The last run is not flushed."""
        variable = self.fresh("o")
        self.line(f"{variable} = new({self.constant(cls.__name__, cls)})")
        plain, tagged = split_fields(cls, self.version, self.flexible)
        for field in plain:
            self.value(field, f"{variable}.{field.name}", _join(path, field.name))
        if self.flexible:
            self._tags(tagged, variable, path)
        return variable

    def _tags(self, tagged: list[Field], variable: str, path: str) -> None:
        count = self.fresh("n")
        self.read("B", count)
        self.flush()
        with self.block(f"if {count}:"):
            if tagged:
                # Rare in practice, so it is a function of its own, written on demand.
                reader = self.defer("tags", lambda name: self._tag_reader(name, tagged, path))
                self.line(f"pos = {reader}(buf, pos - 1, size, {variable})")
            else:
                self.line("pos = skip_tags(buf, pos - 1, size)")

    def _tag_reader(self, name: str, tagged: list[Field], path: str) -> Source:
        """Write a function that reads a section of tagged fields."""
        writer = _DecoderWriter(self.scope, self.version, self.flexible)
        with writer.block(f"def {name}(buf, pos, limit, o):"):
            writer.line("count, pos = uvarint(buf, pos)")
            writer.line("previous = -1")
            with writer.block("while count > 0:"):
                writer.line("count -= 1")
                writer.line("tag, pos = uvarint(buf, pos)")
                # Tags ascend (KIP-482), so a field cannot be repeated a million times.
                with writer.block("if tag <= previous:"):
                    writer.line(f"raise bad_value({path + ' tag'!r}, tag)")
                writer.line("previous = tag")
                writer.line("length, pos = uvarint(buf, pos)")
                writer.line("size = pos + length")
                with writer.block("if size > limit:"):
                    writer.line(
                        f"raise bad_length({path + ' tagged field'!r}, length, limit - pos)"
                    )
                for index, field in enumerate(tagged):
                    with writer.block(f"{'elif' if index else 'if'} tag == {field.tag}:"):
                        where = _join(path, field.name)
                        writer.value(field, f"o.{field.name}", where)
                        writer.flush()
                        with writer.block("if pos != size:"):
                            writer.line(f"raise bad_length({where!r}, length, size - pos)")
                writer.line("pos = size")
            writer.line("return pos")
        return writer

    # -- values

    def value(self, field: Field, target: str, path: str) -> None:
        self._value(field.type, field.nullable.has(self.version), target, path)

    def _value(self, wire: Type, nullable: bool, target: str, path: str) -> None:
        if wire.kind == "bool":
            flag = self.fresh("b")
            self.read("B", flag)
            self._after.append(f"{target} = bools[{flag}]")
        elif wire.code:
            self.read(wire.code, target)
        elif wire.kind == "struct":
            self._struct_value(wire, nullable, target, path)
        else:
            length = self._length(wire.kind)
            if nullable:
                with self.block(f"if {length} == -1:"):
                    self.line(f"{target} = None")
                with self.block("else:"):
                    self._sized(wire, length, target, path)
                    self.flush()
            else:
                self._sized(wire, length, target, path)

    def _struct_value(self, wire: Type, nullable: bool, target: str, path: str) -> None:
        assert wire.struct is not None
        if not nullable:
            variable = self.struct(wire.struct, path)
            self.line(f"{target} = {variable}")
            return
        mark = self.fresh("n")
        self.read("b", mark)
        self.flush()
        with self.block(f"if {mark} == 1:"):
            variable = self.struct(wire.struct, path)
            self.flush()
            self.line(f"{target} = {variable}")
        with self.block(f"elif {mark} == -1:"):
            self.line(f"{target} = None")
        with self.block("else:"):
            self.line(f"raise bad_value({path!r}, {mark})")

    def _length(self, kind: str) -> str:
        """Write the code that reads a length or count; return its variable. -1 stands for null."""
        length = self.fresh("n")
        if not self.flexible:
            self.read(LENGTH_CODES[kind], length)
            self.flush()
            return length
        self.read("B", length)
        self.flush()
        with self.block(f"if {length} > 127:"):
            self.line(f"{length}, pos = uvarint(buf, pos - 1)")
        self.line(f"{length} -= 1")
        return length

    def _sized(self, wire: Type, length: str, target: str, path: str) -> None:
        if wire.kind == "array":
            self._array(wire, length, target, path)
            return
        if wire.kind == "bytes":
            # Azure Event Hubs has null where Kafka has no bytes, as with credentials it refuses.
            with self.block(f"if {length} == -1:"):
                self.line(f"{length} = 0")
        end = self.fresh("e")
        self.line(f"{end} = pos + {length}")
        with self.block(f"if not pos <= {end} <= size:"):
            self.line(f"raise bad_length({path!r}, {length}, size - pos)")
        values = {
            "string": f"buf[pos:{end}].decode()",
            "bytes": f"bytes(buf[pos:{end}])",
            "records": f"view[pos:{end}]",
        }
        self.line(f"{target} = {values[wire.kind]}")
        self.line(f"pos = {end}")

    def _array(self, wire: Type, count: str, target: str, path: str) -> None:
        element = wire.element
        assert element is not None
        path += "[]"
        if element.kind in INTEGERS:
            # `struct` refuses a count that is too large before it allocates.
            with self.block(f"if {count} < 0:"):
                self.line(f"raise bad_length({path!r}, {count}, size - pos)")
            self._integers = element.code, target, count
            return
        # Refused before anything is allocated: the remaining bytes cannot hold so many elements.
        smallest = min_size(element, False, self.version, self.flexible)
        if not smallest:
            raise TypeError(f"{path}: elements without bytes cannot be bounded")
        with self.block(f"if not 0 <= {count} <= (size - pos) // {smallest}:"):
            self.line(f"raise bad_length({path!r}, {count}, size - pos)")
        items = self.fresh("a")
        self.line(f"{items} = []")
        with self.block(f"for _ in range({count}):"):
            if element.struct is not None:
                item = self.struct(element.struct, path)
            else:
                item = self.fresh("v")
                self._value(element, False, item, path)
            self.flush()
            self.line(f"{items}.append({item})")
        self.line(f"{target} = {items}")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
