"""ConsumerRecord, in one form for type checkers and in another form at run time.

For type checkers, ConsumerRecord is a generic dataclass. At run time it is the class `Record`,
which has the methods and attributes of a dataclass, but is written by hand. If the module is
compiled, Record is an extension type, whose instances are created faster.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from types import GenericAlias
from typing import TYPE_CHECKING, Any, Generic

from aiokafka import _cpython
from aiokafka._typing import KT, VT

__all__ = ["KT", "VT", "ConsumerRecord"]

_TYPES = {
    "topic": "str",
    "partition": "int",
    "offset": "int",
    "timestamp": "int",
    "timestamp_type": "int",
    "key": "KT",
    "value": "VT",
    "checksum": "int | None",
    "serialized_key_size": "int",
    "serialized_value_size": "int",
    "headers": "tuple[tuple[str, bytes | None], ...]",
}


class _OfDataclass:
    """A descriptor for an attribute that the module `dataclasses` reads. The value comes from a
    real dataclass with the same fields. This dataclass is created on first use, because few
    programs need it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, record: object, kind: type) -> Any:
        return getattr(_same_dataclass(), self._name)


@functools.cache
def _same_dataclass() -> Any:
    import dataclasses

    return dataclasses.make_dataclass(
        "ConsumerRecord",
        list(_TYPES.items()),
        namespace={"__doc__": "Has the fields of a record."},  # else computed from the signature
        init=False,
        repr=False,
        eq=False,
    )


class _Signature:
    """A descriptor for `__signature__`: `inspect` finds no signature of a compiled type. For a
    subclass with its own constructor, `inspect` reads that constructor."""

    def __get__(self, record: object, kind: type) -> inspect.Signature:
        if kind.__init__ is not Record.__init__:  # type: ignore[misc]
            raise AttributeError("__signature__")
        return inspect.Signature(
            [
                inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=type_)
                for name, type_ in _TYPES.items()
            ]
        )


class Record:
    """A record read from a partition. It is mutable, and may get further attributes."""

    __dataclass_fields__ = _OfDataclass("__dataclass_fields__")
    __dataclass_params__ = _OfDataclass("__dataclass_params__")
    __match_args__ = tuple(_TYPES)
    __annotations__ = _TYPES
    __signature__ = _Signature()

    __class_getitem__ = classmethod(GenericAlias)  # type: ignore[var-annotated]

    deserialization_error = None

    def __init__(
        self,
        topic: Any,
        partition: Any,
        offset: Any,
        timestamp: Any,
        timestamp_type: Any,
        key: Any,
        value: Any,
        checksum: Any,
        serialized_key_size: Any,
        serialized_value_size: Any,
        headers: Any,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.checksum = checksum
        self.serialized_key_size = serialized_key_size
        self.serialized_value_size = serialized_value_size
        self.headers = headers

    def _astuple(self) -> tuple[Any, ...]:
        return (
            self.topic,
            self.partition,
            self.offset,
            self.timestamp,
            self.timestamp_type,
            self.key,
            self.value,
            self.checksum,
            self.serialized_key_size,
            self.serialized_value_size,
            self.headers,
        )

    def __repr__(self) -> str:
        fields = zip(_TYPES, self._astuple(), strict=True)
        shown = ", ".join([f"{name}={value!r}" for name, value in fields])
        return f"{type(self).__qualname__}({shown})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        other_record: Any = other
        return bool(self._astuple() == other_record._astuple())

    def __ne__(self, other: object) -> bool:
        # An extension type without `__ne__` would not call the `__eq__` of a subclass.
        return not self == other

    __hash__ = None  # type: ignore[assignment]  # mutable, and compared by value

    def __replace__(self, **changes: Any) -> Any:
        import dataclasses

        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def __reduce__(self) -> tuple[Any, ...]:
        extra = {name: value for name, value in vars(self).items() if name not in _TYPES}
        return type(self), self._astuple(), extra or None


class AcquiredRecord(Record):
    """The class `aiokafka.ShareRecord` at run time."""

    __slots__ = ("_acquisition", "_is_open", "_is_raw", "delivery_count")
    _is_open: bool

    def _close(self) -> bool:
        """Mark the record as acknowledged; return False if it was acknowledged before."""
        was_open = self._is_open
        self._is_open = False
        return was_open

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy in another process cannot be acknowledged.
        reduced: Any = super().__reduce__()
        kind, fields, extra = reduced
        return kind, fields, (extra, {"delivery_count": getattr(self, "delivery_count", None)})

    def __repr__(self) -> str:
        count = getattr(self, "delivery_count", None)
        return f"{super().__repr__()[:-1]}, delivery_count={count})"


class RecordFields(dict[str, Any]):
    """The `__dict__` of a compiled record: its fields and further attributes. A change of this dict
    changes the record."""

    __slots__ = ("_record",)

    def __init__(self, record: Record) -> None:
        self._record = record
        super().__init__(zip(_TYPES, record._astuple(), strict=True))
        super().update(_cpython.own_dict(record))

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self._record, name, value)
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        delattr(self._record, name)

    def update(self, *others: Any, **values: Any) -> None:
        for name, value in dict(*others, **values).items():
            self[name] = value

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def pop(self, name: str, *default: Any) -> Any:
        if name not in self and default:
            return default[0]
        value = self[name]
        del self[name]
        return value

    def popitem(self) -> tuple[str, Any]:
        if not self:
            raise KeyError("popitem(): dictionary is empty")
        name = next(reversed(self))
        return name, self.pop(name)

    def clear(self) -> None:
        for name in list(self):
            del self[name]


