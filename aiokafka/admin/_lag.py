"""The lag of groups: the distance from committed offsets to the ends of partitions, as a number of
offsets and as a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from aiokafka import _clock
from aiokafka._tasks import both, together
from aiokafka.admin._group_descriptions import GroupDescription, describe_groups
from aiokafka.admin._group_offsets import Offsets, ShareOffsets, fetch_offsets, fetch_share_offsets
from aiokafka.admin._items import (
    attempt,
    by_leader,
    by_topic,
    leaders_of,
    name_of,
    outcome,
    partitions_in,
)
from aiokafka.admin._routing import Call, Outcomes, Router, raise_for
from aiokafka.admin._values import Value
from aiokafka.admin.enums import GroupState, GroupType
from aiokafka.admin.offsets import ListedOffset, OffsetSpec, list_offsets
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.messages.fetch import (
    LAST_VERSION_WITH_NAMES,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)
from aiokafka.record.reader import RecordReader
from aiokafka.structs import OffsetAndMetadata, TopicPartition

# -- Values


@dataclass(frozen=True)
class PartitionOwner(Value):
    """The member of a group to which a partition is assigned."""

    member_id: str
    #: The `group_instance_id` of a static member; None for other members.
    instance_id: str | None
    client_id: str
    #: The address from which the member connects.
    host: str


@dataclass(frozen=True)
class PartitionLag(Value):
    """The lag of a group in a partition."""

    #: The committed offset: the offset of the next record to read. For a share group, the first
    #: offset that is not yet acknowledged. None without a committed offset.
    committed: int | None
    #: The first offset of the partition. None if it could not be read: see `error`.
    start_offset: int | None
    #: The offset that the next record written will get. None if it could not be read: see `error`.
    end_offset: int | None
    #: The last stable offset, up to which `read_committed` consumers can read: the start of the
    #: first open transaction, or `end_offset` if no transaction is open. None if it could not be
    #: read.
    stable_offset: int | None
    #: Number of offsets from `committed` to `end_offset`; None if one of them is None. The number
    #: of records is smaller in a compacted topic, and with transactions. For a share group from
    #: Kafka 4.2 on, the number of records still to be delivered, as its coordinator reports it.
    lag: int | None
    #: Number of offsets from `committed` to `stable_offset`: the lag with `read_committed`. None if
    #: one of them is None.
    stable_lag: int | None
    #: Number of offsets from `committed` to `start_offset`, which are part of `lag`: their records
    #: were deleted before the group read them. None if one of them is None.
    lost: int | None
    #: The timestamp of the first unread record, in milliseconds since 1970. None if there is no
    #: unread record or no committed offset, or the timestamp was not requested or not readable.
    unread_since: int | None
    #: Milliseconds from `unread_since` to now; 0 if there are no unread records, None if unknown.
    time_lag_ms: int | None
    #: The member to which the partition is assigned; None for an unassigned partition.
    owner: PartitionOwner | None
    #: Why the offsets of the partition could not be read, such as a deleted topic; None if they
    #: could be read.
    error: KafkaError | None = None


@dataclass(frozen=True)
class GroupLag(Value):
    """The lag of a group by partition, and in total."""

    group_id: str
    type: GroupType
    state: GroupState
    #: The partitions with a committed offset, and those assigned to members.
    partitions: Mapping[TopicPartition, PartitionLag]
    #: The sum of the known lags of all partitions.
    lag: int
    #: The largest known time lag of a partition, in milliseconds; None if none is known.
    time_lag_ms: int | None


@dataclass
class Ends:
    """The first, end and last stable offsets of partitions, and the errors of failed lookups."""

    start: dict[TopicPartition, int] = field(default_factory=dict)
    end: dict[TopicPartition, int] = field(default_factory=dict)
    stable: dict[TopicPartition, int] = field(default_factory=dict)
    errors: dict[TopicPartition, KafkaError] = field(default_factory=dict)


async def lag_of_groups(
    router: Router, group_ids: Iterable[str], with_times: bool, deadline: float
) -> dict[str, GroupLag]:
    """Return the lag of each group. Raises the same errors as `outcome`, such as GroupIdNotFound.

    Steps before the last one get only a part of the remaining time if they concern several groups
    or partitions. So a coordinator or leader that does not respond fails only its own groups or
    partitions, and the next step still has time.
    """
    wanted = list(group_ids)
    step_deadline = _part_of(deadline, 1 / 2) if len(wanted) > 1 else deadline
    described, committed = await both(
        attempt(partial(describe_groups, router, wanted, False, step_deadline), wanted),
        attempt(
            partial(fetch_offsets, router, dict.fromkeys(wanted), False, step_deadline), wanted
        ),
    )
    shares = await _share_offsets(router, described, step_deadline)
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
    step_deadline = _part_of(deadline, 2 / 3) if with_times and len(partitions) > 1 else deadline
    ends = await find_ends(router, partitions, step_deadline)
    unread = {place for _, offsets in known.values() for place in _unread(offsets, ends)}
    times = await first_timestamps(router, unread, deadline) if with_times else {}
    for group_id, (group, offsets) in known.items():
        lag = _lag(group, offsets, ends, times)
        found[group_id] = _shared(lag, shares[group_id]) if group_id in shares else lag
    return outcome({group_id: found[group_id] for group_id in wanted})


def _part_of(deadline: float, part: float) -> float:
    """Return the loop time at which a fraction `part` of the time until `deadline` has passed."""
    now = asyncio.get_running_loop().time()
    return now + (deadline - now) * part


async def _share_offsets(
    router: Router, described: Mapping[str, GroupDescription | KafkaError], deadline: float
) -> dict[str, ShareOffsets | KafkaError]:
    """Return the offsets of the share groups in `described`, or the error of a share group.
    OffsetFetch does not return these offsets."""
    shares = [
        group_id
        for group_id, group in described.items()
        if isinstance(group, GroupDescription) and group.type is GroupType.SHARE
    ]
    if not shares:
        return {}
    return await attempt(
        partial(fetch_share_offsets, router, dict.fromkeys(shares), deadline), shares
    )


def _as_committed(found: ShareOffsets | KafkaError) -> Offsets | KafkaError:
    if isinstance(found, KafkaError):
        return found
    return {
        tp: None if each is None else OffsetAndMetadata(each.start_offset, "")
        for tp, each in found.items()
    }


def _shared(lag: GroupLag, offsets: ShareOffsets | KafkaError) -> GroupLag:
    """Replace the lag of a share group by the lag that its coordinator reports (KIP-1226, Kafka
    4.2): the number of records still to be delivered.

    The difference of end offset and start offset would also count records that were acknowledged
    out of order. If the coordinator reports no lag for a partition, keep that difference.
    """
    if isinstance(offsets, KafkaError):
        return lag
    partitions = {}
    for tp, each in lag.partitions.items():
        share = offsets.get(tp)
        counted = None if share is None else share.lag
        partitions[tp] = each if counted is None else replace(each, lag=counted)
    total = sum(each.lag or 0 for each in partitions.values())
    return replace(lag, partitions=partitions, lag=total)


def _partitions(group: GroupDescription, offsets: Offsets) -> list[TopicPartition]:
    assigned = {tp for member in group.members for tp in member.assignment or ()}
    return sorted(assigned | offsets.keys())


async def find_ends(router: Router, partitions: Iterable[TopicPartition], deadline: float) -> Ends:
    """Return the first, end and last stable offsets of partitions, and errors by partition.

    A partition without a leader is not retried, because its topic may have been deleted. Its error
    is in the result.
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
    return await attempt(
        partial(list_offsets, router, places, read_committed, deadline), partitions
    )


