"""The bytes of `buffer_memory`, and the calls that wait for some of them.

Compiled when possible, see buffer_memory.pxd: the appender reads it for every record.
"""

from __future__ import annotations

import asyncio
from asyncio import AbstractEventLoop
from collections import OrderedDict
from collections.abc import Callable

from aiokafka._compat import timeout_at
from aiokafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

__all__ = ["BufferMemory"]

_QUANTUM = 65_536
"""Bytes that a waiter may allocate in its turn while others wait. To wait costs as much CPU time as
to append some twenty small records; a quantum has room for more than two hundred."""

_PER_TURN = 262_144
"""Bytes that are granted in one turn of the event loop, which would stand still otherwise."""


class _Waiter:
    """A call that waits for memory: `need` bytes at once, up to `quantum` in the same turn."""

    __slots__ = ("future", "grant", "need", "quantum")

    def __init__(self, need: int, quantum: int, future: asyncio.Future[None]) -> None:
        self.need = need
        self.quantum = quantum
        self.future = future
        self.grant = 0
        """Bytes that were granted to it, `need` at least."""


class BufferMemory:
    """Counts the free bytes of `buffer_memory`, and grants them to waiters in FIFO order.

    Owns `free`, `room` and the queue of waiters. Without waiters `room` is `free`, and any call
    allocates. With waiters `room` is what the task that runs now may still allocate of its grant,
    and is zero for all other tasks. So waiters have equal shares of the memory, and a task goes on
    at full speed within its share.

    How waiters get memory, and why not more directly:

    1. `send` A finds too little room. It joins the queue, and `room` becomes zero: `send` B, though
       its record would fit, joins behind A.
    2. A batch is written. `give_back` adds its bytes to `free` and calls `_serve`, which takes
       waiters from the front of the queue while `free` suffices, and sets their results. Each is
       granted `_QUANTUM` bytes, the last one of the queue all that is left.
    3. The tasks of these waiters run next, one behind the other, and behind them `_end_turn`, as
       `_serve` calls for all of them in one step. A task that runs sets `room` to its grant before
       it allocates. Its further sends allocate from the grant, until it awaits something else.
       Nothing is counted before it is allocated. So nothing has to be given back by a task that was
       cancelled after step 2, or whose deadline came in the same turn, or that sends no more.
    4. `_end_turn` looks at `free` again: the unused grants are in it, and what `give_back` added
       during the turn. It grants them to the next waiters, or lets any call allocate if there are
       none.
    5. A needs more than its grant, or than was left in step 2. It joins the queue again: at the end
       after a whole quantum, at the front with the rest of its quantum otherwise. With every waiter
       at the end, those whose turn comes with the last few free bytes would get fewer in each round
       if their number divides that of the waiters.
    6. A waiter that leaves the queue without a grant (cancelled, timed out, refused) may have been
       too large for what is free. `_leave` calls `_serve` for those behind it. A deadline in the
       turn of the grant is ignored: the call goes on with step 3.
    7. `stop()` refuses the waiters in the queue. Those of step 3 find the producer closed when they
       run, and allocate nothing.
    8. Memory is counted by `take`, in the step that appends, and given back once, by whoever
       releases the batch: a batch has nothing to release the second time.

    Tasks that did not wait run before the waiters of step 3 or behind `_end_turn`, and a task that
    joins the queue (also one that a task of step 3 has started eagerly) ends the grant of the task
    that runs: a call never overtakes an earlier one of the same task.
    """

    def __init__(self, loop: AbstractEventLoop, size: int) -> None:
        self.size = size
        self.free = size
        """Bytes that are left; below zero when the headers of split batches need more."""
        self.room = size
        """Bytes that the running task may allocate without waiting."""
        self.taken = 0
        """Bytes that were ever taken."""
        self.is_contended = False
        """Whether calls wait, or were granted memory in this turn."""
        self._is_granting = False
        self._rest = 0
        """What the running task has not got of its quantum, as memory was short."""
        self._waiters: OrderedDict[_Waiter, None] = OrderedDict()
        self._loop = loop

    @property
    def has_waiters(self) -> bool:
        """Whether a call waits for memory, so that nothing may linger in it."""
        return bool(self._waiters)

    def take(self, size: int) -> None:
        """Count `size` bytes as used, whether they are free or not."""
        self.free -= size
        self.room -= size
        self.taken += size

    def give_back(self, size: int) -> None:
        """Count `size` bytes as free again, and grant them to waiters."""
        self.free += size
        if not self.is_contended:
            self.room = self.free
        elif not self._is_granting:
            self._serve()

    def check(self, need: int) -> None:
        """Raise MessageSizeTooLargeError for more than there is in all."""
        if need > self.size:
            raise MessageSizeTooLargeError(
                f"{need} bytes can never fit into buffer_memory={self.size}"
            )

    async def wait(self, need: int, deadline: float) -> None:
        """Wait until `need` bytes are granted to the caller, which must allocate in the same step.

        Raises KafkaTimeoutError at `deadline` (loop time). Then, or cancelled, nothing has
        changed.
        """
        waiter = self._join(need)
        try:
            async with timeout_at(deadline):
                await waiter.future
        except asyncio.TimeoutError:
            if not waiter.future.done() or waiter.future.cancelled():
                raise KafkaTimeoutError(
                    f"no room for {need} bytes within max_block_ms: {self.free} of buffer_memory="
                    f"{self.size} bytes are free; the brokers take records more slowly than they "
                    "are sent, or do not answer"
                ) from None
            # In the same turn: the program has stood still.
            waiter.future.result()
        finally:
            self._leave(waiter)
        self._begin(waiter)

    def _join(self, need: int) -> _Waiter:
        """Put the running task into the queue, and end its grant."""
        is_first = self._rest > 0
        waiter = _Waiter(need, self._rest or _QUANTUM, self._loop.create_future())
        self._waiters[waiter] = None
        if is_first:
            self._waiters.move_to_end(waiter, last=False)
        self.room = self._rest = 0
        self.is_contended = True
        return waiter

    def _leave(self, waiter: _Waiter) -> None:
        """Remove a waiter that got no grant."""
        if waiter in self._waiters:
            del self._waiters[waiter]
            if not self._is_granting:
                self._serve()

    def _begin(self, waiter: _Waiter) -> None:
        """Let the running task allocate what was granted to it."""
        if self._is_granting:
            self.room = waiter.grant
            self._rest = max(0, waiter.quantum - waiter.grant)

    def _serve(self) -> None:
        """Grant free bytes to waiters from the front of the queue (step 2)."""
        left = self.free
        granted = 0
        while self._waiters and granted < _PER_TURN:
            waiter = next(iter(self._waiters))
            if not waiter.future.done():
                # Smaller needs must not be served before this one again and again.
                if left < waiter.need:
                    break
                share = left if len(self._waiters) == 1 else min(left, waiter.quantum)
                waiter.grant = max(waiter.need, share)
                waiter.future.set_result(None)
                left -= waiter.grant
                granted += waiter.grant
            del self._waiters[waiter]
        if granted:
            self._is_granting = True
            self._loop.call_soon(self._end_turn)
        elif not self._waiters:
            self.is_contended = False
            self.room = self.free

    def _end_turn(self) -> None:
        """End the grants of this turn, and grant what is free to the next waiters (step 4)."""
        self._is_granting = False
        self.room = self._rest = 0
        self._serve()

    def refuse_waiters(self, make_error: Callable[[], BaseException]) -> None:
        """Fail every call that waits, each with an exception object of its own."""
        for waiter in self._waiters:
            if not waiter.future.done():
                waiter.future.set_exception(make_error())
