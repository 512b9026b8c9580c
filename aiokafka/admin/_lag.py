"""How far groups are behind: offsets of groups beside those of partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from aiokafka import _seams
from aiokafka._tasks import both, together
from aiokafka.admin._first_records import Place, first_timestamps
from aiokafka.admin._group_describe import describe_groups
from aiokafka.admin._group_offsets import Offsets, fetch_offsets
from aiokafka.admin._group_values import GroupDescription
from aiokafka.admin._items import attempt, outcome
from aiokafka.admin._lag_values import GroupLag, PartitionLag, PartitionOwner
from aiokafka.admin._leaders import leaders_of
from aiokafka.admin._list_offsets import list_offsets
from aiokafka.admin._offset_values import ListedOffset, OffsetSpec
from aiokafka.admin._routing import Router
from aiokafka.admin._share_offsets import Offsets as ShareOffsets
from aiokafka.admin._share_offsets import fetch_share_offsets
from aiokafka.admin.enums import GroupType
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata, TopicPartition

__all__ = ["Ends", "find_ends", "lag_of_groups"]


@dataclass
class Ends:
    """Where partitions begin and end; what could not be found out is in `errors`."""

    start: dict[TopicPartition, int] = field(default_factory=dict)
    end: dict[TopicPartition, int] = field(default_factory=dict)
    stable: dict[TopicPartition, int] = field(default_factory=dict)
    errors: dict[TopicPartition, KafkaError] = field(default_factory=dict)


async def lag_of_groups(
    router: Router, group_ids: Iterable[str], with_times: bool, deadline: float
) -> dict[str, GroupLag]:
    """Return the lag of each group; GroupIdNotFound is the error of one that is not there.

    A coordinator or leader that keeps silent leaves time for the groups and partitions of others.
    """
    wanted = list(group_ids)
    soon = _part_of(deadline, 1 / 2) if len(wanted) > 1 else deadline
    described, committed = await both(
        attempt(describe_groups(router, wanted, False, soon), wanted),
        attempt(fetch_offsets(router, dict.fromkeys(wanted), False, soon), wanted),
    )
    shares = await _share_offsets(router, described, soon)
    committed |= {group_id: _as_committed(each) for group_id, each in shares.items()}
    found: dict[str, GroupLag | KafkaError] = {}
    known: dict[str, tuple[GroupDescription, Offsets]] = {}
    for group_id in wanted:
        group, offsets = described[group_id], committed[group_id]
        if isinstance(group, KafkaError):
            found[group_id] = group
        elif isinstance(offsets, KafkaError):
            found[group_id] = offsets
        else:
            known[group_id] = (group, offsets)
    partitions = {tp for group, offsets in known.values() for tp in _partitions(group, offsets)}
    soon = _part_of(deadline, 2 / 3) if with_times and len(partitions) > 1 else deadline
    ends = await find_ends(router, partitions, soon)
    unread = {place for _, offsets in known.values() for place in _unread(offsets, ends)}
    times = await first_timestamps(router, unread, deadline) if with_times else {}
    for group_id, (group, offsets) in known.items():
        lag = _lag(group, offsets, ends, times)
        found[group_id] = _shared(lag, shares[group_id]) if group_id in shares else lag
    return outcome({group_id: found[group_id] for group_id in wanted})


def _part_of(deadline: float, part: float) -> float:
    """Return when this part of the time until `deadline` (loop time) is over."""
    now = asyncio.get_running_loop().time()
    return now + (deadline - now) * part


async def _share_offsets(
    router: Router, described: Mapping[str, GroupDescription | KafkaError], deadline: float
) -> dict[str, ShareOffsets | KafkaError]:
    """Return where share groups are: they have committed nothing that OffsetFetch tells."""
    shares = [
        group_id
        for group_id, group in described.items()
        if isinstance(group, GroupDescription) and group.type is GroupType.SHARE
    ]
    if not shares:
        return {}
    return await attempt(fetch_share_offsets(router, dict.fromkeys(shares), deadline), shares)


def _as_committed(found: ShareOffsets | KafkaError) -> Offsets | KafkaError:
    if isinstance(found, KafkaError):
        return found
    return {
        tp: None if each is None else OffsetAndMetadata(each.start_offset, "")
        for tp, each in found.items()
    }


def _shared(lag: GroupLag, offsets: ShareOffsets | KafkaError) -> GroupLag:
    """Return the lag of a share group with what its coordinator counts, which knows of records
    that were acknowledged out of order (KIP-1226)."""
    if isinstance(offsets, KafkaError):
        return lag
    partitions = {}
    for tp, each in lag.partitions.items():
        share = offsets.get(tp)
        told = None if share is None else share.lag
        partitions[tp] = each if told is None else replace(each, lag=told)
    total = sum(each.lag or 0 for each in partitions.values())
    return replace(lag, partitions=partitions, lag=total)


def _partitions(group: GroupDescription, offsets: Offsets) -> list[TopicPartition]:
    assigned = {tp for member in group.members for tp in member.assignment or ()}
    return sorted(assigned | offsets.keys())


async def find_ends(router: Router, partitions: Iterable[TopicPartition], deadline: float) -> Ends:
    """Return where partitions begin and end.

    A partition without a leader is not waited for: it may be gone for good.
    """
    ends = Ends()
    leaders = await leaders_of(router, partitions, deadline) if partitions else {}
    ends.errors = {tp: each for tp, each in leaders.items() if isinstance(each, KafkaError)}
    left = [tp for tp in leaders if tp not in ends.errors]
    first, last, stable = await together(
        (
            _all_at(router, left, OffsetSpec.EARLIEST, False, deadline),
            _all_at(router, left, OffsetSpec.LATEST, False, deadline),
            _all_at(router, left, OffsetSpec.LATEST, True, deadline),
        )
    )
    for found, kept in ((first, ends.start), (last, ends.end), (stable, ends.stable)):
        for tp, each in found.items():
            if isinstance(each, KafkaError):
                ends.errors[tp] = each
            elif each.offset is not None:
                kept[tp] = each.offset
    return ends


async def _all_at(
    router: Router,
    partitions: list[TopicPartition],
    place: OffsetSpec,
    read_committed: bool,
    deadline: float,
) -> Mapping[TopicPartition, ListedOffset | KafkaError]:
    places = dict.fromkeys(partitions, place.value)
    return await attempt(list_offsets(router, places, read_committed, deadline), partitions)


def _unread(offsets: Offsets, ends: Ends) -> list[Place]:
    """Return where the first unread records of a group are."""
    found = []
    for tp, committed in offsets.items():
        if committed is not None and tp in ends.start and tp in ends.end:
            place = max(committed.offset, ends.start[tp])
            if place < ends.end[tp]:
                found.append((tp, place))
    return found


def _lag(
    group: GroupDescription, offsets: Offsets, ends: Ends, times: Mapping[Place, int]
) -> GroupLag:
    now = int(_seams.wall_time() * 1000)
    owners = {
        tp: PartitionOwner(member.member_id, member.instance_id, member.client_id, member.host)
        for member in group.members
        for tp in member.assignment or ()
    }
    partitions = {}
    for tp in _partitions(group, offsets):
        committed = offsets.get(tp)
        place = committed.offset if committed is not None else None
        partitions[tp] = _one(tp, place, ends, times, now, owners.get(tp))
    known = [each.time_lag_ms for each in partitions.values() if each.time_lag_ms is not None]
    return GroupLag(
        group_id=group.group_id,
        type=group.type,
        state=group.state,
        partitions=partitions,
        lag=sum(each.lag or 0 for each in partitions.values()),
        time_lag_ms=max(known, default=None),
    )


def _one(
    tp: TopicPartition,
    committed: int | None,
    ends: Ends,
    times: Mapping[Place, int],
    now: int,
    owner: PartitionOwner | None,
) -> PartitionLag:
    start, end, stable = ends.start.get(tp), ends.end.get(tp), ends.stable.get(tp)
    lag = _distance(committed, end)
    lost = _distance(committed, start)
    since = None
    if committed is not None and start is not None:
        since = times.get((tp, max(committed, start)))
    time_lag = max(0, now - since) if since is not None else None
    return PartitionLag(
        committed=committed,
        start_offset=start,
        end_offset=end,
        stable_offset=stable,
        lag=lag,
        stable_lag=_distance(committed, stable),
        lost=lost,
        unread_since=since,
        time_lag_ms=0 if lag is not None and lag == lost else time_lag,
        owner=owner,
        error=ends.errors.get(tp),
    )


def _distance(committed: int | None, end: int | None) -> int | None:
    """Return how many offsets there are; none if the log was cut below the committed one."""
    return None if committed is None or end is None else max(0, end - committed)
