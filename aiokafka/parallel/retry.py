"""Retry topics with delays, and dead-letter topics, with the reason in headers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic

import aiokafka
from aiokafka import _clock
from aiokafka._arguments import as_having, as_instance, as_int, as_list, as_names, as_text
from aiokafka._compat import timeout
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

__all__ = ["DelayedRecords", "Delays", "RetryInfo", "RetryTopics"]


def size_of(record: ConsumerRecord[Any, Any]) -> int:
    """Return the bytes of a record's key, value and headers, before deserialization."""
    size = max(record.serialized_key_size, 0) + max(record.serialized_value_size, 0)
    if record.headers:
        size += sum(len(name) + len(value or b"") for name, value in record.headers)
    return size


# -- Delays of records of retry topics


# Seconds to wait for the first offset of retry topics.
_SEEK_TIMEOUT = 1.0

Batches = dict["TopicPartition", "list[ConsumerRecord[Any, Any]]"]


class Delays:
    """Delays records until they are due. A partition is paused while it has delayed records.

    Wall clocks may be wrong by hours, on other hosts and on this one. The event loop's clock
    provides an upper bound:

    1. At some loop time, the end offset of a partition is observed.
    2. Records before that offset were written before that time. So they are due, at the latest,
       when the delay of the retry topic has passed since that time, whatever their headers say.

    Owns: the observed end offsets and their times.
    """

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        flow: Flow,
        delayed: DelayedRecords,
        retry: RetryTopics,
        max_bytes: int,
    ) -> None:
        self._consumer = consumer
        self._flow = flow
        self._delayed = delayed
        self.retry = retry
        self._max_bytes = max_bytes
        self._ends: dict[TopicPartition, tuple[int, float]] = {}

    async def start_partitions(self, assigned: Iterable[TopicPartition]) -> None:
        """In each partition of a retry topic, seek to the first record if the group has no
        committed offset, or if the record at the committed offset was deleted.

        Otherwise, `auto_offset_reset="latest"` would skip all records that are in the partition
        now. With "earliest", the consumer starts at the first record anyway.
        """
        tps = [tp for tp in assigned if self.retry.is_retry_topic(tp.topic)]
        if not tps or self._consumer.auto_offset_reset == "earliest":
            return
        found = await self._consumer.committed_offsets(tps)
        committed = {tp: offset.offset for tp, offset in found.items() if offset is not None}
        fresh = [tp for tp in tps if tp not in committed]
        # A retry topic without a leader must not hold back the other partitions: after the timeout,
        # the consumer continues the look-up in the background.
        with contextlib.suppress(asyncio.TimeoutError):
            async with timeout(_SEEK_TIMEOUT):
                if fresh:
                    await self._consumer.seek_to_beginning(*fresh)
                starts = await self._consumer.beginning_offsets(committed)
                for tp, offset in committed.items():
                    if offset < starts[tp]:
                        self._consumer.seek(tp, starts[tp])

    def hold_back(self, batches: Batches, now: float) -> Batches:
        """Return the due records at the beginning of each list, and all records of topics that are
        not retry topics. Store the other records up to the memory limit of each partition, and seek
        back to the first record that is not stored.
        """
        retry = self.retry
        ready: Batches = {}
        for tp, records in batches.items():
            due = self._due(tp, records, now) if retry.is_retry_topic(tp.topic) else records
            if due:
                ready[tp] = due
        return ready

    def next_due(self) -> float | None:
        """Return when to call `release()` next (loop time); None without delayed records."""
        return self._delayed.next_due()

    def release(self, now: float) -> Batches:
        """Return the delayed records that are due now. Resume partitions that have no more delayed
        records.
        """
        due = self._delayed.take_due(now)
        for tp in due:
            if tp not in self._delayed:
                self._flow.release(tp)
        return due

    def _due(
        self, tp: TopicPartition, records: list[ConsumerRecord[Any, Any]], now: float
    ) -> list[ConsumerRecord[Any, Any]]:
        """Return the due records at the beginning of the list. Store the other records, up to the
        memory limit, and seek back to the first record that is not stored.
        """
        # `_ends` has an end of the log that was observed earlier. If the log ends before it now,
        # the log was truncated, or the topic was recreated: discard the observed end.
        if (self._consumer.highwater(tp) or math.inf) < self._ends.get(tp, (0, 0.0))[0]:
            del self._ends[tp]
        # Examining many records takes milliseconds, so read the clock for each record.
        clock = asyncio.get_running_loop().time
        dues = [self._due_at(tp, record, clock()) for record in records]
        ready = 0
        # Delayed records of the partition come first: if there are any, no record of the list is
        # ready.
        if tp not in self._delayed:
            while ready < len(records) and dues[ready] <= now:
                ready += 1
        if ready < len(records):
            rest = zip(records[ready:], dues[ready:], strict=True)
            kept = ready + self._delayed.keep(tp, rest, now, self._max_partition_bytes())
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
        at_last = seen_at + self.retry.delay_for(tp.topic)
        return min(now + self.retry.due_in(record), at_last)

    def _max_partition_bytes(self) -> int:
        """Return the maximum bytes of a partition's delayed records: `max_bytes`, divided among the
        assigned partitions of retry topics.
        """
        tps = self._consumer.assignment()
        return self._max_bytes // max(1, sum(self.retry.is_retry_topic(tp.topic) for tp in tps))


