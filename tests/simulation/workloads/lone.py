"""Consumers without a group, which assign partitions to themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from tests.simulation.calls import Caller, InterruptedCall
from tests.simulation.contexts import arguments_of
from tests.simulation.history import Audience, Reading
from tests.simulation.logs import partitions, visible_end
from tests.simulation.progress import missing_for
from tests.simulation.promises import FRESH, FRESH_S, ROOM, ROOM_S
from tests.simulation.remade import LONE
from tests.simulation.scenario import Draft, WorkloadPlan
from tests.simulation.shows import intercepted
from tests.simulation.workloads.accounts import buffered
from tests.simulation.workloads.base import Workload
from tests.simulation.workloads.holding import Hold, draw_holds, read_less, see_empty
from tests.simulation.workloads.reading import draw_consumer_options, read_once

if TYPE_CHECKING:
    from tests.simulation.world import World

# Seconds in which a position that is known is told.
_AT_ONCE = 0.1


class LoneWorkload(Workload):
    """One consumer of all partitions of a topic."""

    kind = "lone"
    rank = 2

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any]:
        """Topics that others write, and how to read them."""
        source = draft.random
        names = [topic.name for topic in draft.topics] or [draft.new_topic().name]
        client = draw_consumer_options(draft)
        if source.random() < 0.3:
            client["auto_offset_reset"] = "latest"
        return {
            "topics": sorted(source.sample(names, source.randint(1, len(names)))),
            "by_hand": source.random() < 0.5,
            "client": client,
            "style": source.choice(("one", "many", "iterate", "named", "mixed")),
            "work_s": source.choice((0, 0, 0.01, 0.2)),
            "seek_rate": source.choice((0, 0, 0.05)),
            "pause_rate": source.choice((0, 0, 0.05)),
            "cancel_rate": source.choice((0, 0, 0.05, 0.3)),
            "restart_rate": source.choice((0, 0, 0.02)),
            "change_rate": source.choice((0, 0, 0, 0.05)),
            **draw_holds(draft),
        }

    def __init__(self, world: World, plan: WorkloadPlan) -> None:
        super().__init__(world, plan)
        self._hold = Hold(plan.options)

    @property
    def recovery_s(self) -> float:
        """Less where nothing happens that it had to recover from."""
        if self.world.promises(FRESH):
            return (
                FRESH_S + 100 * float(self.options["work_s"]) + self.looking_s + self._hold.slow_s
            )
        if self.world.promises(ROOM):
            return ROOM_S + 100 * float(self.options["work_s"]) + self.looking_s + self._hold.slow_s
        return super().recovery_s

    async def run(self) -> None:
        """Read until everything was read."""
        options = self.options
        audience = self.world.history.audience(
            self.plan.name,
            options["topics"],
            committed_only=options["client"].get("isolation_level") == "read_committed",
            starts_at_beginning=options["client"]["auto_offset_reset"] == "earliest",
        )
        # Offsets of the former topic, to which a program goes back in the next, mean nothing there.
        shown = options.get("interceptors") or {}
        seeks = options["seek_rate"] or shown.get("seek_rate")
        audience.again.protocol = "" if seeks else LONE
        caller = Caller(self.world, self.plan.name, options["cancel_rate"])
        while not self._is_over(audience):
            reading = Reading(self.world, caller.name, audience)
            consumer = self._make(caller, reading)
            seeking = None
            if options.get("seek_at_start"):
                seeking = asyncio.ensure_future(self._seek_soon(caller, consumer, reading))
            is_started = await start_consumer(caller, consumer, options["client"])
            if seeking is not None:
                await seeking
            if is_started:
                if not audience.starts_at_beginning:
                    self._begin_here(audience, await self._is_placed(caller, consumer))
                readers = range(options.get("readers", 1))
                await together([self._read(caller, consumer, reading) for _ in readers])
                if self.world.promises(FRESH) and not options["seek_rate"]:
                    await self._check_end(caller, consumer, reading)
                if self._limits_memory and self._is_over(audience):
                    await see_empty(caller, consumer, reading)
            reading.close()
            await stop_consumer(caller, consumer, None)
            await self.until_turn(0.5)

    async def _seek_soon(
        self, caller: Caller, consumer: AIOKafkaConsumer, reading: Reading
    ) -> None:
        """Go to the beginning, while start() is at work or has just ended."""
        await asyncio.sleep(0.03 * caller.random.random())
        for tp in sorted(consumer.assignment()):
            consumer.seek(tp, 0)
            reading.positions[tp] = 0

    async def _is_placed(self, caller: Caller, consumer: AIOKafkaConsumer) -> bool:
        """Whether the consumer knows all of its positions: start() has waited for leaders, but not
        for those that are unreachable or slow."""
        try:
            for tp in sorted(consumer.assignment()):
                call = consumer.position(tp)
                await caller.call("position", call, patience=_AT_ONCE, may_cancel=False)
        except (KafkaError, InterruptedCall):
            if not self.world.scenario.faults:
                self.world.violate("no position", f"{caller.name}: of {tp}, after start()")
            return False
        return True

    def _begin_here(self, audience: Audience, is_placed: bool) -> None:
        """By "latest": what is written from now on must come, if the positions are known."""
        for topic in audience.topics:
            if not is_placed:
                audience.forgiven.add(topic)
            for tp in partitions(self.world, topic):
                audience.frontier[tp] = visible_end(self.world, tp, False)

    def _make(self, caller: Caller, reading: Reading) -> AIOKafkaConsumer:
        options = self.options
        consumer = intercepted(
            caller,
            reading,
            options,
            bootstrap_servers=self.world.bootstrap,
            client_id=caller.name,
            **arguments_of(caller, options["client"]),
        )
        if options["by_hand"]:
            consumer.assign(self._partitions())
        else:
            consumer.subscribe(options["topics"])
        return consumer

    def _partitions(self) -> list[TopicPartition]:
        """Those that are there at the beginning."""
        plans = [self.world.scenario.topic(name) for name in self.options["topics"]]
        return [TopicPartition(t.name, number) for t in plans for number in range(t.partitions)]

    @property
    def _limits_memory(self) -> bool:
        return "fetch_buffer_memory" in self.options["client"]

    def _is_over(self, audience: Audience) -> bool:
        world = self.world
        if not world.turns[self.rank].is_set():
            return False
        hold = self._hold
        by_hand = self.options["by_hand"]
        missing = missing_for(world, audience, by_hand=by_hand, held=hold.numbers)
        begun_at = max(world.turn_at[self.rank], hold.ended_at)
        if missing and world.now > begun_at + self.recovery_s:
            text = f"{self.plan.name} has not got {missing} although all faults are over"
            world.violate("not delivered", text)
            return True
        if not missing and not hold.is_over:
            hold.end(world.now)
            return False
        return not missing

    async def _read(self, caller: Caller, consumer: AIOKafkaConsumer, reading: Reading) -> None:
        options = self.options
        while not self._is_over(reading.audience):
            try:
                is_turn = self.world.turns[self.rank].is_set()
                await self._hold.apply(caller, consumer, is_turn=is_turn)
                await read_once(caller, consumer, reading, options)
                if options.get("commit_rate") and caller.chance(options["commit_rate"]):
                    limit = options_ms(options["client"], "default_api_timeout_ms", 60_000)
                    await caller.call("commit()", consumer.commit(), limit=limit)
                # A read after a seek may wait for the fetch under way, as long as that may wait for
                # records: one that goes back all the time would never come to the end.
                is_time = not self.world.turns[self.rank].is_set()
                if caller.chance(options["seek_rate"]) and is_time:
                    await self._seek(caller, consumer, reading)
                if caller.chance(self._change_rate) and is_time:
                    await read_less(caller, consumer, reading, options, self._partitions())
            except InterruptedCall:
                pass
            except KafkaError:
                await self.until_turn(0.1)
            restarts = reading.audience.starts_at_beginning and caller.chance(
                options["restart_rate"]
            )
            # One that goes back at each start, and restarts often, would never come to the end.
            if restarts and not self.world.turns[self.rank].is_set():
                return

    @property
    def _change_rate(self) -> float:
        # By "latest" it would miss what is written meanwhile.
        is_possible = self.options["client"]["auto_offset_reset"] == "earliest"
        return float(self.options.get("change_rate", 0)) if is_possible else 0.0

    async def _check_end(
        self, caller: Caller, consumer: AIOKafkaConsumer, reading: Reading
    ) -> None:
        """All is read: so says the consumer, too."""
        limit = options_ms(self.options["client"], "default_api_timeout_ms", 60_000)
        deadline = self.world.now + FRESH_S
        ends: dict[TopicPartition, int] = {}
        found: dict[TopicPartition, int] = {}
        while self.world.now < deadline:
            partitions = sorted(consumer.assignment())
            ends = {
                tp: visible_end(self.world, tp, reading.audience.committed_only)
                for tp in partitions
            }
            try:
                calls = [consumer.position(tp) for tp in partitions]
                found = {
                    tp: await caller.call(f"position({tp})", call, limit=limit)
                    for tp, call in zip(partitions, calls, strict=True)
                }
            except (KafkaError, InterruptedCall):
                continue
            if found == ends:
                return
            # Marks of transactions are passed when there is nothing before them.
            await read_once(caller, consumer, reading, self.options)
        text = f"{caller.name}: is at {found} where the logs end at {ends}"
        self.world.violate("position", text)

    async def _seek(self, caller: Caller, consumer: AIOKafkaConsumer, reading: Reading) -> None:
        """Go back somewhere; what was read already comes again."""
        partitions = sorted(consumer.assignment())
        if not partitions:
            return
        tp = caller.random.choice(partitions)
        reading.forget([tp])
        if caller.chance(0.3):
            limit = options_ms(self.options["client"], "request_timeout_ms", 40_000)
            await caller.call("seek_to_beginning", consumer.seek_to_beginning(tp), limit=limit)
        else:
            known = sorted(reading.audience.delivered.get(tp, ()))
            offset = caller.random.choice(known) if known else 0
            self.world.note(caller.name, f"seek {tp} {offset}")
            consumer.seek(tp, offset)
            reading.positions[tp] = offset


async def together(programs: list[Coroutine[Any, Any, None]]) -> None:
    """Run several tasks of one program; a single one is the task that calls this."""
    if len(programs) == 1:
        await programs[0]
        return
    await asyncio.gather(*programs)


def options_ms(options: dict[str, Any], name: str, default: float) -> float:
    """An option that is in milliseconds, in seconds."""
    return float(options.get(name, default)) / 1000


def group_wait_s(options: dict[str, Any]) -> float:
    """Seconds that `start()` may wait for an assignment, by its documentation."""
    interval = options_ms(options, "max_poll_interval_ms", 300_000)
    rebalance = interval
    if options.get("group_protocol", "classic") == "classic":
        rebalance = options_ms(options, "session_timeout_ms", 10_000)
    if options.get("rebalance_timeout_ms") is not None:
        rebalance = options_ms(options, "rebalance_timeout_ms", 0)
    return max(interval, options_ms(options, "default_api_timeout_ms", 60_000), 1.25 * rebalance)


async def start_consumer(
    caller: Caller, consumer: AIOKafkaConsumer, options: dict[str, Any], group_s: float = 0.0
) -> bool:
    """Start a consumer; whether it worked. `group_s`: how long its group may make it wait."""
    limit = 3 * options_ms(options, "request_timeout_ms", 40_000) + 5.0 + group_s
    try:
        await caller.call("start", consumer.start(), limit=limit)
    except (KafkaError, InterruptedCall):
        return False
    return True


async def stop_consumer(caller: Caller, consumer: AIOKafkaConsumer, timeout: float | None) -> None:
    """Stop a consumer, again if that was cancelled."""
    limit = 10.0 if timeout is None else timeout
    for _ in range(20):
        try:
            await caller.call(f"stop({timeout})", consumer.stop(timeout), limit=limit + 2.0)
            break
        except (KafkaError, InterruptedCall):
            pass
    else:
        await consumer.stop(0)
    health = consumer.health()
    if health.state != "closed":
        caller.world.violate("health", f"{caller.name}: after stop {health!r}")
    if left := buffered(consumer):
        caller.world.violate("memory", f"{caller.name}: after stop {left} bytes are in memory")
