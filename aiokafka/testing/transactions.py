"""The transaction coordinators of a fake cluster (KIP-98, 360, 447, 588, 890)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from aiokafka import _clock, errors
from aiokafka._typing import later
from aiokafka.testing.actions import RefusedError
from aiokafka.testing.batches import Batch
from aiokafka.testing.groups import Coordinators, Groups
from aiokafka.testing.log import PartitionLog
from aiokafka.testing.state import ClusterState, Partition

if TYPE_CHECKING:
    from aiokafka.testing.script import Script
else:
    Script = later("aiokafka.testing.script.Script")

_TRANSACTION = 1
_NO_EPOCH = -1
# First release in which a producer can recover after a transaction timeout (KIP-588).
_FIRST_SURVIVING = (4, 0)
# The last epoch of a producer id: the next increment switches to a new producer id. Kafka reserves
# epoch 32767 for fencing by the coordinator.
_LAST_EPOCH = 32766

Place = tuple[str, int]
"""Topic and partition."""


class TransactionState(Enum):
    """The states of a transactional id, with Kafka's names as values."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


_PREPARING = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)
_COMPLETE = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class TransactionRefusedError(RefusedError):
    """The transaction coordinator rejects the request of a producer."""


@dataclass(eq=False)
class Transaction:
    """State of one transactional id. The transaction timeout is in seconds."""

    transactional_id: str
    producer_id: int
    epoch: int
    timeout: float
    state: TransactionState = TransactionState.EMPTY
    last_epoch: int = _NO_EPOCH
    """The epoch before the last increment, which a retried request may have; -1 for none."""
    former_producer_id: int = -1
    """The previous producer id, whose epochs are exhausted; -1 for none."""
    partitions: set[Place] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    started_at_ms: int = -1
    marker: tuple[int, int] = (-1, -1)
    """Producer id and epoch of the markers that end the transaction."""
    markers: dict[Place, Batch] = field(default_factory=dict)
    """The written markers, by partition."""
    expiry: asyncio.TimerHandle | None = None

    def is_before_last_bump(self, producer_id: int, epoch: int) -> bool:
        """Return whether a request has the epoch before the last increment, as a retry has."""
        same_id = producer_id in (self.producer_id, self.former_producer_id)
        return same_id and epoch == self.last_epoch != _NO_EPOCH

    def bump(self, next_producer_id: Callable[[], int]) -> None:
        """Increment the epoch; after the last epoch, switch to a new producer id."""
        if self.epoch >= _LAST_EPOCH:
            self.former_producer_id, self.producer_id = self.producer_id, next_producer_id()
            self.last_epoch, self.epoch = self.epoch, 0
        else:
            self.last_epoch, self.epoch = self.epoch, self.epoch + 1


