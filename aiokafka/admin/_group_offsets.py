"""Offsets of groups: read, changed and deleted, of share groups as well, and reset by a rule."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import _clock
from aiokafka._tasks import together
from aiokafka._typing import Self
from aiokafka.admin._group_descriptions import describe_groups
from aiokafka.admin._items import (
    attempt,
    by_coordinator,
    by_topic,
    name_of,
    numbers_by_topic,
    outcome,
    partitions_in,
    settle,
)
from aiokafka.admin._routing import Call, Router, error_of, fetch_metadata, raise_for
from aiokafka.admin._values import Value, as_int
from aiokafka.admin.offsets import OffsetSpec, list_offsets, timestamp_of
from aiokafka.errors import (
    GroupIdNotFound,
    IllegalGenerationError,
    KafkaError,
    NonEmptyGroup,
    NoOffsetForPartitionError,
    RebalanceInProgressError,
    StaleMemberEpoch,
    UnknownMemberIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
    for_code,
)
from aiokafka.protocol.messages import share_offsets as wire
from aiokafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aiokafka.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from aiokafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition

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
    found.update((tp, _committed_offset(group_id, tp, each)) for tp, each in partitions_in(topics))
    for each in found.values():
        if isinstance(each, KafkaError) and each.retriable:
            return each
    try:
        return outcome(found)
    except KafkaError as error:
        return error


def _committed_offset(
    group_id: str, tp: TopicPartition, found: Any
) -> OffsetAndMetadata | KafkaError | None:
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


# -- OffsetCommit and OffsetDelete, for groups without members

_NEWEST_COMMIT_WITH_NAMES = 9
# What a commit from outside gets while the group has members.
_HAS_MEMBERS = (
    UnknownMemberIdError,
    IllegalGenerationError,
    RebalanceInProgressError,
    StaleMemberEpoch,
)


def not_empty(group_id: str) -> NonEmptyGroup:
    """Return the error of a change that only a group without members takes."""
    return NonEmptyGroup(
        f"group {group_id!r} has members: stop its consumers, wait until their sessions have "
        f"ended, or remove them, and try again"
    )


async def commit_offsets(
    router: Router,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    deadline: float,
) -> None:
    """Store offsets of a group that has no members, in one request.

    The coordinator checks for members and stores the offsets in one step: a consumer that joins
    meanwhile makes it refuse them all.
    """

    async def ask(left: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
        def build(version: int) -> OffsetCommitRequest:
            wanted = {tp: offsets[tp] for tp in left}
            return OffsetCommitRequest(group_id=group_id, topics=_commit_topics(wanted))

        call = Call(
            OffsetCommitRequest,
            build,
            lambda answer: [p.error_code for topic in answer.topics for p in topic.partitions],
            max_version=_NEWEST_COMMIT_WITH_NAMES,
        )
        response = await router.to_coordinator(group_id, call, deadline)
        return {
            tp: _stored(group_id, tp, each.error_code)
            for tp, each in partitions_in(response.topics)
        }

    await settle(router, offsets, ask, deadline, final=(UnknownTopicOrPartitionError,))


def _commit_topics(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> list[OffsetCommitRequestTopic]:
    def entry(tp: TopicPartition) -> OffsetCommitRequestPartition:
        return OffsetCommitRequestPartition(
            partition_index=tp.partition,
            committed_offset=offsets[tp].offset,
            committed_leader_epoch=offsets[tp].leader_epoch,
            committed_metadata=offsets[tp].metadata,
        )

    return [
        OffsetCommitRequestTopic(name=name, partitions=found)
        for name, found in by_topic(offsets, entry).items()
    ]


def _stored(group_id: str, tp: TopicPartition, code: int) -> KafkaError | None:
    """Return the error of a partition; raise what the coordinator says of the whole group."""
    error = error_of(code, None, _offset_name(group_id, tp))
    if isinstance(error, _HAS_MEMBERS):
        raise not_empty(group_id)  # of the group: no partition was stored
    return error


async def delete_offsets(
    router: Router, group_id: str, partitions: Iterable[TopicPartition], deadline: float
) -> None:
    """Delete offsets of a group."""

    async def ask(left: list[TopicPartition]) -> dict[TopicPartition, KafkaError | None]:
        def build(version: int) -> OffsetDeleteRequest:
            return OffsetDeleteRequest(group_id=group_id, topics=_delete_topics(left))

        call = Call(OffsetDeleteRequest, build, lambda answer: [answer.error_code])
        response = await router.to_coordinator(group_id, call, deadline)
        if response.error_code == NonEmptyGroup.errno:
            raise not_empty(group_id)
        raise_for(response.error_code, None, f"group {group_id!r}")
        return {
            tp: error_of(each.error_code, None, _offset_name(group_id, tp))
            for tp, each in partitions_in(response.topics)
        }

    await settle(router, partitions, ask, deadline, final=(UnknownTopicOrPartitionError,))


def _delete_topics(partitions: Iterable[TopicPartition]) -> list[OffsetDeleteRequestTopic]:
    return [
        OffsetDeleteRequestTopic(
            name=name,
            partitions=[OffsetDeleteRequestPartition(partition_index=n) for n in numbers],
        )
        for name, numbers in numbers_by_topic(partitions).items()
    ]


def _offset_name(group_id: str, tp: TopicPartition) -> str:
    return f"offset of group {group_id!r}, {name_of(tp)}"


# -- Share groups (KIP-932): the offset at which they begin to share records


@dataclass(frozen=True)
class ShareOffset(Value):
    """Where a share group is in a partition."""

    #: The first offset that is not acknowledged by all.
    start_offset: int
    #: The leader epoch of the record at `start_offset`; None if it is not known.
    leader_epoch: int | None
    #: Records that are yet to be delivered (KIP-1226, Kafka 4.2); None if it is not known.
    lag: int | None


ShareOffsets = dict[TopicPartition, "ShareOffset | None"]


async def fetch_share_offsets(
    router: Router, wanted: Wanted, deadline: float
) -> dict[str, ShareOffsets]:
    """Return the offsets of each share group; None for a partition asked for that has none."""

    async def send(node_id: int, group_ids: list[str]) -> dict[str, ShareOffsets | KafkaError]:
        groups = [_group(group_id, wanted[group_id]) for group_id in group_ids]

        def build(version: int) -> wire.DescribeShareGroupOffsetsRequest:
            return wire.DescribeShareGroupOffsetsRequest(groups=groups)

        call = Call(wire.DescribeShareGroupOffsetsRequest, build)
        response = await router.send(node_id, call, deadline)
        return {group.group_id: _share_offsets_of(group) for group in response.groups}

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


def _share_offsets_of(
    group: wire.DescribeShareGroupOffsetsResponseGroup,
) -> ShareOffsets | KafkaError:
    if group.error_code:
        reason = _reason(group.error_code, group.error_message or "its offsets cannot be read")
        return for_code(group.error_code)(f"group {group.group_id!r}: {reason}")
    found: dict[TopicPartition, ShareOffset | KafkaError | None] = {}
    for topic in group.topics:
        for each in topic.partitions:
            tp = TopicPartition(topic.topic_name, each.partition_index)
            found[tp] = _share_offset(group.group_id, tp, each)
    try:
        return outcome(found)
    except KafkaError as error:
        return error


def _share_offset(
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


# -- Rules for a reset


class ResetKind(enum.Enum):
    """What a rule goes by."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"
    DURATION = "duration"
    SHIFT_BY = "shift_by"
    TO_OFFSET = "to_offset"
    COPY = "copy"


