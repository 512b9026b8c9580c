"""Dialogues with a transaction coordinator; see `scenarios`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiokafka.protocol.messages.groups import ListGroupsRequest
from aiokafka.protocol.messages.metadata import FindCoordinatorRequest
from aiokafka.protocol.messages.produce import InitProducerIdRequest
from aiokafka.protocol.messages.transaction_admin import DescribeTransactionsRequest
from aiokafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from .group_scenarios import fetched, join, new_group, sync
from .scenarios import Seen, Side, scenario
from .support import batch, produce_request

CONCURRENT = 51


class Session:
    """A transactional producer that says only what is asked of it."""

    def __init__(self, side: Side, name: str, version: int) -> None:
        self.side = side
        self.name = name
        self.second = version == 2  # of transactions (KIP-890)
        self.pid = -1
        self.epoch = -1

    async def init(
        self, pid: int = -1, epoch: int = -1, *, timeout_ms: int = 60_000, version: int = 4
    ) -> tuple[int, int]:
        """(error, epoch); waits while the former transaction is being ended."""
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=timeout_ms,
            producer_id=pid,
            producer_epoch=epoch,
        )
        while True:
            answer = await self.side.client.call(request, version)
            if answer.error_code not in (14, 16, CONCURRENT):
                break
            await asyncio.sleep(0.02)
        if answer.error_code == 0:
            self.pid, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code, answer.producer_epoch

    async def add(
        self, *topics: str, partition: int = 0, version: int = 3, **other: Any
    ) -> list[int]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=other.get("name", self.name),
            v3_and_below_producer_id=other.get("pid", self.pid),
            v3_and_below_producer_epoch=other.get("epoch", self.epoch),
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=[partition]) for topic in topics
            ],
        )
        while True:
            answer = await self.side.client.call(request, version)
            codes = [
                p.partition_error_code
                for t in answer.results_by_topic_v3_and_below
                for p in t.results_by_partition
            ]
            if CONCURRENT not in codes:
                return sorted(codes)
            await asyncio.sleep(0.02)

    async def produce(
        self, topic: str, sequence: int, *, epoch: int | None = None, version: int | None = None
    ) -> int:
        records = batch(
            b"x",
            pid=self.pid,
            epoch=self.epoch if epoch is None else epoch,
            sequence=sequence,
            transactional=True,
            timestamp=int(time.time() * 1000),
        )
        if version is None:
            version = 12 if self.second else 10
        request = produce_request(topic, records, transactional_id=self.name)
        while True:
            answer = await self.side.client.call(request, version)
            error = answer.responses[0].partition_responses[0].error_code
            if error != CONCURRENT:
                return error
            await asyncio.sleep(0.02)

    async def end(
        self, commit: bool, *, epoch: int | None = None, version: int | None = None
    ) -> tuple[int, int]:
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.pid,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=commit,
        )
        if version is None:
            version = 5 if self.second else 3
        while True:
            answer = await self.side.client.call(request, version)
            if answer.error_code != CONCURRENT:
                break
            await asyncio.sleep(0.02)
        if answer.error_code == 0 and answer.producer_id != -1:
            self.pid, self.epoch = answer.producer_id, answer.producer_epoch
        return answer.error_code, answer.producer_epoch

    async def end_stable(self, commit: bool, topic: str) -> tuple[int, int]:
        """End, and wait until the markers are in the log."""
        answer = await self.end(commit)
        while True:
            seen = await self.side.fetch(topic)
            if seen[1] == seen[2]:
                return answer
            await asyncio.sleep(0.02)


async def new_session(side: Side, version: int) -> Session:
    name = side.name()
    while True:
        request = FindCoordinatorRequest(key=name, key_type=1)
        if (await side.client.call(request, 3)).error_code == 0:
            return Session(side, name, version)
        await asyncio.sleep(0.05)


@scenario
async def transactions_of_the_first_version(side: Side) -> Seen:
    topic = await side.topic()
    one = await new_session(side, 1)
    seen: Seen = [await one.init()]
    seen.append(await one.produce(topic, 0))
    seen.append(await one.produce(topic, 0, version=11))
    seen.append(await one.end(True))
    seen.append(await one.end(False))
    seen.append(await one.add(topic))
    seen.append(await one.produce(topic, 0))
    seen.append(await one.produce(topic, 1))
    seen.append((await side.fetch(topic, isolation_level=1))[:4])
    seen.append((await side.fetch(topic))[:4])
    seen.append(await one.end_stable(True, topic))
    seen.append(await one.end(True))
    seen.append(await one.end(False))
    seen.append((await side.fetch(topic, isolation_level=1))[:5])
    seen.append(await one.produce(topic, 2))
    seen.append(await one.add(topic))
    seen.append(await one.produce(topic, 2))
    seen.append(await one.end_stable(False, topic))
    seen.append(await one.end(False))
    seen.append(await one.end(True))
    seen.append((await side.fetch(topic, isolation_level=1))[:5])
    seen.append((await side.fetch(topic, 4, isolation_level=1))[:5])
    seen.append((await side.fetch(topic, 5, isolation_level=1))[:5])
    return seen


@scenario
async def transactions_of_the_second_version(side: Side) -> Seen:
    topic = await side.topic()
    one = await new_session(side, 2)
    seen: Seen = [await one.init(version=5)]
    seen.append(await one.end(True))
    seen.append(await one.end(False))
    seen.append(await one.produce(topic, 3))
    seen.append(await one.produce(topic, 0))
    seen.append(await one.produce(topic, 1))
    old = one.epoch
    seen.append(await one.end_stable(True, topic))
    seen.append(await one.end(True, epoch=old))
    seen.append(await one.end(False, epoch=old))
    seen.append(await one.end(True, epoch=old - 1))
    seen.append((await side.fetch(topic, isolation_level=1))[:5])
    seen.append(await one.produce(topic, 0, epoch=old))
    seen.append(await one.produce(topic, 2))
    seen.append(await one.produce(topic, 0))
    seen.append(await one.end_stable(False, topic))
    seen.append((await side.fetch(topic, isolation_level=1))[:5])
    seen.append(await one.end(False))
    seen.append(await one.end(False))
    return seen


@scenario
async def strangers_and_old_owners(side: Side) -> Seen:
    topic = await side.topic()
    one = await new_session(side, 1)
    seen: Seen = [(await one.add(topic)), await one.end(True)]
    seen.append(await one.init(timeout_ms=0))
    seen.append(await one.init(timeout_ms=100_000_000))
    seen.append(await one.init())
    seen.append(await one.add(topic, pid=one.pid + 1))
    for version in (1, 2, 3):
        seen.append(await one.add(topic, epoch=one.epoch + 1, version=version))
    seen.append(await one.add(topic, side.name()))
    seen.append(await one.add(topic))
    seen.append(await one.produce(topic, 0))
    two = Session(side, one.name, 1)
    seen.append(await two.init())
    seen.append(await one.produce(topic, 1))
    seen.append(await one.add(topic))
    seen.append(await one.add(topic, version=1))
    seen.append(await one.end(True))
    seen.append(await one.end(True, version=1))
    seen.append(await two.add(topic))
    seen.append(await two.produce(topic, 0))
    seen.append(await two.end_stable(True, topic))
    seen.append((await side.fetch(topic, isolation_level=1))[:5])
    return seen


@scenario
async def renewing_a_session(side: Side) -> Seen:
    topic = await side.topic()
    one = await new_session(side, 1)
    seen: Seen = [await one.init()]
    first = one.epoch
    seen.append(await one.init(one.pid, first))
    seen.append(await one.init(one.pid, first))
    seen.append(await one.init(one.pid, first))
    seen.append(await one.init(one.pid, one.epoch))
    seen.append(await one.init(one.pid, first))
    seen.append(await one.init(one.pid, first, version=3))
    seen.append(await one.init(one.pid, one.epoch + 5))
    seen.append(await one.init(one.pid + 1, one.epoch))
    await one.add(topic)
    await one.produce(topic, 0)
    seen.append(await one.init(one.pid, one.epoch))
    seen.append(await one.init())
    return seen


@scenario
async def former_owners_renew(side: Side) -> Seen:
    """A former owner is told so, and yet ends what the present one has open."""
    topic = await side.topic()
    seen: Seen = []
    for version in (1, 2):
        old = await new_session(side, version)
        await old.init()
        new = Session(side, old.name, version)
        await new.init()
        if version == 1:
            await new.add(topic)
        seen.append(await new.produce(topic, 0))
        seen.append(await old.init(old.pid, old.epoch))
        request = DescribeTransactionsRequest(transactional_ids=[new.name])
        answer = await side.client.call(request, 0)
        seen.append(answer.transaction_states[0].transaction_state)
        seen.append(await new.produce(topic, 1))
        seen.append(await new.end(True))
    return seen


@scenario
async def former_epochs_end(side: Side) -> Seen:
    """What looks like the repetition of an end, where none was."""
    topic = await side.topic()
    one = await new_session(side, 2)
    await one.init(version=5)
    former = one.epoch
    seen: Seen = [await one.init(one.pid, one.epoch)]
    seen.append(await one.end(True, epoch=former))
    seen.append(await one.produce(topic, 0))
    seen.append(await one.end(False, epoch=former))
    seen.append(await one.end_stable(True, topic))
    return seen


@scenario
async def groups_that_a_transaction_only_names(side: Side) -> Seen:
    group = await new_group(side)
    one = await new_session(side, 1)
    await one.init()
    seen: Seen = [await add_group(one, group)]
    request = DescribeTransactionsRequest(transactional_ids=[one.name])
    state = (await side.client.call(request, 0)).transaction_states[0]
    seen.append((state.transaction_state, [t.topic for t in state.topics]))
    seen.append(await one.end(True))
    while state.transaction_state != "CompleteCommit":
        await asyncio.sleep(0.02)
        state = (await side.client.call(request, 0)).transaction_states[0]
    seen.append([t.topic for t in state.topics])
    groups = (await side.client.call(ListGroupsRequest(), 4)).groups
    seen.append(group in [known.group_id for known in groups])
    return seen


@scenario
async def transactions_time_out(side: Side) -> Seen:
    topic = await side.topic()
    seen: Seen = []
    for version in (1, 2):
        one = await new_session(side, version)
        await one.init(timeout_ms=300)
        if version == 1:
            await one.add(topic)
        seen.append(await one.produce(topic, 0))
        while True:
            request = DescribeTransactionsRequest(transactional_ids=[one.name])
            state = (await side.client.call(request, 0)).transaction_states[0]
            if state.transaction_state == "CompleteAbort":
                break
            await asyncio.sleep(0.1)
        seen.append(state.producer_epoch)
        seen.append(await one.produce(topic, 1))
        seen.append(await one.end(True))
        seen.append(await one.end(False))
        seen.append(await one.init(one.pid, one.epoch))
    return seen


@scenario
async def sequences_after_markers(side: Side) -> Seen:
    topic = await side.topic()
    one = await new_session(side, 1)
    await one.init()
    seen: Seen = []
    for sequence, commit in ((0, True), (1, False), (2, True)):
        await one.add(topic)
        seen.append(await one.produce(topic, sequence))
        seen.append(await one.end_stable(commit, topic))
    await one.add(topic)
    seen.append(await one.produce(topic, 2))
    seen.append(await one.produce(topic, 4))
    seen.append(await one.produce(topic, 0))
    return seen


async def commit_offsets(
    one: Session,
    group: str,
    topic: str,
    offset: int,
    *,
    version: int,
    member: str = "",
    generation: int = -1,
    instance: str | None = None,
    epoch: int | None = None,
) -> list[int]:
    part = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata="m"
    )
    request = TxnOffsetCommitRequest(
        transactional_id=one.name,
        group_id=group,
        producer_id=one.pid,
        producer_epoch=one.epoch if epoch is None else epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[part])],
    )
    if version >= 3:
        request.member_id, request.generation_id_or_member_epoch = member, generation
        request.group_instance_id = instance
    while True:
        answer = await one.side.client.call(request, version)
        codes = [p.error_code for t in answer.topics for p in t.partitions]
        if CONCURRENT not in codes:
            return codes
        await asyncio.sleep(0.02)


async def add_group(one: Session, group: str) -> int:
    request = AddOffsetsToTxnRequest(
        transactional_id=one.name,
        producer_id=one.pid,
        producer_epoch=one.epoch,
        group_id=group,
    )
    while True:
        answer = await one.side.client.call(request, 3)
        if answer.error_code != CONCURRENT:
            return answer.error_code
        await asyncio.sleep(0.02)


async def stable(side: Side, group: str, topic: str) -> list[Any]:
    """Positions with require_stable."""
    from aiokafka.protocol.messages.group_offsets import OffsetFetchRequest, OffsetFetchRequestTopic

    wanted = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    request = OffsetFetchRequest(group_id=group, topics=wanted, require_stable=True)
    answer = await side.client.call(request, 7)
    part = answer.topics[0].partitions[0]
    return [answer.error_code, part.error_code, part.committed_offset]


async def settled(side: Side, group: str, topic: str) -> list[Any]:
    while (found := await stable(side, group, topic))[1] == 88:
        await asyncio.sleep(0.02)
    return found


@scenario
async def offsets_in_transactions(side: Side) -> Seen:
    topic, group = await side.topic(), await new_group(side)
    one = await new_session(side, 1)
    await one.init()
    seen: Seen = [await commit_offsets(one, group, topic, 5, version=3)]
    seen.append(await commit_offsets(one, group, topic, 5, version=4))
    seen.append(await add_group(one, group))
    seen.append(await commit_offsets(one, group, topic, 5, version=3))
    seen.append(await commit_offsets(one, group, topic, 5, version=3, epoch=one.epoch + 1))
    seen.append(await commit_offsets(one, group, side.name(), 5, version=3))
    seen.append(await stable(side, group, topic))
    seen.append(await fetched(side, group, 7, topic))
    seen.append(await one.end(True))
    seen.append(await settled(side, group, topic))
    await add_group(one, group)
    seen.append(await commit_offsets(one, group, topic, 9, version=2))
    seen.append(await one.end(False))
    seen.append(await settled(side, group, topic))
    return seen


@scenario
async def offsets_of_members_in_transactions(side: Side) -> Seen:
    topic, group = await side.topic(), await new_group(side)
    one = await new_session(side, 2)
    await one.init(version=5)
    member = (await join(side.client, group, instance="me")).member_id
    await sync(side.client, group, member, 1, {member: b""}, instance="me")
    seen: Seen = []
    for who, generation, instance in (
        (member, 1, "me"),
        (member, 2, "me"),
        ("nobody", 1, None),
        ("nobody", 1, "me"),
        ("", -1, None),
        (member, 0, None),
    ):
        options = {"member": who, "generation": generation, "instance": instance}
        seen.append(await commit_offsets(one, group, topic, 3, version=5, **options))  # type: ignore
    seen.append(await one.end(True))
    seen.append(await settled(side, group, topic))
    return seen
