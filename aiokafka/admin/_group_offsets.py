"""Read, change, delete and reset the offsets of groups, including share groups."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiokafka import _clock
from aiokafka._arguments import as_int, as_text
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
from aiokafka.admin._routing import (
    Call,
    Outcomes,
    Router,
    V,
    call_of,
    error_of,
    fetch_metadata,
    raise_for,
)
from aiokafka.admin._values import Value, or_none
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
from aiokafka.protocol.messages import share_groups as wire
from aiokafka.protocol.messages.group_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from aiokafka.protocol.messages.groups import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition

Wanted = Mapping[str, Sequence[TopicPartition] | None]
"""The requested partitions by group; None stands for all partitions with an offset."""
Offsets = dict[TopicPartition, OffsetAndMetadata | None]

# -- OffsetFetch

_FIRST_OF_ALL_PARTITIONS = 2
_FIRST_STABLE = 7
_FIRST_OF_SEVERAL = 8
NEWEST_WITH_NAMES = 9  # later versions have topic ids, but users give the names of topics


async def fetch_offsets(
    router: Router, wanted: Wanted, require_stable: bool, deadline: float
) -> dict[str, Offsets]:
    """Return the committed offsets of each group. A requested partition without an offset has
    None."""

    async def send(node_id: int, group_ids: list[str]) -> Outcomes[str, Offsets]:
        part = {group_id: wanted[group_id] for group_id in group_ids}
        return await _ask(router, node_id, part, require_stable, deadline)

    return await by_coordinator(router, wanted, router.in_half(send, deadline), deadline)


async def _ask(
    router: Router, node_id: int, wanted: Wanted, require_stable: bool, deadline: float
) -> dict[str, Offsets | KafkaError]:
    """Fetch the committed offsets of all groups of one coordinator with one OffsetFetch request.

    Before Kafka 3.0 (KIP-709), send one request for each group. Return the offsets or the error of
    each group.
    """
    has_groups = False

    def build(version: int) -> OffsetFetchRequest:
        nonlocal has_groups
        has_groups = version >= _FIRST_OF_SEVERAL
        return offset_fetch_request(version, wanted, require_stable)

    call = Call(OffsetFetchRequest, build, max_version=NEWEST_WITH_NAMES)
    try:
        response = await router.send(node_id, call, deadline)
    except _OneGroupOnlyError:
        parts = await together(
            attempt(
                partial(_ask, router, node_id, {group_id: tps}, require_stable, deadline),
                [group_id],
            )
            for group_id, tps in wanted.items()
        )
        return {key: found for part in parts for key, found in part.items()}
    groups: dict[str, Any] = {group.group_id: group for group in response.groups}
    if not has_groups:
        # Responses before version 8 have no list of groups: they are about one group.
        groups = dict.fromkeys(wanted, response)
    return {
        group_id: _offsets(group_id, group.error_code, group.topics, wanted.get(group_id))
        for group_id, group in groups.items()
    }


class _OneGroupOnlyError(UnsupportedVersionError):
    """The broker accepts only one group in a request."""


def offset_fetch_request(version: int, wanted: Wanted, require_stable: bool) -> OffsetFetchRequest:
    """Return an OffsetFetchRequest for these groups.

    Raises UnsupportedVersionError if this version of the request does not support what is wanted:
    several groups, `require_stable`, or all partitions of a group.
    """
    if version < _FIRST_OF_SEVERAL and len(wanted) > 1:
        raise _OneGroupOnlyError("OffsetFetch: several groups at once need Kafka 3.0 (KIP-709)")
    if version < _FIRST_STABLE and require_stable:
        raise UnsupportedVersionError("OffsetFetch: require_stable needs Kafka 2.5 (KIP-447)")
    if version < _FIRST_OF_ALL_PARTITIONS and None in wanted.values():
        raise UnsupportedVersionError(
            "OffsetFetch: all offsets of a group need Kafka 0.10.2; name the partitions"
        )
    if version >= _FIRST_OF_SEVERAL:
        groups = [
            OffsetFetchRequestGroup(
                group_id=group_id, topics=None if tps is None else numbers_by_topic(tps, _topic)
            )
            for group_id, tps in wanted.items()
        ]
        return OffsetFetchRequest(groups=groups, require_stable=require_stable)
    ((group_id, tps),) = wanted.items()
    topics = None if tps is None else numbers_by_topic(tps, _old_topic)
    return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=require_stable)


def _old_topic(name: str, numbers: list[int]) -> OffsetFetchRequestTopic:
    return OffsetFetchRequestTopic(name=name, partition_indexes=numbers)


def _topic(name: str, numbers: list[int]) -> OffsetFetchRequestTopics:
    return OffsetFetchRequestTopics(name=name, partition_indexes=numbers)


def _offsets(
    group_id: str, code: int, topics: Iterable[Any], wanted: Iterable[TopicPartition] | None
) -> Offsets | KafkaError:
    """Return the offsets of a group, or an error.

    The error is the first of these: the error of the group; a retriable error of a partition; the
    error that `outcome` raises for the errors of the partitions.
    """
    refused = error_of(code, None, f"offsets of group {group_id!r}")
    if refused is not None:
        return refused
    # Brokers that are not Apache Kafka's may omit requested partitions without a committed offset.
    found: dict[TopicPartition, OffsetAndMetadata | KafkaError | None] = dict.fromkeys(wanted or ())
    found.update((tp, _committed_offset(group_id, tp, each)) for tp, each in partitions_in(topics))
    for each in found.values():
        if isinstance(each, KafkaError) and each.retriable:
            return each
    return _one_outcome(found)


def _one_outcome(found: Outcomes[TopicPartition, V]) -> dict[TopicPartition, V] | KafkaError:
    """Return the values of all partitions. If a partition has an error, return the error that
    `outcome` raises."""
    try:
        return outcome(found)
    except KafkaError as error:
        return error


def _committed_offset(
    group_id: str, tp: TopicPartition, found: Any
) -> OffsetAndMetadata | KafkaError | None:
    if found.error_code == UnknownTopicOrPartitionError.errno:
        # Brokers other than Apache Kafka return this for a partition without an offset. Apache
        # Kafka does not check whether the topic exists.
        return None
    error = error_of(found.error_code, None, _offset_name(group_id, tp))
    if error is not None:
        return error
    if found.committed_offset < 0:
        return None
    return OffsetAndMetadata(
        found.committed_offset, found.metadata or "", found.committed_leader_epoch
    )


# -- OffsetCommit and OffsetDelete, for groups without members

_NEWEST_COMMIT_WITH_NAMES = 9
# The coordinator of a group with members rejects a commit without member id and generation, and
# returns one of these errors.
_HAS_MEMBERS = (
    UnknownMemberIdError,
    IllegalGenerationError,
    RebalanceInProgressError,
    StaleMemberEpoch,
)


def not_empty(group_id: str) -> NonEmptyGroup:
    """Return a NonEmptyGroup error whose text advises how to empty the group."""
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
    """Commit offsets of a group that has no members, in one request. Partitions with a retriable
    error are sent again.

    Raises the same errors as `settle`. Raises NonEmptyGroup, without any change, if the group has
    members: the coordinator checks this and stores the offsets in one step, so no consumer can join
    in between.
    """

    def entry(tp: TopicPartition) -> OffsetCommitRequestPartition:
        return OffsetCommitRequestPartition(
            partition_index=tp.partition,
            committed_offset=offsets[tp].offset,
            committed_leader_epoch=offsets[tp].leader_epoch,
            committed_metadata=offsets[tp].metadata,
        )

    def topic(name: str, entries: list[OffsetCommitRequestPartition]) -> OffsetCommitRequestTopic:
        return OffsetCommitRequestTopic(name=name, partitions=entries)

    async def ask(left: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
        call = Call(
            OffsetCommitRequest,
            lambda version: OffsetCommitRequest(
                group_id=group_id, topics=by_topic(left, topic, entry)
            ),
            max_version=_NEWEST_COMMIT_WITH_NAMES,
        )
        response = await router.to_coordinator(group_id, call, deadline)
        return {
            tp: _commit_error(group_id, tp, each.error_code)
            for tp, each in partitions_in(response.topics)
        }

    await settle(router, offsets, ask, deadline, final=(UnknownTopicOrPartitionError,))


def _commit_error(group_id: str, tp: TopicPartition, code: int) -> KafkaError | None:
    """Return the error of a partition, None for code 0. Raise NonEmptyGroup for an error that means
    that the group has members, because this error concerns all partitions."""
    error = error_of(code, None, _offset_name(group_id, tp))
    if isinstance(error, _HAS_MEMBERS):
        raise not_empty(group_id)
    return error


async def delete_offsets(
    router: Router, group_id: str, partitions: Iterable[TopicPartition], deadline: float
) -> None:
    async def ask(left: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
        topics = numbers_by_topic(left, _deleted_topic)
        call = call_of(OffsetDeleteRequest(group_id=group_id, topics=topics))
        response = await router.to_coordinator(group_id, call, deadline)
        if response.error_code == NonEmptyGroup.errno:
            raise not_empty(group_id)
        raise_for(response.error_code, None, f"group {group_id!r}")
        return {
            tp: error_of(each.error_code, None, _offset_name(group_id, tp))
            for tp, each in partitions_in(response.topics)
        }

    await settle(router, partitions, ask, deadline, final=(UnknownTopicOrPartitionError,))


def _deleted_topic(name: str, numbers: list[int]) -> OffsetDeleteRequestTopic:
    partitions = [OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
    return OffsetDeleteRequestTopic(name=name, partitions=partitions)


def _offset_name(group_id: str, tp: TopicPartition) -> str:
    return f"offset of group {group_id!r}, {name_of(tp)}"


# -- Share groups (KIP-932): their start offsets


@dataclass(frozen=True)
class ShareOffset(Value):
    """The position of a share group in a partition."""

    #: The first offset that is not yet acknowledged.
    start_offset: int
    #: The leader epoch of the record at `start_offset`; None if the broker does not know it.
    leader_epoch: int | None
    #: Number of records still to be delivered (KIP-1226); None if unknown, and before Kafka 4.2.
    lag: int | None


ShareOffsets = dict[TopicPartition, "ShareOffset | None"]


async def fetch_share_offsets(
    router: Router, wanted: Wanted, deadline: float
) -> dict[str, ShareOffsets]:
    """Return the offsets of each share group. A requested partition without an offset has None."""

    async def send(node_id: int, group_ids: list[str]) -> Outcomes[str, ShareOffsets]:
        groups = [_group(group_id, wanted[group_id]) for group_id in group_ids]
        call = call_of(wire.DescribeShareGroupOffsetsRequest(groups=groups))
        response = await router.send(node_id, call, deadline)
        return {group.group_id: _share_offsets_of(group) for group in response.groups}

    return await by_coordinator(router, wanted, router.in_half(send, deadline), deadline)


def _group(
    group_id: str, partitions: Iterable[TopicPartition] | None
) -> wire.DescribeShareGroupOffsetsRequestGroup:
    def topic(name: str, numbers: list[int]) -> wire.DescribeShareGroupOffsetsRequestTopic:
        return wire.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers)

    topics = None if partitions is None else numbers_by_topic(partitions, topic)
    return wire.DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)


def _share_offsets_of(
    group: wire.DescribeShareGroupOffsetsResponseGroup,
) -> ShareOffsets | KafkaError:
    if group.error_code:
        reason = _reason(group.error_code, group.error_message or "its offsets cannot be read")
        return for_code(group.error_code)(f"group {group.group_id!r}: {reason}")
    return _one_outcome(
        {
            tp: _share_offset(group.group_id, tp, each)
            for tp, each in partitions_in(group.topics, "topic_name")
        }
    )


def _share_offset(
    group_id: str, tp: TopicPartition, found: wire.DescribeShareGroupOffsetsResponsePartition
) -> ShareOffset | KafkaError | None:
    error = _error(found.error_code, found.error_message, group_id, name_of(tp))
    if error is not None:
        return error
    if found.start_offset < 0:
        return None
    return ShareOffset(found.start_offset, or_none(found.leader_epoch), or_none(found.lag))


def _error(code: int, message: str | None, group_id: str, what: str) -> KafkaError | None:
    return error_of(code, _reason(code, message), f"share group {group_id!r}, {what}")


def _reason(code: int, message: str | None) -> str | None:
    """Return the message of the broker; for UNSUPPORTED_VERSION return a more precise message."""
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
    """Set the start offsets of a share group. Raises NonEmptyGroup if the group has members, and
    the same errors as `settle`."""

    def entry(tp: TopicPartition) -> wire.AlterShareGroupOffsetsRequestPartition:
        return wire.AlterShareGroupOffsetsRequestPartition(
            partition_index=tp.partition, start_offset=offsets[tp]
        )

    def topic(name: str, entries: list[Any]) -> wire.AlterShareGroupOffsetsRequestTopic:
        return wire.AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=entries)

    async def ask(left: list[TopicPartition]) -> Outcomes[TopicPartition, None]:
        topics = by_topic(left, topic, entry)
        call = call_of(wire.AlterShareGroupOffsetsRequest(group_id=group_id, topics=topics))
        response = await router.to_coordinator(group_id, call, deadline)
        _raise_for_group(response.error_code, response.error_message, group_id)
        return {
            tp: _error(each.error_code, each.error_message, group_id, name_of(tp))
            for tp, each in partitions_in(response.responses, "topic_name")
        }

    await settle(router, offsets, ask, deadline, final=(UnknownTopicOrPartitionError,))


async def delete_share_offsets(
    router: Router, group_id: str, topics: Iterable[str], deadline: float
) -> None:
    """Delete the offsets of topics in a share group. Raises NonEmptyGroup if the group has members,
    and the same errors as `settle`."""

    async def ask(left: list[str]) -> Outcomes[str, None]:
        wanted = [wire.DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in left]
        call = call_of(wire.DeleteShareGroupOffsetsRequest(group_id=group_id, topics=wanted))
        response = await router.to_coordinator(group_id, call, deadline)
        _raise_for_group(response.error_code, response.error_message, group_id)
        return {
            each.topic_name: _error(each.error_code, each.error_message, group_id, each.topic_name)
            for each in response.responses
        }

    await settle(router, topics, ask, deadline, final=(UnknownTopicOrPartitionError,))


# -- Rules for a reset


class ResetKind(enum.Enum):
    """How a `ResetRule` determines the new offsets. Each kind has the name of the class method of
    `ResetRule` that explains it."""

    EARLIEST = "earliest"
    LATEST = "latest"
    TIMESTAMP = "timestamp"
    DURATION = "duration"
    SHIFT_BY = "shift_by"
    TO_OFFSET = "to_offset"
    COPY = "copy"


@dataclass(frozen=True)
class ResetRule(Value):
    """The rule that determines the new offsets of a group. Create it by a class method, such as
    `ResetRule.earliest()`."""

    kind: ResetKind
    #: For TIMESTAMP and DURATION milliseconds, for SHIFT_BY a number of offsets, for TO_OFFSET an
    #: offset; otherwise 0.
    value: int = 0
    #: For COPY, the group whose offsets are copied; otherwise "".
    group_id: str = ""

    @classmethod
    def earliest(cls) -> Self:
        """Return a rule that resets partitions to their first record."""
        return cls(ResetKind.EARLIEST)

    @classmethod
    def latest(cls) -> Self:
        """Return a rule that resets partitions to their end: the group reads only new records."""
        return cls(ResetKind.LATEST)

    @classmethod
    def timestamp(cls, when: int | datetime.datetime) -> Self:
        """Return a rule that resets partitions to the first record with this or a later timestamp.

        `when` is in milliseconds since 1970, or a datetime with a time zone. A partition without
        such a record is reset to its end.
        """
        return cls(ResetKind.TIMESTAMP, timestamp_of("when", when))

    @classmethod
    def duration(cls, ago: int | datetime.timedelta) -> Self:
        """Return a rule that resets partitions to the first record whose timestamp is at most `ago`
        (milliseconds or a timedelta) before the time of the reset.

        A partition without such a record is reset to its end. Raises ValueError for a negative
        value.
        """
        if isinstance(ago, datetime.timedelta):
            ms = round(ago.total_seconds() * 1000)
        else:
            ms = as_int("ago", ago)
        if ms < 0:
            raise ValueError(f"ago: {ago!r}: must not be negative")
        return cls(ResetKind.DURATION, ms)

    @classmethod
    def shift_by(cls, count: int) -> Self:
        """Return a rule that adds `count` to the committed offsets; `count` may be negative."""
        return cls(ResetKind.SHIFT_BY, as_int("count", count))

    @classmethod
    def to_offset(cls, offset: int) -> Self:
        """Return a rule that resets all partitions to this offset. Raises ValueError if
        negative."""
        return cls(ResetKind.TO_OFFSET, as_int("offset", offset, 0))

    @classmethod
    def copy(cls, group_id: str) -> Self:
        """Return a rule that copies the committed offsets of another group."""
        return cls(ResetKind.COPY, group_id=as_text("group_id", group_id))


@dataclass(frozen=True)
class OffsetReset(Value):
    """The change of the committed offset of a partition by a reset."""

    #: The committed offset before the reset; None if the partition had none.
    old: int | None
    #: The committed offset after the reset.
    new: int
    #: Whether the rule gave an offset outside the log, so that `new` is the first offset or the end
    #: of the partition instead.
    clamped: bool


# -- Reset of a group's offsets by a rule

# 1. Check that the group has no members, unless this is a dry run.
# 2. Choose the partitions, and fetch the committed offsets.
# 3. Find the new offset of every partition. If this fails for any partition, change nothing.
# 4. Commit all offsets in one request. The coordinator rejects the request if a member has joined
#    since step 1.


Numbers = dict[TopicPartition, "int | None"]


async def reset_offsets(
    router: Router,
    group_id: str,
    rule: ResetRule,
    partitions: Sequence[TopicPartition] | None,
    topics: Sequence[str] | None,
    dry_run: bool,
    deadline: float,
) -> dict[TopicPartition, OffsetReset]:
    """Reset the offsets of these partitions and of all partitions of these topics.

    If `partitions` and `topics` are None, resets all partitions with a committed offset; for COPY,
    those with a committed offset in the copied group. Returns the old and the new offset of each
    partition. With `dry_run`, nothing is changed.

    Raises NonEmptyGroup if the group has members, except with `dry_run`. If `partitions` and
    `topics` are None, raises GroupIdNotFound for a group that does not exist; for COPY, raises it
    for a copied group without offsets instead. If partitions have errors, raises the same error as
    `outcome`.
    """
    exists = await _check_empty(router, group_id, dry_run, deadline)
    named = await _named(router, partitions, topics, deadline)
    old = await _committed(router, group_id, named, deadline)
    base = old
    if rule.kind is ResetKind.COPY:
        base = await _committed(router, rule.group_id, named, deadline)
        if not base and named is None:
            raise GroupIdNotFound(f"group {rule.group_id!r} has no offsets to copy")
    chosen = list(base) if named is None else named
    if named is None and not exists and not chosen:
        raise GroupIdNotFound(
            f"group {group_id!r} does not exist: to create it, name the topics or partitions"
        )
    new = await _find_new(router, rule, chosen, base, deadline)
    resets = outcome({tp: _reset(old.get(tp), *new[tp]) for tp in chosen})
    if resets and not dry_run:
        offsets = {tp: OffsetAndMetadata(each.new) for tp, each in resets.items()}
        await commit_offsets(router, group_id, offsets, deadline)
    return resets


async def _check_empty(router: Router, group_id: str, dry_run: bool, deadline: float) -> bool:
    """Return whether the group exists. Raises NonEmptyGroup if it has members, except in a dry
    run."""
    try:
        found = await describe_groups(router, [group_id], False, deadline)
    except GroupIdNotFound:
        return False
    if found[group_id].members and not dry_run:
        raise not_empty(group_id)
    return True


async def _named(
    router: Router,
    partitions: Sequence[TopicPartition] | None,
    topics: Sequence[str] | None,
    deadline: float,
) -> list[TopicPartition] | None:
    """Return the given partitions and all partitions of the given topics; None if both are None.

    Raises the error of a topic, such as UnknownTopicOrPartitionError.
    """
    if partitions is None and topics is None:
        return None
    found = list(partitions or ())
    if topics:
        metadata = await fetch_metadata(router, topics, deadline)
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
    """Return for each partition: its new offset by the rule (or an error), its first offset, and
    its end."""
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
        return {
            tp: (_from_committed(rule, tp, base), start[tp] or 0, end[tp] or 0) for tp in wanted
        }
    # `target` has None for a partition whose records are all older than the time of the rule: use
    # the end of this partition.
    at = {tp: end[tp] if target[tp] is None else target[tp] for tp in wanted}
    return {tp: (at[tp] or 0, start[tp] or 0, end[tp] or 0) for tp in wanted}


def _from_committed(rule: ResetRule, tp: TopicPartition, base: Numbers) -> int | KafkaError:
    """Return the new offset by a rule that starts from committed offsets (SHIFT_BY, COPY).

    Returns NoOffsetForPartitionError if the partition has no committed offset.
    """
    committed = base.get(tp)
    if committed is None:
        whose = f"group {rule.group_id!r}" if rule.group_id else "the group"
        what = f"{whose} has no offset for {tp.topic}-{tp.partition}"
        return NoOffsetForPartitionError(f"{what}: leave the partition out, or choose another rule")
    return committed + rule.value


def _reset(
    old: int | None, target: int | KafkaError, start: int, end: int
) -> OffsetReset | KafkaError:
    if isinstance(target, KafkaError):
        return target
    new = min(max(target, start), end)
    return OffsetReset(old=old, new=new, clamped=new != target)
