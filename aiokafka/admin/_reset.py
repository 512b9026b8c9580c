"""Resetting the offsets of a group by a rule.

1. The group must have no members.
2. The partitions are chosen, and what the group has committed is read.
3. The new offset of every partition is found. If one fails, nothing is changed.
4. All are stored in one request, which the coordinator refuses if a member has joined meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aiokafka import _seams
from aiokafka.admin._cluster import fetch_metadata
from aiokafka.admin._group_changes import commit_offsets, not_empty
from aiokafka.admin._group_describe import describe_groups
from aiokafka.admin._group_offsets import Offsets, fetch_offsets
from aiokafka.admin._items import outcome
from aiokafka.admin._list_offsets import list_offsets
from aiokafka.admin._offset_values import OffsetSpec
from aiokafka.admin._reset_values import OffsetReset, ResetKind, ResetRule
from aiokafka.admin._routing import Router
from aiokafka.errors import (
    GroupIdNotFound,
    KafkaError,
    NoOffsetForPartitionError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.structs import OffsetAndMetadata, TopicPartition

__all__ = ["Chosen", "reset_offsets"]

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
        target = await look_up(max(0, int(_seams.wall_time() * 1000) - rule.value))
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
