"""Ranges of offsets: progress, data loss, fetched record sets, and how many bytes to request."""

from __future__ import annotations

import bisect
import enum
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka._config.options import Milliseconds, Number, check
from aiokafka._reading import MAX_OFFSET, Fetched
from aiokafka._retry import MOST_PROMPT_ATTEMPTS, Backoff
from aiokafka._typing import Self
from aiokafka.errors import CorruptRecordError, KafkaError, KafkaTimeoutError, RecordTooLargeError
from aiokafka.record.columns import ColumnReader, Columns
from aiokafka.record.header import flat_view, parse_batch, valid_size
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.cluster import ClusterMetadata, PartitionInfo

__all__ = [
    "DataLoss",
    "DataLossError",
    "FetchSize",
    "LossKind",
    "OffsetSizes",
    "PartitionRange",
    "PinnedResponse",
    "RangeLimits",
    "RangePhase",
    "RangeState",
    "RecordSet",
    "Rows",
    "checked",
    "first_batch_size",
    "no_batch",
    "too_large",
]

_MAX_PARTITION = 2**31 - 1


class PartitionRange(NamedTuple):
    """Records of one partition, from offset `start` up to but not including `until`."""

    topic: str
    partition: int
    start: int
    until: int
    topic_id: bytes | None = None
    """The id that distinguishes topics of the same name (KIP-516): 16 bytes, if known."""

    from_first: bool = False
    """Begin at the first existing record: it is no data loss if that comes after `start`."""


class LossKind(enum.Enum):
    """Why records of a range are gone."""

    RETENTION = "retention"
    """The log begins later now: records were too old, too many, or were deleted."""

    TRUNCATION = "truncation"
    """The log ends earlier than it did: replicas were lost, or the topic was created again."""

    NEW_TOPIC = "new topic"
    """The topic was deleted, and another one was created with its name."""

    DELETED = "deleted"
    """The topic was deleted, or created again with fewer partitions."""


_REASONS = {
    LossKind.RETENTION: "the log begins later now",
    LossKind.TRUNCATION: "the log ends earlier than it did",
    LossKind.NEW_TOPIC: "the topic was deleted and created again",
    LossKind.DELETED: "the partition does not exist any more",
}


class DataLoss(NamedTuple):
    """Offsets of a range that cannot be read any more: `start` up to but not `until`."""

    kind: LossKind
    topic: str
    partition: int
    start: int
    until: int

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition}: offsets {self.start} to {self.until - 1} are gone: "
            f"{_REASONS[self.kind]}"
        )


class DataLossError(KafkaError):
    """Records of a range are gone; `loss` says which and why."""

    def __init__(self, loss: DataLoss) -> None:
        super().__init__(str(loss))
        self.loss = loss


class RangePhase(enum.Enum):
    """What a range is waiting for."""

    IDLE = "idle"
    FETCHING = "fetching"
    LOOKING_UP = "looking up"
    DONE = "done"


_NEXT = {
    RangePhase.IDLE: {RangePhase.FETCHING, RangePhase.LOOKING_UP, RangePhase.DONE},
    RangePhase.FETCHING: {RangePhase.IDLE, RangePhase.LOOKING_UP, RangePhase.DONE},
    RangePhase.LOOKING_UP: {RangePhase.IDLE, RangePhase.DONE},
    RangePhase.DONE: set[RangePhase](),
}


