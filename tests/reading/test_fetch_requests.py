"""What is asked of partitions, and which of them a response is about."""

from __future__ import annotations

from aiokafka import TopicPartition
from aiokafka._reading import FetchSpec, fetch_topics, partitions_in
from aiokafka.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from aiokafka.protocol.schema import ZERO_UUID

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ID, OTHER_ID = b"1" * 16, b"2" * 16


def part(number: int) -> PartitionData:
    return PartitionData(partition_index=number, high_watermark=0)


def response(*topics: FetchableTopicResponse) -> FetchResponse:
    return FetchResponse(responses=list(topics))


def test_partitions_are_asked_for_by_topic() -> None:
    specs = {
        A0: FetchSpec(ID, 5, 3, 100),
        B0: FetchSpec(ZERO_UUID, 6, -1, 200),
        A1: FetchSpec(ID, 7, 4, 300),
    }
    first, second = fetch_topics(specs.items())
    assert (first.topic, first.topic_id) == ("a", ID)
    assert [
        (p.partition, p.fetch_offset, p.current_leader_epoch, p.partition_max_bytes)
        for p in first.partitions
    ] == [(0, 5, 3, 100), (1, 7, 4, 300)]
    assert (second.topic, second.topic_id, len(second.partitions)) == ("b", ZERO_UUID, 1)


def test_two_topics_of_one_name_are_not_mixed() -> None:
    specs = {A0: FetchSpec(ID, 0, -1, 1), A1: FetchSpec(OTHER_ID, 0, -1, 1)}
    found = [(t.topic_id, [p.partition for p in t.partitions]) for t in fetch_topics(specs.items())]
    assert found == [(ID, [0]), (OTHER_ID, [1])]


def test_a_response_names_its_topics_or_gives_ids() -> None:
    named = FetchableTopicResponse(topic="b", partitions=[part(0)])
    by_id = FetchableTopicResponse(topic_id=ID, partitions=[part(0), part(1)])
    found = partitions_in(response(named, by_id), {ID: "a"})
    assert [tp for tp, _ in found] == [B0, A0, A1]


def test_an_id_that_was_not_asked_with_is_left_out() -> None:
    topic = FetchableTopicResponse(topic_id=OTHER_ID, partitions=[part(0)])
    assert list(partitions_in(response(topic), {ID: "a"})) == []
    nameless = FetchableTopicResponse(partitions=[part(0)])
    assert list(partitions_in(response(nameless), {ID: "a"})) == []
