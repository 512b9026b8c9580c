"""The context that serializers and deserializers may take as their second argument."""

from __future__ import annotations

from enum import Enum

__all__ = ["MessageField", "SerializationContext"]


class MessageField(str, Enum):
    """The part of a record that is serialized or deserialized; equal to the strings "key" and
    "value", and to the constants of confluent-kafka with the same names."""

    KEY = "key"
    VALUE = "value"

    def __str__(self) -> str:
        return self.value


class SerializationContext:
    """The topic and headers of a record, and whether its key or its value is converted.

    A serializer or deserializer gets the context if its second positional parameter has the name
    `ctx`: `serializer(value, ctx)`. The signature and the attributes are those of confluent-kafka.
    """

    __slots__ = ("field", "headers", "topic")

    def __init__(
        self, topic: str, field: MessageField, headers: list[tuple[str, bytes | None]]
    ) -> None:
        self.topic = topic
        """The topic of the record."""
        self.field = field
        """MessageField.KEY or MessageField.VALUE."""
        self.headers = headers
        """The headers of the record. A serializer may append headers to this list, which are then
        sent with the record: first the key's serializer is called, then the value's. A change by a
        deserializer has no effect."""

    def __repr__(self) -> str:
        return f"SerializationContext({self.topic!r}, {self.field!s}, {self.headers!r})"
