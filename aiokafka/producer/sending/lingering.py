"""The queues of a broker whose open batch waits for more records."""

from __future__ import annotations

from itertools import takewhile

from aiokafka.producer.batches.partition_queue import PartitionQueue

__all__ = ["Lingering"]


class Lingering(dict[PartitionQueue, None]):
    """The queues whose open batch may wait for more records, in the order of coming.

    Owns whether that may be another order than that of their batches: one comes late if a batch
    before it had to be sent first, or if it comes from another broker's sender.
    """

    def __init__(self) -> None:
        super().__init__()
        self._is_mixed = False

    def join(self, queue: PartitionQueue) -> None:
        """Add `queue`, unless it is there."""
        if queue not in self:
            last = next(reversed(self), queue)
            self._is_mixed |= _begun(queue) < _begun(last)
            self[queue] = None

    def by_age(self) -> tuple[PartitionQueue, ...]:
        """Return the queues, that with the oldest batch first."""
        if self._is_mixed:
            self._is_mixed = False
            line = sorted(self, key=_begun)
            self.clear()
            self.update(dict.fromkeys(line))
        return tuple(self)

    def pop_begun_before(self, time: float) -> dict[PartitionQueue, None]:
        """Take out the first queues, up to one whose oldest batch was begun at `time` (loop time)
        or later, and return them. An older one behind it comes when that has left, or is as old.
        """
        old = dict.fromkeys(takewhile(lambda queue: _begun(queue) < time, self))
        for queue in old:
            del self[queue]
        return old


def _begun(queue: PartitionQueue) -> float:
    return queue.waiting[0].created if queue.waiting else 0.0