# -- Records of retry topics that were read and are not due yet


# To release several records at once, wait after the first record is due: at most `_GATHER` seconds,
# and at most the fraction `_GATHER_PART` of the remaining delay of the first record.
_GATHER = 0.1
_GATHER_PART = 0.1

Dated = tuple["ConsumerRecord[Any, Any]", float]


class _DelayedPartition:
    """Delayed records of one partition in offset order, each with the loop time when it is due."""

    __slots__ = ("is_closed", "nbytes", "records", "wake_at")

    def __init__(self) -> None:
        self.records: deque[Dated] = deque()
        self.nbytes = 0
        self.wake_at = 0.0
        self.is_closed = False


class DelayedRecords:
    """Stores records of retry topics until they are due: otherwise they would be fetched again.

    Records after a record that is not due are stored too, to keep their order. Owns: these records.
    No I/O, no waiting.
    """

    def __init__(self) -> None:
        self.records = 0
        self.nbytes = 0
        self._partitions: dict[TopicPartition, _DelayedPartition] = {}

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._partitions

    def keep(self, tp: TopicPartition, records: Iterable[Dated], now: float, max_bytes: int) -> int:
        """Store records of a partition until its stored records have `max_bytes`; return how many
        of `records` were stored.

        The first stored record of a partition may be larger than `max_bytes`.
        """
        waiting = self._partitions.get(tp)
        if waiting is None:
            waiting = self._partitions[tp] = _DelayedPartition()
        count = 0
        for record, due in records:
            size = size_of(record)
            # Store one record of any size, or the partition would make no progress.
            if waiting.records and waiting.nbytes + size > max_bytes:
                break
            waiting.records.append((record, due))
            waiting.nbytes += size
            self.nbytes += size
            count += 1
        self.records += count
        _set_wake_time(waiting, now)
        return count

    def next_due(self) -> float | None:
        """Return when to call `take_due()` next (loop time); None without records."""
        return min((each.wake_at for each in self._partitions.values()), default=None)

    def take_due(self, now: float) -> dict[TopicPartition, list[ConsumerRecord[Any, Any]]]:
        """Remove and return the due records of partitions whose wake time (`_set_wake_time`) has
        come. A record that is not due holds back the later records of its partition.
        """
        taken: dict[TopicPartition, list[ConsumerRecord[Any, Any]]] = {}
        for tp, waiting in list(self._partitions.items()):
            if waiting.wake_at <= now:
                due = self._pop_due(waiting, now)
                if due:
                    taken[tp] = due
                if not waiting.records:
                    del self._partitions[tp]
        return taken

    def _pop_due(self, waiting: _DelayedPartition, now: float) -> list[ConsumerRecord[Any, Any]]:
        due = []
        while waiting.records and waiting.records[0][1] <= now:
            record = waiting.records.popleft()[0]
            size = size_of(record)
            waiting.nbytes -= size
            self.nbytes -= size
            due.append(record)
        self.records -= len(due)
        _set_wake_time(waiting, now)
        return due

    def close(self, tps: Iterable[TopicPartition]) -> None:
        """Release no more records of these partitions, but keep them until `drop()`."""
        for tp in tps:
            waiting = self._partitions.get(tp)
            if waiting is not None:
                waiting.is_closed = True
                waiting.wake_at = math.inf

    def drop(self, tps: Iterable[TopicPartition]) -> None:
        """Discard the records of these partitions."""
        for tp in tps:
            waiting = self._partitions.pop(tp, None)
            if waiting is not None:
                self.records -= len(waiting.records)
                self.nbytes -= waiting.nbytes


