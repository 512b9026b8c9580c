"""Calls the interceptors of a client, and runs the coroutines of their notifications."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from types import CoroutineType
from typing import Any, TypeVar

from aiokafka._compat import timeout_at
from aiokafka._guard import Guard
from aiokafka._log import SubjectLog
from aiokafka._tasks import TaskOwner
from aiokafka.errors import KafkaTimeoutError
from aiokafka.interceptors import ConsumerInterceptor, ProducerRecord, Records, new_record

__all__ = ["ConsumerInterception", "ProducerInterception"]

T = TypeVar("T")

Methods = tuple[Callable[..., Any], ...]

_turn: ContextVar[Awaitable[Any] | None] = ContextVar("turn", default=None)
"""The notification coroutine that runs in this context, or that started this context's task."""

_LONGEST = 30.0
"""Seconds that the coroutine of one notification may take."""

_MOST = 1000
"""Largest number of coroutines that wait to run."""

_FINISH = 10.0
"""Seconds that a stopping client waits for the coroutines."""


class Interception:
    """Calls interceptors in the order of their list, and logs their exceptions.

    Owns: the waiting coroutines of notifications, and the task of the running coroutine. A task of
    the client calls `run()`, which runs the coroutines one after the other.
    """

    def __init__(
        self,
        interceptors: Sequence[Any],
        log: SubjectLog,
        options: Mapping[str, Any],
        *,
        drops: bool = False,
    ) -> None:
        """
        Args:
            interceptors: Called in this order.
            log: The log for exceptions of the interceptors.
            options: Argument of `configure`, which the constructor calls.
            drops: Drop the oldest coroutines while too many wait. If False, callers of `tell`
                await `wait_for_room` first.
        """
        self._interceptors = tuple(interceptors)
        self._drops = drops
        self._guard = Guard(log, "an interceptor")
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Awaitable[Any]] = deque()
        self._wake = asyncio.Event()
        self._moved = asyncio.Event()
        self._current: asyncio.Task[BaseException | None] | None = None
        self._turn: Awaitable[Any] | None = None
        self._tasks = TaskOwner("interceptors")
        self._is_closed = False
        for interceptor in self._interceptors:
            self._guard.call(interceptor.configure, options)
        self._idle: list[Any] = [getattr(each, "_is_idle", None) for each in self._interceptors]
        self.may_be_idle = None not in self._idle

    @property
    def is_idle(self) -> bool:
        """Whether calls of the interceptors would have no effect now, as of a tracer without a
        recorder. False if `may_be_idle` is."""
        if not self.may_be_idle:
            return False
        for is_idle in self._idle:  # noqa: SIM110  (a generator would cost more than the calls)
            if not is_idle():
                return False
        return True

    def methods(self, name: str) -> tuple[Callable[..., Any], ...]:
        """Return the methods `name` of all interceptors, as they are now."""
        return tuple(getattr(interceptor, name) for interceptor in self._interceptors)

    def pass_on(
        self, item: T, methods: Methods, is_valid: Callable[[Any], bool], first: int = 0
    ) -> T | CoroutineType[Any, Any, T]:
        """Pass `item` through the methods from number `first` on, and return the result; if a
        method returns an awaitable, return a coroutine of the result."""
        number = first
        for method in methods[first:] if first else methods:
            number += 1
            try:
                result = method(item)
            except (Exception, asyncio.CancelledError) as error:
                # A plain function raises CancelledError only from a cancelled future that it reads.
                self._guard.complain(error)
                continue
            if result is None:
                continue
            if is_valid(result):
                item = result
            elif inspect.isawaitable(result):
                later: Any = self._pass_on_later(item, methods, is_valid, number, result)
                return later  # type: ignore[no-any-return]
            else:
                self._refuse(method, result)
        return item

    async def _pass_on_later(
        self,
        item: T,
        methods: Methods,
        is_valid: Callable[[Any], bool],
        number: int,
        awaitable: Awaitable[Any],
    ) -> T:
        """Await the result of the last of `number` methods, and continue `pass_on`."""
        try:
            result = await _result_of(awaitable)
        except Exception as error:
            self._guard.complain(error)
        except asyncio.CancelledError:
            self.cancelled(item, number)
            raise
        else:
            if is_valid(result):
                item = result
            elif result is not None:
                self._refuse(methods[number - 1], result)
        passed = self.pass_on(item, methods, is_valid, number)
        return await passed if isinstance(passed, CoroutineType) else passed

    def cancelled(self, item: Any, count: int) -> None:
        """Called if the coroutine of `pass_on` is cancelled, with the last result and the number of
        methods that were called."""

    def _refuse(self, method: Callable[..., Any], result: Any) -> None:
        self._guard.complain(TypeError(f"{method!r} returned {result!r}"))

    def tell(self, methods: Methods, *args: Any) -> None:
        """Call all methods; `run()` awaits the coroutines that they return."""
        for method in methods:
            try:
                result = method(*args)
            except (Exception, asyncio.CancelledError) as error:
                self._guard.complain(error)
                continue
            if result is not None and inspect.isawaitable(result):
                self._enqueue(method, result)

    def _enqueue(self, method: Callable[..., Any], awaitable: Awaitable[Any]) -> None:
        self._waiting.append(awaitable)
        self._wake.set()
        if self._is_closed:
            self.close()
        while self._drops and len(self._waiting) > _MOST:
            _drop(self._waiting.popleft())
            self._guard.complain(KafkaTimeoutError(f"{method!r} is slower than it is called"))

    @property
    def is_full(self) -> bool:
        """Whether so many coroutines wait that callers of `tell` await `wait_for_room` first."""
        return len(self._waiting) >= _MOST

    async def wait_for_room(self, deadline: float) -> None:
        """Wait while too many coroutines wait. Raises KafkaTimeoutError at `deadline` (loop time).

        Returns at once in the running coroutine, which must not wait for itself.
        """
        if self._is_inside:
            return
        while self.is_full and not self._is_closed:
            self._moved.clear()
            try:
                async with timeout_at(deadline):
                    await self._moved.wait()
            except asyncio.TimeoutError:
                raise KafkaTimeoutError(
                    f"{_MOST} coroutines of interceptors wait for their turn: they take longer "
                    "than the records come"
                ) from None

    async def run(self) -> None:
        """Run the waiting coroutines in their order, until cancelled."""
        while True:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await self._run_one(self._waiting.popleft())
            except Exception as error:
                self._guard.complain(error)
            finally:
                self._current = self._turn = None
                self._moved.set()

    async def _run_one(self, awaitable: Awaitable[Any]) -> None:
        """Run one coroutine in a separate task: a cancellation of the coroutine then differs from a
        cancellation of `run()`, and a coroutine that ignores cancellation does not block others.
        Raises the coroutine's exception, and KafkaTimeoutError if the coroutine takes too long."""
        current = self._tasks.start(_outcome_of(awaitable), name="notification")
        self._current, self._turn = current, awaitable
        # A task that is cancelled before its first step does not close the coroutine.
        current.add_done_callback(lambda _: _drop(awaitable))
        await asyncio.wait((current,), timeout=_LONGEST)
        if not current.done():
            current.cancel()
            raise KafkaTimeoutError(f"it takes longer than {_LONGEST:g} s")
        if current.cancelled():
            return
        error = current.result()
        if isinstance(error, asyncio.CancelledError):
            raise RuntimeError("it awaited what was cancelled") from error
        if error is not None:
            raise error

    async def finish(self, deadline: float | None) -> None:
        """Wait until all coroutines have run, until `deadline` (loop time) at most.

        If the running coroutine calls this by stopping the client, do not wait: the coroutine
        continues in its task.
        """
        if self._is_inside:
            if self._current is not None:
                self._tasks.release(self._current)
            self._current = self._turn = None
            return
        # A coroutine that has just ended is removed in the next turn of the loop.
        await asyncio.sleep(0)
        latest = self._loop.time() + _FINISH
        try:
            async with timeout_at(latest if deadline is None else min(latest, deadline)):
                while self._waiting or self._current is not None:
                    self._moved.clear()
                    await self._moved.wait()
        except asyncio.TimeoutError:
            pass

    @property
    def _is_inside(self) -> bool:
        """Whether the caller is the running coroutine, or a task that this coroutine started, for
        example through `asyncio.gather`."""
        return self._turn is not None and _turn.get() is self._turn

    def close(self) -> None:
        """Drop the waiting coroutines and all later coroutines, and cancel the running one."""
        self._is_closed = True
        while self._waiting:
            _drop(self._waiting.popleft())
        self._tasks.cancel()
        self._moved.set()


