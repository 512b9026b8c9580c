"""How consumers are asked for records."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import CommitFailedError, IllegalOperation, KafkaError
from aiokafka.structs import ConsumerRecord, TopicPartition
from tests.simulation import logs
from tests.simulation.calls import Caller, InterruptedCall
from tests.simulation.history import Reading
from tests.simulation.intercepting import slowness
from tests.simulation.promises import FRESH
from tests.simulation.scenario import Draft
from tests.simulation.workloads.accounts import check_fetched
from tests.simulation.workloads.base import draw_client_options

FIRST_CONSUMER_PROTOCOL = (4, 0)
# Seconds in which a record that is there is returned when all is well.
_LONG = 3.0
_ROUND_TRIPS = 1.0


def draw_consumer_options(draft: Draft) -> dict[str, Any]:
    """Keywords for AIOKafkaConsumer, without those of groups."""
    source = draft.random
    options = draw_client_options(draft)
    options |= {
        "auto_offset_reset": "earliest",
        "fetch_max_wait_ms": source.choice((500, 2000, 5000, 5000, 20_000)),
        "isolation_level": source.choice(("read_committed", "read_uncommitted")),
        "default_api_timeout_ms": source.choice((2000, 10_000, 60_000)),
    }
    # A broker may hold a fetch for as long as it is asked to.
    wait = options["fetch_max_wait_ms"]
    options["request_timeout_ms"] = max(options["request_timeout_ms"], wait + 500)
    if source.random() < 0.2:
        options["max_poll_records"] = source.choice((1, 5))
    if source.random() < 0.3:
        options["max_partition_fetch_bytes"] = source.choice((1, 500, 5000))
    if source.random() < 0.2:
        options["fetch_buffer_memory"] = source.choice((1, 1000, 10_000))
    if source.random() < 0.2:
        options["fetch_min_bytes"] = source.choice((2, 500))
    if source.random() < 0.2:
        options["fetch_max_bytes"] = source.choice((1, 1000))
    if source.random() < 0.2:
        options["unreachable_timeout_ms"] = source.choice((500, 5000))
    most = min(options.get("max_partition_fetch_bytes", 5000), options.get("fetch_max_bytes", 5000))
    if most <= options.get("fetch_min_bytes", 1):
        # A broker that may not send as much as it is to collect waits each time until the end.
        options["fetch_max_wait_ms"] = 500
    return options


async def read_once(
    caller: Caller, consumer: AIOKafkaConsumer, reading: Reading, options: dict[str, Any]
) -> list[ConsumerRecord[Any, Any]]:
    """Ask once for records, in the way that the options want, and work on them for a while."""
    style = options["style"]
    if style == "mixed":
        style = caller.random.choice(("one", "many", "iterate", "named"))
    if caller.chance(options["pause_rate"]):
        await _pause(caller, consumer)
    check_fetched(caller.world, caller.name, consumer, options["client"])
    reading.begin_call()
    # Who asks for one partition gets nothing of the others.
    waiting = None if style == "single" else _waiting_for(caller, consumer, reading)
    began_at = caller.world.now
    if style == "many":
        records = await _read_many(caller, consumer, slowness(options))
    else:
        records = await _read_one(caller, consumer, reading, style)
    # In the step in which it was returned.
    _check_paused(caller, consumer, records)
    # A fetch that is under way may wait that long at the broker for more.
    longest = max(_LONG, options["client"].get("fetch_max_wait_ms", 500) / 1000 + _ROUND_TRIPS)
    since = max(began_at, reading.held_until, reading.shown_until)
    is_long = caller.world.now - since >= longest
    if waiting is not None and not records and is_long and reading.is_before(*waiting):
        text = f"{caller.name}: {waiting} was there {longest} s ago and is not returned"
        caller.world.violate("slept", text)
    generation = generation_of(consumer)
    take(reading, records, generation)
    if options["work_s"] and records:
        await asyncio.sleep(caller.random.random() * 2 * options["work_s"])
    return records


def take(reading: Reading, records: list[ConsumerRecord[Any, Any]], generation: int | None) -> None:
    """Note that a call has returned these records, and its interceptors left out others."""
    if reading.shows is not None:
        reading.shows.returned(records, generation)
        return
    for record in records:
        reading.took(record, generation)


def _waiting_for(
    caller: Caller, consumer: AIOKafkaConsumer, reading: Reading
) -> tuple[TopicPartition, int] | None:
    """A record that is there to be returned, if all is well with the brokers."""
    world, audience = caller.world, reading.audience
    if not world.promises(FRESH) or caller.has_chances:
        return None
    for tp in sorted(consumer.assignment() - consumer.paused()):
        position = reading.positions.get(tp)
        if position is not None:
            end = logs.visible_end(world, tp, audience.committed_only)
            seen = logs.first_visible(world, tp, position, end, audience.committed_only)
            if seen is not None:
                return tp, seen
    return None


async def _read_one(
    caller: Caller, consumer: AIOKafkaConsumer, reading: Reading, style: str
) -> list[ConsumerRecord[Any, Any]]:
    named = sorted(consumer.assignment()) if style in ("named", "single") else []
    if style == "single" and named:
        named = [caller.random.choice(named)]
    if style == "iterate":
        # One iterator for all records, as `async for` has it: it has a fast path of its own.
        reading.iterator = reading.iterator or aiter(consumer)
        call = anext(reading.iterator)
    else:
        call = consumer.getone(*named)
    try:
        patience = 1.0 if style == "single" else 5.0
        return [await caller.call("getone", call, patience=patience)]
    except InterruptedCall:
        return []


async def _read_many(
    caller: Caller, consumer: AIOKafkaConsumer, slowness_s: float
) -> list[ConsumerRecord[Any, Any]]:
    timeout = caller.random.choice((0, 100, 1000, 3000, 10_000))
    most = caller.random.choice((None, None, 1, 3, 100))
    call = consumer.getmany(timeout_ms=timeout, max_records=most)
    found = await caller.call(f"getmany({timeout})", call, limit=timeout / 1000 + slowness_s)
    if not found and not timeout:
        await asyncio.sleep(0.5)
    return [record for records in found.values() for record in records]


def _check_paused(
    caller: Caller, consumer: AIOKafkaConsumer, records: list[ConsumerRecord[Any, Any]]
) -> None:
    """Nothing is returned of a partition while it is paused."""
    for tp in sorted({(r.topic, r.partition) for r in records} & consumer.paused()):
        caller.world.violate("paused", f"{caller.name}: got a record of {tp}, which is paused")


async def _pause(caller: Caller, consumer: AIOKafkaConsumer) -> None:
    """Read nothing of a partition for a while; the consumer goes on by itself."""
    partitions = sorted(consumer.assignment())
    if not partitions:
        return
    tp = caller.random.choice(partitions)
    consumer.pause(tp)
    await asyncio.sleep(caller.random.random())
    if tp in consumer.assignment():
        consumer.resume(tp)


def generation_of(consumer: AIOKafkaConsumer) -> int | None:
    """The generation in which a consumer is a member of its group; None if it is none."""
    try:
        generation = consumer.group_metadata().generation_id
    except (CommitFailedError, IllegalOperation, KafkaError):
        return None
    return None if generation < 0 else generation
