"""Deleting records."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka.admin._leaders import by_leader
from aiokafka.admin._routing import Call, Router, remaining_ms
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.protocol.messages.records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from aiokafka.structs import TopicPartition

Wanted = Mapping[TopicPartition, RecordsToDelete]


async def delete_records(
    router: Router, records: Wanted, deadline: float
) -> dict[TopicPartition, int]:
    """Return the first offset that is left in each partition."""
    watermarks: dict[TopicPartition, int] = {}

    def call(part: Wanted) -> Call[DeleteRecordsResponse]:
        topics = _topics(part)

        def build(version: int) -> DeleteRecordsRequest:
            return DeleteRecordsRequest(topics=topics, timeout_ms=remaining_ms(deadline))

        return Call(DeleteRecordsRequest, build)

    def settle(response: DeleteRecordsResponse) -> dict[TopicPartition, int]:
        codes = {}
        for topic in response.topics:
            for found in topic.partitions:
                tp = TopicPartition(topic.name, found.partition_index)
                codes[tp] = found.error_code
                if not found.error_code:
                    watermarks[tp] = found.low_watermark
        return codes

    await by_leader(router, records, call, settle, deadline)
    return watermarks


def _topics(records: Wanted) -> list[DeleteRecordsTopic]:
    topics: dict[str, list[DeleteRecordsPartition]] = {}
    for tp, wanted in records.items():
        partition = DeleteRecordsPartition(
            partition_index=tp.partition, offset=wanted.before_offset
        )
        topics.setdefault(tp.topic, []).append(partition)
    return [DeleteRecordsTopic(name=name, partitions=found) for name, found in topics.items()]
