"""Consumers that keep some partitions paused for long, or read fewer for a while."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from tests.simulation.calls import AllowedError, Caller, InterruptedCall
from tests.simulation.history import Reading
from tests.simulation.scenario import Draft
from tests.simulation.workloads.accounts import buffered
from tests.simulation.workloads.reading import generation_of, read_once, take

# Virtual seconds in which one that has read everything has nothing in memory: members may be
# without records for as long as the group has to wait for one that is gone.
_EMPTY_S = 60.0
# Virtual seconds that they may take longer: one record a call, of which some do not wait, and the
# program does instead.
_SLOW_S = 20.0
# How much longer partitions are held than free, in calls for records.
_LONG = 100


def draw_holds(draft: Draft) -> dict[str, Any]:
    """Which partitions of each topic are read last, and how often a program pauses them before."""
    source = draft.random
    numbers = source.choice(([], [], [], [0], [0, 2], [1, 3]))
    return {
        "holds": numbers,
        "hold_rate": source.choice((0.05, 0.3)) if numbers else 0,
        "hold_busy_s": source.choice((0, 1.0, 4.0)) if numbers else 0,
    }


class Hold:
    """The partitions that all programs of an audience keep paused, with what is in memory of them,
    until every other one was read to its end.

    While faults happen they are free now and then, so that something of them is fetched.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self.numbers: frozenset[int] = frozenset(options.get("holds", ()))
        self._rate: float = options.get("hold_rate", 0)
        self._busy_s: float = options.get("hold_busy_s", 0)
        self._is_on = False
        self.ended_at = 0.0
        self.slow_s = _SLOW_S if self.numbers else 0.0
        """How much longer than others a program may take to read everything."""

    @property
    def is_over(self) -> bool:
        """Whether nothing is held any more."""
        return not self.numbers

    def end(self, now: float) -> None:
        """Let all partitions be read."""
        self.numbers = frozenset()
        self._is_on = False
        self.ended_at = now

    async def apply(self, caller: Caller, consumer: AIOKafkaConsumer, *, is_turn: bool) -> None:
        """Pause what is held, resume what is not; `is_turn`: from now on all of it is held.

        Before and after it pauses them the program is busy: data comes, and leaders move. Of a
        reader that waits, what is paused would be dropped at once.
        """
        busy_s = 0.0
        if is_turn:
            self._is_on = not self.is_over
        elif self._rate and self._is_on:
            self._is_on = not caller.chance(self._rate / _LONG)
        elif self._rate and caller.chance(self._rate):
            self._is_on = True
            busy_s = self._busy_s
        if busy_s:
            await asyncio.sleep(busy_s / 2 * caller.random.uniform(0.5, 1))
        held = {tp for tp in consumer.assignment() if tp.partition in self.numbers}
        paused = consumer.paused()
        to_pause = sorted(held - paused) if self._is_on else []
        to_resume = sorted(paused - held if self._is_on else paused)
        if to_pause or to_resume:
            caller.world.note(caller.name, f"pauses {to_pause}, resumes {to_resume}")
            consumer.pause(*to_pause)
            consumer.resume(*to_resume)
        if busy_s:
            await asyncio.sleep(busy_s * caller.random.uniform(0.5, 1))


async def read_less(
    caller: Caller,
    consumer: AIOKafkaConsumer,
    reading: Reading,
    options: dict[str, Any],
    every: list[TopicPartition],
) -> None:
    """Read fewer partitions for a while, and then all of them from where the consumer begins."""
    source = caller.random
    topics = sorted({tp.topic for tp in every})
    chosen = sorted(source.sample(every, source.randint(1, len(every))))
    names = sorted({tp.topic for tp in chosen})
    try:
        if options["by_hand"]:
            consumer.assign(chosen)
            reading.forget(reading.positions.keys() - set(chosen))
        elif len(names) < len(topics) and source.random() < 0.7:
            consumer.subscribe(names)
            reading.forget([tp for tp in reading.positions if tp.topic not in names])
        else:
            consumer.unsubscribe()
            # Of partitions that were added since as well.
            reading.forget(list(reading.positions))
            return await caller.pause(0.1)
        caller.world.note(caller.name, "reads less", str(sorted(consumer.assignment())))
        # Not for long: what it reads in the end is missed soon.
        for _ in range(source.randint(0, 3)):
            if not caller.world.calm.is_set():
                await read_once(caller, consumer, reading, options | {"style": "one"})
    finally:
        if options["by_hand"]:
            consumer.assign(every)
        else:
            consumer.subscribe(topics)
        caller.world.note(caller.name, "reads everything")


async def see_empty(caller: Caller, consumer: AIOKafkaConsumer, reading: Reading) -> None:
    """Read what may still come of records that were read, and see that nothing stays in memory."""
    world = caller.world
    deadline = world.now + _EMPTY_S
    # The record set of which a program has read the last record, and paused it then, is kept.
    consumer.resume(*consumer.paused())
    while buffered(consumer) and world.now < deadline:
        if consumer.health().state in ("failed", "closed"):
            return
        try:
            reading.begin_call()
            if not reading.is_told:
                reading.forget_all()
            call = consumer.getmany(timeout_ms=200)
            found = await caller.call("getmany(200)", call, limit=0.2)
        except (KafkaError, InterruptedCall, AllowedError):
            await asyncio.sleep(0.1)
            continue
        records = [record for some in found.values() for record in some]
        take(reading, records, generation_of(consumer))
    left = buffered(consumer)
    if left:
        world.violate("memory", f"{caller.name}: all was read, but {left} bytes stay in memory")
