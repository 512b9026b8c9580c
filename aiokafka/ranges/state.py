"""The progress of one range, and the kinds of loss on the way. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from aiokafka._backoff import MOST_PROMPT_ATTEMPTS, Backoff
from aiokafka._reading.answers import MAX_OFFSET
from aiokafka.errors import KafkaError, KafkaTimeoutError
from aiokafka.ranges.sizing import FetchSize, OffsetSizes
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._metadata.topic_info import PartitionInfo
    from aiokafka.cluster import ClusterMetadata

__all__ = [
    "DataLoss",
    "DataLossError",
    "LossKind",
    "PartitionRange",
    "RangePhase",
    "RangeState",
    "checked",
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
