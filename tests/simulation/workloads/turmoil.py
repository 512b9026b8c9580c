"""Transactions whose programs do several things at once, or leave off in the middle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from aiokafka.errors import IllegalOperation, KafkaError, ProducerFenced
from aiokafka.protocol.messages.produce import ProduceRequest
from aiokafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from aiokafka.structs import TopicPartition
from tests.simulation.calls import Caller, InterruptedCall
from tests.simulation.faults.responses import LateResponse
from tests.simulation.history import Transaction
from tests.simulation.scenario import Draft
from tests.simulation.workloads.transacting import TransactionalProgram, TransactionalWorkload

_ERRORS = (KafkaError, InterruptedCall, IllegalOperation)
_HABITS = ("plain", "block", "stopped", "twice", "cut off", "rival", "beside", "recalled")
_STOP_S = 5.0
# By the responses to these a producer learns that it is fenced.
_TELLING = (
    ProduceRequest,
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)


class TurmoilWorkload(TransactionalWorkload):
    """Transactions of which each is another sort of trouble."""

    kind = "turmoil"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any]:
        """As others, with what may happen to a transaction."""
        source = draft.random
        habits = source.sample(_HABITS, source.randint(1, 3))
        return super().draw(draft) | {"habits": sorted(habits), "cancel_rate": 0}

    def _make(self, caller: Caller) -> TurmoilProgram:
        return TurmoilProgram(self.world, caller, self.options)

    async def _transact(self, program: TransactionalProgram) -> None:
        assert isinstance(program, TurmoilProgram)
        habit = program.caller.random.choice(self.options["habits"])
        self.world.note(program.caller.name, f"a transaction: {habit}")
        self.world.hit(f"transaction {habit}")
        if habit == "plain":
            await super()._transact(program)
        elif habit in ("block", "stopped"):
            await program.in_block(stops=habit == "stopped")
        elif habit == "twice":
            await program.end_twice()
        elif habit == "cut off":
            await program.cut_off()
        elif habit == "rival":
            await program.meet_a_rival()
        else:
            await program.with_offsets(recalled=habit == "recalled")


class TurmoilProgram(TransactionalProgram):
    """One transactional producer, and what goes wrong with it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._group = f"offsets of {self.caller.name}"
        self._expected: dict[int, int | None] = {}
        """What is committed of each partition, where that is known for sure."""

    async def _begin(self) -> Transaction | None:
        if not await self._try("begin_transaction", self.producer.begin_transaction, tries=1):
            self.is_usable = False
            return None
        return self._new()

    def _new(self) -> Transaction:
        known = self.world.history.transactions
        transaction = Transaction(f"{self.caller.name} {len(known)}")
        known.append(transaction)
        self.transaction = transaction
        return transaction

    async def _attempt(self, what: str, call: Awaitable[Any]) -> BaseException | None:
        try:
            await self.caller.call(what, call, limit=self.max_block)
        except _ERRORS as error:
            return error
        return None

    async def in_block(self, *, stops: bool) -> None:
        """The context manager, while another task may stop the producer."""
        stopping: asyncio.Task[None] | None = None
        transaction: Transaction | None = None
        self.caller.may_fail = True
        try:
            async with self.producer.transaction():
                transaction = self._new()
                await self.fill(transaction)
                transaction.outcome = "unknown"
                if stops:
                    stopping = asyncio.get_running_loop().create_task(self.stop(_STOP_S))
                    await self.caller.pause(0.01)
            transaction.outcome = "committed"
        except _ERRORS as error:
            self.world.note(self.caller.name, "the block", f"raised {error!r}")
            self.is_usable = not getattr(error, "is_fatal", False)
        self.transaction = None
        self.caller.may_fail = False
        if stopping is not None:
            await stopping
            self.is_usable = False

    async def end_twice(self) -> None:
        """Two tasks end one transaction, one of them by an abort."""
        transaction = await self._begin()
        if transaction is None:
            return
        await self.fill(transaction)
        self.transaction = None
        transaction.outcome = "unknown"
        self.caller.may_fail = True
        calls = [self.producer.commit_transaction, self.producer.abort_transaction]
        first = self.caller.random.randrange(2)
        ends = [self._ended("the first end", calls[first], 0.0)]
        ends.append(self._ended("the second end", calls[1 - first], self.caller.random.random()))
        found = await asyncio.gather(*ends)
        if found[first] is None:
            transaction.outcome = "committed"
        elif found[1 - first] is not None:
            await self._abort(transaction)
        self.caller.may_fail = False

    async def _ended(self, what: str, call: Any, delay: float) -> BaseException | None:
        await asyncio.sleep(0.004 * delay)
        return await self._attempt(what, call())

    async def cut_off(self) -> None:
        """The commit is cancelled, and then the producer is stopped."""
        transaction = await self._begin()
        if transaction is None:
            return
        await self.fill(transaction)
        self.transaction = None
        transaction.outcome = "unknown"
        task = asyncio.get_running_loop().create_task(self.producer.commit_transaction())
        await asyncio.sleep(self.caller.random.choice((0, 0.0005, 0.002, 0.004)))
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()
        await self.stop(_STOP_S)
        self.is_usable = False
        known = self.world.cluster.transactions.by_id.get(self.options["transactional_id"])
        if known is not None and known.state.value == "Ongoing" and not self.world.scenario.faults:
            text = f"{self.caller.name}: stopped, but its transaction goes on"
            self.world.violate("left open", text)

    async def meet_a_rival(self) -> None:
        """Another producer has the id now: this one commits nothing any more."""
        caller = Caller(self.world, f"rival of {self.caller.name}")
        rival = TransactionalProgram(self.world, caller, self.options)
        if await self._begin() is None:
            return
        is_fenced = await rival.start()
        if is_fenced:
            await rival.transact(abort=False)
        self.caller.may_fail = True
        self.transaction = None
        asked = self._asked()
        for turn in range(3):
            await self._act_as_former_owner(asked, is_fenced=is_fenced, knows_it=turn > 0)
        self.caller.may_fail = False
        self.is_usable = False
        await rival.stop(None)

    def _asked(self) -> int:
        """How many requests about transactions of its id have reached brokers."""
        ids = [
            seen.request.v3_and_below_transactional_id
            if isinstance(seen.request, AddPartitionsToTxnRequest)
            else seen.request.transactional_id
            for api in _TELLING
            for seen in self.world.cluster.requests(api)
        ]
        return ids.count(self.options["transactional_id"])

    async def _act_as_former_owner(self, asked: int, *, is_fenced: bool, knows_it: bool) -> None:
        producer = self.producer
        offsets = {TopicPartition(self.options["topic"], 0): 0}
        calls: dict[str, Any] = {}
        if self.caller.chance(0.5):
            # Before a record is sent, so that the coordinator of the group is the first to know.
            calls["offsets"] = lambda: producer.send_offsets_to_transaction(offsets, self._group)
            knows_it = True
        calls |= {
            "send": lambda: producer.send(self.options["topic"], b"%08d" % -1),
            "commit": producer.commit_transaction,
            "send again": lambda: producer.send(self.options["topic"], b"%08d" % -1),
            "abort": producer.abort_transaction,
            "begin": producer.begin_transaction,
        }
        for name, call in calls.items():
            error = await self._attempt(f"{name} as a former owner", call())
            # Only brokers tell. Where faults keep it from all of them, it goes on: to end a
            # transaction of which nothing was sent, or to begin one, takes no broker.
            can_know = self._asked() > asked or not self.world.scenario.faults
            goes_on = error is None and name in ("commit", "begin") and can_know
            # Where nothing else happens, every call says why it fails.
            says_why = isinstance(error, ProducerFenced) or bool(self.world.scenario.faults)
            if is_fenced and (goes_on or not (says_why or (name == "send" and not knows_it))):
                text = f"{self.caller.name}: another has its id, but {name} gave {error!r}"
                self.world.violate("fenced producer", text)

    async def with_offsets(self, *, recalled: bool) -> None:
        """Offsets are sent by another task, which is not waited for, or which is cancelled."""
        transaction = await self._begin()
        if transaction is None:
            return
        await self.fill(transaction)
        partition, offset = self.caller.random.randrange(2), len(self.world.history.sent)
        before = self._committed(partition)
        offsets = {TopicPartition(self.options["topic"], partition): offset}
        sending = self.producer.send_offsets_to_transaction(offsets, self._group)
        task = asyncio.get_running_loop().create_task(sending)
        await asyncio.sleep(self.caller.random.choice((0, 0, 0.002, 0.005, 0.01, 0.02)))
        if recalled:
            task.cancel()
            await asyncio.wait([task])
        self.transaction = None
        is_beside = not task.done()
        if not recalled and await self._commit(transaction):
            before = offset
        else:
            await self._abort(transaction)
        await asyncio.wait([task])
        is_known = transaction.outcome in ("committed", "aborted")
        if task.cancelled() or task.exception() is not None:
            # A commit waits for what was called before, and fails with it.
            waits = is_beside and transaction.outcome == "committed"
            is_known = is_known and (recalled or waits)
        is_known = is_known and self._is_undisturbed
        if is_known:
            self._expect(partition, before)
        if recalled and self.is_usable:
            # What is left of it would be part of the next one.
            other = {TopicPartition(self.options["topic"], 1 - partition): offset}
            await self.transact(abort=False, body=lambda _: self.send_offsets(other, self._group))
            if is_known:
                self._expect(partition, before)

    @property
    def _is_undisturbed(self) -> bool:
        """Whether coordinators do what they are asked to, however late."""
        return all(fault.kind == LateResponse.kind for fault in self.world.scenario.faults)

    def _committed(self, partition: int) -> int | None:
        return self.world.cluster.groups.committed(self._group, self.options["topic"], partition)

    def _expect(self, partition: int, offset: int | None) -> None:
        found = self._committed(partition)
        if found != offset:
            text = f"{self.caller.name}: {found} is committed of {partition}, not {offset}"
            self.world.violate("other offsets", text)
