"""The state of one assigned partition: position, fetch offset, fetch target and retries. No I/O."""

from __future__ import annotations

import enum
import math
from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiokafka._retry import MOST_PROMPT_ATTEMPTS, Backoff
from aiokafka.errors import (
    BrokerResponseError,
    IllegalStateError,
    KafkaError,
    OffsetOutOfRangeError,
)
from aiokafka.record.header import MOST_SPANS, Span
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka.consumer.fetch.fetcher import Fetcher

__all__ = [
    "OUTDATED",
    "PATIENCE_WITH_UNKNOWN",
    "FetchCursor",
    "FetchTarget",
    "LeaderEpochs",
    "PartitionState",
    "Phase",
    "Retry",
]


NO_OFFSET = -1
NO_EPOCH = -1
# The value of `shown` while no interceptor processes records: larger than any position.
NOTHING_SHOWN = 2**63 - 1

# Largest number of former topics of one name for which a partition keeps a position; beyond that,
# the oldest position is dropped.
_MOST_FORMER = 10

# A position in a former topic of the same name: the offset, the leader epoch of the record before
# the offset, and the fields `call` and `finished` of the PartitionState.
_FormerPosition = tuple[int, int, int, int]


class LeaderEpochs:
    """The leader epochs of the fetched batches of one partition (KIP-320).

    Updated once per fetched record set, and read by commits. Keeps the last `MOST_SPANS` epochs up
    to the end of the buffered records. A reset, a seek with a leader epoch, and a seek over offsets
    that were not fetched drop all earlier epochs. The epoch of any other offset is -1 (unknown),
    which is valid in a commit.
    """

    __slots__ = ("_end", "_spans")

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._end = 0  # offset of the next fetch

    def start_at(self, offset: int, epoch: int) -> None:
        """Continue at `offset` after a seek, with the leader epoch of the record before `offset`;
        without an epoch (-1), keep the known epochs. A reset (`offset` -1) drops all epochs."""
        if epoch >= 0 and offset >= 0:
            self._spans = [(offset - 1, offset, epoch)]
            self._end = offset
        elif offset < 0:
            self._spans = []

    def note(self, asked: int, spans: Iterable[Span]) -> None:
        """Add the leader epochs of the batches that a fetch from the offset `asked` returned."""
        if asked > self._end:
            # The epochs of the skipped offsets are unknown. Drop all spans before this gap.
            self._spans = []
        for span in spans:
            self._append(span)
        del self._spans[:-MOST_SPANS]
        self._end = self._spans[-1][1] if self._spans else asked

    def before(self, offset: int) -> int:
        """Return the leader epoch of the record before `offset`; -1 if it is unknown."""
        spans = self._spans
        # The last span has the latest fetched records. Compare `offset` with the start of this span
        # first, so that a reader near the end of the log needs no search.
        index = len(spans) - 1
        if index > 0 and offset <= spans[index][0]:
            index = bisect_left(spans, offset, key=_end_of)
        if index >= 0:
            first, end, epoch = spans[index]
            if first < offset <= end:
                return epoch
        return NO_EPOCH

    def _append(self, span: Span) -> None:
        first, end, epoch = span
        spans = self._spans
        # The epochs of a repeated fetch replace the known epochs of the same offsets.
        while spans and spans[-1][0] >= first:
            spans.pop()
        if spans:
            its_first, its_end, its_epoch = spans[-1]
            if its_epoch == epoch:
                first = its_first
                spans.pop()
            elif its_end > first:
                spans[-1] = (its_first, first, its_epoch)
        spans.append((first, end, epoch))


def _end_of(span: Span) -> int:
    return span[1]


class Phase(enum.Enum):
    """The state of a partition's position: what must happen before the partition is fetched."""

    UNSET = "no position: the committed offset or the reset policy gives one"
    RESETTING = "ListOffsets gives the position"
    VALIDATING = "the position must be compared with a new leader's log (KIP-320)"
    OUT_OF_RANGE = "the leader's log lacks the position; whether it is the leader is checked"
    READY = "can be fetched"
    RETIRED = "no longer assigned"