def _unread(offsets: Offsets, ends: Ends) -> list[Position]:
    """Return the position of the first unread record in each partition with unread records."""
    found = []
    for tp, committed in offsets.items():
        if committed is not None and tp in ends.start and tp in ends.end:
            place = max(committed.offset, ends.start[tp])
            if place < ends.end[tp]:
                found.append((tp, place))
    return found


def _lag(
    group: GroupDescription, offsets: Offsets, ends: Ends, times: Mapping[Position, int]
) -> GroupLag:
    now = int(_clock.wall_time() * 1000)
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
    times: Mapping[Position, int],
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
    """Return the number of offsets from `committed` to `end`; None if one of them is None.

    The result is 0 if the log was truncated below the committed offset.
    """
    return None if committed is None or end is None else max(0, end - committed)


# -- Timestamps of single records, by small fetches

Position = tuple[TopicPartition, int]
"""A partition and an offset in the partition."""
Found = dict[TopicPartition, "int | KafkaError | None"]
Read = dict[int, "int | None"]
"""Timestamps by offset; None if no record could be read at or after the offset."""

# Maximum bytes of a partition in a Fetch response. Most batches fit into `_FEW_BYTES`. From version
# 3 on (Kafka 0.10.1), brokers return a larger batch, too, if it is the first of the response
# (KIP-74). In earlier versions, brokers never return the whole of a larger batch, so requests in
# these versions have the limit `_OLD_BYTES`.
_FEW_BYTES = 32 * 1024
_OLD_BYTES = 1024 * 1024
_RESPONSE_BYTES = 1024 * 1024  # maximum bytes of a whole Fetch response
_FIRST_WITH_WHOLE_BATCH = 3


