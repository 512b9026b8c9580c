"""How members of a group commit."""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
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
    reading.begin_call()  # the work is done
    try:
        if style == "sync":
            await caller.call("commit()", consumer.commit(), limit=limit)
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
