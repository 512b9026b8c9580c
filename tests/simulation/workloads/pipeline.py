"""Read, process, write: exactly once, with the offsets as part of the transaction."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.protocol.messages.group_offsets import OffsetFetchRequest
from aiokafka.structs import ConsumerRecord
from tests.simulation import logs
from tests.simulation.calls import AllowedError, Caller, InterruptedCall
from tests.simulation.checks import OFFSETS_OF_LATER_EPOCHS_ONLY
from tests.simulation.contexts import arguments_of
from tests.simulation.history import Reading, Transaction
from tests.simulation.scenario import ClusterPlan, Draft, WorkloadPlan
from tests.simulation.shows import intercepted
from tests.simulation.workloads.base import FIRST_WITH_PRODUCER_IDS, Workload
from tests.simulation.workloads.group import ASSIGNORS, draw_group
from tests.simulation.workloads.listening import Listener
from tests.simulation.workloads.lone import group_wait_s, options_ms, start_consumer, stop_consumer
from tests.simulation.workloads.reading import draw_consumer_options, read_once
from tests.simulation.workloads.transacting import (
    TransactionalProgram,
    draw_transactional_options,
)

if TYPE_CHECKING:
    from aiokafka.testing import RequestContext
    from tests.simulation.world import World

_STABLE_OFFSETS = (2, 5)


class PipelineWorkload(Workload):
    """One or two programs that copy a topic to another in transactions."""

    kind = "pipeline"
    rank = 1

    def __init__(self, world: World, plan: WorkloadPlan) -> None:
        super().__init__(world, plan)
        self._committed: dict[TopicPartition, int] = {}

    @classmethod
    def is_possible(cls, cluster: ClusterPlan) -> bool:
        """Members are told from former members since 2.5 (KIP-447); before, one at a time."""
        return cluster.number >= FIRST_WITH_PRODUCER_IDS

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any]:
        """A topic that others write, a topic to write, and the programs."""
        source = draft.random
        written = [w.options["topic"] for w in draft.workloads if "topic" in w.options]
        origin = source.choice(written) if written else draft.new_topic().name
        target = draft.new_topic().name
        group = draw_group(draft)
        count = source.choice((1, 2)) if draft.cluster.number >= (2, 5) else 1
        members = []
        for number in range(count):
            consumer = draw_consumer_options(draft) | group["client"]
            consumer |= {"isolation_level": "read_committed", "enable_auto_commit": False}
            members.append(
                {
                    "consumer": consumer,
                    "client": draw_transactional_options(draft, f"id {number} of {target}"),
                    "style": source.choice(("many", "one")),
                    "work_s": source.choice((0, 0.01, 0.2)),
                    "pause_rate": 0,
                    "cancel_rate": source.choice((0, 0, 0.05, 0.2)),
                    "listener": source.choice(("plain", "slow")),
                    "stays_s": source.choice((None, 5.0, 20.0)),
                    "hurry_rate": source.choice((0, 0, 0.3)),
                    "sizes": [8, 50],
                    "keys": 0,
                    "to_partition": False,
                    "topic": target,
                }
            )
        return {
            "source": origin,
            "topic": target,
            "members": members,
            "group_id": group["group_id"],
            "transactional_id": f"id 0 of {target}",
        }

    async def run(self) -> None:
        """All programs until everything is copied."""
        audience = self.world.history.audience(
            self.options["group_id"],
            [self.options["source"]],
            committed_only=True,
            starts_at_beginning=True,
        )
        self.world.history.pipelines.append(
            (self.options["group_id"], self.options["source"], self.options["topic"])
        )
        if self.world.scenario.cluster.number < _STABLE_OFFSETS:
            self.world.cluster.intercept(OffsetFetchRequest, self._see_offsets_fetched)
        await asyncio.gather(*[copier.run() for copier in self.make_copiers(audience)])

    def _see_offsets_fetched(self, request: OffsetFetchRequest, context: RequestContext) -> None:
        """Note the transactions that come after the offsets which are given here: brokers give old
        ones until the markers are written, and can be told not to since 2.5 (KIP-447)."""
        history, group_id = self.world.history, self.options["group_id"]
        if request.group_id != group_id:
            return
        again = history.given_again.setdefault(group_id, [])
        for transaction in history.transactions:
            if transaction.outcome != "aborted" and transaction not in again:
                copied = [sent.copy_of for sent in transaction.records if sent.copy_of]
                if transaction.outcome != "committed" or self._are_ahead(copied):
                    again.append(transaction)

    def _are_ahead(self, places: list[tuple[str, int, int]]) -> bool:
        """Whether records lie behind the offsets that the group's coordinator gives."""
        groups, group_id = self.world.cluster.groups, self.options["group_id"]
        return any(at >= (groups.committed(group_id, *tp) or 0) for *tp, at in places)

    def make_copiers(self, audience: Any) -> list[Copier]:
        """Its programs."""
        return [
            Copier(self, audience, f"{self.plan.name} member {number}", options)
            for number, options in enumerate(self.options["members"])
        ]

    @property
    def recovery_s(self) -> float:
        """Sessions, transaction timeouts and rebalances have to pass."""
        return 400.0 + self.looking_s

    def is_over(self) -> bool:
        """Whether all that can be read is committed by the group."""
        world = self.world
        self._note_committed()
        if not world.turns[self.rank].is_set():
            return False
        missing = self._missing()
        if missing and world.now > world.turn_at[self.rank] + self.recovery_s:
            world.violate("not delivered", f"{self.plan.name} has not copied {missing}")
            return True
        return not missing

    def _missing(self) -> str:
        world, topic = self.world, self.options["source"]
        if topic in world.history.forgiven:
            return ""
        for tp in logs.partitions(world, topic):
            end = logs.visible_end(world, tp, True)
            committed = self._committed[tp]
            if logs.first_visible(world, tp, committed, end, True) is not None:
                return f"{tp} {committed} (of {end})"
        return ""

    def _note_committed(self) -> None:
        """Keep the highest offsets that the group has had. Brokers before Kafka 2.4 take offsets
        without a look at their epoch: a request that got no response may set them back at any time,
        also behind a later commit. The next member reads on from there, one at work does not.
        """
        topic = self.options["source"]
        may_go_back = self.world.scenario.cluster.number < OFFSETS_OF_LATER_EPOCHS_ONLY
        for tp in logs.partitions(self.world, topic):
            committed = self.world.cluster.groups.committed(self.options["group_id"], *tp) or 0
            before = self._committed.get(tp, 0) if may_go_back else 0
            self._committed[tp] = max(committed, before)


