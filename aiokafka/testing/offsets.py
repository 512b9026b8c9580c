"""The offsets that a group has committed, and those that wait for a transaction."""

from __future__ import annotations

from dataclasses import dataclass

Key = tuple[str, int]
"""Topic and partition."""


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """One committed position."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


class GroupOffsets:
    """Positions of one group. The group's coordinator is the only writer."""

    def __init__(self) -> None:
        self.committed: dict[Key, CommittedOffset] = {}
        self._pending: dict[int, dict[Key, CommittedOffset]] = {}
        self._epochs: dict[int, int] = {}  # the last of each producer id, as in a log

    def commit(self, key: Key, offset: CommittedOffset) -> None:
        """Store a position at once."""
        self.committed[key] = offset

    def is_of_the_past(self, producer_id: int, epoch: int) -> bool:
        """Return whether a later epoch of the producer has come, with positions or a marker."""
        return epoch < self._epochs.get(producer_id, epoch)

    def commit_in_transaction(
        self, producer_id: int, epoch: int, key: Key, offset: CommittedOffset
    ) -> None:
        """Store a position that counts once the producer's transaction commits."""
        self._epochs[producer_id] = epoch
        self._pending.setdefault(producer_id, {})[key] = offset

    def end_transaction(self, producer_id: int, epoch: int, *, commit: bool) -> None:
        """Let the positions of a transaction count, or drop them."""
        self._epochs[producer_id] = epoch
        pending = self._pending.pop(producer_id, {})
        if commit:
            self.committed.update(pending)

    def is_unstable(self, key: Key) -> bool:
        """Return whether a transaction that is not over may change this position (KIP-447)."""
        return any(key in pending for pending in self._pending.values())

    def delete(self, key: Key) -> None:
        """Forget a position."""
        self.committed.pop(key, None)

    def forget_topic(self, topic: str) -> None:
        """Forget the positions of a deleted topic."""
        for key in [key for key in self.committed if key[0] == topic]:
            del self.committed[key]
