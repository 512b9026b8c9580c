"""Deleting records."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka.admin._leaders import by_leader
from aiokafka.admin._routing import Call, Router, remaining_ms
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.messages.records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from aiokafka.structs import TopicPartition


async def delete_each(
    router: Router,
    before: Mapping[TopicPartition, int],
    deadline: float,
    *,
    fail_fast: bool = False,
) -> dict[TopicPartition, int]:
    """Return the first offset that is left in each partition; raise what failed."""

    async def send(
        node_id: int, part: list[TopicPartition]
    ) -> dict[TopicPartition, int | KafkaError]:
        def build(version: int) -> DeleteRecordsRequest:
            topics = _topics({tp: before[tp] for tp in part})
            return DeleteRecordsRequest(topics=topics, timeout_ms=remaining_ms(deadline))

        response = await router.send(node_id, Call(DeleteRecordsRequest, build), deadline)
        found: dict[TopicPartition, int | KafkaError] = {}
        for topic in response.topics:
            for each in topic.partitions:
                tp = TopicPartition(topic.name, each.partition_index)
                code = each.error_code
                found[tp] = (
                    for_code(code)(f"{tp.topic}-{tp.partition}") if code else each.low_watermark
                )
        return found

    return await by_leader(router, before, send, deadline, fail_fast=fail_fast)


def _topics(before: Mapping[TopicPartition, int]) -> list[DeleteRecordsTopic]:
    topics: dict[str, list[DeleteRecordsPartition]] = {}
    for tp, offset in before.items():
        partition = DeleteRecordsPartition(partition_index=tp.partition, offset=offset)
        topics.setdefault(tp.topic, []).append(partition)
    return [DeleteRecordsTopic(name=name, partitions=found) for name, found in topics.items()]
