"""The message classes of aiokafka 0.14, converted to and from those of `protocol/messages/`.

aiokafka 0.14 represents a struct by a tuple, with the values in the order on the wire. The structs
of this package have the same values in the same order, so a list of the field names of aiokafka
0.14 suffices to convert a struct::

    topics(topic partitions(partition error_code))

A name with parentheses is a list of structs, whose fields are in the parentheses. A list of structs
with one field may be a plain list of values in aiokafka 0.14: its name then has no parentheses.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from aiokafka.errors import IncompatibleBrokerVersion
from aiokafka.protocol import schema
from aiokafka.protocol.compiler import codec
from aiokafka.protocol.schema import OPEN_END, Field, Struct, Versions, fields

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Family", "Request", "RequestStruct", "Response", "Row", "versioned"]


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
    """A field of a struct: its name in aiokafka 0.14, and its Field in `aiokafka.protocol`.

    `row`: for a list of structs, the Row that converts the structs; None for other fields.
    `is_bare`: aiokafka 0.14 has a plain list of values, because the structs have one field only.
    """

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
            return bytes(value)  # a copy: the view would keep the whole response in memory
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
    """Converts between a struct and its tuple in aiokafka 0.14, in the versions `span`.

    In flexible versions (KIP-482) the last value of each tuple is a dict of tagged fields.
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
        """Convert a tuple to the struct. Raises ValueError for a tuple of the wrong length, or with
        tagged fields."""
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
        """Convert a struct to a tuple."""
        values = [
            column.unpack(getattr(struct, column.field.name), version)
            for column in self._of(version)
        ]
        return (*values, {}) if version >= self._flexible else tuple(values)

    def label(self, values: Sequence[Any], version: int) -> dict[str, Any]:
        """Return the values of a tuple by name; tuples inside become dicts, too."""
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


# -- Messages of aiokafka 0.14: a class per version, with tuples for structs

# `JoinGroupRequest(...)` is sent in the newest version that the broker supports.
# `JoinGroupRequest_v2(...)` is sent in version 2, and its response is a `JoinGroupResponse_v2`.
# `AIOKafkaClient.send` converts requests to the messages of `aiokafka.protocol.messages`, and
# responses from them.


_VERSIONED = re.compile(r"(\w+)(Request|Response)(?:_v(\d+))?")


class Family:
    """The names and versions for the classes of one API, which has a class for each version.

    Args:
        home: The class of the request in `aiokafka.protocol.messages`.
        request: The names of the request fields in aiokafka 0.14, in the order on the wire.
        response: The names of the response fields in aiokafka 0.14, in the order on the wire.
        versions: The versions that `Request.prepare` may choose.
        others: More versions that have a class. `Request.prepare` never chooses them.
    """

    def __init__(
        self,
        home: type[schema.Request[Any]],
        request: str,
        response: str,
        versions: tuple[int, ...],
        others: tuple[int, ...] = (),
    ) -> None:
        self.home = home
        self.versions = versions
        self.all_versions = sorted({*versions, *others})
        span = Versions(self.all_versions[0], self.all_versions[-1])
        self.request = Row(home, request, span, home.FLEXIBLE)
        self.response = Row(home.RESPONSE, response, span, home.FLEXIBLE)


