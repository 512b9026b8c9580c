"""The state of a producer's id, epochs and sequence numbers, and of its transaction.

No I/O: `Sender` requests a producer id when `wants_producer_id` is set, `ProducerTransactions`
sends requests to the coordinator, and `BatchCompletion` reports the outcome of batches.

Sequence numbers
----------------

A leader remembers, for each producer id, the epoch and the sequence numbers of the last five
batches that it has written. If the leader gets one of these batches again, it acknowledges the
batch without writing it again. The leader refuses a batch that does not begin where the last batch
ended (OutOfOrderSequenceNumber: a gap). So a batch keeps its sequence number as long as the batch
may be in the log (KIP-98).

What happens after a failure (KIP-360, without transactions):

1. Batches 1 (numbers 0 to 9), 2 (10 to 19) and 3 (20 to 29) are in flight; `next` is 30.
2. Batch 1 fails with a retriable error, and moves back to the front of its queue with its number.
   Batches 2 and 3 are refused as gaps, because batch 1 was not written. `is_oldest` is false for
   both, so no new epoch is needed: the three batches are retried in order.
3. Another case: batch 1 times out, and may have been written, so `is_uncertain` is set. New batches
   wait, and batches 2 and 3 are sent again under their old numbers. If the leader writes batches 2
   and 3, batch 1 is in the log, `expected` reaches `next`, and new batches continue the sequence.
4. If batch 2 is refused as a gap instead, `has_gap` is set, because no undelivered batch precedes
   batch 2. The leader will refuse every later number of this epoch, so the sequence restarts at 0
   under the next epoch. (If batches 1 and 2 may still be written, batch 2 fails:
   `BatchCompletion._may_still_be_written`.) A restart is safe only if no batch is in flight: such a
   batch might be written with its old number, and again with its new number. So `assign_sequence`
   waits for in-flight batches, clears the numbers of all waiting batches, and increments the epoch.
5. After the last epoch (32767) another producer id is needed: `wants_producer_id` is set.

With transactions only the coordinator allocates epochs: a gap fails the transaction, and the abort
gets the next epoch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Set
from enum import Enum
from typing import TYPE_CHECKING

from aiokafka.errors import (
    ClusterAuthorizationFailedError,
    FencedInstanceId,
    InvalidProducerEpoch,
    KafkaConnectionError,
    KafkaTimeoutError,
    NodeNotReadyError,
    RequestTimedOutError,
    TransactionalIdAuthorizationFailed,
    TransactionStateError,
    UnsupportedVersionError,
    renewed,
)
from aiokafka.net.failures import REFUSALS
from aiokafka.producer.batch import advance
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.producer.batch import ProducerBatch
    from aiokafka.producer.message_accumulator import PartitionQueue

__all__ = [
    "UNANSWERED",
    "MarkerPause",
    "PartitionSequence",
    "ProducerIdState",
    "Transaction",
    "TransactionManager",
    "TransactionState",
    "UnansweredRequests",
    "is_oldest",
]


# -- The producer id and the sequence numbers (KIP-98, KIP-360)


_LAST_EPOCH = 0x7FFF

_LONGEST_PAUSE = 300.0
"""Seconds without a batch after which a leader may have forgotten a producer id. The default of
`producer.id.expiration.ms` is a day, but clusters with many producers set it to minutes.
"""


class PartitionSequence:
    """The sequence numbers of one partition. Only `ProducerIdState` changes the fields."""

    __slots__ = (
        "epoch",
        "expected",
        "generation",
        "has_gap",
        "is_uncertain",
        "is_unresolved",
        "known_by",
        "known_id",
        "next",
        "producer_id",
        "topic_id",
        "used_at",
    )

    def __init__(self) -> None:
        self.generation = -1
        """The `ProducerIdState.generation` of the producer id that the partition uses."""
        self.producer_id = -1
        self.epoch = -1
        self.next = 0
        """The first sequence number of the next new batch."""
        self.expected = 0
        """The sequence number that the leader expects next, according to its last response."""
        self.is_uncertain = False
        """Whether a batch with a sequence number has failed. If the leader has not written this
        batch, `expected` never reaches `next`."""
        self.is_unresolved = False
        """Whether a batch has failed although a leader may still write it."""
        self.has_gap = False
        """Whether the leader reported that records before the oldest batch are missing."""
        self.known_id = -1
        """The producer id that the leader is known to remember, with any epoch; -1 if unknown."""
        self.known_by = -1
        """The node id of the leader that remembers `known_id`."""
        self.used_at = 0.0
        """The loop time of the last `assign_sequence` for this partition."""
        self.topic_id: bytes | None = None
        """The topic id in the last metadata; None before Kafka 2.8."""


class ProducerIdState:
    """Assigns producer ids, epochs and sequence numbers to batches (KIP-98).

    After a gap, the sequence of a partition restarts at 0 under the partition's next epoch
    (KIP-360): without transactions, each partition has its own epoch. Owns: the producer id and
    every `PartitionSequence`.
    """

    def __init__(self, transaction: Transaction | None = None) -> None:
        """With a `transaction`, only the coordinator allocates epochs: a sequence with a gap cannot
        restart before the transaction is aborted.
        """
        self.transaction = transaction
        self.producer_id = -1
        self.producer_epoch = -1
        self.generation = 0
        """The number of calls of `set_producer_id`."""
        self.wants_producer_id = True
        """Whether another producer id is needed. New batches wait for it."""
        self.id_error: BaseException | None = None
        """The error of the last request for a producer id; None after a success."""
        self._first_epoch = -1
        """The epoch with which a partition begins: higher than the epochs of all partitions that
        were forgotten since the current producer id was set."""

    # -- attributes of TransactionManager in aiokafka 0.14

    @property
    def transactional_id(self) -> str | None:
        """The transactional id; None for a producer without transactions."""
        return None if self.transaction is None else self.transaction.transactional_id

    @property
    def state(self) -> TransactionState:
        """The state of the transaction; UNINITIALIZED for a producer without transactions."""
        transaction = self.transaction
        return TransactionState.UNINITIALIZED if transaction is None else transaction.state

    def has_pid(self) -> bool:
        """Return whether the producer has a producer id."""
        return self.producer_id != -1

    def is_in_transaction(self) -> bool:
        """Return whether a transaction is open and has not failed."""
        return self.state is TransactionState.IN_TRANSACTION

    def is_fatal_error(self) -> bool:
        """Return whether the producer has failed for good: even an abort is impossible."""
        return self.state is TransactionState.FATAL

    # -- the producer id

    def set_producer_id(self, producer_id: int, epoch: int) -> None:
        """Set a new producer id, or another epoch of the current id. A partition begins to use the
        new id and epoch when none of its batches is in flight.
        """
        self.producer_id = producer_id
        self.producer_epoch = self._first_epoch = epoch
        self.generation += 1
        self.wants_producer_id = False
        self.id_error = None

    def set_id_error(self, error: BaseException) -> None:
        """Record the error of a request for a producer id."""
        self.id_error = error

    def discard_producer_id(self, producer_id: int) -> None:
        """Request another producer id, because brokers refuse `producer_id`; do nothing if it is
        not the current one."""
        if producer_id == self.producer_id:
            self.wants_producer_id = True

    def lacks_id(self, queue: PartitionQueue) -> bool:
        """Return whether a new batch of `queue` has to wait for another producer id."""
        return self.wants_producer_id and self._needs_preparation(queue.sequence)

    # -- sequence numbers

    def assign_sequence(self, queue: PartitionQueue, batch: ProducerBatch, now: float) -> bool:
        """Assign the next sequence number to `batch`, the oldest waiting batch of `queue`, and
        return True. `now` is loop time.

        Returns False if the batch has to wait: for in-flight batches, for a producer id, or for the
        coordinator of the transaction. A batch that was sent before keeps its number, because the
        leader may have the batch.
        """
        sequence = queue.sequence
        if now - sequence.used_at > _LONGEST_PAUSE:
            sequence.known_id = -1  # the leader may have forgotten the producer id
        sequence.used_at = now
        if self.transaction is not None and not self.transaction.admits(queue.partition):
            return False
        if self._needs_preparation(sequence):
            if sequence.has_gap:
                if queue.in_flight:
                    return False
                queue.clear_sequences()
            if not batch.has_sequence and (queue.in_flight or not self._prepare_sequence(sequence)):
                return False
        # A leader accepts any first number from a producer id that it does not know:
        #
        # 1. The first two batches, batch 0 (first number 0) and batch 10 (first number 10), are in
        #    flight to a broker that is about to become the leader.
        # 2. Batch 0 arrives too early, and is refused. Now the broker becomes the leader.
        # 3. Batch 10 arrives. The leader does not know the producer id, so it writes the batch.
        # 4. Batch 0 is sent again. Its number is lower than the numbers in the log, so the leader
        #    refuses batch 0 at every attempt: its records are lost.
        #
        # So to each leader, the first batch of a producer id is sent while no other batch is in
        # flight. The first batch of a new epoch needs no such protection: if the leader knows the
        # producer id, it accepts only 0 as the first number of the epoch.
        if queue.in_flight and not _is_known(queue):
            return False
        if not batch.has_sequence:
            batch.assign_sequence(sequence.producer_id, sequence.epoch, sequence.next)
            sequence.next = advance(sequence.next, batch.record_count)
        return True

    def forget(self, queue: PartitionQueue) -> bool:
        """Return whether `queue`, which has no batches, can be forgotten with its sequence numbers.

        If the queue is created again, its numbers begin at 0, and the leader may still remember the
        earlier numbers: under the same epoch, the leader could regard the first batch as a
        duplicate. So partitions begin with a higher epoch from now on. With transactions, only the
        coordinator raises the epoch: then return False if the queue has numbers of the current
        epoch.
        """
        sequence = queue.sequence
        if sequence.generation != self.generation:
            return True
        if self.transaction is not None:
            return False
        if sequence.epoch >= _LAST_EPOCH:
            self.wants_producer_id = True
        else:
            self._first_epoch = max(self._first_epoch, sequence.epoch + 1)
        return True

    def set_topic_id(self, queue: PartitionQueue, topic_id: bytes | None) -> None:
        """Set the topic id of the last metadata. If the topic id has changed, the topic was
        recreated, and the leader knows no producer id."""
        sequence = queue.sequence
        if topic_id != sequence.topic_id:
            sequence.topic_id = topic_id
            sequence.known_id = -1

    def on_success(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Update the sequence after the leader has written `batch`."""
        sequence = queue.sequence
        if batch.has_identity(sequence.producer_id, sequence.epoch):
            sequence.expected = advance(batch.base_sequence, batch.record_count)
            sequence.known_id = batch.producer_id
            assert queue.in_flight_from is not None
            sequence.known_by = queue.in_flight_from.node_id

    def on_loss(self, queue: PartitionQueue, batch: ProducerBatch, error: BaseException) -> None:
        """Update the sequence after `batch` has failed for good, perhaps with an unknown outcome.
        With transactions, fail the transaction."""
        sequence = queue.sequence
        transaction = None if self.is_past(batch) else self.transaction
        if batch.has_sequence and batch.has_identity(sequence.producer_id, sequence.epoch):
            sequence.is_uncertain = True
            sequence.is_unresolved |= batch.may_be_written(error)
            if transaction is not None:
                transaction.require_new_epoch()
        if transaction is not None:
            transaction.fail(error)

    def is_past(self, batch: ProducerBatch) -> bool:
        """Return whether `batch` belongs to a transaction that was aborted before the batch had a
        response.

        This happens only in transactions of version 2 (KIP-890), where each transaction has its own
        epoch: with version 1 an abort waits for the responses.
        """
        if self.transaction is None or not batch.has_sequence:
            return False
        return not batch.has_identity(self.producer_id, self.producer_epoch)

    def on_gap(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Update the sequence after the leader has refused `batch` for its sequence number, epoch
        or producer id.

        Usually an earlier batch has failed, and all batches are sent again in order. If `batch` is
        the oldest undelivered batch, the leader has lost records, or never got the records of a
        failed batch: then the sequence has a gap, which needs a new epoch.
        """
        sequence = queue.sequence
        if not batch.has_identity(sequence.producer_id, sequence.epoch):
            return
        sequence.known_id = -1
        if is_oldest(queue, batch):
            sequence.has_gap = True

    def _needs_preparation(self, sequence: PartitionSequence) -> bool:
        """Return whether `_prepare_sequence` must be called before the next new batch: a batch has
        failed, the leader reported a gap, or the producer id or epoch has changed."""
        is_old = sequence.generation != self.generation
        return sequence.is_uncertain or sequence.has_gap or is_old

    def _prepare_sequence(self, sequence: PartitionSequence) -> bool:
        """Prepare the sequence for a new batch, with another epoch or producer id if necessary, and
        return True. The caller has checked that no batch of the partition is in flight.

        Returns False if the batch must wait for another producer id, or for the abort of the
        transaction.
        """
        if self.wants_producer_id:
            return False
        if sequence.generation != self.generation:
            sequence.generation = self.generation
            sequence.producer_id = self.producer_id
            sequence.epoch = self._first_epoch
            sequence.next = sequence.expected = 0
        elif sequence.has_gap or sequence.expected != sequence.next:
            if self.transaction is not None:
                return False
            if sequence.epoch == _LAST_EPOCH:
                self.wants_producer_id = True
                return False
            sequence.epoch += 1
            sequence.next = sequence.expected = 0
        sequence.has_gap = sequence.is_uncertain = sequence.is_unresolved = False
        return True


TransactionManager = ProducerIdState
"""The name in aiokafka 0.14 of the class of `producer._txn_manager`."""


def is_oldest(queue: PartitionQueue, batch: ProducerBatch) -> bool:
    """Return whether no undelivered batch of `queue` precedes `batch` in the sequence."""
    return not any(_precedes(other, batch) for other in (*queue.in_flight, *queue.waiting))


def _is_known(queue: PartitionQueue) -> bool:
    """Return whether the leader of `queue` is known to remember the producer id.

    False after a change of the leader. A new leader may not know the id: if the producer's records
    were deleted (retention) before the new leader, as a replica, copied the log, it learns the
    producer id only from the next record.
    """
    sequence, node = queue.sequence, queue.node
    is_same = node is not None and node.node_id == sequence.known_by
    return is_same and sequence.known_id == sequence.producer_id


def _precedes(other: ProducerBatch, batch: ProducerBatch) -> bool:
    """Return whether `other`, of the same partition and epoch, has an earlier sequence number."""
    if other is batch or not other.has_sequence:
        return False
    return 0 < (batch.base_sequence - other.base_sequence) & 0x7FFFFFFF < 0x40000000


# -- Requests of a transaction without a response, which brokers may process after its end


# After these errors a request may have been sent, and may still be processed. (REFUSALS: if
# re-authentication fails, the connection closes, and its in-flight requests get no response.)
UNANSWERED = (
    KafkaConnectionError,
    NodeNotReadyError,
    RequestTimedOutError,
    *REFUSALS,
    asyncio.TimeoutError,
    asyncio.CancelledError,
)


class UnansweredRequests:
    """The requests of a transaction that got no response, grouped by what they may change: brokers
    may still process them. A request without a response counts even if its retry got a response.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget all requests: brokers refuse them from now on, or the caller makes brokers refuse
        them."""
        self.partitions: set[TopicPartition] = set()
        """Partitions to which records may still be written."""
        self.groups: set[str] = set()
        """Groups whose offsets may still be stored."""
        self.of_coordinator = False
        """Whether the coordinator may still change or end the transaction."""
        self.of_commit = False
        """Whether the outcome of an EndTxn with a commit is unknown: the transaction may be
        committed, even if the coordinator rejects a later request."""

    def __bool__(self) -> bool:
        return bool(self.partitions or self.groups or self.of_coordinator)

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Add the partitions of a Produce request that got no response."""
        self.partitions.update(partitions)

    def add_group(self, group_id: str) -> None:
        """Add the group of a TxnOffsetCommit that got no response."""
        self.groups.add(group_id)

    def add_coordinator(self) -> None:
        """Set `of_coordinator`: a request to the transaction coordinator got no response."""
        self.of_coordinator = True

    def note_end(self, is_commit: bool) -> None:
        """Record that the coordinator may have stored an EndTxn, although the call failed, or the
        response has an error. `is_commit`: whether the EndTxn was a commit."""
        self.of_commit |= is_commit

    def forget_records(self) -> None:
        """Forget the partitions after a commit: all records were acknowledged, so leaders recognize
        a late request as a duplicate by its sequence numbers."""
        self.partitions.clear()


# -- The markers of the last transaction


_LEADER_BACKOFF = 0.02
"""Seconds after which a leader repeats its request to the coordinator to add a partition: the
default of `add.partitions.to.txn.retry.backoff.ms`."""

_PAUSE_STEP = 0.001
"""Seconds by which a pause grows. Timers of an event loop are not more exact."""

_LONGEST_MARKER_PAUSE = 0.01
"""Longest pause in seconds. It has to be much shorter than `_LEADER_BACKOFF`."""

_LARGEST_LOSS = 0.06
"""The pause grows if the loss exceeds this number of seconds. The loss is the time that slow
responses have cost, minus the time that a longer pause would have cost. Responses that are slow for
another reason are too rare to cause this loss."""

_TRANSACTIONS_BEFORE_HALVING = 200
"""A pause that has not grown for this number of transactions is halved. If the halved pause is too
short, slow responses cost `_LARGEST_LOSS` once in this number of transactions, until the pause
grows again."""

_NO_PAUSE_TIME = 60.0
"""Seconds without pauses after the longest pause has not helped."""


class MarkerPause:
    """Delays the first requests of a transaction until the markers of the last transaction are
    likely to be written (version 2, KIP-890).

    Why a request takes longer if it is sent before the markers are written:

    1. The coordinator responds to EndTxn, and writes the markers afterwards. That takes half a
       millisecond on an idle broker, and several milliseconds if markers are replicated.
    2. The first Produce request of the next transaction arrives at the leader before the markers
       are written. The coordinator refuses to add the partition (CONCURRENT_TRANSACTIONS).
    3. The leader does not respond with this error. It repeats its request to the coordinator after
       20 ms (`_LEADER_BACKOFF`), and then writes the records.

    No response shows how long the markers take, so the pause is adapted to the response times. It
    grows by a millisecond if more than one in twenty responses is slow: a millisecond in each of 20
    transactions costs as much as one slow response. Otherwise it is halved after some time. If the
    longest pause does not prevent slow responses, they have another reason, and no transaction
    pauses for a minute.

    The pause begins with the response to EndTxn. An application that sends its first records after
    the end of the pause does not wait.
    """

    def __init__(self) -> None:
        self.until = 0.0
        """The loop time before which no records of the transaction are sent."""
        self._length = 0.0
        self._is_first = False
        self._count = 0
        """The transactions since the last change of the length."""
        self._loss = 0.0
        self._none_until = 0.0

    def begin(self, now: float) -> None:
        """Begin the pause: the response to EndTxn has arrived at `now` (loop time)."""
        self._is_first = True
        self.until = now + self._length

    def on_response(self, sent_at: float, now: float) -> None:
        """Adapt the length of the pause to the response time of a Produce request, if it is the
        first request after the pause. `sent_at`, `now`: loop times of request and response."""
        if not self._is_first:
            return
        self._is_first = False
        if sent_at > self.until + _LONGEST_MARKER_PAUSE:
            return
        self._count += 1
        if now >= sent_at + _LEADER_BACKOFF:
            self._loss += _LEADER_BACKOFF
        else:
            self._loss = max(0.0, self._loss - _PAUSE_STEP)
        if self._loss > _LARGEST_LOSS and now >= self._none_until:
            self._lengthen(now)
        elif self._count >= _TRANSACTIONS_BEFORE_HALVING:
            self._set(self._length / 2 if self._length > _PAUSE_STEP else 0.0)

    def _lengthen(self, now: float) -> None:
        if self._length < _LONGEST_MARKER_PAUSE:
            self._set(self._length + _PAUSE_STEP)
        else:
            self._set(0.0)
            self._none_until = now + _NO_PAUSE_TIME

    def _set(self, length: float) -> None:
        self._length = length
        self._loss = 0.0
        self._count = 0


# -- The transaction


class TransactionState(Enum):
    """The states of a producer with transactions; `_TRANSITIONS` lists the allowed changes."""

    UNINITIALIZED = "not started"
    READY = "ready to begin"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    COMMITTED = "almost ready to begin"
    ABORTING = "aborting"
    ABORTABLE = "failed: only abort_transaction() is possible"
    FATAL = "failed for good"

    __hash__ = object.__hash__  # faster than Enum's, which is a function in Python


_S = TransactionState

# What triggers the transitions:
#   READY             InitProducerId has succeeded, or the coordinator has ended the transaction
#   IN_TRANSACTION    begin_transaction()
#   COMMITTING        commit_transaction()
#   COMMITTED         the commit has succeeded, but a step that the next transaction needs (a new
#                     epoch, or fencing requests without a response) has failed or timed out
#   ABORTING          abort_transaction(), or stop()
#   ABORTABLE         records or offsets have failed, or the coordinator has aborted the transaction
#   FATAL             the producer was fenced, or is not authorized (_FATAL_ERRORS)
_TRANSITIONS = {
    _S.UNINITIALIZED: {_S.READY, _S.FATAL},
    _S.READY: {_S.IN_TRANSACTION, _S.FATAL},
    _S.IN_TRANSACTION: {_S.COMMITTING, _S.ABORTING, _S.ABORTABLE, _S.FATAL},
    _S.COMMITTING: {_S.READY, _S.COMMITTED, _S.ABORTING, _S.ABORTABLE, _S.FATAL},
    _S.COMMITTED: {_S.READY, _S.FATAL},
    _S.ABORTABLE: {_S.ABORTING, _S.FATAL},
    _S.ABORTING: {_S.READY, _S.FATAL},
    _S.FATAL: set(),
}

# Programs for aiokafka 0.14 look for these texts at the beginning of an error message. A reason
# follows them.
_NO_RECORDS = "Can't send messages while not in transaction"
_OPENINGS = {
    "send": _NO_RECORDS,
    "send_batch": _NO_RECORDS,
    "send_offsets_to_transaction": "Not in the middle of a transaction",
}

# ProducerFenced is not among these errors: the transaction may only have exceeded its timeout.
# `Fencing.explain`, or the end of an abort, finds the cause, and calls `fail_for_good` if the
# producer was fenced.
_FATAL_ERRORS = (
    TransactionalIdAuthorizationFailed,
    ClusterAuthorizationFailedError,
    UnsupportedVersionError,
)


class Transaction:
    """The state of the transaction, its error, and the partitions and groups at the coordinator.

    Owns every field: other classes read the fields, only methods of this class change them.
    """

    def __init__(self, transactional_id: str, on_closed: Callable[[], None]) -> None:
        """`on_closed` is called when the transaction accepts no more records."""
        self.transactional_id = transactional_id
        self.state = _S.UNINITIALIZED
        self.number = 0
        """The number of transactions begun so far. A task of an earlier transaction compares this
        number, so that it does not change the present transaction."""
        self.error: BaseException | None = None
        self.doubt: BaseException | None = None
        """The error of a leader that may mean that the producer was fenced; None without such an
        error. No records are sent until a response of the coordinator shows the reason for the
        error."""
        self.doubtful: TopicPartition | None = None
        """The partition whose leader has sent the error `doubt`."""
        self.is_version_2 = False
        """Whether leaders add partitions themselves, and every EndTxn increments the epoch
        (transactions of version 2, KIP-890)."""
        self.needs_new_epoch = False
        """Whether the next transaction needs another epoch, because the sequence numbers that
        leaders expect are unknown."""
        self.has_effects = False
        """Whether the coordinator may know the transaction, because a request was sent: then EndTxn
        is necessary."""
        self.is_ending = False
        """Whether EndTxn with a commit may have been sent, so that an abort is impossible."""
        self.is_ended = False
        """Whether EndTxn has succeeded. Only a new epoch may still be needed."""
        self.partitions: set[TopicPartition] = set()
        """Partitions that the coordinator has added to the transaction."""
        self.wanted: set[TopicPartition] = set()
        """Partitions that the coordinator has to add before their records are sent."""
        self.groups: set[str] = set()
        """Groups that the coordinator has added to the transaction."""
        self.unanswered = UnansweredRequests()
        """Requests without a response, which may be processed after the transaction."""
        self.marker_pause = MarkerPause()
        """The pause of transactions of version 2 until the markers of the last one are written."""
        self._on_closed = on_closed

    def begin(self, is_version_2: bool) -> None:
        """Enter IN_TRANSACTION. Raises TransactionStateError, or the error of a failed producer, if
        the state does not allow it."""
        self._enter(_S.IN_TRANSACTION, "begin_transaction")
        self.number += 1
        self.is_version_2 = is_version_2

    def check_may_begin(self, *, is_committing: bool) -> None:
        """Raise TransactionStateError unless `begin` can finish the last transaction, if necessary,
        and begin another one:
        - in READY and COMMITTED;
        - in ABORTING, after finishing the abort;
        - in COMMITTING, after finishing the commit, if EndTxn may have been sent, and no other task
          is committing now (`is_committing`).
        """
        is_left = self.state is _S.COMMITTING and self.is_ending and not is_committing
        if not is_left and self.state not in (_S.READY, _S.COMMITTED, _S.ABORTING):
            raise self._refusal("begin_transaction")

    def begin_commit(self) -> None:
        """Enter COMMITTING, or stay COMMITTING in a repeated call; accept no more records."""
        if self.state is not _S.COMMITTING:
            self._enter(_S.COMMITTING, "commit_transaction")
        self._on_closed()

    def begin_abort(self) -> None:
        """Enter ABORTING, or stay in it if an earlier abort timed out or was cancelled. Accept no
        more records.

        Raises TransactionStateError if a commit may have been sent.
        """
        # The outcome of a commit that may have been sent is unknown. After an abort, the
        # application would regard records as aborted, although consumers may have read them.
        if self.state is _S.COMMITTING and self.is_ending:
            raise self._refusal("abort_transaction")
        if self.state is not _S.ABORTING:
            self._enter(_S.ABORTING, "abort_transaction")
        self._on_closed()

    def end(self) -> None:
        """Finish the transaction, or the start of the producer: the next transaction can begin."""
        self._enter(_S.READY, "end")
        self.partitions.clear()
        self.wanted.clear()
        self.groups.clear()
        self.unanswered.clear()
        self.error = self.doubt = None
        self.has_effects = self.is_ending = self.is_ended = self.needs_new_epoch = False

    # -- the transaction at the coordinator and the leaders

    def note_effects(self) -> None:
        """Record that a request is being sent, so that the coordinator may know the transaction."""
        self.has_effects = True

    def add_partitions(self, partitions: Set[TopicPartition]) -> None:
        """Record partitions that the coordinator has added, so that their records may be sent."""
        self.wanted -= partitions
        self.partitions |= partitions

    def add_group(self, group_id: str) -> None:
        """Record a group that the coordinator has added, so that its offsets may be sent."""
        self.groups.add(group_id)

    def set_doubt(self, partition: TopicPartition, error: BaseException) -> None:
        """Send no more records until a response of the coordinator shows why the leader of
        `partition` refused records with `error`.
        """
        self.doubtful = partition
        self.doubt = error

    def require_new_epoch(self) -> None:
        """Require another epoch for the next transaction, with sequence numbers from 0."""
        self.needs_new_epoch = True

    def note_new_epoch(self) -> None:
        """Record that the coordinator has allocated another epoch."""
        self.needs_new_epoch = False

    def begin_end(self, is_commit: bool) -> None:
        """Record that EndTxn is being sent. With `is_commit` an abort is impossible afterwards."""
        self.is_ending = is_commit

    def note_refusal(self) -> None:
        """Record that the coordinator has refused the commit: an abort is possible again."""
        self.is_ending = False

    def note_end(self, now: float) -> None:
        """Record that the coordinator has ended the transaction at `now` (loop time), so EndTxn is
        not sent again."""
        self.is_ended = True
        if self.is_version_2:
            self.marker_pause.begin(now)

    def note_commit(self) -> None:
        """Enter COMMITTED: the commit has succeeded, but the next transaction cannot begin yet."""
        if self.state is not _S.FATAL:
            self._enter(_S.COMMITTED, "commit_transaction")

    @property
    def accepts_records(self) -> bool:
        """Whether records that were passed to `send` may still become part of the transaction."""
        return self.state in (_S.IN_TRANSACTION, _S.COMMITTING)

    @property
    def is_undecided(self) -> bool:
        """Whether the transaction is open, and an abort is possible: no commit was sent."""
        if self.state is _S.COMMITTING:
            return not self.is_ending
        return self.state in (_S.IN_TRANSACTION, _S.ABORTABLE, _S.ABORTING)

    def admits(self, partition: TopicPartition) -> bool:
        """Return whether records of `partition` may be sent now: the transaction accepts records,
        there is no `doubt`, and the coordinator has added the partition (version 1 only). If only
        the last condition is not met, add the partition to `wanted`. In version 2, set
        `has_effects` if records may be sent.
        """
        if not self.accepts_records or self.doubt is not None:
            return False
        if self.is_version_2:
            self.has_effects = True
        elif partition not in self.partitions:
            # The next AddPartitionsToTxn request adds all partitions in `wanted`.
            self.wanted.add(partition)
            return False
        return True

    def holds(self, partition: TopicPartition) -> bool:
        """Return whether records of `partition` wait for the coordinator."""
        return self.doubt is not None or partition in self.wanted

    def fail(self, error: BaseException) -> None:
        """Record that records or offsets have failed:

        - A fatal error, or any error if EndTxn with a commit may have been sent: fail the producer
          for good. (An abort could not undo the commit.)
        - Otherwise, if the transaction accepts records: it can only be aborted from now on.
        - Otherwise do nothing.
        """
        if isinstance(error, _FATAL_ERRORS) or self.is_ending:
            self.fail_for_good(error)
        elif self.accepts_records:
            if isinstance(error, KafkaTimeoutError):
                # Without this attribute, programs would repeat the commit after a
                # KafkaTimeoutError.
                vars(error)["requires_abort"] = True
            if isinstance(error, FencedInstanceId):
                # The error is fatal for the consumer whose offsets were sent, but not for this
                # producer.
                vars(error)["is_fatal"] = False
            self._enter(_S.ABORTABLE, "fail")
            self.error = error
            # A leader knows a later epoch, so this producer needs a new one.
            self.needs_new_epoch |= isinstance(error, InvalidProducerEpoch)
            self._on_closed()

    def fail_late(self, error: BaseException) -> None:
        """Record that the coordinator has aborted the transaction and allocated another epoch.

        `abort_transaction` then needs no request. The abort markers had a later epoch than the
        transaction, so brokers refuse any request of the transaction that they process after the
        markers.
        """
        self.is_ending = False
        self.fail(error)
        self.unanswered.clear()
        self.has_effects = self.needs_new_epoch = False

    def fail_for_good(self, error: BaseException) -> None:
        """Record that the producer cannot continue: every call raises `error` from now on."""
        if self.state is not _S.FATAL:
            # The class of the error may set `requires_abort`. If it stayed True, programs would
            # abort again and again.
            vars(error).update(is_fatal=True, requires_abort=False)
            self._enter(_S.FATAL, "fail")
            self.error = error
            self._on_closed()

    def check(self, call: str) -> None:
        """Raise TransactionStateError, or the error of a failed producer, unless the method named
        `call` may add records or offsets now."""
        if self.state is not _S.IN_TRANSACTION:
            raise self._refusal(call)

    def raise_failure(self) -> None:
        """Raise the error of the transaction if the transaction has failed."""
        if self.state in (_S.ABORTABLE, _S.FATAL) and self.error is not None:
            raise renewed(self.error) from self.error

    def _enter(self, state: TransactionState, call: str) -> None:
        if state not in _TRANSITIONS[self.state]:
            raise self._refusal(call)
        self.state = state

    def _refusal(self, call: str) -> BaseException:
        if self.state is _S.FATAL and self.error is not None:
            refusal = renewed(self.error)
            refusal.__cause__ = self.error
            return refusal
        opening = _OPENINGS.get(call, call)
        text = f"{opening}: the producer is {self.state.value}"
        if self.state is _S.ABORTABLE:
            refusal = TransactionStateError(f"{text}, because of: {self.error}")
            refusal.__cause__ = self.error
            return refusal
        if self.state in (_S.READY, _S.COMMITTED):
            text = (
                f"{opening}: no transaction is open, the producer is {self.state.value} one: use "
                "`async with producer.transaction()`, or call begin_transaction() first"
            )
        elif self.state is _S.COMMITTING:
            text += "; if that call ended with an error, call commit_transaction() again"
        return TransactionStateError(text)
