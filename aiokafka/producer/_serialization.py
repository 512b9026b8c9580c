"""Applies the serializers of a producer to records."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable
from inspect import isawaitable
from operator import is_
from types import CoroutineType
from typing import Any

from aiokafka import _cpython
from aiokafka._callbacks import refuse_awaitable
from aiokafka._serialization import Suspended, adapt_serializer, first_step
from aiokafka.producer._arguments import Headers, as_headers
from aiokafka.serialization import MessageField, SerializationContext

__all__ = ["Serialized", "Serializers", "add_note", "make_serializers", "without_awaitables"]

Header = tuple[str, bytes | None]
Serialized = tuple[Any, Any, Headers]
"""Key, value and headers of a record after its serializers. The headers are checked."""

_Function = Callable[[Any], Any]
_Outcome = tuple[Any, Any, Headers, Coroutine[Any, Any, Serialized] | None]


def make_serializers(key_serializer: Any, value_serializer: Any) -> Serializers:
    """Return the serializers of a producer. Each argument may have any form that
    `adapt_serializer()` accepts.

    `Serializers.serialize` runs for each record. So the two most frequent cases have their own
    subclasses, without checks for other serializers: a value serializer alone, with or without a
    context.
    """
    key, key_takes_context = adapt_serializer(key_serializer)
    value, value_takes_context = adapt_serializer(value_serializer)
    if key is None and value_takes_context:
        return _ContextValueSerializer(None, value, False, True)
    if key_takes_context or value_takes_context:
        return _ContextSerializers(key, value, key_takes_context, value_takes_context)
    return _ValueSerializer(None, value) if key is None else Serializers(key, value)


def without_awaitables(option: str, serializer: Any) -> Any:
    """Return a wrapper of `serializer`, the value of `option`, for code that calls the serializer
    itself and does not await the result: the wrapper raises TypeError instead of returning an
    awaitable. If `serializer` is not callable, return it unchanged.

    opentelemetry-instrumentation-aiokafka calls the serializers of a producer to compute the
    partition of a record, and leaves the partition out after an error.
    """
    if not callable(serializer):
        return serializer

    @functools.wraps(serializer)
    def serialize(data: Any) -> Any:
        result = serializer(data)
        refuse_awaitable(option, result, "only send() and send_and_wait() await")
        return result

    return serialize


class Serializers:
    """The key serializer and the value serializer of a producer, as functions (None for no
    serializer). This class is for serializers that take no SerializationContext."""

    takes_context = False
    """Whether a serializer takes a SerializationContext, which contains the topic."""

    def __init__(self, key: Callable[..., Any] | None, value: Callable[..., Any] | None) -> None:
        self.key = key
        self.value = value

    def serialize(
        self, topic: str, key: Any, value: Any, headers: Iterable[Header] | None
    ) -> _Outcome:
        """Serialize key and value of a record for a topic.

        Returns (key, value, headers, None). If a serializer waits, returns (None, None, (),
        coroutine): the coroutine returns key, value and headers, and the caller has to await the
        coroutine before it awaits anything else. The headers are checked, and include headers that
        serializers have appended. Exceptions of the serializers get a note with the topic and the
        part (`add_note`).
        """
        pairs = as_headers(headers) if headers else ()
        if value is None and key is None:
            # Do not call the serializers, because `checked_record` raises an error for this record.
            return None, None, pairs, None
        part = "key"
        try:
            if self.key is not None:
                key = self.key(key)
                if type(key) is not bytes and key is not None:
                    key = _first_step(key)
            part = "value"
            if self.value is not None:
                value = self.value(value)
                if type(value) is not bytes and value is not None:
                    value = _first_step(value)
        except Suspended as suspended:
            if part == "key":
                return _waiting(_finish_key(suspended, topic, self.value, value, pairs))
            return _waiting(_finish_value(suspended, topic, key, pairs))
        except Exception as error:
            add_note(error, part, topic)
            raise
        return key, value, pairs, None

    async def serialize_async(
        self, topic: str | None, key: Any, value: Any, headers: list[Header]
    ) -> tuple[Any, Any]:
        """Return key and value after the serializers, which may append to `headers`. `topic` may be
        None if no serializer takes a context."""
        to_key, to_value = self.functions(topic, headers)
        part = "key"
        try:
            if to_key is not None:
                key = to_key(key)
                key = await key if isawaitable(key) else key
            part = "value"
            if to_value is not None:
                value = to_value(value)
                value = await value if isawaitable(value) else value
        except Exception as error:
            add_note(error, part, topic)
            raise
        return key, value

    def functions(
        self, topic: str | None, headers: list[Header]
    ) -> tuple[_Function | None, _Function | None]:
        """Return the serializers as functions of the data alone, for a record of `topic` with
        `headers`. The functions may append to `headers`."""
        return self.key, self.value


class _ValueSerializer(Serializers):
    """A value serializer without a context, the most frequent case."""

    value: Callable[..., Any]

    def serialize(
        self, topic: str, key: Any, value: Any, headers: Iterable[Header] | None
    ) -> _Outcome:
        pairs = as_headers(headers) if headers else ()
        if value is None and key is None:
            return None, None, pairs, None
        try:
            value = self.value(value)
            if type(value) is not bytes and value is not None:
                value = _first_step(value)
        except Suspended as suspended:
            return _waiting(_finish_value(suspended, topic, key, pairs))
        except Exception as error:
            add_note(error, "value", topic)
            raise
        return key, value, pairs, None


class _ContextSerializers(Serializers):
    """Serializers of which at least one takes a context."""

    takes_context = True

    def __init__(
        self,
        key: Callable[..., Any] | None,
        value: Callable[..., Any] | None,
        key_takes_context: bool,
        value_takes_context: bool,
    ) -> None:
        super().__init__(key, value)
        self._key_takes_context = key_takes_context
        self._value_takes_context = value_takes_context

    def serialize(
        self, topic: str, key: Any, value: Any, headers: Iterable[Header] | None
    ) -> _Outcome:
        given = as_headers(headers) if headers else []
        if value is None and key is None:
            return None, None, given, None
        pairs = [*given]
        part = "key"
        try:
            if self.key is not None:
                if self._key_takes_context:
                    key = self.key(key, SerializationContext(topic, _KEY, pairs))
                else:
                    key = self.key(key)
                if type(key) is not bytes and key is not None:
                    key = _first_step(key)
            part = "value"
            if self.value is not None:
                if self._value_takes_context:
                    value = self.value(value, SerializationContext(topic, _VALUE, pairs))
                else:
                    value = self.value(value)
                if type(value) is not bytes and value is not None:
                    value = _first_step(value)
        except Suspended as suspended:
            if part == "key":
                _, to_value = self.functions(topic, pairs)
                return _waiting(_finish_key(suspended, topic, to_value, value, pairs))
            return _waiting(_finish_value(suspended, topic, key, pairs))
        except Exception as error:
            add_note(error, part, topic)
            raise
        return key, value, _checked(pairs, given) if pairs else (), None

    def functions(
        self, topic: str | None, headers: list[Header]
    ) -> tuple[_Function | None, _Function | None]:
        key, value = self.key, self.value
        if self._key_takes_context and key is not None and topic is not None:
            key = _bind(key, SerializationContext(topic, _KEY, headers))
        if self._value_takes_context and value is not None and topic is not None:
            value = _bind(value, SerializationContext(topic, _VALUE, headers))
        return key, value


class _ContextValueSerializer(_ContextSerializers):
    """A value serializer that takes a context, as with a schema registry."""

    value: Callable[..., Any]

    def serialize(
        self, topic: str, key: Any, value: Any, headers: Iterable[Header] | None
    ) -> _Outcome:
        given = as_headers(headers) if headers else ()
        if value is None and key is None:
            return None, None, given, None
        pairs = [*given]
        try:
            value = self.value(value, SerializationContext(topic, _VALUE, pairs))
            if type(value) is not bytes and value is not None:
                value = _first_step(value)
        except Suspended as suspended:
            return _waiting(_finish_value(suspended, topic, key, pairs))
        except Exception as error:
            add_note(error, "value", topic)
            raise
        return key, value, _checked(pairs, given) if pairs else (), None


_KEY, _VALUE = MessageField.KEY, MessageField.VALUE


def _first_step(result: Any) -> Any:
    """Return `first_step(result)`. For a coroutine, compiled code calls a C function instead of the
    Python function."""
    if type(result) is CoroutineType:
        return _cpython.first_step(result, Suspended)
    return first_step(result)


def _bind(function: Callable[..., Any], context: SerializationContext) -> _Function:
    return lambda data: function(data, context)


def _checked(pairs: list[Header], given: Headers) -> Headers:
    """Return the headers `pairs`. If a serializer has changed them (`given` has the headers before
    the serializers), check them first."""
    if len(pairs) == len(given) and all(map(is_, pairs, given)):
        return pairs
    return as_headers(pairs)


def _waiting(finish: Coroutine[Any, Any, Serialized]) -> _Outcome:
    return None, None, (), finish


async def _finish_key(
    suspended: Suspended, topic: str, to_value: _Function | None, value: Any, headers: Headers
) -> Serialized:
    """Wait for the key, and serialize the value."""
    part = "key"
    try:
        key = await suspended
        part = "value"
        if to_value is not None:
            value = to_value(value)
            if isawaitable(value):
                value = await value
    except Exception as error:
        add_note(error, part, topic)
        raise
    return key, value, as_headers(headers)


async def _finish_value(suspended: Suspended, topic: str, key: Any, headers: Headers) -> Serialized:
    """Wait for the value."""
    try:
        value = await suspended
    except Exception as error:
        add_note(error, "value", topic)
        raise
    return key, value, as_headers(headers)


def add_note(error: Exception, part: str, topic: str | None) -> None:
    """Add a note to the exception of a serializer (PEP 678): the part, "key" or "value", and the
    topic. Python 3.10 does not print notes."""
    where = "" if topic is None else f" for topic {topic!r}"
    note = f"raised by the {part}_serializer{where}"
    notes = getattr(error, "__notes__", None)
    if notes is None:
        notes = error.__notes__ = []  # type: ignore[attr-defined]
    if note not in notes:  # a serializer may raise the same exception again
        notes.append(note)