@dataclass(frozen=True)
class ResetRule(Value):
    """Where a group is to go on reading. Made by the class methods."""

    kind: ResetKind
    #: A timestamp or duration in milliseconds, a number of offsets, an offset; else 0.
    value: int = 0
    #: The group that offsets are copied from.
    group_id: str = ""

    @classmethod
    def earliest(cls) -> Self:
        """Begin at the first record that there is."""
        return cls(ResetKind.EARLIEST)

    @classmethod
    def latest(cls) -> Self:
        """Begin at the end: read only what is written from now on."""
        return cls(ResetKind.LATEST)

    @classmethod
    def timestamp(cls, when: int | datetime.datetime) -> Self:
        """Begin at the first record that is not older: milliseconds since 1970, or a datetime.

        Where there is none, the group begins at the end.
        """
        return cls(ResetKind.TIMESTAMP, timestamp_of("when", when))

    @classmethod
    def duration(cls, ago: int | datetime.timedelta) -> Self:
        """Begin so long ago, as `timestamp` does: milliseconds, or a timedelta."""
        ms = round(ago.total_seconds() * 1000) if isinstance(ago, datetime.timedelta) else ago
        if ms < 0:
            raise ValueError(f"ago: {ago!r}: must not be negative")
        return cls(ResetKind.DURATION, ms)

    @classmethod
    def shift_by(cls, count: int) -> Self:
        """Move the committed offsets: forward, or back by a negative number."""
        return cls(ResetKind.SHIFT_BY, as_int("count", count))

    @classmethod
    def to_offset(cls, offset: int) -> Self:
        """Begin at this offset in all partitions."""
        offset = as_int("offset", offset)
        if offset < 0:
            raise ValueError(f"offset: {offset!r}: must not be negative")
        return cls(ResetKind.TO_OFFSET, offset)

    @classmethod
    def copy(cls, group_id: str) -> Self:
        """Begin where another group is."""
        return cls(ResetKind.COPY, group_id=group_id)


