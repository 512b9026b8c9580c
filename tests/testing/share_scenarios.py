"""Dialogues of share groups (KIP-932); see `scenarios`."""

from __future__ import annotations

import asyncio

from aiokafka.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from aiokafka.protocol.messages.share_groups import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    ShareGroupDescribeRequest,
)
from aiokafka.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)

from .group_scenarios import join
from .scenarios import NO_ID, Seen, Side, scenario
from .share_dialogue import (
    ACCEPT,
    FINAL,
    GAP,
    LEAVING,
    REJECT,
    RELEASE,
    RENEW,
    Place,
    ShareMember,
    fill,
    new_share_group,
    set_group,
    share_topic,
)
from .transaction_scenarios import new_session

UNKNOWN_ERROR, UNKNOWN_TOPIC = -1, 3
LOCK_MS = 1000
"""The shortest lock that the test broker allows."""


async def ready(side: Side, *sizes: int, **settings: object) -> tuple[str, Place, ShareMember]:
    """Return a topic with batches of these sizes, its only partition, and a member of a new group
    that is assigned the partition and has opened a share session."""
    name, topic_id = await share_topic(side)
    member = ShareMember(side.client, await new_share_group(side, **settings))
    await member.join(name)
    place = topic_id, 0
    await member.load(place)
    await fill(side, name, *sizes)
    return name, place, member


async def offsets(side: Side, group: str, *topics: str) -> Seen:
    """Return (topic number, index, start offset, lag, error) of a group's partitions."""
    wanted = [
        DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[0, 1]) for name in topics
    ]
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=wanted or None)
    response = await side.client.call(DescribeShareGroupOffsetsRequest(groups=[asked]), 1)
    [found] = response.groups
    return [
        found.error_code,
        [
            (number, part.partition_index, part.start_offset, part.lag, part.error_code)
            for number, topic in enumerate(found.topics)
            for part in topic.partitions
        ],
    ]


@scenario
async def share_heartbeats(side: Side) -> Seen:
    name, _ = await share_topic(side, 2)
    group = await new_share_group(side)
    member = ShareMember(side.client, group)
    seen: Seen = [
        (await member.heartbeat(name, epoch=5)).error_code,
        (await member.heartbeat(epoch=0)).error_code,
        (await member.heartbeat(name, epoch=-2)).error_code,
        (await member.heartbeat(epoch=LEAVING)).error_code,
        (await member.heartbeat(name, rack_id="")).error_code,
        (await ShareMember(side.client, "").heartbeat(name)).error_code,
        (await ShareMember(side.client, group, "").heartbeat(name)).error_code,
        (await ShareMember(side.client, group, "x" * 37).heartbeat(name)).error_code,
    ]
    first = await member.heartbeat(name)
    seen += [first.error_code, first.member_id == member.member_id, first.assignment is not None]
    await member.join(name, partitions=2)
    seen += [len(member.assigned), (await member.heartbeat()).assignment]
    full = await member.heartbeat(name)
    seen += [full.assignment is not None]
    seen += [(await member.heartbeat(epoch=e)).error_code for e in (1000, -1, -1)]
    other = ShareMember(side.client, group)
    seen += [(await other.heartbeat(epoch=LEAVING)).error_code]
    seen += [(await other.heartbeat(side.name())).error_code, other.assigned]
    return seen


@scenario
async def share_assignment(side: Side) -> Seen:
    """More members than partitions: each has a partition, and all have the same topics."""
    name, topic_id = await share_topic(side, 3)
    group = await new_share_group(side, share_assignment_interval_ms=0)
    members = [ShareMember(side.client, group, f"member-{i}") for i in range(5)]
    for member in members:
        await member.join(name)
    for _ in range(2):
        for member in members:
            await member.heartbeat()
    found = [sorted(index for _, index in member.assigned) for member in members]
    everything = {index for indexes in found for index in indexes}
    assert all(known == topic_id for member in members for known, _ in member.assigned)
    await members[0].heartbeat(epoch=LEAVING)
    for member in members[1:]:
        await member.heartbeat()
    left = {index for member in members[1:] for _, index in member.assigned}
    return [all(found), everything, left]


