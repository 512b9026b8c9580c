"""Members of the consumer protocol (KIP-848) without faults."""

from __future__ import annotations

import asyncio
from collections.abc import Set
from typing import Any

import pytest

from aiokafka import AIOKafkaConsumer, SubscriptionPattern, TopicPartition
from aiokafka._compat import timeout
from aiokafka._metadata.topic_names import TopicNames
from aiokafka.client import AIOKafkaClient
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import CommitFailedError, IllegalOperation, IllegalStateError
from aiokafka.protocol.messages.fetch import ListOffsetsRequest
from aiokafka.protocol.messages.group_members import ConsumerGroupHeartbeatRequest
from aiokafka.protocol.messages.group_offsets import OffsetCommitRequest, OffsetFetchRequest
from aiokafka.protocol.messages.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.testing import Cut, Edit, FakeCluster, Hold, RequestContext, Silence
from aiokafka.testing.simulation import Simulation, simulate
from tests.support.consumer_protocol import OPTIONS, beats, listening, shares
from tests.support.consumers import T0, T1, Start, fill, read
from tests.support.groups import Log, Loop, until

# == Members without faults ========================================================================


@pytest.mark.parametrize("assignor", [None, "uniform", "range"])
async def test_members_share(four: FakeCluster, start: Start, assignor: str | None) -> None:
    options = {**OPTIONS, "group_remote_assignor": assignor}
    first = await start(four, "t", **options)
    assert shares(first) == [4]
    second = await start(four, "t", **options)
    await until(four, lambda: shares(first, second) == [2, 2])
    third = await start(four, "t", **options)
    await until(four, lambda: shares(first, second, third) == [1, 1, 2])
    await second.stop()
    await until(four, lambda: shares(first, third) == [2, 2])
    await first.stop()
    await until(four, lambda: shares(third) == [4])
    await third.stop()
    assert four.groups.state_of("g") == "Empty"
    assert {beat.server_assignor for beat in beats(four) if beat.member_epoch == 0} == {assignor}


async def test_a_plain_loop_never_fails_because_of_rebalances(
    four: FakeCluster, start: Start
) -> None:
    for partition in range(4):
        fill(four, partition, 100)
    options = {**OPTIONS, "enable_auto_commit": False}
    first = await start(four, "t", **options)
    second = await start(four, "t", **options)
    loops = [Loop(first, 0.001), Loop(second, 0.001)]
    for _ in range(8):
        await until(four, lambda: shares(first, second) == [2, 2])
        four.groups.rebalance("g")
        await until(four, lambda: shares(first, second) != [2, 2])
    await until(four, lambda: shares(first, second) == [2, 2])
    await until(four, lambda: sum(len(loop.seen) for loop in loops) >= 400)
    for loop in loops:
        await loop.end()
    # Each once: what was returned before a revocation is committed before it is done.
    seen = loops[0].seen + loops[1].seen
    assert sorted(seen) == [(partition, n) for partition in range(4) for n in range(100)]
    assert loops[0].seen
    assert loops[1].seen


async def test_what_stays_goes_on(four: FakeCluster, start: Start) -> None:
    for partition in range(4):
        fill(four, partition, 5)
    log = Log()
    first = await listening(four, start, log)
    assert len(await read(first, 20)) == 20
    first.pause(*first.assignment())
    await first.getmany()
    second = await start(four, "t", **OPTIONS)
    await until(four, lambda: shares(first, second) == [2, 2])
    assert first.paused() == first.assignment()
    given = {tp.partition for tp in second.assignment()}
    assert log.calls == [("assigned", {0, 1, 2, 3}), ("revoked", given), ("assigned", set())]
    # What was finished was committed before it was given up, what stayed keeps its position.
    for tp in second.assignment():
        assert await second.position(tp) == 5
    for tp in first.assignment():
        assert await first.position(tp) == 5


async def test_unfinished_records_are_given_up_only_when_committed(
    four: FakeCluster, start: Start
) -> None:
    for partition in range(4):
        fill(four, partition, 4)
    options = {**OPTIONS, "enable_auto_commit": False}
    first = await start(four, "t", **options)
    batch: dict[TopicPartition, Any] = {}
    while len(batch) < 4:
        batch.update(await first.getmany(timeout_ms=1000))
    second = await start(four, "t", **options)
    # Heartbeats go on while the application is at work.
    count = four.count(ConsumerGroupHeartbeatRequest)
    await until(four, lambda: four.count(ConsumerGroupHeartbeatRequest) > count + 6)
    assert second.assignment() == frozenset()
    await first.commit({tp: records[-1].offset + 1 for tp, records in batch.items()})
    await until(four, lambda: shares(first, second) == [2, 2])
    assert {four.groups.committed("g", "t", partition) for partition in range(4)} == {4}
    for tp in second.assignment():
        assert await second.position(tp) == 4