def _set_wake_time(waiting: _DelayedPartition, now: float) -> None:
    if waiting.records and not waiting.is_closed:
        due = waiting.records[0][1]
        waiting.wake_at = due + min(_GATHER, max(0.0, due - now) * _GATHER_PART)


log = logging.getLogger("aiokafka.parallel")

Header = tuple[str, "bytes | None"]
ErrorTypes = tuple[type[Exception], ...]

_PREFIX = "retry."
_LONGEST_NAME = 249  # Kafka's limit for the name of a topic
_MOST_DIGITS = 20
# Errors that may be caused by the copy of a failed record for a retry or dead-letter topic: if the
# send fails with one of them, a smaller copy may succeed.
_COPY_ERRORS = (MessageSizeTooLargeError, RecordListTooLargeError, InvalidRecord)


@dataclass(frozen=True)
class RetryInfo:
    """Why and how often a record failed: the headers of records in retry and dead-letter topics.

    Each field is a header named `retry.` and the field's name, as UTF-8 text. If a name occurs
    several times, the last header counts.
    """

    topic: str
    """The original topic of the record."""
    partition: int
    offset: int
    timestamp: int
    """The timestamp of the original record, in milliseconds since 1970."""
    attempts: int
    """Number of times that the record was processed."""
    due: int
    """When to retry the record, in milliseconds since 1970; -1 for a dead letter."""
    exception: str
    """Class of the last exception, with its module."""
    message: str
    """Text of the last exception, cut to `max_message_bytes`."""
    omitted: str = ""
    """Omitted parts of a record that was too large for the dead-letter topic: "value", "value,
    headers" or "key, value, headers". Without omitted parts there is no such header."""

    @classmethod
    def of(cls, record: ConsumerRecord[Any, Any]) -> RetryInfo | None:
        """Decode the headers of a record; return None if they are missing or invalid."""
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
        """Return this information as headers."""
        names = (*_NUMBERS, *_TEXTS, _OMITTED) if self.omitted else (*_NUMBERS, *_TEXTS)
        return [(_PREFIX + name, str(getattr(self, name)).encode()) for name in names]


_NUMBERS = ("partition", "offset", "timestamp", "attempts", "due")
_TEXTS = ("topic", "exception", "message")
_NAMES = {*_NUMBERS, *_TEXTS}
_OMITTED = "omitted"