async def first_timestamps(
    router: Router, positions: Iterable[Position], deadline: float
) -> dict[Position, int]:
    """Return the timestamp of the first record at or after each offset, in milliseconds since 1970.

    The result omits offsets where no record can be read. Requests to the same broker are sent one
    after the other, requests to different brokers concurrently. A response has at most about a
    megabyte.
    """
    offsets: dict[TopicPartition, list[int]] = {}
    for tp, offset in sorted(set(positions)):
        offsets.setdefault(tp, []).append(offset)

    async def send(node_id: int, part: list[TopicPartition]) -> Outcomes[TopicPartition, Read]:
        read: dict[TopicPartition, Read] = {tp: {} for tp in part}
        failed: dict[TopicPartition, KafkaError] = {}
        # A request can have only one offset for each partition, so several offsets of a partition
        # take several requests.
        while wanted := {
            tp: offsets[tp][len(read[tp])]
            for tp in part
            if tp not in failed and len(read[tp]) < len(offsets[tp])
        }:
            found = await _fetch(router, node_id, wanted, deadline)
            for tp, each in (found or dict.fromkeys(wanted)).items():
                if isinstance(each, KafkaError) and each.retriable:
                    failed[tp] = each
                else:
                    read[tp][wanted[tp]] = each if isinstance(each, int) else None
        return {**read, **failed}

    timestamps = await attempt(
        partial(by_leader, router, offsets, send, deadline, missing_for=0), offsets
    )
    return {
        (tp, offset): timestamp
        for tp, read in timestamps.items()
        if not isinstance(read, KafkaError)
        for offset, timestamp in read.items()
        if timestamp is not None
    }


async def _fetch(
    router: Router, node_id: int, offsets: Mapping[TopicPartition, int], deadline: float
) -> Found:
    """Send one Fetch request. Return the timestamp of the first record at or after each offset, or
    the error of the partition; None if there is no such record, or it cannot be decoded.

    Partitions without records are omitted, and the broker may omit others to limit the size of the
    response.
    """
    call = Call(
        FetchRequest,
        lambda version: _request(version, offsets),
        max_version=LAST_VERSION_WITH_NAMES,
    )
    response = await router.send(node_id, call, deadline)
    raise_for(response.error_code, None, f"records of node {node_id}")
    found: Found = {}
    for tp, each in partitions_in(response.responses, "topic"):
        if tp not in offsets:
            continue
        if each.error_code:
            found[tp] = for_code(each.error_code)(name_of(tp))
        elif each.records:
            found[tp] = _timestamp(each.records, tp, offsets[tp])
            await asyncio.sleep(0)  # run other tasks, because decompression may take long
    return found


def _request(version: int, offsets: Mapping[TopicPartition, int]) -> FetchRequest:
    limit = _FEW_BYTES if version >= _FIRST_WITH_WHOLE_BATCH else _OLD_BYTES

    def entry(tp: TopicPartition) -> FetchPartition:
        return FetchPartition(
            partition=tp.partition, fetch_offset=offsets[tp], partition_max_bytes=limit
        )

    def topic(name: str, entries: list[FetchPartition]) -> FetchTopic:
        return FetchTopic(topic=name, partitions=entries)

    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_RESPONSE_BYTES,
        topics=by_topic(offsets, topic, entry),
    )


def _timestamp(data: bytes | bytearray | memoryview, tp: TopicPartition, offset: int) -> int | None:
    """Return the timestamp of the first record at or after `offset`; None if `data` has no such
    record, or cannot be decoded."""
    reader = RecordReader(data, tp.topic, tp.partition, position=offset, include_control=True)
    try:
        records = reader.take(1)
    except KafkaError:
        return None
    return records[0].timestamp if records else None
