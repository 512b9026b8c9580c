"""Heartbeats of the next-generation protocol that get no response, and arrive all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import (
    FencedMemberEpoch,
    NotCoordinatorForGroupError,
    UnreleasedInstanceId,
)
from aiokafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataResponse
from aiokafka.testing import Cut, Delay, Edit, Fail, FakeCluster, Hold
from aiokafka.testing.actions import Action
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumer_protocol import CONFIG, OPTIONS, beats, shares
from tests.support.consumers import T0, Start
from tests.support.groups import Log, until

U0 = TopicPartition("u", 0)


@pytest.mark.parametrize("handled", [True, False])
async def test_a_static_member_joins_again_after_no_response(start: Start, handled: bool) -> None:
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        cluster.intercept(ConsumerGroupHeartbeatRequest, Cut(handled=handled), times=2)
        consumer = await start(cluster, "t", group_instance_id="me", **OPTIONS)
        await until(cluster, lambda: shares(consumer) == [4])
        # The name is still taken, for others.
        with pytest.raises(UnreleasedInstanceId):
            await start(cluster, "t", group_instance_id="me", **OPTIONS)
        assert shares(consumer) == [4]


@pytest.mark.parametrize("lost", [Cut(), Delay(4, Cut())], ids=["cut", "silence"])
def test_a_static_member_joins_again_after_a_goodbye_without_a_response(lost: Action) -> None:
    """The coordinator counts it still, and would refuse it its own name."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster(config=CONFIG) as cluster:
            await cluster.create_topic("t", partitions=4)
            async with AIOKafkaConsumer(
                "t", bootstrap_servers=cluster.bootstrap_servers, group_instance_id="me", **OPTIONS
            ) as consumer:
                refusals = cluster.intercept(
                    ConsumerGroupHeartbeatRequest,
                    lambda request, _: lost if request.member_epoch < 0 else None,
                )
                consumer.unsubscribe()
                await refusals.wait()
                refusals.remove()
                # Simulated time, in which a goodbye is given up.
                await asyncio.sleep(5)
                consumer.subscribe(["t"])
                await until(cluster, lambda: shares(consumer) == [4])

    simulate(main, limit_s=60)


async def test_a_static_member_of_an_epoch_that_is_over_joins_again(start: Start) -> None:
    """The coordinator has not removed it."""
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        log = Log()
        consumer = await start(cluster, group_instance_id="me", **OPTIONS)
        consumer.subscribe(["t"], listener=log)
        await until(cluster, lambda: shares(consumer) == [4])
        cluster.intercept(ConsumerGroupHeartbeatRequest, Fail(FencedMemberEpoch), times=1)
        await until(cluster, lambda: len(log.calls) == 3)
        assert [call for call, _ in log.calls] == ["assigned", "lost", "assigned"]
        assert shares(consumer) == [4]


async def test_a_join_that_comes_behind_the_next_one(start: Start) -> None:
    """The coordinator assigns in a response that is lost, and would not say it again."""
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        first = await start(cluster, "t", **OPTIONS)
        await until(cluster, lambda: shares(first) == [4])
        released, let_go, was_handled = asyncio.Event(), asyncio.Event(), asyncio.Event()
        joins: list[ConsumerGroupHeartbeatRequest] = []

        def hold(request: ConsumerGroupHeartbeatRequest, context: Any) -> Any:
            if context.client_id != "second":
                return None
            if request.member_epoch:
                return Hold(released)
            joins.append(request)
            return Hold(let_go, Edit(lambda _: was_handled.set())) if len(joins) == 1 else None

        cluster.intercept(ConsumerGroupHeartbeatRequest, hold)
        second = await start(cluster, "t", client_id="second", request_timeout_ms=300, **OPTIONS)
        # The first one gives up what is the second's, and says so.
        await until(cluster, lambda: len(first.assignment()) == 2)
        count = len(beats(cluster))
        await until(cluster, lambda: len(beats(cluster)) > count + 2)
        assert not second.assignment()
        let_go.set()
        await was_handled.wait()
        released.set()
        await until(cluster, lambda: shares(first, second) == [2, 2])


