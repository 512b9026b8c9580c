"""Check and convert the arguments of `send` and `send_batch`, and the results of partitioners."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aiokafka import _clock
from aiokafka._arguments import as_int
from aiokafka._config.options import brief, require_sendable, require_unicode
from aiokafka.errors import IllegalStateError, MessageSizeTooLargeError, WrongArgument
from aiokafka.record._memory import varint_size
from aiokafka.record.batch import HEADER_SIZE

if TYPE_CHECKING:
    from aiokafka._config.producer import ProducerConfig
    from aiokafka.cluster import ClusterMetadata
    from aiokafka.producer.batch_builder import BatchBuilder

__all__ = [
    "OutgoingRecord",
    "as_bytes",
    "as_headers",
    "as_timestamp",
    "ask_partitioner",
    "check_batch",
    "check_topic",
    "checked_record",
    "partition_number",
]

Headers = Sequence[tuple[str, "bytes | None"]]

_LAST_TIMESTAMP = 2**63 - 2
"""The largest timestamp of a record. A batch stores the difference between each timestamp and its
first timestamp, which may be -1 (no timestamp). The difference between 2**63 - 1 and -1 does not
fit into 64 bits."""

_MOST_FRAMING = HEADER_SIZE + 21
"""The bytes of a batch header, plus 21, the most bytes that the length (5), attributes (1),
timestamp delta (10) and offset delta (5) of a record can have. aiokafka 0.14 uses the same
number."""


# -- Fields


def as_bytes(value: Any, what: str, is_serialized: bool = False) -> bytes | None:
    """Return `value` as bytes; raise TypeError if it is not None, bytes, bytearray or memoryview.

    `is_serialized`: whether a serializer has returned `value`, for the text of the error.
    """
    if value is None or type(value) is bytes:
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    kind = type(value).__name__
    if is_serialized:
        hint = ", for example json.dumps(value).encode()" if isinstance(value, str) else ""
        raise TypeError(f"{what}_serializer returned {kind}, but must return bytes or None{hint}")
    raise TypeError(
        f"{what}: must be bytes, bytearray, memoryview or None, not {kind}; "
        f"set {what}_serializer to convert other types"
    )


def as_headers(headers: Iterable[Any] | None) -> Headers:
    """Return the headers as pairs of name and bytes; `headers` may be any iterable of pairs.

    Raises TypeError for anything else, WrongArgument for a name that cannot be encoded in UTF-8.
    """
    if not headers:
        return ()
    if isinstance(headers, Mapping):
        raise TypeError("headers: must be pairs of name and value: pass the mapping's items()")
    try:
        pairs = iter(headers)
    except TypeError:
        kind = type(headers).__name__
        raise TypeError(f"headers: must be pairs of name and value, not {kind}") from None
    return [_as_header(header) for header in pairs]


def _as_header(header: Any) -> tuple[str, bytes | None]:
    try:
        name, value = header
    except (TypeError, ValueError):
        raise TypeError(f"headers: {header!r} is not a pair of name and value") from None
    if not isinstance(name, str):
        raise TypeError(f"headers: the name {name!r} must be a str, not {type(name).__name__}")
    if not name.isascii():
        _check_text(name, "headers: the name")
    if value is not None and type(value) is not bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"headers: the value of {name!r} must be bytes or None, not {type(value).__name__}"
            )
        value = bytes(value)
    return name, value


def partition_number(partition: Any) -> int | None:
    """Return `partition`, an integer of any type, as int; return None for None. Raises TypeError
    for other types."""
    if partition is None:
        return None
    return as_int("partition", partition, accepted="an integer or None")


def as_timestamp(timestamp: Any, name: str = "timestamp_ms") -> int:
    """Return `timestamp`, in milliseconds since 1970, as int; fractions are cut off.

    `name` is the name of the argument, for error texts. Raises TypeError unless `timestamp` is an
    integer or a float, WrongArgument if a record cannot have this timestamp.
    """
    if not isinstance(timestamp, float):
        timestamp = as_int(name, timestamp, accepted="a number of milliseconds since 1970")
    if not -1 < timestamp <= _LAST_TIMESTAMP:  # also refuses NaN
        raise WrongArgument(
            f"{name}: {timestamp} is not a number of milliseconds since 1970, "
            f"from 0 to {_LAST_TIMESTAMP}"
        )
    return int(timestamp)


def check_topic(topic: Any) -> None:
    """Raise TypeError if `topic` is not a str, WrongArgument if it is empty, too long for a
    request, or cannot be encoded as UTF-8."""
    if not isinstance(topic, str):
        raise TypeError(f"topic: must be a str, not {type(topic).__name__}")
    if not topic:
        raise WrongArgument("topic: must not be empty")
    _check_text(topic, "topic:", require_sendable)


def _check_text(text: str, what: str, require: Callable[[str], None] = require_unicode) -> None:
    try:
        require(text)
    except ValueError as error:
        raise WrongArgument(f"{what} {brief(text)} cannot be sent: {error}") from None


# -- Records and batches


class OutgoingRecord:
    """A serialized and checked record."""

    __slots__ = ("headers", "key", "timestamp", "topic", "value")

    def __init__(
        self, topic: str, value: bytes | None, key: bytes | None, timestamp: int, headers: Headers
    ) -> None:
        self.topic = topic
        self.value = value
        self.key = key
        self.timestamp = timestamp
        self.headers = headers

    @property
    def size(self) -> int:
        """An upper bound for the bytes of an uncompressed batch with this record alone. It must not
        exceed `max_request_size`."""
        size = _MOST_FRAMING + _field_size(self.key) + _field_size(self.value)
        size += varint_size(len(self.headers))
        for name, value in self.headers:
            size += _field_size(name.encode()) + _field_size(value)
        return size


def _field_size(field: bytes | None) -> int:
    return 1 if field is None else varint_size(len(field)) + len(field)


def checked_record(
    topic: str,
    value: Any,
    key: Any,
    timestamp_ms: float | None,
    headers: Headers,
    config: ProducerConfig,
) -> OutgoingRecord:
    """Return the arguments of `send` as an OutgoingRecord. `value` and `key` are serialized
    already. With `timestamp_ms` None, the record gets the present time.

    Raises WrongArgument or TypeError for an invalid argument, MessageSizeTooLargeError if the
    record exceeds `max_request_size`.
    """
    check_topic(topic)
    if value is None and key is None:
        raise WrongArgument("Need at least one: key or value; both are None")
    record = OutgoingRecord(
        topic,
        as_bytes(value, "value", config.value_serializer is not None),
        as_bytes(key, "key", config.key_serializer is not None),
        int(_clock.wall_time() * 1000) if timestamp_ms is None else as_timestamp(timestamp_ms),
        headers,
    )
    if record.size > config.max_request_size:
        raise MessageSizeTooLargeError(
            f"The message is {record.size} bytes when serialized which is larger than "
            f"max_request_size={config.max_request_size}: topic {topic!r}"
        )
    return record


def check_batch(batch: BatchBuilder, topic: str, config: ProducerConfig) -> None:
    """Raise IllegalStateError for a batch that was sent, WrongArgument for an empty batch or a
    batch for another topic, MessageSizeTooLargeError for a batch that exceeds `max_request_size`.
    """
    if batch.is_sent:
        raise IllegalStateError("the batch was sent already")
    if not batch.record_count():
        raise WrongArgument("the batch is empty")
    if batch.topic is not None and batch.topic != topic:
        raise WrongArgument(f"topic: the batch was created for {batch.topic!r}, not for {topic!r}")
    if batch.size() > config.max_request_size:
        raise MessageSizeTooLargeError(
            f"topic {topic!r}: a batch of {batch.size()} bytes does not fit into "
            f"max_request_size={config.max_request_size}"
        )


def ask_partitioner(
    partitioner: Callable[..., int], topic: str, key: bytes | None, cluster: ClusterMetadata
) -> int:
    """Return the partition that the user's partitioner chooses for `key`.

    Raises WrongArgument if the chosen partition does not exist.
    """
    numbers = cluster.partition_ids(topic)
    available = list(cluster.available_partition_ids(topic))
    by_topic = getattr(partitioner, "partition_for", None)
    if by_topic is not None:
        chosen = by_topic(topic, key, list(numbers), available)
    else:
        chosen = partitioner(key, list(numbers), available)
    if chosen not in numbers:
        raise WrongArgument(
            f"the partitioner chose {chosen!r} for topic {topic!r}, which has partitions "
            f"from {min(numbers)} to {max(numbers)}"
        )
    return int(chosen)
