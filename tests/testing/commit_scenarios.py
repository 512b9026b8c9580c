"""Dialogues about positions of groups in and beside transactions; see `scenarios`."""

from __future__ import annotations

import asyncio

from aiokafka.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from aiokafka.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState

from .group_scenarios import (
    commit,
    new_group,
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