# Constants, because Python 3.11 looks up members of an enum with a slow Python function.
_RETIRED = Phase.RETIRED
_READY = Phase.READY

_TRANSITIONS = {
    Phase.UNSET: {Phase.UNSET, Phase.RESETTING, Phase.READY, Phase.RETIRED},
    Phase.RESETTING: {Phase.UNSET, Phase.RESETTING, Phase.READY, Phase.RETIRED},
    Phase.VALIDATING: {Phase.UNSET, Phase.VALIDATING, Phase.RESETTING, Phase.READY, Phase.RETIRED},
    Phase.OUT_OF_RANGE: {
        Phase.UNSET,
        Phase.RESETTING,
        Phase.VALIDATING,
        Phase.READY,
        Phase.RETIRED,
    },
    Phase.READY: {
        Phase.UNSET,
        Phase.READY,
        Phase.RESETTING,
        Phase.VALIDATING,
        Phase.OUT_OF_RANGE,
        Phase.RETIRED,
    },
    Phase.RETIRED: {Phase.RETIRED},
}


class FetchCursor:
    """The offset and epoch of one partition's next fetch.

    Changes with each response (`advance`), with a new position (`start_at`) and when the buffer
    drops records (`rewind`). Only the FetchBuffer writes `queued`.
    """

    __slots__ = ("epochs", "leader_epoch", "offset", "offset_epoch", "queued")

    def __init__(self) -> None:
        self.offset = NO_OFFSET
        # Leader epoch of the record before `offset`, or a later epoch (`start_at_end`, `rewind`).
        self.offset_epoch = NO_EPOCH
        self.epochs = LeaderEpochs()  # leader epochs of the fetched records
        self.leader_epoch = NO_EPOCH  # epoch of the leader that validates the position
        self.queued = 0  # unread record sets

    def start_at(self, offset: int, offset_epoch: int = NO_EPOCH) -> None:
        """Set the offset of the next fetch, after a seek or reset."""
        self.offset = offset
        self.offset_epoch = offset_epoch
        self.epochs.start_at(offset, offset_epoch)

    def start_at_end(self, leader_epoch: int) -> None:
        """Set `offset_epoch` to the epoch of the leader, for a position at the end of the log. (If
        no record was written since the leader was elected, the record before the position has an
        older epoch.)"""
        self.offset_epoch = leader_epoch

    def advance(self, end: int, spans: list[Span]) -> None:
        """Move to `end`, the offset after the fetched batches. `spans`: their leader epochs."""
        self.epochs.note(self.offset, spans)
        self.offset = end
        self.offset_epoch = spans[-1][2]

    def rewind(self, offset: int) -> None:
        """Fetch again from `offset` on, after the buffer has dropped the records of the partition.
        If `offset` is negative (the partition has no position), do not change the fetch offset."""
        self.queued = 0
        if offset >= 0:
            self.offset = offset
            # Replace the epoch of the dropped records by the epoch of the record before `offset`.
            # If this epoch is unknown, keep the epoch of the dropped records: with -1, the position
            # would not be validated after a change of the leader.
            epoch = self.epochs.before(offset)
            if epoch >= 0:
                self.offset_epoch = epoch

    def follow_leader(self, epoch: int) -> None:
        """Set the epoch of the leader that has validated the position, or will validate it."""
        self.leader_epoch = epoch


class FetchTarget:
    """The broker that one partition is fetched from. Written by `FetchTargets` only."""

    __slots__ = ("node_id", "preferred", "preferred_until")

    def __init__(self) -> None:
        self.node_id: int | None = None
        self.preferred: int | None = None  # preferred read replica, from the leader (KIP-392)
        self.preferred_until = 0.0  # loop time at which `preferred` expires


