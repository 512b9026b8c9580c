"""Calls the application's serializers and deserializers.

A serializer may return its result or an awaitable, so callers pass its return value to
`first_step()`. Most awaitables never wait, for example because a schema is cached. `first_step()`
then returns their result at once, without the event loop, as if the serializer were a plain
function.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Generator
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from aiokafka import _clock, _cpython
from aiokafka._compat import CancelledError
from aiokafka.errors import RecordDeserializationError
from aiokafka.serialization import MessageField, SerializationContext
from aiokafka.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from aiokafka._log import SubjectLog
    from aiokafka.consumer._context import ConsumerMeter
    from aiokafka.share._metrics import ShareMeter

__all__ = [
    "FAILURES",
    "ContextDeserializer",
    "Suspended",
    "SuspendedRecord",
    "UnreadableRecords",
    "adapt_deserializer",
    "adapt_serializer",
    "first_step",
    "unreadable_records",
]


FAILURES: tuple[type[BaseException], ...] = (Exception, CancelledError)
"""The exceptions that a deserializer may raise when it is called or in its first step. It raises
CancelledError if it calls `result()` of a cancelled task. This CancelledError never cancels the
reading task: asyncio cancels a task only where the task waits, and a first step does not wait."""


# -- awaitables


class Suspended(Exception):
    """An awaitable waits: `first_step()` has run it up to its first suspension.

    The caller awaits this object to continue the awaitable and to get its result. The caller must
    do so in the same task, and must not await anything else before: the awaitable may have entered
    a timeout, which is bound to the task.
    """

    def __init__(self, steps: Any, yielded: Any, driver: object = None) -> None:
        """`driver` is the generator that runs `steps`. This object keeps it, because the garbage
        collection of `driver` would close `steps`."""
        super().__init__("an awaitable waits")
        self._steps = steps
        self._yielded = yielded
        self._driver = driver

    def __await__(self) -> Generator[Any, Any, Any]:
        # The same as `yield from steps`, but the first step was taken already.
        steps, yielded = self._steps, self._yielded
        try:
            while True:
                try:
                    yield yielded
                except GeneratorExit:
                    if hasattr(steps, "close"):
                        steps.close()
                    raise
                except BaseException as error:
                    if not hasattr(steps, "throw"):
                        raise
                    yielded = steps.throw(error)
                else:
                    # asyncio resumes a task by `send(None)`, which is the same as `next()`.
                    yielded = steps.send(None) if type(steps) is CoroutineType else next(steps)
        except StopIteration as stop:
            return stop.value


def first_step(result: Any) -> Any:
    """Return `result` if it is not an awaitable. Otherwise run the awaitable up to its first
    suspension, in the task of the caller, and return its result or raise its exception. Raises
    Suspended if the awaitable waits."""
    if type(result) is CoroutineType:
        return _cpython.first_step(result, Suspended)
    if not inspect.isawaitable(result):
        return result
    # A coroutine that `types.coroutine` has made of a generator has no `__await__`.
    steps: Any = result.__await__() if hasattr(result, "__await__") else result
    try:
        yielded = next(steps)
    except StopIteration as stop:
        return stop.value
    raise Suspended(steps, yielded)


# -- the forms of serializers and deserializers


def takes_context(function: Callable[..., Any]) -> bool:
    """Return whether the second positional parameter of `function` has the name `ctx`."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function in C without a signature
        return False
    positional = [each.name for each in parameters if each.kind in _POSITIONAL]
    return positional[1:2] == ["ctx"]


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _takes_headers(method: Callable[..., Any]) -> bool:
    """Return whether a method of kafka-python's form takes (topic, headers, data), as in version 3
    and later, and not (topic, data)."""
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):
        return True
    return sum(each.kind in _POSITIONAL for each in parameters) >= 3


def adapt_serializer(serializer: Any) -> tuple[Callable[..., Any] | None, bool]:
    """Return a function for a serializer of any form, and whether the function takes a context as
    its second argument. (None, False) without a serializer.

    An object that is not callable has a method of kafka-python's form: `serialize(topic, headers,
    data)`, or `serialize(topic, data)`.
    """
    return _adapt(serializer, "serialize")