async def test_an_application_that_is_too_slow_loses_its_partitions(
    four: FakeCluster, start: Start
) -> None:
    """The broker takes the partitions of a member that does not give them up in time."""
    fill(four, 0, 4)
    released = asyncio.Event()

    class Slow(Log):
        async def on_partitions_revoked(self, revoked: Set[TopicPartition]) -> None:
            await released.wait()

    log = Slow()
    options = {"enable_auto_commit": False, "rebalance_timeout_ms": 200}
    first = await listening(four, start, log, **options)
    second = await start(four, "t", **OPTIONS, enable_auto_commit=False)
    await until(four, lambda: shares(second) == [4])
    # It does not know yet, but can do no harm.
    with pytest.raises(CommitFailedError):
        await first.commit(dict.fromkeys(first.assignment(), 1))
    assert four.groups.committed("g", "t", 0) is None
    released.set()
    await until(four, lambda: shares(first, second) == [2, 2])
    (_, everything), (call, lost) = log.calls[:2]
    assert everything == {0, 1, 2, 3}
    assert call == "lost"
    assert len(lost) == 2  # the others were revoked


async def test_only_news_is_sent(four: FakeCluster, start: Start) -> None:
    consumer = await start(four, "t", **OPTIONS, client_rack="here", max_poll_interval_ms=60000)
    await until(four, lambda: len(beats(four)) > 4)
    join, *rest = beats(four)
    # Others may come before it on a slow machine.
    acknowledgement = next(beat for beat in rest if beat.topic_partitions is not None)
    rest.remove(acknowledgement)
    assert join.member_epoch == 0
    assert join.subscribed_topic_names == ["t"]
    assert join.topic_partitions == []
    assert join.rebalance_timeout_ms == 60000
    assert join.rack_id == "here"
    assert acknowledgement.subscribed_topic_names is None
    assert [len(topic.partitions) for topic in acknowledgement.topic_partitions or ()] == [4]
    for beat in rest:
        news = (beat.subscribed_topic_names, beat.topic_partitions, beat.rack_id)
        assert news == (None, None, None)
        assert beat.rebalance_timeout_ms == -1
        assert beat.member_epoch == consumer.group_metadata().generation_id
    assert {beat.member_id for beat in beats(four)} == {consumer.group_metadata().member_id}


async def test_the_subscription_changes(four: FakeCluster, start: Start) -> None:
    await four.create_topic("u", partitions=2)
    consumer = await start(four, "t", **OPTIONS)
    consumer.subscribe(["t", "u"])
    await until(four, lambda: len(consumer.assignment()) == 6)
    consumer.subscribe(["u"])
    await until(four, lambda: {tp.topic for tp in consumer.assignment()} == {"u"})
    assert [b.subscribed_topic_names for b in beats(four) if b.subscribed_topic_names] == [
        ["t"],
        ["t", "u"],
        ["u"],
    ]
    assert sum(beat.member_epoch == 0 for beat in beats(four)) == 1


async def test_the_client_matches_a_pattern(four: FakeCluster, start: Start) -> None:
    consumer = await start(four, metadata_max_age_ms=50, **OPTIONS)
    consumer.subscribe(pattern="^t.*")
    await until(four, lambda: len(consumer.assignment()) == 4)
    await four.create_topic("tb", partitions=2)
    await until(four, lambda: len(consumer.assignment()) == 6)
    assert consumer.subscription() == {"t", "tb"}


async def test_the_broker_matches_a_pattern(four: FakeCluster, start: Start) -> None:
    consumer = await start(four, **OPTIONS)
    consumer.subscribe(pattern=SubscriptionPattern("t.*"))
    await until(four, lambda: len(consumer.assignment()) == 4)
    assert consumer.subscription() == {"t"}
    # No metadata has to be refreshed for it: the broker tells of the topic by its id.
    await four.create_topic("tb", partitions=2)
    fill(four, 1, 2, topic="tb")
    await until(four, lambda: len(consumer.assignment()) == 6)
    record = await consumer.getone()
    assert (record.topic, record.partition, record.offset) == ("tb", 1, 0)
    assert consumer.subscription() == {"t", "tb"}
    await consumer.commit()
    consumer.subscribe(["t"])
    await until(four, lambda: shares(consumer) == [4])
    # The record that was committed is not taken back by the auto-commit of the revocation.
    assert four.groups.committed("g", "tb", 1) == 1
    assert [
        b.subscribed_topic_regex for b in beats(four) if b.subscribed_topic_regex is not None
    ] == [
        "t.*",
        "",
    ]