def _set_attribute(record: Record, name: str, value: Any) -> None:
    # If compiled, new records are excluded from the search for reference cycles. The attribute may
    # make this record part of a cycle, so include the record from now on.
    _cpython.set_tracked(record, name, value)


def _set_fields(record: Record, values: dict[str, Any]) -> None:
    # Called for `record.__dict__ = values`, which Pydantic does with dataclasses.
    fields = RecordFields(record)
    fields.clear()
    fields.update(values)


class _Model:
    __setattr__ = _set_attribute


_cpython.replace_attributes(Record, _set_attribute, property(RecordFields, _set_fields), _Model)
_cpython.replace_attributes(
    AcquiredRecord, _set_attribute, property(RecordFields, _set_fields), _Model
)
_cpython.present_as(Record, "aiokafka.structs", "ConsumerRecord")
_cpython.present_as(AcquiredRecord, "aiokafka.share.acquired", "ShareRecord")
# Annotations of `__init__`, except in an extension type, whose methods are read-only.
with contextlib.suppress(AttributeError):
    Record.__init__.__annotations__ = {**_TYPES, "return": "None"}

if TYPE_CHECKING:
    from dataclasses import dataclass

    from aiokafka.errors import RecordDeserializationError

    @dataclass
    class ConsumerRecord(Generic[KT, VT]):
        """A record read from a partition. It is mutable, and may get further attributes."""

        topic: str
        """The topic that the record was read from."""

        partition: int
        """The number of the partition within the topic."""

        offset: int
        """The offset of the record in the partition."""

        timestamp: int
        """Milliseconds since 1970 (UTC); -1 without a timestamp, and None in the message format of
        Kafka before 0.10."""

        timestamp_type: int
        """0 if the producer set `timestamp`, 1 if the broker set it to the time of the append; None
        in the message format of Kafka before 0.10."""

        key: KT
        """The result of the key deserializer. Without a deserializer, bytes or None."""

        value: VT
        """The result of the value deserializer. Without a deserializer, bytes, or None for a
        tombstone."""

        checksum: int | None
        """The CRC-32 of a message from before Kafka 0.11, else None."""

        serialized_key_size: int
        """The size of the key in bytes, before deserialization; -1 for None."""

        serialized_value_size: int
        """The size of the value in bytes, before deserialization; -1 for None."""

        headers: tuple[tuple[str, bytes | None], ...]
        """The headers in the order of the producer; a name may occur repeatedly."""

        @property
        def deserialization_error(self) -> RecordDeserializationError | None:
            """With `on_deserialization_error="raw"`, the error of a record that could not be
            deserialized: `key` and `value` are bytes then. Otherwise None."""

else:
    ConsumerRecord = Record