class RetryTopics(Generic[KeySent, ValueSent]):
    """Sends failed records to retry topics and dead-letter topics. Pass this object to
    `ParallelConsumer(retry=...)` or, for share groups, to
    `AIOKafkaShareConsumer.process(retry=...)`.

    The first failure of a record sends it to the first retry topic, where it waits for the first of
    `delays_ms` before it is processed again; the next failure sends it to the second topic, and so
    on. After the last retry, or at once for an exception that is not retried, it is sent to the
    dead-letter topic. The failed record is finished when the broker has acknowledged its copy. If
    the application crashes after that, but before the offset is committed or the record is
    accepted, the record is processed again: retries are at-least-once.

    - `producer`: a started producer, which the application stops. It must not have `acks=0`. The
      producer sends key and value as the handler got them: a consumer with deserializers needs a
      producer with the inverse serializers.
    - `delays_ms`: the delay of each retry topic, in milliseconds.
    - `retry_topic`: name of the retry topics, with the fields `{topic}` and `{n}`, which starts at
      1.
    - `dead_letter_topic`: name of the dead-letter topic, which may have the field `{topic}`. None:
      there is no dead-letter topic. An exception after the last retry, or an exception that is not
      retried, then ends the processing of a ParallelConsumer; a share consumer releases the record,
      or rejects the record if the exception is RejectRecord.
    - `retry_on`: exceptions to retry; after other exceptions, the record is sent to the dead-letter
      topic at once.
    - `never_retry`: exceptions that are not retried, although `retry_on` includes them.
      RejectRecord is never retried.
    - `max_message_bytes`: maximum bytes of the exception's text in the headers.

    If the broker rejects a copy, or the copy is too large, smaller copies are sent, in this order:

    1. to the same topic, without the text of the exception;
    2. to the dead-letter topic, whole, and then without the text of the exception;
    3. to the dead-letter topic without the value, then also without the headers, then also without
       the key. The original topic still has these parts.

    If all copies are rejected, the processing ends.

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
        self._producer = as_having("producer", producer, "send", "an AIOKafkaProducer")
        self._log = SubjectLog(log, f"RetryTopics of {producer!r}")
        self._delays_ms = _delays(delays_ms)
        _check_fields("retry_topic", retry_topic, {"topic", "n"})
        if dead_letter_topic is not None:
            _check_fields("dead_letter_topic", dead_letter_topic, set())
            _check_distinct(dead_letter_topic, retry_topic, len(self._delays_ms))
        self._retry_topic = retry_topic
        self._dead_letter_topic = dead_letter_topic
        self._retry_on = _error_types("retry_on", retry_on)
        self._never_retry = _error_types("never_retry", never_retry)
        self._max_message_bytes = as_int("max_message_bytes", max_message_bytes, 0)
        self._pattern = _pattern_of(retry_topic)
        self._dead_pattern = _pattern_of(dead_letter_topic or "")
        self._stages: dict[str, tuple[str, int]] = {}
        self.sent: dict[str, SentCounts] = {}
        """Counts of records sent to retry and dead-letter topics, by the original topic."""

    def topics_for(self, topic: str) -> list[str]:
        """Return the retry topics of `topic` in order."""
        topic = as_text("topic", topic)
        return [self._name(topic, n) for n in range(1, len(self._delays_ms) + 1)]

    def dead_letter_topic_for(self, topic: str) -> str | None:
        """Return the dead-letter topic of `topic`; None without one."""
        name = self._dead_letter_topic
        return None if name is None else name.format(topic=as_text("topic", topic))

    def with_retry_topics(self, topics: Iterable[str]) -> list[str]:
        """Return `topics` and the retry topics of each of them, without duplicates.

        Raises ValueError if `topics` has a topic and also its dead-letter topic.
        """
        names = as_names("topics", topics)
        for name in names:
            dead = self.dead_letter_topic_for(self.origin_of(name)[0])
            if dead in names:
                raise ValueError(
                    f"topic {dead!r} is the dead-letter topic of {name!r}: it cannot be read here "
                    "as well"
                )
        origins = [name for name in names if not self.is_retry_topic(name)]
        retries = [each for name in origins for each in self.topics_for(name)]
        return list(dict.fromkeys(names + retries))

    def origin_of(self, topic: str) -> tuple[str, int]:
        """Return (original topic, number of the retry topic); (`topic`, 0) for any other topic."""
        try:
            stage = self._stages.get(topic)
        except TypeError:
            stage = None  # not hashable: `as_text` raises the error
        if stage is None:
            stage = self._stages[topic] = self._parse(as_text("topic", topic))
        return stage

    def is_retry_topic(self, topic: str) -> bool:
        """Return whether `topic` is one of the retry topics of some topic."""
        return self.origin_of(topic)[1] > 0

    def is_dead_letter_topic(self, topic: str) -> bool:
        """Return whether `topic` is the dead-letter topic of some topic."""
        return self._dead_pattern.fullmatch(as_text("topic", topic)) is not None

    def delay_for(self, topic: str) -> float:
        """Return the seconds that records of a retry topic wait; 0 for any other topic."""
        _, n = self.origin_of(topic)
        return self._delays_ms[n - 1] / 1000 if n else 0.0

    def due_in(self, record: ConsumerRecord[Any, Any]) -> float:
        """Return the seconds until a record of a retry topic is due, at most the delay of the
        topic; negative if the record is overdue. Return 0 for a record of another topic.
        """
        try:
            _, n = self.origin_of(record.topic)
        except AttributeError:
            _check_record(record)
            raise
        if not n:
            return 0.0
        delay_ms = self._delays_ms[n - 1]
        info = RetryInfo.of(record)
        due = info.due if info is not None else record.timestamp + delay_ms
        return min(due - _clock.wall_time() * 1000, delay_ms) / 1000

    async def send(self, record: ConsumerRecord[Any, Any], error: Exception) -> bool:
        """Send a failed record to its retry or dead-letter topic, and wait for the acknowledgement.

        Returns True after the acknowledgement, False if there is no such topic. Raises the errors
        of `AIOKafkaProducer.send_and_wait`; if all copies are rejected, the error of the first
        copy. After a cancellation, the copy may have been sent.
        """
        _check_record(record)
        as_instance("error", error, BaseException)
        origin, n = self.origin_of(record.topic)
        is_retried = (
            n < len(self._delays_ms)
            and isinstance(error, self._retry_on)
            and not isinstance(error, (*self._never_retry, aiokafka.RejectRecord))
        )
        dead = self.dead_letter_topic_for(origin)
        target = self._name(origin, n + 1) if is_retried else dead
        if target is None:
            return False
        info = self._describe(record, error)
        copies = [_full_copy(record, self._headers_without_info(record), target, info)]
        if is_retried:
            due = int(_clock.wall_time() * 1000) + self._delays_ms[n]
            copies[0] = replace(copies[0], info=replace(info, due=due))
        copies += _smaller_copies(record, self._headers_without_info(record), copies[0], dead, info)
        copy = await self._send_first(copies, record)
        counts = self.sent.setdefault(origin, SentCounts())
        if copy.info.due < 0:
            counts.dead += 1
        else:
            counts.retried += 1
        return True

    async def send_back(self, record: ConsumerRecord[Any, Any]) -> None:
        """Send a record of a retry topic, which is not due yet, to the end of its topic, and wait
        for the acknowledgement. The copy is due at the same time, and has the same headers.

        In a share group, each delivery of a waiting record counts: after the delivery limit the
        broker would archive the record, although it was never due. The deliveries of a copy are
        counted anew.

        Raises the errors of `AIOKafkaProducer.send_and_wait`. After a cancellation, the copy may
        have been sent.
        """
        _check_record(record)
        written = await self._send_alone(
            record, record.topic, list(record.headers), record.partition, record.timestamp
        )
        _check_written(written)

    async def _send_first(self, copies: Sequence[_Copy], record: ConsumerRecord[Any, Any]) -> _Copy:
        """Send the copies one by one until the broker accepts one, and return that copy.

        Raises the error of the first copy if all copies are too large or invalid. Raises other
        errors, such as timeouts, at once.
        """
        try:
            await self._send(copies[0], record)
            return copies[0]
        except _COPY_ERRORS as refused:
            failure = refused
        if isinstance(failure, InvalidRecord):
            # The broker rejected the whole batch, maybe because of another record: try this copy
            # again, alone in a batch.
            copies = [copies[0], *copies]
        for copy in copies[1:]:
            try:
                await self._send(copy, record, is_alone=True)
                return copy
            except Exception as error:
                # The serializer may fail for a copy without a value.
                is_refused = copy.info.omitted and not isinstance(error, KafkaError)
                if not isinstance(error, _COPY_ERRORS) and not is_refused:
                    raise
                self._log.warning(
                    "The copy of a record was not accepted for topic %s: %s",
                    copy.topic,
                    error,
                    topic=copy.topic,
                )
        raise failure

    async def _send(
        self, copy: _Copy, record: ConsumerRecord[Any, Any], *, is_alone: bool = False
    ) -> None:
        info = copy.info
        headers = [*copy.headers, *info.headers()]
        if is_alone or (copy.key is None and copy.value is None):
            written = await self._send_alone(copy, copy.topic, headers, record.partition)
        else:
            written = await self._producer.send_and_wait(
                copy.topic, copy.value, copy.key, headers=headers
            )
        _check_written(written)
        log.log(
            logging.ERROR if info.due < 0 else logging.INFO,
            "%s-%d@%d failed with %s: sent to %s%s",
            *(record.topic, record.partition, record.offset, info.exception, copy.topic),
            f" without its {info.omitted}" if info.omitted else "",
        )

    async def _send_alone(
        self,
        copy: _Copy | ConsumerRecord[Any, Any],
        topic: str,
        headers: list[Header],
        partition: int,
        timestamp: int | None = None,
    ) -> object:
        """Send a copy alone in a batch. Unlike `send()`, this works for a record that has neither
        key nor value.
        """
        producer = self._producer
        numbers = sorted(await producer.partitions_for(topic))
        batch = producer.create_batch(topic=topic)
        await batch.append_async(
            timestamp=timestamp, key=copy.key, value=copy.value, headers=headers
        )
        batch.close()
        number = numbers[partition % len(numbers)]
        return await (await producer.send_batch(batch, topic, partition=number))

    def _headers_without_info(self, record: ConsumerRecord[Any, Any]) -> list[Header]:
        """Return the record's headers; for a record of a retry topic, without its RetryInfo."""
        headers = list(record.headers)
        if self.is_retry_topic(record.topic) and RetryInfo.of(record) is not None:
            for name in (*_NAMES, _OMITTED):
                ours = [i for i, header in enumerate(headers) if header[0] == _PREFIX + name]
                if ours:
                    del headers[ours[-1]]
        return headers

    def _describe(self, record: ConsumerRecord[Any, Any], error: Exception) -> RetryInfo:
        """Return the RetryInfo of a dead letter; `send` sets `due` for a retry."""
        _check_record(record)
        as_instance("error", error, BaseException)
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
    """Counts of the failed records of one original topic."""

    retried: int = 0
    """Records sent to a retry topic."""
    dead: int = 0
    """Records sent to the dead-letter topic."""


