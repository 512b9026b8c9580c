"""How members of a group commit."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from aiokafka.structs import TopicPartition
from tests.simulation import logs
from tests.simulation.calls import Caller, InterruptedCall
from tests.simulation.history import Reading
from tests.simulation.workloads.lone import options_ms


async def commit(
    caller: Caller, consumer: AIOKafkaConsumer, reading: Reading, options: dict[str, Any]
) -> None:
    """Commit in the way of this member, if it does."""
    limit = options_ms(options["client"], "default_api_timeout_ms", 60_000)
    style = options["commits"]
    if style == "mixed":
        style = caller.random.choice(("auto", "sync", "positions"))
    if caller.chance(options["committed_rate"]):
        await _look(caller, consumer, reading, limit)
    if style == "auto":
        return
    if style == "beside":
        _commit_beside(caller, consumer, reading, limit)
        return
    in_hand = {tp: offset + 1 for tp, offset in reading.in_hand}
    reading.begin_call()  # the work is done
    try:
        if style == "sync":
            await caller.call("commit()", consumer.commit(), limit=limit)
            _check_committed(caller, reading, in_hand)
            return
        offsets = reading.done_positions()
        offsets = {tp: offset for tp, offset in offsets.items() if tp in consumer.assignment()}
        if offsets:
            text = ", ".join(f"{tp.topic}-{tp.partition}: {o}" for tp, o in offsets.items())
            await caller.call(f"commit({text})", consumer.commit(offsets), limit=limit)
            reading.committed(offsets)
    except CommitFailedError:
        # The partitions are another's: what comes next is from where the group stands.
        pass


def _check_committed(caller: Caller, reading: Reading, in_hand: dict[TopicPartition, int]) -> None:
    """commit() has not complained, so what was in hand is committed."""
    world, audience = caller.world, reading.audience
    for tp, offset in in_hand.items():
        if audience.goes_back or tp.topic in audience.forgiven:
            continue
        log = logs.log_of(world, tp)
        if log is not None and log.start_offset > offset:
            continue  # the log begins later now: what comes next is being looked up
        found = world.cluster.groups.committed(audience.name, *tp) or 0
        if found < offset:
            text = f"{caller.name}: commit() says nothing, but of {tp} {found} is committed"
            world.violate("not committed", f"{text}, not {offset}")


def _commit_beside(
    caller: Caller, consumer: AIOKafkaConsumer, reading: Reading, limit: float
) -> None:
    """Let a task commit; the next may begin before it has ended."""
    reading.tasks = [task for task in reading.tasks if not task.done()]
    reading.begin_call()  # the work is done
    offsets = reading.done_positions()
    offsets = {tp: offset for tp, offset in offsets.items() if tp in consumer.assignment()}
    if not offsets or len(reading.tasks) > 4:
        return
    if not reading.tasks:
        reading.beside.clear()
    if any(offset < reading.beside.get(tp, 0) for tp, offset in offsets.items()):
        # It was given the partition once more, and reads from what was committed then. So it
        # commits less than calls that are still tried, and are made before this one.
        reading.audience.goes_back = True
    for tp, offset in offsets.items():
        reading.beside[tp] = max(offset, reading.beside.get(tp, 0))

    async def work() -> None:
        try:
            await caller.call(f"commit({offsets}) beside", consumer.commit(offsets), limit=limit)
        except (InterruptedCall, KafkaError):
            pass

    reading.tasks.append(asyncio.get_running_loop().create_task(work()))


async def _look(caller: Caller, consumer: AIOKafkaConsumer, reading: Reading, limit: float) -> None:
    """Ask for what is committed, or go back there."""
    partitions = sorted(consumer.assignment())
    if not partitions:
        return
    tp = caller.random.choice(partitions)
    try:
        if caller.chance(0.5):
            await caller.call(f"committed({tp})", consumer.committed(tp), limit=limit)
        else:
            # The seek takes place at some moment of the call.
            reading.forget([tp])
            call = consumer.seek_to_committed(tp)
            await caller.call(f"seek_to_committed({tp})", call, limit=limit)
            reading.forget([tp])
    except (InterruptedCall, KafkaError, IllegalStateError):
        pass
