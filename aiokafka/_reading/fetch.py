"""What a Fetch asks of each partition, and which partition a part of the response is for. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from aiokafka.protocol.messages.fetch import (
    FetchPartition,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from aiokafka.structs import BrokerMetadata, TopicPartition

__all__ = [
    "FetchSpec",
    "fetch_topics",
    "named_brokers",
    "named_leader",
    "named_leaders",
    "partitions_in",
    "room_for_records",
]

# Bytes of a response that are no records.
_AROUND_ANSWER = 1024
_AROUND_PARTITION = 400


class FetchSpec(NamedTuple):
    """What a fetch asks of one partition."""

    topic_id: bytes
    offset: int
    leader_epoch: int
    max_bytes: int


def fetch_topics(entries: Iterable[tuple[TopicPartition, FetchSpec]]) -> list[FetchTopic]:
    """Return these partitions as a request carries them: by topic, in the order given."""
    topics: dict[tuple[str, bytes], FetchTopic] = {}
    for tp, spec in entries:
        # Two topics, one deleted and one created since, may have the same name.
        key = tp.topic, spec.topic_id
        topic = topics.get(key)
        if topic is None:
            topic = topics[key] = FetchTopic(topic=tp.topic, topic_id=spec.topic_id, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=tp.partition,
                current_leader_epoch=spec.leader_epoch,
                fetch_offset=spec.offset,
                partition_max_bytes=spec.max_bytes,
            )
        )
    return list(topics.values())


def room_for_records(nbytes: int, partitions: int) -> int:
    """Return how many bytes of records a response of `nbytes` about so many partitions may have;
    0 or less for none."""
    return nbytes - _AROUND_ANSWER - _AROUND_PARTITION * partitions


def partitions_in(
    response: FetchResponse, names: Mapping[bytes, str]
) -> Iterator[tuple[TopicPartition, PartitionData]]:
    """Yield each partition of a response with its data.

    A response names its topics (up to version 12) or gives the ids that were asked with: `names`
    has the topic by id. Topics of other ids are left out.
    """
    for topic in response.responses:
        name = topic.topic or names.get(topic.topic_id)
        if name is not None:
            for data in topic.partitions:
                yield TopicPartition(name, data.partition_index), data


def named_leader(data: PartitionData) -> tuple[int, int] | None:
    """Return the id and epoch of the leader that a broker names in place of itself (KIP-951)."""
    leader = data.current_leader
    is_named = data.error_code and leader.leader_id >= 0 and leader.leader_epoch >= 0
    return (leader.leader_id, leader.leader_epoch) if is_named else None


def named_brokers(response: FetchResponse) -> list[BrokerMetadata]:
    """Return where the leaders are that a response names."""
    return [BrokerMetadata(e.node_id, e.host, e.port, e.rack) for e in response.node_endpoints]


def named_leaders(
    response: FetchResponse, names: Mapping[bytes, str], id_of: Callable[[str], bytes | None]
) -> tuple[dict[TopicPartition, tuple[int, int]], list[BrokerMetadata]]:
    """Return what `named_leader` says, by partition, and `named_brokers`. `names` as in
    `partitions_in`; topics whose id, `id_of` their name, is another one by now are left out."""
    current = {id_: name for id_, name in names.items() if id_of(name) == id_}
    found = {tp: named_leader(data) for tp, data in partitions_in(response, current)}
    leaders = {tp: leader for tp, leader in found.items() if leader is not None}
    return leaders, named_brokers(response)
