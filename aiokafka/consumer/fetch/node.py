"""Fetches from one broker: the plan of each request, and the handling of its response."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from aiokafka import _clock
from aiokafka._compat import timeout
from aiokafka._log import SubjectLog
from aiokafka._reading import (
    CutShort,
    Failed,
    Failure,
    Fetched,
    FetchSpec,
    Nothing,
    NotNow,
    OldEpochs,
    OutOfRange,
    doubts_metadata,
    is_passing,
    named_brokers,
    named_leader,
    read_answer,
    room_for_records,
)
from aiokafka._retry import Backoff
from aiokafka.consumer._arguments import some_names
from aiokafka.consumer._partition_state import OUTDATED, PartitionState
from aiokafka.consumer._shared import Signal
from aiokafka.consumer.fetch.buffer import Frame
from aiokafka.consumer.fetch.session import FetchSession
from aiokafka.errors import (
    BrokerResponseError,
    KafkaError,
    KafkaProtocolError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
    UnknownError,
    UnsupportedVersionError,
    for_code,
    renewed,
)
from aiokafka.net.pool import ConnectionGroup
from aiokafka.protocol.framing import FrameTooLargeError
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.record.reader import RecordReader
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._health import NodeHealth
    from aiokafka.consumer._shared import Shared
    from aiokafka.protocol.messages.fetch import FetchResponse, PartitionData

__all__ = ["FetchPlan", "Intake", "NodeFetcher", "NodeHost"]


# -- What a NodeFetcher needs of the Fetcher that has all of them


class NodeHost(Protocol):
    """Whatever of a response concerns more than one broker."""

    @property
    def share(self) -> int:
        """Bytes that one broker's responses may pin."""

    @property
    def topic_ids(self) -> Mapping[str, bytes]:
        """The ids of the topics that are read."""

    def rack_id(self) -> str:
        """Return the rack to name to brokers; "" to have leaders serve us themselves."""

    def announce(self, partitions: Iterable[TopicPartition]) -> None:
        """Wake the readers of partitions whose records were buffered."""

    def prefer_replica(self, state: PartitionState, node_id: int) -> None:
        """Move a partition to the replica that its leader names."""

    def refuse_replica(self, state: PartitionState) -> None:
        """Move a partition back to its leader: the replica does not serve us."""

    def on_out_of_range(self, state: PartitionState, failure: Callable[[], KafkaError]) -> None:
        """Find another position, or report `failure`: the position is not in the leader's log."""


# -- Which of one broker's partitions to ask for, as far as it depends on them alone. Pure


# Record sets of one partition that may wait: one is read while the next is on its way.
QUEUED_PER_PARTITION = 2


