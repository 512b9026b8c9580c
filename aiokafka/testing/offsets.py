"""The offsets that a group has committed, and those that wait for a transaction."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

Key = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """One committed position."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


class ProducerEpochs:
    """The last epoch of each producer in the log of a group's positions, which outlives the group.

    A marker counts as well, though no positions came with the transaction.
    """

    def __init__(self) -> None:
        self._last: dict[int, int] = {}

    def note(self, producer_id: int, epoch: int) -> None:
        """Take note of positions or a marker."""
        self._last[producer_id] = epoch

    def is_past(self, producer_id: int, epoch: int) -> bool:
        """Return whether a later epoch of the producer has come."""
        return epoch < self._last.get(producer_id, epoch)


class GroupOffsets:
    """Positions of one group. The group's coordinator is the only writer.

    Owns: the positions, those of transactions that are not over, and in which order they came: of
    both the one that came last counts, as in a log.
    """

    def __init__(self) -> None:
        self.committed: dict[Key, CommittedOffset] = {}
        self._pending: dict[int, dict[Key, tuple[int, CommittedOffset]]] = {}
        self._next_number = itertools.count()
        self._numbers: dict[Key, int] = {}  # those of the positions that are committed

    def commit(self, key: Key, offset: CommittedOffset) -> None:
        """Store a position at once."""
        self._store(key, next(self._next_number), offset)

    def commit_in_transaction(self, producer_id: int, key: Key, offset: CommittedOffset) -> None:
        """Store a position that counts once the producer's transaction commits."""
        self._pending.setdefault(producer_id, {})[key] = next(self._next_number), offset

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Let the positions of a transaction count, unless others came after them; or drop them."""
        pending = self._pending.pop(producer_id, {})
        if commit:
            for key, (number, offset) in pending.items():
                if number > self._numbers.get(key, -1):
                    self._store(key, number, offset)

    def is_unstable(self, key: Key) -> bool:
        """Return whether a transaction that is not over may change this position (KIP-447)."""
        return any(key in pending for pending in self._pending.values())

    def delete(self, key: Key) -> None:
        """Forget a position, also one that waits for a transaction."""
        self.committed.pop(key, None)
        self._numbers.pop(key, None)
        for pending in self._pending.values():
            pending.pop(key, None)

    def forget_topic(self, topic: str) -> None:
        """Forget the positions of a deleted topic."""
        known = {*self.committed}.union(*self._pending.values())
        for key in [key for key in known if key[0] == topic]:
            self.delete(key)

    def _store(self, key: Key, number: int, offset: CommittedOffset) -> None:
        self.committed[key] = offset
        self._numbers[key] = number
