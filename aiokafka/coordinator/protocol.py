"""The encoding of subscriptions and assignments that group members exchange.

Other clients may have written these bytes, and the broker does not validate them. Versions 0 to 3
are written and read. A newer version is read as version 3, and its additional fields are ignored:
newer versions only append fields.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Sequence
from typing import ClassVar

from aiokafka.errors import KafkaProtocolError
from aiokafka.structs import TopicPartition

__all__ = [
    "ConsumerProtocol",
    "ConsumerProtocolMemberAssignment",
    "ConsumerProtocolMemberMetadata",
]

NEWEST_VERSION = 3

PartitionsByTopic = Sequence[tuple[str, Sequence[int]]]

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


class ConsumerProtocolMemberMetadata:
    """The subscription of a member: its topics, and in newer versions its owned partitions.

    `generation`: the generation in which `owned_partitions` were assigned; -1 if unknown.
    """

    group_instance_id: str | None = None
    """The instance id of a static member, for the leader's assignor (KIP-345). It is not encoded:
    the JoinGroup response has it."""

    def __init__(
        self,
        version: int,
        subscription: Iterable[str],
        user_data: bytes | None = b"",
        owned_partitions: PartitionsByTopic = (),
        generation: int = -1,
        rack: str | None = None,
    ) -> None:
        self.version = version
        self.subscription = list(subscription)
        self.user_data = user_data
        self.owned_partitions = [(topic, list(numbers)) for topic, numbers in owned_partitions]
        self.generation = generation
        self.rack = rack

    @property
    def topics(self) -> list[str]:
        """Another name for `subscription`."""
        return self.subscription

    def owned(self) -> list[TopicPartition]:
        """Return the owned partitions as a flat list."""
        return _flat(self.owned_partitions)

    def encode(self) -> bytes:
        """Return the bytes for a JoinGroup request."""
        out = bytearray(_INT16.pack(self.version))
        out += _INT32.pack(len(self.subscription))
        for topic in self.subscription:
            _put_string(out, topic)
        _put_bytes(out, self.user_data)
        if self.version >= 1:
            _put_partitions(out, self.owned_partitions)
        if self.version >= 2:
            out += _INT32.pack(self.generation)
        if self.version >= 3:
            _put_string(out, self.rack)
        return bytes(out)

    @classmethod
    def decode(cls, data: bytes | io.BytesIO) -> ConsumerProtocolMemberMetadata:
        """Read a subscription. Raises KafkaProtocolError if it is malformed."""
        reader = _Reader(_content(data))
        version = reader.version()
        subscription = [reader.text() for _ in range(reader.count(2))]
        made = cls(version, subscription, reader.blob())
        # Some clients, such as old releases of kafka-go, write version 1 without owned partitions.
        if reader.is_at_end:
            return made
        if version >= 1:
            made.owned_partitions = reader.partitions()
        if version >= 2:
            made.generation = reader.int32()
        if version >= 3:
            made.rack = reader.nullable_text()
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return _repr(self)


class ConsumerProtocolMemberAssignment:
    """The assignment of a member: a list of (topic, partition numbers)."""

    def __init__(
        self, version: int, assignment: PartitionsByTopic, user_data: bytes | None = b""
    ) -> None:
        self.version = version
        self.assignment = [(topic, list(numbers)) for topic, numbers in assignment]
        self.user_data = user_data

    def partitions(self) -> list[TopicPartition]:
        """Return the assigned partitions as a flat list."""
        return _flat(self.assignment)

    def encode(self) -> bytes:
        """Return the bytes for a SyncGroup request."""
        out = bytearray(_INT16.pack(self.version))
        _put_partitions(out, self.assignment)
        _put_bytes(out, self.user_data)
        return bytes(out)

    @classmethod
    def decode(cls, data: bytes | io.BytesIO) -> ConsumerProtocolMemberAssignment:
        """Read an assignment. Raises KafkaProtocolError if it is malformed.

        Empty bytes are an empty assignment: the broker sends them to a member that the leader's
        SyncGroup request omitted.
        """
        content = _content(data)
        if not content:
            return cls(0, [])
        reader = _Reader(content)
        version = reader.version()
        assignment = reader.partitions()
        return cls(version, assignment, reader.blob())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return _repr(self)


class ConsumerProtocol:
    """Constants of the group protocol of consumers."""

    PROTOCOL_TYPE: ClassVar[str] = "consumer"
    ASSIGNMENT_STRATEGIES: ClassVar[tuple[str, ...]] = ("range", "roundrobin")
    METADATA: ClassVar[type[ConsumerProtocolMemberMetadata]] = ConsumerProtocolMemberMetadata
    ASSIGNMENT: ClassVar[type[ConsumerProtocolMemberAssignment]] = ConsumerProtocolMemberAssignment


def _flat(partitions: Iterable[tuple[str, Iterable[int]]]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic, numbers in partitions for number in numbers]


def _repr(value: object) -> str:
    fields = ", ".join(f"{name}={field!r}" for name, field in vars(value).items())
    return f"{type(value).__name__}({fields})"


def _put_string(out: bytearray, text: str | None) -> None:
    if text is None:
        out += _INT16.pack(-1)
        return
    data = text.encode()
    out += _INT16.pack(len(data))
    out += data


def _put_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out += _INT32.pack(-1)
        return
    out += _INT32.pack(len(data))
    out += data


def _put_partitions(out: bytearray, partitions: PartitionsByTopic) -> None:
    out += _INT32.pack(len(partitions))
    for topic, numbers in partitions:
        _put_string(out, topic)
        out += struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)


def write_partitions(partitions: PartitionsByTopic) -> bytes:
    """Return the bytes of an array of (topic, partitions), for the user data of assignors."""
    out = bytearray()
    _put_partitions(out, partitions)
    return bytes(out)


def read_partitions(data: bytes) -> tuple[list[tuple[str, list[int]]], bytes]:
    """Read an array of (topic, partitions). Return the array and the bytes after it. Raises
    KafkaProtocolError if it is malformed."""
    reader = _Reader(data)
    partitions = reader.partitions()
    return partitions, reader.rest()


def _content(data: bytes | io.BytesIO) -> bytes:
    """Return the bytes of `data`, which may be a file object as in aiokafka 0.14."""
    return data.read() if isinstance(data, io.BytesIO) else data


class _Reader:
    """Reads fields in order. Compares each length with the remaining bytes before using it."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def _take(self, size: int) -> bytes:
        start, self._at = self._at, self._at + size
        if size < 0 or self._at > len(self._data):
            raise KafkaProtocolError(
                f"group metadata is malformed: {size} bytes wanted at {start} of {len(self._data)}"
            )
        return self._data[start : self._at]

    @property
    def is_at_end(self) -> bool:
        return self._at == len(self._data)

    def rest(self) -> bytes:
        return self._data[self._at :]

    def int16(self) -> int:
        value: int = _INT16.unpack(self._take(2))[0]
        return value

    def int32(self) -> int:
        value: int = _INT32.unpack(self._take(4))[0]
        return value

    def version(self) -> int:
        version = self.int16()
        if version < 0:
            raise KafkaProtocolError(f"group metadata has the unknown version {version}")
        return min(version, NEWEST_VERSION)

    def count(self, smallest: int) -> int:
        """Read the length of an array whose elements have at least `smallest` bytes each. Raises
        KafkaProtocolError if the remaining bytes are too few."""
        count = self.int32()
        if count < 0 or count * smallest > len(self._data) - self._at:
            raise KafkaProtocolError(f"group metadata claims an array of {count} elements")
        return count

    def nullable_text(self) -> str | None:
        size = self.int16()
        if size == -1:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise KafkaProtocolError(
                f"group metadata has a name that is not UTF-8: {error}"
            ) from None

    def text(self) -> str:
        text = self.nullable_text()
        if text is None:
            raise KafkaProtocolError("group metadata lacks the name of a topic")
        return text

    def blob(self) -> bytes | None:
        size = self.int32()
        return None if size == -1 else self._take(size)

    def partitions(self) -> list[tuple[str, list[int]]]:
        found = []
        for _ in range(self.count(6)):
            topic = self.text()
            count = self.count(4)
            found.append((topic, list(struct.unpack(f">{count}i", self._take(4 * count)))))
        return found
