"""Retry topics with delays, and a dead-letter topic that says why."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

import aiokafka
from aiokafka import _seams
from aiokafka._log import SubjectLog
from aiokafka._typevars import KeyGiven, KeySent, ValueGiven, ValueSent
from aiokafka.errors import (
    IllegalStateError,
    InvalidRecord,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)
from aiokafka.structs import ConsumerRecord

__all__ = ["RetryInfo", "RetryTopics"]

log = logging.getLogger("aiokafka.parallel")

Header = tuple[str, "bytes | None"]
ErrorTypes = tuple[type[Exception], ...]

_PREFIX = "retry."
_LONGEST_NAME = 249  # Kafka's limit for topics
_MOST_DIGITS = 20
# The copy itself is at fault, so sending it again will not help.
_UNFIT = (MessageSizeTooLargeError, RecordListTooLargeError, InvalidRecord)


@dataclass(frozen=True)
class RetryInfo:
    """Why and how often a record failed: the headers of records in retry and dead-letter topics.

    Each is a header of its own, `retry.` and the name, as text in UTF-8. Of several headers with
    one of these names the last one counts.
    """

    topic: str
    """Where the record came from."""
    partition: int
    offset: int
    timestamp: int
    """The timestamp of the original, in milliseconds since 1970."""
    attempts: int
    """How often it was processed."""
    due: int
    """When to retry it, in milliseconds since 1970; -1 for a dead letter."""
    exception: str
    """Class of what the last attempt raised, with its module."""
    message: str
    """Text of that exception, cut to `max_message_bytes`."""
    omitted: str = ""
    """What of the record did not fit into the dead-letter topic and was left out: "value", "value,
    headers" or "key, value, headers". Then no header has this name otherwise."""

    @classmethod
    def of(cls, record: ConsumerRecord[Any, Any]) -> RetryInfo | None:
        """Read the headers of a record; return None if they are missing or make no sense."""
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
        return cls(**{name: values[name] for name in _NAMES}, omitted=values.get(_OMITTED, ""))

    def headers(self) -> list[Header]:
        """Return the headers of a record with this information."""
        names = (*_NUMBERS, *_TEXTS, _OMITTED) if self.omitted else (*_NUMBERS, *_TEXTS)
        return [(_PREFIX + name, str(getattr(self, name)).encode()) for name in names]


_NUMBERS = ("partition", "offset", "timestamp", "attempts", "due")
_TEXTS = ("topic", "exception", "message")
_NAMES = {*_NUMBERS, *_TEXTS}
_OMITTED = "omitted"


