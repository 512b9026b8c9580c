"""Who waits for records of a range reader, and the time that runs meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aiokafka.ranges.state import RangeState

__all__ = ["Callers"]


class Callers:
    """Lets the time of ranges without progress run only while a caller waits for records.

    A caller may be away for long, at work on what it has got: brokers that were down meanwhile, and
    are back when it calls again, are no reason to fail.

    Owns: how many wait, and since when none has.
    """

    def __init__(self, states: Sequence[RangeState]) -> None:
        self._states = states
        self._loop = asyncio.get_running_loop()
        self._away_since = self._loop.time()
        self._waiting = 0

    @property
    def are_waiting(self) -> bool:
        """Whether a caller waits."""
        return self._waiting > 0

    async def wait(self, arrived: asyncio.Event) -> None:
        """Wait for `arrived`, as a caller."""
        if not self._waiting:
            self._come_back()
        self._waiting += 1
        try:
            await arrived.wait()
        finally:
            self._waiting -= 1
            if not self._waiting:
                self._away_since = self._loop.time()

    def _come_back(self) -> None:
        now = self._loop.time()
        away = now - self._away_since
        for state in self._states:
            state.leave_out(away, now)
