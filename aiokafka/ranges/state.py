"""Ranges of offsets: progress, data loss, fetched record sets, and sizes of fetches."""

from __future__ import annotations

import bisect
import enum
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka._arguments import as_instance, as_int, as_list, as_text
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
    """Whether `start` means the beginning of the log: if the log now begins at a later offset, the
    range begins there as well, without a data loss."""


class LossKind(enum.Enum):
    """Why records of a range are lost."""

    RETENTION = "retention"
    """The log begins at a later offset now: its first records were removed by retention or by
    DeleteRecords."""

    TRUNCATION = "truncation"
    """The log ends earlier than before: replicas were lost, or the topic was created again."""

    NEW_TOPIC = "new topic"
    """The topic was deleted, and another topic was created with its name."""

    DELETED = "deleted"
    """The topic was deleted, or created again with fewer partitions."""


_REASONS = {
    LossKind.RETENTION: "the log begins later now",
    LossKind.TRUNCATION: "the log ends earlier than it did",
    LossKind.NEW_TOPIC: "the topic was deleted and created again",
    LossKind.DELETED: "the partition does not exist any more",
}


class DataLoss(NamedTuple):
    """Lost offsets of a range: `start` up to but not including `until`."""

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
    """Records of a range are lost; see `loss`."""

    def __init__(self, loss: DataLoss) -> None:
        super().__init__(str(loss))
        self.loss = loss