class FetchPlan:
    """What the next fetch to one broker asks for.

    Owns `specs` (by partition, what to ask), the states and epochs they were made for, `full`
    (partitions left out because enough of them waits to be read) and the partitions that back off.
    A partition that changed is touched; `update()` looks at those alone. All in the order in which
    it came about, so that requests do not depend on the hashes of objects.
    """

    def __init__(self, node_id: int, max_bytes: int, old_epochs: OldEpochs) -> None:
        self.specs: dict[TopicPartition, FetchSpec] = {}
        self.full: dict[PartitionState, None] = {}
        self._node_id = node_id
        self._max_bytes = max_bytes
        self._old_epochs = old_epochs
        self._made_for: dict[TopicPartition, tuple[PartitionState, int]] = {}
        self._later: dict[PartitionState, float] = {}
        self._touched: dict[PartitionState, None] = {}
        self._changed: dict[TopicPartition, None] = {}

    def touch(self, state: PartitionState) -> None:
        """Look at this partition again with the next `update()`."""
        self._touched[state] = None

    def update(self, now: float, topic_ids: Mapping[str, bytes]) -> bool:
        """Take note of everything touched and of back-offs that ended; True if there is more to ask
        for."""
        # Nothing else touches them when their time has come.
        if self._later:
            self._touched.update((state, None) for state, at in self._later.items() if at <= now)
        if not self._touched:
            return False
        touched, self._touched = self._touched, {}
        gained = False
        for state in touched:
            gained |= self._look_at(state, now, topic_ids)
        return gained

    def next_retry(self) -> float | None:
        """Return when the first back-off ends (loop time); None without one."""
        return min(self._later.values(), default=None)

    def take_changed(self) -> dict[TopicPartition, None]:
        """Return the partitions whose spec may be another than at the last call."""
        changed, self._changed = self._changed, {}
        return changed

    def rotate(self) -> None:
        """Let the next partition be the first, for a broker that does not know who was served last.

        A response begins with the first partition that has records, and there may be no room for
        those of others: none at all for a batch that is larger than what was asked for.
        """
        first = next(iter(self.specs), None)
        if first is not None:
            self.specs[first] = self.specs.pop(first)

    def state_for(self, tp: TopicPartition) -> PartitionState | None:
        """Return the state that a response is for; None if the partition moved on since the
        request."""
        made_for = self._made_for.get(tp)
        if made_for is None:
            return None
        state, epoch = made_for
        # The epoch tells of a seek, a reset or a revocation since the request. The offset tells of
        # what leaves the epoch as it is: the buffer was dropped, or another broker has brought the
        # same records.
        if state.epoch != epoch or state.cursor.offset != self.specs[tp].offset:
            # The other broker's plan was told, not this one: the next request would ask for the
            # same again, as fast as the broker responds.
            self.touch(state)
            return None
        return state

    def states(self) -> list[PartitionState]:
        """Return the partitions asked for."""
        return [state for state, _ in self._made_for.values()]

    def _look_at(self, state: PartitionState, now: float, topic_ids: Mapping[str, bytes]) -> bool:
        cursor = state.cursor
        self.full.pop(state, None)
        self._later.pop(state, None)
        if state.home.node_id != self._node_id or not state.is_fetchable:
            return self._leave_out(state)
        if state.retry.at > now:
            self._later[state] = state.retry.at
            return self._leave_out(state)
        if cursor.queued >= QUEUED_PER_PARTITION:
            # Looked at again when a record set of it is read: the buffer touches it then.
            self.full[state] = None
            return self._leave_out(state)
        tp = state.tp
        topic_id = topic_ids.get(tp.topic, ZERO_UUID)
        epoch = self._old_epochs.to_ask(tp, cursor.leader_epoch)
        spec = FetchSpec(topic_id, cursor.offset, epoch, self._max_bytes)
        gained = tp not in self.specs
        self.specs[tp] = spec
        self._made_for[tp] = (state, state.epoch)
        self._changed[tp] = None
        return gained

    def _leave_out(self, state: PartitionState) -> bool:
        made_for = self._made_for.get(state.tp)
        # Only what was made for this state: its partition may have been revoked and assigned again,
        # and the new state may be in the plan by now.
        if made_for is not None and made_for[0] is state:
            del self._made_for[state.tp]
            del self.specs[state.tp]
            self._changed[state.tp] = None
        return False


# -- Take in one fetch response: records to the buffer, errors to readers, news to placement and


log = logging.getLogger("aiokafka.consumer.fetcher")


