"""Write the Python source that encodes or decodes one version of one message.

Imported only for messages without a generated codec (see `compiler`). An encoder does not check the
values beforehand: if a value has a wrong type, `struct` or a method call raises, and then
`compiler.explain` finds the field. In a decoder, consecutive fixed-width fields, with the length or
count that follows them, are decoded by one call of `struct`; arrays and nested structs are decoded
by loops in the same function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.protocol.primitives import (
    Packers,
    Unpackers,
    as_bytes,
    as_list,
    bad_length,
    bad_uuid,
    bad_value,
    get_uvarint,
    packing,
    put_long_length,
    put_uvarint,
    skip_tags,
    unsupported,
)
from aiokafka.protocol.schema import fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokafka.protocol.schema import Field, Struct, Type

# The `struct` codes of lengths and counts in versions that are not flexible.
LENGTH_CODES = {"string": "h", "bytes": "i", "records": "i", "array": "i"}

INTEGERS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint16": "H", "uint32": "I"}


class Source:
    """Python source that is being written, with the objects that it uses, by name (`scope`)."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self.scope = scope
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str) -> None:
        """Add a line at the current indentation."""
        self._lines.append(f"{'    ' * self._depth}{text}\n")

    def block(self, head: str) -> Source:
        """Add the line `head`, and indent the lines added within the `with` block."""
        self.line(head)
        return self

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *_error: object) -> None:
        self._depth -= 1

    def fresh(self, prefix: str) -> str:
        """Return a name that is not used yet in this scope."""
        self.scope["__names__"] += 1
        return f"{prefix}{self.scope['__names__']}"

    def constant(self, prefix: str, value: object) -> str:
        """Bind a value to a fresh name; return the name."""
        name = self.fresh(prefix)
        self.scope[name] = value
        return name

    def text(self) -> str:
        """Return the source written so far."""
        return "".join(self._lines)

    def define(self, name: str) -> Callable[..., Any]:
        """Compile the text and return the function `name` it defines."""
        exec(compile(self.text(), f"<{name}>", "exec"), self.scope)
        function: Callable[..., Any] = self.scope[name]
        return function

    def defer(self, prefix: str, write: Callable[[str], Source]) -> str:
        """Return the name of a function whose source is written and compiled by its first call."""
        name = self.fresh(prefix)

        def first_call(*args: object) -> Any:
            return write(name).define(name)(*args)

        self.scope[name] = first_call
        return name


# Record sets below this size are copied: a separate buffer would cost more than the copy.
_SEPARATE_FROM = 1024


def new_scope(**names: object) -> dict[str, Any]:
    """Return a new scope for generated functions, with `names`."""
    return {"__names__": 0, **names}


def min_size(wire: Type, nullable: bool, version: int, flexible: bool) -> int:
    """Return the fewest bytes that a value of this type takes."""
    if wire.code:
        return packing(wire.code).size
    if wire.kind == "struct":
        return 1 if nullable else min_struct_size(_struct(wire), version, flexible)
    return 1 if flexible else packing(LENGTH_CODES[wire.kind]).size


def min_struct_size(cls: type[Struct], version: int, flexible: bool) -> int:
    """Return the fewest bytes that a struct takes in this version."""
    plain, _ = split_fields(cls, version, flexible)
    sizes = (min_size(f.type, f.nullable.has(version), version, flexible) for f in plain)
    return sum(sizes) + flexible


def split_fields(
    cls: type[Struct], version: int, flexible: bool
) -> tuple[list[Field], list[Field]]:
    """Return the fields of a version: the untagged fields in order, and the tagged fields by
    tag."""
    present = [f for f in fields(cls) if f.versions.has(version)]
    plain = [f for f in present if f.tag is None]
    tagged = sorted((f for f in present if f.tag is not None), key=lambda f: f.tag or 0)
    if tagged and not flexible:
        raise TypeError(f"{cls.__name__} has tagged fields in version {version}, not flexible")
    return plain, tagged


def has_records(cls: type[Struct]) -> bool:
    """Return whether a struct contains record sets."""
    types = [f.type.element or f.type for f in fields(cls)]
    return any(t.kind == "records" or (t.struct and has_records(t.struct)) for t in types)


def _struct(wire: Type) -> type[Struct]:
    assert wire.struct is not None
    return wire.struct


# -- Encoders


_ENCODER_NAMES = {
    "put_uvarint": put_uvarint,
    "put_long_length": put_long_length,
    "flags": {False: 0, True: 1},
    "as_list": as_list,
    "as_bytes": as_bytes,
    "bad_uuid": bad_uuid,
    "unsupported": unsupported,
}


def make_encoder(name: str, cls: type[Struct], version: int, flexible: bool) -> Callable[..., Any]:
    """Return a function ``encode(message, out: bytearray) -> list of buffers``; the first buffer is
    `out`.

    Bad values raise struct.error, TypeError, AttributeError, KeyError or ValueError.
    """
    writer = _EncoderWriter(new_scope(**_ENCODER_NAMES), version, flexible)
    with writer.block(f"def {name}(o, out):"):
        writer.line("chunks = []")
        writer.struct(cls, "o")
        writer.flush()
        writer.line("chunks.append(out)")
        writer.line("return chunks")
    return writer.define(name)


