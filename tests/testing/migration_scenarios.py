"""Dialogues about groups with members of both protocols, and about groups that change from one to
the other; see `scenarios`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiokafka.protocol.compiler import codec
from aiokafka.protocol.messages.group_members import (
    ConsumerGroupHeartbeatRequest,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    JoinGroupResponse,
    TopicPartition,
    TopicPartitions,
)
from aiokafka.protocol.messages.groups import (
    ConsumerGroupDescribeRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

from .group_scenarios import (
    beat,
    commit,
    describe,
    fetched,
    join,
    join_request,
    joined,
    leave,
    new_group,
    sync,
)
from .scenarios import Seen, Side, scenario
from .support import RawClient

REBALANCING, MEMBER_ID_REQUIRED = 27, 79
PAUSE = 0.03


def subscription(topic: str, owned: frozenset[int] = frozenset(), version: int = 1) -> bytes:
    """What a classic member wants and has."""
    parts = [TopicPartition(topic=topic, partitions=sorted(owned))] if owned else []
    message = ConsumerProtocolSubscription(topics=[topic], owned_partitions=parts)
    body = codec(ConsumerProtocolSubscription, version).encode_bytes(message)
    return version.to_bytes(2, "big") + body


def assignment(topic: str, *numbers: int) -> bytes:
    """What the leader of a classic group assigns to a member."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartition(topic=topic, partitions=list(numbers))]
    )
    return b"\x00\x00" + codec(ConsumerProtocolAssignment, 0).encode_bytes(message)


def numbers_of(data: bytes) -> frozenset[int]:
    """The partitions of an assignment."""
    if not data:
        return frozenset()
    version = int.from_bytes(data[:2], "big")
    message = codec(ConsumerProtocolAssignment, version).decode(data, 2)
    return frozenset(p for topic in message.assigned_partitions for p in topic.partitions)


class Classic:
    """A member of the classic protocol, which has what it was assigned last."""

    def __init__(self, side: Side, client: RawClient, group: str, topic: str) -> None:
        self.side = side
        self.client = client
        self.group = group
        self.topic = topic
        self.member_id = ""
        self.generation = -1
        self.owned: frozenset[int] = frozenset()
        self.is_eager = False
        self.instance: str | None = None
        self.version = 1

    def metadata(self) -> bytes:
        owned = frozenset() if self.is_eager else self.owned
        return subscription(self.topic, owned, self.version)

    async def join(self, **options: Any) -> JoinGroupResponse:
        options.setdefault("metadata", self.metadata())
        answer = await join(
            self.client, self.group, self.member_id, instance=self.instance, **options
        )
        if not answer.error_code:
            self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    async def sync(self, shares: dict[str, bytes] | None = None, **options: Any) -> int:
        errno, data = await sync(
            self.client,
            self.group,
            self.member_id,
            self.generation,
            shares,
            instance=self.instance,
            **options,
        )
        if not errno:
            self.owned = numbers_of(data)
        return errno

    async def beat(self) -> int:
        return await beat(self.client, self.group, self.member_id, self.generation, self.instance)

    async def commit(self, **options: Any) -> int:
        return await commit(
            self.client,
            self.group,
            self.topic,
            self.member_id,
            options.pop("generation", self.generation),
            **options,
        )

    async def leave(self) -> tuple[int, list[int]]:
        return await leave(self.client, self.group, (self.member_id, self.instance))

    async def is_called(self) -> bool:
        """Whether a heartbeat calls it to join again."""
        return await self.beat() == REBALANCING

    async def follow(self) -> bool:
        """Go one step; whether there was nothing to do."""
        errno = await self.beat()
        if not errno:
            return True
        assert errno == REBALANCING, errno
        if (await self.join()).error_code:
            raise AssertionError("refused")
        await self.sync()
        return False


