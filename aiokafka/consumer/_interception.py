"""Passes the records of `getone()` and `getmany()` through the consumer's interceptors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka.consumer._context import ConsumerContext, intercepting
from aiokafka.consumer._partition_state import Phase
from aiokafka.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from aiokafka.interceptors import Records

__all__ = ["intercept", "intercept_one"]


async def intercept(
    context: ConsumerContext, records: Records, began_at: float, deadline: float | None
) -> Records:
    """Return `records` as changed by the interceptors. The reading call began at `began_at` (loop
    time).

    Other readers get no records while the interceptors run. If the call is cancelled, the position
    moves back to the first of the records, unless `seek()`, a rebalance or a reset has moved the
    position. Records of partitions that were revoked during the call are dropped: the new owner
    reads these records.

    A rebalance may begin while interceptors run. If the records were returned during the rebalance,
    the listener would commit a position before them, and the new owner would read them again:

    1. The rebalance calls `hold()` and the listener. The position is before the records.
    2. The interceptors return. The new assignment is not known yet, so the call waits.
    3. Revoked partitions are retired, and `release()` is called. The records of the remaining
       partitions are returned.

    At `deadline` (loop time; None = never), and when the consumer stops or fails, the position of
    all partitions moves back.
    """
    interception = context.interception
    if interception is None:
        return records
    assignment = context.subscriptions.assignment
    # Count first, because interceptors may change the lists.
    counts = {state: len(some) for tp, some in records.items() if (state := assignment.get(tp))}
    with context.queue.intercepting(), intercepting(context.queue):
        try:
            for state in counts:
                state.begin_interception(records[state.tp][0].offset)
            interception.notify("on_poll", asyncio.get_running_loop().time() - began_at)
            result = await interception.transform("on_consume", records, _are_records)
            is_free = await context.queue.wait_for_release(deadline)
        except BaseException:
            for state, count in counts.items():
                state.cancel_interception(count)
            raise
        if not is_free:
            for state, count in counts.items():
                state.cancel_interception(count)
            return {}
        for state in counts:
            state.end_interception(context.queue.buffer.call)
    gone = {state.tp for state in counts if state.phase is Phase.RETIRED}
    return {tp: some for tp, some in result.items() if tp not in gone} if gone else result


async def intercept_one(
    context: ConsumerContext, record: ConsumerRecord[Any, Any], began_at: float
) -> ConsumerRecord[Any, Any] | None:
    """Return one record as changed by the interceptors; None if the interceptors drop the record,
    or the partition was revoked."""
    tp = TopicPartition(record.topic, record.partition)
    records = await intercept(context, {tp: [record]}, began_at, None)
    return next((one for some in records.values() for one in some), None)


def _are_records(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(some, list) for some in value.values())
