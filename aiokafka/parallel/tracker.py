"""The offset to commit for a partition while records finish in any order. Pure."""

from __future__ import annotations

from collections import deque

__all__ = ["OffsetTracker"]

_NOTHING = -1


class OffsetTracker:
    """Offsets taken from one partition, and those of them that are finished.

    Offsets grow and may have gaps, where the log has no records to read.
    """

    __slots__ = ("_finished", "_next", "_window")

    def __init__(self) -> None:
        self._window: deque[int] = deque()  # from the lowest unfinished on
        self._finished: set[int] = set()  # those of the window
        self._next = _NOTHING

    @property
    def position(self) -> int:
        """Offset after the last one taken; -1 before the first."""
        return self._next

    @property
    def committable(self) -> int:
        """The lowest unfinished offset, or `position` if there is none."""
        return self._window[0] if self._window else self._next

    @property
    def span(self) -> int:
        """How many were taken from the lowest unfinished one on: what a crash repeats at most."""
        return len(self._window)

    def take(self, offset: int) -> None:
        """Begin with `offset`. Raises ValueError if it or a later one was taken before."""
        if offset < self._next:
            raise ValueError(f"offset {offset} comes after {self._next - 1}")
        self._window.append(offset)
        self._next = offset + 1

    def cut(self, offset: int) -> None:
        """Forget what was taken from `offset` on."""
        window = self._window
        while window and window[-1] >= offset:
            self._finished.discard(window.pop())
        self._next = min(self._next, offset)

    def finish(self, offset: int) -> None:
        """Mark `offset`, taken before, as done. Raises ValueError if it is not open."""
        window, finished = self._window, self._finished
        if not window or not window[0] <= offset < self._next or offset in finished:
            raise ValueError(f"offset {offset} is not open")
        # Kept until all before it are finished: a commit says that everything below it is.
        if offset != window[0]:
            finished.add(offset)
            return
        window.popleft()
        while window and window[0] in finished:
            finished.discard(window.popleft())