class Modern:
    """A member of the consumer protocol, which has what it was assigned last."""

    def __init__(self, side: Side, client: RawClient, group: str, topic: str) -> None:
        self.client = client
        self.group = group
        self.topic = topic
        self.topic_id = b""
        self.side = side
        self.member_id = side.name()
        self.epoch = 0
        self.owned: frozenset[int] = frozenset()
        self.instance: str | None = None

    async def heartbeat(self, epoch: int | None = None, **fields: Any) -> int:
        """Its error code."""
        at = self.epoch if epoch is None else epoch
        if self.owned and "topic_partitions" not in fields:
            fields["topic_partitions"] = [
                TopicPartitions(topic_id=self.topic_id, partitions=sorted(self.owned))
            ]
        elif "topic_partitions" not in fields:
            fields["topic_partitions"] = []
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=at,
            instance_id=self.instance,
            **fields,
        )
        answer = await self.client.call(request, 1)
        if not answer.error_code and at >= 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                self.owned = frozenset(
                    p for t in answer.assignment.topic_partitions for p in t.partitions
                )
        return answer.error_code

    async def join(self) -> int:
        self.owned = frozenset()
        [described] = await self.side.metadata(self.topic)
        self.topic_id = described.topic_id
        return await self.heartbeat(
            0, rebalance_timeout_ms=5000, subscribed_topic_names=[self.topic]
        )

    async def follow(self) -> bool:
        """Go one step; whether there was nothing to do."""
        before = self.epoch, self.owned
        assert not await self.heartbeat()
        return before == (self.epoch, self.owned)

    async def commit(self, **options: Any) -> int:
        epoch = options.pop("epoch", self.epoch)
        return await commit(self.client, self.group, self.topic, self.member_id, epoch, **options)

    async def leave(self) -> int:
        return await self.heartbeat(-1)


Either = Classic | Modern


async def settle(*members: Either, everything: int = 4) -> list[int]:
    """Have members follow until they share all partitions evenly; how many each has, sorted."""
    for _ in range(400):
        is_quiet = all([await member.follow() for member in members])
        shares = sorted(len(member.owned) for member in members)
        together = frozenset[int]().union(*(member.owned for member in members))
        is_even = shares[-1] - shares[0] <= 1
        if is_quiet and is_even and sum(shares) == len(together) == everything:
            return shares
        await asyncio.sleep(PAUSE)
    raise AssertionError([(member.owned, await member.follow()) for member in members])


async def until(condition: Callable[[], Any]) -> None:
    for _ in range(400):
        if await condition():
            return
        await asyncio.sleep(PAUSE)
    raise AssertionError("never")


async def kind_of(side: Side, group: str) -> tuple[Any, ...]:
    """How the group is listed, and by which calls it is described."""
    listed = (await side.client.call(ListGroupsRequest(), 5)).groups
    request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
    modern = (await side.client.call(request, 1)).groups[0]
    return (
        [(g.protocol_type, g.group_type) for g in listed if g.group_id == group],
        (await describe(side.client, group))[0],
        modern.error_code,
        sorted((m.member_type, m.instance_id, bool(m.client_id)) for m in modern.members),
    )


async def classic_group(side: Side, topic: str, count: int = 2, **attributes: Any) -> list[Classic]:
    """Members of a classic group that share four partitions."""
    group = await new_group(side)
    members = []
    for number in range(count):
        member = Classic(side, side.connect(), group, topic)
        for name, value in attributes.items():
            setattr(member, name, value)
        await member.client.__aenter__()
        members.append(member)
        if number:
            joining = asyncio.create_task(member.join())
            await until(members[0].is_called)
            await asyncio.gather(joining, *(other.join() for other in members[:-1]))
        else:
            await member.join()
    leader = members[0]
    shares = {m.member_id: assignment(topic, *range(n, 4, count)) for n, m in enumerate(members)}
    await leader.sync(shares)
    for member in members[1:]:
        await member.sync()
    return members


async def close(*members: Classic) -> None:
    for member in members:
        await member.client.__aexit__()