@dataclass(frozen=True)
class OffsetReset(Value):
    """What a reset does to the offset of a partition."""

    #: What the group had committed; None without one.
    old: int | None
    #: What it has now, or with `dry_run` would have.
    new: int
    #: Whether the rule leads out of the partition: `new` is then its nearest offset.
    clamped: bool


# -- Reset of a group's offsets by a rule

# 1. The group must have no members.
# 2. The partitions are chosen, and what the group has committed is read.
# 3. The new offset of every partition is found. If one fails, nothing is changed.
# 4. All are stored in one request, which the coordinator refuses if a member has joined meanwhile.


Numbers = dict[TopicPartition, "int | None"]


@dataclass(frozen=True)
class Chosen:
    """The partitions that a caller names; those with offsets if it names none."""

    partitions: tuple[TopicPartition, ...] | None
    topics: tuple[str, ...] | None


async def reset_offsets(
    router: Router, group_id: str, rule: ResetRule, chosen: Chosen, dry_run: bool, deadline: float
) -> dict[TopicPartition, OffsetReset]:
    """Return the old and new offset of each partition, after a change unless it is a dry run."""
    exists = await _check_empty(router, group_id, dry_run, deadline)
    named = await _named(router, chosen, deadline)
    old = await _committed(router, group_id, named, deadline)
    base = old
    if rule.kind is ResetKind.COPY:
        base = await _committed(router, rule.group_id, named, deadline)
        if not base and named is None:
            raise GroupIdNotFound(f"group {rule.group_id!r} has no offsets to copy")
    partitions = list(base) if named is None else named
    if named is None and not exists and not partitions:
        raise GroupIdNotFound(
            f"group {group_id!r} does not exist: name the topics or partitions it is to begin with"
        )
    new = await _find_new(router, rule, partitions, base, deadline)
    found = {tp: _reset(tp, old.get(tp), *new[tp]) for tp in partitions}
    resets = outcome(found)
    if resets and not dry_run:
        offsets = {tp: OffsetAndMetadata(each.new) for tp, each in resets.items()}
        await commit_offsets(router, group_id, offsets, deadline)
    return resets