class Intake:
    """Applies what one response says, partition by partition; made for that response and dropped
    after `finish()`.

    Whatever is not data delays the partition's next fetch, so that no answer can make a loop.

    Owns: the Frame that counts the response's memory, which partitions got records, and the leaders
    that the response names.
    """

    def __init__(
        self,
        shared: Shared,
        host: NodeHost,
        node_id: int,
        pin: Callable[[int], Frame],
        sent_at: float,
    ) -> None:
        self._shared = shared
        self._host = host
        self._node_id = node_id
        self._pin = pin
        self._sent_at = sent_at
        self._now = asyncio.get_running_loop().time()
        self._timestamp = int(_clock.wall_time() * 1000)
        self._frame: Frame | None = None
        self._arrived: dict[TopicPartition, None] = {}
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}

    def accept(self, state: PartitionState, data: PartitionData) -> None:
        """Apply one partition's answer, which is to what its cursor asks for."""
        if data.error_code:
            # Collected, and applied by `finish()`: the metadata changes once for all partitions of
            # the response.
            leader = named_leader(data)
            if leader is not None:
                self._leaders[state.tp] = leader
        else:
            self._note_ends(state, data)
            lag = state.lag(self._shared.config.read_committed)
            self._shared.meter.fetched(state, data.records, self._sent_at, lag)
        answer = read_answer(state.tp, state.cursor.offset, data)
        # What cannot be read comes as it is with each fetch: pauses grow.
        is_whole = isinstance(answer, Fetched) and answer.scan.end >= 0
        if is_whole or isinstance(answer, Nothing):
            state.retry.succeed()
        if isinstance(answer, Fetched):
            self._buffer(state, answer)
        elif isinstance(answer, CutShort):
            self._fail(state, self._too_large(state))
        elif isinstance(answer, Failed):
            self._fail(state, answer.failure)
        elif isinstance(answer, NotNow):
            self._put_off(state, answer)
        elif isinstance(answer, OutOfRange):
            self._on_out_of_range(state, answer.failure)
        # Last, as it moves the partition to another broker. The response of a leader that gives
        # this advice has no records.
        if not data.error_code and data.preferred_read_replica >= 0:
            self._on_advice(state, data.preferred_read_replica)

    def finish(self, response: FetchResponse) -> None:
        """Wake the readers of what arrived, pass on what was learnt about leaders."""
        if self._arrived:
            self._host.announce(self._arrived)
        if self._leaders:
            self._shared.client.update_leaders(self._leaders, named_brokers(response))

    # -- data --------------------------------------------------------------------------------------

    def _note_ends(self, state: PartitionState, data: PartitionData) -> None:
        # Servers that do not know an offset have -1.
        state.note_ends(
            data.high_watermark if data.high_watermark >= 0 else state.highwater,
            data.last_stable_offset if data.last_stable_offset >= 0 else state.lso,
            data.log_start_offset if data.log_start_offset >= 0 else state.log_start,
            self._timestamp,
        )

    def _buffer(self, state: PartitionState, found: Fetched) -> None:
        if self._frame is None:
            # All of the response stays in memory while one record set of it does.
            self._frame = self._pin(found.response_bytes)
        self._shared.desk.buffer.add(state, self._reader(state, found), self._frame)
        self._arrived[state.tp] = None
        if found.scan.end < 0:
            # Reading raises the error of the first batch; what is after it cannot be asked for.
            self._postpone(state)
        else:
            state.cursor.advance(found.scan.end, found.scan.spans)

    def _reader(self, state: PartitionState, found: Fetched) -> RecordReader:
        config = self._shared.config
        return RecordReader(
            found.data,
            state.tp.topic,
            state.tp.partition,
            position=state.cursor.offset,
            check_crcs=config.check_crcs,
            read_committed=config.read_committed,
            aborted=found.aborted,
            key_deserializer=config.key_deserializer,
            value_deserializer=config.value_deserializer,
            max_decompressed_bytes=config.max_decompressed_bytes,
        )

    # -- errors ------------------------------------------------------------------------------------

    def _on_advice(self, state: PartitionState, replica: int) -> None:
        """Follow the leader's advice to read from a replica. Only a leader may give it, and it may
        not name itself."""
        if replica == self._node_id or state.home.preferred is not None:
            text = f"{state.tp}: broker {self._node_id} names {replica} to read from"
            log.debug("%s", text)
            self._postpone(state, KafkaProtocolError(text))
            self._host.refuse_replica(state)
        else:
            self._host.prefer_replica(state, replica)

    def _put_off(self, state: PartitionState, answer: NotNow) -> None:
        name = answer.error.__name__
        log.debug("%s: fetch answered %s", state.tp, name)
        epoch = state.cursor.leader_epoch
        self._shared.old_epochs.note(self._node_id, state.tp, epoch, answer.error)
        self._postpone(state, answer.error)
        if state.home.preferred is not None:
            self._host.refuse_replica(state)
        if not answer.is_stale_metadata:
            return
        why, client = f"{state.tp}: fetch answered {name}", self._shared.client
        if doubts_metadata(answer.error, state.retry.failures):
            client.doubt_metadata(why)
        else:
            client.request_metadata(why)

    def _on_out_of_range(self, state: PartitionState, failure: Failure) -> None:
        """Look for the cause: a replica that lags, data buffered ahead of the reader that the log
        has lost, or a position that is not in the log."""
        cursor = state.cursor
        if state.home.preferred is not None:
            # A replica may lag behind; the leader knows.
            self._postpone(state, OffsetOutOfRangeError)
            self._host.refuse_replica(state)
        elif cursor.queued:
            # What is buffered lies before the offset that was asked for. With its epochs known, it
            # was compared with this leader's log, which has lost its beginning then (retention):
            # what is left to read is still good. Otherwise the log may have lost its end, and that
            # as well: ask again from where the reader is, and find out.
            is_compared = min(cursor.leader_epoch, cursor.offset_epoch) >= 0
            if not is_compared or state.next_offset >= cursor.offset:
                self._shared.desk.buffer.discard(state)
            self._postpone(state, OffsetOutOfRangeError)
        else:
            self._host.on_out_of_range(state, failure)

    def _too_large(self, state: PartitionState) -> Failure:
        limit = self._shared.config.max_partition_fetch_bytes
        where = f"{state.tp}: the record at offset {state.cursor.offset}"
        text = f"{where} is larger than max_partition_fetch_bytes={limit}"
        return lambda: RecordTooLargeError(text)

    def _fail(self, state: PartitionState, failure: Failure) -> None:
        self._postpone(state)
        if state.home.preferred is not None:
            # The leader may have what is damaged here, and hears of new rights by itself.
            self._host.refuse_replica(state)
            return
        self._shared.desk.report(state, failure)
        if self._shared.meter.collector is not None:
            self._shared.meter.fetch_failed([state.tp], failure())

    def _postpone(
        self, state: PartitionState, error: KafkaError | type[BrokerResponseError] | None = None
    ) -> None:
        """Delay the next fetch. `error`: unless the application gets it."""
        client = self._shared.config.client
        state.retry.postpone(self._now, client.retry_backoff, client.retry_backoff_max, error)