@scenario
async def a_classic_group_becomes_a_consumer_group_and_back(side: Side) -> Seen:
    topic = await with_old_topics(side)
    one, two = await classic_group(side, topic)
    seen: Seen = [await kind_of(side, one.group)]
    new = Modern(side, side.client, one.group, topic)
    seen.append(await new.join())
    seen.append(await kind_of(side, one.group))
    # What was assigned before is still theirs, and can be committed.
    seen += [await one.commit(offset=3), await one.beat(), await one.sync()]
    seen.append(joined(await one.join())[2:])
    seen.append(await settle(one, two, new))
    seen += [await one.commit(offset=4), await new.commit(offset=5)]
    seen += [await one.commit(generation=one.generation + 1)]
    seen += [await new.commit(epoch=new.epoch + 1)]
    seen += [await one.commit(generation=-1)]
    seen += [await commit(side.client, one.group, topic)]
    seen.append(await fetched(side, one.group, 8, topic))
    owned = one.owned
    seen.append(await new.leave())
    seen.append(await kind_of(side, one.group))
    found = await describe(side.client, one.group)
    seen.append(found[:4])
    seen.append(owned == one.owned and len(found[4]))
    seen += [await one.beat(), await one.commit(), await one.sync()]
    await close(one, two)
    return seen


@scenario
async def the_generation_after_a_downgrade(side: Side) -> Seen:
    """Members whose generation was that of the group before go on."""
    topic = await with_old_topics(side)
    one, two = await classic_group(side, topic)
    new = Modern(side, side.client, one.group, topic)
    seen: Seen = [await new.join()]
    await settle(one, two, new)
    before = one.generation
    seen.append(before == two.generation == new.epoch)
    await new.leave()
    again = [asyncio.create_task(member.join()) for member in (one, two)]
    answers = await asyncio.gather(*again)
    seen.append(sorted(joined(answer)[3:] for answer in answers))
    seen.append(one.generation == two.generation)
    seen.append(one.generation - before)
    leader = one if answers[0].members else two
    shares = {one.member_id: assignment(topic, 0, 1), two.member_id: assignment(topic, 2, 3)}
    waiting = asyncio.create_task((two if leader is one else one).sync())
    seen += [await leader.sync(shares), await waiting]
    seen += [sorted(one.owned), sorted(two.owned), await one.beat(), await one.commit()]
    seen.append(await kind_of(side, one.group))
    await close(one, two)
    return seen


@scenario
async def a_classic_member_in_a_consumer_group(side: Side) -> Seen:
    topic, group, client = await with_old_topics(side), await new_group(side), side.client
    new = Modern(side, client, group, topic)
    seen: Seen = [await new.join()]
    await settle(new)
    seen.append((await client.call(join_request(group), 9)).error_code)
    seen.append((await client.call(join_request(group, protocol_type="x"), 9)).error_code)
    seen.append((await client.call(join_request(group, protocols=()), 9)).error_code)
    one = Classic(side, client, group, topic)
    seen.append(joined(await one.join())[2:])
    seen.append(await settle(new, one))
    seen.append(await kind_of(side, group))
    seen.append(await beat(client, group, new.member_id, new.epoch))
    seen.append(await beat(client, group, one.member_id, one.generation + 1))
    seen.append(await beat(client, group, "nobody", one.generation))
    seen.append((await sync(client, group, new.member_id, new.epoch))[0])
    seen.append((await sync(client, group, one.member_id, one.generation + 1))[0])
    seen.append((await sync(client, group, one.member_id, one.generation, protocol="x"))[0])
    seen.append((await sync(client, group, "nobody", one.generation))[0])
    seen.append(await one.sync())
    seen.append((await client.call(join_request(group, protocols=("x",)), 9)).error_code)
    seen.append((await client.call(join_request(group, protocols=("x", "range")), 9)).error_code)
    seen.append((await join(client, group, metadata=b"?")).error_code)
    # Before KIP-394 a member joins with its first request.
    metadata = subscription(topic)
    answer = await client.call(join_request(group, metadata=metadata, protocols=("x", "range")), 3)
    seen.append((answer.error_code, answer.protocol_name, bool(answer.member_id), answer.members))
    seen.append((await client.call(join_request(group, "me", metadata=metadata), 9)).member_id)
    seen.append(await beat(client, group, one.member_id, one.generation, "me"))
    seen.append((await sync(client, group, one.member_id, one.generation, instance="me"))[0])
    return seen


async def with_old_topics(side: Side, partitions: int = 4) -> str:
    """A topic that the group coordinator knows by now."""
    topic = await side.topic(partitions)
    for _ in range(400):
        member = Modern(side, side.client, await new_group(side), topic)
        await member.join()
        if len(member.owned) == partitions:
            await member.leave()
            return topic
        await member.leave()
        await asyncio.sleep(PAUSE)
    raise AssertionError("a group coordinator does not assign partitions that a broker serves")


