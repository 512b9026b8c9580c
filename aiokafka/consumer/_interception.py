"""Pass the records that a consumer returns through its interceptors."""

from __future__ import annotations

from typing import Any

from aiokafka.consumer._partition_state import Phase
from aiokafka.consumer._shared import Shared
from aiokafka.interceptors import Records
from aiokafka.structs import ConsumerRecord, TopicPartition

__all__ = ["intercept", "intercept_one"]


async def intercept(shared: Shared, records: Records) -> Records:
    """Return what the interceptors make of `records`.

    If the call is cancelled meanwhile, the application has got nothing: unless it, or a rebalance,
    has moved the position, that goes back to the first of the records.
    """
    if shared.interception is None:
        return records
    marks = []
    for tp, taken in records.items():
        state = shared.subscriptions.assignment.get(tp)
        if state is not None and taken:
            marks.append((state, state.epoch, taken[0].offset))
    try:
        return await shared.interception.pass_on("on_consume", records, _are_records)
    except BaseException:
        for state, epoch, offset in marks:
            if state.epoch == epoch and state.phase is not Phase.RETIRED:
                state.seek(offset)
        raise


async def intercept_one(
    shared: Shared, record: ConsumerRecord[Any, Any]
) -> ConsumerRecord[Any, Any] | None:
    """Return what the interceptors make of one record; None if they leave it out."""
    records = await intercept(shared, {TopicPartition(record.topic, record.partition): [record]})
    return next((one for some in records.values() for one in some), None)


def _are_records(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(some, list) for some in value.values())
