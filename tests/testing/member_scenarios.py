"""Dialogues of static members of the next-generation protocol (KIP-848); see `scenarios`."""

from __future__ import annotations

import asyncio

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
