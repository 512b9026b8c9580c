"""The batches of one partition between `send` and the leader's response.

Compiled when possible, see partition_queue.pxd.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Protocol

from aiokafka._backoff import MOST_PROMPT_ATTEMPTS, Backoff
from aiokafka.producer.batches.batch import BatchState, ProducerBatch
from aiokafka.producer.sending.partition_sequence import PartitionSequence
from aiokafka.structs import TopicPartition

__all__ = ["PartitionQueue", "QueueSender"]


class QueueSender(Protocol):
    """What a queue knows of the `NodeSender` that sends its batches."""

    node_id: int

    def add(self, queue: PartitionQueue) -> None:
        """Look after `queue`: its oldest batch is new, sealed, or back from a failure."""

    def discard(self, queue: PartitionQueue) -> None:
        """Look after `queue` no longer."""


class PartitionQueue:
    """The batches of one partition that have not been delivered, oldest first.

    Owns every field. Others read them; each change is a method here, named after the step of a
    batch's life that it is:

        append() -> seal() -> take() -> end_flight()
                      ^         |
                      +---- put_back()

    `drop()` and `replace()` leave this path early. Who calls: `Appender` appends, the `NodeSender`
    in `node` seals and takes, `Delivery` does the rest, `Sender` assigns the node.
    """

    def __init__(self, partition: TopicPartition, backoff: Backoff) -> None:
        """Begin empty, without a node. `backoff` gives the pauses after failures."""
        self.partition = partition
        self.waiting: deque[ProducerBatch] = deque()
        """Sealed batches, and the open one at the end."""
        self.in_flight: list[ProducerBatch] = []
        self.open: ProducerBatch | None = None
        """The batch that takes records, if there is one."""
        self.node: QueueSender | None = None
        """The sender of the partition's leader; None while the leader is unknown."""
        self.in_flight_from: QueueSender | None = None
        """The sender whose responses `in_flight` waits for."""
        self.retry_at = 0.0
        """Loop time before which nothing is sent: the pause after a failure."""
        self.sequence = PartitionSequence()
        self._backoff = backoff

    @property
    def load(self) -> int:
        """How many batches have not been delivered."""
        return len(self.waiting) + len(self.in_flight)

    def append(self, batch: ProducerBatch) -> None:
        """Put a new batch at the end; it takes records for as long as it is OPEN."""
        self.waiting.append(batch)
        if batch.state == BatchState.OPEN:
            self.open = batch

    def seal(self) -> None:
        """Close the open batch, if there is one: it takes no more records."""
        batch = self.open
        if batch is not None:
            self.open = None
            batch.transition(BatchState.SEALED)

    def assign(self, node: QueueSender | None) -> None:
        """Hand the queue to the sender of another leader; None while there is no leader. The pause
        after a failure was for the metadata to change: it ends."""
        if self.node is not node:
            if self.node is not None:
                # Both would send from it otherwise. What is in flight from the old one stays there.
                self.node.discard(self)
            self.node = node
            is_another = node is not None and node is not self.in_flight_from
            if is_another and self.waiting and self.waiting[0].attempts <= MOST_PROMPT_ATTEMPTS:
                self.retry_at = 0.0

    def take(self, node: QueueSender) -> None:
        """Move the oldest batch into flight, in a request of `node`."""
        batch = self.waiting.popleft()
        batch.depart()
        self.in_flight.append(batch)
        self.in_flight_from = node

    def end_flight(self, batch: ProducerBatch) -> None:
        """Remove a batch whose request was answered, or has failed."""
        self.in_flight.remove(batch)

    def put_back(self, batch: ProducerBatch, error: BaseException) -> None:
        """Return a batch in flight to those that wait, to be sent again after `error`.

        Its place is the one of its sequence number. The end of the queue, or the front, would be
        wrong:

        1. Batches 1, 2 and 3 are in flight. Batch 4 waits and has no number yet.
        2. Batch 1 is written. Batch 2 fails ("not leader"), and comes back to the front: 2 4.
        3. Batch 3, in the next request, fails for the same reason. At the front it would be sent
           before batch 2, and the leader would refuse it as a gap. At the end it would stand
           behind batch 4, which is about to get the number after it.
        4. By its number it goes between the two: 2 3 4.

        Batches that have no number are new, so all of them are behind. Without idempotence no
        batch has a number, but then only one is ever in flight: it goes to the front.
        """
        self.in_flight.remove(batch)
        batch.come_back(error)
        self._insert(batch)

    def _insert(self, batch: ProducerBatch) -> None:
        position = 0
        for other in self.waiting:
            if other.base_sequence == -1 or _is_before(batch.base_sequence, other.base_sequence):
                break
            position += 1
        self.waiting.insert(position, batch)

    def replace(self, batch: ProducerBatch, parts: Sequence[ProducerBatch]) -> None:
        """Put `parts` in the place of `batch`, which waits or is in flight, and was split."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)
        else:
            self.waiting.remove(batch)
        batch.transition(BatchState.SETTLED)
        # The parts have the numbers of the whole, and go by them: others may have been put back
        # meanwhile.
        if batch.has_identity:
            for part in parts:
                self._insert(part)
        else:
            self.waiting.extendleft(reversed(parts))

    def drop(self, batch: ProducerBatch) -> None:
        """Remove a batch that waits, because it has failed for good."""
        if batch is self.open:
            self.open = None
        self.waiting.remove(batch)
        if self.node is not None and not self.waiting:
            self.node.discard(self)

    def forget_numbers(self) -> None:
        """Take the sequence numbers from all batches that wait: the sequence begins again at 0."""
        for batch in self.waiting:
            batch.forget_number()

    def note_error(self, error: BaseException) -> None:
        """Note for the oldest batch why it cannot be sent; its expiry tells."""
        if self.waiting:
            self.waiting[0].note_error(error)

    # -- pauses after failures

    def pause(self, now: float) -> None:
        """Send nothing for the next pause of the backoff, unless a pause is on already."""
        if self.retry_at <= now:
            self.retry_at = now + self._backoff.next()

    def end_pause(self) -> None:
        """Begin with the shortest pause again: a batch was written."""
        self.retry_at = 0.0
        self._backoff.reset()


def _is_before(sequence: int, other: int) -> bool:
    # Sequences wrap at 2**31, and no two batches in one queue are ever half of that apart.
    return 0 < (other - sequence) & 0x7FFFFFFF < 0x40000000
