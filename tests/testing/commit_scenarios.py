"""Dialogues about positions of groups in and beside transactions; see `scenarios`."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.protocol.messages.groups import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from aiokafka.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState

from .group_scenarios import (
    NextMember,
    beat,
    commit,
    fetched,
    join,
    new_group,
    sync,
    with_partitions,
)
from .scenarios import NO_ID, Seen, Side, create, scenario
from .transaction_scenarios import add_group, commit_offsets, new_session, settled, stable


@scenario
async def plain_and_transactional_commits(side: Side) -> Seen:
    """Of both the one that came last counts, whenever the transaction ends."""
    topic, group = await side.topic(), await new_group(side)
    one = await new_session(side, 1)
    await one.init()
    seen: Seen = []
    for in_between, afterwards in ((True, False), (False, True), (False, False)):
        await add_group(one, group)
        seen.append(await commit_offsets(one, group, topic, 5, version=3))
        if in_between:
            seen.append(await commit(side.client, group, topic, offset=7))
        seen.append(await one.end(True))
        seen.append(await settled(side, group, topic))
        if afterwards:
            seen.append(await commit(side.client, group, topic, offset=9))
            seen.append(await settled(side, group, topic))
    return seen


@scenario
async def positions_deleted_in_a_transaction(side: Side) -> Seen:
    topic, group = await side.topic(), await new_group(side)
    one = await new_session(side, 1)
    await one.init()
    await add_group(one, group)
    seen: Seen = [await commit_offsets(one, group, topic, 5, version=3)]
    partitions = [OffsetDeleteRequestPartition(partition_index=0)]
    request = OffsetDeleteRequest(
        group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
    )
    answer = await side.client.call(request, 0)
    seen.append((answer.error_code, answer.topics[0].partitions[0].error_code))
    seen.append(await stable(side, group, topic))
    seen.append(await one.end(True))
    seen.append(await settled(side, group, topic))
    return seen


@scenario
async def positions_in_a_topic_deleted_in_a_transaction(side: Side) -> Seen:
    """They are not those of another topic that is called so later."""
    topic, group = await side.topic(), await new_group(side)
    one = await new_session(side, 1)
    await one.init()
    await add_group(one, group)
    seen: Seen = [await commit_offsets(one, group, topic, 5, version=3)]
    gone = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=topic, topic_id=NO_ID)], timeout_ms=5000
    )
    seen.append((await side.client.call(gone, 6)).responses[0].error_code)
    while (await side.metadata(topic))[0].error_code == 0:
        await asyncio.sleep(0.02)
    while (await stable(side, group, topic))[1] == 88:  # until the coordinator has heard of it
        await asyncio.sleep(0.02)
    seen.append(await one.end(True))
    while (await side.client.call(create(topic), 7)).topics[0].error_code:
        await asyncio.sleep(0.02)
    seen.append(await settled(side, group, topic))
    return seen


@scenario
async def transactional_commits_while_a_group_completes(side: Side) -> Seen:
    """Plain ones wait until the leader has assigned; those in transactions do not."""
    topic, group, client = await side.topic(), await new_group(side), side.client
    one = await new_session(side, 1)
    await one.init()
    await add_group(one, group)
    member = (await join(client, group)).member_id
    named: dict[str, Any] = {"member": member, "generation": 1}
    seen: Seen = [await commit(client, group, topic, member, 1)]
    seen.append(await commit_offsets(one, group, topic, 5, version=3, **named))
    seen.append(await sync(client, group, member, 1, {member: b"x"}))
    seen.append(await commit_offsets(one, group, topic, 6, version=3, **named))
    seen.append(await one.end(True))
    seen.append(await settled(side, group, topic))
    return seen


@scenario
async def transactional_commits_keep_no_member(side: Side) -> Seen:
    topic, group, client = await side.topic(), await new_group(side), side.client
    one = await new_session(side, 1)
    await one.init()
    await add_group(one, group)
    member = (await join(client, group, session_timeout_ms=500)).member_id
    await sync(client, group, member, 1, {member: b"x"})
    named: dict[str, Any] = {"member": member, "generation": 1}
    for _ in range(50):
        codes = await commit_offsets(one, group, topic, 5, version=3, **named)
        if codes != [0]:
            break
        await asyncio.sleep(0.1)
    return [codes, await beat(client, group, member, 1)]


@scenario
async def next_generation_transactional_commits(side: Side) -> Seen:
    topic = await side.topic(1)

    async def begin(one: NextMember) -> Seen:
        return [await one.join(topic)]

    one, seen = await with_partitions(side, begin)
    group, epoch = one.group, seen[-1][1]
    session = await new_session(side, 1)
    await session.init()
    await add_group(session, group)
    for member, generation in (
        (one.member_id, epoch),
        (one.member_id, epoch + 1),
        (one.member_id, -1),
        ("nobody", epoch),
        ("", -1),
    ):
        named: dict[str, Any] = {"member": member, "generation": generation}
        seen.append(await commit_offsets(session, group, topic, 5, version=3, **named))
    seen.append(await commit(side.client, group, topic, one.member_id, epoch + 1))
    seen.append(await session.end(True))
    await settled(side, group, topic)
    seen.append(await fetched(side, group, 8, topic))
    return seen
