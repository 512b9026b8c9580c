"""Checks and conversion of the arguments of calls: partitions, topic names, offsets and limits."""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Any, NamedTuple

__all__ = [
    "TopicPartition",
    "as_partition",
    "check_topic_name",
    "least_records",
    "record_limit",
    "split_offset",
    "stop_limit",
    "topic_names",
]

_LONGEST_NAME = 249
_LONGEST_EVER = 255  # the limit before Kafka 0.10.1
_ALLOWED = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)
_MOST_RECORDS = 2**31 - 1
_STOP_TIMEOUT = 10.0


class TopicPartition(NamedTuple):
    """A topic and the number of one of its partitions."""

    topic: str
    partition: int


# The public module of TopicPartition is `aiokafka.structs`, also for pickles. The class is defined
# in this module to avoid an import cycle with `aiokafka.errors`.
TopicPartition.__module__ = "aiokafka.structs"


def as_partition(value: Any, rule: str = "Key should be TopicPartition instance") -> TopicPartition:
    """Return `value` as a TopicPartition.

    `value` may be any tuple of a topic and a number, such as another library's named tuple. Raises
    TypeError for other values, with a text that begins with `rule`.
    """
    if type(value) is TopicPartition:
        return value
    if isinstance(value, tuple) and len(value) == 2:
        topic, number = value
        if isinstance(topic, str) and isinstance(number, int) and not isinstance(number, bool):
            return TopicPartition(topic, number)
    raise TypeError(f"{rule}, or a tuple of topic and partition, not {value!r}")


def split_offset(value: Any) -> tuple[Any, Any, int]:
    """Split the offset that an application commits into offset, metadata, and leader epoch (-1 if
    unknown).

    `value` is an int, a pair, an OffsetAndMetadata, or another library's named tuple with a leader
    epoch. Raises ValueError for other values. Offset and metadata themselves are not checked.
    """
    if isinstance(value, int):
        return value, "", -1
    try:
        if hasattr(value, "leader_epoch"):
            epoch = value.leader_epoch
            return value.offset, value.metadata, -1 if epoch is None else epoch
        offset, metadata = value
    except (AttributeError, TypeError, ValueError):
        raise ValueError(
            f"offsets: expected an offset, (offset, metadata) or OffsetAndMetadata, not {value!r}"
        ) from None
    return offset, metadata, -1


def check_topic_name(name: str) -> None:
    """Raise ValueError for an invalid topic name."""
    if len(name) <= _LONGEST_EVER and _ALLOWED.fullmatch(name) and name not in (".", ".."):
        return
    if not name:
        raise ValueError("topics: a topic name must not be empty")
    shown = name if len(name) <= _LONGEST_EVER else f"{name[:40]}... ({len(name)} characters)"
    raise ValueError(
        f"topics: {shown!r} is no topic name: it may have letters, digits, . _ -, "
        f"at most {_LONGEST_NAME}, and not be . or .."
    )


def topic_names(topics: Any) -> frozenset[str]:
    """Return the topics of `subscribe()` as a set. Raises TypeError if `topics` is not a collection
    of names, ValueError for a name that no topic can have."""
    if not isinstance(topics, (tuple, list, Set)):
        raise TypeError(f"Topics should be list of strings, or a tuple or set, not {topics!r}")
    for name in topics:
        if isinstance(name, (list, set, dict)):
            # The caller wrote AIOKafkaConsumer(topics) instead of AIOKafkaConsumer(*topics). The
            # error text begins as in aiokafka 0.14 ("unhashable type"), because programs match it.
            kind = type(name).__name__
            raise TypeError(f"unhashable type: {kind!r}: a topic is a str, not {name!r}")
        if not isinstance(name, str):
            raise TypeError(f"Topics should be list of strings: {name!r} is none")
        check_topic_name(name)
    return frozenset(topics)


def record_limit(max_records: Any, default: int | None) -> int:
    """Return the limit for one `getmany()`: `max_records`, or `default` if `max_records` is None;
    -1 if both are None (no limit). Raises ValueError unless `max_records` is None or a positive
    integer."""
    if max_records is None:
        return -1 if default is None else min(default, _MOST_RECORDS)
    if not isinstance(max_records, int) or max_records <= 0:
        raise ValueError(f"`max_records` must be a positive Integer, not {max_records!r}")
    return min(max_records, _MOST_RECORDS)


def least_records(min_records: Any, limit: int) -> int:
    """Return the number of records that one `getmany()` waits for: `min_records`, or 1 if
    `min_records` is None. `limit`: the result of `record_limit()`. Raises ValueError unless
    `min_records` is None or a positive integer up to the limit."""
    if min_records is None:
        return 1
    if not isinstance(min_records, int) or isinstance(min_records, bool) or min_records <= 0:
        raise ValueError(f"min_records={min_records!r}: must be a positive integer or None")
    if 0 <= limit < min_records:
        raise ValueError(
            f"min_records={min_records}: must not be more than max_records or max_poll_records, "
            f"which is {limit}"
        )
    return min_records


def stop_limit(timeout: Any) -> float:
    """Return the timeout of `stop()` in seconds: `timeout`, or 10 if `timeout` is None. Raises
    ValueError unless `timeout` is None or a number of at least 0."""
    if timeout is None:
        return _STOP_TIMEOUT
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise ValueError(f"timeout={timeout!r}: must be a number of seconds of at least 0, or None")
    return float(timeout)
