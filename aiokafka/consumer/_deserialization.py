"""Awaits deserializers and further records on behalf of `getone()` and `getmany()`.

The FetchBuffer calls each deserializer. If the deserializer is `async`, the FetchBuffer runs it up
to its first wait. Most deserializers return a result without a wait. `finish_one()` and
`finish_many()` run only if a deserializer waits, for example for a schema registry. `fill_many()`
runs only for `getmany(min_records=)`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any

from aiokafka._serialization import SuspendedRecord
from aiokafka.consumer._context import ConsumerContext, deserializing
from aiokafka.consumer._interception import finish, give_back, withheld
from aiokafka.consumer._partition_state import PartitionState
from aiokafka.consumer.fetch.buffer import Wanted
from aiokafka.structs import ConsumerRecord, TopicPartition

__all__ = ["fill_many", "finish_many", "finish_one"]

_WAIT = "a deserializer"

_Records = dict[TopicPartition, list[ConsumerRecord[Any, Any]]]


async def finish_one(context: ConsumerContext) -> ConsumerRecord[Any, Any] | None:
    """Wait for the deserializer of the next record of `FetchBuffer.suspended`, and return the
    record.

    The position moves after the deserializer has returned, so a cancelled call has consumed
    nothing. If a rebalance has begun during the wait, or the partition was revoked, paused or moved
    by a seek, returns None, and the next read deserializes the record again. If the deserializer
    fails, raises RecordDeserializationError, or returns None if such records are skipped.
    """
    chunk, epoch, suspended = context.queue.buffer.pop_suspended()
    with withheld(context, {}, deserializing):
        await _finish(context, chunk.state, suspended)
        return context.queue.accept(chunk, epoch, suspended)


async def finish_many(
    context: ConsumerContext, records: _Records, wanted: Wanted, limit: int, deadline: float
) -> _Records:
    """Continue `take(wanted, limit)`, which has returned `records` and stopped because a
    deserializer waits. Return all records, up to `limit` (-1 = all buffered). After `deadline`
    (loop time), no further deserializer is awaited; the awaited deserializer is not interrupted.

    Until this function returns, the position of each partition is its first offset in `records`.
    If the function is cancelled, the next call returns `records` again. If a deserializer raises
    and `context.on_unreadable` is None, the records before the unreadable record are returned, and
    the next call raises the error; without such records, this call raises the error. A rebalance is
    handled as by `_interception.intercept()`.
    """
    counts: dict[PartitionState, int] = {}
    with withheld(context, counts, deserializing):
        _count(context, counts, records)
        await _go_on(context, counts, records, wanted, limit, deadline)
        return await finish(context, counts, records, deadline) if records else records


async def _go_on(
    context: ConsumerContext,
    counts: dict[PartitionState, int],
    records: _Records,
    wanted: Wanted,
    limit: int,
    deadline: float,
) -> bool:
    """Wait for the deserializer of the next record of `FetchBuffer.suspended`, and add records to
    `records` and `counts`, until no deserializer waits. Return False if the caller must return the
    records so far, and read no more."""
    queue, now = context.queue, asyncio.get_running_loop().time
    while queue.buffer.suspended is not None:
        chunk, epoch, suspended = queue.buffer.pop_suspended()
        await _finish(context, chunk.state, suspended)
        # Read no more if a partition was revoked: `finish()` drops all records of this partition.
        # If the partition is assigned again, it would drop the records read since, too.
        must_raise = suspended.error is not None and context.on_unreadable is None
        if any(state.is_retired() for state in counts) or (must_raise and records):
            return False
        record = queue.accept(chunk, epoch, suspended)
        if record is not None:
            _add(context, counts, records, {chunk.state.tp: [record]})
        elif not suspended.is_left_out:
            return False
        if now() >= deadline:
            return False
        _add(context, counts, records, queue.take_more(wanted, _rest(limit, records)))
    return True


async def fill_many(
    context: ConsumerContext,
    records: _Records,
    wanted: Wanted,
    least: int,
    limit: int,
    deadline: float,
    wait: Callable[[], Awaitable[bool]],
) -> _Records:
    """Continue `take(wanted, limit)`, which has returned `records`, until there are `least` records
    or `deadline` (loop time) has passed. Return the records.

    Returns fewer records if the next call raises an error, a partition was revoked or moved by a
    seek, or the next record is unreadable; {} if the consumer stops. Until this function returns,
    the position of each partition is its first offset in `records`. If the function is cancelled,
    the next call returns `records` again. A rebalance is handled as by `_interception.intercept()`.
    `wait()` returns when records may have arrived, or at the deadline.
    """
    queue, now = context.queue, asyncio.get_running_loop().time
    counts: dict[PartitionState, int] = {}
    epochs: dict[PartitionState, int] = {}
    # Whether more records may be buffered already: a take stops before an unreadable record, and
    # after decompressing 64 MiB. Then do not call `wait()`, which waits for new records.
    may_have_more = True
    with withheld(context, counts, lambda _: nullcontext()):
        _count(context, counts, records)
        while _size(records) < least and not queue.has_error(wanted):
            for state in counts:
                epochs.setdefault(state, state.epoch)
            if may_have_more:
                await queue.yield_turn()
                in_time = now() < deadline
            else:
                in_time = await wait()
            if queue.is_over:
                give_back(counts)
                return {}
            if any(state.epoch != epoch for state, epoch in epochs.items()):
                break
            try:
                more = queue.take_again(wanted, _rest(limit, records))
            except Exception:  # the next call raises it again
                break
            may_have_more = bool(more) or queue.buffer.suspended is not None
            _add(context, counts, records, more)
            with deserializing(queue):
                is_open = await _go_on(context, counts, records, wanted, limit, deadline)
            if not (is_open and in_time):
                break
        return await finish(context, counts, records, deadline)


def _size(records: _Records) -> int:
    return sum(map(len, records.values()))


def _rest(limit: int, records: _Records) -> int:
    """Return how many records may be added to `records`; -1 for no limit."""
    return limit if limit < 0 else limit - _size(records)


def _add(
    context: ConsumerContext, counts: dict[PartitionState, int], records: _Records, more: _Records
) -> None:
    _count(context, counts, more)
    for tp, some in more.items():
        records.setdefault(tp, []).extend(some)


def _count(context: ConsumerContext, counts: dict[PartitionState, int], records: _Records) -> None:
    """Add the number of records of each partition to `counts`. Until the records are returned, the
    partition's position is the offset of the first of them (`PartitionState.show()`)."""
    for tp, some in records.items():
        state = context.subscriptions.assignment.get(tp)
        if state is not None:
            counts[state] = counts.get(state, 0) + len(some)
            state.show(some[0].offset, counts[state])


async def _finish(
    context: ConsumerContext, state: PartitionState, suspended: SuspendedRecord
) -> None:
    """Wait for the deserializers of a record, and show the wait in `health()`.

    A CancelledError has one of two causes. If this task is being cancelled, propagate the
    CancelledError. If the deserializer awaited a cancelled task or future, treat the CancelledError
    as an error of the deserializer. Python 3.10 cannot distinguish the causes (there is no
    `Task.cancelling()`): always propagate it there.
    """
    count = getattr(asyncio.current_task(), "cancelling", lambda: None)
    before = count()
    with context.client.waits.on(_WAIT, (state.tp,), reason="the deserializer has not returned"):
        try:
            await suspended.finish()
        except asyncio.CancelledError as error:
            if before is None or count() > before:
                raise
            suspended.fail(error)
