"""What programs reach for inside aiokafka's group coordinator, in terms of ours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from aiokafka.consumer.group.commits import GroupCommits

__all__ = ["CommitLock", "RejoinFuture"]


class CommitLock:
    """What programs look at, or hold in `async with`, as if commits took a lock."""

    def __init__(self, commits: GroupCommits) -> None:
        self._commits = commits
        self._pause: AbstractAsyncContextManager[object] | None = None

    def locked(self) -> bool:
        """Return whether offsets are being committed, or kept from it."""
        return self._commits.is_committing

    async def __aenter__(self) -> None:
        pause = self._commits.pause()
        await pause.__aenter__()
        self._pause = pause

    async def __aexit__(self, *error: Any) -> None:
        pause, self._pause = self._pause, None
        if pause is not None:
            await pause.__aexit__(*error)


class RejoinFuture:
    """Makes the future that is done once the member has to join, and has it join when a program
    sets the future's result."""

    def __init__(self, join: Callable[[str], None]) -> None:
        self._join = join
        self._future: asyncio.Future[None] | None = None

    def get(self, is_needed: bool) -> asyncio.Future[None]:
        """Return the future that is valid now."""
        future = self._future
        if future is None or (future.done() and not is_needed):
            future = self._future = asyncio.get_running_loop().create_future()
            future.add_done_callback(self._on_done)
        if is_needed:
            self.note()
        return future

    def note(self) -> None:
        """Resolve the future: the member has to join."""
        if self._future is not None and not self._future.done():
            # Not what a program asks for.
            self._future.remove_done_callback(self._on_done)
            self._future.set_result(None)

    def _on_done(self, future: asyncio.Future[None]) -> None:
        if not future.cancelled():
            self._join("a program asked for it")
