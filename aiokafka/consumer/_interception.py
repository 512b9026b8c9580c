"""Passes the records of `getone()` and `getmany()` through the consumer's interceptors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from aiokafka.consumer._context import ConsumerContext, intercepting
from aiokafka.consumer._partition_state import PartitionState, Phase
from aiokafka.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from aiokafka.interceptors import Records

__all__ = ["intercept", "intercept_one", "resume"]


async def intercept(
    context: ConsumerContext, records: Records, began_at: float, deadline: float | None
) -> Records:
    """Return `records` as changed by the interceptors. `began_at`: loop time at which the call of
    `getone()` or `getmany()` began.

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

    `FetchBuffer.next()` does the same for a single record if nothing has to be awaited. Otherwise
    `resume()` continues.
    """
    interception = context.interception
    assert interception is not None
    assignment = context.subscriptions.assignment
    # Count first, because interceptors may change the lists.
    counts = {state: len(some) for tp, some in records.items() if (state := assignment.get(tp))}
    with _withheld(context, counts):
        for state in counts:
            state.show(records[state.tp][0].offset)
        passed = interception.begin(records, asyncio.get_running_loop().time() - began_at)
        return await _finish(context, counts, passed, deadline)


async def intercept_one(
    context: ConsumerContext, record: ConsumerRecord[Any, Any], began_at: float
) -> ConsumerRecord[Any, Any] | None:
    """Return one record as changed by the interceptors; None if the interceptors drop the record,
    or the partition was revoked."""
    tp = TopicPartition(record.topic, record.partition)
    return _first(await intercept(context, {tp: [record]}, began_at, None))


async def resume(context: ConsumerContext) -> ConsumerRecord[Any, Any] | None:
    """Finish the interception of a record that `FetchBuffer.next()` has begun. Returns as
    `intercept_one()`."""
    state, passed = context.queue.buffer.pop_unfinished()
    counts = {state: 1}
    with _withheld(context, counts):
        return _first(await _finish(context, counts, passed, None))


@contextmanager
def _withheld(context: ConsumerContext, counts: Mapping[PartitionState, int]) -> Iterator[None]:
    """Return no records to other readers during the `with` block. If the block raises, move the
    positions back by the numbers of records in `counts`."""
    with context.queue.intercepting(), intercepting(context.queue):
        try:
            yield
        except BaseException:
            _give_back(counts)
            raise


async def _finish(
    context: ConsumerContext,
    counts: Mapping[PartitionState, int],
    passed: Records | CoroutineType[Any, Any, Records],
    deadline: float | None,
) -> Records:
    """Return the records that the interceptors return, once no rebalance is in progress. Move the
    positions behind these records."""
    result = await passed if isinstance(passed, CoroutineType) else passed
    if not await context.queue.wait_for_release(deadline):
        _give_back(counts)
        return {}
    for state in counts:
        state.hand_over(context.queue.buffer.call)
    gone = {state.tp for state in counts if state.phase is Phase.RETIRED}
    return {tp: some for tp, some in result.items() if tp not in gone} if gone else result


def _give_back(counts: Mapping[PartitionState, int]) -> None:
    for state, count in counts.items():
        state.give_back(count)


def _first(records: Records) -> ConsumerRecord[Any, Any] | None:
    return next((one for some in records.values() for one in some), None)
