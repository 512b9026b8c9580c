"""Readers of ranges, as batch jobs use them: every offset once, or told that it is gone."""

from __future__ import annotations

import itertools
from typing import Any

from aiokafka import AIOKafkaClient
from aiokafka.errors import KafkaError
from aiokafka.ranges import DataLoss, DataLossError, LossKind, PartitionRange, RangeReader, Rows
from aiokafka.structs import TopicPartition
from tests.simulation import logs
from tests.simulation.calls import Caller, InterruptedCall
from tests.simulation.history import number_of
from tests.simulation.scenario import Draft
from tests.simulation.workloads.base import Workload, draw_client_options

_FIRST_TOPIC_IDS = (3, 1)


class RangeWorkload(Workload):
    """One job after the other, each of which reads what is there when it begins."""

    kind = "ranges"
    rank = 2

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any]:
        """Topics that others write, and how to read them."""
        source = draft.random
        names = [topic.name for topic in draft.topics] or [draft.new_topic().name]
        reader: dict[str, Any] = {
            "read_committed": source.random() < 0.5,
            "fail_on_data_loss": source.random() < 0.5,
            "max_wait_ms": source.choice((20, 500, 2000)),
            "timeout_ms": source.choice((2000, 10_000, 120_000)),
        }
        if source.random() < 0.3:
            reader["max_partition_bytes"] = source.choice((1, 500))
        if source.random() < 0.3:
            reader["buffer_memory"] = source.choice((1, 2000))
        client = draw_client_options(draft)
        # A fetch may be held by the broker for as long as it is asked to.
        client["request_timeout_ms"] = max(client["request_timeout_ms"], 2500)
        return {
            "topics": sorted(source.sample(names, source.randint(1, len(names)))),
            "client": client,
            "reader": reader,
            "with_ids": source.random() < 0.5,
            "parts": source.choice((1, 1, 3)),
            "max_rows": source.choice((1, 7, 1000)),
            "work_s": source.choice((0, 0.01, 0.5)),
            "pause_s": source.choice((0.1, 1.0, 5.0)),
            "cancel_rate": source.choice((0, 0, 0.02, 0.1)),
        }

    async def run(self) -> None:
        """Jobs until it is calm, then one that must come to its end."""
        caller = Caller(self.world, self.plan.name, self.options["cancel_rate"])
        while not await self.until_turn(caller.random.expovariate(1 / self.options["pause_s"])):
            await Job(self, caller).run()
        caller = Caller(self.world, self.plan.name + " at the end")
        deadline = self.world.turn_at[self.rank] + self.recovery_s
        while True:
            job = Job(self, caller)
            await job.run()
            if job.is_whole:
                return
            if self.world.now > deadline:
                text = f"{caller.name}: cannot read although all faults are over: "
                self.world.violate("no recovery", text + repr(job.last_error))
                return
            await self.until_turn(1.0)


