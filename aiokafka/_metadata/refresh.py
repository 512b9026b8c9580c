"""Which topics to ask the brokers for, and when."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Set
from typing import TYPE_CHECKING

from aiokafka._backoff import Backoff
from aiokafka._compat import timeout

if TYPE_CHECKING:
    from aiokafka._config import ClientConfig

__all__ = ["RefreshSchedule", "TopicsInUse"]

log = logging.getLogger("aiokafka.cluster")

# The least age at which metadata is refreshed, in seconds.
_LEAST_AGE = 0.05

# Seconds between requests for a topic that a consumer reads and that does not exist, in the end.
_LONGEST_WAIT_FOR_TOPIC = 5.0


class TopicsInUse:
    """Topics set by a consumer, and topics a producer touched lately (KIP-526)."""

    def __init__(self, max_idle: float) -> None:
        self._max_idle = max_idle
        self._pinned: frozenset[str] = frozenset()
        self._touched: dict[str, float] = {}
        self.want_all = False

    def __contains__(self, topic: str) -> bool:
        return topic in self._touched or topic in self._pinned

    def names(self) -> frozenset[str]:
        """Return every topic in use."""
        return self._pinned.union(self._touched)

    @property
    def pinned(self) -> frozenset[str]:
        """The topics that stay until they are replaced."""
        return self._pinned

    def pin(self, topics: Iterable[str]) -> None:
        """Replace the topics that stay until they are replaced."""
        self._pinned = frozenset(topics)
        self.want_all = False

    def pin_all(self) -> None:
        """Use every topic of the cluster, until the next `pin`."""
        self.want_all = True

    def touch(self, topic: str, now: float) -> None:
        """Keep `topic` until it was not touched for `max_idle` seconds."""
        self._touched[topic] = now

    def evict(self, now: float) -> None:
        """Drop what was not touched lately."""
        limit = now - self._max_idle
        for topic in [topic for topic, used in self._touched.items() if used < limit]:
            del self._touched[topic]


class RefreshSchedule:
    """Owns what was requested since the last refresh, and the time before which there is no next
    one.

    A refresh is full (every topic in use) when one was requested with a reason or the last is too
    old; else it is for single topics only, which costs brokers and us little when many are in use.
    """

    def __init__(self, config: ClientConfig, topics: TopicsInUse) -> None:
        self._loop = asyncio.get_running_loop()
        # Not without a pause for an age of 0, even if that of the backoff is 0 as well.
        self._max_age = max(config.metadata_max_age, config.retry_backoff, _LEAST_AGE)
        self._series_ends_after = 2 * config.retry_backoff_max
        self._backoff = Backoff(config.retry_backoff, config.retry_backoff_max)
        self._in_use = topics
        self._reason = ""
        self._single: set[str] = set()
        self._missing: Set[str] = frozenset()
        self._missing_at = 0.0
        self._missing_backoff = Backoff(config.retry_backoff, _LONGEST_WAIT_FOR_TOPIC)
        self._may_ask_all = False
        self._has_new = False
        self._has_failed = False
        self._is_by_age = False
        self._last_full = self._loop.time()
        self._not_before = 0.0
        self._wake = asyncio.Event()

    @property
    def single_topics(self) -> Set[str]:
        """The topics that wait for a refresh of their own."""
        return self._single

    def request(self, why: str) -> None:
        """Ask for a full refresh as soon as the backoff allows, one for any number of requests."""
        if not self._reason:
            log.debug("metadata update requested: %s", why)
            self._reason = why
            self._wake.set()

    def force(self, why: str) -> None:
        """Ask as `request` does, for an application that waits: while brokers answer, the pauses
        between such requests do not grow. If no topic is in use, ask for every topic of the
        cluster, once: so programs look for topics before they use any."""
        if not self._has_failed:
            self._backoff.reset()
        self.request(why)
        self._may_ask_all = True

    def request_again(self, topics: Iterable[str]) -> None:
        """Ask again, as soon as the backoff allows, for topics whose last response was an error."""
        self._single.update(topics)
        self._wake.set()

    def request_new(self, topics: Iterable[str]) -> None:
        """Ask at once for topics that were never asked for."""
        self._single.update(topics)
        # While brokers do not answer, new topics do not hurry: a program that goes through
        # thousands of them would ask without a pause.
        if not self._has_failed:
            self._backoff.reset()
            self._has_new = True
        self._wake.set()

    def note_missing(self, topics: Set[str]) -> None:
        """Ask again, ever less often, for topics in use that do not exist."""
        now = self._loop.time()
        # The pause goes on: each response comes here, and would otherwise begin it again.
        if topics == self._missing and now < self._missing_at:
            return
        if topics - self._missing:
            self._missing_backoff.reset()
        self._missing = topics
        self._missing_at = now + self._missing_backoff.next()
        self._wake.set()

    async def wait(self) -> None:
        """Return when a refresh is due."""
        while True:
            self._wake.clear()
            delay = self._due() - self._loop.time()
            if delay <= 0:
                return
            try:
                async with timeout(delay):
                    await self._wake.wait()
            except asyncio.TimeoutError:
                pass

    def _due(self) -> float:
        if self._has_new:
            return 0.0
        if self._reason or self._single:
            return self._not_before
        # Both have pauses of their own: those between requests do not make metadata older than it
        # may be.
        due = self._last_full + self._max_age
        return min(due, self._missing_at) if self._missing else due

    def take(self) -> tuple[Set[str] | None, bool]:
        """Return the topics to ask for now (None: all), and whether the refresh is full."""
        now = self._loop.time()
        if self._missing and now >= self._missing_at:
            self._single.update(self._missing)
        self._is_by_age = not (self._reason or self._single)
        is_full = bool(self._reason) or not self._single or now > self._last_full + self._max_age
        single, self._single = self._single, set()
        self._reason, self._has_new = "", False
        may_ask_all, self._may_ask_all = self._may_ask_all, False
        if self._in_use.want_all:
            return None, True
        if not is_full:
            return single, False
        # With a full refresh, whose response leaves them out of the snapshot as well.
        self._in_use.evict(now)
        names = self._in_use.names()
        return (names if names or not may_ask_all else None), True

    def note_success(self, is_full: bool) -> None:
        """Note that the refresh that was taken succeeded."""
        self._has_failed = False
        if is_full:
            self._last_full = self._loop.time()
        # Nothing asked for it, so what is asked for next is no repetition.
        if not self._is_by_age:
            self._pause()

    def note_failure(self) -> None:
        """Note that the refresh that was taken failed: another will follow."""
        self._has_failed = True
        # It is full: what was to be asked for singly is in use as well, and so is not forgotten.
        self._reason = "the last refresh failed"
        self._pause()

    def _pause(self) -> None:
        now = self._loop.time()
        # After a quiet time the pauses are short again; requests that follow each other wait ever
        # longer.
        if now > self._not_before + self._series_ends_after:
            self._backoff.reset()
        self._not_before = now + self._backoff.next()
