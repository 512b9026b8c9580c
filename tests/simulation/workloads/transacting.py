"""Transactional producers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError, KafkaTimeoutError
from tests.simulation.calls import Caller, InterruptedCall
from tests.simulation.history import Transaction
from tests.simulation.promises import USABLE
from tests.simulation.scenario import ClusterPlan, Draft
from tests.simulation.workloads.base import FIRST_WITH_PRODUCER_IDS, Workload
from tests.simulation.workloads.producing import (
    ProducerProgram,
    draw_producer_options,
    draw_topic_config,
)

_TRIES = 8
# After these the outcome is open.
_OPEN = (KafkaTimeoutError, InterruptedCall)

Body = Callable[[Transaction], Awaitable[bool]]


class TransactionalWorkload(Workload):
    """One producer that writes in transactions, made again whenever it cannot go on."""

    kind = "transactions"
    rank = 0

    @classmethod
    def is_possible(cls, cluster: ClusterPlan) -> bool:
        """Transactions came with producer ids."""
        return cluster.number >= FIRST_WITH_PRODUCER_IDS

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any]:
        """A topic, an id, and how transactions end."""
        source = draft.random
        topic = draft.new_topic(config=draw_topic_config(draft))
        return {
            "topic": topic.name,
            "transactional_id": f"id of {topic.name}",
            "client": draw_transactional_options(draft, f"id of {topic.name}"),
            "transactions": source.choice((2, 5, 12)),
            "most_records": source.choice((1, 3, 10)),
            "abort_rate": source.choice((0, 0.2, 0.5)),
            "sizes": [8, 100],
            "keys": source.choice((0, 3)),
            "to_partition": source.random() < 0.2,
            "flush_rate": source.choice((0, 0.2)),
            "cancel_rate": source.choice((0, 0, 0.05, 0.2)),
            "stop_s": source.choice((None, None, 0, 1.0)),
            "restart_rate": source.choice((0, 0, 0.1)),
            "leave_rate": source.choice((0, 0, 0.5)),
        }

    async def run(self) -> None:
        """Transactions until all is calm, then one that must be committed."""
        options = self.options
        caller = Caller(self.world, self.plan.name, options["cancel_rate"])
        pace = self.world.scenario.active_s / options["transactions"]
        while not self.world.calm.is_set():
            program = self._make(caller)
            if not await program.start():
                await self.world.until_calm(1.0)
                continue
            while program.is_usable and not self.world.calm.is_set():
                await self._transact(program)
                if caller.chance(options["restart_rate"]):
                    break
                await self.world.until_calm(caller.random.expovariate(1 / pace))
            await program.stop(None if self.world.calm.is_set() else options["stop_s"])
        await self._see_that_it_works()

    def _make(self, caller: Caller) -> TransactionalProgram:
        return TransactionalProgram(self.world, caller, self.options)

    async def _transact(self, program: TransactionalProgram) -> None:
        await program.transact(abort=program.caller.chance(self.options["abort_rate"]))

    async def _see_that_it_works(self) -> None:
        caller = Caller(self.world, self.plan.name + " at the end")
        deadline = self.world.calm_at + self.recovery_s
        while True:
            program = TransactionalProgram(self.world, caller, self.options)
            committed = False
            if await program.start():
                committed = await program.transact(abort=False)
                await program.stop(None)
            if committed:
                return
            if self.world.now > deadline:
                text = f"{caller.name}: cannot commit although all faults are over: "
                self.world.violate("no recovery", text + repr(program.last_error))
                return
            await self.world.until_calm(0.5)


class TransactionalProgram(ProducerProgram):
    """One transactional producer object and what is done with it."""

    left: Transaction | None = None
    """One whose commit has no outcome yet: the program leaves the rest to the next begin."""

    async def transact(self, *, abort: bool, body: Body | None = None) -> bool:
        """One transaction; whether it was committed for sure.

        Args:
            body: What happens in it, and whether it may be committed then; else some records.
        """
        history = self.world.history
        transaction = Transaction(f"{self.caller.name} {len(history.transactions)}")
        if not await self._begin():
            return False
        history.transactions.append(transaction)
        self.transaction = transaction
        if body is None:
            await self.fill(transaction)
        elif not await body(transaction):
            abort = True
        self.transaction = None
        if not abort and await self._commit(transaction):
            return True
        leaves = self.options.get("leave_rate", 0)
        if transaction.outcome == "unknown" and leaves and self.caller.chance(leaves):
            self.left = transaction
        else:
            await self._abort(transaction)
        return False

    async def _begin(self) -> bool:
        """Begin a transaction; whether there is one. What is left of the former one comes first."""
        left = self.left
        if await self._try("begin_transaction", self.producer.begin_transaction, tries=1):
            if left is not None:
                left.outcome = "committed"
                self.left = None
            return True
        if left is not None and self.is_usable and not isinstance(self.last_error, _OPEN):
            self.left = None
            await self._abort(left)
        return False

    async def fill(self, transaction: Transaction) -> None:
        """Send what is part of the transaction."""
        for _ in range(self.caller.random.randint(1, self.options["most_records"])):
            if self.caller.chance(0.7):
                await self.send()
            else:
                await self.send_and_wait()
            if self.caller.chance(self.options["flush_rate"]):
                await self.flush()
            if self.caller.chance(0.1):
                await self.caller.pause(0.2)

    async def send_offsets(self, offsets: dict[TopicPartition, int], consumer: Any) -> bool:
        """Make offsets part of the transaction; whether they are, or a commit will see to that."""
        call = self.producer.send_offsets_to_transaction(offsets, consumer)
        rate = self.options.get("give_up_rate", 0)
        gives_up = rate and self.caller.chance(rate)
        patience = self.caller.random.random() * 0.4 if gives_up else None
        try:
            what = f"send_offsets_to_transaction({offsets})"
            await self.caller.call(what, call, patience=patience)
        except (KafkaError, InterruptedCall) as error:
            self._met(error)
            return patience is not None and isinstance(error, InterruptedCall)
        return True

    async def _commit(self, transaction: Transaction) -> bool:
        transaction.outcome = "unknown"
        if await self._try("commit_transaction", self.producer.commit_transaction):
            transaction.outcome = "committed"
            return True
        return False

    async def _abort(self, transaction: Transaction) -> None:
        transaction.outcome = "unknown"
        if not self.is_usable:
            return
        if await self._try("abort_transaction", self.producer.abort_transaction):
            # Also behind a commit that was refused: programs do it all again now.
            transaction.outcome = "aborted"
        else:
            self.is_usable = False

    async def _try(self, what: str, call: Any, tries: int = _TRIES) -> bool:
        """Make a call again as long as its outcome is open; whether it has succeeded."""
        for _ in range(tries):
            try:
                await self.caller.call(what, call(), limit=self.max_block)
                return True
            except _OPEN as error:
                self._met(error)
            except KafkaError as error:
                self._met(error)
                if getattr(error, "is_fatal", False):
                    self.is_usable = False
                    if self.world.promises(USABLE):
                        text = f"{self.caller.name}: {what} ended the producer: {error!r}"
                        self.world.violate("needless end", text, error)
                return False
            if not self.is_usable:
                break
        return False


def draw_transactional_options(draft: Draft, transactional_id: str) -> dict[str, Any]:
    """Keywords for a transactional AIOKafkaProducer."""
    options = draw_producer_options(draft)
    del options["enable_idempotence"]
    options["acks"] = "all"
    options["transactional_id"] = transactional_id
    options["transaction_timeout_ms"] = draft.random.choice((2000, 10_000, 60_000))
    return options
