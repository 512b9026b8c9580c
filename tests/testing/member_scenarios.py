"""Dialogues of static members of the next-generation protocol (KIP-848); see `scenarios`."""

from __future__ import annotations

import asyncio

from aiokafka.protocol.messages.groups import ConsumerGroupDescribeRequest

from .group_scenarios import NextMember, leave, new_group, with_partitions
from .scenarios import Seen, Side, scenario

ME = {"instance_id": "me"}


@scenario
async def a_stranger_with_an_instance_id(side: Side) -> Seen:
    """As a member that was removed, and has a successor under its instance id."""
    group, client, topic = await new_group(side), side.client, await side.topic(1)
    former, successor = NextMember(side, client, group), NextMember(side, client, group)
    epoch = (await former.join(topic, **ME))[1]
    seen: Seen = [(await former.beat(-1, **ME))[0]]
    seen.append((await former.beat(epoch, **ME))[0])
    seen.append((await successor.join(topic, **ME))[0])
    seen.append((await former.beat(epoch, **ME))[0])
    seen.append((await former.beat(epoch))[0])
    seen.append((await former.beat(epoch, instance_id="other"))[0])
    seen.append((await former.join(topic, **ME))[0])
    seen += [(await former.beat(leaving, **ME))[0] for leaving in (-1, -2)]
    seen.append((await former.beat(-1))[0])
    return seen


@scenario
async def leaving_for_a_while_with_partitions_to_give_up(side: Side) -> Seen:
    """Others get them at once: they do not wait for the one that has left."""
    topic = await side.topic(2)

    async def begin(one: NextMember) -> Seen:
        return [await one.join(topic, **ME)]

    static, seen = await with_partitions(side, begin)
    epoch = seen[-1][1]
    other = NextMember(side, side.client, static.group)
    answer = await other.join(topic)
    seen.append(answer[0])
    other_epoch = answer[1]
    while (answer := await static.beat(epoch, **ME))[3] is None:
        await asyncio.sleep(0.05)
    seen.append(answer[3])
    seen.append((await static.beat(-2, **ME))[0])
    for _ in range(100):
        answer = await other.beat(other_epoch)
        other_epoch = answer[1]
        if answer[3]:
            break
        await asyncio.sleep(0.05)
    return [*seen, answer[3]]


@scenario
async def an_administrator_removes_members(side: Side) -> Seen:
    topic = await side.topic(1)
    group, client = await new_group(side), side.client
    one, static, other = (NextMember(side, client, group) for _ in range(3))
    epoch = (await one.join(topic))[1]
    await static.join(topic, **ME)
    await other.join(topic, instance_id="you")
    seen: Seen = []
    for who in (
        [("nobody", None)],
        [("", None)],
        [("", "nobody")],
        [(one.member_id, "me")],
        [(one.member_id, "nobody")],
        [("", "me"), (one.member_id, None)],
        [(other.member_id, None)],
        [(other.member_id, "you")],
    ):
        seen.append(await leave(client, group, *who))
    seen.append((await one.beat(epoch))[0])
    seen.append((await static.beat(epoch, **ME))[0])
    return seen


@scenario
async def places_of_static_members(side: Side) -> Seen:
    """The range assignor goes by instance ids, whatever ids the members have."""
    topic = await side.topic(5)
    ranged = {"server_assignor": "range"}

    async def begin(one: NextMember) -> Seen:
        return [await one.join(topic, **ranged)]

    dynamic, seen = await with_partitions(side, begin)
    members = [NextMember(side, side.client, dynamic.group) for _ in range(2)]
    # The first in the order of member ids is to be the last one.
    members.sort(key=lambda member: member.member_id)
    for member, instance in zip(members, "ba", strict=True):
        seen.append((await member.join(topic, instance_id=instance, **ranged))[0])
    epoch = seen[0][1]
    request = ConsumerGroupDescribeRequest(
        group_ids=[dynamic.group], include_authorized_operations=False
    )
    while True:
        described = (await side.client.call(request, 1)).groups[0]
        if described.assignment_epoch == described.group_epoch:
            break
        await asyncio.sleep(0.05)
        epoch = (await dynamic.beat(epoch))[1]  # a broker does not assign at once, nor by itself
    seen += sorted(
        (member.instance_id or "", member.target_assignment.topic_partitions[0].partitions)
        for member in described.members
    )
    return seen
