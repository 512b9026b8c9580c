"""The language in which Kafka's messages are declared.

A message is a class, a field is an annotation, and one class covers every version::

    class TopicProduceData(Struct):
        name: Str = field("0-12", default="")
        topic_id: Uuid = field("13+", default=ZERO_UUID)
        partition_data: list[PartitionProduceData]

    class ProduceRequest(Request[ProduceResponse], api_key=0, versions="0-13", flexible="9+"):
        transactional_id: NStr = field("3+", default=None)
        acks: I16
        timeout_ms: I32
        topic_data: list[TopicProduceData]

Type checkers see ``acks: int``; `aiokafka.protocol.compiler` sees the wire type and writes the
code that encodes and decodes each version. The default is a class attribute, so reading a field
that a version lacks returns the default. Modules with declarations must not import
``annotations`` from ``__future__``: the annotations are evaluated.
"""

import types
from functools import cache
from inspect import get_annotations
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    Generic,
    NoReturn,
    TypeVar,
    Union,
    get_args,
    get_origin,
    overload,
)

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_options):
        return lambda cls: cls


_T = TypeVar("_T")

ZERO_UUID: Final = bytes(16)
"""The UUID that means "no id": Kafka has no null UUID."""


# The classes of this module are plain classes, because creating a NamedTuple class takes ten times
# as long at import.


class Wire:
    """The encoding of a value: Kafka's name of the type, and the `struct` code if the type has a
    fixed width."""

    __slots__ = ("code", "kind")

    def __init__(self, kind: str, code: str = "") -> None:
        self.kind = kind
        self.code = code


I8 = Annotated[int, Wire("int8", "b")]
I16 = Annotated[int, Wire("int16", "h")]
I32 = Annotated[int, Wire("int32", "i")]
I64 = Annotated[int, Wire("int64", "q")]
U16 = Annotated[int, Wire("uint16", "H")]
U32 = Annotated[int, Wire("uint32", "I")]
F64 = Annotated[float, Wire("float64", "d")]
Bool = Annotated[bool, Wire("bool", "B")]
Uuid = Annotated[bytes, Wire("uuid", "16s")]
Str = Annotated[str, Wire("string")]
NStr = Annotated[str | None, Wire("string")]
Bytes = Annotated[bytes, Wire("bytes")]
NBytes = Annotated[bytes | None, Wire("bytes")]
Records = Annotated[bytes | bytearray | memoryview | None, Wire("records")]


class Versions:
    """An inclusive range of versions; empty if `first` is greater than `last`."""

    __slots__ = ("first", "last")

    def __init__(self, first: int, last: int) -> None:
        self.first = first
        self.last = last

    def has(self, version: int) -> bool:
        """Return whether the range includes a version."""
        return self.first <= version <= self.last


OPEN_END: Final = 32767
NEVER: Final = Versions(1, 0)
ALWAYS: Final = Versions(0, OPEN_END)


@cache
def parse_versions(text: str) -> Versions:
    """Return the range for Kafka's notation: ``"3"``, ``"3-12"``, ``"3+"`` or ``"none"``."""
    if text == "none":
        return NEVER
    if text.endswith("+"):
        return Versions(int(text[:-1]), OPEN_END)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


class _EmptyList(list[Any]):
    """The default of list fields, shared by all messages, so it must stay empty."""

    def _refuse(self, *_args: object) -> NoReturn:
        raise TypeError("this list is the default shared by all messages: assign a list instead")

    append = extend = insert = __iadd__ = __imul__ = __setitem__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return (list, ())


EMPTY: Final = _EmptyList()


class _Missing:
    """The default of a required field."""


class FieldSpec:
    """The arguments of `field`; `Field` also has the type, from the annotation."""

    __slots__ = ("default", "ignorable", "nullable", "secret", "tag", "versions")

    def __init__(
        self,
        versions: str = "0+",
        default: Any = _Missing,
        nullable: str | None = None,
        tag: int | None = None,
        ignorable: bool = False,
        secret: bool = False,
    ) -> None:
        self.versions = versions
        self.default = default
        self.nullable = nullable
        self.tag = tag
        self.ignorable = ignorable
        self.secret = secret


@overload
def field(
    versions: str = ...,
    *,
    default: _T,
    nullable: str | None = ...,
    tag: int | None = ...,
    ignorable: bool = ...,
    secret: bool = ...,
) -> _T: ...


