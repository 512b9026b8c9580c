"""Pass the records that a consumer returns through its interceptors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka.consumer._listener_call import intercepting
from aiokafka.consumer._partition_state import Phase
from aiokafka.consumer._shared import Shared
from aiokafka.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from aiokafka.interceptors import Records

__all__ = ["intercept", "intercept_one"]


async def intercept(
    shared: Shared, records: Records, began_at: float, deadline: float | None
) -> Records:
    """Return what the interceptors make of `records`, for which a call has waited since `began_at`
    (loop time).

    Other readers get nothing meanwhile. If the call is cancelled, the application has got nothing:
    unless it, or a rebalance, has moved the position, or the log has lost it, that goes back to the
    first of the records. Those of partitions that a rebalance took away meanwhile are left out:
    their new owner has them.

    A rebalance may be under way when the interceptors are through. Returned then, the records of a
    partition would come while the listener commits for it, or behind that, and so twice:

    1. The rebalance holds records back, and calls the listener: the position stands before these.
    2. The interceptors return. Whether the partitions stay is not known yet, so the call waits.
    3. The partitions that go are retired, the others go on, and records are released: those of the
       others are returned.

    At `deadline` (loop time; None = never), and when the consumer stops or fails, all are given
    back.
    """
    interception = shared.interception
    if interception is None:
        return records
    assignment = shared.subscriptions.assignment
    # Counted before: interceptors may change the lists.
    counts = {state: len(some) for tp, some in records.items() if (state := assignment.get(tp))}
    with shared.desk.showing(), intercepting(shared.desk):
        try:
            for state in counts:
                state.show(records[state.tp][0].offset)
            interception.tell("on_poll", asyncio.get_running_loop().time() - began_at)
            result = await interception.pass_on("on_consume", records, _are_records)
            is_free = await shared.desk.wait_for_release(deadline)
        except BaseException:
            for state, count in counts.items():
                state.give_back(count)
            raise
        if not is_free:
            for state, count in counts.items():
                state.give_back(count)
            return {}
        for state in counts:
            state.hand_over(shared.desk.buffer.call)
    gone = {state.tp for state in counts if state.phase is Phase.RETIRED}
    return {tp: some for tp, some in result.items() if tp not in gone} if gone else result


async def intercept_one(
    shared: Shared, record: ConsumerRecord[Any, Any], began_at: float
) -> ConsumerRecord[Any, Any] | None:
    """Return what the interceptors make of one record; None if they leave it out."""
    place = TopicPartition(record.topic, record.partition)
    records = await intercept(shared, {place: [record]}, began_at, None)
    return next((one for some in records.values() for one in some), None)


def _are_records(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(some, list) for some in value.values())