@scenario
async def share_descriptions(side: Side) -> Seen:
    name, _, member = await ready(side, 1)
    group = member.group
    seen: Seen = []

    async def describe() -> None:
        request = ShareGroupDescribeRequest(
            group_ids=[group, side.name()], include_authorized_operations=True
        )
        groups = (await side.client.call(request, 1)).groups
        for found in sorted(groups, key=lambda each: each.error_code):
            members = [
                (
                    each.member_id == member.member_id,
                    each.rack_id,
                    each.member_epoch == member.epoch,
                    each.client_id,
                    each.client_host,
                    each.subscribed_topic_names == [name],
                    [
                        (t.topic_name == name, t.partitions)
                        for t in each.assignment.topic_partitions
                    ],
                )
                for each in found.members
            ]
            seen.append(
                (
                    found.error_code,
                    found.group_state,
                    found.assignor_name,
                    found.authorized_operations,
                    members,
                )
            )
        for types in ([], ["share"], ["Share"], ["classic"]):
            listing = ListGroupsRequest(states_filter=[], types_filter=types)
            listed = (await side.client.call(listing, 5)).groups
            seen.append(
                [
                    (each.protocol_type, each.group_state, each.group_type)
                    for each in listed
                    if each.group_id == group
                ]
            )
        classic = DescribeGroupsRequest(groups=[group], include_authorized_operations=False)
        for version in (5, 6):
            [as_classic] = (await side.client.call(classic, version)).groups
            seen.append((as_classic.error_code, as_classic.group_state))

    await describe()
    seen.append((await join(side.client, group)).error_code)
    deletion = DeleteGroupsRequest(groups_names=[group])
    seen.append((await side.client.call(deletion, 2)).results[0].error_code)
    await member.heartbeat(epoch=LEAVING)
    await describe()
    seen.append((await side.client.call(deletion, 2)).results[0].error_code)
    seen.append((await side.client.call(deletion, 2)).results[0].error_code)
    return seen


@scenario
async def share_sessions(side: Side) -> Seen:
    _, place, member = await ready(side)
    _, other_id = await share_topic(side, 2)
    seen: Seen = [
        await member.take(epoch=7),
        await member.take(epoch=0, acks={place: [(0, 0, ACCEPT)]}),
        await member.settle(place, (0, 0, ACCEPT), epoch=0),
        await member.settle(place, (0, 0, ACCEPT), epoch=9),
        await member.take((other_id, 7)),
        await member.take(forget=((other_id, 7),)),
        await member.take(),
        await member.take((other_id, 0), max_wait_ms=1000),
    ]
    stranger = ShareMember(side.client, member.group)
    for epoch in (FINAL, 1):
        seen.append(await stranger.take(epoch=epoch))
        seen.append(await stranger.settle(place, (0, 0, ACCEPT), epoch=epoch))
    seen.append(await ShareMember(side.client, member.group, "").take(place))
    seen.append(await ShareMember(side.client, member.group, "x" * 37).take(place))
    seen += [await member.take(epoch=FINAL), await member.take(epoch=FINAL), await member.take()]
    return seen


@scenario
async def share_acknowledgements(side: Side) -> Seen:
    name, place, member = await ready(side, 3, 5, 2)
    seen: Seen = [await member.take(max_wait_ms=500, min_bytes=1), await member.take()]
    for acks in (
        [(0, 2, ACCEPT)],
        [(0, 2, ACCEPT)],  # before the start offset
        [(4, 4, ACCEPT)],
        [(4, 4, ACCEPT)],  # twice
        [(3, 5, ACCEPT, ACCEPT, ACCEPT)],  # one of them twice: none is accepted
        [(3, 3, ACCEPT), (3, 3, ACCEPT)],
        [(5, 3, ACCEPT)],
        [(3, 3)],
        [(3, 5, ACCEPT, ACCEPT)],
        [(3, 3, 5)],
        [(3, 3, -1)],
        [(3, 3, RENEW)],
        [(5, 5, ACCEPT), (3, 3, ACCEPT)],
        [(6, 12, ACCEPT)],
        [(12, 12, ACCEPT)],
        [],
        [(3, 3, RELEASE), (5, 6, REJECT, GAP)],
    ):
        seen.append((acks, await member.settle(place, *acks)))
        seen.append(await offsets(side, member.group))
    seen.append(await member.settle((NO_ID, 0), (0, 0, ACCEPT)))
    seen.append(await member.settle((place[0], 5), (0, 0, ACCEPT)))
    seen.append(await member.take())
    stranger = ShareMember(side.client, member.group)
    await stranger.take(place)
    seen.append(await stranger.settle(place, (3, 3, ACCEPT)))
    seen.append(await stranger.settle(place, (3, 9, ACCEPT)))
    seen.append(await member.take(acks={place: [(3, 3, ACCEPT), (7, 9, ACCEPT)]}))
    seen.append(await offsets(side, member.group))
    seen.append(await member.take(acks={place: [(3, 3, ACCEPT)]}))
    await fill(side, name, 1)
    seen.append(await member.take())
    seen.append(await member.take(acks={place: [(10, 10, RELEASE)]}, max_wait_ms=3000))
    return seen