class RangePhase(enum.Enum):
    """Whether a range is complete, and which kind of request for it is in flight."""

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
    """The progress of one range. Only the RangeReader and its WaitingCallers change the fields.

    - `position`: the offset to fetch next.
    - `high_watermark`: the end of the log, from the last response of the broker `end_source`.
    - `since`: the loop time from which the timeout counts: the last progress, or a later time (see
      `exclude_time()` and `restart_clock()`).
    - `reason`: text of the last failure, for the timeout error.
    - `last_response`: number of the last response with records of the range. The range with the
      lowest number is fetched first.
    - `size`: the size of the next fetch.
    - `metadata`: the partition's metadata when a fetch of the range was last considered.
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
        self.end_source = -1
        self.reason = ""
        self.last_response = 0
        self.metadata: PartitionInfo | None = None
        self._prompts = 0  # backoffs that ended early since the last progress
        self.size = FetchSize(wanted.topic, sizes)
        self._backoff = backoff

    def __str__(self) -> str:
        return f"{self.tp.topic}-{self.tp.partition}"

    @property
    def left(self) -> int:
        """Number of offsets of the range that are not fetched yet."""
        return self.range.until - self.position

    @property
    def left_in_log(self) -> int:
        """Number of offsets from the position to the end of the log, as of the last response."""
        return self.high_watermark - self.position

    @property
    def ends_early(self) -> bool:
        """Whether the log ends before the range does, as of the last response."""
        return 0 <= self.high_watermark < self.range.until

    def transition(self, phase: RangePhase) -> None:
        """Change the phase."""
        assert phase in _NEXT[self.phase], f"{self}: {self.phase} to {phase}"
        self.phase = phase

    def advance(self, position: int, now: float) -> None:
        """Move the position after records were fetched or lost, and reset the timeout clock and the
        backoff."""
        self.position = position
        self.since = now
        self.reason = ""
        self._backoff.reset()
        self._prompts = 0
        self.transition(RangePhase.DONE if position >= self.range.until else RangePhase.IDLE)

    @property
    def failures(self) -> int:
        """Number of consecutive failures."""
        return self._backoff.failures

    def is_due(self, now: float, cluster: ClusterMetadata) -> bool:
        """Return whether to fetch the range now: its backoff has ended, or the partition got
        another leader since the failure (at most `MOST_PROMPT_ATTEMPTS` times in a row)."""
        if self.retry_at <= now:
            return True
        info, before = cluster.partition(self.tp), self.metadata
        if info is None or info.leader < 0 or self._prompts >= MOST_PROMPT_ATTEMPTS:
            return False
        if before is None or before.leader < 0 or info.epoch > before.epoch:
            return True
        return info.epoch < 0 and info.leader != before.leader

    def end_wait(self, now: float) -> None:
        """End the backoff, because the range is fetched now."""
        if self.retry_at > now:
            self._prompts += 1
        self.retry_at = 0.0

    def postpone(self, now: float, reason: str) -> None:
        """Back off until the next retry, or until the leader changes."""
        self.reason = reason
        self.retry_at = now + self._backoff.next()
        if self.phase is not RangePhase.IDLE:
            self.transition(RangePhase.IDLE)

    def restart_clock(self, now: float) -> None:
        """Restart the timeout clock after a leader change, and forget the end of the log that the
        previous leader reported."""
        self.high_watermark = -1
        self.since = now
        self.transition(RangePhase.IDLE)

    def exclude_time(self, seconds: float, now: float) -> None:
        """Exclude `seconds`, in which no call of `next()` waited, from the timeout clock."""
        self.since = min(now, self.since + seconds)

    def timeout_error(self, timeout: float) -> KafkaTimeoutError:
        """Return the error of a range without progress for `timeout` seconds."""
        wanted = self.range
        return KafkaTimeoutError(
            f"{self}: no progress at offset {self.position} of {wanted.start} to {wanted.until} "
            f"for {timeout:g} s" + (f"; last: {self.reason}" if self.reason else "")
        )

    def data_loss_until(self, kind: LossKind, until: int) -> DataLoss:
        """Return the DataLoss of the offsets from the position up to `until`, or up to the range's
        end if that is lower."""
        last = min(max(until, self.position), self.range.until)
        return DataLoss(kind, self.tp.topic, self.tp.partition, self.position, last)


def checked(ranges: Iterable[PartitionRange]) -> list[PartitionRange]:
    """Return the ranges as a list. Raises TypeError or ValueError for an invalid range."""
    found = as_list("ranges", ranges, "ranges", PartitionRange)
    for wanted in found:
        as_instance("ranges", wanted, PartitionRange)
        as_text("ranges: topic", wanted.topic, empty=False)
        for name in ("partition", "start", "until"):
            as_int(f"ranges: {name}", getattr(wanted, name))
        is_partition = 0 <= wanted.partition <= _MAX_PARTITION
        if not is_partition or not 0 <= wanted.start <= wanted.until <= MAX_OFFSET:
            raise ValueError(f"ranges: {wanted} is no range of offsets")
    return found


class Rows(NamedTuple):
    """Rows of records: the first `size` rows of `columns`. Further rows of `columns` are after the
    end of the range: ignore them."""

    columns: Columns
    size: int


class RecordSet:
    """Records of one partition in the order of their offsets.

    Any thread may read the record set, but only one thread at a time.
    """

    def __init__(self, wanted: PartitionRange, reader: ColumnReader) -> None:
        self.topic = wanted.topic
        self.partition = wanted.partition
        self._until = wanted.until
        self._reader = reader

    def read(self, max_rows: int) -> Rows | None:
        """Return up to `max_rows` more records; None at the end.

        Raises CorruptRecordError with the name of the partition, ValueError if `max_rows` is less
        than 1.
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
    """A fetch response in memory. `unread` is the number of its record sets that the application
    has not finished reading; at 0 the memory is released. `nbytes` is the response's size."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.nbytes = 0
        self.unread = 0


def first_batch_size(data: Any) -> int:
    """Return the size of the first batch of a record set; 0 if it is invalid."""
    return valid_size(flat_view(data), 0)


def no_batch(state: RangeState, found: Fetched) -> KafkaError:
    """Return the error of a record set whose first batch header is invalid."""
    try:
        parse_batch(flat_view(found.data), 0)
    except CorruptRecordError as error:
        return CorruptRecordError(f"{state}: {error}")
    return CorruptRecordError(f"{state}: no batch at offset {state.position}")


def too_large(state: RangeState, limit: int) -> KafkaError:
    """Return the error of a batch that is larger than `limit` bytes."""
    return RecordTooLargeError(
        f"{state}: the record at offset {state.position} is larger than {limit} bytes"
    )


# -- sizes of fetches: a broker should send few bytes after the end of a range

# Minimum and maximum bytes of a range's first fetch while the topic's bytes per offset are unknown.
# A batch of a producer's default size fits into the minimum.
_MIN_FIRST_SIZE = 20 * 1024
_MAX_FIRST_SIZE = 64 * 1024
_DEFAULT_PER_OFFSET = 125.0  # assumed bytes per offset of a topic before its first response
# Factor by which the expected size of a fetch is multiplied, because record sizes vary.
_SPARE = 1.1
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
        """Return the limits. Raises TypeError or ValueError for an invalid limit."""
        return cls(
            check(Number(1), "max_bytes", max_bytes),
            check(Number(1), "max_partition_bytes", max_partition_bytes),
            check(Number(0), "min_bytes", min_bytes),
            check(Milliseconds(is_sent=True), "max_wait_ms", max_wait_ms),
            check(Number(1, 2**63 - 1), "buffer_memory", buffer_memory),
            check(Milliseconds(), "timeout_ms", timeout_ms),
        )


class _TopicSizes(NamedTuple):
    """The average bytes per offset, and the bytes of one batch, of a topic."""

    per_offset: float
    batch: int


class OffsetSizes:
    """Bytes per offset of topics, as of the last responses.

    Share one object between all `RangeReader` of a program that reads ranges of the same topics
    repeatedly: their first fetches then have the right size. Use it in one event loop.
    """

    def __init__(self) -> None:
        self._topics: dict[str, _TopicSizes] = {}

    def of(self, topic: str) -> _TopicSizes | None:
        """Return the sizes of a topic; None if unknown."""
        return self._topics.get(topic)

    def learn(self, topic: str, sizes: _TopicSizes) -> None:
        """Store the sizes of a topic. With too many topics, drop the topic stored longest ago."""
        self._topics.pop(topic, None)
        self._topics[topic] = sizes
        if len(self._topics) > _MOST_TOPICS:
            del self._topics[next(iter(self._topics))]


class FetchSize:
    """The size of the next fetch of one range, estimated from the bytes per offset so far."""

    def __init__(self, topic: str, sizes: OffsetSizes) -> None:
        self._topic = topic
        self._sizes = sizes
        self._own_sizes: _TopicSizes | None = None
        self._min_size = 0
        self._last_size = 0

    def ask(self, offsets: int, limit: int) -> int:
        """Return how many bytes to request for this number of offsets, at most `limit`."""
        self._last_size = max(1, min(limit, max(self._min_size, self._wanted(offsets))))
        return self._last_size

    def _wanted(self, offsets: int) -> int:
        sizes = self._own_sizes or self._sizes.of(self._topic)
        if sizes is None:
            return max(_MIN_FIRST_SIZE, min(_MAX_FIRST_SIZE, int(offsets * _DEFAULT_PER_OFFSET)))
        wanted = int(offsets * sizes.per_offset * _SPARE)
        # Brokers send whole batches, and a range may end within a batch.
        batches = sizes.batch
        if self._own_sizes is None:
            # The first fetch may start inside a batch; later fetches start at a batch.
            batches += min(sizes.batch, wanted) // 2
        return wanted + batches

    def served(self, nbytes: int, offsets: int, batch: int) -> None:
        """Store the sizes of a response: `nbytes` for `offsets` offsets, and `batch` bytes of its
        first batch."""
        # At least one batch fitted into the response, so the effect of `double()` ends.
        self._min_size = 0
        if nbytes and offsets > 0:
            self._own_sizes = _TopicSizes(nbytes / offsets, batch)
            self._sizes.learn(self._topic, self._own_sizes)

    def double(self, limit: int) -> bool:
        """Double the size of the next fetch, because no batch fitted into the last response. Return
        False if the last size was `limit` already."""
        self._min_size = 2 * self._last_size
        return self._last_size < limit