class Transactions:
    """All transactional ids of the cluster.

    Transaction markers are written at once. After :meth:`pause_markers`, or while a partition has
    no leader, a transaction stays in the state PrepareCommit or PrepareAbort, as in a slow cluster.
    The methods raise TransactionRefusedError for requests that Kafka rejects.
    """

    def __init__(
        self,
        state: ClusterState,
        coordinators: Coordinators,
        groups: Groups,
        script: Script,
    ) -> None:
        self._state = state
        self._coordinators = coordinators
        self._groups = groups
        self._script = script
        self._paused = False
        self._completing = False
        self._watched: dict[
            PartitionLog, None
        ] = {}  # logs with a marker that is not replicated yet
        self.by_id: dict[str, Transaction] = {}

    def check_coordinator(self, node_id: int, transactional_id: str) -> int:
        """Return 0 if this broker coordinates the id and has loaded it, else the error code."""
        return self._coordinators.check(_TRANSACTION, transactional_id, node_id)

    # -- InitProducerId ------------------------------------------------------------------------

    def init(
        self, transactional_id: str, timeout: float, producer_id: int, epoch: int
    ) -> tuple[int, int]:
        """Handle InitProducerId: begin a new epoch, and fence the previous producer.

        Args:
            timeout: Transaction timeout in seconds.
            producer_id: The producer id that the producer already has, with its `epoch` (KIP-360);
                -1 for a new producer.

        Returns:
            Producer id and epoch."""
        if not 0 < timeout * 1000 <= self._state.setting("transaction.max.timeout.ms"):
            raise TransactionRefusedError(errors.InvalidTransactionTimeout)
        known = self.by_id.get(transactional_id)
        if known is None:
            new = Transaction(transactional_id, self._next_producer_id(), 0, timeout)
            self.by_id[transactional_id] = new
            return new.producer_id, new.epoch
        if producer_id != -1:
            return self._renew(known, timeout, producer_id, epoch)
        self._end_open(known)
        known.bump(self._next_producer_id)
        known.last_epoch = _NO_EPOCH  # reject retries of the previous producer
        self._reset(known, timeout)
        return known.producer_id, known.epoch

    def _renew(
        self, known: Transaction, timeout: float, producer_id: int, epoch: int
    ) -> tuple[int, int]:
        """Bump the epoch of a producer that recovers from an error (KIP-360). A retry gets the same
        epoch again."""
        ran_out = producer_id == known.former_producer_id and epoch >= _LAST_EPOCH
        if producer_id != known.producer_id and not ran_out:
            raise TransactionRefusedError(errors.ProducerFenced)
        # As in Kafka, abort before the check of the epoch: even the request of a fenced producer
        # aborts the current producer's transaction.
        self._end_open(known)
        if producer_id == known.producer_id and epoch == known.epoch:
            known.bump(self._next_producer_id)
        elif not known.is_before_last_bump(producer_id, epoch):
            raise TransactionRefusedError(errors.ProducerFenced)
        self._reset(known, timeout)
        return known.producer_id, known.epoch

    def _end_open(self, known: Transaction) -> None:
        """Abort an open transaction. Raise CONCURRENT_TRANSACTIONS if a transaction was open or is
        still ending: the client must retry.
        """
        if known.state in _PREPARING:
            raise TransactionRefusedError(errors.ConcurrentTransactions)
        if known.state is TransactionState.ONGOING:
            self._fence(known)
            raise TransactionRefusedError(errors.ConcurrentTransactions)

    def _reset(self, known: Transaction, timeout: float) -> None:
        known.timeout = timeout
        known.state = TransactionState.EMPTY
        self._script.wake()

    def _next_producer_id(self) -> int:
        return next(self._state.next_producer_id)

    # -- the transaction -----------------------------------------------------------------------

    def check_owner(self, transactional_id: str, producer_id: int, epoch: int) -> Transaction:
        """Return the state of a transactional id. Raises TransactionRefusedError if the producer id
        or epoch is not current."""
        known = self.by_id.get(transactional_id)
        if known is None or producer_id != known.producer_id:
            raise TransactionRefusedError(errors.InvalidProducerIdMapping)
        if epoch != known.epoch:
            raise TransactionRefusedError(errors.ProducerFenced)
        return known

    def add_partitions(
        self, transactional_id: str, producer_id: int, epoch: int, places: Iterable[Place]
    ) -> None:
        """Add partitions to the open transaction, or to a new transaction."""
        known = self._open(transactional_id, producer_id, epoch)
        known.partitions |= set(places)

    def add_group(self, transactional_id: str, producer_id: int, epoch: int, group_id: str) -> None:
        """Add the offsets of a group to the open transaction, or to a new transaction."""
        self._open(transactional_id, producer_id, epoch).groups.add(group_id)

    def _open(self, transactional_id: str, producer_id: int, epoch: int) -> Transaction:
        known = self.check_owner(transactional_id, producer_id, epoch)
        # Reject the request until the markers of the previous transaction are written, and let the
        # client retry: records that are written before the markers would become part of the
        # previous transaction.
        if known.state in _PREPARING:
            raise TransactionRefusedError(errors.ConcurrentTransactions)
        if known.state is not TransactionState.ONGOING:
            known.state = TransactionState.ONGOING
            known.started_at_ms = int(_clock.wall_time() * 1000)
            self._limit(known, known.timeout)
            self._script.wake()
        return known

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        bumps_epoch: bool,
    ) -> tuple[int, int]:
        """Commit or abort the transaction.

        Args:
            bumps_epoch: True with transaction version 2 (KIP-890): every EndTxn bumps the epoch,
                and an empty transaction can be aborted.

        Returns:
            Producer id and epoch for the next transaction."""
        known = self.by_id.get(transactional_id)
        was_bumped = known is not None and known.is_before_last_bump(producer_id, epoch)
        if known and bumps_epoch and was_bumped and known.state in (*_PREPARING, *_COMPLETE):
            return self._end_twice(known, commit=commit)
        known = self.check_owner(transactional_id, producer_id, epoch)
        if known.state is TransactionState.ONGOING:
            # Compute the marker before `bump`, which may change the producer id: the marker needs
            # the producer id of the records.
            marker = (known.producer_id, known.epoch + int(bumps_epoch))
            if bumps_epoch:
                known.bump(self._next_producer_id)
            self._finish(known, marker, commit=commit)
            return known.producer_id, known.epoch
        return self._end_again(known, commit=commit, bumps_epoch=bumps_epoch)

    def _end_twice(self, known: Transaction, *, commit: bool) -> tuple[int, int]:
        """Handle a repeated EndTxn: the first one was applied and bumped the epoch."""
        if known.state in _PREPARING:
            raise TransactionRefusedError(errors.ConcurrentTransactions)
        ended = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        if known.state is not ended:
            raise TransactionRefusedError(errors.InvalidTxnState)
        return known.producer_id, known.epoch

    def _end_again(self, known: Transaction, *, commit: bool, bumps_epoch: bool) -> tuple[int, int]:
        """Handle EndTxn without an open transaction: a retry, an error, or an empty abort."""
        complete = TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        # Raise CONCURRENT_TRANSACTIONS even for a commit during an abort, or an abort during a
        # commit: the request may be for the next transaction (KAFKA-18464).
        if known.state in _PREPARING:
            raise TransactionRefusedError(errors.ConcurrentTransactions)
        if bumps_epoch and not commit:
            known.bump(self._next_producer_id)
            known.state = TransactionState.COMPLETE_ABORT
            return known.producer_id, known.epoch
        if known.state is complete and not bumps_epoch:
            return known.producer_id, known.epoch
        raise TransactionRefusedError(errors.InvalidTxnState)

    # -- markers -------------------------------------------------------------------------------

    def pause_markers(self) -> None:
        """Stop writing markers: ending transactions stay in the state PrepareCommit or
        PrepareAbort, their records stay unstable, and requests of the producer get
        CONCURRENT_TRANSACTIONS.
        """
        self._paused = True

    def resume_markers(self) -> None:
        """Write the delayed markers now, and later markers without delay."""
        self._paused = False
        self.complete_waiting()

    def complete_waiting(self) -> None:
        """Write the missing markers of ending transactions to partitions with a leader. Complete
        each transaction whose markers are all replicated.
        """
        if self._completing:
            return  # a nested call: writing a marker wakes the log, which calls this method
        self._completing = True
        try:
            waiting = [known for known in self.by_id.values() if known.state in _PREPARING]
            for known in waiting:
                self._maybe_complete(known)
        finally:
            self._completing = False
        if not any(known.state in _PREPARING for known in waiting):
            for log in self._watched:
                log.unsubscribe(self.complete_waiting)
            self._watched.clear()

    def _finish(self, known: Transaction, marker: tuple[int, int], *, commit: bool) -> None:
        known.state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
        known.marker = marker
        if known.expiry is not None:
            known.expiry.cancel()
            known.expiry = None
        self.complete_waiting()
        self._script.wake()

    def _maybe_complete(self, known: Transaction) -> None:
        commit = known.state is TransactionState.PREPARE_COMMIT
        found = [self._state.partition(*place) for place in sorted(known.partitions)]
        partitions = [partition for partition in found if partition is not None]
        if self._paused:
            return
        marked = [self._mark(known, partition, commit=commit) for partition in partitions]
        if not all(marked):
            return
        for group_id in sorted(known.groups):
            self._groups.end_transaction(group_id, *known.marker, commit=commit)
        known.partitions.clear()
        known.groups.clear()
        known.markers.clear()
        known.state = (
            TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT
        )

    def _mark(self, known: Transaction, partition: Partition, *, commit: bool) -> bool:
        """Write the marker to a partition, unless its leader has the marker. Return whether all
        in-sync replicas have the marker; False for a partition without a leader.
        """
        if partition.leader == -1:
            return False
        place, log = (partition.topic, partition.index), partition.log
        written = known.markers.get(place)
        # After an unclean election the new leader may lack the marker. The last stable offset would
        # then never advance, so write the marker again.
        if written is None or not log.has(written):
            written = known.markers[place] = log.add_marker(*known.marker, commit=commit)
        if written.base_offset < log.high_watermark:
            return True
        self._watched[log] = None
        log.subscribe(self.complete_waiting)
        return False

    def _expire(self, known: Transaction) -> None:
        """Abort a transaction that has timed out, and fence its producer."""
        if known.state is TransactionState.ONGOING:
            self._fence(known)

    def _fence(self, known: Transaction) -> None:
        """Abort the transaction and bump the epoch, so that its producer cannot write any more.
        Since Kafka 4.0 the producer can recover with InitProducerId (KIP-588).
        """
        survives = self._state.profile.release >= _FIRST_SURVIVING
        known.last_epoch = known.epoch if survives else _NO_EPOCH
        known.epoch += 1
        self._finish(known, (known.producer_id, known.epoch), commit=False)

    # -- produce -------------------------------------------------------------------------------

    def check_produce(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        partition: Partition,
        *,
        adds_partition: bool,
    ) -> int:
        """Return the error code for a transactional batch to a partition; 0 if it may be written.

        Args:
            adds_partition: True with transaction version 2 (KIP-890): the batch itself adds the
                partition to the transaction.
        """
        place = (partition.topic, partition.index)
        try:
            if adds_partition:
                self.add_partitions(transactional_id, producer_id, epoch, [place])
                return 0
            known = self.check_owner(transactional_id, producer_id, epoch)
        except TransactionRefusedError as exc:
            fenced = exc.errno == errors.ProducerFenced.errno
            return errors.InvalidProducerEpoch.errno if fenced else exc.errno
        ongoing = known.state is TransactionState.ONGOING and place in known.partitions
        return 0 if ongoing else errors.InvalidTxnState.errno

    def _limit(self, known: Transaction, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        known.expiry = loop.call_later(seconds, self._expire, known)

    def resume(self) -> None:
        """Start the timers of open transactions again, each with its remaining timeout."""
        for known in self.by_id.values():
            if known.state is TransactionState.ONGOING:
                age = _clock.wall_time() - known.started_at_ms / 1000
                self._limit(known, max(0.0, known.timeout - age))

    def close(self) -> None:
        """Cancel all timers."""
        for known in self.by_id.values():
            if known.expiry is not None:
                known.expiry.cancel()
