"""The bytes of `buffer_memory`, and the calls that wait for some of them.

Compiled when possible, see buffer_memory.pxd: the appender reads it for every record.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from aiokafka._compat import timeout_at
from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

__all__ = ["BufferMemory"]


class _Waiter(NamedTuple):
    need: int
    future: asyncio.Future[None]


class BufferMemory:
    """Counts the free bytes of `buffer_memory`, and serves those who wait in the order of coming.

    Owns `free`, the row of waiters, and `is_contended`: set for as long as the row is not empty,
    and until the last of them has appended its record. The appender declines records meanwhile,
    so none overtakes the row.

    How a waiter gets its memory, and why not more directly:

    1. `send` A finds too little room. It joins the row and `is_contended` is set, so `send` B,
       though its record would fit, joins behind A.
    2. A batch is written. `give_back` adds its bytes to `free`; if that is enough for A, the
       future of A gets its result. The memory is not counted as used yet.
    3. The task of A runs in a later turn of the loop. More batches may give back memory before; A
       is still first in the row, but its future is done, so no other is woken in its place.
    4. A leaves the row, returns to its caller, and the caller appends in the same step. Only now
       `free` says what is left for B. That is why A does not wake B itself: it asks the loop to
       call `_serve_next` in the next turn, behind that append.
    5. `_serve_next` finds B at the front, and wakes it if the rest is enough. With an empty row it
       clears `is_contended`.

    A waiter that is cancelled, or whose time is up, leaves by the same steps 4 and 5 without
    having appended: what it was woken for goes to the next one.
    """

    def __init__(self, loop: AbstractEventLoop, size: int) -> None:
        self.size = size
        self.free = size
        """Bytes that are left; below zero when the headers of split batches need more."""
        self.taken = 0
        """Bytes that were ever taken."""
        self.is_contended = False
        self._waiters: deque[_Waiter] = deque()
        self._loop = loop

    @property
    def has_waiters(self) -> bool:
        """Whether a call waits for memory, so that nothing may linger in it."""
        return bool(self._waiters)

    def take(self, size: int) -> None:
        """Count `size` bytes as used, whether they are free or not."""
        self.free -= size
        self.taken += size

    def give_back(self, size: int) -> None:
        """Count `size` bytes as free again, and wake the first waiter if they are enough."""
        self.free += size
        if self._waiters:
            self._serve_next()

    def check(self, need: int) -> None:
        """Raise MessageSizeTooLargeError for more than there is in all."""
        if need > self.size:
            raise MessageSizeTooLargeError(
                f"{need} bytes can never fit into buffer_memory={self.size}"
            )

    def has_room(self, need: int) -> bool:
        """Return whether `need` bytes are free and no other call waits for them."""
        return not self._waiters and self.free >= need

    async def wait(self, need: int, deadline: float) -> None:
        """Wait until `need` bytes are free and it is the caller's turn to append, which must
        happen in the same step.

        Raises KafkaTimeoutError at `deadline` (loop time). Then, or cancelled, nothing has
        changed.
        """
        waiter = _Waiter(need, self._loop.create_future())
        self._waiters.append(waiter)
        self.is_contended = True
        try:
            async with timeout_at(deadline):
                await waiter.future
        except asyncio.TimeoutError:
            if waiter.future.done() and not waiter.future.cancelled():
                waiter.future.result()
                return  # in the same turn: the program has stood still
            raise KafkaTimeoutError(
                f"no room for {need} bytes within max_block_ms: {self.free} of buffer_memory="
                f"{self.size} bytes are free; the brokers take records more slowly than they are "
                "sent, or do not answer"
            ) from None
        finally:
            self._waiters.remove(waiter)
            self._loop.call_soon(self._serve_next)  # step 4

    def _serve_next(self) -> None:
        if not self._waiters:
            self.is_contended = False
            return
        first = self._waiters[0]
        # Only the first: smaller needs would otherwise be served before it again and again.
        if self.free >= first.need and not first.future.done():
            first.future.set_result(None)

    def refuse_waiters(self, make_error: Callable[[], BaseException]) -> None:
        """Fail every call that waits, each with an exception object of its own."""
        for waiter in self._waiters:
            if not waiter.future.done():
                waiter.future.set_exception(make_error())
