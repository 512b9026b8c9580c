"""Fetching from one broker: the partitions to request (`FetchPlan`), the fetch session (KIP-227),
Fetch requests and their responses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from aiokafka import _clock
from aiokafka._compat import timeout
from aiokafka._log import SubjectLog
from aiokafka._reading import (
    BatchTooLarge,
    Failed,
    Failure,
    FencedEpochs,
    Fetched,
    FetchSpec,
    NoRecords,
    OutOfRange,
    RetryLater,
    doubts_metadata,
    fetch_topics,
    is_transient,
    max_record_bytes,
    named_brokers,
    named_leader,
    partitions_in,
    read_partition,
)
from aiokafka._retry import Backoff
from aiokafka._tasks import Signal
from aiokafka.consumer._arguments import some_names
from aiokafka.consumer._partition_state import OUTDATED, PartitionState
from aiokafka.consumer.fetch.buffer import PinnedResponse
from aiokafka.errors import (
    BrokerResponseError,
    FetchSessionIdNotFound,
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
from aiokafka.protocol.exchange import FrameTooLargeError
from aiokafka.protocol.messages.fetch import (
    LAST_VERSION_WITH_NAMES,
    FetchRequest,
    ForgottenTopic,
)
from aiokafka.protocol.schema import ZERO_UUID
from aiokafka.record.reader import RecordReader
from aiokafka.structs import TopicPartition

if TYPE_CHECKING:
    from aiokafka._health import Due, NodeHealth
    from aiokafka.consumer._context import ConsumerContext, RecordSet
    from aiokafka.consumer.fetch.fetcher import Fetcher
    from aiokafka.protocol.messages.fetch import FetchResponse, PartitionData

__all__ = ["FetchPlan", "FetchResponseHandler", "FetchSession", "NodeFetcher"]

log = logging.getLogger("aiokafka.consumer.fetcher")

# A partition with this many unread record sets is not fetched: the application reads one set while
# the next set is fetched.
QUEUED_PER_PARTITION = 2

# Session ids and epochs with a special meaning (KIP-227).
_NO_SESSION = 0
_FIRST_EPOCH = 0
_FINAL_EPOCH = -1
_MAX_EPOCH = 2**31 - 1

# A response may use a quarter of the broker's share of the buffer memory. The memory of a response
# is released only as a whole. With this limit, the application still has other responses to read
# when the memory of one response is released.
_RESPONSES_PER_SHARE = 4

# While a reader waits, seconds between two fetches that leave out the partitions with enough unread
# record sets (`FetchPlan.full`).
_PACE = 0.05

_CLOSE_TIMEOUT = 1.0


class FetchPlan:
    """The partitions of the next Fetch request to one broker. No I/O.

    Owns: `specs`, the fields of the request by partition, and for each spec the PartitionState and
    its epoch when the spec was made; `full`, the partitions left out because they have enough
    unread record sets; the partitions in backoff. `update()` checks only the partitions for which
    `touch()` was called since the last `update()`. Dicts are used as sets, so that the order of
    partitions does not depend on hashes.
    """

    def __init__(self, node_id: int, max_bytes: int, fenced_epochs: FencedEpochs) -> None:
        self.specs: dict[TopicPartition, FetchSpec] = {}
        self.full: dict[PartitionState, None] = {}
        self._node_id = node_id
        self._max_bytes = max_bytes
        self._fenced_epochs = fenced_epochs
        self._made_for: dict[TopicPartition, tuple[PartitionState, int]] = {}
        self._backing_off: dict[PartitionState, float] = {}
        self._touched: dict[PartitionState, None] = {}
        self._changed: dict[TopicPartition, None] = {}

    def touch(self, state: PartitionState) -> None:
        """Check this partition in the next `update()`."""
        self._touched[state] = None

    def update(self, now: float, topic_ids: Mapping[str, bytes]) -> bool:
        """Update the specs of all touched partitions, and of partitions whose backoff has ended at
        `now` (loop time). Return whether the plan has gained a partition. `topic_ids`: the ids of
        topics by name."""
        if self._backing_off:
            self._touched.update((s, None) for s, at in self._backing_off.items() if at <= now)
        if not self._touched:
            return False
        touched, self._touched = self._touched, {}
        gained = False
        for state in touched:
            gained |= self._update_partition(state, now, topic_ids)
        return gained

    def next_retry(self) -> float | None:
        """Return when the first backoff ends (loop time); None if no partition backs off."""
        return min(self._backing_off.values(), default=None)

    def take_changed(self) -> dict[TopicPartition, None]:
        """Return and clear the partitions whose spec may have changed since the last call."""
        changed, self._changed = self._changed, {}
        return changed

    def rotate(self) -> None:
        """Move the first partition to the end. Called without a fetch session: in a session, the
        broker itself rotates the partitions.

        A broker fills its response in the order of the request. Without rotation, batches of the
        first partitions could fill each response, and the last partitions would never be fetched.
        """
        first = next(iter(self.specs), None)
        if first is not None:
            self.specs[first] = self.specs.pop(first)

    def state_for(self, tp: TopicPartition) -> PartitionState | None:
        """Return the state that the response for `tp` applies to; None if the response is ignored:
        the plan no longer has the partition, or the fetch offset or the epoch has changed since the
        request."""
        made_for = self._made_for.get(tp)
        if made_for is None:
            return None
        state, epoch = made_for
        # A seek, reset or revocation since the request changes the epoch. The offset alone changes
        # when the buffer was dropped, or when another broker has sent the same records.
        if state.epoch != epoch or state.cursor.offset != self.specs[tp].offset:
            # If another broker has sent the records, only the plan of that broker was touched.
            # Touch this plan, too: otherwise the next request would have the same outdated offset
            # again, in a busy loop.
            self.touch(state)
            return None
        return state

    def states(self) -> list[PartitionState]:
        return [state for state, _ in self._made_for.values()]

    def _update_partition(
        self, state: PartitionState, now: float, topic_ids: Mapping[str, bytes]
    ) -> bool:
        cursor = state.cursor
        self.full.pop(state, None)
        self._backing_off.pop(state, None)
        if state.target.node_id != self._node_id or not state.is_fetchable:
            return self._omit(state)
        if state.retry.at > now:
            self._backing_off[state] = state.retry.at
            return self._omit(state)
        if cursor.queued >= QUEUED_PER_PARTITION:
            # When a record set of the partition was read to its end, the Fetcher calls `touch()`.
            self.full[state] = None
            return self._omit(state)
        tp = state.tp
        topic_id = topic_ids.get(tp.topic, ZERO_UUID)
        epoch = cursor.leader_epoch
        if self._fenced_epochs.fenced:
            epoch = self._fenced_epochs.epoch_to_send(tp, epoch)
        gained = tp not in self.specs
        self.specs[tp] = FetchSpec(topic_id, cursor.offset, epoch, self._max_bytes)
        self._made_for[tp] = (state, state.epoch)
        self._changed[tp] = None
        return gained

    def _omit(self, state: PartitionState) -> bool:
        made_for = self._made_for.get(state.tp)
        # Keep the spec of another PartitionState: the partition was revoked and assigned again.
        if made_for is not None and made_for[0] is state:
            del self._made_for[state.tp]
            del self.specs[state.tp]
            self._changed[state.tp] = None
        return False


class FetchSession:
    """Incremental fetch session with one broker (KIP-227): a request contains only the partitions
    that have changed since the last request. No I/O.

    Owns: the session id, the session epoch and the partitions in the broker's session. A full
    request (epoch 0) contains all partitions, and opens or replaces a session; later requests
    contain the changed partitions only. After any error the next request is full. Brokers before
    Kafka 1.1, and brokers without a free session slot, respond with session id 0: then every
    request is full.
    """

    def __init__(self) -> None:
        self.session_id = _NO_SESSION
        self.epoch = _FIRST_EPOCH
        self.topic_names: dict[bytes, str] = {}
        """Names of the requested topics by id: responses from version 13 on have only the ids."""
        self._known: dict[TopicPartition, FetchSpec] = {}
        self._with_ids = False

    @property
    def is_full(self) -> bool:
        """Whether the next request must contain all partitions."""
        return self.epoch == _FIRST_EPOCH

    @property
    def max_version(self) -> int | None:
        """Highest Fetch version that the last built request can be sent with: later versions need
        the ids of all topics. None for no limit."""
        return None if self._with_ids else LAST_VERSION_WITH_NAMES

    def build(
        self, wanted: Mapping[TopicPartition, FetchSpec], changed: Iterable[TopicPartition]
    ) -> FetchRequest:
        """Return the next request with its session fields, topics and forgotten topics.

        Args:
            wanted: All partitions to fetch.
            changed: Partitions that may differ from the last request. For an incremental request,
                only these are compared with the session.
        """
        if self._must_restart(wanted, changed):
            self.restart()
        if self.is_full:
            return self._build_full(wanted)
        return self._build_incremental(wanted, changed)

    def accept(self, error_code: int, session_id: int) -> bool:
        """Update the session from a response; return False if the response has an error, so that
        its partitions must be ignored."""
        if error_code:
            # After FETCH_SESSION_ID_NOT_FOUND the broker has no session. After any other error it
            # may still have the session: keep the session id, so that the next request replaces the
            # session.
            is_gone = error_code == FetchSessionIdNotFound.errno
            self._reset(_NO_SESSION if is_gone else self.session_id)
            return False
        if session_id == _NO_SESSION:
            # The broker has no session for this client: its session cache is full, it throttled a
            # full request, it is older than Kafka 1.1, or the session has no partitions any more.
            self._reset(_NO_SESSION)
        else:
            self.session_id = session_id
            # Epochs 0 and -1 are reserved: full request, and end of the session.
            self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1
        return True

    def check_full(self, responded: Container[TopicPartition]) -> None:
        """Restart if the response to a full request lacks a partition: the broker's session may
        lack this partition, too, and incremental requests do not add unchanged partitions.
        `responded`: the partitions in the response."""
        if not all(tp in responded for tp in self._known):
            self.restart()

    def restart(self) -> None:
        """Make the next request a full one, which replaces the broker's session."""
        # Keep the session id: a full request with this id makes the broker drop the session.
        # Without the id, the session would occupy a slot until the broker evicts the session as the
        # oldest.
        self._reset(self.session_id)

    def closing_request(self) -> FetchRequest | None:
        """Return a request that closes the session and so frees its slot at the broker; None
        without a session."""
        if self.session_id == _NO_SESSION:
            return None
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            session_id=self.session_id,
            session_epoch=_FINAL_EPOCH,
            topics=[],
        )
        self._reset(_NO_SESSION)
        return request

    def _reset(self, session_id: int) -> None:
        self.session_id = session_id
        self.epoch = _FIRST_EPOCH
        self._known.clear()

    def _must_restart(
        self, wanted: Mapping[TopicPartition, FetchSpec], changed: Iterable[TopicPartition]
    ) -> bool:
        """Return whether the session must be replaced: within one session, all topics are named
        either by id or by name, and a topic keeps its id."""
        if self.is_full:
            return False
        for tp in changed:
            spec = wanted.get(tp)
            if spec is None:
                continue
            if (spec.topic_id != ZERO_UUID) is not self._with_ids:
                return True
            known = self._known.get(tp)
            if known is not None and known.topic_id != spec.topic_id:
                return True
        return False

    def _build_full(self, wanted: Mapping[TopicPartition, FetchSpec]) -> FetchRequest:
        self._known = dict(wanted)
        self.topic_names = {spec.topic_id: tp.topic for tp, spec in wanted.items()}
        self._with_ids = ZERO_UUID not in self.topic_names
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            session_id=self.session_id,
            session_epoch=_FIRST_EPOCH,
            topics=fetch_topics(wanted.items()),
        )

    def _build_incremental(
        self, wanted: Mapping[TopicPartition, FetchSpec], changed: Iterable[TopicPartition]
    ) -> FetchRequest:
        added: list[tuple[TopicPartition, FetchSpec]] = []
        forgotten: dict[str, ForgottenTopic] = {}
        known = self._known
        for tp in changed:
            spec = wanted.get(tp)
            if spec is None:
                # A partition that was added and removed between two requests is not in `known`.
                old = known.pop(tp, None)
                if old is not None:
                    topic = forgotten.get(tp.topic)
                    if topic is None:
                        topic = forgotten[tp.topic] = ForgottenTopic(
                            topic=tp.topic, topic_id=old.topic_id, partitions=[]
                        )
                    topic.partitions.append(tp.partition)
            # A partition may have changed and changed back: then it is not sent.
            elif known.get(tp) != spec:
                known[tp] = spec
                self.topic_names[spec.topic_id] = tp.topic
                added.append((tp, spec))
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=fetch_topics(added),
            forgotten_topics_data=list(forgotten.values()),
        )


