"""Rebalance listeners: when they are called, and what they may call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Set
from contextlib import suppress
from typing import Any

import pytest

from aiokafka import (
    AIOKafkaConsumer,
    AsyncConsumerRebalanceListener,
    ConsumerRebalanceListener,
    TopicPartition,
)
from aiokafka._compat import timeout
from aiokafka.coordinator.assignors.cooperative import CooperativeStickyAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import IllegalStateError, KafkaError, TopicAuthorizationFailedError
from aiokafka.testing import FakeCluster
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumers import T0, T1, Start, fill, read
from tests.support.groups import Log, until

# == When listeners are called, and what they may call =============================================


CLASSIC: dict[str, Any] = {"heartbeat_interval_ms": 20}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {**CLASSIC, "partition_assignment_strategy": [RoundRobinPartitionAssignor]},
    "cooperative": {**CLASSIC, "partition_assignment_strategy": [CooperativeStickyAssignor]},
    "consumer": {"group_protocol": "consumer"},
}

FOUR = {TopicPartition("t", number) for number in range(4)}


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Listener(ConsumerRebalanceListener):
    """Writes down what it is told, and does what a test wants done."""

    def __init__(self, calls: list[tuple[str, set[TopicPartition]]] | None = None) -> None:
        self.calls: list[tuple[str, set[TopicPartition]]] = [] if calls is None else calls
        self.acts: dict[str, Callable[[set[TopicPartition]], Awaitable[Any]]] = {}

    async def _note(self, name: str, partitions: Set[TopicPartition]) -> None:
        assert type(partitions) is set
        self.calls.append((name, partitions))
        act = self.acts.pop(name, None)
        if act is not None:
            await act(partitions)

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        await self._note("revoked", revoked)

    async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        await self._note("assigned", assigned)

    async def on_partitions_lost(self, lost: Set[TopicPartition]) -> None:
        await self._note("lost", lost)

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


async def subscribed(
    start: Start, cluster: FakeCluster, listener: ConsumerRebalanceListener, protocol: str
) -> AIOKafkaConsumer:
    consumer = await start(cluster, group_id="g", enable_auto_commit=False, **PROTOCOLS[protocol])
    consumer.subscribe(["t"], listener=listener)
    return consumer


async def until_true(condition: Callable[[], object]) -> None:
    async with timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_the_order_of_calls(four: FakeCluster, start: Start, protocol: str) -> None:
    ours, theirs = Listener(), Listener()
    first = await subscribed(start, four, ours, protocol)
    await until_true(lambda: first.assignment() == FOUR)
    begin = [("revoked", set())] if protocol == "eager" else []
    await until_true(lambda: ours.calls == [*begin, ("assigned", FOUR)])
    second = await subscribed(start, four, theirs, protocol)
    await until_true(lambda: len(first.assignment()) == len(second.assignment()) == 2)
    await until_true(lambda: [] not in (ours.calls[2:], theirs.calls))
    kept, given = set(first.assignment()), set(second.assignment())
    if protocol == "eager":
        expected = [("revoked", FOUR), ("assigned", kept)]
    elif protocol == "cooperative":
        # No member gets more by the join that follows, which the listener hears of, too.
        expected = [("revoked", given), ("assigned", set()), ("assigned", set())]
    else:
        expected = [("revoked", given), ("assigned", set())]
    calls = ours.calls[len(begin) + 1 :]
    assert [call for call in calls if call[1]] == [call for call in expected if call[1]]
    assert [call for call in theirs.calls if call[1]] == [("assigned", given)]


async def test_all_give_up_before_any_takes_over(four: FakeCluster, start: Start) -> None:
    calls: list[tuple[str, set[TopicPartition]]] = []
    first = await subscribed(start, four, Listener(calls), "eager")
    second = await subscribed(start, four, Listener(calls), "eager")
    await until_true(lambda: len(first.assignment()) == len(second.assignment()) == 2)
    calls.clear()
    four.groups.rebalance("g")
    await until_true(lambda: len(calls) == 4)
    assert [name for name, _ in calls] == ["revoked", "revoked", "assigned", "assigned"]


async def test_nothing_is_handed_out_before_the_listener_has_returned(
    four: FakeCluster, start: Start, protocol: str
) -> None:
    fill(four, 0, 5)
    go = asyncio.Event()
    listener = Listener()
    listener.acts["assigned"] = lambda _: go.wait()
    consumer = await subscribed(start, four, listener, protocol)
    await until_true(lambda: "assigned" in listener.names())
    assert await consumer.getmany(timeout_ms=200) == {}
    go.set()
    assert len(await read(consumer, 5)) == 5


class Plain(ConsumerRebalanceListener):
    def __init__(self) -> None:
        self.calls: list[str] = []

    def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        self.calls.append("revoked")

    def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        self.calls.append("assigned")


class Async(AsyncConsumerRebalanceListener):
    def __init__(self) -> None:
        self.calls: list[str] = []

    async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
        await asyncio.sleep(0)
        self.calls.append("revoked")

    async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        await asyncio.sleep(0)
        self.calls.append("assigned")


@pytest.mark.parametrize("form", [Plain, Async])
async def test_plain_and_async_forms(
    four: FakeCluster, start: Start, form: type[Plain | Async], protocol: str
) -> None:
    listener = form()
    consumer = await subscribed(start, four, listener, protocol)
    await until_true(lambda: consumer.assignment() == FOUR)
    await until_true(lambda: listener.calls[-1:] == ["assigned"])
    four.groups.expire("g", consumer.group_metadata().member_id)
    # By default what is lost is revoked.
    before = len(listener.calls)
    await until_true(lambda: listener.calls[before:][:1] == ["revoked"])
    await until_true(lambda: listener.calls[-1] == "assigned")


async def test_what_may_be_called_on_assignment(
    four: FakeCluster, start: Start, protocol: str
) -> None:
    for number in range(4):
        fill(four, number, 5)
    done: list[str] = []

    async def act(assigned: set[TopicPartition]) -> None:
        assert consumer.assignment() == assigned == FOUR
        assert await consumer.position(T0) == 0
        assert await consumer.committed(T0) is None
        await consumer.commit({T0: 2})
        assert await consumer.committed(T0) == 2
        assert (await consumer.committed_offsets())[T0] == (2, "")
        consumer.seek(T0, 3)
        assert await consumer.seek_to_committed(T0) == {T0: 2}
        assert await consumer.seek_to_end(T1)
        assert await consumer.position(T1) == 5
        assert await consumer.seek_to_beginning(T1)
        assert (await consumer.end_offsets([T0]))[T0] == 5
        consumer.pause(*(FOUR - {T0}))
        assert consumer.paused() == FOUR - {T0}
        consumer.resume(T1)
        assert consumer.health().state == "rebalancing"
        done.append("all")

    listener = Listener()
    listener.acts["assigned"] = act
    consumer = await subscribed(start, four, listener, protocol)
    seen = await read(consumer, 8)
    assert done == ["all"]
    assert sorted(seen) == [*((0, n) for n in range(2, 5)), *((1, n) for n in range(5))]


async def test_what_may_be_called_on_revocation(
    four: FakeCluster, start: Start, protocol: str
) -> None:
    for number in range(4):
        fill(four, number, 5)
    listener = Listener()
    consumer = await subscribed(start, four, listener, protocol)
    await read(consumer, 20)
    done: list[str] = []

    async def act(revoked: set[TopicPartition]) -> None:
        # They are still ours: the last chance to commit what was read.
        assert revoked <= consumer.assignment() == FOUR
        for tp in revoked:
            assert await consumer.position(tp) == 5
        await consumer.commit(dict.fromkeys(revoked, (5, "last words")))
        assert await consumer.committed(min(revoked)) == 5
        done.append("all")

    listener.acts["revoked"] = act
    await consumer.getmany()
    second = await subscribed(start, four, Listener(), protocol)
    await until_true(lambda: len(second.assignment()) == 2)
    assert done == ["all"]
    for tp in second.assignment():
        assert await second.position(tp) == 5


async def test_pauses_last_as_long_as_partitions_stay(
    four: FakeCluster, start: Start, protocol: str
) -> None:
    first = await subscribed(start, four, Listener(), protocol)
    await until_true(lambda: first.assignment() == FOUR)
    await first.getmany()
    first.pause(*FOUR)
    second = await subscribed(start, four, Listener(), protocol)
    await until_true(lambda: len(second.assignment()) == len(first.assignment()) == 2)
    await until_true(lambda: first.health().state == "running")
    # Eager members give up everything and begin again, as Java's do.
    kept = set() if protocol == "eager" else first.assignment()
    assert first.paused() == kept
    assert second.paused() == set()


async def test_what_was_lost_cannot_be_committed(
    four: FakeCluster, start: Start, protocol: str
) -> None:
    fill(four, 0, 5)
    outcome: list[BaseException] = []

    async def act(lost: set[TopicPartition]) -> None:
        assert lost == FOUR
        assert consumer.assignment() == frozenset()
        with pytest.raises(IllegalStateError, match="not assigned") as caught:
            await consumer.commit({T0: 5})
        outcome.append(caught.value)

    listener = Listener()
    consumer = await subscribed(start, four, listener, protocol)
    await read(consumer, 5)
    listener.acts["lost"] = act
    four.groups.expire("g", consumer.group_metadata().member_id)
    # It starts again where the group is.
    assert await read(consumer, 1) == [(0, 0)]
    assert listener.names()[-2:] == ["lost", "assigned"]
    assert len(outcome) == 1


Refused = Callable[[AIOKafkaConsumer], Any]
REFUSED: dict[str, Refused] = {
    "getone": lambda consumer: consumer.getone(),
    "getmany": lambda consumer: consumer.getmany(),
    "stop": lambda consumer: consumer.stop(),
    "subscribe": lambda consumer: consumer.subscribe(["t"]),
    "unsubscribe": lambda consumer: consumer.unsubscribe(),
    "assign": lambda consumer: consumer.assign([T0]),
}


@pytest.mark.parametrize("call", REFUSED)
@pytest.mark.parametrize("moment", ["revoked", "assigned", "lost"])
async def test_what_would_wait_for_itself_is_refused(
    four: FakeCluster, start: Start, protocol: str, call: str, moment: str
) -> None:
    fill(four, 0, 1)
    refusals: list[IllegalStateError] = []

    async def act(_: set[TopicPartition]) -> None:
        with pytest.raises(IllegalStateError, match="rebalance listener") as caught:
            result = REFUSED[call](consumer)
            # A task of its own, as `asyncio.wait_for` makes it, is no way around it.
            if result is not None:
                await asyncio.wait_for(result, 5)
        refusals.append(caught.value)

    listener = Listener()
    consumer = await subscribed(start, four, listener, protocol)
    await until_true(lambda: consumer.assignment() == FOUR)
    await consumer.getmany()
    listener.acts[moment] = act
    if moment == "lost":
        four.groups.expire("g", consumer.group_metadata().member_id)
    else:
        other = await start(four, "t", group_id="g", **PROTOCOLS[protocol])
        if moment == "assigned" and protocol != "eager":
            await until_true(lambda: len(other.assignment()) == 2)
            await other.stop()
    await until_true(lambda: refusals)
    assert consumer.subscription() == {"t"}
    await until_true(lambda: consumer.health().state == "running")


async def test_a_listener_may_use_another_consumer(
    four: FakeCluster, start: Start, protocol: str
) -> None:
    fill(four, 0, 1)
    fill(four, 1, 1)
    other = await start(four, assign=[T1])
    found: list[int] = []

    async def act(_: set[TopicPartition]) -> None:
        found.append((await other.getone()).partition)

    listener = Listener()
    listener.acts["assigned"] = act
    consumer = await subscribed(start, four, listener, protocol)
    await read(consumer, 2)
    assert found == [1]


async def test_a_task_that_outlives_the_listener_may_read(four: FakeCluster, start: Start) -> None:
    fill(four, 0, 1)
    tasks: list[asyncio.Task[Any]] = []
    go = asyncio.Event()

    async def later() -> Any:
        await go.wait()
        return await consumer.getone()

    async def act(_: set[TopicPartition]) -> None:
        tasks.append(asyncio.get_running_loop().create_task(later()))

    listener = Listener()
    listener.acts["assigned"] = act
    consumer = await subscribed(start, four, listener, "eager")
    await until_true(lambda: consumer.health().state == "running")
    go.set()
    assert (await tasks[0]).offset == 0


# The second is one that the group may have, too, and withdraw when it has passed.
@pytest.mark.parametrize("error", [LookupError, TopicAuthorizationFailedError])
@pytest.mark.parametrize("moment", ["revoked", "assigned", "lost"])
async def test_what_a_listener_raises_reaches_the_application(
    four: FakeCluster, start: Start, protocol: str, moment: str, error: type[Exception]
) -> None:
    fill(four, 0, 1)

    async def act(_: set[TopicPartition]) -> None:
        raise error("no state")

    listener = Listener()
    consumer = await subscribed(start, four, listener, protocol)
    await until_true(lambda: consumer.assignment() == FOUR)
    await consumer.getmany()
    listener.acts[moment] = act
    if moment == "lost":
        four.groups.expire("g", consumer.group_metadata().member_id)
    else:
        other = await start(four, "t", group_id="g", **PROTOCOLS[protocol])
        if moment == "assigned" and protocol != "eager":
            await until_true(lambda: len(other.assignment()) == 2)
            await other.stop()
    with pytest.raises(error, match="no state"):
        async with timeout(10):
            while True:
                await consumer.getmany(timeout_ms=20)
    # Once, and the group goes on.
    await until_true(lambda: consumer.health().state == "running")
    await consumer.getmany(timeout_ms=20)


@pytest.mark.parametrize("moment", ["revoked", "assigned", "lost"])
async def test_a_listener_that_awaits_a_task_it_has_cancelled(
    four: FakeCluster, start: Start, protocol: str, moment: str
) -> None:
    fill(four, 0, 1)

    async def act(_: set[TopicPartition]) -> None:
        worker = asyncio.get_running_loop().create_task(asyncio.sleep(60))
        await asyncio.sleep(0)
        worker.cancel()
        await worker

    listener = Listener()
    consumer = await subscribed(start, four, listener, protocol)
    await until_true(lambda: consumer.assignment() == FOUR)
    await consumer.getmany()
    listener.acts[moment] = act
    if moment == "lost":
        four.groups.expire("g", consumer.group_metadata().member_id)
    else:
        other = await start(four, "t", group_id="g", **PROTOCOLS[protocol])
        if moment == "assigned" and protocol != "eager":
            await until_true(lambda: len(other.assignment()) == 2)
            await other.stop()
    with pytest.raises(KafkaError, match=f"on_partitions_{moment}.*cancelled") as caught:
        async with timeout(10):
            while True:
                await consumer.getmany(timeout_ms=20)
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    await until_true(lambda: consumer.health().state == "running")
    await consumer.getmany(timeout_ms=20)


async def test_a_listener_that_awaits_a_cancelled_task_while_the_consumer_stops(
    four: FakeCluster, start: Start, protocol: str
) -> None:
    is_called = asyncio.Event()

    async def act(_: set[TopicPartition]) -> None:
        worker = asyncio.get_running_loop().create_task(asyncio.sleep(60))
        try:
            is_called.set()
            await asyncio.sleep(60)
        finally:
            worker.cancel()
            await worker

    listener = Listener()
    listener.acts["assigned"] = act
    consumer = await subscribed(start, four, listener, protocol)
    await is_called.wait()
    async with timeout(4):
        await consumer.stop()


async def test_a_listener_that_swallows_its_cancellation_does_not_hold_up_stop(
    four: FakeCluster, start: Start, protocol: str
) -> None:
    is_called = asyncio.Event()

    async def act(_: set[TopicPartition]) -> None:
        with suppress(asyncio.CancelledError):
            is_called.set()
            await asyncio.sleep(60)

    listener = Listener()
    listener.acts["assigned"] = act
    consumer = await subscribed(start, four, listener, protocol)
    await is_called.wait()
    async with timeout(4):
        await consumer.stop()
    assert four.groups.state_of("g") == "Empty"


async def test_all_is_told_when_everything_is_exchanged(four: FakeCluster, protocol: str) -> None:
    """What comes and what goes in one rebalance have nothing in common."""
    await four.create_topic("u")
    listener = Listener()
    async with AIOKafkaConsumer(
        bootstrap_servers=four.bootstrap_servers, group_id="g", **PROTOCOLS[protocol]
    ) as consumer:
        consumer.subscribe(["t"], listener=listener)
        await until_calls(listener, [("assigned", FOUR)])
        consumer.subscribe(["u"], listener=listener)
        new = {TopicPartition("u", 0)}
        await until_calls(listener, [("assigned", FOUR), ("revoked", FOUR), ("assigned", new)])
        assert consumer.assignment() == new


async def until_calls(listener: Listener, calls: list[tuple[str, set[TopicPartition]]]) -> None:
    """Wait until it was told this and nothing else, but for calls about nothing."""
    async with timeout(10):
        while [call for call in listener.calls if call[1]] != calls:
            await asyncio.sleep(0.01)


# == Unsubscribing =================================================================================


KINDS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": [RangePartitionAssignor]},
    "cooperative": {"partition_assignment_strategy": [CooperativeStickyAssignor]},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_listener_hears_of_all_that_came_in_several_rebalances(kind: str) -> None:
    async def main(_: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t", partitions=4)
            options = {
                "bootstrap_servers": cluster.bootstrap_servers,
                "group_id": "g",
                "enable_auto_commit": False,
                **KINDS[kind],
            }
            listener = Log()
            async with AIOKafkaConsumer(**options) as consumer:
                consumer.subscribe(["t"], listener=listener)
                await asyncio.sleep(20)
                async with AIOKafkaConsumer("t", **options):
                    await asyncio.sleep(20)
                    assert len(consumer.assignment()) == 2
                await asyncio.sleep(20)
                assert len(consumer.assignment()) == 4
                listener.calls.clear()
                consumer.unsubscribe()
                await asyncio.sleep(20)
                assert [call for call in listener.calls if call[1]] == [
                    ("revoked", {0, 1, 2, 3}),
                ]

    simulate(main)


# == Members that the group removes during a rebalance =============================================


PROTOCOL_OPTIONS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": [RoundRobinPartitionAssignor]},
    "cooperative": {"partition_assignment_strategy": [CooperativeStickyAssignor]},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.mark.parametrize("is_auto", [True, False], ids=["auto", "by hand"])
@pytest.mark.parametrize("protocol", PROTOCOL_OPTIONS)
def test_the_listener_hears_of_it_as_lost(protocol: str, is_auto: bool) -> None:
    """It heard that its partitions are revoked, when the application had finished what it had in
    hand: others had them by then, and the commit of a listener was refused."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t", partitions=2)
            fill(cluster, 0, 5)
            fill(cluster, 1, 5)

            def member() -> AIOKafkaConsumer:
                return AIOKafkaConsumer(
                    bootstrap_servers=cluster.bootstrap_servers,
                    group_id="g",
                    auto_offset_reset="earliest",
                    enable_auto_commit=is_auto,
                    rebalance_timeout_ms=60_000,
                    **PROTOCOL_OPTIONS[protocol],
                )

            log, other = Log(), member()
            async with member() as consumer:
                consumer.subscribe(["t"], listener=log)
                await until(cluster, lambda: len(consumer.assignment()) == 2)
                while set(await consumer.getmany(timeout_ms=100)) != consumer.assignment():
                    for tp in consumer.assignment():
                        consumer.seek(tp, 0)
                log.calls.clear()
                other.subscribe(["t"])
                begins = asyncio.create_task(other.start())
                # It is told to give up, and waits for the application, for 30 s.
                await asyncio.sleep(10)
                assert log.calls == []
                cluster.groups.expire("g", consumer.group_metadata().member_id)
                await asyncio.sleep(10)
                assert log.calls[0] == ("lost", {0, 1})
                await consumer.getmany(timeout_ms=10_000)
                await begins
                assert len(consumer.assignment()) == len(other.assignment()) == 1
                await other.stop()

    simulate(main)


@pytest.mark.parametrize("way", ["removed", "unsubscribed"])
@pytest.mark.parametrize("protocol", PROTOCOL_OPTIONS)
def test_the_listener_may_commit_when_the_member_is_back(protocol: str, way: str) -> None:
    """Its commit of what was just assigned was taken for one of the time before, and refused."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            consumer = AIOKafkaConsumer(
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                enable_auto_commit=False,
                **PROTOCOL_OPTIONS[protocol],
            )
            offsets = iter([1, 2])

            class Commits(AsyncConsumerRebalanceListener):
                async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
                    pass

                async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
                    await consumer.commit(dict.fromkeys(assigned, next(offsets)))

            consumer.subscribe(["t"], listener=Commits())
            async with consumer:
                await until(cluster, lambda: cluster.groups.committed("g", "t") == 1)
                if way == "removed":
                    cluster.groups.expire("g", consumer.group_metadata().member_id)
                else:
                    consumer.unsubscribe()
                    consumer.subscribe(["t"], listener=Commits())
                await until(cluster, lambda: cluster.groups.committed("g", "t") == 2)

    simulate(main)