async def _check_empty(router: Router, group_id: str, dry_run: bool, deadline: float) -> bool:
    """Return whether the group exists; NonEmptyGroup is raised if it has members."""
    try:
        found = await describe_groups(router, [group_id], False, deadline)
    except GroupIdNotFound:
        return False
    if found[group_id].members and not dry_run:
        raise not_empty(group_id)
    return True


async def _named(router: Router, chosen: Chosen, deadline: float) -> list[TopicPartition] | None:
    """Return the partitions and those of the topics that the caller names; None for neither."""
    if chosen.partitions is None and chosen.topics is None:
        return None
    found = list(chosen.partitions or ())
    if chosen.topics:
        metadata = await fetch_metadata(router, chosen.topics, deadline)
        for topic in metadata.topics:
            if topic.error_code:
                raise for_code(topic.error_code)(f"topic {topic.name!r}")
            if not topic.partitions:
                raise UnknownTopicOrPartitionError(f"topic {topic.name!r}: it has no partitions")
            numbers = sorted(each.partition_index for each in topic.partitions)
            found += [TopicPartition(str(topic.name), number) for number in numbers]
    return list(dict.fromkeys(found))


async def _committed(
    router: Router, group_id: str, partitions: list[TopicPartition] | None, deadline: float
) -> Numbers:
    found: Mapping[str, Offsets] = await fetch_offsets(
        router, {group_id: partitions}, False, deadline
    )
    offsets = found[group_id]
    return {tp: None if each is None else each.offset for tp, each in sorted(offsets.items())}


async def _find_new(
    router: Router,
    rule: ResetRule,
    partitions: Iterable[TopicPartition],
    base: Numbers,
    deadline: float,
) -> dict[TopicPartition, tuple[int | KafkaError, int, int]]:
    """Return where the rule leads in each partition, and its first and last offset."""
    wanted = list(partitions)

    async def look_up(place: int) -> Numbers:
        found = await list_offsets(router, dict.fromkeys(wanted, place), False, deadline)
        return {tp: each.offset for tp, each in found.items()}

    start, end = await look_up(OffsetSpec.EARLIEST), await look_up(OffsetSpec.LATEST)
    if rule.kind is ResetKind.EARLIEST:
        target = start
    elif rule.kind is ResetKind.LATEST:
        target = end
    elif rule.kind is ResetKind.TIMESTAMP:
        target = await look_up(rule.value)
    elif rule.kind is ResetKind.DURATION:
        target = await look_up(max(0, int(_clock.wall_time() * 1000) - rule.value))
    elif rule.kind is ResetKind.TO_OFFSET:
        target = dict.fromkeys(wanted, rule.value)
    else:
        return {tp: (_from(rule, tp, base), start[tp] or 0, end[tp] or 0) for tp in wanted}
    # A time after the last record: the end.
    at = {tp: end[tp] if target[tp] is None else target[tp] for tp in wanted}
    return {tp: (at[tp] or 0, start[tp] or 0, end[tp] or 0) for tp in wanted}


def _from(rule: ResetRule, tp: TopicPartition, base: Numbers) -> int | KafkaError:
    """Return where a rule leads that goes by committed offsets."""
    committed = base.get(tp)
    if committed is None:
        whose = f"group {rule.group_id!r}" if rule.group_id else "the group"
        what = f"{whose} has no offset for {tp.topic}-{tp.partition}"
        return NoOffsetForPartitionError(f"{what}: leave the partition out, or choose another rule")
    return committed + rule.value


def _reset(
    tp: TopicPartition, old: int | None, target: int | KafkaError, start: int, end: int
) -> OffsetReset | KafkaError:
    if isinstance(target, KafkaError):
        return target
    new = min(max(target, start), end)
    return OffsetReset(old=old, new=new, clamped=new != target)
