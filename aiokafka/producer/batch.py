"""A batch of records: its states, the futures of its records, its size, and how it is split.

The module is compiled if possible (batch.pxd), because `ProducerBatch.add` runs for every record.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError, Future, InvalidStateError
from collections.abc import Callable, Iterator, Sequence
from contextvars import Context, copy_context
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from aiokafka import _cpython
from aiokafka.errors import (
    InvalidRecord,
    InvalidTimestampError,
    KafkaConnectionError,
    KafkaError,
    KafkaProtocolError,
    MessageSizeTooLargeError,
    NodeNotReadyError,
    NotEnoughReplicasAfterAppendError,
    RecordListTooLargeError,
    RequestTimedOutError,
)
from aiokafka.net.failures import REFUSALS
from aiokafka.record.batch import RecordBatchBuilder, RecordReader, SpareBuffers
from aiokafka.record.compression import GZIP, codec_id
from aiokafka.structs import RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiokafka._config.producer import ProducerConfig

__all__ = [
    "NO_SEQUENCE",
    "RECORD_OVERHEAD",
    "TOO_LARGE",
    "BatchOutcome",
    "BatchSizing",
    "BatchState",
    "ProducerBatch",
    "RecordFuture",
    "advance",
    "split_batch",
]


# -- The size of a topic's batches


_MARGIN = 1.05
"""A batch may compress worse than earlier batches by this factor without exceeding the limit."""

_MOST_GROWTH = 16
"""The largest size of a full batch before compression, in multiples of its limit after
compression (`max_batch_size`, or less after a broker has refused a larger batch)."""

_PREVIOUS_WEIGHT = 0.8
"""Weight of the previous estimate of the compression ratio in the new estimate, if a batch has
compressed better than estimated."""

_LARGEST = 1_000_000
"""Bytes up to which a full batch grows while it waits to be sent (`MessageAccumulator._grow`): less
than the default of `max.message.bytes`, 1,048,588."""

_LARGEST_COMPRESSED = 262_144
"""`_LARGEST` for compressed batches: compressing a batch blocks the event loop."""

_BUFFER_SHARE = 16
"""A batch grows to 1/16 of `buffer_memory` at most: batches of other partitions need memory, too,
while the batch is in flight."""

_LIMIT_LIFETIME = 600.0
"""Seconds for which the size limit after a refused batch applies. Then batches have the configured
size again, because the topic's limit may have been raised."""