class ContextDeserializer:
    """A deserializer that takes a context as its second argument. The RecordReader recognizes it by
    its type."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[Any, SerializationContext], Any]) -> None:
        self.function = function

    def __call__(self, data: Any, record: ConsumerRecord[Any, Any], part: str) -> Any:
        """Call the deserializer for the key or value of `record`. `part`: "key" or "value"."""
        context = SerializationContext(record.topic, _FIELDS[part], list(record.headers))
        return self.function(data, context)


_FIELDS = {field.value: field for field in MessageField}


def adapt_deserializer(deserializer: Any) -> Callable[..., Any] | None:
    """Return a function for a deserializer of any form that `adapt_serializer()` lists; None
    without a deserializer. If the deserializer takes a context, the function is a
    ContextDeserializer; otherwise its only argument is the data."""
    function, with_context = _adapt(deserializer, "deserialize")
    return ContextDeserializer(function) if with_context and function is not None else function


def _adapt(given: Any, name: str) -> tuple[Callable[..., Any] | None, bool]:
    if given is None:
        return None, False
    if callable(given):
        return given, takes_context(given)
    method = getattr(given, name)
    if _takes_headers(method):
        return (lambda data, ctx: method(ctx.topic, ctx.headers, data)), True
    return (lambda data, ctx: method(ctx.topic, data)), True


# -- records whose deserializer waits


class SuspendedRecord(Exception):
    """The deserializer of a record waits. The RecordReader has not moved past the record yet.

    The task that reads has to await `finish()`, before it awaits anything else; then
    `RecordReader.accept()` returns the record.
    """

    def __init__(
        self,
        record: ConsumerRecord[Any, Any],
        part: str,
        suspended: Suspended | OneTurn,
        key: Any,
        value_deserializer: Callable[..., Any] | None,
    ) -> None:
        """
        Args:
            record: The record with the bytes of its key and value.
            part: The part that waits, "key" or "value".
            suspended: The awaitable of the deserializer, or OneTurn() to let other tasks run.
            key: The deserialized key, if `part` is "value".
            value_deserializer: A result of `adapt_deserializer()`.
        """
        super().__init__(f"the {part} deserializer waits")
        self.record = record
        self.key = key
        self.value: Any = record.value
        self.error: RecordDeserializationError | None = None
        """The error of a deserializer, None without one. Set by `finish()`, or before `finish()` if
        `suspended` is a OneTurn."""
        self.is_left_out = False
        """Whether the reader has moved past the record without returning it, because of `error`."""
        self._part = part
        self._suspended: Awaitable[Any] = suspended
        self._value_deserializer = value_deserializer

    async def finish(self) -> None:
        """Wait for the deserializers, and set `key` and `value`, or `error`."""
        if self.error is not None:
            await self._suspended
            return
        try:
            if self._part == "value":
                self.value = await self._suspended
                return
            self.key = await self._suspended
            self._part = "value"
            if self._value_deserializer is not None:
                value = deserialize(self._value_deserializer, self.record, "value", self.value)
                self.value = await value if inspect.isawaitable(value) else value
        except Exception as error:
            self.error = not_deserialized(self.record, error, self._part)

    def fail(self, cause: BaseException) -> None:
        """Set `error`, for an exception that `finish()` has not caught."""
        self.error = not_deserialized(self.record, cause, self._part)


class OneTurn:
    """An awaitable that waits for one iteration of the event loop."""

    def __await__(self) -> Generator[None, None, None]:
        yield


def deserialize(
    deserializer: Callable[..., Any], record: ConsumerRecord[Any, Any], part: str, data: Any
) -> Any:
    """Call `deserializer`, which `adapt_deserializer()` returned, for the key or value of `record`.
    `data`: the bytes of this key or value."""
    if type(deserializer) is ContextDeserializer:
        return deserializer(data, record, part)
    return deserializer(data)


def not_deserialized(
    record: ConsumerRecord[Any, Any], cause: BaseException, part: str
) -> RecordDeserializationError:
    """Return the error for a record whose key or value cannot be deserialized."""
    tp = TopicPartition(record.topic, record.partition)
    return RecordDeserializationError(tp, record.offset, record, cause, part)


# -- unreadable records

# Seconds between two log lines about unreadable records.
_UNREADABLE_LOG_INTERVAL = 60.0
# Maximum number of unreadable records that are left out in a row. Deserializing them blocks the
# event loop, so other tasks must run after this number.
_MOST_LEFT_OUT = 100


class UnreadableRecords:
    """Handles records that cannot be deserialized, for `on_deserialization_error` "skip" and "raw":
    counts them, and logs at most one a minute. Owns the time of the next log line."""

    def __init__(
        self, log: SubjectLog, meter: ConsumerMeter | ShareMeter, is_kept: bool, outcome: str
    ) -> None:
        """
        Args:
            log: The log of the consumer.
            meter: Counts the records.
            is_kept: Whether the records are returned with their bytes, or left out.
            outcome: What happens to the records, for the log.
        """
        self._log = log
        self._meter = meter
        self._is_kept = is_kept
        self._outcome = outcome
        self._quiet_until = 0.0
        self._unlogged = 0
        self._run = 0

    def is_turn_over(self) -> bool:
        """Return whether other tasks must run before the next record is left out."""
        if self._is_kept:
            return False
        self._run = (self._run + 1) % _MOST_LEFT_OUT
        return self._run == 0

    def __call__(self, error: RecordDeserializationError) -> bool:
        """Count a record, and return whether the consumer returns it to the application."""
        self._meter.unreadable(error.topic_partition.topic)
        self._write(error)
        if self._is_kept:
            vars(error.record)["deserialization_error"] = error
        return self._is_kept

    def _write(self, error: RecordDeserializationError) -> None:
        now = _clock.running_time()
        if now < self._quiet_until:
            self._unlogged += 1
            return
        before = f"; {self._unlogged} such records before were not logged" if self._unlogged else ""
        self._unlogged = 0
        self._quiet_until = now + _UNREADABLE_LOG_INTERVAL
        self._log.warning(
            "the %s deserializer raised %r for offset %d of %s; the record is %s%s",
            error.part,
            error.cause,
            error.offset,
            error.topic_partition,
            self._outcome,
            before,
        )


def unreadable_records(
    policy: str, log: SubjectLog, meter: ConsumerMeter | ShareMeter, skipped: str
) -> UnreadableRecords | None:
    """Return the handler of unreadable records for `policy`, the value of
    `on_deserialization_error`; None for "raise". `skipped` is a text for the log: what happens to
    the records with "skip"."""
    if policy == "raise":
        return None
    is_kept = policy == "raw"
    return UnreadableRecords(log, meter, is_kept, "returned with its bytes" if is_kept else skipped)
