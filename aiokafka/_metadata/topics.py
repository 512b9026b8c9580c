"""Waits for the partitions of a topic, and what the metadata says instead of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka._config.options import brief, require_sendable
from aiokafka.errors import (
    InvalidTopicError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiokafka._metadata.loop import MetadataLoop
    from aiokafka._metadata.snapshot import ClusterMetadata
    from aiokafka.structs import TopicPartition

__all__ = ["check_name", "wait_for_partition", "wait_for_topic"]

_NOT_THERE = (
    "it does not exist, as brokers said for {:.1f} s{}: create it, or correct the name. "
    "Brokers create topics themselves only with auto.create.topics.enable=true"
)
_NO_PARTITIONS = "brokers named no partitions of it for {:.1f} s{}, but this error"


async def wait_for_topic(metadata: MetadataLoop, topic: str, deadline: float) -> frozenset[int]:
    """Return the partitions of `topic`, which is in use from now on.

    Raises as `AIOKafkaClient.wait_for_topic`.
    """
    check_name(topic)
    if metadata.add_topic(topic):
        return metadata.cluster.known_partitions(topic) or frozenset()
    is_settled = _TopicIsSettled(topic, metadata.cluster.epoch)
    return await _wait_for_partitions(metadata, topic, is_settled, deadline)


async def wait_for_partition(
    metadata: MetadataLoop, partition: TopicPartition, deadline: float
) -> frozenset[int]:
    """Return the partitions of the topic of `partition`. If it is not among them, two brokers are
    asked, if there are two: one may lag behind.

    Raises as `wait_for_topic`, also when the topic is gone, or forbidden, by these refreshes.
    """
    topic, number = partition
    known = await wait_for_topic(metadata, topic, deadline)
    for _ in metadata.cluster.node_ids[:2]:
        if number in known:
            break
        metadata.look_elsewhere()
        known = await _ask_again(metadata, topic, deadline)
    return known


async def _ask_again(metadata: MetadataLoop, topic: str, deadline: float) -> frozenset[int]:
    # A response that is under way may have been true before the partition was made, and news of a
    # leader are no response.
    asked = metadata.asked
    is_settled = _TopicIsSettled(topic, metadata.cluster.epoch)
    return await _wait_for_partitions(
        metadata, topic, lambda cluster: metadata.answered > asked and is_settled(cluster), deadline
    )


async def _wait_for_partitions(
    metadata: MetadataLoop,
    topic: str,
    is_settled: Callable[[ClusterMetadata], bool],
    deadline: float,
) -> frozenset[int]:
    """Return the partitions of `topic` once it is settled, or raise what keeps it from having
    any."""
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    try:
        cluster = await metadata.wait_for_topic(topic, is_settled, deadline)
    except KafkaTimeoutError as timed_out:
        code = metadata.cluster.topic_error(topic)
        if not code:
            raise
        text = _NOT_THERE if code == UnknownTopicOrPartitionError.errno else _NO_PARTITIONS
        said = text.format(loop.time() - began_at, metadata.brokers_asked(topic))
        raise for_code(code)(f"topic {topic!r}: {said}") from timed_out
    known = cluster.known_partitions(topic)
    if known is None:
        raise for_code(cluster.topic_error(topic))(f"topic {topic!r}")
    return known


def check_name(topic: Any) -> None:
    """Raise TypeError or ValueError for what is no topic name.

    One name that cannot be encoded would fail every metadata request that it is part of.
    """
    if not isinstance(topic, str):
        raise TypeError(f"topics: expected names, not {topic!r}")
    if not topic:
        raise ValueError("topics: a topic name must not be empty")
    try:
        require_sendable(topic)
    except ValueError as error:
        raise ValueError(f"topics: {brief(topic)} is no topic name: {error}") from None


class _TopicIsSettled:
    """Judges whether a response about a topic is final: partitions, or an error that stays."""

    def __init__(self, topic: str, epoch: int) -> None:
        self._topic = topic
        self._old_epoch = epoch

    def __call__(self, cluster: ClusterMetadata) -> bool:
        if cluster.known_partitions(self._topic) is not None:
            return True
        # An error from an earlier response may be over.
        final = (TopicAuthorizationFailedError.errno, InvalidTopicError.errno)
        return cluster.epoch > self._old_epoch and cluster.topic_error(self._topic) in final