class BatchSizing:
    """Estimates how many bytes of records fill a batch of one topic.

    Owns: the compression ratio of the topic's batches, the size limit learnt from brokers that
    refused a batch as too large, and the time of the last refusal.
    """

    def __init__(
        self,
        config: ProducerConfig,
        clock: Callable[[], float],
        spare: SpareBuffers | None = None,
    ) -> None:
        """`clock` returns a monotonic time in seconds. Builders take large buffers from `spare`."""
        self._codec = codec_id(config.compression_type)
        self._level = config.compression_level
        self._most = self._full = config.max_batch_size
        # With acks=0 no response says that a batch is too large, so each batch above the topic's
        # limit would be lost: batches neither grow nor rely on the compression ratio.
        self._has_responses = config.acks != 0
        largest = _LARGEST_COMPRESSED if self._codec else _LARGEST
        largest = min(largest, config.max_request_size, config.buffer_memory // _BUFFER_SHARE)
        may_grow = self._has_responses and not config.is_given("max_batch_size")
        self._largest = largest if may_grow else 0
        self._may_grow = True
        self._spare = spare
        self._ratio = 1.0
        self._clock = clock
        self._refused_at = 0.0

    def new_builder(self) -> RecordBatchBuilder:
        """Return an empty builder. A full batch of this builder has about `self.limit` bytes after
        compression, estimated from the compression ratio of earlier batches. With acks=0,
        `self.limit` is the size before compression."""
        if self._refused_at and self._clock() - self._refused_at > _LIMIT_LIFETIME:
            self._full = self._most
            self._may_grow = True
            self._refused_at = 0.0
        limit = self._full
        if self._codec and self._has_responses:
            growth = max(1.0, 1 / (self._ratio * _MARGIN))
            limit = int(limit * min(growth, _MOST_GROWTH))
        return self.builder(limit)

    @property
    def largest(self) -> int:
        """Bytes before compression up to which a full batch may grow while it waits to be sent
        (`MessageAccumulator._grow`).

        0 if batches do not grow: with acks=0, if the application has set `max_batch_size`, or if a
        broker has refused a batch as too large in the last 10 minutes.
        """
        return self._largest if self._may_grow else 0

    @property
    def is_fast(self) -> bool:
        """Whether compressing a batch of `largest` bytes takes a few milliseconds at most."""
        return self._codec != GZIP and self._level is None

    @property
    def limit(self) -> int:
        """Bytes that a batch may have after compression."""
        return self._full

    def builder(self, limit: int) -> RecordBatchBuilder:
        """Return an empty builder for a batch of `limit` bytes before compression."""
        return RecordBatchBuilder(
            compression=self._codec, level=self._level, size_limit=limit, spare=self._spare
        )

    def learn(self, size: int, compressed_size: int) -> None:
        """Update the compression ratio from a batch of `size` bytes before compression."""
        if 2 * size < self._full:
            return  # a batch of a few records compresses worse than a full batch
        ratio = compressed_size / size
        if ratio > self._ratio:
            # Use a worse ratio at once: with the old ratio the next batches might be too large, and
            # brokers would refuse them. Batches that are too small only cost some throughput.
            self._ratio = ratio
        else:
            self._ratio = self._ratio * _PREVIOUS_WEIGHT + ratio * (1 - _PREVIOUS_WEIGHT)

    def refuse(self, size: int) -> None:
        """Lower the limit to half of `size` at most: a broker has refused a batch of `size`
        compressed bytes (KIP-126). For 10 minutes, batches do not grow beyond the limit."""
        self._ratio = 1.0
        self._may_grow = False
        self._full = max(1, min(self._full, size // 2))
        self._refused_at = self._clock()


# -- The outcome of a batch, and the futures of its records

# The states of a BatchOutcome.
_OPEN = 0
_WRITTEN = 1
_UNACKNOWLEDGED = 2
_FAILED = 3
# The states of a RecordFuture. The future is PENDING until it has loaded its result from the
# BatchOutcome.
_PENDING = 0
_CANCELLED = 1
_RESULT = 2
_EXCEPTION = 3

# The value of `BatchOutcome._firsts` for a batch that was not split.
_NOTHING: list[int] = []
# The value of `BatchOutcome._contexts` for a batch in which no record has an observer.
_NO_CONTEXTS: list[Context | None] = []

_NOT_SETTABLE = "only the producer can set the result of a record"


class BatchOutcome:
    """The outcome of a batch, from which the futures of its records read their results.

    Futures outlive the batch and its bytes, so they refer to this object and not to the batch. The
    outcome refers to a future only if a task awaits it or it has a callback, so any other future
    that the program does not keep is freed at once. The lists are created on first use, because
    many batches have a single record.

    Owns: the timestamps of the records; the futures with a waiting task or a callback (`_waiting`);
    the numbers of the futures that were garbage-collected (`_dropped`); with interceptors, the
    records (`_records`) and the context of each `send`, until the outcome is known.
    """

    def __init__(self, partition: TopicPartition, loop: AbstractEventLoop) -> None:
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
        self._is_retrieved = False
        self._waiting: list[Any] | None = None
        """By record number: the RecordFuture, if a task awaits it or it has a callback; the
        asyncio.Future of `send_and_wait`; or None."""
        self._dropped: list[int] | None = None
        self._records: list[Any] | None = None
        """By record number: the argument of `observe`, or None."""
        self._contexts: list[Context | None] = _NO_CONTEXTS
        self._observer: Callable[[Any, Any, Any], object] | None = None
        self._firsts: list[int] = _NOTHING
        self._parts: list[BatchOutcome] | None = None

    def promise(self, timestamp: int) -> Future[Any]:
        """Add a record; return its future."""
        future = _new_future(self, len(self.timestamps))
        self.timestamps.append(timestamp)
        if self._waiting is not None:
            self._waiting.append(None)
        _cpython.untrack(future)
        return future  # type: ignore[return-value]

    def promise_awaited(self, timestamp: int) -> Future[Any]:
        """Add a record; return an asyncio.Future, for a caller that awaits it at once."""
        future: Future[Any] = Future(loop=self.loop)
        if self._waiting is None:
            self._waiting = [None] * len(self.timestamps)
        self._waiting.append(future)
        self.timestamps.append(timestamp)
        return future

    def adopt(self, timestamp: int) -> None:
        """Add a record of a split batch, without a new future: `divide` assigns the existing future
        to this outcome."""
        self.timestamps.append(timestamp)

    def divide(self, firsts: Sequence[int], parts: Sequence[BatchOutcome]) -> None:
        """Move the records to the outcomes `parts`: the n-th part begins with record number
        `firsts[n]`.

        The futures in `_waiting` move to the parts at once. Each of the other futures finds its
        part in `_current_outcome()`, when the application uses the future.
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
            part.note_dropped(number - self._firsts[at])
        if self._records is not None:
            ends = [*self._firsts[1:], len(self._records)]
            for part, first, end in zip(self._parts, self._firsts, ends, strict=True):
                part._records = self._records[first:end]
                part._contexts = self._contexts[first:end]
                part._observer = self._observer
        self._waiting = None
        self._dropped = None
        self._records = None

    def watch(self, number: int, future: RecordFuture) -> None:
        """Complete `future`, the future of record `number`, when the batch has an outcome."""
        if self._waiting is None:
            self._waiting = [None] * len(self.timestamps)
        self._waiting[number] = future

    def note_dropped(self, number: int) -> None:
        """Record that the pending future of record `number` was garbage-collected. If the batch
        fails, `fail` logs the error, because the program can no longer retrieve it."""
        if self._dropped is None:
            self._dropped = []
        self._dropped.append(number)

    def observe(
        self, number: int, record: Any, observer: Callable[[Any, Any, Any], object]
    ) -> None:
        """Call `observer(record, metadata, error)` for record `number`, in the context of this
        call, when the batch has an outcome."""
        if self._records is None:
            self._records = []
            self._contexts = []
            self._observer = observer
        while len(self._records) < number:
            # The records before this one have no observer.
            self._records.append(None)
            self._contexts.append(None)
        context = _cpython.copy_context()
        # Records that are sent in the same context share one copy of the context.
        last = self._contexts[-1] if self._contexts else None
        if last is not None and _is_same(last, context):
            context = last
        self._records.append(record)
        self._contexts.append(context)

    def _part(self, number: int) -> int:
        part = len(self._firsts) - 1
        while self._firsts[part] > number:
            part -= 1
        return part

    def write(self, base_offset: int, log_append_time: int, log_start_offset: int | None) -> None:
        """Resolve the future of every record with the record's metadata.

        `base_offset` is -1 if unknown, `log_append_time` is -1 if the records keep their own
        timestamps.
        """
        self._base_offset = base_offset
        self._log_append_time = log_append_time
        self._log_start = log_start_offset
        self._settle(_WRITTEN)

    def leave_unacknowledged(self) -> None:
        """Resolve the future of every record with None: with acks=0 the broker sends no
        response."""
        self._settle(_UNACKNOWLEDGED)

    def fail(self, make_error: Callable[[int], BaseException]) -> None:
        """Fail the future of every record with `make_error(record number)`, which returns a new
        exception each time."""
        self._make_error = make_error
        self._settle(_FAILED)
        if self._dropped is not None:
            # Log later, because the caller may call `mark_retrieved` next.
            self.loop.call_soon(self._log_dropped)

    def mark_retrieved(self) -> None:
        """Mark the errors of all futures as retrieved, so that they are not logged."""
        self._is_retrieved = True

    def _settle(self, state: int) -> None:
        self.state = state
        self._topic, self._number = self.partition
        # Schedule the observer before the waiting tasks: interceptors get `on_acknowledgement`
        # before `send_and_wait` returns.
        if self._records is not None:
            self.loop.call_soon(self._report)
        if self._waiting is not None:
            waiting = self._waiting
            self._waiting = None
            for number in range(len(waiting)):
                if waiting[number] is not None:
                    self._wake(number, waiting[number])

    def _report(self) -> None:
        """Call the observer with the outcomes of the observed records."""
        records = self._records
        contexts = self._contexts
        self._records = None
        self._contexts = _NO_CONTEXTS
        assert records is not None
        first = 0
        while first < len(records):
            context = contexts[first]
            end = first + 1
            while end < len(records) and contexts[end] is context:
                end += 1
            if context is not None:
                context.run(self._report_some, records, first, end)
            first = end

    def _report_some(self, records: list[Any], first: int, end: int) -> None:
        observer = self._observer
        assert observer is not None
        for number in range(first, end):
            metadata = error = None
            if self.state == _FAILED:
                assert self._make_error is not None
                error = self._make_error(number)
            else:
                metadata = self._metadata(number)
            observer(records[number], metadata, error)

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
            pass  # the call of `send_and_wait` was cancelled

    def _log_dropped(self) -> None:
        dropped = self._dropped
        self._dropped = None
        for number in dropped or ():
            _new_future(self, number)  # `__del__` logs the failure

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
        return _cpython.make_untracked(RecordMetadata, fields)  # type: ignore[no-any-return]


def _is_same(context: Context, other: Context) -> bool:
    """Return whether two contexts are equal; False if the values of a variable, such as arrays of
    numpy, cannot be compared."""
    try:
        return context == other
    except Exception:
        return False


class RecordFuture:
    """The future of one record; programs can use it as an asyncio.Future.

    The future has a record number and a reference to the outcome of the batch, and loads its result
    on first use: programs never read most futures, or read them after all records are delivered.
    The first `await` of a pending future creates an asyncio.Future (`_twin`), because tasks wait
    for an asyncio.Future faster than for any other awaitable. From then on the state of the future
    is that of the twin. Callbacks need no twin.

    `isinstance(future, asyncio.Future)` is true because of `__class__`, as for proxies and mocks.
    asyncio itself uses only the methods of futures.
    """

    _asyncio_future_blocking = False  # asyncio recognizes futures by this attribute

    def __init__(self, outcome: BatchOutcome, number: int) -> None:
        self._outcome = outcome
        self._number = number
        self._state = _PENDING
        self._value: Any = None
        """The result, the exception, or the message of `cancel`, depending on `_state`."""
        self._fn: Callable[[Any], object] | None = None
        self._context: Context | None = None
        self._more: list[tuple[Callable[[Any], object], Context]] | None = None
        """The callbacks after the first callback, which is `_fn`."""
        self._twin: Future[Any] | None = None
        self._is_called_first = False
        """Whether the first callback was added before the first `await`."""
        self._is_retrieved = False

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return Future

    def __setattr__(self, name: str, value: Any) -> None:
        # The attribute may make this future part of a reference cycle, so the garbage collector
        # must track the future from now on.
        _cpython.set_tracked(self, name, value)

    def __repr__(self) -> str:
        if self._outcome is None:
            return "<RecordFuture>"  # type: ignore[unreachable]
        state = "pending"
        if self.cancelled():
            state = "cancelled"
        elif self.done():
            self._load()
            name = "result" if self._state == _RESULT else "exception"
            state = f"finished {name}={self._value!r}"
        topic, partition = self._outcome.partition
        return f"<RecordFuture {topic}-{partition} {state}>"

    def __del__(self) -> None:
        if self._outcome is None:
            return  # type: ignore[unreachable]
        if self._twin is not None or self._is_retrieved:
            return
        if self._state == _PENDING:
            outcome = self._current_outcome()
            if outcome.state == _OPEN:
                outcome.note_dropped(self._number)
                return
            if outcome.state != _FAILED:
                return
        elif self._state != _EXCEPTION:
            return
        if not self._outcome._is_retrieved:
            self._load()
            self._is_retrieved = True
            context = {
                "message": "Future exception was never retrieved",
                "exception": self._value,
                "future": self,
            }
            self._outcome.loop.call_exception_handler(context)

    def _current_outcome(self) -> BatchOutcome:
        """Return the outcome of the batch that contains the record; after a split, the outcome of
        the part."""
        outcome = self._outcome
        if outcome is None:
            text = "the future was not initialised"  # type: ignore[unreachable]
            raise TypeError(f"{text}: __init__ was not called")
        while outcome._parts is not None:
            part = outcome._part(self._number)
            self._number -= outcome._firsts[part]
            self._outcome = outcome = outcome._parts[part]
        return outcome

    def _load(self) -> None:
        """Load the result or the exception if the batch has an outcome."""
        if self._state != _PENDING:
            return
        outcome = self._current_outcome()
        if outcome.state == _OPEN:
            return
        if outcome.state == _FAILED:
            assert outcome._make_error is not None
            _cpython.track(self)  # the traceback of an exception may refer to this future
            self._value = outcome._make_error(self._number)
            self._state = _EXCEPTION
        else:
            self._value = outcome._metadata(self._number)
            self._state = _RESULT

    def done(self) -> bool:
        """Return whether the record is written or has failed, or the future was cancelled."""
        if self._twin is not None:
            return self._twin.done()
        return self._state != _PENDING or self._current_outcome().state != _OPEN

    def cancelled(self) -> bool:
        """Return whether the future was cancelled."""
        if self._twin is not None:
            return self._twin.cancelled()
        return self._state == _CANCELLED

    def result(self) -> Any:
        """Return the RecordMetadata (None with acks=0), or raise the delivery error.

        Raises InvalidStateError while the future is not done, CancelledError if it was cancelled.
        """
        if self._twin is not None:
            return self._twin.result()
        self._load()
        if self._state == _RESULT:
            return self._value
        if self._state == _EXCEPTION:
            self._is_retrieved = True
            raise self._value.with_traceback(None)
        if self._state == _CANCELLED:
            raise self._make_cancelled_error()
        raise InvalidStateError("Result is not set.")

    def exception(self) -> BaseException | None:
        """Return the delivery error, None after a success. Raises InvalidStateError while the
        future is not done, CancelledError if it was cancelled."""
        if self._twin is not None:
            return self._twin.exception()
        self._load()
        if self._state == _RESULT:
            return None
        if self._state == _EXCEPTION:
            self._is_retrieved = True
            return self._value  # type: ignore[no-any-return]
        if self._state == _CANCELLED:
            raise self._make_cancelled_error()
        raise InvalidStateError("Exception is not set.")

    def get_loop(self) -> AbstractEventLoop:
        """Return the event loop of the producer."""
        return self._current_outcome().loop

    def observe(self, record: Any, observer: Callable[[Any, Any, Any], object]) -> None:
        """Call `observer(record, metadata, error)`, in the context of this call, when the record is
        written or has failed, even if this future was garbage-collected before."""
        outcome = self._current_outcome()
        outcome.observe(self._number, record, observer)

    def __await__(self) -> Iterator[Any]:
        if self._twin is None:
            if self.done():
                return _cpython.ready(self.result())
            self._twin = Future(loop=self._outcome.loop)
            if self._fn is None:
                self._watch()
            else:
                self._twin.add_done_callback(self._on_twin_done)
        return iter(self._twin)

    def __iter__(self) -> Iterator[Any]:
        return self.__await__()

    def add_done_callback(
        self, fn: Callable[[Any], object], *, context: Context | None = None
    ) -> None:
        """Call `fn(future)` from the event loop when the future is done; if it is done already, in
        the next iteration of the loop."""
        if context is None:
            context = copy_context()
        if self.done():
            self._current_outcome().loop.call_soon(fn, self, context=context)
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
                self._twin.add_done_callback(self._on_twin_done)

    def remove_done_callback(self, fn: Callable[[Any], object]) -> int:
        """Remove every callback `fn`; return the number of removed callbacks."""
        if self._fn is None:
            return 0
        entries = [(self._fn, self._context), *(self._more or ())]
        left: list[Any] = [entry for entry in entries if entry[0] != fn]
        # If no callback is left, keep a placeholder: this future stays registered in
        # `BatchOutcome._waiting`, or as a callback of the twin.
        self._fn, self._context = left[0] if left else (_call_nothing, copy_context())
        self._more = left[1:]
        return len(entries) - len(left)

    def _watch(self) -> None:
        outcome = self._current_outcome()
        outcome.watch(self._number, self)
        _cpython.track(self)

    def _wake(self) -> None:
        """Run the callbacks and resolve the twin: the batch has an outcome."""
        self._load()
        if self._is_called_first:
            # Run callbacks added before the first `await` first, as asyncio.Future does.
            self._call_back()
        if self._twin is not None:
            try:
                if self._state == _RESULT:
                    self._twin.set_result(self._value)
                elif self._state == _EXCEPTION:
                    self._twin.set_exception(self._value)
            except InvalidStateError:
                pass  # the task that awaited this future was cancelled
        self._call_back()

    def _on_twin_done(self, _: Future[Any]) -> None:
        # If a task that awaits this future is cancelled, asyncio cancels the twin without calling
        # `cancel` of this future. So the callbacks are run here, by a callback of the twin.
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

    def cancel(self, msg: Any = None) -> bool:
        """Cancel the future unless it is done; return whether it was cancelled by this call.

        Cancelling the future does not prevent the record from being sent.
        """
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
        # Reading this attribute of an asyncio.Future does not mark its exception as retrieved.
        if self._twin is not None:
            return self._twin._exception
        self._load()
        return self._value if self._state == _EXCEPTION else None

    @property
    def _cancel_message(self) -> Any:
        # asyncio.gather reads this attribute.
        if self._twin is not None:
            return self._twin._cancel_message  # type: ignore[attr-defined]
        return self._value if self._state == _CANCELLED else None

    def _make_cancelled_error(self) -> CancelledError:
        message = self._cancel_message
        return CancelledError() if message is None else CancelledError(message)

    def set_result(self, result: Any) -> None:
        """Raise InvalidStateError: only the producer sets the outcome."""
        raise InvalidStateError(_NOT_SETTABLE)

    def set_exception(self, exception: Any) -> None:
        """Raise InvalidStateError: only the producer sets the outcome."""
        raise InvalidStateError(_NOT_SETTABLE)


def _call_nothing(_: Any) -> None:
    """Do nothing: a placeholder for a removed callback."""


def _new_future(outcome: BatchOutcome, number: int) -> RecordFuture:
    # Skip the constructor: in the compiled class it would convert its arguments to Python objects.
    future = RecordFuture.__new__(RecordFuture)
    _cpython.spare_dict(future)
    future._outcome = outcome
    future._number = number
    future._state = _PENDING
    future._value = None
    future._fn = None
    future._context = None
    future._more = None
    future._twin = None
    future._is_called_first = False
    future._is_retrieved = False
    return future


_cpython.set_plainly(RecordFuture)


# -- A batch


NO_SEQUENCE = -1

RECORD_OVERHEAD = 160
"""Bytes of buffer memory counted for the future and the timestamp of each record."""

_OVERHEAD = RECORD_OVERHEAD  # a C integer in the compiled module

TOO_LARGE = (MessageSizeTooLargeError, RecordListTooLargeError)

# After these errors the batch may have been written: there was no response, or the response does
# not show whether it was written. (REFUSALS: if re-authentication fails, the connection closes, and
# its in-flight requests get no response.)
_OPEN_OUTCOME = (
    KafkaConnectionError,
    KafkaProtocolError,
    NodeNotReadyError,
    NotEnoughReplicasAfterAppendError,
    RequestTimedOutError,
    *REFUSALS,
)

# A leader refuses a batch with one of these errors at each attempt, so no earlier attempt of the
# same batch has succeeded. (An exception is a size limit that was lowered between two attempts:
# `fail_as` and `_final_error` consider it in the errors that they make.)
_ALWAYS_REFUSED = (*TOO_LARGE, InvalidRecord, InvalidTimestampError)

_new_tuple: Callable[..., Any] = tuple.__new__


def advance(sequence: int, count: int) -> int:
    """Return the sequence number `count` records after `sequence`: 0 follows 2**31 - 1 (KIP-98)."""
    return (sequence + count) & 0x7FFFFFFF


class BatchState(IntEnum):
    """The states of a ProducerBatch; `_TRANSITIONS` lists the allowed changes."""

    OPEN = 0
    """The batch accepts records; it is the last batch of its partition's queue."""
    SEALED = 1
    """The batch waits in its partition's queue for the first attempt, or for a retry."""
    IN_FLIGHT = 2
    """The batch is part of a request without a response."""
    ABANDONED = 3
    """The batch timed out in flight: its futures have failed, but its request has no response
    yet."""
    SETTLED = 4
    """The batch is complete: written, failed, or split into parts."""


_TRANSITIONS: Mapping[int, frozenset[BatchState]] = {
    BatchState.OPEN: frozenset({BatchState.SEALED, BatchState.SETTLED}),
    BatchState.SEALED: frozenset({BatchState.IN_FLIGHT, BatchState.SETTLED}),
    BatchState.IN_FLIGHT: frozenset({BatchState.SEALED, BatchState.ABANDONED, BatchState.SETTLED}),
    BatchState.ABANDONED: frozenset({BatchState.SETTLED}),
    BatchState.SETTLED: frozenset(),
}

# The states as C integers of the compiled module, which would compare members of an IntEnum as
# Python objects. `_NEXT_STATES` has `_TRANSITIONS` as bits: one for each allowed next state.
_BATCH_OPEN = int(BatchState.OPEN)
_BATCH_IN_FLIGHT = int(BatchState.IN_FLIGHT)
_BATCH_ABANDONED = int(BatchState.ABANDONED)
_NEXT_STATES = tuple(sum(1 << after for after in _TRANSITIONS[state]) for state in BatchState)


class ProducerBatch:
    """Records of one partition that are sent together.

    Owns every field; only methods of this class change them. The builder has the bytes. The outcome
    has the results for the futures of records that `send` has added. A batch that the user filled
    (`send_batch`) has one more future, for all of the user's records.

    The state is changed by these methods of `PartitionQueue`: `seal` (the batch is full, lingered,
    or flushed), `take` (the batch is added to a request), `requeue` (the request failed, and the
    batch is retried); and by `BatchCompletion`, after a response, a split, or the delivery timeout.
    """

    def __init__(
        self,
        partition: TopicPartition,
        builder: RecordBatchBuilder,
        created: float,
        deadline: float,
        loop: AbstractEventLoop,
    ) -> None:
        """The delivery timeout runs from `created` to `deadline` (loop time)."""
        self.partition = partition
        self.builder = builder
        self.created = created
        self.deadline = deadline
        self.state = _BATCH_OPEN
        self.reserved = 0
        """Bytes of buffer memory that the batch holds."""
        self.attempts = 0
        """The number of requests that contained the batch."""
        self.has_grown = False
        """Whether `MessageAccumulator._grow` has raised the size limit, because the batch was full,
        but not sent yet. A batch that has grown does not linger."""
        self.is_doubtful = False
        """Whether the batch is a part of a split batch that may have been written: see
        `split_batch`."""
        self.is_unconfirmed = False
        """Whether an earlier request with the batch got no response, or a response that does not
        show whether the batch was written."""
        self.goes_alone = False
        """Whether this batch is sent only while no other batch of the partition is in flight,
        because it is retried or doubtful."""
        self.error: BaseException | None = None
        """The error of the last attempt, or the reason why the batch cannot be sent."""
        self.producer_id = -1
        self.producer_epoch = -1
        self.base_sequence = NO_SEQUENCE
        self.user_future: Future[Any] | None = None
        """The future of a batch that the user filled; None for other batches."""
        self.user_timestamp = -1
        self.outcome = BatchOutcome(partition, loop)

    def __repr__(self) -> str:
        topic, number = self.partition
        return (
            f"<ProducerBatch {topic}-{number} {BatchState(self.state).name} "
            f"records={self.record_count} sequence={self.base_sequence} attempts={self.attempts}>"
        )

    @property
    def record_count(self) -> int:
        """The number of records, including the records that the user put into the batch."""
        return self.builder.record_count

    @property
    def has_sequence(self) -> bool:
        """Whether the batch has a sequence number. An idempotent producer assigns it before the
        batch is sent for the first time; `clear_sequence` clears it."""
        return self.base_sequence != NO_SEQUENCE

    @property
    def is_done(self) -> bool:
        """Whether the futures have a result or an exception."""
        return self.state >= _BATCH_ABANDONED

    @property
    def is_filling(self) -> bool:
        """Whether the batch may wait for more records."""
        return self.state == _BATCH_OPEN and not self.has_grown

    def may_be_written(self, error: BaseException) -> bool:
        """Return whether the batch, which failed with `error`, may be in the log.

        True if the batch timed out in flight; or if the outcome of an earlier request is unknown,
        and `error` does not prove that the batch was not written.
        """
        return self.is_done or (self.is_unconfirmed and not isinstance(error, _ALWAYS_REFUSED))

    def fail_as(
        self, make_error: Callable[[int], BaseException], last_error: BaseException | None
    ) -> None:
        """Fail the futures as `fail` does, with errors that say whether the records may have been
        written.

        `last_error` is the error of the attempt that has just ended; None if no attempt has ended,
        because the batch waits or is still in flight.
        """
        may_be_written = self.state == BatchState.ABANDONED or isinstance(last_error, _OPEN_OUTCOME)
        if self.is_unconfirmed or self.is_doubtful:
            # Only these two errors prove that no earlier attempt was written. An error of TOO_LARGE
            # does not: the size limit may have been lowered after the batch was written.
            may_be_written |= not isinstance(last_error, (InvalidRecord, InvalidTimestampError))

        def make_marked(index: int) -> BaseException:
            error = make_error(index)
            if isinstance(error, KafkaError):
                error.may_have_been_written = may_be_written
            return error

        self.fail(make_marked)

    # -- state

    def transition(self, state: int) -> None:
        """Enter `state`. Raises RuntimeError if `_TRANSITIONS` does not allow it."""
        allowed = _NEXT_STATES[self.state]
        if not allowed >> state & 1:
            raise RuntimeError(f"{self!r} cannot become {BatchState(state).name}")
        self.state = state

    def grow(self, size_limit: int) -> None:
        """Raise the size limit to `size_limit` bytes."""
        self.has_grown = True
        self.builder.raise_limit(size_limit)

    def begin_attempt(self) -> None:
        """Enter IN_FLIGHT, and count the attempt."""
        self.transition(_BATCH_IN_FLIGHT)
        self.attempts += 1

    def fail_attempt(self, error: BaseException) -> None:
        """Return to SEALED for a retry, after the last attempt has failed with `error`."""
        self.error = error
        if isinstance(error, _OPEN_OUTCOME):
            self.is_unconfirmed = True
        self.goes_alone = True
        self.transition(BatchState.SEALED)

    def mark_appended(self) -> None:
        """Record that a leader wrote the batch, but was replaced before the other replicas had it:
        the next leader may or may not have the batch.
        """
        self.is_unconfirmed = True

    def set_error(self, error: BaseException) -> None:
        """Record why the batch cannot be sent, for the error of its delivery timeout."""
        self.error = error

    def assign_sequence(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        """Set the producer id, the epoch, and the sequence number of the first record."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence

    def has_identity(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether the batch has a sequence number of this producer id and epoch."""
        return self.producer_id == producer_id and self.producer_epoch == producer_epoch

    def clear_sequence(self) -> None:
        """Clear the sequence number: the batch gets a new number when it is sent with another
        epoch."""
        self.base_sequence = NO_SEQUENCE

    def reserve(self, size: int) -> None:
        """Add `size` to the bytes of buffer memory that the batch holds."""
        self.reserved += size

    def release(self) -> int:
        """Set `reserved`, the buffer memory of the batch, to zero, and return its previous
        value."""
        held = self.reserved
        self.reserved = 0
        if self.builder.is_large:
            self.builder.end_loan()
        return held

    # -- records

    def add(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]],
        is_awaited: bool = False,
    ) -> Future[Any] | None:
        """Append a record and return its future; return None if the batch is full."""
        size = self.builder.size
        if self.builder.append(timestamp, key, value, headers) < 0:
            return None
        self.reserved += self.builder.size - size + _OVERHEAD
        if is_awaited:
            return self.outcome.promise_awaited(timestamp)
        return self.outcome.promise(timestamp)

    def set_user_future(self, future: Future[Any], timestamp: int) -> None:
        """Set the future of the records that the user put into the batch; `timestamp` is the
        timestamp of the first record.
        """
        self.user_future = future
        self.user_timestamp = timestamp

    @property
    def user_record_count(self) -> int:
        """The number of records that the user put into the batch; records of `send` follow them."""
        return self.builder.record_count - len(self.outcome.timestamps)

    def part(self, builder: RecordBatchBuilder) -> ProducerBatch:
        """Return an empty batch for a part of the records, with the creation time, deadline and
        number of attempts of this batch."""
        loop = self.outcome.loop
        part = ProducerBatch(self.partition, builder, self.created, self.deadline, loop)
        part.attempts = self.attempts
        # If the unsplit batch is in the log, the leader does not recognize a part as a duplicate
        # (`split_batch`).
        part.is_doubtful = self.is_doubtful or (self.has_sequence and self.is_unconfirmed)
        part.is_unconfirmed = self.is_unconfirmed
        # Parts that are not doubtful are new to every broker, so several may be in flight together.
        # If they were sent one at a time, the parts of a large batch might exceed the delivery
        # timeout.
        part.goes_alone = part.is_doubtful
        part.error = self.error
        return part

    def succeed(self, base_offset: int, log_append_time: int, log_start_offset: int | None) -> None:
        """Resolve every future. `log_append_time` is -1 if records keep their own timestamps."""
        if self.user_future is not None:
            topic, number = self.partition
            stamp, kind = self.user_timestamp, 0
            if log_append_time >= 0:
                stamp, kind = log_append_time, 1
            fields = (topic, number, self.partition, base_offset, stamp, kind, log_start_offset)
            _resolve(self.user_future, _new_tuple(RecordMetadata, fields))
            if base_offset >= 0:
                base_offset += self.user_record_count
        self.outcome.write(base_offset, log_append_time, log_start_offset)

    def succeed_unacknowledged(self) -> None:
        """Resolve every future with None: with acks=0 the broker sends no response."""
        if self.user_future is not None:
            _resolve(self.user_future, None)
        self.outcome.leave_unacknowledged()

    def fail(self, make_error: Callable[[int], BaseException]) -> None:
        """Fail every future with `make_error(index of the record)`, which returns a new
        exception."""
        if self.user_future is None:
            self.outcome.fail(make_error)
            return
        if not self.user_future.done():
            self.user_future.set_exception(make_error(0))
        first = self.user_record_count
        self.outcome.fail(lambda number: make_error(first + number))

    def mark_retrieved(self) -> None:
        """Mark the errors of all futures as retrieved, so that they are not logged."""
        future = self.user_future
        if future is not None and future.done() and not future.cancelled():
            future.exception()
        self.outcome.mark_retrieved()


def _resolve(future: Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


# -- Split a batch that a broker refused as too large (KIP-126)


def split_batch(batch: ProducerBatch, sizing: BatchSizing) -> list[ProducerBatch]:
    """Split `batch` into batches of at most half its size; return [] if a split is impossible.

    The parts take over the futures of the records, and divide the sequence numbers of the batch
    without a gap. Records that the user put into a batch stay together, because their future has
    one base offset: these records are the first part, and the records of `send` are in the other
    parts.

    The parts are doubtful if the batch may have been written (`ProducerBatch.is_unconfirmed`):

    1. The batch is written, and the response is lost.
    2. The topic's size limit is lowered.
    3. The batch is sent again. The leader checks the size before the sequence number, and refuses
       the batch. The producer splits the batch.
    4. The leader refuses the first part for its sequence number: the log has a batch that begins
       with the same number, but has more records.

    If this part were sent again with a new epoch, its records would be written twice. So the
    doubtful part fails, with an error that mentions that the part may have been written.
    """
    timestamps = batch.outcome.timestamps
    if batch.record_count < 2 or not timestamps:
        return []
    limit = max(1, min(sizing.limit, batch.builder.size // 2))
    sequence = batch.base_sequence
    # The records exist only as the bytes of the batch, so decode these bytes.
    records = RecordReader(batch.builder.build(), *batch.partition, position=0, check_crcs=False)
    own: list[ProducerBatch] = []
    if batch.user_future is not None:
        part = batch.part(sizing.builder(batch.builder.size))
        part.set_user_future(batch.user_future, batch.user_timestamp)
        for _ in range(batch.user_record_count):
            part.builder.append(*_fields_of_next(records))
        own.append(part)
    parts: list[ProducerBatch] = []
    firsts: list[int] = []
    for number, timestamp in enumerate(timestamps):
        fields = _fields_of_next(records)
        if not parts or parts[-1].builder.append(*fields) < 0:
            part = batch.part(sizing.builder(limit))
            part.builder.append(*fields)
            parts.append(part)
            firsts.append(number)
        parts[-1].outcome.adopt(timestamp)
    batch.outcome.divide(firsts, [part.outcome for part in parts])
    parts = own + parts
    for part in parts:
        part.transition(BatchState.SEALED)
        if batch.has_sequence:
            part.assign_sequence(batch.producer_id, batch.producer_epoch, sequence)
            sequence = advance(sequence, part.record_count)
    return parts


def _fields_of_next(records: RecordReader) -> tuple[Any, ...]:
    record = records.next()
    if record is None:
        raise RuntimeError("a batch lacks records")
    return record.timestamp, record.key, record.value, record.headers