@scenario
async def a_classic_member_among_others_leaves(side: Side) -> Seen:
    topic, client = await with_old_topics(side), side.client
    one, two = await classic_group(side, topic)
    new = Modern(side, client, one.group, topic)
    seen: Seen = [await new.join(), await settle(one, two, new)]
    seen.append(await two.leave())
    seen.append(await two.leave())
    seen.append([await two.beat(), await two.commit(), await two.sync()])
    seen.append(await settle(one, new))
    seen.append(await leave(client, one.group, (new.member_id, None)))
    seen.append(await new.heartbeat())
    seen.append(await kind_of(side, one.group))
    seen.append((await describe(client, one.group))[:4])
    await close(one, two)
    return seen


@scenario
async def the_last_classic_member_leaves(side: Side) -> Seen:
    """The group stays one of the consumer protocol until others make a classic one of it."""
    topic, client = await with_old_topics(side), side.client
    [one] = await classic_group(side, topic, 1)
    group, new = one.group, Modern(side, client, one.group, topic)
    seen: Seen = [await new.join(), await settle(one, new), await one.commit(offset=9)]
    seen.append(await one.leave())
    seen.append(await settle(new))
    seen.append(await kind_of(side, group))
    seen.append(await new.leave())
    seen.append(await kind_of(side, group))
    seen.append(await fetched(side, group, 8, topic))
    seen.append(await commit(client, group, topic, offset=10))
    again = Classic(side, client, group, topic)
    seen.append(joined(await again.join())[2:])
    seen.append(await again.sync({again.member_id: assignment(topic, 0, 1, 2, 3)}))
    seen.append(await kind_of(side, group))
    seen.append(await commit(client, group, topic, offset=11))
    seen.append(await again.leave())
    seen.append(await commit(client, group, topic, offset=12))
    seen.append(await new.join())
    seen.append(await kind_of(side, group))
    seen.append(await fetched(side, group, 8, topic))
    await close(one)
    return seen


@scenario
async def members_that_leave_together(side: Side) -> Seen:
    """One request takes out a classic member and the last one of the consumer protocol."""
    topic, client = await with_old_topics(side), side.client
    one, two = await classic_group(side, topic)
    new = Modern(side, client, one.group, topic)
    seen: Seen = [await new.join(), await settle(one, two, new)]
    leaving = [(two.member_id, None), (new.member_id, None), ("nobody", None)]
    seen.append(await leave(client, one.group, *leaving))
    seen.append(await kind_of(side, one.group))
    seen.append((await describe(client, one.group))[:4])
    seen += [await one.beat(), await two.beat(), await new.heartbeat()]
    await close(one, two)
    return seen


@scenario
async def static_members_change_the_protocol(side: Side) -> Seen:
    """Each comes back under its instance id, and has what it had."""
    topic, client = await with_old_topics(side), side.client
    one, two = await classic_group(side, topic)
    for member in (one, two):
        await member.leave()
    group = one.group
    one, two = Classic(side, one.client, group, topic), Classic(side, two.client, group, topic)
    one.instance, two.instance = "one", "two"
    seen: Seen = []
    first = await one.join()
    seen.append(joined(first)[2:])
    await one.sync({one.member_id: assignment(topic, 0, 1, 2, 3)})
    joining = asyncio.create_task(two.join())
    await until(one.is_called)
    await asyncio.gather(joining, one.join())
    await one.sync({one.member_id: assignment(topic, 0, 1), two.member_id: assignment(topic, 2, 3)})
    await two.sync()
    new = Modern(side, client, group, topic)
    new.instance = "one"
    seen.append(await new.join())
    seen.append(await one.beat())
    seen.append((await one.join()).error_code)
    seen.append(await settle(new, two))
    seen.append(await kind_of(side, group))
    kept = new.owned
    # Back, while the other member is a classic one: the group becomes a classic one at once.
    again = Classic(side, one.client, group, topic)
    again.instance = "one"
    answer = await again.join()
    seen.append(joined(answer)[2:])
    seen.append(await new.heartbeat())
    seen.append(await kind_of(side, group))
    seen.append((await describe(client, group))[:4])
    seen.append(await again.sync())
    seen.append(again.owned == kept)
    seen += [await again.beat(), await two.beat()]
    await close(one, two)
    return seen


