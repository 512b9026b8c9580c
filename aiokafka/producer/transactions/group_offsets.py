"""Check offsets for a transaction, and find the group members that commit them. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiokafka._group_members import GroupReader
from aiokafka._partitions import as_partition, split_offset
from aiokafka.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

__all__ = ["Offsets", "Share", "as_group", "as_offsets", "share_out", "with_epochs"]

Offsets = dict[TopicPartition, OffsetAndMetadata]
Share = tuple[ConsumerGroupMetadata, Offsets]
"""The member that commits, and the offsets that it commits."""


class WrongOffsets(TypeError, ValueError):
    """What was given is no offsets: TypeError by meaning, ValueError as aiokafka has it."""


def as_offsets(offsets: Any) -> Offsets:
    """Return offsets that a user gave: by partition an int, (int, str) or OffsetAndMetadata.

    Raises TypeError or ValueError for anything else.
    """
    if not isinstance(offsets, Mapping):
        raise WrongOffsets(f"offsets: must be a dict, not {type(offsets).__name__}")
    found: Offsets = {}
    for partition, value in offsets.items():
        tp = as_partition(partition)
        try:
            offset, metadata, epoch = split_offset(value)
        except ValueError as error:
            raise WrongOffsets(*error.args) from None
        if isinstance(offset, bool) or not isinstance(offset, int):
            raise WrongOffsets(f"offsets: {offset!r} of {partition!r} is not an int")
        if offset < 0:
            raise ValueError(f"offsets: {offset} of {partition!r} is negative")
        if not isinstance(metadata, str):
            raise TypeError(f"Metadata should be a string, but for {tp} is {metadata!r}")
        found[tp] = OffsetAndMetadata(offset, metadata, epoch)
    return found


def as_group(group: Any) -> str | ConsumerGroupMetadata:
    """Return the id of a group, or the member that commits for it if `group` names one: a consumer,
    or its metadata.

    Raises CommitFailedError for a consumer that is not a member now, ValueError for anything else.
    """
    if callable(getattr(group, "group_metadata", None)):
        group = group.group_metadata()
    if isinstance(group, str):
        if not group:
            raise ValueError("group_id: must not be empty")
        return group
    group_id = getattr(group, "group_id", None)
    if not isinstance(group_id, str) or not group_id:
        raise ValueError(f"group_id: must be a group id, a consumer or its metadata, not {group!r}")
    if isinstance(group, ConsumerGroupMetadata):
        return group
    instance_id = getattr(group, "group_instance_id", None)
    return ConsumerGroupMetadata(group_id, group.generation_id, group.member_id, instance_id)


def with_epochs(offsets: Offsets, readers: Sequence[GroupReader]) -> Offsets:
    """Return `offsets` with the leader epochs that these consumers know.

    By them the next reader notices that the log was truncated meanwhile (KIP-320).
    """
    found: Offsets = {}
    for partition, entry in offsets.items():
        epoch = entry.leader_epoch
        for reader in readers:
            if epoch < 0:
                epoch = reader.leader_epoch_before(partition, entry.offset)
        found[partition] = entry._replace(leader_epoch=epoch)
    return found


def share_out(
    offsets: Offsets, group: str | ConsumerGroupMetadata, readers: Sequence[GroupReader]
) -> list[Share]:
    """Assign each of `offsets` to the member that commits it.

    `readers` are the consumers of the group in this event loop. If `group` is only an id, a
    partition belongs to its reader, or to no member. Raises CommitFailedError if a reader has lost
    a partition since it returned its records.
    """
    if isinstance(group, ConsumerGroupMetadata):
        for reader in readers:
            if group.member_id and group.member_id == reader.member_id:
                reader.refuse_lost(offsets)
        return [(group, offsets)]
    by_reader: dict[GroupReader | None, Offsets] = {}
    for partition, entry in offsets.items():
        by_reader.setdefault(_reader_of(partition, entry.offset, readers), {})[partition] = entry
    shares: dict[ConsumerGroupMetadata, Offsets] = {}
    for found, part in by_reader.items():
        member = ConsumerGroupMetadata(group)
        if found is not None:
            found.refuse_lost(part)
            member = found.metadata()
        shares.setdefault(member, {}).update(part)
    return list(shares.items())


def _reader_of(
    partition: TopicPartition, offset: int, readers: Sequence[GroupReader]
) -> GroupReader | None:
    """Return the reader that returned the records before this offset.

    A rebalance may move a partition between two consumers of this event loop while a transaction
    is open:

    1. Reader A returns the records 0 to 9. The application processes them.
    2. The group revokes the partition from A and assigns it to B. B has read nothing yet.
    3. The application commits offset 10. It belongs to A, which must refuse it, as B begins at 0.
       To commit it in the name of B would be accepted, and both would have processed 0 to 9.

    So B counts only once it has returned records, or stands at this very offset.
    """
    for reader in readers:
        if reader.stands_for(partition, offset):
            return reader
    for reader in readers:
        if reader.has_lost(partition):
            return reader
    return next((reader for reader in readers if reader.owns(partition)), None)