# A response is kept to a part of the broker's share, so that the memory of one is free again while
# others are still being read.
_RESPONSES_PER_SHARE = 4

# Seconds between fetches for a reader that waits while another reads what is in store.
_PACE = 0.05

_CLOSE_TIMEOUT = 1.0


class NodeFetcher:
    """Keeps the buffer filled with the partitions that one broker serves to us. One task.

    Owns the fetch session, the plan of what to ask, and the count of bytes that its responses pin.
    At most one fetch is in flight; the broker is asked again when its bytes are below half its
    share.

    A partition is left out while enough of it waits to be read. A long poll for the others could
    then hold up its next fetch. So the others are asked for what they have at once, and not again
    before something was read or `fetch_max_wait` passed.
    """

    def __init__(self, node_id: int, shared: Shared, host: NodeHost, contact: NodeHealth) -> None:
        self.node_id = node_id
        self._shared = shared
        self._host = host
        self._contact = contact
        self._log = SubjectLog(log, shared.config.subject)
        self._buffer = shared.desk.buffer
        limit = shared.config.max_partition_fetch_bytes
        self._plan = FetchPlan(node_id, limit, shared.old_epochs)
        self._session = FetchSession()
        self._signal = Signal()
        client = shared.config.client
        self._backoff = Backoff(client.retry_backoff, client.retry_backoff_max)
        self._loop = asyncio.get_running_loop()
        self._pinned = 0
        self._not_before = 0.0
        self._fetched_at = 0.0
        self._has_news = False
        self._is_retired = False
        self._swept_at = 0.0

    def touch(self, state: PartitionState) -> None:
        """Look again at a partition that is, or was, fetched from this broker."""
        self._plan.touch(state)
        self._signal.notify()

    def wake(self) -> None:
        """Decide again whether to fetch."""
        self._signal.notify()

    @property
    def pinned(self) -> int:
        """Bytes of responses of this broker that are in memory."""
        return self._pinned

    def _pin(self, nbytes: int) -> Frame:
        """Count the memory of a response until the last record set of it is read or dropped."""
        self._pinned += nbytes
        return Frame(self.node_id, nbytes, self._release)

    def _release(self, nbytes: int) -> None:
        self._pinned -= nbytes
        self._signal.notify()

    def retire(self) -> None:
        """End after the fetch in flight: no partition is fetched from this broker any more."""
        self._is_retired = True
        # It would stay in memory that counts for no broker. Its new leader, if there is one, is
        # asked for it once more.
        for state in self._buffer.unserved(self._release):
            if state.home.node_id is not None:
                self._buffer.discard(state)
                state.changed()
        self._signal.notify()

    async def run(self) -> None:
        """Fetch until retired or cancelled."""
        # While positions are still being looked up.
        with self._contact.asked("ApiVersions"):
            await self._shared.client.ready(self.node_id, group=ConnectionGroup.FETCH)
        # Each round decides, and then waits or fetches, without an await in between: whatever
        # changes while it decides could only do so in this step, so no wake-up is lost.
        while not self._is_retired:
            now = self._loop.time()
            self._has_news |= self._plan.update(now, self._host.topic_ids)
            wait = self._max_wait(now)
            if wait is None:
                self._maybe_forget_outage(now)
                await self._signal.wait(self._next_look(now))
            else:
                await self._fetch(now, wait)
        await self.close()

    async def close(self) -> None:
        """Give the session's slot back to the broker, if that is quickly done.

        Over the other connection: on its own one a long poll may be going on.
        """
        request = self._session.closing_request()
        if request is None:
            return
        try:
            # A throttled broker has the request's own time begin again with each response before
            # it.
            async with timeout(_CLOSE_TIMEOUT):
                await self._shared.client.send_nowait(self.node_id, request)
        except (KafkaError, OSError, asyncio.TimeoutError) as error:
            why = str(error) or "no answer"
            self._log.debug("Broker %s: session not closed: %s", self.node_id, why)

    # -- when --------------------------------------------------------------------------------------

    def _max_wait(self, now: float) -> float | None:
        """Return the seconds that a fetch sent now may wait for data at the broker; None = send
        none now."""
        plan = self._plan
        longest = self._shared.config.fetch_max_wait
        if not plan.specs or now < self._not_before:
            return None
        # Bytes that nothing has read. A broker is asked again at half its share, so that the next
        # response comes while the rest is read.
        if self._is_over_low_water() and not self._make_room():
            return None
        # No partition is left out whose turn could come during a long poll.
        if not plan.full:
            return longest
        # A reader waits for those that are asked for, and what others have in store does not help
        # it. But another may read that, and must not wait for a long poll when it is at its end.
        if self._buffer.is_hungry:
            # All are looked at, so that the time of each begins.
            are_idle = [state.is_idle(now, longest) for state in plan.full]
            if all(are_idle):
                return longest
            if now >= self._fetched_at + min(_PACE, longest):
                return 0.0
        # Asked at once if that is for half of the partitions or more. Otherwise each partition that
        # is read to its end would cost a request of its own.
        if self._has_news and len(plan.specs) >= len(plan.full):
            return 0.0
        return 0.0 if now >= self._fetched_at + longest else None

    def _make_room(self) -> bool:
        """Drop what no reader takes; True if the broker may be asked again."""
        now, longest = self._loop.time(), self._shared.config.fetch_max_wait
        if not self._buffer.is_hungry and now < self._swept_at + longest:
            return False
        self._swept_at = now
        # Paused partitions fill the memory, or those that no reader takes while one goes without.
        for state in self._buffer.unserved(self._release):
            if not state.is_withheld:
                if not state.is_idle(now, longest):
                    continue
                # Fetched again later, after those that are wanted.
                state.retry.wait_until(now + longest)
            # Wherever it is fetched from now: the leader may have moved since this broker sent it,
            # and the new one has no reason to drop it.
            self._buffer.discard(state)
            state.changed()
        return not self._is_over_low_water()

    def _is_over_low_water(self) -> bool:
        return self._pinned * 2 > self._host.share

    @property
    def _outdated_at(self) -> float:
        """When the last failure counts no more if nothing was asked since (loop time)."""
        config = self._shared.config
        longest = max(config.fetch_max_wait, config.client.retry_backoff_max)
        return self._contact.error_at + longest + OUTDATED

    def _maybe_forget_outage(self, now: float) -> None:
        """Forget that the broker did not respond, a while after that, when nothing is to be asked:
        partitions are paused, or what is buffered has to be read first."""
        # The resolver may ask it for positions meanwhile.
        is_asked = self._contact.is_asked or now < self._not_before
        if not is_asked and self._contact.failing_since is not None and now >= self._outdated_at:
            self._contact.forget()

    def _next_look(self, now: float) -> float | None:
        """Return when to decide again without being woken (loop time)."""
        times = [self._not_before, self._plan.next_retry() or 0.0]
        longest = self._shared.config.fetch_max_wait
        if self._contact.failing_since is not None:
            times.append(self._outdated_at)
        if self._plan.full:
            times.append(self._fetched_at + longest)
        if self._buffer.is_hungry:
            times += [self._fetched_at + min(_PACE, longest), now + longest]
        elif self._plan.specs:
            times.append(self._swept_at + longest)
        return min((time for time in times if time > now), default=None)

    # -- one fetch ---------------------------------------------------------------------------------

    async def _fetch(self, now: float, max_wait: float) -> None:
        config = self._shared.config
        self._fetched_at = now
        self._has_news = False
        # What has changed is forgotten with this call. If the broker does not hear of it now, the
        # session has to begin again (`_failed`), or it would never.
        request = self._session.build(self._plan.specs, self._plan.take_changed())
        request.max_wait_ms = int(max_wait * 1000)
        request.min_bytes = config.fetch_min_bytes
        request.max_bytes = self._max_bytes()
        request.isolation_level = int(config.read_committed)
        request.rack_id = self._host.rack_id()
        sent_at, limit = self._loop.time(), max_wait + config.client.request_timeout
        with self._contact.asked("Fetch", max_wait):
            try:
                connection = await self._shared.client.connection(
                    self.node_id, ConnectionGroup.FETCH, timeout=limit
                )
                await connection.request(
                    request,
                    version=connection.pick(type(request), self._session.max_version),
                    timeout=limit,
                    # When it is read, and not a turn of the loop later: so the readers run before
                    # this task, which makes the next request.
                    on_response=partial(self._take_in, sent_at),
                )
            except KafkaError as error:
                self._failed(error)
        if self._session.is_full:
            # In a session the broker has them take turns.
            self._plan.rotate()

    def _max_bytes(self) -> int:
        share = self._host.share
        room = min(share // _RESPONSES_PER_SHARE, share - self._pinned)
        config = self._shared.config
        # What is around the records of a response has to pass, too.
        passes = room_for_records(config.client.max_response_bytes, len(self._plan.specs))
        return max(1, min(room, config.fetch_max_bytes, passes, 2**31 - 1))

    def _failed(self, error: KafkaError) -> None:
        """Back off and look for new leaders, as there is no response; report an error that no retry
        mends."""
        was_full = self._session.is_full
        # The broker may have taken the request or not, so its epoch of the session may be ours or
        # the next.
        self._session.restart()
        if isinstance(error, UnsupportedVersionError) and not was_full:
            # It is an older one since it was restarted, without sessions, and was not asked.
            return
        self._not_before = self._loop.time() + self._backoff.next()
        self._contact.fail(error)
        self._leave_replica()
        if _is_too_large(error):
            self._shared.desk.report_all(self._plan.states(), self._too_large())
        elif not error.retriable:
            self._shared.desk.report_all(self._plan.states(), lambda: renewed(error))
        self._shared.client.request_metadata(f"fetch from broker {self.node_id} failed")
        self._shared.meter.fetch_failed([state.tp for state in self._plan.states()], error)

    def _leave_replica(self) -> None:
        """Read from leaders what this broker was preferred for: they have the same records."""
        for state in self._shared.subscriptions.assignment.states():
            # Those that were left out of this fetch, too, or each would fail in its turn.
            if state.home.preferred == self.node_id:
                self._host.refuse_replica(state)

    def _too_large(self) -> Callable[[], KafkaError]:
        """Return the failure of a response above the limit: so little was asked for that one batch
        alone, which a broker sends whatever its size, is too large."""
        names = some_names([state.tp for state in self._plan.states()])
        limit = self._shared.config.client.max_response_bytes
        text = (
            f"broker {self.node_id}: the next batch of one of {names} does not pass "
            f"receive_message_max_bytes={limit}; raise that, or seek past the batch"
        )
        return lambda: RecordTooLargeError(text)

    def _take_in(self, sent_at: float, response: FetchResponse) -> None:
        """Apply a response: to the session first, which may make the rest meaningless."""
        self._shared.meter.responded(sent_at, response.throttle_time_ms)
        self._contact.succeed()
        self._shared.desk.note_fetch(self._contact.answered_at)
        # The session first: with an error of it, the partitions are not those that were asked for.
        was_full = self._session.is_full
        if not self._session.accept(response.error_code, response.session_id):
            self._session_failed(response.error_code)
            return
        self._backoff.reset()
        intake = Intake(self._shared, self._host, self.node_id, self._pin, sent_at)
        answered = list(self._session.partitions_in(response))
        if was_full:
            self._session.check_full({tp for tp, _ in answered})
        for tp, data in answered:
            state = self._plan.state_for(tp)
            # Read elsewhere by now, it has nothing to do with this broker's troubles.
            is_here = state is not None and state.home.node_id == self.node_id
            if state is not None and (is_here or not data.error_code):
                intake.accept(state, data)
                self._plan.touch(state)
        intake.finish(response)

    def _session_failed(self, error_code: int) -> None:
        """Back off: the broker has lost the session, or met an error of its own. The next request
        is a full one."""
        error = for_code(error_code)
        self._log.debug("Broker %s ended the fetch session: %s", self.node_id, error.__name__)
        # The first time at once: to lose a session to another client is nothing unusual.
        if self._backoff.failures:
            self._not_before = self._loop.time() + self._backoff.peek()
            self._leave_replica()
            if is_passing(error):
                for state in self._plan.states():
                    state.retry.blame(self._loop.time(), error, self._not_before)
        self._backoff.failures += 1
        if error.invalid_metadata or not error.retriable:
            self._shared.client.request_metadata(f"fetch answered {error.__name__}")
        if not error.retriable and error is not UnknownError:
            text = f"fetch from broker {self.node_id}"
            self._shared.desk.report_all(self._plan.states(), lambda: error(text))


def _is_too_large(error: BaseException) -> bool:
    """Return whether a response was refused for its size."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, FrameTooLargeError):
        cause = cause.__cause__
    return cause is not None