class _Struct:
    """Base of the message classes of one version. The constructor takes all fields by position, or
    some by name (the others are None). The fields are attributes."""

    API_KEY: ClassVar[int]
    API_VERSION: ClassVar[int]
    _row: ClassVar[Row]
    _names: ClassVar[tuple[str, ...]]

    def __init__(self, *values: Any, **named: Any) -> None:
        if values and (named or len(values) != len(self._names)):
            raise ValueError(f"{type(self).__name__} has {', '.join(self._names) or 'no fields'}")
        if unknown := named.keys() - set(self._names):
            raise ValueError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        given = zip(self._names, values, strict=True) if values else named.items()
        self.__dict__.update({**dict.fromkeys(self._names), **dict(given)})

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def to_object(self) -> dict[str, Any]:
        """Return the fields as a dict; structs inside become dicts, too."""
        return self._row.label(self._values(), self.API_VERSION)

    def get_item(self, name: str) -> Any:
        """Return the value of the field `name`. Raises KeyError for an unknown name."""
        if name not in self._names:
            raise KeyError(f"{type(self).__name__} has no {name}")
        return self.__dict__[name]

    def encode(self) -> bytes:
        """Return the encoded message, without a header."""
        return codec(self._row.struct, self.API_VERSION).encode_bytes(self.message())

    @classmethod
    def decode(cls, data: io.BytesIO | bytes) -> Self:
        """Decode a message without a header; set the position of a stream to the message's end."""
        stream = io.BytesIO(data) if isinstance(data, bytes) else data
        coder = codec(cls._row.struct, cls.API_VERSION)
        message, end = coder.decode_prefix(stream.getvalue(), stream.tell())
        stream.seek(end)
        return cls(*cls._row.unpack(message, cls.API_VERSION))

    def _values(self) -> tuple[Any, ...]:
        return tuple(self.__dict__[name] for name in self._names)

    def __eq__(self, other: object) -> bool:
        # Messages of two versions are equal if they have the same fields with equal values:
        # programs compare the requests that `prepare` has built for different brokers.
        if not isinstance(other, _Struct):
            return NotImplemented
        return self._kind() == other._kind() and self._values() == other._values()

    def _kind(self) -> tuple[Row, tuple[str, ...]]:
        return self._row, self._names

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={self.__dict__[name]!r}" for name in self._names)
        return f"{type(self).__name__}({shown})"


class Response(_Struct):
    """One version of a response."""

    def message(self) -> schema.Response:
        """Return the `aiokafka.protocol.messages` form of this response."""
        packed: schema.Response = self._row.pack(self._values(), self.API_VERSION)
        return packed


class RequestStruct(_Struct):
    """One version of a request."""

    RESPONSE_TYPE: ClassVar[type[Response]]

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> RequestStruct:
        """Return this request if the broker supports its version. Raises IncompatibleBrokerVersion
        otherwise. `versions` has the lowest and highest version of the broker by API key."""
        first, last = versions.get(self.API_KEY, (1, 0))
        if not first <= self.API_VERSION <= last:
            raise IncompatibleBrokerVersion(_gap(type(self).__name__, first, last))
        return self

    def message(self) -> schema.Request[Any]:
        """Return the `aiokafka.protocol.messages` form of this request. Raises ValueError for a
        tuple of the wrong length."""
        try:
            packed: schema.Request[Any] = self._row.pack(self._values(), self.API_VERSION)
        except ValueError as error:
            raise ValueError(f"{type(self).__name__}: {error}") from None
        return packed

    def answer(self, response: schema.Response | None) -> Any:
        """Convert a response of `aiokafka.protocol.messages` to `RESPONSE_TYPE`; return None for
        None (no response)."""
        if response is None:
            return None
        kind = self.RESPONSE_TYPE
        return kind(*kind._row.unpack(response, self.API_VERSION))


def _gap(name: str, first: int, last: int) -> str:
    if last < first:
        return f"the broker does not support {name}"
    return f"{name} is not among the versions that the broker has ({first} to {last})"


