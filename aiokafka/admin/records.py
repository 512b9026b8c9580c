"""Delete records from the start of partitions (`admin.records`)."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka._arguments import as_int, by_partition
from aiokafka.admin._items import by_leader, by_topic, name_of, partitions_in
from aiokafka.admin._routing import AdminApi, Call, Outcomes, Router, error_of, remaining_ms
from aiokafka.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from aiokafka.structs import TopicPartition

__all__ = ["Records"]


class Records(AdminApi):
    """The sub-client `admin.records`, for records."""

    async def delete(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset (Java: deleteRecords, KIP-107, Kafka 0.11).

        Args:
            before: by partition, the offset of the first record to keep; -1 deletes all records.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Returns the first remaining offset of each partition. Raises ValueError for an offset below
        -1. Raises the error of a single partition, such as OffsetOutOfRangeError; AdminItemsError
        if one of several partitions fails. Cancelling the call does not restore records.
        """
        wanted = {
            tp: as_int(f"before: {tp}", offset) for tp, offset in by_partition("before", before)
        }
        for tp, offset in wanted.items():
            if offset < -1:
                raise ValueError(f"before: {tp}={offset!r}: must be an offset, or -1 for all")
        return await delete_records(self._router, wanted, self._deadline(timeout_ms))


# -- DeleteRecords


async def delete_records(
    router: Router,
    before: Mapping[TopicPartition, int],
    deadline: float,
    *,
    fail_fast: bool = False,
) -> dict[TopicPartition, int]:
    """Delete records; return the first remaining offset of each partition.

    With `fail_fast`, raises the first error that is not retried, without waiting for other
    partitions.
    """

    def entry(tp: TopicPartition) -> DeleteRecordsPartition:
        return DeleteRecordsPartition(partition_index=tp.partition, offset=before[tp])

    def topic(name: str, entries: list[DeleteRecordsPartition]) -> DeleteRecordsTopic:
        return DeleteRecordsTopic(name=name, partitions=entries)

    async def send(node_id: int, part: list[TopicPartition]) -> Outcomes[TopicPartition, int]:
        call = Call(
            DeleteRecordsRequest,
            lambda version: DeleteRecordsRequest(
                topics=by_topic(part, topic, entry), timeout_ms=remaining_ms(deadline)
            ),
        )
        response = await router.send(node_id, call, deadline)
        return {
            tp: error_of(each.error_code, None, name_of(tp)) or each.low_watermark
            for tp, each in partitions_in(response.topics)
        }

    return await by_leader(router, before, send, deadline, fail_fast=fail_fast)
