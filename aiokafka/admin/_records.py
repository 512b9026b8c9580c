"""Deleting records."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka.admin._by_topic import by_topic, name_of, partitions_in
from aiokafka.admin._leaders import by_leader
from aiokafka.admin._routing import Call, Router, error_of, remaining_ms
from aiokafka.errors import KafkaError
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

    def entry(tp: TopicPartition) -> DeleteRecordsPartition:
        return DeleteRecordsPartition(partition_index=tp.partition, offset=before[tp])

    async def send(
        node_id: int, part: list[TopicPartition]
    ) -> dict[TopicPartition, int | KafkaError]:
        def build(version: int) -> DeleteRecordsRequest:
            topics = [
                DeleteRecordsTopic(name=name, partitions=found)
                for name, found in by_topic(part, entry).items()
            ]
            return DeleteRecordsRequest(topics=topics, timeout_ms=remaining_ms(deadline))

        response = await router.send(node_id, Call(DeleteRecordsRequest, build), deadline)
        return {
            tp: error_of(each.error_code, None, name_of(tp)) or each.low_watermark
            for tp, each in partitions_in(response.topics)
        }

    return await by_leader(router, before, send, deadline, fail_fast=fail_fast)
