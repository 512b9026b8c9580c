"""The half of the consumer that says where it stands: positions, pauses, committed offsets, and the
ends of the logs."""

from __future__ import annotations

import asyncio
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, SupportsIndex, overload

from aiokafka._config.consumer import ConsumerConfig
from aiokafka._partitions import as_partition
from aiokafka._typing import later
from aiokafka.client import AIOKafkaClient
from aiokafka.consumer._arguments import (
    AllPositions,
    as_partitions,
    is_offset,
    offsets_to_commit,
)
from aiokafka.consumer._partition_state import PartitionState
from aiokafka.consumer.fetch.desk import ReaderDesk
from aiokafka.consumer.group.no_group import no_group
from aiokafka.consumer.position.lookup import EARLIEST, LATEST, OffsetSpec
from aiokafka.consumer.position.resolver import OffsetResolver
from aiokafka.consumer.subscription_state import Assignment, SubscriptionState
from aiokafka.errors import IllegalStateError, KafkaTimeoutError, TopicAuthorizationFailedError
from aiokafka.structs import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
)

if TYPE_CHECKING:
    from aiokafka.consumer.group.group import GroupMembership, GroupView
    from aiokafka.consumer.position.committed import OffsetCommitter
else:
    GroupMembership = later("aiokafka.consumer.group.group.GroupMembership")
    GroupView = later("aiokafka.consumer.group.group.GroupView")
    OffsetCommitter = later("aiokafka.consumer.position.committed.OffsetCommitter")

__all__ = ["ConsumerPositions"]

# So begin what programs for aiokafka match.
_NOT_OURS = "No current assignment for partition {}: it is not assigned"
_NOT_ALL_OURS = "Partitions {{{}}} are not assigned"
_PAIRS = "partitions must be TopicPartition namedtuples"


