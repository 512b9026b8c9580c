"""Where one assigned partition stands: what the application has, and what to ask brokers for. No
I/O."""

from __future__ import annotations

import enum
import math
from bisect import bisect_left
from collections.abc import Iterable
from typing import Protocol

from aiokafka._retry import MOST_PROMPT_ATTEMPTS, Backoff
from aiokafka.errors import (
    BrokerResponseError,
    IllegalStateError,
    KafkaError,
    OffsetOutOfRangeError,
)
from aiokafka.record.header import MOST_SPANS, Span
from aiokafka.structs import TopicPartition

__all__ = [
    "OUTDATED",
    "PATIENCE_WITH_UNKNOWN",
    "FetchCursor",
    "Home",
    "LeaderEpochs",
    "PartitionState",
    "Phase",
    "Retry",
    "StateWatcher",
]


# -- By which leader's epoch the records of one partition were written (KIP-320). No I/O


_UNKNOWN = -1


class LeaderEpochs:
    """What fetched batches said of their leader epochs.

    Written once for each record set fetched, and read by commits, so that it costs records nothing.
    Knows the offsets fetched in one go, from the latest seek or reset to the end of what is
    buffered; of all others it says "unknown", which a commit may always say.
    """

    __slots__ = ("_end", "_spans")

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._end = 0  # where the next fetch goes on

    def start_at(self, offset: int, epoch: int) -> None:
        """Begin at `offset`; the record before it is of this epoch, -1 if that is not known."""
        if epoch >= 0 and offset >= 0:
            self._spans = [(offset - 1, offset, epoch)]
            self._end = offset
        elif offset < 0:
            self._spans = []

    def note(self, asked: int, spans: Iterable[Span]) -> None:
        """Take in the batches that a fetch from the offset `asked` brought."""
        if asked > self._end:
            # What was passed over is unknown, and begins no later than the end of what is known.
            self._spans = []
        for span in spans:
            self._append(span)
        del self._spans[:-MOST_SPANS]
        self._end = self._spans[-1][1] if self._spans else asked

    def before(self, offset: int) -> int:
        """Return the leader epoch of the record before `offset`; -1 if it is not known."""
        index = bisect_left(self._spans, offset, key=_end_of)
        if index < len(self._spans):
            first, _, epoch = self._spans[index]
            if first < offset:
                return epoch
        return _UNKNOWN

    def _append(self, span: Span) -> None:
        first, end, epoch = span
        spans = self._spans
        # What is fetched again counts as it is now.
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


NO_OFFSET = -1
NO_EPOCH = -1
# Behind every position: no interceptor looks at records.
NOTHING_SHOWN = 2**63 - 1

_MOST_FORMER = 10  # topics by one name that a partition is remembered in

# Position, epoch of the record before it, `call` and `finished` of a PartitionState.
_Place = tuple[int, int, int, int]


class Phase(enum.Enum):
    """What has to happen before a partition can be fetched."""

    UNSET = "no position yet: committed offset or reset policy decide"
    RESETTING = "its position comes from ListOffsets"
    VALIDATING = "its position must be compared with a new leader's log (KIP-320)"
    READY = "can be fetched"
    RETIRED = "no longer assigned"


_TRANSITIONS = {
    Phase.UNSET: {Phase.UNSET, Phase.RESETTING, Phase.READY, Phase.RETIRED},
    Phase.RESETTING: {Phase.UNSET, Phase.RESETTING, Phase.READY, Phase.RETIRED},
    Phase.VALIDATING: {Phase.UNSET, Phase.VALIDATING, Phase.RESETTING, Phase.READY, Phase.RETIRED},
    Phase.READY: {Phase.UNSET, Phase.READY, Phase.RESETTING, Phase.VALIDATING, Phase.RETIRED},
    Phase.RETIRED: {Phase.RETIRED},
}


class StateWatcher(Protocol):
    """Hears of each change of a partition's fetchability (the Fetcher)."""

    def touch(self, state: PartitionState) -> None:
        """Look at the partition again."""

    def refuse_replica(self, state: PartitionState) -> None:
        """Move the partition back to its leader: the replica does not serve us."""


