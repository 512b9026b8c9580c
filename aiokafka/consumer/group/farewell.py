"""Say the last goodbye of a member, also if the call that wanted it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from aiokafka._tasks import TaskOwner

__all__ = ["Farewell"]


class Farewell:
    """The goodbye of `stop()`: it goes on when that call is cancelled, and the next one waits for
    it. Cut short, it would be missed until the end of the member's session.

    Owns: its task.
    """

    def __init__(self, name: str) -> None:
        """Begin without one. `name` is that of the task's owner."""
        self._owner = TaskOwner(name)

    async def say(self, goodbye: Coroutine[Any, Any, None]) -> None:
        """Run `goodbye` to its end, also if this call is cancelled."""
        if self._owner.is_stopping:
            await goodbye
        else:
            await asyncio.shield(self._owner.start(goodbye, name="goodbye"))

    async def wait(self) -> None:
        """Wait for the end of what a cancelled call has begun."""
        await self._owner.wait()

    def cancel(self) -> None:
        """End it now."""
        self._owner.cancel()
