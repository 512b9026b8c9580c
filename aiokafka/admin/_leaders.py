"""Send an admin request to the leaders of partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TypeVar

from aiokafka.admin._cluster import fetch_metadata
from aiokafka.admin._routing import Call, R, Router
from aiokafka.errors import KafkaError, LeaderNotAvailableError, for_code
from aiokafka.structs import TopicPartition

T = TypeVar("T")


async def by_leader(
    router: Router,
    partitions: Mapping[TopicPartition, T],
    call: Callable[[Mapping[TopicPartition, T]], Call[R]],
    settle: Callable[[R], Mapping[TopicPartition, int]],
    deadline: float,
) -> None:
    """Ask the leader of each partition, all leaders at once.

    `settle` takes a response and returns the error codes of its partitions. Partitions with a
    retriable error are sent again, to their new leader. Any other error is raised after all leaders
    have responded.
    """
    waiting = dict(partitions)

    async def attempt() -> None:
        failures: list[BaseException] = []
        leaders = await _leaders(router, waiting, deadline, failures)
        groups = _group(waiting, leaders, failures)
        sends = (router.send(node, call(part), deadline) for node, part in groups.items())
        for answer in await asyncio.gather(*sends, return_exceptions=True):
            if isinstance(answer, BaseException):
                failures.append(answer)
                continue
            for tp, code in settle(answer).items():
                if code:
                    failures.append(for_code(code)(f"{tp.topic}-{tp.partition}"))
                else:
                    waiting.pop(tp, None)
        if failures:
            raise _worst(failures)

    await router.retry(attempt, deadline)


def _worst(failures: list[BaseException]) -> BaseException:
    """Return the first failure that a retry cannot mend, else the first failure."""
    for failure in failures:
        if not isinstance(failure, KafkaError) or not failure.retriable:
            return failure
    return failures[0]


async def _leaders(
    router: Router,
    partitions: Mapping[TopicPartition, T],
    deadline: float,
    failures: list[BaseException],
) -> dict[TopicPartition, int]:
    """Return the known leaders; add the reason for each unknown one to `failures`."""
    topics = sorted({tp.topic for tp in partitions})
    metadata = await fetch_metadata(router, topics, deadline)
    leaders = {}
    for topic in metadata.topics:
        if topic.error_code:
            failures.append(for_code(topic.error_code)(str(topic.name)))
            continue
        for partition in topic.partitions:
            tp = TopicPartition(str(topic.name), partition.partition_index)
            leaders[tp] = partition.leader_id
    return leaders


def _group(
    partitions: Mapping[TopicPartition, T],
    leaders: Mapping[TopicPartition, int],
    failures: list[BaseException],
) -> dict[int, dict[TopicPartition, T]]:
    """Group the values by leader; add partitions without a leader to `failures`."""
    found: dict[int, dict[TopicPartition, T]] = {}
    for tp, value in partitions.items():
        leader = leaders.get(tp, -1)
        if leader < 0:
            failures.append(LeaderNotAvailableError(f"{tp.topic}-{tp.partition}"))
        else:
            found.setdefault(leader, {})[tp] = value
    return found
