"""Dialogues with a group coordinator; see `scenarios`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka.protocol.messages.group_members import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    TopicPartitions,
)
from aiokafka.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from aiokafka.protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from aiokafka.protocol.messages.metadata import FindCoordinatorRequest

from .scenarios import Seen, Side, scenario
from .support import RawClient

SUBSCRIPTION = b"\x00\x00" + b"\x00\x00\x00\x00" + b"\xff\xff\xff\xff"


async def new_group(side: Side) -> str:
    """A group id whose coordinator is ready."""
    group = side.name()
    while True:
        request = FindCoordinatorRequest(key=group, key_type=0)
        if (await side.client.call(request, 3)).error_code == 0:
            break
        await asyncio.sleep(0.05)
    while True:  # found is not loaded
        probe = OffsetFetchRequest(group_id=group, topics=[])
        if (await side.client.call(probe, 5)).error_code == 0:
            return group
        await asyncio.sleep(0.05)


def join_request(
    group: str, member: str = "", *, instance: str | None = None, **options: Any
) -> JoinGroupRequest:
    names = options.pop("protocols", ("range",))
    metadata = options.pop("metadata", SUBSCRIPTION)
    fields = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 5_000,
        "protocol_type": "consumer",
        **options,
    }
    return JoinGroupRequest(
        group_id=group,
        member_id=member,
        group_instance_id=instance,
        protocols=[JoinGroupRequestProtocol(name=n, metadata=metadata) for n in names],
        **fields,
    )


async def join(
    client: RawClient, group: str, member: str = "", *, version: int = 9, **options: Any
) -> JoinGroupResponse:
    """Join, coming back with the id if that is asked for."""
    response = await client.call(join_request(group, member, **options), version)
    if response.error_code == 79:
        return await client.call(join_request(group, response.member_id, **options), version)
    return response


def joined(response: JoinGroupResponse) -> tuple[Any, ...]:
    return (
        response.error_code,
        response.generation_id,
        response.protocol_type,
        response.protocol_name,
        bool(response.member_id),
        response.leader == response.member_id,
        len(response.members),
        response.skip_assignment,
    )


async def sync(
    client: RawClient,
    group: str,
    member: str,
    generation: int,
    assignments: dict[str, bytes] | None = None,
    *,
    instance: str | None = None,
    protocol: str = "range",
) -> tuple[int, bytes]:
    request = SyncGroupRequest(
        group_id=group,
        generation_id=generation,
        member_id=member,
        group_instance_id=instance,
        protocol_type="consumer",
        protocol_name=protocol,
        assignments=[
            SyncGroupRequestAssignment(member_id=key, assignment=value)
            for key, value in (assignments or {}).items()
        ],
    )
    response = await client.call(request, 5)
    return response.error_code, response.assignment


async def beat(
    client: RawClient, group: str, member: str, generation: int, instance: str | None = None
) -> int:
    request = HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=member, group_instance_id=instance
    )
    return (await client.call(request, 4)).error_code


async def leave(
    client: RawClient, group: str, *members: tuple[str, str | None]
) -> tuple[int, list[int]]:
    request = LeaveGroupRequest(
        group_id=group,
        members=[MemberIdentity(member_id=m, group_instance_id=i) for m, i in members],
    )
    response = await client.call(request, 5)
    return response.error_code, [m.error_code for m in response.members]


async def commit(
    client: RawClient,
    group: str,
    topic: str,
    member: str = "",
    generation: int = -1,
    *,
    partition: int = 0,
    offset: int = 7,
    metadata: str = "m",
    instance: str | None = None,
) -> int:
    part = OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=3,
        committed_metadata=metadata,
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        group_instance_id=instance,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])],
    )
    return (await client.call(request, 9)).topics[0].partitions[0].error_code


async def describe(client: RawClient, group: str, version: int = 6) -> tuple[Any, ...]:
    found = (await client.call(DescribeGroupsRequest(groups=[group]), version)).groups[0]
    members = sorted(
        (m.client_id, m.client_host, m.group_instance_id, len(m.member_metadata))
        + (m.member_assignment,)
        for m in found.members
    )
    state = (found.error_code, found.group_state, found.protocol_type, found.protocol_data)
    return (*state, members)


@scenario
async def joining_alone(side: Side) -> Seen:
    group, client = await new_group(side), side.client
    asked = await client.call(join_request(group), 9)
    seen: Seen = [joined(asked)]
    member = asked.member_id
    seen.append(joined(await client.call(join_request(group, member), 9)))
    seen.append(await describe(client, group))
    seen.append(await beat(client, group, member, 1))
    seen.append(await sync(client, group, member, 0, {member: b"mine"}))
    seen.append(await sync(client, group, member, 1, {member: b"mine"}, protocol="other"))
    seen.append(await sync(client, group, "nobody", 1))
    seen.append(await sync(client, group, member, 1, {member: b"mine"}))
    seen.append(await sync(client, group, member, 1))
    seen.append(await describe(client, group))
    for who, generation in ((member, 1), (member, 2), (member, 0), ("nobody", 1), ("", 1)):
        seen.append(await beat(client, group, who, generation))
    seen.append(joined(await client.call(join_request(group, member), 9)))
    seen.append(await beat(client, group, member, 1))
    seen.append(await leave(client, group, ("nobody", None), (member, None)))
    seen.append(await beat(client, group, member, 2))
    seen.append(await describe(client, group))
    seen.append(joined(await join(client, group)))
    return seen


@scenario
async def joining_wrongly(side: Side) -> Seen:
    group, client = await new_group(side), side.client
    first = await join(client, group)
    seen: Seen = [joined(first)]
    for request in (
        join_request(""),
        join_request(group, session_timeout_ms=1),
        join_request(group, session_timeout_ms=100_000_000),
        join_request(group, "nobody"),
        join_request(group, protocols=("other",)),
        join_request(group, protocol_type="connect"),
        join_request(group, protocol_type=""),
        join_request(group, protocols=()),
    ):
        answer = await client.call(request, 9)
        seen.append((answer.error_code, answer.generation_id, answer.protocol_name))
    for version in (0, 3):
        alone = await new_group(side)
        answer = await client.call(join_request(alone), version)
        seen.append((answer.error_code, answer.generation_id, bool(answer.member_id)))
    return seen


@scenario
async def two_members(side: Side) -> Seen:
    group, client = await new_group(side), side.client
    one = await join(client, group, protocols=("range", "sticky"))
    assert await sync(client, group, one.member_id, 1, {one.member_id: b"all"})
    seen: Seen = []
    async with side.connect() as other:
        asked = await other.call(join_request(group, protocols=("sticky",)), 9)
        waiting = asyncio.create_task(
            other.call(join_request(group, asked.member_id, protocols=("sticky",)), 9)
        )
        while (error := await beat(client, group, one.member_id, 1)) == 0:
            await asyncio.sleep(0.02)
        seen.append(error)
        seen.append(await describe(client, group))
        seen.append(await sync(client, group, one.member_id, 1))
        again = await join(client, group, one.member_id, protocols=("range", "sticky"))
        two = await waiting
        seen += [joined(again), joined(two)]
        ids = sorted(m.member_id for m in again.members)
        seen.append(ids == sorted([one.member_id, two.member_id]))
        follower = asyncio.create_task(sync(other, group, two.member_id, 2, protocol="sticky"))
        seen.append(await beat(client, group, one.member_id, 2))
        given = {one.member_id: b"1", two.member_id: b"2"}
        seen.append(await sync(client, group, one.member_id, 2, given, protocol="sticky"))
        seen.append(await follower)
        seen.append(joined(await join(other, group, two.member_id, protocols=("sticky",))))
        seen.append(await leave(other, group, (two.member_id, None)))
        seen.append(await beat(client, group, one.member_id, 2))
    return seen


@scenario
async def sessions_end(side: Side) -> Seen:
    group, client = await new_group(side), side.client
    one = await join(client, group, session_timeout_ms=500)
    seen: Seen = [await sync(client, group, one.member_id, 1, {one.member_id: b"x"})]
    while (error := (await describe(client, group))[1]) == "Stable":
        await asyncio.sleep(0.1)
    seen.append(error)
    seen.append(await beat(client, group, one.member_id, 1))
    return seen


@scenario
async def static_members(side: Side) -> Seen:
    group, client = await new_group(side), side.client
    one = await join(client, group, instance="a")
    seen: Seen = [joined(one)]
    seen.append(await sync(client, group, one.member_id, 1, {one.member_id: b"x"}, instance="a"))
    again = await join(client, group, instance="a")
    seen.append(joined(again))
    seen.append(again.member_id != one.member_id)
    seen.append(await beat(client, group, one.member_id, 1, "a"))
    seen.append(await beat(client, group, again.member_id, 1, "a"))
    seen.append(await beat(client, group, again.member_id, 1, "b"))
    seen.append(await beat(client, group, again.member_id, 1))
    seen.append(await sync(client, group, again.member_id, 1, instance="a"))
    seen.append((await join(client, group, one.member_id, instance="a")).error_code)
    older = await join(client, group, instance="a", version=8)
    seen.append(joined(older))
    seen.append(older.leader in ("", older.member_id))
    seen.append(await describe(client, group))
    changed = await join(client, group, instance="a", metadata=SUBSCRIPTION + b"!")
    seen.append(joined(changed))
    seen.append(await leave(client, group, ("", "b"), ("wrong", "a"), ("", "a")))
    seen.append(await describe(client, group))
    return seen


async def fetched(side: Side, group: str, version: int, *topics: str) -> list[Any]:
    if version >= 8:
        wanted = [OffsetFetchRequestTopics(name=t, partition_indexes=[0, 1]) for t in topics]
        asked = OffsetFetchRequestGroup(group_id=group, topics=wanted or None)
        response = await side.client.call(OffsetFetchRequest(groups=[asked]), version)
        found = response.groups[0]
        entries: list[Any] = list(found.topics)
        error = found.error_code
    else:
        plain = [OffsetFetchRequestTopic(name=t, partition_indexes=[0, 1]) for t in topics]
        request = OffsetFetchRequest(group_id=group, topics=plain or None)
        answer = await side.client.call(request, version)
        entries, error = list(answer.topics), answer.error_code
    return [error] + [
        (p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code)
        for entry in entries
        for p in entry.partitions
    ]


@scenario
async def commits_without_members(side: Side) -> Seen:
    group, client, topic = await new_group(side), side.client, await side.topic()
    seen: Seen = [await fetched(side, group, version, topic) for version in (1, 5, 7, 8)]
    seen.append(await describe(client, group))
    seen.append(await commit(client, group, topic, "nobody", 3))
    seen.append(await commit(client, group, topic))
    seen.append(await commit(client, group, topic, partition=5))
    seen.append(await commit(client, group, side.name()))
    seen.append(await commit(client, group, topic, metadata="x" * 5000))
    seen += [await fetched(side, group, version, topic) for version in (1, 5, 7, 8)]
    seen += [await fetched(side, group, version) for version in (2, 7, 8)]
    seen.append(await describe(client, group))
    seen.append(await commit(client, group, topic, "somebody", -1))
    seen.append(await commit(client, "", topic))
    return seen


@scenario
async def commits_of_members(side: Side) -> Seen:
    group, client, topic = await new_group(side), side.client, await side.topic()
    one = (await join(client, group)).member_id
    seen: Seen = [await commit(client, group, topic, one, 1)]
    await sync(client, group, one, 1, {one: b"x"})
    seen.append(await commit(client, group, topic, one, 1))
    seen.append(await commit(client, group, topic, one, 2))
    seen.append(await commit(client, group, topic, one, 0))
    seen.append(await commit(client, group, topic, one, -1))
    seen.append(await commit(client, group, topic, "nobody", 1))
    seen.append(await commit(client, group, topic, "", -1))
    seen.append(await commit(client, group, topic, one, 1, instance="a"))
    async with side.connect() as other:
        waiting = asyncio.create_task(join(other, group))
        while await beat(client, group, one, 1) == 0:
            await asyncio.sleep(0.02)
        seen.append(await commit(client, group, topic, one, 1, offset=9))
        await join(client, group, one)
        await waiting
        seen.append(await commit(client, group, topic, one, 2))
        seen.append(await commit(client, group, topic, one, 1))
    seen.append(await fetched(side, group, 7, topic))
    return seen


@scenario
async def group_administration(side: Side) -> Seen:
    group, client, topic = await new_group(side), side.client, await side.topic()
    other = await side.topic()
    seen: Seen = []

    async def delete(name: str) -> None:
        answer = await client.call(DeleteGroupsRequest(groups_names=[name]), 2)
        seen.append(answer.results[0].error_code)

    async def listed(**filters: list[str]) -> None:
        found = (await client.call(ListGroupsRequest(**filters), 5)).groups
        seen.append(
            [(g.protocol_type, g.group_state, g.group_type) for g in found if g.group_id == group]
        )

    async def delete_offsets(name: str, *topics: str) -> None:
        request = OffsetDeleteRequest(
            group_id=name,
            topics=[
                OffsetDeleteRequestTopic(
                    name=t,
                    partitions=[OffsetDeleteRequestPartition(partition_index=i) for i in (0, 9)],
                )
                for t in topics
            ],
        )
        answer = await client.call(request, 0)
        codes = sorted(p.error_code for t in answer.topics for p in t.partitions)
        seen.append((answer.error_code, codes))

    await delete(group)
    await delete_offsets(group, topic)
    await listed()
    await commit(client, group, topic)
    await commit(client, group, other)
    await listed()
    await delete_offsets(group, topic)
    seen.append(await fetched(side, group, 7, topic, other))
    size = len(other).to_bytes(2, "big")
    subscription = b"\x00\x00" + b"\x00\x00\x00\x01" + size + other.encode() + b"\xff\xff\xff\xff"
    one = (await join(client, group, metadata=subscription)).member_id
    await sync(client, group, one, 1, {one: b"x"})
    await listed()
    await listed(states_filter=["Empty"])
    await listed(states_filter=["stable"])
    await listed(types_filter=["consumer"])
    await delete(group)
    await delete_offsets(group, topic, other)
    await leave(client, group, (one, None))
    await delete(group)
    seen.append(await fetched(side, group, 7, topic, other))
    for version in (5, 6):
        seen.append(await describe(client, group, version))
    return seen


# -- the next-generation protocol (KIP-848)


def told(response: ConsumerGroupHeartbeatResponse) -> tuple[Any, ...]:
    assignment = response.assignment
    return (
        response.error_code,
        response.member_epoch,
        bool(response.heartbeat_interval_ms),
        None
        if assignment is None
        else sorted(len(t.partitions) for t in assignment.topic_partitions),
    )


class NextMember:
    """A member that says only what is asked of it."""

    def __init__(self, side: Side, client: RawClient, group: str) -> None:
        self.client = client
        self.group = group
        self.member_id = side.name()

    async def beat(self, epoch: int, **fields: Any) -> tuple[Any, ...]:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=fields.pop("member_id", self.member_id),
            member_epoch=epoch,
            **fields,
        )
        return told(await self.client.call(request, 1))

    async def join(self, *topics: str, **fields: Any) -> tuple[Any, ...]:
        return await self.beat(
            0,
            rebalance_timeout_ms=5000,
            subscribed_topic_names=list(topics),
            topic_partitions=[],
            **fields,
        )


async def with_partitions(
    side: Side, begin: Callable[[NextMember], Awaitable[Seen]]
) -> tuple[NextMember, Seen]:
    """Return a member of a new group, and what it saw until its first join assigned partitions.

    A broker serves a new topic before its group coordinators have a metadata image with it. Who
    joins until then is assigned nothing, so that group counts for nothing and `begin` is repeated.
    """
    for _ in range(100):
        member = NextMember(side, side.client, await new_group(side))
        seen = await begin(member)
        if seen[-1][3]:
            return member, seen
        await member.beat(-1)
        await asyncio.sleep(0.05)
    raise AssertionError("a group coordinator does not assign partitions that a broker serves")


@scenario
async def next_generation_alone(side: Side) -> Seen:
    topic = await side.topic(4)
    [described] = await side.metadata(topic)
    owned = [TopicPartitions(topic_id=described.topic_id, partitions=[0, 1, 2, 3])]

    async def begin(one: NextMember) -> Seen:
        return [
            await one.beat(1),
            await one.beat(0, topic_partitions=[], rebalance_timeout_ms=5000),
            await one.join(topic, server_assignor="no-such"),
            await one.beat(
                0, subscribed_topic_regex="(", topic_partitions=[], rebalance_timeout_ms=5000
            ),
            await one.join(topic, member_id=""),
            await one.join(topic),
        ]

    one, seen = await with_partitions(side, begin)
    epoch = seen[-1][1]
    seen += [
        await one.beat(epoch),
        await one.beat(epoch, topic_partitions=owned),
        await one.beat(epoch + 1),
        await one.beat(epoch + 7),
        await one.beat(epoch, member_id="nobody"),
        await one.join(topic),
    ]

    async def settle(epoch: int, **fields: Any) -> int:
        """Say something new, and then nothing until the next epoch; what is assigned then."""
        answer = await one.beat(epoch, **fields)
        while answer[1] == epoch:
            await asyncio.sleep(0.05)
            answer = await one.beat(epoch, topic_partitions=[])
        again = await one.beat(answer[1], topic_partitions=[])
        seen.append((again[0], again[3]))
        return answer[1]  # type: ignore[no-any-return]

    epoch = await settle(epoch, subscribed_topic_names=[])
    epoch = await settle(epoch, topic_partitions=[], subscribed_topic_names=[topic])
    epoch = await settle(epoch, subscribed_topic_regex=topic[:-1] + ".", subscribed_topic_names=[])
    seen += [await one.beat(-1), await one.beat(epoch)]
    return seen


@scenario
async def next_generation_joins_twice(side: Side) -> Seen:
    """As a member does that got no response to its first join."""
    group, client, topic = await new_group(side), side.client, await side.topic(2)
    static, one = NextMember(side, client, group), NextMember(side, client, group)
    me = {"instance_id": "me"}
    seen: Seen = [
        (await static.join(topic, **me))[0],
        await static.join(topic, **me),
        await static.join(topic, member_id=side.name(), **me),
        await static.beat(-2, **me),
        (await static.join(topic, **me))[0],
        await static.beat(-1, **me),
    ]
    epoch = (await one.join(topic))[1]
    seen += [(await one.join(topic))[1] == epoch, (await one.beat(epoch))[0]]
    for topics in ([], [topic]):
        answer = await one.beat(epoch, subscribed_topic_names=topics, topic_partitions=[])
        while answer[1] == epoch:
            await asyncio.sleep(0.05)
            answer = await one.beat(epoch, topic_partitions=[])
        epoch = answer[1]
    # A coordinator that learns of the topic late raises the epoch once more: wait for the last one.
    while (latest := (await one.beat(epoch, topic_partitions=[]))[1]) != epoch:
        epoch = latest
    code, joined, *rest = await one.join(topic)
    seen += [code, joined == epoch, *rest, (await one.beat(epoch))[0]]
    return seen


@scenario
async def next_generation_commits(side: Side) -> Seen:
    client, topic = side.client, await side.topic(1)

    async def begin(one: NextMember) -> Seen:
        return [await one.join(topic)]

    one, seen = await with_partitions(side, begin)
    group, epoch = one.group, seen[-1][1]
    seen.append(await commit(client, group, topic, one.member_id, epoch))
    seen.append(await commit(client, group, topic, one.member_id, epoch + 1))
    seen.append(await commit(client, group, topic, "nobody", epoch))
    seen.append(await commit(client, group, topic))
    seen.append(await fetched(side, group, 8, topic))
    described = (
        await client.call(
            ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False), 1
        )
    ).groups[0]
    member = described.members[0]
    seen.append((described.error_code, described.group_state, described.assignor_name))
    seen.append((member.subscribed_topic_names == [topic], member.client_id, member.member_type))
    seen.append([len(t.partitions) for t in member.assignment.topic_partitions])
    seen.append(await beat(client, group, one.member_id, epoch))
    seen.append((await describe(client, group))[:2])
    seen.append(await one.beat(-1))
    seen.append(await commit(client, group, topic))
    seen.append((await client.call(join_request(group), 9)).error_code)
    return seen


@scenario
async def next_generation_classic_in_the_way(side: Side) -> Seen:
    group, client, topic = await new_group(side), side.client, await side.topic(1)
    one = NextMember(side, client, group)
    await commit(client, group, topic)
    seen: Seen = [(await one.join(topic))[0]]
    other = await new_group(side)
    request = ConsumerGroupDescribeRequest(group_ids=[other], include_authorized_operations=False)
    seen.append((await client.call(request, 1)).groups[0].error_code)
    return seen
