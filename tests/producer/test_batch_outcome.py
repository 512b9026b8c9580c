"""What becomes of the records of a batch, without a producer: orders and splits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokafka.errors import KafkaError
from aiokafka.producer.batch import BatchOutcome
from aiokafka.structs import TopicPartition

PARTITION = TopicPartition("t", 0)


def new_outcome() -> BatchOutcome:
    return BatchOutcome(PARTITION, asyncio.get_running_loop())


async def test_futures_wake_in_the_order_of_their_records() -> None:
    """Whatever kind of future they are, and whatever order something began to wait for them in."""
    outcome = new_outcome()
    futures = [outcome.promise(1), outcome.promise_awaited(2), outcome.promise(3)]
    futures += [outcome.promise(4), outcome.promise_awaited(5)]
    woken: list[int] = []
    for number in (3, 4, 0, 1, 2):
        futures[number].add_done_callback(lambda _, number=number: woken.append(number))  # type: ignore[misc]
    outcome.write(10, -1, None)
    await asyncio.gather(*futures)
    # Newer Pythons let gather() return without a turn of the event loop: all are done already.
    await asyncio.sleep(0)
    assert woken == [0, 1, 2, 3, 4]
    assert [(f.result().offset, f.result().timestamp) for f in futures] == [
        (10 + number, 1 + number) for number in range(5)
    ]


@pytest.mark.parametrize("kinds", ["aaaaa", "fffff", "afafa", "faffa"])
async def test_parts_serve_the_futures_of_the_whole(kinds: str) -> None:
    outcome = new_outcome()
    futures: list[Any] = []
    for number, kind in enumerate(kinds):
        futures.append((outcome.promise_awaited if kind == "a" else outcome.promise)(number))
    waiting = asyncio.gather(*futures[:4], return_exceptions=True)
    await asyncio.sleep(0)
    parts = [new_outcome() for _ in range(2)]
    for number in range(5):
        parts[number >= 3].adopt(number)
    outcome.divide([0, 3], parts)
    parts[1].fail(lambda number: KafkaError(f"record {number} of the part"))
    parts[0].write(100, 77, 5)
    *written, failed = await waiting
    assert [(one.offset, one.timestamp, one.log_start_offset) for one in written] == [
        (100 + number, 77, 5) for number in range(3)
    ]
    assert "record 0 of the part" in str(failed)
    assert "record 1 of the part" in str(futures[4].exception())


async def test_callers_that_were_cancelled_hold_up_no_others() -> None:
    outcome = new_outcome()
    futures = [outcome.promise_awaited(0), outcome.promise(0), outcome.promise_awaited(0)]
    futures[1].add_done_callback(lambda _: None)
    futures[0].cancel()
    futures[1].cancel()
    outcome.write(0, -1, None)
    assert (await futures[2]).offset == 2
    assert futures[0].cancelled()
    assert futures[1].cancelled()