@pytest.mark.parametrize("options", [{}, {"group_id": "g"}])
async def test_a_pattern_for_the_broker_needs_the_protocol(
    four: FakeCluster, start: Start, options: dict[str, Any]
) -> None:
    consumer = await start(four, **options)
    with pytest.raises(IllegalOperation, match="group_protocol='consumer'"):
        consumer.subscribe(pattern=SubscriptionPattern("t"))


async def test_an_empty_pattern(four: FakeCluster, start: Start) -> None:
    consumer = await start(four, **OPTIONS)
    with pytest.raises(ValueError, match="not empty"):
        consumer.subscribe(pattern=SubscriptionPattern(""))


async def test_a_static_member_comes_back(four: FakeCluster, start: Start) -> None:
    options = {**OPTIONS, "group_instance_id": "one"}
    other = await start(four, "t", **OPTIONS)
    first = await start(four, "t", **options)
    await until(four, lambda: shares(other, first) == [2, 2])
    owned = first.assignment()
    await first.stop()
    assert [b.member_epoch for b in beats(four) if b.instance_id == "one"][-1] == -2
    second = await start(four, "t", **options)
    assert second.assignment() == owned
    assert len(other.assignment()) == 2
    assert {
        b.instance_id for b in beats(four) if b.member_id != other.group_metadata().member_id
    } == {"one"}


async def test_unsubscribing(four: FakeCluster, start: Start) -> None:
    fill(four, 0, 3)
    log = Log()
    consumer = await listening(four, start, log)
    await read(consumer, 2)
    member_id = consumer.group_metadata().member_id
    consumer.unsubscribe()
    assert consumer.assignment() == frozenset()
    await until(four, lambda: four.groups.state_of("g") == "Empty")
    assert log.calls == [("assigned", {0, 1, 2, 3}), ("revoked", {0, 1, 2, 3})]
    # Of two records the application may still be at work on the last.
    assert four.groups.committed("g", "t", 0) == 2 - 1
    assert beats(four)[-1].member_epoch == -1
    consumer.subscribe(["t"], listener=log)
    assert await read(consumer, 2) == [(0, 1), (0, 2)]
    assert consumer.group_metadata().member_id == member_id


async def test_unsubscribing_and_subscribing_at_once(four: FakeCluster, start: Start) -> None:
    log, later = Log(), Log()
    consumer = await listening(four, start, log)
    consumer.unsubscribe()
    consumer.subscribe(["t"], listener=later)
    await until(four, lambda: shares(consumer) == [4] and bool(later.calls))
    assert log.calls == [("assigned", {0, 1, 2, 3}), ("revoked", {0, 1, 2, 3})]
    assert later.calls == [("assigned", {0, 1, 2, 3})]


async def test_from_a_group_to_partitions_chosen_by_hand(four: FakeCluster, start: Start) -> None:
    consumer = await start(four, "t", enable_auto_commit=False, **OPTIONS)
    consumer.unsubscribe()
    consumer.assign([T0])
    await consumer.commit({T0: 7})
    assert four.groups.committed("g", "t", 0) == 7


async def test_a_member_that_does_not_poll_leaves_and_comes_back(
    four: FakeCluster, start: Start
) -> None:
    fill(four, 0, 2)
    log = Log()
    consumer = await listening(four, start, log, max_poll_interval_ms=500)
    for _ in range(12):
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(consumer.getone(T1), 0.05)  # a cancelled poll is one
    assert min(beat.member_epoch for beat in beats(four)) == 0
    await until(four, lambda: not consumer.assignment())
    assert beats(four)[-1].member_epoch == -1
    assert await read(consumer, 2) == [(0, 0), (0, 1)]
    assert shares(consumer) == [4]
    await until(four, lambda: len(log.calls) == 3)
    assert [call for call, _ in log.calls] == ["assigned", "lost", "assigned"]


