"""A compacted topic as a table: the latest value of every key, and a stream of changes.

This module uses only the public API of the consumer.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, overload

import aiokafka
from aiokafka._arguments import as_int
from aiokafka._compat import timeout_at
from aiokafka._log import SubjectLog
from aiokafka._serialization import ContextDeserializer, adapt_deserializer
from aiokafka._subject import Subject
from aiokafka._tasks import Signal, TaskOwner
from aiokafka._typing import MYPY, Deserializer, Self, Unpack, later
from aiokafka.errors import (
    ConsumerStoppedError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    renewed,
)
from aiokafka.structs import ConsumerRecord, RecordMetadata, TopicPartition

# The types of keys and values. Unlike those of a consumer, they are never None.
if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from aiokafka.health import ConsumerHealth
    from aiokafka.options import ConsumerOptions

    TableKey = TypeVar("TableKey", bound=Any, default=bytes)
    TableValue = TypeVar("TableValue", bound=Any, default=bytes)

    def as_it_is(data: bytes) -> bytes:
        """The default deserializer: return the bytes."""
else:
    from typing import TypeVar

    TableKey = TypeVar("TableKey")
    TableValue = TypeVar("TableValue")
    as_it_is = None
    ConsumerHealth = later("aiokafka.health.ConsumerHealth")
    ConsumerOptions = later("aiokafka.options.ConsumerOptions")

__all__ = [
    "Change",
    "ChangeStream",
    "CompactedTable",
    "SlowSubscriberError",
    "TableHealth",
    "TableRecordError",
    "TableSnapshot",
    "TableTooLargeError",
]

log = logging.getLogger("aiokafka.tables")

_MEBIBYTE = 1024 * 1024
# Maximum number of records that one call of `getmany()` returns, and that are then applied without
# letting other tasks run.
_BATCH = 500
# Milliseconds that a call of `getmany()` waits: `_AWAITED_MS` if the previous call returned nothing
# and tasks wait for progress, else `_IDLE_MS`. The waits are short, because the last record may be
# followed by transaction markers: a call does not return when the position passes a marker, so the
# positions are checked after each call.
_IDLE_MS = 200
_AWAITED_MS = 50
# Seconds after which end offsets are looked up again, if a table does not reach them.
_LOOK_AGAIN = 5.0
# Seconds after which a partition that is missing in the metadata is removed.
_ABSENT = 5.0
# Seconds to wait after a retriable error.
_RETRY = 0.2
# Seconds to wait after the position of a partition was lost, before the next records are read.
_PAUSE = 0.02
_CLOSE_TIMEOUT = 1.0
# Options that a table sets itself.
_FIXED: dict[str, Any] = {
    "group_id": None,
    "auto_offset_reset": "none",
    "enable_auto_commit": False,
}


class TableTooLargeError(KafkaError):
    """The keys and values of a table have more bytes than its `max_bytes`."""


class TableRecordError(KafkaError):
    """A record has no key, so it cannot be an entry of a table. Brokers reject such records in
    compacted topics."""


class SlowSubscriberError(KafkaError):
    """A subscriber has read too slowly, so later changes were dropped. Begin again with
    `snapshot_and_changes()`."""


@dataclass(frozen=True)
class Change(Generic[TableKey, TableValue]):
    """A change of an entry of a table."""

    key: TableKey
    old: TableValue | None
    """The value before, None if the table did not have the key."""

    new: TableValue | None
    """The value after, None if the key was removed."""

    record: ConsumerRecord[TableKey, TableValue] | None
    """The record of the change. None if a partition was read again and did not have the key any
    more."""


@dataclass(frozen=True)
class TableHealth:
    """The health of a table at one moment."""

    state: str
    """"not started", "starting", "started", "stopping", "stopped" or "failed"."""

    keys: int
    nbytes: int
    """Bytes of the serialized keys and values."""

    lag: int | None
    """Records between the table and the end of the topic, as of the last fetches; None if unknown
    for a partition."""

    loading: tuple[int, ...]
    """The partitions that are being read from the beginning."""

    rereads: int
    """How often a partition was read again, because its log was truncated or its topic recreated.
    """

    subscribers: int
    last_error: str | None
    """The text of the last error of the background task."""

    consumer: ConsumerHealth

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as JSON data."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {**plain, "loading": list(self.loading), "consumer": self.consumer.as_dict()}


class TableSnapshot(Mapping[TableKey, TableValue]):
    """The entries of a table at one moment: an immutable mapping."""

    def __init__(
        self, values: dict[TableKey, TableValue], offsets: dict[TopicPartition, int]
    ) -> None:
        self._values = values
        self.offsets: Mapping[TopicPartition, int] = MappingProxyType(offsets)
        """By partition, the offset of the first record that is not in the snapshot."""

    def __getitem__(self, key: TableKey) -> TableValue:
        return self._values[key]

    def __iter__(self) -> Iterator[TableKey]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"<TableSnapshot of {len(self._values)} keys>"


class ChangeStream(Generic[TableKey, TableValue]):
    """An async iterator over the changes of a table, for one subscriber: the result of
    `CompactedTable.changes()`.

    Changes wait in memory until the subscriber reads them, up to the limits of `changes()`. If a
    limit is exceeded, the subscriber gets the changes that are in memory, and then
    SlowSubscriberError.

    Owns: the changes that were not read yet.
    """

    def __init__(self, name: str, max_records: int, max_bytes: int) -> None:
        self.name = name
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._queue: deque[tuple[Change[TableKey, TableValue], int]] = deque()
        self._nbytes = 0
        self._is_ended = False
        self._failure: BaseException | None = None
        self._arrived = asyncio.Event()

    @property
    def pending(self) -> int:
        """Number of changes that were not read yet."""
        return len(self._queue)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change[TableKey, TableValue]:
        """Return the next change; wait for it without limit. A cancelled call loses no change.

        The iteration ends after `aclose()`, and when the table is stopped. Raises
        SlowSubscriberError, and the error that has ended the table.
        """
        while not self._queue:
            if self._failure is not None:
                raise renewed(self._failure) from self._failure
            if self._is_ended:
                raise StopAsyncIteration
            self._arrived.clear()
            await self._arrived.wait()
        change, nbytes = self._queue.popleft()
        self._nbytes -= nbytes
        return change

    async def aclose(self) -> None:
        """Drop the unread changes, and end the iteration."""
        self._queue.clear()
        self._failure = None
        self._end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        state = "ended" if self._is_ended else "open"
        return f"<ChangeStream {self.name!r} {state}, {self.pending} changes pending>"

    def _add(self, change: Change[TableKey, TableValue], nbytes: int) -> None:
        if self._is_ended:
            return
        self._queue.append((change, nbytes))
        self._nbytes += nbytes
        self._arrived.set()
        if len(self._queue) > self._max_records or self._nbytes > self._max_bytes:
            self._end(
                SlowSubscriberError(
                    f"subscriber {self.name!r} is too slow: {len(self._queue)} changes with "
                    f"{self._nbytes} bytes were not read (max_records={self._max_records}, "
                    f"max_bytes={self._max_bytes}); begin again with snapshot_and_changes()"
                )
            )

    def _end(self, failure: BaseException | None = None) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._failure = failure
        self._arrived.set()


class _Partition(Generic[TableKey, TableValue]):
    """The reading state of one partition.

    - `position`: offset of the first record that was not applied; None before the first record is
      known, and when the position is lost. Without a position, the partition is paused or not
      assigned, so the consumer returns no records and no errors of it.
    - `generation`: how often the position was lost.
    - `is_loading`: whether a task is looking up the first offset of the partition, or waits until
      the partition was read from there up to its end.
    - `shadow`: while a partition is read again, the entries that will replace its entries in the
      table, as (value, bytes, record); `shadow_bytes`: the sum of their bytes.
    """

    __slots__ = (
        "absent_since",
        "generation",
        "is_loading",
        "position",
        "shadow",
        "shadow_bytes",
        "tp",
    )

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.position: int | None = None
        self.generation = 0
        self.is_loading = False
        self.shadow: (
            dict[TableKey, tuple[TableValue, int, ConsumerRecord[TableKey, TableValue]]] | None
        ) = None
        self.shadow_bytes = 0
        self.absent_since: float | None = None

    def start_at(self, offset: int) -> None:
        self.position = offset

    def lose(self) -> None:
        """Forget the position. The next records come from the beginning of the partition, and are
        applied to `shadow`."""
        self.position = None
        self.generation += 1
        self.shadow, self.shadow_bytes = {}, 0

    def shadow_record(self, record: ConsumerRecord[TableKey, TableValue], nbytes: int) -> None:
        """Apply a record to the shadow."""
        assert self.shadow is not None
        before = self.shadow.pop(record.key, None)
        if before is not None:
            self.shadow_bytes -= before[1]
        if record.value is not None:
            self.shadow[record.key] = record.value, nbytes, record
            self.shadow_bytes += nbytes

    def end_loading(
        self,
    ) -> dict[TableKey, tuple[TableValue, int, ConsumerRecord[TableKey, TableValue]]] | None:
        """Return the shadow, and apply later records to the table again."""
        shadow, self.shadow = self.shadow, None
        self.is_loading = False
        return shadow


class _Phase(Enum):
    NEW = "not started"
    STARTING = "starting"
    STARTED = "started"
    STOPPING = "stopping"
    STOPPED = "stopped"


class CompactedTable(Mapping[TableKey, TableValue]):
    """The latest value of every key of a topic, in memory: a mapping that follows the topic.

    ::

        async with CompactedTable("settings", bootstrap_servers="localhost:9092") as table:
            print(table.get(b"colour"), len(table))
            snapshot, changes = table.snapshot_and_changes()
            async for change in changes:
                ...  # change.key, change.old, change.new

    `start()` reads all partitions from the beginning up to their present ends. Afterwards a
    background task applies new records in the order of each partition: a value replaces the value
    of its key, and a tombstone (a record whose value is None) removes the key. Reading the table
    needs no `await`. Between two `await` of the application the table does not change.

    The table contains a prefix of each partition; a transaction in several partitions may become
    visible in one partition after the other. All records of a key must be in one partition, where
    partitioners put them. Partitions that are added to the topic are found within
    `metadata_max_age_ms`.

    A partition is read from the beginning again if its log was truncated, if retention deleted the
    record at the position, or if the topic was deleted and created again. The table keeps the old
    entries until the end is reached; then the differences are applied as changes. While a topic is
    deleted, the table keeps its entries.

    The table fails if a record has no key or an unhashable key, or if it cannot be deserialized:
    all waiting calls and subscribers raise the error, and the entries do not change any more.
    After a failure or `stop()` the entries can still be read.

    - `topic`: the topic, which should have `cleanup.policy=compact`: other policies delete values
      of keys, and the table shows this only when the partition is read again.
    - `max_bytes`: maximum bytes of the serialized keys and values. A larger table fails with
      TableTooLargeError. While a partition is read again, its new entries are counted separately,
      with the same maximum.
    - `key_deserializer`, `value_deserializer`: as for `AIOKafkaConsumer`; keys must be hashable. If
      `value_deserializer` returns None, the record counts as a tombstone. Deserializers are not
      called for None, such as the value of a tombstone.
    - `options`: other options of `AIOKafkaConsumer`, except `group_id`, `auto_offset_reset` and
      `enable_auto_commit`. By default `isolation_level` is "read_committed", and
      `allow_auto_create_topics` is False.

    Raises TypeError or ValueError for wrong arguments, RuntimeError without a running event loop.
    """

    if MYPY:

        @overload
        def __init__(
            self: CompactedTable[TableKey, TableValue],
            topic: str,
            *,
            max_bytes: int = ...,
            key_deserializer: Callable[[bytes], Awaitable[TableKey]],
            value_deserializer: Callable[[bytes], Awaitable[TableValue]],
            **options: Unpack[ConsumerOptions],
        ) -> None: ...

        @overload
        def __init__(
            self: CompactedTable[TableKey, TableValue],
            topic: str,
            *,
            max_bytes: int = ...,
            key_deserializer: Callable[[bytes], TableKey] | None = as_it_is,  # type: ignore[assignment]
            value_deserializer: Callable[[bytes], Awaitable[TableValue]],
            **options: Unpack[ConsumerOptions],
        ) -> None: ...

        @overload
        def __init__(
            self: CompactedTable[TableKey, TableValue],
            topic: str,
            *,
            max_bytes: int = ...,
            key_deserializer: Callable[[bytes], Awaitable[TableKey]],
            value_deserializer: Callable[[bytes], TableValue] | None = as_it_is,  # type: ignore[assignment]
            **options: Unpack[ConsumerOptions],
        ) -> None: ...

        @overload
        def __init__(
            self: CompactedTable[TableKey, TableValue],
            topic: str,
            *,
            max_bytes: int = ...,
            key_deserializer: Callable[[bytes], TableKey] | None = as_it_is,  # type: ignore[assignment]
            value_deserializer: Callable[[bytes], TableValue] | None = as_it_is,  # type: ignore[assignment]
            **options: Unpack[ConsumerOptions],
        ) -> None: ...

        def __init__(self, topic: str, **options: Any) -> None: ...

    else:

        def __init__(
            self: CompactedTable[TableKey, TableValue],
            topic: str,
            *,
            max_bytes: int = 256 * _MEBIBYTE,
            key_deserializer: Deserializer[TableKey] | None = as_it_is,
            value_deserializer: Deserializer[TableValue] | None = as_it_is,
            **options: Unpack[ConsumerOptions],
        ) -> None:
            given = {
                "isolation_level": "read_committed",
                "allow_auto_create_topics": False,
                **options,
                "key_deserializer": _unless_none(key_deserializer),
                "value_deserializer": _unless_none(value_deserializer),
            }
            self._set_up(topic, max_bytes, given)

    def _set_up(self, topic: str, max_bytes: int, options: dict[str, Any]) -> None:
        if not isinstance(topic, str):
            raise TypeError(f"topic: must be the name of a topic, not {topic!r}")
        for name in _FIXED:
            if name in options:
                raise TypeError(f"{name}: a table reads the whole topic, without a group")
        self.topic = topic
        self._max_bytes = as_int("max_bytes", max_bytes, 1)
        self._options = {**options, **_FIXED}
        consumer: aiokafka.AIOKafkaConsumer[TableKey, TableValue]
        consumer = aiokafka.AIOKafkaConsumer(**self._options)
        # The first partition always exists, and the consumer requests metadata of assigned topics.
        first = TopicPartition(topic, 0)
        consumer.assign([first])
        consumer.seek(first, 0)
        self._consumer = consumer
        client_id = next(iter(consumer.metrics())).tags["client-id"]
        subject = Subject(f"Table of topic {topic!r}", client_id=client_id, topic=topic)
        self._log = SubjectLog(log, subject)
        self._loop = asyncio.get_running_loop()
        self._values: dict[TableKey, TableValue] = {}
        self._origins: dict[TableKey, tuple[int, int]] = {}  # the partition and bytes of each entry
        self._nbytes = 0
        self._partitions: dict[TopicPartition, _Partition[TableKey, TableValue]] = {}
        self._streams: weakref.WeakSet[ChangeStream[TableKey, TableValue]] = weakref.WeakSet()
        self._streams_made = 0
        self._rereads = 0
        self._last_error: str | None = None
        self._has_warned = False
        self._progress = Signal()
        self._tasks = TaskOwner("table", self._on_failure)
        self._phase = _Phase.NEW
        self._is_complete = False  # whether `start()` has read the topic to its end

    def __repr__(self) -> str:
        return f"<CompactedTable {self.topic!r} {self._state()}, {len(self._values)} keys>"

    # -- lifecycle ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the topic up to its present end, and follow it from then on.

        Raises UnknownTopicOrPartitionError if the topic does not exist after `request_timeout_ms`,
        the other errors of `AIOKafkaConsumer.start()` and `AIOKafkaConsumer.getmany()`,
        TableTooLargeError, TableRecordError, TypeError for an unhashable key; ConsumerStoppedError
        if another task calls `stop()`; IllegalStateError after an earlier start or stop. After a
        failure or a cancellation the table is stopped.
        """
        if self._phase is not _Phase.NEW:
            raise IllegalStateError(f"{self!r} was started before")
        self._phase = _Phase.STARTING
        self._tasks.keep_context()
        try:
            await self._consumer.start()
            await self._begin()
            await self._reach_all_ends()
        except BaseException:
            await self.stop()
            raise
        self._phase = _Phase.STARTED
        self._is_complete = True

    async def _begin(self) -> None:
        numbers = self._consumer.partitions_for_topic(self.topic) or {0}
        tps = [TopicPartition(self.topic, number) for number in sorted(numbers)]
        starts = await self._consumer.beginning_offsets(tps)
        self._check_running()
        self._consumer.assign(tps)
        for tp in tps:
            self._consumer.seek(tp, starts[tp])
            self._partitions[tp] = _Partition(tp)
            self._partitions[tp].start_at(starts[tp])
        self._tasks.start(self._follow(), name="follow")

    async def stop(self) -> None:
        """End the background task, the streams of changes and all waiting calls, and stop the
        consumer. May be called again, also after a cancelled call, and by several tasks at once.
        The entries can still be read."""
        self._phase = _Phase.STOPPING
        self._end_streams(None)
        self._progress.notify()
        await self._tasks.stop(self._loop.time() + _CLOSE_TIMEOUT)
        await self._consumer.stop()
        self._phase = _Phase.STOPPED

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        async with AsyncExitStack() as stack:
            # If `stop()` is cancelled, it is not called again: this callback stops the consumer.
            stack.push_async_exit(self._consumer)
            await self.stop()

    # -- reading -----------------------------------------------------------------------------------

    def __getitem__(self, key: TableKey) -> TableValue:
        self._check_readable()
        return self._values[key]

    def __iter__(self) -> Iterator[TableKey]:
        """Iterate over the keys. Do not await inside the loop: if the table changes meanwhile, the
        iteration raises RuntimeError. A loop that awaits can iterate over `snapshot()`."""
        self._check_readable()
        return iter(self._values)

    def __len__(self) -> int:
        self._check_readable()
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        self._check_readable()
        return key in self._values

    def snapshot(self) -> TableSnapshot[TableKey, TableValue]:
        """Return an immutable copy of the table, with the offsets up to which it is complete. The
        copy shares the values, and takes about ten milliseconds for a million keys."""
        self._check_readable()
        offsets = {tp: p.position for tp, p in self._partitions.items() if p.position is not None}
        return TableSnapshot(self._values.copy(), offsets)

    def changes(
        self,
        *,
        max_records: int = 10_000,
        max_bytes: int = 16 * _MEBIBYTE,
        name: str | None = None,
    ) -> ChangeStream[TableKey, TableValue]:
        """Return an async iterator over the changes from now on. Every call returns an independent
        stream, which has all changes after this call.

        A tombstone for a key that the table does not have is no change. A record with the same
        value as before is a change.

        - `max_records`, `max_bytes`: limits of the changes that were not read yet. If they are
          exceeded, the stream ends with SlowSubscriberError.
        - `name`: the name of the subscriber in this error.

        Raises IllegalStateError before the end of `start()`, ValueError or TypeError for wrong
        limits, and the error of the table if the table has failed.
        """
        self._check_readable()
        self._tasks.check()
        self._streams_made += 1
        stream: ChangeStream[TableKey, TableValue] = ChangeStream(
            f"changes-{self._streams_made}" if name is None else name,
            as_int("max_records", max_records, 1),
            as_int("max_bytes", max_bytes, 1),
        )
        if self._phase is _Phase.STARTED:
            self._streams.add(stream)
        else:
            stream._end()
        return stream

    def snapshot_and_changes(
        self,
        *,
        max_records: int = 10_000,
        max_bytes: int = 16 * _MEBIBYTE,
        name: str | None = None,
    ) -> tuple[TableSnapshot[TableKey, TableValue], ChangeStream[TableKey, TableValue]]:
        """Return a snapshot, and the stream of all later changes: each record is in exactly one of
        them. Arguments and errors are those of `changes()`."""
        changes = self.changes(max_records=max_records, max_bytes=max_bytes, name=name)
        return self.snapshot(), changes

    async def read_to_end(self) -> None:
        """Wait until the table has all records that are in the topic now, including records whose
        delivery this program has awaited. With "read_committed", the end is the last stable offset.
        A broker moves it past a transaction shortly after `commit_transaction()` has returned, so
        use `read_past()` for records of your own transactions.

        Raises KafkaTimeoutError if a leader does not respond within `default_api_timeout_ms`; the
        error that has ended the table; ConsumerStoppedError when stopped; IllegalStateError before
        the end of `start()`.
        """
        self._check_readable()
        self._check_running()
        await self._reach_all_ends()

    async def read_past(self, *written: RecordMetadata) -> None:
        """Wait, without limit, until the table has the records of `written`: results of
        `AIOKafkaProducer.send()`, for example of a transaction that was just committed. If the
        transaction was aborted, return when the table has skipped the records.

        Raises ValueError for records of another topic, or without an offset (`acks=0`); the error
        that has ended the table; ConsumerStoppedError when stopped; IllegalStateError before the
        end of `start()`.
        """
        self._check_readable()
        ends: dict[TopicPartition, int] = {}
        for one in written:
            if one.topic != self.topic or one.offset < 0:
                raise ValueError(f"{one}: must have an offset in topic {self.topic!r}")
            tp = TopicPartition(one.topic, one.partition)
            ends[tp] = max(one.offset + 1, ends.get(tp, 0))
        while True:
            self._check_running()
            found = ((self._partitions.get(tp), end) for tp, end in ends.items())
            if all(p is not None and _is_loaded(p, end) for p, end in found):
                return
            await self._progress.wait()

    # -- state -------------------------------------------------------------------------------------

    @property
    def nbytes(self) -> int:
        """Bytes of the serialized keys and values of the table."""
        return self._nbytes

    @property
    def failure(self) -> BaseException | None:
        """The exception that has ended the background task, or None."""
        return self._tasks.failure

    def health(self) -> TableHealth:
        """Return the present health, at any time and without a request."""
        lags = self._consumer.lag().values()
        known = [lag for lag in lags if lag is not None]
        is_starting = not self._is_complete
        loading = [p.tp.partition for p in self._partitions.values() if is_starting or p.is_loading]
        return TableHealth(
            state=self._state(),
            keys=len(self._values),
            nbytes=self._nbytes,
            lag=sum(known) if len(known) == len(lags) else None,
            loading=tuple(sorted(loading)),
            rereads=self._rereads,
            subscribers=len(self._streams),
            last_error=self._last_error,
            consumer=self._consumer.health(),
        )

    def _state(self) -> str:
        return "failed" if self._tasks.failure is not None else self._phase.value

    def _check_readable(self) -> None:
        if not self._is_complete:
            raise IllegalStateError(
                f"the table of topic {self.topic!r} is {self._phase.value}: use `async with`, or "
                "await start() first"
            )

    def _check_running(self) -> None:
        self._tasks.check()
        if self._phase in (_Phase.STOPPING, _Phase.STOPPED):
            raise ConsumerStoppedError(f"the table of topic {self.topic!r} was stopped")

    def _on_failure(self, error: BaseException) -> None:
        self._last_error = f"{type(error).__name__}: {error}"
        self._end_streams(error)
        self._progress.notify()

    def _end_streams(self, failure: BaseException | None) -> None:
        for stream in list(self._streams):
            stream._end(failure)
        self._streams.clear()

    # -- the background task -----------------------------------------------------------------------

    async def _follow(self) -> None:
        is_idle = False
        while True:
            wait = _AWAITED_MS if is_idle and self._progress.waiters else _IDLE_MS
            try:
                found = await self._consumer.getmany(timeout_ms=wait, max_records=_BATCH)
            except (OffsetOutOfRangeError, NoOffsetForPartitionError) as error:
                # NoOffsetForPartitionError: the topic of the partition was recreated.
                self._on_lost_positions(error)
                await asyncio.sleep(_PAUSE)
                continue
            except KafkaError as error:
                if not error.retriable:
                    raise
                self._last_error = f"{type(error).__name__}: {error}"
                await asyncio.sleep(_RETRY)
                continue
            is_idle = not found
            for tp, records in found.items():
                self._apply(tp, records)
            self._check_positions()
            self._check_partitions()
            self._progress.notify()

    def _on_lost_positions(self, error: KafkaError) -> None:
        named = error.args[0]
        for tp in [named] if isinstance(named, TopicPartition) else named:
            self._reread(self._partitions[tp], str(error))

    def _apply(
        self, tp: TopicPartition, records: list[ConsumerRecord[TableKey, TableValue]]
    ) -> None:
        partition = self._partitions[tp]
        for record in records:
            _check_key(record)
            nbytes = record.serialized_key_size + record.serialized_value_size
            if partition.shadow is not None:
                partition.shadow_record(record, nbytes)
                self._check_size(partition.shadow_bytes)
            elif record.value is None:
                self._remove(record.key, tp.partition, record)
            else:
                self._put(record.key, record.value, tp.partition, nbytes, record)
        partition.start_at(records[-1].offset + 1)

    def _put(
        self,
        key: TableKey,
        value: TableValue,
        number: int,
        nbytes: int,
        record: ConsumerRecord[TableKey, TableValue],
    ) -> None:
        old = self._values.get(key)
        self._put_origin(key, number, nbytes)
        self._values[key] = value
        if self._streams:
            self._publish(Change(key, old, value, record), nbytes)

    def _put_origin(self, key: TableKey, number: int, nbytes: int) -> None:
        total = self._nbytes + nbytes
        before = self._origins.get(key)
        if before is not None:
            total -= before[1]
            self._warn_of_two(key, before[0], number)
        self._check_size(total)
        self._origins[key] = number, nbytes
        self._nbytes = total

    def _remove(
        self, key: TableKey, number: int, record: ConsumerRecord[TableKey, TableValue] | None = None
    ) -> None:
        origin = self._origins.pop(key, None)
        if origin is None:
            return
        self._warn_of_two(key, origin[0], number)
        self._nbytes -= origin[1]
        old = self._values.pop(key)
        if self._streams:
            self._publish(Change(key, old, None, record), origin[1])

    def _publish(self, change: Change[TableKey, TableValue], nbytes: int) -> None:
        for stream in list(self._streams):
            stream._add(change, nbytes)
            if stream._is_ended:
                self._streams.discard(stream)

    def _warn_of_two(self, key: TableKey, first: int, second: int) -> None:
        if first != second and not self._has_warned:
            self._has_warned = True
            self._log.warning(
                "key %r is in partitions %d and %d: the table has the value that it read last",
                key,
                first,
                second,
            )

    def _check_size(self, nbytes: int) -> None:
        """Raise TableTooLargeError if the next record would make the entries too large."""
        if nbytes > self._max_bytes:
            raise TableTooLargeError(
                f"the table of topic {self.topic!r} has {len(self._values)} keys with "
                f"{self._nbytes} bytes; the next record needs {nbytes} bytes, which is more than "
                f"max_bytes={self._max_bytes}"
            )

    def _check_positions(self) -> None:
        """Move the positions past offsets without records, such as transaction markers."""
        # Unlike `position()`, these calls do not wait for a position that is unknown.
        ends, lags = self._consumer.known_end_offsets(), self._consumer.lag()
        for tp, partition in self._partitions.items():
            end, lag = ends.get(tp), lags.get(tp)
            if partition.position is not None and end is not None and lag is not None:
                partition.start_at(end - lag)

    def _check_partitions(self) -> None:
        """Read partitions that were added to the topic. Remove partitions that a recreated topic
        does not have."""
        numbers = self._consumer.partitions_for_topic(self.topic)
        if not numbers:
            return  # the topic is deleted, or not known at the moment
        for number in numbers:
            tp = TopicPartition(self.topic, number)
            if tp not in self._partitions:
                self._partitions[tp] = _Partition(tp)
                self._start_loader(self._partitions[tp])
        now = self._loop.time()
        for partition in list(self._partitions.values()):
            if partition.tp.partition in numbers:
                partition.absent_since = None
            elif partition.absent_since is None:
                partition.absent_since = now
            elif now - partition.absent_since > _ABSENT:
                self._drop(partition)

    def _drop(self, partition: _Partition[TableKey, TableValue]) -> None:
        del self._partitions[partition.tp]
        self._consumer.assign(self._consumer.assignment() - {partition.tp})
        partition.lose()  # the new generation makes waiting calls start over without the partition
        for key in self._keys_of(partition):
            self._remove(key, partition.tp.partition)

    def _keys_of(self, partition: _Partition[TableKey, TableValue]) -> list[TableKey]:
        number = partition.tp.partition
        return [key for key, (origin, _) in self._origins.items() if origin == number]

    # -- reading a partition from its beginning ----------------------------------------------------

    def _reread(self, partition: _Partition[TableKey, TableValue], why: str) -> None:
        """Read a partition again. How it is done:

        1. Pause the partition. The table keeps its entries.
        2. Look up the first offset, in a task, because the leader may be unavailable for long.
        3. Seek to the beginning, and resume. The records are applied to `shadow`.
        4. At the end, replace the entries by the shadow, and publish the differences.

        If the position is lost again meanwhile, the same task starts again at step 2.
        """
        partition.lose()
        self._rereads += 1
        self._consumer.pause(partition.tp)
        self._log.warning("reading %s again from its beginning: %s", partition.tp, why)
        if not partition.is_loading:
            self._start_loader(partition)

    def _start_loader(self, partition: _Partition[TableKey, TableValue]) -> None:
        partition.is_loading = True
        self._tasks.start(self._load(partition), name=f"load-{partition.tp.partition}")

    async def _load(self, partition: _Partition[TableKey, TableValue]) -> None:
        tp = partition.tp
        while self._partitions.get(tp) is partition:
            try:
                if partition.position is None:
                    start = (await self._consumer.beginning_offsets([tp]))[tp]
                    if self._partitions.get(tp) is not partition:
                        return
                    # Do not await between these calls: an assigned partition without a position is
                    # an error.
                    self._consumer.assign(self._consumer.assignment() | {tp})
                    self._consumer.seek(tp, start)
                    self._consumer.resume(tp)
                    partition.start_at(start)
                if await self._reach_ends([partition], _has_reached):
                    self._end_loading(partition)
                    return
            except KafkaTimeoutError as error:
                self._last_error = f"{type(error).__name__}: {error}"

    def _end_loading(self, partition: _Partition[TableKey, TableValue]) -> None:
        shadow = partition.end_loading()
        if shadow is None:
            return
        number = partition.tp.partition
        for key in self._keys_of(partition):
            if key not in shadow:
                self._remove(key, number)
        for key, (value, nbytes, record) in shadow.items():
            if _is_same(self._values.get(key), value):
                self._put_origin(key, number, nbytes)
            else:
                self._put(key, value, number, nbytes, record)

    # -- waiting -----------------------------------------------------------------------------------

    async def _reach_all_ends(self) -> None:
        """Wait until the table has all records up to the present ends."""
        while not await self._reach_ends(list(self._partitions.values()), _is_loaded):
            pass

    async def _reach_ends(
        self,
        partitions: list[_Partition[TableKey, TableValue]],
        is_done: Callable[[_Partition[TableKey, TableValue], int], bool],
    ) -> bool:
        """Wait until `is_done` is true for the present ends of these partitions. Return False if a
        position was lost meanwhile."""
        generations = [partition.generation for partition in partitions]
        ends: dict[TopicPartition, int] = {}
        while True:
            found = await self._consumer.end_offsets([p.tp for p in partitions])
            # An outdated leader may have returned the end of a former topic: look again, but never
            # wait for records that were written after the call.
            ends = {tp: min(end, ends.get(tp, end)) for tp, end in found.items()}
            before = [partition.position for partition in partitions]
            deadline = self._loop.time() + _LOOK_AGAIN
            while self._loop.time() < deadline:
                self._check_running()
                if generations != [partition.generation for partition in partitions]:
                    return False
                if all(is_done(p, ends[p.tp]) for p in partitions):
                    return True
                await self._progress.wait()  # `_follow` notifies after each of its rounds
            stuck = {
                p.tp: p.position
                for p, position in zip(partitions, before, strict=True)
                if p.position is not None and position == p.position < ends[p.tp]
            }
            if stuck:
                ends.update(await self._find_gaps(stuck, ends))

    async def _find_gaps(
        self, positions: dict[TopicPartition, int], ends: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Return the positions of the partitions that have no record between position and end.

        Compaction removes values that were replaced. If an unclean leader election then loses the
        new values, the log ends with offsets that have no record. No fetch moves a position past
        such offsets.

        An empty fetch of the table's own consumer does not prove that there is no record: with many
        partitions, a response may be full before it reaches this partition, or a quota may delay
        it. So each partition is fetched alone.
        """
        gaps: dict[TopicPartition, int] = {}
        plain = {"key_deserializer": None, "value_deserializer": None, "interceptors": ()}
        probe = aiokafka.AIOKafkaConsumer(**{**self._options, **plain})
        try:
            async with timeout_at(self._loop.time() + _LOOK_AGAIN), probe:
                for tp, position in positions.items():
                    probe.assign([tp])
                    probe.seek(tp, position)
                    end = await self._fetch_end(probe, tp)
                    if end >= ends[tp] and await probe.position(tp) == position:
                        gaps[tp] = position
        except (KafkaError, asyncio.TimeoutError):
            pass  # gaps are looked for again in the next round
        return gaps

    async def _fetch_end(
        self, probe: aiokafka.AIOKafkaConsumer[Any, Any], tp: TopicPartition
    ) -> int:
        """Return the end offset in the first fetch response, and move the position past the records
        of that response."""
        end = None
        while end is None:
            self._check_running()
            # The response that has the end offset may have records, too. `getmany()` takes them
            # from the buffer, which moves the position past them.
            end = probe.known_end_offsets()[tp]
            await probe.getmany(timeout_ms=_IDLE_MS)
        return end


def _has_reached(partition: _Partition[Any, Any], end: int) -> bool:
    return partition.position is not None and partition.position >= end


def _is_loaded(partition: _Partition[Any, Any], end: int) -> bool:
    """Return whether the entries up to an end are in the table."""
    return not partition.is_loading and _has_reached(partition, end)


def _is_same(old: Any, new: Any) -> bool:
    try:
        return bool(old == new)
    except Exception:  # for example arrays, whose comparison is an array
        return False


def _check_key(record: ConsumerRecord[Any, Any]) -> None:
    if record.key is None:
        raise TableRecordError(f"the record {_place(record)} has no key: it cannot be in a table")
    try:
        hash(record.key)
    except TypeError:
        raise TypeError(
            f"the key of {_place(record)} is a {type(record.key).__name__}, which is not hashable: "
            "let key_deserializer return a hashable value, such as a tuple or a frozen dataclass"
        ) from None


def _place(record: ConsumerRecord[Any, Any]) -> str:
    return f"{record.topic}-{record.partition}@{record.offset}"


def _unless_none(deserializer: Any) -> Any:
    """Return a deserializer that returns None for None: tombstones have no value to deserialize."""
    if not callable(deserializer) and not hasattr(deserializer, "deserialize"):
        return deserializer  # None, or something that the consumer rejects
    function = adapt_deserializer(deserializer)
    assert function is not None
    if isinstance(function, ContextDeserializer):
        in_context = function.function
        return lambda data, ctx: None if data is None else in_context(data, ctx)
    return lambda data: None if data is None else function(data)