class Slow(Log):
    """A listener that takes its time when it hears of partitions, if there are any."""

    def __init__(self) -> None:
        super().__init__()
        self.is_at_work, self.goes_on = asyncio.Event(), asyncio.Event()

    async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:  # type: ignore[override]
        super().on_partitions_assigned(assigned)
        if assigned:
            self.is_at_work.set()
            await self.goes_on.wait()


async def check_nothing_is_given_up(
    cluster: FakeCluster, log: Slow, first: AIOKafkaConsumer, second: AIOKafkaConsumer
) -> None:
    """The second member gets its share once the listener of the first has returned."""
    count = len(beats(cluster))
    await until(cluster, lambda: len(beats(cluster)) > count + 6)
    assert not second.assignment()
    log.goes_on.set()
    await until(cluster, lambda: shares(first, second) == [2, 2])
    assert [call for call, _ in log.calls] == ["assigned", "revoked", "assigned"]


async def test_what_a_listener_works_on_is_not_given_up(start: Start) -> None:
    """Told everything again, the coordinator would assign to others what is left out."""
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        log = Slow()
        first = await start(cluster, **OPTIONS)
        first.subscribe(["t"], listener=log)
        await log.is_at_work.wait()
        refusals = cluster.intercept(
            ConsumerGroupHeartbeatRequest, Fail(NotCoordinatorForGroupError)
        )
        await until(cluster, lambda: refusals.hits)
        refusals.remove()
        second = await start(cluster, "t", client_id="second", **OPTIONS)
        await check_nothing_is_given_up(cluster, log, first, second)


class Names:
    """Brokers that do not know a topic, for the client "first", until they are to."""

    def __init__(self, topic_id: bytes) -> None:
        self.are_known = False
        self.refused = 0
        self._topic_id = topic_id

    def __call__(self, request: MetadataRequest, context: Any) -> Action | None:
        is_hidden = context.client_id == "first" and not self.are_known
        return Edit(self._hide) if is_hidden else None

    def _hide(self, response: MetadataResponse) -> None:
        known = [topic for topic in response.topics if topic.topic_id != self._topic_id]
        self.refused += known != response.topics
        response.topics = known


@pytest.mark.parametrize("arrives", ["late", "never"])
@pytest.mark.parametrize("instance_id", [None, "me"])
async def test_a_goodbye_that_comes_behind_the_next_join(
    start: Start, instance_id: str | None, arrives: str
) -> None:
    """It does not remove the member that has joined again."""
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        let_go, was_handled = asyncio.Event(), asyncio.Event()
        if arrives == "late":
            stray: Action = Hold(let_go, Edit(lambda _: was_handled.set()))
        else:
            stray = Hold(let_go, Cut())
            was_handled.set()
        goodbyes: list[ConsumerGroupHeartbeatRequest] = []

        def hold(request: ConsumerGroupHeartbeatRequest, context: Any) -> Any:
            if request.member_epoch >= 0:
                return None
            goodbyes.append(request)
            return stray if len(goodbyes) == 1 else None

        cluster.intercept(ConsumerGroupHeartbeatRequest, hold)
        options = {**OPTIONS, "group_instance_id": instance_id}
        consumer = await start(cluster, "t", request_timeout_ms=300, **options)
        await until(cluster, lambda: shares(consumer) == [4])
        consumer.unsubscribe()
        await until(cluster, lambda: goodbyes)
        log = Log()
        consumer.subscribe(["t"], listener=log)
        await until(cluster, lambda: shares(consumer) == [4])
        let_go.set()
        await was_handled.wait()
        count = len(beats(cluster))
        await until(cluster, lambda: len(beats(cluster)) > count + 2)
        assert [call for call, _ in log.calls] == ["assigned"]
        assert len(cluster.groups.consumer["g"].members) == 1
        assert shares(consumer) == [4]


async def test_a_member_whose_epoch_is_refused_comes_back_though_it_is_still_counted(
    start: Start,
) -> None:
    """Brokers refuse the epoch of a join, too, from a member that they count (KAFKA-19233)."""
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        consumer = await start(cluster, "t", **OPTIONS)
        await until(cluster, lambda: shares(consumer) == [4])
        group = cluster.groups.consumer["g"]

        refused: list[str] = []

        def refuse(request: ConsumerGroupHeartbeatRequest, context: Any) -> Any:
            if request.member_epoch or request.member_id not in group.members:
                return None
            refused.append(request.member_id)
            return Fail(FencedMemberEpoch)

        cluster.intercept(ConsumerGroupHeartbeatRequest, refuse)
        cluster.groups.fence("g", consumer.group_metadata().member_id)
        await until(cluster, lambda: refused)
        # The session would end much later.
        await until(cluster, lambda: shares(consumer) == [4])
        assert len(group.members) == 1