@scenario
async def share_batches(side: Side) -> Seen:
    """Limits of records, bytes and batch sizes; the acquire mode record_limit."""
    seen: Seen = []
    for options in (
        {"max_records": 1},
        {"max_records": 4},
        {"max_records": 5, "exact": True},
        {"max_records": 2, "exact": True},
        {"batch_size": 1},
        {"batch_size": 3},
        {"max_bytes": 1},
        {"max_bytes": 100},
        {"max_records": 0},
        {"max_bytes": 0},
        {"exact": True, "max_records": 1, "version": 1},
    ):
        _, place, member = await ready(side, 1, 3, 1, 4, 1)
        for _ in range(3):
            options = {"max_wait_ms": 100, **options}
            seen.append((options, await member.take(**options)))
        seen.append(await member.settle(place, (0, 0, RELEASE)))
        seen.append(await member.take(**options))
    return seen


@scenario
async def share_exact_limits(side: Side) -> Seen:
    _, place, member = await ready(side, 10, 10)
    other = ShareMember(side.client, member.group)
    await other.open(place)
    seen: Seen = [
        await member.take(max_records=4, exact=True),
        await other.take(max_records=3, exact=True),
        await member.take(max_records=2),
        await other.take(max_records=1),
        await member.settle(place, (0, 3, RELEASE)),
        await other.take(max_records=2, exact=True),
        await other.take(max_records=9, exact=True),
        await other.settle(place, (0, 1, ACCEPT), (4, 6, RELEASE)),
        await member.take(max_records=100, exact=True),
        await offsets(side, member.group),
    ]
    return seen


@scenario
async def share_deliveries(side: Side) -> Seen:
    """A released record is delivered up to the limit, then archived; batches become smaller."""
    seen: Seen = []
    for limit in (2, 3, 5):
        _, place, member = await ready(side, 4, 2, share_delivery_count_limit=limit)
        for _ in range(3 * limit):
            [*found] = await member.take()
            seen.append(found)
            for part in found:
                for first, last, _ in part[3]:
                    seen.append(await member.settle(place, (first, last, RELEASE)))
        seen.append(await offsets(side, member.group))
    return seen


@scenario
async def share_lock_timeouts(side: Side) -> Seen:
    _, place, member = await ready(side, 2, 2, share_record_lock_duration_ms=LOCK_MS)
    other = ShareMember(side.client, member.group)
    await other.open(place)
    seen: Seen = [await member.take()]
    seen.append(await member.settle(place, (1, 1, ACCEPT)))
    redelivered: set[tuple[int, int]] = set()
    while len(redelivered) < 3:  # each batch may time out on its own
        for part in await other.take(max_wait_ms=5000):
            for first, last, count in part[3]:
                redelivered |= {(offset, count) for offset in range(first, last + 1)}
    seen.append(redelivered)
    seen.append(await member.settle(place, (0, 0, ACCEPT)))
    seen.append(await other.settle(place, (0, 0, ACCEPT)))
    seen.append(await offsets(side, member.group))
    return seen


@scenario
async def share_renewals(side: Side) -> Seen:
    name, place, member = await ready(side, 2, 2, share_record_lock_duration_ms=6 * LOCK_MS)
    other = ShareMember(side.client, member.group)
    await other.open(place)
    seen: Seen = [
        await member.take(),
        await member.settle(place, (0, 1, RENEW)),
        await member.settle(place, (0, 1, RENEW), renews=True, version=2),
    ]
    for _ in range(4):
        await asyncio.sleep(1.8)
        acks = {place: [(0, 1, RENEW)]}
        seen.append(await member.settle(place, (0, 1, RENEW), renews=True))
        seen.append(await member.take(renews=True, acks=acks))
    await fill(side, name, 1)
    seen += [
        await other.take(max_wait_ms=9000),
        await member.settle(place, (2, 2, RENEW), renews=True),
        await member.settle(place, (0, 1, ACCEPT), renews=True),
    ]
    request = await member.fetch(acks={place: [(0, 0, RENEW)]}, max_records=1)
    seen.append(request.error_code)
    await set_group(side, member.group, share_renew_acknowledge_enable="false")
    seen.append(await other.settle(place, (4, 4, RENEW), renews=True))
    return seen


