"""A consumer that begins at the end, while topics grow and appear."""

from __future__ import annotations

from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from aiokafka.structs import TopicPartition
from tests.simulation import logs
from tests.simulation.calls import Caller
from tests.simulation.scenario import Draft
from tests.simulation.workloads.base import Workload, draw_client_options
from tests.simulation.workloads.lone import start_consumer, stop_consumer

_TOPIC_IDS = (2, 8)


class LatestWorkload(Workload):
    """One consumer of all topics that match a pattern, by "latest"; writes them itself."""

    kind = "latest"
    rank = 2

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any]:
        """When topics appear and grow."""
        source = draft.random
        client = draw_client_options(draft)
        client["request_timeout_ms"] = max(client["request_timeout_ms"], 2000)
        client["metadata_max_age_ms"] = source.choice((2000, 10_000))
        return {
            "prefix": f"late{len(draft.workloads)}",
            "client": client,
            "replicas": min(draft.cluster.brokers, source.choice((1, 3))),
            "partitions": source.choice((1, 3)),
            "appears_at": source.random() * draft.active_s,
            "grows_at": source.random() * draft.active_s,
            "records": source.choice((5, 20, 50)),
        }

    async def run(self) -> None:
        """Write and read until all was read."""
        options, world = self.options, self.world
        cluster = world.cluster
        self._old, self._new = f"{options['prefix']}-old", f"{options['prefix']}-new"
        await cluster.create_topic(self._old, options["partitions"], options["replicas"])
        caller = Caller(world, self.plan.name)
        self._count = 0
        for _ in range(3):
            self._write(caller)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=world.bootstrap,
            client_id=caller.name,
            auto_offset_reset="latest",
            fetch_max_wait_ms=500,
            **options["client"],
        )
        consumer.subscribe(pattern=f"{options['prefix']}-.*")
        if await start_consumer(caller, consumer, options["client"]):
            await self._read(caller, consumer, self._starts())
        await stop_consumer(caller, consumer, None)

    def _starts(self) -> dict[TopicPartition, int]:
        """From where on nothing may be missing, of partitions that are there already."""
        world = self.world
        # A leader that is away is not waited for.
        is_quiet = all(fault.at > world.now for fault in world.scenario.faults)
        return {
            tp: logs.visible_end(world, tp, False) if is_quiet else 2**62
            for tp in logs.partitions(world, self._old)
        }

    async def _read(
        self, caller: Caller, consumer: AIOKafkaConsumer, starts: dict[TopicPartition, int]
    ) -> None:
        got: dict[TopicPartition, set[int]] = {}
        pace = max(0.1, self.world.scenario.active_s / self.options["records"])
        while not self._is_over(starts, got):
            await self._change()
            if not self.world.calm.is_set():
                self._write(caller)
            timeout = 1000 * pace * caller.random.random()
            try:
                call = consumer.getmany(timeout_ms=timeout)
                found = await caller.call("getmany", call, limit=timeout / 1000)
            except KafkaError:
                await self.until_turn(0.1)
                continue
            for tp, records in found.items():
                for record in records:
                    self._take(got.setdefault(tp, set()), tp, record.offset)
            await self.until_turn(pace)

    def _take(self, known: set[int], tp: TopicPartition, offset: int) -> None:
        self.world.note(self.plan.name, "got", f"{tp.topic}-{tp.partition} {offset}")
        if known and not offset and self._may_be_another(tp):
            known.clear()
        if known and offset <= max(known):
            text = f"{self.plan.name}: {tp} {offset} after {max(known)}"
            self.world.violate("back", text)
        known.add(offset)

    def _may_be_another(self, tp: TopicPartition) -> bool:
        """Return whether no client can tell that the topic is the one of before.

        A broker that was misled before the topic was made, or lags behind, says that there is none;
        then another says that there is. Brokers name topics without ids before Kafka 2.8 (KIP-516).
        """
        scenario = self.world.scenario
        is_denied = any(fault.kind in ("misled", "older metadata") for fault in scenario.faults)
        return tp.topic == self._new and is_denied and scenario.cluster.number < _TOPIC_IDS

    async def _change(self) -> None:
        """The other topic appears, this one grows; not while brokers are away."""
        options, world = self.options, self.world
        state = world.cluster.state
        if len(state.live_nodes()) < len(state.nodes):
            return
        if world.now >= options["appears_at"] and self._new not in state.topics:
            await world.cluster.create_topic(self._new, options["partitions"], options["replicas"])
            self._write_to(TopicPartition(self._new, 0))
        most = options["partitions"] + 1
        if world.now >= options["grows_at"] and len(logs.partitions(world, self._old)) < most:
            state.add_partitions(state.topics[self._old], most)
            self._write_to(TopicPartition(self._old, most - 1))

    def _write(self, caller: Caller) -> None:
        partitions = [
            tp for name in (self._old, self._new) for tp in logs.partitions(self.world, name)
        ]
        self._write_to(caller.random.choice(partitions))

    def _write_to(self, tp: TopicPartition) -> None:
        found = self.world.cluster.state.partition(*tp)
        if found is not None and found.leader != -1:
            found.log.append(b"%08d" % self._count)
            self._count += 1

    def _is_over(
        self, starts: dict[TopicPartition, int], got: dict[TopicPartition, set[int]]
    ) -> bool:
        world = self.world
        if not world.turns[self.rank].is_set() or self._new not in world.cluster.state.topics:
            return False
        missing = self._missing(starts, got)
        if missing and world.now > world.turn_at[self.rank] + self.recovery_s:
            world.violate("not delivered", f"{self.plan.name} has not got {missing}")
            return True
        return not missing

    def _missing(
        self, starts: dict[TopicPartition, int], got: dict[TopicPartition, set[int]]
    ) -> str:
        for name in (self._old, self._new):
            for tp in logs.partitions(self.world, name):
                end = logs.visible_end(self.world, tp, False)
                for offset in range(starts.get(tp, 0), end):
                    if offset not in got.get(tp, ()):
                        return f"{tp} {offset} (of {end})"
        return ""
