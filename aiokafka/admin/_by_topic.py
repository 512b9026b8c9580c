"""Partitions as requests and responses have them, topic by topic; and their names in errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol, TypeVar

from aiokafka.structs import TopicPartition

__all__ = ["by_topic", "name_of", "numbers_by_topic", "partitions_in"]

T = TypeVar("T")


class _Entry(Protocol):
    """What a response says of one partition."""

    @property
    def partition_index(self) -> int:
        """The number of the partition."""


E = TypeVar("E", bound=_Entry)
E_co = TypeVar("E_co", bound=_Entry, covariant=True)


class _Topic(Protocol[E_co]):
    """What a response says of the partitions of one topic."""

    @property
    def name(self) -> str:
        """The name of the topic."""

    @property
    def partitions(self) -> Sequence[E_co]:
        """An entry for each partition."""


def name_of(tp: TopicPartition) -> str:
    """Return what errors call a partition."""
    return f"{tp.topic}-{tp.partition}"


def by_topic(
    partitions: Iterable[TopicPartition], entry: Callable[[TopicPartition], T]
) -> dict[str, list[T]]:
    """Return what `entry` makes of each partition, by the names of topics, in order."""
    topics: dict[str, list[T]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(entry(tp))
    return topics


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the numbers of the partitions of each topic."""
    return by_topic(partitions, lambda tp: tp.partition)


def partitions_in(topics: Iterable[_Topic[E]]) -> Iterator[tuple[TopicPartition, E]]:
    """Yield each partition that a response names, with its entry there."""
    for topic in topics:
        for each in topic.partitions:
            yield TopicPartition(topic.name, each.partition_index), each