async def test_members_say_who_they_are(four: FakeCluster, start: Start) -> None:
    consumer = await start(four, "t", group_instance_id="one", **OPTIONS)
    assert await consumer.position(T0) == 0
    await consumer.commit({T0: 1})
    me = consumer.group_metadata()
    commit = four.requests(OffsetCommitRequest)[-1].request
    assert commit.member_id == me.member_id
    assert commit.generation_id_or_member_epoch == me.generation_id > 0
    assert commit.group_instance_id == "one"
    fetched = four.requests(OffsetFetchRequest)[-1].request.groups[0]
    assert (fetched.member_id, fetched.member_epoch) == (me.member_id, me.generation_id)


async def test_calls_inside_a_listener(four: FakeCluster, start: Start) -> None:
    fill(four, 0, 5)

    class Busy(Log):
        refused: Exception | None = None

        async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
            if not assigned:
                return
            try:
                await consumer.getmany()
            except IllegalStateError as error:
                self.refused = error
            assert await consumer.position(T0) == 0
            await consumer.commit({T0: 2})
            consumer.seek(T0, 3)

    listener = Busy()
    consumer = await start(four, enable_auto_commit=False, **OPTIONS)
    consumer.subscribe(["t"], listener=listener)
    assert await read(consumer, 2) == [(0, 3), (0, 4)]
    assert listener.refused is not None
    assert four.groups.committed("g", "t", 0) == 2