class RetryTopics(Generic[KeySent, ValueSent]):
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

    A copy that is too large, or that the broker refuses as it is, is sent without the exception's
    text, then to the dead-letter topic, there without what does not fit: it can be looked up in
    its topic. Only when that is refused, too, or there is no such topic, the processing ends.

    Raises ValueError and TypeError for wrong arguments.
    """

    def __init__(
        self: RetryTopics[KeyGiven | None, ValueGiven | None],
        producer: aiokafka.AIOKafkaProducer[KeyGiven, ValueGiven],
        delays_ms: Sequence[int],
        *,
        retry_topic: str = "{topic}-retry-{n}",
        dead_letter_topic: str | None = "{topic}-dead-letter",
        retry_on: Iterable[type[Exception]] = (Exception,),
        never_retry: Iterable[type[Exception]] = (),
        max_message_bytes: int = 1024,
    ) -> None:
        self._producer = producer
        self._log = SubjectLog(log, f"RetryTopics of {producer!r}")
        self._delays_ms = _delays(delays_ms)
        _check_fields("retry_topic", retry_topic, {"topic", "n"})
        if dead_letter_topic is not None:
            _check_fields("dead_letter_topic", dead_letter_topic, set())
            _check_apart(dead_letter_topic, retry_topic, len(self._delays_ms))
        if not is_count(max_message_bytes):
            raise ValueError(f"max_message_bytes={max_message_bytes!r}: must not be negative")
        self._retry_topic = retry_topic
        self._dead_letter_topic = dead_letter_topic
        self._retry_on = _error_types("retry_on", retry_on)
        self._never_retry = _error_types("never_retry", never_retry)
        self._max_message_bytes = max_message_bytes
        self._pattern = _pattern_of(retry_topic)
        self._dead_pattern = _pattern_of(dead_letter_topic or "")
        self._stages: dict[str, tuple[str, int]] = {}
        self.sent: dict[str, SentCounts] = {}
        """How many records were sent to retry and dead-letter topics, by the original topic."""

    def topics_for(self, topic: str) -> list[str]:
        """Return the retry topics of `topic`, in their order."""
        return [self._name(topic, n) for n in range(1, len(self._delays_ms) + 1)]

    def dead_letter_topic_for(self, topic: str) -> str | None:
        """Return the dead-letter topic of `topic`; None without one."""
        name = self._dead_letter_topic
        return None if name is None else name.format(topic=topic)

    def origin_of(self, topic: str) -> tuple[str, int]:
        """Return (original topic, number of the retry topic); (`topic`, 0) for any other topic."""
        stage = self._stages.get(topic)
        if stage is None:
            stage = self._stages[topic] = self._parse(topic)
        return stage

    def is_retry_topic(self, topic: str) -> bool:
        """Return whether `topic` is one of the retry topics of some topic."""
        return self.origin_of(topic)[1] > 0

    def is_dead_letter_topic(self, topic: str) -> bool:
        """Return whether `topic` is the dead-letter topic of some topic."""
        return self._dead_pattern.fullmatch(topic) is not None

    def delay_for(self, topic: str) -> float:
        """Return the seconds that records of a retry topic wait; 0 for any other topic."""
        _, n = self.origin_of(topic)
        return self._delays_ms[n - 1] / 1000 if n else 0.0

    def due_in(self, record: ConsumerRecord[Any, Any]) -> float:
        """Return the seconds until a record is due; never more than its topic's delay."""
        _, n = self.origin_of(record.topic)
        if not n:
            return 0.0
        delay_ms = self._delays_ms[n - 1]
        info = RetryInfo.of(record)
        due = info.due if info is not None else record.timestamp + delay_ms
        return min(due - _seams.wall_time() * 1000, delay_ms) / 1000

    async def send(self, record: ConsumerRecord[Any, Any], error: Exception) -> bool:
        """Send a failed record to its retry or dead-letter topic, until that is acknowledged.

        Returns False if there is no such topic. Raises what `AIOKafkaProducer.send_and_wait` raises
        for the first copy that it tried. If cancelled, the copy may be sent or not.
        """
        origin, n = self.origin_of(record.topic)
        is_retried = (
            n < len(self._delays_ms)
            and isinstance(error, self._retry_on)
            and not isinstance(error, self._never_retry)
        )
        dead = self.dead_letter_topic_for(origin)
        target = self._name(origin, n + 1) if is_retried else dead
        if target is None:
            return False
        info = self._describe(record, error)
        copies = [_whole(record, self._others(record), target, info)]
        if is_retried:
            due = int(_seams.wall_time() * 1000) + self._delays_ms[n]
            copies[0] = replace(copies[0], info=replace(info, due=due))
        copies += _smaller(record, self._others(record), copies[0], dead, info)
        copy = await self._send_first(copies, record)
        counts = self.sent.setdefault(origin, SentCounts())
        if copy.info.due < 0:
            counts.dead += 1
        else:
            counts.retried += 1
        return True

    async def _send_first(self, copies: Sequence[_Copy], record: ConsumerRecord[Any, Any]) -> _Copy:
        """Send the first of these copies that is not refused, and return it. Raises why the first
        one was refused."""
        try:
            await self._send(copies[0], record)
            return copies[0]
        except _UNFIT as refused:
            failure = refused
        if isinstance(failure, InvalidRecord):
            # A broker refuses a batch because of one of its records: this record may be sound.
            copies = [copies[0], *copies]
        for copy in copies[1:]:
            try:
                await self._send(copy, record, is_alone=True)
                return copy
            except Exception as error:
                # A serializer, too, may refuse a copy without a value.
                is_refused = copy.info.omitted and not isinstance(error, KafkaError)
                if not isinstance(error, _UNFIT) and not is_refused:
                    raise
                self._log.warning(
                    "A copy for %s is refused: %s", copy.topic, error, topic=copy.topic
                )
        raise failure

    async def _send(
        self, copy: _Copy, record: ConsumerRecord[Any, Any], *, is_alone: bool = False
    ) -> None:
        info = copy.info
        headers = [*copy.headers, *info.headers()]
        if is_alone or (copy.key is None and copy.value is None):
            written = await self._send_alone(copy, headers, record.partition)
        else:
            written = await self._producer.send_and_wait(
                copy.topic, copy.value, copy.key, headers=headers
            )
        if written is None:
            raise IllegalStateError("RetryTopics needs a producer that waits: not acks=0")
        log.log(
            logging.ERROR if info.due < 0 else logging.INFO,
            "%s-%d@%d failed with %s: sent to %s%s",
            *(record.topic, record.partition, record.offset, info.exception, copy.topic),
            f" without its {info.omitted}" if info.omitted else "",
        )

    async def _send_alone(self, copy: _Copy, headers: list[Header], partition: int) -> object:
        """Send a copy in a batch of its own, which also takes records without key and value."""
        producer = self._producer
        numbers = sorted(await producer.partitions_for(copy.topic))
        batch = producer.create_batch()
        batch.append(timestamp=None, key=copy.key, value=copy.value, headers=headers)
        batch.close()
        number = numbers[partition % len(numbers)]
        return await (await producer.send_batch(batch, copy.topic, partition=number))

    def _others(self, record: ConsumerRecord[Any, Any]) -> list[Header]:
        """Return the headers that the record had before it came to a retry topic."""
        headers = list(record.headers)
        if self.is_retry_topic(record.topic) and RetryInfo.of(record) is not None:
            for name in (*_NAMES, _OMITTED):
                ours = [i for i, header in enumerate(headers) if header[0] == _PREFIX + name]
                if ours:
                    del headers[ours[-1]]
        return headers

    def _describe(self, record: ConsumerRecord[Any, Any], error: Exception) -> RetryInfo:
        """Return the headers of a dead letter."""
        origin, n = self.origin_of(record.topic)
        first = RetryInfo.of(record) if n else None
        text = _text_of(error).encode("utf-8", "replace")[: self._max_message_bytes]
        return RetryInfo(
            topic=origin,
            partition=record.partition if first is None else first.partition,
            offset=record.offset if first is None else first.offset,
            timestamp=record.timestamp if first is None else first.timestamp,
            attempts=n + 1,
            due=-1,
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


@dataclass
class SentCounts:
    """Records of one topic that failed."""

    retried: int = 0
    """Sent to a retry topic."""
    dead: int = 0
    """Sent to the dead-letter topic."""


@dataclass(frozen=True)
class _Copy:
    """What is sent of a failed record."""

    topic: str
    key: Any
    value: Any
    headers: Sequence[Header]
    info: RetryInfo


def _whole(
    record: ConsumerRecord[Any, Any], headers: Sequence[Header], topic: str, info: RetryInfo
) -> _Copy:
    return _Copy(topic, record.key, record.value, headers, info)


def _smaller(
    record: ConsumerRecord[Any, Any],
    headers: Sequence[Header],
    first: _Copy,
    dead: str | None,
    info: RetryInfo,
) -> list[_Copy]:
    """Return what to send if `first` does not fit, one after the other."""
    brief = replace(first, info=replace(first.info, message=""))
    if dead is None:
        return [brief]
    copies = [brief]
    if first.topic != dead:
        whole = _whole(record, headers, dead, info)
        copies += [whole, replace(whole, info=replace(info, message=""))]
    for key, kept, omitted in (
        (record.key, headers, "value"),
        (record.key, (), "value, headers"),
        (None, (), "key, value, headers"),
    ):
        copies.append(_Copy(dead, key, None, kept, replace(info, omitted=omitted)))
    return copies


def _text_of(error: Exception) -> str:
    """Return the text of an exception, which is the application's, as its `__str__` is."""
    try:
        return str(error)
    except Exception as failure:
        return f"no text: its __str__ raised {type(failure).__name__}"


def is_count(value: object) -> bool:
    """Return whether this is an integer of at least 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_error_type(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _number(text: str | None) -> int | None:
    if text is None or len(text) > _MOST_DIGITS or not re.fullmatch(r"-?[0-9]+", text):
        return None
    return int(text)


def _delays(delays_ms: Iterable[int]) -> tuple[int, ...]:
    found = tuple(delays_ms)  # once: it may be an iterator
    for delay in found:
        if not is_count(delay):
            raise ValueError(f"delays_ms: {delay!r} is not a number of milliseconds")
    return found


def _check_fields(argument: str, name: str, needed: set[str]) -> None:
    """Raise ValueError for a topic name that lacks a field, or has an unknown one."""
    found = set(re.findall(r"\{([^{}]*)\}", name))
    if needed - found or found - {"topic", *needed} or not name:
        fields = " and ".join(f"{{{field}}}" for field in sorted(needed, reverse=True))
        raise ValueError(f"{argument}={name!r}: must have {fields or 'no field but {topic}'}")
    if len(name) > _LONGEST_NAME:
        raise ValueError(f"{argument}={name!r}: too long for the name of a topic")


def _check_apart(dead_letter_topic: str, retry_topic: str, count: int) -> None:
    """Raise ValueError if dead letters would be read, and so sent, again and again."""
    retries = {retry_topic.replace("{n}", str(n)) for n in range(1, count + 1)}
    if dead_letter_topic == "{topic}" or dead_letter_topic in retries:
        raise ValueError(
            f"dead_letter_topic={dead_letter_topic!r}: must be another topic than those that are "
            "read"
        )


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