class _EncoderWriter(Source):
    def __init__(self, scope: dict[str, Any], version: int, flexible: bool) -> None:
        super().__init__(scope)
        self.version = version
        self.flexible = flexible
        # The queued run of consecutive fixed-width values, which `flush` writes as one call: the
        # `struct` code and expression of each value.
        self._run: list[tuple[str, str]] = []

    # -- runs of fixed-width values

    def write(self, code: str, expression: str) -> None:
        self._run.append((code, expression))

    def flush(self) -> None:
        """Write one call that packs all values queued since the last flush."""
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
        """Write the code that encodes the struct in `variable`. The caller must call `flush()`."""
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
        """Write a check for a `field` that the version lacks: it raises UnsupportedVersionError
        unless the field has its default value."""
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
            # Tagged fields are rare, so their encoder is a separate function, written on demand.
            writer = self.defer("tags", lambda name: self._tag_writer(name, tagged, defaults))
            self.line(f"{writer}({variable}, out)")

    def _tag_writer(self, name: str, tagged: list[Field], defaults: list[str]) -> Source:
        """Write the function `name`, which encodes the tagged fields of a struct."""
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
            # `struct` would pad or truncate a value of another size.
            with self.block(f"if len({expression}) != 16:"):
                self.line(f"raise bad_uuid({expression})")
            self.write(wire.code, expression)
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
            with self.block(f"if type({value}) is memoryview:"):
                with self.block(f"if {value}.format != 'B' or not {value}.c_contiguous:"):
                    self.line(f"{value} = {value}.tobytes()")
            with self.block(f"elif type({value}) is not bytes:"):
                self.line(f"{value} = as_bytes({value})")
            self._length(wire.kind, value)
            if wire.kind == "records":
                self._separate(value)
            else:
                self.line(f"out += {value}")

    def _length(self, kind: str, value: str) -> None:
        """Write the code that encodes the length of `value`, after all queued values."""
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
        """Write the code that adds a long record set as a separate buffer, without copying it."""
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
            self.scope["packers_" + element.code] = Packers(element.code)
            self.line(f"out += packers_{element.code}[len({value})](*{value})")
            return
        item = self.fresh("o")
        with self.block(f"for {item} in {value}:"):
            if element.struct is not None:
                self.struct(element.struct, item)
            else:
                self.value(element, False, item)
            self.flush()


# -- Decoders


_DECODER_NAMES = {
    "new": object.__new__,
    "uvarint": get_uvarint,
    "skip_tags": skip_tags,
    "bools": (False, True),
    "bad_length": bad_length,
    "bad_value": bad_value,
}


def make_decoder(name: str, cls: type[Struct], version: int, flexible: bool) -> Callable[..., Any]:
    """Return a function ``decode(buffer, position) -> (message, position after it)``.

    The buffer is bytes or bytearray. Malformed bytes raise KafkaProtocolError, struct.error,
    IndexError or UnicodeDecodeError.
    """
    writer = _DecoderWriter(new_scope(**_DECODER_NAMES), version, flexible)
    with writer.block(f"def {name}(buf, pos):"):
        writer.line("size = len(buf)")
        if has_records(cls):
            writer.line("view = memoryview(buf)")
        root = writer.struct(cls, "")
        writer.flush()
        writer.line(f"return {root}, pos")
    return writer.define(name)


class _DecoderWriter(Source):
    def __init__(self, scope: dict[str, Any], version: int, flexible: bool) -> None:
        super().__init__(scope)
        self.version = version
        self.flexible = flexible
        # The queued run, which `flush` writes as one call: an array of integers at its start, then
        # the `struct` code and target of each consecutive fixed-width field, then lines that use
        # the targets.
        self._integers: tuple[str, str, str] | None = None
        self._run: list[tuple[str, str]] = []
        self._after: list[str] = []

    # -- runs of fixed-width values

    def read(self, code: str, target: str) -> None:
        self._run.append((code, target))

    def flush(self) -> None:
        """Write one call that reads all fields queued since the last flush."""
        codes = "".join(code for code, _ in self._run)
        targets = [target for _, target in self._run]
        size = packing(codes).size
        if self._integers is not None:
            integer, target, count = self._integers
            unpackers = f"unpackers_{integer}_{codes}"
            self.scope[unpackers] = Unpackers(integer, codes)
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
        """Write the code that reads a struct; return the name of its variable. The caller must call
        `flush()`."""
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
                # Tagged fields are rare, so their decoder is a separate function.
                reader = self.defer("tags", lambda name: self._tag_reader(name, tagged, path))
                self.line(f"pos = {reader}(buf, pos - 1, size, {variable})")
            else:
                self.line("pos = skip_tags(buf, pos - 1, size)")

    def _tag_reader(self, name: str, tagged: list[Field], path: str) -> Source:
        """Write the function `name`, which decodes the tagged fields of a struct."""
        writer = _DecoderWriter(self.scope, self.version, self.flexible)
        with writer.block(f"def {name}(buf, pos, limit, o):"):
            writer.line("count, pos = uvarint(buf, pos)")
            writer.line("previous = -1")
            with writer.block("while count > 0:"):
                writer.line("count -= 1")
                writer.line("tag, pos = uvarint(buf, pos)")
                # Tags must ascend (KIP-482). Check that, because a peer could repeat a field a
                # million times.
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
            # Azure Event Hubs sends null where Kafka sends empty bytes, for example when it rejects
            # credentials.
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
            # If the count is too large, `struct` raises before it allocates memory.
            with self.block(f"if {count} < 0:"):
                self.line(f"raise bad_length({path!r}, {count}, size - pos)")
            self._integers = element.code, target, count
            return
        # Reject a count that the remaining bytes cannot hold, before memory is allocated.
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