# After more than this many OffsetFetch responses in a row with UNKNOWN_TOPIC_OR_PARTITION or
# UNKNOWN_TOPIC_ID, a partition counts as one without a committed offset.
# - Gateways such as Azure Event Hubs return UNKNOWN_TOPIC_OR_PARTITION for a partition without a
#   committed offset, as Apache Kafka does in OffsetFetch version 0.
# - A coordinator whose metadata lacks the topic returns UNKNOWN_TOPIC_ID (version 10 and later),
#   although the partition may have a committed offset.
PATIENCE_WITH_UNKNOWN = 3

# If a retry is overdue by this many seconds, nothing needs the partition, for example because it is
# paused. Then the partition no longer counts as failing.
OUTDATED = 5.0


class Retry:
    """Backoff of one partition's requests (fetches and look-ups of the position), and the time and
    cause of their failures."""

    __slots__ = (
        "_due_at",
        "at",
        "doubts",
        "error",
        "error_at",
        "failures",
        "losses",
        "prompts",
        "resets",
        "since",
    )

    def __init__(self) -> None:
        self.at = 0.0  # loop time before which no request is sent
        # Loop time at which the wait for a broker began: at the start of a request for the position
        # (`begin`), or at the first failure. None if there is no such wait (see `failing_since`).
        self.since: float | None = None
        self.error: KafkaError | type[BrokerResponseError] | None = None  # the last failure
        self.error_at = 0.0
        self._due_at = 0.0  # when the retry after the last failure was due
        self.failures = 0
        self.losses = 0  # consecutive OFFSET_OUT_OF_RANGE errors
        self.resets = 0  # resets of the position after such errors, since the last success
        self.doubts = 0  # consecutive responses that other brokers may contradict
        self.prompts = 0  # backoffs that ended early since the last success

    def postpone(
        self,
        now: float,
        shortest: float,
        longest: float,
        error: KafkaError | type[BrokerResponseError] | None = None,
    ) -> None:
        """Back off after a failure. `error`: the failure for `health()` and the log; None if a call
        of the application raises the error. `shortest`, `longest`: backoffs in seconds.

        The time of the retry is rounded up to a multiple of `shortest`, so that the retries of many
        partitions of one broker share a request.
        """
        backoff = Backoff(shortest, longest)
        backoff.failures = self.failures
        self.failures += 1
        self.at = now + backoff.next()
        if shortest > 0:
            self.at = math.ceil(self.at / shortest) * shortest
        if error is None:
            self.since = None
        else:
            self.record_failure(now, error, self.at)

    def begin(self, now: float) -> None:
        """Record that a request for the position begins, unless an earlier request has failed."""
        if self.failing_since(now) is None:
            self.since, self.error = now, None

    def record_failure(
        self, now: float, error: KafkaError | type[BrokerResponseError], again_at: float
    ) -> None:
        """Record the failure that delays requests for the partition. The retry is due at `again_at`
        (loop time)."""
        if self.failing_since(now) is None:
            self.since = now
        self.error = error
        self.error_at = now
        self._due_at = again_at

    def failing_since(self, now: float) -> float | None:
        """Return the loop time since which the partition waits for a broker, or None.

        If the retry is overdue by `OUTDATED` seconds, the partition does not wait for a broker: it
        is paused, or the application has to read buffered records first. Then the last failure is
        irrelevant.
        """
        is_outdated = self.error is not None and now > self._due_at + OUTDATED
        return None if is_outdated else self.since

    def end_wait(self) -> None:
        """End the backoff early, because the leader has changed. Until the next success, only the
        first `MOST_PROMPT_ATTEMPTS` calls have an effect. `failures` is kept."""
        if self.failures and self.prompts < MOST_PROMPT_ATTEMPTS:
            self.prompts += 1
            self.at = 0.0

    def wait_until(self, at: float) -> None:
        """Send no request before `at` (loop time)."""
        self.at = at

    def lose(self, now: float, shortest: float, longest: float) -> None:
        """Count an OFFSET_OUT_OF_RANGE error. From the second in a row on, back off: after the
        first, the OffsetResolver has checked or reset the position, so an immediate retry may fail,
        too."""
        losses = self.losses
        self.losses += 1
        if losses:
            self.failures = losses - 1
            self.postpone(now, shortest, longest, OffsetOutOfRangeError)

    def note_doubt(self) -> None:
        """Count a response that may come from a broker with outdated metadata: the leader has an
        older epoch than the position, the other brokers do not confirm that the sender is the
        leader, or the coordinator does not know the partition."""
        self.doubts += 1

    def succeed(self) -> None:
        """Forget all failures after a successful response."""
        self.failures = self.losses = self.resets = self.doubts = self.prompts = 0
        self.since = self.error = None

    def start_again(self) -> None:
        """End the backoff, because earlier failures are irrelevant for a new position."""
        self.at = 0.0
        self.failures = self.doubts = 0
        self.settle()

    def settle(self) -> None:
        """Forget the failure, because the position is known; but keep it if the last position was
        out of range: the new position may be out of range, too."""
        if not self.losses:
            self.since = self.error = None