@dataclass(frozen=True)
class _Copy:
    """A copy of a failed record for a retry or dead-letter topic."""

    topic: str
    key: Any
    value: Any
    headers: Sequence[Header]
    info: RetryInfo


def _check_written(written: object) -> None:
    if written is None:
        raise IllegalStateError("RetryTopics needs a producer with acks='all' or 1, not acks=0")


def _full_copy(
    record: ConsumerRecord[Any, Any], headers: Sequence[Header], topic: str, info: RetryInfo
) -> _Copy:
    return _Copy(topic, record.key, record.value, headers, info)


def _smaller_copies(
    record: ConsumerRecord[Any, Any],
    headers: Sequence[Header],
    first: _Copy,
    dead: str | None,
    info: RetryInfo,
) -> list[_Copy]:
    """Return the copies to send if `first` is rejected, in the order that RetryTopics documents."""
    without_message = replace(first, info=replace(first.info, message=""))
    if dead is None:
        return [without_message]
    copies = [without_message]
    if first.topic != dead:
        whole = _full_copy(record, headers, dead, info)
        copies += [whole, replace(whole, info=replace(info, message=""))]
    for key, kept, omitted in (
        (record.key, headers, "value"),
        (record.key, (), "value, headers"),
        (None, (), "key, value, headers"),
    ):
        copies.append(_Copy(dead, key, None, kept, replace(info, omitted=omitted)))
    return copies


