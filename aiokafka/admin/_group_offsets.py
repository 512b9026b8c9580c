"""Reading the committed offsets of groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiokafka._tasks import together
from aiokafka.admin._by_topic import name_of, numbers_by_topic, partitions_in
from aiokafka.admin._coordinators import by_coordinator
from aiokafka.admin._items import attempt, outcome
from aiokafka.admin._routing import Call, Router, error_of
from aiokafka.errors import KafkaError, UnknownTopicOrPartitionError, UnsupportedVersionError
from aiokafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition

__all__ = ["Offsets", "Wanted", "fetch_offsets"]

Wanted = Mapping[str, Sequence[TopicPartition] | None]
"""Partitions by group; None stands for all that the group has offsets for."""
Offsets = dict[TopicPartition, OffsetAndMetadata | None]

_FIRST_OF_ALL_PARTITIONS = 2
_FIRST_STABLE = 7
_FIRST_OF_SEVERAL = 8
_NEWEST_WITH_NAMES = 9


async def fetch_offsets(
    router: Router, wanted: Wanted, require_stable: bool, deadline: float
) -> dict[str, Offsets]:
    """Return the offsets of each group; None for a partition asked for that has none."""

    async def send(node_id: int, group_ids: list[str]) -> Mapping[str, Offsets | KafkaError]:
        part = {group_id: wanted[group_id] for group_id in group_ids}
        return await _ask(router, node_id, part, require_stable, deadline)

    return await by_coordinator(router, wanted, router.in_half(send, deadline), deadline)


async def _ask(
    router: Router, node_id: int, wanted: Wanted, require_stable: bool, deadline: float
) -> dict[str, Offsets | KafkaError]:
    """Ask for all groups in one request, or before Kafka 3.0 in one each."""

    is_of_several = False

    def build(version: int) -> OffsetFetchRequest:
        nonlocal is_of_several
        is_of_several = version >= _FIRST_OF_SEVERAL
        return _request(version, wanted, require_stable)

    # From version 10 on topics are given by id, which users do not know them by.
    call = Call(OffsetFetchRequest, build, max_version=_NEWEST_WITH_NAMES)
    try:
        response = await router.send(node_id, call, deadline)
    except _OneEachError:
        each = (
            attempt(_ask(router, node_id, {group_id: tps}, require_stable, deadline), [group_id])
            for group_id, tps in wanted.items()
        )
        parts = await together(each)
        return {key: found for part in parts for key, found in part.items()}
    answers: dict[str, Any] = {group.group_id: group for group in response.groups}
    if not is_of_several:
        answers = dict.fromkeys(wanted, response)
    return {
        group_id: _offsets(group_id, answer.error_code, answer.topics, wanted.get(group_id))
        for group_id, answer in answers.items()
    }


class _OneEachError(UnsupportedVersionError):
    """The broker takes one group in a request."""


def _request(version: int, wanted: Wanted, require_stable: bool) -> OffsetFetchRequest:
    if version < _FIRST_OF_SEVERAL and len(wanted) > 1:
        raise _OneEachError("OffsetFetch: several groups at once need Kafka 3.0 (KIP-709)")
    if version < _FIRST_STABLE and require_stable:
        raise UnsupportedVersionError("OffsetFetch: require_stable needs Kafka 2.5 (KIP-447)")
    if version < _FIRST_OF_SEVERAL:
        return _request_of_one(version, wanted, require_stable)
    groups = [
        OffsetFetchRequestGroup(
            group_id=group_id,
            topics=None
            if tps is None
            else [
                OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
                for name, numbers in numbers_by_topic(tps).items()
            ],
        )
        for group_id, tps in wanted.items()
    ]
    return OffsetFetchRequest(groups=groups, require_stable=require_stable)


def _request_of_one(version: int, wanted: Wanted, require_stable: bool) -> OffsetFetchRequest:
    ((group_id, tps),) = wanted.items()
    if tps is None and version < _FIRST_OF_ALL_PARTITIONS:
        raise UnsupportedVersionError(
            "OffsetFetch: all offsets of a group need Kafka 0.10.2; name the partitions"
        )
    topics = None
    if tps is not None:
        topics = [
            OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
            for name, numbers in numbers_by_topic(tps).items()
        ]
    return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=require_stable)


def _offsets(
    group_id: str, code: int, topics: Iterable[Any], wanted: Iterable[TopicPartition] | None
) -> Offsets | KafkaError:
    """Return the offsets of a group, or one error: of the group, or of its partitions."""
    refused = error_of(code, None, f"offsets of group {group_id!r}")
    if refused is not None:
        return refused
    # Gateways may leave out a partition without an offset.
    found: dict[TopicPartition, OffsetAndMetadata | KafkaError | None] = dict.fromkeys(wanted or ())
    found.update((tp, _offset(group_id, tp, each)) for tp, each in partitions_in(topics))
    for each in found.values():
        if isinstance(each, KafkaError) and each.retriable:
            return each
    try:
        return outcome(found)
    except KafkaError as error:
        return error


def _offset(group_id: str, tp: TopicPartition, found: Any) -> OffsetAndMetadata | KafkaError | None:
    if found.error_code == UnknownTopicOrPartitionError.errno:
        # So gateways call a partition without an offset. Apache Kafka looks at no topic here.
        return None
    error = error_of(found.error_code, None, f"offset of group {group_id!r}, {name_of(tp)}")
    if error is not None:
        return error
    if found.committed_offset < 0:
        return None
    return OffsetAndMetadata(
        found.committed_offset, found.metadata or "", found.committed_leader_epoch
    )
