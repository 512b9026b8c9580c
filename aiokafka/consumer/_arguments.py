"""Validation and normalization of the arguments of AIOKafkaConsumer's methods."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from aiokafka._arguments import as_list
from aiokafka._config import ClientConfig, SecurityConfig
from aiokafka._config.consumer import ConsumerConfig
from aiokafka._config.options import refuse_unknown
from aiokafka._partitions import as_partition, check_topic_name, split_offset
from aiokafka.errors import IllegalOperation, IllegalStateError
from aiokafka.structs import OffsetAndMetadata, SubscriptionPattern, TopicPartition

LARGEST_OFFSET = 2**63 - 1


class AllPositions(dict[TopicPartition, OffsetAndMetadata]):
    """The offsets of `commit()` without arguments: the positions of all assigned partitions.

    `commit_offsets` recognizes such a commit by this type instead of a parameter: tracing libraries
    replace `commit_offsets` by functions that accept no further parameters."""


def as_partitions(partitions: Iterable[Any]) -> list[TopicPartition]:
    """Return the partitions as a list. Raises TypeError if `partitions` is a single partition or a
    str, or if an element is not a partition."""
    return [
        as_partition(tp) for tp in as_list("partitions", partitions, "partitions", TopicPartition)
    ]


def to_assign(partitions: Iterable[Any]) -> list[TopicPartition]:
    """Return the partitions of `assign()` as a list. Raises TypeError for anything but partitions,
    ValueError for an invalid topic name or a negative partition number."""
    # Convert NumPy integers: `ConsumerRecord.partition` must be an `int`.
    tps = [TopicPartition(tp[0], operator.index(tp[1])) for tp in as_partitions(partitions)]
    for tp in tps:
        check_topic_name(tp.topic)
        if tp.partition < 0:
            raise ValueError(
                f"partitions: {tp.partition} of topic {tp.topic!r} must not be negative"
            )
    return tps


def as_wanted(partitions: tuple[Any, ...]) -> frozenset[TopicPartition] | None:
    """Return the partitions that `getone()` or `getmany()` was called with; None for no arguments
    (all partitions). Raises WrongPartition for anything but partitions."""
    try:
        return frozenset([as_partition(tp) for tp in partitions]) or None
    except TypeError as error:
        # Programs written for aiokafka 0.14 expect an AssertionError.
        raise WrongPartition(*error.args) from None


def offsets_to_commit(offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets of `commit()` as a dict of TopicPartition to OffsetAndMetadata. Raises
    ValueError or TypeError for malformed offsets."""
    if not isinstance(offsets, Mapping) or not offsets:
        # The error text must not contain the argument, which may be a record with secrets.
        given = "an empty one" if isinstance(offsets, Mapping) else type(offsets).__name__
        raise ValueError(f"offsets: must be a dict with at least one partition, not {given}")
    entries: dict[TopicPartition, OffsetAndMetadata] = {}
    for tp, value in offsets.items():
        if type(tp) is not TopicPartition:
            tp = _as_key(tp)
        offset, metadata, epoch = (value, "", -1) if type(value) is int else split_offset(value)
        if not isinstance(metadata, str):
            raise TypeError(f"Metadata should be a string, but for {tp} is {metadata!r}")
        if not is_offset(offset):
            raise ValueError(
                f"offsets: the offset of {tp} must be at least 0, and below 2**63, not {offset!r}"
            )
        entries[tp] = OffsetAndMetadata(offset, metadata, epoch)
    return entries


def _as_key(tp: Any) -> TopicPartition:
    try:
        return as_partition(tp, "Key should be TopicPartition instance in offsets")
    except TypeError as error:
        # Programs written for aiokafka 0.14 expect a ValueError.
        raise WrongKey(*error.args) from None


class WrongKey(TypeError, ValueError):
    """A key that is not a partition. Also a ValueError, as in aiokafka 0.14."""


class WrongPartition(TypeError, AssertionError):
    """An argument that is not a partition. Also an AssertionError, as in aiokafka 0.14."""


class WrongStart(IllegalStateError, AssertionError):
    """`start()` was called a second time, or in another event loop than the constructor. Also an
    AssertionError, as in aiokafka 0.14."""


def is_offset(value: Any) -> bool:
    """Return whether a value is a valid offset: a non-negative 64-bit integer."""
    return isinstance(value, int) and 0 <= value <= LARGEST_OFFSET


def server_regex(pattern: SubscriptionPattern, config: ConsumerConfig) -> str:
    """Return the regular expression of a SubscriptionPattern. Raises ValueError unless it is a
    non-empty str, IllegalOperation unless `group_id` is set and group_protocol is 'consumer'."""
    regex: Any = pattern.pattern
    if not isinstance(regex, str) or not regex:
        raise ValueError(f"pattern={pattern!r}: must have a str that is not empty")
    if config.group_id is None or config.group_protocol != "consumer":
        raise IllegalOperation(
            "subscribe() with a SubscriptionPattern needs group_id and group_protocol='consumer'; "
            "a pattern that is a str is matched by the client"
        )
    return str(regex)


def default_strategy() -> tuple[Any, ...]:
    """Return the default of `partition_assignment_strategy`. Assignors are imported only for a
    consumer with a group."""
    from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    return (RoundRobinPartitionAssignor,)


def configure(owner: str, options: dict[str, Any]) -> ConsumerConfig:
    """Return the configuration for the keyword arguments of a constructor. `owner`: name of the
    class, for error texts. Raises TypeError or ValueError for an unknown or invalid option."""
    refuse_unknown(owner, options, ConsumerConfig, ClientConfig, SecurityConfig)
    given = options.get("partition_assignment_strategy")
    if options.get("group_protocol", "classic") != "consumer":
        if given is None and options.get("group_id") is not None:
            options.setdefault("partition_assignment_strategy", default_strategy())
    elif given is not None and given == default_strategy():
        del options["partition_assignment_strategy"]
    own = ConsumerConfig.keywords()
    client = ClientConfig.from_options(**{k: v for k, v in options.items() if k not in own})
    return ConsumerConfig.from_options(
        client=client, **{k: v for k, v in options.items() if k in own}
    )


# -- names in messages

_MOST = 5


def some_names(partitions: Collection[TopicPartition]) -> str:
    """Return the names of the first five partitions and the number of the others, for messages."""
    first = sorted(partitions)[:_MOST]
    return _some([f"{tp.topic}-{tp.partition}" for tp in first], len(partitions))


def some_positions(positions: Mapping[TopicPartition, int]) -> str:
    """Return names and offsets of the first five partitions, and the number of the others."""
    first = sorted(positions.items())[:_MOST]
    texts = [f"{tp.topic}-{tp.partition} at {offset}" for tp, offset in first]
    return _some(texts, len(positions))


def some_topics(topics: Collection[str]) -> str:
    """Return the names of the first five topics and the number of the others, for messages."""
    return _some(sorted(topics)[:_MOST], len(topics))


def _some(first: list[str], count: int) -> str:
    names = ", ".join(first)
    more = count - len(first)
    return f"{names} and {more} more" if more else names
