"""Retry topics with delays, and a dead-letter topic that tells why."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiokafka.errors import IllegalStateError

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer
    from aiokafka.structs import ConsumerRecord

__all__ = ["RetryInfo", "RetryTopics"]

log = logging.getLogger("aiokafka.parallel")

Header = tuple[str, "bytes | None"]
ErrorTypes = tuple[type[Exception], ...]

_PREFIX = "retry."
_LONGEST_NAME = 249  # Kafka's limit for topics
_MOST_DIGITS = 20


@dataclass(frozen=True)
class RetryInfo:
    """Why and how often a record failed: the headers of records in retry and dead-letter topics.

    Each is a header of its own, `retry.` and the name, as text in UTF-8.
    """

    topic: str
    """Where the record came from."""
    partition: int
    offset: int
    timestamp: int
    """The original's, in milliseconds since 1970."""
    attempts: int
    """How often it was tried."""
    due: int
    """When it is to be tried again, in milliseconds since 1970; -1 for a dead letter."""
    exception: str
    """Class of what the last attempt raised, with its module."""
    message: str
    """Text of that exception, cut to `max_message_bytes`."""

    @classmethod
    def of(cls, record: ConsumerRecord[Any, Any]) -> RetryInfo | None:
        """What a record's headers tell; None if they are missing or make no sense."""
        values: dict[str, Any] = {
            name[len(_PREFIX) :]: (value or b"").decode("utf-8", "replace")
            for name, value in record.headers
            if name.startswith(_PREFIX)
        }
        if not values.keys() >= _NAMES:
            return None
        for name in _NUMBERS:
            values[name] = _number(values[name])
            if values[name] is None:
                return None
        return cls(**{name: values[name] for name in _NAMES})

    def headers(self) -> list[Header]:
        """As headers of a record."""
        return [
            (_PREFIX + name, str(getattr(self, name)).encode()) for name in (*_NUMBERS, *_TEXTS)
        ]


_NUMBERS = ("partition", "offset", "timestamp", "attempts", "due")
_TEXTS = ("topic", "exception", "message")
_NAMES = {*_NUMBERS, *_TEXTS}