@scenario
async def what_cannot_be_upgraded(side: Side) -> Seen:
    """Groups whose members are no consumers, or do not say what they want as consumers do."""
    topic, client = await with_old_topics(side), side.client
    seen: Seen = []
    for options in (
        {"protocol_type": "connect"},
        {"metadata": b"?"},
        {"metadata": b""},
        {"metadata": subscription(topic, version=0)},
        {"metadata": subscription(topic, version=3)},
    ):
        group = await new_group(side)
        answer = await join(client, group, **options)
        seen.append(answer.error_code)
        new = Modern(side, client, group, topic)
        # Between JoinGroup and SyncGroup, and with an assignment.
        seen.append(await new.join())
        seen.append(await kind_of(side, group))
        if not seen[-2]:
            seen.append(await beat(client, group, answer.member_id, answer.generation_id))
            continue
        share = {answer.member_id: b"?"}
        errno, _ = await sync(client, group, answer.member_id, answer.generation_id, share)
        seen.append(errno)
        seen.append(await new.join())
    for share in (b"", b"?", assignment(topic, 0, 1), assignment(topic, 0, 9)):
        group = await new_group(side)
        answer = await join(client, group, metadata=subscription(topic))
        seen.append((await sync(client, group, answer.member_id, 1, {answer.member_id: share}))[0])
        new = Modern(side, client, group, topic)
        seen.append(await new.join())
        seen.append(await kind_of(side, group))
    return seen


@scenario
async def requests_that_wait_while_the_group_is_upgraded(side: Side) -> Seen:
    topic, client = await with_old_topics(side), side.client
    one, two = await classic_group(side, topic)
    joining = asyncio.create_task(join(two.client, one.group, metadata=subscription(topic)))
    await until(one.is_called)
    new = Modern(side, client, one.group, topic)
    seen: Seen = [await new.join()]
    seen.append((await joining).error_code)
    seen += [await one.beat(), await two.beat()]
    seen.append(await kind_of(side, one.group))
    await close(one, two)
    [one] = await classic_group(side, topic, 1)
    async with side.connect() as other:
        two = Classic(side, other, one.group, topic)
        joining = asyncio.create_task(two.join())
        await until(one.is_called)
        await asyncio.gather(joining, one.join())
        syncing = asyncio.create_task(two.sync())
        await asyncio.sleep(0.1)
        new = Modern(side, client, one.group, topic)
        seen += [await new.join(), await syncing, await one.beat(), await two.beat()]
        seen.append(await kind_of(side, one.group))
    await close(one)
    return seen


@scenario
async def offsets_of_a_mixed_group(side: Side) -> Seen:
    topic, client = await with_old_topics(side), side.client
    other = await side.topic(1)
    [one] = await classic_group(side, topic, 1)
    group, new = one.group, Modern(side, client, one.group, topic)
    seen: Seen = [await new.join(), await settle(one, new)]
    seen += [await one.commit(partition=0), await new.commit(partition=1)]
    seen.append(await one.commit(generation=one.generation + 1))
    seen.append(await new.commit(epoch=new.epoch + 1))
    seen.append(await commit(client, group, topic, one.member_id, -1))
    seen.append(await commit(client, group, topic))

    async def delete(*topics: str) -> None:
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=t, partitions=[OffsetDeleteRequestPartition(partition_index=0)]
                )
                for t in topics
            ],
        )
        answer = await client.call(request, 0)
        seen.append([p.error_code for t in answer.topics for p in t.partitions])

    await delete(topic, other)
    seen.append(await fetched(side, group, 8, topic))
    seen.append(await new.leave())
    await delete(topic, other)
    seen.append(await commit(client, group, topic))
    await until(one.is_called)
    await one.join()
    await one.sync({one.member_id: assignment(topic, 0)})
    seen.append(await one.commit(partition=0, offset=8))
    await delete(topic, other)
    seen.append(await one.leave())
    await delete(topic, other)
    seen.append(await fetched(side, group, 8, topic))
    await close(one)
    return seen