class RangeState:
    """One range while it is read. Only the RangeReader and its Callers write it.

    `position` is the offset to fetch next, `high_watermark` the end of the log as the node
    `told_by` last said, `since` the loop time of the last progress, `reason` the last failure,
    `turn` a number that grows when the range is served, `size` how much to request, `asked` what
    was known of the partition when it was last its turn.
    """

    def __init__(
        self, wanted: PartitionRange, now: float, backoff: Backoff, sizes: OffsetSizes
    ) -> None:
        self.range = wanted
        self.tp = TopicPartition(wanted.topic, wanted.partition)
        self.position = wanted.start
        self.phase = RangePhase.IDLE if wanted.start < wanted.until else RangePhase.DONE
        self.since = now
        self.retry_at = 0.0
        self.high_watermark = -1
        self.told_by = -1
        self.reason = ""
        self.turn = 0
        self.asked: PartitionInfo | None = None
        self._prompts = 0  # pauses that ended early, since the last progress
        self.size = FetchSize(wanted.topic, sizes)
        self._backoff = backoff

    def __str__(self) -> str:
        return f"{self.tp.topic}-{self.tp.partition}"

    @property
    def left(self) -> int:
        """How many offsets are still to be read."""
        return self.range.until - self.position

    @property
    def left_in_log(self) -> int:
        """How many offsets the log has from the position on, as of the last response."""
        return self.high_watermark - self.position

    @property
    def ends_early(self) -> bool:
        """Whether the log ends before the range does, as of the last response."""
        return 0 <= self.high_watermark < self.range.until

    def transition(self, phase: RangePhase) -> None:
        """Change the phase."""
        assert phase in _NEXT[self.phase], f"{self}: {self.phase} to {phase}"
        self.phase = phase

    def moved(self, position: int, now: float) -> None:
        """Take note that everything below `position` was fetched, or is known to be gone."""
        self.position = position
        # Progress, whether records came or are known to be gone.
        self.since = now
        self.reason = ""
        self._backoff.reset()
        self._prompts = 0
        self.transition(RangePhase.DONE if position >= self.range.until else RangePhase.IDLE)

    @property
    def failures(self) -> int:
        """How often in a row it was postponed."""
        return self._backoff.failures

    def is_due(self, now: float, cluster: ClusterMetadata) -> bool:
        """Return whether to ask for it: its time has come, or a newer leader is known than the one
        that had it postponed."""
        if self.retry_at <= now:
            return True
        info, before = cluster.partition(self.tp), self.asked
        if info is None or info.leader < 0 or self._prompts >= MOST_PROMPT_ATTEMPTS:
            return False
        if before is None or before.leader < 0 or info.epoch > before.epoch:
            return True
        return info.epoch < 0 and info.leader != before.leader

    def end_wait(self, now: float) -> None:
        """Take note that it is asked for now."""
        if self.retry_at > now:
            self._prompts += 1
        self.retry_at = 0.0

    def postpone(self, now: float, reason: str) -> None:
        """Retry later, or as soon as a newer leader is known."""
        self.reason = reason
        self.retry_at = now + self._backoff.next()
        if self.phase is not RangePhase.IDLE:
            self.transition(RangePhase.IDLE)

    def ask_again(self, now: float) -> None:
        """Begin the time of the range again, for what was said of the end of its log counts no
        more."""
        self.high_watermark = -1
        self.since = now
        self.transition(RangePhase.IDLE)

    def leave_out(self, seconds: float, now: float) -> None:
        """Take note that so much time has passed without a caller that waits for records."""
        self.since = min(now, self.since + seconds)

    def late(self, timeout: float) -> KafkaTimeoutError:
        """Return the error after `timeout` seconds without progress."""
        wanted = self.range
        return KafkaTimeoutError(
            f"{self}: no progress at offset {self.position} of {wanted.start} to {wanted.until} "
            f"for {timeout:g} s" + (f"; last: {self.reason}" if self.reason else "")
        )

    def lost(self, kind: LossKind, until: int) -> DataLoss:
        """Return the loss if everything below `until` is gone."""
        last = min(max(until, self.position), self.range.until)
        return DataLoss(kind, self.tp.topic, self.tp.partition, self.position, last)


def checked(ranges: Iterable[PartitionRange]) -> list[PartitionRange]:
    """Return the ranges. Raises ValueError for what is no range of offsets."""
    found = list(ranges)
    for wanted in found:
        is_partition = 0 <= wanted.partition <= _MAX_PARTITION
        if not is_partition or not 0 <= wanted.start <= wanted.until <= MAX_OFFSET:
            raise ValueError(f"ranges: {wanted} is no range of offsets")
    return found


# -- A fetched record set of a range, converted to columns when and where the caller wants. Pure


class Rows(NamedTuple):
    """The first `size` rows of `columns`; further rows lie beyond the range."""

    columns: Columns
    size: int


class RecordSet:
    """Records of one partition in the order of their offsets.

    `topic` and `partition` identify it. Any thread may read it, one at a time.
    """

    def __init__(self, wanted: PartitionRange, reader: ColumnReader) -> None:
        self.topic = wanted.topic
        self.partition = wanted.partition
        self._until = wanted.until
        self._reader = reader

    def read(self, max_rows: int) -> Rows | None:
        """Return up to `max_rows` more records; None when there are no more.

        Raises CorruptRecordError that names the partition, ValueError for less than one row.
        """
        if max_rows < 1:
            raise ValueError(f"max_rows={max_rows!r}: must be at least 1")
        if self._reader.position >= self._until:
            return None
        try:
            columns = self._reader.read(max_rows)
        except CorruptRecordError as error:
            raise CorruptRecordError(f"{self.topic}-{self.partition}: {error}") from error
        size = self._below_end(columns)
        return Rows(columns, size) if size else None

    def _below_end(self, columns: Columns) -> int:
        with memoryview(columns.offsets).cast("q") as offsets:
            if not columns.rows or offsets[-1] < self._until:
                return columns.rows
            return bisect.bisect_left(offsets, self._until)