class ProducerInterception(Interception):
    """The interceptors of a producer."""

    def __init__(
        self, interceptors: Sequence[Any], log: SubjectLog, options: Mapping[str, Any]
    ) -> None:
        super().__init__(interceptors, log, options)
        self._on_send = self.methods("on_send")
        self._on_acknowledgement = self.methods("on_acknowledgement")
        self.acknowledge = partial(self.tell, self._on_acknowledgement)
        """Called with a record, and its metadata or its error."""

    def on_send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: float | None,
        headers: tuple[tuple[str, bytes | None], ...],
    ) -> ProducerRecord | CoroutineType[Any, Any, ProducerRecord]:
        """Return the record that the interceptors return for the arguments of `send`; a coroutine
        of the record if an interceptor returns an awaitable."""
        given = new_record(topic, value, key, partition, timestamp_ms, headers)
        return self.pass_on(given, self._on_send, _is_record)

    def cancelled(self, item: ProducerRecord, count: int) -> None:
        """Call `on_acknowledgement` of the first `count` interceptors: `send` was cancelled while
        the last of them ran."""
        error = asyncio.CancelledError("send() was cancelled in an interceptor")
        self.tell(self._on_acknowledgement[:count], item, None, error)


def _is_record(value: Any) -> bool:
    return isinstance(value, ProducerRecord)


