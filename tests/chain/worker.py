"""One member of one hop: reads a topic, writes the next. ``python -m tests.chain.worker JSON``.

SIGTERM: finish and leave. SIGINT: cancel the work wherever it is, and begin as another member.
SIGUSR1: write all stacks of threads to stderr. SIGUSR2: those of tasks, and what is known of the
consumer's health.

Writes a line of JSON whenever the work ended: ``{"slot": ..., "ended": ..., "text": ...}``. All
that KafkaErrors do is to begin again, as a process supervisor would; other errors end the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import json
import logging
import random
import signal
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka._compat import timeout
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import CommitFailedError, KafkaError, ProducerFenced
from aiokafka.session import TransactionalSession
from tests.chain.options import MemberOptions

ASSIGNORS: dict[str, Any] = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}
TRANSACTION_TIMEOUT_MS = 6000
_WAIT_MS = 300
_PAUSE = 0.2


class Worker:
    """Works until it is told to leave, again and again from the start."""

    def __init__(self, options: MemberOptions) -> None:
        self._options = options
        self._stopping = asyncio.Event()
        self._work: asyncio.Task[None] | None = None
        self._clients: tuple[AIOKafkaConsumer | AIOKafkaProducer, ...] = ()
        self._session: TransactionalSession | None = None
        self._random = random.Random(options.seed)

    async def run(self) -> int:
        """Exit code: 0 when told to leave, 3 when another process has taken our place."""
        self._listen_to_signals()
        while not self._stopping.is_set():
            ended = await self._work_once()
            if ended == ProducerFenced.__name__:
                return 3
            with contextlib.suppress(asyncio.TimeoutError):
                async with timeout(_PAUSE):
                    await self._stopping.wait()
        return 0

    def _listen_to_signals(self) -> None:
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        loop = asyncio.get_running_loop()
        handlers: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGTERM: self._stop,
            signal.SIGINT: self._cancel,
            signal.SIGUSR2: self._describe,
        }
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)

    def _stop(self) -> None:
        self._stopping.set()
        if self._session is not None:
            self._session.request_stop()

    def _cancel(self) -> None:
        if self._work is not None:
            self._work.cancel()

    def _describe(self) -> None:
        for client in self._clients:
            health = getattr(client, "health", None)
            print(client, health() if health else "", file=sys.stderr)
            if isinstance(client, AIOKafkaConsumer):
                print("assignment:", sorted(client.assignment()), file=sys.stderr)
        for task in asyncio.all_tasks():
            task.print_stack(file=sys.stderr)
        sys.stderr.flush()

    async def _work_once(self) -> str:
        self._work = asyncio.create_task(self._with_clients())
        await asyncio.wait({self._work})
        self._session = None
        if self._work.cancelled():
            ended, text = "cancelled", ""
        else:
            error = self._work.exception()
            ended, text = type(error).__name__ if error else "finished", str(error or "")
            if error is not None and not isinstance(error, KafkaError):
                logging.error("The work ended", exc_info=error)
                self.tell("crashed", repr(error))
                raise error
            if error is not None:
                logging.warning("The work ended", exc_info=error)
        self.tell(ended, text)
        return ended

    def tell(self, ended: str, text: str = "") -> None:
        """A line for the supervisor."""
        line = {"slot": self._options.slot, "ended": ended, "text": text[:500]}
        print(json.dumps(line), flush=True)

    async def _with_clients(self) -> None:
        producer, consumer = producer_of(self._options), consumer_of(self._options)
        self._clients = (consumer, producer)
        if self._options.mode == "session":
            limit = self._options.max_records
            async with TransactionalSession(consumer, producer, max_records=limit) as session:
                self._session = session
                if self._stopping.is_set():
                    return
                await process(self, session)
            return
        # The producer first: after that, earlier owners of its transactional id commit nothing.
        async with producer, consumer:
            await WORK[self._options.mode](self, consumer, producer)

    # -- what the kinds of work share

    @property
    def options(self) -> MemberOptions:
        return self._options

    async def batches(self, consumer: AIOKafkaConsumer) -> AsyncIterator[Any]:
        """What `getmany` gives, until it is time to leave. Now and then a call is cancelled: it has
        taken nothing then."""
        while not self._stopping.is_set():
            found = {}
            limit = self._random.random() * 0.02 if self._random.random() < 0.05 else None
            with contextlib.suppress(asyncio.TimeoutError):
                async with timeout(limit):
                    found = await consumer.getmany(
                        timeout_ms=_WAIT_MS, max_records=self._options.max_records
                    )
            if found:
                yield found

    async def linger(self) -> None:
        """Work that takes long, now and then."""
        if self._random.random() < 0.3:
            await asyncio.sleep(self._random.random() * 0.4)


async def copy(worker: Worker, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer) -> None:
    """At least once: commit what was acknowledged."""
    async for found in worker.batches(consumer):
        futures = [
            await producer.send(worker.options.target, record.value, record.key)
            for records in found.values()
            for record in records
        ]
        for future in futures:
            await future
        await worker.linger()
        try:
            await consumer.commit()
        except CommitFailedError as error:
            worker.tell("commit failed", str(error))


async def transact(worker: Worker, consumer: AIOKafkaConsumer, producer: AIOKafkaProducer) -> None:
    """Exactly once: records and offsets in one transaction."""
    async for found in worker.batches(consumer):
        async with producer.transaction():
            for records in found.values():
                for record in records:
                    await producer.send(worker.options.target, record.value, record.key)
            await worker.linger()
            offsets = {tp: records[-1].offset + 1 for tp, records in found.items()}
            await producer.send_offsets_to_transaction(offsets, worker.options.group)


async def process(worker: Worker, session: TransactionalSession) -> None:
    """Exactly once, in a session."""
    async for transaction in session:
        async with transaction as records:
            for record in records:
                await transaction.send(worker.options.target, record.value, record.key)
            await worker.linger()


WORK = {"loop": copy, "plain": transact}


def consumer_of(options: MemberOptions) -> AIOKafkaConsumer:
    extra: dict[str, Any] = {}
    if options.protocol != "classic":
        extra = {"group_protocol": options.protocol, "group_remote_assignor": options.assignor}
    else:
        extra = {
            "partition_assignment_strategy": [ASSIGNORS[options.assignor]],
            "session_timeout_ms": options.session_timeout_ms,
            "heartbeat_interval_ms": options.session_timeout_ms // 10,
        }
    consumer = AIOKafkaConsumer(
        bootstrap_servers=options.servers,
        client_id=options.slot,
        group_id=options.group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_uncommitted" if options.mode == "loop" else "read_committed",
        **extra,
    )
    if options.partitions:
        consumer.assign([TopicPartition(options.source, number) for number in options.partitions])
    else:
        consumer.subscribe([options.source])
    return consumer


def producer_of(options: MemberOptions) -> AIOKafkaProducer:
    extra: dict[str, Any] = {}
    if options.mode != "loop":
        extra = {
            "transactional_id": options.transactional_id,
            "transaction_timeout_ms": TRANSACTION_TIMEOUT_MS,
        }
    return AIOKafkaProducer(bootstrap_servers=options.servers, client_id=options.slot, **extra)


async def main(text: str) -> int:
    return await Worker(MemberOptions.from_json(text)).run()


if __name__ == "__main__":
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    sys.exit(asyncio.run(main(sys.argv[1])))
