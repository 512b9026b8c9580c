"""Members of other clients and ours share a group, whose members join and leave while records flow:
every partition has one owner, and no record is lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from aiokafka import AIOKafkaProducer
from aiokafka._compat import timeout
from aiokafka.admin import AIOKafkaAdminClient
from tests.integration.mixed_members import CLIENTS, Member
from tests.kafka.fixtures import Kafka, MakeTopic

# kafka-python forgets sockets of metadata requests that fail.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"
)

PARTITIONS = 6
PATIENCE = 60.0
PACE = 0.005
"""Seconds between two records."""


class Flow:
    """Numbered records, into one partition after the other, until `stop`."""

    def __init__(self, servers: str, topic: str) -> None:
        self.sent = 0
        self._servers = servers
        self._topic = topic
        self._stopping = False
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        async with AIOKafkaProducer(bootstrap_servers=self._servers) as producer:
            while not self._stopping:
                value = b"%d" % self.sent
                await producer.send_and_wait(self._topic, value, partition=self.sent % PARTITIONS)
                self.sent += 1
                await asyncio.sleep(PACE)

    async def stop(self) -> None:
        """Return when all that was sent is written."""
        self._stopping = True
        await self._task


@contextlib.asynccontextmanager
async def flowing(servers: str, topic: str) -> AsyncIterator[Flow]:
    flow = Flow(servers, topic)
    try:
        yield flow
    finally:
        await flow.stop()


class MixedGroup:
    """The members of one group, past and present."""

    def __init__(self, servers: str, topic: str) -> None:
        self._servers = servers
        self._topic = topic
        self._all: list[Member] = []
        self.members: list[Member] = []

    async def join(self, client: str, *assignors: str, **options: str) -> Member:
        member = CLIENTS[client](self._servers, self._topic, list(assignors), **options)
        self._all.append(member)
        self.members.append(member)
        await member.start()
        return member

    async def leave(self, member: Member) -> None:
        self.members.remove(member)
        await member.stop()

    async def close(self) -> None:
        for member in list(self.members):
            await self.leave(member)

    async def __aenter__(self) -> MixedGroup:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        leaving = [self.leave(member) for member in list(self.members)]
        await asyncio.gather(*leaving, return_exceptions=True)

    @property
    def seen(self) -> set[int]:
        return {number for member in self._all for number in member.seen}

    @property
    def reads(self) -> int:
        return sum(len(member.seen) for member in self._all)

    def is_balanced(self) -> bool:
        """Whether every partition has one owner, and every member its share of them."""
        owned: Sequence[set[int]] = [member.owned for member in self.members]
        shares = [len(some) for some in owned]
        is_shared = sum(shares) == PARTITIONS and set().union(*owned) == set(range(PARTITIONS))
        return is_shared and max(shares) - min(shares) <= 1

    async def settle(self) -> None:
        """Until the partitions are assigned, and every member has read something since then."""
        await self._until(self.is_balanced)
        before = [len(member.seen) for member in self.members]
        await self._until(
            lambda: all(len(m.seen) > n for m, n in zip(self.members, before, strict=True))
        )

    async def _until(self, condition: Callable[[], bool]) -> None:
        try:
            async with timeout(PATIENCE):
                while not condition():
                    for member in self.members:
                        member.check()
                    await asyncio.sleep(0.05)
        except asyncio.TimeoutError:
            state = {type(m).__name__: (m.owned, len(m.seen)) for m in self.members}
            raise AssertionError(f"the group does not settle: {state}") from None

    async def read_up_to(self, count: int) -> None:
        await self._until(lambda: len(self.seen) >= count)


async def description_of(servers: str, group: str) -> str:
    async with AIOKafkaAdminClient(bootstrap_servers=servers) as admin:
        (description,) = await admin.describe_consumer_groups([group])
    return str(description)


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
async def test_three_clients_in_one_group(
    kafka: Kafka, make_topic: MakeTopic, assignor: str
) -> None:
    """Each of them is alone at first once, so that each leads the group in its turn."""
    servers = kafka.bootstrap_servers
    topic = await make_topic(partitions=PARTITIONS)
    async with MixedGroup(servers, topic) as group, flowing(servers, topic) as flow:
        for first in CLIENTS:
            leader = await group.join(first, assignor)
            await group.settle()
            for other in CLIENTS:
                if other != first:
                    await group.join(other, assignor)
            await group.settle()
            await group.leave(leader)
            await group.settle()
            await group.close()
        last = await group.join("ours", assignor)
        await group.settle()
        await flow.stop()
        await group.read_up_to(flow.sent)
        await group.leave(last)
    assert group.seen == set(range(flow.sent))


BOTH = ("cooperative-sticky", "range")


async def test_from_eager_to_cooperative(kafka: Kafka, make_topic: MakeTopic) -> None:
    """Member by member, first with both assignors, then with the new one alone (KIP-429)."""
    servers = kafka.bootstrap_servers
    topic = await make_topic(partitions=PARTITIONS)
    async with MixedGroup(servers, topic) as group, flowing(servers, topic) as flow:
        for _ in range(3):
            await group.join("ours", "range")
        await group.settle()
        for assignors in (BOTH, ("cooperative-sticky",)):
            for _ in range(3):
                await group.leave(group.members[0])
                await group.join("ours", *assignors)
                await group.settle()
        await flow.stop()
        await group.read_up_to(flow.sent)
        assert "cooperative-sticky" in await description_of(servers, topic)
        await group.close()
    assert group.seen == set(range(flow.sent))


async def test_members_of_both_kinds_among_others(kafka: Kafka, make_topic: MakeTopic) -> None:
    """The other clients refuse to have assignors of both kinds; ours carry the group over."""
    servers = kafka.bootstrap_servers
    topic = await make_topic(partitions=PARTITIONS)
    async with MixedGroup(servers, topic) as group, flowing(servers, topic) as flow:
        eager = [await group.join(client, "range") for client in ("confluent", "kafka-python")]
        await group.join("ours", *BOTH)
        await group.settle()
        assert "cooperative-sticky" not in await description_of(servers, topic)
        for member in eager:
            await group.leave(member)
        await group.settle()
        assert "cooperative-sticky" in await description_of(servers, topic)
        for client in ("confluent", "kafka-python"):
            await group.join(client, "cooperative-sticky")
            await group.settle()
        await flow.stop()
        await group.read_up_to(flow.sent)
        await group.close()
    assert group.seen == set(range(flow.sent))


NEXT = {"group_protocol": "consumer"}


async def test_next_generation_with_confluent(kafka: Kafka, make_topic: MakeTopic) -> None:
    """KIP-848: the broker assigns."""
    servers = kafka.bootstrap_servers
    topic = await make_topic(partitions=PARTITIONS)
    async with MixedGroup(servers, topic) as group, flowing(servers, topic) as flow:
        for first, second in (("ours", "confluent"), ("confluent", "ours")):
            leader = await group.join(first, **NEXT)
            await group.settle()
            await group.join(second, **NEXT)
            await group.join("ours", **NEXT)
            await group.settle()
            await group.leave(leader)
            await group.settle()
            await group.close()
        last = await group.join("ours", **NEXT)
        await flow.stop()
        await group.read_up_to(flow.sent)
        await group.leave(last)
    assert group.seen == set(range(flow.sent))


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
async def test_from_classic_to_next_generation_and_back(
    kafka: Kafka, make_topic: MakeTopic, assignor: str
) -> None:
    """A live group whose members change the protocol one by one, those of librdkafka among them;
    kafka-python knows the classic one only."""
    servers = kafka.bootstrap_servers
    topic = await make_topic(partitions=PARTITIONS)
    async with MixedGroup(servers, topic) as group, flowing(servers, topic) as flow:
        # The member of librdkafka leaves first. As a leader it copies user data of its cooperative
        # assignor into assignments, and Kafka does not convert a group with such assignments: the
        # next leader has to assign before another member joins.
        for client in ("confluent", "kafka-python", "ours"):
            await group.join(client, assignor)
        await group.settle()
        for clients, options in (
            (("ours", "confluent", "ours"), NEXT),
            (("ours", "kafka-python", "confluent"), {}),
        ):
            for client in clients:
                await group.leave(group.members[0])
                await group.settle()
                await group.join(client, assignor, **options)
                await group.settle()
        await flow.stop()
        await group.read_up_to(flow.sent)
        await group.close()
    assert group.seen == set(range(flow.sent))
