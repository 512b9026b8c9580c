"""What is known of topics and partitions, and what to believe of a metadata response about them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from aiokafka.errors import (
    InvalidTopicError,
    LeaderNotAvailableError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.schema import ZERO_UUID

if TYPE_CHECKING:
    from aiokafka.protocol.messages.metadata import (
        MetadataResponsePartition,
        MetadataResponseTopic,
    )

__all__ = ["PartitionInfo", "TopicInfo", "merge_missing", "merge_topic"]

log = logging.getLogger("aiokafka.cluster")

# How many responses in a row may say "no such topic" about a topic we have seen, or not list it
# among all, before it is dropped: a broker that has just started responds like this until it has
# loaded its own metadata. One that could not look says nothing about the topic, either.
_PATIENCE_WITH_UNKNOWN = 3

# Without topic ids no response says that a topic was deleted and made again, which starts its
# epochs at 0. So many in a row with an older epoch do not all come from a broker that lags behind.
_PATIENCE_WITH_OLD = 3


class PartitionInfo(NamedTuple):
    """One partition: who leads it and who has copies.

    `leader` is -1 when there is none, `epoch` -1 when unknown. `doubts` counts the
    responses in a row that had an older epoch, and were not believed.
    """

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: int
    doubts: int = 0


class TopicInfo(NamedTuple):
    """One topic: its id (16 zero bytes before Kafka 2.8) and its partitions by number.

    `error` is the code of the last response; `misses` counts the responses in a row that had one
    while older partitions were kept.
    """

    topic_id: bytes
    is_internal: bool
    partitions: Mapping[int, PartitionInfo]
    error: int = 0
    misses: int = 0


def merge_topic(old: TopicInfo | None, topic: MetadataResponseTopic) -> TopicInfo:
    """Return what to believe of a topic after a response about it."""
    if topic.error_code == 0:
        # A topic that was deleted and made again starts its epochs at 0.
        is_same = old is not None and (
            old.topic_id == topic.topic_id or ZERO_UUID in (old.topic_id, topic.topic_id)
        )
        known = old.partitions if old is not None and is_same else {}
        has_id = topic.topic_id != ZERO_UUID
        partitions = {
            p.partition_index: _merge_partition(topic.name, known.get(p.partition_index), p, has_id)
            for p in topic.partitions
            if p.partition_index >= 0
        }
        if len(partitions) < len(known) and has_id and old and old.topic_id == topic.topic_id:
            # No topic ever gets fewer: a broker that lags behind has not heard of the others.
            partitions = {**known, **partitions}
        topic_id = topic.topic_id
        if topic_id == ZERO_UUID and old is not None and is_same:
            topic_id = old.topic_id
        return TopicInfo(topic_id, topic.is_internal, partitions)
    if old is None or not old.partitions or _is_final(topic.error_code, old.misses):
        return TopicInfo(ZERO_UUID, topic.is_internal, {}, topic.error_code)
    return old._replace(error=topic.error_code, misses=old.misses + 1)


def merge_missing(old: TopicInfo) -> TopicInfo | None:
    """Return what to believe of a topic that a response about all lacks: None if it is gone."""
    error_code = UnknownTopicOrPartitionError.errno
    if not old.partitions or _is_final(error_code, old.misses):
        return None
    return old._replace(error=error_code, misses=old.misses + 1)


def _is_final(error_code: int, misses: int) -> bool:
    """Return whether a topic is gone for us by this error, after `misses` errors before it in a
    row.
    """
    if error_code in (TopicAuthorizationFailedError.errno, InvalidTopicError.errno):
        return True
    if error_code == UnknownTopicOrPartitionError.errno or not for_code(error_code).retriable:
        return misses + 1 >= _PATIENCE_WITH_UNKNOWN
    return False


def _merge_partition(
    topic: str | None, old: PartitionInfo | None, new: MetadataResponsePartition, has_id: bool
) -> PartitionInfo:
    """Return the partition of a response, unless it is older than what we know (KIP-320).

    With `has_id` the topic is known to be the same, so an older epoch is old for sure.
    """
    epoch = new.leader_epoch
    if old is not None and 0 <= epoch < old.epoch:
        if has_id or old.doubts + 1 < _PATIENCE_WITH_OLD:
            return old._replace(doubts=old.doubts + 1)
        log.info(
            "%s-%d has leader epoch %d after %d: its topic was deleted and created again",
            topic,
            new.partition_index,
            epoch,
            old.epoch,
            extra={"topic": topic, "partition": new.partition_index},
        )
    if old is not None and epoch < 0 <= old.epoch and new.leader_id == old.leader:
        epoch = old.epoch
    code = new.error_code
    leader = -1 if code == LeaderNotAvailableError.errno else new.leader_id
    nodes = (tuple(new.replica_nodes), tuple(new.isr_nodes), tuple(new.offline_replicas))
    # What has not changed is shared with the snapshot before.
    is_known = old is not None and old == (leader, epoch, *nodes, code, 0)
    return old if old is not None and is_known else PartitionInfo(leader, epoch, *nodes, code)
