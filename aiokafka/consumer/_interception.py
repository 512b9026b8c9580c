"""Passes the records of `getone()` and `getmany()` through the consumer's interceptors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from aiokafka.consumer._context import ConsumerContext, intercepting
from aiokafka.consumer._partition_state import PartitionState, Phase
from aiokafka.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from aiokafka.interceptors import Records

__all__ = ["finish", "give_back", "intercept", "intercept_one", "resume", "withheld"]


async def intercept(
    context: ConsumerContext, records: Records, began_at: float, deadline: float | None
) -> Records:
    """Return `records` as changed by the interceptors. `began_at`: loop time at which the call of
    `getone()` or `getmany()` began.

    Other calls return no records while the interceptors run. If the call is cancelled or an
    interceptor raises, the position moves back to the first of the records, unless `seek()` or a
    reset has moved the position, or the partition was revoked. Records of partitions that were
    revoked during the call are dropped: the new owner reads these records.

    A rebalance may begin while interceptors run. If the call returned the records during the
    rebalance, the listener would have committed a position before them, and the new owner would
    read them again. So:

    1. The rebalance calls `hold()` and the listener. The position is before the records.
    2. The interceptors return. The new assignment is not known yet, so the call waits.
    3. Revoked partitions are retired, and `release()` is called. The records of the remaining
       partitions are returned.

    If the rebalance has not ended at `deadline` (loop time; None = no limit), or if the consumer
    stops or fails before, all positions move back, and {} is returned.

    `FetchBuffer.next()` does the same for a single record if nothing has to be awaited. Otherwise
    `resume()` continues.
    """
    interception = context.interception
    assert interception is not None
    assignment = context.subscriptions.assignment
    # Count before the interceptors run, because they may change the lists.
    counts = {state: len(some) for tp, some in records.items() if (state := assignment.get(tp))}
    with withheld(context, counts):
        for state, count in counts.items():
            state.show(records[state.tp][0].offset, count)
        passed = interception.begin(records, asyncio.get_running_loop().time() - began_at)
        return await finish(context, counts, passed, deadline)


async def intercept_one(
    context: ConsumerContext, record: ConsumerRecord[Any, Any], began_at: float
) -> ConsumerRecord[Any, Any] | None:
    """Return one record as changed by the interceptors; None if the interceptors drop the record,
    its partition was revoked, or the consumer stops or fails."""
    tp = TopicPartition(record.topic, record.partition)
    return _first(await intercept(context, {tp: [record]}, began_at, None))


async def resume(context: ConsumerContext) -> ConsumerRecord[Any, Any] | None:
    """Finish the interception of a record that `FetchBuffer.next()` has begun. Returns the same as
    `intercept_one()`."""
    state, passed = context.queue.buffer.pop_unfinished()
    counts = {state: 1}
    with withheld(context, counts):
        return _first(await finish(context, counts, passed, None))


@contextmanager
def withheld(
    context: ConsumerContext,
    counts: Mapping[PartitionState, int],
    mark: Callable[[object], AbstractContextManager[None]] = intercepting,
) -> Iterator[None]:
    """Return no records to other calls during the `with` block. If the block raises, move the
    positions back, so that the next calls return the same records again. `counts`: the number of
    these records by partition. `mark`: a function like `intercepting`, which marks the block as a
    call of a callback of the application."""
    with context.queue.intercepting(), mark(context.queue):
        try:
            yield
        except BaseException:
            give_back(counts)
            raise


async def finish(
    context: ConsumerContext,
    counts: Mapping[PartitionState, int],
    passed: Records | Coroutine[Any, Any, Records],
    deadline: float | None,
) -> Records:
    """Wait for the interceptors (`passed`) and for the end of a rebalance, move the positions
    behind the records, and return the records that the interceptors return, except those of revoked
    partitions. If records are still withheld at `deadline`, or the consumer stops or fails, move
    the positions back and return {}."""
    result = passed if isinstance(passed, dict) else await passed
    if not await context.queue.wait_for_release(deadline):
        give_back(counts)
        return {}
    for state in counts:
        state.hand_over(context.queue.buffer.call)
    gone = {state.tp for state in counts if state.phase is Phase.RETIRED}
    return {tp: some for tp, some in result.items() if tp not in gone} if gone else result


def give_back(counts: Mapping[PartitionState, int]) -> None:
    """Move the positions back, so that the next calls return the last records again. `counts`: the
    number of these records by partition."""
    for state, count in counts.items():
        state.give_back(count)


def _first(records: Records) -> ConsumerRecord[Any, Any] | None:
    return next((one for some in records.values() for one in some), None)
