"""How many bytes to request: little of what follows the end of a range should be sent. Pure."""

from __future__ import annotations

from typing import NamedTuple

from aiokafka._config.options import Milliseconds, Number, check
from aiokafka._typing import Self

__all__ = ["FetchSize", "OffsetSizes", "RangeLimits"]

_LEAST = 20 * 1024  # a batch of a producer's default size, and some more
_FIRST = 64 * 1024  # at most, before anything is known
_FIRST_GUESS = 125.0  # bytes of an offset, before any has been seen
_SPARE = 1.1  # records differ
_MOST_TOPICS = 1000


class RangeLimits(NamedTuple):
    """Limits of size, in bytes, and of time, in seconds."""

    max_bytes: int
    max_partition_bytes: int
    min_bytes: int
    max_wait: float
    buffer_memory: int
    timeout: float

    @classmethod
    def checked(
        cls,
        *,
        max_bytes: int,
        max_partition_bytes: int,
        min_bytes: int,
        max_wait_ms: float,
        buffer_memory: int,
        timeout_ms: float,
    ) -> Self:
        """Return the limits of a reader's arguments; raise TypeError or ValueError for a wrong
        one.
        """
        return cls(
            check(Number(1), "max_bytes", max_bytes),
            check(Number(1), "max_partition_bytes", max_partition_bytes),
            check(Number(0), "min_bytes", min_bytes),
            check(Milliseconds(is_sent=True), "max_wait_ms", max_wait_ms),
            check(Number(1, 2**63 - 1), "buffer_memory", buffer_memory),
            check(Milliseconds(), "timeout_ms", timeout_ms),
        )


class _Seen(NamedTuple):
    """What a response has shown: bytes of an offset, and of a batch."""

    per_offset: float
    batch: int


class OffsetSizes:
    """How many bytes the offsets of topics take, as seen last.

    Give the same to all the `RangeReader` of a program that reads ranges of the same topics again
    and again: they then request what a range needs from their first fetch on, and not a guess. Used
    in one event loop.
    """

    def __init__(self) -> None:
        self._topics: dict[str, _Seen] = {}

    def of(self, topic: str) -> _Seen | None:
        """Return what is known of a topic."""
        return self._topics.get(topic)

    def learn(self, topic: str, seen: _Seen) -> None:
        """Take note of a response; forget the topic that was seen longest ago if there are many."""
        self._topics.pop(topic, None)
        self._topics[topic] = seen
        if len(self._topics) > _MOST_TOPICS:
            del self._topics[next(iter(self._topics))]


class FetchSize:
    """The size of the next fetch of one range, from the size of its offsets so far."""

    def __init__(self, topic: str, sizes: OffsetSizes) -> None:
        self._topic = topic
        self._sizes = sizes
        self._seen: _Seen | None = None
        self._lowest = 0
        self._asked = 0

    def ask(self, offsets: int, limit: int) -> int:
        """Return the bytes to request for so many offsets, at most `limit`."""
        self._asked = max(1, min(limit, max(self._lowest, self._wanted(offsets))))
        return self._asked

    def _wanted(self, offsets: int) -> int:
        seen = self._seen or self._sizes.of(self._topic)
        if seen is None:
            return max(_LEAST, min(_FIRST, int(offsets * _FIRST_GUESS)))
        wanted = int(offsets * seen.per_offset * _SPARE)
        # Brokers send whole batches, and a range ends within one.
        batches = seen.batch
        if self._seen is None:
            # It begins within one as well. Its later fetches begin where a batch does.
            batches += min(seen.batch, wanted) // 2
        return wanted + batches

    def served(self, nbytes: int, offsets: int, batch: int) -> None:
        """Take note that so many offsets took so many bytes, the first batch `batch` of them."""
        # Something fitted, so the next guess need not be doubled.
        self._lowest = 0
        if nbytes and offsets > 0:
            self._seen = _Seen(nbytes / offsets, batch)
            self._sizes.learn(self._topic, self._seen)

    def too_small(self, limit: int) -> bool:
        """Return whether to request more, because no batch fitted into the requested bytes."""
        self._lowest = 2 * self._asked
        return self._asked < limit
