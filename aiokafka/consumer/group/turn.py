"""The order of commits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aiokafka.consumer._signal import Signal
from aiokafka.structs import TopicPartition

__all__ = ["Turn", "Turns"]


class Turn:
    """One call that commits, in the order of the calls. Written by `Turns`, but for `ended`."""

    __slots__ = ("_ended", "before", "over", "partitions")

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = frozenset(partitions)
        self.before: dict[TopicPartition, Turn] = {}
        """Of each partition, the call to wait for; empty when this one has its turn."""
        self.over = Signal()
        self._ended: frozenset[TopicPartition] = frozenset()

    @property
    def ended(self) -> frozenset[TopicPartition]:
        """Those of the partitions that were not the member's for a while since the call."""
        return self._ended

    def end_all_but(self, kept: frozenset[TopicPartition]) -> None:
        """Note that the member has these partitions only."""
        self._ended |= self.partitions - kept

    def concerns(self, other: Turn) -> bool:
        """Return whether both commit for one partition."""
        return not self.partitions.isdisjoint(other.partitions)


class Turns:
    """Owns the calls that are not over, and of each partition which of them is the last.

    A call waits for that one alone, so the end of a call wakes only those behind it, however many
    there are: an application may commit for each record.
    """

    def __init__(self) -> None:
        self._all: dict[Turn, None] = {}
        self._last: dict[TopicPartition, Turn] = {}

    def __iter__(self) -> Iterator[Turn]:
        return iter(self._all)

    def __bool__(self) -> bool:
        return bool(self._all)

    def join(self, partitions: Iterable[TopicPartition]) -> Turn:
        """Return a turn behind all that concern these partitions."""
        turn = Turn(partitions)
        for tp in turn.partitions:
            if tp in self._last:
                turn.before[tp] = self._last[tp]
            self._last[tp] = turn
        self._all[turn] = None
        return turn

    async def wait(self, turn: Turn, deadline: float | None) -> bool:
        """Return once `turn` is the first of all its partitions; False at `deadline`."""
        # Only calls from before it are waited for: no two ever wait for each other.
        while (other := self._first_before(turn)) is not None:
            if not await other.over.wait(deadline):
                return False
        turn.before.clear()
        return True

    def leave(self, turn: Turn) -> None:
        """Let those behind `turn` go on: it is over, or has not waited to the end."""
        del self._all[turn]
        for tp in turn.partitions:
            if self._last[tp] is turn:
                other = self._live(tp, turn.before.get(tp))
                if other is None:
                    del self._last[tp]
                else:
                    self._last[tp] = other
        turn.over.notify()

    def _first_before(self, turn: Turn) -> Turn | None:
        for tp, before in turn.before.items():
            other = self._live(tp, before)
            if other is not None:
                return other
        return None

    def _live(self, tp: TopicPartition, turn: Turn | None) -> Turn | None:
        """Return `turn`, or what it has waited for itself if it has gone without its turn."""
        while turn is not None and turn not in self._all:
            turn = turn.before.get(tp)
        return turn
