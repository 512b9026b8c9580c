"""Dialogues about what seldom happens; see `scenarios`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiokafka.protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from aiokafka.protocol.messages.fetch import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aiokafka.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from aiokafka.record.batch import RecordBatchBuilder

from .group_scenarios import new_group
from .scenarios import Seen, Side, scenario
from .support import RawClient, batch, produce, produce_request
from .transaction_scenarios import new_session

_GROUP = 32


async def listed(
    side: Side, topic: str, timestamp: int, *, isolation_level: int = 0
) -> tuple[int, ...]:
    part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=isolation_level,
        topics=[ListOffsetsTopic(name=topic, partitions=[part])],
    )
    found = (await side.client.call(request, 9)).topics[0].partitions[0]
    return found.error_code, found.timestamp, found.offset, found.leader_epoch


async def delete_records(side: Side, topic: str, offset: int) -> tuple[int, int]:
    part = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[part])], timeout_ms=5000
    )
    found = (await side.client.call(request, 2)).topics[0].partitions[0]
    return found.error_code, found.low_watermark


@scenario
async def places_after_all_was_deleted(side: Side) -> Seen:
    topic = await side.topic()
    seen: Seen = [await listed(side, topic, at) for at in (-1, -2, -3, 0)]
    for i in range(3):
        await side.produce(topic, batch(b"%d" % i, timestamp=1_700_000_000_000 - i))
    seen.append(await listed(side, topic, -3))
    seen.append(await delete_records(side, topic, 1))
    seen += [await listed(side, topic, at) for at in (-1, -2, -3, 0)]
    seen.append(await delete_records(side, topic, -1))
    seen += [await listed(side, topic, at) for at in (-1, -2, -3, 0)]
    await side.produce(topic, batch(b"later", timestamp=1_600_000_000_000))
    seen += [await listed(side, topic, at) for at in (-1, -2, -3, 0)]
    return seen


@scenario
async def records_deleted_in_an_open_transaction(side: Side) -> Seen:
    topic = await side.topic()
    one = await new_session(side, 2)
    await one.init()
    seen: Seen = [await one.produce(topic, sequence) for sequence in range(3)]
    seen.append(await delete_records(side, topic, 2))
    seen += [await listed(side, topic, at, isolation_level=1) for at in (-1, -2)]
    seen.append(await side.fetch(topic, 2))
    seen.append(await one.end(False))
    while (last := await side.fetch(topic, 2))[1] != last[2]:
        await asyncio.sleep(0.02)
    return [*seen, last]


@scenario
async def times_of_repetitions(side: Side) -> Seen:
    seen: Seen = []
    for kind in ("LogAppendTime", "CreateTime"):
        topic = await side.topic(message_timestamp_type=kind)
        records = batch(b"x", b"y", pid=await side.new_producer(), epoch=0, sequence=0)
        told = []
        for _ in range(3):
            told.append((await produce(side.client, topic, records)).log_append_time_ms)
            await asyncio.sleep(0.002)
        seen.append([time == told[0] for time in told] if kind == "LogAppendTime" else told)
    return seen


@scenario
async def markers_by_time(side: Side) -> Seen:
    """A marker is found as records are; its time is that of its writing."""
    topic = await side.topic()
    one = await new_session(side, 2)
    await one.init()
    await one.produce(topic, 0)
    seen: Seen = [
        (await listed(side, topic, at, isolation_level=level))[2]
        for at in (-3, 0)
        for level in (0, 1)
    ]
    await asyncio.sleep(0.01)  # else both may have the same time
    seen.append(await one.end_stable(True, topic))
    for offset in (0, 1, -1):
        seen.append(await delete_records(side, topic, offset))
        seen += [(await listed(side, topic, at))[2] for at in (-3, 0, 1_700_000_200_000)]
    return seen


@scenario
async def produce_without_records(side: Side) -> Seen:
    topic = await side.topic()
    seen: Seen = []
    for version in (3, 9, 11):
        for records in (b"", b"\0" * 5):
            for acks in (-1, 1):
                request = produce_request(topic, b"", acks=acks)
                request.topic_data[0].partition_data[0].records = records
                async with RawClient(side.address) as client:
                    try:
                        answer = await client.call(request, version)
                    except ConnectionError:
                        seen.append((version, records, "closed"))
                        continue
                    part = answer.responses[0].partition_responses[0]
                    seen.append((version, records, part.error_code, part.base_offset))
    request = produce_request(topic, b"")
    request.topic_data[0].partition_data[0].records = None
    async with RawClient(side.address) as client:
        client.send(request, 9)
        client.send(produce_request(topic, batch(b"behind")), 9)
        try:
            await asyncio.wait_for(client.receive_frame(), 0.5)
        except asyncio.TimeoutError:
            seen.append("silence")  # the broker has failed inside, and the connection hangs
    seen.append(await side.fetch(topic))
    return seen


@scenario
async def settings_of_groups(side: Side) -> Seen:
    group = await new_group(side)
    seen: Seen = []
    for name in (group, ""):
        for keys in (None, ["consumer.session.timeout.ms"], ["nothing"]):
            resource = DescribeConfigsResource(
                resource_type=_GROUP, resource_name=name, configuration_keys=keys
            )
            request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
            found: Any = (await side.client.call(request, 4)).results[0]
            seen.append((bool(name), keys, found.error_code))
            for entry in sorted(found.configs, key=lambda entry: entry.name):
                default = entry.synonyms[-1]  # before it may come what the brokers are set to
                assert (entry.value, entry.config_source) == (
                    entry.synonyms[0].value,
                    entry.synonyms[0].source,
                )
                seen.append(
                    (entry.name, entry.read_only, entry.is_sensitive, entry.config_type)
                    + (default.name, default.value, default.source)
                )
    return seen


@scenario
async def another_id_in_a_verified_transaction(side: Side) -> Seen:
    topic = await side.topic()
    seen: Seen = []
    for version in (0, 2):
        session, other = await new_session(side, version), await new_session(side, version)
        await session.init()
        await other.init()
        stranger = other.name
        if version == 0:
            await session.add(topic)
        own, session.name = session.name, stranger
        seen.append(await session.produce(topic, 0))  # not verified yet
        session.name = own
        seen.append(await session.produce(topic, 0))
        session.name = stranger
        seen.append(await session.produce(topic, 1))  # the partition knows the producer by now
        session.name = own
        seen.append((await session.end(True))[0])
    return seen


def timed(*moments: int, keys: tuple[bytes | None, ...] = ()) -> bytes:
    """A batch of records with these times, and keys."""
    builder = RecordBatchBuilder(compression=0, level=None, size_limit=1 << 30)
    for index, moment in enumerate(moments):
        builder.append(moment, keys[index] if keys else b"k", b"x", [])
    return bytes(builder.build())


@scenario
async def records_to_blame(side: Side) -> Seen:
    """A batch is refused as a whole, with the places of the records that are the reason."""
    narrow = await side.topic(
        message_timestamp_before_max_ms="60000", message_timestamp_after_max_ms="60000"
    )
    compact = await side.topic(cleanup_policy="compact")
    now, hour = int(time.time() * 1000), 3_600_000
    seen: Seen = []
    for topic, records in (
        (narrow, timed(now, now)),
        (narrow, timed(now - hour, now, now - hour)),
        (narrow, timed(now, now + hour)),
        (compact, timed(now, now, now, keys=(b"k", None, None))),
    ):
        answer = await produce(side.client, topic, records)
        blamed = [
            (entry.batch_index, bool(entry.batch_index_error_message))
            for entry in answer.record_errors
        ]
        seen.append((answer.error_code, answer.base_offset, answer.log_start_offset, blamed))
    return seen
