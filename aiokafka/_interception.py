"""Calls the interceptors of a client, and awaits the coroutines that notifications return.

The module is compiled if possible (_interception.pxd), because `transform` runs for every record.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from aiokafka import _cpython
from aiokafka._compat import timeout_at
from aiokafka._log import Guard, SubjectLog
from aiokafka._tasks import TaskOwner
from aiokafka.errors import KafkaTimeoutError
from aiokafka.interceptors import (
    ConsumerInterceptor,
    ProducerInterceptor,
    ProducerRecord,
    Records,
)

if TYPE_CHECKING:
    from aiokafka.structs import RecordMetadata

__all__ = ["ConsumerInterception", "ProducerInterception"]

T = TypeVar("T")

Methods = tuple[Callable[..., Any], ...]

_running: ContextVar[Awaitable[Any] | None] = ContextVar("running", default=None)
"""The notification coroutine that runs in the current task, or that started the current task."""

_NOTIFICATION_TIMEOUT = 30.0
"""Seconds that the coroutine of one notification may take."""

_MOST_WAITING = 1000
"""Maximum number of queued notification coroutines, which wait until the earlier ones have run."""

_STOP_TIMEOUT = 10.0
"""Seconds that a stopping client waits for the remaining coroutines."""


class Interception:
    """Calls the interceptors in the order of their list, and logs their exceptions.

    Records pass through the interceptors (`transform`), which may await. Notifications (`notify`)
    do not wait: a task of the client awaits their coroutines one after the other (`run`).

    Owns: the queue of notification coroutines, and the task of the running coroutine.
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
            interceptors: The interceptors, in the order in which they are called.
            log: The log for exceptions of the interceptors.
            options: Argument of `configure`, which the constructor calls.
            drops: Drop the oldest coroutines while more than `_MOST_WAITING` wait. If False,
                callers of `notify` await `wait_for_capacity` first.
        """
        self._interceptors = tuple(interceptors)
        self._drops = drops
        self._guard = Guard(log, "an interceptor")
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Awaitable[Any]] = deque()
        self._wake = asyncio.Event()
        self._advanced = asyncio.Event()
        self._current: asyncio.Task[BaseException | None] | None = None
        self._running: Awaitable[Any] | None = None
        self._tasks = TaskOwner("interceptors")
        self._is_closed = False
        for interceptor in self._interceptors:
            self._guard.call(interceptor.configure, options)
        self.is_idle = _idle_check(self._interceptors)
        """A function that returns whether calls of the interceptors would have no effect now, such
        as calls of a tracer that does not record; None if an interceptor does not support this."""

    def methods(self, name: str) -> tuple[Callable[..., Any], ...]:
        """Return the methods `name` of all interceptors, as they are now."""
        return tuple(getattr(interceptor, name) for interceptor in self._interceptors)

    def transform(
        self, item: T, methods: Methods, is_valid: Callable[[Any], bool], first: int = 0
    ) -> T | Coroutine[Any, Any, T]:
        """Pass `item` through the methods from number `first` on, and return the result; if a
        method returns an awaitable, return a coroutine of the result. A method that raises or
        returns None does not change the item. Other results that are not valid are logged, and do
        not change the item either."""
        for number in range(first, len(methods)):
            method = methods[number]
            try:
                result = method(item)
            except (Exception, asyncio.CancelledError) as error:
                # Nothing is awaited here, so CancelledError comes from `result()` of a cancelled
                # future, which the method has called.
                self._guard.log_exception(error)
                continue
            if result is None:
                continue
            if is_valid(result):
                item = result
            elif inspect.isawaitable(result):
                later: Any = self._transform_later(item, methods, is_valid, number + 1, result)
                return later  # type: ignore[no-any-return]
            else:
                self._refuse(method, result)
        return item

    async def _transform_later(
        self,
        item: T,
        methods: Methods,
        is_valid: Callable[[Any], bool],
        number: int,
        awaitable: Awaitable[Any],
    ) -> T:
        """Await `awaitable`, which method number `number` (from 1) has returned, and continue
        `transform` with the next method."""
        try:
            result = await _result_of(awaitable)
        except Exception as error:
            self._guard.log_exception(error)
        except asyncio.CancelledError:
            self.cancelled(item, number)
            raise
        else:
            if is_valid(result):
                item = result
            elif result is not None:
                self._refuse(methods[number - 1], result)
        passed = self.transform(item, methods, is_valid, number)
        return passed if is_valid(passed) else await passed  # type: ignore[return-value, misc]

    def cancelled(self, item: Any, count: int) -> None:
        """Called if the coroutine of `transform` is cancelled, with the last result and the number
        of methods that were called."""

    def _refuse(self, method: Callable[..., Any], result: Any) -> None:
        self._guard.log_exception(TypeError(f"{method!r} returned {result!r}"))

    def notify(self, methods: Methods, *args: Any) -> None:
        """Call all methods; `run()` awaits the coroutines that they return."""
        for method in methods:
            try:
                result = method(*args)
            except (Exception, asyncio.CancelledError) as error:
                self._guard.log_exception(error)
                continue
            if result is not None:
                self._enqueue(method, result)

    def _enqueue(self, method: Callable[..., Any], result: Any) -> None:
        """Add the result of a notification to the queue of `run()` if it is an awaitable. If too
        many awaitables wait and `drops` is set, drop the oldest and log an error."""
        if not inspect.isawaitable(result):
            return
        self._waiting.append(result)
        self._wake.set()
        if self._is_closed:
            self.close()
        while self._drops and len(self._waiting) > _MOST_WAITING:
            _drop(self._waiting.popleft())
            self._guard.log_exception(
                KafkaTimeoutError(f"{method!r} is too slow: a call was dropped")
            )

    @property
    def is_full(self) -> bool:
        """Whether at least `_MOST_WAITING` coroutines wait: the producer then calls
        `wait_for_capacity()` before it sends another record."""
        return len(self._waiting) >= _MOST_WAITING

    async def wait_for_capacity(self, deadline: float) -> None:
        """Wait until fewer than `_MOST_WAITING` coroutines are queued, or until `close()`. Raises
        KafkaTimeoutError at `deadline` (loop time).

        Returns at once if the caller is a notification coroutine: the queue advances only after the
        end of this coroutine.
        """
        if self._is_inside:
            return
        while self.is_full and not self._is_closed:
            self._advanced.clear()
            try:
                async with timeout_at(deadline):
                    await self._advanced.wait()
            except asyncio.TimeoutError:
                raise KafkaTimeoutError(
                    f"{_MOST_WAITING} coroutines of interceptors are queued: they run more slowly "
                    "than records are sent"
                ) from None

    async def run(self) -> None:
        """Run the queued coroutines one after the other, until cancelled."""
        while True:
            if not self._waiting:
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                await self._run_one(self._waiting.popleft())
            except Exception as error:
                self._guard.log_exception(error)
            finally:
                self._current = self._running = None
                self._advanced.set()

    async def _run_one(self, awaitable: Awaitable[Any]) -> None:
        """Run one coroutine in a task of its own.

        A cancellation inside the coroutine then does not cancel `run()`, and a coroutine that
        ignores its cancellation does not block the next one. Raises the coroutine's exception, or
        KafkaTimeoutError after `_NOTIFICATION_TIMEOUT`.
        """
        current = self._tasks.start(_outcome_of(awaitable), name="notification")
        self._current, self._running = current, awaitable
        # If the task is cancelled before its first step, nothing else closes the coroutine.
        current.add_done_callback(lambda _: _drop(awaitable))
        await asyncio.wait((current,), timeout=_NOTIFICATION_TIMEOUT)
        if not current.done():
            current.cancel()
            raise KafkaTimeoutError(f"it takes longer than {_NOTIFICATION_TIMEOUT:g} s")
        if current.cancelled():
            return
        error = current.result()
        if isinstance(error, asyncio.CancelledError):
            raise RuntimeError("it awaited a cancelled task or future") from error
        if error is not None:
            raise error

    async def finish(self, deadline: float | None) -> None:
        """Wait until the queued coroutines have run, for at most `_STOP_TIMEOUT` seconds, and no
        longer than until `deadline` (loop time; None = no limit).

        If a notification coroutine stops the client, do not wait for that coroutine: its task
        continues on its own.
        """
        if self._is_inside:
            if self._current is not None:
                self._tasks.release(self._current)
            self._current = self._running = None
            return
        # `run()` clears `_current` some loop iterations after the end of a coroutine.
        await asyncio.sleep(0)
        latest = self._loop.time() + _STOP_TIMEOUT
        try:
            async with timeout_at(latest if deadline is None else min(latest, deadline)):
                while self._waiting or self._current is not None:
                    self._advanced.clear()
                    await self._advanced.wait()
        except asyncio.TimeoutError:
            pass

    @property
    def _is_inside(self) -> bool:
        """Whether the caller is the running notification coroutine, or a task that the coroutine
        has started, for example with `asyncio.gather`."""
        return self._running is not None and _running.get() is self._running

    def close(self) -> None:
        """Close the queued coroutines and all later ones, and cancel the running coroutine."""
        self._is_closed = True
        while self._waiting:
            _drop(self._waiting.popleft())
        self._tasks.cancel()
        self._advanced.set()


def _idle_check(interceptors: Sequence[Any]) -> Callable[[], bool] | None:
    checks: list[Any] = [getattr(interceptor, "_is_idle", None) for interceptor in interceptors]
    if None in checks:
        return None
    return checks[0] if len(checks) == 1 else lambda: all(check() for check in checks)


def _overriding(methods: Methods, base: Callable[..., Any]) -> Methods:
    """Return the methods that override `base`, the method of the base class, which does nothing."""
    return tuple(method for method in methods if getattr(method, "__func__", None) is not base)


class ProducerInterception(Interception):
    """The interceptors of a producer."""

    record_type = ProducerRecord
    """The class of the records. If `on_send` returns an object of another class, the object is a
    coroutine of the record."""

    def __init__(
        self, interceptors: Sequence[Any], log: SubjectLog, options: Mapping[str, Any]
    ) -> None:
        super().__init__(interceptors, log, options)
        self._on_send = self.methods("on_send")
        self._on_acknowledgement = self.methods("on_acknowledgement")
        base = ProducerInterceptor.on_acknowledgement
        observes = _overriding(self._on_acknowledgement, base)
        self.observer = self.acknowledge if observes else None
        """`acknowledge`, which the producer has to call with the outcome of each record; None if
        no interceptor overrides `on_acknowledgement`."""

    def on_send(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: float | None,
        headers: tuple[tuple[str, bytes | None], ...],
    ) -> ProducerRecord | Coroutine[Any, Any, ProducerRecord]:
        """Return the record that the interceptors return for the arguments of `send`; a coroutine
        of the record if an interceptor returns an awaitable."""
        fields = (topic, value, key, partition, timestamp_ms, headers)
        given = _cpython.make_slotted(ProducerRecord, _SLOTS, fields)
        if not headers and type(value) is bytes and (key is None or type(key) is bytes):
            # The record is frozen, so it cannot be part of a reference cycle. Exclude it from the
            # search for cycles: the producer keeps many thousands of records until it knows their
            # outcomes.
            _cpython.untrack(given)
        return self.transform(given, self._on_send, _is_record)

    def acknowledge(
        self, record: ProducerRecord, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        """Call `on_acknowledgement` with the outcome of a record. This method does what `notify`
        does, but without a tuple of the arguments, because it runs for each record."""
        for method in self._on_acknowledgement:
            try:
                result = method(record, metadata, error)
            except (Exception, asyncio.CancelledError) as raised:
                self._guard.log_exception(raised)
                continue
            if result is not None:
                self._enqueue(method, result)

    def cancelled(self, item: ProducerRecord, count: int) -> None:
        """Call `on_acknowledgement` of the first `count` interceptors: `send` was cancelled while
        the last of them ran."""
        error = asyncio.CancelledError("send() was cancelled in an interceptor")
        self.notify(self._on_acknowledgement[:count], item, None, error)


_SLOTS = tuple(getattr(ProducerRecord, name) for name in ProducerRecord.__slots__)
"""The descriptors of the fields. Setting the fields by their descriptors takes a quarter of the
time of the constructor, because the dataclass is frozen."""


def _is_record(value: Any) -> bool:
    return isinstance(value, ProducerRecord)


class ConsumerInterception(Interception):
    """The interceptors of a consumer."""

    def __init__(
        self, interceptors: Sequence[Any], log: SubjectLog, options: Mapping[str, Any]
    ) -> None:
        super().__init__(interceptors, log, options, drops=True)
        # Do not call `on_poll` of the base class for each record: few interceptors override it.
        self._on_poll = _overriding(self.methods("on_poll"), ConsumerInterceptor.on_poll)
        self._on_consume = self.methods("on_consume")
        self.is_plain = False
        """Whether `on_consume` has been called, and never returned an awaitable."""
        self._has_awaitables = False
        self.committed = partial(self.notify, self.methods("on_commit"))
        """Called with the offsets of a commit."""

    def begin(
        self, records: Records, waited: float = 0.0
    ) -> Records | Coroutine[Any, Any, Records]:
        """Call `on_poll` with `waited`, the seconds that `getone()` or `getmany()` has waited.

        Return `records` as changed by the interceptors, or a coroutine of the changed records if an
        interceptor returns an awaitable.
        """
        if self._on_poll:
            self.notify(self._on_poll, waited)
        passed = self.transform(records, self._on_consume, _are_records)
        if not isinstance(passed, dict):
            self._has_awaitables = True
        self.is_plain = not self._has_awaitables
        return passed


def _are_records(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(some, list) for some in value.values())


async def _outcome_of(awaitable: Awaitable[Any]) -> BaseException | None:
    """Await `awaitable`; return its exception, or None if there is none."""
    _running.set(awaitable)
    try:
        await awaitable
    except (Exception, asyncio.CancelledError) as error:
        return error
    return None


async def _result_of(awaitable: Awaitable[Any]) -> Any:
    """Await `awaitable` and return its result.

    A CancelledError has one of two causes. If this task is being cancelled, propagate it. If the
    interceptor awaited a cancelled task or future, raise RuntimeError instead. On Python 3.10,
    which cannot distinguish the causes, always propagate it.
    """
    count = getattr(asyncio.current_task(), "cancelling", lambda: None)
    before = count()
    try:
        return await awaitable
    except asyncio.CancelledError as error:
        if before is None or count() > before:
            raise
        raise RuntimeError("it awaited a cancelled task or future") from error


def _drop(awaitable: Awaitable[Any]) -> None:
    if inspect.iscoroutine(awaitable):
        awaitable.close()