@scenario
async def an_eager_member_in_a_mixed_group(side: Side) -> Seen:
    """It claims nothing when it joins, so what it has to give up is free at once."""
    topic, client = await with_old_topics(side), side.client
    [one] = await classic_group(side, topic, 1, is_eager=True, version=0)
    new = Modern(side, client, one.group, topic)
    seen: Seen = [await new.join()]
    await until(one.is_called)
    while len(one.owned) == 4:
        await one.join()
        await one.sync()
        await asyncio.sleep(PAUSE)
    seen.append(len(one.owned))
    while not new.owned:
        await new.heartbeat()
        await asyncio.sleep(PAUSE)
    seen += [len(new.owned), not new.owned & one.owned, await one.beat()]
    await close(one)
    return seen


@scenario
async def a_cooperative_member_in_a_mixed_group(side: Side) -> Seen:
    """What it claims is free when it joins without it."""
    topic, client = await with_old_topics(side), side.client
    [one] = await classic_group(side, topic, 1)
    new = Modern(side, client, one.group, topic)
    seen: Seen = [await new.join()]
    await until(one.is_called)
    while True:
        await one.join(metadata=subscription(topic, frozenset(range(4))))
        if not await one.sync() and len(one.owned) == 2:
            break
        await asyncio.sleep(PAUSE)
    seen += [await one.beat(), await one.commit(), await new.heartbeat(), len(new.owned)]
    before = one.generation
    # It does not give up what it has lost.
    answer = await one.join(metadata=subscription(topic, frozenset(range(4))))
    seen += [answer.error_code, one.generation == before, await one.sync(), len(one.owned)]
    seen += [await one.beat(), await new.heartbeat(), len(new.owned)]
    await one.join()
    seen += [one.generation > before, await one.sync(), len(one.owned), await one.beat()]
    seen += [await new.heartbeat(), len(new.owned)]
    await close(one)
    return seen


async def policy_dialogue(side: Side) -> Seen:
    """What `group.consumer.migration.policy` decides."""
    topic, client = await with_old_topics(side), side.client
    [one] = await classic_group(side, topic, 1)
    new = Modern(side, client, one.group, topic)
    seen: Seen = [await new.join(), await kind_of(side, one.group)]
    seen.append(await one.beat())
    await close(one)
    group = await new_group(side)
    new = Modern(side, client, group, topic)
    seen.append(await new.join())
    old = Classic(side, client, group, topic)
    seen.append((await old.join()).error_code)
    if not seen[-1]:
        seen.append(await settle(old, new))
    seen.append(await kind_of(side, group))
    seen.append(await new.leave())
    seen.append(await kind_of(side, group))
    old = Classic(side, client, group, topic)
    seen.append((await old.join()).error_code)
    return seen


@scenario
async def a_static_member_comes_back_before_others_have_their_share(side: Side) -> Seen:
    """Nobody is told to join again, so who waited for its share has to ask for it."""
    topic, client = await with_old_topics(side), side.client
    group = await new_group(side)
    new = Modern(side, client, group, topic)
    new.instance = "new"
    seen: Seen = [await new.join()]
    await settle(new)
    one = Classic(side, client, group, topic)
    one.instance = "one"
    seen.append((await one.join()).error_code)
    while not (await one.sync() == 0 and len(one.owned) == 0 and len(new.owned) == 2):
        if await one.is_called():
            await one.join()
        await new.heartbeat(topic_partitions=None)
        await asyncio.sleep(PAUSE)
    seen.append(await new.heartbeat(-2, topic_partitions=None))
    again = Classic(side, client, group, topic)
    again.instance = "new"
    seen.append((await again.join()).error_code)
    seen += [await again.sync(), len(again.owned)]
    seen.append((await describe(client, group))[:4])
    seen += [await one.beat(), await one.beat(), await one.sync(), len(one.owned)]
    # With news, all join again.
    changed = subscription(topic, again.owned) + b"!"
    rejoin = join(client, group, again.member_id, instance="new", metadata=changed)
    joining = asyncio.create_task(rejoin)
    async with side.connect() as other:
        while not (errno := await beat(other, group, one.member_id, one.generation, "one")):
            await asyncio.sleep(PAUSE)
        seen.append(errno)
        one.client = other
        await one.join()
        seen.append((await joining).error_code)
    return seen
