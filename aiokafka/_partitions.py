"""`TopicPartition`, and checks of partitions, topic names and offsets in arguments."""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Any, NamedTuple

__all__ = [
    "TopicPartition",
    "as_partition",
    "check_topic_name",
    "split_offset",
    "topic_names",
]

_LONGEST_NAME = 249
_LONGEST_EVER = 255  # the limit before Kafka 0.10.1
_ALLOWED = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


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
        f"topics: {shown!r} is not a valid topic name: allowed are letters, digits, . _ -, "
        f"at most {_LONGEST_NAME}, but not the names . and .."
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
            raise TypeError(f"Topics should be list of strings: {name!r} is not a str")
        check_topic_name(name)
    return frozenset(topics)
