"""Number the batches of a producer: its id, its epochs, and the sequences of all partitions.

No I/O: the sender asks for a producer id when `wants_producer_id` is set, and reports what became
of batches.

Theory of operation
-------------------

A leader remembers, for each producer id, the epoch and the sequence numbers of the last five
batches that it has written. A batch that it knows it acknowledges without writing it again; a batch
that does not begin where the last one ended it refuses (OutOfOrderSequenceNumber: a gap). So a
batch keeps its number for as long as it may be in the log, whatever happens to it (KIP-98).

What happens after a failure (KIP-360, without transactions):

1. Batches 1 (numbers 0 to 9), 2 (10 to 19) and 3 (20 to 29) are in flight; `next` is 30.
2. Batch 1 fails in a way that a retry may mend. It goes back to the front of its queue, number and
   all. Batches 2 and 3 are refused as gaps, since 1 was not written. `is_oldest` says that a batch
   before them is still to come: a plain retry in order mends this, and no epoch is spent.
3. Now batch 1 is given up instead, because its time is up. It may have been written or not:
   `is_uncertain`. New batches wait, batches 2 and 3 are sent again under their old numbers. If they
   are written, batch 1 was in the log, `expected` reaches `next`, and all is well.
4. If batch 2 is refused as a gap, no batch before it is left: `has_gap`. The leader will refuse
   every later number of this epoch, so the sequence has to begin again at 0 under the next epoch.
   (If batch 1 may still be written, and batch 2 with it, batch 2 fails instead:
   `Delivery._is_too_late_to_say`.)
   That is safe only when nothing is in flight: a batch that is still under way with an old number
   could be written after all, and then once more under its new number. `identify` waits for that,
   takes the numbers from all that waits, and counts the epoch up.
5. After the last epoch (32767) another producer id is needed: `wants_producer_id`.

With transactions the epoch is the coordinator's. A gap then fails the transaction, and the epoch
comes with the abort.
"""

from __future__ import annotations

from aiokafka.producer.batches.appender import PartitionQueue
from aiokafka.producer.batches.batch import PartitionSequence, ProducerBatch, advance
from aiokafka.producer.sending.requests import may_be_written
from aiokafka.producer.transactions.state import Transaction

__all__ = ["Sequencer", "is_oldest"]

_LAST_EPOCH = 0x7FFF

_LONGEST_PAUSE = 300.0
"""Seconds after which a leader may have forgotten a producer id of which it has heard nothing:
`producer.id.expiration.ms` is a day by default, and minutes where there are many producers.
"""