def _text_of(error: Exception) -> str:
    """Return the text of an exception of the application; if its `__str__` fails, a text that says
    so.
    """
    try:
        return str(error)
    except Exception as failure:
        return f"no text: its __str__ raised {type(failure).__name__}"


def _check_record(record: Any) -> None:
    as_having("record", record, "topic", "a ConsumerRecord")


def _is_error_type(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _number(text: str | None) -> int | None:
    if text is None or len(text) > _MOST_DIGITS or not re.fullmatch(r"-?[0-9]+", text):
        return None
    return int(text)


def _delays(delays_ms: Iterable[int]) -> tuple[int, ...]:
    delays = as_list("delays_ms", delays_ms, "numbers of milliseconds")
    return tuple(as_int("delays_ms", delay, 0) for delay in delays)


def _check_fields(argument: str, name: str, needed: set[str]) -> None:
    """Raise ValueError for a topic name that lacks a field, has an unknown field, is empty or is
    too long.
    """
    found = set(re.findall(r"\{([^{}]*)\}", as_text(argument, name)))
    if needed - found or found - {"topic", *needed} or not name:
        fields = " and ".join(f"{{{field}}}" for field in sorted(needed, reverse=True))
        raise ValueError(f"{argument}={name!r}: must have {fields or 'no field but {topic}'}")
    if len(name) > _LONGEST_NAME:
        raise ValueError(f"{argument}={name!r}: too long for the name of a topic")


def _check_distinct(dead_letter_topic: str, retry_topic: str, count: int) -> None:
    """Raise ValueError if the dead-letter topic is the original topic or a retry topic."""
    retries = {retry_topic.replace("{n}", str(n)) for n in range(1, count + 1)}
    if dead_letter_topic == "{topic}" or dead_letter_topic in retries:
        raise ValueError(
            f"dead_letter_topic={dead_letter_topic!r}: must be another topic than those that are "
            "read"
        )


def _error_types(argument: str, types: Iterable[type[Exception]]) -> ErrorTypes:
    found = tuple(as_list(argument, types, "classes of exceptions"))
    for each in found:
        if not _is_error_type(each):
            raise TypeError(f"{argument}: {each!r} is not an exception class")
    return found


def _pattern_of(name: str) -> re.Pattern[str]:
    escaped = re.escape(name)
    escaped = escaped.replace(re.escape("{topic}"), "(?P<topic>.+)", 1)
    escaped = escaped.replace(re.escape("{n}"), "(?P<n>[1-9][0-9]{0,3})", 1)
    escaped = escaped.replace(re.escape("{topic}"), "(?P=topic)")
    return re.compile(escaped.replace(re.escape("{n}"), "(?P=n)"))