class Request:
    """A request without a version, with the fields of all versions.

    `prepare` converts the request to the newest version that the broker supports. Fields that this
    version lacks are omitted. If an omitted field is in `NEEDED` and has a value, `prepare` raises
    IncompatibleBrokerVersion.
    """

    API_KEY: ClassVar[int]
    FAMILY: ClassVar[Family]
    NEEDED: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, family: Family | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if family is not None:
            cls.FAMILY = family
            cls.API_KEY = family.home.API_KEY

    def __init__(self, **values: Any) -> None:
        self._fields = values

    def __class_getitem__(cls, index: int) -> type[RequestStruct]:
        """Return the class with this index in the list of the classes of all versions. Before
        aiokafka 0.13, a name such as `FetchRequest` stood for this list itself."""
        return _request_class(cls, cls.FAMILY.all_versions[index])

    def values(self, version: int) -> Mapping[str, Any]:
        """Return the values of the fields by name. Subclasses override this if the values depend on
        `version`."""
        return self._fields

    def build(self, request_struct_class: type[RequestStruct]) -> RequestStruct:
        """Return this request as an instance of `request_struct_class`.

        Raises IncompatibleBrokerVersion if that class lacks a field in `NEEDED` that has a value.
        """
        version = request_struct_class.API_VERSION
        names = self.FAMILY.request.names(version)
        values = self.values(version)
        for name in self.NEEDED:
            if values.get(name) and name not in names:
                raise IncompatibleBrokerVersion(
                    f"{name}={values[name]!r} needs a newer {type(self).__name__} than version "
                    f"{version}, the newest that the broker supports"
                )
        return request_struct_class(**{name: values[name] for name in names})

    def prepare(self, versions: Mapping[int, tuple[int, int]]) -> RequestStruct:
        """Return this request in the newest version that the broker supports. `versions` has the
        lowest and highest version of the broker by API key.

        Raises IncompatibleBrokerVersion without a common version, or if this version lacks a field
        that is needed.
        """
        first, last = versions.get(self.API_KEY, (1, 0))
        for version in reversed(self.FAMILY.versions):
            if first <= version <= last:
                return self.build(_request_class(type(self), version))
        names = " to ".join(
            f"v{v}" for v in self.FAMILY.versions[:: len(self.FAMILY.versions) - 1 or 1]
        )
        raise IncompatibleBrokerVersion(_gap(f"{type(self).__name__} {names}", first, last))

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._fields.items())
        return f"{type(self).__name__}({shown})"


def versioned(namespace: Mapping[str, Any], name: str) -> Any:
    """Return the class of a versioned name, such as `JoinGroupResponse_v5`; for a name without a
    version, the list of the classes of all versions.

    A module with subclasses of `Request` calls this in its `__getattr__`; `namespace` is its
    `globals()`. Raises AttributeError for other names.
    """
    matched = _VERSIONED.fullmatch(name)
    builder = namespace.get(f"{matched[1]}Request") if matched else None
    if matched is not None and isinstance(builder, type) and issubclass(builder, Request):
        make = _request_class if matched[2] == "Request" else _response_class
        if matched[3] is None:
            return [make(builder, version) for version in builder.FAMILY.all_versions]
        if int(matched[3]) in builder.FAMILY.all_versions:
            return make(builder, int(matched[3]))
    raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")


_classes: dict[tuple[type[Request], str, int], Any] = {}


def _response_class(builder: type[Request], version: int) -> type[Response]:
    name = builder.__name__.removesuffix("Request") + "Response"
    made: type[Response] = _class(builder, version, Response, name, builder.FAMILY.response)
    return made


def _request_class(builder: type[Request], version: int) -> type[RequestStruct]:
    made: type[RequestStruct] = _class(
        builder, version, RequestStruct, builder.__name__, builder.FAMILY.request
    )
    made.RESPONSE_TYPE = _response_class(builder, version)
    return made


def _class(builder: type[Request], version: int, base: type, name: str, row: Row) -> Any:
    known = _classes.get((builder, name, version))
    if known is None:
        content = {
            "__doc__": f"Version {version} of {name}.",
            "__module__": builder.__module__,
            "API_KEY": builder.API_KEY,
            "API_VERSION": version,
            "_row": row,
            "_names": tuple(row.names(version)),
        }
        own = vars(builder).items()
        constants = {n: v for n, v in own if n.isupper() and not hasattr(Request, n)}
        known = type(f"{name}_v{version}", (base,), {**constants, **content})
        _classes[builder, name, version] = known
    return known
