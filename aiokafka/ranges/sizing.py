"""How many bytes to ask for: little of what lies behind the end of a range is to be sent. Pure."""

from __future__ import annotations

__all__ = ["FetchSize"]

_LEAST = 64 * 1024
_FIRST_GUESS = 100.0  # bytes of an offset, before any has been seen
_SPARE = 1.25  # records differ, and batches do not end where the range does


class FetchSize:
    """The size of the next fetch of one range, by what its offsets took so far."""

    def __init__(self) -> None:
        self._per_offset = _FIRST_GUESS
        self._lowest = _LEAST
        self._asked = 0

    def ask(self, offsets: int, limit: int) -> int:
        """Bytes for so many offsets, at most `limit`."""
        wanted = int(offsets * self._per_offset * _SPARE)
        self._asked = max(1, min(limit, max(self._lowest, wanted)))
        return self._asked

    def served(self, nbytes: int, offsets: int) -> None:
        """So many offsets took so many bytes."""
        self._per_offset = nbytes / offsets
        self._lowest = _LEAST

    def too_small(self, limit: int) -> bool:
        """Whether to ask again for more, because nothing fitted into what was asked for."""
        self._lowest = 2 * self._asked
        return self._asked < limit
