"""Short dialogues with a broker, by raw requests, and what is to be seen in the responses.

Each scenario is run on a real Kafka and on the fake, and what it saw must be equal. What differs
by nature (ids, addresses, times) is left out of what is seen.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka.protocol.messages.fetch import (
    FetchRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from aiokafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from aiokafka.protocol.messages.produce import InitProducerIdRequest
from aiokafka.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)

from .support import RawClient, batch, fetch_request, produce

Seen = list[Any]
Scenario = Callable[["Side"], Awaitable[Seen]]
SCENARIOS: dict[str, Scenario] = {}
NO_ID = bytes(16)


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function  # type: ignore[attr-defined]
    return function


class Side:
    """A broker to talk to, real or fake."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.client = RawClient(address)

    def connect(self) -> RawClient:
        """One more connection."""
        return RawClient(self.address)

    def name(self) -> str:
        """A name that was not used before."""
        return f"n-{uuid.uuid4().hex[:10]}"

    async def topic(self, partitions: int = 1, **config: str) -> str:
        """A new topic whose leaders serve."""
        name = self.name()
        await self.client.call(create(name, partitions, **config), 7)
        parts = [ListOffsetsPartition(partition_index=i, timestamp=-1) for i in range(partitions)]
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=name, partitions=parts)]
        )
        while True:
            found = (await self.client.call(request, 5)).topics[0].partitions
            if not any(part.error_code for part in found):
                return name
            await asyncio.sleep(0.02)

    async def metadata(self, *names: str, create: bool = False) -> list[Any]:
        topics = [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=create)
        return (await self.client.call(request, 12)).topics

    async def produce(self, topic: str, records: bytes, **options: Any) -> tuple[Any, ...]:
        answer = await produce(self.client, topic, records, **options)
        return answer.error_code, answer.base_offset, answer.log_start_offset

    async def fetch(self, topic: str, offset: int = 0, **options: Any) -> tuple[Any, ...]:
        version = options.pop("version", 12)
        response = await self.client.call(fetch_request(topic, offset, **options), version)
        if response.error_code or not response.responses:
            return (response.error_code,)
        data = response.responses[0].partitions[0]
        aborted = data.aborted_transactions
        return (
            data.error_code,
            data.high_watermark,
            data.last_stable_offset,
            data.log_start_offset,
            None if aborted is None else [a.first_offset for a in aborted],
            len(data.records or b""),
        )

    async def new_producer(self) -> int:
        """A producer id; a broker that has just started has none at once."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        while (answer := await self.client.call(request, 4)).error_code:
            await asyncio.sleep(0.02)
        return answer.producer_id


def create(name: str, partitions: int = 1, factor: int = 1, **config: str) -> CreateTopicsRequest:
    configs = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in config.items()
    ]
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[],
        configs=configs,
    )
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


def damaged(records: bytes, at: int) -> bytes:
    data = bytearray(records)
    data[at] ^= 0x55
    return bytes(data)


NOW = {"timestamp": 1_700_000_000_000}


@scenario
async def unsound_records(side: Side) -> Seen:
    topic = await side.topic()
    good = batch(b"a", b"b", **NOW)
    return [
        await side.produce(topic, damaged(good, -2)),
        await side.produce(topic, good[:-1]),
        await side.produce(topic, good[:40]),
        await side.produce(topic, good + good),
        await side.produce(topic, damaged(good, 16)),
        await side.produce(topic, batch(b"x" * 1_100_000)),
        await side.produce(topic, batch(b"x", timestamp=1 << 50)),
        await side.produce(topic, good, acks=3),
        await side.produce(topic, good, partition=1),
        await side.produce(side.name(), good),
        await side.produce(topic, good, version=3),
        await side.produce(topic, batch(b"a", compression=4, **NOW), version=6),
        await side.produce(topic, batch(b"a", compression=4, **NOW), version=7),
    ]


@scenario
async def topic_settings(side: Side) -> Seen:
    small = await side.topic(max_message_bytes="100")
    compact = await side.topic(cleanup_policy="compact")
    two = await side.topic(min_insync_replicas="2")
    return [
        await side.produce(small, batch(b"x" * 100)),
        await side.produce(small, batch(b"x")),
        await side.produce(compact, batch(b"a")),
        await side.produce(compact, batch(b"a", key=b"k")),
        await side.produce(two, batch(b"a"), acks=1),
        (await side.produce(two, batch(b"a"), acks=-1))[0],
    ]


@scenario
async def sequences(side: Side) -> Seen:
    topic = await side.topic()
    pid, other = await side.new_producer(), await side.new_producer()
    seen: Seen = []

    async def send(producer: int, epoch: int, sequence: int, count: int = 1) -> None:
        records = batch(
            *[b"x"] * count,
            pid=producer,
            epoch=epoch,
            sequence=sequence,
            timestamp=int(time.time() * 1000),
        )
        seen.append(await side.produce(topic, records))

    for sequence in (0, 1, 2, 3, 4, 5, 6):
        await send(pid, 0, sequence)
    for sequence in (6, 5, 2, 1, 9, 7):
        await send(pid, 0, sequence)
    await send(pid, 1, 5)
    await send(pid, 1, 0, 3)
    await send(pid, 1, 1, 2)
    await send(pid, 1, 0, 2)
    await send(pid, 0, 8)
    await send(other, 0, 7)
    top = 2**31 - 1
    third = await side.new_producer()
    await send(third, 0, top, 3)
    await send(third, 0, 2)
    await send(third, 0, top, 3)
    return seen


@scenario
async def fetches(side: Side) -> Seen:
    topic = await side.topic()
    for i in range(4):
        await side.produce(topic, batch(b"%d" % i * 1000, **NOW))
    return [
        await side.fetch(topic),
        await side.fetch(topic, 2),
        await side.fetch(topic, 4),
        await side.fetch(topic, 5),
        await side.fetch(topic, -1),
        await side.fetch(topic, partition=1),
        await side.fetch(topic, leader_epoch=0),
        await side.fetch(topic, leader_epoch=5),
        await side.fetch(topic, partition_max_bytes=10),
        await side.fetch(topic, max_bytes=10),
        await side.fetch(topic, partition_max_bytes=2500),
        await side.fetch(topic, isolation_level=1),
        await side.fetch(topic, min_bytes=100_000, max_wait_ms=50),
        await side.fetch(side.name()),
        await side.fetch(topic, version=4),
        await side.fetch(topic, 4, leader_epoch=0, last_fetched_epoch=0),
        await side.fetch(topic, 4, leader_epoch=0, last_fetched_epoch=3),
    ]


@scenario
async def fetch_by_id(side: Side) -> Seen:
    topic = await side.topic()
    [described] = await side.metadata(topic)
    seen: Seen = []
    for topic_id in (described.topic_id, b"?" * 16, NO_ID):
        response = await side.client.call(fetch_request(topic_id), 13)
        parts = [p.error_code for t in response.responses for p in t.partitions]
        seen.append((response.error_code, parts))
    return seen


@scenario
async def fetch_sessions(side: Side) -> Seen:
    topic, other = await side.topic(), await side.topic()
    names = {topic: "t", other: "u"}
    seen: Seen = []
    session = 0

    async def ask(epoch: int, *topics: tuple[str, int], session_id: int | None = None) -> int:
        request = fetch_request(topic, session_epoch=epoch)
        request.session_id = session if session_id is None else session_id
        request.topics = [fetch_request(name, offset).topics[0] for name, offset in topics]
        response = await side.client.call(request, 12)
        told = [names[t.topic] for t in response.responses]
        seen.append((response.error_code, told, bool(response.session_id)))
        return response.session_id

    session = await ask(0, (topic, 0), (other, 0))
    await ask(1)
    await side.produce(other, batch(b"x"))
    await ask(2)
    await ask(3, (other, 1))
    await ask(3)
    await ask(9)
    await ask(4, (topic, 5))
    await ask(5)
    await ask(1, session_id=session ^ 1)
    await ask(-1)
    await ask(6)
    await ask(-1, (topic, 0), session_id=0)
    return seen


@scenario
async def offsets_by_time(side: Side) -> Seen:
    topic = await side.topic()
    start = 1_700_000_000_000
    for when in (10, 20, 30, 90, 15):
        await side.produce(topic, batch(b"x", timestamp=start + when))
    await side.produce(topic, batch(b"a", b"b", b"c", timestamp=start + 100, compression=1))
    seen: Seen = []
    for timestamp in (-1, -2, -3, -4, -5, -6, -7, 0, start + 20, start + 31, start + 101, 1 << 60):
        for version in (1, 4, 7, 9, 10, 11):
            part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            part.current_leader_epoch = 0
            request = ListOffsetsRequest(
                replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[part])]
            )
            found = (await side.client.call(request, version)).topics[0].partitions[0]
            answer = (found.error_code, found.timestamp, found.offset, found.leader_epoch)
            seen.append((timestamp, version, *answer))
    return seen


@scenario
async def epochs(side: Side) -> Seen:
    topic = await side.topic()
    await side.produce(topic, batch(b"x"))
    seen: Seen = []
    for index, current, asked in ((0, 0, 0), (0, 0, 1), (0, -1, 0), (0, 1, 0), (1, 0, 0)):
        part = OffsetForLeaderPartition(
            partition=index, current_leader_epoch=current, leader_epoch=asked
        )
        request = OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic=topic, partitions=[part])]
        )
        found = (await side.client.call(request, 4)).topics[0].partitions[0]
        seen.append((found.error_code, found.leader_epoch, found.end_offset))
    return seen


@scenario
async def deleted_records(side: Side) -> Seen:
    topic = await side.topic()
    for i in range(5):
        await side.produce(topic, batch(b"%d" % i))
    seen: Seen = []
    for index, offset in ((0, 2), (0, 1), (0, 6), (0, -2), (1, 0), (0, -1)):
        part = DeleteRecordsPartition(partition_index=index, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=5000
        )
        found = (await side.client.call(request, 2)).topics[0].partitions[0]
        seen.append((found.error_code, found.low_watermark))
        seen.append(await side.fetch(topic, 0))
    return seen


@scenario
async def metadata(side: Side) -> Seen:
    topic = await side.topic(2)
    fresh = side.name()
    seen: Seen = []

    def note(found: list[Any]) -> None:
        for one in found:
            parts = [
                (p.error_code, p.leader_epoch, len(p.replica_nodes), len(p.isr_nodes))
                for p in one.partitions
            ]
            seen.append((one.error_code, one.is_internal, parts, one.topic_id == NO_ID))

    note(await side.metadata(topic, side.name(), "bad/name", ""))
    note(await side.metadata(fresh, create=True))
    by_id = MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"?" * 16, name=None)])
    note((await side.client.call(by_id, 12)).topics)
    none = await side.client.call(MetadataRequest(topics=[]), 12)
    seen.append((none.topics, none.error_code, len(none.brokers)))
    authorized = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)], include_topic_authorized_operations=True
    )
    seen.append((await side.client.call(authorized, 12)).topics[0].topic_authorized_operations)
    return seen


@scenario
async def topics(side: Side) -> Seen:
    there = await side.topic()
    seen: Seen = []

    async def make(request: CreateTopicsRequest) -> None:
        for r in (await side.client.call(request, 7)).topics:
            seen.append(
                (r.error_code, r.num_partitions, r.replication_factor, r.topic_id == NO_ID)
                + (bool(r.error_message), None if r.configs is None else bool(r.configs))
            )

    await make(create(there))
    await make(create("bad/name"))
    await make(create(side.name(), 0))
    await make(create(side.name(), 1, 9))
    await make(create(side.name(), 1, 0))
    await make(create(side.name(), -1, -1))
    await make(create(side.name(), 1, 1, no_such="1"))
    await make(create(side.name(), 1, 1, retention_ms="x"))
    await make(create(side.name(), 2, 1, retention_ms="5"))
    checked = create(side.name(), 2)
    checked.validate_only = True
    await make(checked)
    twice = create(side.name())
    twice.topics.append(twice.topics[0])
    await make(twice)
    for count in (3, 3, 1):
        grow = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=there, count=count, assignments=None)],
            timeout_ms=5000,
            validate_only=False,
        )
        seen.append((await side.client.call(grow, 3)).results[0].error_code)
    grow.topics[0].name = side.name()
    seen.append((await side.client.call(grow, 3)).results[0].error_code)
    for wanted in (
        DeleteTopicState(name=there, topic_id=NO_ID),
        DeleteTopicState(name=side.name(), topic_id=NO_ID),
        DeleteTopicState(topic_id=b"?" * 16),
        DeleteTopicState(name="x", topic_id=b"?" * 16),
    ):
        request = DeleteTopicsRequest(topics=[wanted], timeout_ms=5000)
        seen.append((await side.client.call(request, 6)).responses[0].error_code)
    return seen


@scenario
async def odd_requests(side: Side) -> Seen:
    seen: Seen = []
    requests = [
        (MetadataRequest(topics=[]), 0),
        (FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), 3),
        (CreateTopicsRequest(topics=[]), 1),
    ]
    for request, version in requests:
        async with side.connect() as client:
            client.send(request, version)
            seen.append(bool(await client.receive_frame()))
    for data in (
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        bytes.fromhex("0000000a 0012 0063 00000001 ffff"),  # ApiVersions 99, without tags
        bytes.fromhex("0000000b 0012 0063 00000001 ffff 00"),  # ApiVersions 99
        bytes.fromhex("0000000a 0003 0063 00000001 ffff"),  # Metadata 99
        bytes.fromhex("0000000a 7fff 0000 00000001 ffff"),  # no such API
        bytes.fromhex("00000002 0003"),
        b"GET / HTTP/1.1\r\n\r\n",
    ):
        async with side.connect() as client:
            client.writer.write(data)
            seen.append(await client.receive_frame())
    return seen
