"""Reading the timestamp of single records, with small fetches."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from aiokafka.admin._by_topic import by_topic, name_of
from aiokafka.admin._items import attempt
from aiokafka.admin._leaders import by_leader
from aiokafka.admin._routing import Call, Router, raise_for
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.messages.fetch import (
    LAST_VERSION_WITH_NAMES,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from aiokafka.record.reader import RecordReader
from aiokafka.structs import TopicPartition

__all__ = ["Place", "first_timestamps"]

Place = tuple[TopicPartition, int]
"""A partition and an offset in it."""
Found = dict[TopicPartition, "int | KafkaError | None"]
Read = dict[int, "int | None"]
"""Timestamps by offset."""

# Most batches fit into this. A greater one comes alone: the first of a response always comes whole
# (KIP-74). Before Kafka 0.10.1 one that does not fit does not come at all.
_FEW_BYTES = 32 * 1024
_OLD_BYTES = 1024 * 1024
_RESPONSE_BYTES = 1024 * 1024
_FIRST_THAT_COMES_WHOLE = 3


async def first_timestamps(
    router: Router, places: Iterable[Place], deadline: float
) -> dict[Place, int]:
    """Return the timestamp of the first record at or after each place, in milliseconds.

    A place where none can be read is left out. There is one request at a time to each broker, which
    does not wait for others, and a response has about a megabyte.
    """
    offsets: dict[TopicPartition, list[int]] = {}
    for tp, offset in sorted(set(places)):
        offsets.setdefault(tp, []).append(offset)

    async def send(
        node_id: int, part: list[TopicPartition]
    ) -> Mapping[TopicPartition, Read | KafkaError]:
        read: dict[TopicPartition, Read] = {tp: {} for tp in part}
        failed: dict[TopicPartition, KafkaError] = {}
        # A request can ask for one place in a partition: groups that are elsewhere go after it.
        while wanted := {
            tp: offsets[tp][len(read[tp])]
            for tp in part
            if tp not in failed and len(read[tp]) < len(offsets[tp])
        }:
            news = await _fetch(router, node_id, wanted, deadline)
            for tp, each in (news or dict.fromkeys(wanted)).items():
                if isinstance(each, KafkaError) and each.retriable:
                    failed[tp] = each
                else:
                    read[tp][wanted[tp]] = each if isinstance(each, int) else None
        return {**read, **failed}

    found = await attempt(by_leader(router, offsets, send, deadline, patience=0), offsets)
    return {
        (tp, offset): timestamp
        for tp, read in found.items()
        if not isinstance(read, KafkaError)
        for offset, timestamp in read.items()
        if timestamp is not None
    }


async def _fetch(
    router: Router, node_id: int, offsets: Mapping[TopicPartition, int], deadline: float
) -> Found:
    """Return what one response says; of partitions for which there was no room, nothing."""
    call = Call(
        FetchRequest,
        lambda version: _request(version, offsets),
        max_version=LAST_VERSION_WITH_NAMES,
    )
    response = await router.send(node_id, call, deadline)
    raise_for(response.error_code, None, f"records of node {node_id}")
    found: Found = {}
    for topic in response.responses:
        for each in topic.partitions:
            tp = TopicPartition(topic.topic, each.partition_index)
            if tp not in offsets:
                continue
            if each.error_code:
                found[tp] = for_code(each.error_code)(name_of(tp))
            elif each.records:
                found[tp] = _timestamp(each.records, tp, offsets[tp])
                await asyncio.sleep(0)  # Decompressing may take a while.
    return found


def _request(version: int, offsets: Mapping[TopicPartition, int]) -> FetchRequest:
    limit = _FEW_BYTES if version >= _FIRST_THAT_COMES_WHOLE else _OLD_BYTES

    def entry(tp: TopicPartition) -> FetchPartition:
        return FetchPartition(
            partition=tp.partition, fetch_offset=offsets[tp], partition_max_bytes=limit
        )

    topics = by_topic(offsets, entry)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_RESPONSE_BYTES,
        topics=[FetchTopic(topic=name, partitions=found) for name, found in topics.items()],
    )


def _timestamp(data: bytes | bytearray | memoryview, tp: TopicPartition, offset: int) -> int | None:
    """Return the timestamp of the first record; None if it cannot be read."""
    reader = RecordReader(data, tp.topic, tp.partition, position=offset, include_control=True)
    try:
        records = reader.take(1)
    except KafkaError:
        return None
    return records[0].timestamp if records else None
