"""Retry topics with delays, and a dead-letter topic that says why."""

from __future__ import annotations

import asyncio
import logging
import math
import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic

import aiokafka
from aiokafka import _clock
from aiokafka._log import SubjectLog
from aiokafka._typing import KeyGiven, KeySent, ValueGiven, ValueSent
from aiokafka.errors import (
    IllegalStateError,
    InvalidRecord,
    KafkaError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
)
from aiokafka.structs import ConsumerRecord

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.parallel.flow import Flow
    from aiokafka.structs import TopicPartition

__all__ = ["Delays", "RetryInfo", "RetryTopics", "WaitingRoom"]


def size_of(record: ConsumerRecord[Any, Any]) -> int:
    """Return the bytes of key, value and headers as they were in the log."""
    size = max(record.serialized_key_size, 0) + max(record.serialized_value_size, 0)
    if record.headers:
        size += sum(len(name) + len(value or b"") for name, value in record.headers)
    return size


# -- When records of retry topics are due, and where they are until then


Batches = dict["TopicPartition", "list[ConsumerRecord[Any, Any]]"]


class Delays:
    """Holds back records that are not due. A partition is paused while records of it wait.

    Clocks of other hosts, and our own, may be wrong by hours. Two facts need none of them:

    1. At some moment of our loop's time the partition ends at an offset.
    2. What is before that offset was written before that moment, so it is due one delay after it
       at the latest, whatever its headers say.

    Owns: those ends and moments.
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        flow: Flow,
        waiting: WaitingRoom,
        retry: RetryTopics,
        max_bytes: int,
    ) -> None:
        self._consumer = consumer
        self._flow = flow
        self._waiting = waiting
        self._retry = retry
        self._max_bytes = max_bytes
        self._ends: dict[TopicPartition, tuple[int, float]] = {}

    def hold_back(self, batches: Batches, now: float) -> Batches:
        """Leave out what is not due yet."""
        retry = self._retry
        ready: Batches = {}
        for tp, records in batches.items():
            due = self._due(tp, records, now) if retry.is_retry_topic(tp.topic) else records
            if due:
                ready[tp] = due
        return ready

    def next_due(self) -> float | None:
        """Return when to call `release()` next (loop time); None if nothing waits."""
        return self._waiting.next_due()

    def release(self, now: float) -> Batches:
        """Return the held-back records that are due now."""
        due = self._waiting.take_due(now)
        for tp in due:
            if tp not in self._waiting:
                self._flow.release(tp)
        return due

    def _due(
        self, tp: TopicPartition, records: list[ConsumerRecord[Any, Any]], now: float
    ) -> list[ConsumerRecord[Any, Any]]:
        """Return the first of these records, those that are due; the rest waits."""
        # A log that is shorter now is not the one of then: it was cut, or the topic made again.
        if (self._consumer.highwater(tp) or math.inf) < self._ends.get(tp, (0, 0.0))[0]:
            del self._ends[tp]
        # Examining many records takes milliseconds: each is compared with the time by then.
        clock = asyncio.get_running_loop().time
        dues = [self._due_at(tp, record, clock()) for record in records]
        ready = 0
        if tp not in self._waiting:  # else they are behind those
            while ready < len(records) and dues[ready] <= now:
                ready += 1
        if ready < len(records):
            rest = zip(records[ready:], dues[ready:], strict=True)
            kept = ready + self._waiting.keep(tp, rest, now, self._room())
            self._flow.hold(tp)
            if kept < len(records):
                self._consumer.seek(tp, records[kept].offset)
        return records[:ready]

    def _due_at(self, tp: TopicPartition, record: ConsumerRecord[Any, Any], now: float) -> float:
        end, seen_at = self._ends.get(tp, (0, 0.0))
        if record.offset >= end:
            end = max(record.offset + 1, self._consumer.highwater(tp) or 0)
            seen_at = now
            self._ends[tp] = end, seen_at
        at_last = seen_at + self._retry.delay_for(tp.topic)
        return min(now + self._retry.due_in(record), at_last)

    def _room(self) -> int:
        """Return how many bytes one partition may keep waiting.

        All partitions together may keep as much as may be unfinished.
        """
        tps = self._consumer.assignment()
        return self._max_bytes // max(1, sum(self._retry.is_retry_topic(tp.topic) for tp in tps))


# -- Records of retry topics that were taken and are not due yet


# Records of a retry topic become due one after the other: wait for a few, at most so long, or this
# part of their delay.
_GATHER = 0.1
_GATHER_PART = 0.1

Dated = tuple["ConsumerRecord[Any, Any]", float]


class _Waiting:
    """Records of one partition, in the order of the log, with the loop time when each is due."""

    __slots__ = ("is_closed", "nbytes", "records", "wake_at")

    def __init__(self) -> None:
        self.records: deque[Dated] = deque()
        self.nbytes = 0
        self.wake_at = 0.0
        self.is_closed = False


class WaitingRoom:
    """Keeps records that are not due, so that they are not fetched again.

    Records behind one that is not due wait with it. Owns: these records. No I/O, no waiting.
    """

    def __init__(self) -> None:
        self.records = 0
        self.nbytes = 0
        self._partitions: dict[TopicPartition, _Waiting] = {}

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._partitions

    def keep(self, tp: TopicPartition, records: Iterable[Dated], now: float, room: int) -> int:
        """Keep the first of these records, as many as fit; return how many.

        They fit into `room` bytes together with those of the partition that wait already. At least
        one is kept if none waits.
        """
        waiting = self._partitions.get(tp)
        if waiting is None:
            waiting = self._partitions[tp] = _Waiting()
        count = 0
        for record, due in records:
            size = size_of(record)
            # One is kept whatever its size, or its partition would never move.
            if waiting.records and waiting.nbytes + size > room:
                break
            waiting.records.append((record, due))
            waiting.nbytes += size
            self.nbytes += size
            count += 1
        self.records += count
        _set_alarm(waiting, now)
        return count

    def next_due(self) -> float | None:
        """Return when to call `take_due()` next (loop time); None if nothing waits."""
        return min((each.wake_at for each in self._partitions.values()), default=None)

    def take_due(self, now: float) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Remove and return the records that are due."""
        taken: dict[TopicPartition, list[ConsumerRecord[Any, Any]]] = {}
        for tp, waiting in list(self._partitions.items()):
            if waiting.wake_at <= now:
                due = self._pop_due(waiting, now)
                if due:
                    taken[tp] = due
                if not waiting.records:
                    del self._partitions[tp]
        return taken

    def _pop_due(self, waiting: _Waiting, now: float) -> list[ConsumerRecord[Any, Any]]:
        due = []
        while waiting.records and waiting.records[0][1] <= now:
            record = waiting.records.popleft()[0]
            size = size_of(record)
            waiting.nbytes -= size
            self.nbytes -= size
            due.append(record)
        self.records -= len(due)
        _set_alarm(waiting, now)
        return due

    def close(self, tps: Iterable[TopicPartition]) -> None:
        """Let nothing of these partitions become due any more, but remember that it is here."""
        for tp in tps:
            waiting = self._partitions.get(tp)
            if waiting is not None:
                waiting.is_closed = True
                waiting.wake_at = math.inf

    def drop(self, tps: Iterable[TopicPartition]) -> None:
        """Forget what waits of these partitions: they are given up."""
        for tp in tps:
            waiting = self._partitions.pop(tp, None)
            if waiting is not None:
                self.records -= len(waiting.records)
                self.nbytes -= waiting.nbytes


def _set_alarm(waiting: _Waiting, now: float) -> None:
    if waiting.records and not waiting.is_closed:
        due = waiting.records[0][1]
        waiting.wake_at = due + min(_GATHER, max(0.0, due - now) * _GATHER_PART)


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
        return min(due - _clock.wall_time() * 1000, delay_ms) / 1000

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
            due = int(_clock.wall_time() * 1000) + self._delays_ms[n]
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