@scenario
async def share_members_that_leave(side: Side) -> Seen:
    """The end of a session or of its connection releases records; leaving the group does not."""
    name, place, member = await ready(side, 2, 3)
    seen: Seen = []
    async with side.connect() as connection:
        other = ShareMember(connection, member.group)
        await other.open(place)
        seen.append(await other.take())
        seen.append(await other.take(epoch=FINAL, acks={place: [(0, 1, ACCEPT)]}))
        seen.append(await member.take(max_wait_ms=3000))
        seen.append(await member.settle(place, (2, 4, RELEASE)))
        other.session_epoch = 0
        await other.open(place)
        seen.append(await other.take())
    seen.append(await member.take(max_wait_ms=3000))
    await member.heartbeat(epoch=LEAVING)
    third = ShareMember(side.client, member.group)
    await third.join(name)
    await third.open(place)
    seen.append(await third.take())
    seen.append(await member.settle(place, (2, 2, ACCEPT), epoch=FINAL))
    seen.append(await third.take(max_wait_ms=3000))
    return seen


@scenario
async def share_reloaded_state(side: Side) -> Seen:
    """A leader that has forgotten the locks continues from the stored state, which has gaps."""
    seen: Seen = []
    for acks, options in (
        ([(3, 5, ACCEPT)], {}),
        ([(3, 5, ACCEPT)], {"max_records": 1}),
        ([(1, 1, ACCEPT), (4, 4, RELEASE)], {}),
        ([(1, 1, ACCEPT), (4, 4, RELEASE)], {"max_records": 2, "exact": True}),
        ([(0, 2, REJECT), (4, 4, RELEASE), (7, 8, ACCEPT)], {"max_records": 4}),
        ([(0, 1, ACCEPT)], {"max_bytes": 1}),
    ):
        name, topic_id = await share_topic(side)
        place = topic_id, 0
        group = await new_share_group(side)
        member = ShareMember(side.client, group)
        await member.join(name)
        async with side.connect() as connection:
            member.client = connection
            await member.load(place)
            await fill(side, name, 3, 3, 3, 1)
            seen.append(await member.take())
            seen.append(await member.settle(place, *acks))
            # A session without partitions releases nothing when it ends with its connection.
            member.session_epoch = 0
            seen.append(await member.take())
        await asyncio.sleep(0.1)
        member.client = side.client
        member.session_epoch = 0
        seen.append(await member.take(place, max_wait_ms=1000, **options))
        for _ in range(5):
            # Without a wait, a busy broker may return nothing although there are records.
            seen.append(await member.take(max_wait_ms=300, **options))
        seen.append(await member.settle(place, (2, 2, ACCEPT)))
        seen.append(await offsets(side, group))
    return seen


@scenario
async def share_isolation(side: Side) -> Seen:
    """Transactions that are open, committed and aborted; markers are gaps."""
    seen: Seen = []
    for level in ("read_uncommitted", "read_committed"):
        name, place, member = await ready(side, 2, share_isolation_level=level)
        producer = await new_session(side, 1)
        await producer.init()
        sequence = 0
        for commit in (True, False):
            await producer.add(name)
            for _ in range(3):
                await producer.produce(name, sequence)
                sequence += 1
            seen.append(await member.take(max_wait_ms=100))
            await fill(side, name, 1)
            seen.append(await member.take(max_wait_ms=100))
            await producer.end_stable(commit, name)
            seen.append(await member.take(max_wait_ms=500))
        seen.append(await offsets(side, member.group))
        seen.append(await member.settle(place, (0, 5, ACCEPT)))
        seen.append(await member.settle(place, (0, 0, ACCEPT), (2, 4, RELEASE)))
        seen.append(await member.take())
        seen.append(await offsets(side, member.group))
    return seen


@scenario
async def share_locks_in_flight(side: Side) -> Seen:
    """The limit of in-flight records."""
    _, place, member = await ready(side, *[60] * 4, share_partition_max_record_locks=100)
    return [
        await member.take(),
        await member.take(),
        await member.settle(place, (60, 119, ACCEPT)),
        await member.take(),
        await member.settle(place, (10, 19, RELEASE)),
        await member.take(),
        await member.settle(place, (0, 59, ACCEPT)),
        await member.take(),
        await offsets(side, member.group),
    ]


