"""ListOffsets: offsets by timestamp or special place, to ask for and to read. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from aiokafka.errors import BrokerResponseError, for_code
from aiokafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from aiokafka.structs import TopicPartition

__all__ = ["FoundOffset", "Offsets", "by_topic", "list_offsets", "offsets_in"]

V = TypeVar("V")

_BROKER_TIMEOUT_MS = 30_000


class FoundOffset(NamedTuple):
    """ListOffsets' answer; `offset` is -1 when no record is as young as asked."""

    offset: int
    timestamp: int
    leader_epoch: int


Offsets = dict[TopicPartition, FoundOffset | type[BrokerResponseError]]


def by_topic(items: Iterable[tuple[TopicPartition, V]]) -> dict[str, list[tuple[int, V]]]:
    """Group values of partitions as requests carry them."""
    topics: dict[str, list[tuple[int, V]]] = {}
    for tp, value in items:
        topics.setdefault(tp.topic, []).append((tp.partition, value))
    return topics


def list_offsets(
    wanted: Mapping[TopicPartition, int],
    leader_epoch: Callable[[TopicPartition], int],
    isolation_level: int = 0,
) -> ListOffsetsRequest:
    """Return the request for offsets: a timestamp, or EARLIEST or LATEST, by partition."""
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=partition,
                        current_leader_epoch=leader_epoch(TopicPartition(topic, partition)),
                        timestamp=timestamp,
                    )
                    for partition, timestamp in partitions
                ],
            )
            for topic, partitions in by_topic(wanted.items()).items()
        ],
        timeout_ms=_BROKER_TIMEOUT_MS,
    )


def offsets_in(response: ListOffsetsResponse) -> Offsets:
    """Return what a response says of each of its partitions; its errors as classes."""
    found: Offsets = {}
    for topic in response.topics:
        for p in topic.partitions:
            tp = TopicPartition(topic.name, p.partition_index)
            if p.error_code:
                found[tp] = for_code(p.error_code)
            else:
                old_style = p.old_style_offsets[0] if p.old_style_offsets else -1
                offset = p.offset if p.offset >= 0 else old_style
                found[tp] = FoundOffset(offset, p.timestamp, p.leader_epoch)
    return found
