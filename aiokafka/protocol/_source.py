"""What the writers of encoders and decoders share: growing source text and its constants."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from struct import Struct as Packing
from typing import TYPE_CHECKING, Any

from aiokafka.protocol.schema import fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokafka.protocol.schema import Field, Struct, Type

# The APIs whose newest versions have generated codecs, and the module that has them, by role.
GENERATED = {
    **dict.fromkeys(("ApiVersions", "Metadata"), "client"),
    **dict.fromkeys(("InitProducerId", "Produce"), "producer"),
    **dict.fromkeys(("Fetch", "ListOffsets"), "consumer"),
    **dict.fromkeys(("FindCoordinator", "Heartbeat", "JoinGroup", "SyncGroup"), "group"),
    **dict.fromkeys(("ConsumerGroupHeartbeat", "OffsetCommit", "OffsetFetch"), "group"),
}

# Lengths and counts: struct codes before flexible versions.
LENGTH_CODES = {"string": "h", "bytes": "i", "records": "i", "array": "i"}

INTEGERS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint16": "H", "uint32": "I"}


class Source:
    """Python source under construction, with the names it refers to."""

    def __init__(self, scope: dict[str, Any]) -> None:
        self.scope = scope
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str) -> None:
        """Add a line."""
        self._lines.append(f"{'    ' * self._depth}{text}\n")

    def block(self, head: str) -> Source:
        """Indent the lines added within the `with` block below `head`."""
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
        """Return the name of a function that is written when it is first called."""
        name = self.fresh(prefix)

        def first_call(*args: object) -> Any:
            return write(name).define(name)(*args)

        self.scope[name] = first_call
        return name


@cache
def packing(codes: str) -> Packing:
    """Return what packs and unpacks these `struct` codes. There are few different ones."""
    return Packing(">" + codes)


def new_scope(**names: object) -> dict[str, Any]:
    """Return the names that every generated function may use."""
    return {"__names__": 0, **names}


def generated(name: str, cls: type[Struct], version: int) -> Callable[..., Any] | None:
    """Return the codec `name` of a message if the build has generated it.

    Writing and compiling a codec takes a good part of the time to a client's first record.
    """
    role = GENERATED.get(cls.__name__.removesuffix("Request").removesuffix("Response"))
    is_newest = version == getattr(cls, "VERSIONS", (0, -1))[1]
    is_message = cls.__module__.startswith("aiokafka.protocol.messages.")
    if not is_newest or role is None or not is_message:
        return None
    try:
        return getattr(import_module(f"aiokafka.protocol._generated.{role}"), name, None)
    except ModuleNotFoundError:
        # A checkout that was not built, or a frozen program, which has only the modules that are
        # named in an import.
        return None


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
    """Return the fields of a version: those in order, and those with a tag."""
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
