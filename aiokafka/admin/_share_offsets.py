"""The offsets of share groups (KIP-932): where the group begins to share records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aiokafka.admin._by_topic import by_topic, name_of, numbers_by_topic
from aiokafka.admin._coordinators import by_coordinator
from aiokafka.admin._group_changes import not_empty
from aiokafka.admin._group_offsets import Wanted
from aiokafka.admin._items import outcome, settle
from aiokafka.admin._routing import Call, Router, error_of, raise_for
from aiokafka.admin._values import Value
from aiokafka.errors import (
    KafkaError,
    NonEmptyGroup,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    for_code,
)
from aiokafka.protocol.messages import share_offsets as wire
from aiokafka.structs import TopicPartition

__all__ = ["ShareOffset", "alter_share_offsets", "delete_share_offsets", "fetch_share_offsets"]


@dataclass(frozen=True)
class ShareOffset(Value):
    """Where a share group is in a partition."""

    #: The first offset that is not acknowledged by all.
    start_offset: int
    #: The leader epoch of the record at `start_offset`; None if it is not known.
    leader_epoch: int | None
    #: Records that are yet to be delivered (KIP-1226, Kafka 4.2); None if it is not known.
    lag: int | None


Offsets = dict[TopicPartition, "ShareOffset | None"]


async def fetch_share_offsets(
    router: Router, wanted: Wanted, deadline: float
) -> dict[str, Offsets]:
    """Return the offsets of each share group; None for a partition asked for that has none."""

    async def send(node_id: int, group_ids: list[str]) -> dict[str, Offsets | KafkaError]:
        groups = [_group(group_id, wanted[group_id]) for group_id in group_ids]

        def build(version: int) -> wire.DescribeShareGroupOffsetsRequest:
            return wire.DescribeShareGroupOffsetsRequest(groups=groups)

        call = Call(wire.DescribeShareGroupOffsetsRequest, build)
        response = await router.send(node_id, call, deadline)
        return {group.group_id: _offsets(group) for group in response.groups}

    return await by_coordinator(router, wanted, router.in_half(send, deadline), deadline)


def _group(
    group_id: str, partitions: Iterable[TopicPartition] | None
) -> wire.DescribeShareGroupOffsetsRequestGroup:
    topics = None
    if partitions is not None:
        topics = [
            wire.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers)
            for name, numbers in numbers_by_topic(partitions).items()
        ]
    return wire.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)


def _offsets(group: wire.DescribeShareGroupOffsetsResponseGroup) -> Offsets | KafkaError:
    if group.error_code:
        reason = _reason(group.error_code, group.error_message or "its offsets cannot be read")
        return for_code(group.error_code)(f"group {group.group_id!r}: {reason}")
    found: dict[TopicPartition, ShareOffset | KafkaError | None] = {}
    for topic in group.topics:
        for each in topic.partitions:
            tp = TopicPartition(topic.topic_name, each.partition_index)
            found[tp] = _offset(group.group_id, tp, each)
    try:
        return outcome(found)
    except KafkaError as error:
        return error


def _offset(
    group_id: str, tp: TopicPartition, found: wire.DescribeShareGroupOffsetsResponsePartition
) -> ShareOffset | KafkaError | None:
    error = _error(found.error_code, found.error_message, group_id, name_of(tp))
    if error is not None:
        return error
    if found.start_offset < 0:
        return None
    epoch, lag = found.leader_epoch, found.lag
    return ShareOffset(found.start_offset, epoch if epoch >= 0 else None, lag if lag >= 0 else None)


def _error(code: int, message: str | None, group_id: str, what: str) -> KafkaError | None:
    return error_of(code, _reason(code, message), f"share group {group_id!r}, {what}")


def _reason(code: int, message: str | None) -> str | None:
    """Return what a broker says, or in place of a general phrase what is lacking."""
    if code == UnsupportedVersionError.errno:
        return "ShareGroupOffsets: the cluster has share groups since Kafka 4.2, or share.version=1"
    return message


def _raise_for_group(code: int, message: str | None, group_id: str) -> None:
    if code == NonEmptyGroup.errno:
        raise not_empty(group_id)
    raise_for(code, _reason(code, message), f"share group {group_id!r}, offsets")


async def alter_share_offsets(
    router: Router, group_id: str, offsets: Mapping[TopicPartition, int], deadline: float
) -> None:
    """Set where an empty share group begins."""

    async def ask(left: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
        def entry(tp: TopicPartition) -> wire.AlterShareGroupOffsetsRequestPartition:
            return wire.AlterShareGroupOffsetsRequestPartition(
                partition_index=tp.partition, start_offset=offsets[tp]
            )

        request = wire.AlterShareGroupOffsetsRequest(
            group_id=group_id,
            topics=[
                wire.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=found)
                for name, found in by_topic(left, entry).items()
            ],
        )
        call = Call(
            wire.AlterShareGroupOffsetsRequest,
            lambda version: request,
            lambda answer: [answer.error_code],
        )
        response = await router.to_coordinator(group_id, call, deadline)
        _raise_for_group(response.error_code, response.error_message, group_id)
        return _altered(group_id, response)

    await settle(router, offsets, ask, deadline, final=(UnknownTopicOrPartitionError,))


def _altered(
    group_id: str, response: wire.AlterShareGroupOffsetsResponse
) -> dict[TopicPartition, KafkaError | None]:
    found: dict[TopicPartition, KafkaError | None] = {}
    for topic in response.responses:
        for each in topic.partitions:
            tp = TopicPartition(topic.topic_name, each.partition_index)
            found[tp] = _error(each.error_code, each.error_message, group_id, name_of(tp))
    return found


async def delete_share_offsets(
    router: Router, group_id: str, topics: Iterable[str], deadline: float
) -> None:
    """Let an empty share group forget topics."""

    async def ask(left: list[str]) -> dict[str, KafkaError | None]:
        request = wire.DeleteShareGroupOffsetsRequest(
            group_id=group_id,
            topics=[wire.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in left],
        )
        call = Call(
            wire.DeleteShareGroupOffsetsRequest,
            lambda version: request,
            lambda answer: [answer.error_code],
        )
        response = await router.to_coordinator(group_id, call, deadline)
        _raise_for_group(response.error_code, response.error_message, group_id)
        return {
            each.topic_name: _error(each.error_code, each.error_message, group_id, each.topic_name)
            for each in response.responses
        }

    await settle(router, topics, ask, deadline, final=(UnknownTopicOrPartitionError,))