class FetchCursor:
    """What the next fetch of one partition asks for.

    Moves on with each response (`advance`), and with whatever makes the fetched data void: a new
    position (`start_at`), or the buffer's dropping of it (`rewind`). The buffer counts `queued`.
    """

    __slots__ = ("epochs", "leader_epoch", "offset", "offset_epoch", "queued")

    def __init__(self) -> None:
        self.offset = NO_OFFSET
        self.offset_epoch = NO_EPOCH  # leader epoch of the record before `offset`, or a later one
        self.epochs = LeaderEpochs()  # those of what was fetched
        self.leader_epoch = NO_EPOCH  # the leader's epoch that the position was checked against
        self.queued = 0  # fetched record sets the application has not finished

    def start_at(self, offset: int, offset_epoch: int = NO_EPOCH) -> None:
        """Ask from `offset` on."""
        self.offset = offset
        self.offset_epoch = offset_epoch
        self.epochs.start_at(offset, offset_epoch)

    def start_at_end(self, leader_epoch: int) -> None:
        """Note that `offset` is the end of the log of this leader, who has perhaps written nothing:
        the record before it may be of an older epoch, or of a format without epochs."""
        self.offset_epoch = leader_epoch

    def advance(self, end: int, spans: list[Span]) -> None:
        """Go on behind the batches up to `end`, of these leader epochs, which were fetched."""
        self.epochs.note(self.offset, spans)
        self.offset = end
        self.offset_epoch = spans[-1][2]

    def rewind(self, offset: int) -> None:
        """Ask again for what was fetched from `offset` on and dropped; a negative one changes
        nothing."""
        self.queued = 0
        if offset >= 0:
            self.offset = offset
            # A later epoch, of what was dropped, would be compared with a position that is not of
            # it. Without a better one it stays: "unknown" is for positions that were not fetched.
            epoch = self.epochs.before(offset)
            if epoch >= 0:
                self.offset_epoch = epoch

    def follow_leader(self, epoch: int) -> None:
        """Take the leader's log as the one that the position was checked against."""
        self.leader_epoch = epoch


class Home:
    """The broker that one partition is fetched from. Written by `Placement` alone."""

    __slots__ = ("node_id", "preferred", "preferred_until")

    def __init__(self) -> None:
        self.node_id: int | None = None
        self.preferred: int | None = None  # KIP-392: a closer replica named by the leader
        self.preferred_until = 0.0


# How often in a row a coordinator may call a partition unknown before its offset counts as missing.
# 1. A gateway such as Azure Event Hubs may respond so for a partition without a committed offset.
#    Apache Kafka did so in version 0 only, and takes any name since.
# 2. A coordinator that has not heard of a topic yet responds so as well, and may have an offset.
PATIENCE_WITH_UNKNOWN = 3

# Seconds after a request was due until the failure before it counts no more.
OUTDATED = 5.0


