"""Look up the offsets of partitions by `OffsetSpec` or by time (`admin.offsets`)."""

from __future__ import annotations

import datetime
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka._arguments import by_partition
from aiokafka._tasks import together
from aiokafka.admin._items import by_leader, by_topic, name_of, partitions_in
from aiokafka.admin._routing import AdminApi, Call, Outcomes, Router, error_of, remaining_ms
from aiokafka.admin._values import Value, or_none
from aiokafka.errors import (
    KafkaError,
    NotLeaderForPartitionError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from aiokafka.protocol.messages.fetch import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from aiokafka.structs import TopicPartition

__all__ = ["ListedOffset", "OffsetSpec", "Offsets"]


# -- Selected and listed offsets


class OffsetSpec(enum.IntEnum):
    """Selects an offset of a partition: its first or end offset, or the offset of a record."""

    #: The end: the offset that the next record written will get; with `read_committed` the start of
    #: the first open transaction, if there is one.
    LATEST = -1
    #: The first record.
    EARLIEST = -2
    #: The record with the largest timestamp (KIP-734, Kafka 3.0).
    MAX_TIMESTAMP = -3
    #: The first record on the leader's own disks. Earlier records are only in tiered storage
    #: (KIP-405, Kafka 3.5).
    EARLIEST_LOCAL = -4
    #: The last record in tiered storage (KIP-1005, Kafka 3.9).
    LATEST_TIERED = -5
    #: The first record that is not yet copied to tiered storage (KIP-1023, Kafka 4.2).
    EARLIEST_PENDING_UPLOAD = -6


@dataclass(frozen=True)
class ListedOffset(Value):
    """The offset of a partition that was found for an `OffsetSpec` or a timestamp."""

    #: None if no record matches the request, for example if all records are older than the
    #: requested time.
    offset: int | None
    #: The timestamp of the record in milliseconds since 1970, if the request was for a time or
    #: MAX_TIMESTAMP; otherwise None.
    timestamp: int | None
    #: The leader epoch of the record; None before Kafka 2.1.
    leader_epoch: int | None


def timestamp_of(argument: str, value: Any) -> int:
    """Return a time as milliseconds since 1970.

    Raises TypeError, or ValueError for a negative number or a datetime without a time zone.
    """
    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise ValueError(f"{argument}: {value!r}: must have a time zone")
        return round(value.timestamp() * 1000)
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 0:
            raise ValueError(f"{argument}: {value}: must be milliseconds since 1970")
        return value
    raise TypeError(f"{argument}: must be milliseconds since 1970 or a datetime, not {value!r}")


_LEVELS = ("read_uncommitted", "read_committed")


class Offsets(AdminApi):
    """The sub-client `admin.offsets`, for the offsets of partitions.

    The committed offsets of groups are in `admin.groups`.
    """

    async def list(
        self,
        places: Mapping[TopicPartition, OffsetSpec | int | datetime.datetime],
        *,
        isolation_level: str = "read_uncommitted",
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, ListedOffset]:
        """Look up the offset of each partition by `OffsetSpec` or by timestamp (Java: listOffsets,
        KIP-79).

        Args:
            places: by partition, an `OffsetSpec`, or a time as milliseconds since 1970 or a
                datetime with a time zone. A time selects the first record with this or a later
                timestamp (Kafka 0.10.1).
            isolation_level: "read_uncommitted" or "read_committed". With "read_committed", the
                start of the first open transaction counts as the end of the partition.
            timeout_ms: milliseconds for the whole call; default `request_timeout_ms`.

        Raises ValueError for an unknown isolation level. Raises the error of a single partition,
        such as UnsupportedVersionError if its leader does not support the `OffsetSpec`;
        AdminItemsError if one of several partitions fails.
        """
        if isolation_level not in _LEVELS:
            known = ", ".join(_LEVELS)
            raise ValueError(f"isolation_level: {isolation_level!r}: must be one of {known}")
        wanted = {tp: _place(place) for tp, place in by_partition("places", places)}
        return await list_offsets(
            self._router, wanted, isolation_level == _LEVELS[1], self._deadline(timeout_ms)
        )


def _place(place: OffsetSpec | int | datetime.datetime) -> int:
    if isinstance(place, OffsetSpec):
        return place.value
    return timestamp_of("places", place)


# -- ListOffsets

_FIRST_WITH_ISOLATION = 2
# The first version of ListOffsets, and the first release of Kafka, that support a lookup by
# timestamp (`_BY_TIME`) and each OffsetSpec (`_NEEDS`).
_BY_TIME = (1, "0.10.1")
_NEEDS = {
    OffsetSpec.LATEST: (0, "0.9"),
    OffsetSpec.EARLIEST: (0, "0.9"),
    OffsetSpec.MAX_TIMESTAMP: (7, "3.0"),
    OffsetSpec.EARLIEST_LOCAL: (8, "3.5"),
    OffsetSpec.LATEST_TIERED: (9, "3.9"),
    OffsetSpec.EARLIEST_PENDING_UPLOAD: (11, "4.2"),
}


async def list_offsets(
    router: Router, places: Mapping[TopicPartition, int], read_committed: bool, deadline: float
) -> dict[TopicPartition, ListedOffset]:
    """Return the offset for a timestamp or an `OffsetSpec` in each partition.

    A partition that is not in the metadata fails at once with UnknownTopicOrPartitionError.
    """

    async def send(
        node_id: int, part: list[TopicPartition]
    ) -> Outcomes[TopicPartition, ListedOffset]:
        # Send lookups that need different versions in different requests, so that an old leader
        # fails only the lookups that it does not support.
        requests: dict[tuple[int, str], dict[TopicPartition, int]] = {}
        for tp in part:
            requests.setdefault(_needs(places[tp]), {})[tp] = places[tp]
        each = (
            _ask(router, node_id, wanted, need, read_committed, deadline)
            for need, wanted in requests.items()
        )
        return {tp: one for found in await together(each) for tp, one in found.items()}

    return await by_leader(router, places, router.in_half(send, deadline), deadline, missing_for=0)


def _needs(place: int) -> tuple[int, str]:
    return _BY_TIME if place >= 0 else _NEEDS[OffsetSpec(place)]


async def _ask(
    router: Router,
    node_id: int,
    places: Mapping[TopicPartition, int],
    need: tuple[int, str],
    read_committed: bool,
    deadline: float,
) -> Outcomes[TopicPartition, ListedOffset]:
    first_version, first_kafka = need

    def entry(tp: TopicPartition) -> ListOffsetsPartition:
        return ListOffsetsPartition(partition_index=tp.partition, timestamp=places[tp])

    def topic(name: str, entries: list[ListOffsetsPartition]) -> ListOffsetsTopic:
        return ListOffsetsTopic(name=name, partitions=entries)

    def build(version: int) -> ListOffsetsRequest:
        if version < first_version:
            place = next(iter(places.values()))
            what = "by time" if place >= 0 else OffsetSpec(place).name
            raise UnsupportedVersionError(f"ListOffsets: {what} needs Kafka {first_kafka}")
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=by_topic(places, topic, entry),
            timeout_ms=remaining_ms(deadline),
        )
        if version >= _FIRST_WITH_ISOLATION:  # older brokers have no transactions
            request.isolation_level = int(read_committed)
        return request

    try:
        response = await router.send(node_id, Call(ListOffsetsRequest, build), deadline)
    except KafkaError as error:
        return dict.fromkeys(places, error)
    return {tp: _found(tp, each) for tp, each in partitions_in(response.topics)}


def _found(tp: TopicPartition, found: ListOffsetsPartitionResponse) -> ListedOffset | KafkaError:
    if found.error_code == UnknownTopicOrPartitionError.errno:
        # The partition is in the metadata, so the leader will know it soon: make the error
        # retriable.
        return NotLeaderForPartitionError(
            f"{name_of(tp)}: the leader does not know this partition yet"
        )
    error = error_of(found.error_code, None, name_of(tp))
    if error is not None:
        return error
    old_style = found.old_style_offsets[0] if found.old_style_offsets else -1
    return ListedOffset(
        offset=or_none(max(found.offset, old_style)),
        timestamp=or_none(found.timestamp),
        leader_epoch=or_none(found.leader_epoch),
    )