async def test_a_fenced_member_comes_back_at_a_later_epoch(start: Start) -> None:
    """At its former one, offsets of a transaction that arrive late would be taken."""
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        consumer, log = await start(cluster, **OPTIONS), Log()
        consumer.subscribe(["t"], listener=log)
        await until(cluster, lambda: shares(consumer) == [4])
        before = consumer.group_metadata()
        cluster.groups.fence("g", before.member_id)
        await until(cluster, lambda: "lost" in dict(log.calls) and shares(consumer) == [4])
        after = consumer.group_metadata()
        assert after.member_id == before.member_id
        assert after.generation_id > before.generation_id


async def test_what_was_assigned_a_moment_ago_is_not_given_up(start: Start) -> None:
    """The response took longer than an interval, so that the next heartbeat is due with it. That
    one says everything, for an earlier join had no response."""
    async with FakeCluster(config=CONFIG) as cluster:
        await cluster.create_topic("t", partitions=4)
        is_due, released = asyncio.Event(), asyncio.Event()
        answers: list[Action | None] = [Cut(), Delay(0.1), Hold(released)]

        def answer(request: ConsumerGroupHeartbeatRequest, context: Any) -> Any:
            if context.client_id != "first" or not answers:
                return None
            if len(answers) == 1:
                is_due.set()
            return answers.pop(0)

        cluster.intercept(ConsumerGroupHeartbeatRequest, answer)
        log = Slow()
        first = await start(cluster, client_id="first", **OPTIONS)
        first.subscribe(["t"], listener=log)
        await is_due.wait()
        second = await start(cluster, "t", client_id="second", **OPTIONS)
        released.set()
        await log.is_at_work.wait()
        await check_nothing_is_given_up(cluster, log, first, second)


async def test_a_topic_whose_name_comes_late_may_be_another_members_by_then(start: Start) -> None:
    """Its partition was left out of a heartbeat whose response is lost: the coordinator takes it
    for given up, and assigns it to another member. It is not taken over on an older word."""
    async with FakeCluster(config=CONFIG) as cluster:
        for name in ("t", "u"):
            await cluster.create_topic(name)
        unknown = cluster.state.topics["u"].topic_id
        answered, names = asyncio.Event(), Names(unknown)
        cluster.intercept(MetadataRequest, names)
        # From here on each heartbeat says everything: the first one may arrive again.
        cluster.intercept(ConsumerGroupHeartbeatRequest, Cut(), times=1)
        first = await start(cluster, "t", client_id="first", **OPTIONS)
        log = Log()
        first.subscribe(["t", "u"], listener=log)
        await until(cluster, lambda: names.refused)
        second = await start(cluster, client_id="second", **OPTIONS)
        second.subscribe(["u"])
        await until(cluster, lambda: len(cluster.groups.consumer["g"].members) == 2)
        lost: list[ConsumerGroupHeartbeatRequest] = []

        def lose(request: ConsumerGroupHeartbeatRequest, context: Any) -> Action | None:
            if context.client_id != "first":
                return None
            if lost:
                return Hold(answered)
            if unknown not in {topic.topic_id for topic in request.topic_partitions or ()}:
                lost.append(request)
                return Cut(handled=True)
            return None

        cluster.intercept(ConsumerGroupHeartbeatRequest, lose)
        await until(cluster, lambda: second.assignment() == {U0})
        names.are_known = True
        # Simulated time, in which the name is asked for again.
        await asyncio.sleep(2)
        assert first.assignment() == {T0}
        answered.set()
        count = len(beats(cluster))
        await until(cluster, lambda: len(beats(cluster)) > count + 6)
        assert [first.assignment(), second.assignment()] == [{T0}, {U0}]
        assert all(call == "assigned" for call, _ in log.calls)
