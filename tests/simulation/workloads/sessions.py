"""TransactionalSessions: the pipeline again, as the client offers it."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from aiokafka.session import SessionTransaction, TransactionalSession
from aiokafka.structs import ConsumerRecord
from tests.simulation.calls import AllowedError, InterruptedCall
from tests.simulation.history import Reading, Transaction, value_of
from tests.simulation.scenario import Draft
from tests.simulation.workloads.lone import stop_consumer
from tests.simulation.workloads.pipeline import Copier, PipelineWorkload
from tests.simulation.workloads.transacting import TransactionalProgram


class SessionWorkload(PipelineWorkload):
    """One or two programs that copy a topic to another in sessions."""

    kind = "session"

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any]:
        """As a pipeline, and how blocks end."""
        source = draft.random
        options = super().draw(draft)
        for member in options["members"]:
            # Transactions that take longer than they may, and fetches that wait for more than
            # there is, would have to be waited for again and again.
            member["client"]["transaction_timeout_ms"] = source.choice((10_000, 60_000))
            wait = member["consumer"]["fetch_max_wait_ms"]
            member["consumer"]["fetch_max_wait_ms"] = min(wait, 2000)
            member["session"] = {
                "max_records": source.choice((1, 5, 1000)),
                "linger_ms": source.choice((0, 0, 50, 1000)),
                "retries": source.choice((0, 10)),
                "stop_timeout_ms": source.choice((0, 500, 5000)),
            }
            member["break_rate"] = source.choice((0, 0, 0.2))
            member["raise_rate"] = source.choice((0, 0, 0.1))
        return options

    def make_copiers(self, audience: Any) -> list[Copier]:
        """Its programs."""
        return [
            SessionCopier(self, audience, f"{self.plan.name} member {number}", options)
            for number, options in enumerate(self.options["members"])
        ]


class SessionCopier(Copier):
    """One program: a session, made again when it is over."""

    async def run(self) -> None:
        """Copy until all is copied."""
        while not self.pipeline.is_over():
            program = TransactionalProgram(self.world, self.caller, self.options)
            reading = Reading(self.world, self.caller.name, self.audience)
            consumer = self._make(self.options["consumer"], reading)
            try:
                await self.caller.call(
                    "session",
                    self._copy_all(program, consumer),
                    may_cancel=not self.world.turns[self.pipeline.rank].is_set(),
                )
            except (KafkaError, InterruptedCall, AllowedError):
                pass
            self._check_closed(program, consumer)
            await program.stop(None)
            await stop_consumer(self.caller, consumer, None)
            await self.pipeline.until_turn(self.caller.random.random() * 2)

    def _check_closed(self, program: TransactionalProgram, consumer: AIOKafkaConsumer) -> None:
        for client in (program.producer, consumer):
            state = client.health().state
            # Neither is touched if the other cannot be started.
            if state not in ("closed", "new"):
                text = f"{self.caller.name}: after the session {client!r} is {state}"
                self.world.violate("health", text)

    async def _copy_all(self, program: TransactionalProgram, consumer: AIOKafkaConsumer) -> None:
        session = TransactionalSession(consumer, program.producer, **self.options["session"])
        ending = asyncio.get_running_loop().create_task(self._end_later(session))
        try:
            async with session:
                async for transaction in session:
                    await self._copy_some_of(program, transaction)
        finally:
            ending.cancel()

    async def _end_later(self, session: TransactionalSession) -> None:
        stays = self.options["stays_s"]
        end = None if stays is None else self.world.now + 2 * stays * self.caller.random.random()
        while not self.pipeline.is_over():
            if end is not None and self.world.now > end and not self.world.calm.is_set():
                break
            await self.pipeline.until_turn(0.3)
        session.request_stop()

    async def _copy_some_of(
        self, program: TransactionalProgram, transaction: SessionTransaction
    ) -> None:
        known = Transaction(f"{self.caller.name} {len(self.world.history.transactions)}")
        self.world.history.transactions.append(known)
        known.outcome = "unknown"
        note = f"transaction {known.name} of {len(transaction.records)} records"
        self.world.note(self.caller.name, note)
        async with transaction as records:
            for record in records:
                if self._happens("break_rate"):
                    break
                if self._happens("raise_rate"):
                    raise AllowedError("the block raises on purpose")
                await self._copy_one(program, transaction, known, record)
        # The end of the block has raised if it is not known what became of it.
        known.outcome = "committed" if transaction.is_committed else "aborted"
        self.world.note(self.caller.name, note, known.outcome)

    def _happens(self, rate: str) -> bool:
        is_urgent = self.world.turns[self.pipeline.rank].is_set()
        return not is_urgent and self.caller.chance(self.options[rate])

    async def _copy_one(
        self,
        program: TransactionalProgram,
        transaction: SessionTransaction,
        known: Transaction,
        record: ConsumerRecord[Any, Any],
    ) -> None:
        if not self.world.turns[self.pipeline.rank].is_set():
            await self.caller.pause(self.options["work_s"])
        history = self.world.history
        sent = history.new_record(program.session, self.options["topic"], known)
        sent.copy_of = record.topic, record.partition, record.offset
        try:
            future = await transaction.send(sent.topic, value=value_of(sent, 20))
        except BaseException as error:
            sent.outcome, sent.error = "unsent", error
            raise
        history.follow(sent, future, program.delivery_timeout)