class Copier:
    """One program: a consumer and a producer."""

    def __init__(
        self, pipeline: PipelineWorkload, audience: Any, name: str, options: dict[str, Any]
    ) -> None:
        self.world = pipeline.world
        self.pipeline = pipeline
        self.audience = audience
        self.options = options
        self.caller = Caller(self.world, name, options["cancel_rate"])

    async def run(self) -> None:
        """Copy until all is copied, with new clients whenever the old ones cannot go on."""
        while not self.pipeline.is_over():
            program = TransactionalProgram(self.world, self.caller, self.options)
            if await program.start():
                await self._consume(program)
                await program.stop(None)
            await self.pipeline.until_turn(self.caller.random.random() * 2)

    async def _consume(self, program: TransactionalProgram) -> None:
        options = dict(self.options["consumer"])
        reading = Reading(self.world, self.caller.name, self.audience)
        consumer = self._make(options, reading)
        if await start_consumer(self.caller, consumer, options, group_wait_s(options)):
            await self._copy(program, consumer, reading)
        await stop_consumer(self.caller, consumer, None)

    def _make(self, options: dict[str, Any], reading: Reading) -> AIOKafkaConsumer:
        options = dict(options)
        assignors = options.pop("assignors", None)
        if assignors:
            options["partition_assignment_strategy"] = [ASSIGNORS[name] for name in assignors]
        consumer = intercepted(
            self.caller,
            reading,
            self.options,
            bootstrap_servers=self.world.bootstrap,
            client_id=self.caller.name.replace(" ", "-"),
            group_id=self.pipeline.options["group_id"],
            **arguments_of(self.caller, options),
        )
        listener = Listener(self.caller, consumer, reading, self.options)
        consumer.subscribe([self.pipeline.options["source"]], listener=listener)
        return consumer

    async def _copy(
        self, program: TransactionalProgram, consumer: AIOKafkaConsumer, reading: Reading
    ) -> None:
        stays = self.options["stays_s"]
        until = None if stays is None else self.world.now + 2 * stays * self.caller.random.random()
        while program.is_usable and not self.pipeline.is_over():
            if until is not None and self.world.now > until and not self.world.calm.is_set():
                return
            try:
                records = await read_once(self.caller, consumer, reading, self.options)
            except (InterruptedCall, AllowedError):
                continue
            except KafkaError:
                if consumer.health().state in ("failed", "closed"):
                    return
                await self.pipeline.until_turn(0.1)
                continue
            if records and not await self._copy_some(program, consumer, records):
                await self._go_back(consumer, reading)
                # A member that was removed learns it from its next heartbeat, and fails until then.
                await self.pipeline.until_turn(0.1)

    async def _copy_some(
        self,
        program: TransactionalProgram,
        consumer: AIOKafkaConsumer,
        records: list[ConsumerRecord[Any, Any]],
    ) -> bool:
        """Write copies and commit; whether that was done for sure."""
        hurries = self.options.get("hurry_rate", 0)
        hurries = hurries and self.caller.chance(hurries)
        late: list[asyncio.Task[KafkaError | None]] = []

        async def body(transaction: Transaction) -> bool:
            for record in records:
                sent = await program.send(copy_of=(record.topic, record.partition, record.offset))
                if sent.outcome == "unsent":
                    return False
            offsets = {
                TopicPartition(record.topic, record.partition): record.offset + 1
                for record in records
            }
            transaction.offsets = offsets
            if hurries:
                sending = self._send_offsets_late(program, offsets, consumer)
                late.append(self.world.loop.create_task(sending))
                # Begun, and not waited for.
                await asyncio.sleep(0)
                return True
            return await program.send_offsets(offsets, consumer)

        is_done = await program.transact(abort=False, body=body)
        for task in late:
            error = await task
            if error is not None and is_done:
                text = f"{self.caller.name}: committed without the offsets that were refused: "
                self.world.violate("offsets lost", text + repr(error), error)
        return is_done

    async def _send_offsets_late(
        self, program: TransactionalProgram, offsets: dict[TopicPartition, int], consumer: Any
    ) -> KafkaError | None:
        """Make offsets part of the transaction while it is committed; what they were refused
        with."""
        call = program.producer.send_offsets_to_transaction(offsets, consumer)
        try:
            await self.caller.call(
                f"send_offsets_to_transaction({offsets})", call, may_cancel=False
            )
        except KafkaError as error:
            return error
        except InterruptedCall:
            pass
        return None

    async def _go_back(self, consumer: AIOKafkaConsumer, reading: Reading) -> None:
        """What was read and not committed has to come again."""
        limit = options_ms(self.options["consumer"], "default_api_timeout_ms", 60_000)
        for _ in range(50):
            if not consumer.assignment():
                return
            reading.forget(list(reading.positions))
            call = consumer.seek_to_committed()
            try:
                found = await self.caller.call("seek_to_committed()", call, limit=limit)
            except (KafkaError, InterruptedCall):
                await self.pipeline.until_turn(0.2)
                continue
            reading.forget(list(reading.positions))
            for tp, offset in found.items():
                if offset is None and tp in consumer.assignment():
                    consumer.seek(tp, 0)
            return
        await stop_consumer(self.caller, consumer, 0)