class Job:
    """Ranges of some partitions, read by one client."""

    def __init__(self, workload: RangeWorkload, caller: Caller) -> None:
        self.world = workload.world
        self.caller = caller
        self.options = workload.options
        self.committed_only: bool = self.options["reader"]["read_committed"]
        self.last_error: BaseException | None = None
        self.is_whole = False
        """Whether all was read that is still there."""
        self.expected: dict[TopicPartition, dict[int, int]] = {}
        self.got: dict[TopicPartition, dict[int, int]] = {}
        self.losses: list[DataLoss] = []
        self.ranges = [
            wanted
            for topic in self.options["topics"]
            for tp in logs.partitions(self.world, topic)
            for wanted in self._plan(tp)
        ]

    def _plan(self, tp: TopicPartition) -> list[PartitionRange]:
        """Cut what is there into ranges, and note what is in them."""
        log = logs.log_of(self.world, tp)
        if log is None or tp.topic in self.world.history.forgiven:
            return []
        source = self.caller.random
        end = logs.visible_end(self.world, tp, self.committed_only)
        start = source.randint(log.start_offset, max(log.start_offset, end))
        if source.random() < 0.5:
            start = log.start_offset
        cuts = {source.randint(start, end) for _ in range(self.options["parts"] - 1)}
        edges = sorted({start, end, *cuts}) if end > start else []
        topic_id = None
        if self.options["with_ids"] and self.world.scenario.cluster.number >= _FIRST_TOPIC_IDS:
            topic_id = self.world.cluster.state.topics[tp.topic].topic_id
        self.expected[tp] = {
            entry.offset: entry.number
            for entry in logs.entries(self.world, tp)
            if start <= entry.offset < end and not (entry.is_aborted and self.committed_only)
        }
        return [
            PartitionRange(tp.topic, tp.partition, low, high, topic_id)
            for low, high in itertools.pairwise(edges)
        ]

    @property
    def _next_limit(self) -> float:
        # A range that makes no progress is given up between two requests; looking where a log
        # begins and ends takes some more.
        request = self.options["client"]["request_timeout_ms"] / 1000
        return float(self.options["reader"]["timeout_ms"]) / 1000 + 6 * request + 5.0

    async def run(self) -> None:
        """Read all ranges, and compare."""
        client = AIOKafkaClient(
            bootstrap_servers=self.world.bootstrap,
            client_id=self.caller.name.replace(" ", "-"),
            **self.options["client"],
        )
        try:
            async with client:
                await self._read(client)
            self._check_missing()
            self.is_whole = True
        except DataLossError as error:
            self.last_error = error
            self._check_loss(error.loss)
        except (KafkaError, InterruptedCall) as error:
            self.last_error = error

    async def _read(self, client: AIOKafkaClient) -> None:
        async with RangeReader(client, self.ranges, **self.options["reader"]) as reader:
            try:
                while True:
                    records = await self.caller.call("next", reader.next(), limit=self._next_limit)
                    if records is None:
                        return
                    tp = TopicPartition(records.topic, records.partition)
                    while (rows := records.read(self.options["max_rows"])) is not None:
                        self._take(tp, rows)
                    await self.caller.pause(self.options["work_s"])
            finally:
                self.losses = reader.losses
                for loss in self.losses:
                    self._check_loss(loss)

    def _take(self, tp: TopicPartition, rows: Rows) -> None:
        got = self.got.setdefault(tp, {})
        expected = self.expected[tp]
        offsets = memoryview(rows.columns.offsets).cast("q")
        ends = memoryview(rows.columns.values.offsets).cast("i")
        data = bytes(rows.columns.values.data)
        is_known = tp.topic not in self.world.history.forgiven
        for row in range(rows.size):
            offset = offsets[row]
            value = data[ends[row] : ends[row + 1]]
            number = number_of(value or None)
            if offset in got:
                self._violate("read twice", f"{tp} {offset}")
            elif is_known and expected.get(offset) != number:
                text = f"{tp} {offset}: record {number}, not {expected.get(offset)}"
                self._violate("wrong record", text)
            got[offset] = number

    def _check_loss(self, loss: DataLoss) -> None:
        """What is said to be gone is gone."""
        self.world.note(self.caller.name, "loss", str(loss))
        if loss.topic in self.world.history.forgiven:
            return
        log = logs.log_of(self.world, TopicPartition(loss.topic, loss.partition))
        start = 0 if log is None else log.start_offset
        if loss.kind is not LossKind.RETENTION or loss.until > start:
            self._violate("no loss", f"{loss}, but the log begins at {start}")

    def _check_missing(self) -> None:
        for tp, expected in self.expected.items():
            if tp.topic in self.world.history.forgiven:
                continue
            got = self.got.get(tp, {})
            gone = [
                range(loss.start, loss.until)
                for loss in self.losses
                if (loss.topic, loss.partition) == tp
            ]
            missing = [
                offset
                for offset in expected
                if offset not in got and not any(offset in each for each in gone)
            ]
            if missing:
                self._violate("skipped", f"{tp}: {missing[:5]} were not read")

    def _violate(self, kind: str, text: str) -> None:
        self.world.violate(kind, f"{self.caller.name}: {text}")
