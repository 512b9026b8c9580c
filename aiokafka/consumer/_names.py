"""How partitions are named in messages."""

from __future__ import annotations

from collections.abc import Collection

from aiokafka.structs import TopicPartition

__all__ = ["some_names"]

_MOST = 5


def some_names(partitions: Collection[TopicPartition]) -> str:
    """Name the first few of these partitions, and say how many more there are."""
    first = sorted(partitions)[:_MOST]
    names = ", ".join(f"{tp.topic}-{tp.partition}" for tp in first)
    more = len(partitions) - len(first)
    return f"{names} and {more} more" if more else names
