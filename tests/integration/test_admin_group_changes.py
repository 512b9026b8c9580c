"""Changes of groups and their offsets against a real Kafka, and against Kafka's own tool."""

from __future__ import annotations

import asyncio
import csv
import datetime
from collections.abc import AsyncIterator

import pytest

from aiokafka.admin import (
    AIOKafkaAdminClient,
    GroupState,
    GroupType,
    OffsetReset,
    ResetRule,
    SendTo,
)
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import (
    AdminItemsError,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    NonEmptyGroup,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
)
from aiokafka.protocol.messages import streams_groups as streams
from aiokafka.protocol.messages.share_groups import ShareGroupHeartbeatRequest
from aiokafka.structs import OffsetAndMetadata, TopicPartition
from tests.integration.support import START, filled, member, new_group, run_tool
from tests.kafka.fixtures import Kafka, MakeTopic, Scale, need_own_brokers

# Starting a broker counts as part of the first test.
pytestmark = pytest.mark.timeout(180)

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture
async def admin(kafka: Kafka) -> AsyncIterator[AIOKafkaAdminClient]:
    async with AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers) as client:
        yield client


async def test_offsets_are_altered_and_deleted_and_groups_too(
    admin: AIOKafkaAdminClient, kafka: Kafka, make_topic: MakeTopic
) -> None:
    group, other = new_group(), new_group()
    first, second = await filled(kafka, make_topic, [5, 5])
    await admin.groups.alter_offsets(group, {first: 2, second: OffsetAndMetadata(3, "note")})
    await admin.groups.alter_offsets(other, {first: 1})
    assert await admin.groups.offsets([group, other]) == {
        group: {first: OffsetAndMetadata(2), second: OffsetAndMetadata(3, "note")},
        other: {first: OffsetAndMetadata(1)},
    }
    with pytest.raises(UnknownTopicOrPartitionError, match="-99"):
        await admin.groups.alter_offsets(group, {TopicPartition(first.topic, 99): 1})
    await admin.groups.delete_offsets(group, [second])
    assert list((await admin.groups.offsets([group]))[group]) == [first]
    with pytest.raises(AdminItemsError) as caught:
        await admin.groups.delete([group, other, "missing"])
    assert sorted(caught.value.results) == sorted([group, other])
    assert isinstance(caught.value.errors["missing"], GroupIdNotFound)
    assert not {group, other} & (await admin.groups.list()).keys()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_with_members(
    admin: AIOKafkaAdminClient, kafka: Kafka, make_topic: MakeTopic, protocol: str
) -> None:
    group = new_group()
    first, second = await filled(kafka, make_topic, [5, 5])
    consumer = member(kafka, first.topic, group, protocol)
    await consumer.start()
    try:
        while len(consumer.assignment()) < 2:
            await asyncio.sleep(0.05)
        await consumer.commit({first: 2})
        with pytest.raises(NonEmptyGroup, match="stop its consumers"):
            await admin.groups.alter_offsets(group, {first: 1, second: 1}, timeout_ms=5000)
        with pytest.raises(NonEmptyGroup):
            await admin.groups.reset_offsets(group, ResetRule.latest())
        with pytest.raises(NonEmptyGroup):
            await admin.groups.delete([group])
        with pytest.raises(GroupSubscribedToTopic):
            await admin.groups.delete_offsets(group, [first])
        assert await admin.groups.reset_offsets(group, ResetRule.latest(), dry_run=True) == {
            first: OffsetReset(2, 5, False)
        }
        with pytest.raises(UnknownMemberIdError):
            await admin.groups.remove_members(group, instance_ids=["other"])
    finally:
        # A static member stays in the group when its consumer stops.
        await consumer.stop()
    assert len((await admin.groups.describe([group]))[group].members) == 1
    assert await admin.groups.remove_members(group, all_members=True, reason="test") == ("one",)
    assert not (await admin.groups.describe([group]))[group].members
    assert await admin.groups.reset_offsets(group, ResetRule.shift_by(-9)) == {
        first: OffsetReset(2, 0, True)
    }
    await admin.groups.delete([group])


