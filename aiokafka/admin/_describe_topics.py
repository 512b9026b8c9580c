"""Listing and describing topics: in pages where brokers can, else by Metadata."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from aiokafka.admin._cluster import fetch_metadata
from aiokafka.admin._items import settle
from aiokafka.admin._routing import Call, Router, error_of
from aiokafka.admin._topic_changes import GONE, Topic
from aiokafka.admin._topic_values import (
    PartitionDescription,
    TopicDescription,
    TopicListing,
    uuid_of,
)
from aiokafka.admin.enums import operations_of
from aiokafka.errors import (
    InconsistentTopicId,
    KafkaError,
    KafkaProtocolError,
    UnknownTopicId,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages import metadata as old
from aiokafka.protocol.messages import topics as wire

_FINAL = (*GONE, KafkaProtocolError)
_FIRST_WITH_IDS = 12  # in Metadata, where a topic may be asked for by its id alone

Found = dict[str, TopicDescription | KafkaError]


async def list_each(router: Router, deadline: float) -> list[TopicListing]:
    """Return all topics by name."""
    response = await fetch_metadata(router, None, deadline)
    found = [
        TopicListing(
            name=str(topic.name),
            topic_id=uuid_of(topic.topic_id),
            is_internal=topic.is_internal,
            partitions=len(topic.partitions),
            replication_factor=max((len(p.replica_nodes) for p in topic.partitions), default=0),
        )
        for topic in response.topics
    ]
    return sorted(found, key=lambda topic: topic.name)


async def describe_each(
    router: Router, topics: Iterable[Topic], operations: bool, deadline: float
) -> dict[Topic, TopicDescription]:
    """Describe topics by name or id."""

    async def ask(left: list[Topic]) -> dict[Topic, TopicDescription | KafkaError]:
        ids = [topic for topic in left if isinstance(topic, uuid.UUID)]
        names = await _names_of(router, ids, deadline) if ids else {}
        wanted = [topic for topic in left if isinstance(topic, str)]
        wanted += [name for name in names.values() if isinstance(name, str)]
        wanted = list(dict.fromkeys(wanted))  # a topic may be given by its name and its id
        found = await _by_name(router, wanted, operations, deadline) if wanted else {}
        answers: dict[Topic, TopicDescription | KafkaError] = dict(found.items())
        for topic_id, name in names.items():
            described = name if isinstance(name, KafkaError) else found.get(name)
            if isinstance(described, TopicDescription) and described.topic_id != topic_id:
                described = UnknownTopicId(f"{topic_id}: {name} has another id by now")
            if described is not None:
                answers[topic_id] = described
        return answers

    return await settle(router, topics, ask, deadline, final=_FINAL)


async def describe_all(
    router: Router, operations: bool, deadline: float
) -> dict[str, TopicDescription]:
    """Describe all topics, in the order of their names."""

    async def ask(left: list[None]) -> dict[None, Found | KafkaError]:
        found = await _by_name(router, None, operations, deadline)
        # Others are not there, but a topic of two ages is: it is read from the beginning.
        halves = [each for each in found.values() if isinstance(each, InconsistentTopicId)]
        return {None: halves[0] if halves else found}

    found = (await settle(router, [None], ask, deadline, final=_FINAL))[None]
    return {
        name: each for name, each in sorted(found.items()) if isinstance(each, TopicDescription)
    }


async def _names_of(
    router: Router, ids: list[uuid.UUID], deadline: float
) -> dict[uuid.UUID, str | KafkaError]:
    """Return the name that each id stands for."""

    def build(version: int) -> old.MetadataRequest:
        if version < _FIRST_WITH_IDS:
            raise UnsupportedVersionError("Metadata: topics by id need Kafka 3.1")
        topics = [old.MetadataRequestTopic(topic_id=each.bytes, name=None) for each in ids]
        return old.MetadataRequest(topics=topics, allow_auto_topic_creation=False)

    response = await router.to_any_sure(Call(old.MetadataRequest, build), deadline)
    found: dict[uuid.UUID, str | KafkaError] = {}
    for topic in response.topics:
        topic_id = uuid.UUID(bytes=bytes(topic.topic_id))
        found[topic_id] = error_of(topic.error_code, None, topic_id) or str(topic.name)
    return {each: found.get(each, UnknownTopicId(str(each))) for each in ids}


async def _by_name(
    router: Router, names: list[str] | None, operations: bool, deadline: float
) -> Found:
    """Describe these topics, or all with None, by the best API that the brokers have. Two brokers
    are asked for what the first one does not know."""
    asked: set[int] = set()
    found = await _by_one(router, names, operations, deadline, asked)
    missing = [n for n, each in found.items() if isinstance(each, UnknownTopicOrPartitionError)]
    by = router.second_opinion_by(asked, deadline)
    if missing and by is not None:
        with suppress(KafkaError):
            found |= await _by_one(router, missing, operations, by, asked)
    return found


async def _by_one(
    router: Router, names: list[str] | None, operations: bool, deadline: float, asked: set[int]
) -> Found:
    try:
        return await _in_pages(router, names, operations, deadline, asked)
    except UnsupportedVersionError:
        return await _by_metadata(router, names, operations, deadline, asked)


async def _in_pages(
    router: Router, names: list[str] | None, operations: bool, deadline: float, asked: set[int]
) -> Found:
    """Describe topics page by page (KIP-966), each from any broker."""
    pages: dict[str, list[wire.DescribeTopicPartitionsResponseTopic]] = {}
    cursor: wire.Cursor | None = None
    while True:

        def build(
            version: int, cursor: wire.Cursor | None = cursor
        ) -> wire.DescribeTopicPartitionsRequest:
            topics = [wire.TopicRequest(name=name) for name in sorted(names or ())]
            return wire.DescribeTopicPartitionsRequest(topics=topics, cursor=cursor)

        call = Call(wire.DescribeTopicPartitionsRequest, build)
        response = await router.to_any(call, deadline, asked if cursor is None else None)
        for topic in response.topics:
            pages.setdefault(str(topic.name), []).append(topic)
        following = response.next_cursor
        if following is None:
            return {name: _merged(parts, operations) for name, parts in pages.items()}
        if cursor is not None and _place(following) <= _place(cursor):
            raise KafkaProtocolError(f"DescribeTopicPartitions: the cursor stays at {following}")
        cursor = following


def _place(cursor: wire.Cursor) -> tuple[str, int]:
    return cursor.topic_name, cursor.partition_index


def _merged(
    parts: list[wire.DescribeTopicPartitionsResponseTopic], operations: bool
) -> TopicDescription | KafkaError:
    """Return a topic of one or more pages."""
    last = parts[-1]
    for part in parts:
        error = error_of(part.error_code, None, last.name)
        if error is not None:
            return error
        if part.topic_id != last.topic_id:
            return InconsistentTopicId(f"{last.name}: it was created again between two pages")
    found = _topic(last, (_paged(each) for part in parts for each in part.partitions))
    return found if operations else replace(found, authorized_operations=None)


def _paged(each: wire.DescribeTopicPartitionsResponsePartition) -> PartitionDescription:
    eligible, last_known = each.eligible_leader_replicas, each.last_known_elr
    return replace(
        _partition(each),
        eligible_leader_replicas=None if eligible is None else tuple(eligible),
        last_known_eligible_leader_replicas=None if last_known is None else tuple(last_known),
    )


async def _by_metadata(
    router: Router, names: list[str] | None, operations: bool, deadline: float, asked: set[int]
) -> Found:
    response = await fetch_metadata(router, names, deadline, operations=operations, asked=asked)
    return {str(topic.name): _described(topic) for topic in response.topics}


def _described(topic: old.MetadataResponseTopic) -> TopicDescription | KafkaError:
    error = error_of(topic.error_code, None, topic.name)
    if error is not None:
        return error
    return _topic(topic, map(_partition, topic.partitions))


def _topic(
    topic: wire.DescribeTopicPartitionsResponseTopic | old.MetadataResponseTopic,
    partitions: Iterable[PartitionDescription],
) -> TopicDescription:
    found = {each.partition: each for each in partitions}
    return TopicDescription(
        name=str(topic.name),
        topic_id=uuid_of(topic.topic_id),
        is_internal=topic.is_internal,
        partitions=tuple(found[index] for index in sorted(found)),
        authorized_operations=operations_of(topic.topic_authorized_operations),
    )


def _partition(
    each: wire.DescribeTopicPartitionsResponsePartition | old.MetadataResponsePartition,
) -> PartitionDescription:
    return PartitionDescription(
        partition=each.partition_index,
        leader=each.leader_id if each.leader_id >= 0 else None,
        leader_epoch=each.leader_epoch if each.leader_epoch >= 0 else None,
        replicas=tuple(each.replica_nodes),
        isr=tuple(each.isr_nodes),
        offline_replicas=tuple(each.offline_replicas),
    )