@overload
def field(
    versions: str = ...,
    *,
    nullable: str | None = ...,
    ignorable: bool = ...,
    secret: bool = ...,
) -> Any: ...


def field(
    versions: str = "0+",
    *,
    default: Any = _Missing,
    nullable: str | None = None,
    tag: int | None = None,
    ignorable: bool = False,
    secret: bool = False,
) -> Any:
    """Describe a field beyond its type.

    Args:
        versions: The message versions that have the field.
        default: The value if none is given, or if the version lacks the field. A field without a
            default is required.
        nullable: The versions in which the value may be None; by default all, if the type allows
            None.
        tag: Makes the field a tagged field (KIP-482), sent only if the value is not the default.
        ignorable: Whether a version without the field omits a value that is set, instead of raising
            UnsupportedVersionError.
        secret: Whether the ``repr`` of messages hides the value.
    """
    return FieldSpec(versions, default, nullable, tag, ignorable, secret)


class Type:
    """A resolved wire type. `element` is the type of an array's elements, `struct` the class of a
    struct."""

    __slots__ = ("code", "element", "kind", "struct")

    def __init__(
        self,
        kind: str,
        code: str = "",
        struct: "type[Struct] | None" = None,
        element: "Type | None" = None,
    ) -> None:
        self.kind = kind
        self.code = code
        self.struct = struct
        self.element = element


class Field:
    """A field of a message, resolved from its annotation and its FieldSpec."""

    __slots__ = (
        "default",
        "ignorable",
        "name",
        "nullable",
        "required",
        "secret",
        "tag",
        "type",
        "versions",
    )

    def __init__(
        self,
        name: str,
        type: Type,
        versions: Versions,
        nullable: Versions,
        default: Any,
        spec: FieldSpec,
    ) -> None:
        self.name = name
        self.type = type
        self.versions = versions
        self.nullable = nullable
        self.default = default
        self.required = default is _Missing
        self.tag = spec.tag
        self.ignorable = spec.ignorable
        self.secret = spec.secret


# The number of objects of a class that `Struct._assign` fills before a constructor is compiled.
_MOST_UNCOMPILED = 8


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class Struct:
    """A message or a part of a message, with a keyword-only constructor and comparison by value.

    Values are not checked until the message is encoded. Unknown or missing keywords raise
    TypeError. Messages share the structs that are defaults: assign another struct, do not change
    the default.
    """

    _specs: ClassVar[dict[str, FieldSpec]] = {}
    _init: ClassVar[Any]
    _made: ClassVar[int]
    _fields: ClassVar[tuple[Field, ...]]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        specs = {name: v for name, v in vars(cls).items() if type(v) is FieldSpec}
        cls._specs = specs
        for name, spec in specs.items():
            if spec.default is _Missing:
                delattr(cls, name)
            else:
                setattr(cls, name, EMPTY if spec.default == [] else spec.default)

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        if not values and all(not f.required and f.default is not EMPTY for f in fields(cls)):
            return  # no attribute to set: the class attributes are the defaults
        # Compiling a constructor takes as long as dozens of calls of `_assign`, and a client needs
        # few messages of each class before its first record. So only a later call compiles it.
        init = vars(cls).get("_init")
        if init is None:
            made = vars(cls).get("_made", 0)
            if made < _MOST_UNCOMPILED and self._assign(values):
                cls._made = made + 1
                return
            # Later calls use the compiled constructor instead of this method.
            init = cls._init = _make_init(cls)
            if cls.__init__ is Struct.__init__:
                cls.__init__ = init  # type: ignore[method-assign]
        init(self, **values)

    def _assign(self, values: dict[str, Any]) -> bool:
        """Set the attributes, and return True. Return False if a keyword is missing or unknown, so
        that the compiled constructor raises its TypeError."""
        given = 0
        for f in fields(type(self)):
            if f.name in values:
                value = values[f.name]
                given += 1
            elif f.required:
                return False
            else:
                value = f.default
            # Create a new list for each message, because callers may append to the list.
            setattr(self, f.name, [] if value is EMPTY else value)
        return given == len(values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in fields(type(self)))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = (
            f"{f.name}={'***' if f.secret else _abbreviate(getattr(self, f.name))}"
            for f in fields(type(self))
            if f.required or getattr(self, f.name) != f.default
        )
        return f"{type(self).__name__}({', '.join(shown)})"


