"""Looking offsets up at the leaders of partitions."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka._tasks import together
from aiokafka.admin._by_topic import by_topic, name_of, partitions_in
from aiokafka.admin._leaders import by_leader
from aiokafka.admin._offset_values import ListedOffset, OffsetSpec
from aiokafka.admin._routing import Call, Router, error_of, remaining_ms
from aiokafka.errors import (
    KafkaError,
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aiokafka.structs import TopicPartition

__all__ = ["list_offsets"]

Found = dict[TopicPartition, ListedOffset | KafkaError]

_FIRST_WITH_ISOLATION = 2
# What a place needs: a version of the request, and the first Kafka that has it. Any time needs 1.
_BY_TIME = (1, "0.10.1")
_NEEDS = {
    OffsetSpec.LATEST: (0, "0.9"),
    OffsetSpec.EARLIEST: (0, "0.9"),
    OffsetSpec.MAX_TIMESTAMP: (7, "3.0"),
    OffsetSpec.EARLIEST_LOCAL: (8, "3.5"),
    OffsetSpec.LATEST_TIERED: (9, "3.9"),
    OffsetSpec.EARLIEST_PENDING_UPLOAD: (11, "4.2"),
}


async def list_offsets(
    router: Router, places: Mapping[TopicPartition, int], read_committed: bool, deadline: float
) -> dict[TopicPartition, ListedOffset]:
    """Return the offset of a timestamp, or of an `OffsetSpec`, in each partition.

    A partition that the metadata does not have is not waited for.
    """

    async def send(node_id: int, part: list[TopicPartition]) -> Found:
        # Apart by what they need: an old leader fails only what it does not know.
        requests: dict[tuple[int, str], dict[TopicPartition, int]] = {}
        for tp in part:
            requests.setdefault(_needs(places[tp]), {})[tp] = places[tp]
        each = (
            _ask(router, node_id, wanted, need, read_committed, deadline)
            for need, wanted in requests.items()
        )
        return {tp: one for found in await together(each) for tp, one in found.items()}

    return await by_leader(router, places, router.in_half(send, deadline), deadline, patience=0)


def _needs(place: int) -> tuple[int, str]:
    return _BY_TIME if place >= 0 else _NEEDS[OffsetSpec(place)]


async def _ask(
    router: Router,
    node_id: int,
    places: Mapping[TopicPartition, int],
    need: tuple[int, str],
    read_committed: bool,
    deadline: float,
) -> Found:
    first_version, first_kafka = need

    def build(version: int) -> ListOffsetsRequest:
        if version < first_version:
            place = next(iter(places.values()))
            what = "by time" if place >= 0 else OffsetSpec(place).name
            raise UnsupportedVersionError(f"ListOffsets: {what} needs Kafka {first_kafka}")
        request = ListOffsetsRequest(
            replica_id=-1, topics=_topics(places), timeout_ms=remaining_ms(deadline)
        )
        if version >= _FIRST_WITH_ISOLATION:  # Before, there are no transactions.
            request.isolation_level = int(read_committed)
        return request

    try:
        response = await router.send(node_id, Call(ListOffsetsRequest, build), deadline)
    except KafkaError as error:
        return dict.fromkeys(places, error)
    return {tp: _found(tp, each) for tp, each in partitions_in(response.topics)}


def _topics(places: Mapping[TopicPartition, int]) -> list[ListOffsetsTopic]:
    def entry(tp: TopicPartition) -> ListOffsetsPartition:
        return ListOffsetsPartition(partition_index=tp.partition, timestamp=places[tp])

    return [
        ListOffsetsTopic(name=name, partitions=found)
        for name, found in by_topic(places, entry).items()
    ]


def _found(tp: TopicPartition, found: ListOffsetsPartitionResponse) -> ListedOffset | KafkaError:
    if found.error_code == UnknownTopicOrPartitionError.errno:
        # It is in the metadata, so the leader is about to learn of it.
        return NotLeaderForPartitionError(f"{name_of(tp)}: its leader does not know it")
    error = error_of(found.error_code, None, name_of(tp))
    if error is not None:
        return error
    old_style = found.old_style_offsets[0] if found.old_style_offsets else -1
    return ListedOffset(
        offset=_known(max(found.offset, old_style)),
        timestamp=_known(found.timestamp),
        leader_epoch=_known(found.leader_epoch),
    )


def _known(number: int) -> int | None:
    return number if number >= 0 else None