async def test_offsets_are_reset_as_by_kafkas_own_tool(
    admin: AIOKafkaAdminClient, kafka: Kafka, make_topic: MakeTopic, scale: Scale
) -> None:
    """Compare three rules, in the long form all: each starts a JVM."""
    need_own_brokers()
    group = new_group()
    first, second, third = await filled(kafka, make_topic, [8, 5, 0])
    await admin.records.delete({first: 2})
    await admin.groups.alter_offsets(group, {first: 4, second: 4})
    when = datetime.datetime.fromtimestamp(START / 1000 + 4.5, datetime.timezone.utc)
    rules = [
        (ResetRule.timestamp(when), ["--to-datetime", f"{when:%Y-%m-%dT%H:%M:%S}.500Z"]),
        (ResetRule.shift_by(3), ["--shift-by", "3"]),
        (ResetRule.to_offset(1), ["--to-offset", "1"]),
        (ResetRule.earliest(), ["--to-earliest"]),
        (ResetRule.latest(), ["--to-latest"]),
        (ResetRule.duration(datetime.timedelta(days=9000)), ["--by-duration", "P9000D"]),
    ]
    by_commits = ResetRule.shift_by(3)  # the third partition has no commit

    two_at_a_time = asyncio.Semaphore(2)

    async def compare(rule: ResetRule, options: list[str]) -> None:
        named = [first, second] if rule == by_commits else [first, second, third]
        ours = await admin.groups.reset_offsets(group, rule, partitions=named, dry_run=True)
        async with two_at_a_time:
            theirs = await reset_by_tool(kafka, group, named, options)
        assert {tp: each.new for tp, each in ours.items()} == theirs, options

    await asyncio.gather(*(compare(*each) for each in rules[: scale(3, 6)]))


async def reset_by_tool(
    kafka: Kafka, group: str, partitions: list[TopicPartition], options: list[str]
) -> dict[TopicPartition, int]:
    """Return what Kafka's tool would set."""
    numbers = ",".join(str(tp.partition) for tp in partitions)
    output = await run_tool(
        TOOL,
        *("--bootstrap-server", kafka.bootstrap_servers, "--group", group),
        *("--topic", f"{partitions[0].topic}:{numbers}"),
        *("--reset-offsets", "--dry-run", "--export", *options),
    )
    rows = [row for row in csv.reader(output.splitlines()) if len(row) == 3]
    assert rows, output
    return {TopicPartition(row[0].strip('"'), int(row[1])): int(row[2]) for row in rows}


async def test_a_share_group(
    admin: AIOKafkaAdminClient, kafka: Kafka, make_topic: MakeTopic
) -> None:
    group = new_group()
    first, second = await filled(kafka, make_topic, [5, 5])
    client = AIOKafkaClient(bootstrap_servers=kafka.bootstrap_servers)
    await client.bootstrap()

    async def heartbeat(epoch: int) -> int:
        request = ShareGroupHeartbeatRequest(
            group_id=group,
            member_id="AAAAAAAAAAAAAAAAAAAAAA",
            member_epoch=epoch,
            subscribed_topic_names=[first.topic],
        )
        while True:
            node_id = await client.coordinator_lookup(0, group)
            response = await client.send(node_id, request)
            if response.error_code not in (14, 15, 16):  # the coordinator is yet to begin
                assert not response.error_code, response
                return int(response.member_epoch)
            await asyncio.sleep(0.1)

    try:
        epoch = await heartbeat(0)
        while len((await admin.groups.describe([group]))[group].members[0].assignment or ()) < 2:
            epoch = await heartbeat(epoch)
            await asyncio.sleep(0.1)
        found = (await admin.groups.describe([group]))[group]
        assert (found.type, found.protocol_type) == (GroupType.SHARE, "share")
        assert found.members[0].assignment == (first, second)
        assert group in await admin.groups.list(types=[GroupType.SHARE])
        with pytest.raises(NonEmptyGroup):
            await admin.groups.alter_share_offsets(group, {first: 1})
        await heartbeat(-1)
    finally:
        await client.close()
    await admin.groups.alter_share_offsets(group, {first: 3, second: 1})
    offsets = (await admin.groups.share_offsets([group]))[group]
    assert [each and each.start_offset for each in offsets.values()] == [3, 1]
    lag = (await admin.groups.lag([group], times=False))[group]
    assert lag.type is GroupType.SHARE
    assert (lag.partitions[first].committed, lag.partitions[second].committed) == (3, 1)
    await admin.groups.delete_share_offsets(group, [first.topic])
    assert not any((await admin.groups.share_offsets([group]))[group].values())
    await admin.groups.delete([group])
    with pytest.raises(GroupIdNotFound):
        await admin.groups.describe([group])


