"""How partitions and topics are named in messages."""

from __future__ import annotations

from collections.abc import Collection

from aiokafka.structs import TopicPartition

__all__ = ["some_names", "some_topics"]

_MOST = 5


def some_names(partitions: Collection[TopicPartition]) -> str:
    """Name the first few of these partitions, and say how many more there are."""
    first = sorted(partitions)[:_MOST]
    return _some([f"{tp.topic}-{tp.partition}" for tp in first], len(partitions))


def some_topics(topics: Collection[str]) -> str:
    """Name the first few of these topics, and say how many more there are."""
    return _some(sorted(topics)[:_MOST], len(topics))


def _some(first: list[str], count: int) -> str:
    names = ", ".join(first)
    more = count - len(first)
    return f"{names} and {more} more" if more else names