class PinnedResponse:
    """The memory of one response, which is pinned until its last record set was read."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.nbytes = 0
        self.unread = 0


def first_batch_size(data: Any) -> int:
    """Return the bytes of the first batch of a record set; 0 if it is not valid."""
    return valid_size(flat_view(data), 0)


def no_batch(state: RangeState, found: Fetched) -> KafkaError:
    """Return what is wrong with the first header of a record set."""
    try:
        parse_batch(flat_view(found.data), 0)
    except CorruptRecordError as error:
        return CorruptRecordError(f"{state}: {error}")
    return CorruptRecordError(f"{state}: no batch at offset {state.position}")


def too_large(state: RangeState, limit: int) -> KafkaError:
    """Return the error of a batch that does not fit into `limit` bytes."""
    return RecordTooLargeError(
        f"{state}: the record at offset {state.position} is larger than {limit} bytes"
    )


# -- How many bytes to request: little of what follows the end of a range should be sent. Pure


_LEAST = 20 * 1024  # a batch of a producer's default size, and some more
_FIRST = 64 * 1024  # at most, before anything is known
_FIRST_GUESS = 125.0  # bytes of an offset, before any has been seen
_SPARE = 1.1  # records differ
_MOST_TOPICS = 1000


class RangeLimits(NamedTuple):
    """Limits of size, in bytes, and of time, in seconds."""

    max_bytes: int
    max_partition_bytes: int
    min_bytes: int
    max_wait: float
    buffer_memory: int
    timeout: float

    @classmethod
    def checked(
        cls,
        *,
        max_bytes: int,
        max_partition_bytes: int,
        min_bytes: int,
        max_wait_ms: float,
        buffer_memory: int,
        timeout_ms: float,
    ) -> Self:
        """Return the limits of a reader's arguments; raise TypeError or ValueError for a wrong
        one.
        """
        return cls(
            check(Number(1), "max_bytes", max_bytes),
            check(Number(1), "max_partition_bytes", max_partition_bytes),
            check(Number(0), "min_bytes", min_bytes),
            check(Milliseconds(is_sent=True), "max_wait_ms", max_wait_ms),
            check(Number(1, 2**63 - 1), "buffer_memory", buffer_memory),
            check(Milliseconds(), "timeout_ms", timeout_ms),
        )


class _Seen(NamedTuple):
    """What a response has shown: bytes of an offset, and of a batch."""

    per_offset: float
    batch: int


class OffsetSizes:
    """How many bytes the offsets of topics take, as seen last.

    Give the same to all the `RangeReader` of a program that reads ranges of the same topics again
    and again: they then request what a range needs from their first fetch on, and not a guess. Used
    in one event loop.
    """

    def __init__(self) -> None:
        self._topics: dict[str, _Seen] = {}

    def of(self, topic: str) -> _Seen | None:
        """Return what is known of a topic."""
        return self._topics.get(topic)

    def learn(self, topic: str, seen: _Seen) -> None:
        """Take note of a response; forget the topic that was seen longest ago if there are many."""
        self._topics.pop(topic, None)
        self._topics[topic] = seen
        if len(self._topics) > _MOST_TOPICS:
            del self._topics[next(iter(self._topics))]


class FetchSize:
    """The size of the next fetch of one range, from the size of its offsets so far."""

    def __init__(self, topic: str, sizes: OffsetSizes) -> None:
        self._topic = topic
        self._sizes = sizes
        self._seen: _Seen | None = None
        self._lowest = 0
        self._asked = 0

    def ask(self, offsets: int, limit: int) -> int:
        """Return the bytes to request for so many offsets, at most `limit`."""
        self._asked = max(1, min(limit, max(self._lowest, self._wanted(offsets))))
        return self._asked

    def _wanted(self, offsets: int) -> int:
        seen = self._seen or self._sizes.of(self._topic)
        if seen is None:
            return max(_LEAST, min(_FIRST, int(offsets * _FIRST_GUESS)))
        wanted = int(offsets * seen.per_offset * _SPARE)
        # Brokers send whole batches, and a range ends within one.
        batches = seen.batch
        if self._seen is None:
            # It begins within one as well. Its later fetches begin where a batch does.
            batches += min(seen.batch, wanted) // 2
        return wanted + batches

    def served(self, nbytes: int, offsets: int, batch: int) -> None:
        """Take note that so many offsets took so many bytes, the first batch `batch` of them."""
        # Something fitted, so the next guess need not be doubled.
        self._lowest = 0
        if nbytes and offsets > 0:
            self._seen = _Seen(nbytes / offsets, batch)
            self._sizes.learn(self._topic, self._seen)

    def too_small(self, limit: int) -> bool:
        """Return whether to request more, because no batch fitted into the requested bytes."""
        self._lowest = 2 * self._asked
        return self._asked < limit
