"""Calls that cannot succeed, or that wait while another task stops the client."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.testing import Action, Delay, Interception, RequestContext, Silence
from tests.simulation.calls import Caller, InterruptedCall
from tests.simulation.scenario import Draft
from tests.simulation.workloads.base import Workload, draw_client_options

# Seconds after the end of stop() in which a call that waits must have ended.
_SOON = 0.5
_NOWHERE = "no-such-topic"
_STOP_S = 5.0
_JOINING = (11, 68)


class OddWorkload(Workload):
    """Producers and consumers, each for one odd thing only."""

    kind = "odd"
    rank = 0

    @classmethod
    def draw(cls, draft: Draft) -> dict[str, Any]:
        """How long calls may wait."""
        source = draft.random
        client = draw_client_options(draft)
        client["request_timeout_ms"] = min(client["request_timeout_ms"], 5000)
        # Else brokers make the topic that is not there.
        draft.cluster.settings["auto.create.topics.enable"] = "false"
        return {
            "topic": draft.new_topic(config={}).name,
            "client": client,
            "max_block_ms": source.choice((500, 3000, 20_000)),
            "patience_s": source.choice((0.01, 0.3, 1.0)),
        }

    async def run(self) -> None:
        """One after the other, until it is calm."""
        caller = Caller(self.world, self.plan.name)
        caller.may_fail = True
        acts = (self._send_nowhere, self._stop_a_send, self._stop_a_start)
        while True:
            await caller.random.choice(acts)(caller)
            if await self.world.until_calm(caller.random.random()):
                break

    def _answer(
        self, caller: Caller, api: int, action: Action, times: int | None = None
    ) -> Interception:
        """Answer requests of these clients in this way: others have had no fault."""

        def answer(_: Any, context: RequestContext) -> Action | None:
            return action if context.client_id == caller.name else None

        return self.world.cluster.intercept(api, answer, times=times)

    def _producer(self, caller: Caller) -> AIOKafkaProducer:
        return AIOKafkaProducer(
            bootstrap_servers=self.world.bootstrap,
            client_id=caller.name,
            max_block_ms=self.options["max_block_ms"],
            **self.options["client"],
        )

    async def _send_nowhere(self, caller: Caller) -> None:
        """To a topic or a partition that is not there: ends in an error, in time."""
        producer = self._producer(caller)
        limit = self.options["max_block_ms"] / 1000
        try:
            await caller.call("start", producer.start())
            await caller.call("partitions", producer.partitions_for(self.options["topic"]))
            for topic, partition in ((_NOWHERE, None), (self.options["topic"], 77)):
                call = producer.send(topic, b"%08d" % 0, partition=partition)
                times = caller.random.choice((1, 20))
                slow = self._answer(caller, 3, Silence(), times=times)
                try:
                    await caller.call(f"send to {topic} {partition}", call, limit=limit)
                except KafkaError:
                    continue
                finally:
                    slow.remove()
                if partition is not None or topic not in self.world.cluster.state.topics:
                    self.world.violate("sent nowhere", f"{caller.name}: {topic} {partition}")
        except (KafkaError, InterruptedCall):
            pass
        await producer.stop(0)

    async def _stop_a_send(self, caller: Caller) -> None:
        """A send() that waits ends as soon as stop() begins, however long that takes."""
        producer = self._producer(caller)
        undeliverable = self._answer(caller, 0, Silence())
        try:
            await caller.call("start", producer.start())
            call = producer.send(self.options["topic"], b"%08d" % -1)
            future = await caller.call("send", call)
            future.add_done_callback(lambda each: each.cancelled() or each.exception())
        except (KafkaError, InterruptedCall):
            undeliverable.remove()
            await producer.stop(0)
            return
        place = caller.random.choice(((_NOWHERE, None), (self.options["topic"], 77)))
        call = producer.send(place[0], b"%08d" % 0, partition=place[1])
        # Else it would soon know that there is no such place.
        with self._answer(caller, 3, Silence()):
            await self._stop_beside(caller, "send", call, producer.stop(_STOP_S))
        undeliverable.remove()

    async def _stop_a_start(self, caller: Caller) -> None:
        """The same of start(), of a consumer that is alone or joins a group that takes its time."""
        group = caller.random.choice((None, f"group of {caller.name}"))
        consumer = self._consumer(caller, group)
        slow = [self._answer(caller, api, Delay(3.0), times=1) for api in _JOINING]
        await self._stop_beside(caller, "start", consumer.start(), consumer.stop(_STOP_S))
        for interception in slow:
            interception.remove()

    def _consumer(self, caller: Caller, group: str | None) -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            self.options["topic"],
            bootstrap_servers=self.world.bootstrap,
            client_id=caller.name,
            group_id=group,
            max_poll_interval_ms=60_000,
            **self.options["client"],
        )

    async def _stop_beside(self, caller: Caller, what: str, call: Any, stop: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._await(caller, what, call))
        await caller.pause(self.options["patience_s"])
        stopping = asyncio.get_running_loop().create_task(self._stop(caller, stop))
        if what != "send":
            await asyncio.wait([stopping])
        _, left = await asyncio.wait([task], timeout=_SOON + self.world.stalled)
        if left:
            self.world.violate("outlives stop", f"{caller.name}: {what} goes on after stop()")
            task.cancel()
            await asyncio.wait([task])
        await asyncio.wait([stopping])

    async def _stop(self, caller: Caller, stop: Any) -> None:
        try:
            await caller.call("stop", stop, limit=_STOP_S)
        except (KafkaError, InterruptedCall):
            pass

    async def _await(self, caller: Caller, what: str, call: Any) -> None:
        try:
            await call
        except Exception as error:
            self.world.note(caller.name, what, f"raised {error!r}")