class RetryTopics:
    """Where records go whose processing failed.

    The first failure sends a record to the first retry topic, where it waits for the first of
    `delays_ms` before it is tried again; the next failure to the second topic, and so on. After the
    last, or at once for an exception that is not to be retried, it goes to the dead-letter topic.
    Only when the broker has acknowledged that does the failed one count as finished. A crash in
    between leaves both: retries, too, are at least once.

    - `producer`: a started producer, which stays the application's. It must acknowledge (not
      `acks=0`). Key and value are sent as the handler got them: a consumer with deserializers needs
      a producer with the serializers that turn back.
    - `delays_ms`: one retry topic for each, in milliseconds.
    - `retry_topic`: their names, with the fields `{topic}` and `{n}`, from 1.
    - `dead_letter_topic`: its name, may have the field `{topic}`. None: the last exception ends the
      processing.
    - `retry_on`: exceptions to retry; every other one leads to the dead-letter topic at once.
    - `never_retry`: exceptions among those not to retry.
    - `max_message_bytes`: most bytes of the exception's text in the headers.

    Raises ValueError and TypeError for wrong arguments.
    """

    def __init__(
        self,
        producer: AIOKafkaProducer,
        delays_ms: Sequence[int],
        *,
        retry_topic: str = "{topic}-retry-{n}",
        dead_letter_topic: str | None = "{topic}-dead-letter",
        retry_on: Iterable[type[Exception]] = (Exception,),
        never_retry: Iterable[type[Exception]] = (),
        max_message_bytes: int = 1024,
    ) -> None:
        self._producer = producer
        self._delays_ms = _delays(delays_ms)
        _check_fields("retry_topic", retry_topic, {"topic", "n"})
        if dead_letter_topic is not None:
            _check_fields("dead_letter_topic", dead_letter_topic, set())
        if not is_count(max_message_bytes):
            raise ValueError(f"max_message_bytes={max_message_bytes!r}: must not be negative")
        self._retry_topic = retry_topic
        self._dead_letter_topic = dead_letter_topic
        self._retry_on = _error_types("retry_on", retry_on)
        self._never_retry = _error_types("never_retry", never_retry)
        self._max_message_bytes = max_message_bytes
        self._pattern = _pattern_of(retry_topic)
        self._stages: dict[str, tuple[str, int]] = {}

    def topics_for(self, topic: str) -> list[str]:
        """The retry topics of `topic`, in their order."""
        return [self._name(topic, n) for n in range(1, len(self._delays_ms) + 1)]

    def dead_letter_topic_for(self, topic: str) -> str | None:
        """The dead-letter topic of `topic`; None without one."""
        name = self._dead_letter_topic
        return None if name is None else name.format(topic=topic)

    def origin_of(self, topic: str) -> tuple[str, int]:
        """(original topic, number of the retry topic); the topic itself and 0 if it is none."""
        stage = self._stages.get(topic)
        if stage is None:
            stage = self._stages[topic] = self._parse(topic)
        return stage

    def is_retry_topic(self, topic: str) -> bool:
        """Whether `topic` is one of the retry topics of some topic."""
        return self.origin_of(topic)[1] > 0

    def due_in(self, record: ConsumerRecord[Any, Any]) -> float:
        """Seconds until a record is to be tried; never more than its topic's delay."""
        _, n = self.origin_of(record.topic)
        if not n:
            return 0.0
        delay_ms = self._delays_ms[n - 1]
        info = RetryInfo.of(record)
        due = info.due if info is not None else record.timestamp + delay_ms
        return min(due - time.time() * 1000, delay_ms) / 1000

    async def send(self, record: ConsumerRecord[Any, Any], error: Exception) -> bool:
        """Send a record that failed where it belongs, until that is acknowledged. False if there is
        no such place.

        Raises what `AIOKafkaProducer.send_and_wait` raises. Cancelled, it may be sent or not.
        """
        origin, n = self.origin_of(record.topic)
        is_retried = (
            n < len(self._delays_ms)
            and isinstance(error, self._retry_on)
            and not isinstance(error, self._never_retry)
        )
        target = self._name(origin, n + 1) if is_retried else self.dead_letter_topic_for(origin)
        if target is None:
            return False
        due = int(time.time() * 1000) + self._delays_ms[n] if is_retried else -1
        info = self._describe(record, error, due)
        others = [header for header in record.headers if not header[0].startswith(_PREFIX)]
        log.log(
            logging.INFO if is_retried else logging.ERROR,
            "%s-%d@%d failed with %s: sent to %s",
            *(record.topic, record.partition, record.offset, info.exception, target),
        )
        written = await self._producer.send_and_wait(
            target, record.value, record.key, headers=[*others, *info.headers()]
        )
        if written is None:
            raise IllegalStateError("RetryTopics needs a producer that waits: not acks=0")
        return True

    def _describe(self, record: ConsumerRecord[Any, Any], error: Exception, due: int) -> RetryInfo:
        origin, n = self.origin_of(record.topic)
        first = RetryInfo.of(record) if n else None
        text = str(error).encode("utf-8", "replace")[: self._max_message_bytes]
        return RetryInfo(
            topic=origin,
            partition=record.partition if first is None else first.partition,
            offset=record.offset if first is None else first.offset,
            timestamp=record.timestamp if first is None else first.timestamp,
            attempts=n + 1,
            due=due,
            exception=f"{type(error).__module__}.{type(error).__qualname__}",
            message=text.decode("utf-8", "ignore"),
        )

    def _name(self, topic: str, n: int) -> str:
        return self._retry_topic.format(topic=topic, n=n)

    def _parse(self, topic: str) -> tuple[str, int]:
        match = self._pattern.fullmatch(topic)
        if match is None:
            return topic, 0
        n = int(match["n"])
        return (match["topic"], n) if 1 <= n <= len(self._delays_ms) else (topic, 0)


def is_count(value: object) -> bool:
    """Whether this is an integer of at least 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_error_type(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _number(text: str | None) -> int | None:
    if text is None or len(text) > _MOST_DIGITS or not re.fullmatch(r"-?[0-9]+", text):
        return None
    return int(text)


def _delays(delays_ms: Sequence[int]) -> tuple[int, ...]:
    for delay in delays_ms:
        if not is_count(delay):
            raise ValueError(f"delays_ms: {delay!r} is not a number of milliseconds")
    return tuple(delays_ms)


def _check_fields(argument: str, name: str, needed: set[str]) -> None:
    """Raise ValueError for a name of topics that lacks a field, or has one that is not known."""
    found = set(re.findall(r"\{([^{}]*)\}", name))
    if needed - found or found - {"topic", *needed} or not name:
        fields = " and ".join(f"{{{field}}}" for field in sorted(needed, reverse=True))
        raise ValueError(f"{argument}={name!r}: must have {fields or 'no field but {topic}'}")
    if len(name) > _LONGEST_NAME:
        raise ValueError(f"{argument}={name!r}: too long for the name of a topic")


def _error_types(argument: str, types: Iterable[type[Exception]]) -> ErrorTypes:
    found = tuple(types)
    for each in found:
        if not _is_error_type(each):
            raise TypeError(f"{argument}: {each!r} is not a class of exceptions")
    return found


def _pattern_of(name: str) -> re.Pattern[str]:
    escaped = re.escape(name)
    escaped = escaped.replace(re.escape("{topic}"), "(?P<topic>.+)", 1)
    escaped = escaped.replace(re.escape("{n}"), "(?P<n>[1-9][0-9]{0,3})", 1)
    escaped = escaped.replace(re.escape("{topic}"), "(?P=topic)")
    return re.compile(escaped.replace(re.escape("{n}"), "(?P=n)"))