async def test_stop_commits_what_is_finished_and_leaves(four: FakeCluster, start: Start) -> None:
    fill(four, 0, 5)
    consumer = await start(four, "t", **OPTIONS)
    await read(consumer, 3)
    await consumer.stop()
    assert four.groups.committed("g", "t", 0) == 3
    assert beats(four)[-1].member_epoch == -1
    assert four.groups.state_of("g") == "Empty"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"group_protocol": "next"}, "group_protocol='next': must be one of 'classic', 'consumer'"),
        ({"group_protocol": "consumer", "session_timeout_ms": 9}, "group.consumer.session.timeout"),
        ({"group_protocol": "consumer", "heartbeat_interval_ms": 9}, "heartbeat.interval.ms there"),
        (
            {
                "group_protocol": "consumer",
                "partition_assignment_strategy": [RangePartitionAssignor],
            },
            "partition_assignment_strategy: .*group_remote_assignor",
        ),
        ({"heartbeat_interval_ms": 10_000}, "must be less than session_timeout_ms=10000"),
        ({"session_timeout_ms": 2_999}, "heartbeat_interval_ms=3000: must be less than"),
        ({"group_remote_assignor": "uniform"}, "needs group_protocol='consumer'"),
        ({"group_protocol": "consumer", "group_remote_assignor": ""}, "not empty"),
    ],
)
async def test_options_that_contradict(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AIOKafkaConsumer(group_id="g", **options)


async def test_the_default_strategy_is_no_contradiction() -> None:
    strategy = (RoundRobinPartitionAssignor,)
    AIOKafkaConsumer(partition_assignment_strategy=strategy, **OPTIONS)


# == Acknowledging a target assignment =============================================================


class Slow(Log):
    """A listener whose first call takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.released = asyncio.Event(), asyncio.Event()

    async def on_partitions_assigned(self, assigned: Set[TopicPartition]) -> None:
        super().on_partitions_assigned(assigned)
        self.entered.set()
        await self.released.wait()


@pytest.mark.parametrize("in_flight", [False, True])
async def test_partitions_that_were_never_taken_over_are_given_back(
    four: FakeCluster, start: Start, in_flight: bool
) -> None:
    """They are assigned and taken away again while the listener is at work. As nothing changes by
    that for the member, it has nothing to give up; but the coordinator waits to be told.

    `in_flight`: the listener ends while a heartbeat is on its way that says nothing of it."""
    first = await listening(four, start, Log())
    log = Slow()
    second = await start(four, **OPTIONS)
    second.subscribe(["t"], listener=log)
    await log.entered.wait()
    assert log.calls == [("assigned", set())]

    async def hear() -> None:
        """Wait until the second member has had the responses to two more heartbeats."""
        member_id = second.group_metadata().member_id
        count = len(beats(four))
        await until(
            four,
            lambda: sum(beat.member_id == member_id for beat in beats(four)[count:]) >= 3,
        )

    await until(four, lambda: len(first.assignment()) == 2)
    await hear()
    four.groups.rebalance("g")
    await hear()
    if in_flight:
        member_id, response = second.group_metadata().member_id, asyncio.Event()

        def hold(request: ConsumerGroupHeartbeatRequest, _: RequestContext) -> Hold | None:
            return Hold(response) if request.member_id == member_id else None

        with four.intercept(ConsumerGroupHeartbeatRequest, hold) as script:
            await until(four, lambda: script.hits > 0)
            log.released.set()
            assert await second.getmany(timeout_ms=50) == {}
        response.set()
    log.released.set()
    await until(four, lambda: shares(first, second) == [2, 2])


async def test_who_is_removed_while_it_asks_for_a_name_gives_up_everything_at_once(
    four: FakeCluster, start: Start
) -> None:
    """Others have its partitions by then, and it returned their records until a broker had told it
    what another topic is called, which may take as long as a request."""
    log = Log()
    consumer = await start(four, **OPTIONS)
    consumer.subscribe(pattern=SubscriptionPattern("t.*"), listener=log)
    await until(four, lambda: shares(consumer) == [4])
    is_named = asyncio.Event()

    def hold(request: MetadataRequest, _: RequestContext) -> Hold | None:
        by_id = any(topic.topic_id != ZERO_UUID for topic in request.topics or ())
        return Hold(is_named) if by_id else None

    with four.intercept(MetadataRequest, hold) as script:
        await four.create_topic("tu")
        await until(four, lambda: script.hits > 0)
        four.groups.expire("g", consumer.group_metadata().member_id)
        await until(four, lambda: log.calls[-1] == ("lost", {0, 1, 2, 3}))
        assert consumer.assignment() == frozenset()
    is_named.set()
    await until(four, lambda: len(consumer.assignment()) == 5)


# == Topic names of assigned topic ids =============================================================


async def test_a_name_is_kept_while_it_is_needed(cluster: FakeCluster) -> None:
    """What was read of a deleted topic has to be given up by its name."""
    for name in ("t", "u"):
        await cluster.create_topic(name)
    client = AIOKafkaClient(bootstrap_servers=cluster.bootstrap_servers, retry_backoff_ms=10)
    async with timeout(20), client:
        await client.set_topics(["t", "u"])
        ids = {name: client.cluster.topic_id(name) or b"" for name in ("t", "u")}
        names = TopicNames(client)
        assert await names.learn(ids.values()) == set()
        assert names.get(ids["t"]) == "t"
        await cluster.delete_topic("t")
        while client.cluster.topic_name(ids["t"]) is not None:
            await client.force_metadata_update()
        assert await names.learn(ids.values()) == set()
        assert [names.get(ids[name]) for name in ("t", "u")] == ["t", "u"]
        # Of no use any more, so it is forgotten, and cannot be learned any more.
        assert await names.learn([ids["u"]]) == set()
        assert await names.learn(ids.values()) == {ids["t"]}


# == Two topic ids of one name in one target assignment ============================================


INTERVAL_MS = 1000
SLOW_HEARTBEATS = {"group.consumer.heartbeat.interval.ms": INTERVAL_MS}
GONE = b"\xff" * 16  # sorted behind any other id


def name_it(response: Any) -> None:
    """Say that the id that is gone still has its name."""
    for topic in response.topics:
        if topic.topic_id == GONE:
            topic.name, topic.error_code = "t", 0


def add_the_old_one(response: Any) -> None:
    """Assign the partitions of the topic that is gone as well."""
    if response.assignment is not None and response.assignment.topic_partitions:
        (new,) = response.assignment.topic_partitions
        old = type(new)(topic_id=GONE, partitions=new.partitions)
        response.assignment.topic_partitions = [new, old]


def test_it_is_asked_for_at_a_quiet_pace() -> None:
    """Nothing that the member owns can be all of the target. It acknowledged that again and again,
    as fast as the coordinator responded.
    """

    async def main(simulation: Simulation) -> tuple[int, list[Any]]:
        async with FakeCluster(config=SLOW_HEARTBEATS) as cluster:
            await cluster.create_topic("t", partitions=2)
            cluster.log("t", 0).append(b"value")
            cluster.intercept(MetadataRequest, Edit(name_it))
            with cluster.intercept(ConsumerGroupHeartbeatRequest, Edit(add_the_old_one)):
                async with AIOKafkaConsumer(
                    "t",
                    bootstrap_servers=cluster.bootstrap_servers,
                    auto_offset_reset="earliest",
                    **OPTIONS,
                ) as consumer:
                    # What the name means now is read meanwhile.
                    assert (await consumer.getone()).value == b"value"
                    await asyncio.sleep(5)
                    before = len(beats(cluster))
                    await asyncio.sleep(10)
                    count = len(beats(cluster)) - before
                    assert len(consumer.assignment()) == 2
                    told = [beat.topic_partitions for beat in beats(cluster)]
                    return count, [topics for topics in told if topics]

    count, told = simulate(main)
    assert 8 <= count <= 12
    # The coordinator hears of the topic that there is.
    assert all(topic.topic_id != GONE for topics in told for topic in topics)


# == Changing a regular expression that the broker matches =========================================


U0 = TopicPartition("u", 0)


def options(cluster: FakeCluster) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "group_id": "g",
        "group_protocol": "consumer",
        "auto_offset_reset": "earliest",
    }


@pytest.mark.parametrize(
    "before", [{"topics": ["t"]}, {"pattern": SubscriptionPattern("t.*")}], ids=["topics", "regex"]
)
def test_it_reads_on_what_both_match(before: dict[str, Any]) -> None:
    """The broker assigns nothing new then. The member forgot the topic: it had no leaders any more
    after the next metadata, and returned nothing for good."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster(brokers=2) as cluster:
            await cluster.create_topic("t", replication_factor=2)
            consumer = AIOKafkaConsumer(**options(cluster), metadata_max_age_ms=10_000)
            consumer.subscribe(**before)
            async with consumer:
                fill(cluster, 0, 1)
                assert (await consumer.getone()).offset == 0
                consumer.subscribe(pattern=SubscriptionPattern("(t|u).*"))
                assert await consumer.getmany(timeout_ms=30_000) == {}
                assert consumer.subscription() == {"t"}
                cluster.move_leader(T0, 1 - cluster.partition("t").leader)
                fill(cluster, 0, 1)
                records = await consumer.getmany(timeout_ms=30_000)
                assert [record.offset for record in records.get(T0, ())] == [1]

    simulate(main)


def test_the_broker_forgets_an_expression_though_it_does_not_get_the_heartbeat() -> None:
    """The next one says all, and said nothing of what had to be taken back: the member kept
    partitions of which it returned no records."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            await cluster.create_topic("u")
            async with AIOKafkaConsumer(**options(cluster)) as consumer:
                consumer.subscribe(pattern=SubscriptionPattern("u.*"))
                await until(cluster, lambda: consumer.assignment() == {U0})
                cluster.intercept(ConsumerGroupHeartbeatRequest, Cut(), times=1)
                consumer.subscribe(["t"])
                await until(cluster, lambda: T0 in consumer.assignment())
                await asyncio.sleep(30)
                assert consumer.assignment() == {T0}

    simulate(main)


def test_a_static_member_is_back_without_its_expression() -> None:
    """The coordinator kept it with the member's place."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            await cluster.create_topic("u")
            async with AIOKafkaConsumer(**options(cluster), group_instance_id="i") as consumer:
                consumer.subscribe(pattern=SubscriptionPattern("u.*"))
                await until(cluster, lambda: consumer.assignment() == {U0})
            async with AIOKafkaConsumer("t", **options(cluster), group_instance_id="i") as consumer:
                await asyncio.sleep(30)
                assert consumer.assignment() == {T0}

    simulate(main)


def test_a_static_member_needs_no_broker_that_knows_expressions() -> None:
    def without(response: ApiVersionsResponse) -> None:
        for api in response.api_keys:
            if api.api_key == ConsumerGroupHeartbeatRequest.API_KEY:
                api.max_version = 0

    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            cluster.intercept(ApiVersionsRequest, Edit(without))
            async with AIOKafkaConsumer("t", **options(cluster), group_instance_id="i") as consumer:
                assert consumer.assignment() == {T0}

    simulate(main)


def test_a_second_start_waits_for_no_topic_that_the_first_was_given() -> None:
    """It was deleted meanwhile, and it was not asked for by name: start() raised
    UnknownTopicOrPartitionError after 40 s."""

    async def main(simulation: Simulation) -> None:
        async with FakeCluster() as cluster:
            await cluster.create_topic("t")
            await cluster.create_topic("tt")
            given = options(cluster) | {"auto_offset_reset": "latest"}
            consumer = AIOKafkaConsumer(**given, allow_auto_create_topics=False)
            consumer.subscribe(pattern=SubscriptionPattern("t+"))
            with cluster.intercept(ListOffsetsRequest, Silence()) as script:
                starting = asyncio.create_task(consumer.start())
                await until(cluster, lambda: script.hits)
                starting.cancel()
                await asyncio.wait([starting])
            await cluster.delete_topic("tt")
            async with consumer:
                assert consumer.assignment() == {T0}
                assert consumer.subscription() == {"t"}

    simulate(main)