class Message(Struct):
    """A struct that is sent on its own, so it has versions.

    `FLEXIBLE` is the first version with compact lengths and tagged fields (KIP-482).
    """

    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE: ClassVar[int | None] = None

    def __init_subclass__(
        cls, versions: str | None = None, flexible: str | None = None, **options: Any
    ) -> None:
        super().__init_subclass__(**options)
        if versions is not None:
            parsed = parse_versions(versions)
            cls.VERSIONS = (parsed.first, parsed.last)
            cls.FLEXIBLE = parse_versions(flexible).first if flexible else None


class Response(Message):
    """A response; its versions are those of its request."""

    API_KEY: ClassVar[int]


R = TypeVar("R", bound=Response)


class Request(Message, Generic[R]):
    """A request to a broker; the type parameter is the class of the response."""

    API_KEY: ClassVar[int]
    RESPONSE: ClassVar[type[Response]]

    expects_response = True
    """Whether the broker responds: False for Produce with acks=0."""

    def __init_subclass__(cls, api_key: int | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if api_key is None:
            return
        cls.API_KEY = api_key
        bases: tuple[Any, ...] = cls.__orig_bases__  # type: ignore[attr-defined]
        response = next(get_args(base)[0] for base in bases if get_origin(base) is Request)
        cls.RESPONSE = response
        response.API_KEY = api_key
        response.VERSIONS = cls.VERSIONS
        response.FLEXIBLE = cls.FLEXIBLE


def fields(cls: type[Struct]) -> tuple[Field, ...]:
    """Return the resolved fields of a class, in the order of the message."""
    if "_fields" not in vars(cls):
        cls._fields = tuple(_resolve_fields(cls))
    return cls._fields


def _resolve_fields(cls: type[Struct]) -> "list[Field]":
    found: dict[str, Field] = {}
    for owner in reversed(cls.__mro__):
        if not issubclass(owner, Struct) or owner.__module__ == __name__:
            continue  # annotations in this module are not fields
        for name, annotation in get_annotations(owner).items():
            origin: Any = get_origin(annotation)
            if origin is ClassVar:
                continue
            found[name] = _resolve_field(cls, name, annotation, vars(owner)["_specs"].get(name))
    return list(found.values())


def _resolve_field(cls: type[Struct], name: str, annotation: Any, spec: FieldSpec | None) -> Field:
    spec = spec or FieldSpec()
    wire, may_be_null = _resolve_type(annotation)
    default = getattr(cls, name, _Missing)
    versions = parse_versions(spec.versions)
    if not may_be_null:
        nullable = NEVER
    else:
        nullable = versions if spec.nullable is None else parse_versions(spec.nullable)
    return Field(name, wire, versions, nullable, default, spec)


@cache
def _resolve_type(annotation: Any) -> tuple[Type, bool]:
    """Return the wire type of an annotation, and whether the value may be None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        base, wire = get_args(annotation)
        return Type(wire.kind, wire.code), type(None) in get_args(base)
    if origin is list:
        return Type("array", element=_resolve_type(get_args(annotation)[0])[0]), False
    if origin in (Union, types.UnionType):
        (inner,) = (a for a in get_args(annotation) if a is not type(None))
        return _resolve_type(inner)[0], True
    return Type("struct", struct=annotation), False


def _make_init(cls: type[Struct]) -> Any:
    """Compile a constructor with one keyword per field, as dataclasses do."""
    scope: dict[str, Any] = {}
    parameters, body = [], []
    for f in fields(cls):
        value = f.name
        parameters.append(f.name if f.required else f"{f.name}=_{f.name}")
        if f.default is EMPTY:
            # Create a new list for each message, because callers may append to the list.
            value = f"[] if {f.name} is _{f.name} else {f.name}"
        scope[f"_{f.name}"] = f.default
        body.append(f"    self.{f.name} = {value}\n")
    signature = f"self, *, {', '.join(parameters)}" if parameters else "self"
    exec(f"def __init__({signature}):\n{''.join(body) or '    pass'}", scope)
    init = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _abbreviate(value: object) -> str:
    if isinstance(value, bytes | bytearray | memoryview) and len(value) > 32:
        return f"<{len(value)} bytes>"
    return repr(value)
