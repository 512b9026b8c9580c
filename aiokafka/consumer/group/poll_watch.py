"""Notice that the application has stopped to ask for records."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiokafka.consumer.group.state import Standing, StandingState

if TYPE_CHECKING:
    from aiokafka.consumer._shared import Shared

__all__ = ["PollWatch"]


class PollWatch:
    """Has the member leave if the application asks for no records within `max_poll_interval_ms`.

    Owns: the number of the application's latest call, and when it was noted.
    """

    def __init__(self, shared: Shared, standing: Standing) -> None:
        self._desk = shared.desk
        self._limit = shared.config.max_poll_interval
        self._on_change = shared.on_change
        self._standing = standing
        self._call = 0
        self._polled_at = 0.0

    def note_call(self) -> None:
        """Count the interval from now on."""
        self._call = self._desk.buffer.call
        self._polled_at = asyncio.get_running_loop().time()

    def notice_idleness(self) -> None:
        """Make the member leave if the application is late. From then on only `wait_for_call()`
        looks for a call: it may still wait for a listener, and would take a call that was noted
        here meanwhile for an old one.
        """
        standing = self._standing
        if standing.state is StandingState.IDLE:
            return
        is_asking = self._desk.buffer.call != self._call or self._desk.has_readers
        # A call that waits for long is no new call, but the application is there.
        if is_asking or standing.is_starting:
            self.note_call()
        late = asyncio.get_running_loop().time() - self._polled_at
        if late > self._limit and standing.state in (StandingState.JOINING, StandingState.JOINED):
            standing.move(StandingState.IDLE)
            self._on_change()
            standing.signal.notify()

    async def wait_for_call(self) -> None:
        """Wait until the application asks for records, or subscribes."""
        while self._standing.state is StandingState.IDLE and self._desk.buffer.call == self._call:
            await self._desk.polls.wait()
        self.note_call()