def _with_epochs(
    assignment: Assignment, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return `offsets`, each with the leader epoch of the record before it, if that was fetched."""
    return {
        tp: entry
        if entry.leader_epoch >= 0
        else entry._replace(leader_epoch=assignment.state_value(tp).epoch_before(entry.offset))
        for tp, entry in offsets.items()
    }


class ConsumerPositions:
    """What `AIOKafkaConsumer` does with offsets. It has no state of its own: the parts named here
    are made by the consumer's constructor.
    """

    _loop: asyncio.AbstractEventLoop
    _given: ConsumerConfig
    _subscription: SubscriptionState
    _client: AIOKafkaClient
    _desk: ReaderDesk
    _resolver: OffsetResolver
    _joined: GroupMembership | None
    _committer: OffsetCommitter | None
    _group_view: GroupView | None = None
    _check_can_read: Callable[[], None]
    """Raises what keeps the consumer from working."""
    _unless_stopped: Callable[[], AbstractContextManager[None]]

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions read at the moment."""
        return self._subscription.assignment.tps

    # -- positions ---------------------------------------------------------------------------------

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record of a partition, waiting until it is known.

        Raises IllegalStateError if the partition is not assigned, KafkaTimeoutError after
        `default_api_timeout_ms`, NoOffsetForPartitionError with `auto_offset_reset="none"`,
        TopicAuthorizationFailedError.
        """
        deadline = self._loop.time() + self._given.default_api_timeout
        while True:
            self._check_can_read()
            state = self._subscription.assigned_state(partition)
            if state.position is not None:
                return state.position
            # The reason why there is no position is raised here or by the next read, whichever
            # comes first.
            failure = self._desk.buffer.pop_failure(state)
            if failure is not None:
                raise failure
            self._refuse_denied(state)
            if not await self._desk.positions.wait(deadline):
                why = self._why_unset(state)
                raise KafkaTimeoutError(f"position of {partition} not found in time: {why}")

    def _why_unset(self, state: PartitionState) -> str:
        """Return why a partition has no position, in words."""
        error = state.retry.error
        if error is not None:
            return str(error() if isinstance(error, type) else error)
        reasons = [s.reason for s in self._client.waits.lasting() if s.partition == state.tp]
        return reasons[0] if reasons else "no broker has responded"

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read on at `offset`. Forward, within what was fetched, nothing is fetched again; else all
        that was fetched of the partition is dropped.

        Raises ValueError for anything but an integer of at least 0 and below 2**63,
        IllegalStateError if the partition is not assigned.
        """
        if not is_offset(offset):
            raise ValueError(
                f"Offset must be a positive integer below 2**63, or 0, not offset={offset!r}"
            )
        state = self._subscription.assigned_state(partition, _NOT_OURS)
        state.forget_former()
        if not self._desk.buffer.skip(state, offset):
            state.seek(offset)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Read on at the oldest record of these partitions (none given: all assigned).

        True when the positions are known, False if not within `request_timeout_ms`; they will then
        be found later. Raises IllegalStateError if one is not assigned, TypeError for anything but
        TopicPartitions, TopicAuthorizationFailedError.
        """
        return await self._seek_to(EARLIEST, partitions)

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Read on after the newest record; with `read_committed`, at the last stable offset.
        Otherwise the same as `seek_to_beginning()`."""
        return await self._seek_to(LATEST, partitions)

    async def _seek_to(self, spec: OffsetSpec, partitions: tuple[TopicPartition, ...]) -> bool:
        states = self._states_of(partitions)
        self._check_can_read()
        deadline = self._loop.time() + self._given.client.request_timeout
        for state in states:
            state.forget_former()
            state.reset(spec)
        while waiting := [state for state in states if state.needs_offset]:
            for state in waiting:
                self._refuse_denied(state)
            if not await self._desk.positions.wait(deadline):
                return False
            self._check_can_read()
        return True

    def _refuse_denied(self, state: PartitionState) -> None:
        """Raise TopicAuthorizationFailedError if the topic may not be read."""
        if state.tp.topic in self._client.cluster.unauthorized_topics:
            raise TopicAuthorizationFailedError(state.tp.topic)

    async def seek_to_committed(
        self, *partitions: TopicPartition
    ) -> dict[TopicPartition, int | None]:
        """Read on at the committed offsets of these partitions (none given: all assigned), and
        return them.

        A partition without one (None) stays where it is. Raises IllegalOperation without a group,
        IllegalStateError if a partition is not assigned, KafkaTimeoutError after
        `default_api_timeout_ms`.
        """
        states = self._states_of(partitions)
        committer = self._need_group("seek_to_committed")
        deadline = self._loop.time() + self._given.default_api_timeout
        with self._unless_stopped():
            found = await committer.fetch([state.tp for state in states], deadline)
        offsets: dict[TopicPartition, int | None] = {}
        for state in states:
            committed = found.get(state.tp)
            offsets[state.tp] = None if committed is None else committed.offset
            # A partition that was given up meanwhile, and came back, has another position, which
            # the application has not asked to leave.
            if committed is not None and self._subscription.assignment.get(state.tp) is state:
                state.forget_former()
                state.seek_to_committed(committed.offset, committed.leader_epoch)
        return offsets

    def _states_of(self, partitions: tuple[TopicPartition, ...]) -> list[PartitionState]:
        rule = "partitions must be TopicPartition instances"
        tps = [as_partition(tp, rule) for tp in partitions] or sorted(self.assignment())
        assert tps, "No partitions are currently assigned"
        return [self._subscription.assigned_state(tp, _NOT_ALL_OURS) for tp in tps]

    # -- flow --------------------------------------------------------------------------------------

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until `resume()`; what was fetched is kept.

        Raises TypeError for anything but TopicPartitions, IllegalStateError if one is not assigned.
        """
        for tp in partitions:
            self._subscription.assigned_state(as_partition(tp, _PAIRS), _NOT_OURS).pause()

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again. Raises as `pause()`."""
        for tp in partitions:
            self._subscription.assigned_state(as_partition(tp, _PAIRS), _NOT_OURS).resume()

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that are paused."""
        return self._subscription.paused()

    # -- what the last fetches told ----------------------------------------------------------------

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the offset after the newest record, as of the last fetch; None before the
        first."""
        return self._fetched_state(partition).highwater

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset of the first open transaction, as last fetched; -1 unless reading
        committed."""
        lso = self._fetched_state(partition).lso
        return lso if lso is None or self._given.read_committed else -1

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """Return when the broker last answered about the partition (ms since 1970); None before."""
        return self._fetched_state(partition).timestamp

    @overload
    def lag(self) -> dict[TopicPartition, int | None]: ...

    @overload
    def lag(self, partition: TopicPartition) -> int | None: ...

    def lag(
        self, partition: TopicPartition | None = None
    ) -> int | dict[TopicPartition, int | None] | None:
        """Return the offsets between the position and the end of a partition as of its last fetch;
        without a partition, of all assigned ones. None where the position or the end is not known
        yet.

        Sends no request, so it may be called often. With `read_committed`, the end is the last
        stable offset. Raises IllegalStateError if the partition is not assigned.
        """
        read_committed = self._given.read_committed
        if partition is not None:
            return self._subscription.assigned_state(partition).lag(read_committed)
        states = self._subscription.assignment.states()
        return {state.tp: state.lag(read_committed) for state in states}

    def known_end_offsets(self) -> dict[TopicPartition, int | None]:
        """Return the ends of the assigned partitions as of their last fetches, without a request;
        None before the first."""
        read_committed = self._given.read_committed
        states = self._subscription.assignment.states()
        return {state.tp: state.end(read_committed) for state in states}

    def _fetched_state(self, partition: TopicPartition) -> PartitionState:
        state = self._subscription.assignment.get(partition)
        assert state is not None, f"Partition is not assigned: {partition}"
        return state

    # -- offsets of the group ----------------------------------------------------------------------

    async def commit(
        self,
        offsets: Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata] | None = None,
    ) -> None:
        """Store positions for the group: these, or those after all records returned so far.

        An offset to commit is that of the next record to read. Takes `default_api_timeout_ms` at
        most. Cancelled, some or all of the offsets may have been stored.

        Raises IllegalOperation without a group; IllegalStateError for partitions not assigned;
        ValueError and TypeError for malformed `offsets`; CommitFailedError when the partitions are
        another member's now, or were taken away with the records that the application has in hand;
        UnknownTopicOrPartitionError for a topic that was deleted, when the others are stored;
        KafkaTimeoutError; other errors of the broker.
        """
        self._need_group("commit")
        assert self._joined is not None
        if self._subscription.subscription is None:
            raise IllegalStateError(
                "Not subscribed to any topics: call subscribe() or assign() first"
            )
        assignment = self._subscription.assignment
        if offsets is None:
            # No await up to the call that takes its turn: positions, and which records they are
            # behind, are those of this moment.
            positions = {state.tp: state.position for state in assignment.states()}
            entries = {
                tp: OffsetAndMetadata(offset)
                for tp, offset in positions.items()
                if offset is not None
            }
        else:
            entries = offsets_to_commit(offsets)
            opening = "" if assignment else "No partitions assigned: "
            for tp in entries:
                self._subscription.assigned_state(tp, opening + "Partition {} is not assigned")
        if entries:
            with self._unless_stopped():
                entries = _with_epochs(assignment, entries)
                await self._joined.commit_offsets(
                    assignment, AllPositions(entries) if offsets is None else entries
                )
        if offsets is None:
            # After the rest is stored: only what was taken away has failed, and the error names
            # that.
            self._joined.refuse_revoked()

    async def committed_offsets(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed for several partitions (none given: all assigned),
        with metadata and leader epoch; None for those without.

        Raises IllegalOperation without a group, TypeError for anything but TopicPartitions,
        KafkaTimeoutError after `default_api_timeout_ms`.
        """
        committer = self._need_group("committed_offsets")
        tps = sorted(self.assignment()) if partitions is None else as_partitions(partitions)
        deadline = self._loop.time() + self._given.default_api_timeout
        with self._unless_stopped():
            found = await committer.fetch(tps, deadline) if tps else {}
        return {tp: OffsetAndMetadata(*found[tp]) if tp in found else None for tp in tps}

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the offset that the group has committed for a partition; None if there is none.

        Raises IllegalOperation without a group, KafkaTimeoutError after `default_api_timeout_ms`.
        """
        committer = self._need_group("committed")
        deadline = self._loop.time() + self._given.default_api_timeout
        with self._unless_stopped():
            found = await committer.fetch([as_partition(partition)], deadline)
        return found[partition].offset if partition in found else None

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return who this consumer is to its group now, for `producer.send_offsets_to_transaction`
        (KIP-447).

        With `assign()` there is no member and no generation. Raises IllegalOperation without a
        group, CommitFailedError when the group does not count the consumer as a member.
        """
        if self._group_view is None:
            raise no_group("group_metadata")
        return self._group_view.metadata()

    def _need_group(self, call: str) -> OffsetCommitter:
        if self._committer is None:
            raise no_group(call)
        self._check_can_read()
        return self._committer

    # -- offsets in the log ------------------------------------------------------------------------

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return the offset of the oldest record by partition; they need not be assigned.

        Raises KafkaTimeoutError after `default_api_timeout_ms`, naming what is missing and why.
        """
        return await self._ends(EARLIEST, partitions)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the newest record by partition; with `read_committed`, the last
        stable offset. Raises as `beginning_offsets()`."""
        return await self._ends(LATEST, partitions)

    async def _ends(
        self, spec: OffsetSpec, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, int]:
        self._check_can_read()
        deadline = self._loop.time() + self._given.default_api_timeout
        wanted = dict.fromkeys(as_partitions(partitions), spec.timestamp)
        with self._unless_stopped():
            found = await self._resolver.lookup.find(wanted, deadline)
        return {tp: answer.offset for tp, answer in found.items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, float]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record not older than a timestamp (milliseconds since 1970, of which a
        fraction does not count) by partition; None if there is none. They need not be assigned.

        Raises ValueError for a negative timestamp, TypeError for other types, KafkaTimeoutError
        after `default_api_timeout_ms`, naming what is missing and why.
        """
        self._check_can_read()
        wanted = {as_partition(tp): timestamp for tp, timestamp in timestamps.items()}
        for tp, timestamp in wanted.items():
            if isinstance(timestamp, SupportsIndex):  # those of NumPy are no int
                timestamp = operator.index(timestamp)
            elif not isinstance(timestamp, float):
                raise TypeError(f"timestamp of {tp}: must be a number, not {timestamp!r}")
            if not 0 <= timestamp < math.inf:  # nor NaN
                raise ValueError(
                    f"The target time for partition {tp} is {timestamp}. It must not be negative."
                )
        deadline = self._loop.time() + self._given.default_api_timeout
        times = {tp: int(timestamp) for tp, timestamp in wanted.items()}
        with self._unless_stopped():
            found = await self._resolver.lookup.find(times, deadline)
        return {
            tp: None
            if found[tp].offset < 0
            else OffsetAndTimestamp(found[tp].offset, found[tp].timestamp)
            for tp in times
        }