class ConsumerInterception(Interception):
    """The interceptors of a consumer."""

    def __init__(
        self, interceptors: Sequence[Any], log: SubjectLog, options: Mapping[str, Any]
    ) -> None:
        super().__init__(interceptors, log, options, drops=True)
        self._on_poll = tuple(
            method
            for method in self.methods("on_poll")
            if getattr(method, "__func__", None) is not ConsumerInterceptor.on_poll
        )
        self._on_consume = self.methods("on_consume")
        self.committed = partial(self.tell, self.methods("on_commit"))
        """Called with the offsets of a commit."""

    def begin(
        self, records: Records, waited: float = 0.0
    ) -> Records | CoroutineType[Any, Any, Records]:
        """Return the records that the interceptors return for `records`; a coroutine of these if an
        interceptor returns an awaitable. The reading call has waited for `waited` seconds."""
        if self._on_poll:
            self.tell(self._on_poll, waited)
        return self.pass_on(records, self._on_consume, _are_records)


def _are_records(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(some, list) for some in value.values())


async def _outcome_of(awaitable: Awaitable[Any]) -> BaseException | None:
    """Await `awaitable`, and return its exception; None if it succeeds."""
    _turn.set(awaitable)
    try:
        await awaitable
    except (Exception, asyncio.CancelledError) as error:
        return error
    return None


async def _result_of(awaitable: Awaitable[Any]) -> Any:
    """Return the result of `awaitable`. Raises RuntimeError if `awaitable` raises CancelledError
    while this task is not cancelled: it awaited a cancelled task or future. Python 3.10 cannot
    distinguish the two cases, and raises CancelledError in both."""
    count = getattr(asyncio.current_task(), "cancelling", lambda: None)
    before = count()
    try:
        return await awaitable
    except asyncio.CancelledError as error:
        if before is None or count() > before:
            raise
        raise RuntimeError("it awaited what was cancelled") from error


def _drop(awaitable: Awaitable[Any]) -> None:
    if inspect.iscoroutine(awaitable):
        awaitable.close()
