"""Who the producer is to the brokers: its id, its epoch, and the sequence numbers of every
partition.

No I/O: the sender asks for a producer id when `wants_producer_id` is set, and tells what became of
batches.
"""

from __future__ import annotations

from aiokafka.errors import KafkaTimeoutError
from aiokafka.producer._append import PartitionQueue
from aiokafka.producer.batch import NO_SEQUENCE, ProducerBatch
from aiokafka.producer.transaction_state import Transaction

__all__ = ["PartitionSequence", "TransactionManager", "advance", "is_oldest"]

_LAST_EPOCH = 0x7FFF


def advance(sequence: int, count: int) -> int:
    """The sequence number `count` records after `sequence`: after 2**31 - 1 comes 0 (KIP-98)."""
    return (sequence + count) & 0x7FFFFFFF


class PartitionSequence:
    """What is known of one partition's sequence numbers. Changed by the TransactionManager only."""

    __slots__ = (
        "epoch",
        "expected",
        "generation",
        "has_gap",
        "is_uncertain",
        "is_unresolved",
        "known_id",
        "next",
        "producer_id",
    )

    def __init__(self) -> None:
        self.generation = -1
        """Which producer id it uses: the manager's count of them."""
        self.producer_id = -1
        self.epoch = -1
        self.next = 0
        """The first sequence number of the next new batch."""
        self.expected = 0
        """What the leader expects next, as far as its answers tell."""
        self.is_uncertain = False
        """A batch was given up after it may have been sent: `expected` may never reach `next`."""
        self.is_unresolved = False
        """A batch was given up of which nothing tells whether it will be written."""
        self.has_gap = False
        """The leader says that it misses records before the oldest batch."""
        self.known_id = -1
        """The producer id that the leader is known to know, under whatever epoch."""


class TransactionManager:
    """Gives batches their identity so that a broker can drop what it has already (KIP-98).

    A partition whose sequence is broken starts anew at 0 under the next epoch of its own (KIP-360):
    for a producer without transactions, leaders compare epochs per partition. Owns: the producer id
    and every `PartitionSequence`.
    """

    def __init__(self, transaction: Transaction | None = None) -> None:
        """With a `transaction` the epoch is the coordinator's to give: a broken sequence stays
        broken until the transaction was aborted.
        """
        self.transaction = transaction
        self.producer_id = -1
        self.producer_epoch = -1
        self.generation = 0
        self.wants_producer_id = True
        """No usable producer id: nothing new can be sent until `set_producer_id`."""
        self._first_epoch = -1
        """What partitions begin with: higher than all that those had which were forgotten."""

    def set_producer_id(self, producer_id: int, epoch: int) -> None:
        """Use a new producer id. Partitions change to it one by one, when nothing of theirs is
        pending.
        """
        self.producer_id = producer_id
        self.producer_epoch = self._first_epoch = epoch
        self.generation += 1
        self.wants_producer_id = False

    def identify(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Give `batch`, the oldest waiting in `queue`, its place in the sequence.

        False: it has to wait, for the batches in flight or for a producer id. A batch that was sent
        before keeps its place, since the broker may have it.
        """
        sequence: PartitionSequence = queue.sequence
        if self.transaction is not None and not self.transaction.admits(queue.partition):
            return False
        if sequence.is_uncertain or sequence.has_gap or sequence.generation != self.generation:
            if sequence.has_gap:
                if queue.in_flight:
                    return False
                for waiting in queue.waiting:
                    waiting.base_sequence = NO_SEQUENCE
            elif batch.has_identity:
                return True
            if queue.in_flight or not self._start_anew(sequence):
                return False
        if not batch.has_identity:
            # A leader takes any number as the first of a producer id that it does not know: if it
            # refuses the first batch (because it leads only since then) and takes the second, the
            # first is lost for ever. Of one that it knows, each new epoch has to begin at 0.
            if queue.in_flight and sequence.known_id != sequence.producer_id:
                return False
            batch.producer_id = sequence.producer_id
            batch.producer_epoch = sequence.epoch
            batch.base_sequence = sequence.next
            sequence.next = advance(sequence.next, batch.record_count)
        return True

    def forget(self, queue: PartitionQueue) -> bool:
        """Whether `queue`, which holds no batch, can be dropped with its sequence numbers.

        Its leader may know them still when it is made again. Under the same epoch the first batch,
        which begins at 0, could pass for one that the leader has: so partitions begin with a higher
        epoch from now on. With transactions the epoch is not ours to raise.
        """
        sequence: PartitionSequence = queue.sequence
        if sequence.generation != self.generation:
            return True
        if self.transaction is not None:
            return False
        if sequence.epoch >= _LAST_EPOCH:
            self.wants_producer_id = True
        else:
            self._first_epoch = max(self._first_epoch, sequence.epoch + 1)
        return True

    def on_success(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """The leader has written `batch`."""
        sequence: PartitionSequence = queue.sequence
        if self._is_current(sequence, batch):
            sequence.expected = advance(batch.base_sequence, batch.record_count)
            sequence.known_id = batch.producer_id

    def on_loss(self, queue: PartitionQueue, batch: ProducerBatch, error: BaseException) -> None:
        """`batch` was refused for good, or given up without knowing whether it was written."""
        sequence: PartitionSequence = queue.sequence
        if batch.has_identity and self._is_current(sequence, batch):
            sequence.is_uncertain = True
            # Its time was over before the broker had said yes or no.
            sequence.is_unresolved |= batch.is_done or isinstance(error, KafkaTimeoutError)
            if self.transaction is not None:
                self.transaction.needs_new_epoch = True
        if self.transaction is not None:
            self.transaction.fail(error)

    def on_gap(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """The leader refused `batch` because of its sequence number, epoch or producer id.

        Usually a batch before it failed and both are sent again in order. With none before it the
        leader has lost records, or never got those of a batch that was given up: only a new epoch
        helps.
        """
        sequence: PartitionSequence = queue.sequence
        if not self._is_current(sequence, batch):
            return
        sequence.known_id = -1
        if is_oldest(queue, batch):
            sequence.has_gap = True

    def discard_producer_id(self, producer_id: int) -> None:
        """The brokers do not accept `producer_id` any more: another one is needed."""
        if producer_id == self.producer_id:
            self.wants_producer_id = True

    def _is_current(self, sequence: PartitionSequence, batch: ProducerBatch) -> bool:
        return batch.producer_id == sequence.producer_id and batch.producer_epoch == sequence.epoch

    def _start_anew(self, sequence: PartitionSequence) -> bool:
        """Make the sequence usable for a new batch; nothing of the old one is pending."""
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
    """Whether no batch of `queue` that is not delivered was numbered before `batch`."""
    return not any(_precedes(other, batch) for other in (*queue.in_flight, *queue.waiting))


def _precedes(other: ProducerBatch, batch: ProducerBatch) -> bool:
    """Whether `other`, of the same partition and epoch, was numbered before `batch`."""
    if other is batch or not other.has_identity:
        return False
    return 0 < (batch.base_sequence - other.base_sequence) & 0x7FFFFFFF < 0x40000000
