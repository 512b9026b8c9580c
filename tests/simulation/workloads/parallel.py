"""ParallelConsumers: many handlers at once, retry topics, members that come and go."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from aiokafka.parallel import ParallelConsumer, RetryTopics
from aiokafka.structs import ConsumerRecord
from tests.simulation import logs
from tests.simulation.calls import MARGIN, AllowedError, Caller, InterruptedCall
from tests.simulation.scenario import Draft, TopicPlan
from tests.simulation.workloads.base import FIRST_WITH_PRODUCER_IDS, Workload
from tests.simulation.workloads.group import ASSIGNORS, draw_group
from tests.simulation.workloads.handling import (
    CopyingProducer,
    Handling,
    HandlingListener,
    HopelessError,
    Ledger,
    OnPurposeError,
)
from tests.simulation.workloads.lone import group_wait_s, options_ms
from tests.simulation.workloads.producing import draw_producer_options
from tests.simulation.workloads.reading import draw_consumer_options

# Seconds that a cancelled handler has to end, and then the tasks of the ParallelConsumer.
_GRACE = 1.0
_FIRST_THAT_ASK_FOR_IDS = (2, 2)


class ParallelWorkload(Workload):
    """The members of one group, each a ParallelConsumer."""

    kind = "parallel"
    rank = 1

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any]:
        """A topic that others write, its retry topics, and one to three members."""
        source = draft.random
        written = [w.options["topic"] for w in draft.workloads if "topic" in w.options]
        origin = source.choice(written) if written else draft.new_topic().name
        group = draw_group(draft)
        delays = source.choice(([], [], [200], [1000], [100, 5000]))
        retries = [f"{origin}-{group['group_id']}-retry-{n}" for n in range(1, len(delays) + 1)]
        dead = f"{origin}-{group['group_id']}-dead-letter"
        if delays:
            _add_topics(draft, [*retries, dead])
        isolation = source.choice(("read_committed", "read_uncommitted"))
        count = source.choice((1, 1, 2, 2, 3))
        members = [cls._draw_member(draft, group, bool(delays)) for _ in range(count)]
        for number, member in enumerate(members):
            member["client"]["isolation_level"] = isolation
            if group["static"]:
                member["client"]["group_instance_id"] = f"{group['group_id']} {number}"
        return {
            "source": origin,
            "retries": retries,
            "dead": dead if delays else None,
            "delays_ms": delays,
            "isolation": isolation,
            "members": members,
            "group_id": group["group_id"],
        }

    @classmethod
    def _draw_member(cls, draft: Draft, group: dict[str, Any], has_retries: bool) -> dict[str, Any]:
        source = draft.random
        client = draw_consumer_options(draft) | group["client"]
        client["enable_auto_commit"] = False
        # A partition that is resumed waits for the fetch of others that is under way.
        client["fetch_max_wait_ms"] = min(client["fetch_max_wait_ms"], 2000)
        if draft.cluster.number < _FIRST_THAT_ASK_FOR_IDS:
            # Who gives up joining leaves a member that all others wait for.
            client["max_poll_interval_ms"] = 60_000
        parallel: dict[str, Any] = {
            "concurrency": source.choice((1, 2, 5, 16)),
            "commit_interval_ms": source.choice((100, 1000, 5000)),
            "drain_timeout_ms": source.choice((100, 1000, 5000)),
        }
        if source.random() < 0.3:
            parallel["max_records"] = source.choice((1, 3, 20))
        if source.random() < 0.3:
            parallel["max_bytes"] = source.choice((1, 200, 2000))
        if source.random() < 0.3:
            parallel["max_uncommitted"] = source.choice((1, 3, 20))
        return {
            "client": client,
            "parallel": parallel,
            "producer": _draw_copying_options(draft),
            "order": source.choice(("key", "key", "key", "partition", "none")),
            "form": source.choice(("run", "run", "with", "iterate")),
            "work_s": source.choice((0, 0.01, 0.1, 1.0)),
            "hang_rate": source.choice((0, 0, 0, 0.05)),
            "linger_rate": source.choice((0, 0, 0.3)),
            "raise_rate": source.choice((0, 0.1, 0.5) if has_retries else (0, 0, 0, 0.02)),
            "cancel_rate": source.choice((0, 0, 0.05, 0.3)),
            "listener": source.choice(("plain", "plain", "slow", "raise")),
            "comes_after_s": source.choice((0, 0, 2.0, draft.active_s / 2)),
            "stays_s": source.choice((None, None, 5.0, 20.0)),
        }

    async def run(self) -> None:
        """All members until everything was handled."""
        options = self.options
        history = self.world.history
        self._audience = audience = history.audience(
            options["group_id"],
            [options["source"], *options["retries"]],
            committed_only=options["isolation"] == "read_committed",
            starts_at_beginning=True,
        )
        # What was finished before a rebalance may be committed after it, and be read again.
        audience.goes_back = True
        if options["dead"]:
            history.copies.update([*options["retries"], options["dead"]])
        delays = [delay / 1000 for delay in options["delays_ms"]]
        ledger = Ledger(self.world, audience, options["retries"], delays)
        members = [
            ParallelMember(self, ledger, f"{self.plan.name} member {number}", member)
            for number, member in enumerate(options["members"])
        ]
        await asyncio.gather(*[member.run() for member in members])

    @property
    def recovery_s(self) -> float:
        """Sessions, rebalances, delays, handlers that hang."""
        return 500.0 + self.oldest_metadata_s

    def is_over(self) -> bool:
        """Whether the members may go: all was handled, or it takes too long."""
        world = self.world
        if not world.turns[self.rank].is_set():
            return False
        missing = self._missing()
        if missing and world.now > world.turn_at[self.rank] + self.recovery_s:
            world.violate("not handled", f"{self.plan.name} has not committed {missing}")
            return True
        return not missing

    def _missing(self) -> str:
        world, audience = self.world, self._audience
        committed_only = self.options["isolation"] == "read_committed"
        for topic in (self.options["source"], *self.options["retries"]):
            if topic in world.history.forgiven:
                continue
            for tp in logs.partitions(world, topic):
                end = logs.visible_end(world, tp, committed_only)
                stored = world.cluster.groups.committed(self.options["group_id"], *tp) or 0
                committed = max(stored, audience.set_back.get(tp, 0))
                if logs.first_visible(world, tp, committed, end, committed_only) is not None:
                    return f"{tp} {committed} (of {end})"
        return ""


class ParallelMember:
    """One program of the group: a ParallelConsumer, made again when it is gone."""

    def __init__(
        self, group: ParallelWorkload, ledger: Ledger, name: str, options: dict[str, Any]
    ) -> None:
        self.world = group.world
        self.group = group
        self.ledger = ledger
        self.options = options
        self.caller = Caller(group.world, name, options["cancel_rate"])

    async def run(self) -> None:
        """Be a member until all is over, with pauses."""
        await self.group.until_turn(self.options["comes_after_s"])
        while not self.group.is_over():
            if not self.group.options["delays_ms"]:
                await self._work(None)
            else:
                await self._work_with_retries()
            await self.group.until_turn(self.caller.random.random() * 2)

    async def _work_with_retries(self) -> None:
        options = self.options["producer"]
        producer = CopyingProducer(
            bootstrap_servers=self.world.bootstrap,
            client_id=self.caller.name.replace(" ", "-") + "-copies",
            **options,
        )
        producer.ledger = self.ledger
        try:
            await producer.start()
        except KafkaError as error:
            self.world.note(self.caller.name, "start of the producer", repr(error))
            return
        try:
            group = self.group.options
            await self._work(
                RetryTopics(
                    producer,
                    group["delays_ms"],
                    retry_topic="{topic}-" + group["group_id"] + "-retry-{n}",
                    dead_letter_topic="{topic}-" + group["group_id"] + "-dead-letter",
                    never_retry=[HopelessError],
                )
            )
        finally:
            await producer.stop()

    async def _work(self, retry: RetryTopics | None) -> None:
        consumer = self._make_consumer()
        handling = Handling(self.caller, self.ledger, consumer, self.options)
        program = ParallelProgram(self, handling)
        is_cutting = self.options.get("cuts_off", False)
        parallel = ParallelConsumer(
            consumer,
            topics=[self.group.options["source"]],
            listener=HandlingListener(handling, self.options["listener"]),
            order=self.options["order"],
            key=program.see_arrival if is_cutting else None,
            retry=retry,
            **self.options["parallel"],
        )
        program.begin(parallel)
        if self.options["form"] == "with":
            await program.run_in_block()
        else:
            await program.run()

    def _make_consumer(self) -> AIOKafkaConsumer:
        options = dict(self.options["client"])
        assignors = options.pop("assignors", None)
        if assignors:
            options["partition_assignment_strategy"] = [ASSIGNORS[name] for name in assignors]
        return AIOKafkaConsumer(
            bootstrap_servers=self.world.bootstrap,
            client_id=self.caller.name.replace(" ", "-"),
            group_id=self.group.options["group_id"],
            **options,
        )


class ParallelProgram:
    """One ParallelConsumer, from its start to its end."""

    parallel: ParallelConsumer

    def __init__(self, member: ParallelMember, handling: Handling) -> None:
        self.world = member.world
        self.group = member.group
        self.caller = member.caller
        self.options = member.options
        self.handling = handling
        self.has_retries = bool(member.group.options["delays_ms"])
        self._asked_at: float | None = None
        self._idle: dict[asyncio.Task[None], None] = {}
        """The tasks of the program that wait for records, in their order."""
        self._cut: set[asyncio.Task[None]] = set()
        self._left = 0
        """How many of its tasks were not cut off."""

    def begin(self, parallel: ParallelConsumer) -> None:
        """Take the ParallelConsumer, which is made with a method of this program."""
        self.parallel = parallel

    @property
    def _may_cancel(self) -> bool:
        # In the end all must come to rest.
        return not self.world.turns[self.group.rank].is_set()

    @property
    def _drain(self) -> float:
        return float(self.options["parallel"]["drain_timeout_ms"]) / 1000

    @property
    def _start_limit(self) -> float:
        client = self.options["client"]
        return 3 * options_ms(client, "request_timeout_ms", 40_000) + 5.0 + group_wait_s(client)

    @property
    def _stop_limit(self) -> float:
        return 2 * self._drain + 3 * _GRACE + 12.0

    async def run(self) -> None:
        """Start, work, stop, each in a call of its own."""
        started = False
        try:
            await self.caller.call(
                "start", self.parallel.start(), limit=self._start_limit, may_cancel=self._may_cancel
            )
            started = True
        except (KafkaError, InterruptedCall, AllowedError):
            pass
        if started:
            await self._work()
        for _ in range(20):
            try:
                await self.caller.call("stop", self.parallel.stop(), limit=self._stop_limit)
                break
            except (KafkaError, InterruptedCall, AllowedError):
                pass
        else:
            await self.parallel.stop()
        self._check_stopped()

    async def run_in_block(self) -> None:
        """The same by `async with`, where it all may be cancelled at any time."""

        async def block() -> None:
            async with self.parallel as parallel:
                ending = asyncio.get_running_loop().create_task(self._end_later())
                try:
                    await parallel.run(self.handle)
                finally:
                    ending.cancel()

        try:
            await self.caller.call("block", block(), may_cancel=self._may_cancel)
        except (KafkaError, InterruptedCall, AllowedError):
            # Its tasks were cancelled, and need a moment.
            await asyncio.sleep(_GRACE)
        self._check_stopped()

    def _check_stopped(self) -> None:
        health = self.parallel.consumer.health()
        if health.state not in ("closed", "new"):
            self.world.violate("health", f"{self.caller.name}: after stop {health!r}")
        if self.handling.running and not self.world.stalled:
            text = f"{self.caller.name}: stopped, but {self.handling.running} handlers run"
            self.world.violate("handlers left", text)

    async def _work(self) -> None:
        ending = asyncio.get_running_loop().create_task(self._end_later())
        form = self._iterate if self.options["form"] == "iterate" else self._run
        try:
            while self._asked_at is None:
                try:
                    await self.caller.call("run", form(), may_cancel=self._may_cancel)
                except InterruptedCall:
                    continue  # what was cancelled begins again
                except (KafkaError, AllowedError):
                    break
                break
        finally:
            ending.cancel()
        if self._asked_at is not None and form == self._run:
            took = self.world.now - self._asked_at
            if took > self._drain + _GRACE + MARGIN + self.world.stalled:
                text = f"{self.caller.name}: run ends {took:.3f} s after request_stop"
                self.world.violate("late", text)

    async def _run(self) -> None:
        await self.parallel.run(self.handle)

    async def _iterate(self) -> None:
        count = min(4, self.options["parallel"]["concurrency"])
        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(self._iterate_once()) for _ in range(count)]
        self._left = count
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _iterate_once(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._idle[task] = None
        try:
            async for work in self.parallel:
                del self._idle[task]
                async with work as record:
                    await self.handle(record)
                self._idle[task] = None
        except asyncio.CancelledError:
            if task not in self._cut:
                raise
        finally:
            self._idle.pop(task, None)

    def see_arrival(self, record: ConsumerRecord[Any, Any]) -> Any:
        """The key of a record that has arrived. The task that is about to be woken for it is ended
        by the program in the same turn of the loop; another one has to work on the record.
        """
        if self._left > 1 and self._idle and self._may_cancel:
            self._left -= 1
            task = next(iter(self._idle))
            self._cut.add(task)
            asyncio.get_running_loop().call_soon(task.cancel)
        return record.key

    async def _end_later(self) -> None:
        stays = self.options["stays_s"]
        end = None if stays is None else self.world.now + 2 * stays * self.caller.random.random()
        while not self.group.is_over():
            if end is not None and self.world.now > end and not self.world.calm.is_set():
                break
            await self.group.until_turn(0.3)
        self._asked_at = self.world.now
        self.parallel.request_stop()

    async def handle(self, record: ConsumerRecord[Any, Any]) -> None:
        """Work on a record; slow, raising, or lingering when it is cancelled."""
        self.handling.begin(record)
        caller, options = self.caller, self.options
        is_urgent = self.world.turns[self.group.rank].is_set()
        seconds = min(options["work_s"], 0.05) if is_urgent else options["work_s"]
        if not is_urgent and caller.chance(options["hang_rate"]):
            seconds = 10.0
        try:
            await caller.pause(seconds)
            if caller.chance(options["raise_rate"]) and (self.has_retries or not is_urgent):
                self.handling.ledger.raised(record)
                kind = HopelessError if caller.chance(0.2) else OnPurposeError
                raise kind("the handler raises on purpose")
        except asyncio.CancelledError:
            if caller.chance(options["linger_rate"]):
                await asyncio.sleep(0.5 * caller.random.random())
            raise
        finally:
            self.handling.end(record)
        self.handling.finished(record)


def _add_topics(draft: Draft, names: list[str]) -> None:
    source = draft.random
    for name in names:
        config = {"max.message.bytes": "600"} if source.random() < 0.1 else {}
        replicas = min(draft.cluster.brokers, source.choice((1, 3, 3)))
        draft.topics.append(TopicPlan(name, source.choice((1, 1, 2)), replicas, config))


def _draw_copying_options(draft: Draft) -> dict[str, Any]:
    options = draw_producer_options(draft)
    options["acks"] = "all"
    options["enable_idempotence"] = (
        draft.cluster.number >= FIRST_WITH_PRODUCER_IDS and draft.random.random() < 0.7
    )
    options.pop("buffer_memory", None)
    return options
