"""Send an admin request to the leaders of partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

from aiokafka.admin._cluster import fetch_metadata
from aiokafka.admin._items import by_node, settle
from aiokafka.admin._routing import Router
from aiokafka.errors import (
    KafkaError,
    LeaderNotAvailableError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.structs import TopicPartition

V = TypeVar("V")

# What a broker says of a partition that others may know better.
_MISSING = (UnknownTopicOrPartitionError, LeaderNotAvailableError)

# Seconds in which a topic that was made a moment ago turns up in the metadata of all brokers.
_NEW_TOPIC = 1.0

# Seconds in which a partition gets another leader, if there is a replica that may lead.
_ELECTION = 3.0


async def by_leader(
    router: Router,
    partitions: Iterable[TopicPartition],
    send: Callable[[int, list[TopicPartition]], Awaitable[Mapping[TopicPartition, V | KafkaError]]],
    deadline: float,
    *,
    fail_fast: bool = False,
    final: tuple[type[KafkaError], ...] = (),
    patience: float = _NEW_TOPIC,
) -> dict[TopicPartition, V]:
    """Ask the leader of each partition, all leaders at once, and return what each said.

    `send` asks one node about its partitions. Those with a retriable error are sent again, to their
    new leader. One that the metadata does not have is waited for at most `patience` seconds, and
    at most half of the time: what does not exist has UnknownTopicOrPartitionError, not a timeout.
    One without a leader is waited for at most 3 s, unless it is the only one: it must not hold up
    the others. Raises as `_items.settle` does.
    """
    partitions = list(partitions)
    loop = asyncio.get_running_loop()
    began = loop.time()
    missing: dict[TopicPartition, float] = {}

    def stays(tp: TopicPartition) -> bool:
        return tp in missing and loop.time() >= min(missing[tp], (began + deadline) / 2)

    async def ask(left: list[TopicPartition]) -> Mapping[TopicPartition, V | KafkaError]:
        leaders = await leaders_of(router, left, deadline)
        missing.clear()
        for tp, each in leaders.items():
            if isinstance(each, UnknownTopicOrPartitionError):
                missing[tp] = began + patience
            elif isinstance(each, LeaderNotAvailableError) and len(partitions) > 1:
                missing[tp] = began + _ELECTION
        groups: dict[int, list[TopicPartition]] = {}
        found: dict[TopicPartition, V | KafkaError] = {}
        for tp, leader in leaders.items():
            if isinstance(leader, KafkaError):
                found[tp] = leader
            else:
                groups.setdefault(leader, []).append(tp)
        return found | await by_node(groups, send)

    return await settle(
        router, partitions, ask, deadline, fail_fast=fail_fast, final=final, stays=stays
    )


async def leaders_of(
    router: Router, partitions: Iterable[TopicPartition], deadline: float
) -> dict[TopicPartition, int | KafkaError]:
    """Return the leader of each partition, or the reason why it is unknown, by two brokers."""
    wanted, asked = list(partitions), set[int]()
    found = await _leaders_by_one(router, wanted, deadline, asked)
    missing = [tp for tp, each in found.items() if isinstance(each, _MISSING)]
    by = router.second_opinion_by(asked, deadline)
    if missing and by is not None:
        with suppress(KafkaError):
            second = await _leaders_by_one(router, missing, by, asked)
            found |= {tp: each for tp, each in second.items() if not isinstance(each, KafkaError)}
    return found


async def _leaders_by_one(
    router: Router, wanted: list[TopicPartition], deadline: float, asked: set[int]
) -> dict[TopicPartition, int | KafkaError]:
    names = sorted({tp.topic for tp in wanted})
    metadata = await fetch_metadata(router, names, deadline, asked=asked)
    codes: dict[str, int] = {}
    leaders: dict[TopicPartition, int] = {}
    for topic in metadata.topics:
        codes[str(topic.name)] = topic.error_code
        for partition in topic.partitions:
            tp = TopicPartition(str(topic.name), partition.partition_index)
            leaders[tp] = partition.leader_id
    return {tp: _leader(tp, codes.get(tp.topic, 0), leaders.get(tp)) for tp in wanted}


def _leader(tp: TopicPartition, code: int, leader: int | None) -> int | KafkaError:
    if code:
        return for_code(code)(tp.topic)
    if leader is None:
        return UnknownTopicOrPartitionError(f"{tp.topic}-{tp.partition}: no such partition")
    if leader < 0:
        return LeaderNotAvailableError(f"{tp.topic}-{tp.partition}")
    return leader