class Sequencer:
    """Gives batches their identity, so that a leader can drop the ones that it has (KIP-98).

    A partition whose sequence is broken begins again at 0 under the next epoch of its own
    (KIP-360): for a producer without transactions, leaders compare epochs per partition. Owns: the
    producer id and every `PartitionSequence`.
    """

    def __init__(self, transaction: Transaction | None = None) -> None:
        """Begin without a producer id. With a `transaction` only the coordinator gives epochs: a
        broken sequence stays broken until the transaction was aborted.
        """
        self.transaction = transaction
        self.producer_id = -1
        self.producer_epoch = -1
        self.generation = 0
        self.wants_producer_id = True
        """No usable producer id: nothing new can be sent until `set_producer_id`."""
        self.id_error: BaseException | None = None
        """Why no other producer id has come yet."""
        self._first_epoch = -1
        """The epoch that partitions begin with: higher than those of all forgotten partitions."""

    def set_producer_id(self, producer_id: int, epoch: int) -> None:
        """Use a new producer id, or another epoch of the old one. Each partition changes to it when
        it has nothing in flight.
        """
        self.producer_id = producer_id
        self.producer_epoch = self._first_epoch = epoch
        self.generation += 1
        self.wants_producer_id = False
        self.id_error = None

    def note_no_id(self, error: BaseException) -> None:
        """Keep why the brokers have given no producer id."""
        self.id_error = error

    def lacks_id(self, queue: PartitionQueue) -> bool:
        """Return whether batches of `queue` wait for another producer id."""
        return self.wants_producer_id and self._is_over(queue.sequence)

    def identify(self, queue: PartitionQueue, batch: ProducerBatch, now: float) -> bool:
        """Give `batch`, the oldest waiting in `queue`, its place in the sequence. `now` is loop
        time.

        Returns False if the batch has to wait: for those in flight, for a producer id, or for the
        coordinator of the transaction. A batch that was sent before keeps its place, since the
        leader may have it.
        """
        sequence = queue.sequence
        self._note_time(sequence, now)
        if self.transaction is not None and not self.transaction.admits(queue.partition):
            return False
        if self._is_over(sequence):
            if sequence.has_gap:
                if queue.in_flight:
                    return False
                queue.forget_numbers()
            is_over = not batch.has_identity
            if is_over and (queue.in_flight or not self._begin_again(sequence)):
                return False
        # A leader takes any number as the first of a producer id that it does not know:
        #
        # 1. The first two batches, 0 and 10, are in flight to a broker that is about to lead.
        # 2. Batch 0 arrives a moment too early, and is refused. Now the broker leads.
        # 3. Batch 10 arrives. The leader does not know the id, so it writes the batch.
        # 4. Batch 0 is sent again. Its number lies before what the leader has, so it is refused
        #    for ever: lost.
        #
        # So the first batch goes alone, to each leader. Under a later epoch of an id that the
        # leader knows it need not: there the leader takes only 0 as the first number.
        if queue.in_flight and not _is_known(queue):
            return False
        if not batch.has_identity:
            batch.set_number(sequence.producer_id, sequence.epoch, sequence.next)
            sequence.next = advance(sequence.next, batch.record_count)
        return True

    def forget(self, queue: PartitionQueue) -> bool:
        """Return whether `queue`, which holds no batch, can be dropped with its sequence numbers.

        The leader may still remember them when the queue is made again. Under the same epoch the
        first batch, which begins at 0, could be taken for one that the leader has: so partitions
        begin with a higher epoch from now on. With transactions the epoch is not ours to raise.
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

    def note_topic(self, queue: PartitionQueue, topic_id: bytes | None) -> None:
        """Note the id of the topic: the leader of one that was made again knows no producer id."""
        sequence = queue.sequence
        if topic_id != sequence.topic_id:
            sequence.topic_id = topic_id
            sequence.known_id = -1

    def on_success(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Count on from `batch`, which the leader has written."""
        sequence = queue.sequence
        if self._is_current(sequence, batch):
            sequence.expected = advance(batch.base_sequence, batch.record_count)
            sequence.known_id = batch.producer_id
            assert queue.in_flight_from is not None
            sequence.known_by = queue.in_flight_from.node_id

    def on_loss(self, queue: PartitionQueue, batch: ProducerBatch, error: BaseException) -> None:
        """Note that `batch` was refused for good, or given up with an unknown outcome."""
        sequence = queue.sequence
        transaction = None if self.is_past(batch) else self.transaction
        if batch.has_identity and self._is_current(sequence, batch):
            sequence.is_uncertain = True
            sequence.is_unresolved |= may_be_written(batch, error)
            if transaction is not None:
                transaction.require_new_epoch()
        if transaction is not None:
            transaction.fail(error)

    def is_past(self, batch: ProducerBatch) -> bool:
        """Return whether `batch` is of a transaction that was aborted before its response came.

        That is possible where each transaction has an epoch of its own (KIP-890). Otherwise an
        abort waits for the response.
        """
        if self.transaction is None or not batch.has_identity:
            return False
        identity = (self.producer_id, self.producer_epoch)
        return (batch.producer_id, batch.producer_epoch) != identity

    def on_gap(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Note that the leader refused `batch` for its sequence number, epoch or producer id.

        Usually a batch before it failed, and both are sent again in order. With none before it the
        leader has lost records, or never got those of a batch that was given up: only a new epoch
        helps.
        """
        sequence = queue.sequence
        if not self._is_current(sequence, batch):
            return
        sequence.known_id = -1
        if is_oldest(queue, batch):
            sequence.has_gap = True

    def discard_producer_id(self, producer_id: int) -> None:
        """Ask for another producer id: the brokers do not accept `producer_id` any more."""
        if producer_id == self.producer_id:
            self.wants_producer_id = True

    def _note_time(self, sequence: PartitionSequence, now: float) -> None:
        """Take a leader that has heard nothing for long for one that has forgotten the id."""
        if now - sequence.used_at > _LONGEST_PAUSE:
            sequence.known_id = -1
        sequence.used_at = now

    def _is_over(self, sequence: PartitionSequence) -> bool:
        """Return whether a new batch may not simply count on."""
        is_old = sequence.generation != self.generation
        return sequence.is_uncertain or sequence.has_gap or is_old

    def _is_current(self, sequence: PartitionSequence, batch: ProducerBatch) -> bool:
        return batch.producer_id == sequence.producer_id and batch.producer_epoch == sequence.epoch

    def _begin_again(self, sequence: PartitionSequence) -> bool:
        """Make the sequence usable for a new batch; return False if that is not possible yet.

        Nothing of the old one is in flight.
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


def is_oldest(queue: PartitionQueue, batch: ProducerBatch) -> bool:
    """Return whether no undelivered batch of `queue` was numbered before `batch`."""
    return not any(_precedes(other, batch) for other in (*queue.in_flight, *queue.waiting))


def _is_known(queue: PartitionQueue) -> bool:
    """Return whether the leader of `queue` is known to know the producer id.

    Not every leader does: one that has copied the log after retention had deleted the records of a
    producer learns of that producer only from the next record.
    """
    sequence, node = queue.sequence, queue.node
    is_same = node is not None and node.node_id == sequence.known_by
    return is_same and sequence.known_id == sequence.producer_id


def _precedes(other: ProducerBatch, batch: ProducerBatch) -> bool:
    """Return whether `other`, of the same partition and epoch, was numbered before `batch`."""
    if other is batch or not other.has_identity:
        return False
    return 0 < (batch.base_sequence - other.base_sequence) & 0x7FFFFFFF < 0x40000000