async def test_a_streams_group(
    admin: AIOKafkaAdminClient, kafka: Kafka, make_topic: MakeTopic
) -> None:
    """Its member speaks the protocol of Kafka Streams (KIP-1071) and processes nothing."""
    group = new_group()
    first, second = await filled(kafka, make_topic, [5, 5])
    topology = streams.Topology(
        epoch=3,
        subtopologies=[
            streams.Subtopology(
                subtopology_id="0",
                source_topics=[first.topic],
                source_topic_regex=[],
                state_changelog_topics=[],
                repartition_sink_topics=[],
                repartition_source_topics=[],
                copartition_groups=[],
            )
        ],
    )

    async def heartbeat(epoch: int) -> int:
        joins = epoch == 0
        none: list[streams.TaskIds] | None = [] if joins else None
        request = streams.StreamsGroupHeartbeatRequest(
            group_id=group,
            member_id="AAAAAAAAAAAAAAAAAAAAAA",
            member_epoch=epoch,
            endpoint_information_epoch=-1,
            rebalance_timeout_ms=10_000 if joins else -1,
            topology=topology if joins else None,
            active_tasks=none,
            standby_tasks=none,
            warmup_tasks=none,
            process_id="process" if joins else None,
            client_tags=[] if joins else None,
        )
        response = await admin.send(request, SendTo.coordinator(group))
        assert not response.error_code, response
        return response.member_epoch

    epoch = await heartbeat(0)
    while True:
        found = (await admin.groups.describe([group]))[group]
        (member,) = found.members
        if member.tasks is not None and member.tasks.active:
            break
        epoch = await heartbeat(epoch)
        await asyncio.sleep(0.1)
    assert (found.type, found.protocol_type) == (GroupType.STREAMS, "streams")
    assert (found.topology_epoch, found.assignor) == (3, "")
    assert member.tasks.active == {"0": (0, 1)}
    assert group in await admin.groups.list(types=[GroupType.STREAMS])
    with pytest.raises(NonEmptyGroup):
        await admin.groups.alter_offsets(group, {first: 1})
    with pytest.raises(NonEmptyGroup):
        await admin.groups.delete([group])
    await heartbeat(-1)

    assert (await admin.groups.describe([group]))[group].state is GroupState.EMPTY
    await admin.groups.alter_offsets(group, {first: 3, second: 1})
    lag = (await admin.groups.lag([group], times=False))[group]
    assert (lag.type, lag.lag) == (GroupType.STREAMS, 6)
    await admin.groups.reset_offsets(group, ResetRule.earliest(), partitions=[first])
    await admin.groups.delete_offsets(group, [second])
    assert (await admin.groups.offsets([group]))[group] == {first: OffsetAndMetadata(0)}
    await admin.groups.delete([group])
    with pytest.raises(GroupIdNotFound):
        await admin.groups.describe([group])
