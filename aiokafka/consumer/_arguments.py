"""Validation and normalization of the arguments of AIOKafkaConsumer's methods."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterable, Mapping, Set
from typing import Any

from aiokafka._config import ClientConfig, SecurityConfig
from aiokafka._config.consumer import ConsumerConfig
from aiokafka._config.options import refuse_unknown
from aiokafka._partitions import as_partition, check_topic_name, split_offset
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import IllegalOperation, IllegalStateError
from aiokafka.structs import OffsetAndMetadata, SubscriptionPattern, TopicPartition

_STOP_TIMEOUT = 10.0

LARGEST_OFFSET = 2**63 - 1

_MOST_RECORDS = 2**31 - 1

DEFAULT_STRATEGY = (RoundRobinPartitionAssignor,)


class AllPositions(dict[TopicPartition, OffsetAndMetadata]):
    """The offsets of `commit()` without arguments: the positions of all assigned partitions.

    The type distinguishes this commit from a commit of given offsets. An additional parameter could
    not: tracers replace `commit_offsets` by functions with fixed parameters."""


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


def as_partitions(partitions: Iterable[Any]) -> list[TopicPartition]:
    """Return the partitions as a list. Raises TypeError for a single partition, and for elements
    that are no partitions."""
    if isinstance(partitions, (str, tuple)) and _is_one(partitions):
        raise TypeError(f"partitions: expected several, in a list or set, not {partitions!r}")
    return [as_partition(tp) for tp in partitions]


def _is_one(value: Any) -> bool:
    """Return whether `value` is a single partition or topic instead of several partitions."""
    return isinstance(value, str) or (len(value) == 2 and isinstance(value[0], str))


def to_assign(partitions: Iterable[Any]) -> list[TopicPartition]:
    """Return the partitions of `assign()`. Raises TypeError or ValueError for an invalid
    partition."""
    # Convert NumPy integers: `ConsumerRecord.partition` must be an `int`.
    tps = [TopicPartition(tp[0], operator.index(tp[1])) for tp in as_partitions(partitions)]
    for tp in tps:
        check_topic_name(tp.topic)
        if tp.partition < 0:
            raise ValueError(f"partitions: {tp.partition} of topic {tp.topic!r} is not possible")
    return tps


def as_wanted(partitions: tuple[Any, ...]) -> frozenset[TopicPartition] | None:
    """Return the partitions that `getone()` or `getmany()` was called with; None for all."""
    try:
        return frozenset([as_partition(tp) for tp in partitions]) or None
    except TypeError as error:
        # Programs written for aiokafka 0.14 expect an AssertionError.
        raise WrongPartition(*error.args) from None


def offsets_to_commit(offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets of `commit()` as OffsetAndMetadata by TopicPartition. Raises ValueError or
    TypeError for malformed offsets."""
    if not isinstance(offsets, Mapping) or not offsets:
        # The text must not contain the value, which may be a record with secrets.
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
        return as_partition(tp)
    except TypeError as error:
        # Programs written for aiokafka 0.14 expect a ValueError.
        raise WrongKey(*error.args) from None


class WrongKey(TypeError, ValueError):
    """A key that is not a partition. Also a ValueError, as in aiokafka."""


class WrongPartition(TypeError, AssertionError):
    """An argument that is not a partition. Also an AssertionError, as in aiokafka."""


class WrongStart(IllegalStateError, AssertionError):
    """`start()` was called a second time, or in another event loop. Also an AssertionError, as in
    aiokafka."""


def is_offset(value: Any) -> bool:
    """Return whether a value is a valid offset: a non-negative 64-bit integer."""
    return isinstance(value, int) and 0 <= value <= LARGEST_OFFSET


def record_limit(max_records: Any, default: int | None) -> int:
    """Return the limit for `max_records` of `getmany()`; -1 for no limit. Raises ValueError for an
    invalid `max_records`."""
    if max_records is None:
        return -1 if default is None else min(default, _MOST_RECORDS)
    if not isinstance(max_records, int) or max_records <= 0:
        raise ValueError(f"`max_records` must be a positive Integer, not {max_records!r}")
    return min(max_records, _MOST_RECORDS)


def stop_limit(timeout: Any) -> float:
    """Return the timeout of `stop()` in seconds. Raises ValueError for an invalid timeout."""
    if timeout is None:
        return _STOP_TIMEOUT
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 0:
        raise ValueError(f"timeout={timeout!r}: must be a number of seconds of at least 0, or None")
    return float(timeout)


def server_regex(pattern: SubscriptionPattern, config: ConsumerConfig) -> str:
    """Return the regular expression of a SubscriptionPattern. Raises ValueError if the expression
    is empty, IllegalOperation without group_protocol='consumer'."""
    regex: Any = pattern.pattern
    if not isinstance(regex, str) or not regex:
        raise ValueError(f"pattern={pattern!r}: must have a str that is not empty")
    if config.group_id is None or config.group_protocol != "consumer":
        raise IllegalOperation(
            "subscribe() with a SubscriptionPattern needs group_id and group_protocol='consumer'; "
            "a pattern that is a str is matched by the client"
        )
    return str(regex)


def configure(owner: str, options: dict[str, Any]) -> ConsumerConfig:
    """Return the configuration for the keyword arguments of a constructor. `owner`: name of the
    class, for error texts."""
    refuse_unknown(owner, options, ConsumerConfig, ClientConfig, SecurityConfig)
    is_classic = options.get("group_protocol", "classic") != "consumer"
    strategy = options.pop("partition_assignment_strategy", DEFAULT_STRATEGY)
    if is_classic or strategy != DEFAULT_STRATEGY:
        options["partition_assignment_strategy"] = strategy
    own = ConsumerConfig.keywords()
    client = ClientConfig.from_options(**{k: v for k, v in options.items() if k not in own})
    return ConsumerConfig.from_options(
        client=client, **{k: v for k, v in options.items() if k in own}
    )


# -- names in messages

_MOST = 5


def some_names(partitions: Collection[TopicPartition]) -> str:
    """Return a text with the names of the first few partitions and the number of the others, for
    messages."""
    first = sorted(partitions)[:_MOST]
    return _some([f"{tp.topic}-{tp.partition}" for tp in first], len(partitions))


def some_topics(topics: Collection[str]) -> str:
    """Return a text with the names of the first few topics and the number of the others, for
    messages."""
    return _some(sorted(topics)[:_MOST], len(topics))


def _some(first: list[str], count: int) -> str:
    names = ", ".join(first)
    more = count - len(first)
    return f"{names} and {more} more" if more else names
