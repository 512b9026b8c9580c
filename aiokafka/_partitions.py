"""Conversion and checks of partitions, topics and offsets that callers pass."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

__all__ = ["TopicPartition", "as_partition", "check_topic_name", "split_offset"]

_LONGEST_NAME = 249
_LONGEST_EVER = 255  # before Kafka 0.10.1
_ALLOWED = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


class TopicPartition(NamedTuple):
    """A topic and the number of one of its partitions."""

    topic: str
    partition: int


# Programs and pickles import TopicPartition from `aiokafka.structs`. It is defined here, because
# `aiokafka.errors` imports it.
TopicPartition.__module__ = "aiokafka.structs"


def as_partition(value: Any, rule: str = "Key should be TopicPartition instance") -> TopicPartition:
    """Return `value` as a TopicPartition.

    Accepts any tuple of a topic and a number, such as another library's named tuple. Raises
    TypeError, whose text begins with `rule`, for any other value.
    """
    if type(value) is TopicPartition:
        return value
    if isinstance(value, tuple) and len(value) == 2:
        topic, number = value
        if isinstance(topic, str) and isinstance(number, int) and not isinstance(number, bool):
            return TopicPartition(topic, number)
    raise TypeError(f"{rule}, or a tuple of topic and partition, not {value!r}")


def split_offset(value: Any) -> tuple[Any, Any, int]:
    """Return the offset, the metadata and the leader epoch (-1: unknown) of an offset argument.

    `value` is an int, a pair, an OffsetAndMetadata, or a named tuple of another library with an
    epoch. Raises ValueError for any other value. Offset and metadata are not checked.
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