class NodeFetcher:
    """Fetches the partitions whose target is one broker, in one task.

    Owns: the fetch session, the fetch plan, and the number of bytes of its responses with unread
    records (`pinned`). At most one fetch is in flight. The next fetch is sent when `pinned` is at
    most half of the broker's share of the buffer memory.

    A request leaves out the partitions that have enough unread record sets (`FetchPlan.full`). A
    long poll for the other partitions would delay the next fetch of the omitted partitions. So
    while partitions are left out, requests have a `max_wait` of 0, and the next request is sent
    when records were read or `fetch_max_wait` has passed. `_max_wait()` has exceptions for waiting
    readers.
    """

    def __init__(
        self, node_id: int, context: ConsumerContext, fetcher: Fetcher, node_health: NodeHealth
    ) -> None:
        self.node_id = node_id
        self.pinned = 0
        """Bytes of this broker's responses with unread records, which are in memory."""
        self.read_committed = context.config.read_committed
        self._context = context
        self._fetcher = fetcher
        self._node_health = node_health
        self._log = SubjectLog(log, context.config.subject)
        self._buffer = context.queue.buffer
        limit = context.config.max_partition_fetch_bytes
        self._plan = FetchPlan(node_id, limit, context.fenced_epochs)
        self._session = FetchSession()
        self._signal = Signal()
        client = context.config.client
        self._backoff = Backoff(client.retry_backoff, client.retry_backoff_max)
        self._loop = asyncio.get_running_loop()
        self._not_before = 0.0
        self._fetched_at = 0.0
        self._plan_has_gained = False
        self._is_retired = False
        self._swept_at = 0.0

    def touch(self, state: PartitionState) -> None:
        """Update the plan for a partition that is, or was, fetched from this broker."""
        self._plan.touch(state)
        if self._signal.waiters:
            self._signal.notify()

    def wake(self) -> None:
        """Make the task decide again whether to fetch."""
        if self._signal.waiters:
            self._signal.notify()

    def pin(self, nbytes: int) -> PinnedResponse:
        """Count the memory of a response until `release()` is called. The FetchBuffer calls it when
        the last record set of the response is read or dropped."""
        self.pinned += nbytes
        return PinnedResponse(self, nbytes)

    def release(self, nbytes: int) -> None:
        """Stop counting the memory of a response. The code that has read or dropped the last record
        set of the response then notifies the Fetcher, which wakes the task (`touch()`)."""
        self.pinned -= nbytes

    def retire(self) -> None:
        """End after the fetch in flight: this broker is the target of no partition any more."""
        self._is_retired = True
        # Drop records that no reader can read now: `fetch_buffer_memory` is divided among the
        # remaining brokers, and these records would use memory in addition. Keep records of
        # partitions without a leader: no broker could return these records again.
        for state in self._buffer.unserved(self):
            if state.target.node_id is not None:
                self._buffer.discard(state)
                state.changed()
        self.wake()

    async def run(self) -> None:
        """Fetch until retired or cancelled."""
        # Connect now, while the positions are looked up.
        with self._node_health.asked("ApiVersions"):
            await self._context.client.ready(self.node_id, group=ConnectionGroup.FETCH)
        # There is no await between the decision and the wait, so no notification is missed.
        while not self._is_retired:
            now = self._loop.time()
            self._plan_has_gained |= self._plan.update(now, self._fetcher.topic_ids.current)
            wait = self._max_wait(now)
            if wait is None:
                self._maybe_forget_outage(now)
                await self._signal.wait(self._next_decision_at(now))
            else:
                await self._fetch(now, wait)
        await self.close()

    async def close(self) -> None:
        """Close the fetch session (KIP-227), to free its slot in the broker's cache; give up after
        a second. The request is sent on the default connection to the broker, because a long poll
        may be in flight on the fetch connection."""
        request = self._session.closing_request()
        if request is None:
            return
        try:
            # Limit the time here: if the broker throttles this client, the timeout of the request
            # restarts with each response to an earlier request.
            async with timeout(_CLOSE_TIMEOUT):
                await self._context.client.send_nowait(self.node_id, request)
        except (KafkaError, OSError, asyncio.TimeoutError) as error:
            why = str(error) or "no answer"
            self._log.debug("Broker %s: session not closed: %s", self.node_id, why)

    # -- when to fetch -----------------------------------------------------------------------------

    def _max_wait(self, now: float) -> float | None:
        """Return how many seconds a fetch sent now may wait at the broker. None = do not fetch:
        there is nothing to fetch, a backoff or full memory prevents it, or it is too early for
        another request that leaves out partitions (`plan.full`)."""
        plan = self._plan
        longest = self._context.config.fetch_max_wait
        if not plan.specs or now < self._not_before:
            return None
        # Fetch as soon as half of this broker's share of the buffer memory is free: the response
        # arrives while the application reads the other records. If less is free, first drop records
        # that no reader can read now.
        if self._is_over_low_water() and not self._free_memory():
            return None
        if not plan.full:
            return longest
        # If a reader waits, fetch the partitions without enough unread record sets now. The request
        # may be a long poll only if nobody reads the partitions that it leaves out (`plan.full`):
        # otherwise a reader may soon finish a record set of such a partition, and the next fetch of
        # the partition would wait behind the long poll.
        if self._buffer.is_awaited:
            # A list, not a generator: `is_idle()` must be called for each partition, because the
            # idle time of a partition begins with such a call.
            are_idle = [state.is_idle(now, longest) for state in plan.full]
            if all(are_idle):
                return longest
            if now >= self._fetched_at + min(_PACE, longest):
                return 0.0
        # If the plan has gained a partition, fetch at once only if the request has at least half of
        # the partitions: otherwise the broker would get one request for each partition whose
        # buffered records were read.
        if self._plan_has_gained and len(plan.specs) >= len(plan.full):
            return 0.0
        return 0.0 if now >= self._fetched_at + longest else None

    def _free_memory(self) -> bool:
        """Drop buffered records that no reader can read now, and return whether enough memory is
        free for another fetch. Keep the records of a partition that was read within the last
        `fetch_max_wait`, unless the partition is withheld. Without a waiting reader, do this only
        every `fetch_max_wait`."""
        now, longest = self._loop.time(), self._context.config.fetch_max_wait
        if not self._buffer.is_awaited and now < self._swept_at + longest:
            return False
        self._swept_at = now
        # `unserved()` returns paused partitions, and partitions that the waiting reader does not
        # read.
        for state in self._buffer.unserved(self):
            if not state.is_withheld:
                if not state.is_idle(now, longest):
                    continue
                # Fetch this partition later than the partitions that the reader waits for.
                state.retry.wait_until(now + longest)
            # Drop the records even if the partition is now fetched from another broker: this
            # NodeFetcher counts their memory.
            self._buffer.discard(state)
            state.changed()
        return not self._is_over_low_water()

    def _is_over_low_water(self) -> bool:
        return self.pinned * 2 > self._fetcher.share

    @property
    def _outdated_at(self) -> float:
        """Loop time at which the last failure becomes outdated, if no request is sent before."""
        config = self._context.config
        longest = max(config.fetch_max_wait, config.client.retry_backoff_max)
        return self._node_health.error_at + longest + OUTDATED

    def _maybe_forget_outage(self, now: float) -> None:
        """Forget an old outage if no request is in flight or backing off. Then no request is
        needed: partitions are paused, or the application has to read buffered records first."""
        # `is_asked`: a request is in flight; the OffsetResolver may have sent it.
        is_asked = self._node_health.is_asked or now < self._not_before
        if (
            not is_asked
            and self._node_health.failing_since is not None
            and now >= self._outdated_at
        ):
            self._node_health.forget()

    def _next_decision_at(self, now: float) -> float | None:
        """Return the loop time at which `run()` decides again even if nothing wakes it; None =
        never."""
        times = [self._not_before, self._plan.next_retry() or 0.0]
        longest = self._context.config.fetch_max_wait
        if self._node_health.failing_since is not None:
            times.append(self._outdated_at)
        if self._plan.full:
            times.append(self._fetched_at + longest)
        if self._buffer.is_awaited:
            times += [self._fetched_at + min(_PACE, longest), now + longest]
        elif self._plan.specs:
            times.append(self._swept_at + longest)
        return min((time for time in times if time > now), default=None)

    # -- one fetch ---------------------------------------------------------------------------------

    async def _fetch(self, now: float, max_wait: float) -> None:
        config = self._context.config
        self._fetched_at = now
        self._plan_has_gained = False
        # `take_changed` forgets the changes. If the broker does not get this request, `_on_failed`
        # restarts the session, so that the next request names all partitions.
        request = self._session.build(self._plan.specs, self._plan.take_changed())
        # The whole response, with its headers, must fit into `receive_message_max_bytes`.
        fits = max_record_bytes(config.client.max_response_bytes, len(self._plan.specs))
        request.max_wait_ms = int(max_wait * 1000)
        request.min_bytes = config.fetch_min_bytes
        request.max_bytes = self._max_bytes(fits)
        request.isolation_level = int(self.read_committed)
        if now >= self._fetcher.targets.leaders_only_until:
            request.rack_id = config.client.client_rack or ""
        max_version = self._session.max_version
        sent_at, limit = self._loop.time(), max_wait + config.client.request_timeout
        due = self._node_health.expect("Fetch", max_wait)
        try:
            connection = await self._context.client.connection(
                self.node_id, ConnectionGroup.FETCH, timeout=limit
            )
            await connection.request(
                request,
                version=connection.pick(FetchRequest, max_version),
                timeout=limit,
                # Called when the response arrives, one iteration of the event loop before this task
                # resumes: so readers run before this task builds the next request.
                on_response=partial(self._on_response, sent_at, due),
            )
        except KafkaError as error:
            self._on_failed(error)
            self._node_health.forgive(due)
        except BaseException:
            self._node_health.forgive(due)
            raise
        if self._session.is_full:
            # Within a session the broker rotates the partitions.
            self._plan.rotate()

    def _max_bytes(self, fits: int) -> int:
        """Return `max_bytes` for the next request: the least of `fits` (the bytes of records that
        `receive_message_max_bytes` permits), `fetch_max_bytes`, a quarter of this broker's share of
        the buffer memory, and the free part of the share; at least 1."""
        share = self._fetcher.share
        room = min(share // _RESPONSES_PER_SHARE, share - self.pinned)
        return max(1, min(room, self._context.config.fetch_max_bytes, fits, 2**31 - 1))

    def _on_response(self, sent_at: float, due: Due, response: FetchResponse) -> None:
        self._node_health.succeed(due=due)
        # Check the session first: after a session error, the partitions must be ignored.
        session = self._session
        was_full = session.is_full
        if not session.accept(response.error_code, response.session_id):
            self._context.meter.responded(sent_at, response.throttle_time_ms)
            self._on_session_error(for_code(response.error_code))
            return
        if self._backoff.failures:
            self._backoff.reset()
        handler = FetchResponseHandler(self, self._context, self._fetcher, sent_at)
        responded = partitions_in(response, session.topic_names)
        if was_full:
            session.check_full({tp for tp, _ in responded})
        for tp, data in responded:
            state = self._plan.state_for(tp)
            # Ignore an error of this broker for a partition that has moved to another broker.
            is_here = state is not None and state.target.node_id == self.node_id
            if state is not None and (is_here or not data.error_code):
                handler.handle(state, data)
                self._plan.touch(state)
        handler.finish(response)

    def _on_session_error(self, error: type[BrokerResponseError]) -> None:
        """Act on an error of the whole response, such as a lost session: back off if it is not the
        first error in a row, request metadata if the error requires it, and make calls of the
        application raise an error that is not retriable. The next request is full."""
        self._log.debug("Broker %s rejected the fetch request: %s", self.node_id, error.__name__)
        # No backoff the first time: brokers evict sessions in favour of other clients.
        if self._backoff.failures:
            self._not_before = self._loop.time() + self._backoff.peek()
            self._leave_replica()
            if is_transient(error):
                for state in self._plan.states():
                    state.retry.record_failure(self._loop.time(), error, self._not_before)
        self._backoff.failures += 1
        if error.invalid_metadata or not error.retriable:
            self._context.client.request_metadata(f"Fetch failed with {error.__name__}")
        if not error.retriable and error is not UnknownError:
            text = f"fetch from broker {self.node_id}"
            self._context.queue.report_all(self._plan.states(), lambda: error(text))

    def _on_failed(self, error: KafkaError) -> None:
        """Act on a fetch without a response: the next request is full; back off and request
        metadata. If this broker is the preferred replica of partitions, fetch these from their
        leaders. Make calls of the application raise an error that is not retriable, or
        RecordTooLargeError if the response exceeded the size limit. If the broker no longer
        supports sessions, only send a full request."""
        was_full = self._session.is_full
        # The broker may or may not have processed the request, so the epoch of its session is
        # unknown.
        self._session.restart()
        if isinstance(error, UnsupportedVersionError) and not was_full:
            # The broker was downgraded to a version without sessions. Nothing was sent, so send a
            # full request without a backoff.
            return
        self._not_before = self._loop.time() + self._backoff.next()
        self._node_health.fail(error)
        self._leave_replica()
        if _is_too_large(error):
            self._context.queue.report_all(self._plan.states(), self._too_large())
        elif not error.retriable:
            self._context.queue.report_all(self._plan.states(), lambda: renewed(error))
        self._context.client.request_metadata(f"fetch from broker {self.node_id} failed")
        self._context.meter.fetch_failed([state.tp for state in self._plan.states()], error)

    def _leave_replica(self) -> None:
        """If this broker is the preferred replica of a partition, fetch the partition from its
        leader instead."""
        for state in self._context.subscriptions.assignment.states():
            # Include partitions that this fetch left out, because their fetches would fail, too.
            if state.target.preferred == self.node_id:
                self._fetcher.refuse_replica(state)

    def _too_large(self) -> Callable[[], KafkaError]:
        """Return a function that creates the error for a response above the size limit. The limit
        in requests is lower, but brokers return the first batch even if it exceeds that limit."""
        names = some_names([state.tp for state in self._plan.states()])
        limit = self._context.config.client.max_response_bytes
        text = (
            f"broker {self.node_id}: the next batch of one of {names} is larger than "
            f"receive_message_max_bytes={limit}; raise this option, or seek past the batch"
        )
        return lambda: RecordTooLargeError(text)


def _is_too_large(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, FrameTooLargeError):
        cause = cause.__cause__
    return cause is not None


class FetchResponseHandler:
    """Applies one fetch response: `handle()` for each partition, then `finish()`.

    Every error of a partition delays its next fetch, so that repeated errors cause no busy loop.

    Owns: the pinned memory of the response, the partitions that got records, and the new leaders in
    the response (KIP-951).
    """

    def __init__(
        self, node: NodeFetcher, context: ConsumerContext, fetcher: Fetcher, sent_at: float
    ) -> None:
        self._node = node
        self._context = context
        self._fetcher = fetcher
        self._sent_at = sent_at
        self._now = asyncio.get_running_loop().time()
        self._timestamp = int(_clock.wall_time() * 1000)
        self._pinned: PinnedResponse | None = None
        self._arrived: dict[TopicPartition, None] = {}
        self._fetched: list[tuple[PartitionState, RecordSet | None]] = []
        self._leaders: dict[TopicPartition, tuple[int, int]] = {}

    def handle(self, state: PartitionState, data: PartitionData) -> None:
        """Apply the part of the response for one partition, which was fetched from the cursor's
        offset: buffer the records, act on an error, or follow a preferred replica."""
        if data.error_code:
            # `finish()` applies the leaders, so that the metadata changes once per response.
            leader = named_leader(data)
            if leader is not None:
                self._leaders[state.tp] = leader
        else:
            self._fetched.append((state, data.records))
        found = read_partition(state.tp, state.cursor.offset, data)
        if isinstance(found, Fetched):
            self._buffer(state, found)
        elif isinstance(found, NoRecords):
            state.retry.succeed()
        elif isinstance(found, BatchTooLarge):
            self._fail(state, self._too_large(state))
        elif isinstance(found, Failed):
            self._fail(state, found.failure)
        elif isinstance(found, RetryLater):
            self._retry_later(state, found)
        elif isinstance(found, OutOfRange):
            self._on_out_of_range(state)
        if data.error_code:
            return
        # A broker sends -1 for an offset that it does not know.
        state.note_ends(
            data.high_watermark if data.high_watermark >= 0 else state.highwater,
            data.last_stable_offset if data.last_stable_offset >= 0 else state.lso,
            data.log_start_offset if data.log_start_offset >= 0 else state.log_start,
            self._timestamp,
        )
        # Apply a preferred replica last, because it changes the partition's fetch target. A
        # response with a preferred replica has no records.
        if data.preferred_read_replica >= 0:
            self._on_preferred_replica(state, data.preferred_read_replica)

    def finish(self, response: FetchResponse) -> None:
        """Count the response, wake the readers of the partitions with new records, and apply the
        new leaders."""
        self._context.meter.responded(self._sent_at, response.throttle_time_ms, self._fetched)
        if self._arrived:
            still_wanted = self._context.queue.announce(self._arrived)
            if still_wanted is not None:
                # Another reader still waits for other partitions: fetch for it.
                self._fetcher.on_waiting_reader(still_wanted)
        if self._leaders:
            self._context.client.update_leaders(self._leaders, named_brokers(response))

    # -- records -----------------------------------------------------------------------------------

    def _buffer(self, state: PartitionState, found: Fetched) -> None:
        config = self._context.config
        reader = RecordReader(
            found.data,
            state.tp.topic,
            state.tp.partition,
            position=state.cursor.offset,
            check_crcs=config.check_crcs,
            read_committed=self._node.read_committed,
            aborted=found.aborted,
            key_deserializer=self._context.key_deserializer,
            value_deserializer=self._context.value_deserializer,
            on_error=self._context.on_unreadable,
            max_decompressed_bytes=config.max_decompressed_bytes,
        )
        if self._pinned is None:
            # Count the whole response: a view of one record set keeps the whole response in memory.
            self._pinned = self._node.pin(found.response_bytes)
        self._context.queue.buffer.add(state, reader, self._pinned)
        self._arrived[state.tp] = None
        if found.scan.end < 0:
            # The first batch is unreadable: the call that reads it raises the error. Its end offset
            # is unknown, so each fetch returns this batch again. Count it as a failure, so that the
            # backoff grows.
            self._postpone(state)
        else:
            state.retry.succeed()
            state.cursor.advance(found.scan.end, found.scan.spans)

    # -- errors ------------------------------------------------------------------------------------

    def _on_preferred_replica(self, state: PartitionState, replica: int) -> None:
        """Fetch from the preferred replica in a response of the leader (KIP-392). Back off, and
        fetch from the leader, if a follower has returned a replica, or the leader has returned
        itself."""
        if replica == self._node.node_id or state.target.preferred is not None:
            node_id = self._node.node_id
            text = f"{state.tp}: broker {node_id} returned the wrong preferred replica {replica}"
            log.debug("%s", text)
            self._postpone(state, KafkaProtocolError(text))
            self._fetcher.refuse_replica(state)
        else:
            self._fetcher.prefer_replica(state, replica)

    def _retry_later(self, state: PartitionState, found: RetryLater) -> None:
        name = found.error.__name__
        log.debug("%s: Fetch failed with %s", state.tp, name)
        epoch = state.cursor.leader_epoch
        self._context.fenced_epochs.on_error(self._node.node_id, state.tp, epoch, found.error)
        self._postpone(state, found.error)
        if state.target.preferred is not None:
            self._fetcher.refuse_replica(state)
        if not found.is_stale_metadata:
            return
        why, client = f"{state.tp}: Fetch failed with {name}", self._context.client
        if doubts_metadata(found.error, state.retry.failures):
            client.doubt_metadata(why)
        else:
            client.request_metadata(why)

    def _on_out_of_range(self, state: PartitionState) -> None:
        """Act on OFFSET_OUT_OF_RANGE:
        - from a preferred replica, which may lag: fetch from the leader;
        - if records of the partition are buffered: keep or drop them, and fetch again;
        - otherwise the resolver checks whether the position is lost."""
        cursor = state.cursor
        if state.target.preferred is not None:
            # The replica may lag.
            self._postpone(state, OffsetOutOfRangeError)
            self._fetcher.refuse_replica(state)
        elif cursor.queued:
            # The buffered records lie before the requested offset.
            # 1. With known leader epochs, they were compared with this leader's log (KIP-320). So
            #    the log has lost its beginning (retention), and the buffered records are valid.
            # 2. With unknown epochs, the log may have lost its end, including the buffered records:
            #    drop these records, and fetch from the reader's position.
            is_compared = min(cursor.leader_epoch, cursor.offset_epoch) >= 0
            if not is_compared or state.next_offset >= cursor.offset:
                self._context.queue.buffer.discard(state)
            self._postpone(state, OffsetOutOfRangeError)
        else:
            self._fetcher.resolver.on_out_of_range(state)

    def _too_large(self, state: PartitionState) -> Failure:
        limit = self._context.config.max_partition_fetch_bytes
        where = f"{state.tp}: the record at offset {state.cursor.offset}"
        text = f"{where} is larger than max_partition_fetch_bytes={limit}"
        return lambda: RecordTooLargeError(text)

    def _fail(self, state: PartitionState, failure: Failure) -> None:
        self._postpone(state)
        if state.target.preferred is not None:
            # The leader may have an undamaged copy, or newer ACLs.
            self._fetcher.refuse_replica(state)
            return
        self._context.queue.report(state, failure)
        if self._context.meter.collector is not None:
            self._context.meter.fetch_failed([state.tp], failure())

    def _postpone(
        self, state: PartitionState, error: KafkaError | type[BrokerResponseError] | None = None
    ) -> None:
        """Delay the partition's next fetch. `error`: for `health()` and the log; None if a call of
        the application raises the error."""
        client = self._context.config.client
        state.retry.postpone(self._now, client.retry_backoff, client.retry_backoff_max, error)
