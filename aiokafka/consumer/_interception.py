"""Pass the records that a consumer returns through its interceptors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka.consumer._listener_call import intercepting
from aiokafka.consumer._partition_state import PartitionState, Phase
from aiokafka.consumer._shared import Shared
from aiokafka.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from aiokafka.interceptors import Records

__all__ = ["intercept", "intercept_one"]


async def intercept(shared: Shared, records: Records, began_at: float) -> Records:
    """Return what the interceptors make of `records`, for which a call has waited since `began_at`
    (loop time).

    Other readers get nothing meanwhile. If the call is cancelled, the application has got nothing:
    unless it, or a rebalance, has moved the position, that goes back to the first of the records.
    Those of partitions that a rebalance took away meanwhile are left out: their new owner has them.
    """
    interception = shared.interception
    if interception is None:
        return records
    assignment = shared.subscriptions.assignment
    marks = [_mark(state, records[tp]) for tp in records if (state := assignment.get(tp))]
    with shared.desk.showing(), intercepting(shared.desk):
        try:
            for mark in marks:
                mark.hold_back()
            interception.tell("on_poll", asyncio.get_running_loop().time() - began_at)
            result = await interception.pass_on("on_consume", records, _are_records)
        except BaseException:
            for mark in marks:
                mark.give_back()
            raise
        for mark in marks:
            mark.hand_over()
    gone = {mark.state.tp for mark in marks if mark.state.phase is Phase.RETIRED}
    return {tp: some for tp, some in result.items() if tp not in gone} if gone else result


class _Mark(NamedTuple):
    """Where the records of a partition begin that were taken, how many, in which epoch."""

    state: PartitionState
    epoch: int
    offset: int
    taken: int
    end: int
    """The position behind them."""

    def hold_back(self) -> None:
        """Let the position stand before them while interceptors look.

        A coroutine may take long. Whatever commits positions meanwhile (a ParallelConsumer, a
        listener) would otherwise commit records that the application has not got.
        """
        self.state.move_position(self.offset)

    def hand_over(self) -> None:
        """Move the position behind them, unless it has gone elsewhere."""
        if self.state.epoch == self.epoch and self.state.phase is not Phase.RETIRED:
            self.state.move_position(self.end)

    def give_back(self) -> None:
        """Let the next call return the records again."""
        state = self.state
        if state.phase is not Phase.RETIRED:
            state.taken -= self.taken
            if state.epoch == self.epoch:
                state.put_back(self.offset)


def _mark(state: PartitionState, records: list[ConsumerRecord[Any, Any]]) -> _Mark:
    return _Mark(state, state.epoch, records[0].offset, len(records), state.next_offset)


async def intercept_one(
    shared: Shared, record: ConsumerRecord[Any, Any], began_at: float
) -> ConsumerRecord[Any, Any] | None:
    """Return what the interceptors make of one record; None if they leave it out."""
    place = TopicPartition(record.topic, record.partition)
    records = await intercept(shared, {place: [record]}, began_at)
    return next((one for some in records.values() for one in some), None)


def _are_records(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(some, list) for some in value.values())