@scenario
async def share_deleted_records(side: Side) -> Seen:
    name, place, member = await ready(side, 2, 3, 2)
    seen: Seen = [await member.take(max_records=3)]
    seen.append(await member.settle(place, (0, 1, RELEASE)))
    partition = DeleteRecordsPartition(partition_index=0, offset=4)
    topic = DeleteRecordsTopic(name=name, partitions=[partition])
    await side.client.call(DeleteRecordsRequest(topics=[topic], timeout_ms=5000), 2)
    seen.append(await member.take())
    seen.append(await member.take())
    for acks in ([(2, 4, ACCEPT)], [(2, 3, ACCEPT)], [(5, 6, ACCEPT)]):
        seen.append(await member.settle(place, *acks))
        seen.append(await offsets(side, member.group))
    seen.append(await member.take())
    return seen


@scenario
async def share_deleted_topic(side: Side) -> Seen:
    name, _, member = await ready(side, 2)
    seen: Seen = [await member.take()]
    deletion = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=NO_ID)], timeout_ms=5000
    )
    await side.client.call(deletion, 6)
    while (await side.metadata(name))[0].error_code != UNKNOWN_TOPIC:
        await asyncio.sleep(0.05)
    # A broker fails, or tells UNKNOWN_TOPIC_OR_PARTITION, as its caches are.
    [found] = await member.take()
    seen.append(found == UNKNOWN_ERROR or found[1] == UNKNOWN_TOPIC)
    member.session_epoch = 0
    seen += [await member.take(), await member.take(epoch=FINAL)]
    return seen


@scenario
async def share_offsets(side: Side) -> Seen:
    name, place, member = await ready(side, 3, 3)
    group, other = member.group, side.name()
    seen: Seen = [await offsets(side, group), await offsets(side, side.name())]

    async def alter(group: str, topic: str, *starts: int) -> None:
        parts = [
            AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=start)
            for index, start in enumerate(starts)
        ]
        topics = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=parts)]
        request = AlterShareGroupOffsetsRequest(group_id=group, topics=topics)
        response = await side.client.call(request, 0)
        found = [p.error_code for t in response.responses for p in t.partitions]
        seen.append((response.error_code, found))

    async def delete(group: str, *topics: str) -> None:
        named = [DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in topics]
        request = DeleteShareGroupOffsetsRequest(group_id=group, topics=named)
        response = await side.client.call(request, 0)
        seen.append((response.error_code, [t.error_code for t in response.responses]))

    await alter(group, name, 1)
    await delete(group, name)
    await member.take()
    await member.settle(place, (0, 0, ACCEPT))
    await member.heartbeat(epoch=LEAVING)
    await alter(group, name, 1, 5)
    seen.append(await offsets(side, group))
    await alter(group, side.name(), 1)
    seen.append(await member.settle(place, (1, 1, ACCEPT)))
    seen.append(await member.take(max_wait_ms=500))
    await alter(other, name, 4)
    seen.append(await offsets(side, other))
    await delete(side.name(), name)
    await delete(group, name, side.name())
    await delete(group, name)
    seen.append(await offsets(side, group))
    return seen


@scenario
async def share_reset_strategies(side: Side) -> Seen:
    seen: Seen = []
    for strategy in ("latest", "earliest", "by_duration:PT1H"):
        name, topic_id = await share_topic(side)
        await fill(side, name, 2)
        group = await new_share_group(side, share_auto_offset_reset=strategy)
        member = ShareMember(side.client, group)
        await member.join(name)
        seen.append(await member.take((topic_id, 0), max_wait_ms=1000))
        await fill(side, name, 1)
        seen.append(await member.take(max_wait_ms=1000))
    group = await new_share_group(side)
    for name, value in (
        ("share_auto_offset_reset", "newest"),
        ("share_auto_offset_reset", "by_duration:1H"),
        ("share_isolation_level", "serializable"),
        ("share_isolation_level", "read_committed"),
        ("share_delivery_count_limit", "many"),
        ("share_renew_acknowledge_enable", "perhaps"),
        ("share_nothing", "1"),
    ):
        seen.append((name, value, await set_group(side, group, **{name: value})))
    return seen