class Retry:
    """When one partition may be asked about again, in a fetch or for its position; since when and
    why that has failed."""

    __slots__ = (
        "_asked_by",
        "at",
        "doubts",
        "error",
        "error_at",
        "failures",
        "losses",
        "prompts",
        "since",
    )

    def __init__(self) -> None:
        self.at = 0.0
        self.since: float | None = (
            None  # when the first failure came (loop time); None: all is well
        )
        self.error: KafkaError | type[BrokerResponseError] | None = None  # the last failure
        self.error_at = 0.0
        self._asked_by = 0.0  # when the next request was due after the last failure
        self.failures = 0
        self.losses = 0  # positions in a row that were not in the log
        self.doubts = 0  # responses in a row that other brokers may contradict
        self.prompts = 0  # pauses after failures that ended early, since the last success

    def postpone(
        self,
        now: float,
        shortest: float,
        longest: float,
        error: KafkaError | type[BrokerResponseError] | None = None,
    ) -> None:
        """Ask no more for a while, after another failure. `error` is None if the application gets
        it: then the partition waits for nothing that the log has to tell.

        Times are rounded up, so that the many partitions of one broker are asked for together.
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
            self.blame(now, error, self.at)

    def begin(self, now: float) -> None:
        """Note that a request for the position is in flight, after no failure."""
        if self.failing_since(now) is None:
            self.since, self.error = now, None

    def blame(
        self, now: float, error: KafkaError | type[BrokerResponseError], again_at: float
    ) -> None:
        """Note what the partition waits for, until it is asked about again at `again_at`."""
        if self.failing_since(now) is None:
            self.since = now
        self.error = error
        self.error_at = now
        self._asked_by = again_at

    def failing_since(self, now: float) -> float | None:
        """Return since when the partition waits for a broker; None if it does not.

        A partition that was not asked about again in time waits for the application: it is paused,
        or what is buffered has to be read first. What a broker said before counts no more then.
        """
        is_outdated = self.error is not None and now > self._asked_by + OUTDATED
        return None if is_outdated else self.since

    def end_wait(self) -> None:
        """Ask at once after a failure: there is another broker to ask. Failures count on."""
        if self.failures and self.prompts < MOST_PROMPT_ATTEMPTS:
            self.prompts += 1
            self.at = 0.0

    def wait_until(self, at: float) -> None:
        """Ask no more until `at` (loop time)."""
        self.at = at

    def lose(self, now: float, shortest: float, longest: float) -> None:
        """Note that a position was not in the log. From the second in a row on, ask no more for a
        while: what the broker named before was not in its log either."""
        losses = self.losses
        self.losses += 1
        if losses:
            self.failures = losses - 1
            self.postpone(now, shortest, longest, OffsetOutOfRangeError)

    def note_doubt(self) -> None:
        """Note a response that other brokers may contradict: the leader's epoch is older than the
        position, or the coordinator does not know the partition."""
        self.doubts += 1

    def succeed(self) -> None:
        """Forget all failures: the broker has sent what was asked for."""
        self.failures = self.losses = self.doubts = self.prompts = 0
        self.since = self.error = None

    def start_again(self) -> None:
        """Ask at once: earlier trouble does not count for a new position."""
        self.at = 0.0
        self.failures = self.doubts = 0
        self.settle()

    def settle(self) -> None:
        """Note that the position is known. That is no progress while each is out of range."""
        if not self.losses:
            self.since = self.error = None


class PartitionState:
    """One assigned partition. The same object for as long as the partition stays assigned.

    `next_offset` and `taken` move with every record taken (FetchBuffer); everything else changes
    through the methods. Reading and fetching go by `next_offset`; `position` is where the
    application stands. They differ while interceptors look at records that were taken: `shown` is
    the offset of the first of these, and behind all others when there are none.

    `is_withheld`, which every record asks for, is true while the application has paused the
    partition, or has subscribed to other topics. `epoch` grows whenever data fetched so far became
    void: seek, reset, revocation. `finished` is the position before the records of call number
    `call`, the latest call that took any. `taken` counts the records that were taken. `topic_id` is
    the id of the topic that it is in; None before the metadata was looked at, or Kafka 2.8.
    `lost_at` is the position that the log did not have, while another one is looked up; else -1.
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
    reset_to: object
    cursor: FetchCursor
    home: Home
    retry: Retry
    watcher: StateWatcher | None
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
        self.reset_to = None  # an OffsetSpec while RESETTING
        self.cursor = FetchCursor()
        self.home = Home()
        self.retry = Retry()
        self.watcher = None
        self.highwater = None
        self.lso = None
        self.log_start = None
        self.timestamp = None
        self.topic_id = None
        self.lost_at = NO_OFFSET
        self._former: dict[bytes, _Place | None] = {}
        self._seen_taken = -1
        self._seen_at = 0.0

    def __repr__(self) -> str:
        return f"<PartitionState {self.tp} {self.phase.name} position={self.position}>"

    @property
    def position(self) -> int | None:
        """Offset of the next record that the application gets; None while it has to be found
        first."""
        return None if self.next_offset < 0 else min(self.next_offset, self.shown)

    @property
    def is_fetchable(self) -> bool:
        """Whether a fetch may ask for it now, buffer space and back-off aside."""
        return self.phase is Phase.READY and not self.is_withheld

    @property
    def needs_offset(self) -> bool:
        """Whether the OffsetResolver has work with it."""
        return self.phase in (Phase.UNSET, Phase.RESETTING, Phase.VALIDATING)

    @property
    def is_unset(self) -> bool:
        """Whether the committed offset, or the reset policy, has yet to say where to begin."""
        return self.phase is Phase.UNSET

    def is_in_store(self, offset: int) -> bool:
        """Return whether `offset` lies behind the position, and before what the next fetch asks
        for."""
        is_settled = self.phase is Phase.READY and self.shown == NOTHING_SHOWN
        return is_settled and self.next_offset < offset < self.cursor.offset

    def end(self, read_committed: bool) -> int | None:
        """Return the offset after the last record that can be read, as of the last fetch; None
        before.

        It is never before the position. A server may name an end before records that it has sent:
        a replica that lags, or Azure Event Hubs, whose last stable offset is that of the last
        record.
        """
        end = self.lso if read_committed else self.highwater
        return None if end is None else max(end, self.next_offset)

    def lag(self, read_committed: bool) -> int | None:
        """Return the offsets from the position to the end; None while either is unknown."""
        end, position = self.end(read_committed), self.position
        return None if end is None or position is None else end - position

    def finished_before(self, call: int) -> int:
        """Return the position up to which the application is done, seen from within call number
        `call`."""
        return self.finished if self.call == call else min(self.next_offset, self.shown)

    def is_idle(self, now: float, seconds: float) -> bool:
        """Return whether no record was taken for so long, as far as these looks tell."""
        if self._seen_taken != self.taken:
            self._seen_taken, self._seen_at = self.taken, now
        return now >= self._seen_at + seconds

    def epoch_before(self, offset: int) -> int:
        """Return the leader epoch of the record before `offset`, to be committed with it; -1 if
        unknown."""
        epoch: int = self.cursor.epochs.before(offset)
        return epoch

    def seek_to_committed(self, offset: int, offset_epoch: int) -> None:
        """Continue at a committed offset. If the leader is not the one that it was read from, have
        its log compared first: it may have been cut since, or be that of a leader of before."""
        self.seek(offset, offset_epoch)
        if min(offset_epoch, self.cursor.leader_epoch) >= 0 and (
            offset_epoch != self.cursor.leader_epoch
        ):
            self.begin_validation(self.cursor.leader_epoch)

    def seek(self, offset: int, offset_epoch: int = NO_EPOCH) -> None:
        """Continue at `offset`; what was fetched is void."""
        self._transition(Phase.READY)
        self.reset_to = None
        self.lost_at = NO_OFFSET
        # All that is on its way is void from here on: responses and look-ups compare it.
        self.epoch += 1
        self.next_offset = offset
        self.shown = NOTHING_SHOWN
        self.call = 0
        self.cursor.start_at(offset, offset_epoch)
        self.retry.start_again()
        self.changed()

    def skip_to(self, offset: int) -> None:
        """Seek forward to `offset`, which was fetched already: fetches go on where they were."""
        self.epoch += 1
        self.next_offset = offset
        self.call = 0
        self.changed()

    def put_back(self, offset: int) -> None:
        """Move the position back to the first of the records that were taken and did not reach the
        application; what was fetched is void. A comparison with a new leader's log goes on."""
        self.epoch += 1
        self.next_offset = offset
        self.call = 0
        self.cursor.rewind(offset)
        self.changed()

    def reset(self, spec: object) -> None:
        """Forget the position; `spec` (an OffsetSpec, None for the configured policy) says how to
        find one."""
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

    # A position is also moved without the application's asking: by the reset policy, or because the
    # log was cut. Then what it has in hand is not finished by that.

    def move(self, offset: int, offset_epoch: int) -> None:
        """Seek without the application's wish: records that it is still working on stay
        unfinished, and those that interceptors look at are still to come."""
        # `seek()` takes all of them for finished: the application has asked for other records
        # itself.
        call, finished, shown = self.call, self.finished, self.shown
        self.seek(offset, offset_epoch)
        self.call, self.finished, self.shown = call, min(finished, offset), shown

    def lose(self, spec: object) -> None:
        """Reset without the application's wish: records that it is still working on stay
        unfinished."""
        call, offset = self.call, self.next_offset
        self.reset(spec)
        self.call, self.lost_at = call, offset

    # Several topics can have the name, one after the other, and a broker that lags behind shows a
    # former one again.

    def change_topic(self, topic_id: bytes, is_new: bool) -> bool:
        """Go on where it stood in the topic with this id, and remember where it stands in the one
        that it is in. Return False if that has to be looked up: the topic is new, or was left
        before a position was known."""
        before, self.topic_id = self.topic_id, topic_id
        if before is None or before == topic_id:
            return not is_new  # the partition has just been assigned
        if not is_new and topic_id not in self._former:
            return True  # it stays where it is, as nothing else is known
        self._leave(before)
        place = self._former.pop(topic_id, None)
        if place is None:
            return False
        offset, epoch, call, finished = place
        self.cursor.start_at(NO_OFFSET)  # epochs of the log that it leaves say nothing of this one
        self.seek(offset, epoch)
        self.call, self.finished = call, finished
        return True

    def forget_former(self) -> None:
        """Take no position in another topic for the application's: it is about to seek."""
        self._former.clear()

    def _leave(self, topic_id: bytes) -> None:
        place = None
        if self.position is not None:
            epoch = self.cursor.offset_epoch
            if self.position != self.cursor.offset:
                epoch = self.epoch_before(self.position)
            place = (self.position, epoch, self.call, self.finished)
        self._former[topic_id] = place
        if len(self._former) > _MOST_FORMER:
            del self._former[next(iter(self._former))]

    # Records that were taken pass through interceptors, which may take long: `show()`, then
    # `hand_over()` or `give_back()`. Only one call does so at a time.

    def show(self, offset: int) -> None:
        """Let the position stand before the records from `offset` on: interceptors look at them.

        Whatever commits positions meanwhile (a ParallelConsumer, a listener) would otherwise commit
        records that the application has not got.
        """
        self.shown = offset

    def hand_over(self, call: int) -> None:
        """Move the position behind the records: the application gets them, after the begin of call
        number `call`."""
        # What a rebalance took away is not handed over. Its position may still be committed.
        if self.phase is not Phase.RETIRED and self.shown != NOTHING_SHOWN:
            self.shown = NOTHING_SHOWN
            # A call that another task has begun meanwhile says nothing about these records.
            self.call = call

    def give_back(self, count: int) -> None:
        """Let the next call take the `count` records again, unless the application has sought, or
        the position was lost."""
        if self.phase is Phase.RETIRED:
            return
        self.taken -= count
        if self.shown != NOTHING_SHOWN:
            offset = min(self.next_offset, self.shown)
            self.shown = NOTHING_SHOWN
            self.put_back(offset)

    def begin_validation(self, leader_epoch: int) -> None:
        """Stop fetching until the log of a new leader is compared with what was fetched
        (KIP-320)."""
        self._transition(Phase.VALIDATING)
        self.cursor.follow_leader(leader_epoch)
        self.changed()

    def end_validation(self) -> None:
        """Fetch again: the new leader has what was fetched."""
        self._transition(Phase.READY)
        self.retry.settle()
        self.changed()

    def note_ends(
        self, highwater: int | None, lso: int | None, log_start: int | None, timestamp: int
    ) -> None:
        """Take what a fetch response says of the log, answered at `timestamp` (ms since 1970)."""
        self.highwater = highwater
        self.lso = lso
        self.log_start = log_start
        self.timestamp = timestamp

    def pause(self) -> None:
        """Let no more records of the partition be returned."""
        self.paused = True
        self._weigh()

    def resume(self) -> None:
        """Let records be returned again."""
        self.paused = False
        self._weigh()

    def want(self, is_wanted: bool) -> None:
        """Let records be returned or not, as the application has subscribed to the topic."""
        if is_wanted != self.is_wanted:
            self.is_wanted = is_wanted
            self._weigh()

    def _weigh(self) -> None:
        self.is_withheld = self.paused or not self.is_wanted
        self.changed()

    def retire(self) -> None:
        """End the state: the partition is no longer ours, late responses and buffered data are
        void."""
        self._transition(Phase.RETIRED)
        self.epoch += 1
        self.changed()

    def leave_replica(self) -> bool:
        """Read from the leader, if it is a replica that the partition is read from; return whether
        it is."""
        if self.home.preferred is None or self.watcher is None:
            return False
        self.watcher.refuse_replica(self)
        return True

    def changed(self) -> None:
        """Tell the watcher that the partition's fetchability may have changed."""
        if self.watcher is not None:
            self.watcher.touch(self)

    def _transition(self, phase: Phase) -> None:
        if phase not in _TRANSITIONS[self.phase]:
            raise IllegalStateError(f"{self.tp}: {self.phase.name} cannot become {phase.name}")
        self.phase = phase
