"""What `send` returns: futures that ask their batch for its outcome.

Compiled when possible, see record_future.pxd: one future per record is made.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError, Future, InvalidStateError
from collections.abc import Callable, Iterator, Sequence
from contextvars import Context, copy_context
from typing import Any

from aiokafka import _cpython
from aiokafka.producer.batches import results
from aiokafka.structs import RecordMetadata, TopicPartition

__all__ = ["BatchOutcome", "RecordFuture"]

# What is known of a batch ...
_OPEN = 0
_WRITTEN = 1
_UNACKNOWLEDGED = 2
_FAILED = 3
# ... and of a future: it asks its batch until it was asked itself, or cancelled.
_ASKS = 0
_CANCELLED = 1
_RESULT = 2
_EXCEPTION = 3

# The numbers of the first records of no parts.
_NOTHING: list[int] = []

_NOT_YOURS = "the outcome of a record is the producer's to give, not a program's"


class BatchOutcome:
    """What becomes of the records of a batch. Their futures ask it, and outlive the batch with it.

    Owns: the timestamps of the records, which of the futures something waits for
    (`_waiting`) and which are gone (`_dropped`). It knows no others, so what a program does not
    keep is freed at once. Lists are made when they are needed: a batch may have a single record.
    """

    def __init__(self, partition: TopicPartition, loop: AbstractEventLoop) -> None:
        """Begin with no records."""
        self.partition = partition
        self.loop = loop
        self.state = _OPEN
        self.timestamps: list[int] = []
        self._base_offset = -1
        self._log_append_time = -1
        self._log_start: int | None = None
        self._topic = ""
        self._number = -1
        self._make_error: Callable[[int], BaseException] | None = None
        self._is_seen = False
        self._waiting: list[Any] | None = None
        """By the number of the record: for `send_and_wait` real futures, None for those that
        nothing waits for."""
        self._dropped: list[int] | None = None
        self._firsts: list[int] = _NOTHING
        self._parts: list[BatchOutcome] | None = None

    def promise(self, timestamp: int) -> Future[Any]:
        """Return the future of the next record."""
        future = _new_future(self, len(self.timestamps))
        self.timestamps.append(timestamp)
        if self._waiting is not None:
            self._waiting.append(None)
        _cpython.untrack(future)
        return future  # type: ignore[return-value]

    def promise_awaited(self, timestamp: int) -> Future[Any]:
        """Return a real future of the next record, for a caller that awaits it at once."""
        future: Future[Any] = Future(loop=self.loop)
        if self._waiting is None:
            self._waiting = [None] * len(self.timestamps)
        self._waiting.append(future)
        self.timestamps.append(timestamp)
        return future

    def adopt(self, timestamp: int) -> None:
        """Take over a record of a batch that is being split; its future comes with `divide`."""
        self.timestamps.append(timestamp)

    def divide(self, firsts: Sequence[int], parts: Sequence[BatchOutcome]) -> None:
        """Leave the records to `parts`; the n-th has those from number `firsts[n]` on.

        Futures that the batch does not know find their part when they are asked.
        """
        self._firsts = list(firsts)
        self._parts = list(parts)
        if self._waiting is not None:
            ends = [*self._firsts[1:], len(self._waiting)]
            for part, first, end in zip(self._parts, self._firsts, ends, strict=True):
                part._waiting = self._waiting[first:end]
        for number in self._dropped or ():
            at = self._part(number)
            part = self._parts[at]
            part.drop(number - self._firsts[at])
        self._waiting = None
        self._dropped = None

    def watch(self, number: int, future: RecordFuture) -> None:
        """Tell the future of a record when there is an outcome."""
        if self._waiting is None:
            self._waiting = [None] * len(self.timestamps)
        self._waiting[number] = future

    def drop(self, number: int) -> None:
        """Note that the future of a record is gone: a failure has to be logged for it."""
        if self._dropped is None:
            self._dropped = []
        self._dropped.append(number)

    def _part(self, number: int) -> int:
        part = len(self._firsts) - 1
        while self._firsts[part] > number:
            part -= 1
        return part

    # -- the outcome

    def write(self, base_offset: int, log_append_time: int, log_start_offset: int | None) -> None:
        """Give every record its metadata. `base_offset` is -1 when it is not known, and
        `log_append_time` when the records keep their own times."""
        self._base_offset = base_offset
        self._log_append_time = log_append_time
        self._log_start = log_start_offset
        self._settle(_WRITTEN)

    def leave_unacknowledged(self) -> None:
        """Give every record the result None: with acks=0 the broker sends no response."""
        self._settle(_UNACKNOWLEDGED)

    def fail(self, make_error: Callable[[int], BaseException]) -> None:
        """Fail every record with `make_error(its number)`, which makes a new object each time."""
        self._make_error = make_error
        self._settle(_FAILED)
        if self._dropped is not None:
            # Later: the caller is not done yet, and may say that the failure is raised elsewhere.
            self.loop.call_soon(self._complain)

    def mark_seen(self) -> None:
        """Log no failures: they are raised elsewhere."""
        self._is_seen = True

    def _settle(self, state: int) -> None:
        self.state = state
        self._topic, self._number = self.partition
        if self._waiting is not None:
            waiting = self._waiting
            self._waiting = None
            for number in range(len(waiting)):
                if waiting[number] is not None:
                    self._wake(number, waiting[number])

    def _wake(self, number: int, future: Any) -> None:
        if isinstance(future, RecordFuture):
            watched = future
            watched._wake()
            return
        try:
            if self.state == _FAILED:
                assert self._make_error is not None
                future.set_exception(self._make_error(number))
            else:
                future.set_result(self._metadata(number))
        except InvalidStateError:
            pass  # its caller was cancelled

    def _complain(self) -> None:
        """Log the failures of records whose futures were dropped before."""
        dropped = self._dropped
        self._dropped = None
        for number in dropped or ():
            _new_future(self, number)  # its end logs it

    def _metadata(self, number: int) -> RecordMetadata | None:
        if self.state == _UNACKNOWLEDGED:
            return None
        offset = self._base_offset
        if offset >= 0:
            offset += number
        stamp: object = self._log_append_time
        kind = 1
        if self._log_append_time < 0:
            stamp = self.timestamps[number]
            kind = 0
        place = self.partition
        fields = (self._topic, self._number, place, offset, stamp, kind, self._log_start)
        return results.make_metadata(RecordMetadata, fields)


class RecordFuture:
    """The future of one record: an asyncio.Future in all that programs do with it.

    It is a number and its batch's outcome. What a Future has besides is made when it is asked for:
    most are never looked at, or only when all is done. The first `await` that has to wait makes a
    real Future (`_twin`), which tasks wait for faster than for anything else; that has the state
    from then on. Callbacks need none.

    `isinstance(future, asyncio.Future)` is true by `__class__`, as of proxies and mocks; asyncio
    itself only asks for the methods.
    """

    _asyncio_future_blocking = False  # how asyncio knows futures

    def __init__(self, outcome: BatchOutcome, number: int) -> None:
        self._outcome = outcome
        self._number = number
        self._state = _ASKS
        self._value: Any = None
        """Result, exception, or message of the cancellation, by `_state`."""
        self._fn: Callable[[Any], object] | None = None
        self._context: Context | None = None
        self._more: list[tuple[Callable[[Any], object], Context]] | None = None
        """Callbacks behind the first, which is `_fn`: most have none."""
        self._twin: Future[Any] | None = None
        self._is_called_first = False
        """Whether there was a callback before anything waited."""
        self._is_seen = False

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return Future

    def __setattr__(self, name: str, value: Any) -> None:
        # An attribute may make it part of a cycle.
        _cpython.set_tracked(self, name, value)

    def __repr__(self) -> str:
        if self._outcome is None:
            return "<RecordFuture>"  # type: ignore[unreachable]
        state = "pending"
        if self.cancelled():
            state = "cancelled"
        elif self.done():
            self._look()
            name = "result" if self._state == _RESULT else "exception"
            state = f"finished {name}={self._value!r}"
        topic, partition = self._outcome.partition
        return f"<RecordFuture {topic}-{partition} {state}>"

    def __del__(self) -> None:
        if self._outcome is None:
            return  # type: ignore[unreachable]
        if self._twin is not None or self._is_seen:
            return
        if self._state == _ASKS:
            outcome = self._find()
            if outcome.state == _OPEN:
                outcome.drop(self._number)
                return
            if outcome.state != _FAILED:
                return
        elif self._state != _EXCEPTION:
            return
        if not self._outcome._is_seen:
            self._look()
            self._is_seen = True
            context = {
                "message": "Future exception was never retrieved",
                "exception": self._value,
                "future": self,
            }
            self._outcome.loop.call_exception_handler(context)

    def _find(self) -> BatchOutcome:
        """Return the outcome that has the record now, which changes when the batch is split."""
        outcome = self._outcome
        if outcome is None:
            text = "the future was not initialised"  # type: ignore[unreachable]
            raise TypeError(f"{text}: __init__ was not called")
        while outcome._parts is not None:
            part = outcome._part(self._number)
            self._number -= outcome._firsts[part]
            self._outcome = outcome = outcome._parts[part]
        return outcome

    def _look(self) -> None:
        """Take the result or the exception, if there is one by now."""
        if self._state != _ASKS:
            return
        outcome = self._find()
        if outcome.state == _OPEN:
            return
        if outcome.state == _FAILED:
            assert outcome._make_error is not None
            _cpython.track(self)  # the traceback of an exception may lead back here
            self._value = outcome._make_error(self._number)
            self._state = _EXCEPTION
        else:
            self._value = outcome._metadata(self._number)
            self._state = _RESULT

    # -- its state

    def done(self) -> bool:
        """Return whether there is a result, an exception, or a cancellation."""
        if self._twin is not None:
            return self._twin.done()
        return self._state != _ASKS or self._find().state != _OPEN

    def cancelled(self) -> bool:
        """Return whether it was cancelled."""
        if self._twin is not None:
            return self._twin.cancelled()
        return self._state == _CANCELLED

    def result(self) -> Any:
        """Return the RecordMetadata, None with acks=0; raise what the delivery failed with.

        Raises InvalidStateError while it is not done, CancelledError if it was cancelled.
        """
        if self._twin is not None:
            return self._twin.result()
        self._look()
        if self._state == _RESULT:
            return self._value
        if self._state == _EXCEPTION:
            self._is_seen = True
            raise self._value.with_traceback(None)
        if self._state == _CANCELLED:
            raise self._make_cancelled_error()
        raise InvalidStateError("Result is not set.")

    def exception(self) -> BaseException | None:
        """Return what the delivery failed with, None if it did not. Raises as `result`."""
        if self._twin is not None:
            return self._twin.exception()
        self._look()
        if self._state == _RESULT:
            return None
        if self._state == _EXCEPTION:
            self._is_seen = True
            return self._value  # type: ignore[no-any-return]
        if self._state == _CANCELLED:
            raise self._make_cancelled_error()
        raise InvalidStateError("Exception is not set.")

    def get_loop(self) -> AbstractEventLoop:
        """Return the event loop of the producer."""
        return self._find().loop

    # -- waiting

    def __await__(self) -> Iterator[Any]:
        if self._twin is None:
            if self.done():
                return _cpython.ready(self.result())
            self._twin = Future(loop=self._outcome.loop)
            if self._fn is None:
                self._watch()
            else:
                self._twin.add_done_callback(self._on_twin)
        return iter(self._twin)

    def __iter__(self) -> Iterator[Any]:
        return self.__await__()

    def add_done_callback(
        self, fn: Callable[[Any], object], *, context: Context | None = None
    ) -> None:
        """Have the event loop call `fn(future)` when it is done, or soon if it is."""
        if context is None:
            context = copy_context()
        if self.done():
            self._find().loop.call_soon(fn, self, context=context)
        elif self._fn is not None:
            if self._more is None:
                self._more = []
            self._more.append((fn, context))
        else:
            self._fn = fn
            self._context = context
            if self._twin is None:
                self._is_called_first = True
                self._watch()
            else:
                self._twin.add_done_callback(self._on_twin)

    def remove_done_callback(self, fn: Callable[[Any], object]) -> int:
        """Remove `fn` from the callbacks; return how often it was among them."""
        if self._fn is None:
            return 0
        entries = [(self._fn, self._context), *(self._more or ())]
        left: list[Any] = [entry for entry in entries if entry[0] != fn]
        # It may be watched already: then it stays so, with nothing to call.
        self._fn, self._context = left[0] if left else (_call_nothing, copy_context())
        self._more = left[1:]
        return len(entries) - len(left)

    def _watch(self) -> None:
        """Have the outcome tell when there is one."""
        _cpython.track(self)
        outcome = self._find()
        outcome.watch(self._number, self)

    def _wake(self) -> None:
        """Tell those who wait: there is an outcome."""
        self._look()
        if self._is_called_first:
            # As of a Future: what was asked for before goes before the task that waits.
            self._call_back()
        if self._twin is not None:
            try:
                if self._state == _RESULT:
                    self._twin.set_result(self._value)
                elif self._state == _EXCEPTION:
                    self._twin.set_exception(self._value)
            except InvalidStateError:
                pass  # a task that waited was cancelled
        self._call_back()

    def _on_twin(self, _: Future[Any]) -> None:
        # A task that waits and is cancelled has cancelled it, and nothing else tells so.
        self._call_back()

    def _call_back(self) -> None:
        if self._fn is None:
            return
        call_soon = self._outcome.loop.call_soon
        call_soon(self._fn, self, context=self._context)
        if self._more:
            for fn, context in self._more:
                call_soon(fn, self, context=context)
        self._fn = self._context = self._more = None

    # -- changes

    def cancel(self, msg: Any = None) -> bool:
        """Cancel it unless it is done; return whether it was not. The record is sent all the
        same."""
        if self.done():
            return False
        _cpython.track(self)
        self._state = _CANCELLED
        self._value = msg
        if self._is_called_first:
            self._call_back()
        if self._twin is not None:
            self._twin.cancel(msg)
        self._call_back()
        return True

    @property
    def _exception(self) -> BaseException | None:
        # Looked at so, asyncio goes on to log a failure that is not retrieved.
        if self._twin is not None:
            return self._twin._exception
        self._look()
        return self._value if self._state == _EXCEPTION else None

    @property
    def _cancel_message(self) -> Any:
        # asyncio.gather reads it.
        if self._twin is not None:
            return self._twin._cancel_message  # type: ignore[attr-defined]
        return self._value if self._state == _CANCELLED else None

    def _make_cancelled_error(self) -> CancelledError:
        message = self._cancel_message
        return CancelledError() if message is None else CancelledError(message)

    def set_result(self, result: Any) -> None:
        """Raise: the outcome is the producer's to give."""
        raise InvalidStateError(_NOT_YOURS)

    def set_exception(self, exception: Any) -> None:
        """Raise: the outcome is the producer's to give."""
        raise InvalidStateError(_NOT_YOURS)


def _call_nothing(_: Any) -> None:
    """Stand where a callback was."""


def _new_future(outcome: BatchOutcome, number: int) -> RecordFuture:
    # Without arguments, which would have to become Python objects first.
    future = RecordFuture.__new__(RecordFuture)
    _cpython.spare_dict(future)
    future._outcome = outcome
    future._number = number
    future._state = _ASKS
    future._value = None
    future._fn = None
    future._context = None
    future._more = None
    future._twin = None
    future._is_called_first = False
    future._is_seen = False
    return future


_cpython.set_plainly(RecordFuture)
