"""How many bytes to request: little of what follows the end of a range should be sent. Pure."""

from __future__ import annotations

__all__ = ["FetchSize"]

_LEAST = 64 * 1024
_FIRST_GUESS = 100.0  # bytes of an offset, before any has been seen
_SPARE = 1.25  # records differ, and batches do not end where the range does


class FetchSize:
    """The size of the next fetch of one range, from the size of its offsets so far."""

    def __init__(self) -> None:
        self._per_offset = _FIRST_GUESS
        self._lowest = _LEAST
        self._asked = 0

    def ask(self, offsets: int, limit: int) -> int:
        """Return the bytes to request for so many offsets, at most `limit`."""
        wanted = int(offsets * self._per_offset * _SPARE)
        self._asked = max(1, min(limit, max(self._lowest, wanted)))
        return self._asked

    def served(self, nbytes: int, offsets: int) -> None:
        """Take note that so many offsets took so many bytes."""
        self._per_offset = nbytes / offsets
        self._lowest = _LEAST

    def too_small(self, limit: int) -> bool:
        """Return whether to request more, because no batch fitted into the requested bytes."""
        self._lowest = 2 * self._asked
        return self._asked < limit
