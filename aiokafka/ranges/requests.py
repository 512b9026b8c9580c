"""The requests that reading ranges needs, and what their responses say."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aiokafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiokafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.ranges.state import RangeState
from aiokafka.structs import TopicPartition

__all__ = ["fetch", "list_offsets", "offset_in"]

Epoch = Callable[[TopicPartition], int]


def fetch(states: Iterable[RangeState], epoch: Epoch, limit: int) -> FetchRequest:
    """Ask for the next records of these ranges, each at most `limit` bytes. The caller sets the
    limits of the whole request."""
    topics: dict[str, FetchTopic] = {}
    for state in states:
        wanted = state.range
        topic = topics.get(wanted.topic)
        if topic is None:
            topic = topics[wanted.topic] = FetchTopic(
                topic=wanted.topic, topic_id=wanted.topic_id or ZERO_UUID, partitions=[]
            )
        topic.partitions.append(
            FetchPartition(
                partition=wanted.partition,
                current_leader_epoch=epoch(state.tp),
                fetch_offset=state.position,
                partition_max_bytes=state.size.ask(state.left, limit),
            )
        )
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=list(topics.values()))


def list_offsets(tp: TopicPartition, epoch: int, place: int) -> ListOffsetsRequest:
    """Ask for the first offset (EARLIEST) or the one after the last (LATEST)."""
    partition = ListOffsetsPartition(
        partition_index=tp.partition, current_leader_epoch=epoch, timestamp=place
    )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=0,
        topics=[ListOffsetsTopic(name=tp.topic, partitions=[partition])],
        timeout_ms=30_000,
    )


def offset_in(response: ListOffsetsResponse) -> tuple[int, int]:
    """Return (error code, offset) from a response about one partition.

    A response without an offset is an error.
    """
    for topic in response.topics:
        for partition in topic.partitions:
            old_style = partition.old_style_offsets[0] if partition.old_style_offsets else -1
            offset = partition.offset if partition.offset >= 0 else old_style
            return partition.error_code or min(0, offset), offset
    return -1, -1
