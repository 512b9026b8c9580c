"""Requests for offsets, and what their responses say."""

from __future__ import annotations

from aiokafka import TopicPartition
from aiokafka._reading import FoundOffset, list_offsets, offsets_in
from aiokafka.errors import BrokerResponseError, NotLeaderForPartitionError
from aiokafka.protocol.messages.fetch import (
    EARLIEST,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def response(*partitions: ListOffsetsPartitionResponse) -> ListOffsetsResponse:
    topic = ListOffsetsTopicResponse(name="a", partitions=list(partitions))
    return ListOffsetsResponse(topics=[topic])


def fields(found: FoundOffset | type[BrokerResponseError]) -> tuple[int, int, int]:
    assert isinstance(found, FoundOffset)
    return found.offset, found.timestamp, found.leader_epoch


def test_offsets_are_asked_for_by_topic_with_the_epochs_of_leaders() -> None:
    request = list_offsets({A0: EARLIEST, B0: 17, A1: 5}, {A0: 1, A1: 2, B0: 3}.__getitem__, 1)
    assert request.isolation_level == 1
    assert [
        (t.name, [(p.partition_index, p.current_leader_epoch, p.timestamp) for p in t.partitions])
        for t in request.topics
    ] == [("a", [(0, 1, EARLIEST), (1, 2, 5)]), ("b", [(0, 3, 17)])]


def test_errors_of_partitions_are_values() -> None:
    code = NotLeaderForPartitionError.errno
    found = offsets_in(
        response(
            ListOffsetsPartitionResponse(partition_index=0, error_code=code),
            ListOffsetsPartitionResponse(
                partition_index=1, offset=8, timestamp=100, leader_epoch=4
            ),
        )
    )
    assert found[A0] is NotLeaderForPartitionError
    assert fields(found[A1]) == (8, 100, 4)


def test_the_oldest_brokers_give_lists_of_offsets() -> None:
    found = offsets_in(
        response(
            ListOffsetsPartitionResponse(partition_index=0, old_style_offsets=[12, 3]),
            ListOffsetsPartitionResponse(partition_index=1),
        )
    )
    assert fields(found[A0]) == (12, -1, -1)
    assert fields(found[A1]) == (-1, -1, -1)