class PartitionState:
    """One assigned partition. The object stays the same as long as the partition is assigned.

    The FetchBuffer writes `next_offset`, `taken`, `call` and `finished` with every record read; all
    other changes go through methods.

    - `next_offset`: offset of the next record to read; -1 if unknown. `position` is the same
      offset, except while interceptors process records: then it is `shown`, the offset of the first
      of these records.
    - `epoch`: grows with each seek, reset or revocation: data fetched for an earlier epoch is
      dropped.
    - `is_withheld`: the partition is paused, or its topic is no longer subscribed to.
    - `is_fetchable`: READY and not withheld. Such a partition is fetched unless it backs off or has
      enough buffered records.
    - `needs_offset`: the OffsetResolver has to find or to check the position.
    - `call`: number of the latest call of `getone()` or `getmany()` that returned records of the
      partition; 0 if no call did.
    - `finished`: offset of the first record that this call returned. It may be larger than the
      position before the call, because transaction markers have offsets, too.
    - `taken`: number of records read.
    - `topic_id`: id of the topic; None before the first metadata, and before Kafka 2.8.
    - `lost_at`: the position that was out of range, until the reset is complete; else -1.
    """

    tp: TopicPartition
    next_offset: int
    shown: int
    epoch: int
    paused: bool
    is_wanted: bool
    is_withheld: bool
    call: int
    finished: int
    taken: int
    phase: Phase
    is_fetchable: bool
    needs_offset: bool
    reset_to: object
    cursor: FetchCursor
    target: FetchTarget
    retry: Retry
    fetcher: Fetcher | None
    highwater: int | None
    lso: int | None
    log_start: int | None
    timestamp: int | None
    topic_id: bytes | None
    lost_at: int

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.next_offset = NO_OFFSET
        self.shown = NOTHING_SHOWN
        self.epoch = 0
        self.paused = False
        self.is_wanted = True
        self.is_withheld = False
        self.call = 0
        self.finished = NO_OFFSET
        self.taken = 0
        self.phase = Phase.UNSET
        self.is_fetchable = False
        self.needs_offset = True
        self.reset_to = None  # an OffsetSpec while RESETTING
        self.cursor = FetchCursor()
        self.target = FetchTarget()
        self.retry = Retry()
        self.fetcher = None
        self.highwater = None
        self.lso = None
        self.log_start = None
        self.timestamp = None
        self.topic_id = None
        self.lost_at = NO_OFFSET
        self._former: dict[bytes, _FormerPosition | None] = {}
        self._seen_taken = -1
        self._seen_at = 0.0

    def __repr__(self) -> str:
        return f"<PartitionState {self.tp} {self.phase.name} position={self.position}>"

    @property
    def position(self) -> int | None:
        """Offset of the next record for the application; None if there is no position."""
        return None if self.next_offset < 0 else min(self.next_offset, self.shown)

    @property
    def is_unset(self) -> bool:
        """Whether the position has to come from the committed offset or the reset policy."""
        return self.phase is Phase.UNSET

    def is_retired(self) -> bool:
        """Return whether the partition was revoked."""
        return self.phase is _RETIRED

    def is_buffered(self, offset: int) -> bool:
        """Return whether `offset` is after the position and before the offset of the next fetch.
        False also if the position is not READY, or interceptors process records."""
        is_settled = self.phase is Phase.READY and self.shown == NOTHING_SHOWN
        return is_settled and self.next_offset < offset < self.cursor.offset

    def end(self, read_committed: bool) -> int | None:
        """Return the offset after the last readable record, as of the last fetch; None before the
        first fetch.

        The result is at least the position: a lagging replica may report an end before records that
        were already fetched, and Azure Event Hubs reports the offset of the last record as the last
        stable offset.
        """
        end = self.lso if read_committed else self.highwater
        return None if end is None else max(end, self.next_offset)

    def lag(self, read_committed: bool) -> int | None:
        """Return the number of offsets from the position to the end; None if either is unknown."""
        end, position = self.end(read_committed), self.position
        return None if end is None or position is None else end - position

    def finished_before(self, call: int) -> int:
        """Return the offset before which the application has finished all records. `call`: number
        of the latest call of `getone()` or `getmany()`. If this call has returned records of the
        partition, they are unfinished, and the result is the offset of the first of them. Otherwise
        the result is the position; -1 if unknown."""
        return self.finished if self.call == call else min(self.next_offset, self.shown)

    def is_idle(self, now: float, seconds: float) -> bool:
        """Return whether no record was read for `seconds` before `now`. Only calls of this method
        notice that records were read, so the time begins with the first call after the last read.
        """
        if self._seen_taken != self.taken:
            self._seen_taken, self._seen_at = self.taken, now
        return now >= self._seen_at + seconds

    def epoch_before(self, offset: int) -> int:
        """Return the leader epoch of the record before `offset`, for a commit; -1 if unknown."""
        epoch: int = self.cursor.epochs.before(offset)
        return epoch

    def seek_to_committed(self, offset: int, offset_epoch: int) -> None:
        """Continue at a committed offset. If its epoch and the leader's are known and differ,
        validate the offset first: the log may have been truncated since the commit, or the metadata
        may be outdated."""
        self.seek(offset, offset_epoch)
        if min(offset_epoch, self.cursor.leader_epoch) >= 0 and (
            offset_epoch != self.cursor.leader_epoch
        ):
            self.begin_validation(self.cursor.leader_epoch)

    def seek(self, offset: int, offset_epoch: int = NO_EPOCH) -> None:
        """Continue at `offset`; all fetched records are dropped."""
        self._transition(Phase.READY)
        self.reset_to = None
        self.lost_at = NO_OFFSET
        # From here on, responses to in-flight fetches and look-ups are ignored: their requests
        # belong to the previous epoch.
        self.epoch += 1
        self.next_offset = offset
        self.shown = NOTHING_SHOWN
        self.call = 0
        self.cursor.start_at(offset, offset_epoch)
        self.retry.start_again()
        self.changed()

    def skip_to(self, offset: int) -> None:
        """Seek forward to `offset`, whose record is buffered; the next fetch stays the same."""
        self.epoch += 1
        self.next_offset = offset
        self.call = 0
        self.changed()

    def put_back(self, offset: int) -> None:
        """Move the position back to `offset`, the first record that was read but not returned to
        the application. The buffered records of the partition are dropped, and fetched again from
        `offset` on. A pending validation of the position continues."""
        self.epoch += 1
        self.next_offset = offset
        self.call = 0
        self.cursor.rewind(offset)
        self.changed()

    def reset(self, spec: object) -> None:
        """Drop the position, and look up a new position by `spec`: an OffsetSpec, or None for the
        committed offset and the configured policy."""
        self._transition(Phase.UNSET if spec is None else Phase.RESETTING)
        self.reset_to = spec
        self.lost_at = NO_OFFSET
        self.epoch += 1
        self.next_offset = NO_OFFSET
        self.shown = NOTHING_SHOWN
        self.call = 0
        self.cursor.start_at(NO_OFFSET)
        self.retry.start_again()
        self.changed()

    # `move()` and `lose()` change the position after a truncation of the log, or by the reset
    # policy. The application may be processing records, and does not know about the change. Unlike
    # `seek()`, both methods leave these records unfinished, so that auto-commit excludes them.

    def move(self, offset: int, offset_epoch: int) -> None:
        """Seek, although the application has not called `seek()`. Records that the application is
        processing stay unfinished, and records in interceptors are still returned."""
        call, finished, shown = self.call, self.finished, self.shown
        self.seek(offset, offset_epoch)
        self.call, self.finished, self.shown = call, min(finished, offset), shown

    def lose(self, spec: object) -> None:
        """Reset, because the position is not in the log. Records that the application is processing
        stay unfinished. `spec`: as for `reset()`."""
        call, offset = self.call, self.next_offset
        self.reset(spec)
        self.call, self.lost_at = call, offset

    # A topic may be recreated under its name, and later a broker with outdated metadata may return
    # the id of the deleted topic again. So a partition keeps one position per topic id.

    def change_topic(self, topic_id: bytes, is_new: bool) -> bool:
        """Switch to the topic with the id `topic_id`: store the position in the present topic, and
        continue at the position that was stored for `topic_id`. If the id was seen before (`is_new`
        is False), but nothing is stored for it, keep the present position. Return whether the
        position is valid now: False for a new id, and if the partition had no position in the topic
        with the id.
        """
        before, self.topic_id = self.topic_id, topic_id
        if before is None or before == topic_id:
            return not is_new  # the partition has just been assigned
        if not is_new and topic_id not in self._former:
            return True  # keep the position: no other position is known
        self._leave(before)
        former = self._former.pop(topic_id, None)
        if former is None:
            return False
        offset, epoch, call, finished = former
        self.cursor.start_at(NO_OFFSET)  # the epochs belong to the other topic's log
        self.seek(offset, epoch)
        self.call, self.finished = call, finished
        return True

    def forget_former(self) -> None:
        """Drop the positions in former topics of this name, because the application seeks."""
        self._former.clear()

    def _leave(self, topic_id: bytes) -> None:
        former = None
        if self.position is not None:
            epoch = self.cursor.offset_epoch
            if self.position != self.cursor.offset:
                epoch = self.epoch_before(self.position)
            former = (self.position, epoch, self.call, self.finished)
        self._former[topic_id] = former
        if len(self._former) > _MOST_FORMER:
            del self._former[next(iter(self._former))]

    # Interceptors and deserializers may be `async`. `show()` is called while records wait for them,
    # and afterwards `hand_over()` or `give_back()`. One call of the application at a time does so.

    def show(self, offset: int, count: int) -> None:
        """Make `position` return `offset` (or an earlier offset, if it already does) until
        `hand_over()` or `give_back()`. Called while interceptors process the `count` records from
        `offset` on, or later records are deserialized.

        A commit by a rebalance listener or a ParallelConsumer must not include records that the
        application does not have yet. If these are the first records that are read from the
        partition, `call` is 0 until `hand_over()`: if the partition is revoked before, the next
        commit must not fail because of records that the application did not get.
        """
        self.shown = min(self.shown, offset)
        if self.taken == count:
            self.call = 0

    def hand_over(self, call: int) -> None:
        """Move the position behind the intercepted records, because they are returned to the
        application now. `call`: number of the latest call of `getone()` or `getmany()`."""
        # Keep the position of a revoked partition, whose records are not returned: the position may
        # still be committed.
        if self.shown != NOTHING_SHOWN and not self.is_retired():
            self.shown = NOTHING_SHOWN
            # Use the number of the latest call: if another task has started a call during the
            # interception, that call has not finished these records.
            self.call = call

    def give_back(self, count: int) -> None:
        """Make the next call return the `count` intercepted records again: move the position back,
        unless a seek or reset has moved it already. Do nothing for a revoked partition."""
        if self.phase is Phase.RETIRED:
            return
        self.taken -= count
        if self.shown != NOTHING_SHOWN:
            offset = min(self.next_offset, self.shown)
            self.shown = NOTHING_SHOWN
            # An earlier call has returned the records before `offset`, and they may be uncommitted.
            # So set `call` to the number of an earlier call: 0 means that no record was returned.
            earlier = self.call - 1 if self.taken else 0
            self.put_back(offset)
            self.call = earlier

    def begin_validation(self, leader_epoch: int) -> None:
        """Fetch nothing until the position was compared with the log of a new leader (KIP-320)."""
        self._transition(Phase.VALIDATING)
        self.cursor.follow_leader(leader_epoch)
        self.changed()

    def begin_check(self) -> None:
        """Fetch nothing until the OffsetResolver has found out whether the position, which was out
        of range, is lost."""
        self._transition(Phase.OUT_OF_RANGE)
        self.changed()

    def end_validation(self) -> None:
        """Fetch again from the same position: the leader's log contains the records before the
        position, or the leader does not support the comparison."""
        self._transition(Phase.READY)
        self.retry.settle()
        self.changed()

    def note_ends(
        self, highwater: int | None, lso: int | None, log_start: int | None, timestamp: int
    ) -> None:
        """Store both ends of the log from a fetch response of `timestamp` (ms since 1970)."""
        self.highwater = highwater
        self.lso = lso
        self.log_start = log_start
        self.timestamp = timestamp

    def pause(self) -> None:
        """Return no records of the partition until `resume()`."""
        if not self.paused:
            self.paused = True
            self._update_withheld()

    def resume(self) -> None:
        """Return records of the partition again."""
        if self.paused:
            self.paused = False
            self._update_withheld()

    def want(self, is_wanted: bool) -> None:
        """Set whether the application is subscribed to the topic. If it is not, no records of the
        partition are returned."""
        if is_wanted != self.is_wanted:
            self.is_wanted = is_wanted
            self._update_withheld()

    def _update_withheld(self) -> None:
        self.is_withheld = self.paused or not self.is_wanted
        self.is_fetchable = self.phase is _READY and not self.is_withheld
        if self.fetcher is not None:
            self.fetcher.on_withheld(self)

    def retire(self) -> None:
        """Revoke the partition: buffered records are dropped, and late responses ignored."""
        self._transition(Phase.RETIRED)
        self.epoch += 1
        self.changed()

    def leave_replica(self) -> bool:
        """Fetch from the leader instead of the preferred replica; return whether there was a
        preferred replica."""
        if self.target.preferred is None or self.fetcher is None:
            return False
        self.fetcher.refuse_replica(self)
        return True

    def changed(self) -> None:
        """Notify the Fetcher of a change of the partition."""
        if self.fetcher is not None:
            self.fetcher.touch(self)

    def _transition(self, phase: Phase) -> None:
        if phase not in _TRANSITIONS[self.phase]:
            raise IllegalStateError(f"{self.tp}: {self.phase.name} cannot become {phase.name}")
        self.phase = phase
        self.is_fetchable = phase is Phase.READY and not self.is_withheld
        self.needs_offset = phase not in (Phase.READY, Phase.RETIRED)
