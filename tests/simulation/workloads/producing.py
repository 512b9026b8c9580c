"""Producers without transactions, with every option that matters."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from aiokafka import AIOKafkaProducer, _clock
from aiokafka.errors import KafkaError
from tests.simulation.calls import Caller, InterruptedCall
from tests.simulation.contexts import arguments_of
from tests.simulation.history import ProducerSession, Sent, Transaction, value_of
from tests.simulation.intercepting import slowness
from tests.simulation.scenario import Draft
from tests.simulation.sends import Sends
from tests.simulation.workloads.accounts import RoomWatch
from tests.simulation.workloads.base import (
    FIRST_WITH_PRODUCER_IDS,
    Workload,
    draw_client_options,
)

if TYPE_CHECKING:
    from tests.simulation.world import World

_FIRST_ZSTD = (2, 1)
_STYLES = ("send", "send", "wait", "together", "batch", "mixed")


Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""


class ProducerWorkload(Workload):
    """One producer, made again whenever it cannot go on."""

    kind = "producer"
    rank = 0

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any]:
        """A topic of its own, or that of another producer."""
        source = draft.random
        shared = [w.options["topic"] for w in draft.workloads if w.kind == cls.kind]
        topic = source.choice(shared) if shared and source.random() < 0.3 else None
        client = draw_producer_options(draft)
        return {
            "topic": topic or draft.new_topic(config=draw_topic_config(draft)).name,
            "client": client,
            "style": source.choice(_STYLES),
            "records": source.choice((5, 10, 20, 40, 100)),
            "sizes": source.choice(([8, 8], [8, 40], [100, 100], [8, 1500])),
            "keys": source.choice((0, 0, 1, 5)),
            "to_partition": source.random() < 0.2,
            "flush_rate": source.choice((0, 0, 0.05, 0.3)),
            "cancel_rate": source.choice((0, 0, 0, 0.05, 0.3)),
            "stop_s": source.choice((None, None, 0, 1.0)),
            "restart_rate": source.choice((0, 0, 0, 0.02)),
            "headers": source.random() < 0.3,
        }

    async def run(self) -> None:
        """Send until all is calm, then see that sending works."""
        options = self.options
        caller = Caller(self.world, self.plan.name, options["cancel_rate"])
        pace = self.world.scenario.active_s / options["records"]
        left = options["records"]
        while not self.world.calm.is_set():
            program = ProducerProgram(self.world, caller, options)
            if not await program.start():
                await self.world.until_calm(1.0)
                continue
            while left > 0 and not self.world.calm.is_set() and program.is_usable:
                left -= await program.act()
                if caller.chance(options["restart_rate"]):
                    break
                await self.world.until_calm(caller.random.expovariate(1 / pace))
            if left <= 0:
                await self.world.calm.wait()
            if self.world.calm.is_set():
                await self._see_that_it_goes_on(program)
            await program.stop(None if self.world.calm.is_set() else options["stop_s"])
        await self._see_that_it_works(caller)

    async def _see_that_it_goes_on(self, program: ProducerProgram) -> None:
        """What was there during the faults has to be of use again, too."""
        deadline = self.world.now + self.recovery_s
        while program.is_usable:
            sent = await program.send_and_wait()
            if sent.outcome == "acknowledged":
                return
            if self.world.now > deadline:
                text = f"{program.caller.name}: does not recover: {program.last_error!r}"
                self.world.violate("no recovery", text)
                return
            await asyncio.sleep(1.0)

    async def _see_that_it_works(self, caller: Caller) -> None:
        caller = Caller(self.world, caller.name + " at the end")
        deadline = self.world.calm_at + self.recovery_s
        while True:
            program = ProducerProgram(self.world, caller, self.options)
            sent = None
            if await program.start():
                sent = await program.send_and_wait()
                await program.stop(None)
            if sent is not None and sent.outcome == "acknowledged":
                return
            if self.world.now > deadline:
                last = program.last_error
                text = f"{caller.name}: cannot send although all faults are over: {last!r}"
                self.world.violate("no recovery", text)
                return
            await asyncio.sleep(1.0)


class ProducerProgram:
    """One producer object and what is done with it."""

    def __init__(self, world: World, caller: Caller, options: dict[str, Any]) -> None:
        self.world = world
        self.caller = caller
        self.options = options
        client = options["client"]
        arguments = arguments_of(caller, client)
        if options.get("interceptors"):
            arguments = arguments | Sends(caller, options["interceptors"]).arguments
        self.producer = AIOKafkaProducer(
            bootstrap_servers=world.bootstrap, client_id=caller.name, **arguments
        )
        self.session = ProducerSession(
            caller.name,
            acks=client.get("acks", "all"),
            idempotent=client.get("enable_idempotence", False) or "transactional_id" in client,
        )
        self.is_usable = True
        self.last_error: BaseException | None = None
        self.transaction: Transaction | None = None
        self._room: RoomWatch | None = None

    def _limit(self, name: str, default: float) -> float:
        return float(self.options["client"].get(name, default)) / 1000

    @property
    def request_timeout(self) -> float:
        """In seconds, as all of these."""
        return self._limit("request_timeout_ms", 40_000)

    @property
    def max_block(self) -> float:
        """How long `send` may wait."""
        return self._limit("max_block_ms", 60_000)

    @property
    def delivery_timeout(self) -> float:
        """How long a delivery may take."""
        return self._limit("delivery_timeout_ms", 120_000)

    async def start(self) -> bool:
        """Start the producer; whether it worked."""
        # To connect, and then for the first producer id.
        limit = self.request_timeout + max(self.max_block, self.request_timeout)
        try:
            await self.caller.call("start", self.producer.start(), limit=limit)
        except (KafkaError, InterruptedCall) as error:
            self.last_error = error
            self.is_usable = False
            self._check_released()
            return False
        if memory := self.options["client"].get("buffer_memory"):
            in_order = not self.options.get("interceptors")
            self._room = RoomWatch(
                self.world, self.caller.name, self.producer, memory, is_in_order=in_order
            )
        return True

    async def stop(self, timeout: float | None) -> None:
        """Stop the producer, again if that was cancelled, and see that it holds nothing."""
        limit = self.delivery_timeout if timeout is None else timeout
        if timeout is None and "transactional_id" in self.options["client"]:
            # To abort an open transaction, which a throttled connection delays.
            limit += self._limit("transaction_timeout_ms", 60_000)
        for _ in range(20):
            try:
                await self.caller.call(
                    f"stop({timeout})", self.producer.stop(timeout), limit=limit + self.max_block
                )
                break
            except (KafkaError, InterruptedCall) as error:
                self.last_error = error
        else:
            await self.producer.stop(0)
        self._check_released()

    def _check_released(self) -> None:
        if self._room is not None:
            self._room.close()
        free = self.producer.buffer_available_bytes
        memory = self.options["client"].get("buffer_memory", 33_554_432)
        name = self.caller.name
        if free != memory:
            self.world.violate("memory", f"{name}: {memory - free} bytes are not given back")
        left = [sent for future, sent in self._open_futures().items() if not future.done()]
        if left:
            self.world.violate("open futures", f"{name}: stopped, but {left[:3]!r} are open")
        health = self.producer.health()
        # One that did not find the cluster may start again, and so is as good as new.
        if health.state not in ("closed", "new") or health.pending:
            self.world.violate("health", f"{name}: after stop {health!r}")

    # -- one step of the program

    async def act(self) -> int:
        """Do something, as its style wants; returns how many records that took."""
        style = self.options["style"]
        caller = self.caller
        if style == "mixed":
            style = caller.random.choice(("send", "wait", "together", "batch"))
        if caller.chance(self.options["flush_rate"]):
            await self.flush()
        if style == "wait":
            await self.send_and_wait()
            return 1
        if style == "crowd":
            return await self._send_crowd(self.options["crowd"], self.options["largest"])
        count = 1 if style == "send" else caller.random.choice((2, 5, 10))
        if style == "batch":
            await self.send_batch(count)
        elif style == "together":
            await asyncio.gather(*[self.send_and_wait() for _ in range(count)])
        else:
            await self.send()
        return count

    async def _send_crowd(self, count: int, largest: int) -> int:
        """A record that takes nearly all memory, and many small ones that wait behind it."""
        calls = [self.send_and_wait() for _ in range(count)]
        await asyncio.gather(self.send_and_wait(size=largest), *calls)
        return count + 1

    def _sending(self, size: int) -> AbstractContextManager[None]:
        return nullcontext() if self._room is None else self._room.sending(size)

    def _arguments(self, sent: Sent, size: int | None) -> dict[str, Any]:
        source = self.caller.random
        low, high = self.options["sizes"]
        if size is None:
            size = source.randint(low, high)
        arguments: dict[str, Any] = {"value": value_of(sent, size)}
        if self.options["keys"]:
            arguments["key"] = b"key %d" % source.randrange(self.options["keys"])
        if self.options["to_partition"]:
            arguments["partition"] = 0
        if self.options.get("headers") and source.random() < 0.5:
            sent.headers = (("number", b"%d" % sent.number), ("none", None))
            form = source.choice((list, tuple, iter))
            arguments["headers"] = form(sent.headers)
        if self.options.get("headers") and source.random() < 0.3:
            sent.timestamp = int(1000 * _clock.wall_time()) - sent.number
            arguments["timestamp_ms"] = sent.timestamp
        return arguments

    async def send(self, copy_of: Place | None = None, *, size: int | None = None) -> Sent:
        """Send a record, without waiting for its delivery."""
        sent = self.world.history.new_record(self.session, self.options["topic"], self.transaction)
        sent.copy_of = copy_of
        arguments = self._arguments(sent, size)
        call = self.producer.send(sent.topic, **arguments)
        try:
            with self._sending(len(arguments["value"])):
                future = await self.caller.call(
                    f"send record {sent.number}",
                    call,
                    limit=self.max_block + slowness(self.options),
                )
        except (KafkaError, InterruptedCall) as error:
            sent.outcome, sent.error = "unsent", error
            self._met(error)
            return sent
        self.world.history.follow(sent, future, self.delivery_timeout)
        return sent

    async def send_and_wait(self, *, size: int | None = None) -> Sent:
        """Send a record and wait until it is delivered or not."""
        sent = await self.send(size=size)
        future = sent.future
        if future is None:
            return sent
        try:
            # As `send_and_wait` does, but the history needs the future.
            await self.caller.call(
                f"wait for record {sent.number}", asyncio.wait([future]), limit=None
            )
        except InterruptedCall:
            return sent
        self.world.history.ended(sent, future)
        if sent.error is not None:
            self._met(sent.error)
        return sent

    async def send_batch(self, count: int) -> None:
        """Send some records as one batch, which the program builds."""
        source = self.caller.random
        history = self.world.history
        topic = self.options["topic"]
        builder = self.producer.create_batch()
        records = []
        for _ in range(count):
            size = source.randint(*self.options["sizes"])
            sent = history.new_record(self.session, topic, self.transaction)
            value = value_of(sent, size)
            if builder.append(timestamp=None, key=None, value=value) is None:
                sent.outcome = "unsent"
                break
            records.append(sent)
        if not records:
            return
        numbers = [record.number for record in records]
        partition = source.randrange(self.world.scenario.topic(topic).partitions)
        call = self.producer.send_batch(builder, topic, partition=partition)
        try:
            with self._sending(builder.size()):
                future = await self.caller.call(
                    f"send_batch of records {numbers}", call, limit=self.max_block
                )
        except (KafkaError, InterruptedCall) as error:
            for record in records:
                record.outcome, record.error = "unsent", error
            self._met(error)
            return
        records[0].companions = records[1:]
        history.follow(records[0], future, self.delivery_timeout)

    async def flush(self) -> None:
        """Wait until all is delivered."""
        timeout = self.caller.random.choice((None, None, 0, 1.0))
        limit = self.delivery_timeout if timeout is None else timeout
        before = self._open_futures()
        may_fail = self.caller.may_fail
        # Where records linger, or the brokers are slow, it raises that it did not wait for all.
        self.caller.may_fail = may_fail or timeout is not None
        try:
            await self.caller.call(f"flush({timeout})", self.producer.flush(timeout), limit=limit)
        except (KafkaError, InterruptedCall) as error:
            self._met(error)
            return
        finally:
            self.caller.may_fail = may_fail
        left = [sent for future, sent in before.items() if not future.done()]
        if left:
            self.world.violate("flushed", f"{self.caller.name}: flush ended before {left[:3]!r}")

    def _open_futures(self) -> dict[asyncio.Future[Any], Sent]:
        opened = self.world.history.open_futures
        return {future: sent for future, sent in opened.items() if sent.session is self.session}

    def _met(self, error: BaseException) -> None:
        self.last_error = error
        if self.producer.health().state in ("failed", "closed"):
            self.is_usable = False


def draw_topic_config(draft: Draft) -> dict[str, str]:
    """Settings for a topic that is written to."""
    source = draft.random
    config = {}
    if source.random() < 0.2:
        config["min.insync.replicas"] = "2"
    if source.random() < 0.1:
        config["message.timestamp.type"] = "LogAppendTime"
    if source.random() < 0.1:
        config["max.message.bytes"] = "1000"
    return config


def draw_producer_options(draft: Draft) -> dict[str, Any]:
    """Keywords for AIOKafkaProducer."""
    source = draft.random
    options = draw_client_options(draft)
    linger = source.choice((0, 0, 0, 5, 100, 500))
    codecs = [None, None, "gzip", "snappy", "lz4"]
    if draft.cluster.number >= _FIRST_ZSTD:
        codecs.append("zstd")
    acks = source.choice(("all", "all", "all", "all", 1, 0))
    options |= {
        "linger_ms": linger,
        "compression_type": source.choice(codecs),
        "max_batch_size": source.choice((200, 1000, 16_384, 16_384)),
        "max_in_flight_requests_per_connection": source.choice((1, 2, 5, 5)),
        "acks": acks,
        "enable_idempotence": acks == "all"
        and draft.cluster.number >= FIRST_WITH_PRODUCER_IDS
        and source.random() < 0.85,
        "max_block_ms": source.choice((500, 5000, 60_000)),
    }
    shortest = linger + options["request_timeout_ms"]
    options["delivery_timeout_ms"] = shortest + source.choice((0, 1000, 10_000, 60_000))
    if source.random() < 0.2:
        options["buffer_memory"] = source.choice((2000, 5000, 20_000))
    return options
